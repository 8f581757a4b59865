//! Group commit: makes queued batches durable with one sync for all of them.
//!
//! It takes every batch that was queued while it was busy and appends them as one group. Then it
//! syncs once and reports the last of them. A failure is reported and ends the thread; nothing
//! later is written.
//!
//! A full disk, or one that was remounted read-only, is not a failure but a *stall*. Nothing was
//! written, so the batches are kept and retried, in order, until they succeed. Its beginning and
//! end are reported. Meanwhile segments that are no longer needed are still released, which may
//! make room. A thread that is stopped while stalled drops the batches that it keeps, none of which
//! was acknowledged.
//!
//! While the disk is considered slow, it is probed whenever there is nothing to write, so that its
//! recovery is detected.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tidelock_core::storage::WalBatch;
use tidelock_core::storage::disk::Disk;
use tidelock_core::storage::wal::{WalError, Writer};

use super::thread::{DiskReport, ReportSink, Shared};
use crate::metrics::DiskCounters;

/// Time between two attempts to write to a stalled disk: soon enough for a person who has made
/// room, rare enough for a disk.
const STALL_RETRY: Duration = Duration::from_millis(500);

/// Time between two probes of a slow disk: several per election timeout, by which recovery is
/// judged, and next to no load for a working disk.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// The log, and the batches on their way to it. Runs on the disk thread.
pub(super) struct GroupCommits<D: Disk> {
    shared: Arc<Shared>,
    writer: Writer<D>,
    sync: bool,
    report: ReportSink,
    counters: DiskCounters,
    /// Batches taken from the queue and not durable yet.
    pending: Vec<WalBatch>,
    /// Whether there may be a segment to prepare.
    may_prepare: bool,
    /// Whether a failure to prepare a segment was logged.
    has_warned: bool,
    stall: Option<Stall>,
}

/// A period in which the disk rejects writes.
struct Stall {
    begun: Instant,
    next_attempt: Instant,
    reason: WalError,
}

enum Next {
    /// Something is queued, or it is time to retry what could not be written.
    Commit,
    /// Nothing is queued, and there may be something to prepare.
    Prepare,
    /// Nothing is queued, and the disk is considered slow.
    Probe,
    Stop,
}

impl<D: Disk> GroupCommits<D> {
    pub(super) fn new(
        shared: Arc<Shared>,
        writer: Writer<D>,
        sync: bool,
        report: ReportSink,
        counters: DiskCounters,
    ) -> GroupCommits<D> {
        GroupCommits {
            shared,
            writer,
            sync,
            report,
            counters,
            pending: Vec::new(),
            may_prepare: true,
            has_warned: false,
            stall: None,
        }
    }

    /// Works until the thread is stopped or the log fails.
    pub(super) fn run(&mut self) {
        loop {
            self.measure();
            let next = self.next();
            self.shared.transition();
            let result = match next {
                Next::Commit => self.commit(),
                Next::Prepare => self.prepare(),
                Next::Probe => self.writer.probe(),
                Next::Stop => return self.stopped(),
            };
            self.shared.transition();
            match result {
                Ok(()) => self.recovered(),
                Err(error) if error.is_retryable() => self.stalled(error),
                Err(error) => return (self.report)(DiskReport::Failed(error)),
            }
        }
    }

    /// Waits for work, and takes what is queued. Commits go before preparation and probes.
    fn next(&mut self) -> Next {
        let mut queue = self.shared.lock();
        let probe_at = Instant::now() + PROBE_INTERVAL;
        loop {
            let mut wait =
                self.stall.as_ref().map(|stall| stall.next_attempt.saturating_duration_since(Instant::now()));
            if queue.stopping && (queue.batches.is_empty() || self.stall.is_some()) {
                return Next::Stop;
            }
            // Stalled batches go first, so new ones need not be considered before the retry.
            let is_due = self.pending.is_empty() && !queue.batches.is_empty();
            if is_due || wait.is_some_and(|wait| wait.is_zero()) {
                self.pending.append(&mut queue.batches);
                return Next::Commit;
            }
            if wait.is_none() && queue.probing {
                let until_probe = probe_at.saturating_duration_since(Instant::now());
                if until_probe.is_zero() {
                    return Next::Probe;
                }
                wait = Some(until_probe);
            }
            let changed = &self.shared.changed;
            queue = match wait {
                Some(wait) => changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0,
                None if self.may_prepare => return Next::Prepare,
                None => changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Makes pending batches durable, and makes room for more.
    fn commit(&mut self) -> Result<(), WalError> {
        if self.stall.is_some() {
            self.release()?;
            unless_final(self.writer.reclaim())?;
        }
        if let Some(last) = self.pending.last().map(|batch| batch.sequence) {
            self.writer.append(&self.pending)?;
            self.sync()?;
            self.counters.bytes_written.store(self.writer.bytes_written(), Ordering::Relaxed);
            (self.report)(DiskReport::Durable(last));
            // Clients wait for the report, but nothing waits for the release.
            self.release()?;
            self.pending.clear();
            self.may_prepare = true;
        }
        self.writer.ensure_room()
    }

    fn sync(&mut self) -> Result<(), WalError> {
        if self.sync {
            let begun = Instant::now();
            self.writer.sync()?;
            let micros = begun.elapsed().as_micros() as u64;
            self.counters.fsyncs.fetch_add(1, Ordering::Relaxed);
            self.counters.fsync_micros.fetch_add(micros, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Updates the counters after segments were added or removed.
    fn measure(&self) {
        self.counters.file_bytes.store(self.writer.file_bytes(), Ordering::Relaxed);
        let held = self.writer.held();
        let mut known = self.counters.held.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != held {
            *known = held;
        }
    }

    /// Releases the segments that the pending batches no longer need. What cannot be released now
    /// is released with the next batches, or during a stall.
    fn release(&mut self) -> Result<(), WalError> {
        for &(shard, index) in self.pending.iter().flat_map(|batch| &batch.released) {
            unless_final(self.writer.release(shard, index))?;
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), WalError> {
        match self.writer.prepare_next() {
            Ok(more) => {
                self.may_prepare = more;
                self.has_warned = false;
            }
            Err(error) if error.is_retryable() => {
                self.may_prepare = false;
                self.writer.ensure_room()?;
                if !std::mem::replace(&mut self.has_warned, true) {
                    tracing::warn!(%error, "the log has no room beyond its current segment");
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn stalled(&mut self, reason: WalError) {
        let now = Instant::now();
        let next_attempt = now + STALL_RETRY;
        if self.stall.as_ref().is_none_or(|stall| stall.reason != reason) {
            tracing::error!(%reason, "the disk takes no writes: nothing is acknowledged until it does");
            (self.report)(DiskReport::Stalled(reason.clone()));
        }
        match &mut self.stall {
            Some(stall) => (stall.next_attempt, stall.reason) = (next_attempt, reason),
            None => {
                self.counters.stalls.fetch_add(1, Ordering::Relaxed);
                self.stall = Some(Stall { begun: now, next_attempt, reason });
            }
        }
    }

    fn recovered(&mut self) {
        if let Some(stall) = self.stall.take() {
            tracing::info!(seconds = stall.begun.elapsed().as_secs(), "the disk takes writes again");
            (self.report)(DiskReport::Recovered);
            self.may_prepare = true;
        }
    }

    fn stopped(&self) {
        let batches = self.pending.len();
        if batches > 0 {
            tracing::warn!(
                batches,
                "stopped while the disk took no writes: dropped the queued batches, none was acknowledged"
            );
        }
    }
}

/// Ignores a retryable failure, whose operation may be repeated later.
fn unless_final(result: Result<(), WalError>) -> Result<(), WalError> {
    result.or_else(|error| if error.is_retryable() { Ok(()) } else { Err(error) })
}
