//! Documents in file formats: JSON, YAML, TOML, properties, and env for shells.
//!
//! Owns what each format can represent: what is exported is imported unchanged, or the export is
//! refused with a reason. (env is not imported: it has no types, and its names are not those of
//! fields.)
//!
//! An import changes nothing silently. In properties, where everything is text, a text becomes a
//! number only if the number is shown as the same text. The other formats determine what is a
//! number; see `numbers`.

mod env;
mod json;
mod numbers;
mod properties;
mod toml;
mod yaml;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use tidelock_core::command::config::{SECRET_MASK, Value};

use super::error::ApiError;
pub(super) use json::check_numbers;
pub(super) use numbers::Notes;

/// The contents of a file.
#[derive(Debug)]
pub(super) struct Document {
    pub value: Value,
    pub notes: Notes,
}

/// A file format that configuration can be imported from or exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Format {
    Json,
    Yaml,
    Toml,
    Properties,
    Env,
}

impl Format {
    pub const ALL: [Format; 5] = [Format::Json, Format::Yaml, Format::Toml, Format::Properties, Format::Env];

    /// The format of a `format` parameter.
    pub fn of(name: &str) -> Result<Format, ApiError> {
        Ok(match name {
            "json" => Format::Json,
            "yaml" => Format::Yaml,
            "toml" => Format::Toml,
            "properties" => Format::Properties,
            "env" => Format::Env,
            _ => {
                let text =
                    format!("there is no format {name:?}: they are json, yaml, toml, properties and env");
                return Err(ApiError::invalid(text));
            }
        })
    }

    pub fn extension(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Yaml => "yaml",
            Format::Toml => "toml",
            Format::Properties => "properties",
            Format::Env => "env",
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
            Format::Toml => "application/toml",
            Format::Properties | Format::Env => "text/plain; charset=utf-8",
        }
    }

    /// A document as a file, with a line break at its end.
    pub fn write(self, document: &Value) -> Result<String, ApiError> {
        let mut out = match self {
            Format::Json => document.to_json(),
            Format::Yaml => {
                serde_saphyr::to_string(&Plain(document)).map_err(|error| cannot("YAML", &error))?
            }
            Format::Toml => {
                if let Some(path) = path_of_null(document) {
                    return Err(ApiError::format(format!("{path} is null, which TOML cannot carry")));
                }
                ::toml::to_string(&Plain(document)).map_err(|error| cannot("TOML", &error))?
            }
            Format::Properties => properties::write(document)?,
            Format::Env => env::write(document)?,
        };
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        Ok(out)
    }

    /// The document in a file, of up to `values_max` values.
    pub(in crate::http::config) fn read(self, file: &str, values_max: usize) -> Result<Document, ApiError> {
        match self {
            Format::Json => json::read(file, values_max),
            Format::Yaml => yaml::read(file, values_max),
            Format::Toml => toml::read(file, values_max),
            Format::Properties => {
                Ok(Document { value: properties::read(file, values_max)?, notes: Notes::default() })
            }
            Format::Env => Err(ApiError::format(
                "env is written for shells and not read: it has no datatypes; import json, yaml, toml or properties",
            )),
        }
    }
}

fn cannot(format: &str, error: &dyn std::fmt::Display) -> ApiError {
    ApiError::format(format!("{format} cannot carry this document: {error}"))
}

fn no_file(format: &str, error: &dyn std::fmt::Display) -> ApiError {
    ApiError::format(format!("the file is not {format}, or holds what no document can: {error}"))
}

/// The path of the first null.
fn path_of_null(value: &Value) -> Option<String> {
    match value {
        Value::Empty => Some(String::new()),
        Value::List(items) => items
            .iter()
            .enumerate()
            .find_map(|(position, item)| Some(format!("[{position}]{}", path_of_null(item)?))),
        Value::Dict(entries) => {
            entries.iter().find_map(|(key, value)| Some(format!("{key}{}", dotted(path_of_null(value)?))))
        }
        _ => None,
    }
}

fn dotted(path: String) -> String {
    if path.is_empty() || path.starts_with('[') { path } else { format!(".{path}") }
}

/// A value that serializes without its datatype, with the mask instead of a secret.
struct Plain<'a>(&'a Value);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Empty => serializer.serialize_unit(),
            Value::Int(number) => serializer.serialize_i64(*number),
            Value::Float(number) => serializer.serialize_f64(number.get()),
            Value::Text(text) => serializer.serialize_str(text),
            Value::Secret(_) => serializer.serialize_str(SECRET_MASK),
            Value::Bool(truth) => serializer.serialize_bool(*truth),
            Value::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(&Plain(item)))?;
                list.end()
            }
            Value::Dict(entries) => {
                let mut dict = serializer.serialize_map(Some(entries.len()))?;
                entries.iter().try_for_each(|(key, value)| dict.serialize_entry(&**key, &Plain(value)))?;
                dict.end()
            }
        }
    }
}

#[cfg(test)]
mod tests;
