//! Trace events: what the consensus of a shard did on this node, and why.
//!
//! Owns their vocabulary, and the sentences in which the server logs them and the simulator prints
//! them. `raft` and `node` emit them where the fact happens, in
//! [`Actions::trace`](crate::event::Actions::trace). People read them, no decision depends on them,
//! and a shell may drop them.
//!
//! A sentence contains no numbers, so that equal facts are equal lines. The numbers are fields
//! beside it.

use core::fmt;

use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term};

/// Something that happened in a replica of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The shard.
    pub shard: ShardId,
    /// The term of the replica after the event; 0 if this node has no replica of the shard.
    pub term: Term,
    /// Index of the entry or the snapshot that the event is about. For other events, the last index
    /// of the replica's log.
    pub index: LogIndex,
    /// What happened.
    pub kind: TraceKind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// This replica asks the others for their votes.
    Campaigns(Ballot),
    /// This replica did not vote for a candidate that asked for it.
    VoteRefused {
        /// The candidate's node.
        candidate: NodeId,
        /// What it asked for.
        ballot: Ballot,
        /// Why it was refused.
        reason: VoteRefusal,
    },
    /// This replica leads.
    Elected,
    /// This replica led, and no longer does.
    SteppedDown(StepDownReason),
    /// This replica follows another leader than before, or the same one in a later term.
    Follows {
        /// The leader's node.
        leader: NodeId,
    },
    /// From now on, majorities of the old and of the new voters are needed.
    EnteredJoint,
    /// From now on, a majority of the new voters is sufficient.
    LeftJoint,
    /// A replica has another role from now on.
    RoleChanged {
        /// The replica.
        replica: ReplicaId,
        /// Its node.
        node: NodeId,
        /// How its role changed.
        change: RoleChange,
    },
    /// The transfer of a snapshot between this node and a peer has come this far.
    Snapshot {
        /// The other node, if it is known.
        peer: Option<NodeId>,
        /// How far the transfer has come.
        stage: SnapshotStage,
    },
    /// A slot move that this node drives as the leader of the giver, [`TraceEvent::shard`], has
    /// entered a stage.
    SlotMove {
        /// The move.
        migration: MigrationId,
        /// The receiver; the prime shard if the registry has forgotten the move.
        to: ShardId,
        /// The stage.
        stage: MoveStage,
    },
    /// Commands are refused for this reason. It is reported once, until no command was refused for
    /// it for a tick. [`ProposalRefusal::NoLeader`] is reported once a drive.
    ProposalRefused(ProposalRefusal),
}

/// What a candidate asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ballot {
    /// It asks whether others would vote for it, before it increases its term (Raft thesis, 9.6).
    PreVote,
    /// Votes.
    Vote,
}

/// Why a vote was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteRefusal {
    /// The candidate's log ends before this one's (Raft paper, 5.4.1).
    LogBehind,
    /// This replica has voted for another candidate in this term.
    AlreadyVoted,
    /// This replica leads, or has heard from a leader lately (Raft thesis, 6.4.1).
    LeaderAlive,
    /// This replica is in a later term.
    StaleTerm,
    /// The vote would wait for the disk of this node, which is stalled.
    DiskStalled,
    /// The directory of this node was empty at its start, and other founders may refuse the node.
    NewFounder,
}

/// Why a leader no longer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepDownReason {
    /// A message had a higher term.
    HigherTerm {
        /// Its sender.
        peer: NodeId,
    },
    /// It has heard from no majority for an election timeout.
    LostMajority,
    /// It has transferred the leadership, because an operator, the placement or a shutdown wants
    /// it.
    Transferred {
        /// The node that takes over.
        to: NodeId,
    },
    /// It has transferred the leadership, because its disk is stalled, or was slow until recently.
    DiskStalled {
        /// The node that takes over.
        to: NodeId,
    },
    /// A change of the membership took its vote.
    Removed,
}

/// A change of a replica's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleChange {
    /// It is new, and a learner.
    AddedAsLearner,
    /// It is new, and a voter. Seen only by replicas that install a snapshot.
    AddedAsVoter,
    /// A learner votes.
    Promoted,
    /// A voter becomes a learner.
    Demoted,
    /// It no longer belongs to the shard.
    Removed,
}

/// A stage in the transfer of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotStage {
    /// This leader begins to send it to the peer.
    Sending,
    /// The peer has all of its parts.
    Sent,
    /// This leader gives up for now: the peer is silent, the connection or the leadership is lost,
    /// or the file cannot be read.
    GivenUp,
    /// This replica begins to receive it from the peer.
    Receiving,
    /// This replica has loaded it and does not use it, because its log has caught up meanwhile, or
    /// because the leader was deposed.
    Refused,
    /// It has replaced the state of this replica.
    Installed,
}

/// A stage of a slot move. They follow one another, but a new leader of the giver may begin with
/// any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStage {
    /// The receiver is asked to open the copy.
    Opening,
    /// Keys are being copied.
    Copying,
    /// The giver accepts no commands on the slots any longer; the last keys are being copied.
    Frozen,
    /// The receiver owns the slots; the registry is being told.
    Owned,
    /// The slot map has changed; the giver counts the keys that it will delete.
    Counting,
    /// The giver deletes its copy.
    Purging,
    /// The giver has deleted its copy.
    Finished,
}

/// Why commands are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalRefusal {
    /// The leader transfers its leadership.
    Transferring,
    /// The leader lost its leadership before it proposed them.
    LeadershipLost,
    /// The shard does not own the slots of their keys.
    NotOwned,
    /// The disk of the leader, or those of a majority, take no writes.
    DiskUnavailable,
    /// The queue of the shard is full.
    QueueFull,
    /// No leader was known until the deadline.
    NoLeader,
}

impl TraceKind {
    /// The other node that the event is about.
    pub fn peer(&self) -> Option<NodeId> {
        match self {
            TraceKind::VoteRefused { candidate: peer, .. }
            | TraceKind::Follows { leader: peer }
            | TraceKind::RoleChanged { node: peer, .. }
            | TraceKind::SteppedDown(
                StepDownReason::HigherTerm { peer }
                | StepDownReason::Transferred { to: peer }
                | StepDownReason::DiskStalled { to: peer },
            ) => Some(*peer),
            TraceKind::Snapshot { peer, .. } => *peer,
            TraceKind::SteppedDown(StepDownReason::LostMajority | StepDownReason::Removed)
            | TraceKind::Campaigns(_)
            | TraceKind::Elected
            | TraceKind::EnteredJoint
            | TraceKind::LeftJoint
            | TraceKind::SlotMove { .. }
            | TraceKind::ProposalRefused(_) => None,
        }
    }

    /// The replica whose role changed.
    pub fn replica(&self) -> Option<ReplicaId> {
        match self {
            TraceKind::RoleChanged { replica, .. } => Some(*replica),
            _ => None,
        }
    }

    /// The slot move and its receiver.
    pub fn slot_move(&self) -> Option<(MigrationId, ShardId)> {
        match self {
            TraceKind::SlotMove { migration, to, .. } => Some((*migration, *to)),
            _ => None,
        }
    }
}

/// The sentence, without the fields.
impl fmt::Display for TraceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceKind::Campaigns(Ballot::PreVote) => {
                f.write_str("this replica hears from no leader: it asks whether it would be elected")
            }
            TraceKind::Campaigns(Ballot::Vote) => f.write_str("this replica stands for election"),
            TraceKind::VoteRefused { ballot, reason, .. } => write!(f, "{ballot} refused: {reason}"),
            TraceKind::Elected => f.write_str("this node leads the shard now"),
            TraceKind::SteppedDown(reason) => write!(f, "this node no longer leads the shard: {reason}"),
            TraceKind::Follows { .. } => f.write_str("another node leads the shard now"),
            TraceKind::EnteredJoint => {
                f.write_str("the shard entered a joint configuration: old and new voters must agree")
            }
            TraceKind::LeftJoint => f.write_str("the shard left the joint configuration"),
            TraceKind::RoleChanged { change, .. } => change.fmt(f),
            TraceKind::Snapshot { stage, .. } => stage.fmt(f),
            TraceKind::SlotMove { stage, .. } => stage.fmt(f),
            TraceKind::ProposalRefused(reason) => write!(f, "commands are refused: {reason}"),
        }
    }
}

/// One line: the fields, then the sentence.
impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceEvent { shard, term, index, kind } = self;
        write!(f, "shard={shard} term={term} index={index}")?;
        if let Some(peer) = kind.peer() {
            write!(f, " peer={peer}")?;
        }
        if let Some(replica) = kind.replica() {
            write!(f, " replica={replica}")?;
        }
        if let Some((migration, to)) = kind.slot_move() {
            write!(f, " migration={migration} to={to}")?;
        }
        write!(f, ": {kind}")
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ballot::PreVote => "pre-vote",
            Ballot::Vote => "vote",
        })
    }
}

impl fmt::Display for VoteRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VoteRefusal::LogBehind => "the candidate's log is behind",
            VoteRefusal::AlreadyVoted => "another candidate has the vote of this term",
            VoteRefusal::LeaderAlive => "a leader is alive",
            VoteRefusal::StaleTerm => "the candidate's term is over",
            VoteRefusal::DiskStalled => "the disk of this node is stalled",
            VoteRefusal::NewFounder => {
                "the directory of this node is empty, and it waits for the other founders"
            }
        })
    }
}

impl fmt::Display for StepDownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StepDownReason::HigherTerm { .. } => "the peer is in a later term",
            StepDownReason::LostMajority => "it has lost contact with the majority of the voters",
            StepDownReason::Transferred { .. } => "it has transferred the leadership to the peer",
            StepDownReason::DiskStalled { .. } => {
                "its disk is stalled or was slow, and it has transferred the leadership to the peer"
            }
            StepDownReason::Removed => "it lost its vote",
        })
    }
}

impl fmt::Display for RoleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RoleChange::AddedAsLearner => "a replica was added as a learner",
            RoleChange::AddedAsVoter => "a replica was added as a voter",
            RoleChange::Promoted => "a learner was promoted to a voter",
            RoleChange::Demoted => "a voter was demoted to a learner",
            RoleChange::Removed => "a replica was removed",
        })
    }
}

impl fmt::Display for SnapshotStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SnapshotStage::Sending => "this node begins to send a snapshot to the peer",
            SnapshotStage::Sent => "the peer has received the snapshot",
            SnapshotStage::GivenUp => {
                "this node stopped sending the snapshot to the peer, and tries again later"
            }
            SnapshotStage::Receiving => "this node begins to receive a snapshot from the peer",
            SnapshotStage::Refused => "this node does not use the snapshot that it received",
            SnapshotStage::Installed => "this node installed a snapshot from the peer",
        })
    }
}

impl fmt::Display for MoveStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoveStage::Opening => "slot move: the receiver is asked to open the copy",
            MoveStage::Copying => "slot move: copying keys",
            MoveStage::Frozen => "slot move: the slots are frozen, and the last keys are being copied",
            MoveStage::Owned => "slot move: the receiver owns the slots, and the registry is being told",
            MoveStage::Counting => "slot move: the slot map has changed, and the keys are being counted",
            MoveStage::Purging => "slot move: deleting the keys at the giver",
            MoveStage::Finished => "slot move: finished",
        })
    }
}

impl fmt::Display for ProposalRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProposalRefusal::Transferring => "the leadership is being transferred",
            ProposalRefusal::LeadershipLost => "this node lost the leadership before it proposed them",
            ProposalRefusal::NotOwned => "the shard does not own the slots of their keys",
            ProposalRefusal::DiskUnavailable => "the disks of too many nodes take no writes",
            ProposalRefusal::QueueFull => "the queue of the shard is full",
            ProposalRefusal::NoLeader => "no leader was known until the deadline",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn line(kind: TraceKind) -> alloc::string::String {
        TraceEvent { shard: ShardId(1), term: Term(7), index: LogIndex(42), kind }.to_string()
    }

    #[test]
    fn a_line_is_the_fields_and_then_the_sentence() {
        let peer = NodeId(3);
        for (kind, expected) in [
            (TraceKind::Elected, "shard=1 term=7 index=42: this node leads the shard now"),
            (
                TraceKind::SteppedDown(StepDownReason::HigherTerm { peer }),
                "shard=1 term=7 index=42 peer=3: this node no longer leads the shard: the peer is in a later term",
            ),
            (
                TraceKind::VoteRefused {
                    candidate: peer,
                    ballot: Ballot::PreVote,
                    reason: VoteRefusal::LogBehind,
                },
                "shard=1 term=7 index=42 peer=3: pre-vote refused: the candidate's log is behind",
            ),
            (
                TraceKind::RoleChanged { replica: ReplicaId(9), node: peer, change: RoleChange::Promoted },
                "shard=1 term=7 index=42 peer=3 replica=9: a learner was promoted to a voter",
            ),
            (
                TraceKind::SlotMove { migration: MigrationId(2), to: ShardId(4), stage: MoveStage::Frozen },
                "shard=1 term=7 index=42 migration=2 to=4: \
                 slot move: the slots are frozen, and the last keys are being copied",
            ),
        ] {
            assert_eq!(line(kind), expected);
        }
    }
}
