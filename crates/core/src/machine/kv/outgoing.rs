//! Keys on their way out: what the leader of a shard copies to another one while clients go on writing.
//!
//! Owns where the copy stands. It walks the keys in their order; a key that changes behind it is copied again, or its removal.
//! Nothing of this is part of the state: a leader that is new begins anew, under the number of its own attempt.
//!
//! Invariants: a key of the slots that the walk has passed is at the receiver as it is here, or is marked as changed;
//! `rows` is how many such keys there are here.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

use super::{KeyValue, Record};
use crate::command::RestoredKey;
use crate::control::slot_set::SlotSet;
use crate::limits;
use crate::router::slots::slot_of;

/// A copy in the making.
#[derive(Debug)]
pub struct Outgoing {
    slots: SlotSet,
    /// All keys up to here are passed.
    reached: Option<Box<[u8]>>,
    /// All keys are passed.
    is_complete: bool,
    changed: BTreeSet<Box<[u8]>>,
    rows: u64,
}

/// What a change did to a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Replaced,
    Removed,
}

impl Outgoing {
    /// A key changed.
    pub(super) fn note(&mut self, key: &[u8], change: Change) {
        let is_passed = self.is_complete || self.reached.as_deref().is_some_and(|reached| key <= reached);
        if !is_passed || !self.slots.contains(slot_of(key)) {
            return;
        }
        match change {
            Change::Created => self.rows += 1,
            Change::Replaced => {}
            Change::Removed => self.rows -= 1,
        }
        if !self.changed.contains(key) {
            self.changed.insert(key.into());
        }
    }
}

impl KeyValue {
    /// Begins a copy of the keys of some slots.
    pub fn begin_outgoing(&mut self, slots: SlotSet) {
        self.outgoing = Some(Box::new(Outgoing {
            slots,
            reached: None,
            is_complete: false,
            changed: BTreeSet::new(),
            rows: 0,
        }));
    }

    /// Drops the copy.
    pub fn abandon_outgoing(&mut self) {
        self.outgoing = None;
    }

    /// How many keys are left to be copied again, once the walk is complete.
    pub fn outgoing_rest(&self) -> Option<usize> {
        let outgoing = self.outgoing.as_ref().filter(|outgoing| outgoing.is_complete)?;
        Some(outgoing.changed.len())
    }

    /// How many keys of the slots there are, once the walk is complete.
    pub fn outgoing_rows(&self) -> Option<u64> {
        let outgoing = self.outgoing.as_ref().filter(|outgoing| outgoing.is_complete)?;
        Some(outgoing.rows)
    }

    /// Goes on with the walk: looks at `limit` keys at most, returns those of the slots.
    pub fn walk_outgoing(&mut self, limit: usize) -> Vec<RestoredKey> {
        let Some(outgoing) = self.outgoing.as_deref().filter(|outgoing| !outgoing.is_complete) else {
            return Vec::new();
        };
        let start = outgoing.reached.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut rows, mut bytes, mut last) = (Vec::new(), 0, None);
        let mut ahead = self.records.from(start);
        for record in ahead.by_ref().take(limit) {
            last = Some(record.key());
            if outgoing.slots.contains(slot_of(record.key())) {
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
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.reached = last.or(outgoing.reached.take());
            outgoing.is_complete = is_complete;
            outgoing.rows += rows.len() as u64;
        }
        rows
    }

    /// Takes out at most `limit` of the keys that changed behind the walk: as they are now, and those that are no more.
    pub fn changed_outgoing(&mut self, limit: usize) -> (Vec<RestoredKey>, Vec<Bytes>) {
        let (mut rows, mut removals, mut bytes) = (Vec::new(), Vec::new(), 0);
        while bytes < limits::MOVE_PART_BYTES_CLOSE
            && rows.len() + removals.len() < limit
            && let Some(key) = self.outgoing.as_mut().and_then(|outgoing| outgoing.changed.pop_first())
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
        let (key, (version, value)) = (record.key(), record.behind_key());
        RestoredKey {
            key: Bytes::copy_from_slice(key),
            version,
            value: Bytes::copy_from_slice(value),
            expires: self.expiries.of(key),
        }
    }
}
