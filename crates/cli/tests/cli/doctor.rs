//! `tidelock doctor` finds what is wrong, and only that.

use serde_json::Value;

use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually};

/// What the command finds: its exit code, and the findings as JSON.
fn findings(shell: &Shell, arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = shell.run(&[&["doctor", "--output", "json"], arguments].concat());
    let text = String::from_utf8(output.stdout).expect("text");
    let findings = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (output.status.code(), findings)
}

/// The messages of one level about one subject.
fn messages<'a>(findings: &'a [Value], level: &str, check: &str) -> Vec<&'a str> {
    let wanted = findings.iter().filter(|finding| finding["level"] == level && finding["check"] == check);
    wanted.filter_map(|finding| finding["message"].as_str()).collect()
}

#[test]
fn a_healthy_cluster_has_no_failures_and_a_dead_node_is_named() {
    let mut cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("text");
    let healthy = eventually("nothing has failed", || {
        let (code, found) = findings(&shell, &["--data-dir", path]);
        (code == Some(0)).then_some(found)
    });
    assert_eq!(messages(&healthy, "ok", "disk speed").len(), 1, "{healthy:?}");
    for node in ["node 1", "node 2", "node 3"] {
        assert_eq!(messages(&healthy, "ok", node).len(), 1, "{healthy:?}");
    }
    let lost = "every shard continues after the loss of 1 of its voters";
    assert_eq!(messages(&healthy, "ok", "voters"), [lost]);
    // The tests run without tokens.
    assert_eq!(messages(&healthy, "warning", "tokens").len(), 1, "{healthy:?}");

    cluster.kill(3);
    let found = eventually("the others miss it", || {
        let (code, found) = findings(&shell, &[]);
        let missed = messages(&found, "warning", "node 1").contains(&"no connection to node 3");
        (code == Some(1) && missed).then_some(found)
    });
    assert!(messages(&found, "failure", "node 3")[0].contains("no node answers"), "{found:?}");
    assert_eq!(findings(&shell, &["--url", "http://127.0.0.1:1"]).0, Some(5));

    // Node 3 would have to record the removal.
    shell.done(&["cluster", "remove", "2", "--no-wait"]);
    let found = eventually("the removal is recorded", || {
        let found = findings(&shell, &[]).1;
        (!messages(&found, "warning", "leaving").is_empty()).then_some(found)
    });
    let leaving = &messages(&found, "warning", "leaving")[0];
    assert!(leaving.starts_with("node 2 is being removed: "), "{found:?}");
    assert!(leaving.ends_with("; `tidelock cluster add 2` cancels that"), "{found:?}");
}

#[test]
fn a_node_that_stopped_on_an_empty_directory_is_not_taken_for_a_cluster_without_leaders() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let shell = Shell::of(&cluster);
    cluster.kill(1);
    std::fs::remove_dir_all(cluster.directory(1)).expect("the disk is lost");
    cluster.spawn(1);
    assert_eq!(cluster.wait_exit(1).code(), Some(9));
    let urls = [1, 2, 3].map(|number| cluster.url(number, "")).join(",");
    let found = eventually("the others serve, and miss node 1", || {
        let (code, found) = findings(&shell, &["--url", &urls]);
        let are_ok = |check: &str| messages(&found, "ok", check).len() == 1;
        let serve = are_ok("shards") && are_ok("releases");
        (code == Some(1) && serve && messages(&found, "failure", "node 1").len() == 1).then_some(found)
    });
    let pages = found.iter().filter(|finding| finding["level"] == "failure");
    let pages: Vec<&str> = pages.filter_map(|finding| finding["page"].as_str()).collect();
    assert_eq!(pages, ["docs/how-to/monitor.md#a-node-is-down"], "{found:?}");
}
