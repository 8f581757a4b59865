//! The release that a host runs, and what its directory says about it.

use bytes::Bytes;
use tidelock_core::command::Write as Command;
use tidelock_core::node::writes_of;
use tidelock_core::storage::{WalBatch, WalRecord};
use tidelock_core::version::{ClusterVersion, Release, SupportedVersions, Unsupported};

use super::Host;

impl Host {
    /// What its release supports.
    pub fn supported(&self) -> SupportedVersions {
        self.options.host.release.versions
    }

    /// The version that its directory has recorded.
    pub fn recorded_version(&self) -> ClusterVersion {
        self.options.version
    }

    /// The version of the cluster, as far as its process knows; the first if it has none.
    pub fn cluster_version(&self) -> ClusterVersion {
        self.process.as_ref().map_or(ClusterVersion::FIRST, |process| process.node.cluster_version())
    }

    /// Whether an operator holds the version, as far as its process knows.
    pub fn is_version_held(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.node.is_version_held())
    }

    /// Replaces the binary of a host that is down.
    pub fn set_release(&mut self, versions: SupportedVersions) {
        assert!(self.process.is_none(), "a process runs the binary");
        let release = Release { name: String::new(), versions };
        self.earlier_release = Some(std::mem::replace(&mut self.options.host.release, release));
    }

    /// Puts the binary back that ran before, or one that supports the directory.
    pub fn put_release_back(&mut self) {
        let earlier = self.earlier_release.take().map(|release| release.versions);
        let fitting = earlier.filter(|versions| versions.contains(self.recorded_version()));
        self.set_release(fitting.unwrap_or(SupportedVersions::OWN));
    }

    /// Whether its release may start on its directory.
    pub fn check_directory(&self) -> Result<(), Unsupported> {
        self.supported().check(self.recorded_version())
    }
}

/// The writes in the entries of a log batch.
pub(super) fn logged(batch: &WalBatch) -> Vec<Command> {
    let entries = batch.records.iter().filter_map(|record| match record {
        WalRecord::Entries { entries, .. } => Some(entries),
        _ => None,
    });
    let data: Vec<&Bytes> = entries.flatten().map(|entry| &entry.data).collect();
    data.into_iter().flat_map(writes_of).collect()
}
