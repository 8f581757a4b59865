//! The first elections of a founder with an empty directory.
//!
//! Owns how long such a founder neither votes nor stands for election. It may be new, or its disk
//! may be lost or not mounted, which only its peers can know: one that knows its disk refuses it
//! ([`crate::handshake`]), and its process stops. If founders with empty directories elected a
//! leader before that, a majority of them would found the cluster again, without its data.
//!
//! So it waits until it is connected to all other founders, which then have accepted it, or for as
//! long as a peer that is alive needs to refuse it. After that time it takes part without the
//! founders that it has not reached, so that a cluster can be founded by a majority.
//!
//! What this cannot prevent: a majority of founders with empty directories that reaches none of the
//! others in that time founds the cluster again.

use alloc::collections::BTreeSet;

use super::Node;
use crate::deliberate::Fault;
use crate::event::NodeOptions;
use crate::raft::Group;
use crate::storage::{RecoveredShard, RecoveredShards};
use crate::types::{NodeId, Ticks};

/// What a founder with an empty directory still waits for.
#[derive(Debug)]
pub(super) struct FirstElections {
    /// The founders to which it was not connected yet. Empty once it takes part in elections.
    awaited: BTreeSet<NodeId>,
    until: Ticks,
}

impl FirstElections {
    /// At the start of a node with what is on its disk.
    pub(super) fn begin(options: &NodeOptions, recovered: &RecoveredShards) -> FirstElections {
        let founders = 1..=options.founders.len() as u64;
        let own = options.host.node.0;
        let may_be_new = founders.contains(&own) && recovered.values().all(RecoveredShard::is_empty);
        let is_held = may_be_new && !options.faults.has(Fault::EmptyFounderVotes);
        FirstElections {
            awaited: founders.filter(|&founder| is_held && founder != own).map(NodeId).collect(),
            until: Ticks(options.timing.founding_ticks),
        }
    }

    /// Whether this node neither votes nor stands for election.
    pub(super) fn are_held(&self) -> bool {
        !self.awaited.is_empty()
    }
}

impl Node {
    /// This node and a peer have accepted each other.
    pub(super) fn founder_linked(&mut self, peer: NodeId) {
        if self.first_elections.awaited.remove(&peer) && !self.first_elections.are_held() {
            self.groups.for_each(Group::allow_elections);
        }
    }

    /// Handles a tick: no longer waits for founders that are not reached.
    pub(super) fn tick_first_elections(&mut self) {
        if self.first_elections.are_held() && self.now >= self.first_elections.until {
            self.first_elections.awaited.clear();
            self.groups.for_each(Group::allow_elections);
        }
    }
}
