//! Placement in clusters with a default, over random clusters, and the balance of votes.

use super::*;
use crate::command::{HostChange, HostInfo};
use crate::placement_policy::MEMBER_POLICY;
use crate::types::LogIndex;
use crate::version::{ClusterVersion, Release, SupportedVersions};

fn geo(zone: &str, rack: Option<&str>) -> BTreeMap<String, String> {
    let rack = rack.map(|rack| (String::from("geo:rack"), String::from(rack)));
    [(String::from("geo:zone"), String::from(zone))].into_iter().chain(rack).collect()
}

fn member(count: usize) -> Option<PlacementPolicy> {
    Some(policy(&[("member", &count.to_string())]))
}

fn by_default(count: usize, held: &[(u64, Option<Role>)]) -> ShardFacts {
    ShardFacts { default: member(count), ..shard(PlacementPolicy::default(), held) }
}

/// Hosts that may vote, in zones that take turns.
fn hosts_in(zones: &[&str]) -> Vec<HostFacts> {
    let host = |(node, zone): (u64, &&str)| HostFacts {
        tags: Some(geo(zone, None)),
        standing: HostRole::Voter,
        ..host(node, zone)
    };
    (1..).zip(zones).map(host).collect()
}

#[test]
fn three_voters_in_three_zones_and_nothing_elsewhere() {
    let mut hosts = hosts_in(&["a", "c", "f", "a", "c", "f"]);
    let held = [(1, VOTER), (2, VOTER), (3, VOTER)];
    let plan = place(&hosts, &by_default(3, &held));
    assert_eq!(voters(&plan), [1, 2, 3]);
    assert_eq!(plan[&NodeId(4)].role, None, "no policy names it");
    assert_eq!(reason(&plan, 1), "one of 3 voters by the cluster's default, at geo:zone=a");
    assert_eq!(reason(&plan, 4), "no vote: node 1 votes at geo:zone=a already");
    assert_eq!(voters(&place(&hosts, &by_default(3, &[(1, VOTER), (4, VOTER), (2, VOTER)]))), [1, 2, 3]);
    hosts[2].is_dead = true;
    assert_eq!(voters(&place(&hosts, &by_default(3, &held))), [1, 2, 6], "node 6 is in the same zone");
    hosts[5].is_draining = true;
    let plan = place(&hosts, &by_default(3, &held));
    assert_eq!(voters(&plan), [1, 2, 4], "a live voter in a zone twice beats a dead or drained one");
}

#[test]
fn racks_matter_after_zones_and_only_where_they_differ() {
    let mut hosts = hosts_in(&["a", "a", "a", "c"]);
    for (host, rack) in hosts.iter_mut().zip(["r1", "r1", "r2", "r1"]) {
        host.tags = host.tags.take().map(|tags| geo(&tags["geo:zone"], Some(rack)));
    }
    let plan = place(&hosts, &by_default(3, &[(1, VOTER), (2, VOTER), (4, VOTER)]));
    assert_eq!(voters(&plan), [1, 3, 4]);
    assert_eq!(reason(&plan, 3), "one of 3 voters by the cluster's default, at geo:zone=a;geo:rack=r2");
    for host in &mut hosts {
        host.tags = Some(BTreeMap::new());
    }
    let plan = place(&hosts, &by_default(3, &[(1, VOTER), (2, VOTER), (4, VOTER)]));
    assert_eq!(reason(&plan, 1), "one of 3 voters by the cluster's default");
    assert_eq!(reason(&plan, 3), "no vote: there are enough voters, nodes 1, 2, 4");
}

#[test]
fn a_third_voter_in_a_zone_is_worse_than_a_second() {
    let hosts = hosts_in(&["a", "a", "a", "b", "b", "c"]);
    let plan = place(&hosts, &by_default(5, &[(1, VOTER), (2, VOTER), (3, VOTER)]));
    assert_eq!(voters(&plan), [1, 2, 4, 5, 6]);
}

#[test]
fn voters_whose_tags_are_unknown_stay() {
    let mut hosts = hosts_in(&["a", "c", "f", "a", "c", "f"]);
    for unregistered in &mut hosts[2..] {
        unregistered.tags = None;
    }
    let plan = place(&hosts, &by_default(3, &[(4, VOTER), (5, VOTER), (6, VOTER)]));
    assert_eq!(voters(&plan), [4, 5, 6]);
}

#[test]
fn policies_override_the_default_tag_by_tag() {
    let mut hosts = hosts_in(&["a", "c", "f", "a"]);
    let default = Some(policy(&[("member", "3"), ("cover", "geo:zone=a"), ("replica:r", "1")]));
    let own = policy(&[("member", "1;geo:zone=c")]);
    let facts = ShardFacts { default: default.clone(), ..shard(own, &[(2, VOTER)]) };
    let plan = place(&hosts, &facts);
    let roles: Vec<_> = plan.values().map(|placed| placed.role).collect();
    assert_eq!(roles, [LEARNER, VOTER, None, LEARNER]);
    assert_eq!(reason(&plan, 1), "one of the replica group `r` by the cluster's default");
    assert_eq!(reason(&plan, 2), "one of 1 voter by the shard's policy, at geo:zone=c");
    assert_eq!(reason(&plan, 3), "no vote: voters need geo:zone=c by the shard's policy");
    assert_eq!(reason(&plan, 4), "its tags are covered by the cluster's default");
    hosts[1].standing = HostRole::Learner;
    hosts[1].is_barred = true;
    let plan = place(&hosts, &by_default(3, &[(2, VOTER)]));
    assert_eq!(
        (voters(&plan), reason(&plan, 2).as_str()),
        ([1, 3, 4].into(), "no vote: an operator took it away")
    );
}

#[test]
fn the_registry_has_three_voters_and_five_from_seven_hosts_on() {
    for (count, expected) in [(1, 1), (2, 2), (3, 3), (6, 3), (7, 5), (9, 5)] {
        let hosts = hosts_in(&["a", "b", "c", "a", "b", "c", "a", "b", "c"][..count]);
        let facts = ShardFacts { shard: ShardId::PRIME, ..by_default(1, &[(1, VOTER)]) };
        let plan = place(&hosts, &facts);
        assert_eq!(voters(&plan).len(), expected, "{count} hosts");
        assert!(plan.values().all(|placed| placed.role.is_some()), "all others follow");
        let voters = if expected < 5 { 3 } else { 5 };
        let text = format!("one of {voters} voters of the registry, which has five from seven hosts on");
        assert!(reason(&plan, 1).starts_with(&text), "{}", reason(&plan, 1));
    }
}

pub(super) fn founded(founders: u64, data_shards: u64) -> Registry {
    let founding = Founding { replicas: Some(3), ..Founding::new(founders, data_shards) };
    Registry::founded(&founding).founded_at(ClusterVersion::NEWEST)
}

pub(super) fn info(node: u64, zone: &str) -> HostInfo {
    HostInfo {
        node: NodeId(node),
        uuid: uuid::Uuid::from_u128(node.into()),
        peer_address: String::new(),
        http_address: String::new(),
        resp_address: String::new(),
        resp_cluster_address: String::new(),
        tags: geo(zone, None),
        release: Release { name: String::new(), versions: SupportedVersions::OWN },
    }
}

/// Carries out placement and balance as the leaders do, until nothing is due. Returns the number of
/// replicas that were assigned, and checks that votes of one shard at a time move for balance.
pub(super) fn settle(registry: &mut Registry) -> usize {
    let mut assigned = 0;
    for index in 1_000.. {
        let mut due = assignments(registry, 16);
        if due.is_empty() {
            due = balance(registry);
            assert!(due.iter().all(|assignment| assignment.shard == due[0].shard), "{due:?}");
        }
        if due.is_empty() {
            return assigned;
        }
        assert!(index < 2_000, "it does not come to rest: {due:?}");
        assigned += due.len();
        registry.assign(LogIndex(index), registry.changed(), &due);
        let is_gone = |row: &crate::topology::Replica| row.wanted.is_none() && row.shard != ShardId::PRIME;
        let gone: Vec<_> = registry.replicas().iter().filter(|(_, row)| is_gone(row)).collect();
        let gone: Vec<_> = gone.into_iter().map(|(replica, _)| *replica).collect();
        if !gone.is_empty() {
            assert_eq!(balance(registry), [], "the last move is not over");
        }
        gone.into_iter().for_each(|replica| drop(registry.forget_replica(LogIndex(index), replica)));
    }
    unreachable!("the indexes do not end")
}

pub(super) fn votes(registry: &Registry) -> Vec<usize> {
    let count = |node: &NodeId| {
        let rows = registry.replicas().values().filter(|row| row.shard != ShardId::PRIME);
        rows.filter(|row| row.node == *node && row.wanted == VOTER).count()
    };
    registry.host_entries().keys().map(count).collect()
}

#[test]
fn six_founders_in_three_zones_stay_as_they_were_founded() {
    let mut registry = founded(6, 4);
    for (node, zone) in (1..).zip(["a", "c", "f", "a", "c", "f"]) {
        registry.register(LogIndex(node), info(node, zone));
    }
    assert_eq!((settle(&mut registry), votes(&registry)), (0, [2; 6].into()));
}

#[test]
fn a_voter_is_explained_with_the_number_of_its_votes() {
    let why = |shards| {
        let registry = founded(3, shards);
        explain(&registry, ShardId(1)).expect("a shard").hosts[0].reason.clone()
    };
    assert_eq!(why(1), "one of 3 voters by the cluster's default (it votes in 1 data shard)");
    assert_eq!(why(2), "one of 3 voters by the cluster's default (it votes in 2 data shards)");
}

#[test]
fn a_new_host_takes_votes_one_at_a_time() {
    let mut registry = founded(3, 4);
    for node in 1..=3 {
        registry.register(LogIndex(node), info(node, "a"));
    }
    assert_eq!(settle(&mut registry), 0);
    registry.join(LogIndex(10), info(4, "a"));
    let why = |registry: &Registry, shard: u64, node: usize| {
        explain(registry, ShardId(shard)).expect("a shard").hosts[node - 1].reason.clone()
    };
    assert_eq!(
        why(&registry, 1, 4),
        "it takes the vote of node 1, which votes in 4 data shards, and it in 0"
    );
    assert_eq!(why(&registry, 1, 1), "its vote goes to node 4, which votes in 0 data shards, and it in 4");
    assert_eq!(
        why(&registry, 2, 4),
        "no vote: there are enough voters, nodes 1, 2, 3 (it votes in 0 data shards)"
    );
    assert_eq!((settle(&mut registry), votes(&registry)), (6, [3; 4].into()));
    registry.change(LogIndex(20), NodeId(4), HostChange::Follow);
    settle(&mut registry);
    assert_eq!(votes(&registry), [4, 4, 4, 0]);
}

#[test]
fn shards_with_their_own_number_of_voters_are_left_alone() {
    let mut registry = founded(3, 2);
    for node in 1..=3 {
        registry.register(LogIndex(node), info(node, "a"));
    }
    let own = [(String::from(MEMBER_POLICY), Some(String::from("3")))];
    for shard in [1, 2] {
        registry.tag_shard(LogIndex(9), ShardId(shard), &own);
    }
    registry.join(LogIndex(10), info(4, "a"));
    assert_eq!((settle(&mut registry), votes(&registry)), (0, [2, 2, 2, 0].into()));
    registry.tag_shard(LogIndex(3_000), ShardId(1), &[(String::from(MEMBER_POLICY), None)]);
    settle(&mut registry);
    assert_eq!(votes(&registry).iter().sum::<usize>(), 6);
    assert_eq!(votes(&registry)[3], 1, "the default may move the votes of shard 1");
}

#[test]
fn a_cluster_without_a_default_keeps_its_placement_until_one_is_set() {
    let mut registry = Registry::founded(&Founding::new(5, 2)).founded_at(ClusterVersion::NEWEST);
    for (node, zone) in (1..).zip(["a", "b", "c", "a", "b"]) {
        registry.register(LogIndex(node), info(node, zone));
    }
    registry.join(LogIndex(10), info(6, "c"));
    assert_eq!(settle(&mut registry), 2, "the new host follows both data shards");
    assert_eq!(votes(&registry), [2, 2, 2, 2, 2, 0]);
    let set = |registry: &mut Registry, name: &str, value: &str| {
        registry.set_default(LogIndex(3_000), &[(String::from(name), Some(String::from(value)))])
    };
    let denied = crate::command::WriteReply::Denied(crate::command::Denial::InvalidPolicy);
    assert_eq!(set(&mut registry, "placement:vary", "geo:zone"), denied, "it needs a number of voters");
    set(&mut registry, MEMBER_POLICY, "3");
    settle(&mut registry);
    assert_eq!(votes(&registry), [1; 6]);
    assert!(registry.host_entries().values().all(|host_entry| host_entry.standing == HostRole::Voter));
    let removed = registry.set_default(LogIndex(4_000), &[(String::from(MEMBER_POLICY), None)]);
    assert_eq!(removed, denied);
}

pub(super) fn any_registry() -> impl Strategy<Value = Registry> {
    let zones = prop::collection::vec(0..4_usize, 9);
    let hosts = (1..=9_u64, 0..5_u64, 1..=8_u64, prop_oneof![Just(1_u64), Just(3), Just(3), Just(5)]);
    (hosts, zones, prop::collection::vec(0..12_u64, 4)).prop_map(
        |((founders, joins, shards, replicas), zones, changes)| {
            let founding = Founding { replicas: Some(replicas), ..Founding::new(founders, shards) };
            let mut registry = Registry::founded(&founding).founded_at(ClusterVersion::NEWEST);
            for node in 1..=founders + joins {
                let zone = ZONES[zones[node as usize % zones.len()]];
                if node <= founders {
                    registry.register(LogIndex(node), info(node, zone));
                } else {
                    registry.join(LogIndex(node), info(node, zone));
                }
            }
            for (change, kind) in changes.iter().zip([
                HostChange::Follow,
                HostChange::Drain(true),
                HostChange::Dead(true),
                HostChange::Leave,
            ]) {
                registry.change(LogIndex(100), NodeId(*change), kind);
            }
            registry
        },
    )
}

proptest! {
    /// Every shard ends with as many voters as it can have, in as many zones as possible, and hosts
    /// with equal tags vote in about equally many shards.
    #[test]
    fn a_cluster_comes_to_rest_spread_and_balanced(mut registry in any_registry()) {
        settle(&mut registry);
        let default = registry.default_tags().map(|tags| PlacementPolicy::parse(tags).expect("a policy"));
        let wanted = default.and_then(|policy| policy.member).expect("a default").count;
        let entries = registry.host_entries();
        let may_vote = |node: &NodeId| entries[node].standing == HostRole::Voter;
        let is_fit = |node: &NodeId| may_vote(node) && !entries[node].draining && !entries[node].is_dead;
        let zone = |node: &NodeId| entries[node].host.as_ref().map(|host| host.info.tags["geo:zone"].clone());
        let fit: Vec<NodeId> = entries.keys().copied().filter(is_fit).collect();
        let zones = |nodes: &[NodeId]| nodes.iter().map(zone).collect::<BTreeSet<_>>().len();
        for shard in registry.shards().keys().filter(|shard| **shard != ShardId::PRIME) {
            let replicas: Vec<_> = registry.wanted(*shard).collect();
            prop_assert!(replicas.iter().all(|(_, _, role)| *role == VOTER), "nobody follows: {replicas:?}");
            let voters: Vec<NodeId> = replicas.iter().map(|(_, node, _)| *node).collect();
            if fit.len() >= wanted {
                prop_assert_eq!(voters.len(), wanted);
                prop_assert!(voters.iter().all(is_fit), "{voters:?} of {fit:?}");
                prop_assert_eq!(zones(&voters), wanted.min(zones(&fit)));
            } else {
                prop_assert!(fit.iter().all(|node| voters.contains(node)));
            }
        }
        let votes: BTreeMap<NodeId, usize> = entries.keys().copied().zip(votes(&registry)).collect();
        for (one, other) in fit.iter().flat_map(|one| fit.iter().map(move |other| (one, other))) {
            if zone(one) == zone(other) {
                prop_assert!(votes[one].abs_diff(votes[other]) <= 1, "{one} and {other}: {votes:?}");
            }
        }
    }
}
