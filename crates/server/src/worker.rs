//! The worker that owns the node: the one thread that drives it and connects it with client
//! connections, peers and the disk.
//!
//! Owns when the core runs. Events are passed to the core as they arrive. One drive follows once
//! every ready task has run and, after more than one event, every task that became ready meanwhile.
//! So whatever arrives in one iteration of the event loop (from 64 connections, two peers and the
//! disk) becomes one raft entry a shard, one log batch and one frame a peer, without any timer.
//!
//! One client's requests do not delay those of others: requests beyond what the node should take at
//! once wait in `turns`, and each drive makes room for the next ones.
//!
//! Each of the other workers passes on the requests of one iteration as a batch, which joins the
//! same drive (see `exchange`).
//!
//! The worker decides nothing about requests. A log failure ends it: the state of the log is then
//! unknown, and a node that cannot keep its promises stops and says why. If the disk temporarily
//! rejects writes or is slow, the worker tells the core and the health checks and continues.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidelock_core::auth::{Authorities, Caller};
use tidelock_core::command::{Consistency, Publication, Refusal, Reply, Request};
use tidelock_core::event::{
    Actions, Contradiction, Event, NodeStatus, OutgoingFrame, SlowRequest, StallReason,
};
use tidelock_core::fairness::Ticket;
use tidelock_core::node::Node;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::spans::{SpanEvent, TraceContext};
use tidelock_core::storage::WalBatch;
use tidelock_core::storage::control_file::KnownHost;
use tidelock_core::storage::group_commit::DiskReport;
use tidelock_core::storage::snapshot::{SnapshotDone, SnapshotTask};
use tidelock_core::storage::wal::WalError;
use tidelock_core::topology::HostEntry;
use tidelock_core::trace::TraceEvent;
use tidelock_core::types::{ClientId, NodeId, ShardId, Token, WalSequence};
use tidelock_core::version::ClusterVersion;
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::access::{AccessPublisher, PublishedAccess};
use crate::audited_writes::AuditedWrites;
use crate::clock::{LeaderClocks, WallClock};
use crate::exchange::{Exchange, WorkerMessage, WorkerRequest};
use crate::leaders::LeaderUrls;
use crate::remote::WorkerLink;
use crate::store::{Mailbox, RequestContext, Store};
use crate::turns::{Turn, TurnGauges, Turns};
use crate::waiting::{Crossing, Waiting};
use crate::watch::WatchRegistry;

/// What `/readyz` reports for a slow disk.
const SLOW: &str = "a write or sync of the log takes longer than the election timeout";

/// Where a worker sends the actions of its node: peers, disk threads, the log of slow requests.
pub trait ActionSinks {
    /// Queues a frame for a peer.
    fn send(&self, frame: OutgoingFrame);

    /// Records a version in the data directory, before everything that is queued for the disk from
    /// now on.
    fn record_version(&self, version: ClusterVersion);

    /// Queues a batch for the log; its result comes back through [`DiskReports`].
    fn persist(&self, batch: WalBatch);

    /// Queues work on snapshot files; its result comes back through [`DiskReports`].
    fn file(&self, task: SnapshotTask);

    /// Passes messages to the subscribers of channels on this node, and empties the list.
    fn deliver(&self, publications: &mut Vec<Publication>);

    /// Logs slow requests, and empties the list.
    fn log_slow(&self, requests: &mut Vec<SlowRequest>);

    /// Logs what happened in the consensus of the shards.
    fn log_trace(&self, events: &mut Vec<TraceEvent>);

    /// Takes what happened to traced requests, and empties the list.
    fn record_spans(&self, events: &mut Vec<SpanEvent>);

    /// Sets the peers to keep connections with; connections with others are closed.
    fn set_peers(&self, peers: Vec<(NodeId, String)>);
}

/// Results of disk work, passed from the disk threads to the worker.
#[derive(Default)]
pub struct DiskReports {
    durable: AtomicU64,
    failure: Mutex<Option<WalError>>,
    /// Why the disk rejects writes now, if it does.
    stall: Mutex<Option<WalError>>,
    slow: AtomicBool,
    snapshots: Mutex<Vec<SnapshotDone>>,
    /// Wakes the worker, for any reason.
    wake: Arc<Notify>,
}

impl DiskReports {
    /// Records a result of the log or a change of the disk's state. Called on the disk thread.
    pub fn report(&self, report: DiskReport) {
        let set = |slot: &Mutex<Option<WalError>>, error| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = error;
        };
        match report {
            DiskReport::Durable(sequence) => self.durable.store(sequence.0, Ordering::Release),
            DiskReport::Stalled(error) => set(&self.stall, Some(error)),
            DiskReport::Recovered { .. } => set(&self.stall, None),
            DiskReport::Failed(error) => set(&self.failure, Some(error)),
            DiskReport::LittleRoom(_) => {}
        }
        self.wake.notify_one();
    }

    /// Records that the disk becomes slow or ceases to be.
    pub fn set_slow(&self, slow: bool) {
        self.slow.store(slow, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Records a finished snapshot task. Called on the snapshot thread.
    pub fn snapshot(&self, done: SnapshotDone) {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        self.wake.notify_one();
    }

    fn take_snapshots(&self) -> Vec<SnapshotDone> {
        std::mem::take(&mut *self.snapshots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why the log takes no commands now: the reason for the core, and a text for people.
    fn stall(&self) -> Option<(StallReason, String)> {
        let refused =
            self.stall.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(WalError::to_string);
        let slow = || self.slow.load(Ordering::Relaxed).then(|| (StallReason::Slow, SLOW.to_owned()));
        refused.map(|text| (StallReason::Refused, text)).or_else(slow)
    }

    fn take_failure(&self) -> Option<WalError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Why a node cannot continue, and must stop.
#[derive(Debug)]
pub enum WorkerFailure {
    /// The log can no longer be written.
    Log(WalError),
    /// The state of a peer and that of this node contradict each other.
    Contradiction(Contradiction),
}

/// A handle to the worker of this thread.
#[derive(Clone)]
pub struct Worker(Rc<WorkerState>, RequestContext);

struct WorkerState {
    node: RefCell<Node>,
    /// Which mailbox waits for which token.
    waiting: Waiting,
    turns: Turns,
    /// The other workers; index 0 is worker 1.
    others: RefCell<Vec<Other>>,
    /// The slot map that was last sent to the other workers.
    slots: RefCell<Arc<SlotMap>>,
    actions: RefCell<Actions>,
    reports: Arc<DiskReports>,
    watch_registry: Arc<WatchRegistry>,
    clocks: LeaderClocks,
    leaders: LeaderUrls,
    access: AccessPublisher,
    /// Set if `--audit-writes` names keys.
    audited_writes: OnceCell<AuditedWrites>,
    durable_seen: Cell<u64>,
    events_since_drive: Cell<u32>,
    /// Why the disk takes no writes, as last reported to the node.
    disk_error: Arc<Mutex<Option<String>>>,
}

/// Another worker, as the owner sees it.
struct Other {
    exchange: Arc<Exchange>,
    /// Messages that are sent to it after this drive.
    messages: Vec<WorkerMessage>,
}

impl Worker {
    /// A worker that owns `node` and receives disk results through `reports`.
    pub fn new(node: Node, reports: Arc<DiskReports>) -> Worker {
        let inner = WorkerState {
            slots: RefCell::new(node.slot_map().clone()),
            access: AccessPublisher::new(node.access(), node.knows_access()),
            node: RefCell::new(node),
            waiting: Waiting::default(),
            turns: Turns::default(),
            others: RefCell::default(),
            actions: RefCell::new(Actions::default()),
            reports,
            watch_registry: Arc::default(),
            clocks: LeaderClocks::default(),
            leaders: LeaderUrls::default(),
            audited_writes: OnceCell::new(),
            durable_seen: Cell::new(0),
            events_since_drive: Cell::new(0),
            disk_error: Arc::default(),
        };
        Worker(Rc::new(inner), RequestContext::default())
    }

    /// Connects one more worker with the node; that worker uses the returned [`WorkerLink`].
    ///
    /// # Panics
    /// While the node is driven.
    pub fn attach(&self) -> WorkerLink {
        let mut others = self.0.others.borrow_mut();
        let exchange = Arc::new(Exchange::new(self.0.reports.wake.clone()));
        others.push(Other { exchange: exchange.clone(), messages: Vec::new() });
        let (slots, watch_registry) = (self.0.slots.borrow().clone(), self.0.watch_registry.beside().into());
        let (clocks, leaders) = (self.0.clocks.clone(), self.0.leaders.clone());
        let access = self.0.access.published().clone();
        WorkerLink { exchange, slots, watch_registry, clocks, leaders, access }
    }

    /// Records the writes of some keys from now on.
    ///
    /// # Panics
    /// When it was called before.
    pub fn audit_writes(&self, writes: AuditedWrites) {
        assert!(self.0.audited_writes.set(writes).is_ok(), "audited writes are set once");
    }

    /// Disconnects all other workers, which notice it.
    pub fn detach_all(&self) {
        self.0.others.borrow_mut().iter().for_each(|other| other.exchange.close());
    }

    /// Passes an event to the node; the drive follows soon. Events that depend on the time come
    /// with the current time.
    pub fn tell(&self, event: Event) {
        let needs_clock = match &event {
            Event::Request { request, .. } => request.needs_clock(),
            Event::Frame { .. } | Event::Tick => true,
            _ => false,
        };
        let mut node = self.0.node.borrow_mut();
        if needs_clock {
            node.handle(Event::Clock(WallClock::default().now()));
        }
        node.handle(event);
        drop(node);
        self.0.events_since_drive.set(self.0.events_since_drive.get() + 1);
        self.0.reports.wake.notify_one();
    }

    /// Gauges of the requests that wait for their turns; kept up to date.
    pub fn turn_gauges(&self) -> Arc<TurnGauges> {
        self.0.turns.gauges()
    }

    /// Counts a tick: requests that have waited for longer than `timeout` are refused.
    pub fn tick_turns(&self, timeout: Duration) {
        for turn in self.0.turns.tick(timeout) {
            self.answer(turn.token, Reply::Refused(Refusal::Overloaded));
        }
        self.0.reports.wake.notify_one();
    }

    /// Submits a request, now or at its client's turn. The drive follows soon, if there is
    /// something to do.
    fn request(&self, token: Token, request: Request) {
        let RequestContext { client, caller, trace } = self.1.clone();
        let turn = Turn { token, caller, request, trace };
        if self.offer(client, turn) || self.0.turns.is_ready() {
            self.0.events_since_drive.set(self.0.events_since_drive.get() + 1);
            self.0.reports.wake.notify_one();
        }
    }

    /// Submits a request if it need not wait. Returns whether the node has taken it.
    fn offer(&self, client: ClientId, turn: Turn) -> bool {
        if let Some(audited) = self.0.audited_writes.get() {
            audited.begin(client, &turn);
        }
        let Some((ticket, turn)) = self.0.turns.offer(client, turn) else { return false };
        self.take(ticket, turn);
        true
    }

    fn take(&self, ticket: Ticket, Turn { token, caller, request, trace }: Turn) {
        self.0.waiting.set_ticket(token.0, ticket);
        let mut node = self.0.node.borrow_mut();
        if request.needs_clock() {
            node.handle(Event::Clock(WallClock::default().now()));
        }
        node.handle(Event::Request { token, caller, request, trace });
    }

    /// Submits the requests whose turn has come.
    fn take_turns(&self) {
        while let Some((ticket, turn)) = self.0.turns.next() {
            self.take(ticket, turn);
        }
    }

    /// Passes a reply to the mailbox that waits for it, on any worker.
    fn answer(&self, token: Token, reply: Reply) {
        if let Some(audited) = self.0.audited_writes.get() {
            audited.end(token, &reply);
        }
        if let Some(Crossing { worker, token, reply }) = self.0.waiting.answer(token.0, reply) {
            self.0.others.borrow_mut()[worker].messages.push(WorkerMessage::Reply(token, reply));
        }
    }

    /// Records that the disk becomes slow or ceases to be.
    pub fn set_disk_slow(&self, slow: bool) {
        self.0.reports.set_slow(slow);
    }

    /// Publishes to all workers where the leaders of the shards are reached, and how far their
    /// clocks are ahead of this node's.
    pub fn show_leaders(&self) {
        let node = self.0.node.borrow();
        for shard in node.slot_map().shards() {
            self.0.clocks.set(shard, node.leader_clock_ahead_ms(shard));
            self.0.leaders.set(shard, node.leader_elsewhere(shard));
        }
    }

    /// Why the disk takes no writes, or is slow; `None` while neither holds; kept up to date.
    pub fn disk_error(&self) -> Arc<Mutex<Option<String>>> {
        self.0.disk_error.clone()
    }

    /// The registry's entry of a node.
    pub fn host_entry(&self, node: NodeId) -> Option<HostEntry> {
        self.0.node.borrow().host_entry(node).cloned()
    }

    /// All hosts in the registry, with their uuids.
    pub fn known_hosts(&self) -> BTreeMap<NodeId, KnownHost> {
        let node = self.0.node.borrow();
        let host = |(node, uuid, address): (NodeId, Uuid, &str)| {
            (node, KnownHost { uuid, peer_address: address.to_owned() })
        };
        node.known_hosts().map(host).collect()
    }

    /// The cluster's CAs and join tokens, as this node has applied them.
    pub fn authorities(&self) -> Arc<Authorities> {
        self.0.node.borrow().authorities().clone()
    }

    /// The newest version of anything that this node holds or sends.
    pub fn recorded_version(&self) -> ClusterVersion {
        self.0.node.borrow().recorded_version()
    }

    /// The answer to a stale read, if local data suffices for it.
    fn answer_at_once(&self, request: &Request) -> Option<Reply> {
        match request {
            Request::Read { read, consistency: Consistency::Stale } => {
                self.0.node.borrow_mut().read_stale(&self.1.caller, read)
            }
            _ => None,
        }
    }

    /// Drives the node until it cannot continue; returns why.
    pub async fn run(&self, sinks: impl ActionSinks) -> WorkerFailure {
        let mut requests = Vec::new();
        loop {
            self.0.reports.wake.notified().await;
            self.gather().await;
            if let Some(failure) = self.0.reports.take_failure() {
                return WorkerFailure::Log(failure);
            }
            let durable = self.0.reports.durable.load(Ordering::Acquire);
            if durable > self.0.durable_seen.replace(durable) {
                self.0.node.borrow_mut().handle(Event::Durable(WalSequence(durable)));
            }
            self.report_disk();
            for done in self.0.reports.take_snapshots() {
                self.0.node.borrow_mut().handle(Event::Snapshot(done));
            }
            self.take_requests(&mut requests);
            self.take_turns();
            let contradiction = self.drive(&sinks);
            self.send_messages();
            if let Some(contradiction) = contradiction {
                return WorkerFailure::Contradiction(contradiction);
            }
            if self.0.turns.is_ready() {
                // Take the next turns after all ready tasks have run: their requests take part.
                self.0.events_since_drive.set(2);
                self.0.reports.wake.notify_one();
            }
        }
    }

    /// Takes the requests that other workers passed on.
    fn take_requests(&self, requests: &mut Vec<WorkerRequest>) {
        for (worker, other) in self.0.others.borrow().iter().enumerate() {
            other.exchange.requests().take(requests);
            for request in requests.drain(..) {
                match request {
                    WorkerRequest::Request { context, token, request } => {
                        let token = Token(self.0.waiting.at_worker(worker, token));
                        let RequestContext { client, caller, trace } = context;
                        self.offer(client, Turn { token, caller, request, trace });
                    }
                    // The requester may be gone.
                    WorkerRequest::Status(sender) => drop(sender.send(self.0.node.borrow().status())),
                }
            }
        }
    }

    /// Sends the other workers what the drive produced for them.
    fn send_messages(&self) {
        let mut others = self.0.others.borrow_mut();
        if others.is_empty() {
            return;
        }
        let slots = self.0.node.borrow().slot_map().clone();
        let is_news = !Arc::ptr_eq(&self.0.slots.borrow(), &slots);
        for other in &mut *others {
            if is_news {
                other.messages.push(WorkerMessage::Slots(slots.clone()));
            }
            if !other.messages.is_empty() {
                other.exchange.messages().put(&mut other.messages);
            }
        }
        if is_news {
            *self.0.slots.borrow_mut() = slots;
        }
    }

    /// Adds a message to the next batch of each other worker.
    fn broadcast(&self, message: impl Fn() -> WorkerMessage) {
        self.0.others.borrow_mut().iter_mut().for_each(|other| other.messages.push(message()));
    }

    /// Under load, yields once, so that newly readable sockets join this batch. A system call that
    /// does not block costs little beside a round of messages and a sync for the first few
    /// requests.
    async fn gather(&self) {
        if self.0.events_since_drive.get() > 1 {
            tokio::task::yield_now().await;
            // The drive that follows also handles what has woken us meanwhile.
            pin!(self.0.reports.wake.notified()).enable();
        }
        self.0.events_since_drive.set(0);
    }

    /// Tells the node when the disk begins or ceases to reject writes or to be slow.
    fn report_disk(&self) {
        let stall = self.0.reports.stall();
        let mut reported = self.0.disk_error.lock().unwrap_or_else(PoisonError::into_inner);
        if *reported == stall.as_ref().map(|(_, text)| text.clone()) {
            return;
        }
        let event = stall.as_ref().map_or(Event::DiskRecovered, |(reason, _)| Event::DiskStalled(*reason));
        self.0.node.borrow_mut().handle(event);
        *reported = stall.map(|(_, text)| text);
    }

    /// Drives the node once. Returns why it must stop, if it must.
    fn drive(&self, sinks: &impl ActionSinks) -> Option<Contradiction> {
        let mut actions = self.0.actions.borrow_mut();
        self.0.node.borrow_mut().drive(&mut actions);
        // Before the replies: a change of permissions that is answered is in force on this node.
        {
            let node = self.0.node.borrow();
            self.0.access.publish(node.access(), node.knows_access());
        }
        if let Some(version) = actions.version.take() {
            sinks.record_version(version);
        }
        // Disk work first: it takes longest.
        if let Some(batch) = actions.wal.take() {
            sinks.persist(batch);
        }
        for task in actions.snapshots.drain(..) {
            sinks.file(task);
        }
        // A connection and a link each write when their task runs, and tasks run in the order in
        // which they are woken.
        if actions.replies_first {
            self.pass_on(sinks, &mut actions);
        }
        for frame in actions.frames.drain(..) {
            sinks.send(frame);
        }
        // After the frames: the last frame to a removed peer tells it that it was removed.
        if let Some(peers) = actions.peers.take() {
            sinks.set_peers(peers);
        }
        self.pass_on(sinks, &mut actions);
        if !actions.slow.is_empty() {
            sinks.log_slow(&mut actions.slow);
        }
        if !actions.trace.is_empty() {
            sinks.log_trace(&mut actions.trace);
        }
        if !actions.spans.is_empty() {
            sinks.record_spans(&mut actions.spans);
        }
        // After the replies: the client that made the change does not wait until ten thousand
        // watchers have been checked.
        for news in actions.config.drain(..) {
            self.0.watch_registry.notify(&news);
            self.broadcast(|| WorkerMessage::News(news.clone()));
        }
        for report in actions.keys.drain(..).map(Arc::new) {
            self.0.watch_registry.notify_keys(&report);
            self.broadcast(|| WorkerMessage::Keys(report.clone()));
            if !self.0.watch_registry.watches_keys() {
                self.0.node.borrow_mut().handle(Event::KeysUnwatched);
            }
        }
        if !actions.remote_slots.is_empty() {
            self.0.watch_registry.notify_slots(&actions.remote_slots);
            self.broadcast(|| WorkerMessage::RemoteSlots(actions.remote_slots.clone()));
            actions.remote_slots.clear();
        }
        if !actions.leaderless_slots.is_empty() {
            self.0.watch_registry.invalidate_slots(&actions.leaderless_slots);
            self.broadcast(|| WorkerMessage::LeaderlessSlots(actions.leaderless_slots.clone()));
            actions.leaderless_slots.clear();
        }
        actions.contradiction.take()
    }

    /// Passes on the messages of channels and the replies of a drive.
    fn pass_on(&self, sinks: &impl ActionSinks, actions: &mut Actions) {
        // Before the replies: a client that publishes may rely on that this node has its message.
        sinks.deliver(&mut actions.publications);
        for (token, reply) in actions.replies.drain(..) {
            self.0.turns.answered(self.0.waiting.ticket(token.0));
            self.answer(token, reply);
        }
    }
}

impl Store for Worker {
    fn for_client(&self, client: ClientId) -> Worker {
        Worker(self.0.clone(), RequestContext { client, ..self.1.clone() })
    }

    fn for_caller(&self, caller: Caller) -> Worker {
        Worker(self.0.clone(), RequestContext { caller, ..self.1.clone() })
    }

    fn for_trace(&self, context: TraceContext) -> Worker {
        Worker(self.0.clone(), RequestContext { trace: Some(context), ..self.1.clone() })
    }

    fn submit(&self, request: Request) -> impl Future<Output = Reply> {
        let pending = match self.answer_at_once(&request) {
            Some(reply) => SubmittedRequest::Answered(reply),
            None => {
                let (number, receiver) = self.0.waiting.in_task();
                self.request(Token(number), request);
                SubmittedRequest::Waiting(receiver)
            }
        };
        async {
            match pending {
                SubmittedRequest::Answered(reply) => reply,
                // The worker drops a sender only if the whole node stops before the reply.
                SubmittedRequest::Waiting(receiver) => {
                    receiver.await.unwrap_or(Reply::Refused(Refusal::UnknownOutcome))
                }
            }
        }
    }

    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64) {
        match self.answer_at_once(&request) {
            Some(reply) => mailbox.deliver(tag, reply),
            None => {
                self.request(Token(self.0.waiting.at_mailbox(mailbox, tag)), request);
            }
        }
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        self.0.node.borrow().shard_of(key)
    }

    fn slot_map(&self) -> Arc<SlotMap> {
        self.0.node.borrow().slot_map().clone()
    }

    fn leader_ahead_ms(&self, shard: ShardId) -> i64 {
        self.0.clocks.ahead_ms(shard)
    }

    fn leaders(&self) -> &LeaderUrls {
        &self.0.leaders
    }

    fn access(&self) -> &Arc<PublishedAccess> {
        self.0.access.published()
    }

    fn watch_registry(&self) -> &Arc<WatchRegistry> {
        &self.0.watch_registry
    }

    fn status(&self) -> impl Future<Output = NodeStatus> {
        ready(self.0.node.borrow().status())
    }
}

enum SubmittedRequest {
    Answered(Reply),
    Waiting(oneshot::Receiver<Reply>),
}
