//! `/v1/leases`: what keys and locks last for.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BASE64, DURATION, LEASE_ID};

/// Most leases that one request renews.
pub const RENEWED_MAX: usize = 10_000;

/// Most bytes of a tag.
pub const TAG_BYTES_MAX: usize = 256;

/// The body of `POST /v1/leases`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantLease {
    /// How long the lease lasts without a renewal, 1 second to 24 hours: a whole number with ms, s,
    /// m, h or d.
    #[schemars(regex(pattern = DURATION))]
    pub ttl: String,
    /// The tag of the keys and locks that the lease is for. Without it, the lease gets a random
    /// tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = TAG_BYTES_MAX))]
    pub tag: Option<String>,
}

/// A lease that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantedLease {
    /// Names the lease. No other lease ever gets this id.
    pub id: String,
    /// How long it lasts without a renewal.
    pub ttl_ms: u64,
    /// It lasts at least so long after the answer was sent.
    pub valid_for_ms: u64,
}

/// The body of `POST /v1/leases/renew`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewLeases {
    /// Ids of leases, of any tags.
    #[schemars(length(min = 1, max = RENEWED_MAX), inner(regex(pattern = LEASE_ID)))]
    pub ids: Vec<String>,
}

/// The answer to `POST /v1/leases/renew`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RenewedLeases {
    /// One for each id of the request, in its order.
    pub leases: Vec<RenewedLease>,
}

/// What became of one lease of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RenewedLease {
    /// The lease.
    pub id: String,
    /// It was renewed, and lasts at least so long after the answer was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub valid_for_ms: Option<u64>,
    /// Why it was not renewed: the name of a problem. `no-such-lease`: it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub problem: Option<String>,
}

/// A lease, with what depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease<'a> {
    /// The id.
    pub id: Cow<'a, str>,
    /// How long it lasts without a renewal.
    pub ttl_ms: u64,
    /// How long it lasts if nobody renews it.
    pub valid_for_ms: u64,
    /// The keys that are removed when it ends, in byte order.
    pub keys: Vec<LeaseKey<'a>>,
    /// The locks that it holds.
    pub held: Vec<LeaseKey<'a>>,
    /// The locks in whose queues it waits.
    pub awaited: Vec<LeaseKey<'a>>,
}

/// A key, or the name of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseKey<'a> {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<Cow<'a, str>>,
    /// The key in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = BASE64))]
    pub key_b64: Option<Cow<'a, str>>,
}

/// A page of leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeasePage {
    /// Leases in the order of their ids.
    pub items: Vec<ListedLease>,
    /// The last id of this page; null if no lease follows.
    pub next: Option<String>,
}

/// A lease in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedLease {
    /// The id.
    pub id: String,
    /// How long it lasts if nobody renews it.
    pub valid_for_ms: u64,
}
