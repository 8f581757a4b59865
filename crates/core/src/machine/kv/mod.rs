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

mod expiry;
mod operations;
mod rests;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;
use crc::{CRC_64_XZ, Crc};
use uuid::Uuid;

use super::capture::{Capture, Kept};
use crate::command::{Condition, Item, Page, Read, Reply, Restoration};
use crate::limits;
use crate::types::{UnixMillis, Version};
use expiry::Expiries;
pub use operations::parse_number;
use rests::Rests;

pub(super) type Key = Box<[u8]>;

/// State of one data shard.
#[derive(Debug, Default)]
pub struct KeyValue {
    pub(super) revision: Version,
    pub(super) records: BTreeMap<Key, Record>,
    /// When keys expire. Apart from the records: most keys never do, and would pay for it in memory.
    expiries: Expiries,
    /// Follows from the keys.
    rests: Rests,
    /// The backup that all of this state comes from: set by a restore, cleared by the first write of a client.
    pub(super) restoring: Option<Uuid>,
    /// A snapshot in the making.
    pub(super) capture: Option<Capture>,
}

/// What a key holds.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) version: Version,
    pub(super) value: Box<[u8]>,
}

impl KeyValue {
    /// A state to be filled by [`KeyValue::fill`].
    pub(super) fn restored(revision: Version, restoring: Option<Uuid>) -> KeyValue {
        KeyValue { revision, restoring, ..KeyValue::default() }
    }

    /// Takes note of a key of a snapshot, whose record [`KeyValue::fill`] brings.
    pub(super) fn prepare(&mut self, key: &[u8], expires: Option<UnixMillis>) {
        self.rests.created(key);
        self.expiries.set(key, expires);
    }

    /// Puts all records of a snapshot in place, in the order of their keys.
    pub(super) fn fill(&mut self, records: Vec<(Key, Record)>) {
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
        let next = Version(self.revision.0 + 1);
        let Some(record) = self.records.get_mut(key) else {
            if !condition.holds(Version::ABSENT) {
                return Err(Version::ABSENT);
            }
            self.create(key, value, None);
            return Ok((next, true));
        };
        if !condition.holds(record.version) {
            return Err(record.version);
        }
        if self.capture.is_none() && record.value.len() == value.len() {
            // Most values that replace one have its length. The old one is in nobody's way then.
            record.version = next;
            record.value.copy_from_slice(value);
            self.expiries.set(key, None);
        } else {
            let old = core::mem::replace(record, Record { version: next, value: value.into() });
            let expires = self.expiries.set(key, None);
            self.keep(key, Some(Kept { record: old, expires }));
        }
        self.wrote(next);
        Ok((next, false))
    }

    /// Stores a value unconditionally, to expire at `expires`. Returns the key's version.
    fn store(&mut self, key: &[u8], value: &[u8], expires: Option<UnixMillis>) -> Version {
        let next = Version(self.revision.0 + 1);
        let Some(record) = self.records.get_mut(key) else {
            self.create(key, value, expires);
            return next;
        };
        let old = core::mem::replace(record, Record { version: next, value: value.into() });
        let expired = self.expiries.set(key, expires);
        self.keep(key, Some(Kept { record: old, expires: expired }));
        self.wrote(next);
        next
    }

    /// Stores a key that does not exist.
    fn create(&mut self, key: &[u8], value: &[u8], expires: Option<UnixMillis>) {
        let version = Version(self.revision.0 + 1);
        self.rests.created(key);
        self.expiries.set(key, expires);
        self.records.insert(key.into(), Record { version, value: value.into() });
        self.keep(key, None);
        self.wrote(version);
    }

    /// Removes a key that exists. Returns the revision at which it ceased to, and its value.
    fn remove(&mut self, key: &[u8]) -> (Version, Option<Box<[u8]>>) {
        let next = Version(self.revision.0 + 1);
        let Some(record) = self.records.remove(key) else { return (self.revision, None) };
        self.rests.removed(key);
        let expires = self.expiries.set(key, None);
        // Only a snapshot in the making needs the value as well; it is rare.
        let value = if self.capture.is_some() {
            let value = record.value.clone();
            self.keep(key, Some(Kept { record, expires }));
            value
        } else {
            record.value
        };
        self.wrote(next);
        (next, Some(value))
    }

    /// The version of a key, [`Version::ABSENT`] if there is none.
    fn version(&self, key: &[u8]) -> Version {
        self.records.get(key).map_or(Version::ABSENT, |record| record.version)
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
                let record = Record { version: restored.version, value: restored.value[..].into() };
                let old = self.records.insert(key.into(), record);
                let expires = self.expiries.set(key, restored.expires);
                if old.is_none() {
                    self.rests.created(key);
                }
                self.keep(key, old.map(|record| Kept { record, expires }));
            }
        }
        Reply::Restored
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
                Some(record) => Reply::Value {
                    version: record.version,
                    value: Bytes::copy_from_slice(&record.value),
                    expires: self.expiries.of(key),
                },
                None => Reply::NotFound,
            },
            Read::Operations(operations) => Reply::Operations(self.look(operations)),
            Read::Scan { after, count, .. } => self.scan(*after, *count),
            Read::Count => Reply::Count(self.record_count()),
            Read::List { prefix, after, limit, keys_only } => {
                Reply::Page(self.list(prefix, after.as_deref(), *limit, *keys_only))
            }
        }
    }

    /// Keys held.
    pub fn record_count(&self) -> u64 {
        self.records.len() as u64
    }

    /// A checksum over revision, origin, keys, versions and values in key order, and over what expires when.
    pub fn digest(&self) -> u64 {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        let mut digest = CRC.digest();
        digest.update(&self.revision.0.to_le_bytes());
        digest.update(self.restoring.as_ref().map_or(&[][..], |backup| backup.as_bytes()));
        for (key, record) in &self.records {
            digest.update(&(key.len() as u64).to_le_bytes());
            digest.update(key);
            digest.update(&record.version.0.to_le_bytes());
            digest.update(&(record.value.len() as u64).to_le_bytes());
            digest.update(&record.value);
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
        let mut page_bytes = 0;
        for (key, record) in self.records.range::<[u8], _>((start, Bound::Unbounded)) {
            if !key.starts_with(prefix) {
                break;
            }
            if items.len() == limit || page_bytes >= limits::LIST_PAGE_BYTES_MAX {
                let next = items.last().map(|item| item.key.clone());
                return Page { items, next };
            }
            let value = (!keys_only).then(|| Bytes::copy_from_slice(&record.value));
            page_bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            let (key, expires) = (Bytes::copy_from_slice(key), self.expiries.of(key));
            items.push(Item { key, version: record.version, value, expires });
        }
        Page { items, next: None }
    }
}
