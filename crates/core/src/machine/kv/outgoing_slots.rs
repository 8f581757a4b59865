//! Copying keys to another shard while clients continue to write. The leader of the giver does
//! this.
//!
//! Owns the progress of the copy. It walks the keys in order. When a key changes after the walk has
//! passed it, the copy sends it again, or its removal. The copy is not part of the replicated
//! state: a new leader starts again, with its own attempt number.
//!
//! Invariants: a key of the slots that the walk has passed is either current at the receiver or
//! marked as changed. `rows` is the number of such keys here.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

use super::flush::FlushedKeys;
use super::{KeyValue, Record};
use crate::command::RestoredKey;
use crate::limits;
use crate::slots::slot_of;
use crate::slots::slot_set::SlotSet;

/// An unfinished copy of slots for another shard.
#[derive(Debug)]
pub struct OutgoingSlots {
    slots: SlotSet,
    /// The walk has passed all keys up to here.
    reached: Option<Box<[u8]>>,
    /// The walk has passed all keys.
    is_complete: bool,
    changed: BTreeSet<Box<[u8]>>,
    /// Keys that a flush has removed, and which of them were looked at since. The receiver may have
    /// them.
    flushed: VecDeque<FlushedWalk>,
    rows: u64,
}

/// A walk over the keys of a flush, up to the key that the copy had reached.
#[derive(Debug)]
struct FlushedWalk {
    keys: Arc<FlushedKeys>,
    after: Option<Box<[u8]>>,
    /// `None`: all keys.
    until: Option<Box<[u8]>>,
    left: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyChange {
    Created,
    Replaced,
    Removed,
}

impl OutgoingSlots {
    /// Records a change of a key.
    pub(super) fn note(&mut self, key: &[u8], change: KeyChange) {
        let is_passed = self.is_complete || self.reached.as_deref().is_some_and(|reached| key <= reached);
        if !is_passed || !self.slots.contains(slot_of(key)) {
            return;
        }
        match change {
            KeyChange::Created => self.rows += 1,
            KeyChange::Replaced => {}
            KeyChange::Removed => self.rows -= 1,
        }
        if !self.changed.contains(key) {
            self.changed.insert(key.into());
        }
    }

    /// All keys were removed; these were there before.
    pub(super) fn flushed(&mut self, keys: &Arc<FlushedKeys>) {
        self.rows = 0;
        let until = if self.is_complete { None } else { self.reached.clone() };
        let (keys, left) = (keys.clone(), keys.records.len());
        // If the walk has not begun, the receiver has none of them.
        if left > 0 && (self.is_complete || until.is_some()) {
            self.flushed.push_back(FlushedWalk { keys, after: None, until, left });
        }
    }

    /// Marks keys of a flush as changed, so that they are sent as what they are now. Inspects at
    /// most `limit` of them.
    fn mark_flushed(&mut self, limit: usize) {
        let Some(walk) = self.flushed.front_mut() else { return };
        let start = walk.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let is_passed = |key: &[u8]| walk.until.as_deref().is_none_or(|until| key <= until);
        let mut ahead = walk.keys.records.from(start).map(Record::key).take_while(|key| is_passed(key));
        let mut last = None;
        for key in ahead.by_ref().take(limit) {
            last = Some(key);
            walk.left -= 1;
            if self.slots.contains(slot_of(key)) {
                self.changed.insert(key.into());
            }
        }
        let is_over = ahead.next().is_none();
        walk.after = last.map(Box::from);
        if is_over {
            self.flushed.pop_front();
        }
    }

    /// Number of keys to send again, at most.
    fn rest(&self) -> usize {
        self.changed.len() + self.flushed.iter().map(|walk| walk.left).sum::<usize>()
    }
}

impl KeyValue {
    /// Begins a copy of the keys of some slots.
    pub fn begin_outgoing(&mut self, slots: SlotSet) {
        self.outgoing_slots = Some(Box::new(OutgoingSlots {
            slots,
            reached: None,
            is_complete: false,
            changed: BTreeSet::new(),
            flushed: VecDeque::new(),
            rows: 0,
        }));
    }

    /// Drops the copy.
    pub fn abandon_outgoing(&mut self) {
        self.outgoing_slots = None;
    }

    /// Number of keys to send again; `None` until the walk is complete.
    pub fn outgoing_rest(&self) -> Option<usize> {
        let outgoing_slots =
            self.outgoing_slots.as_ref().filter(|outgoing_slots| outgoing_slots.is_complete)?;
        Some(outgoing_slots.rest())
    }

    /// Number of keys in the slots; `None` until the walk is complete.
    pub fn outgoing_rows(&self) -> Option<u64> {
        let outgoing_slots =
            self.outgoing_slots.as_ref().filter(|outgoing_slots| outgoing_slots.is_complete)?;
        Some(outgoing_slots.rows)
    }

    /// Continues the walk: inspects at most `limit` keys and returns those of the slots.
    pub fn walk_outgoing(&mut self, limit: usize) -> Vec<RestoredKey> {
        let Some(outgoing_slots) =
            self.outgoing_slots.as_deref().filter(|outgoing_slots| !outgoing_slots.is_complete)
        else {
            return Vec::new();
        };
        let start = outgoing_slots.reached.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut rows, mut bytes, mut last) = (Vec::new(), 0, None);
        let mut ahead = self.records.from(start);
        for record in ahead.by_ref().take(limit) {
            last = Some(record.key());
            if outgoing_slots.slots.contains(slot_of(record.key())) {
                let row = self.row(record);
                bytes += row.key.len() + row.value.len();
                rows.push(row);
                if bytes >= limits::MOVE_PART_BYTES_CLOSE {
                    break;
                }
            }
        }
        let is_complete = ahead.next().is_none();
        let last: Option<Box<[u8]>> = last.map(Box::from);
        if let Some(outgoing_slots) = &mut self.outgoing_slots {
            outgoing_slots.reached = last.or(outgoing_slots.reached.take());
            outgoing_slots.is_complete = is_complete;
            outgoing_slots.rows += rows.len() as u64;
        }
        rows
    }

    /// Takes at most `limit` keys that changed after the walk passed them: their current records,
    /// and the keys that no longer exist.
    pub fn changed_outgoing(&mut self, limit: usize) -> (Vec<RestoredKey>, Vec<Bytes>) {
        let (mut rows, mut removals, mut bytes) = (Vec::new(), Vec::new(), 0);
        if let Some(outgoing_slots) = self.outgoing_slots.as_mut().filter(|copy| copy.changed.is_empty()) {
            outgoing_slots.mark_flushed(limit);
        }
        while bytes < limits::MOVE_PART_BYTES_CLOSE
            && rows.len() + removals.len() < limit
            && let Some(key) =
                self.outgoing_slots.as_mut().and_then(|outgoing_slots| outgoing_slots.changed.pop_first())
        {
            match self.records.get(&key) {
                Some(record) => {
                    let row = self.row(record);
                    bytes += row.key.len() + row.value.len();
                    rows.push(row);
                }
                None => {
                    bytes += key.len();
                    removals.push(Bytes::from(key));
                }
            }
        }
        (rows, removals)
    }

    fn row(&self, record: &Record) -> RestoredKey {
        let (key, (version, value)) = (record.key(), record.version_and_value());
        RestoredKey {
            key: Bytes::copy_from_slice(key),
            version,
            value: Bytes::copy_from_slice(value),
            expires: self.expiries.of(key),
            lease: self.leases.of_key(key),
        }
    }
}
