//! Roles, principals and tokens, as the registry stores them.
//!
//! Owns their fields, limits and layout. `control::access` owns how they refer to each other.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use sha2::{Digest, Sha256};

use super::{ClusterLevel, ConfigAccess, Grant, Grants, KeyAccess, Namespaces, RateLimits};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::UnixMillis;

/// The name of the role that always exists and has every grant.
pub const ADMIN_ROLE: &str = "admin";

/// A named set of grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// What the role allows, at most [`limits::ROLE_GRANTS_MAX`] grants.
    pub grants: Grants,
    /// From when on the role allows nothing any more; `None`: it does not end.
    pub ends: Option<UnixMillis>,
    /// Rate limits of principals with the role. They do not apply to requests about the cluster and
    /// about permissions.
    pub rates: RateLimits,
}

/// Somebody or something that makes requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principal {
    /// Names of roles, at most [`limits::PRINCIPAL_ROLES_MAX`].
    pub roles: BTreeSet<String>,
    /// URI and DNS names of client certificates that prove to be this principal, at most
    /// [`limits::PRINCIPAL_CERTIFICATE_NAMES_MAX`]. A certificate's whole name must match.
    pub certificate_names: BTreeSet<String>,
}

/// A token of a principal. The secret itself is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The name of its principal.
    pub principal: String,
    /// The digests of the secrets that are accepted, the newest last: one, or two after a rotation.
    pub digests: Vec<SecretDigest>,
    /// When it was created, by the clock of the prime shard's leader.
    pub created: UnixMillis,
    /// From when on it is not accepted any more; `None`: it does not expire.
    pub expires: Option<UnixMillis>,
}

/// The number of a token, which is no secret. Shown as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

/// The SHA-256 digest of the secret of a token. A fast digest is enough, because a secret has 256
/// random bits and cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretDigest(pub [u8; 32]);

impl SecretDigest {
    /// The digest of a secret.
    pub fn of(secret: &[u8]) -> SecretDigest {
        SecretDigest(Sha256::digest(secret).into())
    }

    /// Whether both are equal. The time does not depend on where they differ.
    pub fn matches(&self, other: &SecretDigest) -> bool {
        self.0.iter().zip(&other.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(..)")
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for TokenId {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<TokenId, DecodeError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        if text.len() != 16 || !text.bytes().all(is_digit) {
            return Err(DecodeError::Invalid("id of a token"));
        }
        let id = u64::from_str_radix(text, 16).map_err(|_| DecodeError::Invalid("id of a token"))?;
        Ok(TokenId(id))
    }
}

impl Role {
    /// The role with every grant.
    pub fn admin() -> Role {
        let keys = [KeyAccess::Read, KeyAccess::Write, KeyAccess::Watch];
        let keys = keys.map(|access| Grant::Keys { access, prefix: Vec::new() });
        let all = || Namespaces::StartingWith(String::new());
        let config = [ConfigAccess::Read, ConfigAccess::Write, ConfigAccess::Reveal];
        let config = config.map(|access| Grant::Config { access, namespaces: all() });
        let grants = keys.into_iter().chain(config).chain([Grant::Cluster(ClusterLevel::Admin)]);
        Role { grants: grants.collect(), ends: None, rates: RateLimits::default() }
    }

    /// Whether the role still allows something at a time.
    pub fn is_in_force(&self, now: UnixMillis) -> bool {
        self.ends.is_none_or(|ends| now < ends)
    }

    /// Without its limits, for which there is another layout.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.grants.len() as u64);
        self.grants.iter().for_each(|grant| codec::put_bytes(out, grant.to_string().as_bytes()));
        put_time(out, self.ends);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Role, DecodeError> {
        let count = decoder.bounded(limits::ROLE_GRANTS_MAX as u64, "number of grants")?;
        let grant = |_| decoder.text()?.parse().map_err(|_| DecodeError::Invalid("grant"));
        let grants = (0..count).map(grant).collect::<Result<Grants, DecodeError>>()?;
        Ok(Role { grants, ends: time(decoder)?, rates: RateLimits::default() })
    }
}

impl Principal {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_names(out, &self.roles);
        put_names(out, &self.certificate_names);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Principal, DecodeError> {
        Ok(Principal { roles: names(decoder)?, certificate_names: names(decoder)? })
    }
}

impl Token {
    /// Whether the token is accepted at a time.
    pub fn is_in_force(&self, now: UnixMillis) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, self.principal.as_bytes());
        out.push(self.digests.len() as u8);
        self.digests.iter().for_each(|digest| out.extend_from_slice(&digest.0));
        codec::put_varint(out, self.created.0);
        put_time(out, self.expires);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Token, DecodeError> {
        let principal = decoder.text()?;
        let count = decoder.bounded(limits::TOKEN_SECRETS_MAX as u64, "number of secrets")?;
        let digests = (0..count).map(|_| digest(decoder)).collect::<Result<_, _>>()?;
        let created = UnixMillis(decoder.varint()?);
        Ok(Token { principal, digests, created, expires: time(decoder)? })
    }
}

/// Reads the bytes of a [`SecretDigest`].
pub(crate) fn digest(decoder: &mut Decoder<'_>) -> Result<SecretDigest, DecodeError> {
    let bytes = decoder.raw(32)?.try_into().map_err(|_| DecodeError::Truncated)?;
    Ok(SecretDigest(bytes))
}

fn put_names(out: &mut Vec<u8>, names: &BTreeSet<String>) {
    codec::put_varint(out, names.len() as u64);
    names.iter().for_each(|name| codec::put_bytes(out, name.as_bytes()));
}

fn names(decoder: &mut Decoder<'_>) -> Result<BTreeSet<String>, DecodeError> {
    let count = decoder.bounded(limits::PRINCIPAL_NAMES_MAX as u64, "number of names")?;
    (0..count).map(|_| decoder.text()).collect()
}

/// Appends a time that may be absent.
pub(crate) fn put_time(out: &mut Vec<u8>, time: Option<UnixMillis>) {
    out.push(u8::from(time.is_some()));
    time.iter().for_each(|time| codec::put_varint(out, time.0));
}

/// Reads what [`put_time`] wrote.
pub(crate) fn time(decoder: &mut Decoder<'_>) -> Result<Option<UnixMillis>, DecodeError> {
    Ok(if decoder.bool()? { Some(UnixMillis(decoder.varint()?)) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = TokenId(0xab);
        assert_eq!(id.to_string(), "00000000000000ab");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "ab", "00000000000000AB", "+0000000000000ab", "00000000000000ab0"] {
            assert!(text.parse::<TokenId>().is_err(), "{text}");
        }
    }

    #[test]
    fn digests_match_only_themselves_and_are_not_shown() {
        let digest = SecretDigest::of(b"secret");
        assert!(digest.matches(&SecretDigest::of(b"secret")));
        assert!(!digest.matches(&SecretDigest::of(b"Secret")));
        assert_eq!(format!("{digest:?}"), "SecretDigest(..)");
    }

    #[test]
    fn roles_and_tokens_end_at_their_time() {
        let role = Role { ends: Some(UnixMillis(5)), ..Role::admin() };
        assert!(role.is_in_force(UnixMillis(4)));
        assert!(!role.is_in_force(UnixMillis(5)));
        assert!(Role::admin().is_in_force(UnixMillis(u64::MAX)));
    }
}
