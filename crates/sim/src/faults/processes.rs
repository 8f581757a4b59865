//! Faults of processes: they die, are told to retire, or do not run.

use tidelock_core::types::NodeId;

use super::{Cluster, CrashKind, FaultKind, Severity, Target, choose};

/// Processes die between two events. A crash of all of them by power loss is a blackout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The hosts whose processes die.
    pub target: Target,
    /// What happens to their disks.
    pub loss: CrashKind,
}

impl FaultKind for Crash {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> Crash {
        let target = if random.u8(0..5) == 0 { Target::All } else { Target::draw(severity, random) };
        let loss = if target == Target::All || random.bool() { CrashKind::Power } else { CrashKind::Process };
        Crash { target, loss }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.crash(node, self.loss);
    }
}

/// A process dies inside a disk operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashInside {
    /// The host whose process dies.
    pub target: Target,
    /// What happens to its disk.
    pub loss: CrashKind,
    /// In which operation from now on.
    pub operation: u64,
}

impl FaultKind for CrashInside {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> CrashInside {
        let loss = *choose(random, &[CrashKind::Process, CrashKind::Power, CrashKind::Power]);
        CrashInside { target: Target::draw(severity, random), loss, operation: random.u64(1..20) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.crash_inside(node, self.loss, self.operation);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.disk(node).survive();
    }
}

/// A process is told to retire; a new one replaces it when the fault is relieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retire {
    /// The host whose process is told to retire.
    pub target: Target,
}

impl FaultKind for Retire {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> Retire {
        Retire { target: Target::draw(severity, random) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.retire(node);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.crash(node, CrashKind::Process);
    }
}

/// A process does not run (SIGSTOP), while its connections stand and its inbox fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The host whose process stops.
    pub target: Target,
}

impl FaultKind for Pause {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> Pause {
        Pause { target: Target::draw(severity, random) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.pause(node);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.resume(node);
    }
}
