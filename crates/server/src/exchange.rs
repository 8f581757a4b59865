//! Batches of messages between the worker that owns the node and another worker, in both
//! directions.
//!
//! Owns the hand-over and its wake-ups. What a worker gathered in one iteration of its event loop
//! crosses at once, behind a lock that is held only to swap two lists. The receiver is woken only
//! if the queue was empty; otherwise it has been woken already. So crossing is paid for once a
//! batch, and batches grow with the load.
//!
//! Nothing is bounded here. The contents are requests of connections and their replies, and each
//! connection is bounded by its server. Once either side is gone the exchange is closed: it holds
//! nothing and accepts nothing.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidelock_core::command::{Reply, Request};
use tidelock_core::event::{ConfigUpdate, KeyReport, NodeStatus};
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::types::Token;
use tokio::sync::{Notify, oneshot};

use crate::store::RequestContext;

/// A message from another worker to the node.
#[derive(Debug)]
pub(crate) enum WorkerRequest {
    /// A request; exactly one [`WorkerMessage::Reply`] will carry the token.
    Request { context: RequestContext, token: Token, request: Request },
    /// Asks for the node's status, which goes to this channel.
    Status(oneshot::Sender<NodeStatus>),
}

/// A message from the owning worker to another one.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    Reply(Token, Reply),
    /// A change of a namespace's configuration, for the watchers of that worker.
    News(ConfigUpdate),
    /// Changed keys, for the watchers of that worker.
    Keys(Arc<KeyReport>),
    /// Slots without a local replica, of whose changes this node is not notified: watchers in them
    /// should check.
    RemoteSlots(Vec<Range<u16>>),
    /// Slots of whose changes this node may learn nothing: clients should drop their cached keys.
    LeaderlessSlots(Vec<Range<u16>>),
    /// The slot map, when it has changed.
    Slots(Arc<SlotMap>),
}

/// The two directions between the owning worker and one other.
#[derive(Debug)]
pub(crate) struct Exchange {
    requests: Inbox<WorkerRequest>,
    messages: Inbox<WorkerMessage>,
}

impl Exchange {
    /// An empty exchange; the owning worker waits on `node_wake`.
    pub fn new(node_wake: Arc<Notify>) -> Exchange {
        Exchange { requests: Inbox::new(node_wake), messages: Inbox::new(Arc::default()) }
    }

    pub fn requests(&self) -> &Inbox<WorkerRequest> {
        &self.requests
    }

    pub fn messages(&self) -> &Inbox<WorkerMessage> {
        &self.messages
    }

    /// Closes both directions, from either side, and wakes both readers.
    pub fn close(&self) {
        self.requests.close();
        self.messages.close();
    }
}

/// One direction: one thread adds batches, another takes everything at once.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    content: Mutex<Content<T>>,
    wake: Arc<Notify>,
}

#[derive(Debug)]
struct Content<T> {
    items: Vec<T>,
    is_closed: bool,
}

impl<T> Inbox<T> {
    fn new(wake: Arc<Notify>) -> Inbox<T> {
        Inbox { content: Mutex::new(Content { items: Vec::new(), is_closed: false }), wake }
    }

    pub fn wake(&self) -> &Notify {
        &self.wake
    }

    /// Appends a batch. Afterwards `batch` is empty, with capacity for the next one.
    pub fn put(&self, batch: &mut Vec<T>) {
        let mut content = self.lock();
        if content.is_closed {
            drop(content);
            return batch.clear();
        }
        let was_empty = content.items.is_empty();
        if was_empty {
            std::mem::swap(&mut content.items, batch);
        } else {
            content.items.append(batch);
        }
        let has_news = was_empty && !content.items.is_empty();
        drop(content);
        if has_news {
            self.wake.notify_one();
        }
    }

    /// Swaps the contents into `taken`, which must be empty. Returns whether anything can still
    /// arrive.
    pub fn take(&self, taken: &mut Vec<T>) -> bool {
        debug_assert!(taken.is_empty(), "invariant: what was taken before is worked off");
        let mut content = self.lock();
        std::mem::swap(&mut content.items, taken);
        !content.is_closed
    }

    fn close(&self) {
        let mut content = self.lock();
        content.is_closed = true;
        let dropped = std::mem::take(&mut content.items);
        drop(content);
        drop(dropped);
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Content<T>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;

    /// Counts how often its task is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_reader_is_woken_once_for_all_that_comes_before_he_takes_it() {
        let inbox: Inbox<u32> = Inbox::new(Arc::default());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut task = Context::from_waker(&waker);
        for round in 1..=3 {
            let mut notified = pin!(inbox.wake().notified());
            assert!(notified.as_mut().poll(&mut task).is_pending());
            inbox.put(&mut Vec::new());
            assert_eq!(wakes.0.load(Ordering::Relaxed), round - 1, "nothing is no news");
            for batch in 0..10 {
                inbox.put(&mut vec![batch * 2, batch * 2 + 1]);
            }
            assert_eq!(wakes.0.load(Ordering::Relaxed), round);
            assert!(notified.as_mut().poll(&mut task).is_ready());
            let mut taken = Vec::new();
            assert!(inbox.take(&mut taken));
            assert_eq!(taken, (0..20).collect::<Vec<_>>());
            taken.clear();
            assert!(inbox.take(&mut taken) && taken.is_empty());
        }
    }

    #[test]
    fn everything_arrives_once_and_in_order_between_threads() {
        const ITEMS: u32 = 100_000;
        let inbox: Arc<Inbox<u32>> = Arc::new(Inbox::new(Arc::default()));
        let writer = inbox.clone();
        let writing = std::thread::spawn(move || {
            let (mut batch, mut next) = (Vec::new(), 0);
            while next < ITEMS {
                let end = (next + 1 + next % 7).min(ITEMS);
                batch.extend(next..end);
                next = end;
                writer.put(&mut batch);
                assert!(batch.is_empty());
            }
            writer.close_when_taken();
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let received = runtime.block_on(async {
            let (mut received, mut taken) = (Vec::new(), Vec::new());
            loop {
                inbox.wake().notified().await;
                let is_open = inbox.take(&mut taken);
                received.append(&mut taken);
                if !is_open {
                    return received;
                }
            }
        });
        writing.join().unwrap();
        assert!(received.into_iter().eq(0..ITEMS));
    }

    impl<T> Inbox<T> {
        fn close_when_taken(&self) {
            while !self.lock().items.is_empty() {
                std::thread::yield_now();
            }
            self.close();
        }
    }

    #[test]
    fn what_is_closed_holds_nothing_and_takes_nothing() {
        let exchange = Exchange::new(Arc::default());
        let (status, mut answer) = oneshot::channel();
        exchange.requests().put(&mut vec![WorkerRequest::Status(status)]);
        exchange.close();
        assert_eq!(answer.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
        let (status, mut answer) = oneshot::channel();
        let mut batch = vec![WorkerRequest::Status(status)];
        exchange.requests().put(&mut batch);
        assert!(batch.is_empty());
        assert_eq!(answer.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
        assert!(!exchange.requests().take(&mut Vec::new()) && !exchange.messages().take(&mut Vec::new()));
    }
}
