//! Which introductions are accepted, and the answers to others.

use super::*;

/// The answer of node 2, which knows nodes 1 to 3 and host 3, to an introduction.
async fn answer_to(message: Message) -> Option<Message> {
    let mut options = options(2, &[(1, "127.0.0.1:1".into()), (3, String::new())]);
    options.known_peer =
        Rc::new(|node| KnownPeer { host: Some(identity(node.0).host), ..KnownPeer::default() });
    let node = Node::start(options).await;
    let mut puppet = Puppet::connect(node.address).await;
    puppet.say(message).await;
    let answer = puppet.hear().await;
    if let Some(Message::Refuse { refusal, answers }) = answer {
        assert_eq!(answers, NONCE);
        puppet.expect_closed().await;
        // A wake-up is not counted as a refusal.
        let refused = u64::from(refusal != HandshakeRefusal::WrongDirection);
        assert_eq!(node.transport.counters().handshakes_refused.get(), refused);
    }
    answer
}

#[test]
fn the_listener_tells_why_it_refuses() {
    run(async {
        let refusal_of = async |identity| match answer_to(hello(identity)).await {
            Some(Message::Refuse { refusal, .. }) => refusal,
            other => panic!("{other:?}"),
        };
        use HandshakeRefusal as R;
        assert_eq!(refusal_of(Introduction { cluster: Uuid::nil(), ..identity(3) }).await, R::WrongCluster);
        assert_eq!(refusal_of(identity(9)).await, R::UnknownNode);
        assert_eq!(refusal_of(Introduction { host: host(8), ..identity(3) }).await, R::HostMismatch);
        assert_eq!(refusal_of(identity(2)).await, R::SelfConnection);
        assert_eq!(refusal_of(Introduction { host: host(8), ..identity(2) }).await, R::SameNumber);
        assert_eq!(refusal_of(identity(1)).await, R::WrongDirection);
        let versions = VersionRange { min: 900, max: 901 };
        let newer = Message::Hello(Hello {
            versions,
            identity: identity(3),
            nonce: NONCE,
            answers: Uuid::nil(),
            address: None,
        });
        assert_eq!(answer_to(newer).await, Some(refuse(R::UnsupportedVersion)));
        let Some(Message::Hello(answer)) = answer_to(hello(identity(3))).await else { panic!("refused") };
        assert_eq!((answer.identity, answer.answers), (identity(2), NONCE));
    });
}

/// The answer of node 2 when the listener that it dials as node 1 introduces itself as `identity`.
async fn answer_to_listener(identity: Introduction) -> Message {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut options = options(2, &[(1, address), (3, String::new())]);
    options.known_peer = Rc::new(|node| KnownPeer { host: Some(host(node.0)), ..KnownPeer::default() });
    let node = Node::start(options).await;
    let (stream, _) = listener.accept().await.unwrap();
    let mut puppet = Puppet::on(stream);
    let Some(Message::Hello(theirs)) = puppet.hear().await else { panic!("no introduction") };
    assert_eq!((theirs.identity, theirs.answers), (self::identity(2), Uuid::nil()));
    let ours =
        Hello { versions: PROTOCOL_VERSIONS, identity, nonce: NONCE, answers: theirs.nonce, address: None };
    puppet.say(Message::Hello(ours)).await;
    let answer = puppet.hear().await.unwrap();
    let refused = matches!(answer, Message::Refuse { .. });
    assert_eq!(node.transport.counters().handshakes_refused.get(), u64::from(refused));
    answer
}

#[test]
fn the_dialer_judges_too() {
    run(async {
        use HandshakeRefusal as R;
        assert_eq!(answer_to_listener(identity(1)).await, accept(NONCE));
        assert_eq!(answer_to_listener(identity(3)).await, refuse(R::UnexpectedNode));
        assert_eq!(answer_to_listener(identity(7)).await, refuse(R::UnknownNode));
        assert_eq!(answer_to_listener(identity(2)).await, refuse(R::SelfConnection));
        let other_disk = Introduction { host: host(9), ..identity(1) };
        assert_eq!(answer_to_listener(other_disk).await, refuse(R::HostMismatch));
        let stranger = Introduction { cluster: Uuid::nil(), ..identity(1) };
        assert_eq!(answer_to_listener(stranger).await, refuse(R::WrongCluster));
    });
}

#[test]
fn a_refused_dialer_tries_on_until_it_is_taken() {
    run(async {
        let attempts = Rc::new(Cell::new(0));
        let mut options_of_one = options(1, &[(2, String::new())]);
        options_of_one.known_peer = {
            let attempts = attempts.clone();
            Rc::new(move |_| {
                attempts.set(attempts.get() + 1);
                let another = (attempts.get() < 3).then_some(host(9));
                KnownPeer { host: another, ..KnownPeer::default() }
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
fn a_refusal_is_known_until_there_is_a_link_with_the_peer() {
    run(async {
        let mut node = Node::start(options(1, &[(2, String::new())])).await;
        let refusal = || node.transport.refusals().of(NodeId(2));
        assert_eq!(refusal(), None);
        let mut puppet = Puppet::connect(node.address).await;
        let answers = puppet.introduce(identity(2)).await;
        puppet.say(Message::Refuse { refusal: HandshakeRefusal::HostMismatch, answers }).await;
        while refusal().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(refusal(), Some(HandshakeRefusal::HostMismatch));
        let _linked = Puppet::link(node.address, identity(2)).await;
        node.expect_up(2).await;
        assert_eq!(node.transport.refusals().of(NodeId(2)), None);
    });
}

#[test]
fn strangers_are_told_which_port_this_is() {
    run(async {
        let node = Node::start(options(1, &[(2, String::new())])).await;
        let mut browser = Puppet::connect(node.address).await;
        browser.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        browser.stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("(--peer)"), "{answer}");
        assert_eq!(node.transport.counters().handshakes_refused.get(), 1);
    });
}

#[test]
fn the_silent_are_hung_up_on() {
    run(async {
        let mut options = options(1, &[(2, String::new())]);
        options.limits.handshake_timeout = Duration::from_millis(20);
        let node = Node::start(options).await;
        let mut silent = Puppet::connect(node.address).await;
        assert_eq!(silent.hear().await, None);
        assert_eq!(node.transport.counters().handshakes_refused.get(), 1);
    });
}

#[test]
fn a_peer_is_heard_while_others_do_not_finish_their_handshakes() {
    run(async {
        let mut node = Node::start(options(1, &[(2, String::new())])).await;
        let mut silent = vec![];
        for _ in 0..listener::HANDSHAKES_MAX {
            silent.push(Puppet::connect(node.address).await);
        }
        let mut puppet = Puppet::connect(node.address).await;
        puppet.say(hello(identity(2))).await;
        let Some(Message::Hello(theirs)) = puppet.hear().await else { panic!("refused") };
        puppet.say(accept(theirs.nonce)).await;
        node.expect_up(2).await;
        silent[0].expect_closed().await;
        assert_eq!(node.transport.counters().handshakes_refused.get(), 1);
    });
}
