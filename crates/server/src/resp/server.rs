//! The listeners and their connections: accept, bound, serve, end.
//!
//! There are two: one for clients of a single Redis, to whom every node shows the whole store, and
//! one for clients of Redis Cluster, to whom a node shows what it leads.
//!
//! Owns the life of every connection from accept to close, and the order of a graceful shutdown, as the HTTP server does for its own. It
//! knows nothing of commands. Invariants: nothing that a client or the system does ends the server; above the limit of
//! connections a client is told so; `serve` returns when the last connection is closed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use slab::Slab;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::RespContext;
use super::access::Access;
use super::connection::{Connection, End};
use super::session::Session;
use crate::accept::{Entrance, Farewells, Host, Seat};
use crate::clients::Clients;
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

/// Where connections of both listeners come to one worker.
#[derive(Debug)]
pub struct Entrances {
    standalone: Entrance,
    cluster: Option<Entrance>,
}

impl From<(TcpListener, TcpListener)> for Entrances {
    /// Of a server that runs on one worker.
    fn from((standalone, cluster): (TcpListener, TcpListener)) -> Entrances {
        Entrances { standalone: standalone.into(), cluster: Some(cluster.into()) }
    }
}

impl Entrances {
    /// One for each of so many workers. The second listener is that for clients of Redis Cluster.
    pub fn split(
        (standalone, cluster): (TcpListener, Option<TcpListener>),
        workers: usize,
        clients: &Clients,
    ) -> Vec<Entrances> {
        let split = |listener| Entrance::split(listener, workers, clients.clone());
        let mut clusters = cluster.into_iter().flat_map(split);
        let standalone = split(standalone).into_iter();
        standalone.map(|standalone| Entrances { standalone, cluster: clusters.next() }).collect()
    }
}

/// Serves the Redis protocol to those who come through `entrances` until `shutdown` is true or its
/// sender is gone, then finishes what is in flight and returns. Must run where tasks can be local,
/// on a runtime with time and I/O.
pub async fn serve<S: Store>(
    mut entrances: Entrances,
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
    let [standalone, for_cluster] =
        [false, true].map(|is_cluster| Listener { server: server.clone(), is_cluster });
    let cluster = async {
        match &mut entrances.cluster {
            Some(entrance) => entrance.welcome(&for_cluster).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = entrances.standalone.welcome(&standalone) => {}
        _ = cluster => {}
        () = server.sweep() => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    drop(entrances);
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

    async fn serve_connection(&self, mut connection: Connection, (cut, seat): (&Notify, Seat)) {
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
                self.farewells.say_and_keep(stream, Vec::new(), Some(seat));
            }
            End::Failed(error) => tracing::debug!(%error, "a Redis connection ended in an error"),
        }
    }
}

/// One of the listeners.
struct Listener {
    server: Rc<Server>,
    is_cluster: bool,
}

impl Host for Listener {
    const PROTOCOL: &'static str = "Redis";

    fn client_class(&self) -> u64 {
        if self.is_cluster { 2 } else { 1 }
    }

    fn errors(&self) -> &Counter {
        &self.server.context.counters.accept_errors
    }

    fn has_room(&self, open: usize) -> bool {
        let context = &self.server.context;
        open < context.options.connections_max && context.memory.has_room_for_connection()
    }

    fn refusal(&self) -> Vec<u8> {
        let context = &self.server.context;
        raise(&context.counters.connections_refused);
        if context.memory.has_room_for_connection() {
            return b"-ERR max number of clients reached\r\n".to_vec();
        }
        context.memory.note_refused();
        format!("-TRYAGAIN {MemoryExhausted}\r\n").into_bytes()
    }

    fn farewells(&self) -> &Farewells {
        &self.server.farewells
    }

    fn admit(&self, stream: TcpStream, seat: Seat) {
        let client = seat.client();
        let server = self.server.clone();
        let (context, counters) = (&server.context, &server.context.counters);
        raise(&counters.connections_accepted);
        let place = Place::default();
        let position = server.places.borrow_mut().insert(place.clone());
        counters.connections_open.set(server.places.borrow().len() as u64);
        let store = server.store.for_client(client.id);
        let mut session = Session::new(client.id.0, context.clone(), store);
        session.is_cluster = self.is_cluster;
        let connection = Connection::new(stream, session, place.stalled_since, client);
        tokio::task::spawn_local(async move {
            server.serve_connection(connection, (&place.cut, seat)).await;
            server.places.borrow_mut().remove(position);
            server.context.counters.connections_open.set(server.places.borrow().len() as u64);
            server.all_closed.notify_one();
        });
    }
}
