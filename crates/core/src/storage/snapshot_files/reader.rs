//! Reads and verifies a snapshot file.
//!
//! Owns every check between the bytes and the state: id, lengths, checksums, order, trailer, and
//! the end of the file. A state is returned only if all checks pass. Memory beyond the state is
//! bounded for any input.

use alloc::string::String;
use alloc::vec::Vec;

use super::super::disk::{DiskError, DiskFile};
use super::super::framing::HeaderError;
use super::super::snapshot::SnapshotId;
use super::format::{
    BLOCK_HEADER_BYTES, HEADER_BYTES, TRAILER_BODY_BYTES, Trailer, after_block, decode_block_header,
    decode_header,
};
use crate::machine::{Machine, Restore, RestoreError, Restored};
use crate::types::ShardId;

/// Number of bytes of blocks to read at a time.
const WINDOW_BYTES: usize = 1 << 20;

/// Why a snapshot file is not loaded. Offsets are in bytes from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotFileError {
    /// A file operation failed.
    #[error("a snapshot cannot be accessed: {0}")]
    Disk(#[from] DiskError),
    /// The bytes of the file are not those that were written.
    #[error("{file} is damaged at byte offset {offset}: {reason}")]
    Damaged {
        /// Name of the file in the data directory.
        file: String,
        /// Where the damage begins, or the check failed that covers it.
        offset: u64,
        /// The check that failed.
        reason: &'static str,
    },
    /// The file has a format that this release does not know, most likely of a newer one.
    #[error("{file} has format version {version}, which this release does not know")]
    Version {
        /// Name of the file in the data directory.
        file: String,
        /// The version in its header.
        version: u32,
    },
    /// Intact, but not a state that this release knows.
    #[error("{file} holds no state that this release knows, as byte offset {offset} shows: {source}")]
    Restore {
        /// Name of the file in the data directory.
        file: String,
        /// Offset of the block that shows it.
        offset: u64,
        /// Why the block is not a part of a state.
        source: RestoreError,
    },
}

/// A file and the read position in it.
struct Reader<'a, F> {
    file: &'a F,
    name: &'a str,
    file_bytes: u64,
    offset: u64,
    window: Vec<u8>,
    window_start: u64,
}

/// Loads snapshot `id` from `file`. Errors call the file `name`. Returns its state and the size of
/// the file.
pub(super) fn load<F: DiskFile>(
    file: &F,
    name: &str,
    id: SnapshotId,
) -> Result<(Restored, u64), SnapshotFileError> {
    let unknown = |offset, source| SnapshotFileError::Restore { file: name.into(), offset, source };
    let mut restore = Restore::default();
    let file_bytes = read(file, name, id, |offset, payload| {
        restore.block(payload).map_err(|source| unknown(offset, source))
    })?;
    let restored = restore.finish().map_err(|source| unknown(file_bytes, source))?;
    if matches!(restored.machine, Machine::Registry(_)) != (id.shard == ShardId::PRIME) {
        let (file, reason) = (name.into(), "it holds the state of another kind of shard");
        return Err(SnapshotFileError::Damaged { file, offset: 0, reason });
    }
    Ok((restored, file_bytes))
}

/// Reads snapshot `id` from `file` and passes each verified block with its offset to `take`. Errors
/// call the file `name`. Returns the size of the file. Only then are the blocks known to be a
/// complete snapshot.
pub(super) fn read<F: DiskFile, E: From<SnapshotFileError>>(
    file: &F,
    name: &str,
    id: SnapshotId,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let file_bytes = file.size().map_err(SnapshotFileError::Disk)?;
    let mut reader = Reader { file, name, file_bytes, offset: 0, window: Vec::new(), window_start: 0 };
    let damaged = |offset, reason| SnapshotFileError::Damaged { file: name.into(), offset, reason };

    let (found, mut chain) = match decode_header(reader.take(HEADER_BYTES)?) {
        Ok(header) => header,
        Err(HeaderError::Damaged(reason)) => return Err(damaged(0, reason).into()),
        Err(HeaderError::Version(version)) => {
            return Err(SnapshotFileError::Version { file: name.into(), version }.into());
        }
    };
    if found != id {
        return Err(damaged(0, "the header names another snapshot").into());
    }
    let mut blocks = 0;
    let (end, header) = loop {
        let start = reader.offset;
        let header =
            decode_block_header(reader.take(BLOCK_HEADER_BYTES)?).map_err(|reason| damaged(start, reason))?;
        if header.payload_bytes == 0 {
            break (start, header);
        }
        let payload = reader.take(header.payload_bytes as usize)?;
        chain = after_block(chain, payload);
        if chain != header.chain {
            return Err(damaged(start, "the checksum of the block does not match").into());
        }
        take(start, payload)?;
        blocks += 1;
    };
    let body = reader.take(TRAILER_BODY_BYTES)?;
    let trailer = Trailer::decode(chain, header, body).map_err(|reason| damaged(end, reason))?;
    if trailer != (Trailer { blocks, file_bytes }) || reader.offset != file_bytes {
        return Err(damaged(end, "the trailer does not match what stands before and behind it").into());
    }
    Ok(file_bytes)
}

impl<F: DiskFile> Reader<'_, F> {
    /// The next `bytes` bytes.
    fn take(&mut self, bytes: usize) -> Result<&[u8], SnapshotFileError> {
        let (start, end) = (self.offset, self.offset + bytes as u64);
        if end > self.file_bytes {
            let (file, offset) = (self.name.into(), self.file_bytes);
            return Err(SnapshotFileError::Damaged { file, offset, reason: "the file ends too early" });
        }
        if end > self.window_start + self.window.len() as u64 {
            let left = usize::try_from(self.file_bytes - start).unwrap_or(usize::MAX);
            self.window.clear();
            self.window.resize(bytes.max(WINDOW_BYTES.min(left)), 0);
            self.window_start = start;
            self.file.read_at(start, &mut self.window)?;
        }
        self.offset = end;
        let at = (start - self.window_start) as usize;
        Ok(&self.window[at..at + bytes])
    }
}
