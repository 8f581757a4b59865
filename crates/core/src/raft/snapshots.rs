//! The life of a shard's data beyond its log: snapshots made, sent and received, and the log cut behind them.
//!
//! Every replica makes its own, as soon as its log since the last one outweighs it. On disk the log is shared, so a shard
//! that is slow to make its own keeps what others have released: no bound on the whole follows from this alone. A replica
//! whose disk has no room for more log makes one at once: what it frees may be enough to go on. Writes go on meanwhile (`machine::capture`).
//!
//! A follower behind the log's start gets a snapshot in parts, outside of the engine's messages: the leader asks what
//! the follower already holds, sends one part at a time within a budget, and hands over the engine's own (empty)
//! snapshot message when all parts are there. A break costs the part under way, not what was sent before.
//!
//! Invariants: the log is cut only behind a durable snapshot; a received snapshot is loaded and verified whole before
//! the engine hears of it, and replaces the state only when the log's new beginning is durable.

use alloc::vec::Vec;
use bytes::Bytes;
use raft::eraftpb::{Message, MessageType};
use raft::{ProgressState, SnapshotStatus, StateRole};

use super::group::Group;
use super::membership;
use super::proposals::Outcome;
use super::ready::Output;
use crate::command::Checkpoint;
use crate::deliberate::Fault;
use crate::limits;
use crate::machine::Machine;
use crate::membership::Membership;
use crate::peer;
use crate::storage::WalRecord;
use crate::storage::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};
use crate::types::{LogIndex, NodeId, ReplicaId, Term, Ticks};

/// After a snapshot that failed, for want of room perhaps, so many election timeouts pass before the next attempt.
const RETRY_ELECTION_TIMEOUTS: u64 = 10;

/// A log that did not grow enough is cut all the same after so many election timeouts, about an hour: what clients
/// deleted should not stay on disk for ever.
const AGE_ELECTION_TIMEOUTS: u64 = 3_600;

/// A follower that is silent for so many ticks is asked again what it holds: a part or its receipt was lost.
const ASK_AGAIN_TICKS: u64 = 5;

/// A follower that is silent for so many election timeouts is given up until the engine tries again.
const GIVE_UP_ELECTION_TIMEOUTS: u64 = 5;

/// Parts sent to one follower in one tick. With a tick of 50 ms and parts of 256 KiB it gets 40 MiB a second, which
/// leaves clients most of a disk and of a gigabit link.
const PARTS_PER_TICK: u32 = 8;

/// What a follower says it holds when it needs nothing more.
const HOLDS_ALL: u64 = u64::MAX;

/// Snapshots of one shard.
pub(super) struct Snapshots {
    /// A snapshot is made once the log since the last one has so many bytes, or as many as that one.
    log_bytes_min: u64,
    /// The newest durable one, and the size of its file.
    newest: Option<(SnapshotId, u64)>,
    making: Option<Making>,
    /// Those that made way for a checkpoint or for one that is received, until a newer one is there: the disk may not have
    /// heard in time, and have finished them.
    dropped: Vec<Making>,
    /// The last checkpoint that was completed.
    checkpoint: Option<Checkpoint>,
    /// Bytes of entries applied since the state of the newest snapshot.
    log_bytes: u64,
    /// No attempt before.
    not_before: Ticks,
    /// When the newest one was finished, or this life began.
    finished: Ticks,
    /// A follower that joined since the newest one needs a snapshot.
    is_newer_wanted: bool,
    sending: Vec<Sending>,
    receiving: Option<Receiving>,
    installing: Option<Installing>,
}

struct Making {
    id: SnapshotId,
    membership: Membership,
    /// `log_bytes` when it was begun.
    log_bytes: u64,
    /// Whether replicas are compared by it.
    is_checkpoint: bool,
}

/// To one follower.
struct Sending {
    to: ReplicaId,
    node: NodeId,
    id: SnapshotId,
    file_bytes: u64,
    /// The engine's message, for when all parts are there.
    message: Message,
    step: Step,
    parts_left: u32,
    heard: Ticks,
    asked: Ticks,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The follower was asked what it holds, or has been sent a part.
    Asked,
    /// The part at this offset comes next, when the budget allows.
    Wants(u64),
    /// The part at this offset is being read.
    Reading(u64),
    /// The follower holds all of it and has the engine's message.
    Complete,
}

enum Receiving {
    Parts { id: SnapshotId, from: NodeId },
    Loading { id: SnapshotId, message: Message },
}

/// A loaded snapshot that the engine accepted or is about to.
struct Installing {
    id: SnapshotId,
    machine: Machine,
    membership: Membership,
    file_bytes: u64,
    /// The `Ready` that carries it; its persistence installs the machine.
    ready_number: Option<u64>,
}

/// A part of a snapshot on its way, or, without bytes, the question what the receiver holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SnapshotPart {
    pub(crate) id: SnapshotId,
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

impl Snapshots {
    pub(super) fn new(log_bytes_min: u64, newest: Option<(SnapshotId, u64)>) -> Snapshots {
        Snapshots {
            log_bytes_min,
            newest,
            making: None,
            dropped: Vec::new(),
            checkpoint: None,
            log_bytes: 0,
            not_before: Ticks(0),
            finished: Ticks(0),
            is_newer_wanted: false,
            sending: Vec::new(),
            receiving: None,
            installing: None,
        }
    }

    /// Counts an applied entry.
    pub(super) fn applied(&mut self, data_bytes: usize) {
        self.log_bytes += data_bytes as u64 + limits::LOG_ENTRY_OVERHEAD_BYTES;
    }

    /// The newest durable one.
    pub(super) fn newest(&self) -> Option<SnapshotId> {
        self.newest.map(|(id, _)| id)
    }

    pub(super) fn is_making(&self) -> bool {
        self.making.is_some()
    }

    pub(super) fn checkpoint(&self) -> Option<Checkpoint> {
        self.checkpoint
    }

    /// Whether a snapshot should be begun; `starving` tells that the write-ahead log has no room, so that any part of it
    /// that can go is welcome.
    fn is_due(&self, now: Ticks, election_ticks: u64, starving: bool) -> bool {
        let newest_bytes = self.newest.map_or(0, |(_, file_bytes)| file_bytes);
        let has_outgrown = self.log_bytes >= self.log_bytes_min.max(newest_bytes);
        let is_old = self.log_bytes > 0 && now.0 >= self.finished.0 + AGE_ELECTION_TIMEOUTS * election_ticks;
        // The files of a shard are one that grows and one that is whole: neither a snapshot that is received nor one
        // that is being sent should make way for a new one, unless followers are so slow that the log would.
        let files_are_free = self.making.is_none() && self.receiving.is_none() && self.installing.is_none();
        let may_replace =
            self.sending.is_empty() || self.log_bytes >= 4 * self.log_bytes_min.max(newest_bytes);
        let is_welcome = starving && self.log_bytes > 0;
        let is_wanted = has_outgrown || is_old || is_welcome || self.is_newer_wanted;
        files_are_free && may_replace && now >= self.not_before && is_wanted
    }
}

impl Group {
    /// Begins a snapshot if the log has grown enough.
    pub(super) fn begin_snapshot_if_due(&mut self, out: &mut Output) {
        let applied = self.applied;
        // The log has got there by itself, from another leader perhaps.
        self.snapshots
            .receiving
            .take_if(|receiving| matches!(receiving, Receiving::Parts { id, .. } if id.index <= applied));
        self.snapshots.is_newer_wanted |= self.raft.store().take_newer_wanted();
        let starving = self.disks.own_stalled;
        if !self.snapshots.is_due(self.now, self.timing.election_ticks, starving)
            || self.applied == LogIndex(0)
        {
            return;
        }
        self.begin_snapshot(self.applied_id(), false, out);
    }

    fn applied_id(&self) -> SnapshotId {
        SnapshotId { shard: self.shard, index: self.applied, term: self.applied_term }
    }

    /// Begins a snapshot of what is applied, instead of the one that is in the making.
    fn begin_snapshot(&mut self, id: SnapshotId, is_checkpoint: bool, out: &mut Output) {
        let (log_bytes, membership) = (self.snapshots.log_bytes, self.membership.clone());
        self.machine.begin_snapshot(&membership);
        let making = Making { id, log_bytes, membership, is_checkpoint };
        let dropped = self.snapshots.making.replace(making);
        self.snapshots.dropped.extend(dropped);
        self.snapshots.is_newer_wanted = false;
        self.make_next_block(id, out);
    }

    /// The entry applied last, of this index and term, holds a checkpoint. A replica that is about to have another's
    /// state makes none: its own would be of no use, and its files are not free.
    pub(super) fn begin_checkpoint(&mut self, (index, term): (LogIndex, Term), out: &mut Output) {
        if self.snapshots.receiving.is_none() && self.snapshots.installing.is_none() {
            self.begin_snapshot(SnapshotId { shard: self.shard, index, term }, true, out);
        }
    }

    /// Begins a snapshot of what is applied, unless there is one. Returns what the next durable one contains at least.
    pub fn snapshot_here(&mut self, out: &mut Output) -> LogIndex {
        let is_there = self.snapshots.newest().is_some_and(|newest| newest.index == self.applied);
        let is_made = self.snapshots.making.as_ref().is_some_and(|making| making.id.index == self.applied);
        let is_free = self.snapshots.receiving.is_none() && self.snapshots.installing.is_none();
        if !is_there && !is_made && is_free && self.applied != LogIndex(0) {
            self.begin_snapshot(self.applied_id(), false, out);
        }
        self.applied
    }

    /// Takes word of snapshot files.
    pub fn snapshot_done(&mut self, done: SnapshotDone, out: &mut Output) {
        match done {
            SnapshotDone::Written { id } if self.is_making(id) => self.make_next_block(id, out),
            SnapshotDone::Finished { id, file_bytes, checksum } => {
                self.snapshot_finished(id, file_bytes, checksum)
            }
            // Of a replica that was here before.
            SnapshotDone::Written { .. } | SnapshotDone::Removed { .. } => {}
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
                self.snapshot_loaded(Installing {
                    id,
                    machine: *machine,
                    membership,
                    file_bytes,
                    ready_number: None,
                });
            }
            SnapshotDone::Failed { id, .. } => self.snapshot_failed(id),
        }
    }

    fn is_making(&self, id: SnapshotId) -> bool {
        self.snapshots.making.as_ref().is_some_and(|making| making.id == id)
    }

    fn make_next_block(&mut self, id: SnapshotId, out: &mut Output) {
        out.snapshot_tasks.push(match self.machine.next_block() {
            Some(block) => SnapshotTask::Write { id, block },
            None => SnapshotTask::Finish { id },
        });
    }

    fn snapshot_finished(&mut self, id: SnapshotId, file_bytes: u64, checksum: u32) {
        // One that was dropped may have been finished before the disk heard of that. It is there all the same, and an older
        // one is gone for it.
        let dropped = self.snapshots.dropped.iter().position(|dropped| dropped.id == id);
        let made = match self.snapshots.making.take_if(|making| making.id == id) {
            Some(making) => {
                self.snapshots.log_bytes -= making.log_bytes;
                if making.is_checkpoint {
                    self.snapshots.checkpoint = Some(Checkpoint { index: id.index, checksum });
                }
                self.snapshots.dropped.clear();
                Some(making)
            }
            None => dropped.map(|position| self.snapshots.dropped.swap_remove(position)),
        };
        let Some(made) = made else { return };
        if self.snapshots.newest().is_some_and(|newest| newest.index >= id.index) {
            return;
        }
        self.snapshots.finished = self.now;
        self.snapshots.newest = Some((id, file_bytes));
        self.raft.mut_store().offer_snapshot(id, membership::conf_state(&made.membership));
    }

    fn snapshot_failed(&mut self, id: SnapshotId) {
        if self.is_making(id) {
            self.snapshots.making = None;
            self.machine.abandon_snapshot();
            self.snapshots.not_before =
                Ticks(self.now.0 + RETRY_ELECTION_TIMEOUTS * self.timing.election_ticks);
        }
        let is_receiving = match &self.snapshots.receiving {
            Some(Receiving::Parts { id: receiving, .. } | Receiving::Loading { id: receiving, .. }) => {
                *receiving == id
            }
            None => false,
        };
        if is_receiving {
            // The leader asks again, and then begins from the start.
            self.snapshots.receiving = None;
        }
        self.stop_sending(|sending| sending.id == id && matches!(sending.step, Step::Reading(_)));
    }

    /// Cuts the log behind the newest snapshot, unless an active follower still needs what is in front of it.
    pub(super) fn cut_log(&mut self, out: &mut Output) {
        let Some((newest, _)) = self.snapshots.newest else { return };
        let begin = self.raft.store().begin();
        if newest.index.0 <= begin {
            return;
        }
        let is_small = self.raft.store().data_bytes() < 2 * self.snapshots.log_bytes_min;
        let spare_followers = is_small && !self.disks.own_stalled;
        let up_to =
            if spare_followers { newest.index.0.min(self.needed_by_followers()) } else { newest.index.0 };
        if up_to > begin {
            self.raft.mut_store().cut(up_to);
            out.released.push((self.shard, LogIndex(up_to)));
        }
    }

    /// The highest index that no active follower of this leader still needs.
    fn needed_by_followers(&self) -> u64 {
        if self.raft.raft.state != StateRole::Leader {
            return u64::MAX;
        }
        let progress = self.raft.raft.prs().iter();
        let active = progress
            .filter(|(_, progress)| progress.recent_active && progress.state != ProgressState::Snapshot);
        active.map(|(_, progress)| progress.matched).min().unwrap_or(u64::MAX)
    }

    /// The engine wants a follower to have a snapshot: asks the follower what it holds of it.
    pub(super) fn begin_sending(&mut self, message: Message, out: &mut Output) {
        let to = ReplicaId(message.to);
        let metadata = message.get_snapshot().get_metadata();
        let id = SnapshotId { shard: self.shard, index: LogIndex(metadata.index), term: Term(metadata.term) };
        let (Some(node), Some((newest, file_bytes))) = (self.node_of(to), self.snapshots.newest) else {
            return;
        };
        if newest != id {
            // A newer one was finished meanwhile; the engine tries again.
            self.raft.report_snapshot(to.0, SnapshotStatus::Failure);
            return;
        }
        self.snapshots.sending.retain(|sending| sending.to != to);
        let (heard, asked) = (self.now, self.now);
        let step = Step::Asked;
        let parts_left = PARTS_PER_TICK;
        self.snapshots.sending.push(Sending {
            to,
            node,
            id,
            file_bytes,
            message,
            step,
            parts_left,
            heard,
            asked,
        });
        out.snapshot_frames.push((node, question(id)));
    }

    /// A follower said how much it holds of a snapshot that it is being sent.
    pub fn snapshot_receipt(&mut self, from: NodeId, id: SnapshotId, next_offset: u64, out: &mut Output) {
        let now = self.now;
        let Some(sending) =
            self.snapshots.sending.iter_mut().find(|sending| sending.node == from && sending.id == id)
        else {
            return;
        };
        sending.heard = now;
        if next_offset >= sending.file_bytes {
            sending.step = Step::Complete;
            let message = sending.message.clone();
            self.send_now(&message, out);
        } else {
            sending.step = Step::Wants(next_offset);
            self.read_parts(out);
        }
    }

    /// Reads the parts that followers want, within their budgets.
    fn read_parts(&mut self, out: &mut Output) {
        for sending in &mut self.snapshots.sending {
            if let Step::Wants(offset) = sending.step
                && sending.parts_left > 0
            {
                sending.parts_left -= 1;
                sending.step = Step::Reading(offset);
                let bytes_max = limits::SNAPSHOT_PART_BYTES_MAX;
                out.snapshot_tasks.push(SnapshotTask::Read { id: sending.id, offset, bytes_max });
            }
        }
    }

    fn send_part(&mut self, part: &SnapshotPart, file_bytes: u64, out: &mut Output) {
        let now = self.now;
        for sending in &mut self.snapshots.sending {
            if sending.id == part.id && sending.step == Step::Reading(part.offset) {
                sending.step = Step::Asked;
                sending.asked = now;
                sending.file_bytes = file_bytes;
                out.snapshot_frames.push((sending.node, peer::snapshot_part(part)));
            }
        }
    }

    /// Renews budgets, asks silent followers again, and gives up those that stay silent or are done.
    pub(super) fn tick_sending(&mut self, out: &mut Output) {
        if self.snapshots.sending.is_empty() {
            return;
        }
        let now = self.now;
        let give_up_ticks = GIVE_UP_ELECTION_TIMEOUTS * self.timing.election_ticks;
        for sending in &mut self.snapshots.sending {
            sending.parts_left = PARTS_PER_TICK;
            let waits = matches!(sending.step, Step::Asked | Step::Complete);
            if waits && now.0 >= sending.asked.0.max(sending.heard.0) + ASK_AGAIN_TICKS {
                sending.asked = now;
                out.snapshot_frames.push((sending.node, question(sending.id)));
            }
        }
        self.stop_sending(|sending| now.0 >= sending.heard.0 + give_up_ticks);
        let progress = self.raft.raft.prs();
        let still_needed = |sending: &Sending| {
            progress.get(sending.to.0).is_some_and(|progress| progress.state == ProgressState::Snapshot)
        };
        self.snapshots.sending.retain(still_needed);
        self.read_parts(out);
    }

    /// Stops sending to the followers that `gives_up` names; the engine tries again later.
    fn stop_sending(&mut self, gives_up: impl Fn(&Sending) -> bool) {
        let given_up: Vec<u64> = self
            .snapshots
            .sending
            .iter()
            .filter(|sending| gives_up(sending))
            .map(|sending| sending.to.0)
            .collect();
        self.snapshots.sending.retain(|sending| !gives_up(sending));
        for replica in given_up {
            self.raft.report_snapshot(replica, SnapshotStatus::Failure);
        }
    }

    /// The link to a node broke, or this replica no longer leads.
    pub(super) fn stop_sending_to(&mut self, node: Option<NodeId>) {
        self.stop_sending(|sending| node.is_none_or(|node| sending.node == node));
    }

    /// A part of a snapshot, or the question how much of it is here.
    pub fn snapshot_part(&mut self, from: NodeId, part: SnapshotPart, out: &mut Output) {
        let id = part.id;
        let loading = matches!(&self.snapshots.receiving, Some(Receiving::Loading { id: loading, .. }) if *loading == id);
        let installing = self.snapshots.installing.as_ref().is_some_and(|installing| installing.id == id);
        let behind = id.index <= self.applied && !self.faults.has(Fault::StaleSnapshotInstalled);
        if behind || loading || installing {
            out.snapshot_frames.push((from, peer::snapshot_receipt(id, HOLDS_ALL)));
            return;
        }
        if matches!(self.snapshots.receiving, Some(Receiving::Loading { .. }))
            || self.snapshots.installing.is_some()
        {
            // Another one is nearly there.
            return;
        }
        if let Some(making) = self.snapshots.making.take() {
            self.machine.abandon_snapshot();
            self.snapshots.dropped.push(making);
        }
        self.snapshots.receiving = Some(Receiving::Parts { id, from });
        out.snapshot_tasks.push(SnapshotTask::Receive { id, offset: part.offset, bytes: part.bytes });
    }

    /// The engine's message of a snapshot whose parts are all here: it waits until the snapshot is loaded.
    pub(super) fn load_snapshot(&mut self, message: Message, out: &mut Output) {
        let metadata = message.get_snapshot().get_metadata();
        let id = SnapshotId { shard: self.shard, index: LogIndex(metadata.index), term: Term(metadata.term) };
        if let Some(Receiving::Parts { id: receiving, .. }) = &self.snapshots.receiving
            && *receiving == id
        {
            self.snapshots.receiving = Some(Receiving::Loading { id, message });
            out.snapshot_tasks.push(SnapshotTask::Load { id });
        } else if id.index <= self.applied {
            // The engine refuses it, and tells the leader from where to go on. It looks for this replica among those of
            // the snapshot first.
            let _ = self.raft.step(with_membership(message, &self.membership));
        }
    }

    /// Whether the log began anew behind a snapshot whose state is not in place yet. The engine must not stand for
    /// election then: it would look for the entries in between, and there are none.
    pub(super) fn is_installing(&self) -> bool {
        self.snapshots.installing.as_ref().is_some_and(|installing| installing.ready_number.is_some())
    }

    fn snapshot_loaded(&mut self, loaded: Installing) {
        let id = loaded.id;
        let loading = self.snapshots.receiving.take_if(
            |receiving| matches!(receiving, Receiving::Loading { id: loading, .. } if *loading == id),
        );
        let Some(Receiving::Loading { message, .. }) = loading else { return };
        let message = with_membership(message, &loaded.membership);
        self.snapshots.installing = Some(loaded);
        // Refused if it is of an older term, or if the log has caught up with it meanwhile.
        let _ = self.raft.step(message);
        let is_accepted =
            self.raft.snap().is_some_and(|snapshot| snapshot.get_metadata().index == id.index.0);
        if !is_accepted {
            let refused = self.snapshots.installing.take();
            if self.faults.has(Fault::StaleSnapshotInstalled) {
                self.machine = refused.expect("invariant: set above").machine;
            }
        }
    }

    /// A `Ready` carries a snapshot: lets the log begin anew behind it.
    pub(super) fn restart_log(&mut self, index: u64, ready_number: u64, out: &mut Output) {
        let installing =
            self.snapshots.installing.as_mut().expect("invariant: the engine only has loaded snapshots");
        assert_eq!(installing.id.index.0, index, "invariant: one snapshot is installed at a time");
        installing.ready_number = Some(ready_number);
        let SnapshotId { shard, index, term } = installing.id;
        self.raft.mut_store().restart(installing.id);
        out.records.push(WalRecord::Restart { shard, index, term });
    }

    /// Everything up to a `Ready` is durable: puts the machine of its snapshot in place.
    pub(super) fn install_snapshot(&mut self, durable_number: u64, out: &mut Output) {
        let is_durable =
            |installing: &mut Installing| installing.ready_number.is_some_and(|own| own <= durable_number);
        let Some(installing) = self.snapshots.installing.take_if(is_durable) else { return };
        assert!(installing.id.index > self.applied, "invariant: a snapshot never replaces newer state");
        self.machine = installing.machine;
        self.membership = installing.membership;
        self.applied = installing.id.index;
        self.applied_term = installing.id.term;
        self.persisting.remember(self.applied);
        // What was in flight may be in the snapshot or not: nobody here will ever know.
        let dead = self.proposals.overtaken(self.applied);
        out.outcomes.extend(dead.into_iter().map(|origin| (origin, Outcome::NotDone)));
        self.proposals.forget_up_to(self.applied);
        self.snapshots.making = None;
        self.snapshots.dropped.clear();
        self.snapshots.log_bytes = 0;
        self.snapshots.newest = Some((installing.id, installing.file_bytes));
        self.snapshots.finished = self.now;
        self.raft.mut_store().offer_snapshot(installing.id, membership::conf_state(&self.membership));
        self.raft.advance_apply_to(self.applied.0);
        out.released.push((self.shard, self.applied));
    }
}

/// Asks a follower what it holds of a snapshot.
fn question(id: SnapshotId) -> Vec<u8> {
    peer::snapshot_part(&SnapshotPart { id, offset: 0, bytes: Bytes::new() })
}

/// Who replicates the shard does not cross the wire with the engine's message of a snapshot: the snapshot says it.
fn with_membership(mut message: Message, membership: &Membership) -> Message {
    message.mut_snapshot().mut_metadata().set_conf_state(membership::conf_state(membership));
    message
}

/// Whether a message is the engine's of a snapshot.
pub(super) fn is_snapshot(message: &Message) -> bool {
    message.get_msg_type() == MessageType::MsgSnapshot
}
