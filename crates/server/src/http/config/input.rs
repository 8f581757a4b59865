//! Parses what clients send into changes: pairs, containers, lists of changes, whole namespaces.
//!
//! Owns the shape of bodies, and that nothing in them is ignored: an unknown name is refused with
//! the known ones. Bodies are parsed into a tree first, so that JSON, YAML and TOML are treated
//! alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock_core::command::Refusal;
use tidelock_core::command::config::{Change, Datatype, Field, Item, Refers, Value, validate_fields};

use super::error::ApiError;
use super::formats::check_numbers;
use super::path::parse_key;
use super::values::{FILE_VALUES_MAX, read_json, typed};

/// A hint for a likely intention: the file has neither pairs nor containers.
const DOCUMENT_HINT: &str = "this is no exported namespace; to import a document, name the container that it is for \
    (POST …/containers/KEY/import, tidelock config import --container KEY)";

/// A dict whose entries are removed one by one.
pub(super) struct Object {
    what: &'static str,
    entries: BTreeMap<Arc<str>, Value>,
}

impl Object {
    /// Parses a JSON body.
    pub fn of_json(what: &'static str, body: &[u8]) -> Result<Object, ApiError> {
        let not_json = |error: &dyn std::fmt::Display| {
            ApiError::invalid(format!("the body is not the JSON of {what}: {error}"))
        };
        let text = std::str::from_utf8(body).map_err(|error| not_json(&error))?;
        let value = read_json(text, FILE_VALUES_MAX).map_err(|error| not_json(&error))?;
        check_numbers(text)?;
        Object::of(what, value)
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

/// The new content of a pair.
#[derive(Debug)]
pub(super) struct PairContent {
    pub value: Value,
    /// Whether the client states the datatype: then the pair may change to it.
    pub states_datatype: bool,
}

/// `{"value":…,"datatype":…}`.
pub(super) fn pair(mut object: Object) -> Result<PairContent, ApiError> {
    let content = pair_content(&mut object)?;
    object.finish()?;
    Ok(content)
}

fn pair_content(object: &mut Object) -> Result<PairContent, ApiError> {
    let datatype = object.number("datatype")?;
    let value = match object.take("value") {
        None if datatype == Some(Datatype::Empty as u64) => Value::Empty,
        value => object.required("value", value)?,
    };
    Ok(PairContent { value: typed(value, datatype)?, states_datatype: datatype.is_some() })
}

/// `{"fields":[{"key","fieldType","value"}]}`.
pub(super) fn container(mut object: Object) -> Result<Vec<Field>, ApiError> {
    let fields = object.list("fields")?;
    let fields = object.required("fields", fields)?;
    object.finish()?;
    self::fields(fields)
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
    let field_type = object.number("fieldType")?;
    let field_type = object.required("fieldType", field_type)?;
    let value = object.take("value");
    let value = object.required("value", value)?;
    object.finish()?;
    let refers = match (field_type, &value) {
        (1, Value::List(_) | Value::Dict(_)) => return Err(not_a_key(&key, &value)),
        (2, value) if !matches!(value, Value::List(_)) => {
            return Err(ApiError::invalid(format!("field {key:?} of type 2 refers to a list of pairs")));
        }
        (3, value) if !matches!(value, Value::Dict(_)) => {
            return Err(ApiError::invalid(format!("field {key:?} of type 3 refers to a dict of pairs")));
        }
        (1..=3, value) => refers(&key, value)?,
        (other, _) => {
            let text = format!("there is no field type {other}: 1 is KV, 2 LIST, 3 DICT");
            return Err(ApiError::invalid(text));
        }
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

/// One of several changes: `{"pair":…}` or `{"container":…}` with its new content, or with
/// `"delete":true`. `retype` allows all of them to change datatypes.
pub(super) fn change(value: Value, retype: bool) -> Result<Change, ApiError> {
    let mut object = Object::of("a change", value)?;
    let (pair, container) = (object.text("pair")?, object.text("container")?);
    let delete = object.flag("delete")?;
    let change = match (pair, container) {
        (Some(key), None) if delete => Change::Delete(Item::Pair(parse_key(&key)?)),
        (None, Some(key)) if delete => Change::Delete(Item::Container(parse_key(&key)?)),
        (Some(key), None) => put_pair(parse_key(&key)?, pair_content(&mut object)?, retype),
        (None, Some(key)) => {
            let fields = object.list("fields")?;
            let fields = self::fields(object.required("fields", fields)?)?;
            Change::PutContainer { key: parse_key(&key)?, fields, retype }
        }
        _ => return Err(ApiError::invalid("a change names either a pair or a container")),
    };
    object.finish()?;
    Ok(change)
}

/// The change that gives a pair the content that a client sent.
pub(super) fn put_pair(key: Arc<str>, content: PairContent, retype: bool) -> Change {
    Change::PutPair { key, value: content.value, retype: retype || content.states_datatype }
}

/// A whole namespace in the format of an export. Its name and revision are informational.
pub(super) fn namespace(value: Value, retype: bool) -> Result<Vec<Change>, ApiError> {
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
        let key = parse_key(&object.required("key", key)?)?;
        Ok(put_pair(key, pair(object)?, retype))
    };
    let named_container = |value| {
        let mut object = Object::of("a container", value)?;
        let key = object.text("key")?;
        let key = parse_key(&object.required("key", key)?)?;
        Ok(Change::PutContainer { key, fields: container(object)?, retype })
    };
    let changes = pairs.into_iter().map(named_pair).chain(containers.into_iter().map(named_container));
    changes.collect::<Result<_, ApiError>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> bool {
        Object::of_json("a pair", body.as_bytes()).and_then(pair).is_err()
    }

    #[test]
    fn nothing_is_passed_over() {
        assert!(!refused(r#"{"value":1,"datatype":1}"#));
        assert!(!refused(r#"{"value":null}"#));
        assert!(!refused(r#"{"datatype":0}"#));
        for body in ["", "1", "[]", "{}", r#"{"datatype":1}"#, r#"{"value":1,"type":1}"#, r#"{"value":1}x"#] {
            assert!(refused(body), "{body}");
        }
    }
}
