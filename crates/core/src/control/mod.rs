//! Desired cluster state, kept on the prime shard, and the way from what is to what is wanted.
//!
//! - [`registry`]: which hosts, shards and replicas there are, and what is wanted of each.
//! - [`slot_map`]: which shard holds which keys.
//! - [`slot_set`]: sets of hash slots.
//! - [`rebalance`]: which slots should move.
//! - [`placement`]: what should be wanted where, and why.
//! - `reconcile`: the next change of a shard's membership towards what is wanted.

pub mod placement;
pub mod rebalance;
pub(crate) mod reconcile;
pub mod registry;
pub mod slot_map;
pub mod slot_set;
