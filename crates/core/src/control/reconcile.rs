//! The next step of a shard's membership towards what the registry wants: a pure function that its leader asks.
//!
//! Owns the order of things:
//! - Who is new follows first, and votes only when it has caught up.
//! - A voter leaves only when those who are to vote, and are catching up, do; so a replacement is one joint change and
//!   never leaves the shard with fewer voters than before, unless who is to come is dead.
//! - No change is made whose voters could not agree on the next one: a majority of them must be heard of, and be
//!   connected still. The shard always keeps a voter.
//! - A leader does not take its own vote away: it hands over, and the next one does.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::membership::{Membership, MembershipChange, Role};
use crate::types::ReplicaId;

/// What the leader of a shard knows.
pub(crate) struct Situation<'a> {
    /// As of the last entry applied.
    pub(crate) membership: &'a Membership,
    /// The leader.
    pub(crate) own: ReplicaId,
    /// What every replica should be, `None` for one that should not be. A replica that is missing is left alone.
    pub(crate) wanted: &'a BTreeMap<ReplicaId, Option<Role>>,
    /// Replicas other than the leader that were heard of lately.
    pub(crate) active: &'a [ReplicaId],
    /// Replicas on nodes that the leader has a connection with: who has just died was heard of lately, and is not here.
    pub(crate) connected: &'a [ReplicaId],
    /// Those of them whose log is as good as the leader's.
    pub(crate) caught_up: &'a [ReplicaId],
}

/// What the leader should do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Propose this change.
    Change(MembershipChange),
    /// Let another voter lead.
    HandOver,
}

/// The next step; `None` if nothing is to be done, or nothing can be done now.
pub(crate) fn next_step(situation: &Situation<'_>) -> Option<Step> {
    let Situation { membership, own, wanted, .. } = situation;
    if membership.is_joint() {
        return Some(Step::Change(MembershipChange::LeaveJoint));
    }
    let newcomer =
        wanted.iter().find(|(replica, role)| role.is_some() && membership.role(**replica).is_none());
    if let Some((&newcomer, _)) = newcomer {
        return Some(Step::Change(MembershipChange::Roles(vec![(newcomer, Some(Role::Learner))])));
    }
    let roles = next_roles(situation);
    if !roles.is_empty() {
        return Some(Step::Change(MembershipChange::Roles(roles)));
    }
    let leads_wrongly = wanted.get(own).is_some_and(|role| *role != Some(Role::Voter));
    let is_heir = |replica: &ReplicaId| {
        wanted.get(replica) == Some(&Some(Role::Voter)) && situation.caught_up.contains(replica)
    };
    (leads_wrongly && membership.voters.iter().any(is_heir)).then_some(Step::HandOver)
}

/// All changes of roles that can be made now.
fn next_roles(situation: &Situation<'_>) -> Vec<(ReplicaId, Option<Role>)> {
    let Situation { membership, own, wanted, active, caught_up, .. } = situation;
    let is_to_vote = |replica: &&ReplicaId| wanted.get(*replica) == Some(&Some(Role::Voter));
    let (ready, late): (Vec<ReplicaId>, Vec<ReplicaId>) =
        membership.learners.iter().filter(is_to_vote).partition(|&replica| caught_up.contains(replica));
    let promotions: Vec<_> = ready.into_iter().map(|replica| (replica, Some(Role::Voter))).collect();
    let changed = |replica: &ReplicaId, is: Role| {
        let role = *wanted.get(replica)?;
        (role != Some(is) && role != Some(Role::Voter)).then_some((*replica, role))
    };
    let departures: Vec<_> = if late.iter().any(|replica| active.contains(replica)) {
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

/// Whether those who vote after `changes` can agree on anything, as far as the leader knows.
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

    /// Replica 1 leads. `wanted` is a letter a replica, from 1: `v`oter, `l`earner, `-` none.
    fn step(
        voters: &[u64],
        learners: &[u64],
        wanted: &str,
        (active, caught_up): (&[u64], &[u64]),
    ) -> Option<Step> {
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
        })
    }

    fn change(roles: &[(u64, Option<Role>)]) -> Option<Step> {
        let roles = roles.iter().map(|&(replica, role)| (ReplicaId(replica), role)).collect();
        Some(Step::Change(MembershipChange::Roles(roles)))
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
            })
        };
        assert_eq!(step(&[2]), None, "3 has just died: 1 alone is no majority of 1 and 3");
        assert_eq!(step(&[2, 3]), change(&[(2, None)]));
    }

    #[test]
    fn a_leader_hands_over_before_it_goes() {
        assert_eq!(step(&[1, 2, 3], &[], "-vv", (&[2, 3], &[2, 3])), Some(Step::HandOver));
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
        };
        assert_eq!(next_step(&situation), Some(Step::Change(MembershipChange::LeaveJoint)));
    }
}
