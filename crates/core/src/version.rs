//! Versions of what a cluster writes: its commands, its snapshots and its frames.
//!
//! Owns the numbers and the support that a binary declares. The registry holds the version of the
//! cluster (`control::registry`). Nothing that a later version introduced is written or sent before
//! the registry has that version, so every host can read everything.

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::types::NodeId;

/// The tag of the prime shard that holds the version. A tag, because releases without versions can
/// store it: an operator holds the version before the last host is upgraded.
pub const HOLD_TAG: &str = "version:hold";

/// The version of a cluster. Each release that adds a command, or changes a layout, adds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterVersion(pub u64);

impl ClusterVersion {
    /// What clusters write that a release without versions founded.
    pub const FIRST: ClusterVersion = ClusterVersion(1);
    /// The registry holds its version and the default placement.
    pub const WITH_DEFAULTS: ClusterVersion = ClusterVersion(2);
    /// Hosts report their load, and the leader of the prime shard divides data shards.
    pub const WITH_DIVISION: ClusterVersion = ClusterVersion(3);
    /// The registry holds roles, principals and tokens, and forwarded requests name their caller.
    pub const WITH_ACCESS: ClusterVersion = ClusterVersion(4);
    /// Log entries of administrative changes contain the caller, and the registry keeps audit
    /// records.
    pub const WITH_AUDIT: ClusterVersion = ClusterVersion(5);
    /// The registry contains the cluster's certificate authorities and join tokens.
    pub const WITH_AUTHORITY: ClusterVersion = ClusterVersion(5);
    /// Roles may limit operations and bytes.
    pub const WITH_LIMITS: ClusterVersion = ClusterVersion(6);
    /// Changes of configuration keep the name that the client of a principal states.
    pub const WITH_CLAIMED_AUTHORS: ClusterVersion = ClusterVersion(7);
    /// Logs contain transactions with two branches.
    pub const WITH_TRANSACTIONS: ClusterVersion = ClusterVersion(7);
    /// Operations replace a part of a value, add decimal numbers, compare hashes of values, and
    /// depend on whether a key exists.
    pub const WITH_VALUE_OPERATIONS: ClusterVersion = ClusterVersion(7);
    /// Nodes read each other's changes of keys for watchers. Logs contain leases, locks, and the
    /// removal of all keys.
    pub const WITH_COORDINATION: ClusterVersion = ClusterVersion(8);
    /// Fields of containers refer to nested dicts of pairs. Names of namespaces, and keys of pairs,
    /// containers and fields, are up to 128 characters long.
    pub const WITH_LEAVES: ClusterVersion = ClusterVersion(9);
    /// Nodes read each other's changes of whole namespaces for watchers.
    pub const WITH_NAMESPACE_WATCHES: ClusterVersion = ClusterVersion(9);
    /// Nodes ask each other what a change of configuration would do. Pairs and containers have
    /// schemas.
    pub const WITH_SCHEMAS: ClusterVersion = ClusterVersion(9);
    /// Namespaces inherit from others, have drafts, and show them to a part of their readers first.
    pub const WITH_DRAFTS: ClusterVersion = ClusterVersion(10);
    /// Pairs hold secrets, and roles allow to reveal them.
    pub const WITH_SECRETS: ClusterVersion = ClusterVersion(10);
    /// Nodes send the trace of a request along when they forward it.
    pub const WITH_TRACES: ClusterVersion = ClusterVersion(11);
    /// Leases are shortened that a leader whose clock was ahead has granted or renewed.
    pub const WITH_SHORTENED_LEASES: ClusterVersion = ClusterVersion(12);
    /// Hosts report their load by groups of slots. The leader of the prime shard moves hot slots.
    pub const WITH_SLOT_LOADS: ClusterVersion = ClusterVersion(13);
    /// Making a leaving host a voter or a learner again cancels its removal.
    pub const WITH_CANCELLED_REMOVALS: ClusterVersion = ClusterVersion(14);
    /// The newest version that this build can write, with which it founds clusters.
    pub const NEWEST: ClusterVersion = ClusterVersion::WITH_CANCELLED_REMOVALS;
}

impl Default for ClusterVersion {
    fn default() -> ClusterVersion {
        ClusterVersion::FIRST
    }
}

impl fmt::Display for ClusterVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The versions that a binary can read and write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SupportedVersions {
    /// The oldest cluster version with which the binary can run.
    pub oldest: ClusterVersion,
    /// The newest one; at least `oldest`.
    pub newest: ClusterVersion,
}

impl SupportedVersions {
    /// What this build supports.
    pub const OWN: SupportedVersions =
        SupportedVersions { oldest: ClusterVersion::FIRST, newest: ClusterVersion::NEWEST };

    /// Whether the binary can be a member of a cluster of this version.
    pub fn contains(self, version: ClusterVersion) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// Checks that the binary can use what was written at `version`.
    ///
    /// # Errors
    /// Whether the binary is too old or too new.
    pub fn check(self, version: ClusterVersion) -> Result<(), Unsupported> {
        if version > self.newest {
            Err(Unsupported::TooOld { version, supported: self })
        } else if version < self.oldest {
            Err(Unsupported::TooNew { version, supported: self })
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for SupportedVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SupportedVersions { oldest, newest } = self;
        if oldest == newest { newest.fmt(f) } else { write!(f, "{oldest} to {newest}") }
    }
}

/// Why a binary cannot use what a cluster has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The cluster writes what the binary does not know.
    #[error(
        "this release is too old: the cluster's version is {version}, and this release supports {supported}; run a \
         release that supports version {version}"
    )]
    TooOld {
        /// The version of the cluster.
        version: ClusterVersion,
        /// What the binary supports.
        supported: SupportedVersions,
    },
    /// The binary no longer reads what the cluster writes.
    #[error(
        "this release is too new: the cluster's version is {version}, and this release supports {supported}; upgrade every \
         node to a release between the two first, and wait until `tidelock cluster version` shows version {oldest}",
        oldest = supported.oldest
    )]
    TooNew {
        /// The version of the cluster.
        version: ClusterVersion,
        /// What the binary supports.
        supported: SupportedVersions,
    },
}

/// The release that a host runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The release's own number, for display; empty for releases that do not announce it.
    pub name: String,
    /// The versions that it supports; exactly the first for releases that do not announce them.
    pub versions: SupportedVersions,
}

impl Release {
    /// The text that represents the release in an announcement; `None` for one that does not
    /// announce itself.
    pub(crate) fn announced(&self) -> Option<String> {
        let SupportedVersions { oldest, newest } = self.versions;
        (*self != Release::default()).then(|| format!("{oldest} {newest} {}", self.name))
    }

    /// Reads what [`Release::announced`] returned; `None` for any other text.
    pub(crate) fn of_announced(text: &str) -> Option<Release> {
        let (oldest, rest) = text.split_once(' ')?;
        let (newest, name) = rest.split_once(' ')?;
        let version = |text: &str| text.parse().ok().map(ClusterVersion);
        let versions = SupportedVersions { oldest: version(oldest)?, newest: version(newest)? };
        let release = Release { name: String::from(name), versions };
        // Only what is written back byte for byte: every replica must hold the same bytes.
        let is_valid = versions.oldest <= versions.newest && release.announced().as_deref() == Some(text);
        is_valid.then_some(release)
    }
}

/// What holds back the rise of the cluster's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaiseBlocker {
    /// An operator has stopped it.
    Held,
    /// The host runs a release that does not support a newer version.
    ReleaseTooOld(NodeId),
    /// The host has not announced its release, or is not connected with the asked node. It may run
    /// any release.
    Disconnected(NodeId),
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_binary_is_too_old_or_too_new() {
        let supported = SupportedVersions { oldest: ClusterVersion(2), newest: ClusterVersion(4) };
        let check = |version| supported.check(ClusterVersion(version));
        assert_eq!((check(2), check(4)), (Ok(()), Ok(())));
        let old = check(5).unwrap_err().to_string();
        assert!(
            old.contains("too old: the cluster's version is 5, and this release supports 2 to 4;"),
            "{old}"
        );
        let new = check(1).unwrap_err().to_string();
        assert!(
            new.contains("too new: the cluster's version is 1, and this release supports 2 to 4;"),
            "{new}"
        );
        assert!(new.ends_with("shows version 2"), "{new}");
    }

    #[test]
    fn announcements_are_read_only_if_they_are_written_so() {
        let versions = SupportedVersions { oldest: ClusterVersion(1), newest: ClusterVersion(13) };
        for name in ["", "0.2.0", "1.0.0 beta"] {
            let release = Release { name: name.into(), versions };
            let text = release.announced().expect("announced");
            assert_eq!(Release::of_announced(&text), Some(release));
        }
        assert_eq!(Release::default().announced(), None);
        for text in ["", "1", "1 2", "01 2 a", "2 1 a", "x 2 a", "1 1 ", "1 -2 a"] {
            assert_eq!(Release::of_announced(text), None, "{text}");
        }
    }
}
