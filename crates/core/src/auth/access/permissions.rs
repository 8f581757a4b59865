//! What one principal may do.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;

use super::Access;
use crate::auth::{Demand, Role, Verb};
use crate::types::UnixMillis;

/// The roles of a principal, to check many demands without looking them up each time. They are
/// those of the rows that they were taken from: later changes do not show.
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
    /// The permissions of every principal, by name, as the rows say.
    pub(super) fn permissions_of_rows(&self) -> BTreeMap<String, Permissions> {
        let permissions = |(name, principal): (&String, &super::Principal)| {
            let roles = principal.roles.iter().filter_map(|role| self.shared_role(role)).cloned();
            (name.clone(), Permissions(roles.collect()))
        };
        self.principals.iter().map(permissions).collect()
    }
}
