//! The cluster's version, and the tags that shards inherit.
//!
//! Owns when the version may rise. A cluster of the first version must be changed exactly as
//! releases without versions change it, because some of its hosts may run one. So every rule here
//! takes effect from the second version on.

use alloc::collections::BTreeMap;
use alloc::string::String;

use super::Registry;
use crate::command::{Denial, HostInfo, HostRole, RegistryWrite, WriteReply};
use crate::topology::HostEntry;
use crate::types::{LogIndex, ShardId};
use crate::version::ClusterVersion;
pub use crate::version::HOLD_TAG;

impl Registry {
    /// The registry of a cluster that was founded at a version.
    pub fn founded_at(self, version: ClusterVersion) -> Registry {
        Registry { version, ..self }
    }

    /// The version of the cluster.
    pub fn version(&self) -> ClusterVersion {
        self.version
    }

    /// The placement policies that shards inherit, by name; `None` if the cluster has no default
    /// placement.
    pub fn default_tags(&self) -> Option<&BTreeMap<String, String>> {
        self.default_tags.as_ref()
    }

    /// Whether an operator has stopped the rise of the version.
    pub fn is_version_held(&self) -> bool {
        self.shards.get(&ShardId::PRIME).is_some_and(|row| row.tags.contains_key(HOLD_TAG))
    }

    /// Whether every host that belongs to the cluster has announced support of a version.
    pub fn all_support(&self, version: ClusterVersion) -> bool {
        let supports = |entry: &HostEntry| {
            let host = entry.host.as_ref();
            host.is_some_and(|host| host.info.release.versions.contains(version))
        };
        let mut members = self.host_entries.values().filter(|entry| entry.standing != HostRole::Removed);
        members.all(supports)
    }

    /// Why the cluster's version does not allow a change that reached the log nevertheless.
    pub(super) fn version_denial(&self, write: &RegistryWrite) -> Option<Denial> {
        if self.version == ClusterVersion::FIRST {
            return None;
        }
        let is_supported = |info: &HostInfo| info.release.versions.contains(self.version);
        match write {
            RegistryWrite::RegisterHost(info) | RegistryWrite::JoinHost(info) if !is_supported(info) => {
                Some(Denial::HostTooOld)
            }
            _ => None,
        }
    }

    /// Raises the version, if every host supports it.
    pub fn raise_version(&mut self, index: LogIndex, to: ClusterVersion) -> WriteReply {
        if to <= self.version {
            return WriteReply::HostChanged;
        }
        if self.is_version_held() {
            return WriteReply::Denied(Denial::VersionHeld);
        }
        if !self.all_support(to) {
            return WriteReply::Denied(Denial::HostTooOld);
        }
        self.version = to;
        self.changed = index;
        WriteReply::HostChanged
    }
}
