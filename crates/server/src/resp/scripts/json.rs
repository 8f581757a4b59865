//! The library `cjson`: values of a script to and from JSON, as in Redis.
//!
//! A table whose keys are 1 to n is an array, any other one an object; so the empty table is an
//! object. A null is a value of its own, because a table cannot hold nil.

use mlua::{Lua, Table, Value};
use serde_json::Value as Json;
use tidelock_core::limits::{SCRIPT_TEXT_BYTES_MAX, VALUE_BYTES_MAX};

/// Deepest nesting of tables. (The parser of JSON has a limit of its own, 128.)
const DEPTH_MAX: usize = 128;

/// An array may have this many places without values between its items.
const GAPS_MAX: usize = 10;

/// Encodes a value as JSON.
///
/// # Errors
/// The text of an error when the value has no form in JSON.
pub fn encode(lua: &Lua, value: &Value) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    append(lua, value, (&mut out, 0))?;
    check_length(&out)?;
    Ok(out)
}

/// A table may contain another one many times, so its form in memory bounds neither the text nor
/// the time that this takes.
fn check_length(out: &[u8]) -> Result<(), String> {
    let is_too_long = out.len() > SCRIPT_TEXT_BYTES_MAX;
    if is_too_long { Err("Cannot serialise: the text has more than 8 MiB".to_owned()) } else { Ok(()) }
}

fn append(lua: &Lua, value: &Value, (out, depth): (&mut Vec<u8>, usize)) -> Result<(), String> {
    check_length(out)?;
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        value if *value == Value::NULL => out.extend_from_slice(b"null"),
        Value::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Integer(_) => out.extend_from_slice(&text_of(lua, value)?),
        Value::Number(number) if number.is_finite() => out.extend_from_slice(&text_of(lua, value)?),
        Value::Number(_) => return Err("Cannot serialise number: must not be NaN or Inf".to_owned()),
        Value::String(text) => append_text(out, &text.as_bytes()),
        Value::Table(_) if depth == DEPTH_MAX => {
            return Err(format!("Cannot serialise, excessive depth ({DEPTH_MAX})"));
        }
        Value::Table(table) => return append_table(lua, table, (out, depth + 1)),
        other => return Err(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
    Ok(())
}

fn append_table(lua: &Lua, table: &Table, (out, depth): (&mut Vec<u8>, usize)) -> Result<(), String> {
    if let Some(length) = array_length(table)? {
        out.push(b'[');
        for place in 1..=length {
            if place > 1 {
                out.push(b',');
            }
            append(lua, &table.raw_get(place).map_err(failure)?, (out, depth))?;
        }
        out.push(b']');
        return Ok(());
    }
    out.push(b'{');
    for (number, pair) in table.pairs::<Value, Value>().enumerate() {
        let (key, value) = pair.map_err(failure)?;
        if number > 0 {
            out.push(b',');
        }
        match &key {
            Value::String(text) => append_text(out, &text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => append_text(out, &text_of(lua, &key)?),
            _ => return Err("Cannot serialise table: table key must be a number or string".to_owned()),
        }
        out.push(b':');
        append(lua, &value, (out, depth))?;
    }
    out.push(b'}');
    Ok(())
}

/// The length of the array that a table is; `None` if it is an object.
fn array_length(table: &Table) -> Result<Option<usize>, String> {
    let (mut length, mut items) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        items += 1;
        match pair.map_err(failure)?.0 {
            Value::Integer(place) if place > 0 => length = length.max(place as usize),
            _ => return Ok(None),
        }
    }
    if length > GAPS_MAX && length > 2 * items {
        return Err("Cannot serialise table: excessively sparse array".to_owned());
    }
    Ok((length > 0).then_some(length))
}

/// The text of a number, as the interpreter writes it.
fn text_of(lua: &Lua, number: &Value) -> Result<Vec<u8>, String> {
    let text = lua.coerce_string(number.clone()).map_err(failure)?;
    Ok(text.map_or_else(Vec::new, |text| text.as_bytes().to_vec()))
}

fn append_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Decodes JSON to a value.
///
/// # Errors
/// The text of an error when the text is not JSON.
pub fn decode(lua: &Lua, text: &[u8]) -> Result<Value, String> {
    // Parsed JSON takes many times the memory of its text.
    if text.len() > VALUE_BYTES_MAX {
        return Err("the text has more than 1 MiB".to_owned());
    }
    let json = serde_json::from_slice(text).map_err(|error| format!("JSON: {error}"))?;
    value_of(lua, json)
}

fn value_of(lua: &Lua, json: Json) -> Result<Value, String> {
    Ok(match json {
        Json::Null => Value::NULL,
        Json::Bool(value) => Value::Boolean(value),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Value::String(lua.create_string(text).map_err(failure)?),
        Json::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0).map_err(failure)?;
            for (place, item) in (1..).zip(items) {
                table.raw_set(place, value_of(lua, item)?).map_err(failure)?;
            }
            Value::Table(table)
        }
        Json::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len()).map_err(failure)?;
            for (name, field) in fields {
                table.raw_set(name, value_of(lua, field)?).map_err(failure)?;
            }
            Value::Table(table)
        }
    })
}

/// The interpreter fails only for want of memory.
fn failure(_: mlua::Error) -> String {
    "not enough memory".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(source: &str) -> Result<String, String> {
        let lua = Lua::new();
        lua.globals().set("null", Value::NULL).expect("memory");
        let value: Value = lua.load(source).eval().expect("a value");
        encode(&lua, &value).map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn values_become_json() {
        for (source, expected) in [
            ("nil", "null"),
            ("null", "null"),
            ("true", "true"),
            ("1.5", "1.5"),
            ("100", "100"),
            ("2^53", "9.007199254741e+15"),
            ("'a\"\\\\/\\n\\t\\1'", "\"a\\\"\\\\\\/\\n\\t\\u0001\""),
            ("{}", "{}"),
            ("{1, {2}}", "[1,[2]]"),
            ("{1, nil, 3}", "[1,null,3]"),
            ("{a = {}}", "{\"a\":{}}"),
            ("{[1.5] = 1}", "{\"1.5\":1}"),
        ] {
            assert_eq!(encoded(source).as_deref(), Ok(expected), "{source}");
        }
        for (source, expected) in [
            ("0/0", "must not be NaN or Inf"),
            ("print", "type not supported"),
            ("{[true] = 1}", "table key must be a number or string"),
            ("{[1000] = 1}", "excessively sparse array"),
            ("(function() local t = {}; t[1] = t; return t end)()", "excessive depth"),
            ("(function() local t = {}; for i = 1, 99 do t = {t, t} end; return t end)()", "more than 8 MiB"),
        ] {
            let text = encoded(source).expect_err(source);
            assert!(text.contains(expected), "{source}: {text}");
        }
    }

    #[test]
    fn json_becomes_values() {
        let lua = Lua::new();
        for (text, check) in [
            ("null", "type(v) == 'userdata'"),
            ("[1, \"two\", false]", "#v == 3 and v[1] == 1 and v[2] == 'two' and v[3] == false"),
            ("{\"a\": {\"b\": 0.5}}", "v.a.b == 0.5"),
            ("\"\\u00e9\"", "#v == 2"),
        ] {
            let value = decode(&lua, text.as_bytes()).expect(text);
            let check = lua.load(format!("local v = ...; return {check}"));
            assert!(check.call::<bool>(value).expect("a check"), "{text}");
        }
        let (deep, long) = ("[".repeat(1_000), " ".repeat(VALUE_BYTES_MAX + 1));
        for text in ["", "nonsense", "[1", "{\"a\" 1}", &deep, &long] {
            assert!(decode(&lua, text.as_bytes()).is_err(), "{text:.20}");
        }
    }
}
