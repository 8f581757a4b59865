//! How protocol code reaches the store: submit a request, await its reply.
//!
//! Owns the hand-over between connections and the worker that drives the core, both on one thread. It knows
//! neither protocols nor consensus.
//!
//! There are two ways to a reply. [`Store::submit`] returns a future for it, which reads well where one request is one task's only
//! concern. [`Store::submit_to`] has it delivered to a [`Mailbox`], so that a connection with many requests in flight is woken once
//! for all replies of a drive, and pays for no future each.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use tidelock_core::command::{Reply, Request};
use tidelock_core::control::slot_map::SlotMap;
use tidelock_core::event::NodeStatus;
use tidelock_core::types::{ClientId, ShardId};

use crate::memory::Reservation;
use crate::watch::Hub;

/// A cheap handle to the worker of this thread.
pub trait Store: Clone + 'static {
    /// A handle for the requests of one client, which take turns with those of others. A store without turns has one
    /// handle for all.
    #[must_use]
    fn for_client(&self, _client: ClientId) -> Self {
        self.clone()
    }

    /// Hands `request` to the store. It gets exactly one reply, by its deadline; dropping the future abandons the
    /// reply, not the request.
    fn submit(&self, request: Request) -> impl Future<Output = Reply>;

    /// Hands `request` to the store. Its one reply is delivered to `mailbox`, bearing `tag`.
    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64);

    /// The shard that a key belongs to, as far as this node knows now.
    fn shard_of(&self, key: &[u8]) -> ShardId;

    /// Which shard holds which slots, as far as this node knows now.
    fn slot_map(&self) -> Arc<SlotMap>;

    /// By how many milliseconds the clock of a shard's leader is ahead of this node's, as far as
    /// that was measured.
    fn leader_ahead_ms(&self, shard: ShardId) -> i64;

    /// Those who watch configuration at this node.
    fn hub(&self) -> &Arc<Hub>;

    /// What the node says about itself now. Asks no queue of requests, so it is answered under any load; once nobody is
    /// there to answer any more it is empty.
    fn status(&self) -> impl Future<Output = NodeStatus>;
}

/// Where replies wait for one connection.
#[derive(Debug, Default)]
pub struct Mailbox {
    delivered: RefCell<Vec<(u64, Reply)>>,
    waker: RefCell<Option<Waker>>,
    /// Memory for the replies to come, when nobody is there to take them any more.
    memory: RefCell<Option<Reservation>>,
}

impl Mailbox {
    /// Puts a reply there and wakes whoever waits.
    pub fn deliver(&self, tag: u64, reply: Reply) {
        self.delivered.borrow_mut().push((tag, reply));
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Keeps `memory` until the last reply was delivered.
    pub fn keep(&self, memory: Reservation) {
        *self.memory.borrow_mut() = Some(memory);
    }

    /// Swaps what was delivered into `emptied`, in the order of delivery, and has `task` woken by the next delivery.
    pub fn take(&self, emptied: &mut Vec<(u64, Reply)>, task: &Context<'_>) {
        debug_assert!(emptied.is_empty(), "invariant: what was taken before is worked off");
        std::mem::swap(&mut *self.delivered.borrow_mut(), emptied);
        *self.waker.borrow_mut() = Some(task.waker().clone());
    }
}
