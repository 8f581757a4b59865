//! Parses the parameters of the configuration centre's paths.
//!
//! Segments are percent-decoded one by one, so a key may contain a slash (`%2F`).

use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tidelock_core::command::config::{Item, Name, NameError, check_key};

use super::super::uri;
use super::error::ApiError;

fn text(segment: &str) -> Result<String, ApiError> {
    let bytes = uri::percent_decode(segment.as_bytes())?;
    String::from_utf8(bytes.into_owned()).map_err(|_| ApiError::name("names and keys are UTF-8"))
}

pub(super) fn name(segment: &str) -> Result<Name, ApiError> {
    parse_name(&text(segment)?)
}

/// Checks the name of a namespace.
pub(super) fn parse_name(name: &str) -> Result<Name, ApiError> {
    Name::new(name).map_err(|error| wrong("the namespace's name", error))
}

/// A namespace and an item in it, in a text that [`parse_position`] reads.
pub(super) fn position(namespace: &Name, item: Option<&Item>) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let namespace = encoded(namespace.as_str());
    match item {
        None => namespace,
        Some(Item::Pair(key)) => format!("{namespace}/pair/{}", encoded(key)),
        Some(Item::Container(key)) => format!("{namespace}/container/{}", encoded(key)),
    }
}

/// Reads what [`position`] returned.
pub(super) fn parse_position(text: &str) -> Result<(Name, Option<Item>), ApiError> {
    let mut parts = text.splitn(3, '/');
    let namespace = name(parts.next().unwrap_or_default())?;
    let item = match (parts.next(), parts.next()) {
        (None, _) => None,
        (Some("pair"), Some(pair)) => Some(Item::Pair(key(pair)?)),
        (Some("container"), Some(container)) => Some(Item::Container(key(container)?)),
        _ => return Err(ApiError::invalid("after must be the `next` of the page before")),
    };
    Ok((namespace, item))
}

pub(super) fn key(segment: &str) -> Result<Arc<str>, ApiError> {
    parse_key(&text(segment)?)
}

/// Checks a key of a pair, a container or a field.
pub(super) fn parse_key(key: &str) -> Result<Arc<str>, ApiError> {
    check_key(key).map_err(|error| wrong(&format!("key {key:?}"), error))?;
    Ok(key.into())
}

fn wrong(what: &str, error: NameError) -> ApiError {
    ApiError::name(format!("{what} cannot be: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let namespace = Name::new("a/b").unwrap();
        for item in [None, Some(Item::Pair("x/y".into())), Some(Item::Container("ü%".into()))] {
            let text = position(&namespace, item.as_ref());
            assert_eq!(parse_position(&text).unwrap(), (namespace.clone(), item));
        }
        for text in ["", "a/b", "a/pair", "a/pair/", "a/key/x"] {
            assert!(parse_position(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_and_keys_are_percent_encoded_text_of_limited_length() {
        assert_eq!(name("n%73").unwrap(), Name::new("ns").unwrap());
        assert_eq!(&*key("a%2Fb").unwrap(), "a/b");
        assert!(name(&"ü".repeat(128)).is_ok(), "characters, not bytes");
        for segment in ["%ff", "%0a", "%zz", &"x".repeat(129)] {
            assert!(name(segment).is_err(), "{segment}");
        }
        assert!(key(&"ü".repeat(129)).is_err());
    }
}
