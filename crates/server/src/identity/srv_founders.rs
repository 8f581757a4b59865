//! The founders of a cluster by a DNS SRV name.
//!
//! Owns when the records of a name are the list of founders: once there are as many hosts as
//! expected, and this node is one of them. Each founder computes the same sorted list, so their
//! numbers and the cluster's id agree. Two founders that see different lists derive different ids
//! and refuse each other; the number of hosts makes that unlikely.

use std::time::Duration;

use tidelock_core::types::NodeId;
use tokio::time::sleep;

use crate::config::SrvFounders;
use crate::resolve::srv_targets;

/// Pause between two queries.
const QUERY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Queries until the name has all founders. Returns this node's number and the sorted founders. The
/// log says what the node waits for. May be dropped.
pub(super) async fn wait_for(service: &SrvFounders, own: &str) -> (NodeId, Vec<String>) {
    let mut last = String::new();
    loop {
        let listed = srv_targets(&service.name).await.map_err(|error| error.to_string());
        let reason = match listed.and_then(|founders| complete(founders, service.count, own)) {
            Ok(found) => return found,
            Err(reason) => reason,
        };
        if reason != last {
            tracing::warn!(name = service.name, reason, "the founders are not known yet; asking again");
            last = reason;
        }
        sleep(QUERY_AGAIN_AFTER).await;
    }
}

/// Checks a list of founders; returns this node's number, which is its position from 1.
fn complete(founders: Vec<String>, count: usize, own: &str) -> Result<(NodeId, Vec<String>), String> {
    if founders.len() != count {
        return Err(format!("{} hosts of {count}: {}", founders.len(), founders.join(", ")));
    }
    let position = founders.iter().position(|founder| founder.eq_ignore_ascii_case(own));
    match position {
        Some(position) => Ok((NodeId(position as u64 + 1), founders)),
        None => Err(format!("this node's peer address {own} is not among {}", founders.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_counts_when_it_is_complete_and_has_this_node() {
        let founders = |list: &[&str]| list.iter().map(|founder| (*founder).to_owned()).collect::<Vec<_>>();
        let three = founders(&["kv-0.kv:9001", "kv-1.kv:9001", "kv-2.kv:9001"]);
        let found = complete(three.clone(), 3, "KV-1.kv:9001");
        assert_eq!(found, Ok((NodeId(2), three.clone())));
        let early = complete(founders(&["kv-0.kv:9001"]), 3, "kv-0.kv:9001").unwrap_err();
        assert_eq!(early, "1 hosts of 3: kv-0.kv:9001");
        assert!(complete(three.clone(), 2, "kv-0.kv:9001").is_err(), "one too many");
        let other = complete(three, 3, "kv-1.kv:9002").unwrap_err();
        assert!(other.contains("kv-1.kv:9002 is not among kv-0"), "{other}");
    }
}
