//! The key-value state machine: an ordered map from keys to values with versions.
//!
//! This module owns the state and its changes. `operations` implements operations, `lease_changes`
//! and `lock_changes` change leases and locks, `expiry` holds expiry times, and `scan_cursors`
//! indexes the positions at which a scan step can end.
//!
//! It also owns versions: the shard counts a revision, every successful mutation takes the next
//! one, and a key's version is the revision that last wrote it. So a key that is deleted and
//! created again never repeats a version. A restore preserves this: it fills a shard that nothing
//! else has ever written to, and raises its revision above all restored versions.
//!
//! Keys and values are copied out of the log when they are applied. A slice of an entry would keep
//! the whole entry alive, with all commands of its batch, for as long as the key exists.

pub(crate) mod changes;
mod expiry;
mod flush;
mod incoming_slots;
mod lease_changes;
#[cfg(test)]
mod lease_tests;
mod lock_changes;
mod operations;
pub mod outgoing_slots;
pub mod ownership;
mod scan_cursors;
pub mod scratch;
mod table;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;
use crc::{CRC_64_XZ, Crc};
use uuid::Uuid;

use super::copy_on_write::{CopyOnWrite, PreImage};
use super::leases::Leases;
use super::locks::Locks;
use crate::command::{Condition, Item, Page, Restoration, StoredValue, WriteReply, blocks_of};
use crate::deliberate::Faults;
use crate::limits;
use crate::types::{UnixMillis, Version};
use changes::ChangeRing;
use expiry::Expiries;
pub(super) use flush::FlushedKeys;
use flush::UnfreedKeys;
pub use operations::parse_number;
use outgoing_slots::{KeyChange, OutgoingSlots};
use ownership::Ownership;
use scan_cursors::ScanCursorIndex;
pub(super) use table::Record;
use table::Table;

/// When a key ends without being removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// When it expires; `None`: never.
    pub(super) expires: Option<UnixMillis>,
    /// The number of the lease to which it is bound. Such a key has no expiry.
    pub(super) lease: Option<Version>,
}

impl From<Option<UnixMillis>> for Ending {
    fn from(expires: Option<UnixMillis>) -> Ending {
        Ending { expires, lease: None }
    }
}

/// The keys of one data shard.
#[derive(Debug, Default)]
pub struct KeyValue {
    pub(super) revision: Version,
    pub(super) records: Table,
    /// Expiry times. They are not part of the records, because most keys have none and would pay
    /// for it in memory.
    expiries: Expiries,
    /// The leases, and the keys that are bound to them.
    pub(super) leases: Leases,
    /// The locks that are held. Each of them is also a key.
    pub(super) locks: Locks,
    /// Which keys a scan may stop at. Derived from the keys, so it is in no snapshot.
    scan_cursors: ScanCursorIndex,
    /// The latest changes, for watchers. Derived from the log, so it is in no snapshot.
    changes_ring: ChangeRing,
    /// The backup that this whole state comes from. A restore sets it, the first write of a client
    /// clears it.
    pub(super) restoring: Option<Uuid>,
    /// The owned slots; `None` if the shard never took part in a move of slots. Such a shard owns
    /// all keys that it is asked for.
    pub(super) ownership: Option<Box<Ownership>>,
    pub(super) copy_on_write: Option<CopyOnWrite>,
    /// Keys that a flush has removed. Their memory is freed in steps.
    unfreed: UnfreedKeys,
    /// An unfinished copy for another shard.
    outgoing_slots: Option<Box<OutgoingSlots>>,
    pub(super) faults: Faults,
}

impl KeyValue {
    /// A state to be filled by [`KeyValue::fill`].
    pub(super) fn restored(
        revision: Version,
        restoring: Option<Uuid>,
        ownership: Option<Ownership>,
    ) -> KeyValue {
        KeyValue {
            revision,
            restoring,
            ownership: ownership.map(Box::new),
            changes_ring: ChangeRing::from_revision(revision),
            ..KeyValue::default()
        }
    }

    /// Registers a key of a snapshot, whose record [`KeyValue::fill`] will store.
    pub(super) fn prepare(&mut self, key: &[u8], ending: Ending) {
        self.scan_cursors.created(key);
        self.set_ending(key, ending);
    }

    /// Stores all records of a snapshot, in the order of their keys.
    pub(super) fn fill(&mut self, records: Vec<Record>) {
        self.records = records.into_iter().collect();
    }

    /// Stores a value without expiry, if `condition` holds. Returns the new version and whether the
    /// key is new, or else the current version as the error.
    fn put_if(&mut self, key: &[u8], value: &[u8], condition: Condition) -> Result<(Version, bool), Version> {
        if condition != Condition::Always {
            let current = self.version(key);
            if !condition.holds(current) {
                return Err(current);
            }
        }
        Ok(self.store(key, value, Ending::default()))
    }

    /// Stores a value unconditionally, with this end. Returns the new version and whether the key
    /// is new.
    fn store(&mut self, key: &[u8], value: &[u8], ending: impl Into<Ending>) -> (Version, bool) {
        let next = Version(self.revision.0 + 1);
        let old = self.records.replace(Record::new(key, next, value));
        let ended = self.set_ending(key, ending.into());
        let is_new = old.is_none();
        if is_new {
            self.scan_cursors.created(key);
        }
        self.keep(key, old.map(|record| PreImage { record, ending: ended }));
        self.note(key, if is_new { KeyChange::Created } else { KeyChange::Replaced });
        self.wrote(next, key, false);
        (next, is_new)
    }

    /// Removes an existing key. Returns the revision of the removal and the removed record.
    fn remove(&mut self, key: &[u8]) -> (Version, Option<Record>) {
        let next = Version(self.revision.0 + 1);
        let Some(record) = self.take_out(key) else { return (self.revision, None) };
        self.wrote(next, key, true);
        (next, Some(record))
    }

    /// Removes a key without taking a revision. Returns the removed record.
    fn take_out(&mut self, key: &[u8]) -> Option<Record> {
        let record = self.records.remove(key)?;
        self.scan_cursors.removed(key);
        let ending = self.set_ending(key, Ending::default());
        // Only an unfinished snapshot also needs the value, which is rare.
        if self.copy_on_write.is_some() {
            let (version, value) = record.version_and_value();
            self.keep(key, Some(PreImage { record: Record::new(key, version, value), ending }));
        }
        // What removes all keys ends locks too, because a lock is held only while it is a key.
        if self.locks.holds(key) {
            self.locks.abolish(key);
        }
        self.note(key, KeyChange::Removed);
        if let Some(ownership) = &mut self.ownership {
            ownership.removed(key);
        }
        Some(record)
    }

    /// The version of a key, [`Version::ABSENT`] if there is none.
    fn version(&self, key: &[u8]) -> Version {
        self.records.get(key).map_or(Version::ABSENT, Record::version)
    }

    /// Restores keys of a backup and raises the revision, if the state comes from that backup alone
    /// or was never written to. An unused revision is required because an assigned version must not
    /// come again with another value. Repeating it changes nothing.
    pub fn restore(&mut self, restoration: &Restoration) -> WriteReply {
        if self.restoring != Some(restoration.backup) && self.revision != Version::ABSENT {
            return WriteReply::ConditionFailed { current: self.revision };
        }
        self.restoring = Some(restoration.backup);
        self.revision = self.revision.max(restoration.revision);
        for restored in &restoration.records {
            if self.version(&restored.key) < restored.version {
                self.store_row(restored);
            }
        }
        self.changes_ring.restart(self.revision);
        WriteReply::Restored
    }

    /// Whether only restores have written to this state.
    pub fn holds_only_restored(&self) -> bool {
        self.restoring.is_some() || self.revision == Version::ABSENT
    }

    /// Removes up to [`limits::DISCARD_KEYS_MAX`] keys that are not of this backup, without taking
    /// revisions, because an assigned version must not come again with another value. Returns the
    /// number of keys left, or `None` if there was nothing to discard.
    pub fn discard_restore(&mut self, backup: Uuid) -> Option<u64> {
        let is_untouched = self.restoring.is_none() && self.revision == Version::ABSENT;
        if is_untouched || self.restoring == Some(backup) {
            return None;
        }
        let first = self.records.iter().take(limits::DISCARD_KEYS_MAX);
        for key in first.map(|record| Box::from(record.key())).collect::<Vec<Box<[u8]>>>() {
            self.take_out(&key);
        }
        self.changes_ring.restart(self.revision);
        let left = self.records.len() as u64;
        if left == 0 {
            self.restoring = Some(backup);
        }
        Some(left)
    }

    /// Records that a change of a key took a revision.
    fn wrote(&mut self, revision: Version, key: &[u8], is_removal: bool) {
        self.revision = revision;
        self.restoring = None;
        self.changes_ring.push(revision, key, is_removal);
    }

    /// The value of a key, if the key exists.
    pub(super) fn get(&self, key: &[u8]) -> Option<StoredValue> {
        let (version, value) = self.records.get(key)?.version_and_value();
        let (value, expires) = (Bytes::copy_from_slice(value), self.expiries.of(key));
        Some(StoredValue { version, value, expires, lease: self.lease_of(key).map(Box::new) })
    }

    /// Number of keys without hidden ones; `None` while the number of hidden keys is not known.
    pub(super) fn count(&self) -> Option<u64> {
        let is_known = self.ownership.as_ref().is_none_or(|ownership| ownership.hidden().is_some());
        is_known.then(|| self.record_count())
    }

    /// Number of keys without hidden ones. While a giver does not know the number of hidden keys,
    /// they are included.
    pub fn record_count(&self) -> u64 {
        let hidden = self.ownership.as_ref().and_then(|ownership| ownership.hidden());
        self.records.len() as u64 - hidden.unwrap_or_default()
    }

    /// The last key, including hidden ones.
    pub(super) fn last_key(&self) -> Option<Box<[u8]>> {
        self.records.last().map(|record| record.key().into())
    }

    /// The ownership, while there may be hidden keys.
    fn ownership_filter(&self) -> Option<&Ownership> {
        self.ownership.as_deref().filter(|ownership| ownership.hides())
    }

    /// A checksum over the revision, the origin, all keys in order with versions and values, and
    /// all expiry times.
    pub fn digest(&self) -> u64 {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        let mut digest = CRC.digest();
        digest.update(&self.revision.0.to_le_bytes());
        digest.update(self.restoring.as_ref().map_or(&[][..], |backup| backup.as_bytes()));
        for record in self.records.iter() {
            let (key, (version, value)) = (record.key(), record.version_and_value());
            digest.update(&(key.len() as u64).to_le_bytes());
            digest.update(key);
            digest.update(&version.0.to_le_bytes());
            digest.update(&(value.len() as u64).to_le_bytes());
            digest.update(value);
        }
        if let Some(ownership) = &self.ownership {
            let mut encoded = Vec::new();
            ownership.encode(&mut encoded);
            digest.update(&encoded);
        }
        for (at, key) in self.expiries.iter() {
            digest.update(&at.0.to_le_bytes());
            digest.update(&(key.len() as u64).to_le_bytes());
            digest.update(key);
        }
        digest.finalize()
    }

    /// Continues the checksum `other` over all leases, locks and bound keys; without any it stays
    /// unchanged.
    pub(super) fn digest_leases(&self, other: u64) -> u64 {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        if self.leases.is_empty() {
            return other;
        }
        let mut digest = CRC.digest();
        digest.update(&other.to_le_bytes());
        for block in blocks_of(self.lease_records(&|_| true), limits::SNAPSHOT_BLOCK_BYTES_CLOSE) {
            digest.update(&block);
        }
        for (key, lease) in self.leases.bindings() {
            digest.update(&(key.len() as u64).to_le_bytes());
            digest.update(key);
            digest.update(&lease.0.to_le_bytes());
        }
        digest.finalize()
    }

    /// When a key ends.
    pub(super) fn ending(&self, key: &[u8]) -> Ending {
        Ending { expires: self.expiries.of(key), lease: self.leases.of_key(key) }
    }

    /// Sets when a key ends. Returns when it ended before.
    fn set_ending(&mut self, key: &[u8], Ending { expires, lease }: Ending) -> Ending {
        Ending { expires: self.expiries.set(key, expires), lease: self.leases.bind(key, lease) }
    }

    /// When a key expires; `None`: never.
    pub(super) fn expires(&self, key: &[u8]) -> Option<UnixMillis> {
        self.expiries.of(key)
    }

    /// Notifies an unfinished copy of a change.
    #[inline]
    fn note(&mut self, key: &[u8], change: KeyChange) {
        if let Some(outgoing_slots) = &mut self.outgoing_slots {
            outgoing_slots.note(key, change);
        }
    }

    /// Lets an unfinished snapshot keep the content of a key before a change.
    #[inline]
    fn keep(&mut self, key: &[u8], old: Option<PreImage>) {
        if let Some(copy_on_write) = &mut self.copy_on_write {
            copy_on_write.keep(key, old);
        }
    }

    /// A page of the keys that begin with `prefix`, after the key `after`.
    pub(super) fn list(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, keys_only: bool) -> Page {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut items: Vec<Item> = Vec::new();
        let (mut page_bytes, mut hidden) = (0, 0);
        let ownership_filter = self.ownership_filter();
        for record in self.records.from(start) {
            let (key, (version, value)) = (record.key(), record.version_and_value());
            if !key.starts_with(prefix) {
                break;
            }
            if ownership_filter.is_some_and(|ownership| !ownership.owns(key)) {
                hidden += 1;
                if hidden == limits::MOVE_KEYS_PER_STEP_MAX {
                    return Page { items, next: Some(Bytes::copy_from_slice(key)) };
                }
                continue;
            }
            if items.len() == limit || page_bytes >= limits::LIST_PAGE_BYTES_MAX {
                let next = items.last().map(|item| item.key.clone());
                return Page { items, next };
            }
            let value = (!keys_only).then(|| Bytes::copy_from_slice(value));
            page_bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            let (key, expires) = (Bytes::copy_from_slice(key), self.expiries.of(key));
            items.push(Item { key, version, value, expires });
        }
        Page { items, next: None }
    }
}
