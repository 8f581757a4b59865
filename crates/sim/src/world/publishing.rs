//! The actions of clients that publish messages, and what arrives for the subscribers of each node.
//!
//! Owns when a client publishes, and which message has arrived where. Every node counts as one with
//! subscribers. A node gets the messages that were published through one node in order and once,
//! if at all, and nothing that was not published. In a healed cluster, every node gets a message
//! soon.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidelock_core::command::{NodeReply, Publication, Refusal, Reply, Request};
use tidelock_core::types::{NodeId, Token};

use super::World;
use crate::checkers::Violation;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::plan::Plan;

const CHECKER: &str = "publications";

/// Election timeouts within which a message reaches every node of a healed cluster.
const ELECTIONS_TO_ARRIVE: u64 = 3;

/// The clients that publish, and all their messages.
#[derive(Debug)]
pub(crate) struct PublishingClients {
    random: Vec<fastrand::Rng>,
    /// By their numbers, which are their contents.
    published: Vec<PublishedMessage>,
    /// By receiver and publishing node: the number of the last message that arrived.
    last: BTreeMap<(NodeId, NodeId), usize>,
}

#[derive(Debug)]
struct PublishedMessage {
    /// The node that the client asked.
    origin: NodeId,
    token: Token,
    receivers: BTreeSet<NodeId>,
}

impl PublishingClients {
    pub(super) fn new(plan: &Plan) -> PublishingClients {
        let random = &mut plan.generator("publishing clients");
        let random = (0..plan.load.publishing_clients).map(|_| random.fork()).collect();
        PublishingClients { random, published: Vec::new(), last: BTreeMap::new() }
    }

    /// Records what arrived at a node.
    fn arrived(&mut self, node: NodeId, publication: &Publication) -> Result<(), Violation> {
        let number =
            std::str::from_utf8(&publication.message).ok().and_then(|text| text.parse::<usize>().ok());
        let Some((number, message)) =
            number.and_then(|number| Some((number, self.published.get_mut(number)?)))
        else {
            return Err(Violation::new(CHECKER, format!("node {node} got {publication:?} from nobody")));
        };
        let last = self.last.insert((node, message.origin), number);
        if let Some(last) = last.filter(|last| *last >= number) {
            let text = format!(
                "node {node} got message {number}, published through node {}, after message {last}",
                message.origin
            );
            return Err(Violation::new(CHECKER, text));
        }
        message.receivers.insert(node);
        Ok(())
    }
}

impl World<'_> {
    /// Schedules the first message of every client that publishes.
    pub(crate) fn start_publishing(&mut self) {
        (0..self.publishing.random.len()).for_each(|position| self.publish_later(position));
    }

    fn publish_later(&mut self, position: usize) {
        let pause = self.plan.load.pause_max.0.min(100_000);
        let pause = Micros(self.publishing.random[position].u64(1..=pause));
        self.event_queue.after(pause, SimEvent::Publish(position));
    }

    /// A client publishes a message through any node.
    pub(crate) fn publish(&mut self, position: usize) {
        let up = self.running_nodes();
        if !up.is_empty() {
            let node = *choose(&mut self.publishing.random[position], &up);
            self.publish_through(node, false);
        }
        self.publish_later(position);
    }

    fn publish_through(&mut self, node: NodeId, is_final: bool) -> Token {
        let number = self.publishing.published.len();
        let (channel, message) = (Bytes::from_static(b"channel"), Bytes::from(number.to_string()));
        let request = Request::Publish(Publication { channel, message });
        let token = self.ask(node, request, is_final);
        let message = PublishedMessage { origin: node, token, receivers: BTreeSet::new() };
        self.publishing.published.push(message);
        self.tally.published += 1;
        token
    }

    /// Messages have arrived at a node.
    pub(crate) fn publications_arrive(
        &mut self,
        node: NodeId,
        publications: &[Publication],
    ) -> Result<(), Violation> {
        for publication in publications {
            self.publishing.arrived(node, publication)?;
            self.tally.publications_received += 1;
        }
        Ok(())
    }

    /// Checks that a message that was answered has reached the subscribers of the node itself.
    pub(crate) fn publishing_client_hears(&self, token: Token, reply: &Reply) -> Result<(), Violation> {
        if !matches!(reply, Reply::Node(NodeReply::Published)) {
            return Ok(());
        }
        // It is among the last ones: it is answered at once.
        let message = self.publishing.published.iter().rev().find(|message| message.token == token);
        match message {
            Some(message) if !message.receivers.contains(&message.origin) => {
                let text = format!("node {} has not got the message of {token} itself", message.origin);
                Err(Violation::new(CHECKER, text))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a message through any node of a healed cluster soon reaches every node.
    pub(super) fn settle_publications(&mut self) -> Result<(), Violation> {
        if self.publishing.random.is_empty() {
            return Ok(());
        }
        for node in self.nodes() {
            let number = self.publishing.published.len();
            let token = self.publish_through(node, true);
            match self.reply(token)? {
                Reply::Node(NodeReply::Published) => {}
                Reply::Refused(Refusal::VersionTooLow) if self.plan.is_mixed() => continue,
                other => {
                    let text = format!("node {node} of a healed cluster does not publish: {other:?}");
                    return Err(Violation::new(CHECKER, text));
                }
            }
            self.await_publication(number)?;
        }
        Ok(())
    }

    fn await_publication(&mut self, number: usize) -> Result<(), Violation> {
        let missing = |world: &World<'_>| {
            let receivers = &world.publishing.published[number].receivers;
            world.nodes().into_iter().find(|node| !receivers.contains(node))
        };
        for _ in 0..ELECTIONS_TO_ARRIVE {
            if missing(self).is_none() {
                return Ok(());
            }
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        match missing(self) {
            None => Ok(()),
            Some(node) => {
                let origin = self.publishing.published[number].origin;
                let text =
                    format!("node {node} of a healed cluster has not got a message through node {origin}");
                Err(Violation::new(CHECKER, text))
            }
        }
    }
}
