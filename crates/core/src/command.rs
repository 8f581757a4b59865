//! The one language of all protocols: HTTP, RESP and the dialects translate to [`Request`] and from [`Reply`].
//!
//! Owns what a client can ask and what it can be told, and how a write is laid out in the raft log. It knows no
//! protocol, and no protocol adds a meaning that is not expressible here.

mod restoration;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Term, Version};
pub use restoration::{Restoration, RestoredKey};

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
    /// One page of a list.
    Page(Page),
    /// The registry took note of the host.
    Registered,
    /// The host is one of the cluster.
    Joined {
        /// The number that is now its own.
        node: NodeId,
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
}

/// One node's view of the cluster. Positions of other nodes are what they last reported, about a second ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The node that answers.
    pub node: NodeId,
    /// Every host of the registry, and founders that have not registered yet.
    pub hosts: Vec<HostView>,
    /// Every shard.
    pub shards: Vec<ShardView>,
    /// Every replica.
    pub replicas: Vec<ReplicaView>,
}

/// A host as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// What it announced; `uuid` is nil and addresses other than the peer's are empty until it has.
    pub info: HostInfo,
    /// Prime-shard log index at which the registry first saw it, 0 if never.
    pub created: LogIndex,
    /// Prime-shard log index at which its announcement last changed.
    pub updated: LogIndex,
    /// Whether this node has a connection to it (true for itself).
    pub connected: bool,
    /// What is wanted of it.
    pub standing: Standing,
    /// Whether it should lead nothing.
    pub draining: bool,
}

/// A shard as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardView {
    /// Its id.
    pub shard: ShardId,
    /// `registry` or `kv`.
    pub kind: &'static str,
    /// The node that leads it, if this node knows one.
    pub leader: Option<NodeId>,
    /// This node's term of it.
    pub term: Term,
    /// How many hash slots it owns.
    pub slots: u16,
}

/// A replica as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaView {
    /// Its id.
    pub replica: ReplicaId,
    /// The shard it replicates.
    pub shard: ShardId,
    /// The node that carries it.
    pub node: NodeId,
    /// Whether it votes.
    pub voter: bool,
    /// How far it has applied the log; `None` if its node has not reported.
    pub applied: Option<LogIndex>,
    /// The last checkpoint that it has completed since its node started.
    pub checkpoint: Option<Checkpoint>,
}

/// The state of a replica at one index of its log, as a checksum: that of the snapshot which the replica made there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where the checkpoint stands in the log. Replicas are comparable at equal indexes only.
    pub index: LogIndex,
    /// CRC-32C over the whole snapshot. Different ones prove different states.
    pub checksum: u32,
}

impl Write {
    /// The key that decides the shard, if one does.
    pub fn key(&self) -> Option<&Bytes> {
        match self.target() {
            Target::Key(key) => Some(key),
            Target::Shard(_) => None,
        }
    }

    /// What decides the shard.
    pub fn target(&self) -> Target<'_> {
        match self {
            Write::Put { key, .. } | Write::Delete { key, .. } => Target::Key(key),
            Write::RegisterHost(_) | Write::JoinHost(_) | Write::ChangeHost { .. } => {
                Target::Shard(ShardId::PRIME)
            }
            Write::Checkpoint { shard } | Write::Restore(Restoration { shard, .. }) => Target::Shard(*shard),
        }
    }

    /// Checks the limits that every protocol shares.
    pub fn validate(&self) -> Result<(), Refusal> {
        match self {
            Write::Put { key, value, .. } => {
                validate_key(key)?;
                validate_value(value)
            }
            Write::Delete { key, .. } => validate_key(key),
            Write::RegisterHost(info) | Write::JoinHost(info) => info.validate(),
            Write::ChangeHost { .. } | Write::Checkpoint { .. } => Ok(()),
            Write::Restore(restoration) => restoration.validate(),
        }
    }

    /// Appends the layout that stands in the log and on the wire.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Write::Put { key, value, condition } => {
                out.push(TAG_PUT);
                condition.encode(out);
                codec::put_bytes(out, key);
                codec::put_bytes(out, value);
            }
            Write::Delete { key, condition } => {
                out.push(TAG_DELETE);
                condition.encode(out);
                codec::put_bytes(out, key);
            }
            Write::RegisterHost(info) => {
                out.push(TAG_REGISTER_HOST);
                info.encode(out);
            }
            Write::JoinHost(info) => {
                out.push(TAG_JOIN_HOST);
                info.encode(out);
            }
            Write::ChangeHost { node, change } => {
                out.push(TAG_CHANGE_HOST);
                codec::put_varint(out, node.0);
                out.push(change.code());
            }
            Write::Checkpoint { shard } => {
                out.push(TAG_CHECKPOINT);
                codec::put_varint(out, shard.0);
            }
            Write::Restore(restoration) => {
                out.push(TAG_RESTORE);
                restoration.encode(out);
            }
        }
    }

    /// Reads one write; keys and values share `owner`, the buffer that `decoder` reads.
    pub fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Write, DecodeError> {
        match decoder.u8()? {
            TAG_PUT => {
                let condition = Condition::decode(decoder)?;
                let key = decoder.shared(owner)?;
                Ok(Write::Put { key, value: decoder.shared(owner)?, condition })
            }
            TAG_DELETE => {
                let condition = Condition::decode(decoder)?;
                Ok(Write::Delete { key: decoder.shared(owner)?, condition })
            }
            TAG_REGISTER_HOST => Ok(Write::RegisterHost(HostInfo::decode(decoder)?)),
            TAG_JOIN_HOST => Ok(Write::JoinHost(HostInfo::decode(decoder)?)),
            TAG_CHANGE_HOST => {
                let node = NodeId(decoder.varint()?);
                Ok(Write::ChangeHost { node, change: HostChange::from_code(decoder.u8()?)? })
            }
            TAG_CHECKPOINT => Ok(Write::Checkpoint { shard: ShardId(decoder.varint()?) }),
            TAG_RESTORE => Ok(Write::Restore(Restoration::decode(decoder, owner)?)),
            _ => Err(DecodeError::UnknownTag("write")),
        }
    }
}

const TAG_PUT: u8 = 1;
const TAG_DELETE: u8 = 2;
const TAG_REGISTER_HOST: u8 = 3;
const TAG_JOIN_HOST: u8 = 4;
const TAG_CHANGE_HOST: u8 = 5;
const TAG_CHECKPOINT: u8 = 6;
const TAG_RESTORE: u8 = 7;

/// Codes on wire and disk. A code is never reused.
const HOST_CHANGE_CODES: [(HostChange, u8); 6] = [
    (HostChange::Vote, 1),
    (HostChange::Follow, 2),
    (HostChange::Drain(true), 3),
    (HostChange::Drain(false), 4),
    (HostChange::Leave, 5),
    (HostChange::Removed, 6),
];

impl HostChange {
    fn code(self) -> u8 {
        let found = HOST_CHANGE_CODES.iter().find(|(change, _)| *change == self);
        found.expect("invariant: every change has a code").1
    }

    fn from_code(code: u8) -> Result<HostChange, DecodeError> {
        let found = HOST_CHANGE_CODES.iter().find(|(_, known)| *known == code);
        found.map(|(change, _)| *change).ok_or(DecodeError::UnknownTag("change of a host"))
    }
}

/// Codes on the wire. A code is never reused.
const DENIAL_CODES: [(Denial, u8); 5] = [
    (Denial::UnknownHost, 1),
    (Denial::HostRemoved, 2),
    (Denial::LastVoter, 3),
    (Denial::NotLeaving, 4),
    (Denial::TooManyHosts, 5),
];

impl Denial {
    pub(crate) fn code(self) -> u8 {
        let found = DENIAL_CODES.iter().find(|(denial, _)| *denial == self);
        found.expect("invariant: every denial has a code").1
    }

    pub(crate) fn from_code(code: u8) -> Result<Denial, DecodeError> {
        let found = DENIAL_CODES.iter().find(|(_, known)| *known == code);
        found.map(|(denial, _)| *denial).ok_or(DecodeError::UnknownTag("denial"))
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

    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Condition::Always => out.push(0),
            Condition::Version(version) => {
                out.push(1);
                codec::put_varint(out, version.0);
            }
            Condition::Exists => out.push(2),
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Condition, DecodeError> {
        match decoder.u8()? {
            0 => Ok(Condition::Always),
            1 => Ok(Condition::Version(Version(decoder.varint()?))),
            2 => Ok(Condition::Exists),
            _ => Err(DecodeError::UnknownTag("condition")),
        }
    }
}

impl HostInfo {
    /// A host announces little: what is larger is a mistake, and would be carried by every node for ever.
    fn validate(&self) -> Result<(), Refusal> {
        let addresses = [&self.peer_address, &self.http_address, &self.resp_address];
        let texts = self.tags.iter().flat_map(|(name, value)| [name, value]).chain(addresses);
        if texts.map(|text| text.len()).sum::<usize>() > limits::HOST_INFO_BYTES_MAX {
            return Err(Refusal::Invalid("a host's addresses and tags are longer than 16 KiB together"));
        }
        Ok(())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.node.0);
        out.extend_from_slice(self.uuid.as_bytes());
        for text in [&self.peer_address, &self.http_address, &self.resp_address] {
            codec::put_bytes(out, text.as_bytes());
        }
        codec::put_varint(out, self.tags.len() as u64);
        for (name, value) in &self.tags {
            codec::put_bytes(out, name.as_bytes());
            codec::put_bytes(out, value.as_bytes());
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<HostInfo, DecodeError> {
        let node = NodeId(decoder.varint()?);
        let uuid = Uuid::from_slice(decoder.raw(16)?).map_err(|_| DecodeError::Invalid("host uuid"))?;
        let peer_address = decode_text(decoder)?;
        let http_address = decode_text(decoder)?;
        let resp_address = decode_text(decoder)?;
        let mut tags = BTreeMap::new();
        for _ in 0..decoder.varint()? {
            let name = decode_text(decoder)?;
            tags.insert(name, decode_text(decoder)?);
        }
        Ok(HostInfo { node, uuid, peer_address, http_address, resp_address, tags })
    }
}

fn decode_text(decoder: &mut Decoder<'_>) -> Result<String, DecodeError> {
    let bytes = decoder.bytes()?;
    core::str::from_utf8(bytes).map(String::from).map_err(|_| DecodeError::Invalid("text"))
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
