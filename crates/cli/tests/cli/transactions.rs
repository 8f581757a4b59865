//! Transactions over HTTP and by `tidelock txn`, at every node of a cluster.

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::harness::Cluster;
use crate::harness::shell::Shell;

/// Gives a transaction to `tidelock txn` by its standard input.
fn piped(shell: &Shell, arguments: &[&str], transaction: &Value) -> Output {
    let mut command = shell.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(transaction.to_string().as_bytes()).expect("it reads all");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn every_node_executes_transactions() {
    let cluster = Cluster::start(3);
    let state = "{order:7}state";
    let pay = |from: &str, to: &str| {
        json!({
            "if": [{ "key": state, "val": from }],
            "then": [{ "put": { "key": state, "val": to } }, { "put": { "key": "{order:7}by", "val": to } }],
            "else": [{ "get": { "key": state } }],
        })
    };
    Shell::of(&cluster).done(&["kv", "put", state, "0"]);
    for (step, number) in cluster.numbers().into_iter().enumerate() {
        let shell = Shell::by_way_of(&cluster, &[number]);
        let (from, to) = (step.to_string(), (step + 1).to_string());
        let done = piped(&shell, &["txn"], &pay(&from, &to));
        assert!(done.status.success(), "{done:?}");
        let done = answer(&done);
        assert_eq!(done["succeeded"], true);
        assert_eq!(done["results"][0]["put"]["created"], false);
        assert_eq!(done["results"][1]["put"]["created"], step == 0);

        // The state is another one by now.
        let other = piped(&shell, &["txn", "-", "--output", "json"], &pay(&from, &to));
        assert_eq!(other.status.code(), Some(4));
        assert!(String::from_utf8_lossy(&other.stderr).contains("`else` happened"), "{other:?}");
        let (other, version) = (answer(&other), &done["results"][0]["put"]["ver"]);
        let read = json!([{ "get": { "key": state, "ver": version, "val": to } }]);
        assert_eq!(other, json!({ "succeeded": false, "results": read }));
        assert_eq!(shell.done(&["kv", "get", "{order:7}by"]), to.as_bytes());
    }
}

#[test]
fn transactions_come_from_files_and_mistakes_are_named() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("transaction.json");
    let file = path.to_str().expect("a path");
    let failed = |transaction: Value| {
        std::fs::write(&path, transaction.to_string()).expect("a file");
        shell.failed(&["txn", file])
    };
    let get = |key: &str| json!({ "get": { "key": key } });
    let crossing = failed(json!({ "then": [get("{a}1"), get("{b}1")] }));
    assert!(crossing.contains("409") && crossing.contains("\"{b}1\" has the tag \"b\""), "{crossing}");
    let misspelt = failed(json!({ "them": [] }));
    assert!(misspelt.contains("400") && misspelt.contains("unknown field `them`"), "{misspelt}");
    std::fs::write(&path, json!({ "then": [get("{a}1")] }).to_string()).expect("a file");
    let read: Value = serde_json::from_slice(&shell.done(&["txn", file])).expect("JSON");
    assert_eq!(read, json!({ "succeeded": true, "results": [{ "get": { "key": "{a}1", "ver": 0 } }] }));
    assert!(shell.failed(&["txn", "/does/not/exist"]).contains("/does/not/exist"));
}

/// A repetition is answered with the first outcome by every node, also after all have restarted.
#[test]
fn a_transaction_with_an_id_happens_once() {
    let mut cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let add = json!({
        "id": "order-7",
        "if": [{ "key": "{t}a", "exists": false }],
        "then": [{ "put": { "key": "{t}a", "val": "x" } }, { "get": { "key": "{t}a" } }],
    });
    let first = piped(&shell, &["txn"], &add);
    assert!(first.status.success(), "{first:?}");
    for round in 0..2 {
        for number in cluster.numbers() {
            let shell = Shell::by_way_of(&cluster, &[number]);
            let repeated = piped(&shell, &["txn"], &add);
            assert_eq!(repeated.stdout, first.stdout, "{round}: {repeated:?}");
        }
        for number in cluster.numbers() {
            assert_eq!(cluster.terminate(number).code(), Some(0));
        }
        for number in cluster.numbers() {
            cluster.spawn(number);
        }
        for number in cluster.numbers() {
            cluster.wait_ready(number);
        }
    }
    let other = json!({ "id": "order-7", "then": [{ "delete": { "key": "{t}a" } }] });
    let refused = piped(&Shell::of(&cluster), &["txn"], &other);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has this id"), "{refused:?}");
}
