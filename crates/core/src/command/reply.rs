//! What the store answers, by the kind of the request.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;

use super::config::{ConfigError, ConfigReply, ConfigWritten};
use super::{
    ClusterView, Denial, Explanation, FlushReply, FlushedPart, KeyChanges, LeaseId, LeaseReply, LeaseView,
    LoadView, LockReply, LockView, MoveReply, OperationReplies, OperationReply, Refusal, RegistryView,
};
use crate::audit::AuditRecord;
use crate::auth::{Access, Authorities};
use crate::slots::slot_set::SlotSet;
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, UnixMillis, Version};

/// The answer to a [`Request`](super::Request).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Answer to [`Request::Write`](super::Request::Write).
    Write(WriteReply),
    /// Answer to [`Request::Read`](super::Request::Read).
    Read(ReadReply),
    /// Answer to a request that the asked node answers itself.
    Node(NodeReply),
    /// Answer to [`Request::Flush`](super::Request::Flush).
    Flushed(FlushReply),
    /// No answer to [`Read::Scan`](super::Read::Scan): the slot map has changed since the iteration
    /// began. The iteration must start over to return every key.
    SlotsMoved,
    /// Not done, or not known to be done.
    Refused(Refusal),
}

impl Reply {
    /// The replies to the operations of a write or a read.
    pub fn operations(&self) -> Option<&OperationReplies> {
        match self {
            Reply::Write(reply) => reply.operations(),
            Reply::Read(reply) => reply.operations(),
            _ => None,
        }
    }

    /// The reply to the operation, if the command had exactly one.
    pub fn only(&self) -> Option<OperationReply<'_>> {
        self.operations()?.only()
    }
}

/// The answer of a shard that has applied a [`Write`](super::Write).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteReply {
    /// Answer to [`Write::Keys`](super::Write::Keys): replies to the operations, one for each.
    Operations(OperationReplies),
    /// Answer to [`Write::Conditional`](super::Write::Conditional).
    Branched {
        /// Whether all comparisons held.
        succeeded: bool,
        /// The replies to the operations of the branch that was applied, one for each.
        replies: OperationReplies,
    },
    /// Another transaction of the slot has the same id; nothing changed.
    IdReused,
    /// A condition did not hold; nothing changed.
    ConditionFailed {
        /// The version of the watched key, [`Version::ABSENT`] if there is no such key; for a
        /// restore the shard's revision, for a change of the registry its version.
        current: Version,
    },
    /// Overdue keys were removed, and overdue leases have ended.
    Expired {
        /// Number of keys removed; at most the `limit` of the command, apart from the keys of
        /// leases.
        keys: u64,
    },
    /// Answer to [`Write::Flush`](super::Write::Flush).
    Flushed(FlushedPart),
    /// Answer to [`Write::Lease`](super::Write::Lease).
    Lease(LeaseReply),
    /// Answer to [`Write::Lock`](super::Write::Lock).
    Lock(LockReply),
    /// Answer to [`Write::Config`](super::Write::Config). If it fails, nothing changed.
    Config(Result<ConfigWritten, ConfigError>),
    /// Answer to a step of a move of slots.
    Move(MoveReply),
    /// The shard holds all keys of the command, restored now or earlier.
    Restored,
    /// Answer to [`RestoreWrite::Discard`](super::RestoreWrite::Discard).
    Discarded {
        /// Number of keys that remain to be removed.
        keys_left: u64,
    },
    /// Answer to [`RegistryWrite::RegisterHost`](super::RegistryWrite::RegisterHost): the registry
    /// holds the announcement.
    Registered,
    /// Answer to [`RegistryWrite::JoinHost`](super::RegistryWrite::JoinHost): the host belongs to
    /// the cluster.
    Joined {
        /// The node number of the host.
        node: NodeId,
        /// Its replica of the prime shard, through which it learns the registry.
        replica: ReplicaId,
    },
    /// The registry holds the change, made now or earlier.
    HostChanged,
    /// The registry refuses the change; nothing changed.
    Denied(Denial),
    /// The shard is in the registry, with its founding replicas.
    ShardAdded {
        /// One above the highest number ever assigned to a shard; never reused.
        shard: ShardId,
    },
    /// Moves of slots were planned; none if the slots are already placed as requested.
    Moving {
        /// Moves that this command added, of any number of slots each.
        moves: u64,
        /// The last move ever planned, including these.
        last: MigrationId,
    },
    /// Answer to [`RegistryWrite::Access`](super::RegistryWrite::Access): the rows are as
    /// requested.
    AccessChanged {
        /// Log index of the last change of any row.
        revision: LogIndex,
    },
    /// The checkpoint is in the log. Replicas make their snapshots now, and report them.
    Checkpointed {
        /// Its index in the log. Each snapshot contains everything up to here.
        index: LogIndex,
    },
}

impl WriteReply {
    /// The reply to a write of one operation.
    pub fn of(reply: &OperationReply<'_>) -> WriteReply {
        WriteReply::Operations(OperationReplies::of(&[*reply]))
    }

    fn operations(&self) -> Option<&OperationReplies> {
        match self {
            WriteReply::Operations(replies) | WriteReply::Branched { succeeded: _, replies } => Some(replies),
            _ => None,
        }
    }

    /// The reply to the operation, if the write had exactly one.
    pub fn only(&self) -> Option<OperationReply<'_>> {
        self.operations()?.only()
    }
}

/// The answer to a [`Read`](super::Read).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadReply {
    /// Answer to [`Read::Get`](super::Read::Get); `None`: there is no such key.
    Value(Option<StoredValue>),
    /// Answer to [`Read::Operations`](super::Read::Operations): one reply for each.
    Operations(OperationReplies),
    /// Answer to [`Read::Scan`](super::Read::Scan).
    Scanned(ScanStep),
    /// Answer to [`Read::Count`](super::Read::Count): the number of keys.
    Count(u64),
    /// Answer to [`Read::List`](super::Read::List) and
    /// [`Read::ConfigNamespaces`](super::Read::ConfigNamespaces), and to
    /// [`Read::Leases`](super::Read::Leases).
    Page(Page),
    /// Answer to [`Read::Changes`](super::Read::Changes).
    Changes(KeyChanges),
    /// Answer to [`Read::Lease`](super::Read::Lease); `None`: there is no such lease.
    Lease(Option<Box<LeaseView>>),
    /// Answer to [`Read::Lock`](super::Read::Lock); `None`: nobody holds the lock, and so nobody
    /// waits for it.
    Lock(Option<Box<LockView>>),
    /// Answer to [`Read::Config`](super::Read::Config).
    Config(Result<ConfigReply, ConfigError>),
}

/// One shard's answer to a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardAnswer {
    /// The slots that the shard owned at the time. Only shards that took part in a move state them,
    /// for a read of many keys; the others cover their founding slots.
    pub owned: Option<SlotSet>,
    /// Computed from the same state as `owned`.
    pub reply: ReadReply,
}

/// The answer of the asked node itself. Large ones are boxed: every [`Reply`] takes as much memory
/// as the largest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReply {
    /// Answer to [`Request::Cluster`](super::Request::Cluster).
    Cluster(Box<ClusterView>),
    /// Answer to [`Request::Registry`](super::Request::Registry).
    Registry(Box<RegistryView>),
    /// Answer to [`Request::Load`](super::Request::Load).
    Load(Box<LoadView>),
    /// Answer to [`Request::Explain`](super::Request::Explain).
    Explained(Explanation),
    /// Answer to [`Request::Transfer`](super::Request::Transfer): the leader was asked. Whether it
    /// complies is not known.
    Asked,
    /// Answer to [`Request::SnapshotHere`](super::Request::SnapshotHere): for each shard, the index
    /// that its next durable snapshot contains at least. Index 0: nothing was ever applied, and
    /// there will be no snapshot.
    Snapshots(Vec<(ShardId, LogIndex)>),
    /// Answer to [`Request::Access`](super::Request::Access).
    Access(Arc<Access>),
    /// Answer to [`Request::Authorities`](super::Request::Authorities).
    Authorities(Arc<Authorities>),
    /// Answer to [`Request::Audit`](super::Request::Audit).
    Audit(Vec<Arc<AuditRecord>>),
    /// Answer to [`Request::Publish`](super::Request::Publish): the next
    /// [`Actions`](crate::event::Actions) deliver the message here and send it to the other nodes.
    Published,
}

impl ReadReply {
    fn operations(&self) -> Option<&OperationReplies> {
        if let ReadReply::Operations(replies) = self { Some(replies) } else { None }
    }

    /// The reply to the operation, if the read had exactly one.
    pub fn only(&self) -> Option<OperationReply<'_>> {
        self.operations()?.only()
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The version that the last write of the key assigned.
    pub version: Version,
    /// The bytes as they were stored.
    pub value: Bytes,
    /// When the key expires; `None`: never.
    pub expires: Option<UnixMillis>,
    /// The lease with which the key ends. Such a key has no expiry. For a held lock, the lease of
    /// the holder. Only [`Read::Get`](super::Read::Get) shows it.
    pub lease: Option<Box<LeaseId>>,
}

/// The result of one step of an iteration over keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanStep {
    /// In byte order. There may be none, even before the end of the shard.
    pub keys: Vec<Bytes>,
    /// Where the next step continues; `None` at the end of the shard.
    pub next: Option<u64>,
}

/// A bounded part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In byte order of the keys.
    pub items: Vec<Item>,
    /// Pass as `after` for the next page; `None` when the list is complete.
    pub next: Option<Bytes>,
}

/// A key or a namespace in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key, or the name of the namespace.
    pub key: Bytes,
    /// The version of the key, or the namespace's revision.
    pub version: Version,
    /// Its value; `None` if the list asked for keys only.
    pub value: Option<Bytes>,
    /// When it expires; `None`: never.
    pub expires: Option<UnixMillis>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reply is moved several times between its shard and its client.
    #[test]
    fn replies_are_small() {
        assert!(size_of::<Reply>() <= 96, "{}", size_of::<Reply>());
        assert!(size_of::<RegistryView>() > 96, "boxed, because it is larger than other replies");
    }
}
