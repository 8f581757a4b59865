//! Recovery of the log: finds its end, and decides whether the node may start.
//!
//! Owns the assessment of damage. The log is replayed up to the first frame that is missing or
//! damaged. Let its ordinal be *e*. Then:
//!
//! - **Hole**: a later intact frame header states that frame *e* was durable before it was written,
//!   or a later segment was written to, which happens only after all earlier segments were synced.
//!   So frame *e* was durable, may have been acknowledged, and is lost: refuse to start, change
//!   nothing.
//! - **Torn tail**: anything else that is not zero. Frame *e* and all later frames were never
//!   acknowledged: cut them off.
//! - **Clean end**: zero bytes.
//!
//! If the very last synced frame is damaged, it cannot be distinguished from a torn one, and is cut
//! off.
//!
//! Invariant: after a crash at any moment of recovery, the log recovers to the same end. So cutting
//! proceeds from the back to the front, and everything returned is durable.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::pool::{Active, Pool};
use super::reader::{SegmentReader, is_zero};
use super::replay::{Ending, Replay, WalPosition};
use super::segment::{
    DATA_START, FRAME_ALIGN, FRAME_HEADER_BYTES, SegmentHeader, parse_segment_name, parse_spare_name,
    segment_name,
};
use super::writer::LogEnd;
use super::{TornTail, WalRecoveryError, WalRecoveryReport};
use crate::deliberate::Faults;
use crate::storage::RecoveredLogs;
use crate::storage::disk::{Disk, DiskError, DiskFile};
use crate::storage::framing::HeaderError;

/// Size of the pieces in which files are rewritten.
const CHUNK_BYTES: u64 = 1 << 20;

pub(super) struct Recovered<F> {
    pub logs: RecoveredLogs,
    pub report: WalRecoveryReport,
    pub end: LogEnd<F>,
}

/// Where the replay stopped.
struct Stop {
    place: WalPosition,
    ending: Ending,
    /// Index of its segment in the list of segments.
    segment: usize,
}

/// What is found after the end of the log.
struct TrailingBytes {
    /// Whether there is something to cut off.
    torn: bool,
    /// Whether the segment after the end of the log was written to.
    next_used: bool,
}

/// Recovers the log on `disk`. Spare files and the prepared segment go to `pool`.
pub(super) fn recover<D: Disk>(
    disk: &D,
    pool: &mut Pool<D::File>,
    faults: Faults,
) -> Result<Recovered<D::File>, WalRecoveryError> {
    let mut report = WalRecoveryReport::default();
    let segments = load(disk, pool, &mut report)?;
    let Some(&first) = segments.first() else {
        let end = LogEnd { current: None, ordinal: 0, retention: Default::default() };
        return Ok(Recovered { logs: RecoveredLogs::new(), report, end });
    };

    let mut replay = Replay::new(first.number, faults);
    let stop = find_stop(disk, &segments, &mut replay)?;
    let Some(expected) = replay.expected else {
        return Err(hole(stop.place, "no intact frame in the first segment that is left"));
    };
    let behind = inspect_trailing(disk, &segments, &stop, expected)?;
    let (end, next_ordinal) = replay.incomplete_group().unwrap_or((stop.place, expected));
    if end == (WalPosition { number: first.number, offset: DATA_START }) && first.number > 1 {
        return Err(hole(end, "no complete group in the first segment that is left"));
    }

    let current = (end.number - first.number) as usize;
    retire(disk, pool, &segments[current + 1..], current == stop.segment && !behind.next_used)?;
    let mut file = disk.open(&segment_name(end.number))?;
    if let Some(unproven) = replay.unproven_from().filter(|place| place.number == end.number) {
        rewrite(&mut file, unproven.offset, end.offset)?;
    }
    if behind.torn || replay.incomplete_group().is_some() {
        let bytes = wipe(&mut file, end.offset, segments[current].segment_bytes)?;
        report.torn_tail = Some(TornTail { file: segment_name(end.number), offset: end.offset, bytes });
    }
    file.sync()?;

    report.segments = current as u64 + 1;
    report.frames = replay.frames;
    report.bytes = replay.bytes;
    replay.retention.end_at(end.number);
    let current = Active::resumed(file, segments[current], end.offset);
    let end = LogEnd { current: Some(current), ordinal: next_ordinal - 1, retention: replay.retention };
    Ok(Recovered { logs: replay.logs, report, end })
}

/// Reads the headers of all segments, in order, and passes spare files to the pool.
fn load<D: Disk>(
    disk: &D,
    pool: &mut Pool<D::File>,
    report: &mut WalRecoveryReport,
) -> Result<Vec<SegmentHeader>, WalRecoveryError> {
    let names = disk.list()?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
    numbers.sort_unstable();
    if let Some(pair) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        return Err(WalRecoveryError::Missing { file: segment_name(pair[0] + 1) });
    }
    let mut segments = Vec::with_capacity(numbers.len());
    for (position, &number) in numbers.iter().enumerate() {
        let newest = position + 1 == numbers.len();
        match load_header(disk, number, newest)? {
            Some(header) => segments.push(header),
            None => report.discarded = Some(segment_name(number)),
        }
    }
    for name in names {
        if parse_spare_name(&name).is_some() {
            pool.adopt(disk, name)?;
        }
    }
    Ok(segments)
}

/// Reads the header of a segment and resizes the file as it says. The newest segment is removed if
/// it has neither a header nor a frame, because its creation was interrupted.
fn load_header<D: Disk>(
    disk: &D,
    number: u64,
    newest: bool,
) -> Result<Option<SegmentHeader>, WalRecoveryError> {
    let name = segment_name(number);
    let mut file = disk.open(&name)?;
    let size = file.size()?;
    let mut page = vec![0; DATA_START as usize + FRAME_HEADER_BYTES];
    let present = size.min(page.len() as u64) as usize;
    file.read_at(0, &mut page[..present])?;
    let header = match SegmentHeader::decode(&page) {
        Ok(header) if header.number == number => header,
        Ok(_) => {
            return Err(WalRecoveryError::Header {
                file: name,
                reason: "it is the header of another segment",
            });
        }
        Err(HeaderError::Version(version)) => {
            return Err(WalRecoveryError::Version { file: name, version });
        }
        Err(HeaderError::Damaged(_)) if newest && is_zero(&page[DATA_START as usize..]) => {
            disk.remove(&name)?;
            return Ok(None);
        }
        Err(HeaderError::Damaged(reason)) => {
            return Err(WalRecoveryError::Header { file: name, reason });
        }
    };
    if size < header.segment_bytes {
        file.resize(header.segment_bytes)?;
        file.sync()?;
    }
    Ok(Some(header))
}

fn find_stop<D: Disk>(
    disk: &D,
    segments: &[SegmentHeader],
    replay: &mut Replay,
) -> Result<Stop, WalRecoveryError> {
    let mut segment = 0;
    loop {
        let (place, ending) = replay.segment(disk, segments[segment])?;
        match segments.get(segment + 1) {
            Some(next) if replay.continues_in(disk, *next, ending)? => segment += 1,
            _ => return Ok(Stop { place, ending, segment }),
        }
    }
}

/// Assesses what follows `stop`, where frame `expected` is missing.
fn inspect_trailing<D: Disk>(
    disk: &D,
    segments: &[SegmentHeader],
    stop: &Stop,
    expected: u64,
) -> Result<TrailingBytes, WalRecoveryError> {
    let reason = match stop.ending {
        Ending::Blank => "a frame is missing",
        Ending::Damaged(reason) => reason,
    };
    let mut torn = stop.ending != Ending::Blank;
    let mut next_used = false;
    for (position, &header) in segments.iter().enumerate().skip(stop.segment) {
        let file = disk.open(&segment_name(header.number))?;
        let mut reader = SegmentReader::new(&file, header);
        let here = position == stop.segment;
        let from = if here { stop.place.offset } else { DATA_START };
        let remains = match find_remains(&mut reader, from, expected)? {
            TrailingFrames::Durable => return Err(hole(stop.place, reason)),
            TrailingFrames::Torn => true,
            TrailingFrames::None => false,
        };
        torn |= remains;
        if here || (!remains && reader.is_unused()?) {
            continue;
        }
        // This segment was written to, so all earlier segments had been synced.
        if stop.ending != Ending::Blank {
            return Err(hole(stop.place, reason));
        }
        if position > stop.segment + 1 {
            let skipped = WalPosition { number: segments[stop.segment + 1].number, offset: DATA_START };
            return Err(hole(skipped, "no frame in a segment before the last"));
        }
        torn = true;
        next_used = true;
    }
    Ok(TrailingBytes { torn, next_used })
}

/// What intact frame headers after the end of the log prove.
enum TrailingFrames {
    /// There are no such headers.
    None,
    /// None of them was written after the missing frame became durable.
    Torn,
    /// At least one was written after the missing frame became durable.
    Durable,
}

fn find_remains<F: DiskFile>(
    reader: &mut SegmentReader<'_, F>,
    from: u64,
    expected: u64,
) -> Result<TrailingFrames, DiskError> {
    let mut remains = TrailingFrames::None;
    let mut search_from = from;
    while let Some((offset, frame)) = reader.find_header(search_from)? {
        let is_missing_frame = offset == from && frame.ordinal == expected;
        // A frame before the missing one cannot be at this position: this is more damage than a
        // crash causes.
        if frame.durable >= expected || (frame.ordinal <= expected && !is_missing_frame) {
            return Ok(TrailingFrames::Durable);
        }
        remains = TrailingFrames::Torn;
        search_from = offset + FRAME_ALIGN;
    }
    Ok(remains)
}

/// Removes the segments after the end of the log, the last one first. The next one stays if it is
/// unused.
fn retire<D: Disk>(
    disk: &D,
    pool: &mut Pool<D::File>,
    later: &[SegmentHeader],
    next_unused: bool,
) -> Result<(), DiskError> {
    for (position, &header) in later.iter().enumerate().rev() {
        let stays = position == 0 && next_unused && pool.adopt_ready(disk, header)?;
        if !stays {
            pool.recycle(disk, header)?;
        }
    }
    Ok(())
}

/// Writes the bytes from `from` to `to` again. They may never have reached the disk although they
/// can be read: after a failed sync, the operating system may still show them and consider them
/// clean.
fn rewrite<F: DiskFile>(file: &mut F, from: u64, to: u64) -> Result<(), DiskError> {
    let mut buffer = Vec::new();
    for (offset, bytes) in chunks(from, to) {
        buffer.resize(bytes, 0);
        file.read_at(offset, &mut buffer)?;
        file.write_at(offset, &buffer)?;
    }
    Ok(())
}

/// Overwrites nonzero bytes from `from` to `to` with zeros. Returns the offset of the last one,
/// relative to `from`.
fn wipe<F: DiskFile>(file: &mut F, from: u64, to: u64) -> Result<u64, DiskError> {
    let mut buffer = Vec::new();
    let mut end = from;
    for (offset, bytes) in chunks(from, to) {
        buffer.resize(bytes, 0);
        file.read_at(offset, &mut buffer)?;
        if let Some(last) = buffer.iter().rposition(|&byte| byte != 0) {
            end = offset + last as u64 + 1;
            buffer.fill(0);
            file.write_at(offset, &buffer)?;
        }
    }
    Ok(end - from)
}

fn chunks(from: u64, to: u64) -> impl Iterator<Item = (u64, usize)> {
    (from..to)
        .step_by(CHUNK_BYTES as usize)
        .map(move |offset| (offset, CHUNK_BYTES.min(to - offset) as usize))
}

fn hole(place: WalPosition, reason: &'static str) -> WalRecoveryError {
    let file: String = segment_name(place.number);
    WalRecoveryError::Hole { file, offset: place.offset, reason }
}
