//! Answers of the configuration centre: the core's replies as the types of `tidelock_api::config`.
//!
//! Values are written by the core, which owns their canonical JSON, and the mask of secrets.

use std::sync::Arc;

use serde::Serialize;
use tidelock_api::{config as api, drafts, environments, revisions};
use tidelock_core::clients::watcher::{WatchEvent, WatchScope};
use tidelock_core::command::config::{
    Action, Blame, ConfigPreview, ConfigWritten, Container, Content, Draft, DraftView, Field, Found,
    HistoryPage, Inheritance, Item, Name, NamespaceView, Pair, Refers, RevisionView, Schema, SearchMatch,
    Stamp, Value,
};

use super::super::response::{self, Response};
use crate::hex;

/// What a page of history shows of each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryDetail {
    /// What was changed.
    Names,
    /// The content before and after, too.
    Contents,
}

/// Appends JSON.
pub(super) fn push(out: &mut Vec<u8>, body: &impl Serialize) {
    serde_json::to_writer(out, body).expect("invariant: the types of the API are JSON");
}

/// The JSON of an answer in its envelope.
pub(super) fn success(data: impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    push(&mut out, &api::Success::of(data));
    out
}

/// An answer in its envelope.
pub(super) fn respond(data: impl Serialize) -> Response {
    response::json(success(data))
}

fn raw(text: String) -> api::Json {
    api::Json::of_text(text).expect("invariant: the core writes JSON")
}

/// A value; null for none.
pub(super) fn value(value: Option<&Value>) -> api::Json {
    raw(value.unwrap_or(&Value::Empty).to_json())
}

pub(super) fn pair(namespace: &Name, key: &str, pair: &Pair) -> api::Pair {
    api::Pair {
        key: key.to_owned(),
        value: value(Some(&pair.value)),
        datatype: pair.value.datatype() as u8,
        namespace: namespace.to_string(),
        inherited_from: pair.source.as_ref().map(|source| source.to_string()),
    }
}

/// A container in a list: its fields with their types only.
pub(super) fn container_in_list(namespace: &Name, key: &str, container: &Container) -> api::ListedContainer {
    let field = |field: &Field| api::ListedField {
        key: field.key.to_string(),
        field_type: field.refers.field_type(),
    };
    api::ListedContainer {
        key: key.to_owned(),
        namespace: namespace.to_string(),
        check_sum: hex::encode(&container.checksum),
        inherited_from: container.source.as_ref().map(|source| source.to_string()),
        fields: container.fields.iter().map(field).collect(),
    }
}

/// A container with every pair that it refers to.
pub(super) fn container(namespace: &Name, key: &str, found: &Found) -> api::Container {
    let resolved = |key: &Arc<str>| found.pairs.get(key).map(|found| pair(namespace, key, found));
    container_of(namespace, key, &found.container, &resolved)
}

/// A container whose pairs `resolved` shows.
pub(super) fn container_of(
    namespace: &Name,
    key: &str,
    container: &Container,
    resolved: &impl Fn(&Arc<str>) -> Option<api::Pair>,
) -> api::Container {
    let field = |field: &Field| api::Field {
        key: field.key.to_string(),
        field_type: field.refers.field_type(),
        value: refers(&field.refers, resolved),
    };
    api::Container {
        key: key.to_owned(),
        namespace: namespace.to_string(),
        check_sum: hex::encode(&container.checksum),
        inherited_from: container.source.as_ref().map(|source| source.to_string()),
        fields: container.fields.iter().map(field).collect(),
    }
}

fn refers<T>(found: &Refers, pair: &impl Fn(&Arc<str>) -> T) -> api::Refers<T> {
    match found {
        Refers::One(key) => api::Refers::One(pair(key)),
        Refers::List(keys) => api::Refers::List(keys.iter().map(pair).collect()),
        Refers::Dict(entries) => {
            let entry = |(name, entry): (&Arc<str>, &Refers)| (name.to_string(), refers(entry, pair));
            api::Refers::Dict(entries.iter().map(entry).collect())
        }
    }
}

pub(super) fn namespace(name: &Name, view: &NamespaceView) -> api::Namespace {
    let &NamespaceView { revision, oldest, pairs, containers, bytes, history_bytes, policy } = view;
    let policy = api::Policy { revisions: policy.revisions, age_ms: policy.age_ms };
    let namespace = name.to_string();
    api::Namespace { namespace, revision, oldest, pairs, containers, bytes, history_bytes, policy }
}

/// A page of history.
pub(super) fn history(page: &HistoryPage, detail: HistoryDetail) -> revisions::History {
    revisions::History {
        revision: page.revision,
        oldest: page.oldest,
        revisions: page.revisions.iter().map(|view| revision(view, detail)).collect(),
        next: page.next,
    }
}

fn revision(view: &RevisionView, detail: HistoryDetail) -> revisions::Revision {
    let (action, to, draft) = match &view.action {
        Action::Create => ("create", None, None),
        Action::Publish => ("publish", None, None),
        Action::SetPolicy => ("policy", None, None),
        Action::Rollback { to } => ("rollback", Some(*to), None),
        Action::SetParents => ("parents", None, None),
        Action::SetProtected(true) => ("protect", None, None),
        Action::SetProtected(false) => ("unprotect", None, None),
        Action::Inherit { .. } => ("inherit", None, None),
        Action::PublishDraft { draft, .. } => ("publish", None, Some(draft)),
        Action::Canary { draft, .. } => ("canary", None, Some(draft)),
        Action::Withdraw { draft, .. } => ("withdraw", None, Some(draft)),
    };
    let approved_by = match &view.action {
        Action::PublishDraft { approved_by, .. } => approved_by.iter().map(|name| name.to_string()).collect(),
        _ => Vec::new(),
    };
    let from = match &view.action {
        Action::Inherit { from, revision } => {
            Some(revisions::InheritedRevision { namespace: from.to_string(), revision: *revision })
        }
        _ => None,
    };
    let changes = view.changes.iter();
    let changes = changes
        .map(|change| item_change(&change.item, change.before.as_ref(), change.after.as_ref(), detail));
    revisions::Revision {
        revision: view.number,
        author: view.stamp.author.to_string(),
        on_behalf_of: Some(view.stamp.on_behalf_of.to_string()).filter(|name| !name.is_empty()),
        time: view.stamp.time_ms,
        message: view.stamp.message.to_string(),
        action: action.into(),
        to,
        draft: draft.map(|draft| draft.to_string()),
        approved_by,
        inherited_from: from,
        changes: changes.collect(),
    }
}

/// What happened to a pair or a container.
pub(super) fn item_change(
    item: &Item,
    before: Option<&Content>,
    after: Option<&Content>,
    detail: HistoryDetail,
) -> api::ItemChange {
    let shown = |side| (detail == HistoryDetail::Contents).then(|| content(side));
    api::ItemChange {
        kind: kind(item).into(),
        key: item.key().to_string(),
        action: action(before, after).into(),
        before: shown(before),
        after: shown(after),
    }
}

/// Who wrote each value of a container, in the order of the document.
pub(super) fn blame(blame: &Blame) -> Vec<api::BlamedValue> {
    let mut lines = Vec::new();
    for field in &blame.found.container.fields {
        blame_entry(blame, field.key.to_string(), &field.refers, &mut lines);
    }
    lines
}

fn blame_entry(blame: &Blame, path: String, refers: &Refers, lines: &mut Vec<api::BlamedValue>) {
    let mut line = |path: String, key: &Arc<str>| {
        let Some(pair) = blame.found.pairs.get(key) else { return };
        let stamp = blame.stamps.get(&pair.revision);
        lines.push(api::BlamedValue {
            path,
            pair: key.to_string(),
            value: value(Some(&pair.value)),
            revision: pair.revision,
            author: stamp.map(|stamp| stamp.author.to_string()),
            on_behalf_of: stamp.map(|stamp| stamp.on_behalf_of.to_string()).filter(|name| !name.is_empty()),
            time: stamp.map(|stamp| stamp.time_ms),
            message: stamp.map(|stamp| stamp.message.to_string()),
        });
    };
    match refers {
        Refers::One(key) => line(path, key),
        Refers::List(keys) => {
            keys.iter().enumerate().for_each(|(at, key)| line(format!("{path}[{at}]"), key));
        }
        Refers::Dict(entries) => {
            for (name, entry) in entries {
                blame_entry(blame, format!("{path}.{name}"), entry, lines);
            }
        }
    }
}

/// A match of a search.
pub(super) fn found(namespace: &Name, found: &SearchMatch) -> api::SearchMatch {
    let pair = if let Content::Pair(pair) = &found.content { Some(&pair.value) } else { None };
    api::SearchMatch {
        namespace: namespace.to_string(),
        kind: kind(&found.item).into(),
        key: found.item.key().to_string(),
        value: pair.map(|pair| value(Some(pair))),
        datatype: pair.map(|pair| pair.datatype() as u8),
        containers: found.containers.iter().map(|key| key.to_string()).collect(),
    }
}

fn kind(item: &Item) -> &'static str {
    match item {
        Item::Pair(_) => "pair",
        Item::Container(_) => "container",
    }
}

/// What a change would do.
pub(super) fn preview(preview: &ConfigPreview, notes: Vec<String>) -> api::Done {
    let changes = preview.changes.iter().map(|change| {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        item_change(&change.item, before, after, HistoryDetail::Contents)
    });
    let text = |side: &Option<Arc<str>>| side.as_deref().map_or_else(|| value(None), |text| raw(text.into()));
    let documents = preview.documents.iter().map(|document| api::PreviewedDocument {
        container: document.container.to_string(),
        before: text(&document.before),
        after: text(&document.after),
    });
    api::Done {
        revision: preview.revision,
        changed: preview.changed,
        notes,
        changes: Some(changes.collect()),
        documents: Some(documents.collect()),
        inherited_by: preview.inherited_by.iter().map(inherited_change).collect(),
    }
}

/// What a change did.
pub(super) fn written(written: ConfigWritten, notes: Vec<String>) -> api::Done {
    let ConfigWritten { revision, changed } = written;
    api::Done { revision, changed, notes, changes: None, documents: None, inherited_by: Vec::new() }
}

fn inherited_change((namespace, containers): &(Name, Vec<Arc<str>>)) -> api::InheritedChange {
    let containers = containers.iter().map(|key| key.to_string()).collect();
    api::InheritedChange { namespace: namespace.to_string(), containers }
}

/// Which namespaces a namespace inherits from, and how it may be changed.
pub(super) fn inheritance(inheritance: &Inheritance) -> environments::Inheritance {
    let names = |names: &[Name]| names.iter().map(|name| name.to_string()).collect();
    environments::Inheritance {
        revision: inheritance.revision,
        parents: names(&inheritance.parents),
        children: names(&inheritance.children),
        is_protected: inheritance.is_protected,
        canary: inheritance.canary.as_ref().map(|(draft, audience)| environments::Canary {
            draft: draft.to_string(),
            labels: audience.labels.iter().map(|label| label.to_string()).collect(),
            percent: audience.percent,
        }),
    }
}

/// A draft without its changes.
pub(super) fn listed_draft(name: &str, draft: &Draft) -> drafts::ListedDraft {
    drafts::ListedDraft {
        name: name.to_owned(),
        created: stamp(&draft.created),
        edits: draft.edits,
        revision: draft.revision,
        authors: draft.authors.iter().map(|author| author.to_string()).collect(),
        comments: draft.comments.iter().map(stamp).collect(),
        approvals: draft.approvals.iter().map(stamp).collect(),
    }
}

fn stamp(stamp: &Stamp) -> drafts::Stamp {
    drafts::Stamp {
        author: stamp.author.to_string(),
        on_behalf_of: Some(stamp.on_behalf_of.to_string()).filter(|name| !name.is_empty()),
        time: stamp.time_ms,
        message: stamp.message.to_string(),
    }
}

/// A draft, and what publishing it would do.
pub(super) fn draft(name: &str, view: &DraftView) -> drafts::Draft {
    let (effect, error) = match &view.effect {
        Ok(effect) => (Some(preview(effect, Vec::new())), None),
        Err(error) => (None, Some(error.to_string())),
    };
    drafts::Draft { draft: listed_draft(name, &view.draft), effect, error }
}

/// The content of a pair or container, as a client would send it.
fn content(content: Option<&Content>) -> api::Content {
    let key = |key: &Arc<str>| api::Key(key.to_string());
    let field = |field: &Field| api::FieldContent {
        key: key(&field.key),
        field_type: field.refers.field_type(),
        value: refers(&field.refers, &key),
    };
    match content {
        None => api::Content::None,
        Some(Content::Pair(pair)) => api::Content::Pair(api::PairContent {
            value: Some(value(Some(&pair.value))),
            datatype: Some(pair.value.datatype() as u8),
            type_name: Some(pair.value.datatype().name().into()),
            schema: pair.schema.as_deref().map(schema),
        }),
        Some(Content::Container(container)) => api::Content::Container(api::ContainerContent {
            fields: container.fields.iter().map(field).collect(),
            schema: container.schema.as_deref().map(schema),
        }),
    }
}

/// A schema, as a client would send it.
pub(super) fn schema(schema: &Schema) -> api::Json {
    value(Some(schema.source()))
}

/// An event of a container or of a whole namespace, as a watcher receives it.
pub(super) fn event(namespace: &Name, event: &WatchEvent) -> api::Event {
    let found = event.found.as_ref();
    api::Event {
        revision: Some(event.revision),
        deleted: found.is_none(),
        check_sum: found.map(|found| hex::encode(&found.container.checksum)),
        data: found.map(|found| raw(found.document())),
        ..no_event(namespace, event.container.as_deref())
    }
}

/// The event that tells a watcher that changes after a revision are missing.
pub(super) fn gap(namespace: &Name, scope: &WatchScope, after: u64) -> api::Event {
    let key = match scope {
        WatchScope::Container(key) => Some(&**key),
        WatchScope::Namespace => None,
    };
    api::Event { after: Some(after), ..no_event(namespace, key) }
}

/// The event that tells a watcher of a namespace that it knows the state as of a revision.
pub(super) fn current(namespace: &Name, revision: u64) -> api::Event {
    api::Event { revision: Some(revision), ..no_event(namespace, None) }
}

fn no_event(namespace: &Name, key: Option<&str>) -> api::Event {
    api::Event {
        namespace: namespace.to_string(),
        key: key.map(str::to_owned),
        revision: None,
        deleted: false,
        check_sum: None,
        data: None,
        after: None,
    }
}

/// What happened to something that was `before` and is `after`.
pub(super) fn action<T>(before: Option<T>, after: Option<T>) -> &'static str {
    match (before, after) {
        (None, _) => "create",
        (_, None) => "delete",
        _ => "update",
    }
}
