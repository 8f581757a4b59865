//! Writes JSON directly into the answer's buffer.
//!
//! Owns how bytes appear in JSON: as text if they are UTF-8, else as base64 under the same name
//! with the suffix `_b64`. serde_json does the escaping. Only the structure is written here,
//! because answers to frequent requests should cost one allocation.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

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
