//! The schemas of bodies, by name, derived from the types of `tidelock_api`.
//!
//! Owns which bodies have a name, and what generators of clients need beyond a correct schema.
//! Schemas of answers list every member, and the answers in the golden scripts are checked against
//! them. Requests may be refused for more than their shape; the documentation describes that.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use tidelock_api::{
    atomics, audit, auth, authorities, certificate, checkpoints, clients, cluster, config, drafts,
    environments, keys, leases, load, locks, membership, metrics, problem, revisions, shards, slots,
    snapshots, transactions, version, watch,
};
use tidelock_core::limits;

// The limits that schemas state are those that the core holds to.
const _: () = {
    assert!(audit::LISTED_MAX == limits::AUDIT_PAGE_MAX);
    assert!(transactions::OPERATIONS_MAX == limits::BRANCH_OPERATIONS_MAX);
    assert!(transactions::ID_BYTES_MAX == limits::TRANSACTION_ID_BYTES_MAX);
    assert!(leases::TAG_BYTES_MAX == limits::LEASE_TAG_BYTES_MAX);
    assert!(shards::NAME_BYTES_MAX == limits::SHARD_NAME_BYTES_MAX);
    assert!(config::KEY_CHARACTERS_MAX == limits::CONFIG_KEY_CHARACTERS_MAX);
    assert!(config::AUTHOR_CHARACTERS_MAX == limits::CONFIG_AUTHOR_CHARACTERS_MAX);
    assert!(config::MESSAGE_CHARACTERS_MAX == limits::CONFIG_MESSAGE_CHARACTERS_MAX);
    assert!(config::REVISIONS_MIN == limits::CONFIG_HISTORY_REVISIONS_MIN);
    assert!(config::REVISIONS_MAX == limits::CONFIG_HISTORY_REVISIONS_MAX);
};

/// The bodies that have a name in the document, apart from those that they refer to.
type Bodies = (
    KeyBodies,
    (cluster::Cluster, clients::Clients, checkpoints::Checkpoints, metrics::MetricsHistory),
    (certificate::Certificate, auth::Authentication, auth::Whoami, auth::Change),
    (auth::PutRole, auth::Roles, auth::PutPrincipal, auth::Principals),
    (auth::CreateToken, auth::IssuedToken, auth::Tokens),
    (authorities::CreateJoinToken, authorities::IssuedJoinToken, authorities::Authorities),
    (membership::WantedOfHost, membership::WantedOfShard, membership::Progress, slots::Moves),
    (slots::WantedSlots, slots::RequestedMoves, load::Load, shards::DefaultPlacement),
    (version::Version, version::Hold, snapshots::Snapshots, snapshots::BegunSnapshots),
    (shards::AddShardRequest, shards::ChangedShard, shards::TagChanges, shards::Explanation),
    (config::ConfigError, config::Done, config::Namespace, config::Changes, revisions::History),
    (config::Pair, config::PairContent, config::ListedContainer, config::Container),
    (config::ContainerContent, config::Publication, config::RollbackRequest, config::PolicyRequest),
    (revisions::NamespaceDiff, revisions::ContainerDiff, audit::AuditRecords, DraftBodies),
    (config::NamespaceChanges, config::Readers, config::SearchMatch, config::BlamedValue),
);

/// Bodies of requests about drafts, and about namespaces that inherit from others.
type DraftBodies = (
    (drafts::ListedDraft, drafts::Draft, drafts::CommentRequest, drafts::ApproveRequest),
    (drafts::PublishDraftRequest, drafts::CanaryRequest, environments::Inheritance),
    (environments::ParentsRequest, environments::ProtectionRequest, environments::PromoteRequest),
);

/// Bodies of requests about keys, leases and locks.
type KeyBodies = (
    (problem::Problem<'static>, keys::Versioned, keys::KeyPage, transactions::TransactionRequest),
    (transactions::TransactionAnswer<'static>, watch::KeyChanges, atomics::Register<'static>),
    (atomics::ExchangeRequest, atomics::CompareExchangeRequest, atomics::Exchanged<'static>),
    (leases::GrantLease, leases::GrantedLease, leases::RenewLeases, leases::RenewedLeases),
    (leases::Lease<'static>, leases::LeasePage, locks::AcquireLock, locks::AcquiredLock),
    (locks::ReleaseLock, locks::Lock<'static>),
);

/// All schemas.
pub(in crate::http) fn all() -> Map<String, Value> {
    let mut generator = generator();
    generator.subschema_for::<Bodies>();
    generator.take_definitions(true)
}

/// The schema of a type: a reference if it has a name in the document.
pub(super) fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = generator().subschema_for::<T>();
    adapt(&mut schema);
    schema.to_value()
}

/// A generator for what is sent.
fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(adapt);
    settings.with(|settings| settings.definitions_path = "/components/schemas".into()).into_generator()
}

/// Adapts a schema to generators of clients, and to the check of answers.
fn adapt(schema: &mut Schema) {
    if let Some(description) = schema.get("description").and_then(Value::as_str) {
        schema.insert("description".to_owned(), description.replace('\n', " ").into());
    }
    // Generators assume 32 bits for a format that they do not know, such as uint64.
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        schema.insert("format".to_owned(), "int64".into());
    }
    // Generators refuse what stands beside a reference.
    if schema.get("$ref").is_some() {
        schema.remove("description");
    }
    // Answers have no members that are not described.
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    // Generators have no type for a constant.
    let words = schema.get("oneOf").and_then(Value::as_array);
    let words = words.and_then(|words| words.iter().map(|word| word.get("const").cloned()).collect());
    if let Some(words) = words.map(Value::Array) {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), words);
    }
    transform_subschemas(&mut adapt, schema);
}

/// A name or key of configuration.
pub(in crate::http) fn name(characters_max: usize) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": characters_max, "pattern": config::NAME })
}
