//! YAML, read by the core schema of YAML 1.2.
//!
//! Owns the interpretation of plain scalars: `yes`, `1_000` and `0b1` are text. One rule is
//! Tidelock's: a number with leading zeros is text, because `01234` is a postcode or an octal
//! number, and 1234 is neither. serde-saphyr parses, resolves aliases and enforces budgets. The
//! notation of a number is read from the file at the location that the parser reports.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Options, Spanned};
use tidelock_core::command::config::Value;

use super::super::error::ApiError;
use super::Document;
use super::numbers::{Notes, float, line_of, too_large};

pub(super) fn read(file: &str, values_max: usize) -> Result<Document, ApiError> {
    let root: Node = serde_saphyr::from_str_with_options(file, options(values_max))
        .map_err(|error| super::no_file("YAML", &error))?;
    let mut reader = Reader { file, notes: Notes::default() };
    let value = reader.value(root)?;
    Ok(Document { value, notes: reader.notes })
}

fn options(values_max: usize) -> Options {
    serde_saphyr::options! {
        // Keys count too, and each list or dict is two events.
        budget: serde_saphyr::budget! { max_nodes: 2 * values_max, max_events: 4 * values_max },
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
    }
}

enum Node {
    /// Anything but a number.
    Scalar(Value),
    /// A scalar that the parser considers a number.
    Number {
        value: Value,
        location: Location,
    },
    List(Vec<Node>),
    Dict(BTreeMap<Arc<str>, Node>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        let Spanned { value: Unplaced(node), defined, .. } = Spanned::deserialize(deserializer)?;
        Ok(match node {
            Node::Scalar(value @ (Value::Int(_) | Value::Float(_))) => {
                Node::Number { value, location: defined }
            }
            other => other,
        })
    }
}

/// A node without its location.
struct Unplaced(Node);

impl<'de> Deserialize<'de> for Unplaced {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unplaced, D::Error> {
        deserializer.deserialize_any(Builder).map(Unplaced)
    }
}

struct Builder;

impl<'de> Visitor<'de> for Builder {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("null, a number, text, true or false, a list or a dict")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Empty))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Bool(truth)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Int(number)))
    }

    /// An integer beyond signed 64 bits becomes a float here, and is refused when its notation is
    /// read.
    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => self.visit_f64(number as f64),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        Value::float(number).map(Node::Scalar).ok_or_else(|| E::custom("a float must be finite"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Scalar(Value::text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut dict = BTreeMap::new();
        while let Some((key, node)) = entries.next_entry::<String, Node>()? {
            if dict.contains_key(&*key) {
                return Err(A::Error::custom(format!("key {key:?} comes twice")));
            }
            dict.insert(key.into(), node);
        }
        Ok(Node::Dict(dict))
    }
}

struct Reader<'a> {
    file: &'a str,
    notes: Notes,
}

impl Reader<'_> {
    fn value(&mut self, node: Node) -> Result<Value, ApiError> {
        Ok(match node {
            Node::Scalar(value) => value,
            Node::Number { value, location } => self.number(value, &location)?,
            Node::List(items) => {
                let items = items.into_iter().map(|item| self.value(item));
                Value::List(items.collect::<Result<_, ApiError>>()?)
            }
            Node::Dict(entries) => {
                let entry = |(key, node): (Arc<str>, Node)| Ok((key, self.value(node)?));
                Value::Dict(entries.into_iter().map(entry).collect::<Result<_, ApiError>>()?)
            }
        })
    }

    fn number(&mut self, parsed: Value, location: &Location) -> Result<Value, ApiError> {
        let file = self.file;
        let span = location.span();
        let (Some(start), Some(length)) = (span.byte_offset(), span.byte_len()) else { return Ok(parsed) };
        let (start, end) = (start as usize, (start + length) as usize);
        let written = file.get(start..end).unwrap_or_default().trim_end();
        let line = || line_of(file, start);
        let value = match Plain::of(written) {
            _ if is_tagged(&file[..start]) => parsed,
            Plain::Text => return Ok(Value::text(written)),
            Plain::Int { digits, radix } => {
                i64::from_str_radix(&digits, radix).map(Value::Int).map_err(|_| too_large(written, line()))?
            }
            Plain::Float => float(written, line)?,
            // With a tag such as `!!float` the parsed value is right.
            Plain::Tagged => parsed,
        };
        self.notes.compare(written, &value, line);
        Ok(value)
    }
}

/// Whether the text before a scalar ends with a tag such as `!!float`, perhaps followed by an
/// anchor.
fn is_tagged(before: &str) -> bool {
    let mut words = before.rsplit([' ', '\t', '\n']).filter(|word| !word.is_empty());
    let last = words.next().and_then(|word| if word.starts_with('&') { words.next() } else { Some(word) });
    last.is_some_and(|word| word.starts_with('!') && !word.ends_with(','))
}

/// The kind of a plain scalar that a parser might consider a number.
#[derive(Debug, PartialEq)]
enum Plain {
    Int { digits: String, radix: u32 },
    Float,
    Text,
    Tagged,
}

impl Plain {
    fn of(written: &str) -> Plain {
        if written.starts_with(['!', '&', '"', '\'', '|', '>']) {
            return Plain::Tagged;
        }
        for (prefix, radix) in [("0x", 16), ("0o", 8)] {
            if let Some(digits) = written.strip_prefix(prefix) {
                let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
                let number = || Plain::Int { digits: digits.to_owned(), radix };
                return if is_number { number() } else { Plain::Text };
            }
        }
        let unsigned = written.strip_prefix(['-', '+']).unwrap_or(written);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)))
            }
            None => (unsigned, None),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = are_digits(whole)
            && fraction.is_none_or(are_digits)
            && exponent.is_none_or(|exponent| !exponent.is_empty() && are_digits(exponent))
            && !(whole.is_empty() && fraction.is_none_or(str::is_empty));
        let has_leading_zeros = whole.len() > 1 && whole.starts_with('0');
        match (is_number && !has_leading_zeros, fraction.is_none() && exponent.is_none()) {
            (false, _) => Plain::Text,
            (true, true) => Plain::Int { digits: written.to_owned(), radix: 10 },
            (true, false) => Plain::Float,
        }
    }
}
