//! What passes between the node's worker and another one, in both directions: batches.
//!
//! Owns the hand-over and its wake-ups. What one turn of a worker's event loop gathered crosses at once, behind a lock that is held
//! for as long as it takes to swap two lists; whoever is to take it is woken only if nothing lay there before, since then
//! he has been woken already. So the cost of crossing is paid for each batch, and batches grow with the load.
//!
//! Nothing is bounded here: what lies here are requests of connections and their replies, and each connection is bounded by its
//! server, as on the node's own worker. Once either side is gone the exchange is closed, holds nothing and takes
//! nothing.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidelock_core::command::{Reply, Request};
use tidelock_core::control::slot_map::SlotMap;
use tidelock_core::event::{ConfigNews, NodeStatus};
use tidelock_core::types::{ClientId, Token};
use tokio::sync::{Notify, oneshot};

/// What another worker wants of the node.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Exactly one [`Word::Reply`] will carry the token.
    Request { client: ClientId, token: Token, request: Request },
    /// What the node says about itself.
    Status(oneshot::Sender<NodeStatus>),
}

/// What the node's worker tells another one.
#[derive(Debug)]
pub(crate) enum Word {
    Reply(Token, Reply),
    /// Whose configuration changed: a word for the watchers there.
    News(ConfigNews),
    /// Slots of which nobody hears here: watchers of configuration in them should look.
    Elsewhere(Vec<Range<u16>>),
    /// Which shard holds which slots from now on.
    Slots(Arc<SlotMap>),
}

/// Between the node's worker and one other.
#[derive(Debug)]
pub(crate) struct Exchange {
    asks: Inbox<Ask>,
    words: Inbox<Word>,
}

impl Exchange {
    /// Nothing lies there; the node's worker waits on `node_wake`.
    pub fn new(node_wake: Arc<Notify>) -> Exchange {
        Exchange { asks: Inbox::new(node_wake), words: Inbox::new(Arc::default()) }
    }

    /// On its way to the node.
    pub fn asks(&self) -> &Inbox<Ask> {
        &self.asks
    }

    /// On its way to the other worker.
    pub fn words(&self) -> &Inbox<Word> {
        &self.words
    }

    /// Ends it, from whichever side; both hear of it.
    pub fn close(&self) {
        self.asks.close();
        self.words.close();
    }
}

/// One direction: one thread puts batches, another takes all there is.
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

    /// What its reader waits on.
    pub fn wake(&self) -> &Notify {
        &self.wake
    }

    /// Puts a batch behind what lies there. `batch` is empty then, and has room for the next.
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

    /// Swaps all that lies there into `taken`, which is empty. Returns whether anything can still come.
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
        exchange.asks().put(&mut vec![Ask::Status(status)]);
        exchange.close();
        assert_eq!(answer.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
        let (status, mut answer) = oneshot::channel();
        let mut batch = vec![Ask::Status(status)];
        exchange.asks().put(&mut batch);
        assert!(batch.is_empty());
        assert_eq!(answer.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
        assert!(!exchange.asks().take(&mut Vec::new()) && !exchange.words().take(&mut Vec::new()));
    }
}
