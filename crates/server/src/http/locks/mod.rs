//! `/v1/locks/{key}`: acquiring and releasing locks for leases, and showing who holds them.
//!
//! Owns the translation between the core and `tidelock_api::locks`. The state machine decides who
//! holds a lock and who is next; [`waiting`] is about the requests that wait for that.

mod waiting;

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use tidelock_api::locks::{AcquireLock, AcquiredLock, Lock, LockHolder, LockWaiter, ReleaseLock};
use tidelock_core::command::{LockClient, LockOperation, LockReply, LockView, LockWrite};
use tidelock_core::limits;
use tidelock_core::types::UnixMillis;

use super::body::BodyLimit;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::{duration, json, leases, uri};
use crate::requests::{self, NoAnswer};
use crate::store::Store;

/// Operations on locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locks {
    Show,
    Acquire,
    Release,
}

/// The longest time that a request waits for a lock: that of the longest lease.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Longest body: a value in base64 or with escapes, an id, and white space.
const BODY_BYTES_MAX: usize = 8 * limits::LOCK_VALUE_BYTES_MAX;

pub(super) async fn answer<S: Store>(
    call: Call<'_, S>,
    operation: Locks,
    [raw_name, _]: Arguments<'_>,
) -> Result<Response, Problem> {
    let name = uri::key(raw_name)?;
    match operation {
        Locks::Show => show(call, name).await,
        Locks::Acquire => acquire(call, name).await,
        Locks::Release => release(call, name).await,
    }
}

async fn acquire<S: Store>(mut call: Call<'_, S>, name: Bytes) -> Result<Response, Problem> {
    let body = read_body(&mut call).await?;
    let AcquireLock { lease, wait, value, value_b64 } =
        json::parse_object(&body, "an acquisition", "`lease`, and perhaps `wait` and `value`")?;
    let lease = leases::parse_id(&lease)?;
    leases::check_slot(&lease, &name)?;
    let wait = wait.map(|wait| parse_wait(&wait)).transpose()?;
    let value = json::bytes_of("value", (value, value_b64)).map_err(Problem::invalid)?.unwrap_or_default();
    if value.len() > limits::LOCK_VALUE_BYTES_MAX {
        let limit = limits::LOCK_VALUE_BYTES_MAX;
        return Err(Problem::over_limit(ProblemKind::ValueTooLarge, "the value of the lock", limit));
    }
    let operation = LockOperation::Acquire { value, waits: wait.is_some(), at: UnixMillis(0) };
    let acquisition = LockWrite { name, lease, operation };
    let (reply, asked) = match wait {
        None => {
            let asked = call.context.clock.now();
            (call.ask(requests::change_lock(acquisition)).await?, asked)
        }
        Some(wait) => waiting::acquire(&call, acquisition, wait).await?,
    };
    let (fence, valid_for_ms) = held(reply)?;
    let valid_for_ms = leases::remaining_ms(&call, valid_for_ms, asked);
    Ok(response::json(json::encode(&AcquiredLock { fence, valid_for_ms })))
}

/// The fence of an acquisition, and how long its lease lasts at least.
fn held(reply: LockReply) -> Result<(u64, u64), Problem> {
    match reply {
        LockReply::Held { fence, valid_for_ms } => Ok((fence.0, valid_for_ms)),
        LockReply::HeldByOther { .. } | LockReply::Cancelled | LockReply::NotHeld => {
            let detail = "another lease holds the lock; the lock was not acquired";
            Err(Problem::new(ProblemKind::LockHeld, detail))
        }
        LockReply::NoLease => Err(leases::no_such_lease()),
        LockReply::KeyExists { version } => {
            let detail = format!(
                "the name of the lock is a key that clients have stored, with version {version}: choose another name, \
                 or delete the key; nothing was done"
            );
            Err(Problem::new(ProblemKind::KeyExists, detail))
        }
        LockReply::QueueFull => {
            let detail = "as many leases wait for the lock as may, or the lease has as many keys and locks as it may; \
                          nothing was done";
            Err(Problem::new(ProblemKind::Overloaded, detail))
        }
        LockReply::TooMany => Err(leases::too_many()),
        LockReply::Queued { .. } | LockReply::Released => Err(NoAnswer::mismatched().into()),
    }
}

async fn release<S: Store>(mut call: Call<'_, S>, name: Bytes) -> Result<Response, Problem> {
    let body = read_body(&mut call).await?;
    let ReleaseLock { lease } = json::parse_object(&body, "a release", "`lease`")?;
    let lease = leases::parse_id(&lease)?;
    leases::check_slot(&lease, &name)?;
    let release = LockWrite { name, lease, operation: LockOperation::Release };
    match call.ask(requests::change_lock(release)).await? {
        LockReply::Released => Ok(response::empty(StatusCode::NO_CONTENT)),
        LockReply::NotHeld => {
            let detail = "the lease neither holds the lock nor waits for it; nothing was changed";
            Err(Problem::new(ProblemKind::LockNotHeld, detail))
        }
        LockReply::NoLease => Err(leases::no_such_lease()),
        _ => Err(NoAnswer::mismatched().into()),
    }
}

async fn show<S: Store>(mut call: Call<'_, S>, name: Bytes) -> Result<Response, Problem> {
    let consistency = call.parameters().consistency()?;
    let found = call.ask(requests::lock(name.clone(), consistency)).await?;
    let bytes = |client: &LockClient| client.value.len() + client.lease.tag().prefix().len() + 64;
    let queue_bytes = found.as_ref().map_or(0, |lock| lock.queue.iter().map(bytes).sum::<usize>());
    call.reserve(2 * queue_bytes).await?;
    let holder = found.as_deref().map(|LockView { fence, ends, holder, .. }| {
        let (value, value_b64) = json::text_or_base64(&holder.value);
        let valid_for_ms = leases::until(&call, *ends, &name);
        LockHolder { lease: holder.lease.text(), fence: fence.0, valid_for_ms, value, value_b64 }
    });
    let queue = found.iter().flat_map(|lock| &lock.queue).map(waiter).collect();
    let (key, key_b64) = json::text_or_base64(&name);
    Ok(response::json(json::encode(&Lock { key, key_b64, holder, queue })))
}

fn waiter(LockClient { lease, value }: &LockClient) -> LockWaiter<'_> {
    let (value, value_b64) = json::text_or_base64(value);
    LockWaiter { lease: lease.text(), value, value_b64 }
}

fn parse_wait(text: &str) -> Result<Duration, Problem> {
    let wait = duration::parse_ms(text.as_bytes()).map(Duration::from_millis);
    wait.filter(|wait| *wait <= WAIT_MAX).ok_or_else(|| {
        Problem::invalid("`wait` must be such as 30s or 1500ms, and at most 24h; nothing was done")
    })
}

async fn read_body<S: Store>(call: &mut Call<'_, S>) -> Result<Bytes, Problem> {
    call.read_body(BodyLimit::Form(BODY_BYTES_MAX.min(call.context.options.body_bytes_max))).await
}
