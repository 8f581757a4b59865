//! Properties of placement, over random clusters and policies.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::prelude::*;

use super::*;
use crate::founding::Founding;

mod defaults;
mod exchanges;

const ZONES: [&str; 4] = ["a", "b", "c", "d"];

fn zone(name: &str) -> Option<BTreeMap<String, String>> {
    Some([(String::from("zone"), String::from(name))].into())
}

fn host(node: u64, zone_name: &str) -> HostFacts {
    HostFacts {
        node: NodeId(node),
        tags: zone(zone_name),
        standing: HostRole::Learner,
        is_barred: false,
        is_draining: false,
        is_dead: false,
        votes: 0,
        data_shards: 0,
    }
}

fn policy(tags: &[(&str, &str)]) -> PlacementPolicy {
    let tags = tags.iter().map(|(name, value)| (format!("placement:{name}"), String::from(*value)));
    PlacementPolicy::parse(&tags.collect()).expect("a policy")
}

fn shard(policy: PlacementPolicy, held: &[(u64, Option<Role>)]) -> ShardFacts {
    let held = held.iter().map(|&(node, role)| (NodeId(node), role)).collect();
    ShardFacts { shard: ShardId(1), policy, default: None, held }
}

fn voters(plan: &ShardPlan) -> Vec<u64> {
    let votes = plan.iter().filter(|(_, placed)| placed.role == Some(Role::Voter));
    votes.map(|(node, _)| node.0).collect()
}

fn reason(plan: &ShardPlan, node: u64) -> String {
    plan[&NodeId(node)].reason.to_string()
}

const VOTER: Option<Role> = Some(Role::Voter);
const LEARNER: Option<Role> = Some(Role::Learner);

/// Three zones with one voter each, and three more hosts in the same zones.
#[test]
fn joiners_follow_and_take_the_place_of_the_dead_where_zones_allow() {
    let mut hosts: Vec<HostFacts> = (1..=6).map(|node| host(node, ZONES[(node as usize - 1) % 3])).collect();
    let by_zone = || policy(&[("member", "3"), ("vary", "zone")]);
    let held = [(1, VOTER), (2, VOTER), (3, VOTER), (4, LEARNER), (5, LEARNER), (6, LEARNER)];
    let plan = place(&hosts, &shard(by_zone(), &held));
    assert_eq!(voters(&plan), [1, 2, 3]);
    assert!(plan.values().all(|placed| placed.role.is_some()), "all others follow");
    assert_eq!(reason(&plan, 4), "no vote: node 1 votes at zone=a already");
    hosts[1].is_dead = true;
    let plan = place(&hosts, &shard(by_zone(), &held));
    assert_eq!(voters(&plan), [1, 3, 5], "node 5 is in the same zone");
    hosts[4].is_dead = true;
    let plan = place(&hosts, &shard(by_zone(), &held));
    assert_eq!(voters(&plan), [1, 2, 3]);
    assert_eq!(
        reason(&plan, 2),
        "it is dead, but every host that could take its place is where another voter is already"
    );
    assert_eq!(reason(&plan, 5), "no vote: it is dead");
}

#[test]
fn without_policies_those_vote_who_were_given_a_vote() {
    let mut hosts: Vec<HostFacts> = (1..=5).map(|node| host(node, "a")).collect();
    for host in &mut hosts[..3] {
        host.standing = HostRole::Voter;
    }
    let held = [(1, VOTER), (2, VOTER), (3, VOTER)];
    let plan = place(&hosts, &shard(PlacementPolicy::default(), &held));
    assert_eq!(voters(&plan), [1, 2, 3]);
    assert_eq!(reason(&plan, 4), "no vote: there are enough voters, nodes 1, 2, 3");
    hosts[2].is_dead = true;
    let plan = place(&hosts, &shard(PlacementPolicy::default(), &held));
    assert_eq!((voters(&plan), reason(&plan, 4).as_str()), ([1, 2, 4].into(), "it votes in place of node 3"));
    hosts[3].is_barred = true;
    hosts[4].is_barred = true;
    let plan = place(&hosts, &shard(PlacementPolicy::default(), &held));
    assert_eq!(voters(&plan), [1, 2, 3], "there is nobody else");
    hosts[2].is_dead = false;
    hosts[3].standing = HostRole::Voter;
    hosts[3].is_barred = false;
    let plan = place(&hosts, &shard(PlacementPolicy::default(), &held));
    assert_eq!(voters(&plan), [1, 2, 3, 4], "it was added");
    hosts[0].standing = HostRole::Leaving;
    let plan = place(&hosts, &shard(PlacementPolicy::default(), &held));
    assert_eq!((voters(&plan), plan[&NodeId(1)].role), ([2, 3, 4].into(), None));
}

#[test]
fn a_drained_host_is_emptied_where_others_can_take_over() {
    let mut hosts: Vec<HostFacts> = (1..=4).map(|node| host(node, "a")).collect();
    hosts[0].is_draining = true;
    let held = [(1, VOTER), (2, VOTER), (3, VOTER), (4, LEARNER)];
    let plan = place(&hosts, &shard(policy(&[("member", "3")]), &held));
    assert_eq!((voters(&plan), plan[&NodeId(1)].role), ([2, 3, 4].into(), None));
    let plan = place(&hosts[..3], &shard(policy(&[("member", "3")]), &held));
    assert_eq!(reason(&plan, 1), "it is drained, but no other host could take its place");
    let facts = ShardFacts { shard: ShardId::PRIME, ..shard(policy(&[("member", "3")]), &held) };
    assert_eq!(place(&hosts, &facts)[&NodeId(1)].role, LEARNER, "every host has the prime shard");
}

/// A host whose replica is being removed gets none yet, and the last vote stays.
#[test]
fn the_last_votes_stay_until_another_replica_can_take_them() {
    let mut hosts = [host(1, "a"), host(2, "b")];
    (hosts[0].standing, hosts[0].is_draining) = (HostRole::Voter, true);
    let on_its_way_out = [(1, None), (2, VOTER)];
    hosts[1].standing = HostRole::Leaving;
    let plan = place(&hosts, &shard(policy(&[]), &on_its_way_out));
    assert_eq!(plan[&NodeId(2)].role, VOTER, "although it leaves");
    (hosts[1].standing, hosts[1].is_barred) = (HostRole::Learner, true);
    let plan = place(&hosts, &shard(policy(&[]), &on_its_way_out));
    assert_eq!(plan[&NodeId(2)].role, VOTER, "although its vote was taken away");
    hosts[1].standing = HostRole::Leaving;
    let plan = place(&hosts, &shard(policy(&[]), &[(1, VOTER), (2, VOTER)]));
    assert_eq!(voters(&plan), [1], "it goes once the other one votes");
}

#[test]
fn groups_and_covers_name_who_follows() {
    let mut hosts: Vec<HostFacts> = (1..=6).map(|node| host(node, ZONES[(node as usize - 1) / 3])).collect();
    hosts[5].tags = None;
    let policy = policy(&[("member", "1;zone=a"), ("replica:reports", "1"), ("cover", "zone=b")]);
    let plan = place(&hosts, &shard(policy, &[(1, VOTER)]));
    let roles: Vec<_> = plan.values().map(|placed| placed.role).collect();
    assert_eq!(roles, [VOTER, LEARNER, None, LEARNER, LEARNER, None]);
    assert_eq!(reason(&plan, 2), "one of the replica group `reports` by the shard's policy");
    assert_eq!(
        (reason(&plan, 3).as_str(), reason(&plan, 4).as_str()),
        ("the policies name other hosts", "its tags are covered by the shard's policy")
    );
}

#[test]
fn a_registry_comes_to_rest() {
    let mut registry = Registry::founded(&Founding::new(3, 4));
    assert_eq!(assignments(&registry, 16), []);
    let info = crate::command::HostInfo {
        node: NodeId(0),
        uuid: uuid::Uuid::from_u128(9),
        peer_address: String::new(),
        http_address: String::new(),
        resp_address: String::new(),
        resp_cluster_address: String::new(),
        tags: BTreeMap::new(),
        release: crate::version::Release::default(),
    };
    registry.join(crate::types::LogIndex(1), info);
    let mut rounds = 0;
    loop {
        let due = assignments(&registry, 2);
        if due.is_empty() {
            break;
        }
        rounds += 1;
        assert!(due.len() <= 2, "{due:?}");
        registry.assign(crate::types::LogIndex(1 + rounds), registry.changed(), &due);
    }
    assert_eq!(rounds, 2, "a new host gets a replica of each of four shards, two at a time");
}

fn any_host(node: u64) -> impl Strategy<Value = HostFacts> {
    let tags = prop_oneof![
        8 => (0..ZONES.len()).prop_map(|at| zone(ZONES[at])),
        1 => Just(Some(BTreeMap::new())),
        1 => Just(None),
    ];
    let standing = prop_oneof![
        3 => Just(HostRole::Voter),
        4 => Just(HostRole::Learner),
        1 => Just(HostRole::Leaving),
        1 => Just(HostRole::Removed),
    ];
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.15), prop::bool::weighted(0.2));
    (tags, standing, flags, 0..9_usize).prop_map(move |(tags, standing, flags, votes)| HostFacts {
        node: NodeId(node),
        tags,
        standing,
        is_barred: flags.0,
        is_draining: flags.1,
        is_dead: flags.2,
        votes,
        data_shards: votes,
    })
}

fn any_hosts() -> impl Strategy<Value = Vec<HostFacts>> {
    (1..12_u64).prop_flat_map(|count| (1..=count).map(any_host).collect::<Vec<_>>())
}

fn any_shard() -> impl Strategy<Value = ShardFacts> {
    let member = prop_oneof![
        Just(None),
        (1..6_usize).prop_map(|count| Some(format!("{count}"))),
        (1..4_usize, 0..ZONES.len()).prop_map(|(count, at)| Some(format!("{count};zone={}", ZONES[at]))),
    ];
    let vary = prop::option::of(Just("zone"));
    let others = (prop::option::of(1..4_usize), prop::option::of(0..ZONES.len()));
    let role = prop_oneof![3 => Just(VOTER), 3 => Just(LEARNER), 1 => Just(None)];
    let held = prop::collection::btree_map((1..12_u64).prop_map(NodeId), role, 0..8);
    (member, vary, others, held, 0..3_u64).prop_map(|(member, vary, (group, cover), held, number)| {
        let tags = [
            ("placement:member", member),
            ("placement:vary", vary.map(String::from)),
            ("placement:replica:r", group.map(|count| count.to_string())),
            ("placement:cover", cover.map(|at| format!("zone={}", ZONES[at]))),
        ];
        let tags = tags.into_iter().filter_map(|(name, value)| Some((String::from(name), value?)));
        let policy = PlacementPolicy::parse(&tags.collect()).expect("a policy");
        ShardFacts { shard: ShardId(number), policy, default: None, held }
    })
}

/// The shard after the plan was carried out and removed replicas are gone.
fn carried_out(shard: &ShardFacts, plan: &ShardPlan) -> ShardFacts {
    let mut held: BTreeMap<NodeId, Option<Role>> = BTreeMap::new();
    for (&node, placed) in plan {
        if placed.role.is_some() {
            held.insert(node, placed.role);
        }
    }
    ShardFacts { held, ..shard.clone() }
}

/// The hosts that may vote, as the documentation defines them.
fn eligible<'a>(hosts: &'a [HostFacts], shard: &'a ShardFacts) -> impl Iterator<Item = &'a HostFacts> {
    hosts.iter().filter(move |host| {
        let held = shard.held.get(&host.node);
        let votes = held == Some(&VOTER);
        let fits = match (&shard.policy.member, &host.tags) {
            (None, _) => true,
            (Some(member), Some(tags)) => member.conditions.hold(tags),
            (Some(_), None) => votes,
        };
        matches!(host.standing, HostRole::Voter | HostRole::Learner)
            && !host.is_barred
            && fits
            && (votes || (!host.is_dead && held != Some(&None)))
    })
}

fn zones<'a>(hosts: impl Iterator<Item = &'a HostFacts>) -> usize {
    let zone =
        |host: &HostFacts| host.tags.as_ref().and_then(|tags| tags.get("zone").cloned()).unwrap_or_default();
    hosts.map(zone).collect::<BTreeSet<_>>().len()
}

proptest! {
    #[test]
    fn there_are_as_many_voters_as_there_can_be_each_on_a_host_of_its_own(
        hosts in any_hosts(), shard in any_shard(),
    ) {
        let plan = place(&hosts, &shard);
        let wanted = match &shard.policy.member {
            Some(member) => member.count,
            None => hosts.iter().filter(|host| host.standing == HostRole::Voter).count(),
        };
        let able: BTreeSet<u64> = eligible(&hosts, &shard).map(|host| host.node.0).collect();
        let stays = |host: &&HostFacts| matches!(host.standing, HostRole::Voter | HostRole::Learner);
        let votes_still = hosts.iter().filter(stays).filter(|host| {
            !host.is_barred && shard.held.get(&host.node) == Some(&VOTER)
        });
        let kept: BTreeSet<u64> = able.iter().copied().chain(votes_still.map(|host| host.node.0)).collect();
        let voters = voters(&plan);
        // A plan has one entry for each host, so no host votes twice.
        let leaves_a_vote = |host: &HostFacts| {
            host.standing == HostRole::Leaving && shard.held.get(&host.node) == Some(&VOTER)
        };
        let least = usize::from(hosts.iter().any(|host| stays(&host) || leaves_a_vote(host)));
        prop_assert_eq!(voters.len(), wanted.min(kept.len()).max(least));
        if voters.len() > 1 {
            prop_assert!(voters.iter().all(|voter| kept.contains(voter)));
        }
        if able.len() >= wanted && wanted > 0 {
            prop_assert!(voters.iter().all(|voter| able.contains(voter)));
        }
    }

    #[test]
    fn voters_differ_whenever_they_can(hosts in any_hosts(), shard in any_shard()) {
        prop_assume!(!shard.policy.vary.is_empty());
        let plan = place(&hosts, &shard);
        let voters = voters(&plan);
        prop_assume!(voters.len() <= eligible(&hosts, &shard).count());
        let distinct = zones(hosts.iter().filter(|host| voters.contains(&host.node.0)));
        prop_assert_eq!(distinct, voters.len().min(zones(eligible(&hosts, &shard))));
    }

    #[test]
    fn a_plan_that_is_carried_out_stays(hosts in any_hosts(), shard in any_shard()) {
        let first = place(&hosts, &shard);
        let after = carried_out(&shard, &first);
        // Hosts whose replicas were being removed may get new ones now, which can change the plan
        // once more.
        let settled = carried_out(&after, &place(&hosts, &after));
        let again = place(&hosts, &settled);
        prop_assert_eq!(carried_out(&settled, &again).held, settled.held);
    }

    #[test]
    fn the_order_of_hosts_does_not_matter(hosts in any_hosts(), shard in any_shard(), seed in any::<u64>()) {
        let mut shuffled = hosts.clone();
        fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
        prop_assert_eq!(place(&hosts, &shard), place(&shuffled, &shard));
    }

    /// A voter is replaced only if it must be, or by a host that ranks higher in a documented goal.
    #[test]
    fn nothing_moves_without_a_gain(hosts in any_hosts(), shard in any_shard()) {
        let plan = place(&hosts, &shard);
        let after = voters(&plan);
        let came: Vec<&HostFacts> = eligible(&hosts, &shard)
            .filter(|host| after.contains(&host.node.0) && shard.held.get(&host.node) != Some(&VOTER))
            .collect();
        let went = eligible(&hosts, &shard)
            .filter(|host| !after.contains(&host.node.0) && shard.held.get(&host.node) == Some(&VOTER));
        let has_own_vote = |host: &HostFacts| shard.policy.member.is_none() && host.standing == HostRole::Voter;
        for gone in went {
            let gain = |new: &&HostFacts| {
                (gone.is_dead && !new.is_dead)
                    || (gone.is_draining && !new.is_draining)
                    || (!has_own_vote(gone) && has_own_vote(new))
            };
            prop_assert!(
                came.is_empty() || came.iter().any(gain) || !shard.policy.vary.is_empty(),
                "node {} went for {:?}", gone.node, came
            );
        }
    }

    /// A new host never displaces a live voter, unless zones or operator votes require it.
    #[test]
    fn a_newcomer_moves_nobody(mut hosts in any_hosts(), facts in any_shard()) {
        for host in &mut hosts {
            (host.is_dead, host.is_draining, host.is_barred) = (false, false, false);
        }
        prop_assume!(facts.policy.vary.is_empty());
        let first = carried_out(&facts, &place(&hosts, &facts));
        let settled = carried_out(&first, &place(&hosts, &first));
        let fits: Vec<u64> = eligible(&hosts, &settled).map(|host| host.node.0).collect();
        let mut before = voters(&place(&hosts, &settled));
        before.retain(|voter| fits.contains(voter));
        hosts.push(host(50, "a"));
        let after = voters(&place(&hosts, &settled));
        prop_assert!(before.iter().all(|voter| after.contains(voter)), "{before:?} {after:?}");
    }

    #[test]
    fn every_host_has_the_prime_shard(hosts in any_hosts(), facts in any_shard()) {
        let plan = place(&hosts, &ShardFacts { shard: ShardId::PRIME, ..facts });
        for host in hosts.iter().filter(|host| matches!(host.standing, HostRole::Voter | HostRole::Learner)) {
            prop_assert!(plan[&host.node].role.is_some());
        }
    }
}
