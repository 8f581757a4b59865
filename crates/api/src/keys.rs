//! `GET /v1/keys`: pages of keys in byte order.
//!
//! Bytes that are UTF-8 are a text, others are in base64 in the member with the suffix `_b64`,
//! never both. The server writes pages directly into the buffer of the answer, because of the size
//! of their values; a test of it holds it to these types.

use serde::Deserialize;

/// A page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct KeyPage {
    /// The keys in byte order, at most as many as the request asked for.
    pub items: Vec<KeyItem>,
    /// The last key of this page if there are more after it, if it is UTF-8.
    pub next: Option<String>,
    /// The same in base64, if it is not UTF-8.
    pub next_b64: Option<String>,
}

/// A key, with its value unless the request was for keys alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct KeyItem {
    /// The key, if it is UTF-8.
    pub key: Option<String>,
    /// The key in base64, if it is not UTF-8.
    pub key_b64: Option<String>,
    /// Version of the key, from 1.
    pub ver: u64,
    /// Milliseconds until it expires; `None` if it does not.
    pub ttl_ms: Option<u64>,
    /// The value, if it is UTF-8.
    pub val: Option<String>,
    /// The value in base64, if it is not UTF-8.
    pub val_b64: Option<String>,
}
