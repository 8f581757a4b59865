//! Which faults met which stages of the protocols: a count for each pair.
//!
//! A bug often needs one fault at one stage: a leader that dies while a slot move is frozen, a
//! snapshot that is installed during a joint configuration. A pair that is never met is a part of
//! the store that no run has tested. Besides faults, a few events of the protocols count, because
//! they interrupt other stages as faults do.
//!
//! Owns the stages, and how they are recognised from what a node reports. To add one: a row of
//! `STAGES`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidelock_core::event::{NodeStatus, ShardStatus};
use tidelock_core::trace::{SnapshotStage, TraceKind};
use tidelock_core::types::ShardId;

use crate::faults::Fault;
use crate::host::Host;

/// A stage of a protocol in which a node may be.
#[derive(Debug)]
struct Stage {
    name: &'static str,
    is_met: fn(&View<'_>) -> bool,
}

/// A node, as far as stages are recognised from it.
struct View<'a> {
    host: &'a Host,
    status: &'a NodeStatus,
    election_ticks: u64,
}

impl View<'_> {
    fn any_shard(&self, condition: impl Fn(&ShardStatus) -> bool) -> bool {
        self.status.shards.iter().any(condition)
    }
}

/// Every stage, in the order of the table's columns.
const STAGES: &[Stage] = &[
    Stage { name: "started lately", is_met: |view| view.host.ticks().0 < view.election_ticks },
    Stage { name: "knows no leader", is_met: |view| view.any_shard(|shard| shard.leader.is_none()) },
    Stage {
        name: "leads the prime shard",
        is_met: |view| view.any_shard(|shard| shard.leads && shard.shard == ShardId::PRIME),
    },
    Stage {
        name: "leads with uncommitted entries",
        is_met: |view| view.any_shard(|shard| shard.leads && shard.last > shard.committed),
    },
    Stage { name: "applies late", is_met: |view| view.any_shard(|shard| shard.applied < shard.committed) },
    Stage {
        name: "joint configuration",
        is_met: |view| {
            view.any_shard(|shard| {
                view.host.membership(shard.shard).is_some_and(|membership| membership.is_joint())
            })
        },
    },
    Stage { name: "does not vote", is_met: |view| view.any_shard(|shard| !shard.votes) },
    Stage { name: "makes a snapshot", is_met: |view| view.any_shard(|shard| shard.makes_snapshot) },
    Stage { name: "drives a copy", is_met: |view| view.status.moves.iter().any(|moving| !moving.is_frozen) },
    Stage {
        name: "drives a frozen move",
        is_met: |view| view.status.moves.iter().any(|moving| moving.is_frozen),
    },
    Stage {
        name: "takes part in a move",
        is_met: |view| view.any_shard(|shard| shard.is_moving) && view.status.moves.is_empty(),
    },
    Stage { name: "disk takes no writes", is_met: |view| view.status.disk_stalled },
    Stage { name: "disk was slow", is_met: |view| view.status.disk_unsteady },
    Stage { name: "retires", is_met: |view| view.status.retiring },
    Stage { name: "a peer is silent", is_met: |view| !view.status.silent.is_empty() },
];

/// The events that count besides faults.
const EVENTS: &[&str] = &["elected", "stepped down", "joint configuration entered", "snapshot installed"];

/// The name of an event that counts, if it does.
pub(crate) fn event_name(kind: &TraceKind) -> Option<&'static str> {
    match kind {
        TraceKind::Elected => Some(EVENTS[0]),
        TraceKind::SteppedDown(_) => Some(EVENTS[1]),
        TraceKind::EnteredJoint => Some(EVENTS[2]),
        TraceKind::Snapshot { stage: SnapshotStage::Installed, .. } => Some(EVENTS[3]),
        _ => None,
    }
}

/// How often each fault or event met each stage, on the same node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Density {
    counts: BTreeMap<&'static str, Vec<u64>>,
}

impl Density {
    /// Counts a fault or an event on a node, once for each stage in which the node is.
    pub(crate) fn count(&mut self, name: &'static str, host: &Host, election_ticks: u64) {
        let Some(status) = host.status() else { return };
        let view = View { host, status: &status, election_ticks };
        let counts = self.counts.entry(name).or_insert_with(|| vec![0; STAGES.len()]);
        for (count, stage) in counts.iter_mut().zip(STAGES) {
            *count += u64::from((stage.is_met)(&view));
        }
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Density) {
        for (name, counts) in &other.counts {
            let own = self.counts.entry(name).or_insert_with(|| vec![0; STAGES.len()]);
            own.iter_mut().zip(counts).for_each(|(own, count)| *own += count);
        }
    }

    /// The table in Markdown: faults and events as rows, stages as columns.
    pub fn to_markdown(&self) -> String {
        let mut table = String::from("| |");
        STAGES.iter().for_each(|stage| table.extend([" ", stage.name, " |"]));
        table.push_str("\n|---|");
        STAGES.iter().for_each(|_| table.push_str("---:|"));
        for name in Fault::NAMES.iter().chain(EVENTS) {
            table.extend(["\n| ", name, " |"]);
            let counts = self.counts.get(name);
            for stage in 0..STAGES.len() {
                let _ = write!(table, " {} |", counts.map_or(0, |counts| counts[stage]));
            }
        }
        table.push('\n');
        table
    }
}
