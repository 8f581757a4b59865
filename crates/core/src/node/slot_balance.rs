//! Moves of hot slots from busy data shards, which the leader of the prime shard plans.
//!
//! Owns their timing: one decision for each interval between reports of load, and one move at a
//! time. [`control::slot_balance`](crate::control::slot_balance) decides. Only clusters that divide
//! their data shards automatically are balanced. In others an operator has assigned the slots.

use super::Node;
use crate::command::{HotSlotMoveView, RegistryWrite, Write};
use crate::control::{division, slot_balance};
use crate::deliberate::Fault;
use crate::router::Requester;
use crate::version::ClusterVersion;

impl Node {
    /// If this node leads the prime shard, decides which slots move next, and proposes the move
    /// once it was wanted for long enough and nothing holds it back.
    pub(super) fn balance_slots(&mut self) {
        if !self.now.0.is_multiple_of(self.options.division.report_ticks) {
            return;
        }
        let next = self.next_slot_move();
        self.slot_balance.set_next(next);
        let Some(HotSlotMoveView { next, blocker }) = self.due(&self.slot_balance) else { return };
        if self.is_held_back(blocker.as_ref()) {
            return;
        }
        let (seen, slots, to) = (self.registry().changed(), next.slots.clone(), next.to);
        self.slot_balance.set_proposed(seen, self.now);
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
        let leaders = slot_balance::exchanging_shards(registry, |shard| self.leader(shard));
        let rates = self.load_reports.groups();
        let next = slot_balance::next_move(&leaders, registry.slots(), &rates, self.gain_min())?;
        Some(HotSlotMoveView { next, blocker: division::blocker(registry, &self.cluster_load()) })
    }
}
