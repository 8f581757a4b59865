//! Copying namespaces to another shard.
//!
//! Owns the knowledge of which namespaces the receiver has in their current state. A copied
//! namespace is held by reference, and a namespace that is a different object now has changed
//! since. So writes need not notify a copy, and a changed namespace is copied again as a whole.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::namespace::Namespace;
use super::records::Blocks;
use super::{Config, ConfigUpdate};
use crate::codec::DecodeError;
use crate::command::config::Name;
use crate::command::migration::NamespacePart;
use crate::slots;
use crate::slots::slot_set::SlotSet;

/// A copy of namespaces for another shard, in the making.
#[derive(Debug, Default)]
pub struct OutgoingConfig {
    slots: SlotSet,
    sent: BTreeMap<Name, Arc<Namespace>>,
    /// The namespace that is being sent.
    current: Option<(Name, Blocks)>,
    is_passed: bool,
}

impl OutgoingConfig {
    /// Begins a copy of the namespaces in `slots`.
    pub fn new(slots: SlotSet) -> OutgoingConfig {
        OutgoingConfig { slots, ..OutgoingConfig::default() }
    }

    /// Whether the receiver has had everything at least once.
    pub fn is_passed(&self) -> bool {
        self.is_passed
    }

    /// The next part; `None` while the receiver is up to date.
    pub fn next_part(&mut self, config: &Config) -> Option<NamespacePart> {
        if let Some((namespace, blocks)) = &mut self.current {
            match blocks.next_block() {
                Some(block) => {
                    let (namespace, block) = (namespace.clone(), Some(block.into()));
                    return Some(NamespacePart { namespace, begins: false, block });
                }
                None => self.current = None,
            }
        }
        if let Some(gone) = self.sent.keys().find(|name| !config.namespaces.contains_key(*name)).cloned() {
            self.sent.remove(&gone);
            return Some(NamespacePart { namespace: gone, begins: true, block: None });
        }
        let is_due = |(name, namespace): &(&Name, &Arc<Namespace>)| {
            config.is_held(name, &self.slots)
                && self.sent.get(*name).is_none_or(|sent| !Arc::ptr_eq(sent, namespace))
        };
        let Some((name, namespace)) = config.namespaces.iter().find(is_due) else {
            self.is_passed = true;
            return None;
        };
        let mut blocks = Blocks::new(None, VecDeque::from([(name.clone(), namespace.clone())]));
        let block = blocks.next_block().map(Into::into);
        self.sent.insert(name.clone(), namespace.clone());
        self.current = Some((name.clone(), blocks));
        Some(NamespacePart { namespace: name.clone(), begins: true, block })
    }
}

impl Config {
    fn is_held(&self, name: &Name, slots: &SlotSet) -> bool {
        slots.contains(slots::slot_of(name.routing_key()))
    }

    /// Applies a part of a copy.
    pub fn import_part(&mut self, part: &NamespacePart) -> Result<(), DecodeError> {
        if part.begins {
            self.unlink(&part.namespace);
            self.namespaces.remove(&part.namespace);
        }
        part.block.iter().try_for_each(|block| self.take_block(block))
    }

    /// Removes at most `limit` namespaces of these slots. Returns whether none is left.
    pub fn remove_some(&mut self, slots: &SlotSet, limit: usize) -> bool {
        let held = self.namespaces.keys().filter(|name| self.is_held(name, slots));
        let mut gone: Vec<Name> = held.take(limit + 1).cloned().collect();
        let is_over = gone.len() <= limit;
        gone.truncate(limit);
        for name in &gone {
            self.unlink(name);
            self.namespaces.remove(name);
        }
        is_over
    }

    /// Reports all namespaces of these slots as changed, so that watching clients query them again,
    /// at another shard if necessary.
    pub fn notify_slots(&mut self, slots: &SlotSet) {
        let all = self.all_updates().into_iter();
        self.news.extend(all.filter(|news| slots.contains(slots::slot_of(news.namespace.routing_key()))));
    }

    /// Reports all namespaces as changed.
    pub fn all_updates(&self) -> Vec<ConfigUpdate> {
        let all = self.namespaces.iter().map(|(name, namespace)| ConfigUpdate {
            namespace: name.clone(),
            containers: namespace.watched_containers().into_iter().collect(),
        });
        all.filter(|news| !news.containers.is_empty()).collect()
    }

    /// A block with the floor for the revisions of new namespaces, for the shard that continues
    /// some namespaces of this one.
    pub fn floor_block(&self) -> Vec<u8> {
        Blocks::new(Some((self.floor, self.touched)), VecDeque::new()).next_block().unwrap_or_default()
    }
}
