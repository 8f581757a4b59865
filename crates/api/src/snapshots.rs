//! `/v1/snapshots`: what a node that makes a backup asks of the nodes whose shards it lacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answer to `GET /v1/snapshots`: the replicas of a node, and their snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshots {
    /// UUID of the cluster.
    pub cluster: String,
    /// Number of the node that answers.
    pub node: u64,
    /// Its replicas, ordered by shard.
    pub replicas: Vec<ReplicaSnapshot>,
}

/// A replica of the node that answers, and its newest snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ReplicaSnapshot {
    /// Number of the shard.
    pub shard: u64,
    /// Highest log index that the replica has applied.
    pub applied: u64,
    /// The newest durable snapshot; null before the first one.
    pub snapshot: Option<Snapshot>,
    /// Whether a snapshot is being made.
    pub making: bool,
    /// Number of the last move of slots in which the replica took part; 0: none.
    pub last_move: u64,
    /// Whether that move is unfinished on the replica.
    pub moving: bool,
    /// The slots that the replica owns, such as `0-99,200`; absent for the prime shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub slots: Option<String>,
}

/// A snapshot of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Snapshot {
    /// Index of the last log entry that it contains.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
}

/// Answer to `POST /v1/snapshots`: the snapshots that were begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BegunSnapshots {
    /// UUID of the cluster.
    pub cluster: String,
    /// Number of the node that answers.
    pub node: u64,
    /// One for each replica of the node, ordered by shard.
    pub shards: Vec<BegunSnapshot>,
}

/// A snapshot that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct BegunSnapshot {
    /// Number of the shard.
    pub id: u64,
    /// The log index that the next durable snapshot contains at least; 0: the replica has applied
    /// nothing, and there will be no snapshot.
    pub index: u64,
}
