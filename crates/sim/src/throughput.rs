//! How the throughput of a cluster grows with its size, on machines of a given capacity.
//!
//! Owns the model's workload: clients that write to the leaders of their shards as fast as they are
//! answered, with more and more hosts, each three of which have one data shard. Runs the core as
//! every other run does, without faults.

use tidelock_core::event::Timing;
use tidelock_core::types::ShardId;

use crate::capacity::Capacity;
use crate::checkers::Violation;
use crate::event_queue::Micros;
use crate::plan::Plan;
use crate::trace::Detail;
use crate::world::World;

/// The result for one size of the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Number of hosts.
    pub nodes: u64,
    /// Number of data shards.
    pub data_shards: u64,
    /// Acknowledged writes in a second.
    pub writes_per_second: f64,
    /// How much of its time the busiest processor was occupied, from 0 to 1.
    pub busiest: f64,
    /// How much of their time all processors were occupied on average, from 0 to 1.
    pub average: f64,
    /// How much of its time the busiest processor was occupied before there were requests.
    pub idle: f64,
}

/// Time until every shard has a leader and leaderships are balanced.
const START: Micros = Micros(20_000_000);

/// Time from the first request until the measurement begins.
const WARM_UP: Micros = Micros(50_000);

/// Length of the measurement.
const MEASURED: Micros = Micros(200_000);

/// Clients of each data shard: enough that its leader always has work.
const CLIENTS_PER_SHARD: usize = 256;

/// Nodes for each data shard. With three replicas, every node then has one replica of a data shard.
const NODES_PER_SHARD: u64 = 3;

/// Measures a cluster of so many nodes, at least three.
///
/// # Errors
/// When a run violates a property, a shard has no leader, or a write is refused.
pub fn measure(nodes: u64, capacity: Capacity) -> Result<Throughput, Violation> {
    let data_shards = nodes / NODES_PER_SHARD;
    let base = Plan::fresh_cluster(nodes, nodes, data_shards);
    let plan = Plan { capacity: Some(capacity), timing: Timing { balance_ticks: 1, ..base.timing }, ..base };
    let mut world = World::new(&plan, Detail::Hash);
    world.start()?;
    world.run_until(START)?;
    let idle_ns = world.processor_time_ns().into_iter().max().unwrap_or_default();
    world.start_steady_clients((1..=data_shards).map(ShardId), CLIENTS_PER_SHARD)?;
    world.run_until(START + WARM_UP)?;
    let before = (world.steady_clients().acknowledged, world.processor_time_ns());
    world.run_until(START + WARM_UP + MEASURED)?;
    let after = (world.steady_clients().acknowledged, world.processor_time_ns());
    if world.steady_clients().refused > 0 {
        let text = format!("{} writes were refused", world.steady_clients().refused);
        return Err(Violation::new("throughput", text));
    }
    let share = |(before, after): (&u64, &u64)| (after - before) as f64 / (MEASURED.0 * 1_000) as f64;
    let shares: Vec<f64> = before.1.iter().zip(&after.1).map(share).collect();
    Ok(Throughput {
        nodes,
        data_shards,
        writes_per_second: (after.0 - before.0) as f64 / MEASURED.as_seconds(),
        busiest: shares.iter().copied().fold(0.0, f64::max),
        average: shares.iter().sum::<f64>() / nodes as f64,
        idle: idle_ns as f64 / (START.0 * 1_000) as f64,
    })
}
