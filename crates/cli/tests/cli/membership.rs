//! Hosts are drained, lose and get their votes, and leave, by `tidelock cluster`, while clients
//! write.

use serde_json::{Value, json};

use crate::harness::load::{addresses, assert_nothing_is_lost, await_acknowledged, under_load};
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually};

pub fn text(output: Vec<u8>) -> String {
    String::from_utf8(output).expect("text")
}

/// The voters of a shard, as a node reports.
pub fn voters(cluster: &Cluster, number: usize, shard: u64) -> Vec<u64> {
    let view = cluster.view(number);
    let replicas = view["replicas"].as_array().expect("replicas").iter();
    let votes = |replica: &&Value| replica["shard"] == shard && replica["voter"] == true;
    let mut voters: Vec<u64> =
        replicas.filter(votes).map(|replica| replica["node"].as_u64().expect("a node")).collect();
    voters.sort_unstable();
    voters
}

fn other_than(cluster: &Cluster, number: usize) -> usize {
    cluster.numbers().into_iter().find(|&other| other != number).expect("another node")
}

#[test]
fn a_drained_node_leads_nothing_until_that_is_undone() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let chief = cluster.chief();
    let number = chief.to_string();
    let counters = under_load(addresses(&cluster), |acknowledged| {
        await_acknowledged(acknowledged, 500);
        assert_eq!(text(shell.done(&["cluster", "drain", &number])), format!("node {chief} leads nothing\n"));
        // The drained node may also win an election; it then transfers the leadership again.
        eventually("it leads nothing", || (!cluster.leaders(1).contains(&Some(chief))).then_some(()));
        await_acknowledged(acknowledged, 500);
    });
    assert_nothing_is_lost(&cluster, chief, &counters);
    assert!(text(shell.done(&["cluster", "status"])).contains("voter,draining"));
    let undone = shell.json(&["cluster", "drain", &number, "--undo"]);
    assert_eq!(undone, json!({"node": chief, "draining": false, "done": true}));
    assert!(!text(shell.done(&["cluster", "status"])).contains("draining"));
    let led = text(shell.done(&["cluster", "transfer", "1", &number]));
    assert_eq!(led, format!("node {chief} leads shard 1\n"));
}

#[test]
fn a_shard_is_handed_to_whom_the_operator_names() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    for shard in [0, 2] {
        let leader = eventually("a leader", || cluster.leaders(1)[shard]);
        let heir = other_than(&cluster, leader);
        let arguments = ["cluster", "transfer", &shard.to_string(), &heir.to_string()];
        for _ in 0..2 {
            assert_eq!(shell.json(&arguments), json!({"shard": shard, "leader": heir, "done": true}));
            assert_eq!(cluster.leaders(1)[shard], Some(heir));
        }
    }
    assert!(shell.failed(&["cluster", "transfer", "2", "9"]).contains("answered 400"));
    assert!(shell.failed(&["cluster", "transfer", "99", "1"]).contains("there is no such shard"));
}

#[test]
fn a_vote_is_taken_and_given_back() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    assert_eq!(text(shell.done(&["cluster", "follow", "3"])), "node 3 follows without a vote\n");
    assert_eq!(voters(&cluster, 1, 0), [1, 2]);
    assert!(text(shell.done(&["cluster", "status"])).contains("(no vote)"));
    let response = cluster.send(3, "POST /v1/cluster/hosts/3/add", &[], b"");
    assert_eq!((response.status, response.json()["standing"].as_str()), (202, Some("voter")));
    let noted = shell.json(&["cluster", "add", "3", "--no-wait"]);
    assert_eq!(noted, json!({"node": 3, "standing": "voter", "draining": false, "done": false}));
    assert_eq!(text(shell.done(&["cluster", "add", "3"])), "node 3 may vote\n");
    for shard in 0..5 {
        eventually("it has its votes back", || (voters(&cluster, 1, shard) == [1, 2, 3]).then_some(()));
    }
}

/// Checks that a removed node stops by itself and does not start again.
pub fn assert_gone(cluster: &mut Cluster, node: usize) {
    let exit = cluster.wait_exit(node);
    assert_eq!(exit.code(), Some(0), "{exit}");
    assert!(cluster.log(node).contains("this node was removed from the cluster: stopping"));
    cluster.spawn(node);
    assert_eq!(cluster.wait_exit(node).code(), Some(9));
    assert!(cluster.log(node).contains("To use the host again, empty the directory and start with --join"));
}

/// Removes one of three nodes while clients write through all of them; no acknowledged write is
/// lost.
fn remove_under_load(cluster: &mut Cluster, node: usize, shell: &Shell) {
    let survivors: Vec<usize> = cluster.numbers().into_iter().filter(|&number| number != node).collect();
    let counters = under_load(addresses(cluster), |acknowledged| {
        await_acknowledged(acknowledged, 1_000);
        let removed = text(shell.done(&["cluster", "remove", &node.to_string()]));
        assert_eq!(removed, format!("node {node} is removed\n"));
        assert_gone(cluster, node);
        await_acknowledged(acknowledged, 1_000);
    });
    let expected: Vec<u64> = survivors.iter().map(|&number| number as u64).collect();
    for &survivor in &survivors {
        assert_nothing_is_lost(cluster, survivor, &counters);
        for shard in 0..5 {
            eventually("every node knows who is left", || {
                (voters(cluster, survivor, shard) == expected).then_some(())
            });
        }
    }
}

#[test]
fn a_leader_that_is_asked_itself_is_removed_under_load() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let chief = cluster.chief();
    // The command knows only this node, and switches to those that it has named.
    let shell = Shell::by_way_of(&cluster, &[chief]);
    remove_under_load(&mut cluster, chief, &shell);
    let shell = Shell::by_way_of(&cluster, &[other_than(&cluster, chief)]);
    let again = shell.json(&["cluster", "remove", &chief.to_string()]);
    assert_eq!(
        again,
        json!({"node": chief, "standing": "leaving", "done": true}),
        "asking again is no failure"
    );
    let refused = shell.failed(&["cluster", "add", &chief.to_string()]);
    assert!(refused.contains("409") && refused.contains("Host removed"), "{refused}");
}

#[test]
fn a_follower_is_removed_under_load_and_one_more_then_the_last_stays() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let chief = cluster.chief();
    let follower = other_than(&cluster, chief);
    let shell = Shell::by_way_of(&cluster, &[chief]);
    remove_under_load(&mut cluster, follower, &shell);
    let second = cluster.numbers().into_iter().find(|&number| number != chief && number != follower);
    let second = second.expect("a third node");
    shell.done(&["cluster", "remove", &second.to_string()]);
    assert_gone(&mut cluster, second);
    assert_eq!(voters(&cluster, chief, 1), [chief as u64]);
    let refused = shell.failed(&["cluster", "remove", &chief.to_string()]);
    assert!(refused.contains("409") && refused.contains("Last voter"), "{refused}");
    assert_eq!(cluster.put(chief, "/v1/keys/alone", b"x").status, 201);
}

#[test]
fn a_dead_node_is_removed_and_learns_it_when_it_comes_back() {
    let mut cluster = Cluster::start(3);
    cluster.kill(3);
    let shell = Shell::by_way_of(&cluster, &[1, 2]);
    eventually("a leader takes note", || {
        shell.run(&["cluster", "remove", "3", "--no-wait"]).status.success().then_some(())
    });
    assert_eq!(text(shell.done(&["cluster", "remove", "3"])), "node 3 is removed\n");
    for shard in 0..5 {
        assert_eq!(voters(&cluster, 1, shard), [1, 2]);
    }
    assert_eq!(cluster.put(2, "/v1/keys/k", b"x").status, 201);
    cluster.spawn(3);
    assert_gone(&mut cluster, 3);
}

#[test]
fn a_new_node_takes_the_place_of_a_running_one_in_one_step() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let chief = cluster.chief();
    let shell = Shell::of(&cluster);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    assert_eq!(cluster.join(other_than(&cluster, chief)), 4);
    shell.done(&["cluster", "remove", &chief.to_string()]);
    assert_gone(&mut cluster, chief);
    let expected: Vec<u64> = (1..=4).filter(|&number| number != chief as u64).collect();
    assert_eq!(voters(&cluster, 4, 2), expected);
    assert_eq!(cluster.get(4, "/v1/keys/k").text(), "v");
}

#[test]
fn a_single_node_grows_and_can_be_spared() {
    let mut cluster = Cluster::start(1);
    assert_eq!(cluster.put(1, "/v1/keys/k", b"v").status, 201);
    for member in [1, 2] {
        cluster.join(member);
        assert_eq!(cluster.get(member + 1, "/v1/keys/k").text(), "v", "it answers before it votes");
    }
    for shard in 0..5 {
        eventually("it votes by itself", || (voters(&cluster, 3, shard) == [1, 2, 3]).then_some(()));
    }
    Shell::by_way_of(&cluster, &[3]).done(&["cluster", "remove", "1"]);
    assert_gone(&mut cluster, 1);
    assert_eq!(cluster.get(2, "/v1/keys/k").text(), "v");
    assert_eq!(cluster.put(3, "/v1/keys/k", b"w").status, 200);
}

#[test]
fn a_removal_that_would_leave_no_majority_waits_and_says_why() {
    let mut cluster = Cluster::start(3);
    cluster.kill(3);
    let shell = Shell::by_way_of(&cluster, &[1, 2]);
    for number in [1, 2] {
        eventually("its connections have ended", || {
            (cluster.view(number)["hosts"][2]["connected"] == false).then_some(())
        });
    }
    eventually("a leader takes note", || {
        shell.run(&["cluster", "remove", "2", "--no-wait"]).status.success().then_some(())
    });
    let message = shell.failed(&["cluster", "remove", "2", "--wait-s", "1"]);
    for words in
        ["not yet after 1 s: node 2 is removed", "shard 1: ", "node 3 is not connected", "still wanted"]
    {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(cluster.put(1, "/v1/keys/k", b"x").status, 201, "node 2 votes until there is somebody else");
    cluster.spawn(3);
    assert_eq!(text(shell.done(&["cluster", "remove", "2"])), "node 2 is removed\n");
    assert_eq!(voters(&cluster, 1, 1), [1, 3]);
}

#[test]
fn a_removal_that_waits_is_cancelled() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    assert_eq!(cluster.put(1, "/v1/keys/k", b"x").status, 201);
    cluster.kill(3);
    let shell = Shell::by_way_of(&cluster, &[1, 2]);
    eventually("a leader takes note", || {
        shell.run(&["cluster", "remove", "2", "--no-wait"]).status.success().then_some(())
    });
    eventually("a replica of node 2 is being removed", || {
        let explained = shell.json(&["cluster", "explain", "1"]);
        let mut hosts = explained["hosts"].as_array().expect("hosts").iter();
        let host = hosts.find(|host| host["node"] == 2).expect("it is explained");
        (host["role"] == "none" && host["written"] == true).then_some(())
    });
    let refused = shell.failed(&["cluster", "drain", "2", "--undo"]);
    assert!(refused.contains("`tidelock cluster add` cancels that"), "{refused}");
    assert_eq!(text(shell.done(&["cluster", "add", "2"])), "node 2 may vote\n");
    cluster.spawn(3);
    for shard in 0..5 {
        eventually("all vote again", || (voters(&cluster, 1, shard) == [1, 2, 3]).then_some(()));
    }
    assert_eq!(cluster.view(1)["hosts"][1]["standing"], "voter");
    cluster.kill(3);
    assert_eq!(cluster.get(2, "/v1/keys/k").text(), "x");
}

#[test]
fn a_node_is_named_by_any_of_its_addresses() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let shell = Shell::by_way_of(&cluster, &[1]);
    let view = cluster.view(1);
    let host = view["hosts"].as_array().expect("hosts").iter().find(|host| host["node"] == 3);
    let host = host.expect("node 3");
    let [http, resp, peer] = ["http_address", "resp_address", "peer_address"]
        .map(|address| host[address].as_str().expect("an address").to_owned());
    let drained = shell.run(&["cluster", "drain", &http]);
    assert_eq!(text(drained.stdout), "node 3 leads nothing\n");
    assert!(text(drained.stderr).starts_with(&format!("{http} is node 3\n")));
    assert_eq!(shell.json(&["cluster", "drain", &resp, "--undo"])["node"], 3);
    let unknown = shell.run(&["cluster", "remove", "kv-9:8001"]);
    assert_eq!(unknown.status.code(), Some(3), "{unknown:?}");
    let said = text(unknown.stderr);
    assert!(said.contains("no node has the address kv-9:8001; nothing was done"), "{said}");
    assert!(
        cluster.numbers().iter().all(|&node| said.contains(&cluster.address(node).to_string())),
        "{said}"
    );
    assert_eq!(text(shell.done(&["cluster", "remove", &peer])), "node 3 is removed\n");
    assert_gone(&mut cluster, 3);
}

#[test]
fn what_cannot_be_is_refused() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    for command in ["remove", "follow"] {
        let refused = shell.failed(&["cluster", command, "1"]);
        assert!(refused.contains("409") && refused.contains("last voter"), "{refused}");
    }
    for command in ["add", "remove", "drain"] {
        let unknown = shell.failed(&["cluster", command, "2"]);
        assert!(unknown.contains("404") && unknown.contains("there is no such host"), "{unknown}");
    }
    let unknown = cluster.send(1, "POST /v1/cluster/hosts/2/remove", &[], b"");
    assert!(unknown.status == 404 && unknown.is_problem("unknown-host"), "{unknown:?}");
    let alone = shell.failed(&["cluster", "drain", "1", "--wait-s", "1"]);
    assert!(alone.contains("shard 1: node 1 leads") && alone.contains("no other node votes"), "{alone}");
    assert_eq!(text(shell.done(&["cluster", "drain", "1", "--undo"])), "node 1 may lead again\n");
}
