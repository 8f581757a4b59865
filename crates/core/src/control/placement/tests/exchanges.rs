//! Exchanges of votes by load.

use core::cmp::Reverse;

use super::defaults::{any_registry, founded, info, settle, votes};
use super::*;
use crate::command::VoteExchange;
use crate::types::LogIndex;

fn rates(shards: &[(u64, u64)]) -> BTreeMap<ShardId, u64> {
    shards.iter().map(|(shard, rate)| (ShardId(*shard), *rate)).collect()
}

/// Hosts in these zones, with data shards of three voters each.
fn registry(zones: &[&str], data_shards: u64) -> Registry {
    let mut registry = founded(zones.len() as u64, data_shards);
    for (node, zone) in (1..).zip(zones) {
        registry.register(LogIndex(node), info(node, zone));
    }
    settle(&mut registry);
    registry
}

fn voters_of(registry: &Registry, shard: ShardId) -> BTreeSet<NodeId> {
    let voters = registry.wanted(shard).filter(|(_, _, role)| *role == VOTER);
    voters.map(|(_, node, _)| node).collect()
}

/// Requests for the data shards in which each host votes, the most first.
fn loads(registry: &Registry, rates: &BTreeMap<ShardId, u64>) -> Vec<u64> {
    let votes_in =
        |node: NodeId| rates.iter().filter(move |(shard, _)| voters_of(registry, **shard).contains(&node));
    let load = |node: &NodeId| votes_in(*node).map(|(_, rate)| rate).sum();
    let mut loads: Vec<u64> = registry.host_entries().keys().map(load).collect();
    loads.sort_unstable_by_key(|load| Reverse(*load));
    loads
}

/// Carries out an exchange as the leaders do.
fn carry_out(registry: &mut Registry, exchange: &VoteExchange) {
    let index = LogIndex(registry.changed().0 + 1);
    registry.assign(index, registry.changed(), &exchange_assignments(exchange));
    assert_eq!(assignments(registry, 16), [], "placement keeps the exchange: {exchange:?}");
    let gone: Vec<_> = registry.replicas().iter().filter(|(_, row)| row.wanted.is_none()).collect();
    let gone: Vec<_> = gone.into_iter().map(|(replica, _)| *replica).collect();
    gone.into_iter().for_each(|replica| drop(registry.forget_replica(index, replica)));
}

#[test]
fn no_host_votes_in_both_busy_shards_in_the_end() {
    let mut registry = registry(&["a", "c", "f", "a", "c", "f"], 4);
    let busy = [ShardId(1), ShardId(3)];
    let both = |registry: &Registry| {
        voters_of(registry, busy[0]).intersection(&voters_of(registry, busy[1])).count()
    };
    assert_eq!((votes(&registry), both(&registry)), ([2; 6].into(), 3));
    let rates = rates(&[(1, 5_000), (2, 10), (3, 4_000)]);
    let first = next_exchange(&registry, &rates, 1_000).expect("an exchange");
    assert_eq!(
        first.to_string(),
        "node 1 votes in shards with 9000 requests a second, and node 4 in shards with 10"
    );
    assert_eq!(
        (first.given, first.returned),
        (ShardId(1), Some(ShardId(2))),
        "node 1 keeps as little as it can"
    );
    assert_eq!(next_exchange(&registry, &rates, 4_010), None, "it relieves node 1 by 4000");
    let mut exchanges = 0;
    while let Some(next) = next_exchange(&registry, &rates, 1_000) {
        carry_out(&mut registry, &next);
        exchanges += 1;
    }
    assert_eq!((exchanges, both(&registry), votes(&registry)), (3, 0, [2; 6].into()));
}

#[test]
fn a_host_with_one_vote_less_gives_none_back() {
    let mut registry = registry(&["a"; 5], 3);
    assert_eq!(votes(&registry), [2, 2, 2, 2, 1]);
    let votes_in = |shard: &u64| voters_of(&registry, ShardId(*shard)).contains(&NodeId(5));
    let busy: Vec<(u64, u64)> =
        (1..=3).filter(|shard| !votes_in(shard)).map(|shard| (shard, 2_000)).collect();
    let next = next_exchange(&registry, &rates(&busy), 1).expect("an exchange");
    assert_eq!((next.to, next.to_requests, next.from_requests), (NodeId(5), 0, 4_000));
    assert_eq!(next.returned, None);
    carry_out(&mut registry, &next);
    let mut after = votes(&registry);
    after.sort_unstable();
    assert_eq!(after, [1, 2, 2, 2, 2]);
    assert_eq!(next_exchange(&registry, &rates(&[(1, 2_000)]), 1), None, "as busy anywhere");
}

#[test]
fn nothing_moves_without_a_gain_or_a_default() {
    let even = registry(&["a", "c", "f", "a", "c", "f"], 4);
    assert_eq!(next_exchange(&even, &BTreeMap::new(), 1), None);
    assert_eq!(
        next_exchange(&even, &rates(&[(1, u64::MAX), (3, u64::MAX)]), 1),
        None,
        "sums do not overflow"
    );
    assert_eq!(next_exchange(&even, &rates(&[(1, 9_000), (3, 1_700)]), 1), None, "less than a fifth");
    let mut own = registry(&["a", "c", "f", "a", "c", "f"], 4);
    for shard in 1..=4 {
        let member = (String::from("placement:member"), Some(String::from("3")));
        own.tag_shard(LogIndex(2_000), ShardId(shard), &[member]);
    }
    let busy = rates(&[(1, 5_000), (3, 5_000)]);
    assert!(next_exchange(&even, &busy, 1).is_some());
    assert_eq!(next_exchange(&own, &busy, 1), None, "an operator chose the voters");
    let old = Registry::founded(&Founding::new(6, 4));
    assert_eq!(next_exchange(&old, &busy, 1), None, "it has no default placement");
}

proptest! {
    /// Exchanges end, each relieves the busier host, and numbers of votes and places stay.
    #[test]
    fn exchanges_end_and_keep_the_balance(
        mut registry in any_registry(),
        bits in prop::collection::vec((0..16_u32, any::<u64>()), 12),
    ) {
        settle(&mut registry);
        let rates: BTreeMap<ShardId, u64> =
            (1..).map(ShardId).zip(bits.into_iter().map(|(bits, rate)| rate % (1 << bits))).collect();
        for turn in 0.. {
            prop_assert!(turn < 500, "exchanges go on for ever");
            let Some(next) = next_exchange(&registry, &rates, 10) else { break };
            let (before, mut counts) = (loads(&registry, &rates), votes(&registry));
            carry_out(&mut registry, &next);
            prop_assert!(loads(&registry, &rates) < before, "{next:?}");
            let mut after = votes(&registry);
            counts.sort_unstable();
            after.sort_unstable();
            prop_assert_eq!(counts, after);
            settle(&mut registry);
        }
    }
}
