//! Hosts that are restarted with another release.
//!
//! Drawn by [`draw_upgrades`] only, for runs that begin with the first version of clusters: other
//! runs have one release.

use tidelock_core::types::NodeId;
use tidelock_core::version::{ClusterVersion, SupportedVersions};

use super::{Cluster, CrashKind, FaultKind, ScheduledFault, Severity, Target, choose};
use crate::event_queue::Micros;

/// The release before the newest.
pub const OLD: SupportedVersions =
    SupportedVersions { oldest: ClusterVersion::FIRST, newest: ClusterVersion::FIRST };

/// A release that no longer supports the first version. It must not start before the version of the
/// cluster has risen.
const TOO_NEW: SupportedVersions =
    SupportedVersions { oldest: ClusterVersion::NEWEST, newest: ClusterVersion::NEWEST };

/// A process is stopped, and another release is started in its place. If its directory refuses the
/// release, the one before is started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRelease {
    /// The host.
    pub target: Target,
    /// What the other release supports.
    pub to: SupportedVersions,
}

impl FaultKind for ChangeRelease {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> ChangeRelease {
        let to = *choose(random, &[OLD, SupportedVersions::OWN, SupportedVersions::OWN, TOO_NEW]);
        ChangeRelease { target: Target::draw(severity, random), to }
    }

    fn is_possible(_: &Severity) -> bool {
        false
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.crash(node, CrashKind::Process);
        cluster.set_release(node, self.to);
    }
}

/// Draws upgrades of the hosts 1 to `nodes`, one by one, among them attempts to go back.
pub fn draw_upgrades(nodes: u64, until: Micros, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    let mut faults = Vec::new();
    let mut order: Vec<u64> = (1..=nodes).collect();
    random.shuffle(&mut order);
    // Some runs end with hosts of the old release.
    let upgraded = if random.bool() { order.len() } else { random.usize(0..=order.len()) };
    let pause_max = until.0 / (nodes + 2);
    let mut at = Micros::SECOND;
    for &node in order.iter().take(upgraded) {
        at = at + Micros(random.u64(1..=pause_max));
        faults.push(change(at, node, SupportedVersions::OWN, random));
    }
    for _ in 0..random.u64(0..=3) {
        let at = Micros(random.u64(Micros::SECOND.0..until.0));
        let to = *choose(random, &[OLD, OLD, TOO_NEW]);
        faults.push(change(at, random.u64(1..=nodes), to, random));
    }
    faults
}

fn change(at: Micros, node: u64, to: SupportedVersions, random: &mut fastrand::Rng) -> ScheduledFault {
    let lasts = Micros::MILLISECOND * random.u64(1..2_000);
    ScheduledFault { at, lasts, fault: ChangeRelease { target: Target::Node(NodeId(node)), to }.into() }
}
