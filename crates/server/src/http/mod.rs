//! The HTTP interface: from bytes on a socket to [`Request`](tidelock_core::command::Request)s of the store and back.
//!
//! Owns the routes, what they accept, what they answer, and every limit on the way; `docs/interfaces.md` describes
//! it for users. It decides nothing about data: each route is one request to the store, whose reply it encodes.
//!
//! A request passes through the rooms in this order:
//!
//! ```text
//! server      accepts, bounds and ends connections; `connections` knows what each is doing, and for how long;
//!             `carry` writes answers that go on as things happen
//! service     one request: limit of the head, route, counting, letting go of the body
//! authority cross_origin          which hosts a request may name, and which pages may change something
//! route       path -> part of the interface
//! native atomics list cluster membership checkpoint backup restore | config | kv1 form | raftdb | health openapi      the parts, one room each
//!     uri          keys and parameters; known_parameters: those that a change takes
//!     conditions   If-Match and If-None-Match
//!     body         read up to a limit, or thrown away
//!     negotiate    Accept
//! response problem json                                 what goes back
//! ```
//!
//! Invariants: every request is answered or its connection is ended; a body is read at most up to its limit; an
//! error answer can be read by the client that caused it, even while it is still sending.

mod atomics;
mod authority;
mod backup;
mod body;
mod carry;
mod checkpoint;
mod clients;
mod cluster;
mod conditions;
mod config;
mod connections;
mod cross_origin;
mod form;
mod health;
mod json;
mod known_parameters;
mod kv1;
mod list;
mod membership;
mod native;
mod negotiate;
mod openapi;
mod problem;
mod raftdb;
mod registry;
mod response;
mod restore;
mod route;
mod server;
mod service;
mod slots;
mod ttl;
mod uri;

pub use authority::AllowedHosts;
pub use config::Documents;
pub use server::serve;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::backup::BackupSource;
use crate::clients::Clients;
use crate::clock::WallClock;
use crate::counters::PerWorker;
use crate::memory::Memory;
use crate::metrics::{DiskCounters, HttpCounters, SnapshotCounters};
use crate::offload::Offload;
use crate::remote::HandoverCounters;
use crate::resp::RespCounters;
use crate::transport::TransportCounters;
use crate::turns::TurnGauges;

/// Most HTTP connections open at a time. Each costs a descriptor and up to a read buffer; the one above is told
/// so and closed.
pub const CONNECTIONS_MAX: usize = 10_000;

/// Longest request line and headers together, in bytes: holds the longest key with every byte percent-encoded
/// (12 KiB) and ordinary headers.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Longest request body in bytes. A value is at most 1 MiB; a form that carries one may spend three bytes on each.
pub const BODY_BYTES_MAX: usize = 8 << 20;

/// How long a request head may take to arrive: long for any network, short for a client that sends a byte a minute
/// to hold a connection.
pub const HEAD_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be idle between requests, or not take any byte of an answer. Longer than the pools of
/// common clients keep connections (Go: 90 s), so that it is they who close.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a body may take to arrive.
pub const BODY_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a shutdown waits for requests in flight before it cuts what is left. Every request to the store ends
/// by its own deadline, which is shorter; what is left is clients that do not read.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What an operator may set.
#[derive(Clone, Copy, Debug)]
pub struct HttpOptions {
    /// See [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// See [`HEAD_BYTES_MAX`].
    pub head_bytes_max: usize,
    /// See [`BODY_BYTES_MAX`].
    pub body_bytes_max: usize,
    /// See [`HEAD_READ_TIMEOUT`].
    pub head_read_timeout: Duration,
    /// See [`IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// See [`BODY_READ_TIMEOUT`].
    pub body_read_timeout: Duration,
    /// See [`DRAIN_TIMEOUT`].
    pub drain_timeout: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            connections_max: CONNECTIONS_MAX,
            head_bytes_max: HEAD_BYTES_MAX,
            body_bytes_max: BODY_BYTES_MAX,
            head_read_timeout: HEAD_READ_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            body_read_timeout: BODY_READ_TIMEOUT,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }
}

/// Where a node listens, for the people who look at it.
#[derive(Clone, Debug, Default)]
pub struct NodeAddresses {
    /// HTTP clients.
    pub http: String,
    /// Redis clients.
    pub resp: String,
    /// Peers.
    pub peer: String,
}

/// What the HTTP server of a worker shares with the rest of its node.
#[derive(Debug, Default)]
pub struct HttpContext {
    /// Limits.
    pub options: HttpOptions,
    /// The names that this node answers for.
    pub allowed_hosts: AllowedHosts,
    /// Shown on the welcome page.
    pub addresses: NodeAddresses,
    /// What an operator should know and is not a fault, such as listening beyond loopback without TLS. Shown by
    /// `/readyz?verbose`.
    pub warnings: Vec<String>,
    /// Why the disk takes no writes, while it takes none. Makes the node not ready.
    pub disk_error: Arc<Mutex<Option<String>>>,
    /// The open connections of all protocols.
    pub clients: Clients,
    /// How requests wait for their turns.
    pub turns: Arc<TurnGauges>,
    /// What relative times to live are counted from, and remaining ones; what changes of configuration are stamped with.
    pub clock: WallClock,
    /// Raised by this server.
    pub counters: PerWorker<HttpCounters>,
    /// Raised by the Redis protocol's server.
    pub resp: PerWorker<RespCounters>,
    /// Raised by the worker when it is not the node's own.
    pub handovers: PerWorker<HandoverCounters>,
    /// Raised by the disk thread.
    pub disk: DiskCounters,
    /// Raised by the thread of snapshots.
    pub snapshots: SnapshotCounters,
    /// Raised by the peer transport.
    pub transport: Arc<TransportCounters>,
    /// What clients of the whole node may make it hold.
    pub memory: Memory,
    /// Containers that were shown before.
    pub documents: Documents,
    /// Where large documents are read and written.
    pub offload: Offload,
    /// Where backups come from; without it there are none.
    pub backup: Option<Arc<BackupSource>>,
}
