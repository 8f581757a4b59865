//! Keys with their versions and values: as `--output json` prints them, and the bytes in a page of
//! the HTTP API.
//!
//! JSON has no byte strings: UTF-8 is written as text, anything else in base64 under the same name
//! with the suffix `_b64`. Never both, and never with replacement characters.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use tidelock_api::keys::{KeyItem, KeyPage};

/// One key, with its version, value, or the result of a write.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Item {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ver: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
}

impl Item {
    /// An item with only a key.
    pub fn of(key: &[u8]) -> Item {
        let (key, key_b64) = encode(key);
        Item { key, key_b64, ..Item::default() }
    }

    pub fn with_version(self, version: u64) -> Item {
        Item { ver: Some(version), ..self }
    }

    /// Adds whether a put created the key or replaced its value.
    pub fn with_created(self, created: bool) -> Item {
        Item { created: Some(created), ..self }
    }

    pub fn with_deleted(self) -> Item {
        Item { deleted: Some(true), ..self }
    }

    pub fn with_value(self, value: &[u8]) -> Item {
        let (val, val_b64) = encode(value);
        Item { val, val_b64, ..self }
    }

    /// The item as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("invariant: an item is representable as JSON")
    }
}

/// The key of a listed item; `None` if there is none or its base64 is broken.
pub fn key_of(item: &KeyItem) -> Option<Vec<u8>> {
    decode(item.key.as_deref(), item.key_b64.as_deref())
}

/// The value of a listed item; `None` if there is none or its base64 is broken.
pub fn value_of(item: &KeyItem) -> Option<Vec<u8>> {
    decode(item.val.as_deref(), item.val_b64.as_deref())
}

/// Whether there are keys after a page.
pub fn has_more(page: &KeyPage) -> bool {
    page.next.is_some() || page.next_b64.is_some()
}

/// Where the next page starts; `None` on the last page, or if its base64 is broken.
pub fn next_of(page: &KeyPage) -> Option<Vec<u8>> {
    decode(page.next.as_deref(), page.next_b64.as_deref())
}

pub fn encode(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

pub fn decode(text: Option<&str>, base64: Option<&str>) -> Option<Vec<u8>> {
    match (text, base64) {
        (Some(text), _) => Some(text.as_bytes().to_vec()),
        (None, Some(base64)) => STANDARD.decode(base64).ok(),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_round_trip() {
        for (key, value, json) in [
            (&b"a"[..], &b"1"[..], r#"{"key":"a","ver":7,"val":"1"}"#),
            (b"a", b"", r#"{"key":"a","ver":7,"val":""}"#),
            (b"\xff", b"\xfe\x00", r#"{"key_b64":"/w==","ver":7,"val_b64":"/gA="}"#),
            (b"\0\"", b"\n", r#"{"key":"\u0000\"","ver":7,"val":"\n"}"#),
        ] {
            let item = Item::of(key).with_version(7).with_value(value);
            assert_eq!(item.to_json(), json);
            let read: KeyItem = serde_json::from_str(json).unwrap();
            assert_eq!((key_of(&read).unwrap(), value_of(&read).unwrap()), (key.to_vec(), value.to_vec()));
        }
    }

    #[test]
    fn pages_say_where_the_next_one_begins() {
        let next = |page: &str| next_of(&serde_json::from_str(page).unwrap());
        assert_eq!(next(r#"{"items":[{"key":"a","ver":1}],"next":"a","extra":1}"#), Some(b"a".to_vec()));
        assert_eq!(next(r#"{"items":[],"next_b64":"/w=="}"#), Some(vec![0xff]));
        assert_eq!(next(r#"{"items":[],"next_b64":"?"}"#), None);
        assert_eq!(next(r#"{"items":[],"next":null}"#), None);
    }
}
