//! Backups: the states of all shards in one file that verifies itself.
//!
//! Owns the format and every check between its bytes and what they say, as two pure machines: [`Writer`] turns the
//! blocks of snapshots into bytes, [`Reader`] takes bytes as they come and gives out the parts. Memory is bounded by one
//! block, whatever the bytes say. `docs/storage-format.md` describes the same bytes for people.
//!
//! Invariants:
//! - The checksums are a chain from the header to the end, which repeats the totals: a backup that was cut short,
//!   changed, or put together of two is not believed, and the place of the damage is known.
//! - What the reader accepts would load: every block decodes, keys are in order, no version is above its shard's revision.
//!
//! Deliberately not here: when a state is consistent, and where the bytes go.

mod counting;
mod format;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use alloc::vec::Vec;
use uuid::Uuid;

pub use self::reader::{BackupError, Part, Reader};
pub use self::writer::Writer;
use super::snapshot::SnapshotId;
use crate::limits;
use crate::types::{NodeId, ShardId, Version};

/// What a backup says of itself before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The cluster that was backed up.
    pub cluster: Uuid,
    /// The backup itself; no two have the same.
    pub backup: Uuid,
    /// The node whose state it is.
    pub node: NodeId,
    /// When it was begun, in milliseconds since 1970, by that node's clock. For people.
    pub created_unix_ms: u64,
    /// Whether it is only what that node had applied, without asking the others: acknowledged writes may be missing.
    pub is_stale: bool,
    /// How many shards follow, the prime one included.
    pub shards: u64,
    /// About how many bytes follow, for a display of progress.
    pub about_bytes: u64,
}

/// What a backup holds of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSummary {
    /// Which state. Index 0 stands for a shard that nothing was ever written to.
    pub id: SnapshotId,
    /// The shard's revision then; 0 for the prime shard.
    pub revision: Version,
    /// Keys, or hosts of the prime shard.
    pub records: u64,
    /// Blocks that hold them.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
}

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What it says of itself.
    pub header: Header,
    /// By their numbers.
    pub shards: Vec<ShardSummary>,
    /// Size of the file.
    pub file_bytes: u64,
}

impl Summary {
    /// Keys of all data shards.
    pub fn keys(&self) -> u64 {
        self.shards.iter().filter(|shard| shard.id.shard != ShardId::PRIME).map(|shard| shard.records).sum()
    }

    /// No key of the backup has a higher version.
    pub fn revision_max(&self) -> Version {
        self.shards.iter().map(|shard| shard.revision).max().unwrap_or(Version::ABSENT)
    }

    /// The revision from which every shard of a restored cluster goes on: above every version that the cluster gave out
    /// on any shard before the backup, and, by [`limits::RESTORE_REVISION_MARGIN`], above those that it gave out
    /// afterwards.
    pub fn restored_revision(&self) -> Version {
        let revision = self.revision_max().0.saturating_add(limits::RESTORE_REVISION_MARGIN);
        Version(revision.min(limits::RESTORE_REVISION_MAX))
    }
}
