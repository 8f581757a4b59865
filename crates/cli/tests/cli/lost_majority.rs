//! Two of three nodes are lost for good, and an operator makes the third continue without them.

use std::fs;
use std::path::Path;

use crate::harness::load::{addresses, assert_nothing_is_lost, await_acknowledged, under_load};
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually};
use crate::membership::{text, voters};

/// A start that must fail with this exit code; returns its output.
fn refused(cluster: &mut Cluster, number: usize, code: i32) -> String {
    let before = cluster.log(number).len();
    cluster.spawn(number);
    let status = cluster.wait_exit(number);
    let message = cluster.log(number).split_off(before);
    assert_eq!(status.code(), Some(code), "{message}");
    message
}

/// The id of its cluster, from the log of the last start, where an operator finds it.
fn cluster_id(cluster: &Cluster, number: usize) -> String {
    let log = cluster.log(number);
    let start = log.lines().rfind(|line| line.contains("serving node=")).expect("it has started");
    let id = start.split("cluster=").nth(1).and_then(|rest| rest.split(' ').next());
    id.expect("an id").to_owned()
}

fn hosts(cluster: &Cluster, number: usize) -> Vec<u64> {
    let view = cluster.view(number);
    let hosts = view["hosts"].as_array().expect("hosts").iter();
    hosts.map(|host| host["node"].as_u64().expect("a number")).collect()
}

#[test]
fn a_survivor_goes_on_alone_once_and_takes_new_nodes_in() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let counters = under_load(addresses(&cluster), |acknowledged| await_acknowledged(acknowledged, 2_000));
    // It answers linearizably, so it has applied everything that was acknowledged.
    assert_nothing_is_lost(&cluster, 3, &counters);
    let old_id = cluster_id(&cluster, 3);
    for number in cluster.numbers() {
        cluster.kill(number);
    }
    fs::remove_dir_all(cluster.directory(2)).expect("lost");

    let wrong_id = "00000000-0000-4000-8000-000000000001";
    cluster.set_origin(3, &["--force-new-cluster", wrong_id]);
    let message = refused(&mut cluster, 3, 1);
    assert!(message.contains(wrong_id) && message.contains(&old_id), "{message}");

    cluster.set_origin(3, &["--force-new-cluster", &old_id]);
    cluster.restart(3);
    assert_nothing_is_lost(&cluster, 3, &counters);
    assert_eq!(cluster.put(3, "/v1/keys/alone", b"v").status, 201);
    assert_eq!(hosts(&cluster, 3), [3]);
    let new_id = cluster_id(&cluster, 3);
    assert_ne!(new_id, old_id);
    assert!(cluster.log(3).contains("FORCED NEW CLUSTER"));
    cluster.kill(3);
    let message = refused(&mut cluster, 3, 1);
    assert!(message.contains(&old_id) && message.contains(&new_id), "{message}");
    cluster.set_origin(3, &[]);
    cluster.restart(3);
    assert_nothing_is_lost(&cluster, 3, &counters);

    let newcomer = cluster.join(3);
    let shell = Shell::by_way_of(&cluster, &[3]);
    assert_eq!(text(shell.done(&["cluster", "add", "4"])), "node 4 may vote\n");
    assert_nothing_is_lost(&cluster, newcomer, &counters);

    // A node that was thought lost belongs to the old cluster.
    cluster.spawn(1);
    eventually("it is a stranger", || cluster.log(1).contains("another cluster").then_some(()));
    eventually("it is alive", || cluster.try_send(1, "GET /livez", &[], b""));
    assert!(!cluster.is_ready(1), "alone it is no majority of the old cluster");
    for number in [3, newcomer] {
        assert_eq!(cluster.put(number, "/v1/keys/alone", format!("by {number}").as_bytes()).status, 200);
        assert_eq!(cluster.get(7 - number, "/v1/keys/alone").text(), format!("by {number}"));
        assert_nothing_is_lost(&cluster, number, &counters);
        assert_eq!(hosts(&cluster, number), [3, 4]);
        eventually("both vote", || (voters(&cluster, number, 1) == [3, 4]).then_some(()));
    }
    assert!(cluster.try_wait(1).is_none(), "it waits for its own, and is told nothing of a removal");
}

#[test]
fn a_survivor_that_has_lost_its_log_is_refused_and_stays_what_it_was() {
    let mut cluster = Cluster::start(1);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    let id = cluster_id(&cluster, 1);
    cluster.kill(1);
    let kept = cluster.directory(1).with_extension("kept");
    fs::create_dir(&kept).expect("made");
    let log_files = fs::read_dir(cluster.directory(1)).expect("a directory");
    let log_files = log_files.map(|entry| entry.expect("an entry").path());
    let log_files: Vec<_> =
        log_files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    let put_aside = |path: &Path| kept.join(path.file_name().expect("a file"));
    assert!(!log_files.is_empty());
    for path in &log_files {
        fs::rename(path, put_aside(path)).expect("moved away");
    }
    cluster.set_origin(1, &["--force-new-cluster", &id]);
    for _ in 0..2 {
        // A second start must not take the log that a first one has begun for an empty one.
        let message = refused(&mut cluster, 1, 9);
        assert!(message.contains("write-ahead log is missing"), "{message}");
    }
    for path in &log_files {
        fs::rename(put_aside(path), path).expect("moved back");
    }
    cluster.set_origin(1, &[]);
    cluster.restart(1);
    assert_eq!(cluster.get(1, "/v1/keys/k").text(), "v");
    assert_eq!(cluster_id(&cluster, 1), id);
}
