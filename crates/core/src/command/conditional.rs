//! Transactions with two branches: comparisons decide which of two sequences of operations is
//! applied, as one command.
//!
//! Owns their limits and layout, and the rule that all their keys belong to one slot. So a
//! transaction that is accepted once is never refused because slots have moved.

use alloc::vec::Vec;
use bytes::Bytes;

use super::{Operations, ShardRefusal, validate_key, validate_value};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::slots::slot_of;
use crate::types::{UnixMillis, Version};

/// Applies `then` if all comparisons hold, else `otherwise`, atomically and in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionalTransaction {
    /// At most [`limits::BRANCH_OPERATIONS_MAX`]. Without any, `then` is applied.
    pub comparisons: Vec<Comparison>,
    /// At most [`limits::BRANCH_OPERATIONS_MAX`] operations; there may be none.
    pub then: Operations,
    /// At most [`limits::BRANCH_OPERATIONS_MAX`] operations; there may be none.
    pub otherwise: Operations,
}

/// A condition on the state of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// It need not exist.
    pub key: Bytes,
    /// The state in which the comparison holds.
    pub expected: ExpectedState,
}

/// The state of a key that a comparison expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedState {
    /// The key has this version; [`Version::ABSENT`]: it does not exist.
    Version(Version),
    /// The key exists, with any version.
    Exists,
    /// The key holds exactly these bytes.
    Value(Bytes),
}

const TAG_VERSION: u8 = 1;
const TAG_EXISTS: u8 = 2;
const TAG_VALUE: u8 = 3;

impl ConditionalTransaction {
    /// All keys of comparisons and of both branches.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let compared = self.comparisons.iter().map(|comparison| &comparison.key[..]);
        let branches = [&self.then, &self.otherwise].into_iter();
        compared.chain(branches.flat_map(|branch| branch.iter().map(|operation| operation.key())))
    }

    /// The branch that is applied if the comparisons hold, or if they do not.
    pub fn branch(&self, succeeded: bool) -> &Operations {
        if succeeded { &self.then } else { &self.otherwise }
    }

    /// Number of operations of the longer branch, but at least one.
    pub fn operations_max(&self) -> usize {
        self.then.len().max(self.otherwise.len()).max(1)
    }

    /// Bytes of keys, values and operations.
    pub fn encoded_bytes(&self) -> usize {
        let compared: usize = self.comparisons.iter().map(Comparison::encoded_bytes).sum();
        compared + self.then.encoded_bytes() + self.otherwise.encoded_bytes()
    }

    /// Whether the shard's leader must fill in the time at which it proposes the transaction.
    pub(super) fn needs_clock(&self) -> bool {
        self.then.needs_clock() || self.otherwise.needs_clock()
    }

    /// The transaction as the log holds it, proposed at `now`; see [`Operations::at`].
    pub(super) fn at(&self, now: UnixMillis) -> ConditionalTransaction {
        ConditionalTransaction {
            comparisons: self.comparisons.clone(),
            then: self.then.at(now),
            otherwise: self.otherwise.at(now),
        }
    }

    /// Checks the limits, and that all keys belong to one slot.
    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        let longest = self.comparisons.len().max(self.operations_max());
        if longest > limits::BRANCH_OPERATIONS_MAX {
            return Err(ShardRefusal::invalid(
                "a transaction has more than 1024 comparisons, or more than 1024 operations in a branch",
            ));
        }
        if self.encoded_bytes() > limits::TRANSACTION_BYTES_MAX {
            return Err(ShardRefusal::invalid("the parts of one transaction are longer than 8 MiB together"));
        }
        for Comparison { key, expected } in &self.comparisons {
            validate_key(key)?;
            if let ExpectedState::Value(value) = expected {
                validate_value(value)?;
            }
        }
        for operation in self.then.iter().chain(self.otherwise.iter()) {
            operation.validate()?;
        }
        let mut keys = self.keys();
        let Some(first) = keys.next() else {
            return Err(ShardRefusal::invalid("a transaction without comparisons and operations"));
        };
        let slot = slot_of(first);
        if keys.all(|key| slot_of(key) == slot) { Ok(()) } else { Err(ShardRefusal::CrossShard) }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.comparisons.len() as u64);
        self.comparisons.iter().for_each(|comparison| comparison.encode(out));
        self.then.encode(out);
        self.otherwise.encode(out);
    }

    pub(super) fn decode(
        decoder: &mut Decoder<'_>,
        owner: &Bytes,
    ) -> Result<ConditionalTransaction, DecodeError> {
        let comparisons = decode_comparisons(decoder, owner)?;
        let then = Operations::decode(decoder, owner)?;
        Ok(ConditionalTransaction { comparisons, then, otherwise: Operations::decode(decoder, owner)? })
    }
}

fn decode_comparisons(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Vec<Comparison>, DecodeError> {
    let count = decoder.bounded(limits::BRANCH_OPERATIONS_MAX as u64, "number of comparisons")?;
    (0..count).map(|_| Comparison::decode(decoder, owner)).collect()
}

impl Comparison {
    fn encoded_bytes(&self) -> usize {
        let value_bytes = match &self.expected {
            ExpectedState::Value(value) => codec::length_prefixed_bytes(value),
            ExpectedState::Version(version) => codec::varint_bytes(version.0),
            ExpectedState::Exists => 0,
        };
        1 + codec::length_prefixed_bytes(&self.key) + value_bytes
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let tag = match self.expected {
            ExpectedState::Version(_) => TAG_VERSION,
            ExpectedState::Exists => TAG_EXISTS,
            ExpectedState::Value(_) => TAG_VALUE,
        };
        out.push(tag);
        codec::put_bytes(out, &self.key);
        match &self.expected {
            ExpectedState::Version(version) => codec::put_varint(out, version.0),
            ExpectedState::Exists => {}
            ExpectedState::Value(value) => codec::put_bytes(out, value),
        }
    }

    fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Comparison, DecodeError> {
        let tag = decoder.u8()?;
        let key = decoder.shared(owner)?;
        let expected = match tag {
            TAG_VERSION => ExpectedState::Version(Version(decoder.varint()?)),
            TAG_EXISTS => ExpectedState::Exists,
            TAG_VALUE => ExpectedState::Value(decoder.shared(owner)?),
            _ => return Err(DecodeError::UnknownTag("comparison")),
        };
        Ok(Comparison { key, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use crate::command::{Condition, Expiry, Operation, Set, SetCondition, Write};
    use crate::version::ClusterVersion;
    use alloc::boxed::Box;
    use alloc::vec;

    fn comparison(key: &'static [u8], expected: ExpectedState) -> Comparison {
        Comparison { key: Bytes::from_static(key), expected }
    }

    fn transaction() -> ConditionalTransaction {
        let (key, value) = (&b"{t}k"[..], &b"v"[..]);
        let condition = SetCondition::Version(Condition::Always);
        let set = Set { key, value, condition, expiry: Expiry::After(300), previous: false };
        ConditionalTransaction {
            comparisons: vec![
                comparison(b"{t}a", ExpectedState::Version(Version(300))),
                comparison(b"{t}b", ExpectedState::Exists),
                comparison(b"t", ExpectedState::Value(Bytes::from_static(b"\xff"))),
            ],
            then: Operations::of(&[Operation::Set(set), Operation::Get { key }]),
            otherwise: Operations::of(&[Operation::Delete { key, condition: Condition::Always }]),
        }
    }

    fn write(transaction: ConditionalTransaction) -> Write {
        Write::Conditional(Box::new(transaction))
    }

    #[test]
    fn transactions_round_trip() {
        assert_round_trip(write(transaction()));
        let none = Operations::default();
        assert_round_trip(write(ConditionalTransaction { comparisons: vec![], then: none, ..transaction() }));
        assert_eq!(write(transaction()).needed_version(), ClusterVersion::WITH_TRANSACTIONS);
    }

    #[test]
    fn times_to_live_in_both_branches_end_by_the_leaders_clock() {
        let relative = write(transaction());
        assert!(relative.needs_clock());
        let Write::Conditional(absolute) = relative.at(UnixMillis(1_000)) else { panic!("another write") };
        let Some(Operation::Set(set)) = absolute.then.iter().next() else { panic!("another operation") };
        assert_eq!(set.expiry, Expiry::At(UnixMillis(1_300)));
        let ConditionalTransaction { then, otherwise, .. } = transaction();
        let swapped = ConditionalTransaction { then: otherwise, otherwise: then, ..transaction() };
        assert!(write(swapped).needs_clock());
    }

    #[test]
    fn limits_hold_for_every_part() {
        let validate = |change: &dyn Fn(&mut ConditionalTransaction)| {
            let mut transaction = transaction();
            change(&mut transaction);
            write(transaction).validate()
        };
        let puts = |count, bytes: usize| {
            let value = vec![0; bytes];
            let put = Operation::Put { key: b"{t}k", value: &value, condition: Condition::Always };
            Operations::of(&vec![put; count])
        };
        let max = limits::BRANCH_OPERATIONS_MAX;
        assert_eq!(validate(&|_| ()), Ok(()));
        assert_eq!(validate(&|it| it.otherwise = Operations::default()), Ok(()));
        assert_eq!(validate(&|it| it.otherwise = puts(max, 1)), Ok(()));
        assert_eq!(validate(&|it| it.then = puts(1, limits::VALUE_BYTES_MAX)), Ok(()));
        let invalid: [&dyn Fn(&mut ConditionalTransaction); 8] = [
            &|it| it.comparisons = vec![it.comparisons[0].clone(); max + 1],
            &|it| it.then = puts(max + 1, 1),
            &|it| it.otherwise = puts(max + 1, 1),
            &|it| it.comparisons[0].key = Bytes::new(),
            &|it| {
                let value = vec![0; limits::VALUE_BYTES_MAX + 1];
                it.comparisons[0].expected = ExpectedState::Value(value.into());
            },
            &|it| it.otherwise = puts(1, limits::VALUE_BYTES_MAX + 1),
            &|it| (it.then, it.otherwise) = (puts(4, 1 << 20), puts(4, 1 << 20)),
            &|it| {
                *it = ConditionalTransaction {
                    comparisons: vec![],
                    then: Operations::default(),
                    otherwise: Operations::default(),
                }
            },
        ];
        for (number, change) in invalid.iter().enumerate() {
            let refused = validate(change);
            assert!(matches!(refused, Err(ShardRefusal::Invalid(_))), "{number}: {refused:?}");
        }
        let other = Operations::of(&[Operation::Get { key: b"other" }]);
        let crossing: [&dyn Fn(&mut ConditionalTransaction); 3] = [
            &|it| it.comparisons[2].key = Bytes::from_static(b"other"),
            &|it| it.then = other.clone(),
            &|it| it.otherwise = other.clone(),
        ];
        for change in crossing {
            assert_eq!(validate(change), Err(ShardRefusal::CrossShard));
        }
    }
}
