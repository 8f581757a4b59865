//! Appends groups to the log.
//!
//! Owns the order of writes and syncs on which recovery relies:
//! 1. A segment is completely synced before the first frame is written to the next one.
//! 2. Each frame states up to which frame the log was durable when it was written.
//! 3. Zero bytes, the end mark, follow the last frame of a group in the same write.
//!
//! The segments that a group needs are made ready before the first of its frames is written. So a
//! full or read-only disk is detected before anything of the group is on disk, or in the write of
//! its first frame. In the latter case the partial frame is durably voided before anything else is
//! written in its place. After such an error the log is unchanged, and the group, or another one,
//! may be appended later. Any other error poisons the writer, because the content of the disk is
//! then unknown and only recovery may assess it. A failed sync always poisons it, and so does a
//! failed write of a later frame of a group.

use alloc::vec::Vec;

use super::super::{LogHeld, WalBatch, WalRecord};
use super::pool::{Active, Pool};
use super::record;
use super::retention::Retention;
use super::segment::{DATA_START, FRAME_HEADER_BYTES, FrameHeader, pad, room_in};
use super::{WalError, WalOptions, WalRecoveryError};
use crate::storage::disk::{Disk, DiskError, DiskFile};
use crate::types::{LogIndex, ShardId};

/// The buffer is kept from group to group up to this size; larger groups are rare.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// Client data leaves one part in this many of a segment free, unless the next segment is ready.
/// The reserve holds terms and votes, so that a node with a full disk can restart and take part
/// again, at least for reads.
const RESERVE_PARTS: u64 = 64;

/// The end of the log that recovery found.
pub(super) struct LogEnd<F> {
    /// The segment to continue; `None` in an empty directory.
    pub current: Option<Active<F>>,
    /// Ordinal of the last frame.
    pub ordinal: u64,
    /// The segments up to the current one.
    pub retention: Retention,
}

/// Writer at the end of the log.
#[derive(Debug)]
pub struct Writer<D: Disk> {
    disk: D,
    frame_bytes_max: usize,
    pool: Pool<D::File>,
    current: Active<D::File>,
    retention: Retention,
    /// Ordinal of the last written frame.
    ordinal: u64,
    /// Ordinal of the last frame known to be durable.
    durable: u64,
    /// Whether a failed write may have left a partial frame after the last frame, in place of the
    /// end mark.
    has_remains: bool,
    bytes_written: u64,
    buffer: Vec<u8>,
    poisoned: bool,
}

impl<D: Disk> Writer<D> {
    /// Continues where recovery ended. Everything before is durable.
    pub(super) fn resume(
        disk: D,
        options: WalOptions,
        (mut pool, end): (Pool<D::File>, LogEnd<D::File>),
    ) -> Result<Writer<D>, WalRecoveryError> {
        let LogEnd { current, ordinal, mut retention } = end;
        let current = match current {
            Some(current) => current,
            None => {
                pool.reserve(&disk, 1, 1)?;
                let first = pool.take(1);
                retention.begin_segment(first.header);
                first
            }
        };
        assert_eq!(retention.last_kept(), current.header.number, "invariant: a log ends in its last segment");
        Ok(Writer {
            disk,
            frame_bytes_max: options.frame_bytes_max,
            pool,
            current,
            retention,
            ordinal,
            durable: ordinal,
            has_remains: false,
            bytes_written: 0,
            buffer: Vec::new(),
            poisoned: false,
        })
    }

    /// Writes all records of `batches`, in order, as one group: after a crash all of them or none
    /// are there. They are durable when [`Writer::sync`] returns.
    ///
    /// # Errors
    ///
    /// After a [retryable](WalError::is_retryable) error the log is unchanged, and any batches may
    /// be appended next. Only a crash before that may bring back the refused group, as a whole.
    ///
    /// # Panics
    ///
    /// If a record breaks the contract of [`WalRecord`].
    pub fn append(&mut self, batches: &[WalBatch]) -> Result<(), WalError> {
        self.guarded(|writer| writer.append_group(batches.iter().flat_map(|batch| &batch.records)))
    }

    /// Makes everything appended so far durable. Does nothing if it is.
    pub fn sync(&mut self) -> Result<(), WalError> {
        self.guarded(Self::sync_current)
    }

    /// Takes one short step of preparation, so that commits need not wait for the file system. It
    /// fills the current segment with zeros ahead of its frames, truncates an unneeded file and,
    /// once the current segment is half full, makes the next one ready. Returns whether there is
    /// more to do; call it again whenever the log is idle.
    ///
    /// A [retryable](WalError::is_retryable) error from here is a warning: the current segment may
    /// still have space.
    pub fn prepare_next(&mut self) -> Result<bool, WalError> {
        self.guarded(Self::prepare_step)
    }

    /// Writes the end mark again and syncs it. The log is unchanged, and the caller can measure how
    /// long the disk takes.
    ///
    /// # Errors
    ///
    /// As [`Writer::sync`]. The write may also fail on a disk that takes no writes, which is
    /// [retryable](WalError::is_retryable).
    pub fn probe(&mut self) -> Result<(), WalError> {
        self.guarded(Self::mark_end)
    }

    /// Ensures that there is space for client data, in the current segment or in a ready next one.
    ///
    /// # Errors
    ///
    /// A [retryable](WalError::is_retryable) error means that there is no space now.
    pub fn ensure_room(&mut self) -> Result<(), WalError> {
        self.guarded(|writer| {
            let current = &writer.current;
            // Twice the reserve, so that the lack of space is found before the next write of
            // ordinary size.
            let reserve_bytes = 2 * current.header.segment_bytes / RESERVE_PARTS;
            let count = usize::from(bytes_left(current.header.segment_bytes, current.offset) < reserve_bytes);
            writer.pool.reserve(&writer.disk, current.header.number + 1, count)
        })
    }

    /// Releases the shard's entries up to `up_to`, and a restart record there, because a snapshot
    /// contains them. Segments that no shard needs any more become spare files or are removed,
    /// always from the front. Incarnations and hard states that are only in such segments are
    /// written again first. That and everything appended before is made durable.
    ///
    /// # Errors
    ///
    /// After a [retryable](WalError::is_retryable) error, the next call or [`Writer::reclaim`]
    /// retries what could not be removed.
    pub fn release(&mut self, shard: ShardId, up_to: LogIndex) -> Result<(), WalError> {
        self.guarded(|writer| {
            writer.retention.release(shard, up_to);
            writer.release_segments()
        })
    }

    /// Removes the unneeded segments that could not be removed when they were released, and
    /// unneeded files, all of them at once, because a write is waiting for the space.
    ///
    /// # Errors
    ///
    /// As [`Writer::release`].
    pub fn reclaim(&mut self) -> Result<(), WalError> {
        self.guarded(|writer| {
            writer.release_segments()?;
            while writer.pool.shrink_step(&writer.disk)? {}
            Ok(())
        })
    }

    /// Records a release before the last restart of the node. The freed segments go with the next
    /// release: a start needs no space, and removing a segment may need some.
    pub(in crate::storage) fn note_released(&mut self, shard: ShardId, up_to: LogIndex) {
        self.retention.recall_release(shard, up_to);
    }

    /// How much of the log is kept. It changes when a segment is full and when something is
    /// released.
    pub fn held(&self) -> LogHeld {
        self.retention.held()
    }

    /// Size of all files of the log in bytes: full segments, the current one, and spare and ready
    /// files.
    pub fn file_bytes(&self) -> u64 {
        self.held().bytes + self.current.header.segment_bytes + self.pool.file_bytes()
    }

    /// Bytes appended since the log was opened, frame headers included.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    fn guarded<T>(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Result<T, DiskError>,
    ) -> Result<T, WalError> {
        if self.poisoned {
            return Err(WalError::Poisoned);
        }
        let result = operation(self);
        self.poisoned = result.as_ref().is_err_and(|error| !error.kind.is_retryable());
        Ok(result?)
    }

    fn append_group<'a>(
        &mut self,
        records: impl Iterator<Item = &'a WalRecord> + Clone,
    ) -> Result<(), DiskError> {
        self.buffer.clear();
        self.buffer.resize(FRAME_HEADER_BYTES, 0);
        for record in records.clone() {
            record::encode(record, &mut self.buffer);
        }
        let end = self.buffer.len();
        if end == FRAME_HEADER_BYTES {
            return Ok(());
        }
        self.buffer.resize(FRAME_HEADER_BYTES + pad(end - FRAME_HEADER_BYTES) + FRAME_HEADER_BYTES, 0);

        let holds_data = records.clone().any(record::holds_data);
        let segments = self.segments_for(end - FRAME_HEADER_BYTES, holds_data);
        self.pool.reserve(&self.disk, self.current.header.number + 1, segments)?;
        self.void_remains()?;

        // Frames are written from the buffer in place: each header overwrites bytes that the
        // previous frame has already written to the file.
        let mut start = 0;
        let mut began_in = 0;
        while start + FRAME_HEADER_BYTES < end {
            let left = end - start - FRAME_HEADER_BYTES;
            let first = start == 0;
            let payload_bytes = self.place(left, first)?;
            if first {
                began_in = self.current.header.number;
            }
            let written = self.write_frame(start, payload_bytes, (first, payload_bytes == left));
            self.has_remains = written.is_err();
            written.map_err(|error| if first { error } else { error.into_final() })?;
            start += payload_bytes;
        }
        for record in records {
            self.retention.note(record, began_in);
        }
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        Ok(())
    }

    /// Restores the end mark after the last frame if a failed write may have left a partial or
    /// complete frame there. This must be durable before another frame is written there. Otherwise
    /// a crash could leave the refused frame in its place, followed by later frames.
    fn void_remains(&mut self) -> Result<(), DiskError> {
        if self.has_remains { self.mark_end() } else { Ok(()) }
    }

    /// Durably writes the end mark after the last frame.
    fn mark_end(&mut self) -> Result<(), DiskError> {
        self.current.file.write_at(self.current.offset, &[0; FRAME_HEADER_BYTES])?;
        self.current.file.sync().map_err(DiskError::into_final)?;
        self.durable = self.ordinal;
        self.has_remains = false;
        Ok(())
    }

    /// Number of segments after the current one that a group of this size needs.
    fn segments_for(&self, group_bytes: usize, holds_data: bool) -> usize {
        let (mut offset, mut segment_bytes) = (self.current.offset, self.current.header.segment_bytes);
        let mut segments = 0;
        let mut left = group_bytes;
        while left > 0 {
            let wanted = left.min(self.frame_bytes_max);
            if wanted > room_in(segment_bytes, offset) && offset > DATA_START {
                segments += 1;
                (offset, segment_bytes) = (DATA_START, self.pool.segment_bytes());
            }
            let payload_bytes = wanted.min(room_in(segment_bytes, offset));
            offset += (FRAME_HEADER_BYTES + pad(payload_bytes)) as u64;
            left -= payload_bytes;
        }
        let is_short = bytes_left(segment_bytes, offset) < segment_bytes / RESERVE_PARTS;
        segments + usize::from(holds_data && is_short)
    }

    /// Finds the position of the next frame, in the next segment if necessary. Returns how many of
    /// the `left` bytes fit: all, or a multiple of the alignment.
    fn place(&mut self, left: usize, first: bool) -> Result<usize, DiskError> {
        let wanted = left.min(self.frame_bytes_max);
        if wanted > self.current.header.room(self.current.offset) && self.current.offset > DATA_START {
            if !first {
                // A frame inside a group is written without an end mark, and a segment must not end
                // without one.
                let marked = self.current.file.write_at(self.current.offset, &[0; FRAME_HEADER_BYTES]);
                marked.map_err(DiskError::into_final)?;
            }
            self.roll_over()?;
        }
        Ok(wanted.min(self.current.header.room(self.current.offset)))
    }

    /// Writes the frame whose header begins at `start` in the buffer. `ends` states whether it is
    /// the first and whether it is the last of its group.
    fn write_frame(
        &mut self,
        start: usize,
        payload_bytes: usize,
        ends: (bool, bool),
    ) -> Result<(), DiskError> {
        let (first, last) = ends;
        let payload_start = start + FRAME_HEADER_BYTES;
        let padded_end = payload_start + pad(payload_bytes);
        let segment = self.current.header;
        assert!(!self.has_remains, "invariant: a refused frame is voided before another takes its place");
        assert!(self.durable <= self.ordinal, "invariant: only written frames are durable");
        assert!(
            self.durable == self.ordinal || self.current.offset > DATA_START,
            "invariant: a segment is durable before the next one begins"
        );
        let frame = FrameHeader {
            payload_bytes: u32::try_from(payload_bytes).expect("invariant: a frame is at most 16 MiB"),
            ordinal: self.ordinal + 1,
            durable: self.durable,
            first,
            last,
            payload_crc: segment.payload_crc(&self.buffer[payload_start..padded_end]),
        };
        assert!(
            self.current.offset + frame.frame_bytes() + FRAME_HEADER_BYTES as u64 <= segment.segment_bytes,
            "invariant: a segment has space for a frame and the end mark after it"
        );
        segment.encode_frame(self.current.offset, &frame, &mut self.buffer[start..payload_start]);
        let write_end = if last { padded_end + FRAME_HEADER_BYTES } else { padded_end };
        self.current.file.write_at(self.current.offset, &self.buffer[start..write_end])?;
        self.current.offset += frame.frame_bytes();
        self.bytes_written += frame.frame_bytes();
        self.ordinal = frame.ordinal;
        Ok(())
    }

    fn roll_over(&mut self) -> Result<(), DiskError> {
        self.sync_current()?;
        self.current = self.pool.take(self.current.header.number + 1);
        self.retention.begin_segment(self.current.header);
        Ok(())
    }

    fn sync_current(&mut self) -> Result<(), DiskError> {
        if self.durable < self.ordinal {
            self.current.file.sync().map_err(DiskError::into_final)?;
            self.durable = self.ordinal;
        }
        Ok(())
    }

    fn prepare_step(&mut self) -> Result<bool, DiskError> {
        if self.current.fill_step()? || self.pool.shrink_step(&self.disk)? {
            return Ok(true);
        }
        if self.current.offset < self.current.header.segment_bytes / 2 {
            return Ok(false);
        }
        self.pool.prepare_step(&self.disk, self.current.header.number + 1)
    }

    fn release_segments(&mut self) -> Result<(), DiskError> {
        let first_needed = self.retention.first_needed();
        // Recovery relies on durable content in the first kept segment. Directly after a torn tail
        // was cut off, the current segment may be empty.
        if first_needed == self.current.header.number && self.current.offset == DATA_START {
            return Ok(());
        }
        if self.retention.first_kept() == first_needed {
            return Ok(());
        }
        let states = self.retention.states_before(first_needed);
        self.append_group(states.iter())?;
        self.sync_current()?;
        assert_eq!(self.durable, self.ordinal, "invariant: states are durable before their segment goes");
        while let Some(header) = self.retention.first_before(first_needed) {
            self.pool.recycle(&self.disk, header)?;
            self.retention.forget_first();
        }
        Ok(())
    }
}

/// Bytes left in a segment that is filled up to `offset`.
fn bytes_left(segment_bytes: u64, offset: u64) -> u64 {
    segment_bytes.saturating_sub(offset)
}
