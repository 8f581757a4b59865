//! The state of each open connection, its timeouts, and how the server ends it.
//!
//! Owns the table of connections and their idle times. It reads no HTTP: the stream reports bytes
//! that were received or sent, the service reports requests being answered. About once a second a
//! sweep compares that with the limits, because a timer for each request would cost more than the
//! request.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::hijack::Handover;
use crate::accept::CloseMode;
use crate::clients::Client;
use crate::tls::MaybeTlsStream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was received since the last request.
    Idle,
    /// A part of a request was received.
    Head,
    /// The service answers a request, with its own deadlines.
    Answering,
    /// The client takes an answer in which it may pause for long.
    PauseAllowed,
}

pub(super) struct HttpConnection {
    phase: Cell<Phase>,
    /// Rises with each request and with each write that sent bytes.
    progress: Cell<u64>,
    /// The state at the last sweep that found a change, and its time.
    observed: Cell<(Phase, u64, Instant)>,
    order: Cell<CloseMode>,
    waker: RefCell<Option<Waker>>,
    handover: Handover,
    /// Whether the request that is being answered ends with the connection.
    peer_watched: Cell<bool>,
    /// Whether the client was found to have closed the connection.
    peer_closed: Cell<bool>,
    client: Arc<Client>,
}

impl HttpConnection {
    fn new(now: Instant, client: Arc<Client>) -> HttpConnection {
        HttpConnection {
            phase: Cell::new(Phase::Idle),
            progress: Cell::new(0),
            observed: Cell::new((Phase::Idle, 0, now)),
            order: Cell::new(CloseMode::Serve),
            waker: RefCell::new(None),
            handover: Handover::default(),
            peer_watched: Cell::new(false),
            peer_closed: Cell::new(false),
            client,
        }
    }

    /// The address of the client with its port.
    pub fn client_address(&self) -> Option<SocketAddr> {
        self.client.address
    }

    /// The address of the client.
    pub fn address(&self) -> Option<IpAddr> {
        self.client.address.map(|address| address.ip())
    }

    /// The hand-over from the HTTP parser to streamed events.
    pub fn handover(&self) -> &Handover {
        &self.handover
    }

    /// The current order. When it changes, the task is woken.
    pub fn poll_order(&self, context: &Context<'_>) -> CloseMode {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        self.order.get()
    }

    /// Marks a request as being answered until the guard is dropped.
    pub fn begin_answer(&self) -> OpenRequest<'_> {
        self.advance();
        self.phase.set(Phase::Answering);
        self.client.operations.add(1);
        self.client.open_requests.set(1);
        OpenRequest(self)
    }

    /// Marks the answer of the present request as one in which the client may pause for long.
    pub fn allow_pauses(&self) {
        self.phase.set(Phase::PauseAllowed);
    }

    /// Whether the client has closed the connection, for a request that must not outlive it. The
    /// socket is looked at whenever the connection's task is woken, which happens when the client
    /// closes it, unless unread bytes are there: so ask again from time to time.
    pub fn is_closed_by_peer(&self) -> bool {
        self.peer_watched.set(true);
        self.peer_closed.get()
    }

    fn advance(&self) {
        self.progress.set(self.progress.get().wrapping_add(1));
    }

    /// Sets the order; it only becomes more urgent.
    fn order(&self, order: CloseMode) {
        if order == CloseMode::Cut || self.order.get() == CloseMode::Serve {
            self.order.set(order);
            if let Some(waker) = self.waker.borrow().as_ref() {
                waker.wake_by_ref();
            }
        }
    }

    /// Whether it has waited for longer than `limits` allow.
    fn is_overdue(&self, now: Instant, limits: ConnectionTimeouts) -> bool {
        let (phase, progress) = (self.phase.get(), self.progress.get());
        let (observed_phase, observed_progress, since) = self.observed.get();
        if (phase, progress) != (observed_phase, observed_progress) {
            self.observed.set((phase, progress, now));
            return false;
        }
        let waited = now.saturating_duration_since(since);
        match phase {
            Phase::Idle => waited > limits.idle,
            Phase::Head => waited > limits.head,
            Phase::PauseAllowed => waited > limits.allowed_pause,
            Phase::Answering => false,
        }
    }
}

/// Marks a request as being answered until it is dropped.
pub(super) struct OpenRequest<'a>(&'a HttpConnection);

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        if self.0.phase.get() == Phase::Answering {
            self.0.phase.set(Phase::Idle);
        }
        self.0.peer_watched.set(false);
        self.0.client.open_requests.set(0);
    }
}

/// How long a connection may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionTimeouts {
    /// Longest wait for a complete request head.
    pub head: Duration,
    /// Longest wait for any data.
    pub idle: Duration,
    /// Longest pause of a client in an answer that waits for those of other nodes.
    pub allowed_pause: Duration,
}

/// All open connections of a server.
#[derive(Default)]
pub(super) struct Connections {
    open: RefCell<Slab<Rc<HttpConnection>>>,
    closed_one: Notify,
}

/// A connection's entry in the table, removed when dropped.
pub(super) struct ConnectionEntry {
    connections: Rc<Connections>,
    position: usize,
    pub connection: Rc<HttpConnection>,
}

impl Connections {
    pub fn len(&self) -> usize {
        self.open.borrow().len()
    }

    pub fn admit(self: &Rc<Self>, now: Instant, client: Arc<Client>) -> ConnectionEntry {
        let connection = Rc::new(HttpConnection::new(now, client));
        let position = self.open.borrow_mut().insert(connection.clone());
        ConnectionEntry { connections: self.clone(), position, connection }
    }

    /// Sets the order of every connection.
    pub fn order_all(&self, order: CloseMode) {
        for (_, connection) in self.open.borrow().iter() {
            connection.order(order);
        }
    }

    /// Cuts the connections that have waited too long; returns how many.
    pub fn sweep(&self, now: Instant, limits: ConnectionTimeouts) -> u64 {
        let mut overdue = 0;
        for (_, connection) in self.open.borrow().iter() {
            if connection.order.get() != CloseMode::Cut && connection.is_overdue(now, limits) {
                connection.order(CloseMode::Cut);
                overdue += 1;
            }
        }
        overdue
    }

    /// Returns once no connection is open.
    pub async fn all_closed(&self) {
        while self.len() > 0 {
            self.closed_one.notified().await;
        }
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.connections.open.borrow_mut().remove(self.position);
        // `notify_one` stores a permit if no task waits yet, so the last close is never missed.
        self.connections.closed_one.notify_one();
    }
}

/// A socket that reports its progress to its connection.
pub(super) struct WatchedStream<'a, S = MaybeTlsStream> {
    pub stream: S,
    pub connection: &'a HttpConnection,
}

impl<S> WatchedStream<'_, S> {
    fn note_written(&self, result: &Poll<std::io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = result
            && *bytes > 0
        {
            self.connection.client.bytes_sent.add(*bytes as u64);
            self.connection.advance();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let filled = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.connection.client.bytes_received.add((buffer.filled().len() - filled) as u64);
        if buffer.filled().len() > filled && self.connection.phase.get() == Phase::Idle {
            self.connection.phase.set(Phase::Head);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin + Borrow<MaybeTlsStream>> AsyncWrite for WatchedStream<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_written(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note_written(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.connection.handover.note_flushed();
        // The parser flushes after each look at the service, and reads nothing while that is busy.
        let connection = self.connection;
        if connection.peer_watched.get()
            && !connection.peer_closed.get()
            && self.stream.borrow().is_closed_by_peer(context)
        {
            connection.peer_closed.set(true);
            context.waker().wake_by_ref();
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_core::types::ClientId;

    fn client() -> Arc<Client> {
        Client::new(ClientId(1), crate::protocol::ListenerProtocol::Http, None).into()
    }

    const LIMITS: ConnectionTimeouts = ConnectionTimeouts {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(120),
        allowed_pause: Duration::from_secs(5_000),
    };

    fn seconds(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn the_timeout_depends_on_what_is_awaited() {
        let start = Instant::now();
        let connections = Rc::new(Connections::default());
        let place = connections.admit(start, client());
        let connection = &place.connection;
        assert_eq!(connections.sweep(seconds(start, 120), LIMITS), 0);

        connection.phase.set(Phase::Head);
        assert_eq!(connections.sweep(seconds(start, 121), LIMITS), 0, "the head has just begun");
        assert_eq!(connections.sweep(seconds(start, 131), LIMITS), 0);

        let answering = connection.begin_answer();
        assert_eq!(connections.sweep(seconds(start, 132), LIMITS), 0);
        assert_eq!(connections.sweep(seconds(start, 9_000), LIMITS), 0, "the service has its own deadlines");
        drop(answering);
        assert_eq!(connections.sweep(seconds(start, 9_001), LIMITS), 0);
        connection.advance();
        assert_eq!(connections.sweep(seconds(start, 9_100), LIMITS), 0, "the client takes the answer");
        assert_eq!(connections.sweep(seconds(start, 9_220), LIMITS), 0);
        assert_eq!(connections.sweep(seconds(start, 9_221), LIMITS), 1);
        assert_eq!(connection.order.get(), CloseMode::Cut);
        assert_eq!(connections.sweep(seconds(start, 9_999), LIMITS), 0, "cut once");
    }

    #[test]
    fn a_client_may_pause_in_a_partial_backup() {
        let start = Instant::now();
        let connections = Rc::new(Connections::default());
        let place = connections.admit(start, client());
        let connection = &place.connection;
        let answering = connection.begin_answer();
        connection.allow_pauses();
        drop(answering);
        assert_eq!(connections.sweep(seconds(start, 1), LIMITS), 0);
        assert_eq!(connections.sweep(seconds(start, 5_001), LIMITS), 0);
        connection.advance();
        assert_eq!(connections.sweep(seconds(start, 5_002), LIMITS), 0, "it goes on");
        assert_eq!(connections.sweep(seconds(start, 10_003), LIMITS), 1);
        drop(connection.begin_answer());
        assert_eq!(connection.phase.get(), Phase::Idle, "the next answer is an ordinary one");
    }

    #[test]
    fn a_slow_head_is_cut_sooner_than_an_idle_connection() {
        let start = Instant::now();
        let connections = Rc::new(Connections::default());
        let place = connections.admit(start, client());
        place.connection.phase.set(Phase::Head);
        assert_eq!(connections.sweep(seconds(start, 1), LIMITS), 0);
        assert_eq!(connections.sweep(seconds(start, 11), LIMITS), 0);
        assert_eq!(connections.sweep(seconds(start, 12), LIMITS), 1);
    }

    #[test]
    fn an_order_only_becomes_more_urgent() {
        let connection = HttpConnection::new(Instant::now(), client());
        connection.order(CloseMode::Cut);
        connection.order(CloseMode::Finish);
        assert_eq!(connection.order.get(), CloseMode::Cut);
    }

    #[test]
    fn a_place_is_vacated() {
        let connections = Rc::new(Connections::default());
        let place = connections.admit(Instant::now(), client());
        assert_eq!(connections.len(), 1);
        drop(place);
        assert_eq!(connections.len(), 0);
    }
}
