//! Converts keys between the command line, URLs and the terminal.
//!
//! A key is bytes. Nothing here assumes text: an argument is the bytes that the shell passed, a URL
//! has all bytes except the unreserved ones percent-encoded, and output to a terminal is escaped,
//! so that one line stays one line.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// RFC 3986's unreserved characters stay as they are.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// In a path the slash stays too: most keys are paths, and should be recognisable in an access log.
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// A key from the command line: one byte or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyArg(pub Vec<u8>);

impl clap::builder::ValueParserFactory for KeyArg {
    type Parser = KeyParser;

    fn value_parser() -> KeyParser {
        KeyParser
    }
}

/// The bytes of an argument.
#[derive(Clone, Debug)]
pub struct KeyParser;

impl TypedValueParser for KeyParser {
    type Value = KeyArg;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<KeyArg, clap::Error> {
        if !value.is_empty() {
            return Ok(KeyArg(value.as_bytes().to_vec()));
        }
        let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
        let name = argument.map_or_else(|| "KEY".to_owned(), ToString::to_string);
        error.insert(ContextKind::InvalidArg, ContextValue::String(name));
        error.insert(ContextKind::InvalidValue, ContextValue::String(String::new()));
        Err(error)
    }
}

/// A name as one segment of a path.
pub fn segment(name: &str) -> String {
    percent_encode(name.as_bytes(), RESERVED).to_string()
}

/// The path of `key` in the native API.
pub fn path(key: &[u8]) -> String {
    format!("/v1/keys/{}", percent_encode(key, RESERVED_IN_PATH))
}

/// `bytes` as the value of a query parameter.
pub fn query_value(bytes: &[u8]) -> String {
    percent_encode(bytes, RESERVED).to_string()
}

/// `bytes` on one line: text as it is, control characters and bytes that are not UTF-8 as `\n`,
/// `\x00`, and a backslash doubled, so that the output is unambiguous.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                other if other.is_ascii_control() => push_hex(&mut out, other as u8),
                other if other.is_control() => out.extend(other.escape_unicode()),
                other => out.push(other),
            }
        }
        for &byte in chunk.invalid() {
            push_hex(&mut out, byte);
        }
    }
    out
}

fn push_hex(out: &mut String, byte: u8) {
    write!(out, "\\x{byte:02x}").expect("invariant: writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;

    use super::*;

    #[test]
    fn keys_in_paths() {
        for (key, path_expected) in [
            (&b"foo"[..], "/v1/keys/foo"),
            (b"app/a-b._~", "/v1/keys/app/a-b._~"),
            (b"/leading//double/", "/v1/keys//leading//double/"),
            (b"100%", "/v1/keys/100%25"),
            (b"%2F", "/v1/keys/%252F"),
            (b"a b+c", "/v1/keys/a%20b%2Bc"),
            (b"?q#f", "/v1/keys/%3Fq%23f"),
            (b"\0\xff\n", "/v1/keys/%00%FF%0A"),
            ("schlüssel".as_bytes(), "/v1/keys/schl%C3%BCssel"),
        ] {
            assert_eq!(path(key), path_expected);
        }
    }

    #[test]
    fn every_byte_survives() {
        let every: Vec<u8> = (0..=255).collect();
        let in_path = path(&every);
        let encoded = in_path.strip_prefix("/v1/keys/").unwrap();
        assert_eq!(percent_decode_str(encoded).collect::<Vec<u8>>(), every);
        let in_query = query_value(&every);
        assert!(!in_query.contains(['/', '&', '=', '+', ' ', '#']), "{in_query}");
        assert_eq!(percent_decode_str(&in_query).collect::<Vec<u8>>(), every);
        assert!(in_path.parse::<ureq::http::uri::PathAndQuery>().is_ok());
    }

    #[test]
    fn shown_on_one_line_and_unambiguous() {
        for (bytes, shown) in [
            (&b"plain key"[..], "plain key"),
            (b"a\nb\tc\r", "a\\nb\\tc\\r"),
            (b"\0\x1b\x7f", "\\x00\\x1b\\x7f"),
            (b"\\x00", "\\\\x00"),
            (b"\xff\xfeok", "\\xff\\xfeok"),
            ("grün \u{85}".as_bytes(), "grün \\u{85}"),
        ] {
            assert_eq!(printable(bytes), shown);
        }
    }
}
