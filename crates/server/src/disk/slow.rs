//! Detects from another thread that the disk thread hangs, which it cannot report itself.
//!
//! Owns the log lines and metrics about slow disks.
//! [`SlowDiskDetector`](tidelock_core::storage::slow_disk::SlowDiskDetector) decides when a disk is
//! slow, and the core decides what a node does then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidelock_core::storage::slow_disk::SlowDiskDetector;

use super::thread::Shared;
use crate::metrics::DiskCounters;

/// Checks the disk thread once a tick.
pub struct SlowDiskWatch {
    shared: Arc<Shared>,
    counters: DiskCounters,
    detector: SlowDiskDetector,
    /// The thread's count at the last check, and when that value was first seen.
    transitions: (u64, Instant),
    /// Since when the disk has been slow; `None` if it is not.
    slow_since: Option<Instant>,
}

impl SlowDiskWatch {
    /// A watch that considers the disk slow when an operation on the log takes longer than
    /// `bound_ticks`.
    pub(super) fn new(shared: Arc<Shared>, counters: DiskCounters, bound_ticks: u64) -> SlowDiskWatch {
        let detector = SlowDiskDetector::new(bound_ticks);
        SlowDiskWatch { shared, counters, detector, transitions: (0, Instant::now()), slow_since: None }
    }

    /// Counts a tick. Returns whether the disk is slow, if that has changed.
    pub fn tick(&mut self) -> Option<bool> {
        let now = Instant::now();
        let transitions = self.shared.transitions.load(Ordering::Relaxed);
        if transitions != self.transitions.0 {
            self.transitions = (transitions, now);
        }
        let is_slow = self.detector.tick(transitions);
        match (self.slow_since, is_slow) {
            (None, true) => self.begins(now),
            (Some(since), false) => self.ends(since),
            (None, false) | (Some(_), true) => return None,
        }
        self.counters.is_slow.store(is_slow, Ordering::Relaxed);
        self.shared.set_probing(is_slow);
        Some(is_slow)
    }

    fn begins(&mut self, now: Instant) {
        let begun = self.transitions.1;
        self.slow_since = Some(begun);
        self.counters.slow_stalls.fetch_add(1, Ordering::Relaxed);
        let elapsed_ms = now.duration_since(begun).as_millis() as u64;
        tracing::error!(
            elapsed_ms,
            "the disk is slow: a write or sync of the log takes longer than the election timeout; this node hands over \
             its leaderships and refuses writes until the disk keeps up again. Check the device and what else uses it"
        );
    }

    fn ends(&mut self, since: Instant) {
        self.slow_since = None;
        let elapsed_ms = since.elapsed().as_millis() as u64;
        tracing::info!(
            elapsed_ms,
            "the disk keeps up again: this node takes writes, and leads again when the disk stays fast for a while"
        );
    }
}
