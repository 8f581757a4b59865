//! Counters of the Redis protocol's server.

use super::raise;
use crate::counters::{Counter, PerWorker};

/// The metric that counts a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Whole values.
    Strings,
    /// Keys, regardless of their values.
    Keys,
    /// Numbers in values.
    Numbers,
    /// Expiry of keys.
    Expiry,
    /// Transactions.
    Transactions,
    /// Iterations over all keys.
    Scan,
    /// The cluster.
    Cluster,
    /// The connection or the node.
    Node,
    /// A name that is not in the table.
    Unknown,
}

impl Family {
    /// Every family, in the order of their numbers.
    pub const ALL: [Family; 9] = [
        Family::Strings,
        Family::Keys,
        Family::Numbers,
        Family::Expiry,
        Family::Transactions,
        Family::Scan,
        Family::Cluster,
        Family::Node,
        Family::Unknown,
    ];

    /// The label's value.
    pub fn text(self) -> &'static str {
        match self {
            Family::Strings => "strings",
            Family::Keys => "keys",
            Family::Numbers => "numbers",
            Family::Expiry => "expiry",
            Family::Transactions => "transactions",
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
    /// Commands by family.
    pub commands: CommandCounters,
    /// Connections accepted and served.
    pub connections_accepted: Counter,
    /// Connections open now.
    pub connections_open: Counter,
    /// Connections refused because there was no room.
    pub connections_refused: Counter,
    /// Connections cut because their clients took nothing.
    pub connections_stalled: Counter,
    /// Connections closed after malformed or too long commands.
    pub protocol_errors: Counter,
    /// Failures to accept for lack of descriptors or memory.
    pub accept_errors: Counter,
}

/// Commands by family.
#[derive(Debug, Default)]
pub struct CommandCounters([Counter; Family::ALL.len()]);

impl RespCounters {
    /// The sum over all workers.
    pub fn sum(workers: &PerWorker<RespCounters>) -> RespCounters {
        let sum = RespCounters::default();
        for worker in workers.all() {
            for (count, others) in sum.all().zip(worker.all()) {
                count.add(others.get());
            }
        }
        sum
    }

    fn all(&self) -> impl Iterator<Item = &Counter> {
        let connections = [
            &self.connections_accepted,
            &self.connections_open,
            &self.connections_refused,
            &self.connections_stalled,
            &self.protocol_errors,
            &self.accept_errors,
        ];
        self.commands.0.iter().chain(connections)
    }
}

impl CommandCounters {
    /// Counts a command.
    pub fn raise(&self, family: Family) {
        raise(&self.0[family as usize]);
    }

    /// Commands of a family.
    pub fn of(&self, family: Family) -> u64 {
        self.0[family as usize].get()
    }

    /// All commands.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }
}
