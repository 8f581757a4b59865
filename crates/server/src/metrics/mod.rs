//! Metrics that a node publishes at `/metrics`: how they are counted, and how a scrape is written.
//!
//! Owns the I/O shell's counters and the OpenMetrics text. Counting costs a few nanoseconds: no
//! counter is behind a lock or in a map, and a scrape copies everything into one [`Scrape`] before
//! it formats it.

pub mod history;
mod http;
mod plain;
mod resp;
mod scrape;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use tidelock_core::storage::LogHeld;

use crate::counters::Counter;
pub use http::{Dialect, HttpCounters, Kind, MethodClass, Observation, StatusClass};
pub use resp::{CommandCounters, Family, RespCounters};
pub use scrape::{OPEN_METRICS_TYPE, PROMETHEUS_TEXT_TYPE, Scrape};

/// Counters of the write-ahead log, raised by the disk thread.
#[derive(Clone, Debug, Default)]
pub struct DiskCounters {
    /// Calls of fdatasync that succeeded.
    pub fsyncs: Arc<AtomicU64>,
    /// Microseconds spent in these calls.
    pub fsync_micros: Arc<AtomicU64>,
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

/// Resident memory of the process in bytes, 0 if the system does not report it.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0);
    resident * rustix::param::page_size() as u64
}

/// Adds one to a counter of this thread.
pub(crate) fn raise(counter: &Counter) {
    counter.add(1);
}
