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

/// What the store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The key's value.
    Value {
        /// The version of this value.
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
        /// The version of the watched key, [`Version::ABSENT`] if there is no such key; for a restore
        /// the shard's revision, for a change of the registry its version.
        current: Version,
    },
    /// Replies to operations, one for each.
    Operations(OperationReplies),
    /// Overdue keys were removed.
    Expired {
        /// Number of keys removed.
        keys: u64,
    },
    /// One page of a list.
    Page(Page),
    /// One step of a scan.
    Scanned {
        /// The keys of this step.
        keys: Vec<Bytes>,
        /// Where the next step continues; `None` at the end of the shard.
        next: Option<u64>,
    },
    /// Number of keys.
    Count(u64),
    /// The registry holds the host.
    Registered,
    /// The host belongs to the cluster.
    Joined {
        /// The node number of the host.
        node: NodeId,
        /// Its replica of the prime shard, through which it learns the registry.
        replica: ReplicaId,
    },
    /// The registry holds the change.
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
    /// The keys are restored.
    Restored,
    /// Answer to [`Request::SnapshotHere`]: for each shard, the index that its next durable
    /// snapshot contains at least. Index 0: nothing was ever applied, and there will be no
    /// snapshot.
    Snapshots(Vec<(ShardId, LogIndex)>),
    /// Answer to [`Request::Cluster`].
    Cluster(ClusterView),
    /// Answer about configuration.
    Config(ConfigReply),
    /// Answer to [`Request::Registry`].
    Registry(RegistryView),
    /// Answer to [`Request::Explain`].
    Explained(Explanation),
    /// The shard was added.
    ShardAdded {
        /// Its number.
        shard: ShardId,
    },
    /// Moves of slots were planned; none if the slots are already placed as requested.
    Moving {
        /// Number of moves added.
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
        /// The shard's answer.
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

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In byte order of the keys.
    pub items: Vec<Item>,
    /// Pass as `after` for the next page; `None` when the list is complete.
    pub next: Option<Bytes>,
}

/// One key of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: Bytes,
    /// Its version.
    pub version: Version,
    /// Its value; `None` if the list asked for keys only.
    pub value: Option<Bytes>,
    /// When it expires; `None`: never.
    pub expires: Option<UnixMillis>,
}
