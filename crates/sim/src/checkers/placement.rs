//! The replicas of a healed cluster are where its default placement and the policies of its shards
//! ask for, and nowhere else.
//!
//! It reads the policies by itself, and shares no code with the store's placement. A cluster
//! without a default placement is not judged: there, the roles of hosts decide.

use std::collections::{BTreeMap, BTreeSet};

use tidelock_core::types::{NodeId, ShardId};

use super::Violation;

const CHECKER: &str = "placement";

type Tags = BTreeMap<String, String>;

/// A cluster in which no replica moves any more.
#[derive(Clone, Debug, Default)]
pub struct PlacedCluster {
    /// The placement policies that shards inherit; `None`: the cluster has no default placement.
    pub default: Option<Tags>,
    /// The members.
    pub hosts: BTreeMap<NodeId, PlacedHost>,
    /// The shards, the prime shard included.
    pub shards: Vec<PlacedShard>,
}

/// A host of the cluster.
#[derive(Clone, Debug, Default)]
pub struct PlacedHost {
    /// Whether it may vote, and is neither drained nor dead.
    pub is_able: bool,
    /// Its tags.
    pub tags: Tags,
}

/// A shard with the hosts of its replicas.
#[derive(Clone, Debug, Default)]
pub struct PlacedShard {
    /// Its number.
    pub shard: ShardId,
    /// Its own tags.
    pub tags: Tags,
    /// The hosts that vote.
    pub voters: BTreeSet<NodeId>,
    /// The hosts that follow.
    pub learners: BTreeSet<NodeId>,
}

/// Judges every shard. Returns how many it has judged.
///
/// # Errors
/// The first shard with a replica too many or too few, or with voters closer together than
/// necessary.
pub fn judge(cluster: &PlacedCluster) -> Result<u64, Violation> {
    let Some(default) = &cluster.default else { return Ok(0) };
    for shard in &cluster.shards {
        let policies = Policies { own: &shard.tags, default, is_prime: shard.shard == ShardId::PRIME };
        judge_voters(cluster, shard, policies)
            .and_then(|()| judge_learners(cluster, shard, policies))
            .map_err(|text| {
                let PlacedShard { shard, voters, learners, .. } = shard;
                let text = format!(
                    "shard {shard} has voters {voters:?} and learners {learners:?}, and {text}: {cluster:?}"
                );
                Violation::new(CHECKER, text)
            })?;
    }
    Ok(cluster.shards.len() as u64)
}

/// The policies in force for a shard.
#[derive(Clone, Copy)]
struct Policies<'a> {
    own: &'a Tags,
    default: &'a Tags,
    is_prime: bool,
}

impl<'a> Policies<'a> {
    /// A policy of the shard, or the one that it inherits. The prime shard inherits only `vary`.
    fn get(self, name: &str) -> Option<&'a str> {
        let inherited = || self.default.get(name).filter(|_| !self.is_prime || name.ends_with(":vary"));
        self.own.get(name).or_else(inherited).map(String::as_str)
    }

    /// The conditions that name learners.
    fn followers(self) -> Vec<&'a str> {
        let groups = self.own.iter().chain(self.default.iter().filter(|_| !self.is_prime));
        let groups = groups.filter(|(name, _)| name.starts_with("placement:replica:"));
        let conditions = groups.map(|(_, value)| value.split_once(';').map_or("", |(_, rest)| rest));
        conditions.chain(self.get("placement:cover")).collect()
    }
}

/// Whether a host has the tags of a list of conditions.
pub(super) fn fits(conditions: &str, tags: &Tags) -> bool {
    conditions.split(';').filter(|condition| !condition.is_empty()).all(|condition| {
        match condition.split_once('=') {
            Some((name, value)) => tags.get(name).is_some_and(|tag| tag == value),
            None => tags.contains_key(condition),
        }
    })
}

fn judge_voters(cluster: &PlacedCluster, shard: &PlacedShard, policies: Policies<'_>) -> Result<(), String> {
    let able = cluster.hosts.iter().filter(|(_, host)| host.is_able);
    let (wanted, conditions) = match policies.get("placement:member") {
        Some(member) => {
            let (count, conditions) = member.split_once(';').unwrap_or((member, ""));
            (count.parse().map_err(|_| format!("has the policy {member}"))?, conditions)
        }
        None if able.clone().count() >= 7 => (5, ""),
        None => (3, ""),
    };
    let able = able.filter(|(_, host)| fits(conditions, &host.tags));
    let able: BTreeSet<NodeId> = able.map(|(node, _)| *node).collect();
    let vary = policies.get("placement:vary");
    // A drained host may keep its vote if no other host has its value of the tag.
    let votes_for_its_place = vary.is_some() && cluster.hosts.values().any(|host| !host.is_able);
    if able.len() < wanted {
        // Others may vote in place of those that are missing.
        let is_sound = (votes_for_its_place || able.is_subset(&shard.voters))
            && (1..=wanted).contains(&shard.voters.len());
        return if is_sound { Ok(()) } else { Err(format!("{able:?} should vote, {wanted} at most")) };
    }
    if shard.voters.len() != wanted {
        return Err(format!("{wanted} should vote"));
    }
    if votes_for_its_place {
        return Ok(());
    }
    if !shard.voters.is_subset(&able) {
        return Err(format!("only {able:?} should vote"));
    }
    let place = |node: &NodeId| cluster.hosts[node].tags.get(vary.unwrap_or("geo:zone"));
    let places = |nodes: &BTreeSet<NodeId>| nodes.iter().map(place).collect::<BTreeSet<_>>().len();
    if places(&shard.voters) != wanted.min(places(&able)) {
        return Err(format!("{able:?} are in {} places", places(&able)));
    }
    Ok(())
}

fn judge_learners(
    cluster: &PlacedCluster,
    shard: &PlacedShard,
    policies: Policies<'_>,
) -> Result<(), String> {
    if policies.is_prime {
        let follows = |node: &&NodeId| !shard.voters.contains(node) && !shard.learners.contains(node);
        return match cluster.hosts.keys().find(follows) {
            Some(node) => Err(format!("node {node} does not follow the registry")),
            None => Ok(()),
        };
    }
    let followers = policies.followers();
    let is_named = |node: &NodeId| {
        let host = cluster.hosts.get(node);
        host.is_some_and(|host| followers.iter().any(|conditions| fits(conditions, &host.tags)))
    };
    match shard.learners.iter().find(|node| !is_named(node)) {
        Some(node) => Err(format!("no policy names node {node}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(list: &[(&str, &str)]) -> Tags {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn nodes(numbers: &[u64]) -> BTreeSet<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    /// Six hosts in the zones a, b and c in turn, with a default of three voters.
    fn cluster(voters: &[u64], learners: &[u64]) -> PlacedCluster {
        let host = |node: u64| {
            let zone = ["a", "b", "c"][node as usize % 3];
            (NodeId(node), PlacedHost { is_able: true, tags: tags(&[("geo:zone", zone)]) })
        };
        PlacedCluster {
            default: Some(tags(&[("placement:member", "3")])),
            hosts: (1..=6).map(host).collect(),
            shards: vec![PlacedShard {
                shard: ShardId(1),
                voters: nodes(voters),
                learners: nodes(learners),
                ..PlacedShard::default()
            }],
        }
    }

    fn said(cluster: &PlacedCluster) -> String {
        judge(cluster).expect_err("a violation").message
    }

    #[test]
    fn three_voters_in_three_zones_are_right() {
        assert_eq!(judge(&cluster(&[1, 2, 3], &[])), Ok(1));
        assert_eq!(judge(&cluster(&[1, 5, 6], &[])), Ok(1));
        assert_eq!(judge(&PlacedCluster { default: None, ..cluster(&[1], &[]) }), Ok(0));
    }

    #[test]
    fn too_many_too_few_and_too_close_are_noticed() {
        assert!(said(&cluster(&[1, 2, 3, 4, 5], &[])).contains("3 should vote"));
        assert!(said(&cluster(&[1, 2], &[])).contains("3 should vote"));
        assert!(said(&cluster(&[1, 4, 2], &[])).contains("are in 3 places"));
        let mut barred = cluster(&[1, 2, 3], &[]);
        barred.hosts.get_mut(&NodeId(1)).expect("a host").is_able = false;
        assert!(said(&barred).contains("should vote"));
        let mut few = cluster(&[1, 2], &[]);
        few.hosts.retain(|node, _| node.0 <= 3);
        assert!(said(&few).contains("3 should vote"));
        few.hosts.retain(|node, _| node.0 <= 2);
        assert_eq!(judge(&few), Ok(1));
    }

    #[test]
    fn drained_hosts_may_vote_if_their_zone_has_no_other_host() {
        let mut drained = cluster(&[1, 2, 3], &[]);
        drained.hosts.retain(|node, _| node.0 <= 4);
        for node in [2, 3] {
            drained.hosts.get_mut(&NodeId(node)).expect("a host").is_able = false;
        }
        assert!(said(&drained).contains("should vote"), "node 4 does not vote");
        let policies = [("placement:member", "3"), ("placement:vary", "geo:zone")];
        drained.default = Some(tags(&policies));
        assert_eq!(judge(&drained), Ok(1), "zones a and c have only drained hosts");
        drained.shards[0].voters = BTreeSet::new();
        assert!(said(&drained).contains("should vote"), "no host votes");
    }

    #[test]
    fn learners_must_be_named() {
        assert!(said(&cluster(&[1, 2, 3], &[4])).contains("no policy names node 4"));
        let mut covered = cluster(&[1, 2, 3], &[4]);
        covered.shards[0].tags = tags(&[("placement:cover", "geo:zone=b")]);
        assert_eq!(judge(&covered), Ok(1), "node 4 is in zone b");
        covered.shards[0].tags = tags(&[("placement:cover", "geo:zone=c")]);
        assert!(said(&covered).contains("no policy names"));
    }

    #[test]
    fn the_registry_is_on_every_host_with_three_or_five_votes() {
        let mut prime = cluster(&[1, 2, 3], &[4, 5, 6]);
        prime.shards[0].shard = ShardId::PRIME;
        assert_eq!(judge(&prime), Ok(1));
        prime.shards[0].learners = nodes(&[4, 5]);
        assert!(said(&prime).contains("node 6 does not follow the registry"));
        let host = prime.hosts[&NodeId(1)].clone();
        prime.hosts.insert(NodeId(7), host);
        assert!(said(&prime).contains("5 should vote"));
    }
}
