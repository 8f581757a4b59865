//! `tidelock lock`: holds a lock while a command runs, and shows locks.
//!
//! Owns the order of events: the lease first, then the lock, then the command; and at the end the
//! command first, then the lease, and with it the lock. The command never runs longer than the
//! lease lasts, as far as the clock of this machine can tell.

mod guard;
mod guarded_command;

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidelock_api::locks::{AcquireLock, AcquiredLock, Lock, LockHolder, LockWaiter};
use tidelock_client::{Call, CliError, Client, Response, keys, output};
use tidelock_core::command::LeaseTag;
use tokio::time::{Instant, sleep, timeout};

use crate::args::LockArgs;
use crate::item;
use crate::lease::session::{self, LeaseSession, Validity, blocking};
use crate::lease::{self, seconds};
use guarded_command::{CommandEnd, GuardedCommand, Signals};

/// Pause after an attempt to acquire the lock that no node has answered.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The longest wait that one request asks for: a node does not wait longer.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// How long the end of the lease is tried.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `lock`.
pub fn run(args: &LockArgs) -> Result<(), CliError> {
    if args.show {
        return show(args);
    }
    let runtime = session::runtime()?;
    let outcome = match args.holder {
        Some(holder) => runtime.block_on(guard::run(holder, &args.command)),
        None => runtime.block_on(hold(args)),
    };
    // A request may still wait for the lock.
    runtime.shutdown_background();
    outcome
}

async fn hold(args: &LockArgs) -> Result<(), CliError> {
    // Before anything is acquired, so that no signal ends this process without giving it up.
    let mut signals = Signals::new()?;
    let tag = LeaseTag::of_key(&args.name.0).ok_or_else(|| {
        CliError::Usage(
            "the name of the lock, or its tag in braces, must be text of at most 256 bytes without }"
                .to_owned(),
        )
    })?;
    let granting = Arc::new(session::granting_client(&args.client, args.ttl)?);
    let client = Arc::new(session::client(&args.client, args.ttl)?);
    let deadline = args.wait.map(|wait| Instant::now() + wait);
    let (id, validity) = tokio::select! {
        granted = grant(args.ttl, tag.tag(), &granting, deadline) => granted?,
        signal = signals.next() => {
            return Err(CliError::Command(guarded_command::code_of_signal(signal)));
        }
    };
    let session = LeaseSession { id, ttl: args.ttl, client };
    let fence = tokio::select! {
        biased;
        fence = acquire(args, &session, deadline) => fence,
        signal = signals.next() => Err(CliError::Command(guarded_command::code_of_signal(signal))),
        lost = session.renew_until_lost(&validity) => {
            Err(CliError::Failed(format!("the lock was not acquired: {lost}")))
        }
    };
    let outcome = match fence {
        Ok(fence) => {
            let command = GuardedCommand { args, session: &session, fence };
            run_command(&command, &validity, &mut signals).await
        }
        Err(error) => Err(error),
    };
    end(&session).await;
    outcome
}

async fn run_command(
    command: &GuardedCommand<'_>,
    validity: &Validity,
    signals: &mut Signals,
) -> Result<(), CliError> {
    match command.run(validity, signals).await? {
        CommandEnd::Exited(0) => Ok(()),
        CommandEnd::Exited(code) => Err(CliError::Command(code)),
        CommandEnd::Killed(lost) => Err(CliError::Failed(format!("the command was killed: {lost}"))),
    }
}

/// Ends the lease, and with it the lock. If no node does that now, they end by themselves.
async fn end(session: &LeaseSession) {
    let (client, target) = (session.client.clone(), lease::path(&session.id));
    let revoke = blocking(move || client.ask(&Call { may_repeat: true, ..Call::delete(target) }));
    match timeout(REVOKE_TIMEOUT, revoke).await {
        Ok(Ok(answer)) if matches!(answer.status, 204 | 404) => {}
        _ => eprintln!("the lock could not be released; it ends with its lease, within {:?}", session.ttl),
    }
}

/// The lease that is to hold the lock. Tried until `deadline` while a leader is being elected.
async fn grant(
    ttl: Duration,
    tag: &str,
    client: &Arc<Client>,
    deadline: Option<Instant>,
) -> Result<(String, Validity), CliError> {
    loop {
        let validity = Validity::starting_now(ttl);
        let (granting, tag) = (client.clone(), tag.to_owned());
        let answer = blocking(move || lease::ask_to_grant(&granting, ttl, Some(&tag))).await?;
        if !is_transient(&answer) || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok((lease::granted(answer)?.id, validity));
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Whether a node had no leader to ask, or does not know what the leader has done.
fn is_transient(answer: &Response) -> bool {
    matches!(answer.status, 503 | 504)
}

/// Waits until the lease holds the lock. Returns the fence.
async fn acquire(
    args: &LockArgs,
    session: &LeaseSession,
    deadline: Option<Instant>,
) -> Result<u64, CliError> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = left.unwrap_or(REQUEST_WAIT_MAX).min(REQUEST_WAIT_MAX);
        let answered = tokio::select! {
            answered = ask(args, session, wait) => answered,
            // The node that the request waits at may have failed without ending the connection.
            () = until_held(session) => ask(args, session, Duration::ZERO).await,
        };
        let is_over = left.is_some_and(|left| left.is_zero());
        match answered {
            Ok(answer) if answer.status == 200 => {
                let acquired: AcquiredLock = answer.json()?;
                return Ok(acquired.fence);
            }
            Ok(answer) if answer.problem().as_deref() == Some("lock-held") && !is_over => {}
            Ok(answer) if is_transient(&answer) && !is_over => sleep(RETRY_PAUSE).await,
            Ok(answer) => return Err(answer.refusal()),
            Err(error @ CliError::Unreachable(_)) if !is_over => {
                output::progress(&error.to_string());
                sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn ask(args: &LockArgs, session: &LeaseSession, wait: Duration) -> Result<Response, CliError> {
    let (value, value_b64) = item::encode(args.value.as_bytes());
    let wait_text = (!wait.is_zero()).then(|| format!("{}ms", wait.as_millis()));
    let acquisition = AcquireLock { lease: session.id.clone(), wait: wait_text, value, value_b64 };
    let target = format!("{}/acquire", path(&args.name.0));
    let timeout = Duration::from_millis(args.client.timeout_ms) + wait;
    let client = Client::new(args.client.connection.resolve()?, timeout);
    // Acquired twice for one lease is acquired once.
    blocking(move || client.ask(&Call::post(target, json!(acquisition).to_string().as_bytes()))).await
}

/// Completes once the lease holds a lock, which no request may have been told.
async fn until_held(session: &LeaseSession) {
    loop {
        sleep(session.ttl).await;
        let (client, target) = (session.client.clone(), lease::path(&session.id));
        let found = blocking(move || client.ask_for(200, &Call::get(target))).await;
        let is_held = |answer: Response| {
            let lease: Result<tidelock_api::leases::Lease<'_>, _> = answer.json();
            lease.is_ok_and(|lease| !lease.held.is_empty())
        };
        if found.is_ok_and(is_held) {
            return;
        }
    }
}

fn path(name: &[u8]) -> String {
    format!("/v1/locks/{}", keys::query_value(name))
}

fn show(args: &LockArgs) -> Result<(), CliError> {
    let answer = args.client.client()?.ask_for(200, &Call::get(path(&args.name.0)))?;
    output::answer(args.client.output, &answer, || {
        let Lock { holder, queue, .. } = answer.json()?;
        let Some(LockHolder { lease, fence, valid_for_ms, value, value_b64 }) = holder else {
            return Ok("nobody holds the lock".to_owned());
        };
        let mut rows = vec![vec![
            "holds".to_owned(),
            lease,
            shown(value.as_deref(), value_b64.as_deref()),
            format!("fence {fence}, valid for {}", seconds(valid_for_ms)),
        ]];
        rows.extend(queue.into_iter().map(|LockWaiter { lease, value, value_b64 }| {
            let value = shown(value.as_deref(), value_b64.as_deref());
            vec!["waits".to_owned(), lease, value, String::new()]
        }));
        Ok(output::table(&["", "LEASE", "VALUE", ""], rows))
    })
}

fn shown(value: Option<&str>, value_b64: Option<&str>) -> String {
    item::decode(value, value_b64).map(|value| keys::printable(&value)).unwrap_or_default()
}
