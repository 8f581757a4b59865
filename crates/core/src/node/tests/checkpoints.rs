//! Snapshots at an index that all replicas share, and snapshots of a single replica.

use super::*;
use crate::command::{Checkpoint, OperationReply, Restoration, RestoreWrite, RestoredKey};
use crate::slots;

/// A cluster of three with snapshot files.
fn elected_with_files() -> Cluster {
    let mut cluster = Cluster::elected(3);
    let files = |_| SnapshotFiles::open(MemoryDisk::new(1)).expect("an empty disk");
    cluster.files = (0..3).map(files).collect();
    cluster
}

fn checkpoint(shard: u64) -> Request {
    Request::Write(Write::Checkpoint { shard: ShardId(shard) })
}

/// The checkpoints of a shard's replicas, by node, as `node` reports them.
fn checkpoints(cluster: &mut Cluster, node: u64, shard: u64) -> Vec<Option<Checkpoint>> {
    let Reply::Node(NodeReply::Cluster(view)) = cluster.answer(node, Request::Cluster) else {
        panic!("no view")
    };
    let replicas = view.replicas.iter().filter(|replica| replica.shard == ShardId(shard));
    replicas.map(|replica| replica.checkpoint).collect()
}

#[test]
fn a_checkpoint_makes_every_replica_report_the_same() {
    let mut cluster = elected_with_files();
    for shard in 0..=2 {
        for asked in 1..=3 {
            cluster.answer(2, put("a", "1", Condition::Always));
            cluster.answer(2, put("b", "1", Condition::Always));
            let Reply::Write(WriteReply::Checkpointed { index }) = cluster.answer(asked, checkpoint(shard))
            else {
                panic!("no checkpoint")
            };
            for node in 1..=3 {
                let seen = checkpoints(&mut cluster, node, shard);
                let first = seen[0].expect("reported at once");
                assert_eq!(first.index, index);
                assert_eq!(seen, [Some(first); 3], "node {node}, shard {shard}");
            }
        }
    }
    let refused = cluster.answer(1, checkpoint(3));
    assert_eq!(refused, Reply::Refused(Refusal::invalid("no such shard")));
}

#[test]
fn a_follower_that_applies_more_at_once_shows_the_same_state() {
    let mut cluster = elected_with_files();
    let leader = cluster.leader(ShardId(1));
    let follower = leader % 3 + 1;
    cluster.kill(follower);
    let is_ours = |key: &&str| slots::shard_of(slots::slot_of(key.as_bytes()), 2) == ShardId(1);
    let key = ["a", "b", "c", "d"].into_iter().find(is_ours).expect("a key of shard 1");
    cluster.answer(leader, put(key, "before", Condition::Always));
    let Reply::Write(WriteReply::Checkpointed { index }) = cluster.answer(leader, checkpoint(1)) else {
        panic!("no checkpoint")
    };
    cluster.answer(leader, put(key, "after", Condition::Always));
    cluster.revive(follower);
    cluster.tick(30);
    let status = cluster.nodes[follower as usize - 1].status().shards.swap_remove(1);
    assert!(status.applied > index && status.checkpoint.is_some(), "{status:?}");
    let seen = checkpoints(&mut cluster, leader, 1);
    assert_eq!(seen, [seen[0]; 3]);
    assert_eq!(seen[0].map(|checkpoint| checkpoint.index), Some(index));
}

#[test]
fn a_snapshot_here_needs_no_majority() {
    let mut cluster = elected_with_files();
    cluster.answer(1, put("a", "1", Condition::Always));
    cluster.kill(2);
    cluster.kill(3);
    for _ in 0..2 {
        let Reply::Node(NodeReply::Snapshots(snapshots)) = cluster.answer(1, Request::SnapshotHere) else {
            panic!("none")
        };
        let status = cluster.nodes[0].status();
        for ((shard, index), status) in snapshots.into_iter().zip(status.shards) {
            assert_eq!((shard, index), (status.shard, status.applied));
            assert_eq!(status.snapshot.map(|id| id.index), Some(index), "done, and not done again");
            assert!(!status.makes_snapshot && status.checkpoint.is_none());
        }
    }
}

#[test]
fn a_checkpoint_replaces_the_snapshot_in_the_making() {
    let mut cluster = elected_with_files();
    cluster.answer(1, put("a", "1", Condition::Always));
    let files = core::mem::take(&mut cluster.files);
    cluster.answer(1, Request::SnapshotHere);
    // The disk is still working on its tasks when the checkpoint comes.
    let under_way = core::mem::take(&mut cluster.tasks);
    assert!(under_way.iter().all(|(_, task)| matches!(task, SnapshotTask::Write { .. })));
    cluster.answer(1, put("a", "2", Condition::Always));
    for shard in 0..=2 {
        cluster.answer(1, checkpoint(shard));
    }
    let later = core::mem::take(&mut cluster.tasks);
    cluster.files = files;
    cluster.tasks = under_way.into_iter().chain(later).collect();
    cluster.work_on_files();
    cluster.settle();
    for shard in 0..=2 {
        let seen = checkpoints(&mut cluster, 1, shard);
        assert!(seen[0].is_some());
        assert_eq!(seen, [seen[0]; 3]);
    }
}

#[test]
fn a_restore_goes_to_the_shard_that_it_names_and_belongs_to() {
    let mut cluster = Cluster::elected(3);
    let restore = |shard| {
        let record = RestoredKey {
            key: "a".into(),
            version: Version(5),
            value: Bytes::from_static(b"old"),
            expires: None,
            lease: None,
        };
        let (backup, revision) = (Uuid::from_u128(1), Version(100));
        Write::Restore(RestoreWrite::Keys(Restoration {
            shard: ShardId(shard),
            backup,
            revision,
            records: alloc::vec![record],
        }))
    };
    let shard = slots::shard_of(slots::slot_of(b"a"), 2).0;
    for (shard, reply) in [
        (0, Reply::Refused(Refusal::CrossShard)),
        (3 - shard, Reply::Refused(Refusal::CrossShard)),
        (shard, Reply::Write(WriteReply::Restored)),
    ] {
        assert_eq!(cluster.answer(1, Request::Write(restore(shard))), reply, "shard {shard}");
    }
    for node in 1..=3 {
        assert_eq!(cluster.answer(node, get("a")), value(5, "old"));
    }
    let written = cluster.answer(2, put("a", "new", Condition::Version(Version(5))));
    assert_eq!(
        written,
        Reply::Write(WriteReply::of(&OperationReply::Written { version: Version(101), created: false }))
    );
    let late = cluster.answer(3, Request::Write(restore(shard)));
    assert_eq!(late, Reply::Write(WriteReply::ConditionFailed { current: Version(101) }));
}
