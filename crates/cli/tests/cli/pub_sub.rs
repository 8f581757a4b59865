//! Messages of channels: `PUBLISH` through one node reaches the subscribers of all nodes.

use std::io;

use serde_json::json;

use crate::harness::guarded::Guarded;
use crate::harness::resp::{Client, address_of};
use crate::harness::{Cluster, Options, eventually};

fn connect(cluster: &Cluster, number: usize) -> Client {
    Client::connect(address_of(cluster.address(number))).expect("the node listens")
}

fn in_resp3(mut client: Client) -> Client {
    client.send("HELLO 3\r\n").expect("sent");
    // The greeting ends with the modules, of which there are none.
    while client.reply().expect("a greeting") != "*0" {}
    client
}

/// The next lines, which must be these.
fn receives(client: &mut Client, lines: &[&str]) {
    for line in lines {
        assert_eq!(client.reply().expect("a message"), *line, "of {lines:?}");
    }
}

/// A command whose arguments may be longer than an inline command.
fn encoded(arguments: &[&str]) -> String {
    let mut out = format!("*{}\r\n", arguments.len());
    arguments.iter().for_each(|argument| out += &format!("${}\r\n{argument}\r\n", argument.len()));
    out
}

#[test]
fn a_message_reaches_the_subscribers_of_every_node_and_worker() {
    let cluster = Cluster::start_with(3, &Options { flags: vec!["--workers", "2"] });
    cluster.await_newest_version();
    // Connections go to the worker with the fewest, so each worker has some.
    let nodes: Vec<usize> = cluster.numbers().into_iter().flat_map(|node| [node, node]).collect();
    let mut of_channel: Vec<Client> = nodes.iter().map(|node| connect(&cluster, *node)).collect();
    let mut of_pattern: Vec<Client> = nodes.iter().map(|node| in_resp3(connect(&cluster, *node))).collect();
    for client in &mut of_channel {
        client.send("SUBSCRIBE news:1\r\n").expect("sent");
        receives(client, &["*3", "subscribe", "news:1", ":1"]);
    }
    for client in &mut of_pattern {
        client.send("PSUBSCRIBE news:*\r\n").expect("sent");
        receives(client, &[">3", "psubscribe", "news:*", ":1"]);
    }
    for (number, message) in [(1, "a"), (2, "b"), (3, "c")] {
        let mut publishing = connect(&cluster, number);
        // The subscriptions of this node alone: two clients of the channel, and two of the pattern.
        assert_eq!(publishing.ask(&format!("PUBLISH news:1 {message}")), ":4");
        for client in &mut of_channel {
            receives(client, &["*3", "message", "news:1", message]);
        }
        for client in &mut of_pattern {
            receives(client, &[">4", "pmessage", "news:*", "news:1", message]);
        }
        assert_eq!(publishing.ask_many("PUBSUB CHANNELS"), ["news:1"]);
        assert_eq!(publishing.ask_many("PUBSUB NUMSUB news:1 other"), ["news:1", ":2", "other", ":0"]);
        assert_eq!(publishing.ask("PUBSUB NUMPAT"), ":1");
    }
    // A transaction publishes once its writes are applied, on every node.
    let mut publishing = connect(&cluster, 2);
    let commands = "MULTI\r\nSET result done\r\nPUBLISH news:1 d\r\nEXEC\r\n";
    publishing.send(commands).expect("sent");
    receives(&mut publishing, &["+OK", "+QUEUED", "+QUEUED", "*2", "+OK", ":4"]);
    for client in &mut of_channel {
        receives(client, &["*3", "message", "news:1", "d"]);
    }
    for client in &mut of_pattern {
        receives(client, &[">4", "pmessage", "news:*", "news:1", "d"]);
        // In RESP3, a client that has subscribed sends what it likes.
        assert_eq!(client.ask("GET result"), "done");
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    const MESSAGES_MAX: usize = 1_000;
    let cluster = Cluster::start(3);
    cluster.await_newest_version();
    let (mut slow, mut publishing) = (connect(&cluster, 1), connect(&cluster, 1));
    slow.send("SUBSCRIBE c\r\n").expect("sent");
    receives(&mut slow, &["*3", "subscribe", "c", ":1"]);
    let publish = encoded(&["PUBLISH", "c", &"x".repeat(256 << 10)]);
    // The sockets hold a part of it.
    let sent = (0..MESSAGES_MAX).position(|_| {
        publishing.send(&publish).expect("sent");
        publishing.reply().expect("the count") == ":0"
    });
    assert!(sent.is_some_and(|sent| sent > 32), "closed after {sent:?} messages");
    // What had been sent arrives, and then the connection ends.
    let mut lines = 0;
    while slow.reply().is_ok() {
        lines += 1;
    }
    assert!(lines > 0);
    assert_eq!(publishing.ask("PING"), "+PONG");
}

#[test]
fn a_client_gets_and_sends_only_messages_of_channels_that_it_may_use() {
    let guarded = Guarded::start(3);
    let (token, _) = guarded.principal("app", &["read keys:app/", "write keys:app/"]);
    let (other, _) = guarded.principal("publisher", &["write keys:app/"]);
    let mut client = guarded.redis_as(2, &token);
    for (command, missing) in [
        ("SUBSCRIBE app/1 ops/1", "read keys:ops/1"),
        ("PSUBSCRIBE *", "read keys:"),
        ("PSUBSCRIBE ap?/*", "read keys:ap"),
        ("PUBLISH ops/1 x", "write keys:ops/1"),
        ("PUBSUB CHANNELS", "read keys:"),
        ("PUBSUB NUMSUB ops/1", "read keys:ops/1"),
    ] {
        let refused = client.ask(command);
        assert!(refused.starts_with("-NOPERM") && refused.contains(missing), "{command}: {refused}");
    }
    assert_eq!(client.ask("MULTI"), "+OK");
    assert!(client.ask("PUBLISH ops/1 x").starts_with("-NOPERM"));
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    assert_eq!(client.ask_many("SUBSCRIBE app/1"), ["subscribe", "app/1", ":1"]);
    assert_eq!(client.ask_many("PSUBSCRIBE app/*"), ["psubscribe", "app/*", ":2"]);
    let mut publishing = guarded.redis_as(1, &other);
    assert_eq!(publishing.ask("PUBLISH app/1 x"), ":0");
    receives(&mut client, &["*3", "message", "app/1", "x", "*4", "pmessage", "app/*", "app/1", "x"]);
    guarded.administer("PUT /v1/auth/roles/app", &json!({ "grants": ["write keys:app/"] }));
    // The node of the client applies the change in its own time.
    let mut second = guarded.redis_as(2, &token);
    eventually("node 2 has the change", || second.ask("GET app/1").starts_with("-NOPERM").then_some(()));
    // The first message ends the connection, and the client gets none of it.
    assert_eq!(publishing.ask("PUBLISH app/1 y"), ":0");
    let end = client.reply().map_err(|error| error.kind());
    assert_eq!(end, Err(io::ErrorKind::UnexpectedEof));
}
