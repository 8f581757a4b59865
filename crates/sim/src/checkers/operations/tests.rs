//! One test with a violation for each kind of contradiction.

use super::*;
use crate::checkers::fixture::HistoryBuilder;
use crate::event_queue::Micros;
use crate::slots::slot_of;
use tidelock_core::command::{
    Condition, Consistency, Expiry, ExpiryCondition, Import, Move, MoveStep, Operation as Asked,
    OperationRepliesBuilder, OperationReply, Read, ReadReply, Refusal, Request, RestoredKey, Set,
    SetCondition, Transaction, Write, WriteReply,
};
use tidelock_core::limits;
use tidelock_core::machine::config::Config;
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::types::{LogIndex, MigrationId, NodeId, Term, UnixMillis, Version};

const SHARD: ShardId = ShardId(1);
const SECOND: ShardId = ShardId(2);
const KEY: &[u8] = b"{0}o/0";

#[derive(Default)]
struct Run {
    history_builder: HistoryBuilder,
    log: Vec<Write>,
    /// The log of a second shard, which owns nothing at first.
    second_log: Vec<Write>,
    /// The times that clocks showed, and the clocks' nodes. Node 1 proposes everything.
    clocks: Vec<(u64, u64)>,
}

impl Run {
    /// Requests an operation. Returns its command.
    fn asks(&mut self, operation: Asked<'_>) -> (Token, Write) {
        let token = self.history_builder.history.next_token();
        let mark = format!("{{0}}#{}", token.0);
        let operations = Operations::of(&[operation, Asked::Describe { key: mark.as_bytes() }]);
        let write = Write::Keys(Transaction::of(operations));
        assert_eq!(self.history_builder.ask(Request::Write(write.clone())), token);
        (token, write)
    }

    fn answers(&mut self, token: Token, reply: OperationReply<'_>) {
        let mut replies = OperationRepliesBuilder::default();
        replies.push(&reply);
        replies.push(&OperationReply::Absent);
        self.history_builder.answer(token, Reply::Write(WriteReply::Operations(replies.finish())));
    }

    /// Adds 1, from the request to the answer.
    fn adds(&mut self, version: u64, value: i64) -> Token {
        let (token, write) = self.asks(Asked::Add { key: KEY, delta: 1 });
        self.log.push(write);
        self.answers(token, OperationReply::Number { version: Version(version), value });
        token
    }

    /// The slot of the key moves to the second shard, with this content.
    fn moves(&mut self, version: u64, value: &'static [u8]) {
        let slot = slot_of(KEY);
        let (slots, all) = (SlotSet::from(slot..slot + 1), SlotSet::all());
        let step = |shard, step| Write::from(Move { shard, migration: MigrationId(1), step });
        let (version, value) = (Version(version), Bytes::from_static(value));
        let rows =
            vec![RestoredKey { key: Bytes::from_static(KEY), version, value, expires: None, lease: None }];
        let import = Import {
            attempt: 1,
            sequence: 0,
            revision: version,
            rows,
            removals: Vec::new(),
            config: None,
            leases: None,
        };
        let (config, outcomes) = (Config::default().floor_block().into(), Vec::new());
        let own =
            MoveStep::Own { attempt: 1, sequence: 1, revision: version, config, outcomes, leases_at: None };
        let founding = SlotSet::default();
        let open = MoveStep::Open { attempt: 1, slots: slots.clone(), founding, limit: 1 };
        self.second_log.extend([open, MoveStep::Import(import), own].map(|it| step(SECOND, it)));
        self.log.push(step(SHARD, MoveStep::Freeze { slots, founding: all }));
    }

    fn asks_for(&mut self, consistency: Consistency) -> Token {
        let read = Read::Operations {
            operations: Operations::of(&[Asked::Get { key: KEY }]),
            bytes_max: limits::REPLIES_BYTES_CLOSE,
        };
        self.history_builder.ask(Request::Read { read, consistency })
    }

    fn sees(&mut self, token: Token, version: u64, value: &str) {
        let mut replies = OperationRepliesBuilder::default();
        let value = value.as_bytes();
        replies.push(&OperationReply::Value { version: Version(version), expires: None, value });
        self.history_builder.answer(token, Reply::Read(ReadReply::Operations(replies.finish())));
    }

    fn verdict(&self) -> String {
        let mut ledger = Ledger::default();
        ledger.leader(NodeId(1), SHARD, Term(1));
        ledger.observe(SHARD, LogIndex(1), |_| Some((Term(1), self.log.clone())));
        ledger.observe(SECOND, LogIndex(1), |_| Some((Term(1), self.second_log.clone())));
        for (node, time) in &self.clocks {
            ledger.clock(NodeId(*node), UnixMillis(*time), Micros(time * 1_000));
        }
        let ownership = SlotOwnership::of(&ledger, 1).expect("one owner at a time");
        check(&self.history_builder.history, &ledger, &ownership)
            .err()
            .map_or_else(String::new, |violation| violation.message)
    }
}

#[test]
fn what_follows_from_the_log_is_fine() {
    let mut run = Run::default();
    run.adds(1, 1);
    let read = run.asks_for(Consistency::Linearizable);
    run.adds(2, 2);
    run.sees(read, 1, "1");
    let (_, unknown) = run.asks(Asked::Add { key: KEY, delta: 1 });
    run.log.push(unknown);
    run.adds(4, 4);
    assert_eq!(run.verdict(), "");
}

#[test]
fn a_wrong_answer_is_noticed() {
    let mut run = Run::default();
    run.adds(1, 1);
    run.adds(2, 3);
    assert!(run.verdict().contains("and the log says"));
}

#[test]
fn a_command_done_twice_is_noticed() {
    let mut run = Run::default();
    run.adds(1, 1);
    run.log.push(run.log[0].clone());
    assert!(run.verdict().contains("or twice"));
}

#[test]
fn an_acknowledged_command_that_is_nowhere_is_noticed() {
    let mut run = Run::default();
    run.adds(1, 1);
    run.log.clear();
    assert!(run.verdict().contains("stands in no log"));
}

#[test]
fn a_refused_command_that_happened_is_noticed() {
    let mut run = Run::default();
    let (token, write) = run.asks(Asked::Add { key: KEY, delta: 1 });
    run.log.push(write);
    run.history_builder.refused(token, Refusal::NoLeader);
    assert!(run.verdict().contains("was refused and stands in the log"));
}

#[test]
fn commands_against_real_time_are_noticed() {
    let mut run = Run::default();
    let (first, first_write) = run.asks(Asked::Add { key: KEY, delta: 1 });
    run.answers(first, OperationReply::Number { version: Version(2), value: 2 });
    let (second, second_write) = run.asks(Asked::Add { key: KEY, delta: 1 });
    run.answers(second, OperationReply::Number { version: Version(1), value: 1 });
    run.log = vec![second_write, first_write];
    assert!(run.verdict().contains("stands behind it"));
}

#[test]
fn a_read_of_the_past_is_noticed_unless_it_is_stale() {
    for (consistency, is_fine) in [(Consistency::Linearizable, false), (Consistency::Stale, true)] {
        let mut run = Run::default();
        run.adds(1, 1);
        run.adds(2, 2);
        let read = run.asks_for(consistency);
        run.sees(read, 1, "1");
        assert_eq!(run.verdict().is_empty(), is_fine);
    }
}

#[test]
fn a_read_at_the_last_owner_of_a_slot_is_noticed_unless_it_is_stale() {
    for (consistency, is_fine) in [(Consistency::Linearizable, false), (Consistency::Stale, true)] {
        let mut run = Run::default();
        run.adds(1, 1);
        run.moves(1, b"1");
        let during = run.asks_for(consistency);
        let (token, add) = run.asks(Asked::Add { key: KEY, delta: 1 });
        run.second_log.push(add);
        run.answers(token, OperationReply::Number { version: Version(2), value: 2 });
        run.sees(during, 1, "1");
        assert_eq!(run.verdict(), "", "it may have been answered before the write");
        let after = run.asks_for(consistency);
        run.sees(after, 1, "1");
        assert_eq!(run.verdict().is_empty(), is_fine);
        let last = run.asks_for(consistency);
        run.sees(last, 2, "2");
        assert_eq!(run.verdict().is_empty(), is_fine);
    }
}

#[test]
fn stale_reads_of_one_process_that_go_backwards_are_noticed() {
    let mut run = Run::default();
    run.adds(1, 1);
    run.adds(2, 2);
    for (version, value) in [(1, "1"), (2, "2")] {
        let read = run.asks_for(Consistency::Stale);
        run.sees(read, version, value);
    }
    assert_eq!(run.verdict(), "");
    let read = run.asks_for(Consistency::Stale);
    run.sees(read, 1, "1");
    assert!(run.verdict().contains("no state from"));
}

#[test]
fn reads_that_go_backwards_are_noticed() {
    let mut run = Run::default();
    run.adds(1, 1);
    let (_, unknown) = run.asks(Asked::Add { key: KEY, delta: 1 });
    run.log.push(unknown);
    for (version, value) in [(2, "2"), (1, "1")] {
        let read = run.asks_for(Consistency::Linearizable);
        run.sees(read, version, value);
    }
    assert!(run.verdict().contains("no state from"));
}

#[test]
fn keys_that_come_back_or_go_early_are_noticed() {
    let expiring = |run: &mut Run| {
        let condition = SetCondition::Version(Condition::Always);
        let expiry = Expiry::At(UnixMillis(50));
        let (token, write) =
            run.asks(Asked::Set(Set { key: KEY, value: b"v", condition, expiry, previous: false }));
        run.log.push(write);
        run.answers(token, OperationReply::Written { version: Version(1), created: true });
    };
    let expire = |now| Write::Expire { shard: SHARD, now: UnixMillis(now), limit: 1, leases: None };
    let look = |run: &mut Run, reply: OperationReply<'_>| {
        let read = run.asks_for(Consistency::Linearizable);
        let mut replies = OperationRepliesBuilder::default();
        replies.push(&reply);
        run.history_builder.answer(read, Reply::Read(ReadReply::Operations(replies.finish())));
    };
    let there = OperationReply::Value { version: Version(1), expires: Some(UnixMillis(50)), value: b"v" };

    let mut early = Run::default();
    expiring(&mut early);
    early.clocks = vec![(1, 49)];
    early.log.push(expire(49));
    look(&mut early, OperationReply::Absent);
    assert!(early.verdict().contains("no state from"));

    let mut by_no_clock = Run::default();
    expiring(&mut by_no_clock);
    by_no_clock.log.push(expire(50));
    assert!(by_no_clock.verdict().contains("no clock has shown"));

    let mut back = Run::default();
    expiring(&mut back);
    back.clocks = vec![(2, 50)];
    back.log.push(expire(50));
    look(&mut back, OperationReply::Absent);
    assert_eq!(back.verdict(), "");
    look(&mut back, there);
    assert!(back.verdict().contains("no state from"));
}

#[test]
fn a_time_to_live_by_another_clock_than_the_leaders_is_noticed() {
    let set = |expiry| {
        let condition = SetCondition::Version(Condition::Always);
        Asked::Set(Set { key: KEY, value: b"v", condition, expiry, previous: false })
    };
    let condition = ExpiryCondition::Always;
    let relative = [set(Expiry::After(50)), Asked::ExpireAfter { key: KEY, after_ms: 50, condition }];
    let absolute = |at| [set(Expiry::At(at)), Asked::Expire { key: KEY, at: Some(at), condition }];
    for (position, asked) in relative.into_iter().enumerate() {
        for (proposed, is_fine) in [(1_000, true), (61_000, false), (1_001, false)] {
            let mut run = Run { clocks: vec![(1, 1_000), (2, 61_000)], ..Run::default() };
            let (_, write) = run.asks(asked);
            let Write::Keys(transaction) = write else { panic!("not a transaction") };
            let mark = transaction.operations.iter().last().expect("a mark");
            let logged = Operations::of(&[absolute(UnixMillis(proposed + 50))[position], mark]);
            run.log.push(Write::Keys(Transaction::of(logged)));
            assert_eq!(run.verdict().is_empty(), is_fine, "{asked:?} at {proposed}");
        }
    }
    let mut relative_in_log = Run { clocks: vec![(1, 1_000)], ..Run::default() };
    let (_, write) = relative_in_log.asks(relative[0]);
    relative_in_log.log.push(write);
    assert!(relative_in_log.verdict().contains("depends on a clock"));
}
