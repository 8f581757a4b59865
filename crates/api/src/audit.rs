//! `GET /v1/audit`: who made which administrative change.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of records in one answer.
pub const LISTED_MAX: usize = 1_000;

/// Records of administrative changes, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecords {
    /// At most as many as the request asked for.
    pub records: Vec<AuditRecord>,
    /// Value of `before` for the next older page; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub before: Option<u64>,
}

/// One administrative change that was made, or one action that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// Sequence number in the cluster, from 1 and without gaps.
    pub sequence: u64,
    /// When the change was proposed, by the leader's wall clock.
    pub at_unix_ms: u64,
    /// `principal`, `anonymous` (a client without a token), or `node` (a node itself).
    #[schemars(extend("enum" = ["principal", "anonymous", "node"]))]
    pub caller: Cow<'static, str>,
    /// Name of the principal; absent for other callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub principal: Option<String>,
    /// The action, such as `role.put` or `host.remove`.
    pub action: String,
    /// The target of the action: the name of a role or a principal, or the number of a host, a
    /// shard or a token. Empty if the action has no target.
    pub subject: String,
}
