//! The online checkers: the observations that they receive during a run, and the list of checkers.
//!
//! The world passes each [`Observation`] to every checker, which ignores those that it does not
//! need. A new checker is a file with an [`OnlineChecker`], and a field of [`OnlineCheckers`].

use tidelock_core::command::{RegistryView, Write};
use tidelock_core::event::{DivisionTiming, ShardStatus};
use tidelock_core::membership::Membership;
use tidelock_core::spans::SpanEvent;
use tidelock_core::types::{LogIndex, NodeId, ShardId, Term, Ticks, Token};
use tidelock_core::version::{ClusterVersion, SupportedVersions};

use super::Violation;
use super::agreement::Agreement;
use super::availability::Availability;
use super::division::Divisions;
use super::leaders::Leaders;
use super::replacements::Replacements;
use super::replicas::Replicas;
use super::replies::Replies;
use super::spans::Spans;
use super::versions::Versions;
use crate::event_queue::Micros;
use crate::history::{History, Incarnation};
use crate::plan::Plan;

/// A property that is judged during a run.
pub trait OnlineChecker {
    /// Handles something that has happened.
    ///
    /// # Errors
    /// When it violates the property.
    fn observe(&mut self, now: Micros, observation: &Observation<'_>) -> Result<(), Violation>;
}

/// Something that has happened.
pub enum Observation<'a> {
    /// A host starts a process.
    HostStarted,
    /// The process of a node ended.
    ProcessEnded(NodeId),
    /// A client sent a request to a node.
    Asked {
        /// The node.
        node: NodeId,
        /// The request.
        token: Token,
        /// The time of the node.
        ticks: Ticks,
        /// The shard of the key that the request writes, if it writes one.
        written: Option<ShardId>,
    },
    /// A node sent a reply.
    Answered {
        /// The node.
        node: NodeId,
        /// The request.
        token: Token,
        /// Whether the request was open.
        was_open: bool,
        /// The shard of the key that the request wrote, unless it was refused.
        written: Option<ShardId>,
    },
    /// A time between two ticks has passed at a node.
    Tick(Conditions<'a>),
    /// The process of a node has looked at its disk.
    Disk {
        /// The node.
        node: NodeId,
        /// Whether it has found the disk slow.
        is_slow: bool,
    },
    /// A frame was sent to a node that runs.
    FrameSent {
        /// The sender.
        from: NodeId,
        /// The newest version of anything that the sender may send.
        recorded: ClusterVersion,
        /// The first byte of the payload.
        kind: u8,
        /// The receiver.
        to: NodeId,
        /// What the receiver supports.
        supported: SupportedVersions,
    },
    /// A frame has arrived at a process, which will handle it in its next turn.
    FrameArrived {
        /// The receiver.
        to: Incarnation,
        /// The sender.
        from: NodeId,
        /// Its content.
        payload: &'a [u8],
    },
    /// A process has heard that transactions of its own clients span slots.
    SpanningCounted(Incarnation),
    /// A process has taken a turn, and is about to log what this holds.
    Logs(LoggedTurn<'a>),
    /// What happened to traced requests in a turn of a node.
    Spans {
        /// The node.
        node: NodeId,
        /// Its time.
        ticks: Ticks,
        /// What happened, in order.
        events: &'a [SpanEvent],
    },
    /// A node has sent everything that its turn produced.
    TurnEnded {
        /// The node.
        node: NodeId,
        /// Its time.
        ticks: Ticks,
        /// The requests of clients, and their replies.
        history: &'a History,
    },
    /// Another replica of the shard has replaced the one on the node.
    ReplicaReplaced(NodeId, ShardId),
    /// A node carries this replica after a turn.
    Replica(&'a dyn ObservedReplica),
    /// A replica of a healed cluster has this applied index, and this checksum of its state.
    State(NodeId, ShardId, (LogIndex, u64)),
}

/// How the cluster is at a tick of a node.
pub struct Conditions<'a> {
    /// Whether at most the disks of a minority are faulty.
    pub is_fair: bool,
    /// Whether no fault is active, all links are up, and all hosts run.
    pub is_calm: bool,
    /// The node, and the shards that it leads, if its disk is slow.
    pub led_on_slow_disk: (NodeId, &'a [ShardId]),
}

/// What a process logs after a turn.
pub struct LoggedTurn<'a> {
    /// The process.
    pub at: Incarnation,
    /// Its time.
    pub ticks: Ticks,
    /// The commands that it logs.
    pub logged: &'a [Write],
    /// What its release supports.
    pub supported: SupportedVersions,
    /// The version that its directory has recorded.
    pub recorded: ClusterVersion,
    /// The version of the cluster that it has applied.
    pub applied: ClusterVersion,
    /// Returns the registry as it knows it.
    pub registry: &'a dyn Fn() -> Option<RegistryView>,
}

/// A replica, as the simulator sees it.
pub trait ObservedReplica {
    /// Its node.
    fn node(&self) -> NodeId;

    /// What its node says of it.
    fn status(&self) -> &ShardStatus;

    /// Term and checksum of an entry that it has committed and still holds.
    fn committed_entry(&self, index: LogIndex) -> Option<(Term, u64)>;

    /// Its applied index, and the checksum of its whole state.
    fn state_digest(&self) -> Option<(LogIndex, u64)>;

    /// The membership of the shard that it has applied.
    fn membership(&self) -> Option<&Membership>;

    /// The registry as its node knows it.
    fn registry(&self) -> Option<RegistryView>;
}

/// Every online checker.
pub struct OnlineCheckers {
    /// See [`super::agreement`].
    pub agreement: Agreement,
    /// See [`super::availability`].
    pub availability: Availability,
    /// See [`super::division`].
    pub divisions: Divisions,
    /// See [`super::leaders`].
    pub leaders: Leaders,
    /// See [`super::replacements`].
    pub replacements: Replacements,
    /// See [`super::replicas`].
    pub replicas: Replicas,
    /// See [`super::replies`].
    pub replies: Replies,
    /// See [`super::spans`].
    pub spans: Spans,
    /// See [`super::versions`].
    pub versions: Versions,
    violation: Option<Violation>,
}

impl OnlineCheckers {
    /// The checkers of a run by this plan.
    pub fn new(plan: &Plan) -> OnlineCheckers {
        let division = |timing: DivisionTiming| plan.automatic_division.then_some(timing);
        OnlineCheckers {
            agreement: Agreement::default(),
            availability: Availability::new(plan.election_timeout()),
            divisions: Divisions::new(division(plan.division)),
            leaders: Leaders::default(),
            replacements: Replacements::new(plan.election_timeout()),
            replicas: Replicas::default(),
            replies: Replies::new(plan.timing.request_ticks),
            spans: Spans::new(plan.timing.request_ticks),
            versions: Versions::new(plan.is_mixed()),
            violation: None,
        }
    }

    fn all(&mut self) -> [&mut dyn OnlineChecker; 9] {
        [
            &mut self.agreement,
            &mut self.availability,
            &mut self.divisions,
            &mut self.leaders,
            &mut self.replacements,
            &mut self.replicas,
            &mut self.replies,
            &mut self.spans,
            &mut self.versions,
        ]
    }

    /// Passes an observation to every checker. The first violation is kept for
    /// [`OnlineCheckers::verdict`].
    pub fn tell(&mut self, now: Micros, observation: &Observation<'_>) {
        if self.violation.is_none() {
            let told = self.all().into_iter().try_for_each(|checker| checker.observe(now, observation));
            self.violation = told.err();
        }
    }

    /// The first violation, if there was one.
    ///
    /// # Errors
    /// That violation.
    pub fn verdict(&mut self) -> Result<(), Violation> {
        self.violation.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_violation_is_kept() {
        let mut checkers = OnlineCheckers::new(&Plan::fresh_cluster(1, 3, 1));
        checkers.tell(Micros(0), &Observation::HostStarted);
        assert_eq!(checkers.verdict(), Ok(()));
        for token in [Token(7), Token(8)] {
            let node = NodeId(1);
            let answered = Observation::Answered { node, token, was_open: false, written: None };
            checkers.tell(Micros(0), &answered);
        }
        assert!(checkers.verdict().unwrap_err().message.contains("answered request 7"));
    }
}
