//! The balance of votes: hosts vote in about equally many data shards.
//!
//! Owns which vote moves next, from the host with the most votes to the one with the fewest. A
//! replica that moves costs a snapshot, so a difference of one vote is left as it is, and only one
//! vote moves at a time: the next one waits until the replica of the last one is gone. A vote moves
//! only if the voters of its shard stay as far apart as they were.
//!
//! Shards whose own policy names the voters are left alone, because an operator placed them. So are
//! all shards of a cluster without a default placement.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::choice::Choosing;
use super::reason::VoteMove;
use super::{HostFacts, ShardFacts, host_facts, shard_facts};
use crate::command::{Assignment, HostRole};
use crate::control::registry::Registry;
use crate::membership::Role;
use crate::types::{NodeId, ShardId};

/// The smallest difference of votes for which a vote moves. With a difference of one, a move would
/// only exchange the two numbers.
const DIFFERENCE_MIN: usize = 2;

/// The assignments that move the next vote; empty while a replica of an earlier move remains, or if
/// no vote should move.
pub fn balance(registry: &Registry) -> Vec<Assignment> {
    let mut data = registry.replicas().values().filter(|replica| replica.shard != ShardId::PRIME);
    if data.any(|replica| replica.wanted.is_none()) {
        return Vec::new();
    }
    let Some((shard, VoteMove { from, to, .. })) = next_move(registry) else { return Vec::new() };
    let gains = Assignment { shard, node: to, role: Some(Role::Voter) };
    vec![gains, Assignment { shard, node: from, role: None }]
}

/// The next vote that should move, with its shard.
pub(super) fn next_move(registry: &Registry) -> Option<(ShardId, VoteMove)> {
    registry.default_tags()?;
    let hosts = host_facts(registry);
    let is_fit = |host: &&HostFacts| {
        host.standing == HostRole::Voter && host.tags.is_some() && !host.is_dead && !host.is_draining
    };
    let mut takers: Vec<&HostFacts> = hosts.iter().filter(is_fit).collect();
    takers.sort_by_key(|host| (host.votes, host.node));
    if takers.last()?.votes < takers.first()?.votes + DIFFERENCE_MIN {
        return None;
    }
    let mut givers = takers.clone();
    givers.sort_by_key(|host| (Reverse(host.votes), host.node));
    let shards: Vec<ShardFacts> = registry
        .shards()
        .keys()
        .filter(|shard| **shard != ShardId::PRIME)
        .filter_map(|&shard| shard_facts(registry, shard))
        .collect();
    let choices: Vec<Choosing<'_>> = shards.iter().map(|shard| Choosing::new(&hosts, shard)).collect();
    for from in givers {
        for to in &takers {
            if from.votes < to.votes + DIFFERENCE_MIN {
                break;
            }
            let found = choices.iter().find(|choosing| can_move(choosing, (from, to)));
            if let Some(choosing) = found {
                let (from_votes, to_votes) = (from.votes, to.votes);
                let vote_move = VoteMove { from: from.node, from_votes, to: to.node, to_votes };
                return Some((choosing.shard(), vote_move));
            }
        }
    }
    None
}

/// Whether one host can give its vote in a shard to another one, and the voters stay as far apart.
fn can_move(choosing: &Choosing<'_>, (from, to): (&HostFacts, &HostFacts)) -> bool {
    if !choosing.votes(from) || !choosing.is_placed_by_default() || !choosing.could_take_vote(to) {
        return false;
    }
    let voters = choosing.current_voters();
    let mut after: BTreeSet<NodeId> = voters.clone();
    after.remove(&from.node);
    after.insert(to.node);
    choosing.unevenness(&after) <= choosing.unevenness(&voters)
}
