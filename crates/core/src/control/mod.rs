//! Desired cluster state, kept on the prime shard, and the way from what is to what is wanted.
//!
//! - [`registry`]: which hosts there are and what is wanted of each.
//! - [`numbering`]: which number the replica of a shard on a host bears.
//! - `reconcile`: the next change of a shard's membership towards what is wanted.
//!
//! Every host carries a replica of every shard; which of them vote is what an operator decides.

pub mod numbering;
pub(crate) mod reconcile;
pub mod registry;
