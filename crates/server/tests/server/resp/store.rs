//! A store in memory of four shards, each the real machine, that can be told to refuse or to be silent.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use tidelock_core::command::{
    ClusterView, HostInfo, HostView, Page, Read, Refusal, ReplicaView, Reply, Request, ShardView, Standing,
    Target, Write,
};
use tidelock_core::control::slot_map::SlotMap;
use tidelock_core::event::{NodeStatus, ShardStatus};
use tidelock_core::limits::EXPIRED_KEYS_MAX;
use tidelock_core::machine::Machine;
use tidelock_core::slots;
use tidelock_core::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term, UnixMillis};
use tidelock_server::store::{Mailbox, Store};
use tidelock_server::watch::Hub;
use uuid::Uuid;

const DATA_SHARDS: u64 = 4;

/// A handle; clones share one store.
#[derive(Clone, Default)]
pub struct RespStore {
    state: Arc<Mutex<State>>,
    /// Nobody watches here.
    hub: Arc<Hub>,
}

#[derive(Default)]
pub struct State {
    machines: Vec<Machine>,
    /// What every request is answered, if set.
    pub refusal: Option<Refusal>,
    /// Commands that were handed over, whatever they hold.
    pub commands: usize,
}

impl RespStore {
    pub fn new() -> RespStore {
        let machines = (1..=DATA_SHARDS).map(|shard| Machine::new(ShardId(shard), 1, DATA_SHARDS)).collect();
        let state = Arc::new(Mutex::new(State { machines, ..State::default() }));
        RespStore { state, hub: Arc::default() }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Store for RespStore {
    async fn submit(&self, request: Request) -> Reply {
        self.state().answer(request)
    }

    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64) {
        let reply = self.state().answer(request);
        mailbox.deliver(tag, reply);
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        slots::shard_of(slots::slot_of(key), DATA_SHARDS)
    }

    fn slot_map(&self) -> Arc<SlotMap> {
        Arc::new(SlotMap::founded(DATA_SHARDS))
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    async fn status(&self) -> NodeStatus {
        let state = self.state();
        let shard = |shard: u64| ShardStatus {
            shard: ShardId(shard),
            replica: ReplicaId(3 * shard + 1),
            leader: Some(NodeId(1)),
            leads: true,
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
            checkpoint: None,
        };
        NodeStatus {
            node: NodeId(1),
            shards: (0..=DATA_SHARDS).map(shard).collect(),
            ..NodeStatus::default()
        }
    }
}

impl State {
    /// What the leaders do at a tick: overdue keys go.
    pub fn expire(&mut self, now: UnixMillis) {
        for (shard, machine) in (1..).map(ShardId).zip(&mut self.machines) {
            machine.apply(LogIndex(1), Write::Expire { shard, now, limit: EXPIRED_KEYS_MAX });
        }
    }

    fn machine(&mut self, shard: ShardId) -> &mut Machine {
        &mut self.machines[shard.0 as usize - 1]
    }

    fn answer(&mut self, request: Request) -> Reply {
        self.commands += 1;
        if let Some(refusal) = self.refusal {
            return Reply::Refused(refusal);
        }
        match request {
            Request::Cluster => Reply::Cluster(cluster()),
            Request::Write(write) => {
                if let Err(refusal) = write.validate() {
                    return Reply::Refused(refusal);
                }
                let shard = match write.target() {
                    Target::Key(key) => slots::shard_of(slots::slot_of(key), DATA_SHARDS),
                    Target::Shard(shard) => shard,
                };
                self.machine(shard).apply(LogIndex(1), write)
            }
            Request::Read { read: read @ Read::List { .. }, .. } => {
                let mut items = Vec::new();
                for machine in &self.machines {
                    let Reply::Page(page) = machine.read(&read) else { panic!("a page") };
                    assert_eq!(page.next, None, "small states only");
                    items.extend(page.items);
                }
                items.sort_by(|one, other| one.key.cmp(&other.key));
                Reply::Page(Page { items, next: None })
            }
            Request::Read { read: Read::Count, .. } => {
                Reply::Count(self.machines.iter().map(Machine::record_count).sum())
            }
            Request::Read { read, .. } => {
                let shard = match &read {
                    Read::Scan { shard, .. } => *shard,
                    Read::Operations(operations) => {
                        let first = operations.iter().next().expect("an operation");
                        slots::shard_of(slots::slot_of(first.key()), DATA_SHARDS)
                    }
                    other => panic!("{other:?} is not asked over this protocol"),
                };
                self.machine(shard).read(&read)
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
            tags: Default::default(),
        },
        created: LogIndex(1),
        updated: LogIndex(1),
        connected: node != 3,
        standing: Standing::Voter,
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
        })
    });
    ClusterView {
        node: NodeId(1),
        hosts: (1..=3).map(host).collect(),
        shards: (0..=DATA_SHARDS).map(shard).collect(),
        replicas: replicas.collect(),
    }
}
