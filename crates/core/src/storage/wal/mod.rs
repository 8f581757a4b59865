//! The write-ahead log: what makes an acknowledged write survive, shared by all raft groups of a worker so that one
//! fdatasync covers all of them.
//!
//! ```text
//! append(batches) ──► record ──► frames of one group ──► segment file ──► sync ──► acknowledged
//! open ◄── logs ◄── record ◄── frames, in order, until one is not intact: a torn tail, or a hole
//! ```
//!
//! The log is a row of preallocated *segments*. What one [`Writer::append`] takes is a *group*: it becomes durable
//! whole or not at all, and is one *frame*, or several when it is large. Each frame records up to which frame the
//! log was durable when it was written. That number is how recovery tells a torn tail from a hole: damage is a hole,
//! and the node refuses to start, exactly if something intact behind it proves that the damaged place was durable
//! once. It holds for any number of groups written between two syncs, so also for a node that does not sync.
//!
//! Owns the format and the order of writes, syncs and renames; performs them through [`Disk`] only.
//! `docs/storage-format.md` has every byte. Deliberately not here: compression, encryption, and snapshots, which
//! allow [`Writer::release`] to be called.

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

pub use segment::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
pub use writer::Writer;

use super::RecoveredLogs;
use super::disk::{Disk, DiskError, DiskErrorKind};
use crate::codec::DecodeError;
use crate::deliberate::Faults;
use crate::limits;
use crate::types::{LogIndex, ShardId};

/// How a log is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalOptions {
    /// Size of new segments, from [`SEGMENT_BYTES_MIN`] to [`SEGMENT_BYTES_MAX`], a multiple of 4096. Segments of
    /// another size that are there already stay as they are.
    pub segment_bytes: u64,
    /// Largest payload of a frame that is written, a multiple of 8, at most [`limits::WAL_FRAME_BYTES_MAX`]. A group
    /// that is larger takes several frames.
    pub frame_bytes_max: usize,
    /// Seed of the salts that keep a segment's earlier life from being believed. Must differ from boot to boot.
    pub seed: u64,
    /// Whether a log was begun in this directory: if there is none, it is lost.
    pub begun: bool,
    /// [`Faults::NONE`], except in tests of the simulator.
    pub faults: Faults,
}

impl WalOptions {
    /// The largest frames, in segments of [`limits::WAL_SEGMENT_BYTES`].
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

/// Why the log cannot be written: for now, in which case the operation did nothing and may be done again (a
/// [retryable](WalError::is_retryable) error), or for good. Then the node must stop: nothing of what was appended since
/// the last successful sync may be acknowledged, and no sync is ever tried again (its failure may have dropped the bytes).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// There is no room for another segment, or none for a write where space cannot be reserved.
    #[error("the write-ahead log cannot grow, the disk is full: {0}")]
    NoRoom(#[source] DiskError),
    /// The file system was made read-only.
    #[error("the write-ahead log cannot be written, the file system is read-only: {0}")]
    ReadOnly(#[source] DiskError),
    /// No file descriptor is left to open the next segment with.
    #[error("the write-ahead log cannot open its next segment, no file descriptor is left: {0}")]
    NoDescriptors(#[source] DiskError),
    /// The disk failed.
    #[error("the write-ahead log cannot be written: {0}")]
    Disk(#[source] DiskError),
    /// An earlier error left the log in an unknown state.
    #[error("the write-ahead log takes no more writes after an earlier error")]
    Poisoned,
}

impl WalError {
    /// Whether the log is as it was before the operation, which may be done again when the cause is gone.
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
pub enum RecoveryError {
    /// The disk failed.
    #[error("the write-ahead log cannot be opened: {0}")]
    Disk(#[from] DiskError),
    /// There was a log, and nothing is left of it. None is begun in its place: the next start would take that for a log
    /// that never held anything.
    #[error(
        "the write-ahead log is missing; without it this node has forgotten what it acknowledged. Restore it, or empty \
         the directory: the other nodes will then refuse it, and go on without"
    )]
    Lost,
    /// What stood here was durable once and is not intact: acknowledged writes may be missing.
    #[error("{file} is damaged at byte offset {offset}: {reason}; what stood there was durable once")]
    Hole {
        /// In which segment.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// The header of a segment that holds records is not intact.
    #[error("{file} is damaged at byte offset 0: {reason}")]
    Header {
        /// Which segment.
        file: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Written by another release.
    #[error("{file} has format version {version}, which this release does not know")]
    Version {
        /// Which segment.
        file: String,
        /// Its version.
        version: u32,
    },
    /// A segment is missing between others.
    #[error("{file} is missing, though segments before and after it are there")]
    Missing {
        /// Which one.
        file: String,
    },
    /// Intact, yet not a record that this release writes.
    #[error("the records in {file} at byte offset {offset} cannot be decoded: {source}")]
    Record {
        /// In which segment.
        file: String,
        /// Where the frame begins in which their group begins.
        offset: u64,
        /// What is wrong.
        source: DecodeError,
    },
    /// Entries of a shard are missing between others.
    #[error(
        "{file} at byte offset {offset} continues shard {shard} with entry {found}, but entry {expected} is due"
    )]
    Gap {
        /// In which segment.
        file: String,
        /// Where the frame begins in which their group begins.
        offset: u64,
        /// Whose entries.
        shard: ShardId,
        /// The highest index that would have been in order.
        expected: LogIndex,
        /// The index that came.
        found: LogIndex,
    },
}

/// What a log held when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// All that it remembers.
    pub logs: RecoveredLogs,
    /// How it was found.
    pub report: RecoveryReport,
}

/// How a log was found, for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Segments that hold records.
    pub segments: u64,
    /// Intact frames.
    pub frames: u64,
    /// Bytes of intact frames.
    pub bytes: u64,
    /// What a crash left unfinished at the end, and was cut off. It was never acknowledged.
    pub torn_tail: Option<TornTail>,
    /// A newest segment whose creation a crash left unfinished, and which was removed.
    pub discarded: Option<String>,
}

/// The unfinished end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment in which it began.
    pub file: String,
    /// Where.
    pub offset: u64,
    /// Bytes from there to the last one of this file that was not zero. In a recycled segment that counts what was
    /// left of its earlier life.
    pub bytes: u64,
}

/// Recovers the log on `disk` and makes it ready to be continued; an empty directory becomes an empty log, unless
/// one was begun there.
///
/// Whatever is returned is durable, even what a killed process had written and not yet synced.
///
/// # Panics
///
/// If `options` break their limits.
pub fn open<D: Disk>(disk: D, options: WalOptions) -> Result<(Writer<D>, Recovery), RecoveryError> {
    options.check();
    let mut pool = pool::Pool::new(options);
    let recovered = recovery::recover(&disk, &mut pool, options.faults)?;
    if options.begun && recovered.report.segments == 0 {
        return Err(RecoveryError::Lost);
    }
    let recovery = Recovery { logs: recovered.logs, report: recovered.report };
    Ok((Writer::resume(disk, options, (pool, recovered.end))?, recovery))
}
