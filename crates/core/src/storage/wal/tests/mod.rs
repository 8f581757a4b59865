//! Tests of the log as a whole, on a disk that crashes. This module has what they share: a model of
//! the log's content, random batches, and a list of the frames on disk.

mod crash;
mod damage;
mod segments;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

use super::reader::{FrameSlot, SegmentReader};
use super::segment::{DATA_START, FrameHeader, SegmentHeader, parse_segment_name};
use super::*;
use crate::storage::memory_disk::MemoryDisk;
use crate::storage::{HardState, LogEntry, LogHeld, RecoveredLog, ReplicaIncarnation, WalBatch, WalRecord};
use crate::types::{ReplicaId, Term, WalSequence};

pub const SEGMENT_BYTES: u64 = 4 * 4096;

/// The size of frames depends on the seed too.
pub fn options(seed: u64) -> WalOptions {
    WalOptions { segment_bytes: SEGMENT_BYTES, frame_bytes_max: 1024 << (seed % 5), ..WalOptions::new(seed) }
}

/// Opens the log with frames as large as a segment allows.
pub fn open_log(disk: &MemoryDisk) -> (Writer<MemoryDisk>, Recovery) {
    let seed = fastrand::Rng::with_seed(disk.all().len() as u64).u64(..);
    open(disk.clone(), WalOptions { frame_bytes_max: SEGMENT_BYTES as usize, ..options(seed) }).unwrap()
}

pub fn entries(shard: u64, first: u64, data: &[&[u8]]) -> WalRecord {
    let entry = |(index, data): (u64, &&[u8])| LogEntry {
        index: LogIndex(index),
        term: Term(1),
        data: Bytes::copy_from_slice(data),
    };
    WalRecord::Entries { shard: ShardId(shard), entries: (first..).zip(data).map(entry).collect() }
}

pub fn hard_state(shard: u64, term: u64) -> WalRecord {
    let state = HardState { term: Term(term), vote: Some(ReplicaId(term % 3 + 1)), commit: LogIndex(term) };
    WalRecord::HardState { shard: ShardId(shard), state }
}

pub fn restart(shard: u64, index: u64) -> WalRecord {
    WalRecord::Restart { shard: ShardId(shard), index: LogIndex(index), term: Term(index % 7) }
}

pub fn batch(records: Vec<WalRecord>) -> WalBatch {
    WalBatch { sequence: WalSequence(1), records, released: vec![] }
}

pub fn incarnation(shard: u64, replica: u64, begins: bool) -> WalRecord {
    let replica = ReplicaId(replica);
    let founding = vec![(ReplicaId(1), crate::types::NodeId(1))];
    let incarnation = if begins {
        ReplicaIncarnation::Begun { replica, founding }
    } else {
        ReplicaIncarnation::Ended(replica)
    };
    WalRecord::ReplicaIncarnation { shard: ShardId(shard), incarnation, is_restated: false }
}

/// Appends one record as one group and syncs.
pub fn commit(writer: &mut Writer<MemoryDisk>, record: WalRecord) {
    writer.append(&[batch(vec![record])]).unwrap();
    writer.sync().unwrap();
}

/// The expected content of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub logs: RecoveredLogs,
    pub released: BTreeMap<ShardId, LogIndex>,
}

impl Model {
    pub fn apply(&mut self, batches: &[WalBatch]) {
        for record in batches.iter().flat_map(|batch| batch.records.clone()) {
            match record {
                WalRecord::Entries { shard, entries } => {
                    let log = self.logs.entry(shard).or_default();
                    let start = log.restart.map_or(0, |(index, _)| index.0);
                    log.entries.truncate((entries[0].index.0 - 1 - start) as usize);
                    log.entries.extend(entries);
                }
                WalRecord::HardState { shard, state } => {
                    self.logs.entry(shard).or_default().hard_state = state;
                }
                WalRecord::Restart { shard, index, term } => {
                    let log = self.logs.entry(shard).or_default();
                    log.restart = Some((index, term));
                    log.entries.clear();
                }
                WalRecord::ReplicaIncarnation { shard, incarnation, .. } => {
                    self.logs.insert(
                        shard,
                        RecoveredLog { incarnation: Some(incarnation), ..RecoveredLog::default() },
                    );
                    self.released.remove(&shard);
                }
            }
        }
    }

    /// Index after which the shard's log last restarted.
    pub fn restart(&self, shard: ShardId) -> u64 {
        self.logs.get(&shard).and_then(|log| log.restart).map_or(0, |(index, _)| index.0)
    }

    /// The last index in the shard's log or its snapshot.
    pub fn last(&self, shard: ShardId) -> u64 {
        self.restart(shard) + self.logs.get(&shard).map_or(0, |log| log.entries.len() as u64)
    }

    pub fn released(&self, shard: ShardId) -> u64 {
        self.released.get(&shard).map_or(0, |index| index.0)
    }

    /// Whether `logs` equals this model, except for released entries and restarts.
    pub fn matches(&self, logs: &RecoveredLogs) -> bool {
        let empty = RecoveredLog::default();
        let shards = self.logs.keys().chain(logs.keys());
        shards.into_iter().all(|shard| {
            let (model, log) = (self.logs.get(shard).unwrap_or(&empty), logs.get(shard).unwrap_or(&empty));
            let missing = model.entries.len().checked_sub(log.entries.len());
            let (restart, released) = (self.restart(*shard), self.released(*shard));
            let restarts = log.restart == model.restart || (log.restart.is_none() && restart <= released);
            model.hard_state == log.hard_state
                && model.incarnation == log.incarnation
                && restarts
                && missing.is_some_and(|missing| {
                    (missing == 0 || restart + missing as u64 <= released)
                        && model.entries[missing..] == log.entries
                })
        })
    }
}

/// A batch that continues the model: mostly small, sometimes larger than a segment.
pub fn random_batch(rng: &mut fastrand::Rng, model: &Model) -> WalBatch {
    let mut model = model.clone();
    let mut records = vec![];
    for _ in 0..rng.usize(1..4) {
        let shard = ShardId(rng.u64(0..3));
        // A received snapshot contains more than was released.
        let settled = model.released(shard).max(model.restart(shard));
        let record = match rng.u8(..) {
            0..56 => hard_state(shard.0, rng.u64(1..1000)),
            // Entries of an ended replica are void, and those of the next one begin at index 1.
            56..60 => incarnation(shard.0, rng.u64(1..1000), rng.bool()),
            60..70 => restart(shard.0, rng.u64(settled + 1..=model.last(shard) + 20)),
            _ => {
                let end = model.last(shard) + 1;
                let first = if rng.u8(..) < 40 { rng.u64(settled + 1..=end) } else { end };
                let data: Vec<Vec<u8>> = (0..rng.usize(1..4)).map(|_| random_data(rng)).collect();
                let data: Vec<&[u8]> = data.iter().map(|data| &data[..]).collect();
                entries(shard.0, first, &data)
            }
        };
        let batch = batch(vec![record]);
        model.apply(core::slice::from_ref(&batch));
        records.extend(batch.records);
    }
    batch(records)
}

fn random_data(rng: &mut fastrand::Rng) -> Vec<u8> {
    let bytes_max = match rng.u8(..) {
        0..200 => 60,
        200..240 => 3_000,
        240..252 => 14_000,
        252.. => 40_000,
    };
    let bytes = rng.usize(0..bytes_max);
    // Zeros and repeated values could be mistaken for unwritten or old bytes.
    let fill = [0, 0x54, rng.u8(..)][rng.usize(0..3)];
    let mut data = vec![fill; bytes];
    if rng.bool() {
        rng.fill(&mut data);
    }
    data
}

/// The position of a frame on disk.
#[derive(Clone, Debug)]
pub struct Spot {
    pub file: String,
    pub offset: u64,
    pub frame: FrameHeader,
}

/// All frames, in order.
pub fn spots(disk: &MemoryDisk) -> Vec<Spot> {
    let mut spots = vec![];
    for file in disk.list().unwrap().into_iter().filter(|name| parse_segment_name(name).is_some()) {
        let header = SegmentHeader::decode(&disk.bytes(&file)).unwrap();
        let handle = disk.open(&file).unwrap();
        let mut reader = SegmentReader::new(&handle, header);
        let mut offset = DATA_START;
        while let FrameSlot::Frame(frame, _) = reader.slot(offset).unwrap() {
            spots.push(Spot { file: file.clone(), offset, frame });
            offset += frame.frame_bytes();
        }
    }
    spots
}

/// Changes the bytes of a file without the log's knowledge.
pub fn tamper(disk: &MemoryDisk, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.bytes(file);
    change(&mut bytes);
    disk.put(file, bytes);
}
