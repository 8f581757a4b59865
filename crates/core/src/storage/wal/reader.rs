//! Reads and verifies one segment.
//!
//! Owns the buffer through which a file is read, and finds frames in it. `recovery` decides what
//! the result means for the log. Memory is bounded by one frame for any input.

use alloc::vec::Vec;

use super::segment::{DATA_START, FRAME_ALIGN, FRAME_HEADER_BYTES, FrameHeader, SegmentHeader};
use crate::deliberate::{Fault, Faults};
use crate::storage::disk::{DiskError, DiskFile};

/// Read-ahead in bytes: frames are mostly small, and one read for each would be one system call for
/// each.
const WINDOW_BYTES: usize = 256 << 10;

/// What is found at a position where a frame may begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameSlot<'a> {
    /// An intact frame and its payload.
    Frame(FrameHeader, &'a [u8]),
    /// Zero bytes: nothing was written here.
    Blank,
    /// Neither; the text states the fault.
    Damaged(&'static str),
}

/// A segment and the part of it that is in memory.
pub(super) struct SegmentReader<'a, F> {
    file: &'a F,
    header: SegmentHeader,
    window: Vec<u8>,
    window_start: u64,
    /// The deliberate faults of the store that reads.
    faults: Faults,
}

impl<'a, F: DiskFile> SegmentReader<'a, F> {
    /// Creates a reader of `file`, whose size is as in `header`.
    pub fn new(file: &'a F, header: SegmentHeader) -> Self {
        SegmentReader { file, header, window: Vec::new(), window_start: 0, faults: Faults::NONE }
    }

    /// Sets the deliberate faults of the store.
    pub fn with(self, faults: Faults) -> Self {
        SegmentReader { faults, ..self }
    }

    /// Returns what is at `offset`.
    pub fn slot(&mut self, offset: u64) -> Result<FrameSlot<'_>, DiskError> {
        let segment = self.header;
        if offset + FRAME_HEADER_BYTES as u64 > segment.segment_bytes {
            return Ok(FrameSlot::Blank);
        }
        let bytes = self.view(offset, FRAME_HEADER_BYTES)?;
        if is_zero(bytes) {
            return Ok(FrameSlot::Blank);
        }
        let frame = match segment.decode_frame(offset, bytes) {
            Ok(frame) => frame,
            Err(fault) => return Ok(FrameSlot::Damaged(fault)),
        };
        let believed = self.faults.has(Fault::TornTailAccepted);
        let padded = self.view(offset + FRAME_HEADER_BYTES as u64, frame.padded_bytes())?;
        if segment.payload_crc(padded) != frame.payload_crc && !believed {
            return Ok(FrameSlot::Damaged("the checksum of the payload does not match"));
        }
        Ok(FrameSlot::Frame(frame, &padded[..frame.payload_bytes as usize]))
    }

    /// Whether nothing was ever written at the position of the first frame.
    pub fn is_unused(&mut self) -> Result<bool, DiskError> {
        Ok(self.slot(DATA_START)? == FrameSlot::Blank)
    }

    /// Finds the first intact frame header at or after `from`. Its payload may be damaged.
    pub fn find_header(&mut self, from: u64) -> Result<Option<(u64, FrameHeader)>, DiskError> {
        let segment = self.header;
        let mut offset = from;
        while offset + FRAME_HEADER_BYTES as u64 <= segment.segment_bytes {
            let left = usize::try_from(segment.segment_bytes - offset).unwrap_or(usize::MAX);
            let bytes = self.view(offset, left.min(WINDOW_BYTES))?;
            let starts = (0..=bytes.len() - FRAME_HEADER_BYTES).step_by(FRAME_ALIGN as usize);
            let searched = starts.clone().count() as u64 * FRAME_ALIGN;
            for start in starts {
                // Most of the searched bytes are zero, so check one byte before comparing more.
                if bytes[start] == 0 {
                    continue;
                }
                let at = offset + start as u64;
                if let Ok(frame) = segment.decode_frame(at, &bytes[start..start + FRAME_HEADER_BYTES]) {
                    return Ok(Some((at, frame)));
                }
            }
            offset += searched;
        }
        Ok(None)
    }

    /// Returns `bytes` bytes from `offset`, which must be inside the segment.
    fn view(&mut self, offset: u64, bytes: usize) -> Result<&[u8], DiskError> {
        let end = offset + bytes as u64;
        if offset < self.window_start || end > self.window_start + self.window.len() as u64 {
            let left = usize::try_from(self.header.segment_bytes - offset).unwrap_or(usize::MAX);
            self.window.clear();
            self.window.resize(bytes.max(WINDOW_BYTES.min(left)), 0);
            self.window_start = offset;
            self.file.read_at(offset, &mut self.window)?;
        }
        let start = (offset - self.window_start) as usize;
        Ok(&self.window[start..start + bytes])
    }
}

/// Whether all of `bytes` are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}
