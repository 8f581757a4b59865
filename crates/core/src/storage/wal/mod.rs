//! The write-ahead log, which makes acknowledged writes durable. All Raft groups of a worker share
//! it, so that one fdatasync covers all of them.
//!
//! ```text
//! append(batches) ──► record ──► frames of one group ──► segment file ──► sync ──► acknowledged
//! open ◄── logs ◄── record ◄── frames, in order, until one is not intact: a torn tail, or a hole
//! ```
//!
//! The log is a sequence of preallocated *segments*. The records of one [`Writer::append`] form a
//! *group*, which becomes durable atomically. A group is one *frame*, or several if it is large.
//! Each frame records up to which frame the log was durable when it was written. This lets recovery
//! distinguish a torn tail from a hole. Damage is a hole, and the node refuses to start, exactly if
//! an intact frame after it proves that the damaged place was durable once. This works for any
//! number of groups between two syncs, so also for a node that does not sync.
//!
//! Owns the format and the order of writes, syncs and renames, and performs them through [`Disk`]
//! only. `docs/reference/files.md` documents every byte. Deliberately not here: compression,
//! encryption, and snapshots, which allow [`Writer::release`] to be called.
//!
//! Invariants of the log. The writer asserts them before it writes, in release builds too. Recovery
//! checks them when it reads, and reports an error, because a disk can hold anything.
//! - Indexes of entries begin at 1 and rise by one: asserted when a record is encoded (`record`).
//!   A record with another range, or a gap between records, is [`WalRecoveryError::Record`] or
//!   [`WalRecoveryError::Gap`].
//! - Segments are numbered without gaps: asserted when one is made ready, when it is taken
//!   (`pool`) and when it begins (`retention`). A gap on disk is [`WalRecoveryError::Missing`].
//! - Only written frames count as durable: asserted before each frame (`writer`). A frame that says
//!   that it was durable before it was written is [`WalRecoveryError::Record`].
//! - A segment is durable before the first frame of the next one is written: asserted before each
//!   frame (`writer`). If the next one was written to, damage in an earlier one is
//!   [`WalRecoveryError::Hole`].
//! - A frame and the end mark after it fit their segment: asserted before each frame (`writer`). A
//!   header with a longer frame is damaged.
//! - A refused frame is voided before another takes its place: asserted before each frame
//!   (`writer`).
//! - A segment is released only when no shard needs an entry in it, the last one never, and what it
//!   says of terms and votes is durable in a later one: asserted before it is released (`writer`,
//!   `retention`).
//! - The log continues in the last segment that recovery kept: asserted when writing begins
//!   (`writer`).

mod pool;
mod reader;
mod record;
mod recovery;
mod replay;
mod retention;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

use alloc::string::String;

pub use record::{decode as decode_records, encode as encode_record};
pub use segment::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
pub use writer::Writer;

use super::RecoveredLogs;
use super::disk::{Disk, DiskError, DiskErrorKind};
use crate::codec::DecodeError;
use crate::deliberate::Faults;
use crate::limits;
use crate::types::{LogIndex, ShardId};

/// Options of the write-ahead log, set when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalOptions {
    /// Size of new segments in bytes: a multiple of the page size (4 KiB), from
    /// [`SEGMENT_BYTES_MIN`] to [`SEGMENT_BYTES_MAX`]. Existing segments keep their size.
    pub segment_bytes: u64,
    /// Maximum payload of a written frame in bytes: a multiple of 8, at most
    /// [`limits::WAL_FRAME_BYTES_MAX`]. A larger group takes several frames.
    pub frame_bytes_max: usize,
    /// Seed of the salts that make old content of reused segments invalid. It must differ between
    /// starts.
    pub seed: u64,
    /// Whether a log was begun in this directory. If there is none, it is lost.
    pub begun: bool,
    /// [`Faults::NONE`], except in tests of the simulator.
    pub faults: Faults,
}

impl WalOptions {
    /// The largest frames, and segments of [`limits::WAL_SEGMENT_BYTES`].
    pub fn new(seed: u64) -> WalOptions {
        let (segment_bytes, frame_bytes_max) = (limits::WAL_SEGMENT_BYTES, limits::WAL_FRAME_BYTES_MAX);
        WalOptions { segment_bytes, frame_bytes_max, seed, begun: false, faults: Faults::NONE }
    }

    fn check(&self) {
        assert!(
            (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes)
                && self.segment_bytes.is_multiple_of(4096),
            "invariant: {} is not a size for segments",
            self.segment_bytes
        );
        assert!(
            (8..=limits::WAL_FRAME_BYTES_MAX).contains(&self.frame_bytes_max)
                && self.frame_bytes_max.is_multiple_of(8),
            "invariant: {} is not a size for frames",
            self.frame_bytes_max
        );
    }
}

/// Why the log cannot be written. After a [retryable](WalError::is_retryable) error, the operation
/// had no effect and may be repeated. After any other error the node must stop: nothing that was
/// appended since the last successful sync may be acknowledged, and no sync is ever retried,
/// because its failure may have dropped the bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// There is no space for another segment, or for a write whose space cannot be reserved.
    #[error("the write-ahead log cannot grow, the disk is full: {0}")]
    NoRoom(#[source] DiskError),
    /// The file system is mounted read-only, for example after an error of the disk.
    #[error("the write-ahead log cannot be written, the file system is read-only: {0}")]
    ReadOnly(#[source] DiskError),
    /// There is no free file descriptor for the next segment.
    #[error("the write-ahead log cannot open its next segment, no file descriptor is left: {0}")]
    NoDescriptors(#[source] DiskError),
    /// A write or a sync failed for another reason.
    #[error("the write-ahead log cannot be written: {0}")]
    Disk(#[source] DiskError),
    /// An earlier error left the log in an unknown state.
    #[error("the write-ahead log takes no more writes after an earlier error")]
    Poisoned,
}

impl WalError {
    /// Whether the log is unchanged, so that the operation may be repeated when the cause is gone.
    pub fn is_retryable(&self) -> bool {
        match self {
            WalError::NoRoom(_) | WalError::ReadOnly(_) | WalError::NoDescriptors(_) => true,
            WalError::Disk(_) | WalError::Poisoned => false,
        }
    }
}

impl From<DiskError> for WalError {
    fn from(error: DiskError) -> WalError {
        match error.kind {
            DiskErrorKind::NoRoom => WalError::NoRoom(error),
            DiskErrorKind::ReadOnly => WalError::ReadOnly(error),
            DiskErrorKind::NoDescriptors => WalError::NoDescriptors(error),
            DiskErrorKind::Other => WalError::Disk(error),
        }
    }
}

/// Why a node must not start from this log. Offsets are in bytes from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalRecoveryError {
    /// A file operation failed.
    #[error("the write-ahead log cannot be opened: {0}")]
    Disk(#[from] DiskError),
    /// The log is missing although one was begun. No new one is created: the next start would take
    /// it for a log that was always empty.
    #[error("the write-ahead log is missing; without it this node has forgotten what it acknowledged")]
    Lost,
    /// Content that was durable once is damaged: acknowledged writes may be missing.
    #[error("{file} is damaged at byte offset {offset}: {reason}; what was there was durable once")]
    Hole {
        /// Name of the segment file in the data directory.
        file: String,
        /// Where the damage begins.
        offset: u64,
        /// The check that failed.
        reason: &'static str,
    },
    /// The header of a segment with records is damaged.
    #[error("{file} is damaged at byte offset 0: {reason}")]
    Header {
        /// Name of the segment file in the data directory.
        file: String,
        /// The check that failed.
        reason: &'static str,
    },
    /// A segment has a format that this release does not know, most likely of a newer one.
    #[error("{file} has format version {version}, which this release does not know")]
    Version {
        /// Name of the segment file in the data directory.
        file: String,
        /// The version in its header.
        version: u32,
    },
    /// A segment between others is missing.
    #[error("{file} is missing, though segments before and after it exist")]
    Missing {
        /// The name that the segment would have.
        file: String,
    },
    /// Intact, but not a record that this release writes.
    #[error("the records in {file} at byte offset {offset} cannot be decoded: {source}")]
    Record {
        /// Name of the segment file in the data directory.
        file: String,
        /// Offset of the first frame of the record's group.
        offset: u64,
        /// Why the record does not decode.
        source: DecodeError,
    },
    /// Entries of a shard are missing before others.
    #[error(
        "{file} at byte offset {offset} continues shard {shard} with entry {found}, but entry {expected} is due"
    )]
    Gap {
        /// Name of the segment file in the data directory.
        file: String,
        /// Offset of the first frame of the entries' group.
        offset: u64,
        /// The shard of the entries.
        shard: ShardId,
        /// The index after the last entry before them; the entries may begin there or earlier.
        expected: LogIndex,
        /// The index with which they begin.
        found: LogIndex,
    },
}

/// The content of a log when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The log of every shard with records.
    pub logs: RecoveredLogs,
    /// What recovery found and repaired.
    pub report: WalRecoveryReport,
}

/// A report about recovery, for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalRecoveryReport {
    /// Number of segments up to the end of the log; 0 if there was no log.
    pub segments: u64,
    /// Number of intact frames in these segments.
    pub frames: u64,
    /// Bytes of these frames, with their headers.
    pub bytes: u64,
    /// The unfinished end of the log that a crash left, and that was cut off. It was never
    /// acknowledged.
    pub torn_tail: Option<TornTail>,
    /// The newest segment, if a crash interrupted its creation and it was removed.
    pub discarded: Option<String>,
}

/// The unfinished end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Name of the segment file in which it began.
    pub file: String,
    /// Where it begins in that file, in bytes.
    pub offset: u64,
    /// Bytes from there to the last nonzero byte of the file. In a reused segment this includes old
    /// content.
    pub bytes: u64,
}

/// Recovers the log on `disk` for further use. An empty directory becomes an empty log, unless a
/// log was begun there.
///
/// Everything returned is durable, including what a killed process had written and not synced.
///
/// # Panics
///
/// If `options` exceed their limits.
pub fn open<D: Disk>(disk: D, options: WalOptions) -> Result<(Writer<D>, Recovery), WalRecoveryError> {
    options.check();
    let mut pool = pool::Pool::new(options);
    let recovered = recovery::recover(&disk, &mut pool, options.faults)?;
    if options.begun && recovered.report.segments == 0 {
        return Err(WalRecoveryError::Lost);
    }
    let recovery = Recovery { logs: recovered.logs, report: recovered.report };
    Ok((Writer::resume(disk, options, (pool, recovered.end))?, recovery))
}
