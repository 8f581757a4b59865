//! The bytes of a segment: its name, its header, and the header of a frame.
//!
//! Owns layouts and their checksums, nothing that reads or writes a file. `docs/storage-format.md` describes the
//! same bytes for people; a change here is a new version there.
//!
//! Invariant: no checksum of a frame can hold by accident of history. Every checksum starts from the segment's
//! number and random salt, and a frame header's also covers the offset it stands at. So neither the remains of a
//! recycled segment, nor a value that holds a copy of a log file, is ever taken for a frame.

use alloc::format;
use alloc::string::String;

use super::super::le;
use crate::limits;

/// Where frames begin. The header has a page of its own, so that no later write ever touches it.
pub(super) const DATA_START: u64 = 4096;

/// Bytes of a frame before its payload. As many zero bytes follow the last frame: the mark of a clean end.
pub(super) const FRAME_HEADER_BYTES: usize = 40;

/// Frames start at multiples of this, which is what lets recovery search for them behind damage.
pub(super) const FRAME_ALIGN: u64 = 8;

/// Smallest segment: the header's page and one page of frames.
pub const SEGMENT_BYTES_MIN: u64 = 2 * DATA_START;

/// Largest segment believed from a header.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 34;

const SEGMENT_MAGIC: &[u8; 8] = b"TIDELWAL";
const SEGMENT_HEADER_BYTES: usize = 44;
/// Version 2 added the restart record. What stands in segments of version 1 reads the same.
const VERSION: u32 = 3;
const VERSION_OLDEST: u32 = 1;
const FRAME_MAGIC: &[u8; 3] = b"TLF";
const FLAG_FIRST: u8 = 1;
const FLAG_LAST: u8 = 2;

/// What stands in a segment's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// Counted from 1 and equal to the one in the file's name.
    pub number: u64,
    /// Size of the whole file.
    pub segment_bytes: u64,
    /// Random; new whenever the file gets a new number.
    pub salt: u64,
}

/// What stands before the payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Bytes of payload, without the zero bytes that align the next frame.
    pub payload_bytes: u32,
    /// Counts the frames of the log, from 1.
    pub ordinal: u64,
    /// Every frame up to this ordinal was durable before this one was written.
    pub durable: u64,
    /// Whether it opens a group.
    pub first: bool,
    /// Whether it closes a group.
    pub last: bool,
    /// Checksum of the payload and its alignment.
    pub payload_crc: u32,
}

/// Why a segment's header is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// Not what was written.
    Damaged(&'static str),
    /// Intact, of a format that this release does not know.
    Version(u32),
}

impl SegmentHeader {
    /// Writes the header at the front of `page`.
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

    /// Reads the header at the front of `page`. The magic and the place of the checksum are the same in every
    /// version, so that an unknown version is told from damage.
    pub fn decode(page: &[u8]) -> Result<SegmentHeader, HeaderFault> {
        if page.len() < SEGMENT_HEADER_BYTES {
            return Err(HeaderFault::Damaged("the segment header is cut off"));
        }
        if &page[..8] != SEGMENT_MAGIC {
            return Err(HeaderFault::Damaged("the segment header has no magic number"));
        }
        if crc32c::crc32c(&page[..40]) != le::u32(page, 40) {
            return Err(HeaderFault::Damaged("the checksum of the segment header does not match"));
        }
        let version = le::u32(page, 8);
        if !(VERSION_OLDEST..=VERSION).contains(&version) {
            return Err(HeaderFault::Version(version));
        }
        let header = SegmentHeader {
            number: le::u64(page, 16),
            segment_bytes: le::u64(page, 24),
            salt: le::u64(page, 32),
        };
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&header.segment_bytes) {
            return Err(HeaderFault::Damaged("the segment header has an impossible size"));
        }
        Ok(header)
    }

    /// What [`room_in`] says of this segment.
    pub fn room(&self, offset: u64) -> usize {
        room_in(self.segment_bytes, offset)
    }

    /// The checksum of a frame's payload, its alignment included.
    pub fn payload_crc(&self, padded_payload: &[u8]) -> u32 {
        crc32c::crc32c_append(self.crc_seed(), padded_payload)
    }

    /// Writes the header of a frame that stands at `offset` of this segment at the front of `out`.
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

    /// Reads the frame header at the front of `bytes`, which stand at `offset` of this segment. The error says
    /// what is wrong with them.
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
    /// Bytes of the payload with the zero bytes that align the next frame.
    pub fn padded_bytes(&self) -> usize {
        pad(self.payload_bytes as usize)
    }

    /// Bytes from the start of this frame to the start of the next.
    pub fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER_BYTES + self.padded_bytes()) as u64
    }
}

/// Most payload bytes, a multiple of [`FRAME_ALIGN`], that a frame at `offset` of a segment can hold with the end mark
/// behind.
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

/// The name of a file that was, or is to become, segment `number`, and holds nothing.
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
            (0, Err(HeaderFault::Version(0))),
            (1, Ok(SEGMENT)),
            (2, Ok(SEGMENT)),
            (3, Ok(SEGMENT)),
            (4, Err(HeaderFault::Version(4))),
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
