//! What an operator sees of nodes that hang and of a cluster that lost its majority: status,
//! health, metrics, log; and commands that wait until it is over.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::Signal;

use crate::harness::process::Process;
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually};
use crate::membership::text;

fn await_log(cluster: &Cluster, number: usize, words: &[&str]) {
    eventually(&format!("node {number} logs {words:?}"), || {
        let log = cluster.log(number);
        log.lines().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
    });
}

fn connected(cluster: &Cluster, number: usize, other: usize) -> bool {
    cluster.view(number)["hosts"][other - 1]["connected"] == true
}

#[test]
fn a_frozen_node_is_shown_as_unreachable_and_logged() {
    let cluster = Cluster::start(3);
    cluster.await_registered();
    await_log(&cluster, cluster.chief(), &["this node leads the shard now", "shard=", "term="]);
    cluster.signal(3, Signal::STOP);
    eventually("node 1 notices", || (!connected(&cluster, 1, 3)).then_some(()));
    let health = cluster.get(1, "/readyz?verbose").text();
    assert!(health.contains("[!]node 3 is connected and does not answer\n"), "{health}");
    let metrics = cluster.get(1, "/metrics").text();
    assert!(metrics.contains("tidelock_peer_connected{peer=\"3\"} 0\n"), "{metrics}");
    await_log(&cluster, 1, &["WARN", "the peer is connected and sends nothing", "peer=3", "elapsed_ms="]);
    eventually("the others lead everything", || {
        cluster.leaders(1).iter().all(|leader| leader.is_some_and(|leader| leader != 3)).then_some(())
    });
    let status = text(Shell::by_way_of(&cluster, &[1]).done(&["cluster", "status"]));
    let row = status.lines().find(|line| line.starts_with("3 ")).expect("a row of node 3");
    assert!(row.contains(" no "), "{status}");
    cluster.signal(3, Signal::CONT);
    eventually("node 1 hears of it", || connected(&cluster, 1, 3).then_some(()));
    await_log(&cluster, 1, &["the peer answers again", "peer=3"]);
}

#[test]
fn an_outage_is_logged_and_fails_cluster_status() {
    let cluster = Cluster::start(3);
    let shell = Shell::by_way_of(&cluster, &[1]);
    shell.done(&["cluster", "status"]);
    for number in [2, 3] {
        cluster.signal(number, Signal::STOP);
    }
    await_log(&cluster, 1, &["ERROR", "no leader is known", "shards=\"0,1,2,3,4\""]);
    // On a busy machine the line may come from the start, before there was a leader.
    let output = eventually("the status fails", || {
        let output = shell.run(&["cluster", "status"]);
        let is_whole = text(output.stderr.clone()).contains("5 of 5 shards");
        (output.status.code() == Some(5) && is_whole).then_some(output)
    });
    let (tables, message) = (text(output.stdout), text(output.stderr));
    assert!(tables.contains("SHARD") && tables.contains("none"), "{tables}");
    assert!(message.contains("no leader is known of 5 of 5 shards (0, 1, 2, 3, 4)"), "{message}");
    let refused = cluster.try_send(1, "PUT /v1/keys/k", &[], b"v").expect("the node answers");
    assert!(matches!(refused.status, 503 | 504), "{refused:?}");
    await_log(&cluster, 1, &["WARN", "slow request", "kind=\"write\"", "elapsed_ms=", "refusal="]);
    for number in [2, 3] {
        cluster.signal(number, Signal::CONT);
    }
    await_log(&cluster, 1, &["these shards have leaders again", "elapsed_ms="]);
    eventually("the cluster is well", || shell.run(&["cluster", "status"]).status.success().then_some(()));
}

#[test]
fn a_change_is_asked_for_again_until_there_is_a_leader() {
    let cluster = Cluster::start(3);
    cluster.await_registered();
    for number in [2, 3] {
        cluster.signal(number, Signal::STOP);
    }
    let mut drain = Shell::by_way_of(&cluster, &[1]).command(&["cluster", "drain", "3", "--wait-s", "600"]);
    drain.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut drain = Process::start(&mut drain);
    let mut errors = BufReader::new(drain.stderr.take().expect("a pipe")).lines();
    let asks_again = errors.any(|line| line.expect("text").contains("asking again"));
    assert!(asks_again, "the first refusal is not the end");
    for number in [2, 3] {
        cluster.signal(number, Signal::CONT);
    }
    assert_eq!(drain.wait().expect("it ends").code(), Some(0));
    let mut said = String::new();
    drain.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(said, "node 3 leads nothing\n");
}
