//! The schemas of bodies, by name.
//!
//! Schemas of answers list every member: the answers in the golden scripts are checked against
//! them, so a new member must be added here. Requests may be refused for more than their shape; the
//! documentation describes that.

use serde_json::{Map, Value, json};

use tidelock_core::limits;

use super::operation::{base64, flag, matching, number, number_in, schema, text};

/// Characters that names and keys of configuration may contain: any but control characters.
const NAME_PATTERN: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";

/// All schemas.
pub(in crate::http) fn all() -> Map<String, Value> {
    let parts = [
        keys(),
        cluster(),
        shards(),
        slots(),
        clients(),
        config_content(),
        config_requests(),
        config_answers(),
        config_history(),
    ];
    parts.into_iter().flatten().map(|(name, schema)| (name.to_owned(), schema)).collect()
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

/// A signed 64-bit integer.
fn signed() -> Value {
    json!({ "type": "integer", "format": "int64" })
}

/// Any value.
fn any() -> Value {
    json!({})
}

fn keys() -> Named {
    let b64 = |name: &'static str| (name, base64());
    let problem = object(
        &[
            ("type", json!({ "type": "string", "format": "uri" })),
            ("title", text()),
            ("status", json!({ "type": "integer", "minimum": 400, "maximum": 599 })),
            ("detail", text()),
        ],
        &[("limit", number()), ("current", number())],
    );
    let keyed = [("key", text()), b64("key_b64"), ("val", text()), b64("val_b64")];
    let with_expiry: Vec<_> = keyed.iter().cloned().chain([("ttl_ms", number())]).collect();
    vec![
        ("Problem", problem),
        ("Versioned", object(&[("ver", number())], &keyed)),
        ("KeyItem", object(&[("ver", number())], &with_expiry)),
        (
            "KeyPage",
            object(&[("items", list(schema("KeyItem")))], &[("next", or_null(text())), b64("next_b64")]),
        ),
        ("Register", object(&[("value", signed()), ("ver", number())], &[("id", text()), b64("id_b64")])),
        ("ExchangeRequest", object(&[("value", signed())], &[])),
        ("CompareExchangeRequest", object(&[("expected_value", signed()), ("new_value", signed())], &[])),
        (
            "Exchange",
            object(
                &[("success", flag()), ("old_value", signed()), ("new_value", signed())],
                &[("id", text()), b64("id_b64")],
            ),
        ),
    ]
}

/// The role that the cluster wants of a host.
fn standing() -> Value {
    one_of(&["voter", "learner", "leaving", "removed"])
}

fn cluster() -> Named {
    let host = object(
        &[
            ("node", number()),
            ("id", or_null(json!({ "type": "string", "format": "uuid" }))),
            ("peer_address", text()),
            ("http_address", text()),
            ("resp_address", text()),
            ("tags", map_of(text())),
            ("created", number()),
            ("updated", number()),
            ("connected", flag()),
            ("clock", or_null(object(&[("ahead_ms", signed()), ("error_ms", signed())], &[]))),
            ("standing", standing()),
            ("draining", flag()),
            ("dead", flag()),
        ],
        &[],
    );
    let shard = object(
        &[
            ("id", number()),
            ("name", text()),
            ("type", one_of(&["registry", "kv"])),
            ("leader", or_null(number())),
            ("term", number()),
            ("slots", number()),
        ],
        &[],
    );
    let replica = object(
        &[
            ("id", number()),
            ("shard", number()),
            ("node", number()),
            ("voter", flag()),
            ("applied", or_null(number())),
            ("checkpoint", or_null(object(&[("index", number()), ("checksum", text())], &[]))),
        ],
        &[("diverged", flag())],
    );
    vec![
        ("Host", host),
        ("Shard", shard),
        ("Replica", replica),
        (
            "Cluster",
            object(
                &[
                    ("node", number()),
                    ("hosts", list(schema("Host"))),
                    ("shards", list(schema("Shard"))),
                    ("replicas", list(schema("Replica"))),
                ],
                &[],
            ),
        ),
        ("WantedOfHost", object(&[("node", number())], &[("standing", standing()), ("draining", flag())])),
    ]
}

fn shards() -> Named {
    let reasoned = object(
        &[
            ("node", number()),
            ("replica", or_null(number())),
            ("role", one_of(&["voter", "learner", "none"])),
            ("written", flag()),
            ("reason", text()),
        ],
        &[],
    );
    let shard_name = json!({ "type": "string", "minLength": 1, "maxLength": limits::SHARD_NAME_BYTES_MAX });
    let tags = |values| json!({ "type": "object", "additionalProperties": values, "propertyNames": { "minLength": 1 } });
    let place = object(&[("id", number()), ("index", number())], &[]);
    vec![
        ("WantedOfShard", object(&[("shard", number()), ("leader", number())], &[])),
        ("Explanation", object(&[("shard", number()), ("hosts", list(reasoned))], &[])),
        ("ShardTags", tags(or_null(text()))),
        ("TaggedShard", object(&[("shard", number())], &[])),
        // Not `NewShard`: in Go that is the name of the constructor of `Shard`.
        ("AddShardRequest", object(&[], &[("name", or_null(shard_name)), ("tags", tags(text()))])),
        ("Checkpoints", object(&[("shards", list(place))], &[])),
    ]
}

fn slots() -> Named {
    let share = object(&[("shard", number()), ("count", number()), ("slots", text())], &[]);
    let migration = object(
        &[("id", number()), ("from", number()), ("to", number()), ("count", number()), ("slots", text())],
        &[],
    );
    vec![
        (
            "WantedSlots",
            object(&[("slots", matching("^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$"))], &[]),
        ),
        ("Moving", object(&[("moves", number()), ("last", number())], &[])),
        (
            "Moves",
            object(
                &[
                    ("version", number()),
                    ("shards", list(share)),
                    ("moves", list(migration)),
                    ("last", number()),
                ],
                &[],
            ),
        ),
    ]
}

fn clients() -> Named {
    let client = object(
        &[
            ("id", number()),
            ("address", or_null(text())),
            ("protocol", one_of(&["http", "resp"])),
            ("age_ms", number()),
            ("operations", number()),
            ("bytes_received", number()),
            ("bytes_sent", number()),
            ("open_requests", number()),
            ("held_bytes", number()),
        ],
        &[],
    );
    vec![(
        "Clients",
        object(
            &[
                ("node", number()),
                ("connections", number()),
                ("requests_waiting", number()),
                ("clients", list(client)),
            ],
            &[],
        ),
    )]
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
