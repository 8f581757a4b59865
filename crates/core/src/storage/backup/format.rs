//! The bytes of a backup: its header, the frames of its chunks, and their fixed payloads.
//!
//! Owns layouts and checksums. The reader owns the order of chunks.

use alloc::vec::Vec;
use uuid::Uuid;

use super::super::framing::{ChainedChecksum, HeaderError};
use super::super::le;
use super::super::snapshot::SnapshotId;
use super::{Header, ShardSummary};
use crate::limits;
use crate::types::{LogIndex, NodeId, ShardId, Term, Version};

/// Bytes before the first chunk.
pub(super) const HEADER_BYTES: usize = 84;

/// Bytes of a chunk before its payload.
pub(super) const CHUNK_HEADER_BYTES: usize = 12;

const SHARD_BYTES: usize = 24;
const SHARD_END_BYTES: usize = 32;
const END_BYTES: usize = 40;

const MAGIC: &[u8; 8] = b"TIDEBKUP";
const VERSION: u32 = 2;
const END_MAGIC: &[u8; 8] = b"BKUPDONE";
const FLAG_STALE: u32 = 1;
/// Offset of the header's checksum.
const CRC_OFFSET: usize = HEADER_BYTES - 4;

/// The kind of a chunk, with its number on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Beginning of a shard.
    Shard = 1,
    /// A block of the shard's snapshot.
    Block = 2,
    /// End of the shard.
    ShardEnd = 3,
    /// End of the backup.
    End = 4,
}

/// The header of a chunk, before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHeader {
    pub kind: Kind,
    pub payload_bytes: usize,
    /// The checksum after the chunk.
    pub chain: ChainedChecksum,
}

/// The totals at the end of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub shards: u64,
    pub blocks: u64,
    pub records: u64,
    /// Size of the file, including this chunk.
    pub file_bytes: u64,
}

/// Appends the header and returns the checksum after it.
pub(super) fn encode_header(header: &Header, out: &mut Vec<u8>) -> ChainedChecksum {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let flags = if header.is_stale { FLAG_STALE } else { 0 };
    bytes[12..16].copy_from_slice(&flags.to_le_bytes());
    bytes[16..32].copy_from_slice(header.cluster.as_bytes());
    bytes[32..48].copy_from_slice(header.backup.as_bytes());
    let numbers = [header.node.0, header.created_unix_ms, header.shards, header.about_bytes];
    for (place, number) in bytes[48..CRC_OFFSET].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes[..CRC_OFFSET]);
    bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&bytes);
    ChainedChecksum(crc)
}

/// Reads a header of [`HEADER_BYTES`]. Magic, version and checksum have the same offsets in every
/// version, so that an unknown version can be distinguished from damage.
pub(super) fn decode_header(bytes: &[u8]) -> Result<(Header, ChainedChecksum), HeaderError> {
    if &bytes[..8] != MAGIC {
        return Err(HeaderError::Damaged("this is no backup: it has no magic number"));
    }
    let crc = crc32c::crc32c(&bytes[..CRC_OFFSET]);
    if crc != le::u32(bytes, CRC_OFFSET) {
        return Err(HeaderError::Damaged("the checksum of the header does not match"));
    }
    let version = le::u32(bytes, 8);
    if version != VERSION {
        return Err(HeaderError::Version(version));
    }
    let uuid = |at: usize| Uuid::from_slice(&bytes[at..at + 16]).expect("invariant: 16 bytes are a uuid");
    let header = Header {
        cluster: uuid(16),
        backup: uuid(32),
        node: NodeId(le::u64(bytes, 48)),
        created_unix_ms: le::u64(bytes, 56),
        is_stale: le::u32(bytes, 12) & FLAG_STALE != 0,
        shards: le::u64(bytes, 64),
        about_bytes: le::u64(bytes, 72),
    };
    Ok((header, ChainedChecksum(crc)))
}

impl Kind {
    fn of(number: u32) -> Option<Kind> {
        [Kind::Shard, Kind::Block, Kind::ShardEnd, Kind::End].into_iter().find(|kind| *kind as u32 == number)
    }

    /// Whether a payload of this kind can have this length.
    fn admits(self, payload_bytes: usize) -> bool {
        match self {
            Kind::Shard => payload_bytes == SHARD_BYTES,
            Kind::Block => (1..=limits::SNAPSHOT_BLOCK_BYTES_MAX).contains(&payload_bytes),
            Kind::ShardEnd => payload_bytes == SHARD_END_BYTES,
            Kind::End => payload_bytes == END_BYTES,
        }
    }
}

/// The checksum after another chunk.
pub(super) fn after_chunk(chain: ChainedChecksum, kind: Kind, payload: &[u8]) -> ChainedChecksum {
    let length = payload.len() as u32;
    chain.after(&[&length.to_le_bytes(), &(kind as u32).to_le_bytes(), payload])
}

/// Appends a chunk and returns the checksum after it.
pub(super) fn encode_chunk(
    chain: ChainedChecksum,
    kind: Kind,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> ChainedChecksum {
    assert!(kind.admits(payload.len()), "invariant: a chunk of a backup has a length of its kind");
    let chain = after_chunk(chain, kind, payload);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&(kind as u32).to_le_bytes());
    out.extend_from_slice(&chain.0.to_le_bytes());
    out.extend_from_slice(payload);
    chain
}

/// Reads a chunk's header of [`CHUNK_HEADER_BYTES`].
pub(super) fn decode_chunk_header(bytes: &[u8]) -> Result<ChunkHeader, &'static str> {
    let payload_bytes = le::u32(bytes, 0) as usize;
    let kind = Kind::of(le::u32(bytes, 4)).ok_or("there is no such kind of chunk")?;
    if !kind.admits(payload_bytes) {
        return Err("the chunk has an impossible length");
    }
    Ok(ChunkHeader { kind, payload_bytes, chain: ChainedChecksum(le::u32(bytes, 8)) })
}

/// Encodes the start of a shard: its number, and the index and term of its snapshot.
pub(super) fn encode_shard(id: SnapshotId) -> [u8; SHARD_BYTES] {
    numbers([id.shard.0, id.index.0, id.term.0])
}

pub(super) fn decode_shard(payload: &[u8]) -> SnapshotId {
    SnapshotId {
        shard: ShardId(le::u64(payload, 0)),
        index: LogIndex(le::u64(payload, 8)),
        term: Term(le::u64(payload, 16)),
    }
}

/// Encodes the end of a shard: what the reader compares with what it has read.
pub(super) fn encode_shard_end(shard: &ShardSummary) -> [u8; SHARD_END_BYTES] {
    numbers([shard.blocks, shard.bytes, shard.records, shard.revision.0])
}

/// Reads the totals at the end of the shard `id`.
pub(super) fn decode_shard_end(id: SnapshotId, payload: &[u8]) -> ShardSummary {
    ShardSummary {
        id,
        blocks: le::u64(payload, 0),
        bytes: le::u64(payload, 8),
        records: le::u64(payload, 16),
        revision: Version(le::u64(payload, 24)),
    }
}

/// Size of the chunk with the totals.
pub(super) const END_CHUNK_BYTES: u64 = (CHUNK_HEADER_BYTES + END_BYTES) as u64;

impl Totals {
    /// The totals of complete shards in a file of this size.
    pub fn of(shards: &[ShardSummary], file_bytes: u64) -> Totals {
        Totals {
            shards: shards.len() as u64,
            blocks: shards.iter().map(|shard| shard.blocks).sum(),
            records: shards.iter().map(|shard| shard.records).sum(),
            file_bytes,
        }
    }

    pub fn encode(&self) -> [u8; END_BYTES] {
        let mut payload = [0; END_BYTES];
        payload[..32].copy_from_slice(&numbers::<32>([
            self.shards,
            self.blocks,
            self.records,
            self.file_bytes,
        ]));
        payload[32..].copy_from_slice(END_MAGIC);
        payload
    }

    pub fn decode(payload: &[u8]) -> Result<Totals, &'static str> {
        if &payload[32..END_BYTES] != END_MAGIC {
            return Err("the end has no magic number");
        }
        let number = |at| le::u64(payload, at);
        Ok(Totals { shards: number(0), blocks: number(8), records: number(16), file_bytes: number(24) })
    }
}

/// Encodes numbers of 8 bytes each, `BYTES` in all.
fn numbers<const BYTES: usize>(numbers: impl IntoIterator<Item = u64>) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}
