//! How long a founder with an empty directory takes part in no election.

use super::*;
use crate::deliberate::{Fault, Faults};
use crate::storage::{HardState, RecoveredLog, RecoveredShard};

/// The first of three founders. It has the only replica of a data shard, which it leads as soon as
/// it takes part in elections.
fn founder(faults: Faults, recovered: RecoveredShards) -> Node {
    let founders = ["a", "b", "c"].map(String::from);
    let options = NodeOptions { replicas: Some(1), data_shards: 3, faults, ..options(1, &founders) };
    Node::new(options, recovered)
}

fn leads(node: &mut Node) -> bool {
    while node.has_work() {
        node.drive(&mut Actions::default());
    }
    node.status().shards.iter().any(|shard| shard.leads)
}

#[test]
fn an_empty_founder_waits_until_all_others_have_accepted_it() {
    let mut node = founder(Faults::NONE, RecoveredShards::new());
    node.handle(Event::LinkUp(NodeId(3)));
    assert!(!leads(&mut node));
    node.handle(Event::LinkDown(NodeId(3)));
    node.handle(Event::LinkUp(NodeId(3)));
    assert!(!leads(&mut node), "the same peer twice");
    node.handle(Event::LinkUp(NodeId(2)));
    assert!(leads(&mut node));
}

#[test]
fn an_empty_founder_waits_for_the_founding_ticks_at_most() {
    let mut node = founder(Faults::NONE, RecoveredShards::new());
    node.handle(Event::LinkUp(NodeId(2)));
    for _ in 1..FOUNDING_TICKS {
        node.handle(Event::Tick);
    }
    assert!(!leads(&mut node));
    node.handle(Event::Tick);
    assert!(leads(&mut node));
}

#[test]
fn a_founder_that_has_taken_part_before_waits_for_nobody() {
    let hard_state = HardState { term: Term(1), ..HardState::default() };
    let log = RecoveredLog { hard_state, ..RecoveredLog::default() };
    let prime = RecoveredShard { log, ..RecoveredShard::default() };
    assert!(leads(&mut founder(Faults::NONE, [(ShardId::PRIME, prime)].into())));
    assert!(leads(&mut founder(Faults::only(Fault::EmptyFounderVotes), RecoveredShards::new())));
}
