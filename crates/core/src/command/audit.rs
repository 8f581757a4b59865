//! Audited changes: which registry changes produce an audit record, and its contents.
//!
//! Owns the envelope that the log holds around such a change, and the names of actions. `audit`
//! keeps the records. A change is audited if it demands `cluster:operate` or `cluster:admin`.
//! Changes that nodes initiate themselves are not audited. Every replica computes the action and
//! the subject when it applies the change, so existing action names must never change.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use uuid::Uuid;

use super::{
    AccessChange, AccessWrite, AuthorityChange, AuthorityWrite, HostChange, RegistryWrite, ShardRefusal,
    ShardTags,
};
use crate::auth::Caller;
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::{NodeId, ShardId, UnixMillis};
use crate::version::HOLD_TAG;

/// A registry change together with its caller and time. The leader of the prime shard wraps the
/// change when it proposes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedWrite {
    /// When the leader proposed it, by the leader's wall clock.
    pub at: UnixMillis,
    /// Who asked for it.
    pub caller: Caller,
    /// An [audited](RegistryWrite::is_audited) change.
    pub change: RegistryWrite,
}

/// An administrative action without a registry change. Its audit record is written before the
/// action begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAction {
    /// The leader of a shard is asked to transfer leadership.
    TransferLeadership {
        /// Any shard, including the prime shard.
        shard: ShardId,
        /// The node that should lead.
        to: NodeId,
    },
    /// The replicas of every shard are compared at one index of its log.
    Checkpoint,
    /// A backup of the cluster is begun.
    SaveBackup,
    /// A restore of a backup is begun.
    RestoreBackup {
        /// Identifies the backup.
        backup: Uuid,
    },
    /// Every key is removed.
    RemoveAllKeys,
    /// A node reads its certificates again.
    ReloadCertificates {
        /// The node that was asked.
        node: NodeId,
    },
}

const ACTION_TRANSFER: u8 = 1;
const ACTION_CHECKPOINT: u8 = 2;
const ACTION_SAVE_BACKUP: u8 = 3;
const ACTION_RESTORE_BACKUP: u8 = 4;
const ACTION_RELOAD_CERTIFICATES: u8 = 5;
const ACTION_REMOVE_ALL_KEYS: u8 = 6;

impl RegistryWrite {
    /// Whether the change produces an audit record.
    pub fn is_audited(&self) -> bool {
        self.audit_action().is_some()
    }

    /// The change itself, without the envelope of an audited one.
    pub fn change(&self) -> &RegistryWrite {
        match self {
            RegistryWrite::Audited(audited) => &audited.change,
            change => change,
        }
    }

    /// The action name in the audit record; `None` if the change is not audited.
    pub fn audit_action(&self) -> Option<&'static str> {
        Some(match self {
            RegistryWrite::ChangeHost { node: _, change } => match change {
                HostChange::Vote => "host.vote",
                HostChange::Follow => "host.follow",
                HostChange::Drain(true) => "host.drain",
                HostChange::Drain(false) => "host.undrain",
                HostChange::Leave => "host.remove",
                HostChange::Removed | HostChange::Dead(_) => return None,
            },
            RegistryWrite::TagShard(ShardTags { shard: _, tags }) => {
                match tags.iter().find(|(name, _)| name == HOLD_TAG) {
                    Some((_, Some(_))) => "version.hold",
                    Some((_, None)) => "version.resume",
                    None => "shard.tag",
                }
            }
            RegistryWrite::SetDefault { tags: _ } => "placement.default",
            RegistryWrite::AddShard { name: _, tags: _ } => "shard.add",
            RegistryWrite::RemoveShard { shard: _ } => "shard.remove",
            RegistryWrite::Rebalance => "slots.rebalance",
            RegistryWrite::MoveSlots { slots: _, to: _ } => "slots.move",
            RegistryWrite::Access(AccessWrite { at: _, seen: _, change }) => access_action(change),
            RegistryWrite::Authority(AuthorityWrite { at: _, change }) => match change {
                AuthorityChange::Add { certificate: _, key: _ } => "authority.add",
                AuthorityChange::Use { id: _ } => "authority.use",
                AuthorityChange::Remove { id: _ } => "authority.remove",
                AuthorityChange::AddJoinToken { id: _, digest: _, lifetime_ms: _ } => "join-token.add",
                AuthorityChange::Enrol { id: _, digest: _, host: _ } => return None,
            },
            RegistryWrite::Announce(action) => match action {
                AdminAction::TransferLeadership { shard: _, to: _ } => "leader.transfer",
                AdminAction::Checkpoint => "cluster.checkpoint",
                AdminAction::SaveBackup => "backup.save",
                AdminAction::RestoreBackup { backup: _ } => "backup.restore",
                AdminAction::ReloadCertificates { node: _ } => "tls.reload",
                AdminAction::RemoveAllKeys => "keys.flush",
            },
            RegistryWrite::RegisterHost(_)
            | RegistryWrite::JoinHost(_)
            | RegistryWrite::Assign { seen: _, assignments: _ }
            | RegistryWrite::ForgetReplica { replica: _ }
            | RegistryWrite::FinishMigration { migration: _ }
            | RegistryWrite::Divide { seen: _, cause: _ }
            | RegistryWrite::MoveHotSlots { seen: _, slots: _, to: _ }
            | RegistryWrite::RaiseVersion { to: _ }
            | RegistryWrite::Audited(_) => return None,
        })
    }

    /// The target of the action, such as a node number or a role name. It contains no values and no
    /// secrets. At most [`limits::AUDIT_SUBJECT_BYTES_MAX`] bytes.
    pub fn audit_subject(&self) -> String {
        let mut subject = match self {
            RegistryWrite::ChangeHost { node, change: _ } => node.to_string(),
            RegistryWrite::TagShard(ShardTags { shard, tags }) => format!("{shard} {}", names(tags)),
            RegistryWrite::SetDefault { tags } => names(tags),
            RegistryWrite::AddShard { name, tags: _ } => name.clone().unwrap_or_default(),
            RegistryWrite::RemoveShard { shard } => shard.to_string(),
            RegistryWrite::MoveSlots { slots, to } => format!("{} to {to}", slots.count()),
            RegistryWrite::Access(AccessWrite { at: _, seen: _, change }) => access_subject(change),
            RegistryWrite::Authority(AuthorityWrite { at: _, change }) => match change {
                // The CA gets its number when the change is applied.
                AuthorityChange::Add { certificate: _, key: _ } => String::new(),
                AuthorityChange::Use { id } | AuthorityChange::Remove { id } => id.0.to_string(),
                AuthorityChange::AddJoinToken { id, digest: _, lifetime_ms: _ }
                | AuthorityChange::Enrol { id, digest: _, host: _ } => id.to_string(),
            },
            RegistryWrite::Announce(action) => match action {
                AdminAction::TransferLeadership { shard, to } => format!("{shard} to {to}"),
                AdminAction::Checkpoint | AdminAction::SaveBackup | AdminAction::RemoveAllKeys => {
                    String::new()
                }
                AdminAction::RestoreBackup { backup } => backup.to_string(),
                AdminAction::ReloadCertificates { node } => node.to_string(),
            },
            RegistryWrite::Audited(audited) => audited.change.audit_subject(),
            RegistryWrite::Rebalance
            | RegistryWrite::RegisterHost(_)
            | RegistryWrite::JoinHost(_)
            | RegistryWrite::Assign { seen: _, assignments: _ }
            | RegistryWrite::ForgetReplica { replica: _ }
            | RegistryWrite::FinishMigration { migration: _ }
            | RegistryWrite::Divide { seen: _, cause: _ }
            | RegistryWrite::MoveHotSlots { seen: _, slots: _, to: _ }
            | RegistryWrite::RaiseVersion { to: _ } => String::new(),
        };
        let is_end = |end: &usize| subject.is_char_boundary(*end);
        let end = (0..=limits::AUDIT_SUBJECT_BYTES_MAX.min(subject.len())).rev().find(is_end);
        subject.truncate(end.unwrap_or_default());
        subject
    }
}

fn access_action(change: &AccessChange) -> &'static str {
    match change {
        AccessChange::PutRole { name: _, role: _ } => "role.put",
        AccessChange::DeleteRole { name: _ } => "role.delete",
        AccessChange::PutPrincipal { name: _, principal: _ } => "principal.put",
        AccessChange::DeletePrincipal { name: _ } => "principal.delete",
        AccessChange::AddToken { id: _, principal: _, digest: _, lifetime_ms: _ } => "token.add",
        AccessChange::RotateToken { id: _, digest: _ } => "token.rotate",
        AccessChange::DeleteToken { id: _ } => "token.delete",
        AccessChange::Require(true) => "authentication.require",
        AccessChange::Require(false) => "authentication.stop",
    }
}

fn access_subject(change: &AccessChange) -> String {
    match change {
        AccessChange::PutRole { name, role: _ }
        | AccessChange::DeleteRole { name }
        | AccessChange::PutPrincipal { name, principal: _ }
        | AccessChange::DeletePrincipal { name } => name.clone(),
        AccessChange::AddToken { id, principal, digest: _, lifetime_ms: _ } => format!("{id} {principal}"),
        AccessChange::RotateToken { id, digest: _ } | AccessChange::DeleteToken { id } => id.to_string(),
        AccessChange::Require(_) => String::new(),
    }
}

/// The names of tags, separated by commas.
fn names(tags: &[(String, Option<String>)]) -> String {
    tags.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",")
}

impl AuditedWrite {
    /// The same change with the time at which it is proposed.
    pub(super) fn at(&self, now: UnixMillis) -> AuditedWrite {
        let change = match &self.change {
            RegistryWrite::Access(write) => RegistryWrite::Access(AccessWrite { at: now, ..write.clone() }),
            RegistryWrite::Authority(write) => {
                RegistryWrite::Authority(AuthorityWrite { at: now, ..write.clone() })
            }
            change => change.clone(),
        };
        AuditedWrite { at: now, caller: self.caller.clone(), change }
    }

    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        if !self.change.is_audited() {
            return Err(ShardRefusal::invalid("this change leaves no record"));
        }
        self.change.validate()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.at.0);
        self.caller.encode(out);
        self.change.encode(out);
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Box<AuditedWrite>, DecodeError> {
        let (at, caller) = (UnixMillis(decoder.varint()?), Caller::decode(decoder)?);
        let tag = decoder.u8()?;
        // Nested envelopes are rejected: the recursion depth would depend on the input.
        if tag == super::registry::TAG_AUDITED {
            return Err(DecodeError::Invalid("audited change"));
        }
        Ok(Box::new(AuditedWrite { at, caller, change: RegistryWrite::decode(tag, decoder)? }))
    }
}

impl AdminAction {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        match self {
            AdminAction::TransferLeadership { shard, to } => {
                out.push(ACTION_TRANSFER);
                codec::put_varint(out, shard.0);
                codec::put_varint(out, to.0);
            }
            AdminAction::Checkpoint => out.push(ACTION_CHECKPOINT),
            AdminAction::SaveBackup => out.push(ACTION_SAVE_BACKUP),
            AdminAction::RemoveAllKeys => out.push(ACTION_REMOVE_ALL_KEYS),
            AdminAction::RestoreBackup { backup } => {
                out.push(ACTION_RESTORE_BACKUP);
                out.extend_from_slice(backup.as_bytes());
            }
            AdminAction::ReloadCertificates { node } => {
                out.push(ACTION_RELOAD_CERTIFICATES);
                codec::put_varint(out, node.0);
            }
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<AdminAction, DecodeError> {
        Ok(match decoder.u8()? {
            ACTION_TRANSFER => {
                let shard = ShardId(decoder.varint()?);
                AdminAction::TransferLeadership { shard, to: NodeId(decoder.varint()?) }
            }
            ACTION_CHECKPOINT => AdminAction::Checkpoint,
            ACTION_SAVE_BACKUP => AdminAction::SaveBackup,
            ACTION_REMOVE_ALL_KEYS => AdminAction::RemoveAllKeys,
            ACTION_RESTORE_BACKUP => AdminAction::RestoreBackup { backup: decoder.uuid()? },
            ACTION_RELOAD_CERTIFICATES => AdminAction::ReloadCertificates { node: NodeId(decoder.varint()?) },
            _ => return Err(DecodeError::UnknownTag("administrative action")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use crate::command::Write;
    use crate::version::ClusterVersion;

    fn audited(change: RegistryWrite) -> RegistryWrite {
        let caller = Caller::Principal("root".into());
        RegistryWrite::Audited(Box::new(AuditedWrite { at: UnixMillis(300), caller, change }))
    }

    fn put_role() -> RegistryWrite {
        let change = AccessChange::PutRole { name: "web".into(), role: crate::auth::Role::default() };
        RegistryWrite::Access(AccessWrite::new(change))
    }

    #[test]
    fn envelopes_round_trip() {
        let actions = [
            AdminAction::TransferLeadership { shard: ShardId(300), to: NodeId(2) },
            AdminAction::Checkpoint,
            AdminAction::SaveBackup,
            AdminAction::RestoreBackup { backup: Uuid::from_u128(7) },
            AdminAction::ReloadCertificates { node: NodeId(300) },
        ];
        let announced = actions.map(RegistryWrite::Announce);
        for change in [RegistryWrite::Rebalance, put_role()].into_iter().chain(announced) {
            assert_round_trip(change.clone().into());
            let write = Write::from(audited(change));
            assert_eq!(write.needed_version(), ClusterVersion::WITH_AUDIT);
            assert_round_trip(write);
        }
        let flush = Write::from(audited(RegistryWrite::Announce(AdminAction::RemoveAllKeys)));
        assert_eq!(flush.needed_version(), ClusterVersion::WITH_COORDINATION);
        assert_round_trip(flush);
    }

    #[test]
    fn an_envelope_holds_no_envelope() {
        let mut bytes = Vec::new();
        Write::from(audited(audited(RegistryWrite::Rebalance))).encode(&mut bytes);
        let bytes = bytes::Bytes::from(bytes);
        assert!(Write::decode(&mut Decoder::new(&bytes), &bytes).is_err());
        let nothing = RegistryWrite::RaiseVersion { to: ClusterVersion(9) };
        assert!(Write::from(audited(nothing)).validate().is_err());
    }

    #[test]
    fn the_leaders_time_replaces_every_other() {
        let write = Write::from(audited(put_role()));
        assert!(write.needs_clock());
        let Write::Registry(proposed) = write.at(UnixMillis(7)) else { panic!("of the registry") };
        let RegistryWrite::Audited(proposed) = *proposed else { panic!("audited") };
        let RegistryWrite::Access(inner) = &proposed.change else { panic!("of access") };
        assert_eq!((proposed.at, inner.at), (UnixMillis(7), UnixMillis(7)));
    }

    #[test]
    fn subjects_are_bounded_and_hold_no_values() {
        let tags = vec_of(100, "ä-tag", "a value");
        let change = RegistryWrite::TagShard(ShardTags { shard: ShardId(2), tags });
        let subject = change.audit_subject();
        assert!(subject.len() <= limits::AUDIT_SUBJECT_BYTES_MAX && subject.starts_with("2 ä-tag,"));
        assert!(!subject.contains("value"), "{subject}");
        let hold = vec_of(1, HOLD_TAG, "yes");
        let change = RegistryWrite::TagShard(ShardTags { shard: ShardId::PRIME, tags: hold });
        assert_eq!(change.audit_action(), Some("version.hold"));
    }

    fn vec_of(count: usize, name: &str, value: &str) -> Vec<(String, Option<String>)> {
        alloc::vec![(name.to_string(), Some(value.to_string())); count]
    }
}
