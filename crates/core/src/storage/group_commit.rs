//! Group commit: makes queued batches durable with one sync for all of them.
//!
//! A state machine over the write-ahead log. The server's disk thread and the simulator drive it in
//! the same way: ask for the [next](GroupCommit::next) step, [perform](GroupCommit::perform) it,
//! pass on its report, and wait when there is nothing to do.
//!
//! ```text
//! queue ──Write──► written ──Sync──► durable, reported ──MakeRoom──► idle ──Prepare, Probe──► idle
//!   ▲                │ refused with a retryable error
//!   └──── stall ◄────┘ kept, and written again after an interval, before anything newer
//! ```
//!
//! A step `Write` takes every batch that was queued while the disk was busy, as one group. A final
//! failure is reported, and nothing later is written.
//!
//! A full disk, or one that was remounted read-only, is not a failure but a *stall*. Nothing was
//! written, so the batches are kept and retried, in order, until they succeed. Its beginning and
//! end are reported. Meanwhile segments that are no longer needed are still released, which may
//! make room. A driver that stops during a stall drops the batches that are kept, none of which was
//! acknowledged.
//!
//! While the disk is slow, it is probed whenever there is nothing to write, so that its recovery is
//! detected.

use alloc::vec::Vec;
use core::time::Duration;

use super::WalBatch;
use super::disk::Disk;
use super::wal::{WalError, Writer};
use crate::deliberate::{Fault, Faults};
use crate::types::WalSequence;

/// Time between two attempts to write to a stalled disk: soon enough for a person who has made
/// room, rare enough for a disk.
pub const STALL_RETRY: Duration = Duration::from_millis(500);

/// Time from the last step to a probe of a slow disk: several probes per election timeout, by which
/// recovery is judged, and next to no load for a working disk.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// The log, and the batches on their way to it.
pub struct GroupCommit<D: Disk> {
    log: Writer<D>,
    options: GroupCommitOptions,
    /// Batches that belong to no group yet.
    queue: Vec<WalBatch>,
    /// Batches that are written together. Not empty while idle only in a stall.
    group: Vec<WalBatch>,
    stage: GroupState,
    /// Whether there may be a segment to prepare.
    may_prepare: bool,
    /// Whether a failure to prepare a segment was reported.
    has_warned: bool,
    is_slow: bool,
    stall: Option<Stall>,
    /// The time of the last call of [`GroupCommit::next`].
    now: Duration,
    /// When the last step began.
    stepped_at: Duration,
}

/// Options of group commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCommitOptions {
    /// Whether batches are synced. Otherwise they are reported once the disk has them: they then
    /// survive a crash of the process, not of the machine.
    pub sync: bool,
    /// [`Faults::NONE`], except in tests of the simulator.
    pub faults: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    /// No group is being written.
    Idle,
    /// The group is written and not synced.
    Written,
    /// The group is durable and reported.
    Durable,
    /// The log failed.
    Failed,
}

/// A period in which the disk rejects writes.
#[derive(Debug)]
struct Stall {
    begun: Duration,
    retry_at: Duration,
    reason: WalError,
}

/// One operation on the log, which may block for as long as the disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitStep {
    /// Writes the queued batches as one group. In a stall it reclaims space first.
    Write,
    /// Makes the group durable.
    Sync,
    /// Releases segments that the group no longer needs, and ensures that there is room for the
    /// next one.
    MakeRoom,
    /// Takes one step of preparation, so that later groups need not wait for the file system.
    Prepare,
    /// Writes and syncs without changing the log, on a slow disk.
    Probe,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCommitStep {
    /// Perform this step.
    Perform(CommitStep),
    /// Wait until something is submitted or the disk becomes slow, or at most until this time.
    Wait {
        /// A time on the driver's clock; `None` if there is nothing to wait for but input.
        until: Option<Duration>,
    },
}

/// The result of a step, for the node and for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskReport {
    /// Everything up to this batch is durable. Once for each group.
    Durable(WalSequence),
    /// The disk rejects writes for this reason. Reported when a stall begins, and again when the
    /// reason changes.
    Stalled(WalError),
    /// The disk accepts writes again, and all batches that were kept are written.
    Recovered {
        /// How long the stall lasted.
        after: Duration,
    },
    /// The log has no room beyond its current segment. A warning: nothing is refused yet.
    LittleRoom(WalError),
    /// The log failed; nothing more becomes durable. The last report.
    Failed(WalError),
}

impl<D: Disk> GroupCommit<D> {
    /// Group commits to a log, with nothing queued.
    pub fn new(log: Writer<D>, options: GroupCommitOptions) -> GroupCommit<D> {
        GroupCommit {
            log,
            options,
            queue: Vec::new(),
            group: Vec::new(),
            stage: GroupState::Idle,
            may_prepare: true,
            has_warned: false,
            is_slow: false,
            stall: None,
            now: Duration::ZERO,
            stepped_at: Duration::ZERO,
        }
    }

    /// Queues batches for the next group, in order.
    pub fn submit(&mut self, batches: impl IntoIterator<Item = WalBatch>) {
        self.queue.extend(batches);
    }

    /// Sets whether the disk is slow, as the
    /// [detector](super::slow_disk::SlowDiskDetector) sees it.
    pub fn set_slow(&mut self, is_slow: bool) {
        self.is_slow = is_slow;
    }

    /// The log that it writes.
    pub fn log(&self) -> &Writer<D> {
        &self.log
    }

    /// Whether the disk rejects writes.
    pub fn is_stalled(&self) -> bool {
        self.stall.is_some()
    }

    /// Whether it may be dropped without losing a batch that could be written now.
    pub fn is_settled(&self) -> bool {
        let is_written = self.queue.is_empty() && self.group.is_empty();
        self.stage == GroupState::Failed
            || self.stage == GroupState::Idle && (is_written || self.is_stalled())
    }

    /// Number of batches that are not durable yet.
    pub fn pending(&self) -> usize {
        let is_durable = self.stage == GroupState::Durable;
        self.queue.len() + if is_durable { 0 } else { self.group.len() }
    }

    /// What to do next. `now` is the time since any fixed point; it never goes back.
    pub fn next(&mut self, now: Duration) -> NextCommitStep {
        self.now = now;
        match self.stage {
            GroupState::Written => return NextCommitStep::Perform(CommitStep::Sync),
            GroupState::Durable => return NextCommitStep::Perform(CommitStep::MakeRoom),
            GroupState::Failed => return NextCommitStep::Wait { until: None },
            GroupState::Idle => {}
        }
        let retry_at = self.stall.as_ref().map(|stall| stall.retry_at);
        // Refused batches go first, so new ones need not be considered before the retry.
        let is_due = self.group.is_empty() && !self.queue.is_empty();
        if is_due || retry_at.is_some_and(|at| at <= now) {
            return NextCommitStep::Perform(CommitStep::Write);
        }
        let probe_at = self.is_slow.then(|| self.stepped_at + PROBE_INTERVAL);
        match retry_at.or(probe_at) {
            Some(at) if at <= now => NextCommitStep::Perform(CommitStep::Probe),
            None if self.may_prepare => NextCommitStep::Perform(CommitStep::Prepare),
            until => NextCommitStep::Wait { until },
        }
    }

    /// Performs the step that [`GroupCommit::next`] returned last. Blocks for as long as the disk
    /// does.
    pub fn perform(&mut self, step: CommitStep) -> Option<DiskReport> {
        self.stepped_at = self.now;
        let performed = match step {
            CommitStep::Write => self.write(),
            CommitStep::Sync => self.log.sync().map(|()| self.durable()),
            CommitStep::MakeRoom => self.make_room(),
            CommitStep::Prepare => self.prepare(),
            CommitStep::Probe => self.log.probe().map(|()| None),
        };
        match performed {
            Ok(report) => report,
            Err(reason) if reason.is_retryable() => self.stalled(reason),
            Err(reason) => {
                self.stage = GroupState::Failed;
                Some(DiskReport::Failed(reason))
            }
        }
    }

    fn write(&mut self) -> Result<Option<DiskReport>, WalError> {
        self.group.append(&mut self.queue);
        if self.is_stalled() {
            self.release()?;
            unless_final(self.log.reclaim())?;
        }
        self.log.append(&self.group)?;
        if self.options.sync && !self.group.is_empty() {
            self.stage = GroupState::Written;
            let is_early = self.options.faults.has(Fault::DurableBeforeSync);
            return Ok(if is_early { self.last() } else { None });
        }
        Ok(self.durable())
    }

    fn durable(&mut self) -> Option<DiskReport> {
        self.stage = GroupState::Durable;
        self.last()
    }

    /// A report that the whole group is durable.
    fn last(&self) -> Option<DiskReport> {
        self.group.last().map(|batch| DiskReport::Durable(batch.sequence))
    }

    fn make_room(&mut self) -> Result<Option<DiskReport>, WalError> {
        self.release()?;
        self.stage = GroupState::Idle;
        self.group.clear();
        self.may_prepare = true;
        self.log.ensure_room()?;
        let stall = self.stall.take();
        Ok(stall.map(|stall| DiskReport::Recovered { after: self.now.saturating_sub(stall.begun) }))
    }

    /// Releases the segments that the group no longer needs. What cannot be released now is
    /// released with the next group, or during a stall.
    fn release(&mut self) -> Result<(), WalError> {
        for &(shard, index) in self.group.iter().flat_map(|batch| &batch.released) {
            unless_final(self.log.release(shard, index))?;
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<Option<DiskReport>, WalError> {
        match self.log.prepare_next() {
            Ok(more) => {
                self.may_prepare = more;
                self.has_warned = false;
                Ok(None)
            }
            Err(reason) if reason.is_retryable() => {
                self.may_prepare = false;
                self.log.ensure_room()?;
                let is_news = !core::mem::replace(&mut self.has_warned, true);
                Ok(is_news.then_some(DiskReport::LittleRoom(reason)))
            }
            Err(reason) => Err(reason),
        }
    }

    /// Begins a stall, or continues it until the next attempt.
    fn stalled(&mut self, reason: WalError) -> Option<DiskReport> {
        self.stage = GroupState::Idle;
        if self.options.faults.has(Fault::RefusedBatchesDurable) && !self.group.is_empty() {
            let report = self.last();
            self.group.clear();
            return report;
        }
        let before = self.stall.take();
        let is_news = before.as_ref().is_none_or(|stall| stall.reason != reason);
        let begun = before.map_or(self.now, |stall| stall.begun);
        self.stall = Some(Stall { begun, retry_at: self.now + STALL_RETRY, reason: reason.clone() });
        is_news.then_some(DiskReport::Stalled(reason))
    }
}

/// Ignores a retryable failure, whose operation may be repeated later.
fn unless_final(result: Result<(), WalError>) -> Result<(), WalError> {
    result.or_else(|error| if error.is_retryable() { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bytes::Bytes;

    use super::super::disk::DiskErrorKind;
    use super::super::memory_disk::{Crash, MemoryDisk};
    use super::super::wal::{self, WalOptions};
    use super::super::{LogEntry, WalRecord};
    use super::*;
    use crate::types::{LogIndex, ShardId, Term};

    const SHARD: ShardId = ShardId(1);

    fn batch(number: u64) -> WalBatch {
        let entry = LogEntry { index: LogIndex(number), term: Term(1), data: Bytes::from_static(b"data") };
        let record = WalRecord::Entries { shard: SHARD, entries: vec![entry] };
        WalBatch { sequence: WalSequence(number), records: vec![record], released: vec![] }
    }

    fn wal_options() -> WalOptions {
        WalOptions { segment_bytes: 8192, frame_bytes_max: 4096, ..WalOptions::new(1) }
    }

    fn commits(disk: &MemoryDisk, sync: bool) -> GroupCommit<MemoryDisk> {
        let (log, _) = wal::open(disk.clone(), wal_options()).expect("an empty disk");
        GroupCommit::new(log, GroupCommitOptions { sync, faults: Faults::NONE })
    }

    fn entries_after(disk: &MemoryDisk, crash: Crash) -> usize {
        let (_, recovered) = wal::open(disk.crash(crash), wal_options()).expect("intact");
        recovered.logs.get(&SHARD).map_or(0, |log| log.entries.len())
    }

    /// Performs steps until it waits; returns the steps, the reports, and until when it waits.
    fn settle(
        commits: &mut GroupCommit<MemoryDisk>,
        now: Duration,
    ) -> (Vec<CommitStep>, Vec<DiskReport>, Option<Duration>) {
        let (mut steps, mut reports) = (vec![], vec![]);
        loop {
            match commits.next(now) {
                NextCommitStep::Wait { until } => return (steps, reports, until),
                NextCommitStep::Perform(step) => {
                    steps.push(step);
                    reports.extend(commits.perform(step));
                }
            }
        }
    }

    /// Submits one batch after the other until the disk refuses one; returns the number of durable
    /// ones. The stall begins earlier, when there is no room for a batch of ordinary size.
    fn fill(commits: &mut GroupCommit<MemoryDisk>, now: Duration) -> u64 {
        let mut stalls = 0;
        for number in 1.. {
            commits.submit([batch(number)]);
            let reports = settle(commits, now).1;
            stalls += reports.iter().filter(|report| matches!(report, DiskReport::Stalled(_))).count();
            if commits.pending() > 0 {
                assert_eq!(stalls, 1, "it is reported once");
                return number - 1;
            }
            assert!(reports.contains(&DiskReport::Durable(WalSequence(number))), "{reports:?}");
        }
        unreachable!("a disk without room refuses")
    }

    #[test]
    fn what_was_queued_together_is_one_group_and_is_reported_after_its_sync() {
        let disk = MemoryDisk::new(1);
        let mut commits = commits(&disk, true);
        settle(&mut commits, Duration::ZERO);
        commits.submit([batch(1), batch(2)]);
        assert_eq!(commits.next(Duration::ZERO), NextCommitStep::Perform(CommitStep::Write));
        assert_eq!(commits.perform(CommitStep::Write), None);
        assert_eq!(entries_after(&disk, Crash::LosesAll), 0, "nothing is promised yet");
        commits.submit([batch(3)]);
        assert_eq!(commits.next(Duration::ZERO), NextCommitStep::Perform(CommitStep::Sync));
        assert_eq!(commits.perform(CommitStep::Sync), Some(DiskReport::Durable(WalSequence(2))));
        assert_eq!(entries_after(&disk, Crash::LosesAll), 2);
        assert!(!commits.is_settled());
        let (steps, reports, until) = settle(&mut commits, Duration::ZERO);
        assert_eq!(
            steps[..4],
            [CommitStep::MakeRoom, CommitStep::Write, CommitStep::Sync, CommitStep::MakeRoom]
        );
        assert!(steps[4..].iter().all(|step| *step == CommitStep::Prepare));
        assert_eq!((reports, until), (vec![DiskReport::Durable(WalSequence(3))], None));
        assert!(commits.is_settled() && commits.pending() == 0);
    }

    #[test]
    fn without_syncs_a_batch_is_reported_once_it_is_written() {
        let disk = MemoryDisk::new(1);
        let mut commits = commits(&disk, false);
        settle(&mut commits, Duration::ZERO);
        commits.submit([batch(1)]);
        assert_eq!(commits.next(Duration::ZERO), NextCommitStep::Perform(CommitStep::Write));
        assert_eq!(commits.perform(CommitStep::Write), Some(DiskReport::Durable(WalSequence(1))));
        assert!(!settle(&mut commits, Duration::ZERO).0.contains(&CommitStep::Sync));
        assert_eq!(entries_after(&disk, Crash::KeepsAll), 1);
    }

    #[test]
    fn a_stall_keeps_the_batches_and_ends_when_they_are_written() {
        let (disk, start) = (MemoryDisk::new(1), Duration::from_secs(9));
        let mut commits = commits(&disk, true);
        disk.set_room(0);
        let durable = fill(&mut commits, start);
        assert!(durable > 10 && commits.is_stalled() && commits.is_settled());
        commits.submit([batch(durable + 2)]);
        let waits = (vec![], vec![], Some(start + STALL_RETRY));
        assert_eq!(settle(&mut commits, start + STALL_RETRY / 2), waits, "new ones wait for the retry");
        disk.set_room(u64::MAX);
        let (_, reports, _) = settle(&mut commits, start + STALL_RETRY * 2);
        let recovered = DiskReport::Recovered { after: STALL_RETRY * 2 };
        assert_eq!(reports.last(), Some(&recovered), "{reports:?}");
        assert_eq!(entries_after(&disk, Crash::LosesAll) as u64, durable + 2);
    }

    #[test]
    fn a_changed_reason_is_reported_and_the_stall_goes_on() {
        let disk = MemoryDisk::new(1);
        let mut commits = commits(&disk, true);
        disk.set_room(0);
        fill(&mut commits, Duration::ZERO);
        disk.refuse_changes(DiskErrorKind::ReadOnly, 0);
        let reports = settle(&mut commits, STALL_RETRY).1;
        assert!(matches!(reports[..], [DiskReport::Stalled(WalError::ReadOnly(_))]), "{reports:?}");
        assert_eq!(settle(&mut commits, STALL_RETRY + STALL_RETRY / 2).2, Some(STALL_RETRY * 2));
    }

    #[test]
    fn a_failed_sync_is_final() {
        let disk = MemoryDisk::new(1);
        let mut commits = commits(&disk, true);
        disk.fail_syncs(true);
        commits.submit([batch(1)]);
        let (_, reports, until) = settle(&mut commits, Duration::ZERO);
        assert!(matches!(reports[..], [DiskReport::Failed(_)]), "{reports:?}");
        commits.submit([batch(2)]);
        assert_eq!((until, commits.next(STALL_RETRY)), (None, NextCommitStep::Wait { until: None }));
        assert_eq!((commits.pending(), commits.is_settled()), (2, true));
    }

    #[test]
    fn a_slow_disk_is_probed_while_nothing_is_written() {
        let disk = MemoryDisk::new(1);
        let mut commits = commits(&disk, true);
        let now = Duration::from_secs(5);
        settle(&mut commits, now);
        commits.set_slow(true);
        assert_eq!(commits.next(now), NextCommitStep::Wait { until: Some(now + PROBE_INTERVAL) });
        assert_eq!(commits.next(now + PROBE_INTERVAL), NextCommitStep::Perform(CommitStep::Probe));
        assert_eq!(commits.perform(CommitStep::Probe), None);
        commits.submit([batch(1)]);
        assert_eq!(commits.next(now + PROBE_INTERVAL), NextCommitStep::Perform(CommitStep::Write));
        disk.refuse_changes(DiskErrorKind::ReadOnly, 0);
        assert!(matches!(commits.perform(CommitStep::Write), Some(DiskReport::Stalled(_))));
        let until = Some(now + PROBE_INTERVAL + STALL_RETRY);
        assert_eq!(
            commits.next(now + PROBE_INTERVAL * 3),
            NextCommitStep::Wait { until },
            "no probes in a stall"
        );
    }
}
