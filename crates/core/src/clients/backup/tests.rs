//! The selection of a backup's snapshots, at one node and at several.

use alloc::string::ToString;

use self::fixture::{checkpointed, cluster, status, view, viewed};
use super::*;
use crate::command::{NodeReply, Refusal};
use crate::types::Term;

pub(in crate::clients) mod fixture {
    use alloc::boxed::Box;
    use alloc::collections::BTreeMap;
    use alloc::string::String;
    use alloc::vec::Vec;

    use uuid::Uuid;

    use super::super::SnapshotStatus;
    use crate::command::{
        ClusterView, HostInfo, HostRole, HostView, NodeReply, ReplicaView, Reply, ShardView, WriteReply,
    };
    use crate::storage::snapshot::SnapshotId;
    use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term};
    use crate::version::Release;

    /// The view of node 1 of a cluster with these shards, whose replicas are on these nodes. The
    /// first one leads, all are connected.
    pub fn view(shards: &[(u64, &[u64])]) -> ClusterView {
        let shard_view = |&(shard, nodes): &(u64, &[u64])| ShardView {
            shard: ShardId(shard),
            name: String::new(),
            kind: "kv",
            leader: nodes.first().copied().map(NodeId),
            term: Term(1),
            slots: u16::from(shard > 0),
        };
        let replica = |shard: u64, &node: &u64| ReplicaView {
            replica: ReplicaId(shard * 10 + node),
            shard: ShardId(shard),
            node: NodeId(node),
            voter: true,
            applied: Some(LogIndex(1)),
            checkpoint: None,
            diverged: false,
        };
        ClusterView {
            node: NodeId(1),
            hosts: (1..=5).map(host).collect(),
            shards: shards.iter().map(shard_view).collect(),
            replicas: shards
                .iter()
                .flat_map(|(shard, nodes)| nodes.iter().map(|node| replica(*shard, node)))
                .collect(),
            ..ClusterView::default()
        }
    }

    fn host(node: u64) -> HostView {
        let info = HostInfo {
            node: NodeId(node),
            uuid: Uuid::from_u128(node.into()),
            peer_address: String::new(),
            http_address: String::new(),
            resp_address: String::new(),
            resp_cluster_address: String::new(),
            tags: BTreeMap::new(),
            release: Release::default(),
        };
        HostView {
            info,
            created: LogIndex(1),
            updated: LogIndex(1),
            connected: true,
            disk_stalled: false,
            clock: None,
            standing: HostRole::Voter,
            draining: false,
            dead: false,
        }
    }

    /// The answer to [`Request::Cluster`](crate::command::Request::Cluster) with this view.
    pub fn viewed(view: ClusterView) -> Reply {
        Reply::Node(NodeReply::Cluster(Box::new(view)))
    }

    /// The same of a cluster with these shards, all of which node 1 has.
    pub fn cluster(shards: &[u64]) -> Reply {
        let shards: Vec<(u64, &[u64])> = shards.iter().map(|shard| (*shard, &[1][..])).collect();
        viewed(view(&shards))
    }

    /// The answer to a checkpoint.
    pub fn checkpointed(index: u64) -> Reply {
        Reply::Write(WriteReply::Checkpointed { index: LogIndex(index) })
    }

    /// The status of a replica that has applied up to an index and has a snapshot of another.
    pub fn status(shard: u64, applied: u64, snapshot: Option<u64>) -> SnapshotStatus {
        let id = |index| SnapshotId { shard: ShardId(shard), index: LogIndex(index), term: Term(1) };
        SnapshotStatus {
            shard: ShardId(shard),
            applied: LogIndex(applied),
            snapshot: snapshot.map(id),
            makes_snapshot: false,
            last_move: MigrationId(0),
            is_moving: false,
            slots: None,
        }
    }
}

type Statuses = Result<Vec<SnapshotStatus>, SourceError>;

/// Whether an action asks these nodes for their statuses at once.
fn asks(action: &BackupAction, expected: &[u64]) -> bool {
    let BackupAction::ReadStatuses { nodes, after_ms: 0 } = action else { return false };
    nodes.iter().map(|node| node.0).eq(expected.iter().copied())
}

fn asks_for_cluster(action: &BackupAction) -> bool {
    matches!(action, BackupAction::Ask(requests) if *requests == [Request::Cluster])
}

fn refused_for_moves(action: &BackupAction) -> bool {
    matches!(action, BackupAction::Done(Err(BackupFailure::SlotsMoving)))
}

fn failure(action: BackupAction) -> BackupFailure {
    let BackupAction::Done(Err(failure)) = action else { panic!("it goes on: {action:?}") };
    failure
}

/// A backup of shards 0 and 1 of one node up to the question for snapshots at index 5 and 8.
fn after_checkpoints(before: Vec<SnapshotStatus>) -> BackupRequest {
    let (mut backup, action) = BackupRequest::begin(false, Faults::NONE);
    assert!(asks_for_cluster(&action));
    assert!(asks(&backup.answered(vec![cluster(&[0, 1])]), &[1]));
    let action = backup.statuses(0, vec![Ok(before)]);
    assert!(matches!(action, BackupAction::Ask(requests) if requests.len() == 2));
    let action = backup.answered(vec![checkpointed(5), checkpointed(8)]);
    assert!(asks(&action, &[1]));
    backup
}

fn settled() -> Vec<SnapshotStatus> {
    vec![status(0, 5, Some(5)), status(1, 9, Some(9))]
}

fn gone() -> SourceError {
    SourceError::Open("gone".to_string())
}

fn down() -> SourceError {
    SourceError::NoAnswer("down".to_string())
}

#[test]
fn a_backup_is_the_snapshots_after_the_checkpoints() {
    let mut backup = after_checkpoints(settled());
    let BackupAction::Open(ids) = backup.statuses(1, vec![Ok(settled())]) else { panic!("opens") };
    assert_eq!(ids.len(), 1);
    assert_eq!(ids[0].0, NodeId(1));
    assert_eq!(ids[0].1.iter().map(|id| id.index.0).collect::<Vec<_>>(), [5, 9]);
    assert!(asks_for_cluster(&backup.opened(vec![Ok(())])));
    assert!(asks(&backup.answered(vec![cluster(&[0, 1])]), &[1]));
    assert!(matches!(backup.statuses(2, vec![Ok(settled())]), BackupAction::Done(Ok(()))));
}

#[test]
fn slots_that_move_before_meanwhile_or_after_refuse_the_backup() {
    let mut moving = settled();
    moving[1].is_moving = true;
    let (mut backup, _) = BackupRequest::begin(false, Faults::NONE);
    backup.answered(vec![cluster(&[0, 1])]);
    assert!(refused_for_moves(&backup.statuses(0, vec![Ok(moving.clone())])));

    let mut moved = settled();
    moved[1].last_move = MigrationId(3);
    for after in [moving, moved] {
        let mut backup = after_checkpoints(settled());
        backup.statuses(1, vec![Ok(settled())]);
        backup.opened(vec![Ok(())]);
        backup.answered(vec![cluster(&[0, 1])]);
        assert!(refused_for_moves(&backup.statuses(2, vec![Ok(after)])));
    }
}

#[test]
fn a_shard_that_the_node_learns_of_late_begins_the_backup_again() {
    let mut backup = after_checkpoints(settled());
    for _ in 0..RESTARTS_MAX {
        backup.statuses(1, vec![Ok(settled())]);
        backup.opened(vec![Ok(())]);
        assert!(asks_for_cluster(&backup.answered(vec![cluster(&[0, 1, 2])])));
        assert!(asks(&backup.answered(vec![cluster(&[0, 1])]), &[1]));
        backup.statuses(1, vec![Ok(settled())]);
        backup.answered(vec![checkpointed(5), checkpointed(8)]);
    }
    backup.statuses(1, vec![Ok(settled())]);
    backup.opened(vec![Ok(())]);
    let action = backup.answered(vec![cluster(&[0, 1, 2])]);
    assert_eq!(failure(action), BackupFailure::Changing);
}

#[test]
fn snapshots_that_were_replaced_are_looked_for_again() {
    let mut backup = after_checkpoints(settled());
    for _ in 1..OPENS_MAX {
        assert!(matches!(backup.statuses(1, vec![Ok(settled())]), BackupAction::Open(_)));
        assert!(asks(&backup.opened(vec![Err(gone())]), &[1]));
    }
    backup.statuses(1, vec![Ok(settled())]);
    assert!(asks_for_cluster(&backup.opened(vec![Err(gone())])), "then other sources are looked for");
    let (node, shard) = (NodeId(1), ShardId::PRIME);
    assert_eq!(
        failure(backup.answered(vec![cluster(&[0, 1])])),
        BackupFailure::Source { node, shard, error: gone() }
    );
}

#[test]
fn a_node_that_is_behind_has_limited_time() {
    let mut backup = after_checkpoints(settled());
    let mut behind = settled();
    behind[1] = status(1, 7, Some(7));
    for (now_ms, wait_ms) in
        [(0, POLL_INTERVAL_MS), (400, 100), (CATCH_UP_TIMEOUT_MS - 1, POLL_INTERVAL_MS_MAX)]
    {
        let action = backup.statuses(now_ms, vec![Ok(behind.clone())]);
        let waits = matches!(&action, BackupAction::ReadStatuses { after_ms, .. } if *after_ms == wait_ms);
        assert!(waits, "{action:?}");
    }
    assert!(asks_for_cluster(&backup.statuses(CATCH_UP_TIMEOUT_MS, vec![Ok(behind)])));
    let (node, shard) = (NodeId(1), ShardId(1));
    assert_eq!(
        failure(backup.answered(vec![cluster(&[0, 1])])),
        BackupFailure::Source { node, shard, error: SourceError::NoSnapshot }
    );
}

#[test]
fn a_refused_checkpoint_ends_the_backup() {
    let (mut backup, _) = BackupRequest::begin(false, Faults::NONE);
    backup.answered(vec![cluster(&[0, 1])]);
    backup.statuses(0, vec![Ok(settled())]);
    let replies = vec![checkpointed(1), Reply::Refused(Refusal::NoLeader)];
    assert_eq!(
        failure(backup.answered(replies)),
        BackupFailure::Unanswered(Unanswered::Refused(Refusal::NoLeader))
    );
}

/// Node 1 has shards 0 and 1, node 2 leads shard 2, and nodes 3 and 4 have shard 3.
fn spread() -> Reply {
    viewed(view(&[(0, &[2, 1, 3]), (1, &[1, 2]), (2, &[2, 3]), (3, &[3, 4])]))
}

/// The statuses of nodes 1, 2 and 3, with snapshots at index 9.
fn spread_statuses() -> Vec<Statuses> {
    let of = |shards: &[u64]| Ok(shards.iter().map(|shard| status(*shard, 9, Some(9))).collect());
    vec![of(&[0, 1]), of(&[0, 1, 2]), of(&[0, 2, 3])]
}

/// A backup of a spread cluster up to the opened snapshots.
fn spread_until_opened(faults: Faults) -> BackupRequest {
    let (mut backup, _) = BackupRequest::begin(false, faults);
    assert!(asks(&backup.answered(vec![spread()]), &[1, 2, 3]));
    let action = backup.statuses(0, spread_statuses());
    assert!(matches!(action, BackupAction::Ask(requests) if requests.len() == 4));
    assert!(asks(&backup.answered(vec![1, 2, 3, 4].into_iter().map(checkpointed).collect()), &[1, 2, 3]));
    let BackupAction::Open(ids) = backup.statuses(1, spread_statuses()) else { panic!("opens") };
    let opened: Vec<(u64, Vec<u64>)> =
        ids.iter().map(|(node, ids)| (node.0, ids.iter().map(|id| id.shard.0).collect())).collect();
    assert_eq!(opened, [(1, vec![0, 1]), (2, vec![2]), (3, vec![3])]);
    assert!(asks_for_cluster(&backup.opened(vec![Ok(()); 3])));
    assert!(asks(&backup.answered(vec![spread()]), &[1, 2, 3]));
    backup
}

#[test]
fn shards_without_a_replica_here_come_from_their_leaders() {
    let mut backup = spread_until_opened(Faults::NONE);
    assert!(matches!(backup.statuses(2, spread_statuses()), BackupAction::Done(Ok(()))));
}

#[test]
fn moves_at_any_source_refuse_the_backup() {
    for (source, position) in [(0, 1), (1, 2), (2, 2)] {
        let mut moved = spread_statuses();
        moved[source].as_mut().expect("statuses")[position].last_move = MigrationId(7);
        let mut backup = spread_until_opened(Faults::NONE);
        assert!(refused_for_moves(&backup.statuses(2, moved)), "{source}");
    }
    let mut elsewhere = spread_statuses();
    elsewhere[1].as_mut().expect("statuses")[1].is_moving = true;
    let mut backup = spread_until_opened(Faults::NONE);
    let action = backup.statuses(2, elsewhere);
    assert!(matches!(action, BackupAction::Done(Ok(()))), "node 2 is no source of shard 1: {action:?}");
}

#[test]
fn another_replica_replaces_a_source_that_does_not_answer() {
    let (mut backup, _) = BackupRequest::begin(false, Faults::NONE);
    backup.answered(vec![spread()]);
    let [one, two, _]: [Statuses; 3] = spread_statuses().try_into().expect("three");
    assert!(asks_for_cluster(&backup.statuses(0, vec![one.clone(), two.clone(), Err(down())])));
    assert!(asks(&backup.answered(vec![spread()]), &[1, 2, 4]), "node 4 has shard 3, too");
    assert!(asks_for_cluster(&backup.statuses(1, vec![one, two, Err(down())])));
    let (node, shard) = (NodeId(3), ShardId(3));
    assert_eq!(
        failure(backup.answered(vec![spread()])),
        BackupFailure::Source { node, shard, error: down() }
    );
}

#[test]
fn a_source_that_fails_at_any_later_step_is_replaced() {
    let [one, two, three]: [Statuses; 3] = spread_statuses().try_into().expect("three");
    let mut lost = spread_statuses();
    lost[2].as_mut().expect("statuses").pop();
    for step in 0..4 {
        let (mut backup, _) = BackupRequest::begin(false, Faults::NONE);
        backup.answered(vec![spread()]);
        backup.statuses(0, spread_statuses());
        backup.answered(vec![1, 2, 3, 4].into_iter().map(checkpointed).collect());
        let action = match step {
            0 => backup.statuses(1, vec![one.clone(), two.clone(), Err(down())]),
            1 => backup.statuses(1, lost.clone()),
            2 => {
                backup.statuses(1, vec![one.clone(), two.clone(), three.clone()]);
                backup.opened(vec![Err(gone()), Ok(()), Err(down())])
            }
            _ => {
                backup.statuses(1, spread_statuses());
                backup.opened(vec![Ok(()); 3]);
                backup.answered(vec![spread()]);
                backup.statuses(1, vec![one.clone(), two.clone(), Err(down())])
            }
        };
        assert!(asks_for_cluster(&action), "{step}: {action:?}");
        assert!(asks(&backup.answered(vec![spread()]), &[1, 2, 4]), "{step}");
    }
}

#[test]
fn the_prime_shard_comes_from_no_other_node() {
    let (mut backup, _) = BackupRequest::begin(false, Faults::NONE);
    let action = backup.answered(vec![viewed(view(&[(0, &[2, 3]), (1, &[1])]))]);
    assert_eq!(failure(action), BackupFailure::NoReplica(ShardId::PRIME));
}

#[test]
fn connected_sources_are_preferred_to_leaders() {
    let mut cluster = view(&[(0, &[1]), (1, &[2, 3, 4])]);
    cluster.hosts[1].connected = false;
    cluster.replicas[2].applied = Some(LogIndex(7));
    let (mut backup, _) = BackupRequest::begin(false, Faults::NONE);
    assert!(asks(&backup.answered(vec![viewed(cluster)]), &[1, 3]));
}

#[test]
fn a_stale_backup_is_what_its_sources_have_applied() {
    let begun = |shards: &[u64]| Ok(shards.iter().map(|&shard| (ShardId(shard), LogIndex(0))).collect());
    let (mut backup, _) = BackupRequest::begin(true, Faults::NONE);
    backup.answered(vec![spread()]);
    let action = backup.statuses(0, spread_statuses());
    assert!(matches!(&action, BackupAction::BeginSnapshots(nodes) if nodes.len() == 3), "{action:?}");
    let action = backup.begun(vec![begun(&[0, 1]), begun(&[0, 1, 2]), begun(&[0, 2, 3])]);
    assert!(asks(&action, &[1, 2, 3]));
    let BackupAction::Open(ids) = backup.statuses(1, spread_statuses()) else { panic!("opens") };
    let empty = |shard| SnapshotId { shard: ShardId(shard), index: LogIndex(0), term: Term(0) };
    assert_eq!(ids[2], (NodeId(3), vec![empty(3)]), "index 0: it never applied anything");

    let (mut backup, _) = BackupRequest::begin(true, Faults::NONE);
    backup.answered(vec![spread()]);
    backup.statuses(0, spread_statuses());
    let action = backup.begun(vec![begun(&[0, 1]), begun(&[0, 1, 2]), begun(&[0, 2])]);
    assert!(asks_for_cluster(&action), "node 3 has no replica of shard 3 any more: {action:?}");
}

#[test]
fn a_stale_backup_of_sources_that_know_different_slot_maps_is_refused() {
    let is_refused =
        |action: &BackupAction| matches!(action, BackupAction::Done(Err(BackupFailure::SlotMapsDiffer)));
    let of_slots = |ranges: [core::ops::Range<u16>; 2]| {
        let slots = [None, Some(SlotSet::from(ranges[0].clone())), Some(SlotSet::from(ranges[1].clone()))];
        let shards = (0..).zip(slots);
        shards.map(|(shard, slots)| SnapshotStatus { slots, ..status(shard, 9, Some(9)) }).collect::<Vec<_>>()
    };
    let outcome = |ranges: [core::ops::Range<u16>; 2]| {
        let (mut backup, _) = BackupRequest::begin(true, Faults::NONE);
        backup.answered(vec![cluster(&[0, 1, 2])]);
        let found = || vec![Ok(of_slots(ranges.clone()))];
        backup.statuses(0, found());
        backup.begun(vec![Ok((0..3).map(|shard| (ShardId(shard), LogIndex(9))).collect())]);
        let action = backup.statuses(1, found());
        assert!(matches!(action, BackupAction::Open(_)), "{action:?}");
        backup.opened(vec![Ok(())]);
        backup.statuses(2, found())
    };
    assert!(matches!(outcome([0..8_192, 8_192..16_384]), BackupAction::Done(Ok(()))));
    assert!(is_refused(&outcome([0..8_193, 8_192..16_384])), "a slot is in both");
    assert!(is_refused(&outcome([0..8_191, 8_192..16_384])), "a slot is in none");
}

#[test]
fn snapshots_of_one_node_are_read_from_its_reply() {
    let snapshots = vec![(ShardId(1), LogIndex(4))];
    let reply = Reply::Node(NodeReply::Snapshots(snapshots.clone()));
    assert_eq!(asking::snapshots_here(vec![reply]), Ok(snapshots));
    let refused = vec![Reply::Refused(Refusal::NoLeader)];
    assert_eq!(asking::snapshots_here(refused), Err(Unanswered::Refused(Refusal::NoLeader)));
}

#[test]
fn a_snapshot_is_finished_or_in_the_making_or_not() {
    let id = |index| SnapshotId { shard: ShardId(1), index: LogIndex(index), term: Term(1) };
    let status =
        |applied, snapshot, makes_snapshot| SnapshotStatus { makes_snapshot, ..status(1, applied, snapshot) };
    for (status, expected) in [
        (status(9, Some(8), false), SnapshotProgress::Finished(id(8))),
        (status(9, Some(9), true), SnapshotProgress::Finished(id(9))),
        (status(9, Some(7), true), SnapshotProgress::Making),
        (status(7, Some(7), true), SnapshotProgress::Behind),
        (status(7, None, false), SnapshotProgress::Behind),
        (status(9, Some(7), false), SnapshotProgress::Absent),
        (status(9, None, false), SnapshotProgress::Absent),
    ] {
        assert_eq!(progress(&status, LogIndex(8)), expected, "{status:?}");
    }
    let empty = SnapshotId { term: Term(0), ..id(0) };
    assert_eq!(progress(&status(0, None, false), LogIndex(0)), SnapshotProgress::Finished(empty));
}
