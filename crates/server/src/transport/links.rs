//! The peers of a node, their links, and the events that their owner receives.
//!
//! Owns the order of events: [`Event::LinkUp`], then frames, then [`Event::LinkDown`], once each
//! and never overlapping for one peer. Everything that can change that order ([`Links::raise`],
//! [`Links::end`]) is synchronous and runs on one thread, so it takes no lock and no message
//! between tasks. Owns no socket.
//!
//! A removed peer ceases to be a peer at once: it is judged as a stranger, no longer dialed, and
//! sent nothing more. Only its link remains until what was queued before is written. Its entry
//! remains as long, so that a peer that is added again meanwhile finds the old link and ends it
//! before the new one is announced.
//!
//! Invariants: the owner is called outside of any `RefCell` borrow, and never from within
//! [`Links::send`] and [`Links::set_peers`]. So the owner may call those from its sink, and may
//! hold a borrow of itself while it calls them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidelock_core::address_book::AddressBook;
use tidelock_core::deliberate::Faults;
use tidelock_core::event::{Event, OutgoingFrame};
use tidelock_core::handshake::{HandshakeRefusal, Introduction};
use tidelock_core::starts::KnownStarts;
use tidelock_core::types::NodeId;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::TransportOptions;
use super::counters::TransportCounters;
use super::frame::assert_valid_payload;
use super::handshake::{HandshakeError, Judge};
use super::queue::{EnqueueResult, OutgoingQueue};
use super::refusals::PeerRefusals;

/// What all tasks of a transport share.
pub struct Links {
    /// The options that the owner gave.
    pub options: TransportOptions,
    pub counters: Arc<TransportCounters>,
    pub refusals: Arc<PeerRefusals>,
    /// Turns true once, when the transport stops.
    stopping: watch::Receiver<bool>,
    /// The peers, and removed peers whose link still exists.
    peers: RefCell<BTreeMap<NodeId, Rc<Peer>>>,
    /// The numbers of the peers, without removed ones.
    numbers: RefCell<BTreeSet<NodeId>>,
    was_removed: Cell<bool>,
    begun: Instant,
    /// The remembered starts of peers, and which of them have links.
    starts: RefCell<KnownStarts>,
    /// Where peers may be.
    addresses: RefCell<AddressBook>,
    was_superseded: Cell<bool>,
}

/// The nodes of a cluster are often started together: for this long after its own start, a node
/// does not warn of a peer that does not listen yet.
const START_GRACE: Duration = Duration::from_secs(5);

pub struct Peer {
    pub node: NodeId,
    /// Asks the task that seeks this peer to dial it now.
    pub called: Notify,
    /// Whether a task seeks the peer; the task resets it when it ends.
    pub is_sought: Cell<bool>,
    belongs: watch::Sender<bool>,
    is_up: watch::Sender<bool>,
    link: RefCell<Option<Rc<Link>>>,
    was_up: Cell<bool>,
    /// Since when the peer has refused this process, at each attempt, because it has a link with
    /// another process of the same host.
    prefers_another_since: Cell<Option<Instant>>,
}

impl Peer {
    fn new(node: NodeId) -> Self {
        Peer {
            node,
            called: Notify::new(),
            is_sought: Cell::new(false),
            belongs: watch::Sender::new(true),
            is_up: watch::Sender::new(false),
            link: RefCell::default(),
            was_up: Cell::new(false),
            prefers_another_since: Cell::new(None),
        }
    }

    /// Records that an attempt to reach it did not end with that refusal.
    pub fn was_reached_otherwise(&self) {
        self.prefers_another_since.set(None);
    }

    /// Whether there is a link with it.
    pub fn has_link(&self) -> bool {
        *self.is_up.borrow()
    }

    /// Returns once there is a link with it (`up`), or once there is none.
    pub async fn is_up(&self, up: bool) {
        self.is_up.subscribe().wait_for(|is_up| *is_up == up).await.ok();
    }

    fn belongs(&self) -> bool {
        *self.belongs.borrow()
    }

    fn link(&self) -> Option<Rc<Link>> {
        self.link.borrow().clone()
    }
}

/// One connection to one peer, from the end of its handshake on.
pub struct Link {
    pub peer: NodeId,
    pub queue: RefCell<OutgoingQueue>,
    /// Tells the writer that the queue is no longer empty.
    pub queued: Notify,
    /// Tells the connection's task to check the state.
    pub ended: Notify,
    state: Cell<LinkState>,
    closing: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    /// Carries frames.
    Up,
    /// Carries no frames; its owner does not know yet.
    Overflowed,
    /// Its owner has received [`Event::LinkDown`].
    Ended,
}

impl Link {
    /// Whether frames may still be delivered.
    pub fn is_up(&self) -> bool {
        self.state.get() == LinkState::Up
    }

    /// Whether the link must be cut because its queue was full for a frame that must not be
    /// dropped.
    pub fn is_overflowed(&self) -> bool {
        self.state.get() == LinkState::Overflowed
    }

    /// Whether the link takes no more frames, and closes once those queued are written.
    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Returns once the link [is closing](Link::is_closing).
    pub async fn closing(&self) {
        self.closing.subscribe().wait_for(|closing| *closing).await.ok();
    }

    fn close(&self) {
        self.closing.send_replace(true);
    }
}

impl Links {
    pub fn new(options: TransportOptions, stopping: watch::Receiver<bool>) -> Self {
        let (own, address) = (options.identity.node, options.address.clone());
        let addresses = AddressBook::new(own, address, options.fallbacks.clone(), Faults::NONE);
        Links {
            starts: RefCell::new(KnownStarts::new(options.starts.clone(), Faults::NONE)),
            addresses: RefCell::new(addresses),
            was_superseded: Cell::new(false),
            options,
            counters: Arc::default(),
            refusals: Arc::default(),
            stopping,
            peers: RefCell::default(),
            numbers: RefCell::default(),
            was_removed: Cell::new(false),
            begun: Instant::now(),
        }
    }

    /// Replaces the set of peers, and returns those that no task seeks yet. This node's own entry
    /// is the address that it had before. Never calls the owner: links of removed peers are closed
    /// by their own tasks.
    pub fn set_peers(&self, given: Vec<(NodeId, String)>) -> Vec<Rc<Peer>> {
        let own = self.options.identity.node;
        let known = given.iter().map(|(node, address)| (*node, address.as_str()));
        self.addresses.borrow_mut().set_peers(known);
        let given: BTreeSet<NodeId> =
            given.into_iter().map(|(node, _)| node).filter(|node| *node != own).collect();
        self.numbers.borrow_mut().clone_from(&given);
        let mut peers = self.peers.borrow_mut();
        for peer in peers.values().filter(|peer| !given.contains(&peer.node)) {
            peer.belongs.send_replace(false);
            if let Some(link) = peer.link() {
                link.close();
            }
        }
        peers.retain(|_, peer| peer.belongs() || peer.link().is_some());
        let mut unsought = vec![];
        for node in given {
            let peer = peers.entry(node).or_insert_with(|| Rc::new(Peer::new(node)));
            peer.belongs.send_replace(true);
            if !peer.is_sought.replace(true) {
                unsought.push(peer.clone());
            }
        }
        drop(peers);
        self.dial_news();
        unsought
    }

    /// The addresses to try now, in order, to reach a peer.
    pub fn candidates(&self, peer: NodeId) -> Vec<String> {
        self.addresses.borrow_mut().candidates(peer)
    }

    /// Makes the tasks that seek peers with new addresses try these now.
    pub fn dial_news(&self) {
        let news = self.addresses.borrow_mut().take_news();
        news.into_iter().for_each(|peer| self.dial_now(peer));
    }

    /// Whether the transport has only just started.
    pub fn is_young(&self) -> bool {
        self.begun.elapsed() < START_GRACE
    }

    /// What this node introduces itself as now.
    fn introduction(&self) -> Introduction {
        Introduction { version: (self.options.version)(), ..self.options.identity }
    }

    pub fn judge(&self) -> Judge<'_> {
        Judge {
            own: self.introduction(),
            peers: &self.numbers,
            known_peer: &*self.options.known_peer,
            starts: &self.starts,
            address: &self.options.address,
            addresses: &self.addresses,
            certificate: None,
        }
    }

    /// Records a failed handshake. Calls the owner once if the reason is that this node was
    /// removed, or that this process may not act as its node.
    pub fn note(&self, error: &HandshakeError) {
        if error.is_ours() {
            self.counters.handshakes_refused.add(1);
        }
        if error.is_of_tls() {
            self.counters.tls_failures.add(1);
        }
        let HandshakeError::RefusedByPeer { refusal, peer } = error else { return };
        self.refusals.refused(*peer, *refusal);
        if *refusal == HandshakeRefusal::Removed && !self.was_removed.replace(true) {
            (self.options.removed)(*peer);
        }
        let is_final = refusal.is_final((self.options.is_registered)(), Faults::NONE)
            || *refusal == HandshakeRefusal::StillConnected && self.prefers_another(*peer);
        if is_final && !self.was_superseded.replace(true) {
            (self.options.superseded)(*peer, *refusal);
        }
    }

    /// A peer refuses this process because it has a link with another one. Returns whether it has
    /// done so for long enough that the other process must be alive.
    fn prefers_another(&self, node: NodeId) -> bool {
        let Some(peer) = self.peer(node) else { return false };
        let since = peer.prefers_another_since.get().unwrap_or_else(Instant::now);
        peer.prefers_another_since.set(Some(since));
        since.elapsed() >= self.options.limits.superseded_after
    }

    /// Makes the task that seeks a peer dial it now instead of after its backoff.
    pub fn dial_now(&self, node: NodeId) {
        if let Some(peer) = self.peer(node) {
            peer.called.notify_one();
        }
    }

    /// Returns once the transport stops.
    pub async fn stopped(&self) {
        // The sender lives in the transport; when it is dropped, the transport is gone.
        self.stopping.clone().wait_for(|stopping| *stopping).await.ok();
    }

    /// Returns once this peer need not be sought any longer: the transport stops, or the peer was
    /// removed.
    pub async fn is_over(&self, peer: &Peer) {
        let mut belongs = peer.belongs.subscribe();
        tokio::select! {
            () = self.stopped() => {}
            _ = belongs.wait_for(|belongs| !belongs) => {}
        }
    }

    /// Completes a handshake: ends the peer's previous link, then announces the new one. The second
    /// connection wins: the peer made it because it considers the first one dead. Returns `None` if
    /// the peer was removed during the handshake, or if another process of the peer was first.
    pub fn raise(&self, identity: &Introduction) -> Option<Rc<Link>> {
        let node = identity.node;
        let peer = self.peer(node).filter(|peer| peer.belongs())?;
        self.starts.borrow().judge(node, identity.known_start()).ok()?;
        // The version may have risen since the handshake.
        self.introduction().judge_release(identity).ok()?;
        if let Some(old) = peer.link() {
            self.end(&old);
            // The owner was called, and may have removed the peer.
            if !peer.belongs() {
                return None;
            }
        }
        // Also stored on disk, soon: after a restart this node must not accept an earlier start.
        // Not awaited, because a hanging disk would keep the link down.
        let is_news = self.starts.borrow_mut().connect(node, identity.known_start()).ok()?;
        if is_news {
            (self.options.remember_start)(node, identity.known_start());
        }
        peer.prefers_another_since.set(None);
        let link = Rc::new(Link {
            peer: node,
            queue: RefCell::new(OutgoingQueue::new(self.options.limits.queue)),
            queued: Notify::new(),
            ended: Notify::new(),
            state: Cell::new(LinkState::Up),
            closing: watch::Sender::new(*self.stopping.borrow()),
        });
        *peer.link.borrow_mut() = Some(link.clone());
        peer.is_up.send_replace(true);
        self.refusals.accepted(node);
        if peer.was_up.replace(true) {
            self.counters.reconnects.add(1);
        }
        let (supported, recorded) = (identity.supported, identity.version);
        self.tell(Event::PeerVersions { peer: node, supported, recorded });
        self.tell(Event::LinkUp(node));
        Some(link)
    }

    /// Ends a link and raises [`Event::LinkDown`], unless that was done before.
    pub fn end(&self, link: &Rc<Link>) {
        if link.state.replace(LinkState::Ended) == LinkState::Ended {
            return;
        }
        // A link that has not ended is the peer's current one: `raise` ends the old link before it
        // sets the new one, and an entry outlives its link.
        let peer = self.peer(link.peer).expect("invariant: a peer stays as long as its link");
        *peer.link.borrow_mut() = None;
        self.starts.borrow_mut().disconnect(link.peer);
        peer.is_up.send_replace(false);
        if !peer.belongs() {
            self.peers.borrow_mut().remove(&peer.node);
        }
        let lost = link.queue.borrow_mut().clear();
        self.counters.frames_dropped.add(lost as u64);
        link.ended.notify_one();
        self.tell(Event::LinkDown(link.peer));
    }

    /// Makes every link write what is queued and then close.
    pub fn close_all(&self) {
        for peer in self.peers.borrow().values() {
            if let Some(link) = peer.link() {
                link.close();
            }
        }
    }

    /// Queues a frame, or drops and counts it. Never calls the owner: a link that must be cut is
    /// cut by its own task, and takes no more frames until then.
    pub fn send(&self, frame: OutgoingFrame) {
        let OutgoingFrame { to, payload, droppable } = frame;
        assert_valid_payload(&payload);
        let link = self.peer(to).and_then(|peer| peer.link());
        let Some(link) = link.filter(|link| link.is_up() && !link.is_closing()) else {
            self.counters.frames_dropped.add(1);
            return;
        };
        let offer = link.queue.borrow_mut().offer(payload, droppable);
        match offer {
            EnqueueResult::Queued => link.queued.notify_one(),
            EnqueueResult::Dropped => self.counters.frames_dropped.add(1),
            EnqueueResult::Overflow => {
                self.counters.frames_dropped.add(1);
                self.counters.queue_overflows.add(1);
                link.state.set(LinkState::Overflowed);
                link.ended.notify_one();
            }
        }
    }

    /// Passes an event to the owner. No borrow may be held here.
    pub fn tell(&self, event: Event) {
        (self.options.sink)(event);
    }

    fn peer(&self, node: NodeId) -> Option<Rc<Peer>> {
        self.peers.borrow().get(&node).cloned()
    }
}
