//! Watches from outside whether the disk thread hangs: it cannot report that itself.
//!
//! Owns the log lines and numbers about slow disks. When a disk counts as slow is
//! [`SlowDiskDetector`](tidelock_core::storage::slow_disk::SlowDiskDetector)'s to decide, and what a node does then the core's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidelock_core::storage::slow_disk::SlowDiskDetector;

use super::thread::Shared;
use crate::metrics::DiskCounters;

/// Looks at the disk thread once a tick.
pub struct SlowDiskWatch {
    shared: Arc<Shared>,
    counters: DiskCounters,
    detector: SlowDiskDetector,
    /// What the thread had counted at the last look, and when that was first seen.
    transitions: (u64, Instant),
    /// Since when the disk has been slow, if it is.
    slow_since: Option<Instant>,
}

impl SlowDiskWatch {
    /// Calls a disk slow that works on the log for longer than `bound_ticks`.
    pub(super) fn new(shared: Arc<Shared>, counters: DiskCounters, bound_ticks: u64) -> SlowDiskWatch {
        let detector = SlowDiskDetector::new(bound_ticks);
        SlowDiskWatch { shared, counters, detector, transitions: (0, Instant::now()), slow_since: None }
    }

    /// One tick passed. Returns whether the disk is slow, if that is news.
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
