//! One lane a shard: the operations of one connection, in the order in which they came, on their way to the store and back.
//!
//! Owns that order. Of each lane at most one command is under way; what comes meanwhile becomes the next one, as one. So a burst of
//! a thousand `SET`s is a few transactions, a `GET` behind a `SET` of its shard sees it wherever the shard's leader
//! is, and nothing overtakes anything though commands may be tried again. Operations that change nothing go as a read, unless a
//! write stands beside them: then they go through the log with it, which costs less than a round trip of their own.
//!
//! A command goes only if there is memory for its replies, as large as they may be. A read says how
//! many bytes of values it has memory for, by what values were like lately; those that the store
//! left out are asked for again, with more. While memory is short, reads go in small parts that fit
//! into what every connection may hold, so that small values are read in any case.
//!
//! Between lanes there is no order but that of the replies, which [`slots`](super::slots) keeps. When slots move, a key gets another
//! lane; the session sees to it that the one before is idle by then.

use std::collections::VecDeque;

use tidelock_core::command::{
    Consistency, Operation, OperationReplies, OperationRepliesReader, OperationReply, Operations,
    OperationsBuilder, Read, Refusal, Rejection, Reply, Request, Set, Transaction, Watch, Write,
};
use tidelock_core::limits;
use tidelock_core::types::ShardId;

/// A command is closed to further operations once it holds so many bytes: as an entry of the log is.
const GROUP_BYTES_CLOSE: usize = 256 << 10;

/// And once it holds so many operations: more would gain nothing, and delay what others sent.
const GROUP_OPERATIONS_MAX: usize = 4_096;

/// Reads beside writes may bring so many bytes, by what values were like lately: none is read again if they bring more than
/// [`limits::REPLIES_BYTES_CLOSE`].
const MIXED_READS_BYTES: usize = 1 << 20;

/// A read asks for values of so many bytes at most, and again for the rest: twice the largest
/// value.
const READ_VALUES_BYTES: usize = 2 * limits::VALUE_BYTES_MAX;

/// Replies that are there or expected take so many bytes at most before lanes wait whose replies
/// the client gets later.
const AHEAD_BYTES_MAX: usize = 8 << 20;

/// Replies are encoded until so many bytes wait to be sent.
pub const OUT_BYTES_CLOSE: usize = 256 << 10;

/// What values are assumed to take until it shows: reads of these size go beside writes only once
/// they turn out to be smaller.
const VALUE_BYTES_AT_FIRST: usize = 64 << 10;

/// What a reply takes besides a value: tag, version, expiry and length in the encoding of either
/// side.
const REPLY_BYTES: usize = 48;

/// While memory is short, a command has so many operations, and a read asks for values of so many
/// bytes. With its replies, encoded as well, it fits into what every connection may hold.
const SHORT_OPERATIONS: usize = 32;
const SHORT_VALUES_BYTES: usize = 4 << 10;

/// The lanes of one connection: up to [`limits::SHARDS_MAX`] by the number of their shard, others behind them as they come.
/// Numbers of shards have no bound.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Lanes that may have something to submit.
    touched: Vec<usize>,
    /// Bytes of operations that are not answered yet.
    queued_bytes: usize,
    /// Bytes that the replies of commands under way may take, encoded for the client as well.
    awaited_bytes: usize,
    /// Bytes that they probably take.
    expected_bytes: usize,
    /// Bytes of replies that are not taken yet.
    replied_bytes: usize,
    /// Of these, bytes of transactions, which are encoded as a whole.
    replied_together_bytes: usize,
    /// What a value that is read takes, by the largest of those seen lately.
    value_bytes: usize,
}

#[derive(Debug, Default)]
struct Lane {
    shard: ShardId,
    queue: VecDeque<Group>,
    under_way: Option<UnderWay>,
    done: VecDeque<Done>,
    is_touched: bool,
}

/// Operations that go as one command.
#[derive(Debug, Default)]
struct Group {
    operations: OperationsBuilder,
    reads: usize,
    /// Writes that are answered with what a key held before.
    returns: usize,
    /// Values that are to come from one state of the shard: they are read at once, or again.
    is_together: bool,
    /// The first value, or all that are to come together, did not fit into the last read.
    is_long: bool,
    /// A transaction of the client's own: nothing joins it.
    transaction: Option<Vec<Watch>>,
}

#[derive(Debug)]
struct UnderWay {
    operations: Operations,
    /// See [`Lanes::awaited_bytes`].
    awaited_bytes: usize,
    /// See [`Lanes::expected_bytes`].
    expected_bytes: usize,
    /// If it may be asked again: how many bytes of values it asked for.
    values_bytes_max: Option<usize>,
    is_together: bool,
    is_transaction: bool,
}

#[derive(Debug)]
enum Done {
    Replies {
        reader: OperationRepliesReader,
        left: usize,
        bytes: usize,
        is_transaction: bool,
    },
    Refused {
        refusal: Refusal,
        left: usize,
    },
    /// A watch of a transaction failed.
    Aborted,
}

/// What became of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// It was done, or could not be by the state of its key.
    Reply(OperationReply<'a>),
    /// It was refused together with others.
    Refused(Refusal),
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its operations were done: so many parts follow.
    Done,
    /// A watch failed.
    Aborted,
    /// Nothing is known to have been done.
    Refused(Refusal),
}

impl Lanes {
    /// Nothing under way.
    pub fn new() -> Lanes {
        Lanes {
            lanes: Vec::new(),
            touched: Vec::new(),
            queued_bytes: 0,
            awaited_bytes: 0,
            expected_bytes: 0,
            replied_bytes: 0,
            replied_together_bytes: 0,
            value_bytes: VALUE_BYTES_AT_FIRST,
        }
    }

    /// Adds an operation behind those of its shard. Returns its lane.
    pub fn push(&mut self, shard: ShardId, operation: &Operation<'_>) -> u32 {
        self.push_one_of(shard, operation, false)
    }

    /// The same for one of several operations that are to be done at one instant in each shard.
    pub fn push_together(&mut self, shard: ShardId, operation: &Operation<'_>) -> u32 {
        self.push_one_of(shard, operation, true)
    }

    fn push_one_of(&mut self, shard: ShardId, operation: &Operation<'_>, is_together: bool) -> u32 {
        let value_bytes = self.value_bytes;
        let index = self.touch(shard);
        let lane = &mut self.lanes[index];
        let is_read = operation.is_read();
        if lane.queue.back().is_none_or(|group| !group.takes(is_read, value_bytes)) {
            lane.queue.push_back(Group::default());
        }
        let group = lane.queue.back_mut().expect("invariant: a group was pushed just now");
        self.queued_bytes += group.push(operation);
        group.is_together |= is_together;
        index as u32
    }

    /// Adds a transaction behind the operations of its shard. Returns its lane.
    pub fn push_transaction(
        &mut self,
        shard: ShardId,
        operations: OperationsBuilder,
        watches: Vec<Watch>,
    ) -> u32 {
        let index = self.touch(shard);
        self.queued_bytes += operations.encoded_bytes();
        let reads = operations.iter().filter(Operation::is_read).count();
        let returns = operations.iter().filter(returns_value).count();
        let transaction = Some(watches);
        let group = Group { operations, reads, returns, transaction, ..Group::default() };
        self.lanes[index].queue.push_back(group);
        index as u32
    }

    /// Hands the next command of each lane that has one, and none under way, to `submit`, with the
    /// number of the lane, if `has_room` grants the memory for its replies. A lane without memory
    /// is tried again with the next call, or its command is refused by [`Lanes::refuse_next`].
    ///
    /// `first` is the lane whose reply the client gets next, if it takes any. It is asked for
    /// first, and `has_room` is told of it: the replies of other lanes are of no use without its.
    pub fn submit(
        &mut self,
        (first, consistency): (Option<u32>, Consistency),
        mut has_room: impl FnMut(usize, bool) -> bool,
        mut submit: impl FnMut(Request, u64),
    ) {
        let mut touched = std::mem::take(&mut self.touched);
        let first = first.map(|lane| lane as usize);
        if let Some(position) = touched.iter().position(|index| Some(*index) == first) {
            touched.swap(0, position);
        }
        touched.retain(|&index| {
            let lane = &mut self.lanes[index];
            lane.is_touched = false;
            if lane.under_way.is_some() || lane.queue.is_empty() {
                return false;
            }
            let is_first = first == Some(index);
            let is_ahead = self.replied_bytes + self.expected_bytes > AHEAD_BYTES_MAX;
            let next = match is_first {
                true => lane.next(self.value_bytes, |bytes| has_room(bytes, true)),
                false if is_ahead => None,
                false => lane.next_ahead(self.value_bytes, |bytes| has_room(bytes, false)),
            };
            let Some((group, values_bytes_max)) = next else {
                lane.is_touched = true;
                return true;
            };
            let expected_bytes = group.expected_bytes(self.value_bytes);
            let shard = lane.shard;
            let (request, under_way) =
                group.into_request(shard, consistency, (values_bytes_max, expected_bytes));
            self.awaited_bytes += under_way.awaited_bytes;
            self.expected_bytes += expected_bytes;
            lane.under_way = Some(under_way);
            submit(request, index as u64);
            false
        });
        self.touched = touched;
    }

    /// Refuses the next command of a lane, because there was no memory for its replies in time.
    /// Returns whether there was one.
    pub fn refuse_next(&mut self, lane: u32) -> bool {
        let lane = &mut self.lanes[lane as usize];
        if lane.under_way.is_some() {
            return false;
        }
        let Some(group) = lane.queue.pop_front() else { return false };
        self.queued_bytes -= group.operations.encoded_bytes();
        let left = group.operations.len();
        lane.done.push_back(Done::Refused { refusal: Refusal::Overloaded, left });
        true
    }

    /// Takes the reply to the command of a lane.
    pub fn complete(&mut self, lane: u64, reply: Reply) {
        let index = lane as usize;
        self.mark(index);
        let lane = &mut self.lanes[index];
        let under_way = lane.under_way.take().expect("invariant: a reply belongs to a command under way");
        let count = under_way.operations.len();
        self.queued_bytes -= under_way.operations.encoded_bytes();
        self.awaited_bytes -= under_way.awaited_bytes;
        self.expected_bytes -= under_way.expected_bytes;
        match reply {
            Reply::Operations(replies) if replies.len() == count => {
                let bytes = replies.encoded_bytes();
                let fitting = match under_way.values_bytes_max {
                    None => count,
                    Some(max) => under_way.whole(fitting(&replies, max), max),
                };
                if fitting > 0 || count == 0 || under_way.is_transaction {
                    let is_transaction = under_way.is_transaction;
                    self.replied_bytes += bytes;
                    self.replied_together_bytes += if is_transaction { bytes } else { 0 };
                    let reader = replies.into_reader();
                    lane.done.push_back(Done::Replies { reader, left: fitting, bytes, is_transaction });
                }
                if fitting < count {
                    self.ask_rest(index, &under_way, fitting);
                }
            }
            Reply::ConditionFailed { .. } if under_way.is_transaction => lane.done.push_back(Done::Aborted),
            // Slots moved: what was of one shard is not any more, and nothing was done. Parts of it may still be.
            Reply::Refused(Refusal::CrossShard) if count > 1 && !under_way.is_transaction => {
                self.split(index, &under_way.operations);
            }
            Reply::Refused(refusal) => lane.done.push_back(Done::Refused { refusal, left: count }),
            _ => {
                let refusal = Refusal::Invalid("the store answered something else");
                lane.done.push_back(Done::Refused { refusal, left: count });
            }
        }
    }

    /// Puts operations back in front of their lane as two commands, in order. Those of one shard are soon together again: what
    /// comes later goes to the lanes that the new map says.
    fn split(&mut self, index: usize, operations: &Operations) {
        let mut halves = [Group::default(), Group::default()];
        for (position, operation) in operations.iter().enumerate() {
            let group = &mut halves[usize::from(position >= operations.len() / 2)];
            self.queued_bytes += group.push(&operation);
        }
        for group in halves.into_iter().rev() {
            self.lanes[index].queue.push_front(group);
        }
    }

    /// Puts what a read left out for want of room in front of its lane.
    fn ask_rest(&mut self, index: usize, under_way: &UnderWay, from: usize) {
        let is_together = under_way.is_together;
        let mut rest = Group { is_together, is_long: from == 0, ..Group::default() };
        for operation in under_way.operations.iter().skip(from) {
            self.queued_bytes += rest.push(&operation);
        }
        self.lanes[index].queue.push_front(rest);
    }

    /// Takes what became of the next operation of a lane, if that is known.
    pub fn take<R>(&mut self, lane: u32, use_it: impl FnOnce(Part<'_>) -> R) -> Option<R> {
        let lane = &mut self.lanes[lane as usize];
        let result = match lane.done.front_mut()? {
            Done::Replies { reader, left, bytes, is_transaction } => {
                let reply = reader.next_reply()?;
                if let OperationReply::Value { value, .. } = reply {
                    // Down slowly, so that a large value among small ones is not forgotten at once.
                    self.value_bytes = value.len().max(self.value_bytes - self.value_bytes / 8);
                }
                let result = use_it(Part::Reply(reply));
                *left -= 1;
                if *left == 0 {
                    self.replied_bytes -= *bytes;
                    self.replied_together_bytes -= if *is_transaction { *bytes } else { 0 };
                    lane.done.pop_front();
                }
                result
            }
            Done::Refused { refusal, left } => {
                let result = use_it(Part::Refused(*refusal));
                *left = left.saturating_sub(1);
                if *left == 0 {
                    lane.done.pop_front();
                }
                result
            }
            Done::Aborted => unreachable!("invariant: only a transaction is aborted"),
        };
        Some(result)
    }

    /// Takes what became of a transaction, if that is known. If it was done, its operations are taken next.
    pub fn take_verdict(&mut self, lane: u32) -> Option<Verdict> {
        let lane = &mut self.lanes[lane as usize];
        let verdict = match lane.done.front()? {
            Done::Replies { left: 0, bytes, .. } => {
                self.replied_bytes -= *bytes;
                self.replied_together_bytes -= *bytes;
                Verdict::Done
            }
            Done::Replies { .. } => return Some(Verdict::Done),
            Done::Aborted => Verdict::Aborted,
            Done::Refused { refusal, .. } => Verdict::Refused(*refusal),
        };
        lane.done.pop_front();
        Some(verdict)
    }

    /// Whether every operation is answered, taken or not.
    pub fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.queue.is_empty() && lane.under_way.is_none())
    }

    /// Bytes of operations and replies that are held, and of replies that may come.
    pub fn held_bytes(&self) -> usize {
        self.queued_bytes + self.awaited_bytes + self.replied_bytes
    }

    /// The same without what a command may bring and probably does not.
    pub fn expected_held_bytes(&self) -> usize {
        self.queued_bytes + self.expected_bytes + self.replied_bytes
    }

    /// Bytes that the replies that are there take once they are encoded, as many as are encoded at
    /// a time.
    pub fn encoding_bytes(&self) -> usize {
        let apart = self.replied_bytes - self.replied_together_bytes;
        self.replied_together_bytes + apart.min(ENCODED_BYTES_MAX)
    }

    fn touch(&mut self, shard: ShardId) -> usize {
        let index = self.index(shard);
        self.lanes[index].shard = shard;
        self.mark(index);
        index
    }

    fn index(&mut self, shard: ShardId) -> usize {
        const NUMBERED: usize = limits::SHARDS_MAX as usize + 1;
        let is_numbered = shard.0 <= limits::SHARDS_MAX;
        if self.lanes.len() < NUMBERED && !is_numbered {
            self.lanes.resize_with(NUMBERED, Lane::default);
        }
        let index = if is_numbered {
            shard.0 as usize
        } else {
            let others = &self.lanes[NUMBERED..];
            NUMBERED + others.iter().position(|lane| lane.shard == shard).unwrap_or(others.len())
        };
        if index >= self.lanes.len() {
            self.lanes.resize_with(index + 1, Lane::default);
        }
        index
    }

    fn mark(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        if !lane.is_touched {
            lane.is_touched = true;
            self.touched.push(index);
        }
    }
}

/// What is encoded at a time: up to the bound, and one value that crosses it.
const ENCODED_BYTES_MAX: usize = OUT_BYTES_CLOSE + limits::VALUE_BYTES_MAX;

impl Lane {
    /// The next command for whose replies there is room, and how many bytes of values it may read.
    fn next_ahead(
        &mut self,
        value_bytes: usize,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Option<(Group, usize)> {
        let group = self.queue.front()?;
        let values_bytes_max = group.values_bytes_max(value_bytes);
        let is_granted = has_room(group.awaited_bytes(values_bytes_max));
        if is_granted { self.queue.pop_front().map(|group| (group, values_bytes_max)) } else { None }
    }

    /// The same; if there is no room, as much of it as memory that is short allows.
    fn next(
        &mut self,
        value_bytes: usize,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Option<(Group, usize)> {
        if let Some(next) = self.next_ahead(value_bytes, &mut has_room) {
            return Some(next);
        }
        let group = self.queue.front()?;
        if group.transaction.is_some() || group.is_long {
            return None;
        }
        if group.is_together {
            let is_granted = group.is_read() && has_room(group.awaited_bytes(SHORT_VALUES_BYTES));
            return if is_granted {
                self.queue.pop_front().map(|group| (group, SHORT_VALUES_BYTES))
            } else {
                None
            };
        }
        let group = self.queue.pop_front()?;
        let (head, rest) = group.split_short();
        if let Some(rest) = rest {
            self.queue.push_front(rest);
        }
        if has_room(head.awaited_bytes(SHORT_VALUES_BYTES)) {
            return Some((head, SHORT_VALUES_BYTES));
        }
        self.queue.push_front(head);
        None
    }
}

impl UnderWay {
    /// How many of its replies count, of which so many are whole. Those that are to come from one
    /// state of the shard count only together, unless they are more than one command may bring.
    fn whole(&self, fitting: usize, values_bytes_max: usize) -> usize {
        let is_again = self.is_together
            && fitting < self.operations.len()
            && values_bytes_max < limits::REPLIES_BYTES_CLOSE;
        if is_again { 0 } else { fitting }
    }
}

impl Group {
    /// Adds an operation. Returns how many bytes that takes.
    fn push(&mut self, operation: &Operation<'_>) -> usize {
        let before = self.operations.encoded_bytes();
        self.operations.push(operation);
        self.reads += usize::from(operation.is_read());
        self.returns += usize::from(returns_value(operation));
        self.operations.encoded_bytes() - before
    }

    fn is_read(&self) -> bool {
        self.transaction.is_none() && self.reads == self.operations.len()
    }

    /// How many bytes of values it asks for, if it is a read: twice what is to be expected.
    fn values_bytes_max(&self, value_bytes: usize) -> usize {
        let max = if self.is_together { limits::REPLIES_BYTES_CLOSE } else { READ_VALUES_BYTES };
        if self.is_long { max } else { (self.reads * value_bytes * 2).clamp(SHORT_VALUES_BYTES, max) }
    }

    /// The bytes that its replies probably take.
    fn expected_bytes(&self, value_bytes: usize) -> usize {
        let values = (self.reads + self.returns) * value_bytes;
        let is_in_parts = self.is_read() && !self.is_together;
        let values_max = if is_in_parts { READ_VALUES_BYTES } else { limits::REPLIES_BYTES_CLOSE };
        values.min(values_max) + self.operations.len() * REPLY_BYTES
    }

    /// The bytes that its replies take at most, encoded for the client as well, if it reads values
    /// of at most `values_bytes_max` bytes.
    fn awaited_bytes(&self, values_bytes_max: usize) -> usize {
        let values = |count: usize| (count * limits::VALUE_BYTES_MAX).min(limits::REPLIES_BYTES_CLOSE);
        let replied = if self.is_read() {
            values(self.reads).min(values_bytes_max)
        } else {
            values(self.reads) + values(self.returns)
        };
        let encoded = if self.transaction.is_some() { replied } else { replied.min(ENCODED_BYTES_MAX) };
        replied + encoded + self.operations.len() * REPLY_BYTES
    }

    /// Its first operations, all reads or all writes, and the rest.
    fn split_short(self) -> (Group, Option<Group>) {
        let operations = self.operations.finish();
        let (mut head, mut rest) = (Group::default(), Group::default());
        for operation in operations.iter() {
            let is_like = head.operations.is_empty() || operation.is_read() == head.is_read();
            let stays = rest.operations.is_empty() && is_like && head.operations.len() < SHORT_OPERATIONS;
            let group = if stays { &mut head } else { &mut rest };
            group.push(&operation);
        }
        let rest = (!rest.operations.is_empty()).then_some(rest);
        (head, rest)
    }

    /// Whether another operation may join.
    fn takes(&self, is_read: bool, value_bytes: usize) -> bool {
        let stays_pure =
            is_read == (self.reads > 0) && (self.reads == 0 || self.reads == self.operations.len());
        let reads = self.reads + usize::from(is_read);
        self.transaction.is_none()
            && self.operations.encoded_bytes() < GROUP_BYTES_CLOSE
            && self.operations.len() < GROUP_OPERATIONS_MAX
            && (stays_pure || reads * value_bytes <= MIXED_READS_BYTES)
    }

    fn into_request(
        self,
        shard: ShardId,
        consistency: Consistency,
        (bytes_max, expected_bytes): (usize, usize),
    ) -> (Request, UnderWay) {
        let is_read = self.is_read();
        let (awaited_bytes, is_transaction) = (self.awaited_bytes(bytes_max), self.transaction.is_some());
        let operations = self.operations.finish();
        let values_bytes_max = is_read.then_some(bytes_max);
        let under_way = UnderWay {
            operations: operations.clone(),
            awaited_bytes,
            expected_bytes,
            values_bytes_max,
            is_together: self.is_together,
            is_transaction,
        };
        let request = if is_read {
            Request::Read { read: Read::Operations { operations, bytes_max }, consistency }
        } else {
            let watches = self.transaction.unwrap_or_default();
            Request::Write(Write::Transaction(Transaction { shard, watches, operations }))
        };
        (request, under_way)
    }
}

/// Whether an operation that writes is answered with a value.
fn returns_value(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Take { .. } | Operation::Set(Set { previous: true, .. }))
}

/// How many replies of a read are whole. What was left out for want of room, and all behind it, is asked for again.
fn fitting(replies: &OperationReplies, values_bytes_max: usize) -> usize {
    // A value is left out only if it is larger than what was left.
    if replies.encoded_bytes() + limits::VALUE_BYTES_MAX < values_bytes_max {
        return replies.len();
    }
    let left_out = |reply: OperationReply<'_>| reply == OperationReply::Rejected(Rejection::RepliesTooLong);
    replies.iter().position(left_out).unwrap_or(replies.len())
}

#[cfg(test)]
mod tests;
