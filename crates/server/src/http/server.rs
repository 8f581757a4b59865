//! The listener and its connections: accept, bound, serve, end.
//!
//! Owns the life of every connection from accept to close, and the order of a graceful shutdown. It knows nothing of
//! requests. Invariants: nothing that a client or the system does ends the server; above the limit of
//! connections a client is told so; `serve` returns when the last connection is closed.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::connections::{Connections, Order, Patience, Place, WatchedStream};
use super::problem::{Problem, ProblemKind};
use super::{HttpContext, service};
use crate::accept::{Farewells, accept};
use crate::metrics::raise;
use crate::store::Store;

/// A request head that is longer than this many times the limit is answered by the parser, without a body, and the
/// connection ends. Between the two the answer names the limit.
const HEAD_PARSER_FACTOR: usize = 4;

/// Longest time between two looks at how long connections have been idle.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Serves HTTP on `listener` until `shutdown` is true or its sender is gone, then finishes what is in flight and
/// returns. Must run where tasks can be local, on a [`tokio::runtime::LocalRuntime`] with time and I/O.
pub async fn serve<S: Store>(
    listener: TcpListener,
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
    let errors = &server.context.counters.accept_errors;
    let mut sweeping = pin!(server.sweep());
    tokio::select! {
        _ = accept(&listener, "HTTP", errors, |stream| server.admit(stream)) => {}
        () = &mut sweeping => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    drop(listener);
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
            let counter = &self.context.counters.connections_timed_out;
            counter.set(counter.get() + overdue);
        }
    }

    fn admit(&self, stream: TcpStream) {
        let counters = &self.context.counters;
        let ordinary = self.connections.len().saturating_sub(self.store.hub().count());
        if ordinary >= self.context.options.connections_max {
            raise(&counters.connections_refused);
            self.refuse(stream);
            return;
        }
        raise(&counters.connections_accepted);
        let place = self.connections.admit(Instant::now());
        counters.connections_open.set(self.connections.len() as u64);
        let (store, context, connections) =
            (self.store.clone(), self.context.clone(), self.connections.clone());
        tokio::task::spawn_local(async move {
            serve_connection(stream, place, &store, &context).await;
            context.counters.connections_open.set(connections.len() as u64);
        });
    }

    /// Tells a client that there is no room, without parsing what it sends.
    fn refuse(&self, stream: TcpStream) {
        let limit = self.context.options.connections_max;
        let detail = format!("{limit} connections are open, as many as this node serves; nothing was done");
        let answer = Problem::new(ProblemKind::TooManyConnections, detail).into_raw_answer();
        self.refusals.say(stream, answer);
    }
}

async fn serve_connection<S: Store>(stream: TcpStream, place: Place, store: &S, context: &HttpContext) {
    let connection = &*place.connection;
    let service = service_fn(|request| async {
        let _answering = connection.begin_answer();
        Ok::<_, Infallible>(service::answer(request, store, context).await)
    });
    let stream = TokioIo::new(WatchedStream { stream, connection });
    let mut http = pin!(
        http1::Builder::new()
            .max_header_size(context.options.head_bytes_max.saturating_mul(HEAD_PARSER_FACTOR))
            // The sweep does it, without a timer for each request.
            .header_read_timeout(None)
            // A client may say that it sends no more and still wants its answer. It also spares a read of the socket
            // for each request that waits for the store; one whose client is gone ends with the store's reply.
            .half_close(true)
            .serve_connection(stream, service)
    );
    let mut finishing = false;
    let ended = poll_fn(|task| {
        match connection.poll_order(task) {
            Order::Serve => {}
            Order::Finish if finishing => {}
            Order::Finish => {
                finishing = true;
                http.as_mut().graceful_shutdown();
            }
            Order::Cut => return Poll::Ready(Ok(())),
        }
        http.as_mut().poll(task)
    })
    .await;
    if let Err(error) = ended {
        raise(&context.counters.connections_failed);
        tracing::debug!(%error, "an HTTP connection ended in an error");
    }
}
