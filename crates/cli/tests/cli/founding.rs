//! Settings that contradict a data directory, and failed first starts.

use std::fs;
use std::net::TcpListener;

use crate::harness::{Cluster, Options, eventually, ports, tidelock};

/// Starts a node that must refuse its settings. Returns its output.
fn refused(cluster: &mut Cluster, number: usize) -> String {
    let before = cluster.log(number).len();
    cluster.spawn(number);
    let status = cluster.wait_exit(number);
    let message = cluster.log(number).split_off(before);
    assert_eq!(status.code(), Some(2), "{message}");
    message
}

fn assert_names(message: &str, clues: &[&str]) {
    for clue in clues {
        assert!(message.contains(clue), "`{clue}` is missing in: {message}");
    }
}

/// The peer address of a node, as it reports it.
fn peer_address(cluster: &Cluster, number: usize) -> String {
    eventually("the node is registered", || {
        let hosts = cluster.view(number)["hosts"].clone();
        hosts[number - 1]["peer_address"].as_str().map(ToOwned::to_owned)
    })
}

#[test]
fn a_node_that_was_started_alone_does_not_serve_as_one_of_several_founders() {
    let mut cluster = Cluster::start(1);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    let own = peer_address(&cluster, 1);
    assert_eq!(cluster.terminate(1).code(), Some(0));

    let founders = format!("{own},127.0.0.1:1,127.0.0.1:2");
    cluster.set_origin(1, &["--peers", &founders]);
    let message = refused(&mut cluster, 1);
    assert_names(&message, &["--peers is ", &own, "127.0.0.1:2", "founded by", "--join", "empty directory"]);

    for origin in [&["--peers", &own][..], &[]] {
        cluster.set_origin(1, origin);
        cluster.restart(1);
        assert_eq!(cluster.get(1, "/v1/keys/k").text(), "v");
        assert_eq!(cluster.terminate(1).code(), Some(0));
    }
}

#[test]
fn settings_that_contradict_the_directory_are_refused_and_those_of_the_founding_are_not() {
    let mut cluster =
        Cluster::start_with(3, &Options { flags: vec!["--shards", "2", "--cluster-name", "blue"] });
    let peers: Vec<String> = cluster.numbers().iter().map(|&number| peer_address(&cluster, number)).collect();
    cluster.kill(3);
    for (origin, clues) in [
        (vec!["--peers".to_owned(), peers[1..].join(",")], ["--peers is", "founded by"]),
        (vec!["--join".to_owned(), peers[0].clone()], ["--join is given", "node 3"]),
    ] {
        let origin: Vec<&str> = origin.iter().map(String::as_str).collect();
        cluster.set_origin(3, &origin);
        assert_names(&refused(&mut cluster, 3), &clues);
    }
    // In another order, and as the founding had it.
    let list = [&*peers[2], &peers[0], &peers[1]].join(",");
    cluster.set_origin(3, &["--peers", &list]);
    cluster.restart(3);
    assert_eq!(cluster.put(3, "/v1/keys/k", b"v").status, 201);
    cluster.kill(3);

    for (setting, given, held) in [("SHARDS", "3", "2 data shards"), ("CLUSTER_NAME", "green", "`blue`")] {
        let mut command = tidelock();
        command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--peer", &peers[2]]);
        command.args(["--data-dir", &cluster.directory(3).display().to_string()]);
        let output = command.env(format!("TIDELOCK_{setting}"), given).output().expect("the binary starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_names(&message, &[given, held]);
    }
}

#[test]
fn a_first_start_without_its_ports_founds_nothing() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = holder.local_addr().expect("its address").to_string();
    for flag in ["--http", "--resp", "--peer"] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = tidelock();
        command.arg("serve").arg("--data-dir").arg(directory.path());
        for other in ["--http", "--resp", "--peer"] {
            command.args([other, if other == flag { &taken } else { "127.0.0.1:0" }]);
        }
        let output = command.output().expect("the binary starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert_names(&message, &[&taken, "in use"]);
        let files: Vec<_> = fs::read_dir(directory.path()).expect("a directory").collect();
        let names = files.into_iter().map(|entry| entry.expect("an entry").file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["LOCK"], "{flag}");
    }
}

#[test]
fn the_name_and_the_shards_of_a_cluster_hold_for_all_who_join_it() {
    // Founded by one node, whose cluster id does not depend on the name.
    let mut cluster = Cluster::start_with(1, &Options { flags: vec!["--cluster-name", "blue"] });
    let member = peer_address(&cluster, 1);
    let joined = cluster.join_with(1, &["--cluster-name", "blue", "--shards", "4"]);
    let by_way_of_the_joined = peer_address(&cluster, joined);
    for asked in [&member, &by_way_of_the_joined] {
        for (flags, clue) in [
            (["--cluster-name", "green"], "the cluster's name is not `green`: it is `blue`"),
            (["--shards", "9"], "founded with 4 data shards, not 9"),
        ] {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let peer = format!("127.0.0.1:{}", ports::reserve(1));
            let mut command = tidelock();
            command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--peer", &peer]);
            command.args(["--join", asked]).args(flags).arg("--data-dir").arg(directory.path());
            let output = command.output().expect("the binary starts");
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{message}");
            assert_names(&message, &[clue]);
        }
    }
    assert_eq!(cluster.view(1)["hosts"].as_array().map(Vec::len), Some(2), "who was refused is no host");
}
