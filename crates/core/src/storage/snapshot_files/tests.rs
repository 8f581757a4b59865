//! Tests of snapshot files alone; `recovery` tests them together with the log.

use alloc::collections::BTreeMap;

use super::*;
use crate::command::{Condition, Operation, Write};
use crate::founding::Founding;
use crate::machine::Machine;
use crate::membership::Membership;
use crate::storage::memory_disk::{Crash, MemoryDisk};
use crate::types::{LogIndex, Term};
use proptest::prelude::*;

const SHARD: ShardId = ShardId(3);

fn id(index: u64) -> SnapshotId {
    SnapshotId { shard: SHARD, index: LogIndex(index), term: Term(1) }
}

/// A state of about `kilobytes`.
fn machine(seed: u64, kilobytes: u64) -> Machine {
    let mut machine = Machine::new(SHARD, &Founding::new(3, 4));
    for key in 0..kilobytes {
        let key = Bytes::copy_from_slice(&key.to_be_bytes());
        let value = Bytes::from(vec![seed as u8; 1000]);
        machine
            .apply(
                LogIndex(1),
                Write::of(&Operation::Put { key: &key, value: &value, condition: Condition::Always }),
            )
            .expect("applied");
    }
    machine
}

fn open(disk: &MemoryDisk) -> SnapshotFiles<MemoryDisk> {
    SnapshotFiles::open(disk.clone()).unwrap()
}

fn write_blocks(
    files: &mut SnapshotFiles<MemoryDisk>,
    id: SnapshotId,
    machine: &mut Machine,
) -> SnapshotDone {
    machine.begin_snapshot(&Membership::default());
    while let Some(block) = machine.next_block() {
        match files.run(SnapshotTask::Write { id, block }) {
            SnapshotDone::Written { id: written } => assert_eq!(written, id),
            other => return other,
        }
    }
    SnapshotDone::Written { id }
}

fn make(files: &mut SnapshotFiles<MemoryDisk>, id: SnapshotId, machine: &mut Machine) -> u64 {
    write_blocks(files, id, machine);
    match files.run(SnapshotTask::Finish { id, keeps_older: false }) {
        SnapshotDone::Finished { id: finished, file_bytes, .. } if finished == id => file_bytes,
        other => panic!("{other:?}"),
    }
}

/// A file of about `kilobytes` from another replica, and the digest of its state.
fn made_elsewhere(id: SnapshotId, kilobytes: u64) -> (Vec<u8>, u64) {
    let disk = MemoryDisk::new(1);
    let mut machine = machine(id.index.0, kilobytes);
    make(&mut open(&disk), id, &mut machine);
    (disk.bytes(&file_name(id, SnapshotFileKind::Finished)), machine.digest())
}

fn receive(files: &mut SnapshotFiles<MemoryDisk>, id: SnapshotId, offset: u64, part: &[u8]) -> u64 {
    match files.run(SnapshotTask::Receive { id, offset, bytes: Bytes::copy_from_slice(part) }) {
        SnapshotDone::Received { id: of, next_offset } if of == id => next_offset,
        other => panic!("{other:?}"),
    }
}

fn reason(done: SnapshotDone) -> String {
    match done {
        SnapshotDone::Failed { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

fn names(disk: &MemoryDisk) -> Vec<(u64, SnapshotFileKind)> {
    let parsed = disk.list().unwrap().into_iter().map(|name| parse_file_name(&name).unwrap());
    parsed.map(|(id, stage)| (id.index.0, stage)).collect()
}

#[test]
fn a_snapshot_travels_from_one_disk_to_another() {
    let (from, to) = (MemoryDisk::new(1), MemoryDisk::new(2));
    let (mut sender, mut receiver) = (open(&from), open(&to));
    let mut machine = machine(1, 700);
    let size = make(&mut sender, id(9), &mut machine);
    assert_eq!(size, from.bytes(&file_name(id(9), SnapshotFileKind::Finished)).len() as u64);
    assert_eq!(sender.load(id(9)).unwrap().machine.digest(), machine.digest());

    let mut next = receive(&mut receiver, id(9), 0, b"");
    while next < size {
        let done = sender.run(SnapshotTask::Read { id: id(9), offset: next, bytes_max: 100_000 });
        let SnapshotDone::Read { offset, bytes, file_bytes, .. } = done else { panic!("{done:?}") };
        assert_eq!((offset, file_bytes), (next, size));
        next = receive(&mut receiver, id(9), offset, &bytes);
    }
    let done = receiver.run(SnapshotTask::Load { id: id(9) });
    let SnapshotDone::Loaded { machine: loaded, file_bytes, .. } = done else { panic!("{done:?}") };
    assert_eq!((loaded.digest(), file_bytes), (machine.digest(), size));
    assert_eq!(from.all(), to.all());
    let after_crash = open(&to.crash(Crash::LosesAll)).load(id(9)).unwrap();
    assert_eq!((after_crash.machine.digest(), after_crash.file_bytes), (machine.digest(), size));
}

#[test]
fn the_registry_has_snapshots_too_and_kinds_are_told_apart() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    let prime = SnapshotId { shard: ShardId::PRIME, ..id(4) };
    make(&mut files, prime, &mut Machine::new(ShardId::PRIME, &Founding::new(3, 4)));
    assert!(matches!(files.load(prime).unwrap().machine, Machine::Registry(_)));
    make(&mut files, id(4), &mut Machine::new(ShardId::PRIME, &Founding::new(3, 4)));
    let error = files.load(id(4)).unwrap_err();
    assert!(matches!(error, SnapshotFileError::Damaged { offset: 0, .. }), "{error}");
}

#[test]
fn parts_that_do_not_continue_are_ignored() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    let (bytes, digest) = made_elsewhere(id(5), 10);
    assert_eq!(receive(&mut files, id(5), 100, &bytes[100..200]), 0);
    assert_eq!(disk.list().unwrap(), Vec::<String>::new(), "nothing begins in the middle");
    assert_eq!(receive(&mut files, id(5), 0, &bytes[..100]), 100);
    for offset in [0, 50, 99, 101, u64::MAX] {
        assert_eq!(receive(&mut files, id(5), offset, &bytes[..100]), 100, "offset {offset}");
    }
    assert_eq!(receive(&mut files, id(5), 0, b""), 100);
    assert_eq!(receive(&mut files, id(6), 0, b""), 0, "a question drops nothing");
    assert_eq!(receive(&mut files, id(6), 7, b"late"), 0);
    assert_eq!(receive(&mut files, id(5), 100, &bytes[100..]), bytes.len() as u64);
    let done = files.run(SnapshotTask::Load { id: id(5) });
    assert!(matches!(done, SnapshotDone::Loaded { machine, .. } if machine.digest() == digest));
}

#[test]
fn a_part_of_another_snapshot_drops_what_was_received() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    receive(&mut files, id(5), 0, b"five");
    assert_eq!(receive(&mut files, id(6), 0, b"six"), 3);
    assert_eq!(names(&disk), [(6, SnapshotFileKind::Receiving)]);
    assert_eq!(receive(&mut files, id(5), 4, b"five"), 0);
    let files = open(&disk);
    assert!(names(&disk).is_empty(), "a restart begins again");
    assert_eq!(files.shards().count(), 0);
}

#[test]
fn a_shard_has_two_files_at_most() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    make(&mut files, id(0), &mut machine(0, 1));
    make(&mut files, id(1), &mut machine(1, 1));
    assert_eq!(names(&disk), [(1, SnapshotFileKind::Finished)], "nobody needs the first");
    write_blocks(&mut files, id(2), &mut machine(2, 1));
    files.run(SnapshotTask::Finish { id: id(2), keeps_older: true });
    assert_eq!(
        names(&disk),
        [(1, SnapshotFileKind::Finished), (2, SnapshotFileKind::Finished)],
        "a follower is sent the first"
    );
    write_blocks(&mut files, id(3), &mut machine(3, 1));
    assert_eq!(names(&disk), [(2, SnapshotFileKind::Finished), (3, SnapshotFileKind::Writing)]);
    receive(&mut files, id(4), 0, &made_elsewhere(id(4), 1).0);
    assert_eq!(names(&disk), [(2, SnapshotFileKind::Finished), (4, SnapshotFileKind::Receiving)]);
    // The unfinished snapshot was dropped, so another block of it must not start it again.
    let block = vec![1];
    assert!(reason(files.run(SnapshotTask::Write { id: id(3), block })).contains("dropped"));
    assert_eq!(names(&disk), [(2, SnapshotFileKind::Finished), (4, SnapshotFileKind::Receiving)]);
    files.run(SnapshotTask::Load { id: id(4) });
    assert_eq!(names(&disk), [(2, SnapshotFileKind::Finished), (4, SnapshotFileKind::Finished)]);
    assert_eq!(files.finished(SHARD).collect::<Vec<_>>(), [id(4), id(2)]);
    let finished_bytes = disk.bytes(&file_name(id(4), SnapshotFileKind::Finished)).len() as u64;
    assert!(files.file_bytes().unwrap() > finished_bytes);
    let done = files.run(SnapshotTask::Discard { id: id(4), machine: Box::new(machine(2, 1)) });
    assert!(matches!(done, SnapshotDone::Discarded { .. }), "{done:?}");
    assert_eq!(names(&disk), [(4, SnapshotFileKind::Finished)], "it is in place");
    assert_eq!(files.file_bytes(), Ok(finished_bytes));
    files.keep_only(SHARD, None).unwrap();
    assert_eq!(names(&disk), []);
}

#[test]
fn a_refused_snapshot_makes_way_for_an_older_one() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    make(&mut files, id(1), &mut machine(1, 1));
    receive(&mut files, id(4), 0, &made_elsewhere(id(4), 1).0);
    files.run(SnapshotTask::Load { id: id(4) });
    let older = made_elsewhere(id(3), 1).0;
    let part = SnapshotTask::Receive { id: id(3), offset: 0, bytes: older.clone().into() };
    assert!(reason(files.run(part)).contains("newer"));
    let done = files.run(SnapshotTask::Refuse { id: id(4), machine: Box::new(machine(4, 1)) });
    assert!(matches!(done, SnapshotDone::Discarded { .. }), "{done:?}");
    assert_eq!(names(&disk), [(1, SnapshotFileKind::Finished)]);
    receive(&mut files, id(3), 0, &older);
    assert!(matches!(files.run(SnapshotTask::Load { id: id(3) }), SnapshotDone::Loaded { .. }));
}

#[test]
fn a_snapshot_is_refused_first_or_not_at_all() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    let refuse = |index| SnapshotTask::Refuse { id: id(index), machine: Box::new(machine(1, 1)) };
    make(&mut files, id(1), &mut machine(1, 1));
    assert!(reason(files.run(refuse(1))).contains("not loaded"));
    receive(&mut files, id(4), 0, &made_elsewhere(id(4), 1).0);
    files.run(SnapshotTask::Load { id: id(4) });
    files.run(SnapshotTask::Write { id: id(5), block: machine(1, 1).next_block().unwrap_or(vec![1]) });
    assert!(reason(files.run(refuse(4))).contains("another snapshot was begun"));
    assert!(files.finished(SHARD).any(|finished| finished == id(4)), "it stays");
}

#[test]
fn other_shards_and_other_files_are_left_alone() {
    let disk = MemoryDisk::new(1);
    let other = SnapshotId { shard: ShardId(4), ..id(1) };
    let strangers = ["snapshot-1-2-3", "snapshot-x", "control", "wal-0000000000000001.log"];
    for name in strangers {
        disk.put(name, vec![1]);
    }
    let mut files = open(&disk);
    make(&mut files, other, &mut machine(1, 1));
    for index in 1..5 {
        make(&mut files, id(index), &mut machine(1, 1));
    }
    files.load(other).unwrap();
    assert_eq!(files.shards().collect::<Vec<_>>(), [SHARD, ShardId(4)]);
    assert!(strangers.iter().all(|name| disk.bytes(name) == [1]));
}

#[test]
fn what_cannot_be_done_is_refused_and_harms_nothing() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    let size = make(&mut files, id(5), &mut machine(1, 1));
    let before = disk.all();
    let too_large = vec![1; limits::SNAPSHOT_BLOCK_BYTES_MAX + 1];
    let read = |index, offset, bytes_max| SnapshotTask::Read { id: id(index), offset, bytes_max };
    for (task, why) in [
        (SnapshotTask::Write { id: id(6), block: vec![] }, "length"),
        (SnapshotTask::Write { id: id(6), block: too_large }, "length"),
        (SnapshotTask::Write { id: id(4), block: vec![1] }, "newer"),
        (SnapshotTask::Write { id: SnapshotId { term: Term(9), ..id(5) }, block: vec![1] }, "newer"),
        (SnapshotTask::Finish { id: id(6), keeps_older: false }, "in the making"),
        (SnapshotTask::Receive { id: id(4), offset: 0, bytes: Bytes::from_static(b"old") }, "newer"),
        (SnapshotTask::Load { id: id(6) }, "being received"),
        (read(6, 0, 10), "no such snapshot"),
        (read(5, size, 10), "nothing to read"),
        (read(5, u64::MAX, usize::MAX), "nothing to read"),
        (read(5, 0, 0), "nothing to read"),
    ] {
        let text = alloc::format!("{task:?}");
        let reason = reason(files.run(task));
        assert!(reason.contains(why), "{text}: {reason}");
        assert_eq!(disk.all(), before, "{text}");
    }
    let SnapshotDone::Read { bytes, .. } = files.run(read(5, size - 3, 10)) else { panic!("the end") };
    assert_eq!(bytes.len(), 3);
}

#[test]
fn a_full_disk_fails_the_snapshot_and_nothing_else() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    make(&mut files, id(1), &mut machine(1, 300));
    let before = disk.all();
    let (bytes, digest) = made_elsewhere(id(3), 300);
    for room in [0, 10, 200_000] {
        disk.set_room(room);
        let why = reason(write_blocks(&mut files, id(2), &mut machine(2, 300)));
        assert!(why.contains("no room"), "{why}");
        assert_eq!(disk.all(), before);
        let task = SnapshotTask::Receive { id: id(3), offset: 0, bytes: Bytes::from(bytes.clone()) };
        assert!(reason(files.run(task)).contains("no room"));
        assert_eq!(disk.all(), before);
    }
    disk.set_room(u64::MAX);
    make(&mut files, id(2), &mut machine(2, 300));
    receive(&mut files, id(3), 0, &bytes);
    let done = files.run(SnapshotTask::Load { id: id(3) });
    assert!(matches!(done, SnapshotDone::Loaded { machine, .. } if machine.digest() == digest));
}

#[test]
fn a_failed_sync_fails_the_snapshot() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    let (bytes, _) = made_elsewhere(id(2), 10);
    write_blocks(&mut files, id(1), &mut machine(1, 10));
    disk.fail_syncs(true);
    assert!(
        reason(files.run(SnapshotTask::Finish { id: id(1), keeps_older: false })).contains("input/output")
    );
    assert!(names(&disk).is_empty());
    receive(&mut files, id(2), 0, &bytes);
    assert!(reason(files.run(SnapshotTask::Load { id: id(2) })).contains("input/output"));
    assert!(names(&disk).is_empty());
    disk.fail_syncs(false);
    make(&mut files, id(1), &mut machine(1, 10));
}

#[test]
fn a_large_file_is_synced_on_the_way() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    disk.fail_syncs(true);
    assert!(reason(write_blocks(&mut files, id(1), &mut machine(1, 5_000))).contains("input/output"));
}

#[test]
fn a_received_file_that_is_not_intact_is_not_loaded() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    let (mut bytes, _) = made_elsewhere(id(2), 10);
    let last = bytes.len() - 1;
    bytes[last / 2] ^= 1;
    receive(&mut files, id(2), 0, &bytes);
    let reason = reason(files.run(SnapshotTask::Load { id: id(2) }));
    assert!(reason.contains("damaged at byte offset") && reason.contains("checksum"), "{reason}");
    assert!(names(&disk).is_empty(), "it is received anew");
}

#[test]
fn every_flipped_bit_and_every_other_length_is_damage() {
    let disk = MemoryDisk::new(1);
    let files = open(&disk);
    let (intact, digest) = made_elsewhere(id(1), 1);
    let name = file_name(id(1), SnapshotFileKind::Finished);
    let load = |bytes: Vec<u8>| {
        disk.put(&name, bytes);
        files.load(id(1))
    };
    assert_eq!(load(intact.clone()).unwrap().machine.digest(), digest);
    for bit in 0..intact.len() * 8 {
        let mut bytes = intact.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(load(bytes), Err(SnapshotFileError::Damaged { .. })), "bit {bit}");
    }
    for length in 0..intact.len() {
        assert!(
            matches!(load(intact[..length].to_vec()), Err(SnapshotFileError::Damaged { .. })),
            "{length}"
        );
    }
    for tail in [&[0][..], &[0; 32], &intact] {
        assert!(matches!(load([&intact, tail].concat()), Err(SnapshotFileError::Damaged { .. })));
    }
    let (other, _) = made_elsewhere(id(2), 1);
    let error = load(other).unwrap_err();
    assert_eq!(
        alloc::format!("{error}"),
        alloc::format!("{name} is damaged at byte offset 0: the header names another snapshot")
    );
}

#[test]
fn blocks_cannot_be_moved_doubled_or_left_out() {
    let disk = MemoryDisk::new(1);
    let files = open(&disk);
    let (bytes, _) = made_elsewhere(id(1), 500);
    let name = file_name(id(1), SnapshotFileKind::Finished);
    let mut starts = vec![format::HEADER_BYTES];
    loop {
        let at = *starts.last().unwrap();
        let header = format::decode_block_header(&bytes[at..]).unwrap();
        if header.payload_bytes == 0 {
            break;
        }
        starts.push(at + format::BLOCK_HEADER_BYTES + header.payload_bytes as usize);
    }
    let blocks: Vec<&[u8]> = starts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
    assert!(blocks.len() > 3);
    let (header, trailer) = (&bytes[..format::HEADER_BYTES], &bytes[*starts.last().unwrap()..]);
    let mut orders = vec![];
    for at in 1..blocks.len() {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        orders.push({
            let mut order = order.clone();
            order.remove(at);
            order
        });
        orders.push({
            let mut order = order.clone();
            order.insert(at, at);
            order
        });
        order.swap(at - 1, at);
        orders.push(order);
    }
    for order in orders {
        let body = order.iter().map(|&at| blocks[at]).collect::<Vec<_>>().concat();
        disk.put(&name, [header, &body, trailer].concat());
        assert!(matches!(files.load(id(1)), Err(SnapshotFileError::Damaged { .. })), "{order:?}");
    }
}

#[test]
fn intact_blocks_that_are_no_state_are_told_apart() {
    let disk = MemoryDisk::new(1);
    let mut files = open(&disk);
    files.run(SnapshotTask::Write { id: id(1), block: vec![77] });
    files.run(SnapshotTask::Finish { id: id(1), keeps_older: false });
    let error = files.load(id(1)).unwrap_err();
    assert!(matches!(error, SnapshotFileError::Restore { offset: 44, .. }), "{error}");
}

#[test]
fn snapshots_that_grow_have_no_say_after_a_crash() {
    for seed in 0..100 {
        let disk = MemoryDisk::new(seed);
        let mut files = open(&disk);
        make(&mut files, id(1), &mut machine(1, 200));
        disk.set_fuse(seed % 20);
        let done = write_blocks(&mut files, id(2), &mut machine(2, 400));
        let finished = matches!(done, SnapshotDone::Written { .. })
            && matches!(
                files.run(SnapshotTask::Finish { id: id(2), keeps_older: false }),
                SnapshotDone::Finished { .. }
            );
        let disk = disk.crash(Crash::Tears);
        let files = open(&disk);
        let newest = files.finished(SHARD).next().unwrap();
        assert!(!finished || newest == id(2));
        let digest = files.load(newest).unwrap().machine.digest();
        let expected = if newest == id(1) { machine(1, 200) } else { machine(2, 400) };
        assert_eq!(digest, expected.digest());
        assert!(names(&disk).iter().all(|&(_, stage)| stage == SnapshotFileKind::Finished));
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(header: bool, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let disk = MemoryDisk::new(1);
        let start = if header { format::encode_header(id(1)).0.to_vec() } else { vec![] };
        disk.put(&file_name(id(1), SnapshotFileKind::Finished), [&start[..], &bytes].concat());
        prop_assert!(open(&disk).load(id(1)).is_err());
    }

    #[test]
    fn parts_of_any_size_in_any_order_make_the_file(seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = MemoryDisk::new(seed);
        let mut files = open(&disk);
        let (bytes, digest) = made_elsewhere(id(1), random.u64(0..300));
        let mut next = 0;
        while next < bytes.len() as u64 {
            let offset = if random.u8(..) < 200 { next } else { random.u64(..bytes.len() as u64) };
            let start = offset as usize;
            let end = bytes.len().min(start + random.usize(..200_000));
            let before = next;
            next = receive(&mut files, id(1), offset, &bytes[start..end]);
            prop_assert_eq!(next, if offset == before { end as u64 } else { before });
        }
        let done = files.run(SnapshotTask::Load { id: id(1) });
        let is_loaded = matches!(done, SnapshotDone::Loaded { machine, .. } if machine.digest() == digest);
        prop_assert!(is_loaded);
        let found: BTreeMap<_, _> = disk.all();
        prop_assert_eq!(&found[&file_name(id(1), SnapshotFileKind::Finished)], &bytes);
    }
}
