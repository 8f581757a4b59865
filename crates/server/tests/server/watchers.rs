//! Watchers of configuration: events, resumption, and the end.

use tidelock_server::http::HttpOptions;

use crate::client::Client;
use crate::harness::Server;

/// A server with container `c` of pair `p`, at revision 1.
fn serve() -> (Server, Client) {
    let server = Server::start(HttpOptions::default());
    let mut client = Client::connect(server.address);
    let changes = r#"{"create":true,"changes":[{"pair":"p","value":1},{"pair":"q","value":1},{"container":"c","fields":[{"key":"a","fieldType":1,"value":"p"}]}]}"#;
    post(&mut client, "ns/publish", changes);
    (server, client)
}

fn post(client: &mut Client, target: &str, body: &str) {
    let head = format!(
        "POST /api/namespaces/{target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let answer = client.ask((head + body).as_bytes());
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

fn set(client: &mut Client, pair: &str, number: u32) {
    post(client, &format!("ns/pairs/{pair}"), &format!(r#"{{"value":{number}}}"#));
}

/// Starts to watch the container.
fn watch(server: &Server, headers: &str) -> Client {
    watch_at(server, "containers/c/watch", headers)
}

/// Starts to watch.
fn watch_at(server: &Server, target: &str, headers: &str) -> Client {
    let mut watcher = Client::connect(server.address);
    let request = format!("GET /api/namespaces/ns/{target} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    watcher.send(request.as_bytes()).unwrap();
    let head = watcher.read_head().unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    assert_eq!(watcher.read_chunk().unwrap(), "retry: 1000\n\n");
    watcher
}

/// The next event: its name, its id and its data.
fn event(watcher: &mut Client) -> (String, Option<u64>, serde_json::Value) {
    let (name, id, data) = event_with_id(watcher);
    (name, id.map(|id| id.parse().unwrap()), data)
}

fn event_with_id(watcher: &mut Client) -> (String, Option<String>, serde_json::Value) {
    let text = watcher.read_chunk().unwrap();
    let line = |name: &str| {
        let prefix = format!("{name}: ");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
    };
    assert!(text.ends_with("\n\n"), "{text:?}");
    (line("event").unwrap(), line("id"), serde_json::from_str(&line("data").unwrap()).unwrap())
}

/// The next event of a namespace: its name, its id, the container and the number in its document.
fn named(watcher: &mut Client) -> (String, String, String, Option<i64>) {
    let (name, id, data) = event_with_id(watcher);
    let container = data["key"].as_str().unwrap_or_default().to_owned();
    (name, id.unwrap_or_default(), container, data["data"]["a"].as_i64())
}

fn expect(watcher: &mut Client, expected: (&str, &str, &str, Option<i64>)) {
    let (name, id, container, number) = named(watcher);
    assert_eq!((name.as_str(), id.as_str(), container.as_str(), number), expected);
}

fn change(watcher: &mut Client) -> (u64, i64) {
    let (name, id, data) = event(watcher);
    assert_eq!(name, "change");
    assert_eq!(data["revision"], id.unwrap());
    (id.unwrap(), data["data"]["a"].as_i64().unwrap())
}

#[test]
fn a_watcher_hears_what_is_and_what_becomes_of_it() {
    let (server, mut client) = serve();
    let (mut first, mut second) = (watch(&server, ""), watch(&server, ""));
    assert_eq!((change(&mut first), change(&mut second)), ((1, 1), (1, 1)));
    set(&mut client, "p", 2);
    set(&mut client, "q", 2);
    set(&mut client, "p", 3);
    for watcher in [&mut first, &mut second] {
        assert_eq!((change(watcher), change(watcher)), ((2, 2), (4, 3)), "once, in order, and nothing of q");
    }
    // Another pair with the same value causes no event; changes of that pair then do.
    set(&mut client, "q", 3);
    post(&mut client, "ns/containers/c", r#"{"fields":[{"key":"a","fieldType":1,"value":"q"}]}"#);
    set(&mut client, "p", 9);
    set(&mut client, "q", 4);
    assert_eq!(change(&mut first), (8, 4));
    let answer = client.ask(b"DELETE /api/namespaces/ns/containers/c HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(answer.status(), 200);
    let (name, id, data) = event(&mut first);
    assert_eq!((name.as_str(), id, &data["deleted"]), ("deleted", Some(9), &serde_json::Value::Bool(true)));
    post(&mut client, "ns/containers/c", r#"{"fields":[{"key":"a","fieldType":1,"value":"p"}]}"#);
    assert_eq!(change(&mut first), (10, 9), "it goes on when there is one again");
}

#[test]
fn a_watcher_goes_on_where_it_was() {
    let (server, mut client) = serve();
    for number in 2..6 {
        set(&mut client, "p", number);
    }
    let mut watcher = watch(&server, "last-event-id: 2\r\n");
    assert_eq!([change(&mut watcher), change(&mut watcher), change(&mut watcher)], [(3, 3), (4, 4), (5, 5)]);
    let mut newest = watch(&server, "last-event-id: 5\r\n");
    set(&mut client, "p", 6);
    assert_eq!((change(&mut watcher), change(&mut newest)), ((6, 6), (6, 6)));
}

#[test]
fn a_watcher_is_told_of_a_gap() {
    let (server, mut client) = serve();
    post(&mut client, "ns/policy", r#"{"revisions":2}"#);
    for number in 2..9 {
        set(&mut client, "p", number);
    }
    for (last, after) in [(1, 1), (99, 99)] {
        let mut watcher = watch(&server, &format!("last-event-id: {last}\r\n"));
        let (name, id, data) = event(&mut watcher);
        assert_eq!((name.as_str(), id, data["after"].as_u64()), ("gap", None, Some(after)));
        assert_eq!(change(&mut watcher), (9, 8));
    }
}

#[test]
fn more_than_one_answer_holds_comes_in_order() {
    let (server, mut client) = serve();
    let last = 2 * tidelock_core::limits::CONFIG_CHANGES_MAX as u32 + 10;
    post(&mut client, "ns/policy", r#"{"revisions":1000}"#);
    for number in 2..last {
        set(&mut client, "p", number);
    }
    let mut watcher = watch(&server, "last-event-id: 1\r\n");
    for number in 2..last {
        assert_eq!(change(&mut watcher), (u64::from(number) + 1, i64::from(number)));
    }
}

/// A second container `b/d` of the pair `p`, at revision 2.
fn add_container(client: &mut Client) {
    post(client, "ns/containers/b%2Fd", r#"{"fields":[{"key":"a","fieldType":1,"value":"p"}]}"#);
}

#[test]
fn a_watcher_of_a_namespace_hears_of_all_its_containers() {
    let (server, mut client) = serve();
    add_container(&mut client);
    let mut watcher = watch_at(&server, "watch", "");
    expect(&mut watcher, ("change", "2@b~2fd", "b/d", Some(1)));
    expect(&mut watcher, ("change", "2@c", "c", Some(1)));
    expect(&mut watcher, ("current", "2", "", None));
    set(&mut client, "q", 2);
    set(&mut client, "p", 3);
    expect(&mut watcher, ("change", "4:b~2fd", "b/d", Some(3)));
    expect(&mut watcher, ("change", "4:c", "c", Some(3)));
    let delete = |client: &mut Client, target: &str| {
        let request = format!("DELETE /api/namespaces/ns{target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert_eq!(client.ask(request.as_bytes()).status(), 200);
    };
    delete(&mut client, "/containers/c");
    expect(&mut watcher, ("deleted", "5:c", "c", None));
    delete(&mut client, "?force=true");
    expect(&mut watcher, ("deleted", "0", "", None));
    let again = r#"{"create":true,"changes":[{"pair":"p","value":7},{"container":"e","fields":[{"key":"a","fieldType":1,"value":"p"}]}]}"#;
    post(&mut client, "ns/publish", again);
    expect(&mut watcher, ("change", "6:e", "e", Some(7)));
    // Another one learns that what it knows is gone.
    let mut late = watch_at(&server, "watch", "last-event-id: 4:c\r\n");
    expect(&mut late, ("deleted", "6:", "", None));
    expect(&mut late, ("change", "6:e", "e", Some(7)));
}

#[test]
fn a_watcher_of_a_namespace_comes_back_anywhere() {
    let (server, mut client) = serve();
    add_container(&mut client);
    for number in 3..6 {
        set(&mut client, "p", number);
    }
    // Between the two events of revision 4.
    let mut watcher = watch_at(&server, "watch", "last-event-id: 4:b~2fd\r\n");
    expect(&mut watcher, ("change", "4:c", "c", Some(4)));
    expect(&mut watcher, ("change", "5:b~2fd", "b/d", Some(5)));
    expect(&mut watcher, ("change", "5:c", "c", Some(5)));
    // In the midst of a state, whose rest has changed since.
    let mut watcher = watch_at(&server, "watch", "last-event-id: 2@b~2fd\r\n");
    expect(&mut watcher, ("change", "2@c", "c", Some(1)));
    expect(&mut watcher, ("current", "2", "", None));
    for number in 3..6 {
        expect(&mut watcher, ("change", &format!("{number}:b~2fd"), "b/d", Some(number)));
        expect(&mut watcher, ("change", &format!("{number}:c"), "c", Some(number)));
    }
    // A gap.
    post(&mut client, "ns/policy", r#"{"revisions":2}"#);
    let mut watcher = watch_at(&server, "watch", "last-event-id: 2\r\n");
    let (name, id, data) = event_with_id(&mut watcher);
    assert_eq!((name.as_str(), id, data["after"].as_u64(), data.get("key")), ("gap", None, Some(2), None));
    expect(&mut watcher, ("change", "6@b~2fd", "b/d", Some(5)));
    expect(&mut watcher, ("change", "6@c", "c", Some(5)));
    expect(&mut watcher, ("current", "6", "", None));
}

#[test]
fn a_node_that_stops_lets_its_watchers_go() {
    let (mut server, mut client) = serve();
    let mut watcher = watch(&server, "");
    assert_eq!(change(&mut watcher), (1, 1));
    set(&mut client, "p", 2);
    drop(client);
    server.request_shutdown();
    assert_eq!(change(&mut watcher), (2, 2));
    assert_eq!(watcher.read_chunk().unwrap(), "", "the last chunk: an end, not a break");
    server.join();
}

#[test]
fn a_long_poll_is_answered_when_something_happens() {
    let (server, mut client) = serve();
    let mut watcher = Client::connect(server.address);
    watcher.send(b"GET /api/namespaces/ns/containers/c/watch?index=1&wait=300s HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    while server.store.watcher_count() == 0 {
        std::thread::yield_now();
    }
    set(&mut client, "q", 2);
    set(&mut client, "p", 2);
    let answer = watcher.read_answer(false).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (answer["data"]["index"].as_u64(), &answer["data"]["changes"][0]["data"]["a"]),
        (Some(3), &2.into())
    );
    while server.store.watcher_count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn watchers_do_not_count_among_other_connections() {
    let options = HttpOptions { connections_max: 2, ..HttpOptions::default() };
    let server = Server::start(options);
    let mut client = Client::connect(server.address);
    let changes = r#"{"create":true,"changes":[{"pair":"p","value":1},{"container":"c","fields":[{"key":"a","fieldType":1,"value":"p"}]}]}"#;
    post(&mut client, "ns/publish", changes);
    let mut watchers: Vec<Client> = (0..5).map(|_| watch(&server, "")).collect();
    set(&mut client, "p", 2);
    for watcher in &mut watchers {
        assert_eq!((change(watcher), change(watcher)), ((1, 1), (2, 2)));
    }
    let mut other = Client::connect(server.address);
    assert_eq!(other.ask(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").status(), 200);
    let mut refused = Client::connect(server.address);
    assert_eq!(refused.read_answer(false).unwrap().status(), 503);
}

#[test]
fn a_client_without_chunks_is_told_the_same() {
    let (server, mut client) = serve();
    let mut watcher = Client::connect(server.address);
    watcher.send(b"GET /api/namespaces/ns/containers/c/watch HTTP/1.0\r\n\r\n").unwrap();
    let head = watcher.read_head().unwrap();
    assert_eq!((head.status(), head.header("transfer-encoding")), (200, None));
    set(&mut client, "p", 2);
    let mut ids = Vec::new();
    while ids.len() < 2 {
        let line = watcher.read_text_line().unwrap();
        ids.extend(line.strip_prefix("id: ").map(str::to_owned));
    }
    assert_eq!(ids, ["1", "2"]);
}

#[test]
fn the_head_alone_leaves_the_connection_as_it_is() {
    let (server, mut client) = serve();
    let mut other = Client::connect(server.address);
    let head = other.ask(b"HEAD /api/namespaces/ns/containers/c/watch HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!((head.status(), head.header("content-type")), (200, Some("text/event-stream")));
    set(&mut client, "p", 2);
    assert_eq!(other.ask(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").status(), 200);
}

#[test]
fn what_follows_on_a_connection_that_carries_events_is_not_answered() {
    let (mut server, mut client) = serve();
    let mut watcher = Client::connect(server.address);
    let request = "GET /api/namespaces/ns/containers/c/watch HTTP/1.1\r\nhost: localhost\r\n\r\n";
    watcher.send(format!("{request}GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
    let head = watcher.read_head().unwrap();
    assert_eq!(head.header("connection"), Some("close"), "and it says so");
    assert_eq!(watcher.read_chunk().unwrap(), "retry: 1000\n\n");
    set(&mut client, "p", 2);
    assert_eq!((change(&mut watcher), change(&mut watcher)), ((1, 1), (2, 2)));
    drop(client);
    server.request_shutdown();
    assert_eq!(watcher.read_chunk().unwrap(), "");
    watcher.expect_closed();
    server.join();
}

#[test]
fn a_watcher_hears_that_the_namespace_went_and_came_back() {
    let (server, mut client) = serve();
    let mut watcher = watch(&server, "");
    assert_eq!(change(&mut watcher), (1, 1));
    let delete = b"DELETE /api/namespaces/ns?force=true HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(client.ask(delete).status(), 200);
    let gone = |watcher: &mut Client| {
        let (name, id, data) = event(watcher);
        assert_eq!(
            (name.as_str(), id, &data["deleted"]),
            ("deleted", Some(0), &serde_json::Value::Bool(true))
        );
    };
    gone(&mut watcher);
    // A client that reconnects with the last revision that it saw gets the same event.
    let mut late = watch(&server, "last-event-id: 1\r\n");
    gone(&mut late);
    let changes = r#"{"create":true,"changes":[{"pair":"p","value":5},{"container":"c","fields":[{"key":"a","fieldType":1,"value":"p"}]}]}"#;
    post(&mut client, "ns/publish", changes);
    assert_eq!((change(&mut watcher), change(&mut late)), ((2, 5), (2, 5)));
    // A long poll ends with it, too.
    let mut poller = Client::connect(server.address);
    let before = server.store.watcher_count();
    poller.send(b"GET /api/namespaces/ns/containers/c/watch?index=2&wait=300s HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    while server.store.watcher_count() == before {
        std::thread::yield_now();
    }
    assert_eq!(client.ask(delete).status(), 200);
    let answer = poller.read_answer(false).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&answer["data"]["index"], &answer["data"]["gap"]), (&0.into(), &false.into()));
    assert_eq!(answer["data"]["changes"][0]["deleted"], true);
}
