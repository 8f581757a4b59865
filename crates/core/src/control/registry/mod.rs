//! The registry: the state machine of the prime shard.
//!
//! Owns the host of each node number, the shards and their slots, the replicas and their hosts, and
//! the wanted state of each. `placement` decides on it, and the leaders of the shards carry
//! it out (`reconcile`). The first disk that registers under a number keeps that number. A wiped
//! disk under the same number has forgotten its votes and its log, and its vote could lose
//! acknowledged writes. So the registry and the peer handshake refuse it, and it joins under a new
//! number.
//!
//! Invariants:
//! - No number of a host, shard or replica is ever assigned twice.
//! - A host has at most one replica of a shard, including replicas that are being removed.
//! - Every host that belongs to the cluster has a replica of the prime shard.

mod assign;
pub mod migrations;
mod snapshot;
#[cfg(test)]
mod tests;
pub mod version;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use crc::{CRC_64_XZ, Crc};

use crate::audit::{AuditRecord, AuditTrail};
use crate::auth::{Access, Authorities};
use crate::command::AuditedWrite;
use crate::command::{
    AccessWrite, AuthorityChange, AuthorityWrite, Denial, HostChange, HostInfo, HostRole, RegistryView,
    RegistryWrite, WriteReply,
};
use crate::control::division::AUTOMATIC_TAG;
use crate::deliberate::{Fault, Faults};
use crate::founding::{Founding, FoundingReplica};
use crate::limits;
use crate::membership::Role;
use crate::placement_policy::MEMBER_POLICY;
use crate::slots::slot_map::SlotMap;
use crate::topology::{Host, HostEntry, Migration, Replica, Shard};
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Version};
use crate::version::ClusterVersion;

/// The state of the prime shard: hosts, shards, replicas and slots.
#[derive(Debug, Default)]
pub struct Registry {
    /// Every node number ever assigned. Entries are never deleted, so no number is assigned twice.
    host_entries: BTreeMap<NodeId, HostEntry>,
    shards: BTreeMap<ShardId, Shard>,
    /// Replicas that exist, are planned, or are being removed.
    replicas: BTreeMap<ReplicaId, Replica>,
    last_replica: ReplicaId,
    last_shard: ShardId,
    slots: SlotMap,
    /// In the order in which they are carried out.
    migrations: BTreeMap<MigrationId, Migration>,
    last_migration: MigrationId,
    /// The version of the cluster, which never falls.
    version: ClusterVersion,
    /// The placement policies that shards inherit; `None` in a cluster of an earlier release, until
    /// an operator sets them.
    default_tags: Option<BTreeMap<String, String>>,
    /// Who may do what. Shared with what checks requests, and replaced by each change.
    access: Arc<Access>,
    /// The cluster's CAs and join tokens. Replaced as a whole by each change.
    authorities: Arc<Authorities>,
    audit: AuditTrail,
    /// Log index of the last change.
    changed: LogIndex,
    /// The first block of the snapshot in progress, until it is taken.
    snapshot: Option<Vec<u8>>,
    /// Audit records of the snapshot in progress that no block contains yet.
    snapshot_audit: AuditTrail,
    faults: Faults,
}

impl Registry {
    /// The initial registry of a cluster: all founders may vote.
    pub fn founded(founding: &Founding) -> Registry {
        let host_entries =
            (1..=founding.founders).map(|node| (NodeId(node), HostEntry::new(HostRole::Voter, None)));
        let shards = (0..=founding.data_shards).map(ShardId);
        let shard = |shard| {
            let mut row = Shard::founded(shard, founding.voters_of(shard));
            if shard != ShardId::PRIME {
                row.tags.clone_from(&founding.shard_tags);
            } else if founding.automatic_division {
                row.tags.insert(AUTOMATIC_TAG.into(), "yes".into());
            }
            (shard, row)
        };
        let replica = |FoundingReplica { replica, shard, node, role }: FoundingReplica| {
            (replica, Replica::founded(shard, node, role))
        };
        let member = |replicas: u64| (String::from(MEMBER_POLICY), replicas.to_string());
        Registry {
            host_entries: host_entries.collect(),
            shards: shards.clone().map(shard).collect(),
            replicas: shards.flat_map(|shard| founding.replicas_of(shard)).map(replica).collect(),
            last_replica: founding.last_replica(),
            last_shard: ShardId(founding.data_shards),
            slots: SlotMap::founded(founding.data_shards),
            default_tags: founding.replicas.map(|replicas| [member(replicas)].into()),
            ..Registry::default()
        }
    }

    /// Applies the change of the entry at `index`, and answers it.
    pub fn apply(&mut self, index: LogIndex, write: RegistryWrite) -> WriteReply {
        if let Some(denial) = self.version_denial(&write) {
            return WriteReply::Denied(denial);
        }
        match write {
            RegistryWrite::RegisterHost(info) => self.register(index, info),
            RegistryWrite::JoinHost(info) => self.join(index, info),
            RegistryWrite::ChangeHost { node, change } => self.change(index, node, change),
            RegistryWrite::Assign { seen, assignments } => self.assign(index, seen, &assignments),
            RegistryWrite::ForgetReplica { replica } => self.forget_replica(index, replica),
            RegistryWrite::TagShard(tags) => self.tag_shard(index, tags.shard, &tags.tags),
            RegistryWrite::AddShard { name, tags } => self.add_shard(index, name, tags),
            RegistryWrite::RemoveShard { shard } => self.remove_shard(index, shard),
            RegistryWrite::Rebalance => self.rebalance(index),
            RegistryWrite::Divide { seen, cause } => self.divide(index, seen, cause),
            RegistryWrite::MoveHotSlots { seen, slots, to } => self.move_hot_slots(index, seen, (&slots, to)),
            RegistryWrite::MoveSlots { slots, to } => self.move_slots(index, &slots, to),
            RegistryWrite::FinishMigration { migration } => self.finish_migration(index, migration),
            RegistryWrite::RaiseVersion { to } => self.raise_version(index, to),
            RegistryWrite::SetDefault { tags } => self.set_default(index, &tags),
            RegistryWrite::Access(write) => self.change_access(index, write),
            RegistryWrite::Authority(write) => self.change_authorities(index, write),
            RegistryWrite::Announce(_) => WriteReply::HostChanged,
            RegistryWrite::Audited(audited) => self.make_audited(index, *audited),
        }
    }

    /// Records an announcement. Refuses another disk under an assigned number.
    pub fn register(&mut self, index: LogIndex, info: HostInfo) -> WriteReply {
        let Some(host_entry) = self.host_entries.get_mut(&info.node) else {
            return WriteReply::Denied(Denial::UnknownHost);
        };
        if host_entry.standing == HostRole::Removed {
            return WriteReply::Denied(Denial::HostRemoved);
        }
        match &mut host_entry.host {
            Some(host) if host.info.uuid != info.uuid => {
                return WriteReply::ConditionFailed { current: Version(host.updated.0) };
            }
            Some(host) if host.info == info => {}
            Some(host) => {
                (host.info, host.updated) = (info, index);
                self.changed = index;
            }
            None => {
                host_entry.host = Some(Host { info, created: index, updated: index });
                self.changed = index;
            }
        }
        WriteReply::Registered
    }

    /// Assigns the next number to a joining host, or returns the number that it already has. With a
    /// default placement, the host may vote at once; without one, it is a learner until an operator
    /// makes it a voter.
    pub fn join(&mut self, index: LogIndex, mut info: HostInfo) -> WriteReply {
        let is_same =
            |host_entry: &HostEntry| host_entry.host.as_ref().is_some_and(|host| host.info.uuid == info.uuid);
        if let Some((&node, host_entry)) =
            self.host_entries.iter().find(|(_, host_entry)| is_same(host_entry))
        {
            if matches!(host_entry.standing, HostRole::Leaving | HostRole::Removed) {
                return WriteReply::Denied(Denial::HostRemoved);
            }
            let replica = self.replica_on(ShardId::PRIME, node);
            let (replica, _) = replica.expect("invariant: every host has a replica of the prime shard");
            return WriteReply::Joined { node, replica };
        }
        let last = self.host_entries.last_key_value().map_or(0, |(node, _)| node.0);
        if self.host_entries.values().filter(|host_entry| host_entry.standing != HostRole::Removed).count()
            >= limits::HOSTS_MAX
        {
            return WriteReply::Denied(Denial::TooManyHosts);
        }
        let node = NodeId(last + 1);
        info.node = node;
        let host = Some(Host { info, created: index, updated: index });
        let role = if self.default_tags.is_some() { HostRole::Voter } else { HostRole::Learner };
        self.host_entries.insert(node, HostEntry::new(role, host));
        self.changed = index;
        let replica = self.add_replica(index, (ShardId::PRIME, node), Role::Learner);
        WriteReply::Joined { node, replica }
    }

    /// Changes the wanted state of a host. The removal of a leaving host can be cancelled until its
    /// replica of the prime shard is being removed.
    pub fn change(&mut self, index: LogIndex, node: NodeId, change: HostChange) -> WriteReply {
        let is_other_voter = |(&other, host_entry): (&NodeId, &HostEntry)| {
            other != node && host_entry.standing == HostRole::Voter
        };
        let has_other_voter = self.host_entries.iter().any(is_other_voter);
        let can_cancel = self.version >= ClusterVersion::WITH_CANCELLED_REMOVALS;
        let can_return = can_cancel && self.keeps_prime_replica(node);
        let Some(host_entry) = self.host_entries.get_mut(&node) else {
            return WriteReply::Denied(Denial::UnknownHost);
        };
        let before = host_entry.clone();
        match (host_entry.standing, change) {
            (HostRole::Removed, HostChange::Removed) => {}
            (HostRole::Removed, _) => return WriteReply::Denied(Denial::HostRemoved),
            (HostRole::Leaving, HostChange::Removed) => host_entry.standing = HostRole::Removed,
            (_, HostChange::Removed) => return WriteReply::Denied(Denial::NotLeaving),
            (HostRole::Leaving, HostChange::Vote | HostChange::Follow) if !can_return => {
                return WriteReply::Denied(Denial::HostRemoved);
            }
            (HostRole::Leaving, HostChange::Drain(false)) if can_cancel => {
                return WriteReply::Denied(Denial::HostLeaves);
            }
            (_, HostChange::Vote) => {
                (host_entry.standing, host_entry.draining, host_entry.is_barred) =
                    (HostRole::Voter, false, false);
            }
            (HostRole::Voter, HostChange::Follow | HostChange::Leave) if !has_other_voter => {
                return WriteReply::Denied(Denial::LastVoter);
            }
            (_, HostChange::Follow) => {
                (host_entry.standing, host_entry.is_barred) = (HostRole::Learner, true)
            }
            (_, HostChange::Leave) => host_entry.standing = HostRole::Leaving,
            (_, HostChange::Drain(draining)) => host_entry.draining = draining,
            (_, HostChange::Dead(is_dead)) => host_entry.is_dead = is_dead,
        }
        let is_removed = host_entry.standing == HostRole::Removed;
        if *host_entry != before {
            host_entry.touch(index);
            self.changed = index;
        }
        if is_removed {
            self.replicas.retain(|_, replica| replica.node != node);
        }
        WriteReply::HostChanged
    }

    /// Whether a host has a replica of the prime shard that is not being removed. One that is being
    /// removed cannot come back under its number, and the registry never adds another one of this
    /// shard for the same host.
    fn keeps_prime_replica(&self, node: NodeId) -> bool {
        let replica = self.replica_on(ShardId::PRIME, node);
        let is_kept = replica.is_some_and(|(_, row)| row.wanted.is_some());
        is_kept || self.faults.has(Fault::RemovalCancelledTooLate)
    }

    fn change_access(&mut self, index: LogIndex, write: AccessWrite) -> WriteReply {
        match self.access.changed(index, write) {
            Ok(access) => {
                self.access = Arc::new(access);
                self.changed = index;
                WriteReply::AccessChanged { revision: index }
            }
            Err(reply) => reply,
        }
    }

    fn change_authorities(&mut self, index: LogIndex, write: AuthorityWrite) -> WriteReply {
        // The host chooses its uuid. It must not obtain a certificate for an existing host.
        if let AuthorityChange::Enrol { host, .. } = write.change
            && self.host_entries.values().any(|entry| entry.is_host(host))
        {
            return WriteReply::Denied(Denial::HostIsMember);
        }
        match self.authorities.changed(write, self.faults) {
            Ok(authorities) => {
                if authorities != *self.authorities {
                    self.authorities = Arc::new(authorities);
                    self.changed = index;
                }
                WriteReply::HostChanged
            }
            Err(denial) => WriteReply::Denied(denial),
        }
    }

    /// The cluster's CAs and join tokens.
    pub fn authorities(&self) -> &Arc<Authorities> {
        &self.authorities
    }

    /// Removes roles, principals, tokens, certificate authorities and join tokens.
    pub(crate) fn remove_secrets(&mut self) {
        (self.access, self.authorities) = Default::default();
    }

    /// Applies a change, and appends an audit record if the change had an effect.
    fn make_audited(&mut self, index: LogIndex, audited: AuditedWrite) -> WriteReply {
        let AuditedWrite { at, caller, change } = audited;
        let action = change.audit_action().filter(|_| self.version >= ClusterVersion::WITH_AUDIT);
        let (subject, is_announced) = (change.audit_subject(), matches!(change, RegistryWrite::Announce(_)));
        // Index 0 marks that the change had no effect: no entry has it. The entry's own index
        // cannot serve, because an earlier change in the same entry may have set it.
        let before = core::mem::take(&mut self.changed);
        let reply = self.apply(index, change);
        let is_made = self.changed != LogIndex(0);
        if !is_made {
            self.changed = before;
        }
        if let Some(action) = action.filter(|_| is_made || is_announced) {
            self.audit.append(AuditRecord { sequence: 0, index, at, caller, action: action.into(), subject });
        }
        reply
    }

    /// Whether a change must be rejected because it lacks the envelope with its caller. The leader
    /// proposed it before it had applied the cluster version that introduces audit records.
    pub(crate) fn lacks_record(&self, write: &RegistryWrite) -> bool {
        self.version >= ClusterVersion::WITH_AUDIT
            && write.is_audited()
            && !self.faults.has(Fault::AuditRecordLost)
    }

    /// The records of administrative changes.
    pub fn audit(&self) -> &AuditTrail {
        &self.audit
    }

    /// The audit records, for restoring the blocks of a snapshot.
    pub(crate) fn audit_mut(&mut self) -> &mut AuditTrail {
        &mut self.audit
    }

    /// Who may do what.
    pub fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Sets the deliberate faults of the state.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Log index of the last change; 0 before the first.
    pub fn changed(&self) -> LogIndex {
        self.changed
    }

    /// All node numbers ever assigned.
    pub fn host_entries(&self) -> &BTreeMap<NodeId, HostEntry> {
        &self.host_entries
    }

    /// The host registered under a number, if any.
    pub fn host(&self, node: NodeId) -> Option<&Host> {
        self.host_entries.get(&node)?.host.as_ref()
    }

    /// Every shard, by number.
    pub fn shards(&self) -> &BTreeMap<ShardId, Shard> {
        &self.shards
    }

    /// All replicas that exist, are planned, or are being removed.
    pub fn replicas(&self) -> &BTreeMap<ReplicaId, Replica> {
        &self.replicas
    }

    /// The highest assigned numbers of a replica and of a shard.
    pub fn last_numbers(&self) -> (ReplicaId, ShardId) {
        (self.last_replica, self.last_shard)
    }

    /// The placement policies that a shard inherits.
    pub(crate) fn default_of(&self, shard: ShardId) -> Option<&BTreeMap<String, String>> {
        let is_new = self.shards.get(&shard).is_some_and(|row| row.created > LogIndex(0));
        if is_new && self.faults.has(Fault::DefaultIgnoredByNewShards) {
            return None;
        }
        self.default_tags()
    }

    /// Returns the slot map: which shard holds which slots.
    pub fn slots(&self) -> &SlotMap {
        &self.slots
    }

    /// All tables, for display.
    pub fn view(&self) -> RegistryView {
        RegistryView {
            index: self.changed,
            host_entries: self
                .host_entries
                .iter()
                .map(|(&node, host_entry)| (node, host_entry.clone()))
                .collect(),
            shards: self.shards.iter().map(|(&shard, row)| (shard, row.clone())).collect(),
            replicas: self.replicas.iter().map(|(&replica, row)| (replica, row.clone())).collect(),
            last_replica: self.last_replica,
            last_shard: self.last_shard,
            slots: self.slots.clone(),
            migrations: self.migrations.iter().map(|(&id, row)| (id, row.clone())).collect(),
            last_migration: self.last_migration,
            default_tags: self.default_tags.clone(),
        }
    }

    /// The replica of a shard on a node, including one that is being removed.
    pub fn replica_on(&self, shard: ShardId, node: NodeId) -> Option<(ReplicaId, &Replica)> {
        let found = self.replicas.iter().find(|(_, replica)| replica.shard == shard && replica.node == node);
        found.map(|(&id, replica)| (id, replica))
    }

    /// Number of registered hosts.
    pub fn record_count(&self) -> u64 {
        self.host_entries.values().filter(|host_entry| host_entry.host.is_some()).count() as u64
    }

    /// A checksum over all tables.
    pub fn digest(&self) -> u64 {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        let mut encoded = Vec::new();
        self.encode(&mut encoded);
        self.audit.encode(&mut encoded);
        CRC.checksum(&encoded)
    }
}
