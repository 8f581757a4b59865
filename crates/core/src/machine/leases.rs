//! The leases of a shard, and the keys that are bound to them.
//!
//! Owns which leases there are, when each of them ends, and the indexes by key, by id and by time.
//! It does not know what a key holds, nor which bound keys are locks: `kv::lease_changes` changes
//! leases together with their keys.
//!
//! A lease ends only by a log entry. An entry that the leader proposes because the time has come
//! says since when that leader leads, and ends only leases for whose time to live it has led, up to
//! [`limits::LEASE_FLOOR_MS`]. So a change of the leader prolongs every lease, at no cost. For the
//! same reason leases are ordered by their time to live in seconds first: the overdue ones are
//! found without a look at the others.
//!
//! A lease of a slot that the shard does not own is in no order of time, so it does not end here.
//!
//! The end of a lease is a time of the leader that granted or renewed it. If the clock of that
//! leader was ahead, a later leader would wait too long for the end. So leaders also propose to
//! shorten leases that, by their clocks, would last for longer than their time to live.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

use crate::command::{LeaseId, LeaseRecord, LeaseTag};
use crate::limits;
use crate::slots::slot_of;
use crate::slots::slot_set::SlotSet;
use crate::types::{UnixMillis, Version};

/// Bytes that a lease, a lock or a waiter counts besides its names and values, on every replica.
pub(super) const HELD_OVERHEAD_BYTES: usize = 64;

/// Milliseconds of one class of times to live.
const CLASS_MS: u64 = 1_000;

/// The highest class.
const CLASS_MAX: u64 = limits::LEASE_FLOOR_MS / CLASS_MS;

/// Identifies a lease within a shard. The tag follows from both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseKey {
    pub slot: u16,
    pub number: Version,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub tag: LeaseTag,
    pub ttl_ms: u64,
    pub ends: UnixMillis,
    /// Whether the shard owns the slot, so that the lease can end.
    pub is_active: bool,
}

/// The leases of a shard.
#[derive(Debug, Default)]
pub(super) struct Leases {
    leases: BTreeMap<LeaseKey, Lease>,
    /// The texts of all ids, for lists.
    ids: BTreeSet<Box<[u8]>>,
    /// The active leases by class and end.
    by_end: BTreeSet<(u64, UnixMillis, LeaseKey)>,
    /// No active lease was granted or renewed later than this, by the clocks of leaders.
    latest_start: UnixMillis,
    bindings: Bindings,
    bytes: usize,
}

/// Which keys are bound to which leases.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    /// The lease of each bound key, by its number.
    bound: BTreeMap<Box<[u8]>, Version>,
    /// The bound keys of each lease. A lease without keys has no entry.
    keys: BTreeMap<LeaseKey, BTreeSet<Box<[u8]>>>,
}

impl LeaseKey {
    pub fn of(lease: &LeaseId) -> LeaseKey {
        LeaseKey { slot: lease.slot(), number: lease.number() }
    }

    /// The lease of this number with the slot of a key.
    pub fn beside(key: &[u8], number: Version) -> LeaseKey {
        LeaseKey { slot: slot_of(key), number }
    }
}

impl Lease {
    /// How long a leader must have led before it may end the lease, in seconds.
    fn class(&self) -> u64 {
        self.ttl_ms.div_ceil(CLASS_MS).min(CLASS_MAX)
    }

    /// The time of the leader that granted it, or renewed it last.
    fn start(&self) -> UnixMillis {
        UnixMillis(self.ends.0.saturating_sub(self.ttl_ms))
    }

    fn held_bytes(&self) -> usize {
        HELD_OVERHEAD_BYTES + self.tag.prefix().len()
    }
}

impl Bindings {
    /// The lease of a key, by its number; `None` if the key is not bound.
    pub fn of_key(&self, key: &[u8]) -> Option<Version> {
        // Most shards have no such key, and every write checks.
        if self.bound.is_empty() { None } else { self.bound.get(key).copied() }
    }

    /// Binds a key to a lease, or to none. Returns its lease before.
    pub fn bind(&mut self, key: &[u8], lease: Option<Version>) -> Option<Version> {
        let before = self.of_key(key);
        if before == lease {
            return before;
        }
        if let Some(before) = before {
            self.bound.remove(key);
            let lease = LeaseKey::beside(key, before);
            if let Some(keys) = self.keys.get_mut(&lease) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&lease);
                }
            }
        }
        if let Some(number) = lease {
            self.bound.insert(key.into(), number);
            self.keys.entry(LeaseKey::beside(key, number)).or_default().insert(key.into());
        }
        before
    }

    /// Frees one bound key and the keys of one lease. Returns whether there was any.
    pub fn pop_first(&mut self) -> bool {
        let key = self.bound.pop_first();
        self.keys.pop_first().is_some() || key.is_some()
    }
}

impl Leases {
    /// Whether there is neither a lease nor a bound key.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.bindings.bound.is_empty()
    }

    /// Number of leases.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Bytes that count towards [`limits::LEASES_BYTES_MAX`].
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// The lease of an id.
    pub fn get(&self, id: &LeaseId) -> Option<&Lease> {
        self.leases.get(&LeaseKey::of(id)).filter(|lease| lease.tag == *id.tag())
    }

    /// The lease and its id.
    pub fn find(&self, key: LeaseKey) -> Option<(LeaseId, &Lease)> {
        let lease = self.leases.get(&key)?;
        Some((LeaseId::new(lease.tag.clone(), key.number), lease))
    }

    /// Adds a lease, or replaces one.
    pub fn insert(&mut self, id: &LeaseId, lease: Lease) {
        let key = LeaseKey::of(id);
        self.remove(key);
        self.bytes += lease.held_bytes();
        self.ids.insert(id.text().into_bytes().into());
        if lease.is_active {
            self.by_end.insert((lease.class(), lease.ends, key));
            self.latest_start = self.latest_start.max(lease.start());
        }
        self.leases.insert(key, lease);
    }

    /// Removes a lease. Keys that are bound to it stay so.
    pub fn remove(&mut self, key: LeaseKey) {
        let Some(lease) = self.leases.remove(&key) else { return };
        self.bytes -= lease.held_bytes();
        self.by_end.remove(&(lease.class(), lease.ends, key));
        self.ids.remove(LeaseId::new(lease.tag, key.number).text().as_bytes());
    }

    /// Begins the time to live of a lease again. Returns it, in milliseconds.
    pub fn renew(&mut self, id: &LeaseId, at: UnixMillis) -> Option<u64> {
        let key = LeaseKey::of(id);
        let lease = self.leases.get_mut(&key).filter(|lease| lease.tag == *id.tag())?;
        let (class, before) = (lease.class(), lease.ends);
        lease.ends = UnixMillis(at.0.saturating_add(lease.ttl_ms));
        let ends = lease.ends;
        let ttl_ms = lease.ttl_ms;
        if ends != before && self.by_end.remove(&(class, before, key)) {
            self.by_end.insert((class, ends, key));
            self.latest_start = self.latest_start.max(at);
        }
        Some(ttl_ms)
    }

    /// A lease that a leader may end at `now`, if it leads since `led_since`.
    pub fn overdue(&self, now: UnixMillis, led_since: UnixMillis) -> Option<LeaseKey> {
        self.overdue_by_class(now, led_since).find_map(|mut overdue| overdue.next())
    }

    /// Number of such leases, counted up to `limit`.
    pub fn count_overdue(&self, now: UnixMillis, led_since: UnixMillis, limit: usize) -> usize {
        self.overdue_by_class(now, led_since).flatten().take(limit).count()
    }

    fn overdue_by_class(
        &self,
        now: UnixMillis,
        led_since: UnixMillis,
    ) -> impl Iterator<Item = impl Iterator<Item = LeaseKey>> {
        let led_ms = now.0.saturating_sub(led_since.0);
        (0..=(led_ms / CLASS_MS).min(CLASS_MAX)).map(move |class| {
            let key = |slot, number| LeaseKey { slot, number: Version(number) };
            let first = (class, UnixMillis(0), key(0, 0));
            let last = (class, now, key(u16::MAX, u64::MAX));
            self.by_end.range(first..=last).map(|(_, _, key)| *key)
        })
    }

    /// Whether an active lease may last from `now` on for longer than its time to live, by more
    /// than [`limits::CLOCK_STEP_MS`].
    pub fn may_last_too_long(&self, now: UnixMillis) -> bool {
        !self.by_end.is_empty() && self.latest_start.0 > now.0.saturating_add(limits::CLOCK_STEP_MS)
    }

    /// Lets such leases last for their time to live from `now` on. Looks at all leases only if
    /// there may be one, which is once after a clock was ahead.
    pub fn shorten(&mut self, now: UnixMillis) {
        if !self.may_last_too_long(now) {
            return;
        }
        let latest = UnixMillis(now.0.saturating_add(limits::CLOCK_STEP_MS));
        self.latest_start = UnixMillis(0);
        for (key, lease) in self.leases.iter_mut().filter(|(_, lease)| lease.is_active) {
            if lease.start() > latest {
                self.by_end.remove(&(lease.class(), lease.ends, *key));
                lease.ends = UnixMillis(now.0.saturating_add(lease.ttl_ms));
                self.by_end.insert((lease.class(), lease.ends, *key));
            }
            self.latest_start = self.latest_start.max(lease.start());
        }
    }

    /// The leases of these slots cannot end here from now on.
    pub fn deactivate(&mut self, slots: &SlotSet) {
        for (key, lease) in self.leases.iter_mut().filter(|(key, _)| slots.contains(key.slot)) {
            lease.is_active = false;
            self.by_end.remove(&(lease.class(), lease.ends, *key));
        }
    }

    /// The leases of these slots can end here. Each lasts at `at` as after a change of the leader.
    pub fn activate(&mut self, slots: &SlotSet, at: UnixMillis) {
        for (key, lease) in self.leases.iter_mut().filter(|(key, _)| slots.contains(key.slot)) {
            let floor_ms = lease.ttl_ms.min(limits::LEASE_FLOOR_MS);
            lease.ends = lease.ends.max(UnixMillis(at.0.saturating_add(floor_ms)));
            lease.is_active = true;
            self.by_end.insert((lease.class(), lease.ends, *key));
            self.latest_start = self.latest_start.max(lease.start());
        }
    }

    /// Removes the leases of these slots.
    pub fn remove_slots(&mut self, slots: &SlotSet) {
        for key in self.leases.keys().copied().filter(|key| slots.contains(key.slot)).collect::<Vec<_>>() {
            self.remove(key);
        }
    }

    /// Whether a slot has a lease.
    pub fn has_any_of(&self, slots: &SlotSet) -> bool {
        self.leases.keys().any(|key| slots.contains(key.slot))
    }

    /// The lease of a key, by its number; `None` if the key is not bound.
    pub fn of_key(&self, key: &[u8]) -> Option<Version> {
        self.bindings.of_key(key)
    }

    /// Binds a key to a lease, or to none. Returns its lease before.
    pub fn bind(&mut self, key: &[u8], lease: Option<Version>) -> Option<Version> {
        self.bindings.bind(key, lease)
    }

    /// Leaves all leases without keys. Returns which they had.
    pub fn unbind_all(&mut self) -> Bindings {
        core::mem::take(&mut self.bindings)
    }

    /// The keys that are bound to a lease, in byte order.
    pub fn keys_of(&self, lease: LeaseKey) -> impl Iterator<Item = &[u8]> {
        self.bindings.keys.get(&lease).into_iter().flatten().map(|key| &**key)
    }

    /// Number of keys that are bound to a lease.
    pub fn key_count(&self, lease: LeaseKey) -> usize {
        self.bindings.keys.get(&lease).map_or(0, BTreeSet::len)
    }

    /// All bound keys with the numbers of their leases, in byte order.
    pub fn bindings(&self) -> impl Iterator<Item = (&[u8], Version)> {
        self.bindings.bound.iter().map(|(key, lease)| (&**key, *lease))
    }

    /// The leases whose ids begin with `prefix`, in the order of their ids, after an id.
    pub fn list<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (LeaseId, &'a Lease)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let ids = self.ids.range::<[u8], _>((start, Bound::Unbounded));
        ids.take_while(move |id| id.starts_with(prefix)).map(|id| {
            let id = LeaseId::parse(id).expect("invariant: the texts of ids were made here");
            let lease = self.get(&id).expect("invariant: a lease is in both maps");
            (id, lease)
        })
    }

    /// The leases of some slots, for snapshots and moves.
    pub fn records(&self, is_included: impl Fn(u16) -> bool) -> impl Iterator<Item = LeaseRecord> {
        self.leases.iter().filter(move |(key, _)| is_included(key.slot)).map(|(key, lease)| {
            let id = LeaseId::new(lease.tag.clone(), key.number);
            LeaseRecord::Lease { lease: id, ttl_ms: lease.ttl_ms, ends: lease.ends }
        })
    }
}

/// Copies names for a reply.
pub(super) fn copied<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<Bytes> {
    names.map(Bytes::copy_from_slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;

    fn id(tag: &str, number: u64) -> LeaseId {
        LeaseId::parse(format!("{{{tag}}}:{number:x}").as_bytes()).expect("an id")
    }

    fn lease(id: &LeaseId, ttl_ms: u64, ends: u64) -> Lease {
        Lease { tag: id.tag().clone(), ttl_ms, ends: UnixMillis(ends), is_active: true }
    }

    fn leases(of: &[(&str, u64, u64, u64)]) -> Leases {
        let mut leases = Leases::default();
        for (tag, number, ttl_ms, ends) in of {
            let id = id(tag, *number);
            leases.insert(&id, lease(&id, *ttl_ms, *ends));
        }
        leases
    }

    fn overdue(leases: &Leases, now: u64, led_since: u64) -> Vec<u64> {
        let found = leases.overdue_by_class(UnixMillis(now), UnixMillis(led_since)).flatten();
        let mut numbers: Vec<u64> = found.map(|key| key.number.0).collect();
        numbers.sort_unstable();
        assert_eq!(leases.count_overdue(UnixMillis(now), UnixMillis(led_since), 9), numbers.len());
        numbers
    }

    #[test]
    fn a_lease_ends_after_its_time_and_after_the_leader_has_led_for_it() {
        let leases = leases(&[("a", 1, 1_000, 50_000), ("a", 2, 3_500, 50_000), ("b", 3, 3_600_000, 50_000)]);
        assert_eq!(overdue(&leases, 49_999, 0), []);
        assert_eq!(overdue(&leases, 50_000, 0), [1, 2, 3]);
        assert_eq!(overdue(&leases, 50_000, 50_000), []);
        assert_eq!(overdue(&leases, 50_999, 50_000), []);
        assert_eq!(overdue(&leases, 51_000, 50_000), [1]);
        assert_eq!(overdue(&leases, 53_500, 50_000), [1], "whole seconds, rounded up");
        assert_eq!(overdue(&leases, 54_000, 50_000), [1, 2]);
        assert_eq!(overdue(&leases, 60_000, 50_000), [1, 2, 3]);
        assert_eq!(overdue(&leases, 60_000, 70_000), [], "a clock that went back");
    }

    #[test]
    fn a_renewal_and_a_move_set_the_end() {
        let mut leases = leases(&[("a", 1, 20_000, 5_000), ("b", 2, 20_000, 90_000)]);
        assert_eq!(leases.renew(&id("a", 1), UnixMillis(6_000)), Some(20_000));
        assert_eq!(leases.renew(&id("a", 2), UnixMillis(6_000)), None, "the number of another tag");
        assert_eq!((overdue(&leases, 25_999, 0), overdue(&leases, 26_000, 0)), (vec![], vec![1]));
        let slots = SlotSet::from(id("a", 1).slot()..id("a", 1).slot() + 1);
        leases.deactivate(&slots);
        assert_eq!(overdue(&leases, 95_000, 0), [2]);
        leases.activate(&slots, UnixMillis(50_000));
        assert_eq!((overdue(&leases, 59_999, 0), overdue(&leases, 60_000, 0)), (vec![], vec![1]));
        assert!(leases.has_any_of(&slots));
        leases.remove_slots(&slots);
        assert!(!leases.has_any_of(&slots) && leases.len() == 1);
        assert_eq!(leases.held_bytes(), HELD_OVERHEAD_BYTES + 4);
    }

    #[test]
    fn leases_that_a_clock_ahead_has_granted_are_shortened() {
        let mut leases =
            leases(&[("a", 1, 20_000, 1_020_000), ("a", 2, 5_000, 56_000), ("b", 3, 5_000, 56_001)]);
        assert!(
            !leases.may_last_too_long(UnixMillis(999_000)) && leases.may_last_too_long(UnixMillis(998_999))
        );
        leases.shorten(UnixMillis(50_000));
        let ends = |leases: &Leases, tag, number| leases.get(&id(tag, number)).expect("a lease").ends.0;
        assert_eq!(ends(&leases, "a", 1), 70_000);
        assert_eq!(ends(&leases, "a", 2), 56_000, "a second ahead is within the bound");
        assert_eq!(ends(&leases, "b", 3), 55_000);
        assert!(!leases.may_last_too_long(UnixMillis(50_000)));
        assert_eq!((overdue(&leases, 69_999, 0), overdue(&leases, 70_000, 0)), (vec![2, 3], vec![1, 2, 3]));

        leases.renew(&id("a", 1), UnixMillis(90_000));
        assert!(leases.may_last_too_long(UnixMillis(88_999)));
        leases.remove(LeaseKey::of(&id("a", 1)));
        leases.shorten(UnixMillis(70_000));
        assert!(!leases.may_last_too_long(UnixMillis(50_000)), "the lease was removed");
        leases.renew(&id("a", 2), UnixMillis(90_000));
        leases.remove_slots(&SlotSet::all());
        assert!(!leases.may_last_too_long(UnixMillis(0)), "there is none");
    }

    #[test]
    fn leases_of_slots_that_are_not_owned_are_not_shortened() {
        let mut leases = leases(&[("a", 1, 20_000, 1_020_000)]);
        leases.deactivate(&SlotSet::all());
        assert!(!leases.may_last_too_long(UnixMillis(50_000)));
        leases.shorten(UnixMillis(50_000));
        leases.activate(&SlotSet::all(), UnixMillis(60_000));
        assert_eq!(leases.get(&id("a", 1)).expect("a lease").ends.0, 1_020_000);
        leases.shorten(UnixMillis(60_000));
        assert_eq!(overdue(&leases, 80_000, 0), [1]);
    }

    #[test]
    fn keys_are_bound_to_one_lease() {
        let mut leases = leases(&[("a", 1, 1_000, 5), ("a", 2, 1_000, 5)]);
        let (one, two) = (LeaseKey::of(&id("a", 1)), LeaseKey::of(&id("a", 2)));
        assert_eq!(leases.bind(b"{a}x", Some(Version(1))), None);
        assert_eq!(leases.bind(b"{a}y", Some(Version(1))), None);
        assert_eq!(leases.bind(b"{a}x", Some(Version(2))), Some(Version(1)));
        assert_eq!(leases.keys_of(one).collect::<Vec<_>>(), [b"{a}y"]);
        assert_eq!((leases.key_count(one), leases.key_count(two)), (1, 1));
        assert_eq!(leases.bind(b"{a}y", None), Some(Version(1)));
        assert_eq!(leases.of_key(b"{a}y"), None);
        assert!(!leases.bindings.keys.contains_key(&one), "an empty set takes no memory");
        assert_eq!(leases.bindings().collect::<Vec<_>>(), [(&b"{a}x"[..], Version(2))]);
    }

    #[test]
    fn ids_are_listed_in_byte_order() {
        let leases = leases(&[("a", 16, 1_000, 5), ("a", 2, 1_000, 5), ("b", 1, 1_000, 5)]);
        let list = |prefix: &'static [u8], after: Option<&'static [u8]>| {
            leases.list(prefix, after).map(|(id, _)| id.text()).collect::<Vec<_>>()
        };
        assert_eq!(list(b"", None), ["{a}:10", "{a}:2", "{b}:1"]);
        assert_eq!(list(b"{a}:", Some(b"{a}:10")), ["{a}:2"]);
        assert_eq!(list(b"{b", Some(b"{a}:2")), ["{b}:1"]);
    }
}
