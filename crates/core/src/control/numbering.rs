//! Which number the replica of a shard on a node bears.
//!
//! Numbers are given by rule, so that nobody has to be asked for them: founders first, shard by shard, then each host
//! that joined, all its shards together. A node's number is never given again, so neither is a replica's.

use alloc::vec::Vec;

use crate::types::{NodeId, ReplicaId, ShardId};

/// The rule of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbering {
    founders: u64,
    /// With the prime shard.
    shards: u64,
}

impl Numbering {
    /// The rule of a cluster that was founded by so many nodes with so many data shards.
    pub fn new(founders: u64, data_shards: u64) -> Numbering {
        Numbering { founders, shards: data_shards + 1 }
    }

    /// The replica of `shard` on `node`.
    pub fn replica(&self, shard: ShardId, node: NodeId) -> ReplicaId {
        if node.0 <= self.founders {
            ReplicaId(shard.0 * self.founders + node.0)
        } else {
            ReplicaId(self.founding() + (node.0 - self.founders - 1) * self.shards + shard.0 + 1)
        }
    }

    /// The node that carries a replica of `shard`; `None` if the number belongs to no replica of that shard.
    pub fn node(&self, shard: ShardId, replica: ReplicaId) -> Option<NodeId> {
        if replica.0 <= self.founding() {
            let node = replica.0.checked_sub(shard.0 * self.founders)?;
            return (1..=self.founders).contains(&node).then_some(NodeId(node));
        }
        let position = replica.0 - self.founding() - 1;
        (position % self.shards == shard.0).then(|| NodeId(self.founders + 1 + position / self.shards))
    }

    /// The replicas that a shard is founded with.
    pub fn founding_replicas(&self, shard: ShardId) -> Vec<ReplicaId> {
        (1..=self.founders).map(|node| self.replica(shard, NodeId(node))).collect()
    }

    /// Replicas of the founders together.
    fn founding(&self) -> u64 {
        self.founders * self.shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn every_replica_has_its_own_number_and_leads_back_to_its_node() {
        let numbering = Numbering::new(3, 4);
        let mut seen = BTreeSet::new();
        for node in (1..=6).map(NodeId) {
            for shard in (0..=4).map(ShardId) {
                let replica = numbering.replica(shard, node);
                assert!(seen.insert(replica));
                assert_eq!(numbering.node(shard, replica), Some(node));
                let others = (0..=4).map(ShardId).filter(|&other| other != shard);
                assert!(others.into_iter().all(|other| numbering.node(other, replica).is_none()));
            }
        }
        assert_eq!(seen.last(), Some(&ReplicaId(30)), "numbers leave no gaps");
        assert_eq!(numbering.node(ShardId(0), ReplicaId(0)), None);
    }
}
