//! The log of each shard as the cluster committed it, and what the clocks showed.
//!
//! Owns the collection while a run goes on; snapshots cut the logs themselves. That replicas agree on it, `agreement` sees to.

use std::collections::{BTreeMap, BTreeSet};

use tidelock_core::command::Write;
use tidelock_core::types::{LogIndex, ShardId, UnixMillis};

/// Everything that was committed.
#[derive(Debug, Default)]
pub struct Ledger {
    shards: BTreeMap<ShardId, Log>,
    clocks: BTreeSet<UnixMillis>,
}

#[derive(Debug, Default)]
struct Log {
    entries: u64,
    writes: Vec<Write>,
}

impl Ledger {
    /// Takes in what a replica calls committed and nobody did before. `entry` is asked for indexes up to `committed`.
    pub fn observe(
        &mut self,
        shard: ShardId,
        committed: LogIndex,
        entry: impl Fn(LogIndex) -> Option<Vec<Write>>,
    ) {
        let log = self.shards.entry(shard).or_default();
        while log.entries < committed.0
            && let Some(writes) = entry(LogIndex(log.entries + 1))
        {
            log.writes.extend(writes);
            log.entries += 1;
        }
    }

    /// A node was told what time it is.
    pub fn clock(&mut self, time: UnixMillis) {
        self.clocks.insert(time);
    }

    /// The writes of each data shard, in their order.
    pub fn shards(&self) -> impl Iterator<Item = (ShardId, &[Write])> {
        let data = self.shards.iter().filter(|(shard, _)| **shard != ShardId::PRIME);
        data.map(|(shard, log)| (*shard, &log.writes[..]))
    }

    /// Whether a clock ever showed this time.
    pub fn was_shown(&self, time: UnixMillis) -> bool {
        self.clocks.contains(&time)
    }
}
