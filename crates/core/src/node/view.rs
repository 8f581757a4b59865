//! What a node shows of the cluster: the registry, its own replicas, and what peers last reported of theirs.

use alloc::collections::BTreeMap;
use alloc::string::String;
use uuid::Uuid;

use super::Node;
use crate::command::{ClusterView, HostInfo, HostView, ReplicaView, ShardView};
use crate::raft::{Group, Member};
use crate::router::slots;
use crate::types::{LogIndex, NodeId, ShardId};

impl Node {
    pub(super) fn cluster_view(&self) -> ClusterView {
        ClusterView {
            node: self.options.host.node,
            hosts: self
                .options
                .founders
                .iter()
                .zip(1..)
                .map(|(address, node)| self.host(NodeId(node), address))
                .collect(),
            shards: self.groups.iter().map(|group| self.shard(group)).collect(),
            replicas: self
                .groups
                .iter()
                .flat_map(|group| group.members().iter().map(|member| self.replica(group, *member)))
                .collect(),
        }
    }

    fn host(&self, node: NodeId, peer_address: &str) -> HostView {
        let connected = node == self.options.host.node || self.router.is_up(node);
        match self.registry().host(node) {
            Some(host) => {
                HostView { info: host.info.clone(), created: host.created, updated: host.updated, connected }
            }
            None => {
                let info = HostInfo {
                    node,
                    uuid: Uuid::nil(),
                    peer_address: String::from(peer_address),
                    http_address: String::new(),
                    resp_address: String::new(),
                    tags: BTreeMap::new(),
                };
                HostView { info, created: LogIndex(0), updated: LogIndex(0), connected }
            }
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

    fn replica(&self, group: &Group, member: Member) -> ReplicaView {
        let position = if member.node == self.options.host.node {
            Some(super::position(group))
        } else {
            self.reports.get(&(member.node, group.shard())).copied()
        };
        ReplicaView {
            replica: member.replica,
            shard: group.shard(),
            node: member.node,
            voter: true,
            applied: position.map(|position| position.applied),
            checkpoint: position.and_then(|position| position.checkpoint),
        }
    }
}
