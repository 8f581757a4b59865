//! Random histories of a replica on a disk that crashes. It appends entries, has entries replaced,
//! makes and receives snapshots, and releases its log. After each crash, the recovered state must
//! match the history that the cluster committed.

use super::*;
use crate::command::{Condition, Operation, Write};
use crate::founding::Founding;
use crate::storage::memory_disk::Crash;
use proptest::prelude::*;

/// The committed history, and the resulting state.
struct Truth {
    rng: fastrand::Rng,
    /// Term and data of each entry.
    entries: Vec<(u64, u64)>,
    /// The state after all entries.
    machine: Machine,
}

/// A put whose key and value are derived from a number.
fn write(data: u64) -> Write {
    let mut rng = fastrand::Rng::with_seed(data);
    let key = Bytes::copy_from_slice(&[rng.u8(..60)]);
    let value = Bytes::from(vec![rng.u8(..); rng.usize(..8_000)]);
    Write::of(&Operation::Put { key: &key, value: &value, condition: Condition::Always })
}

impl Truth {
    fn new(seed: u64) -> Truth {
        Truth {
            rng: fastrand::Rng::with_seed(seed),
            entries: vec![],
            machine: Machine::new(SHARD, &Founding::new(3, 4)),
        }
    }

    fn grow(&mut self, count: u64) {
        for _ in 0..count {
            // Entries of replaced leaders have odd terms.
            let term = self.entries.last().map_or(2, |&(term, _)| term) + 2 * u64::from(self.rng.u8(..) < 30);
            let data = self.rng.u64(..);
            self.entries.push((term, data));
            self.machine.apply(LogIndex(self.end()), write(data)).expect("applied");
        }
    }

    fn end(&self) -> u64 {
        self.entries.len() as u64
    }

    fn id(&self, index: u64) -> SnapshotId {
        id(index, self.entries[index as usize - 1].0)
    }

    fn write(&self, index: u64) -> Write {
        write(self.entries[index as usize - 1].1)
    }

    fn entry(&self, index: u64) -> LogEntry {
        let (term, data) = self.entries[index as usize - 1];
        LogEntry {
            index: LogIndex(index),
            term: Term(term),
            data: Bytes::copy_from_slice(&data.to_le_bytes()),
        }
    }

    /// Digest of the state after this many entries.
    fn digest(&self, entries: u64) -> u64 {
        let mut machine = Machine::new(SHARD, &Founding::new(3, 4));
        for index in 1..=entries {
            machine.apply(LogIndex(index), self.write(index)).expect("applied");
        }
        machine.digest()
    }

    /// The snapshot of the last entry, as made by another replica.
    fn snapshot(&mut self) -> (SnapshotId, Vec<u8>) {
        let disk = MemoryDisk::new(1);
        let id = self.id(self.end());
        make(&mut SnapshotFiles::open(disk.clone()).unwrap(), id, &mut self.machine);
        (id, disk.bytes(&name(id)))
    }
}

/// The process ended because the disk crashed.
#[derive(Debug)]
struct Ended;

impl From<WalError> for Ended {
    fn from(_: WalError) -> Ended {
        Ended
    }
}

/// A running process of the replica.
struct Life {
    log: Writer<MemoryDisk>,
    files: SnapshotFiles<MemoryDisk>,
    machine: Machine,
    applied: u64,
    making: Option<SnapshotId>,
    /// A snapshot being received, with the number of bytes received.
    incoming: Option<(SnapshotId, Vec<u8>, u64)>,
}

struct StorageHistory {
    rng: fastrand::Rng,
    truth: Truth,
    disk: MemoryDisk,
    syncs: bool,
    /// Number of entries that the disk must contain, in its log or in a snapshot.
    durable: u64,
    restarts: usize,
    snapshots: usize,
    received: usize,
}

impl StorageHistory {
    fn new(seed: u64, syncs: bool) -> StorageHistory {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (truth, disk) = (Truth::new(rng.u64(..)), MemoryDisk::new(rng.u64(..)));
        StorageHistory { rng, truth, disk, syncs, durable: 0, restarts: 0, snapshots: 0, received: 0 }
    }

    /// Runs a process from its start to a crash.
    fn live(&mut self) {
        self.disk.set_fuse(self.rng.u64(1..100));
        match open(self.disk.clone(), options(self.rng.u64(..))) {
            Ok(opened) => {
                let mut life = self.recovered(opened);
                while self.step(&mut life).is_ok() {
                    let names = self.disk.list().unwrap();
                    let files = names.iter().filter(|name| name.starts_with("snapshot-")).count();
                    assert!(files <= 2, "{names:?}");
                }
            }
            Err(error) => assert!(self.disk.is_dead(), "{error}"),
        }
        assert!(self.disk.is_dead(), "only a crash ends a life");
        let crash = [Crash::KeepsAll, Crash::LosesAll, Crash::Tears, Crash::Tears][self.rng.usize(0..4)];
        self.disk = self.disk.crash(crash);
    }

    /// Checks the recovered state against the committed history, and continues from it.
    fn recovered(&mut self, mut opened: Opened<MemoryDisk>) -> Life {
        self.restarts += opened.report.restarted.len();
        let shard = opened.shards.remove(&SHARD).unwrap_or_default();
        let (mut machine, base) = match shard.snapshot {
            Some(RecoveredSnapshot { id, machine, .. }) => {
                assert_eq!(id, self.truth.id(id.index.0));
                (machine, id.index.0)
            }
            None => (Machine::new(SHARD, &Founding::new(3, 4)), 0),
        };
        assert_eq!(machine.digest(), self.truth.digest(base));
        let mut applied = base;
        for (entry, index) in shard.log.entries.iter().zip(base + 1..) {
            assert_eq!(entry.index, LogIndex(index));
            if index > self.truth.end() || *entry != self.truth.entry(index) {
                break;
            }
            machine.apply(entry.index, self.truth.write(index)).expect("applied");
            applied = index;
        }
        assert!(applied >= self.durable, "{applied} instead of {} entries", self.durable);
        assert!(shard.log.hard_state.commit <= LogIndex(applied));
        self.durable = applied;
        Life { log: opened.log, files: opened.snapshots, machine, applied, making: None, incoming: None }
    }

    fn step(&mut self, life: &mut Life) -> Result<(), Ended> {
        match self.rng.u8(..) {
            0..90 => self.append(life),
            90..110 => self.append_in_vain(life),
            110..120 => Ok(life.log.prepare_next().map(drop)?),
            120..190 => self.make(life),
            190.. => self.receive(life),
        }
    }

    fn commit(&mut self, life: &mut Life, records: Vec<WalRecord>) -> Result<(), Ended> {
        append(&mut life.log, records)?;
        if self.syncs {
            life.log.sync()?;
        }
        Ok(())
    }

    fn append(&mut self, life: &mut Life) -> Result<(), Ended> {
        let last = life.applied + self.rng.u64(1..6);
        self.truth.grow(last.saturating_sub(self.truth.end()));
        let entries: Vec<LogEntry> = (life.applied + 1..=last).map(|index| self.truth.entry(index)).collect();
        let hard_state = hard_state(entries[0].term.0, life.applied);
        self.commit(life, vec![WalRecord::Entries { shard: SHARD, entries }, hard_state])?;
        for index in life.applied + 1..=last {
            life.machine.apply(LogIndex(index), self.truth.write(index)).expect("applied");
        }
        life.applied = last;
        if self.syncs {
            self.durable = last;
        }
        Ok(())
    }

    /// Appends entries of a leader that cannot commit them.
    fn append_in_vain(&mut self, life: &mut Life) -> Result<(), Ended> {
        let last = life.applied + self.rng.u64(1..30);
        self.commit(life, vec![entries(life.applied + 1, last, 1)])
    }

    fn make(&mut self, life: &mut Life) -> Result<(), Ended> {
        let newest = life.files.finished(SHARD).next().map_or(0, |id| id.index.0);
        let id = match life.making {
            Some(id) => id,
            None if life.applied > newest => {
                life.machine.begin_snapshot(&Membership::default());
                self.truth.id(life.applied)
            }
            None => return Ok(()),
        };
        life.making = Some(id);
        let done = match life.machine.next_block() {
            Some(block) => life.files.run(SnapshotTask::Write { id, block }),
            None => life.files.run(SnapshotTask::Finish { id, keeps_older: false }),
        };
        match done {
            SnapshotDone::Finished { .. } => {
                life.making = None;
                self.snapshots += 1;
                self.durable = self.durable.max(id.index.0);
                let behind = self.rng.u64(0..20);
                life.log.release(SHARD, LogIndex(id.index.0.saturating_sub(behind)))?;
            }
            SnapshotDone::Failed { .. } => {
                life.making = None;
                life.machine.abandon_snapshot();
            }
            _ => {}
        }
        Ok(())
    }

    fn receive(&mut self, life: &mut Life) -> Result<(), Ended> {
        let Some((id, bytes, held)) = life.incoming.take_if(|(id, ..)| id.index.0 > life.applied) else {
            if self.rng.u8(..) < 40 {
                let ahead = (life.applied + self.rng.u64(1..40)).saturating_sub(self.truth.end());
                self.truth.grow(ahead);
                let (id, bytes) = self.truth.snapshot();
                life.incoming = Some((id, bytes, 0));
            }
            return Ok(());
        };
        if held < bytes.len() as u64 {
            let end = bytes.len().min(held as usize + self.rng.usize(..200_000));
            let part = Bytes::copy_from_slice(&bytes[held as usize..end]);
            let done = life.files.run(SnapshotTask::Receive { id, offset: held, bytes: part });
            let held = match done {
                SnapshotDone::Received { next_offset, .. } => next_offset,
                _ => 0,
            };
            life.incoming = Some((id, bytes, held));
            return Ok(());
        }
        if self.rng.bool() {
            // Until the log follows the snapshot, a crash is most critical.
            self.disk.set_fuse(self.rng.u64(..5));
        }
        let SnapshotDone::Loaded { machine, .. } = life.files.run(SnapshotTask::Load { id }) else {
            return Ok(());
        };
        assert_eq!(machine.digest(), self.truth.digest(id.index.0));
        self.received += 1;
        self.durable = id.index.0;
        (life.machine, life.applied, life.making) = (*machine, id.index.0, None);
        self.commit(life, vec![restart(id.index.0, id.term.0), hard_state(id.term.0, id.index.0)])?;
        Ok(life.log.release(SHARD, id.index)?)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn log_and_snapshots_give_the_exact_state_back(seed: u64) {
        let mut history = StorageHistory::new(seed, true);
        (0..12).for_each(|_| history.live());
    }

    #[test]
    fn without_syncs_what_a_snapshot_holds_is_there(seed: u64) {
        let mut history = StorageHistory::new(seed, false);
        (0..12).for_each(|_| history.live());
    }

    #[test]
    fn a_flipped_bit_of_a_snapshot_is_never_believed(seed: u64) {
        flip_a_bit_of_each_snapshot(seed);
    }
}

/// Found by the property above: the log reached as far as the damaged snapshot, with entries of a
/// leader that could not commit them.
#[test]
fn a_damaged_snapshot_is_not_made_up_for_by_other_entries() {
    flip_a_bit_of_each_snapshot(427_442_323_796_516_314);
}

fn flip_a_bit_of_each_snapshot(seed: u64) {
    let mut history = StorageHistory::new(seed, true);
    (0..4).for_each(|_| history.live());
    let files: Vec<String> =
        history.disk.list().unwrap().into_iter().filter(|name| name.starts_with("snapshot-")).collect();
    for name in files {
        let mut bytes = history.disk.bytes(&name);
        if !bytes.is_empty() {
            let at = history.rng.usize(..bytes.len());
            bytes[at] ^= 1 << history.rng.u8(..8);
            history.disk.put(&name, bytes);
        }
    }
    match open(history.disk.clone(), options(seed)) {
        Ok(opened) => drop(history.recovered(opened)),
        Err(error) => assert!(matches!(error, StorageRecoveryError::Damaged { .. }), "{error}"),
    }
}

#[test]
fn the_histories_meet_what_they_are_for() {
    for syncs in [true, false] {
        let (mut restarts, mut snapshots, mut received) = (0, 0, 0);
        for seed in 0..30 {
            let mut history = StorageHistory::new(seed, syncs);
            (0..12).for_each(|_| history.live());
            restarts += history.restarts;
            snapshots += history.snapshots;
            received += history.received;
        }
        assert!(restarts > 5 && snapshots > 50 && received > 20, "{restarts} {snapshots} {received}");
    }
}
