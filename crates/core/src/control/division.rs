//! Division: how many data shards a cluster should have, and what holds the next one back. A pure
//! function of the registry and of the load that its hosts report.
//!
//! Owns the decision to add a data shard, which
//! [`RegistryWrite::Divide`](crate::command::RegistryWrite::Divide) carries out. It applies only to
//! clusters with a default placement and with [`AUTOMATIC_TAG`]. Clusters that were founded with a
//! number of shards do not have that tag.
//!
//! A second shard parts keys that one shard serves together: a transaction over both parts fails.
//! So nothing is divided while clients send transactions that span slots. The number of shards only
//! grows, because a shard costs little once its keys have moved, and moving them back costs as
//! much again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::command::{DivisionBlocker, DivisionCause, DivisionView, HostLoad, HostRole};
use crate::control::registry::Registry;
use crate::placement_policy::PlacementPolicy;
use crate::topology::HostEntry;
use crate::types::{NodeId, ShardId};

/// The tag of the prime shard in clusters whose leader adds data shards by itself. A tag, so that
/// an operator can set and remove it.
pub const AUTOMATIC_TAG: &str = "division:automatic";

/// The tag of a shard that a division added: why it did.
pub const CAUSE_TAG: &str = "division:cause";

/// The load of a cluster, as the leader of the prime shard knows it.
#[derive(Clone, Debug, Default)]
pub struct ClusterLoad {
    /// The recent reports. A host that has not reported lately is missing.
    pub hosts: BTreeMap<NodeId, HostLoad>,
    /// Whether one data shard has been busy for long enough that another one is wanted.
    pub is_busy: bool,
    /// Whether slots move, or replicas are being created or removed, or did so until recently.
    pub is_changing: bool,
}

impl ClusterLoad {
    /// Requests a second of the busiest data shard.
    pub fn busiest(&self) -> u64 {
        let mut rates = HostLoad::rates_of_all(self.hosts.values());
        rates.remove(&ShardId::PRIME);
        rates.into_values().max().unwrap_or_default()
    }
}

/// Whether the leader of the prime shard adds data shards by itself.
pub fn is_automatic(registry: &Registry) -> bool {
    registry.shards().get(&ShardId::PRIME).is_some_and(|prime| prime.tags.contains_key(AUTOMATIC_TAG))
}

/// The number of data shards that a cluster should have, and what holds the next one back. `None`
/// for a cluster that is not divided automatically.
pub fn view(registry: &Registry, load: &ClusterLoad) -> Option<DivisionView> {
    if !is_automatic(registry) {
        return None;
    }
    let policy = PlacementPolicy::parse(registry.default_tags()?).ok()?;
    let member = policy.member?;
    let shards = registry.shards().keys().filter(|shard| **shard != ShardId::PRIME).count() as u64;
    let is_able = |entry: &&HostEntry| {
        let is_fit = entry.standing == HostRole::Voter && !entry.draining && !entry.is_dead;
        let tags = entry.host.as_ref().map(|host| &host.info.tags);
        is_fit && tags.is_some_and(|tags| member.conditions.hold(tags))
    };
    let able = registry.host_entries().values().filter(is_able).count() as u64;
    let by_hosts = able.div_ceil(member.count as u64);
    let by_load = if load.is_busy { (shards + 1).min(able) } else { 0 };
    let wanted = shards.max(by_hosts).max(by_load);
    let cause = if by_hosts > shards {
        Some(DivisionCause::Hosts)
    } else {
        (by_load > shards).then_some(DivisionCause::Load)
    };
    let spanning = load.hosts.values().map(|host| host.spanning).sum();
    let blocker = cause.and_then(|_| blocker(registry, load));
    Some(DivisionView { shards, wanted, cause, spanning, blocker })
}

/// What holds back a change that separates slots of one shard.
pub fn blocker(registry: &Registry, load: &ClusterLoad) -> Option<DivisionBlocker> {
    let spanning: u64 = load.hosts.values().map(|host| host.spanning).sum();
    if spanning > 0 {
        return Some(DivisionBlocker::Spanning(spanning));
    }
    let serving = registry.host_entries().iter().filter(|(_, entry)| entry.serves());
    let unreported = serving.map(|(node, _)| *node).filter(|node| !load.hosts.contains_key(node));
    let unreported: Vec<NodeId> = unreported.collect();
    if !unreported.is_empty() {
        return Some(DivisionBlocker::Unreported(unreported));
    }
    load.is_changing.then_some(DivisionBlocker::Changing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{HostInfo, RegistryWrite, WriteReply};
    use crate::founding::Founding;
    use crate::types::LogIndex;
    use crate::version::{ClusterVersion, Release, SupportedVersions};
    use alloc::string::{String, ToString};
    use alloc::vec;
    use uuid::Uuid;

    fn registry(founders: u64, replicas: u64, automatic_division: bool) -> Registry {
        let founding =
            Founding { replicas: Some(replicas), automatic_division, ..Founding::new(founders, 1) };
        let mut registry = Registry::founded(&founding).founded_at(ClusterVersion::NEWEST);
        for node in 1..=founders {
            let info = HostInfo {
                node: NodeId(node),
                uuid: Uuid::from_u128(node.into()),
                peer_address: String::new(),
                http_address: String::new(),
                resp_address: String::new(),
                resp_cluster_address: String::new(),
                tags: BTreeMap::new(),
                release: Release { name: String::new(), versions: SupportedVersions::OWN },
            };
            registry.apply(LogIndex(node), RegistryWrite::RegisterHost(info));
        }
        registry
    }

    fn reported(hosts: u64) -> ClusterLoad {
        let hosts = (1..=hosts).map(|node| (NodeId(node), HostLoad::default())).collect();
        ClusterLoad { hosts, ..ClusterLoad::default() }
    }

    #[test]
    fn hosts_call_for_shards() {
        for (founders, replicas, wanted) in
            [(1, 3, 1), (3, 3, 1), (4, 3, 2), (6, 3, 2), (7, 3, 3), (9, 3, 3), (3, 1, 3), (5, 5, 1)]
        {
            let view = view(&registry(founders, replicas, true), &reported(founders)).expect("automatic");
            assert_eq!((view.shards, view.wanted), (1, wanted), "{founders} hosts, {replicas} voters");
            assert_eq!(view.cause, (wanted > 1).then_some(DivisionCause::Hosts));
        }
        assert_eq!(view(&registry(9, 3, false), &reported(9)), None, "founded with a number of shards");
    }

    #[test]
    fn load_calls_for_one_more_shard_but_not_for_more_than_hosts() {
        let busy = |hosts| ClusterLoad { is_busy: true, ..reported(hosts) };
        let three = view(&registry(3, 3, true), &busy(3)).expect("automatic");
        assert_eq!((three.wanted, three.cause, three.blocker), (2, Some(DivisionCause::Load), None));
        let one = view(&registry(1, 3, true), &busy(1)).expect("automatic");
        assert_eq!((one.wanted, one.cause), (1, None), "one host carries it all, in any number of shards");
        let rates = |shard, rate| HostLoad { rates: [(shard, rate)].into(), ..HostLoad::default() };
        let mut load = reported(1);
        load.hosts.insert(NodeId(2), rates(ShardId(1), 700));
        load.hosts.insert(NodeId(3), rates(ShardId(1), 400));
        load.hosts.insert(NodeId(4), rates(ShardId::PRIME, 9_000));
        assert_eq!(load.busiest(), 1_100, "the registry cannot be divided");
    }

    #[test]
    fn transactions_silence_and_changes_hold_a_division_back() {
        let registry = registry(6, 3, true);
        let blocker = |load: &ClusterLoad| view(&registry, load).and_then(|view| view.blocker);
        let mut load = reported(6);
        assert_eq!(blocker(&load), None);
        load.is_changing = true;
        assert_eq!(blocker(&load), Some(DivisionBlocker::Changing));
        load.hosts.remove(&NodeId(5));
        let unreported = blocker(&load).expect("held back");
        assert_eq!(unreported, DivisionBlocker::Unreported(vec![NodeId(5)]));
        assert_eq!(unreported.to_string(), "no recent report of load from node 5");
        load.hosts.insert(NodeId(1), HostLoad { spanning: 2, ..HostLoad::default() });
        let spanning = blocker(&load).expect("held back");
        assert_eq!(spanning.to_string(), "2 transactions in the last hour span slots of one shard");
    }

    #[test]
    fn a_division_adds_one_shard_and_fills_it_if_nothing_has_changed() {
        let mut registry = registry(6, 3, true);
        registry.tag_shard(LogIndex(19), ShardId(1), &[("owner".into(), Some("us".into()))]);
        let seen = registry.changed();
        let divide = |seen| RegistryWrite::Divide { seen, cause: DivisionCause::Hosts };
        let reply = registry.apply(LogIndex(20), divide(seen));
        assert!(matches!(reply, WriteReply::Moving { moves: 1, .. }), "{reply:?}");
        let again = registry.apply(LogIndex(21), divide(seen));
        assert!(matches!(again, WriteReply::ConditionFailed { .. }), "{again:?}");
        assert_eq!((registry.shards().len(), registry.migrations().len()), (3, 1));
        let tags = &registry.shards()[&ShardId(2)].tags;
        assert_eq!((tags[CAUSE_TAG].as_str(), tags["owner"].as_str()), ("hosts", "us"));
        let view = view(&registry, &reported(6)).expect("still automatic");
        assert_eq!((view.shards, view.wanted, view.cause), (2, 2, None));
    }

    #[test]
    fn an_operator_who_removes_a_shard_ends_automatic_division() {
        let mut registry = registry(3, 3, true);
        registry.apply(LogIndex(20), RegistryWrite::AddShard { name: None, tags: BTreeMap::new() });
        assert!(view(&registry, &reported(3)).is_some(), "adding one changes nothing");
        registry.apply(LogIndex(21), RegistryWrite::RemoveShard { shard: ShardId(2) });
        assert_eq!(view(&registry, &reported(3)), None);
    }
}
