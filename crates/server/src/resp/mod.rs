//! The Redis protocol: every client of Redis is one of ours.
//!
//! From bytes to the store and back, a room each:
//!
//! ```text
//! socket ─ bytes ─► frame ─ arguments ─► dispatch ─► commands/* ─ operations ─► lanes ─ one command a shard ─► store
//! socket ◄─ one write ─ connection ◄─ encode ◄─ slots, in the order of the commands ◄─ lanes ◄─ one mailbox ──┘
//! ```
//!
//! `frame` finds commands in bytes, `encode` spells replies; neither knows a socket. `dispatch` holds the table of commands,
//! `commands` what each does, `session` what one client has asked and is owed. `lanes` keeps the order of a client's operations and
//! makes few commands of many, `slots` keeps the order of its replies. `connection` moves the bytes, `server` accepts.
//!
//! What is supported, and how it differs from Redis, stands in `docs/resp.md`.

mod access;
mod commands;
mod connection;
pub(crate) mod dispatch;
mod encode;
pub mod frame;
mod glob;
mod lanes;
mod server;
mod session;
mod slots;

pub use server::{Entrances, serve};

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::clock::WallClock;
use crate::counters::{Counter, PerWorker};
use crate::memory::Memory;
use dispatch::{Family, Table};

/// Most connections open at a time. The one above is told so and closed.
pub const CONNECTIONS_MAX: usize = 10_000;

/// How long a client may take none of the bytes that it is owed before its connection is cut.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a shutdown waits for what is in flight, and for clients to take their replies.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What an operator may set.
#[derive(Clone, Copy, Debug)]
pub struct RespOptions {
    /// See [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// See [`STALL_TIMEOUT`].
    pub stall_timeout: Duration,
    /// See [`DRAIN_TIMEOUT`].
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
    /// Limits.
    pub options: RespOptions,
    /// What relative times are counted from.
    pub clock: WallClock,
    /// When the server started.
    pub started: Instant,
    /// Raised by this server.
    pub counters: PerWorker<RespCounters>,
    /// The commands.
    pub table: Table,
    /// What clients of the whole node may make it hold.
    pub memory: Memory,
    /// What is read from a socket comes here first, so that no connection needs a large buffer of its own.
    read_buffer: RefCell<Box<[u8]>>,
}

/// Read from a socket at a time.
const READ_BYTES: usize = 64 << 10;

impl RespContext {
    /// For a server that starts now.
    pub fn new(options: RespOptions, clock: WallClock) -> RespContext {
        RespContext {
            options,
            clock,
            started: Instant::now(),
            counters: PerWorker::default(),
            table: Table::new(),
            memory: Memory::default(),
            read_buffer: RefCell::new(vec![0; READ_BYTES].into()),
        }
    }
}

/// Numbers of the server of one worker.
#[derive(Debug, Default)]
pub struct RespCounters {
    /// Commands by family.
    pub commands: CommandCounters,
    /// Connections taken.
    pub connections_accepted: Counter,
    /// Connections open now.
    pub connections_open: Counter,
    /// Connections that there was no room for.
    pub connections_refused: Counter,
    /// Connections that were cut because their clients took nothing.
    pub connections_stalled: Counter,
    /// Connections that were closed because their clients sent no commands, or too large ones.
    pub protocol_errors: Counter,
    /// Connections that could not be accepted for want of descriptors or memory.
    pub accept_errors: Counter,
}

/// Commands by family.
#[derive(Debug, Default)]
pub struct CommandCounters([Counter; Family::ALL.len()]);

impl RespCounters {
    /// What all workers have counted.
    pub fn sum(workers: &PerWorker<RespCounters>) -> RespCounters {
        let sum = RespCounters::default();
        for worker in workers.all() {
            for (count, others) in sum.all().zip(worker.all()) {
                count.add(others.get());
            }
        }
        sum
    }

    fn all(&self) -> impl Iterator<Item = &Counter> {
        let connections = [
            &self.connections_accepted,
            &self.connections_open,
            &self.connections_refused,
            &self.connections_stalled,
            &self.protocol_errors,
            &self.accept_errors,
        ];
        self.commands.0.iter().chain(connections)
    }
}

impl CommandCounters {
    /// Counts a command.
    pub fn raise(&self, family: Family) {
        crate::metrics::raise(&self.0[family as usize]);
    }

    /// Commands of a family.
    pub fn of(&self, family: Family) -> u64 {
        self.0[family as usize].get()
    }

    /// All commands.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }
}
