//! The disk thread: waits for log writes and syncs, so that the worker never does.
//!
//! Owns the thread and the queue of batches for its [loop](super::commit_loop). While an operation
//! hangs the thread cannot report it; [`SlowDiskWatch`] detects that.
//!
//! The queue has no explicit limit. The core submits at most its entries in flight and its peers'
//! bounded appends, proceeds past them only when the disk has answered, and takes nothing new
//! during a stall.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use tidelock_core::deliberate::Faults;
use tidelock_core::storage::WalBatch;
use tidelock_core::storage::disk::Disk;
use tidelock_core::storage::group_commit::{DiskReport, GroupCommit, GroupCommitOptions};
use tidelock_core::storage::wal::Writer;

use super::commit_loop::CommitLoop;
use super::slow::SlowDiskWatch;
use crate::metrics::DiskCounters;

/// Receives reports. Called on the disk thread.
pub type ReportSink = Box<dyn Fn(DiskReport) + Send>;

/// A handle to the thread. Dropping it stops the thread as [`DiskThread::stop`] does.
pub struct DiskThread {
    shared: Arc<Shared>,
    counters: DiskCounters,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread shares with its handle and with the watch.
#[derive(Default)]
pub(super) struct Shared {
    queue: Mutex<BatchQueue>,
    pub(super) changed: Condvar,
    /// How often the thread has begun or finished an operation on the disk: odd during one.
    pub(super) transitions: AtomicU64,
}

#[derive(Default)]
pub(super) struct BatchQueue {
    pub(super) batches: Vec<WalBatch>,
    pub(super) stopping: bool,
    /// The disk is slow: probe it while there is nothing to write.
    pub(super) probing: bool,
}

impl DiskThread {
    /// Starts the thread. Without `sync` a batch is reported once the kernel has it: it then
    /// survives a crash of the process, not of the machine.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start<D>(writer: Writer<D>, sync: bool, report: ReportSink) -> io::Result<DiskThread>
    where
        D: Disk + Send + 'static,
        D::File: Send,
    {
        let shared = Arc::new(Shared::default());
        let counters = DiskCounters::default();
        let commits = GroupCommit::new(writer, GroupCommitOptions { sync, faults: Faults::NONE });
        let mut commits = CommitLoop::new(commits, shared.clone(), report, counters.clone());
        let thread = Builder::new().name(String::from("disk")).spawn(move || commits.run())?;
        Ok(DiskThread { shared, counters, thread: Some(thread) })
    }

    /// Queues a batch for the next group commit.
    pub fn submit(&self, batch: WalBatch) {
        self.shared.lock().batches.push(batch);
        self.shared.changed.notify_one();
    }

    /// The counters that the thread raises.
    pub fn counters(&self) -> DiskCounters {
        self.counters.clone()
    }

    /// Returns a watch that reports the disk as slow when an operation takes longer than
    /// `bound_ticks`.
    pub fn watch(&self, bound_ticks: u64) -> SlowDiskWatch {
        SlowDiskWatch::new(self.shared.clone(), self.counters(), bound_ticks)
    }

    /// Writes what is queued, unless the disk is stalled, and ends the thread.
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
    pub(super) fn lock(&self) -> MutexGuard<'_, BatchQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the thread probe the disk, or ends that.
    pub(super) fn set_probing(&self, probing: bool) {
        self.lock().probing = probing;
        self.changed.notify_one();
    }

    /// Records that the thread begins or finishes an operation on the disk.
    pub(super) fn transition(&self) {
        self.transitions.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use bytes::Bytes;
    use tidelock_core::storage::disk::{DiskError, DiskErrorKind, DiskFile};
    use tidelock_core::storage::wal::{self, WalError, WalOptions};
    use tidelock_core::storage::{LogEntry, WalRecord};
    use tidelock_core::types::{LogIndex, ShardId, Term, WalSequence};

    use super::*;
    use crate::disk::{FsDisk, FsFile};

    fn batch(index: u64) -> WalBatch {
        let entry = LogEntry { index: LogIndex(index), term: Term(1), data: Bytes::from_static(b"data") };
        let record = WalRecord::Entries { shard: ShardId(1), entries: vec![entry] };
        WalBatch { sequence: WalSequence(index), records: vec![record], released: vec![] }
    }

    fn durable(report: &DiskReport) -> u64 {
        let DiskReport::Durable(WalSequence(sequence)) = report else { panic!("{report:?}") };
        *sequence
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
                DiskThread::start(writer, sync, Box::new(move |report| sender.send(report).unwrap()))
                    .unwrap();
            for index in before + 1..=count {
                thread.submit(batch(index));
            }
            let counters = thread.counters();
            thread.stop();
            let reported: Vec<u64> = reports.iter().map(|report| durable(&report)).collect();
            assert!(reported.is_sorted() && reported.last() == Some(&count), "{reported:?}");
            let fsyncs = counters.fsyncs.count();
            assert_eq!(
                fsyncs,
                if sync { reported.len() as u64 } else { 0 },
                "one sync for each group commit"
            );
        }
    }

    /// A real disk on which file creation fails while it is full, and syncs do not return while it
    /// hangs.
    #[derive(Clone, Debug)]
    struct FaultyDisk {
        disk: FsDisk,
        full: Arc<AtomicBool>,
        hangs: Arc<Hang>,
    }

    #[derive(Debug, Default)]
    struct Hang {
        hangs: Mutex<bool>,
        changed: Condvar,
    }

    impl Hang {
        fn set(&self, hangs: bool) {
            *self.hangs.lock().unwrap() = hangs;
            self.changed.notify_all();
        }
    }

    #[derive(Debug)]
    struct FaultyFile {
        file: FsFile,
        hangs: Arc<Hang>,
    }

    impl DiskFile for FaultyFile {
        fn size(&self) -> Result<u64, DiskError> {
            self.file.size()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
            self.file.read_at(offset, buffer)
        }

        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
            self.file.write_at(offset, bytes)
        }

        fn resize(&mut self, bytes: u64) -> Result<(), DiskError> {
            self.file.resize(bytes)
        }

        fn sync(&mut self) -> Result<(), DiskError> {
            let hangs = self.hangs.hangs.lock().unwrap();
            drop(self.hangs.changed.wait_while(hangs, |hangs| *hangs).unwrap());
            self.file.sync()
        }
    }

    impl FaultyDisk {
        fn open_at(directory: &Path) -> FaultyDisk {
            let disk = FsDisk::open(directory).unwrap();
            FaultyDisk { disk, full: Arc::default(), hangs: Arc::default() }
        }

        fn file(&self, file: FsFile) -> FaultyFile {
            FaultyFile { file, hangs: self.hangs.clone() }
        }
    }

    impl Disk for FaultyDisk {
        type File = FaultyFile;

        fn list(&self) -> Result<Vec<String>, DiskError> {
            self.disk.list()
        }

        fn create(&self, name: &str, bytes: u64) -> Result<FaultyFile, DiskError> {
            if self.full.load(Ordering::Relaxed) {
                let (operation, file, reason) = ("create", name.to_owned(), "full".to_owned());
                return Err(DiskError { operation, file, reason, kind: DiskErrorKind::NoRoom });
            }
            self.disk.create(name, bytes).map(|file| self.file(file))
        }

        fn open(&self, name: &str) -> Result<FaultyFile, DiskError> {
            self.disk.open(name).map(|file| self.file(file))
        }

        fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
            self.disk.rename(from, to)
        }

        fn remove(&self, name: &str) -> Result<(), DiskError> {
            self.disk.remove(name)
        }
    }

    /// A small log on a disk that becomes full as soon as the log is open.
    struct Filled {
        thread: DiskThread,
        reports: mpsc::Receiver<DiskReport>,
        full: Arc<AtomicBool>,
        submitted: u64,
        durable: u64,
    }

    const SMALL: WalOptions = WalOptions {
        segment_bytes: 8192,
        frame_bytes_max: 4096,
        seed: 1,
        begun: false,
        faults: Faults::NONE,
    };

    impl Filled {
        fn new(directory: &Path) -> Filled {
            let disk = FaultyDisk::open_at(directory);
            let full = disk.full.clone();
            let (writer, _) = wal::open(disk, SMALL).unwrap();
            full.store(true, Ordering::Relaxed);
            let (sender, reports) = mpsc::channel();
            let report = Box::new(move |report| sender.send(report).unwrap());
            let thread = DiskThread::start(writer, true, report).unwrap();
            Filled { thread, reports, full, submitted: 0, durable: 0 }
        }

        /// Submits batches one after the other until the disk stalls.
        fn fill(&mut self) {
            loop {
                self.submitted += 1;
                self.thread.submit(batch(self.submitted));
                loop {
                    match self.reports.recv().unwrap() {
                        DiskReport::Durable(WalSequence(sequence)) if sequence == self.submitted => break,
                        DiskReport::Durable(_) => {}
                        DiskReport::Stalled(reason) => return assert!(matches!(reason, WalError::NoRoom(_))),
                        other => panic!("{other:?}"),
                    }
                }
                self.durable = self.submitted;
            }
        }
    }

    fn entries_found(directory: &Path) -> u64 {
        let (_, recovery) = wal::open(FsDisk::open(directory).unwrap(), SMALL).unwrap();
        recovery.logs[&ShardId(1)].entries.len() as u64
    }

    #[test]
    fn what_waits_for_room_is_written_when_there_is_some() {
        let directory = tempfile::tempdir().unwrap();
        let mut filled = Filled::new(directory.path());
        filled.fill();
        assert!(filled.durable > 10);
        filled.submitted += 1;
        filled.thread.submit(batch(filled.submitted));
        filled.full.store(false, Ordering::Relaxed);
        // Batches queued before the retry are durable before the recovery is reported, later ones
        // after it.
        let last = DiskReport::Durable(WalSequence(filled.submitted));
        let (mut is_durable, mut has_recovered) = (false, false);
        while !(is_durable && has_recovered) {
            let report = filled.reports.recv().unwrap();
            assert!(matches!(report, DiskReport::Durable(_) | DiskReport::Recovered { .. }), "{report:?}");
            is_durable |= report == last;
            has_recovered |= matches!(report, DiskReport::Recovered { .. });
        }
        assert_eq!(filled.thread.counters().stalls.load(Ordering::Relaxed), 1);
        filled.thread.stop();
        assert_eq!(entries_found(directory.path()), filled.submitted);
    }

    #[test]
    fn a_stalled_thread_stops_and_loses_nothing_that_was_reported() {
        let directory = tempfile::tempdir().unwrap();
        let mut filled = Filled::new(directory.path());
        filled.fill();
        filled.thread.submit(batch(filled.submitted + 1));
        filled.thread.stop();
        let promised = filled.reports.iter().map(|report| match report {
            DiskReport::Durable(sequence) => sequence.0,
            other => panic!("{other:?} from a thread whose disk stays full"),
        });
        let promised = promised.max().unwrap_or(filled.durable);
        assert!(entries_found(directory.path()) >= promised);
    }

    /// Ticks the watch, as the worker does, until it reports a change.
    fn news(watch: &mut SlowDiskWatch) -> bool {
        loop {
            if let Some(slow) = watch.tick() {
                return slow;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_disk_that_hangs_is_found_slow_and_probed_until_it_keeps_up() {
        // Ticks follow each other as fast as this thread can loop. The bound is high enough that a
        // sync of a working disk stays below it.
        const BOUND_TICKS: u64 = 100_000;
        let directory = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::open_at(directory.path());
        let hangs = disk.hangs.clone();
        let (writer, _) = wal::open(disk, SMALL).unwrap();
        let (sender, reports) = mpsc::channel();
        let report = Box::new(move |report| sender.send(report).unwrap());
        let thread = DiskThread::start(writer, true, report).unwrap();
        let mut watch = thread.watch(BOUND_TICKS);
        hangs.set(true);
        thread.submit(batch(1));
        assert!(news(&mut watch), "an operation outlasts the bound");
        assert_eq!(thread.counters().slow_stalls.load(Ordering::Relaxed), 1);
        assert!(thread.counters().is_slow.load(Ordering::Relaxed));
        assert!((0..100).all(|_| watch.tick().is_none()), "it is slow as long as the operation hangs");
        assert_eq!(reports.try_recv(), Err(mpsc::TryRecvError::Empty), "nothing is durable");
        hangs.set(false);
        assert!(!news(&mut watch), "nothing is written any more, and yet it is seen to keep up");
        assert!(!thread.counters().is_slow.load(Ordering::Relaxed));
        assert_eq!(durable(&reports.recv().unwrap()), 1);
        thread.stop();
        assert_eq!(entries_found(directory.path()), 1);
    }
}
