//! Replies to operations, in their order.
//!
//! Owns the replies to an [`Operation`](super::Operation) and their layout. Like the operations,
//! the replies stay encoded from the state machine to the protocol, including the way between
//! nodes.

use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;

use super::operation::{expiry, put_expiry};
use crate::codec::{self, DecodeError, Decoder, codes};
use crate::decimal::Decimal;
use crate::limits;
use crate::types::{UnixMillis, Version};

/// Reply to one operation. It borrows from [`OperationReplies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationReply<'a> {
    /// Answer to `Get`, if the key exists.
    Value {
        /// The version that the last write of the key assigned.
        version: Version,
        /// When the key expires; `None`: never.
        expires: Option<UnixMillis>,
        /// The bytes as they were stored.
        value: &'a [u8],
    },
    /// Answer to `Describe`, if the key exists: everything but the value.
    Described {
        /// The version that the last write of the key assigned.
        version: Version,
        /// When the key expires; `None`: never.
        expires: Option<UnixMillis>,
        /// Length of its value in bytes.
        value_bytes: u64,
    },
    /// The key does not exist; nothing changed.
    Absent,
    /// The key was stored, or its expiry was changed.
    Written {
        /// The new version of the key.
        version: Version,
        /// Whether the key did not exist before.
        created: bool,
    },
    /// Answer to `Delete`: the key is removed.
    Deleted {
        /// The revision of the shard at which the key ceased to exist.
        version: Version,
    },
    /// The condition did not hold; nothing changed.
    ConditionFailed {
        /// The key's version, [`Version::ABSENT`] if there is no such key.
        current: Version,
    },
    /// Reply to a set that requested the previous value.
    Replaced {
        /// The new version of the key; `None` if the condition did not hold and nothing changed.
        version: Option<Version>,
        /// The previous value, if the key existed.
        previous: Option<&'a [u8]>,
    },
    /// The key was removed, and this is its value.
    Taken {
        /// The revision of the shard at which the key ceased to exist.
        version: Version,
        /// The bytes that the key held before the removal.
        value: &'a [u8],
    },
    /// Answer to `Add`: the sum is stored.
    Number {
        /// The new version of the key.
        version: Version,
        /// The sum, as it was stored.
        value: i64,
    },
    /// Answer to `AddDecimal`: the sum is stored.
    Decimal {
        /// The new version of the key.
        version: Version,
        /// The sum, as it was stored.
        value: Decimal,
    },
    /// Answer to `Append` and `SetRange`: the value is stored.
    Length {
        /// The new version of the key.
        version: Version,
        /// New length of the value in bytes.
        value_bytes: u64,
    },
    /// Reply to `Exchange` and `CompareExchange`.
    Exchanged(Exchange),
    /// The current state does not allow the operation; nothing changed.
    Rejected(Rejection),
    /// An earlier operation of the same command skipped this one; nothing changed.
    Skipped,
}

impl OperationReply<'_> {
    /// Whether the operation has changed the key.
    pub fn has_changed(&self) -> bool {
        match self {
            OperationReply::Written { .. }
            | OperationReply::Deleted { .. }
            | OperationReply::Taken { .. }
            | OperationReply::Number { .. }
            | OperationReply::Decimal { .. }
            | OperationReply::Length { .. } => true,
            OperationReply::Replaced { version, previous: _ } => version.is_some(),
            OperationReply::Exchanged(exchange) => exchange.swapped,
            OperationReply::Value { .. }
            | OperationReply::Described { .. }
            | OperationReply::Absent
            | OperationReply::Skipped
            | OperationReply::ConditionFailed { .. }
            | OperationReply::Rejected(_) => false,
        }
    }
}

/// Outcome of an exchange on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Whether the new number was stored.
    pub swapped: bool,
    /// The number before the exchange; 0 if the register did not exist.
    pub old: i64,
    /// The version of the register now; [`Version::ABSENT`] if it does not exist.
    pub version: Version,
}

/// Why the state does not allow an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The key does not hold a decimal number of 64 bits.
    #[error("value is not an integer or out of range")]
    NotANumber,
    /// The result would not fit into 64 bits.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// See [`limits::VALUE_BYTES_MAX`].
    #[error("the value would be longer than 1 MiB")]
    ValueTooLong,
    /// The value was left out because the replies of the command are already too long; see
    /// [`limits::REPLIES_BYTES_CLOSE`].
    #[error("the values read by one command are longer than 8 MiB together")]
    RepliesTooLong,
    /// The key does not hold a [`Decimal`].
    #[error("value is not a decimal number with a magnitude below 10^21")]
    NotADecimal,
    /// The key is a lock that is held. Only its holder changes it, by a
    /// [`LockWrite`](super::LockWrite).
    #[error("the key is a lock that is held; only changes of the lock change it")]
    LockHeld,
    /// There is no such lease.
    #[error("there is no such lease")]
    NoLease,
    /// See [`limits::LEASE_KEYS_MAX`].
    #[error("the lease has 1000 keys and locks already")]
    LeaseFull,
    /// The key is bound to a lease, which decides when it ends, so it can have no expiry.
    #[error("the key is bound to a lease, so it can have no expiry")]
    KeyBound,
    /// The sum would not be a [`Decimal`].
    #[error("the sum would have a magnitude of 10^21 or more")]
    DecimalOverflow,
}

/// Replies in the order of their operations.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OperationReplies {
    content: RepliesContent,
    count: usize,
    /// See [`OperationReplies::complete`].
    complete: usize,
}

/// How replies are held in memory. The same replies are always held in the same way.
#[derive(Clone, PartialEq, Eq)]
enum RepliesContent {
    /// The only reply is [`OperationReply::Written`]. Most writes are answered so, and it takes no
    /// allocation.
    OnlyWritten(Written),
    /// Any other replies, encoded.
    Encoded(Bytes),
}

/// The fields of [`OperationReply::Written`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    version: Version,
    created: bool,
}

/// Builder of [`OperationReplies`].
#[derive(Debug)]
pub struct OperationRepliesBuilder {
    /// The first reply, as long as it is the only one and needs no encoding.
    only: Option<Written>,
    bytes: Vec<u8>,
    count: usize,
    /// The position of the first reply that was left out.
    left_out: Option<usize>,
    bytes_max: usize,
}

/// Reads replies one after the other and keeps its position.
#[derive(Clone, Debug, Default)]
pub struct OperationRepliesReader {
    replies: OperationReplies,
    /// Bytes of the encoded replies read so far.
    offset: usize,
    read: usize,
}

const TAG_VALUE: u8 = 1;
const TAG_DESCRIBED: u8 = 2;
const TAG_ABSENT: u8 = 3;
const TAG_WRITTEN: u8 = 4;
const TAG_CREATED: u8 = 5;
const TAG_DELETED: u8 = 6;
const TAG_CONDITION_FAILED: u8 = 7;
const TAG_REPLACED: u8 = 8;
const TAG_TAKEN: u8 = 9;
const TAG_NUMBER: u8 = 10;
const TAG_LENGTH: u8 = 11;
const TAG_EXCHANGED: u8 = 12;
const TAG_REJECTED: u8 = 13;
const TAG_DECIMAL: u8 = 14;
const TAG_SKIPPED: u8 = 15;

impl<'a> OperationReply<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        let tagged = |out: &mut Vec<u8>, tag: u8, version: Version| {
            out.push(tag);
            codec::put_varint(out, version.0);
        };
        match *self {
            OperationReply::Value { version, expires, value } => {
                tagged(out, TAG_VALUE, version);
                put_expiry(out, expires);
                codec::put_bytes(out, value);
            }
            OperationReply::Described { version, expires, value_bytes } => {
                tagged(out, TAG_DESCRIBED, version);
                put_expiry(out, expires);
                codec::put_varint(out, value_bytes);
            }
            OperationReply::Absent => out.push(TAG_ABSENT),
            OperationReply::Written { version, created } => {
                tagged(out, if created { TAG_CREATED } else { TAG_WRITTEN }, version);
            }
            OperationReply::Deleted { version } => tagged(out, TAG_DELETED, version),
            OperationReply::ConditionFailed { current } => tagged(out, TAG_CONDITION_FAILED, current),
            OperationReply::Replaced { version, previous } => {
                tagged(out, TAG_REPLACED, version.unwrap_or(Version::ABSENT));
                out.push(u8::from(previous.is_some()));
                previous.iter().for_each(|value| codec::put_bytes(out, value));
            }
            OperationReply::Taken { version, value } => {
                tagged(out, TAG_TAKEN, version);
                codec::put_bytes(out, value);
            }
            OperationReply::Number { version, value } => {
                tagged(out, TAG_NUMBER, version);
                codec::put_signed(out, value);
            }
            OperationReply::Decimal { version, value } => {
                tagged(out, TAG_DECIMAL, version);
                value.encode(out);
            }
            OperationReply::Length { version, value_bytes } => {
                tagged(out, TAG_LENGTH, version);
                codec::put_varint(out, value_bytes);
            }
            OperationReply::Exchanged(exchange) => {
                out.push(TAG_EXCHANGED);
                exchange.encode(out);
            }
            OperationReply::Rejected(rejection) => {
                out.push(TAG_REJECTED);
                out.push(rejection.code());
            }
            OperationReply::Skipped => out.push(TAG_SKIPPED),
        }
    }

    fn decode(decoder: &mut Decoder<'a>) -> Result<OperationReply<'a>, DecodeError> {
        let tag = decoder.u8()?;
        let version = match tag {
            TAG_ABSENT => return Ok(OperationReply::Absent),
            TAG_SKIPPED => return Ok(OperationReply::Skipped),
            TAG_EXCHANGED => return Exchange::decode(decoder).map(OperationReply::Exchanged),
            TAG_REJECTED => return Rejection::from_code(decoder.u8()?).map(OperationReply::Rejected),
            _ => Version(decoder.varint()?),
        };
        Ok(match tag {
            TAG_VALUE => {
                let expires = expiry(decoder)?;
                OperationReply::Value { version, expires, value: decoder.bytes()? }
            }
            TAG_DESCRIBED => {
                let expires = expiry(decoder)?;
                OperationReply::Described { version, expires, value_bytes: decoder.varint()? }
            }
            TAG_WRITTEN => OperationReply::Written { version, created: false },
            TAG_CREATED => OperationReply::Written { version, created: true },
            TAG_DELETED => OperationReply::Deleted { version },
            TAG_CONDITION_FAILED => OperationReply::ConditionFailed { current: version },
            TAG_REPLACED => {
                let previous = if decoder.bool()? { Some(decoder.bytes()?) } else { None };
                let version = (version != Version::ABSENT).then_some(version);
                OperationReply::Replaced { version, previous }
            }
            TAG_TAKEN => OperationReply::Taken { version, value: decoder.bytes()? },
            TAG_NUMBER => OperationReply::Number { version, value: decoder.signed()? },
            TAG_DECIMAL => OperationReply::Decimal { version, value: Decimal::decode(decoder)? },
            TAG_LENGTH => OperationReply::Length { version, value_bytes: decoder.varint()? },
            _ => return Err(DecodeError::UnknownTag("reply to an operation")),
        })
    }
}

impl Exchange {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.swapped));
        codec::put_signed(out, self.old);
        codec::put_varint(out, self.version.0);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Exchange, DecodeError> {
        let swapped = decoder.bool()?;
        let old = decoder.signed()?;
        Ok(Exchange { swapped, old, version: Version(decoder.varint()?) })
    }
}

codes!(Rejection as "rejection" {
    Rejection::NotANumber => 1,
    Rejection::Overflow => 2,
    Rejection::ValueTooLong => 3,
    Rejection::RepliesTooLong => 4,
    Rejection::NotADecimal => 5,
    Rejection::DecimalOverflow => 6,
    Rejection::LockHeld => 20,
    Rejection::NoLease => 21,
    Rejection::LeaseFull => 22,
    Rejection::KeyBound => 23,
});

/// Bytes of most replies without a value.
const REPLY_BYTES: usize = 16;

/// Most replies for which a builder reserves memory in advance: those of a long pipeline.
const REPLIES_RESERVED_MAX: usize = 1_024;

/// What stands in place of a value that was left out.
const LEFT_OUT: OperationReply<'static> = OperationReply::Rejected(Rejection::RepliesTooLong);

impl OperationReplies {
    /// Encodes `replies`.
    pub fn of(replies: &[OperationReply<'_>]) -> OperationReplies {
        let mut builder = OperationRepliesBuilder::default();
        replies.iter().for_each(|reply| builder.push(reply));
        builder.finish()
    }

    /// Number of replies.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no replies.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of replies before the first whose value was left out, all of them if none was.
    pub fn complete(&self) -> usize {
        self.complete
    }

    /// Bytes that they take when encoded.
    pub fn encoded_bytes(&self) -> usize {
        match &self.content {
            RepliesContent::OnlyWritten(written) => written.encoded_bytes(),
            RepliesContent::Encoded(bytes) => bytes.len(),
        }
    }

    /// The replies, in order.
    pub fn iter(&self) -> impl Iterator<Item = OperationReply<'_>> {
        let (only, bytes) = match &self.content {
            RepliesContent::OnlyWritten(written) => (Some(written.reply()), &[][..]),
            RepliesContent::Encoded(bytes) => (None, &bytes[..]),
        };
        let encoded_count = if only.is_some() { 0 } else { self.count };
        let mut decoder = Decoder::new(bytes);
        let encoded = (0..encoded_count).map(move |_| {
            OperationReply::decode(&mut decoder)
                .expect("invariant: replies were checked when they were taken")
        });
        only.into_iter().chain(encoded)
    }

    /// The reply, if there is exactly one.
    pub fn only(&self) -> Option<OperationReply<'_>> {
        if self.count == 1 { self.iter().next() } else { None }
    }

    /// Converts the replies to a reader.
    pub fn into_reader(self) -> OperationRepliesReader {
        OperationRepliesReader { replies: self, offset: 0, read: 0 }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.count as u64);
        match &self.content {
            RepliesContent::OnlyWritten(written) => {
                codec::put_varint(out, written.encoded_bytes() as u64);
                written.reply().encode(out);
            }
            RepliesContent::Encoded(bytes) => codec::put_bytes(out, bytes),
        }
    }

    /// Reads replies and checks that each of them decodes.
    pub(crate) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<OperationReplies, DecodeError> {
        let (mut seen, mut left_out, mut last_written) = (0, None, None);
        let (count, bytes) = decoder.packed(owner, "number of replies", |item| {
            let reply = OperationReply::decode(item)?;
            if reply == LEFT_OUT {
                left_out = left_out.or(Some(seen));
            }
            last_written = Written::of(&reply);
            seen += 1;
            Ok(())
        })?;
        let content = match last_written {
            Some(written) if count == 1 => RepliesContent::OnlyWritten(written),
            _ => RepliesContent::Encoded(bytes),
        };
        Ok(OperationReplies { content, count, complete: left_out.unwrap_or(count) })
    }
}

impl fmt::Debug for OperationReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Default for RepliesContent {
    fn default() -> RepliesContent {
        RepliesContent::Encoded(Bytes::new())
    }
}

impl Written {
    fn of(reply: &OperationReply<'_>) -> Option<Written> {
        match *reply {
            OperationReply::Written { version, created } => Some(Written { version, created }),
            _ => None,
        }
    }

    fn reply(self) -> OperationReply<'static> {
        let Written { version, created } = self;
        OperationReply::Written { version, created }
    }

    /// Bytes that [`OperationReply::encode`] appends: a tag and the version.
    fn encoded_bytes(self) -> usize {
        1 + codec::varint_bytes(self.version.0)
    }
}

impl Default for OperationRepliesBuilder {
    fn default() -> OperationRepliesBuilder {
        OperationRepliesBuilder::within(limits::REPLIES_BYTES_CLOSE)
    }
}

impl OperationRepliesBuilder {
    /// A builder of replies of at most `bytes_max` bytes, not counting the placeholders of values
    /// left out.
    pub fn within(bytes_max: usize) -> OperationRepliesBuilder {
        let bytes_max = bytes_max.min(limits::REPLIES_BYTES_CLOSE);
        OperationRepliesBuilder { only: None, bytes: Vec::new(), count: 0, left_out: None, bytes_max }
    }

    /// A builder with room for `count` replies without values, up to a limit: a transaction of 8
    /// MiB may hold millions of operations with replies of one byte. As
    /// [`OperationRepliesBuilder::within`] otherwise.
    pub fn for_replies(count: usize, bytes_max: usize) -> OperationRepliesBuilder {
        let reserved = if count > 1 { count.min(REPLIES_RESERVED_MAX) * REPLY_BYTES } else { 0 };
        let bytes = Vec::with_capacity(reserved);
        OperationRepliesBuilder { bytes, ..OperationRepliesBuilder::within(bytes_max) }
    }

    /// Appends a reply. A read value that does not fit is left out. A removed value is always kept,
    /// because the reply is its only remaining copy: the code that applies writes bounds those.
    pub fn push(&mut self, reply: &OperationReply<'_>) {
        if self.count == 0
            && let Some(written) = Written::of(reply)
        {
            (self.only, self.count) = (Some(written), 1);
            return;
        }
        if let Some(first) = self.only.take() {
            first.reply().encode(&mut self.bytes);
        }
        let reply = match reply {
            OperationReply::Value { value, .. } if self.bytes.len() + value.len() > self.bytes_max => {
                &LEFT_OUT
            }
            reply => reply,
        };
        if matches!(reply, OperationReply::Rejected(Rejection::RepliesTooLong)) {
            self.left_out = self.left_out.or(Some(self.count));
        }
        reply.encode(&mut self.bytes);
        self.count += 1;
    }

    /// Returns the replies.
    pub fn finish(self) -> OperationReplies {
        let complete = self.left_out.unwrap_or(self.count);
        let content = match self.only {
            Some(written) => RepliesContent::OnlyWritten(written),
            None => RepliesContent::Encoded(self.bytes.into()),
        };
        OperationReplies { content, count: self.count, complete }
    }
}

impl OperationRepliesReader {
    /// The next reply; `None` after the last.
    pub fn next_reply(&mut self) -> Option<OperationReply<'_>> {
        if self.read == self.replies.count {
            return None;
        }
        self.read += 1;
        let bytes = match &self.replies.content {
            RepliesContent::OnlyWritten(written) => {
                self.offset = written.encoded_bytes();
                return Some(written.reply());
            }
            RepliesContent::Encoded(bytes) => bytes,
        };
        let mut decoder = Decoder::new(&bytes[self.offset..]);
        let reply = OperationReply::decode(&mut decoder)
            .expect("invariant: replies were checked when they were taken");
        self.offset = bytes.len() - decoder.rest().len();
        Some(reply)
    }

    /// Number of replies left.
    pub fn left(&self) -> usize {
        self.replies.count - self.read
    }

    /// Bytes of the replies left.
    pub fn bytes_left(&self) -> usize {
        self.replies.encoded_bytes() - self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn all() -> Vec<OperationReply<'static>> {
        let (version, expires) = (Version(1 << 40), Some(UnixMillis(0)));
        let mut replies = vec![
            OperationReply::Value { version, expires, value: b"\xff" },
            OperationReply::Value { version, expires: None, value: b"" },
            OperationReply::Described { version, expires, value_bytes: 9 },
            OperationReply::Absent,
            OperationReply::Written { version, created: true },
            OperationReply::Written { version, created: false },
            OperationReply::Deleted { version },
            OperationReply::ConditionFailed { current: Version::ABSENT },
            OperationReply::Replaced { version: None, previous: Some(b"") },
            OperationReply::Replaced { version: Some(version), previous: None },
            OperationReply::Taken { version, value: b"v" },
            OperationReply::Number { version, value: i64::MIN },
            OperationReply::Decimal { version, value: Decimal::parse(b"-0.1").expect("a number") },
            OperationReply::Skipped,
            OperationReply::Length { version, value_bytes: 1 << 20 },
            OperationReply::Exchanged(Exchange { swapped: true, old: -1, version }),
        ];
        replies.extend(Rejection::CODES.iter().map(|(rejection, _)| OperationReply::Rejected(*rejection)));
        replies
    }

    #[test]
    fn replies_round_trip_and_are_read_one_by_one() {
        let mut builder = OperationRepliesBuilder::default();
        all().iter().for_each(|reply| builder.push(reply));
        let replies = builder.finish();
        let mut out = vec![];
        replies.encode(&mut out);
        let bytes = Bytes::from(out);
        assert_eq!(OperationReplies::decode(&mut Decoder::new(&bytes), &bytes), Ok(replies.clone()));
        for cut in 0..bytes.len() {
            assert!(OperationReplies::decode(&mut Decoder::new(&bytes[..cut]), &bytes).is_err(), "{cut}");
        }
        let mut reader = replies.into_reader();
        for (read, expected) in all().into_iter().enumerate() {
            assert_eq!(reader.left(), all().len() - read);
            assert_eq!(reader.next_reply(), Some(expected));
        }
        assert_eq!(reader.next_reply(), None);
    }

    #[test]
    fn values_beyond_the_limit_are_left_out_and_nothing_else() {
        let value = vec![7; limits::VALUE_BYTES_MAX];
        let mut builder = OperationRepliesBuilder::default();
        let fits = limits::REPLIES_BYTES_CLOSE / (limits::VALUE_BYTES_MAX + 16);
        for _ in 0..=fits {
            builder.push(&OperationReply::Value { version: Version(1), expires: None, value: &value });
        }
        builder.push(&OperationReply::Absent);
        let replies = builder.finish();
        assert_eq!(replies.complete(), fits);
        let left_out = OperationReply::Rejected(Rejection::RepliesTooLong);
        let expected = (0..fits + 2).map(|place| (place == fits, place == fits + 1));
        for (reply, (is_left_out, is_last)) in replies.iter().zip(expected) {
            assert_eq!((reply == left_out, reply == OperationReply::Absent), (is_left_out, is_last));
        }
    }

    #[test]
    fn an_asker_may_have_room_for_less() {
        let value = |value| OperationReply::Value { version: Version(1), expires: None, value };
        let mut builder = OperationRepliesBuilder::within(100);
        let large = [7; 101];
        for reply in [value(&large), value(&large[..50]), value(&large[..90]), OperationReply::Absent] {
            builder.push(&reply);
        }
        let left_out = OperationReply::Rejected(Rejection::RepliesTooLong);
        let expected = [left_out, value(&large[..50]), left_out, OperationReply::Absent];
        let replies = builder.finish();
        assert_eq!((replies.len(), replies.complete()), (4, 0));
        assert!(replies.iter().eq(expected));
        let mut encoded = Vec::new();
        replies.encode(&mut encoded);
        let encoded = Bytes::from(encoded);
        assert_eq!(OperationReplies::decode(&mut Decoder::new(&encoded), &encoded), Ok(replies));
    }
}
