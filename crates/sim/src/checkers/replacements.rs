//! Checks that no voter leaves its shard while a live replica that should vote has yet to catch up:
//! a shard keeps its voters while they are replaced.
//!
//! Judges only changes that the leader decided on in calm: all links up, all hosts running. In any
//! other time the leader may rightly have taken the replica that catches up for dead.

use std::collections::BTreeMap;

use tidelock_core::event::ShardStatus;
use tidelock_core::membership::{Membership, Role};
use tidelock_core::topology::Replica;
use tidelock_core::types::{NodeId, ReplicaId, ShardId, Term};

use super::Violation;
use super::online::{Conditions, Observation, OnlineChecker};
use crate::event_queue::Micros;

const CHECKER: &str = "replacements";

/// For how many election timeouts it must have been calm. A change that was decided on before is
/// committed by then.
const CALM_ELECTION_TIMEOUTS: u64 = 10;

/// The memberships of all shards, as their leaders apply them.
#[derive(Debug)]
pub struct Replacements {
    calm_min: Micros,
    calm_since: Option<Micros>,
    /// The last membership seen of each shard, and the leader, in its term, whose it was.
    seen: BTreeMap<ShardId, (NodeId, Term, Membership)>,
    /// Number of changes that took a vote in calm.
    judged: u64,
}

impl Replacements {
    /// Creates the checker for this election timeout.
    pub fn new(election_timeout: Micros) -> Replacements {
        Replacements {
            calm_min: election_timeout * CALM_ELECTION_TIMEOUTS,
            calm_since: None,
            seen: BTreeMap::new(),
            judged: 0,
        }
    }

    /// Records whether all links are up and all hosts run.
    fn conditions(&mut self, now: Micros, is_calm: bool) {
        self.calm_since = if is_calm { self.calm_since.or(Some(now)) } else { None };
    }

    /// Checks the membership that a leader has applied. `registry` returns the replicas in the
    /// registry, as that leader knows them.
    fn changed(
        &mut self,
        now: Micros,
        (leader, shard, term): (NodeId, ShardId, Term),
        membership: &Membership,
        registry: impl FnOnce() -> Vec<(ReplicaId, Replica)>,
    ) -> Result<(), Violation> {
        match self.seen.get(&shard) {
            Some((node, at, seen))
                if (*node, *at) == (leader, term) && seen.changed == membership.changed =>
            {
                return Ok(());
            }
            _ => {}
        }
        let before = self.seen.insert(shard, (leader, term, membership.clone()));
        let is_calm = self.calm_since.is_some_and(|since| now.0 >= since.0 + self.calm_min.0);
        let Some((node, at, before)) = before else { return Ok(()) };
        let gone: Vec<ReplicaId> =
            before.voters.into_iter().filter(|replica| !membership.voters.contains(replica)).collect();
        if !is_calm || (node, at) != (leader, term) || gone.is_empty() {
            return Ok(());
        }
        self.judged += 1;
        // A role that the registry wants only since later was unknown to the leader that decided.
        let is_awaited = |(_, replica): &(ReplicaId, Replica)| {
            replica.wanted == Some(Role::Voter) && replica.updated <= membership.wanted_at
        };
        let awaited =
            registry().into_iter().filter(is_awaited).find(|(id, _)| membership.learners.contains(id));
        match awaited {
            Some((id, Replica { node, .. })) => {
                let text = format!(
                    "shard {shard} takes the votes of {gone:?}, and replica {id} on node {node}, which should \
                     vote, has yet to catch up: {membership:?}"
                );
                Err(Violation::new(CHECKER, text))
            }
            None => Ok(()),
        }
    }

    /// Number of changes that took a vote in calm.
    pub fn judged(&self) -> u64 {
        self.judged
    }
}

impl OnlineChecker for Replacements {
    fn observe(&mut self, now: Micros, observation: &Observation<'_>) -> Result<(), Violation> {
        match observation {
            Observation::Tick(Conditions { is_calm, .. }) => self.conditions(now, *is_calm),
            // Its links come up only after a moment.
            Observation::HostStarted => self.conditions(now, false),
            Observation::Replica(replica) if replica.status().leads => {
                let ShardStatus { shard, term, .. } = *replica.status();
                let Some(membership) = replica.membership() else { return Ok(()) };
                let registry = || replica.registry().map(|registry| registry.replicas).unwrap_or_default();
                return self.changed(now, (replica.node(), shard, term), membership, registry);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidelock_core::types::LogIndex;

    use super::*;

    const CALM: Micros = Micros(10_000);

    fn membership(changed: u64, voters: &[u64], learners: &[u64]) -> Membership {
        let ids = |numbers: &[u64]| numbers.iter().copied().map(ReplicaId).collect();
        let (changed, wanted_at) = (LogIndex(changed), LogIndex(7));
        Membership {
            voters: ids(voters),
            learners: ids(learners),
            changed,
            wanted_at,
            ..Membership::default()
        }
    }

    /// Judges a change of a membership of three voters and a learner. `updated` is the index from
    /// which on the registry wants the learner to vote.
    fn result(now: Micros, updated: u64, after: &Membership) -> Result<(), Violation> {
        let mut replacements = Replacements::new(Micros(1_000));
        replacements.conditions(Micros(0), true);
        let replica = Replica {
            shard: ShardId(1),
            node: NodeId(4),
            wanted: Some(Role::Voter),
            created: LogIndex(5),
            updated: LogIndex(updated),
        };
        let leader = (NodeId(1), ShardId(1), Term(3));
        let mut observe = |membership: &Membership| {
            replacements.changed(now, leader, membership, || vec![(ReplicaId(4), replica.clone())])
        };
        observe(&membership(1, &[1, 2, 3], &[4])).unwrap();
        observe(after)
    }

    #[test]
    fn a_voter_that_leaves_before_its_replacement_votes_is_noticed() {
        let early = membership(2, &[1, 2], &[4]);
        let text = result(CALM, 7, &early).unwrap_err().message;
        assert!(text.contains("takes the votes of [ReplicaId(3)], and replica 4 on node 4"), "{text}");
        assert_eq!(result(CALM, 7, &membership(2, &[1, 2, 4], &[])), Ok(()), "it has caught up");
        assert_eq!(result(CALM, 8, &early), Ok(()), "the leader did not know that it should vote");
        assert_eq!(result(Micros(9_999), 7, &early), Ok(()), "it may have been cut off");
    }
}
