//! Exchanges of votes between hosts by load, which the leader of the prime shard plans.
//!
//! Owns their timing: one decision for each interval between reports of load, and one exchange at a
//! time. [`control::placement`](crate::control::placement) decides.

use super::Node;
use crate::command::{RegistryWrite, VoteExchange, Write};
use crate::control::placement;
use crate::deliberate::Fault;
use crate::router::Requester;

impl Node {
    /// If this node leads the prime shard, decides which votes are exchanged next, and proposes the
    /// exchange once one was wanted for long enough.
    pub(super) fn balance_votes(&mut self) {
        if !self.now.0.is_multiple_of(self.options.division.report_ticks) {
            return;
        }
        let next = self.next_vote_exchange();
        self.vote_balance.set_next(next);
        let Some(next) = self.due(&self.vote_balance) else { return };
        let assignments = placement::exchange_assignments(next);
        if !self.are_reachable(&assignments) {
            return;
        }
        let seen = self.registry().changed();
        self.vote_balance.set_proposed(seen, self.now);
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
        placement::next_exchange(self.registry(), &self.load_reports.rates(), self.gain_min())
    }
}
