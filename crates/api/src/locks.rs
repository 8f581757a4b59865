//! `/v1/locks/{key}`: locks with fences.
//!
//! Bytes that are UTF-8 are a text, others are in base64 in the member with the suffix `_b64`,
//! never both.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BASE64, DURATION, LEASE_ID};

/// The body of `POST /v1/locks/{key}/acquire`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcquireLock {
    /// The lease for which the lock is held. Its tag is that of the lock.
    #[schemars(regex(pattern = LEASE_ID))]
    pub lease: String,
    /// How long to wait in the queue of the lock while another lease holds it: a whole number with
    /// ms, s, m, h or d, at most 24h. Without it, the request does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = DURATION))]
    pub wait: Option<String>,
    /// What others see as the value of the lock, if it is UTF-8; for example, who holds it. Empty
    /// if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub value: Option<String>,
    /// The value in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub value_b64: Option<String>,
}

/// The answer to an acquisition: the lease holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcquiredLock {
    /// A number above the fences of all earlier holders. Send it with every write that the lock
    /// protects.
    pub fence: u64,
    /// The lease lasts at least so long after the answer was sent.
    pub valid_for_ms: u64,
}

/// The body of `POST /v1/locks/{key}/release`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseLock {
    /// The lease that holds the lock, or waits for it.
    #[schemars(regex(pattern = LEASE_ID))]
    pub lease: String,
}

/// A lock, with its holder and its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lock<'a> {
    /// The name of the lock, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<Cow<'a, str>>,
    /// The name in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<Cow<'a, str>>,
    /// Who holds it; absent if nobody does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LockHolder<'static>")]
    pub holder: Option<LockHolder<'a>>,
    /// Who waits for it, the next holder first.
    pub queue: Vec<LockWaiter<'a>>,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockHolder<'a> {
    /// Its lease.
    pub lease: String,
    /// Its fence: the version of the key.
    pub fence: u64,
    /// How long its lease lasts if nobody renews it.
    pub valid_for_ms: u64,
    /// Its value, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub value: Option<Cow<'a, str>>,
    /// Its value in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub value_b64: Option<Cow<'a, str>>,
}

/// A lease that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockWaiter<'a> {
    /// The lease.
    pub lease: String,
    /// What the value of the lock becomes when the lease holds it, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub value: Option<Cow<'a, str>>,
    /// That value in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub value_b64: Option<Cow<'a, str>>,
}
