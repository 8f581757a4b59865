//! The balance of leaderships: nodes lead for about equally many requests. A pure function of who
//! leads, who could, and what clients ask for.
//!
//! Owns which leadership is transferred next. A transfer costs the clients of its shard some
//! milliseconds, so it must bring a gain: the busier of the two nodes has clearly less to do
//! afterwards.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::command::{LeaderLoad, LeadershipTransfer};
use crate::types::{NodeId, ShardId};

/// A leadership counts as this many requests a second more than it serves. So idle shards are
/// balanced by their number, and differences of a few requests a second move nothing.
const LEADERSHIP_COST: u64 = 100;

/// A transfer relieves the busier node by at least this part of its load, so that rates that vary a
/// little from report to report move nothing.
const GAIN_DIVISOR_MIN: u64 = 10;

/// The leader of a shard, and the nodes that could take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardLeadership {
    /// The shard.
    pub shard: ShardId,
    /// The node that leads it.
    pub leader: NodeId,
    /// The nodes that could lead it; the leader may be among them.
    pub candidates: Vec<NodeId>,
    /// Requests a second of all clients.
    pub requests: u64,
}

impl ShardLeadership {
    fn cost(&self) -> u64 {
        self.requests.saturating_add(LEADERSHIP_COST)
    }
}

/// The next leadership to transfer; `None` if no transfer brings enough.
pub fn next_transfer(shards: &[ShardLeadership]) -> Option<LeadershipTransfer> {
    let mut loads: BTreeMap<NodeId, LeaderLoad> = BTreeMap::new();
    for shard in shards {
        let load = loads.entry(shard.leader).or_default();
        load.leads += 1;
        load.requests = load.requests.saturating_add(shard.requests);
    }
    let load = |node: NodeId| loads.get(&node).copied().unwrap_or_default();
    let cost = |node: NodeId| load(node).requests.saturating_add(load(node).leads * LEADERSHIP_COST);
    let gain_min = |before: u64| LEADERSHIP_COST.max(before / GAIN_DIVISOR_MIN);
    let transfers = shards.iter().flat_map(|shard| {
        let others = shard.candidates.iter().filter(|candidate| **candidate != shard.leader);
        others.map(move |&to| (shard, to))
    });
    let found = transfers
        .map(|(shard, to)| {
            let (before, moved) = (cost(shard.leader), shard.cost());
            let after = (before - moved).max(cost(to).saturating_add(moved));
            (Reverse(before), after, cost(to), shard.shard, to, shard.leader)
        })
        .filter(|(Reverse(before), after, ..)| after.saturating_add(gain_min(*before)) <= *before)
        .min();
    found.map(|(_, _, _, shard, to, from)| LeadershipTransfer {
        shard,
        from,
        from_load: load(from),
        to,
        to_load: load(to),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    /// Shards by number, their leaders and their requests a second, on nodes that could lead all.
    fn led(nodes: u64, shards: &[(u64, u64)]) -> Vec<ShardLeadership> {
        let candidates: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let shard = |(number, (leader, requests)): (u64, &(u64, u64))| ShardLeadership {
            shard: ShardId(number),
            leader: NodeId(*leader),
            candidates: candidates.clone(),
            requests: *requests,
        };
        (0..).zip(shards).map(shard).collect()
    }

    fn moved(shards: &[ShardLeadership]) -> Option<(u64, u64, u64)> {
        next_transfer(shards).map(|found| (found.shard.0, found.from.0, found.to.0))
    }

    /// Makes every transfer until none is worth it. Returns how many there were, and the requests a
    /// second of the busiest node then.
    fn settle(shards: &mut [ShardLeadership]) -> (usize, u64) {
        let mut moves = 0;
        while let Some(next) = next_transfer(shards) {
            moves += 1;
            assert!(moves < 1_000, "moves go on for ever: {shards:?}");
            let shard = shards.iter_mut().find(|shard| shard.shard == next.shard);
            shard.expect("the shard of the move").leader = next.to;
        }
        let mut busy: BTreeMap<NodeId, u64> = BTreeMap::new();
        shards.iter().for_each(|shard| *busy.entry(shard.leader).or_default() += shard.requests);
        (moves, busy.into_values().max().unwrap_or_default())
    }

    #[test]
    fn idle_shards_are_balanced_by_their_number() {
        assert_eq!(moved(&led(3, &[(1, 0), (1, 0)])), Some((0, 1, 2)));
        assert_eq!(moved(&led(2, &[(1, 0), (1, 0), (2, 0)])), None, "a move would only exchange the numbers");
        assert_eq!(moved(&led(2, &[(1, 0), (1, 0), (1, 0), (2, 0)])), Some((0, 1, 2)));
        assert_eq!(moved(&led(1, &[(1, 0), (1, 0)])), None);
        assert_eq!(moved(&[]), None);
    }

    #[test]
    fn busy_shards_are_balanced_by_their_requests() {
        let shards = led(3, &[(2, 0), (1, 5_000), (1, 4_000), (3, 10)]);
        assert_eq!(moved(&shards), Some((2, 1, 2)), "to the node that leads for fewer requests");
        let found = next_transfer(&led(2, &[(2, 0), (1, 5_000), (1, 4_000)])).expect("a move");
        assert_eq!(
            found.to_string(),
            "node 1 leads 2 shards, with 9000 requests a second, and node 2 leads 1 shard, with 0"
        );
        let one = led(3, &[(1, 9_000), (2, 0), (3, 0)]);
        assert_eq!(moved(&one), None, "one busy shard is as busy anywhere");
        assert_eq!(moved(&led(3, &[(2, 0), (1, 9_000), (1, 700), (3, 0)])), None, "less than a tenth");
        assert_eq!(moved(&led(3, &[(2, 0), (1, 9_000), (1, 1_200), (3, 0)])), Some((2, 1, 2)));
    }

    #[test]
    fn only_candidates_become_leaders() {
        let mut shards = led(3, &[(1, 5_000), (1, 5_000)]);
        shards[0].candidates = vec![NodeId(1)];
        shards[1].candidates = vec![NodeId(1), NodeId(3)];
        assert_eq!(moved(&shards), Some((1, 1, 3)));
        shards[1].candidates.clear();
        assert_eq!(moved(&shards), None);
    }

    #[test]
    fn moves_end_and_spread_any_load() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..300 {
            let nodes = random.u64(2..10);
            let mut shard = |_| {
                let bits = random.u64(1..16);
                (random.u64(1..=nodes), random.u64(..1 << bits))
            };
            let shards: Vec<(u64, u64)> = (0..60).map(&mut shard).collect();
            let count = random.usize(1..=60);
            let mut shards = led(nodes, &shards[..count]);
            let (moves, busiest) = settle(&mut shards);
            assert!(moves <= 10 * shards.len(), "{moves} moves of {} shards", shards.len());
            let sum: u64 = shards.iter().map(|shard| shard.requests).sum();
            let largest = shards.iter().map(|shard| shard.requests).max().unwrap_or_default();
            let fair = sum / nodes + largest;
            let slack = LEADERSHIP_COST * shards.len() as u64 + fair / 5;
            assert!(busiest <= fair + slack, "{busiest} of {sum} on {nodes} nodes, {largest} the largest");
        }
    }
}
