//! Which voters of the shards can take part in writes, as the node that answers knows.

use std::collections::BTreeMap;

use tidelock_api::cluster::Cluster;

/// The voters of one shard.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardVoters {
    /// Number of the shard.
    pub shard: u64,
    /// How many replicas vote.
    pub all: usize,
    /// Nodes of voters that cannot be reached.
    pub unreachable: Vec<u64>,
    /// Nodes of voters that can be reached and whose disks take no writes.
    pub stalled: Vec<u64>,
}

impl ShardVoters {
    /// How many more of its voters may fail until no majority can write; `None` if none can now.
    pub fn spare(&self) -> Option<usize> {
        let working = self.all - self.unreachable.len() - self.stalled.len();
        working.checked_sub(self.all / 2 + 1)
    }

    /// Why voters do not take part, in words; empty if all do.
    pub fn missing(&self) -> String {
        let reasons =
            [("no connection to", &self.unreachable), ("a disk that takes no writes at", &self.stalled)];
        let named = reasons.into_iter().filter(|(_, nodes)| !nodes.is_empty());
        named
            .map(|(reason, nodes)| format!("{reason} {}", node_list(nodes)))
            .collect::<Vec<_>>()
            .join(", and ")
    }
}

/// The voters of all shards, by the number of the shard.
pub(crate) fn voters(cluster: &Cluster) -> Vec<ShardVoters> {
    let mut shards: BTreeMap<u64, ShardVoters> = BTreeMap::new();
    for replica in cluster.replicas.iter().filter(|replica| replica.voter) {
        let voters = shards.entry(replica.shard).or_default();
        (voters.shard, voters.all) = (replica.shard, voters.all + 1);
        match cluster.hosts.iter().find(|host| host.node == replica.node) {
            Some(host) if host.connected && host.disk_stalled => voters.stalled.push(replica.node),
            Some(host) if host.connected => {}
            _ => voters.unreachable.push(replica.node),
        }
    }
    shards.into_values().collect()
}

/// `node 3`, or `nodes 2, 3`.
pub(crate) fn node_list(nodes: &[u64]) -> String {
    let noun = if nodes.len() == 1 { "node" } else { "nodes" };
    format!("{noun} {}", nodes.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
}

/// The shards of which no majority of the voters can write, as an error; `None` if there is none.
pub(crate) fn unwritable(cluster: &Cluster) -> Option<String> {
    let shards: Vec<ShardVoters> =
        voters(cluster).into_iter().filter(|voters| voters.spare().is_none()).collect();
    let missing = shards.first()?.missing();
    let numbers: Vec<String> = shards.iter().map(|voters| voters.shard.to_string()).collect();
    Some(format!(
        "no majority of the voters can write of {} of {} shards ({}), with {missing}: their writes are refused",
        shards.len(),
        cluster.shards.len(),
        numbers.join(", ")
    ))
}

/// A cluster of three nodes that vote in shard 1, of which these are connected, and the disks of
/// those take no writes.
#[cfg(test)]
pub(crate) fn cluster_of_three(connected: &[u64], stalled: &[u64]) -> Cluster {
    use tidelock_api::cluster::{Host, Replica, Shard};

    let host = |node| Host {
        node,
        connected: connected.contains(&node),
        disk_stalled: stalled.contains(&node),
        ..Host::default()
    };
    let replica = |node| Replica { node, shard: 1, voter: true, ..Replica::default() };
    Cluster {
        hosts: (1..=3).map(host).collect(),
        shards: vec![Shard { id: 1, ..Shard::default() }],
        replicas: (1..=3).map(replica).collect(),
        ..Cluster::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_counts_if_it_can_be_reached_and_can_write() {
        let spare =
            |connected: &[u64], stalled: &[u64]| voters(&cluster_of_three(connected, stalled))[0].spare();
        assert_eq!(spare(&[1, 2, 3], &[]), Some(1));
        assert_eq!(spare(&[1, 2], &[]), Some(0));
        assert_eq!(spare(&[1, 2, 3], &[3]), Some(0));
        assert_eq!(spare(&[1, 3], &[3]), None);
        assert_eq!(spare(&[1], &[]), None);
    }

    #[test]
    fn an_outage_is_named_with_its_causes() {
        assert_eq!(unwritable(&cluster_of_three(&[1, 2], &[])), None);
        assert_eq!(
            unwritable(&cluster_of_three(&[1, 3], &[3])).as_deref(),
            Some(
                "no majority of the voters can write of 1 of 1 shards (1), with no connection to node 2, and a disk that takes \
                 no writes at node 3: their writes are refused"
            )
        );
        assert!(
            unwritable(&cluster_of_three(&[1], &[]))
                .is_some_and(|text| text.contains("no connection to nodes 2, 3:"))
        );
    }
}
