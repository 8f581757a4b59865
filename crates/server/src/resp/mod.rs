//! The Redis protocol, for any Redis client.
//!
//! The path of a command to the store and back, one module each:
//!
//! ```text
//! socket ─ bytes ─► frame ─ arguments ─► dispatch ─► commands/* ─ operations ─► pipeline
//!                        pipeline ─ one command a shard ─► store ─ one mailbox ─► pipeline
//! socket ◄─ one write ─ connection ◄─ encode ◄─ replies ◄─ results, in order ◄─ pipeline
//! ```
//!
//! `frame` parses commands, `encode` encodes replies; neither does I/O. `dispatch` holds the table
//! of commands, `authentication` who may run them, `commands` what each does, `session` the state
//! of one client, `scripts` the programs that clients send, `tracking` which keys a client caches,
//! `redirects` which other client learns of their changes, `pub_sub` who has subscribed to which
//! channels, `pushes` the messages that answer no command. The pipeline, which the simulator runs
//! too, is [`tidelock_core::clients::pipeline`]. It keeps the order of operations and replies, and
//! combines operations into few commands. `replies` holds the form of each reply. `connection`
//! moves the bytes, `server` accepts.
//!
//! `docs/reference/redis.md` and `redis-commands.md` beside it describe what is supported, and the
//! differences from Redis.

mod authentication;
mod command_latencies;
mod commands;
mod connection;
pub(crate) mod dispatch;
mod dyn_store;
mod encode;
mod executor;
pub mod frame;
pub mod glob;
pub mod pub_sub;
mod pushes;
pub mod redirects;
mod replies;
pub mod scripts;
mod server;
mod session;
mod tracking;

pub use server::{Acceptors, serve};

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::audit_log::AuditLog;
use crate::clock::WallClock;
use crate::counters::PerWorker;
pub use crate::descriptors::CONNECTIONS_MAX;
use crate::memory::Memory;
use crate::metrics::RespCounters;
use crate::throttle::FailureThrottle;
use crate::tls::TlsAcceptor;
use dispatch::CommandTable;
use pub_sub::PubSub;
use redirects::Redirects;
use scripts::Scripts;
use scripts::latches::ScriptLatches;

/// How long a client may accept none of the bytes owed to it before its connection is cut.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a shutdown waits for commands in flight, and for clients to take their replies.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits of the Redis protocol server.
#[derive(Clone, Copy, Debug)]
pub struct RespOptions {
    /// Most connections, see [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Time limit of a client that takes nothing, see [`STALL_TIMEOUT`].
    pub stall_timeout: Duration,
    /// Time limit of a shutdown, see [`DRAIN_TIMEOUT`].
    pub drain_timeout: Duration,
}

impl Default for RespOptions {
    fn default() -> Self {
        RespOptions {
            connections_max: CONNECTIONS_MAX,
            stall_timeout: STALL_TIMEOUT,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }
}

/// What all connections share.
pub struct RespContext {
    /// Limits of connections and times.
    pub options: RespOptions,
    /// The wall clock, to which relative times to live refer.
    pub clock: WallClock,
    /// When the node began to serve, for `INFO`.
    pub started: Instant,
    /// Counters of this worker's server, and those of the other workers for summing.
    pub counters: PerWorker<RespCounters>,
    /// The commands that this server knows, by name.
    pub table: CommandTable,
    /// The scripts of the node, and the thread that runs them.
    pub scripts: Scripts,
    /// The latches of scripts on this worker.
    pub(crate) script_latches: ScriptLatches,
    /// The connections of this node, to which others may redirect their invalidations.
    pub redirects: Arc<Redirects>,
    /// The subscribers of channels on this node.
    pub pub_sub: Arc<PubSub>,
    /// The memory budget of the node for its clients.
    pub memory: Memory,
    /// How soon clients are told that their tokens are wrong.
    pub throttle: Arc<FailureThrottle>,
    /// The audit log of refused requests.
    pub audit_log: AuditLog,
    /// The handshake of new connections; `None`: clients connect without TLS.
    pub tls: Option<TlsAcceptor>,
    /// Whether clients of other machines are refused until tokens are required, as in the protected
    /// mode of Redis.
    pub protected_mode: bool,
    /// Shared by all reads from sockets, so that no connection needs a large buffer of its own.
    read_buffer: RefCell<Box<[u8]>>,
}

/// Bytes that are read from a socket at a time.
const READ_BYTES: usize = 64 << 10;

impl RespContext {
    /// A context of a server that starts now.
    pub fn new(options: RespOptions, clock: WallClock) -> RespContext {
        RespContext {
            options,
            clock,
            started: Instant::now(),
            counters: PerWorker::default(),
            table: CommandTable::new(),
            scripts: Scripts::default(),
            script_latches: ScriptLatches::default(),
            redirects: Arc::default(),
            pub_sub: Arc::default(),
            memory: Memory::default(),
            throttle: Arc::default(),
            audit_log: AuditLog::default(),
            tls: None,
            protected_mode: false,
            read_buffer: RefCell::new(vec![0; READ_BYTES].into()),
        }
    }
}
