//! Parses the parameters of the configuration centre's paths.
//!
//! Segments are percent-decoded one by one, so a key may contain a slash (`%2F`).

use std::sync::Arc;

use tidelock_core::command::config::{Name, NameError, check_key};

use super::super::uri;
use super::error::ApiError;

fn text(segment: &str) -> Result<String, ApiError> {
    let bytes = uri::percent_decode(segment.as_bytes())?;
    String::from_utf8(bytes.into_owned()).map_err(|_| ApiError::name("names and keys are UTF-8"))
}

pub(super) fn name(segment: &str) -> Result<Name, ApiError> {
    Name::new(&text(segment)?).map_err(|error| wrong("the namespace's name", error))
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
    fn names_and_keys_are_percent_encoded_text_of_limited_length() {
        assert_eq!(name("n%73").unwrap(), Name::new("ns").unwrap());
        assert_eq!(&*key("a%2Fb").unwrap(), "a/b");
        assert!(name(&"ü".repeat(32)).is_ok(), "characters, not bytes");
        for segment in ["%ff", "%0a", "%zz", &"x".repeat(33)] {
            assert!(name(segment).is_err(), "{segment}");
        }
        assert!(key(&"ü".repeat(65)).is_err());
    }
}
