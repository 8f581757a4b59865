//! `/v1/atomics/{id}` and below: registers, which are keys with a decimal number of 64 bits. A
//! register that does not exist has the value 0.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::BASE64;

/// The answer to a read of a register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Register<'a> {
    /// The id, which is the key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub id: Option<Cow<'a, str>>,
    /// The id in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub id_b64: Option<Cow<'a, str>>,
    /// The value.
    pub value: i64,
    /// Version of the key; 0 if it does not exist.
    pub ver: u64,
}

/// The body of `POST /v1/atomics/{id}/exchange`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExchangeRequest {
    /// The value that the register should have.
    pub value: i64,
}

/// The body of `POST /v1/atomics/{id}/compare-exchange`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareExchangeRequest {
    /// The value that the register must have for the exchange.
    pub expected_value: i64,
    /// The value that it has afterwards.
    pub new_value: i64,
}

/// The answer to both exchanges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Exchange")]
pub struct Exchanged<'a> {
    /// Whether the register has the requested value now.
    pub success: bool,
    /// The id, which is the key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub id: Option<Cow<'a, str>>,
    /// The id in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub id_b64: Option<Cow<'a, str>>,
    /// The value before.
    pub old_value: i64,
    /// The value afterwards, which is the old one if nothing was exchanged.
    pub new_value: i64,
}
