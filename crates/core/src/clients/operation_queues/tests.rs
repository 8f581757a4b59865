//! Order, grouping and limits of queues, without a store.

use super::*;
use crate::command::{
    Condition, Operation, OperationRepliesBuilder, OperationReply, Read, Write, WriteReply,
};
use crate::types::Version;
use alloc::vec;

const SHARD: ShardId = ShardId(1);

fn get(key: &[u8]) -> Operation<'_> {
    Operation::Get { key }
}

fn put(key: &[u8]) -> Operation<'_> {
    Operation::Put { key, value: b"v", condition: Condition::Always }
}

fn submitted(queues: &mut OperationQueues) -> Vec<Request> {
    let mut requests = Vec::new();
    queues.submit(Some(1), Consistency::Linearizable, |_, _| true, |request, _| requests.push(request));
    requests
}

/// The number of operations of the one request submitted now, and whether it is a read.
fn next(queues: &mut OperationQueues) -> Option<(usize, bool)> {
    let mut requests = submitted(queues);
    assert!(requests.len() <= 1, "one command a queue");
    requests.pop().map(|request| match request {
        Request::Read { read: Read::Operations { operations, .. }, .. } => (operations.len(), true),
        Request::Write(Write::Keys(transaction)) => (transaction.operations.len(), false),
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
    Reply::Write(WriteReply::Operations(builder.finish()))
}

fn complete(queues: &mut OperationQueues, reply: Reply) {
    queues.complete(SHARD.0, reply);
}

fn take(queues: &mut OperationQueues) -> Option<Option<Vec<u8>>> {
    queues.take(SHARD.0 as u32, |part| match part {
        OperationResult::Reply(OperationReply::Value { value, .. }) => Some(value.to_vec()),
        _ => None,
    })
}

#[test]
fn a_burst_is_one_command_and_what_comes_meanwhile_the_next() {
    let mut queues = OperationQueues::new(Faults::NONE);
    for _ in 0..3 {
        queues.push(SHARD, &put(b"a"));
    }
    assert_eq!(next(&mut queues), Some((3, false)));
    for _ in 0..2 {
        queues.push(SHARD, &put(b"a"));
    }
    assert_eq!(next(&mut queues), None, "one is under way");
    complete(&mut queues, replies(&[None, None, None]));
    assert_eq!(next(&mut queues), Some((2, false)));
}

#[test]
fn reads_go_as_reads_unless_writes_stand_beside_them() {
    let mut queues = OperationQueues::new(Faults::NONE);
    for _ in 0..3 {
        queues.push(SHARD, &get(b"a"));
    }
    assert_eq!(next(&mut queues), Some((3, true)));
    queues.push(SHARD, &get(b"a"));
    queues.push(SHARD, &put(b"a"));
    queues.push(SHARD, &get(b"a"));
    complete(&mut queues, replies(&[None, None, None]));
    assert_eq!(next(&mut queues), Some((3, false)), "in the order in which they came");
}

#[test]
fn reads_of_values_that_may_be_large_do_not_join_writes() {
    let mut queues = OperationQueues::new(Faults::NONE);
    for _ in 0..100 {
        queues.push(SHARD, &get(b"a"));
    }
    queues.push(SHARD, &put(b"a"));
    assert_eq!(next(&mut queues), Some((100, true)));
    complete(&mut queues, replies(&[Some(&b"small"[..]); 100]));
    assert_eq!(next(&mut queues), Some((1, false)));
    (0..100).for_each(|_| assert_eq!(take(&mut queues), Some(Some(b"small".to_vec()))));
    complete(&mut queues, replies(&[None]));
    take(&mut queues);
    for _ in 0..100 {
        queues.push(SHARD, &get(b"a"));
    }
    queues.push(SHARD, &put(b"a"));
    assert_eq!(next(&mut queues), Some((101, false)), "they turned out to be small");
}

#[test]
fn an_operation_that_is_too_new_is_refused_alone() {
    let mut queues = OperationQueues::new(Faults::NONE);
    let too_new = || Reply::Write(WriteReply::Denied(Denial::VersionTooLow));
    for key in [&b"a"[..], b"new", b"b"] {
        queues.push(SHARD, &put(key));
    }
    assert_eq!(next(&mut queues), Some((3, false)));
    complete(&mut queues, too_new());
    assert_eq!(next(&mut queues), Some((1, false)), "the first half");
    complete(&mut queues, replies(&[None]));
    assert_eq!(next(&mut queues), Some((2, false)), "the second half");
    complete(&mut queues, too_new());
    assert_eq!(next(&mut queues), Some((1, false)));
    complete(&mut queues, too_new());
    assert_eq!(next(&mut queues), Some((1, false)));
    complete(&mut queues, replies(&[None]));
    let refused: Vec<bool> = core::iter::from_fn(|| {
        queues.take(SHARD.0 as u32, |part| matches!(part, OperationResult::Refused(Refusal::Invalid(_))))
    })
    .collect();
    assert_eq!(refused, [false, true, false]);
    assert_eq!(queues.held_bytes(), 0);
}

#[test]
fn nothing_joins_a_transaction() {
    let mut queues = OperationQueues::new(Faults::NONE);
    queues.push(SHARD, &put(b"a"));
    let mut operations = OperationsBuilder::default();
    operations.push(&put(b"b"));
    queues.push_transaction(SHARD, operations, Vec::new());
    queues.push(SHARD, &put(b"c"));
    for _ in 0..3 {
        assert_eq!(next(&mut queues), Some((1, false)));
        complete(&mut queues, replies(&[None]));
    }
    assert_eq!(take(&mut queues), Some(None));
    assert_eq!(queues.take_verdict(1), Some(TransactionOutcome::Done));
    assert_eq!(take(&mut queues), Some(None));
    assert_eq!(take(&mut queues), Some(None));
    assert_eq!((take(&mut queues), queues.held_bytes()), (None, 0));
}

#[test]
fn a_watch_that_fails_and_a_refusal_answer_the_whole_transaction() {
    let mut queues = OperationQueues::new(Faults::NONE);
    for (reply, verdict) in [
        (Reply::Write(WriteReply::ConditionFailed { current: Version(3) }), TransactionOutcome::Aborted),
        (Reply::Refused(Refusal::NoLeader), TransactionOutcome::Refused(Refusal::NoLeader)),
    ] {
        let mut operations = OperationsBuilder::default();
        (0..2).for_each(|_| operations.push(&put(b"b")));
        queues.push_transaction(SHARD, operations, Vec::new());
        assert_eq!(queues.take_verdict(1), None);
        next(&mut queues);
        complete(&mut queues, reply);
        assert_eq!(queues.take_verdict(1), Some(verdict));
        assert_eq!((take(&mut queues), queues.held_bytes()), (None, 0));
    }
}

#[test]
fn a_refusal_answers_every_operation() {
    let mut queues = OperationQueues::new(Faults::NONE);
    for _ in 0..3 {
        queues.push(SHARD, &put(b"a"));
    }
    next(&mut queues);
    complete(&mut queues, Reply::Refused(Refusal::UnknownOutcome));
    for _ in 0..3 {
        let is_refused =
            |part: OperationResult<'_>| part == OperationResult::Refused(Refusal::UnknownOutcome);
        assert_eq!(queues.take(1, is_refused), Some(true));
    }
    assert_eq!(take(&mut queues), None);
}

/// The read submitted now, if there is memory for `room` bytes of replies: its number of
/// operations, and the limit of its values' bytes.
fn next_within(queues: &mut OperationQueues, room: usize) -> Option<(usize, usize)> {
    let mut found = None;
    queues.submit(
        Some(1),
        Consistency::Linearizable,
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

/// The answer of a store to `count` reads of `value`, with room for `bytes_max` bytes.
fn replies_within(value: &[u8], (count, bytes_max): (usize, usize)) -> Reply {
    let mut builder = OperationRepliesBuilder::within(bytes_max);
    (0..count)
        .for_each(|_| builder.push(&OperationReply::Value { version: Version(1), expires: None, value }));
    Reply::Write(WriteReply::Operations(builder.finish()))
}

#[test]
fn values_that_a_read_left_out_are_asked_for_again() {
    let mut queues = OperationQueues::new(Faults::NONE);
    let large = vec![7; limits::VALUE_BYTES_MAX];
    for _ in 0..10 {
        queues.push(SHARD, &get(b"a"));
    }
    let (mut seen, mut reads) = (0, 0);
    while let Some(asked) = next_within(&mut queues, usize::MAX) {
        assert!(asked.1 <= 2 * limits::VALUE_BYTES_MAX);
        assert!(
            queues.held_bytes() <= 4 * limits::VALUE_BYTES_MAX,
            "what may come is counted before it does"
        );
        complete(&mut queues, replies_within(&large, asked));
        reads += 1;
        while take(&mut queues) == Some(Some(large.clone())) {
            seen += 1;
        }
    }
    assert_eq!((seen, queues.held_bytes()), (10, 0));
    assert!(reads <= 11, "each but the first brings a value: {reads} reads");
}

#[test]
fn small_values_are_read_while_memory_is_short_and_large_ones_wait() {
    let mut queues = OperationQueues::new(Faults::NONE);
    let short = GUARANTEED_BYTES - (2 << 10);
    for _ in 0..100 {
        queues.push(SHARD, &get(b"a"));
    }
    let mut seen = 0;
    while seen < 100 {
        let asked = next_within(&mut queues, short).expect("small values are read in any case");
        let held = queues.held_bytes();
        assert!(held <= GUARANTEED_BYTES, "{asked:?}, {held} bytes");
        complete(&mut queues, replies_within(b"small", asked));
        while take(&mut queues) == Some(Some(b"small".to_vec())) {
            seen += 1;
        }
    }
    queues.push(SHARD, &get(b"a"));
    let large = vec![7; limits::VALUE_BYTES_MAX];
    let asked = next_within(&mut queues, short).expect("it may be small");
    complete(&mut queues, replies_within(&large, asked));
    assert_eq!((take(&mut queues), next_within(&mut queues, short)), (None, None), "it is not");
    let asked = next_within(&mut queues, usize::MAX).expect("there is memory");
    complete(&mut queues, replies_within(&large, asked));
    assert_eq!((take(&mut queues), queues.held_bytes()), (Some(Some(large)), 0));
}

#[test]
fn what_is_read_together_comes_from_one_state() {
    let mut queues = OperationQueues::new(Faults::NONE);
    let large = vec![7; limits::VALUE_BYTES_MAX];
    let together = queues.begin_together(4);
    for _ in 0..4 {
        queues.push_together(SHARD, &get(b"a"), together);
    }
    let first = next_within(&mut queues, usize::MAX).expect("there is memory");
    assert!(first.1 < limits::VALUE_BYTES_MAX, "values may be small");
    complete(&mut queues, replies_within(&large[..first.1 / 2], first));
    assert_eq!(take(&mut queues), None, "one fits, but not all four");
    let (count, bytes_max) = next_within(&mut queues, usize::MAX).expect("all are read again");
    assert_eq!((count, bytes_max), (4, limits::REPLIES_BYTES_CLOSE));
    complete(&mut queues, replies_within(&large, (count, bytes_max)));
    (0..4).for_each(|_| assert_eq!(take(&mut queues), Some(Some(large.clone()))));
    assert_eq!(queues.held_bytes(), 0);
}

#[test]
fn what_is_read_together_is_in_one_command() {
    // Twenty values of unknown size are too many beside a write; 4,096 operations fill a command.
    for (before, count) in [(put(b"a"), 20), (get(b"a"), 4_096)] {
        let mut queues = OperationQueues::new(Faults::NONE);
        queues.push(SHARD, &before);
        let together = queues.begin_together(count);
        for _ in 0..count {
            queues.push_together(SHARD, &get(b"a"), together);
        }
        assert_eq!(next(&mut queues).map(|(count, _)| count), Some(1));
        complete(&mut queues, replies(&[None]));
        assert_eq!(next(&mut queues), Some((count, true)));
    }
}

#[test]
fn what_finds_no_memory_is_refused() {
    let mut queues = OperationQueues::new(Faults::NONE);
    let mut operations = OperationsBuilder::default();
    operations.push(&get(b"a"));
    operations.push(&put(b"a"));
    queues.push_transaction(SHARD, operations, Vec::new());
    queues.push(SHARD, &put(b"b"));
    let mut asked_for = 0;
    let refuse = |bytes: usize, _: bool| {
        asked_for = bytes;
        false
    };
    queues.submit(Some(1), Consistency::Linearizable, refuse, |_, _| panic!("there is no memory"));
    assert!(asked_for > 2 * limits::VALUE_BYTES_MAX, "a value, and the same encoded");
    assert!(queues.refuse_next(1));
    assert_eq!(queues.take_verdict(1), Some(TransactionOutcome::Refused(Refusal::Overloaded)));
    assert_eq!(next(&mut queues), Some((1, false)), "what comes behind is done");
    assert!(!queues.refuse_next(1), "it is under way");
    complete(&mut queues, replies(&[None]));
    assert_eq!((take(&mut queues), queues.held_bytes()), (Some(None), 0));
}

#[test]
fn without_memory_reads_and_writes_part() {
    let mut queues = OperationQueues::new(Faults::NONE);
    // Small values were seen, so reads go in the same command as writes.
    for _ in 0..100 {
        queues.push(SHARD, &get(b"a"));
    }
    while let Some(asked) = next_within(&mut queues, usize::MAX) {
        complete(&mut queues, replies_within(b"small", asked));
        while take(&mut queues).is_some() {}
    }
    for _ in 0..2 {
        queues.push(SHARD, &put(b"a"));
        queues.push(SHARD, &get(b"a"));
    }
    let mut commands = Vec::new();
    for _ in 0..4 {
        let mut submitted = None;
        let short = |bytes: usize, _: bool| bytes <= 12 << 10;
        queues.submit(Some(1), Consistency::Linearizable, short, |request, _| submitted = Some(request));
        commands.push(matches!(submitted, Some(Request::Read { .. })));
        complete(&mut queues, replies(&[None]));
        assert_eq!(take(&mut queues), Some(None));
    }
    assert_eq!(commands, [false, true, false, true]);
    assert_eq!(queues.held_bytes(), 0);
}

#[test]
fn what_is_held_is_known() {
    let mut queues = OperationQueues::new(Faults::NONE);
    queues.push(SHARD, &put(b"a"));
    let one = queues.held_bytes();
    assert!(one > 0);
    queues.push(SHARD, &put(b"a"));
    assert_eq!(queues.held_bytes(), 2 * one);
    assert_eq!(next(&mut queues), Some((2, false)));
    assert!(queues.held_bytes() > 2 * one, "replies will come");
    complete(&mut queues, replies(&[None, None]));
    assert!(queues.held_bytes() > 0 && queues.encoding_bytes() > 0);
    (0..2).for_each(|_| assert_eq!(take(&mut queues), Some(None)));
    assert_eq!((queues.held_bytes(), queues.encoding_bytes()), (0, 0));
}

fn cross_shard() -> Reply {
    Reply::Refused(Refusal::CrossShard)
}

/// The keys of the one request submitted now, in order.
fn next_keys(queues: &mut OperationQueues) -> Vec<Vec<u8>> {
    let mut requests = submitted(queues);
    assert_eq!(requests.len(), 1, "one command a queue");
    let operations = match requests.pop() {
        Some(Request::Read { read: Read::Operations { operations, .. }, .. }) => operations,
        Some(Request::Write(Write::Keys(transaction))) => transaction.operations,
        other => panic!("{other:?}"),
    };
    operations.iter().map(|operation| operation.key().to_vec()).collect()
}

/// Replies that show their operation's key.
fn echo(keys: &[Vec<u8>]) -> Reply {
    replies(&keys.iter().map(|key| Some(&key[..])).collect::<Vec<_>>())
}

#[test]
fn a_burst_whose_keys_parted_is_split_until_its_parts_are_of_one_shard_each() {
    // By now, keys of different letters are in different shards.
    let letters = b"aabbbaccccab";
    let keys: Vec<Vec<u8>> = letters.iter().zip(10..).map(|(letter, number)| vec![*letter, number]).collect();
    for is_read in [false, true] {
        let mut queues = OperationQueues::new(Faults::NONE);
        for key in &keys {
            queues.push(SHARD, &if is_read { get(key) } else { put(key) });
        }
        let mut commands = 0;
        let mut came: Vec<Vec<u8>> = Vec::new();
        while came.len() < keys.len() {
            let asked = next_keys(&mut queues);
            commands += 1;
            let is_one = asked.iter().all(|key| key[0] == asked[0][0]);
            complete(&mut queues, if is_one { echo(&asked) } else { cross_shard() });
            came.extend(is_one.then_some(asked).into_iter().flatten());
        }
        assert_eq!(came, keys, "each is done once, in order");
        assert!(commands < 2 * keys.len(), "{commands} commands");
        for key in &keys {
            assert_eq!(take(&mut queues), Some(Some(key.clone())));
        }
        assert!(take(&mut queues).is_none() && queues.is_idle() && submitted(&mut queues).is_empty());
        assert_eq!(queues.held_bytes(), 0);
    }
}

#[test]
fn what_is_split_stays_in_front_of_what_came_later() {
    let mut queues = OperationQueues::new(Faults::NONE);
    for key in [b"a", b"b"] {
        queues.push(SHARD, &put(key));
    }
    assert_eq!(next(&mut queues), Some((2, false)));
    queues.push(SHARD, &put(b"c"));
    complete(&mut queues, cross_shard());
    for key in [b"a", b"b", b"c"] {
        assert!(!queues.is_idle());
        let asked = next_keys(&mut queues);
        assert_eq!(asked, [key]);
        complete(&mut queues, echo(&asked));
    }
    assert!(queues.is_idle());
}

#[test]
fn a_transaction_is_not_split_and_neither_is_one_operation() {
    let mut queues = OperationQueues::new(Faults::NONE);
    let mut operations = OperationsBuilder::default();
    operations.push(&put(b"a"));
    operations.push(&put(b"b"));
    queues.push_transaction(SHARD, operations, Vec::new());
    assert_eq!(next(&mut queues), Some((2, false)));
    complete(&mut queues, cross_shard());
    assert_eq!(queues.take_verdict(1), Some(TransactionOutcome::Refused(Refusal::CrossShard)));
    queues.push(SHARD, &put(b"a"));
    assert_eq!(next(&mut queues), Some((1, false)));
    complete(&mut queues, cross_shard());
    let refused = queues.take(1, |part| matches!(part, OperationResult::Refused(Refusal::CrossShard)));
    assert_eq!(refused, Some(true));
    assert!(queues.is_idle());
}

/// The numbers of shards have no bound, because shards are added and removed.
#[test]
fn a_high_number_of_a_shard_takes_no_more_room_than_a_low_one() {
    let mut queues = OperationQueues::new(Faults::NONE);
    let shards = [u64::MAX, 7, 1 << 40, u64::MAX];
    let indexes = shards.map(|shard| queues.push(ShardId(shard), &put(b"a")));
    assert_eq!(indexes, [513, 7, 514, 513]);
    let mut asked = Vec::new();
    queues.submit(
        None,
        Consistency::Linearizable,
        |_, _| true,
        |request, queue| match request {
            Request::Write(Write::Keys(transaction)) => asked.push((transaction.operations.len(), queue)),
            other => panic!("{other:?}"),
        },
    );
    asked.sort_unstable();
    assert_eq!(asked, [(1, 7), (1, 514), (2, 513)]);
    queues.complete(514, replies(&[None]));
    assert_eq!(queues.take(514, |_| ()), Some(()));
}
