//! Selection of the snapshots that make up a backup of one node.
//!
//! Owns which snapshots are consistent with each other. They are the node's own, at or after a
//! checkpoint that was appended to every log after the request arrived. So the backup contains
//! everything acknowledged before the request. A stale backup has no checkpoint, and no other node
//! is asked: it is what this node has applied.
//!
//! Keys must be in the backup exactly once, so no slots may move between the snapshots of two
//! shards. Each shard's own log records moves, and the node has applied all of a snapshot's log by
//! the time it has the snapshot. So the machine compares the last move of each local shard before
//! the checkpoints and after the snapshots were opened: if they are equal, no snapshot is from
//! before a move and none from after it.
//!
//! A node that is behind may not know a shard to which slots have moved. By the time it has the
//! snapshot of the prime shard, it knows all shards from before the request, so the machine asks
//! for them again.
//!
//! The shell opens the files and sends them; see
//! [`BackupSnapshots`](crate::storage::backup::BackupSnapshots).

use alloc::vec;
use alloc::vec::Vec;

use super::asking::{self, NextAction, Unanswered};
use super::checkpoint::CheckpointRequest;
use crate::command::{Reply, Request, ShardView};
use crate::deliberate::{Fault, Faults};
use crate::event::ShardStatus;
use crate::storage::disk::DiskError;
use crate::storage::snapshot::SnapshotId;
use crate::types::{LogIndex, MigrationId, ShardId, Term};

/// Time in milliseconds between two checks whether the snapshots are finished.
const POLL_INTERVAL_MS: u64 = 10;

/// Maximum time in milliseconds until the node has applied what is committed. Making a snapshot has
/// no time limit.
const CATCH_UP_TIMEOUT_MS: u64 = 30_000;

/// How often opening is tried, because newer snapshots replaced those found.
const OPENS_MAX: usize = 5;

/// The next action of a [`BackupRequest`].
#[derive(Debug)]
pub enum BackupAction {
    /// Submit all of these to the node, then report all replies to [`BackupRequest::answered`].
    Ask(Vec<Request>),
    /// Report the node's status to [`BackupRequest::status`].
    ReadStatus {
        /// Time to wait before, in milliseconds.
        after_ms: u64,
    },
    /// Open the files of these snapshots, and report the result to [`BackupRequest::opened`]. Index
    /// 0 stands for a shard without state.
    Open(Vec<SnapshotId>),
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
    /// The node has no snapshot of the shard that is new enough, and makes none.
    #[error("this node has no snapshot of shard {0} that is new enough")]
    NoSnapshot(ShardId),
    /// The files cannot be opened, repeatedly.
    #[error("the snapshots cannot be opened: {0}")]
    Open(#[source] DiskError),
    /// A request has no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// Selects the snapshots of one backup.
#[derive(Debug)]
pub struct BackupRequest {
    is_stale: bool,
    phase: BackupPhase,
    /// The last slot move of each local shard, before the checkpoints.
    moves_before: Vec<(ShardId, MigrationId)>,
    /// The index that each shard's snapshot must contain.
    wanted: Vec<(ShardId, LogIndex)>,
    /// When the machine began to wait for the present snapshots.
    waits_since_ms: Option<u64>,
    opens: usize,
    faults: Faults,
}

#[derive(Debug)]
enum BackupPhase {
    /// Reads the slot moves before the checkpoints.
    MovesBefore,
    Checkpoints(CheckpointRequest),
    /// Begins snapshots of what this node has applied.
    SnapshotsHere,
    /// Checks that this node has a replica of every shard.
    AllShards,
    /// Waits for the snapshots.
    Snapshots,
    Opening,
    /// Checks that there is a snapshot of every shard with slots.
    ShardsWithSlots,
    /// Reads the slot moves after the snapshots were opened.
    MovesAfter,
}

impl BackupRequest {
    /// Begins the selection. A stale backup is what the node has applied, without consensus.
    pub fn begin(is_stale: bool, faults: Faults) -> (BackupRequest, BackupAction) {
        let request = BackupRequest {
            is_stale,
            phase: BackupPhase::MovesBefore,
            moves_before: Vec::new(),
            wanted: Vec::new(),
            waits_since_ms: None,
            opens: 0,
            faults,
        };
        (request, BackupAction::ReadStatus { after_ms: 0 })
    }

    /// Takes the status of the node's replicas, at a time by any clock that never goes back.
    pub fn status(&mut self, now_ms: u64, shards: &[ShardStatus]) -> BackupAction {
        match (&self.phase, settled_moves(shards)) {
            (BackupPhase::Snapshots, _) => self.await_snapshots(now_ms, shards),
            (BackupPhase::MovesBefore, Some(moves)) => {
                self.moves_before = moves;
                self.begin_snapshots()
            }
            (_, Some(moves)) if moves == self.moves_before => BackupAction::Done(Ok(())),
            (_, _) => BackupAction::Done(Err(BackupFailure::SlotsMoving)),
        }
    }

    /// Takes the replies to the requests of the last action.
    pub fn answered(&mut self, replies: Vec<Reply>) -> BackupAction {
        let next = match &mut self.phase {
            BackupPhase::Checkpoints(checkpoints) => match checkpoints.answered(replies) {
                NextAction::Ask(requests) => Ok(BackupAction::Ask(requests)),
                NextAction::Done(indexes) => indexes.map(|wanted| {
                    self.wanted = wanted;
                    self.look_for_snapshots()
                }),
            },
            BackupPhase::SnapshotsHere => asking::snapshots_here(replies).map(|wanted| {
                self.wanted = wanted;
                self.phase = BackupPhase::AllShards;
                BackupAction::Ask(vec![Request::Cluster])
            }),
            BackupPhase::ShardsWithSlots => asking::cluster_view(replies).map(|view| {
                let with_slots = view.shards.iter().filter(|shard| shard.slots > 0);
                self.phase = BackupPhase::MovesAfter;
                self.unless_missing(with_slots, |_| BackupAction::ReadStatus { after_ms: 0 })
            }),
            _ => asking::cluster_view(replies)
                .map(|view| self.unless_missing(view.shards.iter(), BackupRequest::look_for_snapshots)),
        };
        next.unwrap_or_else(|error| BackupAction::Done(Err(error.into())))
    }

    /// Takes the result of opening. Newer snapshots may have replaced those found.
    pub fn opened(&mut self, result: Result<(), DiskError>) -> BackupAction {
        self.opens += 1;
        match result {
            Ok(()) if self.faults.has(Fault::BackupOfTwoSlotMaps) => BackupAction::Done(Ok(())),
            Ok(()) => {
                self.phase = BackupPhase::ShardsWithSlots;
                BackupAction::Ask(vec![Request::Cluster])
            }
            Err(_) if self.opens < OPENS_MAX => self.look_for_snapshots(),
            Err(error) => BackupAction::Done(Err(BackupFailure::Open(error))),
        }
    }

    /// Refuses a backup that would lack one of these shards.
    fn unless_missing<'a>(
        &mut self,
        mut shards: impl Iterator<Item = &'a ShardView>,
        next: impl FnOnce(&mut BackupRequest) -> BackupAction,
    ) -> BackupAction {
        match shards.find(|shard| !self.wanted.iter().any(|(here, _)| *here == shard.shard)) {
            Some(missing) => BackupAction::Done(Err(BackupFailure::NoSnapshot(missing.shard))),
            None => next(self),
        }
    }

    fn begin_snapshots(&mut self) -> BackupAction {
        if self.is_stale {
            self.phase = BackupPhase::SnapshotsHere;
            return BackupAction::Ask(vec![Request::SnapshotHere]);
        }
        let (checkpoints, action) = CheckpointRequest::begin();
        self.phase = BackupPhase::Checkpoints(checkpoints);
        match action {
            NextAction::Ask(requests) => BackupAction::Ask(requests),
            NextAction::Done(_) => unreachable!("invariant: checkpoints begin with a question"),
        }
    }

    fn look_for_snapshots(&mut self) -> BackupAction {
        self.phase = BackupPhase::Snapshots;
        self.waits_since_ms = None;
        BackupAction::ReadStatus { after_ms: 0 }
    }

    /// Opens the snapshots, if there is one of every shard up to the wanted index.
    fn await_snapshots(&mut self, now_ms: u64, shards: &[ShardStatus]) -> BackupAction {
        let since_ms = *self.waits_since_ms.get_or_insert(now_ms);
        let is_late = now_ms.saturating_sub(since_ms) >= CATCH_UP_TIMEOUT_MS;
        let mut ids = Vec::with_capacity(self.wanted.len());
        for &(shard, index) in &self.wanted {
            let status = shards.iter().find(|status| status.shard == shard);
            match status.map_or(SnapshotProgress::Absent, |status| progress(status, index)) {
                SnapshotProgress::Finished(id) => ids.push(id),
                SnapshotProgress::Making => {}
                SnapshotProgress::Behind if !is_late => {}
                SnapshotProgress::Behind | SnapshotProgress::Absent => {
                    return BackupAction::Done(Err(BackupFailure::NoSnapshot(shard)));
                }
            }
        }
        if ids.len() < self.wanted.len() {
            return BackupAction::ReadStatus { after_ms: POLL_INTERVAL_MS };
        }
        self.phase = BackupPhase::Opening;
        BackupAction::Open(ids)
    }
}

/// The last slot move of each local shard; `None` while a move is in progress.
fn settled_moves(shards: &[ShardStatus]) -> Option<Vec<(ShardId, MigrationId)>> {
    let is_settled = shards.iter().all(|shard| !shard.is_moving);
    is_settled.then(|| shards.iter().map(|shard| (shard.shard, shard.last_move)).collect())
}

/// The progress of a shard's snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SnapshotProgress {
    Finished(SnapshotId),
    Making,
    /// The entry is not applied here yet.
    Behind,
    /// The entry was applied, but no snapshot was made.
    Absent,
}

fn progress(status: &ShardStatus, wanted: LogIndex) -> SnapshotProgress {
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

#[cfg(test)]
pub(super) mod fixture {
    use alloc::boxed::Box;
    use alloc::string::String;

    use super::*;
    use crate::command::{ClusterView, NodeReply, WriteReply};
    use crate::types::ReplicaId;

    /// The answer to [`Request::Cluster`] of a cluster with these shards.
    pub fn cluster(shards: &[u64]) -> Reply {
        let shard = |&shard: &u64| ShardView {
            shard: ShardId(shard),
            name: String::new(),
            kind: "kv",
            leader: None,
            term: Term(1),
            slots: u16::from(shard > 0),
        };
        let view = ClusterView { shards: shards.iter().map(shard).collect(), ..ClusterView::default() };
        Reply::Node(NodeReply::Cluster(Box::new(view)))
    }

    /// The answer to a checkpoint.
    pub fn checkpointed(index: u64) -> Reply {
        Reply::Write(WriteReply::Checkpointed { index: LogIndex(index) })
    }

    /// The status of a replica that has applied up to an index and has a snapshot of another.
    pub fn status(shard: u64, applied: u64, snapshot: Option<u64>) -> ShardStatus {
        let id = |index| SnapshotId { shard: ShardId(shard), index: LogIndex(index), term: Term(1) };
        ShardStatus {
            shard: ShardId(shard),
            replica: ReplicaId(1),
            leader: None,
            leads: false,
            term: Term(1),
            committed: LogIndex(applied),
            applied: LogIndex(applied),
            last: LogIndex(applied),
            log_begin: LogIndex(0),
            keys: 0,
            log_bytes: 0,
            snapshot_bytes: 0,
            votes: true,
            snapshot: snapshot.map(id),
            makes_snapshot: false,
            last_move: MigrationId(0),
            is_moving: false,
            checkpoint: None,
            diverged: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::fixture::{checkpointed, cluster, status};
    use super::*;
    use crate::command::{NodeReply, Refusal};
    use crate::storage::disk::DiskErrorKind;

    /// A backup of shards 0 and 1 up to the question for snapshots at index 5 and 8.
    fn after_checkpoints(before: &[ShardStatus]) -> BackupRequest {
        let (mut backup, action) = BackupRequest::begin(false, Faults::NONE);
        assert!(matches!(action, BackupAction::ReadStatus { after_ms: 0 }));
        assert!(
            matches!(backup.status(0, before), BackupAction::Ask(requests) if requests == [Request::Cluster])
        );
        assert!(
            matches!(backup.answered(vec![cluster(&[0, 1])]), BackupAction::Ask(requests) if requests.len() == 2)
        );
        let action = backup.answered(vec![checkpointed(5), checkpointed(8)]);
        assert!(matches!(action, BackupAction::ReadStatus { after_ms: 0 }));
        backup
    }

    fn settled() -> Vec<ShardStatus> {
        vec![status(0, 5, Some(5)), status(1, 9, Some(9))]
    }

    fn gone() -> DiskError {
        let (file, reason) = ("snapshot".to_string(), "gone".to_string());
        DiskError { operation: "open", file, reason, kind: DiskErrorKind::Other }
    }

    #[test]
    fn a_backup_is_the_snapshots_after_the_checkpoints() {
        let mut backup = after_checkpoints(&settled());
        let BackupAction::Open(ids) = backup.status(1, &settled()) else { panic!("opens") };
        assert_eq!(ids.iter().map(|id| id.index.0).collect::<Vec<_>>(), [5, 9]);
        assert!(
            matches!(backup.opened(Ok(())), BackupAction::Ask(requests) if requests == [Request::Cluster])
        );
        let action = backup.answered(vec![cluster(&[0, 1])]);
        assert!(matches!(action, BackupAction::ReadStatus { after_ms: 0 }));
        assert!(matches!(backup.status(2, &settled()), BackupAction::Done(Ok(()))));
    }

    #[test]
    fn slots_that_move_before_meanwhile_or_after_refuse_the_backup() {
        let refused = |action| matches!(action, BackupAction::Done(Err(BackupFailure::SlotsMoving)));
        let mut moving = settled();
        moving[1].is_moving = true;
        let (mut backup, _) = BackupRequest::begin(false, Faults::NONE);
        assert!(refused(backup.status(0, &moving)));

        let mut moved = settled();
        moved[1].last_move = MigrationId(3);
        for after in [moving, moved] {
            let mut backup = after_checkpoints(&settled());
            backup.status(1, &settled());
            backup.opened(Ok(()));
            backup.answered(vec![cluster(&[0, 1])]);
            assert!(refused(backup.status(2, &after)));
        }
    }

    #[test]
    fn a_shard_that_the_node_learns_of_late_refuses_the_backup() {
        let mut backup = after_checkpoints(&settled());
        backup.status(1, &settled());
        backup.opened(Ok(()));
        let action = backup.answered(vec![cluster(&[0, 1, 2])]);
        assert!(matches!(action, BackupAction::Done(Err(BackupFailure::NoSnapshot(ShardId(2))))));
    }

    #[test]
    fn snapshots_that_were_replaced_are_looked_for_again() {
        let mut backup = after_checkpoints(&settled());
        for _ in 1..OPENS_MAX {
            assert!(matches!(backup.status(1, &settled()), BackupAction::Open(_)));
            assert!(matches!(backup.opened(Err(gone())), BackupAction::ReadStatus { after_ms: 0 }));
        }
        backup.status(1, &settled());
        let BackupAction::Done(Err(failure)) = backup.opened(Err(gone())) else { panic!("gives up") };
        assert_eq!(failure, BackupFailure::Open(gone()));
    }

    #[test]
    fn a_node_that_is_behind_has_limited_time() {
        let mut backup = after_checkpoints(&settled());
        let mut behind = settled();
        behind[1] = status(1, 7, Some(7));
        for now_ms in [0, CATCH_UP_TIMEOUT_MS - 1] {
            let action = backup.status(now_ms, &behind);
            assert!(matches!(action, BackupAction::ReadStatus { after_ms: POLL_INTERVAL_MS }), "{action:?}");
        }
        let action = backup.status(CATCH_UP_TIMEOUT_MS, &behind);
        assert!(matches!(action, BackupAction::Done(Err(BackupFailure::NoSnapshot(ShardId(1))))));
    }

    #[test]
    fn a_stale_backup_asks_only_its_node_and_needs_every_shard() {
        let here = |shards: &[u64]| {
            let snapshots = shards.iter().map(|&shard| (ShardId(shard), LogIndex(0))).collect();
            vec![Reply::Node(NodeReply::Snapshots(snapshots))]
        };
        let begun = |shards: &[u64]| {
            let (mut backup, _) = BackupRequest::begin(true, Faults::NONE);
            let action = backup.status(0, &settled());
            assert!(matches!(action, BackupAction::Ask(requests) if requests == [Request::SnapshotHere]));
            backup.answered(here(shards));
            backup.answered(vec![cluster(&[0, 1])])
        };
        assert!(matches!(begun(&[0, 1]), BackupAction::ReadStatus { after_ms: 0 }));
        let action = begun(&[0]);
        assert!(matches!(action, BackupAction::Done(Err(BackupFailure::NoSnapshot(ShardId(1))))));
    }

    #[test]
    fn a_refused_checkpoint_ends_the_backup() {
        let (mut backup, _) = BackupRequest::begin(false, Faults::NONE);
        backup.status(0, &settled());
        backup.answered(vec![cluster(&[0, 1])]);
        let replies = vec![checkpointed(1), Reply::Refused(Refusal::NoLeader)];
        let BackupAction::Done(Err(failure)) = backup.answered(replies) else { panic!("ends") };
        assert_eq!(failure, BackupFailure::Unanswered(Unanswered::Refused(Refusal::NoLeader)));
    }

    #[test]
    fn a_snapshot_is_finished_or_in_the_making_or_not() {
        let id = |index| SnapshotId { shard: ShardId(1), index: LogIndex(index), term: Term(1) };
        let status = |applied, snapshot, makes_snapshot| ShardStatus {
            makes_snapshot,
            ..status(1, applied, snapshot)
        };
        for (status, expected) in [
            (status(9, Some(8), false), SnapshotProgress::Finished(id(8))),
            (status(9, Some(9), true), SnapshotProgress::Finished(id(9))),
            (status(9, Some(7), true), SnapshotProgress::Making),
            (status(7, Some(7), true), SnapshotProgress::Behind),
            (status(7, None, false), SnapshotProgress::Behind),
            (status(9, Some(7), false), SnapshotProgress::Absent),
            (status(9, None, false), SnapshotProgress::Absent),
        ] {
            assert_eq!(progress(&status, LogIndex(8)), expected, "{status:?}");
        }
        let empty = SnapshotId { term: Term(0), ..id(0) };
        assert_eq!(progress(&status(0, None, false), LogIndex(0)), SnapshotProgress::Finished(empty));
    }
}
