//! The thread that waits for the disk, so that the worker never does.
//!
//! Owns group commit: it takes every batch that queued while it was busy, appends them as one group, syncs once, and
//! reports the last of them. The first failure is reported and ends it; nothing that comes later is written.
//!
//! The queue has no limit of its own: the core hands out at most what its entries in flight and its peers' bounded
//! appends amount to, and nothing proceeds past them until the disk has answered.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use tidelock_core::storage::WalBatch;
use tidelock_core::storage::disk::Disk;
use tidelock_core::storage::wal::{WalError, Writer};
use tidelock_core::types::WalSequence;

use crate::metrics::DiskCounters;

/// Told once for each group commit, on the disk thread: the last batch that is durable, or why none is any more.
pub type Report = Box<dyn Fn(Result<WalSequence, WalError>) + Send>;

/// A handle to the thread. Dropping it stops the thread as [`DiskThread::stop`] does.
pub struct DiskThread {
    shared: Arc<Shared>,
    counters: DiskCounters,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    batches: Vec<WalBatch>,
    stopping: bool,
}

impl DiskThread {
    /// Starts the thread. Without `sync` a batch is reported when the kernel has it: it then survives the process, not
    /// the machine.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start<D>(writer: Writer<D>, sync: bool, report: Report) -> io::Result<DiskThread>
    where
        D: Disk + Send + 'static,
        D::File: Send,
    {
        let shared = Arc::new(Shared::default());
        let counters = DiskCounters::default();
        let mut commits =
            GroupCommits { shared: shared.clone(), writer, sync, report, counters: counters.clone() };
        let thread = Builder::new().name(String::from("disk")).spawn(move || commits.run())?;
        Ok(DiskThread { shared, counters, thread: Some(thread) })
    }

    /// Queues a batch for the next group commit.
    pub fn submit(&self, batch: WalBatch) {
        self.shared.lock().batches.push(batch);
        self.shared.changed.notify_one();
    }

    /// What the thread counts.
    pub fn counters(&self) -> DiskCounters {
        self.counters.clone()
    }

    /// Writes what is queued and ends the thread.
    pub fn stop(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct GroupCommits<D: Disk> {
    shared: Arc<Shared>,
    writer: Writer<D>,
    sync: bool,
    report: Report,
    counters: DiskCounters,
}

enum Next {
    Commit(Vec<WalBatch>),
    Idle,
    Stop,
}

impl<D: Disk> GroupCommits<D> {
    fn run(&mut self) {
        let mut may_prepare = true;
        loop {
            self.measure();
            match self.next(may_prepare) {
                Next::Commit(batches) => {
                    let result = self.commit(&batches);
                    let failed = result.is_err();
                    (self.report)(result);
                    if failed {
                        return;
                    }
                    // Nobody waits for room, but clients wait for the report.
                    if let Err(error) = self.release(&batches) {
                        return (self.report)(Err(error));
                    }
                    may_prepare = true;
                }
                Next::Idle => match self.writer.prepare_next() {
                    Ok(more) => may_prepare = more,
                    Err(error) if error.out_of_space() => {
                        tracing::warn!(%error, "the log has no room beyond its current segment");
                        may_prepare = false;
                    }
                    Err(error) => return (self.report)(Err(error)),
                },
                Next::Stop => return,
            }
        }
    }

    /// Waits for work. What is queued goes before what is only prudent.
    fn next(&self, may_prepare: bool) -> Next {
        let mut queue = self.shared.lock();
        loop {
            if !queue.batches.is_empty() {
                return Next::Commit(std::mem::take(&mut queue.batches));
            }
            if queue.stopping {
                return Next::Stop;
            }
            if may_prepare {
                return Next::Idle;
            }
            queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn commit(&mut self, batches: &[WalBatch]) -> Result<WalSequence, WalError> {
        let last = batches.last().expect("invariant: a commit has batches").sequence;
        self.writer.append(batches)?;
        if self.sync {
            let begun = Instant::now();
            self.writer.sync()?;
            let micros = begun.elapsed().as_micros() as u64;
            self.counters.fsyncs.fetch_add(1, Ordering::Relaxed);
            self.counters.fsync_micros.fetch_add(micros, Ordering::Relaxed);
        }
        self.counters.bytes_written.store(self.writer.bytes_written(), Ordering::Relaxed);
        Ok(last)
    }

    /// Segments came or went.
    fn measure(&self) {
        self.counters.file_bytes.store(self.writer.file_bytes(), Ordering::Relaxed);
        let held = self.writer.held();
        let mut known = self.counters.held.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != held {
            *known = held;
        }
    }

    /// Lets go of what the batches release, once they are durable.
    fn release(&mut self, batches: &[WalBatch]) -> Result<(), WalError> {
        for &(shard, index) in batches.iter().flat_map(|batch| &batch.released) {
            self.writer.release(shard, index)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use bytes::Bytes;
    use tidelock_core::storage::wal::{self, WalOptions};
    use tidelock_core::storage::{LogEntry, WalRecord};
    use tidelock_core::types::{LogIndex, ShardId, Term};

    use super::*;
    use crate::disk::FsDisk;

    fn batch(index: u64) -> WalBatch {
        let entry = LogEntry { index: LogIndex(index), term: Term(1), data: Bytes::from_static(b"data") };
        let record = WalRecord::Entries { shard: ShardId(1), entries: vec![entry] };
        WalBatch { sequence: WalSequence(index), records: vec![record], released: vec![] }
    }

    #[test]
    fn what_is_reported_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        for (sync, count, before) in [(true, 50, 0), (false, 100, 50)] {
            let disk = FsDisk::open(directory.path()).unwrap();
            let (writer, recovery) = wal::open(disk, WalOptions::new(count)).unwrap();
            let entries = recovery.logs.get(&ShardId(1)).map_or(0, |log| log.entries.len() as u64);
            assert_eq!(entries, before);
            let (sender, reports) = mpsc::channel();
            let thread =
                DiskThread::start(writer, sync, Box::new(move |result| sender.send(result).unwrap()))
                    .unwrap();
            for index in before + 1..=count {
                thread.submit(batch(index));
            }
            let counters = thread.counters();
            thread.stop();
            let reported: Vec<u64> = reports.iter().map(|report| report.unwrap().0).collect();
            assert!(reported.is_sorted() && reported.last() == Some(&count), "{reported:?}");
            let fsyncs = counters.fsyncs.load(Ordering::Relaxed);
            assert_eq!(
                fsyncs,
                if sync { reported.len() as u64 } else { 0 },
                "one sync for each group commit"
            );
        }
    }
}
