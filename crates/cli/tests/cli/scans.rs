//! `SCAN` at a node that has just started, while slots move: a finished iteration has returned
//! every key.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::json;

use crate::harness::resp::{Client, address_of};
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually};

const KEYS: usize = 200;

/// The shards to which all slots move, one after the other, with lower and higher numbers than the
/// givers.
const MOVES: [u64; 6] = [5, 2, 5, 1, 5, 4];

/// Iterates over all keys through one connection, and retries refused steps.
fn scan(client: &mut Client) -> BTreeSet<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), BTreeSet::new());
    loop {
        cursor = eventually("a step of the iteration is answered", || {
            let answer = client.ask(&format!("SCAN {cursor} COUNT 20"));
            if answer.starts_with('-') {
                assert!(answer.starts_with("-CLUSTERDOWN"), "{answer}");
                return None;
            }
            assert_eq!(answer, "*2");
            let next = client.reply().expect("a cursor");
            let count = client.reply().expect("a length");
            let count: usize = count.trim_start_matches('*').parse().expect("a number");
            keys.extend((0..count).map(|_| client.reply().expect("a key")));
            Some(next)
        });
        if cursor == "0" {
            return keys;
        }
    }
}

fn connect(address: SocketAddr) -> Client {
    eventually("the node takes connections", || Client::connect(address).ok())
}

#[test]
fn a_node_that_has_just_started_misses_no_key() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let shell = Shell::of(&cluster);
    let mut client = connect(address_of(cluster.address(1)));
    let keys: BTreeSet<String> = (0..KEYS).map(|number| format!("key:{number}")).collect();
    for key in &keys {
        // On a busy machine an election may come in between; to set the key again is safe.
        eventually("the key is set", || (client.ask(&format!("SET {key} v")) == "+OK").then_some(()));
    }
    shell.done(&["cluster", "add-shard"]);
    for (turn, to) in MOVES.into_iter().enumerate() {
        let restarted = turn % 3 + 1;
        shell.json(&["cluster", "move-slots", "0-16383", "--to", &to.to_string(), "--wait-s", "0"]);
        cluster.kill(restarted);
        cluster.spawn(restarted);
        let found = scan(&mut connect(address_of(cluster.address(restarted))));
        assert_eq!(found, keys, "node {restarted}, while slots move to shard {to}");
        cluster.wait_ready(restarted);
        for number in cluster.numbers() {
            eventually("all slots are there", || {
                let shards = cluster.get(number, "/v1/cluster/moves").json();
                (shards["moves"] == json!([]) && shards["shards"][to as usize - 1]["count"] == 16_384)
                    .then_some(())
            });
        }
    }
}
