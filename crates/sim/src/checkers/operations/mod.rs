//! Checks transactions, numbers and keys that expire: a model replays the committed log, which must
//! explain every answer.
//!
//! For plain keys, values show the effect of a command of unknown outcome. Here they do not:
//! numbers add up, values grow, and keys expire. So this checker uses the log. It compares:
//!
//! 1. The log and the history: an acknowledged command is in the log once, a refused one is not.
//! 2. The answers and the model: each answer is the model's at that log position.
//! 3. The order and real time: a command that was answered before another was requested comes
//!    before it in the log. A read, too, has a position between two commands from which its answer
//!    follows. While slots move, this is judged by the parts of the logs in which the keys were.
//! 4. Time: keys expire only at a time that the clock of a node has shown, and a time to live is
//!    measured by the clock of the leader that proposed it.

mod lease_model;
mod ledger;
mod model;
mod reads;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidelock_core::command::{
    Expiry, Operation as Asked, OperationReply, Operations, Refusal, Reply, Set, Write, WriteReply,
};
use tidelock_core::types::{ShardId, Token, UnixMillis};

pub use ledger::Ledger;
use model::Held;
pub(super) use model::ShardModel;
use reads::judge_reads;

use super::ownership::SlotOwnership;
use super::replay::{LogJudge, LogOrder, is_refused};
use super::{Checker, FinishedRun, Violation};
use crate::compound::{is_compound, is_identified, token_in};
use crate::history::{History, token_of};
use crate::leases;

const JUDGE: LogJudge = LogJudge { checker: "operations" };

/// The states of a key, by the number of commands applied before.
type Past = BTreeMap<Bytes, Vec<(usize, Option<Held>)>>;

/// Judges all operations by the committed log.
pub struct OperationsByLog;

impl Checker for OperationsByLog {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.history, run.ledger, run.ownership()?)
    }
}

/// Judges every operation of a finished run.
pub fn check(history: &History, ledger: &Ledger, ownership: &SlotOwnership) -> Result<(), Violation> {
    let (mut done, mut outcomes) = (BTreeSet::new(), BTreeMap::new());
    let mut logs = BTreeMap::new();
    for (shard, writes) in ledger.shards() {
        let mut judged = judge_writes(history, ledger, (shard, writes))?;
        done.extend(judged.places.keys().copied());
        for (token, reply) in std::mem::take(&mut judged.outcomes) {
            if outcomes.insert(token, reply).is_some() {
                let text = format!("the transaction of operation {token} happened in two shards");
                return Err(Violation::new(JUDGE.checker, text));
            }
        }
        logs.insert(shard, judged);
    }
    judge_reads(history, ownership, &logs)?;
    judge_repetitions(history, &outcomes)?;
    for operation in history.operations() {
        let is_named = operation.write().and_then(named_in) == Some(operation.token);
        if !is_named || operation.write().is_some_and(is_identified) {
            continue;
        }
        JUDGE.judge_presence(operation, done.contains(&operation.token))?;
    }
    Ok(())
}

/// The operation in the history to which a logged command belongs, if the command names it. The
/// other changes of leases and locks are judged by [`leases`](super::leases).
fn named_in(write: &Write) -> Option<Token> {
    token_in(write).or_else(|| leases::token_in(write))
}

/// How often the log executes each put of a plain key.
pub(super) fn executed_puts(ledger: &Ledger) -> BTreeMap<Token, u64> {
    let mut executed = BTreeMap::new();
    for (_, writes) in ledger.shards() {
        let mut model = ShardModel::default();
        for write in writes {
            let (Ok(Some(Reply::Write(WriteReply::Operations(replies)))), Write::Keys(transaction)) =
                (model.apply(write), write)
            else {
                continue;
            };
            for (operation, reply) in transaction.operations.iter().zip(replies.iter()) {
                if let (Some(token), OperationReply::Written { .. }) = (token_of_put(&operation), reply) {
                    *executed.entry(token).or_default() += 1;
                }
            }
        }
    }
    executed
}

/// The token that a put of a plain key names in its value.
fn token_of_put(operation: &Asked<'_>) -> Option<Token> {
    match operation {
        Asked::Put { key, value, .. } if !is_compound(key) => token_of(value),
        _ => None,
    }
}

/// A shard's replayed log.
struct ReplayedKeys {
    /// For each client command, how many commands had been applied after it.
    places: BTreeMap<Token, usize>,
    /// The first outcomes of transactions with an id.
    outcomes: BTreeMap<Token, Reply>,
    past: Past,
}

fn judge_writes(
    history: &History,
    ledger: &Ledger,
    (shard, writes): (ShardId, &[Write]),
) -> Result<ReplayedKeys, Violation> {
    let mut judged = ReplayedKeys { places: BTreeMap::new(), outcomes: BTreeMap::new(), past: Past::new() };
    let mut model = ShardModel::default();
    let mut order = LogOrder::default();
    for (place, write) in (1..).zip(writes) {
        if let Write::Expire { now, .. } = write
            && !ledger.was_shown(*now)
        {
            let text = format!("keys of shard {shard} went by {now}, which no clock has shown");
            return Err(Violation::new(JUDGE.checker, text));
        }
        if is_relative(write) {
            let text = format!("the log of shard {shard} holds a time that depends on a clock: {write:?}");
            return Err(Violation::new(JUDGE.checker, text));
        }
        let before = model.keys.clone();
        let expected = model.apply(write);
        remember(&mut judged.past, place, &before, &model);
        // Otherwise it was retried on another shard.
        let Ok(expected) = expected else { continue };
        let Some(operation) = named_in(write).and_then(|token| history.operation(token)) else { continue };
        let by_leader = |time| ledger.was_shown_to_proposer((shard, place - 1), time);
        let is_asked = operation.write().is_some_and(|asked| is_same(asked, write, &by_leader));
        if is_asked && model.has_repeated {
            continue;
        }
        if !is_asked || judged.places.insert(operation.token, place).is_some() {
            return JUDGE.blame(operation, format!("stands in the log otherwise, or twice: {write:?}"));
        }
        if is_identified(write)
            && let Some(reply) = expected
        {
            judged.outcomes.insert(operation.token, reply);
            JUDGE.judge_order(&mut order, operation)?;
            continue;
        }
        match operation.reply() {
            None | Some(Reply::Refused(_)) => {}
            reply if reply == expected.as_ref() => {}
            reply => {
                let text = format!("was answered {reply:?}, and the log says {expected:?}");
                return JUDGE.blame(operation, text);
            }
        }
        JUDGE.judge_order(&mut order, operation)?;
    }
    Ok(judged)
}

/// Checks that a transaction with an id happened at most once, whichever of its repetitions was
/// first, and that each of them was answered with the same outcome.
fn judge_repetitions(history: &History, outcomes: &BTreeMap<Token, Reply>) -> Result<(), Violation> {
    let mut refused: BTreeMap<Token, bool> = BTreeMap::new();
    for operation in history.operations() {
        let Some(token) = operation.write().filter(|write| is_identified(write)).and_then(token_in) else {
            continue;
        };
        let outcome = outcomes.get(&token);
        let was_refused = match operation.reply() {
            None | Some(Reply::Refused(Refusal::UnknownOutcome)) => false,
            Some(reply) if is_refused(reply) => true,
            reply if reply == outcome => false,
            reply => {
                let text = format!("was answered {reply:?}, and the first outcome of its id is {outcome:?}");
                return JUDGE.blame(operation, text);
            }
        };
        let are_refused = refused.entry(token).or_insert(true);
        *are_refused &= was_refused;
    }
    match refused.iter().find(|(token, are_refused)| **are_refused && outcomes.contains_key(token)) {
        Some((token, _)) => {
            let text = format!(
                "every request for the transaction of operation {token} was refused, and it happened"
            );
            Err(Violation::new(JUDGE.checker, text))
        }
        None => Ok(()),
    }
}

/// Whether a command holds a time to live instead of the time at which it ends.
fn is_relative(write: &Write) -> bool {
    let [first, second] = match write {
        Write::Keys(transaction) => [Some(&transaction.operations), None],
        Write::Conditional(transaction) => [Some(&transaction.then), Some(&transaction.otherwise)],
        _ => [None, None],
    };
    first.into_iter().chain(second).flat_map(Operations::iter).any(|operation| {
        matches!(operation, Asked::ExpireAfter { .. } | Asked::Set(Set { expiry: Expiry::After(_), .. }))
    })
}

/// Whether a command of the log is the one that was requested; its shard follows from its keys.
/// `by_leader` says whether the clock of the leader that proposed it showed a time.
fn is_same(asked: &Write, logged: &Write, by_leader: &impl Fn(UnixMillis) -> bool) -> bool {
    match (asked, logged) {
        (Write::Keys(asked), Write::Keys(logged)) => {
            asked.watches == logged.watches
                && are_same_operations((&asked.operations, &logged.operations), by_leader)
        }
        (Write::Conditional(asked), Write::Conditional(logged)) => {
            let by_id = match (&asked.id, &logged.id) {
                (None, None) => true,
                (Some(asked), Some(logged)) => {
                    (&asked.name, asked.digest) == (&logged.name, logged.digest) && by_leader(logged.proposed)
                }
                _ => false,
            };
            by_id
                && asked.comparisons == logged.comparisons
                && are_same_operations((&asked.then, &logged.then), by_leader)
                && are_same_operations((&asked.otherwise, &logged.otherwise), by_leader)
        }
        (Write::Lease(_) | Write::Lock(_), _) => {
            leases::proposed_at(logged).is_none_or(by_leader)
                && leases::without_time(asked) == leases::without_time(logged)
        }
        _ => asked == logged,
    }
}

fn are_same_operations(
    (asked, logged): (&Operations, &Operations),
    by_leader: &impl Fn(UnixMillis) -> bool,
) -> bool {
    let mut pairs = asked.iter().zip(logged.iter());
    asked.len() == logged.len() && pairs.all(|(asked, logged)| is_same_operation(asked, logged, by_leader))
}

/// As [`is_same`]. In the log a time to live is the time at which it ends, or 0 if that has passed.
fn is_same_operation(asked: Asked<'_>, logged: Asked<'_>, by_leader: &impl Fn(UnixMillis) -> bool) -> bool {
    let counted = |after_ms: u64, at: UnixMillis| {
        at.0.checked_sub(after_ms).is_some_and(|proposed| by_leader(UnixMillis(proposed)))
    };
    match (asked, logged) {
        (
            Asked::Set(asked @ Set { expiry: Expiry::After(after_ms), .. }),
            Asked::Set(logged @ Set { expiry: Expiry::At(at), .. }),
        ) => counted(after_ms, at) && asked == Set { expiry: asked.expiry, ..logged },
        (
            Asked::Set(asked @ Set { expiry: Expiry::At(_), .. }),
            Asked::Set(logged @ Set { expiry: Expiry::At(UnixMillis(0)), .. }),
        ) => asked == Set { expiry: asked.expiry, ..logged },
        (
            Asked::ExpireAfter { key, after_ms, condition },
            Asked::Expire { key: logged_key, at: Some(at), condition: logged_condition },
        ) => counted(after_ms, at) && (key, condition) == (logged_key, logged_condition),
        (
            Asked::Expire { key, at: Some(_), condition },
            Asked::Expire { key: logged_key, at: Some(UnixMillis(0)), condition: logged_condition },
        ) => (key, condition) == (logged_key, logged_condition),
        _ => asked == logged,
    }
}

fn remember(past: &mut Past, place: usize, before: &BTreeMap<Bytes, Held>, model: &ShardModel) {
    for key in before.keys().chain(model.keys.keys()) {
        if before.get(key) != model.keys.get(key) {
            let states = past.entry(key.clone()).or_default();
            let state = model.keys.get(key).cloned();
            if states.last().is_none_or(|(last, _)| *last != place) {
                states.push((place, state));
            }
        }
    }
}

#[cfg(test)]
mod tests;
