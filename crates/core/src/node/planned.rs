//! A change for balance by load that the leader of the prime shard plans: which one is wanted, for
//! how long, and which one it proposed last.
//!
//! Owns what moves of hot slots and exchanges of votes have in common.

use super::Node;
use crate::types::{LogIndex, Ticks};

/// A change relieves a shard or a host by at least this part of the requests that make a shard
/// busy.
const GAIN_OF_BUSY_DIVISOR: u64 = 20;

/// The change that is wanted, and the last one that this node proposed.
pub(super) struct Planned<T> {
    /// Computed once in each interval between reports of load.
    next: Option<T>,
    /// Number of consecutive intervals in which a change was wanted.
    wanted_intervals: u64,
    /// The last change that this node proposed: the registry on which it is based, when, and the
    /// change.
    proposed: Option<(LogIndex, Ticks, T)>,
}

impl<T> Default for Planned<T> {
    fn default() -> Planned<T> {
        Planned { next: None, wanted_intervals: 0, proposed: None }
    }
}

impl<T: Clone> Planned<T> {
    /// The change that is wanted. `None` if none is, or if this node does not lead the prime shard.
    pub(super) fn next(&self) -> Option<&T> {
        self.next.as_ref()
    }

    /// The last change that this node proposed, and when it did.
    pub(super) fn proposed(&self) -> Option<(Ticks, &T)> {
        self.proposed.as_ref().map(|(_, at, change)| (*at, change))
    }

    /// Records which change is wanted in this interval.
    pub(super) fn set_next(&mut self, next: Option<T>) {
        self.wanted_intervals = if next.is_some() { self.wanted_intervals + 1 } else { 0 };
        self.next = next;
    }

    /// Records that this node proposes the change that is wanted, based on a registry.
    pub(super) fn set_proposed(&mut self, seen: LogIndex, now: Ticks) {
        self.proposed = self.next.clone().map(|change| (seen, now, change));
    }
}

impl Node {
    /// The change that is wanted, if it was for long enough and no earlier proposal may still be
    /// applied.
    pub(super) fn due<'a, T>(&self, planned: &'a Planned<T>) -> Option<&'a T> {
        let is_lasting = planned.wanted_intervals >= self.options.division.busy_intervals;
        let proposed = planned.proposed.as_ref().map(|(seen, at, _)| (*seen, *at));
        planned.next.as_ref().filter(|_| is_lasting && !self.awaits(proposed))
    }

    /// By how many requests a second a change relieves a shard or a host, at least.
    pub(super) fn gain_min(&self) -> u64 {
        self.options.division.busy_requests_per_second / GAIN_OF_BUSY_DIVISOR
    }
}
