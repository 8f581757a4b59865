//! Hosts whose disk is put back to an earlier state, as by a restore of an old copy, or that start
//! on an empty one, as if their disk were not mounted.
//!
//! Owns which disk a host runs on, and for how long. Peers should refuse a process on another disk
//! than its own for good; the host then gets its disk back. If a peer has accepted an old copy, it
//! is the host's disk from then on. Hosts with empty disks accept each other, and get their disks
//! back all the same.

use tidelock_core::types::NodeId;
use tidelock_core::version::ClusterVersion;
use uuid::Uuid;

use super::Host;
use crate::disk::DiskCopy;

/// A disk that a host may get back, and its number of starts.
pub(super) struct KeptDisk {
    pub(super) copy: DiskCopy,
    pub(super) starts: u64,
    version: ClusterVersion,
    host: Uuid,
}

/// A host that runs, or ran, on an old copy of its disk, or on an empty one.
pub(super) struct PutBack {
    /// The later disk, which it had before.
    original: KeptDisk,
    /// A peer has refused it: it does not start.
    pub(super) is_refused: bool,
    /// A peer has accepted it.
    is_accepted: bool,
    /// A process has run on the old copy.
    pub(super) has_run: bool,
    /// The disk was empty. Such a disk is never kept, even if a peer has accepted its process.
    is_empty: bool,
}

impl Host {
    /// Its disk as it is now.
    pub(super) fn kept_disk(&self) -> KeptDisk {
        let (version, host) = (self.options.version, self.options.host.uuid);
        KeptDisk { copy: self.disk.copy(), starts: self.starts, version, host }
    }

    /// Records that a peer has accepted its process.
    pub fn is_let_in(&mut self) {
        if let Some(put_back) = &mut self.put_back {
            put_back.is_accepted = !put_back.is_empty;
        }
    }

    /// Records that a peer has refused its process for good: the directory is marked, and cannot be
    /// started.
    pub fn is_refused(&mut self) {
        if let Some(put_back) = &mut self.put_back {
            put_back.is_refused = true;
        }
    }

    /// Whether its directory is marked as refused.
    pub fn does_not_start(&self) -> bool {
        self.put_back.as_ref().is_some_and(|put_back| put_back.is_refused)
    }

    /// Puts the disk of a host that is down back to its state before the latest start. Returns
    /// whether it did.
    pub fn put_back(&mut self) -> bool {
        assert!(self.process.is_none(), "no process uses the disk");
        if self.put_back.is_some() {
            return false;
        }
        let Some(earlier) = self.earlier.take() else { return false };
        let original = self.kept_disk();
        self.disk.put_back(earlier.copy);
        (self.starts, self.options.version) = (earlier.starts, earlier.version);
        self.put_back = Some(PutBack {
            original,
            is_refused: false,
            is_accepted: false,
            has_run: false,
            is_empty: false,
        });
        true
    }

    /// Gives a host that is down an empty disk. Returns whether it did.
    pub fn empty(&mut self) -> bool {
        assert!(self.process.is_none(), "no process uses the disk");
        if self.put_back.is_some() {
            return false;
        }
        let original = self.kept_disk();
        self.disk.put_back(DiskCopy::default());
        (self.starts, self.options.version) = (0, self.options.founding_version);
        self.options.host.uuid = Uuid::from_u128(!original.host.as_u128());
        self.put_back =
            Some(PutBack { original, is_refused: false, is_accepted: false, has_run: false, is_empty: true });
        true
    }

    /// Whether the registry that its process has applied contains this host.
    pub fn is_registered(&self) -> bool {
        self.known_uuid(self.node()) == Some(self.options.host.uuid)
    }

    /// The uuid of a node number in the registry that its process has applied.
    pub fn known_uuid(&self, node: NodeId) -> Option<Uuid> {
        let entry = self.process.as_ref()?.node.host_entry(node)?;
        Some(entry.host.as_ref()?.info.uuid)
    }

    /// Whether its disk is empty, or an old copy, and no peer has accepted it yet.
    pub fn awaits_its_disk(&self) -> bool {
        self.put_back.as_ref().is_some_and(|put_back| !put_back.is_accepted)
    }

    /// Gives a host on another disk its own again, unless a peer has accepted an old copy: then
    /// that is its disk from now on.
    pub fn get_disk_back(&mut self) {
        if let Some(PutBack { original, is_accepted: false, .. }) = self.put_back.take() {
            assert!(self.process.is_none(), "no process uses the disk");
            self.disk.put_back(original.copy);
            (self.starts, self.options.version) = (original.starts, original.version);
            self.options.host.uuid = original.host;
        }
    }
}
