//! The HTTP listener and its connections: accept, limit, serve, close.
//!
//! Owns the life of every connection from accept to close, and the order of a graceful shutdown. It
//! does not interpret requests. Invariants: no error of a client or of the system ends the server.
//! Above the limit of connections a client gets an answer that says so. `serve` returns when the
//! last connection is closed.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::authentication::Authentication;
use super::connections::{ConnectionEntry, ConnectionTimeouts, Connections, WatchedStream};
use super::events::Events;
use super::hijack::{self, HijackedConnection};
use super::problem::{Problem, ProblemKind};
use super::response::AllowsPauses;
use super::service::HttpClient;
use super::{HttpContext, service};
use crate::accept::{
    Acceptor, ClientHandshakes, CloseMode, ConnectionHandler, ConnectionPermit, RejectionWriter,
};
use crate::counters::Counter;
use crate::memory::MemoryExhausted;
use crate::metrics::history::Totals;
use crate::metrics::{HttpCounters, RespCounters, raise, resident_bytes};
use crate::protocol::ListenerProtocol;
use crate::store::Store;
use crate::tls::MaybeTlsStream;

/// A request head longer than this many times the limit is rejected by the parser, without a body,
/// and the connection ends. Between the two limits the answer names the limit.
const HEAD_PARSER_FACTOR: usize = 4;

/// Most bytes that are read from a socket ahead of the parser: the longest head.
pub(super) const BUFFER_BYTES_MAX: usize = HEAD_PARSER_FACTOR * (16 << 10);

/// Bytes that count for a connection that streams events: its socket and its watcher.
const EVENT_STREAM_BYTES: usize = 2 << 10;

/// Longest pause of a node in taking a partial backup, while it takes the shards of others: time
/// for a few TB from a fast disk. It ends what a node that hangs would keep open. Without it, the
/// system would notice only a node that is gone.
const ALLOWED_PAUSE_MAX: Duration = Duration::from_secs(6 * 3_600);

/// Longest time between two sweeps of idle connections.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Serves HTTP to the connections of `acceptor` until `shutdown` is true or its sender is dropped,
/// then finishes what is in flight and returns. Requires a context for local tasks, on a runtime
/// with time and I/O.
pub async fn serve<S: Store>(
    mut acceptor: Acceptor,
    store: S,
    context: Rc<HttpContext>,
    mut shutdown: watch::Receiver<bool>,
) {
    let server = HttpServer {
        store,
        context,
        connections: Rc::new(Connections::default()),
        refusals: RejectionWriter::default(),
    };
    let mut sweeping = pin!(server.sweep());
    tokio::select! {
        _ = acceptor.serve(&server) => {}
        () = &mut sweeping => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    drop(acceptor);
    // Watches never end on their own.
    server.store.watch_registry().close();
    server.connections.order_all(CloseMode::Finish);
    let drained = async {
        tokio::select! {
            () = server.connections.all_closed() => {}
            () = &mut sweeping => {}
        }
    };
    if timeout(server.context.options.drain_timeout, drained).await.is_err() {
        tracing::warn!(connections = server.connections.len(), "cutting HTTP connections that do not end");
        server.connections.order_all(CloseMode::Cut);
        server.connections.all_closed().await;
    }
}

struct HttpServer<S> {
    store: S,
    context: Rc<HttpContext>,
    connections: Rc<Connections>,
    refusals: RejectionWriter,
}

impl<S: Store> HttpServer<S> {
    /// Cuts idle connections, until it is dropped.
    async fn sweep(&self) {
        let options = &self.context.options;
        let timeouts = ConnectionTimeouts {
            head: options.head_read_timeout,
            idle: options.idle_timeout,
            allowed_pause: ALLOWED_PAUSE_MAX,
        };
        let shortest = timeouts.head.min(timeouts.idle);
        let mut ticks = interval((shortest / 4).clamp(Duration::from_millis(1), SWEEP_INTERVAL_MAX));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let overdue = self.connections.sweep(Instant::now(), timeouts);
            self.context.counters.connections_timed_out.add(overdue);
            if self.context.history.is_due(Instant::now()) {
                let totals = self.totals().await;
                self.context.history.record(totals, Instant::now(), SystemTime::now());
            }
        }
    }

    /// What the history of the node is made of.
    async fn totals(&self) -> Totals {
        let context = &self.context;
        let (http, resp) = (HttpCounters::sum(&context.counters), RespCounters::sum(&context.resp));
        let served = http.served();
        let status = self.store.status().await;
        let lag = status.shards.iter().map(|shard| shard.committed.0.saturating_sub(shard.applied.0));
        Totals {
            requests: served.requests + resp.commands.total(),
            errors: served.errors,
            durations: served.durations,
            fsyncs: [context.disk.fsyncs.count(), context.disk.fsyncs.sum_micros()],
            lag: lag.max().unwrap_or_default(),
            memory_bytes: resident_bytes(),
            connections: http.connections_open.get() + resp.connections_open.get(),
            watchers: self.store.watch_registry().count() as u64,
        }
    }
}

impl<S: Store> ConnectionHandler for HttpServer<S> {
    const PROTOCOL: ListenerProtocol = ListenerProtocol::Http;

    fn client_class(&self) -> u64 {
        0
    }

    fn errors(&self) -> &Counter {
        &self.context.counters.accept_errors
    }

    fn has_room(&self, open: usize) -> bool {
        open.saturating_sub(self.store.watch_registry().count()) < self.context.options.connections_max
            && self.context.memory.has_room_for_connection()
    }

    fn admit(&self, stream: TcpStream, permit: ConnectionPermit) {
        let counters = &self.context.counters;
        raise(&counters.connections_accepted);
        let place = self.connections.admit(Instant::now(), permit.client());
        let mut memory = self.context.memory.connection();
        counters.connections_open.set(self.connections.len() as u64);
        let store = self.store.for_client(permit.client().id);
        let (context, connections) = (self.context.clone(), self.connections.clone());
        let refusals = self.refusals.clone();
        tokio::task::spawn_local(async move {
            let handshakes = ClientHandshakes {
                tls: context.tls.as_ref(),
                rejections: &refusals,
                audit_log: &context.audit_log,
                protocol: ListenerProtocol::Http,
            };
            let address = place.connection.address();
            let Some(stream) = handshakes.run(stream, address, plain_http_refusal).await else {
                drop(place);
                context.counters.connections_open.set(connections.len() as u64);
                return;
            };
            match serve_connection(stream, place, &store, &context).await {
                // A separate task, because this one keeps the parser's memory until it ends.
                Some(mut hijacked) => {
                    memory.reduce_base(EVENT_STREAM_BYTES);
                    drop(tokio::task::spawn_local(async move {
                        hijack(&mut hijacked, &context).await;
                        drop(hijacked);
                        context.counters.connections_open.set(connections.len() as u64);
                        drop((permit, memory));
                    }));
                }
                None => {
                    context.counters.connections_open.set(connections.len() as u64);
                    drop((permit, memory));
                }
            }
        });
    }

    /// The raw answer to a connection that is refused before a request is parsed.
    fn refusal(&self) -> Vec<u8> {
        raise(&self.context.counters.connections_refused);
        let problem = if self.context.memory.has_room_for_connection() {
            let detail = "as many connections are open as this node serves; nothing was done".to_owned();
            Problem::new(ProblemKind::TooManyConnections, detail)
        } else {
            self.context.memory.note_refused();
            MemoryExhausted.into()
        };
        problem.into_raw_answer()
    }

    fn rejections(&self) -> &RejectionWriter {
        &self.refusals
    }
}

/// The raw answer to a client without TLS.
fn plain_http_refusal() -> Vec<u8> {
    let detail = "clients of this node connect with TLS: use https://".to_owned();
    Problem::new(ProblemKind::InvalidRequest, detail).into_raw_answer()
}

/// Serves requests until the connection ends, or until it is handed over to streamed events.
async fn serve_connection<S: Store>(
    stream: MaybeTlsStream,
    place: ConnectionEntry,
    store: &S,
    context: &HttpContext,
) -> Option<HijackedConnection> {
    let connection = place.connection.clone();
    let mut authentication = Authentication::new(connection.address(), stream.client_certificate());
    authentication.is_protected_from = context.protected_mode && !stream.is_local();
    let service = service_fn(|request: hyper::Request<Incoming>| async {
        let _answering = connection.begin_answer();
        let (method, version) = (request.method().clone(), request.version());
        let client = HttpClient { store, context, authentication: &authentication, connection: &connection };
        let response = service::answer(request, client).await;
        if response.extensions().get::<AllowsPauses>().is_some() {
            connection.allow_pauses();
        }
        Ok::<_, Infallible>(hijack::put_aside(response, &method, version, &connection))
    });
    let stream = TokioIo::new(WatchedStream { stream, connection: &connection });
    let mut http = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES_MAX)
        .max_header_size(context.options.head_bytes_max.saturating_mul(HEAD_PARSER_FACTOR))
        // The sweep does this, without a timer for each request.
        .header_read_timeout(None)
        // A client may close its sending side and still want its answer. This also saves a socket
        // read for each request that waits for the store; if the client is gone, the request ends
        // with the store's reply.
        .half_close(true)
        .serve_connection(stream, service);
    let mut finishing = false;
    let end = poll_fn(|task| {
        match connection.poll_order(task) {
            CloseMode::Serve => {}
            CloseMode::Finish if finishing => {}
            CloseMode::Finish => {
                finishing = true;
                Pin::new(&mut http).graceful_shutdown();
            }
            CloseMode::Cut => return Poll::Ready(ServeOutcome::Closed(Ok(()))),
        }
        match Pin::new(&mut http).poll(task) {
            Poll::Ready(result) => Poll::Ready(ServeOutcome::Closed(result)),
            Poll::Pending => connection
                .handover()
                .take()
                .map_or(Poll::Pending, |events| Poll::Ready(ServeOutcome::Carries(events))),
        }
    })
    .await;
    match end {
        ServeOutcome::Closed(Ok(())) => None,
        ServeOutcome::Closed(Err(error)) => {
            raise(&context.counters.connections_failed);
            tracing::debug!(%error, "an HTTP connection ended in an error");
            None
        }
        ServeOutcome::Carries(events) => {
            let stream = http.into_parts().io.into_inner().stream;
            Some(HijackedConnection { stream, place, events })
        }
    }
}

/// Writes a connection's events until they end.
async fn hijack(hijacked: &mut HijackedConnection, context: &HttpContext) {
    if let Err(error) = hijacked.hijack().await {
        raise(&context.counters.connections_failed);
        tracing::debug!(%error, "a connection that streamed events ended in an error");
    }
}

enum ServeOutcome {
    Closed(hyper::Result<()>),
    Carries(Events),
}
