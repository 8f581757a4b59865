//! Append-only files: a new snapshot, and one that is being received.
//!
//! Owns how bytes get to the disk. Space is reserved before each write, so that a full disk fails
//! the snapshot instead of the log. The file is synced often, so that no sync of it delays those of
//! the log for long. Nothing is read back. Unfinished files are useless after a restart.

use alloc::vec::Vec;

use super::super::disk::{Disk, DiskError, DiskFile};
use super::super::framing::ChainedChecksum;
use super::super::snapshot::SnapshotId;
use super::format::{self, SnapshotFileKind, Trailer, file_name};

/// Number of bytes between two syncs. A sync of the log that begins meanwhile waits until they are
/// on the disk: with three nodes on one disk, one in a hundred took 1.9 ms without snapshots,
/// 2.9 ms with 256 KiB, and 7.8 ms with 1 MiB. Without a sync until the end of the snapshot it took
/// 41 ms or more (docs/benchmarks/waits.md).
const SYNC_BYTES: u64 = 256 << 10;

/// A file to which bytes are appended.
#[derive(Debug)]
pub(super) struct AppendFile<F> {
    /// The snapshot that it will contain.
    pub id: SnapshotId,
    pub file: F,
    /// Its length in bytes, synced or not.
    pub bytes: u64,
    unsynced_bytes: u64,
}

/// Writer of a new snapshot.
#[derive(Debug)]
pub(super) struct SnapshotWriter<F> {
    pub out: AppendFile<F>,
    chain: ChainedChecksum,
    blocks: u64,
    buffer: Vec<u8>,
}

impl<F: DiskFile> AppendFile<F> {
    /// Creates an empty file.
    pub fn begin<D: Disk<File = F>>(
        disk: &D,
        id: SnapshotId,
        stage: SnapshotFileKind,
    ) -> Result<AppendFile<F>, DiskError> {
        let file = disk.create(&file_name(id, stage), 0)?;
        Ok(AppendFile { id, file, bytes: 0, unsynced_bytes: 0 })
    }

    /// Appends bytes. They are durable after [`AppendFile::sync`].
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

impl<F: DiskFile> SnapshotWriter<F> {
    /// Creates the file and writes its header.
    pub fn begin<D: Disk<File = F>>(disk: &D, id: SnapshotId) -> Result<SnapshotWriter<F>, DiskError> {
        let mut out = AppendFile::begin(disk, id, SnapshotFileKind::Writing)?;
        let (header, chain) = format::encode_header(id);
        out.append(&header)?;
        Ok(SnapshotWriter { out, chain, blocks: 0, buffer: Vec::new() })
    }

    /// Appends a block.
    pub fn block(&mut self, payload: &[u8]) -> Result<(), DiskError> {
        self.buffer.clear();
        self.chain = format::encode_block(self.chain, payload, &mut self.buffer);
        self.blocks += 1;
        self.out.append(&self.buffer)
    }

    /// Appends the trailer and makes everything durable. Returns the checksum of the file.
    pub fn finish(&mut self) -> Result<u32, DiskError> {
        let trailer_bytes = (format::BLOCK_HEADER_BYTES + format::TRAILER_BODY_BYTES) as u64;
        let trailer = Trailer { blocks: self.blocks, file_bytes: self.out.bytes + trailer_bytes };
        self.buffer.clear();
        let chain = trailer.encode(self.chain, &mut self.buffer);
        self.out.append(&self.buffer)?;
        self.out.sync()?;
        Ok(chain.0)
    }
}
