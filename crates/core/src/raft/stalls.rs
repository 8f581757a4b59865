//! What a replica does while disks take no writes: this node's own, or those of peers.
//!
//! Owns what is refused, passed on or let go then. When a disk stalls and recovers is the shell's to say, and what
//! peers say of theirs reaches this room through the node.
//!
//! On a stalled disk of its own, a replica
//! - takes no commands, neither from clients nor from its leader: they would pile up in memory, and the leader sends
//!   them again;
//! - stands for election late, so that others come first, and only while nothing of it waits for the disk. Terms and votes
//!   find room where commands do not, and somebody has to lead if nobody's disk has any; but once one waits, another
//!   would only wait behind it. The same goes for its vote;
//! - makes a snapshot (`snapshots`), so that the log can be cut and perhaps finds the room that it waits for;
//! - hands over what it leads to a follower that can win an election. If there is none it goes on leading, because reads
//!   need no disk, and a leaderless shard serves none.
//!
//! A leader whose own disk is well refuses commands as long as those of a majority are stalled: they could not be
//! committed, and their outcome would be unknown.

use alloc::vec::Vec;
use raft::StateRole;
use raft::eraftpb::{Message, MessageType};

use super::group::Group;
use super::membership::data_of;
use super::ready::ReadDone;
use super::ready::{Output, promises_no_entries};
use crate::command::{Refusal, Reply};
use crate::types::{LogIndex, NodeId, ReplicaId, Term};

/// How many times as long as others a replica on a stalled disk waits for a leader before it stands for election.
const PATIENCE: u64 = 3;

/// Which disks take no writes, as far as this node knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks {
    /// This node's.
    pub(crate) own_stalled: bool,
    /// Those of peers that said so through a connection that stands.
    pub(crate) peers_stalled: Vec<NodeId>,
}

impl Disks {
    /// Takes note of the state of a peer's disk. Whether that is news.
    pub(crate) fn set_peer(&mut self, peer: NodeId, stalled: bool) -> bool {
        let known = self.peers_stalled.iter().position(|&other| other == peer);
        match (known, stalled) {
            (None, true) => self.peers_stalled.push(peer),
            (Some(position), false) => {
                self.peers_stalled.remove(position);
            }
            (None, false) | (Some(_), true) => return false,
        }
        true
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

    /// Whether a command taken now could not be acknowledged before some disk recovers.
    pub(super) fn refuses_commands(&self) -> bool {
        let Disks { own_stalled, peers_stalled } = &self.disks;
        let voters = self.voting_nodes();
        let stalled = voters.iter().filter(|(node, _)| peers_stalled.contains(node)).count();
        *own_stalled || (stalled > 0 && voters.len() - stalled < quorum(&voters))
    }

    fn voting_nodes(&self) -> Vec<(NodeId, ReplicaId)> {
        let voters = self.membership.voters.iter();
        voters.filter_map(|&replica| Some((self.node_of(replica)?, replica))).collect()
    }

    /// Hands leadership over, if this replica leads on a stalled disk and enough of the `reachable` nodes can write for
    /// one of them to be elected. Only to a follower that holds the whole log: any other would have to catch up first,
    /// and commands that could be refused would be held all that time.
    pub(crate) fn leave_stalled_disk(&mut self, reachable: impl Fn(NodeId) -> bool) {
        let raft = &self.raft.raft;
        if !self.disks.own_stalled || raft.state != StateRole::Leader || raft.lead_transferee.is_some() {
            return;
        }
        let can_write = |node| reachable(node) && !self.disks.peers_stalled.contains(&node);
        let voters = self.voting_nodes();
        let others = voters.iter().filter(|(node, replica)| replica.0 != raft.id && can_write(*node));
        let last = raft.raft_log.last_index();
        let holds_all = |replica| raft.prs().get(replica).is_some_and(|progress| progress.matched == last);
        let candidate = others.clone().map(|(_, replica)| replica.0).find(|&replica| holds_all(replica));
        if let Some(replica) = candidate.filter(|_| others.count() >= quorum(&voters)) {
            self.raft.transfer_leader(replica);
        }
    }

    /// Whether a message asks for what a stalled disk cannot give. It is not stepped: an answer would be held until the
    /// disk recovers, and so would all others that come meanwhile.
    pub(super) fn is_beyond_stalled_disk(&self, message: &Message) -> bool {
        let waits = !self.persisting.is_idle();
        self.disks.own_stalled
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
        !self.disks.own_stalled
            || self.raft.raft.state == StateRole::Leader
            || (self.persisting.is_idle() && self.now.0.is_multiple_of(PATIENCE))
    }

    /// While the disk is stalled, takes what needs none past the engine's `Ready`s, of which each would be remembered until
    /// the disk recovers: for days, perhaps.
    pub(super) fn bypass_stalled_disk(&mut self, out: &mut Output) {
        if !self.disks.own_stalled {
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

    /// Refuses reads for which this replica would have to apply what its stalled disk does not hold yet.
    pub(super) fn refuse_reads_beyond_disk(&mut self, out: &mut Output) {
        if !self.disks.own_stalled {
            return;
        }
        let durable = LogIndex(self.raft.raft.raft_log.persisted);
        let refused = self.reads.take_beyond(durable);
        out.reads.extend(refused.map(|waiter| ReadDone {
            request: waiter.request,
            shard: self.shard,
            reply: Reply::Refused(Refusal::DiskUnavailable),
            read: None,
        }));
    }
}
