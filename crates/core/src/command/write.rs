//! Changes of replicated state, as the log holds them and as they travel between nodes.
//!
//! Owns which changes there are, the shard that each of them goes to, and the first byte of their
//! encoding. A first byte is never given another meaning. Lengths and checksums belong to the
//! frames around the bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

use super::{
    AccessWrite, AuthorityWrite, Condition, ConditionalTransaction, ConfigRestoration, ConfigWrite, Flush,
    LeaseWrite, LockWrite, Move, Operation, Operations, RegistryWrite, Restoration, RestoreWrite, RowLayout,
    ShardRefusal, Transaction,
};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::{ShardId, UnixMillis};
use crate::version::ClusterVersion;

/// A change of replicated state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Executes operations on keys of one shard atomically. Answered by
    /// [`WriteReply::Operations`](super::WriteReply::Operations), one reply for each, or by
    /// [`WriteReply::ConditionFailed`](super::WriteReply::ConditionFailed) if a watch fails. In
    /// that case nothing changed.
    Keys(Transaction),
    /// Executes one of two sequences of operations on keys of one slot atomically, by the state of
    /// keys. Answered by [`WriteReply::Branched`](super::WriteReply::Branched).
    Conditional(Box<ConditionalTransaction>),
    /// Removes keys of a shard that expire at `now` or before, in the order of their expiry, and
    /// ends leases. Answered by [`WriteReply::Expired`](super::WriteReply::Expired). The leader of
    /// a shard proposes it when keys or leases are overdue by its clock. Replicas take the time
    /// from the log and never read a clock.
    Expire {
        /// Any data shard.
        shard: ShardId,
        /// The time at which the leader proposed it.
        now: UnixMillis,
        /// Maximum number of keys, 1 to [`limits::EXPIRED_KEYS_MAX`]. No further lease ends once
        /// this many keys were removed.
        limit: usize,
        /// How leases end; `None`: none does.
        leases: Option<LeaseExpiry>,
    },
    /// Removes keys of a shard, of any name. Answered by
    /// [`WriteReply::Flushed`](super::WriteReply::Flushed).
    Flush(Box<Flush>),
    /// Changes leases. Answered by [`WriteReply::Lease`](super::WriteReply::Lease).
    Lease(Box<LeaseWrite>),
    /// Changes a lock. Answered by [`WriteReply::Lock`](super::WriteReply::Lock).
    Lock(Box<LockWrite>),
    /// Changes a configuration namespace. Answered by
    /// [`WriteReply::Config`](super::WriteReply::Config).
    Config(Box<ConfigWrite>),
    /// One step of a move of slots between data shards. Nodes send it. Answered by
    /// [`WriteReply::Move`](super::WriteReply::Move).
    Slots(Box<Move>),
    /// Fills a shard from a backup.
    Restore(RestoreWrite),
    /// Changes the registry, on the prime shard.
    Registry(Box<RegistryWrite>),
    /// Changes nothing. Every replica that applies it begins a snapshot at exactly the entry that
    /// holds it, so that replicas can be compared and copied at one index. Answered by
    /// [`WriteReply::Checkpointed`](super::WriteReply::Checkpointed).
    Checkpoint {
        /// Any shard, including the prime shard.
        shard: ShardId,
    },
}

/// How a [`Write::Expire`] ends leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseExpiry {
    /// When the leader that proposed the write began to lead, by its clock. A lease ends only if
    /// that leader has led for its time to live, up to [`limits::LEASE_FLOOR_MS`].
    pub led_since: UnixMillis,
    /// Whether leases are shortened first that would last for longer than their time to live, by
    /// more than [`limits::CLOCK_STEP_MS`]. The clock of the leader that granted or renewed them
    /// was ahead of that of the leader that proposed the write.
    pub shortens: bool,
}

/// A write within all limits, with the shard that owns its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedWrite {
    shard: ShardId,
    write: Write,
}

const TAG_CHECKPOINT: u8 = 6;
const TAG_RESTORE: u8 = 7;
const TAG_MOVE: u8 = 14;
const TAG_EXPIRE: u8 = 23;
/// A restore of keys of which some expire.
const TAG_RESTORE_EXPIRING: u8 = 24;
const TAG_KEYS: u8 = 25;
const TAG_CONFIG: u8 = 30;
const TAG_RESTORE_CONFIG: u8 = 31;
const TAG_DISCARD_RESTORE: u8 = 32;
const TAG_CONDITIONAL: u8 = 41;
const TAG_LEASE: u8 = 50;
const TAG_LOCK: u8 = 51;
/// As [`TAG_EXPIRE`], and leases end.
const TAG_EXPIRE_LEASES: u8 = 52;
/// As [`TAG_EXPIRE_LEASES`], and leases that last too long are shortened first.
const TAG_SHORTEN_LEASES: u8 = 54;
const TAG_FLUSH: u8 = 53;

/// Single operations and transactions in logs that were written before [`TAG_KEYS`]; decoded only.
const TAG_PUT: u8 = 1;
const TAG_DELETE: u8 = 2;
const TAG_TRANSACTION: u8 = 20;
const TAG_EXCHANGE: u8 = 21;
const TAG_COMPARE_EXCHANGE: u8 = 22;

impl Write {
    /// The write that executes one operation.
    pub fn of(operation: &Operation<'_>) -> Write {
        Write::Keys(Transaction::of(Operations::of(&[*operation])))
    }

    /// The operation, if the write executes exactly one and watches nothing.
    pub fn only_operation(&self) -> Option<Operation<'_>> {
        match self {
            Write::Keys(Transaction { watches, operations }) if watches.is_empty() => operations.only(),
            _ => None,
        }
    }

    /// Whether the shard's leader must fill in the time at which it proposes the write.
    pub fn needs_clock(&self) -> bool {
        match self {
            Write::Keys(transaction) => transaction.operations.needs_clock(),
            Write::Conditional(transaction) => transaction.needs_clock(),
            Write::Lease(_) | Write::Lock(_) => true,
            Write::Slots(step) => step.needs_clock(),
            Write::Registry(write) => {
                matches!(
                    **write,
                    RegistryWrite::Access(_) | RegistryWrite::Authority(_) | RegistryWrite::Audited(_)
                )
            }
            _ => false,
        }
    }

    /// The write as the log holds it, proposed at `now` by the clock of the shard's leader; see
    /// [`Operations::at`].
    pub fn at(&self, now: UnixMillis) -> Write {
        match self {
            Write::Keys(Transaction { watches, operations }) => {
                Write::Keys(Transaction { watches: watches.clone(), operations: operations.at(now) })
            }
            Write::Conditional(transaction) => Write::Conditional(Box::new(transaction.at(now))),
            Write::Lease(write) => write.at(now).into(),
            Write::Lock(write) => write.at(now).into(),
            Write::Slots(step) => step.at(now).into(),
            Write::Registry(write) if let RegistryWrite::Access(write) = &**write => {
                RegistryWrite::Access(AccessWrite { at: now, ..write.clone() }).into()
            }
            Write::Registry(write) if let RegistryWrite::Authority(write) = &**write => {
                RegistryWrite::Authority(AuthorityWrite { at: now, ..write.clone() }).into()
            }
            Write::Registry(write) if let RegistryWrite::Audited(audited) = &**write => {
                RegistryWrite::Audited(Box::new(audited.at(now))).into()
            }
            write => write.clone(),
        }
    }

    /// The cluster version from which on the log may hold this write. A write of an earlier cluster
    /// is refused before it is proposed or sent. Every new command, and every new layout of an old
    /// one, is named here or in the write that it belongs to.
    pub fn needed_version(&self) -> ClusterVersion {
        match self {
            Write::Registry(write) => write.needed_version(),
            Write::Config(write) => write.needed_version(),
            Write::Conditional(transaction) => transaction.needed_version(),
            Write::Flush(_) => ClusterVersion::WITH_COORDINATION,
            Write::Keys(transaction) => transaction.operations.needed_version(),
            Write::Expire { leases: Some(LeaseExpiry { shortens: true, .. }), .. } => {
                ClusterVersion::WITH_SHORTENED_LEASES
            }
            Write::Lease(_) | Write::Lock(_) | Write::Expire { leases: Some(_), .. } => {
                ClusterVersion::WITH_COORDINATION
            }
            Write::Restore(RestoreWrite::Config(restoration)) => restoration.needed_version(),
            Write::Expire { .. } | Write::Restore(_) | Write::Checkpoint { .. } => ClusterVersion::FIRST,
            Write::Slots(step) => step.needed_version(),
        }
    }

    /// Checks the limits that every protocol shares.
    ///
    /// # Errors
    /// [`ShardRefusal::Invalid`], with the limit.
    pub fn validate(&self) -> Result<(), ShardRefusal> {
        match self {
            Write::Keys(transaction) => transaction.validate(|_| ShardId::PRIME).map(drop),
            Write::Conditional(transaction) => transaction.validate(),
            Write::Expire { limit, .. } if (1..=limits::EXPIRED_KEYS_MAX).contains(limit) => Ok(()),
            Write::Expire { .. } => Err(ShardRefusal::invalid("more keys to expire than one command may")),
            Write::Flush(flush) => flush.validate(),
            Write::Lease(write) => write.validate(),
            Write::Lock(write) => write.validate(),
            Write::Config(write) => write.validate(),
            Write::Slots(step) => step.validate(),
            Write::Restore(write) => write.validate(),
            Write::Registry(write) => write.validate(),
            Write::Checkpoint { .. } => Ok(()),
        }
    }

    /// The shard of the write, if `shard_of` gives the shard of a key.
    ///
    /// # Errors
    /// [`ShardRefusal::CrossShard`] if its keys belong to several shards, or not to the shard that
    /// it names.
    fn shard(&self, shard_of: impl Fn(&[u8]) -> ShardId) -> Result<ShardId, ShardRefusal> {
        match self {
            Write::Keys(transaction) => transaction.shard(shard_of),
            // All keys belong to one slot.
            Write::Conditional(transaction) => {
                transaction.keys().next().map(shard_of).ok_or(ShardRefusal::invalid("no operations"))
            }
            Write::Lease(write) => {
                let mut shards = write.tags().map(|tag| shard_of(tag.prefix()));
                let first = shards.next().ok_or(ShardRefusal::invalid("no leases"))?;
                if shards.all(|shard| shard == first) { Ok(first) } else { Err(ShardRefusal::CrossShard) }
            }
            Write::Lock(write) => Ok(shard_of(&write.name)),
            Write::Config(write) => Ok(shard_of(write.namespace.routing_key())),
            Write::Restore(write) => write.shard(shard_of),
            Write::Registry(_) => Ok(ShardId::PRIME),
            Write::Slots(step) => Ok(step.shard),
            Write::Flush(flush) => Ok(flush.shard),
            Write::Expire { shard, .. } | Write::Checkpoint { shard } => Ok(*shard),
        }
    }

    /// Appends the encoding used in the log and on the wire.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Write::Keys(transaction) => {
                out.push(TAG_KEYS);
                transaction.encode(out);
            }
            Write::Conditional(transaction) => {
                out.push(TAG_CONDITIONAL);
                transaction.encode(out);
            }
            Write::Expire { shard, now, limit, leases } => {
                out.push(match leases {
                    None => TAG_EXPIRE,
                    Some(LeaseExpiry { shortens: false, .. }) => TAG_EXPIRE_LEASES,
                    Some(LeaseExpiry { shortens: true, .. }) => TAG_SHORTEN_LEASES,
                });
                codec::put_varint(out, shard.0);
                codec::put_varint(out, now.0);
                codec::put_varint(out, *limit as u64);
                leases.iter().for_each(|leases| codec::put_varint(out, leases.led_since.0));
            }
            Write::Lease(write) => {
                out.push(TAG_LEASE);
                write.encode(out);
            }
            Write::Lock(write) => {
                out.push(TAG_LOCK);
                write.encode(out);
            }
            Write::Flush(flush) => {
                out.push(TAG_FLUSH);
                flush.encode(out);
            }
            Write::Config(write) => {
                out.push(TAG_CONFIG);
                write.encode(out);
            }
            Write::Slots(step) => {
                out.push(TAG_MOVE);
                step.encode(out);
            }
            Write::Restore(RestoreWrite::Keys(restoration)) => {
                let layout = restoration.layout();
                out.push(if layout == RowLayout::Expiring { TAG_RESTORE_EXPIRING } else { TAG_RESTORE });
                restoration.encode(layout, out);
            }
            Write::Restore(RestoreWrite::Config(restoration)) => {
                out.push(TAG_RESTORE_CONFIG);
                restoration.encode(out);
            }
            Write::Restore(RestoreWrite::Discard(discard)) => {
                out.push(TAG_DISCARD_RESTORE);
                discard.encode(out);
            }
            Write::Registry(write) => write.encode(out),
            Write::Checkpoint { shard } => {
                out.push(TAG_CHECKPOINT);
                codec::put_varint(out, shard.0);
            }
        }
    }

    /// As [`Write::decode`], for a log entry: operations are decoded only when they are applied.
    ///
    /// # Errors
    /// When the bytes are not a write.
    pub fn decode_logged(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Write, DecodeError> {
        if decoder.rest().first() != Some(&TAG_KEYS) {
            return Write::decode(decoder, owner);
        }
        decoder.u8()?;
        Ok(Write::Keys(Transaction::decode_logged(decoder, owner)?))
    }

    /// Decodes one write. Keys and values share `owner`, the buffer that `decoder` reads.
    ///
    /// # Errors
    /// When the bytes are not a write.
    pub fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Write, DecodeError> {
        Ok(match decoder.u8()? {
            TAG_KEYS => Write::Keys(Transaction::decode(decoder, owner)?),
            TAG_CONDITIONAL => Write::Conditional(Box::new(ConditionalTransaction::decode(decoder, owner)?)),
            tag @ (TAG_EXPIRE | TAG_EXPIRE_LEASES | TAG_SHORTEN_LEASES) => {
                let shard = ShardId(decoder.varint()?);
                let now = UnixMillis(decoder.varint()?);
                let limit = decoder.bounded(limits::EXPIRED_KEYS_MAX as u64, "number of keys to expire")?;
                let leases = if tag == TAG_EXPIRE {
                    None
                } else {
                    let led_since = UnixMillis(decoder.varint()?);
                    Some(LeaseExpiry { led_since, shortens: tag == TAG_SHORTEN_LEASES })
                };
                Write::Expire { shard, now, limit: limit as usize, leases }
            }
            TAG_FLUSH => Write::Flush(Box::new(Flush::decode(decoder, owner)?)),
            TAG_LEASE => Write::Lease(Box::new(LeaseWrite::decode(decoder)?)),
            TAG_LOCK => Write::Lock(Box::new(LockWrite::decode(decoder, owner)?)),
            TAG_CONFIG => Write::Config(Box::new(ConfigWrite::decode(decoder)?)),
            TAG_MOVE => Write::Slots(Box::new(Move::decode(decoder, owner)?)),
            TAG_RESTORE => restore(RowLayout::Plain, decoder, owner)?,
            TAG_RESTORE_EXPIRING => restore(RowLayout::Expiring, decoder, owner)?,
            TAG_RESTORE_CONFIG => {
                Write::Restore(RestoreWrite::Config(ConfigRestoration::decode(decoder, owner)?))
            }
            TAG_DISCARD_RESTORE => Write::Restore(RestoreWrite::Discard(super::Discard::decode(decoder)?)),
            TAG_CHECKPOINT => Write::Checkpoint { shard: ShardId(decoder.varint()?) },
            tag @ (TAG_PUT | TAG_DELETE | TAG_TRANSACTION | TAG_EXCHANGE | TAG_COMPARE_EXCHANGE) => {
                decode_old(tag, decoder, owner)?
            }
            tag => Write::Registry(Box::new(RegistryWrite::decode(tag, decoder)?)),
        })
    }
}

fn restore(layout: RowLayout, decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Write, DecodeError> {
    Ok(Write::Restore(RestoreWrite::Keys(Restoration::decode(layout, decoder, owner)?)))
}

/// Decodes a change of keys as earlier releases wrote it.
fn decode_old(tag: u8, decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Write, DecodeError> {
    Ok(match tag {
        TAG_PUT => {
            let condition = Condition::decode(decoder)?;
            let (key, value) = (decoder.bytes()?, decoder.bytes()?);
            Write::of(&Operation::Put { key, value, condition })
        }
        TAG_DELETE => {
            let condition = Condition::decode(decoder)?;
            Write::of(&Operation::Delete { key: decoder.bytes()?, condition })
        }
        TAG_EXCHANGE => {
            let key = decoder.bytes()?;
            Write::of(&Operation::Exchange { key, value: decoder.signed()? })
        }
        TAG_COMPARE_EXCHANGE => {
            let (key, expected) = (decoder.bytes()?, decoder.signed()?);
            Write::of(&Operation::CompareExchange { key, expected, new: decoder.signed()? })
        }
        _ => {
            // The shard, which follows from the keys.
            decoder.varint()?;
            Write::Keys(Transaction::decode(decoder, owner)?)
        }
    })
}

impl From<RegistryWrite> for Write {
    fn from(write: RegistryWrite) -> Write {
        Write::Registry(Box::new(write))
    }
}

impl From<ConfigWrite> for Write {
    fn from(write: ConfigWrite) -> Write {
        Write::Config(Box::new(write))
    }
}

impl From<LeaseWrite> for Write {
    fn from(write: LeaseWrite) -> Write {
        Write::Lease(Box::new(write))
    }
}

impl From<LockWrite> for Write {
    fn from(write: LockWrite) -> Write {
        Write::Lock(Box::new(write))
    }
}

impl From<Move> for Write {
    fn from(step: Move) -> Write {
        Write::Slots(Box::new(step))
    }
}

impl CheckedWrite {
    /// Checks the limits of a write and finds its shard; `shard_of` gives the shard of a key.
    ///
    /// # Errors
    /// [`ShardRefusal::Invalid`] if the write breaks a limit, [`ShardRefusal::CrossShard`] if its
    /// keys do not belong to one shard.
    pub fn new(write: Write, shard_of: impl Fn(&[u8]) -> ShardId) -> Result<CheckedWrite, ShardRefusal> {
        let shard = match &write {
            Write::Keys(transaction) => transaction.validate(shard_of)?,
            write => {
                write.validate()?;
                write.shard(shard_of)?
            }
        };
        Ok(CheckedWrite { shard, write })
    }

    /// Finds the shard again, after slots have moved.
    ///
    /// # Errors
    /// [`ShardRefusal::CrossShard`] if the keys are in several shards by now.
    pub fn route(&mut self, shard_of: impl Fn(&[u8]) -> ShardId) -> Result<(), ShardRefusal> {
        self.shard = self.write.shard(shard_of)?;
        Ok(())
    }

    /// The shard that owned the keys when the write was last routed.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The write.
    pub fn write(&self) -> &Write {
        &self.write
    }
}

/// For the round-trip tests of writes, which stand beside each write.
#[cfg(test)]
pub(super) mod fixture {
    use super::*;

    /// A write decodes to itself, and every truncation of its bytes is refused.
    pub fn assert_round_trip(write: Write) {
        let mut out = Vec::new();
        write.encode(&mut out);
        let bytes = Bytes::from(out);
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(Write::decode(&mut decoder, &bytes), Ok(write.clone()));
        assert!(decoder.is_empty());
        let mut logged = Decoder::new(&bytes);
        assert_eq!(Write::decode_logged(&mut logged, &bytes), Ok(write));
        assert!(logged.is_empty());
        for cut in 0..bytes.len() {
            assert!(Write::decode(&mut Decoder::new(&bytes[..cut]), &bytes).is_err(), "{cut}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Version;

    #[test]
    fn changes_of_keys_in_old_logs_are_read_as_operations() {
        let key = &b"k"[..];
        let put = Operation::Put { key, value: b"v", condition: Condition::Version(Version(300)) };
        let mut transaction = alloc::vec![TAG_TRANSACTION, 2];
        Transaction::of(Operations::of(&[put])).encode(&mut transaction);
        for (old, operation) in [
            (&b"\x01\x01\xac\x02\x01k\x01v"[..], put),
            (b"\x02\x02\x01k", Operation::Delete { key, condition: Condition::Exists }),
            (b"\x15\x01k\x0d", Operation::Exchange { key, value: -7 }),
            (b"\x16\x01k\x0d\x0e", Operation::CompareExchange { key, expected: -7, new: 7 }),
            (&transaction, put),
        ] {
            let bytes = Bytes::copy_from_slice(old);
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(Write::decode(&mut decoder, &bytes), Ok(Write::of(&operation)));
            assert!(decoder.is_empty());
            for cut in 0..bytes.len() {
                assert!(Write::decode(&mut Decoder::new(&bytes[..cut]), &bytes).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn keys_of_one_write_belong_to_one_shard() {
        let shard_of = |key: &[u8]| ShardId(u64::from(key[0] - b'0'));
        let get = |key| Operation::Get { key };
        let write = |keys: [&'static [u8]; 2]| Write::Keys(Transaction::of(Operations::of(&keys.map(get))));
        let mut checked = CheckedWrite::new(write([b"1a", b"1b"]), shard_of).unwrap();
        assert_eq!(checked.shard(), ShardId(1));
        assert_eq!(CheckedWrite::new(write([b"1a", b"2b"]), shard_of), Err(ShardRefusal::CrossShard));
        let moved = |key: &[u8]| ShardId(u64::from(key[1] - b'a') + 2);
        assert_eq!(checked.route(moved), Err(ShardRefusal::CrossShard));
        assert_eq!(checked.route(|_| ShardId(9)), Ok(()));
        assert_eq!(checked.shard(), ShardId(9));
        let none = Write::Keys(Transaction::of(Operations::default()));
        assert!(matches!(CheckedWrite::new(none, shard_of), Err(ShardRefusal::Invalid(_))));
    }
}
