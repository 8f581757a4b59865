//! One shard of a backup while its blocks pass: what the writer states at its end, and the reader compares.

use super::super::snapshot::SnapshotId;
use super::ShardSummary;
use crate::command::RowLayout;
use crate::machine::{RestoreError, Scan};

#[derive(Debug)]
pub(super) struct Counting {
    id: SnapshotId,
    scan: Scan,
    blocks: u64,
    bytes: u64,
}

impl Counting {
    /// Nothing passed yet.
    pub fn begin(id: SnapshotId) -> Counting {
        Counting { id, scan: Scan::default(), blocks: 0, bytes: 0 }
    }

    /// Looks into the next block. Returns how its keys stand in it, if it holds keys.
    pub fn block(&mut self, block: &[u8]) -> Result<Option<RowLayout>, RestoreError> {
        let layout = self.scan.block(block)?;
        self.blocks += 1;
        self.bytes += block.len() as u64;
        Ok(layout)
    }

    /// What passed.
    pub fn summary(&self) -> ShardSummary {
        ShardSummary {
            id: self.id,
            revision: self.scan.revision(),
            records: self.scan.records(),
            blocks: self.blocks,
            bytes: self.bytes,
        }
    }

    /// Whether it is the prime shard's state; `None` before the first block.
    pub fn is_registry(&self) -> Option<bool> {
        self.scan.is_registry()
    }
}
