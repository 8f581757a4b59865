//! Replies of the configuration centre.
//!
//! Replies share data with the state machine that produced them. The protocols convert them to
//! text.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::value::{Datatype, SecretForm, Value, write_json_text};
use super::{
    Audience, Container, Draft, DraftView, Field, Item, Name, Pair, Policy, Refers, SECRET_MASK, Stamp,
};

/// The answer to a change: it was applied, or there was nothing to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigWritten {
    /// The namespace's revision after the change.
    pub revision: u64,
    /// Whether the change altered anything. A change that alters nothing makes no revision.
    pub changed: bool,
}

/// The answer to a [`ConfigRead`](super::ConfigRead).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigReply {
    /// Answer to [`Query::Namespace`](super::Query::Namespace).
    Namespace(NamespaceView),
    /// Answer to [`Query::Pairs`](super::Query::Pairs).
    Pairs {
        /// The namespace's newest revision.
        revision: u64,
        /// Number of pairs on all pages.
        total: usize,
        /// One page, sorted by key.
        items: Vec<(Arc<str>, Arc<Pair>)>,
    },
    /// Answer to [`Query::Pair`](super::Query::Pair).
    Pair {
        /// The revision that was read: the requested one, or the newest.
        revision: u64,
        /// The pair as of that revision.
        pair: Arc<Pair>,
    },
    /// Answer to [`Query::Containers`](super::Query::Containers).
    Containers {
        /// The namespace's newest revision.
        revision: u64,
        /// Number of containers on all pages.
        total: usize,
        /// One page, sorted by key.
        items: Vec<(Arc<str>, Arc<Container>)>,
    },
    /// A container and the pairs that it refers to.
    Container(Found),
    /// The client's copy of the container is current.
    Unchanged {
        /// The namespace's newest revision.
        revision: u64,
    },
    /// Answer to [`Query::History`](super::Query::History).
    History(HistoryPage),
    /// Answer to [`Query::Export`](super::Query::Export).
    Export(Export),
    /// Answer to [`Query::Search`](super::Query::Search).
    Search(SearchPage),
    /// Answer to [`Query::Users`](super::Query::Users).
    Users {
        /// The namespace's newest revision.
        revision: u64,
        /// Keys of the containers that refer to the pair, in order.
        containers: Vec<Arc<str>>,
    },
    /// Answer to [`Query::Blame`](super::Query::Blame).
    Blame(Blame),
    /// The documents of a container since a revision.
    Changes(Changes),
    /// Answer to [`Query::NamespaceChanges`](super::Query::NamespaceChanges).
    NamespaceChanges(NamespaceChanges),
    /// Answer to [`Query::Preview`](super::Query::Preview).
    Preview(ConfigPreview),
    /// Answer to [`Query::Inheritance`](super::Query::Inheritance).
    Inheritance(Box<Inheritance>),
    /// Answer to [`Query::Drafts`](super::Query::Drafts).
    Drafts {
        /// The namespace's newest revision.
        revision: u64,
        /// All drafts, by name.
        drafts: Vec<(Arc<str>, Arc<Draft>)>,
    },
    /// Answer to [`Query::Draft`](super::Query::Draft).
    Draft(Box<DraftView>),
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn named(item: &Item) -> String {
    match item {
        Item::Pair(key) => format!("pair {key:?}"),
        Item::Container(key) => format!("container {key:?}"),
    }
}

fn at_path(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at {path:?}") }
}

/// Why a change or a read of configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The namespace was never created, or was deleted.
    #[error("there is no such namespace")]
    NoNamespace,
    /// A new namespace has the name of an existing one.
    #[error("the namespace exists already")]
    NamespaceExists,
    /// The namespace to delete is not empty, and the request does not set `force`.
    #[error(
        "the namespace holds {} and {}; force=true (--force) deletes it all the same",
        counted(*pairs, "pair"), counted(*containers, "container")
    )]
    NamespaceNotEmpty {
        /// Number of pairs in the namespace.
        pairs: u64,
        /// Number of containers in the namespace.
        containers: u64,
    },
    /// The namespace has no pair of this key.
    #[error("there is no pair {0:?}")]
    NoPair(Arc<str>),
    /// The namespace has no container of this key.
    #[error("there is no container {0:?}")]
    NoContainer(Arc<str>),
    /// A container would refer to a pair that does not exist.
    #[error("container {container:?} refers to pair {pair:?}, which does not exist")]
    MissingPair {
        /// The container that would refer to it.
        container: Arc<str>,
        /// Key of the pair that does not exist.
        pair: Arc<str>,
    },
    /// A container refers to the pair that would be deleted.
    #[error("pair {pair:?} is used by container {container:?}")]
    PairInUse {
        /// The pair that would be deleted.
        pair: Arc<str>,
        /// One container that refers to it.
        container: Arc<str>,
    },
    /// The value has another datatype than the pair, and the change does not set `retype`.
    #[error("pair {pair:?} is {}, and would become {}", .now.with_article(), .wanted.with_article())]
    PairRetyped {
        /// The pair that would change.
        pair: Arc<str>,
        /// The datatype that the pair has now.
        now: Datatype,
        /// The datatype of the new value.
        wanted: Datatype,
    },
    /// A field of a container would resolve to another datatype, and the change does not set
    /// `retype`.
    #[error(
        "field {field:?} of container {container:?} is {}, and would become {}",
        .now.with_article(), .wanted.with_article()
    )]
    FieldRetyped {
        /// The container that has the field.
        container: Arc<str>,
        /// The field that would change.
        field: Arc<str>,
        /// The datatype to which it resolves now.
        now: Datatype,
        /// The datatype to which it would resolve.
        wanted: Datatype,
    },
    /// A pair or a container would not have its schema.
    #[error("{} would violate its schema{}: {rule}", named(item), at_path(path))]
    SchemaViolated {
        /// The pair or container whose schema it is.
        item: Item,
        /// The path in the value or the document, such as `server.ports[0]`; empty for all of it.
        path: Arc<str>,
        /// The rule that would not hold.
        rule: Arc<str>,
    },
    /// See [`crate::limits::CONFIG_SCHEMA_STEPS_MAX`].
    #[error("checking the schemas takes more than {} steps", crate::limits::CONFIG_SCHEMA_STEPS_MAX)]
    SchemasTooCostly,
    /// A change keeps the secret of a pair that holds none.
    #[error("pair {0:?} holds no secret for which {SECRET_MASK} could stand; state the secret itself")]
    NoSecret(Arc<str>),
    /// The namespace does not have the expected revision.
    #[error("the namespace is at revision {current}")]
    RevisionMismatch {
        /// The revision that the namespace has.
        current: u64,
    },
    /// The revision does not exist yet, or is no longer kept.
    #[error("revision {revision} is not kept: there are {oldest} to {newest}")]
    NoRevision {
        /// The revision that was requested.
        revision: u64,
        /// The oldest revision that can be read or restored.
        oldest: u64,
        /// The newest revision of the namespace.
        newest: u64,
    },
    /// See [`crate::limits::CONFIG_NAMESPACES_MAX`].
    #[error("a shard holds at most {} namespaces", crate::limits::CONFIG_NAMESPACES_MAX)]
    TooManyNamespaces,
    /// See [`crate::limits::CONFIG_PAIRS_MAX`].
    #[error("a namespace holds at most {} pairs", crate::limits::CONFIG_PAIRS_MAX)]
    TooManyPairs,
    /// See [`crate::limits::CONFIG_CONTAINERS_MAX`].
    #[error("a namespace holds at most {} containers", crate::limits::CONFIG_CONTAINERS_MAX)]
    TooManyContainers,
    /// See [`crate::limits::CONFIG_NAMESPACE_BYTES_MAX`].
    #[error(
        "a namespace holds at most {} bytes of pairs and containers",
        crate::limits::CONFIG_NAMESPACE_BYTES_MAX
    )]
    NamespaceFull,
    /// See [`crate::limits::CONFIG_DOCUMENTS_BYTES_MAX`].
    #[error(
        "the containers of a namespace resolve to at most {} bytes",
        crate::limits::CONFIG_DOCUMENTS_BYTES_MAX
    )]
    DocumentsTooLong,
    /// The item to delete is inherited.
    #[error("{} is inherited from namespace {from:?}: delete it there", named(item))]
    Inherited {
        /// The item that is not set in this namespace.
        item: Item,
        /// The namespace that sets it.
        from: Name,
    },
    /// The namespace to inherit from does not exist.
    #[error("there is no namespace {0:?} to inherit from")]
    NoParent(Name),
    /// The namespace to inherit from has another hash slot.
    #[error(
        "namespace {0:?} has another hash slot: names that begin with the same {{hash tag}} in braces share one"
    )]
    ParentElsewhere(Name),
    /// The namespace to inherit from is named twice, or inherits from this one.
    #[error("namespace {0:?} is named twice, or inherits from this one")]
    ParentCycle(Name),
    /// See [`crate::limits::CONFIG_INHERITANCE_DEPTH_MAX`] and
    /// [`crate::limits::CONFIG_DESCENDANTS_MAX`].
    #[error(
        "at most {} namespaces inherit from each other in a row, and at most {} from one",
        crate::limits::CONFIG_INHERITANCE_DEPTH_MAX,
        crate::limits::CONFIG_DESCENDANTS_MAX
    )]
    InheritanceTooLarge,
    /// Another namespace inherits from the one to delete.
    #[error("namespace {0:?} inherits from it")]
    HasChildren(Name),
    /// A namespace that inherits from this one could not follow the change.
    #[error("namespace {namespace:?} inherits from it: {error}")]
    InChild {
        /// The namespace that inherits.
        namespace: Name,
        /// What the change would break there.
        error: Box<ConfigError>,
    },
    /// The namespace is protected, and the change is no approved draft.
    #[error("the namespace is protected: make a draft, and have it approved")]
    Protected,
    /// The namespace has no draft of this name.
    #[error("there is no draft {0:?}")]
    NoDraft(Arc<str>),
    /// See [`crate::limits::CONFIG_DRAFTS_MAX`].
    #[error("a namespace has at most {} drafts", crate::limits::CONFIG_DRAFTS_MAX)]
    TooManyDrafts,
    /// See [`crate::limits::CONFIG_DRAFT_BYTES_MAX`] and
    /// [`crate::limits::CONFIG_DRAFT_COMMENTS_MAX`].
    #[error(
        "a draft has at most {} bytes of changes, and {} comments",
        crate::limits::CONFIG_DRAFT_BYTES_MAX,
        crate::limits::CONFIG_DRAFT_COMMENTS_MAX
    )]
    DraftFull,
    /// The draft was edited after the client read it.
    #[error("the draft has been edited: it is at edit {edits}")]
    DraftEdited {
        /// [`Draft::edits`] now.
        edits: u64,
    },
    /// Publishing the draft would change nothing.
    #[error("the draft changes nothing")]
    DraftChangesNothing,
    /// The namespace is protected, and nobody has approved the draft as it is now.
    #[error("the namespace is protected, and the draft is not approved")]
    NotApproved,
    /// An author of the draft approves it, or a client that has not said who it is.
    #[error("a draft is approved by somebody who is named and has not edited it")]
    OwnApproval,
    /// A comment has no message.
    #[error("a comment needs a message")]
    EmptyComment,
    /// The namespace takes no other change while a canary shows this draft.
    #[error("a canary shows draft {0:?}: publish the draft, or withdraw the canary")]
    CanaryOpen(Arc<str>),
    /// The namespace has no canary to withdraw.
    #[error("the namespace has no canary")]
    NoCanary,
}

/// Revisions, size and policy of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// The newest revision.
    pub revision: u64,
    /// The oldest revision that can be read or restored.
    pub oldest: u64,
    /// Number of pairs; at most [`CONFIG_PAIRS_MAX`](crate::limits::CONFIG_PAIRS_MAX).
    pub pairs: u64,
    /// Number of containers; at most
    /// [`CONFIG_CONTAINERS_MAX`](crate::limits::CONFIG_CONTAINERS_MAX).
    pub containers: u64,
    /// Bytes of pairs and containers, without the history.
    pub bytes: u64,
    /// Bytes of previous content in the history.
    pub history_bytes: u64,
    /// How much history the namespace keeps.
    pub policy: Policy,
}

/// A container with the pairs that it refers to, all from one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The revision that was read: the requested one, or the newest.
    pub revision: u64,
    /// The container as of that revision.
    pub container: Arc<Container>,
    /// Every pair that it refers to, by key.
    pub pairs: BTreeMap<Arc<str>, Arc<Pair>>,
}

impl Found {
    /// The canonical JSON that the container resolves to, with the mask instead of secrets. Without
    /// secrets it is the text of which the container has the checksum.
    pub fn document(&self) -> String {
        let mut out = String::with_capacity(self.container.document_bytes);
        write_masked_document(&self.container, |key| self.pairs.get(key).map(|pair| &**pair), &mut out);
        out
    }
}

/// Appends the canonical JSON of a container, whose pairs `pair` looks up. It has the sealed text
/// of secrets, which is not for clients: see [`write_masked_document`].
///
/// A pair that does not exist is written as `null`. This happens only during a restore that has not
/// reached the pair yet.
pub(crate) fn write_document<'a>(
    container: &Container,
    pair: impl Fn(&str) -> Option<&'a Pair>,
    out: &mut String,
) {
    let write = |key: &str, out: &mut String| write_value(pair(key), SecretForm::Sealed, out);
    write_fields(container, &write, out);
}

/// As [`write_document`], with the mask instead of secrets.
pub(crate) fn write_masked_document<'a>(
    container: &Container,
    pair: impl Fn(&str) -> Option<&'a Pair>,
    out: &mut String,
) {
    let write = |key: &str, out: &mut String| write_value(pair(key), SecretForm::Masked, out);
    write_fields(container, &write, out);
}

fn write_value(pair: Option<&Pair>, secrets: SecretForm, out: &mut String) {
    match pair {
        Some(pair) => pair.value.write(secrets, out),
        None => out.push_str("null"),
    }
}

fn write_fields(container: &Container, write: &impl Fn(&str, &mut String), out: &mut String) {
    out.push('{');
    for (position, field) in container.fields.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write_json_text(&field.key, out);
        out.push(':');
        write_resolved(&field.refers, write, out);
    }
    out.push('}');
}

fn write_resolved(refers: &Refers, write: &impl Fn(&str, &mut String), out: &mut String) {
    match refers {
        Refers::One(key) => write(key, out),
        Refers::List(keys) => {
            out.push('[');
            for (position, key) in keys.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write(key, out);
            }
            out.push(']');
        }
        Refers::Dict(entries) => {
            out.push('{');
            for (position, (name, entry)) in entries.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_json_text(name, out);
                out.push(':');
                write_resolved(entry, write, out);
            }
            out.push('}');
        }
    }
}

/// The document of a container, whose pairs `pair` looks up. Unlike in a value, a list or a dict of
/// pairs may mix datatypes, and contain null.
pub fn document_tree<'a>(fields: &[Field], pair: impl Fn(&str) -> Option<&'a Pair>) -> Value {
    let value = |key: &Arc<str>| Some(pair(key).map_or(Value::Empty, |pair| pair.value.to_value()));
    let fields = fields.iter().filter_map(|field| Some((field.key.clone(), field.refers.value(&value)?)));
    Value::Dict(fields.collect())
}

/// A page of revisions, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPage {
    /// The namespace's newest revision.
    pub revision: u64,
    /// The oldest revision that can be read or restored.
    pub oldest: u64,
    /// At most the requested number, the newest first.
    pub revisions: Vec<RevisionView>,
    /// Pass as `before` for the next page; `None` at the end.
    pub next: Option<u64>,
}

/// One revision of a namespace's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionView {
    /// Rises with each revision of the namespace.
    pub number: u64,
    /// Who made it, when, and why.
    pub stamp: Stamp,
    /// The operation that made it.
    pub action: Action,
    /// The items that it changed, each once.
    pub changes: Vec<ChangeView>,
}

/// The operation that made a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The namespace was created.
    Create,
    /// Changes were published.
    Publish,
    /// The content of an earlier revision was restored.
    Rollback {
        /// The revision whose content was restored.
        to: u64,
    },
    /// The history policy changed.
    SetPolicy,
    /// The namespaces from which this one inherits changed.
    SetParents,
    /// The namespace was protected, or is not protected any more.
    SetProtected(bool),
    /// A namespace from which this one inherits changed.
    Inherit {
        /// The namespace that was changed.
        from: Name,
        /// Its new revision.
        revision: u64,
    },
    /// A draft was published.
    PublishDraft {
        /// The name of the draft.
        draft: Arc<str>,
        /// Who had approved it.
        approved_by: Vec<Arc<str>>,
    },
    /// A part of the readers began to see a draft. The content stayed as it was.
    Canary {
        /// The name of the draft.
        draft: Arc<str>,
        /// Who saw it.
        audience: Audience,
    },
    /// The canary was withdrawn. The content stayed as it was.
    Withdraw {
        /// The name of the draft.
        draft: Arc<str>,
        /// Who had seen it.
        audience: Audience,
        /// The containers that these readers had seen resolve to other documents.
        containers: Vec<Arc<str>>,
    },
}

/// The change that a revision made to one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeView {
    /// The pair or container that changed.
    pub item: Item,
    /// Its content before; `None`: it did not exist.
    pub before: Option<Content>,
    /// Its content after; `None`: it was deleted.
    pub after: Option<Content>,
}

/// The content under a key of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A value.
    Pair(Arc<Pair>),
    /// Fields that refer to pairs.
    Container(Arc<Container>),
}

/// The whole content of a namespace at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The revision that was exported.
    pub revision: u64,
    /// How much history the namespace keeps now.
    pub policy: Policy,
    /// All pairs, by key.
    pub pairs: BTreeMap<Arc<str>, Arc<Pair>>,
    /// All containers, by key.
    pub containers: BTreeMap<Arc<str>, Arc<Container>>,
}

/// A container, and the revisions that wrote the pairs that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The container and its pairs, whose [`Pair::revision`] is a key of `stamps`.
    pub found: Found,
    /// Author, time and message of these revisions, as far as the history keeps them.
    pub stamps: BTreeMap<u64, Stamp>,
}

/// A page of the items that a search found: pairs by key, then containers by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPage {
    /// The namespace's newest revision.
    pub revision: u64,
    /// The matches of this page. It may be empty, and others may follow.
    pub matches: Vec<SearchMatch>,
    /// Pass as `after` for the next page; `None` at the end.
    pub next: Option<Item>,
}

/// A pair or container with the text in its key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchMatch {
    /// The pair or container.
    pub item: Item,
    /// Its content.
    pub content: Content,
    /// Keys of the containers that refer to it, if it is a pair.
    pub containers: Vec<Arc<str>>,
}

/// The documents to which a container resolved, revision by revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The namespace's revision; 0 if there is no such namespace.
    pub revision: u64,
    /// Whether some revisions since then are no longer kept. In that case there is at most one
    /// event, the latest.
    pub has_gap: bool,
    /// The events, by rising revision. At most [`crate::limits::CONFIG_CHANGES_MAX`]; if there are
    /// that many, there may be more.
    pub events: Vec<DocumentChange>,
}

/// The document to which a container resolved from a revision on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentChange {
    /// The revision that changed the document.
    pub revision: u64,
    /// The container; `None`: it was deleted.
    pub found: Option<Found>,
}

/// The documents to which the containers of a namespace resolved, revision by revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceChanges {
    /// The namespace's revision; 0 if there is no such namespace.
    pub revision: u64,
    /// Whether some revisions since then are no longer kept. In that case the events are the
    /// present state.
    pub has_gap: bool,
    /// The events are the state as of this revision. `None`: they are changes.
    pub state: Option<u64>,
    /// Whether the answer is full, and more events follow.
    pub has_more: bool,
    /// The events, by rising revision and then by key; those of a state by key alone. At most
    /// [`crate::limits::CONFIG_CHANGES_MAX`], and one more than fits into
    /// [`crate::limits::CONFIG_CHANGES_BYTES_CLOSE`].
    pub events: Vec<NamespaceEvent>,
}

/// The document to which one container of a namespace resolved from a revision on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceEvent {
    /// The revision that changed the document. That of the state, if the container has changed
    /// again while the client was sent the state.
    pub revision: u64,
    /// The key of the container. Empty: the namespace was deleted and created again, and the
    /// containers from before do not exist.
    pub container: Arc<str>,
    /// The container; `None`: it was deleted.
    pub found: Option<Found>,
}

/// What a change would do to a namespace, had it been applied instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigPreview {
    /// The namespace's revision, before the change; 0 if it does not exist.
    pub revision: u64,
    /// Whether the change would alter anything.
    pub changed: bool,
    /// The items that would change, each once, as the history would show them.
    pub changes: Vec<ChangeView>,
    /// The containers that would resolve to another document, sorted by key.
    pub documents: Vec<PreviewedDocument>,
    /// The namespaces that would inherit a change, each with the keys of the containers that would
    /// resolve to another document there.
    pub inherited_by: Vec<(Name, Vec<Arc<str>>)>,
}

/// From which namespaces a namespace inherits, and how it may be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// The namespace's revision.
    pub revision: u64,
    /// The namespaces from which it inherits, the first that has an item before the others.
    pub parents: Vec<Name>,
    /// The namespaces that inherit from it directly, by name.
    pub children: Vec<Name>,
    /// Whether only approved drafts change it.
    pub is_protected: bool,
    /// The draft that a part of its readers sees, and who they are.
    pub canary: Option<(Arc<str>, Audience)>,
}

/// A document that a change would replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewedDocument {
    /// Key of the container.
    pub container: Arc<str>,
    /// The canonical JSON to which it resolves now, with secrets masked; `None`: it does not exist.
    pub before: Option<Arc<str>>,
    /// The canonical JSON to which it would resolve, with secrets masked; `None`: it would be
    /// deleted.
    pub after: Option<Arc<str>>,
}
