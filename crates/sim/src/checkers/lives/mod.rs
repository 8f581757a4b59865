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

mod inheritance;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock_core::clients::watcher::WatchScope;
use tidelock_core::command::config::{
    ConfigError, ConfigOperation, ConfigReply, ConfigWritten, Draft, Name, Pair, Preview, Query, Stamp,
};
use tidelock_core::command::{ConfigWrite, Consistency, Read, ReadReply, Reply, Request, Write, WriteReply};
use tidelock_core::types::{ShardId, Token};

use super::config::previews::predict;
use super::config::{ConfigState, checksum_holds, search};
use super::namespace_watches::{self, KnownIncarnation};
use super::operations::Ledger;
use super::replay::{AnsweredRead, LogJudge, LogOrder, judge_event_order, judge_missing_events, watches};
use super::{Checker, FinishedRun, Violation};
use crate::config::{is_fleeting, is_inheriting};
use crate::history::{History, Operation};
use crate::watcher::{WatchedContent, WatchingClient};
use inheritance::DraftModel;
use model::{Expected, Lifetime, NamespaceModel, NamespaceView};

const JUDGE: LogJudge = LogJudge { checker: "lives" };

/// The answer to a read.
type Answer = Result<ConfigReply, ConfigError>;

/// Judges namespaces that are created and deleted, unless slots move.
pub struct NamespaceLives;

impl Checker for NamespaceLives {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        if run.ownership()?.has_moves() {
            return Ok(());
        }
        check(run.history, (run.ledger, run.is_mixed), run.watchers)
    }
}

/// Judges all namespaces that are created and deleted.
pub fn check(
    history: &History,
    (ledger, is_mixed): (&Ledger, bool),
    watchers: &[WatchingClient],
) -> Result<(), Violation> {
    let mut done = BTreeMap::new();
    for (shard, writes) in ledger.shards() {
        let judged = judge_writes(history, (shard, writes), is_mixed)?;
        for name in judged.model.names() {
            judge_reads(history, name, &judged)?;
            for watcher in watchers.iter().filter(|watcher| watcher.namespace == *name) {
                let mut watches = watches(&watcher.received);
                watches
                    .try_for_each(|watch| match watcher.label {
                        "" => judge_watch(&watcher.scope, watch, (name, &judged.model)),
                        label => judge_labelled_watch((&watcher.scope, label), watch, (name, &judged.model)),
                    })
                    .map_err(|text| {
                        let text = format!("a watcher of {:?} in namespace {name} {text}", watcher.scope);
                        Violation::new(JUDGE.checker, text)
                    })?;
            }
        }
        done.extend(judged.places);
    }
    for (operation, _) in fleeting_writes(history) {
        JUDGE.judge_presence(operation, done.contains_key(&operation.token))?;
    }
    Ok(())
}

fn fleeting_writes(history: &History) -> impl Iterator<Item = (&Operation, &ConfigWrite)> {
    history.operations().iter().filter_map(|operation| match operation.write() {
        Some(Write::Config(write)) if is_judged(&write.namespace) => Some((operation, &**write)),
        _ => None,
    })
}

/// Whether a namespace is judged by the log.
fn is_judged(name: &Name) -> bool {
    is_fleeting(name) || is_inheriting(name)
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
    is_mixed: bool,
) -> Result<ReplayedConfig, Violation> {
    let mut judged =
        ReplayedConfig { model: NamespaceModel::default(), places: BTreeMap::new(), commands: writes.len() };
    let mut order = LogOrder::default();
    for (place, write) in (1..).zip(writes) {
        let Write::Config(write) = write else { continue };
        if !is_judged(&write.namespace) {
            continue;
        }
        let expected = judged.model.apply(place, write);
        let token = write.stamp.author.parse().map(Token);
        let Some(operation) = token.ok().and_then(|token| history.operation(token)) else {
            let text = format!("shard {shard} has a command that no client sent: {write:?}");
            return Err(Violation::new(JUDGE.checker, text));
        };
        let is_ours =
            matches!(operation.write(), Some(Write::Config(asked)) if is_logged_as(asked, write, is_mixed));
        if !is_ours || judged.places.insert(operation.token, place).is_some() {
            return JUDGE.blame(operation, format!("stands in the log otherwise, or twice: {write:?}"));
        }
        match (operation.reply(), expected) {
            (None | Some(Reply::Refused(_)), _) => {}
            (Some(Reply::Write(WriteReply::Config(Err(_)))), Expected::Failed) => {}
            (
                Some(Reply::Write(WriteReply::Config(Ok(ConfigWritten { revision, changed })))),
                Expected::Done(done),
            ) if (*revision, *changed) == done => {}
            (reply, expected) => {
                return JUDGE
                    .blame(operation, format!("was answered {reply:?}, and the log says {expected:?}"));
            }
        }
        JUDGE.judge_order(&mut order, operation)?;
    }
    Ok(judged)
}

/// Finds a place for each read, the earliest one, in the order of their answers.
fn judge_reads(history: &History, name: &Name, judged: &ReplayedConfig) -> Result<(), Violation> {
    let mut reads = Vec::new();
    for operation in history.operations() {
        if let (
            Request::Read { read: Read::Config(read), consistency },
            Some(Reply::Read(ReadReply::Config(reply))),
        ) = (&operation.request, operation.reply())
            && read.namespace == *name
            && !is_of_watcher(&read.query)
        {
            let is_stale = *consistency == Consistency::Stale;
            reads.push(AnsweredRead { operation, read: (&read.query, reply), is_stale });
        }
    }
    let writes: Vec<(&Operation, usize)> = fleeting_writes(history)
        .filter(|(_, write)| write.namespace == *name)
        .filter_map(|(operation, _)| Some((operation, *judged.places.get(&operation.token)?)))
        .collect();
    JUDGE.place_reads(reads, &writes, judged.commands, |places, (query, reply)| {
        let mut states = judged.model.states(name, places);
        states.find(|(_, state)| explains(*state, query, reply)).map(|(place, _)| place)
    })
}

/// Whether only watchers send a query, through a node without a replica. Their events are judged
/// separately.
fn is_of_watcher(query: &Query) -> bool {
    match query {
        Query::Labelled { query, .. } => is_of_watcher(query),
        query => matches!(query, Query::Changes { .. } | Query::NamespaceChanges { .. }),
    }
}

/// Whether an answer follows from a namespace at one of its revisions, or from its absence.
fn explains(state: Option<NamespaceView<'_>>, query: &Query, answer: &Answer) -> bool {
    if let Query::Preview(asked) = query {
        return explains_preview(state, asked, answer);
    }
    let Some(view) = state else {
        return *answer == Err(ConfigError::NoNamespace);
    };
    if let Some(is_explained) = explains_review(view, query, answer) {
        return is_explained;
    }
    let NamespaceView { life, newest, .. } = view;
    let at = match query {
        Query::Pair { at, .. } | Query::Container { at, .. } | Query::Export { at } => *at,
        _ => None,
    };
    let Some(content) = life.at(at.unwrap_or(newest), newest) else {
        return matches!(answer, Err(ConfigError::NoRevision { .. }));
    };
    let revision = at.unwrap_or(newest);
    match (query, answer) {
        (Query::Namespace, Ok(ConfigReply::Namespace(view))) => {
            let counts = (content.pairs.len() as u64, content.containers.len() as u64);
            (view.revision, view.oldest) == (newest, life.oldest(newest))
                && (view.pairs, view.containers) == counts
        }
        (Query::Pairs(_), Ok(ConfigReply::Pairs { revision, total, items })) => {
            let items = items.iter().map(|(key, pair)| (key.clone(), pair.value.to_value()));
            *revision == newest && *total == content.pairs.len() && content.pairs == items.collect()
        }
        (Query::Pair { key, .. }, Ok(ConfigReply::Pair { revision: found, pair })) => {
            *found == revision && content.pairs.get(key) == Some(&pair.value)
        }
        (Query::Pair { key, .. }, Err(ConfigError::NoPair(missing))) => {
            missing == key && !content.pairs.contains_key(key)
        }
        (Query::Container { key, .. }, Ok(ConfigReply::Container(found))) => {
            found.revision == revision
                && content.document(key) == Some(found.document())
                && checksum_holds(found)
        }
        (Query::Search(search), Ok(ConfigReply::Search(page))) => {
            page.revision == newest
                && page.next.is_none()
                && search::finds(content, &search.text, &page.matches)
        }
        (Query::Users { key }, Ok(ConfigReply::Users { revision, containers })) => {
            *revision == newest && content.pairs.contains_key(key) && *containers == content.users_of(key)
        }
        (Query::Users { key }, Err(ConfigError::NoPair(missing))) => {
            missing == key && !content.pairs.contains_key(key)
        }
        (Query::Blame { key }, Ok(ConfigReply::Blame(blame))) => {
            let is_of = |pair: &Pair| life.stamp(pair.revision) == blame.stamps.get(&pair.revision);
            blame.found.revision == newest
                && content.document(key) == Some(blame.found.document())
                && blame.found.pairs.values().all(|pair| pair.revision < life.oldest(newest) || is_of(pair))
        }
        (Query::Container { key, .. } | Query::Blame { key }, Err(ConfigError::NoContainer(missing))) => {
            missing == key && !content.containers.contains_key(key)
        }
        (Query::History { before: None, limit, .. }, Ok(ConfigReply::History(page))) => {
            let numbers = (life.oldest(newest)..=newest).rev().take(*limit);
            let listed = page.revisions.iter().map(|view| (view.number, Some(&view.stamp)));
            (page.revision, page.oldest) == (newest, life.oldest(newest))
                && listed.eq(numbers.map(|number| (number, life.stamp(number))))
        }
        (Query::Export { .. }, Ok(ConfigReply::Export(export))) => {
            export.revision == revision && *content == ConfigState::of(&export.pairs, &export.containers)
        }
        _ => false,
    }
}

/// Whether an answer about relations, drafts or a canary follows from a namespace; `None`: it is
/// about something else.
fn explains_review(view: NamespaceView<'_>, query: &Query, answer: &Answer) -> Option<bool> {
    let NamespaceView { life, newest, settings } = view;
    Some(match (query, answer) {
        (Query::Inheritance, Ok(ConfigReply::Inheritance(shown))) => {
            let canary = life.canary(newest).map(|canary| (&canary.draft, &canary.audience));
            shown.revision == newest
                && shown.parents == settings.parents
                && shown.is_protected == settings.is_protected
                && shown.canary.as_ref().map(|(draft, audience)| (draft, audience)) == canary
        }
        (Query::Drafts, Ok(ConfigReply::Drafts { revision, drafts })) => {
            let names = drafts.iter().map(|(name, _)| name);
            let is_right = |(shown, known): (&Arc<Draft>, &DraftModel)| known.is_shown_as(shown);
            *revision == newest
                && names.eq(settings.drafts.keys())
                && drafts.iter().map(|(_, draft)| draft).zip(settings.drafts.values()).all(is_right)
        }
        (Query::Labelled { label, query }, answer) => {
            let Query::Container { key, at: None, .. } = &**query else { return Some(false) };
            let document = life.content_for(label, newest).and_then(|content| content.document(key));
            match answer {
                Ok(ConfigReply::Container(found)) => {
                    found.revision == newest && document == Some(found.document()) && checksum_holds(found)
                }
                Err(ConfigError::NoContainer(missing)) => missing == key && document.is_none(),
                _ => false,
            }
        }
        _ => return None,
    })
}

/// Whether a preview shows what the model would do in this state.
fn explains_preview(state: Option<NamespaceView<'_>>, asked: &Preview, answer: &Answer) -> bool {
    let revision = state.map_or(0, |view| view.newest);
    let before = state.and_then(|view| view.life.content(view.newest)).cloned().unwrap_or_default();
    match (model::previewed(state, asked), answer) {
        (None, Err(_)) => true,
        (Some(after), Ok(ConfigReply::Preview(shown))) => {
            let is_made = state.is_none() || matches!(asked.operation, ConfigOperation::Delete { .. });
            (shown.revision, shown.changed) == (revision, is_made || after != before)
                && predict(&before, shown).is_ok_and(|predicted| predicted == after)
        }
        _ => false,
    }
}

/// Checks that a client with a label received, by rising revisions, only documents that its label
/// saw. When the cluster has healed, it is checked that it knows the present documents.
fn judge_labelled_watch(
    (scope, label): (&WatchScope, &str),
    watch: &[WatchedContent],
    (name, model): (&Name, &NamespaceModel),
) -> Result<(), String> {
    let lives = model.lives(name);
    let mut last = 0;
    for event in watch {
        let is_part = event.position.is_state || event.is_current || event.after_gap;
        if event.revision == 0 || event.begins {
            last = 0;
        }
        if event.revision < last && !is_part {
            return Err(format!("received an event of an earlier revision than {last}: {event:?}"));
        }
        last = last.max(event.revision);
        let key = match (scope, &event.container) {
            (WatchScope::Container(key), _) => key,
            (WatchScope::Namespace, Some(key)) if !key.is_empty() => key,
            _ => continue,
        };
        let Some(life) = lives.iter().find(|life| life.contains(event.revision)) else { continue };
        // A part of a state is as of the revision of the state.
        let revisions = [event.revision, event.position.revision];
        let saw = |revision: &u64| {
            life.content_for(label, *revision).and_then(|content| content.document(key)) == event.document
        };
        if !revisions.iter().any(saw) {
            return Err(format!(
                "with the label {label:?} received a document that it did not see: {event:?}"
            ));
        }
    }
    Ok(())
}

/// Checks that a watch received each document in each life, each change once and in order, and no
/// deletion of the namespace that did not happen.
fn judge_watch(
    scope: &WatchScope,
    watch: &[WatchedContent],
    (name, model): (&Name, &NamespaceModel),
) -> Result<(), String> {
    let lives = model.lives(name);
    let WatchScope::Container(key) = scope else {
        let lives: Vec<KnownIncarnation> = lives.iter().map(Lifetime::known).collect();
        return namespace_watches::judge(watch, &lives, model.exists(name));
    };
    judge_event_order(watch)?;
    let last_life = lives.last().filter(|_| model.exists(name));
    for two in watch.windows(2).filter(|two| two[1].revision == 0) {
        if last_life.is_some_and(|life| life.contains(two[0].revision)) {
            return Err(format!("received that the namespace was deleted after {:?}, and it exists", two[0]));
        }
    }
    for event in watch.iter().filter(|event| event.revision > 0) {
        let Some(life) = lives.iter().find(|life| life.contains(event.revision)) else {
            return Err(format!("received a revision of no lifetime: {event:?}"));
        };
        let document = life.content(event.revision).and_then(|content| content.document(key));
        // A watcher that knows an earlier life learns with the first revision that the container
        // was deleted with that life.
        let is_end = event.revision == life.first() && document.is_none();
        let is_change = life.changes(key).any(|(revision, _)| revision == event.revision);
        let is_present_state = event.after_gap && event.document.is_none();
        if document != event.document || !(is_present_state || is_change || is_end) {
            return Err(format!("received a wrong document: {event:?}"));
        }
    }
    for life in lives {
        let received: Vec<_> = watch.iter().filter(|event| life.contains(event.revision)).collect();
        judge_missing_events(&received, life.changes(key).map(|(revision, _)| revision))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

/// Whether the log may hold a write as `logged`. A cluster of an earlier version drops the name
/// that the client of a principal states.
fn is_logged_as(asked: &ConfigWrite, logged: &ConfigWrite, is_mixed: bool) -> bool {
    let without_name = || {
        let stamp = Stamp { on_behalf_of: "".into(), ..asked.stamp.clone() };
        ConfigWrite { stamp, ..asked.clone() }
    };
    logged == asked || is_mixed && *logged == without_name()
}
