//! Hosts whose disk is put back to an earlier state, as by a restore of an old copy.
//!
//! Owns which disk a host runs on, and for how long. Peers should refuse a process on an old copy
//! for good; the host then gets its later disk back. If a peer has accepted the old copy, it is the
//! host's disk from then on.

use tidelock_core::version::ClusterVersion;

use super::Host;
use crate::disk::DiskCopy;

/// A disk that a host may get back, and its number of starts.
pub(super) struct KeptDisk {
    pub(super) copy: DiskCopy,
    pub(super) starts: u64,
    version: ClusterVersion,
}

/// A host that runs, or ran, on an old copy of its disk.
pub(super) struct PutBack {
    /// The later disk, which it had before.
    original: KeptDisk,
    /// A peer has refused it: it does not start.
    pub(super) is_refused: bool,
    /// A peer has accepted it.
    is_accepted: bool,
    /// A process has run on the old copy.
    pub(super) has_run: bool,
}

impl Host {
    /// Its disk as it is now.
    pub(super) fn kept_disk(&self) -> KeptDisk {
        KeptDisk { copy: self.disk.copy(), starts: self.starts, version: self.options.version }
    }

    /// Records that a peer has accepted its process.
    pub fn is_let_in(&mut self) {
        if let Some(put_back) = &mut self.put_back {
            put_back.is_accepted = true;
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
        self.put_back = Some(PutBack { original, is_refused: false, is_accepted: false, has_run: false });
        true
    }

    /// Whether it runs, or would run, on an old copy that no peer has accepted.
    pub fn awaits_its_disk(&self) -> bool {
        self.put_back.as_ref().is_some_and(|put_back| !put_back.is_accepted)
    }

    /// Gives a host that was put back its later disk again, unless a peer has accepted the old
    /// copy: then that is its disk from now on.
    pub fn get_disk_back(&mut self) {
        if let Some(PutBack { original, is_accepted: false, .. }) = self.put_back.take() {
            assert!(self.process.is_none(), "no process uses the disk");
            self.disk.put_back(original.copy);
            (self.starts, self.options.version) = (original.starts, original.version);
        }
    }
}
