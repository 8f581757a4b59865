//! Rules about numbers, and round trips of snapshots.

use super::version::HOLD_TAG;
use super::*;
use crate::auth::{self, Caller, RateLimits};
use crate::codec::Decoder;
use crate::command::{AccessChange, AccessWrite, AdminAction, Assignment, AuditedWrite, WriteReply};
use crate::founding::Founding;
use crate::machine::Machine;
use crate::slots::slot_set::SlotSet;
use crate::types::UnixMillis;
use crate::version::{Release, SupportedVersions};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use uuid::Uuid;

fn info(node: u64, uuid: u128, http_address: &str) -> HostInfo {
    HostInfo {
        node: NodeId(node),
        uuid: Uuid::from_u128(uuid),
        peer_address: String::from("127.0.0.1:9001"),
        http_address: String::from(http_address),
        resp_address: String::new(),
        resp_cluster_address: String::new(),
        tags: BTreeMap::new(),
        release: Release::default(),
    }
}

#[test]
fn the_first_disk_keeps_its_number_and_may_move() {
    let mut registry = Registry::founded(&Founding::new(1, 2));
    assert_eq!(registry.register(LogIndex(3), info(1, 1, "a")), WriteReply::Registered);
    assert_eq!(registry.register(LogIndex(4), info(1, 1, "a")), WriteReply::Registered);
    assert_eq!(registry.host(NodeId(1)).map(|host| host.updated), Some(LogIndex(3)));
    assert_eq!(registry.register(LogIndex(5), info(1, 1, "b")), WriteReply::Registered);
    let wiped = registry.register(LogIndex(6), info(1, 2, "b"));
    assert_eq!(wiped, WriteReply::ConditionFailed { current: Version(5) });
    let host = registry.host(NodeId(1)).cloned().expect("registered");
    assert_eq!((host.info, host.created, host.updated), (info(1, 1, "b"), LogIndex(3), LogIndex(5)));
    assert_eq!(registry.register(LogIndex(7), info(2, 9, "c")), WriteReply::Denied(Denial::UnknownHost));
}

#[test]
fn a_number_is_given_once_and_never_again() {
    let mut registry = Registry::founded(&Founding::new(3, 2));
    let joined = |node| WriteReply::Joined { node: NodeId(node), replica: ReplicaId(node + 6) };
    assert_eq!(registry.join(LogIndex(1), info(0, 10, "a")), joined(4));
    assert_eq!(registry.join(LogIndex(2), info(0, 11, "b")), joined(5));
    assert_eq!(registry.join(LogIndex(3), info(0, 10, "a")), joined(4), "asked again");
    assert_eq!(registry.change(LogIndex(4), NodeId(5), HostChange::Leave), WriteReply::HostChanged);
    assert_eq!(registry.change(LogIndex(5), NodeId(5), HostChange::Removed), WriteReply::HostChanged);
    assert_eq!(registry.join(LogIndex(6), info(0, 12, "c")), joined(6));
    assert_eq!(registry.join(LogIndex(7), info(0, 11, "b")), WriteReply::Denied(Denial::HostRemoved));
    assert_eq!(registry.register(LogIndex(8), info(5, 11, "b")), WriteReply::Denied(Denial::HostRemoved));
    assert_eq!(registry.changed(), LogIndex(6));
}

#[test]
fn the_last_voter_stays_and_before_version_14_who_leaves_does_not_return() {
    let mut registry = Registry::founded(&Founding::new(2, 2));
    let mut change = |node, change| registry.change(LogIndex(9), NodeId(node), change);
    assert_eq!(change(1, HostChange::Removed), WriteReply::Denied(Denial::NotLeaving));
    assert_eq!(change(1, HostChange::Leave), WriteReply::HostChanged);
    assert_eq!(change(1, HostChange::Vote), WriteReply::Denied(Denial::HostRemoved));
    assert_eq!(change(2, HostChange::Leave), WriteReply::Denied(Denial::LastVoter));
    assert_eq!(change(2, HostChange::Follow), WriteReply::Denied(Denial::LastVoter));
    assert_eq!(change(2, HostChange::Drain(true)), WriteReply::HostChanged);
    assert_eq!(change(2, HostChange::Vote), WriteReply::HostChanged);
    assert_eq!(change(3, HostChange::Vote), WriteReply::Denied(Denial::UnknownHost));
    assert!(!registry.host_entries()[&NodeId(2)].draining, "a vote ends it");
}

#[test]
fn a_removal_is_cancelled_until_the_replica_of_the_prime_shard_goes() {
    let mut registry = newest();
    let node = NodeId(2);
    let standing = |registry: &Registry| registry.host_entries()[&node].standing;
    registry.change(LogIndex(1), node, HostChange::Drain(true));
    assert_eq!(registry.change(LogIndex(2), node, HostChange::Leave), WriteReply::HostChanged);
    let undrained = registry.change(LogIndex(3), node, HostChange::Drain(false));
    assert_eq!(undrained, WriteReply::Denied(Denial::HostLeaves));
    assign(&mut registry, 4, (1, 2), None);
    assert_eq!(registry.change(LogIndex(5), node, HostChange::Vote), WriteReply::HostChanged);
    assert_eq!((standing(&registry), registry.host_entries()[&node].draining), (HostRole::Voter, false));
    let removed = registry.change(LogIndex(6), node, HostChange::Removed);
    assert_eq!(removed, WriteReply::Denied(Denial::NotLeaving));
    registry.change(LogIndex(7), node, HostChange::Leave);
    assert_eq!(registry.change(LogIndex(8), node, HostChange::Follow), WriteReply::HostChanged);
    assert_eq!((standing(&registry), registry.host_entries()[&node].is_barred), (HostRole::Learner, true));
    registry.change(LogIndex(9), node, HostChange::Leave);
    assign(&mut registry, 10, (0, 2), None);
    for change in [HostChange::Vote, HostChange::Follow] {
        let late = registry.change(LogIndex(11), node, change);
        assert_eq!(late, WriteReply::Denied(Denial::HostRemoved));
    }
    assert_eq!(standing(&registry), HostRole::Leaving);
}

#[test]
fn snapshots_hold_everything() {
    let mut registry = Registry::founded(&Founding::new(3, 2));
    registry.register(LogIndex(1), info(1, 1, "a"));
    registry.join(LogIndex(2), info(0, 10, "b"));
    registry.change(LogIndex(3), NodeId(2), HostChange::Drain(true));
    registry.change(LogIndex(4), NodeId(3), HostChange::Leave);
    registry.change(LogIndex(4), NodeId(1), HostChange::Dead(true));
    let tags = [(String::from("placement:vary"), Some(String::from("zone")))];
    assert_eq!(registry.tag_shard(LogIndex(4), ShardId(1), &tags), WriteReply::HostChanged);
    let digest = registry.digest();
    registry.begin_snapshot(Vec::new());
    let block = registry.next_block().expect("one block");
    let restored = Registry::restore(&mut Decoder::new(&block)).expect("a registry");
    assert_eq!((restored.digest(), restored.changed()), (digest, LogIndex(4)));
    assert_eq!(restored.host_entries(), registry.host_entries());
    assert_eq!(restored.shards(), registry.shards());
    assert_eq!((restored.replicas(), restored.slots()), (registry.replicas(), registry.slots()));
    assert!(matches!(Machine::Registry(restored.into()).record_count(), 2));
}

fn assign(registry: &mut Registry, index: u64, (shard, node): (u64, u64), role: Option<Role>) -> WriteReply {
    let assignment = Assignment { shard: ShardId(shard), node: NodeId(node), role };
    registry.assign(LogIndex(index), registry.changed(), &[assignment])
}

#[test]
fn founding_replicas_are_numbered_shard_by_shard() {
    let registry = Registry::founded(&Founding::new(3, 4));
    assert_eq!(registry.last_numbers(), (ReplicaId(15), ShardId(4)));
    let rows: Vec<(u64, u64)> =
        registry.replicas().values().map(|replica| (replica.shard.0, replica.node.0)).collect();
    assert_eq!(rows[..4], [(0, 1), (0, 2), (0, 3), (1, 1)]);
    assert_eq!(rows[14], (4, 3));
}

#[test]
fn a_replica_goes_for_good_and_the_next_one_has_another_number() {
    let mut registry = Registry::founded(&Founding::new(3, 2));
    assert_eq!(registry.forget_replica(LogIndex(1), ReplicaId(4)), WriteReply::Denied(Denial::NotLeaving));
    assert_eq!(assign(&mut registry, 2, (1, 1), None), WriteReply::HostChanged);
    assign(&mut registry, 3, (1, 1), Some(Role::Voter));
    assert_eq!(registry.replica_on(ShardId(1), NodeId(1)).map(|(_, row)| row.wanted), Some(None));
    assert_eq!(registry.forget_replica(LogIndex(4), ReplicaId(4)), WriteReply::HostChanged);
    assert_eq!(registry.forget_replica(LogIndex(5), ReplicaId(4)), WriteReply::HostChanged, "asked again");
    assign(&mut registry, 6, (1, 1), Some(Role::Learner));
    let (replica, row) = registry.replica_on(ShardId(1), NodeId(1)).expect("a new one");
    assert_eq!((replica, row.wanted, row.created), (ReplicaId(10), Some(Role::Learner), LogIndex(6)));
    assert_eq!(registry.forget_replica(LogIndex(7), ReplicaId(1)), WriteReply::Denied(Denial::NotLeaving));
}

#[test]
fn an_assignment_on_another_state_changes_nothing() {
    let mut registry = Registry::founded(&Founding::new(3, 2));
    let seen = registry.changed();
    registry.join(LogIndex(1), info(0, 10, "a"));
    let assignment = Assignment { shard: ShardId(1), node: NodeId(4), role: Some(Role::Learner) };
    let late = registry.assign(LogIndex(2), seen, &[assignment]);
    assert_eq!(late, WriteReply::ConditionFailed { current: Version(1) });
    assert!(registry.replica_on(ShardId(1), NodeId(4)).is_none());
    assert_eq!(assign(&mut registry, 3, (1, 4), Some(Role::Learner)), WriteReply::HostChanged);
    assert_eq!(
        assign(&mut registry, 4, (9, 4), Some(Role::Learner)),
        WriteReply::HostChanged,
        "no such shard"
    );
    assert_eq!(
        assign(&mut registry, 5, (1, 9), Some(Role::Learner)),
        WriteReply::HostChanged,
        "no such host"
    );
    assert_eq!(registry.replicas().len(), 11);
}

#[test]
fn a_shard_keeps_policies_that_can_be_read() {
    let mut registry = Registry::founded(&Founding::new(1, 1));
    let mut tag = |shard, name: &str, value: Option<&str>| {
        registry.tag_shard(LogIndex(5), ShardId(shard), &[(name.into(), value.map(String::from))])
    };
    assert_eq!(tag(1, "placement:member", Some("3;zone=a")), WriteReply::HostChanged);
    assert_eq!(tag(1, "placement:member", Some("none")), WriteReply::Denied(Denial::InvalidPolicy));
    assert_eq!(tag(1, "note", Some(&"x".repeat(5_000))), WriteReply::Denied(Denial::InvalidPolicy));
    assert_eq!(tag(2, "note", Some("x")), WriteReply::Denied(Denial::UnknownShard));
    assert_eq!(tag(1, "note", Some("x")), WriteReply::HostChanged);
    assert_eq!(tag(1, "placement:member", None), WriteReply::HostChanged);
    let tags: Vec<_> = registry.shards()[&ShardId(1)].tags.iter().collect();
    assert_eq!(tags, [(&String::from("note"), &String::from("x"))]);
}

#[test]
fn a_shard_without_slots_can_be_removed_and_its_number_is_not_given_again() {
    let mut registry = Registry::founded(&Founding::new(3, 2));
    let remove =
        |registry: &mut Registry, index, shard| registry.remove_shard(LogIndex(index), ShardId(shard));
    for shard in [0, 3] {
        assert_eq!(remove(&mut registry, 1, shard), WriteReply::Denied(Denial::UnknownShard));
    }
    for shard in [1, 2] {
        assert_eq!(remove(&mut registry, 2, shard), WriteReply::Denied(Denial::ShardInUse), "it owns slots");
    }
    let add = |registry: &mut Registry, index| registry.add_shard(LogIndex(index), None, BTreeMap::new());
    assert_eq!(add(&mut registry, 3), WriteReply::ShardAdded { shard: ShardId(3) });
    registry.move_slots(LogIndex(4), &(0..9).into(), ShardId(3));
    assert_eq!(remove(&mut registry, 5, 3), WriteReply::Denied(Denial::ShardInUse), "slots are coming");
    registry.finish_migration(LogIndex(6), MigrationId(1));
    assert_eq!(remove(&mut registry, 7, 3), WriteReply::Denied(Denial::ShardInUse), "slots have come");
    registry.move_slots(LogIndex(8), &(0..9).into(), ShardId(1));
    assert_eq!(remove(&mut registry, 9, 3), WriteReply::Denied(Denial::ShardInUse), "slots are going");
    registry.finish_migration(LogIndex(10), MigrationId(2));
    assert_eq!(remove(&mut registry, 11, 3), WriteReply::HostChanged);
    assert_eq!(registry.changed(), LogIndex(11));
    assert!(registry.replicas().values().all(|replica| replica.shard != ShardId(3)));
    assert_eq!(remove(&mut registry, 12, 3), WriteReply::Denied(Denial::UnknownShard));
    let before = registry.last_numbers();
    assert_eq!(add(&mut registry, 13), WriteReply::ShardAdded { shard: ShardId(4) });
    assert!(registry.last_numbers().0 > before.0, "nor are those of its replicas");
}

#[test]
fn only_shards_that_are_there_count_towards_their_limit() {
    let mut registry = Registry::founded(&Founding::new(1, 1));
    for number in 2..=limits::SHARDS_MAX {
        let added = registry.add_shard(LogIndex(number), None, BTreeMap::new());
        assert_eq!(added, WriteReply::ShardAdded { shard: ShardId(number) });
    }
    for number in limits::SHARDS_MAX + 1..limits::SHARDS_MAX + 9 {
        let add = |registry: &mut Registry| registry.add_shard(LogIndex(number), None, BTreeMap::new());
        assert_eq!(add(&mut registry), WriteReply::Denied(Denial::TooManyShards));
        assert_eq!(registry.remove_shard(LogIndex(number), ShardId(number - 1)), WriteReply::HostChanged);
        assert_eq!(add(&mut registry), WriteReply::ShardAdded { shard: ShardId(number) });
    }
}

fn supporting(node: u64, newest: u64) -> HostInfo {
    let versions = SupportedVersions { oldest: ClusterVersion(1), newest: ClusterVersion(newest) };
    let release = Release { name: "test".into(), versions };
    HostInfo { release, ..info(node, u128::from(node), "") }
}

#[test]
fn the_version_rises_once_every_host_supports_it_and_it_is_not_held() {
    let mut registry = Registry::founded(&Founding::new(2, 1));
    let raise = |registry: &mut Registry, to| registry.raise_version(LogIndex(9), ClusterVersion(to));
    registry.apply(LogIndex(1), RegistryWrite::RegisterHost(supporting(1, 2)));
    assert_eq!(raise(&mut registry, 2), WriteReply::Denied(Denial::HostTooOld), "node 2 is unknown");
    registry.apply(LogIndex(2), RegistryWrite::RegisterHost(supporting(2, 1)));
    assert_eq!(raise(&mut registry, 2), WriteReply::Denied(Denial::HostTooOld));
    registry.apply(LogIndex(3), RegistryWrite::RegisterHost(supporting(2, 3)));
    assert_eq!(raise(&mut registry, 3), WriteReply::Denied(Denial::HostTooOld));
    registry.tag_shard(LogIndex(4), ShardId::PRIME, &[(HOLD_TAG.into(), Some("yes".into()))]);
    assert_eq!(raise(&mut registry, 2), WriteReply::Denied(Denial::VersionHeld));
    registry.tag_shard(LogIndex(5), ShardId::PRIME, &[(HOLD_TAG.into(), None)]);
    assert_eq!(raise(&mut registry, 2), WriteReply::HostChanged);
    assert_eq!((registry.version(), registry.changed()), (ClusterVersion(2), LogIndex(9)));
    assert_eq!(raise(&mut registry, 1), WriteReply::HostChanged, "it never falls");
    assert_eq!(registry.version(), ClusterVersion(2));
    let denied = WriteReply::Denied(Denial::HostTooOld);
    assert_eq!(registry.apply(LogIndex(10), RegistryWrite::RegisterHost(supporting(2, 1))), denied);
    assert_eq!(registry.apply(LogIndex(11), RegistryWrite::JoinHost(supporting(3, 1))), denied);
    assert_eq!(registry.changed(), LogIndex(9));
}

#[test]
fn a_snapshot_has_the_version_and_the_default_from_version_2_on() {
    let mut registry = Registry::founded(&Founding::new(2, 1));
    let encoded = |registry: &Registry| {
        let mut bytes = alloc::vec![];
        registry.encode(&mut bytes);
        bytes
    };
    let first = encoded(&registry);
    let default = |registry: &mut Registry| {
        let tags = [("placement:member".into(), Some("3".into()))].into();
        registry.apply(LogIndex(0), RegistryWrite::SetDefault { tags })
    };
    assert_eq!(default(&mut registry), WriteReply::Denied(Denial::VersionTooLow));
    assert_eq!(encoded(&registry), first);
    let mut registry = registry.founded_at(ClusterVersion(2));
    assert_eq!(encoded(&registry), [&first[..], &[2, 0]].concat());
    assert_eq!(default(&mut registry), WriteReply::HostChanged);
    assert_eq!(encoded(&registry), [&first[..], &[2, 1, 1, 16], b"placement:member", &[1, b'3']].concat());
    let bytes = encoded(&registry);
    let restored = Registry::restore(&mut Decoder::new(&bytes)).expect("decodes");
    assert_eq!((restored.version(), restored.default_tags()), (registry.version(), registry.default_tags()));
    assert_eq!(restored.digest(), registry.digest());
    assert!(Registry::restore(&mut Decoder::new(&[&first[..], &[1, 0]].concat())).is_err());
}

/// A registry of the newest version.
fn newest() -> Registry {
    Registry::founded(&Founding::new(3, 2)).founded_at(ClusterVersion::NEWEST)
}

fn audited(change: RegistryWrite) -> RegistryWrite {
    let caller = Caller::Principal("root".into());
    RegistryWrite::Audited(Box::new(AuditedWrite { at: UnixMillis(7), caller, change }))
}

fn drain(node: u64, draining: bool) -> RegistryWrite {
    RegistryWrite::ChangeHost { node: NodeId(node), change: HostChange::Drain(draining) }
}

#[test]
fn two_changes_of_one_entry_leave_two_records_and_a_repetition_none() {
    let mut registry = newest();
    for change in [drain(1, true), drain(2, true), drain(1, true), drain(9, true)] {
        registry.apply(LogIndex(5), audited(change));
    }
    let subjects: Vec<&str> = registry.audit().records().map(|record| record.subject.as_str()).collect();
    assert_eq!((subjects, registry.changed()), (vec!["1", "2"], LogIndex(5)));
}

#[test]
fn a_log_that_is_replayed_leaves_the_same_records() {
    let replay = || {
        let mut registry = newest();
        for (change, index) in
            [drain(1, true), RegistryWrite::Rebalance, drain(1, false)].into_iter().zip(1..)
        {
            registry.apply(LogIndex(index), audited(change));
        }
        registry
    };
    let (first, second) = (replay(), replay());
    assert_eq!((first.audit(), first.digest()), (second.audit(), second.digest()));
    let mut other = replay();
    other.apply(LogIndex(4), audited(RegistryWrite::Announce(AdminAction::SaveBackup)));
    assert_ne!(first.digest(), other.digest(), "records are part of the state that replicas compare");
}

#[test]
fn an_earlier_version_makes_the_change_and_keeps_no_record() {
    let founded = Registry::founded(&Founding::new(3, 2));
    let mut registry = founded.founded_at(ClusterVersion::WITH_ACCESS);
    assert!(!registry.lacks_record(&drain(1, true)));
    assert_eq!(registry.apply(LogIndex(5), audited(drain(1, true))), WriteReply::HostChanged);
    assert!(registry.host_entries()[&NodeId(1)].draining);
    assert_eq!(registry.audit().last(), 0);
}

#[test]
fn a_change_that_nothing_would_record_is_not_made() {
    let registry = newest();
    assert!(registry.lacks_record(&drain(1, true)));
    assert!(!registry.lacks_record(&audited(drain(1, true))));
    assert!(!registry.lacks_record(&RegistryWrite::ForgetReplica { replica: ReplicaId(1) }));
}

#[test]
fn limits_of_roles_are_in_snapshots_of_their_version() {
    let restored = |registry: &Registry| {
        let mut out = Vec::new();
        registry.encode(&mut out);
        let mut decoder = Decoder::new(&out);
        let restored = Registry::restore(&mut decoder).expect("a registry");
        assert!(decoder.is_empty());
        (restored, out.len())
    };
    let put = |operations_per_s| {
        let rates = RateLimits { operations_per_s, bytes_per_s: Some(7) };
        let role = auth::Role { rates, ..auth::Role::default() };
        let write = AccessWrite::new(AccessChange::PutRole { name: "web".to_string(), role });
        RegistryWrite::Access(write)
    };
    let mut registry = newest();
    registry.apply(LogIndex(5), put(Some(5)));
    assert_eq!(restored(&registry).0.access(), registry.access());
    let rates = registry.access().role("web").expect("the role").rates;
    assert_eq!((rates.operations_per_s, rates.bytes_per_s), (Some(5), Some(7)));
    let before = Registry::founded(&Founding::new(3, 2)).founded_at(ClusterVersion::WITH_AUTHORITY);
    let (same, bytes) = restored(&before);
    assert_eq!(same.version(), ClusterVersion::WITH_AUTHORITY);
    assert_eq!(restored(&newest()).1, bytes + 1, "the version before has no table of limits");
}

#[test]
fn hot_slots_move_only_if_nothing_has_changed_since_the_decision() {
    let mut registry = Registry::founded(&Founding::new(1, 2));
    let slots = SlotSet::from(0..64);
    let seen = registry.changed();
    let write = RegistryWrite::MoveHotSlots { seen, slots: slots.clone(), to: ShardId(2) };
    let moving = registry.apply(LogIndex(3), write.clone());
    assert_eq!(moving, WriteReply::Moving { moves: 1, last: MigrationId(1) });
    let again = registry.apply(LogIndex(4), write);
    assert_eq!(again, WriteReply::ConditionFailed { current: Version(3) });
    let migration = registry.migrations().values().next().expect("planned");
    assert_eq!((&migration.slots, migration.from, migration.to), (&slots, ShardId(1), ShardId(2)));
}
