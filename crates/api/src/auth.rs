//! `/v1/auth/…`: who may do what.
//!
//! Texts of grants are described in `docs/reference/permissions.md`. Times are milliseconds since
//! 1970.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/auth`, and the body of `PUT /v1/auth`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Authentication {
    /// Whether requests without a valid token are refused.
    pub required: bool,
}

/// `GET /v1/auth/whoami`: who makes the request, as the answering node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Whoami {
    /// Whether requests without a valid token are refused.
    pub required: bool,
    /// The principal that the client has proved to be; absent if it has proved none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub principal: Option<String>,
    /// Number of the token that proves it: 16 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub token: Option<String>,
    /// The name in the client's certificate that proves it; absent with a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub certificate_name: Option<String>,
    /// When the token or the certificate expires; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub expires_unix_ms: Option<u64>,
    /// Names of the principal's roles.
    pub roles: Vec<String>,
    /// What these roles allow now, each grant once.
    pub grants: Vec<String>,
}

/// The body of `PUT /v1/auth/roles/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutRole {
    /// What the role allows.
    #[schemars(length(max = 100))]
    pub grants: Vec<String>,
    /// From when on the role allows nothing any more; absent: it does not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ends_unix_ms: Option<u64>,
    /// Most operations a second that each node serves to a principal with the role; absent: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 1_000_000_000_000_u64))]
    pub operations_per_s: Option<u64>,
    /// Most bytes of requests and answers a second; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 1_000_000_000_000_u64))]
    pub bytes_per_s: Option<u64>,
}

/// A role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub grants: Vec<String>,
    /// From when on it allows nothing any more; absent: it does not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ends_unix_ms: Option<u64>,
    /// Most operations a second that each node serves to a principal with the role; absent: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 1_000_000_000_000_u64))]
    pub operations_per_s: Option<u64>,
    /// Most bytes of requests and answers a second; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 1_000_000_000_000_u64))]
    pub bytes_per_s: Option<u64>,
}

/// `GET /v1/auth/roles`: the roles, ordered by name. `admin` is always among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Roles {
    /// Each role.
    pub roles: Vec<Role>,
}

/// The body of `PUT /v1/auth/principals/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutPrincipal {
    /// Names of existing roles. The principal may do what any of them allows.
    pub roles: Vec<String>,
    /// Whole URI or DNS names of client certificates that prove to be the principal; absent: it
    /// keeps those that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(min = 1)))]
    pub certificate_names: Option<Vec<String>>,
}

/// A principal: somebody or something that makes requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Principal {
    /// Its name.
    pub name: String,
    /// Names of its roles.
    pub roles: Vec<String>,
    /// Whole URI or DNS names of client certificates that prove to be it.
    #[serde(default)]
    pub certificate_names: Vec<String>,
}

/// `GET /v1/auth/principals`: the principals, ordered by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Principals {
    /// Each principal.
    pub principals: Vec<Principal>,
}

/// The body of `POST /v1/auth/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Name of an existing principal.
    pub principal: String,
    /// How long the token is accepted, in seconds; absent: until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1))]
    pub expires_in_s: Option<u64>,
}

/// The answer to `POST /v1/auth/tokens` and to `POST /v1/auth/tokens/{id}/rotate`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssuedToken {
    /// Number of the token: 16 hexadecimal digits. It is no secret.
    pub id: String,
    /// What a client sends. No node stores it, and it is shown this once.
    pub token: String,
    /// Where the change is in force.
    #[serde(flatten)]
    pub change: Change,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// Its number: 16 hexadecimal digits.
    pub id: String,
    /// Name of its principal.
    pub principal: String,
    /// When it was created.
    pub created_unix_ms: u64,
    /// When it expires; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub expires_unix_ms: Option<u64>,
    /// How many secrets are accepted: 1, or 2 after a rotation.
    pub secrets: u64,
}

/// `GET /v1/auth/tokens`: the tokens, ordered by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// Each token.
    pub tokens: Vec<Token>,
}

/// The answer to a change of roles, principals or tokens: where it is in force. It is stored; a
/// node where it is not in force yet applies it as soon as it hears of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AccessChange")]
pub struct Change {
    /// Number of the change, which grows.
    pub revision: u64,
    /// Numbers of the nodes that apply the change.
    pub in_force: Vec<u64>,
    /// Numbers of the nodes that have not confirmed yet that they apply it.
    pub not_yet: Vec<u64>,
}

impl core::fmt::Debug for IssuedToken {
    /// Leaves out the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("IssuedToken")
            .field("id", &self.id)
            .field("change", &self.change)
            .finish_non_exhaustive()
    }
}
