//! Consensus: the only room that names the engine, crates.io `raft` 0.7.0 (TiKV's).
//!
//! [`Group`] is one replica of one shard. It takes commands, messages, ticks and word of durability, and puts into
//! an [`Output`] what is to be sent, written and answered. Nothing outside sees an engine type; messages and
//! entries cross the wire and the disk in our own codec ([`wire`]), so protobuf never parses a byte from outside.
//!
//! How raft is used here, and what is left out:
//! - Commands that wait are aggregated into one entry ([`proposals`]); one to four entries are in flight.
//! - Append is asynchronous: a leader sends while its own disk still writes; a follower's acknowledgement waits for
//!   its disk ([`ready`]).
//! - Linearizable reads use ReadIndex on every replica ([`reads`]); no lease, because a lease trusts a clock.
//! - Pre-vote and check-quorum are on. Election jitter comes from the seeded generator, because the engine would
//!   draw it from the thread's.
//! - Snapshots travel in parts beside the engine's messages ([`snapshots`]), and the log is cut behind them.
//! - Membership changes one step at a time, several votes at once through a joint configuration ([`membership`]).

mod contradiction;
mod group;
mod groups;
mod log_store;
mod membership;
mod proposals;
mod reads;
mod ready;
mod snapshots;
mod stalls;
mod wire;

pub use group::{Group, GroupOptions, ProposeError};
pub(crate) use groups::Groups;
pub(crate) use membership::{Wanted, changes_of, encode_change};
pub use proposals::Outcome;
pub(crate) use proposals::encode_writes;
pub use ready::{Output, ReadDone};
pub(crate) use snapshots::SnapshotPart;
pub(crate) use stalls::{DiskState, Disks};
pub(crate) use wire::skip as skip_message;

use crate::types::NodeId;

/// Names a request over the whole cluster while it is open: the node that took it from a client, through which link
/// it came, and that node's own number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The node that answers the client.
    pub node: NodeId,
    /// The link that it came through; an outcome must not leave through a later one, because the node behind that may
    /// have restarted and given the number away again.
    pub link: LinkNumber,
    /// That node's number for the request.
    pub request: RequestId,
}

/// Counts the links that a node has had with one peer; 0 stands for the node itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkNumber(pub u64);

/// A node's own number for an open request; never reused while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);
