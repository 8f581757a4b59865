//! Permissions: what a request demands, who makes it, and what a principal is granted.
//!
//! Owns demands and grants, the text form of grants, the rule by which a grant covers a demand, and
//! the rows of roles, principals and tokens, and those of the cluster's certificate authorities. It
//! does not know requests: `command::demands` says what each of them demands. `control::access` and
//! `control::authorities` change the rows.
//!
//! Grants only allow; nothing is allowed that no grant covers. One grant covers a demand as a
//! whole: two grants that cover a range of keys only together do not.

mod access;
mod authorities;
mod caller;
mod demand;
mod grant;
mod principal;
mod rate_limit;
mod text;

pub use access::{Access, Permissions};
pub use authorities::{
    Authorities, Authority, AuthorityId, JoinToken, PresentedCertificate, PrivateKey, bundle_revision,
};
pub use caller::Caller;
pub use demand::{Demand, Scope, Verb};
pub use grant::{ClusterLevel, ConfigAccess, Grant, Grants, KeyAccess, Namespaces};
pub use principal::{ADMIN_ROLE, Principal, Role, SecretDigest, Token, TokenId};
pub(crate) use principal::{digest, put_time, time};
pub use rate_limit::{LimitExceeded, RateLimiter, RateLimits, Usage};
pub use text::GrantError;
