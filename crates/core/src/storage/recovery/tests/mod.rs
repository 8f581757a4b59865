//! Log and snapshots together: after a power failure at any moment, recovery returns the state or
//! refuses to start.

mod histories;

use alloc::string::{String, ToString};
use bytes::Bytes;

use super::*;
use crate::founding::Founding;
use crate::machine::Machine;
use crate::membership::Membership;
use crate::storage::memory_disk::MemoryDisk;
use crate::storage::snapshot::{SnapshotDone, SnapshotTask};
use crate::storage::{HardState, LogEntry};
use crate::types::ReplicaId;

const SHARD: ShardId = ShardId(1);

fn options(seed: u64) -> WalOptions {
    WalOptions { segment_bytes: 4 * 4096, frame_bytes_max: 1024 << (seed % 5), ..WalOptions::new(seed) }
}

fn id(index: u64, term: u64) -> SnapshotId {
    SnapshotId { shard: SHARD, index: LogIndex(index), term: Term(term) }
}

fn entries(first: u64, last: u64, term: u64) -> WalRecord {
    let entry =
        |index| LogEntry { index: LogIndex(index), term: Term(term), data: Bytes::from_static(b"data") };
    WalRecord::Entries { shard: SHARD, entries: (first..=last).map(entry).collect() }
}

fn hard_state(term: u64, commit: u64) -> WalRecord {
    let state = HardState { term: Term(term), vote: Some(ReplicaId(2)), commit: LogIndex(commit) };
    WalRecord::HardState { shard: SHARD, state }
}

fn restart(index: u64, term: u64) -> WalRecord {
    WalRecord::Restart { shard: SHARD, index: LogIndex(index), term: Term(term) }
}

fn append<D: Disk>(log: &mut Writer<D>, records: Vec<WalRecord>) -> Result<(), WalError> {
    log.append(&[WalBatch { sequence: WalSequence(1), records, released: vec![] }])
}

/// Makes a snapshot of `machine` with all its tasks.
fn make<D: Disk>(files: &mut SnapshotFiles<D>, id: SnapshotId, machine: &mut Machine) {
    machine.begin_snapshot(&Membership::default());
    while let Some(block) = machine.next_block() {
        files.run(SnapshotTask::Write { id, block });
    }
    let done = files.run(SnapshotTask::Finish { id, keeps_older: true });
    assert!(matches!(done, SnapshotDone::Finished { .. }), "{done:?}");
}

/// A disk with `records` in its log, and an empty state for each of `snapshots`.
fn disk(records: &[WalRecord], snapshots: &[SnapshotId]) -> MemoryDisk {
    let disk = MemoryDisk::new(1);
    let (mut log, _) = wal::open(disk.clone(), options(1)).unwrap();
    for record in records {
        append(&mut log, vec![record.clone()]).unwrap();
    }
    log.sync().unwrap();
    let mut files = SnapshotFiles::open(disk.clone()).unwrap();
    for &id in snapshots {
        make(&mut files, id, &mut Machine::new(SHARD, &Founding::new(3, 4)));
    }
    disk
}

fn name(id: SnapshotId) -> String {
    alloc::format!("snapshot-{:020}-{:020}-{:020}", id.shard.0, id.index.0, id.term.0)
}

fn damage(disk: &MemoryDisk, id: SnapshotId) {
    let mut bytes = disk.bytes(&name(id));
    // The checksum of the first block.
    bytes[48] ^= 4;
    disk.put(&name(id), bytes);
}

/// Result of a start: the snapshot's index, the indexes in the log, and the hard state.
type StartOutcome = Result<(u64, Vec<u64>, HardState), StorageRecoveryError>;

fn start(disk: &MemoryDisk) -> StartOutcome {
    let mut opened = open(disk.clone(), options(2))?;
    let shard = opened.shards.remove(&SHARD).unwrap_or_default();
    let base = shard.snapshot.map_or(0, |snapshot| snapshot.id.index.0);
    Ok((base, shard.log.entries.iter().map(|entry| entry.index.0).collect(), shard.log.hard_state))
}

fn found(outcome: StartOutcome) -> (u64, Vec<u64>) {
    let (base, log, _) = outcome.unwrap();
    (base, log)
}

#[test]
fn an_empty_disk_is_an_empty_node() {
    let disk = MemoryDisk::new(1);
    assert!(open(disk.clone(), options(1)).map(|opened| opened.shards.is_empty()).unwrap());
    assert_eq!(disk.list().unwrap(), ["wal-0000000000000001.log"]);
}

#[test]
fn the_log_goes_on_behind_the_newest_snapshot() {
    for (records, snapshots, expected) in [
        (vec![entries(1, 9, 1)], vec![], (0, (1..=9).collect::<Vec<u64>>())),
        (vec![entries(1, 9, 1)], vec![id(4, 1)], (4, vec![5, 6, 7, 8, 9])),
        (vec![entries(1, 9, 1)], vec![id(4, 1), id(7, 1)], (7, vec![8, 9])),
        (vec![entries(1, 9, 1)], vec![id(9, 1)], (9, vec![])),
        (vec![entries(5, 9, 1)], vec![id(4, 1)], (4, vec![5, 6, 7, 8, 9])),
        (vec![], vec![id(4, 1)], (4, vec![])),
        (vec![entries(1, 3, 1), restart(5, 2), entries(6, 8, 2)], vec![id(5, 2)], (5, vec![6, 7, 8])),
        (vec![restart(5, 2), entries(6, 8, 2)], vec![id(5, 2), id(7, 2)], (7, vec![8])),
        (vec![restart(5, 2)], vec![id(5, 2)], (5, vec![])),
    ] {
        let disk = disk(&records, &snapshots);
        for _ in 0..2 {
            assert_eq!(found(start(&disk)), expected, "{records:?} {snapshots:?}");
        }
        let files = disk.list().unwrap().iter().filter(|name| name.starts_with("snapshot")).count();
        assert_eq!(files, usize::from(!snapshots.is_empty()), "older ones are of no use after a start");
    }
}

#[test]
fn a_log_that_does_not_reach_the_snapshot_begins_anew_behind_it() {
    let (void, other) = (hard_state(1, 3), vec![entries(1, 9, 1)]);
    for (records, why) in [
        (vec![entries(1, 4, 1), hard_state(1, 4)], "it ends before the snapshot"),
        (vec![restart(2, 1)], "it ends before the snapshot, at a restart"),
        (vec![restart(2, 1), entries(3, 6, 1)], "it ends before the snapshot, behind a restart"),
        ([other, vec![void]].concat(), "entry 7 is another one, so what follows it never was"),
    ] {
        let disk = disk(&records, &[id(7, 2)]);
        let mut opened = open(disk.clone(), options(3)).unwrap();
        assert_eq!(opened.report.restarted, [id(7, 2)], "{why}");
        let log = &opened.shards[&SHARD].log;
        assert_eq!((log.entries.len(), log.restart), (0, Some((LogIndex(7), Term(2)))), "{why}");
        append(&mut opened.log, vec![entries(8, 9, 2)]).unwrap();
        opened.log.sync().unwrap();
        let again = open(disk, options(4)).unwrap();
        assert!(again.report.restarted.is_empty(), "{why}");
        let log = &again.shards[&SHARD].log;
        assert_eq!(log.entries.iter().map(|entry| entry.index.0).collect::<Vec<_>>(), [8, 9], "{why}");
    }
}

#[test]
fn a_hard_state_is_at_least_as_new_as_the_snapshot() {
    let state = |records: &[WalRecord]| start(&disk(records, &[id(7, 5)])).unwrap().2;
    let lifted = HardState { term: Term(5), vote: None, commit: LogIndex(7) };
    assert_eq!(state(&[]), lifted);
    assert_eq!(state(&[hard_state(4, 3)]), lifted, "a vote counts for its own term only");
    assert_eq!(state(&[hard_state(5, 3)]), HardState { vote: Some(ReplicaId(2)), ..lifted });
    let newer = HardState { term: Term(6), vote: Some(ReplicaId(2)), commit: LogIndex(8) };
    assert_eq!(state(&[entries(1, 9, 5), hard_state(6, 8)]), newer);
}

#[test]
fn what_does_not_fit_refuses_the_start_and_names_what_is_missing() {
    let missing = |needed, found| {
        let (shard, needed, found) = (SHARD, LogIndex(needed), LogIndex(found));
        StorageRecoveryError::SnapshotMissing { shard, needed, found }
    };
    let contradiction = |index, log, snapshot| {
        let (index, log, snapshot) = (LogIndex(index), Term(log), Term(snapshot));
        StorageRecoveryError::Contradiction { shard: SHARD, index, log, snapshot }
    };
    let gone = |commit, found| {
        let (commit, found) = (LogIndex(commit), LogIndex(found));
        StorageRecoveryError::EntriesMissing { shard: SHARD, commit, found }
    };
    for (records, snapshots, expected) in [
        (vec![entries(5, 9, 1)], vec![], missing(4, 0)),
        (vec![entries(5, 9, 1)], vec![id(3, 1)], missing(4, 3)),
        (vec![restart(6, 1)], vec![], missing(6, 0)),
        (vec![restart(6, 1), entries(7, 9, 1)], vec![id(5, 1)], missing(6, 5)),
        (vec![restart(6, 1), entries(7, 9, 1)], vec![id(6, 2)], contradiction(6, 1, 2)),
        (vec![restart(6, 1)], vec![id(6, 2)], contradiction(6, 1, 2)),
        (vec![entries(1, 9, 1), hard_state(1, 7)], vec![id(7, 2)], contradiction(7, 1, 2)),
        (vec![entries(1, 9, 1), hard_state(1, 10)], vec![], gone(10, 9)),
        (vec![hard_state(1, 10)], vec![id(7, 1)], gone(10, 7)),
        (vec![entries(1, 4, 1), hard_state(1, 10)], vec![id(7, 1)], gone(10, 7)),
    ] {
        let disk = disk(&records, &snapshots);
        let before = disk.all();
        assert_eq!(start(&disk), Err(expected), "{records:?} {snapshots:?}");
        assert_eq!(disk.all(), before, "{records:?} {snapshots:?}");
    }
    let text = missing(4, 0).to_string();
    assert_eq!(
        text,
        "the log of shard 1 begins after entry 4, but no snapshot is there: a snapshot is missing"
    );
}

#[test]
fn the_log_makes_up_for_a_damaged_snapshot_if_it_can() {
    for (first, last, snapshots, expected) in [
        (1, 9, vec![id(7, 1)], Some((0, (1..=9).collect::<Vec<u64>>()))),
        (1, 7, vec![id(7, 1)], Some((0, (1..=7).collect()))),
        (1, 9, vec![id(4, 1), id(7, 1)], Some((4, vec![5, 6, 7, 8, 9]))),
        (5, 9, vec![id(4, 1), id(7, 1)], Some((4, vec![5, 6, 7, 8, 9]))),
        (6, 9, vec![id(4, 1), id(7, 1)], None),
        (2, 9, vec![id(7, 1)], None),
        (1, 6, vec![id(7, 1)], None),
        (8, 9, vec![id(4, 1), id(7, 1)], None),
    ] {
        let disk = disk(&[entries(first, last, 1)], &snapshots);
        damage(&disk, id(7, 1));
        let before = disk.all();
        match (open(disk.clone(), options(5)), expected) {
            (Ok(opened), Some(expected)) => {
                assert_eq!(opened.report.damaged.len(), 1);
                drop(opened);
                assert_eq!(found(start(&disk)), expected, "{first} to {last}");
                assert!(!disk.list().unwrap().contains(&name(id(7, 1))), "it is of no more use");
            }
            (Err(error), None) => {
                let text = error.to_string();
                assert!(text.starts_with(&(name(id(7, 1)) + " is damaged at byte offset 44")), "{text}");
                assert_eq!(disk.all(), before);
            }
            (outcome, expected) => {
                panic!("{:?} instead of {expected:?}", outcome.map(|opened| opened.report))
            }
        }
    }
    let disk = disk(&[restart(4, 1), entries(5, 9, 1)], &[id(4, 1)]);
    damage(&disk, id(4, 1));
    assert!(matches!(start(&disk), Err(StorageRecoveryError::Damaged { .. })), "nothing makes up for it");
}

#[test]
fn a_snapshot_of_another_release_is_never_passed_over() {
    let disk = disk(&[entries(1, 9, 1)], &[id(7, 1)]);
    let mut bytes = disk.bytes(&name(id(7, 1)));
    bytes[8] = 9;
    let crc = crc32c::crc32c(&bytes[..40]);
    bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    disk.put(&name(id(7, 1)), bytes);
    let version = SnapshotFileError::Version { file: name(id(7, 1)), version: 9 };
    assert_eq!(start(&disk), Err(StorageRecoveryError::Snapshot(version)));
}

#[test]
fn starting_needs_no_room() {
    let disk = disk(&[entries(1, 400, 1)], &[id(300, 1)]);
    disk.set_room(0);
    assert_eq!(found(start(&disk)), (300, (301..=400).collect()));
}

#[test]
fn what_a_snapshot_contains_goes_with_the_next_release_of_any_shard() {
    let disk = disk(&[entries(1, 4000, 1)], &[id(4000, 1)]);
    let mut opened = open(disk.clone(), options(1)).unwrap();
    let segments = || disk.list().unwrap().iter().filter(|name| name.starts_with("wal-0")).count();
    assert!(segments() > 2);
    opened.log.release(ShardId(7), LogIndex(1)).unwrap();
    assert_eq!(segments(), 1);
}
