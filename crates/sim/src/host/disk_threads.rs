//! The threads of a process that use its disk: one for the log, one for snapshots.
//!
//! Owns what the server's disk threads do, in their order: the log's thread appends all batches
//! that queued while it was busy, syncs them, releases and prepares segments, retries on a stalled
//! disk and probes a slow one. The snapshot thread executes one task after the other.

use tidelock_core::event::{Event, StallReason};
use tidelock_core::storage::snapshot::{SnapshotDone, SnapshotTask};
use tidelock_core::storage::snapshot_files::Reading;
use tidelock_core::storage::wal;
use tidelock_core::storage::{LogHeld, WalBatch};
use tidelock_core::types::{LogIndex, ShardId, WalSequence};

use super::{Host, Stop};
use crate::disk::SimDisk;

/// What the disk thread did with the queued batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// It is busy, or there is nothing to do, or the disk is stalled.
    Nothing,
    /// It took everything up to this batch, which is durable after a sync.
    Begun(WalSequence),
}

/// The present operation of the disk thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    /// Everything up to this batch is written, and is being synced.
    Batch(WalSequence),
    /// A probe of a slow disk.
    Probe,
}

impl Host {
    /// The disk thread takes the queued batches, if it is idle and the disk is not stalled.
    pub fn begin_write(&mut self) -> Result<Write, Stop> {
        match &self.process {
            Some(process) if !process.stalled && process.writing.is_none() => self.append(),
            _ => Ok(Write::Nothing),
        }
    }

    /// The disk thread retries the batches that a stalled disk refused; before that it releases
    /// segments that no shard needs.
    pub fn retry_write(&mut self) -> Result<Write, Stop> {
        let process = self.process.as_mut().expect("invariant: only a process retries");
        if process.writing.is_some() {
            return Ok(Write::Nothing);
        }
        let released = released_by(&process.queued);
        let reclaimed =
            release(&mut process.log, released).and_then(|()| unless_final(process.log.reclaim()));
        reclaimed.map_err(|error| self.stopped(&error))?;
        self.append()
    }

    fn append(&mut self) -> Result<Write, Stop> {
        let Some(process) = &mut self.process else { return Ok(Write::Nothing) };
        let appended = process.log.append(&process.queued);
        let write = match process.queued.last() {
            Some(last) if appended.is_ok() => Write::Begun(last.sequence),
            _ => Write::Nothing,
        };
        if let Write::Begun(last) = write {
            process.writing = Some(Writing::Batch(last));
            process.transitions += 1;
            process.releasing = released_by(&std::mem::take(&mut process.queued));
        }
        // A batch without commands may find room on a stalled disk, which stays stalled.
        let room = appended.and_then(|()| process.log.ensure_room());
        process.stalled = room.is_err();
        match room {
            Err(error) if !error.is_retryable() => Err(self.stopped(&error)),
            Ok(()) | Err(_) => Ok(write),
        }
    }

    /// The disk thread syncs what it wrote, and then, if nothing waits, prepares segments in up to
    /// `steps` steps. Returns the last batch that is now durable, unless this was a probe.
    pub fn finish_write(&mut self, steps: u32) -> Result<Option<WalSequence>, Stop> {
        let process = self.process.as_mut().expect("invariant: only a process writes");
        process.transitions += 1;
        let sequence = match process.writing.take().expect("invariant: a sync ends what an append began") {
            Writing::Batch(sequence) => sequence,
            Writing::Probe => {
                let probed = unless_final(process.log.probe());
                return probed.map(|()| None).map_err(|error| self.stopped(&error));
            }
        };
        let released = std::mem::take(&mut process.releasing);
        let synced = process.log.sync().and_then(|()| release(&mut process.log, released));
        let idle = process.queued.is_empty();
        let prepared = synced.and_then(|()| if idle { prepare(&mut process.log, steps) } else { Ok(()) });
        prepared.map(|()| Some(sequence)).map_err(|error| self.stopped(&error))
    }

    /// Breaks the contract: forgets the batches that a stalled disk refused.
    pub fn forget_queued(&mut self) {
        if let Some(process) = &mut self.process {
            process.queued.clear();
        }
    }

    /// Whether its disk takes no commands.
    pub fn is_stalled(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.stalled)
    }

    /// The disk thread probes a slow disk, if it is idle. Returns whether it does.
    pub fn begin_probe(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        let is_idle = process.writing.is_none() && process.queued.is_empty() && !process.stalled;
        if !process.is_slow || !is_idle {
            return false;
        }
        process.writing = Some(Writing::Probe);
        process.transitions += 1;
        true
    }

    /// The number of the disk thread's present operation, if any.
    pub fn disk_operation(&self) -> Option<u64> {
        let process = self.process.as_ref()?;
        process.writing.map(|_| process.transitions)
    }

    /// Checks whether the disk is slow, as the shell does at each tick.
    pub fn look_at_disk(&mut self) {
        if let Some(process) = &mut self.process {
            process.is_slow = process.detector.tick(process.transitions);
        }
    }

    /// Whether its process has found its disk slow.
    pub fn is_slow(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.is_slow)
    }

    /// The state of the disk, if it changed since the last report: why it takes no commands, or
    /// that it does again.
    pub fn disk_news(&mut self) -> Option<Event> {
        let process = self.process.as_mut()?;
        let slow = process.is_slow.then_some(StallReason::Slow);
        let stall = if process.stalled { Some(StallReason::Refused) } else { slow };
        let is_news = std::mem::replace(&mut process.reported, stall) != stall;
        is_news.then(|| stall.map_or(Event::DiskRecovered, Event::DiskStalled))
    }

    /// The retained part of the log.
    pub fn log_held(&self) -> Option<LogHeld> {
        Some(self.process.as_ref()?.log.held())
    }

    /// The retained part of the log, if it changed since the last report to the node.
    pub fn log_held_anew(&mut self) -> Option<LogHeld> {
        let process = self.process.as_mut()?;
        let held = process.log.held();
        (std::mem::replace(&mut process.held, held) != held).then_some(held)
    }

    /// The snapshot thread takes its next task, if it is idle. Returns whether it did. It may
    /// postpone a read in favour of all other tasks.
    pub fn begin_task(&mut self, puts_off: bool) -> bool {
        let Some(process) = &mut self.process else { return false };
        if process.filing.is_some() {
            return false;
        }
        let is_next = |task: &SnapshotTask| !(puts_off && matches!(task, SnapshotTask::Read { .. }));
        let next = process.tasks.iter().position(is_next).unwrap_or(0);
        process.filing = process.tasks.remove(next);
        process.filings += u64::from(process.filing.is_some());
        process.filing.is_some()
    }

    /// The number of the snapshot thread's present task, if any.
    pub fn task_under_way(&self) -> Option<u64> {
        let process = self.process.as_ref()?;
        process.filing.as_ref().map(|_| process.filings)
    }

    /// Registers a reader of snapshot files, as a thread that makes a backup does.
    pub fn enter_reader(&self) -> Reading {
        let process = self.process.as_ref().expect("invariant: only a process makes backups");
        process.files.readers().enter()
    }

    /// The snapshot thread executes the task that it took.
    pub fn finish_task(&mut self) -> Result<SnapshotDone, Stop> {
        let process = self.process.as_mut().expect("invariant: only a process has tasks");
        let task = process.filing.take().expect("invariant: a task was taken");
        let done = process.files.run(task);
        if self.disk.is_dead() { Err(Stop::Died) } else { Ok(done) }
    }
}

fn released_by(batches: &[WalBatch]) -> Vec<(ShardId, LogIndex)> {
    batches.iter().flat_map(|batch| batch.released.iter().copied()).collect()
}

/// Releases segments. What cannot be released now is released with the next call, or during a
/// stall.
fn release(log: &mut wal::Writer<SimDisk>, released: Vec<(ShardId, LogIndex)>) -> Result<(), wal::WalError> {
    released.into_iter().try_for_each(|(shard, up_to)| unless_final(log.release(shard, up_to)))
}

/// Returns an error only if the failed operation must not be retried.
fn unless_final(result: Result<(), wal::WalError>) -> Result<(), wal::WalError> {
    result.or_else(|error| if error.is_retryable() { Ok(()) } else { Err(error) })
}

/// Ignores lack of room while the current segment has room.
fn prepare(log: &mut wal::Writer<SimDisk>, steps: u32) -> Result<(), wal::WalError> {
    for _ in 0..steps {
        match log.prepare_next() {
            Ok(true) => {}
            Err(error) if !error.is_retryable() => return Err(error),
            Ok(false) | Err(_) => break,
        }
    }
    Ok(())
}
