//! The store as workers see it that do not own the node.
//!
//! Owns the way of their requests to the node's worker and back: requests gather while tasks run, and cross as one batch once
//! every task that was ready has run; replies come back in the same manner. It decides nothing. What the local store answers at
//! once (stale reads, the status) crosses, too, and the node answers it at once.
//!
//! Which shard a key belongs to is looked up here, in a copy that follows the node's: it may be a moment old, as it may be
//! on the node itself, and the node judges again.
//!
//! When the node's side is gone, [`Remote::run`] returns, and whoever runs the worker drops its connections: nobody could
//! answer them.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use tidelock_core::command::{Refusal, Reply, Request};
use tidelock_core::control::slot_map::SlotMap;
use tidelock_core::event::NodeStatus;
use tidelock_core::slots::slot_of;
use tidelock_core::types::{ClientId, ShardId, Token};
use tokio::sync::oneshot;

use crate::clock::LeaderClocks;
use crate::counters::{Counter, PerWorker};
use crate::exchange::{Ask, Exchange, Word};
use crate::store::{Mailbox, Store};
use crate::waiting::Waiting;
use crate::watch::Hub;

/// What a worker needs to reach the node of another one. Dropping it closes the exchange.
#[derive(Debug)]
pub struct Link {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) slots: Arc<SlotMap>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) clocks: LeaderClocks,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.exchange.close();
    }
}

/// What crossed from one worker to the node's.
#[derive(Debug, Default)]
pub struct HandoverCounters {
    /// Requests.
    pub requests: Counter,
    /// Batches of them.
    pub batches: Counter,
}

/// A handle to the node's worker for the tasks of another one.
#[derive(Clone)]
pub struct Remote(Rc<Inner>, ClientId);

struct Inner {
    link: Link,
    waiting: Waiting,
    /// What will cross next.
    asks: RefCell<Vec<Ask>>,
    slots: RefCell<Arc<SlotMap>>,
    is_closed: Cell<bool>,
    counters: PerWorker<HandoverCounters>,
}

impl Remote {
    /// For the worker of this thread; raises `counters`.
    pub fn new(link: Link, counters: PerWorker<HandoverCounters>) -> Remote {
        let slots = RefCell::new(link.slots.clone());
        let (waiting, asks) = (Waiting::default(), RefCell::default());
        let inner = Inner { link, waiting, asks, slots, is_closed: Cell::new(false), counters };
        Remote(Rc::new(inner), ClientId::NODE)
    }

    /// Hands batches over in both directions until the node's side is gone.
    pub async fn run(&self) {
        let words = self.0.link.exchange.words();
        let mut taken = Vec::new();
        while !self.0.is_closed.get() {
            words.wake().notified().await;
            self.0.is_closed.set(!words.take(&mut taken));
            for word in taken.drain(..) {
                match word {
                    Word::Reply(token, reply) => {
                        let crossing = self.0.waiting.answer(token.0, reply);
                        debug_assert!(
                            crossing.is_none(),
                            "invariant: only the node's worker hands replies on"
                        );
                    }
                    Word::News(news) => self.0.link.hub.tell(&news),
                    Word::Elsewhere(slots) => self.0.link.hub.tell_slots(&slots),
                    Word::Slots(slots) => *self.0.slots.borrow_mut() = slots,
                }
            }
            self.hand_over();
        }
    }

    fn hand_over(&self) {
        let mut asks = self.0.asks.borrow_mut();
        if asks.is_empty() {
            return;
        }
        self.0.counters.requests.add(asks.len() as u64);
        self.0.counters.batches.add(1);
        self.0.link.exchange.asks().put(&mut asks);
    }

    fn ask(&self, ask: Ask) {
        let mut asks = self.0.asks.borrow_mut();
        asks.push(ask);
        // The first of a batch has it handed over, behind the tasks that are ready now.
        if asks.len() == 1 {
            self.0.link.exchange.words().wake().notify_one();
        }
    }

    fn request(&self, number: u64, request: Request) {
        self.ask(Ask::Request { client: self.1, token: Token(number), request });
    }
}

impl Store for Remote {
    fn for_client(&self, client: ClientId) -> Remote {
        Remote(self.0.clone(), client)
    }

    fn submit(&self, request: Request) -> impl Future<Output = Reply> {
        let (number, receiver) = self.0.waiting.in_task();
        self.request(number, request);
        // A sender is dropped only when the worker ends under the request.
        async { receiver.await.unwrap_or(Reply::Refused(Refusal::UnknownOutcome)) }
    }

    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64) {
        self.request(self.0.waiting.at_mailbox(mailbox, tag), request);
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        self.0.slots.borrow().shard_of(slot_of(key))
    }

    fn slot_map(&self) -> Arc<SlotMap> {
        self.0.slots.borrow().clone()
    }

    fn leader_ahead_ms(&self, shard: ShardId) -> i64 {
        self.0.link.clocks.ahead_ms(shard)
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.0.link.hub
    }

    fn status(&self) -> impl Future<Output = NodeStatus> {
        let (sender, receiver) = oneshot::channel();
        self.ask(Ask::Status(sender));
        async { receiver.await.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests;
