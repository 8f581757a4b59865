//! The threads of a process that use its disk: one for the log, one for snapshots.
//!
//! Owns the state of both: which step of [group commit](tidelock_core::storage::group_commit) or
//! which snapshot task is under way. The world decides how long each takes.

use std::time::Duration;

use tidelock_core::event::{Event, StallReason};
use tidelock_core::storage::LogHeld;
use tidelock_core::storage::group_commit::{CommitStep, DiskReport, NextCommitStep};
use tidelock_core::storage::snapshot::{SnapshotDone, SnapshotTask};
use tidelock_core::storage::snapshot_files::Reading;

use super::{Host, Stop};

impl Host {
    /// What the disk thread does next; `None` if it is busy or there is no process. `now` is the
    /// time of the run.
    pub fn next_step(&mut self, now: Duration) -> Option<NextCommitStep> {
        let process = self.process.as_mut().filter(|process| process.step.is_none())?;
        process.commits.set_slow(process.is_slow);
        Some(process.commits.next(now))
    }

    /// The disk thread begins a step. Returns the number of the operation.
    pub fn begin_step(&mut self, step: CommitStep) -> u64 {
        let process = self.process.as_mut().expect("invariant: only a process has steps");
        process.step = Some(step);
        process.transitions += 1;
        process.transitions
    }

    /// The disk thread performs the step that it began, which ends.
    pub fn end_step(&mut self) -> Result<Option<DiskReport>, Stop> {
        let process = self.process.as_mut().expect("invariant: only a process has steps");
        let step = process.step.take().expect("invariant: a step that ends has begun");
        process.transitions += 1;
        let report = process.commits.perform(step);
        match report {
            Some(DiskReport::Failed(error)) => Err(self.stopped(&error)),
            report => Ok(report),
        }
    }

    /// Whether the thread already waits until a time or longer for something to do; otherwise it
    /// does so from now on.
    pub fn is_timer_set(&mut self, until: Duration) -> bool {
        let Some(process) = &mut self.process else { return true };
        process.disk_timer.replace(until) == Some(until)
    }

    /// The number of the disk thread's present operation, if any.
    pub fn disk_operation(&self) -> Option<u64> {
        let process = self.process.as_ref()?;
        process.step.map(|_| process.transitions)
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
        let stall = if process.commits.is_stalled() { Some(StallReason::Refused) } else { slow };
        let is_news = std::mem::replace(&mut process.reported, stall) != stall;
        is_news.then(|| stall.map_or(Event::DiskRecovered, Event::DiskStalled))
    }

    /// The retained part of the log.
    pub fn log_held(&self) -> Option<LogHeld> {
        Some(self.process.as_ref()?.commits.log().held())
    }

    /// The retained part of the log, if it changed since the last report to the node.
    pub fn log_held_anew(&mut self) -> Option<LogHeld> {
        let process = self.process.as_mut()?;
        let held = process.commits.log().held();
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
