//! A request that waits in the queue of a lock.
//!
//! The queue is a part of the state, and names leases. This module owns the place of one request in
//! it: the request gives the place up when its time is over, when its client closes the connection
//! and when the node stops. The place of a request whose node fails stays until its lease ends, and
//! a client that asks another node meanwhile keeps it.
//!
//! The request looks at the lock whenever its key may have changed, and from time to time: nothing
//! notifies it that its lease has ended, or that an earlier request for the same lease has given
//! the place up. Looking takes no log entry. When it finds that the lease holds the lock, it
//! acquires the lock again, which changes nothing and is answered with the fence.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tidelock_core::auth::Caller;
use tidelock_core::clients::watch_hub::Watched;
use tidelock_core::command::{
    Consistency, KeyScope, LeaseView, LockOperation, LockReply, LockWrite, Read, Refusal, Request,
    StoredValue,
};
use tidelock_core::types::UnixMillis;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::problem::{Problem, ProblemKind};
use super::super::service::Call;
use crate::requests::{self, NoAnswer};
use crate::store::Store;
use crate::watch::{Notification, Watch};

/// How often a request looks whether its client is still there, in case the socket did not wake it.
const CLIENT_CHECK: Duration = Duration::from_secs(1);

/// How often a request looks whether its lease is still there.
const LEASE_CHECK: Duration = Duration::from_secs(5);

/// How often a place is given up before it is left to the end of its lease.
const CANCELLATIONS_MAX: usize = 3;

/// Acquires a lock, and waits until the lease holds it or the time is over. Returns the reply that
/// decides, and the time at which its command was sent.
pub(super) async fn acquire<S: Store>(
    call: &Call<'_, S>,
    acquisition: LockWrite,
    wait: Duration,
) -> Result<(LockReply, UnixMillis), Problem> {
    let scope = KeyScope::Key(acquisition.name.clone());
    // Registered before the lease is queued, so that no hand-over is missed in between.
    let Some(watch) = call.store().watch_registry().watch(Watched::Keys(scope.clone())) else {
        let detail = "as many watchers as this node serves are there; nothing was done";
        return Err(Problem::new(ProblemKind::Overloaded, detail));
    };
    let deadline = Instant::now() + wait;
    let asked = call.context.clock.now();
    let first = call.ask(requests::change_lock(acquisition.clone())).await?;
    if !matches!(first, LockReply::Queued { .. }) {
        return Ok((first, asked));
    }
    // The node's own requests: the client was allowed to acquire the lock, and nothing of their
    // replies is shown to it. Giving up the place must not fail for lack of a permission.
    let store = call.store().for_caller(Caller::Node);
    // The node reports changed keys from the first read of changes on.
    let begin = Read::Changes { scope, after: None, limit: 1, keys_only: true };
    drop(store.submit(Request::Read { read: begin, consistency: Consistency::Stale }).await);
    let request = WaitingRequest { call, store, watch, acquisition, deadline };
    request.run().await
}

/// What a request does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The lock may have been handed over.
    LookAtLock,
    LookAtLease,
    /// The time is over, or the node stops.
    GiveUp,
    /// The client has closed the connection.
    Leave,
}

struct WaitingRequest<'a, 'c, S> {
    call: &'a Call<'c, S>,
    store: S,
    watch: Watch,
    acquisition: LockWrite,
    deadline: Instant,
}

impl<S: Store> WaitingRequest<'_, '_, S> {
    async fn run(self) -> Result<(LockReply, UnixMillis), Problem> {
        // What happened before the node began to report is found by looking.
        let mut next = Next::LookAtLock;
        let mut lease_check = Instant::now() + LEASE_CHECK;
        loop {
            let must_ask = match next {
                Next::LookAtLock => self.may_be_next().await,
                Next::LookAtLease => {
                    lease_check = Instant::now() + LEASE_CHECK;
                    !self.is_queued().await
                }
                Next::GiveUp => return self.cancel().await,
                Next::Leave => {
                    let _ = self.cancel().await;
                    // Nobody reads this answer.
                    return Err(Problem::new(
                        ProblemKind::RequestTimeout,
                        "the client closed the connection",
                    ));
                }
            };
            if must_ask && let Some(decided) = self.ask_again().await? {
                return Ok(decided);
            }
            next = self.until_next(lease_check).await;
        }
    }

    async fn until_next(&self, lease_check: Instant) -> Next {
        let connection = self.call.connection();
        loop {
            let mut client_check = std::pin::pin!(sleep(CLIENT_CHECK));
            let notification = poll_fn(|context| {
                if connection.is_closed_by_peer() {
                    return Poll::Ready(Some(Next::Leave));
                }
                match self.watch.poll_notification(context) {
                    Poll::Ready(Notification::Look) => Poll::Ready(Some(Next::LookAtLock)),
                    Poll::Ready(Notification::Leave) => Poll::Ready(Some(Next::GiveUp)),
                    Poll::Pending => client_check.as_mut().poll(context).map(|()| None),
                }
            });
            let next = tokio::select! {
                biased;
                next = notification => next,
                () = sleep_until(self.deadline) => Some(Next::GiveUp),
                () = sleep_until(lease_check) => Some(Next::LookAtLease),
            };
            if let Some(next) = next {
                return next;
            }
        }
    }

    /// Whether no other lease holds the lock. Without an answer, the next look at the lease
    /// decides.
    async fn may_be_next(&self) -> bool {
        let read = requests::get(self.acquisition.name.clone(), Consistency::Linearizable);
        match self.store.ask(read).await {
            Ok(Some(StoredValue { lease: Some(holder), .. })) => *holder == self.acquisition.lease,
            Ok(_) => true,
            Err(_) => false,
        }
    }

    /// Whether the lease still waits for the lock.
    async fn is_queued(&self) -> bool {
        let read = requests::lease(self.acquisition.lease.clone(), Consistency::Linearizable);
        match self.store.ask(read).await {
            Ok(Some(lease)) => {
                let LeaseView { awaited, .. } = &*lease;
                awaited.contains(&self.acquisition.name)
            }
            Ok(None) => false,
            // Nobody knows now. The next look may find out.
            Err(_) => true,
        }
    }

    /// Acquires the lock again: the reply, unless the lease waits on.
    async fn ask_again(&self) -> Result<Option<(LockReply, UnixMillis)>, Problem> {
        let asked = self.call.context.clock.now();
        match self.call.ask(requests::change_lock(self.acquisition.clone())).await {
            Ok(LockReply::Queued { .. }) => Ok(None),
            Ok(reply) => Ok(Some((reply, asked))),
            Err(problem) if problem.is_about_permission() => {
                let _ = self.cancel().await;
                Err(problem)
            }
            // A later look repeats it.
            Err(_) => Ok(None),
        }
    }

    /// Gives up the place, unless the lease has become the holder.
    async fn cancel(&self) -> Result<(LockReply, UnixMillis), Problem> {
        let LockWrite { name, lease, .. } = self.acquisition.clone();
        let cancellation = LockWrite { name, lease, operation: LockOperation::Cancel { at: UnixMillis(0) } };
        for _ in 0..CANCELLATIONS_MAX {
            let asked = self.call.context.clock.now();
            match self.store.ask(requests::change_lock(cancellation.clone())).await {
                Ok(reply) => return Ok((reply, asked)),
                Err(NoAnswer::Refused(Refusal::Invalid(_) | Refusal::CrossShard) | NoAnswer::Mismatched) => {
                    break;
                }
                Err(NoAnswer::Refused(_)) => {}
            }
        }
        let detail = "the wait is over, but the place in the queue could not be given up: the lease may still become \
                      the holder, until it ends";
        Err(Problem::new(ProblemKind::UnknownOutcome, detail))
    }
}
