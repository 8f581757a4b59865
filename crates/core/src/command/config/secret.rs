//! Secrets as the core sees them: sealed text, which nobody reads without the key.
//!
//! Owns the form of the text, `sealed:v1:KEY_ID:BASE64`. It does not own the encryption: the node
//! that receives a value seals it, so logs, snapshots and backups contain only sealed text.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use crate::limits;

/// What every answer shows instead of a secret.
pub const SECRET_MASK: &str = "********";

/// The beginning of every sealed text of this version.
const PREFIX: &str = "sealed:v1:";

/// An encrypted value. Two are equal if their texts are equal; the same value has another text each
/// time that it is sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSecret(Arc<str>);

impl SealedSecret {
    /// Creates a sealed secret from the id of its key and its bytes in base64; `None` if one of
    /// them is malformed or too long.
    pub fn new(key_id: &str, base64: &str) -> Option<SealedSecret> {
        let mut text = String::with_capacity(PREFIX.len() + key_id.len() + 1 + base64.len());
        for part in [PREFIX, key_id, ":", base64] {
            text.push_str(part);
        }
        SealedSecret::parse(&text)
    }

    /// Reads the text of a sealed secret; `None` if it has another form, or is longer than
    /// [`limits::CONFIG_SEALED_BYTES_MAX`].
    pub fn parse(text: &str) -> Option<SealedSecret> {
        let (key_id, base64) = parts(text)?;
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        let is_valid = is_key_id(key_id)
            && text.len() <= limits::CONFIG_SEALED_BYTES_MAX
            && base64.bytes().all(is_base64);
        is_valid.then(|| SealedSecret(text.into()))
    }

    /// The whole text. Clients never see it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the key with which it was sealed.
    pub fn key_id(&self) -> &str {
        self.parts().0
    }

    /// The encrypted bytes in base64.
    pub fn base64(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        parts(&self.0).expect("invariant: the text was parsed")
    }
}

fn parts(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(PREFIX)?.split_once(':')
}

/// Whether a key may have this id: 1 to [`limits::SECRET_KEY_ID_BYTES_MAX`] letters, digits, dots,
/// dashes and underscores.
pub fn is_key_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=limits::SECRET_KEY_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

impl fmt::Debug for SealedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedSecret(key {:?})", self.key_id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn only_sealed_text_is_read() {
        let sealed = SealedSecret::new("k1", "AAAA+/==").expect("a sealed secret");
        assert_eq!(sealed.as_str(), "sealed:v1:k1:AAAA+/==");
        assert_eq!((sealed.key_id(), sealed.base64()), ("k1", "AAAA+/=="));
        assert_eq!(SealedSecret::parse(sealed.as_str()), Some(sealed.clone()));
        assert_eq!(format!("{sealed:?}"), "SealedSecret(key \"k1\")");
        for text in [
            "",
            SECRET_MASK,
            "sealed:v1:",
            "sealed:v1:k1",
            "sealed:v1::AAAA",
            "sealed:v2:k1:AAAA",
            "sealed:v1:k 1:AAAA",
            "sealed:v1:k1:AA\"A",
        ] {
            assert_eq!(SealedSecret::parse(text), None, "{text}");
        }
        let longest = limits::CONFIG_SEALED_BYTES_MAX - "sealed:v1:k1:".len();
        assert!(SealedSecret::new("k1", &"A".repeat(longest)).is_some());
        assert!(SealedSecret::new("k1", &"A".repeat(longest + 1)).is_none());
        assert!(SealedSecret::new(&"k".repeat(limits::SECRET_KEY_ID_BYTES_MAX), "").is_some());
        assert!(SealedSecret::new(&"k".repeat(limits::SECRET_KEY_ID_BYTES_MAX + 1), "").is_none());
    }
}
