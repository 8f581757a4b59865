//! The cluster's version on one node: what the data directory and the peers must support, and when
//! the version rises.
//!
//! Owns the *recorded* version: nothing newer is in the data directory, and nothing newer is sent.
//! It rises before the first entry that may need it is written or sent, so it may be ahead of the
//! registry:
//! 1. The leader of the prime shard proposes to raise the version when every host is connected and
//!    supports the new one.
//! 2. A node whose log receives that proposal records the version. The shell stores it in the data
//!    directory before it writes the entry. The node tells its peers before it sends them anything
//!    else, and closes the links to peers that do not support it.
//! 3. When the proposal is applied, newer commands may be proposed (`router`).
//!
//! If the proposal is lost with its leader, the recorded version stays: the directories then refuse
//! old releases earlier than necessary.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

use super::Node;
use crate::codec::DecodeError;
use crate::command::{HostRole, RegistryWrite, VersionView, Write};
use crate::event::{Actions, OutgoingFrame};
use crate::peer;
use crate::raft;
use crate::router::Requester;
use crate::storage::WalRecord;
use crate::types::{NodeId, ShardId};
use crate::version::{ClusterVersion, RaiseBlocker, SupportedVersions};

/// For checkers: the writes in the data of a log entry, if it holds any.
pub fn writes_of(data: &Bytes) -> Vec<Write> {
    raft::writes_of(data)
}

/// What a node knows about versions besides the registry.
pub(super) struct Versions {
    /// See the module documentation.
    recorded: ClusterVersion,
    /// Whether the shell and the peers must still learn of the recorded version.
    is_unreported: bool,
    /// What the connected peers support.
    peers: BTreeMap<NodeId, SupportedVersions>,
    /// Peers whose links are new. The recorded version may have risen between the handshake and the
    /// link, so they are told it again.
    linked: Vec<NodeId>,
}

impl Versions {
    /// For a node whose data directory has recorded a version.
    pub(super) fn new(recorded: ClusterVersion) -> Versions {
        Versions { recorded, is_unreported: false, peers: BTreeMap::new(), linked: Vec::new() }
    }

    /// Whether the shell must be told something.
    pub(super) fn has_output(&self) -> bool {
        self.is_unreported || !self.linked.is_empty()
    }

    /// Whether a peer is known not to support what this node may send.
    pub(super) fn excludes(&self, peer: NodeId) -> bool {
        self.peers.get(&peer).is_some_and(|supported| !supported.contains(self.recorded))
    }
}

impl Node {
    /// The newest version of anything that this node holds or sends. Peers must support it.
    pub fn recorded_version(&self) -> ClusterVersion {
        self.versions.recorded
    }

    /// The version of the cluster, as far as this node has applied the registry.
    pub fn cluster_version(&self) -> ClusterVersion {
        self.registry().version()
    }

    /// Whether an operator holds the version, as far as this node has applied the registry.
    pub fn is_version_held(&self) -> bool {
        self.registry().is_version_held()
    }

    /// Handles what a peer said in the handshake, before its link is established.
    pub(super) fn peer_versions(
        &mut self,
        peer: NodeId,
        supported: SupportedVersions,
        recorded: ClusterVersion,
    ) {
        self.versions.peers.insert(peer, supported);
        // The handshake has checked that this node supports it.
        self.record_version(recorded);
        if self.versions.excludes(peer) {
            self.reapply_registry();
        }
    }

    /// Handles a new link to a peer.
    pub(super) fn peer_linked(&mut self, peer: NodeId) {
        if self.versions.recorded > ClusterVersion::FIRST {
            self.versions.linked.push(peer);
        }
    }

    /// Handles the version that a connected peer has recorded.
    pub(super) fn version_heard(&mut self, recorded: ClusterVersion) -> Result<(), DecodeError> {
        if recorded > self.options.host.release.versions.newest {
            return Err(DecodeError::Invalid("version of a peer"));
        }
        self.record_version(recorded);
        Ok(())
    }

    /// Forgets what a peer supports: it may come back with another release.
    pub(super) fn peer_versions_lost(&mut self, peer: NodeId) {
        if self.versions.excludes(peer) {
            self.reapply_registry();
        }
        self.versions.peers.remove(&peer);
    }

    /// Records a version if it is newer than the recorded one.
    pub(super) fn record_version(&mut self, version: ClusterVersion) {
        if version > self.versions.recorded {
            self.versions.recorded = version;
            self.versions.is_unreported = true;
            // Peers that do not support it are no longer wanted.
            self.reapply_registry();
        }
    }

    /// Records the versions that entries of this drive's log batch raise to.
    pub(super) fn note_raises(&mut self) {
        let mut raised = ClusterVersion::FIRST;
        for record in &self.output.records {
            let WalRecord::Entries { shard: ShardId::PRIME, entries } = record else { continue };
            for write in entries.iter().flat_map(|entry| raft::writes_of(&entry.data)) {
                if let Write::Registry(write) = write
                    && let RegistryWrite::RaiseVersion { to } = *write
                {
                    raised = raised.max(to);
                }
            }
        }
        self.record_version(raised);
    }

    /// Emits a new recorded version, for the shell and for all connected peers. Frames and log
    /// batches of the same drive follow it.
    pub(super) fn emit_version(&mut self, actions: &mut Actions) {
        let recorded = self.versions.recorded;
        let is_new = core::mem::take(&mut self.versions.is_unreported);
        let untold = core::mem::take(&mut self.versions.linked);
        if is_new {
            actions.version = Some(recorded);
        }
        let linked = self.router.peers().iter().filter(|peer| peer.up).map(|peer| peer.node);
        let linked = linked.filter(|node| is_new || untold.contains(node));
        let frame = |to| OutgoingFrame { to, payload: peer::version(recorded).into(), droppable: false };
        actions.frames.extend(linked.filter(|&node| !self.versions.excludes(node)).map(frame));
    }

    /// Drops frames to peers that do not support what they may hold. Their links are being closed.
    /// The notice of a removal comes later: every release knows it.
    pub(super) fn drop_excluded(&self, frames: &mut Vec<OutgoingFrame>) {
        if self.versions.peers.keys().any(|&peer| self.versions.excludes(peer)) {
            frames.retain(|frame| !self.versions.excludes(frame.to));
        }
    }

    /// Proposes the newest version that every host supports, if this node leads the prime shard.
    pub(super) fn raise_version(&mut self) {
        if !self.groups.prime().leads() || self.registry().is_version_held() {
            return;
        }
        let Some(to) = self.next_version() else { return };
        if self.blockers(to).is_empty() {
            self.router.write(
                Requester::NODE,
                Write::from(RegistryWrite::RaiseVersion { to }),
                &mut self.groups,
            );
        }
    }

    /// The version to which the cluster can rise next: the newest that all hosts announce. If they
    /// announce none above the current version, the next higher one, if this node supports it.
    fn next_version(&self) -> Option<ClusterVersion> {
        let (current, own) = (self.registry().version(), self.options.host.release.versions.newest);
        let next = (current.0 + 1..=own.0).map(ClusterVersion);
        let all = next.clone().rev().find(|&version| self.registry().all_support(version));
        all.or_else(|| next.clone().next())
    }

    /// The hosts that prevent the cluster's version from rising to `to`. What a connected peer said
    /// in its handshake counts as well as its entry, which may be of the release that it ran
    /// before. A host without a connection may come back with any release.
    fn blockers(&self, to: ClusterVersion) -> Vec<RaiseBlocker> {
        let members = self.registry().host_entries().iter();
        let members = members.filter(|(_, entry)| entry.standing != HostRole::Removed);
        let blocker = |(&node, entry): (&NodeId, &crate::topology::HostEntry)| {
            let announced = entry.host.as_ref().map(|host| host.info.release.versions);
            let running = if node == self.options.host.node {
                Some(self.options.host.release.versions)
            } else {
                self.versions.peers.get(&node).copied().filter(|_| self.router.is_up(node))
            };
            match (announced, running) {
                (Some(announced), _) if !announced.contains(to) => Some(RaiseBlocker::ReleaseTooOld(node)),
                (_, Some(running)) if !running.contains(to) => Some(RaiseBlocker::ReleaseTooOld(node)),
                (None, _) | (_, None) => Some(RaiseBlocker::Disconnected(node)),
                (Some(_), Some(_)) => None,
            }
        };
        members.filter_map(blocker).collect()
    }

    /// The version of the cluster, and what it waits for.
    pub(super) fn version_view(&self) -> VersionView {
        let registry = self.registry();
        let next = self.next_version();
        let held = registry.is_version_held().then_some(RaiseBlocker::Held);
        let blockers = next.map(|next| self.blockers(next)).unwrap_or_default();
        VersionView {
            version: registry.version(),
            next,
            blockers: held.filter(|_| next.is_some()).into_iter().chain(blockers).collect(),
            held: registry.is_version_held(),
        }
    }
}
