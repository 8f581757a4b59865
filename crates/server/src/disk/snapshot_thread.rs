//! The thread that reads and writes snapshot files, so that neither the worker nor the log waits
//! for them.
//!
//! Owns the order and the pace. Tasks run one after another, and each is reported when it is done.
//! A written block is reported only when the next one may follow, and a part to be sent is read
//! only when it may go, so snapshots are made and sent no faster than [`SnapshotPaces`] allows. A
//! failed task is reported like any other and ends nothing: the log is complete without a snapshot,
//! and the core retries.
//!
//! The thread has the same priority as the others. With a lower one, requests would wait for it.
//! When processors are scarce, it could be preempted while it holds what requests need, such as a
//! lock of the file system's journal or of the allocator.
//!
//! The queue needs no explicit limit, because the core bounds the tasks in flight of a shard: one
//! for its own snapshot, one for each follower that it serves, and one for what it receives.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tidelock_core::node::WALK_BYTES_PER_LOG_BYTE;
use tidelock_core::storage::disk::Disk;
use tidelock_core::storage::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};
use tidelock_core::storage::snapshot_files::SnapshotFiles;
use tidelock_core::types::ShardId;

use super::pace::{Bucket, Pace};
use crate::metrics::{DiskCounters, SnapshotCounters};

/// How fast snapshots are written and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotPaces {
    /// Pace of all snapshots made here.
    pub walk: Pace,
    /// Pace of all snapshots sent to followers: it leaves most of a disk and of a gigabit link to
    /// clients. It rises with the growth of the log, so that a snapshot is not long outdated when
    /// it arrives.
    pub send: Pace,
}

impl Default for SnapshotPaces {
    fn default() -> Self {
        SnapshotPaces {
            walk: Pace { bytes_per_second: 16 << 20, bytes_per_log_byte: WALK_BYTES_PER_LOG_BYTE },
            send: Pace { bytes_per_second: 16 << 20, bytes_per_log_byte: 2 },
        }
    }
}

/// A handle to the thread. If it is dropped without [`SnapshotThread::stop`], the thread still runs
/// what was submitted, without being waited for.
pub struct SnapshotThread {
    tasks: Sender<SnapshotTask>,
    counters: SnapshotCounters,
    thread: JoinHandle<()>,
}

impl SnapshotThread {
    /// Starts the thread. `log` shows how fast the log grows; `report` is called on the thread,
    /// once for each task.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start<D>(
        files: SnapshotFiles<D>,
        paces: SnapshotPaces,
        log: DiskCounters,
        report: impl Fn(SnapshotDone) + Send + 'static,
    ) -> io::Result<SnapshotThread>
    where
        D: Disk + Send + 'static,
        D::File: Send,
    {
        let (tasks, queue) = mpsc::channel();
        let counters = SnapshotCounters::default();
        let (now, log_bytes) = (Instant::now(), log.bytes_written.load(Ordering::Relaxed));
        let work = Work {
            files,
            queue,
            log,
            report,
            counters: counters.clone(),
            begun: BTreeMap::new(),
            walk: Bucket::new(paces.walk, now, log_bytes),
            written: VecDeque::new(),
            send: Bucket::new(paces.send, now, log_bytes),
            reads: VecDeque::new(),
            failures: SnapshotFailures::default(),
        };
        let thread = Builder::new().name(String::from("snapshots")).spawn(move || work.run())?;
        Ok(SnapshotThread { tasks, counters, thread })
    }

    /// Queues a task without waiting.
    pub fn submit(&self, task: SnapshotTask) {
        // Fails only if the thread has panicked; `stop` propagates that.
        let _ = self.tasks.send(task);
    }

    /// The counters that the thread raises.
    pub fn counters(&self) -> SnapshotCounters {
        self.counters.clone()
    }

    /// Runs what is queued, ignoring the pace, and ends the thread.
    pub fn stop(self) {
        drop(self.tasks);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

struct Work<D: Disk, R> {
    files: SnapshotFiles<D>,
    queue: Receiver<SnapshotTask>,
    log: DiskCounters,
    report: R,
    counters: SnapshotCounters,
    /// The snapshot being made of each shard, and since when.
    begun: BTreeMap<ShardId, (SnapshotId, Instant)>,
    walk: Bucket,
    /// Blocks written, to be reported when the next one may follow.
    written: VecDeque<SnapshotDone>,
    send: Bucket,
    /// Parts to be read when they may be sent.
    reads: VecDeque<SnapshotTask>,
    failures: SnapshotFailures,
}

/// Interval between log lines about snapshots of one shard that fail for one reason.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(600);

/// Failures since the last snapshot of each shard, so that a full disk is logged once a shard and
/// not at each attempt.
#[derive(Debug, Default)]
struct SnapshotFailures {
    shards: BTreeMap<ShardId, FailureStreak>,
}

#[derive(Debug, Default)]
struct FailureStreak {
    /// The reason, without numbers.
    kind: String,
    count: u64,
    logged: Option<Instant>,
}

impl SnapshotFailures {
    /// Records a failed step. Returns whether to log it: the shard's first failure since its last
    /// success, one with another reason, or one after [`FAILURE_LOG_INTERVAL`].
    fn failed(&mut self, shard: ShardId, reason: &str, now: Instant) -> bool {
        // File names in the reason contain the number of the attempt.
        let kind: String = reason.chars().filter(|character| !character.is_ascii_digit()).collect();
        let failing = self.shards.entry(shard).or_default();
        failing.count += 1;
        let is_recent = |at: Instant| now.saturating_duration_since(at) < FAILURE_LOG_INTERVAL;
        if failing.kind == kind && failing.logged.is_some_and(is_recent) {
            return false;
        }
        (failing.kind, failing.logged) = (kind, Some(now));
        true
    }

    /// Records a finished snapshot. Returns how many steps had failed before.
    fn succeeded(&mut self, shard: ShardId) -> u64 {
        self.shards.remove(&shard).map_or(0, |failing| failing.count)
    }
}

impl<D: Disk, R: Fn(SnapshotDone)> Work<D, R> {
    fn run(mut self) {
        self.measure();
        while let Some(task) = self.next() {
            match task {
                SnapshotTask::Read { .. } => self.reads.push_back(task),
                task => self.work(task),
            }
        }
        while let Some(read) = self.reads.pop_front() {
            self.work(read);
        }
        self.written.drain(..).for_each(&self.report);
    }

    /// The next task. While it waits, delayed reports and reads are done when they are due. `None`
    /// after the last task.
    fn next(&mut self) -> Option<SnapshotTask> {
        loop {
            let (now, log_bytes) = (Instant::now(), self.log.bytes_written.load(Ordering::Relaxed));
            self.walk.fill(now, log_bytes);
            self.send.fill(now, log_bytes);
            if self.walk.wait().is_zero() {
                self.written.drain(..).for_each(&self.report);
            }
            if self.send.wait().is_zero()
                && let Some(read) = self.reads.pop_front()
            {
                self.work(read);
            }
            let walk_wait = (!self.written.is_empty()).then(|| self.walk.wait());
            let send_wait = (!self.reads.is_empty()).then(|| self.send.wait());
            let received = match walk_wait.into_iter().chain(send_wait).min() {
                Some(wait) => self.queue.recv_timeout(wait),
                None => self.queue.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn work(&mut self, task: SnapshotTask) {
        let grows_by = match &task {
            SnapshotTask::Write { id, block } => {
                let begun = self.begun.entry(id.shard).or_insert_with(|| (*id, Instant::now()));
                if begun.0 != *id {
                    *begun = (*id, Instant::now());
                }
                block.len() as u64
            }
            SnapshotTask::Receive { bytes, .. } => bytes.len() as u64,
            _ => 0,
        };
        let done = self.files.run(task);
        self.log(&done);
        self.count(&done, grows_by);
        match done {
            SnapshotDone::Written { .. } => {
                self.walk.spend(grows_by);
                self.written.push_back(done);
            }
            SnapshotDone::Read { ref bytes, .. } => {
                self.send.spend(bytes.len() as u64);
                (self.report)(done);
            }
            done => (self.report)(done),
        }
    }

    /// Microseconds since the first block of a snapshot.
    fn making_micros(&self, id: SnapshotId) -> u64 {
        let begun = self.begun.get(&id.shard).filter(|(begun, _)| *begun == id);
        begun.map_or(0, |(_, since)| since.elapsed().as_micros() as u64)
    }

    fn count(&self, done: &SnapshotDone, grew_by: u64) {
        let add = |counter: &AtomicU64, count| {
            counter.fetch_add(count, Ordering::Relaxed);
        };
        let counters = &self.counters;
        match done {
            SnapshotDone::Written { .. } => return add(&counters.file_bytes, grew_by),
            SnapshotDone::Received { .. } => {
                add(&counters.bytes_received, grew_by);
                return add(&counters.file_bytes, grew_by);
            }
            SnapshotDone::Read { bytes, .. } => return add(&counters.bytes_sent, bytes.len() as u64),
            SnapshotDone::Finished { id, .. } => {
                add(&counters.made, 1);
                add(&counters.making_micros, self.making_micros(*id));
            }
            SnapshotDone::Loaded { .. } => add(&counters.received, 1),
            SnapshotDone::Failed { .. } => add(&counters.failed, 1),
            SnapshotDone::Discarded { .. } | SnapshotDone::Removed { .. } => {}
        }
        self.measure();
    }

    /// Updates the counter after files were added or removed.
    fn measure(&self) {
        // Only a metric: if the directory cannot be read, tasks report that.
        if let Ok(bytes) = self.files.file_bytes() {
            self.counters.file_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    fn log(&mut self, done: &SnapshotDone) {
        let id = done.id();
        let (shard, index) = (id.shard.0, id.index.0);
        match done {
            SnapshotDone::Finished { file_bytes, .. } => {
                let elapsed_ms = self.making_micros(id) / 1_000;
                let failures = self.failures.succeeded(id.shard);
                tracing::info!(shard, index, bytes = file_bytes, elapsed_ms, failures, "snapshot finished");
            }
            SnapshotDone::Loaded { file_bytes, .. } => {
                let failures = self.failures.succeeded(id.shard);
                tracing::info!(shard, index, bytes = file_bytes, failures, "snapshot received and loaded");
            }
            SnapshotDone::Failed { reason, .. } if self.failures.failed(id.shard, reason, Instant::now()) => {
                tracing::warn!(
                    shard,
                    index,
                    reason,
                    "snapshot failed: retrying; the next line about it follows when it succeeds or fails for another reason"
                );
            }
            SnapshotDone::Failed { reason, .. } => {
                tracing::debug!(shard, index, reason, "snapshot failed again");
            }
            SnapshotDone::Removed { .. } => {
                tracing::info!(shard, "snapshots removed: this node no longer has a replica of the shard");
            }
            SnapshotDone::Written { .. }
            | SnapshotDone::Read { .. }
            | SnapshotDone::Received { .. }
            | SnapshotDone::Discarded { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tidelock_core::storage::snapshot::SnapshotId;
    use tidelock_core::types::{LogIndex, ShardId, Term};

    use super::*;
    use crate::disk::FsDisk;

    fn start(files: SnapshotFiles<FsDisk>, report: impl Fn(SnapshotDone) + Send + 'static) -> SnapshotThread {
        SnapshotThread::start(files, SnapshotPaces::default(), DiskCounters::default(), report).unwrap()
    }

    #[test]
    fn failures_are_news_once_until_a_snapshot_succeeds() {
        let mut failures = SnapshotFailures::default();
        let (now, later) = (Instant::now(), Instant::now() + FAILURE_LOG_INTERVAL);
        let (one, other) = (ShardId(1), ShardId(2));
        let said = [
            failures.failed(one, "create snap-1-70: no room", now),
            failures.failed(one, "create snap-1-71: no room", now),
            failures.failed(other, "create snap-2-9: no room", now),
            failures.failed(one, "create snap-1-72: read-only", now),
            failures.failed(one, "create snap-1-73: read-only", now),
        ];
        assert_eq!(said, [true, false, true, true, false]);
        assert_eq!((failures.succeeded(one), failures.succeeded(one)), (4, 0));
        assert!(failures.failed(one, "create snap-1-74: read-only", now));
        assert!(!failures.failed(other, "create snap-2-10: no room", now));
        assert!(failures.failed(other, "create snap-2-11: no room", later), "it still fails");
    }

    #[test]
    fn every_task_is_reported_and_files_last() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FsDisk::open(directory.path()).unwrap();
        let id = SnapshotId { shard: ShardId(1), index: LogIndex(7), term: Term(2) };
        let (sender, reports) = mpsc::channel();
        let files = SnapshotFiles::open(disk.clone()).unwrap();
        let thread = start(files, move |done| sender.send(done).unwrap());
        // The first block of an empty data shard's snapshot: format, kind, revision.
        thread.submit(SnapshotTask::Write { id, block: vec![1, 1, 0] });
        thread.submit(SnapshotTask::Finish { id, keeps_older: false });
        thread.submit(SnapshotTask::Load { id: SnapshotId { index: LogIndex(8), ..id } });
        thread.stop();
        let reports: Vec<SnapshotDone> = reports.iter().collect();
        assert!(matches!(reports[0], SnapshotDone::Written { .. }), "{reports:?}");
        assert!(matches!(reports[1], SnapshotDone::Finished { .. }), "{reports:?}");
        assert!(matches!(reports[2], SnapshotDone::Failed { .. }), "{reports:?}");
        assert_eq!(reports.len(), 3);
        let found: Vec<SnapshotId> = SnapshotFiles::open(disk).unwrap().finished(ShardId(1)).collect();
        assert_eq!(found, [id]);
    }
}
