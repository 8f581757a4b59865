//! Iterations over all keys in steps, as Redis' `SCAN` makes them: the content of a cursor, and the
//! order of shards.
//!
//! A cursor has 64 bits: the position of a shard in the slot map (10 bits), the version of that map
//! (14 bits), and the position inside the shard (40 bits, see `machine::kv`). It is valid on every
//! node and after every restart; no node stores the state of an iteration.
//!
//! Why an iteration misses no key that exists from its beginning to its end: all steps use one
//! version of the map, and a step counts only if its shard owned exactly the slots that this
//! version gives it (`router::reads`). So each slot is read from the shard that owned it at that
//! moment, however old the map is. An iteration that meets another version starts over, because
//! keys may have moved to shards that it has passed. It then returns keys twice, as `SCAN` may.

use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::command::{Read, Reply};
use crate::limits::{SCAN_PLACE_BITS as PLACE_BITS, SHARDS_MAX};
use crate::slots::slot_map::SlotMap;
use crate::types::ShardId;

/// Bits of a cursor for the version of the map. An iteration does not notice exactly 2^14 changes
/// of the map between two of its steps; that many moves take hours.
const VERSION_BITS: u32 = 14;

const _: () =
    assert!(SHARDS_MAX <= 1 << (u64::BITS - VERSION_BITS - PLACE_BITS), "a cursor names every shard");

/// One iteration, before its next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The map that all steps use.
    slots: Arc<SlotMap>,
    /// The shards of that map, in order.
    shards: Vec<ShardId>,
    /// Position in `shards` of the next shard; past the last one, the iteration is complete.
    position: usize,
    /// Position in that shard at which the last step ended.
    place: u64,
    /// The only shards to read; `None`: all.
    only: Option<Vec<ShardId>>,
}

/// The result of one step of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// Keys of one shard, in byte order. There may be none, even before the end.
    Keys(Vec<Bytes>),
    /// No keys: the map has changed, and the iteration starts over.
    StartedOver,
    /// No keys: the store gave this reply.
    Failed(Reply),
}

/// A cursor that no iteration returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such cursor")]
pub struct InvalidCursor;

impl Scan {
    /// Continues the iteration of a cursor, or starts one at 0. It starts over if the cursor is of
    /// another map than `slots`.
    pub fn resume(cursor: u64, slots: Arc<SlotMap>) -> Result<Scan, InvalidCursor> {
        let mut scan = Scan { shards: slots.shards(), slots, position: 0, place: 0, only: None };
        if cursor != 0 && version_of(cursor) == scan.slots.version & mask(VERSION_BITS) {
            scan.position = (cursor >> (VERSION_BITS + PLACE_BITS)) as usize;
            scan.place = cursor & mask(PLACE_BITS);
        }
        if scan.is_complete() { Err(InvalidCursor) } else { Ok(scan) }
    }

    /// Restricts the iteration to some shards. A shard that is partly read is still read to its
    /// end.
    pub fn only(mut self, shards: Vec<ShardId>) -> Scan {
        self.only = Some(shards);
        self.pass_others();
        self
    }

    /// The cursor with which a client continues; 0 if nothing is left.
    pub fn cursor(&self) -> u64 {
        if self.is_complete() {
            return 0;
        }
        let shard = (self.position as u64) << (VERSION_BITS + PLACE_BITS);
        shard | (self.slots.version & mask(VERSION_BITS)) << PLACE_BITS | self.place
    }

    /// Whether every shard was read to its end.
    pub fn is_complete(&self) -> bool {
        self.position >= self.shards.len()
    }

    /// Whether the last step ended before the end of its shard.
    pub fn is_inside_shard(&self) -> bool {
        self.place != 0
    }

    /// The next step, of about `count` keys.
    ///
    /// # Panics
    /// If the iteration is complete.
    pub fn read(&self, count: usize) -> Read {
        let shard = self.shards[self.position];
        Read::Scan { shard, after: self.place, count, version: self.slots.version }
    }

    /// Handles the reply to [`Scan::read`]. `slots` is the current map.
    pub fn take(&mut self, reply: Reply, slots: Arc<SlotMap>) -> ScanStep {
        match reply {
            Reply::Scanned { keys, next } => {
                self.position += usize::from(next.is_none());
                self.place = next.unwrap_or(0);
                self.pass_others();
                ScanStep::Keys(keys)
            }
            Reply::SlotsMoved => {
                let only = self.only.take();
                *self = Scan { shards: slots.shards(), slots, position: 0, place: 0, only };
                self.pass_others();
                ScanStep::StartedOver
            }
            other => ScanStep::Failed(other),
        }
    }

    /// Skips to the next shard that should be read.
    fn pass_others(&mut self) {
        let Some(only) = &self.only else { return };
        while self.place == 0 && self.shards.get(self.position).is_some_and(|shard| !only.contains(shard)) {
            self.position += 1;
        }
    }
}

fn version_of(cursor: u64) -> u64 {
    cursor >> PLACE_BITS & mask(VERSION_BITS)
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::slot_set::SlotSet;
    use crate::types::MigrationId;
    use alloc::vec;

    fn founded(shards: u64) -> Arc<SlotMap> {
        Arc::new(SlotMap::founded(shards))
    }

    fn changed(mut slots: Arc<SlotMap>) -> Arc<SlotMap> {
        let all = SlotSet::all();
        Arc::make_mut(&mut slots).give(MigrationId(1), &all, (ShardId(1), ShardId(2)));
        slots
    }

    fn keys(next: Option<u64>) -> Reply {
        Reply::Scanned { keys: vec![Bytes::from_static(b"k")], next }
    }

    #[test]
    fn an_iteration_reads_every_shard_to_its_end() {
        let slots = founded(2);
        let mut scan = Scan::resume(0, slots.clone()).unwrap();
        for (shard, after, next) in [(1, 0, Some(7)), (1, 7, None), (2, 0, Some(9)), (2, 9, None)] {
            let expected = Read::Scan { shard: ShardId(shard), after, count: 10, version: 1 };
            assert_eq!(scan.read(10), expected);
            assert!(matches!(scan.take(keys(next), slots.clone()), ScanStep::Keys(_)));
            if !scan.is_complete() {
                assert_eq!(Scan::resume(scan.cursor(), slots.clone()), Ok(scan.clone()), "a cursor says all");
            }
        }
        assert!(scan.is_complete());
        assert_eq!(scan.cursor(), 0);
    }

    #[test]
    fn an_iteration_that_meets_another_map_starts_over() {
        let (before, after) = (founded(3), changed(founded(3)));
        let mut scan = Scan::resume(0, before.clone()).unwrap();
        scan.take(keys(None), before.clone());
        let cursor = scan.cursor();
        assert_eq!(scan.take(Reply::SlotsMoved, after.clone()), ScanStep::StartedOver);
        assert_eq!(scan, Scan::resume(0, after.clone()).unwrap());
        assert_eq!(Scan::resume(cursor, after.clone()), Scan::resume(0, after), "on another node");
    }

    #[test]
    fn an_iteration_over_some_shards_passes_the_others() {
        let slots = founded(4);
        let mut scan = Scan::resume(0, slots.clone()).unwrap().only(vec![ShardId(2), ShardId(3)]);
        assert!(matches!(scan.read(1), Read::Scan { shard: ShardId(2), .. }));
        scan.take(keys(Some(5)), slots.clone());
        // The shard has a new leader on another node, but a scan that began here finishes here.
        let mut scan = Scan::resume(scan.cursor(), slots.clone()).unwrap().only(vec![ShardId(4)]);
        assert!(matches!(scan.read(1), Read::Scan { shard: ShardId(2), after: 5, .. }));
        scan.take(keys(None), slots.clone());
        assert!(matches!(scan.read(1), Read::Scan { shard: ShardId(4), .. }));
        scan.take(keys(None), slots.clone());
        assert_eq!(scan.cursor(), 0);
        assert_eq!(Scan::resume(0, slots).unwrap().only(vec![]).cursor(), 0);
    }

    #[test]
    fn a_cursor_of_no_shard_is_refused() {
        let slots = founded(2);
        assert_eq!(
            Scan::resume(2 << (VERSION_BITS + PLACE_BITS) | 1 << PLACE_BITS, slots),
            Err(InvalidCursor)
        );
    }

    #[test]
    fn every_shard_there_may_be_has_a_cursor() {
        let slots = founded(SHARDS_MAX);
        let mut scan = Scan::resume(0, slots.clone()).unwrap();
        for _ in 1..SHARDS_MAX {
            scan.take(keys(None), slots.clone());
        }
        scan.take(keys(Some(mask(PLACE_BITS))), slots.clone());
        assert_eq!(Scan::resume(scan.cursor(), slots), Ok(scan));
    }
}
