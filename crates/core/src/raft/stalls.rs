//! Behaviour of a replica while disks refuse writes or are slow: the disk of this node, or those of
//! peers.
//!
//! Owns what a replica refuses, and when it gives up leadership. The shell reports when the disk
//! stalls and recovers, with a [`StallReason`](crate::event::StallReason). The node passes on the
//! states of peers' disks, which come with their reports.
//!
//! While the disk of its node is stalled, a replica
//! - takes no commands, neither from clients nor from its leader: they would pile up in memory, and
//!   the leader sends them again;
//! - stands for election late, so that others come first, and only while none of its records waits
//!   for the disk. Terms and votes find space where commands do not, and a shard needs a leader
//!   even if all disks are full. But once one record waits, another would only wait behind it. The
//!   same applies to its vote;
//! - makes a snapshot (`snapshots`) if the disk is full, so that the log can be cut, which may free
//!   the space that it waits for;
//! - transfers its leadership to a follower that can win an election. If there is none it keeps
//!   leading, because reads need no disk, and a shard without a leader serves none.
//!
//! On an unsteady disk, which was slow until recently, a replica takes part in everything. But it
//! stands for election late, and transfers its leadership to a follower with a healthy disk, if
//! there is one.
//!
//! A leader with a healthy disk refuses commands while the disks of a majority are stalled: they
//! could not be committed, and their outcome would be unknown.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use raft::StateRole;
use raft::eraftpb::{Message, MessageType};

use super::elections::TransferReason;
use super::group::Group;
use super::membership::data_of;
use super::ready::ReadDone;
use super::ready::{Output, promises_no_entries};
use crate::command::{Refusal, Reply};
use crate::peer::DiskState;
use crate::types::{LogIndex, NodeId, ReplicaId, Term};

/// Factor by which a replica on a stalled or unsteady disk waits longer for a leader before it
/// stands for election.
const ELECTION_TIMEOUT_FACTOR: u64 = 3;

/// The states of all disks, as far as this node knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks {
    own: DiskState,
    /// Peers with disks that are not healthy, according to their reports through current
    /// connections.
    peers: BTreeMap<NodeId, DiskState>,
}

impl Disks {
    pub(crate) fn own(&self) -> DiskState {
        self.own
    }

    /// Sets the state of this node's disk. Returns whether it changed.
    pub(crate) fn set_own(&mut self, state: DiskState) -> bool {
        core::mem::replace(&mut self.own, state) != state
    }

    /// Sets the state of a peer's disk. Returns whether it changed.
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

    /// Whether a peer may lead: its disk has been healthy for some time.
    pub(crate) fn may_lead(&self, peer: NodeId) -> bool {
        !self.peers.contains_key(&peer)
    }
}

fn quorum(voters: &[(NodeId, ReplicaId)]) -> usize {
    voters.len() / 2 + 1
}

impl Group {
    /// Handles a change of a disk's state.
    pub(crate) fn set_disks(&mut self, disks: &Disks) {
        self.disks.clone_from(disks);
    }

    fn is_disk_stalled(&self) -> bool {
        self.disks.own == DiskState::Stalled
    }

    /// Whether a new command could not be acknowledged before some disk recovers.
    pub(super) fn refuses_commands(&self) -> bool {
        let voters = self.voting_nodes();
        let stalled = voters.iter().filter(|(node, _)| !self.disks.can_write(*node)).count();
        self.is_disk_stalled() || (stalled > 0 && voters.len() - stalled < quorum(&voters))
    }

    fn voting_nodes(&self) -> Vec<(NodeId, ReplicaId)> {
        let voters = self.membership.voters.iter();
        voters.filter_map(|&replica| Some((self.node_of(replica)?, replica))).collect()
    }

    /// Transfers leadership, if this replica leads on a disk that should not lead and another node
    /// can.
    ///
    /// A leader on a stalled disk transfers if enough of the `reachable` nodes can write to elect a
    /// leader, preferably to a healthy disk. A leader on an unsteady disk transfers only to a
    /// healthy one. Both choose only a follower that has the whole log. Any other would have to
    /// catch up first, and commands would be held during that time although they could be refused.
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
            self.begin_transfer(ReplicaId(replica), TransferReason::Disk);
        }
    }

    /// Whether a message asks for something that a stalled disk cannot do. Such a message is not
    /// stepped. Its reply would wait until the disk recovers, and so would all replies after it.
    pub(super) fn is_beyond_stalled_disk(&self, message: &Message) -> bool {
        let waits = !self.persisting.is_idle();
        self.is_disk_stalled()
            && match message.get_msg_type() {
                MessageType::MsgTimeoutNow => true,
                MessageType::MsgAppend => {
                    waits || message.entries.iter().any(|entry| !data_of(entry).is_empty())
                }
                // A leader must learn that another one is about to be elected.
                MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                    waits && self.raft.raft.state != StateRole::Leader
                }
                _ => false,
            }
    }

    /// Whether the engine should count this tick. A leader always counts. Other replicas count to
    /// measure the time since they heard from a leader. If their disk should not lead, they count
    /// only some ticks, or none while a record waits for the disk.
    pub(super) fn counts_tick(&self) -> bool {
        let is_late = match self.disks.own {
            DiskState::Healthy => false,
            DiskState::Unsteady => true,
            DiskState::Stalled if self.persisting.is_idle() => true,
            DiskState::Stalled => return self.raft.raft.state == StateRole::Leader,
        };
        !is_late
            || self.raft.raft.state == StateRole::Leader
            || self.now.0.is_multiple_of(ELECTION_TIMEOUT_FACTOR)
    }

    /// While the disk is stalled, processes messages that need no disk outside of the engine's
    /// `Ready`s. The engine would remember each of these `Ready`s until the disk recovers, which
    /// may take days.
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
            // A ReadIndex request carries no term.
            let asks = message.get_msg_type() == MessageType::MsgReadIndex;
            if asks || (term_durable && (leads || promises_no_entries(&message))) {
                free.push(message);
            } else if !promises_no_entries(&message) {
                bound.push(message);
            }
            // A heartbeat response that would have to wait until its term is durable would be
            // useless by then, so it is dropped.
        }
        self.raft.raft.msgs = bound;
        self.send(free, out);
    }

    /// Refuses reads that need entries which this replica does not have, or may not apply before
    /// they are durable.
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
