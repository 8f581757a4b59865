//! Order of commands and replies, without a store: the tests answer what a pipeline submits.

use super::*;
use crate::founding::Founding;
use alloc::string::{String, ToString};
use alloc::vec;
use core::cell::RefCell;

use crate::clients::operation_queues::TransactionOutcome;
use crate::command::{Condition, OperationRepliesBuilder, Refusal, Write, WriteReply};
use crate::control::registry::Registry;
use crate::slots::slot_of;
use crate::slots::slot_set::SlotSet;
use crate::types::LogIndex;

const SHARDS: u64 = 2;

/// In the first of two shards, slot 5061.
const BAR: &[u8] = b"bar";

/// In the second shard, slot 12182.
const FOO: &[u8] = b"foo";

/// The slots of two shards, which the test moves.
struct Slots(RefCell<Registry>);

impl Slots {
    fn founded() -> Slots {
        Slots(RefCell::new(Registry::founded(&Founding::new(1, SHARDS))))
    }

    fn give(&self, key: &[u8], to: ShardId) {
        let mut registry = self.0.borrow_mut();
        let slot = slot_of(key);
        registry.move_slots(LogIndex(1), &SlotSet::from(slot..slot + 1), to);
        let migration = registry.last_migration();
        registry.finish_migration(LogIndex(1), migration);
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        self.0.borrow().view().slots.shard_of(slot_of(key))
    }
}

/// Replies as text.
#[derive(Debug)]
struct Texts;

#[derive(Debug, PartialEq, Eq)]
struct Text(&'static str);

impl HeldBytes for Text {
    fn held_bytes(&self) -> usize {
        self.0.len()
    }
}

#[derive(Debug)]
struct Gathered(String);

impl HeldBytes for Gathered {
    fn held_bytes(&self) -> usize {
        self.0.len()
    }
}

impl ReplyForms for Texts {
    type Ready = Text;
    type One = &'static str;
    type Many = Gathered;
    type Item = Text;
}

/// The replies in their order: the name of the command, and the versions of its results.
#[derive(Debug, Default)]
struct Replies(Vec<String>);

fn text(part: &OperationResult<'_>) -> String {
    match part {
        OperationResult::Reply(OperationReply::Written { version, .. }) => version.to_string(),
        OperationResult::Refused(refusal) => alloc::format!("{refusal:?}"),
        OperationResult::Reply(other) => panic!("{other:?}"),
    }
}

impl ReplySink<Texts> for Replies {
    fn ready(&mut self, ready: &Text) {
        self.0.push(ready.0.into());
    }

    fn one(&mut self, form: &&'static str, result: OperationResult<'_>) {
        self.0.push(alloc::format!("{form} {}", text(&result)));
    }

    fn gather(&mut self, form: &mut Gathered, result: OperationResult<'_>) {
        form.0.push_str(&alloc::format!(" {}", text(&result)));
    }

    fn many(&mut self, form: &Gathered) {
        self.0.push(form.0.clone());
    }

    fn transaction(
        &mut self,
        items: &[Text],
        outcome: TransactionOutcome,
        mut results: TransactionResults<'_>,
    ) {
        let mut found = alloc::format!("{outcome:?}");
        if outcome == TransactionOutcome::Done {
            items.iter().for_each(|item| {
                found.push_str(&alloc::format!(" {} {}", item.0, results.next(|it| text(&it))))
            });
        }
        self.0.push(found);
    }

    fn watched(&mut self, result: Result<(), Refusal>) {
        self.0.push(alloc::format!("{result:?}"));
    }
}

type Tested = Pipeline<Texts>;

fn pipeline() -> (Tested, Slots) {
    (Pipeline::new(1, Faults::NONE), Slots::founded())
}

fn put(key: &[u8]) -> Operation<'_> {
    Operation::Put { key, value: b"v", condition: Condition::Always }
}

fn push(pipeline: &mut Tested, slots: &Slots, key: &[u8], name: &'static str) {
    assert_eq!(pipeline.push_one(&put(key), |key| slots.shard_of(key), name), Ok(()));
}

fn keeps_order(pipeline: &mut Tested, slots: &Slots) -> bool {
    let version = slots.0.borrow().view().slots.version;
    pipeline.follow_slot_map(version, |key| slots.shard_of(key))
}

/// The queues of the commands submitted now, and their numbers of operations.
fn submitted(pipeline: &mut Tested) -> Vec<(u64, usize)> {
    let mut found = Vec::new();
    pipeline.submit(
        true,
        Consistency::Linearizable,
        |_, _| true,
        |request, queue| match request {
            Request::Write(Write::Keys(transaction)) => found.push((queue, transaction.operations.len())),
            other => panic!("{other:?}"),
        },
    );
    found.sort_unstable();
    found
}

fn written(versions: &[u64]) -> Reply {
    let mut replies = OperationRepliesBuilder::default();
    for version in versions {
        replies.push(&OperationReply::Written { version: Version(*version), created: true });
    }
    Reply::Write(WriteReply::Operations(replies.finish()))
}

/// The replies that are known now, in their order.
fn settled(pipeline: &mut Tested) -> Vec<String> {
    let mut replies = Replies::default();
    while pipeline.settle_next(&mut replies) {}
    replies.0
}

#[test]
fn replies_have_the_order_of_commands_although_queues_answer_in_another() {
    let (mut pipeline, slots) = pipeline();
    push(&mut pipeline, &slots, BAR, "first");
    push(&mut pipeline, &slots, FOO, "second");
    pipeline.push_ready(Text("third"));
    let form = Gathered("fourth".into());
    let both = [put(FOO), put(BAR)].into_iter();
    assert_eq!(pipeline.push_many(both, |key| slots.shard_of(key), form), Ok(()));
    assert_eq!(submitted(&mut pipeline), [(1, 2), (2, 2)]);
    pipeline.complete(2, written(&[20, 21]));
    assert!(settled(&mut pipeline).is_empty(), "the first is not known");
    pipeline.complete(1, written(&[10, 11]));
    assert_eq!(settled(&mut pipeline), ["first 10", "second 20", "third", "fourth 21 11"]);
    assert!(pipeline.is_settled() && pipeline.held_bytes() == 0);
}

#[test]
fn a_command_without_memory_is_refused_at_its_turn() {
    let (mut pipeline, slots) = pipeline();
    push(&mut pipeline, &slots, BAR, "first");
    push(&mut pipeline, &slots, FOO, "second");
    pipeline.submit(true, Consistency::Linearizable, |_, _| false, |_, _| panic!("there is no memory"));
    assert!(pipeline.refuse_next());
    assert_eq!(settled(&mut pipeline), ["first Overloaded"]);
    assert_eq!(submitted(&mut pipeline), [(2, 1)]);
    assert!(!pipeline.refuse_next(), "it is in flight");
}

#[test]
fn after_slots_moved_no_command_is_executed_until_all_before_are_answered() {
    let (mut pipeline, slots) = pipeline();
    assert!(keeps_order(&mut pipeline, &slots));
    push(&mut pipeline, &slots, BAR, "first");
    assert_eq!(submitted(&mut pipeline), [(1, 1)]);
    push(&mut pipeline, &slots, BAR, "second");
    slots.give(BAR, ShardId(2));
    assert!(!keeps_order(&mut pipeline, &slots), "one is in flight, one waits for it");
    pipeline.complete(1, written(&[1]));
    assert!(!keeps_order(&mut pipeline, &slots), "the second is not done");
    assert_eq!(submitted(&mut pipeline), [(1, 1)]);
    assert!(!keeps_order(&mut pipeline, &slots));
    pipeline.complete(1, written(&[2]));
    assert!(keeps_order(&mut pipeline, &slots));
    push(&mut pipeline, &slots, BAR, "third");
    assert_eq!(submitted(&mut pipeline), [(2, 1)], "it goes where the key is now");
    assert!(keeps_order(&mut pipeline, &slots));
}

/// Watches `bar` at version 7.
fn watch_bar(pipeline: &mut Tested, slots: &Slots) {
    assert_eq!(pipeline.watch([BAR].into_iter(), |key| slots.shard_of(key)), Ok(()));
    assert!(!pipeline.knows_watches());
    pipeline.submit(true, Consistency::Linearizable, |_, _| true, |_, queue| assert_eq!(queue, 1));
    let mut replies = OperationRepliesBuilder::default();
    replies.push(&OperationReply::Described { version: Version(7), expires: None, value_bytes: 1 });
    pipeline.complete(1, Reply::Write(WriteReply::Operations(replies.finish())));
    assert_eq!(settled(pipeline), ["Ok(())"]);
    assert!(pipeline.knows_watches());
}

#[test]
fn an_open_transaction_and_its_watches_follow_their_keys() {
    let (mut pipeline, slots) = pipeline();
    watch_bar(&mut pipeline, &slots);
    assert_eq!(pipeline.begin_transaction(), Ok(()));
    assert_eq!(pipeline.begin_transaction(), Err(CommandError::TransactionOpen));
    let queue = |pipeline: &mut Tested, key, name| {
        pipeline.queue([put(key)].into_iter(), |key| slots.shard_of(key), Text(name))
    };
    assert_eq!(queue(&mut pipeline, BAR, "a"), Ok(()));
    slots.give(BAR, ShardId(2));
    assert!(keeps_order(&mut pipeline, &slots));
    assert_eq!(queue(&mut pipeline, b"{bar}2", "b"), Ok(()));
    assert_eq!(pipeline.execute_transaction(), Ok(Executed::Queued), "all of it is in the second shard");
    assert_eq!(submitted(&mut pipeline), [(2, 2)]);
    pipeline.complete(2, written(&[8, 9]));
    assert_eq!(settled(&mut pipeline), ["Done a 8 b 9"]);
}

#[test]
fn a_transaction_of_several_shards_or_with_a_refused_command_is_not_executed() {
    let (mut pipeline, slots) = pipeline();
    for spoil in [BAR, FOO] {
        watch_bar(&mut pipeline, &slots);
        assert_eq!(pipeline.begin_transaction(), Ok(()));
        let queued = pipeline.queue([put(FOO)].into_iter(), |key| slots.shard_of(key), Text("a"));
        assert_eq!(queued, Ok(()));
        if spoil == BAR {
            assert_eq!(
                pipeline.execute_transaction(),
                Err(CommandError::CrossShard),
                "the watch is elsewhere"
            );
            continue;
        }
        let both = vec![put(FOO), put(BAR)];
        let queued = pipeline.queue(both.into_iter(), |key| slots.shard_of(key), Text("b"));
        assert_eq!(queued, Err(CommandError::CrossShard));
        pipeline.fail_transaction();
        assert_eq!(pipeline.execute_transaction(), Err(CommandError::TransactionFailed));
    }
    assert!(!pipeline.is_in_transaction() && submitted(&mut pipeline).is_empty());
    assert_eq!(pipeline.execute_transaction(), Err(CommandError::NoTransaction));
}

#[test]
fn a_watch_that_was_refused_prevents_its_transaction_unless_it_was_ended() {
    for is_ended in [false, true] {
        let (mut pipeline, slots) = pipeline();
        assert_eq!(pipeline.watch([BAR].into_iter(), |key| slots.shard_of(key)), Ok(()));
        pipeline.submit(true, Consistency::Linearizable, |_, _| true, |_, _| ());
        if is_ended {
            pipeline.unwatch();
        }
        pipeline.complete(1, Reply::Refused(Refusal::NoLeader));
        assert_eq!(settled(&mut pipeline), ["Err(NoLeader)"]);
        assert_eq!(pipeline.begin_transaction(), Ok(()));
        let expected =
            if is_ended { Ok(Executed::Empty(Vec::new())) } else { Err(CommandError::WatchUnknown) };
        assert_eq!(pipeline.execute_transaction(), expected);
    }
}

#[test]
fn transactions_with_keys_of_several_slots_are_counted() {
    let (mut pipeline, slots) = pipeline();
    let shard_of = |key: &[u8]| slots.shard_of(key);
    // Both in the first shard: slots 5061 and 3300.
    let [near, tagged] = [b"b".as_slice(), b"{bar}"];
    assert!(slots.shard_of(near) == slots.shard_of(BAR) && slot_of(near) != slot_of(BAR));
    let mut together = |keys: [&'static [u8]; 2]| {
        let form = Gathered(String::new());
        assert_eq!(pipeline.push_transaction(keys.map(put).into_iter(), shard_of, form), Ok(()));
        pipeline.take_cross_slot_transactions()
    };
    assert_eq!((together([BAR, near]), together([BAR, tagged]), together([BAR, BAR])), (1, 0, 0));

    for (keys, count) in [([BAR, near], 1), ([BAR, tagged], 0)] {
        pipeline.begin_transaction().expect("none is open");
        for key in keys {
            assert_eq!(pipeline.queue([put(key)].into_iter(), shard_of, Text("put")), Ok(()));
        }
        assert_eq!(pipeline.take_cross_slot_transactions(), 0, "it is not executed yet");
        assert_eq!(pipeline.execute_transaction(), Ok(Executed::Queued));
        assert_eq!(pipeline.take_cross_slot_transactions(), count);
    }
    let both = [put(BAR), put(near)].into_iter();
    assert_eq!(pipeline.push_many(both, shard_of, Gathered(String::new())), Ok(()));
    assert_eq!(pipeline.take_cross_slot_transactions(), 0, "these may be in two shards");
}
