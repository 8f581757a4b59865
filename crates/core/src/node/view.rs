//! What a node shows of the cluster: the registry, its own replicas, and what peers last reported of theirs.

use alloc::collections::BTreeMap;
use alloc::string::String;
use uuid::Uuid;

use super::Node;
use crate::command::{ClusterView, HostInfo, HostView, ReplicaView, ShardView, Standing};
use crate::control::registry::Seat;
use crate::membership::Role;
use crate::raft::Group;
use crate::router::slots;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId};

impl Node {
    pub(super) fn cluster_view(&self) -> ClusterView {
        ClusterView {
            node: self.options.host.node,
            hosts: self.registry().seats().iter().filter_map(|(&node, seat)| self.host(node, seat)).collect(),
            shards: self.groups.iter().map(|group| self.shard(group)).collect(),
            replicas: self
                .groups
                .iter()
                .flat_map(|group| group.carriers().map(|carrier| self.replica(group, carrier)))
                .collect(),
        }
    }

    /// A host that belongs to the cluster; `None` for one that was removed.
    fn host(&self, node: NodeId, seat: &Seat) -> Option<HostView> {
        let (info, created, updated) = match &seat.host {
            Some(host) => (host.info.clone(), host.created, host.updated),
            None => (self.unregistered(node), LogIndex(0), LogIndex(0)),
        };
        let connected = node == self.options.host.node || self.router.is_up(node);
        let (standing, draining) = (seat.standing, seat.draining);
        (standing != Standing::Removed).then_some(HostView {
            info,
            created,
            updated,
            connected,
            standing,
            draining,
        })
    }

    /// A founder that has not announced itself.
    fn unregistered(&self, node: NodeId) -> HostInfo {
        let founder =
            usize::try_from(node.0 - 1).ok().and_then(|position| self.options.founders.get(position));
        HostInfo {
            node,
            uuid: Uuid::nil(),
            peer_address: founder.cloned().unwrap_or_default(),
            http_address: String::new(),
            resp_address: String::new(),
            tags: BTreeMap::new(),
        }
    }

    fn shard(&self, group: &Group) -> ShardView {
        let status = group.status();
        let data_shard = status.shard != ShardId::PRIME;
        ShardView {
            shard: status.shard,
            kind: group.machine().kind(),
            leader: status.leader,
            term: status.term,
            slots: if data_shard {
                slots::slots_of(status.shard, self.options.data_shards).len() as u16
            } else {
                0
            },
        }
    }

    fn replica(&self, group: &Group, (node, replica, role): (NodeId, ReplicaId, Role)) -> ReplicaView {
        let position = if node == self.options.host.node {
            Some(super::position(group))
        } else {
            self.reports.get(&(node, group.shard())).copied()
        };
        ReplicaView {
            replica,
            shard: group.shard(),
            node,
            voter: role == Role::Voter,
            applied: position.map(|position| position.applied),
            checkpoint: position.and_then(|position| position.checkpoint),
        }
    }
}
