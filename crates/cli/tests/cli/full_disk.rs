//! Full and read-only disks: writes are refused at once, no acknowledged write is lost, and the
//! node continues when the cause is gone.
//!
//! Each test fills a small tmpfs, which only root can mount. Sizes follow the log's segments of 64
//! MiB: one fits beside the ballast file, and a second one when that is removed.

use std::fs;
use std::path::PathBuf;

use crate::harness::tmpfs::can_mount;
use crate::harness::{Cluster, Options, Response, eventually};

const DISK_BYTES: u64 = 150 << 20;
const BALLAST_BYTES: usize = 75 << 20;
const VALUE_BYTES: usize = 256 << 10;

/// More than the size of the disk.
const WRITES_MAX: usize = (DISK_BYTES as usize).div_ceil(VALUE_BYTES);

/// Node 1 on a small disk, most of which another file takes.
fn prepare(cluster: &mut Cluster, number: usize) {
    cluster.mount_disk(number, DISK_BYTES);
    let ballast = ballast(cluster, number);
    fs::create_dir(ballast.parent().expect("it has a parent")).expect("there is room for a directory");
    fs::write(ballast, vec![0; BALLAST_BYTES]).expect("there is room for the ballast");
}

fn ballast(cluster: &Cluster, number: usize) -> PathBuf {
    cluster.directory(number).join("other").join("ballast")
}

fn key(number: usize) -> String {
    format!("key-{number}")
}

fn value(number: usize) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; VALUE_BYTES]
}

/// Sends one request without retries, because tests check the refusal.
fn ask(cluster: &Cluster, node: usize, request: &str, body: &[u8]) -> Response {
    cluster.try_send(node, request, &[], body).unwrap_or_else(|| panic!("no answer to {request}"))
}

fn put(cluster: &Cluster, node: usize, number: usize) -> Response {
    ask(cluster, node, &format!("PUT /v1/keys/{}", key(number)), &value(number))
}

/// Writes one key after the other until one is refused because of the disk. Returns the
/// acknowledged ones, and the number of attempts. Only writes in flight when the disk stalled may
/// have another answer.
fn fill(cluster: &Cluster, node: usize) -> (Vec<usize>, usize) {
    let mut acknowledged = vec![];
    let mut unknown = 0;
    for number in 0..WRITES_MAX {
        let answer = put(cluster, node, number);
        match answer.status {
            200 | 201 => acknowledged.push(number),
            503 if answer.is_problem("disk-unavailable") => return (acknowledged, number + 1),
            504 if answer.is_problem("unknown-outcome") => unknown += 1,
            _ => panic!("{answer:?}"),
        }
        assert!(unknown <= 1, "one write at a time was in flight");
    }
    panic!("{WRITES_MAX} writes fit on a disk for fewer");
}

fn assert_holds(cluster: &Cluster, node: usize, numbers: &[usize]) {
    for &number in numbers {
        let read = cluster.get(node, &format!("/v1/keys/{}", key(number)));
        assert!(read.status == 200 && read.body == value(number), "{number}: {}", read.status);
    }
}

fn not_ready_for_its_disk(cluster: &Cluster, node: usize) -> Option<String> {
    let ready = cluster.try_send(node, "GET /readyz", &[], b"")?;
    (ready.status == 503 && ready.text().contains("[-]disk failed")).then(|| ready.text())
}

#[test]
fn a_full_disk_is_said_refused_and_outlived() {
    if !can_mount("a_full_disk_is_said_refused_and_outlived") {
        return;
    }
    let mut cluster = Cluster::start_prepared(1, &Options::default(), |cluster| prepare(cluster, 1));
    let (acknowledged, tried) = fill(&cluster, 1);
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());

    for request in ["PUT /v1/keys/more", "PUT /more?val=x", "POST /db/more", "DELETE /v1/keys/key-0"] {
        let answer = ask(&cluster, 1, request, b"x");
        assert!(answer.status == 503 && answer.is_problem("disk-unavailable"), "{request}: {answer:?}");
    }
    let reason = not_ready_for_its_disk(&cluster, 1).expect("it says so");
    assert!(reason.contains("the disk is full"), "{reason}");
    let metrics = cluster.get(1, "/metrics").text();
    assert!(
        metrics.contains("tidelock_disk_stalled 1\n") && metrics.contains("tidelock_disk_stalls_total 1\n")
    );
    assert_holds(&cluster, 1, &acknowledged);

    // After a restart on the full disk it reports the same, and serves reads.
    cluster.kill(1);
    cluster.spawn(1);
    eventually("the restarted node says that its disk is full", || not_ready_for_its_disk(&cluster, 1));
    assert_holds(&cluster, 1, &acknowledged);
    assert!(put(&cluster, 1, tried).is_problem("disk-unavailable"));

    fs::remove_file(ballast(&cluster, 1)).expect("the ballast is there");
    cluster.wait_ready(1);
    assert!(matches!(put(&cluster, 1, tried).status, 200 | 201));
    cluster.kill(1);
    cluster.restart(1);
    assert_holds(&cluster, 1, &acknowledged);
    assert_holds(&cluster, 1, &[tried]);
    assert!(
        cluster.log(1).contains("the disk takes no writes") && cluster.log(1).contains("takes writes again")
    );
}

#[test]
fn a_node_with_a_full_disk_hands_over_and_the_others_go_on() {
    if !can_mount("a_node_with_a_full_disk_hands_over_and_the_others_go_on") {
        return;
    }
    let mut cluster = Cluster::start_prepared(3, &Options::default(), |cluster| prepare(cluster, 1));
    let mut acknowledged = vec![];
    let mut number = 0;
    while not_ready_for_its_disk(&cluster, 1).is_none() {
        // Writes in flight on node 1 when its disk was full are of unknown outcome, or refused and
        // sent again.
        let written = cluster.put(2, &format!("/v1/keys/{}", key(number)), &value(number));
        match written.status {
            200 | 201 => acknowledged.push(number),
            status => assert_eq!(status, 504, "{written:?}"),
        }
        number += 1;
        assert!(number < WRITES_MAX, "the disk of node 1 does not fill");
    }
    eventually("node 1 leads nothing", || {
        let leaders: Option<Vec<usize>> = cluster.leaders(2).into_iter().collect();
        leaders.filter(|leaders| !leaders.contains(&1))
    });
    for node in [1, 2, 3] {
        assert!(matches!(cluster.put(node, "/v1/keys/after", b"it goes on").status, 200 | 201));
    }
    assert_holds(&cluster, 2, &acknowledged);
    let warned = cluster.get(2, "/readyz?verbose").text();
    assert!(warned.contains("[!]the disk of node 1 takes no writes"), "{warned}");

    fs::remove_file(ballast(&cluster, 1)).expect("the ballast is there");
    cluster.wait_ready(1);
    assert_holds(&cluster, 1, &acknowledged);
    assert_eq!(cluster.get(1, "/v1/keys/after").text(), "it goes on");
}

#[test]
fn a_read_only_disk_refuses_the_start_and_is_named() {
    if !can_mount("a_read_only_disk_refuses_the_start_and_is_named") {
        return;
    }
    let mut cluster = Cluster::start_prepared(1, &Options::default(), |cluster| prepare(cluster, 1));
    assert_eq!(cluster.put(1, "/v1/keys/a", b"kept").status, 201);
    cluster.kill(1);
    cluster.disk(1).remount("ro");
    cluster.spawn(1);
    assert_eq!(cluster.wait_exit(1).code(), Some(1));
    let log = cluster.log(1).to_lowercase();
    assert!(log.contains("read-only file system") && log.contains("data directory"), "{log}");
    cluster.disk(1).remount("rw");
    cluster.restart(1);
    assert_eq!(cluster.get(1, "/v1/keys/a").text(), "kept");
}
