//! Placement: which host should carry which replica, and why. A pure function of the registry.
//!
//! Owns the choice:
//! - As many voters as wanted, on hosts that the policy allows, never two on one host. That number counts for more than
//!   anything else, so a choice never makes a shard weaker.
//! - Then as many distinct values of the tags to vary in as there can be.
//! - Then hosts that live, hosts that are not drained, hosts with a vote of their own, those that vote already, those that
//!   follow already, and those with the fewest votes; so nothing moves without a gain, and a dead host is replaced unless
//!   that would bring two voters together that should be apart.
//! - Every other host follows without a vote, unless policies say which should: it answers from its own memory. Of the prime
//!   shard every host has a replica, whatever policies say.
//!
//! The outcome does not depend on the order in which hosts are listed. What carries it out stands in `reconcile`.

mod choice;
pub mod policy;
mod reason;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::command::{Assignment, Explained, Explanation, Standing};
use crate::control::registry::Registry;
use crate::membership::Role;
use crate::types::{NodeId, ShardId};
use choice::Choosing;
use policy::Policy;
pub use reason::Reason;

/// What placement knows of a host.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Its number.
    pub node: NodeId,
    /// What it announced; `None` if it has not announced itself yet: it keeps what it has, and gets nothing new.
    pub tags: Option<BTreeMap<String, String>>,
    /// What is wanted of it. One that was removed is none.
    pub standing: Standing,
    /// See [`Seat::is_barred`](crate::control::registry::Seat::is_barred).
    pub is_barred: bool,
    /// See [`Seat::draining`](crate::control::registry::Seat::draining).
    pub is_draining: bool,
    /// See [`Seat::is_dead`](crate::control::registry::Seat::is_dead).
    pub is_dead: bool,
    /// Votes that it has in other shards: who has few gets the next.
    pub votes: usize,
    /// Data shards that it has a replica of.
    pub data_shards: usize,
}

/// What placement knows of a shard.
#[derive(Clone, Debug)]
pub struct ShardFacts {
    /// Its number.
    pub shard: ShardId,
    /// What its tags say.
    pub policy: Policy,
    /// What is wanted now of its replicas, by host; `None` for one on its way out.
    pub held: BTreeMap<NodeId, Option<Role>>,
}

/// What a host should be to a shard, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// What its replica should do; `None`: it should have none.
    pub role: Option<Role>,
    /// Why that, and not more.
    pub reason: Reason,
}

/// What every host should be to a shard.
pub type ShardPlan = BTreeMap<NodeId, Placed>;

/// Decides about one shard. Hosts may be in any order.
pub fn place(hosts: &[HostFacts], shard: &ShardFacts) -> ShardPlan {
    let mut hosts: Vec<&HostFacts> = hosts.iter().filter(|host| host.standing != Standing::Removed).collect();
    hosts.sort_unstable_by_key(|host| host.node);
    Choosing { hosts, shard }.choose()
}

/// The plan of a shard of the registry; `None` if there is none of that number.
pub fn plan(registry: &Registry, shard: ShardId) -> Option<ShardPlan> {
    let facts = shard_facts(registry, shard)?;
    Some(place(&host_facts(registry), &facts))
}

/// The plan of a shard in words, beside what stands in the registry; `None` if there is none of that number.
pub fn explain(registry: &Registry, shard: ShardId) -> Option<Explanation> {
    let explained = |(node, placed): (NodeId, Placed)| {
        let held = registry.replica_on(shard, node);
        Explained {
            node,
            replica: held.map(|(replica, _)| replica),
            role: placed.role,
            is_written: held.and_then(|(_, row)| row.wanted) == placed.role,
            reason: placed.reason.to_string(),
        }
    };
    Some(Explanation { shard, hosts: plan(registry, shard)?.into_iter().map(explained).collect() })
}

/// What must change for every shard to be as it should: at most `most` assignments, unless one shard alone needs more. Those
/// of one shard are never parted, or it could lose a voter before it has the next one.
pub fn assignments(registry: &Registry, most: usize) -> Vec<Assignment> {
    let mut hosts = host_facts(registry);
    let mut all = Vec::new();
    for &shard in registry.shards().keys() {
        let Some(facts) = shard_facts(registry, shard) else { continue };
        let plan = place(&hosts, &facts);
        let due: Vec<Assignment> = plan
            .iter()
            .filter(|(node, placed)| match facts.held.get(node) {
                // It comes back under another number, once this one is gone.
                Some(None) => false,
                Some(held) => *held != placed.role,
                None => placed.role.is_some(),
            })
            .map(|(&node, placed)| Assignment { shard, node, role: placed.role })
            .collect();
        if !all.is_empty() && all.len() + due.len() > most {
            break;
        }
        // What is decided for one shard counts for the next: new votes are not all given to the same host.
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
        *votes += usize::from(replica.wanted == Some(Role::Voter));
        *data_shards += usize::from(replica.shard != ShardId::PRIME);
    }
    let facts = |(&node, seat): (&NodeId, &crate::control::registry::Seat)| {
        let (votes, data_shards) = votes.get(&node).copied().unwrap_or_default();
        HostFacts {
            node,
            tags: seat.host.as_ref().map(|host| host.info.tags.clone()),
            standing: seat.standing,
            is_barred: seat.is_barred,
            is_draining: seat.draining,
            is_dead: seat.is_dead,
            votes,
            data_shards,
        }
    };
    registry.seats().iter().map(facts).collect()
}

fn shard_facts(registry: &Registry, shard: ShardId) -> Option<ShardFacts> {
    let row = registry.shards().get(&shard)?;
    // What the registry took, it could read.
    let policy = Policy::parse(&row.tags).unwrap_or_default();
    let held = registry.wanted(shard).map(|(_, node, wanted)| (node, wanted)).collect();
    Some(ShardFacts { shard, policy, held })
}
