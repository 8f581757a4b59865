//! Start, stop and restart as an operator does them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::harness::client::Raw;
use crate::harness::process::Process;
use crate::harness::{Cluster, Options, eventually, tidelock, within};

#[test]
fn sigterm_hands_over_and_ends_with_zero() {
    // A long election timeout: a new leader that appears well within it got the leadership by a
    // transfer.
    let mut cluster = Cluster::start_with(3, &Options { flags: vec!["--election-timeout-ms", "4000"] });
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    let chief = cluster.chief();
    let survivors: Vec<usize> = cluster.numbers().into_iter().filter(|&number| number != chief).collect();
    let status = cluster.terminate(chief);
    assert_eq!(status.code(), Some(0), "{status}");
    let handed_over = within(Duration::from_secs(2), || {
        let views: Vec<_> = survivors.iter().map(|&number| cluster.leaders(number)).collect();
        let led_by_a_survivor =
            |shard: usize| views.iter().any(|view| view[shard].is_some_and(|leader| leader != chief));
        (0..views[0].len()).all(led_by_a_survivor).then_some(())
    });
    assert!(handed_over.is_some(), "the lead was not handed over");
    assert_eq!(cluster.get(survivors[0], "/v1/keys/k").text(), "v");
    cluster.restart(chief);
    assert_eq!(cluster.get(chief, "/v1/keys/k").text(), "v");
}

#[test]
fn a_request_in_flight_is_answered_before_the_end() {
    let mut cluster = Cluster::start(3);
    let chief = cluster.chief();
    let mut connection = Raw::connect(cluster.address(chief)).expect("the node accepts");
    connection
        .write(b"PUT /v1/keys/slow HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\nexpect: 100-continue\r\n\r\n")
        .expect("the node reads");
    // The node has asked for the body, so the request has begun.
    let (status, _) = connection.read().expect("an interim answer");
    assert_eq!(status, 100);
    cluster.signal(chief, rustix::process::Signal::TERM);
    eventually("the node takes no more connections, or no more requests", || {
        let refuses = TcpStream::connect(cluster.address(chief)).is_err();
        (refuses || !cluster.is_ready(chief)).then_some(())
    });
    connection.write(b"0123456789").expect("the node reads on");
    let (status, body) = connection.read().expect("an answer before the end");
    let other = cluster.numbers().into_iter().find(|&number| number != chief).expect("another node");
    let exit = cluster.wait_exit(chief);
    assert_eq!(exit.code(), Some(0), "{exit}");
    let stored = cluster.get(other, "/v1/keys/slow");
    match status {
        201 => assert_eq!(stored.text(), "0123456789"),
        503 => assert_eq!(stored.status, 404, "refused, and there"),
        // The disk was slow for so long that the leader had to give up its shard.
        504 => assert!(stored.status == 404 || stored.text() == "0123456789", "{stored:?}"),
        status => panic!("{status}: {}", String::from_utf8_lossy(&body)),
    }
}

#[test]
fn sigint_ends_a_single_node_with_zero() {
    let mut cluster = Cluster::start(1);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    cluster.signal(1, rustix::process::Signal::INT);
    assert_eq!(cluster.wait_exit(1).code(), Some(0));
    cluster.restart(1);
    assert_eq!(cluster.get(1, "/v1/keys/k").text(), "v");
}

#[test]
fn a_port_that_the_system_chose_is_logged_and_advertised() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = tidelock();
    command.args(["serve", "--log-format", "json", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
    command.args(["--peer", "127.0.0.1:0", "--data-dir"]).arg(directory.path());
    let mut child = Process::start(command.stdin(Stdio::null()).stderr(Stdio::piped()));
    let mut log = BufReader::new(child.stderr.take().expect("a pipe")).lines().map(Result::unwrap_or_default);
    let line = log.find(|line| line.contains("\"serving\"")).expect("it says where it serves");
    let line: Value = serde_json::from_str(&line).expect("JSON");
    let [http, resp, resp_cluster, advertise_http] = ["http", "resp", "resp_cluster", "advertise_http"]
        .map(|name| line[name].as_str().expect("an address"));
    assert_eq!(advertise_http, http, "{line}");
    let topology = eventually("the node is in the registry", || {
        let mut command = tidelock();
        let output =
            command.args(["cluster", "status", "--output", "json", "--url"]).arg(format!("http://{http}"));
        let output = output.output().expect("the binary starts");
        Some(String::from_utf8_lossy(&output.stdout).into_owned()).filter(|text| text.contains(resp))
    });
    child.end();
    assert!(topology.contains(http), "{http}: {topology}");
    assert!([http, resp, resp_cluster].iter().all(|address| !address.ends_with(":0")), "{line}");
}

#[test]
fn a_restarted_node_waits_for_a_majority_and_then_serves() {
    let mut cluster = Cluster::start(3);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    for number in cluster.numbers() {
        cluster.kill(number);
    }
    cluster.spawn(1);
    eventually("node 1 is alive", || {
        assert!(cluster.try_wait(1).is_none(), "node 1 ended for want of its peers");
        cluster.try_send(1, "GET /livez", &[], b"").filter(|response| response.status == 200)
    });
    assert!(!cluster.is_ready(1), "one of three is no majority");
    let refused = cluster.try_send(1, "GET /v1/keys/k", &[], b"").expect("an answer by the deadline");
    assert!(refused.status == 503 && refused.is_problem("no-leader"), "{refused:?}");
    // Any one other node is enough: not a particular one, nor all.
    cluster.restart(3);
    cluster.wait_ready(1);
    for number in [1, 3] {
        assert_eq!(cluster.get(number, "/v1/keys/k").text(), "v");
    }
}

#[test]
fn a_founder_with_a_wiped_disk_is_refused() {
    let mut cluster = Cluster::start(3);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    let identity = |cluster: &Cluster| cluster.view(1)["hosts"][2]["id"].clone();
    let original =
        eventually("node 3 is registered", || Some(identity(&cluster)).filter(|id| id.is_string()));
    cluster.kill(3);
    fs::remove_dir_all(cluster.directory(3)).expect("the directory goes");
    cluster.spawn(3);
    // An empty disk has forgotten its votes and what it acknowledged: letting it vote again could
    // lose writes.
    eventually("somebody names the wiped disk", || {
        let names_it = |number| cluster.log(number).contains("another disk");
        cluster.numbers().into_iter().any(names_it).then_some(())
    });
    assert_eq!(cluster.wait_exit(3).code(), Some(9), "a person must look at it");
    cluster.spawn(3);
    assert_eq!(cluster.wait_exit(3).code(), Some(9), "also when it is started again");
    assert_eq!(identity(&cluster), original, "the registry keeps the host that it knows");
    for number in [1, 2] {
        assert_eq!(cluster.put(number, "/v1/keys/k", format!("by {number}").as_bytes()).status, 200);
        assert_eq!(cluster.get(3 - number, "/v1/keys/k").text(), format!("by {number}"));
    }
}

/// Such as two machines on which a disk is not mounted.
#[test]
fn a_majority_with_empty_directories_does_not_found_the_cluster_again() {
    let mut cluster = Cluster::start(3);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    cluster.await_registered();
    for number in [2, 3] {
        cluster.kill(number);
        fs::remove_dir_all(cluster.directory(number)).expect("the directory goes");
    }
    for number in [2, 3] {
        cluster.spawn(number);
    }
    for number in [2, 3] {
        assert_eq!(cluster.wait_exit(number).code(), Some(9));
        assert!(cluster.log(number).contains("another disk"), "{}", cluster.log(number));
    }
    assert_eq!(cluster.get(1, "/v1/keys/k?stale=true").text(), "v", "node 1 has the data");
}

#[test]
fn a_wiped_founder_is_refused_even_by_nodes_that_start_with_it() {
    let mut cluster = Cluster::start(3);
    // Each node records it on its own disk within an election timeout after the registry has it.
    eventually("node 2 remembers node 1", || {
        let id = cluster.view(2)["hosts"][0]["id"].as_str()?.replace('-', "");
        let id = u128::from_str_radix(&id, 16).expect("a UUID").to_be_bytes();
        let control = fs::read(cluster.directory(2).join("control")).expect("a control file");
        control.windows(16).any(|window| window == id).then_some(())
    });
    cluster.kill(2);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    for number in [1, 3] {
        cluster.kill(number);
    }
    fs::remove_dir_all(cluster.directory(1)).expect("wiped");
    // Node 2 has not seen the write, and node 1 has forgotten it: together they must not make a
    // majority.
    cluster.spawn(1);
    cluster.spawn(2);
    eventually("node 2 refuses node 1", || cluster.log(2).contains("another disk").then_some(()));
    let refused = cluster.try_send(2, "GET /v1/keys/k", &[], b"").expect("an answer");
    assert!(refused.is_problem("no-leader"), "{refused:?}");
    cluster.spawn(3);
    eventually("the two intact ones serve", || (cluster.get(2, "/v1/keys/k").text() == "v").then_some(()));
}

#[test]
fn a_directory_without_its_log_is_refused() {
    let mut cluster = Cluster::start(1);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    cluster.kill(1);
    let names =
        fs::read_dir(cluster.directory(1)).expect("a directory").map(|entry| entry.expect("an entry").path());
    let logs = names.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.for_each(|path| fs::remove_file(path).expect("removed"));
    // A supervisor may start the node again.
    for _ in 0..2 {
        cluster.spawn(1);
        assert_eq!(cluster.wait_exit(1).code(), Some(9));
    }
    assert_eq!(cluster.log(1).matches("write-ahead log is missing").count(), 2, "{}", cluster.log(1));
}

#[test]
fn two_processes_cannot_share_a_data_directory() {
    let cluster = Cluster::start(1);
    let directory = cluster.directory(1).display().to_string();
    let output = tidelock()
        .args(["serve", "--data-dir", &directory])
        .args(["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--peer", "127.0.0.1:0"])
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains(&directory) && message.contains("in use"), "{message}");
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201, "the first one is not disturbed");
}

#[test]
fn a_taken_port_is_named() {
    let cluster = Cluster::start(1);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let address = cluster.address(1).to_string();
    let output = tidelock()
        .args(["serve", "--resp", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--http", &address, "--data-dir"])
        .arg(directory.path())
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
}

#[test]
fn settings_that_make_no_sense_end_with_two() {
    for arguments in [
        &["serve", "--shards", "0"][..],
        &["serve", "--http", "nowhere"],
        &["serve", "--http", "0.0.0.0:0"],
        &["serve", "--resp", "0.0.0.0:0", "--insecure=false"],
        &["serve", "--peers", "127.0.0.1:1,127.0.0.1:2"],
        &["serve", "--peers", "127.0.0.1:9001", "--join", "127.0.0.1:9002"],
        &["serve", "--join", "127.0.0.1:9001"],
        &["serve", "--election-timeout-ms", "0"],
        &["serve", "--log-format", "xml"],
        &["serve", "--config", "/does/not/exist.toml"],
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let output = tidelock()
            .args(arguments)
            .arg("--data-dir")
            .arg(directory.path())
            .output()
            .expect("the binary starts");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
