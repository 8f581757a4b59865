//! The actions of clients that watch keys: they connect to a node, read events, sometimes slowly,
//! break their connection, and come back at the same or another node.
//!
//! Owns when each step happens, the hub of each node, and the hand-over between a connection and
//! its node. It checks nothing; `checkers` does.

use std::ops::Range;

use tidelock_core::clients::key_watcher::KeyWatchStep;
use tidelock_core::clients::watch_hub::{WatchHub, Watched, WatcherId};
use tidelock_core::command::{Consistency, KeyScope, Read, Reply, Request};
use tidelock_core::event::KeyReport;
use tidelock_core::types::{NodeId, Token};

use super::World;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::key_watcher::KeyWatchingClient;
use crate::plan::Plan;
use crate::workload::Workload;

/// Longest time of a poll.
const POLL_MAX: Micros = Micros(1_000_000);

/// Longest pause of a client while a healed cluster is inspected.
const PAUSE_MAX_HEALED: Micros = Micros(20_000);

/// The clients that watch keys: of all keys, of some with a prefix, or of one.
pub(super) fn key_watchers(plan: &Plan, workload: &Workload) -> Vec<KeyWatchingClient> {
    let random = &mut plan.generator("key watchers");
    let client = |_| {
        let key = choose(random, workload.keys()).clone();
        let scope = match random.u8(0..4) {
            0 => KeyScope::Key(key),
            1 => KeyScope::Prefix(key.slice(..2)),
            _ => KeyScope::Prefix(bytes::Bytes::new()),
        };
        KeyWatchingClient::new(scope, random.fork())
    };
    (0..plan.load.key_watchers).map(client).collect()
}

impl World<'_> {
    /// Schedules the first step of every client that watches keys.
    pub(crate) fn start_key_watchers(&mut self) {
        for position in 0..self.key_watchers.len() {
            self.watch_keys_after(position, self.plan.load.watching.absence_max);
        }
    }

    /// Lets clients read and connect soon, once the faults have ended.
    pub(crate) fn end_key_watch_pauses(&mut self) {
        for position in 0..self.key_watchers.len() {
            self.watch_keys_after(position, PAUSE_MAX_HEALED);
        }
    }

    /// Takes a client's next step: it connects, reads, or breaks its connection.
    pub(crate) fn watch_keys(&mut self, position: usize) {
        let (now, is_loaded) = (self.event_queue.now(), self.is_loaded);
        let habits = self.plan.load.watching;
        let client = &mut self.key_watchers[position];
        if client.next_step != now {
            return;
        }
        let Some(connection) = &mut client.connection else {
            return match client.read_of_keys() {
                Some(read) => self.read_watched_keys(position, read),
                None => self.connect_key_watcher(position),
            };
        };
        if is_loaded && client.random.u32(0..1_000) < habits.breaks_per_mille {
            return self.disconnect_key_watcher(position);
        }
        if connection.unread() == 0 {
            let hub = &self.key_hubs[(connection.node.0 - 1) as usize];
            let is_due = hub.is_due(connection.id);
            match connection.ends {
                None => connection.heartbeat(hub.matched(), is_due),
                Some(ends) if ends <= now => connection.time_over(hub.matched(), is_due),
                Some(_) => {}
            }
        }
        let (unread, is_answered) = (connection.unread(), connection.is_answered());
        let count = client.random.usize(0..=unread);
        let events = client.take(if is_loaded { count } else { unread });
        self.tally.keys_watched += events as u64;
        self.note(&[40, position as u64, events as u64], || {
            format!("key watcher {position} has read {events} events")
        });
        let is_read = self.key_watchers[position].connection.as_ref().is_some_and(|open| open.unread() == 0);
        if is_answered && is_read {
            return self.disconnect_key_watcher(position);
        }
        self.serve_key_watcher(position);
        self.watch_keys_after(position, habits.pause_max);
    }

    /// A client whose poll was answered with a reset reads the keys.
    fn read_watched_keys(&mut self, position: usize, read: Read) {
        let up = self.running_nodes();
        if self.key_watchers[position].listing.is_none() && !up.is_empty() {
            let node = *choose(&mut self.key_watchers[position].random, &up);
            let request = Request::Read { read, consistency: Consistency::Linearizable };
            self.key_watchers[position].listing = Some(self.ask(node, request, false));
        }
        self.watch_keys_after(position, self.plan.load.watching.absence_max);
    }

    /// A client connects, often to the node that served it before.
    fn connect_key_watcher(&mut self, position: usize) {
        let up: Vec<NodeId> = self.hosts.iter().filter(|host| host.is_up()).map(|host| host.node()).collect();
        let now = self.event_queue.now();
        let client = &mut self.key_watchers[position];
        let same = client.node.filter(|node| up.contains(node) && client.random.bool());
        if !up.is_empty() {
            let node = same.unwrap_or_else(|| *choose(&mut client.random, &up));
            let id = self.key_hubs[(node.0 - 1) as usize].register(Watched::Keys(client.scope.clone()));
            let waits = Micros(client.random.u64(1..=POLL_MAX.0));
            let is_poll = client.random.u8(0..4) == 0;
            client.connect((node, id), is_poll.then(|| now + waits));
            self.note(&[41, position as u64, node.0], || {
                format!("key watcher {position} comes to node {node}")
            });
            self.serve_key_watcher(position);
        }
        self.watch_keys_after(position, self.plan.load.watching.pause_max);
    }

    fn disconnect_key_watcher(&mut self, position: usize) {
        if let Some(connection) = self.key_watchers[position].connection.take() {
            let hub = &mut self.key_hubs[(connection.node.0 - 1) as usize];
            hub.remove(connection.id);
            self.end_key_reports(connection.node);
        }
        self.watch_keys_after(position, self.plan.load.watching.absence_max);
    }

    /// Ends the connections of a node that died.
    pub(crate) fn break_key_watchers(&mut self, node: NodeId) {
        for position in 0..self.key_watchers.len() {
            if self.key_watchers[position].connection.as_ref().is_some_and(|open| open.node == node) {
                self.disconnect_key_watcher(position);
            }
        }
        // Answers of the node are lost; those of others are read again, too.
        self.key_watchers.iter_mut().for_each(|client| client.listing = None);
        self.key_hubs[(node.0 - 1) as usize] = WatchHub::default();
    }

    fn watch_keys_after(&mut self, position: usize, longest: Micros) {
        let longest = if self.is_loaded { longest } else { longest.min(PAUSE_MAX_HEALED) };
        let client = &mut self.key_watchers[position];
        client.next_step = self.event_queue.now() + Micros(client.random.u64(1..=longest.0));
        self.event_queue.at(client.next_step, SimEvent::WatchKeys(position));
    }

    /// Takes the steps of a connection, as its node does, until it waits.
    fn serve_key_watcher(&mut self, position: usize) {
        loop {
            let client = &mut self.key_watchers[position];
            let Some(connection) = &mut client.connection else { return };
            let (node, id) = (connection.node, connection.id);
            let host = &mut self.hosts[(node.0 - 1) as usize];
            if !host.is_running() {
                return;
            }
            let hub = &mut self.key_hubs[(node.0 - 1) as usize];
            if connection.unread() == 0 && hub.take_due(id) {
                connection.notified(hub.matched());
            }
            match connection.next_step() {
                KeyWatchStep::Ask { read, consistency } => {
                    let is_at_once = consistency == Consistency::Stale && !connection.is_on_other_worker;
                    match if is_at_once { host.look(&read) } else { None } {
                        Some(reply) => connection.answered(reply),
                        None => {
                            let asked = self.ask(node, Request::Read { read, consistency }, false);
                            if let Some(connection) = &mut self.key_watchers[position].connection {
                                connection.asked = Some(asked);
                            }
                            return;
                        }
                    }
                }
                KeyWatchStep::Tell(notice) => connection.send(notice),
                KeyWatchStep::Wait => return,
                KeyWatchStep::End(_) => return self.disconnect_key_watcher(position),
            }
        }
    }

    /// Notifies the watchers at a node of changed keys.
    pub(crate) fn notify_key_watchers(&mut self, node: NodeId, reports: &[KeyReport]) {
        self.wake_key_watchers(node, |hub, woken| {
            reports.iter().for_each(|report| hub.keys_changed(report, |id| woken.push(id)));
        });
    }

    /// Notifies the watchers at a node of slots without a replica there.
    pub(crate) fn notify_key_watchers_in(&mut self, node: NodeId, slots: &[Range<u16>]) {
        self.wake_key_watchers(node, |hub, woken| hub.slots_changed(slots, |id| woken.push(id)));
    }

    fn wake_key_watchers(&mut self, node: NodeId, report: impl Fn(&mut WatchHub, &mut Vec<WatcherId>)) {
        let mut woken = Vec::new();
        report(&mut self.key_hubs[(node.0 - 1) as usize], &mut woken);
        for id in woken {
            let is_it = |client: &KeyWatchingClient| {
                client.connection.as_ref().is_some_and(|open| open.node == node && open.id == id)
            };
            if let Some(position) = self.key_watchers.iter().position(is_it) {
                self.serve_key_watcher(position);
            }
        }
    }

    /// Handles an answer that may be for a watcher of keys.
    pub(crate) fn key_watcher_hears(&mut self, token: Token, reply: &Reply) {
        if let Some(client) = self.key_watchers.iter_mut().find(|client| client.listing == Some(token)) {
            return client.keys_read(reply);
        }
        let is_asked = |client: &KeyWatchingClient| {
            client.connection.as_ref().is_some_and(|connection| connection.asked == Some(token))
        };
        let Some(position) = self.key_watchers.iter().position(is_asked) else { return };
        if let Some(connection) = &mut self.key_watchers[position].connection {
            connection.answered(reply.clone());
        }
        self.serve_key_watcher(position);
    }
}
