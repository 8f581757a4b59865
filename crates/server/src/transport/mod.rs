//! Moves frames between the nodes of a cluster: one TCP connection a pair, with or without TLS, on
//! one thread.
//!
//! ```text
//!             dialer (peers below) ─┐                        ┌─ LinkUp / Frame / LinkDown ─▶ sink
//!                                   ├─▶ handshake ─▶ connection
//!   listener (peers above) ─────────┘                        └◀─ queue ◀─ Transport::send
//!
//!           wake_up (peers above) ───▶ their listener ───▶ their dialer connects at once
//! ```
//!
//! Owns connections, the order of frames and the bounds. It deliberately knows no messages, no
//! retries and no consensus timers: Raft repeats lost messages, and the core answers requests whose
//! outcome is unknown as such.
//!
//! **Who dials.** The node with the higher number dials; the lower one listens. If both dialed, a
//! pair would often have two connections and would have to agree on which one to keep while frames
//! are in transit on both. A rule that depends only on the numbers avoids that. Its price: a
//! restarted node would wait up to [`attempt::BACKOFF_MAX`] for its higher peers to dial, and a
//! removed node would wait without end. So the lower node sends a *wake-up* to higher peers that it
//! has no link with (see `wake_up`). A wake-up makes no connection: it asks the peer to dial now,
//! or returns the answer that this node was removed. It also states where this node is, so that a
//! node with a new address is found by its higher peers. Where peers are sought is the policy of
//! [`tidelock_core::address_book`].
//!
//! **Contract** (as [`tidelock_core::event`] asks): frames to one peer arrive in order, whole and
//! at most once. [`Event::LinkDown`] of a connection precedes all events of the next connection
//! with that peer. After [`Transport::stop`] returns, no event is raised.
//!
//! **Peers change** with [`Transport::set_peers`], without interrupting links. A host that wants to
//! join uses [`join::ask`] at any member's listener, before it has a transport; if it has a join
//! token instead of a certificate, [`enrol::ask`] before that.
//!
//! **Modules.** `handshake` and `frame` define the wire format, `queue` bounds waiting frames,
//! `links` tracks peers and orders events, `connection` drives a socket. `dialer`, `wake_up` and
//! `listener` establish connections; `attempt` is what every outgoing attempt shares, `secure` how
//! TLS begins.
//!
//! Everything runs on its owner's thread, on a [`tokio::runtime::LocalRuntime`]; nothing here is
//! `Send`.

pub mod attempt;
pub mod connection;
pub mod counters;
pub mod dialer;
pub mod enrol;
pub mod frame;
pub mod handshake;
pub mod join;
mod links;
pub mod listener;
pub mod queue;
mod refusals;
mod secure;
#[cfg(test)]
mod tests;
mod wake_up;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidelock_core::event::{Event, OutgoingFrame};
use tidelock_core::handshake::{HandshakeRefusal, Introduction, KnownPeer};
use tidelock_core::starts::KnownStart;
use tidelock_core::types::NodeId;
use tidelock_core::version::ClusterVersion;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use attempt::BackoffLimits;
pub use counters::TransportCounters;
use enrol::EnrolHandler;
use join::JoinHandler;
use links::Links;
use queue::QueueLimits;
pub use refusals::PeerRefusals;

use crate::audit_log::AuditLog;
use crate::tls::TlsAcceptor;

/// Default of [`TransportLimits::handshake_timeout`]: time for three messages and one lost packet.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// Default of [`TransportLimits::stop_timeout`]. A healthy peer takes what is queued well within
/// it; waiting longer would only delay the stop.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Default of [`TransportLimits::superseded_after`]: twice as long as the kernel takes to end a
/// connection whose remote machine is gone, see [`connection::UNACKNOWLEDGED_MILLIS_MAX`].
pub const SUPERSEDED_AFTER: Duration = Duration::from_secs(6);

/// Receives events. Called on the transport's thread, never from within [`Transport::send`].
pub type EventSink = Rc<dyn Fn(Event)>;

/// Returns, in each handshake, what the owner knows about the number that the other side claims;
/// also for numbers that are not among the peers. The transport knows which those are.
pub type PeerLookup = Rc<dyn Fn(NodeId) -> KnownPeer>;

/// What [`Transport::start`] needs.
pub struct TransportOptions {
    /// What this node introduces itself as.
    pub identity: Introduction,
    /// The address that peers reach this node at (`HOST:PORT`), which it states in introductions.
    pub address: String,
    /// Addresses at which any peer may be, besides those that are known of each: `HOST:PORT` or
    /// `srv:NAME`.
    pub fallbacks: Vec<String>,
    /// The initial peers and their addresses, as for [`Transport::set_peers`].
    pub peers: Vec<(NodeId, String)>,
    /// Receives frames and changes of links.
    pub sink: EventSink,
    /// Knows which numbers were removed, and the host uuids of peers.
    pub known_peer: PeerLookup,
    /// Returns, in each handshake, the newest version of anything that this node may send.
    pub version: Rc<dyn Fn() -> ClusterVersion>,
    /// Called once with the peer that first refuses this node because it was removed from the
    /// cluster. Like the sink, never from within a call of the owner's.
    pub removed: Rc<dyn Fn(NodeId)>,
    /// The starts of peers that were stored when this node started.
    pub starts: BTreeMap<NodeId, KnownStart>,
    /// Stores the start of a peer, on disk too once the disk accepts it. Called before
    /// [`Event::LinkUp`]; never from within a call of the owner's.
    pub remember_start: Rc<dyn Fn(NodeId, KnownStart)>,
    /// Whether the registry has this host, as far as this node knows the registry.
    pub is_registered: Rc<dyn Fn() -> bool>,
    /// Called once when a peer refuses this process permanently: another or a later process
    /// represents its host, or its directory is an empty one in the place of another disk. The node
    /// must stop. Like `removed`, never from within a call of the owner's.
    pub superseded: Rc<dyn Fn(NodeId, HandshakeRefusal)>,
    /// Decides about hosts that ask to join.
    pub joins: JoinHandler,
    /// Handles enrolment requests.
    pub enrolments: EnrolHandler,
    /// The certificate of this node, if connections between nodes are encrypted.
    pub tls: Option<TlsAcceptor>,
    /// Records hosts that are not admitted, and callers without a valid certificate.
    pub audit_log: AuditLog,
    /// Bounds of queues and times.
    pub limits: TransportLimits,
}

/// Bounds of a transport. The defaults are the constants of these modules.
#[derive(Clone, Copy, Debug)]
pub struct TransportLimits {
    /// Bounds of the queue towards each peer.
    pub queue: QueueLimits,
    /// A handshake that takes longer is abandoned.
    pub handshake_timeout: Duration,
    /// How long queued frames may still be written when the transport stops or a peer is removed.
    pub stop_timeout: Duration,
    /// Bounds of the waits between two attempts to reach a peer.
    pub backoff: BackoffLimits,
    /// If a peer refuses this process for this long because it has a link with another process of
    /// the same host, this process is superseded.
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

/// The connections of one node to its peers. Dropping it cuts them; [`Transport::stop`] closes
/// them.
pub struct Transport {
    links: Rc<Links>,
    stopping: watch::Sender<bool>,
    tasks: RefCell<JoinSet<()>>,
}

impl Transport {
    /// Starts to listen and to dial. No event is raised before this returns.
    ///
    /// # Panics
    /// Outside of a context for local tasks, such as a [`tokio::runtime::LocalRuntime`].
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

    /// Replaces the set of peers that this node connects to and accepts. New peers are dialed, or
    /// may dial. A changed address is used at once, unless there is a link, which stays. A removed
    /// peer gets no further frames: what is queued is written for at most
    /// [`TransportLimits::stop_timeout`], then its link is closed and [`Event::LinkDown`] raised.
    /// This node's own entry is the address that it had before. No event is raised from within;
    /// after [`Transport::stop`] the call has no effect.
    ///
    /// # Panics
    /// Outside of a context for local tasks, such as a [`tokio::runtime::LocalRuntime`].
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
                tasks.spawn_local(wake_up::run(self.links.clone(), peer));
            }
        }
    }

    /// Queues a frame to a peer. Without a link, or with a full queue, the frame is dropped and
    /// counted; if it may not be dropped, a full queue cuts the link. No event is raised from
    /// within.
    ///
    /// # Panics
    /// If the payload is empty or longer than [`tidelock_core::limits::PEER_FRAME_BYTES_MAX`].
    pub fn send(&self, frame: OutgoingFrame) {
        self.links.send(frame);
    }

    /// Totals since the start.
    pub fn counters(&self) -> Arc<TransportCounters> {
        self.links.counters.clone()
    }

    /// Which peers refuse this node; kept up to date.
    pub fn refusals(&self) -> Arc<PeerRefusals> {
        self.links.refusals.clone()
    }

    /// Stops listening and dialing, writes what is queued, closes all links and raises their
    /// [`Event::LinkDown`], within [`TransportLimits::stop_timeout`]. Call it once; frames sent
    /// afterwards are dropped.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        self.links.close_all();
        let mut tasks = self.tasks.take();
        while let Some(ended) = tasks.join_next().await {
            listener::propagate_panic(ended);
        }
    }
}
