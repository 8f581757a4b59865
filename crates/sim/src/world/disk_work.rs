//! The work of the threads that use a host's disk: writing and syncing the log, and snapshot files.
//!
//! Owns how long the work takes, what is reported to the process, and what follows when a disk
//! stops it. The [`Host`] does the work.

use tidelock_core::event::{Event, StallReason};
use tidelock_core::storage::snapshot::SnapshotDone;
use tidelock_core::types::NodeId;

use super::World;
use crate::checkers::Violation;
use crate::describe::brief_done;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::{CrashKind, ShellBug};
use crate::host::{Host, Stop, Write};
use crate::plan::DiskPace;

/// Interval between attempts to write to a stalled disk.
const STALL_RETRY: Micros = Micros(100_000);

impl World<'_> {
    /// Tells a process when its disk stalls, becomes slow, or recovers.
    pub(super) fn tell_disk(&mut self, node: NodeId) {
        let (now, is_slow) = (self.event_queue.now(), self.host(node).is_slow());
        self.availability.disk(now, node, is_slow);
        let Some(news) = self.host(node).disk_news() else { return };
        self.tally.disk_stalls += u64::from(matches!(news, Event::DiskStalled(StallReason::Refused)));
        self.tally.slow_disks += u64::from(matches!(news, Event::DiskStalled(StallReason::Slow)));
        let state = match news {
            Event::DiskStalled(StallReason::Refused) => 1,
            Event::DiskStalled(StallReason::Slow) => 2,
            _ => 0,
        };
        self.note(&[11, node.0, state], || format!("node {node}: {news:?}"));
        self.post(node, news);
    }

    /// Schedules the end of the disk thread's present work.
    pub(super) fn arrange_sync(&mut self, node: NodeId) {
        let DiskPace { sync_min, sync_max, .. } = self.disk_pace;
        let random = Micros(self.pace.u64(sync_min.0..=sync_max.0));
        let host = self.host(node);
        let (sync, life) = (random * host.slowness + host.hang, host.incarnation().life);
        let operation = host.disk_operation().expect("invariant: it has begun");
        self.event_queue.after(sync, SimEvent::Synced { node, life, operation });
    }

    /// Lets the disk thread take the queued batches.
    pub(super) fn write(&mut self, node: NodeId) -> Result<(), Violation> {
        self.write_with(node, Host::begin_write)
    }

    /// Lets the disk thread take the queued batches in one of two ways, and tells the process when
    /// a stall of its disk begins or ends.
    fn write_with(
        &mut self,
        node: NodeId,
        write: impl FnOnce(&mut Host) -> Result<Write, Stop>,
    ) -> Result<(), Violation> {
        let life = self.host(node).incarnation().life;
        let refusals = self.host(node).disk().counters().refusals;
        let was_stalled = self.host(node).is_stalled();
        let written = write(self.host(node));
        let is_stalled = self.host(node).is_stalled();
        if is_stalled && self.plan.shell_bug == Some(ShellBug::StalledBatchesForgotten) {
            self.host(node).forget_queued();
        }
        self.tell_disk(node);
        if is_stalled && !was_stalled {
            self.event_queue.after(STALL_RETRY, SimEvent::Retried { node, life });
        }
        match written {
            Ok(Write::Nothing) => Ok(()),
            Ok(Write::Begun(sequence)) => {
                self.arrange_sync(node);
                if self.plan.shell_bug == Some(ShellBug::DurableBeforeSync) {
                    self.post(node, Event::Durable(sequence));
                }
                Ok(())
            }
            Err(stop) => self.stopped(node, &stop, refusals),
        }
    }

    /// A stalled disk is tried again.
    pub(super) fn retried(&mut self, node: NodeId, life: u64) -> Result<(), Violation> {
        if !self.host(node).is_running() {
            self.event_queue.after(STALL_RETRY, SimEvent::Retried { node, life });
            return Ok(());
        }
        self.write_with(node, Host::retry_write)?;
        self.tell_held(node);
        if self.lives(node, life) && self.host(node).is_stalled() {
            self.event_queue.after(STALL_RETRY, SimEvent::Retried { node, life });
        }
        Ok(())
    }

    /// Reports the log's size, since segments may have been added or released.
    fn tell_held(&mut self, node: NodeId) {
        if let Some(held) = self.host(node).log_held_anew() {
            self.post(node, Event::LogHeld(held));
        }
    }

    pub(super) fn synced(&mut self, node: NodeId, life: u64, operation: u64) -> Result<(), Violation> {
        if self.host(node).disk_operation() != Some(operation) {
            // It ended when the disk recovered.
            return Ok(());
        }
        if !self.host(node).is_running() {
            // The disk thread is paused with its process, and finds the sync done when it resumes.
            self.event_queue.after(Micros::MILLISECOND * 10, SimEvent::Synced { node, life, operation });
            return Ok(());
        }
        let refusals = self.host(node).disk().counters().refusals;
        let steps = self.pace.u32(0..4);
        match self.host(node).finish_write(steps) {
            Ok(sequence) => {
                if let Some(sequence) = sequence {
                    self.note(&[8, node.0, sequence.0], || {
                        format!("node {node}: batch {sequence} is durable")
                    });
                    self.post(node, Event::Durable(sequence));
                }
                self.tell_held(node);
                self.write(node)
            }
            Err(stop) => self.stopped(node, &stop, refusals),
        }
    }

    /// Lets the snapshot thread take its next task.
    pub(super) fn file(&mut self, node: NodeId) {
        let puts_off = self.pace.bool();
        if self.host(node).begin_task(puts_off) {
            let random = Micros(self.pace.u64(0..=self.disk_pace.sync_max.0));
            let host = self.host(node);
            let (duration, life) = (random * host.slowness + host.hang, host.incarnation().life);
            let task = host.task_under_way().expect("invariant: it has begun");
            self.event_queue.after(duration, SimEvent::Filed { node, life, task });
        }
    }

    pub(super) fn filed(&mut self, node: NodeId, life: u64, task: u64) -> Result<(), Violation> {
        if self.host(node).task_under_way() != Some(task) {
            // It ended when the disk recovered.
            return Ok(());
        }
        if !self.host(node).is_running() {
            self.event_queue.after(Micros::MILLISECOND * 10, SimEvent::Filed { node, life, task });
            return Ok(());
        }
        let refusals = self.host(node).disk().counters().refusals;
        match self.host(node).finish_task() {
            Ok(done) => {
                self.note(&[10, node.0], || format!("node {node}: {}", brief_done(&done)));
                self.tally.snapshots_made += u64::from(matches!(done, SnapshotDone::Finished { .. }));
                self.tally.snapshots_received += u64::from(matches!(done, SnapshotDone::Loaded { .. }));
                self.post(node, Event::Snapshot(done));
                self.file(node);
                Ok(())
            }
            Err(stop) => self.stopped(node, &stop, refusals),
        }
    }

    /// A process stopped, or did not start, because of its disk.
    pub(super) fn stopped(
        &mut self,
        node: NodeId,
        stop: &Stop,
        refusals_before: u64,
    ) -> Result<(), Violation> {
        let loss = self.host(node).loss_if_dies;
        let was_refused = self.host(node).disk().counters().refusals > refusals_before;
        let is_up = self.host(node).is_up();
        self.note(&[9, node.0], || format!("node {node} stops: {stop:?}"));
        match stop {
            Stop::Died if is_up => self.crash(node, loss),
            Stop::Died => {
                self.host(node).crash(loss);
            }
            Stop::Disk(_) if was_refused => {
                self.tally.disk_stops += 1;
                self.crash(node, CrashKind::Process);
            }
            Stop::Disk(reason) => {
                let text = format!("node {node} stops on a disk that did nothing wrong: {reason}");
                return Err(Violation::new("recovery", text));
            }
        }
        Ok(())
    }
}
