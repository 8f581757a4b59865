//! Totals of one shard while its blocks are written or read. The writer stores them at the shard's
//! end, the reader compares them.

use super::super::snapshot::SnapshotId;
use super::ShardSummary;
use crate::machine::{BlockKind, RestoreError, SnapshotScan};

#[derive(Debug)]
pub(super) struct Counting {
    id: SnapshotId,
    scan: SnapshotScan,
    blocks: u64,
    bytes: u64,
}

impl Counting {
    /// Begins to count, with totals of zero.
    pub fn begin(id: SnapshotId) -> Counting {
        Counting { id, scan: SnapshotScan::default(), blocks: 0, bytes: 0 }
    }

    /// Verifies and counts the next block. Returns its kind.
    pub fn block(&mut self, block: &[u8]) -> Result<BlockKind, RestoreError> {
        let kind = self.scan.block(block)?;
        if !kind.is_in_backup() {
            return Ok(kind);
        }
        self.blocks += 1;
        self.bytes += block.len() as u64;
        Ok(kind)
    }

    /// Checks what only the end of the shard shows.
    pub fn finish(&self) -> Result<(), RestoreError> {
        self.scan.finish()
    }

    /// The totals so far.
    pub fn summary(&self) -> ShardSummary {
        ShardSummary {
            id: self.id,
            revision: self.scan.revision(),
            records: self.scan.records(),
            blocks: self.blocks,
            bytes: self.bytes,
        }
    }

    /// Whether it is the state of the prime shard; `None` before the first block.
    pub fn is_registry(&self) -> Option<bool> {
        self.scan.is_registry()
    }
}
