//! The effect of changes of leases on keys.
//!
//! Owns what happens to the keys and locks of a lease when it ends, the bounds of leases, and the
//! answers to reads of leases. [`Leases`](crate::machine::leases::Leases) owns the leases
//! themselves.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

use super::{Ending, KeyValue};
use crate::codec::DecodeError;
use crate::command::{
    Condition, Item, LeaseExpiry, LeaseId, LeaseRecord, LeaseReply, LeaseTag, LeaseView, LeaseWrite,
    OperationReply, Page, Rejection, for_each_lease_record,
};
use crate::deliberate::Fault;
use crate::limits;
use crate::machine::leases::{HELD_OVERHEAD_BYTES, Lease, LeaseKey, copied};
use crate::slots::slot_set::SlotSet;
use crate::types::{UnixMillis, Version};

impl KeyValue {
    /// Applies a change of leases.
    pub(in crate::machine) fn change_leases(&mut self, write: &LeaseWrite) -> LeaseReply {
        match write {
            LeaseWrite::Grant { tag, ttl_ms, at } => self.grant(tag, *ttl_ms, *at),
            LeaseWrite::Renew { leases, at } => {
                LeaseReply::Renewed(leases.iter().map(|lease| self.renew(lease, *at)).collect())
            }
            LeaseWrite::Revoke { lease } => match self.leases.get(lease) {
                Some(_) => LeaseReply::Revoked { keys: self.end_lease(LeaseKey::of(lease)) },
                None => LeaseReply::NoLease,
            },
        }
    }

    /// Grants a lease. Its number is a revision, so that it never comes again, also not after the
    /// slot has moved.
    fn grant(&mut self, tag: &LeaseTag, ttl_ms: u64, at: UnixMillis) -> LeaseReply {
        let bytes = HELD_OVERHEAD_BYTES + tag.prefix().len();
        if self.leases.len() >= limits::LEASES_MAX || !self.has_room_for(bytes) {
            return LeaseReply::TooMany;
        }
        self.revision = Version(self.revision.0 + 1);
        self.restoring = None;
        let lease = LeaseId::new(tag.clone(), self.revision);
        let ends = UnixMillis(at.0.saturating_add(ttl_ms));
        self.leases.insert(&lease, Lease { tag: tag.clone(), ttl_ms, ends, is_active: true });
        LeaseReply::Granted { lease, ttl_ms }
    }

    fn renew(&mut self, lease: &LeaseId, at: UnixMillis) -> Option<u64> {
        if self.faults.has(Fault::RenewalNotApplied) {
            return self.leases.get(lease).map(|lease| lease.ttl_ms);
        }
        self.leases.renew(lease, at)
    }

    /// Whether the shard may hold this many more bytes of leases and waiters.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.leases.held_bytes() + self.locks.held_bytes() + bytes <= limits::LEASES_BYTES_MAX
    }

    /// Whether a lease may have one more key or lock.
    pub(super) fn may_burden(&self, lease: LeaseKey) -> bool {
        self.leases.key_count(lease) + self.locks.awaited_count(lease) < limits::LEASE_KEYS_MAX
    }

    /// Ends leases that are overdue at `now`, until `limit` keys were removed. A lease without keys
    /// counts as one key. Returns how many keys were removed.
    pub(in crate::machine) fn expire_leases(
        &mut self,
        now: UnixMillis,
        leases: LeaseExpiry,
        limit: usize,
    ) -> u64 {
        if leases.shortens {
            self.leases.shorten(now);
        }
        let (mut keys, mut steps) = (0, 0);
        while steps < limit as u64
            && let Some(lease) = self.leases.overdue(now, leases.led_since)
        {
            let removed = self.end_lease(lease);
            keys += removed;
            steps += removed.max(1);
        }
        keys
    }

    /// Ends a lease with all its keys, locks and places in queues. Returns how many keys were
    /// removed, without locks.
    fn end_lease(&mut self, lease: LeaseKey) -> u64 {
        let awaited: Vec<Box<[u8]>> = self.locks.awaited_by(lease).map(Box::from).collect();
        for name in &awaited {
            self.locks.leave(name, lease.number);
        }
        let keys: Vec<Box<[u8]>> = self.leases.keys_of(lease).map(Box::from).collect();
        let mut removed = 0;
        for key in &keys {
            if self.locks.holds(key) {
                self.pass_on(key);
            } else {
                self.remove(key);
                removed += 1;
            }
        }
        self.leases.remove(lease);
        removed
    }

    /// Stores a value, and binds the key to a lease.
    pub(super) fn put_bound(
        &mut self,
        (key, value): (&[u8], &[u8]),
        condition: Condition,
        lease: &[u8],
    ) -> OperationReply<'static> {
        let Some(lease) = LeaseId::parse(lease).filter(|lease| self.leases.get(lease).is_some()) else {
            return OperationReply::Rejected(Rejection::NoLease);
        };
        let number = Some(lease.number());
        let current = self.version(key);
        if !condition.holds(current) {
            return OperationReply::ConditionFailed { current };
        }
        if self.leases.of_key(key) != number && !self.may_burden(LeaseKey::of(&lease)) {
            return OperationReply::Rejected(Rejection::LeaseFull);
        }
        let (version, created) = self.store(key, value, Ending { expires: None, lease: number });
        OperationReply::Written { version, created }
    }

    /// The id of the lease of a key, if the key is bound to one.
    pub(super) fn lease_of(&self, key: &[u8]) -> Option<LeaseId> {
        let number = self.leases.of_key(key)?;
        Some(self.leases.find(LeaseKey::beside(key, number))?.0)
    }

    /// Answers [`Read::Lease`](crate::command::Read::Lease).
    pub(in crate::machine) fn lease_view(&self, lease: &LeaseId) -> Option<Box<LeaseView>> {
        let (key, found) = (LeaseKey::of(lease), self.leases.get(lease)?);
        let (held, keys): (Vec<&[u8]>, Vec<&[u8]>) =
            self.leases.keys_of(key).partition(|key| self.locks.holds(key));
        Some(Box::new(LeaseView {
            lease: lease.clone(),
            ttl_ms: found.ttl_ms,
            ends: found.ends,
            keys: copied(keys.into_iter()),
            held: copied(held.into_iter()),
            awaited: copied(self.locks.awaited_by(key)),
        }))
    }

    /// Answers [`Read::Leases`](crate::command::Read::Leases), without leases of slots that the
    /// shard does not own.
    pub(in crate::machine) fn list_leases(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Page {
        let mut items: Vec<Item> = Vec::new();
        for (id, lease) in self.leases.list(prefix, after).filter(|(_, lease)| lease.is_active) {
            if items.len() == limit {
                return Page { next: items.last().map(|item| item.key.clone()), items };
            }
            let (key, version) = (Bytes::from(id.text()), id.number());
            items.push(Item { key, version, value: None, expires: Some(lease.ends) });
        }
        Page { items, next: None }
    }

    /// The leases and locks of some slots, in the order in which they must be applied.
    pub(in crate::machine) fn lease_records<'a>(
        &'a self,
        is_included: &'a dyn Fn(u16) -> bool,
    ) -> impl Iterator<Item = LeaseRecord> + 'a {
        self.leases.records(is_included).chain(self.locks.records(is_included))
    }

    /// Takes a block of leases and locks. Those of slots that the shard does not own do not end
    /// here.
    pub(in crate::machine) fn take_lease_block(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        for_each_lease_record(block, |record| {
            let LeaseRecord::Lease { lease, ttl_ms, ends } = record else { return self.locks.take(record) };
            let slot = lease.slot();
            let is_active = self.ownership.as_ref().is_none_or(|ownership| ownership.owned().contains(slot));
            let tag = lease.tag().clone();
            self.leases.insert(&lease, Lease { tag, ttl_ms, ends, is_active });
            Ok(())
        })
    }

    /// Removes the leases and locks of some slots. The keys stay bound until they are removed.
    pub(in crate::machine) fn drop_leases(&mut self, slots: &SlotSet) {
        self.locks.remove_slots(slots);
        self.leases.remove_slots(slots);
    }
}
