//! The [`Store`] of workers that do not own the node.
//!
//! Owns the path of their requests to the owning worker and back. Requests gather while tasks run,
//! and cross as one batch once every ready task has run; replies return in the same manner. It
//! decides nothing. Requests that the local store answers at once (stale reads, the status) cross
//! too, and the node answers them at once.
//!
//! The shard of a key is looked up here, in a copy of the node's slot map. The copy may be slightly
//! out of date, like the node's own map, and the node checks again.
//!
//! When the owning worker is gone, [`Remote::run`] returns, and its caller drops the worker's
//! connections: their requests cannot be answered any more.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use tidelock_core::auth::Caller;
use tidelock_core::command::{Refusal, Reply, Request};
use tidelock_core::event::NodeStatus;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::slots::slot_of;
use tidelock_core::spans::TraceContext;
use tidelock_core::types::{ClientId, ShardId, Token};
use tokio::sync::oneshot;

use crate::access::PublishedAccess;
use crate::clock::LeaderClocks;
use crate::counters::{Counter, PerWorker};
use crate::exchange::{Exchange, WorkerMessage, WorkerRequest};
use crate::leaders::LeaderUrls;
use crate::store::{Mailbox, RequestContext, Store};
use crate::waiting::Waiting;
use crate::watch::WatchRegistry;

/// What a worker needs to reach the node. Dropping it closes the exchange.
#[derive(Debug)]
pub struct WorkerLink {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) slots: Arc<SlotMap>,
    pub(crate) watch_registry: Arc<WatchRegistry>,
    pub(crate) clocks: LeaderClocks,
    pub(crate) leaders: LeaderUrls,
    pub(crate) access: Arc<PublishedAccess>,
}

impl Drop for WorkerLink {
    fn drop(&mut self) {
        self.exchange.close();
    }
}

/// What one worker sent to the owning worker.
#[derive(Debug, Default)]
pub struct HandoverCounters {
    /// Requests sent.
    pub requests: Counter,
    /// Batches in which these requests were sent.
    pub batches: Counter,
}

/// A handle to the node for the tasks of a worker that does not own it.
#[derive(Clone)]
pub struct Remote(Rc<RemoteState>, RequestContext);

struct RemoteState {
    link: WorkerLink,
    waiting: Waiting,
    /// The next batch, which is sent when this turn of the event loop ends.
    requests: RefCell<Vec<WorkerRequest>>,
    slots: RefCell<Arc<SlotMap>>,
    is_closed: Cell<bool>,
    counters: PerWorker<HandoverCounters>,
}

impl Remote {
    /// A handle for the worker of this thread; raises `counters`.
    pub fn new(link: WorkerLink, counters: PerWorker<HandoverCounters>) -> Remote {
        let slots = RefCell::new(link.slots.clone());
        let (waiting, requests) = (Waiting::default(), RefCell::default());
        let inner = RemoteState { link, waiting, requests, slots, is_closed: Cell::new(false), counters };
        Remote(Rc::new(inner), RequestContext::default())
    }

    /// Passes batches in both directions until the owning worker is gone.
    pub async fn run(&self) {
        let messages = self.0.link.exchange.messages();
        let mut taken = Vec::new();
        while !self.0.is_closed.get() {
            messages.wake().notified().await;
            self.0.is_closed.set(!messages.take(&mut taken));
            for message in taken.drain(..) {
                match message {
                    WorkerMessage::Reply(token, reply) => {
                        let crossing = self.0.waiting.answer(token.0, reply);
                        debug_assert!(
                            crossing.is_none(),
                            "invariant: only the node's worker hands replies on"
                        );
                    }
                    WorkerMessage::News(news) => self.0.link.watch_registry.notify(&news),
                    WorkerMessage::Keys(report) => self.0.link.watch_registry.notify_keys(&report),
                    WorkerMessage::RemoteSlots(slots) => self.0.link.watch_registry.notify_slots(&slots),
                    WorkerMessage::LeaderlessSlots(slots) => {
                        self.0.link.watch_registry.invalidate_slots(&slots);
                    }
                    WorkerMessage::Slots(slots) => *self.0.slots.borrow_mut() = slots,
                }
            }
            self.hand_over();
        }
    }

    fn hand_over(&self) {
        let mut requests = self.0.requests.borrow_mut();
        if requests.is_empty() {
            return;
        }
        self.0.counters.requests.add(requests.len() as u64);
        self.0.counters.batches.add(1);
        self.0.link.exchange.requests().put(&mut requests);
    }

    fn send(&self, request: WorkerRequest) {
        let mut requests = self.0.requests.borrow_mut();
        requests.push(request);
        // The first request of a batch wakes this worker's hand-over, which runs after all ready
        // tasks.
        if requests.len() == 1 {
            self.0.link.exchange.messages().wake().notify_one();
        }
    }

    fn request(&self, number: u64, request: Request) {
        self.send(WorkerRequest::Request { context: self.1.clone(), token: Token(number), request });
    }
}

impl Store for Remote {
    fn for_client(&self, client: ClientId) -> Remote {
        Remote(self.0.clone(), RequestContext { client, ..self.1.clone() })
    }

    fn for_caller(&self, caller: Caller) -> Remote {
        Remote(self.0.clone(), RequestContext { caller, ..self.1.clone() })
    }

    fn for_trace(&self, context: TraceContext) -> Remote {
        Remote(self.0.clone(), RequestContext { trace: Some(context), ..self.1.clone() })
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

    fn leaders(&self) -> &LeaderUrls {
        &self.0.link.leaders
    }

    fn access(&self) -> &Arc<PublishedAccess> {
        &self.0.link.access
    }

    fn watch_registry(&self) -> &Arc<WatchRegistry> {
        &self.0.link.watch_registry
    }

    fn status(&self) -> impl Future<Output = NodeStatus> {
        let (sender, receiver) = oneshot::channel();
        self.send(WorkerRequest::Status(sender));
        async { receiver.await.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests;
