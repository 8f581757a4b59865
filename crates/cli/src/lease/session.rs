//! A lease that this process renews for as long as it needs it.
//!
//! Owns the rhythm of renewals, and until when the lease lasts by the clock of this machine:
//! counted from before each renewal was sent, so the lease never ends earlier. Requests block, so
//! they run on threads of their own, and none can delay the moment at which the lease counts as
//! lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidelock_client::{CliError, Client};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::ClientArgs;

/// Renewals in one time to live: two may fail without the lease being lost.
const RENEWALS_PER_TTL: u32 = 3;

/// How often nodes can be asked within the time for one renewal: the next one is asked while the
/// lease lasts, although the first one hangs and was the leader.
const ATTEMPTS_PER_RENEWAL: u32 = 2;

/// Pause after a renewal without an answer.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A lease that is renewed.
#[derive(Clone)]
pub struct LeaseSession {
    /// The id.
    pub id: String,
    /// How long it lasts without a renewal.
    pub ttl: Duration,
    /// A client that gives up in time for the next renewal.
    pub client: Arc<Client>,
}

/// Until when a lease lasts at least, by the clock of this machine.
pub struct Validity {
    until: watch::Sender<Instant>,
}

/// Why a lease is not renewed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseLost {
    /// It has ended, or was revoked.
    Ended,
    /// No node has renewed it in time, so it may have ended.
    Unreachable,
}

impl fmt::Display for LeaseLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeaseLost::Ended => "the lease has ended, or was revoked",
            LeaseLost::Unreachable => "no node has renewed the lease in time, so it may have ended",
        })
    }
}

impl Validity {
    /// The validity of a lease that was just granted or read.
    pub fn starting_now(valid_for: Duration) -> Validity {
        Validity { until: watch::Sender::new(Instant::now() + valid_for) }
    }

    /// Completes when the lease lasts no longer than `margin`, whatever renewals come until then.
    pub async fn ends_within(&self, margin: Duration) {
        let mut renewals = self.until.subscribe();
        loop {
            let until = *renewals.borrow_and_update();
            tokio::select! {
                () = sleep_until(until.checked_sub(margin).unwrap_or(until)) => return,
                // The sender is `self`.
                _ = renewals.changed() => {}
            }
        }
    }
}

impl LeaseSession {
    /// Renews the lease until it is lost.
    pub async fn renew_until_lost(&self, validity: &Validity) -> LeaseLost {
        tokio::select! {
            biased;
            () = validity.ends_within(Duration::ZERO) => LeaseLost::Unreachable,
            () = self.renew_until_ended(validity) => LeaseLost::Ended,
        }
    }

    /// Renews the lease until the answer is that it has ended.
    async fn renew_until_ended(&self, validity: &Validity) {
        loop {
            let asked = Instant::now();
            let (client, ids) = (self.client.clone(), vec![self.id.clone()]);
            let renewed = blocking(move || super::renew(&client, &ids)).await;
            let lease = renewed.ok().and_then(|renewed| renewed.leases.into_iter().next());
            match lease {
                Some(lease) if lease.problem.as_deref() == Some("no-such-lease") => return,
                Some(lease) if lease.valid_for_ms.is_some() => {
                    let valid_for = Duration::from_millis(lease.valid_for_ms.unwrap_or_default());
                    validity.until.send_replace(asked + valid_for);
                    sleep(self.ttl / RENEWALS_PER_TTL).await;
                }
                _ => sleep(RETRY_PAUSE).await,
            }
        }
    }
}

/// A client for requests about a lease: it gives up in time for the next renewal.
pub fn client(args: &ClientArgs, ttl: Duration) -> Result<Client, CliError> {
    giving_up_after(ttl / RENEWALS_PER_TTL / ATTEMPTS_PER_RENEWAL, args)
}

/// A client that asks for a lease. A node without a leader answers only after its request timeout.
pub fn granting_client(args: &ClientArgs, ttl: Duration) -> Result<Client, CliError> {
    giving_up_after(ttl / RENEWALS_PER_TTL, args)
}

fn giving_up_after(timeout: Duration, args: &ClientArgs) -> Result<Client, CliError> {
    let timeout = timeout.min(Duration::from_millis(args.timeout_ms));
    Ok(Client::new(args.connection.resolve()?, timeout))
}

/// The runtime of a command that does several things at once.
pub fn runtime() -> Result<Runtime, CliError> {
    Builder::new_current_thread().enable_all().build().map_err(CliError::io("the runtime of the command"))
}

/// Runs a request on a thread of its own.
pub async fn blocking<A: Send + 'static>(
    request: impl FnOnce() -> Result<A, CliError> + Send + 'static,
) -> Result<A, CliError> {
    match tokio::task::spawn_blocking(request).await {
        Ok(outcome) => outcome,
        Err(error) => Err(CliError::Stopped(format!("a request was interrupted: {error}"))),
    }
}
