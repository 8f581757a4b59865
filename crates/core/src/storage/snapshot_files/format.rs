//! The bytes of a snapshot's file: its name, header, blocks and trailer.
//!
//! Owns layouts and checksums, but no file access. `docs/reference/files-snapshots.md` documents
//! the same bytes; a change here requires a new version there.
//!
//! Invariants:
//! - The file is canonical: the same id and the same blocks give the same bytes on every replica.
//! - The checksums form a chain. Each continues the previous one, and the first continues that of
//!   the header, which covers the id. So a block is valid only in its file and at its position, and
//!   a file only as a whole.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::framing::{ChainedChecksum, HeaderError};
use super::super::le;
use super::super::snapshot::SnapshotId;
use crate::limits;
use crate::types::{LogIndex, ShardId, Term};

/// Bytes before the first block.
pub(super) const HEADER_BYTES: usize = 44;

/// Bytes of a block before its payload: length and checksum. The trailer begins in the same way,
/// with length zero, which no block has.
pub(super) const BLOCK_HEADER_BYTES: usize = 8;

/// Bytes of the trailer after that beginning.
pub(super) const TRAILER_BODY_BYTES: usize = 24;

const MAGIC: &[u8; 8] = b"TIDESNAP";
const VERSION: u32 = 2;
/// The version before keys could expire. It is read, but not written. The first block determines
/// the layout of the others.
const VERSION_PLAIN: u32 = 1;
const END_MAGIC: &[u8; 8] = b"SNAPDONE";

/// The kind of a file with the name of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotFileKind {
    /// Complete and durable.
    Finished,
    /// Being written.
    Writing,
    /// Being received.
    Receiving,
}

/// The header of a block, before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// Bytes of the payload; zero for the trailer.
    pub payload_bytes: u32,
    /// The checksum after the block.
    pub chain: ChainedChecksum,
}

/// The trailer after the last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    /// Number of blocks before the trailer.
    pub blocks: u64,
    /// Size of the file, including the trailer.
    pub file_bytes: u64,
}

/// Encodes the header and returns the checksum after it.
pub(super) fn encode_header(id: SnapshotId) -> ([u8; HEADER_BYTES], ChainedChecksum) {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&id.shard.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&id.index.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&id.term.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..40]);
    bytes[40..].copy_from_slice(&crc.to_le_bytes());
    (bytes, ChainedChecksum(crc))
}

/// Reads a header of [`HEADER_BYTES`]. The magic and the offset of the checksum are the same in
/// every version, so that an unknown version can be distinguished from damage.
pub(super) fn decode_header(bytes: &[u8]) -> Result<(SnapshotId, ChainedChecksum), HeaderError> {
    if &bytes[..8] != MAGIC {
        return Err(HeaderError::Damaged("the header has no magic number"));
    }
    let crc = crc32c::crc32c(&bytes[..40]);
    if crc != le::u32(bytes, 40) {
        return Err(HeaderError::Damaged("the checksum of the header does not match"));
    }
    let version = le::u32(bytes, 8);
    if !(VERSION_PLAIN..=VERSION).contains(&version) {
        return Err(HeaderError::Version(version));
    }
    let (shard, index, term) =
        (ShardId(le::u64(bytes, 16)), LogIndex(le::u64(bytes, 24)), Term(le::u64(bytes, 32)));
    Ok((SnapshotId { shard, index, term }, ChainedChecksum(crc)))
}

/// The checksum after another block, whose length fits its field.
pub(super) fn after_block(chain: ChainedChecksum, payload: &[u8]) -> ChainedChecksum {
    chain.after(&[&(payload.len() as u32).to_le_bytes(), payload])
}

/// The checksum after the trailer, whose bytes after the checksum field are `body`.
fn after_trailer(chain: ChainedChecksum, body: &[u8]) -> ChainedChecksum {
    chain.after(&[&0u32.to_le_bytes(), body])
}

/// Appends a block to `out` and returns the checksum after it.
pub(super) fn encode_block(chain: ChainedChecksum, payload: &[u8], out: &mut Vec<u8>) -> ChainedChecksum {
    let length = u32::try_from(payload.len()).expect("invariant: a block is small");
    let chain = after_block(chain, payload);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&chain.0.to_le_bytes());
    out.extend_from_slice(payload);
    chain
}

/// Reads a block's header of [`BLOCK_HEADER_BYTES`].
pub(super) fn decode_block_header(bytes: &[u8]) -> Result<BlockHeader, &'static str> {
    let payload_bytes = le::u32(bytes, 0);
    if payload_bytes as usize > limits::SNAPSHOT_BLOCK_BYTES_MAX {
        return Err("the block has an impossible length");
    }
    Ok(BlockHeader { payload_bytes, chain: ChainedChecksum(le::u32(bytes, 4)) })
}

impl Trailer {
    /// Appends the trailer to `out` and returns the final checksum.
    pub fn encode(&self, chain: ChainedChecksum, out: &mut Vec<u8>) -> ChainedChecksum {
        let mut body = [0; TRAILER_BODY_BYTES];
        body[..8].copy_from_slice(&self.blocks.to_le_bytes());
        body[8..16].copy_from_slice(&self.file_bytes.to_le_bytes());
        body[16..].copy_from_slice(END_MAGIC);
        let chain = after_trailer(chain, &body);
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&chain.0.to_le_bytes());
        out.extend_from_slice(&body);
        chain
    }

    /// Reads the trailer after its `header`; `chain` is the checksum before it.
    pub fn decode(chain: ChainedChecksum, header: BlockHeader, body: &[u8]) -> Result<Trailer, &'static str> {
        if &body[16..TRAILER_BODY_BYTES] != END_MAGIC {
            return Err("the trailer has no magic number");
        }
        if after_trailer(chain, body) != header.chain {
            return Err("the checksum of the trailer does not match");
        }
        Ok(Trailer { blocks: le::u64(body, 0), file_bytes: le::u64(body, 8) })
    }
}

/// The name of a snapshot's file. Twenty digits hold any number, and let names sort as numbers do.
pub(super) fn file_name(id: SnapshotId, stage: SnapshotFileKind) -> String {
    let suffix = match stage {
        SnapshotFileKind::Finished => "",
        SnapshotFileKind::Writing => ".part",
        SnapshotFileKind::Receiving => ".recv",
    };
    let SnapshotId { shard, index, term } = id;
    format!("snapshot-{:020}-{:020}-{:020}{suffix}", shard.0, index.0, term.0)
}

/// The snapshot and the kind of the file, if `name` is the name of a snapshot file.
pub(super) fn parse_file_name(name: &str) -> Option<(SnapshotId, SnapshotFileKind)> {
    let rest = name.strip_prefix("snapshot-")?;
    let (numbers, stage) = if let Some(numbers) = rest.strip_suffix(".part") {
        (numbers, SnapshotFileKind::Writing)
    } else if let Some(numbers) = rest.strip_suffix(".recv") {
        (numbers, SnapshotFileKind::Receiving)
    } else {
        (rest, SnapshotFileKind::Finished)
    };
    let mut numbers = numbers.split('-').map(parse_number);
    let (shard, index, term) = (numbers.next()??, numbers.next()??, numbers.next()??);
    if numbers.next().is_some() {
        return None;
    }
    Some((SnapshotId { shard: ShardId(shard), index: LogIndex(index), term: Term(term) }, stage))
}

fn parse_number(digits: &str) -> Option<u64> {
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SnapshotId = SnapshotId { shard: ShardId(7), index: LogIndex(1 << 40), term: Term(3) };

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let (intact, chain) = encode_header(ID);
        assert_eq!(decode_header(&intact), Ok((ID, chain)));
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = intact;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode_header(&bytes), Err(HeaderError::Damaged(_))), "bit {bit}");
        }
    }

    #[test]
    fn an_unknown_version_is_distinguished_from_damage() {
        let of_version = |version: u8| {
            let (mut bytes, _) = encode_header(ID);
            bytes[8] = version;
            let crc = crc32c::crc32c(&bytes[..40]);
            bytes[40..].copy_from_slice(&crc.to_le_bytes());
            decode_header(&bytes).map(|(id, _)| id)
        };
        assert_eq!(of_version(1), Ok(ID), "from before keys could expire");
        for unknown in [0, 3] {
            assert_eq!(of_version(unknown), Err(HeaderError::Version(unknown.into())));
        }
    }

    #[test]
    fn a_chain_knows_name_order_and_bounds_of_blocks() {
        let begin = encode_header(ID).1;
        let other = encode_header(SnapshotId { term: Term(4), ..ID }).1;
        let after =
            |chain, blocks: &[&[u8]]| blocks.iter().fold(chain, |chain, block| after_block(chain, block));
        assert_ne!(after(begin, &[b"a"]), after(other, &[b"a"]));
        assert_ne!(after(begin, &[b"a", b"b"]), after(begin, &[b"b", b"a"]));
        assert_ne!(after(begin, &[b"ab", b"c"]), after(begin, &[b"a", b"bc"]));
    }

    #[test]
    fn only_exact_names_are_snapshots() {
        for id in [ID, SnapshotId { shard: ShardId(u64::MAX), index: LogIndex(0), term: Term(u64::MAX) }] {
            for stage in [SnapshotFileKind::Finished, SnapshotFileKind::Writing, SnapshotFileKind::Receiving]
            {
                assert_eq!(parse_file_name(&file_name(id, stage)), Some((id, stage)));
            }
        }
        let name = file_name(ID, SnapshotFileKind::Finished);
        for wrong in [
            "snapshot-1-2-3",
            "snapshot-",
            "control",
            &name[..name.len() - 1],
            &name.replace('7', "+"),
            &format!("{name}-{:020}", 1),
            &format!("{name}.tmp"),
            &name.replace("0000007", "9999999999999999999999"),
            &format!("snapshot-{}-{:020}-{:020}", "9".repeat(20), 1, 1),
        ] {
            assert_eq!(parse_file_name(wrong), None, "{wrong}");
        }
    }
}
