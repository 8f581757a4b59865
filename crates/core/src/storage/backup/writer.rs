//! Writes a backup from the blocks of snapshots.
//!
//! Owns the totals, and verifies every block: the writer never writes what the reader would refuse.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::super::framing::ChainedChecksum;
use super::super::snapshot::SnapshotId;
use super::counting::Counting;
use super::format::{self, Kind, Totals};
use super::{Header, ShardSummary};
use crate::machine::{RestoreError, without_secrets};

/// Writer of a backup. Every method appends bytes of the file to `out`, which the caller may drain
/// at any time.
#[derive(Debug)]
pub struct BackupWriter {
    header: Header,
    chain: ChainedChecksum,
    shards: Vec<ShardSummary>,
    open: Option<Counting>,
    /// Bytes of the file so far.
    file_bytes: u64,
}

impl BackupWriter {
    /// Begins a backup.
    pub fn begin(header: Header, out: &mut Vec<u8>) -> BackupWriter {
        let chain = format::encode_header(&header, out);
        let file_bytes = format::HEADER_BYTES as u64;
        BackupWriter { header, chain, shards: Vec::new(), open: None, file_bytes }
    }

    /// Begins a shard.
    ///
    /// # Panics
    /// If the previous shard is not ended, or the shards do not come in the order of their numbers.
    pub fn begin_shard(&mut self, id: SnapshotId, out: &mut Vec<u8>) {
        assert!(self.open.is_none(), "invariant: a backup holds one shard after the other");
        assert!(
            self.shards.last().is_none_or(|last| last.id.shard < id.shard),
            "invariant: shards come in the order of their numbers"
        );
        self.open = Some(Counting::begin(id));
        self.chunk(Kind::Shard, &format::encode_shard(id), out);
    }

    /// Adds the next block of the shard's snapshot. Audit records are skipped, and token digests
    /// and private keys are removed, see [`without_secrets`].
    ///
    /// # Errors
    /// When the block cannot be the next one of this snapshot. The backup must then be abandoned.
    ///
    /// # Panics
    /// If no shard was begun.
    pub fn block(&mut self, block: &[u8], out: &mut Vec<u8>) -> Result<(), RestoreError> {
        let open = self.open.as_mut().expect("invariant: a block belongs to a shard");
        let is_first = open.is_registry().is_none();
        let block = if is_first { without_secrets(block)? } else { Cow::Borrowed(block) };
        if open.block(&block)?.is_in_backup() {
            self.chunk(Kind::Block, &block, out);
        }
        Ok(())
    }

    /// Ends the current shard.
    ///
    /// # Panics
    /// If none was begun.
    pub fn end_shard(&mut self, out: &mut Vec<u8>) {
        let summary = self.open.take().expect("invariant: a shard was begun").summary();
        self.shards.push(summary);
        self.chunk(Kind::ShardEnd, &format::encode_shard_end(&summary), out);
    }

    /// Ends the backup.
    ///
    /// # Panics
    /// If the number of shards differs from the header.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        assert!(self.open.is_none(), "invariant: every shard is ended");
        assert_eq!(self.shards.len() as u64, self.header.shards, "invariant: a backup holds every shard");
        let totals = Totals::of(&self.shards, self.file_bytes + format::END_CHUNK_BYTES);
        self.chunk(Kind::End, &totals.encode(), out);
    }

    fn chunk(&mut self, kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
        self.chain = format::encode_chunk(self.chain, kind, payload, out);
        self.file_bytes += (format::CHUNK_HEADER_BYTES + payload.len()) as u64;
    }
}
