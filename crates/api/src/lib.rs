//! The bodies of the HTTP API below `/v1` and `/api`, as types that the server serializes and
//! clients parse.
//!
//! Owns the names and the order of JSON members, and the schemas of bodies in `/openapi.json`: the
//! documentation of types and members is their description, and attributes state bounds. Does no
//! I/O, and knows neither the core's types nor the meaning of a request: the server translates
//! between these types and the core's.
//!
//! Rules, because nodes and clients of different releases talk to each other:
//! - An answer's members are never removed. A client ignores members that it does not know.
//! - A member that is added to an answer later is an `Option` or has a default, because older nodes
//!   leave it out. All other members are required: an answer without one is not an answer of a
//!   node, and a client must not take a missing member for `false` or 0.
//! - A set of words that may grow has the variant `Unknown` for words of later releases.
//! - A request with an unknown member is refused, because the server would otherwise ignore a wish
//!   of the client.
//!
//! Numbers of nodes, shards and replicas are those in logs and metrics.
//!
//! A schema describes what is sent. So a member that is left out rather than null has the attribute
//! `with`, which takes the `Option` away, beside `skip_serializing_if`.

pub mod atomics;
pub mod audit;
pub mod auth;
pub mod authorities;
pub mod certificate;
pub mod checkpoints;
pub mod clients;
pub mod cluster;
pub mod config;
pub mod drafts;
pub mod environments;
pub mod etag;
pub mod keys;
pub mod leases;
pub mod load;
pub mod locks;
pub mod membership;
pub mod metrics;
pub mod problem;
pub mod revisions;
pub mod shards;
pub mod slots;
pub mod snapshots;
pub mod transactions;
pub mod version;
pub mod watch;

/// Name of the header with the URL of the node that leads a key's shard, in answers of other nodes.
pub const LEADER_HEADER: &str = "tidelock-leader";

/// Name of the header with the fence of a lock, as the condition of a write.
pub const IF_FENCE_HEADER: &str = "if-fence";

/// Name of the header with the lease to which a key is bound, in answers with its value.
pub const LEASE_HEADER: &str = "tidelock-lease";

/// The id of a lease: the tag of its keys and locks, and its number.
pub const LEASE_ID: &str = r"^\{[^}]{1,256}\}:[1-9a-f][0-9a-f]{0,15}$";

/// The number of a token.
pub const TOKEN_NUMBER: &str = "^[0-9a-f]{16}$";

/// A duration: a whole number and its unit.
pub const DURATION: &str = "^[0-9]{1,16}(ms|s|m|h|d)$";

/// Bytes in base64, of either alphabet.
pub const BASE64: &str = "^[A-Za-z0-9+/_-]*={0,2}$";
