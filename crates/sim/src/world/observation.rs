//! The observations of a node for the online checkers, after each of its turns and for its frames.

use tidelock_core::command::RegistryView;
use tidelock_core::event::ShardStatus;
use tidelock_core::membership::Membership;
use tidelock_core::types::{LogIndex, NodeId, Term};

use super::World;
use crate::checkers::Violation;
use crate::checkers::online::{LoggedTurn, Observation, ObservedReplica};
use crate::host::{Host, Turn};

/// A replica on a host.
struct HostedReplica<'a> {
    host: &'a Host,
    status: &'a ShardStatus,
}

impl ObservedReplica for HostedReplica<'_> {
    fn node(&self) -> NodeId {
        self.host.node()
    }

    fn status(&self) -> &ShardStatus {
        self.status
    }

    fn committed_entry(&self, index: LogIndex) -> Option<(Term, u64)> {
        self.host.committed_entry(self.status.shard, index)
    }

    fn state_digest(&self) -> Option<(LogIndex, u64)> {
        self.host.state_digest(self.status.shard)
    }

    fn membership(&self) -> Option<&Membership> {
        self.host.membership(self.status.shard)
    }

    fn registry(&self) -> Option<RegistryView> {
        self.host.registry()
    }
}

impl World<'_> {
    /// Shows the replicas of a node to the checkers. Returns whether the node knows that it was
    /// removed.
    pub(super) fn observe(&mut self, node: NodeId) -> Result<bool, Violation> {
        self.observe_permissions(node)?;
        let now = self.event_queue.now();
        let host = &self.hosts[(node.0 - 1) as usize];
        let Some(status) = host.status() else { return Ok(false) };
        if status.counters.frames_invalid > 0 {
            return Err(Violation::new("codec", format!("node {node} could not decode a frame of a peer")));
        }
        for shard in &status.shards {
            let before = self.carried.insert((node, shard.shard), shard.replica);
            if before.is_some_and(|before| before != shard.replica) {
                self.tally.replaced += 1;
                self.checkers.tell(now, &Observation::ReplicaReplaced(node, shard.shard));
            }
            let writes = |index| {
                let (term, _) = host.committed_entry(shard.shard, index)?;
                Some((term, host.committed_writes(shard.shard, index)?))
            };
            self.checkers.tell(now, &Observation::Replica(&HostedReplica { host, status: shard }));
            self.ledger.observe(shard.shard, shard.committed, writes);
            if shard.leads {
                self.ledger.leader(node, shard.shard, shard.term);
            }
        }
        let (ticks, history) = (host.ticks(), &self.history);
        self.checkers.tell(now, &Observation::TurnEnded { node, ticks, history });
        Ok(status.removed)
    }

    /// Tells the checkers what a process is about to log after one turn.
    pub(super) fn tell_of_log(&mut self, node: NodeId, turn: &Turn) {
        let host = &self.hosts[(node.0 - 1) as usize];
        let logged = LoggedTurn {
            at: host.incarnation(),
            ticks: host.ticks(),
            logged: &turn.logged,
            supported: host.supported(),
            recorded: host.recorded_version(),
            applied: host.cluster_version(),
            registry: &|| host.registry(),
        };
        self.checkers.tell(self.event_queue.now(), &Observation::Logs(logged));
    }

    /// Tells the checkers what happened to traced requests in one turn.
    pub(super) fn tell_of_spans(&mut self, node: NodeId, turn: &Turn) {
        if !turn.spans.is_empty() {
            let ticks = self.hosts[(node.0 - 1) as usize].ticks();
            let spans = Observation::Spans { node, ticks, events: &turn.spans };
            self.checkers.tell(self.event_queue.now(), &spans);
        }
    }

    /// Tells the checkers that a frame is on its way to a process.
    pub(super) fn tell_of_frame(&mut self, from: NodeId, to: NodeId, kind: u8) {
        let host = |node: NodeId| &self.hosts[(node.0 - 1) as usize];
        let (recorded, supported) = (host(from).recorded_version(), host(to).supported());
        let sent = Observation::FrameSent { from, recorded, kind, to, supported };
        self.checkers.tell(self.event_queue.now(), &sent);
    }
}
