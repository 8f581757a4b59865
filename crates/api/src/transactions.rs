//! `POST /v1/transactions`: operations on several keys that happen all or not at all.
//!
//! Bytes that are UTF-8 are a text, others are in base64 in the member with the suffix `_b64`,
//! never both.
//!
//! ```json
//! {
//!   "if":   [{"key": "{order:7}state", "val": "new"}, {"key": "{order:7}lock", "exists": false}],
//!   "then": [{"put": {"key": "{order:7}state", "val": "paid"}}],
//!   "else": [{"get": {"key": "{order:7}state"}}]
//! }
//! ```

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BASE64, DURATION, LEASE_ID};

/// Most comparisons of a transaction, and most operations of each branch.
pub const OPERATIONS_MAX: usize = 1_024;

/// Most bytes of an id.
pub const ID_BYTES_MAX: usize = 64;

/// The body of `POST /v1/transactions`. All keys must be in one hash slot, by a common tag in
/// braces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Transaction", extend("minProperties" = 1))]
#[serde(deny_unknown_fields)]
pub struct TransactionRequest {
    /// The comparisons. `then` happens if all of them hold, or if there are none.
    #[serde(rename = "if", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = OPERATIONS_MAX))]
    pub comparisons: Vec<Comparison>,
    /// The operations that happen, in order, if all comparisons hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = OPERATIONS_MAX))]
    pub then: Vec<Operation>,
    /// The operations that happen, in order, if a comparison does not hold.
    #[serde(rename = "else", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = OPERATIONS_MAX))]
    pub otherwise: Vec<Operation>,
    /// Names the transaction among those of its slot. A repetition with the same id is answered
    /// with the first outcome, and does nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = ID_BYTES_MAX))]
    pub id: Option<String>,
}

/// A condition on the state of a key: its version, its value, whether it exists, or with which
/// fence it is held as a lock. Give exactly one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransactionComparison")]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// The key in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<String>,
    /// The version that the key must have; 0 if it must not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ver: Option<u64>,
    /// The value that the key must have, if it is UTF-8. A key that does not exist has no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub val: Option<String>,
    /// The value that the key must have, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub val_b64: Option<String>,
    /// Whether the key must exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub exists: Option<bool>,
    /// The fence with which the key must be held as a lock now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub fence: Option<u64>,
}

/// An operation on a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransactionOperation")]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Stores a value.
    Put(Put),
    /// Deletes a key.
    Delete(Key),
    /// Reads a key.
    Get(Key),
}

/// Stores a value, whether or not the key exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransactionPut")]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// The key in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<String>,
    /// The value, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub val: Option<String>,
    /// The value in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub val_b64: Option<String>,
    /// How long the key lives: a whole number with ms, s, m, h or d. Without it, the key does not
    /// expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = DURATION))]
    pub ttl: Option<String>,
    /// The lease with which the key ends, instead of `ttl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = LEASE_ID))]
    pub lease: Option<String>,
}

/// Names the key of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransactionKey")]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// The key in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<String>,
}

/// The answer to `POST /v1/transactions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransactionAnswer<'a> {
    /// Whether all comparisons held, so that `then` happened and not `else`.
    pub succeeded: bool,
    /// The results of the operations that happened, in their order.
    pub results: Vec<OperationResult<'a>>,
}

/// The result of an operation, under the name of the operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransactionResult")]
#[serde(rename_all = "lowercase")]
pub enum OperationResult<'a> {
    /// A value was stored.
    Put(PutResult<'a>),
    /// A key does not exist any more.
    Delete(DeleteResult<'a>),
    /// What a key held.
    Get(GetResult<'a>),
    /// A put or a delete that the state of the key or of a lease does not allow.
    Refused(RefusedResult<'a>),
}

/// The result of an operation that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransactionRefusedResult")]
pub struct RefusedResult<'a> {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<Cow<'a, str>>,
    /// The key in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<Cow<'a, str>>,
    /// The name of a problem: `lock-held`, `no-such-lease`, `lease-full` or `key-bound`.
    pub problem: Cow<'a, str>,
}

/// The result of a put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransactionPutResult")]
pub struct PutResult<'a> {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<Cow<'a, str>>,
    /// The key in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<Cow<'a, str>>,
    /// The new version of the key.
    pub ver: u64,
    /// Whether the key did not exist before.
    pub created: bool,
}

/// The result of a delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransactionDeleteResult")]
pub struct DeleteResult<'a> {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<Cow<'a, str>>,
    /// The key in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<Cow<'a, str>>,
    /// Whether the key existed before.
    pub deleted: bool,
}

/// The result of a get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransactionGetResult")]
pub struct GetResult<'a> {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<Cow<'a, str>>,
    /// The key in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<Cow<'a, str>>,
    /// Version of the key; 0 if it does not exist. It is missing if the value was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ver: Option<u64>,
    /// Milliseconds until it expires, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ttl_ms: Option<u64>,
    /// The value, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub val: Option<Cow<'a, str>>,
    /// The value in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub val_b64: Option<Cow<'a, str>>,
    /// Always true: the value was left out, because the values that the transaction read are longer
    /// than 8 MiB together, or than 16 KiB if it has an id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(with = "bool")]
    pub omitted: bool,
}
