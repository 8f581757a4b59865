//! The queues of the operations of one client's connection, one for each shard: operations in the
//! order in which they arrived, on their way to the store and back.
//!
//! Owns that order. At most one command of each queue is in flight; operations that arrive
//! meanwhile become the next command, together. So a burst of a thousand `SET`s is a few
//! transactions, and a `GET` after a `SET` of the same shard sees it wherever the shard's leader
//! is. Nothing is reordered, although commands may be retried. Operations that change nothing go as
//! a read, unless a write is in the same command: then they go through the log with it, which costs
//! less than a separate round trip.
//!
//! A command is submitted only if there is memory for the largest replies that it may have. A read
//! states how many bytes of values it has memory for, estimated from the values seen lately; values
//! that the store left out are requested again, with a larger limit. While memory is short, reads
//! go in small parts that fit into [`GUARANTEED_BYTES`], so that small values can always be read.
//!
//! The only order between queues is that of the replies, which [`pipeline`](super::pipeline) keeps.
//! When slots move, a key changes its queue; the pipeline first waits until the former one is idle.

mod batch;

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::command::{
    Consistency, Denial, Operation, OperationRepliesReader, OperationReply, OperationsBuilder, ReadReply,
    Refusal, Reply, Request, Watch, WriteReply,
};
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::types::ShardId;

use batch::{CommandBatch, InFlightBatch};

/// Bytes that the server guarantees to each connection, however short memory is: buffers, requests
/// and replies up to this size.
pub const GUARANTEED_BYTES: usize = 16 << 10;

/// Bytes of available and expected replies above which queues stop submitting, except the one
/// whose reply the client gets next.
const AHEAD_BYTES_MAX: usize = 8 << 20;

/// Replies are encoded until this many bytes wait to be sent to the client.
pub const OUT_BYTES_CLOSE: usize = 256 << 10;

/// Initial estimate of a value's size: until values turn out to be smaller, reads do not go in the
/// same command as writes.
const VALUE_BYTES_AT_FIRST: usize = 64 << 10;

/// The operation queues of one connection. The first [`limits::SHARDS_MAX`] are indexed by shard
/// number; those of higher numbers, which have no bound, follow in order of first use.
#[derive(Debug)]
pub struct OperationQueues {
    queues: Vec<OperationQueue>,
    /// Queues that may have a command to submit.
    touched: Vec<usize>,
    /// Bytes of unanswered operations.
    queued_bytes: usize,
    /// Largest size of the replies to commands in flight, with their encoding for the client.
    awaited_bytes: usize,
    /// Probable size of the same replies.
    expected_bytes: usize,
    /// Bytes of replies that were not taken yet.
    replied_bytes: usize,
    /// The part of `replied_bytes` that belongs to transactions, which are encoded as a whole.
    replied_together_bytes: usize,
    /// Estimated size of a value that is read, by the largest of those seen lately.
    value_bytes: usize,
    /// Number of commands whose operations are executed together that were ever begun.
    together_begun: u64,
    faults: Faults,
}

/// A command whose operations in each shard are executed together.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// Its number among those of its connection, from 1.
    command: u64,
    /// Number of its operations in all shards.
    operations: usize,
}

#[derive(Debug, Default)]
struct OperationQueue {
    shard: ShardId,
    batches: VecDeque<CommandBatch>,
    in_flight: Option<InFlightBatch>,
    done: VecDeque<Done>,
    is_touched: bool,
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

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationResult<'a> {
    /// The operation was executed, or rejected by the state of its key.
    Reply(OperationReply<'a>),
    /// The command that contained the operation was refused.
    Refused(Refusal),
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// Its operations were executed; their [`OperationResult`]s follow.
    Done,
    /// A watched key had changed, so nothing was executed.
    Aborted,
    /// Refused; whether it was executed may be unknown, which the refusal says.
    Refused(Refusal),
}

impl OperationQueues {
    /// Empty queues.
    pub fn new(faults: Faults) -> OperationQueues {
        OperationQueues {
            queues: Vec::new(),
            touched: Vec::new(),
            queued_bytes: 0,
            awaited_bytes: 0,
            expected_bytes: 0,
            replied_bytes: 0,
            replied_together_bytes: 0,
            value_bytes: VALUE_BYTES_AT_FIRST,
            together_begun: 0,
            faults,
        }
    }

    /// Adds an operation behind those of its shard. Returns its queue.
    pub fn push(&mut self, shard: ShardId, operation: &Operation<'_>) -> u32 {
        self.push_one_of(shard, operation, None)
    }

    /// Begins a command of `operations` that must be executed at one instant in each shard;
    /// [`OperationQueues::push_together`] adds them. At most 4 MiB of them are executed together.
    pub fn begin_together(&mut self, operations: usize) -> Together {
        self.together_begun += 1;
        Together { command: self.together_begun, operations }
    }

    /// As [`OperationQueues::push`], for an operation of the command that was begun last.
    pub fn push_together(&mut self, shard: ShardId, operation: &Operation<'_>, together: Together) -> u32 {
        self.push_one_of(shard, operation, Some(together))
    }

    fn push_one_of(&mut self, shard: ShardId, operation: &Operation<'_>, together: Option<Together>) -> u32 {
        let value_bytes = self.value_bytes;
        let index = self.touch(shard);
        let queue = &mut self.queues[index];
        let is_read = operation.is_read();
        if queue.batches.back().is_none_or(|batch| !batch.takes(is_read, value_bytes, together)) {
            queue.batches.push_back(CommandBatch::default());
        }
        let batch = queue.batches.back_mut().expect("invariant: a batch was pushed just now");
        let before = batch.operations.encoded_bytes();
        batch.push(operation);
        if let Some(together) = together {
            (batch.is_together, batch.command) = (true, together.command);
        }
        self.queued_bytes += batch.operations.encoded_bytes() - before;
        index as u32
    }

    /// Adds a transaction behind the operations of its shard. Returns its queue.
    pub fn push_transaction(
        &mut self,
        shard: ShardId,
        operations: OperationsBuilder,
        watches: Vec<Watch>,
    ) -> u32 {
        let index = self.touch(shard);
        self.queued_bytes += operations.encoded_bytes();
        self.queues[index].batches.push_back(CommandBatch::transaction(operations, watches));
        index as u32
    }

    /// Passes the next command of each queue with none in flight to `submit`, with the number of
    /// the queue, if `has_room` grants the memory for its replies. A queue without memory is
    /// retried with the next call, unless [`OperationQueues::refuse_next`] refuses its command.
    ///
    /// `first` is the queue whose reply the client gets next, if any. It is submitted first, and
    /// `has_room` receives that as its second argument: other replies are of no use without it.
    pub fn submit(
        &mut self,
        first: Option<u32>,
        consistency: Consistency,
        mut has_room: impl FnMut(usize, bool) -> bool,
        mut submit: impl FnMut(Request, u64),
    ) {
        let mut touched = core::mem::take(&mut self.touched);
        let first = first.map(|queue| queue as usize);
        if let Some(position) = touched.iter().position(|index| Some(*index) == first) {
            touched.swap(0, position);
        }
        touched.retain(|&index| {
            let queue = &mut self.queues[index];
            queue.is_touched = false;
            if queue.in_flight.is_some() || queue.batches.is_empty() {
                return false;
            }
            let is_first = first == Some(index);
            let is_ahead = self.replied_bytes + self.expected_bytes > AHEAD_BYTES_MAX;
            let next = match is_first {
                true => queue.next(self.value_bytes, |bytes| has_room(bytes, true)),
                false if is_ahead => None,
                false => queue.next_ahead(self.value_bytes, |bytes| has_room(bytes, false)),
            };
            let Some((batch, values_bytes_max)) = next else {
                queue.is_touched = true;
                return true;
            };
            let (request, in_flight) = batch.into_request(consistency, values_bytes_max, self.value_bytes);
            self.awaited_bytes += in_flight.awaited_bytes;
            self.expected_bytes += in_flight.expected_bytes;
            queue.in_flight = Some(in_flight);
            submit(request, index as u64);
            false
        });
        self.touched = touched;
    }

    /// Refuses the next command of a queue, because memory for its replies did not become free in
    /// time. Returns whether there was one.
    pub fn refuse_next(&mut self, queue: u32) -> bool {
        let queue = &mut self.queues[queue as usize];
        if queue.in_flight.is_some() {
            return false;
        }
        let Some(batch) = queue.batches.pop_front() else { return false };
        self.queued_bytes -= batch.operations.encoded_bytes();
        let left = batch.operations.len();
        queue.done.push_back(Done::Refused { refusal: Refusal::Overloaded, left });
        true
    }

    /// Takes the reply to the command in flight of a queue.
    pub fn complete(&mut self, queue: u64, reply: Reply) {
        let index = queue as usize;
        self.mark(index);
        let queue = &mut self.queues[index];
        let in_flight = queue.in_flight.take().expect("invariant: a reply belongs to a command under way");
        let count = in_flight.operations.len();
        self.queued_bytes -= in_flight.operations.encoded_bytes();
        self.awaited_bytes -= in_flight.awaited_bytes;
        self.expected_bytes -= in_flight.expected_bytes;
        match reply {
            Reply::Write(WriteReply::Operations(replies)) | Reply::Read(ReadReply::Operations(replies))
                if replies.len() == count =>
            {
                let bytes = replies.encoded_bytes();
                let fitting = match in_flight.values_bytes_max {
                    None => count,
                    Some(max) => in_flight.whole(replies.complete(), max),
                };
                if fitting > 0 || count == 0 || in_flight.is_transaction {
                    let is_transaction = in_flight.is_transaction;
                    self.replied_bytes += bytes;
                    self.replied_together_bytes += if is_transaction { bytes } else { 0 };
                    let reader = replies.into_reader();
                    queue.done.push_back(Done::Replies { reader, left: fitting, bytes, is_transaction });
                }
                if fitting < count {
                    self.put_back(index, [in_flight.rest(fitting)].into_iter());
                }
            }
            Reply::Write(WriteReply::ConditionFailed { .. }) if in_flight.is_transaction => {
                queue.done.push_back(Done::Aborted)
            }
            // Slots moved: the operations no longer belong to one shard, and none was executed.
            // Each half of them may still belong to one: repeated halving soon yields commands of a
            // single shard. Later operations are already assigned by the new slot map.
            //
            // Or one of the operations is too new for the cluster's version, and none was executed.
            // Halving refuses it alone.
            Reply::Refused(Refusal::CrossShard) | Reply::Write(WriteReply::Denied(Denial::VersionTooLow))
                if count > 1 && !in_flight.is_transaction =>
            {
                let mut halves = in_flight.halves();
                if self.faults.has(Fault::HalvesReordered) {
                    halves.reverse();
                }
                self.put_back(index, halves.into_iter());
            }
            Reply::Refused(refusal) => queue.done.push_back(Done::Refused { refusal, left: count }),
            Reply::Write(WriteReply::Denied(denial)) => {
                let refusal = Refusal::Invalid(denial.to_string().into());
                queue.done.push_back(Done::Refused { refusal, left: count });
            }
            _ => {
                let refusal = Refusal::invalid("the store answered something else");
                queue.done.push_back(Done::Refused { refusal, left: count });
            }
        }
    }

    /// Puts commands back at the front of their queue, in order.
    fn put_back(&mut self, index: usize, batches: impl DoubleEndedIterator<Item = CommandBatch>) {
        for batch in batches.rev() {
            self.queued_bytes += batch.operations.encoded_bytes();
            self.queues[index].batches.push_front(batch);
        }
    }

    /// Takes the result of the next operation of a queue, if it is known.
    pub fn take<R>(&mut self, queue: u32, use_it: impl FnOnce(OperationResult<'_>) -> R) -> Option<R> {
        let queue = &mut self.queues[queue as usize];
        let result = match queue.done.front_mut()? {
            Done::Replies { reader, left, bytes, is_transaction } => {
                let reply = reader.next_reply()?;
                if let OperationReply::Value { value, .. } = reply {
                    // The estimate decays slowly, so that a large value among small ones is not
                    // forgotten at once.
                    self.value_bytes = value.len().max(self.value_bytes - self.value_bytes / 8);
                }
                let result = use_it(OperationResult::Reply(reply));
                *left -= 1;
                if *left == 0 {
                    self.replied_bytes -= *bytes;
                    self.replied_together_bytes -= if *is_transaction { *bytes } else { 0 };
                    queue.done.pop_front();
                }
                result
            }
            Done::Refused { refusal, left } => {
                let result = use_it(OperationResult::Refused(refusal.clone()));
                *left = left.saturating_sub(1);
                if *left == 0 {
                    queue.done.pop_front();
                }
                result
            }
            Done::Aborted => unreachable!("invariant: only a transaction is aborted"),
        };
        Some(result)
    }

    /// Takes the result of a transaction, if it is known. If it was executed, the results of its
    /// operations are taken next.
    pub fn take_verdict(&mut self, queue: u32) -> Option<TransactionOutcome> {
        let queue = &mut self.queues[queue as usize];
        let verdict = match queue.done.front()? {
            Done::Replies { left: 0, bytes, .. } => {
                self.replied_bytes -= *bytes;
                self.replied_together_bytes -= *bytes;
                TransactionOutcome::Done
            }
            Done::Replies { .. } => return Some(TransactionOutcome::Done),
            Done::Aborted => TransactionOutcome::Aborted,
            Done::Refused { refusal, .. } => TransactionOutcome::Refused(refusal.clone()),
        };
        queue.done.pop_front();
        Some(verdict)
    }

    /// Whether the next result of a queue is known.
    pub(super) fn knows(&self, queue: u32) -> bool {
        !self.queues[queue as usize].done.is_empty()
    }

    /// Whether every operation is answered, taken or not.
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.batches.is_empty() && queue.in_flight.is_none())
    }

    /// Bytes of operations and replies that are held, and of the largest replies that may come.
    pub fn held_bytes(&self) -> usize {
        self.queued_bytes + self.awaited_bytes + self.replied_bytes
    }

    /// As [`OperationQueues::held_bytes`], with probable instead of largest replies.
    pub fn expected_held_bytes(&self) -> usize {
        self.queued_bytes + self.expected_bytes + self.replied_bytes
    }

    /// Bytes that the available replies take once encoded, limited to what is encoded at a time.
    pub fn encoding_bytes(&self) -> usize {
        let apart = self.replied_bytes - self.replied_together_bytes;
        self.replied_together_bytes + apart.min(ENCODED_BYTES_MAX)
    }

    fn touch(&mut self, shard: ShardId) -> usize {
        let index = self.index(shard);
        self.queues[index].shard = shard;
        self.mark(index);
        index
    }

    fn index(&mut self, shard: ShardId) -> usize {
        const NUMBERED: usize = limits::SHARDS_MAX as usize + 1;
        let is_numbered = shard.0 <= limits::SHARDS_MAX;
        if self.queues.len() < NUMBERED && !is_numbered {
            self.queues.resize_with(NUMBERED, OperationQueue::default);
        }
        let index = if is_numbered {
            shard.0 as usize
        } else {
            let others = &self.queues[NUMBERED..];
            NUMBERED + others.iter().position(|queue| queue.shard == shard).unwrap_or(others.len())
        };
        if index >= self.queues.len() {
            self.queues.resize_with(index + 1, OperationQueue::default);
        }
        index
    }

    fn mark(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        if !queue.is_touched {
            queue.is_touched = true;
            self.touched.push(index);
        }
    }
}

/// Most bytes that are encoded at a time: up to the bound, and one value that crosses it.
const ENCODED_BYTES_MAX: usize = OUT_BYTES_CLOSE + limits::VALUE_BYTES_MAX;

#[cfg(test)]
mod tests;
