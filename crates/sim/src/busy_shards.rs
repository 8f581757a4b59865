//! Whether leaderships are balanced by load: clients write to two shards that one node leads, and
//! to no other shard. In the end two nodes must lead them.
//!
//! Owns the scenario and its verdict. Runs the core as every other run does, without faults. Random
//! runs do not check this, because their load is too small and too short.

use std::collections::BTreeMap;

use tidelock_core::deliberate::Faults;
use tidelock_core::event::Timing;
use tidelock_core::types::{NodeId, ShardId};

use crate::checkers::Violation;
use crate::event_queue::Micros;
use crate::plan::Plan;
use crate::trace::Detail;
use crate::world::World;

/// More data shards than nodes, so that one node leads two of them although each leads as many as
/// the others.
const NODES: u64 = 3;
const DATA_SHARDS: u64 = 5;

/// Time until every shard has a leader and the numbers of leaderships are balanced.
const START: Micros = Micros(30_000_000);

/// Time from the first request until the busy shards must have different leaders: rates are known
/// after some seconds, and one leadership is transferred at a time.
const BALANCED: Micros = Micros(30_000_000);

/// Clients of each busy shard.
const CLIENTS_PER_SHARD: usize = 2;

/// Checks that the leaderships of two busy shards are on two nodes in the end.
///
/// # Errors
/// When one node leads both, and when a run violates another property.
pub fn check(seed: u64, deliberate: Faults) -> Result<(), Violation> {
    let base = Plan::fresh_cluster(seed, NODES, DATA_SHARDS);
    let plan = Plan { deliberate, timing: Timing { balance_ticks: 1, ..base.timing }, ..base };
    let mut world = World::new(&plan, Detail::Hash);
    world.start()?;
    world.run_until(START)?;
    let Some(busy) = led_by_one_node(&world) else {
        return Err(Violation::new("leaderships", "no node leads two data shards".to_owned()));
    };
    world.start_steady_clients(busy, CLIENTS_PER_SHARD)?;
    world.run_until(START + BALANCED)?;
    let leaders = busy.map(|shard| world.leader(shard));
    if leaders[0].is_some() && leaders[0] == leaders[1] {
        let text = format!("{:?} leads both busy shards, {busy:?}", leaders[0]);
        return Err(Violation::new("leaderships", text));
    }
    Ok(())
}

fn led_by_one_node(world: &World<'_>) -> Option<[ShardId; 2]> {
    let mut led: BTreeMap<NodeId, Vec<ShardId>> = BTreeMap::new();
    for shard in (1..=DATA_SHARDS).map(ShardId) {
        led.entry(world.leader(shard)?).or_default().push(shard);
    }
    led.into_values().find_map(|shards| shards.first_chunk().copied())
}
