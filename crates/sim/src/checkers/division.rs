//! A data shard is added only if one is wanted. While clients send transactions that span slots,
//! none is added, and no hot slots move.
//!
//! It reads the reports of load on their way to the leader, judges each division when its leader
//! logs it, and computes by itself how many shards the hosts call for.

use std::collections::{BTreeMap, BTreeSet};

use tidelock_core::command::{DivisionCause, HostRole, RegistryView, RegistryWrite, Write};
use tidelock_core::event::DivisionTiming;
use tidelock_core::types::{LogIndex, NodeId, ShardId, Ticks};

use super::Violation;
use super::online::{LoggedTurn, Observation, OnlineChecker};
use super::placement::fits;
use crate::event_queue::Micros;
use crate::history::Incarnation;

/// First byte of a report of load, with and without groups of slots. The number of transactions
/// that span slots follows.
const KIND_LOAD: u8 = 11;
const KIND_SLOT_LOAD: u8 = 13;

/// A report may be this many intervals old when the leader decides by it.
const REPORT_INTERVALS: u64 = 3;

/// What is known of the transactions that span slots.
#[derive(Debug, Default)]
pub struct Divisions {
    /// The last report of each host that a process has handled: when, and of how many transactions.
    reports: BTreeMap<(Incarnation, NodeId), (Ticks, u64)>,
    /// When each process last counted such a transaction of its own clients.
    own: BTreeMap<Incarnation, Ticks>,
    /// Reports that a process has not handled yet.
    arrived: BTreeMap<(Incarnation, NodeId), u64>,
    /// Processes that have not counted their own transactions yet.
    counted: BTreeSet<Incarnation>,
    /// The divisions that were judged, by the registry on which they are based.
    judged: BTreeSet<LogIndex>,
    /// The moves of hot slots that were judged, by the registry on which they are based.
    moved: BTreeSet<LogIndex>,
    /// When the cluster divides; `None`: not by itself, and nothing is judged.
    timing: Option<DivisionTiming>,
}

/// A turn of a process.
#[derive(Debug)]
struct Turn<'a> {
    /// The process.
    at: Incarnation,
    /// Its time.
    ticks: Ticks,
    /// What it is about to log.
    logged: &'a [Write],
}

impl Divisions {
    /// Creates the checker of a cluster that divides by itself at these times, or does not.
    pub fn new(timing: Option<DivisionTiming>) -> Divisions {
        Divisions { timing, ..Divisions::default() }
    }

    /// Number of divisions.
    pub fn count(&self) -> u64 {
        self.judged.len() as u64
    }

    /// Number of moves of hot slots.
    pub fn slot_moves(&self) -> u64 {
        self.moved.len() as u64
    }

    /// A frame arrives at a process.
    fn arrived(&mut self, to: Incarnation, from: NodeId, payload: &[u8]) {
        if let Some((&(KIND_LOAD | KIND_SLOT_LOAD), rest)) = payload.split_first() {
            self.arrived.insert((to, from), varint(rest));
        }
    }

    /// Clients of a process send transactions that span slots.
    fn counted(&mut self, at: Incarnation) {
        self.counted.insert(at);
    }

    /// A process has handled everything that had arrived.
    fn handled(&mut self, turn: &Turn<'_>) {
        let is_its = |(to, _): &(Incarnation, NodeId)| *to == turn.at;
        let reports = self.arrived.iter().filter(|(key, _)| is_its(key));
        self.reports.extend(reports.map(|(key, spanning)| (*key, (turn.ticks, *spanning))));
        self.arrived.retain(|key, _| !is_its(key));
        if self.counted.remove(&turn.at) {
            self.own.insert(turn.at, turn.ticks);
        }
    }

    /// Judges the divisions among what a process is about to log. Call it before
    /// [`Divisions::handled`]: what arrived in the same turn may have come after the decision.
    ///
    /// # Errors
    /// When a division is not wanted, or parts what recent transactions span.
    fn logged(
        &mut self,
        turn: &Turn<'_>,
        timing: DivisionTiming,
        registry: impl Fn() -> Option<RegistryView>,
    ) -> Result<(), Violation> {
        for write in turn.logged {
            let Write::Registry(write) = write else { continue };
            let (seen, cause) = match **write {
                RegistryWrite::Divide { seen, cause } => (seen, Some(cause)),
                RegistryWrite::MoveHotSlots { seen, .. } => (seen, None),
                _ => continue,
            };
            let judged = if cause.is_some() { &mut self.judged } else { &mut self.moved };
            if !judged.insert(seen) {
                continue;
            }
            let Some(registry) = registry() else { continue };
            // Otherwise the registry has changed in this turn, and the change will do nothing.
            if registry.index == seen {
                cause.map_or(Ok(()), |cause| judge_need(&registry, timing, cause))?;
                self.judge_spanning(turn, timing, &registry)?;
            }
        }
        Ok(())
    }

    fn judge_spanning(
        &self,
        turn: &Turn<'_>,
        timing: DivisionTiming,
        registry: &RegistryView,
    ) -> Result<(), Violation> {
        let now = turn.ticks.0;
        if self.own.get(&turn.at).is_some_and(|at| now < at.0 + timing.memory_ticks) {
            return violation(format!(
                "{:?} separates slots, and its own clients have transactions that span slots",
                turn.at
            ));
        }
        let serves = |node: NodeId| {
            let mut rows = registry.host_entries.iter();
            rows.any(|(of, row)| *of == node && row.standing != HostRole::Removed && !row.is_dead)
        };
        for ((to, from), (at, spanning)) in &self.reports {
            let is_recent = now < at.0 + REPORT_INTERVALS * timing.report_ticks;
            if *to == turn.at && is_recent && *spanning > 0 && serves(*from) {
                return violation(format!(
                    "{to:?} separates slots at {now}, and node {from} has reported {spanning} transactions at {at}"
                ));
            }
        }
        Ok(())
    }
}

impl OnlineChecker for Divisions {
    fn observe(&mut self, _: Micros, observation: &Observation<'_>) -> Result<(), Violation> {
        let Some(timing) = self.timing else { return Ok(()) };
        match *observation {
            Observation::FrameArrived { to, from, payload } => self.arrived(to, from, payload),
            Observation::SpanningCounted(at) => self.counted(at),
            Observation::Logs(LoggedTurn { at, ticks, logged, registry, .. }) => {
                let turn = Turn { at, ticks, logged };
                self.logged(&turn, timing, registry)?;
                self.handled(&turn);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Judges that another shard is wanted for this cause.
fn judge_need(
    registry: &RegistryView,
    timing: DivisionTiming,
    cause: DivisionCause,
) -> Result<(), Violation> {
    let (shards, (able, wanted)) = (data_shards(registry), wanted(registry).unwrap_or_default());
    let is_wanted = is_automatic(registry)
        && match cause {
            DivisionCause::Hosts => shards < wanted,
            DivisionCause::Load => shards < able && timing.busy_requests_per_second < u64::MAX,
        };
    if is_wanted {
        return Ok(());
    }
    violation(format!("{shards} shards are divided by {cause:?}, {able} hosts call for {wanted}"))
}

/// Whether a cluster is divided automatically.
pub fn is_automatic(registry: &RegistryView) -> bool {
    let prime = registry.shards.iter().find(|(shard, _)| *shard == ShardId::PRIME);
    prime.is_some_and(|(_, row)| row.tags.contains_key("division:automatic"))
}

/// Whether a cluster has as many data shards as its hosts call for; true also for one that is not
/// divided automatically.
pub fn has_wanted_shards(registry: &RegistryView) -> bool {
    let wanted = wanted(registry).map_or(0, |(_, wanted)| wanted);
    !is_automatic(registry) || data_shards(registry) >= wanted
}

/// Judges a cluster for which an operator chose the number of shards.
///
/// # Errors
/// When a shard was added by a division.
pub fn judge_founding_shards(registry: &RegistryView) -> Result<(), Violation> {
    let divided = registry.shards.iter().find(|(_, row)| row.tags.contains_key("division:cause"));
    match divided {
        Some((shard, _)) => violation(format!("shard {shard} was added, and an operator chose the number")),
        None => Ok(()),
    }
}

fn data_shards(registry: &RegistryView) -> u64 {
    registry.shards.iter().filter(|(shard, _)| *shard != ShardId::PRIME).count() as u64
}

/// The hosts that may vote in data shards, and the number of shards that they call for.
fn wanted(registry: &RegistryView) -> Option<(u64, u64)> {
    let member = registry.default_tags.as_ref()?.get("placement:member")?;
    let (voters, conditions) = member.split_once(';').unwrap_or((member, ""));
    let able = registry.host_entries.iter().filter(|(_, row)| {
        let is_able = row.standing == HostRole::Voter && !row.draining && !row.is_dead;
        is_able && row.host.as_ref().is_some_and(|host| fits(conditions, &host.info.tags))
    });
    let able = able.count() as u64;
    Some((able, able.div_ceil(voters.parse().ok()?)))
}

/// The number at the beginning of bytes, in groups of seven bits, the lowest first.
fn varint(bytes: &[u8]) -> u64 {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap_or_default();
    bytes[..=end].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
}

fn violation<T>(text: String) -> Result<T, Violation> {
    Err(Violation::new("division", text))
}
