//! Checks namespaces that are created and deleted: a model, independent of the core, replays the
//! committed log, which must explain every answer.
//!
//! The history of a healed cluster does not contain deleted namespaces, but the log does. The log
//! is compared with what clients and watchers saw:
//!
//! 1. An acknowledged command is in the log once and in the order of real time; a refused one is
//!    not in the log.
//! 2. Each answer is the model's answer at that log position, also for deletions that are refused
//!    because of content, or forced.
//! 3. Each read follows from a state between two commands, of one life of the namespace: neither
//!    content nor history of an earlier life comes back.
//! 4. Watchers receive each life's changes once and in order.

mod model;

use std::collections::BTreeMap;

use tidelock_core::command::config::{ConfigError, ConfigReply, Name, Query};
use tidelock_core::command::{ConfigWrite, Consistency, Read, Refusal, Reply, Request, Write};
use tidelock_core::types::{ShardId, Token};

use super::Violation;
use super::config::{ConfigState, checksum_holds};
use super::operations::Ledger;
use crate::config::is_fleeting;
use crate::history::{History, Moment, Operation};
use crate::watcher::Watcher;
use model::{Expected, Lifetime, NamespaceModel};

const CHECKER: &str = "lives";

/// Judges all namespaces that are created and deleted.
pub fn check(history: &History, ledger: &Ledger, watchers: &[Watcher]) -> Result<(), Violation> {
    let mut done = BTreeMap::new();
    for (shard, writes) in ledger.shards() {
        let judged = judge_writes(history, (shard, writes))?;
        for name in judged.model.names() {
            judge_reads(history, name, &judged)?;
            for watcher in watchers.iter().filter(|watcher| watcher.namespace == *name) {
                judge_watcher(watcher, judged.model.lives(name))?;
            }
        }
        done.extend(judged.places);
    }
    for (operation, _) in fleeting_writes(history) {
        let stands = done.contains_key(&operation.token);
        match operation.reply() {
            None | Some(Reply::Refused(Refusal::UnknownOutcome)) => {}
            Some(Reply::Refused(_)) if stands => {
                return blame(operation, "was refused and stands in the log");
            }
            Some(Reply::Refused(_)) => {}
            Some(_) if !stands => return blame(operation, "was answered and stands in no log"),
            Some(_) => {}
        }
    }
    Ok(())
}

fn fleeting_writes(history: &History) -> impl Iterator<Item = (&Operation, &ConfigWrite)> {
    history.operations().iter().filter_map(|operation| match operation.write() {
        Some(Write::Config(write)) if is_fleeting(&write.namespace) => Some((operation, &**write)),
        _ => None,
    })
}

/// A shard's replayed log.
struct ReplayedConfig {
    model: NamespaceModel,
    /// For each client command, how many commands had been applied after it.
    places: BTreeMap<Token, usize>,
    commands: usize,
}

fn judge_writes(
    history: &History,
    (shard, writes): (ShardId, &[Write]),
) -> Result<ReplayedConfig, Violation> {
    let mut judged =
        ReplayedConfig { model: NamespaceModel::default(), places: BTreeMap::new(), commands: writes.len() };
    // The latest request among the commands further back in the log.
    let mut latest: Option<&Operation> = None;
    for (place, write) in (1..).zip(writes) {
        let Write::Config(write) = write else { continue };
        if !is_fleeting(&write.namespace) {
            continue;
        }
        let expected = judged.model.apply(place, write);
        let token = write.stamp.author.parse().map(Token);
        let Some(operation) = token.ok().and_then(|token| history.operation(token)) else {
            return Err(Violation::new(
                CHECKER,
                format!("shard {shard} has a command that no client sent: {write:?}"),
            ));
        };
        let is_ours = matches!(operation.write(), Some(Write::Config(asked)) if asked == write);
        if !is_ours || judged.places.insert(operation.token, place).is_some() {
            return blame(operation, format!("stands in the log otherwise, or twice: {write:?}"));
        }
        match (operation.reply(), expected) {
            (None | Some(Reply::Refused(_)), _) => {}
            (Some(Reply::Config(ConfigReply::Failed(_))), Expected::Failed) => {}
            (Some(Reply::Config(ConfigReply::Done { revision, changed })), Expected::Done(done))
                if (*revision, *changed) == done => {}
            (reply, expected) => {
                return blame(operation, format!("was answered {reply:?}, and the log says {expected:?}"));
            }
        }
        if let Some(latest) = latest
            && latest.invoked > settled(operation)
        {
            let text = format!("was answered before operation {} began, and stands behind it", latest.token);
            return blame(operation, text);
        }
        if latest.is_none_or(|latest| operation.invoked > latest.invoked) {
            latest = Some(operation);
        }
    }
    Ok(judged)
}

/// Finds a place for each read, the earliest one, in the order of their answers.
fn judge_reads(history: &History, name: &Name, judged: &ReplayedConfig) -> Result<(), Violation> {
    let mut reads: Vec<(&Operation, &Query, &ConfigReply, bool)> = Vec::new();
    for operation in history.operations() {
        if let (Request::Read { read: Read::Config(read), consistency }, Some(Reply::Config(reply))) =
            (&operation.request, operation.reply())
            && read.namespace == *name
            // Only watchers send this read, through a node without a replica; their events are
            // judged separately.
            && !matches!(read.query, Query::Changes { .. })
        {
            reads.push((operation, &read.query, reply, *consistency == Consistency::Stale));
        }
    }
    reads.sort_by_key(|(operation, ..)| operation.completed());
    let writes: Vec<(&Operation, usize)> = fleeting_writes(history)
        .filter(|(_, write)| write.namespace == *name)
        .filter_map(|(operation, _)| Some((operation, *judged.places.get(&operation.token)?)))
        .collect();
    let mut placed: Vec<(Moment, usize)> = Vec::new();
    for (operation, query, reply, is_stale) in reads {
        let answered = writes.iter().filter(|(write, _)| settled(write) < operation.invoked);
        let read_before = placed.iter().filter(|(completed, _)| *completed < operation.invoked);
        let fresh = answered.map(|(_, place)| *place).chain(read_before.map(|(_, place)| *place)).max();
        let low = if is_stale { 0 } else { fresh.unwrap_or(0) };
        let asked_later = writes.iter().filter(|(write, _)| write.invoked > operation.completed());
        let high = asked_later.map(|(_, place)| place - 1).min().unwrap_or(judged.commands);
        let mut states = judged.model.states(name, low..=high);
        match states.find(|(_, state)| explains(*state, query, reply)) {
            Some((place, _)) if !is_stale => placed.push((operation.completed(), place)),
            Some(_) => {}
            None => {
                let text = format!("was answered {reply:?}, which no state from {low} to {high} explains");
                return blame(operation, text);
            }
        }
    }
    Ok(())
}

/// Whether an answer follows from a namespace at one of its revisions, or from its absence.
fn explains(state: Option<(&Lifetime, u64)>, query: &Query, reply: &ConfigReply) -> bool {
    let Some((life, newest)) = state else {
        return *reply == ConfigReply::Failed(ConfigError::NoNamespace);
    };
    let at = match query {
        Query::Pair { at, .. } | Query::Container { at, .. } | Query::Export { at } => *at,
        _ => None,
    };
    let Some(content) = life.at(at.unwrap_or(newest), newest) else {
        return matches!(reply, ConfigReply::Failed(ConfigError::NoRevision { .. }));
    };
    let revision = at.unwrap_or(newest);
    match (query, reply) {
        (Query::Namespace, ConfigReply::Namespace(view)) => {
            let counts = (content.pairs.len() as u64, content.containers.len() as u64);
            (view.revision, view.oldest) == (newest, life.oldest(newest))
                && (view.pairs, view.containers) == counts
        }
        (Query::Pairs(_), ConfigReply::Pairs { revision, total, items }) => {
            let items = items.iter().map(|(key, pair)| (key.clone(), pair.value.clone()));
            *revision == newest && *total == content.pairs.len() && content.pairs == items.collect()
        }
        (Query::Pair { key, .. }, ConfigReply::Pair { revision: found, pair }) => {
            *found == revision && content.pairs.get(key) == Some(&pair.value)
        }
        (Query::Pair { key, .. }, ConfigReply::Failed(ConfigError::NoPair(missing))) => {
            missing == key && !content.pairs.contains_key(key)
        }
        (Query::Container { key, .. }, ConfigReply::Container(found)) => {
            found.revision == revision
                && content.document(key) == Some(found.document())
                && checksum_holds(found)
        }
        (Query::Container { key, .. }, ConfigReply::Failed(ConfigError::NoContainer(missing))) => {
            missing == key && !content.containers.contains_key(key)
        }
        (Query::History { before: None, limit, .. }, ConfigReply::History(page)) => {
            let numbers = (life.oldest(newest)..=newest).rev().take(*limit);
            let listed = page.revisions.iter().map(|view| (view.number, view.stamp.author.parse().ok()));
            (page.revision, page.oldest) == (newest, life.oldest(newest))
                && listed.eq(numbers.map(|number| (number, life.author(number))))
        }
        (Query::Export { .. }, ConfigReply::Export(export)) => {
            export.revision == revision && *content == ConfigState::of(&export.pairs, &export.containers)
        }
        _ => false,
    }
}

/// Checks that a watcher received each document of the container in each life, each change once and
/// in order.
fn judge_watcher(watcher: &Watcher, lives: &[Lifetime]) -> Result<(), Violation> {
    let key = &watcher.container;
    let blame = |text: String| {
        let text = format!("a watcher of {key} in namespace {} {text}", watcher.namespace);
        Err(Violation::new(CHECKER, text))
    };
    if let Some(two) = watcher.received.windows(2).find(|two| two[0].revision >= two[1].revision) {
        return blame(format!("received revision {} before {}", two[0].revision, two[1].revision));
    }
    for event in &watcher.received {
        let Some(life) = lives.iter().find(|life| life.contains(event.revision)) else {
            return blame(format!("received a revision of no lifetime: {event:?}"));
        };
        let document = life.content(event.revision).and_then(|content| content.document(key));
        // A watcher that knows an earlier life learns with the first revision that the container
        // was deleted with that life.
        let is_end = event.revision == life.first() && document.is_none();
        let is_change = life.changes(key).any(|(revision, _)| revision == event.revision);
        if document != event.document || !(event.after_gap || is_change || is_end) {
            return blame(format!("received a wrong document: {event:?}"));
        }
    }
    for life in lives {
        let received: Vec<_> =
            watcher.received.iter().filter(|event| life.contains(event.revision)).collect();
        let Some(last) = received.last() else { continue };
        let gap =
            received.iter().filter(|event| event.after_gap).map(|event| event.revision).max().unwrap_or(0);
        let expected = life.changes(key).map(|(revision, _)| revision);
        for revision in expected.filter(|revision| (gap + 1..=last.revision).contains(revision)) {
            if !received.iter().any(|event| event.revision == revision) {
                return blame(format!("did not receive revision {revision}"));
            }
        }
    }
    Ok(())
}

/// When a command had certainly been applied. One of unknown outcome may be applied at any later
/// time.
fn settled(operation: &Operation) -> Moment {
    match operation.reply() {
        None | Some(Reply::Refused(_)) => Moment::NEVER,
        Some(_) => operation.completed(),
    }
}

fn blame<T>(operation: &Operation, text: impl std::fmt::Display) -> Result<T, Violation> {
    let text = format!("operation {} on node {} {text}", operation.token, operation.at.node);
    Err(Violation::new(CHECKER, text))
}

#[cfg(test)]
mod tests;
