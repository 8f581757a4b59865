//! The members of a shard, and the nodes on which replicas run, as far as one replica knows.
//!
//! Owns the membership as of the last applied entry, and what is known besides: the nodes of
//! replicas that are not in it. A replica whose log is behind must be able to answer them, because
//! one of them may lead.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::limits;
use crate::membership::{Membership, Role};
use crate::types::{NodeId, ReplicaId};

/// The members of a shard and the nodes of its replicas.
pub(super) struct Members {
    membership: Membership,
    /// Nodes of replicas that have sent messages and are not members. At most
    /// [`limits::HOSTS_MAX`]; beyond, the lowest replica number is forgotten.
    others: BTreeMap<ReplicaId, NodeId>,
}

impl Members {
    /// Begins with this membership.
    pub(super) fn new(membership: Membership) -> Members {
        Members { membership, others: BTreeMap::new() }
    }

    /// The membership as of the last applied entry.
    pub(super) fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Sets the membership as of a newly applied entry, and returns the previous one.
    pub(super) fn replace(&mut self, membership: Membership) -> Membership {
        core::mem::replace(&mut self.membership, membership)
    }

    /// The node of a replica, if it is known.
    pub(super) fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        self.membership.node(replica).or_else(|| self.others.get(&replica).copied())
    }

    /// Records the node of a replica that is not a member according to this log.
    pub(super) fn note_node_of(&mut self, replica: ReplicaId, node: NodeId) {
        if self.others.len() >= limits::HOSTS_MAX {
            self.others.pop_first();
        }
        self.others.insert(replica, node);
    }

    /// The members with their nodes and roles.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, ReplicaId, Role)> {
        let role = |replica| Some((self.node_of(replica)?, replica, self.membership.role(replica)?));
        self.membership.replicas().into_iter().filter_map(role)
    }

    /// The voters with their nodes; in a joint configuration, the new voters.
    pub(super) fn voters(&self) -> Vec<(NodeId, ReplicaId)> {
        let voters = self.membership.voters.iter();
        voters.filter_map(|&replica| Some((self.node_of(replica)?, replica))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_members_and_of_others_are_known_and_the_others_are_bounded() {
        let founding = [(ReplicaId(1), NodeId(1)), (ReplicaId(2), NodeId(2))];
        let mut members = Members::new(Membership::founded(&founding));
        let others = 3..4 + limits::HOSTS_MAX as u64;
        others.clone().for_each(|number| members.note_node_of(ReplicaId(number), NodeId(number)));
        assert_eq!(members.node_of(ReplicaId(1)), Some(NodeId(1)));
        assert_eq!(members.node_of(ReplicaId(3)), None, "it was forgotten for the last one");
        assert_eq!(members.node_of(ReplicaId(others.end - 1)), Some(NodeId(others.end - 1)));
        assert_eq!(members.voters(), founding.map(|(replica, node)| (node, replica)), "others do not vote");
        assert_eq!(members.iter().count(), 2);
    }
}
