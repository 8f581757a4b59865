//! Taking clients in and sending them off, the same for every protocol.
//!
//! Owns which worker serves a connection, what happens when one cannot be accepted, and how a client is told why its connection
//! ends. Who is let in, and how many, each server decides, within what `Clients` permits for all of them.
//!
//! If the process has no descriptor left all the same, because the system has none or the limit was lowered, a spare
//! one is given up for the moment that it takes to accept a client and to refuse it. Without that, clients would wait
//! in the backlog for an answer that does not come.

use std::convert::Infallible;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidelock_core::types::ClientId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::clients::{Client, ClientEntry, Clients};
use crate::counters::Counter;
use crate::descriptors::is_shortage;
use crate::metrics::raise;

/// Listeners for clients that a node can have: HTTP, Redis, Redis Cluster.
const CLIENT_CLASSES: u64 = 4;

/// How long accepting rests after the system had no descriptor or memory for another connection: long enough not to
/// spin, short enough that a client's connect does not time out.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Clients of one server that are being told why their connections end, at a time. Those above do not get the time
/// to read it. Each holds a descriptor beyond those of [`ClientDescriptors`].
pub(crate) const REFUSALS_MAX: usize = 64;

/// How long a client may take to read why its connection ends.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// So many connections of other workers count as much as one of the worker that owns the node. What a request costs there,
/// whoever took it, is about half of what serving its connection costs: with this weight two workers have the same to
/// do, and more of them leave the owner to the node.
const OWNER_WEIGHT: usize = 3;

/// A connection counts, among those of its worker and among those of the node, for as long as its seat lives.
#[derive(Debug)]
pub(crate) struct Seat {
    _load: Arc<()>,
    client: ClientEntry,
}

impl Seat {
    /// Whose connection it is, and what it takes.
    pub fn client(&self) -> Arc<Client> {
        self.client.client()
    }
}

/// The connections of one protocol that one worker serves. Its own clone is not among them.
#[derive(Debug, Default)]
struct Load(Arc<()>);

impl Load {
    fn seat(&self, client: ClientEntry) -> Seat {
        Seat { _load: self.0.clone(), client }
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// A connection on its way to the worker that will serve it.
#[derive(Debug)]
struct Arrival {
    stream: std::net::TcpStream,
    seat: Seat,
}

/// Where the connections of one protocol come to one worker.
///
/// One worker accepts for all of them and hands each connection to the one that has the fewest, its own counting more than
/// others'. (A listening socket for each worker would spare the hand-over, which is one wake-up a connection; but the kernel would
/// deal connections out by a hash of addresses, so that of eight one worker may get seven, and no limit could be one of
/// the whole node.)
#[derive(Debug)]
pub struct Entrance(Side);

#[derive(Debug)]
enum Side {
    Accepts {
        listener: TcpListener,
        /// Of all protocols.
        clients: Clients,
        /// By worker; the first is this one.
        loads: Vec<Load>,
        others: Vec<mpsc::UnboundedSender<Arrival>>,
    },
    IsGiven(mpsc::UnboundedReceiver<Arrival>),
}

/// A server of one protocol, as its entrance needs it.
pub(crate) trait Host {
    /// For people.
    const PROTOCOL: &'static str;

    /// Below [`CLIENT_CLASSES`], and another for each listener: each counts its own clients, and the
    /// class tells them apart.
    fn client_class(&self) -> u64;

    /// What counts failures to accept.
    fn errors(&self) -> &Counter;

    /// Whether one more may come where `open` are, on all workers.
    fn has_room(&self, open: usize) -> bool;

    /// What a client is told that there is no room for. It is called once for each of them.
    fn refusal(&self) -> Vec<u8>;

    /// Those who are being told.
    fn farewells(&self) -> &Farewells;

    /// Serves a connection. It counts as long as `seat` lives.
    fn admit(&self, stream: TcpStream, seat: Seat);
}

impl From<TcpListener> for Entrance {
    /// Of a server that runs on one worker.
    fn from(listener: TcpListener) -> Entrance {
        let clients = Clients::default();
        let [entrance] =
            Entrance::split(listener, 1, clients).try_into().expect("invariant: one for each worker");
        entrance
    }
}

impl Entrance {
    /// One for each of so many workers, at least one; the first accepts for all. `clients` are those of all
    /// protocols.
    pub fn split(listener: TcpListener, workers: usize, clients: Clients) -> Vec<Entrance> {
        let (others, given): (Vec<_>, Vec<_>) = (1..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let loads = (0..=others.len()).map(|_| Load::default()).collect();
        let accepts = Entrance(Side::Accepts { listener, clients, loads, others });
        [accepts].into_iter().chain(given.into_iter().map(|given| Entrance(Side::IsGiven(given)))).collect()
    }

    /// Lets connections in to `host` for ever.
    pub(crate) async fn welcome<H: Host>(&mut self, host: &H) -> Infallible {
        match &mut self.0 {
            Side::Accepts { listener, clients, loads, others } => {
                accept(listener, host, (loads, others, clients)).await
            }
            Side::IsGiven(given) => {
                while let Some(arrival) = given.recv().await {
                    match TcpStream::from_std(arrival.stream) {
                        Ok(stream) => host.admit(stream, arrival.seat),
                        Err(error) => {
                            raise(host.errors());
                            tracing::warn!(%error, protocol = H::PROTOCOL, "cannot serve a connection");
                        }
                    }
                }
                // Whoever accepts is about to stop.
                std::future::pending().await
            }
        }
    }
}

type Workers<'a> = (&'a [Load], &'a [mpsc::UnboundedSender<Arrival>], &'a Clients);

async fn accept<H: Host>(
    listener: &TcpListener,
    host: &H,
    (loads, others, clients): Workers<'_>,
) -> Infallible {
    let mut shortage = Shortage::default();
    let (mut number, mut last) = (0, 0);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                shortage.ended(H::PROTOCOL);
                // Small answers must not wait for the client's delayed acknowledgement. Failing only costs latency.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                let open = loads.iter().map(Load::count).sum();
                let permit = host.has_room(open).then(|| clients.permit(open)).flatten();
                let Some(descriptor) = permit else {
                    host.farewells().say(stream, host.refusal());
                    continue;
                };
                number += 1;
                last = choose(loads, last);
                let id = ClientId(CLIENT_CLASSES * number + host.client_class());
                let seat = loads[last].seat(clients.enter(id, (H::PROTOCOL, Some(address)), descriptor));
                match last.checked_sub(1) {
                    None => host.admit(stream, seat),
                    Some(other) => hand_over(stream, seat, &others[other], host.errors()),
                }
            }
            Err(error) => {
                raise(host.errors());
                if concerns_one_connection(&error) {
                    continue;
                }
                shortage.noted(H::PROTOCOL, &error);
                if !is_shortage(&error) || !shortage.refuse_one(listener, host).await {
                    sleep(ACCEPT_REST).await;
                }
            }
        }
    }
}

/// A time in which connections cannot be accepted for want of descriptors or memory.
struct Shortage {
    is_noted: bool,
    /// Given up to accept a connection only to refuse it.
    spare: Option<File>,
}

impl Default for Shortage {
    fn default() -> Shortage {
        Shortage { is_noted: false, spare: open_spare() }
    }
}

impl Shortage {
    /// Logs the first error; the next ones follow as fast as clients come.
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

    /// Tells one client that there is no room, with the spare descriptor. Returns false if there is none now, so that
    /// nothing can be done for a while.
    async fn refuse_one<H: Host>(&mut self, listener: &TcpListener, host: &H) -> bool {
        if let Some(spare) = self.spare.take() {
            drop(spare);
            let accepted = poll_fn(|context| Poll::Ready(listener.poll_accept(context))).await;
            if let Poll::Ready(Ok((stream, _))) = accepted {
                tell_and_close(&stream, &host.refusal());
            }
        }
        self.spare = open_spare();
        self.spare.is_some()
    }
}

/// Closes a connection at once, because its descriptor is wanted back. The text is in the client's socket before the
/// end. What the client has sent is read first: closing on unread bytes would reset the connection, and the reset could
/// overtake the text. A client whose bytes come later sees the reset behind the text.
fn tell_and_close(stream: &TcpStream, text: &[u8]) {
    // Whatever happens, the connection is over.
    let _ = stream.try_write(text);
    let _ = stream.try_read(&mut [0; 4096]);
}

fn open_spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// The worker with the least to do; of several, the next behind `last`, so that connections which come one after the other
/// do not all meet the same one.
fn choose(loads: &[Load], last: usize) -> usize {
    let behind = |distance: usize| (last + 1 + distance) % loads.len();
    let order = (0..loads.len()).map(behind);
    let weight = |worker| if worker == 0 { OWNER_WEIGHT } else { 1 };
    order.min_by_key(|&worker| loads[worker].count() * weight(worker)).expect("invariant: there is a worker")
}

fn hand_over(stream: TcpStream, seat: Seat, to: &mpsc::UnboundedSender<Arrival>, errors: &Counter) {
    match stream.into_std() {
        // If the other worker has ended meanwhile, the node is about to; the connection closes.
        Ok(stream) => drop(to.send(Arrival { stream, seat })),
        Err(error) => {
            raise(errors);
            tracing::warn!(%error, "cannot hand a connection over");
        }
    }
}

/// Whether accept failed because of the connection that was to be accepted, so that the next may succeed at once.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Tells clients why their connections end. There are as many clones of its inside as are being told.
#[derive(Default)]
pub(crate) struct Farewells(Rc<()>);

impl Farewells {
    /// Sends `text`, which may be empty, and closes when the client has read it, or has had its time.
    pub fn say(&self, stream: TcpStream, text: Vec<u8>) {
        self.say_and_keep(stream, text, None);
    }

    /// The same for a connection that was served: it counts until it is closed.
    pub fn say_and_keep(&self, mut stream: TcpStream, text: Vec<u8>, seat: Option<Seat>) {
        if Rc::strong_count(&self.0) > REFUSALS_MAX {
            return tell_and_close(&stream, &text);
        }
        let farewell = self.0.clone();
        tokio::task::spawn_local(async move {
            let telling = async {
                stream.write_all(&text).await?;
                stream.shutdown().await?;
                // Closing on unread bytes would reset the connection, and the reset can overtake the text.
                let mut discarded = [0; 4096];
                while stream.read(&mut discarded).await? > 0 {}
                io::Result::Ok(())
            };
            // Whatever happened, the connection is over.
            let _ = timeout(FAREWELL_TIMEOUT, telling).await;
            drop((farewell, seat));
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
    struct Keeper {
        errors: Counter,
        refused: Counter,
        farewells: Farewells,
        admitted: RefCell<Vec<(TcpStream, Seat)>>,
    }

    impl Host for Keeper {
        const PROTOCOL: &'static str = "test";

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

        fn farewells(&self) -> &Farewells {
            &self.farewells
        }

        fn admit(&self, stream: TcpStream, seat: Seat) {
            self.admitted.borrow_mut().push((stream, seat));
        }
    }

    /// Three workers on one thread, each with its keeper, while `test` runs.
    async fn with_three<F: Future<Output = ()>>(test: impl FnOnce(SocketAddr, [Rc<Keeper>; 3]) -> F) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let keepers = <[Rc<Keeper>; 3]>::default();
        let welcoming = Entrance::split(listener, 3, Clients::default()).into_iter().zip(keepers.clone());
        let tasks = LocalSet::new();
        for (mut entrance, keeper) in welcoming {
            tasks.spawn_local(async move { entrance.welcome(&*keeper).await });
        }
        tasks.run_until(test(address, keepers)).await;
    }

    /// Connects, and waits until the connection is either kept or refused.
    async fn connect(address: SocketAddr, keepers: &[Rc<Keeper>]) -> TcpStream {
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

    fn counts(keepers: &[Rc<Keeper>; 3]) -> [usize; 3] {
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
            // Who has lost some is given the next ones.
            keepers[2].admitted.borrow_mut().drain(..2);
            add(2).await;
            assert_eq!(counts(&keepers), [1, 3, 3]);
            add(1).await;
            assert_eq!(keepers[0].refused.get(), 2);
            keepers[0].admitted.borrow_mut().clear();
            add(1).await;
            assert_eq!(counts(&keepers), [1, 3, 3]);
            let numbers = keepers.iter().flat_map(|keeper| {
                keeper.admitted.borrow().iter().map(|(_, seat)| seat.client().id).collect::<Vec<_>>()
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
