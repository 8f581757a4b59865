//! What will happen next in a simulated cluster, and when.
//!
//! Owns simulated time and the order of happenings: by time, and among those of one time in the order in which
//! they were put on the agenda. That total order is half of what makes a run a function of its seed; the other
//! half is that nothing else (hash order, a clock, an address) decides anything. It executes nothing.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::{Add, Mul};

use tidelock_core::types::NodeId;

use crate::net::Direction;

/// Simulated time or a duration of it, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// A thousandth of a second.
    pub const MILLISECOND: Micros = Micros(1_000);
    /// A second.
    pub const SECOND: Micros = Micros(1_000_000);

    /// Seconds, for people.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
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

/// Something due at a time. Those that belong to a process name its life and are void after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The clock of a process ticks.
    Tick {
        /// Whose clock.
        node: NodeId,
        /// Of which life of it.
        life: u64,
    },
    /// A process turns to what has gathered in its inbox.
    Wake {
        /// Which process.
        node: NodeId,
        /// Which life of it.
        life: u64,
    },
    /// The bytes that its disk thread has written are now synced.
    Synced {
        /// Whose log.
        node: NodeId,
        /// Of which life of it.
        life: u64,
        /// The transitions of its disk thread when this was begun.
        operation: u64,
    },
    /// Its disk thread tries again what a stalled disk did not take.
    Retried {
        /// Whose log.
        node: NodeId,
        /// Of which life of it.
        life: u64,
    },
    /// Its snapshot thread has done the task it took.
    Filed {
        /// Whose snapshot files.
        node: NodeId,
        /// Of which life of it.
        life: u64,
        /// Which task it is, of those of this life.
        task: u64,
    },
    /// The head of one direction of a link may be due.
    Deliver(Direction),
    /// Two hosts try to connect.
    Connect(Direction),
    /// A connection that made no progress is given up, if it still stands and is still blocked.
    GiveUp {
        /// The link, by either of its directions.
        link: Direction,
        /// The number of the connection that is given up.
        connection: u64,
    },
    /// A client takes its next step.
    Client(usize),
    /// A scanner takes its next step.
    Scan(usize),
    /// The fault of this number in the plan strikes.
    Fault(usize),
    /// The fault of this number ends.
    Relief(usize),
    /// An operator tries the deed of this number.
    Deed(usize),
    /// A host that an operator stopped is started again.
    Started(NodeId),
}

/// The happenings to come.
#[derive(Debug, Default)]
pub struct Agenda {
    now: Micros,
    entered: u64,
    heap: BinaryHeap<Due>,
}

#[derive(Debug, PartialEq, Eq)]
struct Due {
    at: Micros,
    order: u64,
    happening: Happening,
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

impl Agenda {
    /// The time of the happening taken last.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// Enters a happening, `delay` from now.
    pub fn after(&mut self, delay: Micros, happening: Happening) {
        self.at(self.now + delay, happening);
    }

    /// Enters a happening at a time, which must not have passed.
    pub fn at(&mut self, at: Micros, happening: Happening) {
        assert!(at >= self.now, "the agenda holds no past: {at} is before {}", self.now);
        self.entered += 1;
        self.heap.push(Due { at, order: self.entered, happening });
    }

    /// Takes the next happening that is due before `limit` and moves time to it; if there is none, moves time to
    /// the limit.
    pub fn take_before(&mut self, limit: Micros) -> Option<Happening> {
        if self.heap.peek().is_some_and(|due| due.at < limit) {
            return self.take();
        }
        self.now = self.now.max(limit);
        None
    }

    /// Takes the next happening and moves time to it.
    pub fn take(&mut self) -> Option<Happening> {
        let due = self.heap.pop()?;
        self.now = due.at;
        Some(due.happening)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn happenings_come_by_time_and_then_in_the_order_of_entry() {
        let mut agenda = Agenda::default();
        agenda.after(Micros(5), Happening::Client(1));
        agenda.after(Micros(2), Happening::Client(2));
        agenda.after(Micros(5), Happening::Client(3));
        let order: Vec<_> = std::iter::from_fn(|| agenda.take().map(|next| (agenda.now().0, next))).collect();
        let client = Happening::Client;
        assert_eq!(order, [(2, client(2)), (5, client(1)), (5, client(3))]);
    }

    #[test]
    #[should_panic(expected = "no past")]
    fn the_past_is_refused() {
        let mut agenda = Agenda::default();
        agenda.at(Micros(3), Happening::Client(1));
        agenda.take();
        agenda.at(Micros(2), Happening::Client(1));
    }
}
