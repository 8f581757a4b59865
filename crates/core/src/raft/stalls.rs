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
use super::ready::{Output, promises_no_entries};
use crate::command::ShardRefusal;
use crate::peer::DiskState;
use crate::types::{LogIndex, NodeId, ReplicaId, Term, Ticks};

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
    pub(crate) fn can_write(&self, peer: NodeId) -> bool {
        self.peers.get(&peer) != Some(&DiskState::Stalled)
    }

    /// Whether a peer may lead: its disk has been healthy for some time.
    pub(crate) fn may_lead(&self, peer: NodeId) -> bool {
        !self.peers.contains_key(&peer)
    }

    /// Whether neither this node nor a peer has reported a bad disk.
    fn are_healthy(&self) -> bool {
        self.own == DiskState::Healthy && self.peers.is_empty()
    }

    fn is_stalled(&self) -> bool {
        self.own == DiskState::Stalled
    }

    /// Whether a leader with these voters could not commit a command before some disk recovers.
    fn block_commands(&self, voters: &[(NodeId, ReplicaId)]) -> bool {
        let stalled = voters.iter().filter(|(node, _)| !self.can_write(*node)).count();
        self.is_stalled() || (stalled > 0 && voters.len() - stalled < quorum(voters))
    }

    /// The replica to which a leader should transfer its leadership because of its own disk.
    /// `others` are the other voters on reachable nodes, each with whether it holds the whole log;
    /// `quorum` is a majority of all voters.
    fn successor(&self, others: &[(NodeId, ReplicaId, bool)], quorum: usize) -> Option<ReplicaId> {
        let writable = others.iter().filter(|(node, ..)| self.can_write(*node));
        let mut candidates = writable.clone().filter(|(.., holds_all)| *holds_all);
        let healthy = candidates.clone().find(|(node, ..)| self.may_lead(*node));
        let chosen = match self.own {
            DiskState::Healthy => None,
            DiskState::Unsteady => healthy,
            DiskState::Stalled => {
                healthy.or_else(|| candidates.next()).filter(|_| writable.count() >= quorum)
            }
        };
        chosen.map(|(_, replica, _)| *replica)
    }

    /// Whether a replica should count this tick towards an election. A leader always counts. Other
    /// replicas count to measure the time since they heard from a leader. If their disk should not
    /// lead, they count only some ticks, or none while a record waits for the disk.
    fn count_tick(&self, now: Ticks, leads: bool, has_waiting_records: bool) -> bool {
        leads
            || match self.own {
                DiskState::Healthy => true,
                DiskState::Stalled if has_waiting_records => false,
                DiskState::Stalled | DiskState::Unsteady => now.0.is_multiple_of(ELECTION_TIMEOUT_FACTOR),
            }
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

    /// Whether a new command could not be acknowledged before some disk recovers.
    pub(super) fn refuses_commands(&self) -> bool {
        // Asked for each command, so the usual case comes first and collects nothing.
        !self.disks.are_healthy() && self.disks.block_commands(&self.members.voters())
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
        let voters = self.members.voters();
        let last = raft.raft_log.last_index();
        let holds_all =
            |replica: ReplicaId| raft.prs().get(replica.0).is_some_and(|progress| progress.matched == last);
        let others = voters.iter().filter(|(node, replica)| replica.0 != raft.id && reachable(*node));
        let others: Vec<_> = others.map(|&(node, replica)| (node, replica, holds_all(replica))).collect();
        if let Some(successor) = self.disks.successor(&others, quorum(&voters)) {
            self.begin_transfer(successor, TransferReason::Disk);
        }
    }

    /// Whether a message asks for something that a stalled disk cannot do. Such a message is not
    /// stepped. Its reply would wait until the disk recovers, and so would all replies after it.
    pub(super) fn is_beyond_stalled_disk(&self, message: &Message) -> bool {
        let waits = !self.persisting.is_idle();
        self.disks.is_stalled()
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

    /// Whether the engine should count this tick.
    pub(super) fn counts_tick(&self) -> bool {
        let leads = self.raft.raft.state == StateRole::Leader;
        self.disks.count_tick(self.now(), leads, !self.persisting.is_idle())
    }

    /// While the disk is stalled, processes messages that need no disk outside of the engine's
    /// `Ready`s. The engine would remember each of these `Ready`s until the disk recovers, which
    /// may take days.
    pub(super) fn bypass_stalled_disk(&mut self, out: &mut Output) {
        if !self.disks.is_stalled() {
            return;
        }
        let confirmed = core::mem::take(&mut self.raft.raft.read_states);
        self.confirm_reads(confirmed);
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
        if self.disks.is_stalled() {
            let reached = self.applied.index().max(LogIndex(self.raft.raft.raft_log.persisted));
            self.refuse_reads_beyond(reached, &ShardRefusal::DiskUnavailable, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The disks as node 1 knows them: its own, and those of some peers.
    fn disks(own: DiskState, peers: &[(u64, DiskState)]) -> Disks {
        let mut disks = Disks::default();
        disks.set_own(own);
        for &(peer, state) in peers {
            disks.set_peer(NodeId(peer), state);
        }
        disks
    }

    fn voters(count: u64) -> Vec<(NodeId, ReplicaId)> {
        (1..=count).map(|number| (NodeId(number), ReplicaId(10 * number))).collect()
    }

    #[test]
    fn commands_are_blocked_by_the_own_disk_or_by_those_of_a_majority() {
        use DiskState::{Healthy, Stalled, Unsteady};
        for (own, peers, is_blocked) in [
            (Healthy, &[][..], false),
            (Unsteady, &[], false),
            (Stalled, &[], true),
            (Healthy, &[(2, Stalled)], false),
            (Healthy, &[(2, Stalled), (3, Unsteady)], false),
            (Healthy, &[(2, Stalled), (3, Stalled)], true),
            (Healthy, &[(8, Stalled), (9, Stalled)], false),
        ] {
            let disks = disks(own, peers);
            assert_eq!(disks.block_commands(&voters(3)), is_blocked, "{own:?}, {peers:?}");
            assert!(!(is_blocked && disks.are_healthy()), "{own:?}, {peers:?}");
        }
    }

    #[test]
    fn a_leader_leaves_a_bad_disk_for_a_better_one_with_the_whole_log() {
        use DiskState::{Healthy, Stalled, Unsteady};
        let reachable = |nodes: &[(u64, bool)]| -> Vec<(NodeId, ReplicaId, bool)> {
            nodes.iter().map(|&(node, whole)| (NodeId(node), ReplicaId(10 * node), whole)).collect()
        };
        let both = reachable(&[(2, true), (3, true)]);
        for (own, peers, others, expected) in [
            (Healthy, &[][..], &both, None),
            (Unsteady, &[], &both, Some(20)),
            (Unsteady, &[(2, Unsteady)], &both, Some(30)),
            (Unsteady, &[(2, Unsteady), (3, Unsteady)], &both, None),
            (Unsteady, &[], &reachable(&[(2, false), (3, true)]), Some(30)),
            (Stalled, &[(2, Unsteady), (3, Unsteady)], &both, Some(20)),
            (Stalled, &[(2, Unsteady)], &both, Some(30)),
            (Stalled, &[(2, Stalled)], &both, None),
            (Stalled, &[], &reachable(&[(2, true)]), None),
            (Stalled, &[], &reachable(&[(2, false), (3, false)]), None),
        ] {
            let successor = disks(own, peers).successor(others, quorum(&voters(3)));
            assert_eq!(successor.map(|replica| replica.0), expected, "{own:?}, {peers:?}, {others:?}");
        }
    }

    #[test]
    fn a_replica_on_a_bad_disk_stands_for_election_late_or_not_at_all() {
        let counted = |own, leads, waits| {
            (1..=9).filter(|&tick| disks(own, &[]).count_tick(Ticks(tick), leads, waits)).count()
        };
        for waits in [false, true] {
            assert_eq!(counted(DiskState::Healthy, false, waits), 9);
            assert_eq!(counted(DiskState::Unsteady, false, waits), 3);
            assert_eq!(counted(DiskState::Stalled, true, waits), 9, "a leader counts");
        }
        assert_eq!(counted(DiskState::Stalled, false, false), 3);
        assert_eq!(counted(DiskState::Stalled, false, true), 0);
    }
}
