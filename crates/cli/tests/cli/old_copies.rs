//! Data directories that were put back to an earlier state, and copies that run beside the
//! original.

use std::fs;
use std::path::Path;

use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually, ports, tidelock};

/// Copies the files of a directory into a new one, as `cp` does.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a new directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        // A segment that was being prepared may have been renamed or removed.
        match fs::copy(&path, to.join(name)) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}", path.display()),
        }
    }
}

/// A start that must fail; returns its output.
fn refused(cluster: &mut Cluster, number: usize) -> String {
    let before = cluster.log(number).len();
    cluster.spawn(number);
    let status = cluster.wait_exit(number);
    let message = cluster.log(number).split_off(before);
    assert_eq!(status.code(), Some(9), "{message}");
    message
}

#[test]
fn a_directory_that_was_put_back_is_refused_for_good_and_the_current_one_comes_back() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    assert_eq!(cluster.put(3, "/v1/keys/k", b"early").status, 201);
    let directory = cluster.directory(3).to_owned();
    let (early, current) = (directory.with_extension("early"), directory.with_extension("current"));
    assert_eq!(cluster.terminate(3).code(), Some(0));
    copy(&directory, &early);
    cluster.restart(3);
    assert_eq!(cluster.put(3, "/v1/keys/k", b"late").status, 200);
    cluster.kill(3);
    fs::rename(&directory, &current).expect("put aside");

    // The peers remember start numbers on their disks too.
    for number in [1, 2] {
        cluster.kill(number);
    }
    for number in [1, 2] {
        cluster.spawn(number);
    }
    copy(&early, &directory);
    let message = refused(&mut cluster, 3);
    for clue in ["put back to an earlier state", "start that one", "--join"] {
        assert!(message.contains(clue), "{message}");
    }
    // Otherwise a supervisor would restart it until its start number is the highest.
    for _ in 0..3 {
        let message = refused(&mut cluster, 3);
        assert!(message.contains("an old copy or a clone of the directory of node 3"), "{message}");
    }
    for number in [1, 2] {
        cluster.wait_ready(number);
        assert_eq!(cluster.get(number, "/v1/keys/k").text(), "late");
    }

    fs::remove_dir_all(&directory).expect("removed");
    fs::rename(&current, &directory).expect("put back");
    cluster.restart(3);
    for number in cluster.numbers() {
        assert_eq!(cluster.get(number, "/v1/keys/k").text(), "late");
    }
}

#[test]
fn a_clone_is_refused_while_the_original_runs_and_disturbs_nobody() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    assert_eq!(cluster.put(3, "/v1/keys/k", b"v").status, 201);
    let clone = cluster.directory(3).with_extension("clone");
    copy(cluster.directory(3), &clone);
    let links_lost = |cluster: &Cluster| {
        let losses = |number| cluster.log(number).matches("peer link lost").count();
        cluster.numbers().into_iter().map(losses).sum::<usize>()
    };
    let lost_before = links_lost(&cluster);
    let peer = format!("127.0.0.1:{}", ports::reserve(1));
    let start = || {
        let mut command = tidelock();
        command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--peer", &peer]);
        let output = command.arg("--data-dir").arg(&clone).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(9), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let message = start();
    assert!(message.contains("a connection with another process of the node stands"), "{message}");
    let message = start();
    assert!(message.contains("an old copy or a clone of the directory of node 3"), "{message}");

    assert_eq!(links_lost(&cluster), lost_before, "the original kept its links");
    assert_eq!(cluster.put(3, "/v1/keys/k", b"by the original").status, 200);
    assert_eq!(cluster.get(1, "/v1/keys/k").text(), "by the original");
    // The original can be started again.
    cluster.kill(3);
    cluster.restart(3);
    eventually("it is read through the original", || {
        (cluster.get(3, "/v1/keys/k").text() == "by the original").then_some(())
    });
}

/// The copy was made since the node's last start, so peers cannot distinguish it from the node.
/// Writes that it lacks are lost when it forms a majority with another node that never had them.
/// The node that has them stops and reports the contradiction.
#[test]
fn a_node_whose_committed_log_is_contradicted_stops_and_is_shown_to_differ() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let directory = cluster.directory(3).to_owned();
    let early = directory.with_extension("early");
    let put_all = |cluster: &Cluster, number: usize, value: &str| {
        for key in 0..40 {
            let status = cluster.put(number, &format!("/v1/keys/k{key}"), value.as_bytes()).status;
            assert!([200, 201].contains(&status), "{status}");
        }
    };
    put_all(&cluster, 1, "early");
    copy(&directory, &early);
    cluster.kill(2);
    put_all(&cluster, 1, "late");
    for number in [1, 3] {
        cluster.kill(number);
    }
    fs::remove_dir_all(&directory).expect("removed");
    fs::rename(&early, &directory).expect("put back");
    for number in [2, 3] {
        cluster.spawn(number);
    }
    for number in [2, 3] {
        cluster.wait_ready(number);
    }
    // A term above that of the lost writes, so that the contradiction is in the terms.
    let shell = Shell::by_way_of(&cluster, &[2]);
    for to in ["3", "2"] {
        for shard in ["1", "2", "3", "4"] {
            shell.done(&["cluster", "transfer", shard, to]);
        }
    }
    put_all(&cluster, 2, "after the loss");

    let message = refused(&mut cluster, 1);
    for clue in ["replicas contradict each other", "is committed here", "put back to an earlier state"] {
        assert!(message.contains(clue), "{message}");
    }
    let verified = Shell::by_way_of(&cluster, &[2]).run(&["cluster", "status", "--verify", "--wait-s", "20"]);
    let (shown, said) =
        (String::from_utf8_lossy(&verified.stdout), String::from_utf8_lossy(&verified.stderr));
    assert_eq!(verified.status.code(), Some(1), "{shown}{said}");
    assert!(shown.contains("DIFFERS") && shown.contains("contradicted"), "{shown}");
    assert!(said.contains("replicas differ in shard"), "{said}");
}
