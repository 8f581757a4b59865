//! Appends groups to the log.
//!
//! Owns the order of writes and syncs on which recovery relies:
//! 1. A segment is synced whole before the first frame is written to the next one.
//! 2. Each frame says up to which frame the log was durable when it was written.
//! 3. Zero bytes, the end mark, follow the last frame of a group in the same write.
//!
//! Segments that a group needs are made ready before the first of its frames is written. So a disk without room, or a
//! file system that was made read-only, is met before anything of the group is on disk, or in the write of its first
//! frame, whose remains are voided durably before anything else takes its place: such an error leaves the log as it was,
//! and the group, or another one, may be appended later. Any other error poisons the writer: what is on disk is unknown
//! then, and only recovery may judge it. So does a failed sync, always, and a failed write of a later frame, whose
//! predecessors are there already.

use alloc::vec::Vec;

use super::super::{LogHeld, WalBatch, WalRecord};
use super::pool::{Active, Pool};
use super::record;
use super::retention::Retention;
use super::segment::{DATA_START, FRAME_HEADER_BYTES, FrameHeader, pad, room_in};
use super::{RecoveryError, WalError, WalOptions};
use crate::storage::disk::{Disk, DiskError, DiskFile};
use crate::types::{LogIndex, ShardId};

/// The buffer is kept from group to group up to this size; a larger one was for a rare group.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// Clients' data leaves one part in so many of a segment free, unless the next one is ready: room for terms and votes, so
/// that a node with a full disk can be restarted and take part again, if only to be read.
const RESERVE_PARTS: u64 = 64;

/// Where recovery found the end of a log.
pub(super) struct LogEnd<F> {
    /// The segment to go on in; none in an empty directory.
    pub current: Option<Active<F>>,
    /// Of the last frame.
    pub ordinal: u64,
    /// What the segments up to the current one hold.
    pub retention: Retention,
}

/// The end of the log, where it grows.
#[derive(Debug)]
pub struct Writer<D: Disk> {
    disk: D,
    frame_bytes_max: usize,
    pool: Pool<D::File>,
    current: Active<D::File>,
    retention: Retention,
    /// Of the last frame written.
    ordinal: u64,
    /// Of the last frame known to be durable.
    durable: u64,
    /// A write that was refused may have left a part of a frame behind the last one, in place of the end mark.
    has_remains: bool,
    bytes_written: u64,
    buffer: Vec<u8>,
    poisoned: bool,
}

impl<D: Disk> Writer<D> {
    /// Goes on where recovery ended, all of which is durable.
    pub(super) fn resume(
        disk: D,
        options: WalOptions,
        (mut pool, end): (Pool<D::File>, LogEnd<D::File>),
    ) -> Result<Writer<D>, RecoveryError> {
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

    /// Writes all records of `batches`, in order, as one group: after a crash all of them are there or none is. They
    /// are durable when [`Writer::sync`] returns.
    ///
    /// # Errors
    ///
    /// After a [retryable](WalError::is_retryable) one the log is as if this had not been called, and any batches may be
    /// appended next; only a crash before that may bring back what was refused, whole.
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

    /// Goes one short step towards never letting a commit wait for the file system: fills the current segment with
    /// zeros ahead of its frames, removes a part of a file that is not needed and, once the current segment is half
    /// full, makes the next one ready. Returns whether there is more to do; call it again whenever the log is idle.
    ///
    /// A [retryable](WalError::is_retryable) error from here is a warning: the current segment may still have room.
    pub fn prepare_next(&mut self) -> Result<bool, WalError> {
        self.guarded(Self::prepare_step)
    }

    /// Writes the end mark anew and syncs it: the log stays as it is, and the caller learns how long the disk takes.
    ///
    /// # Errors
    ///
    /// As [`Writer::sync`]; the write may meet a disk that takes no writes, which is
    /// [retryable](WalError::is_retryable).
    pub fn probe(&mut self) -> Result<(), WalError> {
        self.guarded(Self::mark_end)
    }

    /// Makes sure that there is room for clients' data: in the current segment, or because the next one is ready.
    ///
    /// # Errors
    ///
    /// A [retryable](WalError::is_retryable) one says that there is none now.
    pub fn ensure_room(&mut self) -> Result<(), WalError> {
        self.guarded(|writer| {
            let current = &writer.current;
            // Twice the reserve, so that this is known before the next write of ordinary size finds out.
            let reserve_bytes = 2 * current.header.segment_bytes / RESERVE_PARTS;
            let count = usize::from(bytes_left(current.header.segment_bytes, current.offset) < reserve_bytes);
            writer.pool.reserve(&writer.disk, current.header.number + 1, count)
        })
    }

    /// The shard's entries up to `up_to` are no longer needed, nor is a restart there: a snapshot holds what they did. Segments that nobody
    /// needs any more become spare files or are removed, always from the front. Tenures and hard states that stand in such
    /// segments only are written anew first, durably, as is everything appended before.
    ///
    /// # Errors
    ///
    /// After a [retryable](WalError::is_retryable) one, what could not be let go of is tried again with the next call, or
    /// by [`Writer::reclaim`].
    pub fn release(&mut self, shard: ShardId, up_to: LogIndex) -> Result<(), WalError> {
        self.guarded(|writer| {
            writer.retention.release(shard, up_to);
            writer.release_segments()
        })
    }

    /// Lets go of the segments that nobody needs and that could not go when they were released, and of the files that are
    /// not needed, whole: somebody waits for their room.
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

    /// Takes note of what was released in an earlier life. What that frees goes with the next release: starting needs no
    /// room, and to free a segment may need some.
    pub(in crate::storage) fn note_released(&mut self, shard: ShardId, up_to: LogIndex) {
        self.retention.recall_release(shard, up_to);
    }

    /// What is kept of the log. Changes when a segment is full and when something is released.
    pub fn held(&self) -> LogHeld {
        self.retention.held()
    }

    /// Bytes of all files of the log: what is held, the segment being written, and those to come.
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

        // Frames are cut from the buffer where they stand: the header of each goes over bytes that the frame before
        // it has already brought to the file.
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

    /// Puts the end mark back behind the last frame where a refused write may have left a part of a frame, or all of it.
    /// Unless that is durable before another frame stands there, a crash could leave the refused one in its place, and
    /// what follows the other one behind it.
    fn void_remains(&mut self) -> Result<(), DiskError> {
        if self.has_remains { self.mark_end() } else { Ok(()) }
    }

    /// Puts the end mark behind the last frame, durably.
    fn mark_end(&mut self) -> Result<(), DiskError> {
        self.current.file.write_at(self.current.offset, &[0; FRAME_HEADER_BYTES])?;
        self.current.file.sync().map_err(DiskError::into_final)?;
        self.durable = self.ordinal;
        self.has_remains = false;
        Ok(())
    }

    /// How many segments behind the current one a group of so many bytes needs.
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

    /// Finds a place for the next frame, in the next segment if need be, and says how much of the `left` bytes it can
    /// hold: all, or a multiple of the alignment.
    fn place(&mut self, left: usize, first: bool) -> Result<usize, DiskError> {
        let wanted = left.min(self.frame_bytes_max);
        if wanted > self.current.header.room(self.current.offset) && self.current.offset > DATA_START {
            if !first {
                // A frame inside a group comes without an end mark, and a segment must not end without one.
                let marked = self.current.file.write_at(self.current.offset, &[0; FRAME_HEADER_BYTES]);
                marked.map_err(DiskError::into_final)?;
            }
            self.roll_over()?;
        }
        Ok(wanted.min(self.current.header.room(self.current.offset)))
    }

    /// Writes the frame whose header starts at `start` in the buffer; `ends` tells whether it is the first and
    /// whether it is the last of its group.
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
        let frame = FrameHeader {
            payload_bytes: u32::try_from(payload_bytes).expect("invariant: a frame is at most 16 MiB"),
            ordinal: self.ordinal + 1,
            durable: self.durable,
            first,
            last,
            payload_crc: segment.payload_crc(&self.buffer[payload_start..padded_end]),
        };
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
        // Recovery relies on the first segment that is kept to hold something durable. Right after a torn tail was
        // cut, the current one may be empty.
        if first_needed == self.current.header.number && self.current.offset == DATA_START {
            return Ok(());
        }
        if self.retention.first_kept() == first_needed {
            return Ok(());
        }
        let states = self.retention.states_before(first_needed);
        self.append_group(states.iter())?;
        self.sync_current()?;
        while let Some(header) = self.retention.first_before(first_needed) {
            self.pool.recycle(&self.disk, header)?;
            self.retention.forget_first();
        }
        Ok(())
    }
}

/// What a segment that is filled up to `offset` can still take.
fn bytes_left(segment_bytes: u64, offset: u64) -> u64 {
    segment_bytes.saturating_sub(offset)
}
