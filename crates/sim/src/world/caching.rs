//! The actions of clients that cache keys: they connect to a node, read keys through it, keep the
//! values, and drop those that the node invalidates.
//!
//! Owns when each step happens, the tables of tracked keys, and what a client caches. A cached
//! value must be invalidated as soon as the replica of its node shows a later one. In a healed
//! cluster, a client caches nothing but the present values.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use tidelock_core::clients::key_tracking::{ENTRY_BYTES, Invalidation, KeyTracking, TrackerId};
use tidelock_core::command::{Consistency, KeyScope, Read, ReadReply, Reply, Request};
use tidelock_core::event::{Event, KeyReport};
use tidelock_core::types::{NodeId, Token, Version};

use super::World;
use crate::checkers::Violation;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::plan::Plan;

const CHECKER: &str = "caches";

/// About how many keys a node tracks, so that some must make room for others.
const KEYS_TRACKED: usize = 6;

/// Of a thousand steps of a client, how many break its connection.
const BREAKS_PER_MILLE: u32 = 5;

/// A client that caches keys.
#[derive(Debug)]
pub(crate) struct CachingClient {
    /// Whether it learns of changes of all keys, not only of those that it reads.
    is_broadcast: bool,
    connection: Option<CacheConnection>,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct CacheConnection {
    node: NodeId,
    id: TrackerId,
    /// Whether the node reports changes, so that the client may cache.
    has_begun: bool,
    /// The open read: of a key, or the one with which the node begins its reports.
    asked: Option<(Token, Option<Bytes>)>,
    cached: BTreeMap<Bytes, CachedValue>,
}

#[derive(Debug)]
struct CachedValue {
    /// `None`: the key does not exist.
    version: Option<Version>,
    /// The slot map by which the node had all keys, if it had.
    whole_map: Option<u64>,
}

/// The clients that cache keys.
pub(super) fn caching_clients(plan: &Plan) -> Vec<CachingClient> {
    let random = &mut plan.generator("caching clients");
    let client = |number: usize| CachingClient {
        is_broadcast: number % 3 == 2,
        connection: None,
        random: random.fork(),
    };
    (0..plan.load.caching_clients).map(client).collect()
}

/// The tracked keys of each node.
pub(super) fn tracked_keys(plan: &Plan) -> Vec<KeyTracking> {
    (0..plan.hosts()).map(|_| empty_table(plan)).collect()
}

fn empty_table(plan: &Plan) -> KeyTracking {
    KeyTracking::new(KEYS_TRACKED * (ENTRY_BYTES + 16), plan.deliberate)
}

impl World<'_> {
    /// Schedules the first step of every client that caches keys.
    pub(crate) fn start_caching(&mut self) {
        (0..self.caching_clients.len()).for_each(|position| self.cache_later(position));
    }

    fn cache_later(&mut self, position: usize) {
        let pause = self.plan.load.pause_max.0.min(100_000);
        let pause = Micros(self.caching_clients[position].random.u64(1..=pause));
        self.event_queue.after(pause, SimEvent::Cache(position));
    }

    /// Takes a client's next step: it connects, drops what is invalid and reads a key, or breaks
    /// its connection.
    pub(crate) fn cache(&mut self, position: usize) -> Result<(), Violation> {
        self.take_invalidations(position);
        self.check_cache(position)?;
        if self.is_loaded {
            let client = &mut self.caching_clients[position];
            let breaks = client.random.u32(0..1_000) < BREAKS_PER_MILLE;
            match &client.connection {
                None => self.connect_cache(position),
                Some(_) if breaks => self.disconnect_cache(position),
                Some(connection) if connection.has_begun && connection.asked.is_none() => {
                    self.read_to_cache(position);
                }
                Some(_) => {}
            }
        }
        self.cache_later(position);
        Ok(())
    }

    fn connect_cache(&mut self, position: usize) {
        let up = self.running_nodes();
        if up.is_empty() {
            return;
        }
        let client = &mut self.caching_clients[position];
        let node = *choose(&mut client.random, &up);
        let everything = [Bytes::new()];
        let prefixes = if client.is_broadcast { &everything[..] } else { &[] };
        let id = self.tracked_keys[(node.0 - 1) as usize].begin(prefixes);
        self.note(&[43, position as u64, node.0], || {
            format!("caching client {position} comes to node {node}")
        });
        let scope = KeyScope::Prefix(Bytes::new());
        let read = Read::Changes { scope, after: None, limit: 1, keys_only: true };
        let token = self.ask(node, Request::Read { read, consistency: Consistency::Linearizable }, false);
        let (asked, cached) = (Some((token, None)), BTreeMap::new());
        let connection = CacheConnection { node, id, has_begun: false, asked, cached };
        self.caching_clients[position].connection = Some(connection);
    }

    /// Reads a key through the node, which tracks it from before the read.
    fn read_to_cache(&mut self, position: usize) {
        let client = &mut self.caching_clients[position];
        let key = choose(&mut client.random, self.workload.keys()).clone();
        let is_broadcast = client.is_broadcast;
        let Some(CacheConnection { node, id, .. }) = client.connection else { return };
        if !self.host(node).is_running() {
            return;
        }
        if !is_broadcast {
            // Clients for which an invalidation waits look for it in their next step.
            self.tracked_keys[(node.0 - 1) as usize].track(id, &key, |_| {});
        }
        let read = Read::Get { key: key.clone() };
        let token = self.ask(node, Request::Read { read, consistency: Consistency::Linearizable }, false);
        if let Some(connection) = &mut self.caching_clients[position].connection {
            connection.asked = Some((token, Some(key)));
        }
    }

    /// Handles an answer that may be for a client that caches keys.
    pub(crate) fn caching_client_hears(&mut self, token: Token, reply: &Reply) {
        let is_asked = |client: &CachingClient| {
            let asked = client.connection.as_ref().and_then(|connection| connection.asked.as_ref());
            asked.is_some_and(|(asked, _)| *asked == token)
        };
        let Some(position) = self.caching_clients.iter().position(is_asked) else { return };
        let Some(connection) = &mut self.caching_clients[position].connection else { return };
        let Some((_, key)) = connection.asked.take() else { return };
        match (key, reply) {
            (Some(key), Reply::Read(ReadReply::Value(value))) => {
                let whole_map = self.hosts[(connection.node.0 - 1) as usize].whole_map();
                let version = value.as_ref().map(|value| value.version);
                connection.cached.insert(key, CachedValue { version, whole_map });
                self.tally.values_cached += 1;
            }
            (None, Reply::Read(_)) => connection.has_begun = true,
            (None, _) => self.disconnect_cache(position),
            (Some(_), _) => {}
        }
    }

    /// Drops what is invalid. Invalidations follow the reply to a read that is open.
    fn take_invalidations(&mut self, position: usize) {
        let Some(connection) = &mut self.caching_clients[position].connection else { return };
        if connection.asked.is_some() {
            return;
        }
        let before = connection.cached.len();
        match self.tracked_keys[(connection.node.0 - 1) as usize].take(connection.id) {
            Some(Invalidation::All) => connection.cached.clear(),
            Some(Invalidation::Keys(keys)) => connection.cached.retain(|key, _| !keys.contains(key)),
            None => {}
        }
        self.tally.values_invalidated += (before - connection.cached.len()) as u64;
    }

    /// Checks that the replicas of the node show no later value than the cached one. That is so
    /// only while slots do not move, because their moves are reported a little later.
    fn check_cache(&mut self, position: usize) -> Result<(), Violation> {
        let Some(connection) = &self.caching_clients[position].connection else { return Ok(()) };
        let host = &mut self.hosts[(connection.node.0 - 1) as usize];
        let whole_map = host.whole_map();
        if connection.asked.is_some() || whole_map.is_none() {
            return Ok(());
        }
        for (key, cached) in connection.cached.iter().filter(|(_, cached)| cached.whole_map == whole_map) {
            let Some(Reply::Read(ReadReply::Value(Some(shown)))) = host.look(&Read::Get { key: key.clone() })
            else {
                continue;
            };
            if cached.version.is_some_and(|version| version < shown.version) {
                let text = format!(
                    "caching client {position} at node {} still has version {:?} of {key:?}, and the node {}",
                    connection.node, cached.version, shown.version
                );
                return Err(Violation::new(CHECKER, text));
            }
        }
        Ok(())
    }

    fn disconnect_cache(&mut self, position: usize) {
        let Some(connection) = self.caching_clients[position].connection.take() else { return };
        self.tracked_keys[(connection.node.0 - 1) as usize].end(connection.id);
        self.end_key_reports(connection.node);
    }

    /// Lets a node end its reports, if no client there needs them.
    pub(super) fn end_key_reports(&mut self, node: NodeId) {
        let position = (node.0 - 1) as usize;
        let is_needed = self.key_hubs[position].key_watchers() > 0 || !self.tracked_keys[position].is_empty();
        if !is_needed && self.host(node).is_running() {
            self.post(node, Event::KeysUnwatched);
        }
    }

    /// Ends the connections of a node that died.
    pub(crate) fn break_caches(&mut self, node: NodeId) {
        for client in &mut self.caching_clients {
            if client.connection.as_ref().is_some_and(|connection| connection.node == node) {
                client.connection = None;
            }
        }
        self.tracked_keys[(node.0 - 1) as usize] = empty_table(self.plan);
    }

    /// Reports changed keys, and slots about which a node gets no reports, to its clients.
    pub(crate) fn invalidate_caches(&mut self, node: NodeId, reports: &[KeyReport], slots: &[Range<u16>]) {
        let tracked = &mut self.tracked_keys[(node.0 - 1) as usize];
        reports.iter().for_each(|report| tracked.keys_changed(report, |_| {}));
        if !slots.is_empty() {
            tracked.slots_changed(slots, |_| {});
        }
    }

    /// Compares what the clients cache with the present values. Returns the first difference.
    pub(super) fn outdated_cache(&mut self) -> Result<Option<String>, Violation> {
        let node = self.nodes()[0];
        let page = self.list(node, Consistency::Linearizable)?;
        for position in 0..self.caching_clients.len() {
            self.take_invalidations(position);
            let Some(connection) = &self.caching_clients[position].connection else { continue };
            for (key, cached) in &connection.cached {
                let present = page.items.iter().find(|item| item.key == *key).map(|item| item.version);
                if cached.version != present {
                    let text = format!(
                        "caching client {position} at node {} has version {:?} of {key:?} instead of {present:?}",
                        connection.node, cached.version
                    );
                    return Ok(Some(text));
                }
            }
        }
        Ok(None)
    }
}
