//! The one language of all protocols: HTTP, RESP and the dialects translate to [`Request`] and from [`Reply`].
//!
//! Owns what a client can ask and what it can be told. It knows no protocol, and no protocol adds a meaning that is not
//! expressible here. How a write is laid out in the raft log and on the wire stands in `layout`.

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

use crate::control::slot_set::SlotSet;
use crate::limits;
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
    Checkpoint, ClusterView, Explained, Explanation, HostView, RegistryView, ReplicaView, ShardView,
};

/// What a client asks of any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Changes state through the log; linearizable.
    Write(Write),
    /// Reads state.
    Read {
        /// What to read.
        read: Read,
        /// How fresh the answer must be.
        consistency: Consistency,
    },
    /// What this node knows of the cluster; answered at once, see [`ClusterView`].
    Cluster,
    /// The tables of the registry, as this node has them; answered at once by [`Reply::Registry`].
    Registry,
    /// Why each replica of a shard is where it is; answered at once by [`Reply::Explained`], or a refusal if there is no
    /// such shard.
    Explain {
        /// Which shard.
        shard: ShardId,
    },
    /// Asks the leader of a shard to let the replica on another node lead. Answered at once by [`Reply::Asked`] or a
    /// refusal; who leads then, [`Request::Cluster`] tells.
    Transfer {
        /// Which shard.
        shard: ShardId,
        /// Who should lead: a node whose replica votes.
        to: NodeId,
    },
    /// Begins a snapshot of what this node has applied of every shard, without asking anybody: for the backup of a
    /// node that has no majority. Answered at once by [`Reply::Snapshots`].
    SnapshotHere,
}

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Reflects every write acknowledged before the read began, on any node (ReadIndex, Raft thesis section 6.4).
    Linearizable,
    /// Whatever this replica has applied; never waits.
    Stale,
}

/// A change to replicated state: exactly what stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Stores `value` under `key` if `condition` holds. Answered by [`Reply::Written`] or [`Reply::ConditionFailed`].
    Put {
        /// At most [`limits::KEY_BYTES_MAX`] bytes, any bytes.
        key: Bytes,
        /// At most [`limits::VALUE_BYTES_MAX`] bytes, any bytes.
        value: Bytes,
        /// Checked and acted on in one step.
        condition: Condition,
    },
    /// Removes `key` if `condition` holds. Answered by [`Reply::Deleted`], [`Reply::NotFound`] when there was
    /// nothing to delete and the condition allowed that, or [`Reply::ConditionFailed`].
    Delete {
        /// As for `Put`.
        key: Bytes,
        /// Checked and acted on in one step.
        condition: Condition,
    },
    /// Makes a host known to the registry, on the prime shard only. Nodes send it for themselves.
    RegisterHost(HostInfo),
    /// Changes nothing: every replica that applies it begins a snapshot of exactly the entry that holds it, so that
    /// the replicas can be compared, and copied, at one index. Answered by [`Reply::Checkpointed`].
    Checkpoint {
        /// Any shard, the prime one included.
        shard: ShardId,
    },
    /// Puts keys of a backup in place. Answered by [`Reply::Restored`], or by [`Reply::ConditionFailed`] with the shard's
    /// revision if the shard has been written to by anything but restores of this very backup.
    Restore(Restoration),
    /// Gives a host that wants to join a number, on the prime shard only; the number inside is ignored. Answered by
    /// [`Reply::Joined`], with the same number for the same uuid, or [`Reply::Denied`].
    JoinHost(HostInfo),
    /// Changes what is wanted of a host, on the prime shard only. Answered by [`Reply::HostChanged`] or
    /// [`Reply::Denied`]; the leaders of the shards then make it true, which takes a while.
    ChangeHost {
        /// Which.
        node: NodeId,
        /// What is wanted from now on.
        change: HostChange,
    },
    /// Changes which replicas are wanted where, on the prime shard only; its leader sends it. Answered by
    /// [`Reply::HostChanged`], or by [`Reply::ConditionFailed`] if the registry has changed since.
    Assign {
        /// [`Registry::changed`](crate::control::registry::Registry::changed) of the state that it was decided on.
        seen: LogIndex,
        /// At most [`limits::ASSIGNMENTS_MAX`].
        assignments: Vec<Assignment>,
    },
    /// Strikes off a replica that was to go and is gone, on the prime shard only; the leader of its shard sends it. Answered
    /// by [`Reply::HostChanged`] or [`Reply::Denied`].
    ForgetReplica {
        /// Which.
        replica: ReplicaId,
    },
    /// Sets tags of a shard, its policies among them, on the prime shard only. Answered by [`Reply::HostChanged`] or
    /// [`Reply::Denied`].
    TagShard(ShardTags),
    /// Does operations on keys of one shard as one. Answered by [`Reply::Operations`], one for each, or by
    /// [`Reply::ConditionFailed`] if a watch fails; nothing changed then.
    Transaction(Transaction),
    /// Puts a number into a register: a key that holds a decimal number of 64 bits, an absent one 0. Answered by
    /// [`Reply::Exchanged`] or [`Reply::Rejected`]. When the key expires does not change.
    Exchange {
        /// The register, as for `Put`.
        key: Bytes,
        /// The new number.
        value: i64,
    },
    /// The same, only while the register holds `expected`.
    CompareExchange {
        /// The register, as for `Put`.
        key: Bytes,
        /// What it must hold.
        expected: i64,
        /// The new number.
        new: i64,
    },
    /// Removes keys of a shard that expire at `now` or before, in the order of their times. Answered by [`Reply::Expired`].
    /// The leader of a shard proposes it when something is due by its clock; what time it is, the log says and no replica
    /// asks.
    Expire {
        /// Any data shard.
        shard: ShardId,
        /// The time.
        now: UnixMillis,
        /// Most keys, 1 to [`limits::EXPIRED_KEYS_MAX`].
        limit: usize,
    },
    /// Changes a namespace of configuration. Answered by [`Reply::Config`].
    Config(ConfigWrite),
    /// Puts configuration of a backup in place. Answered as [`Write::Restore`] is.
    RestoreConfig(ConfigRestoration),
    /// Removes what another restore has put into a shard, up to [`limits::DISCARD_KEYS_MAX`] keys, and claims the shard
    /// for this backup once nothing is left. Versions go on from those of the other restore. Answered by
    /// [`Reply::Count`] with the keys that are left, or as [`Write::Restore`] is if a client has written to the shard.
    DiscardRestore {
        /// Of which shard.
        shard: ShardId,
        /// The backup that is to be restored instead. What was restored from it already stays.
        backup: Uuid,
    },
    /// Gives the cluster another data shard, on the prime shard only. Answered by [`Reply::ShardAdded`] or
    /// [`Reply::Denied`]. It holds no slots until some are moved there.
    AddShard {
        /// For people; made up of its number if there is none.
        name: Option<String>,
        /// Its tags, placement policies among them.
        tags: BTreeMap<String, String>,
    },
    /// Removes a data shard that owns no slots, on the prime shard only. Its replicas end and release their disk; its number
    /// is never given again. Answered by [`Reply::HostChanged`] or [`Reply::Denied`].
    RemoveShard {
        /// Which.
        shard: ShardId,
    },
    /// Wants all data shards to hold as many slots as the others, on the prime shard only. Answered by [`Reply::Moving`] or
    /// [`Reply::Denied`]; the moves take a while.
    Rebalance,
    /// Wants a shard to hold these slots, on the prime shard only. Answered as [`Write::Rebalance`] is.
    MoveSlots {
        /// Which.
        slots: SlotSet,
        /// Who receives them.
        to: ShardId,
    },
    /// The receiver of a move owns its slots, so the map changes; nodes say so, on the prime shard. Answered by
    /// [`Reply::HostChanged`].
    FinishMigration {
        /// Which.
        migration: MigrationId,
    },
    /// A step of a move of slots between data shards; nodes send it. Answered by [`Reply::Move`].
    Move(Move),
}

/// What is wanted of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its replicas vote, each once it has caught up.
    Voter,
    /// Its replicas follow without a vote.
    Learner,
    /// Its replicas are being taken out of their shards.
    Leaving,
    /// It has no replicas and is not spoken to any more. Final.
    Removed,
}

/// A change of what is wanted of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostChange {
    /// It is to vote, and may lead.
    Vote,
    /// It is to follow without a vote.
    Follow,
    /// Whether it should lead nothing, as long as others can.
    Drain(bool),
    /// It is to leave the cluster.
    Leave,
    /// It has left. The prime shard's leader says so when no shard has a replica on it.
    Removed,
    /// Whether it has been silent for so long that others should take its place. The prime shard's leader says so.
    Dead(bool),
}

/// Why the registry refuses a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The number was never given out.
    #[error("there is no such host")]
    UnknownHost,
    /// It has left or is leaving.
    #[error("the host was removed; it can only join again as a new one, with an empty data directory")]
    HostRemoved,
    /// Nobody would be left to vote.
    #[error("it is the last voter, and cannot be removed or lose its vote; add another voter first")]
    LastVoter,
    /// It was not asked to leave.
    #[error("the host is not leaving")]
    NotLeaving,
    /// See [`limits::HOSTS_MAX`].
    #[error("the cluster has as many hosts as it can have")]
    TooManyHosts,
    /// See [`limits::SHARDS_MAX`].
    #[error("the cluster has as many shards as it can have; remove one that owns no slots")]
    TooManyShards,
    /// The shard owns slots, or is the giver or receiver of a move.
    #[error("the shard owns slots, or some are on their way to it; move them to other shards first")]
    ShardInUse,
    /// See [`limits::MIGRATIONS_MAX`].
    #[error("there would be more moves of slots under way than there may be; wait until some are done")]
    TooManyMoves,
    /// Some of the slots are on their way already.
    #[error("some of these slots are on their way already; wait until that is done")]
    SlotsMoving,
    /// The number was never given out, or the shard was removed.
    #[error("there is no such shard")]
    UnknownShard,
    /// A placement policy cannot be read, or the tags are too long.
    #[error("the placement policy cannot be read, or the tags of the shard are too long")]
    InvalidPolicy,
}

/// What decides which shard a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The slot of this key.
    Key(&'a Bytes),
    /// The write itself.
    Shard(ShardId),
}

/// When a write may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    Always,
    /// Only while the key's version is this one; [`Version::ABSENT`] demands that there is no such key.
    Version(Version),
    /// Only while the key exists, at whatever version.
    Exists,
}

/// What to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// One key. Answered by [`Reply::Value`] or [`Reply::NotFound`].
    Get {
        /// Any bytes.
        key: Bytes,
    },
    /// Operations that change nothing, on keys of one shard, all from one state of it. Answered by [`Reply::Operations`].
    Operations {
        /// What is read.
        operations: Operations,
        /// The asker has memory for replies of so many bytes. A value that does not fit is left
        /// out, and [`Rejection::RepliesTooLong`] stands in its place. At most
        /// [`crate::limits::REPLIES_BYTES_CLOSE`].
        bytes_max: usize,
    },
    /// One step of a walk over the keys of one shard, in byte order. A key that is there during the whole walk is met at
    /// least once. Answered by [`Reply::Scanned`].
    Scan {
        /// Any data shard.
        shard: ShardId,
        /// Where the last step ended: [`Reply::Scanned`]'s `next`; 0 to begin.
        after: u64,
        /// The step ends at the first place of rest behind so many keys, at least 1.
        count: usize,
        /// The version of the map of slots with which the walk began. With another one it is answered by
        /// [`Reply::SlotsMoved`].
        version: u64,
    },
    /// How many keys there are. Each shard's part is exact, the sum is not one instant of the cluster. Answered by
    /// [`Reply::Count`].
    Count,
    /// Keys in byte order over all shards. Each shard's part is one consistent state of it; the page as a whole
    /// is not one instant of the cluster. Answered by [`Reply::Page`].
    List {
        /// Only keys that start with these bytes.
        prefix: Bytes,
        /// Only keys after this one.
        after: Option<Bytes>,
        /// Most items, 1 to [`limits::LIST_PAGE_ITEMS_MAX`].
        limit: usize,
        /// Leaves values out.
        keys_only: bool,
    },
    /// One namespace of configuration. Answered by [`Reply::Config`].
    Config(ConfigRead),
    /// Names of configuration's namespaces over all shards, as [`Read::List`] lists keys: their versions are the
    /// namespaces' revisions. Answered by [`Reply::Page`].
    ConfigNamespaces {
        /// Only names that start with these bytes.
        prefix: Bytes,
        /// Only names after this one.
        after: Option<Bytes>,
        /// Most items, 1 to [`limits::LIST_PAGE_ITEMS_MAX`].
        limit: usize,
    },
}

/// A host as it announces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInfo {
    /// The cluster's number for it.
    pub node: NodeId,
    /// Minted with its data directory: another one under the same number is a wiped disk, not the same host.
    pub uuid: Uuid,
    /// Where peers reach it.
    pub peer_address: String,
    /// Where its HTTP clients reach it.
    pub http_address: String,
    /// Where its Redis clients reach it.
    pub resp_address: String,
    /// Where its Redis Cluster clients reach it; empty if they do not.
    pub resp_cluster_address: String,
    /// `--tag K=V`.
    pub tags: BTreeMap<String, String>,
}

/// What the store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The key's value.
    Value {
        /// The version of this value.
        version: Version,
        /// The bytes as they were put.
        value: Bytes,
        /// When the key expires, if it does.
        expires: Option<UnixMillis>,
    },
    /// There is no such key.
    NotFound,
    /// The put happened.
    Written {
        /// The key's version from now on.
        version: Version,
        /// Whether the key did not exist before.
        created: bool,
    },
    /// The delete happened.
    Deleted {
        /// The revision at which the key ceased to exist.
        version: Version,
    },
    /// The condition did not hold; nothing changed.
    ConditionFailed {
        /// The key's version, [`Version::ABSENT`] if there is no such key.
        current: Version,
    },
    /// What became of operations, one reply each.
    Operations(OperationReplies),
    /// What an exchange found and did.
    Exchanged(Exchange),
    /// The state does not allow it; nothing changed.
    Rejected(Rejection),
    /// Overdue keys are removed.
    Expired {
        /// How many.
        keys: u64,
    },
    /// One page of a list.
    Page(Page),
    /// One step of a scan.
    Scanned {
        /// The keys of this step.
        keys: Vec<Bytes>,
        /// Where the next step goes on; `None` when the shard is walked through.
        next: Option<u64>,
    },
    /// How many keys there are.
    Count(u64),
    /// The registry took note of the host.
    Registered,
    /// The host is one of the cluster.
    Joined {
        /// The number that is now its own.
        node: NodeId,
        /// Its replica of the prime shard, from which it learns all else.
        replica: ReplicaId,
    },
    /// The registry took note of what is wanted.
    HostChanged,
    /// The registry refuses; nothing changed.
    Denied(Denial),
    /// The leader has been asked; whether it does is not known.
    Asked,
    /// The checkpoint stands in the log; replicas make their snapshots now, and report them.
    Checkpointed {
        /// Where it stands, and so what each snapshot contains: everything up to here.
        index: LogIndex,
    },
    /// The keys are in place.
    Restored,
    /// Answer to [`Request::SnapshotHere`]: for each shard, what its next durable snapshot contains at least. Index 0
    /// says that nothing was ever applied, and that there will be none.
    Snapshots(Vec<(ShardId, LogIndex)>),
    /// Answer to [`Request::Cluster`].
    Cluster(ClusterView),
    /// Answer of the configuration centre.
    Config(ConfigReply),
    /// Answer to [`Request::Registry`].
    Registry(RegistryView),
    /// Answer to [`Request::Explain`].
    Explained(Explanation),
    /// There is another shard.
    ShardAdded {
        /// Its number.
        shard: ShardId,
    },
    /// So many moves of slots were added to those that are to be done; none if there is no need.
    Moving {
        /// How many.
        moves: u64,
        /// The last that was ever wanted, these included.
        last: MigrationId,
    },
    /// The map of slots is another one than when a walk over keys began: it must begin anew to meet every key.
    SlotsMoved,
    /// What a shard says to a step of a move.
    Move(MoveReply),
    /// One shard's answer to a read of many, and the slots that it speaks for. Only shards that took part in a move say
    /// so; the others speak for what they were founded with. It never reaches a client.
    Part {
        /// What the shard owned then.
        owned: SlotSet,
        /// Its answer.
        reply: Box<Reply>,
    },
    /// Not done, or not known to be done.
    Refused(Refusal),
}

/// Why there is no answer. Only one of these leaves the outcome open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No leader was known or reachable by the deadline. It did not happen and will not.
    #[error("no leader for the key's shard is known or reachable; nothing was done")]
    NoLeader,
    /// The command was handed on and its fate is not known by the deadline: it may have happened or may yet.
    #[error("the outcome is unknown: the write may or may not have happened")]
    UnknownOutcome,
    /// A bounded queue is full. It did not happen and will not.
    #[error("the node is overloaded; nothing was done")]
    Overloaded,
    /// The disk of the shard's leader, or those of a majority of its replicas, take no writes for now. Of a read: the
    /// disk of this node does not, and it has fallen behind the others. It did not happen and will not.
    #[error("the disk of the shard's leader, or of this node, cannot be written now; nothing was done")]
    DiskUnavailable,
    /// Keys of one command do not belong to one shard, or not to the one that it names. It did not happen and will not.
    #[error("the keys of one command do not belong to one shard; nothing was done")]
    CrossShard,
    /// The shard does not own the slot of a key: it moved, or is on its way. It did not happen; nodes try it again where
    /// the slot is now, so no client is told.
    #[error("the slot of the key is on its way to another shard; nothing was done")]
    NotHere,
    /// The request breaks a limit or an invariant of the language. It did not happen and will not.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In byte order of the keys.
    pub items: Vec<Item>,
    /// Pass as `after` to go on; `None` when the list is complete.
    pub next: Option<Bytes>,
}

/// One key of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: Bytes,
    /// Its version.
    pub version: Version,
    /// Its value, unless the list asked for keys only.
    pub value: Option<Bytes>,
    /// When it expires, if it does.
    pub expires: Option<UnixMillis>,
}

impl Request {
    /// Whether what it does depends on the time at which the shard's leader proposes it.
    pub fn needs_clock(&self) -> bool {
        matches!(self, Request::Write(write) if write.needs_clock())
    }
}

impl Write {
    /// Whether the shard's leader has to put in the time at which it proposes it.
    pub fn needs_clock(&self) -> bool {
        matches!(self, Write::Transaction(transaction) if transaction.operations.needs_clock())
    }

    /// The write as the log holds it, proposed at `now` by the clock of the shard's leader: see
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

    /// The key that decides the shard, if one does.
    pub fn key(&self) -> Option<&Bytes> {
        match self.target() {
            // What is routed like a key there is the name of a namespace, which is none.
            Target::Key(_) if matches!(self, Write::Config(_)) => None,
            Target::Key(key) => Some(key),
            Target::Shard(_) => None,
        }
    }

    /// What decides the shard.
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
    /// Whether a key at `current` ([`Version::ABSENT`] if there is none) satisfies the condition.
    pub fn holds(self, current: Version) -> bool {
        match self {
            Condition::Always => true,
            Condition::Version(version) => version == current,
            Condition::Exists => current != Version::ABSENT,
        }
    }
}

impl HostInfo {
    /// A host announces little: what is larger is a mistake, and would be carried by every node for ever.
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

/// Checks a key's length.
pub fn validate_key(key: &[u8]) -> Result<(), Refusal> {
    if key.is_empty() {
        return Err(Refusal::Invalid("empty key"));
    }
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(Refusal::Invalid("key longer than 4 KiB"));
    }
    Ok(())
}
