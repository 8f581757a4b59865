//! The effect of operations on keys.
//!
//! Owns the semantics of each [`Operation`]. Transactions are isolated because the log is applied
//! one command at a time; here they only have to be executed in order.
//!
//! The state must not depend on whether a client waits for the replies, because followers apply
//! without building replies.

use super::{Ending, KeyValue, Record};
use crate::command::{
    Comparison, ConditionalTransaction, Exchange, ExpectedState, Expiry, ExpiryCondition, Operation,
    OperationReplies, OperationRepliesBuilder, OperationReply, Operations, Rejection, Set, SetCondition,
    Transaction, WriteReply,
};
use crate::decimal::{Decimal, DecimalError};
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::types::{UnixMillis, Version};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

/// A time that has passed by any clock.
const PASSED: UnixMillis = UnixMillis(0);

const RELATIVE: &str = "invariant: the leader made every time absolute before it proposed the command";

impl KeyValue {
    /// Answers read-only operations, with replies of at most `bytes_max` bytes.
    pub(in crate::machine) fn look(&self, operations: &Operations, bytes_max: usize) -> OperationReplies {
        let mut replies = OperationRepliesBuilder::within(bytes_max);
        for operation in operations.iter() {
            match operation {
                Operation::Get { key } => replies.push(&self.value(key)),
                Operation::Describe { key } => replies.push(&self.description(key)),
                _ => unreachable!("invariant: a read that writes was refused"),
            }
        }
        replies.finish()
    }

    /// Executes all operations, if no watched key has changed. Without `is_answered` the reply is
    /// empty.
    pub fn transact(&mut self, transaction: &Transaction, is_answered: bool) -> WriteReply {
        for watch in &transaction.watches {
            let current = self.version(&watch.key);
            if current != watch.version {
                return WriteReply::ConditionFailed { current };
            }
        }
        let bytes_max = limits::REPLIES_BYTES_CLOSE;
        WriteReply::Operations(self.execute_all(&transaction.operations, is_answered, bytes_max))
    }

    /// Executes the branch of the transaction that its comparisons select. Without `is_answered`
    /// the reply is incomplete.
    pub(in crate::machine) fn transact_by_branch(
        &mut self,
        transaction: &ConditionalTransaction,
        is_answered: bool,
        faults: Faults,
    ) -> WriteReply {
        let succeeded = transaction.comparisons.iter().all(|comparison| self.holds(comparison, faults));
        let bytes_max = match transaction.id {
            Some(_) => limits::OUTCOME_VALUES_BYTES_MAX,
            None => limits::REPLIES_BYTES_CLOSE,
        };
        let replies = self.execute_all(transaction.branch(succeeded), is_answered, bytes_max);
        WriteReply::Branched { succeeded, replies }
    }

    fn holds(&self, Comparison { key, expected }: &Comparison, faults: Faults) -> bool {
        match expected {
            ExpectedState::Version(version) => self.version(key) == *version,
            ExpectedState::Fence(fence) => self.locks.get(key).is_some_and(|lock| lock.fence == *fence),
            ExpectedState::Exists => self.version(key) != Version::ABSENT,
            ExpectedState::Value(value) => {
                let equals = |record: &Record| record.value() == &value[..];
                self.records.get(key).is_some_and(equals) || faults.has(Fault::UnequalValuesMatch)
            }
        }
    }

    /// Executes operations in order. Their replies take at most `bytes_max` bytes, not counting
    /// those without values.
    fn execute_all(
        &mut self,
        operations: &Operations,
        is_answered: bool,
        bytes_max: usize,
    ) -> OperationReplies {
        let awaited = if is_answered { operations.len() } else { 0 };
        let mut replies = OperationRepliesBuilder::for_replies(awaited, bytes_max);
        let mut room = limits::REPLIES_BYTES_CLOSE;
        let mut skipped = 0;
        for operation in operations.iter() {
            if skipped > 0 {
                skipped -= 1;
                if is_answered {
                    replies.push(&OperationReply::Skipped);
                }
                continue;
            }
            if let Operation::SkipIfExists { key, count } = operation
                && self.records.get(key).is_some()
                && !self.faults.has(Fault::SkippedOperationExecuted)
            {
                skipped = count;
            }
            if operation.is_read() && !is_answered {
                continue;
            }
            self.execute(&operation, &mut room, |reply| {
                if is_answered {
                    replies.push(reply);
                }
            });
        }
        replies.finish()
    }

    /// Executes one operation. `room` is the number of bytes that returned values of removed keys
    /// may still take.
    fn execute(
        &mut self,
        operation: &Operation<'_>,
        room: &mut usize,
        answer: impl FnOnce(&OperationReply<'_>),
    ) {
        if operation.is_write() && self.locks.holds(operation.key()) {
            return answer(&OperationReply::Rejected(Rejection::LockHeld));
        }
        let reply = match *operation {
            Operation::Get { key } => return answer(&self.value(key)),
            Operation::Describe { key } => self.description(key),
            Operation::Put { key, value, condition } => match self.put_if(key, value, condition) {
                Ok((version, created)) => OperationReply::Written { version, created },
                Err(current) => OperationReply::ConditionFailed { current },
            },
            Operation::Set(set) => return self.set(&set, room, answer),
            Operation::Delete { key, condition } => match self.version(key) {
                current if !condition.holds(current) => OperationReply::ConditionFailed { current },
                Version::ABSENT => OperationReply::Absent,
                _ => OperationReply::Deleted { version: self.remove(key).0 },
            },
            Operation::Take { key } => return self.take(key, room, answer),
            Operation::Add { key, delta } => self.add(key, delta),
            Operation::Append { key, suffix } => self.append(key, suffix),
            Operation::Expire { key, at, condition } => self.set_expiry(key, at, condition),
            Operation::ExpireAfter { .. } => unreachable!("{}", RELATIVE),
            Operation::Exchange { key, value } => exchanged(self.swap(key, None, value)),
            Operation::CompareExchange { key, expected, new } => {
                exchanged(self.swap(key, Some(expected), new))
            }
            Operation::SetRange { key, offset, bytes } => self.set_range(key, offset, bytes),
            Operation::AddDecimal { key, delta } => self.add_decimal(key, delta),
            Operation::DeleteIf { key, condition } => self.delete_if(key, condition),
            Operation::PutBound { key, value, condition, lease } => {
                self.put_bound((key, value), condition, lease)
            }
            Operation::SkipIfExists { key, .. } => match self.version(key) {
                Version::ABSENT => OperationReply::Absent,
                current => OperationReply::ConditionFailed { current },
            },
        };
        answer(&reply);
    }

    fn value(&self, key: &[u8]) -> OperationReply<'_> {
        self.records.get(key).map_or(OperationReply::Absent, |record| {
            let (version, value) = record.version_and_value();
            OperationReply::Value { version, expires: self.expiries.of(key), value }
        })
    }

    fn description(&self, key: &[u8]) -> OperationReply<'static> {
        self.records.get(key).map_or(OperationReply::Absent, |record| {
            let (version, value) = record.version_and_value();
            OperationReply::Described {
                version,
                expires: self.expiries.of(key),
                value_bytes: value.len() as u64,
            }
        })
    }

    fn set(&mut self, set: &Set<'_>, room: &mut usize, answer: impl FnOnce(&OperationReply<'_>)) {
        let held = self.records.get(set.key);
        let current = held.map_or(Version::ABSENT, Record::version);
        let holds = set.condition.holds(held.map(Record::version_and_value));
        let previous: Option<Box<[u8]>> = held.filter(|_| set.previous).map(|record| record.value().into());
        if let Some(value) = &previous {
            if value.len() > *room {
                return answer(&OperationReply::Rejected(Rejection::RepliesTooLong));
            }
            *room -= value.len();
        }
        let version = holds.then(|| {
            let ending = match set.expiry {
                Expiry::Never => Ending::default(),
                Expiry::Keep => self.ending(set.key),
                Expiry::At(at) => Some(at).into(),
                Expiry::After(_) => unreachable!("{}", RELATIVE),
            };
            let version = self.store(set.key, set.value, ending).0;
            if ending.expires == Some(PASSED) {
                self.remove(set.key);
            }
            version
        });
        let created = current == Version::ABSENT;
        answer(&match version {
            _ if set.previous => OperationReply::Replaced { version, previous: previous.as_deref() },
            Some(version) => OperationReply::Written { version, created },
            None => OperationReply::ConditionFailed { current },
        });
    }

    fn take(&mut self, key: &[u8], room: &mut usize, answer: impl FnOnce(&OperationReply<'_>)) {
        let Some(record) = self.records.get(key) else { return answer(&OperationReply::Absent) };
        let value_bytes = record.value().len();
        if value_bytes > *room {
            return answer(&OperationReply::Rejected(Rejection::RepliesTooLong));
        }
        *room -= value_bytes;
        let (version, taken) = self.remove(key);
        answer(&OperationReply::Taken { version, value: taken.as_ref().map_or(&[][..], Record::value) });
    }

    fn add(&mut self, key: &[u8], delta: i64) -> OperationReply<'static> {
        let value = match self.number(key) {
            Ok(number) => number.checked_add(delta).ok_or(Rejection::Overflow),
            Err(rejection) => Err(rejection),
        };
        match value {
            Ok(value) => {
                OperationReply::Number { version: self.rewrite(key, value.to_string().as_bytes()), value }
            }
            Err(rejection) => OperationReply::Rejected(rejection),
        }
    }

    fn append(&mut self, key: &[u8], suffix: &[u8]) -> OperationReply<'static> {
        let held = self.records.get(key).map_or(&[][..], Record::value);
        let value_bytes = held.len() + suffix.len();
        if value_bytes > limits::VALUE_BYTES_MAX {
            return OperationReply::Rejected(Rejection::ValueTooLong);
        }
        let mut value = Vec::with_capacity(value_bytes);
        value.extend_from_slice(held);
        value.extend_from_slice(suffix);
        OperationReply::Length { version: self.rewrite(key, &value), value_bytes: value_bytes as u64 }
    }

    fn set_range(&mut self, key: &[u8], offset: u64, bytes: &[u8]) -> OperationReply<'static> {
        let held = self.records.get(key).map_or(&[][..], Record::value);
        let offset =
            usize::try_from(offset).expect("invariant: ranges are checked before they enter the log");
        let mut value = Vec::with_capacity(held.len().max(offset + bytes.len()));
        value.extend_from_slice(held);
        value.resize(value.len().max(offset + bytes.len()), 0);
        value[offset..offset + bytes.len()].copy_from_slice(bytes);
        OperationReply::Length { version: self.rewrite(key, &value), value_bytes: value.len() as u64 }
    }

    fn add_decimal(&mut self, key: &[u8], delta: Decimal) -> OperationReply<'static> {
        let held = match self.records.get(key).map(|record| Decimal::parse(record.value())) {
            None => Ok(Decimal::ZERO),
            Some(Ok(held)) => Ok(held),
            Some(Err(DecimalError::NotANumber | DecimalError::TooLarge)) => Err(Rejection::NotADecimal),
        };
        let sum = held.and_then(|held| held.checked_add(delta).ok_or(Rejection::DecimalOverflow));
        match sum {
            Ok(value) => {
                OperationReply::Decimal { version: self.rewrite(key, value.to_string().as_bytes()), value }
            }
            Err(rejection) => OperationReply::Rejected(rejection),
        }
    }

    fn delete_if(&mut self, key: &[u8], condition: SetCondition<'_>) -> OperationReply<'static> {
        let held = self.records.get(key).map(Record::version_and_value);
        if !condition.holds(held) {
            let current = held.map_or(Version::ABSENT, |(version, _)| version);
            return OperationReply::ConditionFailed { current };
        }
        match held {
            Some(_) => OperationReply::Deleted { version: self.remove(key).0 },
            None => OperationReply::Absent,
        }
    }

    fn set_expiry(
        &mut self,
        key: &[u8],
        at: Option<UnixMillis>,
        condition: ExpiryCondition,
    ) -> OperationReply<'static> {
        let Some(record) = self.records.get(key) else { return OperationReply::Absent };
        let (version, value) = record.version_and_value();
        if !condition.holds(self.expiries.of(key), at) {
            return OperationReply::ConditionFailed { current: version };
        }
        if at == Some(PASSED) {
            return OperationReply::Deleted { version: self.remove(key).0 };
        }
        if self.leases.of_key(key).is_some() {
            return OperationReply::Rejected(Rejection::KeyBound);
        }
        // Assign a new version, because a transaction that watches the key would not notice the
        // change otherwise.
        let value: Box<[u8]> = value.into();
        let (version, created) = self.store(key, &value, at);
        OperationReply::Written { version, created }
    }

    fn swap(&mut self, key: &[u8], expected: Option<i64>, new: i64) -> Result<Exchange, Rejection> {
        let old = self.number(key)?;
        if expected.is_some_and(|expected| expected != old) {
            return Ok(Exchange { swapped: false, old, version: self.version(key) });
        }
        let version = self.rewrite(key, new.to_string().as_bytes());
        Ok(Exchange { swapped: true, old, version })
    }

    /// The number that a key holds; an absent key counts as zero.
    fn number(&self, key: &[u8]) -> Result<i64, Rejection> {
        match self.records.get(key) {
            Some(record) => parse_number(record.value()).ok_or(Rejection::NotANumber),
            None => Ok(0),
        }
    }

    /// Stores a value that is derived from the current one, and keeps the expiry or the lease.
    fn rewrite(&mut self, key: &[u8], value: &[u8]) -> Version {
        let ending = self.ending(key);
        self.store(key, value, ending).0
    }
}

fn exchanged(result: Result<Exchange, Rejection>) -> OperationReply<'static> {
    result.map_or_else(OperationReply::Rejected, OperationReply::Exchanged)
}

/// Parses a decimal number of 64 bits in canonical form: no plus sign, no leading zeros, nothing
/// before or after it.
pub fn parse_number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_canonical {
        return None;
    }
    core::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
