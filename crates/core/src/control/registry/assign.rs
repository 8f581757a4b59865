//! Changes of what is wanted of replicas and shards: which is where, and by which policy.
//!
//! Owns that such changes are consistent with what is there when they are applied. Which ones are made is decided by the
//! leader of the prime shard, which saw an earlier state: an assignment that was made on another state changes nothing, and
//! is made again.

use alloc::string::String;
use alloc::vec::Vec;

use super::Registry;
use super::tables::Replica;
use crate::command::{Assignment, Denial, Reply};
use crate::control::placement::policy;
use crate::limits;
use crate::membership::Role;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Version};

impl Registry {
    /// Gives hosts replicas, other roles for those that they have, or takes them away; if nothing has changed since `seen`.
    pub fn assign(&mut self, index: LogIndex, seen: LogIndex, assignments: &[Assignment]) -> Reply {
        if seen != self.changed {
            return Reply::ConditionFailed { current: Version(self.changed.0) };
        }
        for &Assignment { shard, node, role } in assignments {
            let stays = self
                .seats
                .get(&node)
                .is_some_and(|seat| role.is_none() || seat.stays() || shard == ShardId::PRIME);
            if !self.shards.contains_key(&shard) || !stays {
                continue;
            }
            match (self.replica_on(shard, node).map(|(id, _)| id), role) {
                (Some(id), role) => self.want(index, id, role),
                (None, Some(role)) => {
                    self.add_replica(index, (shard, node), role);
                }
                (None, None) => {}
            }
        }
        Reply::HostChanged
    }

    /// Forgets a replica that was to go and is gone: no voter of its shard would ask for its vote again.
    pub fn forget_replica(&mut self, index: LogIndex, id: ReplicaId) -> Reply {
        match self.replicas.get(&id) {
            Some(replica) if replica.wanted.is_some() => Reply::Denied(Denial::NotLeaving),
            Some(replica) if replica.shard == ShardId::PRIME => Reply::Denied(Denial::NotLeaving),
            Some(_) => {
                self.replicas.remove(&id);
                self.changed = index;
                Reply::HostChanged
            }
            None => Reply::HostChanged,
        }
    }

    /// Sets tags of a shard, or takes those away that have no value. Policies must make sense.
    pub fn tag_shard(&mut self, index: LogIndex, shard: ShardId, tags: &[(String, Option<String>)]) -> Reply {
        let Some(row) = self.shards.get_mut(&shard) else { return Reply::Denied(Denial::UnknownShard) };
        let mut changed = row.tags.clone();
        for (name, value) in tags {
            match value {
                Some(value) => changed.insert(name.clone(), value.clone()),
                None => changed.remove(name),
            };
        }
        let bytes: usize = changed.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > limits::SHARD_TAGS_BYTES_MAX || policy::Policy::parse(&changed).is_err() {
            return Reply::Denied(Denial::InvalidPolicy);
        }
        if changed != row.tags {
            (row.tags, row.updated) = (changed, index);
            self.changed = index;
        }
        Reply::HostChanged
    }

    pub(super) fn add_replica(
        &mut self,
        index: LogIndex,
        (shard, node): (ShardId, NodeId),
        role: Role,
    ) -> ReplicaId {
        self.last_replica = ReplicaId(self.last_replica.0 + 1);
        let replica = Replica { shard, node, wanted: Some(role), created: index, updated: index };
        self.replicas.insert(self.last_replica, replica);
        self.changed = index;
        self.last_replica
    }

    /// What is to go, goes: it cannot come back under its number.
    fn want(&mut self, index: LogIndex, id: ReplicaId, role: Option<Role>) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if replica.wanted.is_some() && replica.wanted != role {
            (replica.wanted, replica.updated) = (role, index);
            self.changed = index;
        }
    }

    /// What is wanted of the replicas of a shard.
    pub fn wanted(&self, shard: ShardId) -> impl Iterator<Item = (ReplicaId, NodeId, Option<Role>)> {
        let rows = self.replicas.iter().filter(move |(_, replica)| replica.shard == shard);
        rows.map(|(&id, replica)| (id, replica.node, replica.wanted))
    }

    /// The replicas that a node should carry, with those on their way out.
    pub fn carried_by(&self, node: NodeId) -> Vec<(ReplicaId, ShardId)> {
        let rows = self.replicas.iter().filter(|(_, replica)| replica.node == node);
        rows.map(|(&id, replica)| (id, replica.shard)).collect()
    }
}
