//! The actions of clients that watch configuration: they connect to a node, read events, sometimes
//! slowly, break their connection, and come back at the same or another node.
//!
//! Owns when each step happens, and the hand-over between a connection and its node. It checks
//! nothing; `checkers` does.

use std::ops::Range;

use tidelock_core::clients::watcher::{WatchError, WatchStep};
use tidelock_core::command::{Consistency, Read, Reply, Request};
use tidelock_core::event::ConfigUpdate;
use tidelock_core::types::{NodeId, Token};

use super::World;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::plan::Plan;
use crate::watcher::WatchingClient;
use crate::workload::Workload;

/// Longest time that a long poll waits for a change.
const POLL_MAX: Micros = Micros(1_000_000);

/// Longest pause of a client while a healed cluster is inspected.
const PAUSE_MAX_HEALED: Micros = Micros(20_000);

/// The clients that watch configuration, if clients write any.
pub(super) fn watchers(plan: &Plan, workload: &Workload) -> Vec<WatchingClient> {
    if plan.load.config_per_mille == 0 {
        return Vec::new();
    }
    let names = [workload.namespaces(), workload.inheriting_namespaces()].concat();
    WatchingClient::all(&names, &mut plan.generator("watchers"))
}

impl World<'_> {
    /// Schedules the first step of every client that watches.
    pub(crate) fn start_watchers(&mut self) {
        for position in 0..self.watchers.len() {
            self.watch_after(position, self.plan.load.watching.absence_max);
        }
    }

    /// Ends the pauses of all clients once the cluster heals.
    pub(crate) fn end_watch_pauses(&mut self) {
        for position in 0..self.watchers.len() {
            self.watch_after(position, PAUSE_MAX_HEALED);
        }
    }

    /// Takes a client's next step: it connects, reads, or breaks its connection.
    pub(crate) fn watch(&mut self, position: usize) {
        let (now, is_loaded) = (self.event_queue.now(), self.is_loaded);
        let habits = self.plan.load.watching;
        let client = &mut self.watchers[position];
        if client.next_step != now {
            return;
        }
        let Some(connection) = &mut client.connection else { return self.connect_watcher(position) };
        let (unread, is_over) = (connection.unread(), connection.ends.is_some_and(|ends| ends <= now));
        let is_broken = is_loaded && client.random.u32(0..1_000) < habits.breaks_per_mille;
        if is_broken || unread == 0 && is_over {
            return self.disconnect_watcher(position);
        }
        if unread == 0 && connection.ends.is_none() {
            connection.heartbeat();
        }
        let count = client.random.usize(0..=unread);
        client.take(if is_loaded { count } else { unread });
        let last = client.last().unwrap_or_default();
        self.tally.watched += (unread - self.unread(position)) as u64;
        self.note(&[26, position as u64, last], || format!("watcher {position} has read up to {last}"));
        let is_answered = unread > 0 && self.unread(position) == 0;
        let is_poll = self.watchers[position].connection.as_ref().is_some_and(|open| open.ends.is_some());
        if is_poll && is_answered {
            return self.disconnect_watcher(position);
        }
        self.serve_watcher(position);
        self.watch_after(position, habits.pause_max);
    }

    fn unread(&self, position: usize) -> usize {
        self.watchers[position].connection.as_ref().map_or(0, |connection| connection.unread())
    }

    /// A client connects, often to the node that served it before.
    fn connect_watcher(&mut self, position: usize) {
        let up: Vec<NodeId> = self.hosts.iter().filter(|host| host.is_up()).map(|host| host.node()).collect();
        let (now, faults) = (self.event_queue.now(), self.plan.deliberate);
        let client = &mut self.watchers[position];
        let same = client.node.filter(|node| up.contains(node) && client.random.bool());
        if !up.is_empty() {
            let node = same.unwrap_or_else(|| *choose(&mut client.random, &up));
            client.connect(node, faults);
            let waits = Micros(client.random.u64(0..=POLL_MAX.0));
            let is_poll = client.random.u8(0..4) == 0;
            if let Some(connection) = client.connection.as_mut().filter(|_| is_poll) {
                connection.ends = Some(now + waits);
            }
            let last = client.last().unwrap_or_default();
            self.tally.watches_resumed += u64::from(last > 0);
            self.note(&[27, position as u64, node.0, last], || {
                format!("watcher {position} comes to node {node} after {last}")
            });
            self.serve_watcher(position);
        }
        self.watch_after(position, self.plan.load.watching.pause_max);
    }

    fn disconnect_watcher(&mut self, position: usize) {
        self.watchers[position].connection = None;
        self.watch_after(position, self.plan.load.watching.absence_max);
    }

    /// Ends the connections of a node that died.
    pub(crate) fn break_watchers(&mut self, node: NodeId) {
        for position in 0..self.watchers.len() {
            if self.watchers[position].connection.as_ref().is_some_and(|open| open.node == node) {
                self.disconnect_watcher(position);
            }
        }
    }

    fn watch_after(&mut self, position: usize, longest: Micros) {
        let longest = if self.is_loaded { longest } else { longest.min(PAUSE_MAX_HEALED) };
        let client = &mut self.watchers[position];
        client.next_step = self.event_queue.now() + Micros(client.random.u64(1..=longest.0));
        self.event_queue.at(client.next_step, SimEvent::Watch(position));
    }

    /// Takes the steps of a connection, as its node does, until it waits.
    fn serve_watcher(&mut self, position: usize) {
        loop {
            let client = &mut self.watchers[position];
            let Some(connection) = &mut client.connection else { return };
            let host = &mut self.hosts[(connection.node.0 - 1) as usize];
            if !host.is_running() {
                return;
            }
            match connection.next_step() {
                WatchStep::Ask { query, consistency } => {
                    let node = connection.node;
                    let is_at_once = consistency == Consistency::Stale && !connection.is_on_other_worker;
                    let read = client.read(query);
                    let reply = if is_at_once { host.look(&Read::Config(read.clone())) } else { None };
                    let asked = match reply {
                        Some(_) => None,
                        None => {
                            let request = Request::Read { read: Read::Config(read), consistency };
                            Some(self.ask(node, request, false))
                        }
                    };
                    let connection = self.watchers[position].connection.as_mut();
                    let connection = connection.expect("invariant: asking ends no connection");
                    connection.asked = asked;
                    if let Some(reply) = reply {
                        connection.answered(&reply);
                    }
                }
                WatchStep::Tell(notice) => {
                    let is_deletion = notice.events.iter().any(|event| event.revision == 0);
                    self.tally.deletions_watched += u64::from(is_deletion);
                    connection.send(notice);
                }
                WatchStep::Wait => return,
                WatchStep::End(WatchError::Mismatched) => {
                    panic!("the reply to a watcher answers another query")
                }
                WatchStep::End(_) => return self.disconnect_watcher(position),
            }
        }
    }

    /// Notifies the watchers at a node of changes of their containers.
    pub(crate) fn notify_watchers(&mut self, node: NodeId, news: &[ConfigUpdate]) {
        self.notify_where(node, |client| news.iter().any(|news| client.cares(news)));
    }

    /// Notifies the watchers of shards without a replica on their node.
    pub(crate) fn notify_remote_slots(&mut self, node: NodeId, slots: &[Range<u16>]) {
        self.notify_where(node, |client| client.is_in(slots));
    }

    fn notify_where(&mut self, node: NodeId, is_concerned: impl Fn(&WatchingClient) -> bool) {
        for position in 0..self.watchers.len() {
            let client = &mut self.watchers[position];
            let is_concerned = is_concerned(client);
            if let Some(connection) =
                client.connection.as_mut().filter(|open| is_concerned && open.node == node)
            {
                connection.notified();
                self.serve_watcher(position);
            }
        }
    }

    /// Handles an answer that may be for a watcher.
    pub(crate) fn watcher_hears(&mut self, token: Token, reply: &Reply) {
        let is_asked = |client: &WatchingClient| {
            client.connection.as_ref().is_some_and(|connection| connection.asked == Some(token))
        };
        let Some(position) = self.watchers.iter().position(is_asked) else { return };
        self.tally.watch_reads_refused += u64::from(matches!(reply, Reply::Refused(_)));
        if let Some(connection) = &mut self.watchers[position].connection {
            connection.answered(reply);
        }
        self.serve_watcher(position);
    }
}
