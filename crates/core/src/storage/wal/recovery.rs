//! Finds the end of a log, and decides whether a node may start from it.
//!
//! Owns the judgement of damage. The log is replayed up to the first frame that is missing or not intact. Let its
//! ordinal be *e*. Then:
//!
//! - **Hole**: an intact frame header anywhere behind says that frame *e* was durable before it was written, or a
//!   segment behind was written to, which is done only after all before it was synced. Frame *e* was durable, may
//!   have been acknowledged, and is lost: refuse to start, change nothing.
//! - **Torn tail**: anything else that is not zero. Frame *e* and all behind it were never acknowledged: cut them off.
//! - **Clean end**: zero bytes.
//!
//! A damaged frame that was the very last to be synced cannot be told from a torn one; it is cut.
//!
//! Invariant: a crash at any moment of recovery leaves a log that recovers to the same end. Cutting therefore goes
//! from the back to the front, and nothing is returned that is not durable.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::pool::{Active, Pool};
use super::reader::{SegmentReader, is_zero};
use super::replay::{Ending, Place, Replay};
use super::segment::{
    DATA_START, FRAME_ALIGN, FRAME_HEADER_BYTES, HeaderFault, SegmentHeader, parse_segment_name,
    parse_spare_name, segment_name,
};
use super::writer::LogEnd;
use super::{RecoveryError, RecoveryReport, TornTail};
use crate::deliberate::Faults;
use crate::storage::RecoveredLogs;
use crate::storage::disk::{Disk, DiskError, DiskFile};

/// Files are rewritten in pieces of this size.
const CHUNK_BYTES: u64 = 1 << 20;

/// A recovered log.
pub(super) struct Recovered<F> {
    pub logs: RecoveredLogs,
    pub report: RecoveryReport,
    pub end: LogEnd<F>,
}

/// Where the replay stopped, before it is judged.
struct Stop {
    place: Place,
    ending: Ending,
    /// Index of its segment among all.
    segment: usize,
}

/// What stands behind the end of the log.
struct Behind {
    /// Whether there is something to cut off.
    torn: bool,
    /// Whether the segment after the one in which the log ends is not as it was created.
    next_used: bool,
}

/// Recovers the log on `disk`; spare files and the prepared segment go to `pool`.
pub(super) fn recover<D: Disk>(
    disk: &D,
    pool: &mut Pool<D::File>,
    faults: Faults,
) -> Result<Recovered<D::File>, RecoveryError> {
    let mut report = RecoveryReport::default();
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
    let behind = look_behind(disk, &segments, &stop, expected)?;
    let (end, next_ordinal) = replay.incomplete_group().unwrap_or((stop.place, expected));
    if end == (Place { number: first.number, offset: DATA_START }) && first.number > 1 {
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

/// Reads the headers of all segments, in order, and hands spare files to the pool.
fn load<D: Disk>(
    disk: &D,
    pool: &mut Pool<D::File>,
    report: &mut RecoveryReport,
) -> Result<Vec<SegmentHeader>, RecoveryError> {
    let names = disk.list()?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
    numbers.sort_unstable();
    if let Some(pair) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        return Err(RecoveryError::Missing { file: segment_name(pair[0] + 1) });
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

/// Reads the header of a segment and brings the file to its size. The newest segment is removed if it has neither a
/// header nor a frame: its creation was cut short.
fn load_header<D: Disk>(disk: &D, number: u64, newest: bool) -> Result<Option<SegmentHeader>, RecoveryError> {
    let name = segment_name(number);
    let mut file = disk.open(&name)?;
    let size = file.size()?;
    let mut page = vec![0; DATA_START as usize + FRAME_HEADER_BYTES];
    let present = size.min(page.len() as u64) as usize;
    file.read_at(0, &mut page[..present])?;
    let header = match SegmentHeader::decode(&page) {
        Ok(header) if header.number == number => header,
        Ok(_) => {
            return Err(RecoveryError::Header { file: name, reason: "it is the header of another segment" });
        }
        Err(HeaderFault::Version(version)) => return Err(RecoveryError::Version { file: name, version }),
        Err(HeaderFault::Damaged(_)) if newest && is_zero(&page[DATA_START as usize..]) => {
            disk.remove(&name)?;
            return Ok(None);
        }
        Err(HeaderFault::Damaged(reason)) => return Err(RecoveryError::Header { file: name, reason }),
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
) -> Result<Stop, RecoveryError> {
    let mut segment = 0;
    loop {
        let (place, ending) = replay.segment(disk, segments[segment])?;
        match segments.get(segment + 1) {
            Some(next) if replay.continues_in(disk, *next, ending)? => segment += 1,
            _ => return Ok(Stop { place, ending, segment }),
        }
    }
}

/// Judges what stands behind `stop`, where frame `expected` is missing.
fn look_behind<D: Disk>(
    disk: &D,
    segments: &[SegmentHeader],
    stop: &Stop,
    expected: u64,
) -> Result<Behind, RecoveryError> {
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
            Remains::Durable => return Err(hole(stop.place, reason)),
            Remains::Torn => true,
            Remains::None => false,
        };
        torn |= remains;
        if here || (!remains && reader.is_unused()?) {
            continue;
        }
        // This segment was written to, so all segments before it had been synced.
        if stop.ending != Ending::Blank {
            return Err(hole(stop.place, reason));
        }
        if position > stop.segment + 1 {
            let skipped = Place { number: segments[stop.segment + 1].number, offset: DATA_START };
            return Err(hole(skipped, "no frame in a segment before the last"));
        }
        torn = true;
        next_used = true;
    }
    Ok(Behind { torn, next_used })
}

/// What intact frame headers behind the end of the log say.
enum Remains {
    /// There are none.
    None,
    /// None of them was written after the frame that is missing became durable.
    Torn,
    /// One was.
    Durable,
}

fn find_remains<F: DiskFile>(
    reader: &mut SegmentReader<'_, F>,
    from: u64,
    expected: u64,
) -> Result<Remains, DiskError> {
    let mut remains = Remains::None;
    let mut search_from = from;
    while let Some((offset, frame)) = reader.find_header(search_from)? {
        let is_missing_frame = offset == from && frame.ordinal == expected;
        // A frame that is not behind the missing one cannot stand here: that is damage beyond what a crash does.
        if frame.durable >= expected || (frame.ordinal <= expected && !is_missing_frame) {
            return Ok(Remains::Durable);
        }
        remains = Remains::Torn;
        search_from = offset + FRAME_ALIGN;
    }
    Ok(remains)
}

/// Takes the segments behind the end of the log out of it, the last one first. The next one stays if it is unused.
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

/// Writes what stands from `from` to `to` once more. It may never have reached the disk, although it can be read: if
/// its sync failed, the operating system shows it still and believes it to be clean.
fn rewrite<F: DiskFile>(file: &mut F, from: u64, to: u64) -> Result<(), DiskError> {
    let mut buffer = Vec::new();
    for (offset, bytes) in chunks(from, to) {
        buffer.resize(bytes, 0);
        file.read_at(offset, &mut buffer)?;
        file.write_at(offset, &buffer)?;
    }
    Ok(())
}

/// Zeroes what is not zero from `from` to `to` and says how far behind `from` that reached.
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

fn hole(place: Place, reason: &'static str) -> RecoveryError {
    let file: String = segment_name(place.number);
    RecoveryError::Hole { file, offset: place.offset, reason }
}
