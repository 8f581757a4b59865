//! The watchers of a worker's clients, the clients that cache keys, and waking them.
//!
//! Owns their wakers and their number. Which changes concern whom is decided by the core's
//! [`WatchHub`] and [`KeyTracking`]. No content is held here: a woken watcher reads the replicas of
//! this node. What has no replica here is checked periodically, because this node is not notified
//! of its changes. Each worker has its own registry, so that watchers are not woken across threads
//! one by one; the limit applies to all registries of a node together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tidelock_core::clients::key_tracking::{Invalidation, KeyTracking, TrackerId};
use tidelock_core::clients::watch_hub::{WatchHub, Watched, WatcherId};
use tidelock_core::deliberate::Faults;
use tidelock_core::event::{ConfigUpdate, KeyReport};
use tidelock_core::limits;
use tidelock_core::slots::slot_revisions::SlotRevisions;

use crate::readers::Readers;

/// Most watchers of one node at a time; a further one is refused. They are not counted among the
/// other connections, so that they cannot crowd those out.
pub const WATCHERS_MAX: usize = 10_000;

/// The watchers of one worker's connections.
#[derive(Debug, Default)]
pub struct WatchRegistry {
    table: Mutex<WatchTable>,
    counts: Arc<WatcherCounts>,
    readers: Arc<Readers>,
}

/// Number of watchers of all workers.
#[derive(Debug, Default)]
struct WatcherCounts {
    all: AtomicUsize,
    /// Watchers of keys, and clients that cache keys.
    keys: AtomicUsize,
}

#[derive(Debug)]
struct WatchTable {
    hub: WatchHub,
    /// By the watcher's number.
    wakers: Vec<Option<Waker>>,
    tracking: KeyTracking,
    tracker_wakers: BTreeMap<TrackerId, Waker>,
    is_closed: bool,
}

impl Default for WatchTable {
    fn default() -> WatchTable {
        WatchTable {
            hub: WatchHub::default(),
            wakers: Vec::new(),
            tracking: KeyTracking::new(limits::TRACKED_BYTES_MAX, Faults::NONE),
            tracker_wakers: BTreeMap::new(),
            is_closed: false,
        }
    }
}

/// The registration of one watcher, removed when dropped.
#[derive(Debug)]
pub struct Watch {
    watch_registry: Arc<WatchRegistry>,
    id: WatcherId,
    is_of_keys: bool,
}

/// The registration of a client that caches keys, removed when dropped.
#[derive(Debug)]
pub struct Tracker {
    watch_registry: Arc<WatchRegistry>,
    id: TrackerId,
}

/// What a watcher is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// What it watches may have changed: read it.
    Look,
    /// The node stops: end the watch.
    Leave,
}

impl WatchRegistry {
    /// A watch registry for another worker of the same node, with a common limit.
    #[must_use]
    pub fn beside(&self) -> WatchRegistry {
        let (counts, readers) = (self.counts.clone(), self.readers.clone());
        WatchRegistry { table: Mutex::default(), counts, readers }
    }

    /// The clients that watch configuration at all workers of the node.
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Registers a watcher. Returns `None` if there are too many.
    pub fn watch(self: &Arc<Self>, watched: Watched) -> Option<Watch> {
        if self.counts.all.fetch_add(1, Ordering::Relaxed) >= WATCHERS_MAX {
            self.counts.all.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let is_of_keys = matches!(watched, Watched::Keys(_));
        if is_of_keys {
            self.counts.keys.fetch_add(1, Ordering::SeqCst);
        }
        let mut table = self.lock();
        let id = table.hub.register(watched);
        if table.wakers.len() <= id.0 {
            table.wakers.resize(id.0 + 1, None);
        }
        Some(Watch { watch_registry: self.clone(), id, is_of_keys })
    }

    /// Registers a client that caches keys with these prefixes, or the keys that it reads if there
    /// are none. The limit of connections is also that of these clients.
    pub fn track(self: &Arc<Self>, prefixes: &[Bytes]) -> Tracker {
        self.counts.keys.fetch_add(1, Ordering::SeqCst);
        let id = self.lock().tracking.begin(prefixes);
        Tracker { watch_registry: self.clone(), id }
    }

    /// Wakes the watchers of the containers that changed.
    pub fn notify(&self, update: &ConfigUpdate) {
        self.wake(|hub, woken| hub.config_changed(update, |id| woken.push(id)));
    }

    /// Wakes the watchers of keys that changed, and the clients that cache them.
    pub fn notify_keys(&self, report: &KeyReport) {
        self.wake(|hub, woken| hub.keys_changed(report, |id| woken.push(id)));
        self.wake_trackers(|tracking, woken| tracking.keys_changed(report, |id| woken.push(id)));
    }

    /// Wakes the watchers of configuration and keys in these slots, and the clients that cache
    /// keys.
    pub fn notify_slots(&self, slots: &[Range<u16>]) {
        self.wake(|hub, woken| hub.slots_changed(slots, |id| woken.push(id)));
        self.invalidate_slots(slots);
    }

    /// Lets clients drop the keys of these slots that they cache.
    pub fn invalidate_slots(&self, slots: &[Range<u16>]) {
        self.wake_trackers(|tracking, woken| tracking.slots_changed(slots, |id| woken.push(id)));
    }

    fn wake(&self, change: impl FnOnce(&mut WatchHub, &mut Vec<WatcherId>)) {
        let mut ids = Vec::new();
        let mut table = self.lock();
        let WatchTable { hub, wakers, .. } = &mut *table;
        change(hub, &mut ids);
        let woken: Vec<Waker> = ids.into_iter().filter_map(|id| wakers[id.0].take()).collect();
        drop(table);
        woken.into_iter().for_each(Waker::wake);
    }

    fn wake_trackers(&self, change: impl FnOnce(&mut KeyTracking, &mut Vec<TrackerId>)) {
        let mut ids = Vec::new();
        let mut table = self.lock();
        let WatchTable { tracking, tracker_wakers, .. } = &mut *table;
        if tracking.is_empty() {
            return;
        }
        change(tracking, &mut ids);
        let woken: Vec<Waker> = ids.iter().filter_map(|id| tracker_wakers.remove(id)).collect();
        drop(table);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ends every watch, also later ones.
    pub fn close(&self) {
        let mut table = self.lock();
        table.is_closed = true;
        let woken: Vec<Waker> = table.wakers.iter_mut().filter_map(Option::take).collect();
        drop(table);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Number of watchers on all workers of the node.
    pub fn count(&self) -> usize {
        self.counts.all.load(Ordering::Relaxed)
    }

    /// Whether a client of any worker of the node watches keys.
    pub fn watches_keys(&self) -> bool {
        self.counts.keys.load(Ordering::SeqCst) > 0
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
        if table.hub.take_due(self.id) {
            return Poll::Ready(Notification::Look);
        }
        let waker = &mut table.wakers[self.id.0];
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// The watcher's number. No other watcher of this worker has the same one at the same time.
    pub fn number(&self) -> usize {
        self.id.0
    }

    /// Number of watchers on all workers of the node.
    pub fn count(&self) -> usize {
        self.watch_registry.count()
    }

    /// Calls `use_matched` with the revisions up to which all changes were matched with the
    /// watchers of keys, and whether a notification waits for this one.
    pub fn with_matched<R>(&self, use_matched: impl FnOnce(&SlotRevisions, bool) -> R) -> R {
        let table = self.watch_registry.lock();
        use_matched(table.hub.matched(), table.hub.is_due(self.id))
    }
}

impl Tracker {
    /// The client is about to read a key.
    pub fn track(&self, key: &[u8]) {
        self.watch_registry.wake_trackers(|tracking, woken| {
            tracking.track(self.id, key, |id| woken.push(id));
        });
    }

    /// Adds a prefix.
    pub fn add_prefix(&self, prefix: Bytes) {
        self.watch_registry.lock().tracking.add_prefix(self.id, prefix);
    }

    /// The prefixes; none if the client caches the keys that it reads.
    pub fn prefixes(&self) -> Vec<Bytes> {
        self.watch_registry.lock().tracking.prefixes(self.id).to_vec()
    }

    /// Waits for the next invalidation.
    pub fn poll_invalidation(&self, context: &Context<'_>) -> Poll<Invalidation> {
        let mut table = self.watch_registry.lock();
        if let Some(invalidation) = table.tracking.take(self.id) {
            return Poll::Ready(invalidation);
        }
        table.tracker_wakers.insert(self.id, context.waker().clone());
        Poll::Pending
    }

    /// Bytes of the invalidations that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.watch_registry.lock().tracking.waiting_bytes(self.id)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.watch_registry.counts.keys.fetch_sub(1, Ordering::SeqCst);
        let mut table = self.watch_registry.lock();
        table.tracking.end(self.id);
        table.tracker_wakers.remove(&self.id);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let counts = &self.watch_registry.counts;
        counts.all.fetch_sub(1, Ordering::Relaxed);
        if self.is_of_keys {
            counts.keys.fetch_sub(1, Ordering::SeqCst);
        }
        let mut table = self.watch_registry.lock();
        table.hub.remove(self.id);
        table.wakers[self.id.0] = None;
        if table.hub.is_empty() {
            table.wakers = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidelock_core::command::config::Name;
    use tidelock_core::command::{ChangedKeys, KeyScope};
    use tidelock_core::slots::slot_set::SlotSet;
    use tidelock_core::types::Version;

    use super::*;

    fn name() -> Name {
        Name::new("ns").unwrap()
    }

    fn container(key: &str) -> Watched {
        Watched::Container { namespace: name(), key: key.into() }
    }

    fn news(container: &str) -> ConfigUpdate {
        ConfigUpdate { namespace: name(), containers: vec![container.into()] }
    }

    #[test]
    fn those_who_watch_it_are_called_once() {
        let watch_registry = Arc::new(WatchRegistry::default());
        let first = watch_registry.watch(container("a")).unwrap();
        let second = watch_registry.watch(container("b")).unwrap();
        let context = Context::from_waker(Waker::noop());
        assert_eq!(first.poll_notification(&context), Poll::Pending);
        watch_registry.notify(&news("a"));
        watch_registry.notify(&news("a"));
        assert_eq!(first.poll_notification(&context), Poll::Ready(Notification::Look));
        assert_eq!(first.poll_notification(&context), Poll::Pending);
        assert_eq!(second.poll_notification(&context), Poll::Pending);
        watch_registry.close();
        assert_eq!(second.poll_notification(&context), Poll::Ready(Notification::Leave));
    }

    #[test]
    fn watchers_of_keys_are_counted_and_called() {
        let watch_registry = Arc::new(WatchRegistry::default());
        let other = Arc::new(watch_registry.beside());
        assert!(!watch_registry.watches_keys());
        let watch = other.watch(Watched::Keys(KeyScope::Prefix(Bytes::from_static(b"a")))).unwrap();
        assert!(watch_registry.watches_keys());
        let context = Context::from_waker(Waker::noop());
        assert_eq!(watch.poll_notification(&context), Poll::Pending);
        let keys = ChangedKeys::Keys(vec![Bytes::from_static(b"ab")]);
        other.notify_keys(&KeyReport { slots: SlotSet::all(), revision: Version(1), keys });
        assert_eq!(watch.poll_notification(&context), Poll::Ready(Notification::Look));
        drop(watch);
        assert!(!watch_registry.watches_keys());
    }

    #[test]
    fn clients_that_cache_keys_are_counted_and_called() {
        let watch_registry = Arc::new(WatchRegistry::default());
        let tracker = watch_registry.track(&[]);
        assert!(watch_registry.watches_keys());
        let context = Context::from_waker(Waker::noop());
        let report = |key: &'static [u8]| KeyReport {
            slots: SlotSet::all(),
            revision: Version(1),
            keys: ChangedKeys::Keys(vec![Bytes::from_static(key)]),
        };
        watch_registry.notify_keys(&report(b"a"));
        assert_eq!(tracker.poll_invalidation(&context), Poll::Pending);
        tracker.track(b"a");
        watch_registry.notify_keys(&report(b"a"));
        let invalidation = Invalidation::Keys(vec![Bytes::from_static(b"a")]);
        assert_eq!(tracker.poll_invalidation(&context), Poll::Ready(invalidation));
        drop(tracker);
        assert!(!watch_registry.watches_keys() && watch_registry.lock().tracker_wakers.is_empty());
    }

    #[test]
    fn a_place_is_given_up_and_places_are_limited() {
        let watch_registry = Arc::new(WatchRegistry::default());
        let watches: Vec<Watch> =
            (0..WATCHERS_MAX).map(|_| watch_registry.watch(container("a")).unwrap()).collect();
        assert!(watch_registry.watch(container("a")).is_none());
        let other = Arc::new(watch_registry.beside());
        assert!(other.watch(container("a")).is_none(), "they are counted together");
        drop(watches);
        let watch = other.watch(container("a")).unwrap();
        assert_eq!((watch_registry.count(), other.count()), (1, 1));
        watch_registry.notify(&news("a"));
        let context = Context::from_waker(Waker::noop());
        assert_eq!(watch.poll_notification(&context), Poll::Pending, "each registry is told for itself");
        drop(watch);
        assert_eq!(watch_registry.count(), 0);
        assert!(watch_registry.lock().hub.is_empty() && watch_registry.lock().wakers.is_empty());
    }
}
