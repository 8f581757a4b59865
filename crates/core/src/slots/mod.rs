//! The slot of a key: CRC16 mod 16384 with hash tags, as Redis Cluster computes it, so that its
//! clients compute the same slots. The founding shards share the slots evenly, in order.

pub mod slot_map;
pub mod slot_revisions;
pub mod slot_set;

use core::ops::Range;
use crc::{CRC_16_XMODEM, Crc, Table};

use crate::slots::slot_set::SlotSet;
use crate::types::ShardId;

/// Number of hash slots (Redis Cluster specification).
pub const SLOTS: u16 = 16384;

/// Number of neighbouring slots whose requests are counted together.
pub const GROUP_SLOTS: u16 = 64;

/// A group of [`GROUP_SLOTS`] neighbouring slots, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotGroup(pub u8);

impl SlotGroup {
    /// The group of a slot.
    pub fn of(slot: u16) -> SlotGroup {
        SlotGroup((slot / GROUP_SLOTS) as u8)
    }

    /// Its slots.
    pub fn slots(self) -> Range<u16> {
        let first = u16::from(self.0) * GROUP_SLOTS;
        first..first + GROUP_SLOTS
    }
}

/// The checksum of the slot, sixteen bytes at a time: every operation hashes its key. A `static`,
/// because the table of a `const` may be copied for each use.
static CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_XMODEM);

/// The slot of a key. If the key has a non-empty hash tag `{…}`, only the first one is hashed, so
/// keys with the same tag share a shard.
pub fn slot_of(key: &[u8]) -> u16 {
    CRC16.checksum(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// The hash tag of a key, if it has a non-empty one.
pub fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    // Most keys have no tag, and `contains` looks at several bytes at a time.
    if !key.contains(&b'{') {
        return None;
    }
    let open = key.iter().position(|&byte| byte == b'{')?;
    let behind = &key[open + 1..];
    let length = behind.iter().position(|&byte| byte == b'}')?;
    (length > 0).then(|| &behind[..length])
}

/// The data shard that owns a slot, if `data_shards` founding shards, numbered from 1, share the
/// slots.
pub fn shard_of(slot: u16, data_shards: u64) -> ShardId {
    ShardId(1 + u64::from(slot) * data_shards / u64::from(SLOTS))
}

/// The slots that a data shard owns in that case.
pub fn slots_of(shard: ShardId, data_shards: u64) -> Range<u16> {
    let first = |index: u64| (index * u64::from(SLOTS)).div_ceil(data_shards) as u16;
    first(shard.0 - 1)..first(shard.0)
}

/// The slots of a shard before its first move: none, if it is not a founding shard.
pub(crate) fn founding_share(shard: ShardId, data_shards: u64) -> SlotSet {
    if (1..=data_shards).contains(&shard.0) {
        SlotSet::of([slots_of(shard, data_shards)])
    } else {
        SlotSet::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_agree_with_redis() {
        // Replies of Redis to `CLUSTER KEYSLOT`.
        assert_eq!(slot_of(b"123456789"), 12739);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b"somekey"), 11058);
        assert_eq!(slot_of(b"foo{hash_tag}"), 2515);
        assert_eq!(slot_of(b"bar{hash_tag}{other}"), 2515);
        assert_eq!(slot_of(b"{}foo"), CRC16.checksum(b"{}foo") % SLOTS);
        assert_eq!(slot_of(b"foo{bar"), CRC16.checksum(b"foo{bar") % SLOTS);
    }

    #[test]
    fn every_slot_is_in_one_group() {
        for slot in 0..SLOTS {
            assert!(SlotGroup::of(slot).slots().contains(&slot));
        }
        assert_eq!(SlotGroup::of(SLOTS - 1), SlotGroup(u8::MAX));
    }

    #[test]
    fn every_slot_has_one_shard_and_shares_are_even() {
        for data_shards in [1, 2, 3, 4, 7, 512] {
            let mut next = 0;
            for shard in 1..=data_shards {
                let slots = slots_of(ShardId(shard), data_shards);
                assert_eq!(slots.start, next);
                assert!(slots.clone().all(|slot| shard_of(slot, data_shards) == ShardId(shard)));
                let share = u64::from(SLOTS) / data_shards;
                assert!((share..=share + 1).contains(&(slots.len() as u64)));
                next = slots.end;
            }
            assert_eq!(next, SLOTS);
        }
    }
}
