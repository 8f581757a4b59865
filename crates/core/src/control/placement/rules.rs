//! The rules of one shard's placement: its own policies, then the cluster's default, tag by tag.
//!
//! Owns what is inherited. A data shard inherits every policy that it does not set itself. The
//! prime shard inherits only the tags over which voters are spread: the number of its voters
//! depends on the number of hosts, because the registry must survive what the data survives, and
//! more voters make each change of it slower.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{HostFacts, ShardFacts};
use crate::command::HostRole;
use crate::founding::registry_voters;
use crate::placement_policy::{Conditions, ReplicaGroup};
use crate::types::ShardId;

/// Tags over which voters are spread where no policy says otherwise, the most important one first.
/// A rack is a part of a zone, so two racks of one name in two zones differ.
const SPREAD_TAGS: [&str; 2] = ["geo:zone", "geo:rack"];

/// Whose policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The default of the cluster.
    Cluster,
    /// A policy of the shard.
    Shard,
    /// The rule of the prime shard, which holds the registry.
    Registry,
}

/// Over which tags voters are spread.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spread {
    /// Each level is a list of tags whose values make a place. Voters are spread over the places of
    /// the first level, then over those of the next one. Without levels, each host is a place.
    pub(super) levels: Vec<Vec<String>>,
    /// Whether a dead or drained voter stays if its replacement would be in the place of another
    /// voter. True for policies, which say where voters must be; false for what is merely
    /// preferred.
    pub(super) is_strict: bool,
    /// Whether a third voter in one place is worse than a second one.
    pub(super) is_even: bool,
}

/// The rules in force for a shard.
#[derive(Debug)]
pub(super) struct Rules<'a> {
    /// Without it, every host of the role [`HostRole::Voter`] votes.
    pub(super) member: Option<(ReplicaGroup, Source)>,
    pub(super) spread: Spread,
    pub(super) replicas: BTreeMap<&'a str, (&'a ReplicaGroup, Source)>,
    pub(super) cover: Option<(&'a Conditions, Source)>,
    /// Whether hosts that no policy names have a learner.
    pub(super) others_follow: bool,
}

impl<'a> Rules<'a> {
    pub(super) fn new(shard: &'a ShardFacts, hosts: &[&HostFacts]) -> Rules<'a> {
        let (own, is_prime) = (&shard.policy, shard.shard == ShardId::PRIME);
        let inherited = shard.default.as_ref().filter(|_| !is_prime);
        let own_member = own.member.clone().map(|member| (member, Source::Shard));
        let member = own_member.or_else(|| match &shard.default {
            Some(_) if is_prime => Some((registry_members(hosts), Source::Registry)),
            Some(default) => Some((default.member.clone()?, Source::Cluster)),
            None => None,
        });
        let mut replicas = BTreeMap::new();
        let sources = [(inherited, Source::Cluster), (Some(own), Source::Shard)];
        for (policy, source) in sources {
            for (name, group) in policy.iter().flat_map(|policy| &policy.replicas) {
                replicas.insert(name.as_str(), (group, source));
            }
        }
        let of_shard = own.cover.as_ref().map(|cover| (cover, Source::Shard));
        let of_cluster = || Some((inherited?.cover.as_ref()?, Source::Cluster));
        let cover = of_shard.or_else(of_cluster);
        let names_followers = !replicas.is_empty() || cover.is_some();
        Rules {
            member,
            spread: Spread::new(shard, hosts),
            replicas,
            cover,
            others_follow: is_prime || (shard.default.is_none() && !names_followers),
        }
    }

    /// Whether policies of a data shard name the hosts that follow.
    pub(super) fn names_followers(&self) -> bool {
        !self.replicas.is_empty() || self.cover.is_some()
    }
}

/// The voters of the registry where its shard has no policy.
fn registry_members(hosts: &[&HostFacts]) -> ReplicaGroup {
    let may_vote = |host: &&&HostFacts| host.standing == HostRole::Voter && !host.is_draining;
    let hosts = hosts.iter().filter(may_vote).count();
    ReplicaGroup { count: registry_voters(hosts as u64) as usize, conditions: Conditions::default() }
}

impl Spread {
    fn new(shard: &ShardFacts, hosts: &[&HostFacts]) -> Spread {
        let inherited = shard.default.iter().map(|default| &default.vary);
        let policies = [&shard.policy.vary].into_iter().chain(inherited);
        if let Some(vary) = policies.into_iter().find(|vary| !vary.is_empty()) {
            // Clusters without a default keep the choices that earlier releases made.
            return Spread { levels: vec![vary.clone()], is_strict: true, is_even: shard.default.is_some() };
        }
        if shard.default.is_none() {
            return Spread { levels: Vec::new(), is_strict: true, is_even: false };
        }
        let mut levels: Vec<Vec<String>> = Vec::new();
        for tag in SPREAD_TAGS.into_iter().filter(|tag| differs(hosts, tag)) {
            let mut level = levels.last().cloned().unwrap_or_default();
            level.push(tag.into());
            levels.push(level);
        }
        Spread { levels, is_strict: false, is_even: true }
    }
}

/// Whether a tag has at least two values among the hosts, where a missing tag counts as a value.
fn differs(hosts: &[&HostFacts], tag: &str) -> bool {
    let mut values = hosts.iter().filter_map(|host| host.tags.as_ref()).map(|tags| tags.get(tag));
    let first = values.next();
    values.any(|value| Some(value) != first)
}
