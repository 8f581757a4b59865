//! The founding of a cluster: its first replicas, which every founder computes alike before it can
//! talk to any other.
//!
//! Owns the numbers of the founding replicas and their hosts. The result never changes, because a
//! log that begins with the founding is read by every later release.
//!
//! The tags of hosts are not known at the founding. So votes are assigned round-robin, in the order
//! of the founders' numbers: no founder gets two votes more than another. If the zones of the
//! founders alternate in that order, each shard is in as many zones as possible. Placement
//! ([`crate::control::placement`]) corrects the rest once the hosts have registered.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::membership::Role;
use crate::types::{NodeId, ReplicaId, ShardId};

/// Number of voters of the registry in clusters of fewer hosts than [`REGISTRY_HOSTS_OF_MORE`].
const REGISTRY_VOTERS: u64 = 3;
/// Number of voters of the registry in larger clusters: they survive two failures.
const REGISTRY_VOTERS_OF_MORE: u64 = 5;
/// From so many hosts on, a second host is likely enough to fail before the first is replaced.
const REGISTRY_HOSTS_OF_MORE: u64 = 7;

/// What the founders of a cluster agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Founding {
    /// Number of founders. Their nodes have the numbers from 1.
    pub founders: u64,
    /// Number of data shards, not counting the prime shard.
    pub data_shards: u64,
    /// Number of voters of each data shard, which becomes the cluster's default placement. `None`
    /// for a cluster of an earlier release: every founder votes in every shard.
    pub replicas: Option<u64>,
    /// Tags of the data shards, placement policies among them.
    pub shard_tags: BTreeMap<String, String>,
    /// Whether the cluster adds data shards by itself. False if an operator chose their number.
    pub automatic_division: bool,
}

/// A founding replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundingReplica {
    /// Its number.
    pub replica: ReplicaId,
    /// Its shard.
    pub shard: ShardId,
    /// The founder that has it.
    pub node: NodeId,
    /// Its role. Only replicas of the prime shard may be learners.
    pub role: Role,
}

/// The number of voters of the registry in a cluster with so many hosts that may vote.
pub fn registry_voters(hosts: u64) -> u64 {
    if hosts >= REGISTRY_HOSTS_OF_MORE { REGISTRY_VOTERS_OF_MORE } else { REGISTRY_VOTERS }
}

impl Founding {
    /// The founding of a cluster without a default placement, as earlier releases founded all.
    pub fn new(founders: u64, data_shards: u64) -> Founding {
        Founding { founders, data_shards, ..Founding::default() }
    }

    /// All founding replicas of a shard, by number. They are numbered shard by shard, and in each
    /// shard by their nodes. Every founder has a replica of the prime shard.
    pub fn replicas_of(&self, shard: ShardId) -> Vec<FoundingReplica> {
        let founders = self.founders;
        if shard == ShardId::PRIME {
            let votes = self.replicas.map_or(founders, |_| registry_voters(founders));
            let role = |node| if node <= votes { Role::Voter } else { Role::Learner };
            let replica = |node| FoundingReplica {
                replica: ReplicaId(node),
                shard,
                node: NodeId(node),
                role: role(node),
            };
            return (1..=founders).map(replica).collect();
        }
        let count = self.voters_of_data_shard();
        let earlier = (shard.0 - 1) * count;
        let mut nodes: Vec<u64> = (earlier..earlier + count).map(|turn| turn % founders + 1).collect();
        nodes.sort_unstable();
        let numbers = (founders + earlier + 1..).map(ReplicaId);
        let replica =
            |(replica, node)| FoundingReplica { replica, shard, node: NodeId(node), role: Role::Voter };
        numbers.zip(nodes).map(replica).collect()
    }

    /// The founding voters of a shard, with their nodes.
    pub fn voters_of(&self, shard: ShardId) -> Vec<(ReplicaId, NodeId)> {
        let replicas = self.replicas_of(shard).into_iter();
        let voters = replicas.filter(|founding| founding.role == Role::Voter);
        voters.map(|founding| (founding.replica, founding.node)).collect()
    }

    /// The founding replica of a shard on a node.
    pub fn replica_on(&self, shard: ShardId, node: NodeId) -> Option<ReplicaId> {
        let replicas = self.replicas_of(shard);
        replicas.iter().find(|founding| founding.node == node).map(|founding| founding.replica)
    }

    /// The highest number of a founding replica.
    pub fn last_replica(&self) -> ReplicaId {
        ReplicaId(self.founders + self.data_shards * self.voters_of_data_shard())
    }

    fn voters_of_data_shard(&self) -> u64 {
        self.replicas.map_or(self.founders, |replicas| replicas.min(self.founders))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn with_default(founders: u64, data_shards: u64, replicas: u64) -> Founding {
        Founding { replicas: Some(replicas), ..Founding::new(founders, data_shards) }
    }

    fn all(founding: &Founding) -> Vec<FoundingReplica> {
        (0..=founding.data_shards).flat_map(|shard| founding.replicas_of(ShardId(shard))).collect()
    }

    #[test]
    fn three_founders_are_what_they_always_were() {
        let (before, now) = (Founding::new(3, 4), with_default(3, 4, 3));
        assert_eq!(all(&before), all(&now));
        assert!(all(&now).iter().map(|founding| founding.replica.0).eq(1..=15));
        assert!(all(&now).iter().map(|founding| founding.node.0).eq((0..15).map(|turn| turn % 3 + 1)));
        assert_eq!(now.last_replica(), ReplicaId(15));
    }

    #[test]
    fn without_a_default_every_founder_votes_everywhere() {
        let founding = Founding::new(5, 2);
        assert_eq!(all(&founding).len(), 15);
        assert!(all(&founding).iter().all(|founding| founding.role == Role::Voter));
    }

    #[test]
    fn votes_are_spread_evenly_and_numbers_have_no_gaps() {
        for founders in 1..=9 {
            for (data_shards, replicas) in [(1, 3), (4, 3), (5, 1), (4, 5), (7, 7), (16, 3)] {
                let founding = with_default(founders, data_shards, replicas);
                let all = all(&founding);
                assert!(all.iter().map(|founding| founding.replica.0).eq(1..=founding.last_replica().0));
                for shard in (1..=data_shards).map(ShardId) {
                    let voters = founding.voters_of(shard);
                    let nodes: BTreeSet<NodeId> = voters.iter().map(|(_, node)| *node).collect();
                    assert_eq!((voters.len(), nodes.len() as u64), (nodes.len(), replicas.min(founders)));
                }
                let votes = |node| {
                    let votes = all.iter().filter(|founding| founding.shard != ShardId::PRIME);
                    votes.filter(|founding| founding.node.0 == node).count()
                };
                let votes: Vec<usize> = (1..=founders).map(votes).collect();
                assert!(
                    votes.iter().max() <= votes.iter().min().map(|least| least + 1).as_ref(),
                    "{votes:?}"
                );
            }
        }
    }

    #[test]
    fn the_registry_has_three_voters_then_five_and_a_replica_on_every_founder() {
        for (founders, votes) in [(1, 1), (2, 2), (3, 3), (6, 3), (7, 5), (9, 5)] {
            let founding = with_default(founders, 4, 3);
            assert_eq!(founding.voters_of(ShardId::PRIME).len(), votes);
            assert_eq!(founding.replicas_of(ShardId::PRIME).len() as u64, founders);
            assert_eq!(founding.replica_on(ShardId::PRIME, NodeId(founders)), Some(ReplicaId(founders)));
        }
    }
}
