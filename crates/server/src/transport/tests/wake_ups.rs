//! Lower nodes that ask to be dialed, and nodes that learn that they were removed.

use super::*;
use HandshakeRefusal as R;

/// Node 2, which dials node 1 once and, if that fails or the link is lost, not again for hours.
async fn patient(address: SocketAddr) -> Node {
    let mut options = options(2, &[(1, address.to_string())]);
    options.limits.backoff = HOURS;
    Node::start(options).await
}

#[test]
fn a_restarted_lower_node_is_called_without_a_wait() {
    run(async {
        let mut one = Node::start(options(1, &[(2, String::new())])).await;
        let mut two = patient(one.address).await;
        one.expect_up(2).await;
        two.expect_up(1).await;
        for _ in 0..3 {
            let address = one.address;
            drop(one);
            two.expect_down(1).await;
            one = Node::start_at(address, options(1, &[(2, two.address.to_string())])).await;
            two.expect_up(1).await;
            one.expect_up(2).await;
        }
        assert_eq!(two.transport.counters().handshakes_refused.get(), 0, "a wake-up is no refusal");
    });
}

#[test]
fn a_lower_node_that_comes_late_is_called_without_a_wait() {
    run(async {
        let nobody_yet = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut two = patient(nobody_yet.local_addr().unwrap()).await;
        let address = nobody_yet.local_addr().unwrap();
        drop(nobody_yet.accept().await.unwrap());
        drop(nobody_yet);
        let mut one = Node::start_at(address, options(1, &[(2, two.address.to_string())])).await;
        two.expect_up(1).await;
        one.expect_up(2).await;
    });
}

#[test]
fn a_lower_node_sends_wake_ups_until_it_is_known() {
    run(async {
        let asked = Rc::new(tokio::sync::Notify::new());
        let mut distant = options(2, &[]);
        distant.known_peer = {
            let asked = asked.clone();
            Rc::new(move |_| {
                asked.notify_one();
                KnownPeer::default()
            })
        };
        let mut two = Node::start(distant).await;
        let mut one = Node::start(options(1, &[(2, two.address.to_string())])).await;
        // It is refused as a stranger twice, and does not conclude more than that.
        asked.notified().await;
        asked.notified().await;
        two.set_peers(&[(1, one.address)]);
        two.expect_up(1).await;
        one.expect_up(2).await;
    });
}

#[test]
fn a_wake_up_changes_nothing_about_a_link_that_stands() {
    run(async {
        let (mut one, mut two) = pair().await;
        let mut puppet = Puppet::connect(two.address).await;
        puppet.say(hello(identity(1))).await;
        assert_eq!(puppet.hear().await, Some(refuse(R::WrongDirection)));
        puppet.expect_closed().await;
        two.send(1, "on it goes", false);
        assert_eq!(one.expect_frame(2).await, "on it goes");
        one.send(2, "both ways", false);
        assert_eq!(two.expect_frame(1).await, "both ways");
    });
}

#[test]
fn somebody_else_at_the_address_is_told_so() {
    run(async {
        let somebody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = somebody.local_addr().unwrap().to_string();
        let node = Node::start(options(2, &[(3, address)])).await;
        let (stream, _) = somebody.accept().await.unwrap();
        let mut puppet = Puppet::on(stream);
        assert!(matches!(puppet.hear().await, Some(Message::Hello(hello)) if hello.identity == identity(2)));
        puppet.say(hello(identity(1))).await;
        assert_eq!(puppet.hear().await, Some(refuse(R::UnexpectedNode)));
        drop(node);
    });
}

/// A node, and the peers that told it of its removal.
async fn departed(mut options: TransportOptions) -> (Node, mpsc::UnboundedReceiver<NodeId>) {
    let (sender, reports) = mpsc::unbounded_channel();
    options.removed = Rc::new(move |peer| sender.send(peer).unwrap());
    (Node::start(options).await, reports)
}

/// A node that knows that node 2 was removed.
async fn remaining(node: u64) -> Node {
    let mut options = options(node, &[]);
    options.known_peer = Rc::new(|node| KnownPeer { is_removed: node == NodeId(2), ..KnownPeer::default() });
    Node::start(options).await
}

#[test]
fn a_removed_node_is_told_by_lower_and_by_higher_peers_but_once() {
    run(async {
        for other in [1, 3] {
            let node = remaining(other).await;
            let (_two, mut reports) = departed(options(2, &[(other, node.address.to_string())])).await;
            assert_eq!(reports.recv().await, Some(NodeId(other)));
        }
        let (one, three) = (remaining(1).await, remaining(3).await);
        let peers = [(1, one.address.to_string()), (3, three.address.to_string())];
        let (mut two, mut reports) = departed(options(2, &peers)).await;
        assert!(reports.recv().await.is_some());
        // Each refuses it once more.
        for node in [&one, &three] {
            let refused = node.transport.counters().handshakes_refused.get();
            while node.transport.counters().handshakes_refused.get() == refused {
                tokio::task::yield_now().await;
            }
        }
        two.transport.stop().await;
        assert!(reports.try_recv().is_err(), "it is told once");
        assert!(two.events.try_recv().is_err(), "no link came up");
    });
}

#[test]
fn a_removed_node_is_told_when_it_is_called_too() {
    run(async {
        let (two, mut reports) = departed(options(2, &[(3, "127.0.0.1:1".into())])).await;
        let mut puppet = Puppet::connect(two.address).await;
        let answers = puppet.introduce(identity(3)).await;
        puppet.say(Message::Refuse { refusal: R::Removed, answers }).await;
        assert_eq!(reports.recv().await, Some(NodeId(3)));
    });
}

#[test]
fn other_refusals_are_no_removal() {
    run(async {
        for refusal in [R::UnknownNode, R::HostMismatch, R::WrongCluster, R::Other(77)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let (_two, mut reports) = departed(options(2, &[(1, address)])).await;
            // It dials again after each refusal.
            for _ in 0..3 {
                let mut puppet = Puppet::on(listener.accept().await.unwrap().0);
                let Some(Message::Hello(theirs)) = puppet.hear().await else { panic!("no introduction") };
                puppet.say(Message::Refuse { refusal, answers: theirs.nonce }).await;
                puppet.expect_closed().await;
            }
            assert!(reports.try_recv().is_err());
        }
    });
}
