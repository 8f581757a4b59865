//! Tests of versions, conditions, restores and lists. Operations and expiry have their own tests.

use super::*;
use crate::command::{
    Operation, OperationReply, Operations, RestoredKey, StoredValue, Transaction, WriteReply,
};
use crate::types::ShardId;
use alloc::vec;

impl KeyValue {
    /// Applies a transaction of one operation.
    fn run(&mut self, operation: &Operation<'_>) -> WriteReply {
        self.transact(&Transaction::of(Operations::of(&[*operation])), true)
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8], condition: Condition) -> WriteReply {
        self.run(&Operation::Put { key, value, condition })
    }

    pub(super) fn delete(&mut self, key: &[u8], condition: Condition) -> WriteReply {
        self.run(&Operation::Delete { key, condition })
    }
}

fn written(version: u64, created: bool) -> WriteReply {
    WriteReply::of(&OperationReply::Written { version: Version(version), created })
}

fn stored(version: u64, value: &'static [u8]) -> Option<StoredValue> {
    Some(StoredValue {
        version: Version(version),
        value: Bytes::from_static(value),
        expires: None,
        lease: None,
    })
}

#[test]
fn versions_rise_and_never_repeat() {
    let mut kv = KeyValue::default();
    assert_eq!(kv.put(b"a", b"1", Condition::Always), written(1, true));
    assert_eq!(kv.put(b"b", b"1", Condition::Always), written(2, true));
    assert_eq!(kv.put(b"a", b"2", Condition::Always), written(3, false));
    assert_eq!(
        kv.delete(b"a", Condition::Always),
        WriteReply::of(&OperationReply::Deleted { version: Version(4) })
    );
    assert_eq!(kv.delete(b"a", Condition::Always), WriteReply::of(&OperationReply::Absent));
    let created = kv.put(b"a", b"3", Condition::Version(Version::ABSENT));
    assert_eq!(created, written(5, true));
    assert_eq!(kv.get(b"a"), stored(5, b"3"));
}

#[test]
fn a_failed_condition_changes_nothing_and_takes_no_revision() {
    let mut kv = KeyValue::default();
    let absent = WriteReply::of(&OperationReply::ConditionFailed { current: Version::ABSENT });
    assert_eq!(kv.put(b"a", b"1", Condition::Exists), absent);
    assert_eq!(kv.put(b"a", b"1", Condition::Version(Version(7))), absent);
    assert_eq!(kv.delete(b"a", Condition::Exists), absent);
    let before = kv.digest();
    assert_eq!(before, KeyValue::default().digest());
    kv.put(b"a", b"1", Condition::Always);
    let failed = WriteReply::of(&OperationReply::ConditionFailed { current: Version(1) });
    assert_eq!(kv.put(b"a", b"2", Condition::Version(Version::ABSENT)), failed);
    assert_eq!(kv.delete(b"a", Condition::Version(Version(2))), failed);
    assert_eq!(kv.get(b"a"), stored(1, b"1"));
}

fn restoration(backup: u128, revision: u64, records: &[(&'static [u8], u64)]) -> Restoration {
    let record = |&(key, version): &(&'static [u8], u64)| RestoredKey {
        key: Bytes::from_static(key),
        version: Version(version),
        value: Bytes::from_static(b"old"),
        expires: None,
        lease: None,
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
    assert_eq!(kv.restore(&restoration(7, 100, &[])), WriteReply::Restored);
    let part = restoration(7, 100, &[(b"a", 3), (b"b", 40)]);
    assert_eq!(kv.restore(&part), WriteReply::Restored);
    let (once, old) = (kv.digest(), Bytes::from_static(b"old"));
    assert_eq!(kv.restore(&part), WriteReply::Restored);
    assert_eq!(kv.digest(), once);
    assert_eq!(
        kv.get(b"a"),
        Some(StoredValue { version: Version(3), value: old.clone(), expires: None, lease: None })
    );
    let failed = kv.put(b"a", b"2", Condition::Version(Version(2)));
    assert_eq!(failed, WriteReply::of(&OperationReply::ConditionFailed { current: Version(3) }));
    assert_eq!(kv.restore(&part), WriteReply::Restored, "nothing was written yet");
    let reply = kv.put(b"a", b"2", Condition::Version(Version(3)));
    assert_eq!(reply, written(101, false));
    assert_eq!(kv.restore(&part), WriteReply::ConditionFailed { current: Version(101) });
}

#[test]
fn a_restore_into_what_others_wrote_is_refused() {
    let mut restored = KeyValue::default();
    restored.restore(&restoration(7, 100, &[]));
    assert_eq!(
        restored.restore(&restoration(8, 100, &[])),
        WriteReply::ConditionFailed { current: Version(100) },
        "another backup"
    );
    let mut emptied = KeyValue::default();
    emptied.put(b"a", b"1", Condition::Always);
    emptied.delete(b"a", Condition::Always);
    let before = emptied.digest();
    let refused = emptied.restore(&restoration(7, 100, &[(b"a", 1)]));
    assert_eq!(refused, WriteReply::ConditionFailed { current: Version(2) }, "version 1 was given out here");
    assert_eq!(emptied.digest(), before);
}

#[test]
fn what_another_restore_has_brought_is_discarded_in_steps() {
    let mut kv = KeyValue::default();
    assert_eq!(kv.discard_restore(Uuid::from_u128(8)), None, "nothing was written");
    let key = |number: usize| Bytes::from(alloc::format!("{number:05}"));
    let count = limits::DISCARD_KEYS_MAX + 2;
    let mut all = restoration(7, 100, &[]);
    all.records = (0..count)
        .map(|number| RestoredKey {
            key: key(number),
            version: Version(1),
            value: Bytes::new(),
            expires: Some(UnixMillis(1 << 40)),
            lease: None,
        })
        .collect();
    assert_eq!(kv.restore(&all), WriteReply::Restored);
    assert_eq!(kv.discard_restore(Uuid::from_u128(7)), None, "it is this restore");
    assert_eq!(kv.discard_restore(Uuid::from_u128(8)), Some(2));
    assert_eq!(kv.discard_restore(Uuid::from_u128(8)), Some(0));
    assert_eq!(kv.record_count(), 0);
    assert_eq!(
        kv.restore(&all),
        WriteReply::ConditionFailed { current: Version(100) },
        "the shard is claimed"
    );
    assert_eq!(kv.restore(&restoration(8, 10, &[(b"a", 3)])), WriteReply::Restored);
    let reply = kv.put(b"a", b"2", Condition::Version(Version(3)));
    assert_eq!(reply, written(101, false), "no version comes again");
    assert!(!kv.holds_only_restored());
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
