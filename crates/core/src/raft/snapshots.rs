//! Snapshots of a shard: making and receiving them, and cutting the log up to them.
//!
//! Every replica makes its own snapshot when the node says so (`node::log_compaction`): the log is
//! shared, so a shard cannot decide when it is time. Checkpoints and backups are made at once, each
//! at the requested index. Writes continue during a snapshot (`machine::copy_on_write`).
//!
//! A follower behind the beginning of the log gets a snapshot in parts ([`super::sending`]). It
//! writes each part to its disk, and loads the whole when the engine's message follows.
//!
//! Invariants:
//! - The log is cut only up to a durable snapshot, and only as far as the log itself is durable. A
//!   snapshot may contain entries that are not durable in the log yet; recovery then restarts the
//!   log after it.
//! - A received snapshot is loaded and verified as a whole before the engine learns of it. It
//!   replaces the state only when the restart of the log is durable.

use alloc::boxed::Box;
use alloc::vec::Vec;
use raft::eraftpb::{Message, MessageType};
use raft::{ProgressState, StateRole};

use super::group::Group;
use super::membership;
use super::ready::Output;
use super::trace::RoleChangeCause;
use crate::command::Checkpoint;
use crate::deliberate::Fault;
use crate::limits;
use crate::machine::Machine;
use crate::membership::Membership;
use crate::peer::{self, SnapshotPart};
use crate::storage::WalRecord;
use crate::storage::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};
use crate::trace::SnapshotStage;
use crate::types::{LogIndex, NodeId, ReplicaId, Term, Ticks};

/// Number of election timeouts between a failed snapshot, for example for lack of space, and the
/// next attempt.
const RETRY_ELECTION_TIMEOUTS: u64 = 10;

/// Number of election timeouts, about an hour, after which a log is cut even if it has not grown
/// enough, so that deleted data does not stay on disk.
const AGE_ELECTION_TIMEOUTS: u64 = 3_600;

/// Receipt of a follower that needs nothing more.
const HOLDS_ALL: u64 = u64::MAX;

/// The snapshots of one shard: being made, received and installed.
#[derive(Default)]
pub(super) struct Snapshots {
    /// The newest durable snapshot, and the size of its file.
    newest: Option<(SnapshotId, u64)>,
    making: Option<Making>,
    /// Unfinished snapshots replaced by a checkpoint or a received snapshot, until a newer one
    /// exists. The disk may have finished them before it learnt of the replacement.
    dropped: Vec<Making>,
    checkpoint: Option<Checkpoint>,
    /// Earliest tick of the next attempt.
    not_before: Ticks,
    /// When the newest snapshot was finished, or the process started.
    finished: Ticks,
    /// Whether a follower that joined after the newest snapshot needs one.
    is_newer_wanted: bool,
    /// The index up to which the log should be cut.
    cut_to: LogIndex,
    receiving: Option<Receiving>,
    installing: Option<Installing>,
}

struct Making {
    id: SnapshotId,
    membership: Membership,
    /// Whether it is a checkpoint, by which replicas are compared.
    is_checkpoint: bool,
}

enum Receiving {
    Parts { id: SnapshotId, from: NodeId },
    Loading { id: SnapshotId, from: NodeId, message: Message },
}

/// A loaded snapshot that the engine has accepted or is about to accept.
struct Installing {
    id: SnapshotId,
    /// The node that sent it; `None` before the engine's message is known to belong to it.
    from: Option<NodeId>,
    machine: Machine,
    membership: Membership,
    file_bytes: u64,
    /// The `Ready` that contains it. The state is installed when that is durable.
    ready_number: Option<u64>,
}

impl Snapshots {
    pub(super) fn new(newest: Option<(SnapshotId, u64)>) -> Snapshots {
        Snapshots { newest, ..Snapshots::default() }
    }

    /// The newest durable snapshot.
    pub(super) fn newest(&self) -> Option<SnapshotId> {
        self.newest.map(|(id, _)| id)
    }

    /// The newest durable snapshot, and the size of its file.
    pub(super) fn newest_file(&self) -> Option<(SnapshotId, u64)> {
        self.newest
    }

    pub(super) fn checkpoint(&self) -> Option<Checkpoint> {
        self.checkpoint
    }

    fn is_making(&self, id: SnapshotId) -> bool {
        self.making.as_ref().is_some_and(|making| making.id == id)
    }

    /// Whether another replica's snapshot is being received or installed, which uses the shard's
    /// files.
    fn is_taking(&self) -> bool {
        self.receiving.is_some() || self.installing.is_some()
    }

    /// Begins a snapshot in place of an unfinished one.
    fn begin(&mut self, making: Making) {
        let dropped = self.making.replace(making);
        self.dropped.extend(dropped);
        self.is_newer_wanted = false;
    }

    /// Records a finished snapshot of `file_bytes` bytes. Returns its membership if it is the
    /// newest. A replaced snapshot may have finished before the disk learnt of the replacement: it
    /// exists, and older ones were removed for it.
    fn finish(
        &mut self,
        id: SnapshotId,
        file_bytes: u64,
        (checksum, now): (u32, Ticks),
    ) -> Option<Membership> {
        let dropped = self.dropped.iter().position(|dropped| dropped.id == id);
        let made = match self.making.take_if(|making| making.id == id) {
            Some(making) => {
                if making.is_checkpoint {
                    self.checkpoint = Some(Checkpoint { index: id.index, checksum });
                }
                self.dropped.clear();
                making
            }
            None => self.dropped.swap_remove(dropped?),
        };
        if self.newest_index() >= id.index {
            return None;
        }
        self.finished = now;
        self.newest = Some((id, file_bytes));
        Some(made.membership)
    }

    /// Records that the snapshot of another replica was installed.
    fn installed(&mut self, id: SnapshotId, file_bytes: u64, now: Ticks) {
        self.making = None;
        self.dropped.clear();
        self.newest = Some((id, file_bytes));
        self.finished = now;
    }

    /// Drops the unfinished snapshot, because that of another replica is being received. Returns
    /// whether there was one.
    fn drop_unfinished(&mut self) -> bool {
        let dropped = self.making.take();
        let was_making = dropped.is_some();
        self.dropped.extend(dropped);
        was_making
    }

    /// The last entry that the newest snapshot contains.
    fn newest_index(&self) -> LogIndex {
        self.newest.map_or(LogIndex(0), |(id, _)| id.index)
    }
}

impl Group {
    /// Size of the newest snapshot's file; 0 if there is none.
    pub fn snapshot_file_bytes(&self) -> u64 {
        self.snapshots.newest_file().map_or(0, |(_, file_bytes)| file_bytes)
    }

    /// Whether a snapshot is unfinished.
    pub fn is_making_snapshot(&self) -> bool {
        self.snapshots.making.is_some()
    }

    /// Whether the newest snapshot is so old that deleted data should go, and something has changed
    /// since.
    pub fn snapshot_is_old(&self) -> bool {
        let age_ticks = AGE_ELECTION_TIMEOUTS * self.election_ticks();
        self.has_outgrown_snapshot() && self.now().0 >= self.snapshots.finished.0 + age_ticks
    }

    /// Whether the applied state is newer than the newest snapshot.
    pub fn has_outgrown_snapshot(&self) -> bool {
        self.applied.index() > self.snapshots.newest_index()
    }

    /// Whether a follower that joined after the newest snapshot waits for a newer one.
    pub fn wants_newer_snapshot(&self) -> bool {
        self.snapshots.is_newer_wanted
    }

    /// Begins a snapshot of the applied state, so that the log up to `wanted` can be cut. Returns
    /// whether it did. It does not if the newest snapshot contains `wanted` already, if the applied
    /// state does not, or if the shard's files are in use. A shard has one growing and one finished
    /// file. A new snapshot must not replace one that is being received. It replaces one that is
    /// being sent only if `urgent`, when followers are too slow.
    pub fn begin_snapshot(&mut self, wanted: LogIndex, urgent: bool, out: &mut Output) -> bool {
        let snapshots = &self.snapshots;
        let helps = snapshots.newest_index() < wanted && wanted <= self.applied.index();
        let is_free = snapshots.making.is_none() && !snapshots.is_taking();
        let may_replace = self.sending.is_empty() || urgent;
        if !helps || !is_free || !may_replace || self.now() < snapshots.not_before {
            return false;
        }
        self.make_snapshot(self.applied.id(self.shard()), false, out);
        true
    }

    /// Stops receiving a snapshot that the log has overtaken, possibly through another leader.
    pub(super) fn forget_overtaken_parts(&mut self) {
        let applied = self.applied.index();
        self.snapshots
            .receiving
            .take_if(|receiving| matches!(receiving, Receiving::Parts { id, .. } if id.index <= applied));
    }

    /// Records whether the engine found that a follower needs a newer snapshot.
    pub(super) fn note_newer_wanted(&mut self) {
        self.snapshots.is_newer_wanted |= self.raft.store().take_newer_wanted();
    }

    /// Makes a snapshot of the applied state, in place of an unfinished one.
    fn make_snapshot(&mut self, id: SnapshotId, is_checkpoint: bool, out: &mut Output) {
        let membership = self.membership().clone();
        self.applied.machine_mut().begin_snapshot(&membership);
        self.snapshots.begin(Making { id, membership, is_checkpoint });
        self.make_next_block(id, out);
    }

    /// Begins the snapshot of a checkpoint, which is the entry applied last. A replica that is
    /// about to install another's state makes none, because its own would be useless and its files
    /// are in use.
    pub(super) fn begin_checkpoint(&mut self, id: SnapshotId, out: &mut Output) {
        if !self.snapshots.is_taking() {
            self.make_snapshot(id, true, out);
        }
    }

    /// Begins a snapshot of the applied state, unless there is one. Returns the index that the next
    /// durable snapshot contains at least.
    pub fn snapshot_here(&mut self, out: &mut Output) -> LogIndex {
        let (applied, snapshots) = (self.applied.index(), &self.snapshots);
        let is_made = snapshots.making.as_ref().is_some_and(|making| making.id.index == applied);
        if snapshots.newest_index() != applied && !is_made && !snapshots.is_taking() {
            self.make_snapshot(self.applied.id(self.shard()), false, out);
        }
        applied
    }

    /// Handles the result of a snapshot task.
    pub fn snapshot_done(&mut self, done: SnapshotDone, out: &mut Output) {
        match done {
            SnapshotDone::Written { id } if self.snapshots.is_making(id) => self.make_next_block(id, out),
            SnapshotDone::Finished { id, file_bytes, checksum } => {
                let now = self.now();
                if let Some(membership) = self.snapshots.finish(id, file_bytes, (checksum, now)) {
                    self.raft.mut_store().offer_snapshot(id, membership::conf_state(&membership));
                }
            }
            // The last result for a previous replica.
            SnapshotDone::Written { .. } | SnapshotDone::Discarded { .. } | SnapshotDone::Removed { .. } => {}
            SnapshotDone::Read { id, offset, bytes, file_bytes } => {
                self.send_part(&SnapshotPart { id, offset, bytes }, file_bytes, out);
            }
            SnapshotDone::Received { id, next_offset } => {
                if let Some(Receiving::Parts { id: receiving, from }) = &self.snapshots.receiving
                    && *receiving == id
                {
                    out.snapshot_frames.push((*from, peer::snapshot_receipt(id, next_offset)));
                }
            }
            SnapshotDone::Loaded { id, machine, membership, file_bytes } => {
                let (machine, from, ready_number) = (*machine, None, None);
                let loaded = Installing { id, from, machine, membership, file_bytes, ready_number };
                self.snapshot_loaded(loaded, out);
            }
            SnapshotDone::Failed { id, .. } => self.snapshot_failed(id),
        }
    }

    fn make_next_block(&mut self, id: SnapshotId, out: &mut Output) {
        out.snapshot_tasks.push(match self.applied.machine_mut().next_block() {
            Some(block) => SnapshotTask::Write { id, block },
            None => SnapshotTask::Finish { id, keeps_older: !self.sending.is_empty() },
        });
    }

    fn snapshot_failed(&mut self, id: SnapshotId) {
        if self.snapshots.is_making(id) {
            self.snapshots.making = None;
            self.applied.machine_mut().abandon_snapshot();
            let retry_ticks = RETRY_ELECTION_TIMEOUTS * self.election_ticks();
            self.snapshots.not_before = Ticks(self.now().0 + retry_ticks);
        }
        let is_receiving = match &self.snapshots.receiving {
            Some(Receiving::Parts { id: receiving, .. } | Receiving::Loading { id: receiving, .. }) => {
                *receiving == id
            }
            None => false,
        };
        if is_receiving {
            // The leader asks again, and then starts from the beginning.
            self.snapshots.receiving = None;
        }
        self.reading_failed(id);
    }

    /// Releases the log up to the newest snapshot. If `spares` is set, entries that an active
    /// follower still needs are kept.
    pub fn release_log(&mut self, spares: bool, out: &mut Output) {
        let newest = self.snapshots.newest_index().min(self.applied_and_durable());
        if newest > self.snapshots.cut_to.max(LogIndex(self.raft.store().begin())) {
            let up_to = if spares { newest.min(self.needed_by_followers()) } else { newest };
            if up_to > self.snapshots.cut_to {
                self.snapshots.cut_to = up_to;
                self.release(up_to, out);
            }
        }
        self.cut_log(limits::LOG_CUT_ENTRIES_PER_TICK_MAX);
        self.free_flushed(limits::FLUSHED_KEYS_FREED_PER_TICK_MAX);
    }

    /// Frees some of the keys that a flush has removed.
    pub(super) fn free_flushed(&mut self, keys_max: usize) {
        if let Some(data) = self.applied.machine_mut().data_mut() {
            data.free_flushed(keys_max);
        }
    }

    /// Allows the write-ahead log to drop the entries up to `up_to`.
    fn release(&self, up_to: LogIndex, out: &mut Output) {
        assert!(
            up_to <= self.snapshots.newest_index() && up_to <= self.applied_and_durable(),
            "invariant: only entries in a durable snapshot are released"
        );
        out.released.push((self.shard(), up_to));
    }

    /// Cuts the log in memory by a bounded step.
    pub(super) fn cut_log(&mut self, entries_max: u64) {
        let begin = self.raft.store().begin();
        let up_to = self.snapshots.cut_to.0.min(begin + entries_max);
        if up_to > begin {
            self.raft.mut_store().cut(up_to);
        }
    }

    /// The highest index that no active follower of this leader still needs. A follower that is
    /// being sent a snapshot continues from that snapshot.
    fn needed_by_followers(&self) -> LogIndex {
        if self.raft.raft.state != StateRole::Leader {
            return LogIndex(u64::MAX);
        }
        let progress = self.raft.raft.prs().iter();
        let active = progress
            .filter(|(_, progress)| progress.recent_active && progress.state != ProgressState::Snapshot)
            .map(|(_, progress)| LogIndex(progress.matched));
        active.chain(self.sending.indexes()).min().unwrap_or(LogIndex(u64::MAX))
    }

    /// Handles a part of a snapshot, or a query for how much of it is here.
    pub fn snapshot_part(&mut self, from: NodeId, part: SnapshotPart, out: &mut Output) {
        let id = part.id;
        let loading = matches!(&self.snapshots.receiving, Some(Receiving::Loading { id: loading, .. }) if *loading == id);
        let installing = self.snapshots.installing.as_ref().is_some_and(|installing| installing.id == id);
        let behind = id.index <= self.applied.index() && !self.faults().has(Fault::StaleSnapshotInstalled);
        if behind || loading || installing {
            out.snapshot_frames.push((from, peer::snapshot_receipt(id, HOLDS_ALL)));
            return;
        }
        if matches!(self.snapshots.receiving, Some(Receiving::Loading { .. }))
            || self.snapshots.installing.is_some()
        {
            // Another snapshot is almost complete.
            return;
        }
        if self.snapshots.drop_unfinished() {
            self.applied.machine_mut().abandon_snapshot();
        }
        let known = match self.snapshots.receiving {
            Some(Receiving::Parts { id, from }) => Some((id, from)),
            Some(Receiving::Loading { .. }) | None => None,
        };
        if known != Some((id, from)) {
            self.trace_snapshot(id.index, Some(from), SnapshotStage::Receiving);
        }
        self.snapshots.receiving = Some(Receiving::Parts { id, from });
        out.snapshot_tasks.push(SnapshotTask::Receive { id, offset: part.offset, bytes: part.bytes });
    }

    /// Handles the engine's message for a snapshot whose parts are all here. The message waits
    /// until the snapshot is loaded.
    pub(super) fn load_snapshot(&mut self, message: Message, out: &mut Output) {
        let metadata = message.get_snapshot().get_metadata();
        let (index, term) = (LogIndex(metadata.index), Term(metadata.term));
        let id = SnapshotId { shard: self.shard(), index, term };
        if let Some(Receiving::Parts { id: receiving, from }) = self.snapshots.receiving
            && receiving == id
        {
            self.snapshots.receiving = Some(Receiving::Loading { id, from, message });
            out.snapshot_tasks.push(SnapshotTask::Load { id });
        } else if id.index <= self.applied.index() {
            // The engine refuses it and tells the leader where to continue. It first looks for this
            // replica in the snapshot's membership.
            let sender = self.members.node_of(ReplicaId(message.from));
            let _ = self.raft.step(with_membership(message, self.members.membership()));
            if let Some(sender) = sender {
                self.trace_role(RoleChangeCause::Message(sender));
            }
        }
    }

    /// Whether the log was restarted after a snapshot whose state is not installed yet. The engine
    /// must not stand for election then, because it would access entries that do not exist.
    pub(super) fn is_installing(&self) -> bool {
        self.snapshots.installing.as_ref().is_some_and(|installing| installing.ready_number.is_some())
    }

    fn snapshot_loaded(&mut self, mut loaded: Installing, out: &mut Output) {
        let id = loaded.id;
        let loading = self.snapshots.receiving.take_if(
            |receiving| matches!(receiving, Receiving::Loading { id: loading, .. } if *loading == id),
        );
        let Some(Receiving::Loading { from, message, .. }) = loading else {
            return self.refuse_loaded(loaded, out);
        };
        let message = with_membership(message, &loaded.membership);
        loaded.from = Some(from);
        self.snapshots.installing = Some(loaded);
        // Refused if it is of an older term, or if the log has caught up with it meanwhile.
        let _ = self.raft.step(message);
        self.trace_role(RoleChangeCause::Message(from));
        let is_accepted =
            self.raft.snap().is_some_and(|snapshot| snapshot.get_metadata().index == id.index.0);
        if is_accepted {
            return;
        }
        if let Some(refused) = self.snapshots.installing.take() {
            if self.faults().has(Fault::StaleSnapshotInstalled) {
                self.applied.overwrite(refused.machine);
            } else {
                self.refuse_loaded(refused, out);
            }
        }
    }

    /// Removes a loaded snapshot that is not used. The next leader may only have an older snapshot
    /// and the entries after that.
    fn refuse_loaded(&mut self, loaded: Installing, out: &mut Output) {
        self.trace_snapshot(loaded.id.index, loaded.from, SnapshotStage::Refused);
        let installing = self.snapshots.installing.as_ref().map(|installing| installing.id);
        if ![installing, self.snapshots.newest()].contains(&Some(loaded.id)) {
            let machine = Box::new(loaded.machine);
            out.snapshot_tasks.push(SnapshotTask::Refuse { id: loaded.id, machine });
        }
    }

    /// Restarts the log after the snapshot in a `Ready`.
    pub(super) fn restart_log(&mut self, index: u64, ready_number: u64, out: &mut Output) {
        let installing =
            self.snapshots.installing.as_mut().expect("invariant: the engine only has loaded snapshots");
        assert_eq!(installing.id.index.0, index, "invariant: one snapshot is installed at a time");
        self.applied.assert_newer(installing.id);
        installing.ready_number = Some(ready_number);
        let SnapshotId { shard, index, term } = installing.id;
        self.raft.mut_store().restart(installing.id);
        out.records.push(WalRecord::Restart { shard, index, term });
    }

    /// Installs the state of a snapshot, once the `Ready` that contains it is durable.
    pub(super) fn install_snapshot(&mut self, durable_number: u64, out: &mut Output) {
        let is_durable =
            |installing: &mut Installing| installing.ready_number.is_some_and(|own| own <= durable_number);
        let Some(installing) = self.snapshots.installing.take_if(is_durable) else { return };
        let Installing { id, from, machine, membership, file_bytes, .. } = installing;
        out.config.append(&mut machine.updates_since(self.applied.machine()));
        let replaced = Box::new(self.applied.install(id, machine));
        out.snapshot_tasks.push(SnapshotTask::Discard { id, machine: replaced });
        self.raft.mut_store().offer_snapshot(id, membership::conf_state(&membership));
        let before = self.members.replace(membership);
        self.trace_snapshot(id.index, from, SnapshotStage::Installed);
        self.trace_membership(&before, id.index);
        self.persisting.remember(id.index);
        self.forget_commands_up_to(id.index, out);
        let now = self.now();
        self.snapshots.installed(id, file_bytes, now);
        self.raft.advance_apply_to(id.index.0);
        self.release(id.index, out);
    }
}

/// Adds the membership to the engine's snapshot message. It is not sent with the message, because
/// the snapshot contains it.
fn with_membership(mut message: Message, membership: &Membership) -> Message {
    message.mut_snapshot().mut_metadata().set_conf_state(membership::conf_state(membership));
    message
}

/// Whether a message is the engine's snapshot message.
pub(super) fn is_snapshot(message: &Message) -> bool {
    message.get_msg_type() == MessageType::MsgSnapshot
}
