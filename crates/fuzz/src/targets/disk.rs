//! Files in a data directory, and backups. Checksums are corrected, so that the fuzzer gets past
//! them.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tidelock_core::starts::{KnownStart, ProcessStart};
use tidelock_core::storage::backup::{BackupReader, BackupWriter, Header, Part, Summary};
use tidelock_core::storage::control_file::{self, Identity, KnownHost};
use tidelock_core::storage::snapshot::{SnapshotId, SnapshotTask};
use tidelock_core::storage::snapshot_files::SnapshotFiles;
use tidelock_core::storage::wal::{self, WalOptions};
use tidelock_core::storage::{HardState, LogEntry, ReplicaIncarnation, WalBatch, WalRecord, start_counter};
use tidelock_core::types::{LogIndex, NodeId, ReplicaId, ShardId, Term, WalSequence};
use tidelock_core::version::ClusterVersion;
use tidelock_server::audit_log;
use uuid::Uuid;

use super::{Target, state};
use crate::checksums;
use crate::memory_disk::MemoryDisk;

pub const TARGETS: &[Target] = &[
    Target { name: "wal-records", run: wal_records, seeds: wal_record_seeds },
    Target { name: "wal-segments", run: wal_segments, seeds: wal_segment_seeds },
    Target { name: "snapshot-files", run: snapshot_files, seeds: snapshot_file_seeds },
    Target { name: "backups", run: backups, seeds: backup_seeds },
    Target { name: "control-file", run: control_files, seeds: control_file_seeds },
    Target { name: "start-counter", run: start_counters, seeds: start_counter_seeds },
    Target { name: "audit-log", run: audit_logs, seeds: audit_log_seeds },
];

/// Records are the same after they were encoded.
fn wal_records(input: &[u8]) {
    let Ok(records) = wal::decode_records(&Bytes::copy_from_slice(input)) else { return };
    assert_eq!(wal::decode_records(&Bytes::from(payload(&records))), Ok(records));
}

fn payload(records: &[WalRecord]) -> Vec<u8> {
    let mut out = Vec::new();
    records.iter().for_each(|record| wal::encode_record(record, &mut out));
    out
}

fn sample_records() -> Vec<WalRecord> {
    let entry = |index, data: &'static [u8]| LogEntry {
        index: LogIndex(index),
        term: Term(3),
        data: Bytes::from_static(data),
    };
    let shard = ShardId(5);
    let state = HardState { term: Term(3), vote: Some(ReplicaId(2)), commit: LogIndex(2) };
    let founding = vec![(ReplicaId(2), NodeId(3))];
    let incarnation = |incarnation| WalRecord::ReplicaIncarnation { shard, incarnation, is_restated: false };
    vec![
        incarnation(ReplicaIncarnation::Begun { replica: ReplicaId(7), founding }),
        WalRecord::Entries { shard, entries: vec![entry(1, b""), entry(2, b"data"), entry(3, b"\0\xff")] },
        WalRecord::HardState { shard, state },
        WalRecord::Entries { shard, entries: vec![entry(3, b"again")] },
        WalRecord::Restart { shard: ShardId(6), index: LogIndex(9), term: Term(2) },
        incarnation(ReplicaIncarnation::Ended(ReplicaId(7))),
    ]
}

fn wal_record_seeds() -> Vec<Vec<u8>> {
    let records = sample_records();
    let mut seeds: Vec<Vec<u8>> =
        records.iter().map(|record| payload(std::slice::from_ref(record))).collect();
    seeds.push(payload(&records));
    seeds
}

const SEGMENT_BYTES: usize = 3 * 4096;

fn wal_options() -> WalOptions {
    WalOptions { segment_bytes: SEGMENT_BYTES as u64, frame_bytes_max: 1024, ..WalOptions::new(3) }
}

/// The input is a segment without the unused part of its first page: its header of 44 bytes, then
/// frames. The log recovers or is refused. What is recovered is recovered again, without a torn
/// end, and can be written to.
fn wal_segments(input: &[u8]) {
    let (head, frames) = input.split_at(input.len().min(44));
    let mut segment = vec![0; SEGMENT_BYTES];
    segment[..head.len()].copy_from_slice(head);
    let length = frames.len().min(SEGMENT_BYTES - 4096);
    segment[4096..4096 + length].copy_from_slice(&frames[..length]);
    checksums::segment(&mut segment);
    let disk = MemoryDisk::default();
    disk.put("wal-0000000000000001.log", segment);
    let Ok((_, recovery)) = wal::open(disk.clone(), wal_options()) else { return };
    let (mut writer, again) = wal::open(disk.clone(), wal_options()).expect("it recovers again");
    assert_eq!(again.logs, recovery.logs);
    assert_eq!(again.report.torn_tail, None);
    let state = HardState { term: Term(9), vote: None, commit: LogIndex(0) };
    let record = WalRecord::HardState { shard: ShardId(1 << 40), state };
    let batch = WalBatch { sequence: WalSequence(1), records: vec![record], released: vec![] };
    if writer.append(&[batch]).and_then(|()| writer.sync()).is_ok() {
        drop(writer);
        let written = wal::open(disk, wal_options()).expect("what was written is recovered").1;
        assert_eq!(written.logs.get(&ShardId(1 << 40)).map(|log| log.hard_state), Some(state));
    }
}

fn wal_segment_seeds() -> Vec<Vec<u8>> {
    let disk = MemoryDisk::default();
    let (mut writer, _) = wal::open(disk.clone(), wal_options()).expect("an empty log");
    let mut seeds = Vec::new();
    for (sequence, record) in (1..).zip(sample_records()) {
        let batch = WalBatch { sequence: WalSequence(sequence), records: vec![record], released: vec![] };
        writer.append(&[batch]).and_then(|()| writer.sync()).expect("there is room");
        let segment = disk.bytes("wal-0000000000000001.log").expect("the segment");
        let end = segment.iter().rposition(|byte| *byte != 0).map_or(44, |last| (last + 1).max(4096));
        seeds.push([&segment[..44], &segment[4096..end]].concat());
    }
    seeds
}

const SNAPSHOT: SnapshotId = SnapshotId { shard: ShardId(1), index: LogIndex(41), term: Term(3) };
const SNAPSHOT_NAME: &str = "snapshot-00000000000000000001-00000000000000000041-00000000000000000003";

/// A snapshot file is loaded or refused. The state of one that is loaded is the same after it was
/// written to another file.
fn snapshot_files(input: &[u8]) {
    let mut file = input.to_vec();
    checksums::snapshot(&mut file);
    let disk = MemoryDisk::default();
    disk.put(SNAPSHOT_NAME, file);
    let files = SnapshotFiles::open(disk).expect("the directory can be listed");
    let Ok(mut loaded) = files.load(SNAPSHOT) else { return };
    loaded.machine.begin_snapshot(&loaded.membership);
    let blocks: Vec<Vec<u8>> = std::iter::from_fn(|| loaded.machine.next_block()).collect();
    let disk = write_snapshot(&blocks);
    let again = SnapshotFiles::open(disk).expect("the directory can be listed").load(SNAPSHOT);
    assert_eq!(again.expect("it was written").machine.digest(), loaded.machine.digest());
}

fn write_snapshot(blocks: &[Vec<u8>]) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let mut files = SnapshotFiles::open(disk.clone()).expect("the directory can be listed");
    for block in blocks {
        files.run(SnapshotTask::Write { id: SNAPSHOT, block: block.clone() });
    }
    files.run(SnapshotTask::Finish { id: SNAPSHOT, keeps_older: false });
    disk
}

fn snapshot_file_seeds() -> Vec<Vec<u8>> {
    // The state of the prime shard has another number.
    let of_data = &state::sample_blocks()[..2];
    of_data.iter().filter_map(|blocks| write_snapshot(blocks).bytes(SNAPSHOT_NAME)).collect()
}

/// A backup is the same in pieces, and what is read of it can be written.
fn backups(input: &[u8]) {
    let mut file = input.to_vec();
    checksums::backup(&mut file);
    let whole = parts(&file, file.len().max(1));
    assert_eq!(parts(&file, 13), whole);
    let (parts, Ok(summary)) = whole else { return };
    let again = written(&parts);
    let (_, found) = self::parts(&again, again.len());
    let found = found.expect("what was written is read");
    assert_eq!(found.header, summary.header);
    assert_eq!(found.keys(), summary.keys());
    assert_eq!(found.revision_max(), summary.revision_max());
}

fn parts(file: &[u8], piece_bytes: usize) -> (Vec<Part>, Result<Summary, String>) {
    let (mut reader, mut parts) = (BackupReader::default(), Vec::new());
    for piece in file.chunks(piece_bytes) {
        reader.push(piece);
        loop {
            match reader.next_part() {
                Ok(Some(part)) => parts.push(part),
                Ok(None) => break,
                Err(error) => return (parts, Err(error.to_string())),
            }
        }
    }
    (parts, reader.finish().map_err(|error| error.to_string()))
}

fn written(parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = None;
    for part in parts {
        match (part, &mut writer) {
            (Part::Header(header), _) => writer = Some(BackupWriter::begin(*header, &mut out)),
            (Part::Shard(id), Some(writer)) => writer.begin_shard(*id, &mut out),
            (Part::State(block) | Part::Keys(block) | Part::Config(block), Some(writer)) => {
                writer.block(block, &mut out).expect("what was read can be written");
            }
            (Part::ShardEnd(_), Some(writer)) => writer.end_shard(&mut out),
            (Part::End, _) => writer.take().expect("a header comes first").finish(&mut out),
            (_, None) => panic!("a header comes first"),
        }
    }
    out
}

fn backup_seeds() -> Vec<Vec<u8>> {
    let header = |shards| Header {
        cluster: Uuid::from_u128(7),
        backup: Uuid::from_u128(8),
        node: NodeId(1),
        created_unix_ms: 1_795_219_200_000,
        is_stale: false,
        shards,
        about_bytes: 100,
    };
    let samples = state::sample_blocks();
    let id = |shard| SnapshotId { shard: ShardId(shard), ..SNAPSHOT };
    let empty = SnapshotId { shard: ShardId(3), index: LogIndex(0), term: Term(0) };
    let backup = |shards: &[(SnapshotId, &[Vec<u8>])]| {
        let mut out = Vec::new();
        let mut writer = BackupWriter::begin(header(shards.len() as u64), &mut out);
        for (id, blocks) in shards {
            writer.begin_shard(*id, &mut out);
            blocks.iter().for_each(|block| writer.block(block, &mut out).expect("a block of a snapshot"));
            writer.end_shard(&mut out);
        }
        writer.finish(&mut out);
        out
    };
    vec![
        backup(&[(id(0), &samples[2]), (id(1), &samples[0]), (id(2), &samples[1]), (empty, &[])]),
        backup(&[(id(1), &samples[0])]),
        backup(&[]),
    ]
}

/// The body of a control file, of the format that its first byte says. A node that is loaded is the
/// same after it was stored.
fn control_files(input: &[u8]) {
    let Some((format, body)) = input.split_first() else { return };
    let mut file = b"TIDECTRL".to_vec();
    file.extend_from_slice(&u32::from(*format).to_le_bytes());
    file.extend_from_slice(&(body.len() as u32).to_le_bytes());
    file.extend_from_slice(&crc32c::crc32c_append(crc32c::crc32c(&file), body).to_le_bytes());
    file.extend_from_slice(body);
    let disk = MemoryDisk::default();
    disk.put(control_file::NAME, file);
    let Ok(Some(identity)) = control_file::load(&disk) else { return };
    control_file::store(&disk, &identity).expect("there is room");
    assert_eq!(control_file::load(&disk), Ok(Some(identity)));
}

fn control_file_seeds() -> Vec<Vec<u8>> {
    let uuid = Uuid::from_u128;
    let host = KnownHost { uuid: uuid(9), peer_address: "10.0.0.1:9001".into() };
    let start = ProcessStart { number: 6, instance: uuid(5) };
    let founded = |version| Identity {
        cluster_id: uuid(1),
        node: NodeId(2),
        prime_replica: ReplicaId(7),
        cluster_name: "blue".into(),
        founders: vec!["10.0.0.1:9001".into(), "[::1]:9001".into()],
        data_shards: 4,
        replicas: (version >= ClusterVersion::WITH_DEFAULTS).then_some(3),
        founding_version: version,
        version,
        boots: 3,
        has_log: true,
        hosts: [(NodeId(1), host.clone())].into(),
        starts: [(NodeId(1), KnownStart { host: uuid(9), start })].into(),
        ..Identity::joining(uuid(2))
    };
    let body = |identity: &Identity| {
        let disk = MemoryDisk::default();
        control_file::store(&disk, identity).expect("there is room");
        let file = disk.bytes(control_file::NAME).expect("it was stored");
        [&file[8..9], &file[20..]].concat()
    };
    [Identity::joining(uuid(2)), founded(ClusterVersion::FIRST), founded(ClusterVersion::NEWEST)]
        .iter()
        .map(body)
        .collect()
}

/// Two slots of 24 bytes. A count that is returned rises, or the file is refused.
fn start_counters(input: &[u8]) {
    let mut file = vec![0; 1024];
    for (slot, bytes) in [0, 512].into_iter().zip(input.chunks(24)) {
        file[slot..slot + bytes.len()].copy_from_slice(bytes);
        checksums::header(&mut file[slot..slot + 24], 20);
        // A slot that was never written is zero, with its checksum.
        if bytes.iter().all(|byte| *byte == 0) {
            file[slot..slot + 24].fill(0);
        }
    }
    let disk = MemoryDisk::default();
    disk.put(start_counter::NAME, file);
    let Ok(first) = start_counter::count(&disk, 3) else { return };
    assert!(first > 3);
    if let Ok(second) = start_counter::count(&disk, 0) {
        assert_eq!(second, first + 1);
    }
}

fn start_counter_seeds() -> Vec<Vec<u8>> {
    let disk = MemoryDisk::default();
    let mut seeds = Vec::new();
    for _ in 0..3 {
        start_counter::count(&disk, 0).expect("there is room");
        let file = disk.bytes(start_counter::NAME).expect("it was written");
        seeds.push([&file[..24], &file[512..536]].concat());
    }
    seeds
}

/// The input as a log; and its lines as the details of a log with a correct chain, which holds
/// until a line is changed.
fn audit_logs(input: &[u8]) {
    let _ = audit_log::verify(input);
    let (mut log, mut previous) = (Vec::new(), "0".repeat(64));
    let mut lines = 0;
    for detail in input.split(|byte| *byte == b'\n') {
        let line = serde_json::json!({ "previous": previous, "detail": String::from_utf8_lossy(detail) });
        let line = line.to_string();
        if line.len() >= audit_log::LINE_BYTES_MAX {
            break;
        }
        previous = Sha256::digest(line.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        log.extend_from_slice(line.as_bytes());
        log.push(b'\n');
        lines += 1;
    }
    let verified = audit_log::verify(&log[..]).expect("the chain is correct");
    assert_eq!((verified.lines, verified.last), (lines, previous));
    if lines > 1 {
        let place = log.iter().position(|byte| *byte == b'd').expect("every line has a detail");
        log[place] = b'e';
        assert!(audit_log::verify(&log[..]).is_err(), "a changed line breaks the chain");
    }
}

fn audit_log_seeds() -> Vec<Vec<u8>> {
    let zeros = "0".repeat(64);
    let line = format!("{{\"previous\":\"{zeros}\",\"unix_ms\":7,\"event\":\"forbidden\"}}\n");
    vec![b"one\ntwo\n\xff\"".to_vec(), line.into_bytes(), vec![b'\n']]
}
