//! The actions of clients with leases, and the end of all leases in a healed cluster.
//!
//! Owns when and where each client sends its next request. Between requests it rests for a moment,
//! or for longer than its lease lasts: then it comes back as a holder that was paused, or its place
//! in a queue is that of a client that died.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidelock_core::command::{Consistency, Page, Read, ReadReply, Refusal, Reply, Request};
use tidelock_core::limits::{CLOCK_STEP_MS, LIST_PAGE_ITEMS_MAX};
use tidelock_core::types::{NodeId, ShardId, Term, Token, UnixMillis};
use tidelock_core::version::ClusterVersion;

use super::World;
use crate::checkers::Violation;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::leases::{LeaseClient, TTL_MS_MAX, ends_with_lease};
use crate::plan::Plan;
use crate::workload::Workload;

/// Of this many pauses of a client, one is longer than its lease.
const PAUSES_PER_LONG_ONE: u32 = 12;

/// Longest pause between two requests otherwise.
const PAUSE_MAX: Micros = Micros(300_000);

/// A client, and the request that it waits for.
#[derive(Debug)]
pub(super) struct LeasingClient {
    client: LeaseClient,
    asked: Option<Token>,
    /// A step that is due at another time is obsolete, because an answer came first.
    next_step: Micros,
}

/// The clients of a plan that have leases.
pub(super) fn lease_clients(plan: &Plan, workload: &Workload) -> Vec<LeasingClient> {
    let client = |number| {
        let random = plan.generator(&format!("lease client {number}"));
        let client = LeaseClient::new(workload.tags().to_vec(), random);
        LeasingClient { client, asked: None, next_step: Micros(0) }
    };
    (0..plan.load.lease_clients).map(client).collect()
}

impl World<'_> {
    /// Schedules the first step of every client with leases.
    pub(crate) fn start_lease_clients(&mut self) {
        for position in 0..self.lease_clients.len() {
            self.lease_after(position, Micros::MILLISECOND * 10);
        }
    }

    /// A client sends its next request, to any node.
    pub(crate) fn lease(&mut self, position: usize) {
        if self.lease_clients[position].next_step != self.event_queue.now() {
            return;
        }
        let up: Vec<NodeId> = self.hosts.iter().filter(|host| host.is_up()).map(|host| host.node()).collect();
        if !up.is_empty() {
            let token = self.history.next_token();
            let client = &mut self.lease_clients[position].client;
            let node = *choose(&mut client.random, &up);
            let request = client.request(token);
            let asked = self.ask(node, request, false);
            self.lease_clients[position].asked = Some(asked);
        }
        self.lease_after(position, self.plan.load.client_timeout);
    }

    /// Handles an answer that may be for a client with leases.
    pub(crate) fn lease_client_hears(&mut self, token: Token, reply: &Reply) {
        let Some(position) = self.lease_clients.iter().position(|client| client.asked == Some(token)) else {
            return;
        };
        let Some(operation) = self.history.operation(token) else { return };
        let leasing = &mut self.lease_clients[position];
        leasing.asked = None;
        self.tally.leases_kept += u64::from(leasing.client.hears(&operation.request, reply));
        let random = &mut leasing.client.random;
        let pause = match random.u32(0..PAUSES_PER_LONG_ONE) {
            0 => Micros::MILLISECOND * random.u64(TTL_MS_MAX / 2..=TTL_MS_MAX * 2),
            _ => Micros(random.u64(1..=PAUSE_MAX.0)),
        };
        self.lease_after(position, pause);
    }

    fn lease_after(&mut self, position: usize, delay: Micros) {
        let at = self.event_queue.now() + delay;
        self.lease_clients[position].next_step = at;
        self.event_queue.at(at, SimEvent::Lease(position));
    }

    /// Checks that all leases of a healed cluster end in time, since nobody renews them, and that
    /// their keys and locks go with them. If every node can shorten leases, they do so even if the
    /// clock of a former leader was ahead.
    pub(super) fn settle_leases(&mut self) -> Result<(), Violation> {
        if self.lease_clients.is_empty() && self.lock_waiters.is_empty() {
            return Ok(());
        }
        let election = self.plan.election_timeout();
        let (mut terms, mut led_since) = ((BTreeMap::new(), false), self.event_queue.now());
        loop {
            let Page { items, .. } =
                self.page_of(Read::Leases { prefix: Bytes::new(), after: None, limit: LIST_PAGE_ITEMS_MAX })?;
            if items.is_empty() {
                break;
            }
            // After a change of a leader they last for their time to live again.
            let shortens = self.all_shorten_leases();
            let present = (self.terms(), shortens);
            if present != terms {
                (terms, led_since) = (present, self.event_queue.now());
            }
            let node = self.nodes()[0];
            let clock = |world: &mut World<'_>, at| world.host(node).clock(at);
            let floor = UnixMillis(clock(self, led_since).0 + TTL_MS_MAX + CLOCK_STEP_MS);
            let now = clock(self, self.event_queue.now());
            let late_ms = 2 * election.0 / 1_000;
            let last = |ends: UnixMillis| if shortens { floor } else { ends.max(floor) };
            let is_late = |ends: Option<UnixMillis>| ends.is_some_and(|ends| last(ends).0 + late_ms < now.0);
            if let Some(item) = items.iter().find(|item| is_late(item.expires)) {
                let text = format!(
                    "a lease outlives its end: {item:?}, though a leader has led since {floor} at {now}"
                );
                return Err(Violation::new("leases", text));
            }
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        let page = self.list(self.nodes()[0], Consistency::Linearizable)?;
        match page.items.iter().find(|item| ends_with_lease(&item.key)) {
            Some(item) => Err(Violation::new("leases", format!("a key outlives all leases: {item:?}"))),
            None => Ok(()),
        }
    }

    fn page_of(&mut self, read: Read) -> Result<Page, Violation> {
        let node = self.nodes()[0];
        let request = Request::Read { read, consistency: Consistency::Linearizable };
        let token = self.ask(node, request, false);
        match self.reply(token)? {
            Reply::Read(ReadReply::Page(page)) => Ok(page),
            // A cluster of such a version has never granted a lease.
            Reply::Refused(Refusal::VersionTooLow) => Ok(Page::default()),
            other => Err(Violation::new("service", format!("node {node} does not list leases: {other:?}"))),
        }
    }

    /// Whether all members know that leaders may shorten leases.
    fn all_shorten_leases(&self) -> bool {
        let mut members = self.hosts.iter().filter(|host| host.is_member());
        members.all(|host| host.cluster_version() >= ClusterVersion::WITH_SHORTENED_LEASES)
    }

    /// The highest term of each shard.
    fn terms(&self) -> BTreeMap<ShardId, Term> {
        let mut terms = BTreeMap::new();
        for shard in self.hosts.iter().filter_map(|host| host.status()).flat_map(|status| status.shards) {
            let term = terms.entry(shard.shard).or_insert(shard.term);
            *term = shard.term.max(*term);
        }
        terms
    }
}
