//! Errors of all paths but `/api`: problem details (RFC 9457).

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of a refused or failed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem<'a> {
    /// Identifies the kind of error for programs: a URL whose last segment is enough.
    #[serde(rename = "type")]
    #[schemars(url)]
    pub kind: Cow<'a, str>,
    /// The kind of error, for people.
    pub title: Cow<'a, str>,
    /// The HTTP status.
    #[schemars(range(min = 400, max = 599))]
    pub status: u16,
    /// What happened, and what was done, for people.
    pub detail: Cow<'a, str>,
    /// The limit in bytes that was exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub limit: Option<u64>,
    /// The version of the key, which a condition did not expect; 0 if there is no such key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub current: Option<u64>,
}

impl Problem<'_> {
    /// The last segment of the type, which identifies the kind.
    pub fn name(&self) -> &str {
        self.kind.rsplit('/').next().unwrap_or_default()
    }
}
