//! What nodes report of their consensus. The transcripts have elections, membership and snapshots.

use super::*;
use crate::command::RegistryWrite;
use crate::slots;
use crate::slots::slot_set::SlotSet;
use crate::trace::MoveStage;

impl Cluster {
    /// Takes the kinds of events that were reported and that `pick` selects.
    fn take_events<T>(&mut self, pick: impl Fn(&TraceEvent) -> Option<T>) -> Vec<T> {
        self.trace.drain(..).filter_map(|(_, event)| pick(&event)).collect()
    }
}

#[test]
fn a_slot_move_is_reported_stage_by_stage_by_the_leader_of_its_giver() {
    let mut cluster = Cluster::elected(3);
    cluster.answer(1, put("a", "1", Condition::Always));
    let slot = slots::slot_of(b"a");
    let from = slots::shard_of(slot, 2);
    let to = ShardId(3 - from.0);
    let leader = cluster.leader(from);
    cluster.trace.clear();
    let moved = RegistryWrite::MoveSlots { slots: SlotSet::of(core::iter::once(slot..slot + 1)), to };
    assert!(matches!(
        cluster.answer(1, Request::Write(moved.into())),
        Reply::Write(WriteReply::Moving { .. })
    ));
    cluster.tick(20);
    let reported: Vec<(u64, TraceEvent)> = core::mem::take(&mut cluster.trace);
    let mut stages = Vec::new();
    for (node, event) in reported {
        if let TraceKind::SlotMove { to: receiver, stage, .. } = event.kind {
            assert_eq!((node, event.shard, receiver), (leader, from, to), "{stage:?}");
            stages.push(stage);
        }
    }
    assert_eq!(
        stages,
        [
            MoveStage::Opening,
            MoveStage::Copying,
            MoveStage::Frozen,
            MoveStage::Owned,
            MoveStage::Counting,
            MoveStage::Purging,
            MoveStage::Finished,
        ]
    );
}

#[test]
fn a_reason_for_refusals_is_reported_once_until_they_end() {
    let mut cluster = Cluster::elected(1);
    cluster.stall(1);
    cluster.trace.clear();
    let refusals = |cluster: &mut Cluster| {
        cluster.take_events(|event| match event.kind {
            TraceKind::ProposalRefused(reason) => Some(reason),
            _ => None,
        })
    };
    let refused = |cluster: &mut Cluster| {
        let reply = cluster.answer(1, put("a", "1", Condition::Always));
        assert_eq!(reply, Reply::Refused(Refusal::DiskUnavailable));
        refusals(cluster)
    };
    assert_eq!(refused(&mut cluster), [ProposalRefusal::DiskUnavailable]);
    assert_eq!(refused(&mut cluster), []);
    cluster.tick(1);
    assert_eq!(refused(&mut cluster), []);
    cluster.tick(2);
    assert_eq!(refused(&mut cluster), [ProposalRefusal::DiskUnavailable], "they had ended");
}

#[test]
fn a_shard_whose_writes_wait_in_vain_is_reported_once_a_drive() {
    let mut cluster = Cluster::new(3);
    cluster.kill(2);
    cluster.kill(3);
    for _ in 0..3 {
        cluster.ask(1, put("a", "1", Condition::Always));
    }
    cluster.tick(REQUEST_TICKS);
    let shard = slots::shard_of(slots::slot_of(b"a"), 2);
    let refused = cluster.take_events(|event| match event.kind {
        TraceKind::ProposalRefused(reason) => Some((event.shard, reason)),
        _ => None,
    });
    assert_eq!(refused, [(shard, ProposalRefusal::NoLeader)]);
}
