//! The keys that seal secrets: their file, sealing and opening.
//!
//! Owns the format of the file and of sealed secrets. A sealed secret is the random nonce, the
//! encrypted text and the tag of AES-256-GCM, in base64. Namespace and key of the pair are
//! authenticated with it, so a sealed secret that is copied to another pair does not open there.
//!
//! Keys and plain text appear in no error and in no `Debug` output.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidelock_core::command::config::{Name, SealedSecret, is_key_id};
use tidelock_core::limits;

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// Most keys of a file. A rotation needs two.
const KEYS_MAX: usize = 64;

/// A secret in plain text. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainSecret(String);

impl PlainSecret {
    /// Takes the text.
    pub fn new(text: String) -> PlainSecret {
        PlainSecret(text)
    }

    /// The text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PlainSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainSecret(…)")
    }
}

/// Why the text of a file is not a list of keys. No error quotes the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// A line is not a key.
    #[error(
        "line {0} is not a key; a line is ID:KEY, KEY being 32 random bytes in base64, as `head -c 32 /dev/urandom | base64` \
         prints them, and ID up to {max} letters, digits, dots, dashes and underscores",
        max = limits::SECRET_KEY_ID_BYTES_MAX
    )]
    Line(usize),
    /// Two keys have the same id.
    #[error("line {0} has the id of an earlier key; give each key an id of its own")]
    Twice(usize),
    /// The file has no key.
    #[error(
        "there is no key; write a line ID:KEY, KEY being the output of `head -c 32 /dev/urandom | base64`"
    )]
    Empty,
    /// The file holds more keys than are read.
    #[error("there are more than {KEYS_MAX} keys; remove those with which nothing is sealed any more")]
    TooMany,
}

/// Why a sealed secret is not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// This node has no key of this id.
    #[error(
        "the secret of pair {pair:?} was sealed with key {key_id:?}, which is not in the file of --secret-key-file at this node"
    )]
    NoKey {
        /// The pair.
        pair: String,
        /// The id of the key that is missing.
        key_id: String,
    },
    /// The key is another one, or the secret is damaged or was copied from another pair.
    #[error(
        "the secret of pair {pair:?} does not open with key {key_id:?}: it was damaged or copied from another pair, or the key \
         was replaced under the same id"
    )]
    Refused {
        /// The pair.
        pair: String,
        /// The id of the key that was tried.
        key_id: String,
    },
}

/// A pair that holds a secret.
#[derive(Clone, Copy, Debug)]
pub struct SecretPair<'a> {
    /// The namespace of the pair.
    pub namespace: &'a Name,
    /// The key of the pair.
    pub key: &'a str,
}

impl SecretPair<'_> {
    /// What is authenticated with the secret. Names and keys hold no zero byte.
    fn associated_data(self) -> Aad<Vec<u8>> {
        Aad::from([self.namespace.as_str().as_bytes(), b"\0", self.key.as_bytes()].concat())
    }
}

struct SecretKey {
    id: String,
    key: RandomizedNonceKey,
}

/// The keys of a file. The first one seals, and all of them open.
pub struct Keyring {
    /// Not empty, and each id once.
    keys: Vec<SecretKey>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

impl Keyring {
    /// Reads lines `ID:KEY`. Empty lines, and lines that begin with `#`, are ignored.
    ///
    /// # Errors
    /// The first line that is not a key.
    pub fn parse(text: &str) -> Result<Keyring, KeyringError> {
        let mut keys: Vec<SecretKey> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = parse_line(line).ok_or(KeyringError::Line(number))?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(KeyringError::Twice(number));
            }
            if keys.len() == KEYS_MAX {
                return Err(KeyringError::TooMany);
            }
            keys.push(key);
        }
        if keys.is_empty() { Err(KeyringError::Empty) } else { Ok(Keyring { keys }) }
    }

    /// The ids of the keys; the first one is that of the key that seals.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.id.as_str())
    }

    /// The id of the key that seals.
    pub fn sealing_id(&self) -> &str {
        &self.keys[0].id
    }

    /// Encrypts the secret of a pair. The result differs each time.
    ///
    /// # Panics
    /// When the secret is longer than [`limits::CONFIG_SECRET_BYTES_MAX`].
    pub fn seal(&self, pair: SecretPair<'_>, secret: &PlainSecret) -> SealedSecret {
        let SecretKey { id, key } = &self.keys[0];
        let mut text = secret.expose().as_bytes().to_vec();
        let nonce = key
            .seal_in_place_append_tag(pair.associated_data(), &mut text)
            .expect("invariant: a short text can be encrypted");
        let sealed = [nonce.as_ref().as_slice(), &text].concat();
        SealedSecret::new(id, &STANDARD.encode(sealed)).expect("invariant: a short secret can be sealed")
    }

    /// Decrypts the secret of a pair.
    ///
    /// # Errors
    /// When its key is missing, or it is not the secret of this pair.
    pub fn open(&self, pair: SecretPair<'_>, sealed: &SealedSecret) -> Result<PlainSecret, OpenError> {
        let key_id = sealed.key_id().to_owned();
        let Some(SecretKey { key, .. }) = self.keys.iter().find(|key| key.id == key_id) else {
            return Err(OpenError::NoKey { pair: pair.key.to_owned(), key_id });
        };
        let refused = || OpenError::Refused { pair: pair.key.to_owned(), key_id };
        let opened = open_with(key, pair, sealed.base64()).and_then(|text| String::from_utf8(text).ok());
        opened.map(PlainSecret::new).ok_or_else(refused)
    }
}

fn parse_line(line: &str) -> Option<SecretKey> {
    let (id, key) = line.split_once(':')?;
    let key = STANDARD.decode(key.trim()).ok().filter(|key| key.len() == KEY_BYTES)?;
    let id = Some(id.trim()).filter(|id| is_key_id(id))?.to_owned();
    Some(SecretKey { id, key: RandomizedNonceKey::new(&AES_256_GCM, &key).ok()? })
}

fn open_with(key: &RandomizedNonceKey, pair: SecretPair<'_>, base64: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(base64).ok()?;
    let (nonce, text) = bytes.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut text = text.to_vec();
    let opened = key.open_in_place(nonce, pair.associated_data(), &mut text).ok()?;
    Some(opened.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with the key that consists of one byte.
    pub(super) fn line(id: &str, byte: u8) -> String {
        format!("{id}:{}\n", STANDARD.encode([byte; KEY_BYTES]))
    }

    fn keyring(lines: &[String]) -> Keyring {
        Keyring::parse(&lines.concat()).expect("keys")
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    const SECRET: &str = "correct horse";

    #[test]
    fn a_file_of_keys_is_read() {
        let text = format!("# made in May\n\n{}  \n  {}", line("k2", 2), line("k1", 1));
        let keys = Keyring::parse(&text).expect("keys");
        assert_eq!((keys.sealing_id(), keys.ids().collect::<Vec<_>>()), ("k2", vec!["k2", "k1"]));
        assert_eq!(format!("{keys:?}"), r#"["k2", "k1"]"#);
        let short = format!("k1:{}\n", STANDARD.encode([1; 31]));
        for (text, error) in [
            (String::new(), KeyringError::Empty),
            ("# nothing\n".to_owned(), KeyringError::Empty),
            (line("k1", 1) + "k2", KeyringError::Line(2)),
            (line("k1", 1) + "\n" + &short, KeyringError::Line(3)),
            (line("a b", 1), KeyringError::Line(1)),
            (line("", 1), KeyringError::Line(1)),
            ("k1:not base64\n".to_owned(), KeyringError::Line(1)),
            (line("k1", 1) + &line("k1", 2), KeyringError::Twice(2)),
            ((0..=KEYS_MAX).map(|number| line(&format!("k{number}"), 1)).collect(), KeyringError::TooMany),
        ] {
            let refused = Keyring::parse(&text).map(|_| ()).unwrap_err();
            assert_eq!(refused, error, "{text}");
            assert!(!refused.to_string().contains("AQEBAQ"), "{refused}");
        }
    }

    #[test]
    fn a_secret_opens_only_where_it_was_sealed() {
        let keys = keyring(&[line("k1", 1)]);
        let (web, key) = (name("web"), "password");
        let pair = SecretPair { namespace: &web, key };
        for text in ["", SECRET, &"ü".repeat(limits::CONFIG_SECRET_BYTES_MAX / 2)] {
            let secret = PlainSecret::new(text.to_owned());
            let (one, other) = (keys.seal(pair, &secret), keys.seal(pair, &secret));
            assert_ne!(one, other, "nonces are random");
            assert_eq!(one.key_id(), "k1");
            assert_eq!(keys.open(pair, &one), Ok(secret.clone()));
            assert_eq!(format!("{secret:?}"), "PlainSecret(…)");
        }
        let sealed = keys.seal(pair, &PlainSecret::new(SECRET.to_owned()));
        assert!(!sealed.as_str().contains(SECRET));
        let refused = Err(OpenError::Refused { pair: key.to_owned(), key_id: "k1".to_owned() });
        assert_eq!(keys.open(SecretPair { namespace: &name("web2"), key }, &sealed), refused);
        let other = keys.open(SecretPair { namespace: &web, key: "passwords" }, &sealed);
        assert!(matches!(other, Err(OpenError::Refused { .. })));
        assert_eq!(keyring(&[line("k1", 2)]).open(pair, &sealed), refused, "another key of the same id");
        let missing = keyring(&[line("k2", 1)]).open(pair, &sealed).unwrap_err();
        assert_eq!(missing, OpenError::NoKey { pair: key.to_owned(), key_id: "k1".to_owned() });
        assert!(missing.to_string().contains("\"k1\""), "{missing}");
        let both = keyring(&[line("k2", 2), line("k1", 1)]);
        assert_eq!(both.open(pair, &sealed).expect("it opens").expose(), SECRET);
        assert_eq!(both.seal(pair, &PlainSecret::new(SECRET.to_owned())).key_id(), "k2");
    }

    #[test]
    fn truncated_and_altered_secrets_do_not_open() {
        let keys = keyring(&[line("k1", 1)]);
        let web = name("web");
        let pair = SecretPair { namespace: &web, key: "password" };
        let sealed = keys.seal(pair, &PlainSecret::new(SECRET.to_owned()));
        let bytes = STANDARD.decode(sealed.base64()).expect("base64");
        let open = |bytes: &[u8]| {
            let sealed = SealedSecret::new("k1", &STANDARD.encode(bytes)).expect("the form");
            keys.open(pair, &sealed)
        };
        assert!(open(&bytes).is_ok());
        for length in 0..bytes.len() {
            assert!(open(&bytes[..length]).is_err(), "{length} bytes");
        }
        for position in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[position] ^= 1;
            assert!(open(&altered).is_err(), "byte {position}");
        }
        let halved = SealedSecret::new("k1", "AAA").expect("the form");
        assert!(keys.open(pair, &halved).is_err(), "not base64 of whole bytes");
    }
}
