//! Java properties: keys with dots, indexes in brackets, and text after an equals sign.
//!
//! Everything in such a file is text. A line that would be read differently is preceded by a
//! comment, `#@ {"type":"string"}`, so that an exported file is imported unchanged. Programs ignore
//! the comment, and this reader uses it. If the key does not determine the path, the comment also
//! has `"path"`. Nested lists cannot be exported.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock_core::command::config::{SECRET_MASK, Value};

use super::super::error::ApiError;
use super::super::values::{read_json, too_many_values};

/// The prefix of a comment that says how to read the next line.
const HINT: &str = "#@ ";

/// Most values in such a comment: the steps of the deepest path, and the structure around them.
const HINT_VALUES_MAX: usize = PATH_STEPS_MAX + 8;

/// A step from a document to one of its scalars.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Key(Arc<str>),
    Index(usize),
}

/// Every scalar of a document with its path; empty dicts and lists count as scalars.
pub(super) fn flatten(document: &Value) -> Result<Vec<(Vec<Step>, &Value)>, ApiError> {
    let Value::Dict(entries) = document else {
        return Err(ApiError::format("a document is a dict"));
    };
    let mut out = Vec::new();
    for (key, value) in entries {
        visit(vec![Step::Key(key.clone())], value, &mut out)?;
    }
    Ok(out)
}

fn visit<'a>(
    path: Vec<Step>,
    value: &'a Value,
    out: &mut Vec<(Vec<Step>, &'a Value)>,
) -> Result<(), ApiError> {
    let inside = |step| path.iter().cloned().chain([step]).collect::<Vec<_>>();
    match value {
        Value::Dict(entries) if !entries.is_empty() => {
            entries.iter().try_for_each(|(key, value)| visit(inside(Step::Key(key.clone())), value, out))
        }
        Value::List(_) if matches!(path.last(), Some(Step::Index(_))) => Err(ApiError::format(format!(
            "{} is a list inside of a list, which this format cannot carry",
            key_of(&path)
        ))),
        Value::List(items) if !items.is_empty() => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(position, item)| visit(inside(Step::Index(position)), item, out))
        }
        scalar => {
            out.push((path, scalar));
            Ok(())
        }
    }
}

/// A path as a key: `servers[0].name`.
pub(super) fn key_of(path: &[Step]) -> String {
    let mut key = String::new();
    for step in path {
        match step {
            Step::Key(name) if key.is_empty() => key.push_str(name),
            Step::Key(name) => {
                key.push('.');
                key.push_str(name);
            }
            Step::Index(position) => key.push_str(&format!("[{position}]")),
        }
    }
    key
}

/// The path that a key denotes, if it denotes one.
fn path_of(key: &str) -> Option<Vec<Step>> {
    let mut path = Vec::new();
    for part in key.split('.') {
        let (name, mut indexes) = part.split_at(part.find('[').unwrap_or(part.len()));
        if name.is_empty() || name.contains(']') {
            return None;
        }
        path.push(Step::Key(name.into()));
        while !indexes.is_empty() {
            let (digits, rest) = indexes.strip_prefix('[')?.split_once(']')?;
            let position: usize = digits.parse().ok()?;
            if position.to_string() != digits || matches!(path.last(), Some(Step::Index(_))) {
                return None;
            }
            path.push(Step::Index(position));
            indexes = rest;
        }
    }
    Some(path)
}

/// The value that a text implies. A text is a number only if the number is shown as the same text,
/// so `1.10` remains a version, `7e4` a commit id, and `007` a text.
fn guess(text: &str) -> Value {
    match text {
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    let int = text.parse().ok().map(Value::Int);
    let number = int.or_else(|| text.parse().ok().and_then(Value::float));
    number.filter(|number| number.to_json() == text).unwrap_or_else(|| Value::text(text))
}

/// The text of a scalar.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::Text(text) => text.to_string(),
        Value::Secret(_) => SECRET_MASK.to_owned(),
        Value::Int(_) | Value::Float(_) | Value::Bool(_) => value.to_json(),
        Value::Empty | Value::List(_) | Value::Dict(_) => String::new(),
    }
}

pub(super) fn write(document: &Value) -> Result<String, ApiError> {
    let mut out = String::new();
    for (path, value) in flatten(document)? {
        let (key, text) = (key_of(&path), text_of(value));
        let is_plain_path = path_of(&key).as_ref() == Some(&path);
        // The mask of a secret is read back as a string.
        let masked = matches!(value, Value::Secret(_)).then(|| Value::text(&text));
        let value = masked.as_ref().unwrap_or(value);
        if !is_plain_path || guess(&text) != *value {
            out.push_str(&hint(&path, value, is_plain_path));
        }
        escape(&key, true, &mut out);
        out.push('=');
        escape(&text, false, &mut out);
        out.push('\n');
    }
    Ok(out)
}

fn hint(path: &[Step], value: &Value, is_plain_path: bool) -> String {
    let mut entries: BTreeMap<Arc<str>, Value> =
        [("type".into(), Value::text(value.datatype().name()))].into();
    if !is_plain_path {
        let step = |step: &Step| match step {
            Step::Key(name) => Value::Text(name.clone()),
            Step::Index(position) => Value::Int(*position as i64),
        };
        entries.insert("path".into(), Value::List(path.iter().map(step).collect()));
    }
    format!("{HINT}{}\n", Value::Dict(entries).to_json())
}

/// Escapes as `java.util.Properties.store` does.
fn escape(text: &str, is_key: bool, out: &mut String) {
    for (position, character) in text.chars().enumerate() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{c}' => out.push_str("\\f"),
            ' ' if is_key || position == 0 => out.push_str("\\ "),
            '=' | ':' | '#' | '!' if is_key => {
                out.push('\\');
                out.push(character);
            }
            ' '..='~' => out.push(character),
            other => other
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04X}"))),
        }
    }
}

pub(super) fn read(file: &str, values_max: usize) -> Result<Value, ApiError> {
    let mut root = Node::default();
    let mut values = 0;
    let mut hint: Option<Hint> = None;
    let mut lines = file.lines();
    while let Some(first) = lines.next() {
        let first = first.trim_start_matches([' ', '\t', '\u{c}']);
        if let Some(text) = first.strip_prefix(HINT) {
            hint = Some(Hint::of(text)?);
            continue;
        }
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut line = first.to_owned();
        while ends_in_continuation(&line) {
            line.pop();
            let Some(next) = lines.next() else { break };
            line.push_str(next.trim_start_matches([' ', '\t', '\u{c}']));
        }
        values += 1;
        if values > values_max {
            return Err(super::no_file("properties", &too_many_values(values_max)));
        }
        let (key, text) = split(&line)?;
        let hint = hint.take();
        let path = match hint.as_ref().and_then(|hint| hint.path.clone()) {
            Some(path) => path,
            None => path_of(&key).ok_or_else(|| {
                ApiError::format(format!("key {key:?} names no place: keys are such as servers[0].name"))
            })?,
        };
        let value = match hint.and_then(|hint| hint.datatype) {
            Some(datatype) => read_as(&datatype, &key, text)?,
            None => guess(&text),
        };
        root.insert(&path, value).map_err(|reason| ApiError::format(format!("key {key:?} {reason}")))?;
    }
    root.into_value().map_err(ApiError::format)
}

fn ends_in_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Splits a line at its separator and resolves escapes.
fn split(line: &str) -> Result<(String, String), ApiError> {
    let mut is_escaped = false;
    let end = line.find(|character: char| {
        let ends = !is_escaped && matches!(character, '=' | ':' | ' ' | '\t' | '\u{c}');
        is_escaped = !is_escaped && character == '\\';
        ends
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let blank = [' ', '\t', '\u{c}'];
    let rest = rest.trim_start_matches(blank);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(blank);
    Ok((unescape(key)?, unescape(rest)?))
}

fn unescape(text: &str) -> Result<String, ApiError> {
    // UTF-16, because `\u` escapes are UTF-16 code units.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        let unescaped = match (character, character == '\\') {
            (other, false) => other,
            (_, true) => match rest.next() {
                None => break,
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits: String = rest.by_ref().take(4).collect();
                    let is_hex = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                    let unit = u16::from_str_radix(&digits, 16).ok().filter(|_| is_hex);
                    units.push(
                        unit.ok_or_else(|| ApiError::format("\\u is followed by four hexadecimal digits"))?,
                    );
                    continue;
                }
                Some(other) => other,
            },
        };
        units.extend_from_slice(unescaped.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).map_err(|_| ApiError::format("a \\u escape is half a character"))
}

fn read_as(datatype: &str, key: &str, text: String) -> Result<Value, ApiError> {
    let number = |number: Option<Value>| number.unwrap_or_else(|| Value::text(&text));
    let value = match datatype {
        "string" => Value::text(&text),
        "int" => number(text.parse().ok().map(Value::Int)),
        "float" => number(text.parse().ok().and_then(Value::float)),
        "empty" if text.is_empty() => Value::Empty,
        "list" if text.is_empty() => Value::List(Vec::new()),
        "dict" if text.is_empty() => Value::Dict(BTreeMap::new()),
        _ => guess(&text),
    };
    if value.datatype().name() != datatype {
        return Err(ApiError::format(format!("key {key:?} is said to be of type {datatype}, and is not")));
    }
    Ok(value)
}

/// How to read the next line.
struct Hint {
    path: Option<Vec<Step>>,
    datatype: Option<Arc<str>>,
}

impl Hint {
    fn of(text: &str) -> Result<Hint, ApiError> {
        let wrong = || ApiError::format(format!("{HINT}{text} is no note on the next line"));
        let Ok(Value::Dict(mut entries)) = read_json(text, HINT_VALUES_MAX) else { return Err(wrong()) };
        let path = match entries.remove("path") {
            None => None,
            Some(Value::List(steps)) => {
                let step = |step: Value| match step {
                    Value::Text(name) => Ok(Step::Key(name)),
                    Value::Int(position) => usize::try_from(position).map(Step::Index).map_err(|_| wrong()),
                    _ => Err(wrong()),
                };
                Some(steps.into_iter().map(step).collect::<Result<Vec<Step>, ApiError>>()?)
            }
            Some(_) => return Err(wrong()),
        };
        let datatype = match entries.remove("type") {
            None => None,
            Some(Value::Text(datatype)) => Some(datatype),
            Some(_) => return Err(wrong()),
        };
        if entries.is_empty() { Ok(Hint { path, datatype }) } else { Err(wrong()) }
    }
}

/// A document under construction.
#[derive(Default)]
enum Node {
    #[default]
    Nothing,
    Scalar(Value),
    Dict(BTreeMap<Arc<str>, Node>),
    List(BTreeMap<usize, Node>),
}

/// Longest path: the depth limit of values, below a field.
const PATH_STEPS_MAX: usize = 2 + tidelock_core::limits::CONFIG_VALUE_DEPTH_MAX;

impl Node {
    fn insert(&mut self, path: &[Step], value: Value) -> Result<(), String> {
        if path.len() > PATH_STEPS_MAX {
            return Err(format!("is deeper than {PATH_STEPS_MAX} levels"));
        }
        match (path.split_first(), &mut *self) {
            (None, Node::Nothing) => {
                *self = Node::Scalar(value);
                Ok(())
            }
            (None, _) => Err("comes twice, or is a dict or a list elsewhere".into()),
            (Some((Step::Key(name), rest)), Node::Dict(entries)) => {
                entries.entry(name.clone()).or_default().insert(rest, value)
            }
            (Some((Step::Index(position), rest)), Node::List(items)) => {
                items.entry(*position).or_default().insert(rest, value)
            }
            (Some((step, _)), Node::Nothing) => {
                *self = match step {
                    Step::Key(_) => Node::Dict(BTreeMap::new()),
                    Step::Index(_) => Node::List(BTreeMap::new()),
                };
                self.insert(path, value)
            }
            (Some(_), _) => Err("lies inside of what is something else elsewhere".into()),
        }
    }

    fn into_value(self) -> Result<Value, String> {
        Ok(match self {
            Node::Nothing => Value::Dict(BTreeMap::new()),
            Node::Scalar(value) => value,
            Node::Dict(entries) => {
                let entry = |(key, node): (Arc<str>, Node)| Ok((key, node.into_value()?));
                Value::Dict(entries.into_iter().map(entry).collect::<Result<_, String>>()?)
            }
            Node::List(items) => {
                if let Some((expected, found)) =
                    items.keys().enumerate().find(|(expected, found)| *expected != **found)
                {
                    return Err(format!("a list has an item {found} and no item {expected}"));
                }
                Value::List(items.into_values().map(Node::into_value).collect::<Result<_, String>>()?)
            }
        })
    }
}
