//! Watchers of configuration containers, and waking them.
//!
//! Owns the table of watchers and the path from a change of a container to the wakers of its
//! watchers. It holds no content: a woken watcher reads the replica of this node. So a watcher
//! costs an entry here and a connection, and nothing while nothing changes. Containers without a
//! local replica are checked periodically, because this node is not notified of their changes. Each
//! worker has its own registry, so that watchers are not woken across threads one by one; the limit
//! applies to all registries of a node together.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tidelock_core::command::config::Name;
use tidelock_core::event::ConfigUpdate;
use tidelock_core::slots::slot_of;

/// Most watchers of one node at a time; a further one is refused. They are not counted among the
/// other connections, so that they cannot crowd those out.
pub const WATCHERS_MAX: usize = 10_000;

/// The watchers of one worker's connections.
#[derive(Debug, Default)]
pub struct WatchRegistry {
    table: Mutex<WatchTable>,
    /// Number of watchers of all workers.
    count: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct WatchTable {
    watchers: Slab<WatchEntry>,
    /// Positions of watchers by namespace, then by container.
    by_container: HashMap<Name, HashMap<Arc<str>, Vec<usize>>>,
    is_closed: bool,
}

#[derive(Debug)]
struct WatchEntry {
    /// Something may have changed since it last looked.
    is_due: bool,
    waker: Option<Waker>,
}

/// The registration of one watcher, removed when dropped.
#[derive(Debug)]
pub struct Watch {
    watch_registry: Arc<WatchRegistry>,
    position: usize,
    namespace: Name,
    container: Arc<str>,
}

/// What a watcher is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// Its container may have changed: read it.
    Look,
    /// The node stops: end the watch.
    Leave,
}

impl WatchRegistry {
    /// A watch registry for another worker of the same node, with a common limit.
    #[must_use]
    pub fn beside(&self) -> WatchRegistry {
        WatchRegistry { table: Mutex::default(), count: self.count.clone() }
    }

    /// Registers a watcher of a container. Returns `None` if there are too many.
    pub fn watch(self: &Arc<Self>, namespace: Name, container: Arc<str>) -> Option<Watch> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= WATCHERS_MAX {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut table = self.lock();
        let position = table.watchers.insert(WatchEntry { is_due: false, waker: None });
        let of_namespace = table.by_container.entry(namespace.clone()).or_default();
        of_namespace.entry(container.clone()).or_default().push(position);
        Some(Watch { watch_registry: self.clone(), position, namespace, container })
    }

    /// Wakes the watchers of the containers that changed.
    pub fn notify(&self, news: &ConfigUpdate) {
        let mut woken = Vec::new();
        {
            let mut table = self.lock();
            let WatchTable { watchers, by_container, .. } = &mut *table;
            let Some(of_namespace) = by_container.get(&news.namespace) else { return };
            let positions = news.containers.iter().filter_map(|key| of_namespace.get(key)).flatten();
            for &position in positions {
                watchers[position].is_due = true;
                woken.extend(watchers[position].waker.take());
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Wakes the watchers of namespaces in these slots.
    pub fn notify_slots(&self, slots: &[Range<u16>]) {
        let mut woken = Vec::new();
        {
            let mut table = self.lock();
            let WatchTable { watchers, by_container, .. } = &mut *table;
            let is_concerned = |name: &Name| {
                let slot = slot_of(name.routing_key());
                slots.iter().any(|range| range.contains(&slot))
            };
            let concerned = by_container.iter().filter(|(name, _)| is_concerned(name));
            for &position in concerned.flat_map(|(_, of_namespace)| of_namespace.values().flatten()) {
                watchers[position].is_due = true;
                woken.extend(watchers[position].waker.take());
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ends every watch, also later ones.
    pub fn close(&self) {
        let mut table = self.lock();
        table.is_closed = true;
        let woken: Vec<Waker> =
            table.watchers.iter_mut().filter_map(|(_, watcher)| watcher.waker.take()).collect();
        drop(table);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Number of watchers on all workers of the node.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, WatchTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits for a notification. Changes before the last one are not notified again.
    pub fn poll_notification(&self, context: &Context<'_>) -> Poll<Notification> {
        let mut table = self.watch_registry.lock();
        if table.is_closed {
            return Poll::Ready(Notification::Leave);
        }
        let watcher = &mut table.watchers[self.position];
        if std::mem::take(&mut watcher.is_due) {
            return Poll::Ready(Notification::Look);
        }
        if !watcher.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            watcher.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// The namespace of the watched container.
    pub fn namespace(&self) -> &Name {
        &self.namespace
    }

    /// Key of the watched container.
    pub fn container(&self) -> &Arc<str> {
        &self.container
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watch_registry.count.fetch_sub(1, Ordering::Relaxed);
        let mut table = self.watch_registry.lock();
        table.watchers.remove(self.position);
        let Some(of_namespace) = table.by_container.get_mut(&self.namespace) else { return };
        if let Some(positions) = of_namespace.get_mut(&self.container) {
            positions.retain(|position| *position != self.position);
            if positions.is_empty() {
                of_namespace.remove(&self.container);
            }
        }
        if of_namespace.is_empty() {
            table.by_container.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name::new("ns").unwrap()
    }

    fn news(container: &str) -> ConfigUpdate {
        ConfigUpdate { namespace: name(), containers: vec![container.into()] }
    }

    #[test]
    fn those_who_watch_it_are_called_once() {
        let watch_registry = Arc::new(WatchRegistry::default());
        let (first, second) = (
            watch_registry.watch(name(), "a".into()).unwrap(),
            watch_registry.watch(name(), "b".into()).unwrap(),
        );
        let context = Context::from_waker(Waker::noop());
        assert_eq!(first.poll_notification(&context), Poll::Pending);
        watch_registry.notify(&news("a"));
        watch_registry.notify(&news("a"));
        watch_registry
            .notify(&ConfigUpdate { namespace: Name::new("other").unwrap(), containers: vec!["b".into()] });
        assert_eq!(first.poll_notification(&context), Poll::Ready(Notification::Look));
        assert_eq!(first.poll_notification(&context), Poll::Pending);
        assert_eq!(second.poll_notification(&context), Poll::Pending);
        watch_registry.close();
        assert_eq!(second.poll_notification(&context), Poll::Ready(Notification::Leave));
    }

    #[test]
    fn those_in_some_slots_are_called() {
        let watch_registry = Arc::new(WatchRegistry::default());
        let watch = watch_registry.watch(name(), "a".into()).unwrap();
        let context = Context::from_waker(Waker::noop());
        let slot = slot_of(b"ns");
        watch_registry.notify_slots(&[0..slot, slot + 1..u16::MAX]);
        assert_eq!(watch.poll_notification(&context), Poll::Pending, "its own slot is not among them");
        watch_registry.notify_slots(&[0..1, slot..slot + 1]);
        assert_eq!(watch.poll_notification(&context), Poll::Ready(Notification::Look));
        assert_eq!(watch.poll_notification(&context), Poll::Pending);
    }

    #[test]
    fn a_place_is_given_up_and_places_are_limited() {
        let watch_registry = Arc::new(WatchRegistry::default());
        let watches: Vec<Watch> =
            (0..WATCHERS_MAX).map(|_| watch_registry.watch(name(), "a".into()).unwrap()).collect();
        assert!(watch_registry.watch(name(), "a".into()).is_none());
        let other = Arc::new(watch_registry.beside());
        assert!(other.watch(name(), "a".into()).is_none(), "they are counted together");
        drop(watches);
        let watch = other.watch(name(), "a".into()).unwrap();
        assert_eq!((watch_registry.count(), other.count()), (1, 1));
        watch_registry.notify(&news("a"));
        let context = Context::from_waker(Waker::noop());
        assert_eq!(watch.poll_notification(&context), Poll::Pending, "each registry is told for itself");
        drop(watch);
        assert_eq!(watch_registry.count(), 0);
        assert!(watch_registry.lock().by_container.is_empty());
    }
}
