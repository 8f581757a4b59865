//! The store as a pure function: [`Node::handle`](node::Node::handle) takes an event, [`Node::drive`](node::Node::drive) returns actions.
//!
//! This crate owns what Tidelock *decides*: consensus, the state machines, routing, the formats of the
//! wire and of the disk. It deliberately owns no socket, file, clock, thread or unseeded randomness. The
//! server feeds it from epoll and the disk, the simulator feeds the very same code from a seed.
//!
//! That purity is a compile error rather than a habit: the crate is `no_std`, so `std::net`, `std::fs`,
//! `std::time` and `std::thread` do not exist here. (`crc32c` and `raft` link `std`; neither does I/O.)
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod codec;
pub mod command;
pub mod control;
pub mod deliberate;
pub mod event;
pub mod fairness;
pub mod limits;
pub mod machine;
pub mod membership;
pub mod node;
mod peer;
mod raft;
mod router;
pub mod scan;
pub mod starts;
pub mod storage;
pub mod types;

pub use router::slots;
