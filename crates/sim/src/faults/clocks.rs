//! Faults of clocks.

use tidelock_core::types::NodeId;

use super::{Cluster, FaultKind, Severity, Target};

/// A clock runs fast or slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkewClock {
    /// The host whose clock runs fast or slow.
    pub target: Target,
    /// Length of a tick in percent of [`Plan::tick`](crate::plan::Plan::tick); over 100 is slow.
    pub percent: u64,
}

impl FaultKind for SkewClock {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> SkewClock {
        SkewClock { target: Target::draw(severity, random), percent: random.u64(40..250) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.set_tick_percent(node, self.percent);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.set_tick_percent(node, 100);
    }
}

/// A wall clock jumps forward or back, and continues from there. It is correct again when the fault
/// is relieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetClock {
    /// The host whose wall clock jumps.
    pub target: Target,
    /// The error of the clock, in milliseconds; negative if it is behind.
    pub ahead_ms: i64,
}

impl FaultKind for SetClock {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> SetClock {
        SetClock { target: Target::draw(severity, random), ahead_ms: random.i64(-20_000..20_000) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.set_clock_ahead(node, self.ahead_ms);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.set_clock_ahead(node, 0);
    }
}
