//! The store as a pure function: [`Node::handle`](node::Node::handle) takes an event,
//! [`Node::drive`](node::Node::drive) returns actions.
//!
//! This crate owns the decisions of Tidelock: consensus, the state machines, routing, and the
//! formats of the wire and the disk. It deliberately has no sockets, files, clocks, threads or
//! unseeded randomness. The server drives it from epoll and the disk; the simulator drives the same
//! code from a seed.
//!
//! The compiler enforces this: the crate is `no_std`, so `std::net`, `std::fs`, `std::time` and
//! `std::thread` do not exist here. (`crc32c` and `raft` link `std`; neither does I/O.)
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address_book;
pub mod audit;
pub mod auth;
pub mod certified_host;
pub mod clients;
pub mod codec;
pub mod command;
pub mod control;
pub mod decimal;
pub mod deliberate;
pub mod event;
pub mod fairness;
pub mod formats;
pub mod founding;
pub mod handshake;
pub mod limits;
mod load;
pub mod machine;
pub mod membership;
pub mod node;
mod peer;
pub mod placement_policy;
mod raft;
mod router;
pub mod scan;
pub mod slots;
pub mod spans;
pub mod starts;
pub mod storage;
pub mod topology;
pub mod trace;
pub mod types;
pub mod version;
