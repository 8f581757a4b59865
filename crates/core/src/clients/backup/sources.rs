//! The nodes from which a backup takes the snapshots of its shards.
//!
//! Owns which node is chosen for each shard, what is read of it, and why it gives nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::BackupFailure;
use crate::command::{ClusterView, ReplicaView, ShardView};
use crate::event::ShardStatus;
use crate::slots::slot_set::SlotSet;
use crate::storage::snapshot::SnapshotId;
use crate::types::{LogIndex, MigrationId, NodeId, ShardId, Term};

/// The snapshot of a replica and what decides whether a backup can use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// The shard that the replica belongs to.
    pub shard: ShardId,
    /// Highest index applied.
    pub applied: LogIndex,
    /// The newest durable snapshot; `None` before the first one.
    pub snapshot: Option<SnapshotId>,
    /// Whether a snapshot is being made.
    pub makes_snapshot: bool,
    /// The last move of slots in which the replica took part; 0: none.
    pub last_move: MigrationId,
    /// Whether that move is unfinished on this replica.
    pub is_moving: bool,
    /// The slots that the replica owns; `None` for the prime shard, and on a node of an earlier
    /// release, which does not report them.
    pub slots: Option<SlotSet>,
}

impl From<&ShardStatus> for SnapshotStatus {
    fn from(status: &ShardStatus) -> SnapshotStatus {
        SnapshotStatus {
            shard: status.shard,
            applied: status.applied,
            snapshot: status.snapshot,
            makes_snapshot: status.makes_snapshot,
            last_move: status.last_move,
            is_moving: status.is_moving,
            slots: status.slots.clone(),
        }
    }
}

/// Why a node hands out no snapshots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The files of the snapshots cannot be opened, most likely because newer snapshots have
    /// replaced them.
    #[error("its snapshots cannot be opened: {0}")]
    Open(String),
    /// It does not answer, or not what it was asked for.
    #[error("{0}")]
    NoAnswer(String),
    /// It has no snapshot of the shard that is new enough, and makes none.
    #[error("it has no snapshot that is new enough")]
    NoSnapshot,
    /// It has no replica of the shard.
    #[error("it has no replica")]
    NoReplica,
}

/// The progress of a shard's snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotProgress {
    Finished(SnapshotId),
    Making,
    /// The entry is not applied here yet.
    Behind,
    /// The entry was applied, but no snapshot was made.
    Absent,
}

pub(super) fn progress(status: &SnapshotStatus, wanted: LogIndex) -> SnapshotProgress {
    match status.snapshot {
        _ if wanted == LogIndex(0) => {
            SnapshotProgress::Finished(SnapshotId { shard: status.shard, index: wanted, term: Term(0) })
        }
        Some(id) if id.index >= wanted => SnapshotProgress::Finished(id),
        _ if status.applied < wanted => SnapshotProgress::Behind,
        _ if status.makes_snapshot => SnapshotProgress::Making,
        _ => SnapshotProgress::Absent,
    }
}

/// The chosen node of each shard, and the replicas that were tried in vain.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The node that makes the backup.
    own: NodeId,
    chosen: BTreeMap<ShardId, NodeId>,
    failed: BTreeMap<(ShardId, NodeId), BackupFailure>,
}

impl Sources {
    /// Chooses a node for each shard of the cluster. Every node has a replica of the prime shard,
    /// and only by its own snapshot of that shard does a node know which shards the backup needs,
    /// so no other node is asked for it.
    ///
    /// # Errors
    /// Why a shard has no replica that is left to try.
    pub fn choose(&mut self, view: &ClusterView) -> Result<(), BackupFailure> {
        self.own = view.node;
        self.chosen.clear();
        for shard in &view.shards {
            let replicas = view.replicas.iter().filter(|replica| {
                let may_be_asked = replica.node == self.own || shard.shard != ShardId::PRIME;
                let is_left = !self.failed.contains_key(&(shard.shard, replica.node));
                replica.shard == shard.shard && may_be_asked && is_left
            });
            let best = replicas.max_by_key(|replica| preference(view, shard, replica));
            let best = best.ok_or_else(|| self.failure(shard.shard))?;
            self.chosen.insert(shard.shard, best.node);
        }
        Ok(())
    }

    /// The node that makes the backup.
    pub fn own(&self) -> NodeId {
        self.own
    }

    /// The nodes that are asked, by number.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.chosen.values().copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The shards that get a snapshot, by number.
    pub fn shards(&self) -> Vec<ShardId> {
        self.chosen.keys().copied().collect()
    }

    /// The shards whose snapshots come from a node.
    pub fn shards_of(&self, node: NodeId) -> impl Iterator<Item = ShardId> {
        self.chosen.iter().filter(move |(_, source)| **source == node).map(|(shard, _)| *shard)
    }

    /// Excludes one replica of a node, or all for which it was asked.
    pub fn exclude(&mut self, node: NodeId, only: Option<ShardId>, error: &SourceError) {
        let shards: Vec<ShardId> = only.map_or_else(|| self.shards_of(node).collect(), |shard| vec![shard]);
        for shard in shards {
            let failure = BackupFailure::Source { node, shard, error: error.clone() };
            self.failed.insert((shard, node), failure);
        }
    }

    /// Why no replica of a shard is left.
    fn failure(&self, shard: ShardId) -> BackupFailure {
        let mut failures = self.failed.range((shard, NodeId(0))..=(shard, NodeId(u64::MAX)));
        failures.next().map_or(BackupFailure::NoReplica(shard), |(_, failure)| failure.clone())
    }
}

/// Orders replicas: the own one needs no network, and the leader has applied most.
fn preference(
    view: &ClusterView,
    shard: &ShardView,
    replica: &ReplicaView,
) -> (bool, bool, bool, Option<LogIndex>) {
    let is_connected = view.hosts.iter().any(|host| host.info.node == replica.node && host.connected);
    let (is_own, leads) = (replica.node == view.node, shard.leader == Some(replica.node));
    (is_own, is_connected, leads, replica.applied)
}
