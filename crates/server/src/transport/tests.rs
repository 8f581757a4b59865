//! The transport over real loopback sockets. Nothing sleeps: each step awaits the event it needs, and a test that
//! waits in vain is ended by [`WATCHDOG`].

use super::frame::FrameBatch;
use super::handshake::{Hello, Message, PROTOCOL_VERSIONS, VersionRange};
use super::*;
use bytes::{Buf, Bytes, BytesMut};
use std::cell::Cell;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Turns a test that hangs into one that fails.
const WATCHDOG: Duration = Duration::from_secs(60);

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

fn identity(node: u64) -> Identity {
    Identity { cluster: CLUSTER, node: NodeId(node), host: host(node) }
}

fn options(node: u64, peers: &[(u64, String)]) -> TransportOptions {
    TransportOptions {
        identity: identity(node),
        peers: peers.iter().map(|(node, address)| (NodeId(*node), address.clone())).collect(),
        sink: Rc::new(|_| {}),
        accepts: Rc::new(|_, _| Ok(())),
        limits: TransportLimits::default(),
    }
}

/// A transport and what it told its owner.
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
        options.sink = Rc::new(move |event| drop(sender.send(event)));
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

/// A peer played by hand.
struct Puppet {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Puppet {
    async fn connect(address: SocketAddr) -> Puppet {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Puppet { stream, buffer: BytesMut::new() }
    }

    /// Connects and introduces itself as `identity`, all the way.
    async fn link(address: SocketAddr, identity: Identity) -> Puppet {
        let mut puppet = Puppet::connect(address).await;
        puppet.say(hello(identity)).await;
        assert!(matches!(puppet.hear().await, Some(Message::Hello(_))));
        puppet.say(Message::Accept { version: PROTOCOL_VERSIONS.max }).await;
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
        self.stream.write_all(&wire(payload)).await.unwrap();
    }

    /// Waits until the other side hangs up.
    async fn expect_closed(&mut self) {
        let mut rest = vec![];
        match self.stream.read_to_end(&mut rest).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

fn hello(identity: Identity) -> Message {
    Message::Hello(Hello { versions: PROTOCOL_VERSIONS, identity })
}

fn wire(payload: &'static [u8]) -> BytesMut {
    let mut batch = FrameBatch::new(&[Bytes::from_static(payload)]);
    let mut out = BytesMut::new();
    while batch.has_remaining() {
        let chunk = batch.chunk().len();
        out.extend_from_slice(batch.chunk());
        batch.advance(chunk);
    }
    out
}

#[test]
fn frames_travel_both_ways_in_order() {
    run(async {
        let (mut one, mut two) = pair().await;
        for number in 0..1000u32 {
            one.send(2, number.to_le_bytes().to_vec(), number % 2 == 0);
            two.send(1, (number + 7).to_le_bytes().to_vec(), number % 3 == 0);
        }
        for number in 0..1000u32 {
            assert_eq!(two.expect_frame(1).await, number.to_le_bytes()[..]);
            assert_eq!(one.expect_frame(2).await, (number + 7).to_le_bytes()[..]);
        }
        let counters = two.transport.counters();
        assert_eq!((counters.frames_received.get(), counters.bytes_received.get()), (1000, 12_000));
        assert_eq!(counters.frames_dropped.get() + one.transport.counters().frames_dropped.get(), 0);
    });
}

#[test]
fn large_frames_arrive_between_small_ones() {
    run(async {
        let (one, mut two) = pair().await;
        let sent: Vec<Bytes> = [1, 5 << 20, 4097, 17 << 20, 4096, 3]
            .iter()
            .map(|&length| (0..length).map(|position: usize| ((position * 31) >> 3) as u8).collect())
            .collect();
        for payload in &sent {
            one.send(2, payload.clone(), false);
        }
        for payload in &sent {
            assert!(two.expect_frame(1).await == *payload);
        }
    });
}

#[test]
fn every_node_of_three_reaches_every_other() {
    run(async {
        let mut one = Node::start(options(1, &[(2, String::new()), (3, String::new())])).await;
        let peers = [(1, one.address.to_string()), (3, String::new())];
        let mut two = Node::start(options(2, &peers)).await;
        let peers = [(1, one.address.to_string()), (2, two.address.to_string())];
        let mut three = Node::start(options(3, &peers)).await;
        for node in [&mut one, &mut two, &mut three] {
            for _ in 0..2 {
                assert!(matches!(node.event().await, Event::LinkUp(_)));
            }
        }
        two.send(3, "down", true);
        three.send(1, "up", true);
        assert_eq!(three.expect_frame(2).await, "down");
        assert_eq!(one.expect_frame(3).await, "up");
    });
}

/// What node 2, which knows nodes 1 to 3 and host 3, answers to an introduction.
async fn answer_to(message: Message) -> Option<Message> {
    let mut options = options(2, &[(1, "127.0.0.1:1".into()), (3, String::new())]);
    options.accepts =
        Rc::new(
            |node, host| {
                if host == identity(node.0).host { Ok(()) } else { Err(HandshakeRefusal::HostMismatch) }
            },
        );
    let node = Node::start(options).await;
    let mut puppet = Puppet::connect(node.address).await;
    puppet.say(message).await;
    let answer = puppet.hear().await;
    if matches!(answer, Some(Message::Refuse(_))) {
        puppet.expect_closed().await;
        assert_eq!(node.transport.counters().handshakes_refused.get(), 1);
    }
    answer
}

#[test]
fn the_listener_tells_why_it_refuses() {
    run(async {
        let refusal_of = async |identity| match answer_to(hello(identity)).await {
            Some(Message::Refuse(refusal)) => refusal,
            other => panic!("{other:?}"),
        };
        use HandshakeRefusal as R;
        assert_eq!(refusal_of(Identity { cluster: Uuid::nil(), ..identity(3) }).await, R::WrongCluster);
        assert_eq!(refusal_of(identity(9)).await, R::UnknownNode);
        assert_eq!(refusal_of(Identity { host: host(8), ..identity(3) }).await, R::HostMismatch);
        assert_eq!(refusal_of(identity(2)).await, R::SelfConnection);
        assert_eq!(refusal_of(Identity { host: host(8), ..identity(2) }).await, R::SameNumber);
        assert_eq!(refusal_of(identity(1)).await, R::WrongDirection);
        let versions = VersionRange { min: 900, max: 901 };
        let newer = Message::Hello(Hello { versions, identity: identity(3) });
        assert_eq!(answer_to(newer).await, Some(Message::Refuse(R::UnsupportedVersion)));
        assert_eq!(answer_to(hello(identity(3))).await, Some(hello(identity(2))));
    });
}

/// What node 2 answers when the listener that it dials as node 1 introduces itself as `identity`.
async fn answer_to_listener(identity: Identity) -> Message {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut options = options(2, &[(1, address), (3, String::new())]);
    options.accepts =
        Rc::new(|_, uuid| if uuid == host(9) { Err(HandshakeRefusal::HostMismatch) } else { Ok(()) });
    let node = Node::start(options).await;
    let (stream, _) = listener.accept().await.unwrap();
    let mut puppet = Puppet { stream, buffer: BytesMut::new() };
    assert_eq!(puppet.hear().await, Some(hello(self::identity(2))));
    puppet.say(hello(identity)).await;
    let answer = puppet.hear().await.unwrap();
    let refused = matches!(answer, Message::Refuse(_));
    assert_eq!(node.transport.counters().handshakes_refused.get(), u64::from(refused));
    answer
}

#[test]
fn the_dialer_judges_too() {
    run(async {
        use HandshakeRefusal as R;
        let refuse = Message::Refuse;
        assert_eq!(answer_to_listener(identity(1)).await, Message::Accept { version: 1 });
        assert_eq!(answer_to_listener(identity(3)).await, refuse(R::UnexpectedNode));
        assert_eq!(answer_to_listener(identity(7)).await, refuse(R::UnknownNode));
        assert_eq!(answer_to_listener(identity(2)).await, refuse(R::SelfConnection));
        let other_disk = Identity { host: host(9), ..identity(1) };
        assert_eq!(answer_to_listener(other_disk).await, refuse(R::HostMismatch));
        let stranger = Identity { cluster: Uuid::nil(), ..identity(1) };
        assert_eq!(answer_to_listener(stranger).await, refuse(R::WrongCluster));
    });
}

#[test]
fn a_refused_dialer_tries_on_until_it_is_taken() {
    run(async {
        let attempts = Rc::new(Cell::new(0));
        let mut options_of_one = options(1, &[(2, String::new())]);
        options_of_one.accepts = {
            let attempts = attempts.clone();
            Rc::new(move |_, _| {
                attempts.set(attempts.get() + 1);
                if attempts.get() < 3 { Err(HandshakeRefusal::HostMismatch) } else { Ok(()) }
            })
        };
        let mut one = Node::start(options_of_one).await;
        let mut two = Node::start(options(2, &[(1, one.address.to_string())])).await;
        one.expect_up(2).await;
        two.expect_up(1).await;
        assert_eq!(attempts.get(), 3);
        assert_eq!(one.transport.counters().handshakes_refused.get(), 2);
        assert_eq!(one.transport.counters().reconnects.get(), 0);
    });
}

#[test]
fn strangers_and_the_silent_are_hung_up_on_without_a_word() {
    run(async {
        let mut options = options(1, &[(2, String::new())]);
        options.limits.handshake_timeout = Duration::from_millis(20);
        let node = Node::start(options).await;
        let mut browser = Puppet::connect(node.address).await;
        browser.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        browser.expect_closed().await;
        let mut silent = Puppet::connect(node.address).await;
        assert_eq!(silent.hear().await, None);
        assert_eq!(node.transport.counters().handshakes_refused.get(), 2);
    });
}

#[test]
fn unfinished_handshakes_are_bounded() {
    run(async {
        let mut node = Node::start(options(1, &[(2, String::new())])).await;
        let mut silent = vec![];
        for _ in 0..listener::HANDSHAKES_MAX {
            silent.push(Puppet::connect(node.address).await);
        }
        let mut one_too_many = Puppet::connect(node.address).await;
        one_too_many.expect_closed().await;
        silent.clear();
        // The listener sees the departed before or after this caller; a peer tries again until there is room.
        while node.events.is_empty() {
            let mut puppet = Puppet::connect(node.address).await;
            if puppet.stream.write_all(&hello(identity(2)).encode()).await.is_ok()
                && puppet.stream.read_buf(&mut puppet.buffer).await.is_ok_and(|read| read > 0)
            {
                puppet.say(Message::Accept { version: 1 }).await;
                node.expect_up(2).await;
                return;
            }
        }
    });
}

#[test]
fn damaged_frames_end_the_link() {
    run(async {
        let mut node = Node::start(options(1, &[(2, String::new())])).await;
        let mut flipped = wire(b"payload");
        flipped[9] ^= 1;
        let oversize = BytesMut::from(&u32::MAX.to_le_bytes()[..]);
        let empty = BytesMut::zeroed(8);
        for (damage, cut_short) in
            [(flipped, false), (oversize, false), (empty, false), (wire(b"payload"), true)]
        {
            let mut puppet = Puppet::link(node.address, identity(2)).await;
            node.expect_up(2).await;
            puppet.send(b"whole").await;
            assert_eq!(node.expect_frame(2).await, "whole");
            if cut_short {
                puppet.stream.write_all(&damage[..damage.len() - 1]).await.unwrap();
                puppet.stream.shutdown().await.unwrap();
            } else {
                puppet.stream.write_all(&damage).await.unwrap();
            }
            node.expect_down(2).await;
            puppet.expect_closed().await;
        }
        let counters = node.transport.counters();
        assert_eq!((counters.checksum_failures.get(), counters.length_violations.get()), (1, 2));
        assert_eq!((counters.frames_received.get(), counters.reconnects.get()), (4, 3));
    });
}

#[test]
fn a_newer_connection_replaces_the_older_one() {
    run(async {
        let mut node = Node::start(options(1, &[(2, String::new())])).await;
        let mut older = Puppet::link(node.address, identity(2)).await;
        node.expect_up(2).await;
        older.send(b"old").await;
        assert_eq!(node.expect_frame(2).await, "old");
        let mut newer = Puppet::link(node.address, identity(2)).await;
        newer.send(b"new").await;
        node.expect_down(2).await;
        node.expect_up(2).await;
        assert_eq!(node.expect_frame(2).await, "new");
        // The older connection is closed, and nothing more comes of it: the next event is the newer one's end.
        older.expect_closed().await;
        node.send(2, "answer", true);
        newer.stream.read_exact(&mut [0; 14]).await.unwrap();
        drop(newer);
        node.expect_down(2).await;
        assert!(node.events.is_empty());
    });
}

#[test]
fn frames_read_before_the_link_was_replaced_are_not_delivered_after() {
    run(async {
        let mut node = Node::start(options(1, &[(2, String::new())])).await;
        for _ in 0..50 {
            // The old connection's last frames and the new connection's handshake become readable together.
            let mut older = Puppet::link(node.address, identity(2)).await;
            let mut newer = Puppet::connect(node.address).await;
            newer.say(hello(identity(2))).await;
            assert!(matches!(newer.hear().await, Some(Message::Hello(_))));
            node.expect_up(2).await;
            let accept = Message::Accept { version: 1 }.encode();
            newer.stream.try_write(&accept).unwrap();
            newer.stream.try_write(&wire(b"new")).unwrap();
            older.stream.try_write(&wire(b"old")).unwrap();
            let mut event = node.event().await;
            if let Event::Frame { payload, .. } = &event {
                assert_eq!(payload, "old");
                event = node.event().await;
            }
            assert!(matches!(event, Event::LinkDown(_)), "{event:?}");
            node.expect_up(2).await;
            assert_eq!(node.expect_frame(2).await, "new");
            older.expect_closed().await;
            drop(newer);
            node.expect_down(2).await;
        }
    });
}

#[test]
fn links_come_back_after_either_side_restarts() {
    run(async {
        let (mut one, mut two) = pair().await;
        let address = one.address;
        one.transport.stop().await;
        one.expect_down(2).await;
        two.expect_down(1).await;
        drop(one);
        let mut one = Node::start_at(address, options(1, &[(2, String::new())])).await;
        one.expect_up(2).await;
        two.expect_up(1).await;
        assert_eq!(two.transport.counters().reconnects.get(), 1);

        // This time without a goodbye.
        drop(two);
        one.expect_down(2).await;
        let mut two = Node::start(options(2, &[(1, address.to_string())])).await;
        one.expect_up(2).await;
        two.expect_up(1).await;
        two.send(1, "again", false);
        assert_eq!(one.expect_frame(2).await, "again");
        assert_eq!(one.transport.counters().reconnects.get(), 1);
    });
}

#[test]
fn a_full_queue_drops_what_may_be_dropped() {
    run(async {
        let mut options = options(1, &[(2, String::new())]);
        options.limits.queue = QueueLimits { droppable_bytes_max: 1000, bytes_max: 2000 };
        let mut node = Node::start(options).await;
        let mut puppet = Puppet::link(node.address, identity(2)).await;
        node.expect_up(2).await;
        // Nothing is awaited between these, so nothing is written between them.
        for _ in 0..10 {
            node.send(2, vec![1; 242], true);
        }
        node.send(2, "must arrive", false);
        assert_eq!(node.transport.counters().frames_dropped.get(), 6);
        let mut received = vec![0; 4 * 250 + 19];
        puppet.stream.read_exact(&mut received).await.unwrap();
        assert!(received.ends_with(b"must arrive"));
        // The queue is empty again and takes what it dropped before.
        node.send(2, vec![1; 242], true);
        puppet.stream.read_exact(&mut received[..250]).await.unwrap();
        assert_eq!(node.transport.counters().frames_dropped.get(), 6);
        assert_eq!(node.transport.counters().frames_sent.get(), 6);
    });
}

#[test]
fn a_queue_that_cannot_hold_what_must_not_be_dropped_cuts_the_link() {
    run(async {
        let mut options = options(1, &[(2, String::new())]);
        options.limits.queue = QueueLimits { droppable_bytes_max: 100, bytes_max: 1000 };
        let mut node = Node::start(options).await;
        let mut puppet = Puppet::link(node.address, identity(2)).await;
        node.expect_up(2).await;
        for _ in 0..6 {
            node.send(2, vec![1; 242], false);
        }
        assert!(node.events.is_empty(), "the owner is not called from within its own call");
        node.expect_down(2).await;
        puppet.expect_closed().await;
        // Four were queued and lost with the link, the fifth cut it, the sixth found it cut.
        let counters = node.transport.counters();
        assert_eq!((counters.frames_dropped.get(), counters.queue_overflows.get()), (6, 1));
    });
}

#[test]
fn frames_without_a_link_are_dropped_and_counted() {
    run(async {
        let node = Node::start(options(1, &[(2, String::new())])).await;
        node.send(2, "raft", true);
        node.send(2, "forwarded", false);
        node.send(9, "nobody", true);
        assert_eq!(node.transport.counters().frames_dropped.get(), 3);
    });
}

#[test]
fn the_owner_may_send_from_its_sink() {
    run(async {
        let mut two_options = options(2, &[]);
        let (sender, mut echoes) = mpsc::unbounded_channel();
        let mut one = Node::start(options(1, &[(2, String::new())])).await;
        two_options.peers = vec![(NodeId(1), one.address.to_string())];
        let two: Rc<RefCell<Option<Transport>>> = Rc::default();
        two_options.sink = {
            let two = two.clone();
            Rc::new(move |event| {
                if let Event::Frame { from, payload } = event {
                    let frame = OutgoingFrame { to: from, payload, droppable: true };
                    two.borrow().as_ref().unwrap().send(frame);
                    sender.send(()).unwrap();
                }
            })
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        *two.borrow_mut() = Some(Transport::start(listener, two_options));
        one.expect_up(2).await;
        one.send(2, "echo", true);
        echoes.recv().await.unwrap();
        assert_eq!(one.expect_frame(2).await, "echo");
    });
}

#[test]
fn a_graceful_stop_delivers_what_was_queued() {
    run(async {
        let (one, mut two) = pair().await;
        for fill in 0..8u8 {
            one.send(2, vec![fill; 3 << 20], false);
        }
        two.send(1, "crossing", false);
        one.transport.stop().await;
        for fill in 0..8u8 {
            let payload = two.expect_frame(1).await;
            assert!(payload.len() == 3 << 20 && payload.iter().all(|byte| *byte == fill));
        }
        two.expect_down(1).await;
        assert_eq!(one.transport.counters().frames_sent.get(), 8);
    });
}

#[test]
fn a_stop_does_not_wait_for_a_peer_that_does_not_read() {
    run(async {
        let mut options = options(1, &[(2, String::new())]);
        options.limits.stop_timeout = Duration::from_millis(20);
        let mut node = Node::start(options).await;
        let _deaf = Puppet::link(node.address, identity(2)).await;
        node.expect_up(2).await;
        node.send(2, vec![1; 60 << 20], false);
        node.transport.stop().await;
        node.expect_down(2).await;
        assert_eq!(node.transport.counters().frames_dropped.get(), 1);
        node.send(2, "late", false);
        assert_eq!(node.transport.counters().frames_dropped.get(), 2);
        drop(node.transport);
        assert!(node.events.recv().await.is_none(), "no event follows a stop");
    });
}

#[test]
fn names_are_resolved() {
    run(async {
        let mut one = Node::start(options(1, &[(2, String::new())])).await;
        let name = format!("localhost:{}", one.address.port());
        let mut two = Node::start(options(2, &[(1, name)])).await;
        one.expect_up(2).await;
        two.expect_up(1).await;
    });
}
