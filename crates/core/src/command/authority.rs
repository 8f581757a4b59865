//! Changes of the cluster's certificate authorities (CAs) and of join tokens.
//!
//! Owns their limits and layout. `control::authorities` owns their effect. They are changes of the
//! registry.

use alloc::vec::Vec;

use uuid::Uuid;

use super::ShardRefusal;
use crate::auth::{self, AuthorityId, PrivateKey, SecretDigest, TokenId};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::UnixMillis;

/// A change of CAs or join tokens. Answered by
/// [`WriteReply::HostChanged`](super::WriteReply::HostChanged) or
/// [`WriteReply::Denied`](super::WriteReply::Denied). Repeating a change is harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityWrite {
    /// When it is proposed. The leader of the prime shard sets it to its wall clock.
    pub at: UnixMillis,
    /// What is changed.
    pub change: AuthorityChange,
}

/// What an [`AuthorityWrite`] changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorityChange {
    /// Adds a CA, which all nodes trust from then on. The first CA also signs at once.
    Add {
        /// Its certificate, PEM, at most [`limits::AUTHORITY_BYTES_MAX`].
        certificate: Vec<u8>,
        /// Its private key, with the same limit.
        key: PrivateKey,
    },
    /// Makes a CA the one that signs. All nodes then renew their certificates with it.
    Use {
        /// An existing CA.
        id: AuthorityId,
    },
    /// Removes a CA. Nodes stop trusting it.
    Remove {
        /// A CA that is not the one that signs.
        id: AuthorityId,
    },
    /// Adds a join token, and deletes expired ones.
    AddJoinToken {
        /// Chosen by the sender at random.
        id: TokenId,
        /// The digest of its secret.
        digest: SecretDigest,
        /// Lifetime, at most [`limits::JOIN_TOKEN_LIFETIME_MS_MAX`].
        lifetime_ms: u64,
    },
    /// Marks a join token as used by a host. A member sends it before it signs the host's
    /// certificate, and does not sign if it is denied.
    Enrol {
        /// The join token.
        id: TokenId,
        /// The digest of the secret in the host's request.
        digest: SecretDigest,
        /// The host. It may use the same token again.
        host: Uuid,
    },
}

const TAG_ADD: u8 = 1;
const TAG_USE: u8 = 2;
const TAG_REMOVE: u8 = 3;
const TAG_ADD_JOIN_TOKEN: u8 = 4;
const TAG_ENROL: u8 = 5;

impl AuthorityWrite {
    /// A change whose time the leader sets.
    pub fn new(change: AuthorityChange) -> AuthorityWrite {
        AuthorityWrite { at: UnixMillis(0), change }
    }

    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        match &self.change {
            AuthorityChange::Add { certificate, key } => {
                let has_length = |bytes: &[u8]| (1..=limits::AUTHORITY_BYTES_MAX).contains(&bytes.len());
                if has_length(certificate) && has_length(&key.0) {
                    return Ok(());
                }
                Err(ShardRefusal::invalid(
                    "the certificate and the key of an authority have at most 16 KiB each",
                ))
            }
            AuthorityChange::AddJoinToken { lifetime_ms, .. }
                if !(1..=limits::JOIN_TOKEN_LIFETIME_MS_MAX).contains(lifetime_ms) =>
            {
                Err(ShardRefusal::invalid("a join token is valid for some time, at most 30 days"))
            }
            AuthorityChange::Use { .. }
            | AuthorityChange::Remove { .. }
            | AuthorityChange::AddJoinToken { .. }
            | AuthorityChange::Enrol { .. } => Ok(()),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.at.0);
        match &self.change {
            AuthorityChange::Add { certificate, key } => {
                out.push(TAG_ADD);
                codec::put_bytes(out, certificate);
                codec::put_bytes(out, &key.0);
            }
            AuthorityChange::Use { id } => {
                out.push(TAG_USE);
                codec::put_varint(out, id.0);
            }
            AuthorityChange::Remove { id } => {
                out.push(TAG_REMOVE);
                codec::put_varint(out, id.0);
            }
            AuthorityChange::AddJoinToken { id, digest, lifetime_ms } => {
                out.push(TAG_ADD_JOIN_TOKEN);
                codec::put_varint(out, id.0);
                out.extend_from_slice(&digest.0);
                codec::put_varint(out, *lifetime_ms);
            }
            AuthorityChange::Enrol { id, digest, host } => {
                out.push(TAG_ENROL);
                codec::put_varint(out, id.0);
                out.extend_from_slice(&digest.0);
                out.extend_from_slice(host.as_bytes());
            }
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<AuthorityWrite, DecodeError> {
        let at = UnixMillis(decoder.varint()?);
        let change = match decoder.u8()? {
            TAG_ADD => {
                let certificate = decoder.bytes()?.to_vec();
                AuthorityChange::Add { certificate, key: PrivateKey(decoder.bytes()?.to_vec()) }
            }
            TAG_USE => AuthorityChange::Use { id: AuthorityId(decoder.varint()?) },
            TAG_REMOVE => AuthorityChange::Remove { id: AuthorityId(decoder.varint()?) },
            TAG_ADD_JOIN_TOKEN => {
                let (id, digest) = (TokenId(decoder.varint()?), auth::digest(decoder)?);
                AuthorityChange::AddJoinToken { id, digest, lifetime_ms: decoder.varint()? }
            }
            TAG_ENROL => {
                let (id, digest) = (TokenId(decoder.varint()?), auth::digest(decoder)?);
                AuthorityChange::Enrol { id, digest, host: decoder.uuid()? }
            }
            _ => return Err(DecodeError::UnknownTag("change of authorities")),
        };
        Ok(AuthorityWrite { at, change })
    }
}

#[cfg(test)]
mod tests {
    use super::super::RegistryWrite;
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use alloc::format;
    use alloc::vec;

    #[test]
    fn changes_are_read_as_they_are_written() {
        let (id, digest) = (TokenId(u64::MAX), SecretDigest::of(b"a"));
        for change in [
            AuthorityChange::Add { certificate: vec![1], key: PrivateKey(vec![2, 3]) },
            AuthorityChange::Use { id: AuthorityId(300) },
            AuthorityChange::Remove { id: AuthorityId(1) },
            AuthorityChange::AddJoinToken { id, digest, lifetime_ms: 300 },
            AuthorityChange::Enrol { id, digest, host: Uuid::from_u128(7) },
        ] {
            let write = AuthorityWrite { at: UnixMillis(300), change };
            assert_round_trip(RegistryWrite::Authority(write).into());
        }
    }

    #[test]
    fn limits_are_checked_and_the_key_is_not_shown() {
        let add = |bytes| {
            let (certificate, key) = (vec![b'c'; bytes], PrivateKey(vec![b'k'; bytes]));
            AuthorityWrite::new(AuthorityChange::Add { certificate, key })
        };
        assert!(add(limits::AUTHORITY_BYTES_MAX).validate().is_ok());
        assert!(add(0).validate().is_err() && add(limits::AUTHORITY_BYTES_MAX + 1).validate().is_err());
        let (id, digest) = (TokenId(1), SecretDigest::of(b"a"));
        for (lifetime_ms, is_valid) in
            [(0, false), (1, true), (limits::JOIN_TOKEN_LIFETIME_MS_MAX + 1, false)]
        {
            let write = AuthorityWrite::new(AuthorityChange::AddJoinToken { id, digest, lifetime_ms });
            assert_eq!(write.validate().is_ok(), is_valid);
        }
        let shown = format!("{:?}", add(2));
        assert!(shown.contains("[99, 99]") && !shown.contains("107"), "{shown}");
    }
}
