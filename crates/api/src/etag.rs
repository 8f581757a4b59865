//! Entity tags (RFC 9110, section 8.8.3), alone and in the lists of `If-Match` and `If-None-Match`.
//!
//! Owns the grammar. The callers decide which tags are equal to theirs.

/// An entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// The bytes between the quotes.
    pub opaque: &'a [u8],
    /// Whether the tag is `W/"…"`: an intermediary re-encoded the content. Good enough to avoid a
    /// download, not to overwrite.
    pub is_weak: bool,
}

impl<'a> EntityTag<'a> {
    /// Parses a text that is one tag.
    pub fn parse(text: &'a [u8]) -> Option<EntityTag<'a>> {
        EntityTag::split(text).filter(|(_, rest)| rest.is_empty()).map(|(tag, _)| tag)
    }

    /// The tag at the beginning of a text, and the rest.
    fn split(text: &'a [u8]) -> Option<(EntityTag<'a>, &'a [u8])> {
        let strong = text.strip_prefix(b"W/");
        let quoted = strong.unwrap_or(text).strip_prefix(b"\"")?;
        let end = quoted.iter().position(|&byte| byte == b'"')?;
        let opaque = &quoted[..end];
        let is_valid = opaque.iter().all(|byte| matches!(byte, b'!'..=b'~' | 0x80..));
        is_valid.then_some((EntityTag { opaque, is_weak: strong.is_some() }, &quoted[end + 1..]))
    }

    /// The version of a key that the tag names; `None` if it is not a decimal number of 64 bits.
    pub fn version(self) -> Option<u64> {
        let is_number = self.opaque.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(self.opaque).ok().filter(|_| is_number)?.parse().ok()
    }
}

/// The tags of a list. An item that is not a tag is `None`, and ends the list. As section 5.6.1
/// demands, empty items are skipped.
pub fn list(text: &[u8]) -> impl Iterator<Item = Option<EntityTag<'_>>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_filler = |byte: &u8| matches!(byte, b' ' | b'\t' | b',');
        rest = &rest[rest.iter().position(|byte| !is_filler(byte))?..];
        let found = EntityTag::split(rest).filter(|(_, rest)| {
            let next = rest.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
            next.is_none_or(|&byte| byte == b',')
        });
        rest = found.map_or(&[], |(_, rest)| rest);
        Some(found.map(|(tag, _)| tag))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_quoted() {
        for (text, version) in [
            ("\"6\"", Some(6)),
            ("W/\"6\"", Some(6)),
            ("\"18446744073709551615\"", Some(u64::MAX)),
            ("\"18446744073709551616\"", None),
            ("\"+6\"", None),
            ("\"x,y\"", None),
            ("\"\"", None),
        ] {
            assert_eq!(EntityTag::parse(text.as_bytes()).expect("a tag").version(), version, "{text}");
        }
        for text in ["6", "\"6", "6\"", "w/\"6\"", "W/6", "\"6\"7", "\"a b\"", "\"\u{7f}\"", "", "*"] {
            assert_eq!(EntityTag::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn lists_have_commas() {
        for (text, expected) in [
            ("\"a\"", "a"),
            ("\"a\" ,\tW/\"b\"", "a W/b"),
            ("\"a,b\",\"c\"", "a,b c"),
            (", \"a\",,\"b\",", "a b"),
            ("", ""),
            ("*", "?"),
            ("\"a\" \"b\"", "?"),
            ("\"a\", b, \"c\"", "a ?"),
        ] {
            let shown = list(text.as_bytes()).map(|tag| {
                let Some(EntityTag { opaque, is_weak }) = tag else { return "?".to_owned() };
                format!("{}{}", if is_weak { "W/" } else { "" }, String::from_utf8_lossy(opaque))
            });
            assert_eq!(shown.collect::<Vec<_>>().join(" "), expected, "{text}");
        }
    }
}
