//! Transfers of leadership for balance, which the leader of the prime shard asks for.
//!
//! Owns their timing: one at a time, with a pause after each check, so that a transfer by an
//! operator is not undone at once. [`control::leaderships`](crate::control::leaderships) decides.

use alloc::vec::Vec;

use super::Node;
use crate::auth::Caller;
use crate::command::{HostRole, LeadershipMove};
use crate::control::leaderships::{self, LedShard};
use crate::deliberate::Fault;
use crate::membership::Role;
use crate::peer::DiskState;
use crate::topology::HostEntry;
use crate::types::{NodeId, ShardId, Ticks};

/// Minimum number of election timeouts between two checks.
const PAUSE_ELECTION_TIMEOUTS: u64 = 5;

/// When leaderships were balanced last.
#[derive(Default)]
pub(super) struct Leaderships {
    checked: Ticks,
}

impl Node {
    /// Asks for the next transfer of leadership for balance, if one is due and this node leads the
    /// prime shard.
    pub(super) fn balance_leaderships(&mut self) {
        let timing = self.options.timing;
        let pause = timing.balance_ticks.max(PAUSE_ELECTION_TIMEOUTS * timing.election_ticks);
        if self.now.0 < self.leaderships.checked.0 + pause || !self.balances_leaderships() {
            return;
        }
        self.leaderships.checked = self.now;
        let Some(LeadershipMove { shard, from, to, .. }) = self.next_leadership_move() else { return };
        if from == self.options.host.node {
            self.groups.with(shard, |group| group.transfer_to(to));
        } else {
            self.router.ask_transfer(from, &Caller::Node, (shard, to));
        }
    }

    /// Whether this node decides which leadership moves next, and knows enough for that.
    fn balances_leaderships(&self) -> bool {
        self.options.timing.balance_ticks > 0
            && self.groups.prime().leads()
            && (!self.loads_are_reported() || self.all_loads_are_known())
    }

    /// The leadership that is transferred next for balance. `None` if there is none, if leaderships
    /// are not balanced, or if this node does not lead the prime shard.
    pub(super) fn next_leadership_move(&self) -> Option<LeadershipMove> {
        if !self.balances_leaderships() {
            return None;
        }
        let mut rates = self.loads.rates();
        if self.options.faults.has(Fault::LeadershipsByNumber) {
            rates.clear();
        }
        let led = self.registry().shards().keys().filter_map(|&shard| {
            let leader = self.leader(shard).filter(|leader| self.is_reachable(*leader))?;
            let requests = rates.get(&shard).copied().unwrap_or_default();
            Some(LedShard { shard, leader, candidates: self.candidates(shard), requests })
        });
        leaderships::next_move(&led.collect::<Vec<_>>())
    }

    /// The nodes that may lead a shard and can be reached.
    fn candidates(&self, shard: ShardId) -> Vec<NodeId> {
        let voters = self.registry().wanted(shard).filter(|(_, _, role)| *role == Some(Role::Voter));
        let is_fit = |node: &NodeId| {
            let entry = self.host_entry(*node);
            let is_willing = entry.is_some_and(|entry| entry.stays() && !entry.draining);
            let is_own = *node == self.options.host.node;
            let is_healthy =
                if is_own { self.disks.own() == DiskState::Healthy } else { self.disks.may_lead(*node) };
            is_willing && is_healthy && self.is_reachable(*node)
        };
        voters.map(|(_, node, _)| node).filter(is_fit).collect()
    }

    /// Whether every host that serves and can be reached has reported its load lately.
    fn all_loads_are_known(&self) -> bool {
        let serves = |entry: &HostEntry| entry.standing != HostRole::Removed && !entry.is_dead;
        let serving = self.registry().host_entries().iter().filter(|(_, entry)| serves(entry));
        let mut reachable = serving.map(|(node, _)| *node).filter(|node| self.is_reachable(*node));
        reachable.all(|node| self.loads.is_known(node))
    }

    fn is_reachable(&self, node: NodeId) -> bool {
        node == self.options.host.node || self.router.is_up(node)
    }
}
