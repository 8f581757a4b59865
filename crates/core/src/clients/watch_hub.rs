//! The watchers of one worker's clients, and which of them a change concerns.
//!
//! Owns the table of watchers, the match of changes with it, and up to which revisions all changes
//! were matched. It holds no content: a watcher that is due reads. So a watcher costs an entry
//! here, and nothing while nothing that it watches changes. A changed key costs one search for each
//! length of a watched prefix.
//!
//! A watcher registers before its first read. Every later change is then matched with it, so as
//! long as it is not due, it knows all changes that were matched: it may take over the revisions of
//! [`WatchHub::matched`] without reading. Otherwise the revisions of a watcher whose keys rarely
//! change would soon be older than the changes that shards keep.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Range;

use slab::Slab;

use crate::command::config::{ConfigUpdate, Name};
use crate::command::{ChangedKeys, KeyScope};
use crate::event::KeyReport;
use crate::slots::slot_of;
use crate::slots::slot_revisions::SlotRevisions;

/// What a watcher watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A configuration container.
    Container {
        /// Its namespace.
        namespace: Name,
        /// Its key.
        key: Arc<str>,
    },
    /// All containers of a namespace.
    Namespace(Name),
    /// Keys.
    Keys(KeyScope),
}

/// The number of a watcher in its hub. Free numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatcherId(pub usize);

/// The table of watchers.
#[derive(Debug, Default)]
pub struct WatchHub {
    watchers: Slab<Entry>,
    by_container: BTreeMap<Name, BTreeMap<Arc<str>, Vec<WatcherId>>>,
    by_namespace: BTreeMap<Name, Vec<WatcherId>>,
    by_key: BTreeMap<Bytes, Vec<WatcherId>>,
    /// By the length of the prefix.
    by_prefix: BTreeMap<usize, BTreeMap<Bytes, Vec<WatcherId>>>,
    matched: SlotRevisions,
    /// Number of watchers of keys.
    key_watchers: usize,
}

#[derive(Debug)]
struct Entry {
    watched: Watched,
    /// Something may have changed since the watcher last asked.
    is_due: bool,
}

impl WatchHub {
    /// Adds a watcher.
    pub fn register(&mut self, watched: Watched) -> WatcherId {
        let id = WatcherId(self.watchers.insert(Entry { watched: watched.clone(), is_due: false }));
        match watched {
            Watched::Container { namespace, key } => {
                self.by_container.entry(namespace).or_default().entry(key).or_default().push(id);
            }
            Watched::Namespace(namespace) => self.by_namespace.entry(namespace).or_default().push(id),
            Watched::Keys(scope) => {
                self.key_watchers += 1;
                let by_bytes = match &scope {
                    KeyScope::Key(_) => &mut self.by_key,
                    KeyScope::Prefix(prefix) => self.by_prefix.entry(prefix.len()).or_default(),
                };
                by_bytes.entry(scope.bytes().clone()).or_default().push(id);
            }
        }
        id
    }

    /// Removes a watcher.
    ///
    /// # Panics
    /// If there is no such watcher.
    pub fn remove(&mut self, id: WatcherId) {
        match self.watchers.remove(id.0).watched {
            Watched::Container { namespace, key } => {
                let Some(of_namespace) = self.by_container.get_mut(&namespace) else { return };
                leave(of_namespace, &key, id);
                if of_namespace.is_empty() {
                    self.by_container.remove(&namespace);
                }
            }
            Watched::Namespace(namespace) => leave(&mut self.by_namespace, &namespace, id),
            Watched::Keys(KeyScope::Key(key)) => {
                self.key_watchers -= 1;
                leave(&mut self.by_key, &key, id);
            }
            Watched::Keys(KeyScope::Prefix(prefix)) => {
                self.key_watchers -= 1;
                let Some(of_length) = self.by_prefix.get_mut(&prefix.len()) else { return };
                leave(of_length, &prefix, id);
                if of_length.is_empty() {
                    self.by_prefix.remove(&prefix.len());
                }
            }
        }
        if self.key_watchers == 0 {
            // The node may end its reports now, and later ones may leave a gap.
            self.matched = SlotRevisions::default();
        }
    }

    /// Number of watchers of keys.
    pub fn key_watchers(&self) -> usize {
        self.key_watchers
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Up to these revisions every change was matched with the watchers of keys.
    pub fn matched(&self) -> &SlotRevisions {
        &self.matched
    }

    /// Whether something may have changed for a watcher since the last call.
    ///
    /// # Panics
    /// If there is no such watcher.
    pub fn take_due(&mut self, id: WatcherId) -> bool {
        core::mem::take(&mut self.watchers[id.0].is_due)
    }

    /// Whether something may have changed for a watcher.
    ///
    /// # Panics
    /// If there is no such watcher.
    pub fn is_due(&self, id: WatcherId) -> bool {
        self.watchers[id.0].is_due
    }

    /// Configuration has changed. Passes the watchers that are due now and were not before to
    /// `wake`.
    pub fn config_changed(&mut self, update: &ConfigUpdate, mut wake: impl FnMut(WatcherId)) {
        for &id in self.by_namespace.get(&update.namespace).into_iter().flatten() {
            set_due(&mut self.watchers, id, &mut wake);
        }
        let Some(of_namespace) = self.by_container.get(&update.namespace) else { return };
        for &id in update.containers.iter().filter_map(|key| of_namespace.get(key)).flatten() {
            set_due(&mut self.watchers, id, &mut wake);
        }
    }

    /// Keys have changed. Passes the watchers that are due now and were not before to `wake`.
    pub fn keys_changed(&mut self, report: &KeyReport, mut wake: impl FnMut(WatcherId)) {
        if self.key_watchers == 0 {
            return;
        }
        match &report.keys {
            ChangedKeys::Keys(keys) => {
                for key in keys {
                    self.key_changed(key, &mut wake);
                }
            }
            ChangedKeys::Any => self.keys_of_slots(report.slots.ranges(), &mut wake),
        }
        self.matched.raise(&SlotRevisions::at(&report.slots, report.revision));
    }

    fn key_changed(&mut self, key: &[u8], wake: &mut impl FnMut(WatcherId)) {
        for &id in self.by_key.get(key).into_iter().flatten() {
            set_due(&mut self.watchers, id, wake);
        }
        for (length, of_length) in &self.by_prefix {
            let Some(prefix) = key.get(..*length) else { break };
            for &id in of_length.get(prefix).into_iter().flatten() {
                set_due(&mut self.watchers, id, wake);
            }
        }
    }

    /// Anything in these slots may have changed. Passes the watchers that are due now and were not
    /// before to `wake`.
    pub fn slots_changed(&mut self, slots: &[Range<u16>], mut wake: impl FnMut(WatcherId)) {
        let is_concerned = |name: &Name| is_in(slots, slot_of(name.routing_key()));
        let containers = self.by_container.iter().filter(|(name, _)| is_concerned(name));
        let containers = containers.flat_map(|(_, of_namespace)| of_namespace.values().flatten());
        let namespaces = self.by_namespace.iter().filter(|(name, _)| is_concerned(name));
        for &id in containers.chain(namespaces.flat_map(|(_, ids)| ids)) {
            set_due(&mut self.watchers, id, &mut wake);
        }
        self.keys_of_slots(slots, &mut wake);
    }

    fn keys_of_slots(&mut self, slots: &[Range<u16>], wake: &mut impl FnMut(WatcherId)) {
        for (number, entry) in &mut self.watchers {
            let Watched::Keys(scope) = &entry.watched else { continue };
            let is_concerned = scope.slot().map_or(!slots.is_empty(), |slot| is_in(slots, slot));
            if is_concerned && !core::mem::replace(&mut entry.is_due, true) {
                wake(WatcherId(number));
            }
        }
    }
}

fn is_in(slots: &[Range<u16>], slot: u16) -> bool {
    slots.iter().any(|range| range.contains(&slot))
}

fn set_due(watchers: &mut Slab<Entry>, id: WatcherId, wake: &mut impl FnMut(WatcherId)) {
    if !core::mem::replace(&mut watchers[id.0].is_due, true) {
        wake(id);
    }
}

/// Removes a watcher from those of a name.
fn leave<K: Ord>(table: &mut BTreeMap<K, Vec<WatcherId>>, name: &K, id: WatcherId) {
    if let Some(ids) = table.get_mut(name) {
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            table.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::slot_set::SlotSet;
    use crate::types::Version;
    use alloc::vec;

    fn prefix(text: &'static str) -> Watched {
        Watched::Keys(KeyScope::Prefix(Bytes::from_static(text.as_bytes())))
    }

    fn key(text: &'static str) -> Watched {
        Watched::Keys(KeyScope::Key(Bytes::from_static(text.as_bytes())))
    }

    fn container(namespace: &str, key: &str) -> Watched {
        Watched::Container { namespace: Name::new(namespace).expect("a name"), key: key.into() }
    }

    fn changed(hub: &mut WatchHub, key: &'static str, revision: u64) -> Vec<WatcherId> {
        let mut woken = Vec::new();
        let keys = ChangedKeys::Keys(vec![Bytes::from_static(key.as_bytes())]);
        let report = KeyReport { slots: SlotSet::all(), revision: Version(revision), keys };
        hub.keys_changed(&report, |id| woken.push(id));
        woken.sort_unstable();
        woken
    }

    #[test]
    fn a_change_wakes_those_who_watch_the_key_or_a_prefix_of_it() {
        let mut hub = WatchHub::default();
        let all = hub.register(prefix(""));
        let users = hub.register(prefix("user:"));
        let ann = hub.register(key("user:ann"));
        let other = hub.register(prefix("order:"));
        assert_eq!(changed(&mut hub, "user:ann", 1), [all, users, ann]);
        assert_eq!(changed(&mut hub, "user:ann", 2), [], "they are due already");
        assert!(hub.take_due(users) && !hub.take_due(users) && !hub.is_due(other));
        assert_eq!(changed(&mut hub, "user:bob", 3), [users]);
        assert_eq!(changed(&mut hub, "us", 4), []);
        assert_eq!(hub.matched().of(9), Some(Version(4)));
        hub.remove(all);
        hub.remove(users);
        hub.remove(ann);
        assert_eq!(changed(&mut hub, "order:1", 5), [other]);
        hub.remove(other);
        assert_eq!(*hub.matched(), SlotRevisions::default());
        assert!(hub.is_empty() && hub.by_prefix.is_empty() && hub.by_key.is_empty());
    }

    #[test]
    fn slots_wake_watchers_of_keys_that_may_be_in_them() {
        let mut hub = WatchHub::default();
        let (all, tagged, config) =
            (hub.register(prefix("a")), hub.register(prefix("{tag}:")), hub.register(container("ns", "c")));
        let woken = |hub: &mut WatchHub, slots: Range<u16>| {
            let mut woken = Vec::new();
            hub.slots_changed(&[slots], |id| woken.push(id));
            for id in [all, tagged, config] {
                hub.take_due(id);
            }
            woken
        };
        let (tag, name) = (slot_of(b"tag"), slot_of(b"ns"));
        hub.slots_changed(&[], |id| panic!("{id:?} is called for no slots"));
        assert_eq!(woken(&mut hub, tag..tag + 1), [all, tagged]);
        assert_eq!(woken(&mut hub, name..name + 1), [config, all]);
        let any =
            KeyReport { slots: SlotSet::from(tag..tag + 1), revision: Version(1), keys: ChangedKeys::Any };
        let mut called = Vec::new();
        hub.keys_changed(&any, |id| called.push(id));
        assert_eq!(called, [all, tagged]);
    }

    #[test]
    fn a_change_of_configuration_wakes_those_who_watch_the_container() {
        let mut hub = WatchHub::default();
        let (first, second) = (hub.register(container("ns", "a")), hub.register(container("ns", "b")));
        let mut woken = Vec::new();
        let mut change = |namespace: &str, container: &str| {
            let namespace = Name::new(namespace).expect("a name");
            let update = ConfigUpdate { namespace, containers: vec![container.into()] };
            hub.config_changed(&update, |id| woken.push(id));
        };
        change("ns", "a");
        change("ns", "a");
        change("other", "b");
        assert_eq!(woken, [first]);
        assert!(!hub.is_due(second));
        hub.remove(first);
        hub.remove(second);
        assert!(hub.by_container.is_empty());
    }

    #[test]
    fn every_change_of_a_namespace_wakes_those_who_watch_it() {
        let mut hub = WatchHub::default();
        let name = |text| Name::new(text).expect("a name");
        let (all, one) = (hub.register(Watched::Namespace(name("ns"))), hub.register(container("ns", "a")));
        let other = hub.register(Watched::Namespace(name("other")));
        let mut woken = Vec::new();
        // An empty namespace that was deleted.
        let update = ConfigUpdate { namespace: name("ns"), containers: vec![] };
        hub.config_changed(&update, |id| woken.push(id));
        assert_eq!(woken, [all]);
        assert!(hub.take_due(all) && !hub.is_due(one) && !hub.is_due(other));
        let slot = slot_of(b"other");
        let range = slot..slot + 1;
        hub.slots_changed(core::slice::from_ref(&range), |id| woken.push(id));
        assert_eq!(woken, [all, other]);
        hub.remove(all);
        hub.remove(other);
        assert!(hub.by_namespace.is_empty());
    }
}
