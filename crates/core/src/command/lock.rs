//! Locks: the changes of locks with their limits and layout, and the replies.
//!
//! A lock has a name, which is a key, and belongs to a lease of the same slot while it is held. The
//! name is then an ordinary key with the value of the holder, so reads, lists and watches show it.
//! Its version is the *fence* of the lock: a number that rises with each holder and never comes
//! again. Other writes of the key are refused while the lock is held. Clients that wait are queued
//! in the state, in their order.

use alloc::vec::Vec;
use bytes::Bytes;

use super::{LeaseId, ShardRefusal, validate_key};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::slots::slot_of;
use crate::types::{UnixMillis, Version};

/// A change of a lock on behalf of a lease. Answered by
/// [`WriteReply::Lock`](super::WriteReply::Lock).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWrite {
    /// The name of the lock: a key.
    pub name: Bytes,
    /// A lease of the same slot.
    pub lease: LeaseId,
    /// What is done.
    pub operation: LockOperation,
}

/// What is done with a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockOperation {
    /// Makes the lease the holder if nobody holds the lock. A lease that holds or awaits the lock
    /// already gets the same answer again, and its value does not change.
    Acquire {
        /// What the key holds while the lease holds the lock, at most
        /// [`limits::LOCK_VALUE_BYTES_MAX`].
        value: Bytes,
        /// Whether the lease is queued while another lease holds the lock.
        waits: bool,
        /// The time at which the shard's leader proposed it; 0 until then.
        at: UnixMillis,
    },
    /// Gives up the lock, or the place in its queue. The first lease of the queue becomes the
    /// holder.
    Release,
    /// Gives up only the place in the queue.
    Cancel {
        /// The time at which the shard's leader proposed it; 0 until then.
        at: UnixMillis,
    },
}

/// The reply to a [`LockWrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockReply {
    /// To an acquisition, or to a cancellation that came too late: the lease holds the lock, from
    /// now on or since earlier.
    Held {
        /// The version of the key as long as this lease holds the lock.
        fence: Version,
        /// The lease lasts at least this long after the command was sent, unless it is revoked, in
        /// milliseconds.
        valid_for_ms: u64,
    },
    /// To an acquisition: the lease is in the queue.
    Queued {
        /// Number of leases in the queue before this one.
        position: u64,
    },
    /// To an acquisition that does not wait: another lease holds the lock; nothing changed.
    HeldByOther {
        /// The fence of the holder.
        fence: Version,
    },
    /// To a release: the lease neither holds the lock nor waits for it any more.
    Released,
    /// To a cancellation: the lease has left the queue.
    Cancelled,
    /// To a release or a cancellation: the lease neither held the lock nor waited for it.
    NotHeld,
    /// There is no such lease; nothing changed.
    NoLease,
    /// To an acquisition: the name is a key that clients have stored; nothing changed.
    KeyExists {
        /// The version of the key.
        version: Version,
    },
    /// To an acquisition: the queue has [`limits::LOCK_WAITERS_MAX`] leases, or the lease already
    /// has [`limits::LEASE_KEYS_MAX`] keys and locks; nothing changed.
    QueueFull,
    /// To an acquisition: the shard has [`limits::LEASES_BYTES_MAX`] bytes of leases and waiters;
    /// nothing changed.
    TooMany,
}

/// A held lock, as a read shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    /// The version of the key as long as this holder holds the lock.
    pub fence: Version,
    /// When the lease of the holder ends: see [`LeaseView::ends`](super::LeaseView::ends).
    pub ends: UnixMillis,
    /// The holder.
    pub holder: LockClient,
    /// The leases that wait, the next holder first; at most [`limits::LOCK_WAITERS_MAX`].
    pub queue: Vec<LockClient>,
}

/// The holder of a lock, or a lease that waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockClient {
    /// Its lease.
    pub lease: LeaseId,
    /// The value that the key has while it holds the lock.
    pub value: Bytes,
}

const STEP_ACQUIRE: u8 = 1;
const STEP_RELEASE: u8 = 2;
const STEP_CANCEL: u8 = 3;

impl LockWrite {
    /// The change as the log holds it, proposed at `now` by the clock of the shard's leader.
    pub(super) fn at(&self, now: UnixMillis) -> LockWrite {
        let mut write = self.clone();
        match &mut write.operation {
            LockOperation::Acquire { at, .. } | LockOperation::Cancel { at } => *at = now,
            LockOperation::Release => {}
        }
        write
    }

    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        validate_key(&self.name)?;
        if let LockOperation::Acquire { value, .. } = &self.operation
            && value.len() > limits::LOCK_VALUE_BYTES_MAX
        {
            return Err(ShardRefusal::invalid("the value of a lock is longer than 4 KiB"));
        }
        if slot_of(&self.name) == self.lease.slot() { Ok(()) } else { Err(ShardRefusal::CrossShard) }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, &self.name);
        self.lease.encode(out);
        match &self.operation {
            LockOperation::Acquire { value, waits, at } => {
                out.push(STEP_ACQUIRE);
                codec::put_bytes(out, value);
                out.push(u8::from(*waits));
                codec::put_varint(out, at.0);
            }
            LockOperation::Release => out.push(STEP_RELEASE),
            LockOperation::Cancel { at } => {
                out.push(STEP_CANCEL);
                codec::put_varint(out, at.0);
            }
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<LockWrite, DecodeError> {
        let (name, lease) = (decoder.shared(owner)?, LeaseId::decode(decoder)?);
        let operation = match decoder.u8()? {
            STEP_ACQUIRE => {
                let (value, waits) = (decoder.shared(owner)?, decoder.bool()?);
                LockOperation::Acquire { value, waits, at: UnixMillis(decoder.varint()?) }
            }
            STEP_RELEASE => LockOperation::Release,
            STEP_CANCEL => LockOperation::Cancel { at: UnixMillis(decoder.varint()?) },
            _ => return Err(DecodeError::UnknownTag("change of a lock")),
        };
        Ok(LockWrite { name, lease, operation })
    }
}

const REPLY_HELD: u8 = 1;
const REPLY_QUEUED: u8 = 2;
const REPLY_HELD_BY_OTHER: u8 = 3;
const REPLY_RELEASED: u8 = 4;
const REPLY_CANCELLED: u8 = 5;
const REPLY_NOT_HELD: u8 = 6;
const REPLY_NO_LEASE: u8 = 7;
const REPLY_KEY_EXISTS: u8 = 8;
const REPLY_QUEUE_FULL: u8 = 9;
const REPLY_TOO_MANY: u8 = 10;

impl LockReply {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let (tag, numbers) = match self {
            LockReply::Held { fence, valid_for_ms } => (REPLY_HELD, [Some(fence.0), Some(valid_for_ms)]),
            LockReply::Queued { position } => (REPLY_QUEUED, [Some(position), None]),
            LockReply::HeldByOther { fence } => (REPLY_HELD_BY_OTHER, [Some(fence.0), None]),
            LockReply::Released => (REPLY_RELEASED, [None; 2]),
            LockReply::Cancelled => (REPLY_CANCELLED, [None; 2]),
            LockReply::NotHeld => (REPLY_NOT_HELD, [None; 2]),
            LockReply::NoLease => (REPLY_NO_LEASE, [None; 2]),
            LockReply::KeyExists { version } => (REPLY_KEY_EXISTS, [Some(version.0), None]),
            LockReply::QueueFull => (REPLY_QUEUE_FULL, [None; 2]),
            LockReply::TooMany => (REPLY_TOO_MANY, [None; 2]),
        };
        out.push(tag);
        numbers.iter().flatten().for_each(|number| codec::put_varint(out, *number));
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<LockReply, DecodeError> {
        Ok(match decoder.u8()? {
            REPLY_HELD => {
                let fence = Version(decoder.varint()?);
                LockReply::Held { fence, valid_for_ms: decoder.varint()? }
            }
            REPLY_QUEUED => LockReply::Queued { position: decoder.varint()? },
            REPLY_HELD_BY_OTHER => LockReply::HeldByOther { fence: Version(decoder.varint()?) },
            REPLY_RELEASED => LockReply::Released,
            REPLY_CANCELLED => LockReply::Cancelled,
            REPLY_NOT_HELD => LockReply::NotHeld,
            REPLY_NO_LEASE => LockReply::NoLease,
            REPLY_KEY_EXISTS => LockReply::KeyExists { version: Version(decoder.varint()?) },
            REPLY_QUEUE_FULL => LockReply::QueueFull,
            REPLY_TOO_MANY => LockReply::TooMany,
            _ => return Err(DecodeError::UnknownTag("reply to a change of a lock")),
        })
    }
}

impl LockView {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.fence.0);
        codec::put_varint(out, self.ends.0);
        self.holder.encode(out);
        codec::put_varint(out, self.queue.len() as u64);
        self.queue.iter().for_each(|waiter| waiter.encode(out));
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<LockView, DecodeError> {
        let (fence, ends) = (Version(decoder.varint()?), UnixMillis(decoder.varint()?));
        let holder = LockClient::decode(decoder, owner)?;
        let count = decoder.bounded(limits::LOCK_WAITERS_MAX as u64, "number of waiters")?;
        let queue = (0..count).map(|_| LockClient::decode(decoder, owner)).collect::<Result<_, _>>()?;
        Ok(LockView { fence, ends, holder, queue })
    }
}

impl LockClient {
    fn encode(&self, out: &mut Vec<u8>) {
        self.lease.encode(out);
        codec::put_bytes(out, &self.value);
    }

    fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<LockClient, DecodeError> {
        let lease = LeaseId::decode(decoder)?;
        Ok(LockClient { lease, value: decoder.shared(owner)? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use crate::command::{LeaseTag, Write};
    use crate::version::ClusterVersion;
    use alloc::vec;

    fn write(name: &'static str, operation: LockOperation) -> Write {
        let lease = LeaseId::new(LeaseTag::new(b"t").expect("a tag"), Version(9));
        Write::from(LockWrite { name: Bytes::from_static(name.as_bytes()), lease, operation })
    }

    fn acquire(value: &[u8]) -> LockOperation {
        LockOperation::Acquire { value: Bytes::copy_from_slice(value), waits: true, at: UnixMillis(300) }
    }

    #[test]
    fn changes_round_trip() {
        let cancel = LockOperation::Cancel { at: UnixMillis(300) };
        for operation in [acquire(b"\xff"), LockOperation::Release, cancel] {
            let write = write("{t}/lock", operation);
            assert_eq!(write.needed_version(), ClusterVersion::WITH_COORDINATION);
            assert_eq!(write.validate(), Ok(()));
            assert_round_trip(write);
        }
    }

    #[test]
    fn replies_round_trip() {
        for reply in [
            LockReply::Held { fence: Version(300), valid_for_ms: 10_000 },
            LockReply::Queued { position: 0 },
            LockReply::HeldByOther { fence: Version(300) },
            LockReply::Released,
            LockReply::Cancelled,
            LockReply::NotHeld,
            LockReply::NoLease,
            LockReply::KeyExists { version: Version(300) },
            LockReply::QueueFull,
            LockReply::TooMany,
        ] {
            let mut out = vec![];
            reply.encode(&mut out);
            assert_eq!(LockReply::decode(&mut Decoder::new(&out)), Ok(reply));
        }
    }

    #[test]
    fn a_lock_and_its_lease_have_one_slot_and_a_value_has_a_limit() {
        assert_eq!(write("t", acquire(b"")).validate(), Ok(()));
        assert_eq!(write("u", acquire(b"")).validate(), Err(ShardRefusal::CrossShard));
        let long = vec![0; limits::LOCK_VALUE_BYTES_MAX + 1];
        assert!(matches!(write("t", acquire(&long)).validate(), Err(ShardRefusal::Invalid(_))));
        assert_eq!(write("t", acquire(&long[1..])).validate(), Ok(()));
        assert!(write("", LockOperation::Release).validate().is_err());
    }
}
