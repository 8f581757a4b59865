//! Opens the snapshot files of this node for a backup.
//!
//! [`BackupRequest`](crate::clients::backup::BackupRequest) selects the snapshots, and
//! [`GatheredBackup`](super::GatheredBackup) reads them.

use alloc::vec::Vec;

use super::super::disk::{Disk, DiskError, DiskFile};
use super::super::snapshot::SnapshotId;
use super::super::snapshot_files;
use crate::types::LogIndex;

/// The opened snapshots of a backup. They stay readable even if their names are removed, as long as
/// a [`Reading`](snapshot_files::Reading) is registered.
#[derive(Debug)]
pub struct BackupSnapshots<F> {
    /// In the order of their shards. `None`: the shard has no state.
    files: Vec<(SnapshotId, Option<F>)>,
    about_bytes: u64,
}

impl<F: DiskFile> BackupSnapshots<F> {
    /// No snapshots.
    pub fn none() -> BackupSnapshots<F> {
        BackupSnapshots { files: Vec::new(), about_bytes: 0 }
    }

    /// Opens finished snapshots, in the order of their shards. Index 0 stands for a shard without
    /// state.
    ///
    /// # Errors
    /// When a snapshot was removed because a newer one replaced it, or the disk fails.
    pub fn open<D: Disk<File = F>>(disk: &D, ids: Vec<SnapshotId>) -> Result<BackupSnapshots<F>, DiskError> {
        let mut files = Vec::with_capacity(ids.len());
        let mut about_bytes = 0;
        for id in ids {
            let has_state = id.index != LogIndex(0);
            let file = has_state.then(|| snapshot_files::open_finished(disk, id)).transpose()?;
            about_bytes += file.as_ref().map_or(Ok(0), F::size)?;
            files.push((id, file));
        }
        Ok(BackupSnapshots { files, about_bytes })
    }

    /// Number of shards.
    pub fn shards(&self) -> u64 {
        self.files.len() as u64
    }

    /// Size of all files in bytes, about that of the backup.
    pub fn about_bytes(&self) -> u64 {
        self.about_bytes
    }

    /// The snapshots, in the order of their shards.
    pub(super) fn into_files(self) -> Vec<(SnapshotId, Option<F>)> {
        self.files
    }
}
