//! `GET /v1/watch`: keys as they change, as server-sent events or one answer.
//!
//! Owns the parameters, the memory for events, and time: the heartbeat and the end of a poll. What
//! is read and sent is decided by the core's [`KeyWatcher`] and [`KeyPoll`]. A client that reads
//! slowly has no read in flight and delays nobody: what it missed is read when it goes on. One that
//! takes nothing is cut like any idle connection.

pub(super) mod cursor;
mod encode;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use tidelock_core::auth::{Demand, Scope, Verb};
use tidelock_core::clients::key_poll::{KeyPoll, KeyPollAnswer, KeyPollStep};
use tidelock_core::clients::key_watcher::{KeyNotice, KeyWatchStep, KeyWatcher, WatchStart};
use tidelock_core::clients::watch_hub::Watched;
use tidelock_core::command::{Consistency, KeyScope, Read, Refusal, Reply, Request};
use tidelock_core::limits;
use tidelock_core::types::UnixMillis;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::events::{EventSource, Events};
use super::heartbeat::Heartbeat;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use super::stream_permission::{PermissionLost, StreamDemand};
use super::{duration, ttl, uri};
use crate::clock::WallClock;
use crate::memory::{Memory, Reservation};
use crate::store::Store;
use crate::watch::{Notification, Watch};
use cursor::Cursor;

/// The longest time that a poll waits.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Memory for one read of changes and its encoding.
const READ_BYTES: usize = 2 * limits::CHANGES_BYTES_CLOSE;

pub(super) async fn answer<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let parameters = call.parameters();
    let scope = match (parameters.key_bytes("key")?, parameters.key_bytes("prefix")?) {
        (Some(key), None) => KeyScope::Key(uri::checked_key(key)?),
        (None, Some(prefix)) => {
            uri::check_key_length(&prefix, "prefix")?;
            KeyScope::Prefix(prefix)
        }
        _ => return Err(Problem::invalid("give either key or prefix; an empty prefix means all keys")),
    };
    let keys_only = parameters.flag("keys_only")?;
    let wait = parameters.get("wait")?.map(|text| parse_wait(&text)).transpose()?;
    let start = start_of(&call, wait.is_some())?;
    // Registered before the first read, so that no change is missed in between.
    let Some(watch) = call.store().watch_registry().watch(Watched::Keys(scope.clone())) else {
        let detail = "as many watchers as this node serves are there; nothing was done";
        return Err(Problem::new(ProblemKind::Overloaded, detail));
    };
    let mut permission_lost = call.permission_lost(StreamDemand::WatchKeys(scope.clone()));
    let client = WatchClient {
        store: call.store().clone(),
        watch,
        clock: call.context.clock,
        cluster: call.context.cluster,
        scope,
        keys_only,
    };
    if let Some(wait) = wait {
        client.check_permission().await?;
        return tokio::select! {
            biased;
            () = &mut permission_lost => Err(client.withdrawn()),
            polled = client.poll(start, wait) => polled,
        };
    }
    let mut watcher = KeyWatcher::new(client.scope.clone(), keys_only, start.unwrap_or(WatchStart::State));
    let first = client.advance(&mut watcher).await?;
    let heartbeat = Heartbeat::new(client.clock, &client.watch);
    let events = KeyEventStream {
        outbox: Some(client.encode(first)),
        client,
        watcher,
        memory: call.context.memory.clone(),
        read_in_progress: None,
        permission_lost,
        heartbeat,
    };
    let mut response = response::events(Events::new(events));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn parse_wait(text: &[u8]) -> Result<Duration, Problem> {
    let wait = duration::parse_ms(text).map(Duration::from_millis).filter(|wait| *wait <= WAIT_MAX);
    wait.ok_or_else(|| {
        Problem::invalid(format!("wait must be such as 30s or 1500ms, and at most {}s", WAIT_MAX.as_secs()))
    })
}

/// Where the client begins; `None` if it did not say. The header is that of clients that reconnect
/// by themselves, so it is newer than the parameter.
fn start_of<S: Store>(call: &Call<'_, S>, is_poll: bool) -> Result<Option<WatchStart>, Problem> {
    let header = call.headers().get("last-event-id").filter(|id| !id.is_empty() && !is_poll);
    let parameter = call.parameters().get("after")?;
    let text = header.map(HeaderValue::as_bytes).or(parameter.as_deref());
    match text {
        None => Ok(None),
        Some(b"now") => Ok(Some(WatchStart::Now)),
        Some(text) => match cursor::decode(call.context.cluster, text) {
            Some(Cursor::Here(position)) => Ok(Some(WatchStart::After(position))),
            Some(Cursor::Foreign) => Ok(None),
            None => Err(Problem::invalid("after must be the cursor of an earlier answer or event, or now")),
        },
    }
}

/// A client, and what it watches.
struct WatchClient<S> {
    store: S,
    watch: Watch,
    clock: WallClock,
    cluster: Uuid,
    scope: KeyScope,
    keys_only: bool,
}

impl<S: Store> WatchClient<S> {
    /// Lets the core name the permission that is missing, by a read that asks no other node.
    async fn check_permission(&self) -> Result<(), Problem> {
        let (scope, consistency) = (self.scope.clone(), Consistency::Stale);
        let read = Read::Changes { scope, after: None, limit: 1, keys_only: true };
        match self.store.submit(Request::Read { read, consistency }).await {
            Reply::Refused(refusal @ (Refusal::Forbidden(_) | Refusal::Unauthenticated)) => {
                Err(refusal.into())
            }
            _ => Ok(()),
        }
    }

    /// The refusal of a poll that loses the permission while it waits.
    fn withdrawn(&self) -> Problem {
        let scope = match &self.scope {
            KeyScope::Key(key) => Scope::Key(key),
            KeyScope::Prefix(prefix) => Scope::Keys { prefix },
        };
        let needed = Demand { verb: Verb::Watch, scope };
        let detail = format!("this needs the permission `{needed}`, or the token is not valid any more");
        Problem::new(ProblemKind::Forbidden, detail)
    }

    fn now(&self, key: &[u8]) -> UnixMillis {
        ttl::leader_time(&self.store, self.clock, key)
    }

    fn encode(&self, notice: KeyNotice) -> Bytes {
        encode::events(&notice, self.cluster, |key| self.now(key))
    }

    /// Takes the watcher's steps until there is something to send. One that begins always has
    /// something.
    async fn advance(&self, watcher: &mut KeyWatcher) -> Result<KeyNotice, Problem> {
        loop {
            match watcher.next_step() {
                KeyWatchStep::Ask { read, consistency } => {
                    watcher.answered(self.store.submit(Request::Read { read, consistency }).await);
                }
                KeyWatchStep::Tell(notice) => return Ok(notice),
                KeyWatchStep::Wait => return Ok(KeyNotice::default()),
                KeyWatchStep::End(refusal) => return Err(refusal.into()),
            }
        }
    }

    /// One answer: the changes after the client's cursor, as soon as there are any, or none when
    /// the time is over.
    async fn poll(&self, start: Option<WatchStart>, wait: Duration) -> Result<Response, Problem> {
        let after = match start {
            Some(WatchStart::After(position)) => Some(position),
            Some(WatchStart::State | WatchStart::Now) | None => None,
        };
        let mut poll = KeyPoll::new(self.scope.clone(), self.keys_only, after);
        let deadline = Instant::now() + wait;
        loop {
            match poll.next_step() {
                KeyPollStep::Ask { read, consistency } => {
                    poll.answered(self.store.submit(Request::Read { read, consistency }).await);
                }
                KeyPollStep::Answer(answer) => return Ok(self.respond(&answer)),
                KeyPollStep::End(refusal) => return Err(refusal.into()),
                KeyPollStep::Wait => {
                    let notification = poll_fn(|context| self.watch.poll_notification(context));
                    let left = deadline.saturating_duration_since(Instant::now());
                    match timeout(left, notification).await {
                        Ok(Notification::Look) if !left.is_zero() => {
                            self.watch.with_matched(|matched, _| poll.notified(matched));
                        }
                        Ok(_) | Err(_) => {
                            let answer = self.watch.with_matched(|matched, due| poll.time_over(matched, due));
                            return Ok(self.respond(&answer?));
                        }
                    }
                }
            }
        }
    }

    fn respond(&self, answer: &KeyPollAnswer) -> Response {
        response::json(encode::answer(answer, self.cluster, |key| self.now(key)))
    }
}

/// A read in progress.
type Asking = Pin<Box<dyn Future<Output = Reply>>>;

/// A read for a watcher, from the wait for memory until the events of its answer are encoded.
struct WatchRead {
    /// Memory for the read in progress and for the events of its answer.
    reservation: Option<Reservation>,
    /// A read that waits for memory.
    planned: Option<Request>,
    asking: Option<Asking>,
}

/// The events of one watcher.
struct KeyEventStream<S> {
    client: WatchClient<S>,
    watcher: KeyWatcher,
    outbox: Option<Bytes>,
    memory: Memory,
    /// In a box, because most watchers wait for a change and read nothing.
    read_in_progress: Option<Box<WatchRead>>,
    permission_lost: PermissionLost,
    heartbeat: Heartbeat,
}

impl<S: Store> KeyEventStream<S> {
    /// The next step of the watcher has something to send, or waits; `None` ends the stream.
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Option<KeyNotice>> {
        loop {
            if let Some(read_in_progress) = &mut self.read_in_progress {
                if let Some(request) = read_in_progress.planned.take() {
                    let reservation =
                        read_in_progress.reservation.get_or_insert_with(|| self.memory.request());
                    if reservation.poll_grow_to(READ_BYTES, context).is_pending() {
                        read_in_progress.planned = Some(request);
                        return Poll::Pending;
                    }
                    let store = self.client.store.clone();
                    read_in_progress.asking = Some(Box::pin(async move { store.submit(request).await }));
                }
                if let Some(asking) = &mut read_in_progress.asking {
                    let Poll::Ready(reply) = asking.as_mut().poll(context) else { return Poll::Pending };
                    read_in_progress.asking = None;
                    self.watcher.answered(reply);
                }
            }
            match self.watcher.next_step() {
                KeyWatchStep::Ask { read, consistency } => {
                    let new = || WatchRead { reservation: None, planned: None, asking: None }.into();
                    let request = Request::Read { read, consistency };
                    self.read_in_progress.get_or_insert_with(new).planned = Some(request);
                }
                KeyWatchStep::Tell(notice) => return Poll::Ready(Some(notice)),
                // The client comes back and finds another node.
                KeyWatchStep::End(_) => return Poll::Ready(None),
                KeyWatchStep::Wait => {
                    self.read_in_progress = None;
                    match self.client.watch.poll_notification(context) {
                        Poll::Ready(Notification::Leave) => return Poll::Ready(None),
                        Poll::Ready(Notification::Look) => {
                            let watcher = &mut self.watcher;
                            self.client.watch.with_matched(|matched, _| watcher.notified(matched));
                        }
                        Poll::Pending => return Poll::Pending,
                    }
                }
            }
        }
    }
}

impl<S: Store> EventSource for KeyEventStream<S> {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // Before what is queued: nothing more is shown.
        if self.permission_lost.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            if let Some(bytes) = self.outbox.take() {
                self.heartbeat.restart(&self.client.watch);
                return Poll::Ready(Some(bytes));
            }
            match self.poll_step(context) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(notice)) => {
                    let bytes = self.client.encode(notice);
                    self.outbox = Some(
                        match self
                            .read_in_progress
                            .as_mut()
                            .and_then(|read_in_progress| read_in_progress.reservation.take())
                        {
                            Some(mut reservation) => {
                                reservation.set(bytes.len());
                                reservation.hold(bytes)
                            }
                            None => bytes,
                        },
                    );
                }
                Poll::Pending if self.heartbeat.poll(context).is_ready() => {
                    self.heartbeat.restart(&self.client.watch);
                    if self.read_in_progress.is_none() {
                        let watcher = &mut self.watcher;
                        self.client.watch.with_matched(|matched, due| watcher.heartbeat(matched, due));
                    } else {
                        self.outbox = Some(Bytes::from_static(b":\n\n"));
                    }
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
