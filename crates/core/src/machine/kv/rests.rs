//! Where a walk over all keys can rest, so that 40 bits name the place on every replica and after
//! every restart.
//!
//! The cursor of Redis' `SCAN` is a number, and nobody may have to remember what it stands for. A key does not fit into a number, its
//! hash does; but finding a key by its hash takes an index, and one of all keys would cost a third of their memory. So only
//! keys whose hash is a multiple of [`SCAN_REST_ONE_IN`] are indexed, and a step of a walk goes on until it meets one. Which keys these
//! are follows from the keys alone: nothing about a walk is part of the state.
//!
//! If the key at which a walk rests is removed before the walk goes on, its hash is remembered for a while with the place at
//! which it stood; after that, or on another node, the walk begins the shard anew. It then meets keys twice, which `SCAN` may,
//! and misses none, which it may not.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

use super::{KeyValue, Record};
use crate::command::{Refusal, Reply};
use crate::limits::{LIST_PAGE_BYTES_MAX, SCAN_KEYS_MAX, SCAN_REST_ONE_IN};
use crate::scan::PLACE_BITS;

/// Removed places that are remembered: walks that remove what they meet are common.
const REMOVED_MAX: usize = 4_096;

/// Keys at which a walk can rest, by hash.
#[derive(Debug, Default)]
pub(super) struct Rests {
    places: BTreeMap<u64, Box<[u8]>>,
    removed: BTreeMap<u64, Box<[u8]>>,
    /// In the order of their removal.
    removals: VecDeque<u64>,
}

impl Rests {
    /// A key is there now that was not.
    pub fn created(&mut self, key: &[u8]) {
        if let Some(place) = place_of(key) {
            // Of two keys with one hash, which is all but impossible, the first is the place of rest.
            self.places.entry(place).or_insert_with(|| key.into());
        }
    }

    /// A key is there no more.
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

    /// The key that stands, or stood, at a place.
    fn key_at(&self, place: u64) -> Option<&[u8]> {
        self.places.get(&place).or_else(|| self.removed.get(&place)).map(|key| &**key)
    }

    /// The place at a key, if a walk can rest there.
    fn place_at(&self, key: &[u8]) -> Option<u64> {
        place_of(key).filter(|place| self.places.get(place).is_some_and(|held| **held == *key))
    }
}

impl KeyValue {
    /// One step of a walk.
    pub(super) fn scan(&self, after: u64, count: usize) -> Reply {
        let start = self.rests.key_at(after).map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys: Vec<Bytes> = Vec::new();
        let mut step_bytes = 0;
        let veil = self.veil();
        for (looked_at, key) in self.records.from(start).map(Record::key).enumerate() {
            if looked_at == SCAN_KEYS_MAX {
                return Reply::Refused(Refusal::Invalid(
                    "no place of rest in 100,000 keys, which only keys chosen for it bring about; list them instead",
                ));
            }
            step_bytes += key.len();
            if veil.is_none_or(|ownership| ownership.owns(key)) {
                keys.push(Bytes::copy_from_slice(key));
            }
            if (looked_at + 1 >= count || step_bytes >= LIST_PAGE_BYTES_MAX)
                && let Some(place) = self.rests.place_at(key)
            {
                return Reply::Scanned { keys, next: Some(place) };
            }
        }
        Reply::Scanned { keys, next: None }
    }
}

/// The place that a key stands for, if it stands for one: never 0, which is where a walk begins.
fn place_of(key: &[u8]) -> Option<u64> {
    let low = crc32c::crc32c(key);
    if u64::from(low) % SCAN_REST_ONE_IN != 0 {
        return None;
    }
    // The second half goes on from another start, so the two together are as good as independent.
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

    /// Walks over all keys; calls `meanwhile` behind each step. Returns how often each key was met, and how many steps it took.
    fn walk(kv: &mut KeyValue, mut meanwhile: impl FnMut(&mut KeyValue, &[Bytes])) -> (Vec<Bytes>, usize) {
        let (mut met, mut after) = (Vec::new(), 0);
        for steps in 1.. {
            let Reply::Scanned { keys, next } = kv.scan(after, 10) else { panic!("a step") };
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
        assert_eq!(there.rests.places, back.rests.places);
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
                kv.rests.removed.clear();
                kv.rests.removals.clear();
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
        assert_eq!(kv.rests.removals.len(), REMOVED_MAX);
        assert_eq!(kv.rests.removed.len(), REMOVED_MAX);
    }
}
