//! Invalidation of the caches of one worker's clients (`CLIENT TRACKING` of the Redis protocol).
//!
//! Owns which keys the clients may have cached, which of them a change concerns, and the
//! invalidations that a client was not sent yet. It holds no values and reads nothing: it follows
//! the reports of changed keys ([`KeyReport`]), and slots about which this node gets no reports.
//!
//! A client is tracked by the keys that it reads, or by prefixes. A key that it reads is registered
//! before the read is submitted. So every change that the read does not show is reported later, and
//! finds the key here. The driver sends an invalidation after the replies to all commands that it
//! had taken from the client before, so a client never caches a value after its invalidation.
//!
//! Everything is bounded, and no invalidation is lost: when the table of keys is full, a key is
//! evicted from it, and its clients are told to drop it. When too many invalidations wait for a
//! client, or the changed keys are not known, all keys of the client are invalidated.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::{Bound, Range};

use crate::command::{ChangedKeys, KeyScope};
use crate::deliberate::{Fault, Faults};
use crate::event::KeyReport;
use crate::limits;
use crate::slots::slot_of;

/// Bytes of an entry in the table of tracked keys, besides the key.
pub const ENTRY_BYTES: usize = 128;

/// The number of a client in its table. It is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrackerId(pub u64);

/// What a client is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// These keys have changed, or are no longer tracked.
    Keys(Vec<Bytes>),
    /// Any key may have changed.
    All,
}

/// The tracked clients of a worker.
#[derive(Debug)]
pub struct KeyTracking {
    clients: BTreeMap<TrackerId, TrackedClient>,
    clients_begun: u64,
    /// The clients that have read a key. Those that have left are removed with the key.
    by_key: BTreeMap<Bytes, Vec<TrackerId>>,
    /// By the length of the prefix.
    by_prefix: BTreeMap<usize, BTreeMap<Bytes, Vec<TrackerId>>>,
    /// Bytes of `by_key`, and at most how many it may have.
    key_bytes: usize,
    key_bytes_max: usize,
    /// The key that was removed last to make room. The next one is behind it.
    evicted: Bytes,
    faults: Faults,
}

#[derive(Debug, Default)]
struct TrackedClient {
    /// Empty if it is tracked by the keys that it reads.
    prefixes: Vec<Bytes>,
    waiting: WaitingInvalidations,
}

/// The invalidations that a client was not sent yet: at most
/// [`limits::INVALIDATIONS_BYTES_MAX`].
#[derive(Debug, Default)]
pub struct WaitingInvalidations {
    keys: BTreeSet<Bytes>,
    bytes: usize,
    is_all: bool,
}

impl WaitingInvalidations {
    fn is_empty(&self) -> bool {
        !self.is_all && self.keys.is_empty()
    }

    fn add(&mut self, key: &Bytes) {
        if self.is_all || self.keys.contains(key) {
            return;
        }
        self.bytes += key.len() + ENTRY_BYTES;
        if self.bytes > limits::INVALIDATIONS_BYTES_MAX {
            return self.add_all();
        }
        self.keys.insert(key.clone());
    }

    fn add_all(&mut self) {
        *self = WaitingInvalidations { is_all: true, ..WaitingInvalidations::default() };
    }

    /// Adds what another client is not sent itself.
    pub fn add_invalidation(&mut self, invalidation: &Invalidation) {
        match invalidation {
            Invalidation::Keys(keys) => keys.iter().for_each(|key| self.add(key)),
            Invalidation::All => self.add_all(),
        }
    }

    /// Takes what the client is to be sent, if anything.
    pub fn take(&mut self) -> Option<Invalidation> {
        if self.is_empty() {
            return None;
        }
        let WaitingInvalidations { keys, is_all, .. } = core::mem::take(self);
        Some(if is_all { Invalidation::All } else { Invalidation::Keys(keys.into_iter().collect()) })
    }

    /// Bytes of the keys.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl KeyTracking {
    /// A table without clients, for this many bytes of keys that they read: see
    /// [`limits::TRACKED_BYTES_MAX`].
    pub fn new(key_bytes_max: usize, faults: Faults) -> KeyTracking {
        KeyTracking {
            clients: BTreeMap::new(),
            clients_begun: 0,
            by_key: BTreeMap::new(),
            by_prefix: BTreeMap::new(),
            key_bytes: 0,
            key_bytes_max,
            evicted: Bytes::new(),
            faults,
        }
    }

    /// Adds a client: of these prefixes, or of the keys that it reads if there are none. The empty
    /// prefix means all keys.
    pub fn begin(&mut self, prefixes: &[Bytes]) -> TrackerId {
        self.clients_begun += 1;
        let id = TrackerId(self.clients_begun);
        self.clients.insert(id, TrackedClient::default());
        prefixes.iter().for_each(|prefix| self.add_prefix(id, prefix.clone()));
        id
    }

    /// Adds a prefix to those of a client.
    ///
    /// # Panics
    /// If there is no such client.
    pub fn add_prefix(&mut self, id: TrackerId, prefix: Bytes) {
        let client = self.clients.get_mut(&id).expect("invariant: the client is tracked");
        if !client.prefixes.contains(&prefix) {
            client.prefixes.push(prefix.clone());
            self.by_prefix.entry(prefix.len()).or_default().entry(prefix).or_default().push(id);
        }
    }

    /// Removes a client.
    pub fn end(&mut self, id: TrackerId) {
        let Some(client) = self.clients.remove(&id) else { return };
        for prefix in client.prefixes {
            let Some(of_length) = self.by_prefix.get_mut(&prefix.len()) else { continue };
            if let Some(ids) = of_length.get_mut(&prefix) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    of_length.remove(&prefix);
                }
            }
            if of_length.is_empty() {
                self.by_prefix.remove(&prefix.len());
            }
        }
        if self.clients.is_empty() {
            (self.by_key, self.key_bytes) = (BTreeMap::new(), 0);
        }
    }

    /// A client is about to read a key. Passes the clients for which an invalidation waits now and
    /// none did before to `wake`, because the key may take the place of others.
    pub fn track(&mut self, id: TrackerId, key: &[u8], mut wake: impl FnMut(TrackerId)) {
        match self.by_key.get_mut(key) {
            Some(ids) if ids.contains(&id) => return,
            Some(ids) => ids.push(id),
            None => drop(self.by_key.insert(Bytes::copy_from_slice(key), [id].into())),
        }
        self.key_bytes += key.len() + ENTRY_BYTES;
        while self.key_bytes > self.key_bytes_max {
            self.evict(key, &mut wake);
        }
    }

    /// Removes a key other than `kept`.
    fn evict(&mut self, kept: &[u8], wake: &mut impl FnMut(TrackerId)) {
        let behind = (Bound::Excluded(self.evicted.clone()), Bound::Unbounded);
        let mut victims = self.by_key.range(behind).chain(&self.by_key).map(|(key, _)| key);
        let victim = victims.find(|key| **key != *kept).cloned();
        // A single key cannot fill the table, unless all clients have read it.
        self.evicted = victim.unwrap_or_else(|| Bytes::copy_from_slice(kept));
        let evicted = self.evicted.clone();
        if self.faults.has(Fault::EvictedKeyNotInvalidated) {
            self.remove_key(&evicted);
        } else {
            self.key_changed(&evicted, wake);
        }
    }

    fn remove_key(&mut self, key: &[u8]) -> Vec<TrackerId> {
        let ids = self.by_key.remove(key).unwrap_or_default();
        self.key_bytes -= ids.len() * (key.len() + ENTRY_BYTES);
        ids
    }

    /// Keys have changed. Passes the clients for which an invalidation waits now and none did
    /// before to `wake`.
    pub fn keys_changed(&mut self, report: &KeyReport, mut wake: impl FnMut(TrackerId)) {
        if self.clients.is_empty() {
            return;
        }
        match &report.keys {
            ChangedKeys::Keys(keys) => {
                for key in keys {
                    self.key_changed(key, &mut wake);
                    self.key_of_prefixes_changed(key, &mut wake);
                }
            }
            ChangedKeys::Any if self.faults.has(Fault::TrackingGapIgnored) => {}
            ChangedKeys::Any => self.slots_changed(report.slots.ranges(), wake),
        }
    }

    fn key_changed(&mut self, key: &Bytes, wake: &mut impl FnMut(TrackerId)) {
        for id in self.remove_key(key) {
            self.invalidate(id, wake, |waiting| waiting.add(key));
        }
    }

    fn key_of_prefixes_changed(&mut self, key: &Bytes, wake: &mut impl FnMut(TrackerId)) {
        let mut concerned = Vec::new();
        for (length, of_length) in &self.by_prefix {
            let Some(prefix) = key.get(..*length) else { break };
            concerned.extend(of_length.get(prefix).into_iter().flatten().copied());
        }
        for id in concerned {
            self.invalidate(id, wake, |waiting| waiting.add(key));
        }
    }

    /// Any key of these slots may have changed. Passes the clients for which an invalidation waits
    /// now and none did before to `wake`.
    pub fn slots_changed(&mut self, slots: &[Range<u16>], mut wake: impl FnMut(TrackerId)) {
        let is_in = |slot: u16| slots.iter().any(|range| range.contains(&slot));
        let keys: Vec<Bytes> = self.by_key.keys().filter(|key| is_in(slot_of(key))).cloned().collect();
        for key in &keys {
            self.key_changed(key, &mut wake);
        }
        let is_concerned =
            |prefix: &Bytes| KeyScope::Prefix(prefix.clone()).slot().map_or(!slots.is_empty(), is_in);
        let concerned = self.clients.iter().filter(|(_, client)| client.prefixes.iter().any(is_concerned));
        let concerned: Vec<TrackerId> = concerned.map(|(id, _)| *id).collect();
        for id in concerned {
            self.invalidate(id, &mut wake, WaitingInvalidations::add_all);
        }
    }

    fn invalidate(
        &mut self,
        id: TrackerId,
        wake: &mut impl FnMut(TrackerId),
        add: impl FnOnce(&mut WaitingInvalidations),
    ) {
        // The client may have left.
        let Some(client) = self.clients.get_mut(&id) else { return };
        let was_empty = client.waiting.is_empty();
        add(&mut client.waiting);
        if was_empty {
            wake(id);
        }
    }

    /// Takes what a client is to be sent, if anything.
    pub fn take(&mut self, id: TrackerId) -> Option<Invalidation> {
        self.clients.get_mut(&id)?.waiting.take()
    }

    /// Bytes of the invalidations that wait for a client.
    pub fn waiting_bytes(&self, id: TrackerId) -> usize {
        self.clients.get(&id).map_or(0, |client| client.waiting.bytes)
    }

    /// The prefixes of a client; empty if it is tracked by the keys that it reads.
    pub fn prefixes(&self, id: TrackerId) -> &[Bytes] {
        self.clients.get(&id).map_or(&[], |client| &client.prefixes)
    }

    /// Number of tracked keys, and of their prefixes.
    pub fn counts(&self) -> (usize, usize) {
        (self.by_key.len(), self.by_prefix.values().map(BTreeMap::len).sum())
    }

    /// Whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::slot_set::SlotSet;
    use crate::types::Version;
    use alloc::format;
    use alloc::vec;

    fn table() -> KeyTracking {
        KeyTracking::new(100 * (ENTRY_BYTES + 8), Faults::NONE)
    }

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn keys(keys: &[&str]) -> Option<Invalidation> {
        Some(Invalidation::Keys(keys.iter().map(|key| bytes(key)).collect()))
    }

    fn changed(table: &mut KeyTracking, changed: &[&str]) -> Vec<TrackerId> {
        let keys = ChangedKeys::Keys(changed.iter().map(|key| bytes(key)).collect());
        let mut woken = Vec::new();
        let report = KeyReport { slots: SlotSet::all(), revision: Version(1), keys };
        table.keys_changed(&report, |id| woken.push(id));
        woken
    }

    #[test]
    fn a_key_that_was_read_is_invalidated_once() {
        let mut table = table();
        let (one, other) = (table.begin(&[]), table.begin(&[]));
        table.track(one, b"a", |_| panic!("there is room"));
        table.track(one, b"a", |_| panic!("there is room"));
        table.track(other, b"a", |_| panic!("there is room"));
        table.track(one, b"b", |_| panic!("there is room"));
        assert_eq!(changed(&mut table, &["a", "a", "c"]), [one, other]);
        assert_eq!(changed(&mut table, &["b"]), [], "it is woken already");
        assert_eq!((table.take(one), table.take(other)), (keys(&["a", "b"]), keys(&["a"])));
        assert_eq!((changed(&mut table, &["a", "b"]), table.take(one)), (vec![], None));
        table.track(other, b"a", |_| panic!("there is room"));
        table.end(other);
        table.track(one, b"a", |_| panic!("there is room"));
        assert_eq!(changed(&mut table, &["a"]), [one]);
        table.end(one);
        assert!(table.is_empty() && table.key_bytes == 0);
    }

    #[test]
    fn keys_of_a_prefix_are_invalidated_whenever_they_change() {
        let mut table = table();
        let some = table.begin(&[bytes("user:"), bytes("order:")]);
        let all = table.begin(&[bytes("")]);
        assert_eq!(changed(&mut table, &["user:1", "other", "user:1"]), [all, some]);
        assert_eq!(table.take(some), keys(&["user:1"]));
        assert_eq!(table.take(all), keys(&["other", "user:1"]));
        assert_eq!(changed(&mut table, &["user:1"]), [all, some]);
        table.add_prefix(some, bytes("other"));
        assert_eq!(table.prefixes(some).len(), 3);
        table.end(some);
        table.end(all);
        assert!(table.by_prefix.is_empty());
    }

    #[test]
    fn a_gap_invalidates_the_keys_of_its_slots_and_everything_with_a_prefix() {
        let mut table = table();
        let (reads, some) = (table.begin(&[]), table.begin(&[bytes("{b}:")]));
        table.track(reads, b"a", |_| panic!("there is room"));
        table.track(reads, b"{b}", |_| panic!("there is room"));
        let gap = |table: &mut KeyTracking, slots: SlotSet| {
            let report = KeyReport { slots, revision: Version(1), keys: ChangedKeys::Any };
            table.keys_changed(&report, |_| {});
            (table.take(reads), table.take(some))
        };
        let slot = slot_of(b"a");
        assert_eq!(gap(&mut table, SlotSet::default()), (None, None));
        assert_eq!(gap(&mut table, SlotSet::from(slot..slot + 1)), (keys(&["a"]), None));
        assert_eq!(gap(&mut table, SlotSet::all()), (keys(&["{b}"]), Some(Invalidation::All)));
    }

    #[test]
    fn a_full_table_invalidates_another_key() {
        let mut table = table();
        let one = table.begin(&[]);
        let count = 100;
        for number in 0..count {
            table.track(one, format!("{number:08}").as_bytes(), |_| panic!("there is room"));
        }
        for number in [count, count + 1] {
            let mut woken = Vec::new();
            table.track(one, format!("{number:08}").as_bytes(), |id| woken.push(id));
            assert_eq!(woken, [one]);
            let expected = format!("{:08}", number - count);
            assert_eq!(table.take(one), keys(&[&expected]));
        }
        assert_eq!(table.counts(), (count, 0));
    }

    #[test]
    fn too_many_invalidations_become_one_of_everything() {
        let mut table = table();
        let one = table.begin(&[bytes("")]);
        for number in 0..limits::INVALIDATIONS_BYTES_MAX / ENTRY_BYTES {
            changed(&mut table, &[&format!("{number}")]);
        }
        assert_eq!(table.take(one), Some(Invalidation::All));
        assert_eq!((table.take(one), table.waiting_bytes(one)), (None, 0));
    }
}
