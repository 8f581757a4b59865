//! The next step of a shard's membership towards the wanted one: a pure function that the leader
//! evaluates.
//!
//! Owns the order of steps:
//! - A new replica first becomes a learner, and a voter only when it has caught up.
//! - A voter leaves only once every live replica that should vote has caught up. So a replacement
//!   is one joint change, and the shard never has fewer voters than before, unless the replacement
//!   is dead.
//! - No change is made whose voters could not agree on the next one: the leader must be connected
//!   with a majority of them and have heard from it lately. The shard always keeps a voter.
//! - A leader does not remove its own vote. It transfers leadership, and the next leader removes
//!   it.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::deliberate::{Fault, Faults};
use crate::membership::{Membership, MembershipChange, Role};
use crate::types::ReplicaId;

/// The leader's knowledge of its shard.
pub(crate) struct Situation<'a> {
    /// The membership as of the last applied entry.
    pub(crate) membership: &'a Membership,
    pub(crate) own: ReplicaId,
    /// The wanted role of each replica; `None` for a replica that should be removed. A replica that
    /// is not listed keeps its role.
    pub(crate) wanted: &'a BTreeMap<ReplicaId, Option<Role>>,
    /// Other replicas that the leader has heard from lately, since it was elected.
    pub(crate) active: &'a [ReplicaId],
    /// Replicas on nodes to which the leader has a connection. A replica that has just died was
    /// still heard from lately, but is not listed here.
    pub(crate) connected: &'a [ReplicaId],
    /// Active replicas whose log is as long as the leader's, up to a few entries.
    pub(crate) caught_up: &'a [ReplicaId],
    pub(crate) faults: Faults,
}

/// The leader's next step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReconcileStep {
    Change(MembershipChange),
    /// Transfers leadership to another voter.
    HandOver,
}

/// The next step; `None` if none is needed or none is possible now.
pub(crate) fn next_step(situation: &Situation<'_>) -> Option<ReconcileStep> {
    let Situation { membership, own, wanted, .. } = situation;
    if membership.is_joint() {
        return Some(ReconcileStep::Change(MembershipChange::LeaveJoint));
    }
    let newcomer =
        wanted.iter().find(|(replica, role)| role.is_some() && membership.role(**replica).is_none());
    if let Some((&newcomer, _)) = newcomer {
        return Some(ReconcileStep::Change(MembershipChange::Roles(vec![(newcomer, Some(Role::Learner))])));
    }
    let roles = next_roles(situation);
    if !roles.is_empty() {
        return Some(ReconcileStep::Change(MembershipChange::Roles(roles)));
    }
    let leads_wrongly = wanted.get(own).is_some_and(|role| *role != Some(Role::Voter));
    let is_successor = |replica: &ReplicaId| {
        wanted.get(replica) == Some(&Some(Role::Voter)) && situation.caught_up.contains(replica)
    };
    (leads_wrongly && membership.voters.iter().any(is_successor)).then_some(ReconcileStep::HandOver)
}

/// All changes of roles that are possible now.
fn next_roles(situation: &Situation<'_>) -> Vec<(ReplicaId, Option<Role>)> {
    let Situation { membership, own, wanted, active, connected, caught_up, faults } = situation;
    // A leader that was just elected has heard from few replicas, but knows its connections.
    let is_alive = |replica: &ReplicaId| active.contains(replica) || connected.contains(replica);
    let is_to_vote = |replica: &&ReplicaId| wanted.get(*replica) == Some(&Some(Role::Voter));
    let (ready, late): (Vec<ReplicaId>, Vec<ReplicaId>) =
        membership.learners.iter().filter(is_to_vote).partition(|&replica| caught_up.contains(replica));
    let promotions: Vec<_> = ready.into_iter().map(|replica| (replica, Some(Role::Voter))).collect();
    let changed = |replica: &ReplicaId, is: Role| {
        let role = *wanted.get(replica)?;
        (role != Some(is) && role != Some(Role::Voter)).then_some((*replica, role))
    };
    let departures: Vec<_> = if late.iter().any(is_alive) && !faults.has(Fault::VoterLeavesEarly) {
        Vec::new()
    } else {
        let others = membership.voters.iter().filter(|replica| *replica != own);
        others.filter_map(|replica| changed(replica, Role::Voter)).collect()
    };
    let retirements = membership.learners.iter().filter_map(|replica| changed(replica, Role::Learner));
    let mut roles: Vec<_> = retirements.collect();
    let both: Vec<_> = promotions.iter().chain(&departures).copied().collect();
    let votes = [both, promotions, departures].into_iter().find(|votes| is_viable(situation, votes));
    roles.extend(votes.into_iter().flatten());
    roles
}

/// Whether the voters after `changes` can reach agreement, as far as the leader knows.
fn is_viable(situation: &Situation<'_>, changes: &[(ReplicaId, Option<Role>)]) -> bool {
    let stays = |replica: &&ReplicaId| !changes.iter().any(|(changed, _)| changed == *replica);
    let kept = situation.membership.voters.iter().filter(stays);
    let gained = changes.iter().filter(|(_, role)| *role == Some(Role::Voter)).map(|(replica, _)| replica);
    let voters: Vec<&ReplicaId> = kept.chain(gained).collect();
    let Situation { own, active, connected, .. } = situation;
    let heard = voters
        .iter()
        .filter(|&&replica| replica == own || (active.contains(replica) && connected.contains(replica)));
    2 * heard.count() > voters.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u64]) -> Vec<ReplicaId> {
        numbers.iter().copied().map(ReplicaId).collect()
    }

    /// Replica 1 leads. `wanted` has a letter for each replica, from 1: `v`oter, `l`earner, `-`
    /// none.
    fn step(
        voters: &[u64],
        learners: &[u64],
        wanted: &str,
        (active, caught_up): (&[u64], &[u64]),
    ) -> Option<ReconcileStep> {
        let membership = Membership { voters: ids(voters), learners: ids(learners), ..Membership::default() };
        let role = |letter| match letter {
            'v' => Some(Role::Voter),
            'l' => Some(Role::Learner),
            _ => None,
        };
        let wanted = (1..).map(ReplicaId).zip(wanted.chars().map(role)).collect();
        next_step(&Situation {
            membership: &membership,
            own: ReplicaId(1),
            wanted: &wanted,
            active: &ids(active),
            connected: &ids(active),
            caught_up: &ids(caught_up),
            faults: Faults::NONE,
        })
    }

    fn change(roles: &[(u64, Option<Role>)]) -> Option<ReconcileStep> {
        let roles = roles.iter().map(|&(replica, role)| (ReplicaId(replica), role)).collect();
        Some(ReconcileStep::Change(MembershipChange::Roles(roles)))
    }

    const VOTER: Option<Role> = Some(Role::Voter);
    const LEARNER: Option<Role> = Some(Role::Learner);

    #[test]
    fn nothing_to_do() {
        assert_eq!(step(&[1, 2, 3], &[4], "vvvl", (&[2, 3, 4], &[2, 3, 4])), None);
    }

    #[test]
    fn a_newcomer_follows_then_votes_once_it_has_caught_up() {
        assert_eq!(step(&[1, 2, 3], &[], "vvvv", (&[2, 3], &[2, 3])), change(&[(4, LEARNER)]));
        assert_eq!(step(&[1, 2, 3], &[4], "vvvv", (&[2, 3, 4], &[2, 3])), None);
        assert_eq!(step(&[1, 2, 3], &[4], "vvvv", (&[2, 3, 4], &[2, 3, 4])), change(&[(4, VOTER)]));
    }

    #[test]
    fn a_replacement_is_one_joint_change() {
        assert_eq!(step(&[1, 2, 3], &[4], "vv-v", (&[2, 4], &[2])), None, "it is still catching up");
        let replaced = change(&[(4, VOTER), (3, None)]);
        assert_eq!(step(&[1, 2, 3], &[4], "vv-v", (&[2, 4], &[2, 4])), replaced);
        assert_eq!(step(&[1, 2, 3], &[4], "vv-v", (&[2], &[2])), change(&[(3, None)]), "the new one is dead");
    }

    #[test]
    fn voters_who_could_not_agree_are_not_made() {
        assert_eq!(
            step(&[1, 2, 3], &[], "v-v", (&[2], &[2])),
            None,
            "3 is dead: 1 alone is no majority of 1 and 3"
        );
        assert_eq!(step(&[1, 2, 3], &[], "vv-", (&[2], &[2])), change(&[(3, None)]));
        assert_eq!(
            step(&[1, 2], &[], "v-", (&[], &[])),
            change(&[(2, None)]),
            "1 alone can agree with itself"
        );
    }

    #[test]
    fn who_was_heard_of_lately_and_is_connected_no_more_does_not_count() {
        let membership = Membership { voters: ids(&[1, 2, 3]), ..Membership::default() };
        let wanted = BTreeMap::from([(1, VOTER), (2, None), (3, VOTER)]);
        let wanted = wanted.into_iter().map(|(replica, role)| (ReplicaId(replica), role)).collect();
        let step = |connected: &[u64]| {
            next_step(&Situation {
                membership: &membership,
                own: ReplicaId(1),
                wanted: &wanted,
                active: &ids(&[2, 3]),
                connected: &ids(connected),
                caught_up: &ids(&[2, 3]),
                faults: Faults::NONE,
            })
        };
        assert_eq!(step(&[2]), None, "3 has just died: 1 alone is no majority of 1 and 3");
        assert_eq!(step(&[2, 3]), change(&[(2, None)]));
    }

    #[test]
    fn a_new_leader_waits_for_replacements_that_it_has_not_heard_from_yet() {
        let membership = Membership { voters: ids(&[1, 2, 3]), learners: ids(&[4]), ..Membership::default() };
        let wanted = BTreeMap::from([(1, VOTER), (2, VOTER), (3, None), (4, VOTER)]);
        let wanted = wanted.into_iter().map(|(replica, role)| (ReplicaId(replica), role)).collect();
        let step = |connected: &[u64]| {
            next_step(&Situation {
                membership: &membership,
                own: ReplicaId(1),
                wanted: &wanted,
                active: &ids(&[2]),
                connected: &ids(connected),
                caught_up: &ids(&[2]),
                faults: Faults::NONE,
            })
        };
        assert_eq!(step(&[2, 3, 4]), None, "4 is connected: it may still catch up");
        assert_eq!(step(&[2, 3]), change(&[(3, None)]), "4 is dead");
    }

    #[test]
    fn a_leader_hands_over_before_it_goes() {
        assert_eq!(step(&[1, 2, 3], &[], "-vv", (&[2, 3], &[2, 3])), Some(ReconcileStep::HandOver));
        assert_eq!(step(&[1, 2, 3], &[], "-vv", (&[2, 3], &[])), None, "nobody could go on at once");
        assert_eq!(step(&[1], &[], "-", (&[], &[])), None, "the last voter stays");
    }

    #[test]
    fn demotions_and_retirements() {
        assert_eq!(step(&[1, 2, 3], &[], "vvl", (&[2, 3], &[2, 3])), change(&[(3, LEARNER)]));
        assert_eq!(step(&[1, 2], &[3], "vv-", (&[2], &[2])), change(&[(3, None)]));
    }

    #[test]
    fn a_joint_configuration_is_left_first() {
        let membership =
            Membership { voters: ids(&[1, 2]), voters_outgoing: ids(&[1, 2, 3]), ..Membership::default() };
        let wanted = BTreeMap::from([(ReplicaId(9), VOTER)]);
        let situation = Situation {
            membership: &membership,
            own: ReplicaId(1),
            wanted: &wanted,
            active: &[],
            connected: &[],
            caught_up: &[],
            faults: Faults::NONE,
        };
        assert_eq!(next_step(&situation), Some(ReconcileStep::Change(MembershipChange::LeaveJoint)));
    }
}
