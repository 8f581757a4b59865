//! Tests of each operation on keys in every relevant state.

use super::*;
use crate::command::{Condition, Operation, OperationReply, Watch, WriteReply, hash_of};
use alloc::vec;
use bytes::Bytes;

const KEY: &[u8] = b"k";

fn holding(value: &[u8]) -> KeyValue {
    let mut kv = KeyValue::default();
    kv.put(KEY, value, Condition::Always);
    kv
}

fn run(kv: &mut KeyValue, operation: Operation<'_>) -> OperationReplies {
    match kv.transact(&Transaction::of(Operations::of(&[operation])), true) {
        WriteReply::Operations(replies) => replies,
        other => panic!("{other:?} answers a transaction"),
    }
}

/// Checks the only reply to an operation.
fn gives(kv: &mut KeyValue, operation: Operation<'_>, expected: OperationReply<'_>) {
    assert_eq!(run(kv, operation).only(), Some(expected), "{operation:?}");
}

fn holds(kv: &KeyValue, value: &[u8], expires: Option<u64>) {
    let held = kv.records.get(KEY).map(Record::value);
    assert_eq!((held, kv.expires(KEY)), (Some(value), expires.map(UnixMillis)));
}

fn set(value: &'static [u8]) -> Set<'static> {
    let condition = SetCondition::Version(Condition::Always);
    Set { key: KEY, value, condition, expiry: Expiry::Never, previous: false }
}

#[test]
fn sets_by_value() {
    let failed = |current| OperationReply::ConditionFailed { current: Version(current) };
    let written = |version, created| OperationReply::Written { version: Version(version), created };
    let equals = Operation::Set(Set { condition: SetCondition::Equals(b"old"), ..set(b"new") });
    let differs = Operation::Set(Set { condition: SetCondition::Differs(b"old"), ..set(b"new") });
    gives(&mut KeyValue::default(), equals, failed(0));
    gives(&mut KeyValue::default(), differs, written(1, true));
    gives(&mut holding(b"old"), equals, written(2, false));
    gives(&mut holding(b"old"), differs, failed(1));
    gives(&mut holding(b"other"), equals, failed(1));
    gives(&mut holding(b"other"), differs, written(2, false));
}

#[test]
fn sets_that_ask_for_the_previous_value() {
    let replaced = |version: u64, previous| OperationReply::Replaced {
        version: (version > 0).then_some(Version(version)),
        previous,
    };
    let get = Set { previous: true, ..set(b"new") };
    let absent = SetCondition::Version(Condition::Version(Version::ABSENT));
    let only_new = Operation::Set(Set { condition: absent, ..get });
    gives(&mut KeyValue::default(), Operation::Set(get), replaced(1, None));
    gives(&mut holding(b"old"), Operation::Set(get), replaced(2, Some(b"old")));
    let mut kv = holding(b"old");
    gives(&mut kv, only_new, replaced(0, Some(b"old")));
    holds(&kv, b"old", None);
    gives(&mut KeyValue::default(), only_new, replaced(1, None));
}

#[test]
fn sets_and_when_keys_expire() {
    let at = |time| Operation::Set(Set { expiry: Expiry::At(UnixMillis(time)), ..set(b"v") });
    let mut kv = holding(b"v");
    run(&mut kv, at(50));
    holds(&kv, b"v", Some(50));
    run(&mut kv, Operation::Set(Set { expiry: Expiry::Keep, ..set(b"w") }));
    holds(&kv, b"w", Some(50));
    run(&mut kv, Operation::Append { key: KEY, suffix: b"x" });
    holds(&kv, b"wx", Some(50));
    run(&mut kv, Operation::Set(set(b"1")));
    holds(&kv, b"1", None);
    run(&mut kv, at(60));
    run(&mut kv, Operation::Put { key: KEY, value: b"7", condition: Condition::Always });
    holds(&kv, b"7", None);
    run(&mut kv, Operation::Set(Set { expiry: Expiry::At(UnixMillis(9)), ..set(b"7") }));
    run(&mut kv, Operation::Add { key: KEY, delta: 1 });
    run(&mut kv, Operation::Exchange { key: KEY, value: 5 });
    holds(&kv, b"5", Some(9));
    run(
        &mut kv,
        Operation::Set(Set { expiry: Expiry::Keep, condition: SetCondition::Equals(b"no"), ..set(b"z") }),
    );
    holds(&kv, b"5", Some(9));
}

#[test]
fn a_set_whose_time_has_passed_leaves_no_key() {
    let passed = Set { expiry: Expiry::At(UnixMillis(0)), ..set(b"new") };
    for mut kv in [KeyValue::default(), holding(b"old")] {
        let created = kv.record_count() == 0;
        let written = OperationReply::Written { version: Version(kv.revision.0 + 1), created };
        gives(&mut kv, Operation::Set(passed), written);
        assert_eq!((kv.record_count(), kv.expires(KEY)), (0, None));
    }
    let mut kv = holding(b"old");
    let previous = OperationReply::Replaced { version: Some(Version(2)), previous: Some(b"old") };
    gives(&mut kv, Operation::Set(Set { previous: true, ..passed }), previous);
    assert_eq!(kv.record_count(), 0);
    let mut kv = holding(b"old");
    run(&mut kv, Operation::Set(Set { condition: SetCondition::Differs(b"old"), ..passed }));
    holds(&kv, b"old", None);
}

#[test]
fn when_a_key_expires_can_be_changed() {
    let expire =
        |at: Option<u64>, condition| Operation::Expire { key: KEY, at: at.map(UnixMillis), condition };
    let mut kv = KeyValue::default();
    gives(&mut kv, expire(Some(5), ExpiryCondition::Always), OperationReply::Absent);
    let mut kv = holding(b"v");
    let failed = |current| OperationReply::ConditionFailed { current: Version(current) };
    let changed = |version| OperationReply::Written { version: Version(version), created: false };
    gives(&mut kv, expire(None, ExpiryCondition::Some), failed(1));
    gives(&mut kv, expire(Some(5), ExpiryCondition::Later), failed(1));
    gives(&mut kv, expire(Some(5), ExpiryCondition::Always), changed(2));
    holds(&kv, b"v", Some(5));
    gives(&mut kv, expire(Some(6), ExpiryCondition::Never), failed(2));
    gives(&mut kv, expire(None, ExpiryCondition::Some), changed(3));
    holds(&kv, b"v", None);
    gives(&mut kv, expire(Some(0), ExpiryCondition::Some), failed(3));
    gives(&mut kv, expire(Some(0), ExpiryCondition::Always), OperationReply::Deleted { version: Version(4) });
    assert_eq!(kv.record_count(), 0);
}

#[test]
fn numbers_are_added_to_within_their_range() {
    let add = |delta| Operation::Add { key: KEY, delta };
    let number = |version, value| OperationReply::Number { version: Version(version), value };
    let mut kv = KeyValue::default();
    gives(&mut kv, add(-3), number(1, -3));
    gives(&mut kv, add(i64::MAX), number(2, i64::MAX - 3));
    gives(&mut kv, add(4), OperationReply::Rejected(Rejection::Overflow));
    gives(&mut kv, add(3), number(3, i64::MAX));
    holds(&kv, b"9223372036854775807", None);
    gives(&mut holding(b"-9223372036854775808"), add(-1), OperationReply::Rejected(Rejection::Overflow));
    for text in [&b""[..], b"a", b"1 ", b" 1", b"+1", b"01", b"-0", b"-", b"1.0", b"9223372036854775808"] {
        gives(&mut holding(text), add(1), OperationReply::Rejected(Rejection::NotANumber));
        assert_eq!(parse_number(text), None);
    }
    assert_eq!([&b"0"[..], b"-1", b"10"].map(parse_number), [Some(0), Some(-1), Some(10)]);
}

#[test]
fn registers_are_exchanged() {
    let exchanged = |swapped, old, version| {
        OperationReply::Exchanged(Exchange { swapped, old, version: Version(version) })
    };
    let compare = |expected, new| Operation::CompareExchange { key: KEY, expected, new };
    let mut kv = KeyValue::default();
    gives(&mut kv, compare(1, 2), exchanged(false, 0, 0));
    gives(&mut kv, compare(0, 2), exchanged(true, 0, 1));
    gives(&mut kv, compare(0, 3), exchanged(false, 2, 1));
    gives(&mut kv, Operation::Exchange { key: KEY, value: -9 }, exchanged(true, 2, 2));
    holds(&kv, b"-9", None);
    let rejected = OperationReply::Rejected(Rejection::NotANumber);
    gives(&mut holding(b"text"), compare(0, 1), rejected);
    gives(&mut holding(b"text"), Operation::Exchange { key: KEY, value: 1 }, rejected);
}

#[test]
fn values_grow_up_to_their_limit() {
    let append = |suffix| Operation::Append { key: KEY, suffix };
    let length = |version, value_bytes| OperationReply::Length { version: Version(version), value_bytes };
    let mut kv = KeyValue::default();
    gives(&mut kv, append(b"a\0"), length(1, 2));
    gives(&mut kv, append(b""), length(2, 2));
    holds(&kv, b"a\0", None);
    let rest = vec![1; limits::VALUE_BYTES_MAX - 2];
    gives(&mut kv, append(&rest), length(3, limits::VALUE_BYTES_MAX as u64));
    gives(&mut kv, append(b"x"), OperationReply::Rejected(Rejection::ValueTooLong));
}

#[test]
fn parts_of_values_are_replaced() {
    let set_range = |offset, bytes| Operation::SetRange { key: KEY, offset, bytes };
    let length = |version, value_bytes| OperationReply::Length { version: Version(version), value_bytes };
    let mut kv = KeyValue::default();
    gives(&mut kv, set_range(2, b"ab"), length(1, 4));
    holds(&kv, b"\0\0ab", None);
    run(&mut kv, Operation::Expire { key: KEY, at: Some(UnixMillis(9)), condition: ExpiryCondition::Always });
    gives(&mut kv, set_range(0, b"xy"), length(3, 4));
    holds(&kv, b"xyab", Some(9));
    gives(&mut kv, set_range(3, b"12"), length(4, 5));
    gives(&mut kv, set_range(7, b"3"), length(5, 8));
    holds(&kv, b"xya12\0\x003", Some(9));
    let last = limits::VALUE_BYTES_MAX as u64 - 1;
    gives(&mut kv, set_range(last, b"z"), length(6, last + 1));
    for (offset, bytes, is_valid) in [
        (last, &b"z"[..], true),
        (last, b"zz", false),
        (last + 1, b"z", false),
        (u64::MAX, b"z", false),
        (0, b"", false),
    ] {
        assert_eq!(set_range(offset, bytes).validate().is_ok(), is_valid, "{offset} {bytes:?}");
    }
}

#[test]
fn decimal_numbers_are_added_to() {
    let decimal = |text: &str| Decimal::parse(text.as_bytes()).expect("a number");
    let add = |text| Operation::AddDecimal { key: KEY, delta: decimal(text) };
    let sum = |version, text| OperationReply::Decimal { version: Version(version), value: decimal(text) };
    let mut kv = KeyValue::default();
    gives(&mut kv, add("0.1"), sum(1, "0.1"));
    gives(&mut kv, add("0.2"), sum(2, "0.3"));
    holds(&kv, b"0.3", None);
    gives(&mut kv, add("-1.3"), sum(3, "-1"));
    gives(
        &mut kv,
        Operation::Add { key: KEY, delta: 3 },
        OperationReply::Number { version: Version(4), value: 2 },
    );
    gives(&mut kv, add("999999999999999999998"), OperationReply::Rejected(Rejection::DecimalOverflow));
    holds(&kv, b"2", None);
    for text in [&b""[..], b"a", b"1 ", b" 1", b"nan", b"inf", b"1e21"] {
        gives(&mut holding(text), add("1"), OperationReply::Rejected(Rejection::NotADecimal));
    }
    gives(&mut holding(b"5.0e3"), add("200"), sum(2, "5200"));
}

#[test]
fn keys_are_deleted_by_their_values() {
    let delete = |condition| Operation::DeleteIf { key: KEY, condition };
    let (old, other) = (hash_of(b"old"), hash_of(b"other"));
    for (holds, fails) in [
        (SetCondition::Equals(b"old"), SetCondition::Equals(b"other")),
        (SetCondition::Differs(b"other"), SetCondition::Differs(b"old")),
        (SetCondition::HashEquals(old), SetCondition::HashEquals(other)),
        (SetCondition::HashDiffers(other), SetCondition::HashDiffers(old)),
    ] {
        let mut kv = holding(b"old");
        gives(&mut kv, delete(fails), OperationReply::ConditionFailed { current: Version(1) });
        gives(&mut kv, delete(holds), OperationReply::Deleted { version: Version(2) });
        assert_eq!(kv.record_count(), 0);
    }
    let absent = OperationReply::ConditionFailed { current: Version::ABSENT };
    gives(&mut KeyValue::default(), delete(SetCondition::HashEquals(old)), absent);
    gives(&mut KeyValue::default(), delete(SetCondition::HashDiffers(old)), OperationReply::Absent);
    // As the reference implementation of XXH3 computes it.
    assert_eq!(hash_of(b"Hello world"), 0xb6acb9d84a38ff74);
}

#[test]
fn operations_are_skipped_if_a_key_exists() {
    let (skip, other) = (Operation::SkipIfExists { key: KEY, count: 2 }, &b"other"[..]);
    let put = |key| Operation::Put { key, value: b"v", condition: Condition::Always };
    let operations = [skip, put(KEY), put(other), Operation::Describe { key: other }];
    let transaction = Transaction::of(Operations::of(&operations));
    let mut kv = KeyValue::default();
    let WriteReply::Operations(replies) = kv.transact(&transaction, true) else { panic!("replies") };
    let written = |version| OperationReply::Written { version: Version(version), created: true };
    let described = OperationReply::Described { version: Version(2), expires: None, value_bytes: 1 };
    assert!(replies.iter().eq([OperationReply::Absent, written(1), written(2), described]));

    let (mut kv, mut silent) = (holding(b"old"), holding(b"old"));
    let WriteReply::Operations(replies) = kv.transact(&transaction, true) else { panic!("replies") };
    let failed = OperationReply::ConditionFailed { current: Version(1) };
    let skipped = OperationReply::Skipped;
    assert!(replies.iter().eq([failed, skipped, skipped, OperationReply::Absent]));
    silent.transact(&transaction, false);
    assert_eq!(kv.digest(), silent.digest());
    assert_eq!(kv.digest(), holding(b"old").digest());

    let beyond = Operation::SkipIfExists { key: KEY, count: u64::MAX };
    gives(&mut kv, beyond, failed);
}

#[test]
fn what_is_taken_is_gone() {
    let take = Operation::Take { key: KEY };
    let mut kv = holding(b"v");
    gives(&mut kv, take, OperationReply::Taken { version: Version(2), value: b"v" });
    gives(&mut kv, take, OperationReply::Absent);
    gives(&mut kv, Operation::Get { key: KEY }, OperationReply::Absent);
    gives(&mut kv, Operation::Delete { key: KEY, condition: Condition::Always }, OperationReply::Absent);
}

#[test]
fn nothing_is_taken_that_cannot_be_answered_with() {
    let mut kv = KeyValue::default();
    let value = vec![0; limits::VALUE_BYTES_MAX];
    let keys: Vec<[u8; 1]> = (0..20).map(|key| [key]).collect();
    for key in &keys {
        kv.put(key, &value, Condition::Always);
    }
    let takes: Vec<_> = keys.iter().map(|key| Operation::Take { key }).collect();
    let transaction = Transaction::of(Operations::of(&takes));
    let WriteReply::Operations(replies) = kv.transact(&transaction, true) else { panic!("replies") };
    let taken = replies.iter().filter(|reply| matches!(reply, OperationReply::Taken { .. })).count();
    assert_eq!((taken, kv.record_count()), (8, 12));
}

#[test]
fn a_transaction_happens_whole_or_not_at_all() {
    let mut kv = holding(b"1");
    let operations = Operations::of(&[
        Operation::Add { key: KEY, delta: 1 },
        Operation::Get { key: KEY },
        Operation::Append { key: b"other", suffix: b"x" },
        Operation::Describe { key: b"other" },
    ]);
    let watch = |version| Watch { key: Bytes::from_static(KEY), version: Version(version) };
    let absent = Watch { key: Bytes::from_static(b"none"), version: Version::ABSENT };
    let transaction = |version| Transaction {
        watches: vec![absent.clone(), watch(version)],
        operations: operations.clone(),
    };
    let before = kv.digest();
    let failed = kv.transact(&transaction(7), true);
    assert_eq!(failed, WriteReply::ConditionFailed { current: Version(1) });
    assert_eq!(kv.digest(), before);
    let WriteReply::Operations(replies) = kv.transact(&transaction(1), true) else { panic!("replies") };
    let expected = [
        OperationReply::Number { version: Version(2), value: 2 },
        OperationReply::Value { version: Version(2), expires: None, value: b"2" },
        OperationReply::Length { version: Version(3), value_bytes: 1 },
        OperationReply::Described { version: Version(3), expires: None, value_bytes: 1 },
    ];
    assert_eq!(replies.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn comparisons_select_the_branch_that_happens() {
    let (absent, value) = (&b"none"[..], |value| ExpectedState::Value(Bytes::from_static(value)));
    let version = |version| ExpectedState::Version(Version(version));
    let compare = |key, expected| Comparison { key: Bytes::from_static(key), expected };
    for (comparisons, succeeds) in [
        (vec![], true),
        (vec![compare(KEY, version(1))], true),
        (vec![compare(KEY, version(2))], false),
        (vec![compare(KEY, version(0))], false),
        (vec![compare(KEY, ExpectedState::Exists)], true),
        (vec![compare(KEY, value(b"1"))], true),
        (vec![compare(KEY, value(b""))], false),
        (vec![compare(KEY, value(b"12"))], false),
        (vec![compare(absent, version(0))], true),
        (vec![compare(absent, version(1))], false),
        (vec![compare(absent, ExpectedState::Exists)], false),
        (vec![compare(absent, value(b""))], false),
        (vec![compare(KEY, value(b"1")), compare(absent, version(0))], true),
        (vec![compare(KEY, value(b"1")), compare(absent, ExpectedState::Exists)], false),
    ] {
        let mut kv = holding(b"1");
        let branch =
            |suffix| Operations::of(&[Operation::Append { key: KEY, suffix }, Operation::Get { key: KEY }]);
        let (then, otherwise) = (branch(b"+then"), branch(b"+else"));
        let transaction = ConditionalTransaction { comparisons, then, otherwise, id: None };
        let mut silent = holding(b"1");
        let reply = kv.transact_by_branch(&transaction, true, Faults::NONE);
        let WriteReply::Branched { succeeded, replies } = reply else { panic!("{reply:?}") };
        assert_eq!(succeeded, succeeds, "{:?}", transaction.comparisons);
        let value: &[u8] = if succeeds { b"1+then" } else { b"1+else" };
        let expected = [
            OperationReply::Length { version: Version(2), value_bytes: 6 },
            OperationReply::Value { version: Version(2), expires: None, value },
        ];
        assert_eq!(replies.iter().collect::<Vec<_>>(), expected);
        silent.transact_by_branch(&transaction, false, Faults::NONE);
        assert_eq!(kv.digest(), silent.digest());
    }
}

#[test]
fn whether_anybody_waits_does_not_show_in_the_state() {
    let (mut asked, mut silent) = (holding(b"1"), holding(b"1"));
    let operations = Operations::of(&[
        Operation::Add { key: KEY, delta: 1 },
        Operation::Get { key: KEY },
        Operation::Set(Set { previous: true, ..set(b"longer than before") }),
        Operation::Take { key: KEY },
        Operation::Put { key: KEY, value: b"end", condition: Condition::Always },
    ]);
    let transaction = Transaction::of(operations);
    asked.transact(&transaction, true);
    assert_eq!(silent.transact(&transaction, false), WriteReply::Operations(OperationReplies::default()));
    assert_eq!(asked.digest(), silent.digest());
}
