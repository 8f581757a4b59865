//! One namespace: its content, and what follows from that.
//!
//! Owns the invariants of content: containers refer to pairs that are there, `users` says by whom each pair is used, the
//! sizes are the sums of what is held, and every container's checksum is that of what it resolves to now.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

use super::history::{Revision, Undo};
use crate::command::config::{Action, ConfigError, Container, Content, Field, Item, Pair, Policy, Stamp};
use crate::command::config::{fields_bytes, write_document};

/// A namespace of the configuration centre.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    /// The newest revision.
    pub revision: u64,
    /// The highest number that was ever given out, or may have been by the cluster that this was restored from.
    pub numbered: u64,
    /// Its first revision came right behind this number.
    pub began: u64,
    pub policy: Policy,
    pub contents: Contents,
    /// The containers that use each pair.
    pub users: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// By rising numbers, without gaps in what they changed.
    pub history: VecDeque<Arc<Revision>>,
    /// Bytes of pairs and containers.
    pub bytes: usize,
    /// Bytes of what `history` keeps.
    pub history_bytes: usize,
    /// Bytes of all containers, resolved.
    pub documents_bytes: usize,
}

/// Pairs and containers by key.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub pairs: BTreeMap<Arc<str>, Arc<Pair>>,
    pub containers: BTreeMap<Arc<str>, Arc<Container>>,
}

impl Contents {
    /// What stands under a key.
    pub fn get(&self, item: &Item) -> Option<Content> {
        match item {
            Item::Pair(key) => self.pairs.get(key).cloned().map(Content::Pair),
            Item::Container(key) => self.containers.get(key).cloned().map(Content::Container),
        }
    }

    /// Puts back what stood under a key.
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
    /// An empty one whose revisions begin above a number.
    pub fn above(floor: u64) -> Namespace {
        Namespace { numbered: floor, began: floor, ..Namespace::default() }
    }

    /// Whether it may be deleted.
    pub fn may_go(&self, force: bool) -> Result<(), ConfigError> {
        let (pairs, containers) = (self.contents.pairs.len() as u64, self.contents.containers.len() as u64);
        if !force && pairs + containers > 0 {
            return Err(ConfigError::NamespaceNotEmpty { pairs, containers });
        }
        Ok(())
    }

    /// Puts a pair in place, or takes it away.
    pub fn set_pair(&mut self, key: &Arc<str>, pair: Option<Arc<Pair>>) {
        self.bytes += pair.as_ref().map_or(0, |pair| pair_bytes(key, pair));
        let old = match pair {
            Some(pair) => self.contents.pairs.insert(key.clone(), pair),
            None => self.contents.pairs.remove(key),
        };
        self.bytes -= old.map_or(0, |old| pair_bytes(key, &old));
    }

    /// Puts a container in place, or takes it away.
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

    /// Adds a revision to history.
    pub fn remember(&mut self, revision: Revision) {
        self.revision = revision.number;
        self.numbered = revision.number;
        self.history_bytes += revision.bytes();
        self.history.push_back(Arc::new(revision));
        self.compact();
    }

    /// The namespace comes into being.
    pub fn create(&mut self, stamp: Stamp) {
        let number = self.numbered + 1;
        self.remember(Revision { number, stamp, action: Action::Create, undo: Vec::new() });
    }

    /// The containers that `revision` made resolve to something else; those that it deleted among them.
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

/// A container's fields as they resolve: length and checksum of the document.
pub fn resolve<'a>(container: &mut Container, pair: impl Fn(&str) -> Option<&'a Pair>, scratch: &mut String) {
    scratch.clear();
    write_document(container, pair, scratch);
    container.document_bytes = scratch.len();
    container.checksum = Sha256::digest(scratch.as_bytes()).into();
}

/// What a pair weighs.
pub fn pair_bytes(key: &str, pair: &Pair) -> usize {
    key.len() + pair.value.json_bytes()
}

/// What a container weighs.
pub fn container_bytes(key: &str, container: &Container) -> usize {
    key.len() + fields_bytes(&container.fields)
}

/// A container that is not resolved yet.
pub fn unresolved(fields: Vec<Field>, revision: u64) -> Container {
    Container { fields, revision, touched: revision, changed: revision, checksum: [0; 32], document_bytes: 0 }
}
