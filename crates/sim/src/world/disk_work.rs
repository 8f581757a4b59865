//! The work of the threads that use a host's disk: writing and syncing the log, and snapshot files.
//!
//! Owns how long the work takes, what is reported to the process, and what follows when a disk
//! stops it. The [`Host`] does the work.

use tidelock_core::event::{Event, StallReason};
use tidelock_core::storage::group_commit::{CommitStep, DiskReport, NextCommitStep};
use tidelock_core::storage::snapshot::SnapshotDone;
use tidelock_core::types::NodeId;

use super::World;
use crate::checkers::Violation;
use crate::checkers::online::Observation;
use crate::describe::brief_done;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::CrashKind;
use crate::host::Stop;
use crate::plan::DiskPace;

/// Interval at which a paused process is checked for whether it runs again.
const PAUSE_CHECK: Micros = Micros(10_000);

impl World<'_> {
    /// Tells a process when its disk stalls, becomes slow, or recovers.
    pub(super) fn tell_disk(&mut self, node: NodeId) {
        let is_slow = self.host(node).is_slow();
        self.tell_checkers(&Observation::Disk { node, is_slow });
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

    /// Lets the disk thread of a node work until it is busy or waits. Steps that only write take no
    /// time, so that a crash between two of them falls into the next one.
    pub(super) fn work_disk(&mut self, node: NodeId) -> Result<(), Violation> {
        loop {
            let now = self.event_queue.now();
            let life = self.host(node).incarnation().life;
            match self.host(node).next_step(now.into()) {
                None | Some(NextCommitStep::Wait { until: None }) => return Ok(()),
                Some(NextCommitStep::Wait { until: Some(until) }) => {
                    if !self.host(node).is_timer_set(until) {
                        self.event_queue.at(until.into(), SimEvent::DiskTimer { node, life });
                    }
                    return Ok(());
                }
                Some(NextCommitStep::Perform(step)) => {
                    let operation = self.host(node).begin_step(step);
                    if let Some(duration) = self.duration(node, step) {
                        let event = SimEvent::DiskStepDone { node, life, operation };
                        self.event_queue.after(duration, event);
                        return Ok(());
                    }
                    if !self.end_step(node)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// How long a step takes; `None` if it ends at once.
    fn duration(&mut self, node: NodeId, step: CommitStep) -> Option<Micros> {
        let DiskPace { sync_min, sync_max, .. } = self.disk_pace;
        let random = match step {
            CommitStep::Sync | CommitStep::Probe => {
                let written = self.host(node).disk().counters().bytes_written;
                let transfer = self.machines.as_mut().map(|machines| machines.transfer(node, written));
                Micros(self.pace.u64(sync_min.0..=sync_max.0)) + transfer.unwrap_or_default()
            }
            CommitStep::Prepare => Micros(self.pace.u64(0..=sync_min.0)),
            CommitStep::Write | CommitStep::MakeRoom => return None,
        };
        let host = self.host(node);
        Some(random * host.slowness + host.hang)
    }

    /// The disk thread performs the step that it began. Returns whether its process still runs.
    fn end_step(&mut self, node: NodeId) -> Result<bool, Violation> {
        let refusals = self.host(node).disk().counters().refusals;
        let report = match self.host(node).end_step() {
            Ok(report) => report,
            Err(stop) => return self.stopped(node, &stop, refusals).map(|()| false),
        };
        if let Some(DiskReport::Durable(sequence)) = report {
            self.note(&[8, node.0, sequence.0], || format!("node {node}: batch {sequence} is durable"));
            self.post(node, Event::Durable(sequence));
        }
        self.tell_disk(node);
        self.tell_held(node);
        Ok(true)
    }

    /// The time until which a disk thread waited has come.
    pub(super) fn disk_timer(&mut self, node: NodeId, life: u64) -> Result<(), Violation> {
        if self.host(node).is_running() {
            return self.work_disk(node);
        }
        self.event_queue.after(PAUSE_CHECK, SimEvent::DiskTimer { node, life });
        Ok(())
    }

    /// Reports the log's size, since segments may have been added or released.
    fn tell_held(&mut self, node: NodeId) {
        if let Some(held) = self.host(node).log_held_anew() {
            self.post(node, Event::LogHeld(held));
        }
    }

    pub(super) fn disk_step_done(
        &mut self,
        node: NodeId,
        life: u64,
        operation: u64,
    ) -> Result<(), Violation> {
        if self.host(node).disk_operation() != Some(operation) {
            // It ended when the disk recovered.
            return Ok(());
        }
        if !self.host(node).is_running() {
            // The disk thread is paused with its process, and finds the step done when it resumes.
            self.event_queue.after(PAUSE_CHECK, SimEvent::DiskStepDone { node, life, operation });
            return Ok(());
        }
        if self.end_step(node)? { self.work_disk(node) } else { Ok(()) }
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
            self.event_queue.after(PAUSE_CHECK, SimEvent::Filed { node, life, task });
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
