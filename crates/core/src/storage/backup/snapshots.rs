//! Opens the snapshot files of a backup, and writes the backup from them.
//!
//! Owns the order in which files are read. [`BackupRequest`](crate::clients::backup::BackupRequest)
//! selects the snapshots.

use alloc::vec::Vec;
use core::mem;

use super::super::disk::{Disk, DiskError, DiskFile};
use super::super::snapshot::SnapshotId;
use super::super::snapshot_files::{self, SnapshotFileError};
use super::{BackupWriter, Header};
use crate::machine::RestoreError;
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

    /// Reads the files and passes the bytes of the backup to `send`, in parts of at least
    /// `part_bytes` except for the last.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged, or `send` fails. The parts sent before are no
    /// whole backup, which their reader notices.
    ///
    /// # Panics
    /// If the header states another number of shards.
    pub fn write<E: From<SnapshotFileError> + From<RestoreError>>(
        self,
        header: Header,
        part_bytes: usize,
        mut send: impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut out = Vec::new();
        let mut writer = BackupWriter::begin(header, &mut out);
        for (id, file) in self.files {
            writer.begin_shard(id, &mut out);
            if let Some(file) = file {
                snapshot_files::read_blocks(&file, id, |block| {
                    writer.block(block, &mut out)?;
                    if out.len() >= part_bytes { send(mem::take(&mut out)) } else { Ok(()) }
                })?;
            }
            writer.end_shard(&mut out);
        }
        writer.finish(&mut out);
        send(out)
    }
}
