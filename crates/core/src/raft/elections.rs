//! When a replica stands for election, and to which one it transfers its leadership.
//!
//! Owns the election timeout and the hasty election after a broken connection. [`super::stalls`]
//! owns which ticks count on a disk that should not lead, and when such a leader gives up its
//! leadership. The engine owns votes.

use raft::StateRole;

use super::group::Group;
use crate::types::{NodeId, ReplicaId};

/// Maximum delay, in ticks, before a follower stands for election after its connection to the
/// leader broke. A broken connection strongly suggests that the leader's process is gone. Pre-vote
/// makes a false suspicion harmless.
const HASTY_ELECTION_TICKS_MAX: u64 = 4;

/// The seeded election timeout. The engine draws its own from the thread's random generator
/// whenever its role changes. This timeout replaces it before every tick. It is drawn again when
/// the term or the known leader changes.
pub(super) struct ElectionTimer {
    drawn_for: (u64, u64, StateRole),
    timeout_ticks: u64,
    /// Remaining ticks until an election, because the connection to the leader broke.
    hasty_ticks: Option<u64>,
}

impl ElectionTimer {
    /// A timer that is drawn at the first tick.
    pub(super) fn new() -> ElectionTimer {
        ElectionTimer { drawn_for: (0, 0, StateRole::Follower), timeout_ticks: 0, hasty_ticks: None }
    }
}

/// A transfer of leadership in progress.
pub(super) struct Transfer {
    pub(super) to: NodeId,
    pub(super) reason: TransferReason,
}

/// Why a leader transfers its leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferReason {
    /// An operator, the placement or a shutdown wants it.
    Requested,
    /// The disk of this node should not lead.
    Disk,
}

impl Group {
    /// Draws the election timeout if the term, the leader or the role has changed, and sets it in
    /// the engine.
    pub(super) fn draw_election_timeout(&mut self) {
        let state = (self.raft.raft.term, self.raft.raft.leader_id, self.raft.raft.state);
        if self.election.drawn_for != state || self.election.timeout_ticks == 0 {
            let base = self.timing.election_ticks;
            self.election.drawn_for = state;
            self.election.timeout_ticks = self.random.u64(base..=base + base / 2);
        }
        self.raft.raft.set_randomized_election_timeout(self.election.timeout_ticks as usize);
    }

    /// Counts down to the election after a broken connection to the leader.
    pub(super) fn tick_hasty_election(&mut self) {
        let Some(ticks) = self.election.hasty_ticks else { return };
        let follows_nobody =
            self.raft.raft.leader_id == raft::INVALID_ID && self.raft.raft.state == StateRole::Follower;
        if !follows_nobody || !self.raft.raft.promotable() {
            self.election.hasty_ticks = None;
        } else if ticks > 0 {
            self.election.hasty_ticks = Some(ticks - 1);
        } else {
            self.election.hasty_ticks = None;
            // Refused only while a membership change is not applied. The ordinary timeout applies
            // then.
            let _ = self.raft.campaign();
        }
    }

    /// Handles a broken connection.
    pub fn link_lost(&mut self, node: NodeId) {
        self.stop_sending_to(Some(node));
        if self.raft.raft.state == StateRole::Leader {
            // Messages in flight are lost, so probe again instead of waiting for a rejection.
            if let Some(replica) = self.membership.replica_on(node) {
                self.raft.report_unreachable(replica.0);
            }
        } else if self.raft.raft.state == StateRole::Follower && self.leader() == Some(node) {
            // Forgetting the leader allows this replica to vote for another one before the lease of
            // check-quorum ends. No read depends on that lease.
            let term = self.raft.raft.term;
            self.raft.raft.become_follower(term, raft::INVALID_ID);
            self.election.hasty_ticks = Some(self.random.u64(0..=HASTY_ELECTION_TICKS_MAX));
        }
    }

    /// Transfers leadership to the voter that has most of the log and may lead, if this replica
    /// leads.
    pub fn transfer_leadership(&mut self, may_lead: impl Fn(NodeId) -> bool) {
        if self.raft.raft.state != StateRole::Leader || self.raft.raft.lead_transferee.is_some() {
            return;
        }
        let own = ReplicaId(self.raft.raft.id);
        let progress = self.raft.raft.prs();
        let others = self.membership.voters.iter().filter(|&&replica| replica != own);
        let candidate = others
            .filter(|&&replica| self.node_of(replica).is_some_and(&may_lead))
            .max_by_key(|replica| progress.get(replica.0).map_or(0, |progress| progress.matched));
        if let Some(&ReplicaId(replica)) = candidate {
            self.begin_transfer(ReplicaId(replica), TransferReason::Requested);
        }
    }

    /// Transfers leadership to the voter on a node, if this replica leads.
    pub fn transfer_to(&mut self, node: NodeId) {
        self.transfer_leadership(|candidate| candidate == node);
    }

    /// Asks the engine to transfer the leadership to a voter.
    pub(super) fn begin_transfer(&mut self, to: ReplicaId, reason: TransferReason) {
        self.raft.transfer_leader(to.0);
        let is_accepted = self.raft.raft.lead_transferee == Some(to.0);
        let node = self.node_of(to).filter(|_| is_accepted);
        self.trace.set_transfer(node.map(|to| Transfer { to, reason }));
    }
}
