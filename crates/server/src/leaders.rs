//! Where the leaders of the shards are reached, for clients that want to ask them directly.
//!
//! Owns the table that the node's worker keeps up to date and every worker reads. An entry may be
//! out of date by some ticks; a client that follows one only loses a forward.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hyper::header::HeaderValue;
use tidelock_core::types::ShardId;

/// URLs of the leaders of shards that other nodes lead, as values of a header.
#[derive(Clone, Debug, Default)]
pub struct LeaderUrls(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Number of entries, so that a node that leads all shards takes no lock.
    count: AtomicUsize,
    by_shard: RwLock<BTreeMap<ShardId, HeaderValue>>,
    /// Whether clients connect with TLS.
    is_https: AtomicBool,
}

impl LeaderUrls {
    /// Sets `HOST:PORT` of the leader of a shard; `None` if this node leads it or nobody is known
    /// to.
    pub fn set(&self, shard: ShardId, address: Option<&str>) {
        let scheme = if self.0.is_https.load(Ordering::Relaxed) { "https://" } else { "http://" };
        let is_same = |url: &HeaderValue, address: &str| {
            url.as_bytes().strip_prefix(scheme.as_bytes()) == Some(address.as_bytes())
        };
        let is_current = match (self.of(shard), address) {
            (Some(url), Some(address)) => is_same(&url, address),
            (None, None) => true,
            _ => false,
        };
        // Called for every shard at every tick, while leaders rarely change: avoid the write lock.
        if is_current {
            return;
        }
        let mut urls = self.0.by_shard.write().unwrap_or_else(PoisonError::into_inner);
        match address.and_then(|address| HeaderValue::try_from(format!("{scheme}{address}")).ok()) {
            Some(url) => urls.insert(shard, url),
            None => urls.remove(&shard),
        };
        self.0.count.store(urls.len(), Ordering::Release);
    }

    /// From now on the URLs are those of nodes that clients reach with TLS. All nodes of a cluster
    /// are taken to be alike.
    pub fn use_https(&self) {
        self.0.is_https.store(true, Ordering::Relaxed);
    }

    /// Whether this node leads all shards of which it knows the leaders.
    pub fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Acquire) == 0
    }

    /// The URL of a shard's leader, if another node leads the shard and its address is known.
    pub fn of(&self, shard: ShardId) -> Option<HeaderValue> {
        self.0.by_shard.read().unwrap_or_else(PoisonError::into_inner).get(&shard).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_follows_the_leaders() {
        let urls = LeaderUrls::default();
        let of = |shard| urls.of(ShardId(shard)).map(|url| url.to_str().unwrap().to_owned());
        assert!(urls.is_empty());
        urls.set(ShardId(1), Some("node-2:8001"));
        urls.set(ShardId(2), Some("[::1]:8001"));
        assert_eq!((of(1), of(2)), (Some("http://node-2:8001".into()), Some("http://[::1]:8001".into())));
        urls.set(ShardId(1), Some("node-3:8001"));
        urls.set(ShardId(2), None);
        assert_eq!((of(1), of(2), urls.is_empty()), (Some("http://node-3:8001".into()), None, false));
        urls.use_https();
        urls.set(ShardId(1), Some("node-3:8001"));
        assert_eq!(of(1), Some("https://node-3:8001".into()));
        urls.set(ShardId(1), None);
        assert!(urls.is_empty());
    }
}
