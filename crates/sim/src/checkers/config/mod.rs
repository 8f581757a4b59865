//! Checks that configuration follows its history: every revision is one client's change, in an
//! order that agrees with real time, and every read and watcher saw exactly these revisions.
//!
//! The history of a healed cluster names the author of every kept revision, and authors are tokens.
//! So nothing has to be guessed: each kept revision is compared with its author's request,
//! acknowledged changes must be there, refused ones must not, and the states in between follow.
//! Revisions that are no longer kept are only judged by their numbers.

mod imports;
pub(super) mod previews;
pub(super) mod search;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock_core::clients::watcher::WatchScope;
use tidelock_core::command::config::{
    Action, Blame, Change, ChangeView, ConfigOperation, ConfigPreview, ConfigReply, ConfigWritten, Content,
    Datatype, Item, Name, Query, RevisionView, Schema, Value,
};
use tidelock_core::command::config::{Container, Found, Pair, Refers};
use tidelock_core::command::{ConfigWrite, Consistency, Read, ReadReply, Reply, Request, Write, WriteReply};
use tidelock_core::types::Token;

use super::namespace_watches::{self, KnownIncarnation};
use super::replay::{judge_event_order, judge_missing_events, watches};
use super::{Checker, FinishedRun, Violation};
use crate::config::{ClientSchema, is_fleeting, is_inheriting};
use crate::history::{Happened, History, ImportedDocument, Incarnation, Moment, Operation};
use crate::watcher::{WatchedContent, WatchingClient};

const CHECKER: &str = "config";

/// Judges configuration by its revisions.
pub struct Configuration;

impl Checker for Configuration {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.history, run.watchers, run.imports)
    }
}

/// Checks the changes, reads, watchers and successful imports of every namespace against each
/// other. `lives` judges namespaces that inherit from each other.
pub fn check(
    history: &History,
    watchers: &[WatchingClient],
    imports: &[ImportedDocument],
) -> Result<(), Violation> {
    let mut namespaces: BTreeMap<Name, Account> = BTreeMap::new();
    for operation in history.operations() {
        match &operation.request {
            Request::Write(Write::Config(write)) if !is_inheriting(&write.namespace) => {
                namespaces.entry(write.namespace.clone()).or_default().write(operation, write)?;
            }
            Request::Read { read: Read::Config(read), consistency } if !is_inheriting(&read.namespace) => {
                let account = namespaces.entry(read.namespace.clone()).or_default();
                account.read(operation, &read.query, *consistency)?;
            }
            _ => {}
        }
    }
    for (name, account) in &namespaces {
        account.judge_order(name)?;
        let states = account.replay(name, history)?;
        imports::judge(name, account, imports, &states)?;
        account.judge_reads(name, &states)?;
        previews::judge(name, account, &states)?;
        for watcher in watchers.iter().filter(|watcher| watcher.namespace == *name) {
            watches(&watcher.received)
                .try_for_each(|watch| judge_watch(&watcher.scope, watch, (name, &states)))
                .or_else(|text| violation(name, format!("a watcher of {:?} {text}", watcher.scope)))?;
        }
    }
    Ok(())
}

fn violation<T>(name: &Name, text: impl std::fmt::Display) -> Result<T, Violation> {
    Err(Violation::new(CHECKER, format!("namespace {name}: {text}")))
}

/// All requests and replies about one namespace.
#[derive(Default)]
struct Account<'a> {
    writes: BTreeMap<Token, (&'a Operation, &'a ConfigWrite)>,
    /// Acknowledged changes by their revision.
    acknowledged: BTreeMap<u64, &'a Operation>,
    reads: Vec<Seen<'a>>,
    /// The history that the healed cluster returned.
    revisions: Option<Vec<RevisionView>>,
}

/// The result of a read.
struct Seen<'a> {
    operation: &'a Operation,
    reply: &'a ConfigReply,
    query: &'a Query,
    revision: u64,
    /// The revision is the replica's newest one, not one that the request named.
    is_newest: bool,
    is_stale: bool,
}

impl<'a> Account<'a> {
    fn write(&mut self, operation: &'a Operation, write: &'a ConfigWrite) -> Result<(), Violation> {
        self.writes.insert(operation.token, (operation, write));
        let is_deletion = matches!(write.operation, ConfigOperation::Delete { .. });
        if let Some(Reply::Write(WriteReply::Config(Ok(ConfigWritten { revision, changed: true })))) =
            operation.reply()
            && !is_deletion
            && let Some(other) = self.acknowledged.insert(*revision, operation)
        {
            let text =
                format!("operations {} and {} both made revision {revision}", other.token, operation.token);
            return violation(&write.namespace, text);
        }
        Ok(())
    }

    fn read(
        &mut self,
        operation: &'a Operation,
        query: &'a Query,
        consistency: Consistency,
    ) -> Result<(), Violation> {
        let Some(Reply::Read(ReadReply::Config(Ok(reply)))) = operation.reply() else { return Ok(()) };
        let revision = match reply {
            ConfigReply::Namespace(view) => view.revision,
            ConfigReply::Pairs { revision, .. } | ConfigReply::Pair { revision, .. } => *revision,
            ConfigReply::Containers { revision, .. } | ConfigReply::Unchanged { revision } => *revision,
            ConfigReply::Container(found) => found.revision,
            ConfigReply::History(page) => page.revision,
            ConfigReply::Export(export) => export.revision,
            ConfigReply::Search(page) => page.revision,
            ConfigReply::Users { revision, .. } => *revision,
            ConfigReply::Blame(blame) => blame.found.revision,
            // The namespace did not exist. `lives` judges these.
            ConfigReply::Preview(ConfigPreview { revision: 0, .. }) => return Ok(()),
            ConfigReply::Preview(preview) => preview.revision,
            _ => return Ok(()),
        };
        if let (ConfigReply::History(page), true) = (reply, operation.is_final) {
            self.revisions = Some(page.revisions.iter().rev().cloned().collect());
        }
        let is_newest = !matches!(
            query,
            Query::Pair { at: Some(_), .. }
                | Query::Container { at: Some(_), .. }
                | Query::Export { at: Some(_) }
        );
        let is_stale = consistency == Consistency::Stale;
        self.reads.push(Seen { operation, reply, query, revision, is_newest, is_stale });
        Ok(())
    }

    /// Checks that revision numbers rise with real time, in changes and in reads.
    fn judge_order(&self, name: &Name) -> Result<(), Violation> {
        let mut completed: Vec<(Moment, u64, Token)> = self
            .acknowledged
            .iter()
            .map(|(revision, done)| (done.completed(), *revision, done.token))
            .collect();
        completed.sort_unstable();
        // The highest revision that was acknowledged before a moment.
        let floor = |moment: Moment| {
            let before = completed.partition_point(|(at, ..)| *at < moment);
            completed[..before].iter().map(|(_, revision, token)| (*revision, *token)).max()
        };
        for (revision, done) in &self.acknowledged {
            if let Some((earlier, token)) = floor(done.invoked)
                && earlier >= *revision
            {
                let text = format!(
                    "operation {} made revision {revision} after {token} had made {earlier}",
                    done.token
                );
                return violation(name, text);
            }
        }
        let mut replicas: BTreeMap<Incarnation, Vec<(Moment, u64)>> = BTreeMap::new();
        for seen in self.reads.iter().filter(|seen| seen.is_newest) {
            let token = seen.operation.token;
            if !seen.is_stale
                && let Some((acknowledged, by)) = floor(seen.operation.invoked)
                && seen.revision < acknowledged
            {
                let text =
                    format!("read {token} saw revision {} after {by} had made {acknowledged}", seen.revision);
                return violation(name, text);
            }
            if let Some((_, later)) = self
                .acknowledged
                .range(..=seen.revision)
                .find(|(_, done)| done.invoked > seen.operation.completed())
            {
                return violation(name, format!("read {token} saw what {} was yet to do", later.token));
            }
            if seen.is_stale {
                // A stale read is answered at once, so the time of its reply is its time.
                let before = replicas.entry(seen.operation.answered_by()).or_default();
                before.push((seen.operation.completed(), seen.revision));
            }
        }
        for (replica, mut seen) in replicas {
            seen.sort_unstable();
            if let Some(two) = seen.windows(2).find(|two| two[0].1 > two[1].1) {
                return violation(
                    name,
                    format!("{replica:?} went back from revision {} to {}", two[0].1, two[1].1),
                );
            }
        }
        Ok(())
    }

    /// The kept states, each compared with its author's request.
    fn replay(&self, name: &Name, history: &History) -> Result<States, Violation> {
        let mut states = States::default();
        let Some(revisions) = &self.revisions else { return Ok(states) };
        let Some(oldest) = revisions.first().map(|view| view.number) else {
            return violation(name, "it has no history at all");
        };
        let base = self.reads.iter().rev().find_map(|seen| match (seen.query, seen.reply) {
            (Query::Export { at: Some(at) }, ConfigReply::Export(export)) if *at == oldest => Some(export),
            _ => None,
        });
        let Some(base) = base else { return violation(name, "the oldest state was not shown") };
        states.push(oldest, ConfigState::of(&base.pairs, &base.containers));
        self.judge_authors(name, revisions, history)?;
        for view in &revisions[1..] {
            let state = states.newest().apply(name, view)?;
            self.judge_operation(name, view, (states.newest(), &state), &states)?;
            states.push(view.number, state);
        }
        for (revision, done) in self.acknowledged.range(oldest..) {
            if !states.by_revision.contains_key(revision) {
                return violation(
                    name,
                    format!("revision {revision}, acknowledged to {}, is not in history", done.token),
                );
            }
        }
        Ok(states)
    }

    /// Checks that every revision has an author that may have made it, and no author made two.
    fn judge_authors(
        &self,
        name: &Name,
        revisions: &[RevisionView],
        history: &History,
    ) -> Result<(), Violation> {
        let mut made: BTreeMap<Token, u64> = BTreeMap::new();
        let mut last = 0;
        for view in revisions {
            if view.number <= last {
                return violation(name, format!("revision {} follows {last}", view.number));
            }
            last = view.number;
            let token = view.stamp.author.parse().map(Token);
            let Some((operation, _)) = token.ok().and_then(|token| self.writes.get(&token)) else {
                return violation(
                    name,
                    format!("revision {} has no known author: {:?}", view.number, view.stamp),
                );
            };
            if operation.happened() == Happened::No {
                let reply = history.operation(operation.token).and_then(Operation::reply);
                let text = format!(
                    "revision {} is of {}, which got the reply {reply:?}",
                    view.number, operation.token
                );
                return violation(name, text);
            }
            if let Some(Reply::Write(WriteReply::Config(Ok(ConfigWritten { revision, .. })))) =
                operation.reply()
                && *revision != view.number
            {
                let text =
                    format!("{} was answered revision {revision} and made {}", operation.token, view.number);
                return violation(name, text);
            }
            if let Some(other) = made.insert(operation.token, view.number) {
                let text = format!("{} made revisions {other} and {}", operation.token, view.number);
                return violation(name, text);
            }
        }
        Ok(())
    }

    /// Checks that a revision did exactly what its author requested.
    fn judge_operation(
        &self,
        name: &Name,
        view: &RevisionView,
        (before, after): (&ConfigState, &ConfigState),
        states: &States,
    ) -> Result<(), Violation> {
        let author = Token(view.stamp.author.parse().unwrap_or_default());
        let Some((_, write)) = self.writes.get(&author) else { return violation(name, "no author") };
        let mut expected = before.clone();
        match (&write.operation, &view.action) {
            (ConfigOperation::Publish { changes, .. }, Action::Publish) => {
                expected.publish(changes);
                if !expected.hold_types(before, changes) {
                    let text =
                        format!("revision {} of {author} gave away a datatype: {write:?}", view.number);
                    return violation(name, text);
                }
            }
            (ConfigOperation::Rollback { to, item: None }, Action::Rollback { to: target })
                if to == target =>
            {
                let Some(target) = states.at(*to) else { return Ok(()) };
                expected = target.clone();
            }
            (ConfigOperation::Rollback { to, item: Some(item) }, Action::Rollback { .. }) => {
                let Some(target) = states.at(*to) else { return Ok(()) };
                expected.copy(target, item);
            }
            (ConfigOperation::SetPolicy(_), Action::SetPolicy)
            | (ConfigOperation::Create, Action::Create) => {}
            (ConfigOperation::Publish { .. }, Action::Create) => {}
            (operation, action) => {
                return violation(name, format!("revision {}: {action:?} for {operation:?}", view.number));
            }
        }
        if !after.has_its_schemas() {
            let text = format!("revision {} of {author} violates a schema: {after:?}", view.number);
            return violation(name, text);
        }
        if expected != *after {
            let text = format!("revision {} of {author} is {after:?}, not {expected:?}", view.number);
            return violation(name, text);
        }
        Ok(())
    }

    /// Whether each pair was written by the revision, and by the author, that it is said to be.
    fn wrote(&self, blame: &Blame) -> bool {
        let Some(revisions) = &self.revisions else { return true };
        let oldest = revisions.first().map_or(0, |view| view.number);
        blame.found.pairs.iter().filter(|(_, pair)| pair.revision > oldest).all(|(key, pair)| {
            let view = revisions.iter().find(|view| view.number == pair.revision);
            let changes = |view: &&RevisionView| {
                view.changes.iter().any(|change| change.item == Item::Pair(key.clone()))
            };
            let stamp = view.filter(changes).map(|view| &view.stamp);
            stamp.is_some() && blame.stamps.get(&pair.revision) == stamp
        })
    }

    fn judge_reads(&self, name: &Name, states: &States) -> Result<(), Violation> {
        for seen in &self.reads {
            let Some(state) = states.at(seen.revision) else { continue };
            let is_right = match (seen.query, seen.reply) {
                (Query::Pair { key, .. }, ConfigReply::Pair { pair, .. }) => {
                    state.pairs.get(key) == Some(&pair.value)
                }
                (Query::Container { key, .. }, ConfigReply::Container(found)) => {
                    Some(found.document()) == state.document(key) && checksum_holds(found)
                }
                (Query::Pairs(_), ConfigReply::Pairs { total, items, .. }) => {
                    let items: BTreeMap<_, _> =
                        items.iter().map(|(key, pair)| (key.clone(), pair.value.to_value())).collect();
                    *total == state.pairs.len() && items == state.pairs
                }
                (Query::Users { key }, ConfigReply::Users { containers, .. }) => {
                    state.pairs.contains_key(key) && *containers == state.users_of(key)
                }
                (Query::Blame { key }, ConfigReply::Blame(blame)) => {
                    Some(blame.found.document()) == state.document(key) && self.wrote(blame)
                }
                (Query::Search(search), ConfigReply::Search(page)) => {
                    page.next.is_none() && search::finds(state, &search.text, &page.matches)
                }
                (Query::Export { .. }, ConfigReply::Export(export)) => {
                    ConfigState::of(&export.pairs, &export.containers) == *state
                }
                (Query::Namespace, ConfigReply::Namespace(view)) => {
                    (view.pairs, view.containers) == (state.pairs.len() as u64, state.containers.len() as u64)
                }
                _ => true,
            };
            if !is_right {
                let text = format!(
                    "read {} of revision {} saw {:?}",
                    seen.operation.token, seen.revision, seen.reply
                );
                return violation(name, text);
            }
        }
        Ok(())
    }
}

/// Compares lengths only: a wrong checksum cannot be detected here without hashing the content
/// again.
pub(super) fn checksum_holds(found: &Found) -> bool {
    found.container.document_bytes == found.document().len()
}

/// Checks that a watch received each document, each change once and in order.
fn judge_watch(
    scope: &WatchScope,
    watch: &[WatchedContent],
    (name, states): (&Name, &States),
) -> Result<(), String> {
    let is_of_namespace = *scope == WatchScope::Namespace;
    if !is_of_namespace {
        judge_event_order(watch)?;
    }
    if !is_fleeting(name)
        && watch.iter().any(|event| event.revision == 0 && event.document.is_none() && !event.is_current)
    {
        return Err("received that the namespace does not exist, and it was never deleted".into());
    }
    let Some((&oldest, first)) = states.by_revision.first_key_value() else { return Ok(()) };
    let WatchScope::Container(container) = scope else {
        let states = states.by_revision.iter().map(|(revision, state)| (*revision, state));
        return namespace_watches::judge(watch, &[KnownIncarnation::since(oldest, states)], false);
    };
    // Every change after the oldest kept state, computed from the states.
    let mut document = first.document(container);
    let mut changes = BTreeMap::new();
    for (revision, state) in states.by_revision.range(oldest + 1..) {
        let now = state.document(container);
        if now != document {
            changes.insert(*revision, now.clone());
        }
        document = now;
    }
    let received: Vec<_> = watch.iter().filter(|event| event.revision > oldest).collect();
    for event in &received {
        let Some(state) = states.at(event.revision) else { continue };
        if state.document(container) != event.document {
            return Err(format!("received a wrong document: {event:?}"));
        }
        let is_present_state = event.after_gap && event.document.is_none();
        if !is_present_state && !changes.contains_key(&event.revision) {
            return Err(format!("received an event without a change: {event:?}"));
        }
    }
    judge_missing_events(&received, changes.into_keys())
}

/// The content of a namespace by revision.
#[derive(Default)]
struct States {
    by_revision: BTreeMap<u64, ConfigState>,
}

impl States {
    fn push(&mut self, revision: u64, state: ConfigState) {
        self.by_revision.insert(revision, state);
    }

    fn newest(&self) -> &ConfigState {
        self.by_revision.last_key_value().expect("invariant: the oldest state is there").1
    }

    fn at(&self, revision: u64) -> Option<&ConfigState> {
        self.by_revision.get(&revision)
    }
}

/// The content of a namespace, without derived data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigState {
    pub pairs: BTreeMap<Arc<str>, Value>,
    pub containers: BTreeMap<Arc<str>, Vec<(Arc<str>, Refers)>>,
    pub schemas: BTreeMap<Item, Arc<Schema>>,
}

impl ConfigState {
    pub fn of(
        pairs: &BTreeMap<Arc<str>, Arc<Pair>>,
        containers: &BTreeMap<Arc<str>, Arc<Container>>,
    ) -> ConfigState {
        let fields = |container: &Container| {
            container.fields.iter().map(|field| (field.key.clone(), field.refers.clone())).collect()
        };
        let of_pairs = pairs.iter().map(|(key, pair)| (Item::Pair(key.clone()), &pair.schema));
        let of_containers =
            containers.iter().map(|(key, container)| (Item::Container(key.clone()), &container.schema));
        let schemas = of_pairs.chain(of_containers);
        ConfigState {
            schemas: schemas.filter_map(|(item, schema)| Some((item, schema.clone()?))).collect(),
            pairs: pairs.iter().map(|(key, pair)| (key.clone(), pair.value.to_value())).collect(),
            containers: containers.iter().map(|(key, container)| (key.clone(), fields(container))).collect(),
        }
    }

    /// The content after a revision that was applied to this one.
    fn apply(&self, name: &Name, view: &RevisionView) -> Result<ConfigState, Violation> {
        let number = view.number;
        self.changed(&view.changes)
            .or_else(|text| violation(name, format!("revision {number} says that {text}")))
    }

    /// The content after the changes that a revision or a preview shows.
    fn changed(&self, changes: &[ChangeView]) -> Result<ConfigState, String> {
        let mut state = self.clone();
        for change in changes {
            let mut was = ConfigState::default();
            was.put(&change.item, change.before.as_ref());
            let mut is = ConfigState::default();
            is.copy(self, &change.item);
            if was != is {
                return Err(format!("{:?} was {was:?}, not {is:?}", change.item));
            }
            state.put(&change.item, change.after.as_ref());
        }
        Ok(state)
    }

    fn put(&mut self, item: &Item, content: Option<&Content>) {
        let schema = match content {
            Some(Content::Pair(pair)) => pair.schema.as_ref(),
            Some(Content::Container(container)) => container.schema.as_ref(),
            None => None,
        };
        self.set_schema(item, schema);
        match (item, content) {
            (Item::Pair(key), Some(Content::Pair(pair))) => {
                self.pairs.insert(key.clone(), pair.value.to_value());
            }
            (Item::Container(key), Some(Content::Container(container))) => {
                let fields = container.fields.iter().map(|field| (field.key.clone(), field.refers.clone()));
                self.containers.insert(key.clone(), fields.collect());
            }
            (Item::Pair(key), _) => {
                self.pairs.remove(key);
            }
            (Item::Container(key), _) => {
                self.containers.remove(key);
            }
        }
    }

    fn set_schema(&mut self, item: &Item, schema: Option<&Arc<Schema>>) {
        match schema {
            Some(schema) => self.schemas.insert(item.clone(), schema.clone()),
            None => self.schemas.remove(item),
        };
    }

    /// Applies changes in order. What is there afterwards keeps its schema, or gets the one that
    /// the changes set, wherever among them.
    pub fn publish(&mut self, changes: &[Change]) {
        let schemas = self.schemas.clone();
        changes.iter().for_each(|change| self.change(change));
        self.schemas = schemas.into_iter().filter(|(item, _)| self.has(item)).collect();
        for change in changes {
            if let Change::SetSchema { item, schema } = change {
                self.set_schema(item, schema.as_ref());
            }
        }
    }

    /// Whether a pair or container is there.
    pub fn has(&self, item: &Item) -> bool {
        match item {
            Item::Pair(key) => self.pairs.contains_key(key),
            Item::Container(key) => self.containers.contains_key(key),
        }
    }

    /// Whether everything has the schema that is set for it, judged independently of the core.
    pub fn has_its_schemas(&self) -> bool {
        let is_integer = |value: &Value| match value {
            Value::Int(_) => true,
            Value::Float(float) => float.get().fract() == 0.0,
            _ => false,
        };
        self.schemas.iter().all(|(item, schema)| match (item, ClientSchema::of(schema)) {
            (Item::Pair(key), ClientSchema::Integer) => self.pairs.get(key).is_some_and(is_integer),
            (Item::Container(key), ClientSchema::IntegerField) => {
                let fields = self.containers.get(key).into_iter().flatten();
                fields.filter(|(field, _)| &**field == "a").all(|(_, refers)| match refers {
                    Refers::One(pair) => self.pairs.get(pair).is_some_and(is_integer),
                    _ => false,
                })
            }
            (Item::Container(key), ClientSchema::RequiredField) => {
                let mut fields = self.containers.get(key).into_iter().flatten();
                fields.any(|(field, _)| &**field == "b")
            }
            _ => false,
        })
    }

    /// Applies the content of a change, without schemas.
    pub fn change(&mut self, change: &Change) {
        match change {
            Change::PutPair { key, value, .. } => {
                self.pairs.insert(key.clone(), value.clone());
            }
            Change::PutContainer { key, fields, .. } => {
                let fields = fields.iter().map(|field| (field.key.clone(), field.refers.clone()));
                self.containers.insert(key.clone(), fields.collect());
            }
            Change::Delete(item) => self.put(item, None),
            Change::SetSchema { .. } | Change::KeepSecret { .. } => {}
        }
    }

    /// Checks that pairs and fields kept the datatypes that they had before these changes, unless a
    /// change allows another one. An int for a pair that held a float becomes a float.
    pub fn hold_types(&mut self, before: &ConfigState, changes: &[Change]) -> bool {
        // The last change of an item counts.
        let mut may_differ: BTreeMap<Item, bool> = BTreeMap::new();
        for change in changes {
            match change {
                Change::PutPair { key, retype, .. } => may_differ.insert(Item::Pair(key.clone()), *retype),
                Change::PutContainer { key, retype, .. } => {
                    may_differ.insert(Item::Container(key.clone()), *retype)
                }
                Change::Delete(item) => may_differ.insert(item.clone(), true),
                Change::SetSchema { .. } | Change::KeepSecret { .. } => None,
            };
        }
        let held: Vec<&Item> =
            may_differ.iter().filter(|(_, may_differ)| !**may_differ).map(|(item, _)| item).collect();
        for item in &held {
            let Item::Pair(key) = item else { continue };
            let (Some(old), Some(new)) = (before.pairs.get(key), self.pairs.get_mut(key)) else { continue };
            match (old, &*new) {
                (Value::Float(_), Value::Int(number)) => match Value::float(*number as f64) {
                    Some(float) => *new = float,
                    None => return false,
                },
                (old, new) if old.datatype() != new.datatype() => return false,
                _ => {}
            }
        }
        held.iter().all(|item| match item {
            Item::Pair(_) => true,
            Item::Container(key) => self.fields_keep_types(before, key),
        })
    }

    fn fields_keep_types(&self, before: &ConfigState, container: &str) -> bool {
        let (Some(old), Some(new)) = (before.containers.get(container), self.containers.get(container))
        else {
            return true;
        };
        new.iter().all(|(key, refers)| {
            let old = old.iter().find(|(old, _)| old == key).map(|(_, old)| old);
            let Some(old) = old.filter(|old| *old != refers) else { return true };
            match (before.datatype(old), self.datatype(refers)) {
                (Some(old), Some(new)) => old == new,
                _ => true,
            }
        })
    }

    /// The datatype that a field resolves to, if its pair exists.
    fn datatype(&self, refers: &Refers) -> Option<Datatype> {
        match refers {
            Refers::One(pair) => self.pairs.get(pair).map(Value::datatype),
            Refers::List(_) => Some(Datatype::List),
            Refers::Dict(_) => Some(Datatype::Dict),
        }
    }

    /// The containers that refer to a pair.
    pub fn users_of(&self, pair: &Arc<str>) -> Vec<Arc<str>> {
        let refers = |fields: &[(Arc<str>, Refers)]| {
            fields.iter().any(|(_, refers)| refers.pairs().any(|used| used == pair))
        };
        self.containers.iter().filter(|(_, fields)| refers(fields)).map(|(key, _)| key.clone()).collect()
    }

    /// Replaces an item by its state in other content.
    pub fn copy(&mut self, other: &ConfigState, item: &Item) {
        self.set_schema(item, other.schemas.get(item));
        match item {
            Item::Pair(key) => match other.pairs.get(key) {
                Some(value) => {
                    self.pairs.insert(key.clone(), value.clone());
                }
                None => {
                    self.pairs.remove(key);
                }
            },
            Item::Container(key) => match other.containers.get(key) {
                Some(fields) => {
                    self.containers.insert(key.clone(), fields.clone());
                }
                None => {
                    self.containers.remove(key);
                }
            },
        }
    }

    /// The documents of all containers.
    pub fn documents(&self) -> BTreeMap<Arc<str>, String> {
        let document = |key: &Arc<str>| Some((key.clone(), self.document(key)?));
        self.containers.keys().filter_map(document).collect()
    }

    /// The document of a container, computed independently of the core.
    pub fn document(&self, key: &str) -> Option<String> {
        let fields = self.containers.get(key)?;
        let value = |pair: &Arc<str>| self.pairs.get(pair).map_or("?".into(), Value::to_json);
        let field = |(key, refers): &(Arc<str>, Refers)| format!("\"{key}\":{}", shown(refers, &value));
        Some(format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(",")))
    }
}

/// The JSON that a field resolves to.
fn shown(refers: &Refers, value: &impl Fn(&Arc<str>) -> String) -> String {
    match refers {
        Refers::One(pair) => value(pair),
        Refers::List(pairs) => format!("[{}]", pairs.iter().map(value).collect::<Vec<_>>().join(",")),
        Refers::Dict(entries) => {
            let entries = entries.iter().map(|(name, entry)| format!("\"{name}\":{}", shown(entry, value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
    }
}

#[cfg(test)]
mod tests;
