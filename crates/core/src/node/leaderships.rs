//! Transfers of leadership for balance, which the leader of the prime shard asks for.
//!
//! Owns their timing: one check after each pause, and one transfer for each check, so that there
//! are few. [`control::leaderships`](crate::control::leaderships) decides.

use alloc::vec::Vec;

use super::Node;
use crate::auth::Caller;
use crate::command::LeadershipTransfer;
use crate::control::leaderships::{self, ShardLeadership};
use crate::deliberate::Fault;
use crate::membership::Role;
use crate::types::{NodeId, ShardId, Ticks};

/// Minimum number of election timeouts between two checks.
const PAUSE_ELECTION_TIMEOUTS: u64 = 5;

/// What the leader of the prime shard knows of the balance of leaderships.
#[derive(Default)]
pub(super) struct LeadershipBalance {
    /// The transfer that is due next. Computed once each election timeout, and shown by views.
    next: Option<LeadershipTransfer>,
    /// The transfer that was asked for last, and when.
    asked: Option<(Ticks, LeadershipTransfer)>,
    checked: Ticks,
}

impl LeadershipBalance {
    /// The leadership that is transferred next for balance. `None` if there is none, if leaderships
    /// are not balanced, or if this node does not lead the prime shard.
    pub(super) fn next(&self) -> Option<LeadershipTransfer> {
        self.next
    }

    /// The transfer that this node asked for last, and when.
    pub(super) fn asked(&self) -> Option<(Ticks, LeadershipTransfer)> {
        self.asked
    }
}

impl Node {
    /// Decides which leadership is transferred next for balance, and asks for it if the pause is
    /// over, if this node leads the prime shard.
    pub(super) fn balance_leaderships(&mut self) {
        self.leadership_balance.next = None;
        if !self.balances_leaderships() {
            return;
        }
        let next = leaderships::next_transfer(&self.shard_leaderships());
        self.leadership_balance.next = next;
        let timing = self.options.timing;
        let pause = timing.balance_ticks.max(PAUSE_ELECTION_TIMEOUTS * timing.election_ticks);
        if self.now.0 < self.leadership_balance.checked.0 + pause {
            return;
        }
        self.leadership_balance.checked = self.now;
        let Some(due) = next else { return };
        self.leadership_balance.asked = Some((self.now, due));
        let LeadershipTransfer { shard, from, to, .. } = due;
        if from == self.options.host.node {
            self.groups.with(shard, |group| group.transfer_to(to));
        } else {
            self.router.ask_transfer(from, &Caller::Node, (shard, to));
        }
    }

    /// Whether this node decides which leadership is transferred next, and knows enough for that.
    fn balances_leaderships(&self) -> bool {
        self.options.timing.balance_ticks > 0
            && self.groups.prime().leads()
            && (!self.loads_are_reported() || self.all_loads_are_known())
    }

    /// The shards whose leaders can be reached.
    fn shard_leaderships(&self) -> Vec<ShardLeadership> {
        let mut rates = self.load_reports.rates();
        if self.options.faults.has(Fault::LeadershipsByNumber) {
            rates.clear();
        }
        let leadership = |&shard: &ShardId| {
            let leader = self.leader(shard).filter(|leader| self.is_reachable(*leader))?;
            let voters = self.registry().wanted(shard).filter(|(_, _, role)| *role == Some(Role::Voter));
            let could_lead = |node: &NodeId| self.is_reachable(*node) && self.may_lead(*node);
            let candidates = voters.map(|(_, node, _)| node).filter(could_lead).collect();
            let requests = rates.get(&shard).copied().unwrap_or_default();
            Some(ShardLeadership { shard, leader, candidates, requests })
        };
        self.registry().shards().keys().filter_map(leadership).collect()
    }

    /// Whether every host that serves and can be reached has reported its load lately.
    pub(super) fn all_loads_are_known(&self) -> bool {
        let serving = self.registry().host_entries().iter().filter(|(_, entry)| entry.serves());
        let mut reachable = serving.map(|(node, _)| *node).filter(|node| self.is_reachable(*node));
        reachable.all(|node| self.load_reports.is_known(node))
    }
}
