//! The effect of changes of locks on keys.
//!
//! Owns how a lock is acquired, released and passed on. The name of a held lock is a key that is
//! bound to the lease of the holder, with the fence as its version. So a lease that ends finds its
//! locks among its keys, and snapshots, moves and watches treat a lock as any key.

use alloc::boxed::Box;
use bytes::Bytes;

use super::{Ending, KeyValue};
use crate::command::{LockClient, LockOperation, LockReply, LockView, LockWrite, RestoredKey};
use crate::deliberate::Fault;
use crate::limits;
use crate::machine::leases::{Lease, LeaseKey};
use crate::machine::locks::{Waiter, lock_bytes, waiter_bytes};
use crate::types::{UnixMillis, Version};

impl KeyValue {
    /// Applies a change of a lock.
    pub(in crate::machine) fn change_lock(&mut self, write: &LockWrite) -> LockReply {
        let Some(lease) = self.leases.get(&write.lease) else { return LockReply::NoLease };
        let held = held_by(lease);
        let (number, name) = (write.lease.number(), &write.name[..]);
        match &write.operation {
            LockOperation::Acquire { value, waits, at } => match self.locks.get(name) {
                Some(lock) if lock.holder == number => held(lock.fence, *at),
                Some(lock) => match self.locks.position(name, number) {
                    Some(position) => LockReply::Queued { position: position as u64 },
                    None if *waits => self.enqueue(name, Waiter { lease: number, value: value[..].into() }),
                    None => LockReply::HeldByOther { fence: lock.fence },
                },
                None => self.take_lock(write, value).map_or_else(|reply| reply, |fence| held(fence, *at)),
            },
            LockOperation::Release if self.fence_of(name, number).is_some() => {
                self.pass_on(name);
                LockReply::Released
            }
            LockOperation::Release if self.locks.leave(name, number) => LockReply::Released,
            LockOperation::Cancel { at } => match self.fence_of(name, number) {
                Some(fence) => held(fence, *at),
                None if self.locks.leave(name, number) => LockReply::Cancelled,
                None => LockReply::NotHeld,
            },
            LockOperation::Release => LockReply::NotHeld,
        }
    }

    /// The fence of a lock, if the lease of this number holds it.
    fn fence_of(&self, name: &[u8], number: Version) -> Option<Version> {
        self.locks.get(name).filter(|lock| lock.holder == number).map(|lock| lock.fence)
    }

    /// Makes a lease the holder of a lock that nobody holds. Returns the fence.
    fn take_lock(
        &mut self,
        LockWrite { name, lease, .. }: &LockWrite,
        value: &[u8],
    ) -> Result<Version, LockReply> {
        let version = self.version(name);
        if version != Version::ABSENT {
            return Err(LockReply::KeyExists { version });
        }
        if !self.may_burden(LeaseKey::of(lease)) {
            return Err(LockReply::QueueFull);
        }
        if !self.has_room_for(lock_bytes(name)) {
            return Err(LockReply::TooMany);
        }
        let number = lease.number();
        let (fence, _) = self.store(name, value, Ending { expires: None, lease: Some(number) });
        self.locks.insert(name, fence, number);
        Ok(fence)
    }

    fn enqueue(&mut self, name: &[u8], waiter: Waiter) -> LockReply {
        let position = self.locks.get(name).map_or(0, |lock| lock.queue.len());
        if position >= limits::LOCK_WAITERS_MAX || !self.may_burden(LeaseKey::beside(name, waiter.lease)) {
            return LockReply::QueueFull;
        }
        if !self.has_room_for(waiter_bytes(name, &waiter.value)) {
            return LockReply::TooMany;
        }
        self.locks.enqueue(name, waiter);
        LockReply::Queued { position: position as u64 }
    }

    /// Makes the first lease of the queue the holder of a lock. Without a queue, nobody holds the
    /// lock any more, and its key is removed.
    pub(super) fn pass_on(&mut self, name: &[u8]) {
        let before = self.locks.get(name).map_or(Version::ABSENT, |lock| lock.fence);
        let Some(Waiter { lease, value }) = self.locks.dequeue(name) else {
            self.locks.remove(name);
            self.remove(name);
            return;
        };
        if self.faults.has(Fault::FenceUsedTwice) {
            self.store_row(&RestoredKey {
                key: Bytes::copy_from_slice(name),
                version: before,
                value: value.into(),
                expires: None,
                lease: Some(lease),
            });
            return self.locks.pass_on(name, before, lease);
        }
        let (fence, _) = self.store(name, &value, Ending { expires: None, lease: Some(lease) });
        self.locks.pass_on(name, fence, lease);
    }

    /// Answers [`Read::Lock`](crate::command::Read::Lock).
    pub(in crate::machine) fn lock_view(&self, name: &[u8]) -> Option<Box<LockView>> {
        let lock = self.locks.get(name)?;
        let client = |number, value: &[u8]| {
            let lease = self.leases.find(LeaseKey::beside(name, number));
            let (lease, found) = lease.expect("invariant: a lease that ends leaves its locks");
            (LockClient { lease, value: Bytes::copy_from_slice(value) }, found.ends)
        };
        let record = self.records.get(name).expect("invariant: a lock that is held is a key");
        let (holder, ends) = client(lock.holder, record.value());
        let queue = lock.queue.iter().map(|waiter| client(waiter.lease, &waiter.value).0).collect();
        Some(Box::new(LockView { fence: lock.fence, ends, holder, queue }))
    }
}

/// Makes the replies to a lease that holds a lock, from the fence and the leader's time.
fn held_by(lease: &Lease) -> impl Fn(Version, UnixMillis) -> LockReply + use<> {
    let (ends, ttl_ms) = (lease.ends, lease.ttl_ms);
    // By a clock that is behind that of the last renewal it lasts longer, until it is shortened.
    move |fence, at| LockReply::Held { fence, valid_for_ms: ends.0.saturating_sub(at.0).min(ttl_ms) }
}
