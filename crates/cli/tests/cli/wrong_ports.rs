//! Clients at the wrong port: the answer names the port's protocol.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::harness::process::Process;
use crate::harness::{Cluster, ports, tidelock};

#[test]
fn a_url_of_another_port_says_what_that_port_is() {
    let cluster = Cluster::start(1);
    let http = cluster.address(1);
    for (offset, clue) in
        [(1, "for Redis clients (--resp)"), (2, "for the other nodes of the cluster (--peer)")]
    {
        let url = format!("http://{}:{}", http.ip(), http.port() + offset);
        for arguments in [&["cluster", "status"][..], &["kv", "get", "k"], &["kv", "put", "k", "v"]] {
            let mut command = tidelock();
            let output = command.args(arguments).args(["--url", &url]).output().expect("the binary starts");
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
            assert!(message.contains(clue) && message.contains("--http"), "{arguments:?}: {message}");
        }
    }
    assert_eq!(cluster.get(1, "/v1/keys/k").status, 404);
}

#[test]
fn an_http_port_to_join_at_says_what_that_port_is() {
    let cluster = Cluster::start(1);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = tidelock();
    let peer = format!("127.0.0.1:{}", ports::reserve(1));
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--peer", &peer]);
    command.args(["--join", &cluster.address(1).to_string(), "--data-dir"]).arg(directory.path());
    let mut child = Process::start(command.stdin(Stdio::null()).stderr(Stdio::piped()));
    let mut log = BufReader::new(child.stderr.take().expect("a pipe")).lines().map(Result::unwrap_or_default);
    let line = log.find(|line| line.contains("not a member yet")).expect("it says why it waits");
    child.end();
    assert!(line.contains("an HTTP server answers") && line.contains("--peer"), "{line}");
}
