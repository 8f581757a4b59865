//! The commands of all protocols: HTTP, RESP and the dialects translate their requests to
//! [`Request`] and [`Reply`] to their answers.
//!
//! Owns what a client can ask and what the store can answer. It knows no protocol, and no protocol
//! adds a meaning that is not expressible here.

mod access;
mod audit;
mod authority;
mod conditional;
pub mod config;
mod demands;
mod denial;
mod division;
mod flush;
mod leadership;
mod lease;
mod lease_block;
mod lock;
pub mod migration;
mod operation;
mod operations;
mod outcome;
mod placement;
mod publication;
mod read;
mod refusal;
mod registry;
mod reply;
mod restoration;
mod slot_move;
mod transaction;
mod view;
mod vote_exchange;
mod watch;
mod write;

use crate::limits;
pub use crate::topology::{HostInfo, HostRole};
use crate::types::{NodeId, ShardId, Version};
pub use access::{AccessChange, AccessWrite};
pub use audit::{AdminAction, AuditedWrite};
pub use authority::{AuthorityChange, AuthorityWrite};
pub use conditional::{Comparison, ConditionalTransaction, ExpectedState, KeptOutcome, TransactionId};
pub use config::{ConfigRead, ConfigReply, ConfigRestoration, ConfigWrite};
pub use denial::Denial;
pub use division::{DivisionBlocker, DivisionCause, DivisionView, HostLoad};
pub use flush::{Flush, FlushReply, FlushedPart};
pub use leadership::{LeaderLoad, LeadershipTransfer};
pub use lease::{LeaseId, LeaseReply, LeaseTag, LeaseView, LeaseWrite};
pub(crate) use lease_block::blocks_of;
pub use lease_block::{LeaseRecord, check_lease_block, for_each_lease_record, is_lease_block};
pub use lock::{LockClient, LockOperation, LockReply, LockView, LockWrite};
pub use migration::{Import, Move, MoveReply, MoveStep};
pub use operation::{Expiry, ExpiryCondition, Operation, Set, SetCondition, hash_of};
pub(crate) use operation::{expiry, put_expiry};
pub use operations::{Operations, OperationsBuilder};
pub use outcome::{
    Exchange, OperationReplies, OperationRepliesBuilder, OperationRepliesReader, OperationReply, Rejection,
};
pub use placement::{Assignment, ShardTags};
pub use publication::Publication;
pub use read::Read;
pub use refusal::{Refusal, ShardError, ShardRefusal};
pub use registry::{HostChange, RELEASE_TAG, RegistryWrite};
pub use reply::{Item, NodeReply, Page, ReadReply, Reply, ScanStep, ShardAnswer, StoredValue, WriteReply};
pub use restoration::{Discard, Restoration, RestoreWrite, RestoredKey, RowLayout};
pub(crate) use restoration::{end, put_end};
pub use slot_move::{HotSlotMove, HotSlotMoveView};
pub use transaction::{Transaction, Watch};
pub use view::{
    Checkpoint, ClusterView, Explained, Explanation, HostView, HotKey, LoadView, PeerClock, RegistryView,
    ReplicaView, ShardLoad, ShardView, VersionView,
};
pub use vote_exchange::VoteExchange;
pub use watch::{ChangedKeys, KeyChange, KeyChanges, KeyContent, KeyScope};
pub use write::{CheckedWrite, LeaseExpiry, Write};

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
    /// [`NodeReply::Registry`].
    Registry,
    /// What this node's clients asked for recently. Answered at once by [`NodeReply::Load`].
    Load {
        /// Maximum number of keys, and of prefixes.
        most: usize,
    },
    /// The roles, principals and tokens as this node has applied them. Answered at once by
    /// [`NodeReply::Access`].
    Access,
    /// The cluster's CAs with their private keys, and the join tokens, as this node has applied
    /// them. Answered at once by [`NodeReply::Authorities`].
    Authorities,
    /// Records of administrative changes as this node has applied them, the newest first. Answered
    /// at once by [`NodeReply::Audit`].
    Audit {
        /// Returns only records with sequence numbers below this; `None` starts at the newest one.
        before: Option<u64>,
        /// Maximum number of records, at most [`limits::AUDIT_PAGE_MAX`].
        most: usize,
    },
    /// Why each replica of a shard is placed where it is. Answered at once by
    /// [`NodeReply::Explained`], or by a refusal if there is no such shard.
    Explain {
        /// Any shard of the registry, including the prime shard.
        shard: ShardId,
    },
    /// Asks the leader of a shard to transfer leadership to the replica on another node. Answered
    /// at once by [`NodeReply::Asked`] or a refusal; [`Request::Cluster`] then shows the leader.
    Transfer {
        /// Any shard of the registry, including the prime shard.
        shard: ShardId,
        /// The node that should lead. Its replica must vote.
        to: NodeId,
    },
    /// Removes every key of every data shard. Not atomic: each shard does its part in its own time.
    /// Keys that are written meanwhile may stay or be removed. Answered by [`Reply::Flushed`].
    Flush,
    /// Begins a snapshot of what this node has applied of every shard, without asking other nodes.
    /// It serves the backup of a node that has no majority. Answered at once by
    /// [`NodeReply::Snapshots`].
    SnapshotHere,
    /// Passes a message to the subscribers of a channel on all nodes that this node has a link to.
    /// It is stored nowhere, and may be lost. Answered at once by [`NodeReply::Published`].
    Publish(Publication),
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

impl Request {
    /// Whether its effect depends on the time at which the shard's leader proposes it.
    pub fn needs_clock(&self) -> bool {
        matches!(self, Request::Write(write) if write.needs_clock())
    }

    /// Whether the answer may be as old as what the node has that answers.
    pub fn is_stale_read(&self) -> bool {
        matches!(self, Request::Read { consistency: Consistency::Stale, .. })
    }

    /// A key whose shard serves the request; `None` for requests that several shards or the node
    /// itself answer, and for those that name their shard.
    pub fn routing_key(&self) -> Option<&[u8]> {
        match self {
            Request::Write(Write::Keys(transaction)) => transaction.keys().next(),
            Request::Write(Write::Conditional(transaction)) => transaction.keys().next(),
            Request::Write(Write::Config(write)) => Some(write.namespace.routing_key()),
            Request::Write(Write::Lease(write)) => Some(write.tags().next()?.prefix()),
            Request::Write(Write::Lock(write)) => Some(&write.name),
            Request::Read { read: Read::Get { key } | Read::Lock { name: key }, .. } => Some(key),
            Request::Read { read: Read::Lease { lease }, .. } => Some(lease.tag().prefix()),
            Request::Read { read: Read::Operations { operations, .. }, .. } => {
                Some(operations.iter().next()?.key())
            }
            Request::Read { read: Read::Config(read), .. } => Some(read.namespace.routing_key()),
            _ => None,
        }
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

fn validate_value(value: &[u8]) -> Result<(), ShardRefusal> {
    if value.len() > limits::VALUE_BYTES_MAX {
        return Err(ShardRefusal::invalid("value longer than 1 MiB"));
    }
    Ok(())
}

/// Refuses an empty key, and one longer than [`limits::KEY_BYTES_MAX`].
pub fn validate_key(key: &[u8]) -> Result<(), ShardRefusal> {
    if key.is_empty() {
        return Err(ShardRefusal::invalid("empty key"));
    }
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(ShardRefusal::invalid("key longer than 4 KiB"));
    }
    Ok(())
}
