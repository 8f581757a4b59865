//! The open requests of a worker: which waiter gets which reply.
//!
//! Owns the numbers of open requests: each belongs to one waiter until its one reply has arrived.
//! It does not know where requests go. It is no error if a waiter is gone: its request was accepted
//! and gets its reply all the same.

use std::cell::RefCell;
use std::rc::Rc;

use slab::Slab;
use tidelock_core::command::Reply;
use tidelock_core::fairness::Ticket;
use tidelock_core::types::Token;
use tokio::sync::oneshot;

use crate::store::Mailbox;

/// The table of waiters, by the number of their request.
#[derive(Debug, Default)]
pub(crate) struct Waiting(RefCell<Slab<(Waiter, Ticket)>>);

#[derive(Debug)]
enum Waiter {
    Task(oneshot::Sender<Reply>),
    Mailbox(Rc<Mailbox>, u64),
    /// Another worker, and that worker's token of the request.
    Worker(usize, Token),
}

/// A reply for another worker.
#[derive(Debug)]
pub(crate) struct Crossing {
    pub worker: usize,
    pub token: Token,
    pub reply: Reply,
}

impl Waiting {
    /// Returns a number, and the future reply to the request of this number.
    pub fn in_task(&self) -> (u64, oneshot::Receiver<Reply>) {
        let (sender, receiver) = oneshot::channel();
        (self.insert(Waiter::Task(sender)), receiver)
    }

    /// Returns a number. The reply to the request of this number goes to `mailbox`, with `tag`.
    pub fn at_mailbox(&self, mailbox: &Rc<Mailbox>, tag: u64) -> u64 {
        self.insert(Waiter::Mailbox(mailbox.clone(), tag))
    }

    /// Returns a number for a request of another worker, whose own number for it is `token`.
    pub fn at_worker(&self, worker: usize, token: Token) -> u64 {
        self.insert(Waiter::Worker(worker, token))
    }

    /// Records the ticket of a request that the node has taken.
    pub fn set_ticket(&self, number: u64, ticket: Ticket) {
        self.0.borrow_mut()[number as usize].1 = ticket;
    }

    /// The ticket of a request that the node has taken.
    pub fn ticket(&self, number: u64) -> Ticket {
        self.0.borrow()[number as usize].1
    }

    /// Passes a reply to its waiter, or returns it if the waiter is on another worker. Frees the
    /// number.
    pub fn answer(&self, number: u64, reply: Reply) -> Option<Crossing> {
        let (waiter, _) = self.0.borrow_mut().remove(number as usize);
        match waiter {
            // The client may be gone; that makes no difference to the request.
            Waiter::Task(sender) => drop(sender.send(reply)),
            Waiter::Mailbox(mailbox, tag) => mailbox.deliver(tag, reply),
            Waiter::Worker(worker, token) => return Some(Crossing { worker, token, reply }),
        }
        None
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    fn insert(&self, waiter: Waiter) -> u64 {
        self.0.borrow_mut().insert((waiter, Ticket::default())) as u64
    }
}
