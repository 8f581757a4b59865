//! Disks that temporarily take no commands.

use super::*;
use crate::slots;
use crate::storage::WalRecord;
use crate::storage::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};

/// Whether a disk without space for commands refuses a batch.
pub(super) fn holds_data(batch: &WalBatch) -> bool {
    batch.records.iter().any(|record| match record {
        WalRecord::Entries { entries, .. } => entries.iter().any(|entry| !entry.data.is_empty()),
        _ => false,
    })
}

fn shard_of(key: &str) -> ShardId {
    slots::shard_of(slots::slot_of(key.as_bytes()), 2)
}

impl Cluster {
    /// Makes the disk of a node refuse commands. The node learns of it with its next batch.
    fn fill_disk(&mut self, node: u64) {
        self.stalled.insert(node, WalSequence(0));
    }

    /// As `fill_disk`, but the node learns of it at once.
    pub(super) fn stall(&mut self, node: u64) {
        self.fill_disk(node);
        self.nodes[node as usize - 1].handle(Event::DiskStalled(StallReason::Refused));
        self.settle();
    }

    /// Makes the disk of a node hang: batches do not become durable. The node does not know it yet.
    pub(super) fn hang(&mut self, node: u64) {
        self.hanging.insert(node, WalSequence(0));
    }

    /// Tells a node that its disk hangs.
    fn find_slow(&mut self, node: u64) {
        self.nodes[node as usize - 1].handle(Event::DiskStalled(StallReason::Slow));
        self.settle();
    }

    /// Lets a hanging disk continue, and tells the node that it keeps up.
    fn resume(&mut self, node: u64) {
        let waiting = self.hanging.remove(&node).expect("the disk hangs");
        self.nodes[node as usize - 1].handle(Event::Durable(waiting));
        self.nodes[node as usize - 1].handle(Event::DiskRecovered);
        self.settle();
    }

    fn recover(&mut self, node: u64) {
        let waiting = self.stalled.remove(&node).expect("the disk is stalled");
        self.nodes[node as usize - 1].handle(Event::Durable(waiting));
        self.nodes[node as usize - 1].handle(Event::DiskRecovered);
        self.settle();
    }

    fn leads(&self, node: u64) -> bool {
        self.nodes[node as usize - 1].status().shards.iter().any(|shard| shard.leads)
    }

    /// Checks that all running replicas have applied the same state.
    fn assert_converged(&self) {
        let applied = |node: &Node| -> Vec<LogIndex> {
            node.status().shards.iter().map(|shard| shard.applied).collect()
        };
        let expected = applied(&self.nodes[0]);
        assert!(self.nodes.iter().all(|node| applied(node) == expected));
    }
}

const DISK_UNAVAILABLE: Reply = Reply::Refused(Refusal::DiskUnavailable);

#[test]
fn a_lone_node_refuses_writes_at_once_serves_reads_and_resumes() {
    let mut cluster = Cluster::new(1);
    cluster.settle();
    cluster.answer(1, put("a", "1", Condition::Always));
    cluster.fill_disk(1);
    let in_flight = cluster.ask(1, put("a", "2", Condition::Always));
    assert!(cluster.replies.is_empty(), "nothing is acknowledged");
    for _ in 0..3 {
        assert_eq!(cluster.answer(1, put("a", "3", Condition::Always)), DISK_UNAVAILABLE);
        assert_eq!(cluster.answer(1, get("a")), value(1, "1"));
        cluster.tick(1);
    }
    assert!(cluster.nodes[0].status().disk_stalled && cluster.leads(1));
    cluster.recover(1);
    assert!(cluster.replies.remove(&in_flight).as_ref().is_some_and(wrote));
    assert_eq!(
        cluster.answer(1, put("a", "4", Condition::Version(Version(2)))),
        Reply::Write(WriteReply::of(&OperationReply::Written { version: Version(3), created: false }))
    );
    assert_eq!(cluster.nodes[0].status().counters.refused_disk_unavailable, 3);
}

#[test]
fn what_is_in_flight_when_the_disk_stalls_is_of_unknown_outcome_by_its_deadline() {
    let mut cluster = Cluster::new(1);
    cluster.settle();
    cluster.fill_disk(1);
    let in_flight = cluster.ask(1, put("a", "1", Condition::Always));
    cluster.tick(REQUEST_TICKS);
    assert_eq!(cluster.replies.remove(&in_flight), Some(Reply::Refused(Refusal::UnknownOutcome)));
}

#[test]
fn commands_that_wait_behind_what_is_in_flight_are_refused() {
    let mut cluster = Cluster::new(1);
    cluster.settle();
    cluster.fill_disk(1);
    // Both come before the node learns of its disk: the first enters the log, the second waits for
    // it.
    cluster.nodes[0].handle(Event::Request {
        token: Token(1),
        caller: Caller::Anonymous,
        request: put("a", "1", Condition::Always),
        trace: None,
    });
    let mut actions = Actions::default();
    cluster.nodes[0].drive(&mut actions);
    assert!(actions.wal.is_some());
    cluster.nodes[0].handle(Event::Request {
        token: Token(2),
        caller: Caller::Anonymous,
        request: put("a", "2", Condition::Always),
        trace: None,
    });
    cluster.nodes[0].handle(Event::DiskStalled(StallReason::Refused));
    cluster.tick(2);
    assert_eq!(cluster.replies.remove(&Token(2)), Some(DISK_UNAVAILABLE));
    assert!(cluster.replies.is_empty());
}

#[test]
fn a_leader_on_a_stalled_disk_hands_over_and_the_cluster_goes_on() {
    let mut cluster = Cluster::elected(3);
    cluster.answer(1, put("a", "1", Condition::Always));
    let leader = cluster.leader(shard_of("a"));
    cluster.fill_disk(leader);
    let in_flight = cluster.ask(leader, put("a", "2", Condition::Always));
    cluster.tick(5);
    assert!(!cluster.leads(leader), "every shard is handed over, not only the one that was written to");
    for node in 1..=3 {
        let written = cluster.answer(node, put("a", "3", Condition::Always));
        assert!(wrote(&written), "node {node}: {written:?}");
    }
    cluster.tick(100);
    assert!(!cluster.leads(leader), "nor does it stand for election");
    let in_flight = cluster.replies.remove(&in_flight);
    assert!(in_flight.as_ref().is_some_and(wrote), "two disks have it: {in_flight:?}");
    assert_eq!(cluster.answer(leader, get("a")), DISK_UNAVAILABLE, "the others have gone on without it");
    cluster.recover(leader);
    cluster.tick(30);
    assert!(matches!(cluster.answer(leader, get("a")), Reply::Read(ReadReply::Value(Some(_)))));
    cluster.assert_converged();
}

#[test]
fn with_all_disks_stalled_leaders_stay_and_serve_reads() {
    let mut cluster = Cluster::elected(3);
    cluster.answer(1, put("a", "1", Condition::Always));
    cluster.tick(50);
    for node in 1..=3 {
        cluster.stall(node);
    }
    for _ in 0..10 {
        cluster.tick(20);
        for node in 1..=3 {
            assert_eq!(cluster.answer(node, put("a", "2", Condition::Always)), DISK_UNAVAILABLE);
            assert_eq!(cluster.answer(node, get("a")), value(1, "1"));
        }
    }
    assert!(cluster.nodes.iter().all(|node| node.status().shards.iter().all(|shard| shard.leader.is_some())));
    for node in 1..=3 {
        cluster.recover(node);
    }
    for node in 1..=3 {
        assert!(wrote(&cluster.answer(node, put("a", "3", Condition::Always))));
    }
    cluster.tick(5);
    cluster.assert_converged();
}

#[test]
fn a_leader_refuses_what_a_majority_could_not_write_down() {
    let mut cluster = Cluster::elected(3);
    cluster.tick(50);
    let leader = cluster.leader(shard_of("a"));
    let followers: Vec<u64> = (1..=3).filter(|&node| node != leader).collect();
    cluster.stall(followers[0]);
    assert!(wrote(&cluster.answer(leader, put("a", "1", Condition::Always))));
    cluster.stall(followers[1]);
    assert_eq!(cluster.nodes[leader as usize - 1].status().peers_stalled.len(), 2);
    for node in 1..=3 {
        assert_eq!(cluster.answer(node, put("a", "2", Condition::Always)), DISK_UNAVAILABLE, "node {node}");
    }
    assert_eq!(cluster.answer(leader, get("a")), value(1, "1"));
    cluster.recover(followers[1]);
    cluster.tick(2);
    assert!(wrote(&cluster.answer(leader, put("a", "3", Condition::Always))));
    cluster.recover(followers[0]);
    cluster.tick(10);
    cluster.assert_converged();
}

#[test]
fn a_stalled_follower_holds_nothing_in_memory_that_its_disk_does_not() {
    let mut cluster = Cluster::elected(3);
    cluster.tick(50);
    let leader = cluster.leader(shard_of("a"));
    let follower = leader % 3 + 1;
    cluster.stall(follower);
    let last = |cluster: &Cluster| -> Vec<LogIndex> {
        cluster.nodes[follower as usize - 1].status().shards.iter().map(|shard| shard.last).collect()
    };
    let before = last(&cluster);
    for _ in 0..50 {
        assert!(wrote(&cluster.answer(leader, put("a", "1", Condition::Always))));
        cluster.tick(2);
    }
    assert_eq!(last(&cluster), before);
    assert_eq!(cluster.stalled[&follower], WalSequence(0), "no batch was made");
    cluster.recover(follower);
    cluster.tick(10);
    cluster.assert_converged();
}

#[test]
fn a_stalled_node_makes_snapshots_so_that_its_log_can_be_cut() {
    let mut cluster = Cluster::new(1);
    cluster.settle();
    cluster.answer(1, put("a", "1", Condition::Always));
    let begun = |cluster: &mut Cluster| -> Option<SnapshotId> {
        let mut actions = Actions::default();
        cluster.nodes[0].drive(&mut actions);
        let mut shards: Vec<SnapshotId> = actions.snapshots.iter().map(SnapshotTask::id).collect();
        shards.dedup();
        assert!(shards.len() <= 1, "one at a time: {shards:?}");
        shards.pop()
    };
    assert_eq!(begun(&mut cluster), None, "the log is small");
    cluster.nodes[0].handle(Event::DiskStalled(StallReason::Refused));
    let mut made = Vec::new();
    while let Some(id) = begun(&mut cluster) {
        made.push(id.shard);
        // The only block, then the end of the file.
        cluster.nodes[0].handle(Event::Snapshot(SnapshotDone::Written { id }));
        assert_eq!(begun(&mut cluster), Some(id));
        let done = SnapshotDone::Finished { id, file_bytes: 10, checksum: 0 };
        cluster.nodes[0].handle(Event::Snapshot(done));
    }
    let shards = cluster.nodes[0].status().shards;
    let applied = shards.iter().filter(|shard| shard.applied > LogIndex(0)).map(|shard| shard.shard);
    assert_eq!(made, applied.collect::<Vec<_>>(), "each shard has let go of its log");
    assert!(made.contains(&shard_of("a")));
}

#[test]
fn somebody_leads_and_serves_reads_even_if_no_disk_has_room() {
    let mut cluster = Cluster::elected(3);
    cluster.answer(1, put("a", "1", Condition::Always));
    cluster.tick(50);
    for node in 1..=3 {
        cluster.stall(node);
    }
    let leader = cluster.leader(shard_of("a"));
    cluster.kill(leader);
    cluster.tick(400);
    for node in (1..=3).filter(|&node| node != leader) {
        assert_eq!(cluster.answer(node, get("a")), value(1, "1"));
        assert_eq!(cluster.answer(node, put("a", "2", Condition::Always)), DISK_UNAVAILABLE);
    }
    assert!(
        cluster.stalled.values().all(|waiting| *waiting == WalSequence(0)),
        "commands are not even written"
    );
}

#[test]
fn a_replica_whose_vote_would_wait_for_the_disk_does_not_vote() {
    let mut cluster = Cluster::elected(3);
    cluster.tick(50);
    let leader = cluster.leader(shard_of("a"));
    let (follower, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.fill_disk(follower);
    // Its entry waits, and every later one would wait too.
    cluster.answer(leader, put("a", "1", Condition::Always));
    assert!(cluster.stalled[&follower] > WalSequence(0));
    let leads =
        |cluster: &Cluster| cluster.nodes[other as usize - 1].status().shards[shard_of("a").0 as usize].leads;
    cluster.kill(leader);
    cluster.tick(500);
    // Meanwhile each other shard may have written one vote that also waits.
    let queued = cluster.stalled[&follower];
    cluster.tick(1000);
    assert_eq!((cluster.stalled[&follower], leads(&cluster)), (queued, false));
    cluster.recover(follower);
    cluster.tick(100);
    assert!(leads(&cluster) || cluster.leads(follower));
    assert!(wrote(&cluster.answer(other, put("a", "2", Condition::Always))));
}

fn is_written(reply: &Reply) -> bool {
    wrote(reply)
}

#[test]
fn a_leader_acknowledges_what_a_majority_without_it_holds() {
    let mut cluster = Cluster::elected(3);
    let leader = cluster.leader(shard_of("a"));
    cluster.hang(leader);
    for version in ["1", "2", "3"] {
        for node in 1..=3 {
            let written = cluster.answer(node, put("a", version, Condition::Always));
            assert!(is_written(&written), "through node {node}: {written:?}");
            assert!(matches!(cluster.answer(leader, get("a")), Reply::Read(ReadReply::Value(Some(_)))));
        }
    }
    assert_eq!(cluster.leader(shard_of("a")), leader, "nobody has found the disk to be slow yet");
    cluster.resume(leader);
    cluster.tick(10);
    cluster.assert_converged();
}

#[test]
fn a_leader_whose_disk_is_needed_for_the_majority_waits_for_it() {
    for nodes in [1, 3] {
        let mut cluster = Cluster::elected(nodes);
        let leader = cluster.leader(shard_of("a"));
        if nodes == 3 {
            cluster.kill(leader % 3 + 1);
        }
        cluster.hang(leader);
        let token = cluster.ask(leader, put("a", "1", Condition::Always));
        cluster.tick(3);
        assert!(!cluster.replies.contains_key(&token), "{nodes} nodes");
        cluster.resume(leader);
        assert!(cluster.replies.get(&token).is_some_and(is_written), "{nodes} nodes");
    }
}

#[test]
fn a_slow_leader_hands_over_and_leads_again_only_when_its_disk_was_steady() {
    let mut cluster = Cluster::elected(3);
    let leader = cluster.leader(shard_of("a"));
    cluster.hang(leader);
    let in_flight = cluster.ask(leader, put("a", "1", Condition::Always));
    cluster.find_slow(leader);
    cluster.tick(5);
    assert!(!cluster.leads(leader) && cluster.nodes[leader as usize - 1].status().disk_stalled);
    assert!(cluster.replies.remove(&in_flight).is_some_and(|reply| is_written(&reply)));
    for node in 1..=3 {
        let written = cluster.answer(node, put("a", "2", Condition::Always));
        assert!(is_written(&written), "through node {node}: {written:?}");
    }
    assert_eq!(cluster.answer(leader, get("a")), DISK_UNAVAILABLE, "the others have gone on without it");
    cluster.resume(leader);
    cluster.tick(3);
    let status = cluster.nodes[leader as usize - 1].status();
    assert!(status.disk_unsteady && !status.disk_stalled);
    assert!(matches!(cluster.answer(leader, get("a")), Reply::Read(ReadReply::Value(Some(_)))), "it serves");
    let taker = cluster.leader(shard_of("a"));
    cluster.answer(taker, Request::Transfer { shard: shard_of("a"), to: NodeId(leader) });
    cluster.tick(5);
    assert!(!cluster.leads(leader), "it gives back what it is given");
    let election_ticks = cluster.nodes[0].options.timing.election_ticks;
    cluster.tick(5 * election_ticks);
    assert!(!cluster.nodes[leader as usize - 1].status().disk_unsteady);
    let taker = cluster.leader(shard_of("a"));
    cluster.answer(taker, Request::Transfer { shard: shard_of("a"), to: NodeId(leader) });
    cluster.tick(5);
    assert_eq!(cluster.leader(shard_of("a")), leader);
    cluster.assert_converged();
}

#[test]
fn a_leader_on_an_unsteady_disk_stays_if_no_disk_is_better() {
    let mut cluster = Cluster::elected(3);
    for node in 1..=3 {
        cluster.hang(node);
        cluster.find_slow(node);
    }
    let leader = cluster.leader(shard_of("a"));
    assert_eq!(cluster.answer(leader, put("a", "1", Condition::Always)), DISK_UNAVAILABLE);
    for node in 1..=3 {
        cluster.resume(node);
    }
    cluster.tick(3);
    assert_eq!(cluster.leader(shard_of("a")), leader);
    for node in 1..=3 {
        assert!(is_written(&cluster.answer(node, put("a", "2", Condition::Always))), "through node {node}");
    }
}

#[test]
fn a_follower_whose_disk_hangs_serves_what_it_was_sent_and_refuses_the_rest() {
    let mut cluster = Cluster::elected(3);
    cluster.tick(50);
    let leader = cluster.leader(shard_of("a"));
    let follower = leader % 3 + 1;
    cluster.hang(follower);
    assert!(is_written(&cluster.answer(leader, put("a", "1", Condition::Always))));
    cluster.tick(3);
    assert!(
        matches!(cluster.answer(follower, get("a")), Reply::Read(ReadReply::Value(Some(_)))),
        "two others have it"
    );
    cluster.find_slow(follower);
    assert!(is_written(&cluster.answer(follower, put("a", "2", Condition::Always))), "the others go on");
    assert_eq!(cluster.answer(follower, get("a")), DISK_UNAVAILABLE);
    cluster.resume(follower);
    cluster.tick(10);
    assert!(matches!(cluster.answer(follower, get("a")), Reply::Read(ReadReply::Value(Some(_)))));
    cluster.assert_converged();
}

#[test]
fn a_slow_disk_is_no_reason_for_snapshots() {
    let mut cluster = Cluster::new(1);
    cluster.settle();
    cluster.answer(1, put("a", "1", Condition::Always));
    cluster.find_slow(1);
    cluster.tick(5);
    assert!(cluster.tasks.is_empty(), "{:?}", cluster.tasks);
}

/// The guarantee of docs/explanation/consistency.md for writes: a write is acknowledged once a
/// majority has it and the leader has applied it. The node that received the request may not have
/// applied it yet.
#[test]
fn a_forwarded_write_is_acknowledged_before_the_own_replica_shows_it() {
    let mut cluster = Cluster::elected(3);
    let stale = || Request::Read { read: Read::Get { key: "a".into() }, consistency: Consistency::Stale };
    let leader = cluster.leader(shard_of("a"));
    cluster.answer(leader, put("a", "1", Condition::Always));
    assert_eq!(cluster.answer(leader, stale()), value(1, "1"), "the leader shows what it acknowledged");
    let asked = leader % 3 + 1;
    cluster.stall(asked);
    let written = cluster.answer(asked, put("a", "2", Condition::Always));
    assert_eq!(
        written,
        Reply::Write(WriteReply::of(&OperationReply::Written { version: Version(2), created: false }))
    );
    assert_eq!(
        cluster.answer(asked, stale()),
        value(1, "1"),
        "a lower version than the write was answered with"
    );
    cluster.recover(asked);
    cluster.tick(REQUEST_TICKS);
    assert_eq!(cluster.answer(asked, stale()), value(2, "2"));
}
