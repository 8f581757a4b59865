//! Which process may represent a host, and replays of recorded bytes.

use super::*;

/// A node 1 with node 2 as a peer, and the starts that it is asked to store.
async fn remembering() -> (Node, mpsc::UnboundedReceiver<(NodeId, KnownStart)>) {
    let (sender, kept) = mpsc::unbounded_channel();
    let mut options = options(1, &[(2, String::new())]);
    options.remember_start = Rc::new(move |node, start| sender.send((node, start)).unwrap());
    (Node::start(options).await, kept)
}

async fn answer(address: SocketAddr, identity: Introduction) -> Option<Message> {
    let mut puppet = Puppet::connect(address).await;
    puppet.say(hello(identity)).await;
    puppet.hear().await
}

#[test]
fn an_earlier_start_is_refused_and_each_later_one_kept_before_its_link() {
    run(async {
        let (mut node, mut kept) = remembering().await;
        for start in [3, 5] {
            let puppet = Puppet::link(node.address, identity_of(2, start)).await;
            node.expect_up(2).await;
            assert_eq!(kept.try_recv(), Ok((NodeId(2), identity_of(2, start).known_start())));
            drop(puppet);
            node.expect_down(2).await;
        }
        let other = ProcessStart { number: 5, instance: Uuid::from_u128(4) };
        let copies = [
            (identity_of(2, 4), HandshakeRefusal::Outdated),
            (Introduction { start: other, ..identity(2) }, HandshakeRefusal::Duplicate),
        ];
        for (copy, refusal) in copies {
            assert_eq!(answer(node.address, copy).await, Some(refuse(refusal)));
        }
        let _same = Puppet::link(node.address, identity_of(2, 5)).await;
        node.expect_up(2).await;
        assert!(kept.is_empty(), "it is known");
    });
}

#[test]
fn what_the_disk_remembers_counts() {
    run(async {
        let mut options = options(1, &[(2, String::new())]);
        options.starts = [(NodeId(2), identity_of(2, 5).known_start())].into();
        let node = Node::start(options).await;
        let answer = answer(node.address, identity_of(2, 4)).await;
        assert_eq!(answer, Some(refuse(HandshakeRefusal::Outdated)));
    });
}

#[test]
fn a_clone_does_not_replace_the_link_of_the_original() {
    run(async {
        let (mut node, _kept) = remembering().await;
        let mut original = Puppet::link(node.address, identity_of(2, 5)).await;
        node.expect_up(2).await;
        for _ in 0..3 {
            let answer = answer(node.address, identity_of(2, 6)).await;
            assert_eq!(answer, Some(refuse(HandshakeRefusal::StillConnected)));
        }
        original.send(b"still here").await;
        assert_eq!(node.expect_frame(2).await, "still here");
        drop(original);
        node.expect_down(2).await;
        let _restarted = Puppet::link(node.address, identity_of(2, 6)).await;
        node.expect_up(2).await;
    });
}

/// Node 2, whose peer node 1 answers every introduction with this refusal; returns the refusals
/// that its owner receives.
async fn refused_with(
    refusal: HandshakeRefusal,
    is_fresh: bool,
) -> (Node, mpsc::UnboundedReceiver<HandshakeRefusal>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = options(2, &[(1, listener.local_addr().unwrap().to_string())]);
    options.limits.backoff = BackoffLimits { min: Duration::from_millis(1), max: Duration::from_millis(1) };
    options.limits.superseded_after = Duration::from_millis(50);
    let (sender, superseded) = mpsc::unbounded_channel();
    options.is_registered = Rc::new(|| false);
    options.superseded = Rc::new(move |by, refusal| {
        assert_eq!(by, NodeId(1));
        sender.send(refusal).unwrap();
    });
    tokio::task::spawn_local(async move {
        loop {
            let mut puppet = Puppet::on(listener.accept().await.unwrap().0);
            let Some(Message::Hello(hello)) = puppet.hear().await else { continue };
            let answers = if is_fresh { hello.nonce } else { NONCE };
            puppet.say(Message::Refuse { refusal, answers }).await;
        }
    });
    (Node::start(options).await, superseded)
}

#[test]
fn who_is_refused_for_good_is_told_once_and_a_clone_when_the_original_outlasts_it() {
    run(async {
        let all = [
            HandshakeRefusal::Outdated,
            HandshakeRefusal::Duplicate,
            HandshakeRefusal::StillConnected,
            HandshakeRefusal::HostMismatch,
        ];
        for refusal in all {
            let (node, mut superseded) = refused_with(refusal, true).await;
            assert_eq!(superseded.recv().await, Some(refusal));
            assert!(superseded.is_empty());
            drop(node);
        }
    });
}

#[test]
fn a_recorded_refusal_stops_nobody() {
    run(async {
        let (node, mut superseded) = refused_with(HandshakeRefusal::Outdated, false).await;
        while node.transport.counters().handshakes_refused.get() < 3 {
            tokio::task::yield_now().await;
        }
        assert!(superseded.try_recv().is_err());
    });
}

#[test]
fn recorded_bytes_are_refused_when_they_are_sent_again() {
    run(async {
        let (mut node, _kept) = remembering().await;
        let mut puppet = Puppet::connect(node.address).await;
        let nonce = puppet.introduce(identity(2)).await;
        let frame = puppet.wire(b"a command");
        let recorded = [&hello(identity(2)).encode()[..], &accept(nonce).encode(), &frame].concat();
        puppet.say(accept(nonce)).await;
        puppet.stream.write_all(&frame).await.unwrap();
        node.expect_up(2).await;
        assert_eq!(node.expect_frame(2).await, "a command");
        drop(puppet);
        node.expect_down(2).await;

        let mut replay = Puppet::connect(node.address).await;
        replay.stream.write_all(&recorded).await.unwrap();
        replay.expect_closed().await;
        assert_eq!(node.transport.counters().handshakes_refused.get(), 1);

        // Even after a valid handshake a recorded frame is invalid.
        let mut half = Puppet::link(node.address, identity(2)).await;
        node.expect_up(2).await;
        half.stream.write_all(&frame).await.unwrap();
        half.expect_closed().await;
        node.expect_down(2).await;
        assert!(node.events.is_empty());
        assert_eq!(node.transport.counters().checksum_failures.get(), 1);
    });
}

#[test]
fn a_listener_that_plays_a_recording_gets_no_link() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = Node::start(options(2, &[(1, listener.local_addr().unwrap().to_string())])).await;
        let mut puppet = Puppet::on(listener.accept().await.unwrap().0);
        assert!(matches!(puppet.hear().await, Some(Message::Hello(_))));
        let recorded = Hello {
            versions: PROTOCOL_VERSIONS,
            identity: identity(1),
            nonce: NONCE,
            answers: NONCE,
            address: None,
        };
        puppet.say(Message::Hello(recorded)).await;
        assert_eq!(puppet.hear().await, None);
        assert!(node.events.is_empty());
    });
}
