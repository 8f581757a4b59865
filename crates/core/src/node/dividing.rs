//! Division of data shards: the leader of the prime shard adds a shard when
//! [`control::division`](crate::control::division) wants one.
//!
//! Owns the timing, and the count of this node's recent transactions that span slots. Each host
//! remembers by itself how many there were, because a new leader knows no earlier reports.

use super::Node;
use crate::command::{DivisionBlocker, DivisionView, RegistryWrite, Write};
use crate::control::division::{self, ClusterLoad};
use crate::deliberate::Fault;
use crate::router::Requester;
use crate::types::{LogIndex, Ticks};

/// The memory of recent transactions is divided into this many parts, of which the oldest is
/// dropped as a whole.
const MEMORY_PARTS: usize = 12;

/// What a node knows about the division of its cluster.
#[derive(Default)]
pub(super) struct Dividing {
    spanning: SlidingWindowCounter,
    /// `None` unless this node leads the prime shard.
    leading: Option<Leading>,
}

/// What the leader of the prime shard remembers.
#[derive(Default)]
struct Leading {
    /// For how many intervals in a row the busiest data shard was busy.
    busy_intervals: u64,
    /// Since when neither slots nor replicas move.
    resting_since: Option<Ticks>,
    /// The registry on which the last division was based, and when it was proposed.
    proposed: Option<(LogIndex, Ticks)>,
}

/// A count over a sliding window of time, in a fixed amount of memory.
#[derive(Default)]
struct SlidingWindowCounter {
    /// The number of the part that is being counted.
    part: u64,
    /// That part, and the parts before it.
    counts: [u64; MEMORY_PARTS + 1],
}

impl SlidingWindowCounter {
    /// Drops what was counted longer than `memory_ticks` ago, up to a part more.
    fn pass(&mut self, now: Ticks, memory_ticks: u64) {
        let part = now.0 / memory_ticks.div_ceil(MEMORY_PARTS as u64).max(1);
        for next in (self.part + 1..=part).rev().take(self.counts.len()) {
            self.counts[(next % self.counts.len() as u64) as usize] = 0;
        }
        self.part = part;
    }

    fn add(&mut self, count: u64) {
        let position = (self.part % self.counts.len() as u64) as usize;
        self.counts[position] = self.counts[position].saturating_add(count);
    }

    fn sum(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl Node {
    /// Counts transactions of clients with keys of several slots of one shard.
    pub(super) fn spanning_transactions(&mut self, count: u64) {
        self.dividing.spanning.add(count);
    }

    /// How many recent transactions of this node's clients had keys of several slots.
    pub(super) fn recent_spanning(&self) -> u64 {
        self.dividing.spanning.sum()
    }

    /// Adds a data shard if this node leads the prime shard and one is wanted.
    pub(super) fn divide(&mut self) {
        let timing = self.options.division;
        self.dividing.spanning.pass(self.now, timing.memory_ticks);
        let leads = self.groups.prime().leads();
        if !leads {
            self.dividing.leading = None;
        }
        if leads && self.divides() {
            self.lead_division();
        }
    }

    fn lead_division(&mut self) {
        let (timing, now) = (self.options.division, self.now);
        let is_resting = self.is_placed() && self.registry().migrations().is_empty();
        let leading = self.dividing.leading.get_or_insert_default();
        leading.resting_since = if is_resting { leading.resting_since.or(Some(now)) } else { None };
        if !now.0.is_multiple_of(timing.report_ticks) {
            return;
        }
        let is_busy = self.cluster_load().busiest() >= timing.busy_requests_per_second;
        let leading = self.dividing.leading.get_or_insert_default();
        leading.busy_intervals = if is_busy { leading.busy_intervals + 1 } else { 0 };
        let proposed = leading.proposed;
        let changed = self.registry().changed();
        let Some(view) = self.division_view() else { return };
        let Some(cause) = view.cause else { return };
        if self.awaits(proposed) || self.is_held_back(view.blocker.as_ref()) {
            return;
        }
        let leading = self.dividing.leading.get_or_insert_default();
        leading.proposed = Some((changed, now));
        leading.busy_intervals = 0;
        let divide = RegistryWrite::Divide { seen: changed, cause };
        self.router.write(Requester::NODE, Write::from(divide), &mut self.groups);
    }

    /// Whether a proposed change of the registry may still be applied: the registry has not changed
    /// since, and the change is not too old. `proposed` is the registry on which it is based, and
    /// when it was proposed.
    pub(super) fn awaits(&self, proposed: Option<(LogIndex, Ticks)>) -> bool {
        let retry_ticks = self.options.timing.request_ticks;
        proposed
            .is_some_and(|(seen, at)| seen == self.registry().changed() && self.now.0 < at.0 + retry_ticks)
    }

    /// Whether a change that separates slots of one shard must wait.
    pub(super) fn is_held_back(&self, blocker: Option<&DivisionBlocker>) -> bool {
        let ignores_spanning = self.options.faults.has(Fault::SpanningTransactionsIgnored);
        match blocker {
            Some(DivisionBlocker::Spanning(_)) => !ignores_spanning,
            other => other.is_some(),
        }
    }

    /// The load of the cluster, if this node leads the prime shard; otherwise nothing is known.
    pub(super) fn cluster_load(&self) -> ClusterLoad {
        let Some(leading) = &self.dividing.leading else { return ClusterLoad::default() };
        let timing = self.options.division;
        let has_rested = |since: Ticks| self.now.0 >= since.0 + timing.rest_ticks;
        ClusterLoad {
            hosts: self.load_reports.hosts(),
            is_busy: leading.busy_intervals >= timing.busy_intervals,
            is_changing: !leading.resting_since.is_some_and(has_rested),
        }
    }

    /// How many data shards the cluster should have, and what holds the next one back. `None` if
    /// this node does not lead the prime shard, or if the cluster is not divided automatically.
    pub(super) fn division_view(&self) -> Option<DivisionView> {
        self.dividing.leading.as_ref().filter(|_| self.divides())?;
        division::view(self.registry(), &self.cluster_load())
    }

    /// Whether the cluster may be divided automatically.
    fn divides(&self) -> bool {
        self.loads_are_reported() && division::is_automatic(self.registry())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_long_ago_is_forgotten_and_nothing_earlier() {
        let mut recent = SlidingWindowCounter::default();
        let mut at = |tick, count| {
            recent.pass(Ticks(tick), 120);
            recent.add(count);
            recent.sum()
        };
        assert_eq!(at(5, 3), 3);
        assert_eq!(at(60, 4), 7);
        assert_eq!(at(125, 0), 7, "all of it is within 120 ticks");
        assert_eq!(at(135, 0), 4, "the first part has passed");
        assert_eq!(at(190, 1), 1);
        assert_eq!(at(100_000, 0), 0);
    }
}
