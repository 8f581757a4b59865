//! Whole nodes over a perfect network and disk: what the parts guarantee together. The simulator
//! covers faults.

mod clocks;
mod first_elections;
mod flush;
mod force_new_cluster;
mod key_reports;
mod membership;
mod permissions;
mod previews;
mod publications;
mod scans;
mod silence;
mod spans;
mod stalls;
mod trace;
mod transcripts;
mod versions;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use std::format;

use uuid::Uuid;

use super::*;
use crate::command::{
    Condition, Consistency, Operation, OperationReply, Publication, ReadReply, Refusal, StoredValue,
    WriteReply,
};
use crate::event::{KeyReport, SlowRequest, StallReason, Timing};
use crate::limits;
use crate::spans::SpanEvent;
use crate::storage::memory_disk::MemoryDisk;
use crate::storage::snapshot::SnapshotTask;
use crate::storage::snapshot_files::SnapshotFiles;
use crate::types::Token;
use crate::types::Version;

mod audit;
mod checkpoints;

const REQUEST_TICKS: u64 = 50;
/// Long enough for tests in which a node is down for other reasons.
const DEAD_TICKS: u64 = 2_000;
const FOUNDING_TICKS: u64 = 40;

struct Cluster {
    nodes: Vec<Node>,
    /// Nodes that run. The others receive no frames and no ticks.
    alive: Vec<bool>,
    /// The peers to which each node wants a connection.
    peers: Vec<Vec<NodeId>>,
    /// Pairs with a link, the lower number first.
    links: BTreeSet<(NodeId, NodeId)>,
    /// Nodes whose disk takes no commands, with the last batch that waits for it, 0 for none.
    stalled: BTreeMap<u64, WalSequence>,
    /// Nodes whose disk hangs, with the last batch that waits for it, 0 for none.
    hanging: BTreeMap<u64, WalSequence>,
    next_token: u64,
    replies: BTreeMap<Token, Reply>,
    /// Slow requests, with the numbers of their nodes.
    slow: Vec<(u64, SlowRequest)>,
    /// What nodes reported of changed keys, with their numbers.
    key_reports: Vec<(u64, KeyReport)>,
    /// The slots of whose changes nodes may learn nothing, for caches.
    leaderless: Vec<Range<u16>>,
    /// What arrived for the subscribers of nodes, with their numbers.
    published: Vec<(u64, Publication)>,
    /// What nodes reported of their consensus, with their numbers.
    trace: Vec<(u64, TraceEvent)>,
    /// What nodes reported of traced requests, with their numbers.
    spans: Vec<(u64, SpanEvent)>,
    /// One item for each drive that sent frames: its node, how many replies it gave, and
    /// [`Actions::replies_first`].
    sent: Vec<(u64, usize, bool)>,
    /// Snapshot files, in the tests that use them; otherwise no snapshot ever finishes.
    files: Vec<SnapshotFiles<MemoryDisk>>,
    /// Unfinished tasks on those files, in order.
    tasks: Vec<(usize, SnapshotTask)>,
}

impl Cluster {
    fn new(count: u64) -> Cluster {
        Cluster::with(count, |options| options)
    }

    /// A cluster whose nodes have other options.
    fn with(count: u64, change: impl Fn(NodeOptions) -> NodeOptions) -> Cluster {
        let founders: Vec<String> = (1..=count).map(|node| format!("node-{node}:9001")).collect();
        let node = |node| Node::new(change(options(node, &founders)), RecoveredShards::new());
        let nodes = (1..=count).map(node).collect();
        let mut cluster = Cluster {
            nodes,
            alive: alloc::vec![true; count as usize],
            peers: alloc::vec![Vec::new(); count as usize],
            links: BTreeSet::new(),
            stalled: BTreeMap::new(),
            hanging: BTreeMap::new(),
            next_token: 0,
            replies: BTreeMap::new(),
            slow: Vec::new(),
            key_reports: Vec::new(),
            leaderless: Vec::new(),
            published: Vec::new(),
            trace: Vec::new(),
            spans: Vec::new(),
            sent: Vec::new(),
            files: Vec::new(),
            tasks: Vec::new(),
        };
        cluster.settle();
        cluster
    }

    /// Makes and breaks links: a link needs both ends to want it.
    fn connect(&mut self) {
        let mut wanted = BTreeSet::new();
        for (position, peers) in self.peers.iter().enumerate() {
            let low = NodeId(position as u64 + 1);
            for &high in peers.iter().filter(|&&peer| peer > low) {
                let is_mutual = self.peers.get(high.0 as usize - 1).is_some_and(|back| back.contains(&low));
                if is_mutual && self.alive[position] && self.alive[high.0 as usize - 1] {
                    wanted.insert((low, high));
                }
            }
        }
        let before = core::mem::replace(&mut self.links, wanted.clone());
        for &(low, high) in before.symmetric_difference(&wanted) {
            let event = |peer| {
                if wanted.contains(&(low, high)) { Event::LinkUp(peer) } else { Event::LinkDown(peer) }
            };
            for (node, peer) in [(low, high), (high, low)] {
                if self.alive[node.0 as usize - 1] {
                    self.nodes[node.0 as usize - 1].handle(event(peer));
                }
            }
        }
    }

    fn elected(count: u64) -> Cluster {
        let mut cluster = Cluster::new(count);
        cluster.tick(100);
        assert!(
            cluster.nodes.iter().all(|node| node.status().shards.iter().all(|shard| shard.leader.is_some()))
        );
        cluster
    }

    fn tick(&mut self, count: u64) {
        for _ in 0..count {
            for index in 0..self.nodes.len() {
                if self.alive[index] {
                    self.nodes[index].handle(Event::Tick);
                }
            }
            self.settle();
        }
    }

    /// Delivers frames until nothing is left to do. Disks are instantaneous.
    fn settle(&mut self) {
        let mut moved = true;
        while core::mem::take(&mut moved) {
            for index in 0..self.nodes.len() {
                if !self.alive[index] || !self.nodes[index].has_work() {
                    continue;
                }
                moved = true;
                let mut actions = Actions::default();
                self.nodes[index].drive(&mut actions);
                if let Some(batch) = &actions.wal
                    && let Some(waiting) = self.hanging.get_mut(&(index as u64 + 1))
                {
                    *waiting = batch.sequence;
                } else if let Some(batch) = actions.wal {
                    match self.stalled.get_mut(&(index as u64 + 1)) {
                        Some(waiting) if *waiting > WalSequence(0) || stalls::holds_data(&batch) => {
                            *waiting = batch.sequence;
                            self.nodes[index].handle(Event::DiskStalled(StallReason::Refused));
                        }
                        _ => self.nodes[index].handle(Event::Durable(batch.sequence)),
                    }
                }
                self.tasks.extend(actions.snapshots.into_iter().map(|task| (index, task)));
                if !actions.frames.is_empty() {
                    self.sent.push((index as u64 + 1, actions.replies.len(), actions.replies_first));
                }
                for frame in actions.frames {
                    let bytes_max = limits::PEER_FRAME_BYTES_CLOSE + 2 * limits::APPEND_BYTES_MAX as usize;
                    assert!(frame.payload.len() <= bytes_max, "a frame of {} bytes", frame.payload.len());
                    let to = frame.to.0 as usize - 1;
                    if self.alive[to] {
                        let from = NodeId(index as u64 + 1);
                        self.nodes[to].handle(Event::Frame { from, payload: frame.payload });
                    }
                }
                self.replies.extend(actions.replies);
                self.slow.extend(actions.slow.into_iter().map(|slow| (index as u64 + 1, slow)));
                self.key_reports.extend(actions.keys.into_iter().map(|report| (index as u64 + 1, report)));
                self.leaderless.extend(actions.leaderless_slots);
                self.published.extend(actions.publications.into_iter().map(|one| (index as u64 + 1, one)));
                self.trace.extend(actions.trace.into_iter().map(|event| (index as u64 + 1, event)));
                self.spans.extend(actions.spans.into_iter().map(|event| (index as u64 + 1, event)));
                if let Some(peers) = actions.peers {
                    self.peers[index] = peers.into_iter().map(|(node, _)| node).collect();
                    self.connect();
                }
            }
            moved |= self.work_on_files();
        }
    }

    /// Executes snapshot tasks, once nothing else is left to do.
    fn work_on_files(&mut self) -> bool {
        if self.files.is_empty() || self.tasks.is_empty() {
            return false;
        }
        for (index, task) in core::mem::take(&mut self.tasks) {
            let done = self.files[index].run(task);
            self.nodes[index].handle(Event::Snapshot(done));
        }
        true
    }

    fn ask(&mut self, node: u64, request: Request) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        self.nodes[node as usize - 1].handle(Event::Request {
            token,
            caller: Caller::Anonymous,
            request,
            trace: None,
        });
        self.settle();
        token
    }

    fn answer(&mut self, node: u64, request: Request) -> Reply {
        let token = self.ask(node, request);
        self.replies.remove(&token).expect("answered at once")
    }

    fn leader(&self, shard: ShardId) -> u64 {
        let leads = |node: &&Node| {
            node.status().shards[shard.0 as usize].leads && self.alive[node.options.host.node.0 as usize - 1]
        };
        self.nodes.iter().find(leads).map(|node| node.options.host.node.0).expect("a leader")
    }

    /// What has arrived for the subscribers of a node so far.
    fn published_at(&self, node: u64) -> Vec<Publication> {
        let here = self.published.iter().filter(|(at, _)| *at == node);
        here.map(|(_, publication)| publication.clone()).collect()
    }

    fn kill(&mut self, node: u64) {
        self.alive[node as usize - 1] = false;
        self.connect();
        self.settle();
    }

    /// Restarts a killed node with all its state.
    fn revive(&mut self, node: u64) {
        self.alive[node as usize - 1] = true;
        for other in (1..=self.nodes.len() as u64).filter(|&other| other != node) {
            self.nodes[node as usize - 1].handle(Event::LinkDown(NodeId(other)));
        }
        self.connect();
    }
}

/// These clusters are of the first version, which never divides.
const DIVISION: crate::event::DivisionTiming = crate::event::DivisionTiming {
    report_ticks: 20,
    busy_requests_per_second: u64::MAX,
    busy_intervals: 6,
    memory_ticks: 1_000,
    rest_ticks: 100,
};

pub(super) fn options(node: u64, founders: &[String]) -> NodeOptions {
    NodeOptions {
        host: crate::command::HostInfo {
            node: NodeId(node),
            uuid: Uuid::from_u128(u128::from(node)),
            peer_address: founders[node as usize - 1].clone(),
            http_address: String::new(),
            resp_address: String::new(),
            resp_cluster_address: String::new(),
            tags: BTreeMap::new(),
            release: crate::version::Release::default(),
        },
        founders: founders.to_vec(),
        hosts: BTreeMap::new(),
        move_step_keys: 8,
        prime_replica: None,
        data_shards: 2,
        replicas: None,
        shard_tags: BTreeMap::new(),
        automatic_division: false,
        founding_version: ClusterVersion::FIRST,
        version: ClusterVersion::FIRST,
        timing: Timing {
            tick_ms: 25,
            election_ticks: 20,
            heartbeat_ticks: 2,
            request_ticks: REQUEST_TICKS,
            dead_ticks: DEAD_TICKS,
            balance_ticks: 0,
            slow_request_ticks: REQUEST_TICKS / 2,
            access_stale_ticks: 3_000,
            founding_ticks: FOUNDING_TICKS,
        },
        division: DIVISION,
        snapshot_log_bytes_min: 1 << 20,
        seed: node,
        faults: crate::deliberate::Faults::NONE,
    }
}

fn put(key: &'static str, value: &'static str, condition: Condition) -> Request {
    Request::Write(Write::of(&Operation::Put { key: key.as_bytes(), value: value.as_bytes(), condition }))
}

/// Whether a reply says that a put happened.
fn wrote(reply: &Reply) -> bool {
    matches!(reply.only(), Some(OperationReply::Written { .. }))
}

fn get(key: &'static str) -> Request {
    Request::Read { read: Read::Get { key: key.into() }, consistency: Consistency::Linearizable }
}

fn value(version: u64, value: &'static str) -> Reply {
    Reply::Read(ReadReply::Value(Some(StoredValue {
        version: Version(version),
        value: value.into(),
        expires: None,
        lease: None,
    })))
}

#[test]
fn a_cluster_of_one_answers_at_once() {
    let mut cluster = Cluster::new(1);
    cluster.settle();
    let written = cluster.answer(1, put("a", "1", Condition::Always));
    assert_eq!(
        written,
        Reply::Write(WriteReply::of(&OperationReply::Written { version: Version(1), created: true }))
    );
    assert_eq!(cluster.answer(1, get("a")), value(1, "1"));
    assert_eq!(cluster.answer(1, get("b")), Reply::Read(ReadReply::Value(None)));
}

#[test]
fn any_node_writes_and_every_node_reads_it_back() {
    let mut cluster = Cluster::elected(3);
    for writer in 1..=3 {
        let version = writer;
        let reply = cluster.answer(writer, put("a", "v", Condition::Version(Version(version - 1))));
        assert_eq!(
            reply,
            Reply::Write(WriteReply::of(&OperationReply::Written {
                version: Version(version),
                created: version == 1
            }))
        );
        for reader in 1..=3 {
            assert_eq!(cluster.answer(reader, get("a")), value(version, "v"));
        }
    }
    let failed = cluster.answer(1, put("a", "v", Condition::Version(Version(1))));
    assert_eq!(
        failed,
        Reply::Write(WriteReply::of(&OperationReply::ConditionFailed { current: Version(3) }))
    );
}

#[test]
fn replies_go_before_frames_that_only_tell_what_is_committed() {
    let mut cluster = Cluster::elected(3);
    let leader = cluster.leader(cluster.nodes[0].shard_of(b"a"));
    let sent = |cluster: &mut Cluster, request| {
        cluster.sent.clear();
        cluster.answer(leader, request);
        let of_leader = cluster.sent.iter().filter(|(node, ..)| *node == leader);
        of_leader.map(|&(_, replies, replies_first)| (replies, replies_first)).collect::<Vec<_>>()
    };
    // The entry, and then that it is committed.
    assert_eq!(sent(&mut cluster, put("a", "1", Condition::Always)), [(0, false), (1, true)]);
    assert_eq!(sent(&mut cluster, get("a")), [(0, false)], "the round of a read");
}

#[test]
fn a_list_spans_the_shards() {
    let mut cluster = Cluster::elected(3);
    for key in ["a", "b", "c", "d", "e", "f"] {
        cluster.answer(2, put(key, "v", Condition::Always));
    }
    let counts: Vec<u64> = cluster.nodes[0].status().shards.iter().map(|shard| shard.keys).collect();
    assert!(counts[1] > 0 && counts[2] > 0, "both shards hold keys");
    for consistency in [Consistency::Linearizable, Consistency::Stale] {
        let read = Read::List { prefix: Bytes::new(), after: Some("a".into()), limit: 3, keys_only: true };
        let Reply::Read(ReadReply::Page(page)) = cluster.answer(3, Request::Read { read, consistency })
        else {
            panic!("no page")
        };
        let keys: Vec<Bytes> = page.items.into_iter().map(|item| item.key).collect();
        assert_eq!((keys, page.next), (alloc::vec!["b".into(), "c".into(), "d".into()], Some("d".into())));
    }
}

#[test]
fn hosts_register_themselves_and_reports_travel() {
    let mut cluster = Cluster::elected(3);
    cluster.tick(50);
    let Reply::Node(NodeReply::Cluster(view)) = cluster.answer(1, Request::Cluster) else {
        panic!("no view")
    };
    assert!(view.hosts.iter().all(|host| host.created.0 > 0 && host.connected));
    assert_eq!(view.replicas.len(), 9);
    assert!(view.replicas.iter().all(|replica| replica.applied.is_some()));
    assert_eq!(view.shards.iter().map(|shard| u32::from(shard.slots)).sum::<u32>(), 16384);
    let known: Vec<_> = cluster.nodes[0].known_hosts().collect();
    assert_eq!(known[2], (NodeId(3), Uuid::from_u128(3), "node-3:9001"));
}

#[test]
fn without_a_quorum_nothing_is_promised_and_stale_reads_go_on() {
    let mut cluster = Cluster::elected(3);
    cluster.answer(1, put("a", "1", Condition::Always));
    cluster.kill(2);
    cluster.kill(3);
    cluster.tick(REQUEST_TICKS);
    let (write, read) = (cluster.ask(1, put("a", "2", Condition::Always)), cluster.ask(1, get("a")));
    let stale = Request::Read { read: Read::Get { key: "a".into() }, consistency: Consistency::Stale };
    assert_eq!(cluster.answer(1, stale), value(1, "1"));
    assert!(cluster.replies.is_empty());
    cluster.tick(REQUEST_TICKS);
    assert_eq!(cluster.replies.remove(&write), Some(Reply::Refused(Refusal::NoLeader)));
    assert_eq!(cluster.replies.remove(&read), Some(Reply::Refused(Refusal::NoLeader)));
}

#[test]
fn a_write_in_the_log_of_a_cut_off_leader_is_of_unknown_outcome() {
    let mut cluster = Cluster::elected(3);
    let shard = crate::slots::shard_of(crate::slots::slot_of(b"a"), 2);
    let leader = cluster.leader(shard);
    for node in (1..=3).filter(|&node| node != leader) {
        cluster.kill(node);
    }
    let write = cluster.ask(leader, put("a", "1", Condition::Always));
    cluster.tick(REQUEST_TICKS);
    assert_eq!(cluster.replies.remove(&write), Some(Reply::Refused(Refusal::UnknownOutcome)));
}

#[test]
fn a_dead_leader_is_replaced_and_held_writes_succeed() {
    let mut cluster = Cluster::elected(3);
    let shard = crate::slots::shard_of(crate::slots::slot_of(b"a"), 2);
    let leader = cluster.leader(shard);
    cluster.kill(leader);
    let survivor = leader % 3 + 1;
    let write = cluster.ask(survivor, put("a", "1", Condition::Always));
    assert!(cluster.replies.is_empty(), "held, because no leader is known");
    cluster.tick(10);
    assert!(cluster.replies.remove(&write).as_ref().is_some_and(wrote), "well before the election timeout");
}

#[test]
fn a_retiring_node_hands_its_leaderships_over() {
    let mut cluster = Cluster::elected(3);
    let leader = cluster.leader(ShardId(1));
    cluster.nodes[leader as usize - 1].handle(Event::Retire);
    cluster.tick(5);
    let status = cluster.nodes[leader as usize - 1].status();
    assert!(status.retiring && status.shards.iter().all(|shard| !shard.leads));
    assert!(wrote(&cluster.answer(leader, put("a", "1", Condition::Always))));
}

#[test]
fn a_follower_far_behind_is_served_in_frames_of_bounded_size() {
    let mut cluster = Cluster::elected(3);
    cluster.kill(3);
    cluster.tick(30);
    let value = Bytes::from(alloc::vec![7; 400 << 10]);
    for _ in 0..60 {
        let write = Write::of(&Operation::Put { key: b"a", value: &value, condition: Condition::Always });
        assert!(wrote(&cluster.answer(1, Request::Write(write))));
    }
    cluster.revive(3);
    cluster.tick(60);
    let expected = Reply::Read(ReadReply::Value(Some(StoredValue {
        version: Version(60),
        value,
        expires: None,
        lease: None,
    })));
    let stale = Request::Read { read: Read::Get { key: "a".into() }, consistency: Consistency::Stale };
    assert_eq!(cluster.answer(3, stale), expected);
}

#[test]
fn garbage_from_a_peer_is_counted_and_harms_nothing() {
    let mut cluster = Cluster::elected(3);
    for payload in [&b""[..], b"\xff", b"\x01\x07", b"\x01\x00\x01", b"\x02\x01", b"\x02\x09", b"\x03\x80"] {
        cluster.nodes[0].handle(Event::Frame { from: NodeId(2), payload: Bytes::copy_from_slice(payload) });
    }
    assert_eq!(cluster.nodes[0].status().counters.frames_invalid, 7);
    assert!(wrote(&cluster.answer(1, put("a", "1", Condition::Always))));
}

/// Drives a node that releases part of its log, which makes a batch without records.
fn emit_batch(node: &mut Node, actions: &mut Actions) {
    node.output.released.push((ShardId::PRIME, LogIndex(0)));
    node.drive(actions);
}

#[test]
#[should_panic(expected = "invariant: only batches that were passed to the disk become durable")]
fn a_batch_that_was_not_passed_to_the_disk_does_not_become_durable() {
    let mut cluster = Cluster::elected(1);
    let node = &mut cluster.nodes[0];
    node.handle(Event::Durable(node.output.sequence));
}

#[test]
#[should_panic(expected = "invariant: the shell takes the batch of each drive")]
fn a_batch_does_not_replace_one_that_was_not_taken() {
    let mut cluster = Cluster::elected(1);
    let mut actions = Actions::default();
    (0..2).for_each(|_| emit_batch(&mut cluster.nodes[0], &mut actions));
}

#[test]
#[should_panic(expected = "invariant: the sequence of batches rises by one")]
fn no_sequence_of_a_batch_is_left_out() {
    let mut cluster = Cluster::elected(1);
    let node = &mut cluster.nodes[0];
    emit_batch(node, &mut Actions::default());
    node.output.sequence.0 += 1;
    emit_batch(node, &mut Actions::default());
}
