//! Retention: which segments are still needed, and by which shard.
//!
//! Owns the bookkeeping; the writer acts on it. It tracks the highest index of each shard in each
//! segment, the segment of each shard's latest hard state, and the released indexes. Invariant:
//! segments are listed by number, without gaps; the last one is being written.
//!
//! An incarnation record voids all earlier records of its shard. When its segment goes, it is
//! written again like a hard state, before the shard's hard state. A release for an ended replica
//! must not apply to the next one, whose indexes begin again: nothing is released beyond the noted
//! indexes.
//!
//! A restart record cannot be written again later as hard states are, because it would void the
//! entries in between. So it keeps its segment as the last entry of its snapshot would, and goes
//! with the release of that entry. Everything that it voids is before it and is gone by then.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::super::{HardState, LogHeld, ReplicaIncarnation, WalRecord};
use super::segment::SegmentHeader;
use crate::types::{LogIndex, ShardId};

/// A segment that is kept because entries in it are needed.
#[derive(Debug)]
pub(super) struct RetainedSegment {
    pub header: SegmentHeader,
    highest: BTreeMap<ShardId, LogIndex>,
}

#[derive(Debug, Default)]
pub(super) struct Retention {
    kept: VecDeque<RetainedSegment>,
    hard_states: BTreeMap<ShardId, (HardState, u64)>,
    incarnations: BTreeMap<ShardId, (ReplicaIncarnation, u64)>,
    /// The highest noted index of each shard.
    noted: BTreeMap<ShardId, LogIndex>,
    released: BTreeMap<ShardId, LogIndex>,
}

impl Retention {
    /// Adds the segment of this header, to which later records go.
    pub fn begin_segment(&mut self, header: SegmentHeader) {
        if let Some(last) = self.kept.back() {
            assert_eq!(
                header.number,
                last.header.number + 1,
                "invariant: segments are numbered without gaps"
            );
        }
        self.kept.push_back(RetainedSegment { header, highest: BTreeMap::new() });
    }

    /// Notes a record whose group began in segment `from` and ended in the last one. Each of these
    /// segments contains a part of the group, so the record's entries keep all of them. Its hard
    /// state counts for the first, which goes first. Entries that a restart voids keep nothing.
    pub fn note(&mut self, record: &WalRecord, from: u64) {
        match record {
            WalRecord::Entries { shard, entries } => {
                let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
                self.replace_from(*shard, first.index);
                self.hold(*shard, last.index, from);
            }
            WalRecord::Restart { shard, index, .. } => {
                self.let_go(*shard);
                self.hold(*shard, *index, from);
            }
            WalRecord::ReplicaIncarnation { shard, incarnation, is_restated: true } => {
                self.incarnations.insert(*shard, (incarnation.clone(), from));
            }
            WalRecord::ReplicaIncarnation { shard, incarnation, is_restated: false } => {
                self.let_go(*shard);
                self.released.remove(shard);
                self.noted.remove(shard);
                self.hard_states.remove(shard);
                self.incarnations.insert(*shard, (incarnation.clone(), from));
            }
            WalRecord::HardState { shard, state } => {
                self.hard_states.insert(*shard, (*state, from));
            }
        }
    }

    /// Entries from `first` on are replaced by later ones. They keep no segment: indexes after the
    /// new end may not be reached again for long, and could not be released before.
    fn replace_from(&mut self, shard: ShardId, first: LogIndex) {
        for kept in self.kept.iter_mut().rev() {
            match kept.highest.get_mut(&shard) {
                Some(highest) if *highest >= first => *highest = LogIndex(first.0 - 1),
                Some(_) => return,
                None => {}
            }
        }
    }

    fn let_go(&mut self, shard: ShardId) {
        for kept in &mut self.kept {
            kept.highest.remove(&shard);
        }
    }

    /// The segments from `from` on are needed until the shard releases `index`.
    fn hold(&mut self, shard: ShardId, index: LogIndex, from: u64) {
        let noted = self.noted.entry(shard).or_default();
        *noted = index.max(*noted);
        for kept in self.kept.iter_mut().rev().take_while(|kept| kept.header.number >= from) {
            let highest = kept.highest.entry(shard).or_default();
            *highest = index.max(*highest);
        }
    }

    /// The shard's entries up to `up_to` are no longer needed.
    pub fn release(&mut self, shard: ShardId, up_to: LogIndex) {
        let Some(&noted) = self.noted.get(&shard) else { return };
        let released = self.released.entry(shard).or_default();
        *released = up_to.min(noted).max(*released);
    }

    /// As [`Retention::release`], for a release before the last restart of the node. The log need
    /// not contain any record of the index.
    pub fn recall_release(&mut self, shard: ShardId, up_to: LogIndex) {
        let noted = self.noted.entry(shard).or_default();
        *noted = up_to.max(*noted);
        self.release(shard, up_to);
    }

    /// Number of the first segment that must stay. The last always stays.
    pub fn first_needed(&self) -> u64 {
        let found = self.kept.iter().find(|kept| self.holder(kept).is_some()).or(self.kept.back());
        found.expect("invariant: a log has a segment").header.number
    }

    /// Size of the full segments, and the shard that needs the oldest of them.
    pub fn held(&self) -> LogHeld {
        let full = || self.kept.iter().take(self.kept.len().saturating_sub(1));
        LogHeld {
            bytes: full().map(|kept| kept.header.segment_bytes).sum(),
            holder: full().find_map(|kept| self.holder(kept)),
        }
    }

    /// A shard that needs this segment, and the index that it must release.
    fn holder(&self, kept: &RetainedSegment) -> Option<(ShardId, LogIndex)> {
        let released = |shard| self.released.get(shard).copied().unwrap_or_default();
        let found = kept.highest.iter().find(|&(shard, &index)| released(shard) < index);
        found.map(|(&shard, &index)| (shard, index))
    }

    /// Latest incarnations and hard states that are only in segments before `first_kept`.
    pub fn states_before(&self, first_kept: u64) -> Vec<WalRecord> {
        let incarnations = self.incarnations.iter().filter(|(_, (_, number))| *number < first_kept);
        let incarnations = incarnations.map(|(&shard, (incarnation, _))| {
            let incarnation = incarnation.clone();
            WalRecord::ReplicaIncarnation { shard, incarnation, is_restated: true }
        });
        let stranded = self.hard_states.iter().filter(|(_, (_, number))| *number < first_kept);
        let states = stranded.map(|(&shard, &(state, _))| WalRecord::HardState { shard, state });
        incarnations.chain(states).collect()
    }

    /// Number of the first existing segment.
    pub fn first_kept(&self) -> u64 {
        self.kept.front().expect("invariant: a log has a segment").header.number
    }

    /// Number of the segment that is being written.
    pub fn last_kept(&self) -> u64 {
        self.kept.back().expect("invariant: a log has a segment").header.number
    }

    /// Ends the log in segment `number`, dropping later segments.
    pub fn end_at(&mut self, number: u64) {
        self.kept.retain(|kept| kept.header.number <= number);
    }

    /// The first segment, if it is before `first_needed`.
    pub fn first_before(&self, first_needed: u64) -> Option<SegmentHeader> {
        self.kept.front().map(|kept| kept.header).filter(|header| header.number < first_needed)
    }

    /// Removes the first segment from the list, because it no longer belongs to the log.
    pub fn forget_first(&mut self) {
        assert!(self.kept.len() > 1, "invariant: the segment being written is never released");
        let forgotten = self.kept.pop_front();
        assert!(
            forgotten.is_none_or(|first| self.holder(&first).is_none()),
            "invariant: a segment with needed entries is never released"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LogEntry;
    use crate::types::Term;
    use alloc::vec;
    use bytes::Bytes;

    const SHARD: ShardId = ShardId(1);

    fn header(number: u64) -> SegmentHeader {
        SegmentHeader { number, segment_bytes: 1 << 20, salt: 0 }
    }

    fn note_entry(retention: &mut Retention, index: u64, segment: u64) {
        let entry = LogEntry { index: LogIndex(index), term: Term(1), data: Bytes::new() };
        retention.note(&WalRecord::Entries { shard: SHARD, entries: vec![entry] }, segment);
    }

    /// Two segments with an entry each.
    fn retention() -> Retention {
        let mut retention = Retention::default();
        for number in [1, 2] {
            retention.begin_segment(header(number));
            note_entry(&mut retention, number, number);
        }
        retention
    }

    #[test]
    fn a_segment_goes_when_its_entries_are_released() {
        let mut retention = retention();
        assert_eq!((retention.first_needed(), retention.first_kept(), retention.last_kept()), (1, 1, 2));
        retention.release(SHARD, LogIndex(1));
        assert_eq!(retention.first_needed(), 2);
        retention.forget_first();
        assert_eq!(retention.first_kept(), 2);
    }

    #[test]
    #[should_panic(expected = "invariant: segments are numbered without gaps")]
    fn a_segment_number_is_not_left_out() {
        retention().begin_segment(header(4));
    }

    #[test]
    #[should_panic(expected = "invariant: a segment with needed entries is never released")]
    fn a_segment_with_needed_entries_stays() {
        retention().forget_first();
    }

    #[test]
    #[should_panic(expected = "invariant: the segment being written is never released")]
    fn the_last_segment_stays() {
        let mut retention = retention();
        retention.release(SHARD, LogIndex(2));
        retention.forget_first();
        retention.forget_first();
    }
}
