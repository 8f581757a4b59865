//! The Redis listeners and their connections: accept, limit, serve, close.
//!
//! There are two. On the one for clients of a single Redis, every node shows the whole store. On
//! the one for Redis Cluster clients, a node shows the slots that it leads.
//!
//! Owns the life of every connection from accept to close, and the order of a graceful shutdown,
//! like the HTTP server. It does not interpret commands. Invariants: no error of a client or of the
//! system ends the server. Above the limit of connections a client gets an error that says so.
//! `serve` returns when the last connection is closed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use slab::Slab;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::RespContext;
use super::connection::{ConnectionEnd, RespConnection};
use super::dyn_store::DynStore;
use super::session::Session;
use crate::accept::{
    Acceptor, ClientHandshakes, CloseMode, ConnectionHandler, ConnectionPermit, RejectionWriter,
};
use crate::clients::Clients;
use crate::counters::Counter;
use crate::memory::MemoryExhausted;
use crate::metrics::raise;
use crate::protocol::ListenerProtocol;
use crate::store::Store;

/// Longest time between two sweeps for clients that take nothing.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Delivers the connections of both listeners to one worker.
#[derive(Debug)]
pub struct Acceptors {
    standalone: Acceptor,
    cluster: Option<Acceptor>,
}

impl From<(TcpListener, TcpListener)> for Acceptors {
    /// The acceptors of a server that runs on one worker.
    fn from((standalone, cluster): (TcpListener, TcpListener)) -> Acceptors {
        Acceptors { standalone: standalone.into(), cluster: Some(cluster.into()) }
    }
}

impl Acceptors {
    /// One for each of `workers` workers. The second listener is the one for Redis Cluster clients.
    pub fn split(
        standalone: TcpListener,
        cluster: Option<TcpListener>,
        workers: usize,
        clients: &Clients,
    ) -> Vec<Acceptors> {
        let split = |listener| Acceptor::split(listener, workers, clients.clone());
        let mut clusters = cluster.into_iter().flat_map(split);
        let standalone = split(standalone).into_iter();
        standalone.map(|standalone| Acceptors { standalone, cluster: clusters.next() }).collect()
    }
}

/// Serves the Redis protocol to the connections of `acceptors` until `shutdown` is true or its
/// sender is dropped, then finishes what is in flight and returns. Requires a context for local
/// tasks, on a runtime with time and I/O.
pub async fn serve<S: Store>(
    mut acceptors: Acceptors,
    store: S,
    context: Rc<RespContext>,
    mut shutdown: watch::Receiver<bool>,
) {
    let (order, _) = watch::channel(CloseMode::Serve);
    let server = Rc::new(RespServer {
        store: Rc::new(store),
        context,
        places: RefCell::default(),
        all_closed: Notify::new(),
        order,
        rejections: RejectionWriter::default(),
    });
    let [standalone, for_cluster] =
        [false, true].map(|is_cluster| Listener { server: server.clone(), is_cluster });
    let cluster = async {
        match &mut acceptors.cluster {
            Some(acceptor) => acceptor.serve(&for_cluster).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = acceptors.standalone.serve(&standalone) => {}
        _ = cluster => {}
        () = server.sweep() => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    drop(acceptors);
    server.order.send_replace(CloseMode::Finish);
    if timeout(server.context.options.drain_timeout, server.drained()).await.is_err() {
        let connections = server.places.borrow().len();
        tracing::warn!(connections, "cutting Redis connections that do not end");
        server.order.send_replace(CloseMode::Cut);
        server.drained().await;
    }
}

struct RespServer {
    store: Rc<dyn DynStore>,
    context: Rc<RespContext>,
    places: RefCell<Slab<ConnectionControl>>,
    all_closed: Notify,
    order: watch::Sender<CloseMode>,
    rejections: RejectionWriter,
}

/// The server's entry of a connection.
#[derive(Clone, Default)]
struct ConnectionControl {
    stalled_since: Rc<Cell<Option<Instant>>>,
    cut: Rc<Notify>,
}

impl RespServer {
    /// Cuts connections whose clients take nothing, until it is dropped.
    async fn sweep(&self) {
        let timeout = self.context.options.stall_timeout;
        let mut ticks = interval((timeout / 4).clamp(Duration::from_millis(1), SWEEP_INTERVAL_MAX));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for (_, place) in &*self.places.borrow() {
                if place.stalled_since.get().is_some_and(|since| since.elapsed() >= timeout) {
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

    async fn serve_connection(&self, mut connection: RespConnection, cut: &Notify, permit: ConnectionPermit) {
        let mut order = self.order.subscribe();
        let served = tokio::select! {
            biased;
            () = cut.notified() => Some(ConnectionEnd::Orderly),
            // The sender lives as long as this.
            _ = order.wait_for(|order| *order != CloseMode::Serve) => None,
            end = connection.serve() => Some(end),
        };
        let end = match served {
            Some(end) => end,
            None => {
                connection.begin_closing();
                tokio::select! {
                    end = connection.serve() => end,
                    () = cut.notified() => ConnectionEnd::Orderly,
                    _ = order.wait_for(|order| *order == CloseMode::Cut) => ConnectionEnd::Orderly,
                }
            }
        };
        let stream = connection.into_stream();
        match end {
            ConnectionEnd::Orderly => {}
            ConnectionEnd::Protocol => {
                raise(&self.context.counters.protocol_errors);
                self.rejections.send_and_hold(stream, Vec::new(), Some(permit));
            }
            ConnectionEnd::Failed(error) => tracing::debug!(%error, "a Redis connection ended in an error"),
        }
    }
}

/// One of the listeners.
struct Listener {
    server: Rc<RespServer>,
    is_cluster: bool,
}

impl ConnectionHandler for Listener {
    const PROTOCOL: ListenerProtocol = ListenerProtocol::Resp;

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

    fn rejections(&self) -> &RejectionWriter {
        &self.server.rejections
    }

    fn admit(&self, stream: TcpStream, permit: ConnectionPermit) {
        let client = permit.client();
        let server = self.server.clone();
        let (context, counters) = (&server.context, &server.context.counters);
        raise(&counters.connections_accepted);
        let place = ConnectionControl::default();
        let position = server.places.borrow_mut().insert(place.clone());
        counters.connections_open.set(server.places.borrow().len() as u64);
        let store = server.store.for_client(client.id);
        let mut session = Session::new(client.id.0, context.clone(), store);
        session.is_cluster = self.is_cluster;
        session.address = client.address.map(|address| address.ip());
        tokio::task::spawn_local(async move {
            let handshakes = ClientHandshakes {
                tls: server.context.tls.as_ref(),
                rejections: &server.rejections,
                audit_log: &server.context.audit_log,
                protocol: ListenerProtocol::Resp,
            };
            if let Some(stream) = handshakes.run(stream, session.address, plain_resp_refusal).await {
                session.present(stream.client_certificate());
                session.is_protected_from = session.context.protected_mode && !stream.is_local();
                let connection = RespConnection::new(stream, session, place.stalled_since, client);
                server.serve_connection(connection, &place.cut, permit).await;
            }
            server.places.borrow_mut().remove(position);
            server.context.counters.connections_open.set(server.places.borrow().len() as u64);
            server.all_closed.notify_one();
        });
    }
}

/// The reply to a client without TLS.
fn plain_resp_refusal() -> Vec<u8> {
    b"-ERR clients of this node connect with TLS\r\n".to_vec()
}
