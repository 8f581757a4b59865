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
//!
//! Invariants of the log. Each is asserted in release builds too, on both sides of a boundary where
//! there are two. Input from disks and peers is refused before it can violate one.
//! - Indexes rise by one, and terms never decrease: checked when a peer's entries are decoded
//!   ([`wire`], refused), asserted when they become visible ([`log_store`]) and when they are
//!   applied ([`applied`]). [`crate::storage::wal`] asserts the indexes once more when it writes
//!   them.
//! - The term, the commit index and the applied index never decrease. What is applied is committed,
//!   and what is committed is in the log: asserted after each `Ready` and after each durable batch
//!   ([`positions`]), term and commit index also when they are written ([`persisting`]).
//! - An applied entry is never replaced: asserted before new entries become visible ([`ready`]).
//! - A replica votes once in a term: asserted when the vote is written, and again when it is sent.
//!   A message leaves only when its term and its vote are durable ([`persisting`]).
//! - An acknowledged entry is durable: its acknowledgement names only entries that were passed to
//!   the disk, asserted when it is queued ([`ready`]), and leaves in the order of the batches,
//!   asserted in the queue ([`persisting`]).
//! - Batches are numbered without gaps, and only a batch that was passed to the shell becomes
//!   durable: asserted when it is passed and when it is reported (`node`).
//! - The log is released and cut only up to a durable snapshot, and only as far as it is durable
//!   itself: asserted when it is released ([`snapshots`]) and when it is cut ([`log_store`]).
//! - A snapshot is newer than the applied state that it replaces, and parts of an older one are
//!   refused: asserted when the log restarts and when the state is installed ([`applied`]).
//! - A proposal appends one entry, and each of its commands has one waiter: asserted when it is
//!   proposed ([`group`], [`proposals`]) and when it is applied ([`ready`]).
//! - A read waits for a round that began after it arrived: asserted when the round begins and when
//!   it is confirmed ([`reads`]). The confirmed index may come from a peer. If it is lower than
//!   that of an earlier round, the earlier one counts.

mod applied;
mod contradiction;
#[cfg(test)]
mod describe;
mod elections;
#[cfg(test)]
mod fixture;
mod group;
mod groups;
mod leadership;
mod log_store;
mod lost_entries;
mod members;
mod membership;
mod persisting;
mod positions;
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
pub(crate) use membership::{Wanted, changes_of, decode as decode_change, encode_change};
pub(crate) use proposals::{decode_entry, encode_writes, writes_of};
pub use ready::{Output, ReadDone};
pub(crate) use stalls::Disks;
pub(crate) use wire::{decode as decode_message, encode as encode_message, skip as skip_message};
