//! A revision for each slot of a set: up to which revision the changes of a slot are known.
//!
//! The revisions of a slot rise for as long as the cluster exists, also when the slot moves to
//! another shard, because the receiver raises its own revision above the giver's. So a revision of
//! a slot means the same on every node and after every move, without the number of a shard.
//!
//! Each value has exactly one representation.

use alloc::vec::Vec;
use core::ops::Range;

use crate::codec::{self, DecodeError, Decoder};
use crate::slots::SLOTS;
use crate::slots::slot_set::SlotSet;
use crate::types::Version;

/// Sorted, non-empty ranges that do not overlap, each with a revision. Neighbours that touch have
/// different revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotRevisions {
    ranges: Vec<(Range<u16>, Version)>,
}

impl SlotRevisions {
    /// The same revision for all these slots.
    pub fn at(slots: &SlotSet, revision: Version) -> SlotRevisions {
        SlotRevisions { ranges: slots.ranges().iter().map(|range| (range.clone(), revision)).collect() }
    }

    /// The revision of a slot, if it has one.
    pub fn of(&self, slot: u16) -> Option<Version> {
        let behind = self.ranges.partition_point(|(range, _)| range.start <= slot);
        let (range, revision) = self.ranges.get(behind.checked_sub(1)?)?;
        range.contains(&slot).then_some(*revision)
    }

    /// The ranges in order, with their revisions.
    pub fn ranges(&self) -> &[(Range<u16>, Version)] {
        &self.ranges
    }

    /// The slots that have a revision.
    pub fn slots(&self) -> SlotSet {
        SlotSet::of(self.ranges.iter().map(|(range, _)| range.clone()))
    }

    /// The lowest revision; `None` if no slot has one.
    pub fn lowest(&self) -> Option<Version> {
        self.ranges.iter().map(|(_, revision)| *revision).min()
    }

    /// The part that concerns these slots.
    #[must_use]
    pub fn within(&self, slots: &SlotSet) -> SlotRevisions {
        let mut ranges = Vec::new();
        for (range, revision) in &self.ranges {
            let behind = slots.ranges().partition_point(|other| other.end <= range.start);
            let near = slots.ranges()[behind..].iter().take_while(|other| other.start < range.end);
            ranges.extend(
                near.map(|other| (range.start.max(other.start)..range.end.min(other.end), *revision)),
            );
        }
        SlotRevisions { ranges }
    }

    /// Raises slots to the revisions that they have in `other`, and adds those that are missing.
    pub fn raise(&mut self, other: &SlotRevisions) {
        // Most watchers have one range, of the only shard.
        if self.ranges.len() == 1 && other.ranges.len() == 1 && self.ranges[0].0 == other.ranges[0].0 {
            self.ranges[0].1 = self.ranges[0].1.max(other.ranges[0].1);
            return;
        }
        let mut bounds: Vec<u16> = Vec::with_capacity(2 * (self.ranges.len() + other.ranges.len()));
        for (range, _) in self.ranges.iter().chain(&other.ranges) {
            bounds.extend([range.start, range.end]);
        }
        bounds.sort_unstable();
        bounds.dedup();
        let mut merged: Vec<(Range<u16>, Version)> = Vec::with_capacity(bounds.len());
        for pair in bounds.windows(2) {
            let Some(revision) = self.of(pair[0]).max(other.of(pair[0])) else { continue };
            match merged.last_mut() {
                Some((range, last)) if range.end == pair[0] && *last == revision => range.end = pair[1],
                _ => merged.push((pair[0]..pair[1], revision)),
            }
        }
        self.ranges = merged;
    }

    /// Whether every slot of `other` has at least the same revision here.
    pub fn reaches(&self, other: &SlotRevisions) -> bool {
        let mut raised = self.clone();
        raised.raise(other);
        raised == *self
    }

    /// Appends the value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.ranges.len() as u64);
        for (range, revision) in &self.ranges {
            codec::put_varint(out, u64::from(range.start));
            codec::put_varint(out, u64::from(range.end));
            codec::put_varint(out, revision.0);
        }
    }

    /// Reads what [`SlotRevisions::encode`] appended.
    ///
    /// # Errors
    /// If the bytes are not exactly such a value.
    pub fn from_bytes(bytes: &[u8]) -> Result<SlotRevisions, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let revisions = SlotRevisions::decode(&mut decoder)?;
        if decoder.rest().is_empty() { Ok(revisions) } else { Err(DecodeError::Invalid("end of revisions")) }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<SlotRevisions, DecodeError> {
        let mut ranges: Vec<(Range<u16>, Version)> = Vec::new();
        for _ in 0..decoder.bounded(SLOTS.into(), "number of ranges")? {
            let start = decoder.bounded(SLOTS.into(), "slot")? as u16;
            let end = decoder.bounded(SLOTS.into(), "slot")? as u16;
            let revision = Version(decoder.varint()?);
            let is_in_order = ranges
                .last()
                .is_none_or(|(last, before)| last.end < start || last.end == start && *before != revision);
            if start >= end || !is_in_order {
                return Err(DecodeError::Invalid("order of slots"));
            }
            ranges.push((start..end, revision));
        }
        Ok(SlotRevisions { ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    fn random(rng: &mut fastrand::Rng) -> SlotRevisions {
        let mut revisions = SlotRevisions::default();
        for _ in 0..rng.usize(..5) {
            let start = rng.u16(..20);
            let slots = SlotSet::from(start..start + rng.u16(1..9));
            revisions.raise(&SlotRevisions::at(&slots, Version(rng.u64(..4))));
        }
        revisions
    }

    fn by_slot(revisions: &SlotRevisions) -> BTreeMap<u16, Version> {
        let all = revisions.ranges().iter();
        all.flat_map(|(range, revision)| range.clone().map(|slot| (slot, *revision))).collect()
    }

    #[test]
    fn values_are_what_maps_of_single_slots_are() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..3_000 {
            let (one, other) = (random(&mut rng), random(&mut rng));
            let (ones, others) = (by_slot(&one), by_slot(&other));
            assert!((0..40).all(|slot| one.of(slot) == ones.get(&slot).copied()));
            assert_eq!(one.lowest(), ones.values().min().copied());
            let mut raised = one.clone();
            raised.raise(&other);
            let mut expected = ones.clone();
            for (slot, revision) in &others {
                let held = expected.entry(*slot).or_insert(*revision);
                *held = (*held).max(*revision);
            }
            assert_eq!(by_slot(&raised), expected);
            let is_reached =
                others.iter().all(|(slot, revision)| ones.get(slot).is_some_and(|own| own >= revision));
            assert_eq!(one.reaches(&other), is_reached);
            let slots = other.slots();
            let mut part = ones.clone();
            part.retain(|slot, _| slots.contains(*slot));
            assert_eq!(by_slot(&one.within(&slots)), part);
            assert_eq!(one == other, ones == others, "each value has one form");
            let mut bytes = Vec::new();
            one.encode(&mut bytes);
            assert_eq!(SlotRevisions::from_bytes(&bytes), Ok(one));
            bytes.push(0);
            assert!(SlotRevisions::from_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn values_out_of_order_are_refused() {
        for bytes in [&[1, 5, 5, 0][..], &[2, 0, 5, 1, 5, 6, 1], &[2, 3, 4, 0, 1, 2, 0], &[1, 0, 1], &[]] {
            assert!(SlotRevisions::from_bytes(bytes).is_err(), "{bytes:?}");
        }
    }
}
