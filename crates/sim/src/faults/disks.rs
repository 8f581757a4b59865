//! Faults of disks: they are slow, hang, fail, take no writes, or are an old copy.

use tidelock_core::types::NodeId;

use super::{Cluster, FaultKind, Severity, Target, choose};
use crate::event_queue::Micros;

/// Syncs take several times as long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowDisk {
    /// The host whose disk is slow.
    pub target: Target,
    /// Factor on the planned duration of a sync.
    pub factor: u64,
}

impl FaultKind for SlowDisk {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> SlowDisk {
        SlowDisk { target: Target::draw(severity, random), factor: random.u64(2..100) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.set_slowness(node, self.factor);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.set_slowness(node, 1);
    }
}

/// Syncs hang: each takes longer by this much until the fault is relieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HangDisk {
    /// The host whose disk hangs.
    pub target: Target,
    /// Additional duration of each sync that begins before the fault is relieved.
    pub longer: Micros,
}

impl HangDisk {
    /// Draws a duration: from a little longer than a heartbeat to longer than any run.
    pub fn of(target: Target, random: &mut fastrand::Rng) -> HangDisk {
        let longest_ms = *choose(random, &[100, 1_000, 10_000, 60_000]);
        HangDisk { target, longer: Micros::MILLISECOND * random.u64(50..=longest_ms) }
    }
}

impl FaultKind for HangDisk {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> HangDisk {
        HangDisk::of(Target::draw(severity, random), random)
    }

    fn duration_factor() -> u64 {
        4
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.set_hang(node, self.longer);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.set_hang(node, Micros(0));
    }
}

/// The next sync fails; a host that stopped for it starts when the fault is relieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailSync {
    /// The host whose disk fails.
    pub target: Target,
}

impl FaultKind for FailSync {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> FailSync {
        FailSync { target: Target::draw(severity, random) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.disk(node).fail_next_sync();
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.disk(node).forgive_sync();
    }
}

/// Files cannot grow. A running process waits; one that could not start is started when the fault
/// is relieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullDisk {
    /// The hosts whose disks are full.
    pub target: Target,
    /// Number of bytes by which files may still grow.
    pub free_bytes: u64,
}

impl FaultKind for FullDisk {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> FullDisk {
        let free_bytes_below = 1 << random.u8(8..21);
        let free_bytes = random.u64(0..free_bytes_below);
        FullDisk { target: Target::draw_wide(severity, random), free_bytes }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.disk(node).set_free_bytes(Some(self.free_bytes));
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.disk(node).set_free_bytes(None);
    }
}

/// Nothing can be written. A process waits, as on a full disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOnlyDisk {
    /// The hosts whose disks are read-only.
    pub target: Target,
}

impl FaultKind for ReadOnlyDisk {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> ReadOnlyDisk {
        ReadOnlyDisk { target: Target::draw_wide(severity, random) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.disk(node).set_read_only(true);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.disk(node).set_read_only(false);
    }
}

/// No file can be opened or created, because there are no descriptors. The process waits, as on a
/// full disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDescriptors {
    /// The host whose process has no free descriptors.
    pub target: Target,
}

impl FaultKind for NoDescriptors {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> NoDescriptors {
        NoDescriptors { target: Target::draw(severity, random) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.disk(node).set_no_descriptors(true);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.disk(node).set_no_descriptors(false);
    }
}

/// A host starts with its disk as it was before its latest start. If its peers refuse it, it stops,
/// and gets its later disk back when the fault is relieved. Strikes only if every other host knows
/// that latest start: one that does not know it could accept the old copy, and the two together
/// might be a majority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldCopy {
    /// The host whose disk is put back.
    pub target: Target,
}

impl FaultKind for OldCopy {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> OldCopy {
        OldCopy { target: Target::draw(severity, random) }
    }

    /// The only voter of a shard, now or in the state to which it is put back, asks no peer that
    /// could refuse it.
    fn is_possible(severity: &Severity) -> bool {
        severity.nodes >= 3 && severity.is_fixed
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.put_back(node);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.get_disk_back(node);
    }
}

/// A founder starts on an empty disk, as if its own were not mounted. A peer whose registry has the
/// uuid of its own disk refuses it, and it stops. It gets its disk back when the fault is relieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyDisk {
    /// The host whose disk is replaced.
    pub target: Target,
}

impl FaultKind for EmptyDisk {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> EmptyDisk {
        EmptyDisk { target: Target::draw(severity, random) }
    }

    /// Only in plans without other faults. A partition could separate a majority with empty disks
    /// from all hosts that would refuse it. It would then found the cluster again, as documented in
    /// `tidelock_core`.
    fn is_possible(_: &Severity) -> bool {
        false
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.empty(node);
    }

    fn relieve(&self, cluster: &mut dyn Cluster, node: NodeId) {
        cluster.get_disk_back(node);
    }
}
