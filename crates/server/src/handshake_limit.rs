//! A limit on unfinished handshakes. At the limit, a new one evicts the oldest.
//!
//! To begin a handshake costs a client almost nothing, so one that never finishes could hold every
//! permit. If the newest were refused then, nobody else would be served. A client that finishes
//! needs its permit for milliseconds.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Bounds the unfinished handshakes of a listener, on all workers.
#[derive(Debug)]
pub(crate) struct HandshakeLimit {
    max: usize,
    unfinished: Mutex<UnfinishedHandshakes>,
}

#[derive(Debug, Default)]
struct UnfinishedHandshakes {
    /// Number of the next handshake. Numbers rise with time.
    next: u64,
    /// By number. Dropping a sender evicts the handshake.
    evictions: BTreeMap<u64, oneshot::Sender<()>>,
}

/// Permission for one unfinished handshake. Dropping it releases it.
struct HandshakePermit<'a> {
    limit: &'a HandshakeLimit,
    number: u64,
    /// Completes when a newer handshake evicts this one.
    evicted: oneshot::Receiver<()>,
}

impl HandshakeLimit {
    /// A limit of `max` handshakes, at least one.
    pub fn new(max: usize) -> HandshakeLimit {
        HandshakeLimit { max, unfinished: Mutex::default() }
    }

    /// Runs a handshake; `None` if a newer one has evicted it.
    pub async fn run<T>(&self, handshake: impl Future<Output = T>) -> Option<T> {
        let mut permit = self.acquire();
        tokio::select! {
            biased;
            done = handshake => Some(done),
            _ = &mut permit.evicted => None,
        }
    }

    fn acquire(&self) -> HandshakePermit<'_> {
        let (sender, evicted) = oneshot::channel();
        let mut unfinished = self.unfinished();
        if unfinished.evictions.len() == self.max {
            unfinished.evictions.pop_first();
        }
        let number = unfinished.next;
        unfinished.next += 1;
        unfinished.evictions.insert(number, sender);
        HandshakePermit { limit: self, number, evicted }
    }

    fn unfinished(&self) -> MutexGuard<'_, UnfinishedHandshakes> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HandshakePermit<'_> {
    fn drop(&mut self) {
        self.limit.unfinished().evictions.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_handshake_evicts_the_oldest() {
        let limit = HandshakeLimit::new(16);
        let mut permits: Vec<HandshakePermit<'_>> = (0..16).map(|_| limit.acquire()).collect();
        let is_evicted = |permit: &mut HandshakePermit<'_>| {
            permit.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
        };
        assert!(!permits.iter_mut().any(is_evicted));
        permits.remove(7);
        let released = limit.acquire();
        assert!(!permits.iter_mut().any(is_evicted), "one permit was released");
        let newest = limit.acquire();
        let evicted: Vec<u64> =
            permits.iter_mut().filter_map(|permit| is_evicted(permit).then_some(permit.number)).collect();
        assert_eq!(evicted, [0]);
        drop((permits, released, newest));
        assert!(limit.unfinished().evictions.is_empty());
    }
}
