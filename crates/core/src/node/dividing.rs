//! Division of data shards: nodes report their load to the leader of the prime shard, which adds a
//! shard when [`control::division`](crate::control::division) wants one.
//!
//! Owns the timing, and the memory of reports. Loads are never written to the registry: the leader
//! keeps the last report of each host and forgets them when it loses its leadership. A new leader
//! divides nothing before every host has reported to it. So each host remembers by itself how many
//! recent transactions span slots.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Node;
use crate::command::{DivisionBlocker, DivisionView, HostLoad, HostRole, RegistryWrite, Write};
use crate::control::division::{self, ClusterLoad};
use crate::deliberate::Fault;
use crate::event::OutgoingFrame;
use crate::peer;
use crate::router::Requester;
use crate::types::{LogIndex, NodeId, ShardId, Ticks};
use crate::version::ClusterVersion;

/// A report counts for this many intervals between reports, so that one may be lost.
const REPORT_INTERVALS: u64 = 3;

/// The memory of recent transactions is divided into this many parts, of which the oldest is
/// dropped as a whole.
const MEMORY_PARTS: usize = 12;

/// What a node knows about the division of its cluster.
#[derive(Default)]
pub(super) struct Dividing {
    spanning: SlidingWindowCounter,
    /// A report for the leader of the prime shard, to be sent.
    report: Option<HostLoad>,
    /// `None` unless this node leads the prime shard.
    leading: Option<Leading>,
}

/// What the leader of the prime shard remembers.
#[derive(Default)]
struct Leading {
    /// The last report of each host, and when it came.
    reports: BTreeMap<NodeId, (Ticks, HostLoad)>,
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

impl Dividing {
    /// Whether a report must be sent.
    pub(super) fn has_output(&self) -> bool {
        self.report.is_some()
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

    /// Reports the load of this node when it is due, and adds a data shard if this node leads the
    /// prime shard and one is wanted.
    pub(super) fn divide(&mut self) {
        let timing = self.options.division;
        self.dividing.spanning.pass(self.now, timing.memory_ticks);
        let leads = self.groups.prime().leads();
        if !leads {
            self.dividing.leading = None;
        }
        if !self.divides() {
            return;
        }
        let is_due = self.now.0.is_multiple_of(timing.report_ticks);
        if is_due {
            let load = HostLoad { spanning: self.recent_spanning(), rates: self.router.rates() };
            if leads {
                self.remember_load(self.options.host.node, load);
            } else {
                self.dividing.report = Some(load);
            }
        }
        if leads {
            self.lead_division(is_due);
        }
    }

    /// Handles the report of a peer.
    pub(super) fn load_heard(&mut self, from: NodeId, load: HostLoad) {
        if self.groups.prime().leads() {
            self.remember_load(from, load);
        }
    }

    fn remember_load(&mut self, node: NodeId, load: HostLoad) {
        let leading = self.dividing.leading.get_or_insert_default();
        leading.reports.insert(node, (self.now, load));
    }

    fn lead_division(&mut self, is_due: bool) {
        let (timing, now) = (self.options.division, self.now);
        let is_resting = self.is_placed() && self.registry().migrations().is_empty();
        let registry = self.registry().host_entries();
        let stays = registry.iter().filter(|(_, entry)| entry.standing != HostRole::Removed);
        let known: Vec<NodeId> = stays.map(|(node, _)| *node).collect();
        let leading = self.dividing.leading.get_or_insert_default();
        let is_recent = |at: Ticks| now.0 < at.0 + REPORT_INTERVALS * timing.report_ticks;
        leading.reports.retain(|node, (at, _)| is_recent(*at) && known.contains(node));
        leading.resting_since = if is_resting { leading.resting_since.or(Some(now)) } else { None };
        if !is_due {
            return;
        }
        let is_busy = self.cluster_load().busiest() >= timing.busy_requests_per_second;
        let leading = self.dividing.leading.get_or_insert_default();
        leading.busy_intervals = if is_busy { leading.busy_intervals + 1 } else { 0 };
        let changed = self.registry().changed();
        let Some(view) = self.division_view() else { return };
        let Some(cause) = view.cause else { return };
        let is_ignored = matches!(view.blocker, Some(DivisionBlocker::Spanning(_)))
            && self.options.faults.has(Fault::SpanningTransactionsIgnored);
        let retry_ticks = self.options.timing.request_ticks;
        let leading = self.dividing.leading.get_or_insert_default();
        let is_waiting =
            leading.proposed.is_some_and(|(seen, at)| seen == changed && now.0 < at.0 + retry_ticks);
        if is_waiting || (view.blocker.is_some() && !is_ignored) {
            return;
        }
        leading.proposed = Some((changed, now));
        leading.busy_intervals = 0;
        let divide = RegistryWrite::Divide { seen: changed, cause };
        self.router.write(Requester::NODE, Write::from(divide), &mut self.groups);
    }

    /// The load of the cluster, if this node leads the prime shard; otherwise nothing is known.
    fn cluster_load(&self) -> ClusterLoad {
        let Some(leading) = &self.dividing.leading else { return ClusterLoad::default() };
        let timing = self.options.division;
        let has_rested = |since: Ticks| self.now.0 >= since.0 + timing.rest_ticks;
        ClusterLoad {
            hosts: leading.reports.iter().map(|(node, (_, load))| (*node, load.clone())).collect(),
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

    /// Whether the cluster may be divided automatically. Hosts of no other cluster report.
    fn divides(&self) -> bool {
        let registry = self.registry();
        registry.version() >= ClusterVersion::WITH_DIVISION && division::is_automatic(registry)
    }

    /// Emits the report of load to the leader of the prime shard, if it is known and reachable.
    /// Another one follows soon, so it may be lost.
    pub(super) fn emit_load(&mut self, frames: &mut Vec<OutgoingFrame>) {
        let Some(load) = self.dividing.report.take() else { return };
        let Some(to) = self.leader(ShardId::PRIME).filter(|leader| self.router.is_up(*leader)) else {
            return;
        };
        frames.push(OutgoingFrame { to, payload: peer::load(&load).into(), droppable: true });
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
