//! Leases and locks of the model of a shard: lists that are searched as a whole, without the
//! indexes of the store.
//!
//! Runs are too short to reach the bounds of the store, which the model does not know.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tidelock_core::command::{
    LeaseExpiry, LeaseId, LeaseRecord, LeaseReply, LeaseTag, LeaseWrite, LockOperation, LockReply, LockWrite,
    for_each_lease_record,
};
use tidelock_core::limits::{CLOCK_STEP_MS, LEASE_FLOOR_MS};
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::types::{UnixMillis, Version};

use super::model::{Ending, ShardModel};
use crate::slots::slot_of;

/// A lease within a shard: its slot and its number.
type Key = (u16, Version);

/// The leases and locks of a shard.
#[derive(Debug, Default)]
pub(super) struct LeaseModel {
    leases: BTreeMap<Key, Lease>,
    locks: BTreeMap<Bytes, Lock>,
}

#[derive(Debug)]
struct Lease {
    tag: LeaseTag,
    ttl_ms: u64,
    ends: UnixMillis,
    /// Whether the shard owns the slot. Only then the lease can end here.
    is_active: bool,
}

#[derive(Debug)]
struct Lock {
    fence: Version,
    holder: Key,
    queue: VecDeque<(Key, Bytes)>,
}

impl LeaseModel {
    /// Whether a lock is held now with a fence.
    pub(super) fn has_fence(&self, name: &[u8], fence: Version) -> bool {
        self.locks.get(name).is_some_and(|lock| lock.fence == fence)
    }

    /// Whether somebody holds a lock.
    pub(super) fn is_held(&self, name: &[u8]) -> bool {
        self.locks.contains_key(name)
    }

    /// Whether a lease exists.
    pub(super) fn has(&self, lease: &LeaseId) -> bool {
        self.leases.get(&key_of(lease)).is_some_and(|found| found.tag == *lease.tag())
    }

    /// Removes a lock with its queue, if somebody holds it.
    pub(super) fn abolish(&mut self, name: &[u8]) {
        self.locks.remove(name);
    }

    /// Removes the leases and locks of slots.
    pub(super) fn forget(&mut self, slots: &SlotSet) {
        self.leases.retain(|(slot, _), _| !slots.contains(*slot));
        self.locks.retain(|name, _| !slots.contains(slot_of(name)));
    }

    /// Takes a part of a copy. Its leases do not end before the shard owns them.
    pub(super) fn import(&mut self, block: &[u8]) {
        let taken = for_each_lease_record(block, |record| {
            match record {
                LeaseRecord::Lease { lease, ttl_ms, ends } => {
                    let tag = lease.tag().clone();
                    self.leases.insert(key_of(&lease), Lease { tag, ttl_ms, ends, is_active: false });
                }
                LeaseRecord::Lock { name, fence, holder } => {
                    let holder = (slot_of(&name), holder);
                    self.locks.insert(name, Lock { fence, holder, queue: VecDeque::new() });
                }
                LeaseRecord::Waiter { name, lease, value } => {
                    let waiter = (slot_of(&name), lease);
                    let lock = self.locks.get_mut(&name);
                    lock.expect("a lock before its waiters").queue.push_back((waiter, value));
                }
            }
            Ok(())
        });
        taken.expect("a block of leases");
    }

    /// The shard owns these slots from now on.
    pub(super) fn activate(&mut self, slots: &SlotSet, at: UnixMillis) {
        for (_, lease) in self.leases.iter_mut().filter(|((slot, _), _)| slots.contains(*slot)) {
            lease.ends = lease.ends.max(UnixMillis(at.0 + lease.ttl_ms.min(LEASE_FLOOR_MS)));
            lease.is_active = true;
        }
    }

    /// Lets leases that began after `now` by another clock last for their time to live from now on.
    fn shorten(&mut self, now: UnixMillis) {
        let longest = |lease: &Lease| UnixMillis(now.0 + CLOCK_STEP_MS + lease.ttl_ms);
        for lease in self.leases.values_mut().filter(|lease| lease.is_active && lease.ends > longest(lease)) {
            lease.ends = UnixMillis(now.0 + lease.ttl_ms);
        }
    }

    /// The leases that a leader may end, in the order in which it does: it must have led for the
    /// time to live, in whole seconds and up to the floor.
    fn due(&self, now: UnixMillis, led_since: UnixMillis) -> Vec<Key> {
        let led_ms = now.0.saturating_sub(led_since.0);
        let floor_s = |lease: &Lease| lease.ttl_ms.min(LEASE_FLOOR_MS).div_ceil(1_000);
        let is_due = |lease: &Lease| lease.is_active && lease.ends <= now && floor_s(lease) * 1_000 <= led_ms;
        let mut due: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, lease)| is_due(lease))
            .map(|(key, lease)| (floor_s(lease), lease.ends, *key))
            .collect();
        due.sort();
        due.into_iter().map(|(_, _, key)| key).collect()
    }
}

impl ShardModel {
    /// Applies a change of leases.
    pub(super) fn change_leases(&mut self, write: &LeaseWrite) -> LeaseReply {
        match write {
            LeaseWrite::Grant { tag, ttl_ms, at } => {
                let lease = LeaseId::new(tag.clone(), self.next());
                let ends = UnixMillis(at.0 + ttl_ms);
                let (key, ttl_ms) = (key_of(&lease), *ttl_ms);
                self.held_leases
                    .leases
                    .insert(key, Lease { tag: tag.clone(), ttl_ms, ends, is_active: true });
                LeaseReply::Granted { lease, ttl_ms }
            }
            LeaseWrite::Renew { leases, at } => {
                let renew = |lease: &LeaseId| {
                    let found = self.held_leases.leases.get_mut(&key_of(lease))?;
                    found.ends = UnixMillis(at.0 + found.ttl_ms);
                    Some(found.ttl_ms)
                };
                LeaseReply::Renewed(leases.iter().map(renew).collect())
            }
            LeaseWrite::Revoke { lease } if !self.held_leases.has(lease) => LeaseReply::NoLease,
            LeaseWrite::Revoke { lease } => LeaseReply::Revoked { keys: self.end_lease(key_of(lease)) },
        }
    }

    /// Applies a change of a lock.
    pub(super) fn change_lock(&mut self, LockWrite { name, lease, operation }: &LockWrite) -> LockReply {
        let me = key_of(lease);
        let lease = self.held_leases.leases.get(&me);
        let Some((ends, ttl_ms)) = lease.map(|lease| (lease.ends, lease.ttl_ms)) else {
            return LockReply::NoLease;
        };
        let version = self.version(name);
        let lock = self.held_leases.locks.get_mut(name);
        let place = lock.as_ref().and_then(|lock| lock.queue.iter().position(|(waiter, _)| *waiter == me));
        let mine = lock.as_ref().filter(|lock| lock.holder == me).map(|lock| lock.fence);
        let lasts_ms = |at: UnixMillis| ends.0.saturating_sub(at.0).min(ttl_ms);
        let held = |fence, at| LockReply::Held { fence, valid_for_ms: lasts_ms(at) };
        match (operation, lock) {
            (LockOperation::Acquire { at, .. } | LockOperation::Cancel { at }, _) if mine.is_some() => {
                held(mine.unwrap_or_default(), *at)
            }
            (LockOperation::Acquire { .. }, _) if place.is_some() => {
                LockReply::Queued { position: place.unwrap_or_default() as u64 }
            }
            (LockOperation::Acquire { value, waits: true, .. }, Some(lock)) => {
                lock.queue.push_back((me, value.clone()));
                LockReply::Queued { position: lock.queue.len() as u64 - 1 }
            }
            (LockOperation::Acquire { .. }, Some(lock)) => LockReply::HeldByOther { fence: lock.fence },
            (LockOperation::Acquire { .. }, None) if version != Version::ABSENT => {
                LockReply::KeyExists { version }
            }
            (LockOperation::Acquire { value, at, .. }, None) => {
                let fence = self.write(name, value, Ending { expires: None, lease: Some(me.1) });
                let lock = Lock { fence, holder: me, queue: VecDeque::new() };
                self.held_leases.locks.insert(name.clone(), lock);
                held(fence, *at)
            }
            (LockOperation::Release, _) if mine.is_some() => {
                self.pass_on(name);
                LockReply::Released
            }
            (LockOperation::Release | LockOperation::Cancel { .. }, Some(lock)) if place.is_some() => {
                lock.queue.remove(place.unwrap_or_default());
                let is_release = *operation == LockOperation::Release;
                if is_release { LockReply::Released } else { LockReply::Cancelled }
            }
            (LockOperation::Release | LockOperation::Cancel { .. }, _) => LockReply::NotHeld,
        }
    }

    /// Ends overdue leases until `limit` keys were removed; a lease without keys counts as one.
    pub(super) fn expire_leases(&mut self, now: UnixMillis, leases: LeaseExpiry, limit: usize) {
        if leases.shortens {
            self.held_leases.shorten(now);
        }
        let mut steps = 0;
        for key in self.held_leases.due(now, leases.led_since) {
            if steps >= limit as u64 {
                break;
            }
            steps += self.end_lease(key).max(1);
        }
    }

    /// Ends a lease. Returns how many keys were removed, without locks.
    fn end_lease(&mut self, lease: Key) -> u64 {
        for lock in self.held_leases.locks.values_mut() {
            lock.queue.retain(|(waiter, _)| *waiter != lease);
        }
        let is_bound =
            |key: &Bytes, bound: Option<Version>| bound == Some(lease.1) && slot_of(key) == lease.0;
        let bound = self.keys.iter().filter(|(key, held)| is_bound(key, held.ending.lease));
        let mut removed = 0;
        for key in bound.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            if self.held_leases.is_held(&key) {
                self.pass_on(&key);
            } else {
                self.keys.remove(&key);
                self.next();
                removed += 1;
            }
        }
        self.held_leases.leases.remove(&lease);
        removed
    }

    /// Makes the first waiter the holder of a lock, or nobody.
    fn pass_on(&mut self, name: &Bytes) {
        let first = self.held_leases.locks.get_mut(name).and_then(|lock| lock.queue.pop_front());
        let Some((holder, value)) = first else {
            self.held_leases.locks.remove(name);
            self.keys.remove(name);
            self.next();
            return;
        };
        let fence = self.write(name, &value, Ending { expires: None, lease: Some(holder.1) });
        if let Some(lock) = self.held_leases.locks.get_mut(name) {
            (lock.fence, lock.holder) = (fence, holder);
        }
    }
}

fn key_of(lease: &LeaseId) -> Key {
    (slot_of(lease.tag().prefix()), lease.number())
}
