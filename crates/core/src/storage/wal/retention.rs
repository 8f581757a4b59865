//! Which segments are still needed, and by whom.
//!
//! Owns the bookkeeping only: the highest index of each shard in each segment, where each shard's latest hard state
//! stands, and what was released. The writer acts on it. Invariant: segments are listed in the order of their
//! numbers, without gaps; the last is the one being written.
//!
//! A restart cannot be written anew further back as hard states are: it would void the entries in between. So it
//! holds on to its segment as the last entry of its snapshot would, and goes with the release that passes that entry.
//! Everything that it voids stands before it and is gone by then.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::super::{HardState, LogHeld, WalRecord};
use super::segment::SegmentHeader;
use crate::types::{LogIndex, ShardId};

/// A segment that is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub header: SegmentHeader,
    highest: BTreeMap<ShardId, LogIndex>,
}

#[derive(Debug, Default)]
pub(super) struct Retention {
    kept: VecDeque<Kept>,
    hard_states: BTreeMap<ShardId, (HardState, u64)>,
    released: BTreeMap<ShardId, LogIndex>,
}

impl Retention {
    /// From now on records go to the segment of this header.
    pub fn begin_segment(&mut self, header: SegmentHeader) {
        if let Some(last) = self.kept.back() {
            assert_eq!(
                header.number,
                last.header.number + 1,
                "invariant: segments are numbered without gaps"
            );
        }
        self.kept.push_back(Kept { header, highest: BTreeMap::new() });
    }

    /// Takes note of a record whose group began in segment `from` and ended in the last one. All of those segments
    /// hold a part of it, so its entries hold on to each; its hard state counts for the first, which goes first. What a
    /// restart voids holds on to nothing.
    pub fn note(&mut self, record: &WalRecord, from: u64) {
        match record {
            WalRecord::Entries { shard, entries } => {
                let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
                self.replace_from(*shard, first.index);
                self.hold(*shard, last.index, from);
            }
            WalRecord::Restart { shard, index, .. } => {
                for kept in &mut self.kept {
                    kept.highest.remove(shard);
                }
                self.hold(*shard, *index, from);
            }
            WalRecord::HardState { shard, state } => {
                self.hard_states.insert(*shard, (*state, from));
            }
        }
    }

    /// Entries from `first` on are replaced by later ones. They hold on to nothing: the indexes behind the new end may
    /// not come again for long, and nobody can release them before.
    fn replace_from(&mut self, shard: ShardId, first: LogIndex) {
        for kept in self.kept.iter_mut().rev() {
            match kept.highest.get_mut(&shard) {
                Some(highest) if *highest >= first => *highest = LogIndex(first.0 - 1),
                Some(_) => return,
                None => {}
            }
        }
    }

    /// The segments from `from` on are needed until the shard releases `index`.
    fn hold(&mut self, shard: ShardId, index: LogIndex, from: u64) {
        for kept in self.kept.iter_mut().rev().take_while(|kept| kept.header.number >= from) {
            let highest = kept.highest.entry(shard).or_default();
            *highest = index.max(*highest);
        }
    }

    /// The shard's entries up to `up_to` are no longer needed.
    pub fn release(&mut self, shard: ShardId, up_to: LogIndex) {
        let released = self.released.entry(shard).or_default();
        *released = up_to.max(*released);
    }

    /// The number of the first segment that must stay. The last always stays.
    pub fn first_needed(&self) -> u64 {
        let found = self.kept.iter().find(|kept| self.holder(kept).is_some()).or(self.kept.back());
        found.expect("invariant: a log has a segment").header.number
    }

    /// What the segments before the last one take, and who needs the oldest of them.
    pub fn held(&self) -> LogHeld {
        let full = || self.kept.iter().take(self.kept.len().saturating_sub(1));
        LogHeld {
            bytes: full().map(|kept| kept.header.segment_bytes).sum(),
            holder: full().find_map(|kept| self.holder(kept)),
        }
    }

    /// A shard that needs this segment, and until when.
    fn holder(&self, kept: &Kept) -> Option<(ShardId, LogIndex)> {
        let released = |shard| self.released.get(shard).copied().unwrap_or_default();
        let found = kept.highest.iter().find(|&(shard, &index)| released(shard) < index);
        found.map(|(&shard, &index)| (shard, index))
    }

    /// Latest hard states that stand in segments before `first_kept` only.
    pub fn hard_states_before(&self, first_kept: u64) -> Vec<WalRecord> {
        let stranded = self.hard_states.iter().filter(|(_, (_, number))| *number < first_kept);
        stranded.map(|(&shard, &(state, _))| WalRecord::HardState { shard, state }).collect()
    }

    /// The number of the first segment that is there.
    pub fn first_kept(&self) -> u64 {
        self.kept.front().expect("invariant: a log has a segment").header.number
    }

    /// The log ends in segment `number`; later ones are none of it.
    pub fn end_at(&mut self, number: u64) {
        self.kept.retain(|kept| kept.header.number <= number);
    }

    /// The first segment, if it comes before `first_needed`.
    pub fn first_before(&self, first_needed: u64) -> Option<SegmentHeader> {
        self.kept.front().map(|kept| kept.header).filter(|header| header.number < first_needed)
    }

    /// Strikes the first segment off the list: it is no part of the log any more.
    pub fn forget_first(&mut self) {
        self.kept.pop_front();
    }
}
