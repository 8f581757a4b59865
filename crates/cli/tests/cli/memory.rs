//! The memory that clients can make a node hold is bounded, counted, and released.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use crate::harness::client::Raw;
use crate::harness::resp::{self, address_of};
use crate::harness::{self, Cluster, Options, eventually};

/// The smallest limit that a node accepts. Three quarters of it are for large items.
const LIMIT: u64 = 64 << 20;

/// The memory that an idle client of these tests counts.
const CONNECTION: u64 = 16 << 10;

const LARGE: &str = "/v1/keys/large";

fn start() -> Cluster {
    let cluster =
        Cluster::start_with(1, &Options { flags: vec!["--memory-limit", "64MiB", "--workers", "2"] });
    assert_eq!(cluster.put(1, LARGE, &vec![b'v'; 1 << 20]).status, 201);
    assert_eq!(cluster.put(1, "/v1/keys/small", b"1").status, 201);
    cluster
}

fn metric(cluster: &Cluster, name: &str) -> u64 {
    harness::metric(&cluster.get(1, "/metrics").text(), &format!("tidelock_{name}"))
}

fn used(cluster: &Cluster) -> u64 {
    let used = metric(cluster, "client_memory_bytes");
    assert!(used <= LIMIT, "{used} bytes");
    used
}

/// Clients that send `request` and read nothing.
fn unread(address: SocketAddr, count: usize, request: &[u8]) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect(address).expect("the node accepts");
        stream.write_all(request).expect("the node, or its socket, takes it");
        stream
    };
    (0..count).map(connect).collect()
}

/// Lets `connect` make clients that read nothing. Waits until `is_full`, which is given how many
/// requests were refused since. Checks that other clients are served, closes the connections, and
/// waits until all memory is released.
fn assert_bounded(
    cluster: &Cluster,
    connect: impl FnOnce() -> Vec<TcpStream>,
    is_full: impl Fn(u64) -> bool,
) {
    let refused = metric(cluster, "client_memory_refusals_total");
    let greedy = connect();
    eventually("the memory is used up", || {
        assert_eq!(cluster.get(1, "/v1/keys/small").body, b"1");
        let refused = metric(cluster, "client_memory_refusals_total") - refused;
        (used(cluster) > LIMIT / 3 && is_full(refused)).then_some(())
    });
    let mut client = resp::Client::connect(address_of(cluster.address(1))).expect("the node accepts");
    for _ in 0..10 {
        assert_eq!(client.ask("GET small"), "1");
        assert_eq!(client.ask("SET other 1"), "+OK");
        assert_eq!(cluster.put(1, "/v1/keys/other", b"2").status, 200);
    }
    drop((greedy, client));
    eventually("all is given back", || (used(cluster) <= 2 * CONNECTION).then_some(()));
    assert_eq!(cluster.get(1, LARGE).body.len(), 1 << 20);
}

fn is_any(refused: u64) -> bool {
    refused > 0
}

#[test]
fn replies_that_nobody_reads_are_bounded() {
    let cluster = start();
    assert_eq!(metric(&cluster, "client_memory_limit_bytes"), LIMIT);
    let requests = "GET large\r\n".repeat(100);
    let resp = || unread(address_of(cluster.address(1)), 40, requests.as_bytes());
    assert_bounded(&cluster, resp, is_any);
    assert!(cluster.log(1).contains("the memory for clients is used up"));
    let request = format!("GET {LARGE} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    // More than the sockets of a connection take.
    let unread = unread(cluster.address(1), 100, request.repeat(16).as_bytes());
    eventually("a large value is refused, to be asked for again later", || {
        let large = cluster.try_send(1, &format!("GET {LARGE}"), &[], b"").expect("the node answers");
        assert!(large.status == 200 || large.is_problem("overloaded"), "{}", large.status);
        (large.status == 503).then_some(())
    });
    assert_bounded(&cluster, || unread, |_| true);
}

#[test]
fn pages_and_documents_that_nobody_reads_are_bounded() {
    let cluster = start();
    for number in 0..4 {
        assert_eq!(cluster.put(1, &format!("/v1/keys/large{number}"), &vec![b'v'; 1 << 20]).status, 201);
    }
    let list = b"GET /v1/keys HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_bounded(&cluster, || unread(cluster.address(1), 30, list), is_any);
    let value = "x".repeat(60_000);
    // More than the sockets of a connection take.
    let document: Vec<String> = (0..120).map(|number| format!("\"f{number}\":\"{value}\"")).collect();
    let document = format!("{{{}}}", document.join(","));
    let import = "POST /api/namespaces/ns/containers/c/import?format=json&create=true";
    let imported = cluster.send(1, import, &[], document.as_bytes());
    assert_eq!(imported.status, 200, "{}", imported.text());
    let watch = b"GET /api/namespaces/ns/containers/c/watch HTTP/1.1\r\nhost: localhost\r\n\r\n";
    // No watcher is refused: a document waits until there is memory for it.
    assert_bounded(&cluster, || unread(cluster.address(1), 40, watch), |_| true);
}

#[test]
fn bodies_that_do_not_end_are_bounded() {
    let cluster = start();
    let head = format!(
        "POST /v1/restore?backup=11111111-1111-4111-8111-111111111111&revision=1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        8 << 20
    );
    let mut bodies = Vec::new();
    let mut writing = Vec::new();
    for _ in 0..10 {
        let mut body = Raw::connect(cluster.address(1)).expect("the node accepts");
        body.write(head.as_bytes()).expect("the node reads");
        writing.push(body.write_in_background(vec![0; 7 << 20]).expect("a handle to the socket"));
        bodies.push(body);
    }
    // Refused bodies are read and discarded, so everything can be written.
    writing.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    eventually("some are refused", || (metric(&cluster, "client_memory_refusals_total") > 0).then_some(()));
    assert!(used(&cluster) > LIMIT / 3);
    assert_eq!(cluster.get(1, "/v1/keys/small").body, b"1");
    drop(bodies);
    eventually("all is given back", || (used(&cluster) <= 2 * CONNECTION).then_some(()));
}
