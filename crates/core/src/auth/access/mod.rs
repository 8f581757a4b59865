//! Roles, principals and tokens: who may do what.
//!
//! Owns the rows, and the answers to two questions: whose token this is, and whether a caller may
//! make a request. `control::access` changes the rows, and owns how they refer to each other. Nodes
//! ask for every request, so an answer allocates nothing.

mod permissions;
mod snapshot;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;

pub use permissions::Permissions;

use super::{
    ADMIN_ROLE, Caller, Demand, Principal, RateLimits, Role, Scope, SecretDigest, Token, TokenId, Verb,
};
use crate::types::{LogIndex, UnixMillis};

/// All roles, principals and tokens of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Log index of the last change; 0 before the first.
    pub(crate) revision: LogIndex,
    pub(crate) is_required: bool,
    pub(crate) roles: BTreeMap<String, Arc<Role>>,
    pub(crate) principals: BTreeMap<String, Principal>,
    pub(crate) tokens: BTreeMap<TokenId, Token>,
    /// The built-in role, which is always the same.
    admin: Arc<Role>,
    /// The permissions of every principal, derived from the rows.
    permissions: BTreeMap<String, Permissions>,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            revision: LogIndex(0),
            is_required: false,
            roles: BTreeMap::new(),
            principals: BTreeMap::new(),
            tokens: BTreeMap::new(),
            admin: Role::admin().into(),
            permissions: BTreeMap::new(),
        }
    }
}

impl Access {
    /// Log index of the last change; 0 before the first.
    pub fn revision(&self) -> LogIndex {
        self.revision
    }

    /// Whether requests without an authenticated principal are refused.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// Every role, by name, the built-in one first.
    pub fn roles(&self) -> impl Iterator<Item = (&str, &Role)> {
        let stored = self.roles.iter().map(|(name, role)| (name.as_str(), &**role));
        core::iter::once((ADMIN_ROLE, &*self.admin)).chain(stored)
    }

    /// The role of a name.
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.shared_role(name).map(|role| &**role)
    }

    fn shared_role(&self, name: &str) -> Option<&Arc<Role>> {
        if name == ADMIN_ROLE { Some(&self.admin) } else { self.roles.get(name) }
    }

    /// Every principal, by name.
    pub fn principals(&self) -> &BTreeMap<String, Principal> {
        &self.principals
    }

    /// Every token.
    pub fn tokens(&self) -> &BTreeMap<TokenId, Token> {
        &self.tokens
    }

    /// The principal of a token, if the secret is right and the token has not expired at `now`.
    pub fn authenticate(&self, id: TokenId, secret: &SecretDigest, now: UnixMillis) -> Option<&str> {
        let token = self.tokens.get(&id).filter(|token| token.is_in_force(now))?;
        // Every digest is compared, so that the time does not show which one is right.
        let is_right = token.digests.iter().fold(false, |found, digest| found | digest.matches(secret));
        is_right.then_some(token.principal.as_str())
    }

    /// The principal that a name of a client certificate proves.
    pub fn principal_of_certificate(&self, certificate_name: &str) -> Option<&str> {
        let has_name = |principal: &Principal| principal.certificate_names.contains(certificate_name);
        let found = self.principals.iter().find(|(_, principal)| has_name(principal));
        found.map(|(name, _)| name.as_str())
    }

    /// The rate limits of a principal: the lowest of its roles, including roles that have ended.
    pub fn rates(&self, principal: &str) -> RateLimits {
        let roles = self.principals.get(principal).into_iter().flat_map(|principal| &principal.roles);
        let rates = roles.filter_map(|role| self.role(role)).map(|role| role.rates);
        rates.fold(RateLimits::default(), RateLimits::lowest)
    }

    /// Whether a grant of the caller covers the demand at `now`. If the time is not known, roles
    /// that end at some time allow nothing. It does not depend on whether authentication is
    /// required.
    pub fn covers(&self, caller: &Caller, demand: &Demand<'_>, now: Option<UnixMillis>) -> bool {
        match caller {
            Caller::Anonymous => false,
            Caller::Node => true,
            Caller::Principal(name) => {
                self.permissions(name).is_some_and(|permissions| permissions.cover(demand, now))
            }
        }
    }

    /// Whether somebody can prove at `now` to be a principal that may change permissions. A name of
    /// a certificate does not count, because nodes need not ask for certificates.
    pub(crate) fn has_administrator(&self, now: UnixMillis) -> bool {
        let demand = Demand { verb: Verb::Administer, scope: Scope::Cluster };
        let is_admin = |principal: &Principal| {
            let mut roles = principal.roles.iter().filter_map(|role| self.role(role));
            roles.any(|role| role.is_in_force(now) && role.grants.cover(&demand))
        };
        self.principals.iter().any(|(name, principal)| {
            let has_token =
                || self.tokens.values().any(|token| token.principal == *name && token.is_in_force(now));
            is_admin(principal) && has_token()
        })
    }
}
