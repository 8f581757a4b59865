//! Reading schemas: the keywords, and which of them are refused.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::check::canonical;
use super::{Format, JsonType, Rule, Rules};
use crate::command::config::Value;
use crate::limits;

/// Why a schema is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", if place.is_empty() { "the schema" } else { place.as_str() })]
pub struct SchemaError {
    /// The keywords that lead to the fault, with slashes between them.
    place: String,
    reason: String,
}

impl SchemaError {
    pub(super) fn too_long() -> SchemaError {
        let reason = format!("it is longer than {} bytes as JSON", limits::CONFIG_SCHEMA_BYTES_MAX);
        SchemaError { place: String::new(), reason }
    }

    pub(super) fn too_deep() -> SchemaError {
        let reason = format!("it is nested deeper than {} levels", limits::CONFIG_SCHEMA_DEPTH_MAX);
        SchemaError { place: String::new(), reason }
    }

    fn at(mut self, name: &str) -> SchemaError {
        self.place = if self.place.is_empty() { name.to_owned() } else { format!("{name}/{}", self.place) };
        self
    }
}

type Parsed<T> = Result<T, SchemaError>;

fn refuse<T>(reason: impl Into<String>) -> Parsed<T> {
    Err(SchemaError { place: String::new(), reason: reason.into() })
}

/// The rules of a schema, whose depth is bounded.
pub(super) fn rules(source: &Value) -> Parsed<Rules> {
    let keywords = match source {
        Value::Bool(true) => return Ok(Rules::new()),
        Value::Bool(false) => return Ok(Rules::from([Rule::Never])),
        Value::Dict(keywords) => keywords,
        other => {
            return refuse(format!("a schema is a dict, true or false, not {}", other.datatype().name()));
        }
    };
    let mut found = Rules::new();
    let mut named = None;
    let mut additional = None;
    for (keyword, value) in keywords {
        let parsed = match &**keyword {
            "properties" => all(value).map(|schemas| {
                named = Some(schemas);
                None
            }),
            "additionalProperties" => rules(value).map(|schema| {
                additional = Some(schema);
                None
            }),
            keyword => rule(keyword, value),
        };
        found.extend(parsed.map_err(|error| error.at(keyword))?);
    }
    if named.is_some() || additional.is_some() {
        found.push(Rule::Properties { named: named.unwrap_or_default(), additional });
    }
    Ok(found)
}

/// The rule of a keyword; `None` for an annotation.
fn rule(keyword: &str, value: &Value) -> Parsed<Option<Rule>> {
    Ok(Some(match keyword {
        "type" => Rule::Type(types(value)?),
        "enum" => Rule::Enum(items(value)?.iter().map(canonical).collect()),
        "const" => Rule::Const(canonical(value)),
        "minimum" => Rule::Minimum(number(value)?),
        "maximum" => Rule::Maximum(number(value)?),
        "exclusiveMinimum" => Rule::ExclusiveMinimum(number(value)?),
        "exclusiveMaximum" => Rule::ExclusiveMaximum(number(value)?),
        "multipleOf" => match value {
            Value::Int(number) if *number > 0 => Rule::MultipleOf(*number),
            _ => return refuse("it is a whole number above 0"),
        },
        "minLength" => Rule::MinLength(count(value)?),
        "maxLength" => Rule::MaxLength(count(value)?),
        "minItems" => Rule::MinItems(count(value)?),
        "maxItems" => Rule::MaxItems(count(value)?),
        "minProperties" => Rule::MinProperties(count(value)?),
        "maxProperties" => Rule::MaxProperties(count(value)?),
        "uniqueItems" => match value {
            Value::Bool(true) => Rule::UniqueItems,
            Value::Bool(false) => return Ok(None),
            _ => return refuse("it is true or false"),
        },
        "items" => Rule::Items(rules(value)?),
        "required" => Rule::Required(items(value)?.iter().map(text).collect::<Parsed<_>>()?),
        "format" => match text(value)?.as_ref() {
            "duration" => Rule::Format(Format::Duration),
            "bytes" => Rule::Format(Format::Bytes),
            other => return refuse(format!("there is no format {other:?}: they are duration and bytes")),
        },
        "allOf" => Rule::AllOf(alternatives(value)?),
        "anyOf" => Rule::AnyOf(alternatives(value)?),
        "oneOf" => Rule::OneOf(alternatives(value)?),
        "not" => Rule::Not(rules(value)?),
        "title" | "description" | "$schema" | "$comment" => {
            text(value)?;
            return Ok(None);
        }
        "default" => return Ok(None),
        _ => return refuse("this keyword is not known, and would not be checked"),
    }))
}

fn types(value: &Value) -> Parsed<Vec<JsonType>> {
    let of_name = |value: &Value| {
        let name = text(value)?;
        let found = JsonType::ALL.into_iter().find(|known| known.name() == &*name);
        match found {
            Some(found) => Ok(found),
            None => {
                let names: Vec<&str> = JsonType::ALL.iter().map(|known| known.name()).collect();
                refuse(format!("there is no type {name:?}: they are {}", names.join(", ")))
            }
        }
    };
    match value {
        Value::List(names) if !names.is_empty() => names.iter().map(of_name).collect(),
        name => Ok(Vec::from([of_name(name)?])),
    }
}

fn items(value: &Value) -> Parsed<&[Value]> {
    match value {
        Value::List(items) => Ok(items),
        _ => refuse("it is a list"),
    }
}

fn text(value: &Value) -> Parsed<Arc<str>> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        _ => refuse("it is a string"),
    }
}

fn number(value: &Value) -> Parsed<Value> {
    match value {
        Value::Int(_) | Value::Float(_) => Ok(value.clone()),
        _ => refuse("it is a number"),
    }
}

fn count(value: &Value) -> Parsed<u64> {
    match value {
        Value::Int(count) if *count >= 0 => Ok(count.unsigned_abs()),
        _ => refuse("it is a whole number, 0 or more"),
    }
}

fn alternatives(value: &Value) -> Parsed<Vec<Rules>> {
    let schemas = items(value)?;
    if schemas.is_empty() {
        return refuse("it names at least one schema");
    }
    let numbered = schemas.iter().enumerate();
    numbered
        .map(|(position, schema)| rules(schema).map_err(|error| error.at(&position.to_string())))
        .collect()
}

fn all(value: &Value) -> Parsed<BTreeMap<Arc<str>, Rules>> {
    let Value::Dict(entries) = value else { return refuse("it is a dict of schemas") };
    let entry = |(name, schema): (&Arc<str>, &Value)| {
        Ok((name.clone(), rules(schema).map_err(|error| error.at(name))?))
    };
    entries.iter().map(entry).collect()
}
