//! Transactions with two branches: comparisons decide which of two sequences of operations is
//! applied, as one command.
//!
//! Owns their limits and layout, and the rule that all their keys belong to one slot. So a
//! transaction that is accepted once is never refused because slots have moved. Also owns the ids
//! of transactions, and the layout of the outcomes that shards keep for them.

use alloc::vec::Vec;
use bytes::Bytes;

use sha2::{Digest, Sha256};

use super::{OperationReplies, Operations, ShardRefusal, validate_key, validate_value};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::slots::{SLOTS, slot_of};
use crate::types::{UnixMillis, Version};
use crate::version::ClusterVersion;

/// Applies `then` if all comparisons hold, else `otherwise`, atomically and in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionalTransaction {
    /// At most [`limits::BRANCH_OPERATIONS_MAX`]. Without any, `then` is applied.
    pub comparisons: Vec<Comparison>,
    /// At most [`limits::BRANCH_OPERATIONS_MAX`] operations; there may be none.
    pub then: Operations,
    /// At most [`limits::BRANCH_OPERATIONS_MAX`] operations; there may be none.
    pub otherwise: Operations,
    /// Set by [`ConditionalTransaction::identified`].
    pub id: Option<TransactionId>,
}

/// Identifies a transaction among those of its slot, so that a repetition is answered with the
/// first outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionId {
    /// Chosen by the client, 1 to [`limits::TRANSACTION_ID_BYTES_MAX`] bytes.
    pub name: Bytes,
    /// SHA-256 of the transaction as it was requested, by which a repetition is told from another
    /// transaction with the same name.
    pub digest: [u8; 32],
    /// The time at which the shard's leader proposed it; 0 until then.
    pub proposed: UnixMillis,
}

/// The outcome of a transaction with an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptOutcome {
    /// The slot of all its keys.
    pub slot: u16,
    /// See [`TransactionId::name`].
    pub name: Bytes,
    /// See [`TransactionId::digest`].
    pub digest: [u8; 32],
    /// See [`TransactionId::proposed`].
    pub proposed: UnixMillis,
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// The replies to the operations of the branch that was applied.
    pub replies: OperationReplies,
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
    /// The key is a lock that is held now with this fence.
    Fence(Version),
}

/// Bytes of an outcome besides its id and its replies, in memory and encoded.
const OUTCOME_OVERHEAD_BYTES: usize = 128;

const TAG_VERSION: u8 = 1;
const TAG_EXISTS: u8 = 2;
const TAG_VALUE: u8 = 3;
const TAG_FENCE: u8 = 10;

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

    /// The transaction with an id.
    pub fn identified(self, name: Bytes) -> ConditionalTransaction {
        let mut encoded = Vec::new();
        self.encode_parts(&mut encoded);
        let digest = Sha256::digest(&encoded).into();
        let id = TransactionId { name, digest, proposed: UnixMillis(0) };
        ConditionalTransaction { id: Some(id), ..self }
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

    /// See [`Write::needed_version`](super::Write::needed_version).
    pub(super) fn needed_version(&self) -> ClusterVersion {
        let is_fenced =
            self.comparisons.iter().any(|comparison| matches!(comparison.expected, ExpectedState::Fence(_)));
        let least =
            if is_fenced { ClusterVersion::WITH_COORDINATION } else { ClusterVersion::WITH_TRANSACTIONS };
        least.max(self.then.needed_version()).max(self.otherwise.needed_version())
    }

    /// Whether the shard's leader must fill in the time at which it proposes the transaction.
    pub(super) fn needs_clock(&self) -> bool {
        self.id.is_some() || self.then.needs_clock() || self.otherwise.needs_clock()
    }

    /// The transaction as the log holds it, proposed at `now`; see [`Operations::at`].
    pub(super) fn at(&self, now: UnixMillis) -> ConditionalTransaction {
        ConditionalTransaction {
            comparisons: self.comparisons.clone(),
            then: self.then.at(now),
            otherwise: self.otherwise.at(now),
            id: self.id.clone().map(|id| TransactionId { proposed: now, ..id }),
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
        let length = self.id.as_ref().map(|id| id.name.len());
        if length.is_some_and(|length| !(1..=limits::TRANSACTION_ID_BYTES_MAX).contains(&length)) {
            return Err(ShardRefusal::invalid("the id of a transaction must have 1 to 64 bytes"));
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
        self.encode_parts(out);
        out.push(u8::from(self.id.is_some()));
        if let Some(TransactionId { name, digest, proposed }) = &self.id {
            codec::put_bytes(out, name);
            out.extend_from_slice(digest);
            codec::put_varint(out, proposed.0);
        }
    }

    /// Appends everything but the id.
    fn encode_parts(&self, out: &mut Vec<u8>) {
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
        let otherwise = Operations::decode(decoder, owner)?;
        let id = if decoder.bool()? { Some(TransactionId::decode(decoder, owner)?) } else { None };
        Ok(ConditionalTransaction { comparisons, then, otherwise, id })
    }
}

impl TransactionId {
    fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<TransactionId, DecodeError> {
        let name = decoder.shared(owner)?;
        let digest = digest(decoder)?;
        Ok(TransactionId { name, digest, proposed: UnixMillis(decoder.varint()?) })
    }
}

fn digest(decoder: &mut Decoder<'_>) -> Result<[u8; 32], DecodeError> {
    decoder.raw(32)?.try_into().map_err(|_| DecodeError::Truncated)
}

impl KeptOutcome {
    /// Bytes that count towards [`limits::OUTCOMES_BYTES_MAX`]: the same on every replica, so none
    /// that depend on the build.
    pub fn held_bytes(&self) -> usize {
        OUTCOME_OVERHEAD_BYTES + self.name.len() + self.replies.encoded_bytes()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.slot.into());
        codec::put_bytes(out, &self.name);
        out.extend_from_slice(&self.digest);
        codec::put_varint(out, self.proposed.0);
        out.push(u8::from(self.succeeded));
        let mut replies = Vec::with_capacity(self.replies.encoded_bytes() + 8);
        self.replies.encode(&mut replies);
        codec::put_bytes(out, &replies);
    }

    /// Reads an outcome. It shares no memory with the bytes that it is read from.
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<KeptOutcome, DecodeError> {
        let slot = decoder.bounded(u64::from(SLOTS) - 1, "slot")? as u16;
        let name = Bytes::copy_from_slice(decoder.bytes()?);
        let digest = digest(decoder)?;
        let proposed = UnixMillis(decoder.varint()?);
        let succeeded = decoder.bool()?;
        let owner = Bytes::copy_from_slice(decoder.bytes()?);
        let mut copy = Decoder::new(&owner);
        let replies = OperationReplies::decode(&mut copy, &owner)?;
        copy.finish()?;
        Ok(KeptOutcome { slot, name, digest, proposed, succeeded, replies })
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
            ExpectedState::Version(version) | ExpectedState::Fence(version) => codec::varint_bytes(version.0),
            ExpectedState::Exists => 0,
        };
        1 + codec::length_prefixed_bytes(&self.key) + value_bytes
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let tag = match self.expected {
            ExpectedState::Version(_) => TAG_VERSION,
            ExpectedState::Exists => TAG_EXISTS,
            ExpectedState::Value(_) => TAG_VALUE,
            ExpectedState::Fence(_) => TAG_FENCE,
        };
        out.push(tag);
        codec::put_bytes(out, &self.key);
        match &self.expected {
            ExpectedState::Version(version) | ExpectedState::Fence(version) => {
                codec::put_varint(out, version.0);
            }
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
            TAG_FENCE => ExpectedState::Fence(Version(decoder.varint()?)),
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
            id: None,
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
        let mut identified = transaction().identified(Bytes::from_static(b"id"));
        identified.id.as_mut().expect("an id").proposed = UnixMillis(300);
        assert_round_trip(write(identified));
        assert_eq!(write(transaction()).needed_version(), ClusterVersion::WITH_TRANSACTIONS);
        let mut fenced = transaction();
        fenced.comparisons.push(comparison(b"{t}lock", ExpectedState::Fence(Version(300))));
        assert_round_trip(write(fenced.clone()));
        assert_eq!(write(fenced).needed_version(), ClusterVersion::WITH_COORDINATION);
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
        // The digest is that of the request, whatever the time.
        let identified = transaction().identified(Bytes::from_static(b"id"));
        let Write::Conditional(logged) = write(identified.clone()).at(UnixMillis(7)) else {
            panic!("another write")
        };
        let (id, logged) = (identified.id.expect("an id"), logged.id.expect("an id"));
        assert_eq!(logged, TransactionId { proposed: UnixMillis(7), ..id.clone() });
        let other = ConditionalTransaction { comparisons: vec![], ..transaction() };
        assert_ne!(other.identified(id.name).id.expect("an id").digest, id.digest);
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
        let invalid: [&dyn Fn(&mut ConditionalTransaction); 10] = [
            &|it| *it = it.clone().identified(Bytes::new()),
            &|it| *it = it.clone().identified(vec![b'i'; limits::TRANSACTION_ID_BYTES_MAX + 1].into()),
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
                *it = ConditionalTransaction::default();
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
