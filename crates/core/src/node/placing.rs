//! Placement by the leaders on this node. The leader of the prime shard watches hosts, decides on
//! placement and writes it to the registry. Every leader removes its shard's departed replicas from
//! the registry.
//!
//! Owns the timing. `control::placement` owns the decision, a pure function of the registry;
//! `control::reconcile` brings a shard to it. Only a limited number of replicas is created at a
//! time, so that new ones do not all fetch their snapshots at once.
//!
//! Time comes from the ticks of the leader, never from the registry: a new leader waits the full
//! time again before it declares a host dead.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Node;
use crate::command::{Assignment, HostChange, RegistryWrite, Write};
use crate::control::placement;
use crate::membership::Role;
use crate::raft::Group;
use crate::router::Requester;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Ticks};

/// Maximum number of replicas being created or removed at a time.
const MOVES_MAX: usize = 16;

/// Host liveness, as observed by the leader of the prime shard.
#[derive(Default)]
pub(super) struct HostLiveness {
    /// Since when each host has been silent. Empty unless this node leads the prime shard.
    silent: BTreeMap<NodeId, Ticks>,
    /// The registry on which the last assignment was based, and when it was proposed.
    assigned: Option<(LogIndex, Ticks)>,
    /// The last registry found to match the placement, and whether its votes are balanced too.
    at_rest: Option<(LogIndex, bool)>,
}

impl Node {
    /// Records which hosts are dead, if this node leads the prime shard.
    pub(super) fn watch_hosts(&mut self) {
        if !self.groups.prime().leads() {
            self.watch.silent.clear();
            return;
        }
        let now = self.now;
        let host_entries: Vec<(NodeId, bool)> = self
            .registry()
            .host_entries()
            .iter()
            .filter(|(_, host_entry)| host_entry.stays())
            .map(|(&node, host_entry)| (node, host_entry.is_dead))
            .collect();
        for (node, is_dead) in host_entries {
            if self.is_reachable(node) {
                self.watch.silent.remove(&node);
                if is_dead && now.0.is_multiple_of(self.options.timing.election_ticks) {
                    self.call_dead(node, false);
                }
                continue;
            }
            let since = *self.watch.silent.entry(node).or_insert(now);
            let silent_ticks = now.0 - since.0;
            if !is_dead && silent_ticks >= self.options.timing.dead_ticks {
                // Repeat after the same time, in case the entry is lost.
                self.watch.silent.insert(node, now);
                self.call_dead(node, true);
            }
        }
    }

    fn call_dead(&mut self, node: NodeId, is_dead: bool) {
        let write = Write::from(RegistryWrite::ChangeHost { node, change: HostChange::Dead(is_dead) });
        self.router.write(Requester::NODE, write, &mut self.groups);
    }

    /// Writes the placement to the registry if it differs, if this node leads the prime shard.
    pub(super) fn place(&mut self) {
        let changed = self.registry().changed();
        let is_due = self.now.0.is_multiple_of(self.options.timing.election_ticks);
        match self.watch.at_rest {
            Some((registry, true)) if registry == changed => return,
            Some((registry, false)) if registry == changed && !is_due => return,
            _ => {}
        }
        let retry_ticks = self.options.timing.request_ticks;
        let is_waiting = self
            .watch
            .assigned
            .is_some_and(|(seen, asked)| seen == changed && self.now.0 < asked.0 + retry_ticks);
        if !self.groups.prime().leads() || is_waiting {
            return;
        }
        let moves = self.moves_under_way();
        if moves >= MOVES_MAX {
            return;
        }
        let mut assignments = placement::assignments(self.registry(), MOVES_MAX - moves);
        self.watch.at_rest = None;
        if assignments.is_empty() {
            let is_quiet = moves == 0;
            let balance = if is_quiet { placement::balance(self.registry()) } else { Vec::new() };
            let is_balanced = is_quiet && balance.is_empty();
            if self.are_reachable(&balance) {
                assignments = balance;
            }
            self.watch.at_rest = assignments.is_empty().then_some((changed, is_balanced));
        }
        if !assignments.is_empty() {
            self.watch.assigned = Some((changed, self.now));
            self.router.write(
                Requester::NODE,
                Write::from(RegistryWrite::Assign { seen: changed, assignments }),
                &mut self.groups,
            );
        }
    }

    /// Whether every replica is where it should be and has reported, as this node last saw while it
    /// led the prime shard.
    pub(super) fn is_placed(&self) -> bool {
        self.watch.at_rest == Some((self.registry().changed(), true)) && self.moves_under_way() == 0
    }

    /// Whether this node can reach the hosts of assignments. A vote moves for balance only between
    /// such hosts: a shard must not lose a vote that works for one that does not yet.
    pub(super) fn are_reachable(&self, assignments: &[Assignment]) -> bool {
        assignments.iter().all(|assignment| self.is_reachable(assignment.node))
    }

    /// Number of replicas on reachable hosts that should exist but have not reported, or that
    /// should be gone but are not.
    fn moves_under_way(&self) -> usize {
        let own = self.options.host.node;
        let is_under_way = |replica: &&crate::topology::Replica| {
            let is_here = replica.node == own;
            let is_known = if is_here {
                self.groups.find(replica.shard).is_some()
            } else {
                self.reports.contains_key(&(replica.node, replica.shard))
            };
            let is_arriving = replica.wanted.is_some() && !is_known;
            self.is_reachable(replica.node) && (is_arriving || replica.wanted.is_none())
        };
        self.registry().replicas().values().filter(is_under_way).count()
    }

    /// Removes departed replicas from the registry, for the shards that this node leads.
    pub(super) fn forget_replicas(&mut self) {
        let mut gone: Vec<ReplicaId> = Vec::new();
        for group in self.groups.iter().filter(|group| group.leads() && group.shard() != ShardId::PRIME) {
            let wanted = self.registry().wanted(group.shard());
            let departed = wanted
                .filter(|(replica, _, role)| role.is_none() && group.membership().role(*replica).is_none());
            let mut departed = departed.map(|(replica, ..)| replica).peekable();
            if departed.peek().is_some() && self.all_persisted(group) {
                gone.extend(departed);
            }
        }
        for replica in gone {
            self.router.write(
                Requester::NODE,
                Write::from(RegistryWrite::ForgetReplica { replica }),
                &mut self.groups,
            );
        }
    }

    /// Whether no voter of a shard would return to an earlier membership after a restart.
    pub(super) fn all_persisted(&self, group: &Group) -> bool {
        let changed = group.membership().changed;
        let remembers = |voter: NodeId| {
            let reported = self.reports.get(&(voter, group.shard())).map(|position| position.remembered);
            let known = if voter == self.options.host.node { Some(group.remembered()) } else { reported };
            known.is_some_and(|remembered| remembered >= changed)
        };
        let mut voters = group.replicas().filter(|(_, _, role)| *role == Role::Voter);
        !group.membership().is_joint() && voters.all(|(voter, _, _)| remembers(voter))
    }
}
