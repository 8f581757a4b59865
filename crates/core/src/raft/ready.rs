//! Processing of the engine's `Ready`: the order in which messages are sent, entries written and
//! applied, and requests answered.
//!
//! The order is essential for safety:
//! 1. A leader's messages are sent at once. They promise nothing about its own disk (Raft thesis,
//!    10.2.1), provided that its vote for itself is durable.
//! 2. Committed entries are applied. The engine only returns entries that are durable here.
//! 3. New entries become visible in the log store, and go to the write-ahead log together with term
//!    and vote.
//! 4. Committed entries that are not durable here are applied too. A majority of other disks has
//!    them, so clients need not wait for the slowest disk. After a crash, such a replica restarts
//!    from an earlier state and applies them again.
//! 5. Messages that promise something (votes, acknowledgements of entries) wait until the log batch
//!    that they depend on is durable.
//!
//! Entries that are applied but not durable here may be lost by a restart, and nothing that a
//! restart must preserve may depend on them. So membership changes wait for the disk, the log is
//! released and cut only up to durable entries, and reports to peers contain only durable entries.
//!
//! Several `Ready`s may wait for the disk at a time; they are released in order.

use alloc::vec;
use alloc::vec::Vec;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use raft::{Ready, StateRole};

use super::group::Group;
use super::membership;
use super::persisting::assert_acknowledges_up_to;
use super::proposals;
use super::snapshots::is_snapshot;
use super::wire;
use crate::codec;
use crate::command::{Read, ShardAnswer, ShardError, Write};
use crate::deliberate::Fault;
use crate::event::{ConfigUpdate, Contradiction, Counters};
use crate::limits;
use crate::peer::{KIND_RAFT, Origin, Outcome, RequestId};
use crate::storage::snapshot::SnapshotTask;
use crate::storage::{HardState, LogEntry, WalRecord};
use crate::trace::TraceEvent;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Term, WalSequence};

pub struct ReadDone {
    pub request: RequestId,
    pub shard: ShardId,
    /// It is repeated if slots have moved meanwhile.
    pub read: Read,
    pub answer: Result<ShardAnswer, ShardError>,
}

/// The outputs of groups: [`Group::drive`] of many groups fills it before the node passes it to the
/// shell.
#[derive(Default)]
pub struct Output {
    /// The sequence number of this round's log batch, if there is one.
    pub sequence: WalSequence,
    /// Records of that batch.
    pub records: Vec<WalRecord>,
    /// Encoded messages for peers, each preceded by its shard, in frames.
    pub messages: Vec<(NodeId, Vec<Vec<u8>>)>,
    /// Whether `messages` contain anything but appends without entries. These only tell followers
    /// what is committed.
    pub is_awaited: bool,
    pub outcomes: Vec<(Origin, Outcome)>,
    /// Whether to report in `logged`: requests are traced.
    pub is_tracing: bool,
    /// Entries that leaders here appended to their logs, and the origins of their commands.
    pub logged: Vec<(ShardId, LogIndex, Vec<Origin>)>,
    pub config: Vec<ConfigUpdate>,
    pub reads: Vec<ReadDone>,
    pub snapshot_tasks: Vec<SnapshotTask>,
    /// Payloads of snapshot frames. Each has a frame to itself, because parts are large.
    pub snapshot_frames: Vec<(NodeId, Vec<u8>)>,
    /// Entries that the write-ahead log may drop.
    pub released: Vec<(ShardId, LogIndex)>,
    /// What happened, for logs and traces.
    pub trace: Vec<TraceEvent>,
    /// Set if the node must stop.
    pub contradiction: Option<Contradiction>,
    /// Totals over all groups since the start.
    pub counters: Counters,
}

impl Output {
    /// Creates an empty output without peers.
    pub fn new() -> Output {
        Output { sequence: WalSequence(1), ..Output::default() }
    }

    /// Sets the peers that may be sent messages. Waiting messages to other nodes are dropped.
    pub fn set_peers(&mut self, peers: impl Iterator<Item = NodeId>) {
        let mut before = core::mem::take(&mut self.messages);
        self.messages = peers
            .map(|peer| {
                let kept = before.iter_mut().find(|(node, _)| *node == peer);
                (peer, kept.map(|(_, frames)| core::mem::take(frames)).unwrap_or_default())
            })
            .collect();
    }

    /// Drops the pending output of a shard whose replica here has ended, except for log records.
    pub fn forget(&mut self, shard: ShardId) {
        self.released.retain(|(released, _)| *released != shard);
    }

    /// Whether there is any output.
    pub fn has_output(&self) -> bool {
        !self.records.is_empty()
            || !self.released.is_empty()
            || !self.outcomes.is_empty()
            || !self.config.is_empty()
            || !self.reads.is_empty()
            || !self.snapshot_tasks.is_empty()
            || !self.snapshot_frames.is_empty()
            || !self.trace.is_empty()
            || self.contradiction.is_some()
            || self.messages.iter().any(|(_, frames)| !frames.is_empty())
    }

    /// The open frame of messages for a peer.
    fn frame(&mut self, peer: NodeId) -> Option<&mut Vec<u8>> {
        let (_, frames) = self.messages.iter_mut().find(|(node, _)| *node == peer)?;
        if frames.last().is_none_or(|frame| frame.len() >= limits::PEER_FRAME_BYTES_CLOSE) {
            frames.push(vec![KIND_RAFT]);
        }
        frames.last_mut()
    }
}

impl Group {
    /// Runs the engine until it has nothing more to do.
    pub fn drive(&mut self, out: &mut Output) {
        loop {
            self.propose_queued(out);
            self.begin_read_round(out);
            self.bypass_stalled_disk(out);
            if !self.raft.has_ready() {
                break;
            }
            let ready = self.raft.ready();
            self.process(ready, out);
        }
        self.serve_reads(out);
        self.refuse_reads_beyond_disk(out);
        if !self.is_member() && self.shard() != ShardId::PRIME {
            out.reads.extend(self.take_reads());
        }
        self.forget_overtaken_parts();
        self.note_newer_wanted();
        self.cut_log(limits::LOG_CUT_ENTRIES_MAX);
        self.free_flushed(limits::FLUSHED_KEYS_FREED_MAX);
        self.take_trace(out);
    }

    /// Handles durability of all batches up to `sequence`.
    pub fn durable(&mut self, sequence: WalSequence, out: &mut Output) {
        self.persisting.sequence_durable(sequence);
        while let Some(waiting) = self.persisting.next_durable() {
            self.raft.on_persist_ready(waiting.ready_number);
            self.install_snapshot(waiting.ready_number, out);
            self.send(waiting.messages, out);
        }
        self.advance_positions();
    }

    fn process(&mut self, mut ready: Ready, out: &mut Output) {
        if let Some(soft) = ready.ss() {
            let leads = soft.raft_state == StateRole::Leader;
            self.leadership_changed(leads, out);
        }
        let mut held = ready.take_messages();
        // A single voter leads before its vote for itself is durable. If it sent messages before
        // that and crashed, its next process would not know of the vote and could contradict them
        // in the same term.
        if self.persisting.is_durable(Term(self.raft.raft.term)) || self.faults().has(Fault::LedBeforeDurable)
        {
            self.send(core::mem::take(&mut held), out);
        }
        self.confirm_reads(ready.take_read_states());
        let applied = self.applied.index().0;
        let mut committed = ready.take_committed_entries();
        if committed.first().is_some_and(|entry| entry.index <= applied) {
            committed.retain(|entry| entry.index > applied);
        }
        self.persisting.begin_entries(ready.entries().first().map(|first| LogIndex(first.index)));
        self.apply(committed, out);
        self.persist(ready, held, out);
        if self.faults().has(Fault::AcknowledgedBeforeSync) {
            self.durable(out.sequence, out);
        }
        self.apply_before_durable(out);
        // The engine's applied index never exceeds what is durable. Otherwise the engine could
        // allow the next membership change, or an election, too early.
        let durable = self.raft.raft.raft_log.persisted;
        self.raft.advance_apply_to(self.applied.index().0.min(durable));
        self.advance_positions();
    }

    /// Applies entries that are committed but not durable here, up to the first membership change.
    /// Directly after `advance_append_async` the log store and the engine's log are equal, so a
    /// replaced entry is never taken for a committed one.
    fn apply_before_durable(&mut self, out: &mut Output) {
        let log = &self.raft.raft.raft_log;
        let (committed, durable, applied) = (log.committed, log.persisted, self.applied.index().0);
        let is_nothing_new = committed <= durable.max(applied);
        if is_nothing_new || self.is_installing() || self.faults().has(Fault::HangingDiskAwaited) {
            return;
        }
        let waits = |entry: &Entry| entry.index > durable && is_change(entry);
        let store = self.raft.store();
        let entries = (applied + 1..=committed).map_while(|index| store.entry(index));
        let entries: Vec<Entry> = entries.take_while(|entry| !waits(entry)).cloned().collect();
        self.apply(entries, out);
    }

    /// The last entry that is applied and durable here, which a restart preserves.
    pub fn applied_and_durable(&self) -> LogIndex {
        LogIndex(self.raft.raft.raft_log.applied)
    }

    /// Writes the entries and the hard state of a `Ready`. `messages`, and the messages that the
    /// engine holds back, are sent when these are durable.
    fn persist(&mut self, mut ready: Ready, mut messages: Vec<Message>, out: &mut Output) {
        let must_sync = ready.must_sync();
        let ready_number = ready.number();
        messages.extend(ready.take_persisted_messages());
        if !ready.snapshot().is_empty() {
            self.restart_log(ready.snapshot().get_metadata().index, ready_number, out);
        }
        let entries = ready.take_entries();
        if let Some(first) = entries.first() {
            let is_new = first.index > self.applied.index().0;
            assert!(is_new, "invariant: an applied entry is never replaced");
            self.raft.mut_store().append(&entries);
            self.write_entries(&entries, out);
            self.persisting.begin_entries(None);
        }
        if must_sync {
            self.persist_hard_state(out);
        }
        let term = Term(self.raft.raft.term);
        assert_eq!(self.persisting.last_state().term, term, "invariant: a new term goes to the disk at once");
        self.raft.advance_append_async(ready);
        let last = self.raft.store().last();
        assert_eq!(last, self.raft.raft.raft_log.last_index(), "invariant: the log store is complete");
        assert_acknowledges_up_to(&messages, LogIndex(last), term);

        let sequence = match self.persisting.last_sequence() {
            _ if must_sync => out.sequence,
            Some(last) => last,
            None => {
                self.raft.on_persist_ready(ready_number);
                self.send(messages, out);
                return;
            }
        };
        if self.persisting.is_durable(term) {
            let (now, later) = messages.into_iter().partition(promises_no_entries);
            self.send(now, out);
            messages = later;
        }
        self.persisting.push(sequence, ready_number, messages);
    }

    /// Membership changes up to here are known to be committed, and a restart preserves this
    /// knowledge.
    pub fn remembered(&self) -> LogIndex {
        self.persisting.remembered()
    }

    /// Persists that a membership change is committed. Without that, a replica could restart with
    /// an earlier membership and ask removed replicas for their votes.
    fn remember_change(&mut self, index: LogIndex, out: &mut Output) {
        if self.faults().has(Fault::MembershipNotPersisted) {
            return self.persisting.remember(index);
        }
        self.persist_hard_state(out);
        self.persisting.remember_when_durable(index);
    }

    /// Writes entries. A log with a membership change must also contain that the previous change is
    /// committed. Otherwise a restarted replica could stand for election among the voters of two
    /// changes ago. So the commit index is written before each membership change: if the node fails
    /// while it writes the batch, the disk may hold only the first records of it.
    fn write_entries(&mut self, entries: &[Entry], out: &mut Output) {
        for part in entries.chunk_by(|_, next| !is_change(next)) {
            let Some(first) = part.first() else { continue };
            if is_change(first) {
                self.persist_hard_state_up_to(first.index - 1, out);
            }
            let entries = part.iter().map(to_log).collect();
            out.records.push(WalRecord::Entries { shard: self.shard(), entries });
        }
    }

    /// Writes the hard state if it has changed. A new commit index alone is not written, because a
    /// restarted replica learns it again. But it is written with every other change. It covers only
    /// entries that are passed to the disk before it.
    fn persist_hard_state(&mut self, out: &mut Output) {
        let last = self.persisting.first_unwritten().map_or(u64::MAX, |first| first.0 - 1);
        self.persist_hard_state_up_to(last, out);
    }

    /// As [`Group::persist_hard_state`], with a commit index of at most `last`.
    fn persist_hard_state_up_to(&mut self, last: u64, out: &mut Output) {
        let hard = self.raft.raft.hard_state();
        let state = HardState {
            term: Term(hard.term),
            vote: (hard.vote != 0 && !self.faults().has(Fault::VoteNotPersisted))
                .then_some(ReplicaId(hard.vote)),
            commit: LogIndex(hard.commit.min(last)),
        };
        if self.persisting.write(state, out.sequence) {
            out.records.push(WalRecord::HardState { shard: self.shard(), state });
        }
    }

    fn apply(&mut self, entries: Vec<Entry>, out: &mut Output) {
        let mut dead = Vec::new();
        let mut late = None;
        for entry in entries {
            let (index, term) = (LogIndex(entry.index), Term(entry.term));
            self.applied.advance(index, term);
            let waiters = self.take_waiters((term, index), &mut dead);
            // The leader decoded every command before it proposed it, and the checksums were
            // correct since. If decoding failed and the replica continued, replicas would diverge.
            let mut writes = match entry.get_entry_type() {
                EntryType::EntryNormal => {
                    proposals::decode_entry(&entry.data).expect("invariant: a committed entry decodes")
                }
                EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                    self.apply_change(&entry);
                    self.remember_change(index, out);
                    Vec::new()
                }
            };
            assert!(
                waiters.is_empty()
                    || waiters.len() == writes.len()
                    || self.faults().has(Fault::DeposedSessionAnswered),
                "invariant: one waiter for each command"
            );
            if self.faults().has(Fault::AppliedOutOfOrder) && !self.leads() {
                writes.reverse();
            }
            let is_checkpoint = writes.iter().any(|write| matches!(write, Write::Checkpoint { .. }));
            let mut waiters = waiters.into_iter();
            for mut write in writes {
                if let Write::Expire { limit, .. } = &mut write {
                    self.expiry_applied();
                    if self.faults().has(Fault::OnlyLeaderExpires) && !self.leads() {
                        *limit = 0;
                    }
                }
                let origin = waiters.next();
                let applied = self.applied.write(write, origin.is_some());
                out.outcomes.extend(origin.map(|origin| (origin, applied.into())));
            }
            let mut updates = self.applied.machine_mut().take_updates();
            if self.leads() || !self.faults().has(Fault::OnlyLeaderNotifies) {
                out.config.append(&mut updates);
            }
            out.counters.entries_applied += 1;
            // Immediately, not after the batch: other replicas have other batches.
            if is_checkpoint && self.faults().has(Fault::CheckpointTakenLate) {
                late = Some(self.applied.id(self.shard()));
            } else if is_checkpoint {
                self.begin_checkpoint(self.applied.id(self.shard()), out);
            }
        }
        if let Some(id) = late {
            self.begin_checkpoint(id, out);
        }
        out.outcomes.extend(dead.into_iter().map(|origin| (origin, Outcome::NotDone)));
    }

    pub(super) fn send(&mut self, messages: Vec<Message>, out: &mut Output) {
        for message in messages {
            if is_snapshot(&message) {
                self.begin_sending(message, out);
            } else {
                self.send_now(&message, out);
            }
        }
    }

    pub(super) fn send_now(&self, message: &Message, out: &mut Output) {
        let Some(node) = self.members.node_of(ReplicaId(message.to)) else { return };
        if !wire::is_sent(message) {
            return;
        }
        let faults = self.faults();
        if !faults.has(Fault::LedBeforeDurable) && !faults.has(Fault::VoteNotPersisted) {
            self.persisting.assert_durable(message);
        }
        out.is_awaited |= !tells_commit_only(message);
        let Some(frame) = out.frame(node) else { return };
        codec::put_varint(frame, self.shard().0);
        wire::encode(message, frame);
    }
}

/// Whether a message depends on neither the log nor the vote of this replica. Such a message waits
/// only for its term to be durable. Otherwise reads on a follower would wait for the fsync of every
/// write.
pub(super) fn promises_no_entries(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgReadIndex | MessageType::MsgHeartbeatResponse)
}

/// Whether a message is an append without entries, which only carries the commit index.
fn tells_commit_only(message: &Message) -> bool {
    message.get_msg_type() == MessageType::MsgAppend && message.entries.is_empty()
}

fn is_change(entry: &Entry) -> bool {
    entry.get_entry_type() != EntryType::EntryNormal
}

fn to_log(entry: &Entry) -> LogEntry {
    let data = membership::data_of(entry).clone();
    LogEntry { index: LogIndex(entry.index), term: Term(entry.term), data }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::storage::RecoveredLog;
    use crate::types::Ticks;

    #[test]
    fn the_commit_index_is_written_before_a_membership_change() {
        let mut group = fixture::group(ShardId(1), RecoveredLog::default());
        let mut out = Output::new();
        let entry = |(index, kind)| {
            let mut entry = Entry { index, term: 1, ..Entry::default() };
            entry.set_entry_type(kind);
            entry
        };
        let (normal, change) = (EntryType::EntryNormal, EntryType::EntryConfChangeV2);
        let entries = [(2, normal), (3, normal), (4, change), (5, normal), (6, change)].map(entry);
        group.write_entries(&entries, &mut out);
        let shape: Vec<(&str, u64)> = out
            .records
            .iter()
            .map(|record| match record {
                WalRecord::Entries { entries, .. } => ("entries", entries[0].index.0),
                WalRecord::HardState { .. } => ("state", 0),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(shape, [("entries", 2), ("state", 0), ("entries", 4), ("entries", 6)]);
    }

    /// A follower learns with new entries that they are committed, and applies a membership change
    /// before them in the same turn.
    #[test]
    fn the_commit_index_covers_no_entry_that_is_written_later() {
        let mut group = fixture::group(ShardId(1), RecoveredLog::default());
        let mut out = Output::new();
        group.raft.raft.raft_log.committed = 9;
        group.persisting.begin_entries(Some(LogIndex(6)));
        group.persist_hard_state(&mut out);
        group.persisting.begin_entries(None);
        group.persist_hard_state(&mut out);
        let commits = out.records.iter().map(|record| match record {
            WalRecord::HardState { state, .. } => state.commit.0,
            other => panic!("{other:?}"),
        });
        assert_eq!(commits.collect::<Vec<_>>(), [5, 9]);
    }

    #[test]
    fn a_single_voter_says_whether_its_vote_is_durable() {
        let mut group = fixture::first_of(1, ShardId(1), RecoveredLog::default());
        let mut out = Output::new();
        for tick in 1..=40 {
            group.tick(Ticks(tick), &mut out);
            group.drive(&mut out);
        }
        let status = group.status();
        assert!(status.leads && !status.is_term_durable);
        group.durable(out.sequence, &mut out);
        assert!(group.status().is_term_durable);
    }
}
