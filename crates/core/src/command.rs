//! The one language of all protocols: HTTP, RESP and the dialects translate to [`Request`] and from [`Reply`].
//!
//! Owns what a client can ask and what it can be told, and how a write is laid out in the raft log. It knows no
//! protocol, and no protocol adds a meaning that is not expressible here.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Term, Version};

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
}

impl Write {
    /// The key that decides the shard; `None` for writes to the registry.
    pub fn key(&self) -> Option<&Bytes> {
        match self {
            Write::Put { key, .. } | Write::Delete { key, .. } => Some(key),
            Write::RegisterHost(_) => None,
        }
    }

    /// Checks the limits that every protocol shares.
    pub fn validate(&self) -> Result<(), Refusal> {
        match self {
            Write::Put { key, value, .. } => {
                validate_key(key)?;
                if value.len() > limits::VALUE_BYTES_MAX {
                    return Err(Refusal::Invalid("value longer than 1 MiB"));
                }
                Ok(())
            }
            Write::Delete { key, .. } => validate_key(key),
            Write::RegisterHost(_) => Ok(()),
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
            _ => Err(DecodeError::UnknownTag("write")),
        }
    }
}

const TAG_PUT: u8 = 1;
const TAG_DELETE: u8 = 2;
const TAG_REGISTER_HOST: u8 = 3;

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
