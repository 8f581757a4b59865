//! A replica in a shard of three, for the tests of this module's parts.

use super::{Group, GroupOptions};
use crate::deliberate::Faults;
use crate::event::Timing;
use crate::founding::Founding;
use crate::machine::Machine;
use crate::storage::{RecoveredLog, RecoveredShard};
use crate::types::ShardId;

/// The first of three founding replicas, with this log.
pub(super) fn group(shard: ShardId, log: RecoveredLog) -> Group {
    first_of(3, shard, log)
}

/// The first of so many founding replicas.
pub(super) fn first_of(nodes: u64, shard: ShardId, log: RecoveredLog) -> Group {
    let founding = Founding::new(nodes, 1).voters_of(shard);
    let timing = Timing {
        tick_ms: 50,
        election_ticks: 10,
        heartbeat_ticks: 2,
        request_ticks: 20,
        dead_ticks: 1_000,
        balance_ticks: 0,
        slow_request_ticks: 20,
        access_stale_ticks: 3_000,
        founding_ticks: 20,
    };
    let options = GroupOptions {
        shard,
        replica: founding[0].0,
        founding,
        machine: Machine::new(shard, &Founding::new(nodes, 1)),
        timing,
        seed: 1,
        elections_held: false,
        faults: Faults::NONE,
    };
    Group::new(options, RecoveredShard { log, ..RecoveredShard::default() })
}
