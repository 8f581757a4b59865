//! Transfers of leadership for balance, as nodes show them.
//!
//! Owns the types and their texts. `control::leaderships` decides.

use core::fmt;

use crate::types::{NodeId, ShardId};

/// What a node does as the leader of its shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderLoad {
    /// Number of shards that it leads.
    pub leads: u64,
    /// Requests a second of all clients for these shards.
    pub requests: u64,
}

/// A leadership that goes from one node to another, so that both lead for about equally many
/// requests. Its text is the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadershipTransfer {
    /// The shard.
    pub shard: ShardId,
    /// The node that leads it.
    pub from: NodeId,
    /// What that node does as a leader.
    pub from_load: LeaderLoad,
    /// The node that will lead it.
    pub to: NodeId,
    /// What that node does as a leader, without this shard.
    pub to_load: LeaderLoad,
}

impl fmt::Display for LeadershipTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = |load: LeaderLoad| if load.leads == 1 { "shard" } else { "shards" };
        let LeadershipTransfer { from, from_load, to, to_load, .. } = *self;
        write!(
            f,
            "node {from} leads {} {}, with {} requests a second, and node {to} leads {} {}, with {}",
            from_load.leads,
            noun(from_load),
            from_load.requests,
            to_load.leads,
            noun(to_load),
            to_load.requests
        )
    }
}
