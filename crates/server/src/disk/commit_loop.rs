//! The loop of the disk thread: drives [group commit](tidelock_core::storage::group_commit) with
//! what is queued.
//!
//! Owns waiting, the log lines and the metrics of the log. The core decides what is written when.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use tidelock_core::storage::disk::Disk;
use tidelock_core::storage::group_commit::{CommitStep, DiskReport, GroupCommit, NextCommitStep};

use super::thread::{ReportSink, Shared};
use crate::metrics::DiskCounters;

/// Runs on the disk thread.
pub(super) struct CommitLoop<D: Disk> {
    commits: GroupCommit<D>,
    shared: Arc<Shared>,
    report: ReportSink,
    counters: DiskCounters,
    begun: Instant,
}

impl<D: Disk> CommitLoop<D> {
    pub(super) fn new(
        commits: GroupCommit<D>,
        shared: Arc<Shared>,
        report: ReportSink,
        counters: DiskCounters,
    ) -> CommitLoop<D> {
        CommitLoop { commits, shared, report, counters, begun: Instant::now() }
    }

    /// Works until the thread is stopped or the log fails.
    pub(super) fn run(&mut self) {
        self.measure();
        while let Some(step) = self.next() {
            let was_stalled = self.commits.is_stalled();
            let begun = Instant::now();
            self.shared.transition();
            let report = self.commits.perform(step);
            self.shared.transition();
            if let Some(report) = report
                && !self.pass_on(report, was_stalled)
            {
                return;
            }
            match step {
                CommitStep::Sync => self.count_sync(begun),
                CommitStep::MakeRoom | CommitStep::Prepare => self.measure(),
                CommitStep::Write | CommitStep::Probe => {}
            }
        }
        self.stopped();
    }

    /// Waits for work. `None` if the thread is to stop.
    fn next(&mut self) -> Option<CommitStep> {
        let mut queue = self.shared.lock();
        loop {
            self.commits.submit(queue.batches.drain(..));
            self.commits.set_slow(queue.probing);
            if queue.stopping && self.commits.is_settled() {
                return None;
            }
            let changed = &self.shared.changed;
            queue = match self.commits.next(self.begun.elapsed()) {
                NextCommitStep::Perform(step) => return Some(step),
                NextCommitStep::Wait { until: None } => {
                    changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
                }
                NextCommitStep::Wait { until: Some(until) } => {
                    let wait = until.saturating_sub(self.begun.elapsed());
                    changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Logs a report, and sends it to the worker if that has to act. Returns whether the thread
    /// goes on.
    fn pass_on(&self, report: DiskReport, was_stalled: bool) -> bool {
        let goes_on = !matches!(report, DiskReport::Failed(_));
        match &report {
            DiskReport::Stalled(reason) => {
                tracing::error!(%reason, "the disk takes no writes: nothing is acknowledged until it does");
                self.counters.stalls.fetch_add(u64::from(!was_stalled), Ordering::Relaxed);
            }
            DiskReport::Recovered { after } => {
                tracing::info!(seconds = after.as_secs(), "the disk takes writes again");
            }
            DiskReport::LittleRoom(error) => {
                tracing::warn!(%error, "the log has no room beyond its current segment");
                return true;
            }
            DiskReport::Durable(_) | DiskReport::Failed(_) => {}
        }
        (self.report)(report);
        goes_on
    }

    fn count_sync(&self, begun: Instant) {
        self.counters.fsyncs.observe(begun.elapsed(), 1);
    }

    /// Updates the counters after segments were written, added or removed.
    fn measure(&self) {
        let log = self.commits.log();
        self.counters.bytes_written.store(log.bytes_written(), Ordering::Relaxed);
        self.counters.file_bytes.store(log.file_bytes(), Ordering::Relaxed);
        let held = log.held();
        let mut known = self.counters.held.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != held {
            *known = held;
        }
    }

    fn stopped(&self) {
        let batches = self.commits.pending();
        if batches > 0 {
            tracing::warn!(
                batches,
                "stopped while the disk took no writes: dropped the queued batches, none was acknowledged"
            );
        }
    }
}
