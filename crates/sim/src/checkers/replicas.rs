//! Replicas at the same applied index hold the same state, checkpoints at the same index have the
//! same checksum, and a replica's indexes are consistent.
//!
//! A checksum of a whole state is expensive, so most indexes are skipped. The index decides which
//! ones, because replicas sampled at random would hardly ever be sampled at the same index.

use std::collections::BTreeMap;

use tidelock_core::command::Checkpoint;
use tidelock_core::event::ShardStatus;
use tidelock_core::types::{LogIndex, NodeId, ShardId};

use super::Violation;
use super::online::{Observation, ObservedReplica, OnlineChecker};
use crate::event_queue::Micros;

const CHECKER: &str = "replicas";

/// One in so many applied indexes is sampled.
const SAMPLE_EVERY: u64 = 8;

/// States seen so far.
#[derive(Debug, Default)]
pub struct Replicas {
    digests: BTreeMap<(ShardId, LogIndex), (u64, NodeId)>,
    applied: BTreeMap<(NodeId, ShardId), LogIndex>,
    checkpoints: BTreeMap<(ShardId, LogIndex), (u32, NodeId)>,
    /// The last checkpoint seen of each replica.
    compared: BTreeMap<(NodeId, ShardId), Checkpoint>,
    /// How many checkpoints were compared with that of another replica.
    checkpoints_compared: u64,
}

impl Replicas {
    /// Checks a replica's indexes. Returns whether to sample its state now.
    fn positions(&mut self, node: NodeId, status: &ShardStatus) -> Result<bool, Violation> {
        let ShardStatus { shard, applied, committed, last, .. } = *status;
        if applied > committed || committed > last {
            let text =
                format!("node {node}, shard {shard}: applied {applied}, committed {committed}, last {last}");
            return Err(Violation::new(CHECKER, text));
        }
        let before = self.applied.insert((node, shard), applied).unwrap_or_default();
        if applied < before {
            let text = format!("node {node} had applied {before} of shard {shard}, and now {applied}");
            return Err(Violation::new(CHECKER, text));
        }
        let sampled = applied.0.is_multiple_of(SAMPLE_EVERY) || self.digests.contains_key(&(shard, applied));
        Ok(applied > before && sampled)
    }

    /// Compares the checksum of a replica's state with that of the others at the same index.
    fn compare(
        &mut self,
        node: NodeId,
        shard: ShardId,
        (applied, digest): (LogIndex, u64),
    ) -> Result<(), Violation> {
        let (expected, other) = *self.digests.entry((shard, applied)).or_insert((digest, node));
        if expected != digest {
            let text = format!("nodes {other} and {node} differ in shard {shard} at index {applied}");
            return Err(Violation::new(CHECKER, text));
        }
        Ok(())
    }

    /// Compares a replica's checkpoint with those of the others at the same index. Returns whether
    /// it is new and another replica's checkpoint at that index was already known.
    fn compare_checkpoint(
        &mut self,
        node: NodeId,
        shard: ShardId,
        checkpoint: Checkpoint,
    ) -> Result<bool, Violation> {
        if self.compared.insert((node, shard), checkpoint) == Some(checkpoint) {
            return Ok(false);
        }
        let Checkpoint { index, checksum } = checkpoint;
        let seen = self.checkpoints.insert((shard, index), (checksum, node));
        match seen {
            Some((other_checksum, other)) if other_checksum != checksum => {
                let text = format!("nodes {other} and {node} differ in shard {shard} at checkpoint {index}");
                Err(Violation::new("checkpoints", text))
            }
            seen => Ok(seen.is_some()),
        }
    }

    /// How many checkpoints were compared with that of another replica.
    pub fn checkpoints_compared(&self) -> u64 {
        self.checkpoints_compared
    }

    fn replica(&mut self, replica: &dyn ObservedReplica) -> Result<(), Violation> {
        let (node, status) = (replica.node(), replica.status());
        if let Some(checkpoint) = status.checkpoint {
            let is_new = self.compare_checkpoint(node, status.shard, checkpoint)?;
            self.checkpoints_compared += u64::from(is_new);
        }
        match self.positions(node, status)?.then(|| replica.state_digest()).flatten() {
            Some(state) => self.compare(node, status.shard, state),
            None => Ok(()),
        }
    }

    /// A new, empty replica of the shard has replaced the one on the node.
    fn forget_replica(&mut self, node: NodeId, shard: ShardId) {
        self.compared.retain(|compared, _| *compared != (node, shard));
        self.applied.retain(|applied, _| *applied != (node, shard));
    }

    /// A process died: its next life applies from the start.
    fn forget(&mut self, node: NodeId) {
        self.applied.retain(|&(applied, _), _| applied != node);
        self.compared.retain(|&(compared, _), _| compared != node);
    }
}

impl OnlineChecker for Replicas {
    fn observe(&mut self, _: Micros, observation: &Observation<'_>) -> Result<(), Violation> {
        match observation {
            Observation::Replica(replica) => return self.replica(*replica),
            Observation::State(node, shard, state) => return self.compare(*node, *shard, *state),
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
    use tidelock_core::types::{ReplicaId, Term};

    fn status(applied: u64, committed: u64) -> ShardStatus {
        ShardStatus {
            shard: ShardId(1),
            replica: ReplicaId(1),
            leader: None,
            leads: false,
            is_term_durable: true,
            term: Term(1),
            committed: LogIndex(committed),
            applied: LogIndex(applied),
            last: LogIndex(100),
            log_begin: LogIndex(0),
            keys: 0,
            log_bytes: 0,
            votes: true,
            snapshot: None,
            snapshot_bytes: 0,
            makes_snapshot: false,
            last_move: tidelock_core::types::MigrationId(0),
            is_moving: false,
            slots: None,
            checkpoint: None,
            diverged: false,
        }
    }

    #[test]
    fn states_that_differ_are_noticed() {
        let mut replicas = Replicas::default();
        let mut compare =
            |node, index, digest| replicas.compare(NodeId(node), ShardId(1), (LogIndex(index), digest));
        compare(1, 8, 77).unwrap();
        compare(2, 8, 77).unwrap();
        compare(3, 9, 78).unwrap();
        assert!(compare(3, 8, 78).unwrap_err().message.contains("nodes 1 and 3 differ"));
    }

    #[test]
    fn checkpoints_that_differ_are_noticed() {
        let mut replicas = Replicas::default();
        let mut compare = |node, index, checksum| {
            let checkpoint = Checkpoint { index: LogIndex(index), checksum };
            replicas.compare_checkpoint(NodeId(node), ShardId(1), checkpoint)
        };
        assert_eq!(compare(1, 8, 77), Ok(false));
        assert_eq!(compare(1, 8, 77), Ok(false), "nothing new");
        assert_eq!(compare(2, 8, 77), Ok(true));
        assert_eq!(compare(2, 9, 78), Ok(false));
        assert!(compare(3, 8, 78).unwrap_err().message.contains("nodes 2 and 3 differ"));
    }

    #[test]
    fn positions_that_make_no_sense_are_noticed() {
        let mut replicas = Replicas::default();
        assert!(replicas.positions(NodeId(1), &status(5, 4)).is_err());
        assert!(replicas.positions(NodeId(1), &status(5, 101)).is_err());
        assert_eq!(replicas.positions(NodeId(1), &status(8, 9)), Ok(true));
        assert_eq!(replicas.positions(NodeId(1), &status(8, 9)), Ok(false));
        assert!(replicas.positions(NodeId(1), &status(7, 9)).is_err());
        replicas.forget(NodeId(1));
        assert_eq!(replicas.positions(NodeId(1), &status(7, 9)), Ok(false));
    }
}
