//! The slot map: which shard holds which hash slots.
//!
//! Owns the map as a value. [`slots`](super) computes the slot of a key.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::codec::{self, DecodeError, Decoder};
use crate::slots::slot_set::SlotSet;
use crate::slots::{SLOTS, slots_of};
use crate::types::{MigrationId, ShardId};

/// Every slot has exactly one shard. Ranges are in order and without gaps, and neighbouring ranges
/// have different shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotMap {
    /// 1 at the founding; rises by one with each finished move.
    pub version: u64,
    /// First slot and shard of each range.
    ranges: Vec<(u16, ShardId)>,
    /// The last move that changed each shard's slots here. Shards that hold their founding slots
    /// are not listed.
    moves: BTreeMap<ShardId, MigrationId>,
}

impl SlotMap {
    /// The initial map: the founding shards share the slots evenly, in order.
    pub fn founded(data_shards: u64) -> SlotMap {
        let first = |shard| (slots_of(shard, data_shards).start, shard);
        let ranges = (1..=data_shards).map(ShardId).map(first).collect();
        SlotMap { version: 1, ranges, moves: BTreeMap::new() }
    }

    /// The shard that holds a slot.
    pub fn shard_of(&self, slot: u16) -> ShardId {
        let behind = self.ranges.partition_point(|(first, _)| *first <= slot);
        self.ranges[behind - 1].1
    }

    /// Ranges of slots and their shards, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (Range<u16>, ShardId)> {
        let ends = self.ranges.iter().skip(1).map(|(first, _)| *first).chain([SLOTS]);
        self.ranges.iter().zip(ends).map(|(&(first, shard), end)| (first..end, shard))
    }

    /// Number of slots that a shard holds.
    pub fn count(&self, shard: ShardId) -> u16 {
        let own = self.ranges().filter(|(_, owner)| *owner == shard);
        own.map(|(range, _)| range.end - range.start).sum()
    }

    /// The slots that a shard holds.
    pub fn share(&self, shard: ShardId) -> SlotSet {
        SlotSet::of(self.ranges().filter(|(_, owner)| *owner == shard).map(|(range, _)| range))
    }

    /// The last move that a replica of the shard must have applied to hold what the map says. An
    /// older replica may lack keys, or may show the state from before a key moved away and back.
    pub fn last_move(&self, shard: ShardId) -> MigrationId {
        self.moves.get(&shard).copied().unwrap_or_default()
    }

    /// Assigns slots to another shard, by this move.
    pub(crate) fn give(&mut self, id: MigrationId, slots: &SlotSet, (from, to): (ShardId, ShardId)) {
        self.moves.extend([(from, id), (to, id)]);
        let mut owners: Vec<(Range<u16>, ShardId)> = Vec::new();
        for (range, shard) in self.ranges() {
            let kept = SlotSet::of([range]).without(slots);
            owners.extend(kept.ranges().iter().cloned().map(|range| (range, shard)));
        }
        owners.extend(slots.ranges().iter().cloned().map(|range| (range, to)));
        owners.sort_unstable_by_key(|(range, _)| range.start);
        self.version += 1;
        self.ranges = owners.into_iter().map(|(range, shard)| (range.start, shard)).collect();
        self.ranges.dedup_by_key(|(_, shard)| *shard);
    }

    /// Forgets a removed shard.
    pub(crate) fn forget(&mut self, shard: ShardId) {
        self.moves.remove(&shard);
    }

    /// The shards that hold slots, by number.
    pub fn shards(&self) -> Vec<ShardId> {
        let mut shards: Vec<ShardId> = self.ranges.iter().map(|(_, shard)| *shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.version);
        codec::put_varint(out, self.ranges.len() as u64);
        for (first, shard) in &self.ranges {
            codec::put_varint(out, u64::from(*first));
            codec::put_varint(out, shard.0);
        }
        codec::put_varint(out, self.moves.len() as u64);
        for (shard, id) in &self.moves {
            codec::put_varint(out, shard.0);
            codec::put_varint(out, id.0);
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<SlotMap, DecodeError> {
        let version = decoder.varint()?;
        let mut ranges: Vec<(u16, ShardId)> = Vec::new();
        for position in 0..decoder.bounded(SLOTS.into(), "number of ranges")? {
            let first = decoder.bounded(u64::from(SLOTS) - 1, "slot")? as u16;
            let is_next = ranges.last().map_or(first == 0, |(last, _)| *last < first);
            if !is_next || (position == 0) != ranges.is_empty() {
                return Err(DecodeError::Invalid("order of slots"));
            }
            ranges.push((first, ShardId(decoder.varint()?)));
        }
        let count = decoder.varint()?;
        let moves = (0..count).map(|_| Ok((ShardId(decoder.varint()?), MigrationId(decoder.varint()?))));
        Ok(SlotMap { version, ranges, moves: moves.collect::<Result<_, DecodeError>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_go_where_they_are_given() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut map = SlotMap::founded(3);
        for version in 2..200 {
            let before = map.clone();
            let start = random.u16(..SLOTS);
            let slots = SlotSet::of([start..start + random.u16(1..=SLOTS - start), 0..random.u16(..9)]);
            let to = ShardId(random.u64(1..6));
            map.give(MigrationId(version), &slots, (ShardId(9), to));
            assert_eq!(map.last_move(to), MigrationId(version));
            assert_eq!(map.version, version);
            for slot in 0..SLOTS {
                let wanted = if slots.contains(slot) { to } else { before.shard_of(slot) };
                assert_eq!(map.shard_of(slot), wanted);
            }
            assert!(map.ranges.windows(2).all(|pair| pair[0].1 != pair[1].1), "neighbours differ");
            assert_eq!(map.share(to).count(), u32::from(map.count(to)));
        }
    }

    #[test]
    fn founding_shards_share_all_slots_and_the_map_round_trips() {
        for shards in [1, 4, 7] {
            let map = SlotMap::founded(shards);
            assert_eq!(map.shards(), (1..=shards).map(ShardId).collect::<Vec<_>>());
            assert_eq!(map.shards().iter().map(|&shard| u32::from(map.count(shard))).sum::<u32>(), 16384);
            for (range, shard) in map.ranges() {
                assert_eq!((map.shard_of(range.start), map.shard_of(range.end - 1)), (shard, shard));
            }
            let mut map = map;
            map.give(MigrationId(300), &SlotSet::from(0..2), (ShardId(1), ShardId(9)));
            let mut bytes = Vec::new();
            map.encode(&mut bytes);
            assert_eq!(SlotMap::decode(&mut Decoder::new(&bytes)), Ok(map));
        }
        assert!(SlotMap::decode(&mut Decoder::new(&[1, 1, 5, 1])).is_err(), "the first slot has no shard");
    }
}
