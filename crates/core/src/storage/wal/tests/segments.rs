//! The life cycle of segments: created, filled, released, reused, and exhausted.

use super::*;
use crate::storage::disk::DiskErrorKind;
use crate::storage::memory_disk::Crash;

fn segment_names(disk: &MemoryDisk) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| parse_segment_name(name).is_some()).collect()
}

fn spare_names(disk: &MemoryDisk) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| segment::parse_spare_name(name).is_some()).collect()
}

/// Commits `count` entries of 3000 bytes to shard 0, from index `first` on. Four fill a segment.
fn commit_large(writer: &mut Writer<MemoryDisk>, first: u64, count: u64) {
    for index in first..first + count {
        commit(writer, entries(0, index, &[&[index as u8; 3000]]));
    }
}

#[test]
fn an_empty_directory_becomes_an_empty_log() {
    let disk = MemoryDisk::new(1);
    for _ in 0..2 {
        let (mut writer, recovery) = open_log(&disk);
        assert!(recovery.logs.is_empty());
        writer.append(&[]).unwrap();
        writer.append(&[batch(vec![])]).unwrap();
        writer.sync().unwrap();
        assert_eq!(writer.bytes_written(), 0);
    }
    assert_eq!(disk.list().unwrap(), [segment::segment_name(1)]);
}

#[test]
fn a_lost_log_is_refused_as_often_as_it_is_looked_for() {
    let disk = MemoryDisk::new(1);
    let begun = WalOptions { begun: true, ..options(1) };
    for _ in 0..2 {
        assert_eq!(open(disk.clone(), begun).err(), Some(WalRecoveryError::Lost));
        assert!(disk.list().unwrap().is_empty(), "nothing takes its place");
    }
    open_log(&disk);
    assert!(open(disk, begun).is_ok(), "an empty log is one");
}

#[test]
fn entries_replace_the_tail_of_the_log() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(0, 1, &[b"a", b"b", b"c", b"d"]));
    commit(&mut writer, entries(0, 2, &[b"B", b"C"]));
    let (_, recovery) = open_log(&disk);
    let data: Vec<&[u8]> = recovery.logs[&ShardId(0)].entries.iter().map(|entry| &entry.data[..]).collect();
    assert_eq!(data, [&b"a"[..], b"B", b"C"]);
    assert_eq!(recovery.report.frames, 2);
    assert_eq!(recovery.report.bytes, writer.bytes_written());
}

#[test]
fn the_next_segment_is_ready_before_it_is_needed() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    while writer.prepare_next().unwrap() {}
    assert_eq!(segment_names(&disk).len(), 1, "half of the first one is still free");
    commit_large(&mut writer, 1, 3);
    while writer.prepare_next().unwrap() {}
    assert_eq!(segment_names(&disk).len(), 2);
    disk.set_room(0);
    commit_large(&mut writer, 4, 3);

    let (mut writer, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 6);
    assert_eq!(recovery.report.segments, 2);
    commit(&mut writer, entries(0, 7, &[b"x"]));
}

#[test]
fn a_prepared_segment_is_used_after_a_restart() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit_large(&mut writer, 1, 3);
    while writer.prepare_next().unwrap() {}
    let prepared = disk.bytes(&segment::segment_name(2));
    let (mut writer, recovery) = open_log(&disk);
    assert_eq!(recovery.report.segments, 1);
    assert_eq!(disk.bytes(&segment::segment_name(2)), prepared);
    assert!(!writer.prepare_next().unwrap());
    commit_large(&mut writer, 4, 4);
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 7);
}

#[test]
fn a_full_disk_stalls_the_log_and_loses_nothing() {
    let disk = MemoryDisk::new(1);
    disk.set_room(2 * SEGMENT_BYTES);
    let (mut writer, _) = open_log(&disk);
    commit_large(&mut writer, 1, 7);
    let early = writer.prepare_next().unwrap_err();
    assert!(early.is_retryable(), "{early}");
    commit(&mut writer, entries(0, 8, &[b"there is room for this one"]));
    let ninth = [batch(vec![entries(0, 9, &[&[1; 3000]])])];
    for _ in 0..3 {
        let before = disk.all();
        let error = writer.append(&ninth).unwrap_err();
        let WalError::NoRoom(cause) = &error else { panic!("{error}") };
        assert_eq!(cause.file, segment::spare_name(3), "the error names what could not grow");
        assert_eq!(disk.all(), before, "nothing was done");
        writer.sync().unwrap();
    }
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 8, "starting needs no room");

    commit(&mut writer, entries(0, 9, &[b"another one takes its place"]));
    disk.set_room(SEGMENT_BYTES);
    commit_large(&mut writer, 10, 2);
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 11);
}

#[test]
fn without_descriptors_the_log_stalls_and_goes_on_when_there_are_some() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    let mut index = 0;
    // Fills the current segment. The first segment after it needs a descriptor.
    disk.set_no_descriptors(true);
    let refused = loop {
        let next = [batch(vec![entries(0, index + 1, &[&[7; 3000]])])];
        match writer.append(&next) {
            Ok(()) => index += 1,
            Err(error) => break error,
        }
    };
    assert!(index > 0 && refused.is_retryable(), "{refused}");
    assert!(matches!(&refused, WalError::NoDescriptors(cause) if cause.operation == "create"), "{refused}");
    let prepared = loop {
        match writer.prepare_next() {
            Ok(true) => {}
            other => break other,
        }
    };
    assert!(prepared.is_err_and(|error| error.is_retryable()), "what is prepared ahead is only a warning");
    writer.sync().unwrap();

    disk.set_no_descriptors(false);
    commit(&mut writer, entries(0, index + 1, &[&[7; 3000]]));
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len() as u64, index + 1);
}

#[test]
fn a_group_that_finds_no_room_for_all_of_it_writes_nothing() {
    let disk = MemoryDisk::new(1);
    disk.set_room(4 * SEGMENT_BYTES);
    let (mut writer, _) = open_log(&disk);
    commit_large(&mut writer, 1, 1);
    let frames = spots(&disk).len();
    let large = [batch(vec![entries(0, 2, &[&[2; 60_000]])])];
    assert!(matches!(writer.append(&large), Err(WalError::NoRoom(_))));
    assert_eq!(spots(&disk).len(), frames);
    disk.set_room(2 * SEGMENT_BYTES);
    writer.append(&large).unwrap();
    writer.sync().unwrap();
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 2);
    assert_eq!(recovery.report.torn_tail, None);
}

#[test]
fn terms_and_votes_find_room_where_data_does_not() {
    let disk = MemoryDisk::new(1);
    disk.set_room(SEGMENT_BYTES);
    let (mut writer, _) = open_log(&disk);
    let fill = |writer: &mut Writer<MemoryDisk>| {
        let mut index = 0;
        loop {
            index += 1;
            if let Err(error) = writer.append(&[batch(vec![entries(0, index, &[b"data"])])]) {
                return error;
            }
        }
    };
    assert!(matches!(fill(&mut writer), WalError::NoRoom(_)));
    assert!(matches!(writer.ensure_room(), Err(WalError::NoRoom(_))));
    commit(&mut writer, hard_state(0, 9));
    let (mut writer, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].hard_state.term, Term(9));
    assert!(matches!(writer.ensure_room(), Err(WalError::NoRoom(_))), "it is known before data comes");
    disk.set_room(SEGMENT_BYTES);
    writer.ensure_room().unwrap();
}

#[test]
fn releasing_makes_the_room_that_the_log_waits_for() {
    let disk = MemoryDisk::new(1);
    disk.set_room(2 * SEGMENT_BYTES);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, hard_state(7, 3));
    commit_large(&mut writer, 1, 7);
    let next = [batch(vec![entries(0, 8, &[&[8; 3000]])])];
    assert!(matches!(writer.append(&next), Err(WalError::NoRoom(_))));
    writer.release(ShardId(0), LogIndex(4)).unwrap();
    writer.append(&next).unwrap();
    writer.sync().unwrap();
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.last().unwrap().index, LogIndex(8));
    assert_eq!(recovery.logs[&ShardId(7)].hard_state.term, Term(3));
}

#[test]
fn what_could_not_be_let_go_is_let_go_later() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, hard_state(7, 3));
    commit_large(&mut writer, 1, 20);
    for changes in 0..3 {
        disk.refuse_changes(DiskErrorKind::ReadOnly, changes);
        assert!(matches!(writer.release(ShardId(0), LogIndex(18)), Err(WalError::ReadOnly(_))), "{changes}");
        disk.allow_changes();
        let (_, recovery) = open(disk.crash(Crash::LosesAll), options(1)).unwrap();
        assert_eq!(recovery.logs[&ShardId(7)].hard_state.term, Term(3));
    }
    writer.reclaim().unwrap();
    assert_eq!(segment_names(&disk)[0], segment::segment_name(5));
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(7)].hard_state.term, Term(3));
}

#[test]
fn a_refused_write_is_tried_again_unless_its_group_has_begun() {
    for (frames_written, retryable) in [(0, true), (1, false), (2, false)] {
        let disk = MemoryDisk::new(1);
        let (mut writer, _) = open(disk.clone(), WalOptions { frame_bytes_max: 1024, ..options(1) }).unwrap();
        commit(&mut writer, entries(0, 1, &[b"before"]));
        let group = [batch(vec![entries(0, 2, &[&[2; 3000]])])];
        disk.refuse_changes(DiskErrorKind::ReadOnly, frames_written);
        let error = writer.append(&group).unwrap_err();
        assert_eq!(error.is_retryable(), retryable, "{error}");
        disk.allow_changes();
        if retryable {
            commit(&mut writer, entries(0, 2, &[b"shorter than what was refused"]));
        } else {
            assert_eq!(writer.append(&group), Err(WalError::Poisoned));
        }
        for crash in [Crash::KeepsAll, Crash::LosesAll, Crash::Tears] {
            let (_, recovery) = open(disk.crash(crash), options(2)).unwrap();
            assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 1 + usize::from(retryable));
        }
    }
}

#[test]
fn released_segments_are_used_again_and_their_remains_not_believed() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, hard_state(7, 3));
    let mut next = 1;
    for round in 1..=10 {
        commit_large(&mut writer, next, 12);
        next += 12;
        writer.release(ShardId(0), LogIndex(next - 2)).unwrap();
        assert!(segment_names(&disk).len() <= 2, "round {round}: {:?}", disk.list());
        while writer.prepare_next().unwrap() {}
        assert!(spare_names(&disk).len() <= pool::SPARES_MAX, "what is too much goes when the log is idle");

        let (reopened, recovery) = open_log(&disk);
        let log = &recovery.logs[&ShardId(0)];
        assert_eq!(log.entries.last().unwrap().index, LogIndex(next - 1));
        assert!(log.entries[0].index > LogIndex(1));
        assert!(log.entries.iter().all(|entry| entry.data == vec![entry.index.0 as u8; 3000]));
        assert_eq!(recovery.logs[&ShardId(7)].hard_state.term, Term(3), "a quiet shard keeps its vote");
        assert_eq!(recovery.report.torn_tail, None);
        if round % 2 == 0 {
            writer = reopened;
        }
    }
    commit_large(&mut writer, next, 5);
    let first = segment_names(&disk).remove(0);
    assert!(parse_segment_name(&first).unwrap() > 20);
    let last = spots(&disk).pop().unwrap();
    let bytes = disk.bytes(&last.file);
    let end = (last.offset + last.frame.frame_bytes()) as usize;
    assert!(bytes[end..].iter().any(|&byte| byte != 0), "the last segment is a recycled one with remains");
}

#[test]
fn a_segment_stays_as_long_as_one_shard_needs_it() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(5, 1, &[b"needed"]));
    commit_large(&mut writer, 1, 20);
    writer.release(ShardId(0), LogIndex(20)).unwrap();
    assert_eq!(segment_names(&disk)[0], segment::segment_name(1));
    writer.release(ShardId(5), LogIndex(1)).unwrap();
    assert_ne!(segment_names(&disk)[0], segment::segment_name(1));
    let (_, recovery) = open_log(&disk);
    assert!(!recovery.logs.contains_key(&ShardId(5)));
}

#[test]
fn the_log_says_who_holds_it() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(5, 1, &[b"needed", b"needed"]));
    assert_eq!(writer.held(), LogHeld::default(), "the segment being written can never go");
    commit_large(&mut writer, 1, 20);
    let full = segment_names(&disk).len() as u64 - 1;
    let held = LogHeld { bytes: full * SEGMENT_BYTES, holder: Some((ShardId(0), LogIndex(3))) };
    assert_eq!(writer.held(), held);
    writer.release(ShardId(0), LogIndex(20)).unwrap();
    let needed_by_the_other = LogHeld { holder: Some((ShardId(5), LogIndex(2))), ..held };
    assert_eq!(writer.held(), needed_by_the_other);
    assert_eq!(open_log(&disk).0.held().bytes, held.bytes);
    writer.release(ShardId(5), LogIndex(2)).unwrap();
    assert_eq!(writer.held(), LogHeld::default());
    let files = disk.list().unwrap();
    assert_eq!(writer.file_bytes(), files.iter().map(|name| disk.bytes(name).len() as u64).sum::<u64>());
}

#[test]
fn replaced_entries_hold_on_to_nothing() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(5, 1, &[b"kept", b"replaced", b"replaced", b"replaced"]));
    commit_large(&mut writer, 1, 10);
    // The shard's log is shorter now than before.
    commit(&mut writer, entries(5, 2, &[b"instead"]));
    commit_large(&mut writer, 11, 10);
    writer.release(ShardId(0), LogIndex(20)).unwrap();
    assert_eq!(writer.held().holder, Some((ShardId(5), LogIndex(1))));
    writer.release(ShardId(5), LogIndex(1)).unwrap();
    assert_eq!(writer.held().holder, Some((ShardId(5), LogIndex(2))));
    let (mut writer, recovery) = open_log(&disk);
    let left: Vec<u64> = recovery.logs[&ShardId(5)].entries.iter().map(|entry| entry.index.0).collect();
    assert_eq!(left, [2]);
    writer.release(ShardId(0), LogIndex(20)).unwrap();
    writer.release(ShardId(5), LogIndex(2)).unwrap();
    assert_eq!(writer.held(), LogHeld::default());
}

/// A replaced tail may end at the index of a snapshot whose entries are long gone.
#[test]
fn what_an_earlier_life_released_holds_on_to_nothing() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(5, 1, &[b"in a snapshot", b"in a snapshot"]));
    commit_large(&mut writer, 1, 10);
    writer.release(ShardId(5), LogIndex(2)).unwrap();
    writer.release(ShardId(0), LogIndex(10)).unwrap();
    let (mut writer, recovery) = open_log(&disk);
    assert!(!recovery.logs.contains_key(&ShardId(5)));
    writer.note_released(ShardId(5), LogIndex(2));
    commit(&mut writer, entries(5, 3, &[b"replaced"]));
    commit_large(&mut writer, 11, 10);
    commit(&mut writer, entries(5, 3, &[b"instead"]));
    commit_large(&mut writer, 21, 10);
    writer.release(ShardId(0), LogIndex(30)).unwrap();
    assert_eq!(writer.held().holder, Some((ShardId(5), LogIndex(3))));
    writer.release(ShardId(5), LogIndex(3)).unwrap();
    assert_eq!(writer.held(), LogHeld::default());
}

#[test]
fn a_group_that_began_in_a_released_segment_is_skipped() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(0, 1, &[&[1; 20_000]]));
    commit(&mut writer, entries(1, 1, &[b"kept"]));
    writer.release(ShardId(0), LogIndex(1)).unwrap();
    assert!(!spots(&disk)[0].frame.first);
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs.keys().collect::<Vec<_>>(), [&ShardId(1)]);
}

#[test]
fn what_is_left_after_a_release_must_hold_something() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit_large(&mut writer, 1, 9);
    writer.release(ShardId(0), LogIndex(8)).unwrap();
    let left = spots(&disk);
    assert_eq!(left.len(), 1);
    tamper(&disk, &left[0].file, |bytes| bytes[DATA_START as usize] ^= 1);
    assert!(matches!(open(disk, options(1)), Err(WalRecoveryError::Hole { offset: DATA_START, .. })));
}

#[test]
fn segments_of_another_size_stay_readable() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit_large(&mut writer, 1, 3);
    while writer.prepare_next().unwrap() {}
    let larger = WalOptions { segment_bytes: 8 * 4096, ..options(2) };
    let (mut writer, recovery) = open(disk.clone(), larger).unwrap();
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 3);
    commit_large(&mut writer, 4, 12);
    let sizes: Vec<usize> = segment_names(&disk).iter().map(|name| disk.bytes(name).len()).collect();
    assert_eq!(sizes, [4 * 4096, 8 * 4096, 8 * 4096]);
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 15);
}

#[test]
fn a_spare_file_with_the_name_of_a_segment_to_come_stays_apart() {
    let disk = MemoryDisk::new(1);
    for number in [3, 9] {
        disk.put(&segment::spare_name(number), vec![7; SEGMENT_BYTES as usize]);
    }
    let (mut writer, _) = open_log(&disk);
    for index in 1..=30 {
        commit_large(&mut writer, index, 1);
        writer.release(ShardId(0), LogIndex(index - 1)).unwrap();
    }
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.last().unwrap().index, LogIndex(30));
}

#[test]
fn an_empty_current_segment_does_not_become_the_only_one() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit_large(&mut writer, 1, 5);
    let last = spots(&disk).into_iter().rfind(|spot| spot.frame.first).unwrap();
    assert_eq!((&last.file, last.offset), (&segment::segment_name(2), DATA_START));
    tamper(&disk, &last.file, |bytes| bytes[DATA_START as usize + 20] ^= 1);
    let (mut writer, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 4);
    writer.release(ShardId(0), LogIndex(4)).unwrap();
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 4, "nothing could be let go yet");
}

#[test]
fn a_group_cut_off_at_the_end_of_a_recycled_segment_is_a_torn_tail() {
    let disk = MemoryDisk::new(1);
    // Old content everywhere.
    disk.put(&segment::spare_name(1), vec![7; SEGMENT_BYTES as usize]);
    let large_frames = WalOptions { frame_bytes_max: 8192, ..options(1) };
    let (mut writer, _) = open(disk.clone(), large_frames).unwrap();
    commit_large(&mut writer, 1, 1);
    writer.append(&[batch(vec![entries(0, 2, &[&[1; 16_000]])])]).unwrap();
    let torn = spots(&disk).pop().unwrap();
    assert_eq!((&torn.file, torn.frame.ordinal), (&segment::segment_name(2), 3));
    tamper(&disk, &torn.file, |bytes| bytes[torn.offset as usize + 100] ^= 1);
    let (_, recovery) = open(disk.clone(), large_frames).unwrap();
    assert_eq!(recovery.logs[&ShardId(0)].entries.len(), 1);
    assert_eq!(recovery.report.torn_tail.unwrap().file, segment::segment_name(1));
}

#[test]
fn a_restart_voids_what_came_before_it() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(0, 1, &[b"a", b"b", b"c"]));
    commit(&mut writer, hard_state(0, 4));
    commit(&mut writer, entries(1, 1, &[b"other"]));
    commit(&mut writer, restart(0, 2));
    let log = |disk: &MemoryDisk| open_log(disk).1.logs[&ShardId(0)].clone();
    let expected = RecoveredLog { restart: Some((LogIndex(2), Term(2))), ..RecoveredLog::default() };
    assert_eq!(log(&disk), RecoveredLog { hard_state: log(&disk).hard_state, ..expected });
    assert_eq!(log(&disk).hard_state.term, Term(4));
    commit(&mut writer, entries(0, 3, &[b"C", b"D"]));
    commit(&mut writer, entries(0, 3, &[b"E"]));
    assert_eq!(log(&disk).entries.iter().map(|entry| &entry.data[..]).collect::<Vec<_>>(), [b"E"]);
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(1)].entries.len(), 1, "other shards are none of its business");
}

#[test]
fn a_restart_stays_until_its_shard_passes_it() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(5, 1, &[&[1; 3000][..]; 40]));
    commit(&mut writer, restart(5, 30));
    commit(&mut writer, entries(5, 31, &[b"kept"]));
    commit_large(&mut writer, 1, 20);
    writer.release(ShardId(0), LogIndex(20)).unwrap();
    let kept = segment_names(&disk).len();
    assert_ne!(segment_names(&disk)[0], segment::segment_name(1), "void entries hold on to nothing");
    writer.release(ShardId(5), LogIndex(29)).unwrap();
    assert_eq!(segment_names(&disk).len(), kept);
    let (mut writer, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(5)].restart, Some((LogIndex(30), Term(2))));
    assert_eq!(recovery.logs[&ShardId(5)].entries[0].index, LogIndex(31));
    writer.release(ShardId(0), LogIndex(20)).unwrap();
    writer.release(ShardId(5), LogIndex(31)).unwrap();
    assert!(segment_names(&disk).len() < kept);
    let (_, recovery) = open_log(&disk);
    assert!(!recovery.logs.contains_key(&ShardId(5)));
}

#[test]
fn who_a_log_is_of_outlives_its_segment_and_voids_only_what_came_before() {
    let disk = MemoryDisk::new(1);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(5, 1, &[&[1; 3000][..]; 40]));
    commit(&mut writer, incarnation(5, 9, true));
    commit(&mut writer, incarnation(6, 3, false));
    // The release for the previous replica does not apply to this one.
    writer.release(ShardId(5), LogIndex(40)).unwrap();
    commit(&mut writer, entries(5, 1, &[b"kept"]));
    commit_large(&mut writer, 1, 20);
    writer.release(ShardId(0), LogIndex(20)).unwrap();
    assert_ne!(segment_names(&disk)[0], segment::segment_name(1));
    let (mut writer, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(5)].entries.len(), 1);
    writer.release(ShardId(5), LogIndex(1)).unwrap();
    commit_large(&mut writer, 21, 20);
    commit(&mut writer, entries(5, 2, &[b"behind"]));
    writer.release(ShardId(0), LogIndex(40)).unwrap();
    let (_, recovery) = open_log(&disk);
    let log = &recovery.logs[&ShardId(5)];
    assert!(matches!(log.incarnation, Some(ReplicaIncarnation::Begun { replica: ReplicaId(9), .. })));
    assert_eq!(log.entries.last().map(|entry| entry.index), Some(LogIndex(2)), "it is only said again");
    assert_eq!(recovery.logs[&ShardId(6)].incarnation, Some(ReplicaIncarnation::Ended(ReplicaId(3))));
}

#[test]
fn entries_that_do_not_follow_a_restart_name_their_place() {
    for (first, kept) in [(4, 0), (5, 0), (7, 0), (6, 1), (8, 1), (5, 1)] {
        let disk = MemoryDisk::new(1);
        let (mut writer, _) = open_log(&disk);
        commit(&mut writer, restart(0, 5));
        if kept > 0 {
            commit(&mut writer, entries(0, 6, &[b"kept"]));
        }
        commit(&mut writer, entries(0, first, &[b"wrong or not"]));
        let place = spots(&disk).pop().unwrap();
        let expected = LogIndex(6 + kept);
        match open(disk, options(1)) {
            Ok(_) => assert_eq!((first, kept), (6, 1), "it replaces what follows the restart"),
            Err(error) => {
                let (file, offset, found) = (place.file, place.offset, LogIndex(first));
                assert_eq!(error, WalRecoveryError::Gap { file, offset, shard: ShardId(0), expected, found });
            }
        }
    }
}
