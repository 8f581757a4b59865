//! Checks that a shard has at most one leader per term, over all lives of all nodes (Election
//! Safety, Raft paper, figure 3).
//!
//! This detects votes that were not durable when they were given.

use std::collections::BTreeMap;

use tidelock_core::event::ShardStatus;
use tidelock_core::types::{NodeId, ShardId, Term};

use super::Violation;
use super::online::{Observation, OnlineChecker};
use crate::event_queue::Micros;

const CHECKER: &str = "leaders";

/// The leader of every term of every shard, as far as one was seen.
#[derive(Debug, Default)]
pub struct Leaders {
    by_term: BTreeMap<(ShardId, Term), NodeId>,
}

impl Leaders {
    /// A node says that it leads a shard in a term.
    fn leads(&mut self, node: NodeId, shard: ShardId, term: Term) -> Result<(), Violation> {
        let leader = *self.by_term.entry((shard, term)).or_insert(node);
        if leader != node {
            let text = format!("nodes {leader} and {node} both lead shard {shard} in term {term}");
            return Err(Violation::new(CHECKER, text));
        }
        Ok(())
    }

    /// The leader of a shard in the highest term in which one was seen.
    pub fn latest(&self, shard: ShardId) -> Option<NodeId> {
        let terms = self.by_term.range((shard, Term(0))..=(shard, Term(u64::MAX)));
        terms.last().map(|(_, leader)| *leader)
    }

    /// Number of leaderships seen, over all shards and terms.
    pub fn count(&self) -> usize {
        self.by_term.len()
    }
}

impl OnlineChecker for Leaders {
    fn observe(&mut self, _: Micros, observation: &Observation<'_>) -> Result<(), Violation> {
        let Observation::Replica(replica) = observation else { return Ok(()) };
        let ShardStatus { shard, term, leads, is_term_durable, .. } = *replica.status();
        if leads && is_term_durable { self.leads(replica.node(), shard, term) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leaders_of_one_term_are_noticed() {
        let mut leaders = Leaders::default();
        let mut observe = |node, shard, term| leaders.leads(NodeId(node), ShardId(shard), Term(term));
        observe(1, 1, 5).unwrap();
        observe(1, 1, 5).unwrap();
        observe(2, 1, 6).unwrap();
        observe(2, 2, 5).unwrap();
        assert_eq!(leaders.latest(ShardId(1)), Some(NodeId(2)));
        assert_eq!(leaders.latest(ShardId(3)), None);
        let mut observe = |node, shard, term| leaders.leads(NodeId(node), ShardId(shard), Term(term));
        assert!(observe(2, 1, 5).unwrap_err().message.contains("nodes 1 and 2 both lead"));
    }
}
