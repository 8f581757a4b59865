//! Keys that a move of slots brings to this shard or removes from it.
//!
//! These changes are not writes of clients: the keys keep the giver's versions, removals take no
//! revision, and an unfinished snapshot still shows the state at its beginning.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

use super::outgoing_slots::KeyChange;
use super::ownership::{IncomingSlots, Stage};
use super::{Ending, KeyValue, PreImage, Record};
use crate::command::RestoredKey;
use crate::limits;
use crate::slots::slot_of;
use crate::slots::slot_set::SlotSet;
use crate::types::Version;

impl KeyValue {
    /// Stores keys of a copy, and removes others.
    pub(in crate::machine) fn import(&mut self, rows: &[RestoredKey], removals: &[Bytes]) {
        let mut created = 0;
        for row in rows {
            created += u64::from(self.store_row(row));
        }
        if let Some(Stage::Incoming(IncomingSlots { rows, .. })) = self.stage_mut() {
            *rows += created;
        }
        for key in removals {
            self.take_out(key);
        }
    }

    /// Stores a key as it is elsewhere. Returns whether it is new.
    pub(super) fn store_row(&mut self, row: &RestoredKey) -> bool {
        let key = &row.key[..];
        let old = self.records.replace(Record::new(key, row.version, &row.value));
        let ending = self.set_ending(key, Ending { expires: row.expires, lease: row.lease });
        let change = if old.is_none() { KeyChange::Created } else { KeyChange::Replaced };
        if change == KeyChange::Created {
            self.scan_cursors.created(key);
        }
        self.keep(key, old.map(|record| PreImage { record, ending }));
        self.note(key, change);
        change == KeyChange::Created
    }

    /// Raises the revision, so that versions up to `revision` are not assigned again. The state no
    /// longer comes from a single backup.
    pub(in crate::machine) fn raise_revision(&mut self, revision: Version) {
        self.revision = self.revision.max(revision);
        self.restoring = None;
    }

    /// Removes keys of these slots after the key `swept`, inspecting at most `limit` keys. Returns
    /// the last key inspected; `None` when none is left.
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

    /// The stage of the current or last move of this shard.
    pub(in crate::machine) fn stage_mut(&mut self) -> Option<&mut Stage> {
        Some(&mut self.ownership.as_mut()?.stage)
    }
}
