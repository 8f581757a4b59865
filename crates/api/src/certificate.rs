//! `POST /v1/tls/reload`: the certificate that a node shows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The certificate that a node shows to clients and to other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// Whether it was replaced now, because its files had changed.
    pub replaced: bool,
    /// Its names: DNS names, IP addresses, and the URI that names the host.
    pub names: Vec<String>,
    /// When it expires, in seconds since 1970.
    pub expires_unix_s: i64,
}
