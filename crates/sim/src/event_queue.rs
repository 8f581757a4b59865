//! The event queue of a simulated cluster, and simulated time.
//!
//! Owns the order of events: by time, and events of the same time in the order in which they were
//! scheduled. This total order makes a run a function of its seed, together with the rule that
//! nothing else (hash order, a clock, an address) decides anything. It executes nothing.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::{Add, Mul};
use std::time::Duration;

use tidelock_core::types::{NodeId, Token};

/// Simulated time or a duration of it, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// 1,000 microseconds.
    pub const MILLISECOND: Micros = Micros(1_000);
    /// 1,000,000 microseconds.
    pub const SECOND: Micros = Micros(1_000_000);

    /// Converts to seconds, for display.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl From<Duration> for Micros {
    fn from(duration: Duration) -> Micros {
        Micros(duration.as_micros() as u64)
    }
}

impl From<Micros> for Duration {
    fn from(time: Micros) -> Duration {
        Duration::from_micros(time.0)
    }
}

impl Add for Micros {
    type Output = Micros;

    fn add(self, other: Micros) -> Micros {
        Micros(self.0 + other.0)
    }
}

impl Mul<u64> for Micros {
    type Output = Micros;

    fn mul(self, factor: u64) -> Micros {
        Micros(self.0 * factor)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// An event that is due at a time. Events of a process name its life (the count of its starts) and
/// are void after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimEvent {
    /// The clock of a process ticks.
    Tick {
        /// The node whose clock ticks.
        node: NodeId,
        /// The life to which the tick belongs. The next tick is scheduled in it.
        life: u64,
    },
    /// A process handles the events in its inbox.
    Wake {
        /// The node whose process handles its inbox.
        node: NodeId,
        /// The life whose inbox it is.
        life: u64,
    },
    /// The present step of the disk thread of a process is done.
    DiskStepDone {
        /// The node whose disk thread it is.
        node: NodeId,
        /// The life that began the step.
        life: u64,
        /// The transitions of its disk thread when the step began.
        operation: u64,
    },
    /// The disk thread of a process has waited for as long as it was told to.
    DiskTimer {
        /// The node whose disk thread waits.
        node: NodeId,
        /// The life that waits.
        life: u64,
    },
    /// The snapshot thread of a process has finished its task.
    Filed {
        /// The node whose snapshot thread has finished.
        node: NodeId,
        /// The life that began the task.
        life: u64,
        /// The number of the task in this life.
        task: u64,
    },
    /// A process answers a stale read from its memory.
    AnsweredAtOnce {
        /// The node that was asked.
        node: NodeId,
        /// The life that was asked.
        life: u64,
        /// The request.
        token: Token,
    },
    /// The head of one direction of a link may be due.
    Deliver(Direction),
    /// Two hosts try to connect.
    Connect(Direction),
    /// A connection that made no progress is closed, if it is still open and still blocked.
    GiveUp {
        /// The link, by either of its directions.
        link: Direction,
        /// The number of the connection. A later connection of the link is left alone.
        connection: u64,
    },
    /// A client takes its next step.
    Client(usize),
    /// A scanner takes its next step.
    Scan(usize),
    /// A client that watches configuration takes its next step.
    Watch(usize),
    /// A client that watches keys takes its next step.
    WatchKeys(usize),
    /// A client that caches keys takes its next step.
    Cache(usize),
    /// A client with leases takes its next step.
    Lease(usize),
    /// A client that waits for locks takes its next step.
    WaitForLock(usize),
    /// A client that runs scripts takes its next step.
    Script(usize),
    /// A client publishes its next message.
    Publish(usize),
    /// A client that pipelines takes its next step.
    Pipeline(usize),
    /// An importer takes its next step.
    Import(usize),
    /// The administrator of permissions takes its next step.
    Administer,
    /// A client that takes backups takes its next step.
    BackUp(usize),
    /// The fault with this number in the plan begins.
    Fault(usize),
    /// The fault with this number ends.
    Relief(usize),
    /// An operator tries the action with this number.
    OperatorAction(usize),
    /// A host that an operator stopped is started again.
    Started(NodeId),
    /// A host's name resolves to its present location from now on.
    NameUpdated(NodeId),
}

/// One direction of the link between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Direction {
    /// The host that sends.
    pub from: NodeId,
    /// The host that receives.
    pub to: NodeId,
}

impl Direction {
    /// The other direction of the same link.
    pub fn reversed(self) -> Direction {
        Direction { from: self.to, to: self.from }
    }
}

/// The scheduled events, and the present time.
#[derive(Debug, Default)]
pub struct EventQueue {
    now: Micros,
    entered: u64,
    heap: BinaryHeap<Due>,
}

#[derive(Debug, PartialEq, Eq)]
struct Due {
    at: Micros,
    order: u64,
    event: SimEvent,
}

impl Ord for Due {
    /// Reversed, because the heap yields its greatest.
    fn cmp(&self, other: &Due) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl EventQueue {
    /// The time of the event taken last.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// Enters a event, `delay` from now.
    pub fn after(&mut self, delay: Micros, event: SimEvent) {
        self.at(self.now + delay, event);
    }

    /// Enters a event at a time, which must not have passed.
    pub fn at(&mut self, at: Micros, event: SimEvent) {
        assert!(at >= self.now, "the event queue holds no past: {at} is before {}", self.now);
        self.entered += 1;
        self.heap.push(Due { at, order: self.entered, event });
    }

    /// Takes the next event that is due before `limit` and moves time to it; if there is none,
    /// moves time to the limit.
    pub fn take_before(&mut self, limit: Micros) -> Option<SimEvent> {
        if self.heap.peek().is_some_and(|due| due.at < limit) {
            return self.take();
        }
        self.now = self.now.max(limit);
        None
    }

    /// Takes the next event and moves time to it.
    pub fn take(&mut self) -> Option<SimEvent> {
        let due = self.heap.pop()?;
        self.now = due.at;
        Some(due.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn happenings_come_by_time_and_then_in_the_order_of_entry() {
        let mut event_queue = EventQueue::default();
        event_queue.after(Micros(5), SimEvent::Client(1));
        event_queue.after(Micros(2), SimEvent::Client(2));
        event_queue.after(Micros(5), SimEvent::Client(3));
        let order: Vec<_> =
            std::iter::from_fn(|| event_queue.take().map(|next| (event_queue.now().0, next))).collect();
        let client = SimEvent::Client;
        assert_eq!(order, [(2, client(2)), (5, client(1)), (5, client(3))]);
    }

    #[test]
    #[should_panic(expected = "no past")]
    fn the_past_is_refused() {
        let mut event_queue = EventQueue::default();
        event_queue.at(Micros(3), SimEvent::Client(1));
        event_queue.take();
        event_queue.at(Micros(2), SimEvent::Client(1));
    }
}
