//! One replica of one shard: the engine, the state machine that it drives, and the waiting
//! requests.
//!
//! Owns what a replica accepts: messages, commands and reads. [`super::elections`] decides when it
//! stands for election, [`super::ready`] processes `Ready`s. The router owns the shard of a key,
//! forwarding and deadlines.

use alloc::vec::Vec;
use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use raft::{Config, RawNode, ReadOnlyOption, ReadState, StateRole};

use super::applied::Applied;
use super::elections::ElectionTimer;
use super::leadership::{ClockReading, Leadership};
use super::log_store::LogStore;
use super::members::Members;
use super::membership::{conf_state, data_of};
use super::persisting::Persisting;
use super::positions::Positions;
use super::proposals::{Proposals, decode_entry};
use super::reads::{Reads, Waiter};
use super::ready::{Output, ReadDone};
use super::sending::Sending;
use super::snapshots::{Snapshots, is_snapshot};
use super::stalls::Disks;
use super::trace::{GroupTrace, RoleChangeCause, VoteRequest};
use super::{contradiction, lost_entries, wire};
use crate::codec::{DecodeError, Decoder};
use crate::command::{LeaseExpiry, Read, ShardAnswer, ShardError, ShardRefusal, Write};
use crate::deliberate::{Fault, Faults};
use crate::event::{ShardStatus, Timing};
use crate::limits;
use crate::machine::Machine;
use crate::membership::{Membership, Role};
use crate::peer::{Origin, Outcome, RequestId};
use crate::storage::RecoveredShard;
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
    /// Whether the replica takes part in no election until [`Group::allow_elections`].
    pub elections_held: bool,
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
    Refused(ShardRefusal),
}

/// One replica of one shard, with its Raft engine and its state machine.
///
/// Its parts own their rules. Those that are shared with the other modules of `raft` keep their
/// fields to themselves; what a module may do with them is said here.
pub struct Group {
    shard: ShardId,
    timing: Timing,
    faults: Faults,
    now: Ticks,
    leadership: Leadership,
    proposals: Proposals,
    reads: Reads,
    positions: Positions,
    /// Whether a message has contradicted the committed entries. Such a replica stops taking part.
    diverged: bool,
    /// The engine. Only `ready` takes its `Ready`s and advances it. A call that may change its role
    /// is followed by [`Group::trace_role`].
    pub(super) raft: RawNode<LogStore>,
    /// The applied state, which only `ready` advances and only `snapshots` replaces.
    pub(super) applied: Applied,
    /// The election timer, and whether this replica takes part in elections. Only `elections`
    /// changes it.
    pub(super) election: ElectionTimer,
    /// The members, which change only together with `applied`.
    pub(super) members: Members,
    /// What waits for the disk: filled and released by `ready`, and told by `snapshots` which
    /// membership a snapshot has made durable.
    pub(super) persisting: Persisting,
    /// Snapshots made and received, which only `snapshots` changes.
    pub(super) snapshots: Snapshots,
    /// Snapshots sent, which only [`super::sending`] changes. The files of those that are being
    /// sent stay.
    pub(super) sending: Sending,
    /// The states of disks as the node reports them, which only `stalls` evaluates.
    pub(super) disks: Disks,
    /// Events for logs. Every module records its own, and no decision depends on them.
    pub(super) trace: GroupTrace,
}

impl Group {
    /// Creates a replica from the state on its disk.
    pub fn new(options: GroupOptions, recovered: RecoveredShard) -> Group {
        let RecoveredShard { snapshot, log } = recovered;
        let newest = snapshot.as_ref().map(|snapshot| (snapshot.id, snapshot.file_bytes));
        let newest_id = newest.map(|(id, _)| id);
        let election_ticks = options.timing.election_ticks as usize;
        let replica = options.replica;
        let config = Config {
            id: replica.0,
            election_tick: election_ticks,
            min_election_tick: election_ticks,
            max_election_tick: election_ticks + election_ticks / 2 + 1,
            applied: newest_id.map_or(0, |id| id.index.0),
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
        let (store, state) = LogStore::recovered(log, newest_id, conf_state(&membership));
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&config, store, &logger).expect("invariant: the configuration is valid");
        let mut random = fastrand::Rng::with_seed(options.seed);
        let reads = Reads::new(random.u64(..));
        let mut group = Group {
            shard: options.shard,
            timing: options.timing,
            faults: options.faults,
            now: Ticks(0),
            leadership: Leadership::default(),
            election: ElectionTimer::new(random, options.timing.election_ticks, options.elections_held),
            proposals: Proposals::new(options.faults),
            reads,
            positions: Positions::default(),
            diverged: false,
            raft,
            applied: Applied::new(machine, newest_id, options.faults),
            members: Members::new(membership),
            persisting: Persisting::new(state),
            snapshots: Snapshots::new(newest),
            sending: Sending::default(),
            disks: Disks::default(),
            trace: GroupTrace::new(state.commit),
        };
        group.stand_if_alone();
        group
    }

    /// Handles a tick.
    pub fn tick(&mut self, now: Ticks, out: &mut Output) {
        self.now = now;
        let raft = &mut self.raft.raft;
        let timeout_ticks = self.election.timeout_ticks((raft.term, raft.leader_id, raft.state));
        raft.set_randomized_election_timeout(timeout_ticks);
        if !self.is_installing() && !self.election.is_held() && self.counts_tick() {
            self.raft.tick();
            let raft = &self.raft.raft;
            let follows_nobody = raft.leader_id == raft::INVALID_ID && raft.state == StateRole::Follower;
            if self.election.tick(follows_nobody && raft.promotable()) {
                // Refused only while a membership change is not applied. The ordinary timeout
                // applies then.
                let _ = self.raft.campaign();
            }
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
        match self.members.node_of(sender) {
            Some(node) if node == from => {}
            Some(_) => return Err(DecodeError::Invalid("sender of a raft message")),
            None => self.members.note_node_of(sender, from),
        }
        if message.get_msg_type() == MessageType::MsgReadIndex && self.raft.raft.state != StateRole::Leader {
            // The engine would forward it again under the sender's name, and the next node would
            // refuse it. The sender repeats the round and will know the new leader by then.
            return Ok(());
        }
        if let Some(contradiction) = contradiction::find(&self.raft, self.shard, (&message, from)) {
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
        if let Some(reason) = self.withholds(&message) {
            self.trace_withheld_vote(&message, from, reason);
            return Ok(());
        }
        if lost_entries::is_reported_by(&message, &self.raft) {
            lost_entries::probe_from(&mut self.raft, sender.0, message.reject_hint);
            return Ok(());
        }
        lost_entries::replace_heartbeat(&mut message, &self.raft);
        let vote_request = VoteRequest::of(&message, from, &self.raft);
        // An error means that the message is outdated or that a forwarded one found no leader. Both
        // are ordinary, and the sender repeats what matters.
        let _ = self.raft.step(message);
        self.trace_vote(vote_request);
        self.trace_role(RoleChangeCause::Message(from));
        lost_entries::repair_progress(&mut self.raft, sender.0);
        Ok(())
    }

    /// Handles a broken connection.
    pub fn link_lost(&mut self, node: NodeId) {
        self.stop_sending_to(Some(node));
        if self.raft.raft.state == StateRole::Leader {
            // Messages in flight are lost, so probe again instead of waiting for a rejection.
            if let Some(replica) = self.membership().replica_on(node) {
                self.raft.report_unreachable(replica.0);
            }
        } else if self.raft.raft.state == StateRole::Follower && self.leader() == Some(node) {
            // Forgetting the leader allows this replica to vote for another one before the lease of
            // check-quorum ends. No read depends on that lease.
            let term = self.raft.raft.term;
            self.raft.raft.become_follower(term, raft::INVALID_ID);
            self.election.hasten();
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
        if !self.machine().accepts(write) {
            return Err(ProposeError::Refused(ShardRefusal::invalid("write for another kind of shard")));
        }
        write.validate().map_err(ProposeError::Refused)?;
        if let Write::Expire { leases: Some(leases), .. } = write
            && !self.may_end_leases(origin, leases.led_since)
        {
            return Err(ProposeError::Refused(ShardRefusal::invalid("proposed by an earlier leader")));
        }
        // The applied state may not own the keys yet, or no longer. Refuse now, so that the log
        // need not contain a refused command.
        if !self.machine().owns_all_of(write) {
            self.trace_refusal(ProposalRefusal::NotOwned);
            return Err(ProposeError::NotHere);
        }
        if self.refuses_commands() {
            self.trace_refusal(ProposalRefusal::DiskUnavailable);
            return Err(ProposeError::Refused(ShardRefusal::DiskUnavailable));
        }
        let proposed = match clock {
            _ if !write.needs_clock() => self.proposals.push(write, origin),
            Some(now) => self.proposals.push(&write.at(now), origin),
            // The time is known after the first tick.
            None => return Err(ProposeError::NotLeader),
        };
        if proposed.is_err() {
            self.trace_refusal(ProposalRefusal::QueueFull);
            return Err(ProposeError::Refused(ShardRefusal::Overloaded));
        }
        Ok(())
    }

    /// The removals of overdue keys and the ends of overdue leases to propose now, if this replica
    /// leads and has not proposed such just now: the command, and how often to propose it.
    /// `may_shorten` states that the cluster version allows a command that shortens leases.
    pub fn expiries(&mut self, time: UnixMillis, may_shorten: bool) -> Option<(Write, usize)> {
        if self.raft.raft.state != StateRole::Leader {
            return None;
        }
        let has_ignored = self.faults.has(Fault::ClockStepIgnored);
        let tick_ms = if has_ignored { u64::MAX } else { self.timing.tick_ms };
        let clock = ClockReading { shown: time, at: self.now, tick_ms };
        let led_since = match self.leadership.led_since(Term(self.raft.raft.term), clock) {
            _ if self.faults.has(Fault::LeaseFloorIgnored) => UnixMillis(0),
            since => since,
        };
        if !self.leadership.may_propose_expiry(self.now, self.timing.request_ticks) {
            return None;
        }
        let limit = limits::EXPIRIES_PER_TICK_MAX * limits::EXPIRED_KEYS_MAX;
        let shortens = may_shorten && !self.faults.has(Fault::LeaseNotShortened);
        let leases = LeaseExpiry { led_since, shortens };
        let keys = self.machine().overdue(time, leases, limit);
        if keys == 0 {
            return None;
        }
        self.leadership.expiry_proposed(self.now);
        let (shard, limit) = (self.shard, limits::EXPIRED_KEYS_MAX);
        let leases = self.machine().has_leases().then_some(leases);
        Some((Write::Expire { shard, now: time, limit, leases }, keys.div_ceil(limit)))
    }

    /// Whether this replica leads since a time, and itself asks to end leases for which it has led.
    /// A leader that lost its leadership before it proposed them sends them to the next one, which
    /// has not led for their time.
    fn may_end_leases(&self, origin: Origin, since: UnixMillis) -> bool {
        let leads_since = self.leadership.leads_since(Term(self.raft.raft.term), since);
        (origin.is_own() && leads_since) || self.faults.has(Fault::LeaseFloorIgnored)
    }

    /// Records that a removal of overdue keys was applied.
    pub(super) fn expiry_applied(&mut self) {
        self.leadership.expiry_applied();
    }

    /// Queues a linearizable read. Its answer appears in [`Output::reads`], or never if no leader
    /// confirms it.
    pub fn read(&mut self, request: RequestId, read: Read) {
        self.reads.push(Waiter { request, read, arrived: self.now });
    }

    /// The applied state of a data shard, for copying.
    pub(super) fn data_mut(&mut self) -> Option<&mut crate::machine::Data> {
        self.applied.machine_mut().data_mut()
    }

    /// Answers from the applied state, unless the replica has not applied the move of slots
    /// `since`.
    pub fn read_stale(&self, read: &Read, since: MigrationId) -> Result<ShardAnswer, ShardError> {
        let is_behind = self.machine().last_move().0 < since;
        if is_behind && !self.faults.has(Fault::ReadBeforeMove) {
            return Err(ShardError::NotHere);
        }
        self.machine().read(read)
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
            if out.is_tracing {
                out.logged.push((self.shard, index, waiters.clone()));
            }
            self.proposals.proposed(term, index, waiters);
            out.counters.entries_proposed += 1;
            out.counters.commands_proposed += commands;
        }
    }

    pub(super) fn begin_read_round(&mut self, out: &mut Output) {
        if let Some(context) = self.reads.next_round(self.now) {
            out.counters.read_rounds += 1;
            if self.faults.has(Fault::ReadWithoutRound) {
                return self.reads.confirmed(&context, self.applied.index());
            }
            self.raft.read_index(context);
        }
    }

    pub(super) fn leadership_changed(&mut self, leads: bool, out: &mut Output) {
        let led = self.leadership.change(leads);
        self.reads.retry_now();
        out.counters.leaderships += u64::from(leads && !led);
        if led && !leads {
            self.stop_sending_to(None);
        }
    }

    /// Whether this replica leads, as of the last `Ready`.
    pub fn leads(&self) -> bool {
        self.leadership.leads()
    }

    /// Whether this replica leads and its membership is not known to match the registry at
    /// `changed`.
    pub fn is_unsettled(&self, changed: LogIndex) -> bool {
        self.leadership.is_unsettled(changed)
    }

    /// Records that the membership matches the registry at `changed`.
    pub(super) fn settle(&mut self, changed: LogIndex) {
        self.leadership.settle(changed);
    }

    /// Records that the membership has changed.
    pub(super) fn membership_changed(&mut self) {
        self.leadership.membership_changed();
    }

    /// Handles the confirmation of read rounds by a leader.
    pub(super) fn confirm_reads(&mut self, states: Vec<ReadState>) {
        for state in states {
            self.reads.confirmed(&state.request_ctx, LogIndex(state.index));
        }
    }

    /// Answers the reads whose round is confirmed and applied.
    pub(super) fn serve_reads(&mut self, out: &mut Output) {
        while let Some(waiters) = self.reads.next_served(self.applied.index()) {
            for Waiter { request, read, .. } in waiters {
                let answer = self.applied.machine().read(&read);
                out.reads.push(ReadDone { request, shard: self.shard, read, answer });
            }
        }
    }

    /// Takes the reads that wait for an answer, because the replica is not a member any more or
    /// ends. No leader confirms reads to it, so another node must answer.
    pub fn take_reads(&mut self) -> impl Iterator<Item = ReadDone> {
        let shard = self.shard;
        self.reads.take_all().into_iter().map(move |Waiter { request, read, .. }| ReadDone {
            request,
            shard,
            read,
            answer: Err(ShardError::NotHere),
        })
    }

    /// Refuses the reads that were confirmed after `index`.
    pub(super) fn refuse_reads_beyond(&mut self, index: LogIndex, refusal: &ShardRefusal, out: &mut Output) {
        out.reads.extend(self.reads.take_beyond(index).map(|waiter| ReadDone {
            request: waiter.request,
            shard: self.shard,
            read: waiter.read,
            answer: Err(refusal.clone().into()),
        }));
    }

    /// The origins that wait for the replies of an applied entry. Origins of entries that can no
    /// longer commit are added to `dead`.
    pub(super) fn take_waiters(
        &mut self,
        (term, index): (Term, LogIndex),
        dead: &mut Vec<Origin>,
    ) -> Vec<Origin> {
        self.proposals.applied(term, index, dead)
    }

    /// Forgets the commands in flight that a snapshot may contain or not: this replica will never
    /// know.
    pub(super) fn forget_commands_up_to(&mut self, index: LogIndex, out: &mut Output) {
        let dead = self.proposals.overtaken(index);
        out.outcomes.extend(dead.into_iter().map(|origin| (origin, Outcome::NotDone)));
        self.proposals.forget_up_to(index);
    }

    /// Asserts that no position moved back, and that their order is right.
    pub(super) fn advance_positions(&mut self) {
        let (raft, log) = (&self.raft.raft, &self.raft.raft.raft_log);
        self.positions.advance(Positions {
            term: Term(raft.term),
            applied_and_durable: LogIndex(log.applied),
            applied: self.applied.index(),
            committed: LogIndex(log.committed),
            last: LogIndex(log.last_index()),
        });
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

    pub fn replica(&self) -> ReplicaId {
        ReplicaId(self.raft.raft.id)
    }

    pub fn shard(&self) -> ShardId {
        self.shard
    }

    pub(super) fn now(&self) -> Ticks {
        self.now
    }

    pub(super) fn election_ticks(&self) -> u64 {
        self.timing.election_ticks
    }

    pub(super) fn faults(&self) -> Faults {
        self.faults
    }

    /// The applied state machine.
    pub fn machine(&self) -> &Machine {
        self.applied.machine()
    }

    /// The node that leads, if this replica knows one.
    pub fn leader(&self) -> Option<NodeId> {
        self.members.node_of(ReplicaId(self.raft.raft.leader_id))
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
            is_term_durable: self.persisting.is_durable(Term(self.raft.raft.term)),
            term: Term(self.raft.raft.term),
            committed: LogIndex(self.raft.raft.raft_log.committed),
            applied: self.applied.index(),
            last: LogIndex(self.raft.raft.raft_log.last_index()),
            log_begin: LogIndex(self.raft.store().begin()),
            keys: self.machine().record_count(),
            log_bytes: self.raft.store().data_bytes(),
            votes: self.membership().role(self.replica()) == Some(Role::Voter),
            snapshot: self.snapshots.newest(),
            snapshot_bytes: self.snapshot_file_bytes(),
            makes_snapshot: self.is_making_snapshot(),
            last_move: self.machine().last_move().0,
            is_moving: self.machine().last_move().1,
            slots: None,
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

    /// The writes of each entry in the log, applied or not, from the oldest that is still in it. An
    /// entry of a later release may not decode.
    pub fn logged_writes(&self) -> impl Iterator<Item = Result<Vec<Write>, DecodeError>> {
        let log = self.raft.store();
        let entries = (log.begin() + 1..=log.last()).filter_map(|index| log.entry(index));
        let normal = entries.filter(|entry| entry.get_entry_type() == EntryType::EntryNormal);
        normal.map(|entry| decode_entry(&entry.data))
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
