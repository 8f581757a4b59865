//! Slots move between shards, and replicas between hosts, while clients of every kind read and
//! write, and check every answer.

use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};
use tidelock_core::slots::slot_of;
use tidelock_core::slots::slot_set::SlotSet;

use crate::config::{post, post_through, watch};
use crate::harness::client::TIMEOUT;
use crate::harness::history::{self, History, Nodes};
use crate::harness::load::addresses;
use crate::harness::reports::{Reports, reports};
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually};
use crate::membership::{text, voters};

/// The slots that one of four shards gives away in a rebalance to five: its last fifth.
const FIRST_TO_MOVE: std::ops::Range<u16> = 3_300..4_096;

/// One node's view of slots and moves.
fn moves(cluster: &Cluster, number: usize) -> Value {
    cluster.get(number, "/v1/cluster/moves").json()
}

/// The slots of each shard as a node reports them, once every slot has one shard and no move is
/// left.
fn shares(cluster: &Cluster, number: usize) -> Vec<(u64, SlotSet)> {
    let state = moves(cluster, number);
    assert_eq!(state["moves"], json!([]));
    let share = |share: &Value| {
        let slots = share["slots"].as_str().expect("slots");
        let slots: SlotSet =
            if slots.is_empty() { SlotSet::default() } else { slots.parse().expect("slots") };
        assert_eq!(share["count"], slots.count());
        (share["shard"].as_u64().expect("a shard"), slots)
    };
    let shares: Vec<(u64, SlotSet)> = state["shards"].as_array().expect("shards").iter().map(share).collect();
    let all = shares.iter().fold(SlotSet::default(), |all, (_, share)| all.union(share));
    assert_eq!((all, shares.iter().map(|(_, share)| share.count()).sum::<u32>()), (SlotSet::all(), 16_384));
    shares
}

fn counts(cluster: &Cluster, number: usize) -> Vec<u32> {
    shares(cluster, number).iter().map(|(_, share)| share.count()).collect()
}

/// Whether a node knows a move, and has no moves left.
fn is_at_rest(cluster: &Cluster, number: usize, last: u64) -> Option<()> {
    let answer = cluster.try_send(number, "GET /v1/cluster/moves", &[], b"")?;
    let is_known = answer.status == 200 && answer.json()["last"].as_u64() >= Some(last);
    (is_known && answer.json()["moves"] == json!([])).then_some(())
}

/// Requests moves; returns the number of the last one.
fn ask(shell: &Shell, command: &[&str]) -> u64 {
    let asked = shell.json(&[&["cluster"], command, &["--wait-s", "0"]].concat());
    asked["last"].as_u64().expect("a number")
}

/// Saves backups until no move is left: each is refused, or holds every key once.
fn save_until_rest(cluster: &Cluster, shell: &Shell, last: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("backup");
    let save = ["backup", "save", "--out", file.to_str().expect("text"), "--output", "json"];
    eventually("nothing is on its way", || {
        let is_over = cluster.numbers().iter().all(|&number| is_at_rest(cluster, number, last).is_some());
        let output = shell.run(&save);
        if output.status.success() {
            let saved: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(saved["keys"], history::keys(), "{saved}");
        } else {
            let refused = String::from_utf8_lossy(&output.stderr);
            assert!(["409", "503"].iter().any(|status| refused.contains(status)), "{refused}");
        }
        (is_over && output.status.success()).then_some(())
    });
}

/// A namespace in one of the first slots that move, with watchers that have seen its present state.
fn watched(cluster: &Cluster) -> (String, Vec<Reports<(u64, u64)>>) {
    let names = (0..).map(|number| format!("ns{number}"));
    let name = names.into_iter().find(|name| FIRST_TO_MOVE.contains(&slot_of(name.as_bytes())));
    let name = name.expect("names do not come to an end");
    let changes = json!([{"pair": "p", "value": 0},
        {"container": "c", "fields": [{"key": "a", "fieldType": 1, "value": "p"}]}]);
    let made = post(cluster, 1, &format!("{name}/publish"), &json!({"changes": changes, "create": true}));
    assert_eq!(made.status, 200);
    let watchers = (0..cluster.numbers().len()).map(|first| {
        let (told, heard) = reports();
        let (addresses, name) = (addresses(cluster), name.clone());
        thread::spawn(move || watch(addresses, &name, first, told));
        assert_eq!(heard.recv_timeout(TIMEOUT).expect("the present state").1, 0);
        heard
    });
    let watchers = watchers.collect();
    (name, watchers)
}

/// Shard 1's leader; `None` while it is unknown.
fn giver(cluster: &Cluster) -> usize {
    eventually("shard 1 has a leader", || cluster.leaders(1)[1])
}

#[test]
fn slots_move_and_nobody_notices() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let shell = Shell::of(&cluster);
    let history = History::begin(&cluster);
    let (name, watchers) = watched(&cluster);
    let pair = format!("{name}/pairs/p");
    let mut told = Vec::new();
    let mut change = |cluster: &Cluster, node: usize, number: u64| {
        told.push((post_through(cluster, node, &pair, &json!({"value": number})), number));
    };

    history.under_load(addresses(&cluster), Nodes::Stay, |history| {
        history.await_progress(5);
        let added = text(shell.done(&["cluster", "add-shard", "--name", "orders"]));
        assert!(added.starts_with("shard 5 is there"), "{added}");
        eventually("node 1 knows of it", || {
            (moves(&cluster, 1)["shards"][4] == json!({"shard": 5, "count": 0, "slots": ""})).then_some(())
        });
        change(&cluster, 2, 1);
        save_until_rest(&cluster, &shell, ask(&shell, &["rebalance"]));
        change(&cluster, 2, 2);
        for number in cluster.numbers() {
            assert_eq!(counts(&cluster, number), [3_277, 3_277, 3_277, 3_277, 3_276]);
        }
        assert_eq!(
            text(shell.done(&["cluster", "rebalance"])),
            "nothing to move: all slots are where they should be\n"
        );
        history.await_progress(5);

        // And back, to a shard other than the one that gave them.
        let received = shares(&cluster, 1)[4].1.to_string();
        let done = text(shell.done(&["cluster", "move-slots", &received, "--to", "2"]));
        assert!(done.ends_with("all slots are where they should be\n"), "{done}");
        change(&cluster, 3, 3);
        assert_eq!(counts(&cluster, 1), [3_277, 6_553, 3_277, 3_277, 0]);
        history.await_progress(5);
    });

    let giver = giver(&cluster);
    let other = cluster.numbers().into_iter().find(|&number| number != giver).expect("another");
    history.under_load(addresses(&cluster), Nodes::Change, |history| {
        history.await_progress(5);
        // All slots move to one shard, one giver after the other; the first giver's leader dies
        // meanwhile.
        let last = ask(&shell, &["move-slots", "0-16383", "--to", "5"]);
        cluster.kill(giver);
        change(&cluster, other, 4);
        cluster.restart(giver);
        history.await_progress(5);
        for number in cluster.numbers() {
            eventually("nothing is on its way", || is_at_rest(&cluster, number, last));
            assert_eq!(counts(&cluster, number), [0, 0, 0, 0, 16_384]);
        }
        change(&cluster, giver, 5);
        history.await_progress(5);
    });

    for number in cluster.numbers() {
        history.check_end(&cluster, number);
    }
    check_watchers(&watchers, &told);
    let dump = cluster.get(1, "/v1/cluster/dump").text();
    assert!(dump.contains("\"lastShardID\":5") && dump.contains("\"orders\""), "{dump}");
    let slots = shell.json(&["cluster", "slots"]);
    assert_eq!(slots["shards"][4], json!({"shard": 5, "count": 16_384, "slots": "0-16383"}));
    eventually("what was given away is gone, and replicas are equal", || {
        (shell.json(&["cluster", "status", "--verify", "--wait-s", "60"])["equal"] == true).then_some(())
    });
    check_backup(&shell, &history);
    restart_all(&mut cluster);
    for number in cluster.numbers() {
        history.check_end(&cluster, number);
        assert_eq!(counts(&cluster, number), [0, 0, 0, 0, 16_384]);
    }
}

/// Checks that every watcher got each change once, in order.
fn check_watchers(watchers: &[Reports<(u64, u64)>], told: &[(u64, u64)]) {
    for (watcher, heard) in watchers.iter().enumerate() {
        let heard: Vec<(u64, u64)> =
            told.iter().map(|_| heard.recv_timeout(TIMEOUT).expect("a change")).collect();
        assert_eq!(heard, told, "watcher {watcher}: each change once, in order");
    }
}

/// Saves a backup, and compares a new cluster that is restored from it with the history.
fn check_backup(shell: &Shell, history: &History) {
    let (directory, new) = (tempfile::tempdir().expect("a directory"), Cluster::start(1));
    let file = directory.path().join("backup").to_str().expect("text").to_owned();
    eventually("a backup is made", || {
        shell.run(&["backup", "save", "--out", &file]).status.success().then_some(())
    });
    Shell::of(&new).done(&["backup", "restore", &file]);
    history.check_end(&new, 1);
}

/// Kills all nodes, and starts them from their disks.
fn restart_all(cluster: &mut Cluster) {
    for number in cluster.numbers() {
        cluster.kill(number);
    }
    for number in cluster.numbers() {
        cluster.spawn(number);
    }
    for number in cluster.numbers() {
        cluster.wait_ready(number);
    }
}

#[test]
fn replicas_move_and_nobody_notices() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let history = History::begin(&cluster);
    let founders: Vec<SocketAddr> = addresses(&cluster);
    let drained = cluster.chief();
    let lost = cluster.numbers().into_iter().find(|&number| number != drained).expect("another");
    history.under_load(founders, Nodes::Change, |history| {
        history.await_progress(5);
        assert_eq!(cluster.join(drained), 4);
        let shell = Shell::of(&cluster);
        // Its leaderships and then its replicas move to the new node.
        shell.done(&["cluster", "drain", &drained.to_string()]);
        let stayed: Vec<u64> = (1..=4).filter(|&number| number != drained as u64).collect();
        eventually("the newcomer votes in its place", || {
            (1..=4).all(|shard| voters(&cluster, lost, shard) == stayed).then_some(())
        });
        history.await_progress(5);
        shell.done(&["cluster", "drain", &drained.to_string(), "--undo"]);
        eventually("it has its votes back", || {
            let votes = |shard| voters(&cluster, lost, shard).contains(&(drained as u64));
            ((1..=4).filter(|shard| votes(*shard)).count() == 3).then_some(())
        });
        history.await_progress(5);

        // One host is lost for good, and the new node replaces it.
        cluster.kill(lost);
        let others: Vec<usize> = cluster.numbers().into_iter().filter(|&number| number != lost).collect();
        let shell = Shell::by_way_of(&cluster, &others);
        let removed = text(shell.done(&["cluster", "remove", &lost.to_string()]));
        assert_eq!(removed, format!("node {lost} is removed\n"));
        history.await_progress(5);
    });
    for number in cluster.numbers().into_iter().filter(|&number| number != lost) {
        history.check_end(&cluster, number);
    }
    let verified =
        Shell::by_way_of(&cluster, &[drained, 4]).json(&["cluster", "status", "--verify", "--wait-s", "60"]);
    assert_eq!(verified["equal"], true, "{verified}");
}

#[test]
fn a_shard_without_slots_is_removed_for_good() {
    let mut cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    assert!(shell.failed(&["cluster", "remove-shard", "1"]).contains("owns slots"));
    assert_eq!(shell.json(&["cluster", "add-shard"])["shard"], 5);
    let carried = |cluster: &Cluster, number: usize| {
        let metrics = cluster.get(number, "/metrics").text();
        metrics.contains("tidelock_shard_term{shard=\"5\"}")
    };
    eventually("every node carries the new shard", || {
        (1..=3).all(|number| carried(&cluster, number)).then_some(())
    });
    let text = shell.done(&["cluster", "remove-shard", "5"]);
    assert_eq!(String::from_utf8_lossy(&text), "shard 5 is removed; its replicas release their disk\n");
    eventually("no node carries it any more", || {
        (!(1..=3).any(|number| carried(&cluster, number))).then_some(())
    });
    assert!(shell.failed(&["cluster", "remove-shard", "5"]).contains("there is no such shard"));
    cluster.kill(2);
    cluster.restart(2);
    assert_eq!(shell.json(&["cluster", "add-shard"])["shard"], 6, "no number comes twice");
    eventually("a restarted node does not bring it back", || {
        let view = cluster.view(2);
        let shards = view["shards"].as_array()?.iter().map(|shard| shard["id"].as_u64());
        let is_known = shards.eq([0, 1, 2, 3, 4, 6].map(Some));
        (is_known && !carried(&cluster, 2)).then_some(())
    });
}
