//! The rows of the registry: hosts, shards, replicas and moves of slots.
//!
//! Owns the content of rows and their layout in a snapshot. The registry (`control::registry`)
//! checks changes of them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use uuid::Uuid;

use crate::codec::{self, DecodeError, Decoder};
use crate::membership::{Role, decode_nodes, encode_nodes, role_code, role_of};
use crate::slots::slot_set::SlotSet;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId};
use crate::version::Release;

/// The role that the registry wants a host to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRole {
    /// It may vote: placement decides in which shards. Without a default placement it votes in
    /// every shard.
    Voter,
    /// It gets no votes: an operator took them away, or it has joined a cluster without a default
    /// placement.
    Learner,
    /// Its replicas are being taken out of their shards.
    Leaving,
    /// It has no replicas and no connections to its peers. Final.
    Removed,
}

/// A host as it announces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInfo {
    /// Assigned by the registry, or by the order of the founders' addresses; never reused.
    pub node: NodeId,
    /// Generated with its data directory. Another uuid under the same number means that the disk
    /// was replaced or wiped.
    pub uuid: Uuid,
    /// `HOST:PORT` at which its peers reach it.
    pub peer_address: String,
    /// `HOST:PORT` at which HTTP clients reach it.
    pub http_address: String,
    /// `HOST:PORT` at which Redis clients reach it.
    pub resp_address: String,
    /// Address for its Redis Cluster clients; empty if it does not serve them.
    pub resp_cluster_address: String,
    /// Tags from `--tag K=V`. Placement policies refer to them.
    pub tags: BTreeMap<String, String>,
    /// The release that it runs.
    pub release: Release,
}

/// The entry of a node number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// The role that the registry wants the host to have.
    pub standing: HostRole,
    /// Whether the host should give up leadership and replicas as far as other hosts can take them.
    pub draining: bool,
    /// Whether an operator took its vote away. Such a host does not vote in place of others either.
    pub is_barred: bool,
    /// Whether it has been silent for so long that other hosts should replace it.
    pub is_dead: bool,
    /// The host; `None` until it registers.
    pub host: Option<Host>,
}

/// A registered host, as the registry holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its latest announcement.
    pub info: HostInfo,
    /// Log index of its first announcement.
    pub created: LogIndex,
    /// Log index of the last change of the announcement.
    pub updated: LogIndex,
}

impl HostEntry {
    /// The entry of a newly assigned number.
    pub(crate) fn new(standing: HostRole, host: Option<Host>) -> HostEntry {
        HostEntry { standing, draining: false, is_barred: false, is_dead: false, host }
    }

    /// Whether the host belongs to the cluster and is not leaving.
    pub fn stays(&self) -> bool {
        matches!(self.standing, HostRole::Voter | HostRole::Learner)
    }

    /// Whether the host belongs to the cluster and is not dead.
    pub(crate) fn serves(&self) -> bool {
        self.standing != HostRole::Removed && !self.is_dead
    }

    /// Whether it is the entry of the host with this uuid.
    pub(crate) fn is_host(&self, uuid: Uuid) -> bool {
        self.host.as_ref().is_some_and(|host| host.info.uuid == uuid)
    }

    pub(crate) fn touch(&mut self, index: LogIndex) {
        if let Some(host) = &mut self.host {
            host.updated = index;
        }
    }
}

/// A planned move of slots from one shard to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The giver: the shard that owns the slots when the move begins.
    pub from: ShardId,
    /// The receiver: the shard that owns the slots after the move.
    pub to: ShardId,
    /// Not empty. A move that was planned earlier may still be bringing them to the giver.
    pub slots: SlotSet,
    /// Log index at which it was planned.
    pub created: LogIndex,
}

impl Migration {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.from.0, self.to.0, self.created.0] {
            codec::put_varint(out, number);
        }
        self.slots.encode(out);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Migration, DecodeError> {
        let (from, to) = (ShardId(decoder.varint()?), ShardId(decoder.varint()?));
        let created = LogIndex(decoder.varint()?);
        Ok(Migration { from, to, slots: SlotSet::decode(decoder)?, created })
    }
}

/// A shard, as the registry holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Display name. Only the number is unique.
    pub name: String,
    /// Placement policies and any other tags.
    pub tags: BTreeMap<String, String>,
    /// Log index at which it was added; 0 for a founding shard.
    pub created: LogIndex,
    /// Log index of its last change.
    pub updated: LogIndex,
    /// Its first voters, which its own log does not contain.
    pub founding: Vec<(ReplicaId, NodeId)>,
}

/// A replica, as the registry holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The shard that it replicates. It never changes.
    pub shard: ShardId,
    /// The node on which it runs. It never changes.
    pub node: NodeId,
    /// Its wanted role; `None` while it is being removed. A removed replica never comes back.
    pub wanted: Option<Role>,
    /// Log index at which its number was assigned; 0 for a founding replica.
    pub created: LogIndex,
    /// Log index at which its wanted role last changed.
    pub updated: LogIndex,
}

impl Shard {
    /// A shard of the cluster's founding, created at index 0.
    pub(crate) fn founded(shard: ShardId, founding: Vec<(ReplicaId, NodeId)>) -> Shard {
        Shard::new(LogIndex(0), shard, founding)
    }

    /// A shard with its default name and without tags.
    pub(crate) fn new(created: LogIndex, shard: ShardId, founding: Vec<(ReplicaId, NodeId)>) -> Shard {
        let name =
            if shard == ShardId::PRIME { String::from("tidelock") } else { format!("kv-{:05}", shard.0) };
        Shard { name, tags: BTreeMap::new(), created, updated: created, founding }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, self.name.as_bytes());
        put_tags(out, &self.tags);
        codec::put_varint(out, self.created.0);
        codec::put_varint(out, self.updated.0);
        encode_nodes(self.founding.iter().copied(), out);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Shard, DecodeError> {
        Ok(Shard {
            name: decoder.text()?,
            tags: tags(decoder)?,
            created: LogIndex(decoder.varint()?),
            updated: LogIndex(decoder.varint()?),
            founding: decode_nodes(decoder)?,
        })
    }
}

impl Replica {
    /// A replica of the cluster's founding, created at index 0.
    pub(crate) fn founded(shard: ShardId, node: NodeId, role: Role) -> Replica {
        Replica { shard, node, wanted: Some(role), created: LogIndex(0), updated: LogIndex(0) }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.shard.0);
        codec::put_varint(out, self.node.0);
        out.push(role_code(self.wanted));
        codec::put_varint(out, self.created.0);
        codec::put_varint(out, self.updated.0);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Replica, DecodeError> {
        let (shard, node) = (ShardId(decoder.varint()?), NodeId(decoder.varint()?));
        let wanted = role_of(decoder.u8()?)?;
        let (created, updated) = (LogIndex(decoder.varint()?), LogIndex(decoder.varint()?));
        Ok(Replica { shard, node, wanted, created, updated })
    }
}

/// Appends tags.
pub(crate) fn put_tags(out: &mut Vec<u8>, tags: &BTreeMap<String, String>) {
    codec::put_varint(out, tags.len() as u64);
    for (name, value) in tags {
        codec::put_bytes(out, name.as_bytes());
        codec::put_bytes(out, value.as_bytes());
    }
}

/// Reads what [`put_tags`] wrote.
pub(crate) fn tags(decoder: &mut Decoder<'_>) -> Result<BTreeMap<String, String>, DecodeError> {
    let mut tags = BTreeMap::new();
    for _ in 0..decoder.varint()? {
        let name = decoder.text()?;
        tags.insert(name, decoder.text()?);
    }
    Ok(tags)
}
