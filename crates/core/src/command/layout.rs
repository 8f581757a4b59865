//! Layout of commands in the Raft log and on the wire.
//!
//! Owns layouts and codes. A code is never given another meaning. Lengths and checksums belong to
//! the frames around the bytes, limits to the commands themselves.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use super::{
    Assignment, Condition, ConfigRestoration, ConfigWrite, Denial, HostChange, HostInfo, Move, Restoration,
    RowLayout, ShardTags, Transaction, Write,
};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::slots::slot_set::SlotSet;
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, UnixMillis, Version};

const TAG_PUT: u8 = 1;
const TAG_DELETE: u8 = 2;
const TAG_REGISTER_HOST: u8 = 3;
const TAG_JOIN_HOST: u8 = 4;
const TAG_CHANGE_HOST: u8 = 5;
const TAG_CHECKPOINT: u8 = 6;
const TAG_RESTORE: u8 = 7;
const TAG_ASSIGN: u8 = 8;
const TAG_FORGET_REPLICA: u8 = 9;
const TAG_TAG_SHARD: u8 = 10;
const TAG_ADD_SHARD: u8 = 11;
const TAG_REBALANCE: u8 = 12;
const TAG_FINISH_MIGRATION: u8 = 13;
const TAG_MOVE: u8 = 14;
const TAG_MOVE_SLOTS: u8 = 15;
const TAG_REMOVE_SHARD: u8 = 16;
const TAG_TRANSACTION: u8 = 20;
const TAG_EXCHANGE: u8 = 21;
const TAG_COMPARE_EXCHANGE: u8 = 22;
const TAG_EXPIRE: u8 = 23;
/// A restore of keys of which some expire.
const TAG_RESTORE_EXPIRING: u8 = 24;
const TAG_CONFIG: u8 = 30;
const TAG_RESTORE_CONFIG: u8 = 31;
const TAG_DISCARD_RESTORE: u8 = 32;

impl Write {
    /// Appends the encoding used in the log and on the wire.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Write::Put { key, value, condition } => {
                condition.encode(out);
                codec::put_bytes(out, key);
                codec::put_bytes(out, value);
            }
            Write::Delete { key, condition } => {
                condition.encode(out);
                codec::put_bytes(out, key);
            }
            Write::RegisterHost(info) | Write::JoinHost(info) => info.encode(out),
            Write::ChangeHost { node, change } => {
                codec::put_varint(out, node.0);
                out.push(change.code());
            }
            Write::Checkpoint { shard } | Write::RemoveShard { shard } => codec::put_varint(out, shard.0),
            Write::Restore(restoration) => restoration.encode(restoration.layout(), out),
            Write::Transaction(transaction) => transaction.encode(out),
            Write::Exchange { key, value } => {
                codec::put_bytes(out, key);
                codec::put_signed(out, *value);
            }
            Write::CompareExchange { key, expected, new } => {
                codec::put_bytes(out, key);
                codec::put_signed(out, *expected);
                codec::put_signed(out, *new);
            }
            Write::Expire { shard, now, limit } => {
                codec::put_varint(out, shard.0);
                codec::put_varint(out, now.0);
                codec::put_varint(out, *limit as u64);
            }
            Write::Config(write) => write.encode(out),
            Write::RestoreConfig(restoration) => restoration.encode(out),
            Write::DiscardRestore { shard, backup } => {
                codec::put_varint(out, shard.0);
                out.extend_from_slice(backup.as_bytes());
            }
            Write::Assign { seen, assignments } => {
                codec::put_varint(out, seen.0);
                codec::put_varint(out, assignments.len() as u64);
                assignments.iter().for_each(|assignment| assignment.encode(out));
            }
            Write::ForgetReplica { replica } => codec::put_varint(out, replica.0),
            Write::TagShard(tags) => tags.encode(out),
            Write::AddShard { name, tags } => {
                codec::put_bytes(out, name.as_deref().unwrap_or_default().as_bytes());
                codec::put_varint(out, tags.len() as u64);
                for (name, value) in tags {
                    codec::put_bytes(out, name.as_bytes());
                    codec::put_bytes(out, value.as_bytes());
                }
            }
            Write::Rebalance => {}
            Write::FinishMigration { migration } => codec::put_varint(out, migration.0),
            Write::MoveSlots { slots, to } => {
                slots.encode(out);
                codec::put_varint(out, to.0);
            }
            Write::Move(step) => step.encode(out),
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Write::Put { .. } => TAG_PUT,
            Write::Delete { .. } => TAG_DELETE,
            Write::RegisterHost(_) => TAG_REGISTER_HOST,
            Write::JoinHost(_) => TAG_JOIN_HOST,
            Write::ChangeHost { .. } => TAG_CHANGE_HOST,
            Write::Checkpoint { .. } => TAG_CHECKPOINT,
            Write::Restore(restoration) => match restoration.layout() {
                RowLayout::Plain => TAG_RESTORE,
                RowLayout::Expiring => TAG_RESTORE_EXPIRING,
            },
            Write::Transaction(_) => TAG_TRANSACTION,
            Write::Exchange { .. } => TAG_EXCHANGE,
            Write::CompareExchange { .. } => TAG_COMPARE_EXCHANGE,
            Write::Expire { .. } => TAG_EXPIRE,
            Write::Config(_) => TAG_CONFIG,
            Write::RestoreConfig(_) => TAG_RESTORE_CONFIG,
            Write::DiscardRestore { .. } => TAG_DISCARD_RESTORE,
            Write::Assign { .. } => TAG_ASSIGN,
            Write::ForgetReplica { .. } => TAG_FORGET_REPLICA,
            Write::TagShard(_) => TAG_TAG_SHARD,
            Write::AddShard { .. } => TAG_ADD_SHARD,
            Write::RemoveShard { .. } => TAG_REMOVE_SHARD,
            Write::Rebalance => TAG_REBALANCE,
            Write::FinishMigration { .. } => TAG_FINISH_MIGRATION,
            Write::MoveSlots { .. } => TAG_MOVE_SLOTS,
            Write::Move(_) => TAG_MOVE,
        }
    }

    /// Decodes one write. Keys and values share `owner`, the buffer that `decoder` reads.
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
            TAG_RESTORE => Ok(Write::Restore(Restoration::decode(RowLayout::Plain, decoder, owner)?)),
            TAG_RESTORE_EXPIRING => {
                Ok(Write::Restore(Restoration::decode(RowLayout::Expiring, decoder, owner)?))
            }
            TAG_TRANSACTION => Ok(Write::Transaction(Transaction::decode(decoder, owner)?)),
            TAG_EXCHANGE => {
                let key = decoder.shared(owner)?;
                Ok(Write::Exchange { key, value: decoder.signed()? })
            }
            TAG_COMPARE_EXCHANGE => {
                let key = decoder.shared(owner)?;
                let expected = decoder.signed()?;
                Ok(Write::CompareExchange { key, expected, new: decoder.signed()? })
            }
            TAG_EXPIRE => {
                let shard = ShardId(decoder.varint()?);
                let now = UnixMillis(decoder.varint()?);
                let limit = decoder.bounded(limits::EXPIRED_KEYS_MAX as u64, "number of keys to expire")?;
                Ok(Write::Expire { shard, now, limit: limit as usize })
            }
            TAG_CONFIG => Ok(Write::Config(ConfigWrite::decode(decoder)?)),
            TAG_DISCARD_RESTORE => {
                let shard = ShardId(decoder.varint()?);
                let backup = Uuid::from_slice(decoder.raw(16)?);
                let backup = backup.map_err(|_| DecodeError::Invalid("backup uuid"))?;
                Ok(Write::DiscardRestore { shard, backup })
            }
            TAG_RESTORE_CONFIG => Ok(Write::RestoreConfig(ConfigRestoration::decode(decoder, owner)?)),
            TAG_ASSIGN => {
                let seen = LogIndex(decoder.varint()?);
                let count = decoder.bounded(limits::ASSIGNMENTS_MAX as u64, "number of assignments")?;
                let assignments =
                    (0..count).map(|_| Assignment::decode(decoder)).collect::<Result<_, _>>()?;
                Ok(Write::Assign { seen, assignments })
            }
            TAG_FORGET_REPLICA => Ok(Write::ForgetReplica { replica: ReplicaId(decoder.varint()?) }),
            TAG_TAG_SHARD => Ok(Write::TagShard(ShardTags::decode(decoder)?)),
            TAG_ADD_SHARD => {
                let name = Some(decoder.text()?).filter(|name| !name.is_empty());
                Ok(Write::AddShard { name, tags: decode_tags(decoder)? })
            }
            TAG_REMOVE_SHARD => Ok(Write::RemoveShard { shard: ShardId(decoder.varint()?) }),
            TAG_REBALANCE => Ok(Write::Rebalance),
            TAG_FINISH_MIGRATION => Ok(Write::FinishMigration { migration: MigrationId(decoder.varint()?) }),
            TAG_MOVE_SLOTS => {
                let slots = SlotSet::decode(decoder)?;
                Ok(Write::MoveSlots { slots, to: ShardId(decoder.varint()?) })
            }
            TAG_MOVE => Ok(Write::Move(Move::decode(decoder, owner)?)),
            _ => Err(DecodeError::UnknownTag("write")),
        }
    }
}

/// Codes on wire and disk. A code is never reused.
const HOST_CHANGE_CODES: [(HostChange, u8); 8] = [
    (HostChange::Vote, 1),
    (HostChange::Follow, 2),
    (HostChange::Drain(true), 3),
    (HostChange::Drain(false), 4),
    (HostChange::Leave, 5),
    (HostChange::Removed, 6),
    (HostChange::Dead(true), 7),
    (HostChange::Dead(false), 8),
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
const DENIAL_CODES: [(Denial, u8); 11] = [
    (Denial::UnknownHost, 1),
    (Denial::HostRemoved, 2),
    (Denial::LastVoter, 3),
    (Denial::NotLeaving, 4),
    (Denial::TooManyHosts, 5),
    (Denial::UnknownShard, 6),
    (Denial::InvalidPolicy, 7),
    (Denial::TooManyShards, 8),
    (Denial::TooManyMoves, 9),
    (Denial::SlotsMoving, 10),
    (Denial::ShardInUse, 11),
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
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        match self {
            Condition::Always => out.push(0),
            Condition::Version(version) => {
                out.push(1);
                codec::put_varint(out, version.0);
            }
            Condition::Exists => out.push(2),
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Condition, DecodeError> {
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
        // Tag names are never empty. The entry under the empty name is a later addition, so that
        // logs written before it can still be read.
        let cluster = Some(&self.resp_cluster_address).filter(|address| !address.is_empty());
        codec::put_varint(out, (self.tags.len() + cluster.iter().len()) as u64);
        if let Some(address) = cluster {
            codec::put_bytes(out, b"");
            codec::put_bytes(out, address.as_bytes());
        }
        for (name, value) in &self.tags {
            codec::put_bytes(out, name.as_bytes());
            codec::put_bytes(out, value.as_bytes());
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<HostInfo, DecodeError> {
        let node = NodeId(decoder.varint()?);
        let uuid = Uuid::from_slice(decoder.raw(16)?).map_err(|_| DecodeError::Invalid("host uuid"))?;
        let peer_address = decoder.text()?;
        let http_address = decoder.text()?;
        let resp_address = decoder.text()?;
        let mut tags = decode_tags(decoder)?;
        let resp_cluster_address = tags.remove("").unwrap_or_default();
        Ok(HostInfo { node, uuid, peer_address, http_address, resp_address, resp_cluster_address, tags })
    }
}

/// Reads tags by name. Of a repeated name, the last value counts.
fn decode_tags(decoder: &mut Decoder<'_>) -> Result<BTreeMap<String, String>, DecodeError> {
    let mut tags = BTreeMap::new();
    for _ in 0..decoder.varint()? {
        let name = decoder.text()?;
        tags.insert(name, decoder.text()?);
    }
    Ok(tags)
}

/// For the round-trip tests of writes, which stand beside each write.
#[cfg(test)]
pub(super) mod fixture {
    use super::*;

    /// A write decodes to itself, and every truncation of its bytes is refused.
    pub fn assert_round_trip(write: Write) {
        let mut out = Vec::new();
        write.encode(&mut out);
        let bytes = Bytes::from(out);
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(Write::decode(&mut decoder, &bytes), Ok(write));
        assert!(decoder.is_empty());
        for cut in 0..bytes.len() {
            assert!(Write::decode(&mut Decoder::new(&bytes[..cut]), &bytes).is_err(), "{cut}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn hosts_round_trip_with_and_without_an_address_for_redis_cluster() {
        let old = HostInfo {
            node: NodeId(3),
            uuid: Uuid::from_u128(7),
            peer_address: "a:1".to_string(),
            http_address: "a:2".to_string(),
            resp_address: "a:3".to_string(),
            resp_cluster_address: String::new(),
            tags: [("zone".to_string(), "b".to_string())].into(),
        };
        let new = HostInfo { resp_cluster_address: "a:4".to_string(), ..old.clone() };
        let mut encoded = Vec::new();
        old.encode(&mut encoded);
        let tags = b"\x01\x04zone\x01b";
        assert!(encoded.ends_with(tags), "as in logs that were written before there was such an address");
        for host in [old, new] {
            fixture::assert_round_trip(Write::RegisterHost(host));
        }
    }
}
