//! What one principal may do.
//!
//! Owns the index by principal, which is derived from the rows. A check thus looks up one name, not
//! that of each role.

use alloc::string::String;
use alloc::sync::Arc;

use super::Access;
use crate::auth::{Demand, Principal, Role, Verb};
use crate::types::UnixMillis;

/// The roles of a principal, as the rows said when the permissions were derived. A clone does not
/// follow later changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions(Arc<[Arc<Role>]>);

impl Permissions {
    /// Whether a grant of one of the roles covers the demand at `now`. If the time is not known,
    /// roles that end at some time allow nothing. It allocates nothing.
    pub fn cover(&self, demand: &Demand<'_>, now: Option<UnixMillis>) -> bool {
        let is_in_force = |role: &Role| role.ends.is_none() || now.is_some_and(|now| role.is_in_force(now));
        let covered = |demand: &Demand<'_>| {
            self.0.iter().any(|role| is_in_force(role) && role.grants.cover_alone(demand))
        };
        // One role may allow to watch, and another one to read.
        covered(demand)
            && (demand.verb != Verb::Watch || covered(&Demand { verb: Verb::Read, scope: demand.scope }))
    }

    /// When the next role ends after `now`; `None` if none does.
    pub fn next_end(&self, now: UnixMillis) -> Option<UnixMillis> {
        self.0.iter().filter_map(|role| role.ends).filter(|ends| *ends > now).min()
    }

    /// Whether a role ends at some time, so that an answer depends on the time.
    pub fn depend_on_time(&self) -> bool {
        self.0.iter().any(|role| role.ends.is_some())
    }
}

impl Access {
    /// The permissions of a principal; `None` if there is no principal of this name.
    pub fn permissions(&self, principal: &str) -> Option<&Permissions> {
        self.permissions.get(principal)
    }

    /// Derives the permissions from the rows. Must be called after every change of the rows.
    pub(crate) fn derive_permissions(&mut self) {
        let permissions = |(name, principal): (&String, &Principal)| {
            let roles = principal.roles.iter().filter_map(|role| self.shared_role(role)).cloned();
            (name.clone(), Permissions(roles.collect()))
        };
        self.permissions = self.principals.iter().map(permissions).collect();
    }
}
