//! Frames on a link, and the queue before it.

use super::*;

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

#[test]
fn damaged_frames_end_the_link() {
    run(async {
        let mut node = Node::start(options(1, &[(2, String::new())])).await;
        let flipped = |mut wire: BytesMut| {
            wire[9] ^= 1;
            wire
        };
        let oversize = |_| BytesMut::from(&u32::MAX.to_le_bytes()[..]);
        let empty = |_| BytesMut::zeroed(8);
        let cut_short = |wire: BytesMut| BytesMut::from(&wire[..wire.len() - 1]);
        let damages: [&dyn Fn(BytesMut) -> BytesMut; 4] = [&flipped, &oversize, &empty, &cut_short];
        for damage in damages {
            let mut puppet = Puppet::link(node.address, identity(2)).await;
            node.expect_up(2).await;
            puppet.send(b"whole").await;
            assert_eq!(node.expect_frame(2).await, "whole");
            let damaged = damage(puppet.wire(b"payload"));
            puppet.stream.write_all(&damaged).await.unwrap();
            puppet.stream.shutdown().await.unwrap();
            node.expect_down(2).await;
            puppet.expect_closed().await;
        }
        let counters = node.transport.counters();
        assert_eq!((counters.checksum_failures.get(), counters.length_violations.get()), (1, 2));
        assert_eq!((counters.frames_received.get(), counters.reconnects.get()), (4, 3));
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
        // The queue is empty again and accepts what it dropped before.
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
