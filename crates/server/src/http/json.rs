//! Writes JSON directly into the answer's buffer.
//!
//! Owns how bytes appear in JSON: as text if they are UTF-8, else as base64 under the same name
//! with the suffix `_b64`. serde_json does the escaping. Only the structure is written here,
//! because answers to frequent requests should cost one allocation.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::problem::Problem;
use super::uri;

/// Longest part of a parser's message that is shown.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// Parses a body that is a JSON object with `members`; `what` names the object.
pub(super) fn parse_object<T: DeserializeOwned>(
    body: &[u8],
    what: &str,
    members: &str,
) -> Result<T, Problem> {
    // serde would also accept a list of the values in order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        let detail = format!("the body must be a JSON object with {members}; nothing was done");
        return Err(Problem::invalid(detail));
    }
    serde_json::from_slice(body).map_err(|error| {
        let reason: String = error.to_string().chars().take(SHOWN_CHARACTERS_MAX).collect();
        Problem::invalid(format!("the body is not {what}: {reason}; nothing was done"))
    })
}

/// Encodes an answer.
pub(super) fn encode(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).expect("invariant: texts, numbers, flags and lists of them are JSON")
}

/// The bytes of a member that is given as text, or in base64 under another name.
pub(super) fn bytes_of(
    name: &str,
    (text, base64): (Option<String>, Option<String>),
) -> Result<Option<Bytes>, String> {
    match (text, base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(Bytes::from(text))),
        (None, Some(base64)) => match uri::base64_decode(base64.as_bytes()) {
            Some(bytes) => Ok(Some(Bytes::from(bytes))),
            None => Err(format!("`{name}_b64` must be base64")),
        },
        (Some(_), Some(_)) => Err(format!("give either `{name}` or `{name}_b64`, not both")),
    }
}

/// Appends a JSON string.
pub(super) fn push_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("invariant: text is JSON and a Vec takes every byte");
}

/// Appends a decimal number.
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    serde_json::to_writer(out, &number).expect("invariant: a number is JSON and a Vec takes every byte");
}

/// Appends `,"name":number`.
pub(super) fn push_number_member(out: &mut Vec<u8>, name: &str, number: u64) {
    push_name(out, name, "");
    push_number(out, number);
}

/// Bytes as a text if they are UTF-8, else in base64.
pub(super) fn text_or_base64(bytes: &[u8]) -> (Option<Cow<'_, str>>, Option<Cow<'_, str>>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes).into())),
    }
}

/// Appends `"name":"text"` or `"name_b64":"…"`, with a comma before it except at the start of an
/// object.
pub(super) fn push_bytes_member(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            push_name(out, name, "");
            push_text(out, text);
        }
        Err(_) => {
            push_name(out, name, "_b64");
            push_text(out, &STANDARD.encode(bytes));
        }
    }
}

fn push_name(out: &mut Vec<u8>, name: &str, suffix: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    out.extend_from_slice(b"\":");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_if_they_can_be() {
        let mut out = b"{".to_vec();
        push_bytes_member(&mut out, "key", "a\"\u{0}é".as_bytes());
        push_number_member(&mut out, "ver", u64::MAX);
        push_bytes_member(&mut out, "val", b"\xff\x00");
        let expected = r#"{"key":"a\"\u0000é","ver":18446744073709551615,"val_b64":"/wA=""#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
