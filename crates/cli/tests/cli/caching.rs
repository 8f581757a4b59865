//! Clients that cache keys (`CLIENT TRACKING`): changes through any node and protocol reach them.

use serde_json::json;

use crate::harness::guarded::Guarded;
use crate::harness::resp::{Client, address_of};
use crate::harness::{Cluster, Options};

/// A connection that speaks RESP3 and has sent this after `CLIENT TRACKING ON`.
fn tracked(mut client: Client, options: &str) -> Client {
    client.send("HELLO 3\r\n").expect("sent");
    // The greeting ends with the modules, of which there are none.
    while client.reply().expect("a greeting") != "*0" {}
    assert_eq!(client.ask(&format!("CLIENT TRACKING ON {options}")), "+OK");
    client
}

fn connect(cluster: &Cluster, number: usize) -> Client {
    Client::connect(address_of(cluster.address(number))).expect("the node listens")
}

/// The next message, which must invalidate this key alone, or every key.
fn invalidates(client: &mut Client, key: Option<&str>) {
    let mut lines = vec![">2", "invalidate"];
    match key {
        Some(key) => lines.extend(["*1", key]),
        None => lines.push("_"),
    }
    for line in lines {
        assert_eq!(client.reply().expect("an invalidation"), line, "{key:?}");
    }
}

#[test]
fn changes_over_http_reach_the_caches_of_every_node_and_worker() {
    let cluster = Cluster::start_with(3, &Options { flags: vec!["--workers", "2"] });
    cluster.put(1, "/v1/keys/user:1", b"old");
    // Connections go to the worker with the fewest, so each worker has some.
    let nodes: Vec<usize> = cluster.numbers().into_iter().flat_map(|node| [node, node]).collect();
    let mut reading: Vec<Client> = nodes.iter().map(|node| tracked(connect(&cluster, *node), "")).collect();
    let mut broadcast: Vec<Client> =
        nodes.iter().map(|node| tracked(connect(&cluster, *node), "BCAST PREFIX user:")).collect();
    for (number, value) in [(2, "new"), (3, "newer")] {
        for client in &mut reading {
            client.ask("GET user:1");
        }
        cluster.put(number, "/v1/keys/other", b"cached by nobody");
        cluster.put(number, "/v1/keys/user:1", value.as_bytes());
        for client in reading.iter_mut().chain(&mut broadcast) {
            invalidates(client, Some("user:1"));
        }
        for client in &mut reading {
            assert_eq!(client.ask("GET user:1"), value);
        }
    }
    assert_eq!(cluster.send(1, "DELETE /v1/keys/user:1", &[], b"").status, 204);
    for client in reading.iter_mut().chain(&mut broadcast) {
        invalidates(client, Some("user:1"));
    }
    // An expiry is a change like any other.
    cluster.put(1, "/v1/keys/user:2?ttl=50ms", b"short");
    for client in &mut broadcast {
        invalidates(client, Some("user:2"));
        invalidates(client, Some("user:2"));
    }
}

#[test]
fn a_flush_through_another_node_invalidates_everything() {
    let cluster = Cluster::start(3);
    cluster.await_newest_version();
    cluster.put(1, "/v1/keys/k", b"v");
    let mut broadcast = tracked(connect(&cluster, 1), "BCAST");
    let mut reading = tracked(connect(&cluster, 3), "");
    assert_eq!(reading.ask("GET k"), "v");
    assert_eq!(connect(&cluster, 2).ask("FLUSHALL"), "+OK");
    invalidates(&mut reading, Some("k"));
    assert_eq!(reading.ask("GET k"), "_");
    invalidates(&mut broadcast, None);
}

#[test]
fn in_resp2_another_connection_of_the_node_gets_the_invalidations() {
    let cluster = Cluster::start_with(3, &Options { flags: vec!["--workers", "2"] });
    let (mut listening, mut reading) = (connect(&cluster, 1), connect(&cluster, 1));
    let id = listening.ask("CLIENT ID");
    // The channel counts, though another one is too many.
    let channels: Vec<String> = (0..1_024).map(|number| format!("c{number}")).collect();
    listening.send(&format!("SUBSCRIBE __redis__:invalidate {}\r\n", channels.join(" "))).expect("sent");
    while !listening.reply().expect("a reply").starts_with("-ERR a connection has at most") {}
    assert_eq!(reading.ask(&format!("CLIENT TRACKING ON REDIRECT {}", &id[1..])), "+OK");
    assert_eq!(reading.ask("GET k"), "$-1");
    cluster.put(2, "/v1/keys/k", b"v");
    for line in ["*3", "message", "__redis__:invalidate", "*1", "k"] {
        assert_eq!(listening.reply().expect("a message"), line);
    }
    assert_eq!(reading.ask("GET k"), "v");
    drop(listening);
    cluster.put(3, "/v1/keys/k", b"w");
    // The node notices the end of the connection in its own time.
    crate::harness::eventually("the redirection is broken", || {
        cluster.put(3, "/v1/keys/k", b"w");
        reading.ask("GET k");
        let info = reading.ask_fields("CLIENT TRACKINGINFO", 3);
        info.contains(&"broken_redirect".to_owned()).then_some(())
    });
}

#[test]
fn a_client_is_told_only_of_what_it_may_watch() {
    let guarded = Guarded::start(3);
    let (token, _) = guarded.principal("app", &["read keys:app/", "watch keys:app/"]);
    let put = |key: &str| {
        let request = format!("PUT /v1/keys/{key}");
        assert!(
            guarded.send(1, &request, &guarded.principal("writer", &["write keys:"]).0, b"v").status < 300
        );
    };
    let mut client = tracked(guarded.redis_as(2, &token), "BCAST PREFIX app/");
    let forbidden = client.ask("CLIENT TRACKING ON BCAST PREFIX ops/");
    assert!(forbidden.starts_with("-NOPERM") && forbidden.contains("read keys:ops/"), "{forbidden}");
    put("ops/1");
    put("app/1");
    invalidates(&mut client, Some("app/1"));
    guarded.administer("PUT /v1/auth/roles/app", &json!({ "grants": ["read keys:app/"] }));
    put("app/2");
    invalidates(&mut client, None);
    assert_eq!(client.ask("CLIENT GETREDIR"), ":-1", "tracking has ended");
}
