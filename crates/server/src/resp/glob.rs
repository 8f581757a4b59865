//! Glob patterns for keys, as in Redis: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a literal
//! character.
//!
//! Owns their meaning. Matching backtracks to the last star only, so its time is at most
//! proportional to the pattern's length times the key's.

/// Whether the pattern matches all of `text`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // The position after the last star, and how far into the text it reaches.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, read));
            at += 1;
        } else if let Some(next) = one(&pattern[at..], text[read]) {
            at += next;
            read += 1;
        } else if let Some((behind, reach)) = star {
            at = behind;
            read = reach + 1;
            star = Some((behind, read));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// The literal bytes with which every match begins.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
    &pattern[..end]
}

/// Matches one byte. Returns the length of the pattern's part that matched.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', class @ ..] => class_matches(class, byte),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Matches a class, given after its opening bracket. A class that is not closed extends to the end
/// of the pattern.
fn class_matches(class: &[u8], byte: u8) -> Option<usize> {
    let (negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    loop {
        match rest {
            [] => break,
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [b'\\', escaped, behind @ ..] => {
                found |= *escaped == byte;
                rest = behind;
            }
            [from, b'-', to, behind @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest = behind;
            }
            [literal, behind @ ..] => {
                found |= *literal == byte;
                rest = behind;
            }
        }
    }
    (found != negated).then_some(1 + class.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("*a*b*", "xxaxxbxx", true),
            ("?", "", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("[a", "a", true),
            ("user:*:name", "user:17:name", true),
            ("user:*:name", "user:17:names", false),
            ("**", "abc", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn no_pattern_takes_for_ever() {
        let pattern = "a*".repeat(1_000) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(4_096).as_bytes()));
    }

    #[test]
    fn prefixes_end_at_the_first_special_byte() {
        for (pattern, prefix) in
            [("user:*", "user:"), ("a[b]", "a"), ("abc", "abc"), ("*", ""), ("a\\*", "a")]
        {
            assert_eq!(literal_prefix(pattern.as_bytes()), prefix.as_bytes());
        }
    }
}
