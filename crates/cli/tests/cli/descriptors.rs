//! File descriptors: clients cannot use up those of the log and of peers, and a node without free
//! descriptors waits for some.

use crate::harness::client::Raw;
use crate::harness::{Cluster, Options, eventually, resp};

/// Leaves room for some ten client connections beyond what a node reserves for itself.
const OPEN_FILES: u64 = 692;

/// Connections of each protocol, on each node: more than the limit.
const CLIENTS: usize = 100;

const VALUE_BYTES: usize = 943_718;

/// More than a segment of the log, which is 64 MiB.
const WRITES: usize = (64 << 20) / VALUE_BYTES + 10;

fn put(connection: &mut Raw, key: usize) -> (u16, String) {
    let head =
        format!("PUT /v1/keys/k{key} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {VALUE_BYTES}\r\n\r\n");
    connection.write(head.as_bytes()).expect("the node reads");
    connection.write(&vec![b'v'; VALUE_BYTES]).expect("the node reads");
    text(connection)
}

fn get(connection: &mut Raw, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    connection.write(request.as_bytes()).expect("the node reads");
    text(connection)
}

fn text(connection: &mut Raw) -> (u16, String) {
    let (status, body) = connection.read().expect("an answer");
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// Opens connections that stay open, and counts those that are served and those that are refused.
fn occupy(cluster: &Cluster, node: usize) -> (Vec<Raw>, Vec<resp::Client>, usize) {
    let (mut http, mut redis, mut refused) = (vec![], vec![], 0);
    for _ in 0..CLIENTS {
        let mut client = Raw::connect(cluster.address(node)).expect("the node accepts");
        match get(&mut client, "/livez") {
            (200, _) => http.push(client),
            (503, body) if body.contains("too-many-connections") => refused += 1,
            other => panic!("{other:?}"),
        }
        let address = resp::address_of(cluster.address(node));
        let mut client = resp::Client::connect(address).expect("the node accepts");
        match client.ask("PING").as_str() {
            "+PONG" => redis.push(client),
            "-ERR max number of clients reached" => refused += 1,
            other => panic!("{other}"),
        }
    }
    (http, redis, refused)
}

#[test]
fn idle_clients_are_refused_before_they_stop_the_cluster() {
    let mut cluster = Cluster::start_prepared(3, &Options::default(), |cluster| {
        cluster.numbers().into_iter().for_each(|number| cluster.limit_open_files(number, OPEN_FILES));
    });
    let mut writers: Vec<Raw> =
        cluster.numbers().iter().map(|&node| Raw::connect(cluster.address(node)).unwrap()).collect();
    let mut idle = vec![];
    for node in cluster.numbers() {
        let (http, redis, refused) = occupy(&cluster, node);
        assert!(http.len() > 10 && redis.len() > 5, "{} and {} are served", http.len(), redis.len());
        assert_eq!(http.len() + redis.len() + refused, 2 * CLIENTS);
        assert!(refused > 0);
        idle.push((http, redis));
        let log = cluster.log(node);
        assert!(log.contains("file descriptors") && log.contains("fewer client connections"), "{log}");
    }
    for key in 0..WRITES {
        let node = key % writers.len();
        let (status, body) = put(&mut writers[node], key);
        assert!(matches!(status, 200 | 201), "{key} on node {}: {status} {body}", node + 1);
    }
    // A peer that restarts gets descriptors for its connections, however many clients hold.
    writers.pop();
    idle.pop();
    cluster.kill(3);
    cluster.restart(3);
    assert_eq!(cluster.get(3, "/v1/keys/k0").body.len(), VALUE_BYTES);

    // Closed connections make room for others.
    idle.clear();
    eventually("node 1 serves new clients", || {
        let mut client = Raw::connect(cluster.address(1)).ok()?;
        (get(&mut client, "/livez").0 == 200).then_some(())
    });
}

#[test]
fn a_log_that_cannot_open_its_next_segment_waits_for_descriptors() {
    let mut cluster = Cluster::start(1);
    let mut client = Raw::connect(cluster.address(1)).expect("the node accepts");
    assert_eq!(put(&mut client, 0).0, 201);
    cluster.set_open_files(1, 1);
    let refused = (1..2 * WRITES).find(|&key| {
        let (status, body) = put(&mut client, key);
        // A write that the node took before it learnt that the log is full waits for room, and its
        // outcome stays unknown. Later ones are refused at once.
        let is_expected = match status {
            503 => body.contains("disk-unavailable"),
            504 => body.contains("unknown-outcome"),
            _ => status == 201,
        };
        assert!(is_expected, "{status} {body}");
        status == 503
    });
    let refused = refused.expect("the log needs another segment");
    let (status, body) = get(&mut client, "/readyz");
    assert!(status == 503 && body.contains("no file descriptor is left"), "{status} {body}");
    assert_eq!(get(&mut client, "/v1/keys/k0").0, 200, "reads go on");

    cluster.set_open_files(1, OPEN_FILES);
    cluster.wait_ready(1);
    assert_eq!(put(&mut client, refused).0, 201);
    cluster.kill(1);
    cluster.restart(1);
    for key in [0, refused - 1, refused] {
        assert_eq!(cluster.get(1, &format!("/v1/keys/k{key}")).body.len(), VALUE_BYTES, "{key}");
    }
}

#[test]
fn clients_are_told_even_when_no_descriptor_is_left() {
    let cluster = Cluster::start(1);
    let highest = cluster.descriptors(1).into_iter().max().expect("it has some");
    cluster.set_open_files(1, highest + 1);
    let mut served = vec![];
    let mut refused = 0;
    while refused < 10 {
        let mut client = Raw::connect(cluster.address(1)).expect("the backlog has room");
        match get(&mut client, "/livez") {
            (200, _) => served.push(client),
            (503, body) if body.contains("too-many-connections") => refused += 1,
            other => panic!("{other:?}"),
        }
        assert!(served.len() as u64 <= highest, "as many are served as there are numbers below the highest");
    }
    cluster.set_open_files(1, OPEN_FILES);
    let mut client = Raw::connect(cluster.address(1)).expect("the node accepts");
    assert_eq!(get(&mut client, "/livez").0, 200);
    let log = cluster.log(1);
    assert_eq!(log.matches("cannot accept connections").count(), 1, "{log}");
    assert!(log.contains("connections are accepted again"), "{log}");
}
