//! After a power failure at any moment, everything synced is there, and every group is there as a
//! whole or not at all.

use super::*;
use crate::storage::disk::DiskErrorKind;
use crate::storage::memory_disk::Crash;
use proptest::prelude::*;

/// One log over several crashes, on a disk that sometimes temporarily refuses changes.
struct CrashHistory {
    rng: fastrand::Rng,
    disk: MemoryDisk,
    /// Valid contents after recovery: the synced log, then the log after each further group.
    possible: Vec<Model>,
    /// Further valid contents: with groups that were refused after the last accepted one.
    refused: Vec<Model>,
    syncs: bool,
    torn_tails: usize,
    /// Number of operations that failed with a retryable error.
    refusals: usize,
}

impl CrashHistory {
    fn new(seed: u64, syncs: bool) -> CrashHistory {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = MemoryDisk::new(rng.u64(..));
        CrashHistory {
            rng,
            disk,
            possible: vec![Model::default()],
            refused: vec![],
            syncs,
            torn_tails: 0,
            refusals: 0,
        }
    }

    /// Opens the log, checks it, writes until the disk crashes, and crashes it.
    fn live(&mut self) {
        self.disk.set_fuse(self.rng.u64(1..100));
        match open(self.disk.clone(), options(self.rng.u64(..))) {
            Ok((mut writer, recovery)) => {
                self.check(&recovery);
                while self.step_on_a_moody_disk(&mut writer) {}
            }
            Err(error) => assert!(self.disk.is_dead(), "{error}"),
        }
        let crash = [Crash::KeepsAll, Crash::LosesAll, Crash::Tears, Crash::Tears][self.rng.usize(0..4)];
        self.disk = self.disk.crash(crash);
    }

    fn check(&mut self, recovery: &Recovery) {
        self.possible.append(&mut self.refused);
        let found = self.possible.iter().rposition(|model| model.matches(&recovery.logs));
        let found = found.unwrap_or_else(|| panic!("none of {} possible logs", self.possible.len()));
        self.possible = vec![self.possible.swap_remove(found)];
        self.torn_tails += usize::from(recovery.report.torn_tail.is_some());
    }

    /// One step on a disk that may refuse changes. Returns whether the process continues.
    fn step_on_a_moody_disk(&mut self, writer: &mut Writer<MemoryDisk>) -> bool {
        let kind = match self.rng.u8(..) {
            0..25 => Some(DiskErrorKind::NoRoom),
            25..50 => Some(DiskErrorKind::ReadOnly),
            _ => None,
        };
        self.disk.set_no_descriptors(self.rng.u8(..) < 20);
        if let Some(kind) = kind {
            self.disk.refuse_changes(kind, self.rng.u64(0..8));
        }
        let before = self.possible.len();
        let result = self.step(writer);
        self.disk.allow_changes();
        self.disk.set_no_descriptors(false);
        match result {
            Ok(()) => true,
            Err(error) if error.is_retryable() => {
                self.refused.extend(self.possible.drain(before..));
                self.refusals += 1;
                true
            }
            Err(error) => {
                assert!(
                    self.disk.is_dead() || kind.is_some(),
                    "only a crash or a begun group ends a life: {error}"
                );
                false
            }
        }
    }

    fn step(&mut self, writer: &mut Writer<MemoryDisk>) -> Result<(), WalError> {
        match self.rng.u8(..) {
            0..30 => {
                writer.prepare_next()?;
            }
            30..50 => {
                let shard = ShardId(self.rng.u64(0..3));
                let models = || self.possible.iter().chain(&self.refused);
                let up_to = models().map(|model| model.last(shard)).min();
                let up_to = LogIndex(up_to.unwrap());
                self.possible.iter_mut().chain(&mut self.refused).for_each(|model| {
                    let released = model.released.entry(shard).or_default();
                    *released = up_to.max(*released);
                });
                writer.release(shard, up_to)?;
            }
            50..57 => self.sync(writer)?,
            57..60 => self.probe(writer)?,
            60.. => {
                let mut after = self.last().clone();
                let mut batches = vec![];
                for _ in 0..self.rng.usize(1..3) {
                    let batch = random_batch(&mut self.rng, &after);
                    after.apply(core::slice::from_ref(&batch));
                    batches.push(batch);
                }
                self.possible.push(after);
                writer.append(&batches)?;
                self.refused.clear();
                if self.syncs {
                    self.sync(writer)?;
                }
            }
        }
        Ok(())
    }

    fn sync(&mut self, writer: &mut Writer<MemoryDisk>) -> Result<(), WalError> {
        writer.sync()?;
        self.possible.drain(..self.possible.len() - 1);
        Ok(())
    }

    /// Makes content durable as a sync does, and voids refused groups.
    fn probe(&mut self, writer: &mut Writer<MemoryDisk>) -> Result<(), WalError> {
        let sizes = |disk: &MemoryDisk| disk.all().into_values().map(|bytes| bytes.len()).collect::<Vec<_>>();
        let before = sizes(&self.disk);
        writer.probe()?;
        assert_eq!(sizes(&self.disk), before, "a probe stays inside the segment");
        self.possible.drain(..self.possible.len() - 1);
        self.refused.clear();
        Ok(())
    }

    fn last(&self) -> &Model {
        self.possible.last().unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn synced_groups_survive_and_others_are_whole_or_absent(seed: u64) {
        let mut history = CrashHistory::new(seed, true);
        (0..12).for_each(|_| history.live());
    }

    #[test]
    fn without_syncs_a_crash_leaves_a_prefix(seed: u64) {
        let mut history = CrashHistory::new(seed, false);
        (0..12).for_each(|_| history.live());
    }
}

#[test]
fn the_histories_meet_torn_tails_and_refusals() {
    let lived = |seed, syncs| {
        let mut history = CrashHistory::new(seed, syncs);
        (0..12).for_each(|_| history.live());
        history
    };
    for syncs in [true, false] {
        let histories: Vec<CrashHistory> = (0..20).map(|seed| lived(seed, syncs)).collect();
        let torn_tails: usize = histories.iter().map(|history| history.torn_tails).sum();
        assert!(torn_tails > 20, "{torn_tails} torn tails in 240 crashes: the disk no longer tears");
        let refusals: usize = histories.iter().map(|history| history.refusals).sum();
        assert!(refusals > 100, "{refusals} refusals in 240 lives: the disk is no longer moody");
    }
}

#[test]
fn what_recovery_returned_outlives_a_sync_that_failed_before_it() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(0, 1, &[b"one"]));
    writer.append(&[batch(vec![entries(0, 2, &[b"two"])])]).unwrap();
    disk.fail_syncs(true);
    assert!(matches!(writer.sync(), Err(WalError::Disk(_))));
    assert_eq!(writer.sync(), Err(WalError::Poisoned), "a failed sync is never tried again");
    assert_eq!(writer.append(&[]), Err(WalError::Poisoned));
    assert_eq!(writer.prepare_next(), Err(WalError::Poisoned));
    assert_eq!(writer.release(ShardId(0), LogIndex(1)), Err(WalError::Poisoned));
    disk.fail_syncs(false);

    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 2, "the system still shows what it failed to write");
    let (_, after_crash) = open_log(&disk.crash(Crash::LosesAll));
    assert_eq!(after_crash.logs, recovery.logs);
}

#[test]
fn a_group_of_many_frames_is_whole_or_absent() {
    for seed in 0..200 {
        let disk = MemoryDisk::new(seed);
        let (mut writer, _) = open_log(&disk);
        commit(&mut writer, hard_state(1, 7));
        let big = vec![seed as u8 | 1; 60_000];
        writer.append(&[batch(vec![entries(0, 1, &[&big, &big]), hard_state(1, 8)])]).unwrap();
        let disk = disk.crash(Crash::Tears);
        let (_, recovery) = open_log(&disk);
        let whole = recovery.logs.contains_key(&ShardId(0));
        assert_eq!(recovery.logs[&ShardId(1)].hard_state.term, Term(if whole { 8 } else { 7 }));
        assert_eq!(recovery.report.torn_tail.is_some(), !whole, "seed {seed}");
        let (_, again) = open_log(&disk);
        assert_eq!((again.logs, again.report.torn_tail), (recovery.logs, None), "the tail is cut once");
    }
}
