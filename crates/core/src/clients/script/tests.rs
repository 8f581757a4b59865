use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

use super::*;
use crate::command::{LeaseId, LeaseTag, Refusal};

const NOW: UnixMillis = UnixMillis(1_000);
const ABSENT: OperationReply<'static> = OperationReply::Absent;
const ALWAYS: Condition = Condition::Always;

fn begin(keys: &[&'static str]) -> (ScriptRequest, ScriptAction) {
    let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes()));
    ScriptRequest::begin(keys, Consistency::Linearizable, Faults::NONE).expect("keys of one slot")
}

fn held(version: u64, value: &'static [u8], expires: Option<u64>) -> OperationReply<'static> {
    OperationReply::Value { version: Version(version), expires: expires.map(UnixMillis), value }
}

fn assert_reads(action: &ScriptAction, expected: &[&str]) {
    let keys: Vec<Vec<u8>> = match action {
        ScriptAction::Ask(Request::Read { read: Read::Get { key }, .. }) => vec![key.to_vec()],
        ScriptAction::Ask(Request::Read { read: Read::Operations { operations, .. }, .. }) => {
            operations.iter().map(|get| get.key().to_vec()).collect()
        }
        _ => panic!("{action:?} is no read"),
    };
    assert_eq!(keys, expected.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>());
}

/// The keys for a run after this read.
fn read(request: &mut ScriptRequest, replies: &[OperationReply<'_>]) -> ScriptKeys {
    let replies = match *replies {
        [OperationReply::Value { version, expires, value }] => {
            let value = Bytes::copy_from_slice(value);
            ReadReply::Value(Some(StoredValue { version, value, expires, lease: None }))
        }
        [_] => ReadReply::Value(None),
        _ => ReadReply::Operations(OperationReplies::of(replies)),
    };
    match request.answered(Reply::Read(replies)) {
        ScriptAction::Run(keys) => *keys,
        other => panic!("{other:?} is no run"),
    }
}

fn bound() -> Reply {
    let lease = LeaseId::new(LeaseTag::new(b"k").expect("a tag"), Version(3));
    let (version, value) = (Version(7), Bytes::from_static(b"41"));
    Reply::Read(ReadReply::Value(Some(StoredValue {
        version,
        value,
        expires: None,
        lease: Some(lease.into()),
    })))
}

fn written() -> Reply {
    Reply::Write(WriteReply::Operations(OperationReplies::default()))
}

fn conflict() -> Reply {
    Reply::Write(WriteReply::ConditionFailed { current: Version(9) })
}

/// The effect of operations on a key `k` with this state.
fn effect(before: OperationReply<'static>, operations: &[Operation<'_>]) -> Vec<Vec<u8>> {
    let (mut request, _) = begin(&["k"]);
    let mut keys = read(&mut request, &[before]);
    keys.execute(&Operations::of(operations), NOW).expect("a declared key");
    let shown = |operation: Operation<'_>| alloc::format!("{operation:?}").into_bytes();
    keys.effect().iter().map(shown).collect()
}

fn shown(operations: &[Operation<'_>]) -> Vec<Vec<u8>> {
    operations.iter().map(|operation| alloc::format!("{operation:?}").into_bytes()).collect()
}

fn set<'a>(value: &'a [u8], expiry: Expiry) -> Operation<'a> {
    let condition = SetCondition::Version(ALWAYS);
    Operation::Set(Set { key: b"k", value, condition, expiry, previous: false })
}

#[test]
fn the_effect_is_written_on_the_versions_that_were_read() {
    let (mut request, action) = begin(&["{s}b", "{s}a", "{s}b"]);
    assert_reads(&action, &["{s}a", "{s}b"]);
    let mut keys = read(&mut request, &[held(7, b"41", None), ABSENT]);
    let add = Operations::of(&[Operation::Add { key: b"{s}a", delta: 1 }]);
    let replies = keys.execute(&add, NOW).expect("a declared key");
    assert!(matches!(replies.only(), Some(OperationReply::Number { value: 42, .. })));
    let get = Operations::of(&[Operation::Get { key: b"{s}a" }]);
    let replies = keys.execute(&get, NOW).expect("a declared key");
    assert!(matches!(replies.only(), Some(OperationReply::Value { value: b"42", .. })));
    // It may be bound to a lease, which the first read does not show.
    assert_reads(&request.finished(&keys), &["{s}a"]);
    let unbound = StoredValue { version: Version(7), value: "41".into(), expires: None, lease: None };
    let action = request.answered(Reply::Read(ReadReply::Value(Some(unbound))));
    let ScriptAction::Ask(Request::Write(Write::Keys(transaction))) = action else { panic!("writes") };
    let watch = |key: &'static str, version| Watch { key: key.into(), version: Version(version) };
    assert_eq!(transaction.watches, [watch("{s}a", 7), watch("{s}b", 0)]);
    let condition = SetCondition::Version(ALWAYS);
    let set = Set { key: b"{s}a", value: b"42", condition, expiry: Expiry::Never, previous: false };
    assert!(transaction.operations.iter().eq([Operation::Set(set)]));
    assert!(matches!(request.answered(written()), ScriptAction::Done(Ok(()))));
}

#[test]
fn only_what_changed_is_written() {
    let after = |after_ms| Operation::ExpireAfter { key: b"k", after_ms, condition: ExpiryCondition::Always };
    let expire = |at: Option<u64>| {
        let at = at.map(UnixMillis);
        Operation::Expire { key: b"k", at, condition: ExpiryCondition::Always }
    };
    let (delete, add) =
        (Operation::Delete { key: b"k", condition: ALWAYS }, Operation::Add { key: b"k", delta: 1 });
    let (plain, ending) = (held(7, b"1", None), held(7, b"1", Some(5_000)));
    for (before, operations, expected) in [
        (plain, vec![Operation::Get { key: b"k" }], vec![]),
        (ABSENT, vec![set(b"v", Expiry::Never), delete], vec![]),
        (plain, vec![delete, delete], vec![delete]),
        (plain, vec![delete, add], vec![set(b"1", Expiry::Never)]),
        (plain, vec![set(b"1", Expiry::Never)], vec![set(b"1", Expiry::Never)]),
        (ending, vec![add, add], vec![set(b"3", Expiry::Keep)]),
        (ending, vec![expire(None)], vec![set(b"1", Expiry::Never)]),
        (ABSENT, vec![add, after(300)], vec![set(b"1", Expiry::After(300))]),
        (ABSENT, vec![add, after(300), expire(Some(9_000))], vec![set(b"1", Expiry::At(UnixMillis(9_000)))]),
        (plain, vec![after(300)], vec![after(300)]),
        (plain, vec![expire(Some(9_000))], vec![expire(Some(9_000))]),
        (plain, vec![expire(Some(999))], vec![delete]),
        (held(7, b"x", None), vec![add], vec![]),
        (plain, vec![set(b"2", Expiry::After(300)), add], vec![set(b"3", Expiry::After(300))]),
    ] {
        assert_eq!(effect(before, &operations), shown(&expected), "{operations:?}");
    }
}

#[test]
fn a_script_without_effect_and_one_without_keys_write_nothing() {
    let (mut request, _) = begin(&["k"]);
    let keys = read(&mut request, &[ABSENT]);
    assert!(matches!(request.finished(&keys), ScriptAction::Done(Ok(()))));
    let (mut request, action) = begin(&[]);
    let ScriptAction::Run(mut keys) = action else { panic!("{action:?} is no run") };
    assert_eq!(
        keys.execute(&Operations::of(&[Operation::Get { key: b"k" }]), NOW),
        Err(ScriptOperationError::UndeclaredKey)
    );
    assert!(matches!(request.finished(&keys), ScriptAction::Done(Ok(()))));
}

#[test]
fn a_conflict_repeats_the_cycle_a_limited_number_of_times() {
    let (mut request, _) = begin(&["k"]);
    for run in 1..=limits::SCRIPT_RUNS_MAX {
        let mut keys = read(&mut request, &[held(run as u64, b"1", None)]);
        assert_eq!(request.is_repeated(), run > 1);
        keys.execute(&Operations::of(&[Operation::Add { key: b"k", delta: 1 }]), NOW).expect("declared");
        let ScriptAction::Ask(Request::Write(Write::Keys(transaction))) = request.finished(&keys) else {
            panic!("writes")
        };
        assert_eq!(transaction.watches[0].version, Version(run as u64));
        let action = request.answered(conflict());
        if run < limits::SCRIPT_RUNS_MAX {
            assert_reads(&action, &["k"]);
        } else {
            assert!(matches!(action, ScriptAction::Done(Err(ScriptFailure::Conflict))));
        }
    }
}

#[test]
fn failures_end_the_script() {
    let begin_with = |keys: Vec<Bytes>| ScriptRequest::begin(keys, Consistency::Linearizable, Faults::NONE);
    let crossing = vec![Bytes::from_static(b"foo"), Bytes::from_static(b"bar")];
    assert_eq!(begin_with(crossing).err(), Some(ScriptFailure::CrossSlot));
    let many = (0..=limits::WATCHES_MAX).map(|number| alloc::format!("{{s}}{number}").into()).collect();
    assert_eq!(begin_with(many).err(), Some(ScriptFailure::TooManyKeys));
    let failed = |reply| match begin(&["{k}", "{k}2"]).0.answered(reply) {
        ScriptAction::Done(Err(failure)) => failure,
        other => panic!("{other:?} is no failure"),
    };
    let refusal = Refusal::UnknownOutcome;
    assert_eq!(failed(Reply::Refused(refusal.clone())), Unanswered::Refused(refusal).into());
    let too_long = OperationReply::Rejected(crate::command::Rejection::RepliesTooLong);
    let too_long = ReadReply::Operations(OperationReplies::of(&[too_long]));
    assert_eq!(failed(Reply::Read(too_long)), ScriptFailure::ValuesTooLong);
    let none = ReadReply::Operations(OperationReplies::of(&[]));
    assert_eq!(failed(Reply::Read(none)), Unanswered::Mismatched.into());
}

#[test]
fn a_script_reads_bound_keys_and_does_not_write_them() {
    let get = Operations::of(&[Operation::Get { key: b"k" }]);
    let add = Operations::of(&[Operation::Add { key: b"k", delta: 1 }]);
    let run = |operations| {
        let (mut request, _) = begin(&["k"]);
        let ScriptAction::Run(mut keys) = request.answered(bound()) else { panic!("runs") };
        keys.execute(operations, NOW).expect("a declared key");
        request.finished(&keys)
    };
    assert!(matches!(run(&get), ScriptAction::Done(Ok(()))));
    assert!(matches!(run(&add), ScriptAction::Done(Err(ScriptFailure::BoundKey))));

    let (mut request, _) = begin(&["{k}", "{k}2"]);
    let mut keys = read(&mut request, &[held(7, b"41", None), held(8, b"1", None)]);
    let add = Operations::of(&[Operation::Add { key: b"{k}", delta: 1 }]);
    keys.execute(&add, NOW).expect("a declared key");
    assert_reads(&request.finished(&keys), &["{k}"]);
    assert!(matches!(request.answered(bound()), ScriptAction::Done(Err(ScriptFailure::BoundKey))));
}

#[test]
fn the_values_of_a_run_are_bounded() {
    let mut keys = ScriptKeys::default();
    let names: Vec<Bytes> = (0..32).map(|number| alloc::format!("{{k}}{number}").into()).collect();
    names.iter().for_each(|name| keys.copy(name, None));
    let long = vec![b'x'; limits::VALUE_BYTES_MAX];
    let full = limits::SCRIPT_VALUES_BYTES_MAX / limits::VALUE_BYTES_MAX;
    let append = |key| Operations::of(&[Operation::Append { key, suffix: &long }]);
    for name in &names[..full] {
        keys.execute(&append(name), NOW).expect("room");
    }
    assert_eq!(keys.value_bytes(), full * limits::VALUE_BYTES_MAX);
    assert_eq!(keys.execute(&append(&names[full]), NOW), Err(ScriptOperationError::ValuesTooLong));
    let get = Operations::of(&[Operation::Describe { key: &names[0] }]);
    assert!(keys.execute(&get, NOW).is_ok());
}
