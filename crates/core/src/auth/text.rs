//! The text form of grants: `read keys:app/`, `write config:web*`, `cluster:operate`.
//!
//! Owns parser and formatter. Each grant has one text form that the formatter writes, and the
//! parser accepts a few more. Keys are any bytes, and names of namespaces may hold a `*`, so bytes
//! other than plain characters are written as `%` and two hexadecimal digits.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use core::str::FromStr;

use super::{ClusterLevel, ConfigAccess, Grant, KeyAccess, Namespaces};
use crate::limits::{CONFIG_NAMESPACE_CHARACTERS_MAX, GRANT_BYTES_MAX};

/// Why text is not a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The text has another form than any grant.
    #[error(
        "a grant is `read|write|watch keys:PREFIX`, `read|write|reveal config:NAMESPACE`, \
         `read|write|reveal config:PREFIX*` or `cluster:read|operate|admin`"
    )]
    Form,
    /// A prefix of keys with a `*`, which would not mean what it seems to.
    #[error(
        "a prefix of keys takes no `*`: `keys:app/` covers every key that starts with app/; `%2A` is the character"
    )]
    StarInPrefix,
    /// The name of a namespace with a `*` before its end.
    #[error("a `*` stands only at the end of the name of a namespace; `%2A` is the character")]
    StarInName,
    /// No name, which would cover nothing.
    #[error("no namespace is named; `config:*` covers all of them")]
    NoName,
    /// A name that is not UTF-8, holds control characters, or is too long for a namespace.
    #[error("no namespace can have this name")]
    InvalidName,
    /// A `%` without two hexadecimal digits after it.
    #[error("two hexadecimal digits follow a `%`; `%25` is the character")]
    InvalidEscape,
    /// A space or a control character.
    #[error("spaces and control characters are written as `%` and two hexadecimal digits, a space as `%20`")]
    Space,
    /// See [`GRANT_BYTES_MAX`].
    #[error("the prefix of a grant is longer than {GRANT_BYTES_MAX} bytes")]
    TooLong,
}

/// Whether a byte is written as it is.
fn is_plain(byte: u8) -> bool {
    // A comma separates grants in lists on a command line.
    byte.is_ascii_graphic() && !matches!(byte, b'%' | b'*' | b',')
}

/// Writes bytes as text without spaces, commas and `*`.
pub(super) fn encode(bytes: &[u8], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|&byte| {
        if is_plain(byte) { out.write_char(char::from(byte)) } else { write!(out, "%{byte:02X}") }
    })
}

/// Reads what [`encode`] writes, and characters beyond ASCII as they are.
fn decode(text: &str) -> Result<Vec<u8>, GrantError> {
    let digit = |byte: Option<u8>| {
        let digit = byte.and_then(|byte| char::from(byte).to_digit(16));
        digit.and_then(|digit| u8::try_from(digit).ok()).ok_or(GrantError::InvalidEscape)
    };
    if text.chars().any(|character| character.is_whitespace() || character.is_control()) {
        return Err(GrantError::Space);
    }
    let (mut decoded, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' { digit(bytes.next())? << 4 | digit(bytes.next())? } else { byte };
        decoded.push(byte);
    }
    Ok(decoded)
}

/// Reads the prefix of a grant for keys.
fn prefix(text: &str) -> Result<Vec<u8>, GrantError> {
    if text.contains('*') {
        return Err(GrantError::StarInPrefix);
    }
    let prefix = decode(text)?;
    if prefix.len() > GRANT_BYTES_MAX { Err(GrantError::TooLong) } else { Ok(prefix) }
}

fn namespaces(text: &str) -> Result<Namespaces, GrantError> {
    let (text, is_prefix) = match text.strip_suffix('*') {
        Some(text) => (text, true),
        None => (text, false),
    };
    if text.contains('*') {
        return Err(GrantError::StarInName);
    }
    if text.is_empty() && !is_prefix {
        return Err(GrantError::NoName);
    }
    let name = String::from_utf8(decode(text)?).map_err(|_| GrantError::InvalidName)?;
    if name.chars().count() > CONFIG_NAMESPACE_CHARACTERS_MAX || name.chars().any(char::is_control) {
        return Err(GrantError::InvalidName);
    }
    Ok(if is_prefix { Namespaces::StartingWith(name) } else { Namespaces::Named(name) })
}

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Grant, GrantError> {
        if let Some(level) = text.strip_prefix("cluster:") {
            let level = match level {
                "read" => ClusterLevel::Read,
                "operate" => ClusterLevel::Operate,
                "admin" => ClusterLevel::Admin,
                _ => return Err(GrantError::Form),
            };
            return Ok(Grant::Cluster(level));
        }
        let (verb, object) = text.split_once(' ').ok_or(GrantError::Form)?;
        let (kind, name) = object.split_once(':').ok_or(GrantError::Form)?;
        Ok(match (verb, kind) {
            ("read", "keys") => Grant::Keys { access: KeyAccess::Read, prefix: prefix(name)? },
            ("write", "keys") => Grant::Keys { access: KeyAccess::Write, prefix: prefix(name)? },
            ("watch", "keys") => Grant::Keys { access: KeyAccess::Watch, prefix: prefix(name)? },
            ("read", "config") => Grant::Config { access: ConfigAccess::Read, namespaces: namespaces(name)? },
            ("write", "config") => {
                Grant::Config { access: ConfigAccess::Write, namespaces: namespaces(name)? }
            }
            ("reveal", "config") => {
                Grant::Config { access: ConfigAccess::Reveal, namespaces: namespaces(name)? }
            }
            _ => return Err(GrantError::Form),
        })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Grant::Keys { access, prefix } => {
                f.write_str(match access {
                    KeyAccess::Read => "read keys:",
                    KeyAccess::Write => "write keys:",
                    KeyAccess::Watch => "watch keys:",
                })?;
                encode(prefix, f)
            }
            Grant::Config { access, namespaces } => {
                f.write_str(match access {
                    ConfigAccess::Read => "read config:",
                    ConfigAccess::Write => "write config:",
                    ConfigAccess::Reveal => "reveal config:",
                })?;
                match namespaces {
                    Namespaces::Named(name) => encode(name.as_bytes(), f),
                    Namespaces::StartingWith(prefix) => {
                        encode(prefix.as_bytes(), f)?;
                        f.write_char('*')
                    }
                }
            }
            Grant::Cluster(level) => f.write_str(match level {
                ClusterLevel::Read => "cluster:read",
                ClusterLevel::Operate => "cluster:operate",
                ClusterLevel::Admin => "cluster:admin",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn the_text_form_is_read_and_written() {
        for text in [
            "read keys:",
            "write keys:app/",
            "watch keys:%FF%00",
            "read keys:100%25%2A%20%2Cmore",
            "read config:web",
            "write config:web*",
            "reveal config:web",
            "read config:*",
            "read config:web%2A",
            "read config:web%2A*",
            "cluster:read",
            "cluster:operate",
            "cluster:admin",
        ] {
            assert_eq!(text.parse::<Grant>().map(|grant| grant.to_string()), Ok(text.to_string()));
        }
        let read = |text: &str| text.parse::<Grant>().expect("a grant").to_string();
        assert_eq!(read("read keys:%61%2f"), "read keys:a/");
        assert_eq!(read("read config:caf\u{e9}"), "read config:caf%C3%A9");
    }

    #[test]
    fn other_text_is_refused_and_the_error_says_what_to_write() {
        for (text, error) in [
            ("", GrantError::Form),
            ("read", GrantError::Form),
            ("read keys", GrantError::Form),
            ("keys:a", GrantError::Form),
            ("READ keys:a", GrantError::Form),
            ("read  keys:a", GrantError::Form),
            ("watch config:web", GrantError::Form),
            ("reveal keys:a", GrantError::Form),
            ("read cluster:read", GrantError::Form),
            ("cluster:", GrantError::Form),
            ("cluster:write", GrantError::Form),
            ("read keys:app/*", GrantError::StarInPrefix),
            ("read keys:*", GrantError::StarInPrefix),
            ("read config:", GrantError::NoName),
            ("read config:a*b", GrantError::StarInName),
            ("read config:a**", GrantError::StarInName),
            ("read config:%FF", GrantError::InvalidName),
            ("read config:%00", GrantError::InvalidName),
            ("read keys:%", GrantError::InvalidEscape),
            ("read keys:%4", GrantError::InvalidEscape),
            ("read keys:%+1", GrantError::InvalidEscape),
            ("read keys:%gg", GrantError::InvalidEscape),
            ("read keys:a b", GrantError::Space),
            ("read keys:a ", GrantError::Space),
            ("read keys:a\n", GrantError::Space),
        ] {
            assert_eq!(text.parse::<Grant>(), Err(error), "{text:?}");
        }
        let long = |bytes: usize| format!("read keys:{}", "%FF".repeat(bytes)).parse::<Grant>();
        assert!(long(GRANT_BYTES_MAX).is_ok());
        assert_eq!(long(GRANT_BYTES_MAX + 1), Err(GrantError::TooLong));
        let name =
            |characters: usize| format!("read config:{}", "\u{e9}".repeat(characters)).parse::<Grant>();
        assert!(name(CONFIG_NAMESPACE_CHARACTERS_MAX).is_ok());
        assert_eq!(name(CONFIG_NAMESPACE_CHARACTERS_MAX + 1), Err(GrantError::InvalidName));
    }

    proptest! {
        #[test]
        fn every_prefix_has_a_text_form(prefix in proptest::collection::vec(any::<u8>(), 0..40)) {
            let grant = Grant::Keys { access: KeyAccess::Write, prefix };
            prop_assert_eq!(grant.to_string().parse(), Ok(grant));
        }

        #[test]
        fn every_name_has_a_text_form(name in "[^\\p{Cc}]{1,32}", is_prefix: bool) {
            let namespaces =
                if is_prefix { Namespaces::StartingWith(name) } else { Namespaces::Named(name) };
            let grant = Grant::Config { access: ConfigAccess::Read, namespaces };
            prop_assert_eq!(grant.to_string().parse(), Ok(grant));
        }
    }
}
