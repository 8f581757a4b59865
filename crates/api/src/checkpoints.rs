//! `POST /v1/cluster/checkpoint`: where each shard's log has the new checkpoint. The checksums of
//! replicas at a checkpoint are in [`crate::cluster::Replica::checkpoint`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The checkpoints of all shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoints {
    /// One for each shard, ordered by number.
    pub shards: Vec<ShardCheckpoint>,
}

/// The checkpoint of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ShardCheckpoint {
    /// Number of the shard.
    pub id: u64,
    /// Index of the checkpoint in the shard's log.
    pub index: u64,
}
