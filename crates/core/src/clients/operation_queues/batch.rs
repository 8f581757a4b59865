//! The batches of a queue: which operations go as one command, and how much room the replies
//! to it need.

use alloc::vec::Vec;

use crate::command::{
    Consistency, Operation, Operations, OperationsBuilder, Read, Request, Set, Transaction, Watch, Write,
};
use crate::limits;

use super::{ENCODED_BYTES_MAX, OperationQueue, Together};

/// A command accepts no further operations once it holds this many bytes: the size at which a log
/// entry is closed as well.
const GROUP_BYTES_CLOSE: usize = 256 << 10;

/// A command accepts no further operations once it holds this many: more would gain nothing and
/// delay other clients.
const GROUP_OPERATIONS_MAX: usize = 4_096;

/// A command accepts no further operations of one client's command once it holds this many bytes.
/// With the longest operation it stays below [`limits::TRANSACTION_BYTES_MAX`].
const TOGETHER_BYTES_CLOSE: usize = 4 << 20;

/// Most expected bytes of values that a command with writes may read. Beyond
/// [`limits::REPLIES_BYTES_CLOSE`] values are left out, and a command with writes is not repeated.
const MIXED_READS_BYTES: usize = 1 << 20;

/// A read requests at most this many bytes of values, and the rest in further reads: twice the
/// largest value.
const READ_VALUES_BYTES: usize = 2 * limits::VALUE_BYTES_MAX;

/// Bytes of a reply besides its value: tag, version, expiry and length, in either encoding.
const REPLY_BYTES: usize = 48;

/// While memory is short, a command has at most this many operations, and a read requests at most
/// this many bytes of values. With its encoded replies it fits into
/// [`GUARANTEED_BYTES`](super::GUARANTEED_BYTES).
const SHORT_OPERATIONS: usize = 32;
const SHORT_VALUES_BYTES: usize = 4 << 10;

/// Operations that go as one command.
#[derive(Debug, Default)]
pub(super) struct CommandBatch {
    pub(super) operations: OperationsBuilder,
    reads: usize,
    /// Writes whose reply is the key's previous value.
    returns: usize,
    /// Its values must come from one state of the shard: the read is answered whole, or repeated.
    pub(super) is_together: bool,
    /// The last of its commands whose operations are executed together, see [`Together`].
    pub(super) command: u64,
    /// The first value, or all values that must come together, did not fit into the last read.
    is_long: bool,
    /// A client's transaction (`MULTI`) with its watches: no other operation joins it.
    transaction: Option<Vec<Watch>>,
}

/// A command that was submitted.
#[derive(Debug)]
pub(super) struct InFlightBatch {
    pub(super) operations: Operations,
    /// The most bytes that its replies take, with their encoding for the client.
    pub(super) awaited_bytes: usize,
    /// The probable bytes of its replies.
    pub(super) expected_bytes: usize,
    /// The limit of its values' bytes, for a read that can be continued.
    pub(super) values_bytes_max: Option<usize>,
    is_together: bool,
    pub(super) is_transaction: bool,
}

impl OperationQueue {
    /// The next command, if there is room for its replies, and how many bytes of values it may
    /// read.
    pub(super) fn next_ahead(
        &mut self,
        value_bytes: usize,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Option<(CommandBatch, usize)> {
        let batch = self.batches.front()?;
        let values_bytes_max = batch.values_bytes_max(value_bytes);
        let is_granted = has_room(batch.awaited_bytes(values_bytes_max));
        if is_granted { self.batches.pop_front().map(|batch| (batch, values_bytes_max)) } else { None }
    }

    /// As [`OperationQueue::next_ahead`]; if there is no room, the part of the command that fits
    /// while memory is short.
    pub(super) fn next(
        &mut self,
        value_bytes: usize,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Option<(CommandBatch, usize)> {
        if let Some(next) = self.next_ahead(value_bytes, &mut has_room) {
            return Some(next);
        }
        let batch = self.batches.front()?;
        if batch.transaction.is_some() || batch.is_long {
            return None;
        }
        if batch.is_together {
            let is_granted = batch.is_read() && has_room(batch.awaited_bytes(SHORT_VALUES_BYTES));
            return if is_granted {
                self.batches.pop_front().map(|batch| (batch, SHORT_VALUES_BYTES))
            } else {
                None
            };
        }
        let batch = self.batches.pop_front()?;
        let (head, rest) = batch.split_short();
        if let Some(rest) = rest {
            self.batches.push_front(rest);
        }
        if has_room(head.awaited_bytes(SHORT_VALUES_BYTES)) {
            return Some((head, SHORT_VALUES_BYTES));
        }
        self.batches.push_front(head);
        None
    }
}

impl InFlightBatch {
    /// How many replies to use, of which `fitting` are complete. Replies that must come from one
    /// state of the shard are used only all together, unless they exceed what one command may
    /// return.
    pub(super) fn whole(&self, fitting: usize, values_bytes_max: usize) -> usize {
        let is_again = self.is_together
            && fitting < self.operations.len()
            && values_bytes_max < limits::REPLIES_BYTES_CLOSE;
        if is_again { 0 } else { fitting }
    }

    /// The operations that a read left out for lack of room.
    pub(super) fn rest(&self, from: usize) -> CommandBatch {
        let (is_together, is_long) = (self.is_together, from == 0);
        let mut rest = CommandBatch { is_together, is_long, ..CommandBatch::default() };
        self.operations.iter().skip(from).for_each(|operation| rest.push(&operation));
        rest
    }

    /// The operations as two commands, in order.
    pub(super) fn halves(&self) -> [CommandBatch; 2] {
        let is_together = self.is_together;
        let mut halves = [(); 2].map(|()| CommandBatch { is_together, ..CommandBatch::default() });
        for (position, operation) in self.operations.iter().enumerate() {
            halves[usize::from(position >= self.operations.len() / 2)].push(&operation);
        }
        halves
    }
}

impl CommandBatch {
    /// A client's transaction.
    pub(super) fn transaction(operations: OperationsBuilder, watches: Vec<Watch>) -> CommandBatch {
        let reads = operations.iter().filter(Operation::is_read).count();
        let returns = operations.iter().filter(returns_value).count();
        CommandBatch { operations, reads, returns, transaction: Some(watches), ..CommandBatch::default() }
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, operation: &Operation<'_>) {
        self.operations.push(operation);
        self.reads += usize::from(operation.is_read());
        self.returns += usize::from(returns_value(operation));
    }

    fn is_read(&self) -> bool {
        self.transaction.is_none() && self.reads == self.operations.len()
    }

    /// For a read, how many bytes of values to request: twice the expected size.
    fn values_bytes_max(&self, value_bytes: usize) -> usize {
        let max = if self.is_together { limits::REPLIES_BYTES_CLOSE } else { READ_VALUES_BYTES };
        if self.is_long { max } else { (self.reads * value_bytes * 2).clamp(SHORT_VALUES_BYTES, max) }
    }

    /// The probable bytes of its replies.
    fn expected_bytes(&self, value_bytes: usize) -> usize {
        let values = (self.reads + self.returns) * value_bytes;
        let is_in_parts = self.is_read() && !self.is_together;
        let values_max = if is_in_parts { READ_VALUES_BYTES } else { limits::REPLIES_BYTES_CLOSE };
        values.min(values_max) + self.operations.len() * REPLY_BYTES
    }

    /// The most bytes that its replies take, including their encoding for the client, if it reads
    /// values of at most `values_bytes_max` bytes.
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

    /// Splits off the first operations, all reads or all writes; returns them and the rest.
    fn split_short(self) -> (CommandBatch, Option<CommandBatch>) {
        let operations = self.operations.finish();
        let (mut head, mut rest) = (CommandBatch::default(), CommandBatch::default());
        for operation in operations.iter() {
            let is_like = head.operations.is_empty() || operation.is_read() == head.is_read();
            let stays = rest.operations.is_empty() && is_like && head.operations.len() < SHORT_OPERATIONS;
            let batch = if stays { &mut head } else { &mut rest };
            batch.push(&operation);
        }
        let rest = (!rest.operations.is_empty()).then_some(rest);
        (head, rest)
    }

    /// Whether another operation may join: the first of a command whose operations are executed
    /// together only if all of them may, and then all of them do.
    pub(super) fn takes(&self, is_read: bool, value_bytes: usize, together: Option<Together>) -> bool {
        if together.is_some_and(|together| together.command == self.command) {
            return self.operations.encoded_bytes() < TOGETHER_BYTES_CLOSE;
        }
        let count = together.map_or(1, |together| together.operations);
        let stays_pure =
            is_read == (self.reads > 0) && (self.reads == 0 || self.reads == self.operations.len());
        let reads = self.reads + if is_read { count } else { 0 };
        self.transaction.is_none()
            && self.operations.encoded_bytes() < GROUP_BYTES_CLOSE
            && self.operations.len() + count <= GROUP_OPERATIONS_MAX
            && (stays_pure || reads * value_bytes <= MIXED_READS_BYTES)
    }

    /// The command, which reads at most `bytes_max` bytes of values.
    pub(super) fn into_request(
        self,
        consistency: Consistency,
        bytes_max: usize,
        value_bytes: usize,
    ) -> (Request, InFlightBatch) {
        let expected_bytes = self.expected_bytes(value_bytes);
        let is_read = self.is_read();
        let (awaited_bytes, is_transaction) = (self.awaited_bytes(bytes_max), self.transaction.is_some());
        let operations = self.operations.finish();
        let values_bytes_max = is_read.then_some(bytes_max);
        let in_flight = InFlightBatch {
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
            Request::Write(Write::Keys(Transaction { watches, operations }))
        };
        (request, in_flight)
    }
}

/// Whether the reply to a write carries a value.
fn returns_value(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Take { .. } | Operation::Set(Set { previous: true, .. }))
}
