//! The clients that watch configuration now, at all workers of this node.
//!
//! Owns who they are and how far each has come, for `GET …/readers`. `watch` owns their
//! notifications.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidelock_core::clients::watcher::WatchScope;
use tidelock_core::command::config::Name;

/// A client that watches a container or a namespace.
#[derive(Debug)]
pub struct Reader {
    /// The namespace that it watches.
    pub namespace: Name,
    /// What of the namespace it watches.
    pub scope: WatchScope,
    /// Its address, if it is known.
    pub address: Option<SocketAddr>,
    /// The principal that it has proved to be.
    pub principal: Option<Arc<str>>,
    /// The label that it stated; empty if none.
    pub label: Box<str>,
    /// Whether it is a long poll.
    pub is_poll: bool,
    /// The revision that it was sent last.
    revision: AtomicU64,
}

impl Reader {
    /// The revision that it was sent last, or began after; 0: none yet.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Whether it is sent the changes of a container.
    pub fn reads(&self, container: &str) -> bool {
        match &self.scope {
            WatchScope::Container(key) => **key == *container,
            WatchScope::Namespace => true,
        }
    }
}

/// All clients that watch configuration.
#[derive(Debug, Default)]
pub struct Readers {
    open: Mutex<OpenReaders>,
}

#[derive(Debug, Default)]
struct OpenReaders {
    by_number: BTreeMap<u64, Arc<Reader>>,
    last_number: u64,
}

/// The entry of one client, removed when dropped.
#[derive(Debug)]
pub struct ReaderEntry {
    readers: Arc<Readers>,
    number: u64,
    reader: Arc<Reader>,
}

/// Who watches what, and since when.
#[derive(Debug)]
pub struct NewReader {
    /// See [`Reader::namespace`].
    pub namespace: Name,
    /// See [`Reader::scope`].
    pub scope: WatchScope,
    /// See [`Reader::address`].
    pub address: Option<SocketAddr>,
    /// See [`Reader::principal`].
    pub principal: Option<Arc<str>>,
    /// See [`Reader::label`].
    pub label: Box<str>,
    /// See [`Reader::is_poll`].
    pub is_poll: bool,
    /// The revision after which it begins; 0 if it has received nothing.
    pub revision: u64,
}

impl Readers {
    /// Adds a client.
    pub fn enter(self: &Arc<Self>, new: NewReader) -> ReaderEntry {
        let NewReader { namespace, scope, address, principal, label, is_poll, revision } = new;
        let revision = AtomicU64::new(revision);
        let reader = Arc::new(Reader { namespace, scope, address, principal, label, is_poll, revision });
        let mut open = self.lock();
        open.last_number += 1;
        let number = open.last_number;
        open.by_number.insert(number, reader.clone());
        ReaderEntry { readers: self.clone(), number, reader }
    }

    /// The clients that watch a namespace, or read a container of it, in the order in which they
    /// came.
    pub fn of(&self, namespace: &Name, container: Option<&str>) -> Vec<Arc<Reader>> {
        let is_asked = |reader: &&Arc<Reader>| {
            reader.namespace == *namespace && container.is_none_or(|container| reader.reads(container))
        };
        self.lock().by_number.values().filter(is_asked).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, OpenReaders> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReaderEntry {
    /// The client.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The client is sent this revision.
    pub fn sent(&self, revision: u64) {
        self.reader.revision.store(revision, Ordering::Relaxed);
    }
}

impl Drop for ReaderEntry {
    fn drop(&mut self) {
        self.readers.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(namespace: &str, scope: WatchScope) -> NewReader {
        let namespace = Name::new(namespace).unwrap();
        let (address, principal, label) = (None, None, "".into());
        NewReader { namespace, scope, address, principal, label, is_poll: false, revision: 3 }
    }

    #[test]
    fn readers_are_listed_until_they_leave() {
        let readers = Arc::new(Readers::default());
        let whole = readers.enter(new("ns", WatchScope::Namespace));
        let one = readers.enter(new("ns", WatchScope::Container("a".into())));
        let other = readers.enter(new("other", WatchScope::Namespace));
        let name = Name::new("ns").unwrap();
        let count = |container| readers.of(&name, container).len();
        assert_eq!((count(None), count(Some("a")), count(Some("b"))), (2, 2, 1));
        one.sent(7);
        let revisions = readers.of(&name, None).iter().map(|reader| reader.revision()).collect::<Vec<_>>();
        assert_eq!(revisions, [3, 7]);
        drop(whole);
        assert_eq!((count(None), count(Some("b"))), (1, 0));
        drop((one, other));
        assert!(readers.lock().by_number.is_empty());
    }
}
