//! `cluster clients` and `cluster top`: the busiest connections, and what clients ask for.

use crate::harness::client::Raw;
use crate::harness::{Cluster, resp, tidelock};

#[test]
fn the_connections_that_take_most_are_listed() {
    let cluster = Cluster::start(1);
    let mut redis = resp::Client::connect(resp::address_of(cluster.address(1))).expect("the node accepts");
    for _ in 0..200 {
        assert_eq!(redis.ask("SET busy value"), "+OK");
    }
    let mut http = Raw::connect(cluster.address(1)).expect("the node accepts");
    for _ in 0..2 {
        http.write(b"GET /v1/keys/busy HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("the node reads");
        assert_eq!(http.read().expect("an answer").0, 200);
    }
    let list = |flags: &[&str]| {
        let url = cluster.url(1, "");
        let mut command = tidelock();
        command.args(["cluster", "clients", "--url", &url]).args(flags);
        let output = command.output().expect("the binary runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let listed: serde_json::Value = serde_json::from_str(&list(&["--output", "json"])).expect("JSON");
    assert_eq!(listed["node"], 1);
    assert!(listed["connections"].as_u64() >= Some(3), "{listed}");
    let busiest = &listed["clients"][0];
    assert_eq!((&busiest["protocol"], &busiest["operations"]), (&"resp".into(), &200.into()), "{listed}");
    assert!(busiest["address"].as_str().expect("an address").starts_with("127.0.0.1:"));
    assert_eq!((&busiest["open_requests"], &busiest["bytes_sent"]), (&0.into(), &1_000.into()));
    let rows = listed["clients"].as_array().expect("a list");
    let http = rows.iter().filter(|row| row["protocol"] == "http" && row["operations"] == 2);
    assert!(http.count() >= 1, "{listed}");
    // The request for this list is itself open.
    assert!(rows.iter().any(|row| row["open_requests"] == 1), "{listed}");

    let one = list(&["--limit", "1"]);
    assert!(one.contains("resp") && !one.contains("http"), "{one}");
    let metrics = cluster.get(1, "/metrics").text();
    assert!(metrics.contains("tidelock_busiest_client_open_requests 1\n"), "{metrics}");
    assert!(metrics.contains("tidelock_requests_waiting 0\n"), "{metrics}");
}

#[test]
fn the_requests_of_all_nodes_are_shown_by_host_and_shard_and_key() {
    let cluster = Cluster::start(3);
    cluster.await_registered();
    for node in 1..=3 {
        let address = resp::address_of(cluster.address(node));
        let mut redis = resp::Client::connect(address).expect("the node accepts");
        for _ in 0..64 {
            assert_eq!(redis.ask("SET user:7:name value"), "+OK");
        }
    }
    let top = |flags: &[&str]| {
        let url = cluster.url(2, "");
        let output = tidelock().args(["cluster", "top", "--url", &url]).args(flags).output();
        let output = output.expect("the binary runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let shown: serde_json::Value = serde_json::from_str(&top(&["--output", "json"])).expect("JSON");
    let rows = |name: &str| shown[name].as_array().expect("a list").clone();
    assert_eq!(rows("hosts").len(), 3);
    assert!(rows("hosts").iter().all(|host| host["requests_per_second"].as_f64() > Some(0.0)), "{shown}");
    let written: Vec<_> =
        rows("shards").into_iter().filter(|shard| shard["writes_per_second"].as_f64() > Some(0.0)).collect();
    assert!(written.len() == 1 && written[0]["leader"].is_u64(), "{shown}");
    assert_eq!(rows("keys")[0]["key"], "user:7:name", "{shown}");
    assert_eq!(rows("prefixes").len(), 2, "{shown}");
    for part in ["user:7:name", "BYTES WRITTEN/S", "127.0.0.1:"] {
        assert!(top(&[]).contains(part), "{part}");
    }
}
