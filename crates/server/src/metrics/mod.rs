//! Metrics that a node publishes at `/metrics`: how they are counted, and how a scrape is written.
//!
//! Owns the I/O shell's counters and the OpenMetrics text. Counting costs a few nanoseconds: no
//! counter is behind a lock or in a map, and a scrape copies everything into one [`Scrape`] before
//! it formats it.

mod durations;
pub mod history;
mod http;
mod plain;
mod process;
mod resp;
mod scrape;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use tidelock_core::storage::LogHeld;

use crate::counters::Counter;
pub use durations::DurationHistogram;
pub use http::{Dialect, HttpCounters, Kind, MethodClass, Observation, StatusClass};
pub(crate) use process::resident_bytes;
pub use resp::{CommandCounters, Family, RespCounters};
pub use scrape::{OPEN_METRICS_TYPE, PROMETHEUS_TEXT_TYPE, Scrape};

/// Counters of the write-ahead log, raised by the disk thread.
#[derive(Clone, Debug, Default)]
pub struct DiskCounters {
    /// How long calls of fdatasync took that succeeded.
    pub fsyncs: Arc<DurationHistogram>,
    /// Bytes handed to the file system.
    pub bytes_written: Arc<AtomicU64>,
    /// How often the disk began to reject writes.
    pub stalls: Arc<AtomicU64>,
    /// How often the disk became slow.
    pub slow_stalls: Arc<AtomicU64>,
    /// Whether the disk is slow at present.
    pub is_slow: Arc<AtomicBool>,
    /// Bytes of all files of the log.
    pub file_bytes: Arc<AtomicU64>,
    /// Log data that is kept besides the segment being written.
    pub held: Arc<Mutex<LogHeld>>,
}

impl DiskCounters {
    /// Log data that is kept besides the segment being written.
    pub fn held(&self) -> LogHeld {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters of snapshots, raised by the thread that keeps their files.
#[derive(Clone, Debug, Default)]
pub struct SnapshotCounters {
    /// Snapshots that this node made.
    pub made: Arc<AtomicU64>,
    /// Microseconds from the first block of each to its end.
    pub making_micros: Arc<AtomicU64>,
    /// Snapshot tasks that failed, of any kind.
    pub failed: Arc<AtomicU64>,
    /// Snapshots received completely from another node.
    pub received: Arc<AtomicU64>,
    /// Bytes of snapshot parts received from leaders.
    pub bytes_received: Arc<AtomicU64>,
    /// Bytes of snapshot parts read for followers.
    pub bytes_sent: Arc<AtomicU64>,
    /// Bytes of all snapshot files on the disk.
    pub file_bytes: Arc<AtomicU64>,
}

/// Adds one to a counter of this thread.
pub(crate) fn raise(counter: &Counter) {
    counter.add(1);
}
