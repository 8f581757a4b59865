//! Replay: rebuilds the logs from intact frames, in order.
//!
//! Owns the required order of frames, groups and entries, and tracks which frames are not proven
//! durable. `recovery` decides where the log ends and what damage means.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

use super::super::{LogEntry, RecoveredLog, RecoveredLogs, WalRecord};
use super::WalRecoveryError;
use super::reader::{FrameSlot, SegmentReader};
use super::record::Records;
use super::retention::Retention;
use super::segment::{DATA_START, FrameHeader, SegmentHeader, segment_name};
use crate::codec::DecodeError;
use crate::deliberate::Faults;
use crate::storage::disk::{Disk, DiskError};
use crate::types::{LogIndex, ShardId};

/// A position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalPosition {
    pub number: u64,
    pub offset: u64,
}

/// What is found after the last frame that continues the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Zero bytes.
    Blank,
    /// Anything else, with the fault.
    Damaged(&'static str),
}

/// A group of frames whose last frame was not read yet.
struct FrameGroup {
    start: WalPosition,
    ordinal: u64,
    payload: Vec<u8>,
    /// Whether it began in a removed segment. Such a group is not needed.
    headless: bool,
}

pub(super) struct Replay {
    pub logs: RecoveredLogs,
    pub retention: Retention,
    pub frames: u64,
    pub bytes: u64,
    /// Ordinal of the next frame; `None` until the first frame if segments were released.
    pub expected: Option<u64>,
    group: Option<FrameGroup>,
    /// Frames of the last segment that no later frame proves durable.
    unproven: VecDeque<(u64, WalPosition)>,
    faults: Faults,
}

impl Replay {
    /// Begins a replay at segment `first_number`.
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

    /// Replays the frames of a segment as far as they continue the log. Returns the position and
    /// kind of the end.
    pub fn segment<D: Disk>(
        &mut self,
        disk: &D,
        header: SegmentHeader,
    ) -> Result<(WalPosition, Ending), WalRecoveryError> {
        self.retention.begin_segment(header);
        // The writer syncs a segment before it continues in the next.
        self.unproven.clear();
        let file = disk.open(&segment_name(header.number))?;
        let mut reader = SegmentReader::new(&file, header).with(self.faults);
        let mut place = WalPosition { number: header.number, offset: DATA_START };
        loop {
            match reader.slot(place.offset)? {
                FrameSlot::Frame(frame, payload)
                    if self.expected.is_none_or(|ordinal| ordinal == frame.ordinal) =>
                {
                    self.frame(place, &frame, payload)?;
                    place.offset += frame.frame_bytes();
                }
                FrameSlot::Frame(..) => {
                    return Ok((place, Ending::Damaged("a frame is missing before the one here")));
                }
                FrameSlot::Damaged(fault) => return Ok((place, Ending::Damaged(fault))),
                FrameSlot::Blank => return Ok((place, Ending::Blank)),
            }
        }
    }

    /// Whether the log, which ends in the previous segment in this way, continues in this segment:
    /// with an intact frame, or with a damaged one that can only belong there.
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
            FrameSlot::Frame(frame, _) => return Ok(frame.ordinal == expected),
            FrameSlot::Blank => return Ok(false),
            FrameSlot::Damaged(_) => {}
        }
        let first = reader.find_header(DATA_START)?;
        let is_other = first.is_some_and(|(at, frame)| at == DATA_START && frame.ordinal != expected);
        Ok(ending == Ending::Blank && !is_other)
    }

    /// Beginning of an incomplete group, and the ordinal of its first frame.
    pub fn incomplete_group(&self) -> Option<(WalPosition, u64)> {
        self.group.as_ref().map(|group| (group.start, group.ordinal))
    }

    /// The first frame of the last segment that may exist only in the page cache.
    pub fn unproven_from(&self) -> Option<WalPosition> {
        self.unproven.front().map(|&(_, place)| place)
    }

    fn frame(
        &mut self,
        place: WalPosition,
        frame: &FrameHeader,
        payload: &[u8],
    ) -> Result<(), WalRecoveryError> {
        if frame.durable >= frame.ordinal {
            return Err(record_error(place, DecodeError::Invalid("durable frames")));
        }
        while self.unproven.front().is_some_and(|&(ordinal, _)| ordinal <= frame.durable) {
            self.unproven.pop_front();
        }
        self.unproven.push_back((frame.ordinal, place));

        let headless = self.expected.is_none() && !frame.first;
        if frame.first != self.group.is_none() && !headless {
            return Err(record_error(place, DecodeError::Invalid("order of frames")));
        }
        let group = self.group.get_or_insert_with(|| FrameGroup {
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

    fn complete(&mut self, group: FrameGroup) -> Result<(), WalRecoveryError> {
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
                WalRecord::ReplicaIncarnation { shard, incarnation, is_restated } => {
                    let log = self.logs.entry(shard).or_default();
                    if !is_restated {
                        *log = RecoveredLog::default();
                    }
                    log.incarnation = Some(incarnation);
                }
            }
        }
        Ok(())
    }

    /// Replaces the shard's log from the index of the first entry on.
    fn entries(
        &mut self,
        place: WalPosition,
        shard: ShardId,
        entries: Vec<LogEntry>,
    ) -> Result<(), WalRecoveryError> {
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
            return Err(WalRecoveryError::Gap { file, offset: place.offset, shard, expected: end, found });
        }
        log.entries.truncate(found.0.saturating_sub(start.0) as usize);
        log.entries.extend(entries);
        Ok(())
    }
}

fn record_error(place: WalPosition, source: DecodeError) -> WalRecoveryError {
    WalRecoveryError::Record { file: segment_name(place.number), offset: place.offset, source }
}
