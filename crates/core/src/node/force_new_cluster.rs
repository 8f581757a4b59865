//! Recovery after the permanent loss of a majority: one node continues alone, with the state on its
//! own disk.
//!
//! Owns the log entries that do this. They are appended to the node's log and marked as committed
//! without any vote. Entries that only the lost nodes held are gone, acknowledged or not, and
//! uncommitted entries of this log become committed. Only an operator can decide this; it never
//! happens automatically. The shell first gives the node a new cluster id, so that no node of the
//! old cluster accepts it as a peer.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::auth::Caller;
use crate::command::{AuditedWrite, HostChange, RegistryWrite, Write};
use crate::founding::Founding;
use crate::membership::{MembershipChange, Role};
use crate::raft;
use crate::storage::{LogEntry, RecoveredShard, RecoveredShards, ReplicaIncarnation, WalRecord};
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Term, UnixMillis};
use crate::version::ClusterVersion;

/// The surviving node and the lost ones.
#[derive(Clone, Copy, Debug)]
pub struct Survivor<'a> {
    /// The node that continues as the only member of every shard.
    pub node: NodeId,
    /// All other nodes that may ever have existed.
    pub lost: &'a [NodeId],
    /// The founding of the cluster.
    pub founding: &'a Founding,
    /// The version that the data directory has recorded.
    pub version: ClusterVersion,
    /// Time of the operator's command, for the audit records.
    pub now: UnixMillis,
}

/// Appends entries to every recovered log that make the survivor the only replica of its shards and
/// the only host of the registry. Returns the records that must be durable in the write-ahead log
/// before the node starts with `shards`.
pub fn force_new_cluster(shards: &mut RecoveredShards, survivor: Survivor<'_>) -> Vec<WalRecord> {
    let mut records = Vec::new();
    for shard in (0..=survivor.founding.data_shards).map(ShardId) {
        shards.entry(shard).or_default();
    }
    for (&shard, recovered) in shards.iter_mut() {
        let Some(members) = members(survivor, shard, recovered) else { continue };
        let snapshot = recovered.snapshot.as_ref().map(|snapshot| snapshot.id);
        let (base, base_term) = snapshot.map_or_else(Default::default, |id| (id.index, id.term));
        let log = &mut recovered.log;
        let last = log.entries.last().map_or(base, |entry| entry.index);
        log.hard_state.term = log.hard_state.term.max(base_term).max(Term(1));
        let data = changes(survivor.node, members)
            .into_iter()
            .map(|change| raft::encode_change(&change, LogIndex(0)))
            .chain((shard == ShardId::PRIME).then(|| raft::encode_writes(&departures(survivor))));
        let term = log.hard_state.term;
        let entries: Vec<LogEntry> = data
            .zip(last.0 + 1..)
            .map(|(data, index)| LogEntry { index: LogIndex(index), term, data })
            .collect();
        log.hard_state.commit = entries.last().map_or(last, |entry| entry.index);
        log.entries.extend(entries.iter().cloned());
        records.push(WalRecord::Entries { shard, entries });
        records.push(WalRecord::HardState { shard, state: log.hard_state });
    }
    records
}

/// Every replica that may belong to the shard according to the snapshot and the log; `None` if the
/// survivor has no replica of it. Such a shard is lost.
fn members(
    survivor: Survivor<'_>,
    shard: ShardId,
    recovered: &RecoveredShard,
) -> Option<BTreeMap<ReplicaId, NodeId>> {
    let founding = match &recovered.log.incarnation {
        Some(ReplicaIncarnation::Ended(_)) => return None,
        Some(ReplicaIncarnation::Begun { founding, .. }) => founding.clone(),
        None => survivor.founding.voters_of(shard),
    };
    let mut members: BTreeMap<ReplicaId, NodeId> = match &recovered.snapshot {
        Some(snapshot) => snapshot.membership.nodes.clone(),
        None => founding.into_iter().collect(),
    };
    for entry in &recovered.log.entries {
        if let Some(MembershipChange::Join(replica, node)) = raft::changes_of(&entry.data) {
            members.insert(replica, node);
        }
    }
    members.values().any(|node| *node == survivor.node).then_some(members)
}

/// Changes one vote at a time, because a joint configuration would need the lost majority. A change
/// that does not apply has no effect, so it need not be known which of them apply.
fn changes(own: NodeId, members: BTreeMap<ReplicaId, NodeId>) -> Vec<MembershipChange> {
    // If this node had several replicas of the shard, one after the other, the last one is current.
    let last = members.iter().rev().find(|(_, node)| **node == own).map(|(replica, _)| *replica);
    let mut changes = vec![MembershipChange::LeaveJoint];
    changes.extend(last.map(|replica| MembershipChange::Roles(vec![(replica, Some(Role::Voter))])));
    let lost = members.into_keys().filter(|replica| Some(*replica) != last);
    changes.extend(lost.map(|replica| MembershipChange::Roles(vec![(replica, None)])));
    changes
}

/// Wraps a change with its caller, as the registry requires once it keeps audit records.
fn audit_own(survivor: Survivor<'_>, change: RegistryWrite) -> Write {
    if survivor.version < ClusterVersion::WITH_AUDIT || !change.is_audited() {
        return change.into();
    }
    let audited = AuditedWrite { at: survivor.now, caller: Caller::Node, change };
    RegistryWrite::Audited(Box::new(audited)).into()
}

fn departures(survivor: Survivor<'_>) -> Vec<Write> {
    let own = RegistryWrite::ChangeHost { node: survivor.node, change: HostChange::Vote };
    let lost = survivor.lost.iter().flat_map(|&node| {
        [HostChange::Leave, HostChange::Removed].map(|change| RegistryWrite::ChangeHost { node, change })
    });
    let changes = [own].into_iter().chain(lost);
    changes.map(|change| audit_own(survivor, change)).collect()
}
