//! The listener and its connections: accept, bound, serve, end.
//!
//! Owns the life of every connection from accept to close, and the order of a graceful shutdown. It knows nothing of
//! requests. Invariants: nothing that a client or the system does ends the server; above the limit of
//! connections a client is told so; `serve` returns when the last connection is closed.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::carry::{self, Carrier};
use super::config::Events;
use super::connections::{Connections, Order, Patience, Place, WatchedStream};
use super::problem::{Problem, ProblemKind};
use super::{HttpContext, service};
use crate::accept::{Entrance, Farewells, Host, Seat};
use crate::counters::Counter;
use crate::memory::MemoryExhausted;
use crate::metrics::raise;
use crate::store::Store;

/// A request head that is longer than this many times the limit is answered by the parser, without a body, and the
/// connection ends. Between the two the answer names the limit.
const HEAD_PARSER_FACTOR: usize = 4;

/// What is read from a socket ahead of the parser, at most: the longest head.
pub(super) const BUFFER_BYTES_MAX: usize = HEAD_PARSER_FACTOR * (16 << 10);

/// What a connection counts that carries events: its socket and its watcher.
const CARRIER_BYTES: usize = 2 << 10;

/// Longest time between two looks at how long connections have been idle.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Serves HTTP to those who come through `entrance` until `shutdown` is true or its sender is gone, then finishes what
/// is in flight and returns. Must run where tasks can be local, on a runtime with time and I/O.
pub async fn serve<S: Store>(
    mut entrance: Entrance,
    store: S,
    context: Rc<HttpContext>,
    mut shutdown: watch::Receiver<bool>,
) {
    let server = Server {
        store,
        context,
        connections: Rc::new(Connections::default()),
        refusals: Farewells::default(),
    };
    let mut sweeping = pin!(server.sweep());
    tokio::select! {
        _ = entrance.welcome(&server) => {}
        () = &mut sweeping => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    drop(entrance);
    // Watchers never finish by themselves.
    server.store.hub().close();
    server.connections.order_all(Order::Finish);
    let drained = async {
        tokio::select! {
            () = server.connections.all_closed() => {}
            () = &mut sweeping => {}
        }
    };
    if timeout(server.context.options.drain_timeout, drained).await.is_err() {
        tracing::warn!(connections = server.connections.len(), "cutting HTTP connections that do not end");
        server.connections.order_all(Order::Cut);
        server.connections.all_closed().await;
    }
}

struct Server<S> {
    store: S,
    context: Rc<HttpContext>,
    connections: Rc<Connections>,
    refusals: Farewells,
}

impl<S: Store> Server<S> {
    /// Cuts idle connections for ever.
    async fn sweep(&self) {
        let options = &self.context.options;
        let patience = Patience { head: options.head_read_timeout, idle: options.idle_timeout };
        let shortest = patience.head.min(patience.idle);
        let mut ticks = interval((shortest / 4).clamp(Duration::from_millis(1), SWEEP_INTERVAL_MAX));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let overdue = self.connections.sweep(Instant::now(), patience);
            self.context.counters.connections_timed_out.add(overdue);
        }
    }
}

impl<S: Store> Host for Server<S> {
    const PROTOCOL: &'static str = "HTTP";

    fn client_class(&self) -> u64 {
        0
    }

    fn errors(&self) -> &Counter {
        &self.context.counters.accept_errors
    }

    fn has_room(&self, open: usize) -> bool {
        open.saturating_sub(self.store.hub().count()) < self.context.options.connections_max
            && self.context.memory.has_room_for_connection()
    }

    fn admit(&self, stream: TcpStream, seat: Seat) {
        let counters = &self.context.counters;
        raise(&counters.connections_accepted);
        let place = self.connections.admit(Instant::now(), seat.client());
        let mut memory = self.context.memory.connection();
        counters.connections_open.set(self.connections.len() as u64);
        let store = self.store.for_client(seat.client().id);
        let (context, connections) = (self.context.clone(), self.connections.clone());
        tokio::task::spawn_local(async move {
            match serve_connection(stream, place, &store, &context).await {
                // A task of its own, because this one keeps room for the parser until it ends.
                Some(carrier) => {
                    memory.reduce_base(CARRIER_BYTES);
                    drop(tokio::task::spawn_local(async move {
                        carry(carrier, (context, connections), seat).await;
                        drop(memory);
                    }));
                }
                None => {
                    context.counters.connections_open.set(connections.len() as u64);
                    drop((seat, memory));
                }
            }
        });
    }

    /// An answer to a request that is not parsed.
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

    fn farewells(&self) -> &Farewells {
        &self.refusals
    }
}

/// Serves requests until the connection ends, or is left to the events that it carries from then on.
async fn serve_connection<S: Store>(
    stream: TcpStream,
    place: Place,
    store: &S,
    context: &HttpContext,
) -> Option<Carrier> {
    let connection = place.connection.clone();
    let service = service_fn(|request: hyper::Request<Incoming>| async {
        let _answering = connection.begin_answer();
        let (method, version) = (request.method().clone(), request.version());
        let response = service::answer(request, store, context).await;
        Ok::<_, Infallible>(carry::put_aside(response, &method, version, &connection))
    });
    let stream = TokioIo::new(WatchedStream { stream, connection: &connection });
    let mut http = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES_MAX)
        .max_header_size(context.options.head_bytes_max.saturating_mul(HEAD_PARSER_FACTOR))
        // The sweep does it, without a timer for each request.
        .header_read_timeout(None)
        // A client may say that it sends no more and still wants its answer. It also spares a read of the socket
        // for each request that waits for the store; one whose client is gone ends with the store's reply.
        .half_close(true)
        .serve_connection(stream, service);
    let mut finishing = false;
    let end = poll_fn(|task| {
        match connection.poll_order(task) {
            Order::Serve => {}
            Order::Finish if finishing => {}
            Order::Finish => {
                finishing = true;
                Pin::new(&mut http).graceful_shutdown();
            }
            Order::Cut => return Poll::Ready(End::Closed(Ok(()))),
        }
        match Pin::new(&mut http).poll(task) {
            Poll::Ready(result) => Poll::Ready(End::Closed(result)),
            Poll::Pending => {
                connection.handover().take().map_or(Poll::Pending, |events| Poll::Ready(End::Carries(events)))
            }
        }
    })
    .await;
    match end {
        End::Closed(Ok(())) => None,
        End::Closed(Err(error)) => {
            raise(&context.counters.connections_failed);
            tracing::debug!(%error, "an HTTP connection ended in an error");
            None
        }
        End::Carries(events) => {
            let stream = http.into_parts().io.into_inner().stream;
            Some(Carrier { stream, place, events })
        }
    }
}

/// Lets a connection carry its events to their end.
async fn carry(carrier: Carrier, (context, connections): (Rc<HttpContext>, Rc<Connections>), _seat: Seat) {
    if let Err(error) = carrier.carry().await {
        raise(&context.counters.connections_failed);
        tracing::debug!(%error, "a connection that carried events ended in an error");
    }
    context.counters.connections_open.set(connections.len() as u64);
}

/// How serving requests ends.
enum End {
    Closed(hyper::Result<()>),
    Carries(Events),
}
