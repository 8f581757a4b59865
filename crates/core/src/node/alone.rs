//! What is done when a majority is lost for good: one node goes on alone, with what its own disk holds.
//!
//! Owns the entries that make it so. They are put at the end of the node's log and called committed, without a vote by
//! anybody: whatever the lost nodes held beyond this log is gone, acknowledged or not, and what stands in this log
//! uncommitted becomes true. That is for an operator to decide; nothing here is ever done by itself. The shell gives the
//! node a new cluster id first, so that no node of the old cluster takes it for one of its own.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::command::{HostChange, Write};
use crate::membership::{MembershipChange, Role, founding_replicas};
use crate::raft;
use crate::storage::{LogEntry, RecoveredShard, RecoveredShards, Tenure, WalRecord};
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Term};

/// Who goes on, and who does not.
#[derive(Clone, Copy, Debug)]
pub struct Survivor<'a> {
    /// The node that goes on.
    pub node: NodeId,
    /// All others that there may ever have been.
    pub lost: &'a [NodeId],
    /// How many nodes founded the cluster.
    pub founders: u64,
    /// How many data shards it has.
    pub data_shards: u64,
}

/// Ends every recovered log so that the survivor alone replicates its shard, and the prime one so that it alone is a
/// host. Returns the records that must be durable in the write-ahead log before the node starts on `shards`.
pub fn go_on_alone(shards: &mut RecoveredShards, survivor: Survivor<'_>) -> Vec<WalRecord> {
    let mut records = Vec::new();
    for shard in (0..=survivor.data_shards).map(ShardId) {
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

/// Every replica that may be one of the shard's, as far as snapshot and log tell; `None` if it is not replicated here. What
/// the survivor does not carry is lost.
fn members(
    survivor: Survivor<'_>,
    shard: ShardId,
    recovered: &RecoveredShard,
) -> Option<BTreeMap<ReplicaId, NodeId>> {
    let founding = match &recovered.log.tenure {
        Some(Tenure::Ended(_)) => return None,
        Some(Tenure::Begun { founding, .. }) => founding.clone(),
        None => founding_replicas(shard, survivor.founders),
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

/// One vote at a time: a joint configuration would need the majority that is lost. A change that does not fit changes
/// nothing, so it need not be known which of them do.
fn changes(own: NodeId, members: BTreeMap<ReplicaId, NodeId>) -> Vec<MembershipChange> {
    // A shard that had several replicas on this node, one after the other, has the last one.
    let last = members.iter().rev().find(|(_, node)| **node == own).map(|(replica, _)| *replica);
    let mut changes = vec![MembershipChange::LeaveJoint];
    changes.extend(last.map(|replica| MembershipChange::Roles(vec![(replica, Some(Role::Voter))])));
    let lost = members.into_keys().filter(|replica| Some(*replica) != last);
    changes.extend(lost.map(|replica| MembershipChange::Roles(vec![(replica, None)])));
    changes
}

fn departures(survivor: Survivor<'_>) -> Vec<Write> {
    let own = Write::ChangeHost { node: survivor.node, change: HostChange::Vote };
    let lost = survivor.lost.iter().flat_map(|&node| {
        [HostChange::Leave, HostChange::Removed].map(|change| Write::ChangeHost { node, change })
    });
    [own].into_iter().chain(lost).collect()
}
