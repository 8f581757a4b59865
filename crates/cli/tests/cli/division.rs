//! Clusters that are founded with one data shard and divide it.

use serde_json::Value;

use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually, resp};

const KEYS: usize = 300;

/// Slots by data shard, as a node shows them.
fn slots(cluster: &Cluster) -> Vec<u64> {
    let view = cluster.view(1);
    let shards = view["shards"].as_array().expect("shards");
    shards.iter().filter(|shard| shard["id"] != 0).filter_map(|shard| shard["slots"].as_u64()).collect()
}

/// What `cluster top` says about the division, once the leader of the registry knows it.
fn division(shell: &Shell, is_expected: impl Fn(&Value) -> bool) -> Value {
    eventually("the leader shows the division", || {
        let top = shell.json(&["cluster", "top"]);
        Some(top["division"].clone()).filter(|division| is_expected(division))
    })
}

#[test]
fn a_fourth_host_makes_a_cluster_divide_its_shard() {
    let mut cluster = Cluster::start_dividing(3);
    assert_eq!(slots(&cluster), [16_384], "one shard has all slots");
    for number in 0..KEYS {
        let put = cluster.put(1, &format!("/v1/keys/key-{number}"), format!("value-{number}").as_bytes());
        assert_eq!(put.status, 201, "{}", put.text());
    }
    let fourth = cluster.join(2);
    eventually("both shards have half of the slots", || (slots(&cluster) == [8_192, 8_192]).then_some(()));
    for number in 0..KEYS {
        let node = [1, fourth][number % 2];
        let read = cluster.get(node, &format!("/v1/keys/key-{number}"));
        assert_eq!((read.status, read.text()), (200, format!("value-{number}")), "key-{number} on {node}");
    }
    let shell = Shell::of(&cluster);
    let dump = String::from_utf8(shell.done(&["cluster", "dump"])).expect("JSON lines");
    assert!(dump.contains(r#""division:cause":"hosts""#), "{dump}");
    let division = division(&shell, |division| division["shards"] == 2);
    assert_eq!((&division["wanted"], &division["held_back_by"]), (&2.into(), &Value::Null), "{division}");
}

#[test]
fn a_transaction_with_keys_of_several_slots_holds_the_division_back() {
    let mut cluster = Cluster::start_dividing(3);
    let mut client = resp::Client::connect(resp::address_of(cluster.address(1))).expect("it listens");
    assert_eq!(client.ask("MSET a 1 b 2 c 3"), "+OK");
    cluster.join(1);
    let shell = Shell::of(&cluster);
    // The reason names transactions only after every host has reported them.
    let division = division(&shell, |division| {
        let reason = division["held_back_by"].as_str().unwrap_or_default();
        division["wanted"] == 2 && reason.contains("transaction")
    });
    assert_eq!(
        (&division["shards"], &division["spanning_transactions"]),
        (&1.into(), &1.into()),
        "{division}"
    );
    let why = String::from_utf8(shell.done(&["cluster", "explain", "1"])).expect("text");
    assert!(why.contains("1 data shard, 2 wanted by hosts. Not divided: "), "{why}");
    // The operator divides all the same. The keys stay readable; together they are refused.
    shell.done(&["cluster", "add-shard"]);
    shell.done(&["cluster", "rebalance"]);
    eventually("both shards have half of the slots", || (slots(&cluster) == [8_192, 8_192]).then_some(()));
    assert_eq!(client.ask_many("MGET a b c"), ["1", "2", "3"]);
    assert!(client.ask("MSET a 1 b 2 c 3").contains("CROSSSLOT"));
}
