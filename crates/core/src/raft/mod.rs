//! Consensus: the only module that uses the engine, crates.io `raft` 0.7.0 (TiKV's).
//!
//! [`Group`] is one replica of one shard. It takes commands, messages, ticks and reports of
//! durability, and puts into an [`Output`] what the node should send, write and answer. No code
//! outside sees an engine type. Messages and entries cross the wire and the disk in our own
//! encoding ([`wire`]), so protobuf never parses a byte from outside.
//!
//! How Raft is used here, and what is left out:
//! - Waiting commands are batched into one entry ([`proposals`]); one to four entries are in
//!   flight.
//! - Append is asynchronous: a leader sends while its own disk still writes; a follower's
//!   acknowledgement waits for its disk ([`ready`]).
//! - Linearizable reads use ReadIndex on every replica ([`reads`]). There are no lease reads,
//!   because a lease relies on clocks.
//! - Pre-vote and check-quorum are enabled. Election jitter comes from the seeded generator,
//!   because the engine would draw it from the thread's.
//! - Snapshots are sent in parts beside the engine's messages ([`sending`]), and the log is cut up
//!   to them ([`snapshots`]).
//! - Membership changes one step at a time, several votes at once through a joint configuration
//!   ([`membership`]).

mod contradiction;
#[cfg(test)]
mod describe;
mod elections;
mod group;
mod groups;
mod log_store;
mod membership;
mod proposals;
mod reads;
mod ready;
mod sending;
mod snapshots;
mod stalls;
mod trace;
mod wire;

#[cfg(test)]
pub(crate) use describe::describe as describe_message;
pub use group::{Group, GroupOptions, ProposeError};
pub(crate) use groups::Groups;
pub(crate) use membership::{Wanted, changes_of, encode_change};
pub(crate) use proposals::encode_writes;
pub use ready::{Output, ReadDone};
pub(crate) use stalls::Disks;
pub(crate) use wire::skip as skip_message;
