//! The removal of all keys of a shard, without stopping the worker.
//!
//! A shard whose keys are all its own gets a new, empty table, at one revision. The old table is
//! freed a few keys at a time. Meanwhile, an unfinished snapshot may still read it, and an
//! unfinished copy for another shard takes from it which keys that shard must remove.
//!
//! Leases stay, without keys. Locks end with their queues, because a lock is a key: a write under
//! the fence of a lock is refused after the flush, as it is after the end of the holder's lease.
//!
//! A shard that takes part in a move of slots also holds keys that it does not own, between its
//! own. It removes its own keys one by one, a bounded number in each step.
//!
//! Each step takes one revision, and watchers of the shard's keys are sent the state again: naming
//! every removed key would take as long as removing them one by one.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

use super::expiry::Expiries;
use super::scan_cursors::ScanCursorIndex;
use super::table::Table;
use super::{Ending, KeyValue, Record};
use crate::command::{Flush, FlushedPart};
use crate::deliberate::Fault;
use crate::limits;
use crate::machine::leases::Bindings;
use crate::machine::locks::Locks;
use crate::slots::slot_of;
use crate::types::Version;

/// The keys of a shard at the time when it removed all of them.
#[derive(Debug, Default)]
pub(in crate::machine) struct FlushedKeys {
    pub(in crate::machine) records: Table,
    pub(in crate::machine) expiries: Expiries,
    bindings: Bindings,
    scan_cursors: ScanCursorIndex,
}

/// Keys that were removed and are not freed yet, in the order of their removal.
#[derive(Debug, Default)]
pub(super) struct UnfreedKeys(VecDeque<Arc<FlushedKeys>>);

impl FlushedKeys {
    /// When a key ended.
    pub(in crate::machine) fn ending(&self, key: &[u8]) -> Ending {
        Ending { expires: self.expiries.of(key), lease: self.bindings.of_key(key) }
    }

    /// Frees at most `limit` keys. Returns whether none is left.
    fn free_some(&mut self, limit: usize) -> bool {
        let records = (0..limit).all(|_| self.records.pop_first());
        let expiries = (0..limit).all(|_| self.expiries.pop_first());
        let bindings = (0..limit).all(|_| self.bindings.pop_first());
        let cursors = (0..limit).all(|_| self.scan_cursors.pop_first());
        !records && !expiries && !bindings && !cursors
    }
}

impl UnfreedKeys {
    /// Adds keys. If there are too many tables, the smallest one is freed at once. The oldest one
    /// may hold millions of keys, and clients that flush again and again soon have small ones.
    fn push(&mut self, keys: Arc<FlushedKeys>) {
        self.0.push_back(keys);
        if self.0.len() > limits::FLUSHED_TABLES_MAX {
            let sizes = self.0.iter().map(|keys| keys.records.len()).enumerate();
            let smallest = sizes.min_by_key(|(_, size)| *size);
            smallest.map(|(position, _)| self.0.remove(position));
        }
    }

    /// Frees at most `limit` keys that nothing reads any more.
    fn free_some(&mut self, limit: usize) {
        for position in 0..self.0.len() {
            if let Some(keys) = Arc::get_mut(&mut self.0[position]) {
                if keys.free_some(limit) {
                    self.0.remove(position);
                }
                return;
            }
        }
    }
}

impl KeyValue {
    /// Removes keys that this shard owns.
    pub(in crate::machine) fn flush(&mut self, flush: &Flush) -> FlushedPart {
        let owned = self.ownership.as_ref().map(|ownership| ownership.owned().clone());
        let is_all = flush.slots.is_none() && flush.after.is_none();
        let next = if is_all && self.ownership_filter().is_none() {
            self.flush_at_once();
            None
        } else {
            self.flush_some(flush)
        };
        let revision = Version(self.revision.0 + 1);
        (self.revision, self.restoring) = (revision, None);
        if !self.faults.has(Fault::FlushNotReported) {
            self.changes_ring.restart(revision);
        }
        FlushedPart { owned, revision, next }
    }

    fn flush_at_once(&mut self) {
        let keys = Arc::new(FlushedKeys {
            records: core::mem::take(&mut self.records),
            expiries: core::mem::take(&mut self.expiries),
            bindings: self.leases.unbind_all(),
            scan_cursors: core::mem::take(&mut self.scan_cursors),
        });
        if let Some(copy_on_write) = &mut self.copy_on_write {
            copy_on_write.flushed(&keys);
        }
        if let Some(outgoing_slots) = &mut self.outgoing_slots {
            outgoing_slots.flushed(&keys);
        }
        self.unfreed.push(keys);
        // They are freed at once: there are at most `limits::LEASES_BYTES_MAX` of them.
        self.locks = Locks::default();
    }

    /// Removes some keys. Returns the last key inspected; `None` when no key is left.
    fn flush_some(&mut self, Flush { shard: _, slots, after }: &Flush) -> Option<Bytes> {
        let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let ownership = self.ownership.as_deref();
        let is_flushed = |key: &[u8]| {
            let slot = slot_of(key);
            slots.as_ref().is_none_or(|slots| slots.contains(slot))
                && ownership.is_none_or(|ownership| ownership.owned().contains(slot))
        };
        let (mut gone, mut last): (Vec<Box<[u8]>>, _) = (Vec::new(), None);
        let mut ahead = self.records.from(start).map(Record::key);
        for key in ahead.by_ref().take(limits::FLUSH_KEYS_INSPECTED_MAX) {
            last = Some(key);
            if is_flushed(key) {
                gone.push(key.into());
                if gone.len() == limits::EXPIRED_KEYS_MAX {
                    break;
                }
            }
        }
        let next = last.map(Bytes::copy_from_slice).filter(|_| ahead.next().is_some());
        gone.iter().for_each(|key| drop(self.take_out(key)));
        next
    }

    /// Frees at most `limit` of the keys that were removed all at once.
    #[inline]
    pub(in crate::machine) fn free_flushed(&mut self, limit: usize) {
        if !self.unfreed.0.is_empty() {
            self.unfreed.free_some(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        ChangedKeys, KeyScope, LeaseReply, LeaseTag, LeaseWrite, LockOperation, LockReply, LockWrite,
        RestoredKey,
    };
    use crate::machine::kv::ownership::{IncomingSlots, Ownership, Stage};
    use crate::slots::slot_revisions::SlotRevisions;
    use crate::slots::slot_set::SlotSet;
    use crate::types::{MigrationId, ShardId, UnixMillis};
    use alloc::format;
    use alloc::vec;

    const SHARD: ShardId = ShardId(1);

    fn everything() -> Flush {
        Flush { shard: SHARD, slots: None, after: None }
    }

    fn filled(keys: u32) -> KeyValue {
        let mut kv = KeyValue::default();
        (0..keys).for_each(|number| put(&mut kv, number));
        kv
    }

    fn put(kv: &mut KeyValue, number: u32) {
        kv.store(format!("key:{number:06}").as_bytes(), b"v", Some(UnixMillis(number.into())));
    }

    fn keys(kv: &KeyValue) -> Vec<Box<[u8]>> {
        kv.records.iter().map(|record| record.key().into()).collect()
    }

    #[test]
    fn all_keys_go_at_one_revision_and_watchers_have_a_gap() {
        let mut kv = filled(100);
        let reported = kv.reported_changes();
        let part = kv.flush(&everything());
        assert_eq!(part, FlushedPart { owned: None, revision: Version(101), next: None });
        assert_eq!((kv.record_count(), kv.overdue(UnixMillis(u64::MAX), 9)), (0, 0));
        assert_eq!(kv.scan(0, 10).expect("a step").keys, Vec::<Bytes>::new());
        put(&mut kv, 5);
        assert_eq!(kv.get(b"key:000005").expect("the key").version, Version(102));
        let all = KeyScope::Prefix(Bytes::new());
        let changes = |revision| {
            kv.changes(&all, Some(&SlotRevisions::at(&SlotSet::all(), Version(revision))), (9, true))
        };
        assert!(changes(100).has_gap && !changes(101).has_gap);
        assert!(matches!(kv.reportable_keys(reported), Some((ChangedKeys::Any, _))));
    }

    #[test]
    fn a_snapshot_still_shows_the_state_at_its_beginning() {
        let (mut flushed, mut kept) = (filled(50_000), filled(50_000));
        let mut blocks = vec![];
        for kv in [&mut flushed, &mut kept] {
            kv.begin_snapshot(Vec::new());
            put(kv, 1);
        }
        for step in 0.. {
            let (one, other) = (flushed.next_block(), kept.next_block());
            assert_eq!(one, other, "block {step}");
            if step == 2 {
                flushed.flush(&everything());
                put(&mut flushed, 49_999);
                flushed.flush(&everything());
            }
            flushed.free_flushed(1_000_000);
            if one.is_none() {
                break;
            }
            blocks.extend(one);
        }
        assert!(blocks.len() > 4, "{}", blocks.len());
        assert_eq!(flushed.record_count(), 0);
    }

    /// Leases outlast their keys, and locks end as keys do, whichever way a flush takes.
    #[test]
    fn leases_stay_without_keys_and_locks_end() {
        for hidden in [None, Some(SlotSet::from(slot_of(b"x")..slot_of(b"x") + 1))] {
            let mut kv = filled(10);
            let tag = LeaseTag::new(b"t").expect("a tag");
            let at = UnixMillis(1);
            let LeaseReply::Granted { lease, .. } =
                kv.change_leases(&LeaseWrite::Grant { tag, ttl_ms: 60_000, at })
            else {
                panic!("a lease")
            };
            let operation = LockOperation::Acquire { value: Bytes::new(), waits: true, at };
            let acquire = LockWrite { name: Bytes::from_static(b"{t}lock"), lease: lease.clone(), operation };
            assert!(matches!(kv.change_lock(&acquire), LockReply::Held { .. }));
            kv.store(b"{t}bound", b"v", Ending { expires: None, lease: Some(lease.number()) });
            kv.ownership = hidden.map(|hidden| {
                let incoming =
                    IncomingSlots { slots: hidden, attempt: 1, sequence: 0, rows: 0, sweeping: None };
                let owned = SlotSet::all().without(&incoming.slots);
                Box::new(Ownership { owned, last: MigrationId(1), stage: Stage::Incoming(incoming) })
            });
            kv.flush(&everything());
            let view = kv.lease_view(&lease).expect("the lease");
            assert_eq!((view.keys.len(), view.held.len()), (0, 0));
            assert!(kv.lock_view(b"{t}lock").is_none());
            assert!(kv.lease_of(b"{t}bound").is_none());
            let again = kv.change_lock(&acquire);
            assert!(matches!(again, LockReply::Held { fence, .. } if fence == kv.revision), "{again:?}");
        }
    }

    #[test]
    fn removed_keys_are_freed_in_steps() {
        let mut kv = filled(1_000);
        kv.flush(&everything());
        put(&mut kv, 1);
        kv.begin_snapshot(Vec::new());
        kv.flush(&everything());
        let mut steps = 0;
        while kv.unfreed.0.len() > 1 {
            kv.free_flushed(64);
            steps += 1;
        }
        assert_eq!(steps, 1_000 / 64 + 1);
        // A snapshot reads the other table.
        kv.free_flushed(64);
        assert_eq!(kv.unfreed.0.len(), 1);
        kv.copy_on_write = None;
        kv.free_flushed(64);
        assert!(kv.unfreed.0.is_empty());
        // The largest table is freed in steps, however often the keys are removed again.
        (0..100).for_each(|number| put(&mut kv, number));
        kv.flush(&everything());
        for _ in 0..3 * limits::FLUSHED_TABLES_MAX {
            put(&mut kv, 1);
            kv.flush(&everything());
        }
        assert_eq!(kv.unfreed.0.len(), limits::FLUSHED_TABLES_MAX);
        assert_eq!(kv.unfreed.0[0].records.len(), 100);
    }

    /// A copy in progress makes its receiver remove what it was sent before the flush, and sends
    /// what was written after it.
    #[test]
    fn the_receiver_of_a_copy_removes_what_it_was_sent() {
        let mut kv = filled(3_000);
        let mut sent = KeyValue::default();
        kv.begin_outgoing(SlotSet::all());
        let take =
            |sent: &mut KeyValue, rows: &[RestoredKey], removals: &[Bytes]| sent.import(rows, removals);
        let rows = kv.walk_outgoing(1_000);
        take(&mut sent, &rows, &[]);
        put(&mut kv, 3);
        kv.flush(&everything());
        for number in [7, 2_500, 9_000] {
            put(&mut kv, number);
        }
        while kv.outgoing_rest().is_none() {
            let rows = kv.walk_outgoing(100);
            take(&mut sent, &rows, &[]);
        }
        let mut parts = 0;
        while kv.outgoing_rest() != Some(0) {
            let (rows, removals) = kv.changed_outgoing(100);
            assert!(rows.len() + removals.len() <= 100);
            take(&mut sent, &rows, &removals);
            parts += 1;
        }
        assert!(parts >= 10, "{parts}");
        assert_eq!(keys(&sent), keys(&kv));
        assert_eq!(kv.outgoing_rows(), Some(3));
    }

    /// A part may be empty although the receiver has keys to remove: none of the inspected ones
    /// belongs to the slots.
    #[test]
    fn a_copy_is_not_complete_while_flushed_keys_are_left() {
        let mut kv = filled(2_000);
        let last = slot_of(b"key:001999");
        let first = kv.records.iter().position(|record| slot_of(record.key()) == last);
        assert!(first.is_some_and(|first| first >= 100), "{first:?}");
        kv.begin_outgoing(SlotSet::from(last..last + 1));
        while kv.outgoing_rest().is_none() {
            kv.walk_outgoing(1_000);
        }
        kv.flush(&everything());
        assert_eq!(kv.changed_outgoing(100), (vec![], vec![]));
        assert_eq!(kv.outgoing_rest(), Some(1_900));
        let mut removed = vec![];
        while kv.outgoing_rest() != Some(0) {
            removed.extend(kv.changed_outgoing(100).1);
        }
        assert!(removed.contains(&Bytes::from_static(b"key:001999")));
    }

    #[test]
    fn keys_of_slots_on_their_way_stay() {
        let mut kv = filled(20_000);
        let slots = SlotSet::from(0..9_000);
        let (owned, hidden) = (SlotSet::all().without(&slots), |key: &[u8]| slots.contains(slot_of(key)));
        let rows = keys(&kv).iter().filter(|key| hidden(key)).count() as u64;
        let incoming = IncomingSlots { slots: slots.clone(), attempt: 1, sequence: 0, rows, sweeping: None };
        let stage = Stage::Incoming(incoming);
        kv.ownership = Some(Box::new(Ownership { owned: owned.clone(), last: MigrationId(1), stage }));
        let (mut flush, mut steps) = (everything(), 0);
        loop {
            let before = kv.record_count();
            let part = kv.flush(&flush);
            assert_eq!(part.owned, Some(owned.clone()));
            assert!(before - kv.record_count() <= limits::EXPIRED_KEYS_MAX as u64);
            steps += 1;
            flush.after = part.next;
            if flush.after.is_none() {
                break;
            }
        }
        assert!(steps > 5, "{steps}");
        assert_eq!((kv.record_count(), kv.records.len() as u64), (0, rows));
        assert!(keys(&kv).iter().all(|key| hidden(key)));
        // Another owner's part: only the keys of these slots go.
        let mut kv = filled(1_000);
        let part = kv.flush(&Flush { slots: Some(slots.clone()), ..everything() });
        assert_eq!(part, FlushedPart { owned: None, revision: Version(1_001), next: None });
        assert!(!keys(&kv).is_empty() && !keys(&kv).iter().any(|key| hidden(key)));
    }
}
