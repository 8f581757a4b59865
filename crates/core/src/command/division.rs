//! The division of data shards, as nodes report and show it.
//!
//! Owns the types and their texts. `control::division` decides.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use crate::codec::codes;
use crate::slots::SlotGroup;
use crate::types::{NodeId, ShardId};

/// Why another data shard is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DivisionCause {
    /// There are more hosts than the voters of the data shards take.
    Hosts,
    /// A data shard is busy.
    Load,
}

impl DivisionCause {
    /// The cause as one word.
    pub fn name(self) -> &'static str {
        match self {
            DivisionCause::Hosts => "hosts",
            DivisionCause::Load => "load",
        }
    }
}

codes!(DivisionCause as "cause of a division" {
    DivisionCause::Hosts => 1,
    DivisionCause::Load => 2,
});

/// The load of one host, as it reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostLoad {
    /// Recent transactions of its clients that had keys of several slots of one shard.
    pub spanning: u64,
    /// Requests a second of its clients, by shard.
    pub rates: BTreeMap<ShardId, u64>,
    /// Operations on keys a second of its clients, by group of slots.
    pub groups: BTreeMap<SlotGroup, u64>,
}

impl HostLoad {
    /// Requests a second of the clients of all these hosts, by shard.
    pub fn rates_of_all<'a>(loads: impl IntoIterator<Item = &'a HostLoad>) -> BTreeMap<ShardId, u64> {
        sums(loads.into_iter().flat_map(|load| &load.rates))
    }

    /// Operations on keys a second of the clients of all these hosts, by group of slots.
    pub fn groups_of_all<'a>(loads: impl IntoIterator<Item = &'a HostLoad>) -> BTreeMap<SlotGroup, u64> {
        sums(loads.into_iter().flat_map(|load| &load.groups))
    }
}

fn sums<'a, K: Copy + Ord + 'a>(rates: impl Iterator<Item = (&'a K, &'a u64)>) -> BTreeMap<K, u64> {
    let mut sums: BTreeMap<K, u64> = BTreeMap::new();
    for (key, rate) in rates {
        let sum = sums.entry(*key).or_default();
        *sum = sum.saturating_add(*rate);
    }
    sums
}

/// How many data shards a cluster has and should have, as the leader of its prime shard sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DivisionView {
    /// Number of data shards.
    pub shards: u64,
    /// Number of data shards that hosts and load call for; at least `shards`.
    pub wanted: u64,
    /// Why one more is wanted; `None` if none is.
    pub cause: Option<DivisionCause>,
    /// Recent transactions of all clients that had keys of several slots of one shard.
    pub spanning: u64,
    /// What holds the next shard back; `None` if none is wanted, or if it is about to be added.
    pub blocker: Option<DivisionBlocker>,
}

/// What holds back a division or a move of hot slots, the reason that lasts longest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DivisionBlocker {
    /// This many recent transactions had keys in several slots of one shard. They would fail if
    /// these slots belonged to different shards.
    Spanning(u64),
    /// These hosts have not reported their load lately, so their transactions are not known.
    Unreported(Vec<NodeId>),
    /// Slots move, or replicas are being created or removed, or did so until recently.
    Changing,
}

impl fmt::Display for DivisionBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DivisionBlocker::Spanning(count) => {
                let (noun, verb) =
                    if *count == 1 { ("transaction", "spans") } else { ("transactions", "span") };
                write!(f, "{count} {noun} in the last hour {verb} slots of one shard")
            }
            DivisionBlocker::Unreported(nodes) => {
                f.write_str("no recent report of load from node")?;
                f.write_str(if nodes.len() == 1 { "" } else { "s" })?;
                for (position, node) in nodes.iter().enumerate() {
                    write!(f, "{} {node}", if position == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            DivisionBlocker::Changing => f.write_str("slots or replicas move, or did so until recently"),
        }
    }
}
