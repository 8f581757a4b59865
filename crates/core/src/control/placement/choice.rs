//! Placement of one shard.
//!
//! Voters are chosen so that a list of goals is met in order of importance. Each host has a rank.
//! First comes the best host of each distinct place, then the next best hosts overall. This choice
//! is optimal: replacing a chosen host either brings two voters to one place or lowers the rank.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::reason::Reason;
use super::{HostFacts, Placed, ShardFacts, ShardPlan};
use crate::command::HostRole;
use crate::membership::Role;
use crate::placement_policy::Conditions;
use crate::types::{NodeId, ShardId};

pub(super) struct Choosing<'a> {
    /// By node number, without removed hosts.
    pub(super) hosts: Vec<&'a HostFacts>,
    pub(super) shard: &'a ShardFacts,
}

/// Suitability of a host as a voter; the greatest rank is the best.
type Rank = (bool, bool, bool, bool, bool, Reverse<usize>, Reverse<NodeId>);

impl<'a> Choosing<'a> {
    pub(super) fn choose(self) -> ShardPlan {
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
        match &self.shard.policy.member {
            Some(member) => member.count,
            None => self.hosts.iter().filter(|host| host.standing == HostRole::Voter).count(),
        }
    }

    fn voters(&self) -> BTreeSet<NodeId> {
        let mut candidates: Vec<&HostFacts> =
            self.hosts.iter().copied().filter(|host| self.may_vote(host)).collect();
        candidates.sort_by_key(|host| Reverse(self.rank(host)));
        let mut voters = BTreeSet::new();
        let mut places = BTreeSet::new();
        for host in &candidates {
            if voters.len() < self.count() && places.insert(self.values(host)) {
                voters.insert(host.node);
            }
        }
        // A policy that asks for more voters than there are suitable hosts takes no votes away.
        let stays = |host: &&HostFacts| matches!(host.standing, HostRole::Voter | HostRole::Learner);
        let votes_still = self.hosts.iter().filter(|host| stays(host) && !host.is_barred && self.votes(host));
        let count = self.count();
        for host in candidates.iter().chain(votes_still) {
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

    fn held(&self, host: &HostFacts) -> Option<Option<Role>> {
        self.shard.held.get(&host.node).copied()
    }

    fn votes(&self, host: &HostFacts) -> bool {
        self.held(host) == Some(Some(Role::Voter))
    }

    /// Whether a host can be a voter at all. A host whose replica is being removed must wait until
    /// the replica is gone. A host that is dead, or not registered yet, keeps what it has and gets
    /// nothing new.
    fn may_vote(&self, host: &HostFacts) -> bool {
        let stays = matches!(host.standing, HostRole::Voter | HostRole::Learner) && !host.is_barred;
        let votes = self.votes(host);
        let can_begin = !host.is_dead && self.held(host) != Some(None);
        stays && (votes || can_begin) && self.fits(host)
    }

    fn fits(&self, host: &HostFacts) -> bool {
        match (&self.shard.policy.member, &host.tags) {
            (Some(member), Some(tags)) => member.conditions.hold(tags),
            (Some(_), None) => self.votes(host),
            (None, _) => true,
        }
    }

    fn rank(&self, host: &HostFacts) -> Rank {
        let has_own_vote = self.shard.policy.member.is_none() && host.standing == HostRole::Voter;
        (
            !host.is_dead,
            !host.is_draining,
            has_own_vote,
            self.votes(host),
            self.held(host) == Some(Some(Role::Learner)),
            Reverse(host.votes),
            Reverse(host.node),
        )
    }

    /// The values of the `vary` tags. Without such tags, every host counts as a distinct place.
    fn values(&self, host: &HostFacts) -> Vec<String> {
        let vary = &self.shard.policy.vary;
        if vary.is_empty() {
            return [host.node.to_string()].into();
        }
        let value = |name| host.tags.as_ref().and_then(|tags| tags.get(name)).cloned().unwrap_or_default();
        vary.iter().map(value).collect()
    }

    fn values_text(&self, host: &HostFacts) -> String {
        let vary = &self.shard.policy.vary;
        if vary.is_empty() {
            return String::new();
        }
        let pairs = vary.iter().zip(self.values(host)).map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(";")
    }

    /// Hosts that policies name as learners, with the reason.
    fn followers(&self, voters: &BTreeSet<NodeId>) -> BTreeMap<NodeId, Reason> {
        let policy = &self.shard.policy;
        let mut followers = BTreeMap::new();
        for (name, group) in &policy.replicas {
            let is_free = |host: &&&HostFacts| {
                !voters.contains(&host.node)
                    && !followers.contains_key(&host.node)
                    && self.may_follow(host)
                    && self.matches(host, &group.conditions)
            };
            let mut free: Vec<&HostFacts> = self.hosts.iter().filter(is_free).copied().collect();
            free.sort_by_key(|host| (host.is_dead, self.held(host).is_none(), host.data_shards, host.node));
            let chosen: Vec<NodeId> = free.iter().take(group.count).map(|host| host.node).collect();
            followers.extend(chosen.into_iter().map(|node| (node, Reason::ReplicaGroup(name.clone()))));
        }
        if let Some(conditions) = &policy.cover {
            for host in self.hosts.iter().filter(|host| self.may_follow(host)) {
                if !voters.contains(&host.node) && self.matches(host, conditions) {
                    followers.entry(host.node).or_insert(Reason::Covered);
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
        let stays = matches!(host.standing, HostRole::Voter | HostRole::Learner);
        let is_new = self.held(host).is_none();
        stays && !host.is_draining && !(host.is_dead && is_new)
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
        if let Some(member) = &self.shard.policy.member {
            return Reason::Member { count: member.count, values: self.values_text(host) };
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
        let policy = &self.shard.policy;
        let names_followers = !policy.replicas.is_empty() || policy.cover.is_some();
        let reason = match followers.get(&host.node) {
            Some(reason) => reason.clone(),
            None => self.why_no_vote(host, voters),
        };
        let follows =
            is_prime || followers.contains_key(&host.node) || (!names_followers && self.may_follow(host));
        let reason = match (follows, names_followers && !is_prime) {
            (false, true) if !host.is_draining => Reason::NotNamed,
            _ => reason,
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
        if host.is_barred {
            return Reason::Barred;
        }
        if !self.fits(host) {
            let conditions = self.shard.policy.member.as_ref().map(|member| member.conditions.to_string());
            return match &host.tags {
                None => Reason::Unknown,
                Some(_) => Reason::NotMember { conditions: conditions.unwrap_or_default() },
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
