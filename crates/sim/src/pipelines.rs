//! Clients that pipeline: each sends many commands on one connection before it has their replies.
//!
//! Owns what such a client sends, what a connection has sent and received, and how results become
//! outcomes in the history. The node's side is the core's [`Pipeline`], as in the server; the
//! [`world`](crate::world) moves its requests and replies. Each operation is an entry of the
//! history, so the checkers of plain keys judge it; `checkers::pipelines` judges what only the
//! order of the connection shows.

use std::collections::VecDeque;

use bytes::Bytes;
use tidelock_core::clients::operation_queues::{OperationResult, TransactionOutcome};
use tidelock_core::clients::pipeline::{
    CommandError, Executed, HeldBytes, Pipeline, ReplyForms, ReplySink, TransactionResults,
};
use tidelock_core::command::{
    Condition, Consistency, Operation, OperationReply, Read, ReadReply, Refusal, Reply, Request, StoredValue,
    Write, WriteReply,
};
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::slots::slot_of;
use tidelock_core::types::{ShardId, Token, Version};

use crate::faults::choose;
use crate::history::{History, Incarnation, VALUE_BYTES_MIN, value_of};

/// Most commands that a client sends at a time.
const BURST_COMMANDS_MAX: usize = 200;

/// Most keys of one command.
const COMMAND_KEYS_MAX: usize = 24;

/// Longest of most values.
const SHORT_VALUE_BYTES: usize = 100;

/// Most operations of one transaction.
const TRANSACTION_OPERATIONS_MAX: usize = 5;

/// A command as the client sends it.
#[derive(Clone, Debug)]
pub enum Command {
    /// One operation.
    One(Step),
    /// Reads of keys of any shards. Those of one shard are read at one instant.
    ReadMany(Vec<Bytes>),
    /// Puts of keys of one shard, all or none.
    PutMany(Vec<Step>),
    /// Watches keys until the next transaction ends.
    Watch(Vec<Bytes>),
    /// Opens a transaction.
    Begin,
    /// Executes the open transaction.
    Execute,
    /// Discards the open transaction.
    Discard,
}

/// An operation as the client sends it.
#[derive(Clone, Debug)]
pub enum Step {
    /// Reads a key.
    Get(Bytes),
    /// Puts a value of this length.
    Put(Bytes, Condition, usize),
    /// Deletes a key.
    Delete(Bytes),
}

/// What one connection has sent and received, in order.
#[derive(Clone, Debug, Default)]
pub struct ConnectionRecord {
    /// The commands that the node took.
    pub commands: Vec<TakenCommand>,
    /// The replies that the client received.
    pub replies: Vec<ReceivedReply>,
}

/// A command that the node took.
#[derive(Clone, Debug, Default)]
pub struct TakenCommand {
    /// Its operations. Those of a transaction belong to the command that executes it.
    pub operations: Vec<Token>,
    /// Whether its operations are executed as one transaction, or not at all.
    pub is_transaction: bool,
    /// Keys that must not have changed, each with the number of the command that watched it.
    pub watches: Vec<(Bytes, usize)>,
}

/// A reply that the client received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedReply {
    /// The command that it answers, by position.
    pub command: usize,
    /// Number of operations that were executed or rejected by the state of their keys; for a
    /// command without operations, 0.
    pub executed: usize,
    /// Operations with this token or a later one were sent after this reply.
    pub next_token: Token,
}

/// What the simulator remembers of a reply until its results are known.
#[derive(Debug)]
pub struct Recorded;

/// A command whose reply is known: its position.
#[derive(Debug)]
pub struct Known(usize);

/// The operations of a command, and the results so far.
#[derive(Debug)]
pub struct Gathered {
    command: usize,
    operations: VecDeque<Token>,
    outcomes: Vec<(Token, Reply)>,
}

/// An operation of a transaction.
#[derive(Debug)]
pub struct Item(Token);

impl HeldBytes for Known {
    fn held_bytes(&self) -> usize {
        0
    }
}

impl HeldBytes for Gathered {
    fn held_bytes(&self) -> usize {
        0
    }
}

impl HeldBytes for Item {
    fn held_bytes(&self) -> usize {
        size_of::<Item>()
    }
}

impl ReplyForms for Recorded {
    type Ready = Known;
    type One = (usize, Token);
    type Many = Gathered;
    type Item = Item;
}

/// The connection of a client to a node.
#[derive(Debug)]
pub struct Connection {
    /// The process to which it is open.
    pub at: Incarnation,
    /// The node's side.
    pub pipeline: Pipeline<Recorded>,
    /// Commands that the client has sent and the node has not taken yet.
    sent: VecDeque<Command>,
    /// Most replies that the node owes before it takes no more commands.
    owed_max: usize,
    record: ConnectionRecord,
    /// The keys that are watched, each with the command that did it.
    watched: Vec<(Bytes, usize)>,
    /// The operations of the open transaction.
    queued: Vec<Token>,
    /// Commands that execute a transaction and are not answered.
    executing: VecDeque<usize>,
    /// Commands that watch keys and are not answered.
    watching: VecDeque<usize>,
}

/// What a node uses to take a command.
struct Node<'a> {
    shard_of: &'a dyn Fn(&[u8]) -> ShardId,
    history: &'a mut History,
}

/// Receives replies into the history and the connection's record.
struct Recorder<'a> {
    history: &'a mut History,
    record: &'a mut ConnectionRecord,
    executing: &'a mut VecDeque<usize>,
    watching: &'a mut VecDeque<usize>,
}

impl Recorder<'_> {
    fn received(&mut self, command: usize, executed: usize) {
        let next_token = self.history.next_token();
        self.record.replies.push(ReceivedReply { command, executed, next_token });
    }
}

impl ReplySink<Recorded> for Recorder<'_> {
    fn ready(&mut self, ready: &Known) {
        self.received(ready.0, 0);
    }

    fn one(&mut self, form: &(usize, Token), result: OperationResult<'_>) {
        let executed = usize::from(is_executed(&result));
        let reply = reply_of(self.history, form.1, result);
        self.history.answer(form.1, reply);
        self.received(form.0, executed);
    }

    fn gather(&mut self, form: &mut Gathered, result: OperationResult<'_>) {
        let token = form.operations.pop_front().expect("invariant: one result for each operation");
        form.outcomes.push((token, reply_of(self.history, token, result)));
    }

    fn many(&mut self, form: &Gathered) {
        let executed = form.outcomes.iter().filter(|(_, reply)| !matches!(reply, Reply::Refused(_))).count();
        for (token, reply) in &form.outcomes {
            self.history.answer(*token, reply.clone());
        }
        self.received(form.command, executed);
    }

    fn transaction(
        &mut self,
        items: &[Item],
        outcome: TransactionOutcome,
        mut results: TransactionResults<'_>,
    ) {
        let command = self.executing.pop_front().expect("invariant: a transaction is in progress");
        for Item(token) in items {
            let reply = match &outcome {
                TransactionOutcome::Done => results.next(|part| reply_of(self.history, *token, part)),
                TransactionOutcome::Refused(refusal) => Reply::Refused(refusal.clone()),
                TransactionOutcome::Aborted => {
                    Reply::Write(WriteReply::ConditionFailed { current: Version::ABSENT })
                }
            };
            let is_read = self.history.operation(*token).is_some_and(|operation| operation.write().is_none());
            if is_read && outcome == TransactionOutcome::Aborted {
                self.history.abandon(*token);
            } else {
                self.history.answer(*token, reply);
            }
        }
        self.received(command, if outcome == TransactionOutcome::Done { items.len() } else { 0 });
    }

    fn watched(&mut self, _: Result<(), Refusal>) {
        let command = self.watching.pop_front().expect("invariant: a watch is in progress");
        self.received(command, 0);
    }
}

fn is_executed(result: &OperationResult<'_>) -> bool {
    matches!(result, OperationResult::Reply(_))
}

/// The result of an operation, as the history records it.
fn reply_of(history: &History, token: Token, result: OperationResult<'_>) -> Reply {
    let is_write = history.operation(token).is_some_and(|operation| operation.write().is_some());
    match result {
        OperationResult::Refused(refusal) => Reply::Refused(refusal),
        OperationResult::Reply(reply) if is_write => Reply::Write(WriteReply::of(&reply)),
        OperationResult::Reply(OperationReply::Value { version, expires, value }) => {
            let value = Bytes::copy_from_slice(value);
            Reply::Read(ReadReply::Value(Some(StoredValue { version, value, expires, lease: None })))
        }
        OperationResult::Reply(OperationReply::Absent) => Reply::Read(ReadReply::Value(None)),
        // The checker of plain keys refuses this as the answer to a read.
        OperationResult::Reply(reply) => Reply::Write(WriteReply::of(&reply)),
    }
}

impl Connection {
    /// A new connection to a process with this slot map.
    pub fn new(at: Incarnation, pipeline: Pipeline<Recorded>, owed_max: usize) -> Connection {
        Connection {
            at,
            pipeline,
            sent: VecDeque::new(),
            owed_max,
            record: ConnectionRecord::default(),
            watched: Vec::new(),
            queued: Vec::new(),
            executing: VecDeque::new(),
            watching: VecDeque::new(),
        }
    }

    /// The client sends commands.
    pub fn send(&mut self, commands: Vec<Command>) {
        self.sent.extend(commands);
    }

    /// Number of commands that the node has not taken.
    pub fn unread(&self) -> usize {
        self.sent.len()
    }

    /// The connection ends; operations without a reply stay unanswered.
    pub fn end(self, history: &mut History) -> ConnectionRecord {
        let taken = self.record.commands.iter().flat_map(|command| &command.operations);
        taken.chain(&self.queued).for_each(|token| history.abandon(*token));
        self.record
    }

    /// The client receives the replies that are known.
    pub fn receive(&mut self, history: &mut History) {
        let Connection { pipeline, record, executing, watching, .. } = self;
        let mut recorder = Recorder { history, record, executing, watching };
        while pipeline.settle_next(&mut recorder) {}
    }

    /// The node takes commands, as far as it may.
    pub fn take_commands(&mut self, slots: &SlotMap, history: &mut History) {
        let shard_of = |key: &[u8]| slots.shard_of(slot_of(key));
        if !self.pipeline.follow_slot_map(slots.version, shard_of) {
            return;
        }
        while self.pipeline.owed() < self.owed_max
            && let Some(command) = self.sent.front()
        {
            if matches!(command, Command::Execute) && !self.pipeline.knows_watches() {
                return;
            }
            let command = self.sent.pop_front().expect("invariant: there is one");
            let position = self.record.commands.len();
            self.record.commands.push(TakenCommand::default());
            let mut node = Node { shard_of: &shard_of, history };
            if let Err(error) = self.take(position, command, &mut node) {
                self.refuse(position, error, history);
            }
        }
    }

    fn take(&mut self, position: usize, command: Command, node: &mut Node<'_>) -> Result<(), CommandError> {
        match command {
            Command::One(step) => self.take_one(position, &step, node),
            Command::ReadMany(keys) => {
                let steps: Vec<Step> = keys.into_iter().map(Step::Get).collect();
                self.take_many(position, &steps, node)
            }
            Command::PutMany(steps) => {
                self.record.commands[position].is_transaction = true;
                self.take_many(position, &steps, node)
            }
            Command::Watch(keys) => {
                self.pipeline.watch(keys.iter().map(|key| &key[..]), node.shard_of)?;
                self.watched.extend(keys.into_iter().map(|key| (key, position)));
                self.watching.push_back(position);
                Ok(())
            }
            Command::Begin => {
                self.pipeline.begin_transaction()?;
                self.reply_without_store(position, node.history);
                Ok(())
            }
            Command::Execute => self.execute(position, node.history),
            Command::Discard => {
                self.pipeline.discard_transaction()?;
                self.watched.clear();
                self.queued.drain(..).for_each(|token| node.history.abandon(token));
                self.reply_without_store(position, node.history);
                Ok(())
            }
        }
    }

    fn take_one(&mut self, position: usize, step: &Step, node: &mut Node<'_>) -> Result<(), CommandError> {
        let (token, value) = step.invoke(self.at, node.history);
        let operation = step.operation(&value);
        if self.pipeline.is_in_transaction() {
            self.queued.push(token);
            self.pipeline.queue([operation].into_iter(), node.shard_of, Item(token))?;
            self.reply_without_store(position, node.history);
        } else {
            self.record.commands[position].operations.push(token);
            self.pipeline.push_one(&operation, node.shard_of, (position, token))?;
        }
        Ok(())
    }

    fn take_many(
        &mut self,
        position: usize,
        steps: &[Step],
        node: &mut Node<'_>,
    ) -> Result<(), CommandError> {
        let invoked: Vec<(Token, Bytes)> =
            steps.iter().map(|step| step.invoke(self.at, node.history)).collect();
        let operations = steps.iter().zip(&invoked).map(|(step, (_, value))| step.operation(value));
        let tokens: Vec<Token> = invoked.iter().map(|(token, _)| *token).collect();
        let form = Gathered { command: position, operations: tokens.clone().into(), outcomes: Vec::new() };
        let command = &mut self.record.commands[position];
        command.operations = tokens;
        if command.is_transaction {
            let operations: Vec<Operation<'_>> = operations.collect();
            self.pipeline.push_transaction(operations.into_iter(), node.shard_of, form)
        } else {
            self.pipeline.push_many(operations, node.shard_of, form)
        }
    }

    fn execute(&mut self, position: usize, history: &mut History) -> Result<(), CommandError> {
        let command = &mut self.record.commands[position];
        command.is_transaction = true;
        command.operations = std::mem::take(&mut self.queued);
        command.watches = std::mem::take(&mut self.watched);
        match self.pipeline.execute_transaction()? {
            Executed::Queued => self.executing.push_back(position),
            Executed::Empty(_) => self.reply_without_store(position, history),
        }
        Ok(())
    }

    /// Replies with an error, as the server does; nothing of the command is executed.
    fn refuse(&mut self, position: usize, error: CommandError, history: &mut History) {
        let refusal = match error {
            CommandError::Invalid(refusal) => refusal.into(),
            _ => Refusal::CrossShard,
        };
        for token in self.record.commands[position].operations.clone() {
            history.answer(token, Reply::Refused(refusal.clone()));
        }
        self.pipeline.fail_transaction();
        self.reply_without_store(position, history);
    }

    fn reply_without_store(&mut self, position: usize, history: &mut History) {
        if self.pipeline.is_settled() {
            let Connection { record, executing, watching, .. } = self;
            Recorder { history, record, executing, watching }.ready(&Known(position));
        } else {
            self.pipeline.push_ready(Known(position));
        }
    }
}

impl Step {
    /// Enters the operation into the history. Returns its token and the value that it puts.
    fn invoke(&self, at: Incarnation, history: &mut History) -> (Token, Bytes) {
        let value = match self {
            Step::Put(_, _, length) => value_of(history.next_token(), *length),
            Step::Get(_) | Step::Delete(_) => Bytes::new(),
        };
        let request = match self {
            Step::Get(key) => {
                let read = Read::Get { key: key.clone() };
                Request::Read { read, consistency: Consistency::Linearizable }
            }
            Step::Put(..) | Step::Delete(_) => Request::Write(Write::of(&self.operation(&value))),
        };
        (history.invoke(at, request, false), value)
    }

    fn operation<'a>(&'a self, value: &'a [u8]) -> Operation<'a> {
        match self {
            Step::Get(key) => Operation::Get { key },
            Step::Put(key, condition, _) => Operation::Put { key, value, condition: *condition },
            Step::Delete(key) => Operation::Delete { key, condition: Condition::Always },
        }
    }
}

/// Generates the commands of one client.
#[derive(Debug)]
pub struct Generator {
    /// The client's keys, by the founding shard.
    keys: Vec<Vec<Bytes>>,
    value_bytes_max: usize,
}

impl Generator {
    /// A client that uses some of `keys`, and values of up to `value_bytes_max` bytes.
    pub fn new(
        keys: &[Bytes],
        shard_of: impl Fn(&[u8]) -> ShardId,
        value_bytes_max: usize,
        random: &mut fastrand::Rng,
    ) -> Generator {
        let mut by_shard: std::collections::BTreeMap<ShardId, Vec<Bytes>> = Default::default();
        for key in keys {
            by_shard.entry(shard_of(key)).or_default().push(key.clone());
        }
        let mut keys: Vec<Vec<Bytes>> = by_shard.into_values().collect();
        keys.iter_mut().for_each(|keys| keys.truncate(random.usize(1..=3)));
        Generator { keys, value_bytes_max }
    }

    /// The commands that the client sends next.
    pub fn burst(&self, random: &mut fastrand::Rng) -> Vec<Command> {
        let most = *choose(random, &[5, 5, 5, 5, 5, 30, 30, BURST_COMMANDS_MAX]);
        let count = random.usize(1..=most);
        let mut commands = Vec::new();
        while commands.len() < count {
            match random.u8(0..32) {
                0 | 1 => self.transaction(random, &mut commands),
                2 => {
                    let keys = random.usize(1..=COMMAND_KEYS_MAX);
                    commands.push(Command::ReadMany((0..keys).map(|_| self.any_key(random)).collect()));
                }
                3 => {
                    let shard = random.usize(0..self.keys.len());
                    let count = random.usize(1..=TRANSACTION_OPERATIONS_MAX);
                    let put = |random: &mut fastrand::Rng| {
                        Step::Put(self.key(shard, random), Condition::Always, self.length(random))
                    };
                    commands.push(Command::PutMany((0..count).map(|_| put(random)).collect()));
                }
                _ => {
                    let shard = random.usize(0..self.keys.len());
                    commands.push(Command::One(self.step(shard, random)));
                }
            }
        }
        commands
    }

    fn transaction(&self, random: &mut fastrand::Rng, commands: &mut Vec<Command>) {
        let shard = random.usize(0..self.keys.len());
        if random.bool() {
            let count = random.usize(1..=2);
            commands.push(Command::Watch((0..count).map(|_| self.key(shard, random)).collect()));
        }
        commands.push(Command::Begin);
        for _ in 0..random.usize(0..=TRANSACTION_OPERATIONS_MAX) {
            // Now and then a key of another shard, which spoils the transaction.
            let shard = if random.u8(0..32) == 0 { random.usize(0..self.keys.len()) } else { shard };
            commands.push(Command::One(self.step(shard, random)));
        }
        commands.push(if random.u8(0..10) == 0 { Command::Discard } else { Command::Execute });
    }

    fn step(&self, shard: usize, random: &mut fastrand::Rng) -> Step {
        let key = self.key(shard, random);
        match random.u8(0..16) {
            0 => Step::Delete(key),
            1 => Step::Put(key, Condition::Exists, self.length(random)),
            2 => Step::Put(key, Condition::Version(Version::ABSENT), self.length(random)),
            3..=7 => Step::Put(key, Condition::Always, self.length(random)),
            _ => Step::Get(key),
        }
    }

    fn any_key(&self, random: &mut fastrand::Rng) -> Bytes {
        let shard = random.usize(0..self.keys.len());
        self.key(shard, random)
    }

    fn key(&self, shard: usize, random: &mut fastrand::Rng) -> Bytes {
        choose(random, &self.keys[shard]).clone()
    }

    /// The length of a value. Few are long: the history holds all of them several times.
    fn length(&self, random: &mut fastrand::Rng) -> usize {
        let is_long = random.u8(0..16) == 0;
        let bytes_max =
            if is_long { self.value_bytes_max } else { self.value_bytes_max.min(SHORT_VALUE_BYTES) };
        random.usize(VALUE_BYTES_MIN..=bytes_max.max(VALUE_BYTES_MIN))
    }
}
