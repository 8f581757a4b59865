//! Routes: the nodes that can be asked about a shard without a replica here.
//!
//! Owns the information from the registry and from peers' reports. Both may be outdated; a node
//! that is asked wrongly says so.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::types::{NodeId, ShardId, Term};

#[derive(Default)]
pub(super) struct Routes {
    shards: BTreeMap<ShardId, Route>,
}

#[derive(Default)]
struct Route {
    /// Nodes with a replica, sorted.
    nodes: Vec<NodeId>,
    /// The newest term in which a node reported that it leads.
    leader: Option<(Term, NodeId)>,
}

impl Routes {
    /// Sets the nodes of all replicas, and forgets shards without replicas.
    pub(super) fn set(&mut self, nodes: impl Iterator<Item = (ShardId, NodeId)>) {
        self.shards.values_mut().for_each(|route| route.nodes.clear());
        for (shard, node) in nodes {
            self.shards.entry(shard).or_default().nodes.push(node);
        }
        self.shards.retain(|_, route| !route.nodes.is_empty());
    }

    pub(super) fn knows(&self, shard: ShardId) -> bool {
        self.shards.contains_key(&shard)
    }

    /// Records that a node leads a shard in some term, or does not lead it. Returns whether held
    /// requests should be retried.
    pub(super) fn hear(&mut self, shard: ShardId, node: NodeId, led: Option<Term>) -> bool {
        let Some(route) = self.shards.get_mut(&shard) else { return false };
        let before = route.leader;
        match (led, before) {
            (Some(term), Some((known, _))) if term < known => {}
            (Some(term), _) => route.leader = Some((term, node)),
            (None, Some((_, known))) if known == node => route.leader = None,
            (None, _) => {}
        }
        route.leader != before && led.is_some()
    }

    /// Records that a node denied being a leader. All of its leaderships are forgotten, because it
    /// does not matter much which shard the denial is about.
    pub(super) fn denied(&mut self, node: NodeId) {
        self.lose(node);
    }

    /// Forgets the leaderships of an unreachable node.
    pub(super) fn lose(&mut self, node: NodeId) {
        for route in self.shards.values_mut() {
            route.leader.take_if(|(_, leader)| *leader == node);
        }
    }

    pub(super) fn leader(&self, shard: ShardId) -> Option<NodeId> {
        Some(self.shards.get(&shard)?.leader?.1)
    }

    /// The nodes that may answer a read, the leader first, because it is never behind.
    pub(super) fn readers(&self, shard: ShardId) -> impl Iterator<Item = NodeId> {
        let route = self.shards.get(&shard);
        let leader = route.and_then(|route| route.leader).map(|(_, node)| node);
        let nodes = route.into_iter().flat_map(|route| route.nodes.iter().copied());
        leader.into_iter().chain(nodes.filter(move |node| Some(*node) != leader))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_leader_counts_until_it_denies() {
        let (shard, mut routes) = (ShardId(3), Routes::default());
        assert!(!routes.hear(shard, NodeId(1), Some(Term(1))), "nobody carries it");
        routes.set([(shard, NodeId(1)), (shard, NodeId(2))].into_iter());
        assert!(routes.hear(shard, NodeId(2), Some(Term(5))));
        assert!(!routes.hear(shard, NodeId(1), Some(Term(4))), "of an older term");
        assert_eq!(routes.leader(shard), Some(NodeId(2)));
        assert!(routes.readers(shard).eq([NodeId(2), NodeId(1)]));
        routes.denied(NodeId(2));
        assert_eq!(routes.leader(shard), None);
        assert!(routes.readers(shard).eq([NodeId(1), NodeId(2)]));
        routes.set(core::iter::empty());
        assert!(!routes.knows(shard));
    }
}
