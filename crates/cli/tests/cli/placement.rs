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

/// As the reference document shows it, with the flags of `make test-node-1` to `-6`.
#[test]
fn six_nodes_in_three_zones() {
    let options = Options { flags: vec!["--dead-after-s", "2"] };
    let mut cluster = Cluster::start_prepared(3, &options, |cluster| {
        for (number, zone) in [(1, "a"), (2, "c"), (3, "f")] {
            let flags = zone_flags(zone);
            cluster.add_flags(number, &flags.each_ref().map(String::as_str));
            let policies = ["placement:member=3;geo:region=us-central1", "placement:vary=geo:zone"];
            policies.iter().for_each(|policy| cluster.add_flags(number, &["--shard-tag", policy]));
        }
    });
    await_registered_tags(&cluster);
    let shell = Shell::by_way_of(&cluster, &[1, 2]);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    let header = cluster.get(2, "/v1/cluster/dump").text();
    for part in
        ["{\"index\":", "\"hosts\":3,\"shards\":5,\"replicas\":15,\"lastReplicaID\":15,\"lastShardID\":4"]
    {
        assert!(header.contains(part), "{header}");
    }
    let tags = r#"{"placement:member":"3;geo:region=us-central1","placement:vary":"geo:zone"}"#;
    let tags: Value = serde_json::from_str(tags).expect("tags");
    for shard in rows(&cluster, 1, "name") {
        assert_eq!(shard["tags"], if shard["id"] == 0 { Value::Null } else { tags.clone() });
    }
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
    eventually("three follow the registry, without a vote", || {
        let follow = replicas(&cluster, 4, 0, true) == 3 && replicas(&cluster, 4, 0, false) == 3;
        follow.then_some(())
    });
    for shard in DATA_SHARDS {
        assert_eq!(voters(&cluster, 4, shard), [1, 2, 3]);
        assert_eq!(replicas(&cluster, 4, shard, true), 0, "no policy names them");
    }
    for number in [4, 5, 6] {
        assert_eq!(cluster.get(number, "/v1/keys/k").text(), "v");
        assert_eq!(cluster.get(number, "/v1/keys/k?stale=true").text(), "v");
    }
    let why = text(shell.done(&["cluster", "explain", "1"]));
    assert!(why.contains("one of 3 voters by the shard's policy, at geo:zone=us-west-1a"), "{why}");
    assert!(why.contains("no vote: node 1 votes at geo:zone=us-west-1a already"), "{why}");

    // Node 6 is in the zone of node 3.
    cluster.kill(3);
    eventually("node 6 votes in its place", || {
        DATA_SHARDS.iter().all(|&shard| voters(&cluster, 1, shard) == [1, 2, 6]).then_some(())
    });
    // A replica of node 3 that is still being removed could not come back.
    eventually("the replicas of node 3 are gone", || {
        DATA_SHARDS.iter().all(|&shard| replicas(&cluster, 1, shard, true) == 0).then_some(())
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
    eventually("it votes in as many shards as the others", || {
        let votes = |shard: &&u64| voters(&cluster, 1, **shard).contains(&2);
        (DATA_SHARDS.iter().filter(votes).count() == 3).then_some(())
    });
}

/// Six founders with the defaults, and three hosts that join: three voters in three zones for every
/// shard, and the votes are spread over all hosts.
#[test]
fn hosts_that_join_help_by_themselves() {
    let zones = ["a", "c", "f", "a", "c", "f"];
    let mut cluster = Cluster::start_prepared(6, &Options::default(), |cluster| {
        for (number, zone) in (1..).zip(zones) {
            let flags = zone_flags(zone);
            cluster.add_flags(number, &flags.each_ref().map(String::as_str));
        }
    });
    await_registered_tags(&cluster);
    let zone = |node: u64| zones[(node as usize - 1) % 3];
    let votes = |cluster: &Cluster| {
        let data = DATA_SHARDS.iter().flat_map(|&shard| voters(cluster, 1, shard));
        let mut votes = std::collections::BTreeMap::<u64, usize>::new();
        data.for_each(|node| *votes.entry(node).or_default() += 1);
        votes
    };
    let are_spread = |cluster: &Cluster, shard| {
        let voters = voters(cluster, 1, shard);
        let mut zones: Vec<&str> = voters.iter().map(|&node| zone(node)).collect();
        zones.sort_unstable();
        voters.len() == 3 && zones == ["a", "c", "f"]
    };
    assert!((0..=4).all(|shard| are_spread(&cluster, shard)));
    assert_eq!(votes(&cluster).into_values().collect::<Vec<_>>(), [2; 6]);
    assert_eq!(cluster.put(6, "/v1/keys/k", b"v").status, 201);
    let shell = Shell::by_way_of(&cluster, &[1]);
    let why = text(shell.done(&["cluster", "explain", "1"]));
    assert!(why.contains("by the cluster's default, at geo:zone=us-west-1a (it votes in 2 data"), "{why}");
    let why = text(shell.done(&["cluster", "explain", "0"]));
    assert!(why.contains("one of 3 voters of the registry"), "{why}");

    for zone in ["a", "c", "f"] {
        let flags = zone_flags(zone);
        cluster.join_with(1, &flags.each_ref().map(String::as_str));
    }
    eventually("every host votes, and the registry has five voters", || {
        let votes = votes(&cluster);
        let is_done = votes.len() == 9 && votes.values().all(|&count| count <= 2);
        (is_done && voters(&cluster, 1, 0).len() == 5).then_some(())
    });
    assert!((1..=4).all(|shard| are_spread(&cluster, shard)));
    for number in cluster.numbers() {
        assert_eq!(cluster.get(number, "/v1/keys/k").text(), "v");
    }
}

#[test]
fn the_default_is_changed_and_new_shards_inherit_it() {
    let cluster = Cluster::start(5);
    cluster.await_registered();
    let shell = Shell::of(&cluster);
    assert_eq!(cluster.get(1, "/v1/cluster/default").text(), r#"{"tags":{"placement:member":"3"}}"#);
    for (tag, clue) in [
        ("placement:members=5", "is no policy"),
        ("placment:member=5", "is no policy"),
        ("placement:member=", "needs placement:member"),
        ("owner=us", "`owner` is no policy"),
    ] {
        let refused = shell.failed(&["cluster", "set", "--default", tag]);
        assert!(refused.contains("400") && refused.contains(clue), "{refused}");
    }
    let done = text(shell.done(&["cluster", "set", "--default", "placement:member=5"]));
    assert_eq!(done, "the cluster has its default\n");
    shell.done(&["cluster", "add-shard"]);
    shell.done(&["cluster", "set", "2", "placement:member=1"]);
    for shard in [1, 2, 3, 4, 5] {
        let count = if shard == 2 { 1 } else { 5 };
        eventually("the default holds where no policy does", || {
            (voters(&cluster, 1, shard).len() == count).then_some(())
        });
    }
    let why = text(shell.done(&["cluster", "explain", "5"]));
    assert!(why.contains("one of 5 voters by the cluster's default"), "{why}");
    let why = text(shell.done(&["cluster", "explain", "2"]));
    assert!(why.contains("one of 1 voter by the shard's policy"), "{why}");
    assert_eq!(voters(&cluster, 1, 0).len(), 3, "the registry has its own number");
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
