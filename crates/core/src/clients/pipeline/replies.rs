//! The replies that a connection owes, in the order of its commands.
//!
//! Owns that order. An owed reply knows which queues its results come from. Queues answer in their
//! own order, so an owed reply takes the next result of its queue when its turn comes. No lookup is
//! needed. What a reply looks like is the driver's: its [`ReplyForms`].

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use super::super::operation_queues::{OperationQueues, OperationResult, TransactionOutcome};
use crate::command::Refusal;

/// What a driver remembers of a reply until its results are known.
pub trait ReplyForms {
    /// A reply that is known without the store.
    type Ready: HeldBytes + fmt::Debug;
    /// The form of the reply to one operation.
    type One: fmt::Debug;
    /// The form of the reply to several operations, with the results that are known so far.
    type Many: HeldBytes + fmt::Debug;
    /// The form of the reply to one command of a transaction.
    type Item: HeldBytes + fmt::Debug;
}

/// A part of a reply whose memory is counted.
pub trait HeldBytes {
    /// Bytes that it holds besides itself, or, for a command of a transaction, with itself.
    fn held_bytes(&self) -> usize;
}

/// Receives the replies of a connection, in the order of its commands.
pub trait ReplySink<F: ReplyForms> {
    /// A reply that was known without the store.
    fn ready(&mut self, ready: &F::Ready);

    /// The reply to a command of one operation.
    fn one(&mut self, form: &F::One, result: OperationResult<'_>);

    /// The next result of a command of several operations.
    fn gather(&mut self, form: &mut F::Many, result: OperationResult<'_>);

    /// The reply to a command of several operations, of which every result was gathered.
    fn many(&mut self, form: &F::Many);

    /// The reply to a transaction. If it was executed, `results` has those of its operations.
    fn transaction(
        &mut self,
        items: &[F::Item],
        outcome: TransactionOutcome,
        results: TransactionResults<'_>,
    );

    /// The reply to a command that watches keys.
    fn watched(&mut self, result: Result<(), Refusal>);
}

/// A reply that is owed to the client.
#[derive(Debug)]
pub(super) enum OwedReply<F: ReplyForms> {
    Ready(F::Ready),
    One {
        queue: u32,
        form: F::One,
    },
    Many(Box<OwedMany<F::Many>>),
    Transaction {
        queue: u32,
        items: Vec<F::Item>,
    },
    /// One watched key: the last one of a command replies for the command.
    Watch {
        queue: u32,
        watch: u64,
        is_last: bool,
    },
}

/// A command of several operations, possibly in several queues.
#[derive(Debug)]
pub(super) struct OwedMany<M> {
    /// The queues of the results that are not gathered yet.
    pub(super) queues: VecDeque<u32>,
    pub(super) form: M,
}

/// The results of an executed transaction.
#[derive(Debug)]
pub struct TransactionResults<'a> {
    queues: &'a mut OperationQueues,
    queue: u32,
}

impl TransactionResults<'_> {
    /// Takes the result of the next operation.
    ///
    /// # Panics
    /// If the transaction was not executed, or has no further operation.
    pub fn next<R>(&mut self, use_it: impl FnOnce(OperationResult<'_>) -> R) -> R {
        self.queues.take(self.queue, use_it).expect("invariant: a transaction has a reply for each operation")
    }
}

impl<F: ReplyForms> OwedReply<F> {
    /// Bytes that it holds, besides itself.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            OwedReply::Ready(ready) => ready.held_bytes(),
            OwedReply::Many(many) => many.form.held_bytes() + many.queues.len() * size_of::<u32>(),
            OwedReply::Transaction { items, .. } => items.iter().map(HeldBytes::held_bytes).sum(),
            OwedReply::One { .. } | OwedReply::Watch { .. } => 0,
        }
    }

    /// The queue of the next result.
    pub(super) fn queue(&self) -> Option<u32> {
        match self {
            OwedReply::Ready(_) => None,
            OwedReply::Many(many) => many.queues.front().copied(),
            OwedReply::One { queue, .. }
            | OwedReply::Transaction { queue, .. }
            | OwedReply::Watch { queue, .. } => Some(*queue),
        }
    }

    /// Passes the reply to `sink` if all its results are known; returns whether they were.
    pub(super) fn settle(&mut self, queues: &mut OperationQueues, sink: &mut impl ReplySink<F>) -> bool {
        match self {
            OwedReply::Ready(ready) => {
                sink.ready(ready);
                true
            }
            OwedReply::One { queue, form } => queues.take(*queue, |part| sink.one(form, part)).is_some(),
            OwedReply::Many(many) => {
                while let Some(queue) = many.queues.front() {
                    if queues.take(*queue, |part| sink.gather(&mut many.form, part)).is_none() {
                        return false;
                    }
                    many.queues.pop_front();
                }
                sink.many(&many.form);
                true
            }
            OwedReply::Transaction { queue, items } => match queues.take_verdict(*queue) {
                None => false,
                Some(outcome) => {
                    sink.transaction(items, outcome, TransactionResults { queues, queue: *queue });
                    true
                }
            },
            OwedReply::Watch { .. } => unreachable!("invariant: the pipeline settles watches itself"),
        }
    }
}
