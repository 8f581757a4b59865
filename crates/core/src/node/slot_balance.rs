//! Moves of hot slots from busy data shards, which the leader of the prime shard plans.
//!
//! Owns their timing: one decision for each interval between reports of load, and one move at a
//! time. [`control::slot_balance`](crate::control::slot_balance) decides. Only clusters that divide
//! their data shards automatically are balanced. In others an operator has assigned the slots.

use super::Node;
use crate::command::{HotSlotMove, HotSlotMoveView, RegistryWrite, Write};
use crate::control::{division, slot_balance};
use crate::deliberate::Fault;
use crate::router::Requester;
use crate::types::{LogIndex, Ticks};
use crate::version::ClusterVersion;

/// A move relieves the busiest shard by at least this part of the requests that make a shard busy.
const GAIN_OF_BUSY_DIVISOR: u64 = 20;

/// What the leader of the prime shard knows of the balance of slots.
#[derive(Default)]
pub(super) struct SlotBalance {
    /// The next move. Computed once in each interval between reports, and shown by views.
    next: Option<HotSlotMoveView>,
    /// Number of consecutive intervals in which a move was wanted.
    wanted_intervals: u64,
    /// The last move that this node proposed: the registry on which it is based, when, and the
    /// move.
    proposed: Option<(LogIndex, Ticks, HotSlotMove)>,
}

impl SlotBalance {
    /// The next move. `None` if none is wanted, if slots are not balanced, or if this node does not
    /// lead the prime shard.
    pub(super) fn next(&self) -> Option<&HotSlotMoveView> {
        self.next.as_ref()
    }

    /// The last move that this node proposed, and when it did.
    pub(super) fn proposed(&self) -> Option<(Ticks, &HotSlotMove)> {
        self.proposed.as_ref().map(|(_, at, proposed)| (*at, proposed))
    }
}

impl Node {
    /// If this node leads the prime shard, decides which slots move next, and proposes the move
    /// once it was wanted for long enough and nothing holds it back.
    pub(super) fn balance_slots(&mut self) {
        let (timing, now) = (self.options.division, self.now);
        if !now.0.is_multiple_of(timing.report_ticks) {
            return;
        }
        let next = self.next_slot_move();
        let balance = &mut self.slot_balance;
        balance.wanted_intervals = if next.is_some() { balance.wanted_intervals + 1 } else { 0 };
        balance.next = next;
        let is_lasting = balance.wanted_intervals >= timing.busy_intervals;
        let proposed = balance.proposed.as_ref().map(|(seen, at, _)| (*seen, *at));
        let Some(HotSlotMoveView { next, blocker }) = self.slot_balance.next.clone() else { return };
        if !is_lasting || self.awaits(proposed) || self.is_held_back(blocker.as_ref()) {
            return;
        }
        let (seen, slots, to) = (self.registry().changed(), next.slots.clone(), next.to);
        self.slot_balance.proposed = Some((seen, now, next));
        let write = RegistryWrite::MoveHotSlots { seen, slots, to };
        self.router.write(Requester::NODE, Write::from(write), &mut self.groups);
    }

    /// The move that is wanted. Divisions and transfers of leadership come first, because they
    /// change which node serves which slots.
    fn next_slot_move(&self) -> Option<HotSlotMoveView> {
        let registry = self.registry();
        if registry.version() < ClusterVersion::WITH_SLOT_LOADS
            || self.options.faults.has(Fault::HotSlotsNotMoved)
            || self.division_view()?.cause.is_some()
            || self.leadership_balance.next().is_some()
        {
            return None;
        }
        let gain_min = self.options.division.busy_requests_per_second / GAIN_OF_BUSY_DIVISOR;
        let leaders = slot_balance::exchanging_shards(registry, |shard| self.leader(shard));
        let rates = self.load_reports.groups();
        let next = slot_balance::next_move(&leaders, registry.slots(), &rates, gain_min)?;
        Some(HotSlotMoveView { next, blocker: division::blocker(registry, &self.cluster_load()) })
    }
}
