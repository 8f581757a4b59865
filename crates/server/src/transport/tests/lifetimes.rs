//! Links from beginning to end: the order of events, restarts, the stop.

use super::*;

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
        // The older connection is closed and delivers nothing more: the next event is the newer
        // one's end.
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
            // The old connection's last frames and the new connection's handshake become readable
            // together.
            let mut older = Puppet::link(node.address, identity(2)).await;
            let mut newer = Puppet::connect(node.address).await;
            let answers = newer.introduce(identity(2)).await;
            node.expect_up(2).await;
            let (new, old) = (newer.wire(b"new"), older.wire(b"old"));
            newer.stream.try_write(&accept(answers).encode()).unwrap();
            newer.stream.try_write(&new).unwrap();
            older.stream.try_write(&old).unwrap();
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

        // This time without a graceful stop.
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
