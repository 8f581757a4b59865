//! Accepting and rejecting client connections, the same for every protocol.
//!
//! Owns which worker serves a connection, what happens if one cannot be accepted, and how a client
//! is told why its connection ends. Each server decides whom it admits and how many, within what
//! `Clients` permits for all of them.
//!
//! If the process runs out of descriptors all the same, because the system has none or the limit
//! was lowered, a spare one is closed for the moment that it takes to accept a client and reject
//! it. Otherwise clients would wait in the backlog without an answer.

use std::convert::Infallible;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidelock_core::types::ClientId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::audit_log::{AuditLog, DeniedReason};
use crate::clients::{Client, ClientEntry, Clients};
use crate::counters::Counter;
use crate::descriptors::{REFUSALS_MAX, is_shortage};
use crate::metrics::raise;
use crate::protocol::ListenerProtocol;
use crate::tls::{HandshakeFailure, MaybeTlsStream, TlsAcceptor};

/// How a connection should continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// Serve requests.
    Serve,
    /// Answer the requests that were received, accept no others, and close.
    Finish,
    /// Close at once.
    Cut,
}

/// Number of client classes, above every [`ConnectionHandler::client_class`].
const CLIENT_CLASSES: u64 = 4;

/// How long accepting pauses after the system had no descriptor or memory for another connection:
/// long enough not to spin, short enough that a client's connect does not time out.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long a client may take to read why its connection ends.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// The worker that owns the node is given one connection for each `OWNER_WEIGHT * others` that each
/// other worker has, where `others` is how many other workers there are. It also executes the
/// requests of all workers: per request, it spends a third to half of the processor time of the
/// worker that serves the connection. The more other workers, the less time is left for its own
/// connections.
const OWNER_WEIGHT: usize = 3;

/// Permission for one open connection. The connection counts, for its worker and for the node,
/// until the permit is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _load: Arc<()>,
    client: ClientEntry,
}

impl ConnectionPermit {
    /// The client of this connection, with its counters.
    pub fn client(&self) -> Arc<Client> {
        self.client.client()
    }
}

/// The connections of one protocol on one worker: one clone for each. The original is not counted.
#[derive(Debug, Default)]
struct Load(Arc<()>);

impl Load {
    fn permit(&self, client: ClientEntry) -> ConnectionPermit {
        ConnectionPermit { _load: self.0.clone(), client }
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// A connection on its way to the worker that will serve it.
#[derive(Debug)]
struct NewConnection {
    stream: std::net::TcpStream,
    permit: ConnectionPermit,
}

/// Delivers the connections of one protocol to one worker.
///
/// One worker accepts for all and hands each connection to the worker with the fewest, except that
/// it gives itself fewer (see `OWNER_WEIGHT`). A listening socket for each worker (`SO_REUSEPORT`)
/// would save waking another worker for each new connection. But the kernel distributes such
/// connections by a hash of their addresses, so one of two workers might get seven of eight, and
/// no limit of connections could apply to the whole node.
#[derive(Debug)]
pub struct Acceptor(Side);

/// The workers that serve the accepted connections.
#[derive(Debug)]
struct Workers {
    /// The clients of all protocols.
    clients: Clients,
    /// Indexed by worker; the first is this one.
    loads: Vec<Load>,
    others: Vec<mpsc::UnboundedSender<NewConnection>>,
}

#[derive(Debug)]
enum Side {
    Accepts { listener: TcpListener, workers: Workers },
    IsGiven(mpsc::UnboundedReceiver<NewConnection>),
}

/// A server of one protocol, as its acceptor uses it.
pub(crate) trait ConnectionHandler {
    /// The protocol's name in log lines.
    const PROTOCOL: ListenerProtocol;

    /// The class of this listener's clients, below [`CLIENT_CLASSES`]. Each listener has another
    /// one: it numbers its own clients, and the class tells them apart.
    fn client_class(&self) -> u64;

    /// Counter of failures to accept.
    fn errors(&self) -> &Counter;

    /// Whether there is room for another connection if `open` are open on all workers.
    fn has_room(&self, open: usize) -> bool;

    /// The text for a client that there is no room for. Called once for each of them.
    fn refusal(&self) -> Vec<u8>;

    /// Writes the text of [`ConnectionHandler::refusal`] to refused clients.
    fn rejections(&self) -> &RejectionWriter;

    /// Serves a connection, which counts until `permit` is dropped.
    fn admit(&self, stream: TcpStream, permit: ConnectionPermit);
}

impl From<TcpListener> for Acceptor {
    /// The acceptor of a server that runs on one worker.
    fn from(listener: TcpListener) -> Acceptor {
        let clients = Clients::default();
        let [acceptor] =
            Acceptor::split(listener, 1, clients).try_into().expect("invariant: one for each worker");
        acceptor
    }
}

impl Acceptor {
    /// One acceptor for each of `workers` workers, at least one; the first accepts for all.
    /// `clients` are those of all protocols.
    pub fn split(listener: TcpListener, workers: usize, clients: Clients) -> Vec<Acceptor> {
        let (others, given): (Vec<_>, Vec<_>) = (1..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let loads = (0..=others.len()).map(|_| Load::default()).collect();
        let accepts = Acceptor(Side::Accepts { listener, workers: Workers { clients, loads, others } });
        [accepts].into_iter().chain(given.into_iter().map(|given| Acceptor(Side::IsGiven(given)))).collect()
    }

    /// Passes connections to `host` until it is dropped.
    pub(crate) async fn serve<H: ConnectionHandler>(&mut self, host: &H) -> Infallible {
        match &mut self.0 {
            Side::Accepts { listener, workers } => accept(listener, host, workers).await,
            Side::IsGiven(given) => {
                while let Some(connection) = given.recv().await {
                    match TcpStream::from_std(connection.stream) {
                        Ok(stream) => host.admit(stream, connection.permit),
                        Err(error) => {
                            raise(host.errors());
                            tracing::warn!(%error, protocol = H::PROTOCOL.name(), "cannot serve a connection");
                        }
                    }
                }
                // The accepting worker is about to stop.
                std::future::pending().await
            }
        }
    }
}

async fn accept<H: ConnectionHandler>(listener: &TcpListener, host: &H, workers: &Workers) -> Infallible {
    let Workers { clients, loads, others } = workers;
    let mut shortage = Shortage::default();
    let (mut number, mut last) = (0, 0);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                shortage.ended(H::PROTOCOL.name());
                // Small answers must not wait for the client's delayed acknowledgement. Failing
                // only costs latency.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                let open = loads.iter().map(Load::count).sum();
                let permit = host.has_room(open).then(|| clients.permit(open)).flatten();
                let Some(descriptor) = permit else {
                    host.rejections().send(stream, host.refusal());
                    continue;
                };
                number += 1;
                last = choose(loads, last);
                let id = ClientId(CLIENT_CLASSES * number + host.client_class());
                let permit = loads[last].permit(clients.enter(id, H::PROTOCOL, Some(address), descriptor));
                match last.checked_sub(1) {
                    None => host.admit(stream, permit),
                    Some(other) => hand_over(stream, permit, &others[other], host.errors()),
                }
            }
            Err(error) => {
                raise(host.errors());
                if concerns_one_connection(&error) {
                    continue;
                }
                shortage.noted(H::PROTOCOL.name(), &error);
                if !is_shortage(&error) || !shortage.refuse_one(listener, host).await {
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
}

/// A period in which connections cannot be accepted for lack of descriptors or memory.
struct Shortage {
    is_noted: bool,
    /// Closed in order to accept a connection only to reject it.
    spare: Option<File>,
}

impl Default for Shortage {
    fn default() -> Shortage {
        Shortage { is_noted: false, spare: open_spare() }
    }
}

impl Shortage {
    /// Logs only the first error: further ones follow with every client.
    fn noted(&mut self, protocol: &str, error: &io::Error) {
        if !std::mem::replace(&mut self.is_noted, true) {
            tracing::warn!(%error, protocol, "cannot accept connections: clients are refused until it can");
        }
    }

    fn ended(&mut self, protocol: &str) {
        if std::mem::take(&mut self.is_noted) {
            tracing::info!(protocol, "connections are accepted again");
        }
        if self.spare.is_none() {
            self.spare = open_spare();
        }
    }

    /// Rejects one client with the spare descriptor. Returns false if there is none now, so that
    /// nothing can be done for a while.
    async fn refuse_one<H: ConnectionHandler>(&mut self, listener: &TcpListener, host: &H) -> bool {
        if let Some(spare) = self.spare.take() {
            drop(spare);
            let accepted = poll_fn(|context| Poll::Ready(listener.poll_accept(context))).await;
            if let Poll::Ready(Ok((stream, _))) = accepted {
                reject_at_once(&stream, &host.refusal());
            }
        }
        self.spare = open_spare();
        self.spare.is_some()
    }
}

/// Closes a connection at once, because its descriptor is needed. The text is in the client's
/// socket before the end of the stream. What the client has sent is read first: closing with unread
/// bytes would reset the connection, and the reset could overtake the text. A client whose bytes
/// arrive later sees the reset after the text.
fn reject_at_once(stream: &TcpStream, text: &[u8]) {
    // The connection ends even if these fail.
    let _ = stream.try_write(text);
    let _ = stream.try_read(&mut [0; 4096]);
}

fn open_spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Chooses the least loaded worker. Among several it takes the next after `last`, so that
/// consecutive connections go to different workers.
fn choose(loads: &[Load], last: usize) -> usize {
    let behind = |distance: usize| (last + 1 + distance) % loads.len();
    let order = (0..loads.len()).map(behind);
    let weight = |worker| if worker == 0 { OWNER_WEIGHT * (loads.len() - 1) } else { 1 };
    order.min_by_key(|&worker| loads[worker].count() * weight(worker)).expect("invariant: there is a worker")
}

fn hand_over(
    stream: TcpStream,
    permit: ConnectionPermit,
    to: &mpsc::UnboundedSender<NewConnection>,
    errors: &Counter,
) {
    match stream.into_std() {
        // If the other worker has ended, the node is about to stop; the connection closes.
        Ok(stream) => drop(to.send(NewConnection { stream, permit })),
        Err(error) => {
            raise(errors);
            tracing::warn!(%error, "cannot hand a connection over");
        }
    }
}

/// Whether accept failed because of the connection itself, so that the next call may succeed at
/// once.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// What the handshakes of a listener's clients need.
pub(crate) struct ClientHandshakes<'a> {
    /// `None`: clients connect without TLS.
    pub tls: Option<&'a TlsAcceptor>,
    pub rejections: &'a RejectionWriter,
    pub audit_log: &'a AuditLog,
    pub protocol: ListenerProtocol,
}

impl ClientHandshakes<'_> {
    /// The handshake of a new connection, if clients connect with TLS. A client that does not is
    /// sent `text`. `None`: the connection has ended.
    pub async fn run(
        &self,
        stream: TcpStream,
        address: Option<IpAddr>,
        text: impl FnOnce() -> Vec<u8>,
    ) -> Option<MaybeTlsStream> {
        let Some(tls) = self.tls else { return Some(MaybeTlsStream::Plain(stream)) };
        let denied = |detail: String| {
            self.audit_log.denied(DeniedReason::TlsFailed, self.protocol, || (address, None), || detail);
        };
        match tls.accept(stream).await {
            Ok(stream) => return Some(stream),
            Err(HandshakeFailure::NotTls(stream)) => {
                denied("it connects without TLS".to_owned());
                self.rejections.send(stream, text());
            }
            Err(HandshakeFailure::Failed(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                // Checks by load balancers, and scans of ports, end the connection at once.
                if error.get_ref().is_some_and(|source| source.is::<rustls::Error>()) {
                    denied(error.to_string());
                }
            }
            Err(HandshakeFailure::Timeout) => tracing::debug!("a TLS handshake took too long"),
            Err(HandshakeFailure::Evicted) => {
                tracing::debug!("a newer TLS handshake has evicted this one");
            }
        }
        None
    }
}

/// Tells clients why their connections end. Clones of its `Rc` count the clients being told.
#[derive(Clone, Default)]
pub(crate) struct RejectionWriter(Rc<()>);

impl RejectionWriter {
    /// Sends `text`, which may be empty, and closes once the client has read it or its time is
    /// over.
    pub fn send(&self, stream: TcpStream, text: Vec<u8>) {
        self.send_and_hold(MaybeTlsStream::Plain(stream), text, None);
    }

    /// As [`RejectionWriter::send`], for a connection that was served. It counts towards the limit
    /// of connections until it is closed.
    pub fn send_and_hold(&self, mut stream: MaybeTlsStream, text: Vec<u8>, permit: Option<ConnectionPermit>) {
        if Rc::strong_count(&self.0) > REFUSALS_MAX {
            if let MaybeTlsStream::Plain(stream) = &stream {
                reject_at_once(stream, &text);
            }
            return;
        }
        let counted = self.0.clone();
        tokio::task::spawn_local(async move {
            let telling = async {
                stream.write_all(&text).await?;
                stream.shutdown().await?;
                // Closing with unread bytes would reset the connection, and the reset could
                // overtake the text.
                let mut discarded = [0; 4096];
                while stream.read(&mut discarded).await? > 0 {}
                io::Result::Ok(())
            };
            // The connection ends even if telling failed.
            let _ = timeout(REJECTION_TIMEOUT, telling).await;
            drop((counted, permit));
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    use tokio::task::LocalSet;

    use super::*;

    const ROOM: usize = 7;

    /// Keeps what it is given.
    #[derive(Default)]
    struct KeepAll {
        errors: Counter,
        refused: Counter,
        rejections: RejectionWriter,
        admitted: RefCell<Vec<(TcpStream, ConnectionPermit)>>,
    }

    impl ConnectionHandler for KeepAll {
        const PROTOCOL: ListenerProtocol = ListenerProtocol::Http;

        fn client_class(&self) -> u64 {
            0
        }

        fn errors(&self) -> &Counter {
            &self.errors
        }

        fn has_room(&self, open: usize) -> bool {
            open < ROOM
        }

        fn refusal(&self) -> Vec<u8> {
            raise(&self.refused);
            b"no room".to_vec()
        }

        fn rejections(&self) -> &RejectionWriter {
            &self.rejections
        }

        fn admit(&self, stream: TcpStream, permit: ConnectionPermit) {
            self.admitted.borrow_mut().push((stream, permit));
        }
    }

    /// Runs `test` with three workers on one thread, each with a [`KeepAll`].
    async fn with_three<F: Future<Output = ()>>(test: impl FnOnce(SocketAddr, [Rc<KeepAll>; 3]) -> F) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let keepers = <[Rc<KeepAll>; 3]>::default();
        let welcoming = Acceptor::split(listener, 3, Clients::default()).into_iter().zip(keepers.clone());
        let tasks = LocalSet::new();
        for (mut acceptor, keeper) in welcoming {
            tasks.spawn_local(async move { acceptor.serve(&*keeper).await });
        }
        tasks.run_until(test(address, keepers)).await;
    }

    /// Connects, and waits until the connection is either kept or refused.
    async fn connect(address: SocketAddr, keepers: &[Rc<KeepAll>]) -> TcpStream {
        let seen = || -> u64 {
            keepers.iter().map(|keeper| keeper.admitted.borrow().len() as u64 + keeper.refused.get()).sum()
        };
        let before = seen();
        let client = TcpStream::connect(address).await.unwrap();
        while seen() == before {
            tokio::task::yield_now().await;
        }
        client
    }

    fn counts(keepers: &[Rc<KeepAll>; 3]) -> [usize; 3] {
        keepers.each_ref().map(|keeper| keeper.admitted.borrow().len())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn connections_are_spread_by_what_workers_have_to_do_and_limited_together() {
        with_three(|address, keepers| async move {
            let mut clients = Vec::new();
            let mut add = async |count| {
                for _ in 0..count {
                    clients.push(connect(address, &keepers).await);
                }
            };
            add(7).await;
            assert_eq!(counts(&keepers), [1, 3, 3]);
            add(1).await;
            assert_eq!(keepers[0].refused.get(), 1, "there is no room for an eighth");
            // The worker that lost connections is given the next ones.
            keepers[2].admitted.borrow_mut().drain(..2);
            add(2).await;
            assert_eq!(counts(&keepers), [1, 3, 3]);
            add(1).await;
            assert_eq!(keepers[0].refused.get(), 2);
            keepers[0].admitted.borrow_mut().clear();
            add(1).await;
            assert_eq!(counts(&keepers), [1, 3, 3]);
            let numbers = keepers.iter().flat_map(|keeper| {
                keeper.admitted.borrow().iter().map(|(_, permit)| permit.client().id).collect::<Vec<_>>()
            });
            let distinct: BTreeSet<ClientId> = numbers.clone().collect();
            assert_eq!(distinct.len(), numbers.count());
        })
        .await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_connection_works_wherever_it_is_served() {
        with_three(|address, keepers| async move {
            for expected in [1, 2, 0, 1, 2, 0] {
                let mut client = connect(address, &keepers).await;
                let (mut served, _seat) = keepers[expected].admitted.borrow_mut().pop().unwrap();
                client.write_all(b"hello").await.unwrap();
                let mut received = [0; 5];
                served.read_exact(&mut received).await.unwrap();
                assert_eq!(&received, b"hello");
                assert!(served.nodelay().unwrap());
            }
        })
        .await;
    }

    #[test]
    fn the_owning_worker_is_given_fewer_connections_the_more_workers_there_are() {
        // Divisible among two, three and four workers.
        const CONNECTIONS: usize = 4 * 13 * 28;
        let counts_of = |workers: usize| -> Vec<usize> {
            let loads: Vec<Load> = (0..workers).map(|_| Load::default()).collect();
            let clients = Clients::default();
            let mut last = 0;
            let mut permits = Vec::new();
            for number in 0..CONNECTIONS {
                last = choose(&loads, last);
                let descriptor = clients.permit(number).expect("there is room");
                let client = clients.enter(ClientId(number as u64), ListenerProtocol::Http, None, descriptor);
                permits.push(loads[last].permit(client));
            }
            loads.iter().map(Load::count).collect()
        };
        assert_eq!(counts_of(1), [1456]);
        assert_eq!(counts_of(2), [364, 1092]);
        assert_eq!(counts_of(3), [112, 672, 672]);
        assert_eq!(counts_of(4), [52, 468, 468, 468]);
    }

    #[test]
    fn only_a_shortage_makes_accepting_rest() {
        for number in [rustix::io::Errno::CONNABORTED, rustix::io::Errno::CONNRESET, rustix::io::Errno::INTR]
        {
            assert!(concerns_one_connection(&number.into()), "{number}");
        }
        for number in [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOBUFS] {
            assert!(!concerns_one_connection(&number.into()), "{number}");
        }
    }
}
