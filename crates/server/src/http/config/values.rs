//! Parses values from JSON that clients send, and applies the datatype that the client names.
//!
//! Owns how numbers become ints or floats, and which values are invalid. A duplicate key is
//! refused: one of the two values would be lost silently.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tidelock_core::command::config::{Datatype, Value};

use super::error::ApiError;

/// Most values of a file or body. 8 MiB of JSON can contain four million, which take ten times that
/// memory as values. The largest namespace that fits its limits has fewer.
pub(super) const FILE_VALUES_MAX: usize = 1_000_000;

/// The text of a refusal for too many values.
pub(super) fn too_many_values(max: usize) -> String {
    format!("it holds more than {max} values")
}

/// Parses JSON of up to `values_max` values.
pub(super) fn read_json(text: &str, values_max: usize) -> serde_json::Result<Value> {
    let budget = Budget { max: values_max, left: Cell::new(values_max) };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Builder(&budget).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// How many more values are allowed.
struct Budget {
    max: usize,
    left: Cell<usize>,
}

/// Builds a value from what a client wrote, without checks beyond its form.
#[derive(Clone, Copy)]
struct Builder<'b>(&'b Budget);

impl<'de> DeserializeSeed<'de> for Builder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.0.left.get();
        if left == 0 {
            return Err(D::Error::custom(too_many_values(self.0.max)));
        }
        self.0.left.set(left - 1);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Builder<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("null, a number, text, true or false, a list or a dict")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Empty)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Empty)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        i64::try_from(number)
            .map(Value::Int)
            .map_err(|_| E::custom(format!("{number} does not fit 64 bits, signed")))
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Value, E> {
        i64::try_from(number)
            .map(Value::Int)
            .map_err(|_| E::custom(format!("{number} does not fit 64 bits, signed")))
    }

    fn visit_u128<E: Error>(self, number: u128) -> Result<Value, E> {
        i64::try_from(number)
            .map(Value::Int)
            .map_err(|_| E::custom(format!("{number} does not fit 64 bits, signed")))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Value::float(number).ok_or_else(|| E::custom("a float must be finite"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut dict: BTreeMap<Arc<str>, Value> = BTreeMap::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self)?;
            if dict.contains_key(&*key) {
                return Err(A::Error::custom(format!("key {key:?} comes twice")));
            }
            dict.insert(key.into(), value);
        }
        Ok(Value::Dict(dict))
    }
}

/// Gives a value the named datatype, or the one that its form implies.
pub(super) fn typed(value: Value, datatype: Option<Datatype>) -> Result<Value, ApiError> {
    let value = match datatype {
        None => value,
        Some(datatype) => cast(value, datatype)?,
    };
    value.validate().map_err(|error| ApiError::value(error.to_string()))?;
    Ok(value)
}

/// Converts an int to a float if a float is named, because many clients write `1.0` as `1`. There
/// is no other type coercion.
fn cast(value: Value, datatype: Datatype) -> Result<Value, ApiError> {
    match value.int_as_float() {
        Some(float) if datatype == Datatype::Float => Ok(float),
        _ if value.datatype() == datatype => Ok(value),
        _ => Err(ApiError::value(format!(
            "the value is {}, not {} (datatype {})",
            value.datatype().with_article(),
            datatype.with_article(),
            datatype as u8
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Value, String> {
        read_json(json, 4).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_are_what_they_look_like() {
        assert_eq!(read("1"), Ok(Value::Int(1)));
        assert_eq!(read("1.0").ok(), Value::float(1.0));
        assert_eq!(read("1e2").ok(), Value::float(100.0));
        assert_eq!(read("-9223372036854775808"), Ok(Value::Int(i64::MIN)));
        assert_eq!(read("9223372036854775807"), Ok(Value::Int(i64::MAX)));
        assert!(read("9223372036854775808").is_err());
        assert!(read("1e999").is_err());
        assert!(read("NaN").is_err());
        assert!(read("{\"a\":1,\"a\":2}").unwrap_err().contains("comes twice"));
        assert!(read("{\"a\":[1,2]}").is_ok());
        assert!(read("{\"a\":[1,2,3]}").unwrap_err().contains("more than 4 values"));
    }

    #[test]
    fn datatypes_are_held_to() {
        assert_eq!(typed(Value::Int(1), Some(Datatype::Float)).ok(), Value::float(1.0));
        assert_eq!(typed(Value::Int(1), None).ok(), Some(Value::Int(1)));
        assert_eq!(typed(Value::Empty, Some(Datatype::Empty)).ok(), Some(Value::Empty));
        for (value, datatype) in [
            (Value::Int(i64::MAX), Datatype::Float),
            (Value::text("1"), Datatype::Int),
            (Value::Int(1), Datatype::Text),
            (Value::Int(1), Datatype::Bool),
            (Value::Empty, Datatype::Int),
            (Value::Int(0), Datatype::Empty),
            (Value::List(vec![Value::Int(1), Value::Bool(true)]), Datatype::List),
        ] {
            assert!(typed(value.clone(), Some(datatype)).is_err(), "{value:?} as {datatype:?}");
        }
    }
}
