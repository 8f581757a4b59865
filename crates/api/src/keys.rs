//! `GET /v1/keys`: pages of keys in byte order; and keys of the kv1 dialect.
//!
//! Bytes that are UTF-8 are a text, others are in base64 in the member with the suffix `_b64`,
//! never both. The server writes pages directly into the buffer of the answer, because of the size
//! of their values; a test of it holds it to these types.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::BASE64;

/// A page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct KeyPage {
    /// The keys in byte order, at most as many as the request asked for.
    pub items: Vec<KeyItem>,
    /// With `delimiter`: the folders in byte order, which `items` then leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<KeyFolder>")]
    pub folders: Option<Vec<KeyFolder>>,
    /// The last key of this page if it is UTF-8; null if no key follows the page. With `delimiter`
    /// it may be the prefix of a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The last key of this page in base64, if it is not UTF-8 and a key follows the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub next_b64: Option<String>,
}

/// Keys with a common beginning, up to the first delimiter behind the prefix of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct KeyFolder {
    /// The beginning with the delimiter, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub prefix: Option<String>,
    /// The beginning in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub prefix_b64: Option<String>,
    /// Number of its keys, or of those that were counted.
    pub keys: u64,
    /// Whether these are all.
    pub complete: bool,
}

/// A key, with its value unless the request was for keys alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct KeyItem {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// The key in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<String>,
    /// Version of the key, from 1.
    pub ver: u64,
    /// Milliseconds until it expires, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ttl_ms: Option<u64>,
    /// The value, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub val: Option<String>,
    /// The value in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub val_b64: Option<String>,
}

/// A key with its version, as the kv1 dialect shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Versioned {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// The key in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<String>,
    /// Version of the key, from 1.
    pub ver: u64,
    /// The value, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub val: Option<String>,
    /// The value in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub val_b64: Option<String>,
}
