//! `cluster clients`: shows the busiest connections of a node.

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
