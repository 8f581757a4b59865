//! The listener and its connections: accept, bound, serve, end.
//!
//! Owns the life of every connection from accept to close, and the order of a graceful shutdown, as the HTTP server does for its own. It
//! knows nothing of commands. Invariants: nothing that a client or the system does ends the server; above the limit of
//! connections a client is told so; `serve` returns when the last connection is closed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use slab::Slab;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::RespContext;
use super::access::Access;
use super::connection::{Connection, End};
use super::session::Session;
use crate::accept::{Entrance, Farewells, Host, Seat};
use crate::counters::Counter;
use crate::memory::MemoryExhausted;
use crate::metrics::raise;
use crate::store::Store;

/// Longest time between two looks for clients that take nothing.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// What connections are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Serve,
    /// Take no more commands, answer what is owed, and end.
    Finish,
    /// End now.
    Cut,
}

/// Serves the Redis protocol to those who come through `entrance` until `shutdown` is true or its sender is gone, then
/// finishes what is in flight and returns. Must run where tasks can be local, on a runtime with time and I/O.
pub async fn serve<S: Store>(
    mut entrance: Entrance,
    store: S,
    context: Rc<RespContext>,
    mut shutdown: watch::Receiver<bool>,
) {
    let (order, _) = watch::channel(Order::Serve);
    let server = Rc::new(Server {
        store: Rc::new(store),
        context,
        places: RefCell::default(),
        all_closed: Notify::new(),
        order,
        farewells: Farewells::default(),
    });
    tokio::select! {
        _ = entrance.welcome(&server) => {}
        () = server.sweep() => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    drop(entrance);
    server.order.send_replace(Order::Finish);
    if timeout(server.context.options.drain_timeout, server.drained()).await.is_err() {
        let connections = server.places.borrow().len();
        tracing::warn!(connections, "cutting Redis connections that do not end");
        server.order.send_replace(Order::Cut);
        server.drained().await;
    }
}

struct Server {
    store: Rc<dyn Access>,
    context: Rc<RespContext>,
    places: RefCell<Slab<Place>>,
    all_closed: Notify,
    order: watch::Sender<Order>,
    farewells: Farewells,
}

/// What the server knows of a connection.
#[derive(Clone, Default)]
struct Place {
    stalled_since: Rc<Cell<Option<Instant>>>,
    cut: Rc<Notify>,
}

impl Server {
    /// Cuts connections whose clients take nothing, for ever.
    async fn sweep(&self) {
        let patience = self.context.options.stall_timeout;
        let mut ticks = interval((patience / 4).clamp(Duration::from_millis(1), SWEEP_INTERVAL_MAX));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for (_, place) in &*self.places.borrow() {
                if place.stalled_since.get().is_some_and(|since| since.elapsed() >= patience) {
                    raise(&self.context.counters.connections_stalled);
                    place.stalled_since.set(None);
                    place.cut.notify_one();
                }
            }
        }
    }

    async fn drained(&self) {
        while !self.places.borrow().is_empty() {
            self.all_closed.notified().await;
        }
    }

    async fn serve_connection(&self, mut connection: Connection, cut: &Notify) {
        let mut order = self.order.subscribe();
        let served = tokio::select! {
            biased;
            () = cut.notified() => Some(End::Orderly),
            // The sender lives as long as this does.
            _ = order.wait_for(|order| *order != Order::Serve) => None,
            end = connection.serve() => Some(end),
        };
        let end = match served {
            Some(end) => end,
            None => {
                connection.begin_closing();
                tokio::select! {
                    end = connection.serve() => end,
                    () = cut.notified() => End::Orderly,
                    _ = order.wait_for(|order| *order == Order::Cut) => End::Orderly,
                }
            }
        };
        let stream = connection.into_stream();
        match end {
            End::Orderly => {}
            End::Protocol => {
                raise(&self.context.counters.protocol_errors);
                self.farewells.say(stream, Vec::new());
            }
            End::Failed(error) => tracing::debug!(%error, "a Redis connection ended in an error"),
        }
    }
}

impl Host for Rc<Server> {
    const PROTOCOL: &'static str = "Redis";

    fn errors(&self) -> &Counter {
        &self.context.counters.accept_errors
    }

    fn has_room(&self, open: usize) -> bool {
        open < self.context.options.connections_max && self.context.memory.has_room_for_connection()
    }

    fn refuse(&self, stream: TcpStream) {
        raise(&self.context.counters.connections_refused);
        let text = if self.context.memory.has_room_for_connection() {
            format!("-ERR max number of clients reached: {}\r\n", self.context.options.connections_max)
        } else {
            self.context.memory.note_refused();
            format!("-TRYAGAIN {MemoryExhausted}\r\n")
        };
        self.farewells.say(stream, text.into_bytes());
    }

    fn admit(&self, stream: TcpStream, seat: Seat, number: u64) {
        let (context, counters) = (&self.context, &self.context.counters);
        raise(&counters.connections_accepted);
        let place = Place::default();
        let position = self.places.borrow_mut().insert(place.clone());
        counters.connections_open.set(self.places.borrow().len() as u64);
        let session = Session::new(number, context.clone(), self.store.clone());
        let connection = Connection::new(stream, session, place.stalled_since);
        let server = self.clone();
        tokio::task::spawn_local(async move {
            server.serve_connection(connection, &place.cut).await;
            server.places.borrow_mut().remove(position);
            server.context.counters.connections_open.set(server.places.borrow().len() as u64);
            server.all_closed.notify_one();
            drop(seat);
        });
    }
}
