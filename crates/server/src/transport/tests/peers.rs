//! Changes of the set of peers while links exist.

use super::*;

#[test]
fn peers_that_come_later_are_called_or_may_call() {
    run(async {
        let mut one = Node::start(options(1, &[])).await;
        let mut three = Node::start(options(3, &[])).await;
        let mut two = Node::start(options(2, &[(1, one.address.to_string())])).await;
        // Node 2 dials node 1 as a stranger; it does not dial node 3 until that is added.
        one.set_peers(&[(1, one.address), (2, two.address)]);
        one.expect_up(2).await;
        two.expect_up(1).await;
        two.set_peers(&[(1, one.address), (2, two.address), (3, three.address)]);
        three.set_peers(&[(2, two.address)]);
        two.expect_up(3).await;
        three.expect_up(2).await;
        // The old link existed all the while.
        two.send(1, "still there", true);
        assert_eq!(one.expect_frame(2).await, "still there");
        assert_eq!(two.transport.counters().reconnects.get(), 0);
    });
}

#[test]
fn what_is_queued_for_a_peer_that_leaves_still_arrives() {
    run(async {
        let (mut one, mut two) = pair().await;
        for fill in 0..8u8 {
            two.send(1, vec![fill; 3 << 20], false);
        }
        two.set_peers(&[]);
        two.send(1, "too late", false);
        assert_eq!(two.transport.counters().frames_dropped.get(), 1);
        assert!(two.events.is_empty(), "the owner is not called from within its own call");
        for fill in 0..8u8 {
            let payload = one.expect_frame(2).await;
            assert!(payload.len() == 3 << 20 && payload.iter().all(|byte| *byte == fill));
        }
        one.expect_down(2).await;
        two.expect_down(1).await;
        assert_eq!(two.transport.counters().frames_sent.get(), 8);
    });
}

#[test]
fn a_peer_that_left_is_a_stranger_and_is_not_called() {
    run(async {
        let mut called = options(1, &[(2, String::new())]);
        let introductions = Rc::new(Cell::new(0));
        called.known_peer = {
            let introductions = introductions.clone();
            Rc::new(move |_| {
                introductions.set(introductions.get() + 1);
                KnownPeer::default()
            })
        };
        let mut one = Node::start(called).await;
        let mut two = Node::start(options(2, &[(1, one.address.to_string())])).await;
        one.expect_up(2).await;
        two.expect_up(1).await;
        two.set_peers(&[]);
        one.expect_down(2).await;
        two.expect_down(1).await;
        // Its dialer ends; only the listener would continue.
        two.transport.tasks.take().join_next().await.unwrap().unwrap();
        assert_eq!(introductions.get(), 1, "node 2 does not come back");
        one.set_peers(&[]);
        let mut puppet = Puppet::connect(one.address).await;
        puppet.say(hello(identity(2))).await;
        assert_eq!(puppet.hear().await, Some(refuse(HandshakeRefusal::UnknownNode)));
    });
}

#[test]
fn a_link_to_a_peer_that_left_and_does_not_read_is_cut() {
    run(async {
        let mut options = options(1, &[(2, String::new())]);
        options.limits.stop_timeout = Duration::from_millis(20);
        let mut node = Node::start(options).await;
        let mut deaf = Puppet::link(node.address, identity(2)).await;
        node.expect_up(2).await;
        node.send(2, vec![1; 60 << 20], false);
        node.set_peers(&[]);
        node.expect_down(2).await;
        assert_eq!(node.transport.counters().frames_dropped.get(), 1);
        deaf.expect_closed().await;
    });
}

#[test]
fn a_peer_that_comes_back_while_its_old_link_closes_gets_a_new_one() {
    run(async {
        let mut node = Node::start(options(1, &[(2, String::new())])).await;
        let mut deaf = Puppet::link(node.address, identity(2)).await;
        node.expect_up(2).await;
        node.send(2, vec![1; 60 << 20], false);
        node.set_peers(&[]);
        let back = node.address;
        node.set_peers(&[(2, back)]);
        // The default stop timeout is a second; the new connection comes before that, and ends the
        // old one.
        let mut puppet = Puppet::link(node.address, identity(2)).await;
        node.expect_down(2).await;
        node.expect_up(2).await;
        deaf.expect_closed().await;
        puppet.send(b"new").await;
        assert_eq!(node.expect_frame(2).await, "new");
        node.set_peers(&[(2, back)]);
        node.send(2, "answer", false);
        puppet.stream.read_exact(&mut [0; 14]).await.unwrap();
    });
}

#[test]
fn a_dialed_peer_that_comes_back_is_dialed_again() {
    run(async {
        let (mut one, mut two) = pair().await;
        let address = one.address;
        for _ in 0..3 {
            two.set_peers(&[]);
            two.set_peers(&[(1, address)]);
            two.expect_down(1).await;
            two.expect_up(1).await;
            one.expect_down(2).await;
            one.expect_up(2).await;
        }
        two.set_peers(&[]);
        two.expect_down(1).await;
        one.expect_down(2).await;
        two.set_peers(&[(1, address)]);
        two.expect_up(1).await;
        one.expect_up(2).await;
    });
}

#[test]
fn a_peer_that_moved_is_called_at_its_new_address_at_once() {
    run(async {
        let mut one = Node::start(options(1, &[(2, String::new())])).await;
        let somebody_else = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = somebody_else.local_addr().unwrap().to_string();
        let mut patient = options(2, &[(1, address)]);
        patient.limits.backoff = HOURS;
        let mut two = Node::start(patient).await;
        drop(somebody_else.accept().await.unwrap());
        two.set_peers(&[(1, one.address)]);
        two.expect_up(1).await;
        one.expect_up(2).await;
    });
}

#[test]
fn nobody_becomes_a_peer_of_a_transport_that_stopped() {
    run(async {
        let (mut one, mut two) = pair().await;
        two.transport.stop().await;
        two.expect_down(1).await;
        one.expect_down(2).await;
        two.set_peers(&[(1, one.address)]);
        drop(two.transport);
        assert!(two.events.recv().await.is_none(), "no event follows a stop");
    });
}
