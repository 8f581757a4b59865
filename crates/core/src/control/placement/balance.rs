//! The balance of votes: hosts vote in about equally many data shards, and those shards have about
//! equally many requests.
//!
//! Owns two decisions:
//! - which vote moves next, from the host with the most votes to the one with the fewest. The new
//!   voter fetches a snapshot, so a difference of one vote moves nothing, and the next vote moves
//!   only when the last one's old replica has been removed;
//! - which votes two hosts exchange next, so that the busier one has less to do. An exchange keeps
//!   the numbers of votes as they are, so the first decision does not reverse it.
//!
//! A vote moves only if the voters of its shard are then spread over places as evenly as before.
//!
//! Shards whose own policy names the voters are left alone, because an operator placed them. So are
//! all shards of a cluster without a default placement.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::choice::Choosing;
use super::reason::VoteMove;
use super::{HostFacts, ShardFacts, host_facts, shard_facts};
use crate::command::{Assignment, HostRole, VoteExchange};
use crate::control::registry::Registry;
use crate::membership::Role;
use crate::types::{NodeId, ShardId};

/// The smallest difference of votes for which a vote moves. With a difference of one, a move would
/// only exchange the two numbers.
const DIFFERENCE_MIN: usize = 2;

/// An exchange relieves the busier host by at least this part of its requests, so that small
/// changes between reports move nothing.
const GAIN_DIVISOR_MIN: u64 = 5;

/// The assignments that move the next vote; empty while a replica of an earlier move remains, or if
/// no vote should move.
pub fn balance(registry: &Registry) -> Vec<Assignment> {
    let mut data = registry.replicas().values().filter(|replica| replica.shard != ShardId::PRIME);
    if data.any(|replica| replica.wanted.is_none()) {
        return Vec::new();
    }
    let Some((shard, VoteMove { from, to, .. })) = next_move(registry) else { return Vec::new() };
    vote_moves(shard, (from, to)).into()
}

/// The assignments that move the vote in a shard from one host to another one.
fn vote_moves(shard: ShardId, (from, to): (NodeId, NodeId)) -> [Assignment; 2] {
    let gains = Assignment { shard, node: to, role: Some(Role::Voter) };
    [gains, Assignment { shard, node: from, role: None }]
}

/// The next vote that should move, with its shard.
pub(super) fn next_move(registry: &Registry) -> Option<(ShardId, VoteMove)> {
    registry.default_tags()?;
    let hosts = host_facts(registry);
    let mut takers: Vec<&HostFacts> = hosts.iter().filter(|host| is_fit(host)).collect();
    takers.sort_by_key(|host| (host.votes, host.node));
    if takers.last()?.votes < takers.first()?.votes + DIFFERENCE_MIN {
        return None;
    }
    let mut givers = takers.clone();
    givers.sort_by_key(|host| (Reverse(host.votes), host.node));
    let shards = data_shards(registry);
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

/// The next exchange of votes. `None` if no exchange relieves a host by at least `gain_min`
/// requests a second. `rates` are requests a second of all clients.
pub fn next_exchange(
    registry: &Registry,
    rates: &BTreeMap<ShardId, u64>,
    gain_min: u64,
) -> Option<VoteExchange> {
    registry.default_tags()?;
    let (hosts, shards) = (host_facts(registry), data_shards(registry));
    let rated = |shard| (Choosing::new(&hosts, shard), rates.get(&shard.shard).copied().unwrap_or_default());
    let shards: Vec<RatedShard<'_>> = shards.iter().map(rated).collect();
    let requests = |host: &HostFacts| {
        let its = shards.iter().filter(|(choosing, _)| choosing.votes(host));
        its.fold(0, |sum: u64, (_, rate)| sum.saturating_add(*rate))
    };
    let fit = hosts.iter().filter(|host| is_fit(host));
    let mut loaded: Vec<LoadedHost<'_>> = fit.map(|host| (host, requests(host))).collect();
    loaded.sort_by_key(|(host, requests)| (Reverse(*requests), host.node));
    loaded.iter().find_map(|&from| best_exchange(from, &loaded, &shards, gain_min))
}

/// The assignments of replicas for an exchange.
pub fn exchange_assignments(exchange: &VoteExchange) -> Vec<Assignment> {
    let &VoteExchange { from, given, to, returned, .. } = exchange;
    let returned = returned.map(|shard| vote_moves(shard, (to, from)));
    vote_moves(given, (from, to)).into_iter().chain(returned.into_iter().flatten()).collect()
}

/// A host, and the requests a second for the data shards in which it votes.
type LoadedHost<'a> = (&'a HostFacts, u64);

/// A data shard, and the requests a second for it.
type RatedShard<'a> = (Choosing<'a>, u64);

/// The exchange with any of `others` that relieves a host most.
fn best_exchange(
    (from, from_requests): LoadedHost<'_>,
    others: &[LoadedHost<'_>],
    shards: &[RatedShard<'_>],
    gain_min: u64,
) -> Option<VoteExchange> {
    let gain_min = gain_min.max(from_requests / GAIN_DIVISOR_MIN).max(1);
    let mut best = None;
    let mut best_gain = gain_min - 1;
    for &(to, to_requests) in others {
        let difference = from_requests.saturating_sub(to_requests);
        if difference < gain_min {
            continue;
        }
        for ((given, given_rate), returned) in exchanges((from, to), shards) {
            let moved = given_rate.saturating_sub(returned.map_or(0, |(_, rate)| *rate));
            let gain = moved.min(difference.saturating_sub(moved));
            let returned = returned.map(|(shard, _)| shard);
            let is_possible =
                || can_move(given, (from, to)) && returned.is_none_or(|shard| can_move(shard, (to, from)));
            if gain > best_gain && is_possible() {
                let (given, returned) = (given.shard(), returned.map(Choosing::shard));
                let (from, to) = (from.node, to.node);
                best = Some(VoteExchange { from, from_requests, given, to, to_requests, returned });
                best_gain = gain;
            }
        }
    }
    best
}

/// The shards in which one host could give its vote to another one, each with a shard in which it
/// could get one back. It may also get none back if it has one vote more than the other host.
fn exchanges<'a>(
    (from, to): (&HostFacts, &HostFacts),
    shards: &'a [RatedShard<'a>],
) -> Vec<(&'a RatedShard<'a>, Option<&'a RatedShard<'a>>)> {
    let only = |one: &HostFacts, other: &HostFacts| -> Vec<&'a RatedShard<'a>> {
        shards.iter().filter(|(shard, _)| shard.votes(one) && !shard.votes(other)).collect()
    };
    let nothing = (from.votes == to.votes + 1).then_some(None);
    let returned: Vec<_> = nothing.into_iter().chain(only(to, from).into_iter().map(Some)).collect();
    let given = only(from, to).into_iter();
    given.flat_map(|given| returned.iter().map(move |returned| (given, *returned))).collect()
}

/// Whether votes may move to or from a host for balance.
fn is_fit(host: &HostFacts) -> bool {
    host.standing == HostRole::Voter && host.tags.is_some() && !host.is_dead && !host.is_draining
}

fn data_shards(registry: &Registry) -> Vec<ShardFacts> {
    let shards = registry.shards().keys().filter(|shard| **shard != ShardId::PRIME);
    shards.filter_map(|&shard| shard_facts(registry, shard)).collect()
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
