//! Cache of encoded containers: complete answers, byte for byte.
//!
//! Owns only data that can be recomputed. Every request asks the store whether the container has
//! changed, which costs as much as reading a key. So no entry is served out of date; the cache only
//! saves resolving, encoding and hashing.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::HeaderValue;
use tidelock_core::command::config::{Found, Name};

use super::show::{Show, hex};

/// Most bytes of cached answers of all workers together. When they exceed it, all are dropped: what
/// is in use is soon cached again.
const BYTES_MAX: usize = 64 << 20;

/// Bytes of an entry besides its answer.
const ENTRY_BYTES: usize = 256;

/// Encoded answers of one worker, by namespace and container.
#[derive(Debug)]
pub struct Documents {
    kept: RefCell<CachedDocument>,
    bytes_max: usize,
}

impl Default for Documents {
    fn default() -> Documents {
        Documents::for_one_of(1)
    }
}

#[derive(Debug, Default)]
struct CachedDocument {
    bytes: usize,
    documents: HashMap<Name, HashMap<Arc<str>, Rc<Document>>>,
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

impl Documents {
    /// The cache of one of `workers` workers.
    pub(crate) fn for_one_of(workers: usize) -> Documents {
        Documents { kept: RefCell::default(), bytes_max: BYTES_MAX / workers }
    }

    /// The cached answer for a container, which may be out of date.
    pub(super) fn get(&self, namespace: &Name, key: &str) -> Option<Rc<Document>> {
        self.kept.borrow().documents.get(namespace)?.get(key).cloned()
    }

    /// Encodes the answer and caches it.
    pub(super) fn make(&self, namespace: &Name, key: &Arc<str>, found: &Found) -> Rc<Document> {
        let mut show = Show::success();
        show.container(namespace, key, found);
        let body = Bytes::from(show.finish());
        let etag = etag(&found.container.checksum);
        let document = Rc::new(Document { touched: found.container.touched, body, etag });
        let bytes = document.body.len() + ENTRY_BYTES;
        let mut kept = self.kept.borrow_mut();
        if kept.bytes + bytes > self.bytes_max {
            *kept = CachedDocument::default();
        }
        kept.bytes += bytes;
        let of_namespace = kept.documents.entry(namespace.clone()).or_default();
        if let Some(old) = of_namespace.insert(key.clone(), document.clone()) {
            kept.bytes -= old.body.len() + ENTRY_BYTES;
        }
        document
    }

    /// Drops a container that no longer exists.
    pub(super) fn forget(&self, namespace: &Name, key: &str) {
        let mut kept = self.kept.borrow_mut();
        let Some(of_namespace) = kept.documents.get_mut(namespace) else { return };
        let old = of_namespace.remove(key);
        if of_namespace.is_empty() {
            kept.documents.remove(namespace);
        }
        kept.bytes -= old.map_or(0, |old| old.body.len() + ENTRY_BYTES);
    }
}

/// A checksum as an entity tag.
pub(super) fn etag(checksum: &[u8]) -> HeaderValue {
    let text = format!("\"{}\"", hex(checksum));
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
        for number in 0..200_000 {
            documents.make(&name, &format!("{number}").into(), &found);
            assert!(documents.kept.borrow().bytes <= BYTES_MAX);
        }
        documents.make(&name, &"last".into(), &found);
        documents.make(&name, &"last".into(), &found);
        assert_eq!(documents.get(&name, "last").unwrap().touched, 1);
        let counted = |documents: &Documents| {
            let kept = documents.kept.borrow();
            let sizes =
                kept.documents.values().flat_map(HashMap::values).map(|held| held.body.len() + ENTRY_BYTES);
            (kept.bytes, sizes.sum::<usize>())
        };
        let (bytes, sum) = counted(&documents);
        assert_eq!(bytes, sum);
        documents.forget(&name, "last");
        assert!(documents.get(&name, "last").is_none());
        let (bytes, sum) = counted(&documents);
        assert_eq!(bytes, sum);
    }
}
