//! The bytes of a segment: its name, its header, and the header of a frame.
//!
//! Owns layouts and checksums, but no file access. `docs/reference/files.md` documents the same
//! bytes; a change here requires a new version there.
//!
//! Invariant: old bytes are never mistaken for a frame. Every checksum starts from the segment's
//! number and random salt, and that of a frame header also covers its offset. So neither old
//! content of a reused segment, nor a value that contains a copy of a log file, has valid
//! checksums.

use alloc::format;
use alloc::string::String;

use super::super::framing::HeaderError;
use super::super::le;
use crate::limits;

/// Offset of the first frame. The header has a page to itself, so that no later write touches it.
pub(super) const DATA_START: u64 = 4096;

/// Size of a frame header in bytes. As many zero bytes follow the last frame, as the end mark.
pub(super) const FRAME_HEADER_BYTES: usize = 40;

/// Alignment of frames, which lets recovery search for frames after damage.
pub(super) const FRAME_ALIGN: u64 = 8;

/// Minimum size of a segment: the header's page and one page of frames.
pub const SEGMENT_BYTES_MIN: u64 = 2 * DATA_START;

/// Maximum size of a segment that a header may state.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 34;

const SEGMENT_MAGIC: &[u8; 8] = b"TIDELWAL";
const SEGMENT_HEADER_BYTES: usize = 44;
/// Version 2 added the restart record, version 3 the incarnation record. Segments of the older
/// versions are read in the same way.
const VERSION: u32 = 3;
const VERSION_OLDEST: u32 = 1;
const FRAME_MAGIC: &[u8; 3] = b"TLF";
const FLAG_FIRST: u8 = 1;
const FLAG_LAST: u8 = 2;

/// The header in a segment's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// Segment number, from 1. It equals the number in the file's name.
    pub number: u64,
    /// Size of the whole file.
    pub segment_bytes: u64,
    /// Random; changes whenever the file gets a new number.
    pub salt: u64,
}

/// The header of a frame, before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Bytes of payload, without the padding that aligns the next frame.
    pub payload_bytes: u32,
    /// Number of the frame in the log, from 1.
    pub ordinal: u64,
    /// Every frame up to this ordinal was durable before this one was written.
    pub durable: u64,
    /// Whether the frame begins a group of frames that are valid only together.
    pub first: bool,
    /// Whether the frame ends its group.
    pub last: bool,
    /// Checksum of the payload and its padding.
    pub payload_crc: u32,
}

impl SegmentHeader {
    /// Writes the header to the beginning of `page`.
    pub fn encode(&self, page: &mut [u8]) {
        page[..8].copy_from_slice(SEGMENT_MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[12..16].fill(0);
        page[16..24].copy_from_slice(&self.number.to_le_bytes());
        page[24..32].copy_from_slice(&self.segment_bytes.to_le_bytes());
        page[32..40].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&page[..40]);
        page[40..SEGMENT_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the header at the beginning of `page`. The magic and the offset of the checksum are
    /// the same in every version, so that an unknown version can be distinguished from damage.
    pub fn decode(page: &[u8]) -> Result<SegmentHeader, HeaderError> {
        if page.len() < SEGMENT_HEADER_BYTES {
            return Err(HeaderError::Damaged("the segment header is cut off"));
        }
        if &page[..8] != SEGMENT_MAGIC {
            return Err(HeaderError::Damaged("the segment header has no magic number"));
        }
        if crc32c::crc32c(&page[..40]) != le::u32(page, 40) {
            return Err(HeaderError::Damaged("the checksum of the segment header does not match"));
        }
        let version = le::u32(page, 8);
        if !(VERSION_OLDEST..=VERSION).contains(&version) {
            return Err(HeaderError::Version(version));
        }
        let header = SegmentHeader {
            number: le::u64(page, 16),
            segment_bytes: le::u64(page, 24),
            salt: le::u64(page, 32),
        };
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&header.segment_bytes) {
            return Err(HeaderError::Damaged("the segment header has an impossible size"));
        }
        Ok(header)
    }

    /// [`room_in`] this segment.
    pub fn room(&self, offset: u64) -> usize {
        room_in(self.segment_bytes, offset)
    }

    /// The checksum of a frame's payload with its padding.
    pub fn payload_crc(&self, padded_payload: &[u8]) -> u32 {
        crc32c::crc32c_append(self.crc_seed(), padded_payload)
    }

    /// Writes the header of a frame at `offset` of this segment to the beginning of `out`.
    pub fn encode_frame(&self, offset: u64, frame: &FrameHeader, out: &mut [u8]) {
        out[..3].copy_from_slice(FRAME_MAGIC);
        out[3] = (u8::from(frame.first) * FLAG_FIRST) | (u8::from(frame.last) * FLAG_LAST);
        out[4..8].copy_from_slice(&frame.payload_bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.salt.to_le_bytes());
        out[16..24].copy_from_slice(&frame.ordinal.to_le_bytes());
        out[24..32].copy_from_slice(&frame.durable.to_le_bytes());
        out[32..36].copy_from_slice(&frame.payload_crc.to_le_bytes());
        let crc = self.frame_crc(offset, &out[..36]);
        out[36..FRAME_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the frame header at the beginning of `bytes`, which are at `offset` of this segment.
    /// The error states the fault.
    pub fn decode_frame(&self, offset: u64, bytes: &[u8]) -> Result<FrameHeader, &'static str> {
        if &bytes[..3] != FRAME_MAGIC {
            return Err("no frame header where one must stand");
        }
        if le::u64(bytes, 8) != self.salt {
            return Err("the frame header is not of this segment");
        }
        if self.frame_crc(offset, &bytes[..36]) != le::u32(bytes, 36) {
            return Err("the checksum of the frame header does not match");
        }
        let flags = bytes[3];
        let header = FrameHeader {
            payload_bytes: le::u32(bytes, 4),
            ordinal: le::u64(bytes, 16),
            durable: le::u64(bytes, 24),
            first: flags & FLAG_FIRST != 0,
            last: flags & FLAG_LAST != 0,
            payload_crc: le::u32(bytes, 32),
        };
        if header.payload_bytes == 0 || header.payload_bytes as usize > self.room(offset) {
            return Err("the frame header has an impossible length");
        }
        Ok(header)
    }

    fn crc_seed(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.salt.to_le_bytes()), &self.number.to_le_bytes())
    }

    fn frame_crc(&self, offset: u64, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.crc_seed(), &offset.to_le_bytes()), bytes)
    }
}

impl FrameHeader {
    /// Bytes of the payload with its padding.
    pub fn padded_bytes(&self) -> usize {
        pad(self.payload_bytes as usize)
    }

    /// Bytes from the start of this frame to the start of the next.
    pub fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER_BYTES + self.padded_bytes()) as u64
    }
}

/// Maximum payload, a multiple of [`FRAME_ALIGN`], of a frame at `offset` of a segment, with an end
/// mark after it.
pub(super) fn room_in(segment_bytes: u64, offset: u64) -> usize {
    let taken = offset + 2 * FRAME_HEADER_BYTES as u64;
    let room = segment_bytes.saturating_sub(taken) / FRAME_ALIGN * FRAME_ALIGN;
    usize::try_from(room).unwrap_or(usize::MAX).min(limits::WAL_FRAME_BYTES_MAX)
}

/// `bytes` rounded up to [`FRAME_ALIGN`].
pub(super) fn pad(bytes: usize) -> usize {
    bytes.next_multiple_of(FRAME_ALIGN as usize)
}

/// The name of segment `number`. Sixteen digits outlast any disk, and let names sort as numbers do.
pub(super) fn segment_name(number: u64) -> String {
    format!("wal-{number:016}.log")
}

/// The name of an unused file that was, or will become, segment `number`.
pub(super) fn spare_name(number: u64) -> String {
    format!("wal-spare-{number:016}.log")
}

/// The number of a segment, if `name` is the name of one.
pub(super) fn parse_segment_name(name: &str) -> Option<u64> {
    parse(name, "wal-")
}

/// The number of a spare file, if `name` is the name of one.
pub(super) fn parse_spare_name(name: &str) -> Option<u64> {
    parse(name, "wal-spare-")
}

fn parse(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(".log")?;
    if digits.len() != 16 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const SEGMENT: SegmentHeader = SegmentHeader { number: 7, segment_bytes: 1 << 20, salt: 0x5a17 };
    const FRAME: FrameHeader = FrameHeader {
        payload_bytes: 100,
        ordinal: 9,
        durable: 8,
        first: true,
        last: false,
        payload_crc: 0xabcd,
    };

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let mut page = vec![0; 64];
        SEGMENT.encode(&mut page);
        assert_eq!(SegmentHeader::decode(&page), Ok(SEGMENT));
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&page).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        let mut frame = vec![0; FRAME_HEADER_BYTES];
        SEGMENT.encode_frame(4096, &FRAME, &mut frame);
        assert_eq!(SEGMENT.decode_frame(4096, &frame), Ok(FRAME));
        for bit in 0..FRAME_HEADER_BYTES * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(SEGMENT.decode_frame(4096, &frame).is_err(), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_frame_is_believed_only_where_it_was_written() {
        let mut frame = vec![0; FRAME_HEADER_BYTES];
        SEGMENT.encode_frame(4096, &FRAME, &mut frame);
        assert!(SEGMENT.decode_frame(4104, &frame).is_err());
        assert!(SegmentHeader { salt: 1, ..SEGMENT }.decode_frame(4096, &frame).is_err());
        assert!(SegmentHeader { number: 8, ..SEGMENT }.decode_frame(4096, &frame).is_err());
    }

    #[test]
    fn an_unknown_version_is_told_from_damage() {
        let mut page = vec![0; 64];
        SEGMENT.encode(&mut page);
        for (version, decoded) in [
            (0, Err(HeaderError::Version(0))),
            (1, Ok(SEGMENT)),
            (2, Ok(SEGMENT)),
            (3, Ok(SEGMENT)),
            (4, Err(HeaderError::Version(4))),
        ] {
            page[8] = version;
            let crc = crc32c::crc32c(&page[..40]);
            page[40..44].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(SegmentHeader::decode(&page), decoded);
        }
    }

    #[test]
    fn only_exact_names_are_segments() {
        assert_eq!(parse_segment_name(&segment_name(12)), Some(12));
        assert_eq!(parse_spare_name(&spare_name(34)), Some(34));
        for name in ["wal-12.log", "wal-+000000000000012.log", "wal-spare-.log", "control", "LOCK", ""] {
            assert_eq!((parse_segment_name(name), parse_spare_name(name)), (None, None), "{name}");
        }
        assert_eq!(parse_segment_name(&spare_name(3)), None);
    }
}
