//! What a watcher of keys asks for, and the answers.

use alloc::vec::Vec;
use bytes::Bytes;

use crate::slots::slot_revisions::SlotRevisions;
use crate::slots::{hash_tag, slot_of};
use crate::types::{UnixMillis, Version};

/// The keys that are watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyScope {
    /// One key.
    Key(Bytes),
    /// All keys that begin with these bytes; all keys if there are none.
    Prefix(Bytes),
}

impl KeyScope {
    /// The slot of all its keys, if they have the same one.
    pub fn slot(&self) -> Option<u16> {
        match self {
            KeyScope::Key(key) => Some(slot_of(key)),
            // A complete tag at the beginning of a key decides its slot.
            KeyScope::Prefix(prefix) => hash_tag(prefix).is_some().then(|| slot_of(prefix)),
        }
    }

    /// Whether a key belongs to it.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeyScope::Key(own) => own == key,
            KeyScope::Prefix(prefix) => key.starts_with(prefix),
        }
    }

    /// The key or the prefix.
    pub fn bytes(&self) -> &Bytes {
        match self {
            KeyScope::Key(bytes) | KeyScope::Prefix(bytes) => bytes,
        }
    }
}

/// The latest state of a key that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: Bytes,
    /// The revision of this change. For an existing key it is the key's version.
    pub revision: Version,
    /// What the key holds; `None`: it does not exist.
    pub content: Option<KeyContent>,
}

/// What an existing key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyContent {
    /// The value; `None` if values were left out.
    pub value: Option<Bytes>,
    /// When the key expires; `None`: never.
    pub expires: Option<UnixMillis>,
}

impl KeyContent {
    /// Length of the value.
    pub fn value_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// Which keys of some slots have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedKeys {
    /// These, in the order of the changes. A key may occur more than once.
    Keys(Vec<Bytes>),
    /// Any key may have changed, and slots may have come from another shard.
    Any,
}

/// The answer to [`Read::Changes`](super::Read::Changes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// Changes of some slots after the revisions in question are no longer known. The answer then
    /// holds no changes.
    pub has_gap: bool,
    /// There are more changes than the answer holds.
    pub has_more: bool,
    /// In the order of their revisions within each shard.
    pub changes: Vec<KeyChange>,
    /// The answer holds every change up to these revisions. A replica that is behind answers with
    /// lower revisions than those in question.
    pub through: SlotRevisions,
}
