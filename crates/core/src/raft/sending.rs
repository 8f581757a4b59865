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

/// The snapshots that a leader sends, at most one to each follower.
#[derive(Default)]
pub(super) struct Sending(Vec<SnapshotTransfer>);

/// A snapshot being sent to one follower.
pub(super) struct SnapshotTransfer {
    to: ReplicaId,
    node: NodeId,
    id: SnapshotId,
    file_bytes: u64,
    /// The engine's message, to send when the follower has all parts.
    message: Message,
    phase: TransferPhase,
    /// When the follower last replied, or was last sent a part.
    heard: Ticks,
    asked: Ticks,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransferPhase {
    /// The follower was asked what it has, or was sent a part.
    Asked,
    /// The part at this offset is being read.
    Reading(u64),
    /// The follower has all parts and was sent the engine's message.
    Complete,
}

/// What to do after a follower's reply.
#[derive(Debug, PartialEq)]
enum NextStep {
    /// Read the part at this offset.
    Read(u64),
    /// Send the engine's message; `is_first` unless it was sent before.
    Complete { message: Message, is_first: bool },
}

impl Sending {
    /// Whether no snapshot is being sent.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last entries of the snapshots being sent.
    pub(super) fn indexes(&self) -> impl Iterator<Item = LogIndex> {
        self.0.iter().map(|transfer| transfer.id.index)
    }

    /// Begins to send a snapshot to the follower `to`, in place of any other.
    fn begin(&mut self, message: Message, (node, id, file_bytes): (NodeId, SnapshotId, u64), now: Ticks) {
        let to = ReplicaId(message.to);
        self.0.retain(|transfer| transfer.to != to);
        let phase = TransferPhase::Asked;
        self.0.push(SnapshotTransfer { to, node, id, file_bytes, message, phase, heard: now, asked: now });
    }

    /// Handles the reply of a follower that has the file up to `next_offset`. `None` if there is
    /// nothing to do, because a part is being read.
    fn receipt(&mut self, from: NodeId, id: SnapshotId, next_offset: u64, now: Ticks) -> Option<NextStep> {
        let transfer = self.0.iter_mut().find(|transfer| transfer.node == from && transfer.id == id)?;
        transfer.heard = now;
        if next_offset >= transfer.file_bytes {
            let before = core::mem::replace(&mut transfer.phase, TransferPhase::Complete);
            let is_first = before != TransferPhase::Complete;
            return Some(NextStep::Complete { message: transfer.message.clone(), is_first });
        }
        let is_reading = matches!(transfer.phase, TransferPhase::Reading(_));
        (!is_reading).then(|| {
            transfer.phase = TransferPhase::Reading(next_offset);
            NextStep::Read(next_offset)
        })
    }

    /// Records that a part was read, and returns the nodes that wait for it.
    fn part_read(&mut self, id: SnapshotId, offset: u64, file_bytes: u64, now: Ticks) -> Vec<NodeId> {
        let waits = |transfer: &&mut SnapshotTransfer| {
            transfer.id == id && transfer.phase == TransferPhase::Reading(offset)
        };
        let waiting = self.0.iter_mut().filter(waits);
        waiting
            .map(|transfer| {
                transfer.phase = TransferPhase::Asked;
                // Nothing was sent to the follower while the snapshot was read, so its time to
                // answer begins now.
                (transfer.heard, transfer.asked) = (now, now);
                transfer.file_bytes = file_bytes;
                transfer.node
            })
            .collect()
    }

    /// The silent followers to ask again now, with their snapshots.
    fn due_questions(&mut self, now: Ticks) -> Vec<(NodeId, SnapshotId)> {
        let is_due = |transfer: &&mut SnapshotTransfer| {
            let last = transfer.asked.0.max(transfer.heard.0);
            transfer.awaits_reply() && now.0 >= last + ASK_AGAIN_TICKS
        };
        let due = self.0.iter_mut().filter(is_due);
        due.map(|transfer| {
            transfer.asked = now;
            (transfer.node, transfer.id)
        })
        .collect()
    }

    /// Removes the transfers that `is_given_up` selects, and returns them.
    fn take(&mut self, is_given_up: impl Fn(&SnapshotTransfer) -> bool) -> Vec<SnapshotTransfer> {
        self.0.extract_if(.., |transfer| is_given_up(transfer)).collect()
    }

    /// Keeps only the transfers to followers that `needs` selects.
    fn retain(&mut self, needs: impl Fn(ReplicaId) -> bool) {
        self.0.retain(|transfer| needs(transfer.to));
    }
}

impl SnapshotTransfer {
    fn awaits_reply(&self) -> bool {
        matches!(self.phase, TransferPhase::Asked | TransferPhase::Complete)
    }
}

impl Group {
    /// Handles the engine's request to send a snapshot: asks the follower what it has of it.
    pub(super) fn begin_sending(&mut self, message: Message, out: &mut Output) {
        let to = ReplicaId(message.to);
        let metadata = message.get_snapshot().get_metadata();
        let (index, term) = (LogIndex(metadata.index), Term(metadata.term));
        let id = SnapshotId { shard: self.shard(), index, term };
        let (Some(node), Some((newest, file_bytes))) =
            (self.members.node_of(to), self.snapshots.newest_file())
        else {
            return;
        };
        if newest != id {
            // A newer snapshot was finished meanwhile; the engine tries again.
            self.raft.report_snapshot(to.0, SnapshotStatus::Failure);
            return;
        }
        self.trace_snapshot(id.index, Some(node), SnapshotStage::Sending);
        let now = self.now();
        self.sending.begin(message, (node, id, file_bytes), now);
        out.snapshot_frames.push((node, question(id)));
    }

    /// Handles a follower's reply about how much of a snapshot it has.
    pub fn snapshot_receipt(&mut self, from: NodeId, id: SnapshotId, next_offset: u64, out: &mut Output) {
        let now = self.now();
        match self.sending.receipt(from, id, next_offset, now) {
            Some(NextStep::Complete { message, is_first }) => {
                if is_first {
                    self.trace_snapshot(id.index, Some(from), SnapshotStage::Sent);
                }
                self.send_now(&message, out);
            }
            Some(NextStep::Read(offset)) => {
                let bytes_max = limits::SNAPSHOT_PART_BYTES_MAX;
                out.snapshot_tasks.push(SnapshotTask::Read { id, offset, bytes_max });
            }
            None => {}
        }
    }

    /// Sends a part to the followers that wait for it.
    pub(super) fn send_part(&mut self, part: &SnapshotPart, file_bytes: u64, out: &mut Output) {
        let now = self.now();
        let nodes = self.sending.part_read(part.id, part.offset, file_bytes, now);
        out.snapshot_frames.extend(nodes.into_iter().map(|node| (node, peer::snapshot_part(part))));
    }

    /// Asks silent followers again, and stops sending to those that stay silent or are done.
    pub(super) fn tick_sending(&mut self, out: &mut Output) {
        if self.sending.is_empty() {
            return;
        }
        let (now, give_up_ticks) = (self.now(), GIVE_UP_ELECTION_TIMEOUTS * self.election_ticks());
        let questions = self.sending.due_questions(now).into_iter();
        out.snapshot_frames.extend(questions.map(|(node, id)| (node, question(id))));
        self.stop_sending(|transfer| transfer.awaits_reply() && now.0 >= transfer.heard.0 + give_up_ticks);
        let progress = self.raft.raft.prs();
        self.sending.retain(|to| {
            progress.get(to.0).is_some_and(|progress| progress.state == ProgressState::Snapshot)
        });
    }

    /// Stops sending to the followers that `is_given_up` selects; the engine tries again later.
    fn stop_sending(&mut self, is_given_up: impl Fn(&SnapshotTransfer) -> bool) {
        for SnapshotTransfer { to, node, id, .. } in self.sending.take(is_given_up) {
            self.trace_snapshot(id.index, Some(node), SnapshotStage::GivenUp);
            self.raft.report_snapshot(to.0, SnapshotStatus::Failure);
        }
    }

    /// A part of a snapshot could not be read: stops sending to the followers that wait for it.
    pub(super) fn reading_failed(&mut self, id: SnapshotId) {
        self.stop_sending(|transfer| transfer.id == id && !transfer.awaits_reply());
    }

    /// Stops sending to a node whose link broke, or to all if this replica no longer leads.
    pub(super) fn stop_sending_to(&mut self, node: Option<NodeId>) {
        self.stop_sending(|transfer| node.is_none_or(|node| transfer.node == node));
    }
}

/// A query for what a follower has of a snapshot.
fn question(id: SnapshotId) -> Vec<u8> {
    peer::snapshot_part(&SnapshotPart { id, offset: 0, bytes: Bytes::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ShardId;

    const NODE: NodeId = NodeId(2);
    const ID: SnapshotId = SnapshotId { shard: ShardId(1), index: LogIndex(9), term: Term(3) };

    /// A snapshot of 100 bytes, being sent to replica 20 on node 2 since tick 10.
    fn sending() -> Sending {
        let mut sending = Sending::default();
        sending.begin(Message { to: 20, ..Message::default() }, (NODE, ID, 100), Ticks(10));
        sending
    }

    fn receipt(sending: &mut Sending, next_offset: u64) -> Option<NextStep> {
        sending.receipt(NODE, ID, next_offset, Ticks(11))
    }

    #[test]
    fn a_follower_is_sent_one_part_at_a_time_and_then_the_message() {
        let mut sending = sending();
        assert_eq!(receipt(&mut sending, 0), Some(NextStep::Read(0)));
        assert_eq!(receipt(&mut sending, 0), None, "the part is being read");
        assert_eq!(sending.part_read(ID, 40, 100, Ticks(12)), [], "of another offset");
        assert_eq!(sending.part_read(ID, 0, 100, Ticks(12)), [NODE]);
        assert_eq!(receipt(&mut sending, 60), Some(NextStep::Read(60)));
        assert_eq!(sending.part_read(ID, 60, 100, Ticks(13)), [NODE]);
        for expected in [true, false] {
            let Some(NextStep::Complete { message, is_first }) = receipt(&mut sending, 100) else {
                panic!("it has all parts")
            };
            assert_eq!((message.to, is_first), (20, expected));
        }
        assert_eq!(sending.receipt(NodeId(3), ID, 0, Ticks(14)), None, "nothing is sent to it");
    }

    #[test]
    fn a_silent_follower_is_asked_again_unless_a_part_is_being_read() {
        let mut sending = sending();
        assert_eq!(sending.due_questions(Ticks(9 + ASK_AGAIN_TICKS)), []);
        assert_eq!(sending.due_questions(Ticks(10 + ASK_AGAIN_TICKS)), [(NODE, ID)]);
        assert_eq!(sending.due_questions(Ticks(11 + ASK_AGAIN_TICKS)), [], "it was just asked");
        assert_eq!(receipt(&mut sending, 0), Some(NextStep::Read(0)));
        assert_eq!(sending.due_questions(Ticks(1_000)), []);
    }

    #[test]
    fn a_follower_is_sent_one_snapshot() {
        let mut sending = sending();
        let newer = SnapshotId { index: LogIndex(12), ..ID };
        sending.begin(Message { to: 20, ..Message::default() }, (NODE, newer, 200), Ticks(20));
        assert_eq!(sending.indexes().collect::<Vec<_>>(), [LogIndex(12)]);
        assert_eq!(sending.take(|transfer| transfer.node == NODE).len(), 1);
        assert!(sending.is_empty());
    }
}
