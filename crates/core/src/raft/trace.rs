//! Trace events of a replica: observing the engine's role, and recording what the other modules
//! report.
//!
//! The engine has no hook for changes of its role. [`Group::trace_role`] compares it with the last
//! one wherever it can change: after a message, a tick, and an applied change of membership. The
//! comparison of three numbers is all that an ordinary message costs.
//!
//! Events wait in the group until its next drive, because some are recorded where there is no
//! [`Output`].

use alloc::vec::Vec;
use raft::eraftpb::{Message, MessageType};
use raft::{Raft, RawNode, StateRole};

use super::elections::{Transfer, TransferReason};
use super::group::Group;
use super::log_store::LogStore;
use super::ready::Output;
use crate::limits;
use crate::membership::{Membership, Role};
use crate::trace::{
    Ballot, ProposalRefusal, RoleChange, SnapshotStage, StepDownReason, TraceEvent, TraceKind, VoteRefusal,
};
use crate::types::{LogIndex, NodeId, ReplicaId, Term};

/// The trace of one replica.
pub(super) struct GroupTrace {
    /// Events since the last drive.
    events: Vec<TraceEvent>,
    /// The role, term and leader as of the last look.
    seen: (StateRole, u64, u64),
    /// The last known leader, and its term.
    followed: (u64, u64),
    /// The transfer of leadership in progress.
    transfer: Option<Transfer>,
    /// The reported reasons for which commands are refused, a bit each.
    refusals: u8,
    /// The reasons for which commands were refused since the last tick, a bit each.
    refused: u8,
    /// Changes of membership up to this entry were committed before the process started. They are
    /// applied again, and not reported again.
    replayed: LogIndex,
}

/// What made the engine change its role.
pub(super) enum RoleChangeCause {
    /// A message from a node.
    Message(NodeId),
    /// A tick, or the start.
    Tick,
    /// A change of the membership.
    Membership,
}

/// A request for this replica's vote, before the engine has handled it.
pub(super) struct VoteRequest {
    candidate: NodeId,
    ballot: Ballot,
    is_stale: bool,
    is_behind: bool,
    /// Number of messages that the engine had queued before the request.
    queued: usize,
}

impl GroupTrace {
    /// The trace of a replica that restarts with entries up to `replayed` committed.
    pub(super) fn new(replayed: LogIndex) -> GroupTrace {
        GroupTrace {
            events: Vec::new(),
            seen: (StateRole::Follower, 0, raft::INVALID_ID),
            followed: (raft::INVALID_ID, 0),
            transfer: None,
            refusals: 0,
            refused: 0,
            replayed,
        }
    }

    /// Whether events wait for the next drive.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The leadership is being transferred, or no longer is.
    pub(super) fn set_transfer(&mut self, transfer: Option<Transfer>) {
        self.transfer = transfer;
    }
}

impl VoteRequest {
    /// The request in a message, if it is one.
    pub(super) fn of(message: &Message, from: NodeId, raft: &RawNode<LogStore>) -> Option<VoteRequest> {
        let raft: &Raft<LogStore> = &raft.raft;
        Some(VoteRequest {
            candidate: from,
            ballot: ballot(message)?,
            is_stale: message.term < raft.term,
            is_behind: !raft.raft_log.is_up_to_date(message.index, message.log_term),
            queued: raft.msgs.len(),
        })
    }
}

fn ballot(message: &Message) -> Option<Ballot> {
    match message.get_msg_type() {
        MessageType::MsgRequestPreVote => Some(Ballot::PreVote),
        MessageType::MsgRequestVote => Some(Ballot::Vote),
        _ => None,
    }
}

impl Group {
    /// Records an event about the entry or the snapshot at `index`.
    pub(super) fn record_at(&mut self, index: LogIndex, kind: TraceKind) {
        let (shard, term) = (self.shard(), Term(self.raft.raft.term));
        if self.trace.events.len() < limits::TRACE_EVENTS_MAX {
            self.trace.events.push(TraceEvent { shard, term, index, kind });
        }
    }

    /// Records an event about the replica as a whole.
    pub(super) fn record(&mut self, kind: TraceKind) {
        self.record_at(LogIndex(self.raft.raft.raft_log.last_index()), kind);
    }

    /// Records a stage in the transfer of a snapshot that ends at `index`.
    pub(super) fn trace_snapshot(&mut self, index: LogIndex, peer: Option<NodeId>, stage: SnapshotStage) {
        self.record_at(index, TraceKind::Snapshot { peer, stage });
    }

    /// Moves the events to the output of a drive.
    pub(super) fn take_trace(&mut self, out: &mut Output) {
        out.trace.append(&mut self.trace.events);
    }

    /// Records what has changed of this replica's role since the last call, because of `cause`.
    pub(super) fn trace_role(&mut self, cause: RoleChangeCause) {
        let raft = &self.raft.raft;
        let now = (raft.state, raft.term, raft.leader_id);
        if self.trace.seen != now {
            self.role_changed(now, &cause);
        }
    }

    #[cold]
    fn role_changed(&mut self, (role, term, leader): (StateRole, u64, u64), cause: &RoleChangeCause) {
        let (before, term_before, _) = core::mem::replace(&mut self.trace.seen, (role, term, leader));
        let is_new = (before, term_before) != (role, term);
        if before == StateRole::Leader && is_new {
            let reason = self.step_down_reason(cause);
            self.record(TraceKind::SteppedDown(reason));
        }
        match role {
            StateRole::Leader if is_new => self.record(TraceKind::Elected),
            StateRole::Candidate if is_new => self.record(TraceKind::Campaigns(Ballot::Vote)),
            StateRole::PreCandidate if is_new => self.record(TraceKind::Campaigns(Ballot::PreVote)),
            StateRole::Follower if leader != raft::INVALID_ID && self.trace.followed != (leader, term) => {
                self.trace.followed = (leader, term);
                if let Some(leader) = self.members.node_of(ReplicaId(leader)) {
                    self.record(TraceKind::Follows { leader });
                }
            }
            _ => {}
        }
    }

    fn step_down_reason(&mut self, cause: &RoleChangeCause) -> StepDownReason {
        match (cause, self.trace.transfer.take()) {
            (RoleChangeCause::Membership, _) => StepDownReason::Removed,
            (RoleChangeCause::Tick, _) => StepDownReason::LostMajority,
            (&RoleChangeCause::Message(peer), Some(Transfer { to, reason })) if to == peer => match reason {
                TransferReason::Requested => StepDownReason::Transferred { to },
                TransferReason::Disk => StepDownReason::DiskStalled { to },
            },
            (&RoleChangeCause::Message(peer), _) => StepDownReason::HigherTerm { peer },
        }
    }

    /// Records what a tick has changed.
    pub(super) fn trace_tick(&mut self) {
        self.trace.refusals &= core::mem::take(&mut self.trace.refused);
        if self.raft.raft.lead_transferee.is_none() {
            // The engine has given the transfer up, or there was none.
            self.trace.transfer = None;
        }
        self.trace_role(RoleChangeCause::Tick);
    }

    /// Records that the engine has refused a request for this replica's vote, if it has. It ignores
    /// a request while a leader is alive, and replies to others.
    pub(super) fn trace_vote(&mut self, request: Option<VoteRequest>) {
        let Some(request) = request else { return };
        let raft = &self.raft.raft;
        let response = raft.msgs.get(request.queued);
        if response.is_some_and(|response| !response.reject) {
            return;
        }
        let reason = if request.is_stale {
            VoteRefusal::StaleTerm
        } else if response.is_none() {
            VoteRefusal::LeaderAlive
        } else if request.is_behind {
            VoteRefusal::LogBehind
        } else if raft.vote != raft::INVALID_ID {
            VoteRefusal::AlreadyVoted
        } else {
            VoteRefusal::LeaderAlive
        };
        let VoteRequest { candidate, ballot, .. } = request;
        self.record(TraceKind::VoteRefused { candidate, ballot, reason });
    }

    /// Records why this replica does not step a message, if the message asks for its vote.
    pub(super) fn trace_withheld_vote(&mut self, message: &Message, candidate: NodeId, reason: VoteRefusal) {
        if let Some(ballot) = ballot(message) {
            self.record(TraceKind::VoteRefused { candidate, ballot, reason });
        }
    }

    /// Records that commands are refused. A reason is reported once, until no command was refused
    /// for it for a tick: clients may repeat refused commands as fast as they can.
    pub(super) fn trace_refusal(&mut self, reason: ProposalRefusal) {
        let bit = 1 << reason as u8;
        self.trace.refused |= bit;
        if self.trace.refusals & bit == 0 {
            self.trace.refusals |= bit;
            self.record(TraceKind::ProposalRefused(reason));
        }
    }

    /// Records how the membership differs from the one `before`, as of the entry at `index`.
    pub(super) fn trace_membership(&mut self, before: &Membership, index: LogIndex) {
        if index <= self.trace.replayed {
            return;
        }
        let now = self.members.membership();
        let (was_joint, is_joint) = (before.is_joint(), now.is_joint());
        let mut replicas = before.replicas();
        replicas.extend(now.replicas());
        replicas.sort_unstable();
        replicas.dedup();
        let changes: Vec<TraceKind> = replicas
            .into_iter()
            .filter_map(|replica| {
                let change = role_change(before.role(replica), now.role(replica))?;
                let node = now.node(replica).or_else(|| before.node(replica))?;
                Some(TraceKind::RoleChanged { replica, node, change })
            })
            .collect();
        if is_joint && !was_joint {
            self.record_at(index, TraceKind::EnteredJoint);
        }
        changes.into_iter().for_each(|change| self.record_at(index, change));
        if was_joint && !is_joint {
            self.record_at(index, TraceKind::LeftJoint);
        }
    }
}

fn role_change(before: Option<Role>, now: Option<Role>) -> Option<RoleChange> {
    match (before, now) {
        (None, Some(Role::Learner)) => Some(RoleChange::AddedAsLearner),
        (None, Some(Role::Voter)) => Some(RoleChange::AddedAsVoter),
        (Some(Role::Learner), Some(Role::Voter)) => Some(RoleChange::Promoted),
        (Some(Role::Voter), Some(Role::Learner)) => Some(RoleChange::Demoted),
        (Some(_), None) => Some(RoleChange::Removed),
        (before, now) => {
            debug_assert_eq!(before, now, "invariant: the other changes are listed above");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Decoder;
    use crate::founding::Founding;
    use crate::membership::MembershipChange;
    use crate::raft::{encode_change, fixture, wire};
    use crate::storage::{HardState, LogEntry, RecoveredLog};
    use crate::types::ShardId;
    use bytes::Bytes;

    const SHARD: ShardId = ShardId(1);
    const NEW: (ReplicaId, NodeId) = (ReplicaId(40), NodeId(4));

    /// A follower whose log has an entry that adds a replica.
    fn follower(committed: u64) -> Group {
        let change = MembershipChange::Join(NEW.0, NEW.1);
        let data = encode_change(&change, LogIndex(0));
        let log = RecoveredLog {
            entries: alloc::vec![LogEntry { index: LogIndex(1), term: Term(1), data }],
            hard_state: HardState { term: Term(1), vote: None, commit: LogIndex(committed) },
            ..RecoveredLog::default()
        };
        fixture::group(SHARD, log)
    }

    /// The leader says that everything up to an entry is committed. Returns what the group reports.
    fn hear_heartbeat(group: &mut Group, commit: u64) -> Vec<TraceEvent> {
        let founding = Founding::new(3, 1).voters_of(SHARD);
        let (from, to) = (founding[1].0.0, founding[0].0.0);
        let mut message = Message { from, to, term: 1, commit, ..Message::default() };
        message.set_msg_type(MessageType::MsgHeartbeat);
        let mut bytes = Vec::new();
        wire::encode(&message, &mut bytes);
        let (bytes, mut out) = (Bytes::from(bytes), Output::new());
        group.step(NodeId(2), (&mut Decoder::new(&bytes), &bytes), &mut out).expect("it decodes");
        group.drive(&mut out);
        out.trace
    }

    #[test]
    fn a_change_of_membership_is_reported_when_it_is_applied_and_not_again_by_a_restart() {
        let event = |kind| TraceEvent { shard: SHARD, term: Term(1), index: LogIndex(1), kind };
        let follows = event(TraceKind::Follows { leader: NodeId(2) });
        let (replica, node) = NEW;
        let added = event(TraceKind::RoleChanged { replica, node, change: RoleChange::AddedAsLearner });
        let mut first = follower(0);
        assert_eq!(hear_heartbeat(&mut first, 0), [follows]);
        assert_eq!(hear_heartbeat(&mut first, 1), [added]);
        let mut restarted = follower(1);
        assert_eq!(hear_heartbeat(&mut restarted, 1), [follows]);
        for group in [first, restarted] {
            assert_eq!(group.membership().learners, [NEW.0]);
        }
    }

    #[test]
    fn events_of_one_drive_are_bounded() {
        let mut group = follower(0);
        for _ in 0..2 * limits::TRACE_EVENTS_MAX {
            group.record(TraceKind::EnteredJoint);
        }
        assert_eq!(hear_heartbeat(&mut group, 0).len(), limits::TRACE_EVENTS_MAX);
        assert_eq!(hear_heartbeat(&mut group, 0), []);
    }
}
