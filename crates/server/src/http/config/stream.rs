//! Watchers of configuration: clients that are notified when a container, or any container of a
//! namespace, resolves to something else.
//!
//! There are two ways to watch: server-sent events, which continue as long as the connection, and
//! long polls, which end with the first change. Both drive a [`Watcher`] of the core, which decides
//! what to look up and what to send. It reads this node's own replica when the watch registry
//! notifies it. So any node serves watchers, and a watcher without changes costs nothing but its
//! entry.
//!
//! Owns the encoding of events, the memory for them, and time: heartbeats and the end of long
//! polls. A slow reader delays no other client: what it missed is looked up when it reads on. A
//! reader that takes nothing is cut like any idle connection.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use tidelock_api::config as api;
use tidelock_core::auth::{Demand, Scope, Verb};
use tidelock_core::clients::watch_hub::Watched;
use tidelock_core::clients::watcher::{Notice, WatchError, WatchEvent, WatchScope, WatchStep, Watcher};
use tidelock_core::command::config::{ConfigReply, Name, Query, WatchPosition};
use tidelock_core::command::{ConfigRead, Consistency};
use tidelock_core::deliberate::Faults;
use tokio::time::{Instant, timeout};

use super::super::events::{EventSource, Events};
use super::super::heartbeat::Heartbeat;
use super::super::problem::{Problem, ProblemKind};
use super::super::response::{self, Response};
use super::super::service::Call;
use super::super::stream_permission::{PermissionLost, StreamDemand};
use super::error::ApiError;
use super::{label, position, show, text};
use crate::memory::{Memory, Reservation};
use crate::readers::{NewReader, ReaderEntry};
use crate::requests::{self, NoAnswer};
use crate::store::Store;
use crate::watch::{self, Watch};

/// Bytes of an event besides the document.
const EVENT_BYTES: usize = 1 << 10;

/// The default and the largest time that a long poll waits.
const WAIT: Duration = Duration::from_secs(30);
const WAIT_MAX: Duration = Duration::from_secs(300);

/// The registration of a client.
struct Registration {
    watch: Watch,
    /// Who the client is, and what it watches.
    entry: ReaderEntry,
}

impl Registration {
    fn namespace(&self) -> &Name {
        &self.entry.reader().namespace
    }

    fn scope(&self) -> &WatchScope {
        &self.entry.reader().scope
    }
}

/// `GET …/watch` of a container or a namespace: events, or a long poll if `index` or `wait` is
/// given.
pub(super) async fn watch<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    scope: WatchScope,
) -> Result<Response, ApiError> {
    let parameters = call.parameters();
    let wait = text(parameters, "wait")?;
    let index = parameters.get("index")?.map(|index| parse_position(&scope, &index, "index")).transpose()?;
    let last = call.headers().get("last-event-id");
    let last = last.map(|id| parse_position(&scope, id.as_bytes(), "Last-Event-ID")).transpose()?;
    let is_poll = index.is_some() || wait.is_some();
    // Registered before the first read, so that no change is missed in between.
    let last = if is_poll { index } else { last };
    let registration = register(&call, (namespace, scope), last.as_ref(), is_poll)?;
    let demand = StreamDemand::ReadNamespace(registration.namespace().clone());
    let mut permission_lost = call.permission_lost(demand);
    if is_poll {
        let wait = wait.map_or(Ok(WAIT), |text| duration(&text))?;
        return tokio::select! {
            biased;
            () = &mut permission_lost => Err(withdrawn(registration.namespace()).into()),
            polled = poll(call.store(), &registration, last, wait) => polled,
        };
    }
    let watcher = Watcher::new(registration.scope().clone(), last, Faults::NONE);
    let mut watcher = watcher.with_label(&registration.entry.reader().label);
    let first = advance(call.store(), registration.namespace(), &mut watcher).await?;
    let heartbeat = Heartbeat::new(call.context.clock, &registration.watch);
    let mut events = EventStream {
        store: call.store().clone(),
        registration,
        watcher,
        outbox: VecDeque::from([Bytes::from_static(b"retry: 1000\n\n")]),
        events: VecDeque::new(),
        current: None,
        memory: call.context.memory.clone(),
        reservation: None,
        asking: None,
        permission_lost,
        heartbeat,
    };
    first.into_iter().for_each(|notice| events.take(notice));
    let mut response = response::events(Events::new(events));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Registers the client for notifications, and for the list of readers.
fn register<S: Store>(
    call: &Call<'_, S>,
    (namespace, scope): (Name, WatchScope),
    last: Option<&WatchPosition>,
    is_poll: bool,
) -> Result<Registration, ApiError> {
    let label = label(call.parameters())?.unwrap_or_default();
    let watched = match &scope {
        WatchScope::Container(key) => Watched::Container { namespace: namespace.clone(), key: key.clone() },
        WatchScope::Namespace => Watched::Namespace(namespace.clone()),
    };
    let watch_registry = call.store().watch_registry();
    let Some(watch) = watch_registry.watch(watched) else {
        return Err(ApiError::overloaded("as many watchers as this node serves are there; nothing was done"));
    };
    let entry = watch_registry.readers().enter(NewReader {
        namespace,
        scope,
        address: call.connection().client_address(),
        principal: call.identity().proof().map(|proof| proof.principal.clone()),
        label: label.as_ref().into(),
        is_poll,
        revision: last.map_or(0, |last| last.revision),
    });
    Ok(Registration { watch, entry })
}

/// The position that a client names. A container has one event a revision, so its position is a
/// revision.
fn parse_position(scope: &WatchScope, text: &[u8], name: &str) -> Result<WatchPosition, ApiError> {
    match scope {
        WatchScope::Container(_) => {
            super::super::uri::parse_u64(text).map(WatchPosition::through).ok_or_else(|| {
                ApiError::invalid(format!("{name} must be a revision: a whole number, 0 or more"))
            })
        }
        WatchScope::Namespace => position::parse(text).ok_or_else(|| {
            ApiError::invalid(format!("{name} must be a revision, or come from this watch unchanged"))
        }),
    }
}

/// The refusal of a long poll that lacks the permission, or loses it while it waits.
fn withdrawn(namespace: &Name) -> Problem {
    let needed = Demand { verb: Verb::Read, scope: Scope::Namespace(namespace.as_str()) };
    let detail = format!("this needs the permission `{needed}`, or the token is not valid any more");
    Problem::new(ProblemKind::Forbidden, detail)
}

/// A duration with a unit, or a number of seconds.
fn duration(text: &str) -> Result<Duration, ApiError> {
    let seconds = || super::uri::parse_u64(text.as_bytes())?.checked_mul(1000);
    let ms = super::super::duration::parse_ms(text.as_bytes()).or_else(seconds);
    let wait = ms.map(Duration::from_millis).filter(|wait| *wait <= WAIT_MAX);
    let max = WAIT_MAX.as_secs();
    wait.ok_or_else(|| ApiError::invalid(format!("wait is such as 30s or 1500ms, and at most {max}s")))
}

/// Takes the watcher's steps until there is something to send. Returns `None` if it waits for a
/// notification.
async fn advance<S: Store>(
    store: &S,
    namespace: &Name,
    watcher: &mut Watcher,
) -> Result<Option<Notice>, ApiError> {
    loop {
        match watcher.next_step() {
            WatchStep::Ask { query, consistency } => {
                watcher.answered(look_up(store, namespace, query, consistency).await);
            }
            WatchStep::Tell(notice) => return Ok(Some(notice)),
            WatchStep::Wait => return Ok(None),
            WatchStep::End(error) => return Err(error.into()),
        }
    }
}

async fn look_up<S: Store>(
    store: &S,
    namespace: &Name,
    query: Query,
    consistency: Consistency,
) -> Result<ConfigReply, WatchError> {
    let read = ConfigRead { namespace: namespace.clone(), query };
    match store.ask(requests::read_config(read, consistency)).await {
        Ok(answer) => answer.map_err(WatchError::Config),
        Err(NoAnswer::Refused(refusal)) => Err(WatchError::Refused(refusal)),
        Err(NoAnswer::Mismatched) => Err(WatchError::Mismatched),
    }
}

/// A long poll: answered at once if there are changes after `index`, else with the first change,
/// else when the time is over.
async fn poll<S: Store>(
    store: &S,
    registration: &Registration,
    index: Option<WatchPosition>,
    wait: Duration,
) -> Result<Response, ApiError> {
    let (namespace, scope) = (registration.namespace(), registration.scope());
    let watcher = Watcher::new(scope.clone(), index.clone(), Faults::NONE);
    let mut watcher = watcher.with_label(&registration.entry.reader().label);
    let mut notice = advance(store, namespace, &mut watcher).await?;
    let deadline = Instant::now() + wait;
    while notice.is_none() {
        let notification = poll_fn(|context| registration.watch.poll_notification(context));
        match timeout(deadline.saturating_duration_since(Instant::now()), notification).await {
            Ok(watch::Notification::Look) => watcher.notified(),
            Ok(watch::Notification::Leave) | Err(_) => break,
        }
        notice = advance(store, namespace, &mut watcher).await?;
    }
    let notice = notice.unwrap_or_default();
    let index = notice.position().or(index).unwrap_or_default();
    let gap = notice.gap_after.is_some();
    let changes = notice.events.iter().map(|event| show::event(namespace, event)).collect();
    Ok(match scope {
        WatchScope::Container(_) => show::respond(api::Changes { index: index.revision, gap, changes }),
        WatchScope::Namespace => {
            let (index, current) = (position::to_text(&index), notice.current);
            show::respond(api::NamespaceChanges { index, gap, current, changes })
        }
    })
}

/// A lookup in progress.
type Asking = Pin<Box<dyn Future<Output = Result<ConfigReply, WatchError>>>>;

/// The events of one watcher.
struct EventStream<S> {
    store: S,
    registration: Registration,
    watcher: Watcher,
    outbox: VecDeque<Bytes>,
    /// Changes that are not encoded yet. Each is encoded once the client has taken the one before
    /// and there is memory for it; until then it shares the replica's data.
    events: VecDeque<WatchEvent>,
    /// After these changes the client knows the namespace's state as of this revision.
    current: Option<u64>,
    memory: Memory,
    /// Memory for the next event.
    reservation: Option<Reservation>,
    asking: Option<Asking>,
    permission_lost: PermissionLost,
    heartbeat: Heartbeat,
}

/// A server-sent event.
fn encode(head: String, data: &api::Event) -> Bytes {
    let mut out = head.into_bytes();
    show::push(&mut out, data);
    out.extend_from_slice(b"\n\n");
    out.into()
}

impl<S: Store> EventStream<S> {
    /// Queues a notice to be sent.
    fn take(&mut self, notice: Notice) {
        if let Some(after) = notice.gap_after {
            let data = show::gap(self.registration.namespace(), self.registration.scope(), after);
            self.outbox.push_back(encode("event: gap\ndata: ".to_owned(), &data));
        }
        self.events.extend(notice.events);
        self.current = notice.current;
    }

    /// The next event, encoded, once there is memory for it.
    fn poll_event(&mut self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        let Some(event) = self.events.front() else { return Poll::Ready(self.take_current()) };
        let document_bytes = event.found.as_ref().map_or(0, |found| found.container.document_bytes);
        let reservation = self.reservation.get_or_insert_with(|| self.memory.request());
        if reservation.poll_grow_to(document_bytes + EVENT_BYTES, context).is_pending() {
            return Poll::Pending;
        }
        let name = if event.found.is_some() { "change" } else { "deleted" };
        let head = format!("id: {}\nevent: {name}\ndata: ", position::to_text(&event.position));
        let bytes = encode(head, &show::event(self.registration.namespace(), event));
        self.registration.entry.sent(event.revision);
        self.events.pop_front();
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        Poll::Ready(Some(match self.reservation.take() {
            Some(reservation) => reservation.hold(bytes),
            None => bytes,
        }))
    }

    fn take_current(&mut self) -> Option<Bytes> {
        let revision = self.current.take()?;
        self.registration.entry.sent(revision);
        let head = format!("id: {revision}\nevent: current\ndata: ");
        Some(encode(head, &show::current(self.registration.namespace(), revision)))
    }

    fn ask(&self, query: Query, consistency: Consistency) -> Asking {
        let (store, namespace) = (self.store.clone(), self.registration.namespace().clone());
        Box::pin(async move { look_up(&store, &namespace, query, consistency).await })
    }
}

impl<S: Store> EventSource for EventStream<S> {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // Before what is queued: nothing more is shown.
        if self.permission_lost.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            if let Some(bytes) = self.outbox.pop_front() {
                if self.outbox.is_empty() {
                    self.outbox = VecDeque::new();
                }
                self.heartbeat.restart(&self.registration.watch);
                return Poll::Ready(Some(bytes));
            }
            match self.poll_event(context) {
                Poll::Ready(Some(bytes)) => {
                    self.outbox.push_back(bytes);
                    continue;
                }
                // A periodic comment shows the client, and proxies that cut idle connections, that
                // the stream is alive.
                Poll::Pending if self.heartbeat.poll(context).is_ready() => {
                    self.outbox.push_back(Bytes::from_static(b":\n\n"));
                    continue;
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {}
            }
            if let Some(asking) = &mut self.asking {
                let Poll::Ready(answer) = asking.as_mut().poll(context) else { return Poll::Pending };
                self.asking = None;
                self.watcher.answered(answer);
            }
            match self.watcher.next_step() {
                WatchStep::Ask { query, consistency } => self.asking = Some(self.ask(query, consistency)),
                WatchStep::Tell(notice) => self.take(notice),
                // The shard has no reachable replica now. The client reconnects and finds one.
                WatchStep::End(_) => return Poll::Ready(None),
                WatchStep::Wait => match self.registration.watch.poll_notification(context) {
                    Poll::Ready(watch::Notification::Leave) => return Poll::Ready(None),
                    Poll::Ready(watch::Notification::Look) => self.watcher.notified(),
                    Poll::Pending if self.heartbeat.poll(context).is_ready() => {
                        self.outbox.push_back(Bytes::from_static(b":\n\n"));
                        self.watcher.heartbeat();
                    }
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_short_texts() {
        for (text, ms) in [("30", 30_000), ("30s", 30_000), ("1500ms", 1_500), ("0", 0), ("5m", 300_000)] {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for text in ["", "s", "ms", "-1", "301", "1.5s", "6m", "99999999999999999999"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
