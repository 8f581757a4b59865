//! `/v1/cluster/moves`, `/v1/cluster/rebalance` and `/v1/cluster/shards/{shard}/slots`: which shard
//! owns which slots, and moves of slots.
//!
//! Sets of slots are texts in the notation of Redis: `0-99,200`, slots from 0 to 16,383.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number of hash slots of a cluster.
const SLOTS: u32 = 16_384;

/// A set of slots that is not empty.
const SLOT_SET: &str = "^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$";

/// The answer to `GET /v1/cluster/moves`: slots and their moves, as the answering node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moves {
    /// Version of the slot map.
    pub version: u64,
    /// The data shards, ordered by number.
    pub shards: Vec<ShardSlots>,
    /// The moves that remain to be done, in order.
    pub moves: Vec<SlotMove>,
    /// Number of the last move that was ever requested.
    pub last: u64,
    /// Whether all moves up to `until` of the request are done, or else all that were requested.
    pub done: bool,
}

/// The slots of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ShardSlots {
    /// Number of the shard.
    pub shard: u64,
    /// Number of slots that it owns, 0 to 16,384.
    #[schemars(range(max = SLOTS))]
    pub count: u32,
    /// These slots; empty if it owns none.
    pub slots: String,
}

/// A move of slots from one shard to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SlotMove {
    /// Its number. Later moves have higher numbers.
    pub id: u64,
    /// Number of the shard that owns the slots until the move is done.
    pub from: u64,
    /// Number of the shard that will own them.
    pub to: u64,
    /// Number of slots, 1 to 16,384.
    #[schemars(range(min = 1, max = SLOTS))]
    pub count: u32,
    /// These slots.
    pub slots: String,
}

/// The body of `POST /v1/cluster/shards/{shard}/slots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedSlots {
    /// The slots that the shard should own.
    #[schemars(regex(pattern = SLOT_SET))]
    pub slots: String,
}

/// The answer to a request that moves slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Moving")]
pub struct RequestedMoves {
    /// Number of moves that the request has added.
    pub moves: u64,
    /// Number of the last requested move: `until` for `GET /v1/cluster/moves`, which tells when all
    /// moves of the request are done.
    pub last: u64,
}
