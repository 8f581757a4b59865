//! Which peers there are, which of them have a connection, and what their owner is told about it.
//!
//! Owns the order of events: [`Event::LinkUp`], then frames, then [`Event::LinkDown`], once each and never overlapping
//! for one peer. Everything that can change that order ([`Links::raise`], [`Links::end`]) is synchronous and runs on
//! one thread, so no lock and no message between tasks is needed to keep it. Owns no socket.
//!
//! Invariants: the owner is called outside of any `RefCell` borrow, and never from within [`Links::send`], so it may
//! call `send` from its sink and be borrowed while it calls `send`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tidelock_core::event::{Event, OutgoingFrame};
use tidelock_core::types::NodeId;
use tokio::sync::{Notify, watch};

use super::TransportOptions;
use super::counters::TransportCounters;
use super::frame::assert_valid_payload;
use super::handshake::Judge;
use super::queue::{Offer, OutgoingQueue};

/// What all tasks of a transport share.
pub struct Links {
    /// As given by the owner.
    pub options: TransportOptions,
    /// Totals.
    pub counters: Rc<TransportCounters>,
    /// Turns true once, when the transport stops.
    pub stopping: watch::Receiver<bool>,
    peers: BTreeMap<NodeId, Peer>,
    numbers: BTreeSet<NodeId>,
}

struct Peer {
    address: String,
    link: RefCell<Option<Rc<Link>>>,
    was_up: Cell<bool>,
}

/// One connection to one peer, from the end of its handshake on.
pub struct Link {
    /// To whom.
    pub peer: NodeId,
    /// What is to be written.
    pub queue: RefCell<OutgoingQueue>,
    /// Tells the writer that the queue is no longer empty.
    pub queued: Notify,
    /// Tells the connection's task to look at the state.
    pub ended: Notify,
    state: Cell<LinkState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    /// Carries frames.
    Up,
    /// Carries nothing any more; its owner has not been told yet.
    Overflowed,
    /// Its owner has been told.
    Ended,
}

impl Link {
    /// Whether frames may still be delivered and queued.
    pub fn is_up(&self) -> bool {
        self.state.get() == LinkState::Up
    }

    /// Whether the link is to be cut because its queue could not hold what must not be dropped.
    pub fn is_overflowed(&self) -> bool {
        self.state.get() == LinkState::Overflowed
    }
}

impl Links {
    /// All peers unconnected. This node's own entry, if there is one, is skipped.
    pub fn new(options: TransportOptions, stopping: watch::Receiver<bool>) -> Self {
        let own = options.identity.node;
        let peers: BTreeMap<NodeId, Peer> = options
            .peers
            .iter()
            .filter(|(node, _)| *node != own)
            .map(|(node, address)| {
                let address = address.clone();
                (*node, Peer { address, link: RefCell::default(), was_up: Cell::new(false) })
            })
            .collect();
        let numbers = peers.keys().copied().collect();
        Links { options, counters: Rc::default(), stopping, peers, numbers }
    }

    /// The peers that this node dials: those with a lower number.
    pub fn dialed(&self) -> Vec<NodeId> {
        self.numbers.iter().copied().filter(|node| *node < self.options.identity.node).collect()
    }

    /// Where a peer listens.
    pub fn address(&self, node: NodeId) -> &str {
        &self.peer(node).address
    }

    /// What this node holds against introductions.
    pub fn judge(&self) -> Judge<'_> {
        Judge { own: self.options.identity, peers: &self.numbers, accepts: &*self.options.accepts }
    }

    /// Returns once the transport stops.
    pub async fn stopped(&self) {
        // The sender lives in the transport; when it is gone, the transport is.
        self.stopping.clone().wait_for(|stopping| *stopping).await.ok();
    }

    /// A handshake succeeded: ends the link that the peer had, then announces the new one. A second connection of a
    /// peer is the newer truth: it made one because, to it, the old one is dead.
    pub fn raise(&self, node: NodeId) -> Rc<Link> {
        let peer = self.peer(node);
        let old = peer.link.borrow().clone();
        if let Some(old) = old {
            self.end(&old);
        }
        let link = Rc::new(Link {
            peer: node,
            queue: RefCell::new(OutgoingQueue::new(self.options.limits.queue)),
            queued: Notify::new(),
            ended: Notify::new(),
            state: Cell::new(LinkState::Up),
        });
        *peer.link.borrow_mut() = Some(link.clone());
        if peer.was_up.replace(true) {
            self.counters.reconnects.add(1);
        }
        self.tell(Event::LinkUp(node));
        link
    }

    /// Ends a link and announces that, unless that was done before.
    pub fn end(&self, link: &Rc<Link>) {
        if link.state.replace(LinkState::Ended) == LinkState::Ended {
            return;
        }
        // An unended link is the one that the peer has: `raise` ends the old one before it sets the new.
        *self.peer(link.peer).link.borrow_mut() = None;
        let lost = link.queue.borrow_mut().clear();
        self.counters.frames_dropped.add(lost as u64);
        link.ended.notify_one();
        self.tell(Event::LinkDown(link.peer));
    }

    /// Ends whatever links there are.
    pub fn end_all(&self) {
        for peer in self.peers.values() {
            let link = peer.link.borrow().clone();
            if let Some(link) = link {
                self.end(&link);
            }
        }
    }

    /// Queues a frame, or drops it and counts that. Never calls the owner: a link that must be cut is cut by its
    /// own task, and takes no more frames until then.
    pub fn send(&self, frame: OutgoingFrame) {
        let OutgoingFrame { to, payload, droppable } = frame;
        assert_valid_payload(&payload);
        let link = self.peers.get(&to).and_then(|peer| peer.link.borrow().clone());
        let Some(link) = link.filter(|link| link.is_up()) else {
            self.counters.frames_dropped.add(1);
            return;
        };
        let offer = link.queue.borrow_mut().offer(payload, droppable);
        match offer {
            Offer::Queued => link.queued.notify_one(),
            Offer::Dropped => self.counters.frames_dropped.add(1),
            Offer::Overflow => {
                self.counters.frames_dropped.add(1);
                self.counters.queue_overflows.add(1);
                link.state.set(LinkState::Overflowed);
                link.ended.notify_one();
            }
        }
    }

    /// Tells the owner. No borrow may be held here.
    pub fn tell(&self, event: Event) {
        (self.options.sink)(event);
    }

    fn peer(&self, node: NodeId) -> &Peer {
        self.peers.get(&node).expect("invariant: links are made with known peers only")
    }
}
