//! What simulated hosts announce, and the options of their nodes.
//!
//! Owns addresses, tags and releases as the registry shows them. The plan decides everything that
//! differs between runs.

use std::collections::BTreeMap;

use tidelock_core::command::HostInfo;
use tidelock_core::event::NodeOptions;
use tidelock_core::types::NodeId;
use tidelock_core::version::{Release, SupportedVersions};
use uuid::Uuid;

use crate::addressing;
use crate::operator_actions::ZONES;
use crate::plan::Plan;

/// The description of a host for the registry.
pub(crate) fn host_info(node: NodeId) -> HostInfo {
    HostInfo {
        node,
        uuid: Uuid::from_u128(u128::from(node.0)),
        peer_address: addressing::name(node),
        http_address: format!("host-{node}:8001"),
        resp_address: format!("host-{node}:7001"),
        resp_cluster_address: format!("host-{node}:7101"),
        tags: tags(ZONES[(node.0 % 3) as usize])
            .into_iter()
            .chain([("geo:rack".to_owned(), (node.0 % 2).to_string())])
            .collect(),
        release: Release { name: String::new(), versions: SupportedVersions::OWN },
    }
}

/// The tags of a host in a zone: one for policies, and the one over which the default placement
/// spreads voters.
pub(crate) fn tags(zone: &str) -> [(String, String); 2] {
    ["zone", "geo:zone"].map(|name| (name.to_owned(), zone.to_owned()))
}

pub(super) fn options(plan: &Plan, node: NodeId) -> NodeOptions {
    NodeOptions {
        host: HostInfo {
            release: Release { name: String::new(), versions: plan.release_of(node) },
            ..host_info(node)
        },
        founders: (1..=plan.nodes).map(NodeId).map(addressing::name).collect(),
        hosts: BTreeMap::new(),
        move_step_keys: 8,
        prime_replica: None,
        data_shards: plan.data_shards,
        replicas: plan.replicas,
        shard_tags: BTreeMap::new(),
        automatic_division: plan.automatic_division,
        founding_version: plan.founding_version,
        version: plan.founding_version,
        timing: plan.timing,
        division: plan.division,
        snapshot_log_bytes_min: plan.snapshot_log_bytes_min,
        seed: 0,
        faults: plan.deliberate,
    }
}
