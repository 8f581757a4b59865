//! Inheritance, review and canaries in a cluster: what other nodes show, who may do what, and what
//! stays when all nodes are killed.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::config::post;
use crate::harness::client::TIMEOUT;
use crate::harness::guarded::Guarded;
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually};

fn done(cluster: &Cluster, node: usize, target: &str, body: &Value) -> u64 {
    let answer = post(cluster, node, target, body);
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    answer.json()["data"]["revision"].as_u64().expect("a revision")
}

/// The document of the container `app` as a node shows it to a label.
fn document(cluster: &Cluster, node: usize, namespace: &str, label: &str) -> Value {
    let answer = cluster.get(node, &format!("/api/namespaces/{namespace}/containers/app/dl?label={label}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// A stream of events of the container `app`.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(cluster: &Cluster, node: usize, namespace: &str, label: &str) -> Events {
        let mut stream = TcpStream::connect(cluster.address(node)).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let target = format!("/api/namespaces/{namespace}/containers/app/watch?label={label}");
        let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is sent");
        Events(BufReader::new(stream))
    }

    /// Revision and document of the next event.
    fn next(&mut self) -> (u64, Value) {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("an event in time") > 0, "the stream ended");
            if let Some(data) = line.strip_prefix("data: ") {
                let event: Value = serde_json::from_str(data).expect("JSON");
                return (event["revision"].as_u64().expect("a revision"), event["data"].clone());
            }
        }
    }
}

/// `{s}base` with a container, and `{s}prod` that inherits from `{s}stage`, which inherits from it.
fn family(cluster: &Cluster) {
    let app = json!({"container": "app", "fields": [{"key": "a", "value": "a"}, {"key": "b", "value": "b"}]});
    let changes = json!([{"pair": "a", "value": 1}, {"pair": "b", "value": 1}, app]);
    done(cluster, 1, "%7Bs%7Dbase/publish", &json!({"create": true, "changes": changes}));
    for (name, parent) in [("stage", "base"), ("prod", "stage")] {
        done(cluster, 2, &format!("%7Bs%7D{name}"), &json!({}));
        done(cluster, 3, &format!("%7Bs%7D{name}/parents"), &json!({"parents": [format!("{{s}}{parent}")]}));
    }
    done(cluster, 1, "%7Bs%7Dprod/pairs/b", &json!({"value": 2}));
}

#[test]
fn watchers_of_a_grandchild_receive_each_change_once_and_all_survives_a_kill() {
    let mut cluster = Cluster::start(3);
    cluster.await_newest_version();
    family(&cluster);
    let mut events = Events::open(&cluster, 3, "%7Bs%7Dprod", "");
    assert_eq!(events.next(), (3, json!({"a": 1, "b": 2})));
    for number in 2..6 {
        done(&cluster, 1, "%7Bs%7Dbase/pairs/a", &json!({"value": number}));
        // A pair that the grandchild sets changes nothing for it.
        done(&cluster, 2, "%7Bs%7Dbase/pairs/b", &json!({"value": number + 10}));
        assert_eq!(events.next(), (2 + number, json!({"a": number, "b": 2})));
    }
    drop(events);
    cluster.numbers().into_iter().for_each(|node| cluster.kill(node));
    cluster.numbers().into_iter().for_each(|node| cluster.spawn(node));
    cluster.numbers().into_iter().for_each(|node| cluster.wait_ready(node));
    eventually("the cluster answers again", || {
        let answer = cluster.try_send(1, "GET /api/namespaces/%7Bs%7Dprod/inheritance", &[], b"")?;
        (answer.status == 200).then_some(())
    });
    done(&cluster, 2, "%7Bs%7Dbase/pairs/a", &json!({"value": 9}));
    for node in cluster.numbers() {
        assert_eq!(document(&cluster, node, "%7Bs%7Dprod", ""), json!({"a": 9, "b": 2}));
    }
}

#[test]
fn a_canary_reaches_its_labels_at_every_node_and_is_taken_back() {
    let mut cluster = Cluster::start(3);
    cluster.await_newest_version();
    family(&cluster);
    let (mut early, mut late) = (
        Events::open(&cluster, 2, "%7Bs%7Dbase", "web-1"),
        Events::open(&cluster, 3, "%7Bs%7Dbase", "web-2"),
    );
    assert_eq!((early.next(), late.next()), ((1, json!({"a": 1, "b": 1})), (1, json!({"a": 1, "b": 1}))));
    done(&cluster, 1, "%7Bs%7Dbase/pairs/a?draft=d", &json!({"value": 7}));
    assert_eq!(done(&cluster, 2, "%7Bs%7Dbase/drafts/d/canary", &json!({"labels": ["web-1"]})), 2);
    assert_eq!(early.next(), (2, json!({"a": 7, "b": 1})));
    for node in cluster.numbers() {
        assert_eq!(document(&cluster, node, "%7Bs%7Dbase", "web-1"), json!({"a": 7, "b": 1}));
        assert_eq!(document(&cluster, node, "%7Bs%7Dbase", "web-2"), json!({"a": 1, "b": 1}));
        assert_eq!(document(&cluster, node, "%7Bs%7Dprod", "web-1"), json!({"a": 1, "b": 2}));
    }
    // It is there after a restart, too.
    cluster.kill(1);
    cluster.restart(1);
    eventually("node 1 answers again", || {
        let answer = cluster.try_send(1, "GET /api/namespaces/%7Bs%7Dbase", &[], b"")?;
        (answer.status == 200).then_some(())
    });
    assert_eq!(document(&cluster, 1, "%7Bs%7Dbase", "web-1"), json!({"a": 7, "b": 1}));
    let withdrawn = eventually("the canary is withdrawn", || {
        let request = "DELETE /api/namespaces/%7Bs%7Dbase/canary";
        let answer = cluster.try_send(2, request, &[], b"")?;
        [200, 404].contains(&answer.status).then_some(answer)
    });
    assert_eq!(withdrawn.status, 200, "{}", withdrawn.text());
    assert_eq!(early.next(), (3, json!({"a": 1, "b": 1})));
    assert_eq!(done(&cluster, 3, "%7Bs%7Dbase/drafts/d/publish", &json!({})), 4);
    assert_eq!((early.next(), late.next()), ((4, json!({"a": 7, "b": 1})), (4, json!({"a": 7, "b": 1}))));
}

#[test]
fn a_second_principal_approves_and_a_parent_must_be_readable() {
    let guarded = Guarded::start(3);
    let (ann, _) = guarded.principal("ann", &["read config:shop", "write config:shop"]);
    let (bob, _) = guarded.principal("bob", &["read config:shop", "write config:shop"]);
    let (eve, _) = guarded.principal("eve", &["read config:shop", "write config:{base}own"]);
    let ask = |node: usize, token: &str, request: &str, body: Value| {
        guarded.send(node, request, token, body.to_string().as_bytes())
    };
    assert_eq!(
        ask(1, &ann, "POST /api/namespaces/shop/pairs/p?create=true", json!({"value": 1})).status,
        200
    );
    let protect = || json!({"protected": true});
    assert_eq!(ask(2, &ann, "POST /api/namespaces/shop/protection", protect()).status, 403);
    guarded.administer(
        "PUT /v1/auth/roles/keeper",
        &json!({ "grants": ["write config:shop", "cluster:admin"] }),
    );
    guarded.administer("PUT /v1/auth/principals/root", &json!({ "roles": ["admin", "keeper"] }));
    assert_eq!(ask(1, &guarded.admin, "POST /api/namespaces/shop/protection", protect()).status, 200);
    assert_eq!(ask(3, &bob, "POST /api/namespaces/shop/pairs/p", json!({"value": 2})).status, 409);
    assert_eq!(ask(3, &bob, "DELETE /api/namespaces/shop?force=true", json!({})).status, 409);
    // The author is the principal, whatever name the request states.
    let edited = ask(1, &ann, "POST /api/namespaces/shop/pairs/p?draft=d&author=bob", json!({"value": 2}));
    assert_eq!(edited.status, 200, "{}", edited.text());
    let approve =
        |token: &str| ask(2, token, "POST /api/namespaces/shop/drafts/d/approve", json!({"edits": 1}));
    let own = ask(2, &ann, "POST /api/namespaces/shop/drafts/d/approve?author=bob", json!({"edits": 1}));
    assert_eq!((own.status, own.json()["errcode"].clone()), (400, json!(40008)), "{}", own.text());
    assert_eq!(ask(1, &ann, "POST /api/namespaces/shop/drafts/d/publish", json!({})).status, 409);
    assert_eq!(approve(&eve).status, 403);
    assert_eq!(approve(&bob).status, 200);
    assert_eq!(ask(3, &ann, "POST /api/namespaces/shop/drafts/d/publish", json!({})).status, 200);
    let history = ask(2, &ann, "GET /api/namespaces/shop/history?limit=1", json!({})).json();
    let newest = &history["data"]["revisions"][0];
    assert_eq!((&newest["author"], &newest["approved_by"]), (&json!("ann"), &json!(["bob"])));
    // A reader of the child would read the parent.
    guarded
        .administer("PUT /v1/auth/roles/keeper", &json!({ "grants": ["write config:*", "read config:*"] }));
    let create = ask(1, &guarded.admin, "POST /api/namespaces/%7Bbase%7Down", json!({}));
    assert_eq!(create.status, 200, "{}", create.text());
    let parents = json!({"parents": ["{base}secret"]});
    let refused = ask(1, &eve, "POST /api/namespaces/%7Bbase%7Down/parents", parents);
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(
        refused.text().contains("read config:%7Bbase%7Dsecret")
            || refused.text().contains("read config:{base}secret"),
        "{}",
        refused.text()
    );
}

#[test]
fn protecting_a_namespace_names_parents_that_are_not_protected() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    for name in ["{s}base", "{s}other", "{s}prod"] {
        shell.done(&["config", "ns", "create", name]);
    }
    shell.done(&["config", "ns", "parents", "{s}prod", "{s}base", "{s}other"]);
    let said = |name: &str| {
        let output = shell.run(&["config", "ns", "protect", name]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    assert_eq!(said("{s}other"), "");
    assert_eq!(said("{s}prod"), "note: changes of {s}base, which is not protected, arrive here at once\n");
}
