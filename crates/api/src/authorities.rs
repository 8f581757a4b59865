//! `/v1/cluster/join-tokens` and `/v1/tls/authorities`: the cluster's certificate authorities (CAs)
//! and join tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of `POST /v1/cluster/join-tokens`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    /// Lifetime in seconds, at most 30 days; absent: one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub expires_in_s: Option<u64>,
}

/// The answer to `POST /v1/cluster/join-tokens`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssuedJoinToken {
    /// Id of the token: 16 hexadecimal digits. It is not secret.
    pub id: String,
    /// The token. It cannot be shown again.
    pub token: String,
    /// Lifetime in seconds.
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
    /// Every CA that the nodes trust; empty if the cluster uses an external CA.
    pub authorities: Vec<Authority>,
}

/// A certificate authority (CA) of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Authority {
    /// Its number, from 1.
    pub id: u64,
    /// Whether new certificates are signed by it.
    pub signs: bool,
    /// The SHA-256 digest of its certificate: 64 hexadecimal digits.
    pub fingerprint: String,
    /// When it was added, in milliseconds since 1970.
    pub added_unix_ms: u64,
    /// Its certificate, PEM.
    pub certificate: String,
}
