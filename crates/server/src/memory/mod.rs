//! The memory budget for clients: one for all protocols and workers of a node.
//!
//! Owns the sum and its limit, `--memory-limit`. It counts bytes that were received and not passed
//! to the store yet, replies from before they are produced until they are sent, and
//! [`CONNECTION_BYTES`] for each open connection. It does not count what the store holds (keys,
//! log, queues between nodes), which has limits in `tidelock_core::limits`.
//!
//! A quarter of the budget is reserved for connections and for what fits into their
//! [`CONNECTION_BYTES`], so a client with small requests is served even if others have used up the
//! rest. A request that finds the rest used up waits for at most [`WAIT`], which is the
//! back-pressure, and is then refused.
//!
//! Invariants: a [`Reservation`] gives its bytes back when it is dropped. A waiter that was woken
//! and does not use the memory wakes the next.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

mod machine;

pub use machine::default_limit;

/// Counted for each open connection: its buffers, and requests and replies up to this size.
pub const CONNECTION_BYTES: usize = tidelock_core::clients::operation_queues::GUARANTEED_BYTES;

/// Smallest limit: two requests of the largest size at a time, and a thousand connections.
pub const LIMIT_BYTES_MIN: usize = 64 << 20;

/// How long a request waits for memory before it is refused: long enough for other clients to take
/// their replies, short enough that its client has not given up.
pub const WAIT: Duration = Duration::from_secs(1);

/// One connection may hold an eighth of the limit, and at least this much: a command of 8 MiB,
/// received and parsed, and its reply.
const SHARE_BYTES_MIN: usize = 24 << 20;
const SHARE_PARTS: usize = 8;

/// One part in this many is reserved for connections and small requests.
const RESERVED_PARTS: usize = 4;

/// The memory budget of a node.
#[derive(Clone, Debug)]
pub struct Memory(Arc<MemoryBudget>);

#[derive(Debug)]
struct MemoryBudget {
    limit: usize,
    used: AtomicUsize,
    /// Requests that were refused because memory did not become free in time.
    refused: AtomicU64,
    /// Whether it was logged that the budget is used up.
    is_reported: AtomicBool,
    /// The length of the queue, readable without its lock.
    waiting: AtomicUsize,
    queue: Mutex<WaitQueue>,
}

#[derive(Debug, Default)]
struct WaitQueue {
    waiters: VecDeque<Queued>,
    last: u64,
}

#[derive(Debug)]
struct Queued {
    number: u64,
    bytes: usize,
    waker: Waker,
}

/// No memory became free in time, or the request exceeds what a connection may hold. Nothing was
/// done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory for clients is used up (see --memory-limit); nothing was done")]
pub struct MemoryExhausted;

/// Bytes of the budget, given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    /// Bytes that the holder uses. The first [`CONNECTION_BYTES`] are counted with the connection.
    bytes: usize,
    /// For a connection, its [`CONNECTION_BYTES`], or less once reduced; for a request 0.
    base: usize,
    /// Its number in the queue, while it waits there.
    waiter: Option<u64>,
}

impl Default for Memory {
    /// A budget with the default limit of this machine.
    fn default() -> Memory {
        Memory::new(default_limit())
    }
}

impl Memory {
    /// A budget of `limit` bytes, at least [`LIMIT_BYTES_MIN`].
    pub fn new(limit: usize) -> Memory {
        Memory(Arc::new(MemoryBudget {
            limit: limit.max(LIMIT_BYTES_MIN),
            used: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }))
    }

    /// Limit of the bytes that clients may use.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes that clients use now.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Requests and connections that were refused.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// The most that one connection may hold.
    pub fn share(&self) -> usize {
        self.0.share()
    }

    /// Whether there is room for one more connection.
    pub fn has_room_for_connection(&self) -> bool {
        self.used() + CONNECTION_BYTES <= self.0.limit
    }

    /// The reservation of a new connection, which holds [`CONNECTION_BYTES`] from the start. The
    /// acceptor checks [`Memory::has_room_for_connection`] before.
    pub fn connection(&self) -> Reservation {
        self.0.used.fetch_add(CONNECTION_BYTES, Ordering::SeqCst);
        Reservation { budget: self.0.clone(), bytes: 0, base: CONNECTION_BYTES, waiter: None }
    }

    /// The reservation of a request on a connection that has a reservation itself, where the first
    /// [`CONNECTION_BYTES`] are counted.
    pub fn request(&self) -> Reservation {
        Reservation { budget: self.0.clone(), bytes: 0, base: 0, waiter: None }
    }

    /// Counts a request or a connection that was refused for lack of memory.
    pub fn note_refused(&self) {
        self.0.note_refused();
    }
}

impl MemoryBudget {
    fn share(&self) -> usize {
        (self.limit / SHARE_PARTS).max(SHARE_BYTES_MIN)
    }

    /// Bytes that may be used without the part reserved for connections.
    fn ceiling(&self) -> usize {
        self.limit - self.limit / RESERVED_PARTS
    }

    fn try_take(&self, bytes: usize) -> bool {
        let room = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.ceiling());
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let used = self.used.fetch_sub(bytes, Ordering::SeqCst) - bytes;
        // Read after the subtraction. A waiter reads the sum after it has entered the queue, so one
        // of the two sees the other.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
        if used < self.limit / 2 && self.is_reported.load(Ordering::Relaxed) {
            self.is_reported.store(false, Ordering::Relaxed);
            tracing::info!(used_bytes = used, limit_bytes = self.limit, "there is memory for clients again");
        }
    }

    /// Wakes the waiters that there is room for, in the order in which they came.
    fn wake(&self) {
        let mut woken = Vec::new();
        {
            let mut queue = self.lock();
            let mut room = self.ceiling().saturating_sub(self.used.load(Ordering::SeqCst));
            while let Some(first) = queue.waiters.front()
                && first.bytes <= room
            {
                room -= first.bytes;
                woken.extend(queue.waiters.pop_front());
            }
            self.waiting.store(queue.waiters.len(), Ordering::SeqCst);
        }
        woken.into_iter().for_each(|queued| queued.waker.wake());
    }

    fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                used_bytes = self.used.load(Ordering::Relaxed),
                limit_bytes = self.limit,
                "the memory for clients is used up: large requests are refused until clients take their replies; \
                 look for clients that do not read, or raise --memory-limit"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Number of bytes that the holder uses now.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most that one connection may hold.
    pub fn share(&self) -> usize {
        self.budget.share()
    }

    /// Counts a request that was refused for lack of memory.
    pub fn note_refused(&self) {
        self.budget.note_refused();
    }

    /// Whether there is room now for `bytes` bytes.
    pub fn could_grow_to(&self, bytes: usize) -> bool {
        let more = counted(bytes).saturating_sub(counted(self.bytes));
        let used = self.budget.used.load(Ordering::Relaxed);
        more == 0 || (bytes <= self.share() && used + more <= self.budget.ceiling())
    }

    /// Grows to at least `bytes` if there is room now.
    pub fn try_grow_to(&mut self, bytes: usize) -> bool {
        let more = counted(bytes).saturating_sub(counted(self.bytes));
        if more > 0 && !(bytes <= self.share() && self.budget.try_take(more)) {
            return false;
        }
        self.bytes = self.bytes.max(bytes);
        true
    }

    /// Sets the size to exactly `bytes` if there is room for the increase, regardless of the
    /// connection's share.
    pub fn try_set(&mut self, bytes: usize) -> bool {
        let more = counted(bytes).saturating_sub(counted(self.bytes));
        if more > 0 && !self.budget.try_take(more) {
            return false;
        }
        self.bytes = self.bytes.max(bytes);
        self.set(bytes);
        true
    }

    /// Sets the size to exactly `bytes` even without room, for memory that is already in use.
    /// Callers keep the difference small.
    pub fn set(&mut self, bytes: usize) {
        let (before, after) = (counted(self.bytes), counted(bytes));
        self.bytes = bytes;
        if after > before {
            self.budget.used.fetch_add(after - before, Ordering::SeqCst);
        } else {
            self.budget.give_back(before - after);
        }
    }

    /// Grows to at least `bytes`, or has `task` woken when there may be room.
    pub fn poll_grow_to(&mut self, bytes: usize, task: &Context<'_>) -> Poll<()> {
        if self.try_grow_to(bytes) {
            self.leave_queue();
            return Poll::Ready(());
        }
        let more = counted(bytes).saturating_sub(counted(self.bytes));
        self.enter_queue(more, task);
        // Memory may have been given back before the queue had this entry.
        if self.try_grow_to(bytes) {
            self.leave_queue();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Grows to at least `bytes`, waiting for [`WAIT`] at most.
    ///
    /// # Errors
    /// When there was no room in that time, or the connection's share is too small; counted as a
    /// refusal.
    pub async fn grow_to(&mut self, bytes: usize) -> Result<(), MemoryExhausted> {
        if self.try_grow_to(bytes) {
            return Ok(());
        }
        if bytes <= self.share()
            && timeout(WAIT, std::future::poll_fn(|task| self.poll_grow_to(bytes, task))).await.is_ok()
        {
            return Ok(());
        }
        self.leave_queue();
        self.budget.note_refused();
        Err(MemoryExhausted)
    }

    /// Counts `bytes`, which are already in memory, until the last handle to them is dropped.
    pub fn hold(mut self, bytes: Bytes) -> Bytes {
        if counted(bytes.len()) == 0 {
            return bytes;
        }
        self.set(bytes.len());
        Bytes::from_owner(Held { bytes, _memory: self })
    }

    /// Reduces what is counted for a connection that has dropped its buffers.
    pub fn reduce_base(&mut self, bytes: usize) {
        let excess = self.base.saturating_sub(bytes);
        self.base -= excess;
        self.budget.give_back(excess);
    }

    fn enter_queue(&mut self, bytes: usize, task: &Context<'_>) {
        let mut queue = self.budget.lock();
        let number = self.waiter;
        match queue.waiters.iter_mut().find(|queued| Some(queued.number) == number) {
            Some(queued) => {
                queued.bytes = bytes;
                if !queued.waker.will_wake(task.waker()) {
                    queued.waker = task.waker().clone();
                }
            }
            None => {
                queue.last += 1;
                let number = queue.last;
                queue.waiters.push_back(Queued { number, bytes, waker: task.waker().clone() });
                self.waiter = Some(number);
            }
        }
        self.budget.waiting.store(queue.waiters.len(), Ordering::SeqCst);
    }

    /// Leaves the queue, if it waits there. Wakes the next waiter if this one was woken.
    pub fn leave_queue(&mut self) {
        let Some(number) = self.waiter.take() else { return };
        let was_woken = {
            let mut queue = self.budget.lock();
            let before = queue.waiters.len();
            queue.waiters.retain(|queued| queued.number != number);
            self.budget.waiting.store(queue.waiters.len(), Ordering::SeqCst);
            queue.waiters.len() == before
        };
        // This reservation was woken and may not have used the memory; waiters after it may.
        if was_woken && self.budget.waiting.load(Ordering::SeqCst) > 0 {
            self.budget.wake();
        }
    }
}

struct Held {
    bytes: Bytes,
    _memory: Reservation,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.leave_queue();
        self.budget.give_back(self.base + counted(self.bytes));
    }
}

/// The part of `bytes` that is counted in addition to the connection's own.
fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(CONNECTION_BYTES)
}

#[cfg(test)]
mod tests;
