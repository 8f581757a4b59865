//! The keys of a shard in order, each with its version and its value in one piece of memory.
//!
//! Owns how a record lies in memory: `[length of the key: u16][key][version: varint][value]`. A key of 16 bytes with a value
//! of 32 takes 64 bytes of the allocator and 16 in the tree; with key and value apart it was 80 and 40. What they mean, and
//! when keys expire, is for others.
//!
//! A record is never changed, only replaced.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, btree_set};
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::ops::Bound;

use crate::codec::{self, Decoder};
use crate::limits;
use crate::types::Version;

/// Records in the order of their keys.
#[derive(Debug, Default)]
pub(in crate::machine) struct Table(BTreeSet<Record>);

/// A key with what it holds.
pub(in crate::machine) struct Record(Box<[u8]>);

/// The length of a key stands in front of it.
const PREFIX_BYTES: usize = 2;
const _: () = assert!(limits::KEY_BYTES_MAX <= u16::MAX as usize);

impl Record {
    pub fn new(key: &[u8], version: Version, value: &[u8]) -> Record {
        let prefix = u16::try_from(key.len()).expect("invariant: keys are checked before they enter the log");
        let bytes = PREFIX_BYTES + key.len() + codec::varint_bytes(version.0) + value.len();
        let mut record = Vec::with_capacity(bytes);
        record.extend_from_slice(&prefix.to_le_bytes());
        record.extend_from_slice(key);
        codec::put_varint(&mut record, version.0);
        record.extend_from_slice(value);
        debug_assert_eq!(record.len(), bytes, "one allocation of the right size");
        Record(record.into_boxed_slice())
    }

    pub fn key(&self) -> &[u8] {
        &self.0[PREFIX_BYTES..self.key_end()]
    }

    pub fn version(&self) -> Version {
        self.behind_key().0
    }

    pub fn value(&self) -> &[u8] {
        self.behind_key().1
    }

    /// Version and value.
    pub fn behind_key(&self) -> (Version, &[u8]) {
        let mut decoder = Decoder::new(&self.0[self.key_end()..]);
        let version = decoder.varint().expect("invariant: a record holds a version");
        (Version(version), decoder.rest())
    }

    fn key_end(&self) -> usize {
        PREFIX_BYTES + usize::from(u16::from_le_bytes([self.0[0], self.0[1]]))
    }
}

impl Table {
    pub fn get(&self, key: &[u8]) -> Option<&Record> {
        self.0.get(key)
    }

    /// Puts a record in place. Returns the one that had its key.
    pub fn replace(&mut self, record: Record) -> Option<Record> {
        self.0.replace(record)
    }

    pub fn remove(&mut self, key: &[u8]) -> Option<Record> {
        self.0.take(key)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> btree_set::Iter<'_, Record> {
        self.0.iter()
    }

    /// The records from a key on.
    pub fn from(&self, start: Bound<&[u8]>) -> btree_set::Range<'_, Record> {
        self.0.range::<[u8], _>((start, Bound::Unbounded))
    }
}

/// In one go if the records come in order, and with full nodes then: half the memory of those that were split.
impl FromIterator<Record> for Table {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Table {
        Table(records.into_iter().collect())
    }
}

impl Borrow<[u8]> for Record {
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Record {}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Record) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Record {
    fn cmp(&self, other: &Record) -> Ordering {
        self.key().cmp(other.key())
    }
}

impl core::fmt::Debug for Record {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (version, value) = self.behind_key();
        write!(formatter, "{:?} = {:?} at {version}", self.key(), value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_record_gives_back_what_was_put_into_it() {
        let long = vec![7; limits::KEY_BYTES_MAX];
        for key in [&b"k"[..], b"\x00\xff", &long] {
            for version in [0, 127, 128, u64::MAX] {
                for value in [&b""[..], b"value"] {
                    let record = Record::new(key, Version(version), value);
                    assert_eq!(record.key(), key);
                    assert_eq!(record.behind_key(), (Version(version), value));
                }
            }
        }
    }

    #[test]
    fn records_stand_in_the_order_of_their_keys_alone() {
        let mut table = Table::default();
        for (version, key) in [&b"b"[..], b"", b"a\xff", b"a", b"ab"].into_iter().enumerate() {
            assert!(table.replace(Record::new(key, Version(9 - version as u64), b"z")).is_none());
        }
        let keys: Vec<&[u8]> = table.iter().map(Record::key).collect();
        assert_eq!(keys, [&b""[..], b"a", b"ab", b"a\xff", b"b"]);
        let replaced = table.replace(Record::new(b"ab", Version(100), b"new")).expect("there was one");
        assert_eq!(replaced.behind_key(), (Version(5), &b"z"[..]));
        assert_eq!(table.get(b"ab").map(Record::value), Some(&b"new"[..]), "the new record took its place");
        let behind: Vec<&[u8]> = table.from(Bound::Excluded(b"ab")).map(Record::key).collect();
        assert_eq!(behind, [&b"a\xff"[..], b"b"]);
        assert_eq!(table.remove(b"a").map(|record| record.version()), Some(Version(6)));
        assert!(table.remove(b"a").is_none());
        assert_eq!(table.len(), 4);
    }
}
