//! A node's views of the cluster: the registry, its own replicas, and the last reports of peers.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use uuid::Uuid;

use super::Node;
use crate::command::{
    ClusterView, Explanation, HostInfo, HostRole, HostView, RegistryView, ReplicaView, ShardView,
};
use crate::control::placement;
use crate::membership::Role;
use crate::peer::DiskState;
use crate::raft::Group;
use crate::topology::HostEntry;
use crate::topology::Shard;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Term};

impl Node {
    pub(super) fn cluster_view(&self) -> ClusterView {
        let registry = self.registry();
        ClusterView {
            node: self.options.host.node,
            has_default: registry.default_tags().is_some(),
            version: self.version_view(),
            hosts: registry
                .host_entries()
                .iter()
                .filter_map(|(&node, host_entry)| self.host(node, host_entry))
                .collect(),
            shards: registry.shards().iter().map(|(&shard, row)| self.shard(shard, row)).collect(),
            replicas: registry.shards().keys().flat_map(|&shard| self.replicas(shard)).collect(),
        }
    }

    /// The node that leads a shard, as far as this node knows. A replica that was removed hears
    /// from no leader, and stays here until all voters have stored its removal.
    pub(super) fn leader(&self, shard: ShardId) -> Option<NodeId> {
        self.groups.member(shard).map_or_else(|| self.router.leader(shard), Group::leader)
    }

    /// `HOST:PORT` at which HTTP clients reach the leader of a shard that another node leads.
    /// `None` if this node leads it, or the leader or its address is not known.
    pub fn leader_elsewhere(&self, shard: ShardId) -> Option<&str> {
        let leader = self.leader(shard).filter(|leader| *leader != self.options.host.node)?;
        let address = &self.host_entry(leader)?.host.as_ref()?.info.http_address;
        (!address.is_empty()).then_some(address)
    }

    /// The tables of the registry, as this node has applied them.
    pub fn registry_view(&self) -> RegistryView {
        self.registry().view()
    }

    pub(super) fn explain(&self, shard: ShardId) -> Option<Explanation> {
        placement::explain(self.registry(), shard)
    }

    /// The view of a host; `None` if it was removed.
    fn host(&self, node: NodeId, host_entry: &HostEntry) -> Option<HostView> {
        let (info, created, updated) = match &host_entry.host {
            Some(host) => (host.info.clone(), host.created, host.updated),
            None => (self.unregistered(node), LogIndex(0), LogIndex(0)),
        };
        let connected = self.is_reachable(node);
        let (standing, draining) = (host_entry.standing, host_entry.draining);
        (standing != HostRole::Removed).then_some(HostView {
            info,
            created,
            updated,
            connected,
            disk_stalled: self.has_stalled_disk(node),
            clock: self.peer_clock(node),
            standing,
            draining,
            dead: host_entry.is_dead,
        })
    }

    /// Whether the disk of a node takes no writes, as far as this one knows.
    fn has_stalled_disk(&self, node: NodeId) -> bool {
        if node == self.options.host.node {
            self.disks.own() == DiskState::Stalled
        } else {
            !self.disks.can_write(node)
        }
    }

    /// A founder that has not registered.
    fn unregistered(&self, node: NodeId) -> HostInfo {
        let founder =
            usize::try_from(node.0 - 1).ok().and_then(|position| self.options.founders.get(position));
        HostInfo {
            node,
            uuid: Uuid::nil(),
            peer_address: founder.cloned().unwrap_or_default(),
            http_address: String::new(),
            resp_address: String::new(),
            resp_cluster_address: String::new(),
            tags: BTreeMap::new(),
            release: crate::version::Release::default(),
        }
    }

    fn shard(&self, shard: ShardId, row: &Shard) -> ShardView {
        let group = self.groups.member(shard);
        // The last report of the leader, for a shard without a replica here.
        let reported = || {
            let leads = self
                .reports
                .iter()
                .filter(|((node, of), position)| *of == shard && position.leads && self.router.is_up(*node));
            leads.map(|((node, _), position)| (position.term, *node)).max()
        };
        let (leader, term) = match group.map(Group::status) {
            Some(status) => (status.leader, status.term),
            None => reported().map_or((None, Term(0)), |(term, node)| (Some(node), term)),
        };
        ShardView {
            shard,
            name: row.name.clone(),
            kind: if shard == ShardId::PRIME { "registry" } else { "kv" },
            leader,
            term,
            slots: self.registry().slots().count(shard),
        }
    }

    /// The replicas of a shard: according to its own log if it has a replica here, or else
    /// according to the registry.
    fn replicas(&self, shard: ShardId) -> Vec<ReplicaView> {
        let replicas: Vec<(NodeId, ReplicaId, Role)> = match self.groups.find(shard) {
            Some(group) => group.replicas().collect(),
            None => {
                let rows = self.registry().wanted(shard);
                rows.filter_map(|(replica, node, role)| Some((node, replica, role?))).collect()
            }
        };
        replicas.into_iter().map(|replica| self.replica(shard, replica)).collect()
    }

    fn replica(&self, shard: ShardId, (node, replica, role): (NodeId, ReplicaId, Role)) -> ReplicaView {
        let position = if node == self.options.host.node {
            self.groups.find(shard).map(super::position)
        } else {
            self.reports.get(&(node, shard)).copied()
        };
        ReplicaView {
            replica,
            shard,
            node,
            voter: role == Role::Voter,
            applied: position.map(|position| position.applied),
            checkpoint: position.and_then(|position| position.checkpoint),
            diverged: position.is_some_and(|position| position.diverged),
        }
    }
}
