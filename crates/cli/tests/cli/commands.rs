//! `tidelock kv` and `tidelock cluster`, as a user and as a script run them.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually, tidelock};

#[test]
fn put_get_delete() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    assert!(shell.failed(&["kv", "get", "k"]).contains("not found"));
    let failed = shell.run(&["kv", "get", "k", "--output", "json"]);
    assert!(failed.stdout.is_empty(), "{failed:?}");
    assert!(String::from_utf8_lossy(&failed.stderr).starts_with("{\"error\":\"not-found\","), "{failed:?}");
    assert!(shell.failed(&["kv", "del", "k"]).contains("not found"));
    let text = String::from_utf8(shell.done(&["kv", "put", "k", "one"])).unwrap();
    assert!(text.starts_with("created, version "), "{text}");
    assert_eq!(shell.done(&["kv", "get", "k"]), b"one", "into a pipe go exactly the bytes");
    assert_eq!(shell.done(&["kv", "get", "k", "--stale"]), b"one");
    let text = String::from_utf8(shell.done(&["kv", "put", "k", "two"])).unwrap();
    assert!(text.starts_with("replaced, version "), "{text}");
    assert_eq!(shell.done(&["kv", "del", "k"]), b"deleted\n");
    assert!(shell.failed(&["kv", "get", "k"]).contains("not found"));
}

#[test]
fn json_and_versions() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let created = shell.json(&["kv", "put", "k", "one", "--if-absent"]);
    let version = created["ver"].as_u64().expect("a version");
    assert_eq!(created, json!({"key": "k", "ver": version, "created": true}));
    assert_eq!(shell.json(&["kv", "get", "k"]), json!({"key": "k", "ver": version, "val": "one"}));
    let message = shell.failed(&["kv", "put", "k", "two", "--if-absent"]);
    assert!(message.contains("412") && message.contains(&version.to_string()), "{message}");
    let replaced = shell.json(&["kv", "put", "k", "two", "--if-version", &version.to_string()]);
    assert_eq!(replaced["created"], false);
    assert!(replaced["ver"].as_u64() > Some(version));
    shell.failed(&["kv", "put", "k", "three", "--if-version", &version.to_string()]);
    shell.failed(&["kv", "del", "k", "--if-version", &version.to_string()]);
    assert_eq!(shell.done(&["kv", "get", "k"]), b"two");
    let current = replaced["ver"].to_string();
    assert_eq!(
        shell.json(&["kv", "del", "k", "--if-version", &current]),
        json!({"key": "k", "deleted": true})
    );
}

#[test]
fn bytes_through_files_and_pipes() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("value");
    std::fs::write(&file, &bytes).expect("a file");
    shell.done(&["kv", "put", "from-file", "--file", file.to_str().expect("a path")]);
    assert!(shell.done(&["kv", "get", "from-file"]) == bytes);
    assert!(shell.done(&["kv", "get", "from-file", "--raw"]) == bytes);

    let mut put = shell.command(&["kv", "put", "from pipe/ü%", "-"]);
    let mut put = put.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the binary starts");
    put.stdin.take().expect("a pipe").write_all(&bytes).expect("it reads all");
    assert!(put.wait().expect("it ends").success());
    assert!(shell.done(&["kv", "get", "from pipe/ü%"]) == bytes);
    assert!(cluster.get(1, "/v1/keys/from%20pipe/%C3%BC%25").body == bytes, "the key is what was typed");
    assert!(shell.json(&["kv", "get", "from-file"]).get("val_b64").is_some());

    let missing = shell.failed(&["kv", "put", "k", "--file", "/does/not/exist"]);
    assert!(missing.contains("/does/not/exist"), "{missing}");
    let large = directory.path().join("large");
    std::fs::write(&large, vec![0; (1 << 20) + 1]).expect("a file");
    let refused = shell.failed(&["kv", "put", "k", "--file", large.to_str().expect("a path")]);
    assert!(refused.contains("413"), "{refused}");
}

#[test]
fn lists() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    for number in 0..5 {
        shell.done(&["kv", "put", &format!("a/{number}"), "v"]);
    }
    shell.done(&["kv", "put", "b", "v"]);
    assert_eq!(shell.done(&["kv", "list", "a/", "--keys"]), b"a/0\na/1\na/2\na/3\na/4\n");
    assert_eq!(shell.done(&["kv", "list", "--keys", "--after", "a/3"]), b"a/4\nb\n");
    assert_eq!(
        shell.done(&["kv", "list", "--keys", "--limit", "2", "--all"]),
        b"a/0\na/1\na/2\na/3\na/4\nb\n"
    );
    let first = shell.run(&["kv", "list", "--keys", "--limit", "2"]);
    assert_eq!(first.stdout, b"a/0\na/1\n");
    assert!(String::from_utf8_lossy(&first.stderr).contains("--after 'a/1'"));
    let table = String::from_utf8(shell.done(&["kv", "list", "b"])).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["KEY", "VERSION", "VALUE"]);
    assert_eq!((rows[1][0], rows[1][2]), ("b", "v"));
    let pages = shell.done(&["kv", "list", "--limit", "4", "--all", "--output", "json"]);
    let pages: Vec<Value> =
        String::from_utf8(pages).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(pages.iter().map(|page| page["items"].as_array().unwrap().len()).collect::<Vec<_>>(), [4, 2]);
}

#[test]
fn nodes_that_are_down_are_passed_over() {
    let mut cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    shell.done(&["kv", "put", "k", "one"]);
    cluster.kill(1);
    // An election may still be in progress at node 2: then every node of the list refuses.
    eventually("a write by way of the next node", || {
        shell.run(&["kv", "put", "k", "two"]).status.success().then_some(())
    });
    assert_eq!(shell.done(&["kv", "get", "k"]), b"two");
    cluster.kill(2);
    cluster.kill(3);
    let message = shell.failed(&["kv", "put", "k", "three"]);
    assert!(message.contains("no node answers; nothing was done"), "{message}");
    for number in cluster.numbers() {
        assert!(message.contains(&cluster.url(number, "")), "{message}");
    }
}

#[test]
fn cluster_status() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let status = eventually("every host is registered and connected", || {
        let status = shell.json(&["cluster", "status"]);
        let hosts = status["hosts"].as_array().expect("hosts");
        let known = |host: &Value| host["connected"] == true && host["http_address"] != "";
        (hosts.len() == 3 && hosts.iter().all(known)).then_some(status)
    });
    let shards = status["shards"].as_array().expect("shards");
    assert_eq!(shards.len(), 5, "the registry and four shards");
    assert_eq!(shards.iter().filter_map(|shard| shard["slots"].as_u64()).sum::<u64>(), 16_384);
    assert_eq!(status["replicas"].as_array().expect("replicas").len(), 15);

    let text = String::from_utf8(shell.done(&["cluster", "status"])).unwrap();
    for number in cluster.numbers() {
        assert!(text.contains(&cluster.address(number).to_string()), "{text}");
    }
    assert!(text.contains("LEADER") && text.contains("APPLIED BY 3") && text.contains("registry"), "{text}");
}

#[test]
fn usage_errors_end_with_two() {
    for arguments in [
        &["kv", "get"][..],
        &["kv", "put", "k"],
        &["cluster"],
        &["nonsense"],
        &["kv", "get", "k", "--url", "x"],
    ] {
        let output = tidelock().args(arguments).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
