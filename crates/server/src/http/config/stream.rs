//! Watchers of configuration: clients that are notified when a container resolves to something
//! else.
//!
//! There are two ways to watch: server-sent events, which continue as long as the connection, and
//! long polls, which end with the first change. Both read this node's own replica when the watch
//! registry notifies them. So any node serves watchers, and a watcher without changes costs nothing
//! but its entry.
//!
//! Invariants: the revisions that a watcher receives rise, and it receives every change between two
//! of them or a notice of the gap. A slow reader delays no other client: what it missed is looked
//! up when it reads on. A reader that takes nothing is cut like any idle connection.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use tidelock_core::command::Consistency;
use tidelock_core::command::config::{Changes, DocumentChange as Event, Found, Name};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::super::response::{self, Response};
use super::super::service::Call;
use super::error::ApiError;
use super::queries::{self, TypedQuery};
use super::show;
use super::{ask_store, number, text};
use crate::memory::{Memory, Reservation};
use crate::store::Store;
use crate::watch::{self, Watch};

/// A comment is sent after this long without an event: half of the idle limit of a connection, and
/// shorter than the timeouts of common proxies.
const HEARTBEAT: Duration = Duration::from_secs(50);

/// Bytes of an event besides the document.
const EVENT_BYTES: usize = 1 << 10;

/// The default and the largest time that a long poll waits.
const WAIT: Duration = Duration::from_secs(30);
const WAIT_MAX: Duration = Duration::from_secs(300);

/// `GET …/containers/:key/watch`: events, or a long poll if `index` or `wait` is given.
pub(super) async fn watch<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let parameters = call.parameters();
    let (index, wait) = (number(parameters, "index")?, text(parameters, "wait")?);
    // Registered before the first read, so that no change is missed in between.
    let watch_registry = call.store().watch_registry();
    let Some(watch) = watch_registry.watch(namespace, key) else {
        return Err(ApiError::overloaded("as many watchers as this node serves are there; nothing was done"));
    };
    if index.is_some() || wait.is_some() {
        let wait = wait.map_or(Ok(WAIT), |text| duration(&text))?;
        return poll(call.store(), &watch, index, wait).await;
    }
    let last = call.headers().get("last-event-id").map(|id| {
        let id = super::uri::parse_u64(id.as_bytes());
        id.ok_or_else(|| ApiError::invalid("Last-Event-ID must be a revision"))
    });
    let last = last.transpose()?;
    let first = catch_up(call.store(), watch.namespace(), watch.container(), last).await?;
    let mut events = Watcher {
        store: call.store().clone(),
        watch,
        after: last.unwrap_or_default(),
        outbox: VecDeque::from([Bytes::from_static(b"retry: 1000\n\n")]),
        events: VecDeque::new(),
        memory: call.context.memory.clone(),
        reservation: None,
        is_due: true,
        is_unsure: false,
        asking: None,
        heartbeat: Box::pin(sleep(HEARTBEAT)),
    };
    events.take(first);
    let mut response = response::events(Events(Box::new(events)));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A duration with a unit, or a number of seconds.
fn duration(text: &str) -> Result<Duration, ApiError> {
    let seconds = || super::uri::parse_u64(text.as_bytes())?.checked_mul(1000);
    let ms = super::super::duration::parse_ms(text.as_bytes()).or_else(seconds);
    let wait = ms.map(Duration::from_millis).filter(|wait| *wait <= WAIT_MAX);
    let max = WAIT_MAX.as_secs();
    wait.ok_or_else(|| ApiError::invalid(format!("wait is such as 30s or 1500ms, and at most {max}s")))
}

/// Changes since `after`, from the local replica. If the replica's revision is below `after`, it
/// may be behind, or the namespace may have been deleted: then a linearizable read decides.
async fn look<S: Store>(
    store: &S,
    namespace: &Name,
    key: &Arc<str>,
    after: u64,
) -> Result<Changes, ApiError> {
    let query = queries::changes(key.clone(), after);
    let found = ask_store(store, namespace, query, Consistency::Stale).await?;
    if found.revision < after { catch_up(store, namespace, key, Some(after)).await } else { Ok(found) }
}

/// The first answer to a new watcher: changes since the revision that it saw last, or else the
/// current state. The read is linearizable, or local if there is no leader.
async fn catch_up<S: Store>(
    store: &S,
    namespace: &Name,
    key: &Arc<str>,
    last: Option<u64>,
) -> Result<Changes, ApiError> {
    let container = || queries::container(key.clone(), None);
    let present = |found: Found| Event { revision: found.container.changed, found: Some(found) };
    let Some(after) = last else {
        let event = present(ask_fresh(store, namespace, container).await.0?);
        return Ok(Changes { revision: event.revision, has_gap: false, events: vec![event] });
    };
    let (answer, is_fresh) = ask_fresh(store, namespace, || queries::changes(key.clone(), after)).await;
    let found = answer?;
    if found.revision >= after || !is_fresh {
        return Ok(found);
    }
    let revision = found.revision;
    if revision == 0 {
        // The namespace is gone. A new one of its name is reported from its first revision.
        return Ok(Changes { revision, has_gap: false, events: vec![Event { revision, found: None }] });
    }
    // The client has seen a revision that does not exist here, so it comes from another cluster
    // state.
    let event = ask_fresh(store, namespace, container).await.0;
    let event = event.map_or(Event { revision, found: None }, present);
    Ok(Changes { revision, has_gap: true, events: vec![event] })
}

/// A linearizable answer, or a local one if there is no leader. Returns which of them it is.
async fn ask_fresh<S: Store, A>(
    store: &S,
    namespace: &Name,
    query: impl Fn() -> TypedQuery<A>,
) -> (Result<A, ApiError>, bool) {
    match ask_store(store, namespace, query(), Consistency::Linearizable).await {
        Err(error) if error.is_unavailable() => {
            (ask_store(store, namespace, query(), Consistency::Stale).await, false)
        }
        answer => (answer, true),
    }
}

/// A long poll: answered at once if there are changes after `index`, else with the first change,
/// else when the time is over.
async fn poll<S: Store>(
    store: &S,
    watch: &Watch,
    index: Option<u64>,
    wait: Duration,
) -> Result<Response, ApiError> {
    let mut changes = catch_up(store, watch.namespace(), watch.container(), index).await?;
    let deadline = Instant::now() + wait;
    let after = index.unwrap_or_default();
    while changes.events.is_empty() && !changes.has_gap {
        let call = poll_fn(|context| watch.poll_notification(context));
        match timeout(deadline.saturating_duration_since(Instant::now()), call).await {
            Ok(watch::Notification::Look) => {}
            Ok(watch::Notification::Leave) | Err(_) => break,
        }
        changes = look(store, watch.namespace(), watch.container(), after).await?;
    }
    let index = changes.events.last().map_or(after, |event| event.revision);
    let shown = changes.events.iter().map(|event| show::event(watch.namespace(), watch.container(), event));
    Ok(show::respond(tidelock_api::config::Changes { index, gap: changes.has_gap, changes: shown.collect() }))
}

/// The body of an answer that streams events.
pub(in crate::http) struct Events(Box<dyn Source>);

trait Source {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

impl Events {
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.poll_next(context)
    }
}

/// A lookup of changes in progress.
type Asking = Pin<Box<dyn Future<Output = Result<Changes, ApiError>>>>;

/// A client that watches by events.
struct Watcher<S> {
    store: S,
    watch: Watch,
    /// The last revision that was sent.
    after: u64,
    outbox: VecDeque<Bytes>,
    /// Changes that are not encoded yet. Each is encoded once the client has taken the one before
    /// and there is memory for it; until then it shares the replica's data.
    events: VecDeque<Event>,
    memory: Memory,
    /// Memory for the next event.
    reservation: Option<Reservation>,
    /// Whether there may be changes to look up.
    is_due: bool,
    /// The replica is behind what was sent, and no leader could be asked why. The next comment is
    /// the time to ask again.
    is_unsure: bool,
    asking: Option<Asking>,
    heartbeat: Pin<Box<Sleep>>,
}

/// A server-sent event.
fn encode(head: String, data: &tidelock_api::config::Event) -> Bytes {
    let mut out = head.into_bytes();
    show::push(&mut out, data);
    out.extend_from_slice(b"\n\n");
    out.into()
}

impl<S: Store> Watcher<S> {
    fn take(&mut self, changes: Changes) {
        let (namespace, key) = (self.watch.namespace(), self.watch.container());
        if changes.has_gap {
            let data = show::gap(namespace, key, self.after);
            self.outbox.push_back(encode("event: gap\ndata: ".to_owned(), &data));
        }
        self.is_unsure = changes.revision < self.after && changes.events.is_empty();
        // The lookup may have been limited, so there may be more.
        self.is_due = !changes.events.is_empty();
        self.after = changes.events.last().map_or(self.after, |event| event.revision);
        self.events.extend(changes.events);
    }

    /// The next event, encoded, once there is memory for it.
    fn poll_event(&mut self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        let Some(event) = self.events.front() else { return Poll::Ready(None) };
        let document_bytes = event.found.as_ref().map_or(0, |found| found.container.document_bytes);
        let reservation = self.reservation.get_or_insert_with(|| self.memory.request());
        if reservation.poll_grow_to(document_bytes + EVENT_BYTES, context).is_pending() {
            return Poll::Pending;
        }
        let (namespace, key) = (self.watch.namespace(), self.watch.container());
        let name = if event.found.is_some() { "change" } else { "deleted" };
        let head = format!("id: {}\nevent: {name}\ndata: ", event.revision);
        let bytes = encode(head, &show::event(namespace, key, event));
        self.events.pop_front();
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        Poll::Ready(Some(match self.reservation.take() {
            Some(reservation) => reservation.hold(bytes),
            None => bytes,
        }))
    }

    fn ask(&self) -> Asking {
        let (store, after) = (self.store.clone(), self.after);
        let (namespace, key) = (self.watch.namespace().clone(), self.watch.container().clone());
        Box::pin(async move { look(&store, &namespace, &key, after).await })
    }
}

impl<S: Store> Source for Watcher<S> {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.outbox.pop_front() {
                if self.outbox.is_empty() {
                    self.outbox = VecDeque::new();
                }
                self.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT);
                return Poll::Ready(Some(bytes));
            }
            match self.poll_event(context) {
                Poll::Ready(Some(bytes)) => {
                    self.outbox.push_back(bytes);
                    continue;
                }
                // A periodic comment shows the client, and proxies that cut idle connections, that
                // the stream is alive.
                Poll::Pending if self.heartbeat.as_mut().poll(context).is_ready() => {
                    self.outbox.push_back(Bytes::from_static(b":\n\n"));
                    continue;
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {}
            }
            if let Some(asking) = &mut self.asking {
                let Poll::Ready(changes) = asking.as_mut().poll(context) else { return Poll::Pending };
                self.asking = None;
                match changes {
                    Ok(changes) => self.take(changes),
                    // The shard has no reachable replica now. The client reconnects and finds one.
                    Err(_) => return Poll::Ready(None),
                }
                continue;
            }
            match self.watch.poll_notification(context) {
                Poll::Ready(watch::Notification::Leave) => return Poll::Ready(None),
                Poll::Ready(watch::Notification::Look) => self.is_due = true,
                Poll::Pending => {}
            }
            if self.is_due {
                self.is_due = false;
                self.asking = Some(self.ask());
                continue;
            }
            if self.heartbeat.as_mut().poll(context).is_ready() {
                self.outbox.push_back(Bytes::from_static(b":\n\n"));
                self.is_due |= self.is_unsure;
                continue;
            }
            return Poll::Pending;
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
