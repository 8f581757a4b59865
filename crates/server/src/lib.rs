//! The I/O shell around the core. It decodes requests, encodes replies and moves bytes; every
//! decision is the core's.

pub mod accept;
pub mod access;
pub mod audit_log;
pub mod audited_writes;
pub mod backup;
pub mod clients;
pub mod clock;
pub mod config;
mod consensus_log;
pub mod counters;
pub mod descriptors;
pub mod disk;
mod exchange;
mod handshake_limit;
mod hex;
pub mod http;
pub mod identity;
pub mod identity_store;
pub mod join;
pub mod leaders;
pub mod limiter;
pub mod listen;
pub mod memory;
pub mod metrics;
pub mod offload;
mod peer_http;
pub mod protocol;
pub mod readers;
pub mod remote;
pub mod requests;
pub mod resolve;
pub mod resp;
pub mod secrets;
pub mod secure;
pub mod serve;
pub mod service_manager;
pub mod shutdown;
mod spans;
mod status_log;
pub mod store;
pub mod throttle;
pub mod tls;
pub mod token;
pub mod transport;
pub mod turns;
mod waiting;
pub mod watch;
pub mod worker;
mod worker_pool;
mod wrong_port;

const _: () = assert!(
    cfg!(debug_assertions) || size_of::<tidelock_core::deliberate::Faults>() == 0,
    "a released server is built of a core that cannot be broken on purpose"
);
