//! What is done when a majority is lost for good: one node goes on alone, with what its own disk holds.
//!
//! Owns the entries that make it so. They are put at the end of the node's log and called committed, without a vote by
//! anybody: whatever the lost nodes held beyond this log is gone, acknowledged or not, and what stands in this log
//! uncommitted becomes true. That is for an operator to decide; nothing here is ever done by itself. The shell gives the
//! node a new cluster id first, so that no node of the old cluster takes it for one of its own.

use alloc::vec;
use alloc::vec::Vec;

use crate::command::{HostChange, Write};
use crate::control::numbering::Numbering;
use crate::membership::{MembershipChange, Role};
use crate::raft;
use crate::storage::{LogEntry, RecoveredShards, WalRecord};
use crate::types::{LogIndex, NodeId, ShardId, Term};

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
    let numbering = Numbering::new(survivor.founders, survivor.data_shards);
    let mut records = Vec::new();
    for shard in (0..=survivor.data_shards).map(ShardId) {
        let recovered = shards.entry(shard).or_default();
        let snapshot = recovered.snapshot.as_ref().map(|snapshot| snapshot.id);
        let (base, base_term) = snapshot.map_or_else(Default::default, |id| (id.index, id.term));
        let log = &mut recovered.log;
        let last = log.entries.last().map_or(base, |entry| entry.index);
        log.hard_state.term = log.hard_state.term.max(base_term).max(Term(1));
        let data = changes(survivor, numbering, shard)
            .map(|change| raft::encode_change(&change))
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

/// One vote at a time: a joint configuration would need the majority that is lost. A change that does not fit changes
/// nothing, so it need not be known which of them do.
fn changes(
    survivor: Survivor<'_>,
    numbering: Numbering,
    shard: ShardId,
) -> impl Iterator<Item = MembershipChange> {
    let own = numbering.replica(shard, survivor.node);
    let lost = survivor.lost.iter().map(move |&node| (numbering.replica(shard, node), None));
    let roles = [(own, Some(Role::Voter))].into_iter().chain(lost);
    [MembershipChange::LeaveJoint].into_iter().chain(roles.map(|role| MembershipChange::Roles(vec![role])))
}

fn departures(survivor: Survivor<'_>) -> Vec<Write> {
    let own = Write::ChangeHost { node: survivor.node, change: HostChange::Vote };
    let lost = survivor.lost.iter().flat_map(|&node| {
        [HostChange::Leave, HostChange::Removed].map(|change| Write::ChangeHost { node, change })
    });
    [own].into_iter().chain(lost).collect()
}
