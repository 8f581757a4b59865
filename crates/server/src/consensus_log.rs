//! Log lines about the consensus of the shards: elections, leaders, membership, snapshots between
//! nodes, slot moves, refused commands.
//!
//! Owns the level of each event and how many lines a second may take. The core owns the sentences
//! (`tidelock_core::trace`). What lasts, such as a shard without a leader, is logged by
//! `status_log`.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tidelock_core::trace::{SnapshotStage, StepDownReason, TraceEvent, TraceKind};
use tidelock_core::types::NodeId;
use tracing::Level;

/// Maximum number of lines above the level debug in an [`INTERVAL`], for leaders and for the rest
/// each. A failed node may take hundreds of leaderships with it. Further events are logged at the
/// level debug.
const LINES_MAX: usize = 16;

const INTERVAL: Duration = Duration::from_secs(1);

/// Logs trace events of one node, limited in rate.
#[derive(Debug)]
pub struct ConsensusLog {
    node: NodeId,
    budgets: RefCell<Budgets>,
}

#[derive(Debug, Default)]
struct Budgets {
    leaders: LineBudget,
    others: LineBudget,
}

/// The lines of the present interval.
#[derive(Debug, Default)]
struct LineBudget {
    begun: Option<Instant>,
    lines: usize,
}

/// How an event is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    level: Level,
    /// Whether it is the first one in the interval that gets a lower level than it should have.
    is_first_lowered: bool,
}

macro_rules! write_line {
    ($level:ident, $node:expr, $event:expr) => {{
        let TraceEvent { shard, term, index, kind } = $event;
        let (migration, to) = kind.slot_move().unzip();
        tracing::$level!(
            shard = shard.0,
            node = $node.0,
            term = term.0,
            index = index.0,
            peer = kind.peer().map(|peer| peer.0),
            replica = kind.replica().map(|replica| replica.0),
            migration = migration.map(|migration| migration.0),
            to = to.map(|to| to.0),
            "{kind}"
        );
    }};
}

impl ConsensusLog {
    /// The log of a node.
    pub fn new(node: NodeId) -> ConsensusLog {
        ConsensusLog { node, budgets: RefCell::default() }
    }

    /// Logs events.
    pub fn log(&self, events: impl Iterator<Item = TraceEvent>, now: Instant) {
        for event in events {
            let line = self.line(&event.kind, now);
            if line.is_first_lowered {
                tracing::info!(
                    node = self.node.0,
                    "many shards change at once: further changes in this second are logged at level debug"
                );
            }
            match line.level {
                Level::WARN => write_line!(warn, self.node, event),
                Level::INFO => write_line!(info, self.node, event),
                _ => write_line!(debug, self.node, event),
            }
        }
    }

    fn line(&self, kind: &TraceKind, now: Instant) -> Line {
        let level = level(kind);
        if level == Level::DEBUG {
            return Line { level, is_first_lowered: false };
        }
        let mut budgets = self.budgets.borrow_mut();
        let budget = if is_about_leader(kind) { &mut budgets.leaders } else { &mut budgets.others };
        if budget.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= INTERVAL) {
            *budget = LineBudget { begun: Some(now), lines: 0 };
        }
        budget.lines += 1;
        let level = if budget.lines > LINES_MAX { Level::DEBUG } else { level };
        Line { level, is_first_lowered: budget.lines == LINES_MAX + 1 }
    }
}

fn is_about_leader(kind: &TraceKind) -> bool {
    matches!(kind, TraceKind::Elected | TraceKind::SteppedDown(_) | TraceKind::Follows { .. })
}

/// Warn: a person may have to act. Info: the state of the cluster has changed. Debug: steps towards
/// that, and what clients can cause as often as they like.
fn level(kind: &TraceKind) -> Level {
    match kind {
        TraceKind::SteppedDown(StepDownReason::LostMajority) => Level::WARN,
        TraceKind::Elected
        | TraceKind::SteppedDown(_)
        | TraceKind::Follows { .. }
        | TraceKind::EnteredJoint
        | TraceKind::LeftJoint
        | TraceKind::RoleChanged { .. }
        | TraceKind::Snapshot { stage: SnapshotStage::Installed, .. }
        | TraceKind::SlotMove { .. } => Level::INFO,
        TraceKind::Campaigns(_)
        | TraceKind::VoteRefused { .. }
        | TraceKind::Snapshot { .. }
        | TraceKind::ProposalRefused(_) => Level::DEBUG,
    }
}

#[cfg(test)]
mod tests {
    use tidelock_core::trace::{Ballot, ProposalRefusal};

    use super::*;

    const ELECTED: TraceKind = TraceKind::Elected;
    const JOINT: TraceKind = TraceKind::EnteredJoint;

    fn line(level: Level, is_first_lowered: bool) -> Line {
        Line { level, is_first_lowered }
    }

    #[test]
    fn changes_are_shown_and_steps_towards_them_are_not() {
        let log = ConsensusLog::new(NodeId(1));
        let now = Instant::now();
        let level = |kind| log.line(&kind, now).level;
        assert_eq!(level(ELECTED), Level::INFO);
        assert_eq!(level(TraceKind::SteppedDown(StepDownReason::LostMajority)), Level::WARN);
        assert_eq!(level(TraceKind::SteppedDown(StepDownReason::Removed)), Level::INFO);
        assert_eq!(level(TraceKind::Campaigns(Ballot::PreVote)), Level::DEBUG);
        let (peer, stage) = (None, SnapshotStage::Installed);
        assert_eq!(level(TraceKind::Snapshot { peer, stage }), Level::INFO);
        let stage = SnapshotStage::Receiving;
        assert_eq!(level(TraceKind::Snapshot { peer, stage }), Level::DEBUG);
    }

    #[test]
    fn a_second_has_a_number_of_lines_for_leaders_and_for_the_rest() {
        let log = ConsensusLog::new(NodeId(1));
        let begun = Instant::now();
        for number in 0..LINES_MAX {
            assert_eq!(log.line(&ELECTED, begun), line(Level::INFO, false), "{number}");
        }
        assert_eq!(log.line(&ELECTED, begun), line(Level::DEBUG, true));
        assert_eq!(log.line(&ELECTED, begun + INTERVAL / 2), line(Level::DEBUG, false));
        assert_eq!(log.line(&JOINT, begun), line(Level::INFO, false), "it has lines of its own");
        assert_eq!(log.line(&ELECTED, begun + INTERVAL), line(Level::INFO, false));
    }

    #[test]
    fn what_clients_cause_takes_no_lines_from_the_rest() {
        let log = ConsensusLog::new(NodeId(1));
        let now = Instant::now();
        for _ in 0..2 * LINES_MAX {
            let refused = TraceKind::ProposalRefused(ProposalRefusal::QueueFull);
            assert_eq!(log.line(&refused, now), line(Level::DEBUG, false));
        }
        assert_eq!(log.line(&JOINT, now), line(Level::INFO, false));
    }
}
