//! Nodes that join a cluster.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::process::Process;
use crate::harness::{Cluster, ports, tidelock};

/// A node with its data in `directory` and a unique peer address.
fn newcomer(directory: &Path) -> Command {
    let mut command = tidelock();
    let peer = format!("127.0.0.1:{}", ports::reserve(1));
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--peer", &peer, "--data-dir"]);
    command.arg(directory).stdin(Stdio::null());
    command
}

#[test]
fn a_node_that_waits_to_join_stops_when_it_is_asked_to() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let nobody = format!("127.0.0.1:{}", ports::reserve(1));
    let mut hosts = vec![];
    for _ in 0..2 {
        let mut newcomer = newcomer(directory.path());
        let mut child = Process::start(newcomer.args(["--join", &nobody]).stderr(Stdio::piped()));
        let mut log =
            BufReader::new(child.stderr.take().expect("a pipe")).lines().map(Result::unwrap_or_default);
        assert!(log.any(|line| line.contains("not a member yet") && line.contains(&nobody)));
        child.signal(Signal::TERM);
        // Read to the end; otherwise the node could block on a full pipe.
        log.for_each(drop);
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        hosts.push(fs::read(directory.path().join("control")).expect("a control file"));
    }
    assert_eq!(hosts[0], hosts[1], "it asks as the same host");

    let founder = newcomer(directory.path()).output().expect("the binary starts");
    let message = String::from_utf8_lossy(&founder.stderr);
    assert_eq!(founder.status.code(), Some(1), "{message}");
    assert!(message.contains("start it with --join"), "{message}");
}

#[test]
fn a_cluster_of_another_name_is_not_joined() {
    let cluster = Cluster::start(3);
    let member = cluster.view(1)["hosts"][1]["peer_address"].as_str().expect("an address").to_owned();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = newcomer(directory.path())
        .args(["--cluster-name", "other", "--join", &member])
        .output()
        .expect("the binary starts");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("the cluster's name is not `other`"), "{message}");
}
