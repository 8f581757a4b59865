//! `GET /v1/cluster/load`: what the clients of the answering node asked for recently.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::BASE64;

/// Requests of one node's clients. The sum over all nodes counts each request once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Number of the answering node.
    pub node: u64,
    /// Over how many milliseconds everything below was counted: half a minute to a minute, less
    /// after a start.
    pub window_ms: u64,
    /// The shards that were asked, by number.
    pub shards: Vec<ShardLoad>,
    /// Keys with many requests, the most first.
    pub keys: Vec<HotKey>,
    /// Beginnings of keys with many requests, the most first. Each ends with the first or second
    /// `:` or `/` of a key, or after the 256 bytes that are kept of a longer one.
    pub prefixes: Vec<HotKey>,
    /// Transactions of the last hour, of clients of this node, with keys of several slots of one
    /// shard. A division of the shard may part such keys, and the transactions would fail.
    #[serde(default)]
    pub spanning_transactions: u64,
    /// How many data shards there should be. Only the leader of the registry knows; absent also if
    /// the cluster was founded with a number of shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Division")]
    pub division: Option<Division>,
    /// The leadership that is transferred next, so that all nodes lead for about equally many
    /// requests. Only the leader of the registry knows; absent also if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LeadershipTransfer")]
    pub leadership_transfer: Option<LeadershipTransfer>,
    /// The next move of hot slots, after which data shards serve about equally many operations.
    /// Only the leader of the registry knows; absent also if none is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HotSlotMove")]
    pub slot_move: Option<HotSlotMove>,
    /// The next exchange of votes, after which hosts vote in shards with about equally many
    /// requests. Only the leader of the registry knows; absent also if none is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "VoteExchange")]
    pub vote_exchange: Option<VoteExchange>,
}

/// A vote that goes from a busy node to another one, and a vote that goes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct VoteExchange {
    /// Number of the busy node.
    pub from: u64,
    /// Number of the shard in which it gives its vote to the other node.
    pub given: u64,
    /// Number of the other node.
    pub to: u64,
    /// Number of the shard in which the other node gives its vote to the busy one; absent if it
    /// keeps its votes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub returned: Option<u64>,
    /// Why, as a sentence with the requests for the shards of both nodes.
    pub reason: String,
}

/// A move of hot slots from a busy data shard to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct HotSlotMove {
    /// Number of the shard that owns them.
    pub from: u64,
    /// Number of the shard that will own them.
    pub to: u64,
    /// How many slots.
    pub slots: u64,
    /// Why, as a sentence with the operations on keys of both shards.
    pub reason: String,
    /// What holds the move back, as a sentence; absent if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub held_back_by: Option<String>,
}

/// A leadership that goes from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct LeadershipTransfer {
    /// Number of the shard.
    pub shard: u64,
    /// Number of the node that leads it.
    pub from: u64,
    /// Number of the node that will lead it.
    pub to: u64,
    /// Why, as a sentence with the shards and requests of both nodes.
    pub reason: String,
}

/// How many data shards a cluster has and should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Division {
    /// Number of data shards.
    pub shards: u64,
    /// Number of data shards that hosts and load call for.
    pub wanted: u64,
    /// Why another one is wanted: `hosts` or `load`; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub cause: Option<String>,
    /// Transactions of the last hour of all clients with keys of several slots of one shard.
    pub spanning_transactions: u64,
    /// What holds the next division back, as a sentence; absent if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub held_back_by: Option<String>,
}

/// Requests for one shard. A request with several operations counts each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ShardLoad {
    /// Number of the shard.
    pub shard: u64,
    /// Reads that the shard answered alone; lists and counts ask all shards and are left out.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of the operations that write.
    pub bytes_written: u64,
}

/// A key or prefix with many requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct HotKey {
    /// The key or prefix, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// The key or prefix in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<String>,
    /// About how many requests there were: one of 64 was sampled.
    pub requests: u64,
    /// By how much `requests` may be too high, besides the error of sampling.
    pub error: u64,
}
