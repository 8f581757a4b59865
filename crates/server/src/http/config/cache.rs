//! Cache of encoded containers: complete answers, byte for byte.
//!
//! Owns only data that can be recomputed. Every request asks the store whether the container has
//! changed, which costs as much as reading a key. So no entry is served out of date; the cache only
//! saves resolving, encoding and hashing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::HeaderValue;
use quick_cache::unsync::Cache;
use quick_cache::{Equivalent, Weighter};
use tidelock_core::command::config::{Found, Name};

use super::show;
use crate::hex;

/// Most bytes of cached answers of all workers together. Beyond it, answers that were not used
/// lately make room.
const BYTES_MAX: u64 = 64 << 20;

/// Bytes of an entry besides its answer.
const ENTRY_BYTES: u64 = 256;

/// Bytes of a typical entry, by which the cache sizes its tables.
const TYPICAL_BYTES: u64 = 4 << 10;

/// Encoded answers of one worker, by namespace and container.
#[derive(Debug)]
pub struct Documents(RefCell<DocumentCache>);

type DocumentCache = Cache<(Name, Arc<str>), Rc<Document>, ByteSize>;

impl Default for Documents {
    fn default() -> Documents {
        Documents::for_one_of(1)
    }
}

#[derive(Debug)]
pub(super) struct Document {
    /// The container's [`tidelock_core::command::config::Container::touched`].
    pub touched: u64,
    /// The whole body of the answer.
    pub body: Bytes,
    /// The document's checksum in quotes, for `ETag`.
    pub etag: HeaderValue,
}

#[derive(Clone, Copy, Debug)]
struct ByteSize;

impl Weighter<(Name, Arc<str>), Rc<Document>> for ByteSize {
    fn weight(&self, _: &(Name, Arc<str>), document: &Rc<Document>) -> u64 {
        document.body.len() as u64 + ENTRY_BYTES
    }
}

/// A key of the cache, borrowed.
#[derive(Hash)]
struct Borrowed<'a>(&'a Name, &'a str);

impl Equivalent<(Name, Arc<str>)> for Borrowed<'_> {
    fn equivalent(&self, (namespace, key): &(Name, Arc<str>)) -> bool {
        (self.0, self.1) == (namespace, key)
    }
}

impl Documents {
    /// The cache of one of `workers` workers.
    pub(crate) fn for_one_of(workers: usize) -> Documents {
        let bytes_max = BYTES_MAX / workers as u64;
        let entries = (bytes_max / TYPICAL_BYTES) as usize;
        Documents(RefCell::new(Cache::with_weighter(entries, bytes_max, ByteSize)))
    }

    /// The cached answer for a container, which may be out of date.
    pub(super) fn get(&self, namespace: &Name, key: &str) -> Option<Rc<Document>> {
        self.0.borrow().get(&Borrowed(namespace, key)).cloned()
    }

    /// Encodes the answer and caches it.
    pub(super) fn make(&self, namespace: &Name, key: &Arc<str>, found: &Found) -> Rc<Document> {
        let body = Bytes::from(show::success(show::container(namespace, key, found)));
        let etag = etag(&found.container.checksum);
        let document = Rc::new(Document { touched: found.container.touched, body, etag });
        self.0.borrow_mut().insert((namespace.clone(), key.clone()), document.clone());
        document
    }

    /// Drops a container that no longer exists.
    pub(super) fn forget(&self, namespace: &Name, key: &str) {
        self.0.borrow_mut().remove(&Borrowed(namespace, key));
    }
}

/// A checksum as an entity tag.
pub(super) fn etag(checksum: &[u8]) -> HeaderValue {
    let text = format!("\"{}\"", hex::encode(checksum));
    HeaderValue::from_str(&text).expect("invariant: digits and quotes are a header value")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidelock_core::command::config::Container;

    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let container = Container {
            schema: None,
            source: None,
            fields: vec![],
            revision: 1,
            touched: 1,
            changed: 1,
            checksum: [7; 32],
            document_bytes: 2,
        };
        let found = Found { revision: 1, container: Arc::new(container), pairs: BTreeMap::new() };
        let documents = Documents::default();
        let name = Name::new("ns").unwrap();
        documents.make(&name, &"used".into(), &found);
        for number in 0..200_000 {
            documents.make(&name, &format!("{number}").into(), &found);
            assert!(documents.0.borrow().weight() <= BYTES_MAX);
            assert!(documents.get(&name, "used").is_some(), "what is in use stays");
        }
        documents.make(&name, &"used".into(), &found);
        assert_eq!(documents.get(&name, "used").unwrap().touched, 1);
        documents.forget(&name, "used");
        assert!(documents.get(&name, "used").is_none());
    }
}
