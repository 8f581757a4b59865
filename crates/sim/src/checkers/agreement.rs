//! Checks that logs agree: an entry that any replica has committed is the same on all replicas and
//! never changes.
//!
//! The State Machine Safety and Leader Completeness properties of the Raft paper (figure 3), as far
//! as they are visible from outside. After a restart, a replica's log is verified again from its
//! first entry.

use std::collections::BTreeMap;

use tidelock_core::event::ShardStatus;
use tidelock_core::types::{LogIndex, NodeId, ShardId, Term};

use super::Violation;
use super::online::{Observation, OnlineChecker};
use crate::event_queue::Micros;

const CHECKER: &str = "agreement";

/// The committed entries of every shard, as the first replica reported them.
#[derive(Debug, Default)]
pub struct Agreement {
    /// Term and checksum of each committed entry of a shard, from index 1.
    committed: BTreeMap<ShardId, Vec<(Term, u64)>>,
    /// The last compared index of each replica in its present life.
    compared: BTreeMap<(NodeId, ShardId), LogIndex>,
}

impl Agreement {
    /// Compares the entries that a replica has newly committed. `entry` is called for indexes after
    /// `log_begin` and up to `committed`: earlier entries are only in a snapshot, whose content is
    /// compared as state.
    fn compare(
        &mut self,
        node: NodeId,
        shard: ShardId,
        (log_begin, committed): (LogIndex, LogIndex),
        entry: impl Fn(LogIndex) -> Option<(Term, u64)>,
    ) -> Result<(), Violation> {
        let compared = self.compared.entry((node, shard)).or_default();
        if committed < *compared {
            let text = format!("node {node} had committed {compared} of shard {shard}, and now {committed}");
            return Err(Violation::new(CHECKER, text));
        }
        let agreed = self.committed.entry(shard).or_default();
        if log_begin.0 as usize > agreed.len() {
            let text = format!(
                "node {node} has a snapshot of shard {shard} up to {log_begin}, which was never committed"
            );
            return Err(Violation::new(CHECKER, text));
        }
        *compared = log_begin.max(*compared);
        while *compared < committed {
            let index = compared.next();
            let Some(found) = entry(index) else {
                let text = format!("node {node} calls entry {index} of shard {shard} committed and has none");
                return Err(Violation::new(CHECKER, text));
            };
            match agreed.get(compared.0 as usize) {
                None => agreed.push(found),
                Some(&expected) if expected == found => {}
                Some(expected) => {
                    let text = format!(
                        "node {node} calls {found:?} committed at index {index} of shard {shard}, where \
                         {expected:?} was committed before"
                    );
                    return Err(Violation::new(CHECKER, text));
                }
            }
            *compared = index;
        }
        Ok(())
    }

    /// A new, empty replica of the shard has replaced the one on the node.
    fn forget_replica(&mut self, node: NodeId, shard: ShardId) {
        self.compared.retain(|compared, _| *compared != (node, shard));
    }

    /// A process died: its next life is compared from the start.
    fn forget(&mut self, node: NodeId) {
        self.compared.retain(|&(compared, _), _| compared != node);
    }
}

impl OnlineChecker for Agreement {
    fn observe(&mut self, _: Micros, observation: &Observation<'_>) -> Result<(), Violation> {
        match observation {
            Observation::Replica(replica) => {
                let ShardStatus { shard, log_begin, committed, .. } = *replica.status();
                let entry = |index| replica.committed_entry(index);
                return self.compare(replica.node(), shard, (log_begin, committed), entry);
            }
            Observation::ReplicaReplaced(node, shard) => self.forget_replica(*node, *shard),
            Observation::ProcessEnded(node) => self.forget(*node),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(1);

    fn observe(agreement: &mut Agreement, node: u64, log: &[(u64, u64)]) -> Result<(), Violation> {
        let entry = |index: LogIndex| log.get(index.0 as usize - 1).map(|&(term, data)| (Term(term), data));
        agreement.compare(NodeId(node), SHARD, (LogIndex(0), LogIndex(log.len() as u64)), entry)
    }

    #[test]
    fn replicas_that_differ_are_noticed() {
        for other in [[(1, 10), (1, 99)], [(1, 10), (2, 20)]] {
            let mut agreement = Agreement::default();
            observe(&mut agreement, 1, &[(1, 10), (1, 20)]).unwrap();
            observe(&mut agreement, 2, &[(1, 10)]).unwrap();
            assert!(observe(&mut agreement, 2, &other).unwrap_err().message.contains("committed before"));
        }
    }

    #[test]
    fn an_entry_that_changes_over_a_restart_is_noticed() {
        let mut agreement = Agreement::default();
        observe(&mut agreement, 1, &[(1, 10), (1, 20)]).unwrap();
        agreement.forget(NodeId(1));
        observe(&mut agreement, 1, &[(1, 10)]).unwrap();
        assert!(observe(&mut agreement, 1, &[(1, 10), (3, 20)]).is_err());
    }

    #[test]
    fn a_commit_that_goes_back_in_one_life_is_noticed() {
        let mut agreement = Agreement::default();
        observe(&mut agreement, 1, &[(1, 10), (1, 20)]).unwrap();
        assert!(observe(&mut agreement, 1, &[(1, 10)]).unwrap_err().message.contains("and now 1"));
    }

    #[test]
    fn a_committed_entry_that_is_missing_is_noticed() {
        let mut agreement = Agreement::default();
        let verdict = agreement.compare(NodeId(1), SHARD, (LogIndex(0), LogIndex(1)), |_| None);
        assert!(verdict.unwrap_err().message.contains("has none"));
    }

    #[test]
    fn a_snapshot_of_what_nobody_committed_is_noticed() {
        let mut agreement = Agreement::default();
        observe(&mut agreement, 1, &[(1, 7), (1, 8)]).unwrap();
        let behind_snapshot = |agreement: &mut Agreement, begin| {
            agreement.compare(NodeId(2), SHARD, (LogIndex(begin), LogIndex(begin)), |_| None)
        };
        assert_eq!(behind_snapshot(&mut agreement, 2), Ok(()));
        assert!(behind_snapshot(&mut agreement, 3).is_err());
    }
}
