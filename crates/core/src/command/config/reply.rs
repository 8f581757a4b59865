//! What the configuration centre answers.
//!
//! Replies share state with the machine that gave them: whoever shows them turns them into text.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::value::{Datatype, write_json_text};
use super::{Container, Item, Pair, Policy, Refers};

/// An answer of the configuration centre.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigReply {
    /// The change is in force.
    Done {
        /// The namespace's revision now.
        revision: u64,
        /// Whether it changed anything. What changes nothing is no revision.
        changed: bool,
    },
    /// It cannot be; nothing changed.
    Failed(ConfigError),
    /// The namespace.
    Namespace(NamespaceView),
    /// A page of pairs.
    Pairs {
        /// As of this revision.
        revision: u64,
        /// How many there are over all pages.
        total: usize,
        /// By key.
        items: Vec<(Arc<str>, Arc<Pair>)>,
    },
    /// A pair.
    Pair {
        /// As of this revision of the namespace.
        revision: u64,
        /// The pair.
        pair: Arc<Pair>,
    },
    /// A page of containers.
    Containers {
        /// As of this revision.
        revision: u64,
        /// How many there are over all pages.
        total: usize,
        /// By key.
        items: Vec<(Arc<str>, Arc<Container>)>,
    },
    /// A container, and what it refers to.
    Container(Found),
    /// The container is as the asker knows it.
    Unchanged {
        /// The namespace's revision.
        revision: u64,
    },
    /// A page of revisions.
    History(HistoryPage),
    /// Everything.
    Export(Export),
    /// What a container resolved to since.
    Changes(Changes),
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Why a change or a read of configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no such namespace.
    #[error("there is no such namespace")]
    NoNamespace,
    /// There is one already.
    #[error("the namespace is there already")]
    NamespaceExists,
    /// It holds pairs or containers.
    #[error(
        "the namespace holds {} and {}; force=true deletes it all the same",
        counted(*pairs, "pair"), counted(*containers, "container")
    )]
    NamespaceNotEmpty {
        /// How many.
        pairs: u64,
        /// How many.
        containers: u64,
    },
    /// There is no such pair.
    #[error("there is no pair {0:?}")]
    NoPair(Arc<str>),
    /// There is no such container.
    #[error("there is no container {0:?}")]
    NoContainer(Arc<str>),
    /// A container would refer to a pair that is not there.
    #[error("container {container:?} refers to pair {pair:?}, which is not there")]
    MissingPair {
        /// Which.
        container: Arc<str>,
        /// Which.
        pair: Arc<str>,
    },
    /// A pair would go that a container refers to.
    #[error("pair {pair:?} is used by container {container:?}")]
    PairInUse {
        /// Which.
        pair: Arc<str>,
        /// One that uses it.
        container: Arc<str>,
    },
    /// A pair would hold another datatype, and the change does not say that it may.
    #[error("pair {pair:?} is {}, and would become {}", .now.with_article(), .wanted.with_article())]
    PairRetyped {
        /// Which.
        pair: Arc<str>,
        /// The datatype that it holds.
        now: Datatype,
        /// The datatype of the value that was sent.
        wanted: Datatype,
    },
    /// A field of a container would resolve to another datatype, and the change does not say that it may.
    #[error(
        "field {field:?} of container {container:?} is {}, and would become {}",
        .now.with_article(), .wanted.with_article()
    )]
    FieldRetyped {
        /// Which.
        container: Arc<str>,
        /// Which.
        field: Arc<str>,
        /// The datatype that it resolves to.
        now: Datatype,
        /// The datatype that it would resolve to.
        wanted: Datatype,
    },
    /// The namespace is not at the expected revision.
    #[error("the namespace is at revision {current}")]
    RevisionMismatch {
        /// The namespace's revision.
        current: u64,
    },
    /// The revision is to come, or is not kept any more.
    #[error("revision {revision} is not kept: there are {oldest} to {newest}")]
    NoRevision {
        /// The one asked for.
        revision: u64,
        /// The oldest that can be shown and gone back to.
        oldest: u64,
        /// The newest.
        newest: u64,
    },
    /// See the limits of that name.
    #[error("a shard holds at most {} namespaces", crate::limits::CONFIG_NAMESPACES_MAX)]
    TooManyNamespaces,
    /// See the limits of that name.
    #[error("a namespace holds at most {} pairs", crate::limits::CONFIG_PAIRS_MAX)]
    TooManyPairs,
    /// See the limits of that name.
    #[error("a namespace holds at most {} containers", crate::limits::CONFIG_CONTAINERS_MAX)]
    TooManyContainers,
    /// See the limits of that name.
    #[error(
        "a namespace holds at most {} bytes of pairs and containers",
        crate::limits::CONFIG_NAMESPACE_BYTES_MAX
    )]
    NamespaceFull,
    /// See the limits of that name.
    #[error(
        "the containers of a namespace resolve to at most {} bytes",
        crate::limits::CONFIG_DOCUMENTS_BYTES_MAX
    )]
    DocumentsTooLong,
}

/// A namespace in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// The newest revision.
    pub revision: u64,
    /// The oldest that can be shown and gone back to.
    pub oldest: u64,
    /// How many.
    pub pairs: u64,
    /// How many.
    pub containers: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Bytes of what history keeps.
    pub history_bytes: u64,
    /// How much history it keeps.
    pub policy: Policy,
}

/// A container with the pairs that it refers to, of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The namespace's revision.
    pub revision: u64,
    /// The container.
    pub container: Arc<Container>,
    /// Every pair that it refers to.
    pub pairs: BTreeMap<Arc<str>, Arc<Pair>>,
}

impl Found {
    /// The canonical JSON that the container resolves to.
    pub fn document(&self) -> String {
        let mut out = String::with_capacity(self.container.document_bytes);
        write_document(&self.container, |key| self.pairs.get(key).map(|pair| &**pair), &mut out);
        out
    }
}

/// Appends the canonical JSON of a container whose pairs `pair` looks up.
///
/// A pair that is not there shows as `null`. That only happens while a restore is under way, before the pair has come.
pub(crate) fn write_document<'a>(
    container: &Container,
    pair: impl Fn(&str) -> Option<&'a Pair>,
    out: &mut String,
) {
    let value = |key: &str, out: &mut String| match pair(key) {
        Some(pair) => pair.value.write_json(out),
        None => out.push_str("null"),
    };
    out.push('{');
    for (position, field) in container.fields.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write_json_text(&field.key, out);
        out.push(':');
        match &field.refers {
            Refers::One(key) => value(key, out),
            Refers::List(keys) => {
                out.push('[');
                for (position, key) in keys.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    value(key, out);
                }
                out.push(']');
            }
            Refers::Dict(keys) => {
                out.push('{');
                for (position, (name, key)) in keys.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    write_json_text(name, out);
                    out.push(':');
                    value(key, out);
                }
                out.push('}');
            }
        }
    }
    out.push('}');
}

/// Revisions, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPage {
    /// The namespace's revision.
    pub revision: u64,
    /// The oldest that can be shown and gone back to.
    pub oldest: u64,
    /// What was asked for.
    pub revisions: Vec<RevisionView>,
    /// Pass as `before` to go on; `None` at the end.
    pub next: Option<u64>,
}

/// One revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionView {
    /// Its number.
    pub number: u64,
    /// When, who and why.
    pub stamp: super::Stamp,
    /// What brought it about.
    pub action: Action,
    /// What it changed.
    pub changes: Vec<ChangeView>,
}

/// What brought a revision about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The namespace came into being.
    Create,
    /// Changes were published.
    Publish,
    /// The content of an earlier revision came back.
    Rollback {
        /// Which.
        to: u64,
    },
    /// The bounds of history changed.
    SetPolicy,
}

/// What a revision did to one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeView {
    /// Which.
    pub item: Item,
    /// What it was; `None`: there was none.
    pub before: Option<Content>,
    /// What it became; `None`: it was deleted.
    pub after: Option<Content>,
}

/// What stands under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A pair.
    Pair(Arc<Pair>),
    /// A container.
    Container(Arc<Container>),
}

/// All of a namespace's content at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Which revision.
    pub revision: u64,
    /// How much history is kept now.
    pub policy: Policy,
    /// By key.
    pub pairs: BTreeMap<Arc<str>, Arc<Pair>>,
    /// By key.
    pub containers: BTreeMap<Arc<str>, Arc<Container>>,
}

/// What a container resolved to, revision by revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The namespace's revision; 0 if there is no such namespace.
    pub revision: u64,
    /// Whether revisions in between are not kept any more: then there is one event at most, the latest.
    pub has_gap: bool,
    /// By rising revisions. At most [`crate::limits::CONFIG_CHANGES_MAX`]; if as many, there may be more.
    pub events: Vec<Event>,
}

/// What a container resolved to from a revision on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The revision that changed it.
    pub revision: u64,
    /// The container; `None`: it was deleted.
    pub found: Option<Found>,
}
