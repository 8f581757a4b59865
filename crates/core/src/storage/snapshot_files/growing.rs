//! Files that grow: a snapshot in the making, and one that is being received.
//!
//! Owns how bytes get to the disk: room is reserved before each write, so that a full disk fails the snapshot and not
//! the log; and what was written is synced every few MiB, so that no sync has so much to do that those of the log wait
//! for it. Nothing is read back. Files that are not finished are worth nothing after a restart.

use alloc::vec::Vec;

use super::super::disk::{Disk, DiskError, DiskFile};
use super::super::snapshot::SnapshotId;
use super::format::{self, Chain, Stage, Trailer, file_name};

/// Bytes between two syncs of a file that grows.
const SYNC_BYTES: u64 = 1 << 20;

/// A file that is appended to.
#[derive(Debug)]
pub(super) struct Growing<F> {
    /// Which snapshot it will hold.
    pub id: SnapshotId,
    pub file: F,
    /// Bytes that it holds.
    pub bytes: u64,
    unsynced_bytes: u64,
}

/// A snapshot in the making.
#[derive(Debug)]
pub(super) struct Making<F> {
    pub out: Growing<F>,
    chain: Chain,
    blocks: u64,
    buffer: Vec<u8>,
}

impl<F: DiskFile> Growing<F> {
    /// Creates the file, empty.
    pub fn begin<D: Disk<File = F>>(disk: &D, id: SnapshotId, stage: Stage) -> Result<Growing<F>, DiskError> {
        let file = disk.create(&file_name(id, stage), 0)?;
        Ok(Growing { id, file, bytes: 0, unsynced_bytes: 0 })
    }

    /// Appends bytes. They are durable after [`Growing::sync`].
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        let end = self.bytes + bytes.len() as u64;
        self.file.resize(end)?;
        self.file.write_at(self.bytes, bytes)?;
        self.bytes = end;
        self.unsynced_bytes += bytes.len() as u64;
        if self.unsynced_bytes >= SYNC_BYTES { self.sync() } else { Ok(()) }
    }

    /// Makes all bytes durable.
    pub fn sync(&mut self) -> Result<(), DiskError> {
        self.file.sync()?;
        self.unsynced_bytes = 0;
        Ok(())
    }
}

impl<F: DiskFile> Making<F> {
    /// Creates the file with its header.
    pub fn begin<D: Disk<File = F>>(disk: &D, id: SnapshotId) -> Result<Making<F>, DiskError> {
        let mut out = Growing::begin(disk, id, Stage::Making)?;
        let (header, chain) = format::encode_header(id);
        out.append(&header)?;
        Ok(Making { out, chain, blocks: 0, buffer: Vec::new() })
    }

    /// Appends a block.
    pub fn block(&mut self, payload: &[u8]) -> Result<(), DiskError> {
        self.buffer.clear();
        self.chain = format::encode_block(self.chain, payload, &mut self.buffer);
        self.blocks += 1;
        self.out.append(&self.buffer)
    }

    /// Appends the trailer and makes everything durable. Returns the checksum of the whole.
    pub fn finish(&mut self) -> Result<u32, DiskError> {
        let trailer_bytes = (format::BLOCK_HEADER_BYTES + format::TRAILER_BODY_BYTES) as u64;
        let trailer = Trailer { blocks: self.blocks, file_bytes: self.out.bytes + trailer_bytes };
        self.buffer.clear();
        let chain = trailer.encode(self.chain, &mut self.buffer);
        self.out.append(&self.buffer)?;
        self.out.sync()?;
        Ok(chain.checksum())
    }
}
