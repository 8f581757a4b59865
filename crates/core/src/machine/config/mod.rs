//! Configuration in one data shard: namespaces of typed pairs and containers, with their history.
//!
//! Owns the set of namespaces, and the guarantee that revisions are never reused. A namespace
//! counts its revisions from 1. When it is deleted, the shard remembers its highest revision, and
//! later namespaces start above it. Configuration does not depend on the keys of the store.
//!
//! - `namespace`: content, and what is derived from it (references, sizes, checksums).
//! - `publish`: how a change becomes a revision, atomically.
//! - `inheritance`: what namespaces inherit from others.
//! - `drafts`: changes under review, and what a part of the readers sees first.
//! - `preview`: what a change would do.
//! - `history`: what each revision replaced, earlier states, and how much of it is kept.
//! - `moving`: namespaces that move to another shard.
//! - `read`: replies to queries; `changes`: those that watchers get.
//! - `search`: texts in keys and values.
//! - `records`: conversion to and from blocks, for snapshots, backups and moves of slots.
//!
//! A snapshot takes a reference to every namespace at once. The first later write to such a
//! namespace copies its index, but not the values, so writes continue during a snapshot.

mod changes;
mod drafts;
mod history;
mod inheritance;
pub mod moving;
mod namespace;
mod preview;
mod publish;
mod read;
mod records;
mod search;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use crc::{CRC_64_XZ, Crc};

use crate::codec::DecodeError;
use crate::command::config::block::{ConfigRecord, of_block};
pub use crate::command::config::block::{NamespaceBlock, is_block, split_block};
use crate::command::config::{
    Action, Change, ConfigError, ConfigOperation, ConfigUpdate, ConfigWritten, DraftAction, Name, Query,
    Stamp,
};
use crate::command::{ConfigRead, ConfigReply, ConfigWrite, Item, Page};
use crate::deliberate::Faults;
use crate::limits;
use crate::slots;
use crate::types::Version;
use inheritance::{Parents, PlannedRevisions};
use namespace::Namespace;
use publish::PreparedRevision;
use records::Blocks;

/// Configuration of one data shard.
#[derive(Debug, Default)]
pub struct Config {
    namespaces: BTreeMap<Name, Arc<Namespace>>,
    /// The namespaces that inherit from each directly, by the name of the parent.
    children: BTreeMap<Name, BTreeSet<Name>>,
    /// Every new namespace starts above this revision: the highest that a deleted namespace had
    /// reached.
    floor: u64,
    /// Whether anything but a restore ever changed the configuration.
    touched: bool,
    /// Changes since [`Config::take_updates`] was last called.
    news: Vec<ConfigUpdate>,
    copy_on_write: Option<Blocks>,
    /// Deliberate faults.
    pub(super) faults: Faults,
}

impl Config {
    /// Applies a change of a namespace.
    pub fn apply(&mut self, write: ConfigWrite) -> Result<ConfigWritten, ConfigError> {
        let ConfigWrite { namespace: name, stamp, expected, operation } = write;
        let current = self.namespaces.get(&name).map_or(0, |namespace| namespace.revision);
        if let Some(expected) = expected
            && expected != current
        {
            return Err(ConfigError::RevisionMismatch { current });
        }
        let creates =
            matches!(operation, ConfigOperation::Create | ConfigOperation::Publish { create: true, .. });
        if current == 0 && creates {
            return self.create(name, stamp, operation);
        }
        let Some(namespace) = self.namespaces.get(&name) else { return Err(ConfigError::NoNamespace) };
        match operation {
            ConfigOperation::Create => return Err(ConfigError::NamespaceExists),
            ConfigOperation::Delete { force } => {
                if namespace.is_protected {
                    return Err(ConfigError::Protected);
                }
                namespace.check_deletable(force)?;
                self.check_childless(&name)?;
                self.remove(&name);
                self.touched = true;
                return Ok(ConfigWritten { revision: current, changed: true });
            }
            ConfigOperation::Publish { changes, .. } => {
                namespace.check_open()?;
                self.publish(&name, changes, (Action::Publish, stamp))?;
            }
            ConfigOperation::Rollback { to, item } => {
                namespace.check_open()?;
                let changes = namespace.restoring(to, item)?;
                self.publish(&name, changes, (Action::Rollback { to }, stamp))?;
            }
            ConfigOperation::SetParents { parents } => self.set_parents(&name, &parents, stamp)?,
            ConfigOperation::SetPolicy(policy) => {
                namespace.check_no_canary()?;
                self.change(&name).set_policy(policy, stamp);
            }
            ConfigOperation::SetProtected(is_protected) => {
                namespace.check_no_canary()?;
                self.change(&name).set_protected(is_protected, stamp);
            }
            ConfigOperation::Draft { draft, action } => {
                self.apply_to_draft(&name, (draft, action), stamp)?;
                self.touched = true;
                let revision = self.namespaces[&name].revision;
                return Ok(ConfigWritten { revision, changed: true });
            }
            ConfigOperation::Withdraw => {
                let faults = self.faults;
                let containers = self.change(&name).withdraw(stamp, faults)?;
                self.news.push(ConfigUpdate { namespace: name.clone(), containers });
            }
        }
        let revision = self.namespaces[&name].revision;
        let changed = revision != current;
        self.touched |= changed;
        Ok(ConfigWritten { revision, changed })
    }

    fn create(
        &mut self,
        name: Name,
        stamp: Stamp,
        operation: ConfigOperation,
    ) -> Result<ConfigWritten, ConfigError> {
        let mut namespace = self.new_namespace()?;
        if let ConfigOperation::Publish { changes, .. } = operation {
            let staged = namespace.stage(changes, &Parents::default())?;
            let prepared = namespace.prepare(staged, (Action::Publish, stamp.clone()), self.faults)?;
            prepared.into_iter().for_each(|prepared| namespace.install(prepared));
        }
        if namespace.revision == 0 {
            namespace.create(stamp);
        }
        let revision = namespace.revision;
        self.namespaces.insert(name.clone(), Arc::new(namespace));
        self.tell(&name);
        self.touched = true;
        Ok(ConfigWritten { revision, changed: true })
    }

    /// The existing namespace, to change it.
    fn change(&mut self, name: &Name) -> &mut Namespace {
        let namespace = self.namespaces.get_mut(name).expect("invariant: the caller has found it");
        Arc::make_mut(namespace)
    }

    /// Makes changes a revision of a namespace, and of all that inherit from it.
    fn publish(
        &mut self,
        name: &Name,
        changes: Vec<Change>,
        (action, stamp): (Action, Stamp),
    ) -> Result<(), ConfigError> {
        let namespace = &self.namespaces[name];
        let staged = namespace.stage(changes, &self.parents(&namespace.parents, None))?;
        let Some(prepared) = namespace.prepare(staged, (action, stamp.clone()), self.faults)? else {
            return Ok(());
        };
        self.install(name, prepared, &stamp)
    }

    /// Applies a revision of a namespace, and those that it causes.
    fn install(&mut self, name: &Name, prepared: PreparedRevision, stamp: &Stamp) -> Result<(), ConfigError> {
        let mut plan = PlannedRevisions::from([(name.clone(), prepared)]);
        self.inherit(&mut plan, name, stamp)?;
        for (name, prepared) in plan {
            self.change(&name).install(prepared);
            self.tell(&name);
        }
        Ok(())
    }

    fn set_parents(&mut self, name: &Name, parents: &[Name], stamp: Stamp) -> Result<(), ConfigError> {
        self.namespaces[name].check_open()?;
        let Some((parents, prepared)) = self.prepare_parents(name, parents, stamp.clone())? else {
            return Ok(());
        };
        self.install(name, prepared, &stamp)?;
        self.unlink(name);
        self.link(name, &parents);
        self.change(name).parents = parents;
        Ok(())
    }

    fn apply_to_draft(
        &mut self,
        name: &Name,
        (draft, action): (Arc<str>, DraftAction),
        stamp: Stamp,
    ) -> Result<(), ConfigError> {
        let namespace = &self.namespaces[name];
        let parents = self.parents(&namespace.parents, None);
        match action {
            DraftAction::Publish { edits } => {
                let prepared =
                    namespace.prepare_draft((&draft, edits), stamp.clone(), &parents, self.faults)?;
                self.install(name, prepared, &stamp)?;
                let namespace = self.change(name);
                namespace.drafts.remove(&draft);
                namespace.canary = None;
            }
            DraftAction::Canary { edits, audience } => {
                let mut changed = Namespace::clone(namespace);
                changed.begin_canary((draft, edits, audience), stamp, &parents, self.faults)?;
                let containers = changed.shown_by_canary();
                self.namespaces.insert(name.clone(), Arc::new(changed));
                self.news.push(ConfigUpdate { namespace: name.clone(), containers });
            }
            action => self.change(name).edit_draft(draft, action, stamp)?,
        }
        Ok(())
    }

    fn new_namespace(&self) -> Result<Namespace, ConfigError> {
        if self.namespaces.len() >= limits::CONFIG_NAMESPACES_MAX {
            return Err(ConfigError::TooManyNamespaces);
        }
        Ok(Namespace::above(self.floor))
    }

    fn remove(&mut self, name: &Name) {
        self.unlink(name);
        let Some(namespace) = self.namespaces.remove(name) else { return };
        self.floor = self.floor.max(namespace.numbered);
        let containers = namespace.watched_containers().into_iter().collect();
        self.news.push(ConfigUpdate { namespace: name.clone(), containers });
    }

    /// Removes all namespaces. Only restores have written them.
    pub fn discard_restored(&mut self) {
        let names: Vec<Name> = self.namespaces.keys().cloned().collect();
        names.iter().for_each(|name| self.remove(name));
    }

    /// Records the containers that the newest revision made resolve to another document.
    fn tell(&mut self, name: &Name) {
        let namespace = &self.namespaces[name];
        let containers = namespace.changed_by(namespace.revision);
        if !containers.is_empty() {
            self.news.push(ConfigUpdate { namespace: name.clone(), containers });
        }
    }

    /// Takes the changes since the last call.
    pub fn take_updates(&mut self) -> Vec<ConfigUpdate> {
        core::mem::take(&mut self.news)
    }

    /// Namespaces whose content differs from an earlier state, or differed in between.
    pub fn updates_since(&self, before: &Config) -> Vec<ConfigUpdate> {
        let names: BTreeSet<&Name> = self.namespaces.keys().chain(before.namespaces.keys()).collect();
        let news = names.into_iter().map(|name| {
            let (known, now) = (before.namespaces.get(name), self.namespaces.get(name));
            let changed = |namespace: Option<&Arc<Namespace>>, key: &Arc<str>| {
                namespace
                    .and_then(|namespace| namespace.contents.containers.get(key))
                    .map(|found| found.changed)
            };
            let there = [known, now].into_iter().flatten().flat_map(|found| found.contents.containers.keys());
            let differs = |key: &&Arc<str>| changed(known, key) != changed(now, key);
            let mut keys: BTreeSet<&Arc<str>> = there.filter(differs).collect();
            let since = known.map_or(0, |known| known.revision);
            keys.extend(now.into_iter().flat_map(|now| now.containers_written_since(since)));
            let mut containers: BTreeSet<Arc<str>> = keys.into_iter().cloned().collect();
            let canary = |namespace: Option<&Arc<Namespace>>| {
                namespace.and_then(|namespace| namespace.canary.clone()).map(|canary| canary.record.clone())
            };
            if canary(known) != canary(now) {
                let seen = [known, now].into_iter().flatten();
                containers.extend(seen.flat_map(|namespace| namespace.shown_by_canary()));
            }
            let containers: Vec<_> = containers.into_iter().collect();
            // An empty namespace that was deleted or created again concerns those who watch all of
            // it.
            let is_other_life = known.map(|known| known.began) != now.map(|now| now.began);
            let update = ConfigUpdate { namespace: name.clone(), containers };
            (is_other_life || !update.containers.is_empty()).then_some(update)
        });
        news.flatten().collect()
    }

    /// Answers a read of a namespace.
    pub fn read(&self, read: &ConfigRead) -> Result<ConfigReply, ConfigError> {
        let ConfigRead { namespace: name, query } = read;
        match (query, self.namespaces.get(name)) {
            (Query::Preview(change), _) => preview::preview(self, name, change).map(ConfigReply::Preview),
            (Query::Inheritance, _) => {
                self.inheritance(name).map(|inheritance| ConfigReply::Inheritance(inheritance.into()))
            }
            (Query::Draft { draft }, _) => {
                self.draft_view(name, draft).map(|view| ConfigReply::Draft(view.into()))
            }
            (Query::Labelled { label, query }, Some(namespace)) if query.depends_on_label() => {
                namespace.for_label(label, self.faults).answer(query, label)
            }
            (Query::Labelled { query, .. }, _) => {
                self.read(&ConfigRead { namespace: name.clone(), query: Query::clone(query) })
            }
            (query, Some(namespace)) => namespace.answer(query, ""),
            (query, None) => read::without_namespace(query),
        }
    }

    /// A page of the names in the slots that `holds` accepts, listed as keys are. The version of an
    /// item is the namespace's revision.
    pub fn list(
        &self,
        (prefix, after): (&[u8], Option<&[u8]>),
        limit: usize,
        holds: &dyn Fn(u16) -> bool,
    ) -> Page {
        let behind = |name: &Name| after.is_none_or(|after| &name.routing_key()[..] > after);
        let mut found = self
            .namespaces
            .iter()
            .filter(|(name, _)| name.routing_key().starts_with(prefix) && behind(name))
            .filter(|(name, _)| holds(slots::slot_of(name.routing_key())))
            .map(|(name, namespace)| Item {
                key: name.routing_key().clone(),
                version: Version(namespace.revision),
                value: None,
                expires: None,
            });
        let items: Vec<Item> = found.by_ref().take(limit).collect();
        let next = if found.next().is_some() { items.last().map(|item| item.key.clone()) } else { None };
        Page { items, next }
    }

    /// Whether only restores ever changed the configuration.
    pub fn is_pristine(&self) -> bool {
        !self.touched
    }

    /// Whether a snapshot has nothing to contain.
    fn is_blank(&self) -> bool {
        self.namespaces.is_empty() && self.floor == 0 && !self.touched
    }

    /// Continues the checksum `other` over all configuration; an empty configuration leaves it
    /// unchanged.
    pub fn digest(&self, other: u64) -> u64 {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        if self.is_blank() {
            return other;
        }
        let mut digest = CRC.digest();
        digest.update(&other.to_le_bytes());
        let mut blocks = self.blocks();
        while let Some(block) = blocks.next_block() {
            digest.update(&block);
        }
        digest.finalize()
    }

    /// Begins a snapshot of the current state.
    pub fn begin_snapshot(&mut self) {
        self.copy_on_write = Some(self.blocks());
    }

    /// The next block of the unfinished snapshot; `None` when it is complete.
    pub fn next_block(&mut self) -> Option<Vec<u8>> {
        let block = self.copy_on_write.as_mut()?.next_block();
        if block.is_none() {
            self.copy_on_write = None;
        }
        block
    }

    /// Drops the unfinished snapshot.
    pub fn abandon_snapshot(&mut self) {
        self.copy_on_write = None;
    }

    fn blocks(&self) -> Blocks {
        let held: VecDeque<_> =
            self.namespaces.iter().map(|(name, namespace)| (name.clone(), namespace.clone())).collect();
        Blocks::new((!self.is_blank()).then_some((self.floor, self.touched)), held)
    }

    /// Applies a block of a snapshot or of another shard that gives namespaces away. The blocks
    /// come in order; applying one twice changes nothing.
    ///
    /// # Errors
    /// When it is not a block of configuration. Records before the fault are applied.
    pub fn take_block(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        of_block(block, |name, record| self.take(name, record))
    }

    /// Applies a block of a backup. Revisions continue far above those in the backup, because the
    /// original cluster went on assigning revisions, which must not come again.
    ///
    /// # Errors
    /// As [`Config::take_block`].
    pub fn restore_block(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        let lift = |revision: u64| match revision {
            0..=limits::RESTORE_REVISION_MAX => Ok(revision + limits::CONFIG_RESTORE_REVISION_MARGIN),
            _ => Err(DecodeError::Invalid("revision of a namespace beyond any that a cluster gives out")),
        };
        of_block(block, |name, mut record| {
            match &mut record {
                ConfigRecord::Shard { floor, touched } => {
                    *floor = lift(*floor)?;
                    *touched = false;
                }
                ConfigRecord::Namespace { numbered, .. } => *numbered = lift(*numbered)?,
                _ => {}
            }
            self.take(name, record)
        })
    }

    fn take(&mut self, name: Option<&Name>, record: ConfigRecord) -> Result<(), DecodeError> {
        if let ConfigRecord::Shard { floor, touched } = record {
            self.floor = self.floor.max(floor);
            self.touched |= touched;
            return Ok(());
        }
        let name = name.ok_or(DecodeError::Invalid("record of no namespace"))?;
        if let ConfigRecord::Settings { parents, .. } = &record {
            self.unlink(name);
            let parents: Vec<Arc<Name>> = parents.iter().cloned().map(Arc::new).collect();
            self.link(name, &parents);
        }
        let namespace = match record {
            ConfigRecord::Namespace { .. } => self.namespaces.entry(name.clone()).or_default(),
            _ => self.namespaces.get_mut(name).ok_or(DecodeError::Invalid("order of records"))?,
        };
        Arc::make_mut(namespace).take(record)
    }
}
