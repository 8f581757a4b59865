//! The online checkers, which look at a node after each of its turns.

use tidelock_core::types::NodeId;

use super::World;
use crate::checkers::Violation;

impl World<'_> {
    /// Runs the online checkers on a node. Returns whether the node knows that it was removed.
    pub(super) fn observe(&mut self, node: NodeId) -> Result<bool, Violation> {
        self.observe_permissions(node)?;
        let host = &self.hosts[(node.0 - 1) as usize];
        let Some(status) = host.status() else { return Ok(false) };
        if status.counters.frames_invalid > 0 {
            return Err(Violation::new("codec", format!("node {node} could not decode a frame of a peer")));
        }
        for shard in &status.shards {
            let before = self.carried.insert((node, shard.shard), shard.replica);
            if before.is_some_and(|before| before != shard.replica) {
                self.tally.replaced += 1;
                self.agreement.forget_replica(node, shard.shard);
                self.replicas.forget_replica(node, shard.shard);
            }
            let entry = |index| host.committed_entry(shard.shard, index);
            self.agreement.observe(node, shard.shard, (shard.log_begin, shard.committed), entry)?;
            let writes = |index| {
                let (term, _) = host.committed_entry(shard.shard, index)?;
                Some((term, host.committed_writes(shard.shard, index)?))
            };
            self.ledger.observe(shard.shard, shard.committed, writes);
            if shard.leads {
                self.ledger.leader(node, shard.shard, shard.term);
                if shard.is_term_durable {
                    self.leaders.observe(node, shard.shard, shard.term)?;
                }
            }
            if let Some(checkpoint) = shard.checkpoint {
                self.tally.checkpoints +=
                    u64::from(self.replicas.compare_checkpoint(node, shard.shard, checkpoint)?);
            }
            if self.replicas.observe(node, shard)?
                && let Some(state) = host.state_digest(shard.shard)
            {
                self.replicas.compare(node, shard.shard, state)?;
            }
        }
        self.replies.ticked(node, host.ticks(), &self.history)?;
        Ok(status.removed)
    }
}
