//! `/v1/cluster/join-tokens` and `/v1/tls/authorities`: certificates that the cluster signs itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of `POST /v1/cluster/join-tokens`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    /// How long the token is accepted, in seconds, at most 30 days; absent: one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub expires_in_s: Option<u64>,
}

/// The answer to `POST /v1/cluster/join-tokens`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssuedJoinToken {
    /// Number of the token: 16 hexadecimal digits. It is no secret.
    pub id: String,
    /// The token, which is shown this once.
    pub token: String,
    /// How long it is accepted, in seconds.
    pub expires_in_s: u64,
}

impl std::fmt::Debug for IssuedJoinToken {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedJoinToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The answer to `GET /v1/tls/authorities` and to changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Authorities {
    /// Every authority that nodes trust; none if certificates come from outside of the cluster.
    pub authorities: Vec<Authority>,
}

/// An authority that signs certificates of hosts, or has signed some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Authority {
    /// Its number, from 1.
    pub id: u64,
    /// Whether it signs.
    pub signs: bool,
    /// The SHA-256 digest of its certificate: 64 hexadecimal digits.
    pub fingerprint: String,
    /// When it was added, in milliseconds since 1970.
    pub added_unix_ms: u64,
    /// Its certificate, PEM.
    pub certificate: String,
}
