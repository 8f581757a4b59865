//! Snapshots: truncating the log, catching up a follower, and starting from them.

use std::fs;
use std::path::Path;

use crate::harness::{Cluster, eventually};

/// Values of one shard that take twice the room of its log.
const VALUE_BYTES: usize = 512 << 10;
const VALUES: usize = 160;

fn path(index: usize) -> String {
    // One hash tag, so one shard; few keys, so most written data is overwritten.
    format!("/v1/keys/%7Btag%7D{}", index % 8)
}

fn value(index: usize) -> Vec<u8> {
    vec![b'a' + (index % 26) as u8; VALUE_BYTES + index]
}

fn has_snapshot(directory: &Path) -> bool {
    let names = fs::read_dir(directory)
        .expect("the data directory")
        .map(|entry| entry.expect("an entry").file_name());
    names
        .filter_map(|name| name.into_string().ok())
        .any(|name| name.starts_with("snapshot-") && !name.contains('.'))
}

fn write_all(cluster: &Cluster, number: usize) {
    for index in 0..VALUES {
        let status = cluster.put(number, &path(index), &value(index)).status;
        assert!(status == 200 || status == 201, "{status}");
    }
}

fn holds_all(cluster: &Cluster, number: usize, query: &str) -> bool {
    (VALUES - 8..VALUES).all(|index| {
        let stored = cluster.get(number, &format!("{}{query}", path(index)));
        stored.status == 200 && stored.body == value(index)
    })
}

#[test]
fn a_node_starts_from_its_snapshot() {
    let mut cluster = Cluster::start(1);
    write_all(&cluster, 1);
    eventually("a snapshot", || has_snapshot(cluster.directory(1)).then_some(()));
    assert_eq!(cluster.put(1, "/v1/keys/%7Btag%7Dlast", b"behind it").status, 201);
    cluster.kill(1);
    cluster.restart(1);
    assert!(holds_all(&cluster, 1, ""));
    assert_eq!(cluster.get(1, "/v1/keys/%7Btag%7Dlast").text(), "behind it");
}

#[test]
fn a_follower_behind_the_log_catches_up_by_snapshot() {
    let mut cluster = Cluster::start(3);
    cluster.kill(3);
    write_all(&cluster, 1);
    eventually("snapshots of both", || {
        (has_snapshot(cluster.directory(1)) && has_snapshot(cluster.directory(2))).then_some(())
    });
    // More writes while the log is truncated, and while the third node receives its snapshot.
    write_all(&cluster, 2);
    cluster.restart(3);
    eventually("the third node holds what it missed", || holds_all(&cluster, 3, "?stale=true").then_some(()));
    assert!(has_snapshot(cluster.directory(3)), "it had a snapshot rather than the log");
    assert!(holds_all(&cluster, 3, ""));
    cluster.kill(3);
    cluster.restart(3);
    assert!(holds_all(&cluster, 3, ""), "what was received outlives the process");
}
