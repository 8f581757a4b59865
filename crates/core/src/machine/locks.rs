//! The locks of a shard that are held, and the leases that wait for them.
//!
//! Owns holders, fences and queues. The name of a lock is a key, and `kv::lock_changes` changes
//! both together.
//!
//! Invariants: a lock is here exactly while somebody holds it. Only leases that exist wait, and
//! none of them waits for a lock that it holds.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;

use super::leases::{HELD_OVERHEAD_BYTES, LeaseKey};
use crate::codec::DecodeError;
use crate::command::LeaseRecord;
use crate::limits;
use crate::slots::slot_of;
use crate::slots::slot_set::SlotSet;
use crate::types::Version;

/// A lock that is held.
#[derive(Debug)]
pub(super) struct Lock {
    /// The version of the key.
    pub fence: Version,
    /// The number of the holder's lease.
    pub holder: Version,
    pub queue: VecDeque<Waiter>,
}

/// A lease that waits for a lock.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The number of the lease.
    pub lease: Version,
    /// What the key holds once this lease holds the lock.
    pub value: Box<[u8]>,
}

/// The locks of a shard that are held.
#[derive(Debug, Default)]
pub(super) struct Locks {
    held: BTreeMap<Box<[u8]>, Lock>,
    /// The locks for which each lease waits. A lease that waits for none has no entry.
    awaited: BTreeMap<LeaseKey, BTreeSet<Box<[u8]>>>,
    bytes: usize,
}

/// Bytes of a lock that count towards [`limits::LEASES_BYTES_MAX`].
pub(super) fn lock_bytes(name: &[u8]) -> usize {
    HELD_OVERHEAD_BYTES + name.len()
}

/// Bytes of a waiter that count towards [`limits::LEASES_BYTES_MAX`].
pub(super) fn waiter_bytes(name: &[u8], value: &[u8]) -> usize {
    HELD_OVERHEAD_BYTES + name.len() + value.len()
}

impl Locks {
    /// Bytes that count towards [`limits::LEASES_BYTES_MAX`].
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a key is a lock that is held.
    pub fn holds(&self, key: &[u8]) -> bool {
        // Most shards have no locks, and every write checks.
        !self.held.is_empty() && self.held.contains_key(key)
    }

    /// The lock of a name, if it is held.
    pub fn get(&self, name: &[u8]) -> Option<&Lock> {
        self.held.get(name)
    }

    /// Records a lock that nobody held before.
    pub fn insert(&mut self, name: &[u8], fence: Version, holder: Version) {
        let before = self.held.insert(name.into(), Lock { fence, holder, queue: VecDeque::new() });
        assert!(before.is_none(), "invariant: a lock has one holder");
        self.bytes += lock_bytes(name);
    }

    /// Records the next holder of a lock.
    pub fn pass_on(&mut self, name: &[u8], fence: Version, holder: Version) {
        let lock = self.held.get_mut(name).expect("invariant: a lock that is passed on is held");
        (lock.fence, lock.holder) = (fence, holder);
    }

    /// Removes a lock without a queue.
    pub fn remove(&mut self, name: &[u8]) {
        let lock = self.held.remove(name).expect("invariant: a lock that is released was held");
        assert!(lock.queue.is_empty(), "invariant: the first of the queue becomes the holder");
        self.bytes -= lock_bytes(name);
    }

    /// Adds a lease to the end of the queue of a lock that is held.
    pub fn enqueue(&mut self, name: &[u8], waiter: Waiter) {
        let lock = self.held.get_mut(name).expect("invariant: only a lock that is held has a queue");
        self.bytes += waiter_bytes(name, &waiter.value);
        self.awaited.entry(LeaseKey::beside(name, waiter.lease)).or_default().insert(name.into());
        lock.queue.push_back(waiter);
    }

    /// Takes the first lease from the queue of a lock.
    pub fn dequeue(&mut self, name: &[u8]) -> Option<Waiter> {
        let waiter = self.held.get_mut(name)?.queue.pop_front()?;
        self.left(name, &waiter);
        Some(waiter)
    }

    /// The number of leases in the queue before a lease, if that waits.
    pub fn position(&self, name: &[u8], lease: Version) -> Option<usize> {
        self.held.get(name)?.queue.iter().position(|waiter| waiter.lease == lease)
    }

    /// Removes a lease from the queue of a lock. Returns whether it waited.
    pub fn leave(&mut self, name: &[u8], lease: Version) -> bool {
        let waiter = self.position(name, lease).and_then(|position| {
            let lock = self.held.get_mut(name)?;
            lock.queue.remove(position)
        });
        waiter.iter().for_each(|waiter| self.left(name, waiter));
        waiter.is_some()
    }

    fn left(&mut self, name: &[u8], waiter: &Waiter) {
        self.bytes -= waiter_bytes(name, &waiter.value);
        let lease = LeaseKey::beside(name, waiter.lease);
        if let Some(names) = self.awaited.get_mut(&lease) {
            names.remove(name);
            if names.is_empty() {
                self.awaited.remove(&lease);
            }
        }
    }

    /// The locks for which a lease waits, in byte order.
    pub fn awaited_by(&self, lease: LeaseKey) -> impl Iterator<Item = &[u8]> {
        self.awaited.get(&lease).into_iter().flatten().map(|name| &**name)
    }

    /// Number of locks for which a lease waits.
    pub fn awaited_count(&self, lease: LeaseKey) -> usize {
        self.awaited.get(&lease).map_or(0, BTreeSet::len)
    }

    /// Removes the locks of these slots.
    pub fn remove_slots(&mut self, slots: &SlotSet) {
        let names = self.held.keys().filter(|name| slots.contains(slot_of(name)));
        for name in names.cloned().collect::<Vec<_>>() {
            self.abolish(&name);
        }
    }

    /// Removes a lock and its queue.
    pub fn abolish(&mut self, name: &[u8]) {
        while self.dequeue(name).is_some() {}
        self.remove(name);
    }

    /// Adds a lock or a waiter of a block. A lock comes before its waiters.
    pub fn take(&mut self, record: LeaseRecord) -> Result<(), DecodeError> {
        match record {
            LeaseRecord::Lease { .. } => {}
            LeaseRecord::Lock { name, .. } if self.holds(&name) => {
                return Err(DecodeError::Invalid("second holder of a lock"));
            }
            LeaseRecord::Lock { name, fence, holder } => self.insert(&name, fence, holder),
            LeaseRecord::Waiter { name, lease, value } => {
                let Some(lock) = self.held.get(&*name) else {
                    return Err(DecodeError::Invalid("waiter for a lock that nobody holds"));
                };
                if lock.queue.len() >= limits::LOCK_WAITERS_MAX || self.position(&name, lease).is_some() {
                    return Err(DecodeError::Invalid("queue of a lock"));
                }
                self.enqueue(&name, Waiter { lease, value: value[..].into() });
            }
        }
        Ok(())
    }

    /// The locks of some slots, each followed by its queue, for snapshots and moves.
    pub fn records(&self, is_included: impl Fn(u16) -> bool) -> impl Iterator<Item = LeaseRecord> {
        let held = self.held.iter().filter(move |(name, _)| is_included(slot_of(name)));
        held.flat_map(|(name, lock)| {
            let name = Bytes::copy_from_slice(name);
            let held = LeaseRecord::Lock { name: name.clone(), fence: lock.fence, holder: lock.holder };
            let waiters = lock.queue.iter().map(move |waiter| LeaseRecord::Waiter {
                name: name.clone(),
                lease: waiter.lease,
                value: Bytes::copy_from_slice(&waiter.value),
            });
            core::iter::once(held).chain(waiters)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const NAME: &[u8] = b"{a}lock";

    fn waiter(lease: u64) -> Waiter {
        Waiter { lease: Version(lease), value: b"v"[..].into() }
    }

    #[test]
    fn a_queue_is_served_in_its_order_without_those_that_left() {
        let mut locks = Locks::default();
        locks.insert(NAME, Version(10), Version(1));
        (2..5).for_each(|lease| locks.enqueue(NAME, waiter(lease)));
        assert_eq!(locks.position(NAME, Version(4)), Some(2));
        assert!(locks.leave(NAME, Version(3)) && !locks.leave(NAME, Version(3)));
        assert_eq!(locks.awaited_count(LeaseKey::beside(NAME, Version(3))), 0);
        assert_eq!(locks.awaited_by(LeaseKey::beside(NAME, Version(4))).collect::<Vec<_>>(), [NAME]);
        assert_eq!(locks.dequeue(NAME).map(|waiter| waiter.lease), Some(Version(2)));
        locks.pass_on(NAME, Version(11), Version(2));
        assert_eq!(locks.get(NAME).map(|lock| (lock.fence, lock.holder)), Some((Version(11), Version(2))));
        assert_eq!(locks.dequeue(NAME).map(|waiter| waiter.lease), Some(Version(4)));
        assert!(locks.dequeue(NAME).is_none());
        locks.remove(NAME);
        assert!(!locks.holds(NAME) && locks.held_bytes() == 0 && locks.awaited.is_empty());
    }

    #[test]
    fn records_rebuild_the_locks() {
        let mut locks = Locks::default();
        locks.insert(NAME, Version(10), Version(1));
        (2..5).for_each(|lease| locks.enqueue(NAME, waiter(lease)));
        locks.insert(b"~other", Version(12), Version(9));
        let records: Vec<LeaseRecord> = locks.records(|_| true).collect();
        let mut copy = Locks::default();
        records.iter().cloned().try_for_each(|record| copy.take(record)).expect("records in order");
        assert_eq!(copy.records(|_| true).collect::<Vec<_>>(), records);
        assert_eq!(copy.held_bytes(), locks.held_bytes());
        for wrong in [vec![records[1].clone()], vec![records[0].clone(); 2]] {
            let mut copy = Locks::default();
            assert!(wrong.into_iter().try_for_each(|record| copy.take(record)).is_err());
        }
        let slots = SlotSet::from(slot_of(NAME)..slot_of(NAME) + 1);
        locks.remove_slots(&slots);
        assert_eq!(locks.records(|_| true).collect::<Vec<_>>().len(), 1);
        assert_eq!(locks.held_bytes(), lock_bytes(b"~other"));
    }
}
