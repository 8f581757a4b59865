//! The transport over real loopback sockets. Nothing sleeps: each step awaits the event it needs,
//! and [`WATCHDOG`] fails a test that hangs.

mod addresses;
mod frames;
mod handshakes;
mod joins;
mod lifetimes;
mod peers;
mod starts;
mod tls;
mod wake_ups;

use super::enrol::EnrolRefusal;
use super::frame::{FrameBatch, FrameChains};
use super::handshake::{Hello, Message, PROTOCOL_VERSIONS, VersionRange};
use super::join::JoinRefusal;
use super::*;
use bytes::{Buf, Bytes, BytesMut};
use std::cell::Cell;
use std::net::SocketAddr;
use tidelock_core::starts::ProcessStart;
use tidelock_core::version::SupportedVersions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Turns a test that hangs into one that fails.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Waits longer than any test: an event that happens all the same did not wait.
const HOURS: BackoffLimits =
    BackoffLimits { min: Duration::from_secs(7_200), max: Duration::from_secs(7_200) };

const CLUSTER: Uuid = Uuid::from_u128(1);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(WATCHDOG, test).await.expect("the test waits for something that never happens");
    });
}

fn host(node: u64) -> Uuid {
    Uuid::from_u128(100 + u128::from(node))
}

fn identity(node: u64) -> Introduction {
    identity_of(node, 1)
}

/// A node's identity at its start number `start`.
fn identity_of(node: u64, start: u64) -> Introduction {
    let start = ProcessStart { number: start, instance: Uuid::from_u128(u128::from(1000 * node + start)) };
    let (supported, version) = (SupportedVersions::OWN, ClusterVersion::FIRST);
    Introduction { cluster: CLUSTER, node: NodeId(node), host: host(node), start, supported, version }
}

fn options(node: u64, peers: &[(u64, String)]) -> TransportOptions {
    TransportOptions {
        version: Rc::new(|| ClusterVersion::FIRST),
        identity: identity(node),
        address: String::new(),
        fallbacks: vec![],
        peers: peers.iter().map(|(node, address)| (NodeId(*node), address.clone())).collect(),
        sink: Rc::new(|_| {}),
        known_peer: Rc::new(|_| KnownPeer::default()),
        removed: Rc::new(|_| {}),
        starts: BTreeMap::new(),
        remember_start: Rc::new(|_, _| {}),
        is_registered: Rc::new(|| true),
        superseded: Rc::new(|_, _| {}),
        joins: Rc::new(|_| Box::pin(async { Err(JoinRefusal::NoLeader) })),
        enrolments: Rc::new(|_| Box::pin(async { Err(EnrolRefusal::NoLeader) })),
        audit_log: Default::default(),
        tls: None,
        limits: TransportLimits::default(),
    }
}

/// A transport and the events that it raised.
struct Node {
    transport: Transport,
    events: mpsc::UnboundedReceiver<Event>,
    address: SocketAddr,
}

impl Node {
    async fn start(options: TransportOptions) -> Node {
        Node::start_at("127.0.0.1:0".parse().unwrap(), options).await
    }

    async fn start_at(address: SocketAddr, mut options: TransportOptions) -> Node {
        let (sender, events) = mpsc::unbounded_channel();
        options.sink = Rc::new(move |event| {
            if !matches!(event, Event::PeerVersions { .. }) {
                drop(sender.send(event));
            }
        });
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        Node { transport: Transport::start(listener, options), events, address }
    }

    async fn event(&mut self) -> Event {
        self.events.recv().await.expect("the transport holds the sender")
    }

    async fn expect_up(&mut self, peer: u64) {
        let event = self.event().await;
        assert!(matches!(event, Event::LinkUp(node) if node == NodeId(peer)), "{event:?}");
    }

    async fn expect_down(&mut self, peer: u64) {
        let event = self.event().await;
        assert!(matches!(event, Event::LinkDown(node) if node == NodeId(peer)), "{event:?}");
    }

    async fn expect_frame(&mut self, peer: u64) -> Bytes {
        match self.event().await {
            Event::Frame { from, payload } if from == NodeId(peer) => payload,
            other => panic!("{other:?}"),
        }
    }

    fn set_peers(&self, peers: &[(u64, SocketAddr)]) {
        let peers = peers.iter().map(|(node, address)| (NodeId(*node), address.to_string()));
        self.transport.set_peers(peers.collect());
    }

    fn send(&self, to: u64, payload: impl Into<Bytes>, droppable: bool) {
        self.transport.send(OutgoingFrame { to: NodeId(to), payload: payload.into(), droppable });
    }
}

/// Node 1, which listens, and node 2, which dials it, with a link between them.
async fn pair() -> (Node, Node) {
    let mut one = Node::start(options(1, &[(2, String::new())])).await;
    let mut two = Node::start(options(2, &[(1, one.address.to_string())])).await;
    one.expect_up(2).await;
    two.expect_up(1).await;
    (one, two)
}

/// A peer that the test plays by hand.
struct Puppet {
    stream: TcpStream,
    buffer: BytesMut,
    chains: FrameChains,
}

/// The nonce of puppets, instead of a random one.
const NONCE: Uuid = Uuid::from_u128(55);

impl Puppet {
    async fn connect(address: SocketAddr) -> Puppet {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Puppet::on(stream)
    }

    fn on(stream: TcpStream) -> Puppet {
        let nil = Uuid::nil();
        Puppet { stream, buffer: BytesMut::new(), chains: FrameChains::of(nil, nil) }
    }

    /// Introduces itself, and returns the nonce of the other side.
    async fn introduce(&mut self, identity: Introduction) -> Uuid {
        self.say(hello(identity)).await;
        let Some(Message::Hello(Hello { nonce, answers, .. })) = self.hear().await else {
            panic!("no introduction")
        };
        assert_eq!(answers, NONCE);
        self.chains = FrameChains::of(NONCE, nonce);
        nonce
    }

    /// Connects and completes a handshake as `identity`.
    async fn link(address: SocketAddr, identity: Introduction) -> Puppet {
        let mut puppet = Puppet::connect(address).await;
        let answers = puppet.introduce(identity).await;
        puppet.say(accept(answers)).await;
        puppet
    }

    async fn say(&mut self, message: Message) {
        self.stream.write_all(&message.encode()).await.unwrap();
    }

    async fn hear(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = Message::decode(&mut self.buffer).unwrap() {
                return Some(message);
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap() == 0 {
                return None;
            }
        }
    }

    async fn send(&mut self, payload: &'static [u8]) {
        let wire = self.wire(payload);
        self.stream.write_all(&wire).await.unwrap();
    }

    /// The bytes of the next frame to send.
    fn wire(&mut self, payload: &'static [u8]) -> BytesMut {
        wire(payload, &mut self.chains.sent)
    }

    /// Waits until the other side closes the connection.
    async fn expect_closed(&mut self) {
        let mut rest = vec![];
        match self.stream.read_to_end(&mut rest).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

fn hello(identity: Introduction) -> Message {
    hello_at(identity, None)
}

/// A `Hello` that states an address.
fn hello_at(identity: Introduction, address: Option<&str>) -> Message {
    let address = address.map(str::to_owned);
    let answers = Uuid::nil();
    Message::Hello(Hello { versions: PROTOCOL_VERSIONS, identity, nonce: NONCE, answers, address })
}

fn accept(answers: Uuid) -> Message {
    Message::Accept { version: PROTOCOL_VERSIONS.max, answers }
}

fn refuse(refusal: HandshakeRefusal) -> Message {
    Message::Refuse { refusal, answers: NONCE }
}

fn wire(payload: &'static [u8], chain: &mut u32) -> BytesMut {
    let mut batch = FrameBatch::new(&[Bytes::from_static(payload)], chain);
    let mut out = BytesMut::new();
    while batch.has_remaining() {
        let chunk = batch.chunk().len();
        out.extend_from_slice(batch.chunk());
        batch.advance(chunk);
    }
    out
}
