//! Changes of the registry: hosts, replicas, shards, and which shard owns which slots.
//!
//! Owns their limits and layout. `control::registry` owns their effect. All of them go to the prime
//! shard.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::{
    AccessWrite, AdminAction, Assignment, AuditedWrite, AuthorityWrite, DivisionCause, HostInfo,
    ShardRefusal, ShardTags, placement,
};
use crate::codec::{self, DecodeError, Decoder, codes};
use crate::limits;
use crate::slots::slot_set::SlotSet;
use crate::topology;
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId};
use crate::version::{ClusterVersion, Release};

/// A change of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryWrite {
    /// Adds a host to the registry. Each node sends it for itself.
    RegisterHost(HostInfo),
    /// Assigns a node number to a host that joins. The number inside is ignored. Answered by
    /// [`WriteReply::Joined`](super::WriteReply::Joined), with the same number for the same uuid,
    /// or by [`WriteReply::Denied`](super::WriteReply::Denied).
    JoinHost(HostInfo),
    /// Changes the wanted state of a host. Answered by
    /// [`WriteReply::HostChanged`](super::WriteReply::HostChanged) or
    /// [`WriteReply::Denied`](super::WriteReply::Denied). The leaders of the shards then reconcile
    /// their membership with it, which takes a while.
    ChangeHost {
        /// A number that the registry has assigned; otherwise
        /// [`Denial::UnknownHost`](super::Denial::UnknownHost).
        node: NodeId,
        /// The change to its wanted state.
        change: HostChange,
    },
    /// Changes the wanted replicas. The leader of the prime shard sends it. Answered by
    /// [`WriteReply::HostChanged`](super::WriteReply::HostChanged), or by
    /// [`WriteReply::ConditionFailed`](super::WriteReply::ConditionFailed) if the registry has
    /// changed since `seen`.
    Assign {
        /// [`Registry::changed`](crate::control::registry::Registry::changed) of the registry on
        /// which the decision was based.
        seen: LogIndex,
        /// At most [`limits::ASSIGNMENTS_MAX`]. Those for unknown shards or hosts are skipped.
        assignments: Vec<Assignment>,
    },
    /// Removes a replica from the registry after it has left its shard. The leader of the replica's
    /// shard sends it. Answered by [`WriteReply::HostChanged`](super::WriteReply::HostChanged) or
    /// [`WriteReply::Denied`](super::WriteReply::Denied).
    ForgetReplica {
        /// It must no longer be wanted, otherwise
        /// [`Denial::NotLeaving`](super::Denial::NotLeaving). Repeating the command is harmless.
        replica: ReplicaId,
    },
    /// Sets tags of a shard, including its placement policies. Answered by
    /// [`WriteReply::HostChanged`](super::WriteReply::HostChanged) or
    /// [`WriteReply::Denied`](super::WriteReply::Denied).
    TagShard(ShardTags),
    /// Sets placement policies that shards inherit, and removes others. Answered by
    /// [`WriteReply::HostChanged`](super::WriteReply::HostChanged), or by
    /// [`WriteReply::Denied`](super::WriteReply::Denied) unless the result is a complete default.
    SetDefault {
        /// Names of policies with their new values; `None` removes the policy.
        tags: Vec<(String, Option<String>)>,
    },
    /// Adds a data shard to the cluster. It owns no slots until some are moved to it. Answered by
    /// [`WriteReply::ShardAdded`](super::WriteReply::ShardAdded) or
    /// [`WriteReply::Denied`](super::WriteReply::Denied).
    AddShard {
        /// Display name; derived from the shard's number if absent.
        name: Option<String>,
        /// Placement policies and any other tags, at most [`limits::SHARD_TAGS_BYTES_MAX`] bytes
        /// together.
        tags: BTreeMap<String, String>,
    },
    /// Removes a data shard that owns no slots. Its replicas stop and release their disk space; its
    /// number is never reused. Answered by
    /// [`WriteReply::HostChanged`](super::WriteReply::HostChanged) or
    /// [`WriteReply::Denied`](super::WriteReply::Denied).
    RemoveShard {
        /// Any shard of the registry, including the prime shard.
        shard: ShardId,
    },
    /// Plans moves after which all data shards hold equally many slots. Answered by
    /// [`WriteReply::Moving`](super::WriteReply::Moving) or
    /// [`WriteReply::Denied`](super::WriteReply::Denied). The moves take a while.
    Rebalance,
    /// Adds a data shard and plans moves after which all data shards hold equally many slots. The
    /// leader of the prime shard sends it. One change does both, so that no crash can leave a new
    /// shard without slots. Answered as [`RegistryWrite::Rebalance`] is, or by
    /// [`WriteReply::ConditionFailed`](super::WriteReply::ConditionFailed) if the registry has
    /// changed since `seen`.
    Divide {
        /// As in [`RegistryWrite::Assign`].
        seen: LogIndex,
        /// Why the shard is wanted; it becomes a tag of the shard.
        cause: DivisionCause,
    },
    /// Plans moves after which a shard holds these slots. Answered as
    /// [`RegistryWrite::Rebalance`] is.
    MoveSlots {
        /// Not empty, and not being moved already. Slots that `to` owns stay where they are.
        slots: SlotSet,
        /// The receiver of the slots: any data shard.
        to: ShardId,
    },
    /// Plans the move of hot slots of a busy shard. The leader of the prime shard sends it.
    /// Answered as [`RegistryWrite::Divide`] is.
    MoveHotSlots {
        /// As in [`RegistryWrite::Assign`].
        seen: LogIndex,
        /// As in [`RegistryWrite::MoveSlots`].
        slots: SlotSet,
        /// As in [`RegistryWrite::MoveSlots`].
        to: ShardId,
    },
    /// Records that the receiver of a move owns the slots, which changes the slot map. Nodes send
    /// it. Answered by [`WriteReply::HostChanged`](super::WriteReply::HostChanged).
    FinishMigration {
        /// Assigned when the move was planned. A move that is finished already changes nothing.
        migration: MigrationId,
    },
    /// Raises the cluster's version, after which newer commands may be written. The leader of the
    /// prime shard sends it. Answered by
    /// [`WriteReply::HostChanged`](super::WriteReply::HostChanged) or
    /// [`WriteReply::Denied`](super::WriteReply::Denied). A lower version changes nothing.
    RaiseVersion {
        /// Every host of the cluster must support it; otherwise
        /// [`Denial::HostTooOld`](super::Denial::HostTooOld).
        to: ClusterVersion,
    },
    /// Changes who may do what.
    Access(AccessWrite),
    /// Changes the cluster's certificate authorities and join tokens.
    Authority(AuthorityWrite),
    /// Records that an administrative action begins which has no registry change; see
    /// [`AdminAction`].
    Announce(AdminAction),
    /// A change together with its caller and time, see [`AuditedWrite`]. Answered like the change
    /// itself.
    Audited(Box<AuditedWrite>),
}

/// A change of the wanted state of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostChange {
    /// The host may vote and lead. It ends [`HostChange::Follow`], a drain, and
    /// [`HostChange::Leave`] if the host still has its replica of the prime shard.
    Vote,
    /// The host gets no votes, and gives away those that it has.
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

const TAG_REGISTER_HOST: u8 = 3;
const TAG_JOIN_HOST: u8 = 4;
const TAG_CHANGE_HOST: u8 = 5;
const TAG_ASSIGN: u8 = 8;
const TAG_FORGET_REPLICA: u8 = 9;
const TAG_TAG_SHARD: u8 = 10;
const TAG_ADD_SHARD: u8 = 11;
const TAG_REBALANCE: u8 = 12;
const TAG_FINISH_MIGRATION: u8 = 13;
const TAG_MOVE_SLOTS: u8 = 15;
const TAG_REMOVE_SHARD: u8 = 16;
const TAG_RAISE_VERSION: u8 = 17;
const TAG_SET_DEFAULT: u8 = 18;
const TAG_DIVIDE: u8 = 19;
const TAG_MOVE_HOT_SLOTS: u8 = 55;
const TAG_ACCESS: u8 = 33;
const TAG_AUTHORITY: u8 = 35;
pub(super) const TAG_AUDITED: u8 = 34;
const TAG_ANNOUNCE: u8 = 38;

impl RegistryWrite {
    /// The cluster version from which on the log may hold this change.
    pub(super) fn needed_version(&self) -> ClusterVersion {
        match self {
            RegistryWrite::SetDefault { .. } => ClusterVersion::WITH_DEFAULTS,
            RegistryWrite::Divide { .. } => ClusterVersion::WITH_DIVISION,
            RegistryWrite::MoveHotSlots { .. } => ClusterVersion::WITH_SLOT_LOADS,
            RegistryWrite::Access(write) => write.needed_version(),
            RegistryWrite::Authority(_) => ClusterVersion::WITH_AUTHORITY,
            RegistryWrite::Announce(AdminAction::RemoveAllKeys) => ClusterVersion::WITH_COORDINATION,
            RegistryWrite::Announce(_) => ClusterVersion::WITH_AUDIT,
            RegistryWrite::Audited(audited) => {
                audited.change.needed_version().max(ClusterVersion::WITH_AUDIT)
            }
            RegistryWrite::RegisterHost(_)
            | RegistryWrite::JoinHost(_)
            | RegistryWrite::ChangeHost { .. }
            | RegistryWrite::Assign { .. }
            | RegistryWrite::ForgetReplica { .. }
            | RegistryWrite::TagShard(_)
            | RegistryWrite::AddShard { .. }
            | RegistryWrite::RemoveShard { .. }
            | RegistryWrite::Rebalance
            | RegistryWrite::MoveSlots { .. }
            | RegistryWrite::FinishMigration { .. }
            // It comes before the version that it raises to. The leader proposes it only when every
            // host can read it.
            | RegistryWrite::RaiseVersion { .. } => ClusterVersion::FIRST,
        }
    }

    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        match self {
            RegistryWrite::RegisterHost(info) | RegistryWrite::JoinHost(info) => info.validate(),
            RegistryWrite::Assign { assignments, .. } if assignments.len() > limits::ASSIGNMENTS_MAX => {
                Err(ShardRefusal::invalid("more assignments than an entry can have"))
            }
            RegistryWrite::TagShard(tags) => tags.validate(),
            RegistryWrite::Access(write) => write.validate(),
            RegistryWrite::Authority(write) => write.validate(),
            RegistryWrite::Audited(audited) => audited.validate(),
            RegistryWrite::SetDefault { tags } => placement::validate_default(tags),
            RegistryWrite::AddShard { name, tags } => validate_shard(name.as_deref(), tags),
            RegistryWrite::RemoveShard { shard: ShardId::PRIME } => {
                Err(ShardRefusal::invalid("the prime shard holds the registry and cannot be removed"))
            }
            RegistryWrite::MoveSlots { slots, .. } if slots.is_empty() => {
                Err(ShardRefusal::invalid("no slots to move"))
            }
            RegistryWrite::ChangeHost { .. }
            | RegistryWrite::Assign { .. }
            | RegistryWrite::ForgetReplica { .. }
            | RegistryWrite::RemoveShard { .. }
            | RegistryWrite::Rebalance
            | RegistryWrite::Divide { .. }
            | RegistryWrite::MoveHotSlots { .. }
            | RegistryWrite::MoveSlots { .. }
            | RegistryWrite::RaiseVersion { .. }
            | RegistryWrite::Announce(_)
            | RegistryWrite::FinishMigration { .. } => Ok(()),
        }
    }

    /// Appends the encoding; its tag is one of those of [`Write`](super::Write).
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            RegistryWrite::RegisterHost(info) => {
                out.push(TAG_REGISTER_HOST);
                info.encode(out);
            }
            RegistryWrite::JoinHost(info) => {
                out.push(TAG_JOIN_HOST);
                info.encode(out);
            }
            RegistryWrite::ChangeHost { node, change } => {
                put_numbered(out, TAG_CHANGE_HOST, node.0);
                out.push(change.code());
            }
            RegistryWrite::Assign { seen, assignments } => {
                put_numbered(out, TAG_ASSIGN, seen.0);
                codec::put_varint(out, assignments.len() as u64);
                assignments.iter().for_each(|assignment| assignment.encode(out));
            }
            RegistryWrite::ForgetReplica { replica } => put_numbered(out, TAG_FORGET_REPLICA, replica.0),
            RegistryWrite::TagShard(tags) => {
                out.push(TAG_TAG_SHARD);
                tags.encode(out);
            }
            RegistryWrite::AddShard { name, tags } => {
                out.push(TAG_ADD_SHARD);
                codec::put_bytes(out, name.as_deref().unwrap_or_default().as_bytes());
                topology::put_tags(out, tags);
            }
            RegistryWrite::RemoveShard { shard } => put_numbered(out, TAG_REMOVE_SHARD, shard.0),
            RegistryWrite::Rebalance => out.push(TAG_REBALANCE),
            RegistryWrite::Divide { seen, cause } => {
                put_numbered(out, TAG_DIVIDE, seen.0);
                out.push(cause.code());
            }
            RegistryWrite::MoveHotSlots { seen, slots, to } => {
                put_numbered(out, TAG_MOVE_HOT_SLOTS, seen.0);
                slots.encode(out);
                codec::put_varint(out, to.0);
            }
            RegistryWrite::FinishMigration { migration } => {
                put_numbered(out, TAG_FINISH_MIGRATION, migration.0);
            }
            RegistryWrite::MoveSlots { slots, to } => {
                out.push(TAG_MOVE_SLOTS);
                slots.encode(out);
                codec::put_varint(out, to.0);
            }
            RegistryWrite::RaiseVersion { to } => put_numbered(out, TAG_RAISE_VERSION, to.0),
            RegistryWrite::SetDefault { tags } => {
                out.push(TAG_SET_DEFAULT);
                placement::encode_changes(tags, out);
            }
            RegistryWrite::Access(write) => {
                out.push(TAG_ACCESS);
                write.encode(out);
            }
            RegistryWrite::Authority(write) => {
                out.push(TAG_AUTHORITY);
                write.encode(out);
            }
            RegistryWrite::Announce(action) => {
                out.push(TAG_ANNOUNCE);
                action.encode(out);
            }
            RegistryWrite::Audited(audited) => {
                out.push(TAG_AUDITED);
                audited.encode(out);
            }
        }
    }

    /// Decodes what follows `tag`.
    pub(super) fn decode(tag: u8, decoder: &mut Decoder<'_>) -> Result<RegistryWrite, DecodeError> {
        Ok(match tag {
            TAG_REGISTER_HOST => RegistryWrite::RegisterHost(HostInfo::decode(decoder)?),
            TAG_JOIN_HOST => RegistryWrite::JoinHost(HostInfo::decode(decoder)?),
            TAG_CHANGE_HOST => {
                let node = NodeId(decoder.varint()?);
                RegistryWrite::ChangeHost { node, change: HostChange::from_code(decoder.u8()?)? }
            }
            TAG_ASSIGN => {
                let seen = LogIndex(decoder.varint()?);
                let count = decoder.bounded(limits::ASSIGNMENTS_MAX as u64, "number of assignments")?;
                let assignments =
                    (0..count).map(|_| Assignment::decode(decoder)).collect::<Result<_, _>>()?;
                RegistryWrite::Assign { seen, assignments }
            }
            TAG_FORGET_REPLICA => RegistryWrite::ForgetReplica { replica: ReplicaId(decoder.varint()?) },
            TAG_TAG_SHARD => RegistryWrite::TagShard(ShardTags::decode(decoder)?),
            TAG_ADD_SHARD => {
                let name = Some(decoder.text()?).filter(|name| !name.is_empty());
                RegistryWrite::AddShard { name, tags: topology::tags(decoder)? }
            }
            TAG_REMOVE_SHARD => RegistryWrite::RemoveShard { shard: ShardId(decoder.varint()?) },
            TAG_REBALANCE => RegistryWrite::Rebalance,
            TAG_DIVIDE => {
                let seen = LogIndex(decoder.varint()?);
                RegistryWrite::Divide { seen, cause: DivisionCause::from_code(decoder.u8()?)? }
            }
            TAG_MOVE_HOT_SLOTS => {
                let (seen, slots) = (LogIndex(decoder.varint()?), SlotSet::decode(decoder)?);
                RegistryWrite::MoveHotSlots { seen, slots, to: ShardId(decoder.varint()?) }
            }
            TAG_FINISH_MIGRATION => {
                RegistryWrite::FinishMigration { migration: MigrationId(decoder.varint()?) }
            }
            TAG_MOVE_SLOTS => {
                let slots = SlotSet::decode(decoder)?;
                RegistryWrite::MoveSlots { slots, to: ShardId(decoder.varint()?) }
            }
            TAG_RAISE_VERSION => RegistryWrite::RaiseVersion { to: ClusterVersion(decoder.varint()?) },
            TAG_SET_DEFAULT => RegistryWrite::SetDefault { tags: placement::decode_changes(decoder)? },
            TAG_ACCESS => RegistryWrite::Access(AccessWrite::decode(decoder)?),
            TAG_AUTHORITY => RegistryWrite::Authority(AuthorityWrite::decode(decoder)?),
            TAG_ANNOUNCE => RegistryWrite::Announce(AdminAction::decode(decoder)?),
            TAG_AUDITED => RegistryWrite::Audited(AuditedWrite::decode(decoder)?),
            _ => return Err(DecodeError::UnknownTag("write")),
        })
    }
}

fn put_numbered(out: &mut Vec<u8>, tag: u8, number: u64) {
    out.push(tag);
    codec::put_varint(out, number);
}

codes!(HostChange as "change of a host" {
    HostChange::Vote => 1,
    HostChange::Follow => 2,
    HostChange::Drain(true) => 3,
    HostChange::Drain(false) => 4,
    HostChange::Leave => 5,
    HostChange::Removed => 6,
    HostChange::Dead(true) => 7,
    HostChange::Dead(false) => 8,
});

/// Names of the entries for additions to an announcement. The settings allow neither to a tag.
const CLUSTER_ADDRESS_TAG: &str = "";
/// Name of the entry with the release of a host, which no setting allows to a tag.
pub const RELEASE_TAG: &str = "tidelock:release";

impl HostInfo {
    /// Checks the size of an announcement. Every node keeps it permanently, so a large one is a
    /// mistake.
    fn validate(&self) -> Result<(), ShardRefusal> {
        let addresses =
            [&self.peer_address, &self.http_address, &self.resp_address, &self.resp_cluster_address];
        let texts = self.tags.iter().flat_map(|(name, value)| [name, value]).chain(addresses);
        if texts.map(|text| text.len()).sum::<usize>() > limits::HOST_INFO_BYTES_MAX {
            return Err(ShardRefusal::invalid("a host's addresses and tags are longer than 16 KiB together"));
        }
        Ok(())
    }
}

impl HostInfo {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.node.0);
        out.extend_from_slice(self.uuid.as_bytes());
        for text in [&self.peer_address, &self.http_address, &self.resp_address] {
            codec::put_bytes(out, text.as_bytes());
        }
        topology::put_tags(out, &self.announced_tags());
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<HostInfo, DecodeError> {
        let node = NodeId(decoder.varint()?);
        let uuid = decoder.uuid()?;
        let peer_address = decoder.text()?;
        let http_address = decoder.text()?;
        let resp_address = decoder.text()?;
        let host = HostInfo {
            node,
            uuid,
            peer_address,
            http_address,
            resp_address,
            resp_cluster_address: String::new(),
            tags: BTreeMap::new(),
            release: Release::default(),
        };
        Ok(host.with_announced_tags(topology::tags(decoder)?))
    }

    /// The tags as they are stored and sent, with entries for later additions. So releases from
    /// before an addition read the announcement, and store the same bytes as newer ones.
    pub fn announced_tags(&self) -> BTreeMap<String, String> {
        let mut tags = self.tags.clone();
        if !self.resp_cluster_address.is_empty() {
            tags.insert(String::from(CLUSTER_ADDRESS_TAG), self.resp_cluster_address.clone());
        }
        if let Some(release) = self.release.announced() {
            tags.insert(String::from(RELEASE_TAG), release);
        }
        tags
    }

    /// This host with what [`HostInfo::announced_tags`] returned.
    pub fn with_announced_tags(mut self, mut tags: BTreeMap<String, String>) -> HostInfo {
        self.resp_cluster_address = tags.remove(CLUSTER_ADDRESS_TAG).unwrap_or_default();
        if let Some(release) = tags.get(RELEASE_TAG).and_then(|text| Release::of_announced(text)) {
            tags.remove(RELEASE_TAG);
            self.release = release;
        }
        self.tags = tags;
        self
    }
}

fn validate_shard(name: Option<&str>, tags: &BTreeMap<String, String>) -> Result<(), ShardRefusal> {
    if name.is_some_and(|name| name.is_empty() || name.len() > limits::SHARD_NAME_BYTES_MAX) {
        return Err(ShardRefusal::invalid("the name of a shard is empty or longer than 64 bytes"));
    }
    let tags = tags.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    ShardTags { shard: ShardId::PRIME, tags }.validate()
}

#[cfg(test)]
mod tests {
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use crate::version::SupportedVersions;
    use alloc::string::ToString;
    use uuid::Uuid;

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
            release: Release::default(),
        };
        let new = HostInfo { resp_cluster_address: "a:4".to_string(), ..old.clone() };
        let versions = SupportedVersions { oldest: ClusterVersion(1), newest: ClusterVersion(3) };
        let newest = HostInfo { release: Release { name: "0.2".to_string(), versions }, ..new.clone() };
        let mut encoded = Vec::new();
        old.encode(&mut encoded);
        let tags = b"\x01\x04zone\x01b";
        assert!(encoded.ends_with(tags), "as in logs that were written before there was such an address");
        for host in [old, new, newest] {
            assert_round_trip(RegistryWrite::RegisterHost(host).into());
        }
    }

    #[test]
    fn changes_of_version_3_round_trip() {
        for cause in [DivisionCause::Hosts, DivisionCause::Load] {
            assert_round_trip(RegistryWrite::Divide { seen: LogIndex(300), cause }.into());
        }
    }

    #[test]
    fn changes_of_version_13_round_trip() {
        let slots = SlotSet::of([0..64, 128..192]);
        let write = RegistryWrite::MoveHotSlots { seen: LogIndex(300), slots, to: ShardId(7) };
        assert_eq!(write.needed_version(), ClusterVersion::WITH_SLOT_LOADS);
        assert_round_trip(write.into());
    }

    #[test]
    fn changes_of_version_2_round_trip() {
        assert_round_trip(RegistryWrite::RaiseVersion { to: ClusterVersion(300) }.into());
        let tags = [("placement:member", Some("3")), ("placement:vary", None)];
        let tags = tags.map(|(name, value)| (name.to_string(), value.map(ToString::to_string)));
        assert_round_trip(RegistryWrite::SetDefault { tags: tags.into() }.into());
    }
}
