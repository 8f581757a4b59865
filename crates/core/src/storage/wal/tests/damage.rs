//! Damage is reported with its position, or affects only unacknowledged data. It is never returned
//! as data and never causes a panic.

use super::*;
use proptest::prelude::*;

/// A log of synced groups, with its content after each.
fn synced_log(seed: u64, groups: usize) -> (MemoryDisk, Vec<Model>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = MemoryDisk::new(seed);
    let (mut writer, _) = open(disk.clone(), options(seed)).unwrap();
    let mut models = vec![Model::default()];
    for _ in 0..groups {
        let mut model = models[models.len() - 1].clone();
        let batch = random_batch(&mut rng, &model);
        model.apply(core::slice::from_ref(&batch));
        models.push(model);
        writer.append(&[batch]).unwrap();
        writer.sync().unwrap();
        while rng.bool() && writer.prepare_next().unwrap() {}
    }
    (disk, models)
}

fn flip(disk: &MemoryDisk, file: &str, bit: u64) {
    tamper(disk, file, |bytes| bytes[(bit / 8) as usize] ^= 1 << (bit % 8));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_flipped_bit_in_a_frame_is_a_hole_unless_it_is_the_last_group(seed: u64, spot: prop::sample::Index, at: u64) {
        let (disk, models) = synced_log(seed, 12);
        let spots = spots(&disk);
        let last_group = spots.iter().rposition(|spot| spot.frame.first).unwrap();
        let chosen = spot.index(spots.len());
        let Spot { file, offset, frame } = spots[chosen].clone();
        flip(&disk, &file, offset * 8 + at % (frame.frame_bytes() * 8));
        let before = disk.all();
        match open(disk.clone(), options(1)) {
            Err(WalRecoveryError::Hole { file: hole_file, offset: hole_offset, .. }) => {
                let spans = spots[last_group].file != spots[spots.len() - 1].file;
                prop_assert!(chosen < last_group || spans, "only a group over several segments was partly durable");
                prop_assert_eq!((hole_file, hole_offset), (file, offset));
                prop_assert_eq!(disk.all(), before, "a refusal changes nothing");
            }
            Err(error) => prop_assert!(false, "{error}"),
            Ok((_, recovery)) => {
                prop_assert!(chosen >= last_group, "frame {chosen} of {} was served or cut", spots.len());
                prop_assert!(models[models.len() - 2].matches(&recovery.logs));
                let torn = recovery.report.torn_tail.unwrap();
                prop_assert_eq!((torn.file, torn.offset), (spots[last_group].file.clone(), spots[last_group].offset));
            }
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_never_yields_wrong_data(seed: u64, file: prop::sample::Index, at: u64) {
        let (disk, models) = synced_log(seed, 12);
        let names = disk.list().unwrap();
        let name: &String = file.get(&names);
        flip(&disk, name, at % (disk.bytes(name).len() as u64 * 8));
        if let Ok((_, recovery)) = open(disk.clone(), options(1)) {
            let all_or_all_but_one = &models[models.len() - 2..];
            prop_assert!(all_or_all_but_one.iter().any(|model| model.matches(&recovery.logs)));
        }
    }

    #[test]
    fn garbage_over_a_log_never_panics(seed: u64, file: prop::sample::Index, at: u64, length in 1usize..9000) {
        let (disk, models) = synced_log(seed, 12);
        let names = disk.list().unwrap();
        let name: &String = file.get(&names);
        tamper(&disk, name, |bytes| {
            let start = at as usize % bytes.len();
            let end = bytes.len().min(start + length);
            fastrand::Rng::with_seed(at).fill(&mut bytes[start..end]);
        });
        if let Ok((_, recovery)) = open(disk.clone(), options(1)) {
            prop_assert!(models.iter().any(|model| model.matches(&recovery.logs)));
        }
    }

    #[test]
    fn garbage_files_never_panic(
        files in prop::collection::btree_map(1u64..4, prop::collection::vec(any::<u8>(), 0..9000), 1..4),
        spare in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let disk = MemoryDisk::new(0);
        for (number, bytes) in files {
            disk.put(&segment::segment_name(number), bytes);
        }
        disk.put(&segment::spare_name(9), spare);
        if let Ok((_, recovery)) = open(disk, options(1)) {
            prop_assert!(recovery.logs.is_empty());
        }
    }
}

fn small_log() -> (MemoryDisk, RecoveredLogs) {
    let disk = MemoryDisk::new(5);
    let (mut writer, _) = open_log(&disk);
    for index in 1..=5 {
        commit(&mut writer, entries(0, index, &[b"a value of some length"]));
    }
    let (_, recovery) = open_log(&disk);
    (disk, recovery.logs)
}

#[test]
fn a_file_that_lost_its_last_bytes_is_grown_again() {
    let (disk, logs) = small_log();
    let file = segment::segment_name(1);
    tamper(&disk, &file, |bytes| bytes.truncate(bytes.len() - 3));
    let (_, recovery) = open_log(&disk);
    assert_eq!((recovery.logs, recovery.report.torn_tail), (logs, None));
    assert_eq!(disk.bytes(&file).len() as u64, SEGMENT_BYTES);
}

#[test]
fn three_bytes_cut_from_the_last_record_cost_that_group_only() {
    let (disk, mut logs) = small_log();
    let last = spots(&disk).pop().unwrap();
    let end = last.offset as usize + segment::FRAME_HEADER_BYTES + last.frame.payload_bytes as usize;
    tamper(&disk, &last.file, |bytes| bytes.truncate(end - 3));
    let (mut writer, recovery) = open_log(&disk);
    logs.get_mut(&ShardId(0)).unwrap().entries.pop();
    assert_eq!(recovery.logs, logs);
    let torn = TornTail { file: last.file, offset: last.offset, bytes: end as u64 - 3 - last.offset };
    assert_eq!(recovery.report.torn_tail, Some(torn));

    commit(&mut writer, entries(0, 5, &[b"again"]));
    let (_, recovery) = open_log(&disk);
    assert_eq!(recovery.logs[&ShardId(0)].entries[4].data, "again");
    assert_eq!((recovery.report.torn_tail, recovery.report.frames), (None, 5));
}

#[test]
fn a_zeroed_sector_inside_the_log_is_a_hole() {
    let (disk, _) = small_log();
    let spot = spots(&disk)[2].clone();
    tamper(&disk, &spot.file, |bytes| {
        bytes[spot.offset as usize..][..spot.frame.frame_bytes() as usize].fill(0)
    });
    let error = open(disk, options(1)).err().unwrap();
    let expected =
        WalRecoveryError::Hole { file: spot.file, offset: spot.offset, reason: "a frame is missing" };
    assert_eq!(error, expected);
    assert_eq!(
        alloc::string::ToString::to_string(&error),
        alloc::format!(
            "wal-0000000000000001.log is damaged at byte offset {}: a frame is missing; what was there was durable once",
            spot.offset
        )
    );
}

#[test]
fn a_value_that_copies_the_log_is_not_taken_for_it() {
    for shift in 0..segment::FRAME_ALIGN as usize {
        let (disk, logs) = small_log();
        let copy = disk.bytes(&segment::segment_name(1));
        let (mut writer, _) = open_log(&disk);
        commit(&mut writer, entries(0, 6, &[&copy[4096 - shift..8192]]));
        // If the frame inside the value were accepted, it would be at an impossible position after
        // the damaged one.
        let last = spots(&disk).pop().unwrap();
        assert_eq!(last.frame.ordinal, 6);
        flip(&disk, &last.file, last.offset * 8 + 200);
        let (_, recovery) = open_log(&disk);
        assert_eq!(recovery.logs, logs);
        assert_eq!(recovery.report.torn_tail.unwrap().offset, last.offset);
    }
}

#[test]
fn headers_are_told_apart() {
    let disk = MemoryDisk::new(5);
    let (mut writer, _) = open_log(&disk);
    for index in 1..=4 {
        commit(&mut writer, entries(0, index, &[&[7; 6000]]));
    }
    let (first, second) = (segment::segment_name(1), segment::segment_name(2));
    assert!(disk.list().unwrap().contains(&second));
    let refused = |file: &str, change: fn(&mut Vec<u8>)| {
        let before = disk.bytes(file);
        tamper(&disk, file, change);
        let error = open(disk.clone(), options(1)).err();
        disk.put(file, before);
        error.unwrap()
    };
    for file in [&first, &second] {
        let damaged = refused(file, |bytes| bytes[20] ^= 1);
        assert!(matches!(damaged, WalRecoveryError::Header { file: named, .. } if named == *file));
        let version = refused(file, |bytes| {
            bytes[8] = 9;
            let crc = crc32c::crc32c(&bytes[..40]);
            bytes[40..44].copy_from_slice(&crc.to_le_bytes());
        });
        assert_eq!(version, WalRecoveryError::Version { file: file.clone(), version: 9 });
    }
    let other = disk.bytes(&first);
    disk.put(&segment::segment_name(3), other);
    assert!(matches!(open(disk.clone(), options(1)), Err(WalRecoveryError::Header { .. })));
    disk.remove(&second).unwrap();
    assert_eq!(open(disk, options(1)).err(), Some(WalRecoveryError::Missing { file: second }));
}

#[test]
fn a_newest_segment_without_header_and_frames_was_never_finished() {
    let (disk, logs) = small_log();
    for bytes in [vec![], vec![0; 3], vec![0; SEGMENT_BYTES as usize], vec![9; 100]] {
        disk.put(&segment::segment_name(2), bytes);
        let (_, recovery) = open_log(&disk);
        assert_eq!(recovery.logs, logs);
        assert_eq!(recovery.report.discarded, Some(segment::segment_name(2)));
        assert_eq!(disk.list().unwrap(), [segment::segment_name(1)]);
    }
}

#[test]
fn intact_frames_with_wrong_records_name_their_place() {
    let disk = MemoryDisk::new(5);
    let (mut writer, _) = open_log(&disk);
    commit(&mut writer, entries(3, 1, &[b"one"]));
    commit(&mut writer, entries(3, 3, &[b"three"]));
    let place = spots(&disk)[1].offset;
    let gap = WalRecoveryError::Gap {
        file: segment::segment_name(1),
        offset: place,
        shard: ShardId(3),
        expected: LogIndex(2),
        found: LogIndex(3),
    };
    assert_eq!(open(disk.clone(), options(1)).err(), Some(gap));

    // A record with an unknown tag and correct checksums.
    tamper(&disk, &segment::segment_name(1), |bytes| {
        let segment = SegmentHeader::decode(bytes).unwrap();
        let start = place as usize;
        let body = start + segment::FRAME_HEADER_BYTES;
        let mut frame = segment.decode_frame(place, &bytes[start..body]).unwrap();
        bytes[body] = 99;
        frame.payload_crc = segment.payload_crc(&bytes[body..body + frame.padded_bytes()]);
        segment.encode_frame(place, &frame, &mut bytes[start..body]);
    });
    let source = DecodeError::UnknownTag("log record");
    let record = WalRecoveryError::Record { file: segment::segment_name(1), offset: place, source };
    assert_eq!(open(disk, options(1)).err(), Some(record));
}

#[test]
fn a_frame_that_was_durable_before_it_was_written_is_refused() {
    let (disk, _) = small_log();
    let Spot { file, offset, mut frame } = spots(&disk).pop().unwrap();
    frame.durable = frame.ordinal;
    tamper(&disk, &file, |bytes| {
        let segment = SegmentHeader::decode(bytes).unwrap();
        segment.encode_frame(offset, &frame, &mut bytes[offset as usize..]);
    });
    let source = DecodeError::Invalid("durable frames");
    assert_eq!(open(disk, options(1)).err(), Some(WalRecoveryError::Record { file, offset, source }));
}
