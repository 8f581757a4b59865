//! Sending snapshots to followers that need entries which the log no longer has.
//!
//! A snapshot is sent in parts, outside of the engine's messages. The leader asks what the follower
//! already has, sends one part at a time, and sends the engine's own (empty) snapshot message when
//! the follower has all parts. An interruption costs only the part in progress. The shell controls
//! the pace: it reads the parts, and knows the other load of disk and network.
//!
//! [`super::snapshots`] owns the files and the receiving side.

use alloc::vec::Vec;
use bytes::Bytes;
use raft::eraftpb::Message;
use raft::{ProgressState, SnapshotStatus};

use super::group::Group;
use super::ready::Output;
use crate::limits;
use crate::peer::{self, SnapshotPart};
use crate::storage::snapshot::{SnapshotId, SnapshotTask};
use crate::trace::SnapshotStage;
use crate::types::{LogIndex, NodeId, ReplicaId, Term, Ticks};

/// Number of ticks after which a silent follower is asked again what it has, because a part or its
/// receipt may be lost.
const ASK_AGAIN_TICKS: u64 = 5;

/// Number of election timeouts after which sending to a silent follower stops, until the engine
/// tries again.
const GIVE_UP_ELECTION_TIMEOUTS: u64 = 5;

/// A snapshot being sent to one follower.
pub(super) struct Sending {
    to: ReplicaId,
    node: NodeId,
    pub(super) id: SnapshotId,
    file_bytes: u64,
    /// The engine's message, to send when the follower has all parts.
    message: Message,
    phase: SendingPhase,
    /// When the follower last replied, or was last sent a part.
    heard: Ticks,
    asked: Ticks,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SendingPhase {
    /// The follower was asked what it has, or was sent a part.
    Asked,
    /// The part at this offset is being read.
    Reading(u64),
    /// The follower has all parts and was sent the engine's message.
    Complete,
}

impl Group {
    /// Handles the engine's request to send a snapshot: asks the follower what it has of it.
    pub(super) fn begin_sending(&mut self, message: Message, out: &mut Output) {
        let to = ReplicaId(message.to);
        let metadata = message.get_snapshot().get_metadata();
        let id = SnapshotId { shard: self.shard, index: LogIndex(metadata.index), term: Term(metadata.term) };
        let (Some(node), Some((newest, file_bytes))) = (self.node_of(to), self.snapshots.newest) else {
            return;
        };
        if newest != id {
            // A newer snapshot was finished meanwhile; the engine tries again.
            self.raft.report_snapshot(to.0, SnapshotStatus::Failure);
            return;
        }
        self.snapshots.sending.retain(|sending| sending.to != to);
        let (heard, asked) = (self.now, self.now);
        let phase = SendingPhase::Asked;
        self.trace_snapshot(id.index, Some(node), SnapshotStage::Sending);
        self.snapshots.sending.push(Sending { to, node, id, file_bytes, message, phase, heard, asked });
        out.snapshot_frames.push((node, question(id)));
    }

    /// Handles a follower's reply about how much of a snapshot it has.
    pub fn snapshot_receipt(&mut self, from: NodeId, id: SnapshotId, next_offset: u64, out: &mut Output) {
        let now = self.now;
        let Some(sending) =
            self.snapshots.sending.iter_mut().find(|sending| sending.node == from && sending.id == id)
        else {
            return;
        };
        sending.heard = now;
        if next_offset >= sending.file_bytes {
            let before = core::mem::replace(&mut sending.phase, SendingPhase::Complete);
            let message = sending.message.clone();
            if before != SendingPhase::Complete {
                self.trace_snapshot(id.index, Some(from), SnapshotStage::Sent);
            }
            self.send_now(&message, out);
        } else if !matches!(sending.phase, SendingPhase::Reading(_)) {
            sending.phase = SendingPhase::Reading(next_offset);
            let bytes_max = limits::SNAPSHOT_PART_BYTES_MAX;
            out.snapshot_tasks.push(SnapshotTask::Read { id, offset: next_offset, bytes_max });
        }
    }

    /// Sends a part to the followers that wait for it.
    pub(super) fn send_part(&mut self, part: &SnapshotPart, file_bytes: u64, out: &mut Output) {
        let now = self.now;
        for sending in &mut self.snapshots.sending {
            if sending.id == part.id && sending.phase == SendingPhase::Reading(part.offset) {
                sending.phase = SendingPhase::Asked;
                // The follower had nothing to reply to until now.
                (sending.heard, sending.asked) = (now, now);
                sending.file_bytes = file_bytes;
                out.snapshot_frames.push((sending.node, peer::snapshot_part(part)));
            }
        }
    }

    /// Asks silent followers again, and stops sending to those that stay silent or are done.
    pub(super) fn tick_sending(&mut self, out: &mut Output) {
        if self.snapshots.sending.is_empty() {
            return;
        }
        let now = self.now;
        let give_up_ticks = GIVE_UP_ELECTION_TIMEOUTS * self.timing.election_ticks;
        let waits = |sending: &Sending| matches!(sending.phase, SendingPhase::Asked | SendingPhase::Complete);
        for sending in &mut self.snapshots.sending {
            if waits(sending) && now.0 >= sending.asked.0.max(sending.heard.0) + ASK_AGAIN_TICKS {
                sending.asked = now;
                out.snapshot_frames.push((sending.node, question(sending.id)));
            }
        }
        self.stop_sending(|sending| waits(sending) && now.0 >= sending.heard.0 + give_up_ticks);
        let progress = self.raft.raft.prs();
        let still_needed = |sending: &Sending| {
            progress.get(sending.to.0).is_some_and(|progress| progress.state == ProgressState::Snapshot)
        };
        self.snapshots.sending.retain(still_needed);
    }

    /// Stops sending to the followers that `gives_up` selects; the engine tries again later.
    fn stop_sending(&mut self, gives_up: impl Fn(&Sending) -> bool) {
        let (given_up, sending): (Vec<Sending>, Vec<Sending>) =
            core::mem::take(&mut self.snapshots.sending).into_iter().partition(gives_up);
        self.snapshots.sending = sending;
        for Sending { to, node, id, .. } in given_up {
            self.trace_snapshot(id.index, Some(node), SnapshotStage::GivenUp);
            self.raft.report_snapshot(to.0, SnapshotStatus::Failure);
        }
    }

    /// A part of a snapshot could not be read: stops sending to the followers that wait for it.
    pub(super) fn reading_failed(&mut self, id: SnapshotId) {
        self.stop_sending(|sending| sending.id == id && matches!(sending.phase, SendingPhase::Reading(_)));
    }

    /// Stops sending to a node whose link broke, or to all if this replica no longer leads.
    pub(super) fn stop_sending_to(&mut self, node: Option<NodeId>) {
        self.stop_sending(|sending| node.is_none_or(|node| sending.node == node));
    }
}

/// A query for what a follower has of a snapshot.
fn question(id: SnapshotId) -> Vec<u8> {
    peer::snapshot_part(&SnapshotPart { id, offset: 0, bytes: Bytes::new() })
}
