//! Text format of bearer tokens, `tdl_<id>_<secret>_<checksum>`, and of join tokens.
//!
//! Owns the form of the text, and where secrets come from. The id has 16 hexadecimal digits, the
//! secret is 256 random bits in base64url without padding, and the checksum is the CRC-32C of all
//! before its underscore, in 8 hexadecimal digits. The checksum finds typing errors without a look
//! at any stored token, and lets scanners for leaked secrets recognize a token.
//!
//! Invariant: the secret appears only in the text that is shown to its owner once. Neither `Debug`
//! nor an error shows it.

use std::fmt;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::crypto::aws_lc_rs;
use tidelock_core::auth::{SecretDigest, TokenId};

const PREFIX: &str = "tdl_";
const JOIN_PREFIX: &str = "tdj_";
const ID_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
const SECRET_TEXT_BYTES: usize = 43;
const CHECKSUM_BYTES: usize = 8;

/// Length of the text of every token, in bytes.
pub const TOKEN_TEXT_BYTES: usize = PREFIX.len() + ID_BYTES + 1 + SECRET_TEXT_BYTES + 1 + CHECKSUM_BYTES;

/// What the text of a token says: which token it is, and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken {
    /// The number of the token.
    pub id: TokenId,
    secret: [u8; SECRET_BYTES],
}

/// The text is not that of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedToken {
    /// It does not have the parts of a token, or not their lengths and characters.
    #[error("it does not have the form of a token, tdl_…")]
    Form,
    /// It does not have the parts of a join token, or not their lengths and characters.
    #[error("it does not have the form of a join token, tdj_…")]
    JoinForm,
    /// It is a token of a client where a join token is wanted.
    #[error(
        "it is a token for clients, tdl_…; `tidelock cluster join-token` makes one with which a host joins, tdj_…"
    )]
    OfClient,
    /// It is a join token where a token of a client is wanted.
    #[error(
        "it is a token with which a host joins, tdj_…; clients have tokens tdl_…, from `tidelock auth token create`"
    )]
    OfHost,
    /// A character was changed or left out.
    #[error("its checksum is wrong: a part of it was changed or left out")]
    Checksum,
}

impl BearerToken {
    /// A new token with a random number and a random secret.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn generate() -> io::Result<BearerToken> {
        let mut id = [0; 8];
        fill(&mut id)?;
        BearerToken::with_id(TokenId(u64::from_be_bytes(id)))
    }

    /// Another random secret for a token.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn with_id(id: TokenId) -> io::Result<BearerToken> {
        let mut secret = [0; SECRET_BYTES];
        fill(&mut secret)?;
        Ok(BearerToken { id, secret })
    }

    /// What the cluster stores of the secret.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest::of(&self.secret)
    }

    /// The text, which contains the secret.
    pub fn reveal(&self) -> String {
        with_checksum(format!("{PREFIX}{}_{}", self.id, URL_SAFE_NO_PAD.encode(self.secret)))
    }

    /// Reads the text of a token.
    ///
    /// # Errors
    /// When the text is not a join token.
    pub fn parse(text: &[u8]) -> Result<BearerToken, MalformedToken> {
        if text.starts_with(JOIN_PREFIX.as_bytes()) {
            return Err(MalformedToken::OfHost);
        }
        let [id, secret] = parts(text, PREFIX)?;
        let id = id.parse().map_err(|_| MalformedToken::Form)?;
        Ok(BearerToken { id, secret: decode(secret)? })
    }
}

/// A token with which one host joins a cluster: `tdj_<id>_<secret>_<fingerprint>_<checksum>`. The
/// fingerprint, the SHA-256 digest of the certificate of the cluster's authority in base64url, lets
/// the host authenticate the cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinTokenText {
    /// The number and the secret.
    pub token: BearerToken,
    /// The fingerprint.
    pub authority: [u8; SECRET_BYTES],
}

impl JoinTokenText {
    /// The text, which contains the secret.
    pub fn reveal(&self) -> String {
        let BearerToken { id, secret } = &self.token;
        let (secret, authority) = (URL_SAFE_NO_PAD.encode(secret), URL_SAFE_NO_PAD.encode(self.authority));
        with_checksum(format!("{JOIN_PREFIX}{id}_{secret}_{authority}"))
    }

    /// Reads the text of a join token.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &[u8]) -> Result<JoinTokenText, MalformedToken> {
        if text.starts_with(PREFIX.as_bytes()) {
            return Err(MalformedToken::OfClient);
        }
        JoinTokenText::parts_of(text).map_err(|error| match error {
            MalformedToken::Form => MalformedToken::JoinForm,
            error => error,
        })
    }

    fn parts_of(text: &[u8]) -> Result<JoinTokenText, MalformedToken> {
        let [id, secret, authority] = parts(text, JOIN_PREFIX)?;
        let id = id.parse().map_err(|_| MalformedToken::Form)?;
        let token = BearerToken { id, secret: decode(secret)? };
        Ok(JoinTokenText { token, authority: decode(authority)? })
    }
}

impl fmt::Debug for JoinTokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinTokenText").field("token", &self.token).finish_non_exhaustive()
    }
}

fn with_checksum(mut text: String) -> String {
    let checksum = crc32c::crc32c(text.as_bytes());
    text.push_str(&format!("_{checksum:08x}"));
    text
}

/// Splits the text between prefix and checksum into an id and fields of 32 bytes in base64url, and
/// verifies the checksum.
fn parts<'a, const N: usize>(text: &'a [u8], prefix: &str) -> Result<[&'a str; N], MalformedToken> {
    let text = std::str::from_utf8(text).map_err(|_| MalformedToken::Form)?;
    let length = prefix.len() + ID_BYTES + (N - 1) * (1 + SECRET_TEXT_BYTES) + 1 + CHECKSUM_BYTES;
    if text.len() != length || !text.is_ascii() {
        return Err(MalformedToken::Form);
    }
    let (checked, checksum) = text.split_at(text.len() - CHECKSUM_BYTES - 1);
    let mut rest = checked.strip_prefix(prefix).ok_or(MalformedToken::Form)?;
    let checksum = checksum.strip_prefix('_').ok_or(MalformedToken::Form)?;
    let mut parts = [""; N];
    for (number, part) in parts.iter_mut().enumerate() {
        let length = if number == 0 { ID_BYTES } else { SECRET_TEXT_BYTES };
        if number > 0 {
            rest = rest.strip_prefix('_').ok_or(MalformedToken::Form)?;
        }
        (*part, rest) = rest.split_at(length);
    }
    if format!("{:08x}", crc32c::crc32c(checked.as_bytes())) != checksum {
        return Err(MalformedToken::Checksum);
    }
    Ok(parts)
}

fn decode(text: &str) -> Result<[u8; SECRET_BYTES], MalformedToken> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| MalformedToken::Form)?;
    bytes.try_into().map_err(|_| MalformedToken::Form)
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerToken").field("id", &self.id).finish_non_exhaustive()
    }
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let filled = aws_lc_rs::default_provider().secure_random.fill(bytes);
    filled.map_err(|_| io::Error::other("the system has no random numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_written() {
        let token = BearerToken { id: TokenId(0xab), secret: [0xff; SECRET_BYTES] };
        let text = token.reveal();
        let rest = "tdl_00000000000000ab_//////////////////////////////////////////8".replace('/', "_");
        assert_eq!(text, with_checksum(rest));
        assert_eq!(BearerToken::parse(text.as_bytes()), Ok(token));
        let random = BearerToken::generate().expect("random numbers");
        assert_eq!(BearerToken::parse(random.reveal().as_bytes()), Ok(random.clone()));
        let rotated = BearerToken::with_id(random.id).expect("random numbers");
        assert!(!rotated.digest().matches(&random.digest()));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let token = BearerToken { id: TokenId(0xab), secret: [1; SECRET_BYTES] };
        assert_eq!(format!("{token:?}"), "BearerToken { id: TokenId(171), .. }");
    }

    #[test]
    fn any_changed_character_is_noticed() {
        let text = BearerToken { id: TokenId(7), secret: [9; SECRET_BYTES] }.reveal();
        for position in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[position] = if changed[position] == b'a' { b'b' } else { b'a' };
            assert!(BearerToken::parse(&changed).is_err(), "{position}");
        }
        let mut last = text.clone().into_bytes();
        *last.last_mut().expect("a checksum") ^= 1;
        assert_eq!(BearerToken::parse(&last), Err(MalformedToken::Checksum));
    }

    #[test]
    fn a_join_token_names_the_authority_to_trust() {
        let token = BearerToken { id: TokenId(7), secret: [9; SECRET_BYTES] };
        let text = JoinTokenText { token: token.clone(), authority: [1; SECRET_BYTES] };
        let revealed = text.reveal();
        assert!(revealed.starts_with("tdj_0000000000000007_"), "{revealed}");
        assert_eq!(JoinTokenText::parse(revealed.as_bytes()), Ok(text.clone()));
        assert!(!format!("{text:?}").contains("CQkJ"), "{text:?}");
        assert_eq!(BearerToken::parse(revealed.as_bytes()), Err(MalformedToken::OfHost));
        assert_eq!(JoinTokenText::parse(token.reveal().as_bytes()), Err(MalformedToken::OfClient));
        assert_eq!(JoinTokenText::parse(b"tdj_"), Err(MalformedToken::JoinForm));
        for position in 0..revealed.len() {
            let mut changed = revealed.clone().into_bytes();
            changed[position] = if changed[position] == b'a' { b'b' } else { b'a' };
            assert!(JoinTokenText::parse(&changed).is_err(), "{position}");
        }
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let secret = "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk";
        let text = with_checksum(format!("tdl_0000000000000007_{secret}"));
        assert!(BearerToken::parse(text.as_bytes()).is_ok());
        for rest in [
            String::new(),
            "tdl_".to_owned(),
            format!("tdl_000000000000007_{secret}"),
            format!("tdl_000000000000000G_{secret}"),
            format!("tdl_000000000000000A_{secret}"),
            format!("tdx_0000000000000007_{secret}"),
            format!("tdl_0000000000000007-{secret}"),
            format!("tdl_0000000000000007_{secret}A"),
            format!("tdl_0000000000000007_{}", &secret[1..]),
            format!("tdl_0000000000000007_{}", secret.replace('J', "+")),
            // The last character has bits beyond the secret.
            format!("tdl_0000000000000007_{}l", &secret[1..]),
            format!("tdl_0000000000000007_{}é", &secret[2..]),
        ] {
            let text = with_checksum(rest.clone());
            assert_eq!(BearerToken::parse(text.as_bytes()), Err(MalformedToken::Form), "{rest}");
        }
        assert_eq!(BearerToken::parse(&[0xff; TOKEN_TEXT_BYTES]), Err(MalformedToken::Form));
    }
}
