//! Certificate authorities (CAs) of the cluster, and the join tokens with which hosts request their
//! first certificate.
//!
//! Owns the rows, their layout, and when a node renews its certificate. `control::authorities`
//! changes the rows. Certificates and keys are opaque bytes here; the server generates keys and
//! signs.
//!
//! Invariant: a private key exists only in the log, in snapshots and on encrypted connections
//! between nodes. Backups and `Debug` output do not contain it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use uuid::Uuid;

use super::principal::digest;
use super::{SecretDigest, TokenId};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::UnixMillis;

/// Start of the first line of a CA bundle. PEM parsers ignore text outside of the certificates.
const REVISION_LINE: &str = "# authorities of the cluster, revision ";

/// Reads the [`Authorities::revision`] from a CA bundle; 0 if the bundle has none.
pub fn bundle_revision(bundle: &[u8]) -> u64 {
    let line = bundle.split(|&byte| byte == b'\n').next().and_then(|line| core::str::from_utf8(line).ok());
    let revision = line.and_then(|line| line.strip_prefix(REVISION_LINE)?.parse().ok());
    revision.unwrap_or(0)
}

/// Number of a CA, from 1; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthorityId(pub u64);

/// A private key, PEM. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(pub Vec<u8>);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

/// A certificate authority that signs host certificates, or did before a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Its certificate, PEM.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: PrivateKey,
    /// When it was added, by the clock of the prime shard's leader.
    pub added: UnixMillis,
}

/// A one-time token with which one host requests its first certificate. Only the digest of the
/// secret is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// The digest of its secret.
    pub digest: SecretDigest,
    /// The token is rejected from this time on.
    pub expires: UnixMillis,
    /// The host that has used the token. Only this host may use it again.
    pub used_by: Option<Uuid>,
}

/// All CAs and join tokens of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorities {
    pub(crate) rows: BTreeMap<AuthorityId, Authority>,
    /// The CA that signs; 0 if there is none.
    pub(crate) signing: AuthorityId,
    pub(crate) last: AuthorityId,
    /// Number of changes of the CAs so far. Replicas that lag behind have a lower number.
    pub(crate) revision: u64,
    /// When a CA was last added, or last became the one that signs.
    pub(crate) changed: UnixMillis,
    pub(crate) join_tokens: BTreeMap<TokenId, JoinToken>,
}

impl Authorities {
    /// Every CA that the nodes trust.
    pub fn rows(&self) -> &BTreeMap<AuthorityId, Authority> {
        &self.rows
    }

    /// The CA that signs; `None` if the cluster uses certificates of an external CA.
    pub fn signing(&self) -> Option<(AuthorityId, &Authority)> {
        self.rows.get(&self.signing).map(|row| (self.signing, row))
    }

    /// Every join token.
    pub fn join_tokens(&self) -> &BTreeMap<TokenId, JoinToken> {
        &self.join_tokens
    }

    /// Number of changes of the CAs so far. Of two bundles, the one with the higher revision is
    /// newer.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The CA bundle (`ca.crt`): the certificates of all CAs, PEM. Its first line states the
    /// [`Authorities::revision`].
    pub fn bundle(&self) -> Vec<u8> {
        let mut bundle = format!("{REVISION_LINE}{}\n", self.revision).into_bytes();
        for row in self.rows.values() {
            bundle.extend_from_slice(&row.certificate);
            if row.certificate.last() != Some(&b'\n') {
                bundle.push(b'\n');
            }
        }
        bundle
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.rows.len() as u64);
        for (id, row) in &self.rows {
            codec::put_varint(out, id.0);
            codec::put_bytes(out, &row.certificate);
            codec::put_bytes(out, &row.key.0);
            codec::put_varint(out, row.added.0);
        }
        let numbers = [self.signing.0, self.last.0, self.revision, self.changed.0];
        for number in numbers.into_iter().chain([self.join_tokens.len() as u64]) {
            codec::put_varint(out, number);
        }
        for (id, token) in &self.join_tokens {
            codec::put_varint(out, id.0);
            out.extend_from_slice(&token.digest.0);
            codec::put_varint(out, token.expires.0);
            out.push(u8::from(token.used_by.is_some()));
            token.used_by.iter().for_each(|host| out.extend_from_slice(host.as_bytes()));
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Authorities, DecodeError> {
        let mut rows = BTreeMap::new();
        for _ in 0..decoder.bounded(limits::AUTHORITIES_MAX as u64, "number of authorities")? {
            let id = AuthorityId(decoder.varint()?);
            let certificate = decoder.bytes()?.to_vec();
            let key = PrivateKey(decoder.bytes()?.to_vec());
            rows.insert(id, Authority { certificate, key, added: UnixMillis(decoder.varint()?) });
        }
        let (signing, last) = (AuthorityId(decoder.varint()?), AuthorityId(decoder.varint()?));
        let (revision, changed) = (decoder.varint()?, UnixMillis(decoder.varint()?));
        let mut join_tokens = BTreeMap::new();
        for _ in 0..decoder.bounded(limits::JOIN_TOKENS_MAX as u64, "number of join tokens")? {
            let id = TokenId(decoder.varint()?);
            let (digest, expires) = (digest(decoder)?, UnixMillis(decoder.varint()?));
            let used_by = if decoder.bool()? { Some(decoder.uuid()?) } else { None };
            join_tokens.insert(id, JoinToken { digest, expires, used_by });
        }
        Ok(Authorities { rows, signing, last, revision, changed, join_tokens })
    }
}

/// The properties of a node's current certificate that decide about its renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentedCertificate {
    /// Start of its validity.
    pub begins: UnixMillis,
    /// End of its validity.
    pub ends: UnixMillis,
    /// The CA that has signed it; `None` if it is not a CA of the cluster.
    pub signed_by: Option<AuthorityId>,
}

impl Authorities {
    /// The CA that must sign a new certificate for the node now; `None` if the current certificate
    /// stays. A certificate is renewed after two thirds of its lifetime, and when another CA has
    /// become the one that signs.
    pub fn renewal(&self, shown: PresentedCertificate, now: UnixMillis) -> Option<(AuthorityId, &Authority)> {
        let (id, authority) = self.signing()?;
        let lifetime = shown.ends.0.saturating_sub(shown.begins.0);
        let is_old = now.0 >= shown.begins.0.saturating_add(lifetime / 3 * 2);
        (is_old || shown.signed_by != Some(id)).then_some((id, authority))
    }
}
