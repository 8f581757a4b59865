//! The key-value machine: an ordered map from keys to values with versions.
//!
//! Owns versions: the shard counts a revision, every successful mutation takes the next, and a key's version is
//! the revision that last wrote it. A key that is deleted and created again therefore never repeats a version. A
//! restore keeps that by filling a shard that nothing else has ever written to, and by lifting its revision above
//! everything that it puts there.
//!
//! Keys and values are copied out of the log on apply: a slice of an entry would keep the whole entry, with every
//! other command of its batch, alive for as long as the key.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;
use crc::{CRC_64_XZ, Crc};
use uuid::Uuid;

use super::capture::Capture;
use crate::command::{Condition, Item, Page, Read, Refusal, Reply, Restoration};
use crate::limits;
use crate::types::Version;

/// State of one data shard.
#[derive(Debug, Default)]
pub struct KeyValue {
    pub(super) revision: Version,
    pub(super) records: BTreeMap<Box<[u8]>, Record>,
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
    /// Stores a value if `condition` holds.
    pub fn put(&mut self, key: &[u8], value: &[u8], condition: Condition) -> Reply {
        let next = Version(self.revision.0 + 1);
        if let Some(record) = self.records.get_mut(key) {
            if !condition.holds(record.version) {
                return Reply::ConditionFailed { current: record.version };
            }
            let old = core::mem::replace(record, Record { version: next, value: value.into() });
            self.keep(key, Some(old));
        } else {
            if !condition.holds(Version::ABSENT) {
                return Reply::ConditionFailed { current: Version::ABSENT };
            }
            self.records.insert(key.into(), Record { version: next, value: value.into() });
            self.keep(key, None);
            self.wrote(next);
            return Reply::Written { version: next, created: true };
        }
        self.wrote(next);
        Reply::Written { version: next, created: false }
    }

    /// Removes a key if `condition` holds.
    pub fn delete(&mut self, key: &[u8], condition: Condition) -> Reply {
        let current = self.records.get(key).map_or(Version::ABSENT, |record| record.version);
        if !condition.holds(current) {
            return Reply::ConditionFailed { current };
        }
        let Some(old) = self.records.remove(key) else { return Reply::NotFound };
        self.keep(key, Some(old));
        self.wrote(Version(self.revision.0 + 1));
        Reply::Deleted { version: self.revision }
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
            let held = self.records.get(&restored.key[..]);
            if held.is_none_or(|held| held.version < restored.version) {
                let record = Record { version: restored.version, value: restored.value[..].into() };
                let old = self.records.insert(restored.key[..].into(), record);
                self.keep(&restored.key, old);
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
                Some(record) => {
                    Reply::Value { version: record.version, value: Bytes::copy_from_slice(&record.value) }
                }
                None => Reply::NotFound,
            },
            Read::List { prefix, after, limit, keys_only } => {
                Reply::Page(self.list(prefix, after.as_deref(), *limit, *keys_only))
            }
            Read::Config(_) | Read::ConfigNamespaces { .. } => {
                Reply::Refused(Refusal::Invalid("read of configuration among keys"))
            }
        }
    }

    /// Keys held.
    pub fn record_count(&self) -> u64 {
        self.records.len() as u64
    }

    /// A checksum over revision, origin, keys, versions and values in key order.
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
        digest.finalize()
    }

    /// Lets a snapshot in the making keep what a key held before a change.
    fn keep(&mut self, key: &[u8], old: Option<Record>) {
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
            items.push(Item { key: Bytes::copy_from_slice(key), version: record.version, value });
        }
        Page { items, next: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::RestoredKey;
    use crate::types::ShardId;
    use alloc::vec;

    fn get(kv: &KeyValue, key: &'static [u8]) -> Reply {
        kv.read(&Read::Get { key: Bytes::from_static(key) })
    }

    #[test]
    fn versions_rise_and_never_repeat() {
        let mut kv = KeyValue::default();
        assert_eq!(
            kv.put(b"a", b"1", Condition::Always),
            Reply::Written { version: Version(1), created: true }
        );
        assert_eq!(
            kv.put(b"b", b"1", Condition::Always),
            Reply::Written { version: Version(2), created: true }
        );
        assert_eq!(
            kv.put(b"a", b"2", Condition::Always),
            Reply::Written { version: Version(3), created: false }
        );
        assert_eq!(kv.delete(b"a", Condition::Always), Reply::Deleted { version: Version(4) });
        assert_eq!(kv.delete(b"a", Condition::Always), Reply::NotFound);
        let created = kv.put(b"a", b"3", Condition::Version(Version::ABSENT));
        assert_eq!(created, Reply::Written { version: Version(5), created: true });
        assert_eq!(get(&kv, b"a"), Reply::Value { version: Version(5), value: Bytes::from_static(b"3") });
    }

    #[test]
    fn a_failed_condition_changes_nothing_and_takes_no_revision() {
        let mut kv = KeyValue::default();
        let absent = Reply::ConditionFailed { current: Version::ABSENT };
        assert_eq!(kv.put(b"a", b"1", Condition::Exists), absent);
        assert_eq!(kv.put(b"a", b"1", Condition::Version(Version(7))), absent);
        assert_eq!(kv.delete(b"a", Condition::Exists), absent);
        let before = kv.digest();
        assert_eq!(before, KeyValue::default().digest());
        kv.put(b"a", b"1", Condition::Always);
        let failed = Reply::ConditionFailed { current: Version(1) };
        assert_eq!(kv.put(b"a", b"2", Condition::Version(Version::ABSENT)), failed);
        assert_eq!(kv.delete(b"a", Condition::Version(Version(2))), failed);
        assert_eq!(get(&kv, b"a"), Reply::Value { version: Version(1), value: Bytes::from_static(b"1") });
    }

    fn restoration(backup: u128, revision: u64, records: &[(&'static [u8], u64)]) -> Restoration {
        let record = |&(key, version): &(&'static [u8], u64)| RestoredKey {
            key: Bytes::from_static(key),
            version: Version(version),
            value: Bytes::from_static(b"old"),
        };
        Restoration {
            shard: ShardId(1),
            backup: Uuid::from_u128(backup),
            revision: Version(revision),
            records: records.iter().map(record).collect(),
        }
    }

    #[test]
    fn a_restore_keeps_versions_and_may_be_repeated() {
        let mut kv = KeyValue::default();
        assert_eq!(kv.restore(&restoration(7, 100, &[])), Reply::Restored);
        let part = restoration(7, 100, &[(b"a", 3), (b"b", 40)]);
        assert_eq!(kv.restore(&part), Reply::Restored);
        let (once, old) = (kv.digest(), Bytes::from_static(b"old"));
        assert_eq!(kv.restore(&part), Reply::Restored);
        assert_eq!(kv.digest(), once);
        assert_eq!(get(&kv, b"a"), Reply::Value { version: Version(3), value: old.clone() });
        let failed = kv.put(b"a", b"2", Condition::Version(Version(2)));
        assert_eq!(failed, Reply::ConditionFailed { current: Version(3) });
        assert_eq!(kv.restore(&part), Reply::Restored, "nothing was written yet");
        let written = kv.put(b"a", b"2", Condition::Version(Version(3)));
        assert_eq!(written, Reply::Written { version: Version(101), created: false });
        assert_eq!(kv.restore(&part), Reply::ConditionFailed { current: Version(101) });
    }

    #[test]
    fn a_restore_into_what_others_wrote_is_refused() {
        let mut restored = KeyValue::default();
        restored.restore(&restoration(7, 100, &[]));
        assert_eq!(
            restored.restore(&restoration(8, 100, &[])),
            Reply::ConditionFailed { current: Version(100) },
            "another backup"
        );
        let mut emptied = KeyValue::default();
        emptied.put(b"a", b"1", Condition::Always);
        emptied.delete(b"a", Condition::Always);
        let before = emptied.digest();
        let refused = emptied.restore(&restoration(7, 100, &[(b"a", 1)]));
        assert_eq!(refused, Reply::ConditionFailed { current: Version(2) }, "version 1 was given out here");
        assert_eq!(emptied.digest(), before);
    }

    #[test]
    fn lists_page_in_byte_order_within_the_prefix() {
        let mut kv = KeyValue::default();
        for key in [&b"a"[..], b"p", b"p\x00", b"p\xff", b"pa", b"pb", b"q"] {
            kv.put(key, b"v", Condition::Always);
        }
        let list = |after: Option<&[u8]>, limit| {
            let page = kv.list(b"p", after, limit, true);
            (page.items.iter().map(|item| item.key.to_vec()).collect::<Vec<_>>(), page.next)
        };
        let (keys, next) = list(None, 2);
        assert_eq!((keys, next.as_deref()), (vec![b"p".to_vec(), b"p\x00".to_vec()], Some(&b"p\x00"[..])));
        let (keys, next) = list(Some(b"p\x00"), 3);
        assert_eq!((keys, next), (vec![b"pa".to_vec(), b"pb".to_vec(), b"p\xff".to_vec()], None));
        assert_eq!(list(Some(b"a"), 1).0, vec![b"p".to_vec()]);
        assert_eq!(list(Some(b"q"), 1).0, Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_page_is_bounded_in_bytes_but_never_empty() {
        let mut kv = KeyValue::default();
        let value = vec![7; limits::VALUE_BYTES_MAX];
        for key in [b"a", b"b", b"c", b"d", b"e", b"f"] {
            kv.put(key, &value, Condition::Always);
        }
        let page = kv.list(b"", None, 1000, false);
        assert_eq!(page.items.len(), 4);
        assert_eq!(page.next.as_deref(), Some(&b"d"[..]));
    }
}
