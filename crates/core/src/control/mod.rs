//! Wanted cluster state, kept on the prime shard, and the steps that bring the cluster to it.
//!
//! - [`registry`]: the hosts, shards and replicas, and the wanted state of each.
//! - [`division`]: whether there should be another data shard.
//! - [`leaderships`]: which node should lead which shard.
//! - [`rebalance`]: which slots should move so that shards own equally many.
//! - [`slot_balance`]: which hot slots should move from the busiest shard.
//! - [`placement`]: which replica each host should have, and why.
//! - [`progress`]: what a requested change still waits for.
//! - `reconcile`: the next change of a shard's membership towards the wanted one.

pub mod access;
pub mod authorities;
pub mod division;
pub mod leaderships;
pub mod placement;
pub mod progress;
pub mod rebalance;
pub(crate) mod reconcile;
pub mod registry;
pub mod slot_balance;
