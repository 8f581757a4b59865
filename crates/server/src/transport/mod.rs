//! Moves frames between the nodes of a cluster: one TCP connection a pair, on one thread.
//!
//! ```text
//!             dialer (peers below) ─┐                        ┌─ LinkUp / Frame / LinkDown ─▶ sink
//!                                   ├─▶ handshake ─▶ connection
//!   listener (peers above) ─────────┘                        └◀─ queue ◀─ Transport::send
//!
//!            knocker (peers above) ───▶ their listener ───▶ their dialer calls at once
//! ```
//!
//! It owns connections, their order and their bounds. It deliberately owns no message, no retry and no clock of
//! consensus: what is lost is repeated by raft or answered truthfully by the core.
//!
//! **Who dials.** The node with the higher number dials, the lower one listens. If both dialed, a pair would
//! often have two connections, and the two sides would have to agree on which one to keep while frames are already
//! on their way on both; a rule that depends on nothing but the numbers leaves nothing to agree on. The price: a
//! node that restarts would wait for its higher peers to call, up to [`attempt::BACKOFF_MAX`], and one that was
//! removed would wait for ever. So the lower node *knocks* at higher peers that it has no link with: a knock makes no
//! connection, it has the peer call now, or brings the answer that this node was removed.
//!
//! **Contract** (as [`tidelock_core::event`] asks): frames to one peer arrive in order, whole and once, or not at
//! all; [`Event::LinkDown`] of a connection comes before anything of the next one with that peer. After
//! [`Transport::stop`] returns no event is raised.
//!
//! **Peers come and go** with [`Transport::set_peers`], while links stand. A host that is to become one asks for it by
//! [`join::ask`], with no transport of its own yet, at any member's listener.
//!
//! **Rooms.** `handshake` and `frame` are layouts, `queue` the bound on what waits, `links` the peers and the order
//! of events, `connection` the socket, `dialer`, `knocker` and `listener` how connections come to be, `attempt` what
//! every call has in common.
//!
//! Everything runs on the thread of its owner, on a [`tokio::runtime::LocalRuntime`]; nothing here is `Send`.

pub mod attempt;
pub mod connection;
pub mod counters;
pub mod dialer;
pub mod frame;
pub mod handshake;
pub mod join;
mod knocker;
mod links;
pub mod listener;
pub mod queue;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidelock_core::event::{Event, OutgoingFrame};
use tidelock_core::starts::KnownStart;
use tidelock_core::types::NodeId;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use attempt::BackoffLimits;
pub use counters::TransportCounters;
use handshake::{HandshakeRefusal, Identity};
use join::JoinDesk;
use links::Links;
use queue::QueueLimits;

/// Default of [`TransportLimits::handshake_timeout`]: three messages, with room for one lost packet.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// Default of [`TransportLimits::stop_timeout`]. What a healthy peer has not taken by then is not worth a slower stop.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Default of [`TransportLimits::superseded_after`]: twice as long as the kernel takes to end the connection of a process
/// whose machine has gone, see [`connection::UNACKNOWLEDGED_MILLIS_MAX`].
pub const SUPERSEDED_AFTER: Duration = Duration::from_secs(6);

/// Where events go. Called on the transport's thread, never from within [`Transport::send`].
pub type EventSink = Rc<dyn Fn(Event)>;

/// Asked in each handshake whether the peer's number may come from the disk with this uuid. It is asked about strangers
/// too, before they are refused: the answer for a number that was removed is [`HandshakeRefusal::Removed`], and `Ok`
/// for one that the owner knows nothing about.
pub type HostCheck = Rc<dyn Fn(NodeId, Uuid) -> Result<(), HandshakeRefusal>>;

/// What a transport is made of.
pub struct TransportOptions {
    /// This node.
    pub identity: Identity,
    /// The peers to begin with and the addresses (`HOST:PORT`) that they listen on, as for
    /// [`Transport::set_peers`].
    pub peers: Vec<(NodeId, String)>,
    /// Where events go.
    pub sink: EventSink,
    /// What the owner knows about the disks of its peers.
    pub accepts: HostCheck,
    /// Called once, when a peer first refuses this node because it was removed from the cluster; with that peer. As
    /// for the sink, never from within a call of the owner's.
    pub removed: Rc<dyn Fn(NodeId)>,
    /// What was remembered of the starts of peers when this node started.
    pub starts: BTreeMap<NodeId, KnownStart>,
    /// Keeps the start of a peer, on the disk too as soon as that takes it. Called before [`Event::LinkUp`]; never from
    /// within a call of the owner's.
    pub remember_start: Rc<dyn Fn(NodeId, KnownStart)>,
    /// Called once, when a peer refuses this process for good: another one speaks for its host, or a later one did. The
    /// node must stop. As for `removed`, never from within a call of the owner's.
    pub superseded: Rc<dyn Fn(NodeId, HandshakeRefusal)>,
    /// Decides about hosts that want to become members.
    pub joins: JoinDesk,
    /// Bounds.
    pub limits: TransportLimits,
}

/// Bounds of a transport; the defaults are the constants of these modules.
#[derive(Clone, Copy, Debug)]
pub struct TransportLimits {
    /// Of the queue towards each peer.
    pub queue: QueueLimits,
    /// A handshake that takes longer is given up.
    pub handshake_timeout: Duration,
    /// What is queued when the transport stops, or when a peer leaves, may be written for this long.
    pub stop_timeout: Duration,
    /// Of the waits between two attempts to reach a peer.
    pub backoff: BackoffLimits,
    /// A peer that refuses this process for so long, because it has a link with another one, is right.
    pub superseded_after: Duration,
}

impl Default for TransportLimits {
    fn default() -> Self {
        TransportLimits {
            queue: QueueLimits::default(),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            stop_timeout: STOP_TIMEOUT,
            backoff: BackoffLimits::default(),
            superseded_after: SUPERSEDED_AFTER,
        }
    }
}

/// The connections of one node to its peers. Dropping it cuts them; [`Transport::stop`] closes them.
pub struct Transport {
    links: Rc<Links>,
    stopping: watch::Sender<bool>,
    tasks: RefCell<JoinSet<()>>,
}

impl Transport {
    /// Starts to listen and to dial. No event is raised before this returns.
    ///
    /// # Panics
    /// Where tasks cannot be local, as they can on a [`tokio::runtime::LocalRuntime`].
    pub fn start(listener: TcpListener, options: TransportOptions) -> Transport {
        let (stopping, stopping_seen) = watch::channel(false);
        let peers = options.peers.clone();
        let links = Rc::new(Links::new(options, stopping_seen));
        let mut tasks = JoinSet::new();
        tasks.spawn_local(listener::run(links.clone(), listener));
        let transport = Transport { links, stopping, tasks: RefCell::new(tasks) };
        transport.set_peers(peers);
        transport
    }

    /// Replaces the set of peers, and with it whom this node takes for one. New ones are called, or may call; at a
    /// changed address the peer is called from now on, its link stays. To one that left nothing more is sent: what is
    /// queued is written, for at most [`TransportLimits::stop_timeout`], then its link is closed, which is announced.
    /// This node's own entry is skipped. No event is raised from within; after [`Transport::stop`] nothing happens.
    ///
    /// # Panics
    /// Where tasks cannot be local, as they can on a [`tokio::runtime::LocalRuntime`].
    pub fn set_peers(&self, peers: Vec<(NodeId, String)>) {
        if *self.stopping.borrow() {
            return;
        }
        let mut tasks = self.tasks.borrow_mut();
        while let Some(ended) = tasks.try_join_next() {
            listener::propagate_panic(ended);
        }
        for peer in self.links.set_peers(peers) {
            if peer.node < self.links.options.identity.node {
                tasks.spawn_local(dialer::run(self.links.clone(), peer));
            } else {
                tasks.spawn_local(knocker::run(self.links.clone(), peer));
            }
        }
    }

    /// Queues a frame to a peer. It is dropped, and counted, if there is no link or the queue is full; if it may not
    /// be dropped, a full queue cuts the link. No event is raised from within.
    ///
    /// # Panics
    /// On an empty payload and on one over [`tidelock_core::limits::PEER_FRAME_BYTES_MAX`].
    pub fn send(&self, frame: OutgoingFrame) {
        self.links.send(frame);
    }

    /// Totals since the start.
    pub fn counters(&self) -> Arc<TransportCounters> {
        self.links.counters.clone()
    }

    /// Stops listening and dialing, writes what is queued, closes all links and announces that, at most after
    /// [`TransportLimits::stop_timeout`]. To be called once; frames sent afterwards are dropped.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        self.links.close_all();
        let mut tasks = self.tasks.take();
        while let Some(ended) = tasks.join_next().await {
            listener::propagate_panic(ended);
        }
    }
}
