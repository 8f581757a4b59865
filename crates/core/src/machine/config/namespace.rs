//! One namespace: its content, and what is derived from it.
//!
//! Owns the invariants of content: containers refer to existing pairs, `users` holds the containers
//! that use each pair, the sizes are the sums over the content, and every container's checksum is
//! that of its current document.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

use super::drafts::Canary;
use super::history::{Revision, Undo};
use crate::command::config::{
    Action, ConfigError, Container, Content, Draft, Field, Item, Name, Pair, Policy, Schema, Stamp,
};
use crate::command::config::{fields_bytes, write_document};

/// A namespace of the configuration centre.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    pub revision: u64,
    /// The highest revision assigned so far, including those that the original cluster may have
    /// assigned after a backup.
    pub numbered: u64,
    /// The number before its first revision.
    pub began: u64,
    pub policy: Policy,
    /// The namespaces from which it inherits, the first that has an item before the others.
    pub parents: Vec<Arc<Name>>,
    /// Whether only approved drafts change it.
    pub is_protected: bool,
    pub drafts: BTreeMap<Arc<str>, Arc<Draft>>,
    pub(super) canary: Option<Arc<Canary>>,
    pub contents: Contents,
    /// The containers that use each pair, by the pair's key.
    pub users: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// By rising numbers. No change is missing between them.
    pub history: VecDeque<Arc<Revision>>,
    /// Bytes of pairs and containers.
    pub bytes: usize,
    /// Bytes of the history.
    pub history_bytes: usize,
    /// Bytes of all containers' documents.
    pub documents_bytes: usize,
}

/// Pairs and containers by key.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub pairs: BTreeMap<Arc<str>, Arc<Pair>>,
    pub containers: BTreeMap<Arc<str>, Arc<Container>>,
}

impl Contents {
    /// The content under a key.
    pub fn get(&self, item: &Item) -> Option<Content> {
        match item {
            Item::Pair(key) => self.pairs.get(key).cloned().map(Content::Pair),
            Item::Container(key) => self.containers.get(key).cloned().map(Content::Container),
        }
    }

    /// Restores the content under a key.
    pub fn undo(&mut self, undo: &Undo) {
        match (&undo.item, &undo.before) {
            (Item::Pair(key), Some(Content::Pair(pair))) => {
                self.pairs.insert(key.clone(), pair.clone());
            }
            (Item::Container(key), Some(Content::Container(container))) => {
                self.containers.insert(key.clone(), container.clone());
            }
            (Item::Pair(key), _) => {
                self.pairs.remove(key);
            }
            (Item::Container(key), _) => {
                self.containers.remove(key);
            }
        }
    }
}

impl Namespace {
    /// An empty namespace whose revisions start above `floor`.
    pub fn above(floor: u64) -> Namespace {
        Namespace { numbered: floor, began: floor, ..Namespace::default() }
    }

    /// Fails unless the namespace may be deleted.
    pub fn check_deletable(&self, force: bool) -> Result<(), ConfigError> {
        let (pairs, containers) = (self.contents.pairs.len() as u64, self.contents.containers.len() as u64);
        if !force && pairs + containers > 0 {
            return Err(ConfigError::NamespaceNotEmpty { pairs, containers });
        }
        Ok(())
    }

    /// Stores a pair, or removes it.
    pub fn set_pair(&mut self, key: &Arc<str>, pair: Option<Arc<Pair>>) {
        self.bytes += pair.as_ref().map_or(0, |pair| pair_bytes(key, pair));
        let old = match pair {
            Some(pair) => self.contents.pairs.insert(key.clone(), pair),
            None => self.contents.pairs.remove(key),
        };
        self.bytes -= old.map_or(0, |old| pair_bytes(key, &old));
    }

    /// Stores a container, or removes it.
    pub fn set_container(&mut self, key: &Arc<str>, container: Option<Arc<Container>>) {
        self.bytes += container.as_ref().map_or(0, |container| container_bytes(key, container));
        self.documents_bytes += container.as_ref().map_or(0, |container| container.document_bytes);
        let old = match &container {
            Some(container) => self.contents.containers.insert(key.clone(), container.clone()),
            None => self.contents.containers.remove(key),
        };
        if let Some(old) = &old {
            self.bytes -= container_bytes(key, old);
            self.documents_bytes -= old.document_bytes;
        }
        let is_same = |old: &Arc<Container>, new: &Arc<Container>| old.fields == new.fields;
        if old.as_ref().zip(container.as_ref()).is_some_and(|(old, new)| is_same(old, new)) {
            return;
        }
        for pair in old.iter().flat_map(|old| old.pairs()) {
            if let Some(users) = self.users.get_mut(pair) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(pair);
                }
            }
        }
        for pair in container.iter().flat_map(|container| container.pairs()) {
            self.users.entry(pair.clone()).or_default().insert(key.clone());
        }
    }

    /// Appends a revision to the history.
    pub fn remember(&mut self, revision: Revision) {
        self.revision = revision.number;
        self.numbered = revision.number;
        self.history_bytes += revision.bytes();
        self.history.push_back(Arc::new(revision));
        self.compact();
    }

    /// Records the creation of the namespace as a revision.
    pub fn create(&mut self, stamp: Stamp) {
        let number = self.numbered + 1;
        self.remember(Revision { number, stamp, action: Action::Create, undo: Vec::new() });
    }

    /// The containers that `revision` deleted or made resolve to another document.
    pub fn changed_by(&self, revision: u64) -> Vec<Arc<str>> {
        let Some(newest) = self.history.back().filter(|newest| newest.number == revision) else {
            return Vec::new();
        };
        let mut changed = BTreeSet::new();
        for Undo { item, .. } in &newest.undo {
            match item {
                Item::Container(key) => {
                    let is_there = self.contents.containers.get(key);
                    if is_there.is_none_or(|container| container.changed == revision) {
                        changed.insert(key.clone());
                    }
                }
                Item::Pair(key) => {
                    let users = self.users.get(key).into_iter().flatten();
                    let is_changed = |user: &&Arc<str>| {
                        let container = self.contents.containers.get(*user);
                        container.is_some_and(|container| container.changed == revision)
                    };
                    changed.extend(users.filter(is_changed).cloned());
                }
            }
        }
        changed.into_iter().collect()
    }
}

/// Computes length and checksum of a container's document.
pub fn resolve<'a>(container: &mut Container, pair: impl Fn(&str) -> Option<&'a Pair>, scratch: &mut String) {
    scratch.clear();
    write_document(container, pair, scratch);
    container.document_bytes = scratch.len();
    container.checksum = Sha256::digest(scratch.as_bytes()).into();
}

/// Size of a pair in bytes, as limits count it.
pub fn pair_bytes(key: &str, pair: &Pair) -> usize {
    key.len() + pair.value.json_bytes() + schema_bytes(pair.schema.as_ref())
}

fn schema_bytes(schema: Option<&Arc<Schema>>) -> usize {
    schema.map_or(0, |schema| schema.json_bytes())
}

/// Size of a container in bytes, as limits count it.
pub fn container_bytes(key: &str, container: &Container) -> usize {
    key.len() + fields_bytes(&container.fields) + schema_bytes(container.schema.as_ref())
}

/// A container without the length and checksum of its document.
pub fn unresolved(fields: Vec<Field>, revision: u64) -> Container {
    Container {
        fields,
        schema: None,
        source: None,
        revision,
        touched: revision,
        changed: revision,
        checksum: [0; 32],
        document_bytes: 0,
    }
}
