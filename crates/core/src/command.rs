//! The commands of all protocols: HTTP, RESP and the dialects translate their requests to
//! [`Request`] and [`Reply`] to their answers.
//!
//! Owns what a client can ask and what the store can answer. It knows no protocol, and no protocol
//! adds a meaning that is not expressible here. `layout` owns the encoding of writes in the Raft
//! log and on the wire.

pub mod config;
mod layout;
pub mod migration;
mod operation;
mod outcome;
mod placement;
mod restoration;
mod transaction;
mod view;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use crate::limits;
use crate::slots::slot_set::SlotSet;
pub use crate::topology::{HostInfo, HostRole};
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, UnixMillis, Version};
pub use config::{ConfigRead, ConfigReply, ConfigRestoration, ConfigWrite};
pub use migration::{Import, Move, MoveReply, MoveStep};
pub use operation::{Expiry, ExpiryCondition, Operation, Operations, OperationsBuilder, Set, SetCondition};
pub(crate) use operation::{expiry, put_expiry};
pub use outcome::{
    Exchange, OperationReplies, OperationRepliesBuilder, OperationRepliesReader, OperationReply, Rejection,
};
pub use placement::{Assignment, ShardTags};
pub use restoration::{Restoration, RestoredKey, RowLayout};
pub use transaction::{Transaction, Watch};
pub use view::{
    Checkpoint, ClusterView, Explained, Explanation, HostView, PeerClock, RegistryView, ReplicaView,
    ShardView,
};

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

/// A change to replicated state, as the log holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Stores `value` under `key` if `condition` holds. Answered by [`Reply::Written`] or
    /// [`Reply::ConditionFailed`].
    Put {
        /// At most [`limits::KEY_BYTES_MAX`] bytes, any bytes.
        key: Bytes,
        /// At most [`limits::VALUE_BYTES_MAX`] bytes, any bytes.
        value: Bytes,
        /// Checked and applied atomically with the write.
        condition: Condition,
    },
    /// Removes `key` if `condition` holds. Answered by [`Reply::Deleted`]; by [`Reply::NotFound`]
    /// if the key does not exist and the condition allows that; or by [`Reply::ConditionFailed`].
    Delete {
        /// Limited as in `Put`. It need not exist.
        key: Bytes,
        /// Checked and applied atomically with the removal.
        condition: Condition,
    },
    /// Adds a host to the registry, on the prime shard only. Each node sends it for itself.
    RegisterHost(HostInfo),
    /// Changes nothing. Every replica that applies it begins a snapshot at exactly the entry that
    /// holds it, so that replicas can be compared and copied at one index. Answered by
    /// [`Reply::Checkpointed`].
    Checkpoint {
        /// Any shard, including the prime shard.
        shard: ShardId,
    },
    /// Restores keys of a backup. Answered by [`Reply::Restored`], or by [`Reply::ConditionFailed`]
    /// with the shard's revision if anything but restores of this backup has written to the shard.
    Restore(Restoration),
    /// Assigns a node number to a host that joins, on the prime shard only. The number inside is
    /// ignored. Answered by [`Reply::Joined`], with the same number for the same uuid, or by
    /// [`Reply::Denied`].
    JoinHost(HostInfo),
    /// Changes the wanted state of a host, on the prime shard only. Answered by
    /// [`Reply::HostChanged`] or [`Reply::Denied`]. The leaders of the shards then reconcile their
    /// membership with it, which takes a while.
    ChangeHost {
        /// A number that the registry has assigned; otherwise [`Denial::UnknownHost`].
        node: NodeId,
        /// The change to its wanted state.
        change: HostChange,
    },
    /// Changes the wanted replicas, on the prime shard only. The leader of the prime shard sends
    /// it. Answered by [`Reply::HostChanged`], or by [`Reply::ConditionFailed`] if the registry has
    /// changed since `seen`.
    Assign {
        /// [`Registry::changed`](crate::control::registry::Registry::changed) of the registry on
        /// which the decision was based.
        seen: LogIndex,
        /// At most [`limits::ASSIGNMENTS_MAX`]. Those for unknown shards or hosts are skipped.
        assignments: Vec<Assignment>,
    },
    /// Removes a replica from the registry after it has left its shard, on the prime shard only.
    /// The leader of the replica's shard sends it. Answered by [`Reply::HostChanged`] or
    /// [`Reply::Denied`].
    ForgetReplica {
        /// It must no longer be wanted, otherwise [`Denial::NotLeaving`]. Repeating the command is
        /// harmless.
        replica: ReplicaId,
    },
    /// Sets tags of a shard, including its placement policies, on the prime shard only. Answered by
    /// [`Reply::HostChanged`] or [`Reply::Denied`].
    TagShard(ShardTags),
    /// Executes operations on keys of one shard atomically. Answered by [`Reply::Operations`], one
    /// reply for each, or by [`Reply::ConditionFailed`] if a watch fails. In that case nothing
    /// changed.
    Transaction(Transaction),
    /// Stores a number in a register: a key that holds a decimal number of 64 bits, or an absent
    /// key, which counts as zero. The expiry of the key does not change. Answered by
    /// [`Reply::Exchanged`] or [`Reply::Rejected`].
    Exchange {
        /// The register. Limited as in `Put`.
        key: Bytes,
        /// Stored as decimal text.
        value: i64,
    },
    /// As `Exchange`, but only if the register holds `expected`.
    CompareExchange {
        /// The register. Limited as in `Put`.
        key: Bytes,
        /// The number that the register must hold.
        expected: i64,
        /// Stored as decimal text.
        new: i64,
    },
    /// Removes keys of a shard that expire at `now` or before, in the order of their expiry.
    /// Answered by [`Reply::Expired`]. The leader of a shard proposes it when keys are overdue by
    /// its clock. Replicas take the time from the log and never read a clock.
    Expire {
        /// Any data shard.
        shard: ShardId,
        /// The time at which the leader proposed it.
        now: UnixMillis,
        /// Maximum number of keys, 1 to [`limits::EXPIRED_KEYS_MAX`].
        limit: usize,
    },
    /// Changes a configuration namespace. Answered by [`Reply::Config`].
    Config(ConfigWrite),
    /// Restores configuration of a backup. Answered as [`Write::Restore`] is.
    RestoreConfig(ConfigRestoration),
    /// Removes up to [`limits::DISCARD_KEYS_MAX`] keys that a restore of another backup has put
    /// into a shard, and claims the shard for this backup once no such key is left. Versions
    /// continue after those of the other restore. Answered by [`Reply::Count`] with the number of
    /// keys left, or as [`Write::Restore`] is if a client has written to the shard.
    DiscardRestore {
        /// Any data shard.
        shard: ShardId,
        /// The backup to restore instead. Keys that were already restored from it stay.
        backup: Uuid,
    },
    /// Adds a data shard to the cluster, on the prime shard only. It owns no slots until some are
    /// moved to it. Answered by [`Reply::ShardAdded`] or [`Reply::Denied`].
    AddShard {
        /// Display name; derived from the shard's number if absent.
        name: Option<String>,
        /// Placement policies and any other tags, at most [`limits::SHARD_TAGS_BYTES_MAX`] bytes
        /// together.
        tags: BTreeMap<String, String>,
    },
    /// Removes a data shard that owns no slots, on the prime shard only. Its replicas stop and
    /// release their disk space; its number is never reused. Answered by [`Reply::HostChanged`] or
    /// [`Reply::Denied`].
    RemoveShard {
        /// Any data shard. Slots that are still moving to or from it also prevent the removal.
        shard: ShardId,
    },
    /// Plans moves after which all data shards hold equally many slots, on the prime shard only.
    /// Answered by [`Reply::Moving`] or [`Reply::Denied`]. The moves take a while.
    Rebalance,
    /// Plans moves after which a shard holds these slots, on the prime shard only. Answered as
    /// [`Write::Rebalance`] is.
    MoveSlots {
        /// Not empty, and not being moved already. Slots that `to` owns stay where they are.
        slots: SlotSet,
        /// The receiver of the slots: any data shard.
        to: ShardId,
    },
    /// Records that the receiver of a move owns the slots, which changes the slot map. Nodes send
    /// it, on the prime shard only. Answered by [`Reply::HostChanged`].
    FinishMigration {
        /// Assigned when the move was planned. A move that is finished already changes nothing.
        migration: MigrationId,
    },
    /// One step of a move of slots between data shards. Nodes send it. Answered by [`Reply::Move`].
    Move(Move),
}

/// A change of the wanted state of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostChange {
    /// The host becomes a voter, and may lead.
    Vote,
    /// The host becomes a learner.
    Follow,
    /// Whether the host should give up leadership as long as other nodes can lead.
    Drain(bool),
    /// The host begins to leave the cluster.
    Leave,
    /// The host has left. The prime shard's leader proposes it when no shard has a replica on the
    /// host.
    Removed,
    /// Whether the host has been silent for so long that other hosts should replace it. The prime
    /// shard's leader proposes it.
    Dead(bool),
}

/// Why the registry refuses a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// No host was ever given this number.
    #[error("there is no such host")]
    UnknownHost,
    /// The host has left or is leaving.
    #[error("the host was removed; it can only join again as a new one, with an empty data directory")]
    HostRemoved,
    /// No voter would remain.
    #[error("it is the last voter, and cannot be removed or lose its vote; add another voter first")]
    LastVoter,
    /// The host is not leaving.
    #[error("the host is not leaving")]
    NotLeaving,
    /// See [`limits::HOSTS_MAX`].
    #[error("the cluster has as many hosts as it can have")]
    TooManyHosts,
    /// See [`limits::SHARDS_MAX`].
    #[error("the cluster has as many shards as it can have; remove one that owns no slots")]
    TooManyShards,
    /// The shard owns slots, or is the giver or the receiver of a move.
    #[error("the shard owns slots, or some are on their way to it; move them to other shards first")]
    ShardInUse,
    /// See [`limits::MIGRATIONS_MAX`].
    #[error("there would be more moves of slots under way than there may be; wait until some are done")]
    TooManyMoves,
    /// Some of the slots are already being moved.
    #[error("some of these slots are on their way already; wait until that is done")]
    SlotsMoving,
    /// No shard was ever given this number, or the shard was removed.
    #[error("there is no such shard")]
    UnknownShard,
    /// A placement policy cannot be parsed, or the tags are too long.
    #[error("the placement policy cannot be read, or the tags of the shard are too long")]
    InvalidPolicy,
}

/// What decides to which shard a write belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The shard that owns the slot of this key.
    Key(&'a Bytes),
    /// This shard, whatever keys the write has.
    Shard(ShardId),
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

/// A query of replicated state, of one shard or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// One key. Answered by [`Reply::Value`] or [`Reply::NotFound`].
    Get {
        /// Any bytes.
        key: Bytes,
    },
    /// Read-only operations on keys of one shard, all against the same state. Answered by
    /// [`Reply::Operations`].
    Operations {
        /// Only operations that [read](Operation::is_read).
        operations: Operations,
        /// Maximum number of bytes of the replies, at most [`crate::limits::REPLIES_BYTES_CLOSE`].
        /// A value that does not fit is replaced by [`Rejection::RepliesTooLong`].
        bytes_max: usize,
    },
    /// One step of an iteration over the keys of one shard, in byte order. A key that exists during
    /// the whole iteration is returned at least once. Answered by [`Reply::Scanned`].
    Scan {
        /// Any data shard.
        shard: ShardId,
        /// Where the previous step ended: [`Reply::Scanned`]'s `next`; 0 to begin.
        after: u64,
        /// The step ends at the first cursor position after this many keys, at least 1.
        count: usize,
        /// The version of the slot map with which the iteration began. A node that has another
        /// version answers [`Reply::SlotsMoved`].
        version: u64,
    },
    /// Number of keys. The count of each shard is exact; the sum is not one instant of the cluster.
    /// Answered by [`Reply::Count`].
    Count,
    /// Keys in byte order over all shards. The keys of each shard are from one consistent state of
    /// it; the page as a whole is not one instant of the cluster. Answered by [`Reply::Page`].
    List {
        /// Only keys that start with these bytes.
        prefix: Bytes,
        /// Only keys greater than this one; `None`: from the first.
        after: Option<Bytes>,
        /// Maximum number of items, 1 to [`limits::LIST_PAGE_ITEMS_MAX`].
        limit: usize,
        /// Whether values are left out, so that a page costs less memory and bandwidth.
        keys_only: bool,
    },
    /// One configuration namespace. Answered by [`Reply::Config`].
    Config(ConfigRead),
    /// Names of configuration namespaces over all shards, listed as [`Read::List`] lists keys. The
    /// version of an item is the namespace's revision. Answered by [`Reply::Page`].
    ConfigNamespaces {
        /// Only names that start with these bytes.
        prefix: Bytes,
        /// Only names greater than this one; `None`: from the first.
        after: Option<Bytes>,
        /// Maximum number of items, 1 to [`limits::LIST_PAGE_ITEMS_MAX`].
        limit: usize,
    },
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Answer to [`Read::Get`], if the key exists.
    Value {
        /// The version that the last write of the key assigned.
        version: Version,
        /// The bytes as they were stored.
        value: Bytes,
        /// When the key expires; `None`: never.
        expires: Option<UnixMillis>,
    },
    /// The key does not exist.
    NotFound,
    /// Answer to [`Write::Put`]: the value is stored.
    Written {
        /// The new version of the key.
        version: Version,
        /// Whether the key did not exist before.
        created: bool,
    },
    /// Answer to [`Write::Delete`]: the key is removed.
    Deleted {
        /// The revision at which the key ceased to exist.
        version: Version,
    },
    /// The condition did not hold; nothing changed.
    ConditionFailed {
        /// The key's version, [`Version::ABSENT`] if there is no such key.
        current: Version,
    },
    /// Replies to operations, one for each.
    Operations(OperationReplies),
    /// Answer to [`Write::Exchange`] and [`Write::CompareExchange`].
    Exchanged(Exchange),
    /// The current state does not allow the operation; nothing changed.
    Rejected(Rejection),
    /// Overdue keys were removed.
    Expired {
        /// Number of keys removed; at most the `limit` of the command.
        keys: u64,
    },
    /// Answer to [`Read::List`] and [`Read::ConfigNamespaces`].
    Page(Page),
    /// Answer to [`Read::Scan`]: one step of the iteration.
    Scanned {
        /// In byte order. There may be none, even before the end of the shard.
        keys: Vec<Bytes>,
        /// Where the next step continues; `None` at the end of the shard.
        next: Option<u64>,
    },
    /// Answer to [`Read::Count`]: keys of all shards. For [`Write::DiscardRestore`]: keys left.
    Count(u64),
    /// Answer to [`Write::RegisterHost`]: the registry holds the announcement.
    Registered,
    /// Answer to [`Write::JoinHost`]: the host belongs to the cluster.
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
    /// Answer to [`Request::SnapshotHere`]: for each shard, the index that its next durable
    /// snapshot contains at least. Index 0: nothing was ever applied, and there will be no
    /// snapshot.
    Snapshots(Vec<(ShardId, LogIndex)>),
    /// Answer to [`Request::Cluster`].
    Cluster(ClusterView),
    /// Answer to [`Write::Config`] and [`Read::Config`].
    Config(ConfigReply),
    /// Answer to [`Request::Registry`].
    Registry(RegistryView),
    /// Answer to [`Request::Explain`].
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

/// Why there is no answer. Only `UnknownOutcome` leaves open whether the request took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
    #[error("the slot of the key is on its way to another shard; nothing was done")]
    NotHere,
    /// The request breaks a limit or an invariant of the commands. It did not and will not take
    /// effect.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
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

impl Request {
    /// Whether its effect depends on the time at which the shard's leader proposes it.
    pub fn needs_clock(&self) -> bool {
        matches!(self, Request::Write(write) if write.needs_clock())
    }
}

impl Write {
    /// Whether the shard's leader must fill in the time at which it proposes the write.
    pub fn needs_clock(&self) -> bool {
        matches!(self, Write::Transaction(transaction) if transaction.operations.needs_clock())
    }

    /// The write as the log holds it, proposed at `now` by the clock of the shard's leader; see
    /// [`Operations::at`].
    pub fn at(&self, now: UnixMillis) -> Write {
        match self {
            Write::Transaction(transaction) => {
                let operations = transaction.operations.at(now);
                let (shard, watches) = (transaction.shard, transaction.watches.clone());
                Write::Transaction(Transaction { shard, watches, operations })
            }
            write => write.clone(),
        }
    }

    /// The key that decides the shard; `None` if no key does.
    pub fn key(&self) -> Option<&Bytes> {
        match self.target() {
            // The name of a namespace is routed like a key, but is no key.
            Target::Key(_) if matches!(self, Write::Config(_)) => None,
            Target::Key(key) => Some(key),
            Target::Shard(_) => None,
        }
    }

    /// What decides the shard to which the write is routed.
    pub fn target(&self) -> Target<'_> {
        match self {
            Write::Put { key, .. }
            | Write::Delete { key, .. }
            | Write::Exchange { key, .. }
            | Write::CompareExchange { key, .. } => Target::Key(key),
            Write::Transaction(Transaction { shard, .. }) | Write::Expire { shard, .. } => {
                Target::Shard(*shard)
            }
            Write::Config(write) => Target::Key(write.namespace.routing_key()),
            Write::RegisterHost(_)
            | Write::JoinHost(_)
            | Write::ChangeHost { .. }
            | Write::Assign { .. }
            | Write::ForgetReplica { .. }
            | Write::TagShard(_)
            | Write::AddShard { .. }
            | Write::RemoveShard { .. }
            | Write::Rebalance
            | Write::MoveSlots { .. }
            | Write::FinishMigration { .. } => Target::Shard(ShardId::PRIME),
            Write::Checkpoint { shard }
            | Write::Restore(Restoration { shard, .. })
            | Write::RestoreConfig(ConfigRestoration { shard, .. })
            | Write::DiscardRestore { shard, .. }
            | Write::Move(Move { shard, .. }) => Target::Shard(*shard),
        }
    }

    /// Checks the limits that every protocol shares.
    pub fn validate(&self) -> Result<(), Refusal> {
        match self {
            Write::Put { key, value, .. } => {
                validate_key(key)?;
                validate_value(value)
            }
            Write::Delete { key, .. } | Write::Exchange { key, .. } | Write::CompareExchange { key, .. } => {
                validate_key(key)
            }
            Write::Transaction(transaction) => transaction.validate(),
            Write::Expire { limit, .. } if (1..=limits::EXPIRED_KEYS_MAX).contains(limit) => Ok(()),
            Write::Expire { .. } => Err(Refusal::Invalid("more keys to expire than one command may")),
            Write::RegisterHost(info) | Write::JoinHost(info) => info.validate(),
            Write::ChangeHost { .. } | Write::Checkpoint { .. } | Write::ForgetReplica { .. } => Ok(()),
            Write::Assign { assignments, .. } if assignments.len() > limits::ASSIGNMENTS_MAX => {
                Err(Refusal::Invalid("more assignments than an entry can have"))
            }
            Write::Assign { .. } => Ok(()),
            Write::TagShard(tags) => tags.validate(),
            Write::Restore(restoration) => restoration.validate(),
            Write::Config(write) => write.validate(),
            Write::RestoreConfig(restoration) => restoration.validate(),
            Write::DiscardRestore { .. } => Ok(()),
            Write::Move(step) => step.validate(),
            Write::AddShard { name, tags } => validate_shard(name.as_deref(), tags),
            Write::RemoveShard { shard: ShardId::PRIME } => {
                Err(Refusal::Invalid("the prime shard holds the registry and cannot be removed"))
            }
            Write::RemoveShard { .. } => Ok(()),
            Write::MoveSlots { slots, .. } if slots.is_empty() => Err(Refusal::Invalid("no slots to move")),
            Write::Rebalance | Write::MoveSlots { .. } | Write::FinishMigration { .. } => Ok(()),
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

impl HostInfo {
    /// Checks the size of an announcement. Every node keeps it permanently, so a large one is a
    /// mistake.
    fn validate(&self) -> Result<(), Refusal> {
        let addresses =
            [&self.peer_address, &self.http_address, &self.resp_address, &self.resp_cluster_address];
        let texts = self.tags.iter().flat_map(|(name, value)| [name, value]).chain(addresses);
        if texts.map(|text| text.len()).sum::<usize>() > limits::HOST_INFO_BYTES_MAX {
            return Err(Refusal::Invalid("a host's addresses and tags are longer than 16 KiB together"));
        }
        Ok(())
    }
}

fn validate_shard(name: Option<&str>, tags: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if name.is_some_and(|name| name.is_empty() || name.len() > limits::SHARD_NAME_BYTES_MAX) {
        return Err(Refusal::Invalid("the name of a shard is empty or longer than 64 bytes"));
    }
    let tags = tags.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    ShardTags { shard: ShardId::PRIME, tags }.validate()
}

fn validate_value(value: &[u8]) -> Result<(), Refusal> {
    if value.len() > limits::VALUE_BYTES_MAX {
        return Err(Refusal::Invalid("value longer than 1 MiB"));
    }
    Ok(())
}

/// Refuses an empty key, and one longer than [`limits::KEY_BYTES_MAX`].
pub fn validate_key(key: &[u8]) -> Result<(), Refusal> {
    if key.is_empty() {
        return Err(Refusal::Invalid("empty key"));
    }
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(Refusal::Invalid("key longer than 4 KiB"));
    }
    Ok(())
}
