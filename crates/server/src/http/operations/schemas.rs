//! The schemas of bodies, by name, derived from the types of `tidelock_api`.
//!
//! Owns which bodies have a name, and what generators of clients need beyond a correct schema.
//! Schemas of answers list every member, and the answers in the golden scripts are checked against
//! them. Requests may be refused for more than their shape; the
//! documentation describes that.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use tidelock_api as api;
use tidelock_core::limits;

use super::operation::{flag, number, number_in, schema, text};

const _: () = assert!(api::shards::NAME_BYTES_MAX == limits::SHARD_NAME_BYTES_MAX);

/// The bodies that have a name in the document, and by them all that they refer to.
const BODIES: &[fn(&mut SchemaGenerator) -> Schema] = &[
    SchemaGenerator::subschema_for::<api::keys::Versioned>,
    SchemaGenerator::subschema_for::<api::keys::KeyPage>,
    SchemaGenerator::subschema_for::<api::atomics::Register>,
    SchemaGenerator::subschema_for::<api::atomics::ExchangeRequest>,
    SchemaGenerator::subschema_for::<api::atomics::CompareExchangeRequest>,
    SchemaGenerator::subschema_for::<api::atomics::Exchanged>,
    SchemaGenerator::subschema_for::<api::cluster::Cluster>,
    SchemaGenerator::subschema_for::<api::membership::WantedOfHost>,
    SchemaGenerator::subschema_for::<api::membership::WantedOfShard>,
    SchemaGenerator::subschema_for::<api::shards::Explanation>,
    SchemaGenerator::subschema_for::<api::shards::TagChanges>,
    // Not `NewShard`: in Go that is the name of the constructor of `Shard`.
    SchemaGenerator::subschema_for::<api::shards::AddShardRequest>,
    SchemaGenerator::subschema_for::<api::shards::ChangedShard>,
    SchemaGenerator::subschema_for::<api::checkpoints::Checkpoints>,
    SchemaGenerator::subschema_for::<api::slots::Moves>,
    SchemaGenerator::subschema_for::<api::slots::WantedSlots>,
    SchemaGenerator::subschema_for::<api::slots::RequestedMoves>,
    SchemaGenerator::subschema_for::<api::clients::Clients>,
];

/// Characters that names and keys of configuration may contain: any but control characters.
const NAME_PATTERN: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";

/// All schemas.
pub(in crate::http) fn all() -> Map<String, Value> {
    let mut generator = generator();
    BODIES.iter().for_each(|add| drop(add(&mut generator)));
    let mut all = generator.take_definitions(true);
    let parts = [problem(), config_content(), config_requests(), config_answers(), config_history()];
    all.extend(parts.into_iter().flatten().map(|(name, schema)| (name.to_owned(), schema)));
    all
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

type Named = Vec<(&'static str, Value)>;

/// An object with these members, optionally those of `optional`, and no others.
pub(super) fn object(required: &[(&str, Value)], optional: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    let members = required.iter().chain(optional);
    let members: Map<String, Value> =
        members.map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "required": names, "properties": members, "additionalProperties": false })
}

pub(super) fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// The success envelope of the configuration centre.
pub(super) fn envelope(data: Value) -> Value {
    object(
        &[
            ("errcode", json!({ "type": "integer", "enum": [0] })),
            ("errmsg", one_of(&["success"])),
            ("data", data),
        ],
        &[],
    )
}

fn map_of(values: Value) -> Value {
    json!({ "type": "object", "additionalProperties": values })
}

/// A typed schema, or null. Generators support this better than an `anyOf` with null.
fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

/// A name or key of configuration.
pub(in crate::http) fn name(characters_max: usize) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": characters_max, "pattern": NAME_PATTERN })
}

fn config_key() -> Value {
    name(limits::CONFIG_KEY_CHARACTERS_MAX)
}

fn at_most(characters: usize) -> Value {
    json!({ "type": "string", "maxLength": characters })
}

fn one_of(texts: &[&str]) -> Value {
    json!({ "type": "string", "enum": texts })
}

/// Any value.
fn any() -> Value {
    json!({})
}

fn problem() -> Named {
    let problem = object(
        &[
            ("type", json!({ "type": "string", "format": "uri" })),
            ("title", text()),
            ("status", json!({ "type": "integer", "minimum": 400, "maximum": 599 })),
            ("detail", text()),
        ],
        &[("limit", number()), ("current", number())],
    );
    vec![("Problem", problem)]
}

/// Datatype: 0 empty, 1 int, 2 string, 3 float, 4 bool, 5 list, 6 dict.
fn datatype() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": 6 })
}

/// Field type: 1 one pair, 2 a list of pairs, 3 pairs by name.
fn field_type() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 3 })
}

fn checksum() -> Value {
    json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
}

fn config_content() -> Named {
    let pair = || schema("Pair");
    let listed = object(&[("key", text()), ("fieldType", field_type())], &[]);
    let container = |fields| {
        object(
            &[("key", text()), ("namespace", text()), ("checkSum", checksum()), ("fields", list(fields))],
            &[],
        )
    };
    let field = object(
        &[
            ("key", text()),
            ("fieldType", field_type()),
            ("value", json!({ "anyOf": [pair(), list(pair()), map_of(pair())] })),
        ],
        &[],
    );
    let field_content = object(
        &[
            ("key", config_key()),
            ("fieldType", field_type()),
            ("value", json!({ "anyOf": [config_key(), list(config_key()), map_of(config_key())] })),
        ],
        &[],
    );
    vec![
        (
            "Pair",
            object(
                &[("key", text()), ("value", any()), ("datatype", datatype()), ("namespace", text())],
                &[],
            ),
        ),
        ("PairContent", object(&[], &[("value", any()), ("datatype", datatype())])),
        ("ListedContainer", container(listed)),
        ("Container", container(field)),
        ("FieldContent", field_content),
        ("ContainerContent", object(&[("fields", list(schema("FieldContent")))], &[])),
    ]
}

fn config_requests() -> Named {
    let terms = || {
        let author = at_most(limits::CONFIG_AUTHOR_CHARACTERS_MAX);
        let message = at_most(limits::CONFIG_MESSAGE_CHARACTERS_MAX);
        [("author", author), ("message", message), ("expected", number())]
    };
    let with_terms = |required: &[(&str, Value)], optional: &[(&str, Value)]| {
        let optional: Vec<_> = optional.iter().cloned().chain(terms()).collect();
        object(required, &optional)
    };
    let change = object(
        &[],
        &[
            ("pair", config_key()),
            ("value", any()),
            ("datatype", datatype()),
            ("container", config_key()),
            ("fields", list(schema("FieldContent"))),
            ("delete", flag()),
        ],
    );
    let at_least_one = || number_in(1, i64::MAX.unsigned_abs());
    let revisions = number_in(limits::CONFIG_HISTORY_REVISIONS_MIN, limits::CONFIG_HISTORY_REVISIONS_MAX);
    vec![
        ("Change", change),
        (
            "Publication",
            with_terms(&[("changes", list(schema("Change")))], &[("create", flag()), ("retype", flag())]),
        ),
        ("RollbackRequest", with_terms(&[("revision", number())], &[])),
        (
            "PolicyRequest",
            with_terms(&[], &[("revisions", revisions), ("days", at_least_one()), ("ageMs", at_least_one())]),
        ),
    ]
}

fn config_answers() -> Named {
    let error = object(
        &[
            ("errcode", json!({ "type": "integer", "minimum": 40000, "maximum": 59999 })),
            ("errmsg", text()),
            // Always null: generators have no type for null alone.
            ("data", json!({ "type": ["object", "null"] })),
        ],
        &[],
    );
    let namespace = object(
        &[
            ("namespace", text()),
            ("revision", number()),
            ("oldest", number()),
            ("pairs", number()),
            ("containers", number()),
            ("bytes", number()),
            ("historyBytes", number()),
            ("policy", object(&[("revisions", number()), ("ageMs", number())], &[])),
        ],
        &[],
    );
    let event = object(
        &[("namespace", text()), ("key", text())],
        &[
            ("revision", number()),
            ("checkSum", checksum()),
            ("data", json!({ "type": "object" })),
            ("deleted", json!({ "type": "boolean", "enum": [true] })),
            ("after", number()),
        ],
    );
    vec![
        ("ConfigError", error),
        ("Done", object(&[("revision", number()), ("changed", flag())], &[("notes", list(text()))])),
        ("Namespace", namespace),
        ("Event", event),
        ("Changes", object(&[("index", number()), ("gap", flag()), ("changes", list(schema("Event")))], &[])),
    ]
}

fn config_history() -> Named {
    // Null, as an object that cannot exist, because generators have no type for null alone.
    let none = json!({ "type": ["object", "null"], "maxProperties": 0 });
    let content = || json!({ "anyOf": [schema("PairContent"), schema("ContainerContent"), none] });
    let action = || one_of(&["create", "update", "delete"]);
    let change = object(
        &[("kind", one_of(&["pair", "container"])), ("key", text()), ("action", action())],
        &[("before", content()), ("after", content())],
    );
    let revision = object(
        &[
            ("revision", number()),
            ("author", text()),
            ("time", number()),
            ("message", text()),
            ("action", one_of(&["create", "publish", "policy", "rollback"])),
            ("changes", list(schema("ItemChange"))),
        ],
        &[("to", number())],
    );
    let history = object(
        &[
            ("revision", number()),
            ("oldest", number()),
            ("revisions", list(schema("Revision"))),
            ("next", or_null(number())),
        ],
        &[],
    );
    let path_change =
        object(&[("path", list(text())), ("action", action()), ("before", any()), ("after", any())], &[]);
    let range = || [("from", number()), ("to", number())];
    let diff = |members: &[(&str, Value)]| {
        let members: Vec<_> = range().into_iter().chain(members.iter().cloned()).collect();
        object(&members, &[])
    };
    vec![
        ("ItemChange", change),
        ("Revision", revision),
        ("History", history),
        ("NamespaceDiff", diff(&[("changes", list(schema("ItemChange")))])),
        ("ContainerDiff", diff(&[("before", any()), ("after", any()), ("changes", list(path_change))])),
    ]
}
