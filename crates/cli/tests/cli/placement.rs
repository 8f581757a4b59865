//! Replicas are placed by policy: six nodes in three zones, and hosts that die, are drained, or
//! restart without flags.

use serde_json::Value;

use crate::harness::shell::Shell;
use crate::harness::{Cluster, Options, eventually, ports};
use crate::membership::{text, voters};

const DATA_SHARDS: [u64; 4] = [1, 2, 3, 4];

fn zone_flags(zone: &str) -> [String; 4] {
    ["--tag".into(), "geo:region=us-central1".into(), "--tag".into(), format!("geo:zone=us-west-1{zone}")]
}

/// Three founders in zones a, c and f, with a short `--dead-after-s`.
fn founded(dead_after_s: &'static str) -> Cluster {
    let options = Options { flags: vec!["--dead-after-s", dead_after_s] };
    Cluster::start_prepared(3, &options, |cluster| {
        for (number, zone) in [(1, "a"), (2, "c"), (3, "f")] {
            let flags = zone_flags(zone);
            cluster.add_flags(number, &flags.each_ref().map(String::as_str));
        }
    })
}

/// All lines of the dump with this field.
fn rows(cluster: &Cluster, number: usize, field: &str) -> Vec<Value> {
    let dump = cluster.get(number, "/v1/cluster/dump").text();
    let rows = dump.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON lines"));
    rows.skip(1).filter(|row| !row[field].is_null()).collect()
}

fn replicas(cluster: &Cluster, number: usize, shard: u64, is_non_voting: bool) -> usize {
    let rows = rows(cluster, number, "shardID").into_iter();
    rows.filter(|row| row["shardID"] == shard && row["isNonVoting"] == is_non_voting).count()
}

fn await_registered_tags(cluster: &Cluster) {
    eventually("every host is registered", || {
        let hosts = rows(cluster, 1, "raftAddress");
        hosts.iter().all(|host| host["status"] == "active" && !host["tags"].is_null()).then_some(())
    });
}

/// Checks that every data shard has three voters in three zones.
fn set_policies(shell: &Shell) {
    for shard in DATA_SHARDS {
        let set = ["placement:member=3;geo:region=us-central1", "placement:vary=geo:zone"];
        let done = text(shell.done(&["cluster", "set", &shard.to_string(), set[0], set[1]]));
        assert_eq!(done, format!("shard {shard} has its tags\n"));
    }
}

#[test]
fn six_nodes_in_three_zones() {
    let mut cluster = founded("2");
    await_registered_tags(&cluster);
    let shell = Shell::by_way_of(&cluster, &[1, 2]);
    set_policies(&shell);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    let header = cluster.get(2, "/v1/cluster/dump").text();
    assert!(
        header.starts_with("{\"index\":") && header.contains("\"lastReplicaID\":15,\"lastShardID\":4"),
        "{header}"
    );
    for shard in 0..=4 {
        assert_eq!(replicas(&cluster, 1, shard, false), 3);
        assert_eq!(replicas(&cluster, 1, shard, true), 0);
    }

    for (expected, zone) in [(4, "a"), (5, "c"), (6, "f")] {
        let flags = zone_flags(zone);
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        flags.extend(["--dead-after-s", "2"]);
        assert_eq!(cluster.join_with(1, &flags), expected);
    }
    eventually("three follow in every shard", || {
        let follow = (0..=4).all(|shard| replicas(&cluster, 4, shard, true) == 3);
        (follow && (0..=4).all(|shard| replicas(&cluster, 4, shard, false) == 3)).then_some(())
    });
    for number in [4, 5, 6] {
        eventually("it answers from its own memory", || {
            (cluster.get(number, "/v1/keys/k?stale=true").status == 200).then_some(())
        });
        assert_eq!(cluster.get(number, "/v1/keys/k").text(), "v");
    }
    let why = text(shell.done(&["cluster", "explain", "1"]));
    assert!(why.contains("one of 3 voters by policy, at geo:zone=us-west-1a"), "{why}");
    assert!(why.contains("no vote: node 1 votes at geo:zone=us-west-1a already"), "{why}");

    // Node 6 is in the zone of node 3.
    cluster.kill(3);
    eventually("node 6 votes in its place", || {
        DATA_SHARDS.iter().all(|&shard| voters(&cluster, 1, shard) == [1, 2, 6]).then_some(())
    });
    // No other node is in that zone.
    cluster.kill(6);
    eventually("it is known why nobody takes its place", || {
        let why = text(shell.done(&["cluster", "explain", "1"]));
        why.contains("it is dead, but every host that could take its place is where another voter is already")
            .then_some(())
    });
    assert_eq!(voters(&cluster, 1, 1), [1, 2, 6]);
    assert_eq!(cluster.put(4, "/v1/keys/k", b"w").status, 200);
    cluster.spawn(3);
    eventually("node 3 votes again", || {
        DATA_SHARDS.iter().all(|&shard| voters(&cluster, 1, shard) == [1, 2, 3]).then_some(())
    });
    cluster.wait_ready(3);
    assert_eq!(cluster.get(3, "/v1/keys/k").text(), "w");
}

#[test]
fn a_policy_moves_replicas_and_who_has_none_forwards() {
    let mut cluster = founded("300");
    await_registered_tags(&cluster);
    let shell = Shell::of(&cluster);
    for shard in DATA_SHARDS {
        let shard = shard.to_string();
        shell.done(&[
            "cluster",
            "set",
            &shard,
            "placement:member=1;geo:zone=us-west-1a",
            "placement:cover=none",
        ]);
    }
    eventually("node 3 carries no key", || {
        DATA_SHARDS
            .iter()
            .all(|&shard| replicas(&cluster, 3, shard, true) == 0 && voters(&cluster, 3, shard) == [1])
            .then_some(())
    });
    assert_eq!(cluster.put(3, "/v1/keys/k", b"v").status, 201);
    for path in ["/v1/keys/k", "/v1/keys/k?stale=true"] {
        assert_eq!(cluster.get(3, path).text(), "v", "{path}");
    }
    assert!(cluster.get(2, "/v1/keys?prefix=k").text().contains("\"val\":\"v\""));
    for shard in DATA_SHARDS {
        shell.done(&["cluster", "set", &shard.to_string(), "placement:member=", "placement:cover="]);
    }
    eventually("all vote again", || {
        DATA_SHARDS.iter().all(|&shard| voters(&cluster, 3, shard) == [1, 2, 3]).then_some(())
    });
    let numbers = rows(&cluster, 1, "shardID").into_iter().filter_map(|row| row["id"].as_u64());
    assert_eq!(numbers.max(), Some(23), "eight replicas came back under numbers of their own");
    cluster.kill(3);
    cluster.restart(3);
    assert_eq!(cluster.get(3, "/v1/keys/k?stale=true").text(), "v", "its disk knows its new replicas");
}

#[test]
fn a_drained_host_is_emptied_by_others() {
    let mut cluster = founded("300");
    await_registered_tags(&cluster);
    assert_eq!(cluster.join(1), 4);
    let shell = Shell::of(&cluster);
    shell.done(&["cluster", "drain", "2"]);
    eventually("node 4 votes in its place", || {
        DATA_SHARDS
            .iter()
            .all(|&shard| {
                voters(&cluster, 1, shard) == [1, 3, 4] && rows(&cluster, 1, "shardID").len() == 4 + 4 * 3
            })
            .then_some(())
    });
    shell.done(&["cluster", "drain", "2", "--undo"]);
    eventually("it has its votes back", || {
        DATA_SHARDS.iter().all(|&shard| voters(&cluster, 1, shard) == [1, 2, 3]).then_some(())
    });
}

/// A restart needs only the node's disk and a quorum, no flags. Only flags that contradict the
/// directory are refused.
#[test]
fn a_node_whose_flags_name_nobody_comes_back_by_its_own_disk() {
    let mut cluster = founded("300");
    await_registered_tags(&cluster);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    assert_eq!(cluster.join(1), 4);
    let nobody = format!("127.0.0.1:{},127.0.0.1:{}", ports::reserve(1), ports::reserve(1));
    for (number, origin) in [(2, &[][..]), (4, &["--join", &nobody][..])] {
        cluster.kill(number);
        cluster.set_origin(number, origin);
        cluster.restart(number);
        assert_eq!(cluster.get(number, "/v1/keys/k").text(), "v");
    }
}
