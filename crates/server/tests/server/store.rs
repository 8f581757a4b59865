//! A store in memory with the semantics of the real one, which can be set to refuse or to wait.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

use bytes::Bytes;
use tidelock_core::auth::Caller;
use tidelock_core::command::{
    ClusterView, DivisionBlocker, DivisionCause, DivisionView, HotKey, HotSlotMove, HotSlotMoveView,
    LeaderLoad, LeadershipTransfer, LoadView, NodeReply, Refusal, RegistryWrite, Reply, Request, ShardError,
    ShardLoad, VoteExchange, Write, WriteReply,
};
use tidelock_core::control::placement;
use tidelock_core::control::registry::Registry;
use tidelock_core::event::NodeStatus;
use tidelock_core::founding::Founding;
use tidelock_core::limits::EXPIRED_KEYS_MAX;
use tidelock_core::machine::Machine;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::types::{LogIndex, MigrationId, NodeId, ShardId, UnixMillis};
use tidelock_server::access::PublishedAccess;
use tidelock_server::leaders::LeaderUrls;
use tidelock_server::store::{Mailbox, Store};
use tidelock_server::watch::WatchRegistry;
use tokio::sync::watch;

/// A handle; clones share one store.
#[derive(Clone)]
pub struct FakeStore {
    state: Arc<Mutex<State>>,
    open: watch::Sender<bool>,
    watch_registry: Arc<WatchRegistry>,
    access: Arc<PublishedAccess>,
    pub leaders: LeaderUrls,
}

pub struct State {
    /// The real state machine, of one shard.
    machine: Machine,
    revision: u64,
    /// The refusal of every request, if set.
    pub refusal: Option<Refusal>,
    pub status: NodeStatus,
    pub cluster: ClusterView,
    /// By how many milliseconds the clock of the shard's leader is ahead of the server's.
    pub leader_ahead_ms: i64,
    /// The wanted roles of hosts.
    pub registry: Registry,
    /// Receives a message for each request that arrives while the store is held.
    held_requests: Option<mpsc::Sender<()>>,
}

impl FakeStore {
    pub fn new() -> FakeStore {
        let state = State {
            machine: Machine::new(SHARD, &Founding::new(1, 1)),
            revision: 0,
            refusal: None,
            status: NodeStatus::default(),
            cluster: ClusterView::default(),
            leader_ahead_ms: 0,
            registry: Registry::default(),
            held_requests: None,
        };
        FakeStore {
            state: Arc::new(Mutex::new(state)),
            open: watch::Sender::new(true),
            watch_registry: Arc::default(),
            access: Arc::default(),
            leaders: LeaderUrls::default(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Number of watchers.
    pub fn watcher_count(&self) -> usize {
        self.watch_registry.count()
    }

    /// Makes requests wait; sends a message for each that arrives.
    pub fn hold(&self) -> mpsc::Receiver<()> {
        let (sender, receiver) = mpsc::channel();
        self.state().held_requests = Some(sender);
        self.open.send_replace(false);
        receiver
    }

    /// Answers the waiting requests.
    pub fn release(&self) {
        self.open.send_replace(true);
    }
}

impl Store for FakeStore {
    fn for_caller(&self, _: Caller) -> FakeStore {
        self.clone()
    }

    async fn submit(&self, request: Request) -> Reply {
        let mut open = self.open.subscribe();
        let held = !*open.borrow();
        if let Some(held_requests) = &self.state().held_requests
            && held
        {
            // The receiver may be gone.
            let _ = held_requests.send(());
        }
        open.wait_for(|open| *open).await.unwrap();
        let reply = self.state().answer(request);
        let news = self.state().machine.take_updates();
        news.iter().for_each(|news| self.watch_registry.notify(news));
        reply
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

    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64) {
        mailbox.deliver(tag, self.state().answer(request));
    }

    fn shard_of(&self, _: &[u8]) -> ShardId {
        SHARD
    }

    fn slot_map(&self) -> Arc<SlotMap> {
        Arc::new(SlotMap::founded(1))
    }

    fn leader_ahead_ms(&self, _: ShardId) -> i64 {
        self.state().leader_ahead_ms
    }

    async fn status(&self) -> NodeStatus {
        self.state().status.clone()
    }
}

/// The constant time of the server's clock.
pub const NOW: UnixMillis = UnixMillis(1_795_219_200_000);

/// The only shard.
/// A load with as many keys as there are up to `most`.
fn load(most: usize) -> LoadView {
    let load = ShardLoad { reads: 1_000, writes: 20, bytes_written: 640 };
    let hot = |key: &'static [u8], requests| HotKey { key: Bytes::from_static(key), requests, error: 64 };
    let keys = [hot(b"user:7", 640), hot(b"\xff", 128)].into_iter().take(most).collect();
    let (node, prefixes) = (NodeId(1), vec![hot(b"user:", 704)]);
    let division = DivisionView {
        shards: 1,
        wanted: 2,
        cause: Some(DivisionCause::Hosts),
        spanning: 3,
        blocker: Some(DivisionBlocker::Spanning(3)),
    };
    let leader_load = |leads, requests| LeaderLoad { leads, requests };
    let leadership_transfer = LeadershipTransfer {
        shard: SHARD,
        from: NodeId(1),
        from_load: leader_load(3, 900),
        to: NodeId(2),
        to_load: leader_load(1, 0),
    };
    let slot_move = HotSlotMove {
        from: SHARD,
        from_operations: 9_000,
        to: ShardId(2),
        to_operations: 1_000,
        slots: SlotSet::from(0..64),
        operations: 4_000,
    };
    let vote_exchange = VoteExchange {
        from: NodeId(1),
        from_requests: 9_000,
        given: SHARD,
        to: NodeId(2),
        to_requests: 500,
        returned: Some(ShardId(2)),
    };
    LoadView {
        node,
        window_ms: 45_000,
        shards: vec![(SHARD, load)],
        keys,
        prefixes,
        spanning_transactions: 2,
        division: Some(division),
        leadership_transfer: Some(leadership_transfer),
        slot_move: Some(HotSlotMoveView { next: slot_move, blocker: None }),
        vote_exchange: Some(vote_exchange),
    }
}

/// Serves every key.
pub const SHARD: ShardId = ShardId(1);

impl State {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.machine.record_count() as usize
    }

    fn answer(&mut self, request: Request) -> Reply {
        if let Some(refusal) = self.refusal.clone() {
            return Reply::Refused(refusal);
        }
        match request {
            Request::Write(write) => self.write(write),
            Request::Read { read, .. } => reply(self.machine.read(&read), |answer| Reply::Read(answer.reply)),
            Request::Cluster => Reply::Node(NodeReply::Cluster(self.cluster.clone().into())),
            Request::Load { most } => Reply::Node(NodeReply::Load(load(most).into())),
            Request::Registry => Reply::Node(NodeReply::Registry(self.registry.view().into())),
            Request::Explain { shard } => {
                let unknown = Reply::Refused(Refusal::invalid("there is no such shard"));
                let explained = |explanation| Reply::Node(NodeReply::Explained(explanation));
                placement::explain(&self.registry, shard).map_or(unknown, explained)
            }
            Request::Access => Reply::Node(NodeReply::Access(self.registry.access().clone())),
            Request::Authorities => Reply::Node(NodeReply::Authorities(self.registry.authorities().clone())),
            Request::Audit { before, most } => {
                Reply::Node(NodeReply::Audit(self.registry.audit().page(before, most)))
            }
            Request::SnapshotHere => Reply::Node(NodeReply::Snapshots(vec![])),
            Request::Flush => panic!("no route removes all keys"),
            Request::Publish(_) => panic!("no route publishes a message"),
            Request::Transfer { shard, to } => {
                match self.cluster.shards.iter_mut().find(|view| view.shard == shard) {
                    Some(view) => {
                        view.leader = Some(to);
                        Reply::Node(NodeReply::Asked)
                    }
                    None => Reply::Refused(Refusal::invalid("there is no such shard")),
                }
            }
        }
    }

    /// Applies what a leader proposes so much later for keys and leases that have ended by then.
    pub fn expire(&mut self, later_ms: u64) {
        let (shard, now) = (SHARD, UnixMillis(NOW.0 + later_ms));
        self.write(Write::Expire { shard, now, limit: EXPIRED_KEYS_MAX, leases: None });
    }

    /// Completes all slot moves.
    pub fn finish_moves(&mut self) {
        let moves: Vec<MigrationId> = self.registry.migrations().keys().copied().collect();
        for migration in moves {
            self.write(RegistryWrite::FinishMigration { migration }.into());
        }
    }

    fn write(&mut self, write: Write) -> Reply {
        if let Err(refusal) = write.validate() {
            return Reply::Refused(refusal.into());
        }
        let applied = match write {
            Write::Checkpoint { shard } => Ok(WriteReply::Checkpointed { index: LogIndex(100 + shard.0) }),
            Write::Registry(write) => {
                self.revision += 1;
                Ok(self.registry.apply(LogIndex(self.revision), *write))
            }
            write => {
                let now = UnixMillis(NOW.0.saturating_add_signed(self.leader_ahead_ms));
                self.machine.apply(LogIndex(1), write.at(now))
            }
        };
        reply(applied, Reply::Write)
    }
}

/// The reply of a store to a shard's answer.
pub fn reply<A>(answer: Result<A, ShardError>, of: impl FnOnce(A) -> Reply) -> Reply {
    match answer {
        Ok(answer) => of(answer),
        Err(ShardError::Refused(refusal)) => Reply::Refused(refusal.into()),
        Err(ShardError::NotHere) => panic!("the shard does not own the key"),
    }
}
