//! The registry as the blocks of its snapshot. The first holds the tables, the others audit
//! records.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Host, HostEntry, Registry};
use crate::audit::AuditTrail;
use crate::auth::{Access, Authorities};
use crate::codec::{self, DecodeError, Decoder};
use crate::command::{HostInfo, HostRole};
use crate::deliberate::Faults;
use crate::slots::slot_map::SlotMap;
use crate::topology::{self, Migration, Replica, Shard};
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId};
use crate::version::ClusterVersion;

impl Registry {
    /// Begins a snapshot after `header`. The tables are small, so their only block is made at once.
    /// Audit records may take several blocks, which are made one by one.
    pub(crate) fn begin_snapshot(&mut self, header: Vec<u8>) {
        let mut block = header;
        self.encode(&mut block);
        self.snapshot = Some(block);
        self.snapshot_audit = self.audit.clone();
    }

    /// Takes the next block of the snapshot.
    pub(crate) fn next_block(&mut self) -> Option<Vec<u8>> {
        self.snapshot.take().or_else(|| self.snapshot_audit.take_block())
    }

    /// Drops the unfinished snapshot.
    pub(crate) fn abandon_snapshot(&mut self) {
        self.snapshot = None;
        self.snapshot_audit = AuditTrail::default();
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.changed.0, self.last_replica.0, self.last_shard.0, self.host_entries.len() as u64]
        {
            codec::put_varint(out, number);
        }
        for (node, host_entry) in &self.host_entries {
            encode_host_entry(*node, host_entry, out);
        }
        codec::put_varint(out, self.shards.len() as u64);
        for (id, shard) in &self.shards {
            codec::put_varint(out, id.0);
            shard.encode(out);
        }
        codec::put_varint(out, self.replicas.len() as u64);
        for (id, replica) in &self.replicas {
            codec::put_varint(out, id.0);
            replica.encode(out);
        }
        self.slots.encode(out);
        codec::put_varint(out, self.last_migration.0);
        codec::put_varint(out, self.migrations.len() as u64);
        for (id, migration) in &self.migrations {
            codec::put_varint(out, id.0);
            migration.encode(out);
        }
        // A cluster of the first version keeps the layout of the releases that know no other.
        if self.version > ClusterVersion::FIRST {
            codec::put_varint(out, self.version.0);
            out.push(u8::from(self.default_tags.is_some()));
            if let Some(tags) = &self.default_tags {
                topology::put_tags(out, tags);
            }
        }
        if self.version >= ClusterVersion::WITH_ACCESS {
            self.access.encode(out);
        }
        if self.version >= ClusterVersion::WITH_AUTHORITY {
            self.authorities.encode(out);
        }
        if self.version >= ClusterVersion::WITH_LIMITS {
            self.access.encode_rates(out);
        }
    }

    /// Decodes the registry of a snapshot, after the header, without its audit records.
    pub(crate) fn restore(decoder: &mut Decoder<'_>) -> Result<Registry, DecodeError> {
        let changed = LogIndex(decoder.varint()?);
        let last_replica = ReplicaId(decoder.varint()?);
        let last_shard = ShardId(decoder.varint()?);
        let mut host_entries = BTreeMap::new();
        for _ in 0..decoder.varint()? {
            let (node, host_entry) = decode_host_entry(decoder)?;
            host_entries.insert(node, host_entry);
        }
        let mut shards = BTreeMap::new();
        for _ in 0..decoder.varint()? {
            let id = ShardId(decoder.varint()?);
            shards.insert(id, Shard::decode(decoder)?);
        }
        let mut replicas = BTreeMap::new();
        for _ in 0..decoder.varint()? {
            let id = ReplicaId(decoder.varint()?);
            replicas.insert(id, Replica::decode(decoder)?);
        }
        let slots = SlotMap::decode(decoder)?;
        let last_migration = MigrationId(decoder.varint()?);
        let mut migrations = BTreeMap::new();
        for _ in 0..decoder.varint()? {
            let id = MigrationId(decoder.varint()?);
            migrations.insert(id, Migration::decode(decoder)?);
        }
        let (version, default_tags) = decode_version(decoder)?;
        let mut access =
            if version >= ClusterVersion::WITH_ACCESS { Access::decode(decoder)? } else { Access::default() };
        let authorities = match version {
            version if version >= ClusterVersion::WITH_AUTHORITY => Authorities::decode(decoder)?,
            _ => Authorities::default(),
        };
        if version >= ClusterVersion::WITH_LIMITS {
            access.decode_rates(decoder)?;
        }
        Ok(Registry {
            host_entries,
            shards,
            replicas,
            last_replica,
            last_shard,
            slots,
            migrations,
            last_migration,
            version,
            default_tags,
            access: access.into(),
            authorities: authorities.into(),
            audit: AuditTrail::default(),
            changed,
            snapshot: None,
            snapshot_audit: AuditTrail::default(),
            faults: Faults::NONE,
        })
    }
}

/// What follows the tables from the second version on: the version, and the tags that shards
/// inherit.
fn decode_version(
    decoder: &mut Decoder<'_>,
) -> Result<(ClusterVersion, Option<BTreeMap<String, String>>), DecodeError> {
    if decoder.is_empty() {
        return Ok((ClusterVersion::FIRST, None));
    }
    let version = ClusterVersion(decoder.varint()?);
    if version <= ClusterVersion::FIRST {
        return Err(DecodeError::Invalid("version of the cluster"));
    }
    if version > ClusterVersion::NEWEST {
        return Err(DecodeError::UnknownTag("version of the cluster: a newer release wrote this"));
    }
    let tags = if decoder.bool()? { Some(topology::tags(decoder)?) } else { None };
    Ok((version, tags))
}

const FLAG_DRAINING: u8 = 1;
const FLAG_BARRED: u8 = 2;
const FLAG_DEAD: u8 = 4;

fn encode_host_entry(node: NodeId, host_entry: &HostEntry, out: &mut Vec<u8>) {
    codec::put_varint(out, node.0);
    out.push(match host_entry.standing {
        HostRole::Voter => 0,
        HostRole::Learner => 1,
        HostRole::Leaving => 2,
        HostRole::Removed => 3,
    });
    let flags = [
        (host_entry.draining, FLAG_DRAINING),
        (host_entry.is_barred, FLAG_BARRED),
        (host_entry.is_dead, FLAG_DEAD),
    ];
    out.push(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
    out.push(u8::from(host_entry.host.is_some()));
    if let Some(host) = &host_entry.host {
        host.info.encode(out);
        codec::put_varint(out, host.created.0);
        codec::put_varint(out, host.updated.0);
    }
}

fn decode_host_entry(decoder: &mut Decoder<'_>) -> Result<(NodeId, HostEntry), DecodeError> {
    let node = NodeId(decoder.varint()?);
    let standing = match decoder.u8()? {
        0 => HostRole::Voter,
        1 => HostRole::Learner,
        2 => HostRole::Leaving,
        3 => HostRole::Removed,
        _ => return Err(DecodeError::UnknownTag("standing of a host")),
    };
    let flags = decoder.u8()?;
    if flags & !(FLAG_DRAINING | FLAG_BARRED | FLAG_DEAD) != 0 {
        return Err(DecodeError::UnknownTag("flag of a host"));
    }
    let host = if decoder.bool()? {
        let info = HostInfo::decode(decoder)?;
        Some(Host { created: LogIndex(decoder.varint()?), updated: LogIndex(decoder.varint()?), info })
    } else {
        None
    };
    let is_set = |flag| flags & flag != 0;
    let (draining, is_barred, is_dead) = (is_set(FLAG_DRAINING), is_set(FLAG_BARRED), is_set(FLAG_DEAD));
    Ok((node, HostEntry { standing, draining, is_barred, is_dead, host }))
}
