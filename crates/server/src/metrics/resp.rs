//! Counters of the Redis protocol's server.

use super::{DurationHistogram, raise};
use crate::counters::{Counter, PerWorker};

/// The metric that counts a command: one for each family of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Commands on whole values.
    Strings,
    /// Commands on keys, regardless of their values.
    Keys,
    /// Commands on numbers in values.
    Numbers,
    /// Commands on the expiry of keys.
    Expiry,
    /// Commands of transactions: `MULTI`, `EXEC`, `WATCH` and others.
    Transactions,
    /// Commands that run scripts.
    Scripts,
    /// Commands on channels.
    PubSub,
    /// Commands that iterate over all keys.
    Scan,
    /// Commands about the cluster.
    Cluster,
    /// Commands about the connection or the node.
    Node,
    /// A name that is not in the table.
    Unknown,
}

impl Family {
    /// Every family, in the order of their numbers.
    pub const ALL: [Family; 11] = [
        Family::Strings,
        Family::Keys,
        Family::Numbers,
        Family::Expiry,
        Family::Transactions,
        Family::Scripts,
        Family::PubSub,
        Family::Scan,
        Family::Cluster,
        Family::Node,
        Family::Unknown,
    ];

    /// The text of the label in `/metrics`.
    pub fn text(self) -> &'static str {
        match self {
            Family::Strings => "strings",
            Family::Keys => "keys",
            Family::Numbers => "numbers",
            Family::Expiry => "expiry",
            Family::Transactions => "transactions",
            Family::Scripts => "scripts",
            Family::PubSub => "pubsub",
            Family::Scan => "scan",
            Family::Cluster => "cluster",
            Family::Node => "node",
            Family::Unknown => "unknown",
        }
    }
}

/// Counters of the Redis server of one worker.
#[derive(Debug, Default)]
pub struct RespCounters {
    /// Commands executed, by family.
    pub commands: CommandCounters,
    /// Latency of commands, from parsing to the encoded reply. Each command counts once; those of a
    /// pipeline that were parsed together are timed from the same moment.
    pub durations: DurationHistogram,
    /// Connections accepted and served, in total.
    pub connections_accepted: Counter,
    /// Connections that are open at present.
    pub connections_open: Counter,
    /// Connections refused because there was no room.
    pub connections_refused: Counter,
    /// Connections cut because their clients took nothing.
    pub connections_stalled: Counter,
    /// Connections closed after malformed or too long commands.
    pub protocol_errors: Counter,
    /// Failures to accept for lack of descriptors or memory.
    pub accept_errors: Counter,
    /// Transactions (`MULTI`, `MSET`, `MSETNX`) with keys of several slots.
    pub cross_slot_transactions: Counter,
}

/// Number of commands of each family.
#[derive(Debug, Default)]
pub struct CommandCounters([Counter; Family::ALL.len()]);

impl RespCounters {
    /// Returns the sum over all workers.
    pub fn sum(workers: &PerWorker<RespCounters>) -> RespCounters {
        workers.totals(|worker| {
            let connections = [
                &worker.connections_accepted,
                &worker.connections_open,
                &worker.connections_refused,
                &worker.connections_stalled,
                &worker.protocol_errors,
                &worker.accept_errors,
                &worker.cross_slot_transactions,
            ];
            worker.commands.0.iter().chain(worker.durations.counters()).chain(connections).collect()
        })
    }
}

impl CommandCounters {
    /// Counts a command of this family.
    pub fn raise(&self, family: Family) {
        raise(&self.0[family as usize]);
    }

    /// Number of commands of a family.
    pub fn of(&self, family: Family) -> u64 {
        self.0[family as usize].get()
    }

    /// Number of commands of all families.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }
}
