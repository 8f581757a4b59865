//! Operations on single keys.
//!
//! Owns what can be done with a key, the cluster version that it needs, and the layout of one
//! operation in the log and on the wire. [`Operations`](super::Operations) are a sequence of them.

use alloc::vec::Vec;

use super::{Condition, LeaseId, ShardRefusal, validate_key, validate_value};
use crate::codec::{self, DecodeError, Decoder, codes};
use crate::decimal::Decimal;
use crate::limits;
use crate::slots::slot_of;
use crate::types::{UnixMillis, Version};
use crate::version::ClusterVersion;

/// An operation on one key. It borrows the bytes of the key and the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Reads the value. Answered by `Value` or `Absent`.
    Get {
        /// The key to read. It need not exist.
        key: &'a [u8],
    },
    /// Reads everything but the value. Answered by `Described` or `Absent`.
    Describe {
        /// The key to read. It need not exist.
        key: &'a [u8],
    },
    /// Stores a value without expiry, and clears the key's expiry. Answered by `Written` or
    /// `ConditionFailed`.
    Put {
        /// Created if it does not exist and `condition` allows that.
        key: &'a [u8],
        /// At most [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX) bytes, any bytes.
        value: &'a [u8],
        /// Checked and applied atomically with the write.
        condition: Condition,
    },
    /// Stores a value with options.
    Set(Set<'a>),
    /// Removes a key. Answered by `Deleted`, `Absent` or `ConditionFailed`.
    Delete {
        /// The key to remove. It need not exist.
        key: &'a [u8],
        /// Checked and applied atomically with the removal.
        condition: Condition,
    },
    /// Removes a key and returns its value. Answered by `Taken` or `Absent`.
    Take {
        /// The key to remove. It need not exist.
        key: &'a [u8],
    },
    /// Adds to a decimal number of 64 bits; an absent key counts as zero. Answered by `Number` or
    /// `Rejected`.
    Add {
        /// Created if it does not exist. Its expiry does not change.
        key: &'a [u8],
        /// Negative to subtract.
        delta: i64,
    },
    /// Appends to a value; an absent key counts as empty. Answered by `Length` or `Rejected`.
    Append {
        /// Created if it does not exist. Its expiry does not change.
        key: &'a [u8],
        /// Any bytes. The result may not exceed
        /// [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
        suffix: &'a [u8],
    },
    /// Sets or clears the expiry of a key. Answered by `Written`, `ConditionFailed` or `Absent`, or
    /// by `Deleted` if the time is [`UnixMillis`] 0, which has passed by any clock.
    Expire {
        /// Its value does not change, but it gets a new version.
        key: &'a [u8],
        /// Absolute time; `None`: the key never expires.
        at: Option<UnixMillis>,
        /// Checked and applied atomically with the change.
        condition: ExpiryCondition,
    },
    /// Sets the expiry of a key relative to the time at which the shard's leader proposes the
    /// operation. Answered as `Expire` is. It never enters a log: see
    /// [`Operations::at`](super::Operations::at).
    ExpireAfter {
        /// Its value does not change, but it gets a new version.
        key: &'a [u8],
        /// Milliseconds from the proposal to the expiry.
        after_ms: u64,
        /// Checked and applied atomically with the change.
        condition: ExpiryCondition,
    },
    /// Stores a number in a register: a key that holds a decimal number of 64 bits, or an absent
    /// key, which counts as zero. Answered by `Exchanged` or `Rejected`.
    Exchange {
        /// The register. Its expiry does not change.
        key: &'a [u8],
        /// Stored as decimal text.
        value: i64,
    },
    /// As `Exchange`, but only if the register holds `expected`.
    CompareExchange {
        /// The register. Its expiry does not change.
        key: &'a [u8],
        /// The number that the register must hold.
        expected: i64,
        /// Stored as decimal text.
        new: i64,
    },
    /// Replaces the bytes of a value from an offset on. A shorter value is first filled with zero
    /// bytes up to the offset; an absent key counts as empty. Answered by `Length`.
    SetRange {
        /// Created if it does not exist. Its expiry does not change.
        key: &'a [u8],
        /// Position of the first replaced byte, from 0.
        offset: u64,
        /// At least one byte. It may not end beyond
        /// [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
        bytes: &'a [u8],
    },
    /// Adds to a decimal number; an absent key counts as zero. Answered by `Decimal` or `Rejected`.
    AddDecimal {
        /// Created if it does not exist. Its expiry does not change.
        key: &'a [u8],
        /// Negative to subtract.
        delta: Decimal,
    },
    /// Removes a key if a condition on its value holds. Answered by `Deleted`, `Absent` or
    /// `ConditionFailed`.
    DeleteIf {
        /// The key to remove. It need not exist.
        key: &'a [u8],
        /// Checked and applied atomically with the removal.
        condition: SetCondition<'a>,
    },
    /// As `Put`, and binds the key to a lease: it is removed when the lease ends, unless it is
    /// stored or removed before. Operations that keep an expiry also keep the lease of a key, and
    /// operations that set one are rejected. Also answered by `Rejected` if there is no such lease,
    /// or if it has too many keys.
    PutBound {
        /// Created if it does not exist and `condition` allows that.
        key: &'a [u8],
        /// At most [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX) bytes, any bytes.
        value: &'a [u8],
        /// Checked and applied atomically with the write.
        condition: Condition,
        /// The [text](super::LeaseId::text) of the id of a lease of the same slot.
        lease: &'a [u8],
    },
    /// If a key exists, the next operations of the same command are not executed. Answered by
    /// `Absent` if they are executed, else by `ConditionFailed`; each of them is then answered by
    /// `Skipped`.
    SkipIfExists {
        /// The key, which does not change.
        key: &'a [u8],
        /// How many operations are skipped, as far as there are so many.
        count: u64,
    },
}

/// Stores a value with options. Answered by `Written` or `ConditionFailed`, or by `Replaced` if the
/// previous value is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    /// Created if it does not exist and `condition` allows that.
    pub key: &'a [u8],
    /// At most [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX) bytes, any bytes.
    pub value: &'a [u8],
    /// Checked and applied atomically with the write.
    pub condition: SetCondition<'a>,
    /// The expiry of the key after the write.
    pub expiry: Expiry,
    /// Whether the reply carries the previous value.
    pub previous: bool,
}

/// The state of the key in which a set is applied, or a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCondition<'a> {
    /// The condition on the key's version holds.
    Version(Condition),
    /// The key holds exactly these bytes.
    Equals(&'a [u8]),
    /// The key holds other bytes, or does not exist.
    Differs(&'a [u8]),
    /// The key holds bytes with this [`hash_of`].
    HashEquals(u64),
    /// The key holds bytes with another [`hash_of`], or does not exist.
    HashDiffers(u64),
}

/// The expiry of a key after a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The set clears the expiry: the key never expires.
    Never,
    /// The expiry that the key had before; none for a new key.
    Keep,
    /// At this time. [`UnixMillis`] 0 has passed by any clock: the key does not exist after the
    /// set.
    At(UnixMillis),
    /// This many milliseconds after the shard's leader proposes the set. It never enters a log: see
    /// [`Operations::at`](super::Operations::at).
    After(u64),
}

/// When the expiry of a key may be changed. A key without expiry counts as expiring infinitely
/// late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryCondition {
    /// The change is always allowed.
    Always,
    /// Only if the key has no expiry.
    Never,
    /// Only if the key has an expiry.
    Some,
    /// Only if the new expiry is later than the current one.
    Later,
    /// Only if the new expiry is earlier than the current one.
    Earlier,
    /// Only if the key has an expiry, and the new one is later.
    SomeLater,
    /// Only if the key has an expiry, and the new one is earlier.
    SomeEarlier,
}

const TAG_GET: u8 = 1;
const TAG_DESCRIBE: u8 = 2;
const TAG_PUT: u8 = 3;
const TAG_SET: u8 = 4;
const TAG_DELETE: u8 = 5;
const TAG_TAKE: u8 = 6;
const TAG_ADD: u8 = 7;
const TAG_APPEND: u8 = 8;
const TAG_EXPIRE: u8 = 9;
const TAG_EXCHANGE: u8 = 10;
const TAG_COMPARE_EXCHANGE: u8 = 11;
const TAG_EXPIRE_AFTER: u8 = 12;
const TAG_SET_RANGE: u8 = 13;
const TAG_ADD_DECIMAL: u8 = 14;
const TAG_DELETE_IF: u8 = 15;
const TAG_SKIP_IF_EXISTS: u8 = 16;
const TAG_PUT_BOUND: u8 = 30;

/// Bytes of an encoded operation besides its key and value: tag, lengths, condition, expiry.
const OVERHEAD_BYTES: usize = 24;

/// A time that has passed by any clock.
const PASSED: UnixMillis = UnixMillis(0);

impl<'a> Operation<'a> {
    /// The key that it operates on.
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Operation::Get { key }
            | Operation::Describe { key }
            | Operation::Put { key, .. }
            | Operation::Set(Set { key, .. })
            | Operation::Delete { key, .. }
            | Operation::Take { key }
            | Operation::Add { key, .. }
            | Operation::Append { key, .. }
            | Operation::Expire { key, .. }
            | Operation::ExpireAfter { key, .. }
            | Operation::Exchange { key, .. }
            | Operation::CompareExchange { key, .. }
            | Operation::SetRange { key, .. }
            | Operation::AddDecimal { key, .. }
            | Operation::DeleteIf { key, .. }
            | Operation::PutBound { key, .. }
            | Operation::SkipIfExists { key, .. } => key,
        }
    }

    /// Whether it never changes state.
    pub fn is_read(&self) -> bool {
        matches!(self, Operation::Get { .. } | Operation::Describe { .. })
    }

    /// Whether it may change its key.
    pub fn is_write(&self) -> bool {
        !self.is_read() && !matches!(self, Operation::SkipIfExists { .. })
    }

    /// The cluster version from which on the log may hold the operation.
    pub fn needed_version(&self) -> ClusterVersion {
        match self {
            Operation::SetRange { .. }
            | Operation::AddDecimal { .. }
            | Operation::DeleteIf { .. }
            | Operation::SkipIfExists { .. }
            | Operation::Set(Set {
                condition: SetCondition::HashEquals(_) | SetCondition::HashDiffers(_),
                ..
            }) => ClusterVersion::WITH_VALUE_OPERATIONS,
            Operation::PutBound { .. } => ClusterVersion::WITH_COORDINATION,
            Operation::Get { .. }
            | Operation::Describe { .. }
            | Operation::Put { .. }
            | Operation::Set(_)
            | Operation::Delete { .. }
            | Operation::Take { .. }
            | Operation::Add { .. }
            | Operation::Append { .. }
            | Operation::Expire { .. }
            | Operation::ExpireAfter { .. }
            | Operation::Exchange { .. }
            | Operation::CompareExchange { .. } => ClusterVersion::FIRST,
        }
    }

    /// Whether its effect depends on the time at which the shard's leader proposes it.
    pub(super) fn needs_clock(&self) -> bool {
        match *self {
            Operation::Set(Set { expiry: Expiry::After(_), .. }) | Operation::ExpireAfter { .. } => true,
            // A time that has passed removes the key at once.
            Operation::Set(Set { expiry: Expiry::At(at), .. }) | Operation::Expire { at: Some(at), .. } => {
                at != PASSED
            }
            _ => false,
        }
    }

    /// The operation as the log holds it, proposed at `now`.
    pub(super) fn at(self, now: UnixMillis) -> Operation<'a> {
        let end = |after_ms: u64| UnixMillis(now.0.saturating_add(after_ms));
        match self {
            Operation::Set(set @ Set { expiry: Expiry::After(after_ms), .. }) => {
                Operation::Set(Set { expiry: Expiry::At(end(after_ms)), ..set })
            }
            Operation::Set(set @ Set { expiry: Expiry::At(at), .. }) if at <= now => {
                Operation::Set(Set { expiry: Expiry::At(PASSED), ..set })
            }
            Operation::ExpireAfter { key, after_ms, condition } => {
                Operation::Expire { key, at: Some(end(after_ms)), condition }
            }
            Operation::Expire { key, at: Some(at), condition } if at <= now => {
                Operation::Expire { key, at: Some(PASSED), condition }
            }
            operation => operation,
        }
    }

    /// Bytes that it takes when encoded, or a few more, if its value is its only long part. Exact
    /// for an unconditional put: `Bytes` of a buffer without spare capacity take one allocation
    /// instead of two.
    pub(super) fn encoded_bytes_estimate(&self) -> usize {
        let value = match *self {
            Operation::Put { key, value, condition: Condition::Always } => {
                return 2 + codec::length_prefixed_bytes(key) + codec::length_prefixed_bytes(value);
            }
            Operation::Put { value, .. }
            | Operation::PutBound { value, .. }
            | Operation::Append { suffix: value, .. }
            | Operation::SetRange { bytes: value, .. } => value,
            Operation::Set(set) => set.value,
            _ => &[],
        };
        OVERHEAD_BYTES + self.key().len() + value.len()
    }

    /// Checks the limits that every protocol shares.
    pub fn validate(&self) -> Result<(), ShardRefusal> {
        validate_key(self.key())?;
        match *self {
            Operation::Put { value, .. } | Operation::Append { suffix: value, .. } => validate_value(value),
            Operation::Set(Set { value, condition, .. }) => {
                validate_value(value)?;
                condition.validate()
            }
            Operation::DeleteIf { condition, .. } => condition.validate(),
            Operation::PutBound { key, value, lease, .. } => {
                validate_value(value)?;
                let lease = LeaseId::parse(lease).ok_or(ShardRefusal::invalid("invalid id of a lease"))?;
                if lease.slot() == slot_of(key) { Ok(()) } else { Err(ShardRefusal::CrossShard) }
            }
            Operation::SetRange { bytes: &[], .. } => Err(ShardRefusal::invalid("no bytes to store")),
            Operation::SetRange { offset, bytes, .. } => {
                let end = offset.saturating_add(bytes.len() as u64);
                let is_short = end <= limits::VALUE_BYTES_MAX as u64;
                if is_short { Ok(()) } else { Err(ShardRefusal::invalid("value longer than 1 MiB")) }
            }
            _ => Ok(()),
        }
    }

    /// Appends the encoding used in the log and on the wire.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Operation::Get { key } => put_tagged(out, TAG_GET, key),
            Operation::Describe { key } => put_tagged(out, TAG_DESCRIBE, key),
            Operation::Put { key, value, condition } => {
                put_tagged(out, TAG_PUT, key);
                condition.encode(out);
                codec::put_bytes(out, value);
            }
            Operation::Set(set) => set.encode(out),
            Operation::Delete { key, condition } => {
                put_tagged(out, TAG_DELETE, key);
                condition.encode(out);
            }
            Operation::Take { key } => put_tagged(out, TAG_TAKE, key),
            Operation::Add { key, delta } => {
                put_tagged(out, TAG_ADD, key);
                codec::put_signed(out, delta);
            }
            Operation::Append { key, suffix } => {
                put_tagged(out, TAG_APPEND, key);
                codec::put_bytes(out, suffix);
            }
            Operation::Expire { key, at, condition } => {
                put_tagged(out, TAG_EXPIRE, key);
                out.push(condition.code());
                put_expiry(out, at);
            }
            Operation::ExpireAfter { key, after_ms, condition } => {
                put_tagged(out, TAG_EXPIRE_AFTER, key);
                out.push(condition.code());
                codec::put_varint(out, after_ms);
            }
            Operation::Exchange { key, value } => {
                put_tagged(out, TAG_EXCHANGE, key);
                codec::put_signed(out, value);
            }
            Operation::CompareExchange { key, expected, new } => {
                put_tagged(out, TAG_COMPARE_EXCHANGE, key);
                codec::put_signed(out, expected);
                codec::put_signed(out, new);
            }
            Operation::SetRange { key, offset, bytes } => {
                put_tagged(out, TAG_SET_RANGE, key);
                codec::put_varint(out, offset);
                codec::put_bytes(out, bytes);
            }
            Operation::AddDecimal { key, delta } => {
                put_tagged(out, TAG_ADD_DECIMAL, key);
                delta.encode(out);
            }
            Operation::DeleteIf { key, condition } => {
                put_tagged(out, TAG_DELETE_IF, key);
                condition.encode(out);
            }
            Operation::PutBound { key, value, condition, lease } => {
                put_tagged(out, TAG_PUT_BOUND, key);
                condition.encode(out);
                codec::put_bytes(out, value);
                codec::put_bytes(out, lease);
            }
            Operation::SkipIfExists { key, count } => {
                put_tagged(out, TAG_SKIP_IF_EXISTS, key);
                codec::put_varint(out, count);
            }
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'a>) -> Result<Operation<'a>, DecodeError> {
        let tag = decoder.u8()?;
        let key = decoder.bytes()?;
        Ok(match tag {
            TAG_GET => Operation::Get { key },
            TAG_DESCRIBE => Operation::Describe { key },
            TAG_PUT => {
                let condition = Condition::decode(decoder)?;
                Operation::Put { key, value: decoder.bytes()?, condition }
            }
            TAG_SET => Operation::Set(Set::decode(key, decoder)?),
            TAG_DELETE => Operation::Delete { key, condition: Condition::decode(decoder)? },
            TAG_TAKE => Operation::Take { key },
            TAG_ADD => Operation::Add { key, delta: decoder.signed()? },
            TAG_APPEND => Operation::Append { key, suffix: decoder.bytes()? },
            TAG_EXPIRE => {
                let condition = ExpiryCondition::from_code(decoder.u8()?)?;
                Operation::Expire { key, at: expiry(decoder)?, condition }
            }
            TAG_EXPIRE_AFTER => {
                let condition = ExpiryCondition::from_code(decoder.u8()?)?;
                Operation::ExpireAfter { key, after_ms: decoder.varint()?, condition }
            }
            TAG_EXCHANGE => Operation::Exchange { key, value: decoder.signed()? },
            TAG_COMPARE_EXCHANGE => {
                let expected = decoder.signed()?;
                Operation::CompareExchange { key, expected, new: decoder.signed()? }
            }
            TAG_SET_RANGE => {
                let offset = decoder.varint()?;
                Operation::SetRange { key, offset, bytes: decoder.bytes()? }
            }
            TAG_ADD_DECIMAL => Operation::AddDecimal { key, delta: Decimal::decode(decoder)? },
            TAG_DELETE_IF => Operation::DeleteIf { key, condition: SetCondition::decode(decoder)? },
            TAG_PUT_BOUND => {
                let condition = Condition::decode(decoder)?;
                let (value, lease) = (decoder.bytes()?, decoder.bytes()?);
                Operation::PutBound { key, value, condition, lease }
            }
            TAG_SKIP_IF_EXISTS => Operation::SkipIfExists { key, count: decoder.varint()? },
            _ => return Err(DecodeError::UnknownTag("operation")),
        })
    }
}

impl Condition {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        match self {
            Condition::Always => out.push(0),
            Condition::Version(version) => {
                out.push(1);
                codec::put_varint(out, version.0);
            }
            Condition::Exists => out.push(2),
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Condition, DecodeError> {
        match decoder.u8()? {
            0 => Ok(Condition::Always),
            1 => Ok(Condition::Version(Version(decoder.varint()?))),
            2 => Ok(Condition::Exists),
            _ => Err(DecodeError::UnknownTag("condition")),
        }
    }
}

impl<'a> SetCondition<'a> {
    /// Whether it holds for a key with this version and value; `None` if there is no such key.
    pub fn holds(self, held: Option<(Version, &[u8])>) -> bool {
        match self {
            SetCondition::Version(condition) => {
                condition.holds(held.map_or(Version::ABSENT, |(version, _)| version))
            }
            SetCondition::Equals(value) => held.is_some_and(|(_, held)| held == value),
            SetCondition::Differs(value) => held.is_none_or(|(_, held)| held != value),
            SetCondition::HashEquals(hash) => held.is_some_and(|(_, held)| hash_of(held) == hash),
            SetCondition::HashDiffers(hash) => held.is_none_or(|(_, held)| hash_of(held) != hash),
        }
    }

    fn validate(self) -> Result<(), ShardRefusal> {
        match self {
            SetCondition::Equals(value) | SetCondition::Differs(value) => validate_value(value),
            SetCondition::Version(_) | SetCondition::HashEquals(_) | SetCondition::HashDiffers(_) => Ok(()),
        }
    }

    fn encode(self, out: &mut Vec<u8>) {
        match self {
            SetCondition::Version(condition) => {
                out.push(0);
                condition.encode(out);
            }
            SetCondition::Equals(value) => {
                out.push(1);
                codec::put_bytes(out, value);
            }
            SetCondition::Differs(value) => {
                out.push(2);
                codec::put_bytes(out, value);
            }
            SetCondition::HashEquals(hash) => {
                out.push(3);
                codec::put_varint(out, hash);
            }
            SetCondition::HashDiffers(hash) => {
                out.push(4);
                codec::put_varint(out, hash);
            }
        }
    }

    fn decode(decoder: &mut Decoder<'a>) -> Result<SetCondition<'a>, DecodeError> {
        Ok(match decoder.u8()? {
            0 => SetCondition::Version(Condition::decode(decoder)?),
            1 => SetCondition::Equals(decoder.bytes()?),
            2 => SetCondition::Differs(decoder.bytes()?),
            3 => SetCondition::HashEquals(decoder.varint()?),
            4 => SetCondition::HashDiffers(decoder.varint()?),
            _ => return Err(DecodeError::UnknownTag("condition of a set")),
        })
    }
}

/// The hash by which a condition compares values: XXH3 with 64 bits, as Redis computes it for
/// `DIGEST` and `IFDEQ`.
pub fn hash_of(value: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(value)
}

impl<'a> Set<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_tagged(out, TAG_SET, self.key);
        out.push(u8::from(self.previous));
        self.condition.encode(out);
        match self.expiry {
            Expiry::Never => out.push(0),
            Expiry::Keep => out.push(1),
            Expiry::At(UnixMillis(at)) => {
                out.push(2);
                codec::put_varint(out, at);
            }
            Expiry::After(after_ms) => {
                out.push(3);
                codec::put_varint(out, after_ms);
            }
        }
        codec::put_bytes(out, self.value);
    }

    fn decode(key: &'a [u8], decoder: &mut Decoder<'a>) -> Result<Set<'a>, DecodeError> {
        let previous = decoder.bool()?;
        let condition = SetCondition::decode(decoder)?;
        let expiry = match decoder.u8()? {
            0 => Expiry::Never,
            1 => Expiry::Keep,
            2 => Expiry::At(UnixMillis(decoder.varint()?)),
            3 => Expiry::After(decoder.varint()?),
            _ => return Err(DecodeError::UnknownTag("expiry of a set")),
        };
        Ok(Set { key, value: decoder.bytes()?, condition, expiry, previous })
    }
}

codes!(ExpiryCondition as "condition of an expiry" {
    ExpiryCondition::Always => 0,
    ExpiryCondition::Never => 1,
    ExpiryCondition::Some => 2,
    ExpiryCondition::Later => 3,
    ExpiryCondition::Earlier => 4,
    ExpiryCondition::SomeLater => 5,
    ExpiryCondition::SomeEarlier => 6,
});

impl ExpiryCondition {
    /// Whether a key that expires at `current` may expire at `next` instead. `None` is never.
    pub fn holds(self, current: Option<UnixMillis>, next: Option<UnixMillis>) -> bool {
        let late = |at: Option<UnixMillis>| at.map_or((1, 0), |at| (0, at.0));
        let (later, earlier) = (late(next) > late(current), late(next) < late(current));
        match self {
            ExpiryCondition::Always => true,
            ExpiryCondition::Never => current.is_none(),
            ExpiryCondition::Some => current.is_some(),
            ExpiryCondition::Later => later,
            ExpiryCondition::Earlier => earlier,
            ExpiryCondition::SomeLater => current.is_some() && later,
            ExpiryCondition::SomeEarlier => current.is_some() && earlier,
        }
    }
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, key: &[u8]) {
    out.push(tag);
    codec::put_bytes(out, key);
}

/// Appends an expiry: 0 for never, otherwise the time plus one.
pub(crate) fn put_expiry(out: &mut Vec<u8>, at: Option<UnixMillis>) {
    codec::put_varint(out, at.map_or(0, |at| at.0.saturating_add(1)));
}

/// Reads what [`put_expiry`] wrote.
pub(crate) fn expiry(decoder: &mut Decoder<'_>) -> Result<Option<UnixMillis>, DecodeError> {
    Ok(decoder.varint()?.checked_sub(1).map(UnixMillis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_later_than_any_time() {
        let (now, soon) = (Some(UnixMillis(5)), Some(UnixMillis(6)));
        for (condition, holds) in [
            (ExpiryCondition::Always, [true, true, true, true]),
            (ExpiryCondition::Never, [true, true, false, false]),
            (ExpiryCondition::Some, [false, false, true, true]),
            (ExpiryCondition::Later, [false, false, true, false]),
            (ExpiryCondition::Earlier, [true, false, false, false]),
            (ExpiryCondition::SomeLater, [false, false, true, false]),
            (ExpiryCondition::SomeEarlier, [false, false, false, false]),
        ] {
            let found = [(None, soon), (None, None), (now, soon), (now, now)]
                .map(|(from, to)| condition.holds(from, to));
            assert_eq!(found, holds, "{condition:?}");
        }
        assert!(ExpiryCondition::SomeEarlier.holds(soon, now));
    }
}
