//! Schemas: what the value of a pair, or the document of a container, must be.
//!
//! A schema is JSON Schema of the draft 2020-12, reduced to keywords whose check is deterministic
//! and bounded: every replica decides the same, and no schema can occupy a shard. An unknown
//! keyword is refused when the schema is set, because an ignored one would promise a check that
//! nobody makes.
//!
//! - `parse`: a JSON value becomes rules.
//! - `check`: a value is compared with the rules.
//! - `texts`: the formats `duration` and `bytes`.

mod check;
mod parse;
mod texts;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Value;
use crate::codec::{DecodeError, Decoder};
use crate::limits;

pub use check::{CheckError, SchemaChecker};
pub use parse::SchemaError;
pub use texts::{is_bytes, is_duration};

/// A schema. Two schemas are equal if their JSON is.
#[derive(Clone, Debug)]
pub struct Schema {
    source: Value,
    root: Rules,
    json_bytes: usize,
}

/// The rules of one schema, all of which hold.
type Rules = Vec<Rule>;

/// One keyword of a schema. A rule about another type of value than it gets holds.
#[derive(Clone, Debug)]
enum Rule {
    /// The schema `false`.
    Never,
    Type(Vec<JsonType>),
    /// The canonical texts of the values, see [`check::canonical`].
    Enum(Vec<String>),
    Const(String),
    Minimum(Value),
    Maximum(Value),
    ExclusiveMinimum(Value),
    ExclusiveMaximum(Value),
    /// Positive.
    MultipleOf(i64),
    /// Characters of a text.
    MinLength(u64),
    MaxLength(u64),
    Format(Format),
    MinItems(u64),
    MaxItems(u64),
    UniqueItems,
    Items(Rules),
    Properties {
        named: BTreeMap<Arc<str>, Rules>,
        /// For the entries of other names.
        additional: Option<Rules>,
    },
    Required(Vec<Arc<str>>),
    MinProperties(u64),
    MaxProperties(u64),
    AllOf(Vec<Rules>),
    AnyOf(Vec<Rules>),
    OneOf(Vec<Rules>),
    Not(Rules),
}

/// A type of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonType {
    Null,
    Boolean,
    /// A number without a fraction, also a float.
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl JsonType {
    const ALL: [JsonType; 7] = [
        JsonType::Null,
        JsonType::Boolean,
        JsonType::Integer,
        JsonType::Number,
        JsonType::String,
        JsonType::Array,
        JsonType::Object,
    ];

    fn name(self) -> &'static str {
        match self {
            JsonType::Null => "null",
            JsonType::Boolean => "boolean",
            JsonType::Integer => "integer",
            JsonType::Number => "number",
            JsonType::String => "string",
            JsonType::Array => "array",
            JsonType::Object => "object",
        }
    }
}

/// A format of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Duration,
    Bytes,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Duration => "duration",
            Format::Bytes => "bytes",
        }
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.source == other.source
    }
}

impl Eq for Schema {}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// When it is not one, or uses what this subset of JSON Schema does not have.
    pub fn new(source: Value) -> Result<Schema, SchemaError> {
        let json_bytes = source.json_bytes();
        if json_bytes > limits::CONFIG_SCHEMA_BYTES_MAX {
            return Err(SchemaError::too_long());
        }
        if is_deeper(&source, limits::CONFIG_SCHEMA_DEPTH_MAX) {
            return Err(SchemaError::too_deep());
        }
        let root = parse::rules(&source)?;
        Ok(Schema { source, root, json_bytes })
    }

    /// The schema as JSON.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Length of its JSON in bytes.
    pub fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    /// Appends its encoding in the log and in snapshots.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.source.encode(out);
    }

    /// Decodes a schema, and checks that it is one.
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Schema, DecodeError> {
        let source = Value::decode_within(decoder, limits::CONFIG_SCHEMA_DEPTH_MAX)?;
        Schema::new(source).map_err(|_| DecodeError::Invalid("schema"))
    }
}

/// Whether a value has more than this many levels inside.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let inside = |value: &Value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::List(items) => items.iter().any(inside),
        Value::Dict(entries) => entries.values().any(inside),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
