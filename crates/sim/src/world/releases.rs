//! Hosts of different releases: upgrades, downgrades that must be refused, and the checks that
//! nothing newer than a release reaches it.

use tidelock_core::event::Event;
use tidelock_core::types::NodeId;
use tidelock_core::version::{ClusterVersion, SupportedVersions};

use super::World;
use crate::checkers::Violation;
use crate::faults::CrashKind;

/// The frame that tells a peer of its removal. Every release knows it.
pub(super) const REMOVAL: [u8; 1] = [6];

/// Election timeouts within which the version of a healed cluster rises: every host registers its
/// release first.
const ELECTIONS_TO_RAISE: u64 = 40;

impl World<'_> {
    /// Checks that a host that is about to start may run its release on its directory. If not, the
    /// operator puts back a release that may.
    pub(super) fn check_release(&mut self, node: NodeId) {
        let Err(unsupported) = self.host(node).check_directory() else { return };
        self.note(&[26, node.0], || format!("node {node} does not start: {unsupported}"));
        self.tally.releases_refused += 1;
        self.host(node).put_release_back();
    }

    /// A process learns what the release of a peer supports, as the handshake of their connection
    /// said.
    pub(super) fn introduce_release(&mut self, from: NodeId, to: NodeId) {
        let (supported, recorded) = (self.host(from).supported(), self.host(from).recorded_version());
        self.post(to, Event::PeerVersions { peer: from, supported, recorded });
    }

    /// Restarts every member that does not run the newest release with it.
    pub(super) fn upgrade_all(&mut self) {
        for node in self.nodes() {
            if self.plan.is_mixed() && self.host(node).supported() != SupportedVersions::OWN {
                self.crash(node, CrashKind::Process);
                self.host(node).set_release(SupportedVersions::OWN);
            }
        }
    }

    /// Checks that the version of a healed cluster, whose hosts all run the newest release, rises
    /// to the newest one unless an operator holds it.
    pub(super) fn settle_version(&mut self) -> Result<(), Violation> {
        let mut left = ELECTIONS_TO_RAISE;
        loop {
            let mut members = self.hosts.iter().filter(|host| host.is_member());
            if members.clone().any(|host| host.is_version_held()) {
                return Ok(());
            }
            let newest = ClusterVersion::NEWEST;
            if members.all(|host| host.cluster_version() == newest && host.recorded_version() == newest) {
                return Ok(());
            }
            if left == 0 {
                let members = self.hosts.iter().filter(|host| host.is_member());
                let versions: Vec<_> = members.map(|host| (host.node(), host.cluster_version())).collect();
                let text = format!("the version of a cluster of new releases does not rise: {versions:?}");
                return Err(Violation::new("versions", text));
            }
            left -= 1;
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
    }
}
