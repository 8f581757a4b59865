//! Keys that come from another shard, and keys that go.
//!
//! Owns how they get into the table and out of it without being anybody's write: their versions are the giver's, removing
//! them takes no revision, and a snapshot in the making shows what it began with.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

use super::outgoing::Change;
use super::ownership::{Arrival, Stage};
use super::{Kept, KeyValue, Record};
use crate::command::RestoredKey;
use crate::control::slot_set::SlotSet;
use crate::limits;
use crate::router::slots::slot_of;
use crate::types::Version;

impl KeyValue {
    /// Puts keys of a copy in place, and takes others out.
    pub(in crate::machine) fn import(&mut self, rows: &[RestoredKey], removals: &[Bytes]) {
        let mut created = 0;
        for row in rows {
            let key = &row.key[..];
            let old = self.records.replace(Record::new(key, row.version, &row.value));
            let expires = self.expiries.set(key, row.expires);
            let change = if old.is_none() { Change::Created } else { Change::Replaced };
            if change == Change::Created {
                self.rests.created(key);
                created += 1;
            }
            self.keep(key, old.map(|record| Kept { record, expires }));
            self.note(key, change);
        }
        if let Some(Stage::Arriving(Arrival { rows, .. })) = self.stage_mut() {
            *rows += created;
        }
        for key in removals {
            self.take_out(key);
        }
    }

    /// No version up to `revision` is given out any more. The state comes from elsewhere, so not from one backup alone.
    pub(in crate::machine) fn lift(&mut self, revision: Version) {
        self.revision = self.revision.max(revision);
        self.restoring = None;
    }

    /// Removes keys of these slots behind the place `swept`, looking at `limit` keys at most. Returns up to where they are
    /// removed; `None` when all are.
    pub(in crate::machine) fn sweep(
        &mut self,
        slots: &SlotSet,
        swept: Option<&[u8]>,
        limit: usize,
    ) -> Option<Box<[u8]>> {
        let start = swept.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut gone, mut last): (Vec<Box<[u8]>>, _) = (Vec::new(), None);
        let mut ahead = self.records.from(start).map(Record::key);
        for key in ahead.by_ref().take(limit) {
            last = Some(key);
            if slots.contains(slot_of(key)) {
                gone.push(key.into());
                if gone.len() == limits::EXPIRED_KEYS_MAX {
                    break;
                }
            }
        }
        let is_over = ahead.next().is_none();
        let last: Option<Box<[u8]>> = last.map(Box::from);
        gone.iter().for_each(|key| drop(self.take_out(key)));
        last.filter(|_| !is_over)
    }

    /// How far the move that comes to or from this shard is.
    pub(in crate::machine) fn stage_mut(&mut self) -> Option<&mut Stage> {
        Some(&mut self.ownership.as_mut()?.stage)
    }
}
