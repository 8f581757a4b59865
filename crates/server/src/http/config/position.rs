//! How far a client of a watch has come, as text: the id of an event, and the index of a poll.
//!
//! ```text
//! 7              everything up to revision 7
//! 7:app          of revision 7, the events of containers up to `app`
//! 7@app          of the state as of revision 7, the containers up to `app`
//! ```
//!
//! Bytes of a key that a URL would have to encode are written as `~` and two hexadecimal digits. So
//! programs may put the text into a URL as it is.

use std::fmt::Write as _;

use tidelock_core::command::config::WatchPosition;

use super::super::uri::parse_u64;

/// The text of a position.
pub(super) fn to_text(position: &WatchPosition) -> String {
    let mut text = position.revision.to_string();
    if let Some(key) = &position.container {
        text.push(if position.is_state { '@' } else { ':' });
        for byte in key.bytes() {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'.' | b'_' | b'-' => text.push(char::from(byte)),
                _ => write!(text, "~{byte:02x}").expect("invariant: text can be written to a String"),
            }
        }
    }
    text
}

/// Reads what [`to_text`] wrote.
pub(super) fn parse(text: &[u8]) -> Option<WatchPosition> {
    let Some(at) = text.iter().position(|byte| matches!(byte, b':' | b'@')) else {
        return parse_u64(text).map(WatchPosition::through);
    };
    let container = Some(String::from_utf8(unescape(&text[at + 1..])?).ok()?.into());
    Some(WatchPosition { revision: parse_u64(&text[..at])?, container, is_state: text[at] == b'@' })
}

fn unescape(key: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'~' => {}
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'.' | b'_' | b'-' => {
                bytes.push(*first);
                continue;
            }
            _ => return None,
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digit = |position: usize| char::from(digits[position]).to_digit(16);
        bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_texts_that_fit_into_urls() {
        let position = |revision, key: Option<&str>, is_state| WatchPosition {
            revision,
            container: key.map(Into::into),
            is_state,
        };
        for (known, text) in [
            (position(7, None, false), "7"),
            (position(7, Some("app.server"), false), "7:app.server"),
            (position(7, Some(""), false), "7:"),
            (position(9, Some("a/b:~ü %"), true), "9@a~2fb~3a~7e~c3~bc~20~25"),
        ] {
            assert_eq!(to_text(&known), text);
            assert_eq!(parse(text.as_bytes()), Some(known), "{text}");
        }
        for malformed in ["", ":", ":a", "x", "-1", "7:a:9", "7@a@", "7:~", "7:~4", "7:~zz", "7:~ff", "7:a/b"]
        {
            assert_eq!(parse(malformed.as_bytes()), None, "{malformed}");
        }
    }
}
