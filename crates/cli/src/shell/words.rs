//! The words of a line, as a POSIX shell splits it: quotes and backslashes, nothing else.

/// The words of a line up to the cursor.
#[derive(Debug, PartialEq, Eq)]
pub struct CursorContext {
    /// The words before the one at the cursor.
    pub words: Vec<String>,
    /// The beginning of the word at the cursor, without quotes.
    pub begun: String,
    /// The byte offset of that word in the line.
    pub start: usize,
}

/// Splits what is before the cursor. A quote that is still open ends there.
pub fn before_cursor(line: &str) -> CursorContext {
    let start = start_of_last_word(line);
    let words = shlex::split(&line[..start]).unwrap_or_default();
    let rest = &line[start..];
    let begun = ["", "'", "\""].iter().find_map(|end| shlex::split(&format!("{rest}{end}")));
    let begun = begun.and_then(|words| words.into_iter().next()).unwrap_or_default();
    CursorContext { words, begun, start }
}

/// Drops the name of the program, with which a command begins that was copied from elsewhere.
pub fn without_program_name(words: &[String]) -> &[String] {
    match words {
        [first, rest @ ..] if first == "tidelock" => rest,
        words => words,
    }
}

/// The byte offset behind the last space that separates words.
fn start_of_last_word(line: &str) -> usize {
    let (mut start, mut quote, mut is_escaped) = (0, None, false);
    for (position, character) in line.char_indices() {
        match (quote, character) {
            _ if is_escaped => is_escaped = false,
            (None | Some('"'), '\\') => is_escaped = true,
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, ' ' | '\t') => start = position + 1,
            (None, _) => {}
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_cursor_is_found_behind_quotes() {
        for (line, words, begun, start) in [
            ("", &[][..], "", 0),
            ("kv", &[], "kv", 0),
            ("kv ", &["kv"], "", 3),
            ("kv  get app/", &["kv", "get"], "app/", 8),
            ("kv get 'a b", &["kv", "get"], "a b", 7),
            ("kv get \"a 'b", &["kv", "get"], "a 'b", 7),
            ("kv put 'a b' \"c d\" e", &["kv", "put", "a b", "c d"], "e", 19),
            (r"kv get a\ b", &["kv", "get"], "a b", 7),
            ("kv get ü ö", &["kv", "get", "ü"], "ö", 10),
        ] {
            let words = words.iter().map(|word| String::from(*word)).collect();
            let expected = CursorContext { words, begun: begun.to_owned(), start };
            assert_eq!(before_cursor(line), expected, "{line}");
        }
    }
}
