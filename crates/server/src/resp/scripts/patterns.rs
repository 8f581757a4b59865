//! Whether a call of a library function may take too long.
//!
//! The functions of the interpreter's libraries are not interrupted. Matching a pattern takes a
//! number of steps that grows with the length of the text to the power of the number of repetitions
//! in the pattern. So the steps of the worst text of that length are counted before the call, and a
//! call that might take seconds is refused.

use tidelock_core::limits::SCRIPT_MEMORY_BYTES_MAX;

/// Most steps that one call may take in the worst case: about a second.
const STEPS_MAX: f64 = 5e8;

/// Longest pattern. The matcher calls itself for each item of it.
const PATTERN_BYTES_MAX: usize = 4 << 10;

/// Bytes that a search for plain text compares in one step.
const PLAIN_BYTES_PER_STEP: f64 = 8.0;

/// Why a text may not be searched for a pattern, or for plain text.
pub fn refuse_pattern(text: &[u8], pattern: &[u8], is_plain: bool) -> Option<&'static str> {
    if is_plain || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte)) {
        let steps = text.len() as f64 * pattern.len() as f64 / PLAIN_BYTES_PER_STEP;
        return (steps > STEPS_MAX).then_some("text is too long to be searched for in a text of this length");
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Some("pattern is longer than 4 KiB");
    }
    (steps(text.len(), pattern) > STEPS_MAX).then_some("pattern is too complex for a text of this length")
}

/// Why a text may not be repeated.
pub fn refuse_repetition(text: &[u8], count: f64) -> Option<&'static str> {
    // Copying nothing takes time as well.
    let bytes = (text.len().max(1)) as f64 * count;
    (bytes > SCRIPT_MEMORY_BYTES_MAX as f64).then_some("resulting string too large")
}

/// The number of ways to place the repetitions of a pattern in a text: of a start and the ends of
/// `count` repetitions, in order, there are as many as multisets of `count + 1` of its positions.
fn steps(text_bytes: usize, pattern: &[u8]) -> f64 {
    let Items { repetitions, options } = items_of(pattern);
    let is_anchored = pattern.first() == Some(&b'^');
    let chosen = repetitions + usize::from(!is_anchored);
    let positions = text_bytes as f64 + 1.0;
    let mut ways = 1.0;
    for number in 0..chosen {
        ways *= (positions + number as f64) / (number as f64 + 1.0);
    }
    ways * 2f64.powi(options.min(1_000) as i32)
}

struct Items {
    /// Items that match any number of characters.
    repetitions: usize,
    /// Items that match one character or none.
    options: usize,
}

/// Counts the items of a pattern that can match in several ways.
fn items_of(pattern: &[u8]) -> Items {
    let mut items = Items { repetitions: 0, options: 0 };
    let mut at = 0;
    while let Some(&byte) = pattern.get(at) {
        at += match byte {
            b'%' if pattern.get(at + 1) == Some(&b'b') => {
                items.repetitions += 1;
                4
            }
            b'%' => 2,
            b'[' => class_bytes(&pattern[at..]),
            _ => 1,
        };
        match pattern.get(at) {
            // At the start, or after a bracket, such a character stands for itself: it is counted
            // as a repetition nevertheless.
            Some(b'*' | b'+' | b'-') => items.repetitions += 1,
            Some(b'?') => items.options += 1,
            _ => continue,
        }
        at += 1;
    }
    items
}

/// Length of the class at the front of a pattern.
fn class_bytes(pattern: &[u8]) -> usize {
    let mut at = 1 + usize::from(pattern.get(1) == Some(&b'^'));
    // A bracket in the first place stands for itself.
    at += usize::from(pattern.get(at) == Some(&b']'));
    loop {
        match pattern.get(at) {
            None => return at,
            Some(b']') => return at + 1,
            Some(b'%') => at += 2,
            Some(_) => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_counted() {
        for (pattern, repetitions, options) in [
            ("abc", 0, 0),
            ("a*b+c-d?", 3, 1),
            ("%*%+", 0, 0),
            ("[*+-]", 0, 0),
            ("[]*]+[^]-]?[%]*]*", 2, 1),
            ("%b()", 1, 0),
            ("(%d+)-(%d+)", 3, 0),
            ("[", 0, 0),
            ("%", 0, 0),
            ("[%", 0, 0),
        ] {
            let items = items_of(pattern.as_bytes());
            assert_eq!((items.repetitions, items.options), (repetitions, options), "{pattern}");
        }
    }

    #[test]
    fn only_calls_that_may_take_long_are_refused() {
        let refused =
            |bytes: usize, pattern: &str| refuse_pattern(&vec![b'a'; bytes], pattern.as_bytes(), false);
        for (bytes, pattern) in [
            (1 << 20, "^%s*"),
            (20_000, "%s+$"),
            (1_000, "^(.-):(.*)$"),
            (36, "%x+-%x+-%x+-%x+-%x+"),
            (20, "(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)"),
            (1 << 20, "a plain word"),
        ] {
            assert_eq!(refused(bytes, pattern), None, "{pattern}");
        }
        for (bytes, pattern) in
            [(1 << 20, "a*b"), (10_000, ".-.-.-b"), (100, &"a?".repeat(100)), (1, &".".repeat(5_000))]
        {
            assert!(refused(bytes, pattern).is_some(), "{pattern}");
        }
        assert!(refuse_pattern(&[0; 1 << 20], &[0; 1 << 19], true).is_some());
        assert_eq!(refuse_pattern(&[0; 1 << 20], b"a*b", true), None);
        assert!(refuse_repetition(b"", 1e18).is_some() && refuse_repetition(b"ab", 1e9).is_some());
        assert_eq!(refuse_repetition(b"ab", 1e6), None);
        assert_eq!(refuse_repetition(b"ab", -1e18), None);
    }
}
