//! The language of the configuration centre: namespaces of typed pairs and of containers that refer to them.
//!
//! Owns what can be asked and told, and the limits that can be checked without state. What a change does to state is
//! `machine::config`; how it is laid out in the log stands in `layout`.

mod answers;
mod layout;
mod reply;
mod value;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;
use uuid::Uuid;

use super::Refusal;
use crate::limits;
use crate::types::ShardId;
pub(crate) use layout::text as decode_text;
pub(crate) use reply::write_document;
pub use reply::{
    Action, ChangeView, Changes, ConfigError, ConfigReply, Content, Event, Export, Found, HistoryPage,
    NamespaceView, RevisionView,
};
pub use value::{Datatype, Float, Value, ValueError, write_json_text};

/// The name of a namespace: text of 1 to [`limits::CONFIG_NAMESPACE_CHARACTERS_MAX`] characters without control
/// characters. Its slot, computed as a key's is, decides the shard: names that share a `{hash tag}` share a shard with
/// each other and with the keys of that tag. Namespaces and keys are different things all the same: neither sees the other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Bytes);

/// Why text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No characters.
    #[error("it is empty")]
    Empty,
    /// Too many.
    #[error("it is longer than {0} characters")]
    TooLong(usize),
    /// A line break or the like.
    #[error("it holds a control character")]
    Control,
}

impl Name {
    /// A name, if `text` can be one.
    pub fn new(text: &str) -> Result<Name, NameError> {
        check_name(text, limits::CONFIG_NAMESPACE_CHARACTERS_MAX)?;
        Ok(Name(Bytes::copy_from_slice(text.as_bytes())))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).expect("invariant: a name is text")
    }

    /// What decides its slot.
    pub fn routing_key(&self) -> &Bytes {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Checks the key of a pair, a container or a field.
pub fn check_key(key: &str) -> Result<(), NameError> {
    check_name(key, limits::CONFIG_KEY_CHARACTERS_MAX)
}

fn check_name(text: &str, characters_max: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.chars().count() > characters_max {
        return Err(NameError::TooLong(characters_max));
    }
    if text.chars().any(char::is_control) {
        return Err(NameError::Control);
    }
    Ok(())
}

/// A typed value under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// What it holds.
    pub value: Value,
    /// The revision that last wrote it.
    pub revision: u64,
}

/// A field of a container: its key, and the pairs that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Unique in the container.
    pub key: Arc<str>,
    /// Keys of pairs of the same namespace.
    pub refers: Refers,
}

/// What a field refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refers {
    /// One pair: field type 1.
    One(Arc<str>),
    /// Pairs in order: field type 2.
    List(Vec<Arc<str>>),
    /// Pairs by name: field type 3.
    Dict(BTreeMap<Arc<str>, Arc<str>>),
}

impl Refers {
    /// The number of the interface.
    pub fn field_type(&self) -> u8 {
        match self {
            Refers::One(_) => 1,
            Refers::List(_) => 2,
            Refers::Dict(_) => 3,
        }
    }

    /// The pairs referred to, each as often as it is.
    pub fn pairs(&self) -> impl Iterator<Item = &Arc<str>> {
        let (one, list, dict) = match self {
            Refers::One(pair) => (Some(pair), &[][..], None),
            Refers::List(pairs) => (None, &pairs[..], None),
            Refers::Dict(pairs) => (None, &[][..], Some(pairs.values())),
        };
        one.into_iter().chain(list).chain(dict.into_iter().flatten())
    }
}

/// A container: fields, and what they amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// By key.
    pub fields: Vec<Field>,
    /// The revision that last wrote the container itself.
    pub revision: u64,
    /// The last revision that wrote it or a pair that it refers to.
    pub touched: u64,
    /// The last revision that changed what it resolves to.
    pub changed: u64,
    /// SHA-256 of the canonical JSON that it resolves to.
    pub checksum: [u8; 32],
    /// Length of that JSON.
    pub document_bytes: usize,
}

impl Container {
    /// Every pair referred to, each as often as it is.
    pub fn pairs(&self) -> impl Iterator<Item = &Arc<str>> {
        self.fields.iter().flat_map(|field| field.refers.pairs())
    }
}

/// Who changes something, when and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// As the client says; at most [`limits::CONFIG_AUTHOR_CHARACTERS_MAX`].
    pub author: Arc<str>,
    /// Milliseconds since 1970 by the clock of the node that took the request. In the log it is a value like any other.
    pub time_ms: u64,
    /// At most [`limits::CONFIG_MESSAGE_CHARACTERS_MAX`].
    pub message: Arc<str>,
}

/// How much history a namespace keeps. Both bounds hold, but the newest [`limits::CONFIG_HISTORY_REVISIONS_MIN`]
/// revisions always stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Most revisions.
    pub revisions: u64,
    /// Longest time by which a revision may be older than the newest.
    pub age_ms: u64,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { revisions: limits::CONFIG_HISTORY_REVISIONS, age_ms: limits::CONFIG_HISTORY_AGE_MS }
    }
}

/// A pair or a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// The pair of this key.
    Pair(Arc<str>),
    /// The container of this key.
    Container(Arc<str>),
}

impl Item {
    /// Its key.
    pub fn key(&self) -> &Arc<str> {
        match self {
            Item::Pair(key) | Item::Container(key) => key,
        }
    }
}

/// One change of a namespace's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creates or replaces a pair.
    PutPair {
        /// Its key.
        key: Arc<str>,
        /// What it holds from now on.
        value: Value,
        /// Whether the pair may become one of another datatype. Without it a whole number for a pair that holds a float
        /// becomes a float, and any other datatype than that of the pair is refused.
        retype: bool,
    },
    /// Creates or replaces a container.
    PutContainer {
        /// Its key.
        key: Arc<str>,
        /// By key, each once.
        fields: Vec<Field>,
        /// Whether a field may refer to something of another datatype than before.
        retype: bool,
    },
    /// Removes what is there.
    Delete(Item),
}

/// A change of one namespace: what stands in the log. Answered by [`ConfigReply::Done`] or [`ConfigReply::Failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWrite {
    /// Which.
    pub namespace: Name,
    /// By whom, when and why.
    pub stamp: Stamp,
    /// Only while this is the namespace's revision.
    pub expected: Option<u64>,
    /// What.
    pub deed: Deed,
}

/// What is done to a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It comes into being.
    Create,
    /// It goes, with its history.
    Delete {
        /// Also if there is something in it.
        force: bool,
    },
    /// All of the changes happen, as one revision, or none. The order does not matter beyond that the last change of an
    /// item counts.
    Publish {
        /// What changes.
        changes: Vec<Change>,
        /// Creates the namespace if there is none.
        create: bool,
    },
    /// The content becomes what it was, as a new revision.
    Rollback {
        /// As of which revision.
        to: u64,
        /// Only this item; else all of the namespace.
        item: Option<Item>,
    },
    /// History is kept by other bounds from now on.
    SetPolicy(Policy),
}

/// A part of a backup's configuration on its way into one shard, as [`super::Restoration`] is for keys. May be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRestoration {
    /// Where to; every namespace inside must belong there.
    pub shard: ShardId,
    /// Which backup.
    pub backup: Uuid,
    /// A block of configuration, as snapshots hold it.
    pub block: Bytes,
}

/// A read of one namespace. Answered by a [`ConfigReply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRead {
    /// Which.
    pub namespace: Name,
    /// What of it.
    pub query: Query,
}

/// What to read of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The namespace itself: [`ConfigReply::Namespace`].
    Namespace,
    /// A page of pairs: [`ConfigReply::Pairs`].
    Pairs(Selection),
    /// One pair: [`ConfigReply::Pair`].
    Pair {
        /// Its key.
        key: Arc<str>,
        /// As of this revision; else now.
        at: Option<u64>,
    },
    /// A page of containers: [`ConfigReply::Containers`].
    Containers(Selection),
    /// One container, resolved: [`ConfigReply::Container`], or [`ConfigReply::Unchanged`].
    Container {
        /// Its key.
        key: Arc<str>,
        /// As of this revision; else now.
        at: Option<u64>,
        /// [`Container::touched`] of what the asker holds.
        known: Option<u64>,
    },
    /// Revisions, the newest first: [`ConfigReply::History`].
    History {
        /// Only those that changed this item.
        item: Option<Item>,
        /// Only those before this one.
        before: Option<u64>,
        /// Most revisions, 1 to [`limits::CONFIG_PAGE_ITEMS_MAX`].
        limit: usize,
    },
    /// Everything: [`ConfigReply::Export`].
    Export {
        /// As of this revision; else now.
        at: Option<u64>,
    },
    /// What a container resolved to since a revision: [`ConfigReply::Changes`].
    Changes {
        /// Its key.
        key: Arc<str>,
        /// Only changes of later revisions.
        after: u64,
    },
}

/// A page of items by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Only keys that hold this text.
    pub contains: Arc<str>,
    /// Items left out at the beginning.
    pub offset: usize,
    /// Most items, 1 to [`limits::CONFIG_PAGE_ITEMS_MAX`].
    pub limit: usize,
}

impl ConfigWrite {
    /// Checks the limits that hold without looking at state.
    pub(super) fn validate(&self) -> Result<(), Refusal> {
        check_name(self.namespace.as_str(), limits::CONFIG_NAMESPACE_CHARACTERS_MAX)
            .map_err(|_| Refusal::Invalid("a name that no namespace can have"))?;
        if self.stamp.author.chars().count() > limits::CONFIG_AUTHOR_CHARACTERS_MAX {
            return Err(Refusal::Invalid("an author's name longer than 128 characters"));
        }
        if self.stamp.message.chars().count() > limits::CONFIG_MESSAGE_CHARACTERS_MAX {
            return Err(Refusal::Invalid("a message longer than 1,024 characters"));
        }
        match &self.deed {
            Deed::Create | Deed::Delete { .. } | Deed::Rollback { .. } => Ok(()),
            Deed::Publish { changes, .. } => validate_changes(changes),
            Deed::SetPolicy(policy) => {
                let range = limits::CONFIG_HISTORY_REVISIONS_MIN..=limits::CONFIG_HISTORY_REVISIONS_MAX;
                if !range.contains(&policy.revisions) || policy.age_ms == 0 {
                    return Err(Refusal::Invalid("a history keeps 2 to 10,000 revisions for at least 1 ms"));
                }
                Ok(())
            }
        }
    }
}

fn validate_changes(changes: &[Change]) -> Result<(), Refusal> {
    if changes.len() > limits::CONFIG_PAIRS_MAX + limits::CONFIG_CONTAINERS_MAX {
        return Err(Refusal::Invalid("more changes at a time than a namespace can hold items"));
    }
    let invalid_key = |_| Refusal::Invalid("a key that is empty, too long, or holds control characters");
    let (mut bytes, mut values) = (0, 0);
    for change in changes {
        match change {
            Change::PutPair { key, value, .. } => {
                check_key(key).map_err(invalid_key)?;
                value.validate().map_err(|_| Refusal::Invalid("a value that no pair can hold"))?;
                bytes += key.len() + value.json_bytes();
                values += value.count();
            }
            Change::PutContainer { key, fields, .. } => {
                check_key(key).map_err(invalid_key)?;
                validate_fields(fields)?;
                bytes += key.len() + fields_bytes(fields);
            }
            Change::Delete(item) => bytes += item.key().len(),
        }
    }
    if bytes > limits::CONFIG_WRITE_BYTES_MAX {
        return Err(Refusal::Invalid("more than 8 MiB of changes at a time"));
    }
    if values > limits::CONFIG_WRITE_VALUES_MAX {
        return Err(Refusal::Invalid("more than 250,000 values at a time"));
    }
    Ok(())
}

/// Checks the fields of a container.
pub fn validate_fields(fields: &[Field]) -> Result<(), Refusal> {
    let invalid_key = |_| Refusal::Invalid("a key that is empty, too long, or holds control characters");
    if fields.len() > limits::CONFIG_FIELDS_MAX {
        return Err(Refusal::Invalid("a container of more than 256 fields"));
    }
    if fields.windows(2).any(|two| two[0].key >= two[1].key) {
        return Err(Refusal::Invalid("a field twice, or fields that are not in the order of their keys"));
    }
    let mut references = 0;
    for field in fields {
        check_key(&field.key).map_err(invalid_key)?;
        references += field.refers.pairs().count();
        if let Refers::Dict(pairs) = &field.refers {
            pairs.keys().try_for_each(|key| check_key(key)).map_err(invalid_key)?;
        }
        field.refers.pairs().try_for_each(|pair| check_key(pair)).map_err(invalid_key)?;
    }
    if fields_bytes(fields) > limits::CONFIG_CONTAINER_BYTES_MAX {
        return Err(Refusal::Invalid("a container of more than 256 KiB of keys"));
    }
    if references > limits::CONFIG_REFERENCES_MAX {
        return Err(Refusal::Invalid("a container that refers to more than 4,096 pairs"));
    }
    Ok(())
}

/// What fields weigh.
pub(crate) fn fields_bytes(fields: &[Field]) -> usize {
    let named = |refers: &Refers| match refers {
        Refers::Dict(pairs) => pairs.keys().map(|key| key.len() + 1).sum(),
        Refers::One(_) | Refers::List(_) => 0,
    };
    let field = |field: &Field| {
        let pairs: usize = field.refers.pairs().map(|pair| pair.len() + 1).sum();
        field.key.len() + 4 + pairs + named(&field.refers)
    };
    fields.iter().map(field).sum()
}

impl ConfigRestoration {
    pub(super) fn validate(&self) -> Result<(), Refusal> {
        if self.block.len() > limits::CONFIG_BLOCK_BYTES_MAX {
            return Err(Refusal::Invalid("too much of a backup at a time"));
        }
        crate::machine::config::check_block(&self.block)
            .map_err(|_| Refusal::Invalid("a block of configuration that does not decode"))
    }

    /// The namespaces inside.
    pub fn namespaces(&self) -> BTreeSet<Name> {
        crate::machine::config::namespaces_of(&self.block).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn values_of_a_change_are_bounded() {
        let list = |values: usize| Value::List(vec![Value::Int(1); values - 1]);
        let changes = |values: usize| {
            let most = 25_000;
            let full = (0..values / most).map(|_| list(most));
            let values = full.chain((values % most > 1).then(|| list(values % most)));
            let put = |value| Change::PutPair { key: "p".into(), value, retype: false };
            values.map(put).collect::<Vec<_>>()
        };
        assert_eq!(validate_changes(&changes(limits::CONFIG_WRITE_VALUES_MAX)), Ok(()));
        let refused = Err(Refusal::Invalid("more than 250,000 values at a time"));
        assert_eq!(validate_changes(&changes(limits::CONFIG_WRITE_VALUES_MAX + 2)), refused);
    }
}
