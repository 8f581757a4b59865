//! Commands about placement: assignments of replicas to hosts, and tags of shards.
//!
//! Owns their layout. `control::registry` owns their effect on the registry.

use alloc::string::String;
use alloc::vec::Vec;

use super::ShardRefusal;
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::membership::{Role, role_code, role_of};
use crate::placement_policy::{self, PlacementPolicy};
use crate::types::{NodeId, ShardId};

/// The role that a host should have in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// An assignment for a shard that was removed has no effect.
    pub shard: ShardId,
    /// A host that is leaving gets no new role, except in the prime shard.
    pub node: NodeId,
    /// The role of the host's replica; `None`: the host should have no replica.
    pub role: Option<Role>,
}

/// A change of a shard's tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardTags {
    /// Any shard of the registry; otherwise [`Denial::UnknownShard`](super::Denial::UnknownShard).
    pub shard: ShardId,
    /// Tag names with their new values; `None` removes the tag.
    pub tags: Vec<(String, Option<String>)>,
}

impl Assignment {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.shard.0);
        codec::put_varint(out, self.node.0);
        out.push(role_code(self.role));
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Assignment, DecodeError> {
        let (shard, node) = (ShardId(decoder.varint()?), NodeId(decoder.varint()?));
        Ok(Assignment { shard, node, role: role_of(decoder.u8()?)? })
    }
}

impl ShardTags {
    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        validate_changes(&self.tags)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.shard.0);
        encode_changes(&self.tags, out);
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<ShardTags, DecodeError> {
        Ok(ShardTags { shard: ShardId(decoder.varint()?), tags: decode_changes(decoder)? })
    }
}

/// Checks a change of the cluster's default. Whether the result is complete depends on the default
/// that there is.
pub(super) fn validate_default(tags: &[(String, Option<String>)]) -> Result<(), ShardRefusal> {
    let set = tags.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    if tags.iter().any(|(name, _)| !placement_policy::is_policy(name))
        || PlacementPolicy::parse(&set.collect()).is_err()
    {
        let reason = "the default of the cluster consists of placement policies: placement:member, placement:vary, \
                      placement:replica:<group> and placement:cover";
        return Err(ShardRefusal::invalid(reason));
    }
    Ok(())
}

fn validate_changes(tags: &[(String, Option<String>)]) -> Result<(), ShardRefusal> {
    let bytes: usize =
        tags.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, String::len)).sum();
    if bytes > limits::SHARD_TAGS_BYTES_MAX {
        return Err(ShardRefusal::invalid("the tags of a shard are longer than 4 KiB"));
    }
    if tags.iter().any(|(name, _)| name.is_empty()) {
        return Err(ShardRefusal::invalid("a tag has no name"));
    }
    if tags.iter().any(|(name, value)| value.is_some() && placement_policy::is_misspelt(name)) {
        let reason = "a tag looks like a policy that is misspelt: policies are placement:member, placement:vary, \
                      placement:replica:<group> and placement:cover";
        return Err(ShardRefusal::invalid(reason));
    }
    Ok(())
}

pub(super) fn encode_changes(tags: &[(String, Option<String>)], out: &mut Vec<u8>) {
    codec::put_varint(out, tags.len() as u64);
    for (name, value) in tags {
        codec::put_bytes(out, name.as_bytes());
        out.push(u8::from(value.is_some()));
        if let Some(value) = value {
            codec::put_bytes(out, value.as_bytes());
        }
    }
}

pub(super) fn decode_changes(
    decoder: &mut Decoder<'_>,
) -> Result<Vec<(String, Option<String>)>, DecodeError> {
    let mut tags = Vec::new();
    for _ in 0..decoder.varint()? {
        let name = decoder.text()?;
        let value = if decoder.bool()? { Some(decoder.text()?) } else { None };
        tags.push((name, value));
    }
    Ok(tags)
}
