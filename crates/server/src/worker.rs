//! The worker: the one thread that owns the node, and the hand-over between it, connections, peers and the disk.
//!
//! Owns when the core runs: events are handed to it as they come, and one drive follows once every task that was
//! ready has run and, if there was more than one event, every task that became ready meanwhile. So whatever arrived in
//! one turn of the event loop (from 64 connections, two peers and the disk) becomes one raft entry a shard, one log batch
//! and one frame a peer, without any timer.
//!
//! Other workers, where there are any, hand over what one turn of theirs gathered, which joins the same drive (see `exchange`).
//!
//! It decides nothing about requests. A log that failed ends it: what its state is then, nobody knows, and a node that
//! cannot keep its promise stops and says why. That the disk takes no writes for a while, the core and the health checks
//! are told, and it goes on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidelock_core::command::{Consistency, Refusal, Reply, Request};
use tidelock_core::control::registry::Seat;
use tidelock_core::control::slot_map::SlotMap;
use tidelock_core::event::{Actions, Contradiction, Event, NodeStatus, OutgoingFrame};
use tidelock_core::node::Node;
use tidelock_core::storage::WalBatch;
use tidelock_core::storage::control_file::KnownHost;
use tidelock_core::storage::snapshot::{SnapshotDone, SnapshotTask};
use tidelock_core::storage::wal::WalError;
use tidelock_core::types::{NodeId, ShardId, Token, WalSequence};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::disk::DiskReport;
use crate::exchange::{Ask, Exchange, Word};
use crate::remote::{Link, WORKERS_MAX, worker_of};
use crate::store::{Mailbox, Store};
use crate::waiting::Waiting;
use crate::watch::Hub;

/// Where a worker's actions go.
pub trait Outlets {
    /// Queues a frame for a peer.
    fn send(&self, frame: OutgoingFrame);

    /// Queues a batch for the log; word of it comes back through [`DiskReports`].
    fn persist(&self, batch: WalBatch);

    /// Queues work on snapshot files; word of it comes back through [`DiskReports`].
    fn file(&self, task: SnapshotTask);

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

    /// A task on snapshot files is done. Called on the thread that does them.
    pub fn snapshot(&self, done: SnapshotDone) {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        self.wake.notify_one();
    }

    fn take_snapshots(&self) -> Vec<SnapshotDone> {
        std::mem::take(&mut *self.snapshots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stall(&self) -> Option<WalError> {
        self.stall.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
pub struct Worker(Rc<Inner>);

impl Clone for Worker {
    fn clone(&self) -> Self {
        Worker(self.0.clone())
    }
}

struct Inner {
    node: RefCell<Node>,
    /// Who waits for which token, of those of this thread.
    waiting: Waiting,
    /// The other workers, by their numbers less one.
    others: RefCell<Vec<Other>>,
    /// Which slots the other workers believe in.
    slots: RefCell<Arc<SlotMap>>,
    actions: RefCell<Actions>,
    reports: Arc<DiskReports>,
    hub: Arc<Hub>,
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
        Worker(Rc::new(Inner {
            slots: RefCell::new(node.slot_map().clone()),
            node: RefCell::new(node),
            waiting: Waiting::default(),
            others: RefCell::default(),
            actions: RefCell::new(Actions::default()),
            reports,
            hub: Arc::default(),
            durable_seen: Cell::new(0),
            told: Cell::new(0),
            disk_error: Arc::default(),
        }))
    }

    /// Lets one more worker reach the node, through what this returns.
    ///
    /// # Panics
    /// When there are more than tokens tell apart, or while the node is driven.
    pub fn attach(&self) -> Link {
        let mut others = self.0.others.borrow_mut();
        let worker = others.len() + 1;
        assert!((worker as u64) < WORKERS_MAX, "tokens tell so many workers apart");
        let exchange = Arc::new(Exchange::new(self.0.reports.wake.clone()));
        others.push(Other { exchange: exchange.clone(), words: Vec::new() });
        Link { worker, exchange, slots: self.0.slots.borrow().clone(), hub: self.0.hub.beside().into() }
    }

    /// Lets no other worker reach the node any more; they hear of it.
    pub fn detach_all(&self) {
        self.0.others.borrow_mut().iter().for_each(|other| other.exchange.close());
    }

    /// Hands an event to the node; the drive follows soon.
    pub fn tell(&self, event: Event) {
        self.0.node.borrow_mut().handle(event);
        self.0.told.set(self.0.told.get() + 1);
        self.0.reports.wake.notify_one();
    }

    /// Why the disk takes no writes, while it takes none; kept up to date.
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
            let contradiction = self.drive(&outlets);
            self.tell_others();
            if let Some(contradiction) = contradiction {
                return WorkerFailure::Contradiction(contradiction);
            }
        }
    }

    /// Takes what other workers handed over.
    fn take_asks(&self, asks: &mut Vec<Ask>) {
        for other in &*self.0.others.borrow() {
            other.exchange.asks().take(asks);
            for ask in asks.drain(..) {
                let mut node = self.0.node.borrow_mut();
                match ask {
                    Ask::Request { token, request } => node.handle(Event::Request { token, request }),
                    // Its client may have gone away.
                    Ask::Status(sender) => drop(sender.send(node.status())),
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
        let error = self.0.reports.stall().map(|error| error.to_string());
        let mut told = self.0.disk_error.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == error {
            return;
        }
        let event = if error.is_some() { Event::DiskStalled } else { Event::DiskRecovered };
        self.0.node.borrow_mut().handle(event);
        *told = error;
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
            match worker_of(token) {
                0 => self.0.waiting.answer(token.0, reply),
                other => self.0.others.borrow_mut()[other - 1].words.push(Word::Reply(token, reply)),
            }
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
    fn submit(&self, request: Request) -> impl Future<Output = Reply> {
        let pending = match self.answer_at_once(&request) {
            Some(reply) => Pending::Answered(reply),
            None => {
                let (number, receiver) = self.0.waiting.in_task();
                self.tell(Event::Request { token: Token(number), request });
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
                self.tell(Event::Request { token, request });
            }
        }
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        self.0.node.borrow().shard_of(key)
    }

    fn slot_map(&self) -> Arc<SlotMap> {
        self.0.node.borrow().slot_map().clone()
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
