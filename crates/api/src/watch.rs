//! `GET /v1/watch`: the data of events, and the answer of one poll.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::BASE64;

/// Changes of the watched keys after a cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct KeyChanges {
    /// For the next poll, at any node.
    pub cursor: String,
    /// The changes after the cursor of the request are not known any more, or there was no cursor.
    /// Read the keys themselves now, then go on with the new cursor.
    pub reset: bool,
    /// The last state of each key that has changed, in the order of their versions within a shard.
    pub changes: Vec<KeyChange>,
}

/// The last state of a key that has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct KeyChange {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// The key in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<String>,
    /// Version of the key, or of its deletion.
    pub ver: u64,
    /// The key was deleted, or has expired; left out otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
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
