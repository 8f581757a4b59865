//! Disks that hang: the other nodes continue; the affected node reports it, serves what it can, and
//! recovers by itself.

use std::collections::BTreeMap;

use crate::harness::slow_disk::SlowDisk;
use crate::harness::{Cluster, Options, eventually};

/// The only shard with keys.
const SHARD: usize = 1;

/// Three nodes, each with a disk that can be made slow.
fn start() -> (Cluster, BTreeMap<usize, SlowDisk>) {
    let options = Options { flags: vec!["--shards", "1"] };
    let mut cluster = Cluster::start_prepared(3, &options, |cluster| {
        for number in cluster.numbers() {
            let disk = SlowDisk::new(&cluster.directory(number).with_extension("disk"));
            cluster.set_environment(number, &disk.environment());
        }
    });
    let disk = |number: usize| SlowDisk::at(&cluster.directory(number).with_extension("disk"));
    let disks = cluster.numbers().into_iter().map(|number| (number, disk(number))).collect();
    for number in cluster.numbers() {
        cluster.wait_ready(number);
    }
    (cluster, disks)
}

fn leader(cluster: &Cluster, asked: usize) -> usize {
    eventually("the shard has a leader", || cluster.leaders(asked)[SHARD])
}

fn has_metric(cluster: &Cluster, node: usize, line: &str) -> Option<()> {
    cluster.get(node, "/metrics").text().lines().any(|other| other == line).then_some(())
}

fn is_written(cluster: &Cluster, node: usize, value: &str) {
    let written = cluster.put(node, "/v1/keys/a", value.as_bytes());
    assert!(matches!(written.status, 200 | 201), "node {node}: {written:?}");
}

/// The disk's line of `/readyz`, if the disk is why a node is not ready.
fn not_ready(cluster: &Cluster, node: usize) -> Option<String> {
    let ready = cluster.try_send(node, "GET /readyz", &[], b"")?;
    (ready.status == 503 && ready.text().contains("[-]disk failed")).then(|| ready.text())
}

#[test]
fn a_leader_whose_disk_hangs_hands_over_and_the_others_go_on() {
    let (mut cluster, disks) = start();
    is_written(&cluster, 1, "before");
    let slow = leader(&cluster, 1);
    let other = slow % 3 + 1;
    disks[&slow].hang();
    // The first write begins the sync that hangs.
    is_written(&cluster, other, "during");
    let reason = eventually("the slow node says so", || not_ready(&cluster, slow));
    assert!(reason.contains("takes longer than the election timeout"), "{reason}");
    eventually("the leadership is handed over", || (leader(&cluster, other) != slow).then_some(()));
    for number in 0..20 {
        is_written(&cluster, other, &format!("after {number}"));
    }
    let refused = eventually("what only the others have is refused", || {
        let read = cluster.try_send(slow, "GET /v1/keys/a", &[], b"")?;
        (read.status == 503).then_some(read)
    });
    assert!(refused.is_problem("disk-unavailable"), "{refused:?}");
    assert_eq!(cluster.get(slow, "/v1/keys/a?stale").status, 200);
    assert!(has_metric(&cluster, slow, "tidelock_disk_slow 1").is_some());
    assert!(has_metric(&cluster, slow, "tidelock_disk_stalled 1").is_some());
    let warned = cluster.get(other, "/readyz?verbose").text();
    assert!(warned.contains(&format!("[!]the disk of node {slow} takes no writes")), "{warned}");

    disks[&slow].resume();
    cluster.wait_ready(slow);
    assert_eq!(cluster.get(slow, "/v1/keys/a").text(), "after 19");
    is_written(&cluster, slow, "again");
    // The machine's own disk may be slow for a moment, too.
    eventually("the disk keeps up", || has_metric(&cluster, slow, "tidelock_disk_slow 0"));
    assert!(has_metric(&cluster, slow, "tidelock_disk_slow_stalls_total 0").is_none());
    let log = cluster.log(slow);
    assert!(log.contains("the disk is slow") && log.contains("the disk keeps up again"), "{log}");
    assert!(log.contains("elapsed_ms="), "{log}");
}

#[test]
fn a_follower_whose_disk_hangs_holds_nobody_up_and_is_not_ready() {
    let (mut cluster, disks) = start();
    is_written(&cluster, 1, "before");
    let leader = leader(&cluster, 1);
    let (slow, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    disks[&slow].hang();
    is_written(&cluster, leader, "during");
    eventually("the slow node says so", || not_ready(&cluster, slow));
    for node in [leader, other, slow] {
        is_written(&cluster, node, "after");
        assert_eq!(cluster.get(leader, "/v1/keys/a").text(), "after");
    }
    let refused = eventually("what only the others have is refused", || {
        let read = cluster.try_send(slow, "GET /v1/keys/a", &[], b"")?;
        (read.status == 503).then_some(read)
    });
    assert!(refused.is_problem("disk-unavailable"), "{refused:?}");

    disks[&slow].resume();
    cluster.wait_ready(slow);
    assert_eq!(cluster.get(slow, "/v1/keys/a").text(), "after");
}
