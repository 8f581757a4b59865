//! `/api`: configuration. Every answer is an envelope: [`Success`] or [`ConfigError`].
//!
//! The server parses requests by hand, because it names the position of a mistake and refuses
//! members that are given twice. A test holds the limits here to those of the server.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, Value, to_raw_value};

/// Characters that names and keys may contain: any but control characters.
pub const NAME: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";
/// Most characters of a key of a pair, a container or a field.
pub const KEY_CHARACTERS_MAX: usize = 128;
/// Most characters of the author of a change.
pub const AUTHOR_CHARACTERS_MAX: usize = 128;
/// Most characters of the message of a change.
pub const MESSAGE_CHARACTERS_MAX: usize = 1_024;
/// Fewest revisions that a policy can keep.
pub const REVISIONS_MIN: u64 = 2;
/// Most revisions that a policy can keep.
pub const REVISIONS_MAX: u64 = 10_000;

/// SHA-256 as hexadecimal digits.
const CHECKSUM: &str = "^[0-9a-f]{64}$";

/// Most characters of the label of a client that watches.
pub const LABEL_CHARACTERS_MAX: usize = 128;

/// How far a client of a namespace's watch has come.
pub const POSITION: &str = "^[0-9]{1,20}([:@][0-9A-Za-z._~-]*)?$";

/// A value of any datatype, as JSON text: floats keep their digits.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Json(#[schemars(with = "Value")] Box<RawValue>);

impl Json {
    /// Takes a JSON text. Fails if it is not one.
    pub fn of_text(text: String) -> serde_json::Result<Json> {
        RawValue::from_string(text).map(Json)
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The value; equal floats may have had other digits.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.text()).expect("invariant: it was parsed when it was made")
    }
}

impl<'de> Deserialize<'de> for Json {
    /// By way of a value, because serde cannot read raw text inside of alternatives.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        to_raw_value(&Value::deserialize(deserializer)?).map(Json).map_err(D::Error::custom)
    }
}

/// The answer to a request that succeeded.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Success<T> {
    /// Always 0.
    #[schemars(extend("enum" = [0]))]
    pub errcode: u32,
    /// Always `success`.
    #[schemars(extend("enum" = ["success"]))]
    pub errmsg: Cow<'static, str>,
    /// The answer itself.
    pub data: T,
}

impl<T> Success<T> {
    /// The envelope of an answer.
    pub fn of(data: T) -> Success<T> {
        Success { errcode: 0, errmsg: "success".into(), data }
    }
}

/// The answer to a request that was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigError {
    /// The HTTP status and two digits more. A number never changes its meaning.
    #[schemars(range(min = 40_000, max = 59_999))]
    pub errcode: u32,
    /// The reason, for people.
    pub errmsg: Cow<'static, str>,
    /// Always null.
    #[schemars(extend("type" = ["object", "null"]))]
    pub data: (),
}

/// The key of a pair, a container or a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Key(
    #[schemars(length(min = 1, max = KEY_CHARACTERS_MAX), regex(pattern = NAME))]
    /// The text.
    pub String,
);

/// A pair.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Json,
    /// Datatype of the value: 0 empty, 1 int, 2 string, 3 float, 4 bool, 5 list, 6 dict,
    /// 7 secret.
    #[schemars(range(max = 7))]
    pub datatype: u8,
    /// The namespace that it belongs to.
    pub namespace: String,
    /// The namespace that sets it, if this one inherits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub inherited_from: Option<String>,
}

/// The content of a pair.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PairContent {
    /// The value. Only the datatype 0, empty, needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Json")]
    pub value: Option<Json>,
    /// Its datatype, 0 to 7. In a request, the form of the value decides if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(max = 7))]
    pub datatype: Option<u8>,
    /// The same by name: empty, int, string, float, bool, list, dict or secret. In a request also
    /// duration, bytes or enum, which are strings with a schema.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub type_name: Option<Cow<'static, str>>,
    /// Its schema. A request that leaves it out keeps the present one, and null removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Json")]
    pub schema: Option<Json>,
}

/// A page of pairs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PairPage {
    /// The pairs, ordered by key.
    pub pairs: Vec<Pair>,
    /// Number of pairs that fit the request, on this page or not.
    pub total: u64,
}

/// A value of a container's document, and the revision that wrote it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BlamedValue {
    /// Where the value is in the document: names with points between them, positions in brackets.
    pub path: String,
    /// Key of the pair that holds the value.
    pub pair: String,
    /// The value.
    pub value: Json,
    /// The revision that wrote the pair.
    pub revision: u64,
    /// Who made that revision; absent if history does not keep it any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub author: Option<String>,
    /// The name that the client stated, if it proved another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub on_behalf_of: Option<String>,
    /// When, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub time: Option<u64>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub message: Option<String>,
}

/// A page of what a search found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SearchPage {
    /// Pairs and containers, by namespace.
    pub matches: Vec<SearchMatch>,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
}

/// A pair or container with the text in its key, its value, or the key of a field.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SearchMatch {
    /// The namespace that it belongs to.
    pub namespace: String,
    /// `pair` or `container`.
    #[schemars(extend("enum" = ["pair", "container"]))]
    pub kind: String,
    /// Its key.
    pub key: String,
    /// Its value, if it is a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Json")]
    pub value: Option<Json>,
    /// Datatype of the value, 0 to 7.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(max = 7))]
    pub datatype: Option<u8>,
    /// Keys of the containers that refer to it, if it is a pair.
    pub containers: Vec<String>,
}

/// A container in a list: its fields without their pairs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedContainer {
    /// Its key.
    pub key: String,
    /// The namespace that it belongs to.
    pub namespace: String,
    /// SHA-256 of the document to which it resolves.
    #[schemars(regex(pattern = CHECKSUM))]
    pub check_sum: String,
    /// The namespace that sets it, if this one inherits it.
    #[serde(rename = "inherited_from", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub inherited_from: Option<String>,
    /// Its fields, ordered by key.
    pub fields: Vec<ListedField>,
}

/// A field of a container in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ListedField {
    /// Its key.
    pub key: String,
    /// What it refers to: 1 one pair, 2 a list of pairs, 3 a dict of pairs.
    #[schemars(range(min = 1, max = 3))]
    pub field_type: u8,
}

/// A page of containers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ContainerPage {
    /// The containers, ordered by key.
    pub containers: Vec<ListedContainer>,
    /// Number of containers that fit the request, on this page or not.
    pub total: u64,
}

/// A container with the pairs that its fields refer to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Its key.
    pub key: String,
    /// The namespace that it belongs to.
    pub namespace: String,
    /// SHA-256 of the document to which it resolves.
    #[schemars(regex(pattern = CHECKSUM))]
    pub check_sum: String,
    /// The namespace that sets it, if this one inherits it.
    #[serde(rename = "inherited_from", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub inherited_from: Option<String>,
    /// Its fields, ordered by key.
    pub fields: Vec<Field>,
}

/// A field with the pairs that it refers to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Field {
    /// Its key.
    pub key: String,
    /// What it refers to: 1 one pair, 2 a list of pairs, 3 a dict of pairs.
    #[schemars(range(min = 1, max = 3))]
    pub field_type: u8,
    /// The pairs.
    #[schemars(with = "Refers<Pair>")]
    pub value: Refers<Option<Pair>>,
}

/// What a field refers to. During a restore a pair may be `None`, because it was not restored yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "{T}Reference")]
pub enum Refers<T> {
    /// One pair.
    One(T),
    /// Pairs in order.
    List(Vec<T>),
    /// Pairs by name, or lists and dicts of pairs by name.
    Dict(BTreeMap<String, Refers<T>>),
}

/// The content of a container.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ContainerContent {
    /// Its fields.
    pub fields: Vec<FieldContent>,
    /// Its schema. A request that leaves it out keeps the present one, and null removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Json")]
    pub schema: Option<Json>,
}

/// A field with the keys of the pairs that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldContent {
    /// Its key.
    pub key: Key,
    /// What it refers to: 1 one pair, 2 a list of pairs, 3 a dict of pairs. A request may also
    /// state it as kv, list or dict, or leave it out: then the form of the value decides.
    #[serde(default)]
    #[schemars(schema_with = "field_type")]
    pub field_type: u8,
    /// The keys of the pairs.
    pub value: Refers<Key>,
}

fn field_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 3 }, { "enum": ["kv", "list", "dict"] }]
    })
}

/// The content of a pair or container, or that there is none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Content {
    /// That of a container.
    Container(ContainerContent),
    /// That of a pair.
    Pair(PairContent),
    /// Null: there was none, or is none.
    #[schemars(extend("type" = ["object", "null"], "maxProperties" = 0))]
    None,
}

/// Author, message and condition of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Terms {
    /// Who changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = AUTHOR_CHARACTERS_MAX))]
    pub author: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = MESSAGE_CHARACTERS_MAX))]
    pub message: Option<String>,
    /// The revision that the namespace must have; 0 if it must not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub expected: Option<u64>,
}

/// One of several changes: it names a pair or a container, and its new content or that it is
/// deleted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Key of the pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Key")]
    pub pair: Option<Key>,
    /// Value of the pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Json")]
    pub value: Option<Json>,
    /// Datatype of the value, 0 to 7.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(max = 7))]
    pub datatype: Option<u8>,
    /// The same by name, also duration, bytes or enum.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub type_name: Option<String>,
    /// The values of the type enum.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub values: Option<Vec<String>>,
    /// Schema of the pair or container; null removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Json")]
    pub schema: Option<Json>,
    /// Key of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Key")]
    pub container: Option<Key>,
    /// Fields of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<FieldContent>")]
    pub fields: Option<Vec<FieldContent>>,
    /// Deletes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delete: bool,
}

/// The body of `POST …/publish`: changes that become one revision.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Publication {
    /// The changes.
    pub changes: Vec<Change>,
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
    /// Creates the namespace if it does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create: bool,
    /// Lets pairs and fields change their datatypes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retype: bool,
}

/// The body of `POST …/rollback`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RollbackRequest {
    /// The revision whose content becomes current.
    pub revision: u64,
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
}

/// The body of `POST …/policy`: how much history the namespace keeps. What is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRequest {
    /// Most revisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = REVISIONS_MIN, max = REVISIONS_MAX))]
    pub revisions: Option<u64>,
    /// Longest age in days.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = i64::MAX))]
    pub days: Option<u64>,
    /// Longest age in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = i64::MAX))]
    pub age_ms: Option<u64>,
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
}

/// The answer to a change, or to a dry run of one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// The namespace's revision. After a dry run it is the one before the change, or 0 if the
    /// namespace does not exist.
    pub revision: u64,
    /// Whether the change altered, or would alter, anything. A change of a draft alters the draft,
    /// and makes no revision.
    pub changed: bool,
    /// What an import has left out or converted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The pairs and containers that would change. Only of a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<ItemChange>")]
    pub changes: Option<Vec<ItemChange>>,
    /// The containers that would resolve to another document. Only of a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<PreviewedDocument>")]
    pub documents: Option<Vec<PreviewedDocument>>,
    /// The namespaces that would inherit a change. Only of a dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherited_by: Vec<InheritedChange>,
}

/// A namespace that would inherit a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct InheritedChange {
    /// The namespace.
    pub namespace: String,
    /// Keys of its containers that would resolve to another document.
    pub containers: Vec<String>,
}

/// A document that a change would replace.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PreviewedDocument {
    /// Key of the container.
    pub container: String,
    /// The document to which it resolves; null if it does not exist.
    pub before: Json,
    /// The document to which it would resolve; null if it would not exist.
    pub after: Json,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Namespace {
    /// Its name.
    pub namespace: String,
    /// The newest revision.
    pub revision: u64,
    /// The oldest revision that history holds.
    pub oldest: u64,
    /// Number of pairs.
    pub pairs: u64,
    /// Number of containers.
    pub containers: u64,
    /// Bytes of pairs and containers, without history.
    pub bytes: u64,
    /// Bytes of history.
    pub history_bytes: u64,
    /// How much history it keeps.
    pub policy: Policy,
}

/// How much history a namespace keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Policy {
    /// Most revisions.
    pub revisions: u64,
    /// Longest age in milliseconds.
    pub age_ms: u64,
}

/// The answer to a long poll.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Changes {
    /// The revision behind which the next poll continues.
    pub index: u64,
    /// Whether there were changes that history does not hold any more.
    pub gap: bool,
    /// The changes, the oldest first.
    pub changes: Vec<Event>,
}

/// The answer to a long poll of a whole namespace.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NamespaceChanges {
    /// Where the next poll continues. Pass it as it is: a revision may change several containers,
    /// and more of them than one answer holds.
    #[schemars(regex(pattern = POSITION))]
    pub index: String,
    /// Whether there were changes that history does not hold any more. The state of the namespace
    /// follows, from this answer on.
    pub gap: bool,
    /// The state with which the polls began, or which followed a gap, is complete with this answer:
    /// containers that none of the answers named since do not exist as of this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub current: Option<u64>,
    /// The changes, the oldest first.
    pub changes: Vec<Event>,
}

/// The clients that watch a namespace or a container of it now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Readers {
    /// The node that answers.
    pub node: u64,
    /// The id of its cluster.
    pub cluster: String,
    /// How many clients watch at the nodes that answered.
    pub total: u64,
    /// Some of them, by node and container.
    pub readers: Vec<Reader>,
    /// The nodes that did not answer in time, or refused. The clients that watch there are not
    /// contained.
    pub missing: Vec<u64>,
}

/// A client that watches configuration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Reader {
    /// The node that serves it.
    pub node: u64,
    /// Its address, or that of the last proxy in front of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub address: Option<String>,
    /// The principal that it has proved to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub principal: Option<String>,
    /// The label that it stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub label: Option<String>,
    /// The container that it watches. Left out: the whole namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub container: Option<String>,
    /// The revision that it was sent last, or began after; 0: none yet.
    pub revision: u64,
    /// Whether it is a long poll, which ends with the next change.
    pub poll: bool,
}

/// The data of an event: what a container resolves to, that it was deleted, or a gap.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The namespace of the container.
    pub namespace: String,
    /// Key of the container. Left out if the event is about the whole namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// The revision that changed it. In the state of a namespace, that of the state, if the
    /// container has changed again while the client was sent the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub revision: Option<u64>,
    /// True if the container was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("enum" = [true]))]
    pub deleted: bool,
    /// SHA-256 of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = CHECKSUM))]
    pub check_sum: Option<String>,
    /// The document to which it resolves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Json", extend("type" = "object"))]
    pub data: Option<Json>,
    /// The revision behind which changes are missing, in a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub after: Option<u64>,
}

/// A change of a pair or a container.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ItemChange {
    /// What has changed.
    #[schemars(extend("enum" = ["pair", "container"]))]
    pub kind: Cow<'static, str>,
    /// Its key.
    pub key: String,
    /// How it has changed.
    #[schemars(extend("enum" = ["create", "update", "delete"]))]
    pub action: Cow<'static, str>,
    /// Its content before, unless the request was for names alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Content")]
    pub before: Option<Content>,
    /// Its content after, unless the request was for names alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Content")]
    pub after: Option<Content>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_are_told_apart() {
        let changes = r#"[{"kind":"pair","key":"p","action":"create","before":null,"after":{"value":1.5,"datatype":3}},
            {"kind":"container","key":"c","action":"update","before":{"fields":[]},
            "after":{"fields":[{"key":"f","fieldType":3,"value":{"a":"p","b":{"key":["p"]}}}]}}]"#;
        let parsed: Vec<ItemChange> = serde_json::from_str(changes).expect("changes");
        assert!(matches!(&parsed[0].after, Some(Content::Pair(pair)) if pair.datatype == Some(3)));
        let Some(Content::Container(ContainerContent { fields, .. })) = &parsed[1].after else {
            panic!("{parsed:?}")
        };
        let key = || Key("p".to_owned());
        let nested = Refers::Dict([("key".to_owned(), Refers::List(vec![key()]))].into());
        let by_name = BTreeMap::from([("a".to_owned(), Refers::One(key())), ("b".to_owned(), nested)]);
        assert_eq!(fields[0].value, Refers::Dict(by_name));
    }

    #[test]
    fn a_value_keeps_its_digits_when_it_is_sent() {
        let value = Json::of_text("5e-5".to_owned()).expect("JSON");
        assert_eq!(
            serde_json::to_string(&Success::of(&value)).expect("JSON"),
            r#"{"errcode":0,"errmsg":"success","data":5e-5}"#
        );
        assert!(Json::of_text("1 2".to_owned()).is_err());
    }
}
