//! Commands of the configuration centre: namespaces of typed pairs, and of containers that refer to
//! pairs.
//!
//! Owns the queries and changes, and the limits that can be checked without state.
//! `machine::config` owns the effect of a change, `layout` its encoding in the log, `questions`,
//! `answers` and `refusals` that of messages between nodes.

mod answers;
pub mod block;
mod draft;
mod layout;
mod questions;
mod refers;
mod refusals;
mod reply;
mod schema;
mod secret;
mod value;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;
use uuid::Uuid;

use super::ShardRefusal;
use crate::limits;
use crate::types::ShardId;
use crate::version::ClusterVersion;
pub use draft::{Audience, Draft, DraftAction, DraftStep, DraftView};
pub(crate) use layout::text as decode_text;
pub use refers::Refers;
pub use reply::document_tree;
pub use reply::{
    Action, Blame, ChangeView, Changes, ConfigError, ConfigPreview, ConfigReply, ConfigWritten, Content,
    DocumentChange, Export, Found, HistoryPage, Inheritance, NamespaceChanges, NamespaceEvent, NamespaceView,
    PreviewedDocument, RevisionView, SearchMatch, SearchPage,
};
pub(crate) use reply::{write_document, write_masked_document};
pub use schema::{CheckError, Schema, SchemaChecker, SchemaError, is_bytes, is_duration};
pub use secret::{SECRET_MASK, SealedSecret, is_key_id};
pub use value::{Datatype, Float, MeasuredValue, Value, ValueError};

/// The name of a namespace: text of 1 to [`limits::CONFIG_NAMESPACE_CHARACTERS_MAX`] characters
/// without control characters. Its slot, computed as for a key, decides the shard. Names that share
/// a `{hash tag}` share a shard with each other and with the keys of that tag. Namespaces and keys
/// are nevertheless separate: neither is visible through the other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Bytes);

/// Why text is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text has no characters.
    #[error("it is empty")]
    Empty,
    /// The text has more characters than this.
    #[error("it is longer than {0} characters")]
    TooLong(usize),
    /// A control character, such as a line break.
    #[error("it holds a control character")]
    Control,
}

impl Name {
    /// Creates a name, if `text` is valid.
    pub fn new(text: &str) -> Result<Name, NameError> {
        check_name(text, limits::CONFIG_NAMESPACE_CHARACTERS_MAX)?;
        Ok(Name(Bytes::copy_from_slice(text.as_bytes())))
    }

    /// Returns the text of the name.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).expect("invariant: a name is text")
    }

    /// The bytes that decide its slot.
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
    /// At most [`limits::CONFIG_VALUE_BYTES_MAX`] bytes as JSON.
    pub value: MeasuredValue,
    /// What the value must be. Every change is checked.
    pub schema: Option<Arc<Schema>>,
    /// The revision that last wrote the pair.
    pub revision: u64,
    /// The namespace from which it is inherited; `None`: this namespace sets it itself.
    pub source: Option<Arc<Name>>,
}

/// A field of a container: its key, and the pairs that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Unique in the container.
    pub key: Arc<str>,
    /// Keys of pairs of the same namespace.
    pub refers: Refers,
}

/// A container: fields, and the document to which they resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Sorted by key.
    pub fields: Vec<Field>,
    /// What the document must be. Every change of the container or of a pair that it refers to is
    /// checked.
    pub schema: Option<Arc<Schema>>,
    /// The revision that last wrote the container itself.
    pub revision: u64,
    /// The last revision that wrote the container or a pair that it refers to.
    pub touched: u64,
    /// The last revision that changed the document to which it resolves.
    pub changed: u64,
    /// SHA-256 of the canonical JSON of that document.
    pub checksum: [u8; 32],
    /// Length of that JSON in bytes.
    pub document_bytes: usize,
    /// The namespace from which it is inherited; `None`: this namespace sets it itself.
    pub source: Option<Arc<Name>>,
}

impl Container {
    /// The keys of all pairs referred to, repeated as often as they are referred to.
    pub fn pairs(&self) -> impl Iterator<Item = &Arc<str>> {
        self.fields.iter().flat_map(|field| field.refers.pairs())
    }
}

/// Author, time and message of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The principal that the client has proved to be, or otherwise the name that it states; at
    /// most [`limits::CONFIG_AUTHOR_CHARACTERS_MAX`].
    pub author: Arc<str>,
    /// The name that the client of a principal states, if it is another one; otherwise empty. At
    /// most [`limits::CONFIG_AUTHOR_CHARACTERS_MAX`].
    pub on_behalf_of: Arc<str>,
    /// Milliseconds since 1970 by the clock of the node that received the request. Replicas take it
    /// from the log.
    pub time_ms: u64,
    /// Message as stated by the client; at most [`limits::CONFIG_MESSAGE_CHARACTERS_MAX`].
    pub message: Arc<str>,
}

impl Stamp {
    /// Bytes of its texts.
    pub(crate) fn text_bytes(&self) -> usize {
        self.author.len() + self.on_behalf_of.len() + self.message.len()
    }
}

/// How much history a namespace keeps. Both bounds apply, but the newest
/// [`limits::CONFIG_HISTORY_REVISIONS_MIN`] revisions always stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Maximum number of revisions that are kept.
    pub revisions: u64,
    /// Maximum age of a revision in milliseconds, relative to the newest revision.
    pub age_ms: u64,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { revisions: limits::CONFIG_HISTORY_REVISIONS, age_ms: limits::CONFIG_HISTORY_AGE_MS }
    }
}

/// The key of a pair or a container. Both may have the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// The pair of this key.
    Pair(Arc<str>),
    /// The container of this key.
    Container(Arc<str>),
}

impl Item {
    /// The key of the pair or container.
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
        /// The pair that gets the value.
        key: Arc<str>,
        /// Its limits are those of [`Value::validate`].
        value: Value,
        /// Whether the pair may change its datatype. If not, a value of another datatype is
        /// refused, except that an integer for a pair that holds a float becomes a float.
        retype: bool,
    },
    /// Creates or replaces a container.
    PutContainer {
        /// The container that gets the fields.
        key: Arc<str>,
        /// The fields, by key, each key once.
        fields: Vec<Field>,
        /// Whether a field may resolve to another datatype than before.
        retype: bool,
    },
    /// Requires that a pair holds a secret, which stays as it is. It stands for the mask in a file
    /// that was exported.
    KeepSecret {
        /// The pair that must hold a secret.
        key: Arc<str>,
    },
    /// Removes a pair or a container.
    Delete(Item),
    /// Sets or removes the schema of a pair or a container, which must exist after all changes.
    /// Changes of its content keep the schema that it has.
    SetSchema {
        /// What gets the schema.
        item: Item,
        /// `None`: it has no schema any more.
        schema: Option<Arc<Schema>>,
    },
}

impl Change {
    /// Whether it is a change of this pair or container.
    pub fn is_of(&self, item: &Item) -> bool {
        match (self, item) {
            (Change::PutPair { key, .. } | Change::KeepSecret { key }, Item::Pair(of))
            | (Change::PutContainer { key, .. }, Item::Container(of)) => key == of,
            (Change::Delete(of) | Change::SetSchema { item: of, .. }, item) => of == item,
            (
                Change::PutPair { .. } | Change::KeepSecret { .. } | Change::PutContainer { .. },
                Item::Pair(_) | Item::Container(_),
            ) => false,
        }
    }
}

/// A change of one namespace, as the log holds it. Answered by [`ConfigWritten`] or a
/// [`ConfigError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWrite {
    /// Its name decides the shard.
    pub namespace: Name,
    /// Author, time and message, kept with the revision.
    pub stamp: Stamp,
    /// Applies only if this is the namespace's revision.
    pub expected: Option<u64>,
    /// What to do if the condition holds.
    pub operation: ConfigOperation,
}

/// What a [`ConfigWrite`] does to its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Creates an empty namespace. Fails if it exists.
    Create,
    /// Deletes the namespace and its history.
    Delete {
        /// Whether to delete a namespace that is not empty.
        force: bool,
    },
    /// Applies all changes as one revision, or none of them. If an item is changed more than once,
    /// its last change applies; otherwise the order does not matter.
    Publish {
        /// Every pair that a container refers to must exist after all changes.
        changes: Vec<Change>,
        /// Whether to create the namespace if it does not exist.
        create: bool,
    },
    /// Restores the content of an earlier revision, as a new revision.
    Rollback {
        /// A revision that is still kept.
        to: u64,
        /// The only item to restore; `None`: the whole namespace.
        item: Option<Item>,
    },
    /// Sets how much history the namespace keeps.
    SetPolicy(Policy),
    /// Sets the namespaces from which this one inherits every pair and container that it does not
    /// set itself. The first of them that has an item gives it.
    SetParents {
        /// Existing namespaces with the same hash slot, each once; at most
        /// [`limits::CONFIG_PARENTS_MAX`].
        parents: Vec<Name>,
    },
    /// Sets whether the namespace is protected: only drafts change it, and each needs the approval
    /// of somebody who has not edited it.
    SetProtected(bool),
    /// Changes or publishes a draft. Publishing may end a canary of the draft.
    Draft {
        /// The name of the draft.
        draft: Arc<str>,
        /// What is done to it.
        action: DraftAction,
    },
    /// Ends the canary: its readers are shown the newest revision again. The draft stays.
    Withdraw,
}

/// A part of a backup's configuration to restore into one shard, as [`super::Restoration`] is for
/// keys. It may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRestoration {
    /// The shard. Every namespace inside must belong to it.
    pub shard: ShardId,
    /// [`Header::backup`](crate::storage::backup::Header::backup) of the file.
    pub backup: Uuid,
    /// A block of configuration, as in snapshots.
    pub block: Bytes,
}

/// A notification that the configuration of a namespace changed on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigUpdate {
    /// The namespace that changed or was deleted, or whose slot was moved.
    pub namespace: Name,
    /// Keys of the containers that resolve to another document, or that were deleted.
    pub containers: Vec<Arc<str>>,
}

/// A read of one namespace. Answered by a [`ConfigReply`] or a [`ConfigError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRead {
    /// Its name decides the shard.
    pub namespace: Name,
    /// The part of the namespace to read.
    pub query: Query,
}

/// The part of a namespace that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Revision, size and policy of the namespace: [`ConfigReply::Namespace`].
    Namespace,
    /// A page of pairs: [`ConfigReply::Pairs`].
    Pairs(Selection),
    /// One pair: [`ConfigReply::Pair`].
    Pair {
        /// Key of the pair. It must exist at that revision.
        key: Arc<str>,
        /// The revision to read; `None`: the newest.
        at: Option<u64>,
    },
    /// A page of containers: [`ConfigReply::Containers`].
    Containers(Selection),
    /// One container, resolved: [`ConfigReply::Container`], or [`ConfigReply::Unchanged`].
    Container {
        /// Key of the container. It must exist at that revision.
        key: Arc<str>,
        /// The revision to read; `None`: the newest.
        at: Option<u64>,
        /// [`Container::touched`] of the client's copy. If it is current, the reply is `Unchanged`.
        known: Option<u64>,
    },
    /// Revisions, the newest first: [`ConfigReply::History`].
    History {
        /// Only revisions that changed this item.
        item: Option<Item>,
        /// Only revisions before this one.
        before: Option<u64>,
        /// Maximum number of revisions, 1 to [`limits::CONFIG_PAGE_ITEMS_MAX`].
        limit: usize,
    },
    /// All pairs and containers: [`ConfigReply::Export`].
    Export {
        /// The revision to read; `None`: the newest.
        at: Option<u64>,
    },
    /// Pairs and containers with a text in their keys or values: [`ConfigReply::Search`].
    Search(Search),
    /// The containers that refer to a pair: [`ConfigReply::Users`].
    Users {
        /// Key of the pair. It must exist.
        key: Arc<str>,
    },
    /// A container, and who wrote each pair that it refers to: [`ConfigReply::Blame`].
    Blame {
        /// Key of the container. It must exist.
        key: Arc<str>,
    },
    /// The documents of a container since a revision: [`ConfigReply::Changes`].
    Changes {
        /// The container whose changes are read. It need not exist.
        key: Arc<str>,
        /// Only changes of later revisions; 0: all that are kept.
        after: u64,
    },
    /// The documents of all containers since a position: [`ConfigReply::NamespaceChanges`].
    NamespaceChanges {
        /// Only what comes later; `None`: the present state.
        after: Option<WatchPosition>,
    },
    /// What a change would do to the namespace: [`ConfigReply::Preview`], or the error that the
    /// change would have.
    Preview(Box<Preview>),
    /// From which namespaces it inherits, and whether it is protected:
    /// [`ConfigReply::Inheritance`].
    Inheritance,
    /// All drafts: [`ConfigReply::Drafts`].
    Drafts,
    /// One draft, and what publishing it would do: [`ConfigReply::Draft`].
    Draft {
        /// The name of the draft. It must exist.
        draft: Arc<str>,
    },
    /// The answer to another query as a reader with a label gets it: from the canary, if the reader
    /// is among its audience.
    Labelled {
        /// The label of the reader.
        label: Arc<str>,
        /// The other query. Only those of [`Query::depends_on_label`] are asked so.
        query: Box<Query>,
    },
}

/// A change whose effect is to be shown, as in a [`ConfigWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The revision that the change would expect.
    pub expected: Option<u64>,
    /// What the change would do.
    pub operation: ConfigOperation,
}

impl ConfigRead {
    /// The version that a cluster must have so that every node understands the query.
    pub(crate) fn needed_version(&self) -> ClusterVersion {
        self.query.needed_version().max(self.namespace.needed_version())
    }

    /// The same read without a label, for clusters below [`ClusterVersion::WITH_DRAFTS`]: nodes of
    /// earlier releases do not know labels. Such a cluster has no canaries, so the answer is the
    /// same.
    pub(crate) fn without_label(self) -> ConfigRead {
        match self.query {
            Query::Labelled { query, .. } => ConfigRead { query: *query, ..self },
            _ => self,
        }
    }
}

impl Query {
    /// Whether readers with different labels may get different answers: what programs read.
    pub fn depends_on_label(&self) -> bool {
        matches!(self, Query::Container { .. } | Query::Changes { .. } | Query::NamespaceChanges { .. })
    }

    fn needed_version(&self) -> ClusterVersion {
        match self {
            Query::Inheritance | Query::Drafts | Query::Draft { .. } => ClusterVersion::WITH_DRAFTS,
            Query::Labelled { query, .. } => query.needed_version(),
            Query::NamespaceChanges { .. } => ClusterVersion::WITH_NAMESPACE_WATCHES,
            Query::Search(_) | Query::Users { .. } | Query::Blame { .. } => ClusterVersion::WITH_LEAVES,
            Query::Preview(preview) => ClusterVersion::WITH_SCHEMAS.max(preview.operation.needed_version()),
            Query::Namespace
            | Query::Pairs(_)
            | Query::Pair { .. }
            | Query::Containers(_)
            | Query::Container { .. }
            | Query::History { .. }
            | Query::Export { .. }
            | Query::Changes { .. } => ClusterVersion::FIRST,
        }
    }
}

/// The last event that a watcher of configuration has received.
///
/// One revision may change several containers. Their events come in the order of their keys, so a
/// position inside a revision names a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPosition {
    /// The revision of the last event, or of the state that the client is being sent; 0: it has
    /// received nothing.
    pub revision: u64,
    /// The container of the last event. Events of the same revision whose containers have higher
    /// keys come next. `None`: the client has received every event of the revision.
    pub container: Option<Arc<str>>,
    /// The client is being sent the state as of the revision: all containers, by key. Otherwise it
    /// is being sent changes.
    pub is_state: bool,
}

impl WatchPosition {
    /// The position of a client that has received everything up to a revision.
    pub fn through(revision: u64) -> WatchPosition {
        WatchPosition { revision, container: None, is_state: false }
    }
}

/// A search in the keys and values of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// What a key or a value contains. Case matters.
    pub text: Arc<str>,
    /// Continues after this item.
    pub after: Option<Item>,
    /// Maximum number of matches, 1 to [`limits::CONFIG_PAGE_ITEMS_MAX`].
    pub limit: usize,
}

/// A page of items by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Only keys that contain this text.
    pub contains: Arc<str>,
    /// Number of matching items to skip.
    pub offset: usize,
    /// Maximum number of items, 1 to [`limits::CONFIG_PAGE_ITEMS_MAX`].
    pub limit: usize,
}

impl ConfigWrite {
    /// Checks the limits that do not depend on state.
    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        check_name(self.namespace.as_str(), limits::CONFIG_NAMESPACE_CHARACTERS_MAX)
            .map_err(|_| ShardRefusal::invalid("a name that no namespace can have"))?;
        if self.stamp.author.chars().count() > limits::CONFIG_AUTHOR_CHARACTERS_MAX {
            return Err(ShardRefusal::invalid("an author's name longer than 128 characters"));
        }
        if self.stamp.message.chars().count() > limits::CONFIG_MESSAGE_CHARACTERS_MAX {
            return Err(ShardRefusal::invalid("a message longer than 1,024 characters"));
        }
        self.operation.validate()
    }
}

impl ConfigOperation {
    /// Checks the limits that do not depend on state.
    pub(crate) fn validate(&self) -> Result<(), ShardRefusal> {
        match self {
            ConfigOperation::Create | ConfigOperation::Delete { .. } | ConfigOperation::Rollback { .. } => {
                Ok(())
            }
            ConfigOperation::SetProtected(_) | ConfigOperation::Withdraw => Ok(()),
            ConfigOperation::Publish { changes, .. } => validate_changes(changes),
            ConfigOperation::SetParents { parents } if parents.len() > limits::CONFIG_PARENTS_MAX => {
                Err(ShardRefusal::invalid("more than 8 parents of a namespace"))
            }
            ConfigOperation::SetParents { .. } => Ok(()),
            ConfigOperation::Draft { draft, action } => {
                valid_key(draft)?;
                action.validate()
            }
            ConfigOperation::SetPolicy(policy) => {
                let range = limits::CONFIG_HISTORY_REVISIONS_MIN..=limits::CONFIG_HISTORY_REVISIONS_MAX;
                if !range.contains(&policy.revisions) || policy.age_ms == 0 {
                    return Err(ShardRefusal::invalid(
                        "a history keeps 2 to 10,000 revisions for at least 1 ms",
                    ));
                }
                Ok(())
            }
        }
    }
}

fn valid_key(key: &str) -> Result<(), ShardRefusal> {
    check_key(key)
        .map_err(|_| ShardRefusal::invalid("a key that is empty, too long, or holds control characters"))
}

fn validate_changes(changes: &[Change]) -> Result<(), ShardRefusal> {
    if changes.len() > limits::CONFIG_PAIRS_MAX + limits::CONFIG_CONTAINERS_MAX {
        return Err(ShardRefusal::invalid("more changes at a time than a namespace can hold items"));
    }
    let (mut bytes, mut values) = (0, 0);
    for change in changes {
        match change {
            Change::PutPair { key, value, .. } => {
                valid_key(key)?;
                value.validate().map_err(|_| ShardRefusal::invalid("a value that no pair can hold"))?;
                bytes += key.len() + value.json_bytes();
                values += value.count();
            }
            Change::PutContainer { key, fields, .. } => {
                valid_key(key)?;
                validate_fields(fields)?;
                bytes += key.len() + fields_bytes(fields);
            }
            Change::KeepSecret { key } => {
                valid_key(key)?;
                bytes += key.len();
            }
            Change::Delete(item) => bytes += item.key().len(),
            Change::SetSchema { item, schema } => {
                valid_key(item.key())?;
                bytes += item.key().len() + schema.as_ref().map_or(0, |schema| schema.json_bytes());
            }
        }
    }
    if bytes > limits::CONFIG_WRITE_BYTES_MAX {
        return Err(ShardRefusal::invalid("more than 8 MiB of changes at a time"));
    }
    if values > limits::CONFIG_WRITE_VALUES_MAX {
        return Err(ShardRefusal::invalid("more than 250,000 values at a time"));
    }
    Ok(())
}

/// Checks the fields of a container.
pub fn validate_fields(fields: &[Field]) -> Result<(), ShardRefusal> {
    if fields.len() > limits::CONFIG_FIELDS_MAX {
        return Err(ShardRefusal::invalid("a container of more than 256 fields"));
    }
    if fields.windows(2).any(|two| two[0].key >= two[1].key) {
        return Err(ShardRefusal::invalid(
            "a field twice, or fields that are not in the order of their keys",
        ));
    }
    let mut references = 0;
    for field in fields {
        valid_key(&field.key)?;
        references += field.refers.pairs().count();
        field.refers.check()?;
    }
    if fields_bytes(fields) > limits::CONFIG_CONTAINER_BYTES_MAX {
        return Err(ShardRefusal::invalid("a container of more than 256 KiB of keys"));
    }
    if references > limits::CONFIG_REFERENCES_MAX {
        return Err(ShardRefusal::invalid("a container that refers to more than 4,096 pairs"));
    }
    Ok(())
}

/// Bytes of keys in `fields`, as limits count them.
pub(crate) fn fields_bytes(fields: &[Field]) -> usize {
    let field = |field: &Field| field.key.len() + 4 + field.refers.key_bytes();
    fields.iter().map(field).sum()
}

impl ConfigRestoration {
    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        if self.block.len() > limits::CONFIG_BLOCK_BYTES_MAX {
            return Err(ShardRefusal::invalid("too much of a backup at a time"));
        }
        block::check_block(&self.block)
            .map_err(|_| ShardRefusal::invalid("a block of configuration that does not decode"))
    }

    /// The namespaces in the block.
    pub fn namespaces(&self) -> BTreeSet<Name> {
        block::namespaces_of(&self.block).unwrap_or_default()
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
        let refused = Err(ShardRefusal::invalid("more than 250,000 values at a time"));
        assert_eq!(validate_changes(&changes(limits::CONFIG_WRITE_VALUES_MAX + 2)), refused);
    }
}
