//! A scenario for moves of hot slots: a client writes to keys of one data shard only. In the end
//! other shards must own some of these keys. If a transaction spans slots, no slot may move.
//!
//! Owns the scenario and its verdict. Runs the core as every other run does, without faults. Random
//! runs move slots too, but their load is too small and too short to say which must move.

use std::collections::BTreeMap;

use tidelock_core::deliberate::Faults;
use tidelock_core::event::{DivisionTiming, Timing};
use tidelock_core::slots::slot_of;
use tidelock_core::types::{NodeId, ShardId};

use crate::checkers::Violation;
use crate::event_queue::Micros;
use crate::plan::{NO_DIVISION, Plan};
use crate::trace::Detail;
use crate::world::World;

/// As many data shards as nodes, so that the load never causes a division.
const NODES: u64 = 3;
const DATA_SHARDS: u64 = 3;

/// Time until every shard has a leader and the numbers of leaderships are balanced.
const START: Micros = Micros(30_000_000);

/// Time from the first request until the operations must be balanced. Rates are known after some
/// seconds, and there is one move at a time.
const BALANCED: Micros = Micros(60_000_000);

/// One client, which writes to eight keys in turn.
const CLIENTS: usize = 1;

const BUSY: ShardId = ShardId(1);

/// The transactions that span slots, before the load begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanningTransactions {
    /// No transaction spans slots.
    None,
    /// One transaction spans slots. Nodes remember it for the whole run.
    One,
}

/// Checks that hot slots move, or that they do not because of a transaction.
///
/// # Errors
/// When they do not move, when they move in spite of the transaction, and when a run violates
/// another property.
pub fn check(seed: u64, spanning: SpanningTransactions, deliberate: Faults) -> Result<(), Violation> {
    let base = Plan::fresh_cluster(seed, NODES, DATA_SHARDS);
    let plan = Plan {
        deliberate,
        automatic_division: true,
        division: DivisionTiming { busy_requests_per_second: 20, memory_ticks: 1 << 20, ..NO_DIVISION },
        timing: Timing { balance_ticks: 1, ..base.timing },
        ..base
    };
    let mut world = World::new(&plan, Detail::Hash);
    world.start()?;
    world.run_until(START)?;
    world.start_steady_clients([BUSY], CLIENTS)?;
    if spanning == SpanningTransactions::One {
        world.tell_spanning(NodeId(1), 1);
    }
    world.run_until(START + BALANCED)?;
    let owners = owners(&mut world)?;
    let (most, all) = (owners.values().max().copied().unwrap_or_default(), owners.values().sum::<usize>());
    let is_moved = owners.len() > 1;
    match spanning {
        SpanningTransactions::One if is_moved => {
            violation(format!("a transaction spans slots of {BUSY}, and they moved: {owners:?}"))
        }
        // Each shard could own a third. Moves end once none relieves the busiest shard by a fifth.
        SpanningTransactions::None if 2 * most > all => {
            violation(format!("one shard owns most of the busy keys: {owners:?}"))
        }
        _ => Ok(()),
    }
}

/// How many keys of the clients each shard owns.
fn owners(world: &mut World<'_>) -> Result<BTreeMap<ShardId, usize>, Violation> {
    let Some(slots) = world.host(NodeId(1)).slot_map() else {
        return violation("node 1 is down".to_owned());
    };
    let mut owners = BTreeMap::new();
    for key in world.steady_keys() {
        *owners.entry(slots.shard_of(slot_of(&key))).or_default() += 1;
    }
    Ok(owners)
}

fn violation<T>(text: String) -> Result<T, Violation> {
    Err(Violation::new("slots", text))
}
