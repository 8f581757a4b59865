//! Order, grouping and limits of lanes, without a store.

use super::*;
use tidelock_core::command::{Condition, OperationRepliesBuilder};
use tidelock_core::types::Version;

const SHARD: ShardId = ShardId(1);

fn get(key: &[u8]) -> Operation<'_> {
    Operation::Get { key }
}

fn put(key: &[u8]) -> Operation<'_> {
    Operation::Put { key, value: b"v", condition: Condition::Always }
}

fn submitted(lanes: &mut Lanes) -> Vec<Request> {
    let mut requests = Vec::new();
    lanes.submit(Consistency::Linearizable, |request, _| requests.push(request));
    requests
}

/// How many operations the one request has that is submitted now, and whether it is a read.
fn next(lanes: &mut Lanes) -> Option<(usize, bool)> {
    let mut requests = submitted(lanes);
    assert!(requests.len() <= 1, "one command a lane");
    requests.pop().map(|request| match request {
        Request::Read { read: Read::Operations(operations), .. } => (operations.len(), true),
        Request::Write(Write::Transaction(transaction)) => (transaction.operations.len(), false),
        other => panic!("{other:?}"),
    })
}

fn replies(values: &[Option<&[u8]>]) -> Reply {
    let mut builder = OperationRepliesBuilder::default();
    for value in values {
        builder.push(&match value {
            Some(value) => OperationReply::Value { version: Version(1), expires: None, value },
            None => OperationReply::Absent,
        });
    }
    Reply::Operations(builder.finish())
}

fn complete(lanes: &mut Lanes, reply: Reply) -> Option<Request> {
    lanes.complete(SHARD.0, Consistency::Linearizable, reply)
}

fn take(lanes: &mut Lanes) -> Option<Option<Vec<u8>>> {
    lanes.take(SHARD.0 as u32, |part| match part {
        Part::Reply(OperationReply::Value { value, .. }) => Some(value.to_vec()),
        _ => None,
    })
}

#[test]
fn a_burst_is_one_command_and_what_comes_meanwhile_the_next() {
    let mut lanes = Lanes::new();
    for _ in 0..3 {
        lanes.push(SHARD, &put(b"a"));
    }
    assert_eq!(next(&mut lanes), Some((3, false)));
    for _ in 0..2 {
        lanes.push(SHARD, &put(b"a"));
    }
    assert_eq!(next(&mut lanes), None, "one is under way");
    complete(&mut lanes, replies(&[None, None, None]));
    assert_eq!(next(&mut lanes), Some((2, false)));
}

#[test]
fn reads_go_as_reads_unless_writes_stand_beside_them() {
    let mut lanes = Lanes::new();
    for _ in 0..3 {
        lanes.push(SHARD, &get(b"a"));
    }
    assert_eq!(next(&mut lanes), Some((3, true)));
    lanes.push(SHARD, &get(b"a"));
    lanes.push(SHARD, &put(b"a"));
    lanes.push(SHARD, &get(b"a"));
    complete(&mut lanes, replies(&[None, None, None]));
    assert_eq!(next(&mut lanes), Some((3, false)), "in the order in which they came");
}

#[test]
fn reads_of_values_that_may_be_large_do_not_join_writes() {
    let mut lanes = Lanes::new();
    for _ in 0..100 {
        lanes.push(SHARD, &get(b"a"));
    }
    lanes.push(SHARD, &put(b"a"));
    assert_eq!(next(&mut lanes), Some((100, true)));
    complete(&mut lanes, replies(&[Some(&b"small"[..]); 100]));
    assert_eq!(next(&mut lanes), Some((1, false)));
    (0..100).for_each(|_| assert_eq!(take(&mut lanes), Some(Some(b"small".to_vec()))));
    complete(&mut lanes, replies(&[None]));
    take(&mut lanes);
    for _ in 0..100 {
        lanes.push(SHARD, &get(b"a"));
    }
    lanes.push(SHARD, &put(b"a"));
    assert_eq!(next(&mut lanes), Some((101, false)), "they turned out to be small");
}

#[test]
fn nothing_joins_a_transaction() {
    let mut lanes = Lanes::new();
    lanes.push(SHARD, &put(b"a"));
    let mut operations = OperationsBuilder::default();
    operations.push(&put(b"b"));
    lanes.push_transaction(SHARD, operations, Vec::new());
    lanes.push(SHARD, &put(b"c"));
    for _ in 0..3 {
        assert_eq!(next(&mut lanes), Some((1, false)));
        complete(&mut lanes, replies(&[None]));
    }
    assert_eq!(take(&mut lanes), Some(None));
    assert_eq!(lanes.take_verdict(1), Some(Verdict::Done));
    assert_eq!(take(&mut lanes), Some(None));
    assert_eq!(take(&mut lanes), Some(None));
    assert_eq!((take(&mut lanes), lanes.held_bytes()), (None, 0));
}

#[test]
fn a_watch_that_fails_and_a_refusal_answer_the_whole_transaction() {
    let mut lanes = Lanes::new();
    for (reply, verdict) in [
        (Reply::ConditionFailed { current: Version(3) }, Verdict::Aborted),
        (Reply::Refused(Refusal::NoLeader), Verdict::Refused(Refusal::NoLeader)),
    ] {
        let mut operations = OperationsBuilder::default();
        (0..2).for_each(|_| operations.push(&put(b"b")));
        lanes.push_transaction(SHARD, operations, Vec::new());
        assert_eq!(lanes.take_verdict(1), None);
        next(&mut lanes);
        complete(&mut lanes, reply);
        assert_eq!(lanes.take_verdict(1), Some(verdict));
        assert_eq!((take(&mut lanes), lanes.held_bytes()), (None, 0));
    }
}

#[test]
fn a_refusal_answers_every_operation() {
    let mut lanes = Lanes::new();
    for _ in 0..3 {
        lanes.push(SHARD, &put(b"a"));
    }
    next(&mut lanes);
    complete(&mut lanes, Reply::Refused(Refusal::UnknownOutcome));
    for _ in 0..3 {
        let is_refused = |part: Part<'_>| part == Part::Refused(Refusal::UnknownOutcome);
        assert_eq!(lanes.take(1, is_refused), Some(true));
    }
    assert_eq!(take(&mut lanes), None);
}

#[test]
fn values_that_a_read_left_out_are_asked_for_again() {
    let mut lanes = Lanes::new();
    let large = vec![7; limits::VALUE_BYTES_MAX];
    for _ in 0..10 {
        lanes.push(SHARD, &get(b"a"));
    }
    assert_eq!(next(&mut lanes), Some((10, true)));
    let mut asked = 10;
    let mut rest = complete(&mut lanes, replies(&vec![Some(&large[..]); asked]));
    let mut seen = 0;
    loop {
        while take(&mut lanes) == Some(Some(large.clone())) {
            seen += 1;
        }
        let Some(Request::Read { read: Read::Operations(operations), .. }) = rest else { break };
        assert!(operations.len() < asked, "it goes on");
        asked = operations.len();
        rest = complete(&mut lanes, replies(&vec![Some(&large[..]); asked]));
    }
    assert_eq!((seen, lanes.held_bytes()), (10, 0));
}

#[test]
fn what_is_held_is_known() {
    let mut lanes = Lanes::new();
    lanes.push(SHARD, &put(b"a"));
    let one = lanes.held_bytes();
    assert!(one > 0);
    lanes.push(SHARD, &put(b"a"));
    assert_eq!(lanes.held_bytes(), 2 * one);
    lanes.push(SHARD, &get(b"a"));
    assert!(lanes.held_bytes() > 64 << 10, "a value may be large until it shows that it is not");
}

fn cross_shard() -> Reply {
    Reply::Refused(Refusal::CrossShard)
}

/// What the one request that is submitted now is about: its keys, in order.
fn next_keys(lanes: &mut Lanes) -> Vec<Vec<u8>> {
    let mut requests = submitted(lanes);
    assert_eq!(requests.len(), 1, "one command a lane");
    let operations = match requests.pop() {
        Some(Request::Read { read: Read::Operations(operations), .. }) => operations,
        Some(Request::Write(Write::Transaction(transaction))) => transaction.operations,
        other => panic!("{other:?}"),
    };
    operations.iter().map(|operation| operation.key().to_vec()).collect()
}

/// Replies that tell which operation they are of.
fn echo(keys: &[Vec<u8>]) -> Reply {
    replies(&keys.iter().map(|key| Some(&key[..])).collect::<Vec<_>>())
}

#[test]
fn a_burst_whose_keys_parted_is_split_until_its_parts_are_of_one_shard_each() {
    // By now, keys of these letters are in different shards.
    let letters = b"aabbbaccccab";
    let keys: Vec<Vec<u8>> = letters.iter().zip(10..).map(|(letter, number)| vec![*letter, number]).collect();
    for is_read in [false, true] {
        let mut lanes = Lanes::new();
        for key in &keys {
            lanes.push(SHARD, &if is_read { get(key) } else { put(key) });
        }
        let mut commands = 0;
        let mut came: Vec<Vec<u8>> = Vec::new();
        while came.len() < keys.len() {
            let asked = next_keys(&mut lanes);
            commands += 1;
            let is_one = asked.iter().all(|key| key[0] == asked[0][0]);
            complete(&mut lanes, if is_one { echo(&asked) } else { cross_shard() });
            came.extend(is_one.then_some(asked).into_iter().flatten());
        }
        assert_eq!(came, keys, "each is done once, in order");
        assert!(commands < 2 * keys.len(), "{commands} commands");
        for key in &keys {
            assert_eq!(take(&mut lanes), Some(Some(key.clone())));
        }
        assert!(take(&mut lanes).is_none() && lanes.is_idle() && submitted(&mut lanes).is_empty());
        assert_eq!(lanes.held_bytes(), 0);
    }
}

#[test]
fn what_is_split_stays_in_front_of_what_came_later() {
    let mut lanes = Lanes::new();
    for key in [b"a", b"b"] {
        lanes.push(SHARD, &put(key));
    }
    assert_eq!(next(&mut lanes), Some((2, false)));
    lanes.push(SHARD, &put(b"c"));
    complete(&mut lanes, cross_shard());
    for key in [b"a", b"b", b"c"] {
        assert!(!lanes.is_idle());
        let asked = next_keys(&mut lanes);
        assert_eq!(asked, [key]);
        complete(&mut lanes, echo(&asked));
    }
    assert!(lanes.is_idle());
}

#[test]
fn a_transaction_is_not_split_and_neither_is_one_operation() {
    let mut lanes = Lanes::new();
    let mut operations = OperationsBuilder::default();
    operations.push(&put(b"a"));
    operations.push(&put(b"b"));
    lanes.push_transaction(SHARD, operations, Vec::new());
    assert_eq!(next(&mut lanes), Some((2, false)));
    complete(&mut lanes, cross_shard());
    assert_eq!(lanes.take_verdict(1), Some(Verdict::Refused(Refusal::CrossShard)));
    lanes.push(SHARD, &put(b"a"));
    assert_eq!(next(&mut lanes), Some((1, false)));
    complete(&mut lanes, cross_shard());
    let refused = lanes.take(1, |part| matches!(part, Part::Refused(Refusal::CrossShard)));
    assert_eq!(refused, Some(true));
    assert!(lanes.is_idle());
}

/// Shards are numbered without a bound as they come and go.
#[test]
fn a_high_number_of_a_shard_takes_no_more_room_than_a_low_one() {
    let mut lanes = Lanes::new();
    let shards = [u64::MAX, 7, 1 << 40, u64::MAX];
    let indexes = shards.map(|shard| lanes.push(ShardId(shard), &put(b"a")));
    assert_eq!(indexes, [513, 7, 514, 513]);
    let mut asked = Vec::new();
    lanes.submit(Consistency::Linearizable, |request, lane| match request {
        Request::Write(Write::Transaction(transaction)) => asked.push((transaction.shard.0, lane)),
        other => panic!("{other:?}"),
    });
    asked.sort_unstable();
    assert_eq!(asked, [(7, 7), (1 << 40, 514), (u64::MAX, 513)]);
    lanes.complete(514, Consistency::Linearizable, replies(&[None]));
    assert_eq!(lanes.take(514, |_| ()), Some(()));
}
