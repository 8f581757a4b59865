//! Permissions: what a request demands, and what a principal is granted.
//!
//! Owns demands and grants, the text form of grants, and the rule by which a grant covers a demand.
//! It does not know requests: `command::demands` says what each of them demands. It does not know
//! who makes a request either.
//!
//! Grants only allow; nothing is allowed that no grant covers. One grant covers a demand as a
//! whole: two grants that cover a range of keys only together do not.

mod demand;
mod grant;
mod text;

pub use demand::{Demand, Scope, Verb};
pub use grant::{ClusterLevel, ConfigAccess, Grant, Grants, KeyAccess, Namespaces};
pub use text::GrantError;
