//! Writes that peers forward to this node, and the outcomes of forwarded writes.

use super::{Open, Router, Work, WriteProgress, audit};
use crate::command::{Reply, Write};
use crate::deliberate::Fault;
use crate::peer::{self, Origin, Outcome, RequestId, RequestMetadata};
use crate::raft::{Groups, ProposeError};
use crate::types::{NodeId, ShardId};

impl Router {
    /// Handles the outcome that a leader on this node reports for a command of some node.
    pub(crate) fn outcome(&mut self, origin: Origin, outcome: Outcome) {
        self.trace_outcome(&origin, &outcome);
        if origin.node == self.node {
            self.own_outcome(origin.request, self.node, outcome);
        } else if let Some(peer) = self.peers.iter_mut().find(|peer| peer.is(&origin, self.faults)) {
            peer::put_outcome(peer.frame(), origin.request, &outcome);
        }
    }

    /// Handles the outcome of our `request` from the node `from`.
    pub(crate) fn own_outcome(&mut self, request: RequestId, from: NodeId, outcome: Outcome) {
        let node = self.node;
        let Some(Open { work: Work::Write { place, .. }, .. }) = self.get(request) else { return };
        let expected = match *place {
            WriteProgress::Held => false,
            WriteProgress::Local => from == node,
            WriteProgress::Forwarded { to, .. } => from == to,
        };
        if !expected {
            return;
        }
        let left = core::mem::replace(place, WriteProgress::Held);
        self.left(left);
        match outcome {
            Outcome::Done(reply) => self.finish(request, Reply::Write(reply)),
            Outcome::Refused(refusal) => self.finish(request, Reply::Refused(refusal.into())),
            // Not dispatched at once: two nodes that each believe the other leads would bounce it
            // endlessly.
            Outcome::NotDone => {
                self.routes.denied(from);
                self.hold(request);
            }
            Outcome::NotHere => self.hold(request),
        }
    }

    /// Handles a command that the peer `from` asks this node to propose.
    pub(crate) fn forwarded(
        &mut self,
        (from, request): (NodeId, RequestId),
        RequestMetadata { caller, trace }: RequestMetadata,
        (shard, write): (ShardId, &Write),
        groups: &mut Groups,
    ) {
        let Some(peer) = self.peers.iter().find(|peer| peer.node == from) else { return };
        let origin = Origin { node: from, link: peer.link, request };
        if let Some(context) = trace {
            self.trace_forwarded(origin, shard, context);
        }
        if self.is_too_new(write) {
            // The peer has applied a later registry, which this node will apply soon.
            return self.outcome(origin, Outcome::NotDone);
        }
        match self.check_forwarded(caller.as_ref(), write) {
            Some(Ok(())) => {}
            Some(Err(refusal)) => return self.outcome(origin, Outcome::Refused(refusal)),
            // The peer will apply the registry soon, and then send the caller.
            None => return self.outcome(origin, Outcome::NotDone),
        }
        let is_recorded = audit::is_recorded(self.version, write) && !self.faults.has(Fault::AuditRecordLost);
        let recorded = match caller {
            Some(caller) if is_recorded => Some(audit::recorded(&caller, write)),
            // The peer has not applied the cluster version yet that requires the caller. It
            // retries.
            None if is_recorded => return self.outcome(origin, Outcome::NotDone),
            _ => None,
        };
        let (proposed, clock) = (recorded.as_ref().unwrap_or(write), self.clock);
        let outcome = match groups.with(shard, |group| group.propose(proposed, origin, clock)) {
            Some(Ok(())) => return,
            Some(Err(ProposeError::Refused(refusal))) => Outcome::Refused(refusal),
            Some(Err(ProposeError::NotHere)) => Outcome::NotHere,
            Some(Err(ProposeError::NotLeader)) | None => Outcome::NotDone,
        };
        self.outcome(origin, outcome);
    }
}
