//! Nodes whose clocks disagree.

use super::*;
use crate::command::{Expiry, ExpiryCondition, Operation, OperationReply, Operations, Set, SetCondition};
use crate::command::{Reply, Transaction};
use crate::types::UnixMillis;

/// The clock of each node, a minute apart from the next.
const CLOCKS: [u64; 3] = [1_000_000_000, 1_000_060_000, 999_940_000];

const KEY: &[u8] = b"lock";

fn shard() -> ShardId {
    crate::slots::shard_of(crate::slots::slot_of(KEY), 2)
}

fn elected() -> Cluster {
    let mut cluster = Cluster::elected(3);
    for (node, clock) in cluster.nodes.iter_mut().zip(CLOCKS) {
        node.handle(Event::Clock(UnixMillis(clock)));
    }
    cluster
}

fn write(operation: Operation<'_>) -> Request {
    Request::Write(Write::Keys(Transaction::of(Operations::of(&[operation]))))
}

fn lock(expiry: Expiry) -> Request {
    let condition = SetCondition::Version(Condition::Always);
    write(Operation::Set(Set { key: KEY, value: b"me", condition, expiry, previous: false }))
}

impl Cluster {
    /// When the key expires, according to all replicas.
    fn expires(&mut self) -> Option<UnixMillis> {
        let Reply::Read(ReadReply::Value(Some(StoredValue { expires, .. }))) = self.answer(1, get("lock"))
        else {
            panic!("no such key")
        };
        expires
    }
}

#[test]
fn a_time_to_live_is_counted_by_the_leaders_clock_through_any_node() {
    let mut cluster = elected();
    let leader = CLOCKS[cluster.leader(shard()) as usize - 1];
    for node in 1..=3 {
        cluster.answer(node, lock(Expiry::After(3_000)));
        assert_eq!(cluster.expires(), Some(UnixMillis(leader + 3_000)), "asked node {node}");
        let condition = ExpiryCondition::Always;
        cluster.answer(node, write(Operation::ExpireAfter { key: KEY, after_ms: 70_000, condition }));
        assert_eq!(cluster.expires(), Some(UnixMillis(leader + 70_000)), "asked node {node}");
        cluster.answer(node, lock(Expiry::At(UnixMillis(leader + 9))));
        assert_eq!(cluster.expires(), Some(UnixMillis(leader + 9)), "an absolute time stays as it is given");
    }
}

#[test]
fn what_has_passed_by_the_leaders_clock_goes_at_once() {
    let mut cluster = elected();
    let leader = CLOCKS[cluster.leader(shard()) as usize - 1];
    for node in 1..=3 {
        for (at, is_gone) in [(leader + 1, false), (leader, true)] {
            cluster.answer(node, lock(Expiry::Never));
            let (at, condition) = (Some(UnixMillis(at)), ExpiryCondition::Always);
            let reply = cluster.answer(node, write(Operation::Expire { key: KEY, at, condition }));
            let Reply::Write(WriteReply::Operations(replies)) = reply else { panic!("{reply:?}") };
            let deleted = matches!(replies.only(), Some(OperationReply::Deleted { .. }));
            assert_eq!(deleted, is_gone, "asked node {node}");
        }
    }
}

#[test]
fn nodes_measure_each_others_clocks_until_the_link_breaks() {
    let mut cluster = elected();
    cluster.tick(60);
    let leader = cluster.leader(shard());
    for (index, node) in cluster.nodes.iter().enumerate() {
        let clocks = node.status().clocks;
        assert_eq!(clocks.len(), 2);
        for clock in clocks {
            let expected = CLOCKS[clock.node.0 as usize - 1] as i64 - CLOCKS[index] as i64;
            assert_eq!((clock.ahead_ms, clock.is_beyond_limit()), (expected, true));
        }
        let by_leader = CLOCKS[index].saturating_add_signed(node.leader_clock_ahead_ms(shard()));
        assert_eq!(by_leader, CLOCKS[leader as usize - 1]);
    }
    cluster.kill(2);
    assert!(cluster.nodes[0].status().clocks.iter().all(|clock| clock.node == NodeId(3)));
}
