//! One lane a shard: the operations of one connection, in the order in which they came, on their way to the store and back.
//!
//! Owns that order. Of each lane at most one command is under way; what comes meanwhile becomes the next one, as one. So a burst of
//! a thousand `SET`s is a few transactions, a `GET` behind a `SET` of its shard sees it wherever the shard's leader
//! is, and nothing overtakes anything though commands may be tried again. Operations that change nothing go as a read, unless a
//! write stands beside them: then they go through the log with it, which costs less than a round trip of their own.
//!
//! Between lanes there is no order but that of the replies, which [`slots`](super::slots) keeps. When slots move, a key gets another
//! lane; the session sees to it that the one before is idle by then.

use std::collections::VecDeque;

use tidelock_core::command::{
    Consistency, Operation, OperationReplies, OperationRepliesReader, OperationReply, Operations,
    OperationsBuilder, Read, Refusal, Rejection, Reply, Request, Transaction, Watch, Write,
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

/// The lanes of one connection: up to [`limits::SHARDS_MAX`] by the number of their shard, others behind them as they come.
/// Numbers of shards have no bound.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Lanes that may have something to submit.
    touched: Vec<usize>,
    /// Bytes of operations that are not answered yet.
    queued_bytes: usize,
    /// Bytes of replies that are not taken yet.
    replied_bytes: usize,
    /// What a value that is read takes, by the largest of those seen lately.
    value_bytes: usize,
    /// Reads whose values are still to come.
    reads: usize,
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
    /// A transaction of the client's own: nothing joins it.
    transaction: Option<Vec<Watch>>,
}

#[derive(Debug)]
struct UnderWay {
    operations: Operations,
    reads: usize,
    /// Whether it may be asked again in parts.
    is_read: bool,
    is_transaction: bool,
}

#[derive(Debug)]
enum Done {
    Replies {
        reader: OperationRepliesReader,
        left: usize,
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
        // Assume large values until it shows that they are not.
        Lanes {
            lanes: Vec::new(),
            touched: Vec::new(),
            queued_bytes: 0,
            replied_bytes: 0,
            value_bytes: 64 << 10,
            reads: 0,
        }
    }

    /// Adds an operation behind those of its shard. Returns its lane.
    pub fn push(&mut self, shard: ShardId, operation: &Operation<'_>) -> u32 {
        let value_bytes = self.value_bytes;
        let index = self.touch(shard);
        let lane = &mut self.lanes[index];
        let is_read = operation.is_read();
        if lane.queue.back().is_none_or(|group| !group.takes(is_read, value_bytes)) {
            lane.queue.push_back(Group::default());
        }
        let group = lane.queue.back_mut().expect("invariant: a group was pushed just now");
        let before = group.operations.encoded_bytes();
        group.operations.push(operation);
        group.reads += usize::from(is_read);
        self.reads += usize::from(is_read);
        self.queued_bytes += group.operations.encoded_bytes() - before;
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
        let group = Group { operations, reads: 0, transaction: Some(watches) };
        self.lanes[index].queue.push_back(group);
        index as u32
    }

    /// Hands the next command of each lane that has one, and none under way, to `submit`, with the number of the lane.
    pub fn submit(&mut self, consistency: Consistency, mut submit: impl FnMut(Request, u64)) {
        for index in self.touched.drain(..) {
            let lane = &mut self.lanes[index];
            lane.is_touched = false;
            if lane.under_way.is_some() {
                continue;
            }
            let Some(group) = lane.queue.pop_front() else { continue };
            let (request, under_way) = group.into_request(lane.shard, consistency);
            lane.under_way = Some(under_way);
            submit(request, index as u64);
        }
    }

    /// Takes the reply to the command of a lane.
    pub fn complete(&mut self, lane: u64, consistency: Consistency, reply: Reply) -> Option<Request> {
        let index = lane as usize;
        self.mark(index);
        let lane = &mut self.lanes[index];
        let under_way = lane.under_way.take().expect("invariant: a reply belongs to a command under way");
        let count = under_way.operations.len();
        self.queued_bytes -= under_way.operations.encoded_bytes();
        self.reads -= under_way.reads;
        match reply {
            Reply::Operations(replies) if replies.len() == count => {
                let bytes = replies.encoded_bytes();
                let fitting = if under_way.is_read { fitting(&replies) } else { count };
                self.replied_bytes += bytes;
                if fitting > 0 || count == 0 || under_way.is_transaction {
                    lane.done.push_back(Done::Replies { reader: replies.into_reader(), left: fitting });
                }
                if fitting < count {
                    return Some(self.ask_rest(index, consistency, (under_way, fitting)));
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
        None
    }

    /// Puts operations back in front of their lane as two commands, in order. Those of one shard are soon together again: what
    /// comes later goes to the lanes that the new map says.
    fn split(&mut self, index: usize, operations: &Operations) {
        let mut halves = [Group::default(), Group::default()];
        for (position, operation) in operations.iter().enumerate() {
            let group = &mut halves[usize::from(position >= operations.len() / 2)];
            group.operations.push(&operation);
            group.reads += usize::from(operation.is_read());
        }
        for group in halves.into_iter().rev() {
            self.queued_bytes += group.operations.encoded_bytes();
            self.reads += group.reads;
            self.lanes[index].queue.push_front(group);
        }
    }

    /// Asks again for what a read left out for want of room.
    fn ask_rest(
        &mut self,
        index: usize,
        consistency: Consistency,
        (under_way, from): (UnderWay, usize),
    ) -> Request {
        let mut rest = OperationsBuilder::default();
        under_way.operations.iter().skip(from).for_each(|operation| rest.push(&operation));
        let operations = rest.finish();
        self.queued_bytes += operations.encoded_bytes();
        self.reads += operations.len();
        let read = Read::Operations(operations.clone());
        let reads = operations.len();
        self.lanes[index].under_way =
            Some(UnderWay { operations, reads, is_read: true, is_transaction: false });
        Request::Read { read, consistency }
    }

    /// Takes what became of the next operation of a lane, if that is known.
    pub fn take<R>(&mut self, lane: u32, use_it: impl FnOnce(Part<'_>) -> R) -> Option<R> {
        let lane = &mut self.lanes[lane as usize];
        let result = match lane.done.front_mut()? {
            Done::Replies { reader, left } => {
                let before = reader.bytes_left();
                let reply = reader.next_reply()?;
                if let OperationReply::Value { value, .. } = reply {
                    // Down slowly, so that a large value among small ones is not forgotten at once.
                    self.value_bytes = value.len().max(self.value_bytes - self.value_bytes / 8);
                }
                let result = use_it(Part::Reply(reply));
                *left -= 1;
                let is_last = *left == 0;
                self.replied_bytes -= before - if is_last { 0 } else { reader.bytes_left() };
                if is_last {
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
            Done::Replies { left: 0, .. } => Verdict::Done,
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

    /// Bytes of operations and replies that are held, and of values that are to be expected.
    pub fn held_bytes(&self) -> usize {
        self.queued_bytes + self.replied_bytes + self.reads * self.value_bytes
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

impl Group {
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

    fn into_request(self, shard: ShardId, consistency: Consistency) -> (Request, UnderWay) {
        let is_read = self.transaction.is_none() && self.reads == self.operations.len();
        let is_transaction = self.transaction.is_some();
        let operations = self.operations.finish();
        let under_way =
            UnderWay { operations: operations.clone(), reads: self.reads, is_read, is_transaction };
        let request = if is_read {
            Request::Read { read: Read::Operations(operations), consistency }
        } else {
            let watches = self.transaction.unwrap_or_default();
            Request::Write(Write::Transaction(Transaction { shard, watches, operations }))
        };
        (request, under_way)
    }
}

/// How many replies of a read are whole. What was left out for want of room, and all behind it, is asked for again.
fn fitting(replies: &OperationReplies) -> usize {
    if replies.encoded_bytes() + limits::VALUE_BYTES_MAX < limits::REPLIES_BYTES_CLOSE {
        return replies.len();
    }
    let left_out = |reply: OperationReply<'_>| reply == OperationReply::Rejected(Rejection::RepliesTooLong);
    replies.iter().position(left_out).unwrap_or(replies.len())
}

#[cfg(test)]
mod tests;
