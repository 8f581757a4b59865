//! Watches of keys over HTTP and by `tidelock watch`: at every node, after restarts, and while
//! slots move.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::client::Raw;
use crate::harness::process::Process;
use crate::harness::resp::{Client, address_of};
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually, metric};

/// Begins a stream of events at a node.
fn stream(cluster: &Cluster, number: usize, query: &str) -> Raw {
    let mut raw = Raw::connect(cluster.address(number)).expect("a connection");
    let request = format!("GET /v1/watch?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    raw.write(request.as_bytes()).expect("a request");
    raw.read_until("text/event-stream").expect("events");
    raw
}

/// One poll, which must succeed.
fn poll(cluster: &Cluster, number: usize, query: &str) -> Value {
    let answer = cluster.get(number, &format!("/v1/watch?{query}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn cursor(answer: &Value) -> &str {
    answer["cursor"].as_str().expect("a cursor")
}

/// The keys of the changes of an answer, and whether each exists.
fn changes(answer: &Value) -> Vec<(String, bool)> {
    let change =
        |change: &Value| (change["key"].as_str().expect("a key").to_owned(), change["deleted"] != true);
    answer["changes"].as_array().expect("changes").iter().map(change).collect()
}

#[test]
fn every_node_streams_what_is_written_through_any() {
    let cluster = Cluster::start(3);
    cluster.put(1, "/v1/keys/svc/old", b"1");
    let mut watchers: Vec<Raw> =
        cluster.numbers().into_iter().map(|number| stream(&cluster, number, "prefix=svc/")).collect();
    for watcher in &mut watchers {
        watcher.read_until("event: reset").expect("a reset");
        watcher.read_until("data: {\"key\":\"svc/old\"").expect("the state");
        watcher.read_until("event: live").expect("the end of the state");
    }
    for number in cluster.numbers() {
        cluster.put(number, "/v1/keys/other", b"not watched");
        cluster.put(number, &format!("/v1/keys/svc/{number}"), b"up");
        for watcher in &mut watchers {
            let put = format!("data: {{\"key\":\"svc/{number}\"");
            watcher.read_until(&put).expect("a put");
        }
    }
    cluster.put(1, "/v1/keys/svc/short?ttl=50ms", b"up");
    assert_eq!(cluster.send(2, "DELETE /v1/keys/svc/old", &[], b"").status, 204);
    for watcher in &mut watchers {
        watcher.read_until("data: {\"key\":\"svc/short\"").expect("a put with an expiry");
        for _ in ["a deletion", "an expiry"] {
            watcher.read_until("event: delete").expect("both");
            watcher.read_until("\"deleted\":true").expect("its data");
        }
    }
}

#[test]
fn a_cursor_goes_on_at_other_nodes_and_after_restarts() {
    let mut cluster = Cluster::start(3);
    let begun = poll(&cluster, 1, "prefix=k&wait=1ms");
    assert_eq!((begun["reset"].as_bool(), changes(&begun)), (Some(true), vec![]));
    let query = |cursor: &str, wait: &str| format!("prefix=k&after={cursor}&wait={wait}");
    let quiet = poll(&cluster, 2, &query(cursor(&begun), "1ms"));
    assert_eq!((quiet["reset"].as_bool(), changes(&quiet)), (Some(false), vec![]));
    cluster.kill(1);
    for (number, value) in [(2, "1"), (3, "2"), (2, "3")] {
        eventually("a write", || {
            let answer = cluster.try_send(number, "PUT /v1/keys/k1", &[], value.as_bytes())?;
            (answer.status < 300).then_some(())
        });
    }
    cluster.put(3, "/v1/keys/j1", b"another prefix");
    let found = poll(&cluster, 3, &query(cursor(&quiet), "30s"));
    assert_eq!(changes(&found), [("k1".to_owned(), true)], "the last state only");
    assert_eq!(found["changes"][0]["val"], "3");
    assert_eq!(cluster.send(2, "DELETE /v1/keys/k1", &[], b"").status, 204);
    cluster.restart(1);
    cluster.wait_ready(1);
    let found = poll(&cluster, 1, &query(cursor(&found), "30s"));
    assert_eq!(changes(&found), [("k1".to_owned(), false)]);
    // One from a cluster that is gone, or of other keys, leads to the state.
    let other = Cluster::start(1);
    assert_eq!(poll(&other, 1, &query(cursor(&found), "1ms"))["reset"], true);
    let one_key = poll(&cluster, 2, "key=k1&wait=1ms");
    assert_eq!(poll(&cluster, 2, &query(cursor(&one_key), "1ms"))["reset"], true);
}

#[test]
fn a_flush_reaches_every_node_and_resets_watchers() {
    let cluster = Cluster::start(3);
    let versions: Vec<u64> =
        (0..20).map(|number| cluster.put(1, &format!("/v1/keys/k{number}"), b"v").version()).collect();
    let begun = poll(&cluster, 3, "prefix=k&wait=1ms");
    let quiet = poll(&cluster, 3, &format!("prefix=k&after={}&wait=1ms", cursor(&begun)));
    assert_eq!((quiet["reset"].as_bool(), changes(&quiet)), (Some(false), vec![]));
    let mut client = Client::connect(address_of(cluster.address(2))).expect("a connection");
    assert_eq!(client.ask("FLUSHALL"), "+OK");
    assert_eq!(client.ask("DBSIZE"), ":0");
    for node in cluster.numbers() {
        for number in 0..20 {
            assert_eq!(cluster.get(node, &format!("/v1/keys/k{number}")).status, 404);
        }
    }
    let found = poll(&cluster, 3, &format!("prefix=k&after={}&wait=30s", cursor(&quiet)));
    assert_eq!((found["reset"].as_bool(), changes(&found)), (Some(true), vec![]));
    for (number, version) in (0..20).zip(versions) {
        let put = cluster.put(3, &format!("/v1/keys/k{number}"), b"v");
        assert!(put.status == 201 && put.version() > version, "{}", put.text());
    }
}

#[test]
fn the_command_prints_changes_while_slots_move() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    for number in 0..40 {
        cluster.put(1, &format!("/v1/keys/key-{number:02}"), b"0");
    }
    let mut command = shell.command(&["watch", "key-", "--state", "--output", "json"]);
    let mut watch = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let lines = watch.lines();
    let next = || -> Value { serde_json::from_str(&lines.next_line()).expect("JSON") };
    for number in 0..40 {
        assert_eq!(next()["key"], format!("key-{number:02}"));
    }
    shell.done(&["cluster", "add-shard"]);
    shell.done(&["cluster", "rebalance"]);
    // Keys of slots that moved are printed again with the present state, never with an older one.
    let mut known = [0; 40];
    let mut known_cursor = None;
    for round in 1..4 {
        for number in 0..40 {
            let target = format!("/v1/keys/key-{number:02}");
            cluster.put(1 + number % 3, &target, round.to_string().as_bytes());
        }
        while known.iter().any(|value| *value < round) {
            let change = next();
            let key = change["key"].as_str().expect("a key");
            let number: usize = key.trim_start_matches("key-").parse().expect("a number");
            let value: i32 = change["val"].as_str().expect("a value").parse().expect("a number");
            assert!(value >= known[number], "{key} goes back to {value}");
            known[number] = value;
            known_cursor = change["cursor"].as_str().map(str::to_owned).or(known_cursor);
        }
    }
    watch.end();
    let one = shell.done(&["watch", "key-05", "--key", "--state", "--count", "1"]);
    assert!(String::from_utf8_lossy(&one).starts_with("put key-05 = 3 (version "));
    let state = shell.json(&["watch", "key-05", "--key", "--state", "--count", "1"]);
    assert!(state["cursor"].is_null(), "keys that were there are no changes: {state}");
    cluster.put(1, "/v1/keys/key-05", b"4");
    let seen = known_cursor.expect("the last change has a cursor");
    let change = shell.json(&["watch", "key-", "--after", &seen, "--count", "1"]);
    assert_eq!((&change["key"], &change["val"]), (&json!("key-05"), &json!("4")));
    assert!(change["cursor"].is_string(), "{change}");
    assert!(shell.failed(&["watch", "key-", "--after", "x"]).contains("after must be the cursor"));
    assert_eq!(json!(poll(&cluster, 2, "prefix=&wait=1ms")["reset"]), true);
}

#[test]
fn a_stream_that_ends_is_no_open_connection_any_more() {
    let cluster = Cluster::start(1);
    // One connection for all of it: each new one would count the open ones anew.
    let mut client = Raw::connect(cluster.address(1)).expect("a connection");
    let mut ask = |request: &str| {
        let request = format!("{request} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
        client.write(request.as_bytes()).expect("a request");
        String::from_utf8(client.read().expect("an answer").1).expect("text")
    };
    let open = |metrics: &str| metric(metrics, "tidelock_http_connections_open");
    let watcher = stream(&cluster, 1, "prefix=");
    assert_eq!(open(&ask("GET /metrics")), 2);
    drop(watcher);
    ask("PUT /v1/keys/a");
    eventually("the node closes the connection", || (open(&ask("GET /metrics")) == 1).then_some(()));
}
