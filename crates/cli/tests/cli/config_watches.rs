//! Watches of a whole namespace, and who reads it, across nodes, kills and restarts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use serde_json::{Value, json};

use crate::config::{post, post_through};
use crate::harness::client::TIMEOUT;
use crate::harness::guarded::Guarded;
use crate::harness::reports::{Reporter, Reports, reports};
use crate::harness::shell::Shell;
use crate::harness::{Cluster, PAUSE, eventually};

/// The number of containers that refer to the same pair.
const CONTAINERS: usize = 100;

/// More events than a node sends in one answer.
fn many_containers(cluster: &Cluster, namespace: &str) {
    let containers = (0..CONTAINERS).map(|number| {
        json!({"container": format!("c{number:03}"), "fields": [{"key": "a", "fieldType": 1, "value": "p"}]})
    });
    let changes: Vec<Value> = [json!({"pair": "p", "value": 0})].into_iter().chain(containers).collect();
    let body = json!({"changes": changes, "create": true});
    assert_eq!(post(cluster, 1, &format!("{namespace}/publish"), &body).status, 200);
    let policy = json!({"revisions": 10_000});
    assert_eq!(post(cluster, 1, &format!("{namespace}/policy"), &policy).status, 200);
}

/// What a watcher has heard: the name of the event, its revision, the container and the number.
type Heard = (String, u64, Option<String>, Option<u64>);

/// Follows a namespace at one node after the other. Breaks its connection now and then, also in the
/// midst of a revision. Ends when nobody listens.
fn follow(
    addresses: &[SocketAddr],
    namespace: &str,
    first: usize,
    events_max: usize,
    told: &Reporter<Heard>,
) {
    let mut last: Option<String> = None;
    for attempt in first.. {
        if !told.is_received() {
            return;
        }
        let Ok(mut stream) = TcpStream::connect(addresses[attempt % addresses.len()]) else {
            thread::sleep(PAUSE);
            continue;
        };
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let resume = last.as_ref().map(|last| format!("last-event-id: {last}\r\n")).unwrap_or_default();
        let request = format!(
            "GET /api/namespaces/{namespace}/watch?label=w{first} HTTP/1.1\r\nhost: localhost\r\n{resume}\r\n"
        );
        if stream.write_all(request.as_bytes()).is_err() {
            continue;
        }
        let (mut id, mut name, mut events) = (None, String::new(), 0);
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            }
            if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut name);
            }
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let data: Value = serde_json::from_str(data).expect("JSON");
            let number = data["data"]["a"].as_u64();
            let container = data["key"].as_str().map(str::to_owned);
            last = id.take().or(last);
            let revision = data["revision"].as_u64().unwrap_or_default();
            if told.send((name.clone(), revision, container, number)).is_err() {
                return;
            }
            events += 1;
            if events == events_max {
                break;
            }
        }
    }
}

#[test]
fn watchers_of_a_namespace_miss_nothing_when_nodes_die_and_connections_break() {
    const CHANGES: u64 = 12;
    let mut cluster = Cluster::start(3);
    cluster.await_newest_version();
    many_containers(&cluster, "ns");
    let addresses: Vec<SocketAddr> =
        cluster.numbers().iter().map(|&number| cluster.address(number)).collect();
    let watchers: Vec<Reports<Heard>> = (0..4)
        .map(|first| {
            let (told, heard) = reports();
            let addresses = addresses.clone();
            // No multiple of the number of containers, nor of the events in an answer.
            thread::spawn(move || follow(&addresses, "ns", first, 37 + 10 * first, &told));
            heard
        })
        .collect();
    let chief = cluster.chief();
    let other = cluster.numbers().into_iter().find(|&number| number != chief).expect("another");
    // The state of each watcher is complete before the first change.
    for heard in &watchers {
        for number in 0..CONTAINERS {
            let event = heard.recv_timeout(TIMEOUT).expect("a container");
            assert_eq!(event, ("change".into(), 1, Some(format!("c{number:03}")), Some(0)));
        }
        assert_eq!(heard.recv_timeout(TIMEOUT).expect("the end of the state").0, "current");
    }
    let mut revisions = Vec::new();
    for number in 1..=CHANGES {
        if number == 4 {
            cluster.kill(chief);
        }
        if number == 8 {
            cluster.restart(chief);
        }
        revisions.push((post_through(&cluster, other, "ns/pairs/p", &json!({"value": number})), number));
    }
    for (watcher, heard) in watchers.iter().enumerate() {
        for &(revision, number) in &revisions {
            for container in 0..CONTAINERS {
                let event = heard.recv_timeout(TIMEOUT).expect("a change");
                let expected =
                    ("change".to_owned(), revision, Some(format!("c{container:03}")), Some(number));
                assert_eq!(event, expected, "watcher {watcher}: each change once, in order");
            }
        }
    }
}

/// The open watches of a namespace as a node shows them, by label.
fn readers(cluster: &Cluster, node: usize, query: &str) -> (BTreeMap<String, Value>, Value) {
    let answer = cluster.get(node, &format!("/api/namespaces/ns/readers{query}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let data = answer.json()["data"].take();
    let rows = data["readers"].as_array().expect("readers").iter();
    let by_label =
        rows.map(|reader| (reader["label"].as_str().unwrap_or_default().to_owned(), reader.clone()));
    (by_label.collect(), data["missing"].clone())
}

/// Opens a stream of events.
fn open(cluster: &Cluster, node: usize, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(cluster.address(node)).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let request = format!("GET /api/namespaces/ns/{target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    stream
}

#[test]
fn readers_of_all_nodes_are_listed_and_missing_nodes_are_named() {
    let mut cluster = Cluster::start(3);
    cluster.await_newest_version();
    many_containers(&cluster, "ns");
    let streams = [
        open(&cluster, 1, "watch?label=all"),
        open(&cluster, 2, "containers/c000/watch?label=one"),
        open(&cluster, 3, "containers/c001/watch?index=1&wait=5m&label=poll"),
    ];
    for node in cluster.numbers() {
        let (rows, missing) = eventually("all readers are there, and have read", || {
            let (rows, missing) = readers(&cluster, node, "");
            let is_read =
                rows.len() == 3 && rows.values().all(|reader| reader["revision"].as_u64() > Some(0));
            is_read.then_some((rows, missing))
        });
        assert_eq!(missing, json!([]));
        for (label, node, container, is_poll) in [
            ("all", 1, Value::Null, false),
            ("one", 2, json!("c000"), false),
            ("poll", 3, json!("c001"), true),
        ] {
            let reader = &rows[label];
            assert_eq!((&reader["node"], &reader["poll"]), (&json!(node), &json!(is_poll)), "{reader}");
            assert_eq!(reader["container"], container, "{reader}");
            assert!(reader["address"].as_str().expect("an address").starts_with("127.0.0.1:"), "{reader}");
        }
    }
    let (of_one, _) = readers(&cluster, 3, "?container=c000");
    assert_eq!(of_one.keys().collect::<Vec<_>>(), ["all", "one"], "who reads the container");
    let (local, _) = readers(&cluster, 2, "?local=true");
    assert_eq!(local.keys().collect::<Vec<_>>(), ["one"]);
    // The revision rises with what is sent.
    let revision = post_through(&cluster, 1, "ns/pairs/p", &json!({"value": 1}));
    eventually("the change was sent", || {
        let (rows, _) = readers(&cluster, 2, "");
        let sent = |label: &str| rows.get(label).map(|reader| reader["revision"] == revision);
        // A long poll ends with the change.
        (sent("all") == Some(true) && sent("one") == Some(true) && sent("poll").is_none()).then_some(())
    });
    let table =
        String::from_utf8(Shell::by_way_of(&cluster, &[1]).done(&["config", "readers", "ns", "c000"]));
    let table = table.expect("text");
    assert!(table.contains("LABEL") && table.contains("all") && table.contains("c000"), "{table}");
    cluster.kill(2);
    let (rows, missing) = eventually("the nodes that are left answer", || {
        let answer = cluster.try_send(1, "GET /api/namespaces/ns/readers?stale=true", &[], b"")?;
        (answer.status == 200).then(|| readers(&cluster, 1, "?stale=true"))
    });
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["all"]);
    assert_eq!(missing, json!([2]));
    drop(streams);
    eventually("closed connections are not listed", || {
        readers(&cluster, 1, "?stale=true").0.is_empty().then_some(())
    });
}

#[test]
fn readers_are_shown_to_whom_may_read_with_their_principals() {
    let guarded = Guarded::start(2);
    guarded.administer("POST /api/namespaces/ns", &json!({}));
    let (reader, _) = guarded.principal("shop", &["read config:ns"]);
    let (stranger, _) = guarded.principal("stranger", &["read config:other"]);
    let mut stream = TcpStream::connect(guarded.cluster.address(2)).expect("a connection");
    let request = format!(
        "GET /api/namespaces/ns/watch?label=w HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {reader}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    let row = eventually("the reader is listed", || {
        let answer = guarded.send(1, "GET /api/namespaces/ns/readers", &reader, b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["data"]["readers"].get(0).cloned()
    });
    assert_eq!((&row["principal"], &row["node"], &row["label"]), (&json!("shop"), &json!(2), &json!("w")));
    for request in ["GET /api/namespaces/ns/readers", "GET /api/namespaces/ns/watch"] {
        assert_eq!(guarded.send(1, request, &stranger, b"").status, 403);
        assert_eq!(guarded.cluster.send(1, request, &[], b"").status, 401);
    }
}

#[test]
fn a_namespace_is_watched_from_the_command_line() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let text = |arguments: &[&str]| String::from_utf8(shell.done(arguments)).expect("text");
    shell.done(&["config", "ns", "create", "shop"]);
    shell.done(&["config", "pair", "set", "shop", "p", "1"]);
    shell.done(&["config", "container", "set", "shop", "a", "f=p"]);
    shell.done(&["config", "container", "set", "shop", "b", "f=p"]);
    shell.done(&["config", "pair", "set", "shop", "p", "2"]);
    shell.done(&["config", "container", "del", "shop", "b"]);
    let watched = text(&["config", "watch", "shop", "--after", "0", "--count", "5"]);
    let titles: Vec<&str> = watched.lines().filter(|line| line.contains("revision")).collect();
    let diff_of = |title: &str| format!("+++ {title}");
    assert_eq!(
        titles,
        [
            "revision 3 a",
            "revision 4 b",
            &diff_of("revision 5 a"),
            &diff_of("revision 5 b"),
            "revision 6 b deleted"
        ]
    );
    let state = text(&["config", "watch", "shop", "--count", "1", "--output", "json"]);
    let event: Value = serde_json::from_str(&state).expect("JSON");
    assert_eq!((&event["key"], &event["revision"]), (&json!("a"), &json!(5)));
    let refused = shell.failed(&["config", "watch", "none"]);
    assert!(refused.contains("no such namespace"), "{refused}");
    let refused = shell.failed(&["config", "readers", "none"]);
    assert!(refused.contains("no such namespace"), "{refused}");
}
