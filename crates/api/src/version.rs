//! `GET /v1/cluster/version`, and `POST /v1/cluster/version/hold` and `…/resume`: the version of
//! what the cluster writes, and what it waits for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the cluster, as the answering node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClusterVersion")]
pub struct Version {
    /// The version of the commands, snapshots and frames that nodes write.
    pub version: u64,
    /// The version to which it rises next; null if it is the newest that the answering node knows.
    pub next: Option<u64>,
    /// Whether an operator has stopped the rise.
    pub held: bool,
    /// What the rise waits for, as sentences for an operator. Empty if there is no next version, or
    /// if it is about to rise.
    pub waiting_for: Vec<String>,
    /// The releases of all hosts.
    pub hosts: Vec<HostRelease>,
}

/// The release of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct HostRelease {
    /// Number of its node.
    pub node: u64,
    /// Its release; null if the release does not announce itself.
    pub release: Option<String>,
    /// The oldest cluster version that it supports.
    pub oldest: u64,
    /// The newest cluster version that it supports.
    pub newest: u64,
}

/// What was requested of the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "VersionHold")]
pub struct Hold {
    /// Whether the version stays as it is.
    pub held: bool,
}
