//! Sets of hash slots, as ranges.
//!
//! Each set has exactly one representation, so equal sets have equal bytes on every replica.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use crate::codec::{self, DecodeError, Decoder};
use crate::slots::SLOTS;

/// A set of slots: sorted, non-empty ranges that neither touch nor overlap.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SlotSet {
    ranges: Vec<Range<u16>>,
}

impl SlotSet {
    /// The union of ranges, which may be in any order and overlap.
    pub fn of(ranges: impl IntoIterator<Item = Range<u16>>) -> SlotSet {
        let mut ranges: Vec<Range<u16>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<u16>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        SlotSet { ranges: merged }
    }

    /// The set of all slots.
    pub fn all() -> SlotSet {
        SlotSet::from(0..SLOTS)
    }

    /// Whether it contains a slot.
    pub fn contains(&self, slot: u16) -> bool {
        let behind = self.ranges.partition_point(|range| range.start <= slot);
        behind > 0 && slot < self.ranges[behind - 1].end
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of slots.
    pub fn count(&self) -> u32 {
        self.ranges.iter().map(|range| u32::from(range.end - range.start)).sum()
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[Range<u16>] {
        &self.ranges
    }

    /// The union of two sets.
    pub fn union(&self, other: &SlotSet) -> SlotSet {
        SlotSet::of(self.ranges.iter().chain(&other.ranges).cloned())
    }

    /// The slots that are not in the other set.
    pub fn without(&self, other: &SlotSet) -> SlotSet {
        let mut left = Vec::new();
        for range in &self.ranges {
            let mut begin = range.start;
            for gone in &other.ranges {
                if gone.end > begin && gone.start < range.end {
                    left.push(begin..gone.start.max(begin));
                    begin = gone.end.min(range.end);
                }
            }
            left.push(begin..range.end);
        }
        SlotSet::of(left)
    }

    /// The lowest `count` slots, or all.
    pub fn first(&self, count: u32) -> SlotSet {
        let mut left = count;
        SlotSet::of(self.ranges.iter().map(|range| {
            let taken = left.min(u32::from(range.end - range.start));
            left -= taken;
            range.start..range.start + taken as u16
        }))
    }

    /// The highest `count` slots, or all.
    pub fn last(&self, count: u32) -> SlotSet {
        self.without(&self.first(self.count().saturating_sub(count)))
    }

    /// Whether the sets have a slot in common.
    pub fn overlaps(&self, other: &SlotSet) -> bool {
        self.without(other) != *self
    }

    /// Whether it is a subset of the other set.
    pub fn is_within(&self, other: &SlotSet) -> bool {
        self.without(other).is_empty()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.ranges.len() as u64);
        for range in &self.ranges {
            codec::put_varint(out, u64::from(range.start));
            codec::put_varint(out, u64::from(range.end));
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<SlotSet, DecodeError> {
        let mut ranges: Vec<Range<u16>> = Vec::new();
        for _ in 0..decoder.bounded(SLOTS.into(), "number of ranges")? {
            let start = decoder.bounded(SLOTS.into(), "slot")? as u16;
            let end = decoder.bounded(SLOTS.into(), "slot")? as u16;
            if start >= end || ranges.last().is_some_and(|last| last.end >= start) {
                return Err(DecodeError::Invalid("order of slots"));
            }
            ranges.push(start..end);
        }
        Ok(SlotSet { ranges })
    }
}

impl From<Range<u16>> for SlotSet {
    fn from(range: Range<u16>) -> SlotSet {
        SlotSet::of([range])
    }
}

/// In the notation of Redis: `0-99,200`.
impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, range) in self.ranges.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            match range.end - range.start {
                1 => write!(f, "{comma}{}", range.start)?,
                _ => write!(f, "{comma}{}-{}", range.start, range.end - 1)?,
            }
        }
        Ok(())
    }
}

/// The error for text that is not a set of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("slots are written as 0-99,200, and are below 16384")]
pub struct NoSlots;

/// Parses the notation of `Display`. Ranges may be in any order and overlap.
impl FromStr for SlotSet {
    type Err = NoSlots;

    fn from_str(text: &str) -> Result<SlotSet, NoSlots> {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let slot =
            |text: &str| -> Option<u16> { text.parse().ok().filter(|slot| *slot < SLOTS && is_number(text)) };
        let range = |text: &str| -> Option<Range<u16>> {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (slot(first)?, slot(last)?);
            (first <= last).then_some(first..last + 1)
        };
        let ranges: Option<Vec<Range<u16>>> = text.split(',').map(|part| range(part.trim())).collect();
        ranges.map(SlotSet::of).ok_or(NoSlots)
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use alloc::vec;

    fn random(random: &mut fastrand::Rng) -> (SlotSet, BTreeSet<u16>) {
        let ranges: Vec<Range<u16>> = (0..random.usize(..6))
            .map(|_| {
                let start = random.u16(..40);
                start..(start + random.u16(..12)).min(40)
            })
            .collect();
        (SlotSet::of(ranges.iter().cloned()), ranges.into_iter().flatten().collect())
    }

    #[test]
    fn sets_are_what_sets_of_single_slots_are() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let ((one, ones), (other, others)) = (random(&mut rng), random(&mut rng));
            let flat = |set: &SlotSet| set.ranges().iter().cloned().flatten().collect::<BTreeSet<u16>>();
            assert_eq!(flat(&one), ones);
            assert!((0..41).all(|slot| one.contains(slot) == ones.contains(&slot)));
            assert_eq!(one.count() as usize, ones.len());
            assert_eq!(flat(&one.union(&other)), &ones | &others);
            assert_eq!(flat(&one.without(&other)), &ones - &others);
            assert_eq!(one.overlaps(&other), !ones.is_disjoint(&others));
            assert_eq!(one.is_within(&other), ones.is_subset(&others));
            let mut bytes = vec![];
            one.encode(&mut bytes);
            assert_eq!(SlotSet::decode(&mut Decoder::new(&bytes)), Ok(one.clone()));
            assert_eq!(one == other, ones == others, "each set has one form");
        }
    }

    #[test]
    fn what_is_no_set_is_refused_and_sets_are_shown_as_redis_does() {
        for bytes in [&[1, 5, 5][..], &[2, 0, 5, 5, 6], &[2, 3, 4, 0, 1], &[1, 0, 129, 128, 1], &[1, 0]] {
            assert!(SlotSet::decode(&mut Decoder::new(bytes)).is_err(), "{bytes:?}");
        }
        assert_eq!(SlotSet::of([200..201, 0..100]).to_string(), "0-99,200");
        assert_eq!(SlotSet::all().count(), 16384);
    }

    #[test]
    fn sets_are_read_as_they_are_shown() {
        for text in ["0-99,200", "0-16383", "5"] {
            assert_eq!(text.parse::<SlotSet>().map(|slots| slots.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("3-5, 4-9".parse::<SlotSet>(), Ok(SlotSet::from(3..10)));
        for text in ["", "a", "9-3", "16384", "0-16384", "1,,2", "-1", "1-", "+1-2", "65536"] {
            assert_eq!(text.parse::<SlotSet>(), Err(NoSlots), "{text}");
        }
    }
}
