//! The first elections of a founder with an empty directory.
//!
//! Owns for how long such a founder neither votes nor stands for election. It cannot tell whether
//! the cluster is new, or whether its disk was lost or is not mounted. Its peers can: one whose
//! registry has another uuid for its number refuses the handshake, and the founder stops
//! ([`crate::handshake`]). But two of three founders with empty directories could elect a leader
//! before that, and serve an empty cluster under the id of the old one.
//!
//! So the founder waits until it is connected to all other founders, because a connection means
//! that both sides have accepted the handshake. It waits for [`Timing::founding_ticks`] at most, so
//! that a majority can found a cluster while the other founders are down. A majority with empty
//! directories that reaches none of the others in that time still founds the cluster again.
//!
//! [`Timing::founding_ticks`]: crate::event::Timing::founding_ticks

use alloc::collections::BTreeSet;

use super::Node;
use crate::deliberate::Fault;
use crate::event::NodeOptions;
use crate::raft::Group;
use crate::storage::{RecoveredShard, RecoveredShards};
use crate::types::{NodeId, Ticks};

/// The founders for which this node waits before it takes part in elections.
#[derive(Debug)]
pub(super) struct FirstElections {
    /// The founders to which this node has not been connected yet. Empty if it takes part in
    /// elections.
    awaited: BTreeSet<NodeId>,
    /// From then on this node takes part in elections even if `awaited` is not empty.
    until: Ticks,
}

impl FirstElections {
    /// The state of a node that starts with these options and this content of its disk.
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
    /// Handles a new connection to a peer: both sides have accepted the handshake.
    pub(super) fn founder_linked(&mut self, peer: NodeId) {
        if self.first_elections.awaited.remove(&peer) && !self.first_elections.are_held() {
            self.groups.for_each(Group::allow_elections);
        }
    }

    /// Handles a tick: stops waiting once the time is over.
    pub(super) fn tick_first_elections(&mut self) {
        if self.first_elections.are_held() && self.now >= self.first_elections.until {
            self.first_elections.awaited.clear();
            self.groups.for_each(Group::allow_elections);
        }
    }
}
