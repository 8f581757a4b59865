//! Reads and verifies a backup.
//!
//! Owns the order of chunks and the comparison of totals. It takes bytes as they come and buffers
//! at most a chunk.

use alloc::vec::Vec;
use bytes::Bytes;

use super::super::framing::{ChainedChecksum, HeaderError};
use super::super::snapshot::SnapshotId;
use super::counting::Counting;
use super::format::{
    self, CHUNK_HEADER_BYTES, ChunkHeader, HEADER_BYTES, Kind, Totals, after_chunk, decode_chunk_header,
    decode_header,
};
use super::{Header, ShardSummary, Summary};
use crate::machine::{BlockKind, RestoreError};
use crate::types::{LogIndex, ShardId};

/// Why bytes are not a backup. Offsets are in bytes from the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// The bytes are not those that were written.
    #[error("it is damaged at byte offset {offset}: {reason}")]
    Damaged {
        /// Where the damage begins, or the check failed that covers it.
        offset: u64,
        /// The check that failed.
        reason: &'static str,
    },
    /// The bytes end before the end of the backup.
    #[error("it is cut short: it ends at byte offset {offset}, before it is complete")]
    CutShort {
        /// Number of bytes that there are.
        offset: u64,
    },
    /// The format is one that this release does not know, most likely of a newer one.
    #[error("it has format version {0}, which this release does not know")]
    Version(u32),
    /// Intact, but not a state that this release knows.
    #[error("it holds no state that this release knows, as byte offset {offset} shows: {source}")]
    Restore {
        /// Beginning of the chunk that shows it.
        offset: u64,
        /// Why the chunk is not a part of a state.
        source: RestoreError,
    },
}

/// A part of a backup, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first part of every backup.
    Header(Header),
    /// Begins a shard, with the identity of the snapshot that follows.
    Shard(SnapshotId),
    /// The first block of the current shard's state, which says what follows and up to which
    /// revision. A restore needs nothing of it, a copy of the backup does.
    State(Bytes),
    /// Keys of the current shard, as [`crate::command::RestoredKey`] reads them in
    /// [`crate::command::RowLayout::Expiring`].
    Keys(Bytes),
    /// Configuration of the current shard, as [`crate::command::ConfigRestoration`] takes it.
    Config(Bytes),
    /// The end of the current shard.
    ShardEnd(ShardSummary),
    /// The end of the backup. Nothing may follow.
    End,
}

/// Reader of a backup. [`BackupReader::push`] bytes, take parts with [`BackupReader::next_part`]
/// until it needs more, and call [`BackupReader::finish`] after the last bytes. A returned part is
/// intact. Whether the whole backup is intact is known only after [`BackupReader::finish`].
#[derive(Debug, Default)]
pub struct BackupReader {
    unread: Vec<u8>,
    /// Offset of the next chunk in `unread`.
    start: usize,
    /// Offset of the next chunk in the file.
    offset: u64,
    /// The header, and the checksum so far.
    begun: Option<(Header, ChainedChecksum)>,
    shards: Vec<ShardSummary>,
    open: Option<Counting>,
    is_complete: bool,
}

impl BackupReader {
    /// Adds the next bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unread.drain(..self.start);
        self.start = 0;
        self.unread.extend_from_slice(bytes);
    }

    /// The next part; `None` if more bytes are needed.
    ///
    /// # Errors
    /// When the bytes are not a backup. Reading cannot continue.
    pub fn next_part(&mut self) -> Result<Option<Part>, BackupError> {
        let Some((_, chain)) = self.begun else { return self.next_header() };
        if self.is_complete {
            let is_end = self.unread.len() == self.start;
            return if is_end { Ok(None) } else { Err(self.damaged("something follows the end")) };
        }
        let rest = &self.unread[self.start..];
        let Some(head) = rest.first_chunk::<CHUNK_HEADER_BYTES>() else { return Ok(None) };
        let head = decode_chunk_header(head).map_err(|reason| self.damaged(reason))?;
        let Some(payload) = rest[CHUNK_HEADER_BYTES..].get(..head.payload_bytes) else { return Ok(None) };
        let chain = after_chunk(chain, head.kind, payload);
        if chain != head.chain {
            return Err(self.damaged("the checksum does not match"));
        }
        let payload = Bytes::copy_from_slice(payload);
        let part = self.chunk(head, payload)?;
        self.took(CHUNK_HEADER_BYTES + head.payload_bytes, chain);
        Ok(Some(part))
    }

    /// The content of the backup, after its last byte.
    ///
    /// # Errors
    /// When it is incomplete.
    pub fn finish(self) -> Result<Summary, BackupError> {
        let end = self.offset + (self.unread.len() - self.start) as u64;
        match self.begun {
            Some((header, _)) if self.is_complete && end == self.offset => {
                Ok(Summary { header, shards: self.shards, file_bytes: end })
            }
            _ if self.is_complete => Err(self.damaged("something follows the end")),
            _ => Err(BackupError::CutShort { offset: end }),
        }
    }

    fn next_header(&mut self) -> Result<Option<Part>, BackupError> {
        let Some(bytes) = self.unread[self.start..].first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let (header, chain) = decode_header(bytes).map_err(|fault| match fault {
            HeaderError::Damaged(reason) => self.damaged(reason),
            HeaderError::Version(version) => BackupError::Version(version),
        })?;
        self.begun = Some((header, chain));
        self.took(HEADER_BYTES, chain);
        Ok(Some(Part::Header(header)))
    }

    fn took(&mut self, bytes: usize, chain: ChainedChecksum) {
        self.start += bytes;
        self.offset += bytes as u64;
        self.begun = self.begun.map(|(header, _)| (header, chain));
    }

    /// Handles a chunk with a correct checksum. Remaining faults come from the writer.
    fn chunk(&mut self, head: ChunkHeader, payload: Bytes) -> Result<Part, BackupError> {
        match (head.kind, self.open.is_some()) {
            (Kind::Shard, false) => self.begin_shard(&payload),
            (Kind::Block, true) => self.block(payload),
            (Kind::ShardEnd, true) => self.end_shard(&payload),
            (Kind::End, false) => self.end(&payload),
            (Kind::Shard | Kind::End, true) => Err(self.damaged("the shard before is not ended")),
            (Kind::Block | Kind::ShardEnd, false) => Err(self.damaged("it belongs to no shard")),
        }
    }

    fn begin_shard(&mut self, payload: &[u8]) -> Result<Part, BackupError> {
        let id = format::decode_shard(payload);
        if self.shards.last().is_some_and(|last| last.id.shard >= id.shard) {
            return Err(self.damaged("shards are not in the order of their numbers"));
        }
        self.open = Some(Counting::begin(id));
        Ok(Part::Shard(id))
    }

    fn block(&mut self, payload: Bytes) -> Result<Part, BackupError> {
        let offset = self.offset;
        let open = self.open.as_mut().expect("invariant: a shard was begun");
        let kind = open.block(&payload).map_err(|source| BackupError::Restore { offset, source })?;
        Ok(match kind {
            BlockKind::First => Part::State(payload),
            BlockKind::Keys => Part::Keys(payload),
            BlockKind::Config => Part::Config(payload),
            BlockKind::Leases => return Err(self.damaged("a backup holds no leases")),
            BlockKind::Audit => return Err(self.damaged("a backup holds no audit records")),
        })
    }

    fn end_shard(&mut self, payload: &[u8]) -> Result<Part, BackupError> {
        let open = self.open.take().expect("invariant: a shard was begun");
        let counted = open.summary();
        let id = counted.id;
        if counted != format::decode_shard_end(id, payload) {
            return Err(self.damaged("the end of the shard does not match what stands before it"));
        }
        let is_empty = open.is_registry().is_none();
        if is_empty != (id.index == LogIndex(0)) {
            return Err(self.damaged("a shard has a state, and only then, if it has entries"));
        }
        if !is_empty && open.finish().is_err() {
            return Err(self.damaged("the keys of the shard are not those that its first block states"));
        }
        if !is_empty && open.is_registry() != Some(id.shard == ShardId::PRIME) {
            return Err(self.damaged("it is the state of another kind of shard"));
        }
        self.shards.push(counted);
        Ok(Part::ShardEnd(counted))
    }

    fn end(&mut self, payload: &[u8]) -> Result<Part, BackupError> {
        let totals = Totals::decode(payload).map_err(|reason| self.damaged(reason))?;
        let counted = Totals::of(&self.shards, self.offset + format::END_CHUNK_BYTES);
        let promised = self.begun.map(|(header, _)| header.shards);
        if totals != counted || promised != Some(counted.shards) {
            return Err(self.damaged("the end does not match what stands before it"));
        }
        self.is_complete = true;
        Ok(Part::End)
    }

    fn damaged(&self, reason: &'static str) -> BackupError {
        BackupError::Damaged { offset: self.offset, reason }
    }
}
