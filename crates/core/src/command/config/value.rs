//! Typed values: the content of a pair, its canonical JSON, and its encoding in the log.
//!
//! Owns the eight datatypes with their numbers, the limits of a value, and its canonical JSON. That
//! text is compact and has its keys in byte order. A float has the fewest digits that read back as
//! the same number, and always a point or an exponent, so that it stays a float. Checksums are
//! computed over this text, so it never changes for the same value.
//!
//! In documents whose checksum is computed, a secret is its sealed text, so that another secret has
//! another checksum. All other JSON shows the mask. So an answer that does not think of secrets
//! shows none.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::ops::Deref;

use super::secret::{SECRET_MASK, SealedSecret};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;

/// The datatype of a value, with its number in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Datatype {
    /// No value, `null`.
    Empty = 0,
    /// A whole number of 64 bits, signed.
    Int = 1,
    /// UTF-8 text.
    Text = 2,
    /// A finite number of double precision.
    Float = 3,
    /// `true` or `false`.
    Bool = 4,
    /// Values of one datatype, in order.
    List = 5,
    /// Values of any datatypes but `Empty`, by key.
    Dict = 6,
    /// Text that is stored encrypted and shown masked. Only as the whole value of a pair.
    Secret = 7,
}

impl Datatype {
    const ALL: [Datatype; 8] = [
        Datatype::Empty,
        Datatype::Int,
        Datatype::Text,
        Datatype::Float,
        Datatype::Bool,
        Datatype::List,
        Datatype::Dict,
        Datatype::Secret,
    ];

    /// The datatype with this number in the API; `None` if there is none.
    pub fn of(number: u64) -> Option<Datatype> {
        Self::ALL.into_iter().find(|datatype| *datatype as u64 == number)
    }

    /// The datatype of this name; `None` if there is none.
    pub fn of_name(name: &str) -> Option<Datatype> {
        Self::ALL.into_iter().find(|datatype| datatype.name() == name)
    }

    /// Its name in messages and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Datatype::Empty => "empty",
            Datatype::Int => "int",
            Datatype::Text => "string",
            Datatype::Float => "float",
            Datatype::Bool => "bool",
            Datatype::List => "list",
            Datatype::Dict => "dict",
            Datatype::Secret => "secret",
        }
    }

    /// Its name in messages, with the article.
    pub fn with_article(self) -> &'static str {
        match self {
            Datatype::Empty => "null",
            Datatype::Int => "an int",
            Datatype::Text => "a string",
            Datatype::Float => "a float",
            Datatype::Bool => "a bool",
            Datatype::List => "a list",
            Datatype::Dict => "a dict",
            Datatype::Secret => "a secret",
        }
    }
}

/// Integers up to this one are exact as floats.
const FLOAT_INT_MAX: u64 = 1 << 53;

/// A finite number of double precision. Two floats are equal if their bits are equal, so `-0.0`
/// differs from `0.0`, as their texts do.
#[derive(Clone, Copy, Debug)]
pub struct Float(f64);

impl Float {
    /// Creates a float; `None` if `number` is infinite or NaN.
    pub fn new(number: f64) -> Option<Float> {
        number.is_finite().then_some(Float(number))
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Float {
    fn eq(&self, other: &Float) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Float {}

/// The value of a pair, with its datatype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value, `null`.
    Empty,
    /// A whole number of 64 bits, signed.
    Int(i64),
    /// UTF-8 text.
    Text(Arc<str>),
    /// A finite number of double precision.
    Float(Float),
    /// `true` or `false`.
    Bool(bool),
    /// Values of one datatype, in order.
    List(Vec<Value>),
    /// Values of any datatypes but `Empty`, by key.
    Dict(BTreeMap<Arc<str>, Value>),
    /// Encrypted text.
    Secret(SealedSecret),
}

/// Why a value is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A list with values of several datatypes.
    #[error("a list holds values of one datatype, and this one mixes {} and {}", .0.name(), .1.name())]
    MixedList(Datatype, Datatype),
    /// `null` inside a list or a dict.
    #[error("null cannot stand inside a list or a dict")]
    NestedEmpty,
    /// A secret inside a list or a dict.
    #[error("a secret is the whole value of a pair, and cannot stand inside a list or a dict")]
    NestedSecret,
    /// See [`limits::CONFIG_VALUE_DEPTH_MAX`].
    #[error("lists and dicts are nested deeper than {} levels", limits::CONFIG_VALUE_DEPTH_MAX)]
    TooDeep,
    /// See [`limits::CONFIG_DICT_KEY_CHARACTERS_MAX`].
    #[error("a key of a dict is empty or longer than {} characters", limits::CONFIG_DICT_KEY_CHARACTERS_MAX)]
    DictKey,
    /// See [`limits::CONFIG_VALUE_BYTES_MAX`].
    #[error("the value is longer than {} bytes as JSON", limits::CONFIG_VALUE_BYTES_MAX)]
    TooLong,
}

impl Value {
    /// Creates a float; `None` if `number` is infinite or NaN.
    pub fn float(number: f64) -> Option<Value> {
        Float::new(number).map(Value::Float)
    }

    /// Creates a text value.
    pub fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    /// Its datatype.
    pub fn datatype(&self) -> Datatype {
        match self {
            Value::Empty => Datatype::Empty,
            Value::Int(_) => Datatype::Int,
            Value::Text(_) => Datatype::Text,
            Value::Float(_) => Datatype::Float,
            Value::Bool(_) => Datatype::Bool,
            Value::List(_) => Datatype::List,
            Value::Dict(_) => Datatype::Dict,
            Value::Secret(_) => Datatype::Secret,
        }
    }

    /// The same number as a float, if it is an integer that a float represents exactly. Many
    /// clients write `1.0` as `1`.
    pub fn int_as_float(&self) -> Option<Value> {
        match self {
            Value::Int(number) if number.unsigned_abs() <= FLOAT_INT_MAX => Value::float(*number as f64),
            _ => None,
        }
    }

    /// Checks all limits of a pair's value.
    pub fn validate(&self) -> Result<(), ValueError> {
        self.validate_at(0)?;
        if self.json_bytes() > limits::CONFIG_VALUE_BYTES_MAX {
            return Err(ValueError::TooLong);
        }
        Ok(())
    }

    fn validate_at(&self, depth: usize) -> Result<(), ValueError> {
        if depth > limits::CONFIG_VALUE_DEPTH_MAX {
            return Err(ValueError::TooDeep);
        }
        match self {
            Value::Empty if depth > 0 => Err(ValueError::NestedEmpty),
            Value::Secret(_) if depth > 0 => Err(ValueError::NestedSecret),
            Value::List(items) => {
                if let Some(first) = items.first().map(Value::datatype)
                    && let Some(other) = items.iter().map(Value::datatype).find(|other| *other != first)
                {
                    return Err(ValueError::MixedList(first, other));
                }
                items.iter().try_for_each(|item| item.validate_at(depth + 1))
            }
            Value::Dict(entries) => entries.iter().try_for_each(|(key, value)| {
                if key.is_empty() || key.chars().count() > limits::CONFIG_DICT_KEY_CHARACTERS_MAX {
                    return Err(ValueError::DictKey);
                }
                value.validate_at(depth + 1)
            }),
            _ => Ok(()),
        }
    }

    /// Whether a text, a name inside a dict, or the JSON of a number or a bool contains `text`. A
    /// secret contains nothing.
    pub fn contains_text(&self, text: &str) -> bool {
        match self {
            Value::Empty | Value::Secret(_) => false,
            Value::Text(own) => own.contains(text),
            Value::Int(_) | Value::Float(_) | Value::Bool(_) => self.to_json().contains(text),
            Value::List(items) => items.iter().any(|item| item.contains_text(text)),
            Value::Dict(entries) => {
                entries.iter().any(|(name, entry)| name.contains(text) || entry.contains_text(text))
            }
        }
    }

    /// Number of values: itself and all values inside.
    pub fn count(&self) -> usize {
        1 + match self {
            Value::List(items) => items.iter().map(Value::count).sum(),
            Value::Dict(entries) => entries.values().map(Value::count).sum(),
            _ => 0,
        }
    }

    /// Appends its canonical JSON, with the mask instead of a secret.
    pub fn write_json(&self, out: &mut String) {
        self.write(SecretForm::Masked, out);
    }

    /// Appends its canonical JSON, with a secret in this form.
    pub(super) fn write(&self, secrets: SecretForm, out: &mut String) {
        match self {
            Value::Empty => out.push_str("null"),
            Value::Int(number) => out.push_str(itoa::Buffer::new().format(*number)),
            // Writing to a string cannot fail.
            Value::Float(number) => {
                let _ = write!(out, "{:?}", number.0);
            }
            Value::Text(text) => write_json_text(text, out),
            Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Value::Secret(sealed) => write_json_text(secrets.text_of(sealed), out),
            Value::List(items) => {
                out.push('[');
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    item.write(secrets, out);
                }
                out.push(']');
            }
            Value::Dict(entries) => {
                out.push('{');
                for (position, (key, value)) in entries.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    write_json_text(key, out);
                    out.push(':');
                    value.write(secrets, out);
                }
                out.push('}');
            }
        }
    }

    /// Its canonical JSON, with the mask instead of a secret.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    /// Length of its canonical JSON, with the sealed text of a secret.
    pub fn json_bytes(&self) -> usize {
        match self {
            Value::Int(number) => decimal_digits(number.unsigned_abs()) + usize::from(*number < 0),
            Value::List(items) => {
                2 + items.len().saturating_sub(1) + items.iter().map(Value::json_bytes).sum::<usize>()
            }
            Value::Dict(entries) => {
                let entry = |(key, value): (&Arc<str>, &Value)| json_text_bytes(key) + 1 + value.json_bytes();
                2 + entries.len().saturating_sub(1) + entries.iter().map(entry).sum::<usize>()
            }
            Value::Text(text) => json_text_bytes(text),
            Value::Secret(sealed) => json_text_bytes(sealed.as_str()),
            scalar => scalar.to_json().len(),
        }
    }

    /// Appends its encoding in the log and in snapshots.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.datatype() as u8);
        match self {
            Value::Empty => {}
            Value::Int(number) => codec::put_varint(out, zigzag(*number)),
            Value::Float(number) => out.extend_from_slice(&number.0.to_bits().to_le_bytes()),
            Value::Text(text) => codec::put_bytes(out, text.as_bytes()),
            Value::Secret(sealed) => codec::put_bytes(out, sealed.as_str().as_bytes()),
            Value::Bool(truth) => out.push(u8::from(*truth)),
            Value::List(items) => {
                codec::put_varint(out, items.len() as u64);
                items.iter().for_each(|item| item.encode(out));
            }
            Value::Dict(entries) => {
                codec::put_varint(out, entries.len() as u64);
                for (key, value) in entries {
                    codec::put_bytes(out, key.as_bytes());
                    value.encode(out);
                }
            }
        }
    }

    /// Decodes a value. The caller checks its limits with [`Value::validate`].
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Value, DecodeError> {
        if decoder.rest().first() == Some(&(Datatype::Secret as u8)) {
            decoder.u8()?;
            let sealed = SealedSecret::parse(&decoder.text()?);
            return sealed.map(Value::Secret).ok_or(DecodeError::Invalid("sealed secret"));
        }
        Value::decode_within(decoder, limits::CONFIG_VALUE_DEPTH_MAX)
    }

    /// Decodes a value of at most so many levels of lists and dicts inside, without secrets.
    pub(super) fn decode_within(decoder: &mut Decoder<'_>, levels: usize) -> Result<Value, DecodeError> {
        let inside = |decoder: &mut Decoder<'_>| {
            let levels = levels.checked_sub(1).ok_or(DecodeError::Invalid("depth of a value"))?;
            Value::decode_within(decoder, levels)
        };
        let datatype = Datatype::of(decoder.u8()?.into()).ok_or(DecodeError::UnknownTag("datatype"))?;
        Ok(match datatype {
            Datatype::Empty => Value::Empty,
            Datatype::Int => Value::Int(unzigzag(decoder.varint()?)),
            Datatype::Float => {
                let bits = decoder.raw(8)?.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                Value::float(f64::from_bits(bits)).ok_or(DecodeError::Invalid("float"))?
            }
            Datatype::Text => Value::Text(decoder.text()?.into()),
            Datatype::Bool => Value::Bool(decoder.bool()?),
            Datatype::List => {
                let count = decoder.varint()? as usize;
                let mut items = Vec::with_capacity(count.min(decoder.rest().len()));
                for _ in 0..count {
                    items.push(inside(decoder)?);
                }
                Value::List(items)
            }
            Datatype::Dict => {
                let mut entries = BTreeMap::new();
                for _ in 0..decoder.varint()? {
                    let key: Arc<str> = decoder.text()?.into();
                    entries.insert(key, inside(decoder)?);
                }
                Value::Dict(entries)
            }
            Datatype::Secret => return Err(DecodeError::Invalid("secret inside a value")),
        })
    }
}

/// A value with the length of its canonical JSON. Limits are checked against the length several
/// times a change, and computing it takes time in proportion to the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredValue {
    json_bytes: usize,
    value: Value,
}

impl MeasuredValue {
    /// As [`Value::json_bytes`], in constant time.
    pub fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    /// Returns a copy of the value.
    pub fn to_value(&self) -> Value {
        self.value.clone()
    }
}

impl From<Value> for MeasuredValue {
    fn from(value: Value) -> MeasuredValue {
        MeasuredValue { json_bytes: value.json_bytes(), value }
    }
}

impl Deref for MeasuredValue {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// What stands for a secret in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretForm {
    /// [`SECRET_MASK`], for clients.
    Masked,
    /// The sealed text, for checksums.
    Sealed,
}

impl SecretForm {
    fn text_of(self, sealed: &SealedSecret) -> &str {
        match self {
            SecretForm::Masked => SECRET_MASK,
            SecretForm::Sealed => sealed.as_str(),
        }
    }
}

/// The number of decimal digits of a number. An import has up to 250,000 of them, and `u64::ilog10`
/// takes five times as long.
fn decimal_digits(number: u64) -> usize {
    const POWERS: [u64; 20] = {
        let mut powers = [1; 20];
        let mut exponent = 1;
        while exponent < powers.len() {
            powers[exponent] = powers[exponent - 1] * 10;
            exponent += 1;
        }
        powers
    };
    // A number of so many bits has this many digits, or one more: 1233 / 4096 is about log10(2).
    let bits = u64::BITS - (number | 1).leading_zeros();
    let digits = (bits * 1233 / 4096) as usize;
    digits + usize::from((number | 1) >= POWERS[digits])
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends a JSON string. Escapes only the characters that must be escaped.
pub fn write_json_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Length of what [`write_json_text`] appends.
pub fn json_text_bytes(text: &str) -> usize {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..=31 => 6,
        _ => 1,
    });
    2 + bytes.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Int),
            any::<f64>().prop_filter_map("finite", Value::float),
            any::<String>().prop_map(|text| Value::text(&text)),
            any::<bool>().prop_map(Value::Bool),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                (inner.clone(), 0..4usize).prop_map(|(item, count)| Value::List(vec![item; count])),
                prop::collection::btree_map("[a-z\"\\n]{1,5}".prop_map(Arc::from), inner, 0..4)
                    .prop_map(Value::Dict),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_round_trip_and_know_their_length(value in any_value()) {
            let mut bytes = vec![];
            value.encode(&mut bytes);
            let mut decoder = Decoder::new(&bytes);
            prop_assert_eq!(Value::decode(&mut decoder), Ok(value.clone()));
            prop_assert!(decoder.is_empty());
            prop_assert_eq!(value.to_json().len(), value.json_bytes());
            prop_assert_eq!(value.validate(), Ok(()));
        }
    }

    #[test]
    fn the_length_of_an_integer_is_that_of_its_digits() {
        let powers = (0..20).map(|exponent| 10_u64.pow(exponent));
        for number in powers.flat_map(|power| [power - 1, power, power + 1]).chain([u64::MAX]) {
            assert_eq!(decimal_digits(number), number.to_string().len(), "{number}");
        }
        for number in [i64::MIN, -10, -9, 0, 9, 10, i64::MAX] {
            assert_eq!(Value::Int(number).json_bytes(), number.to_string().len(), "{number}");
        }
    }

    #[test]
    fn a_secret_is_masked_unless_its_sealed_text_is_asked_for() {
        let sealed = SealedSecret::new("k1", "AAAA").expect("a sealed secret");
        let secret = Value::Secret(sealed.clone());
        let mut canonical = String::new();
        secret.write(SecretForm::Sealed, &mut canonical);
        assert_eq!(canonical, "\"sealed:v1:k1:AAAA\"");
        assert_eq!((secret.to_json().as_str(), secret.json_bytes()), ("\"********\"", canonical.len()));
        let list = Value::List(vec![secret.clone()]);
        assert_eq!(list.to_json(), "[\"********\"]");
        assert!(!secret.contains_text("AAAA") && !secret.contains_text("*"));
        let mut bytes = vec![];
        secret.encode(&mut bytes);
        assert_eq!(Value::decode(&mut Decoder::new(&bytes)), Ok(secret));
        let mut nested = vec![];
        list.encode(&mut nested);
        assert!(Value::decode(&mut Decoder::new(&nested)).is_err(), "only as a whole value");
        assert!(Value::decode(&mut Decoder::new(&[7, 3, b'a', b'b', b'c'])).is_err(), "not sealed");
    }

    #[test]
    fn json_is_canonical() {
        let dict = [("b", Value::Int(i64::MIN)), ("a", Value::Int(i64::MAX))];
        for (value, json) in [
            (Value::Empty, "null"),
            (Value::float(1.123).expect("finite"), "1.123"),
            (Value::float(1.0).expect("finite"), "1.0"),
            (Value::float(-0.0).expect("finite"), "-0.0"),
            (Value::float(1e300).expect("finite"), "1e300"),
            (Value::float(5e-324).expect("finite"), "5e-324"),
            (Value::text("a\"\\\u{1}\n</ü\u{2028}"), "\"a\\\"\\\\\\u0001\\n</ü\u{2028}\""),
            (Value::Bool(true), "true"),
            (Value::List(vec![Value::Int(1), Value::Int(-2)]), "[1,-2]"),
            (
                Value::Dict(dict.map(|(key, value)| (key.into(), value)).into()),
                "{\"a\":9223372036854775807,\"b\":-9223372036854775808}",
            ),
            (Value::List(vec![]), "[]"),
            (Value::Dict(BTreeMap::new()), "{}"),
        ] {
            assert_eq!((value.to_json().as_str(), value.json_bytes()), (json, json.len()));
        }
    }

    #[test]
    fn what_a_value_must_not_be_is_refused() {
        assert_eq!(Value::float(f64::NAN), None);
        assert_eq!(Value::float(f64::INFINITY), None);
        let mixed = Value::List(vec![Value::Int(1), Value::Bool(true)]);
        assert_eq!(mixed.validate(), Err(ValueError::MixedList(Datatype::Int, Datatype::Bool)));
        let in_dict = |value| Value::Dict([("k".into(), value)].into());
        assert_eq!(in_dict(mixed.clone()).validate(), mixed.validate());
        assert_eq!(in_dict(Value::Empty).validate(), Err(ValueError::NestedEmpty));
        assert_eq!(Value::List(vec![Value::Empty]).validate(), Err(ValueError::NestedEmpty));
        let sealed = Value::Secret(SealedSecret::new("k1", "AAAA").expect("a sealed secret"));
        assert_eq!(sealed.validate(), Ok(()));
        assert_eq!(in_dict(sealed.clone()).validate(), Err(ValueError::NestedSecret));
        assert_eq!(Value::List(vec![sealed]).validate(), Err(ValueError::NestedSecret));
        let nested = |levels| (0..levels).fold(Value::Int(1), |value, _| in_dict(value));
        assert_eq!(nested(limits::CONFIG_VALUE_DEPTH_MAX).validate(), Ok(()));
        assert_eq!(nested(limits::CONFIG_VALUE_DEPTH_MAX + 1).validate(), Err(ValueError::TooDeep));
        assert_eq!(Value::Dict([("".into(), Value::Int(1))].into()).validate(), Err(ValueError::DictKey));
        let long = |bytes| Value::text(&"x".repeat(bytes - 2));
        assert_eq!(long(limits::CONFIG_VALUE_BYTES_MAX).validate(), Ok(()));
        assert_eq!(long(limits::CONFIG_VALUE_BYTES_MAX + 1).validate(), Err(ValueError::TooLong));
    }

    #[test]
    fn values_inside_are_counted() {
        let list = Value::List(vec![Value::Int(1), Value::Int(2)]);
        let dict = [("a", list), ("b", Value::Dict(BTreeMap::new()))];
        let dict = Value::Dict(dict.map(|(key, value)| (key.into(), value)).into());
        assert_eq!((dict.count(), Value::Empty.count()), (5, 1));
    }

    #[test]
    fn hostile_bytes_are_errors() {
        let deep = [[5, 1].repeat(100), vec![0]].concat();
        assert!(Value::decode(&mut Decoder::new(&deep)).is_err(), "depth is bounded");
        assert!(Value::decode(&mut Decoder::new(&[5, 0xff, 0xff, 0xff, 0xff, 0x0f])).is_err());
        assert!(Value::decode(&mut Decoder::new(&[3, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f])).is_err(), "NaN");
        assert!(Value::decode(&mut Decoder::new(&[7])).is_err());
    }
}
