//! Order, grouping and limits of shard queues, without a store.

use super::*;
use tidelock_core::command::{
    Condition, Operation, OperationRepliesBuilder, OperationReply, Read, Write, WriteReply,
};
use tidelock_core::types::Version;

const SHARD: ShardId = ShardId(1);

fn get(key: &[u8]) -> Operation<'_> {
    Operation::Get { key }
}

fn put(key: &[u8]) -> Operation<'_> {
    Operation::Put { key, value: b"v", condition: Condition::Always }
}

fn submitted(shard_queues: &mut ShardQueues) -> Vec<Request> {
    let mut requests = Vec::new();
    shard_queues.submit(Some(1), Consistency::Linearizable, |_, _| true, |request, _| requests.push(request));
    requests
}

/// The number of operations of the one request submitted now, and whether it is a read.
fn next(shard_queues: &mut ShardQueues) -> Option<(usize, bool)> {
    let mut requests = submitted(shard_queues);
    assert!(requests.len() <= 1, "one command a shard queue");
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

fn complete(shard_queues: &mut ShardQueues, reply: Reply) {
    shard_queues.complete(SHARD.0, reply);
}

fn take(shard_queues: &mut ShardQueues) -> Option<Option<Vec<u8>>> {
    shard_queues.take(SHARD.0 as u32, |part| match part {
        Part::Reply(OperationReply::Value { value, .. }) => Some(value.to_vec()),
        _ => None,
    })
}

#[test]
fn a_burst_is_one_command_and_what_comes_meanwhile_the_next() {
    let mut shard_queues = ShardQueues::new();
    for _ in 0..3 {
        shard_queues.push(SHARD, &put(b"a"));
    }
    assert_eq!(next(&mut shard_queues), Some((3, false)));
    for _ in 0..2 {
        shard_queues.push(SHARD, &put(b"a"));
    }
    assert_eq!(next(&mut shard_queues), None, "one is under way");
    complete(&mut shard_queues, replies(&[None, None, None]));
    assert_eq!(next(&mut shard_queues), Some((2, false)));
}

#[test]
fn reads_go_as_reads_unless_writes_stand_beside_them() {
    let mut shard_queues = ShardQueues::new();
    for _ in 0..3 {
        shard_queues.push(SHARD, &get(b"a"));
    }
    assert_eq!(next(&mut shard_queues), Some((3, true)));
    shard_queues.push(SHARD, &get(b"a"));
    shard_queues.push(SHARD, &put(b"a"));
    shard_queues.push(SHARD, &get(b"a"));
    complete(&mut shard_queues, replies(&[None, None, None]));
    assert_eq!(next(&mut shard_queues), Some((3, false)), "in the order in which they came");
}

#[test]
fn reads_of_values_that_may_be_large_do_not_join_writes() {
    let mut shard_queues = ShardQueues::new();
    for _ in 0..100 {
        shard_queues.push(SHARD, &get(b"a"));
    }
    shard_queues.push(SHARD, &put(b"a"));
    assert_eq!(next(&mut shard_queues), Some((100, true)));
    complete(&mut shard_queues, replies(&[Some(&b"small"[..]); 100]));
    assert_eq!(next(&mut shard_queues), Some((1, false)));
    (0..100).for_each(|_| assert_eq!(take(&mut shard_queues), Some(Some(b"small".to_vec()))));
    complete(&mut shard_queues, replies(&[None]));
    take(&mut shard_queues);
    for _ in 0..100 {
        shard_queues.push(SHARD, &get(b"a"));
    }
    shard_queues.push(SHARD, &put(b"a"));
    assert_eq!(next(&mut shard_queues), Some((101, false)), "they turned out to be small");
}

#[test]
fn nothing_joins_a_transaction() {
    let mut shard_queues = ShardQueues::new();
    shard_queues.push(SHARD, &put(b"a"));
    let mut operations = OperationsBuilder::default();
    operations.push(&put(b"b"));
    shard_queues.push_transaction(SHARD, operations, Vec::new());
    shard_queues.push(SHARD, &put(b"c"));
    for _ in 0..3 {
        assert_eq!(next(&mut shard_queues), Some((1, false)));
        complete(&mut shard_queues, replies(&[None]));
    }
    assert_eq!(take(&mut shard_queues), Some(None));
    assert_eq!(shard_queues.take_verdict(1), Some(TransactionOutcome::Done));
    assert_eq!(take(&mut shard_queues), Some(None));
    assert_eq!(take(&mut shard_queues), Some(None));
    assert_eq!((take(&mut shard_queues), shard_queues.held_bytes()), (None, 0));
}

#[test]
fn a_watch_that_fails_and_a_refusal_answer_the_whole_transaction() {
    let mut shard_queues = ShardQueues::new();
    for (reply, verdict) in [
        (Reply::Write(WriteReply::ConditionFailed { current: Version(3) }), TransactionOutcome::Aborted),
        (Reply::Refused(Refusal::NoLeader), TransactionOutcome::Refused(Refusal::NoLeader)),
    ] {
        let mut operations = OperationsBuilder::default();
        (0..2).for_each(|_| operations.push(&put(b"b")));
        shard_queues.push_transaction(SHARD, operations, Vec::new());
        assert_eq!(shard_queues.take_verdict(1), None);
        next(&mut shard_queues);
        complete(&mut shard_queues, reply);
        assert_eq!(shard_queues.take_verdict(1), Some(verdict));
        assert_eq!((take(&mut shard_queues), shard_queues.held_bytes()), (None, 0));
    }
}

#[test]
fn a_refusal_answers_every_operation() {
    let mut shard_queues = ShardQueues::new();
    for _ in 0..3 {
        shard_queues.push(SHARD, &put(b"a"));
    }
    next(&mut shard_queues);
    complete(&mut shard_queues, Reply::Refused(Refusal::UnknownOutcome));
    for _ in 0..3 {
        let is_refused = |part: Part<'_>| part == Part::Refused(Refusal::UnknownOutcome);
        assert_eq!(shard_queues.take(1, is_refused), Some(true));
    }
    assert_eq!(take(&mut shard_queues), None);
}

/// The read submitted now, if there is memory for `room` bytes of replies: its number of
/// operations, and the limit of its values' bytes.
fn next_within(shard_queues: &mut ShardQueues, room: usize) -> Option<(usize, usize)> {
    let mut found = None;
    shard_queues.submit(
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
    let mut shard_queues = ShardQueues::new();
    let large = vec![7; limits::VALUE_BYTES_MAX];
    for _ in 0..10 {
        shard_queues.push(SHARD, &get(b"a"));
    }
    let (mut seen, mut reads) = (0, 0);
    while let Some(asked) = next_within(&mut shard_queues, usize::MAX) {
        assert!(asked.1 <= 2 * limits::VALUE_BYTES_MAX);
        assert!(
            shard_queues.held_bytes() <= 4 * limits::VALUE_BYTES_MAX,
            "what may come is counted before it does"
        );
        complete(&mut shard_queues, replies_within(&large, asked));
        reads += 1;
        while take(&mut shard_queues) == Some(Some(large.clone())) {
            seen += 1;
        }
    }
    assert_eq!((seen, shard_queues.held_bytes()), (10, 0));
    assert!(reads <= 11, "each but the first brings a value: {reads} reads");
}

#[test]
fn small_values_are_read_while_memory_is_short_and_large_ones_wait() {
    let mut shard_queues = ShardQueues::new();
    let short = crate::memory::CONNECTION_BYTES - (2 << 10);
    for _ in 0..100 {
        shard_queues.push(SHARD, &get(b"a"));
    }
    let mut seen = 0;
    while seen < 100 {
        let asked = next_within(&mut shard_queues, short).expect("small values are read in any case");
        let held = shard_queues.held_bytes();
        assert!(held <= crate::memory::CONNECTION_BYTES, "{asked:?}, {held} bytes");
        complete(&mut shard_queues, replies_within(b"small", asked));
        while take(&mut shard_queues) == Some(Some(b"small".to_vec())) {
            seen += 1;
        }
    }
    shard_queues.push(SHARD, &get(b"a"));
    let large = vec![7; limits::VALUE_BYTES_MAX];
    let asked = next_within(&mut shard_queues, short).expect("it may be small");
    complete(&mut shard_queues, replies_within(&large, asked));
    assert_eq!((take(&mut shard_queues), next_within(&mut shard_queues, short)), (None, None), "it is not");
    let asked = next_within(&mut shard_queues, usize::MAX).expect("there is memory");
    complete(&mut shard_queues, replies_within(&large, asked));
    assert_eq!((take(&mut shard_queues), shard_queues.held_bytes()), (Some(Some(large)), 0));
}

#[test]
fn what_is_read_together_comes_from_one_state() {
    let mut shard_queues = ShardQueues::new();
    let large = vec![7; limits::VALUE_BYTES_MAX];
    for _ in 0..4 {
        shard_queues.push_together(SHARD, &get(b"a"));
    }
    let first = next_within(&mut shard_queues, usize::MAX).expect("there is memory");
    assert!(first.1 < limits::VALUE_BYTES_MAX, "values may be small");
    complete(&mut shard_queues, replies_within(&large[..first.1 / 2], first));
    assert_eq!(take(&mut shard_queues), None, "one fits, but not all four");
    let (count, bytes_max) = next_within(&mut shard_queues, usize::MAX).expect("all are read again");
    assert_eq!((count, bytes_max), (4, limits::REPLIES_BYTES_CLOSE));
    complete(&mut shard_queues, replies_within(&large, (count, bytes_max)));
    (0..4).for_each(|_| assert_eq!(take(&mut shard_queues), Some(Some(large.clone()))));
    assert_eq!(shard_queues.held_bytes(), 0);
}

#[test]
fn what_finds_no_memory_is_refused() {
    let mut shard_queues = ShardQueues::new();
    let mut operations = OperationsBuilder::default();
    operations.push(&get(b"a"));
    operations.push(&put(b"a"));
    shard_queues.push_transaction(SHARD, operations, Vec::new());
    shard_queues.push(SHARD, &put(b"b"));
    let mut asked_for = 0;
    let refuse = |bytes: usize, _: bool| {
        asked_for = bytes;
        false
    };
    shard_queues.submit(Some(1), Consistency::Linearizable, refuse, |_, _| panic!("there is no memory"));
    assert!(asked_for > 2 * limits::VALUE_BYTES_MAX, "a value, and the same encoded");
    assert!(shard_queues.refuse_next(1));
    assert_eq!(shard_queues.take_verdict(1), Some(TransactionOutcome::Refused(Refusal::Overloaded)));
    assert_eq!(next(&mut shard_queues), Some((1, false)), "what comes behind is done");
    assert!(!shard_queues.refuse_next(1), "it is under way");
    complete(&mut shard_queues, replies(&[None]));
    assert_eq!((take(&mut shard_queues), shard_queues.held_bytes()), (Some(None), 0));
}

#[test]
fn without_memory_reads_and_writes_part() {
    let mut shard_queues = ShardQueues::new();
    // Small values were seen, so reads go in the same command as writes.
    for _ in 0..100 {
        shard_queues.push(SHARD, &get(b"a"));
    }
    while let Some(asked) = next_within(&mut shard_queues, usize::MAX) {
        complete(&mut shard_queues, replies_within(b"small", asked));
        while take(&mut shard_queues).is_some() {}
    }
    for _ in 0..2 {
        shard_queues.push(SHARD, &put(b"a"));
        shard_queues.push(SHARD, &get(b"a"));
    }
    let mut commands = Vec::new();
    for _ in 0..4 {
        let mut submitted = None;
        let short = |bytes: usize, _: bool| bytes <= 12 << 10;
        shard_queues
            .submit(Some(1), Consistency::Linearizable, short, |request, _| submitted = Some(request));
        commands.push(matches!(submitted, Some(Request::Read { .. })));
        complete(&mut shard_queues, replies(&[None]));
        assert_eq!(take(&mut shard_queues), Some(None));
    }
    assert_eq!(commands, [false, true, false, true]);
    assert_eq!(shard_queues.held_bytes(), 0);
}

#[test]
fn what_is_held_is_known() {
    let mut shard_queues = ShardQueues::new();
    shard_queues.push(SHARD, &put(b"a"));
    let one = shard_queues.held_bytes();
    assert!(one > 0);
    shard_queues.push(SHARD, &put(b"a"));
    assert_eq!(shard_queues.held_bytes(), 2 * one);
    assert_eq!(next(&mut shard_queues), Some((2, false)));
    assert!(shard_queues.held_bytes() > 2 * one, "replies will come");
    complete(&mut shard_queues, replies(&[None, None]));
    assert!(shard_queues.held_bytes() > 0 && shard_queues.encoding_bytes() > 0);
    (0..2).for_each(|_| assert_eq!(take(&mut shard_queues), Some(None)));
    assert_eq!((shard_queues.held_bytes(), shard_queues.encoding_bytes()), (0, 0));
}

fn cross_shard() -> Reply {
    Reply::Refused(Refusal::CrossShard)
}

/// The keys of the one request submitted now, in order.
fn next_keys(shard_queues: &mut ShardQueues) -> Vec<Vec<u8>> {
    let mut requests = submitted(shard_queues);
    assert_eq!(requests.len(), 1, "one command a shard queue");
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
        let mut shard_queues = ShardQueues::new();
        for key in &keys {
            shard_queues.push(SHARD, &if is_read { get(key) } else { put(key) });
        }
        let mut commands = 0;
        let mut came: Vec<Vec<u8>> = Vec::new();
        while came.len() < keys.len() {
            let asked = next_keys(&mut shard_queues);
            commands += 1;
            let is_one = asked.iter().all(|key| key[0] == asked[0][0]);
            complete(&mut shard_queues, if is_one { echo(&asked) } else { cross_shard() });
            came.extend(is_one.then_some(asked).into_iter().flatten());
        }
        assert_eq!(came, keys, "each is done once, in order");
        assert!(commands < 2 * keys.len(), "{commands} commands");
        for key in &keys {
            assert_eq!(take(&mut shard_queues), Some(Some(key.clone())));
        }
        assert!(
            take(&mut shard_queues).is_none()
                && shard_queues.is_idle()
                && submitted(&mut shard_queues).is_empty()
        );
        assert_eq!(shard_queues.held_bytes(), 0);
    }
}

#[test]
fn what_is_split_stays_in_front_of_what_came_later() {
    let mut shard_queues = ShardQueues::new();
    for key in [b"a", b"b"] {
        shard_queues.push(SHARD, &put(key));
    }
    assert_eq!(next(&mut shard_queues), Some((2, false)));
    shard_queues.push(SHARD, &put(b"c"));
    complete(&mut shard_queues, cross_shard());
    for key in [b"a", b"b", b"c"] {
        assert!(!shard_queues.is_idle());
        let asked = next_keys(&mut shard_queues);
        assert_eq!(asked, [key]);
        complete(&mut shard_queues, echo(&asked));
    }
    assert!(shard_queues.is_idle());
}

#[test]
fn a_transaction_is_not_split_and_neither_is_one_operation() {
    let mut shard_queues = ShardQueues::new();
    let mut operations = OperationsBuilder::default();
    operations.push(&put(b"a"));
    operations.push(&put(b"b"));
    shard_queues.push_transaction(SHARD, operations, Vec::new());
    assert_eq!(next(&mut shard_queues), Some((2, false)));
    complete(&mut shard_queues, cross_shard());
    assert_eq!(shard_queues.take_verdict(1), Some(TransactionOutcome::Refused(Refusal::CrossShard)));
    shard_queues.push(SHARD, &put(b"a"));
    assert_eq!(next(&mut shard_queues), Some((1, false)));
    complete(&mut shard_queues, cross_shard());
    let refused = shard_queues.take(1, |part| matches!(part, Part::Refused(Refusal::CrossShard)));
    assert_eq!(refused, Some(true));
    assert!(shard_queues.is_idle());
}

/// The numbers of shards have no bound, because shards are added and removed.
#[test]
fn a_high_number_of_a_shard_takes_no_more_room_than_a_low_one() {
    let mut shard_queues = ShardQueues::new();
    let shards = [u64::MAX, 7, 1 << 40, u64::MAX];
    let indexes = shards.map(|shard| shard_queues.push(ShardId(shard), &put(b"a")));
    assert_eq!(indexes, [513, 7, 514, 513]);
    let mut asked = Vec::new();
    shard_queues.submit(
        None,
        Consistency::Linearizable,
        |_, _| true,
        |request, shard_queue| match request {
            Request::Write(Write::Keys(transaction)) => {
                asked.push((transaction.operations.len(), shard_queue))
            }
            other => panic!("{other:?}"),
        },
    );
    asked.sort_unstable();
    assert_eq!(asked, [(1, 7), (1, 514), (2, 513)]);
    shard_queues.complete(514, replies(&[None]));
    assert_eq!(shard_queues.take(514, |_| ()), Some(()));
}
