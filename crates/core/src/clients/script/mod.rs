//! One run of a client's script: a program on a few keys whose effect is one transaction.
//!
//! Owns the cycle of a script and its condition. The keys that the script declares are read at one
//! instant of their shard. The shell runs the program on a copy of them ([`ScriptKeys`]), where its
//! writes are seen by its later reads. What the copy shows to have changed is written as one
//! transaction, on the condition that every key still has the version that was read. If it does
//! not hold, nothing was done, and the cycle begins again, a bounded number of times. So the log
//! holds the effect of a script and never the script, and a replica needs no interpreter.
//!
//! It does not know the language of the script: the shell translates its commands to operations.
//!
//! All keys must belong to one slot, so that a script is never refused because slots have moved.
//!
//! Keys that are bound to a lease, and held locks, are not written: a shard may reject a write of
//! one of them, and would apply the other operations of the transaction. A read of several keys
//! does not show leases, so keys to be written that could be bound are read once more. The lease of
//! a key does not change without its version.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;

use super::asking::{self, Unanswered};
use crate::command::{
    Condition, Consistency, Expiry, ExpiryCondition, Operation, OperationReplies, OperationReply, Operations,
    OperationsBuilder, Read, ReadReply, Reply, Request, Set, SetCondition, StoredValue, Transaction, Watch,
    Write, WriteReply,
};
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::machine::kv::scratch::ScratchKeys;
use crate::slots::slot_of;
use crate::types::{UnixMillis, Version};

/// The next action of a [`ScriptRequest`].
#[derive(Debug)]
pub enum ScriptAction {
    /// Submit this to the node, and report the reply to [`ScriptRequest::answered`].
    Ask(Request),
    /// Run the script on these keys, and return them to [`ScriptRequest::finished`]. A script that
    /// fails has written nothing: drop the request.
    Run(Box<ScriptKeys>),
    /// The effect of the last run is applied. Without an effect, nothing was written.
    Done(Result<(), ScriptFailure>),
}

/// Why a script does not take effect. Only [`Unanswered`] with an unknown outcome leaves open
/// whether it did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptFailure {
    /// The keys are of several slots.
    #[error("the keys of the script are of several slots; give them a common {{hash tag}}")]
    CrossSlot,
    /// The script declares more than [`limits::WATCHES_MAX`] keys.
    #[error("a script has at most {max} keys", max = limits::WATCHES_MAX)]
    TooManyKeys,
    /// The values of the keys exceed [`limits::REPLIES_BYTES_CLOSE`].
    #[error("the values of the keys of the script exceed 8 MiB together")]
    ValuesTooLong,
    /// The script writes a key that is bound to a lease, or that is a held lock.
    #[error("the script writes a key that is bound to a lease or is a held lock; nothing was done")]
    BoundKey,
    /// The keys changed during each of [`limits::SCRIPT_RUNS_MAX`] runs.
    #[error(
        "the keys of the script were changed during each of its {max} runs; nothing was done",
        max = limits::SCRIPT_RUNS_MAX
    )]
    Conflict,
    /// A request has no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// Why an operation of a script is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptOperationError {
    /// The script uses a key that it does not declare.
    #[error("the script does not declare the key")]
    UndeclaredKey,
    /// The values of the keys have [`limits::SCRIPT_VALUES_BYTES_MAX`] bytes or more.
    #[error("the values of the keys of the script have 16 MiB or more")]
    ValuesTooLong,
}

/// Runs one script until its effect is applied.
#[derive(Debug)]
pub struct ScriptRequest {
    /// The declared keys, each once.
    keys: Vec<Bytes>,
    consistency: Consistency,
    /// The versions that were read last.
    watches: Vec<Watch>,
    /// The effect of the last run, while it is not written.
    effect: Effect,
    runs: usize,
    faults: Faults,
}

/// What a script writes.
#[derive(Debug, Default)]
struct Effect {
    operations: Operations,
    /// Keys of the operations that may be bound to a lease.
    unchecked: Vec<Bytes>,
}

/// The declared keys of a script, as they were read, with the writes of the script so far.
#[derive(Debug, Default)]
pub struct ScriptKeys {
    before: BTreeMap<Bytes, Option<StoredValue>>,
    scratch: ScratchKeys,
    /// Times to live that the script has set, with the times at which they end by the clock of its
    /// run. The leader of the shard decides when they end.
    lives: BTreeMap<Bytes, (UnixMillis, u64)>,
    /// Bytes of all values, with the writes of the script.
    value_bytes: usize,
}

impl ScriptRequest {
    /// Begins with a read of the keys, or with the run if there are none. A stale read is for
    /// scripts that write nothing.
    ///
    /// # Errors
    /// When no transaction could have these keys.
    pub fn begin(
        keys: impl IntoIterator<Item = Bytes>,
        consistency: Consistency,
        faults: Faults,
    ) -> Result<(ScriptRequest, ScriptAction), ScriptFailure> {
        let keys: BTreeSet<Bytes> = keys.into_iter().collect();
        if keys.len() > limits::WATCHES_MAX {
            return Err(ScriptFailure::TooManyKeys);
        }
        let slots: BTreeSet<u16> = keys.iter().map(|key| slot_of(key)).collect();
        if slots.len() > 1 {
            return Err(ScriptFailure::CrossSlot);
        }
        let keys = keys.into_iter().collect();
        let (watches, effect) = (Vec::new(), Effect::default());
        let mut request = ScriptRequest { keys, consistency, watches, effect, runs: 0, faults };
        let action = request.read();
        Ok((request, action))
    }

    /// Takes the reply to the last request.
    pub fn answered(&mut self, reply: Reply) -> ScriptAction {
        match reply {
            Reply::Read(ReadReply::Operations(values)) => match self.values(&values) {
                Ok(values) => self.run(values),
                Err(failure) => ScriptAction::Done(Err(failure)),
            },
            Reply::Read(ReadReply::Value(value)) if self.effect.operations.is_empty() => {
                self.run([value].into())
            }
            // If the key has changed, the write fails too, so the outcome is the same.
            Reply::Read(ReadReply::Value(value)) if is_bound(value.as_ref()) => {
                ScriptAction::Done(Err(ScriptFailure::BoundKey))
            }
            Reply::Read(ReadReply::Value(_)) => self.write(),
            Reply::Write(WriteReply::Operations(_)) => ScriptAction::Done(Ok(())),
            Reply::Write(WriteReply::ConditionFailed { .. }) if self.runs < limits::SCRIPT_RUNS_MAX => {
                self.read()
            }
            Reply::Write(WriteReply::ConditionFailed { .. }) => {
                ScriptAction::Done(Err(ScriptFailure::Conflict))
            }
            other => ScriptAction::Done(Err(asking::mismatched(other).into())),
        }
    }

    /// Takes the keys after a run.
    pub fn finished(&mut self, keys: &ScriptKeys) -> ScriptAction {
        let operations = keys.effect();
        if operations.is_empty() {
            return ScriptAction::Done(Ok(()));
        }
        let before = |operation: &Operation<'_>| keys.before.get(operation.key())?.as_ref();
        if operations.iter().any(|operation| is_bound(before(&operation))) {
            return ScriptAction::Done(Err(ScriptFailure::BoundKey));
        }
        let may_be_bound = |operation: &Operation<'_>| {
            self.keys.len() > 1 && before(operation).is_some_and(|stored| stored.expires.is_none())
        };
        let unchecked = operations.iter().filter(may_be_bound);
        let unchecked = unchecked.map(|operation| Bytes::copy_from_slice(operation.key())).collect();
        self.effect = Effect { operations, unchecked };
        self.write()
    }

    /// Whether the keys have changed during a run before this one.
    pub fn is_repeated(&self) -> bool {
        self.runs > 1
    }

    fn read(&mut self) -> ScriptAction {
        self.runs += 1;
        let read = match &self.keys[..] {
            [] => return ScriptAction::Run(Box::default()),
            [key] => Read::Get { key: key.clone() },
            keys => {
                let gets: Vec<Operation<'_>> = keys.iter().map(|key| Operation::Get { key }).collect();
                Read::Operations { operations: Operations::of(&gets), bytes_max: limits::REPLIES_BYTES_CLOSE }
            }
        };
        ScriptAction::Ask(Request::Read { read, consistency: self.consistency })
    }

    /// The state of each key.
    fn values(&self, replies: &OperationReplies) -> Result<Vec<Option<StoredValue>>, ScriptFailure> {
        let values = replies.iter().map(|reply| match reply {
            OperationReply::Value { version, expires, value } => {
                let value = Bytes::copy_from_slice(value);
                Ok(Some(StoredValue { version, value, expires, lease: None }))
            }
            OperationReply::Absent => Ok(None),
            _ => Err(ScriptFailure::ValuesTooLong),
        });
        values.collect()
    }

    fn run(&mut self, values: Vec<Option<StoredValue>>) -> ScriptAction {
        if values.len() != self.keys.len() {
            return ScriptAction::Done(Err(Unanswered::Mismatched.into()));
        }
        let mut copied = Box::<ScriptKeys>::default();
        self.watches.clear();
        for (key, stored) in self.keys.iter().zip(values) {
            let version = stored.as_ref().map_or(Version::ABSENT, |stored| stored.version);
            self.watches.push(Watch { key: key.clone(), version });
            copied.copy(key, stored);
        }
        ScriptAction::Run(copied)
    }

    /// Writes the effect, or checks the next key that may be bound.
    fn write(&mut self) -> ScriptAction {
        if let Some(key) = self.effect.unchecked.pop() {
            let (read, consistency) = (Read::Get { key }, Consistency::Linearizable);
            return ScriptAction::Ask(Request::Read { read, consistency });
        }
        let operations = core::mem::take(&mut self.effect).operations;
        let is_conditional = !self.faults.has(Fault::ScriptWithoutCondition);
        let watches = if is_conditional { core::mem::take(&mut self.watches) } else { Vec::new() };
        ScriptAction::Ask(Request::Write(Write::Keys(Transaction { watches, operations })))
    }
}

fn is_bound(stored: Option<&StoredValue>) -> bool {
    stored.is_some_and(|stored| stored.lease.is_some())
}

impl ScriptKeys {
    fn copy(&mut self, key: &Bytes, stored: Option<StoredValue>) {
        if let Some(stored) = stored.clone() {
            self.value_bytes += stored.value.len();
            self.scratch.copy(key, stored);
        }
        self.before.insert(key.clone(), stored);
    }

    /// Bytes of the values, with the writes of the script.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Executes valid operations on the copy. `now` is the time of the run.
    ///
    /// # Errors
    /// When a key of an operation is not declared, or an operation writes although the values are
    /// too long already. Nothing was done then.
    pub fn execute(
        &mut self,
        operations: &Operations,
        now: UnixMillis,
    ) -> Result<OperationReplies, ScriptOperationError> {
        if operations.iter().any(|operation| !self.before.contains_key(operation.key())) {
            return Err(ScriptOperationError::UndeclaredKey);
        }
        let writes = || operations.iter().filter(Operation::is_write);
        if self.value_bytes >= limits::SCRIPT_VALUES_BYTES_MAX && writes().next().is_some() {
            return Err(ScriptOperationError::ValuesTooLong);
        }
        for operation in operations.iter() {
            if let Some((key, after_ms)) = life(&operation) {
                let end = UnixMillis(now.0.saturating_add(after_ms));
                self.lives.insert(Bytes::copy_from_slice(key), (end, after_ms));
            }
        }
        let written: BTreeSet<&[u8]> = writes().map(|operation| operation.key()).collect();
        let bytes = |keys: &ScratchKeys| written.iter().map(|key| keys.value_bytes(key)).sum::<usize>();
        self.value_bytes -= bytes(&self.scratch);
        let replies = self.scratch.execute(operations, now);
        self.value_bytes += bytes(&self.scratch);
        Ok(replies)
    }

    /// The operations that give each key the state that it has after the run.
    fn effect(&self) -> Operations {
        let mut effect = OperationsBuilder::default();
        for (key, before) in &self.before {
            let after = self.scratch.get(key);
            match (before, &after) {
                (Some(_), None) => effect.push(&Operation::Delete { key, condition: Condition::Always }),
                (before, Some(after))
                    if before.as_ref().is_none_or(|before| before.version != after.version) =>
                {
                    effect.push(&self.write(key, before.as_ref(), after));
                }
                _ => {}
            }
        }
        effect.finish()
    }

    /// The operation that gives a key this state.
    fn write<'a>(
        &self,
        key: &'a [u8],
        before: Option<&StoredValue>,
        after: &'a StoredValue,
    ) -> Operation<'a> {
        let expiry = match after.expires {
            None => Expiry::Never,
            _ if before.is_some_and(|before| before.expires == after.expires) => Expiry::Keep,
            Some(at) => match self.lives.get(key) {
                Some((end, after_ms)) if *end == at => Expiry::After(*after_ms),
                _ => Expiry::At(at),
            },
        };
        let condition = ExpiryCondition::Always;
        let has_same_value = before.is_some_and(|before| before.value == after.value);
        match expiry {
            // A long value need not enter the log again.
            Expiry::After(after_ms) if has_same_value => Operation::ExpireAfter { key, after_ms, condition },
            Expiry::At(at) if has_same_value => Operation::Expire { key, at: Some(at), condition },
            expiry => {
                let condition = SetCondition::Version(Condition::Always);
                Operation::Set(Set { key, value: &after.value, condition, expiry, previous: false })
            }
        }
    }
}

/// The key and the time to live that an operation may set.
fn life<'a>(operation: &Operation<'a>) -> Option<(&'a [u8], u64)> {
    match *operation {
        Operation::Set(Set { key, expiry: Expiry::After(after_ms), .. })
        | Operation::ExpireAfter { key, after_ms, .. } => Some((key, after_ms)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
