//! Cursor positions of scans: a number of 40 bits names a position on every replica and after every
//! restart.
//!
//! The cursor of Redis' `SCAN` is a number, and no node may have to remember its meaning. A key
//! does not fit into a number, but its hash does. Finding a key by its hash takes an index, and an
//! index of all keys would cost a third of their memory. So only keys whose hash is a multiple of
//! [`SCAN_CURSOR_ONE_IN`] are indexed, and a step of a scan continues until it meets one. The index
//! is derived from the keys alone, so scans are not part of the state.
//!
//! If the key of a cursor is removed before the scan continues, its hash and position are
//! remembered for a while. After that, or on another node, the scan starts the shard again. It then
//! returns keys twice, which `SCAN` may do, and misses none, which it may not.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

use super::{KeyValue, Record};
use crate::command::{ScanStep, ShardRefusal};
use crate::limits::SCAN_PLACE_BITS as PLACE_BITS;
use crate::limits::{LIST_PAGE_BYTES_MAX, SCAN_CURSOR_ONE_IN, SCAN_KEYS_MAX};

/// Number of remembered positions of removed keys. Scans that remove the keys that they find are
/// common.
const REMOVED_MAX: usize = 4_096;

/// Keys at which a step can end, by hash.
#[derive(Debug, Default)]
pub(super) struct ScanCursorIndex {
    places: BTreeMap<u64, Box<[u8]>>,
    removed: BTreeMap<u64, Box<[u8]>>,
    /// In the order of removal.
    removals: VecDeque<u64>,
}

impl ScanCursorIndex {
    /// Adds a new key.
    pub fn created(&mut self, key: &[u8]) {
        if let Some(place) = place_of(key) {
            // If two keys have the same hash, which is practically impossible, the first one is the
            // position.
            self.places.entry(place).or_insert_with(|| key.into());
        }
    }

    /// Records the removal of a key.
    pub fn removed(&mut self, key: &[u8]) {
        let Some(place) = place_of(key) else { return };
        if self.places.get(&place).is_some_and(|held| **held == *key)
            && let Some(key) = self.places.remove(&place)
            && self.removed.insert(place, key).is_none()
        {
            self.removals.push_back(place);
            if self.removals.len() > REMOVED_MAX
                && let Some(oldest) = self.removals.pop_front()
            {
                self.removed.remove(&oldest);
            }
        }
    }

    /// Frees a position. Returns whether there was one.
    pub fn pop_first(&mut self) -> bool {
        self.places.pop_first().is_some()
    }

    /// The key of a position, which may have been removed.
    fn key_at(&self, place: u64) -> Option<&[u8]> {
        self.places.get(&place).or_else(|| self.removed.get(&place)).map(|key| &**key)
    }

    /// The position of a key, if a step can end there.
    fn place_at(&self, key: &[u8]) -> Option<u64> {
        place_of(key).filter(|place| self.places.get(place).is_some_and(|held| **held == *key))
    }
}

impl KeyValue {
    /// One step of a scan.
    pub(in crate::machine) fn scan(&self, after: u64, count: usize) -> Result<ScanStep, ShardRefusal> {
        let start = self.scan_cursors.key_at(after).map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys: Vec<Bytes> = Vec::new();
        let mut step_bytes = 0;
        let ownership_filter = self.ownership_filter();
        for (looked_at, key) in self.records.from(start).map(Record::key).enumerate() {
            if looked_at == SCAN_KEYS_MAX {
                return Err(ShardRefusal::invalid(
                    "100,000 keys in a row have one scan position, as only keys chosen for it do; list them instead",
                ));
            }
            step_bytes += key.len();
            if ownership_filter.is_none_or(|ownership| ownership.owns(key)) {
                keys.push(Bytes::copy_from_slice(key));
            }
            if (looked_at + 1 >= count || step_bytes >= LIST_PAGE_BYTES_MAX)
                && let Some(place) = self.scan_cursors.place_at(key)
            {
                return Ok(ScanStep { keys, next: Some(place) });
            }
        }
        Ok(ScanStep { keys, next: None })
    }
}

/// The position of a key, if it has one. Never 0, at which a scan begins.
fn place_of(key: &[u8]) -> Option<u64> {
    let low = crc32c::crc32c(key);
    if u64::from(low) % SCAN_CURSOR_ONE_IN != 0 {
        return None;
    }
    // The second half starts from another value, so both halves are practically independent.
    let high = crc32c::crc32c_append(!low.rotate_left(7), key);
    let place = (u64::from(high) << 32 | u64::from(low)) & ((1 << PLACE_BITS) - 1);
    (place != 0).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Condition;
    use alloc::collections::BTreeSet;
    use alloc::format;

    fn filled(keys: u32) -> KeyValue {
        let mut kv = KeyValue::default();
        for number in 0..keys {
            kv.put(format!("key:{number:07}").as_bytes(), b"v", Condition::Always);
        }
        kv
    }

    /// Scans all keys and calls `meanwhile` after each step. Returns the keys met, with
    /// repetitions, and the number of steps.
    fn walk(kv: &mut KeyValue, mut meanwhile: impl FnMut(&mut KeyValue, &[Bytes])) -> (Vec<Bytes>, usize) {
        let (mut met, mut after) = (Vec::new(), 0);
        for steps in 1.. {
            let ScanStep { keys, next } = kv.scan(after, 10).expect("a step");
            meanwhile(kv, &keys);
            met.extend(keys);
            match next {
                Some(next) => after = next,
                None => return (met, steps),
            }
            assert!(steps < 100_000, "a walk comes to an end");
        }
        unreachable!("steps are counted without end")
    }

    #[test]
    fn a_walk_meets_every_key_once_in_steps() {
        let mut kv = filled(10_000);
        let (met, steps) = walk(&mut kv, |_, _| ());
        assert_eq!(met.len(), 10_000);
        assert_eq!(met.iter().collect::<BTreeSet<_>>().len(), 10_000);
        assert!((80..300).contains(&steps), "{steps} steps");
        assert_eq!(walk(&mut KeyValue::default(), |_, _| ()), (Vec::new(), 1));
    }

    #[test]
    fn places_do_not_depend_on_how_the_state_came_about() {
        let (there, mut back) = (filled(3_000), KeyValue::default());
        for number in (0..4_000).rev() {
            back.put(format!("key:{number:07}").as_bytes(), b"w", Condition::Always);
        }
        for number in 3_000..4_000 {
            back.delete(format!("key:{number:07}").as_bytes(), Condition::Always);
        }
        assert_eq!(there.scan_cursors.places, back.scan_cursors.places);
    }

    #[test]
    fn a_walk_that_removes_what_it_meets_goes_on() {
        let mut kv = filled(10_000);
        let (met, steps) = walk(&mut kv, |kv, keys| {
            keys.iter().for_each(|key| drop(kv.delete(key, Condition::Always)));
        });
        assert_eq!((met.len(), kv.record_count()), (10_000, 0));
        assert!(steps < 300, "{steps} steps");
    }

    #[test]
    fn a_walk_whose_place_was_forgotten_begins_anew_and_misses_nothing() {
        let mut kv = filled(10_000);
        let mut forgotten = 0;
        let (met, _) = walk(&mut kv, |kv, keys| {
            if forgotten < 3
                && let Some(last) = keys.last()
            {
                kv.delete(last, Condition::Always);
                kv.scan_cursors.removed.clear();
                kv.scan_cursors.removals.clear();
                forgotten += 1;
            }
        });
        assert_eq!(met.iter().collect::<BTreeSet<_>>().len(), 10_000);
        assert!(met.len() > 10_000);
    }

    #[test]
    fn what_is_remembered_of_removed_places_is_bounded() {
        let mut kv = filled(500_000);
        for number in 0..500_000 {
            kv.delete(format!("key:{number:07}").as_bytes(), Condition::Always);
        }
        assert_eq!(kv.scan_cursors.removals.len(), REMOVED_MAX);
        assert_eq!(kv.scan_cursors.removed.len(), REMOVED_MAX);
    }
}
