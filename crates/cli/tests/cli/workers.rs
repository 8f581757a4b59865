//! Several workers in one node: different threads serve clients, which must not notice it.

use std::collections::BTreeSet;

use rustix::process::Signal;

use crate::harness::client::Raw;
use crate::harness::{Cluster, Options, eventually, metric};

const WORKERS: usize = 3;

/// More connections than workers, so that each serves some: connections go to the worker with the
/// fewest.
const CLIENTS: usize = 2 * WORKERS;

fn start() -> Cluster {
    Cluster::start_with(1, &Options { flags: vec!["--workers", "3"] })
}

fn connect(cluster: &Cluster) -> Vec<Raw> {
    (0..CLIENTS).map(|_| Raw::connect(cluster.address(1)).expect("the node accepts")).collect()
}

fn begin(connection: &mut Raw, line: &str, body: &str) {
    let request =
        format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    connection.write(request.as_bytes()).expect("the node reads");
}

fn end(connection: &mut Raw) -> (u16, String) {
    let (status, body) = connection.read().expect("an answer");
    (status, String::from_utf8(body).expect("text"))
}

fn ask(connection: &mut Raw, line: &str, body: &str) -> (u16, String) {
    begin(connection, line, body);
    end(connection)
}

#[test]
fn clients_of_every_worker_see_one_store_and_the_numbers_of_all() {
    let cluster = start();
    let mut clients = connect(&cluster);
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(ask(client, &format!("PUT /v1/keys/k{number}"), &format!("v{number}")).0, 201);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let of = (number + 1) % CLIENTS;
        assert_eq!(ask(client, &format!("GET /v1/keys/k{of}"), ""), (200, format!("v{of}")));
        assert_eq!(ask(client, &format!("GET /v1/keys/k{of}?stale=true"), ""), (200, format!("v{of}")));
        assert_eq!(ask(client, "GET /readyz", "").0, 200);
    }
    let written = "tidelock_http_requests_total{dialect=\"native\",method=\"write\",status=\"2xx\"}";
    for client in &mut clients {
        let (_, text) = ask(client, "GET /metrics", "");
        assert_eq!(metric(&text, written), CLIENTS as u64, "the same from every worker");
        assert!(metric(&text, "tidelock_http_connections_open") >= CLIENTS as u64);
        let (requests, batches) =
            (metric(&text, "tidelock_worker_requests_total"), metric(&text, "tidelock_worker_batches_total"));
        // Two thirds of the connections belong to workers other than the node's.
        assert!(requests >= batches && batches > 0, "{batches} batches of {requests} requests");
    }
}

#[test]
fn watchers_on_every_worker_hear_of_one_change() {
    let cluster = start();
    let mut clients = connect(&cluster);
    let write = |client: &mut Raw, path: &str, body: &str| {
        let (status, text) = ask(client, &format!("POST /api/namespaces/ns{path}"), body);
        assert!((200..300).contains(&status), "{status}: {text}");
    };
    write(&mut clients[0], "", "");
    write(&mut clients[0], "/pairs/p", r#"{"value":1,"datatype":1}"#);
    let container = r#"{"fields":[{"key":"f","fieldType":1,"value":"p"}]}"#;
    write(&mut clients[0], "/containers/c", container);
    let (_, now) = ask(&mut clients[0], "GET /api/namespaces/ns/containers/c/watch?wait=0", "");
    let now: serde_json::Value = serde_json::from_str(&now).expect("JSON");
    let index = now["data"]["index"].as_u64().expect("a revision");
    for client in &mut clients {
        let target = format!("GET /api/namespaces/ns/containers/c/watch?index={index}&wait=300s");
        begin(client, &target, "");
    }
    let mut other = Raw::connect(cluster.address(1)).expect("the node accepts");
    write(&mut other, "/pairs/p", r#"{"value":2,"datatype":1}"#);
    let told: BTreeSet<String> = clients.iter_mut().map(end).map(|(_, body)| body).collect();
    assert_eq!(told.len(), 1, "all are told the same: {told:?}");
    let told: serde_json::Value = serde_json::from_str(told.first().expect("one")).expect("JSON");
    assert_eq!(told["data"]["changes"].as_array().expect("changes").len(), 1, "{told}");
}

#[test]
fn every_worker_answers_what_it_has_begun_before_the_end() {
    let mut cluster = start();
    let mut clients = connect(&cluster);
    for (number, client) in clients.iter_mut().enumerate() {
        let head = format!(
            "PUT /v1/keys/slow{number} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\nexpect: 100-continue\r\n\r\n"
        );
        client.write(head.as_bytes()).expect("the node reads");
        // The node has asked for the body, so the request has begun.
        assert_eq!(client.read().expect("an interim answer").0, 100);
    }
    cluster.signal(1, Signal::TERM);
    for client in &mut clients {
        client.write(b"0123456789").expect("the node reads on");
        assert_eq!(end(client).0, 201);
    }
    assert_eq!(cluster.wait_exit(1).code(), Some(0));
    cluster.restart(1);
    for number in 0..CLIENTS {
        assert_eq!(cluster.get(1, &format!("/v1/keys/slow{number}")).text(), "0123456789");
    }
}

#[test]
fn followers_name_the_leader_of_a_keys_shard() {
    let cluster = Cluster::start_with(3, &Options { flags: vec!["--workers", "2"] });
    eventually("the two followers name the third node, which names none", || {
        let named = [1, 2, 3].map(|node| cluster.get(node, "/v1/keys/a").leader);
        let leader = named.iter().position(Option::is_none)?;
        let url = cluster.url(leader + 1, "");
        (named.iter().flatten().filter(|named| **named == url).count() == 2).then_some(())
    });
}
