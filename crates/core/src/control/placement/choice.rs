//! Placement of one shard.
//!
//! Voters are chosen one by one: the host in the least crowded place, and of equally crowded places
//! the host with the greatest rank. Current voters rank above other hosts, so a plan that was
//! carried out stays. Where voters are merely preferred to be apart, all fit hosts come before all
//! drained ones, and those before the dead.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::reason::Reason;
use super::rules::{Rules, Source};
use super::{HostFacts, Placed, ShardFacts, ShardPlan};
use crate::command::HostRole;
use crate::membership::Role;
use crate::placement_policy::Conditions;
use crate::types::{NodeId, ShardId};

pub(super) struct Choosing<'a> {
    /// By node number, without removed hosts.
    hosts: Vec<&'a HostFacts>,
    shard: &'a ShardFacts,
    rules: Rules<'a>,
}

/// Suitability of a host as a voter; the greatest rank is the best.
type Rank = (bool, bool, bool, bool, bool, Reverse<(usize, usize)>, Reverse<NodeId>);

/// The number of chosen voters in a host's place, on each level of the spread.
type Crowding = Vec<usize>;

impl<'a> Choosing<'a> {
    pub(super) fn new(hosts: &'a [HostFacts], shard: &'a ShardFacts) -> Choosing<'a> {
        let mut hosts: Vec<&HostFacts> =
            hosts.iter().filter(|host| host.standing != HostRole::Removed).collect();
        hosts.sort_unstable_by_key(|host| host.node);
        let rules = Rules::new(shard, &hosts);
        Choosing { hosts, shard, rules }
    }

    pub(super) fn choose(&self) -> ShardPlan {
        let voters = self.voters();
        let followers = self.followers(&voters);
        let place = |host: &&HostFacts| {
            let placed = if voters.contains(&host.node) {
                Placed { role: Some(Role::Voter), reason: self.why_voter(host, &voters) }
            } else {
                let (role, reason) = self.why_no_voter(host, &voters, &followers);
                Placed { role, reason }
            };
            (host.node, placed)
        };
        self.hosts.iter().map(place).collect()
    }

    /// Number of voters wanted.
    fn count(&self) -> usize {
        match &self.rules.member {
            Some((member, _)) => member.count,
            None => self.hosts.iter().filter(|host| host.standing == HostRole::Voter).count(),
        }
    }

    fn voters(&self) -> BTreeSet<NodeId> {
        let mut candidates: Vec<&HostFacts> =
            self.hosts.iter().copied().filter(|host| self.may_vote(host)).collect();
        candidates.sort_by_key(|host| Reverse(self.rank(host)));
        let mut voters = BTreeSet::new();
        if self.rules.spread.is_strict {
            self.fill(&mut voters, &candidates);
        } else {
            let fitness = |host: &&&HostFacts| (host.is_dead, host.is_draining);
            for equally_fit in candidates.chunk_by(|one, other| fitness(&one) == fitness(&other)) {
                self.fill(&mut voters, equally_fit);
            }
        }
        // A policy that asks for more voters than there are suitable hosts takes no votes away.
        let votes_still = self.hosts.iter().filter(|host| self.is_eligible(host) && self.votes(host));
        let count = self.count();
        for host in votes_still {
            if voters.len() < count {
                voters.insert(host.node);
            }
        }
        // A shard always keeps a voter, whatever else is wanted of its host. A host whose old
        // replica is still being removed cannot get a new one yet, so it comes last.
        if voters.is_empty() {
            let candidates = self.hosts.iter().filter(|host| stays(host) || self.votes(host));
            let any = candidates.max_by_key(|host| {
                let comes_back = self.held(host) == Some(None);
                (!comes_back, stays(host), !host.is_barred, self.rank(host))
            });
            voters.extend(any.map(|host| host.node));
        }
        voters
    }

    /// Adds voters from `candidates`, which are in the order of their ranks, until there are
    /// enough.
    fn fill(&self, voters: &mut BTreeSet<NodeId>, candidates: &[&HostFacts]) {
        let mut crowds = self.crowds(voters);
        while voters.len() < self.count() {
            let free = candidates.iter().filter(|host| !voters.contains(&host.node));
            // Of equal elements, this is the first one.
            let Some(next) = free.min_by_key(|host| self.crowding(host, &crowds)) else { return };
            voters.insert(next.node);
            self.count_in(next, &mut crowds);
        }
    }

    /// The number of voters in each place of each level.
    fn crowds(&self, voters: &BTreeSet<NodeId>) -> BTreeMap<Vec<String>, usize> {
        let mut crowds = BTreeMap::new();
        for host in self.hosts.iter().filter(|host| voters.contains(&host.node)) {
            self.count_in(host, &mut crowds);
        }
        crowds
    }

    fn count_in(&self, host: &HostFacts, crowds: &mut BTreeMap<Vec<String>, usize>) {
        for level in &self.rules.spread.levels {
            *crowds.entry(self.values_of(level, host)).or_default() += 1;
        }
    }

    fn crowding(&self, host: &HostFacts, crowds: &BTreeMap<Vec<String>, usize>) -> Crowding {
        let spread = &self.rules.spread;
        let crowd = |level: &Vec<String>| {
            let crowd = crowds.get(&self.values_of(level, host)).copied().unwrap_or_default();
            if spread.is_even { crowd } else { crowd.min(1) }
        };
        spread.levels.iter().map(crowd).collect()
    }

    /// How unevenly voters are spread: on each level, the sum of the squares of the numbers of
    /// voters in a place. Lower is better.
    pub(super) fn unevenness(&self, voters: &BTreeSet<NodeId>) -> Vec<usize> {
        let mut sums = vec![0; self.rules.spread.levels.len()];
        for (position, level) in self.rules.spread.levels.iter().enumerate() {
            let mut crowds: BTreeMap<Vec<String>, usize> = BTreeMap::new();
            for host in self.hosts.iter().filter(|host| voters.contains(&host.node)) {
                *crowds.entry(self.values_of(level, host)).or_default() += 1;
            }
            sums[position] = crowds.values().map(|crowd| crowd * crowd).sum();
        }
        sums
    }

    /// Whether the number of voters is the cluster's default, so that their hosts are chosen by
    /// load.
    pub(super) fn is_placed_by_default(&self) -> bool {
        matches!(self.rules.member, Some((_, Source::Cluster)))
    }

    pub(super) fn shard(&self) -> ShardId {
        self.shard.shard
    }

    /// The hosts whose replicas the registry wants to vote.
    pub(super) fn current_voters(&self) -> BTreeSet<NodeId> {
        let votes = self.shard.held.iter().filter(|(_, role)| **role == Some(Role::Voter));
        votes.map(|(node, _)| *node).collect()
    }

    /// Whether a host that has no replica of the shard, or a learner, could take a vote now.
    pub(super) fn could_take_vote(&self, host: &HostFacts) -> bool {
        self.may_vote(host) && !self.votes(host) && !host.is_dead && !host.is_draining
    }

    fn held(&self, host: &HostFacts) -> Option<Option<Role>> {
        self.shard.held.get(&host.node).copied()
    }

    pub(super) fn votes(&self, host: &HostFacts) -> bool {
        self.held(host) == Some(Some(Role::Voter))
    }

    /// Whether the host may have votes at all. With a default placement, each host of the role
    /// voter may; without one, hosts without a vote replace those that are dead or drained.
    fn is_eligible(&self, host: &HostFacts) -> bool {
        let may_vote = self.shard.default.is_none() || host.standing == HostRole::Voter;
        stays(host) && may_vote && !host.is_barred
    }

    /// Whether a host can be a voter at all. A host whose replica is being removed must wait until
    /// the replica is gone. A host that is dead, or not registered yet, keeps what it has and gets
    /// nothing new.
    fn may_vote(&self, host: &HostFacts) -> bool {
        let votes = self.votes(host);
        let can_begin = !host.is_dead && self.held(host) != Some(None);
        self.is_eligible(host) && (votes || can_begin) && self.fits(host)
    }

    fn fits(&self, host: &HostFacts) -> bool {
        match (&self.rules.member, &host.tags) {
            (Some((member, _)), Some(tags)) => member.conditions.hold(tags),
            (Some(_), None) => self.votes(host),
            (None, _) => true,
        }
    }

    fn rank(&self, host: &HostFacts) -> Rank {
        let has_own_vote = self.rules.member.is_none() && host.standing == HostRole::Voter;
        // Clusters without a default keep the choices that earlier releases made.
        let data_shards = if self.shard.default.is_some() { host.data_shards } else { 0 };
        (
            !host.is_dead,
            !host.is_draining,
            has_own_vote,
            self.votes(host),
            self.held(host) == Some(Some(Role::Learner)),
            Reverse((host.votes, data_shards)),
            Reverse(host.node),
        )
    }

    /// The values of tags. With a default placement, a host that has not registered counts as a
    /// place of its own, so that its votes do not move before its tags are known.
    fn values_of(&self, level: &[String], host: &HostFacts) -> Vec<String> {
        match &host.tags {
            None if self.shard.default.is_some() => [host.node.to_string()].into(),
            tags => {
                let value = |name| tags.as_ref().and_then(|tags| tags.get(name)).cloned();
                level.iter().map(|name| value(name).unwrap_or_default()).collect()
            }
        }
    }

    /// The place of a host on the finest level. Without levels, every host is a distinct place.
    fn values(&self, host: &HostFacts) -> Vec<String> {
        match self.rules.spread.levels.last() {
            Some(level) => self.values_of(level, host),
            None => [host.node.to_string()].into(),
        }
    }

    fn values_text(&self, host: &HostFacts) -> String {
        let Some(level) = self.rules.spread.levels.last() else { return String::new() };
        let Some(tags) = &host.tags else { return String::new() };
        let value = |name| tags.get(name).map_or("", String::as_str);
        let pairs = level.iter().map(|name| format!("{name}={}", value(name)));
        pairs.collect::<Vec<_>>().join(";")
    }

    /// Hosts that policies name as learners, with the reason.
    fn followers(&self, voters: &BTreeSet<NodeId>) -> BTreeMap<NodeId, Reason> {
        let mut followers = BTreeMap::new();
        for (&name, &(group, source)) in &self.rules.replicas {
            let is_free = |host: &&&HostFacts| {
                !voters.contains(&host.node)
                    && !followers.contains_key(&host.node)
                    && self.may_follow(host)
                    && self.matches(host, &group.conditions)
            };
            let mut free: Vec<&HostFacts> = self.hosts.iter().filter(is_free).copied().collect();
            free.sort_by_key(|host| (host.is_dead, self.held(host).is_none(), host.data_shards, host.node));
            let chosen: Vec<NodeId> = free.iter().take(group.count).map(|host| host.node).collect();
            let reason = || Reason::ReplicaGroup { group: String::from(name), source };
            followers.extend(chosen.into_iter().map(|node| (node, reason())));
        }
        if let Some((conditions, source)) = self.rules.cover {
            for host in self.hosts.iter().filter(|host| self.may_follow(host)) {
                if !voters.contains(&host.node) && self.matches(host, conditions) {
                    followers.entry(host.node).or_insert(Reason::Covered(source));
                }
            }
        }
        followers
    }

    fn matches(&self, host: &HostFacts, conditions: &Conditions) -> bool {
        match &host.tags {
            Some(tags) => conditions.hold(tags),
            None => self.held(host).is_some_and(|held| held.is_some()),
        }
    }

    fn may_follow(&self, host: &HostFacts) -> bool {
        let is_new = self.held(host).is_none();
        stays(host) && !host.is_draining && !(host.is_dead && is_new)
    }

    fn why_voter(&self, host: &HostFacts, voters: &BTreeSet<NodeId>) -> Reason {
        if host.is_dead {
            let others = self.hosts.iter().filter(|other| !voters.contains(&other.node));
            let is_apart = others.clone().any(|other| self.may_vote(other) && !other.is_dead);
            return Reason::NoReplacement { is_apart };
        }
        if host.standing == HostRole::Leaving {
            return Reason::Leaving;
        }
        if host.is_draining {
            return Reason::DrainedVoter;
        }
        if !self.fits(host) {
            return Reason::TooFewAllowed;
        }
        if let Some((member, source)) = &self.rules.member {
            return Reason::Member { count: member.count, source: *source, values: self.values_text(host) };
        }
        if host.standing == HostRole::Voter {
            return Reason::DefaultVoter;
        }
        let replaced = self
            .hosts
            .iter()
            .filter(|other| other.standing == HostRole::Voter && !voters.contains(&other.node));
        Reason::ReplacesVoters(replaced.map(|other| other.node).collect())
    }

    /// The role of a host that does not vote, and why it does not vote.
    fn why_no_voter(
        &self,
        host: &HostFacts,
        voters: &BTreeSet<NodeId>,
        followers: &BTreeMap<NodeId, Reason>,
    ) -> (Option<Role>, Reason) {
        let is_prime = self.shard.shard == ShardId::PRIME;
        if host.standing == HostRole::Leaving {
            // The host learns from the prime shard that it was removed, so its replica of that
            // shard goes last.
            let role = (is_prime && host.data_shards > 0).then_some(Role::Learner);
            return (role, Reason::Leaving);
        }
        let is_named = followers.contains_key(&host.node);
        let follows = is_prime || is_named || (self.rules.others_follow && self.may_follow(host));
        // Where policies name the followers, that decides for every host that could follow.
        let is_passed_over = !follows && self.shard.default.is_none() && self.rules.names_followers();
        let reason = match followers.get(&host.node) {
            Some(reason) => reason.clone(),
            None if is_passed_over && !host.is_draining => Reason::NotNamed,
            None => self.why_no_vote(host, voters),
        };
        (follows.then_some(Role::Learner), reason)
    }

    fn why_no_vote(&self, host: &HostFacts, voters: &BTreeSet<NodeId>) -> Reason {
        if host.is_dead {
            return Reason::Dead;
        }
        if host.is_draining {
            return Reason::Drained;
        }
        if !self.is_eligible(host) {
            return Reason::Barred;
        }
        if !self.fits(host) {
            return match (&host.tags, &self.rules.member) {
                (Some(_), Some((member, source))) => {
                    Reason::NotMember { conditions: member.conditions.to_string(), source: *source }
                }
                _ => Reason::Unknown,
            };
        }
        let same = self
            .hosts
            .iter()
            .find(|other| voters.contains(&other.node) && self.values(other) == self.values(host));
        match same {
            Some(voter) => Reason::SameValues { voter: voter.node, values: self.values_text(host) },
            None => Reason::EnoughVoters { voters: voters.iter().copied().collect() },
        }
    }
}

/// Whether the host belongs to the cluster and is not leaving.
fn stays(host: &HostFacts) -> bool {
    matches!(host.standing, HostRole::Voter | HostRole::Learner)
}
