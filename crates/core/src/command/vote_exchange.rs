//! Exchanges of votes between hosts by load, as nodes show them.
//!
//! Owns the type and its text. `control::placement` decides.

use core::fmt;

use crate::types::{NodeId, ShardId};

/// A vote that goes from a busy host to another one, and a vote that goes back, so that both vote
/// in shards with about equally many requests. `Display` writes the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteExchange {
    /// The host that votes in the busier shards.
    pub from: NodeId,
    /// Requests a second of all clients for the data shards in which that host votes.
    pub from_requests: u64,
    /// The shard in which it gives its vote to the other host.
    pub given: ShardId,
    /// The other host.
    pub to: NodeId,
    /// Requests a second for the data shards in which the other host votes.
    pub to_requests: u64,
    /// The shard in which the other host gives its vote to the first one. `None` if the other host
    /// votes in fewer data shards, and therefore keeps its votes.
    pub returned: Option<ShardId>,
}

impl fmt::Display for VoteExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VoteExchange { from, from_requests, to, to_requests, .. } = self;
        write!(
            f,
            "node {from} votes in shards with {from_requests} requests a second, and node {to} in shards with \
             {to_requests}"
        )
    }
}
