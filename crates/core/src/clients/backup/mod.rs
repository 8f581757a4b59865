//! Selection of the snapshots that make up a backup.
//!
//! Owns which snapshots are consistent with each other, and which nodes they come from. Each is at
//! or after a checkpoint that was appended to the shard's log after the request arrived. So the
//! backup contains everything acknowledged before the request. A stale backup has no checkpoint: it
//! is what its sources have applied. The node that is asked is the source of every shard of which
//! it has a replica. For each other shard it asks a node that has one, preferably the leader.
//!
//! Keys must be in the backup exactly once, so no slots may move between the snapshots of two
//! shards. Each shard's own log records moves, and a source has applied all of a snapshot's log by
//! the time it has the snapshot. So the machine compares the last move of each shard, at its
//! source, before the first checkpoint and after the last snapshot was opened: if they are equal,
//! no snapshot is from before a move and none from after it. It makes no difference when, within
//! these bounds, each source is read, or how far its replica is behind. A replica that has not
//! applied a move before a checkpoint, although another shard has, applies it before its snapshot,
//! which makes the two values of that shard differ.
//!
//! A stale backup has no checkpoints, so this does not hold for it: a partitioned source may not
//! apply a move that the source of the other shard has applied, and both values stay the same. So
//! the machine also checks that each slot is owned by exactly one of the replicas.
//!
//! A node that is behind may not know a shard to which slots have moved. By the time it has the
//! snapshot of the prime shard, it knows all shards from before the request, so the machine asks
//! for them again.
//!
//! A source that does not answer, or has no snapshot, is replaced by another replica of the shard.
//! The selection then begins again, because the values from before the checkpoints count only at
//! the source of the snapshot.
//!
//! The shell asks the other nodes, opens the files and sends them; see
//! [`GatheredBackup`](crate::storage::backup::GatheredBackup).

mod sources;
#[cfg(test)]
pub(super) mod tests;

use alloc::vec;
use alloc::vec::Vec;

use self::sources::{SnapshotProgress, Sources, progress};
pub use self::sources::{SnapshotStatus, SourceError};
use super::asking::{self, Unanswered};
use super::checkpoint;
use crate::command::{ClusterView, Reply, Request};
use crate::deliberate::{Fault, Faults};
use crate::slots::slot_set::SlotSet;
use crate::storage::snapshot::SnapshotId;
use crate::types::{LogIndex, MigrationId, NodeId, ShardId};

/// Shortest time in milliseconds between two checks whether the snapshots are finished.
const POLL_INTERVAL_MS: u64 = 10;

/// Longest time in milliseconds between two such checks, each of which asks all sources.
const POLL_INTERVAL_MS_MAX: u64 = 250;

/// The share of the time waited so far after which the next check follows.
const POLL_SHARE: u64 = 4;

/// Maximum time in milliseconds until a source has applied what is committed. Making a snapshot has
/// no time limit.
const CATCH_UP_TIMEOUT_MS: u64 = 30_000;

/// How often opening is tried, because newer snapshots replaced those found.
const OPENS_MAX: usize = 5;

/// How often the selection begins again, because a source failed or the shards changed.
const RESTARTS_MAX: usize = 8;

/// The next action of a [`BackupRequest`]. An action at several nodes is carried out at all of them
/// at the same time or in any order, and its results are reported together, in the order of the
/// nodes. One of the nodes may be the one that makes the backup.
#[derive(Debug)]
pub enum BackupAction {
    /// Submit all of these to this node, then report all replies to [`BackupRequest::answered`].
    Ask(Vec<Request>),
    /// Report the status of all replicas of these nodes to [`BackupRequest::statuses`].
    ReadStatuses {
        /// The nodes to ask.
        nodes: Vec<NodeId>,
        /// Time to wait before, in milliseconds.
        after_ms: u64,
    },
    /// Submit [`Request::SnapshotHere`] to these nodes, and report the snapshots that they name to
    /// [`BackupRequest::begun`].
    BeginSnapshots(Vec<NodeId>),
    /// Open the files of these snapshots at each node, and report the results to
    /// [`BackupRequest::opened`]. Index 0 stands for a shard without state.
    Open(Vec<(NodeId, Vec<SnapshotId>)>),
    /// The result. If it is a success, the snapshots opened last are the backup.
    Done(Result<(), BackupFailure>),
}

/// Why no backup is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackupFailure {
    /// Slots move, or moved meanwhile: the snapshots of two shards could contain the keys of a slot
    /// twice, or not at all.
    #[error("slots are on their way between shards")]
    SlotsMoving,
    /// The sources of a stale backup have applied different moves of slots: their snapshots would
    /// contain the keys of a slot twice, or not at all.
    #[error("some nodes have not applied the last moves of slots")]
    SlotMapsDiffer,
    /// No node is known to have a replica of the shard.
    #[error("no node is known to have a replica of shard {0}")]
    NoReplica(ShardId),
    /// No source of the shard has a snapshot for the backup. This is the failure of one of them.
    #[error("node {node} gives no snapshot of shard {shard}: {error}")]
    Source {
        /// The source.
        node: NodeId,
        /// The shard.
        shard: ShardId,
        /// Why it gives none.
        error: SourceError,
    },
    /// Shards were added, or sources failed, again and again.
    #[error("shards and their replicas keep changing")]
    Changing,
    /// A request has no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// Selects the snapshots of one backup.
#[derive(Debug)]
pub struct BackupRequest {
    is_stale: bool,
    phase: BackupPhase,
    sources: Sources,
    /// The last slot move of each shard at its source, before the checkpoints.
    moves_before: Vec<LastMove>,
    /// The index that each shard's snapshot must contain, by number of the shard.
    wanted: Vec<(ShardId, LogIndex)>,
    /// When the machine began to wait for the present snapshots.
    waits_since_ms: Option<u64>,
    opens: usize,
    restarts: usize,
    faults: Faults,
}

/// The last slot move of a shard, at its source.
type LastMove = (NodeId, ShardId, MigrationId);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BackupPhase {
    /// Chooses a source for every shard.
    Sources,
    /// Reads the slot moves before the checkpoints.
    MovesBefore,
    Checkpoints,
    /// Begins snapshots of what the sources have applied.
    SnapshotsHere,
    /// Waits for the snapshots.
    Snapshots,
    Opening,
    /// Checks that there is a snapshot of every shard with slots.
    ShardsWithSlots,
    /// Reads the slot moves after the snapshots were opened.
    MovesAfter,
}

impl BackupRequest {
    /// Begins the selection. A stale backup is what its sources have applied, without consensus.
    pub fn begin(is_stale: bool, faults: Faults) -> (BackupRequest, BackupAction) {
        let request = BackupRequest {
            is_stale,
            phase: BackupPhase::Sources,
            sources: Sources::default(),
            moves_before: Vec::new(),
            wanted: Vec::new(),
            waits_since_ms: None,
            opens: 0,
            restarts: 0,
            faults,
        };
        (request, BackupAction::Ask(vec![Request::Cluster]))
    }

    /// Takes the replies to the requests of the last action.
    pub fn answered(&mut self, replies: Vec<Reply>) -> BackupAction {
        let next = match self.phase {
            BackupPhase::Checkpoints => checkpoint::indexes(self.sources.shards(), replies).map(|wanted| {
                self.wanted = wanted;
                self.look_for_snapshots()
            }),
            BackupPhase::ShardsWithSlots => {
                asking::cluster_view(replies).map(|view| self.check_shards_with_slots(&view))
            }
            _ => asking::cluster_view(replies).map(|view| match self.sources.choose(&view) {
                Ok(()) => self.read_statuses(BackupPhase::MovesBefore, 0),
                Err(failure) => BackupAction::Done(Err(failure)),
            }),
        };
        next.unwrap_or_else(|error| BackupAction::Done(Err(error.into())))
    }

    /// Takes the statuses of the replicas of each source, at a time by any clock that never goes
    /// back.
    pub fn statuses(
        &mut self,
        now_ms: u64,
        results: Vec<Result<Vec<SnapshotStatus>, SourceError>>,
    ) -> BackupAction {
        let mut found = match self.of_sources(results) {
            Ok(found) => found,
            Err(next) => return next,
        };
        if self.phase == BackupPhase::Snapshots {
            return self.await_snapshots(now_ms, &found);
        }
        if self.phase == BackupPhase::MovesBefore {
            return match settled_moves(&found) {
                Some(moves) => {
                    self.moves_before = moves;
                    self.begin_snapshots()
                }
                None => BackupAction::Done(Err(BackupFailure::SlotsMoving)),
            };
        }
        if self.faults.has(Fault::BackupIgnoresMovesElsewhere) {
            let own = self.sources.own();
            found.retain(|(node, _)| *node == own);
            self.moves_before.retain(|(node, ..)| *node == own);
        }
        let is_same = settled_moves(&found).as_ref() == Some(&self.moves_before);
        BackupAction::Done(if !is_same {
            Err(BackupFailure::SlotsMoving)
        } else if self.is_stale
            && !is_each_slot_owned_once(&found)
            && !self.faults.has(Fault::StaleBackupOfTwoSlotMaps)
        {
            Err(BackupFailure::SlotMapsDiffer)
        } else {
            Ok(())
        })
    }

    /// Takes the snapshots that each source has begun.
    pub fn begun(&mut self, results: Vec<Result<Vec<(ShardId, LogIndex)>, SourceError>>) -> BackupAction {
        let mut wanted = Vec::new();
        for (node, result) in self.sources.nodes().into_iter().zip(results) {
            let begun = match result {
                Ok(begun) => begun,
                Err(error) => return self.without(node, None, &error),
            };
            for shard in self.sources.shards_of(node).collect::<Vec<_>>() {
                match begun.iter().find(|(of, _)| *of == shard) {
                    Some(snapshot) => wanted.push(*snapshot),
                    None => return self.without(node, Some(shard), &SourceError::NoReplica),
                }
            }
        }
        wanted.sort_unstable();
        self.wanted = wanted;
        self.look_for_snapshots()
    }

    /// Takes the result of opening at each node. Newer snapshots may have replaced those found.
    pub fn opened(&mut self, results: Vec<Result<(), SourceError>>) -> BackupAction {
        self.opens += 1;
        let failed = self.sources.nodes().into_iter().zip(results);
        let failed = failed.filter_map(|(node, result)| result.err().map(|error| (node, error)));
        // A node that does not answer will not do so at the next attempt, either.
        let failed = failed.max_by_key(|(_, error)| !matches!(error, SourceError::Open(_)));
        match failed {
            None if self.faults.has(Fault::BackupOfTwoSlotMaps) => BackupAction::Done(Ok(())),
            None => {
                self.phase = BackupPhase::ShardsWithSlots;
                BackupAction::Ask(vec![Request::Cluster])
            }
            Some((_, SourceError::Open(_))) if self.opens < OPENS_MAX => self.look_for_snapshots(),
            Some((node, error)) => self.without(node, None, &error),
        }
    }

    /// The status of each source's replica of its shards, by number of the shard. `Err`: the next
    /// action, because a source has no replica or does not answer.
    fn of_sources(
        &mut self,
        results: Vec<Result<Vec<SnapshotStatus>, SourceError>>,
    ) -> Result<Vec<(NodeId, SnapshotStatus)>, BackupAction> {
        let mut found = Vec::new();
        for (node, result) in self.sources.nodes().into_iter().zip(results) {
            let statuses = result.map_err(|error| self.without(node, None, &error))?;
            for shard in self.sources.shards_of(node).collect::<Vec<_>>() {
                let status = statuses.iter().find(|status| status.shard == shard);
                let status =
                    status.ok_or_else(|| self.without(node, Some(shard), &SourceError::NoReplica))?;
                found.push((node, status.clone()));
            }
        }
        found.sort_unstable_by_key(|(_, status)| status.shard);
        Ok(found)
    }

    /// Begins again without replicas of a node: that of one shard, or all for which it was asked.
    fn without(&mut self, node: NodeId, only: Option<ShardId>, error: &SourceError) -> BackupAction {
        self.sources.exclude(node, only, error);
        self.begin_again()
    }

    fn begin_again(&mut self) -> BackupAction {
        self.restarts += 1;
        if self.restarts > RESTARTS_MAX {
            return BackupAction::Done(Err(BackupFailure::Changing));
        }
        self.opens = 0;
        self.phase = BackupPhase::Sources;
        BackupAction::Ask(vec![Request::Cluster])
    }

    /// Begins again if the backup would lack a shard.
    fn check_shards_with_slots(&mut self, view: &ClusterView) -> BackupAction {
        let is_wanted = |shard| self.wanted.iter().any(|(wanted, _)| *wanted == shard);
        if view.shards.iter().any(|shard| shard.slots > 0 && !is_wanted(shard.shard)) {
            return self.begin_again();
        }
        self.read_statuses(BackupPhase::MovesAfter, 0)
    }

    fn read_statuses(&mut self, phase: BackupPhase, after_ms: u64) -> BackupAction {
        self.phase = phase;
        BackupAction::ReadStatuses { nodes: self.sources.nodes(), after_ms }
    }

    fn begin_snapshots(&mut self) -> BackupAction {
        if self.is_stale {
            self.phase = BackupPhase::SnapshotsHere;
            return BackupAction::BeginSnapshots(self.sources.nodes());
        }
        self.phase = BackupPhase::Checkpoints;
        BackupAction::Ask(checkpoint::requests(&self.sources.shards()))
    }

    fn look_for_snapshots(&mut self) -> BackupAction {
        self.waits_since_ms = None;
        self.read_statuses(BackupPhase::Snapshots, 0)
    }

    /// Opens the snapshots, if there is one of every shard up to the wanted index.
    fn await_snapshots(&mut self, now_ms: u64, found: &[(NodeId, SnapshotStatus)]) -> BackupAction {
        let since_ms = *self.waits_since_ms.get_or_insert(now_ms);
        let waited_ms = now_ms.saturating_sub(since_ms);
        let mut finished = Vec::with_capacity(found.len());
        for ((node, status), (shard, index)) in found.iter().zip(&self.wanted) {
            assert_eq!(status.shard, *shard, "invariant: each shard has a source and a wanted index");
            match progress(status, *index) {
                SnapshotProgress::Finished(id) => finished.push((*node, id)),
                SnapshotProgress::Making => {}
                SnapshotProgress::Behind if waited_ms < CATCH_UP_TIMEOUT_MS => {}
                SnapshotProgress::Behind | SnapshotProgress::Absent => {
                    return self.without(*node, Some(*shard), &SourceError::NoSnapshot);
                }
            }
        }
        if finished.len() < self.wanted.len() {
            let after_ms = (waited_ms / POLL_SHARE).clamp(POLL_INTERVAL_MS, POLL_INTERVAL_MS_MAX);
            return self.read_statuses(BackupPhase::Snapshots, after_ms);
        }
        self.phase = BackupPhase::Opening;
        let of = |node| finished.iter().filter(|(at, _)| *at == node).map(|(_, id)| *id).collect();
        BackupAction::Open(self.sources.nodes().into_iter().map(|node| (node, of(node))).collect())
    }
}

/// The last slot move of each shard; `None` while a move is in progress.
fn settled_moves(found: &[(NodeId, SnapshotStatus)]) -> Option<Vec<LastMove>> {
    let is_settled = found.iter().all(|(_, status)| !status.is_moving);
    is_settled.then(|| found.iter().map(|(node, status)| (*node, status.shard, status.last_move)).collect())
}

/// Whether each slot is owned by exactly one of the replicas. True if one of them is on a node of
/// an earlier release, which does not report its slots.
fn is_each_slot_owned_once(found: &[(NodeId, SnapshotStatus)]) -> bool {
    let mut all = SlotSet::default();
    for (_, status) in found.iter().filter(|(_, status)| status.shard != ShardId::PRIME) {
        let Some(slots) = &status.slots else { return true };
        if all.overlaps(slots) {
            return false;
        }
        all = all.union(slots);
    }
    all == SlotSet::all()
}
