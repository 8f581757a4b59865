//! Backups: the states of all shards in one file that can be verified by itself.
//!
//! Owns the format and all checks, as two pure machines: [`BackupWriter`] turns the blocks of
//! snapshots into bytes, [`BackupReader`] takes bytes as they come and returns verified parts.
//! Memory is bounded by one block, for any input. `docs/reference/files-snapshots.md` documents the
//! same bytes.
//!
//! Invariants:
//! - The checksums form a chain from the header to the end, which repeats the totals. So a backup
//!   that was truncated, changed, or combined from two is detected, with the position of the
//!   damage.
//! - Whatever the reader accepts can be loaded: every block decodes, keys are in order, and no
//!   version is above its shard's revision.
//!
//! Deliberately not here: when a state is consistent, and where the bytes go.

mod counting;
mod format;
mod gathered;
mod reader;
mod snapshots;
#[cfg(test)]
mod tests;
mod writer;

use alloc::vec::Vec;
use uuid::Uuid;

pub use self::gathered::{GatheredBackup, PartialBackup, PartialBackupError, PartialBackupFault};
pub use self::reader::{BackupError, BackupReader, Part};
pub use self::snapshots::BackupSnapshots;
pub use self::writer::BackupWriter;
use super::snapshot::SnapshotId;
use crate::limits;
use crate::types::{NodeId, ShardId, Version};

/// The header of a backup, which describes its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The cluster that was backed up.
    pub cluster: Uuid,
    /// Random. A restore marks shards with it, so that two backups cannot be mixed.
    pub backup: Uuid,
    /// The node that was asked for it.
    pub node: NodeId,
    /// When it was begun, in milliseconds since 1970, by that node's clock. For display only.
    pub created_unix_ms: u64,
    /// Whether it contains only what its sources had applied, without consensus: acknowledged
    /// writes may be missing.
    pub is_stale: bool,
    /// Number of shards that follow, including the prime shard.
    pub shards: u64,
    /// Approximate number of bytes that follow, for a progress display.
    pub about_bytes: u64,
}

/// Totals of one shard in a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSummary {
    /// The snapshot. Index 0 stands for a shard that was never written to.
    pub id: SnapshotId,
    /// The shard's revision at the time; 0 for the prime shard.
    pub revision: Version,
    /// Number of keys; for the prime shard, number of hosts.
    pub records: u64,
    /// Number of blocks of the snapshot.
    pub blocks: u64,
    /// Bytes of these blocks, as in the snapshot file.
    pub bytes: u64,
}

/// The verified content of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Where the backup comes from.
    pub header: Header,
    /// Totals of each shard, by number.
    pub shards: Vec<ShardSummary>,
    /// Size of the backup in bytes.
    pub file_bytes: u64,
}

impl Summary {
    /// Number of keys in all data shards.
    pub fn keys(&self) -> u64 {
        self.shards.iter().filter(|shard| shard.id.shard != ShardId::PRIME).map(|shard| shard.records).sum()
    }

    /// The highest revision of a shard. No key of the backup has a higher version.
    pub fn revision_max(&self) -> Version {
        self.shards.iter().map(|shard| shard.revision).max().unwrap_or(Version::ABSENT)
    }

    /// The revision from which every shard of a restored cluster continues. It is above every
    /// version that the cluster had assigned before the backup and, by
    /// [`limits::RESTORE_REVISION_MARGIN`], above those that it assigned afterwards.
    pub fn restored_revision(&self) -> Version {
        let revision = self.revision_max().0.saturating_add(limits::RESTORE_REVISION_MARGIN);
        Version(revision.min(limits::RESTORE_REVISION_MAX))
    }
}
