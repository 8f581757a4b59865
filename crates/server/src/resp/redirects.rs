//! Invalidations that one connection passes to another one of the same node, because its own
//! protocol has no messages for them (`CLIENT TRACKING ON REDIRECT`).
//!
//! Owns which connections there are, on all workers, and what waits for each. That is bounded,
//! and nothing is left out: too many invalidations become one of all keys.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidelock_core::clients::key_tracking::{Invalidation, WaitingInvalidations};

/// The connections of a node, by the numbers of their clients.
#[derive(Debug, Default)]
pub struct Redirects(Mutex<BTreeMap<u64, Arc<Mutex<Inbox>>>>);

#[derive(Debug, Default)]
struct Inbox {
    /// Whether the connection can be sent invalidations.
    is_open: bool,
    waiting: WaitingInvalidations,
    waker: Option<Waker>,
}

/// What other connections pass to this one. It ends when it is dropped.
#[derive(Debug)]
pub struct RedirectInbox {
    redirects: Arc<Redirects>,
    client: u64,
    inbox: Arc<Mutex<Inbox>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Redirects {
    /// Adds the connection of a client.
    pub fn connect(self: &Arc<Self>, client: u64) -> RedirectInbox {
        let inbox = Arc::<Mutex<Inbox>>::default();
        lock(&self.0).insert(client, inbox.clone());
        RedirectInbox { redirects: self.clone(), client, inbox }
    }

    /// Whether there is a connection of this client.
    pub fn has(&self, client: u64) -> bool {
        lock(&self.0).contains_key(&client)
    }

    /// Passes an invalidation to the connection of a client. One that cannot be sent any gets none,
    /// as in Redis. Returns whether there is such a connection.
    pub fn send(&self, client: u64, invalidation: &Invalidation) -> bool {
        let Some(inbox) = lock(&self.0).get(&client).cloned() else { return false };
        let mut inbox = lock(&inbox);
        if inbox.is_open {
            inbox.waiting.add_invalidation(invalidation);
            if let Some(waker) = inbox.waker.take() {
                waker.wake();
            }
        }
        true
    }
}

impl RedirectInbox {
    /// Sets whether the connection can be sent invalidations.
    pub fn set_open(&self, is_open: bool) {
        let mut inbox = lock(&self.inbox);
        inbox.is_open = is_open;
        if !is_open {
            inbox.waiting = WaitingInvalidations::default();
        }
    }

    /// Waits for the next invalidation.
    pub fn poll(&self, task: &Context<'_>) -> Poll<Invalidation> {
        let mut inbox = lock(&self.inbox);
        if let Some(invalidation) = inbox.waiting.take() {
            return Poll::Ready(invalidation);
        }
        if !inbox.waker.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
            inbox.waker = Some(task.waker().clone());
        }
        Poll::Pending
    }

    /// Bytes of the invalidations that wait.
    pub fn waiting_bytes(&self) -> usize {
        lock(&self.inbox).waiting.bytes()
    }
}

impl Drop for RedirectInbox {
    fn drop(&mut self) {
        lock(&self.redirects.0).remove(&self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn keys(keys: &[&'static str]) -> Invalidation {
        Invalidation::Keys(keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect())
    }

    #[test]
    fn what_is_passed_waits_for_an_open_connection_alone() {
        let redirects = Arc::new(Redirects::default());
        let task = Context::from_waker(Waker::noop());
        let inbox = redirects.connect(7);
        assert!(redirects.has(7) && !redirects.has(8));
        assert!(redirects.send(7, &keys(&["a"])) && !redirects.send(8, &keys(&["a"])));
        assert_eq!(inbox.poll(&task), Poll::Pending, "it was not open");
        inbox.set_open(true);
        redirects.send(7, &keys(&["b"]));
        redirects.send(7, &keys(&["a", "b"]));
        assert_eq!(inbox.poll(&task), Poll::Ready(keys(&["a", "b"])));
        redirects.send(7, &keys(&["c"]));
        redirects.send(7, &Invalidation::All);
        assert_eq!(inbox.poll(&task), Poll::Ready(Invalidation::All));
        redirects.send(7, &keys(&["c"]));
        assert!(inbox.waiting_bytes() > 0);
        inbox.set_open(false);
        assert_eq!((inbox.poll(&task), inbox.waiting_bytes()), (Poll::Pending, 0));
        drop(inbox);
        assert!(!redirects.has(7));
    }
}
