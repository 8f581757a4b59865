//! One replica of one shard: the engine, the state machine that it drives, and the waiting
//! requests.
//!
//! Owns what a replica accepts: messages, commands and reads. [`super::elections`] decides when it
//! stands for election, [`super::ready`] processes `Ready`s. The router owns the shard of a key,
//! forwarding and deadlines.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Message, MessageType};
use raft::{Config, RawNode, ReadOnlyOption, StateRole};

use super::elections::ElectionTimer;
use super::log_store::LogStore;
use super::membership::{self, conf_state, data_of};
use super::persisting::Persisting;
use super::positions::Positions;
use super::proposals::{Proposals, decode_entry};
use super::reads::{Reads, Waiter};
use super::ready::Output;
use super::snapshots::{Snapshots, is_snapshot};
use super::stalls::Disks;
use super::trace::{GroupTrace, RoleChangeCause, VoteRequest};
use super::wire;
use crate::codec::{DecodeError, Decoder};
use crate::command::{Read, Refusal, Reply, Write};
use crate::deliberate::{Fault, Faults};
use crate::event::{ShardStatus, Timing};
use crate::limits;
use crate::machine::Machine;
use crate::membership::{Membership, Role};
use crate::peer::{Origin, Outcome, RequestId};
use crate::storage::snapshot::SnapshotId;
use crate::storage::{self, LogEntry, RecoveredLog, RecoveredShard};
use crate::trace::ProposalRefusal;
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term, Ticks, UnixMillis};

pub struct GroupOptions {
    pub shard: ShardId,
    pub replica: ReplicaId,
    /// The membership of the shard when its log began.
    pub founding: Vec<(ReplicaId, NodeId)>,
    /// The initial state of the shard, for a replica without a snapshot.
    pub machine: Machine,
    pub timing: Timing,
    /// Seed of election jitter and read contexts. It differs between starts.
    pub seed: u64,
    /// See [`crate::event::NodeOptions::faults`].
    pub faults: Faults,
}

/// Why a command was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposeError {
    /// This replica does not lead; another one may.
    NotLeader,
    /// The shard does not own the keys of the command.
    NotHere,
    /// The command is refused and will not be executed on any node.
    Refused(Refusal),
}

/// One replica of one shard, with its Raft engine and its state machine.
pub struct Group {
    pub(super) shard: ShardId,
    pub(super) raft: RawNode<LogStore>,
    pub(super) machine: Machine,
    pub(super) applied: LogIndex,
    pub(super) proposals: Proposals,
    pub(super) reads: Reads,
    pub(super) persisting: Persisting,
    pub(super) positions: Positions,
    pub(super) snapshots: Snapshots,
    pub(super) disks: Disks,
    pub(super) applied_term: Term,
    pub(super) timing: Timing,
    pub(super) now: Ticks,
    pub(super) faults: Faults,
    pub(super) membership: Membership,
    /// [`Registry::changed`](crate::control::registry::Registry::changed) of the registry to which
    /// the membership conforms.
    pub(super) settled: Option<LogIndex>,
    /// Nodes of replicas that have sent messages but are not members according to this log, which
    /// may be behind.
    indirect_reports: BTreeMap<ReplicaId, NodeId>,
    pub(super) random: fastrand::Rng,
    pub(super) election: ElectionTimer,
    pub(super) leads: bool,
    /// When the removal of overdue keys was last proposed; `None` once it was applied.
    pub(super) expiring: Option<Ticks>,
    /// Whether a message has contradicted the committed entries. Such a replica stops taking part.
    pub(super) diverged: bool,
    pub(super) trace: GroupTrace,
}

impl Group {
    /// Creates a replica from the state on its disk.
    pub fn new(options: GroupOptions, recovered: RecoveredShard) -> Group {
        let RecoveredShard { snapshot, log } = recovered;
        let newest = snapshot.as_ref().map(|snapshot| (snapshot.id, snapshot.file_bytes));
        let (applied, applied_term) = newest.map_or_else(Default::default, |(id, _)| (id.index, id.term));
        let election_ticks = options.timing.election_ticks as usize;
        let replica = options.replica;
        let config = Config {
            id: replica.0,
            election_tick: election_ticks,
            min_election_tick: election_ticks,
            max_election_tick: election_ticks + election_ticks / 2 + 1,
            applied: applied.0,
            heartbeat_tick: options.timing.heartbeat_ticks as usize,
            max_size_per_msg: limits::APPEND_BYTES_MAX,
            max_inflight_msgs: limits::APPENDS_IN_FLIGHT_MAX,
            pre_vote: true,
            check_quorum: true,
            // raft 0.7.0 can append entries to a waiting message without entries even if they do
            // not follow it (`util::is_continuous_ents`). The follower would then store them at
            // wrong positions.
            batch_append: false,
            read_only_option: ReadOnlyOption::Safe,
            ..Config::default()
        };
        let (machine, membership) = match snapshot {
            Some(snapshot) => (snapshot.machine, snapshot.membership),
            None => (options.machine, Membership::founded(&options.founding)),
        };
        let newest_id = newest.map(|(id, _)| id);
        let state = recovered_state(&log, newest_id);
        let store = recovered_store(log, state, newest_id, conf_state(&membership));
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let mut raft = RawNode::new(&config, store, &logger).expect("invariant: the configuration is valid");
        if membership.replicas() == [replica] {
            // A single voter needs no other votes, so it need not wait for a timeout.
            raft.campaign().expect("invariant: a lone follower may campaign");
        }
        let mut random = fastrand::Rng::with_seed(options.seed);
        let mut machine = machine;
        machine.set_faults(options.faults);
        let mut group = Group {
            shard: options.shard,
            raft,
            machine,
            applied,
            applied_term,
            snapshots: Snapshots::new(newest),
            disks: Disks::default(),
            proposals: Proposals::new(options.faults),
            reads: Reads::new(random.u64(..)),
            persisting: Persisting::new(state),
            positions: Positions::default(),
            membership,
            settled: None,
            indirect_reports: BTreeMap::new(),
            timing: options.timing,
            now: Ticks(0),
            faults: options.faults,
            random,
            election: ElectionTimer::new(),
            leads: false,
            expiring: None,
            diverged: false,
            trace: GroupTrace::new(state.commit),
        };
        group.trace_role(RoleChangeCause::Tick);
        group
    }

    /// Handles a tick.
    pub fn tick(&mut self, now: Ticks, out: &mut Output) {
        self.now = now;
        self.draw_election_timeout();
        if !self.is_installing() && self.counts_tick() {
            self.raft.tick();
            self.tick_hasty_election();
        }
        self.trace_tick();
        self.tick_sending(out);
        self.reads.forget_before(Ticks(now.0.saturating_sub(self.timing.request_ticks)));
    }

    /// Handles one message from a node, which `decoder` reads after its shard number.
    pub fn step(
        &mut self,
        from: NodeId,
        (decoder, owner): (&mut Decoder<'_>, &Bytes),
        out: &mut Output,
    ) -> Result<(), DecodeError> {
        let mut message = wire::decode(decoder, owner)?;
        let sender = ReplicaId(message.from);
        if message.to != self.raft.raft.id {
            // The message is for a previous replica of this node.
            return Ok(());
        }
        match self.node_of(sender) {
            Some(node) if node == from => {}
            Some(_) => return Err(DecodeError::Invalid("sender of a raft message")),
            None => self.note_node_of(sender, from),
        }
        if message.get_msg_type() == MessageType::MsgReadIndex && self.raft.raft.state != StateRole::Leader {
            // The engine would forward it again under the sender's name, and the next node would
            // refuse it. The sender repeats the round and will know the new leader by then.
            return Ok(());
        }
        if let Some(contradiction) = self.contradiction(&message, from) {
            self.diverged = true;
            out.contradiction.get_or_insert(contradiction);
        }
        if self.diverged {
            return Ok(());
        }
        if is_snapshot(&message) {
            self.load_snapshot(message, out);
            return Ok(());
        }
        if message.get_msg_type() == MessageType::MsgTimeoutNow && self.is_installing() {
            return Ok(());
        }
        if self.is_beyond_stalled_disk(&message) {
            self.trace_withheld_vote(&message, from);
            return Ok(());
        }
        if self.has_lost_entries(&message) {
            self.probe_from(sender, message.reject_hint);
            return Ok(());
        }
        self.reject_if_lossy(&mut message);
        let vote_request = VoteRequest::of(&message, from, &self.raft);
        // An error means that the message is outdated or that a forwarded one found no leader. Both
        // are ordinary, and the sender repeats what matters.
        let _ = self.raft.step(message);
        self.trace_vote(vote_request);
        self.trace_role(RoleChangeCause::Message(from));
        self.repair_progress(sender);
        Ok(())
    }

    /// Records the node of a replica that is not a member according to this log. It may be the
    /// leader.
    fn note_node_of(&mut self, replica: ReplicaId, node: NodeId) {
        if self.indirect_reports.len() >= limits::HOSTS_MAX {
            self.indirect_reports.pop_first();
        }
        self.indirect_reports.insert(replica, node);
    }

    /// Whether a follower reports that it no longer has entries that it acknowledged, because its
    /// disk lost the end of its log. The engine would take such a rejection for a delayed one and
    /// never send to that follower again. Frames arrive in order or not at all, so a rejection that
    /// arrives after an acknowledgement was also sent after it.
    fn has_lost_entries(&self, message: &Message) -> bool {
        let current = self.raft.raft.state == StateRole::Leader && message.term == self.raft.raft.term;
        let rejected = message.get_msg_type() == MessageType::MsgAppendResponse && message.reject;
        let progress = self.raft.raft.prs().get(message.from);
        current && rejected && progress.is_some_and(|progress| message.reject_hint < progress.matched)
    }

    /// Replaces a heartbeat that commits entries which this follower no longer has. A heartbeat
    /// commits only acknowledged entries, so a missing one means that the disk lost the end of the
    /// log, and the engine would panic. An empty append after the missing entries is rejected
    /// instead, and tells the leader where to continue ([`Group::has_lost_entries`]).
    fn reject_if_lossy(&self, message: &mut Message) {
        if message.get_msg_type() == MessageType::MsgHeartbeat
            && message.term >= self.raft.raft.term
            && message.commit > self.raft.raft.raft_log.last_index()
        {
            message.set_msg_type(MessageType::MsgAppend);
            message.index = message.commit;
            message.log_term = message.term;
            message.commit = 0;
        }
    }

    /// Forgets what a follower acknowledged. This never lowers the commit index.
    fn probe_from(&mut self, replica: ReplicaId, last_index: u64) {
        if let Some(progress) = self.raft.raft.mut_prs().get_mut(replica.0) {
            progress.matched = 0;
            progress.become_probe();
            progress.next_idx = last_index + 1;
            self.raft.raft.send_append(replica.0);
        }
    }

    /// raft 0.7.0 may leave `next` at or below `matched` (fixed upstream in pull request 557):
    /// probe from `matched`.
    fn repair_progress(&mut self, replica: ReplicaId) {
        if let Some(progress) = self.raft.raft.mut_prs().get_mut(replica.0)
            && progress.next_idx <= progress.matched
        {
            progress.become_probe();
        }
    }

    /// Adds a command to the queue for the next entry. On success exactly one [`Outcome`] follows,
    /// or none if this replica never learns it. Relative times become absolute by `clock`, the time
    /// here. The log holds only absolute times, so that replicas need no clock.
    pub fn propose(
        &mut self,
        write: &Write,
        origin: Origin,
        clock: Option<UnixMillis>,
    ) -> Result<(), ProposeError> {
        if self.raft.raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader);
        }
        if self.raft.raft.lead_transferee.is_some() {
            self.trace_refusal(ProposalRefusal::Transferring);
            return Err(ProposeError::NotLeader);
        }
        if !self.machine.accepts(write) {
            return Err(ProposeError::Refused(Refusal::invalid("write for another kind of shard")));
        }
        write.validate().map_err(ProposeError::Refused)?;
        // The applied state may not own the keys yet, or no longer. Refuse now, so that the log
        // need not contain a refused command.
        if !self.machine.owns_all_of(write) {
            self.trace_refusal(ProposalRefusal::NotOwned);
            return Err(ProposeError::NotHere);
        }
        if self.refuses_commands() {
            self.trace_refusal(ProposalRefusal::DiskUnavailable);
            return Err(ProposeError::Refused(Refusal::DiskUnavailable));
        }
        let proposed = match clock {
            _ if !write.needs_clock() => self.proposals.push(write, origin),
            Some(now) => self.proposals.push(&write.at(now), origin),
            // The time is known after the first tick.
            None => return Err(ProposeError::NotLeader),
        };
        if proposed.is_err() {
            self.trace_refusal(ProposalRefusal::QueueFull);
            return Err(ProposeError::Refused(Refusal::Overloaded));
        }
        Ok(())
    }

    /// Number of overdue keys, up to the maximum of a proposal, if this replica leads and has not
    /// proposed their removal just now.
    pub fn keys_to_expire(&self, time: UnixMillis) -> Option<(ShardId, usize)> {
        let is_waiting = self.expiring.is_some_and(|asked| self.now.0 < asked.0 + self.timing.request_ticks);
        if self.raft.raft.state != StateRole::Leader || is_waiting {
            return None;
        }
        let limit = limits::EXPIRIES_PER_TICK_MAX * limits::EXPIRED_KEYS_MAX;
        let keys = self.machine.overdue(time, limit);
        (keys > 0).then_some((self.shard, keys))
    }

    /// Records that the removal of overdue keys is being proposed.
    pub fn expiring(&mut self) {
        self.expiring = Some(self.now);
    }

    /// Queues a linearizable read. Its answer appears in [`Output::reads`], or never if no leader
    /// confirms it.
    pub fn read(&mut self, request: RequestId, read: Read) {
        self.reads.push(Waiter { request, read, arrived: self.now });
    }

    /// The applied state of a data shard, for copying.
    pub(super) fn data_mut(&mut self) -> Option<&mut crate::machine::Data> {
        self.machine.data_mut()
    }

    /// Answers from the applied state, unless the replica has not applied the move of slots
    /// `since`.
    pub fn read_stale(&self, read: &Read, since: MigrationId) -> Reply {
        if self.machine.last_move().0 < since {
            return Reply::Refused(Refusal::NotHere);
        }
        self.machine.read(read)
    }

    pub(super) fn propose_queued(&mut self, out: &mut Output) {
        if self.raft.raft.state != StateRole::Leader || self.refuses_commands() {
            self.refuse_queued(out);
            return;
        }
        let term = Term(self.raft.raft.term);
        while let Some((data, waiters)) = self.proposals.next_entry(term) {
            let commands = waiters.len() as u64;
            let before = self.raft.raft.raft_log.last_index();
            let mut message = Message { from: self.raft.raft.id, ..Message::default() };
            message.set_msg_type(MessageType::MsgPropose);
            message.set_entries(alloc::vec![Entry { data, ..Entry::default() }].into());
            if self.raft.step(message).is_err() {
                // A leadership transfer is in progress, so nothing entered the log.
                self.trace_refusal(ProposalRefusal::Transferring);
                out.outcomes.extend(waiters.into_iter().map(|origin| (origin, Outcome::NotDone)));
                continue;
            }
            let index = LogIndex(self.raft.raft.raft_log.last_index());
            assert_eq!(index.0, before + 1, "invariant: a proposal appends one entry");
            self.proposals.proposed(term, index, waiters);
            out.counters.entries_proposed += 1;
            out.counters.commands_proposed += commands;
        }
    }

    pub(super) fn begin_read_round(&mut self, out: &mut Output) {
        if let Some(context) = self.reads.next_round(self.now) {
            out.counters.read_rounds += 1;
            if self.faults.has(Fault::ReadWithoutRound) {
                return self.reads.confirmed(&context, self.applied);
            }
            self.raft.read_index(context);
        }
    }

    pub(super) fn leadership_changed(&mut self, leads: bool, out: &mut Output) {
        self.expiring = None;
        self.settled = None;
        self.reads.retry_now();
        if leads && !self.leads {
            out.counters.leaderships += 1;
        }
        if !leads && self.leads {
            self.stop_sending_to(None);
        }
        self.leads = leads;
    }

    fn refuse_queued(&mut self, out: &mut Output) {
        let mut dead = Vec::new();
        self.proposals.drain_queue(&mut dead);
        if !dead.is_empty() {
            self.trace_refusal(match self.raft.raft.state {
                StateRole::Leader => ProposalRefusal::DiskUnavailable,
                _ => ProposalRefusal::LeadershipLost,
            });
        }
        out.outcomes.extend(dead.into_iter().map(|origin| (origin, Outcome::NotDone)));
    }

    pub(super) fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        self.membership.node(replica).or_else(|| self.indirect_reports.get(&replica).copied())
    }

    pub fn replica(&self) -> ReplicaId {
        ReplicaId(self.raft.raft.id)
    }

    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The applied state machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The node that leads, if this replica knows one.
    pub fn leader(&self) -> Option<NodeId> {
        self.node_of(ReplicaId(self.raft.raft.leader_id))
    }

    /// Whether [`Group::drive`] has work, including a read round that may begin or be repeated now.
    pub fn wants_drive(&self) -> bool {
        self.raft.has_ready() || self.reads.wants_round(self.now) || !self.trace.is_empty()
    }

    pub fn status(&self) -> ShardStatus {
        ShardStatus {
            shard: self.shard,
            replica: self.replica(),
            leader: self.leader(),
            leads: self.raft.raft.state == StateRole::Leader,
            term: Term(self.raft.raft.term),
            committed: LogIndex(self.raft.raft.raft_log.committed),
            applied: self.applied,
            last: LogIndex(self.raft.raft.raft_log.last_index()),
            log_begin: LogIndex(self.raft.store().begin()),
            keys: self.machine.record_count(),
            log_bytes: self.raft.store().data_bytes(),
            votes: self.membership.role(ReplicaId(self.raft.raft.id)) == Some(Role::Voter),
            snapshot: self.snapshots.newest(),
            snapshot_bytes: self.snapshot_file_bytes(),
            makes_snapshot: self.is_making_snapshot(),
            last_move: self.machine.last_move().0,
            is_moving: self.machine.last_move().1,
            checkpoint: self.snapshots.checkpoint(),
            diverged: self.diverged,
        }
    }

    /// For checkers: term and data of a committed entry that is still in the log.
    pub fn committed_entry(&self, index: LogIndex) -> Option<(Term, Bytes)> {
        if index.0 > self.raft.raft.raft_log.committed {
            return None;
        }
        self.raft.store().entry(index.0).map(|entry| (Term(entry.term), data_of(entry).clone()))
    }

    /// For checkers: the writes of a committed entry that is still in the log.
    pub fn committed_writes(&self, index: LogIndex) -> Option<Vec<Write>> {
        if index.0 > self.raft.raft.raft_log.committed {
            return None;
        }
        let entry = self.raft.store().entry(index.0)?;
        let is_normal = entry.get_entry_type() == EntryType::EntryNormal;
        let writes = if is_normal { decode_entry(&entry.data) } else { Ok(Vec::new()) };
        Some(writes.expect("invariant: a committed entry decodes"))
    }
}

/// The hard state of a recovered log after its snapshot.
fn recovered_state(log: &RecoveredLog, snapshot: Option<SnapshotId>) -> storage::HardState {
    let (begin, snapshot_term) = snapshot.map_or_else(Default::default, |id| (id.index, id.term));
    let state = log.hard_state;
    storage::HardState {
        term: state.term.max(snapshot_term),
        // A snapshot may be received before its term is persisted. No vote was given in that term.
        vote: state.vote.filter(|_| state.term >= snapshot_term),
        commit: state.commit.max(begin),
    }
}

fn recovered_store(
    log: RecoveredLog,
    state: storage::HardState,
    snapshot: Option<SnapshotId>,
    conf_state: ConfState,
) -> LogStore {
    let begin = snapshot.map_or(LogIndex(0), |id| id.index);
    let last = log.entries.last().map_or(begin, |entry| entry.index);
    // The commit index is written after the entries that it covers, so recovery cannot accept a log
    // that breaks this.
    assert!(state.commit <= last, "invariant: a recovered log holds what it says is committed");
    let hard_state = HardState {
        term: state.term.0,
        vote: state.vote.map_or(0, |replica| replica.0),
        commit: state.commit.0,
        ..HardState::default()
    };
    let entries: VecDeque<Entry> = log
        .entries
        .into_iter()
        .map(|LogEntry { index, term, data }| membership::entry(index, term, data))
        .collect();
    LogStore::new(hard_state, conf_state, snapshot, entries)
}
