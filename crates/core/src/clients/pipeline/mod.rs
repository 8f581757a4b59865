//! The commands of one client's connection, which may send the next before it has the reply to the
//! last: their operations, in queues, and the replies that they are owed.
//!
//! Owns the order: operations on a key take effect in the order of the commands, and replies leave
//! in that order, one for each command. Owns also the open transaction and the watched keys. It
//! knows neither the protocol of the client nor memory budgets: the driver says what a reply looks
//! like ([`ReplyForms`]), finds the shard of a key, and grants memory.
//!
//! A driver's turn, in this order: [`Pipeline::complete`] for each reply of the store;
//! [`Pipeline::settle_next`] until there is none; commands, as long as
//! [`Pipeline::follow_slot_map`] allows; [`Pipeline::submit`].

mod replies;
mod transaction;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

use super::operation_queues::{OperationQueues, OperationResult};
use crate::command::{
    Consistency, Operation, OperationReply, OperationsBuilder, Reply, Request, ShardRefusal,
};
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::types::{ShardId, Version};

pub use replies::{HeldBytes, ReplyForms, ReplySink, TransactionResults};
use replies::{OwedMany, OwedReply};
use transaction::{OpenTransaction, SlotSpan, Watched, WatchedVersion, check_length, join};

/// The pipeline of one connection.
#[derive(Debug)]
pub struct Pipeline<F: ReplyForms> {
    queues: OperationQueues,
    /// The version of the slot map by which operations were assigned to queues.
    map_version: u64,
    owed: VecDeque<OwedReply<F>>,
    /// Bytes that the owed replies hold.
    owed_bytes: usize,
    transaction: Option<OpenTransaction<F::Item>>,
    watches: Vec<Watched>,
    /// Number of keys that were ever watched.
    watches_begun: u64,
    /// See [`Pipeline::take_cross_slot_transactions`].
    cross_slot_transactions: u64,
    faults: Faults,
}

/// Why a command is not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// An operation breaks a limit.
    Invalid(ShardRefusal),
    /// Operations that must be executed together are not of one shard.
    CrossShard,
    /// A transaction without operations, other than one that a client puts together.
    NoOperations,
    /// The operations of a transaction exceed [`limits::TRANSACTION_BYTES_MAX`].
    TransactionTooLong,
    /// The commands of a transaction exceed [`limits::TRANSACTION_BYTES_MAX`].
    TooManyCommands,
    /// More than [`limits::WATCHES_MAX`] keys are watched.
    TooManyWatches,
    /// A transaction is open already.
    TransactionOpen,
    /// No transaction is open.
    NoTransaction,
    /// A command of the transaction was refused.
    TransactionFailed,
    /// The version of a watched key is not known, because the request for it was refused.
    WatchUnknown,
}

/// What a driver replies to the end of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub enum Executed<I> {
    /// Nothing yet: the reply is owed, behind those of earlier commands.
    Queued,
    /// The transaction has no operations; these are its commands.
    Empty(Vec<I>),
}

impl<F: ReplyForms> Pipeline<F> {
    /// A pipeline without commands, which assigns operations by a slot map of this version.
    pub fn new(map_version: u64, faults: Faults) -> Pipeline<F> {
        Pipeline {
            queues: OperationQueues::new(faults),
            map_version,
            owed: VecDeque::new(),
            owed_bytes: 0,
            transaction: None,
            watches: Vec::new(),
            watches_begun: 0,
            cross_slot_transactions: 0,
            faults,
        }
    }

    /// Whether another command may be executed, by a slot map of this version. Once slots have
    /// moved, commands in flight are answered first: a later command on a moved key would take
    /// another path and could overtake them.
    pub fn follow_slot_map(&mut self, version: u64, shard_of: impl Fn(&[u8]) -> ShardId) -> bool {
        if version != self.map_version
            && (self.queues.is_idle() || self.faults.has(Fault::MovedOperationOvertakes))
        {
            self.map_version = version;
            if let Some(transaction) = &mut self.transaction {
                transaction.follow(&shard_of);
            }
            for watched in &mut self.watches {
                watched.shard = shard_of(&watched.key);
            }
        }
        version == self.map_version
    }

    /// Executes one operation on a key of `shard`, and owes its reply.
    pub fn push_one(
        &mut self,
        operation: &Operation<'_>,
        shard_of: impl Fn(&[u8]) -> ShardId,
        form: F::One,
    ) -> Result<(), CommandError> {
        check(operation)?;
        let queue = self.queues.push(shard_of(operation.key()), operation);
        self.owe(OwedReply::One { queue, form });
        Ok(())
    }

    /// Executes several operations, each in its key's queue, and owes one reply to all. The
    /// operations on keys of one shard are executed at one instant.
    pub fn push_many<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        shard_of: impl Fn(&[u8]) -> ShardId,
        form: F::Many,
    ) -> Result<(), CommandError> {
        operations.clone().try_for_each(|operation| check(&operation))?;
        let together = self.queues.begin_together(operations.len());
        let push = |operation: Operation<'a>| {
            self.queues.push_together(shard_of(operation.key()), &operation, together)
        };
        let queues = operations.map(push).collect();
        self.owe_many(queues, form);
        Ok(())
    }

    /// Executes several operations on keys of one shard, all or none, and owes one reply.
    pub fn push_transaction<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        shard_of: impl Fn(&[u8]) -> ShardId,
        form: F::Many,
    ) -> Result<(), CommandError> {
        operations.clone().try_for_each(|operation| check(&operation))?;
        let mut builder = OperationsBuilder::default();
        let mut shard = None;
        let mut slots = SlotSpan::default();
        let count = operations.len();
        for operation in operations {
            join(&mut shard, shard_of(operation.key()))?;
            slots.add(operation.key());
            builder.push(&operation);
        }
        check_length(&builder)?;
        let shard = shard.ok_or(CommandError::NoOperations)?;
        self.cross_slot_transactions += u64::from(slots.is_many());
        let queue = self.queues.push_transaction(shard, builder, Vec::new());
        self.owe_many(core::iter::repeat_n(queue, count).collect(), form);
        Ok(())
    }

    /// Owes a reply that is known already.
    pub fn push_ready(&mut self, ready: F::Ready) {
        self.owe(OwedReply::Ready(ready));
    }

    /// Whether a transaction is open.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Opens a transaction.
    pub fn begin_transaction(&mut self) -> Result<(), CommandError> {
        if self.transaction.is_some() {
            return Err(CommandError::TransactionOpen);
        }
        self.transaction = Some(OpenTransaction::new());
        Ok(())
    }

    /// Adds a command to the open transaction.
    ///
    /// # Panics
    /// If no transaction is open.
    pub fn queue<'a>(
        &mut self,
        mut operations: impl Iterator<Item = Operation<'a>> + Clone,
        shard_of: impl Fn(&[u8]) -> ShardId,
        item: F::Item,
    ) -> Result<(), CommandError> {
        operations.clone().try_for_each(|operation| check(&operation))?;
        let transaction = self.transaction.as_mut().expect("invariant: a transaction is open");
        operations.try_for_each(|operation| {
            transaction.admit(operation.key(), shard_of(operation.key()))?;
            transaction.operations.push(&operation);
            Ok(())
        })?;
        transaction.add(item)
    }

    /// A command was refused: an open transaction is not executed.
    pub fn fail_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_failed = true;
        }
    }

    /// Ends the transaction and executes it. The driver waits until
    /// [`Pipeline::knows_watches`].
    pub fn execute_transaction(&mut self) -> Result<Executed<F::Item>, CommandError> {
        let transaction = self.transaction.take().ok_or(CommandError::NoTransaction)?;
        let watches = core::mem::take(&mut self.watches);
        if transaction.is_failed {
            return Err(CommandError::TransactionFailed);
        }
        let mut shard = transaction.shard();
        let mut slots = transaction.slots;
        let mut conditions = Vec::with_capacity(watches.len());
        for watched in watches {
            join(&mut shard, watched.shard)?;
            slots.add(&watched.key);
            conditions.push(watched.condition()?);
        }
        let Some(shard) = shard else { return Ok(Executed::Empty(transaction.items)) };
        self.cross_slot_transactions += u64::from(slots.is_many());
        let queue = self.queues.push_transaction(shard, transaction.operations, conditions);
        self.owe(OwedReply::Transaction { queue, items: transaction.items });
        Ok(Executed::Queued)
    }

    /// Discards the open transaction and all watches.
    pub fn discard_transaction(&mut self) -> Result<(), CommandError> {
        self.transaction.take().ok_or(CommandError::NoTransaction)?;
        self.watches.clear();
        Ok(())
    }

    /// Requests the versions of keys, watches them until the next transaction ends, and owes one
    /// reply. `keys` must not be empty.
    pub fn watch<'a>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
        shard_of: impl Fn(&[u8]) -> ShardId,
    ) -> Result<(), CommandError> {
        let count = keys.len();
        if self.watches.len() + count > limits::WATCHES_MAX {
            return Err(CommandError::TooManyWatches);
        }
        keys.clone().try_for_each(|key| check(&Operation::Describe { key }))?;
        for (number, key) in keys.enumerate() {
            let shard = shard_of(key);
            let queue = self.queues.push(shard, &Operation::Describe { key });
            self.watches_begun += 1;
            let (watch, is_last) = (self.watches_begun, number + 1 == count);
            self.owe(OwedReply::Watch { queue, watch, is_last });
            let key = Bytes::copy_from_slice(key);
            self.watches.push(Watched { number: watch, key, shard, version: WatchedVersion::Asked });
        }
        Ok(())
    }

    /// Watches no key any more.
    pub fn unwatch(&mut self) {
        self.watches.clear();
    }

    /// Discards the open transaction, if any, and all watches.
    pub fn reset(&mut self) {
        self.transaction = None;
        self.watches.clear();
    }

    /// Whether the version of every watched key is known, or is known to be unavailable.
    pub fn knows_watches(&self) -> bool {
        self.watches.iter().all(|watched| watched.version != WatchedVersion::Asked)
    }

    /// Number of transactions with keys of several slots since the last call. Their keys are in one
    /// shard now, and may no longer be once slots have moved.
    pub fn take_cross_slot_transactions(&mut self) -> u64 {
        core::mem::take(&mut self.cross_slot_transactions)
    }

    /// Whether no reply is owed.
    pub fn is_settled(&self) -> bool {
        self.owed.is_empty()
    }

    /// Number of owed replies.
    pub fn owed(&self) -> usize {
        self.owed.len()
    }

    /// Passes the commands of the queues to `submit`, as far as `has_room` grants memory for their
    /// replies. Its arguments are the bytes, and whether the reply is the next one for the client.
    /// If the client `reads` nothing, no reply is the next one. See [`OperationQueues::submit`].
    pub fn submit(
        &mut self,
        reads: bool,
        consistency: Consistency,
        has_room: impl FnMut(usize, bool) -> bool,
        submit: impl FnMut(Request, u64),
    ) {
        let first = self.owed.front().filter(|_| reads).and_then(OwedReply::queue);
        self.queues.submit(first, consistency, has_room, submit);
    }

    /// Refuses the command behind the client's next reply, if it is not in flight yet. Returns
    /// whether there was one.
    pub fn refuse_next(&mut self) -> bool {
        let first = self.owed.front().and_then(OwedReply::queue);
        first.is_some_and(|queue| self.queues.refuse_next(queue))
    }

    /// Takes a reply of the store to the command in flight of a queue.
    pub fn complete(&mut self, queue: u64, reply: Reply) {
        self.queues.complete(queue, reply);
    }

    /// Passes the next reply to `sink`, if it is known; returns whether it was.
    pub fn settle_next(&mut self, sink: &mut impl ReplySink<F>) -> bool {
        if self.faults.has(Fault::ReplyOvertakes) {
            self.let_a_reply_overtake();
        }
        let Some(reply) = self.owed.front_mut() else { return false };
        let held_before = reply.held_bytes();
        let is_settled = match *reply {
            OwedReply::Watch { queue, watch, is_last } => self.settle_watch((queue, watch, is_last), sink),
            _ => reply.settle(&mut self.queues, sink),
        };
        let held_after = self.owed.front().map_or(0, OwedReply::held_bytes);
        self.owed_bytes = self.owed_bytes + held_after - held_before;
        if is_settled {
            self.owed_bytes -= held_after;
            self.owed.pop_front();
        }
        is_settled
    }

    /// Bytes of operations, of owed replies, and of the largest replies that may come.
    pub fn held_bytes(&self) -> usize {
        self.queues.held_bytes() + self.held_apart_bytes()
    }

    /// As [`Pipeline::held_bytes`], with probable instead of largest replies.
    pub fn expected_held_bytes(&self) -> usize {
        self.queues.expected_held_bytes() + self.held_apart_bytes()
    }

    /// See [`OperationQueues::encoding_bytes`].
    pub fn encoding_bytes(&self) -> usize {
        self.queues.encoding_bytes()
    }

    /// Bytes that are held outside of the queues.
    fn held_apart_bytes(&self) -> usize {
        let transaction = self.transaction.as_ref().map_or(0, OpenTransaction::held_bytes);
        let owed = self.owed_bytes + self.owed.len() * size_of::<OwedReply<F>>();
        owed + transaction + self.watches.len() * size_of::<Watched>()
    }

    fn owe_many(&mut self, queues: VecDeque<u32>, form: F::Many) {
        self.owe(OwedReply::Many(OwedMany { queues, form }.into()));
    }

    fn owe(&mut self, reply: OwedReply<F>) {
        self.owed_bytes += reply.held_bytes();
        self.owed.push_back(reply);
    }

    fn settle_watch(
        &mut self,
        (queue, watch, is_last): (u32, u64, bool),
        sink: &mut impl ReplySink<F>,
    ) -> bool {
        let found = self.queues.take(queue, |part| match part {
            OperationResult::Reply(OperationReply::Described { version, .. }) => Ok(version),
            OperationResult::Reply(_) => Ok(Version::ABSENT),
            OperationResult::Refused(refusal) => Err(refusal),
        });
        let Some(found) = found else { return false };
        // EXEC, DISCARD or UNWATCH may have removed the watch meanwhile.
        if let Some(watched) = self.watches.iter_mut().find(|watched| watched.number == watch) {
            watched.version =
                found.as_ref().map_or(WatchedVersion::Unknown, |&version| WatchedVersion::At(version));
        }
        if is_last {
            sink.watched(found.map(drop));
        }
        true
    }

    /// The deliberate fault: a reply whose result is known goes before one that is still awaited.
    fn let_a_reply_overtake(&mut self) {
        let is_known = |pipeline: &Self, position: usize| {
            pipeline.owed.get(position).and_then(OwedReply::queue).is_some_and(|it| pipeline.queues.knows(it))
        };
        if !is_known(self, 0) && is_known(self, 1) {
            self.owed.swap(0, 1);
        }
    }
}

fn check(operation: &Operation<'_>) -> Result<(), CommandError> {
    operation.validate().map_err(CommandError::Invalid)
}

#[cfg(test)]
mod tests;
