//! Who waits for which container, and waking them.
//!
//! Owns the table of watchers, from the worker's word that a container changed to the wakers of those who watch it. It
//! holds no content: who is woken looks for himself, at the replica of this node. So a watcher costs an entry here and a
//! connection, and nothing at all while nothing happens. Only what this node has no replica of is looked at now and then,
//! since nobody tells of changes there. Each worker has a hub of its own, so that nobody is woken across threads
//! one by one; how many there may be is said of all hubs of a node together.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tidelock_core::command::config::Name;
use tidelock_core::event::ConfigNews;
use tidelock_core::slots::slot_of;

/// Most watchers of one node at a time; the one above is refused. Watchers do not count among the connections that are
/// limited otherwise, so that they cannot crowd out everybody else.
pub const WATCHERS_MAX: usize = 10_000;

/// All watchers of one worker.
#[derive(Debug, Default)]
pub struct Hub {
    table: Mutex<Table>,
    /// Watchers of all workers.
    count: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Table {
    watchers: Slab<Watcher>,
    /// By namespace, then by container.
    by_container: HashMap<Name, HashMap<Arc<str>, Vec<usize>>>,
    is_closed: bool,
}

#[derive(Debug)]
struct Watcher {
    /// Something happened since it last looked.
    is_due: bool,
    waker: Option<Waker>,
}

/// One watcher's place; given up when dropped.
#[derive(Debug)]
pub struct Watch {
    hub: Arc<Hub>,
    position: usize,
    namespace: Name,
    container: Arc<str>,
}

/// What a watcher waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Its container may have changed.
    Look,
    /// The node stops.
    Leave,
}

impl Hub {
    /// A hub for another worker of the same node.
    #[must_use]
    pub fn beside(&self) -> Hub {
        Hub { table: Mutex::default(), count: self.count.clone() }
    }

    /// A place for one more watcher of a container, or `None` if there are too many.
    pub fn watch(self: &Arc<Self>, namespace: Name, container: Arc<str>) -> Option<Watch> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= WATCHERS_MAX {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut table = self.lock();
        let position = table.watchers.insert(Watcher { is_due: false, waker: None });
        let of_namespace = table.by_container.entry(namespace.clone()).or_default();
        of_namespace.entry(container.clone()).or_default().push(position);
        Some(Watch { hub: self.clone(), position, namespace, container })
    }

    /// Wakes those whose container changed.
    pub fn tell(&self, news: &ConfigNews) {
        let mut woken = Vec::new();
        {
            let mut table = self.lock();
            let Table { watchers, by_container, .. } = &mut *table;
            let Some(of_namespace) = by_container.get(&news.namespace) else { return };
            let positions = news.containers.iter().filter_map(|key| of_namespace.get(key)).flatten();
            for &position in positions {
                watchers[position].is_due = true;
                woken.extend(watchers[position].waker.take());
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Wakes those whose namespaces are in these slots.
    pub fn tell_slots(&self, slots: &[Range<u16>]) {
        let mut woken = Vec::new();
        {
            let mut table = self.lock();
            let Table { watchers, by_container, .. } = &mut *table;
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

    /// Lets every watcher leave, and every later one at once.
    pub fn close(&self) {
        let mut table = self.lock();
        table.is_closed = true;
        let woken: Vec<Waker> =
            table.watchers.iter_mut().filter_map(|(_, watcher)| watcher.waker.take()).collect();
        drop(table);
        woken.into_iter().for_each(Waker::wake);
    }

    /// How many there are, at all workers of the node.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits until there is something to do. What happened before the last look is not told again.
    pub fn poll_call(&self, context: &Context<'_>) -> Poll<Call> {
        let mut table = self.hub.lock();
        if table.is_closed {
            return Poll::Ready(Call::Leave);
        }
        let watcher = &mut table.watchers[self.position];
        if std::mem::take(&mut watcher.is_due) {
            return Poll::Ready(Call::Look);
        }
        if !watcher.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            watcher.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Whose content is watched.
    pub fn namespace(&self) -> &Name {
        &self.namespace
    }

    /// Which container.
    pub fn container(&self) -> &Arc<str> {
        &self.container
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.count.fetch_sub(1, Ordering::Relaxed);
        let mut table = self.hub.lock();
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

    fn news(container: &str) -> ConfigNews {
        ConfigNews { namespace: name(), containers: vec![container.into()] }
    }

    #[test]
    fn those_who_watch_it_are_called_once() {
        let hub = Arc::new(Hub::default());
        let (first, second) =
            (hub.watch(name(), "a".into()).unwrap(), hub.watch(name(), "b".into()).unwrap());
        let context = Context::from_waker(Waker::noop());
        assert_eq!(first.poll_call(&context), Poll::Pending);
        hub.tell(&news("a"));
        hub.tell(&news("a"));
        hub.tell(&ConfigNews { namespace: Name::new("other").unwrap(), containers: vec!["b".into()] });
        assert_eq!(first.poll_call(&context), Poll::Ready(Call::Look));
        assert_eq!(first.poll_call(&context), Poll::Pending);
        assert_eq!(second.poll_call(&context), Poll::Pending);
        hub.close();
        assert_eq!(second.poll_call(&context), Poll::Ready(Call::Leave));
    }

    #[test]
    fn those_in_some_slots_are_called() {
        let hub = Arc::new(Hub::default());
        let watch = hub.watch(name(), "a".into()).unwrap();
        let context = Context::from_waker(Waker::noop());
        let slot = slot_of(b"ns");
        hub.tell_slots(&[0..slot, slot + 1..u16::MAX]);
        assert_eq!(watch.poll_call(&context), Poll::Pending, "its own slot is not among them");
        hub.tell_slots(&[0..1, slot..slot + 1]);
        assert_eq!(watch.poll_call(&context), Poll::Ready(Call::Look));
        assert_eq!(watch.poll_call(&context), Poll::Pending);
    }

    #[test]
    fn a_place_is_given_up_and_places_are_limited() {
        let hub = Arc::new(Hub::default());
        let watches: Vec<Watch> = (0..WATCHERS_MAX).map(|_| hub.watch(name(), "a".into()).unwrap()).collect();
        assert!(hub.watch(name(), "a".into()).is_none());
        let other = Arc::new(hub.beside());
        assert!(other.watch(name(), "a".into()).is_none(), "they are counted together");
        drop(watches);
        let watch = other.watch(name(), "a".into()).unwrap();
        assert_eq!((hub.count(), other.count()), (1, 1));
        hub.tell(&news("a"));
        let context = Context::from_waker(Waker::noop());
        assert_eq!(watch.poll_call(&context), Poll::Pending, "each hub is told for itself");
        drop(watch);
        assert_eq!(hub.count(), 0);
        assert!(hub.lock().by_container.is_empty());
    }
}
