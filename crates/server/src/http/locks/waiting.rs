//! A request that waits for a lock.
//!
//! Owns its watcher, its times and its connection. What it asks and when it ends is decided by the
//! core's [`LockWait`].

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tidelock_core::auth::Caller;
use tidelock_core::clients::lock_wait::{LockWait, LockWaitEnd, LockWaitStep};
use tidelock_core::clients::watch_hub::Watched;
use tidelock_core::command::{KeyScope, LockReply, LockWrite};
use tidelock_core::deliberate::Faults;
use tidelock_core::types::UnixMillis;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::problem::{Problem, ProblemKind};
use super::super::service::Call;
use crate::requests::NoAnswer;
use crate::store::Store;
use crate::watch::{Notification, Watch};

/// Interval at which a request checks that its client is still connected, in case the socket did
/// not wake it.
const CLIENT_CHECK: Duration = Duration::from_secs(1);

/// Interval at which a request checks that its lease is still in the queue.
const LEASE_CHECK: Duration = Duration::from_secs(5);

/// Acquires a lock, and waits until the lease holds it or the time is over. Returns the reply that
/// decides, and the time at which its command was sent.
pub(super) async fn acquire<S: Store>(
    call: &Call<'_, S>,
    acquisition: LockWrite,
    wait: Duration,
) -> Result<(LockReply, UnixMillis), Problem> {
    let watched = Watched::Keys(KeyScope::Key(acquisition.name.clone()));
    let Some(watch) = call.store().watch_registry().watch(watched) else {
        let detail = "as many watchers as this node serves are there; nothing was done";
        return Err(Problem::new(ProblemKind::Overloaded, detail));
    };
    let deadline = Instant::now() + wait;
    let store_of_node = call.store().for_caller(Caller::Node);
    let mut lease_check = Instant::now() + LEASE_CHECK;
    let mut asked = call.context.clock.now();
    let mut machine = LockWait::new(acquisition, Faults::NONE);
    loop {
        match machine.next_step() {
            LockWaitStep::Ask { request, is_of_client } => {
                asked = call.context.clock.now();
                let reply = if is_of_client {
                    call.submit(request).await
                } else {
                    store_of_node.submit(request).await
                };
                machine.answered(reply);
            }
            LockWaitStep::Wait => match next_event(call, &watch, deadline, lease_check).await {
                WaitEvent::Notified => machine.notified(),
                WaitEvent::LeaseCheck => {
                    lease_check = Instant::now() + LEASE_CHECK;
                    machine.check_lease();
                }
                WaitEvent::TimeOver => machine.give_up(),
                WaitEvent::ClientLeft => machine.client_left(),
            },
            LockWaitStep::End(end) => return Ok((decided(end)?, asked)),
        }
    }
}

fn decided(end: LockWaitEnd) -> Result<LockReply, Problem> {
    match end {
        LockWaitEnd::Decided(reply) => Ok(reply),
        LockWaitEnd::NoAnswer(error) => Err(NoAnswer::from(error).into()),
        LockWaitEnd::StillQueued => {
            let detail = "the wait is over, but the place in the queue could not be given up: the lease may still \
                          become the holder, until it ends";
            Err(Problem::new(ProblemKind::UnknownOutcome, detail))
        }
        // Nobody reads this answer.
        LockWaitEnd::ClientLeft => {
            Err(Problem::new(ProblemKind::RequestTimeout, "the client closed the connection"))
        }
    }
}

/// What happens to a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitEvent {
    Notified,
    LeaseCheck,
    /// The time is over, or the node stops.
    TimeOver,
    /// The client has closed the connection.
    ClientLeft,
}

async fn next_event<S: Store>(
    call: &Call<'_, S>,
    watch: &Watch,
    deadline: Instant,
    lease_check: Instant,
) -> WaitEvent {
    let connection = call.connection();
    loop {
        let mut client_check = std::pin::pin!(sleep(CLIENT_CHECK));
        let notification = poll_fn(|context| {
            if connection.is_closed_by_peer() {
                return Poll::Ready(Some(WaitEvent::ClientLeft));
            }
            match watch.poll_notification(context) {
                Poll::Ready(Notification::Look) => Poll::Ready(Some(WaitEvent::Notified)),
                Poll::Ready(Notification::Leave) => Poll::Ready(Some(WaitEvent::TimeOver)),
                Poll::Pending => client_check.as_mut().poll(context).map(|()| None),
            }
        });
        let event = tokio::select! {
            biased;
            event = notification => event,
            () = sleep_until(deadline) => Some(WaitEvent::TimeOver),
            () = sleep_until(lease_check) => Some(WaitEvent::LeaseCheck),
        };
        if let Some(event) = event {
            return event;
        }
    }
}
