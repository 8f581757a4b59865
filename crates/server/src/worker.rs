//! The worker: the one thread that owns the node, and the hand-over between it, connections, peers and the disk.
//!
//! Owns when the core runs: events are handed to it as they come, and one drive follows once every task that was
//! ready has run and, if there was more than one event, every task that became ready meanwhile. So whatever arrived in
//! one turn of the event loop (from 64 connections, two peers and the disk) becomes one raft entry a shard, one log batch
//! and one frame a peer, without any timer.
//!
//! What one client asks does not decide what others wait for: requests that the node should not take yet wait for their
//! turn in `turns`, and each drive makes room for the next ones.
//!
//! Other workers, where there are any, hand over what one turn of theirs gathered, which joins the same drive (see `exchange`).
//!
//! It decides nothing about requests. A log that failed ends it: what its state is then, nobody knows, and a node that
//! cannot keep its promise stops and says why. That the disk takes no writes for a while, or is slow, the core and the health
//! checks are told, and it goes on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidelock_core::command::{Consistency, Refusal, Reply, Request};
use tidelock_core::control::registry::Seat;
use tidelock_core::control::slot_map::SlotMap;
use tidelock_core::event::{
    Actions, Contradiction, Event, NodeStatus, OutgoingFrame, SlowRequest, StallReason,
};
use tidelock_core::fairness::Ticket;
use tidelock_core::node::Node;
use tidelock_core::storage::WalBatch;
use tidelock_core::storage::control_file::KnownHost;
use tidelock_core::storage::snapshot::{SnapshotDone, SnapshotTask};
use tidelock_core::storage::wal::WalError;
use tidelock_core::types::{ClientId, NodeId, ShardId, Token, WalSequence};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::clock::{LeaderClocks, WallClock};
use crate::disk::DiskReport;
use crate::exchange::{Ask, Exchange, Word};
use crate::remote::Link;
use crate::store::{Mailbox, Store};
use crate::turns::{Turn, TurnGauges, Turns};
use crate::waiting::{Crossing, Waiting};
use crate::watch::Hub;

/// What `/readyz` says of a slow disk.
const SLOW: &str = "a write or sync of the log takes longer than the election timeout";

/// Where a worker's actions go.
pub trait Outlets {
    /// Queues a frame for a peer.
    fn send(&self, frame: OutgoingFrame);

    /// Queues a batch for the log; word of it comes back through [`DiskReports`].
    fn persist(&self, batch: WalBatch);

    /// Queues work on snapshot files; word of it comes back through [`DiskReports`].
    fn file(&self, task: SnapshotTask);

    /// Logs requests that took long.
    fn log_slow(&self, requests: &mut Vec<SlowRequest>);

    /// Keeps connections with these peers from now on, and with no others.
    fn set_peers(&self, peers: Vec<(NodeId, String)>);
}

/// How the threads of the disk tell the worker what became of its work.
#[derive(Default)]
pub struct DiskReports {
    durable: AtomicU64,
    failure: Mutex<Option<WalError>>,
    /// Why the disk takes no writes now, if it does not.
    stall: Mutex<Option<WalError>>,
    /// Whether the disk is slow.
    slow: AtomicBool,
    snapshots: Mutex<Vec<SnapshotDone>>,
    /// What the worker waits on, for whatever reason.
    wake: Arc<Notify>,
}

impl DiskReports {
    /// What became of the log's batches, and how the disk is. Called on the disk thread.
    pub fn report(&self, report: DiskReport) {
        let set = |slot: &Mutex<Option<WalError>>, error| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = error;
        };
        match report {
            DiskReport::Durable(sequence) => self.durable.store(sequence.0, Ordering::Release),
            DiskReport::Stalled(error) => set(&self.stall, Some(error)),
            DiskReport::Recovered => set(&self.stall, None),
            DiskReport::Failed(error) => set(&self.failure, Some(error)),
        }
        self.wake.notify_one();
    }

    /// The disk begins or ceases to be slow.
    pub fn set_slow(&self, slow: bool) {
        self.slow.store(slow, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// A task on snapshot files is done. Called on the thread that does them.
    pub fn snapshot(&self, done: SnapshotDone) {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        self.wake.notify_one();
    }

    fn take_snapshots(&self) -> Vec<SnapshotDone> {
        std::mem::take(&mut *self.snapshots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why the log takes no commands now, in the core's words and for people.
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

/// Why a worker's node cannot go on.
#[derive(Debug)]
pub enum WorkerFailure {
    /// The log can no longer be written.
    Log(WalError),
    /// A peer's state and that of this node exclude each other.
    Contradiction(Contradiction),
}

/// A handle to the worker of this thread.
#[derive(Clone)]
pub struct Worker(Rc<Inner>, ClientId);

struct Inner {
    node: RefCell<Node>,
    /// Who waits for which token.
    waiting: Waiting,
    turns: Turns,
    /// The other workers, by their numbers less one.
    others: RefCell<Vec<Other>>,
    /// Which slots the other workers believe in.
    slots: RefCell<Arc<SlotMap>>,
    actions: RefCell<Actions>,
    reports: Arc<DiskReports>,
    hub: Arc<Hub>,
    clocks: LeaderClocks,
    durable_seen: Cell<u64>,
    /// Events since the last drive.
    told: Cell<u32>,
    /// Why the disk takes no writes, as far as the node was told.
    disk_error: Arc<Mutex<Option<String>>>,
}

/// Another worker.
struct Other {
    exchange: Arc<Exchange>,
    /// What will cross to it behind this drive.
    words: Vec<Word>,
}

impl Worker {
    /// A worker for `node`, which hears of its disk through `reports`.
    pub fn new(node: Node, reports: Arc<DiskReports>) -> Worker {
        let inner = Inner {
            slots: RefCell::new(node.slot_map().clone()),
            node: RefCell::new(node),
            waiting: Waiting::default(),
            turns: Turns::default(),
            others: RefCell::default(),
            actions: RefCell::new(Actions::default()),
            reports,
            hub: Arc::default(),
            clocks: LeaderClocks::default(),
            durable_seen: Cell::new(0),
            told: Cell::new(0),
            disk_error: Arc::default(),
        };
        Worker(Rc::new(inner), ClientId::NODE)
    }

    /// Lets one more worker reach the node, through what this returns.
    ///
    /// # Panics
    /// While the node is driven.
    pub fn attach(&self) -> Link {
        let mut others = self.0.others.borrow_mut();
        let exchange = Arc::new(Exchange::new(self.0.reports.wake.clone()));
        others.push(Other { exchange: exchange.clone(), words: Vec::new() });
        let (slots, hub) = (self.0.slots.borrow().clone(), self.0.hub.beside().into());
        Link { exchange, slots, hub, clocks: self.0.clocks.clone() }
    }

    /// Lets no other worker reach the node any more; they hear of it.
    pub fn detach_all(&self) {
        self.0.others.borrow_mut().iter().for_each(|other| other.exchange.close());
    }

    /// Hands an event to the node; the drive follows soon. What depends on the time comes with the
    /// time.
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
        self.0.told.set(self.0.told.get() + 1);
        self.0.reports.wake.notify_one();
    }

    /// How requests wait for their turns; kept up to date.
    pub fn turn_gauges(&self) -> Arc<TurnGauges> {
        self.0.turns.gauges()
    }

    /// A tick has passed: requests that have waited for longer than `patience` are refused.
    pub fn tick_turns(&self, patience: Duration) {
        for turn in self.0.turns.tick(patience) {
            self.answer(turn.token, Reply::Refused(Refusal::Overloaded));
        }
        self.0.reports.wake.notify_one();
    }

    /// Lets the node take a request, now or when it is its client's turn. The drive follows soon, if there is
    /// something to do.
    fn request(&self, client: ClientId, turn: Turn) {
        if self.offer(client, turn) || self.0.turns.is_ready() {
            self.0.told.set(self.0.told.get() + 1);
            self.0.reports.wake.notify_one();
        }
    }

    /// Returns whether the node has taken the request.
    fn offer(&self, client: ClientId, turn: Turn) -> bool {
        let Some((ticket, turn)) = self.0.turns.offer(client, turn) else { return false };
        self.take(ticket, turn);
        true
    }

    fn take(&self, ticket: Ticket, Turn { token, request }: Turn) {
        self.0.waiting.set_ticket(token.0, ticket);
        let mut node = self.0.node.borrow_mut();
        if request.needs_clock() {
            node.handle(Event::Clock(WallClock::default().now()));
        }
        node.handle(Event::Request { token, request });
    }

    /// Lets the node take those whose turn has come.
    fn take_turns(&self) {
        while let Some((ticket, turn)) = self.0.turns.next() {
            self.take(ticket, turn);
        }
    }

    /// Hands a reply to whom it belongs, on whichever worker.
    fn answer(&self, token: Token, reply: Reply) {
        if let Some(Crossing { worker, token, reply }) = self.0.waiting.answer(token.0, reply) {
            self.0.others.borrow_mut()[worker].words.push(Word::Reply(token, reply));
        }
    }

    /// The disk begins or ceases to be slow.
    pub fn set_disk_slow(&self, slow: bool) {
        self.0.reports.set_slow(slow);
    }

    /// Shows every worker how far the clocks of the shards' leaders are from this node's.
    pub fn show_leader_clocks(&self) {
        let node = self.0.node.borrow();
        for shard in node.slot_map().shards() {
            self.0.clocks.set(shard, node.leader_clock_ahead_ms(shard));
        }
    }

    /// Why the disk takes no writes, or not in time, while it does not; kept up to date.
    pub fn disk_error(&self) -> Arc<Mutex<Option<String>>> {
        self.0.disk_error.clone()
    }

    /// What the registry knows of a node's number.
    pub fn seat(&self, node: NodeId) -> Option<Seat> {
        self.0.node.borrow().seat(node).cloned()
    }

    /// All disks that the registry knows.
    pub fn known_hosts(&self) -> BTreeMap<NodeId, KnownHost> {
        let node = self.0.node.borrow();
        let host = |(node, uuid, address): (NodeId, Uuid, &str)| {
            (node, KnownHost { uuid, peer_address: address.to_owned() })
        };
        node.known_hosts().map(host).collect()
    }

    /// The answer to a stale read, if the node has all that it takes.
    fn answer_at_once(&self, request: &Request) -> Option<Reply> {
        match request {
            Request::Read { read, consistency: Consistency::Stale } => {
                self.0.node.borrow_mut().read_stale(read)
            }
            _ => None,
        }
    }

    /// Drives the node until it cannot go on; returns why.
    pub async fn run(&self, outlets: impl Outlets) -> WorkerFailure {
        let mut asks = Vec::new();
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
            self.tell_disk();
            for done in self.0.reports.take_snapshots() {
                self.0.node.borrow_mut().handle(Event::Snapshot(done));
            }
            self.take_asks(&mut asks);
            self.take_turns();
            let contradiction = self.drive(&outlets);
            self.tell_others();
            if let Some(contradiction) = contradiction {
                return WorkerFailure::Contradiction(contradiction);
            }
            if self.0.turns.is_ready() {
                // The next turns, behind the tasks that are ready by now: what those ask takes part.
                self.0.told.set(2);
                self.0.reports.wake.notify_one();
            }
        }
    }

    /// Takes what other workers handed over.
    fn take_asks(&self, asks: &mut Vec<Ask>) {
        for (worker, other) in self.0.others.borrow().iter().enumerate() {
            other.exchange.asks().take(asks);
            for ask in asks.drain(..) {
                match ask {
                    Ask::Request { client, token, request } => {
                        let token = Token(self.0.waiting.at_worker(worker, token));
                        self.offer(client, Turn { token, request });
                    }
                    // Its client may have gone away.
                    Ask::Status(sender) => drop(sender.send(self.0.node.borrow().status())),
                }
            }
        }
    }

    /// Hands over what the drive brought for other workers.
    fn tell_others(&self) {
        let mut others = self.0.others.borrow_mut();
        if others.is_empty() {
            return;
        }
        let slots = self.0.node.borrow().slot_map().clone();
        let is_news = !Arc::ptr_eq(&self.0.slots.borrow(), &slots);
        for other in &mut *others {
            if is_news {
                other.words.push(Word::Slots(slots.clone()));
            }
            if !other.words.is_empty() {
                other.exchange.words().put(&mut other.words);
            }
        }
        if is_news {
            *self.0.slots.borrow_mut() = slots;
        }
    }

    /// Puts a word into the next batch for each other worker.
    fn tell_all(&self, word: impl Fn() -> Word) {
        self.0.others.borrow_mut().iter_mut().for_each(|other| other.words.push(word()));
    }

    /// Under load, waits until the sockets have been looked at once more, and those read that have become ready since: a
    /// system call that waits for nothing is little beside a round of messages and a sync for the few that came first.
    async fn gather(&self) {
        if self.0.told.get() > 1 {
            tokio::task::yield_now().await;
            // Whoever woke us meanwhile is served by the drive that follows.
            pin!(self.0.reports.wake.notified()).enable();
        }
        self.0.told.set(0);
    }

    /// Tells the node when its disk begins or ceases to take writes.
    fn tell_disk(&self) {
        let stall = self.0.reports.stall();
        let mut told = self.0.disk_error.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == stall.as_ref().map(|(_, text)| text.clone()) {
            return;
        }
        let event = stall.as_ref().map_or(Event::DiskRecovered, |(reason, _)| Event::DiskStalled(*reason));
        self.0.node.borrow_mut().handle(event);
        *told = stall.map(|(_, text)| text);
    }

    /// Drives the node once. Returns why it has to stop, if it has to.
    fn drive(&self, outlets: &impl Outlets) -> Option<Contradiction> {
        let mut actions = self.0.actions.borrow_mut();
        self.0.node.borrow_mut().drive(&mut actions);
        // The disk first: its work takes longest.
        if let Some(batch) = actions.wal.take() {
            outlets.persist(batch);
        }
        for task in actions.snapshots.drain(..) {
            outlets.file(task);
        }
        for frame in actions.frames.drain(..) {
            outlets.send(frame);
        }
        // Behind the frames: one of them may be a farewell to a peer that is none any more.
        if let Some(peers) = actions.peers.take() {
            outlets.set_peers(peers);
        }
        for (token, reply) in actions.replies.drain(..) {
            self.0.turns.answered(self.0.waiting.ticket(token.0));
            self.answer(token, reply);
        }
        if !actions.slow.is_empty() {
            outlets.log_slow(&mut actions.slow);
        }
        // Behind the replies: who made the change does not wait until ten thousand watchers have looked at it.
        for news in actions.config.drain(..) {
            self.0.hub.tell(&news);
            self.tell_all(|| Word::News(news.clone()));
        }
        if !actions.elsewhere.is_empty() {
            self.0.hub.tell_slots(&actions.elsewhere);
            self.tell_all(|| Word::Elsewhere(actions.elsewhere.clone()));
            actions.elsewhere.clear();
        }
        actions.contradiction.take()
    }
}

impl Store for Worker {
    fn for_client(&self, client: ClientId) -> Worker {
        Worker(self.0.clone(), client)
    }

    fn submit(&self, request: Request) -> impl Future<Output = Reply> {
        let pending = match self.answer_at_once(&request) {
            Some(reply) => Pending::Answered(reply),
            None => {
                let (number, receiver) = self.0.waiting.in_task();
                self.request(self.1, Turn { token: Token(number), request });
                Pending::Waiting(receiver)
            }
        };
        async {
            match pending {
                Pending::Answered(reply) => reply,
                // The worker only ever drops a sender when the whole node stops under the request.
                Pending::Waiting(receiver) => {
                    receiver.await.unwrap_or(Reply::Refused(Refusal::UnknownOutcome))
                }
            }
        }
    }

    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64) {
        match self.answer_at_once(&request) {
            Some(reply) => mailbox.deliver(tag, reply),
            None => {
                let token = Token(self.0.waiting.at_mailbox(mailbox, tag));
                self.request(self.1, Turn { token, request });
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

    fn hub(&self) -> &Arc<Hub> {
        &self.0.hub
    }

    fn status(&self) -> impl Future<Output = NodeStatus> {
        ready(self.0.node.borrow().status())
    }
}

enum Pending {
    Answered(Reply),
    Waiting(oneshot::Receiver<Reply>),
}
