//! `/v1/cluster/hosts/{node}/…` and `/v1/cluster/shards/{shard}/transfer`: `POST` requests a
//! change, and answers with the wanted state in the members of [`crate::cluster`]. `GET` answers
//! with the progress of the same change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::HostRole;

/// The wanted state of a host. Only what the request determines is present: a host that is drained
/// keeps its role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WantedOfHost {
    /// Number of its node.
    pub node: u64,
    /// The role that it should have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HostRole")]
    pub standing: Option<HostRole>,
    /// Whether it should lead nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub draining: Option<bool>,
}

/// The progress of a change, as the answering node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Whether the change is complete, requested or not.
    pub done: bool,
    /// What it waits for, as sentences for an operator. Empty if it is complete.
    pub waiting_for: Vec<String>,
}

/// The wanted leader of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WantedOfShard {
    /// Number of the shard.
    pub shard: u64,
    /// Number of the node that should lead it.
    pub leader: u64,
}
