//! The commands of all protocols: HTTP, RESP and the dialects translate their requests to
//! [`Request`] and [`Reply`] to their answers.
//!
//! Owns what a client can ask and what the store can answer. It knows no protocol, and no protocol
//! adds a meaning that is not expressible here.

pub mod config;
pub mod migration;
mod operation;
mod operations;
mod outcome;
mod placement;
mod read;
mod registry;
mod reply;
mod restoration;
mod transaction;
mod view;
mod write;

use alloc::borrow::Cow;

use crate::limits;
pub use crate::topology::{HostInfo, HostRole};
use crate::types::{NodeId, ShardId, Version};
pub use config::{ConfigRead, ConfigReply, ConfigRestoration, ConfigWrite};
pub use migration::{Import, Move, MoveReply, MoveStep};
pub use operation::{Expiry, ExpiryCondition, Operation, Set, SetCondition};
pub(crate) use operation::{expiry, put_expiry};
pub use operations::{Operations, OperationsBuilder};
pub use outcome::{
    Exchange, OperationReplies, OperationRepliesBuilder, OperationRepliesReader, OperationReply, Rejection,
};
pub use placement::{Assignment, ShardTags};
pub use read::Read;
pub use registry::{Denial, HostChange, RegistryWrite};
pub use reply::{Item, Page, Reply};
pub use restoration::{Discard, Restoration, RestoreWrite, RestoredKey, RowLayout};
pub use transaction::{Transaction, Watch};
pub use view::{
    Checkpoint, ClusterView, Explained, Explanation, HostView, PeerClock, RegistryView, ReplicaView,
    ShardView,
};
pub use write::{CheckedWrite, Write};

/// What a client asks of any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Changes state through the log. Linearizable.
    Write(Write),
    /// Reads state, without an entry in the log.
    Read {
        /// The query, which one shard or all shards answer.
        read: Read,
        /// How fresh the answer must be.
        consistency: Consistency,
    },
    /// What this node knows of the cluster. Answered at once, see [`ClusterView`].
    Cluster,
    /// The tables of the registry as this node has applied them. Answered at once by
    /// [`Reply::Registry`].
    Registry,
    /// Why each replica of a shard is placed where it is. Answered at once by [`Reply::Explained`],
    /// or by a refusal if there is no such shard.
    Explain {
        /// Any shard of the registry, including the prime shard.
        shard: ShardId,
    },
    /// Asks the leader of a shard to transfer leadership to the replica on another node. Answered
    /// at once by [`Reply::Asked`] or a refusal; [`Request::Cluster`] then shows the leader.
    Transfer {
        /// Any shard of the registry, including the prime shard.
        shard: ShardId,
        /// The node that should lead. Its replica must vote.
        to: NodeId,
    },
    /// Begins a snapshot of what this node has applied of every shard, without asking other nodes.
    /// It serves the backup of a node that has no majority. Answered at once by
    /// [`Reply::Snapshots`].
    SnapshotHere,
}

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Reflects every write acknowledged before the read began, on any node (ReadIndex, Raft thesis
    /// section 6.4).
    Linearizable,
    /// Reflects what this replica has applied; never waits.
    Stale,
}

/// When a write is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Whatever version the key has, also if it does not exist.
    Always,
    /// Only if the key has this version; [`Version::ABSENT`] demands that the key does not exist.
    Version(Version),
    /// Only if the key exists, with any version.
    Exists,
}

/// Why there is no answer. Only `UnknownOutcome` leaves open whether the request took effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No leader was known or reachable by the deadline. The request did not and will not take
    /// effect.
    #[error("no leader for the key's shard is known or reachable; nothing was done")]
    NoLeader,
    /// The command was passed on and its outcome is not known by the deadline. It may have taken
    /// effect or may still do so.
    #[error("the outcome is unknown: the write may or may not have happened")]
    UnknownOutcome,
    /// A bounded queue is full. The request did not and will not take effect.
    #[error("the node is overloaded; nothing was done")]
    Overloaded,
    /// The disk of the shard's leader, or the disks of a majority of its replicas, take no writes
    /// for now. For a read: the disk of this node takes no writes, and its replica has fallen
    /// behind. The request did not and will not take effect.
    #[error("the disk of the shard's leader, or of this node, cannot be written now; nothing was done")]
    DiskUnavailable,
    /// The keys of one command do not belong to one shard, or not to the shard that it names. The
    /// request did not and will not take effect.
    #[error("the keys of one command do not belong to one shard; nothing was done")]
    CrossShard,
    /// The shard does not own the slot of a key, because the slot moved or is being moved. The
    /// request did not take effect. Nodes retry it at the shard that owns the slot, so it never
    /// reaches a client.
    #[error("the slot of the key is being moved to another shard; nothing was done")]
    NotHere,
    /// The request breaks a limit or an invariant of the commands. It did not and will not take
    /// effect.
    #[error("invalid request: {0}")]
    Invalid(Cow<'static, str>),
}

impl Refusal {
    /// [`Refusal::Invalid`] for a reason, which says what the request breaks.
    pub const fn invalid(reason: &'static str) -> Refusal {
        Refusal::Invalid(Cow::Borrowed(reason))
    }
}

impl Request {
    /// Whether its effect depends on the time at which the shard's leader proposes it.
    pub fn needs_clock(&self) -> bool {
        matches!(self, Request::Write(write) if write.needs_clock())
    }
}

impl Condition {
    /// Whether a key of version `current` ([`Version::ABSENT`] if it does not exist) satisfies the
    /// condition.
    pub fn holds(self, current: Version) -> bool {
        match self {
            Condition::Always => true,
            Condition::Version(version) => version == current,
            Condition::Exists => current != Version::ABSENT,
        }
    }
}

fn validate_value(value: &[u8]) -> Result<(), Refusal> {
    if value.len() > limits::VALUE_BYTES_MAX {
        return Err(Refusal::invalid("value longer than 1 MiB"));
    }
    Ok(())
}

/// Refuses an empty key, and one longer than [`limits::KEY_BYTES_MAX`].
pub fn validate_key(key: &[u8]) -> Result<(), Refusal> {
    if key.is_empty() {
        return Err(Refusal::invalid("empty key"));
    }
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(Refusal::invalid("key longer than 4 KiB"));
    }
    Ok(())
}
