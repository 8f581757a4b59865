//! Whether votes are balanced by load: clients write to two shards in which one node votes, and to
//! no other shard. In the end no node may vote in both.
//!
//! Owns the scenario and its verdict. Runs the core as every other run does, without faults. Random
//! runs do not check this, because their load is too small and too short.

use std::collections::BTreeSet;

use tidelock_core::deliberate::Faults;
use tidelock_core::event::DivisionTiming;
use tidelock_core::types::{NodeId, ShardId};

use crate::checkers::Violation;
use crate::event_queue::Micros;
use crate::plan::{NO_DIVISION, Plan};
use crate::trace::Detail;
use crate::world::World;

/// Each node votes in two data shards. Two busy shards have six votes, one for each node.
const NODES: u64 = 6;
const DATA_SHARDS: u64 = 4;

/// Time until every shard has a leader.
const START: Micros = Micros(30_000_000);

/// Time from the first request until the votes must be balanced. Nodes know the rates of requests
/// after some seconds. The two shards have up to three voters in common, and each needs an
/// exchange; exchanges follow one another.
const BALANCED: Micros = Micros(60_000_000);

/// Clients of each busy shard.
const CLIENTS_PER_SHARD: usize = 2;

/// Checks that no node votes in two busy shards in the end.
///
/// # Errors
/// If a node does, or if the run violates another property.
pub fn check(seed: u64, deliberate: Faults) -> Result<(), Violation> {
    let base = Plan::fresh_cluster(seed, NODES, DATA_SHARDS);
    let division = DivisionTiming { busy_requests_per_second: 20, ..NO_DIVISION };
    let plan = Plan { deliberate, division, ..base };
    let mut world = World::new(&plan, Detail::Hash);
    world.start()?;
    world.run_until(START)?;
    let busy = with_a_common_voter(&mut world)?;
    world.start_steady_clients(busy, CLIENTS_PER_SHARD)?;
    world.run_until(START + BALANCED)?;
    match common_voters(&mut world, busy)?.first() {
        Some(node) => violation(format!("node {node} votes in both busy shards, {busy:?}")),
        None => Ok(()),
    }
}

fn with_a_common_voter(world: &mut World<'_>) -> Result<[ShardId; 2], Violation> {
    for one in 1..=DATA_SHARDS {
        for other in one + 1..=DATA_SHARDS {
            let pair = [ShardId(one), ShardId(other)];
            if !common_voters(world, pair)?.is_empty() {
                return Ok(pair);
            }
        }
    }
    violation("no node votes in two data shards".to_owned())
}

fn common_voters(world: &mut World<'_>, shards: [ShardId; 2]) -> Result<BTreeSet<NodeId>, Violation> {
    let [one, other] = shards.map(|shard| voters(world, shard));
    Ok(&one? & &other?)
}

/// The voters of a shard by the log of its leader.
fn voters(world: &mut World<'_>, shard: ShardId) -> Result<BTreeSet<NodeId>, Violation> {
    let leader = world.leader(shard);
    let membership = leader.and_then(|leader| world.host(leader).membership(shard));
    let Some(membership) = membership else {
        return violation(format!("shard {shard} has no leader"));
    };
    Ok(membership.voters.iter().filter_map(|replica| membership.node(*replica)).collect())
}

fn violation<T>(text: String) -> Result<T, Violation> {
    Err(Violation::new("votes", text))
}
