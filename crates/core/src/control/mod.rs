//! Desired cluster state, kept on the prime shard: which hosts there are.
//!
//! Placement and reconciliation move in here when nodes can join.

pub mod registry;
