//! Parses what clients send into changes: pairs, containers, lists of changes, whole namespaces.
//!
//! Owns the shape of bodies, and that nothing in them is ignored: an unknown name is refused with
//! the known ones. Bodies are parsed into a tree first, so that JSON, YAML and TOML are treated
//! alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock_core::command::Refusal;
use tidelock_core::command::config::{Change, Datatype, Field, Item, Refers, Schema, Value, validate_fields};

use super::error::ApiError;
use super::formats::{Notes, check_numbers};
use super::path::parse_key;
use super::secrets::{self, Sealer};
use super::values::{FILE_VALUES_MAX, read_json, typed};
use crate::secrets::PlainSecret;

/// A hint for a likely intention: the file has neither pairs nor containers.
const DOCUMENT_HINT: &str = "this is no exported namespace; to import a document, name the container that it is for \
    (POST …/containers/KEY/import, tidelock config import --container KEY)";

/// Parses a JSON body. The notes name its numbers that are shown differently.
pub(super) fn json(what: &'static str, body: &[u8]) -> Result<(Value, Notes), ApiError> {
    let not_json = |error: &dyn std::fmt::Display| {
        ApiError::invalid(format!("the body is not the JSON of {what}: {error}"))
    };
    let text = std::str::from_utf8(body).map_err(|error| not_json(&error))?;
    let value = read_json(text, FILE_VALUES_MAX).map_err(|error| not_json(&error))?;
    Ok((value, check_numbers(text)?))
}

/// A dict whose entries are removed one by one.
pub(super) struct Object {
    what: &'static str,
    entries: BTreeMap<Arc<str>, Value>,
}

impl Object {
    /// Parses a JSON body.
    pub fn of_json(what: &'static str, body: &[u8]) -> Result<Object, ApiError> {
        Object::of(what, json(what, body)?.0)
    }

    pub fn of(what: &'static str, value: Value) -> Result<Object, ApiError> {
        match value {
            Value::Dict(entries) => Ok(Object { what, entries }),
            other => Err(ApiError::invalid(format!("{what} is a dict, not {}", other.datatype().name()))),
        }
    }

    /// Removes and returns an entry.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.entries.remove(name)
    }

    fn wrong(&self, name: &str, wanted: &str, found: &Value) -> ApiError {
        let found = match found {
            Value::List(_) => "a list".to_owned(),
            Value::Dict(_) => "a dict".to_owned(),
            scalar => scalar.to_json(),
        };
        ApiError::invalid(format!("{name} of {} is {wanted}, not {found}", self.what))
    }

    /// Removes and returns a string, if the entry exists.
    pub fn text(&mut self, name: &str) -> Result<Option<Arc<str>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", &other)),
        }
    }

    /// Removes a number that is not negative.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Int(number)) if number >= 0 => Ok(Some(number.unsigned_abs())),
            Some(other) => Err(self.wrong(name, "a whole number, 0 or more", &other)),
        }
    }

    /// Removes a bool; false if absent.
    pub fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(truth)) => Ok(truth),
            Some(other) => Err(self.wrong(name, "true or false", &other)),
        }
    }

    /// Removes and returns a list, if the entry exists.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::List(items)) => Ok(Some(items)),
            Some(other) => Err(self.wrong(name, "a list", &other)),
        }
    }

    /// Removes a bool that must be there.
    pub fn required_flag(&mut self, name: &str) -> Result<bool, ApiError> {
        if !self.entries.contains_key(name) {
            return Err(ApiError::invalid(format!("{} has no {name}", self.what)));
        }
        self.flag(name)
    }

    /// Removes and returns a list of strings, if the entry exists.
    pub fn texts(&mut self, name: &str) -> Result<Option<Vec<Arc<str>>>, ApiError> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let text = |item| match item {
            Value::Text(text) => Ok(text),
            other => Err(self.wrong(name, "a list of strings", &other)),
        };
        items.into_iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// Fails if an entry is left, which was not understood.
    pub fn finish(self) -> Result<(), ApiError> {
        match self.entries.keys().next() {
            None => Ok(()),
            Some(name) => Err(ApiError::invalid(format!("{name:?} means nothing in {}", self.what))),
        }
    }

    fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, ApiError> {
        value.ok_or_else(|| ApiError::invalid(format!("{} has no {name}", self.what)))
    }
}

/// What a body says of a pair.
#[derive(Debug)]
pub(super) struct PairContent {
    /// `None` if only the schema is stated.
    value: Option<StatedValue>,
    /// Whether the client states the datatype: then the pair may change to it.
    states_datatype: bool,
    schema: StatedSchema,
}

/// A value as a body states it.
#[derive(Debug)]
enum StatedValue {
    Plain(Value),
    /// To be sealed.
    Secret(PlainSecret),
}

impl StatedValue {
    fn of(value: Value, datatype: Option<Datatype>) -> Result<StatedValue, ApiError> {
        match (value, datatype) {
            (Value::Text(text), Some(Datatype::Secret)) => Ok(StatedValue::Secret(secrets::plain(&text)?)),
            (other, Some(Datatype::Secret)) => {
                Err(ApiError::value(format!("a secret is a string, not {}", other.datatype().with_article())))
            }
            (value, datatype) => Ok(StatedValue::Plain(typed(value, datatype)?)),
        }
    }
}

/// What a body says of the schema of a pair or a container.
#[derive(Debug)]
enum StatedSchema {
    /// Nothing: the present one stays.
    Keep,
    Set(Option<Arc<Schema>>),
}

impl StatedSchema {
    /// Takes `"schema"`; null removes the schema.
    fn take(object: &mut Object) -> Result<StatedSchema, ApiError> {
        Ok(match object.take("schema") {
            None => StatedSchema::Keep,
            Some(Value::Empty) => StatedSchema::Set(None),
            Some(source) => StatedSchema::Set(Some(schema(source)?)),
        })
    }

    fn is_stated(&self) -> bool {
        matches!(self, StatedSchema::Set(_))
    }

    fn into_change(self, item: Item) -> Option<Change> {
        match self {
            StatedSchema::Keep => None,
            StatedSchema::Set(schema) => Some(Change::SetSchema { item, schema }),
        }
    }
}

/// Reads a schema.
pub(super) fn schema(source: Value) -> Result<Arc<Schema>, ApiError> {
    Ok(Arc::new(Schema::new(source)?))
}

/// `{"value":…,"type":…,"schema":…}`, of the pair of this key.
pub(super) fn pair(
    key: Arc<str>,
    mut object: Object,
    (retype, sealer): (bool, &Sealer),
) -> Result<Vec<Change>, ApiError> {
    let content = pair_content(&mut object)?;
    object.finish()?;
    content.into_changes(key, retype, sealer)
}

fn pair_content(object: &mut Object) -> Result<PairContent, ApiError> {
    let StatedType { datatype, schema: implied } = StatedType::take(object)?;
    let stated = StatedSchema::take(object)?;
    let schema = match (implied, stated) {
        (None, stated) => stated,
        (Some(implied), StatedSchema::Keep) => StatedSchema::Set(Some(implied)),
        (Some(_), StatedSchema::Set(_)) => {
            return Err(ApiError::value("a type that implies a schema and a schema contradict each other"));
        }
    };
    let value = match object.take("value") {
        None if datatype == Some(Datatype::Empty) => Some(Value::Empty),
        None if datatype.is_none() && schema.is_stated() => None,
        value => Some(object.required("value", value)?),
    };
    let value = value.map(|value| StatedValue::of(value, datatype)).transpose()?;
    Ok(PairContent { value, states_datatype: datatype.is_some(), schema })
}

impl PairContent {
    /// The changes that give a pair this content.
    fn into_changes(self, key: Arc<str>, retype: bool, sealer: &Sealer) -> Result<Vec<Change>, ApiError> {
        let retype = retype || self.states_datatype;
        let put = match self.value {
            None => None,
            Some(StatedValue::Plain(value)) => Some(Change::PutPair { key: key.clone(), value, retype }),
            Some(StatedValue::Secret(secret)) => Some(sealer.change(key.clone(), &secret, retype)?),
        };
        Ok(put.into_iter().chain(self.schema.into_change(Item::Pair(key))).collect())
    }
}

/// The datatype that a body states, and the schema that goes with it.
struct StatedType {
    datatype: Option<Datatype>,
    schema: Option<Arc<Schema>>,
}

impl StatedType {
    /// Takes `"datatype"`, a number, and `"type"`, a name. Both may be there if they agree.
    fn take(object: &mut Object) -> Result<StatedType, ApiError> {
        let number = object.number("datatype")?;
        let name = object.text("type")?;
        let values = object.list("values")?;
        let of_number =
            match number {
                None => None,
                Some(number) => Some(Datatype::of(number).ok_or_else(|| {
                    ApiError::value(format!("there is no datatype {number}: they are 0 to 7"))
                })?),
            };
        let of_name = match name.as_deref() {
            None => StatedType { datatype: None, schema: None },
            Some(name) => StatedType::of_name(name, values.as_deref())?,
        };
        if values.is_some() && name.as_deref() != Some("enum") {
            return Err(ApiError::value("values belong to the type enum"));
        }
        match (of_number, of_name.datatype) {
            (Some(one), Some(other)) if one != other => Err(ApiError::value(format!(
                "datatype {} and type {:?} contradict each other",
                one as u8,
                name.unwrap_or_default()
            ))),
            (one, other) => Ok(StatedType { datatype: one.or(other), schema: of_name.schema }),
        }
    }

    fn of_name(name: &str, values: Option<&[Value]>) -> Result<StatedType, ApiError> {
        if let Some(datatype) = Datatype::of_name(name) {
            return Ok(StatedType { datatype: Some(datatype), schema: None });
        }
        let rule = match (name, values) {
            ("duration" | "bytes", _) => ("format", Value::text(name)),
            ("enum", Some(values)) if values.iter().all(|value| matches!(value, Value::Text(_))) => {
                ("enum", Value::List(values.to_vec()))
            }
            ("enum", _) => {
                return Err(ApiError::value("the type enum needs values, a list of strings"));
            }
            _ => {
                return Err(ApiError::value(format!(
                    "there is no type {name:?}: they are empty, int, string, float, bool, list, dict, secret, \
                     duration, bytes and enum"
                )));
            }
        };
        let keywords = [("type", Value::text("string")), rule];
        let keywords = keywords.into_iter().map(|(keyword, value)| (keyword.into(), value));
        let schema = schema(Value::Dict(keywords.collect()))?;
        Ok(StatedType { datatype: Some(Datatype::Text), schema: Some(schema) })
    }
}

/// `{"fields":[{"key","fieldType","value"}],"schema":…}`, of the container of this key.
pub(super) fn container(key: Arc<str>, mut object: Object, retype: bool) -> Result<Vec<Change>, ApiError> {
    let changes = container_content(key, &mut object, retype)?;
    object.finish()?;
    Ok(changes)
}

fn container_content(key: Arc<str>, object: &mut Object, retype: bool) -> Result<Vec<Change>, ApiError> {
    let (fields, schema) = (object.list("fields")?, StatedSchema::take(object)?);
    let put = match fields {
        None if schema.is_stated() => None,
        fields => {
            let fields = self::fields(object.required("fields", fields)?)?;
            Some(Change::PutContainer { key: key.clone(), fields, retype })
        }
    };
    Ok(put.into_iter().chain(schema.into_change(Item::Container(key))).collect())
}

fn fields(fields: Vec<Value>) -> Result<Vec<Field>, ApiError> {
    let mut fields = fields.into_iter().map(field).collect::<Result<Vec<Field>, ApiError>>()?;
    fields.sort_by(|one, other| one.key.cmp(&other.key));
    if let Some(twice) = fields.windows(2).find(|two| two[0].key == two[1].key) {
        return Err(ApiError::invalid(format!("field {:?} comes twice", twice[0].key)));
    }
    validate_fields(&fields).map_err(Refusal::from)?;
    Ok(fields)
}

fn field(value: Value) -> Result<Field, ApiError> {
    let mut object = Object::of("a field", value)?;
    let key = object.text("key")?;
    let key = parse_key(&object.required("key", key)?)?;
    let field_type = object.take("fieldType");
    let value = object.take("value");
    let value = object.required("value", value)?;
    object.finish()?;
    let field_type = match field_type {
        Some(stated) => field_type_of(&stated)?,
        None => match &value {
            Value::List(_) => 2,
            Value::Dict(_) => 3,
            _ => 1,
        },
    };
    let refers = match (field_type, &value) {
        (1, Value::List(_) | Value::Dict(_)) => return Err(not_a_key(&key, &value)),
        (2, value) if !matches!(value, Value::List(_)) => {
            return Err(ApiError::invalid(format!("field {key:?} of type 2 refers to a list of pairs")));
        }
        (3, value) if !matches!(value, Value::Dict(_)) => {
            return Err(ApiError::invalid(format!("field {key:?} of type 3 refers to a dict of pairs")));
        }
        (1..=3, value) => refers(&key, value)?,
        (other, _) => return Err(no_field_type(&other.to_string())),
    };
    Ok(Field { key, refers })
}

/// The pairs that a field refers to: a key, a list of keys, or a dict of any of these.
fn refers(field: &str, value: &Value) -> Result<Refers, ApiError> {
    let pair_key = |value: &Value| match value {
        Value::Text(pair) => parse_key(pair),
        other => Err(not_a_key(field, other)),
    };
    Ok(match value {
        Value::List(pairs) => Refers::List(pairs.iter().map(pair_key).collect::<Result<_, _>>()?),
        Value::Dict(entries) => {
            let entry = |(name, value): (&Arc<str>, &Value)| Ok((parse_key(name)?, refers(field, value)?));
            Refers::Dict(entries.iter().map(entry).collect::<Result<_, ApiError>>()?)
        }
        value => Refers::One(pair_key(value)?),
    })
}

fn not_a_key(field: &str, found: &Value) -> ApiError {
    let found = found.datatype().name();
    ApiError::invalid(format!("field {field:?} refers to pairs by their keys, strings, not {found}"))
}

/// The number of a field type that is stated by its number or its name.
fn field_type_of(stated: &Value) -> Result<i64, ApiError> {
    match stated {
        Value::Int(number) => Ok(*number),
        Value::Text(name) => match name.to_ascii_lowercase().as_str() {
            "kv" => Ok(1),
            "list" => Ok(2),
            "dict" => Ok(3),
            _ => Err(no_field_type(&stated.to_json())),
        },
        other => Err(no_field_type(&other.to_json())),
    }
}

fn no_field_type(stated: &str) -> ApiError {
    ApiError::invalid(format!("there is no field type {stated}: 1 is KV, 2 LIST, 3 DICT"))
}

/// One of several changes: `{"pair":…}` or `{"container":…}` with its new content, or with
/// `"delete":true`. `retype` allows all of them to change datatypes.
pub(super) fn change(value: Value, (retype, sealer): (bool, &Sealer)) -> Result<Vec<Change>, ApiError> {
    let mut object = Object::of("a change", value)?;
    let (pair, container) = (object.text("pair")?, object.text("container")?);
    let delete = object.flag("delete")?;
    let changes = match (pair, container) {
        (Some(key), None) if delete => vec![Change::Delete(Item::Pair(parse_key(&key)?))],
        (None, Some(key)) if delete => vec![Change::Delete(Item::Container(parse_key(&key)?))],
        (Some(key), None) => pair_content(&mut object)?.into_changes(parse_key(&key)?, retype, sealer)?,
        (None, Some(key)) => container_content(parse_key(&key)?, &mut object, retype)?,
        _ => return Err(ApiError::invalid("a change names either a pair or a container")),
    };
    object.finish()?;
    Ok(changes)
}

/// A whole namespace in the format of an export. Its name and revision are informational.
pub(super) fn namespace(value: Value, (retype, sealer): (bool, &Sealer)) -> Result<Vec<Change>, ApiError> {
    let mut object = Object::of("a namespace", value)?;
    object.text("namespace")?;
    object.number("revision")?;
    let (pairs, containers) = (object.list("pairs")?, object.list("containers")?);
    let is_document = pairs.is_none() && containers.is_none();
    let (pairs, containers) = (pairs.unwrap_or_default(), containers.unwrap_or_default());
    object.finish().map_err(|error| if is_document { error.with(DOCUMENT_HINT) } else { error })?;
    let named_pair = |value| {
        let mut object = Object::of("a pair", value)?;
        let key = object.text("key")?;
        pair(parse_key(&object.required("key", key)?)?, object, (retype, sealer))
    };
    let named_container = |value| {
        let mut object = Object::of("a container", value)?;
        let key = object.text("key")?;
        container(parse_key(&object.required("key", key)?)?, object, retype)
    };
    let changes = pairs.into_iter().map(named_pair).chain(containers.into_iter().map(named_container));
    Ok(changes.collect::<Result<Vec<_>, ApiError>>()?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Keyring;

    fn refused(body: &str) -> bool {
        read(body).is_err()
    }

    fn read(body: &str) -> Result<Vec<Change>, ApiError> {
        let object = Object::of_json("a pair", body.as_bytes())?;
        pair("p".into(), object, (false, &Sealer::without_keys()))
    }

    #[test]
    fn nothing_is_passed_over() {
        assert!(!refused(r#"{"value":1,"datatype":1}"#));
        assert!(!refused(r#"{"value":null}"#));
        assert!(!refused(r#"{"datatype":0}"#));
        for body in [
            "",
            "1",
            "[]",
            "{}",
            r#"{"datatype":1}"#,
            r#"{"value":1,"type":1}"#,
            r#"{"value":1,"more":1}"#,
            r#"{"value":1}x"#,
        ] {
            assert!(refused(body), "{body}");
        }
    }

    #[test]
    fn secrets_are_sealed_when_they_are_read() {
        let keys = "k1:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
        let sealer = Sealer::with_keys(Keyring::parse(keys).expect("keys"));
        let read = |body: &str, sealer: &Sealer| {
            pair("p".into(), Object::of_json("a pair", body.as_bytes())?, (false, sealer))
        };
        for body in [
            r#"{"value":"horse","type":"secret"}"#,
            r#"{"value":"horse","datatype":7}"#,
            r#"{"value":"sealed:v1:k1:AAAA","type":"secret"}"#,
        ] {
            let changes = read(body, &sealer).expect(body);
            let [Change::PutPair { value: Value::Secret(sealed), retype: true, .. }] = changes.as_slice()
            else {
                panic!("{changes:?}");
            };
            assert!(sealed.base64().len() > "AAAA".len(), "sealed text of a client is sealed itself");
            assert!(!format!("{changes:?}").contains("horse"));
            let refused = read(body, &Sealer::without_keys()).unwrap_err();
            assert!(format!("{refused:?}").contains("--secret-key-file"), "{refused:?}");
        }
        let kept = read(r#"{"value":"********","type":"secret"}"#, &Sealer::without_keys());
        assert!(matches!(kept.expect("no key is needed").as_slice(), [Change::KeepSecret { .. }]));
        assert!(read(r#"{"value":1,"type":"secret"}"#, &sealer).is_err());
        let text = read(r#"{"value":"sealed:v1:k1:AAAA"}"#, &sealer).expect("text");
        assert!(matches!(text.as_slice(), [Change::PutPair { value: Value::Text(_), .. }]), "{text:?}");
    }

    #[test]
    fn types_are_stated_by_name_or_number() {
        let put = |body: &str| match read(body).expect(body).as_slice() {
            [Change::PutPair { value, retype, .. }] => (value.to_json(), *retype),
            other => panic!("{other:?}"),
        };
        for (body, json, retype) in [
            (r#"{"value":1}"#, "1", false),
            (r#"{"value":1,"type":"int"}"#, "1", true),
            (r#"{"value":1,"type":"float"}"#, "1.0", true),
            (r#"{"value":1,"type":"float","datatype":3}"#, "1.0", true),
            (r#"{"value":"1","type":"string"}"#, "\"1\"", true),
            (r#"{"value":[],"type":"list"}"#, "[]", true),
            (r#"{"value":{},"type":"dict"}"#, "{}", true),
            (r#"{"value":true,"type":"bool"}"#, "true", true),
            (r#"{"type":"empty"}"#, "null", true),
        ] {
            assert_eq!(put(body), (json.to_owned(), retype), "{body}");
        }
        for body in [
            r#"{"value":1,"type":"int","datatype":2}"#,
            r#"{"value":1,"type":"string"}"#,
            r#"{"value":1,"type":"integer"}"#,
            r#"{"value":1,"type":"duration"}"#,
            r#"{"value":"a","type":"enum"}"#,
            r#"{"value":"a","type":"enum","values":[1]}"#,
            r#"{"value":"a","values":["a"]}"#,
            r#"{"value":"1s","type":"duration","schema":null}"#,
            r#"{"value":1,"schema":{"pattern":"a"}}"#,
            r#"{"type":"int","schema":null}"#,
        ] {
            assert!(refused(body), "{body}");
        }
    }

    #[test]
    fn types_of_text_are_schemas() {
        for (body, schema) in [
            (r#"{"value":"1s","type":"duration"}"#, r#"{"format":"duration","type":"string"}"#),
            (r#"{"value":"1B","type":"bytes","datatype":2}"#, r#"{"format":"bytes","type":"string"}"#),
            (r#"{"value":"a","type":"enum","values":["a","b"]}"#, r#"{"enum":["a","b"],"type":"string"}"#),
            (r#"{"value":"a","schema":{"minLength":1}}"#, r#"{"minLength":1}"#),
        ] {
            let changes = read(body).expect(body);
            let [Change::PutPair { .. }, Change::SetSchema { schema: Some(set), .. }] = changes.as_slice()
            else {
                panic!("{changes:?}")
            };
            assert_eq!(set.source().to_json(), schema);
        }
        assert!(matches!(
            read(r#"{"schema":null}"#).expect("a change").as_slice(),
            [Change::SetSchema { schema: None, .. }]
        ));
    }

    #[test]
    fn field_types_are_stated_or_follow_from_the_value() {
        let read = |field: &str| {
            let body = format!(r#"{{"fields":[{field}]}}"#);
            let object = Object::of_json("a container", body.as_bytes())?;
            let changes = container("c".into(), object, false)?;
            match changes.as_slice() {
                [Change::PutContainer { fields, .. }] => Ok(fields[0].refers.field_type()),
                other => panic!("{other:?}"),
            }
        };
        for (field, expected) in [
            (r#"{"key":"f","value":"p"}"#, 1),
            (r#"{"key":"f","value":["p"]}"#, 2),
            (r#"{"key":"f","value":{"a":"p"}}"#, 3),
            (r#"{"key":"f","fieldType":"kv","value":"p"}"#, 1),
            (r#"{"key":"f","fieldType":"LIST","value":["p"]}"#, 2),
            (r#"{"key":"f","fieldType":"dict","value":{}}"#, 3),
            (r#"{"key":"f","fieldType":3,"value":{}}"#, 3),
        ] {
            assert_eq!(read(field).expect(field), expected, "{field}");
        }
        for field in [
            r#"{"key":"f","value":1}"#,
            r#"{"key":"f","fieldType":"list","value":"p"}"#,
            r#"{"key":"f","fieldType":"text","value":"p"}"#,
            r#"{"key":"f","fieldType":4,"value":"p"}"#,
            r#"{"key":"f","fieldType":true,"value":"p"}"#,
        ] {
            let result: Result<u8, ApiError> = read(field);
            assert!(result.is_err(), "{field}");
        }
    }
}
