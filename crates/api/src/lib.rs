//! The bodies of the HTTP API below `/v1`, as types that the server serializes and clients parse.
//!
//! Owns the names and the order of JSON members. Does no I/O, and knows neither the core's types
//! nor the meaning of a request: the server translates between these types and the core's.
//!
//! Rules, because nodes and clients of different releases talk to each other:
//! - An answer's members are never removed. A client ignores members that it does not know.
//! - A member that is added to an answer later is an `Option` or has a default, because older nodes
//!   leave it out. All other members are required: an answer without one is not an answer of a
//!   node, and a client must not take a missing member for `false` or 0.
//! - A set of words that may grow has the variant `Unknown` for words of later releases.
//! - A request with an unknown member is refused, because the server would otherwise ignore a wish
//!   of the client.
//!
//! Numbers of nodes, shards and replicas are those in logs and metrics.

pub mod atomics;
pub mod checkpoints;
pub mod clients;
pub mod cluster;
pub mod keys;
pub mod membership;
pub mod shards;
pub mod slots;
