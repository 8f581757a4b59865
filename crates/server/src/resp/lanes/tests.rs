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
    lanes.submit((Some(1), Consistency::Linearizable), |_, _| true, |request, _| requests.push(request));
    requests
}

/// How many operations the one request has that is submitted now, and whether it is a read.
fn next(lanes: &mut Lanes) -> Option<(usize, bool)> {
    let mut requests = submitted(lanes);
    assert!(requests.len() <= 1, "one command a lane");
    requests.pop().map(|request| match request {
        Request::Read { read: Read::Operations { operations, .. }, .. } => (operations.len(), true),
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

fn complete(lanes: &mut Lanes, reply: Reply) {
    lanes.complete(SHARD.0, reply);
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

/// The read that is submitted now, if there is memory for `room` bytes of replies: how many
/// operations it has, and how many bytes of values it asks for.
fn next_within(lanes: &mut Lanes, room: usize) -> Option<(usize, usize)> {
    let mut found = None;
    lanes.submit(
        (Some(1), Consistency::Linearizable),
        |bytes, is_first| is_first && bytes <= room,
        |request, _| match request {
            Request::Read { read: Read::Operations { operations, bytes_max }, .. } => {
                found = Some((operations.len(), bytes_max));
            }
            other => panic!("{other:?}"),
        },
    );
    found
}

/// What a store answers to so many reads of `value` that has room for so many bytes.
fn replies_within(value: &[u8], (count, bytes_max): (usize, usize)) -> Reply {
    let mut builder = OperationRepliesBuilder::within(bytes_max);
    (0..count)
        .for_each(|_| builder.push(&OperationReply::Value { version: Version(1), expires: None, value }));
    Reply::Operations(builder.finish())
}

#[test]
fn values_that_a_read_left_out_are_asked_for_again() {
    let mut lanes = Lanes::new();
    let large = vec![7; limits::VALUE_BYTES_MAX];
    for _ in 0..10 {
        lanes.push(SHARD, &get(b"a"));
    }
    let (mut seen, mut reads) = (0, 0);
    while let Some(asked) = next_within(&mut lanes, usize::MAX) {
        assert!(asked.1 <= 2 * limits::VALUE_BYTES_MAX);
        assert!(lanes.held_bytes() <= 4 * limits::VALUE_BYTES_MAX, "what may come is counted before it does");
        complete(&mut lanes, replies_within(&large, asked));
        reads += 1;
        while take(&mut lanes) == Some(Some(large.clone())) {
            seen += 1;
        }
    }
    assert_eq!((seen, lanes.held_bytes()), (10, 0));
    assert!(reads <= 11, "each but the first brings a value: {reads} reads");
}

#[test]
fn small_values_are_read_while_memory_is_short_and_large_ones_wait() {
    let mut lanes = Lanes::new();
    let short = crate::memory::CONNECTION_BYTES - (2 << 10);
    for _ in 0..100 {
        lanes.push(SHARD, &get(b"a"));
    }
    let mut seen = 0;
    while seen < 100 {
        let asked = next_within(&mut lanes, short).expect("small values are read in any case");
        let held = lanes.held_bytes();
        assert!(held <= crate::memory::CONNECTION_BYTES, "{asked:?}, {held} bytes");
        complete(&mut lanes, replies_within(b"small", asked));
        while take(&mut lanes) == Some(Some(b"small".to_vec())) {
            seen += 1;
        }
    }
    lanes.push(SHARD, &get(b"a"));
    let large = vec![7; limits::VALUE_BYTES_MAX];
    let asked = next_within(&mut lanes, short).expect("it may be small");
    complete(&mut lanes, replies_within(&large, asked));
    assert_eq!((take(&mut lanes), next_within(&mut lanes, short)), (None, None), "it is not");
    let asked = next_within(&mut lanes, usize::MAX).expect("there is memory");
    complete(&mut lanes, replies_within(&large, asked));
    assert_eq!((take(&mut lanes), lanes.held_bytes()), (Some(Some(large)), 0));
}

#[test]
fn what_is_read_together_comes_from_one_state() {
    let mut lanes = Lanes::new();
    let large = vec![7; limits::VALUE_BYTES_MAX];
    for _ in 0..4 {
        lanes.push_together(SHARD, &get(b"a"));
    }
    let first = next_within(&mut lanes, usize::MAX).expect("there is memory");
    assert!(first.1 < limits::VALUE_BYTES_MAX, "values may be small");
    complete(&mut lanes, replies_within(&large[..first.1 / 2], first));
    assert_eq!(take(&mut lanes), None, "one fits, but not all four");
    let (count, bytes_max) = next_within(&mut lanes, usize::MAX).expect("all are read again");
    assert_eq!((count, bytes_max), (4, limits::REPLIES_BYTES_CLOSE));
    complete(&mut lanes, replies_within(&large, (count, bytes_max)));
    (0..4).for_each(|_| assert_eq!(take(&mut lanes), Some(Some(large.clone()))));
    assert_eq!(lanes.held_bytes(), 0);
}

#[test]
fn what_finds_no_memory_is_refused() {
    let mut lanes = Lanes::new();
    let mut operations = OperationsBuilder::default();
    operations.push(&get(b"a"));
    operations.push(&put(b"a"));
    lanes.push_transaction(SHARD, operations, Vec::new());
    lanes.push(SHARD, &put(b"b"));
    let mut asked_for = 0;
    let refuse = |bytes: usize, _: bool| {
        asked_for = bytes;
        false
    };
    lanes.submit((Some(1), Consistency::Linearizable), refuse, |_, _| panic!("there is no memory"));
    assert!(asked_for > 2 * limits::VALUE_BYTES_MAX, "a value, and the same encoded");
    assert!(lanes.refuse_next(1));
    assert_eq!(lanes.take_verdict(1), Some(Verdict::Refused(Refusal::Overloaded)));
    assert_eq!(next(&mut lanes), Some((1, false)), "what comes behind is done");
    assert!(!lanes.refuse_next(1), "it is under way");
    complete(&mut lanes, replies(&[None]));
    assert_eq!((take(&mut lanes), lanes.held_bytes()), (Some(None), 0));
}

#[test]
fn without_memory_reads_and_writes_part() {
    let mut lanes = Lanes::new();
    // Small values were seen, so reads go beside writes.
    for _ in 0..100 {
        lanes.push(SHARD, &get(b"a"));
    }
    while let Some(asked) = next_within(&mut lanes, usize::MAX) {
        complete(&mut lanes, replies_within(b"small", asked));
        while take(&mut lanes).is_some() {}
    }
    for _ in 0..2 {
        lanes.push(SHARD, &put(b"a"));
        lanes.push(SHARD, &get(b"a"));
    }
    let mut commands = Vec::new();
    for _ in 0..4 {
        let mut submitted = None;
        let short = |bytes: usize, _: bool| bytes <= 12 << 10;
        lanes.submit((Some(1), Consistency::Linearizable), short, |request, _| submitted = Some(request));
        commands.push(matches!(submitted, Some(Request::Read { .. })));
        complete(&mut lanes, replies(&[None]));
        assert_eq!(take(&mut lanes), Some(None));
    }
    assert_eq!(commands, [false, true, false, true]);
    assert_eq!(lanes.held_bytes(), 0);
}

#[test]
fn what_is_held_is_known() {
    let mut lanes = Lanes::new();
    lanes.push(SHARD, &put(b"a"));
    let one = lanes.held_bytes();
    assert!(one > 0);
    lanes.push(SHARD, &put(b"a"));
    assert_eq!(lanes.held_bytes(), 2 * one);
    assert_eq!(next(&mut lanes), Some((2, false)));
    assert!(lanes.held_bytes() > 2 * one, "replies will come");
    complete(&mut lanes, replies(&[None, None]));
    assert!(lanes.held_bytes() > 0 && lanes.encoding_bytes() > 0);
    (0..2).for_each(|_| assert_eq!(take(&mut lanes), Some(None)));
    assert_eq!((lanes.held_bytes(), lanes.encoding_bytes()), (0, 0));
}

fn cross_shard() -> Reply {
    Reply::Refused(Refusal::CrossShard)
}

/// What the one request that is submitted now is about: its keys, in order.
fn next_keys(lanes: &mut Lanes) -> Vec<Vec<u8>> {
    let mut requests = submitted(lanes);
    assert_eq!(requests.len(), 1, "one command a lane");
    let operations = match requests.pop() {
        Some(Request::Read { read: Read::Operations { operations, .. }, .. }) => operations,
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
    lanes.submit(
        (None, Consistency::Linearizable),
        |_, _| true,
        |request, lane| match request {
            Request::Write(Write::Transaction(transaction)) => asked.push((transaction.shard.0, lane)),
            other => panic!("{other:?}"),
        },
    );
    asked.sort_unstable();
    assert_eq!(asked, [(7, 7), (1 << 40, 514), (u64::MAX, 513)]);
    lanes.complete(514, replies(&[None]));
    assert_eq!(lanes.take(514, |_| ()), Some(()));
}
