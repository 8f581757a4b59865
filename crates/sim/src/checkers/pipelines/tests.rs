//! Each kind of violation, and what is none.

use std::cell::OnceCell;

use tidelock_core::command::{
    Condition, Consistency, Operations, OperationsBuilder, StoredValue, Transaction, Write,
};
use tidelock_core::types::{LogIndex, NodeId, ShardId, Term};

use super::*;
use crate::checkers::operations::Ledger;
use crate::history::{Incarnation, value_of};
use crate::pipelines::ReceivedReply;
use crate::slots::SLOTS;

const KEY: Bytes = Bytes::from_static(b"key");
const OTHER: Bytes = Bytes::from_static(b"other");

/// One connection, and other clients beside it.
#[derive(Default)]
struct Run {
    history: History,
    record: ConnectionRecord,
    ledger: Ledger,
}

impl Run {
    fn ask(&mut self, request: Request) -> Token {
        self.history.invoke(Incarnation { node: NodeId(1), life: 1 }, request, false)
    }

    fn put(&mut self, key: &[u8]) -> Token {
        let value = value_of(self.history.next_token(), 0);
        let put = Asked::Put { key, value: &value, condition: Condition::Always };
        self.ask(Request::Write(Write::of(&put)))
    }

    fn get(&mut self, key: &Bytes) -> Token {
        let read = Read::Get { key: key.clone() };
        self.ask(Request::Read { read, consistency: Consistency::Linearizable })
    }

    fn written(&mut self, token: Token, version: u64) {
        let written = OperationReply::Written { version: Version(version), created: false };
        assert!(self.history.answer(token, Reply::Write(WriteReply::of(&written))));
    }

    fn sees(&mut self, token: Token, found: Option<(u64, Token)>) {
        let found = found.map(|(version, writer)| StoredValue {
            version: Version(version),
            value: value_of(writer, 0),
            expires: None,
            lease: None,
        });
        assert!(self.history.answer(token, Reply::Read(ReadReply::Value(found))));
    }

    /// Another client puts a key.
    fn puts(&mut self, key: &[u8], version: u64) -> Token {
        let put = self.put(key);
        self.written(put, version);
        put
    }

    /// Another client deletes the key.
    fn deletes(&mut self, version: u64) {
        let delete = Asked::Delete { key: &KEY, condition: Condition::Always };
        let token = self.ask(Request::Write(Write::of(&delete)));
        let deleted = OperationReply::Deleted { version: Version(version) };
        assert!(self.history.answer(token, Reply::Write(WriteReply::of(&deleted))));
    }

    /// The node took a command of the connection.
    fn took(&mut self, operations: &[Token]) -> usize {
        self.record
            .commands
            .push(TakenCommand { operations: operations.to_vec(), ..TakenCommand::default() });
        self.record.commands.len() - 1
    }

    fn took_transaction(&mut self, operations: &[Token]) -> usize {
        let position = self.took(operations);
        self.record.commands[position].is_transaction = true;
        position
    }

    /// The client received the reply to a command.
    fn received(&mut self, command: usize) {
        let executed = self.record.commands[command].operations.len();
        let next_token = self.history.next_token();
        self.record.replies.push(ReceivedReply { command, executed, next_token });
    }

    fn judged_with(&self, data_shards: u64) -> String {
        let connections = std::slice::from_ref(&self.record);
        let run = FinishedRun {
            history: &self.history,
            iterations: &[],
            connections,
            watchers: &[],
            key_watchers: &[],
            imports: &[],
            counter_runs: &[],
            ledger: &self.ledger,
            data_shards,
            is_mixed: false,
            lineages: OnceCell::new(),
            ownership: OnceCell::new(),
        };
        let verdict = ConnectionReplies.judge(&run).and_then(|()| ConnectionOrder.judge(&run));
        verdict.err().map_or_else(String::new, |violation| violation.message)
    }

    fn judged(&self) -> String {
        self.judged_with(1)
    }
}

#[test]
fn a_reply_that_overtakes_is_noticed() {
    for order in [[0, 1], [1, 0]] {
        let mut run = Run::default();
        for (key, version) in [(&KEY, 1), (&OTHER, 2)] {
            let put = run.puts(key, version);
            run.took(&[put]);
        }
        order.iter().for_each(|command| run.received(*command));
        let is_noticed = run.judged().contains("the reply to command 1 came as number 0");
        assert_eq!(is_noticed, order == [1, 0]);
    }
}

#[test]
fn a_reply_without_a_result_is_noticed() {
    let mut run = Run::default();
    let put = run.put(&KEY);
    let command = run.took(&[put]);
    run.received(command);
    assert!(run.judged().contains("has no result"));
}

#[test]
fn a_read_that_does_not_see_the_write_before_it_is_noticed() {
    for (seen, is_right) in [(1, false), (2, true), (3, true)] {
        let mut run = Run::default();
        let mut writers = vec![run.puts(&KEY, 1)];
        let (put, get) = (run.put(&KEY), run.get(&KEY));
        writers.push(put);
        let third = run.puts(&KEY, 3);
        writers.push(third);
        run.written(put, 2);
        run.sees(get, Some((seen, writers[seen as usize - 1])));
        for token in [put, get] {
            run.took(&[token]);
        }
        assert_eq!(run.judged().is_empty(), is_right, "{seen}: {}", run.judged());
    }
}

#[test]
fn an_absence_after_a_write_needs_a_delete() {
    for is_deleted in [false, true] {
        let mut run = Run::default();
        let (put, get) = (run.put(&KEY), run.get(&KEY));
        if is_deleted {
            run.deletes(2);
        }
        run.written(put, 1);
        run.sees(get, None);
        for token in [put, get] {
            run.took(&[token]);
        }
        assert_eq!(run.judged().contains("finds Absent"), !is_deleted);
    }
}

#[test]
fn a_write_that_overtakes_a_read_is_noticed() {
    let mut run = Run::default();
    let (get, put) = (run.get(&KEY), run.put(&KEY));
    run.written(put, 1);
    run.sees(get, Some((1, put)));
    for token in [get, put] {
        run.took(&[token]);
    }
    assert!(run.judged().contains("finds Made"));
}

#[test]
fn a_command_inside_of_a_transaction_is_noticed() {
    for last in [2, 3] {
        let mut run = Run::default();
        let (first, second) = (run.put(&KEY), run.put(&OTHER));
        run.written(first, 1);
        run.written(second, last);
        run.took_transaction(&[first, second]);
        assert_eq!(run.judged().contains("of a transaction finds"), last == 3);
    }
}

#[test]
fn a_transaction_that_sees_a_later_command_is_noticed() {
    for is_later in [false, true] {
        let mut run = Run::default();
        let before = run.puts(&KEY, 1);
        let (put, get) = (run.put(&OTHER), run.get(&KEY));
        let after = run.puts(&KEY, 3);
        run.written(put, 2);
        run.sees(get, Some(if is_later { (3, after) } else { (1, before) }));
        run.took_transaction(&[put, get]);
        assert_eq!(run.judged().contains("of a transaction finds"), is_later);
    }
}

#[test]
fn a_transaction_in_spite_of_a_changed_key_is_noticed() {
    // A key that was created and deleted meanwhile is absent as before.
    for (is_late, is_deleted) in [(false, false), (true, false), (true, true)] {
        let mut run = Run::default();
        let watch = run.took(&[]);
        if !is_late {
            run.puts(&KEY, 1);
        }
        run.received(watch);
        if is_late {
            run.puts(&KEY, 1);
        }
        if is_deleted {
            run.deletes(2);
        }
        let put = run.put(&KEY);
        run.written(put, 3);
        let command = run.took_transaction(&[put]);
        run.record.commands[command].watches = vec![(KEY, watch)];
        run.received(command);
        assert_eq!(run.judged().contains("was executed although"), is_late && !is_deleted);
    }
}

#[test]
fn keys_from_two_states_of_a_shard_are_noticed() {
    let mut run = Run::default();
    let old = run.puts(&KEY, 1);
    let (first, second) = (run.get(&KEY), run.get(&OTHER));
    run.puts(&KEY, 2);
    let new = run.puts(&OTHER, 3);
    run.sees(first, Some((1, old)));
    run.sees(second, Some((3, new)));
    run.took(&[first, second]);
    assert!(run.judged().contains("replaced at 2, beside a key at version 3"));
    assert_eq!(run.judged_with(SLOTS), "", "they are in two shards");
}

/// The committed log has these commands.
fn logged(run: &mut Run, writes: &[Write]) {
    let committed = LogIndex(writes.len() as u64);
    let entry = |index: LogIndex| Some((Term(1), vec![writes[index.0 as usize - 1].clone()]));
    run.ledger.observe(ShardId(1), committed, entry);
}

#[test]
fn a_refused_put_that_was_executed_and_one_executed_twice_are_noticed() {
    for (times, is_refused) in [(1, false), (1, true), (2, false)] {
        let mut run = Run::default();
        let put = run.put(&KEY);
        let value = value_of(put, 0);
        let mut operations = OperationsBuilder::default();
        operations.push(&Asked::Get { key: &OTHER });
        operations.push(&Asked::Put { key: &KEY, value: &value, condition: Condition::Always });
        let operations: Operations = operations.finish();
        let write = Write::Keys(Transaction::of(operations));
        if is_refused {
            assert!(run.history.answer(put, Reply::Refused(Refusal::Overloaded)));
        } else {
            run.written(put, 1);
        }
        logged(&mut run, &vec![write; times]);
        let is_noticed = run.judged().contains("was executed");
        assert_eq!(is_noticed, is_refused || times == 2, "{}", run.judged());
    }
}
