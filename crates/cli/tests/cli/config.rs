//! The configuration centre end to end: the reference's container, all or nothing under `kill -9`,
//! watchers across a leader's death, and the command line.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::harness::client::TIMEOUT;
use crate::harness::reports::{Reporter, Reports, reports};
use crate::harness::shell::Shell;
use crate::harness::{Cluster, PAUSE, Response, eventually, tidelock};

pub fn post(cluster: &Cluster, node: usize, target: &str, body: &Value) -> Response {
    cluster.send(node, &format!("POST /api/namespaces/{target}"), &[], body.to_string().as_bytes())
}

/// Retries a change until it succeeds: when a leader dies, that may take a few attempts. Repeating
/// it has no effect.
pub fn post_through(cluster: &Cluster, node: usize, target: &str, body: &Value) -> u64 {
    eventually("a change goes through", || {
        let request = format!("POST /api/namespaces/{target}");
        let answer = cluster.try_send(node, &request, &[], body.to_string().as_bytes())?;
        (answer.status == 200).then(|| answer.json()["data"]["revision"].as_u64().expect("a revision"))
    })
}

#[test]
fn the_container_of_the_reference() {
    let cluster = Cluster::start(3);
    assert_eq!(post(&cluster, 1, "ns", &json!({})).status, 200);
    for (key, value, datatype) in [
        ("i", json!(123), 1),
        ("s", json!("string"), 2),
        ("f", json!(1.123), 3),
        ("b", json!(true), 4),
        ("l", json!([1, 2, 3]), 5),
        ("dict", json!({"df": 1.123, "di": 123, "ds": "string"}), 6),
    ] {
        let body = json!({"value": value, "datatype": datatype});
        assert_eq!(post(&cluster, 2, &format!("ns/pairs/{key}"), &body).status, 200);
    }
    let one = |key: &str, pair: &str| json!({"key": key, "fieldType": 1, "value": pair});
    let dict = json!({"b": "b", "dict": "dict", "f": "f", "i": "i", "s": "s"});
    let fields = json!({"fields": [
        one("f", "f"), one("i", "i"), {"key": "list_basic", "fieldType": 2, "value": ["i", "f", "i", "b"]},
        one("b", "b"), one("d", "dict"), {"key": "dict", "fieldType": 3, "value": dict},
    ]});
    assert_eq!(post(&cluster, 3, "ns/containers/container-1", &fields).status, 200);
    for node in cluster.numbers() {
        let names = cluster.get(node, "/api/namespaces?limit=1&offset=0&key=ns");
        assert_eq!((names.body.len(), names.json()["data"].clone()), (46, json!(["ns"])));
        assert_eq!(cluster.get(node, "/api/namespaces/ns/pairs?limit=20&offset=0").body.len(), 432);
        let container = cluster.get(node, "/api/namespaces/ns/containers/container-1");
        assert_eq!(container.body.len(), 1196);
        let shown = &container.json()["data"];
        let file = cluster.get(node, "/api/namespaces/ns/containers/container-1/dl?format=json").text();
        let document = file.strip_suffix('\n').expect("a line break at the end");
        assert_eq!(shown["checkSum"], sha256sum(document));
        let etag = format!("If-None-Match: {}", container.etag.expect("an entity tag"));
        let again = cluster.send(node, "GET /api/namespaces/ns/containers/container-1", &[&etag], b"");
        assert_eq!((again.status, again.body.len()), (304, 0));
    }
}

/// The output of the system tool of that name, as an independent reference.
fn sha256sum(text: &str) -> String {
    let mut child = std::process::Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum is installed");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).split(' ').next().expect("a checksum").to_owned()
}

/// 500 pairs with the same number.
fn generation(number: u64) -> Value {
    let changes: Vec<Value> =
        (0..500).map(|pair| json!({"pair": format!("p{pair:03}"), "value": number})).collect();
    json!({"changes": changes, "create": true, "author": number.to_string()})
}

#[test]
fn a_publish_of_500_changes_happens_or_does_not() {
    let mut cluster = Cluster::start(3);
    assert_eq!(post(&cluster, 1, "big/publish", &generation(1)).status, 200);
    let (over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(1));
    let addresses: Vec<SocketAddr> =
        cluster.numbers().iter().map(|&number| cluster.address(number)).collect();
    let attempted = thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut number = 1;
            while !over.load(Ordering::Relaxed) {
                number += 1;
                let body = generation(number).to_string();
                let address = addresses[number as usize % addresses.len()];
                if publish_once(address, &body) == Some(200) {
                    acknowledged.store(number, Ordering::Relaxed);
                }
            }
            number
        });
        for _ in 0..3 {
            let target = acknowledged.load(Ordering::Relaxed) + 5;
            eventually("publications go on", || {
                (acknowledged.load(Ordering::Relaxed) >= target).then_some(())
            });
            for number in cluster.numbers() {
                cluster.kill(number);
            }
            for number in cluster.numbers() {
                cluster.spawn(number);
            }
            for number in cluster.numbers() {
                cluster.wait_ready(number);
            }
        }
        over.store(true, Ordering::Relaxed);
        publisher.join().expect("a publisher")
    });
    let acknowledged = acknowledged.into_inner();
    for node in cluster.numbers() {
        let export = cluster.get(node, "/api/namespaces/big/export").json();
        let pairs = export["pairs"].as_array().expect("pairs");
        assert_eq!(pairs.len(), 500);
        let numbers: std::collections::BTreeSet<u64> =
            pairs.iter().map(|pair| pair["value"].as_u64().expect("a number")).collect();
        assert_eq!(numbers.len(), 1, "half a publication: {numbers:?}");
        let number = *numbers.first().expect("one");
        assert!((acknowledged..=attempted).contains(&number), "{acknowledged}..={attempted}: {number}");
        // Every revision that is kept is whole, too.
        let history = cluster.get(node, "/api/namespaces/big/history?limit=1000").json();
        for revision in history["data"]["revisions"].as_array().expect("revisions") {
            assert_eq!(revision["changes"].as_array().map(Vec::len), Some(500), "{}", revision["revision"]);
        }
    }
}

/// The status of one attempt, sent once.
fn publish_once(address: SocketAddr, body: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let head = format!(
        "POST /api/namespaces/big/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    line.split(' ').nth(1)?.parse().ok()
}

/// Watches container `c` of a namespace by server-sent events, over all nodes: when one dies, it
/// continues at the next one with the last id that it received. Sends every change, until the
/// receiver is dropped.
pub fn watch(addresses: Vec<SocketAddr>, namespace: &str, first: usize, told: Reporter<(u64, u64)>) {
    let (mut node, mut last) = (first, None);
    while told.is_received() {
        if let Err(Gone) = watch_once((addresses[node % addresses.len()], namespace), &mut last, &told) {
            return;
        }
        node += 1;
        thread::sleep(PAUSE);
    }
}

/// The receiver was dropped.
struct Gone;

fn watch_once(
    (address, namespace): (SocketAddr, &str),
    last: &mut Option<u64>,
    told: &Reporter<(u64, u64)>,
) -> Result<(), Gone> {
    let Ok(mut stream) = TcpStream::connect(address) else { return Ok(()) };
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let resume = last.map(|last| format!("last-event-id: {last}\r\n")).unwrap_or_default();
    let request = format!(
        "GET /api/namespaces/{namespace}/containers/c/watch HTTP/1.1\r\nhost: localhost\r\n{resume}\r\n"
    );
    if stream.write_all(request.as_bytes()).is_err() {
        return Ok(());
    }
    // Chunks contain whole events, and this reader ignores the lines with chunk lengths.
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return Ok(()) };
        assert_ne!(line, "event: gap", "history holds everything here");
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let data: Value = serde_json::from_str(data).expect("JSON");
        let revision = data["revision"].as_u64().expect("a revision");
        *last = Some(revision);
        if told.send((revision, data["data"]["a"].as_u64().expect("a number"))).is_err() {
            return Err(Gone);
        }
    }
    Ok(())
}

#[test]
fn watchers_miss_nothing_when_the_leader_dies() {
    let mut cluster = Cluster::start(3);
    let changes = json!([{"pair": "p", "value": 0},
        {"container": "c", "fields": [{"key": "a", "fieldType": 1, "value": "p"}]}]);
    let body = json!({"changes": changes, "create": true});
    assert_eq!(post(&cluster, 1, "ns/publish", &body).status, 200);
    assert_eq!(post(&cluster, 1, "ns/policy", &json!({"revisions": 10_000})).status, 200);
    let addresses: Vec<SocketAddr> =
        cluster.numbers().iter().map(|&number| cluster.address(number)).collect();
    let watchers: Vec<Reports<(u64, u64)>> = (0..6)
        .map(|first| {
            let (told, heard) = reports();
            let addresses = addresses.clone();
            thread::spawn(move || watch(addresses, "ns", first, told));
            heard
        })
        .collect();
    // Each watcher has begun before the first change.
    for heard in &watchers {
        assert_eq!(heard.recv_timeout(TIMEOUT).expect("the present state").1, 0);
    }
    let mut revisions = Vec::new();
    let chief = cluster.chief();
    let other = cluster.numbers().into_iter().find(|&number| number != chief).expect("another");
    for number in 1..=60u64 {
        if number == 20 {
            cluster.kill(chief);
        }
        if number == 40 {
            cluster.restart(chief);
        }
        revisions.push((post_through(&cluster, other, "ns/pairs/p", &json!({"value": number})), number));
    }
    for (watcher, heard) in watchers.iter().enumerate() {
        let told: Vec<(u64, u64)> =
            (0..revisions.len()).map(|_| heard.recv_timeout(TIMEOUT).expect("a change")).collect();
        assert_eq!(told, revisions, "watcher {watcher}: each change once, in order");
    }
}

#[test]
fn from_the_command_line() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let text = |arguments: &[&str]| String::from_utf8(shell.done(arguments)).expect("text");
    assert_eq!(text(&["config", "ns", "create", "shop", "--author", "ann"]), "revision 1\n");
    assert_eq!(text(&["config", "ns", "list"]), "shop\n");
    assert_eq!(text(&["config", "pair", "set", "shop", "timeout", "30"]), "revision 2\n");
    assert_eq!(
        text(&["config", "pair", "set", "shop", "timeout", "30"]),
        "nothing changed; still revision 2\n"
    );
    assert_eq!(text(&["config", "pair", "set", "shop", "zone", "west"]), "revision 3\n");
    let refused = shell.failed(&["config", "pair", "set", "shop", "zone", "west", "--type", "int"]);
    assert!(refused.contains("the value is a string, not an int"), "{refused}");
    assert_eq!(text(&["config", "pair", "get", "shop", "zone"]), "west\n");
    assert_eq!(text(&["config", "pair", "get", "shop", "timeout"]), "30\n");
    let fields = ["config", "container", "set", "shop", "app", "timeout=timeout", "zones=zone,"];
    assert_eq!(text(&fields), "revision 4\n");
    let got = ["config", "container", "get", "shop", "app"];
    assert_eq!(text(&got), "{\"timeout\":30,\"zones\":[\"west\"]}\n");
    assert_eq!(text(&[&got[..], &["--format", "yaml"]].concat()), "timeout: 30\nzones:\n- west\n");
    let used = shell.failed(&["config", "pair", "del", "shop", "zone"]);
    assert!(used.contains("pair \"zone\" is used by container \"app\""), "{used}");

    let refused = shell.failed(&["config", "pair", "set", "shop", "timeout", "30s"]);
    assert!(refused.contains("is an int, and would become a string") && refused.contains("--type string"));

    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let changes = file("changes.json");
    std::fs::write(&changes, r#"{"changes":[{"pair":"timeout","value":60},{"pair":"debug","value":true}]}"#)
        .expect("a file");
    let publish = ["config", "publish", "shop", &changes, "--message", "slower", "--expected", "4"];
    assert_eq!(text(&publish), "revision 5\n");
    assert!(shell.failed(&publish).contains("the namespace is at revision 5"));
    let diff = text(&["config", "diff", "shop", "app", "--from", "4"]);
    assert!(diff.contains("-  \"timeout\": 30,\n+  \"timeout\": 60,\n"), "{diff}");
    assert_eq!(shell.json(&["config", "diff", "shop", "app", "--from", "4"])["changes"][0]["after"], 60);
    let diff = text(&["config", "diff", "shop", "--from", "4", "--to", "5"]);
    assert!(diff.contains("+pair \"debug\" = true\n") && diff.contains("-pair \"timeout\" = 30\n"), "{diff}");

    assert_eq!(text(&["config", "rollback", "shop", "4"]), "revision 6\n");
    assert_eq!(text(&got), "{\"timeout\":30,\"zones\":[\"west\"]}\n");
    assert_eq!(text(&["config", "rollback", "shop", "5"]), "revision 7\n", "a rollback, taken back");
    assert_eq!(text(&got), "{\"timeout\":60,\"zones\":[\"west\"]}\n");
    assert_eq!(text(&["config", "rollback", "shop", "2", "--pair", "timeout"]), "revision 8\n");
    let history = text(&["config", "history", "shop"]);
    assert!(history.contains("rollback to 4") && history.contains("slower"), "{history}");
    assert_eq!(
        shell.json(&["config", "history", "shop", "--container", "app"])["revisions"][0]["revision"],
        4
    );

    let watched =
        text(&["config", "watch", "shop", "app", "--after", "4", "--count", "4", "--output", "json"]);
    let revisions: Vec<Value> = watched
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["revision"].take())
        .collect();
    assert_eq!(revisions, [5, 6, 7, 8]);
    export_and_import(&shell);
}

/// Copies the namespace `shop` and its container `app` to the namespace `copy`, and deletes that.
fn export_and_import(shell: &Shell) {
    let text = |arguments: &[&str]| String::from_utf8(shell.done(arguments)).expect("text");
    let got = ["config", "container", "get", "shop", "app"];
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let (exported, document) = (file("shop.yaml"), file("app.properties"));
    shell.done(&["config", "export", "shop", "--format", "yaml", "--file", &exported]);
    assert_eq!(text(&["config", "import", "copy", &exported]), "revision 1\n");
    assert_eq!(text(&["config", "container", "get", "copy", "app"]), text(&got));
    shell.done(&[
        "config",
        "export",
        "shop",
        "--container",
        "app",
        "--format",
        "properties",
        "--file",
        &document,
    ]);
    assert_eq!(text(&["config", "import", "copy", &document, "--container", "again"]), "revision 2\n");
    assert_eq!(text(&["config", "container", "get", "copy", "again"]), text(&got));
    assert!(text(&["config", "container", "list", "copy"]).contains("again  "));
    assert!(text(&["config", "ns", "info", "copy"]).contains("containers   2"));
    assert_eq!(text(&["config", "ns", "policy", "copy", "--revisions", "5"]), "revision 3\n");
    assert!(shell.failed(&["config", "ns", "delete", "copy"]).contains("force"));
    assert_eq!(text(&["config", "ns", "delete", "copy", "--force"]), "revision 3\n");
}

#[test]
fn datatypes_change_only_when_that_is_stated() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let text = |arguments: &[&str]| String::from_utf8(shell.done(arguments)).expect("text");
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("a file");
        path.to_str().expect("text").to_owned()
    };
    shell.done(&["config", "ns", "create", "ns"]);
    // A version such as `1.10` is not a number.
    shell.done(&["config", "pair", "set", "ns", "version", "1.10"]);
    assert_eq!(text(&["config", "pair", "get", "ns", "version"]), "1.10\n");
    shell.done(&["config", "pair", "set", "ns", "timeout", "30"]);
    shell.done(&["config", "pair", "set", "ns", "timeout", "30s", "--type", "string"]);
    shell.done(&["config", "container", "set", "ns", "app", "timeout=timeout"]);

    let publication = file("changes.json", r#"{"changes":[{"pair":"timeout","value":30}]}"#);
    let publish = ["config", "publish", "ns", &publication];
    assert!(shell.failed(&publish).contains("is a string, and would become an int"));
    shell.done(&[&publish[..], &["--retype"]].concat());
    let set = ["config", "container", "set", "ns", "app", "timeout=version"];
    assert!(shell.failed(&set).contains("field \"timeout\" of container \"app\" is an int"));
    shell.done(&[&set[..], &["--retype"]].concat());

    let document = file("app.yaml", "timeout: 1.50\n");
    let import = ["config", "import", "ns", &document, "--container", "app"];
    assert!(shell.failed(&import).contains("would become a float"));
    let mut command = shell.command(&[&import[..], &["--retype"]].concat());
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "note: line 1: 1.50 was read as the float 1.5; put it in quotes to keep the text\n"
    );
    let without = shell.failed(&["config", "import", "ns", &document]);
    assert!(without.contains("--container KEY"), "{without}");
}

#[test]
fn one_field_of_a_container_is_added_replaced_and_removed() {
    // Namespaces that inherit share a hash tag.
    const SHOP: &str = "{shop}";
    const COPY: &str = "{shop}/copy";
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let text = |arguments: &[&str]| String::from_utf8(shell.done(arguments)).expect("text");
    let edit = |arguments: &[&str]| text(&[&["config", "container", "edit"], arguments].concat());
    let document = |namespace: &str| text(&["config", "container", "get", namespace, "app"]);
    shell.done(&["config", "ns", "create", SHOP]);
    for (key, value) in [("timeout", "30"), ("zone", "west"), ("slow", "90")] {
        shell.done(&["config", "pair", "set", SHOP, key, value]);
    }
    shell.done(&["config", "container", "set", SHOP, "app", "timeout=timeout", "zones=zone,"]);
    assert_eq!(edit(&[SHOP, "app", "region=name:zone"]), "revision 6\n");
    assert_eq!(document(SHOP), "{\"region\":{\"name\":\"west\"},\"timeout\":30,\"zones\":[\"west\"]}\n");
    assert_eq!(
        edit(&[SHOP, "app", "timeout=slow", "--remove", "region", "--remove", "zones"]),
        "revision 7\n"
    );
    assert_eq!(document(SHOP), "{\"timeout\":90}\n");
    assert_eq!(edit(&[SHOP, "app", "timeout=slow"]), "nothing changed; still revision 7\n");

    let unknown = shell.run(&["config", "container", "edit", SHOP, "app", "--remove", "zone"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let missing = shell.run(&["config", "container", "edit", SHOP, "none", "a=zone"]);
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    let stale = shell.run(&["config", "container", "edit", SHOP, "app", "a=zone", "--expected", "6"]);
    assert_eq!(stale.status.code(), Some(4), "{stale:?}");

    shell.done(&["config", "ns", "create", COPY]);
    shell.done(&["config", "ns", "parents", COPY, SHOP]);
    let own = shell.run(&["config", "container", "edit", COPY, "app", "zone=zone"]);
    let note = String::from_utf8_lossy(&own.stderr);
    assert!(
        own.status.success()
            && note.contains("{shop}/copy has fields of its own now, instead of those of {shop}"),
        "{own:?}"
    );
    assert_eq!(document(COPY), "{\"timeout\":90,\"zone\":\"west\"}\n");
    assert_eq!(document(SHOP), "{\"timeout\":90}\n");
}

/// Every text that must not become a number, set as it is, in a list and in a dict.
#[test]
fn texts_stay_texts() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    shell.done(&["config", "ns", "create", "ns"]);
    for value in ["1.10", "7e4", "01234", "1e10", "0x1F", "1_000", "+5", "-0", "yes", "9223372036854775808"] {
        let quoted = Value::from(value).to_string();
        let (list, dict) = (format!("[{quoted}]"), format!("{{\"a\":{quoted}}}"));
        for (written, shown) in [(value, quoted.as_str()), (&list, &list), (&dict, &dict)] {
            shell.done(&["config", "pair", "set", "ns", "p", written]);
            assert_eq!(shell.json(&["config", "pair", "get", "ns", "p"])["value"].to_string(), shown);
            shell.done(&["config", "pair", "del", "ns", "p"]);
        }
    }
    // JSON's own rules: what they change is reported before it is done.
    let output = shell.run(&["config", "pair", "set", "ns", "p", "[1.10,7e4]", "--dry-run"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "note: line 1: 1.10 was read as the float 1.1; put it in quotes to keep the text\n\
         note: line 1: 7e4 was read as the float 70000.0; put it in quotes to keep the text\n"
    );
    assert!(shell.failed(&["config", "pair", "get", "ns", "p"]).contains("there is no pair"));
}

#[test]
fn dry_runs_show_what_would_change() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let text = |arguments: &[&str]| String::from_utf8(shell.done(arguments)).expect("text");
    shell.done(&["config", "ns", "create", "ns"]);
    shell.done(&["config", "pair", "set", "ns", "timeout", "30"]);
    shell.done(&["config", "container", "set", "ns", "app", "timeout=timeout"]);
    let set = ["config", "pair", "set", "ns", "timeout", "60", "--dry-run"];
    let expected = "--- app at revision 3\n+++ app after the change\n@@ -1,3 +1,3 @@\n {\n\
        -  \"timeout\": 30\n+  \"timeout\": 60\n }\n\
        dry run: would be the next revision after 3: ~timeout (30 -> 60)\n";
    // Any node answers, also one that does not lead the shard.
    for node in cluster.numbers() {
        let output = Shell::by_way_of(&cluster, &[node]).done(&set);
        assert_eq!(String::from_utf8_lossy(&output), expected);
    }
    let same = ["config", "pair", "set", "ns", "timeout", "30", "--dry-run"];
    assert_eq!(text(&same), "dry run: nothing would change at revision 3\n");
    let refused = shell.failed(&["config", "pair", "del", "ns", "timeout", "--dry-run"]);
    assert!(refused.contains("pair \"timeout\" is used by container \"app\""), "{refused}");

    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("app.yaml");
    std::fs::write(&file, "timeout: 30\nversion: 1.10\n").expect("a file");
    let file = file.to_str().expect("text");
    let output = shell.run(&["config", "import", "ns", file, "--container", "app", "--dry-run"]);
    let (shown, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        shown.contains("+  \"version\": 1.1\n") && shown.ends_with("~container app (+version)\n"),
        "{shown}"
    );
    assert_eq!(notes, "note: line 2: 1.10 was read as the float 1.1; put it in quotes to keep the text\n");

    let deletion = text(&["config", "ns", "delete", "ns", "--force", "--dry-run"]);
    assert!(deletion.ends_with("after 3: -timeout (30) -container app\n"), "{deletion}");
    let preview = shell.json(&["config", "rollback", "ns", "2", "--dry-run"]);
    assert_eq!(preview["documents"], json!([{"container": "app", "before": {"timeout": 30}, "after": null}]));
    assert_eq!(shell.json(&["config", "ns", "info", "ns"])["revision"], 3);
}

#[test]
fn schemas_hold_values_and_documents() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let text = |arguments: &[&str]| String::from_utf8(shell.done(arguments)).expect("text");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("schema.json");
    std::fs::write(&file, r#"{"properties":{"timeout":{"maximum":300}}}"#).expect("a file");
    let file = file.to_str().expect("text");
    shell.done(&["config", "ns", "create", "ns"]);
    shell.done(&["config", "pair", "set", "ns", "timeout", "30"]);
    shell.done(&["config", "container", "set", "ns", "app", "timeout=timeout"]);
    let schema = ["ns", "container", "app"];
    let with =
        |verb: &'static str, more: &[&'static str]| [&["config", "schema", verb], &schema[..], more].concat();
    assert_eq!(text(&with("get", &[])), "null\n");
    assert_eq!(text(&["config", "schema", "set", "ns", "container", "app", file]), "revision 4\n");
    assert_eq!(shell.json(&with("get", &[])), json!({"properties": {"timeout": {"maximum": 300}}}));
    let refused = shell.failed(&["config", "pair", "set", "ns", "timeout", "301"]);
    let expected =
        "container \"app\" would violate its schema at \"timeout\": maximum 300; nothing was changed";
    assert!(refused.contains(expected), "{refused}");
    assert_eq!(text(&with("del", &["--message", "why"])), "revision 5\n");
    assert_eq!(text(&["config", "pair", "set", "ns", "timeout", "301"]), "revision 6\n");

    let set = |value: &'static str, more: &[&'static str]| {
        [&["config", "pair", "set", "ns", "p", value], more].concat()
    };
    shell.done(&set("30s", &["--type", "duration"]));
    assert!(shell.failed(&set("half an hour", &[])).contains("format duration"));
    shell.done(&set("1h30m", &[]));
    shell.done(&set("10MiB", &["--type", "bytes"]));
    assert!(shell.failed(&set("10MB and more", &[])).contains("format bytes"));
    shell.done(&set("dev", &["--type", "enum", "--values", "dev,prod"]));
    assert!(shell.failed(&set("test", &[])).contains("enum [\"dev\",\"prod\"]"));
    shell.done(&set("prod", &[]));
    assert_eq!(shell.run(&set("prod", &["--type", "enum"])).status.code(), Some(2), "no values");
}

#[test]
fn a_backup_brings_configuration_back() {
    let (old, new) = (Cluster::start(1), Cluster::start(1));
    let shell = Shell::of(&old);
    for namespace in ["a", "b", "c", "d"] {
        shell.done(&["config", "ns", "create", namespace]);
        for number in ["1", "2", "3"] {
            shell.done(&["config", "pair", "set", namespace, "p", number]);
        }
        shell.done(&["config", "container", "set", namespace, "c", "f=p"]);
        shell.done(&["config", "pair", "set", namespace, "wait", "30s", "--type", "duration"]);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("backup").to_str().expect("text").to_owned();
    shell.done(&["backup", "save", "--out", &file]);
    let restored = Shell::of(&new);
    restored.done(&["backup", "restore", &file]);
    restored.done(&["backup", "restore", &file]);
    for namespace in ["a", "b", "c", "d"] {
        let path = format!("/api/namespaces/{namespace}/export");
        assert_eq!(new.get(1, &path).body, old.get(1, &path).body);
        let path = format!("/api/namespaces/{namespace}/history?content=true");
        assert_eq!(new.get(1, &path).body, old.get(1, &path).body);
        assert_eq!(
            restored.done(&["config", "container", "get", namespace, "c", "--revision", "5"]),
            b"{\"f\":3}\n"
        );
        // Later revisions are above all that the old cluster may have used since.
        let revision =
            restored.json(&["config", "rollback", namespace, "2", "--pair", "p"])["revision"].as_u64();
        assert!(revision > Some(1 << 20), "{revision:?}");
    }
    assert!(restored.failed(&["backup", "restore", &file]).contains("fresh cluster"));
    let mut command = tidelock();
    command.args(["config", "container", "get", "a", "c"]).env("TIDELOCK_URL", new.url(1, ""));
    assert_eq!(command.output().expect("it runs").stdout, b"{\"f\":1}\n");
}
