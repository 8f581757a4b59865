//! Exchanges of votes between hosts by load, which the leader of the prime shard plans.
//!
//! Owns their timing: one decision for each interval between reports of load, and one exchange at a
//! time. [`control::placement`](crate::control::placement) decides.

use super::Node;
use crate::command::{RegistryWrite, VoteExchange, Write};
use crate::control::placement;
use crate::deliberate::Fault;
use crate::router::Requester;
use crate::types::{LogIndex, Ticks};

/// An exchange relieves a host by at least this part of the requests that make a shard busy.
const GAIN_OF_BUSY_DIVISOR: u64 = 20;

/// What the leader of the prime shard knows of the balance of votes by load.
#[derive(Default)]
pub(super) struct VoteBalance {
    /// The next exchange. Computed once in each interval between reports, and shown by views.
    next: Option<VoteExchange>,
    /// Number of consecutive intervals in which an exchange was wanted.
    wanted_intervals: u64,
    /// The last exchange that this node proposed: the registry on which it is based, when, and the
    /// exchange.
    proposed: Option<(LogIndex, Ticks, VoteExchange)>,
}

impl VoteBalance {
    /// The next exchange. `None` if none is wanted, or if this node does not lead the prime shard.
    pub(super) fn next(&self) -> Option<VoteExchange> {
        self.next
    }

    /// The last exchange that this node proposed, and when it did.
    pub(super) fn proposed(&self) -> Option<(Ticks, VoteExchange)> {
        self.proposed.map(|(_, at, proposed)| (at, proposed))
    }
}

impl Node {
    /// If this node leads the prime shard, decides which votes are exchanged next, and proposes the
    /// exchange once one was wanted for long enough.
    pub(super) fn balance_votes(&mut self) {
        let (timing, now) = (self.options.division, self.now);
        if !now.0.is_multiple_of(timing.report_ticks) {
            return;
        }
        let next = self.next_vote_exchange();
        let balance = &mut self.vote_balance;
        balance.wanted_intervals = if next.is_some() { balance.wanted_intervals + 1 } else { 0 };
        balance.next = next;
        let is_lasting = balance.wanted_intervals >= timing.busy_intervals;
        let proposed = balance.proposed.map(|(seen, at, _)| (seen, at));
        let Some(next) = next else { return };
        let assignments = placement::exchange_assignments(&next);
        if !is_lasting || self.awaits(proposed) || !self.are_reachable(&assignments) {
            return;
        }
        let seen = self.registry().changed();
        self.vote_balance.proposed = Some((seen, now, next));
        let write = RegistryWrite::Assign { seen, assignments };
        self.router.write(Requester::NODE, Write::from(write), &mut self.groups);
    }

    /// The exchange that is wanted. Everything else that balances load comes first: it costs less,
    /// or changes which shards are busy.
    fn next_vote_exchange(&self) -> Option<VoteExchange> {
        let is_dividing = || self.division_view().is_some_and(|view| view.cause.is_some());
        if !self.groups.prime().leads()
            || !self.loads_are_reported()
            || !self.all_loads_are_known()
            || !self.is_placed()
            || !self.registry().migrations().is_empty()
            || self.options.faults.has(Fault::VotesByNumber)
            || self.leadership_balance.next().is_some()
            || self.slot_balance.next().is_some()
            || is_dividing()
        {
            return None;
        }
        let gain_min = self.options.division.busy_requests_per_second / GAIN_OF_BUSY_DIVISOR;
        placement::next_exchange(self.registry(), &self.load_reports.rates(), gain_min)
    }
}
