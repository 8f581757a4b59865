//! The sorted keys of a shard, each with its version and its value in one allocation.
//!
//! Owns the layout of a record: `[key length: u16][key][version: varint][value]`. The tree itself
//! also holds the first 16 bytes of the key. A lookup is dominated by cache misses. If the keys
//! were behind pointers, each comparison would be a miss, two dozen for a tree of a million keys.
//! Keys that differ in their first 16 bytes cost only one miss for each node of the tree.
//!
//! A record is never changed, only replaced. The callers own the meaning of records and their
//! expiry.

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

/// A key with its version and value.
pub(in crate::machine) struct Record {
    head: Head,
    bytes: Box<[u8]>,
}

/// The first 16 bytes of a key, as a number with the same order; shorter keys are padded with
/// zeros.
type Head = u128;

/// The part of a record that is compared: a key with its prefix.
trait Keyed {
    fn head(&self) -> Head;
    fn key(&self) -> &[u8];
}

struct Needle<'a> {
    head: Head,
    key: &'a [u8],
}

/// Bytes of the key length before the key.
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
        Record { head: head(key), bytes: record.into_boxed_slice() }
    }

    pub fn key(&self) -> &[u8] {
        &self.bytes[PREFIX_BYTES..self.key_end()]
    }

    pub fn version(&self) -> Version {
        self.version_and_value().0
    }

    pub fn value(&self) -> &[u8] {
        self.version_and_value().1
    }

    /// Version and value.
    pub fn version_and_value(&self) -> (Version, &[u8]) {
        let mut decoder = Decoder::new(&self.bytes[self.key_end()..]);
        let version = decoder.varint().expect("invariant: a record holds a version");
        (Version(version), decoder.rest())
    }

    fn key_end(&self) -> usize {
        PREFIX_BYTES + usize::from(u16::from_le_bytes([self.bytes[0], self.bytes[1]]))
    }
}

impl Table {
    pub fn get(&self, key: &[u8]) -> Option<&Record> {
        self.0.get(Needle::new(key).as_keyed())
    }

    /// Stores a record. Returns the previous record with the same key.
    pub fn replace(&mut self, record: Record) -> Option<Record> {
        self.0.replace(record)
    }

    pub fn remove(&mut self, key: &[u8]) -> Option<Record> {
        self.0.take(Needle::new(key).as_keyed())
    }

    /// Frees the first record. Returns whether there was one.
    pub fn pop_first(&mut self) -> bool {
        self.0.pop_first().is_some()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn last(&self) -> Option<&Record> {
        self.0.last()
    }

    pub fn iter(&self) -> btree_set::Iter<'_, Record> {
        self.0.iter()
    }

    /// The records from a key on.
    pub fn from(&self, start: Bound<&[u8]>) -> btree_set::Range<'_, Record> {
        let needle = match start {
            Bound::Included(key) | Bound::Excluded(key) => Needle::new(key),
            Bound::Unbounded => Needle::new(&[]),
        };
        self.0.range::<dyn Keyed, _>((start.map(|_| needle.as_keyed()), Bound::Unbounded))
    }
}

/// Builds the tree in one pass if the records are sorted. Its nodes are then full, which takes half
/// the memory of nodes split by insertion.
impl FromIterator<Record> for Table {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Table {
        Table(records.into_iter().collect())
    }
}

fn head(key: &[u8]) -> Head {
    match key.first_chunk() {
        Some(first) => Head::from_be_bytes(*first),
        None => {
            let mut filled = [0; size_of::<Head>()];
            filled[..key.len()].copy_from_slice(key);
            Head::from_be_bytes(filled)
        }
    }
}

/// The order of two keys. Their first bytes decide nearly always, and a look-up passes several
/// smaller records in each node of the tree. So that case comes first: `Ord::cmp` of the numbers
/// would always take two comparisons of 16 bytes.
#[inline]
fn compare(one: &(impl Keyed + ?Sized), other: &(impl Keyed + ?Sized)) -> Ordering {
    let (head, other_head) = (one.head(), other.head());
    if head > other_head {
        Ordering::Greater
    } else if head == other_head {
        compare_whole(one.key(), other.key())
    } else {
        Ordering::Less
    }
}

/// The order of two keys with the same head. A key that is not longer than the head is wholly in
/// it, but for the zeros with which it ends.
fn compare_whole(one: &[u8], other: &[u8]) -> Ordering {
    if one.len() <= size_of::<Head>() && other.len() <= size_of::<Head>() {
        return one.len().cmp(&other.len());
    }
    one.cmp(other)
}

impl<'a> Needle<'a> {
    fn new(key: &'a [u8]) -> Needle<'a> {
        Needle { head: head(key), key }
    }

    fn as_keyed(&self) -> &(dyn Keyed + 'a) {
        self
    }
}

impl Keyed for Needle<'_> {
    fn head(&self) -> Head {
        self.head
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

impl Keyed for Record {
    fn head(&self) -> Head {
        self.head
    }

    fn key(&self) -> &[u8] {
        self.key()
    }
}

/// Makes it possible to look up a borrowed key in a tree of owned records: both are compared as
/// this trait object.
impl<'a> Borrow<dyn Keyed + 'a> for Record {
    fn borrow(&self) -> &(dyn Keyed + 'a) {
        self
    }
}

impl PartialEq for dyn Keyed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for dyn Keyed + '_ {}

impl PartialOrd for dyn Keyed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Keyed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self, other)
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        self.cmp(other) == Ordering::Equal
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
        compare(self, other)
    }
}

impl core::fmt::Debug for Record {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (version, value) = self.version_and_value();
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
                    assert_eq!(record.version_and_value(), (Version(version), value));
                }
            }
        }
    }

    #[test]
    fn keys_are_in_order_whatever_they_begin_with() {
        let same = [b'x'; 20];
        let mut keys: Vec<Vec<u8>> =
            vec![vec![], vec![0], vec![0; 15], vec![0; 16], vec![0; 17], vec![0xff; 16]];
        for length in 0..20 {
            keys.push(same[..length].to_vec());
            keys.push([&same[..length], &[0]].concat());
            keys.push([&same[..length], &[0xff]].concat());
        }
        let table: Table = keys.iter().map(|key| Record::new(key, Version(1), b"")).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(table.iter().map(Record::key).collect::<Vec<_>>(), keys);
        for (place, key) in keys.iter().enumerate() {
            assert_eq!(table.get(key).map(Record::key), Some(&key[..]));
            let behind = table.from(Bound::Excluded(key)).map(Record::key);
            assert_eq!(behind.collect::<Vec<_>>(), keys[place + 1..]);
        }
        assert!(table.get(&same[..].repeat(2)).is_none());
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
        assert_eq!(replaced.version_and_value(), (Version(5), &b"z"[..]));
        assert_eq!(table.get(b"ab").map(Record::value), Some(&b"new"[..]), "the new record took its place");
        let behind: Vec<&[u8]> = table.from(Bound::Excluded(b"ab")).map(Record::key).collect();
        assert_eq!(behind, [&b"a\xff"[..], b"b"]);
        assert_eq!(table.remove(b"a").map(|record| record.version()), Some(Version(6)));
        assert!(table.remove(b"a").is_none());
        assert_eq!(table.len(), 4);
    }
}
