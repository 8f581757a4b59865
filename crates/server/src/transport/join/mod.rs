//! The join protocol: a host that is not a member asks any member for admission, and receives its
//! number and the addresses of the other members.
//!
//! ```text
//! joining host                    any member
//!   Join             ──────────▶   checks the version
//!                    ◀──────────   Challenge, or Refuse and close
//!   Accept           ──────────▶   asks its owner
//!                    ◀──────────   Welcome or JoinRefused, and close
//! ```
//!
//! `Challenge` and `Accept` each answer the other side's nonce, so that neither a recorded request
//! nor a recorded answer is accepted.
//!
//! Owns the request, the answer and their layout, in the envelope of the handshake. The owner of
//! the transport decides whether a host is admitted, and under which number. A host may ask as
//! often as it likes: its uuid identifies the request, which always gets the same answer.
//!
//! Bodies after the kind byte, in the encoding of [`tidelock_core::codec`] except for the
//! fixed-width versions:
//!
//! ```text
//! 4 Join          versions min, max (u16 LE each), host uuid (16 bytes), cluster name (bytes,
//!                 empty for none), peer, http and resp address (bytes), number of tags, each a
//!                 name and a value (bytes), data shards that the cluster must have been founded
//!                 with (0 for any), nonce (16 bytes)
//! 5 Welcome       cluster id (16 bytes), node, replica of the prime shard, data shards, number of
//!                 founders, each its address (bytes), number of hosts, each its node, uuid
//!                 (16 bytes) and peer address (bytes), cluster name (bytes)
//! 6 JoinRefused   a code (u8: 1 no leader, 2 busy, 3 permanent), reason (bytes, UTF-8)
//! ```

mod ask;

pub use ask::{AskError, ask};

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::BufMut;
use tidelock_core::codec::{Decoder, put_bytes, put_varint};
use tidelock_core::command::HostInfo;
use tidelock_core::limits::{HOSTS_MAX, SHARDS_MAX};
use tidelock_core::storage::control_file::KnownHost;
use tidelock_core::types::{NodeId, ReplicaId};
use tidelock_core::version::{ClusterVersion, Release};
use uuid::Uuid;

use super::handshake::{FIRST_WITH_NONCES, VersionRange};

/// Longest body of a `Join` in bytes: room for twice the tags and addresses that settings allow.
pub const JOIN_BYTES_MAX: usize = 32 << 10;

/// Longest body of an answer in bytes: the most that the envelope can announce, enough for more
/// than a thousand hosts.
pub const WELCOME_BYTES_MAX: usize = u16::MAX as usize;

/// Most join requests that wait for an answer at a time; further hosts are told to retry. Each
/// costs an entry of the registry's log, and a cluster grows by one host at a time.
pub const JOINS_MAX: usize = 4;

/// Longest wait for the owner's decision; then the host is told to retry.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest reason of a refusal, in characters; longer ones are truncated.
const REASON_CHARS_MAX: usize = 1_000;

/// A boxed future that stays on its thread.
pub type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Decides about join requests. Repeated requests of one host get the same answer. Called on the
/// transport's thread; dropped when it takes longer than [`JOIN_TIMEOUT`].
pub type JoinHandler = Rc<dyn Fn(JoinRequest) -> LocalBoxFuture<Result<Welcome, JoinRefusal>>>;

/// The request of a joining host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The name of the cluster to join, if its settings give one.
    pub cluster_name: Option<String>,
    /// The number of data shards with which the cluster was founded, if its settings give one.
    pub data_shards: Option<u64>,
    /// The host's registry entry, with node number 0 because none is assigned yet.
    pub host: HostInfo,
}

/// What a new member must know to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The id of the cluster, which the new member stores.
    pub cluster: Uuid,
    /// The name of the cluster, which the new member stores.
    pub cluster_name: String,
    /// The number assigned to the new member, not 0.
    pub node: NodeId,
    /// The new member's replica of the prime shard, not 0.
    pub replica: ReplicaId,
    /// Peer addresses of the cluster's founders, sorted; at least one.
    pub founders: Vec<String>,
    /// The number of data shards, 1 to [`SHARDS_MAX`].
    pub data_shards: u64,
    /// The number of voters of each data shard at the founding, as the new member computes the same
    /// first registry; `None` if the cluster was founded without a default placement.
    pub replicas: Option<u64>,
    /// Tags of the data shards at the founding.
    pub shard_tags: BTreeMap<String, String>,
    /// Whether the cluster was founded without a number of data shards, so that it adds them.
    pub automatic_division: bool,
    /// The version at which the cluster was founded.
    pub founding_version: ClusterVersion,
    /// The newest version of anything that members send; at least `founding_version`.
    pub version: ClusterVersion,
    /// The members that the answering member knows.
    pub hosts: BTreeMap<NodeId, KnownHost>,
}

/// Why a host is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    /// No leader is known or reachable, or the outcome of the write is unknown. The host retries.
    #[error("the cluster has no leader at the moment")]
    NoLeader,
    /// Other hosts are waiting. The host retries.
    #[error("other hosts are joining at the moment")]
    Busy,
    /// The host is refused permanently; this says why.
    #[error("{0}")]
    Refused(String),
}

const CODE_NO_LEADER: u8 = 1;
const CODE_BUSY: u8 = 2;
const CODE_REFUSED: u8 = 3;

impl JoinRequest {
    pub(super) fn encode(&self, versions: VersionRange, nonce: Uuid, body: &mut Vec<u8>) {
        body.put_u16_le(versions.min);
        body.put_u16_le(versions.max);
        let host = &self.host;
        body.put_slice(host.uuid.as_bytes());
        let name = self.cluster_name.as_deref().unwrap_or_default();
        for text in [name, &host.peer_address, &host.http_address, &host.resp_address] {
            put_bytes(body, text.as_bytes());
        }
        let tags = host.announced_tags();
        put_varint(body, tags.len() as u64);
        for (name, value) in &tags {
            put_bytes(body, name.as_bytes());
            put_bytes(body, value.as_bytes());
        }
        put_varint(body, self.data_shards.unwrap_or(0));
        body.put_slice(nonce.as_bytes());
    }

    /// From a node that speaks nothing but version 1, decodes the fields of that version only, so
    /// that it can be told why it is refused.
    pub(super) fn decode(body: &[u8]) -> Option<(VersionRange, JoinRequest, Uuid)> {
        let mut decoder = Decoder::new(body);
        let versions = VersionRange { min: read_u16(&mut decoder)?, max: read_u16(&mut decoder)? };
        let uuid = decoder.uuid().ok()?;
        let name = read_text(&mut decoder)?;
        let host = HostInfo {
            node: NodeId(0),
            uuid,
            peer_address: read_text(&mut decoder)?,
            http_address: read_text(&mut decoder)?,
            resp_address: read_text(&mut decoder)?,
            resp_cluster_address: String::new(),
            tags: BTreeMap::new(),
            release: Release::default(),
        };
        let mut tags = BTreeMap::new();
        for _ in 0..decoder.varint().ok()? {
            let name = read_text(&mut decoder)?;
            tags.insert(name, read_text(&mut decoder)?);
        }
        let host = host.with_announced_tags(tags);
        let cluster_name = (!name.is_empty()).then_some(name);
        let (mut data_shards, mut nonce) = (None, Uuid::nil());
        if versions.max >= FIRST_WITH_NONCES {
            data_shards = decoder.varint().ok().map(|shards| (shards > 0).then_some(shards))?;
            nonce = decoder.uuid().ok()?;
        }
        Some((versions, JoinRequest { cluster_name, data_shards, host }, nonce))
    }
}

impl Welcome {
    pub(super) fn encode(&self, body: &mut Vec<u8>) {
        body.put_slice(self.cluster.as_bytes());
        put_varint(body, self.node.0);
        put_varint(body, self.replica.0);
        put_varint(body, self.data_shards);
        put_varint(body, self.founders.len() as u64);
        for founder in &self.founders {
            put_bytes(body, founder.as_bytes());
        }
        put_varint(body, self.hosts.len() as u64);
        for (node, host) in &self.hosts {
            put_varint(body, node.0);
            body.put_slice(host.uuid.as_bytes());
            put_bytes(body, host.peer_address.as_bytes());
        }
        put_bytes(body, self.cluster_name.as_bytes());
        put_varint(body, self.founding_version.0);
        put_varint(body, self.version.0);
        if self.founding_version >= ClusterVersion::WITH_DEFAULTS {
            put_varint(body, self.replicas.unwrap_or_default());
            put_varint(body, self.shard_tags.len() as u64);
            for (name, value) in &self.shard_tags {
                put_bytes(body, name.as_bytes());
                put_bytes(body, value.as_bytes());
            }
        }
        if self.founding_version >= ClusterVersion::WITH_DIVISION {
            body.put_u8(u8::from(self.automatic_division));
        }
    }

    /// `None` also for a message with which no node could start.
    pub(super) fn decode(body: &[u8]) -> Option<Welcome> {
        let mut decoder = Decoder::new(body);
        let mut welcome = Welcome {
            cluster: decoder.uuid().ok()?,
            node: NodeId(decoder.varint().ok()?),
            replica: ReplicaId(decoder.varint().ok()?),
            data_shards: decoder.bounded(SHARDS_MAX, "number of shards").ok()?,
            founding_version: ClusterVersion::FIRST,
            version: ClusterVersion::FIRST,
            founders: vec![],
            replicas: None,
            shard_tags: BTreeMap::new(),
            automatic_division: false,
            hosts: BTreeMap::new(),
            cluster_name: String::new(),
        };
        for _ in 0..decoder.varint().ok()? {
            welcome.founders.push(read_text(&mut decoder)?);
        }
        for _ in 0..decoder.varint().ok()? {
            let node = NodeId(decoder.varint().ok()?);
            let uuid = decoder.uuid().ok()?;
            welcome.hosts.insert(node, KnownHost { uuid, peer_address: read_text(&mut decoder)? });
        }
        welcome.cluster_name = read_text(&mut decoder)?;
        // Releases without versions send none: their clusters have the first.
        if !decoder.is_empty() {
            welcome.founding_version = ClusterVersion(decoder.varint().ok()?);
            welcome.version = ClusterVersion(decoder.varint().ok()?);
        }
        if welcome.founding_version >= ClusterVersion::WITH_DEFAULTS {
            let replicas = decoder.bounded(HOSTS_MAX as u64, "number of replicas").ok()?;
            welcome.replicas = (replicas > 0).then_some(replicas);
            for _ in 0..decoder.varint().ok()? {
                let name = read_text(&mut decoder)?;
                welcome.shard_tags.insert(name, read_text(&mut decoder)?);
            }
        }
        if welcome.founding_version >= ClusterVersion::WITH_DIVISION {
            welcome.automatic_division = decoder.bool().ok()?;
        }
        let has_numbers = welcome.node.0 > 0 && welcome.replica.0 > 0;
        let is_whole = !welcome.cluster.is_nil() && has_numbers && welcome.data_shards > 0;
        let has_texts = !welcome.founders.is_empty() && !welcome.cluster_name.is_empty();
        (is_whole && has_texts).then_some(welcome)
    }
}

impl JoinRefusal {
    pub(super) fn encode(&self, body: &mut Vec<u8>) {
        let (code, reason) = match self {
            JoinRefusal::NoLeader => (CODE_NO_LEADER, String::new()),
            JoinRefusal::Busy => (CODE_BUSY, String::new()),
            JoinRefusal::Refused(reason) => (CODE_REFUSED, reason.chars().take(REASON_CHARS_MAX).collect()),
        };
        body.put_u8(code);
        put_bytes(body, reason.as_bytes());
    }

    /// A code of a later version is a permanent refusal, because its meaning is unknown here.
    pub(super) fn decode(body: &[u8]) -> Option<JoinRefusal> {
        let mut decoder = Decoder::new(body);
        Some(match decoder.u8().ok()? {
            CODE_NO_LEADER => JoinRefusal::NoLeader,
            CODE_BUSY => JoinRefusal::Busy,
            _ => JoinRefusal::Refused(read_text(&mut decoder)?),
        })
    }
}

fn read_u16(decoder: &mut Decoder<'_>) -> Option<u16> {
    let bytes = decoder.raw(2).ok()?;
    Some(u16::from_le_bytes(bytes.try_into().expect("invariant: two bytes were asked for")))
}

fn read_text(decoder: &mut Decoder<'_>) -> Option<String> {
    String::from_utf8(decoder.bytes().ok()?.to_vec()).ok()
}
