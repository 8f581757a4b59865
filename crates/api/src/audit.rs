//! `GET /v1/audit`: who made which administrative change.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most records in one answer.
pub const LISTED_MAX: usize = 1_000;

/// Records of administrative changes, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecords {
    /// At most as many as the request asked for.
    pub records: Vec<AuditRecord>,
    /// Pass it as `before` for older records; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub before: Option<u64>,
}

/// One administrative change that was made, or one action that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// Its number. The records of a cluster are counted from 1, without gaps.
    pub sequence: u64,
    /// When it was made, by the clock of the leader.
    pub at_unix_ms: u64,
    /// `principal`; `anonymous` for a client without a token; `node` for a node on its own.
    #[schemars(extend("enum" = ["principal", "anonymous", "node"]))]
    pub caller: Cow<'static, str>,
    /// Name of the principal; absent for other callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub principal: Option<String>,
    /// What was done, such as `role.put` or `host.remove`.
    pub action: String,
    /// To what: the name of a role or a principal, or the number of a host, a shard or a token.
    /// Empty if there is nothing to name.
    pub subject: String,
}
