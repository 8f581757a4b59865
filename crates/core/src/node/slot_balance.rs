//! Moves of slots from busy data shards, which the leader of the prime shard plans.
//!
//! Owns their timing: one look for each interval between reports of load, and one move at a time.
//! [`control::slot_balance`](crate::control::slot_balance) decides. Only clusters whose leader adds
//! data shards by itself are balanced, because in others an operator has given out the slots.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::Node;
use crate::command::{DivisionBlocker, RegistryWrite, SlotTransfer, SlotTransferView, Write};
use crate::control::division::{self, CAUSE_TAG};
use crate::control::slot_balance::{self, ShardShare};
use crate::deliberate::Fault;
use crate::router::Requester;
use crate::types::{LogIndex, ShardId, Ticks};
use crate::version::ClusterVersion;

/// A move relieves the busier shard by at least this part of what makes a shard busy.
const GAIN_OF_BUSY_DIVISOR: u64 = 20;

/// What the leader of the prime shard knows of the balance of slots.
#[derive(Default)]
pub(super) struct SlotBalance {
    /// The next move. Computed once each interval between reports, and shown by views.
    next: Option<SlotTransferView>,
    /// For how many intervals in a row there was one.
    intervals: u64,
    /// The move that was proposed last, on which registry it was based, and when.
    proposed: Option<(LogIndex, Ticks, SlotTransfer)>,
}

impl SlotBalance {
    /// The slots that move next, so that data shards serve about equally many operations. `None` if
    /// none do, if slots are not balanced, or if this node does not lead the prime shard.
    pub(super) fn next(&self) -> Option<&SlotTransferView> {
        self.next.as_ref()
    }

    /// The move that this node proposed last, and when.
    pub(super) fn proposed(&self) -> Option<(Ticks, &SlotTransfer)> {
        self.proposed.as_ref().map(|(_, at, transfer)| (*at, transfer))
    }
}

impl Node {
    /// Decides which slots move next for balance, and has them moved if nothing holds that back, if
    /// this node leads the prime shard.
    pub(super) fn balance_slots(&mut self) {
        let (timing, now) = (self.options.division, self.now);
        if !now.0.is_multiple_of(timing.report_ticks) {
            return;
        }
        let next = self.next_slot_transfer();
        let balance = &mut self.slot_balance;
        balance.intervals = if next.is_some() { balance.intervals + 1 } else { 0 };
        let is_lasting = balance.intervals >= timing.busy_intervals;
        balance.next = next;
        let Some(SlotTransferView { transfer, blocker }) = self.slot_balance.next.clone() else { return };
        let is_ignored = matches!(blocker, Some(DivisionBlocker::Spanning(_)))
            && self.options.faults.has(Fault::SpanningTransactionsIgnored);
        let (changed, retry_ticks) = (self.registry().changed(), self.options.timing.request_ticks);
        let last = self.slot_balance.proposed.as_ref();
        let is_waiting = last.is_some_and(|(seen, at, _)| *seen == changed && now.0 < at.0 + retry_ticks);
        if is_waiting || !is_lasting || (blocker.is_some() && !is_ignored) {
            return;
        }
        let (slots, to) = (transfer.slots.clone(), transfer.to);
        self.slot_balance.proposed = Some((changed, now, transfer));
        let moved = RegistryWrite::MoveBusySlots { seen: changed, slots, to };
        self.router.write(Requester::NODE, Write::from(moved), &mut self.groups);
    }

    /// The slots that should move next. Another data shard, and leaderships, come first: both
    /// change who serves what.
    fn next_slot_transfer(&self) -> Option<SlotTransferView> {
        if self.registry().version() < ClusterVersion::WITH_SLOT_LOADS
            || self.options.faults.has(Fault::SlotsByNumber)
            || self.division_view()?.cause.is_some()
            || self.leadership_balance.next().is_some()
        {
            return None;
        }
        let gain_min = self.options.division.busy_requests_per_second / GAIN_OF_BUSY_DIVISOR;
        let shares = self.shard_shares()?;
        let transfer = slot_balance::next_transfer(&shares, &self.load_reports.groups(), gain_min)?;
        let blocker = division::blocker(self.registry(), &self.cluster_load());
        Some(SlotTransferView { transfer, blocker })
    }

    /// The data shards that own slots and have leaders. `None` if their tags differ, apart from why
    /// they were added: then an operator has chosen which keys are where.
    fn shard_shares(&self) -> Option<Vec<ShardShare>> {
        let registry = self.registry();
        let owning = registry.slots().shards();
        let rows = registry.shards().iter().filter(|(shard, _)| owning.contains(shard));
        let mut tags: Option<BTreeMap<&String, &String>> = None;
        let mut shares = Vec::new();
        for (&shard, row) in rows {
            let own = row.tags.iter().filter(|(name, _)| *name != CAUSE_TAG).collect();
            if *tags.get_or_insert_with(|| BTreeMap::clone(&own)) != own {
                return None;
            }
            if let Some(leader) = self.leader(shard).filter(|_| shard != ShardId::PRIME) {
                shares.push(ShardShare { shard, leader, slots: registry.slots().share(shard) });
            }
        }
        Some(shares)
    }
}
