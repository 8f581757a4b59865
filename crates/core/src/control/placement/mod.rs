//! Placement: which host should have which replica, and why. A pure function of the registry.
//!
//! Owns the choice of hosts, by these goals in order:
//! - As many voters as wanted, on hosts that the policy allows, never two on one host. This number
//!   has priority, so a choice never weakens a shard.
//! - Voters in as many distinct places as possible. A place is a value of the `vary` tags. Where no
//!   policy has any, it is one of `geo:zone`, then of `geo:rack`.
//! - Hosts that are alive, then hosts that are not drained, then current voters, then current
//!   learners, then the hosts with the fewest votes of data shards. So nothing moves without a
//!   gain. Where a policy names the places, a dead host keeps its vote if its replacement would
//!   bring two voters to one place.
//! - Hosts that policies name are learners. Every host has a replica of the prime shard, whatever
//!   the policies say.
//! - Hosts vote in about equally many data shards: `balance` moves a vote to a host that has at
//!   least two fewer, and has hosts exchange votes so that a busy one has less to do. It moves only
//!   votes of shards that take their number of voters from the cluster's default, and one vote or
//!   one exchange at a time.
//!
//! A cluster that an earlier release founded has no default placement until an operator sets one.
//! Without it:
//! - In a shard without a policy for voters, every host of the role voter votes, and other hosts
//!   vote in place of dead ones.
//! - All other hosts are learners of every shard whose policies name no learners.
//!
//! [`Registry::add_shard`] makes these choices while it applies an entry, so they must never
//! change.
//!
//! The result does not depend on the order in which hosts are listed. `reconcile` carries it out.

mod balance;
mod choice;
mod reason;
mod rules;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::command::{Assignment, Explained, Explanation, HostRole};
use crate::control::registry::Registry;
use crate::membership::Role;
use crate::placement_policy::PlacementPolicy;
use crate::types::{NodeId, ShardId};
pub use balance::{balance, exchange_assignments, next_exchange};
use choice::Choosing;
use reason::DataShardCount;
pub use reason::{Reason, VoteMove};
pub use rules::Source;

/// The facts about a host that placement uses.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Assigned by the registry. Hosts with lower numbers win ties.
    pub node: NodeId,
    /// Its tags; `None` if the host has not registered yet. Such a host keeps its replicas and gets
    /// no new ones.
    pub tags: Option<BTreeMap<String, String>>,
    /// The role that the registry wants it to have. Removed hosts are ignored.
    pub standing: HostRole,
    /// See [`HostEntry::is_barred`](crate::topology::HostEntry::is_barred).
    pub is_barred: bool,
    /// See [`HostEntry::draining`](crate::topology::HostEntry::draining).
    pub is_draining: bool,
    /// See [`HostEntry::is_dead`](crate::topology::HostEntry::is_dead).
    pub is_dead: bool,
    /// Number of its votes: with a default placement in data shards, without one in all shards. Of
    /// equally suitable hosts, the one with the fewest votes gets the next.
    pub votes: usize,
    /// Number of data shards of which it has a replica.
    pub data_shards: usize,
}

/// The facts about a shard that placement uses.
#[derive(Clone, Debug)]
pub struct ShardFacts {
    /// The shard to place. A leaving host loses its replica of the prime shard last.
    pub shard: ShardId,
    /// Parsed from its tags.
    pub policy: PlacementPolicy,
    /// The cluster's default; `None` if the cluster has none.
    pub default: Option<PlacementPolicy>,
    /// The roles now wanted of its replicas, by host; `None` for a replica that is being removed.
    pub held: BTreeMap<NodeId, Option<Role>>,
}

/// The role that a host should have in a shard, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The role of its replica; `None`: it should have none.
    pub role: Option<Role>,
    /// The rule that decided the role.
    pub reason: Reason,
}

/// The placement of every host in a shard.
pub type ShardPlan = BTreeMap<NodeId, Placed>;

/// Computes the placement of one shard. Hosts may be in any order.
pub fn place(hosts: &[HostFacts], shard: &ShardFacts) -> ShardPlan {
    Choosing::new(hosts, shard).choose()
}

/// The placement of a shard of the registry; `None` if there is no such shard.
pub fn plan(registry: &Registry, shard: ShardId) -> Option<ShardPlan> {
    let facts = shard_facts(registry, shard)?;
    Some(place(&host_facts(registry), &facts))
}

/// The placement of a shard with the reasons as text, compared with the registry; `None` if there
/// is no such shard. Includes the next vote that moves for balance.
pub fn explain(registry: &Registry, shard: ShardId) -> Option<Explanation> {
    let (hosts, facts) = (host_facts(registry), shard_facts(registry, shard)?);
    let choosing = Choosing::new(&hosts, &facts);
    let mut plan = choosing.choose();
    let next_move = balance::next_move(registry).filter(|(moved, _)| *moved == shard);
    if let Some((_, vote_move)) = next_move {
        let taken = Placed { role: Some(Role::Voter), reason: Reason::TakesVote(vote_move) };
        plan.insert(vote_move.to, taken);
        plan.insert(vote_move.from, Placed { role: None, reason: Reason::GivesVote(vote_move) });
    }
    let votes: BTreeMap<NodeId, usize> = hosts.iter().map(|host| (host.node, host.votes)).collect();
    let explained = |(node, placed): (NodeId, Placed)| {
        let held = registry.replica_on(shard, node);
        let reason = match (&placed.reason, choosing.is_placed_by_default()) {
            (Reason::Member { .. } | Reason::EnoughVoters { .. }, true) => {
                format!("{} (it votes in {})", placed.reason, DataShardCount(votes[&node]))
            }
            (reason, _) => reason.to_string(),
        };
        Explained {
            node,
            replica: held.map(|(replica, _)| replica),
            role: placed.role,
            is_written: held.and_then(|(_, row)| row.wanted) == placed.role,
            reason,
        }
    };
    Some(Explanation { shard, hosts: plan.into_iter().map(explained).collect() })
}

/// The assignments that bring the registry to the placement: at most `most`, unless one shard alone
/// needs more. The assignments of one shard stay together, because the shard could otherwise lose a
/// voter before it has the replacement.
pub fn assignments(registry: &Registry, most: usize) -> Vec<Assignment> {
    let mut hosts = host_facts(registry);
    let mut all = Vec::new();
    for &shard in registry.shards().keys() {
        let Some(facts) = shard_facts(registry, shard) else { continue };
        let plan = place(&hosts, &facts);
        let due: Vec<Assignment> = plan
            .iter()
            .filter(|(node, placed)| match facts.held.get(node) {
                // The host gets a replica with a new number once this one is gone.
                Some(None) => false,
                Some(held) => *held != placed.role,
                None => placed.role.is_some(),
            })
            .map(|(&node, placed)| Assignment { shard, node, role: placed.role })
            .collect();
        if !all.is_empty() && all.len() + due.len() > most {
            break;
        }
        // Count the new votes for the next shards, so that one host does not get all of them.
        for assignment in due.iter().filter(|assignment| assignment.role == Some(Role::Voter)) {
            let host = hosts.iter_mut().find(|host| host.node == assignment.node);
            host.into_iter().for_each(|host| host.votes += 1);
        }
        all.extend(due);
    }
    all
}

fn host_facts(registry: &Registry) -> Vec<HostFacts> {
    let mut votes: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
    for replica in registry.replicas().values() {
        let (votes, data_shards) = votes.entry(replica.node).or_default();
        let is_data = replica.shard != ShardId::PRIME;
        let counts = is_data || registry.default_tags().is_none();
        *votes += usize::from(counts && replica.wanted == Some(Role::Voter));
        *data_shards += usize::from(is_data);
    }
    let facts = |(&node, host_entry): (&NodeId, &crate::topology::HostEntry)| {
        let (votes, data_shards) = votes.get(&node).copied().unwrap_or_default();
        HostFacts {
            node,
            tags: host_entry.host.as_ref().map(|host| host.info.tags.clone()),
            standing: host_entry.standing,
            is_barred: host_entry.is_barred,
            is_draining: host_entry.draining,
            is_dead: host_entry.is_dead,
            votes,
            data_shards,
        }
    };
    registry.host_entries().iter().map(facts).collect()
}

fn shard_facts(registry: &Registry, shard: ShardId) -> Option<ShardFacts> {
    let row = registry.shards().get(&shard)?;
    // The registry accepts only policies that parse.
    let policy = PlacementPolicy::parse(&row.tags).unwrap_or_default();
    let default = registry.default_of(shard).map(|tags| PlacementPolicy::parse(tags).unwrap_or_default());
    let held = registry.wanted(shard).map(|(_, node, wanted)| (node, wanted)).collect();
    Some(ShardFacts { shard, policy, default, held })
}
