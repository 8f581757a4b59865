//! The HTTP interface: turns bytes on a socket into [`Request`](tidelock_core::command::Request)s
//! to the store, and replies into answers.
//!
//! Owns the routes, their parameters and answers, and every limit on the way;
//! `docs/reference/http.md` describes it for users. It decides nothing about data: each route is
//! one request to the store, whose reply it encodes.
//!
//! A request passes through the modules in this order:
//!
//! ```text
//! server       accepts, bounds and ends connections; `connections` tracks the state of each;
//!              `hijack` writes streamed answers
//! service      one request: limit of the head, route, counting, discarding the body
//! authority cross_origin          which hosts a request may name, and which pages may change data
//! operations   one row for each method of each path: what there is
//! route        method and path -> endpoint, by these rows
//! authentication                  who sends a request, and the demand of its endpoint
//! metered      what a request uses up of its principal's limits
//! native atomics transactions leases locks list cluster auth membership checkpoint backup
//!              snapshots restore | config | kv1 form | raftdb | health openapi | console
//!                                              the parts, one module each
//!   uri          keys and parameters
//!   folders      keys folded by a delimiter
//!   session      the cookie of a browser that has signed in
//!   conditions   If-Match, If-None-Match and If-Fence
//!   duration ttl   how long something takes or lives
//!   drive        machines of the core that ask the node several times
//!   body         read up to a limit, or discarded
//!   negotiate    Accept
//! response problem json                                 the answer
//! ```
//!
//! Invariants: every request is answered or its connection is ended. A body is read at most up to
//! its limit. The client that caused an error can read the error answer, even if it is still
//! sending.

mod atomics;
mod audit;
mod auth;
mod authentication;
mod authority;
mod backup;
mod body;
mod certificate;
mod certificate_authorities;
mod checkpoint;
mod clients;
mod cluster;
mod conditions;
mod config;
mod connections;
mod console;
mod cross_origin;
mod drive;
mod duration;
mod events;
mod fields;
mod folders;
mod form;
mod health;
mod heartbeat;
mod hijack;
mod json;
mod kv1;
mod leases;
mod list;
mod load;
mod locks;
mod membership;
mod native;
mod negotiate;
mod openapi;
mod operations;
pub mod parsers;
mod problem;
mod raftdb;
mod registry;
mod request_charge;
mod response;
mod restore;
mod route;
mod server;
mod service;
mod session;
mod slots;
mod snapshots;
mod stream_permission;
mod transactions;
mod ttl;
mod uri;
mod version;
mod watch;

pub use authority::AllowedHosts;
pub use config::Documents;
pub use server::serve;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::audit_log::AuditLog;
use crate::backup::BackupSource;
use crate::clients::Clients;
use crate::clock::WallClock;
use crate::counters::PerWorker;
pub use crate::descriptors::CONNECTIONS_MAX;
use crate::disk::DiskSpace;
use crate::memory::Memory;
use crate::metrics::history::MetricsHistory;
use crate::metrics::{DiskCounters, HttpCounters, RespCounters, SnapshotCounters};
use crate::offload::Offload;
use crate::remote::HandoverCounters;
use crate::secrets::SecretKeys;
use crate::spans::Tracer;
use crate::throttle::FailureThrottle;
use crate::tls::TlsAcceptor;
use crate::transport::{PeerRefusals, TransportCounters};
use crate::turns::TurnGauges;
use uuid::Uuid;

/// Longest request line and headers together, in bytes: holds the longest key with every byte
/// percent-encoded (12 KiB) and ordinary headers.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Longest request body in bytes. A value is at most 1 MiB; a form that carries one may need three
/// bytes for each of its bytes.
pub const BODY_BYTES_MAX: usize = 8 << 20;

/// How long a request head may take to arrive: long enough for any network, too short for a client
/// that sends a byte a minute to hold a connection.
pub const HEAD_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be idle between requests, or accept no byte of an answer. Longer than
/// the pools of common clients keep connections (Go: 90 s), so that the client closes first.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a body may take to arrive.
pub const BODY_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a shutdown waits for requests in flight before it cuts the connections. Every request
/// to the store ends by its own, shorter deadline; what remains are clients that do not read.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits of the HTTP server.
#[derive(Clone, Copy, Debug)]
pub struct HttpOptions {
    /// Most connections, see [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Longest request head in bytes, see [`HEAD_BYTES_MAX`].
    pub head_bytes_max: usize,
    /// Longest body in bytes, see [`BODY_BYTES_MAX`].
    pub body_bytes_max: usize,
    /// Time limit for a request head, see [`HEAD_READ_TIMEOUT`].
    pub head_read_timeout: Duration,
    /// Time limit of an idle connection, see [`IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// Time limit for a body, see [`BODY_READ_TIMEOUT`].
    pub body_read_timeout: Duration,
    /// Time limit of a shutdown, see [`DRAIN_TIMEOUT`].
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

/// The listen addresses of a node, as the welcome page shows them.
#[derive(Clone, Debug, Default)]
pub struct NodeAddresses {
    /// `HOST:PORT` for HTTP clients.
    pub http: String,
    /// `HOST:PORT` for Redis clients.
    pub resp: String,
    /// `HOST:PORT` for peers.
    pub peer: String,
}

/// What the HTTP server of a worker shares with the rest of its node.
#[derive(Debug, Default)]
pub struct HttpContext {
    /// Limits of connections, heads, bodies and times.
    pub options: HttpOptions,
    /// The id of the cluster, which cursors of watches contain.
    pub cluster: Uuid,
    /// The host names that this node answers for.
    pub allowed_hosts: AllowedHosts,
    /// Shown on the welcome page.
    pub addresses: NodeAddresses,
    /// Warnings for the operator that are not faults, such as listening beyond loopback without
    /// TLS. Shown by `/readyz?verbose`.
    pub warnings: Vec<String>,
    /// Number of listeners that other machines reach without TLS.
    pub insecure_listeners: usize,
    /// Whether clients of other machines are refused until tokens are required, as in the protected
    /// mode of Redis.
    pub protected_mode: bool,
    /// Why the disk takes no writes, while it takes none. Makes the node not ready.
    pub disk_error: Arc<Mutex<Option<String>>>,
    /// The open connections of all protocols.
    pub clients: Clients,
    /// Gauges of the requests that wait for their turns.
    pub turns: Arc<TurnGauges>,
    /// The clock for relative and remaining times to live, and for the timestamps of configuration
    /// changes.
    pub clock: WallClock,
    /// Counters of this worker's HTTP server, and those of the other workers for summing.
    pub counters: PerWorker<HttpCounters>,
    /// Counters of this worker's Redis protocol server, and those of the others.
    pub resp: PerWorker<RespCounters>,
    /// Counters of this worker's hand-overs, if it is not the owning worker.
    pub handovers: PerWorker<HandoverCounters>,
    /// The last hour of the node.
    pub history: Arc<MetricsHistory>,
    /// Counters of the write-ahead log, raised by the disk thread.
    pub disk: DiskCounters,
    /// Counters of snapshots, raised by the snapshot thread.
    pub snapshots: SnapshotCounters,
    /// Counters of the peer transport.
    pub transport: Arc<TransportCounters>,
    /// Which peers refuse this node.
    pub refusals: Arc<PeerRefusals>,
    /// The memory budget of the node for its clients.
    pub memory: Memory,
    /// Cache of encoded containers of configuration.
    pub documents: Documents,
    /// Thread that parses and encodes large documents.
    pub offload: Offload,
    /// The handshake of new connections; `None`: clients connect without TLS.
    pub tls: Option<TlsAcceptor>,
    /// How soon clients are told that their tokens are wrong.
    pub throttle: Arc<FailureThrottle>,
    /// The audit log of refused requests.
    pub audit_log: AuditLog,
    /// The keys for secrets of configuration.
    pub secret_keys: SecretKeys,
    /// How much space the data directory has.
    pub space: DiskSpace,
    /// Decides which requests are traced, and takes their spans.
    pub tracer: Tracer,
    /// The source of backups; `None` if backups are not available.
    pub backup: Option<Arc<BackupSource>>,
}
