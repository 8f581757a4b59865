//! Iterations over all keys while slots move.

use super::*;
use crate::slots::slot_set::SlotSet;

/// A node that was away scans with the slot map that it knows, and learns the newer one before the
/// reply arrives. The shard owns nothing any more, which is all that it should own according to the
/// newer map.
#[test]
fn a_step_of_a_scan_is_not_judged_by_a_later_map() {
    let mut cluster = Cluster::elected(3);
    for key in ["a", "b", "c", "d", "e", "f"] {
        cluster.answer(1, put(key, "v", Condition::Always));
    }
    cluster.kill(3);
    cluster.tick(100);
    let slots = SlotSet::all();
    let token =
        cluster.ask(1, Request::Write(Write::from(RegistryWrite::MoveSlots { slots, to: ShardId(1) })));
    cluster.tick(50);
    assert!(matches!(
        cluster.replies.remove(&token),
        Some(Reply::Write(WriteReply::Moving { moves: 1, .. }))
    ));
    assert_eq!(cluster.nodes[0].slot_map().shards(), [ShardId(1)]);

    // When the node comes back, the registry has a leader and the shard has none yet. So the map
    // arrives first.
    for (shard, to) in [(0, 1), (2, 2)] {
        let transfer = Request::Transfer { shard: ShardId(shard), to: NodeId(to) };
        if cluster.leader(ShardId(shard)) != to {
            assert_eq!(cluster.answer(1, transfer), Reply::Node(NodeReply::Asked));
            cluster.tick(10);
        }
    }
    assert_eq!((cluster.leader(ShardId(0)), cluster.leader(ShardId(2))), (1, 2));
    cluster.kill(2);
    cluster.revive(3);
    let old = cluster.nodes[2].slot_map().clone();
    assert_eq!(old.shards(), [ShardId(1), ShardId(2)], "it has not heard of the move");
    let read = Read::Scan { shard: ShardId(2), after: 0, count: 10, version: old.version };
    let step = cluster.ask(3, Request::Read { read, consistency: Consistency::Linearizable });
    cluster.tick(5);
    assert_eq!(cluster.nodes[2].slot_map().shards(), [ShardId(1)]);
    assert_eq!(cluster.replies.get(&step), None, "the shard has no leader");
    cluster.tick(REQUEST_TICKS - 10);
    assert_eq!(cluster.replies.remove(&step), Some(Reply::SlotsMoved));
}
