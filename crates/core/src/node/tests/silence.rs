//! Peers that send nothing although their connections stand, and slow requests.

use alloc::vec;

use super::*;
use crate::command::KeyScope;
use crate::slots::SLOTS;

const ELECTION_TICKS: u64 = 20;

impl Cluster {
    /// Stops a process: it receives no frames and no ticks, and its connections stand.
    fn freeze(&mut self, node: u64) {
        self.alive[node as usize - 1] = false;
    }

    fn thaw(&mut self, node: u64) {
        self.alive[node as usize - 1] = true;
        self.settle();
    }

    /// The peers that a node finds silent, and those that it can reach.
    fn reach(&self, node: u64) -> (Vec<u64>, Vec<u64>) {
        let status = self.nodes[node as usize - 1].status();
        let up = status.links.iter().filter(|(_, up)| *up).map(|(node, _)| node.0);
        (status.silent.iter().map(|node| node.0).collect(), up.collect())
    }
}

#[test]
fn a_frozen_peer_counts_as_unreachable_until_it_sends_again() {
    let mut cluster = Cluster::elected(3);
    cluster.tick(2 * ELECTION_TICKS);
    assert_eq!(cluster.reach(1), (vec![], vec![2, 3]), "a quiet peer reports often enough");
    cluster.freeze(2);
    cluster.tick(ELECTION_TICKS);
    assert_eq!(cluster.reach(1), (vec![], vec![2, 3]), "not yet");
    cluster.tick(2 * ELECTION_TICKS);
    assert_eq!(cluster.reach(1), (vec![2], vec![3]));
    let Reply::Node(NodeReply::Cluster(view)) = cluster.answer(3, Request::Cluster) else {
        panic!("no view")
    };
    let connected: Vec<bool> = view.hosts.iter().map(|host| host.connected).collect();
    assert_eq!(connected, [true, false, true]);
    cluster.thaw(2);
    cluster.tick(ELECTION_TICKS);
    assert_eq!(cluster.reach(1), (vec![], vec![2, 3]));
    cluster.kill(2);
    assert_eq!(cluster.reach(1), (vec![], vec![3]), "without a connection nobody is silent");
}

#[test]
fn a_node_that_is_cut_off_says_so_for_caches() {
    let mut cluster = Cluster::elected(3);
    let read =
        Read::Changes { scope: KeyScope::Prefix(Bytes::new()), after: None, limit: 1, keys_only: true };
    cluster.answer(1, Request::Read { read, consistency: Consistency::Linearizable });
    cluster.tick(3 * ELECTION_TICKS);
    assert_eq!(cluster.leaderless, vec![], "all shards have leaders");
    cluster.freeze(2);
    cluster.freeze(3);
    cluster.tick(5 * ELECTION_TICKS);
    let all: u32 = cluster.leaderless.iter().map(|range| u32::from(range.end - range.start)).sum();
    assert!(all >= u32::from(SLOTS), "{:?}", cluster.leaderless);
}

#[test]
fn a_node_that_froze_believes_its_peers_when_it_goes_on() {
    let mut cluster = Cluster::elected(3);
    cluster.freeze(2);
    cluster.tick(10 * ELECTION_TICKS);
    cluster.thaw(2);
    assert_eq!(cluster.reach(2), (vec![], vec![1, 3]), "it did not see the time pass");
}

#[test]
fn writes_for_a_frozen_leader_are_held_for_the_next_one() {
    let mut cluster = Cluster::elected(3);
    let shard = crate::slots::shard_of(crate::slots::slot_of(b"a"), 2);
    let leader = cluster.leader(shard);
    cluster.freeze(leader);
    cluster.tick(3 * ELECTION_TICKS);
    let survivor = leader % 3 + 1;
    let reply = cluster.answer(survivor, put("a", "1", Condition::Always));
    assert_eq!(
        reply,
        Reply::Write(WriteReply::of(&OperationReply::Written { version: Version(1), created: true }))
    );
}

#[test]
fn requests_that_take_long_are_told_with_what_held_them() {
    let mut cluster = Cluster::elected(3);
    let shard = crate::slots::shard_of(crate::slots::slot_of(b"a"), 2);
    cluster.answer(1, put("a", "1", Condition::Always));
    assert!(cluster.slow.is_empty(), "what is done at once is not slow");
    let leader = cluster.leader(shard);
    let asked = leader % 3 + 1;
    cluster.freeze(leader);
    cluster.freeze(asked % 3 + 1);
    cluster.ask(asked, put("a", "2", Condition::Always));
    cluster.ask(asked, get("a"));
    cluster.tick(REQUEST_TICKS);
    let reported: Vec<_> =
        cluster.slow.iter().map(|(node, slow)| (*node, slow.kind, slow.peer, slow.refusal.clone())).collect();
    let (held_by, unknown, none) =
        (Some(NodeId(leader)), Some(Refusal::UnknownOutcome), Some(Refusal::NoLeader));
    assert_eq!(reported, [(asked, "write", held_by, unknown), (asked, "read", None, none)]);
    assert!(
        cluster.slow.iter().all(|(_, slow)| slow.shard == Some(shard) && slow.waited >= Ticks(REQUEST_TICKS))
    );
    assert_eq!(cluster.nodes[asked as usize - 1].status().counters.slow_requests, 2);
}
