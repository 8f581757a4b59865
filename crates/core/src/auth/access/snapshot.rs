//! Roles, principals and tokens in the snapshot of the registry.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Access;
use crate::auth::{Principal, RateLimits, Role, Token, TokenId};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::LogIndex;

impl Access {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.revision.0);
        out.push(u8::from(self.is_required));
        codec::put_varint(out, self.roles.len() as u64);
        for (name, role) in &self.roles {
            codec::put_bytes(out, name.as_bytes());
            role.encode(out);
        }
        codec::put_varint(out, self.principals.len() as u64);
        for (name, principal) in &self.principals {
            codec::put_bytes(out, name.as_bytes());
            principal.encode(out);
        }
        codec::put_varint(out, self.tokens.len() as u64);
        for (id, token) in &self.tokens {
            codec::put_varint(out, id.0);
            token.encode(out);
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Access, DecodeError> {
        let (revision, is_required) = (LogIndex(decoder.varint()?), decoder.bool()?);
        let mut roles = BTreeMap::new();
        for _ in 0..decoder.bounded(limits::ROLES_MAX as u64, "number of roles")? {
            let name = decoder.text()?;
            roles.insert(name, Role::decode(decoder)?.into());
        }
        let mut principals = BTreeMap::new();
        for _ in 0..decoder.bounded(limits::PRINCIPALS_MAX as u64, "number of principals")? {
            let name = decoder.text()?;
            principals.insert(name, Principal::decode(decoder)?);
        }
        let mut tokens = BTreeMap::new();
        for _ in 0..decoder.bounded(limits::TOKENS_MAX as u64, "number of tokens")? {
            let id = TokenId(decoder.varint()?);
            tokens.insert(id, Token::decode(decoder)?);
        }
        let mut access = Access { revision, is_required, roles, principals, tokens, ..Access::default() };
        access.derive_permissions();
        Ok(access)
    }

    /// Encodes the rate limits of roles, which follow the rows from
    /// [`ClusterVersion::WITH_LIMITS`](crate::version::ClusterVersion::WITH_LIMITS) on.
    pub(crate) fn encode_rates(&self, out: &mut Vec<u8>) {
        let limited = || self.roles.iter().filter(|(_, role)| !role.rates.is_empty());
        codec::put_varint(out, limited().count() as u64);
        for (name, role) in limited() {
            codec::put_bytes(out, name.as_bytes());
            role.rates.encode(out);
        }
    }

    /// Decodes what [`Access::encode_rates`] wrote.
    pub(crate) fn decode_rates(&mut self, decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
        for _ in 0..decoder.bounded(limits::ROLES_MAX as u64, "number of limited roles")? {
            let (name, rates) = (decoder.text()?, RateLimits::decode(decoder)?);
            let role = self.roles.get_mut(&name).ok_or(DecodeError::Invalid("name of a limited role"))?;
            Arc::make_mut(role).rates = rates;
        }
        self.derive_permissions();
        Ok(())
    }
}
