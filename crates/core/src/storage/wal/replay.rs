//! Turns intact frames, in their order, back into logs.
//!
//! Owns the order that frames, groups and entries must have, and what of it is still unproven on disk. It decides
//! neither where the log ends nor what damage means: `recovery` does.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

use super::super::{LogEntry, RecoveredLog, RecoveredLogs, WalRecord};
use super::RecoveryError;
use super::reader::{SegmentReader, Slot};
use super::record::Records;
use super::retention::Retention;
use super::segment::{DATA_START, FrameHeader, SegmentHeader, segment_name};
use crate::codec::DecodeError;
use crate::deliberate::Faults;
use crate::storage::disk::{Disk, DiskError};
use crate::types::{LogIndex, ShardId};

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the segment.
    pub number: u64,
    pub offset: u64,
}

/// What stands behind the last frame that continues the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Zero bytes.
    Blank,
    /// Something else, and what is wrong with it.
    Damaged(&'static str),
}

/// A group that is not complete yet.
struct Group {
    start: Place,
    ordinal: u64,
    payload: Vec<u8>,
    /// Whether it began in a segment that is gone: then nobody needs it.
    headless: bool,
}

/// Everything replayed so far.
pub(super) struct Replay {
    pub logs: RecoveredLogs,
    pub retention: Retention,
    pub frames: u64,
    pub bytes: u64,
    /// Ordinal of the next frame; unknown until the first one, if segments were released.
    pub expected: Option<u64>,
    group: Option<Group>,
    /// Frames of the last segment of which no later frame says that they were durable.
    unproven: VecDeque<(u64, Place)>,
    faults: Faults,
}

impl Replay {
    /// Starts at segment `first_number`.
    pub fn new(first_number: u64, faults: Faults) -> Replay {
        Replay {
            logs: RecoveredLogs::new(),
            retention: Retention::default(),
            frames: 0,
            bytes: 0,
            expected: (first_number == 1).then_some(1),
            group: None,
            unproven: VecDeque::new(),
            faults,
        }
    }

    /// Replays the frames of a segment as far as they continue the log, and says where that ends and with what.
    pub fn segment<D: Disk>(
        &mut self,
        disk: &D,
        header: SegmentHeader,
    ) -> Result<(Place, Ending), RecoveryError> {
        self.retention.begin_segment(header);
        // The writer syncs a segment before it goes on to the next.
        self.unproven.clear();
        let file = disk.open(&segment_name(header.number))?;
        let mut reader = SegmentReader::new(&file, header).with(self.faults);
        let mut place = Place { number: header.number, offset: DATA_START };
        loop {
            match reader.slot(place.offset)? {
                Slot::Frame(frame, payload)
                    if self.expected.is_none_or(|ordinal| ordinal == frame.ordinal) =>
                {
                    self.frame(place, &frame, payload)?;
                    place.offset += frame.frame_bytes();
                }
                Slot::Frame(..) => {
                    return Ok((place, Ending::Damaged("a frame is missing before the one here")));
                }
                Slot::Damaged(fault) => return Ok((place, Ending::Damaged(fault))),
                Slot::Blank => return Ok((place, Ending::Blank)),
            }
        }
    }

    /// Whether the log, which has such an ending in the segment before, goes on in this one: with an intact frame,
    /// or with one that is damaged and belongs nowhere else.
    pub fn continues_in<D: Disk>(
        &self,
        disk: &D,
        header: SegmentHeader,
        ending: Ending,
    ) -> Result<bool, DiskError> {
        let Some(expected) = self.expected else { return Ok(false) };
        let file = disk.open(&segment_name(header.number))?;
        let mut reader = SegmentReader::new(&file, header);
        match reader.slot(DATA_START)? {
            Slot::Frame(frame, _) => return Ok(frame.ordinal == expected),
            Slot::Blank => return Ok(false),
            Slot::Damaged(_) => {}
        }
        let first = reader.find_header(DATA_START)?;
        let is_other = first.is_some_and(|(at, frame)| at == DATA_START && frame.ordinal != expected);
        Ok(ending == Ending::Blank && !is_other)
    }

    /// Where the group begins that is incomplete, and the ordinal of its first frame.
    pub fn incomplete_group(&self) -> Option<(Place, u64)> {
        self.group.as_ref().map(|group| (group.start, group.ordinal))
    }

    /// The first frame of the last segment that may be in memory of the operating system only.
    pub fn unproven_from(&self) -> Option<Place> {
        self.unproven.front().map(|&(_, place)| place)
    }

    fn frame(&mut self, place: Place, frame: &FrameHeader, payload: &[u8]) -> Result<(), RecoveryError> {
        while self.unproven.front().is_some_and(|&(ordinal, _)| ordinal <= frame.durable) {
            self.unproven.pop_front();
        }
        self.unproven.push_back((frame.ordinal, place));

        let headless = self.expected.is_none() && !frame.first;
        if frame.first != self.group.is_none() && !headless {
            return Err(record_error(place, DecodeError::Invalid("order of frames")));
        }
        let group = self.group.get_or_insert_with(|| Group {
            start: place,
            ordinal: frame.ordinal,
            payload: Vec::new(),
            headless,
        });
        if !group.headless {
            group.payload.extend_from_slice(payload);
        }
        self.frames += 1;
        self.bytes += frame.frame_bytes();
        self.expected = Some(frame.ordinal.saturating_add(1));
        match self.group.take_if(|_| frame.last) {
            Some(group) => self.complete(group),
            None => Ok(()),
        }
    }

    fn complete(&mut self, group: Group) -> Result<(), RecoveryError> {
        let payload = Bytes::from(group.payload);
        for record in Records::new(&payload) {
            let record = record.map_err(|source| record_error(group.start, source))?;
            self.retention.note(&record, group.start.number);
            match record {
                WalRecord::Entries { shard, entries } => self.entries(group.start, shard, entries)?,
                WalRecord::HardState { shard, state } => {
                    self.logs.entry(shard).or_default().hard_state = state;
                }
                WalRecord::Restart { shard, index, term } => {
                    let log = self.logs.entry(shard).or_default();
                    log.restart = Some((index, term));
                    log.entries.clear();
                }
                WalRecord::Tenure { shard, tenure, is_restated } => {
                    let log = self.logs.entry(shard).or_default();
                    if !is_restated {
                        *log = RecoveredLog::default();
                    }
                    log.tenure = Some(tenure);
                }
            }
        }
        Ok(())
    }

    /// Replaces the shard's log from the index of the first entry on.
    fn entries(&mut self, place: Place, shard: ShardId, entries: Vec<LogEntry>) -> Result<(), RecoveryError> {
        let log = self.logs.entry(shard).or_default();
        let Some(found) = entries.first().map(|entry| entry.index) else { return Ok(()) };
        let restarted_at = log.restart.map(|(index, _)| LogIndex(index.0 + 1));
        let Some(start) = restarted_at.or(log.entries.first().map(|entry| entry.index)) else {
            log.entries = entries;
            return Ok(());
        };
        let end = LogIndex(start.0 + log.entries.len() as u64);
        if found > end || restarted_at.is_some_and(|start| found < start) {
            let file = segment_name(place.number);
            return Err(RecoveryError::Gap { file, offset: place.offset, shard, expected: end, found });
        }
        log.entries.truncate(found.0.saturating_sub(start.0) as usize);
        log.entries.extend(entries);
        Ok(())
    }
}

fn record_error(place: Place, source: DecodeError) -> RecoveryError {
    RecoveryError::Record { file: segment_name(place.number), offset: place.offset, source }
}
