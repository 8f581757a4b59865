//! Changes of the wanted replicas and of the tags of shards.
//!
//! Owns the check that such changes are consistent with the state at the time they are applied. The
//! leader of the prime shard decides on the changes and may have seen an earlier state. An
//! assignment based on another state changes nothing; the leader makes it again.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::Registry;
use crate::command::{Assignment, Denial, HostRole, WriteReply};
use crate::limits;
use crate::membership::Role;
use crate::placement_policy::{self, PlacementPolicy};
use crate::topology::Replica;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Version};
use crate::version::ClusterVersion;

impl Registry {
    /// Assigns replicas to hosts, changes their roles, or removes them, if nothing has changed
    /// since `seen`.
    pub fn assign(&mut self, index: LogIndex, seen: LogIndex, assignments: &[Assignment]) -> WriteReply {
        if seen != self.changed {
            return WriteReply::ConditionFailed { current: Version(self.changed.0) };
        }
        for &Assignment { shard, node, role } in assignments {
            let stays = self
                .host_entries
                .get(&node)
                .is_some_and(|host_entry| role.is_none() || host_entry.stays() || shard == ShardId::PRIME);
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
        WriteReply::HostChanged
    }

    /// Deletes a removed replica that has left its shard. No voter of the shard would ask for its
    /// vote again.
    pub fn forget_replica(&mut self, index: LogIndex, id: ReplicaId) -> WriteReply {
        match self.replicas.get(&id) {
            Some(replica) if replica.wanted.is_some() => WriteReply::Denied(Denial::NotLeaving),
            Some(replica) if replica.shard == ShardId::PRIME => WriteReply::Denied(Denial::NotLeaving),
            Some(_) => {
                self.replicas.remove(&id);
                self.changed = index;
                WriteReply::HostChanged
            }
            None => WriteReply::HostChanged,
        }
    }

    /// Sets tags of a shard, and removes those with the value `None`. Policies must parse.
    pub fn tag_shard(
        &mut self,
        index: LogIndex,
        shard: ShardId,
        tags: &[(String, Option<String>)],
    ) -> WriteReply {
        let Some(row) = self.shards.get_mut(&shard) else { return WriteReply::Denied(Denial::UnknownShard) };
        let mut changed = row.tags.clone();
        change_tags(&mut changed, tags);
        if tags_bytes(&changed) > limits::SHARD_TAGS_BYTES_MAX || PlacementPolicy::parse(&changed).is_err() {
            return WriteReply::Denied(Denial::InvalidPolicy);
        }
        if changed != row.tags {
            (row.tags, row.updated) = (changed, index);
            self.changed = index;
        }
        WriteReply::HostChanged
    }

    /// Sets policies that shards inherit, and removes those with the value `None`. The result must
    /// be a complete default. With the first one, every host that was not barred may vote.
    pub fn set_default(&mut self, index: LogIndex, tags: &[(String, Option<String>)]) -> WriteReply {
        if self.version < ClusterVersion::WITH_DEFAULTS {
            return WriteReply::Denied(Denial::VersionTooLow);
        }
        let mut changed = self.default_tags.clone().unwrap_or_default();
        change_tags(&mut changed, tags);
        if tags_bytes(&changed) > limits::SHARD_TAGS_BYTES_MAX
            || placement_policy::check_default(&changed).is_err()
        {
            return WriteReply::Denied(Denial::InvalidPolicy);
        }
        if self.default_tags.is_none() {
            for host_entry in self.host_entries.values_mut() {
                if host_entry.standing == HostRole::Learner && !host_entry.is_barred {
                    host_entry.standing = HostRole::Voter;
                    host_entry.touch(index);
                }
            }
        }
        if self.default_tags.as_ref() != Some(&changed) {
            self.default_tags = Some(changed);
            self.changed = index;
        }
        WriteReply::HostChanged
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

    /// A replica that is being removed stays so, because it cannot come back under its number.
    fn want(&mut self, index: LogIndex, id: ReplicaId, role: Option<Role>) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if replica.wanted.is_some() && replica.wanted != role {
            (replica.wanted, replica.updated) = (role, index);
            self.changed = index;
        }
    }

    /// The wanted roles of a shard's replicas.
    pub fn wanted(&self, shard: ShardId) -> impl Iterator<Item = (ReplicaId, NodeId, Option<Role>)> {
        let rows = self.replicas.iter().filter(move |(_, replica)| replica.shard == shard);
        rows.map(|(&id, replica)| (id, replica.node, replica.wanted))
    }

    /// The replicas assigned to a node, including those that are being removed.
    pub fn replicas_on(&self, node: NodeId) -> Vec<(ReplicaId, ShardId)> {
        let rows = self.replicas.iter().filter(|(_, replica)| replica.node == node);
        rows.map(|(&id, replica)| (id, replica.shard)).collect()
    }
}

/// Sets the tags that have a value, and removes the others.
fn change_tags(tags: &mut BTreeMap<String, String>, changes: &[(String, Option<String>)]) {
    for (name, value) in changes {
        match value {
            Some(value) => tags.insert(name.clone(), value.clone()),
            None => tags.remove(name),
        };
    }
}

fn tags_bytes(tags: &BTreeMap<String, String>) -> usize {
    tags.iter().map(|(name, value)| name.len() + value.len()).sum()
}
