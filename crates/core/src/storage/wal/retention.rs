//! Which segments are still needed, and by whom.
//!
//! Owns the bookkeeping only: the highest index of each shard in each segment, where each shard's latest hard state
//! stands, and what was released. The writer acts on it. Invariant: segments are listed in the order of their
//! numbers, without gaps; the last is the one being written.
//!
//! A tenure voids all of its shard that came before it, and is written anew like a hard state, before that one. What is
//! released of a replica that is no more must not count for the next one, whose indexes begin anew: nothing is released
//! beyond what was noted.
//!
//! A restart cannot be written anew further back as hard states are: it would void the entries in between. So it
//! holds on to its segment as the last entry of its snapshot would, and goes with the release that passes that entry.
//! Everything that it voids stands before it and is gone by then.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::super::{HardState, LogHeld, Tenure, WalRecord};
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
    tenures: BTreeMap<ShardId, (Tenure, u64)>,
    /// The highest index that was noted of each shard.
    noted: BTreeMap<ShardId, LogIndex>,
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
                self.let_go(*shard);
                self.hold(*shard, *index, from);
            }
            WalRecord::Tenure { shard, tenure, is_restated: true } => {
                self.tenures.insert(*shard, (tenure.clone(), from));
            }
            WalRecord::Tenure { shard, tenure, is_restated: false } => {
                self.let_go(*shard);
                self.released.remove(shard);
                self.noted.remove(shard);
                self.hard_states.remove(shard);
                self.tenures.insert(*shard, (tenure.clone(), from));
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

    /// The same, of an earlier life of the replica that there is: nothing that says so may be left here.
    pub fn recall_release(&mut self, shard: ShardId, up_to: LogIndex) {
        let noted = self.noted.entry(shard).or_default();
        *noted = up_to.max(*noted);
        self.release(shard, up_to);
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

    /// Latest tenures and hard states that stand in segments before `first_kept` only.
    pub fn states_before(&self, first_kept: u64) -> Vec<WalRecord> {
        let tenures = self.tenures.iter().filter(|(_, (_, number))| *number < first_kept);
        let tenures = tenures.map(|(&shard, (tenure, _))| {
            let tenure = tenure.clone();
            WalRecord::Tenure { shard, tenure, is_restated: true }
        });
        let stranded = self.hard_states.iter().filter(|(_, (_, number))| *number < first_kept);
        let states = stranded.map(|(&shard, &(state, _))| WalRecord::HardState { shard, state });
        tenures.chain(states).collect()
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
