//! The key-value machine: an ordered map from keys to values with versions.
//!
//! Here stand the state and what changes it; what operations do is in `operations`, when keys expire in `expiry`, where a
//! walk over all keys can rest in `rests`.
//!
//! Owns versions: the shard counts a revision, every successful mutation takes the next, and a key's version is
//! the revision that last wrote it. A key that is deleted and created again therefore never repeats a version. A
//! restore keeps that by filling a shard that nothing else has ever written to, and by lifting its revision above
//! everything that it puts there.
//!
//! Keys and values are copied out of the log on apply: a slice of an entry would keep the whole entry, with every
//! other command of its batch, alive for as long as the key.

mod arriving;
mod expiry;
mod operations;
pub mod outgoing;
pub mod ownership;
mod rests;
mod table;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;
use crc::{CRC_64_XZ, Crc};
use uuid::Uuid;

use super::capture::{Capture, Kept};
use crate::command::{Condition, Item, Page, Read, Refusal, Reply, Restoration};
use crate::limits;
use crate::types::{UnixMillis, Version};
use expiry::Expiries;
pub use operations::parse_number;
use outgoing::{Change, Outgoing};
use ownership::Ownership;
use rests::Rests;
pub(super) use table::Record;
use table::Table;

/// State of one data shard.
#[derive(Debug, Default)]
pub struct KeyValue {
    pub(super) revision: Version,
    pub(super) records: Table,
    /// When keys expire. Apart from the records: most keys never do, and would pay for it in memory.
    expiries: Expiries,
    /// Follows from the keys.
    rests: Rests,
    /// The backup that all of this state comes from: set by a restore, cleared by the first write of a client.
    pub(super) restoring: Option<Uuid>,
    /// What the shard owns; `None` while it never took part in a move of slots, and owns all that it is asked for.
    pub(super) ownership: Option<Box<Ownership>>,
    /// A snapshot in the making.
    pub(super) capture: Option<Capture>,
    /// A copy for another shard in the making.
    outgoing: Option<Box<Outgoing>>,
}

impl KeyValue {
    /// A state to be filled by [`KeyValue::fill`].
    pub(super) fn restored(
        revision: Version,
        restoring: Option<Uuid>,
        ownership: Option<Ownership>,
    ) -> KeyValue {
        KeyValue { revision, restoring, ownership: ownership.map(Box::new), ..KeyValue::default() }
    }

    /// Takes note of a key of a snapshot, whose record [`KeyValue::fill`] brings.
    pub(super) fn prepare(&mut self, key: &[u8], expires: Option<UnixMillis>) {
        self.rests.created(key);
        self.expiries.set(key, expires);
    }

    /// Puts all records of a snapshot in place, in the order of their keys.
    pub(super) fn fill(&mut self, records: Vec<Record>) {
        self.records = records.into_iter().collect();
    }

    /// Stores a value for good, if `condition` holds.
    pub fn put(&mut self, key: &[u8], value: &[u8], condition: Condition) -> Reply {
        match self.put_if(key, value, condition) {
            Ok((version, created)) => Reply::Written { version, created },
            Err(current) => Reply::ConditionFailed { current },
        }
    }

    /// Removes a key if `condition` holds.
    pub fn delete(&mut self, key: &[u8], condition: Condition) -> Reply {
        let current = self.version(key);
        if !condition.holds(current) {
            return Reply::ConditionFailed { current };
        }
        if current == Version::ABSENT {
            return Reply::NotFound;
        }
        let (version, _) = self.remove(key);
        Reply::Deleted { version }
    }

    /// Stores a value for good, if `condition` holds. Returns the key's version, and whether it is new; or its current
    /// version.
    fn put_if(&mut self, key: &[u8], value: &[u8], condition: Condition) -> Result<(Version, bool), Version> {
        if condition != Condition::Always {
            let current = self.version(key);
            if !condition.holds(current) {
                return Err(current);
            }
        }
        Ok(self.store(key, value, None))
    }

    /// Stores a value unconditionally, to expire at `expires`. Returns the key's version, and whether it is new.
    fn store(&mut self, key: &[u8], value: &[u8], expires: Option<UnixMillis>) -> (Version, bool) {
        let next = Version(self.revision.0 + 1);
        let old = self.records.replace(Record::new(key, next, value));
        let expired = self.expiries.set(key, expires);
        let is_new = old.is_none();
        if is_new {
            self.rests.created(key);
        }
        self.keep(key, old.map(|record| Kept { record, expires: expired }));
        self.note(key, if is_new { Change::Created } else { Change::Replaced });
        self.wrote(next);
        (next, is_new)
    }

    /// Removes a key that exists. Returns the revision at which it ceased to, and what it held.
    fn remove(&mut self, key: &[u8]) -> (Version, Option<Record>) {
        let next = Version(self.revision.0 + 1);
        let Some(record) = self.take_out(key) else { return (self.revision, None) };
        self.wrote(next);
        (next, Some(record))
    }

    /// Removes a key, and takes no revision for it. Returns what it held.
    fn take_out(&mut self, key: &[u8]) -> Option<Record> {
        let record = self.records.remove(key)?;
        self.rests.removed(key);
        let expires = self.expiries.set(key, None);
        // Only a snapshot in the making needs the value as well; it is rare.
        if self.capture.is_some() {
            let (version, value) = record.behind_key();
            self.keep(key, Some(Kept { record: Record::new(key, version, value), expires }));
        }
        self.note(key, Change::Removed);
        if let Some(ownership) = &mut self.ownership {
            ownership.removed(key);
        }
        Some(record)
    }

    /// The version of a key, [`Version::ABSENT`] if there is none.
    fn version(&self, key: &[u8]) -> Version {
        self.records.get(key).map_or(Version::ABSENT, Record::version)
    }

    /// Puts keys of a backup in place and lifts the revision, if the state is of that backup alone, or there is none:
    /// not even a revision, because a version that was given out must not come back with another value. Doing it again
    /// changes nothing.
    pub fn restore(&mut self, restoration: &Restoration) -> Reply {
        if self.restoring != Some(restoration.backup) && self.revision != Version::ABSENT {
            return Reply::ConditionFailed { current: self.revision };
        }
        self.restoring = Some(restoration.backup);
        self.revision = self.revision.max(restoration.revision);
        for restored in &restoration.records {
            let key = &restored.key[..];
            if self.version(key) < restored.version {
                let old = self.records.replace(Record::new(key, restored.version, &restored.value));
                let expires = self.expiries.set(key, restored.expires);
                let change = if old.is_none() { Change::Created } else { Change::Replaced };
                if change == Change::Created {
                    self.rests.created(key);
                }
                self.keep(key, old.map(|record| Kept { record, expires }));
                self.note(key, change);
            }
        }
        Reply::Restored
    }

    /// Whether only restores ever wrote here.
    pub fn is_of_restores(&self) -> bool {
        self.restoring.is_some() || self.revision == Version::ABSENT
    }

    /// Removes keys that are not of this backup, up to [`limits::DISCARD_KEYS_MAX`], and takes no revision for it: a
    /// version that was given out must not come back with another value. Returns how many keys are left, or `None` if
    /// there was nothing to discard.
    pub fn discard_restore(&mut self, backup: Uuid) -> Option<u64> {
        let is_untouched = self.restoring.is_none() && self.revision == Version::ABSENT;
        if is_untouched || self.restoring == Some(backup) {
            return None;
        }
        let first = self.records.iter().take(limits::DISCARD_KEYS_MAX);
        for key in first.map(|record| Box::from(record.key())).collect::<Vec<Box<[u8]>>>() {
            self.take_out(&key);
        }
        let left = self.records.len() as u64;
        if left == 0 {
            self.restoring = Some(backup);
        }
        Some(left)
    }

    /// A client's write took a revision.
    fn wrote(&mut self, revision: Version) {
        self.revision = revision;
        self.restoring = None;
    }

    /// Answers a read.
    pub fn read(&self, read: &Read) -> Reply {
        match read {
            Read::Get { key } => match self.records.get(&key[..]) {
                Some(record) => {
                    let (version, value) = record.behind_key();
                    let expires = self.expiries.of(key);
                    Reply::Value { version, value: Bytes::copy_from_slice(value), expires }
                }
                None => Reply::NotFound,
            },
            Read::Operations { operations, bytes_max } => {
                Reply::Operations(self.look(operations, *bytes_max))
            }
            Read::Scan { after, count, .. } => self.scan(*after, *count),
            Read::Count if self.ownership.as_ref().is_some_and(|ownership| ownership.hidden().is_none()) => {
                Reply::Refused(Refusal::NotHere)
            }
            Read::Count => Reply::Count(self.record_count()),
            Read::List { prefix, after, limit, keys_only } => {
                Reply::Page(self.list(prefix, after.as_deref(), *limit, *keys_only))
            }
            Read::Config(_) | Read::ConfigNamespaces { .. } => {
                Reply::Refused(Refusal::Invalid("read of configuration among keys"))
            }
        }
    }

    /// Keys held, without those that are hidden; with them while a giver does not know how many these are.
    pub fn record_count(&self) -> u64 {
        let hidden = self.ownership.as_ref().and_then(|ownership| ownership.hidden());
        self.records.len() as u64 - hidden.unwrap_or_default()
    }

    /// The last key, hidden or not.
    pub(super) fn last_key(&self) -> Option<Box<[u8]>> {
        self.records.last().map(|record| record.key().into())
    }

    /// What tells keys that are owned from hidden ones, while there may be such.
    fn veil(&self) -> Option<&Ownership> {
        self.ownership.as_deref().filter(|ownership| ownership.hides())
    }

    /// A checksum over revision, origin, keys, versions and values in key order, and over what expires when.
    pub fn digest(&self) -> u64 {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        let mut digest = CRC.digest();
        digest.update(&self.revision.0.to_le_bytes());
        digest.update(self.restoring.as_ref().map_or(&[][..], |backup| backup.as_bytes()));
        for record in self.records.iter() {
            let (key, (version, value)) = (record.key(), record.behind_key());
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

    /// When a key expires, if it does.
    pub(super) fn expires(&self, key: &[u8]) -> Option<UnixMillis> {
        self.expiries.of(key)
    }

    /// Lets a copy in the making know of a change.
    fn note(&mut self, key: &[u8], change: Change) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.note(key, change);
        }
    }

    /// Lets a snapshot in the making keep what a key held before a change.
    fn keep(&mut self, key: &[u8], old: Option<Kept>) {
        if let Some(capture) = &mut self.capture {
            capture.keep(key, old);
        }
    }

    fn list(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, keys_only: bool) -> Page {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut items: Vec<Item> = Vec::new();
        let (mut page_bytes, mut hidden) = (0, 0);
        let veil = self.veil();
        for record in self.records.from(start) {
            let (key, (version, value)) = (record.key(), record.behind_key());
            if !key.starts_with(prefix) {
                break;
            }
            if veil.is_some_and(|ownership| !ownership.owns(key)) {
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
