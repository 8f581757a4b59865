//! Rows of the registry: shards and replicas. Hosts stand with their seats.
//!
//! Owns what a row holds and how it is laid out in a snapshot. Who may change one is `registry`'s and `assign`'s.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::codec::{self, DecodeError, Decoder};
use crate::membership::{Role, decode_nodes, encode_nodes};
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId};

/// A shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// For people; unique by its number.
    pub name: String,
    /// Placement policies and whatever else somebody wants to note.
    pub tags: BTreeMap<String, String>,
    /// Log index at which it came to be; 0 for a founding one.
    pub created: LogIndex,
    /// Log index of the last change of it.
    pub updated: LogIndex,
    /// The voters that it began with, which its own log does not say.
    pub founding: Vec<(ReplicaId, NodeId)>,
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Of which shard.
    pub shard: ShardId,
    /// On which node.
    pub node: NodeId,
    /// What it should do; `None` for one that is to go. It never comes back.
    pub wanted: Option<Role>,
    /// Log index at which it was given its number; 0 for a founding one.
    pub created: LogIndex,
    /// Log index at which something else was last wanted of it.
    pub updated: LogIndex,
}

impl Shard {
    /// A founding shard.
    pub(super) fn founded(shard: ShardId, founding: Vec<(ReplicaId, NodeId)>) -> Shard {
        Shard::new(LogIndex(0), shard, founding)
    }

    /// A shard without tags.
    pub(super) fn new(created: LogIndex, shard: ShardId, founding: Vec<(ReplicaId, NodeId)>) -> Shard {
        let name =
            if shard == ShardId::PRIME { String::from("tidelock") } else { format!("kv-{:05}", shard.0) };
        Shard { name, tags: BTreeMap::new(), created, updated: created, founding }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, self.name.as_bytes());
        put_tags(out, &self.tags);
        codec::put_varint(out, self.created.0);
        codec::put_varint(out, self.updated.0);
        encode_nodes(self.founding.iter().copied(), out);
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Shard, DecodeError> {
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
    /// A founding replica: it votes.
    pub(super) fn founded(shard: ShardId, node: NodeId) -> Replica {
        Replica { shard, node, wanted: Some(Role::Voter), created: LogIndex(0), updated: LogIndex(0) }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.shard.0);
        codec::put_varint(out, self.node.0);
        out.push(match self.wanted {
            None => 0,
            Some(Role::Voter) => 1,
            Some(Role::Learner) => 2,
        });
        codec::put_varint(out, self.created.0);
        codec::put_varint(out, self.updated.0);
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Replica, DecodeError> {
        let (shard, node) = (ShardId(decoder.varint()?), NodeId(decoder.varint()?));
        let wanted = match decoder.u8()? {
            0 => None,
            1 => Some(Role::Voter),
            2 => Some(Role::Learner),
            _ => return Err(DecodeError::UnknownTag("role of a replica")),
        };
        let (created, updated) = (LogIndex(decoder.varint()?), LogIndex(decoder.varint()?));
        Ok(Replica { shard, node, wanted, created, updated })
    }
}

fn put_tags(out: &mut Vec<u8>, tags: &BTreeMap<String, String>) {
    codec::put_varint(out, tags.len() as u64);
    for (name, value) in tags {
        codec::put_bytes(out, name.as_bytes());
        codec::put_bytes(out, value.as_bytes());
    }
}

fn tags(decoder: &mut Decoder<'_>) -> Result<BTreeMap<String, String>, DecodeError> {
    let mut tags = BTreeMap::new();
    for _ in 0..decoder.varint()? {
        let name = decoder.text()?;
        tags.insert(name, decoder.text()?);
    }
    Ok(tags)
}
