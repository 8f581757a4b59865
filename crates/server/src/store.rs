//! The interface between protocol code and the store: submit a request, await its reply.
//!
//! Owns the hand-over between connections and their worker, on one thread. It knows neither
//! protocols nor consensus.
//!
//! There are two ways to a reply. [`Store::submit`] returns a future, for tasks with one request at
//! a time; [`Store::ask`] also converts it. [`Store::submit_to`] delivers the reply to a
//! [`Mailbox`], so that a connection with many requests in flight is woken once for all replies of
//! a drive and needs no future for each.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use tidelock_core::auth::Caller;
use tidelock_core::command::{Reply, Request};
use tidelock_core::event::NodeStatus;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::spans::TraceContext;
use tidelock_core::types::{ClientId, ShardId};

use crate::access::PublishedAccess;
use crate::leaders::LeaderUrls;
use crate::memory::Reservation;
use crate::requests::{NoAnswer, TypedRequest};
use crate::watch::WatchRegistry;

/// On whose behalf a handle submits requests.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub client: ClientId,
    pub caller: Caller,
    /// Set if the requests are traced.
    pub trace: Option<TraceContext>,
}

impl Default for RequestContext {
    /// The node, without a proof of who it is.
    fn default() -> RequestContext {
        RequestContext { client: ClientId::NODE, caller: Caller::Anonymous, trace: None }
    }
}

/// A cheap handle to the worker of this thread.
pub trait Store: Clone + 'static {
    /// A handle for the requests of one client, which take turns with those of others. A store
    /// without turns returns the same handle for all.
    #[must_use]
    fn for_client(&self, _client: ClientId) -> Self {
        self.clone()
    }

    /// A handle for the requests of a caller, whose identity was proved. Without it, requests are
    /// those of [`Caller::Anonymous`].
    #[must_use]
    fn for_caller(&self, caller: Caller) -> Self;

    /// A handle whose requests are traced. A store without traces returns the same handle.
    #[must_use]
    fn for_trace(&self, _context: TraceContext) -> Self {
        self.clone()
    }

    /// Submits `request`. It gets exactly one reply, by its deadline; dropping the future abandons
    /// the reply, not the request.
    fn submit(&self, request: Request) -> impl Future<Output = Reply>;

    /// As [`Store::submit`], and takes the answer out of the reply.
    fn ask<A>(&self, request: TypedRequest<A>) -> impl Future<Output = Result<A, NoAnswer>> {
        let (request, answer) = request.into_parts();
        let reply = self.submit(request);
        async { answer(reply.await) }
    }

    /// Submits `request`. Its one reply is delivered to `mailbox` with `tag`.
    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64);

    /// The shard of a key, according to this node's current slot map.
    fn shard_of(&self, key: &[u8]) -> ShardId;

    /// This node's current slot map, which may be older than that of other nodes.
    fn slot_map(&self) -> Arc<SlotMap>;

    /// By how many milliseconds the clock of a shard's leader is ahead of this node's, as last
    /// measured.
    fn leader_ahead_ms(&self, shard: ShardId) -> i64;

    /// Where the leaders of shards that other nodes lead are reached.
    fn leaders(&self) -> &LeaderUrls;

    /// Roles, principals and tokens, as this node has applied them.
    fn access(&self) -> &Arc<PublishedAccess>;

    /// The watchers of configuration on this worker.
    fn watch_registry(&self) -> &Arc<WatchRegistry>;

    /// The node's current status. It bypasses the queues of requests, so it is answered under any
    /// load; empty once the owning worker has ended.
    fn status(&self) -> impl Future<Output = NodeStatus>;
}

/// The replies that wait for one connection.
#[derive(Debug, Default)]
pub struct Mailbox {
    delivered: RefCell<Vec<(u64, Reply)>>,
    waker: RefCell<Option<Waker>>,
    /// Memory for outstanding replies of a connection that is gone.
    memory: RefCell<Option<Reservation>>,
}

impl Mailbox {
    /// Adds a reply and wakes the task that waits.
    pub fn deliver(&self, tag: u64, reply: Reply) {
        self.delivered.borrow_mut().push((tag, reply));
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Keeps `memory` reserved until the last reply was delivered.
    pub fn keep(&self, memory: Reservation) {
        *self.memory.borrow_mut() = Some(memory);
    }

    /// Swaps the delivered replies into `emptied`, in order of delivery, and registers `task` to be
    /// woken by the next delivery.
    pub fn take(&self, emptied: &mut Vec<(u64, Reply)>, task: &Context<'_>) {
        debug_assert!(emptied.is_empty(), "invariant: what was taken before is worked off");
        std::mem::swap(&mut *self.delivered.borrow_mut(), emptied);
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
            *waker = Some(task.waker().clone());
        }
    }
}
