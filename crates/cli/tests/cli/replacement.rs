//! Hosts join, restart with the hosts recorded on their own disks, and take over the addresses of
//! removed hosts.

use std::fs;

use serde_json::Value;

use crate::harness::load::{addresses, assert_nothing_is_lost, await_acknowledged, under_load};
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually, ports};
use crate::membership::{assert_gone, text, voters};

/// Number of shards: the registry's and the data shards.
const SHARDS: u64 = 5;

/// Waits until exactly these nodes vote in every shard, as one of them reports.
fn await_voters(cluster: &Cluster, number: usize, expected: &[u64]) {
    for shard in 0..SHARDS {
        eventually("the voters are known", || (voters(cluster, number, shard) == expected).then_some(()));
    }
}

/// The data shards of which a node has a replica, and whether that votes, as another one reports.
fn data_replicas(cluster: &Cluster, number: usize, node: usize) -> Vec<(u64, bool)> {
    let view = cluster.view(number);
    let is_its = |replica: &&Value| replica["node"] == node && replica["shard"] != 0;
    let replica = |replica: &Value| Some((replica["shard"].as_u64()?, replica["voter"].as_bool()?));
    view["replicas"].as_array().expect("replicas").iter().filter(is_its).filter_map(replica).collect()
}

#[test]
fn a_host_that_joins_follows_serves_and_comes_back_by_its_own_disk() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    assert_eq!(cluster.put(1, "/v1/keys/k", b"before").status, 201);
    // One member that is up is enough, at any position in the list.
    cluster.kill(1);
    let newcomer = cluster.join_any(&[1, 2]);
    for number in [2, newcomer] {
        assert_eq!(voters(&cluster, number, 0), [1, 2, 3], "the registry has its three voters");
    }
    assert_eq!(cluster.get(newcomer, "/v1/keys/k").text(), "before");
    assert_eq!(cluster.get(newcomer, "/v1/keys/k?stale=true").text(), "before");
    assert_eq!(cluster.put(newcomer, "/v1/keys/k", b"by the newcomer").status, 200);
    cluster.restart(1);
    for number in cluster.numbers() {
        assert_eq!(cluster.get(number, "/v1/keys/k").text(), "by the newcomer");
    }
    eventually("it votes in as many shards as the others, and follows in none", || {
        let replicas = data_replicas(&cluster, 2, newcomer);
        (replicas.len() == 3 && replicas.iter().all(|(_, votes)| *votes)).then_some(())
    });
    for shard in 1..SHARDS {
        eventually("every shard has three voters", || (voters(&cluster, 2, shard).len() == 3).then_some(()));
    }

    cluster.kill(newcomer);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"meanwhile").status, 200, "nobody waits for it");
    let nobody = format!("127.0.0.1:{}", ports::reserve(1));
    cluster.set_origin(newcomer, &["--join", &nobody]);
    cluster.restart(newcomer);
    assert_eq!(cluster.get(newcomer, "/v1/keys/k").text(), "meanwhile");
    assert_eq!(cluster.put(newcomer, "/v1/keys/k", b"back").status, 200);
    let status = cluster.terminate(newcomer);
    assert_eq!(status.code(), Some(0), "{status}");
    assert_eq!(cluster.get(3, "/v1/keys/k").text(), "back");
}

#[test]
fn a_lost_node_is_replaced_under_load_at_its_own_addresses() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let shell = Shell::by_way_of(&cluster, &[1, 2]);
    let counters = under_load(addresses(&cluster), |acknowledged| {
        await_acknowledged(acknowledged, 1_000);
        cluster.kill(3);
        fs::remove_dir_all(cluster.directory(3)).expect("the disk is lost");
        await_acknowledged(acknowledged, 500);
        assert_eq!(cluster.join_in_place_of(3, 1), 4);
        assert_eq!(text(shell.done(&["cluster", "add", "4"])), "node 4 may vote\n");
        assert_eq!(text(shell.done(&["cluster", "remove", "3"])), "node 3 is removed\n");
        await_acknowledged(acknowledged, 1_000);
    });
    for number in [1, 2, 4] {
        assert_nothing_is_lost(&cluster, number, &counters);
        await_voters(&cluster, number, &[1, 2, 4]);
    }
    let verified =
        Shell::by_way_of(&cluster, &[4]).json(&["cluster", "status", "--verify", "--wait-s", "60"]);
    assert_eq!(verified["equal"], true, "{verified}");

    // The new node votes: with it, the cluster tolerates the loss of a founder.
    cluster.kill(1);
    assert_eq!(cluster.put(4, "/v1/keys/after", b"two of three").status, 201);
    assert_eq!(cluster.get(2, "/v1/keys/after").text(), "two of three");
    assert_nothing_is_lost(&cluster, 4, &counters);

    // The founders still have the address in their `--peers`, which another host uses now.
    for number in [2, 4] {
        cluster.kill(number);
    }
    for number in [1, 2, 4] {
        cluster.spawn(number);
    }
    for number in [1, 2, 4] {
        cluster.wait_ready(number);
        assert_nothing_is_lost(&cluster, number, &counters);
    }
}

/// The node with the lowest number dials no peer: it learns of its removal from the peers that it
/// asks to connect.
#[test]
fn the_first_founder_learns_of_its_removal_and_its_host_comes_back_as_another_node() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    cluster.kill(1);
    let shell = Shell::by_way_of(&cluster, &[2, 3]);
    assert_eq!(text(shell.done(&["cluster", "remove", "1"])), "node 1 is removed\n");
    cluster.spawn(1);
    assert_gone(&mut cluster, 1);
    fs::remove_dir_all(cluster.directory(1)).expect("emptied, as the message says");
    let newcomer = cluster.join_in_place_of(1, 2);
    assert_eq!(cluster.get(newcomer, "/v1/keys/k").text(), "v");
    await_voters(&cluster, newcomer, &[2, 3, newcomer as u64]);
}
