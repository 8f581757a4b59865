//! Checks what each connection of a client that pipelines may rely on, whatever other clients do.
//!
//! 1. Replies have the order of the commands, one for each, with a result for each operation.
//! 2. An operation on a key sees the effects of every earlier one of its connection on that key.
//!    The other checkers do not see this: for them, operations in progress at the same time have no
//!    order.
//! 3. The operations of a transaction are executed together, or none of them, and none if a watched
//!    key changed. Keys of one shard that one command reads come from one state.
//! 4. A put is executed at most once, and not at all if its reply says so.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidelock_core::command::{
    Operation as Asked, OperationReply, Read, ReadReply, Refusal, Reply, Request, WriteReply,
};
use tidelock_core::types::{Token, Version};

use super::lineage::{Lineage, Lineages};
use super::ownership::{SlotClass, SlotOwnership};
use super::{Checker, FinishedRun, Violation, describe, operations};
use crate::history::{Happened, History};
use crate::pipelines::{ConnectionRecord, TakenCommand};
use crate::slots::slot_of;

const CHECKER: &str = "pipelines";

/// Judges the order and the number of the replies of every connection.
pub struct ConnectionReplies;

impl Checker for ConnectionReplies {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        let FinishedRun { history, connections, .. } = *run;
        connections.iter().try_for_each(|record| RepliesCheck { history, record }.check())
    }
}

/// Judges the results of every connection, and the puts of every client.
pub struct ConnectionOrder;

impl Checker for ConnectionOrder {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        let FinishedRun { history, connections, ledger, .. } = *run;
        let (lineages, ownership) = (run.lineages()?, run.ownership()?);
        for record in connections {
            let judge = ConnectionCheck { history, record, lineages, ownership };
            judge.keys()?;
            for command in &record.commands {
                judge.command(command)?;
            }
        }
        executions(history, ledger)
    }
}

/// Checks that each put was executed at most once, and none whose reply says that it was not.
fn executions(history: &History, ledger: &operations::Ledger) -> Result<(), Violation> {
    for (token, times) in operations::executed_puts(ledger) {
        let Some(operation) = history.operation(token) else { continue };
        if times > 1 || operation.happened() == Happened::No {
            let text = format!("put {token} was executed {times} times and answered {:?}", operation.reply());
            return Err(Violation::new(CHECKER, text));
        }
    }
    Ok(())
}

/// What the result of an operation says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Observed {
    /// The key had this version.
    At(Version),
    /// The operation gave the key this version; `is_put` if the key exists afterwards.
    Made { version: Version, is_put: bool },
    /// The key did not exist.
    Absent,
}

struct RepliesCheck<'a> {
    history: &'a History,
    record: &'a ConnectionRecord,
}

struct ConnectionCheck<'a> {
    history: &'a History,
    record: &'a ConnectionRecord,
    lineages: &'a Lineages,
    ownership: &'a SlotOwnership,
}

impl RepliesCheck<'_> {
    fn check(&self) -> Result<(), Violation> {
        for (position, reply) in self.record.replies.iter().enumerate() {
            if reply.command != position {
                let text = format!("the reply to command {} came as number {position}", reply.command);
                return Err(blame(self.history, self.record, &text));
            }
            let command = &self.record.commands[position];
            let expected = command.operations.len();
            if reply.executed > expected
                || (command.is_transaction && reply.executed > 0 && reply.executed < expected)
            {
                let text = format!("command {position} has {} of {expected} results", reply.executed);
                return Err(blame(self.history, self.record, &text));
            }
            for token in &command.operations {
                let text = match self.history.operation(*token).and_then(|operation| operation.reply()) {
                    Some(Reply::Refused(Refusal::Invalid(reason))) => {
                        format!("operation {token} is said to be invalid: {reason}")
                    }
                    None if !command.is_transaction => format!("operation {token} has no result"),
                    Some(_) | None => continue,
                };
                return Err(blame(self.history, self.record, &text));
            }
        }
        Ok(())
    }
}

impl ConnectionCheck<'_> {
    /// Checks that versions of each key do not go back in the order of the operations.
    fn keys(&self) -> Result<(), Violation> {
        let mut latest: BTreeMap<Bytes, Version> = BTreeMap::new();
        for token in self.record.commands.iter().flat_map(|command| &command.operations) {
            let Some((key, seen)) = self.seen(*token) else { continue };
            let floor = latest.get(&key).copied().unwrap_or(Version::ABSENT);
            let is_behind = match seen {
                Observed::At(version) => version < floor,
                Observed::Made { version, .. } => version <= floor,
                Observed::Absent => floor > Version::ABSENT && !self.may_be_deleted(&key, floor),
            };
            if is_behind {
                let text = format!("operation {token} finds {seen:?} behind {}", describe(&key, floor));
                return Err(self.blame(&text));
            }
            if let Observed::At(version) | Observed::Made { version, .. } = seen {
                latest.insert(key, version);
            }
        }
        Ok(())
    }

    /// Whether a delete may have removed a key at this version or a later one.
    fn may_be_deleted(&self, key: &Bytes, version: Version) -> bool {
        let Some(Lineage { mutations, unknown_deletes, .. }) = self.lineages.get(key) else { return false };
        !unknown_deletes.is_empty()
            || mutations.iter().any(|mutation| !mutation.is_put && mutation.version >= version)
    }

    fn command(&self, command: &TakenCommand) -> Result<(), Violation> {
        let seen: Vec<(Token, Bytes, Observed)> = command
            .operations
            .iter()
            .filter_map(|token| self.seen(*token).map(|(key, seen)| (*token, key, seen)))
            .collect();
        if command.is_transaction {
            self.transaction(&seen)?;
            self.watches(command, &seen)?;
        }
        let reads = seen.iter().filter(|(.., seen)| !matches!(seen, Observed::Made { .. }));
        if reads.clone().count() == seen.len() {
            self.one_state(&seen)?;
        }
        Ok(())
    }

    /// Checks that nothing was executed between the operations of a transaction: each mutation has
    /// the next revision of the shard, and reads show the transaction's own mutations or what was
    /// there before the first.
    fn transaction(&self, seen: &[(Token, Bytes, Observed)]) -> Result<(), Violation> {
        let first = seen.iter().find_map(|(.., seen)| match seen {
            Observed::Made { version, .. } => Some(*version),
            _ => None,
        });
        let Some(first) = first else { return Ok(()) };
        let mut next = first;
        let mut own: BTreeMap<&Bytes, (Version, bool)> = BTreeMap::new();
        for (token, key, seen) in seen {
            let is_right = match (seen, own.get(key)) {
                (Observed::Made { version, .. }, _) => *version == next,
                (Observed::At(version), Some((own, is_put))) => version == own && *is_put,
                (Observed::At(version), None) => *version < first,
                (Observed::Absent, Some((_, is_put))) => !is_put,
                (Observed::Absent, None) => true,
            };
            if !is_right {
                let text = format!("operation {token} of a transaction finds {seen:?}, after {own:?}");
                return Err(self.blame(&text));
            }
            if let Observed::Made { version, is_put } = seen {
                own.insert(key, (*version, *is_put));
                next = Version(version.0 + 1);
            }
        }
        Ok(())
    }

    /// Checks that no put of a watched key stands between the reply to the watch and the
    /// transaction, if that changed the same key.
    fn watches(&self, command: &TakenCommand, seen: &[(Token, Bytes, Observed)]) -> Result<(), Violation> {
        for (key, watch) in &command.watches {
            let made = seen.iter().find_map(|(_, changed, seen)| match seen {
                Observed::Made { version, .. } if changed == key => Some(*version),
                _ => None,
            });
            let (Some(made), Some(reply)) = (made, self.record.replies.get(*watch)) else { continue };
            // A key that was absent, and is absent again, has not changed.
            let between = self.lineages.get(key).and_then(|lineage| {
                let latest = lineage.mutations.iter().rfind(|mutation| mutation.version < made)?;
                let is_put = latest.is_put && lineage.unknown_deletes.is_empty();
                (is_put && latest.token >= reply.next_token).then_some(latest)
            });
            // Operations of the transaction itself were sent before it was executed.
            if let Some(between) = between.filter(|between| !command.operations.contains(&between.token)) {
                let text = format!(
                    "a transaction at version {made} was executed although {} was changed by {}",
                    describe(key, between.version),
                    between.token
                );
                return Err(self.blame(&text));
            }
        }
        Ok(())
    }

    /// Checks that the keys of each shard that one command reads come from one state. While slots
    /// move, a command has parts that are asked again one by one, so nothing is promised.
    fn one_state(&self, seen: &[(Token, Bytes, Observed)]) -> Result<(), Violation> {
        if self.ownership.has_moves() {
            return Ok(());
        }
        let class_of = |key: &[u8]| self.ownership.class_of(slot_of(key));
        let mut reached: BTreeMap<SlotClass, Version> = BTreeMap::new();
        let found = seen.iter().filter_map(|(_, key, seen)| match seen {
            Observed::At(version) => Some((key, *version)),
            _ => None,
        });
        for (key, version) in found.clone() {
            let reached = reached.entry(class_of(key)).or_default();
            *reached = version.max(*reached);
        }
        for (key, version) in found {
            let reached = reached[&class_of(key)];
            let Some(lineage) = self.lineages.get(key) else { continue };
            let next = lineage.mutations.get(lineage.gap_of(version));
            if let Some(next) = next.filter(|next| next.version <= reached) {
                let text = format!(
                    "a command reads {}, replaced at {}, beside a key at version {reached}",
                    describe(key, version),
                    next.version
                );
                return Err(self.blame(&text));
            }
        }
        Ok(())
    }

    /// The key of an operation, and what its result says about it; `None` if it says nothing.
    fn seen(&self, token: Token) -> Option<(Bytes, Observed)> {
        let operation = self.history.operation(token)?;
        match (&operation.request, operation.reply()?) {
            (Request::Read { read: Read::Get { key }, .. }, Reply::Read(ReadReply::Value(found))) => {
                let seen = found.as_ref().map_or(Observed::Absent, |found| Observed::At(found.version));
                Some((key.clone(), seen))
            }
            (Request::Write(write), Reply::Write(WriteReply::Operations(replies))) => {
                let asked = write.only_operation()?;
                let is_put = matches!(asked, Asked::Put { .. });
                let seen = match replies.only()? {
                    OperationReply::Written { version, .. } | OperationReply::Deleted { version } => {
                        Observed::Made { version, is_put }
                    }
                    OperationReply::ConditionFailed { current } if current != Version::ABSENT => {
                        Observed::At(current)
                    }
                    OperationReply::ConditionFailed { .. } | OperationReply::Absent => Observed::Absent,
                    _ => return None,
                };
                Some((Bytes::copy_from_slice(asked.key()), seen))
            }
            _ => None,
        }
    }

    fn blame(&self, text: &str) -> Violation {
        blame(self.history, self.record, text)
    }
}

fn blame(history: &History, record: &ConnectionRecord, text: &str) -> Violation {
    let first = record.commands.iter().flat_map(|command| &command.operations).next();
    let node = first.and_then(|token| history.operation(*token)).map_or(0, |operation| operation.at.node.0);
    Violation::new(CHECKER, format!("a connection to node {node}: {text}"))
}

#[cfg(test)]
mod tests;
