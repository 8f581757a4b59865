//! A store in memory of four shards, each the real state machine, which can be set to refuse or to
//! be silent.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use tidelock_core::auth::Caller;
use tidelock_core::command::migration::{Move, MoveReply, MoveStep};
use tidelock_core::command::{
    CheckedWrite, ClusterView, Flush, FlushReply, HostInfo, HostRole, HostView, KeyChanges, NodeReply, Page,
    Read, ReadReply, Refusal, ReplicaView, Reply, Request, ShardView, VersionView, Write, WriteReply,
};
use tidelock_core::control::registry::Registry;
use tidelock_core::event::{KeyReport, NodeStatus, ShardStatus};
use tidelock_core::founding::Founding;
use tidelock_core::limits::{EXPIRED_KEYS_MAX, MOVE_KEYS_PER_STEP_MAX};
use tidelock_core::machine::{Machine, ReportedChanges};
use tidelock_core::slots;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::slots::slot_revisions::SlotRevisions;
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::topology::Migration;
use tidelock_core::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term, UnixMillis};
use tidelock_server::access::PublishedAccess;
use tidelock_server::leaders::LeaderUrls;
use tidelock_server::resp::pub_sub::PubSub;
use tidelock_server::store::{Mailbox, Store};
use tidelock_server::watch::WatchRegistry;
use uuid::Uuid;

use super::harness::NOW;
use crate::store::reply;

const DATA_SHARDS: u64 = 4;

const DATA: &str = "a data shard";

/// A handle; clones share one store.
#[derive(Clone)]
pub struct RespStore {
    state: Arc<Mutex<State>>,
    watch_registry: Arc<WatchRegistry>,
    access: Arc<PublishedAccess>,
    pub leaders: LeaderUrls,
    pub pub_sub: Arc<PubSub>,
}

pub struct State {
    machines: Vec<Machine>,
    /// Owns the slot map.
    registry: Registry,
    /// The refusal of every request, if set.
    pub refusal: Option<Refusal>,
    /// Whether only the first shard removes its keys.
    pub is_flush_incomplete: bool,
    /// By shard: the last change of which watchers were notified.
    reported: Vec<ReportedChanges>,
    /// Number of submitted commands.
    pub commands: usize,
    /// By how many milliseconds the clocks of the shards' leaders are ahead of the server's.
    pub leader_ahead_ms: i64,
}

impl RespStore {
    pub fn new() -> RespStore {
        let machines: Vec<Machine> = (1..=DATA_SHARDS)
            .map(|shard| Machine::new(ShardId(shard), &Founding::new(1, DATA_SHARDS)))
            .collect();
        let reported = machines.iter().map(|machine| machine.data().expect(DATA).reported()).collect();
        let registry = Registry::founded(&Founding::new(1, DATA_SHARDS));
        let state = Arc::new(Mutex::new(State {
            machines,
            registry,
            reported,
            refusal: None,
            is_flush_incomplete: false,
            commands: 0,
            leader_ahead_ms: 0,
        }));
        let leaders = LeaderUrls::default();
        let (watch_registry, access, pub_sub) = Default::default();
        RespStore { state, watch_registry, access, leaders, pub_sub }
    }

    /// Answers a request. What is published reaches its subscribers first, as on a node.
    fn answer(&self, request: Request) -> Reply {
        match request {
            Request::Publish(publication) if self.state().refusal.is_none() => {
                self.pub_sub.deliver(&publication);
                Reply::Node(NodeReply::Published)
            }
            request => self.state().answer(request),
        }
    }

    /// Notifies the watchers of the keys that have changed since the last call, as a node does.
    pub fn report(&self) {
        for report in self.state().take_reports() {
            self.watch_registry.notify_keys(&report);
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Store for RespStore {
    fn for_caller(&self, _: Caller) -> RespStore {
        self.clone()
    }

    async fn submit(&self, request: Request) -> Reply {
        let reply = self.answer(request);
        self.report();
        reply
    }

    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64) {
        let reply = self.answer(request);
        mailbox.deliver(tag, reply);
        self.report();
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        self.state().shard_of(key)
    }

    fn slot_map(&self) -> Arc<SlotMap> {
        Arc::new(self.state().registry.view().slots)
    }

    fn leader_ahead_ms(&self, _: ShardId) -> i64 {
        self.state().leader_ahead_ms
    }

    fn leaders(&self) -> &LeaderUrls {
        &self.leaders
    }

    fn access(&self) -> &Arc<PublishedAccess> {
        &self.access
    }

    fn watch_registry(&self) -> &Arc<WatchRegistry> {
        &self.watch_registry
    }

    async fn status(&self) -> NodeStatus {
        let state = self.state();
        let shard = |shard: u64| ShardStatus {
            shard: ShardId(shard),
            replica: ReplicaId(3 * shard + 1),
            leader: Some(NodeId(1)),
            // As in `cluster`.
            leads: [0, 2].contains(&shard),
            is_term_durable: true,
            term: Term(3),
            committed: LogIndex(9),
            applied: LogIndex(9),
            last: LogIndex(9),
            log_begin: LogIndex(0),
            keys: shard.checked_sub(1).map_or(3, |index| state.machines[index as usize].record_count()),
            log_bytes: 0,
            votes: true,
            snapshot: None,
            snapshot_bytes: 0,
            makes_snapshot: false,
            last_move: MigrationId(0),
            is_moving: false,
            slots: None,
            checkpoint: None,
            diverged: false,
        };
        NodeStatus {
            node: NodeId(1),
            shards: (0..=DATA_SHARDS).map(shard).collect(),
            ..NodeStatus::default()
        }
    }
}

impl State {
    /// Runs the leaders' expiry: overdue keys are deleted.
    pub fn expire(&mut self, now: UnixMillis) {
        for (shard, machine) in (1..).map(ShardId).zip(&mut self.machines) {
            machine
                .apply(LogIndex(1), Write::Expire { shard, now, limit: EXPIRED_KEYS_MAX, leases: None })
                .expect("applied");
        }
    }

    /// Moves slots to another shard, by the steps of the giver's leader.
    pub fn move_slots(&mut self, slots: &SlotSet, to: ShardId) {
        self.registry.move_slots(LogIndex(1), slots, to);
        let migrations = self.registry.migrations().clone();
        for (migration, Migration { from, slots, .. }) in migrations {
            let founding = |shard| SlotMap::founded(DATA_SHARDS).share(shard);
            let (attempt, limit) = (1, MOVE_KEYS_PER_STEP_MAX);
            let open = MoveStep::Open { attempt, slots: slots.clone(), founding: founding(to), limit };
            self.step((migration, to), open);
            self.machine(from).data_mut().expect(DATA).begin_outgoing(&slots);
            let mut sequence = 0;
            loop {
                let part = self.machine(from).data_mut().expect(DATA).next_part((attempt, sequence), limit);
                if !part.is_empty() {
                    self.step((migration, to), MoveStep::Import(part));
                    sequence += 1;
                } else if self.machine(from).data_mut().expect(DATA).outgoing_rest().is_some() {
                    break;
                }
            }
            let rows = self
                .machine(from)
                .data_mut()
                .expect(DATA)
                .outgoing_rest()
                .expect("the walk is complete")
                .rows;
            self.step((migration, from), MoveStep::Freeze { slots, founding: founding(from) });
            let own = self.machine(from).data_mut().expect(DATA).own_step(attempt, sequence);
            assert_eq!(self.step((migration, to), own), MoveReply::Owned);
            self.registry.finish_migration(LogIndex(1), migration);
            self.step((migration, from), MoveStep::Release { rows });
            while self.step((migration, from), MoveStep::Purge { limit }) == MoveReply::Again {}
            self.machine(from).data_mut().expect(DATA).abandon_outgoing();
        }
    }

    fn take_reports(&mut self) -> Vec<KeyReport> {
        let mut reports = Vec::new();
        for (shard, (machine, before)) in (1..).map(ShardId).zip(self.machines.iter().zip(&mut self.reported))
        {
            if let Some((keys, now)) = machine.data().expect(DATA).reportable(*before) {
                *before = now;
                let slots = self.registry.view().slots.share(shard);
                reports.push(KeyReport { slots, revision: now.revision(), keys });
            }
        }
        reports
    }

    /// The current time by the leaders' clocks.
    fn leader_time(&self) -> UnixMillis {
        UnixMillis(NOW.load(Ordering::Relaxed).saturating_add_signed(self.leader_ahead_ms))
    }

    fn step(&mut self, (migration, shard): (MigrationId, ShardId), step: MoveStep) -> MoveReply {
        let reply = self.machine(shard).apply(LogIndex(1), Write::from(Move { shard, migration, step }));
        let Ok(WriteReply::Move(reply)) = reply else { panic!("{reply:?}") };
        assert_ne!(reply, MoveReply::Outdated);
        reply
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        self.registry.view().slots.shard_of(slots::slot_of(key))
    }

    /// The shard of several keys, if they are all in one now.
    fn machine(&mut self, shard: ShardId) -> &mut Machine {
        &mut self.machines[shard.0 as usize - 1]
    }

    fn answer(&mut self, request: Request) -> Reply {
        self.commands += 1;
        if let Some(refusal) = self.refusal.clone() {
            return Reply::Refused(refusal);
        }
        match request {
            Request::Cluster => Reply::Node(NodeReply::Cluster(cluster().into())),
            Request::Write(Write::Registry(_)) => Reply::Write(WriteReply::HostChanged),
            Request::Write(write) => match CheckedWrite::new(write, |key| self.shard_of(key)) {
                Ok(checked) => {
                    let write = checked.write().at(self.leader_time());
                    reply(self.machine(checked.shard()).apply(LogIndex(1), write), Reply::Write)
                }
                Err(refusal) => Reply::Refused(refusal.into()),
            },
            Request::Flush => {
                for (shard, machine) in (1..).map(ShardId).zip(&mut self.machines) {
                    let flush = Flush { shard, slots: None, after: None };
                    machine.apply(LogIndex(1), Write::Flush(Box::new(flush))).expect("applied");
                    if self.is_flush_incomplete {
                        let cause = Refusal::NoLeader;
                        return Reply::Flushed(FlushReply::Incomplete { slots: 4_096, cause });
                    }
                }
                Reply::Flushed(FlushReply::Complete(SlotRevisions::default()))
            }
            Request::Read { read: read @ Read::List { .. }, .. } => {
                let mut items = Vec::new();
                for machine in &self.machines {
                    let Ok(ReadReply::Page(page)) = machine.read(&read).map(|answer| answer.reply) else {
                        panic!("a page")
                    };
                    assert_eq!(page.next, None, "small states only");
                    items.extend(page.items);
                }
                items.sort_by(|one, other| one.key.cmp(&other.key));
                Reply::Read(ReadReply::Page(Page { items, next: None }))
            }
            Request::Read { read: Read::Count, .. } => {
                Reply::Read(ReadReply::Count(self.machines.iter().map(Machine::record_count).sum()))
            }
            Request::Read { read, .. } => {
                let shard = match &read {
                    // Only the reports that it begins are wanted.
                    Read::Changes { .. } => {
                        return Reply::Read(ReadReply::Changes(KeyChanges::default()));
                    }
                    Read::Scan { version, .. } if *version != self.registry.view().slots.version => {
                        return Reply::SlotsMoved;
                    }
                    Read::Scan { shard, .. } => *shard,
                    Read::Get { key } => self.shard_of(key),
                    Read::Operations { operations, .. } => {
                        let shards: BTreeSet<ShardId> =
                            operations.iter().map(|operation| self.shard_of(operation.key())).collect();
                        match shards.first() {
                            Some(shard) if shards.len() == 1 => *shard,
                            _ => return Reply::Refused(Refusal::CrossShard),
                        }
                    }
                    other => panic!("{other:?} is not asked over this protocol"),
                };
                reply(self.machine(shard).read(&read), |answer| Reply::Read(answer.reply))
            }
            other => panic!("{other:?} is not asked over this protocol"),
        }
    }
}

fn cluster() -> ClusterView {
    let host = |node: u64| HostView {
        info: HostInfo {
            node: NodeId(node),
            uuid: Uuid::from_u128(u128::from(node)),
            peer_address: format!("10.0.0.{node}:9001"),
            http_address: format!("10.0.0.{node}:8001"),
            resp_address: if node == 3 { "0.0.0.0:7003".into() } else { format!("10.0.0.{node}:700{node}") },
            resp_cluster_address: if node == 3 {
                "0.0.0.0:7103".into()
            } else {
                format!("10.0.0.{node}:710{node}")
            },
            tags: Default::default(),
            release: tidelock_core::version::Release::default(),
        },
        created: LogIndex(1),
        updated: LogIndex(1),
        connected: node != 3,
        disk_stalled: false,
        clock: None,
        standing: HostRole::Voter,
        draining: false,
        dead: false,
    };
    let shard = |shard: u64| ShardView {
        shard: ShardId(shard),
        name: format!("shard-{shard}"),
        kind: if shard == 0 { "registry" } else { "kv" },
        leader: (shard != 4).then_some(NodeId(1 + shard % 2)),
        term: Term(shard),
        slots: 4096,
    };
    let replicas = (0..=DATA_SHARDS).flat_map(|shard| {
        (1..=3).map(move |node| ReplicaView {
            replica: ReplicaId(shard * 3 + node),
            shard: ShardId(shard),
            node: NodeId(node),
            voter: true,
            applied: Some(LogIndex(9)),
            checkpoint: None,
            diverged: false,
        })
    });
    ClusterView {
        version: VersionView::default(),
        node: NodeId(1),
        has_default: false,
        hosts: (1..=3).map(host).collect(),
        shards: (0..=DATA_SHARDS).map(shard).collect(),
        replicas: replicas.collect(),
    }
}
