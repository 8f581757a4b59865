//! What the store answers.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

use super::{
    ClusterView, ConfigReply, Denial, Explanation, MoveReply, OperationReplies, OperationReply, Refusal,
    RegistryView,
};
use crate::slots::slot_set::SlotSet;
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, UnixMillis, Version};

/// The answer to a [`Request`](super::Request).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Answer to [`Read::Get`](super::Read::Get), if the key exists.
    Value {
        /// The version that the last write of the key assigned.
        version: Version,
        /// The bytes as they were stored.
        value: Bytes,
        /// When the key expires; `None`: never.
        expires: Option<UnixMillis>,
    },
    /// There is no such key.
    NotFound,
    /// A condition did not hold; nothing changed.
    ConditionFailed {
        /// The version of the watched key, [`Version::ABSENT`] if there is no such key; for a
        /// restore the shard's revision, for a change of the registry its version.
        current: Version,
    },
    /// Replies to operations, one for each.
    Operations(OperationReplies),
    /// Overdue keys were removed.
    Expired {
        /// Number of keys removed; at most the `limit` of the command.
        keys: u64,
    },
    /// Answer to [`Read::List`](super::Read::List) and
    /// [`Read::ConfigNamespaces`](super::Read::ConfigNamespaces).
    Page(Page),
    /// Answer to [`Read::Scan`](super::Read::Scan): one step of the iteration.
    Scanned {
        /// In byte order. There may be none, even before the end of the shard.
        keys: Vec<Bytes>,
        /// Where the next step continues; `None` at the end of the shard.
        next: Option<u64>,
    },
    /// Answer to [`Read::Count`](super::Read::Count): keys of all shards. For a discard: keys left.
    Count(u64),
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
    /// The leader was asked. Whether it complies is not known.
    Asked,
    /// The checkpoint is in the log. Replicas make their snapshots now, and report them.
    Checkpointed {
        /// Its index in the log. Each snapshot contains everything up to here.
        index: LogIndex,
    },
    /// The shard holds all keys of the command, restored now or earlier.
    Restored,
    /// Answer to [`Request::SnapshotHere`](super::Request::SnapshotHere): for each shard, the index
    /// that its next durable snapshot contains at least. Index 0: nothing was ever applied, and
    /// there will be no snapshot.
    Snapshots(Vec<(ShardId, LogIndex)>),
    /// Answer to [`Request::Cluster`](super::Request::Cluster).
    Cluster(ClusterView),
    /// Answer to [`Write::Config`](super::Write::Config) and [`Read::Config`](super::Read::Config).
    Config(ConfigReply),
    /// Answer to [`Request::Registry`](super::Request::Registry).
    Registry(RegistryView),
    /// Answer to [`Request::Explain`](super::Request::Explain).
    Explained(Explanation),
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
    /// The slot map has changed since an iteration over keys began. The iteration must start over
    /// to return every key.
    SlotsMoved,
    /// Answer of a shard to a step of a move.
    Move(MoveReply),
    /// One shard's answer to a read of many shards, and the slots that it covers. Only shards that
    /// took part in a move state these; the others cover their founding slots. It never reaches a
    /// client.
    Part {
        /// The slots that the shard owned at the time.
        owned: SlotSet,
        /// Computed from the same state as `owned`.
        reply: Box<Reply>,
    },
    /// Not done, or not known to be done.
    Refused(Refusal),
}

impl Reply {
    /// The reply to a command of one operation.
    pub fn of(reply: &OperationReply<'_>) -> Reply {
        Reply::Operations(OperationReplies::of(&[*reply]))
    }

    /// The reply to the operation, if the command had exactly one.
    pub fn only(&self) -> Option<OperationReply<'_>> {
        match self {
            Reply::Operations(replies) => replies.only(),
            _ => None,
        }
    }
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
