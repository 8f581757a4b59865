//! Reports of load: every node tells the leader of the prime shard how many requests a second its
//! clients have for each shard, and how many of their transactions span slots.
//!
//! Owns their timing and the memory of them. Loads are never written to the registry: the leader
//! keeps the last report of each host and forgets all of them when it loses its leadership. A new
//! leader therefore decides nothing by load before every host has reported to it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Node;
use crate::command::{HostLoad, HostRole};
use crate::event::OutgoingFrame;
use crate::peer;
use crate::slots::SlotGroup;
use crate::types::{NodeId, ShardId, Ticks};
use crate::version::ClusterVersion;

/// A report counts for this many intervals between reports, so that one may be lost.
const REPORT_INTERVALS: u64 = 3;

/// What a node knows of the loads of its cluster.
#[derive(Default)]
pub(super) struct LoadReports {
    /// A report for the leader of the prime shard, to be sent.
    outgoing: Option<HostLoad>,
    /// The last report of each host, and when it came. Empty unless this node leads the prime
    /// shard.
    known: BTreeMap<NodeId, (Ticks, HostLoad)>,
}

impl LoadReports {
    /// Whether a report must be sent.
    pub(super) fn has_output(&self) -> bool {
        self.outgoing.is_some()
    }

    /// The recent reports.
    pub(super) fn hosts(&self) -> BTreeMap<NodeId, HostLoad> {
        self.known.iter().map(|(node, (_, load))| (*node, load.clone())).collect()
    }

    /// Whether a host has reported lately.
    pub(super) fn is_known(&self, node: NodeId) -> bool {
        self.known.contains_key(&node)
    }

    /// Requests a second of the clients of all hosts, by shard.
    pub(super) fn rates(&self) -> BTreeMap<ShardId, u64> {
        HostLoad::rates_of_all(self.known.values().map(|(_, load)| load))
    }

    /// Operations on keys a second of the clients of all hosts, by group of slots.
    pub(super) fn groups(&self) -> BTreeMap<SlotGroup, u64> {
        HostLoad::groups_of_all(self.known.values().map(|(_, load)| load))
    }
}

impl Node {
    /// Whether the hosts report their load. Those of earlier releases do not.
    pub(super) fn loads_are_reported(&self) -> bool {
        self.registry().version() >= ClusterVersion::WITH_DIVISION
    }

    /// Reports the load of this node when it is due, and forgets reports that are too old.
    pub(super) fn report_load(&mut self) {
        let report_ticks = self.options.division.report_ticks;
        if !self.groups.prime().leads() {
            self.load_reports.known.clear();
        }
        if !self.loads_are_reported() {
            return;
        }
        let entries = self.registry().host_entries();
        let stays = entries.iter().filter(|(_, entry)| entry.standing != HostRole::Removed);
        let hosts: Vec<NodeId> = stays.map(|(node, _)| *node).collect();
        let now = self.now;
        self.load_reports
            .known
            .retain(|node, (at, _)| now.0 < at.0 + REPORT_INTERVALS * report_ticks && hosts.contains(node));
        if now.0.is_multiple_of(report_ticks) {
            let load = HostLoad {
                spanning: self.recent_spanning(),
                rates: self.router.rates(),
                groups: self.router.group_rates(),
            };
            if self.groups.prime().leads() {
                self.load_heard(self.options.host.node, load);
            } else {
                self.load_reports.outgoing = Some(load);
            }
        }
    }

    /// Handles the report of a host.
    pub(super) fn load_heard(&mut self, from: NodeId, load: HostLoad) {
        if self.groups.prime().leads() {
            self.load_reports.known.insert(from, (self.now, load));
        }
    }

    /// Emits the report of load to the leader of the prime shard, if it is known and reachable.
    /// Another one follows soon, so it may be lost.
    pub(super) fn emit_load(&mut self, frames: &mut Vec<OutgoingFrame>) {
        let Some(load) = self.load_reports.outgoing.take() else { return };
        let Some(to) = self.leader(ShardId::PRIME).filter(|leader| self.router.is_up(*leader)) else {
            return;
        };
        let has_groups = self.router.has_version(ClusterVersion::WITH_SLOT_LOADS);
        let payload = if has_groups { peer::slot_load(&load) } else { peer::load(&load) };
        frames.push(OutgoingFrame { to, payload: payload.into(), droppable: true });
    }
}
