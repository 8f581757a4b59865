//! Sequences of operations as one unit.
//!
//! Operations stay encoded from the protocol that receives them to the state machine that applies
//! them. A pipeline of a thousand operations is one buffer that is copied as a whole, instead of a
//! thousand values that every layer builds and takes apart.
//!
//! Invariant: the bytes in an [`Operations`] decode. Code that receives bytes from outside checks
//! them once.

use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;

use super::Operation;
use crate::codec::{self, DecodeError, Decoder};
use crate::types::UnixMillis;
use crate::version::ClusterVersion;

/// Encoded operations, in order. A command holds at least one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Operations {
    bytes: Bytes,
    count: usize,
    needs_clock: bool,
    needed_version: ClusterVersion,
}

/// Builder of [`Operations`].
#[derive(Debug, Default)]
pub struct OperationsBuilder {
    bytes: Vec<u8>,
    count: usize,
    needs_clock: bool,
    needed_version: ClusterVersion,
}

impl Operations {
    /// Encodes `operations`.
    pub fn of(operations: &[Operation<'_>]) -> Operations {
        let encoded_bytes_estimate = operations.iter().map(Operation::encoded_bytes_estimate).sum();
        let mut builder = OperationsBuilder {
            bytes: Vec::with_capacity(encoded_bytes_estimate),
            ..OperationsBuilder::default()
        };
        operations.iter().for_each(|operation| builder.push(operation));
        builder.finish()
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that they take in the log.
    pub fn encoded_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The operations, in order.
    pub fn iter(&self) -> impl Iterator<Item = Operation<'_>> {
        let mut decoder = Decoder::new(&self.bytes);
        (0..self.count).map(move |_| {
            Operation::decode(&mut decoder).expect("invariant: operations were checked when they were taken")
        })
    }

    /// The operation, if there is exactly one.
    pub fn only(&self) -> Option<Operation<'_>> {
        if self.count == 1 { self.iter().next() } else { None }
    }

    /// Whether the shard's leader must fill in the time at which it proposes them.
    pub fn needs_clock(&self) -> bool {
        self.needs_clock
    }

    /// The cluster version from which on the log may hold all of them. Not known, and the first
    /// one, for operations of a log entry.
    pub fn needed_version(&self) -> ClusterVersion {
        self.needed_version
    }

    /// The operations as the log holds them, proposed at `now` by the clock of the shard's leader.
    /// Relative expiries become absolute. Expiries that have passed become [`UnixMillis`] 0, which
    /// removes the key at once.
    pub fn at(&self, now: UnixMillis) -> Operations {
        let mut builder = OperationsBuilder::default();
        self.iter().for_each(|operation| builder.push(&operation.at(now)));
        Operations { needs_clock: false, ..builder.finish() }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.count as u64);
        codec::put_bytes(out, &self.bytes);
    }

    /// Reads operations of a log entry. They were checked before they entered the log; if one of
    /// them does not decode when it is applied, the node stops.
    pub(crate) fn decode_logged(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Operations, DecodeError> {
        let count = decoder.varint()? as usize;
        let (bytes, needed_version) = (decoder.shared(owner)?, ClusterVersion::FIRST);
        Ok(Operations { count, bytes, needs_clock: false, needed_version })
    }

    /// Reads operations and checks that each of them decodes.
    pub(crate) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Operations, DecodeError> {
        let (mut needs_clock, mut needed_version) = (false, ClusterVersion::FIRST);
        let (count, bytes) = decoder.packed(owner, "number of operations", |item| {
            let operation = Operation::decode(item)?;
            needs_clock |= operation.needs_clock();
            needed_version = needed_version.max(operation.needed_version());
            Ok(())
        })?;
        Ok(Operations { count, bytes, needs_clock, needed_version })
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl OperationsBuilder {
    /// The operations so far, in order.
    pub fn iter(&self) -> impl Iterator<Item = Operation<'_>> {
        let mut decoder = Decoder::new(&self.bytes);
        (0..self.count)
            .map(move |_| Operation::decode(&mut decoder).expect("invariant: operations were encoded here"))
    }

    /// Appends an operation.
    pub fn push(&mut self, operation: &Operation<'_>) {
        self.bytes.reserve(operation.encoded_bytes_estimate());
        operation.encode(&mut self.bytes);
        self.count += 1;
        self.needs_clock |= operation.needs_clock();
        self.needed_version = self.needed_version.max(operation.needed_version());
    }

    /// Number of operations so far.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no operations yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that they take so far.
    pub fn encoded_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the operations.
    pub fn finish(self) -> Operations {
        let OperationsBuilder { bytes, count, needs_clock, needed_version } = self;
        Operations { bytes: bytes.into(), count, needs_clock, needed_version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Condition, Expiry, ExpiryCondition, Set, SetCondition};
    use crate::decimal::Decimal;
    use crate::types::Version;
    use alloc::vec;

    fn all() -> Vec<Operation<'static>> {
        let key = &b"key\xff"[..];
        let set = Set {
            key,
            value: b"value",
            condition: SetCondition::Version(Condition::Version(Version(7))),
            expiry: Expiry::At(UnixMillis(u64::MAX - 1)),
            previous: true,
        };
        vec![
            Operation::Get { key },
            Operation::Describe { key },
            Operation::Put { key, value: b"", condition: Condition::Exists },
            Operation::Set(set),
            Operation::Set(Set { condition: SetCondition::Equals(b"a"), expiry: Expiry::Keep, ..set }),
            Operation::Set(Set { condition: SetCondition::Differs(b""), expiry: Expiry::Never, ..set }),
            Operation::Delete { key, condition: Condition::Always },
            Operation::PutBound { key, value: b"v", condition: Condition::Exists, lease: b"{t}:1f" },
            Operation::Take { key },
            Operation::Add { key, delta: i64::MIN },
            Operation::Append { key, suffix: b"s" },
            Operation::Expire { key, at: None, condition: ExpiryCondition::Some },
            Operation::Expire { key, at: Some(UnixMillis(0)), condition: ExpiryCondition::SomeEarlier },
            Operation::Set(Set {
                condition: SetCondition::Equals(b"a"),
                expiry: Expiry::After(1 << 40),
                ..set
            }),
            Operation::ExpireAfter { key, after_ms: 300, condition: ExpiryCondition::Later },
            Operation::Exchange { key, value: -1 },
            Operation::CompareExchange { key, expected: i64::MAX, new: 0 },
            Operation::SetRange { key, offset: 300, bytes: b"v" },
            Operation::AddDecimal { key, delta: Decimal::parse(b"-1.5").expect("a number") },
            Operation::DeleteIf { key, condition: SetCondition::HashEquals(u64::MAX) },
            Operation::DeleteIf { key, condition: SetCondition::HashDiffers(0) },
            Operation::SkipIfExists { key, count: 300 },
        ]
    }

    #[test]
    fn operations_round_trip_and_no_part_of_them_is_believed() {
        let operations = Operations::of(&all());
        assert_eq!(operations.iter().collect::<Vec<_>>(), all());
        let mut out = vec![];
        operations.encode(&mut out);
        let bytes = Bytes::from(out);
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(Operations::decode(&mut decoder, &bytes), Ok(operations));
        assert!(decoder.is_empty());
        for cut in 0..bytes.len() {
            assert!(Operations::decode(&mut Decoder::new(&bytes[..cut]), &bytes).is_err(), "{cut}");
        }
        let mut miscounted = bytes.to_vec();
        miscounted[0] += 1;
        let miscounted = Bytes::from(miscounted);
        assert!(Operations::decode(&mut Decoder::new(&miscounted), &miscounted).is_err());
    }

    #[test]
    #[should_panic(expected = "invariant: operations were checked")]
    fn operations_of_the_log_that_do_not_decode_stop_the_node() {
        let mut out = vec![];
        Operations::of(&all()).encode(&mut out);
        // The tag of the first operation, after the count and the length in bytes.
        let tag = out.len() - Operations::of(&all()).encoded_bytes();
        out[tag] = 0xff;
        let bytes = Bytes::from(out);
        assert!(Operations::decode(&mut Decoder::new(&bytes), &bytes).is_err());
        let logged = Operations::decode_logged(&mut Decoder::new(&bytes), &bytes).expect("not decoded yet");
        logged.iter().for_each(drop);
    }

    #[test]
    fn the_leader_makes_times_absolute_and_judges_which_have_passed() {
        let key = &b"k"[..];
        let condition = ExpiryCondition::Always;
        let set = |expiry| {
            let condition = SetCondition::Version(Condition::Always);
            Operation::Set(Set { key, value: b"v", condition, expiry, previous: false })
        };
        let expire = |at: u64| Operation::Expire { key, at: Some(UnixMillis(at)), condition };
        let now = UnixMillis(1_000);
        for (asked, logged) in [
            (set(Expiry::After(500)), set(Expiry::At(UnixMillis(1_500)))),
            (set(Expiry::After(u64::MAX)), set(Expiry::At(UnixMillis(u64::MAX)))),
            (Operation::ExpireAfter { key, after_ms: 500, condition }, expire(1_500)),
            (set(Expiry::At(UnixMillis(1_001))), set(Expiry::At(UnixMillis(1_001)))),
            (set(Expiry::At(UnixMillis(1_000))), set(Expiry::At(UnixMillis(0)))),
            (expire(1_001), expire(1_001)),
            (expire(1_000), expire(0)),
        ] {
            let operations = Operations::of(&[asked]);
            assert!(operations.needs_clock(), "{asked:?}");
            assert_eq!(operations.at(now).iter().collect::<Vec<_>>(), [logged], "{asked:?}");
            assert!(!operations.at(now).needs_clock());
        }
        for asked in [set(Expiry::At(UnixMillis(0))), set(Expiry::Keep), expire(0), Operation::Get { key }] {
            assert!(!Operations::of(&[asked]).needs_clock(), "{asked:?}");
            assert!(Operations::of(&[asked]).at(now).iter().eq([asked]));
        }
    }
}
