//! Changes of roles, principals and tokens.
//!
//! Owns how the rows refer to each other. The registry applies changes to them.
//!
//! Invariants:
//! - A role of a principal exists, and a principal of a token.
//! - The built-in role exists and has every grant. It is not among the stored rows.
//! - While authentication is required, no change removes the last way to become an administrator.

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec;

use crate::auth::{ADMIN_ROLE, Access, Principal, Role, SecretDigest, Token, TokenId};
use crate::command::{AccessChange, AccessWrite, Denial, WriteReply};
use crate::limits;
use crate::types::{LogIndex, UnixMillis, Version};

impl Access {
    /// The rows after the change of the entry at `index`, or the answer if nothing changes.
    ///
    /// # Errors
    /// The answer: a denial, a failed condition, or that the rows are already so.
    pub(in crate::control) fn changed(
        &self,
        index: LogIndex,
        write: AccessWrite,
    ) -> Result<Access, WriteReply> {
        let AccessWrite { at, seen, change } = write;
        if seen.is_some_and(|seen| seen != self.revision) {
            return Err(WriteReply::ConditionFailed { current: Version(self.revision.0) });
        }
        let mut next = self.clone();
        next.make(change, at).map_err(WriteReply::Denied)?;
        next.derive_permissions();
        if next == *self {
            return Err(WriteReply::AccessChanged { revision: self.revision });
        }
        if next.is_required && !next.has_administrator(at) {
            if !self.is_required {
                return Err(WriteReply::Denied(Denial::NoAdministrator));
            }
            // If the last one has expired already, the change takes nothing away.
            if self.has_administrator(at) {
                return Err(WriteReply::Denied(Denial::LastAdministrator));
            }
        }
        next.revision = index;
        Ok(next)
    }

    fn make(&mut self, change: AccessChange, at: UnixMillis) -> Result<(), Denial> {
        match change {
            AccessChange::PutRole { name, role } => self.put_role(name, role),
            AccessChange::DeleteRole { name } => self.delete_role(&name),
            AccessChange::PutPrincipal { name, principal } => self.put_principal(name, principal),
            AccessChange::DeletePrincipal { name } => {
                self.principals.remove(&name).ok_or(Denial::UnknownPrincipal)?;
                self.tokens.retain(|_, token| token.principal != name);
                Ok(())
            }
            AccessChange::AddToken { id, principal, digest, lifetime_ms } => {
                let expires = lifetime_ms.map(|lifetime| UnixMillis(at.0.saturating_add(lifetime)));
                self.add_token(id, Token { principal, digests: vec![digest], created: at, expires })
            }
            AccessChange::RotateToken { id, digest } => self.rotate_token(id, digest),
            AccessChange::DeleteToken { id } => self.tokens.remove(&id).map(drop).ok_or(Denial::UnknownToken),
            AccessChange::Require(is_required) => {
                self.is_required = is_required;
                Ok(())
            }
        }
    }

    fn put_role(&mut self, name: String, role: Role) -> Result<(), Denial> {
        if name == ADMIN_ROLE {
            return Err(Denial::BuiltInRole);
        }
        if !self.roles.contains_key(&name) && self.roles.len() >= limits::ROLES_MAX {
            return Err(Denial::TooManyRoles);
        }
        self.roles.insert(name, role.into());
        Ok(())
    }

    fn delete_role(&mut self, name: &str) -> Result<(), Denial> {
        if name == ADMIN_ROLE {
            return Err(Denial::BuiltInRole);
        }
        if self.principals.values().any(|principal| principal.roles.contains(name)) {
            return Err(Denial::RoleInUse);
        }
        self.roles.remove(name).map(drop).ok_or(Denial::UnknownRole)
    }

    fn put_principal(&mut self, name: String, principal: Principal) -> Result<(), Denial> {
        if principal.roles.iter().any(|role| self.role(role).is_none()) {
            return Err(Denial::UnknownRole);
        }
        let is_taken = |(other, row): (&String, &Principal)| {
            *other != name && !row.certificate_names.is_disjoint(&principal.certificate_names)
        };
        if self.principals.iter().any(is_taken) {
            return Err(Denial::CertificateNameTaken);
        }
        if !self.principals.contains_key(&name) && self.principals.len() >= limits::PRINCIPALS_MAX {
            return Err(Denial::TooManyPrincipals);
        }
        self.principals.insert(name, principal);
        Ok(())
    }

    fn add_token(&mut self, id: TokenId, token: Token) -> Result<(), Denial> {
        if !self.principals.contains_key(&token.principal) {
            return Err(Denial::UnknownPrincipal);
        }
        if let Some(known) = self.tokens.get(&id) {
            // A repetition of the same command, after an answer was lost.
            let is_same = known.principal == token.principal && known.digests == token.digests;
            return if is_same { Ok(()) } else { Err(Denial::TokenExists) };
        }
        if self.tokens.len() >= limits::TOKENS_MAX {
            return Err(Denial::TooManyTokens);
        }
        self.tokens.insert(id, token);
        Ok(())
    }

    fn rotate_token(&mut self, id: TokenId, digest: SecretDigest) -> Result<(), Denial> {
        let token = self.tokens.get_mut(&id).ok_or(Denial::UnknownToken)?;
        if token.digests.last() != Some(&digest) {
            token.digests.push(digest);
            let surplus = token.digests.len().saturating_sub(limits::TOKEN_SECRETS_MAX);
            token.digests.drain(..surplus);
        }
        Ok(())
    }
}
