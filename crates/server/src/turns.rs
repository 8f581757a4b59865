//! The turns of clients on the owning worker: the core's [`FairQueue`] with a clock.
//!
//! Owns the clock, the load of this thread, and the gauges. The core decides whose turn it is.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidelock_core::auth::Caller;
use tidelock_core::command::Request;
use tidelock_core::fairness::{self, FairQueue, Ticket};
use tidelock_core::spans::TraceContext;
use tidelock_core::types::{ClientId, Token};
use tokio::runtime::Handle;

use crate::counters::Counter;

/// A request on its way to the node.
#[derive(Debug)]
pub(crate) struct Turn {
    pub token: Token,
    pub caller: Caller,
    pub request: Request,
    pub trace: Option<TraceContext>,
}

/// Gauges of the requests that wait for their turns.
#[derive(Debug, Default)]
pub struct TurnGauges {
    /// Requests that wait for their turn.
    pub waiting: Counter,
    /// Total of requests that had to wait for it.
    pub waited: Counter,
    /// Total of requests that were refused because they waited too long.
    pub expired: Counter,
    /// Largest total cost of taken and unanswered requests.
    pub window: Counter,
}

/// Requests that wait for their turn.
pub(crate) struct Turns {
    queue: RefCell<FairQueue<Turn>>,
    gauges: Arc<TurnGauges>,
    started: Instant,
    /// Time of the last tick, and the total busy time of this thread then.
    last_tick: Cell<(Instant, Duration)>,
}

impl Default for Turns {
    fn default() -> Turns {
        let now = Instant::now();
        let (queue, gauges) = (RefCell::default(), Arc::default());
        Turns { queue, gauges, started: now, last_tick: Cell::new((now, Duration::ZERO)) }
    }
}

impl Turns {
    pub fn gauges(&self) -> Arc<TurnGauges> {
        self.gauges.clone()
    }

    /// Returns the request if the node should take it now; otherwise it waits.
    pub fn offer(&self, client: ClientId, turn: Turn) -> Option<(Ticket, Turn)> {
        let cost = fairness::cost(&turn.request);
        let mut queue = self.queue.borrow_mut();
        if let Some(ticket) = queue.take_at_once(client, cost) {
            return Some((ticket, turn));
        }
        queue.queue(client, (cost, self.now()), turn);
        if !queue.is_ready() {
            self.gauges.waited.add(1);
        }
        None
    }

    /// The next request that the node should take.
    pub fn next(&self) -> Option<(Ticket, Turn)> {
        self.queue.borrow_mut().next()
    }

    /// Whether [`Turns::next`] would return one.
    pub fn is_ready(&self) -> bool {
        self.queue.borrow().is_ready()
    }

    /// Records that a request that the node took is answered.
    pub fn answered(&self, ticket: Ticket) {
        self.queue.borrow_mut().answered(ticket, || self.now());
    }

    /// Counts a tick. Returns the requests that have waited for longer than `patience`.
    pub fn tick(&self, patience: Duration) -> Vec<Turn> {
        let mut queue = self.queue.borrow_mut();
        let now = self.now();
        queue.tick(now, self.busy_percent());
        let expired = queue.expire(now.saturating_sub(micros(patience)));
        self.gauges.expired.add(expired.len() as u64);
        self.gauges.waiting.set(queue.waiting() as u64);
        self.gauges.window.set(queue.window());
        expired
    }

    /// The share of the time since the last call in which this thread did not wait for events.
    fn busy_percent(&self) -> u64 {
        let (now, busy) = (Instant::now(), Handle::current().metrics().worker_total_busy_duration(0));
        let (then, busy_then) = self.last_tick.replace((now, busy));
        let elapsed = now.duration_since(then).as_micros().max(1);
        let busy = busy.saturating_sub(busy_then).as_micros();
        u64::try_from(busy * 100 / elapsed).unwrap_or(100)
    }

    fn now(&self) -> u64 {
        micros(self.started.elapsed())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
