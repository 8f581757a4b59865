//! Who on this worker waits for which reply.
//!
//! Owns the numbers of open requests: each is one waiter's until its one reply came. It knows nothing of where requests go.
//! A waiter that is gone is no fault: its request was taken, and is answered all the same.

use std::cell::RefCell;
use std::rc::Rc;

use slab::Slab;
use tidelock_core::command::Reply;
use tidelock_core::fairness::Ticket;
use tidelock_core::types::Token;
use tokio::sync::oneshot;

use crate::store::Mailbox;

/// Those who wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting(RefCell<Slab<(Waiter, Ticket)>>);

#[derive(Debug)]
enum Waiter {
    Task(oneshot::Sender<Reply>),
    Mailbox(Rc<Mailbox>, u64),
    /// A worker and its own token.
    Worker(usize, Token),
}

/// A reply that another worker waits for.
#[derive(Debug)]
pub(crate) struct Crossing {
    pub worker: usize,
    pub token: Token,
    pub reply: Reply,
}

impl Waiting {
    /// A number, and the reply to the request that bears it.
    pub fn in_task(&self) -> (u64, oneshot::Receiver<Reply>) {
        let (sender, receiver) = oneshot::channel();
        (self.insert(Waiter::Task(sender)), receiver)
    }

    /// A number; the reply to the request that bears it goes to `mailbox`, bearing `tag`.
    pub fn at_mailbox(&self, mailbox: &Rc<Mailbox>, tag: u64) -> u64 {
        self.insert(Waiter::Mailbox(mailbox.clone(), tag))
    }

    /// A number for a request of another worker, which knows it by `token`.
    pub fn at_worker(&self, worker: usize, token: Token) -> u64 {
        self.insert(Waiter::Worker(worker, token))
    }

    /// The node has taken the request of this number.
    pub fn set_ticket(&self, number: u64, ticket: Ticket) {
        self.0.borrow_mut()[number as usize].1 = ticket;
    }

    /// The ticket of a request that the node has taken.
    pub fn ticket(&self, number: u64) -> Ticket {
        self.0.borrow()[number as usize].1
    }

    /// Hands a reply to whom it belongs, or returns it if that is on another worker. The number is free again.
    pub fn answer(&self, number: u64, reply: Reply) -> Option<Crossing> {
        let (waiter, _) = self.0.borrow_mut().remove(number as usize);
        match waiter {
            // The client may have gone away; the request was answered all the same.
            Waiter::Task(sender) => drop(sender.send(reply)),
            Waiter::Mailbox(mailbox, tag) => mailbox.deliver(tag, reply),
            Waiter::Worker(worker, token) => return Some(Crossing { worker, token, reply }),
        }
        None
    }

    /// Requests that are not answered.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    fn insert(&self, waiter: Waiter) -> u64 {
        self.0.borrow_mut().insert((waiter, Ticket::default())) as u64
    }
}
