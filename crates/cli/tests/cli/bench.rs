//! `tidelock bench` and `tidelock atomic` against real nodes. Speed is not asserted; counts and
//! correctness are.

use serde_json::json;

use crate::harness::Cluster;
use crate::harness::shell::Shell;

#[test]
fn atomic_registers() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    assert_eq!(shell.done(&["atomic", "get", "a"]), b"0\n");
    assert_eq!(shell.done(&["atomic", "cas", "a", "0", "-7"]), b"exchanged\n");
    assert!(shell.failed(&["atomic", "cas", "a", "0", "1"]).contains("the value is -7"));
    assert_eq!(shell.done(&["atomic", "exchange", "a", "5"]), b"exchanged, the value was -7\n");
    assert_eq!(shell.json(&["atomic", "get", "a"])["value"], json!(5));
    assert_eq!(shell.done(&["kv", "get", "a"]), b"5");
    shell.done(&["kv", "put", "b", "text"]);
    assert!(shell.failed(&["atomic", "get", "b"]).contains("409"));
}

#[test]
fn every_request_is_counted_and_checked() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let small = ["--keys", "50", "-c", "4", "-n", "1000"];
    for line in [
        &["--via", "leader"][..],
        &["--via", "follower", "-P", "8", "-t", "2"],
        &["--consistency", "stale", "--distribution", "zipf"],
        &["--rate", "20000", "--reads", "20"],
    ] {
        let report = shell.json(&[&["bench", "kv"], &small[..], line].concat());
        assert_eq!(report["ok"], json!(1000), "{line:?}: {report}");
        assert_eq!((&report["errors"], &report["wrong"]), (&json!(0), &json!(0)), "{line:?}");
        let reads_and_writes = [&report["reads"]["ok"], &report["writes"]["ok"]];
        let counted: u64 = reads_and_writes.iter().filter_map(|count| count.as_u64()).sum();
        assert_eq!(counted, 1000, "{line:?}: {report}");
    }
    let text = String::from_utf8(shell.done(&[&["bench", "kv"], &small[..]].concat())).unwrap();
    for part in ["Summary:", "Response time histogram:", "Latency distribution:", "[200]"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_redis_protocol_and_any_url() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let line = ["bench", "resp", "--via", "leader", "--keys", "50", "-c", "2", "-P", "64", "-n", "5000"];
    let report = shell.json(&line);
    assert_eq!((&report["ok"], &report["wrong"]), (&json!(5000), &json!(0)), "{report}");
    let url = cluster.url(1, "/v1/atomics/a");
    let body = r#"{"id":"a","value":0,"ver":0}"#;
    let report = shell.json(&["bench", "http", "-n", "100", "-c", "3", "--expect", body, &url]);
    assert_eq!(report["statuses"], json!({"200": 100}));
    let wrong = shell.run(&["bench", "http", "-n", "100", "-c", "3", "--expect", "else", &url]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stdout).contains("WRONG"), "{wrong:?}");
}

#[test]
fn registers_are_counted_up() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let report = shell.json(&["bench", "atomic", "-t", "2", "-d", "1.5"]);
    assert_eq!(report["wrong"], json!(0), "{report}");
    let counted: u64 = ["bench-atomic-0", "bench-atomic-1"]
        .iter()
        .map(|id| shell.json(&["atomic", "get", id])["value"].as_u64().expect("a number"))
        .sum();
    assert_eq!(report["ok"], json!(counted), "each exchange counted one, and none happened twice");
}

#[test]
fn the_disk_is_measured() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cluster = Cluster::start(1);
    let path = directory.path().to_str().expect("a path");
    let report = Shell::of(&cluster).json(&["bench", "disk", "-d", "0.05", "--dir", path]);
    assert_eq!(report["ways"].as_array().map(Vec::len), Some(6), "{report}");
}
