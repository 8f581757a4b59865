//! When a replica stands for election, and to which one it transfers its leadership.
//!
//! Owns the election timeout, the hasty election after a broken connection, and the state in which
//! a replica takes part in no election (`node::first_elections` decides when). On a stalled or slow
//! disk, [`super::stalls`] decides which ticks count towards the timeout, and when a leader
//! transfers its leadership. The engine owns votes.

use raft::StateRole;
use raft::eraftpb::{Message, MessageType};

use super::group::Group;
use super::trace::RoleChangeCause;
use crate::trace::VoteRefusal;
use crate::types::{NodeId, ReplicaId};

/// Maximum delay, in ticks, before a follower stands for election after its connection to the
/// leader broke. A broken connection strongly suggests that the leader's process is gone. Pre-vote
/// makes a false suspicion harmless.
const HASTY_ELECTION_TICKS_MAX: u64 = 4;

/// The seeded election timeout. The engine draws its own from the thread's random generator
/// whenever its role changes. This timeout replaces it before every tick. It is drawn again when
/// the term, the known leader or the role changes.
pub(super) struct ElectionTimer {
    random: fastrand::Rng,
    election_ticks: u64,
    /// The term, leader and role for which the timeout was drawn.
    drawn_for: Option<(u64, u64, StateRole)>,
    timeout_ticks: u64,
    /// Remaining ticks until an election, because the connection to the leader broke.
    hasty_ticks: Option<u64>,
    /// Whether the replica neither votes nor stands for election.
    is_held: bool,
}

impl ElectionTimer {
    /// A timer that is drawn at the first tick.
    pub(super) fn new(random: fastrand::Rng, election_ticks: u64, is_held: bool) -> ElectionTimer {
        ElectionTimer {
            random,
            election_ticks,
            drawn_for: None,
            timeout_ticks: 0,
            hasty_ticks: None,
            is_held,
        }
    }

    /// Whether the replica takes part in no election: no tick counts towards one.
    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// The election timeout in ticks, for the present term, leader and role.
    pub(super) fn timeout_ticks(&mut self, state: (u64, u64, StateRole)) -> usize {
        if self.drawn_for.replace(state) != Some(state) {
            let base = self.election_ticks;
            self.timeout_ticks = self.random.u64(base..=base + base / 2);
        }
        self.timeout_ticks as usize
    }

    /// Schedules an election soon, because the connection to the leader broke.
    pub(super) fn hasten(&mut self) {
        self.hasty_ticks = Some(self.random.u64(0..=HASTY_ELECTION_TICKS_MAX));
    }

    /// Counts a tick. Returns whether to stand for election now. A replica that follows a leader
    /// again, or may not stand for election, cancels the hasty election.
    pub(super) fn tick(&mut self, may_stand: bool) -> bool {
        let Some(ticks) = self.hasty_ticks.take().filter(|_| may_stand) else { return false };
        self.hasty_ticks = ticks.checked_sub(1);
        ticks == 0
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
    /// Takes part in elections from now on.
    pub(crate) fn allow_elections(&mut self) {
        self.election.is_held = false;
        self.stand_if_alone();
    }

    /// Stands for election at once if this replica is the only member of its shard: a single voter
    /// needs no other votes, so it need not wait for a timeout.
    pub(super) fn stand_if_alone(&mut self) {
        let is_alone = self.membership().replicas() == [self.replica()];
        if is_alone && !self.election.is_held && self.raft.raft.state == StateRole::Follower {
            self.raft.campaign().expect("invariant: a lone follower may campaign");
        }
        self.trace_role(RoleChangeCause::Tick);
    }

    /// Why a message is not stepped, if it asks for something that this replica does not do for
    /// now: because its disk is stalled, or because it takes part in no election.
    pub(super) fn withholds(&self, message: &Message) -> Option<VoteRefusal> {
        let is_of_election = matches!(
            message.get_msg_type(),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote | MessageType::MsgTimeoutNow
        );
        if self.election.is_held && is_of_election {
            return Some(VoteRefusal::NewFounder);
        }
        self.is_beyond_stalled_disk(message).then_some(VoteRefusal::DiskStalled)
    }

    /// Transfers leadership to the voter that has most of the log and may lead, if this replica
    /// leads.
    pub fn transfer_leadership(&mut self, may_lead: impl Fn(NodeId) -> bool) {
        if self.raft.raft.state != StateRole::Leader || self.raft.raft.lead_transferee.is_some() {
            return;
        }
        let own = ReplicaId(self.raft.raft.id);
        let progress = self.raft.raft.prs();
        let voters = self.members.voters();
        let others = voters.iter().filter(|(node, replica)| *replica != own && may_lead(*node));
        let matched = |replica: ReplicaId| progress.get(replica.0).map_or(0, |progress| progress.matched);
        if let Some(&(_, candidate)) = others.max_by_key(|(_, replica)| matched(*replica)) {
            self.begin_transfer(candidate, TransferReason::Requested);
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
        let node = self.members.node_of(to).filter(|_| is_accepted);
        self.trace.set_transfer(node.map(|to| Transfer { to, reason }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn timer() -> ElectionTimer {
        ElectionTimer::new(fastrand::Rng::with_seed(1), 10, false)
    }

    #[test]
    fn a_timeout_is_drawn_for_each_state_and_stays_for_it() {
        let mut timer = timer();
        let mut drawn: Vec<usize> = (1..100)
            .map(|term| {
                let state = (term, 2, StateRole::Follower);
                let timeout = timer.timeout_ticks(state);
                assert_eq!(timer.timeout_ticks(state), timeout);
                timeout
            })
            .collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, [10, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn a_broken_connection_hastens_one_election() {
        let mut timer = timer();
        assert!(!timer.tick(true), "nothing is scheduled");
        for _ in 0..20 {
            timer.hasten();
            let ticks = (0..).take_while(|_| !timer.tick(true)).count() as u64;
            assert!(ticks <= HASTY_ELECTION_TICKS_MAX);
            assert!(!timer.tick(true), "once");
        }
    }

    #[test]
    fn a_new_leader_cancels_the_hasty_election() {
        let mut timer = timer();
        timer.hasten();
        assert!(!timer.tick(false));
        assert!((0..=HASTY_ELECTION_TICKS_MAX).all(|_| !timer.tick(true)));
    }
}
