//! A survivor continues with the state on its disk.

use super::*;
use crate::founding::Founding;
use crate::node::force_new_cluster::{Survivor, force_new_cluster};
use crate::storage::{HardState, LogEntry, RecoveredLog, RecoveredShard, WalRecord};
use crate::types::{ReplicaId, UnixMillis};
use crate::version::ClusterVersion;

/// A node of three whose log ends with a write that is not known to be committed, during a joint
/// change.
fn recovered() -> RecoveredShards {
    let write = Write::of(&Operation::Put { key: b"a", value: b"1", condition: Condition::Always });
    let shard = crate::slots::shard_of(crate::slots::slot_of(b"a"), 2);
    let roles = [(1, None), (2, None)].map(|(founder, role)| (ReplicaId(shard.0 * 3 + founder), role));
    let joint = crate::membership::MembershipChange::Roles(roles.to_vec());
    let data =
        [Bytes::new(), crate::raft::encode_change(&joint, LogIndex(0)), crate::raft::encode_writes(&[write])];
    let entry = |(index, data)| LogEntry { index: LogIndex(index), term: Term(4), data };
    let log = RecoveredLog {
        incarnation: None,
        hard_state: HardState { term: Term(5), vote: None, commit: LogIndex(1) },
        restart: None,
        entries: (1..).zip(data).map(entry).collect(),
    };
    RecoveredShards::from([(shard, RecoveredShard { snapshot: None, log })])
}

#[test]
fn the_survivor_alone_votes_leads_and_knows_itself_only() {
    let mut shards = recovered();
    let survivor = Survivor {
        node: NodeId(3),
        lost: &[NodeId(1), NodeId(2)],
        founding: &Founding::new(3, 2),
        version: ClusterVersion::FIRST,
        now: UnixMillis(1_000),
    };
    let records = force_new_cluster(&mut shards, survivor);
    assert_eq!(records.iter().filter(|record| matches!(record, WalRecord::HardState { .. })).count(), 3);
    let mut cluster = Cluster::new(3);
    for node in [1, 2] {
        cluster.kill(node);
    }
    let founders = cluster.nodes[0].options.founders.clone();
    cluster.nodes[2] = Node::new(options(3, &founders), shards);
    cluster.tick(60);
    assert_eq!(cluster.answer(3, get("a")), value(1, "1"), "what stood in the log is true now");
    assert!(wrote(&cluster.answer(3, put("b", "1", Condition::Always))));
    let Reply::Node(NodeReply::Cluster(view)) = cluster.answer(3, Request::Cluster) else {
        panic!("no view")
    };
    assert_eq!(view.hosts.iter().map(|host| host.info.node.0).collect::<Vec<_>>(), [3]);
    assert_eq!(view.replicas.len(), 3);
    assert!(view.replicas.iter().all(|replica| replica.node == NodeId(3) && replica.voter));
}
