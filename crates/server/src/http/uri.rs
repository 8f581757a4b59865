//! Keys and parameters from a request's target.
//!
//! Owns percent-decoding, which yields bytes, not text. Malformed escapes are refused: a literal
//! `%zz` would name another key than the client meant. Values of known parameters are parsed
//! strictly.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use tidelock_core::command::Consistency;
use tidelock_core::limits;

use super::problem::{Problem, ProblemKind};

/// Decodes a key from the raw rest of a path.
pub(super) fn key(raw: &str) -> Result<Bytes, Problem> {
    let key = match percent_decode(raw.as_bytes())? {
        Cow::Borrowed(bytes) => Bytes::copy_from_slice(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    };
    checked_key(key)
}

/// Refuses bytes that cannot be a key.
pub(super) fn checked_key(key: Bytes) -> Result<Bytes, Problem> {
    if key.is_empty() {
        return Err(Problem::invalid("the key is empty"));
    }
    check_key_length(&key, "the key")?;
    Ok(key)
}

/// Refuses a key that is too long; `what` names it.
pub(super) fn check_key_length(key: &[u8], what: &str) -> Result<(), Problem> {
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(Problem::over_limit(ProblemKind::KeyTooLong, what, limits::KEY_BYTES_MAX));
    }
    Ok(())
}

/// Percent-decodes; every `%` must begin an escape of two hexadecimal digits.
pub(super) fn percent_decode(raw: &[u8]) -> Result<Cow<'_, [u8]>, Problem> {
    // The usual case, found faster than byte by byte.
    if !raw.contains(&b'%') {
        return Ok(Cow::Borrowed(raw));
    }
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        match rest.get(at + 1..at + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => rest = &rest[at + 3..],
            _ => return Err(Problem::invalid("a % must be followed by two hexadecimal digits")),
        }
    }
    Ok(percent_encoding::percent_decode(raw).into())
}

/// Decodes one name or value of an urlencoded form: percent-encoding with `+` for a space.
pub(super) fn form_decode(raw: &[u8]) -> Result<Cow<'_, [u8]>, Problem> {
    if !raw.contains(&b'+') {
        return percent_decode(raw);
    }
    let spaced: Vec<u8> = raw.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    Ok(Cow::Owned(percent_decode(&spaced)?.into_owned()))
}

/// The parameters of an urlencoded query or form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters<'a> {
    raw: &'a [u8],
}

impl<'a> Parameters<'a> {
    pub fn new(raw: &'a [u8]) -> Self {
        Parameters { raw }
    }

    pub fn of_query(query: Option<&'a str>) -> Self {
        Parameters::new(query.unwrap_or_default().as_bytes())
    }

    /// The first parameter of this name; without `=` its value is empty.
    pub fn get(self, name: &str) -> Result<Option<Cow<'a, [u8]>>, Problem> {
        if self.raw.is_empty() {
            return Ok(None);
        }
        for pair in self.raw.split(|&byte| byte == b'&') {
            let (raw_name, raw_value) = match pair.iter().position(|&byte| byte == b'=') {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &b""[..]),
            };
            if form_decode(raw_name)?.as_ref() == name.as_bytes() {
                return form_decode(raw_value).map(Some);
            }
        }
        Ok(None)
    }

    /// The first parameter with a name that is not in `known`.
    pub fn first_besides(self, known: &[&str]) -> Result<Option<String>, Problem> {
        for pair in self.raw.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
            let name = form_decode(pair.split(|&byte| byte == b'=').next().unwrap_or_default())?;
            if !known.iter().any(|known| known.as_bytes() == name.as_ref()) {
                return Ok(Some(String::from_utf8_lossy(&name).into_owned()));
            }
        }
        Ok(None)
    }

    /// A switch: absent is off; present, bare or `true` is on.
    pub fn flag(self, name: &str) -> Result<bool, Problem> {
        match self.get(name)?.as_deref() {
            None | Some(b"false") => Ok(false),
            Some(b"" | b"true") => Ok(true),
            Some(_) => Err(Problem::invalid(format!("{name} must be true or false"))),
        }
    }

    /// `stale=true` reads from the local replica.
    pub fn consistency(self) -> Result<Consistency, Problem> {
        Ok(if self.flag("stale")? { Consistency::Stale } else { Consistency::Linearizable })
    }

    /// Bytes of a key, given as `name`, or as `name_b64` if they are not text.
    pub fn key_bytes(self, name: &str) -> Result<Option<Bytes>, Problem> {
        let encoded_name = format!("{name}_b64");
        let bytes = match (self.get(name)?, self.get(&encoded_name)?) {
            (None, None) => return Ok(None),
            (Some(plain), None) => plain.into_owned(),
            (None, Some(encoded)) => base64_decode(&encoded)
                .ok_or_else(|| Problem::invalid(format!("{encoded_name} must be base64")))?,
            (Some(_), Some(_)) => {
                return Err(Problem::invalid(format!("give either {name} or {encoded_name}")));
            }
        };
        check_key_length(&bytes, name)?;
        Ok(Some(Bytes::from(bytes)))
    }
}

/// Accepts both alphabets, with or without padding. A space is a `+` that the client did not
/// escape.
pub(super) fn base64_decode(encoded: &[u8]) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let standard: Vec<u8> = encoded
        .iter()
        .map(|&byte| match byte {
            b'-' | b' ' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    LENIENT.decode(standard).ok()
}

/// Decimal digits only: no sign, no space.
pub(super) fn parse_u64(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_decoding_yields_any_bytes() {
        for (raw, expected) in
            [("a", &b"a"[..]), ("a%2Fb", b"a/b"), ("%00%ff%FF", b"\x00\xff\xff"), ("a+b", b"a+b"), ("", b"")]
        {
            assert_eq!(percent_decode(raw.as_bytes()).unwrap().as_ref(), expected, "{raw}");
        }
    }

    #[test]
    fn malformed_escapes_are_refused() {
        for raw in ["%", "%2", "%zz", "a%2", "%%20", "%2\u{e9}", "%+1"] {
            assert!(percent_decode(raw.as_bytes()).is_err(), "{raw}");
            assert!(form_decode(raw.as_bytes()).is_err(), "{raw}");
        }
    }

    #[test]
    fn parameters_are_found_by_decoded_name_and_the_first_counts() {
        let parameters = Parameters::new(b"val=a+b%2B&ver=1&v%61l=second&bare&empty=");
        assert_eq!(parameters.get("val").unwrap().as_deref(), Some(&b"a b+"[..]));
        assert_eq!(parameters.get("bare").unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(parameters.get("empty").unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(parameters.get("absent").unwrap(), None);
        assert_eq!(Parameters::new(b"v%61l=x").get("val").unwrap().as_deref(), Some(&b"x"[..]));
    }

    #[test]
    fn flags_are_strict() {
        for (raw, expected) in
            [("", false), ("stale", true), ("stale=true", true), ("stale=false", false), ("other=1", false)]
        {
            assert_eq!(Parameters::new(raw.as_bytes()).flag("stale").unwrap(), expected, "{raw}");
        }
        for raw in ["stale=1", "stale=TRUE", "stale=yes"] {
            assert!(Parameters::new(raw.as_bytes()).flag("stale").is_err(), "{raw}");
        }
    }

    #[test]
    fn base64_is_taken_in_every_usual_spelling() {
        for raw in ["p_b64=%2B%2F8%3D", "p_b64=+/8=", "p_b64=-_8", "p_b64=-_8="] {
            let bytes = Parameters::new(raw.as_bytes()).key_bytes("p").unwrap().unwrap();
            assert_eq!(bytes.as_ref(), b"\xfb\xff", "{raw}");
        }
        assert!(Parameters::new(b"p_b64=!").key_bytes("p").is_err());
        assert!(Parameters::new(b"p_b64=YQ&p=a").key_bytes("p").is_err());
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"18446744073709551616", b"+1", b"-1", b" 1", b"1.0", b"abc", b"0x1", b"\xff"] {
            assert_eq!(parse_u64(bad), None, "{bad:?}");
        }
    }
}
