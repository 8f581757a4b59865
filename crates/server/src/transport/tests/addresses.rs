//! Peers at other addresses than those that are known.

use super::*;

/// A loopback address that nothing listens on.
async fn unused() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// A node that states the address at which it listens.
async fn stating(node: u64, peers: &[(u64, String)]) -> Node {
    let address = unused().await;
    Node::start_at(address, TransportOptions { address: address.to_string(), ..options(node, peers) }).await
}

#[test]
fn a_lower_node_says_where_it_is_with_its_wake_up() {
    run(async {
        let former = unused().await;
        let mut two = options(2, &[(1, former.to_string())]);
        two.limits.backoff = HOURS;
        let mut two = Node::start(two).await;
        let mut one = stating(1, &[(2, two.address.to_string())]).await;
        two.expect_up(1).await;
        one.expect_up(2).await;
    });
}

#[test]
fn peers_that_have_exchanged_their_addresses_are_found() {
    run(async {
        let mut one = stating(1, &[(3, String::new())]).await;
        let mut two = stating(2, &[(3, String::new())]).await;
        let exchanged = [(1, two.address.to_string()), (2, one.address.to_string())];
        let mut three = Node::start(options(3, &exchanged)).await;
        one.expect_up(3).await;
        two.expect_up(3).await;
        let mut up = vec![];
        for _ in 0..2 {
            match three.event().await {
                Event::LinkUp(node) => up.push(node.0),
                other => panic!("{other:?}"),
            }
        }
        up.sort_unstable();
        assert_eq!(up, [1, 2]);
        three.send(1, "to one", false);
        three.send(2, "to two", false);
        assert_eq!(one.expect_frame(3).await, "to one");
        assert_eq!(two.expect_frame(3).await, "to two");
    });
}

#[test]
fn a_node_that_has_the_former_address_of_its_peer_finds_it_at_its_own() {
    run(async {
        let mut one = stating(1, &[(2, String::new())]).await;
        // Node 2 has the address at which node 1 was, and node 1 that of node 2.
        let address = unused().await;
        let peers = [(1, address.to_string()), (2, one.address.to_string())];
        let two = TransportOptions { address: address.to_string(), ..options(2, &peers) };
        let mut two = Node::start_at(address, two).await;
        two.expect_up(1).await;
        one.expect_up(2).await;
    });
}

#[test]
fn a_peer_is_found_at_a_fallback() {
    run(async {
        let former = unused().await.to_string();
        let mut one = stating(1, &[(2, String::new())]).await;
        let fallbacks = vec![former.clone(), one.address.to_string()];
        let mut two = Node::start(TransportOptions { fallbacks, ..options(2, &[(1, former)]) }).await;
        two.expect_up(1).await;
        one.expect_up(2).await;
    });
}
