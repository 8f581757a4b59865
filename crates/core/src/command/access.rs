//! Changes of roles, principals and tokens, and of whether authentication is required.
//!
//! Owns their limits and layout. `control::access` owns their effect. They are changes of the
//! registry.

use alloc::string::String;
use alloc::vec::Vec;

use super::ShardRefusal;
use crate::auth::{
    self, ConfigAccess, Grant, Namespaces, Principal, RateLimits, Role, SecretDigest, TokenId,
};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::{LogIndex, UnixMillis};
use crate::version::ClusterVersion;

/// A change of who may do what. Answered by
/// [`WriteReply::AccessChanged`](super::WriteReply::AccessChanged),
/// [`WriteReply::ConditionFailed`](super::WriteReply::ConditionFailed) or
/// [`WriteReply::Denied`](super::WriteReply::Denied). Repeating a change is harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessWrite {
    /// When it is made. The leader of the prime shard replaces it by its own time.
    pub at: UnixMillis,
    /// Makes the change only if no row has changed since this
    /// [revision](crate::auth::Access::revision).
    pub seen: Option<LogIndex>,
    /// What is changed.
    pub change: AccessChange,
}

/// What an [`AccessWrite`] changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// Creates or replaces a role.
    PutRole {
        /// 1 to 64 plain characters. The built-in role cannot be replaced.
        name: String,
        /// Its new content.
        role: Role,
    },
    /// Removes a role that no principal has.
    DeleteRole {
        /// An existing role.
        name: String,
    },
    /// Creates or replaces a principal. Its tokens stay.
    PutPrincipal {
        /// 1 to 64 plain characters.
        name: String,
        /// Its roles must exist. No other principal may have one of its certificate names.
        principal: Principal,
    },
    /// Removes a principal with all its tokens.
    DeletePrincipal {
        /// An existing principal.
        name: String,
    },
    /// Adds a token.
    AddToken {
        /// Chosen by the sender at random.
        id: TokenId,
        /// An existing principal.
        principal: String,
        /// The digest of its secret.
        digest: SecretDigest,
        /// How long it is accepted; `None`: until it is removed.
        lifetime_ms: Option<u64>,
    },
    /// Gives a token another secret. The newest secret before stays valid, until the next rotation.
    RotateToken {
        /// An existing token.
        id: TokenId,
        /// The digest of the new secret.
        digest: SecretDigest,
    },
    /// Removes a token.
    DeleteToken {
        /// An existing token.
        id: TokenId,
    },
    /// Sets whether requests without an authenticated principal are refused.
    Require(bool),
}

const TAG_PUT_ROLE: u8 = 1;
const TAG_DELETE_ROLE: u8 = 2;
const TAG_PUT_PRINCIPAL: u8 = 3;
const TAG_DELETE_PRINCIPAL: u8 = 4;
const TAG_ADD_TOKEN: u8 = 5;
const TAG_ROTATE_TOKEN: u8 = 6;
const TAG_DELETE_TOKEN: u8 = 7;
const TAG_REQUIRE: u8 = 8;
/// [`AccessChange::PutRole`] with limits.
const TAG_PUT_LIMITED_ROLE: u8 = 9;

/// Whether the grant names a namespace whose name earlier releases refuse.
fn names_long_namespace(grant: &Grant) -> bool {
    let Grant::Config { namespaces: Namespaces::Named(name) | Namespaces::StartingWith(name), .. } = grant
    else {
        return false;
    };
    name.chars().count() > limits::CONFIG_NAMESPACE_CHARACTERS_BEFORE_LEAVES
}

/// Whether the grant is one that earlier releases do not know.
fn reveals_secrets(grant: &Grant) -> bool {
    matches!(grant, Grant::Config { access: ConfigAccess::Reveal, .. })
}

impl AccessWrite {
    /// A change without a condition.
    pub fn new(change: AccessChange) -> AccessWrite {
        AccessWrite { at: UnixMillis(0), seen: None, change }
    }

    /// The cluster version from which on the log may hold this change.
    pub(super) fn needed_version(&self) -> ClusterVersion {
        match &self.change {
            AccessChange::PutRole { role, .. } if role.grants.iter().any(reveals_secrets) => {
                ClusterVersion::WITH_SECRETS
            }
            AccessChange::PutRole { role, .. } if role.grants.iter().any(names_long_namespace) => {
                ClusterVersion::WITH_LEAVES
            }
            AccessChange::PutRole { role, .. } if !role.rates.is_empty() => ClusterVersion::WITH_LIMITS,
            AccessChange::PutRole { .. }
            | AccessChange::DeleteRole { .. }
            | AccessChange::PutPrincipal { .. }
            | AccessChange::DeletePrincipal { .. }
            | AccessChange::AddToken { .. }
            | AccessChange::RotateToken { .. }
            | AccessChange::DeleteToken { .. }
            | AccessChange::Require(_) => ClusterVersion::WITH_ACCESS,
        }
    }

    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        match &self.change {
            AccessChange::PutRole { name, role } => {
                validate_name(name)?;
                if role.grants.len() > limits::ROLE_GRANTS_MAX {
                    return Err(ShardRefusal::invalid("a role has at most 100 grants"));
                }
                if !role.rates.is_valid() {
                    return Err(ShardRefusal::invalid("a limit of a role is 1 to 1000000000000 a second"));
                }
                Ok(())
            }
            AccessChange::PutPrincipal { name, principal } => {
                validate_name(name)?;
                validate_principal(principal)
            }
            AccessChange::AddToken { lifetime_ms: Some(0), .. } => {
                Err(ShardRefusal::invalid("a token must be valid for some time"))
            }
            AccessChange::DeleteRole { .. }
            | AccessChange::DeletePrincipal { .. }
            | AccessChange::AddToken { .. }
            | AccessChange::RotateToken { .. }
            | AccessChange::DeleteToken { .. }
            | AccessChange::Require(_) => Ok(()),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.at.0);
        out.push(u8::from(self.seen.is_some()));
        self.seen.iter().for_each(|seen| codec::put_varint(out, seen.0));
        self.change.encode(out);
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<AccessWrite, DecodeError> {
        let at = UnixMillis(decoder.varint()?);
        let seen = if decoder.bool()? { Some(LogIndex(decoder.varint()?)) } else { None };
        Ok(AccessWrite { at, seen, change: AccessChange::decode(decoder)? })
    }
}

impl AccessChange {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            AccessChange::PutRole { name, role } => {
                let is_limited = !role.rates.is_empty();
                put_named(out, if is_limited { TAG_PUT_LIMITED_ROLE } else { TAG_PUT_ROLE }, name);
                role.encode(out);
                if is_limited {
                    role.rates.encode(out);
                }
            }
            AccessChange::DeleteRole { name } => put_named(out, TAG_DELETE_ROLE, name),
            AccessChange::PutPrincipal { name, principal } => {
                put_named(out, TAG_PUT_PRINCIPAL, name);
                principal.encode(out);
            }
            AccessChange::DeletePrincipal { name } => put_named(out, TAG_DELETE_PRINCIPAL, name),
            AccessChange::AddToken { id, principal, digest, lifetime_ms } => {
                put_named(out, TAG_ADD_TOKEN, principal);
                codec::put_varint(out, id.0);
                out.extend_from_slice(&digest.0);
                auth::put_time(out, lifetime_ms.map(UnixMillis));
            }
            AccessChange::RotateToken { id, digest } => {
                out.push(TAG_ROTATE_TOKEN);
                codec::put_varint(out, id.0);
                out.extend_from_slice(&digest.0);
            }
            AccessChange::DeleteToken { id } => {
                out.push(TAG_DELETE_TOKEN);
                codec::put_varint(out, id.0);
            }
            AccessChange::Require(is_required) => {
                out.push(TAG_REQUIRE);
                out.push(u8::from(*is_required));
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<AccessChange, DecodeError> {
        Ok(match decoder.u8()? {
            TAG_PUT_ROLE => AccessChange::PutRole { name: decoder.text()?, role: Role::decode(decoder)? },
            TAG_PUT_LIMITED_ROLE => {
                let (name, role) = (decoder.text()?, Role::decode(decoder)?);
                AccessChange::PutRole { name, role: Role { rates: RateLimits::decode(decoder)?, ..role } }
            }
            TAG_DELETE_ROLE => AccessChange::DeleteRole { name: decoder.text()? },
            TAG_PUT_PRINCIPAL => {
                let name = decoder.text()?;
                AccessChange::PutPrincipal { name, principal: Principal::decode(decoder)? }
            }
            TAG_DELETE_PRINCIPAL => AccessChange::DeletePrincipal { name: decoder.text()? },
            TAG_ADD_TOKEN => {
                let principal = decoder.text()?;
                let (id, digest) = (TokenId(decoder.varint()?), auth::digest(decoder)?);
                let lifetime_ms = auth::time(decoder)?.map(|lifetime| lifetime.0);
                AccessChange::AddToken { id, principal, digest, lifetime_ms }
            }
            TAG_ROTATE_TOKEN => {
                let id = TokenId(decoder.varint()?);
                AccessChange::RotateToken { id, digest: auth::digest(decoder)? }
            }
            TAG_DELETE_TOKEN => AccessChange::DeleteToken { id: TokenId(decoder.varint()?) },
            TAG_REQUIRE => AccessChange::Require(decoder.bool()?),
            _ => return Err(DecodeError::UnknownTag("change of access")),
        })
    }
}

fn put_named(out: &mut Vec<u8>, tag: u8, name: &str) {
    out.push(tag);
    codec::put_bytes(out, name.as_bytes());
}

/// Checks the name of a role or a principal: 1 to [`limits::ACCESS_NAME_BYTES_MAX`] letters, digits
/// and `.`, `_`, `-`, `@`.
fn validate_name(name: &str) -> Result<(), ShardRefusal> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'@');
    let has_length = (1..=limits::ACCESS_NAME_BYTES_MAX).contains(&name.len());
    if has_length && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(ShardRefusal::invalid(
        "the name of a role or a principal has 1 to 64 letters, digits and the characters `.`, `_`, `-` and `@`",
    ))
}

fn validate_principal(principal: &Principal) -> Result<(), ShardRefusal> {
    if principal.roles.len() > limits::PRINCIPAL_ROLES_MAX {
        return Err(ShardRefusal::invalid("a principal has at most 32 roles"));
    }
    if principal.certificate_names.len() > limits::PRINCIPAL_CERTIFICATE_NAMES_MAX {
        return Err(ShardRefusal::invalid("a principal has at most 32 certificate names"));
    }
    // A wildcard or a NUL would mean something else to whatever issued the certificate.
    let is_exact = |name: &String| {
        (1..=limits::CERTIFICATE_NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*')
    };
    if !principal.certificate_names.iter().all(is_exact) {
        return Err(ShardRefusal::invalid(
            "a certificate name is a whole URI or DNS name of at most 256 bytes, without `*`",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::RegistryWrite;
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use alloc::string::ToString;

    fn changes() -> [AccessChange; 8] {
        let (name, id, digest) = ("web".to_string(), TokenId(u64::MAX), SecretDigest::of(b"a"));
        let principal = Principal {
            roles: ["admin".to_string()].into(),
            certificate_names: ["spiffe://a/b".to_string()].into(),
        };
        [
            AccessChange::PutRole {
                name: name.clone(),
                role: Role { ends: Some(UnixMillis(7)), ..Role::admin() },
            },
            AccessChange::DeleteRole { name: name.clone() },
            AccessChange::PutPrincipal { name: name.clone(), principal },
            AccessChange::DeletePrincipal { name: name.clone() },
            AccessChange::AddToken { id, principal: name, digest, lifetime_ms: Some(300) },
            AccessChange::RotateToken { id, digest },
            AccessChange::DeleteToken { id },
            AccessChange::Require(true),
        ]
    }

    #[test]
    fn changes_round_trip() {
        for change in changes() {
            for seen in [None, Some(LogIndex(300))] {
                let write = AccessWrite { at: UnixMillis(5), seen, change: change.clone() };
                assert_eq!(write.validate(), Ok(()));
                assert_round_trip(RegistryWrite::Access(write).into());
            }
        }
    }

    fn limited(rate: Option<u64>) -> AccessWrite {
        let rates = RateLimits { operations_per_s: rate, bytes_per_s: None };
        AccessWrite::new(AccessChange::PutRole {
            name: "web".to_string(),
            role: Role { rates, ..Role::default() },
        })
    }

    #[test]
    fn a_limited_role_has_a_tag_and_a_version_of_its_own() {
        let write = limited(Some(limits::RATE_MAX));
        assert_eq!(write.validate(), Ok(()));
        assert_eq!(write.needed_version(), ClusterVersion::WITH_LIMITS);
        assert_eq!(limited(None).needed_version(), ClusterVersion::WITH_ACCESS);
        let plain = RegistryWrite::Access(limited(None));
        assert_eq!(plain.needed_version(), ClusterVersion::WITH_ACCESS);
        assert_round_trip(RegistryWrite::Access(write).into());
        for rate in [0, limits::RATE_MAX + 1] {
            assert!(limited(Some(rate)).validate().is_err(), "{rate}");
        }
    }

    #[test]
    fn names_are_plain_and_bounded() {
        for name in ["", "a b", "a/b", "ä", "a\0", &"a".repeat(65)] {
            let role = AccessChange::PutRole { name: name.to_string(), role: Role::default() };
            assert!(AccessWrite::new(role).validate().is_err(), "{name}");
        }
        for name in ["", "*.example.org", "a\0b", "a b", &"a".repeat(257)] {
            let principal = Principal { roles: [].into(), certificate_names: [name.to_string()].into() };
            let change = AccessChange::PutPrincipal { name: "a".to_string(), principal };
            assert!(AccessWrite::new(change).validate().is_err(), "{name}");
        }
    }
}
