//! Nothing newer than the version of the cluster is ever written, and nothing newer than a release
//! reaches it.
//!
//! It looks at each log batch before the disk has it, at each frame, and at the version of each
//! registry. It knows by its own list which command needs which version.

use tidelock_core::auth::RateLimits;
use tidelock_core::command::config::{Change, ConfigOperation};
use tidelock_core::command::{
    AccessChange, AccessWrite, ConfigWrite, Operation, RegistryWrite, Set, SetCondition, Transaction, Write,
};
use tidelock_core::types::NodeId;
use tidelock_core::version::{ClusterVersion, SupportedVersions};

use super::Violation;
use super::online::{LoggedTurn, Observation, OnlineChecker};
use crate::event_queue::Micros;

/// The newest version that any node has applied so far.
#[derive(Debug)]
pub struct Versions {
    /// Whether the cluster was founded at an old version.
    is_mixed: bool,
    raised: ClusterVersion,
    /// How often the version was raised.
    raises: u64,
}

impl Versions {
    /// Creates the checker; `is_mixed`: the cluster was founded at an old version.
    pub fn new(is_mixed: bool) -> Versions {
        Versions { is_mixed, raised: ClusterVersion::default(), raises: 0 }
    }

    /// How often the version of the cluster was raised.
    pub fn raises(&self) -> u64 {
        self.raises
    }

    /// Records the version that a node has applied. Returns whether it is the first node with it.
    ///
    /// # Errors
    /// When the release of the node does not support the version.
    fn applied(
        &mut self,
        node: NodeId,
        supported: SupportedVersions,
        version: ClusterVersion,
    ) -> Result<bool, Violation> {
        if version > supported.newest {
            return violation(format!("node {node} supports {supported} and has applied version {version}"));
        }
        let is_first = version > self.raised;
        self.raised = self.raised.max(version);
        Ok(is_first)
    }

    /// Judges what a node is about to write to its log, given the version that its directory has
    /// recorded.
    ///
    /// # Errors
    /// When a write needs a newer version than the cluster has, than the directory has recorded, or
    /// than the release supports.
    fn logged(
        &self,
        node: NodeId,
        (supported, recorded): (SupportedVersions, ClusterVersion),
        writes: &[Write],
    ) -> Result<(), Violation> {
        for write in writes {
            let (needed, is_raise) = needed_version(write);
            if needed > supported.newest || needed > recorded {
                return violation(format!(
                    "node {node} supports {supported}, its directory has recorded version {recorded}, and it logs {write:?}"
                ));
            }
            if needed > self.raised && !is_raise {
                return violation(format!(
                    "the cluster's version is {}, and node {node} logs {write:?}",
                    self.raised
                ));
            }
        }
        Ok(())
    }

    /// Judges a frame of this kind, by its sender's recorded cluster version.
    ///
    /// # Errors
    /// If the kind was introduced by a newer cluster version, or if the receiver's release does not
    /// support the recorded version: the frame may contain anything of that version.
    fn sent(
        &self,
        from: NodeId,
        (recorded, kind): (ClusterVersion, u8),
        (to, supported): (NodeId, SupportedVersions),
    ) -> Result<(), Violation> {
        if needed_version_of_frame(kind) > recorded {
            return violation(format!(
                "node {from} has recorded version {recorded} and sends a frame of kind {kind} to node {to}"
            ));
        }
        if supported.contains(recorded) {
            return Ok(());
        }
        violation(format!(
            "node {from} has recorded version {recorded} and sends to node {to}, which supports {supported}"
        ))
    }
}

impl OnlineChecker for Versions {
    fn observe(&mut self, _: Micros, observation: &Observation<'_>) -> Result<(), Violation> {
        match *observation {
            Observation::Logs(LoggedTurn { at, supported, recorded, applied, logged, .. })
                if self.is_mixed =>
            {
                self.raises += u64::from(self.applied(at.node, supported, applied)?);
                self.logged(at.node, (supported, recorded), logged)
            }
            Observation::FrameSent { from, recorded, kind, to, supported } => {
                self.sent(from, (recorded, kind), (to, supported))
            }
            _ => Ok(()),
        }
    }
}

/// The version that frames of a kind need.
fn needed_version_of_frame(kind: u8) -> ClusterVersion {
    match kind {
        11 => ClusterVersion(3),
        12 => ClusterVersion(8),
        13 => ClusterVersion(13),
        _ => ClusterVersion(1),
    }
}

/// The version that a write needs, and whether it is the change that raises the cluster to it.
fn needed_version(write: &Write) -> (ClusterVersion, bool) {
    let write = match write {
        Write::Registry(write) => write,
        Write::Keys(transaction) => return (of_transaction(transaction), false),
        Write::Config(write) => return (of_config(write), false),
        _ => return (ClusterVersion(1), false),
    };
    match &**write {
        RegistryWrite::SetDefault { .. } => (ClusterVersion(2), false),
        RegistryWrite::Divide { .. } => (ClusterVersion(3), false),
        RegistryWrite::MoveHotSlots { .. } => (ClusterVersion(13), false),
        RegistryWrite::Access(write) => (of_access(write), false),
        RegistryWrite::Authority(_) | RegistryWrite::Announce(_) => (ClusterVersion(5), false),
        RegistryWrite::Audited(audited) => match &audited.change {
            RegistryWrite::Access(write) => (of_access(write).max(ClusterVersion(5)), false),
            _ => (ClusterVersion(5), false),
        },
        RegistryWrite::RaiseVersion { to } => (*to, true),
        _ => (ClusterVersion(1), false),
    }
}

/// The version that a change of configuration needs.
fn of_config(write: &ConfigWrite) -> ClusterVersion {
    let sets_schema = match &write.operation {
        ConfigOperation::Publish { changes, .. } => {
            changes.iter().any(|change| matches!(change, Change::SetSchema { .. }))
        }
        _ => false,
    };
    let is_of_drafts = matches!(
        write.operation,
        ConfigOperation::SetParents { .. }
            | ConfigOperation::SetProtected(_)
            | ConfigOperation::Draft { .. }
            | ConfigOperation::Withdraw
    );
    match &*write.stamp.on_behalf_of {
        _ if is_of_drafts => ClusterVersion(10),
        _ if sets_schema => ClusterVersion(9),
        "" => ClusterVersion(1),
        _ => ClusterVersion(7),
    }
}

/// The version that operations on keys need.
fn of_transaction(transaction: &Transaction) -> ClusterVersion {
    let is_new = |operation: Operation<'_>| match operation {
        Operation::SetRange { .. }
        | Operation::AddDecimal { .. }
        | Operation::DeleteIf { .. }
        | Operation::SkipIfExists { .. } => true,
        Operation::Set(Set { condition, .. }) => {
            matches!(condition, SetCondition::HashEquals(_) | SetCondition::HashDiffers(_))
        }
        _ => false,
    };
    ClusterVersion(if transaction.operations.iter().any(is_new) { 7 } else { 1 })
}

/// The version that a change of roles, principals or tokens needs.
fn of_access(write: &AccessWrite) -> ClusterVersion {
    match &write.change {
        AccessChange::PutRole { role, .. } if role.rates != RateLimits::default() => ClusterVersion(6),
        _ => ClusterVersion(4),
    }
}

fn violation<T>(text: String) -> Result<T, Violation> {
    Err(Violation::new("versions", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: SupportedVersions = SupportedVersions { oldest: ClusterVersion(1), newest: ClusterVersion(1) };
    const NEW: SupportedVersions = SupportedVersions { oldest: ClusterVersion(1), newest: ClusterVersion(2) };

    fn set_default() -> Write {
        RegistryWrite::SetDefault { tags: vec![] }.into()
    }

    #[test]
    fn writes_wait_for_the_version_and_the_directory() {
        let (node, mut versions) = (NodeId(1), Versions::new(true));
        let recorded = |version| (NEW, ClusterVersion(version));
        let raise = Write::from(RegistryWrite::RaiseVersion { to: ClusterVersion(2) });
        assert!(versions.logged(node, recorded(2), &[set_default()]).is_err(), "not raised");
        assert!(versions.logged(node, recorded(1), std::slice::from_ref(&raise)).is_err(), "not recorded");
        assert_eq!(versions.logged(node, recorded(2), &[raise]), Ok(()));
        assert_eq!(versions.applied(node, NEW, ClusterVersion(2)), Ok(true));
        assert_eq!(versions.applied(NodeId(2), NEW, ClusterVersion(2)), Ok(false));
        assert_eq!(versions.logged(node, recorded(2), &[set_default()]), Ok(()));
        assert!(versions.logged(node, recorded(1), &[set_default()]).is_err(), "not recorded");
    }

    #[test]
    fn old_releases_get_nothing_new() {
        let (node, mut versions) = (NodeId(1), Versions::new(true));
        assert!(versions.applied(node, OLD, ClusterVersion(2)).is_err());
        assert!(versions.sent(node, (ClusterVersion(2), 1), (NodeId(2), OLD)).is_err());
        assert_eq!(versions.sent(node, (ClusterVersion(2), 1), (NodeId(2), NEW)), Ok(()));
        assert_eq!(versions.sent(node, (ClusterVersion(1), 1), (NodeId(2), OLD)), Ok(()));
        assert!(versions.sent(node, (ClusterVersion(2), 11), (NodeId(2), NEW)).is_err(), "a newer kind");
    }
}
