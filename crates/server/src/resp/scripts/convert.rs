//! Values of a script to and from replies of the Redis protocol, as Redis documents it.
//!
//! Replies to values: a null is false (nil in version 3 of the protocol), a status a table with the
//! field `ok`, an error a table with the field `err`. Values to replies: numbers lose their
//! fraction, false is null, a table is an array up to its first nil.

use mlua::{Lua, Result, Table, Value};
use tidelock_core::limits::SCRIPT_TEXT_BYTES_MAX;

use super::super::encode::{Encoder, Protocol};

/// Deepest nesting of tables in a reply.
const DEPTH_MAX: usize = 32;

/// The value of an encoded reply of a command on keys. Of other types than these there are none.
pub fn value_of_reply(lua: &Lua, reply: &[u8]) -> Result<Value> {
    let mut rest = reply;
    next_value(lua, &mut rest)
}

fn next_value(lua: &Lua, rest: &mut &[u8]) -> Result<Value> {
    let (kind, line) = next_line(rest);
    Ok(match kind {
        b'+' => Value::Table(lua.create_table_from([("ok", lua.create_string(line)?)])?),
        b'-' => Value::Table(lua.create_table_from([("err", lua.create_string(line)?)])?),
        b':' => Value::Integer(number(line)),
        b'_' => Value::Nil,
        b'$' | b'*' if number(line) < 0 => Value::Boolean(false),
        b'$' => {
            let (text, behind) = rest.split_at((number(line) as usize).min(rest.len()));
            *rest = behind.get(2..).unwrap_or_default();
            Value::String(lua.create_string(text)?)
        }
        b'*' => {
            let table = lua.create_table()?;
            for place in 1..=number(line) {
                table.raw_set(place, next_value(lua, rest)?)?;
            }
            Value::Table(table)
        }
        _ => Value::Nil,
    })
}

/// Takes a line and its first byte.
fn next_line<'a>(rest: &mut &'a [u8]) -> (u8, &'a [u8]) {
    let end = rest.windows(2).position(|pair| pair == b"\r\n").unwrap_or(rest.len());
    let (line, behind) = rest.split_at(end);
    *rest = behind.get(2..).unwrap_or_default();
    line.split_first().map_or((0, line), |(kind, text)| (*kind, text))
}

fn number(text: &[u8]) -> i64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Encodes the value that a script returned, as a whole reply. A table may contain another one many
/// times, so its form in memory bounds neither the reply nor the time that this takes.
///
/// # Errors
/// When memory runs out.
pub fn encode(value: &Value, protocol: Protocol) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    encode_at(value, (&mut out, protocol), 0)?;
    if out.len() > SCRIPT_TEXT_BYTES_MAX {
        out.clear();
        Encoder::new(&mut out, protocol).error("ERR the reply of the script has more than 8 MiB");
    }
    Ok(out)
}

fn encode_at(value: &Value, (out, protocol): (&mut Vec<u8>, Protocol), depth: usize) -> Result<()> {
    if out.len() > SCRIPT_TEXT_BYTES_MAX {
        return Ok(());
    }
    let mut encoder = Encoder::new(out, protocol);
    match value {
        Value::String(text) => encoder.bulk(&text.as_bytes()),
        Value::Integer(number) => encoder.integer(*number),
        // A conversion saturates, and is 0 for what is not a number.
        Value::Number(number) => encoder.integer(*number as i64),
        Value::Boolean(true) => encoder.integer(1),
        Value::Table(_) if depth == DEPTH_MAX => encoder.error("ERR reached lua stack limit"),
        Value::Table(table) => return encode_table(table, (out, protocol), depth + 1),
        _ => encoder.null(),
    }
    Ok(())
}

fn encode_table(table: &Table, (out, protocol): (&mut Vec<u8>, Protocol), depth: usize) -> Result<()> {
    let mut encoder = Encoder::new(out, protocol);
    if let Value::String(text) = table.raw_get::<Value>("err")? {
        encoder.error(&text.to_string_lossy());
        return Ok(());
    }
    if let Value::String(text) = table.raw_get::<Value>("ok")? {
        let text = text.to_string_lossy();
        encoder.simple(&text.replace(['\r', '\n'], " "));
        return Ok(());
    }
    let mut items = Vec::new();
    for place in 1.. {
        match table.raw_get::<Value>(place)? {
            Value::Nil => break,
            item => items.push(item),
        }
    }
    encoder.array(items.len());
    items.iter().try_for_each(|item| encode_at(item, (out, protocol), depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(source: &str, protocol: Protocol) -> String {
        let lua = Lua::new();
        let value: Value = lua.load(source).eval().expect("a value");
        encode(&value, protocol).expect("memory").escape_ascii().to_string()
    }

    #[test]
    fn values_become_replies() {
        for (source, expected) in [
            ("3.99", ":3\\r\\n"),
            ("-3.99", ":-3\\r\\n"),
            ("2^53", ":9007199254740992\\r\\n"),
            ("1e300", ":9223372036854775807\\r\\n"),
            ("0/0", ":0\\r\\n"),
            ("'a\\0b'", "$3\\r\\na\\x00b\\r\\n"),
            ("true", ":1\\r\\n"),
            ("false", "$-1\\r\\n"),
            ("nil", "$-1\\r\\n"),
            ("print", "$-1\\r\\n"),
            ("{}", "*0\\r\\n"),
            ("{1, 2, nil, 4}", "*2\\r\\n:1\\r\\n:2\\r\\n"),
            ("{1, {'a', false}, x = 3}", "*2\\r\\n:1\\r\\n*2\\r\\n$1\\r\\na\\r\\n$-1\\r\\n"),
            ("{ok = 'fine\\n'}", "+fine \\r\\n"),
            ("{err = 'CODE text'}", "-CODE text\\r\\n"),
            ("{{err = 'CODE text'}}", "*1\\r\\n-CODE text\\r\\n"),
            ("setmetatable({}, {__index = function() error('x') end})", "*0\\r\\n"),
        ] {
            assert_eq!(encoded(source, Protocol::Resp2), expected, "{source}");
        }
        assert_eq!(encoded("false", Protocol::Resp3), "_\\r\\n");
    }

    #[test]
    fn a_table_that_contains_itself_ends() {
        let text = encoded("(function() local t = {}; t[1] = t; return t end)()", Protocol::Resp2);
        assert!(text.ends_with("*1\\r\\n-ERR reached lua stack limit\\r\\n"), "{text}");
    }

    #[test]
    fn a_reply_is_bounded() {
        for source in [
            "(function() local t = {}; for i = 1, 31 do t = {t, t, t, t} end; return t end)()",
            "(function() local t = {}; for i = 1, 9 do t[i] = string.rep('x', 1e6) end; return t end)()",
        ] {
            let text = encoded(source, Protocol::Resp2);
            assert_eq!(text, "-ERR the reply of the script has more than 8 MiB\\r\\n");
        }
    }

    #[test]
    fn replies_become_values() {
        let lua = Lua::new();
        for (reply, check) in [
            ("+OK\r\n", "v.ok == 'OK'"),
            ("-ERR no\r\n", "v.err == 'ERR no'"),
            (":-7\r\n", "v == -7"),
            ("$3\r\na\r\n\r\n", "v == 'a\\r\\n'"),
            ("$0\r\n\r\n", "v == ''"),
            ("$-1\r\n", "v == false"),
            ("_\r\n", "v == nil"),
            ("*3\r\n$1\r\na\r\n$-1\r\n:2\r\n", "#v == 3 and v[1] == 'a' and v[2] == false and v[3] == 2"),
        ] {
            let value = value_of_reply(&lua, reply.as_bytes()).expect("memory");
            let check = lua.load(format!("local v = ...; return {check}"));
            assert!(check.call::<bool>(value).expect("a check"), "{reply}");
        }
    }
}
