//! What a replica does while disks take no writes or are slow: this node's own, or those of peers.
//!
//! Owns what is refused, passed on or let go then. The shell says when a disk stalls and recovers, for whichever
//! [`StallReason`](crate::event::StallReason); the states of peers' disks come with their reports, through the node.
//!
//! On a stalled disk of its own, a replica
//! - takes no commands, neither from clients nor from its leader: they would pile up in memory, and the leader sends
//!   them again;
//! - stands for election late, so that others come first, and only while nothing of it waits for the disk. Terms and votes
//!   find room where commands do not, and somebody has to lead if nobody's disk has any; but once one waits, another
//!   would only wait behind it. The same goes for its vote;
//! - makes a snapshot (`snapshots`) if the disk is full, so that the log can be cut and perhaps finds the room that it
//!   waits for;
//! - hands over what it leads to a follower that can win an election. If there is none it goes on leading, because reads
//!   need no disk, and a leaderless shard serves none.
//!
//! On an unsteady disk, one that was slow until recently, a replica takes part in everything, but stands for election late
//! and hands over what it leads to a follower whose disk is healthy, if there is one.
//!
//! A leader whose own disk is well refuses commands as long as those of a majority are stalled: they could not be
//! committed, and their outcome would be unknown.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use raft::StateRole;
use raft::eraftpb::{Message, MessageType};

use super::group::Group;
use super::membership::data_of;
use super::ready::ReadDone;
use super::ready::{Output, promises_no_entries};
use crate::command::{Refusal, Reply};
use crate::types::{LogIndex, NodeId, ReplicaId, Term};

/// How many times as long as others a replica on a stalled or unsteady disk waits for a leader before it stands for election.
const PATIENCE: u64 = 3;

/// The state of a node's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DiskState {
    /// It takes writes in time.
    #[default]
    Healthy,
    /// It takes no commands: it refuses writes, or is slow.
    Stalled,
    /// It takes writes in time again, and was slow until recently.
    Unsteady,
}

impl DiskState {
    /// As peers tell it each other.
    pub(crate) fn code(self) -> u8 {
        match self {
            DiskState::Healthy => 0,
            DiskState::Stalled => 1,
            DiskState::Unsteady => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<DiskState> {
        [DiskState::Healthy, DiskState::Stalled, DiskState::Unsteady]
            .into_iter()
            .find(|state| state.code() == code)
    }
}

/// The states of all disks, as far as this node knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks {
    own: DiskState,
    /// Those that are not healthy, of peers that said so through a connection that stands.
    peers: BTreeMap<NodeId, DiskState>,
}

impl Disks {
    pub(crate) fn own(&self) -> DiskState {
        self.own
    }

    /// Takes note of the state of this node's disk. Returns whether it is another one than before.
    pub(crate) fn set_own(&mut self, state: DiskState) -> bool {
        core::mem::replace(&mut self.own, state) != state
    }

    /// Takes note of the state of a peer's disk. Returns whether it is another one than before.
    pub(crate) fn set_peer(&mut self, peer: NodeId, state: DiskState) -> bool {
        let before = match state {
            DiskState::Healthy => self.peers.remove(&peer),
            DiskState::Stalled | DiskState::Unsteady => self.peers.insert(peer, state),
        };
        before.unwrap_or_default() != state
    }

    pub(crate) fn peers_stalled(&self) -> Vec<NodeId> {
        let stalled = self.peers.iter().filter(|(_, state)| **state == DiskState::Stalled);
        stalled.map(|(&peer, _)| peer).collect()
    }

    /// Whether the disk of a peer takes writes.
    fn can_write(&self, peer: NodeId) -> bool {
        self.peers.get(&peer) != Some(&DiskState::Stalled)
    }

    /// Whether a peer should lead: its disk has been well for some time.
    pub(crate) fn may_lead(&self, peer: NodeId) -> bool {
        !self.peers.contains_key(&peer)
    }
}

fn quorum(voters: &[(NodeId, ReplicaId)]) -> usize {
    voters.len() / 2 + 1
}

impl Group {
    /// The state of some disk has changed.
    pub(crate) fn set_disks(&mut self, disks: &Disks) {
        self.disks.clone_from(disks);
    }

    fn is_disk_stalled(&self) -> bool {
        self.disks.own == DiskState::Stalled
    }

    /// Whether a command taken now could not be acknowledged before some disk recovers.
    pub(super) fn refuses_commands(&self) -> bool {
        let voters = self.voting_nodes();
        let stalled = voters.iter().filter(|(node, _)| !self.disks.can_write(*node)).count();
        self.is_disk_stalled() || (stalled > 0 && voters.len() - stalled < quorum(&voters))
    }

    fn voting_nodes(&self) -> Vec<(NodeId, ReplicaId)> {
        let voters = self.membership.voters.iter();
        voters.filter_map(|&replica| Some((self.node_of(replica)?, replica))).collect()
    }

    /// Hands leadership over, if this replica leads on a disk that should lead nothing and another node can.
    ///
    /// A leader on a stalled disk hands over if enough of the `reachable` nodes can write to elect a leader, to a healthy
    /// disk rather than to an unsteady one; a leader on an unsteady disk only to a healthy one. Either picks only a follower
    /// that holds the whole log: any other would have to catch up first, and commands that could be refused would be held
    /// all that time.
    pub(crate) fn leave_own_disk(&mut self, reachable: impl Fn(NodeId) -> bool) {
        let raft = &self.raft.raft;
        let may_stay = self.disks.own == DiskState::Healthy;
        if may_stay || raft.state != StateRole::Leader || raft.lead_transferee.is_some() {
            return;
        }
        let voters = self.voting_nodes();
        let can_write = |node| reachable(node) && self.disks.can_write(node);
        let others = voters.iter().filter(|(node, replica)| replica.0 != raft.id && can_write(*node));
        let last = raft.raft_log.last_index();
        let holds_all = |replica| raft.prs().get(replica).is_some_and(|progress| progress.matched == last);
        let candidates = others.clone().filter(|(_, replica)| holds_all(replica.0));
        let healthy = candidates.clone().find(|(node, _)| self.disks.may_lead(*node));
        let candidate = if self.is_disk_stalled() {
            let has_quorum = others.count() >= quorum(&voters);
            healthy.or_else(|| candidates.clone().next()).filter(|_| has_quorum)
        } else {
            healthy
        };
        if let Some(&(_, ReplicaId(replica))) = candidate {
            self.raft.transfer_leader(replica);
        }
    }

    /// Whether a message asks for what a stalled disk cannot give. It is not stepped: an answer would be held until the
    /// disk recovers, and so would all others that come meanwhile.
    pub(super) fn is_beyond_stalled_disk(&self, message: &Message) -> bool {
        let waits = !self.persisting.is_idle();
        self.is_disk_stalled()
            && match message.get_msg_type() {
                MessageType::MsgTimeoutNow => true,
                MessageType::MsgAppend => {
                    waits || message.entries.iter().any(|entry| !data_of(entry).is_empty())
                }
                // A leader has to hear that another one is about to be.
                MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                    waits && self.raft.raft.state != StateRole::Leader
                }
                _ => false,
            }
    }

    /// Whether the engine is to take note of a tick: a leader always, others to count the time since they heard of one.
    pub(super) fn counts_tick(&self) -> bool {
        let is_late = match self.disks.own {
            DiskState::Healthy => false,
            DiskState::Unsteady => true,
            DiskState::Stalled if self.persisting.is_idle() => true,
            DiskState::Stalled => return self.raft.raft.state == StateRole::Leader,
        };
        !is_late || self.raft.raft.state == StateRole::Leader || self.now.0.is_multiple_of(PATIENCE)
    }

    /// While the disk is stalled, takes what needs none past the engine's `Ready`s, of which each would be remembered until
    /// the disk recovers: for days, perhaps.
    pub(super) fn bypass_stalled_disk(&mut self, out: &mut Output) {
        if !self.is_disk_stalled() {
            return;
        }
        for state in core::mem::take(&mut self.raft.raft.read_states) {
            self.reads.confirmed(&state.request_ctx, LogIndex(state.index));
        }
        let leads = self.raft.raft.state == StateRole::Leader;
        let term_durable = self.persisting.is_durable(Term(self.raft.raft.term));
        let mut free = Vec::new();
        let mut bound = Vec::new();
        for message in core::mem::take(&mut self.raft.raft.msgs) {
            // A question for the index to read at bears no term.
            let asks = message.get_msg_type() == MessageType::MsgReadIndex;
            if asks || (term_durable && (leads || promises_no_entries(&message))) {
                free.push(message);
            } else if !promises_no_entries(&message) {
                bound.push(message);
            }
            // An answer to a heartbeat that would have to wait for its term to be durable is worth nothing by then.
        }
        self.raft.raft.msgs = bound;
        self.send(free, out);
    }

    /// Refuses reads for which this replica would have to apply what it does not hold, or may not before it is durable.
    pub(super) fn refuse_reads_beyond_disk(&mut self, out: &mut Output) {
        if !self.is_disk_stalled() {
            return;
        }
        let reached = self.applied.max(LogIndex(self.raft.raft.raft_log.persisted));
        let refused = self.reads.take_beyond(reached);
        out.reads.extend(refused.map(|waiter| ReadDone {
            request: waiter.request,
            shard: self.shard,
            reply: Reply::Refused(Refusal::DiskUnavailable),
            read: None,
        }));
    }
}
