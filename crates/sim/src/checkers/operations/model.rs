//! A second, simple implementation of commands on a shard, with which the store's own machine is
//! compared.
//!
//! Owns a model of one data shard: a map and a revision, without optimisations.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use tidelock_core::command::{
    Comparison, Condition, ConditionalTransaction, Exchange, ExpectedState, Expiry, ExpiryCondition, Flush,
    KeptOutcome, LeaseId, Move, MoveStep, Operation, OperationReplies, OperationRepliesBuilder,
    OperationReply, Operations, Rejection, Reply, RestoreWrite, Set, SetCondition, TransactionId, Write,
    WriteReply, hash_of,
};
use tidelock_core::decimal::Decimal;
use tidelock_core::machine::config::Config;
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::types::{UnixMillis, Version};
use uuid::Uuid;

use super::lease_model::LeaseModel;
use crate::checkers::ownership::{ShardOwnership, StepEffect};
use crate::slots::slot_of;

/// When a key ends without being removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    pub expires: Option<UnixMillis>,
    /// The number of the lease to which it is bound.
    pub lease: Option<Version>,
}

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub version: Version,
    pub value: Bytes,
    pub ending: Ending,
}

impl From<Option<UnixMillis>> for Ending {
    fn from(expires: Option<UnixMillis>) -> Ending {
        Ending { expires, lease: None }
    }
}

/// One data shard, as a checker computes it from the log.
#[derive(Debug, Default)]
pub struct ShardModel {
    pub keys: BTreeMap<Bytes, Held>,
    pub(super) held_leases: LeaseModel,
    revision: u64,
    restoring: Option<Uuid>,
    /// The store's own implementation: whether it was ever written to decides about a restore.
    /// Other checkers judge its content.
    config: Config,
    ownership: ShardOwnership,
    /// Outcomes of transactions with an id. Runs are too short to reach the bounds of the store.
    outcomes: Vec<KeptOutcome>,
    /// Whether the last command was a repetition that did nothing.
    pub has_repeated: bool,
}

/// The shard does not own the keys of a command, so nodes retry it on another shard.
pub struct NotHere;

impl ShardModel {
    /// Applies a command of the log. Returns the answer, if the model determines it.
    ///
    /// # Errors
    /// [`NotHere`], if the shard does not own the keys.
    pub fn apply(&mut self, write: &Write) -> Result<Option<Reply>, NotHere> {
        self.has_repeated = false;
        if !keys_of(write).iter().all(|key| self.owns(key)) {
            return Err(NotHere);
        }
        match write {
            Write::Slots(step) => self.step(step),
            Write::Config(write) => drop(self.config.apply((**write).clone())),
            Write::Restore(RestoreWrite::Keys(restoration))
                if (self.restoring == Some(restoration.backup) || self.revision == 0)
                    && self.config.is_pristine() =>
            {
                self.restoring = Some(restoration.backup);
                self.revision = self.revision.max(restoration.revision.0);
            }
            Write::Restore(RestoreWrite::Discard(discard))
                if self.restoring.is_some() && self.config.is_pristine() =>
            {
                self.restoring = Some(discard.backup);
            }
            Write::Keys(transaction) => {
                for watch in &transaction.watches {
                    let current = self.version(&watch.key);
                    if current != watch.version {
                        return Ok(Some(Reply::Write(WriteReply::ConditionFailed { current })));
                    }
                }
                let replies = self.answer_all(&transaction.operations);
                return Ok(Some(Reply::Write(WriteReply::Operations(replies))));
            }
            Write::Conditional(transaction) => {
                return Ok(Some(Reply::Write(self.transact(transaction))));
            }
            Write::Lease(write) => {
                return Ok(Some(Reply::Write(WriteReply::Lease(self.change_leases(write)))));
            }
            Write::Lock(write) => {
                return Ok(Some(Reply::Write(WriteReply::Lock(self.change_lock(write)))));
            }
            Write::Expire { now, limit, leases, .. } => {
                let room = limit - self.expire(*now, *limit);
                leases.iter().for_each(|leases| self.expire_leases(*now, *leases, room));
            }
            Write::Flush(flush) => self.flush(flush),
            _ => {}
        }
        Ok(None)
    }

    /// The answer to a read of a key.
    pub fn look<'a>(held: Option<&'a Held>, operation: &Operation<'_>) -> OperationReply<'a> {
        let Some(Held { version, value, ending }) = held else { return OperationReply::Absent };
        let (version, expires) = (*version, ending.expires);
        match operation {
            Operation::Describe { .. } => {
                OperationReply::Described { version, expires, value_bytes: value.len() as u64 }
            }
            _ => OperationReply::Value { version, expires, value },
        }
    }

    /// Removes expired keys. Returns how many.
    fn expire(&mut self, now: UnixMillis, limit: usize) -> usize {
        let mut due: Vec<(UnixMillis, Bytes)> = self
            .keys
            .iter()
            .filter_map(|(key, held)| held.ending.expires.filter(|at| *at <= now).map(|at| (at, key.clone())))
            .collect();
        due.sort();
        due.truncate(limit);
        for (_, key) in &due {
            // A command on slots that are not owned takes no revision. A restore may continue: this
            // is not a client's write.
            self.revision += u64::from(self.owns(key));
            self.keys.remove(key);
        }
        due.len()
    }

    fn flush(&mut self, flush: &Flush) {
        self.next();
        let after = flush.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let ahead: Vec<Bytes> =
            self.keys.range((after, Bound::Unbounded)).map(|(key, _)| key.clone()).collect();
        let is_asked = |key: &Bytes| flush.slots.as_ref().is_none_or(|slots| slots.contains(slot_of(key)));
        // Runs have fewer keys than a step may remove.
        for key in ahead.iter().filter(|key| is_asked(key)) {
            if self.owns(key) {
                self.keys.remove(key);
                self.held_leases.abolish(key);
            }
        }
    }

    fn owns(&self, key: &[u8]) -> bool {
        self.ownership.owns(slot_of(key))
    }

    fn step(&mut self, step: &Move) {
        match (self.ownership.step(step), &step.step) {
            (Some(StepEffect::Opened(slots)), _) => self.forget(&slots),
            (Some(StepEffect::Imported), MoveStep::Import(import)) => {
                self.lift(import.revision.0);
                for row in &import.rows {
                    let ending = Ending { expires: row.expires, lease: row.lease };
                    let held = Held { version: row.version, value: row.value.clone(), ending };
                    self.keys.insert(row.key.clone(), held);
                }
                import.removals.iter().for_each(|key| drop(self.keys.remove(key)));
                import.leases.iter().for_each(|block| self.held_leases.import(block));
                import.config.iter().for_each(|part| self.config.import_part(part).expect("a block"));
            }
            (Some(StepEffect::Owns(slots)), MoveStep::Own { revision, config, outcomes, leases_at, .. }) => {
                self.lift(revision.0);
                self.config.take_block(config).expect("a block");
                self.outcomes.extend(outcomes.iter().cloned());
                leases_at.iter().for_each(|at| self.held_leases.activate(&slots, *at));
            }
            (Some(StepEffect::Gave(slots)), _) => {
                // No client can read it any more, and the content of the copy is in the log.
                self.forget(&slots);
                self.outcomes.retain(|kept| !slots.contains(kept.slot));
            }
            _ => {}
        }
    }

    fn lift(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
        self.restoring = None;
    }

    fn forget(&mut self, slots: &SlotSet) {
        self.keys.retain(|key, _| !slots.contains(slot_of(key)));
        self.held_leases.forget(slots);
    }

    pub(super) fn version(&self, key: &[u8]) -> Version {
        self.keys.get(key).map_or(Version::ABSENT, |held| held.version)
    }

    pub(super) fn next(&mut self) -> Version {
        self.revision += 1;
        self.restoring = None;
        Version(self.revision)
    }

    pub(super) fn write(&mut self, key: &[u8], value: &[u8], ending: impl Into<Ending>) -> Version {
        let (version, ending) = (self.next(), ending.into());
        let held = Held { version, value: Bytes::copy_from_slice(value), ending };
        self.keys.insert(Bytes::copy_from_slice(key), held);
        version
    }

    fn number(held: Option<&Held>) -> Result<i64, Rejection> {
        let Some(held) = held else { return Ok(0) };
        let text = String::from_utf8_lossy(&held.value);
        match text.parse::<i64>() {
            Ok(number) if number.to_string() == text => Ok(number),
            _ => Err(Rejection::NotANumber),
        }
    }

    fn swap(&mut self, key: &[u8], expected: Option<i64>, new: i64) -> Result<Exchange, Rejection> {
        let held = self.keys.get(key).cloned();
        let old = ShardModel::number(held.as_ref())?;
        if expected.is_some() && expected != Some(old) {
            return Ok(Exchange { swapped: false, old, version: self.version(key) });
        }
        let ending = held.map(|held| held.ending).unwrap_or_default();
        let version = self.write(key, new.to_string().as_bytes(), ending);
        Ok(Exchange { swapped: true, old, version })
    }

    fn transact(&mut self, transaction: &ConditionalTransaction) -> WriteReply {
        let slot = transaction.keys().next().map_or(0, slot_of);
        let is_it = |kept: &&KeptOutcome, id: &TransactionId| kept.slot == slot && kept.name == id.name;
        if let Some(id) = &transaction.id
            && let Some(kept) = self.outcomes.iter().find(|kept| is_it(kept, id))
        {
            self.has_repeated = true;
            if kept.digest != id.digest {
                return WriteReply::IdReused;
            }
            return WriteReply::Branched { succeeded: kept.succeeded, replies: kept.replies.clone() };
        }
        let succeeded = transaction.comparisons.iter().all(|comparison| self.holds(comparison));
        let replies = self.answer_all(transaction.branch(succeeded));
        if let Some(TransactionId { name, digest, proposed }) = transaction.id.clone() {
            let replies = replies.clone();
            self.outcomes.push(KeptOutcome { slot, name, digest, proposed, succeeded, replies });
        }
        WriteReply::Branched { succeeded, replies }
    }

    fn holds(&self, Comparison { key, expected }: &Comparison) -> bool {
        match (expected, self.keys.get(key)) {
            (ExpectedState::Version(version), None) => *version == Version::ABSENT,
            (ExpectedState::Version(version), Some(held)) => held.version == *version,
            (ExpectedState::Exists, held) => held.is_some(),
            (ExpectedState::Fence(fence), _) => self.held_leases.has_fence(key, *fence),
            (ExpectedState::Value(value), held) => held.is_some_and(|held| held.value == value),
        }
    }

    fn answer_all(&mut self, operations: &Operations) -> OperationReplies {
        let mut replies = OperationRepliesBuilder::default();
        // The position of the first operation that is executed.
        let mut first = 0;
        for (position, operation) in (0..).zip(operations.iter()) {
            if position < first {
                replies.push(&OperationReply::Skipped);
                continue;
            }
            if let Operation::SkipIfExists { key, count } = operation
                && self.keys.contains_key(key)
            {
                first = position + 1 + count;
            }
            self.answer(&operation, &mut replies);
        }
        replies.finish()
    }

    fn put_bound(
        &mut self,
        (key, value): (&[u8], &[u8]),
        condition: Condition,
        lease: &[u8],
    ) -> OperationReply<'static> {
        let current = self.version(key);
        match LeaseId::parse(lease).filter(|lease| self.held_leases.has(lease)) {
            None => OperationReply::Rejected(Rejection::NoLease),
            Some(_) if !condition.holds(current) => OperationReply::ConditionFailed { current },
            Some(lease) => {
                let created = !self.keys.contains_key(key);
                let ending = Ending { expires: None, lease: Some(lease.number()) };
                OperationReply::Written { version: self.write(key, value, ending), created }
            }
        }
    }

    fn remove(&mut self, key: &[u8]) -> OperationReply<'static> {
        self.keys.remove(key);
        OperationReply::Deleted { version: self.next() }
    }

    fn answer(&mut self, operation: &Operation<'_>, replies: &mut OperationRepliesBuilder) {
        let before = self.keys.get(operation.key()).cloned();
        let current = self.version(operation.key());
        let ending = before.as_ref().map(|held| held.ending).unwrap_or_default();
        let failed = OperationReply::ConditionFailed { current };
        let created = before.is_none();
        let reply = match *operation {
            Operation::Get { .. } | Operation::Describe { .. } => {
                ShardModel::look(before.as_ref(), operation)
            }
            _ if operation.is_write() && self.held_leases.is_held(operation.key()) => {
                OperationReply::Rejected(Rejection::LockHeld)
            }
            Operation::Put { condition, .. } if !condition.holds(current) => failed,
            Operation::PutBound { key, value, condition, lease } => {
                self.put_bound((key, value), condition, lease)
            }
            Operation::Put { key, value, .. } => {
                OperationReply::Written { version: self.write(key, value, None), created }
            }
            Operation::Set(set) => return replies.push(&self.set(&set, before.as_ref())),
            Operation::Delete { condition, .. } if !condition.holds(current) => failed,
            Operation::Delete { .. } | Operation::Take { .. } if created => OperationReply::Absent,
            Operation::Delete { key, .. } => self.remove(key),
            Operation::Take { key } => {
                self.keys.remove(key);
                let value = before.as_ref().map_or(&[][..], |held| &held.value);
                OperationReply::Taken { version: self.next(), value }
            }
            Operation::Add { key, delta } => {
                match ShardModel::number(before.as_ref()).map(|number| number.checked_add(delta)) {
                    Err(rejection) => OperationReply::Rejected(rejection),
                    Ok(None) => OperationReply::Rejected(Rejection::Overflow),
                    Ok(Some(value)) => {
                        let version = self.write(key, value.to_string().as_bytes(), ending);
                        OperationReply::Number { version, value }
                    }
                }
            }
            Operation::Append { key, suffix } => {
                let value = [before.as_ref().map_or(&[][..], |held| &held.value), suffix].concat();
                let version = self.write(key, &value, ending);
                OperationReply::Length { version, value_bytes: value.len() as u64 }
            }
            Operation::Expire { .. } if created => OperationReply::Absent,
            Operation::Expire { at, condition, .. } if !allows(condition, ending.expires, at) => failed,
            Operation::Expire { key, at: Some(UnixMillis(0)), .. } => self.remove(key),
            Operation::Expire { .. } if ending.lease.is_some() => {
                OperationReply::Rejected(Rejection::KeyBound)
            }
            Operation::Expire { key, at, .. } => {
                let value = before.as_ref().map_or(&[][..], |held| &held.value);
                OperationReply::Written { version: self.write(key, value, at), created: false }
            }
            Operation::ExpireAfter { .. } => unreachable!("invariant: the judge refuses such a log"),
            Operation::Exchange { key, value } => answered(self.swap(key, None, value)),
            Operation::CompareExchange { key, expected, new } => {
                answered(self.swap(key, Some(expected), new))
            }
            Operation::SetRange { .. } | Operation::AddDecimal { .. } => {
                self.edit(operation, before.as_ref())
            }
            Operation::DeleteIf { condition, .. } if !holds(condition, before.as_ref()) => failed,
            Operation::DeleteIf { .. } | Operation::SkipIfExists { .. } if created => OperationReply::Absent,
            Operation::DeleteIf { key, .. } => self.remove(key),
            Operation::SkipIfExists { .. } => failed,
        };
        replies.push(&reply);
    }

    /// Executes an operation that changes a part of a value, or the number in it.
    fn edit(&mut self, operation: &Operation<'_>, before: Option<&Held>) -> OperationReply<'static> {
        let value = before.map_or(&[][..], |held| &held.value);
        let ending = before.map(|held| held.ending).unwrap_or_default();
        match *operation {
            Operation::SetRange { key, offset, bytes } => {
                let (begin, end) = (offset as usize, offset as usize + bytes.len());
                let byte = |position: usize| match position {
                    _ if (begin..end).contains(&position) => bytes[position - begin],
                    _ => value.get(position).copied().unwrap_or_default(),
                };
                let value: Vec<u8> = (0..value.len().max(end)).map(byte).collect();
                let version = self.write(key, &value, ending);
                OperationReply::Length { version, value_bytes: value.len() as u64 }
            }
            Operation::AddDecimal { key, delta } => {
                let number = before.map_or(Ok(Decimal::ZERO), |held| Decimal::parse(&held.value));
                match number.map(|number| number.checked_add(delta)) {
                    Err(_) => OperationReply::Rejected(Rejection::NotADecimal),
                    Ok(None) => OperationReply::Rejected(Rejection::DecimalOverflow),
                    Ok(Some(value)) => {
                        let version = self.write(key, value.to_string().as_bytes(), ending);
                        OperationReply::Decimal { version, value }
                    }
                }
            }
            _ => unreachable!("invariant: no other operation edits a value"),
        }
    }

    fn set<'a>(&mut self, set: &Set<'_>, before: Option<&'a Held>) -> OperationReply<'a> {
        let value = before.map(|held| &held.value[..]);
        let current = self.version(set.key);
        let holds = holds(set.condition, before);
        let ending = match set.expiry {
            Expiry::Never => Ending::default(),
            Expiry::Keep => before.map(|held| held.ending).unwrap_or_default(),
            Expiry::At(at) => Some(at).into(),
            Expiry::After(_) => unreachable!("invariant: the judge refuses such a log"),
        };
        let version = holds.then(|| self.write(set.key, set.value, ending));
        if holds && ending.expires == Some(UnixMillis(0)) {
            self.keys.remove(set.key);
            self.next();
        }
        match version {
            _ if set.previous => OperationReply::Replaced { version, previous: value },
            Some(version) => OperationReply::Written { version, created: before.is_none() },
            None => OperationReply::ConditionFailed { current },
        }
    }
}

/// The keys and namespaces of a command.
fn keys_of(write: &Write) -> Vec<Bytes> {
    match write {
        Write::Keys(transaction) => transaction.keys().map(Bytes::copy_from_slice).collect(),
        Write::Conditional(transaction) => transaction.keys().map(Bytes::copy_from_slice).collect(),
        Write::Config(write) => vec![write.namespace.routing_key().clone()],
        Write::Lease(write) => write.tags().map(|tag| Bytes::copy_from_slice(tag.prefix())).collect(),
        Write::Lock(write) => vec![write.name.clone()],
        _ => Vec::new(),
    }
}

fn holds(condition: SetCondition<'_>, before: Option<&Held>) -> bool {
    let value = before.map(|held| &held.value[..]);
    match condition {
        SetCondition::Version(Condition::Always) => true,
        SetCondition::Version(Condition::Exists) => before.is_some(),
        SetCondition::Version(Condition::Version(version)) => {
            before.map_or(Version::ABSENT, |held| held.version) == version
        }
        SetCondition::Equals(other) => value == Some(other),
        SetCondition::Differs(other) => value != Some(other),
        SetCondition::HashEquals(hash) => value.map(hash_of) == Some(hash),
        SetCondition::HashDiffers(hash) => value.map(hash_of) != Some(hash),
    }
}

fn answered(result: Result<Exchange, Rejection>) -> OperationReply<'static> {
    result.map_or_else(OperationReply::Rejected, OperationReply::Exchanged)
}

fn allows(condition: ExpiryCondition, current: Option<UnixMillis>, next: Option<UnixMillis>) -> bool {
    let (now, then) =
        (current.map_or(u128::MAX, |at| at.0.into()), next.map_or(u128::MAX, |at| u128::from(at.0)));
    match condition {
        ExpiryCondition::Always => true,
        ExpiryCondition::Never => current.is_none(),
        ExpiryCondition::Some => current.is_some(),
        ExpiryCondition::Later => then > now,
        ExpiryCondition::Earlier => then < now,
        ExpiryCondition::SomeLater => current.is_some() && then > now,
        ExpiryCondition::SomeEarlier => current.is_some() && then < now,
    }
}
