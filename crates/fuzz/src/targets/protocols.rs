//! The Redis protocol: commands on a connection, and patterns of keys.

use tidelock_server::resp::frame::{CommandParseError, Parser};
use tidelock_server::resp::glob;

use super::{Target, texts};

pub const TARGETS: &[Target] = &[
    Target { name: "resp-commands", run: resp_commands, seeds: resp_seeds },
    Target { name: "glob-patterns", run: glob_patterns, seeds: glob_seeds },
];

type Commands = Vec<Vec<Vec<u8>>>;

/// The same commands are found however the bytes arrive, and again when they are encoded. A client
/// without a token finds a prefix of them.
fn resp_commands(input: &[u8]) {
    let whole = commands(input, input.len().max(1), false);
    // The place at which the input arrives in two pieces depends on it, so all are tried in time.
    let middle = input.iter().map(|byte| usize::from(*byte)).sum::<usize>() % input.len().max(1);
    for piece_bytes in [1, 2, 7, middle.max(1)] {
        assert_eq!(commands(input, piece_bytes, false), whole, "in pieces of {piece_bytes}");
    }
    let (limited, error) = commands(input, input.len().max(1), true);
    assert_eq!(limited[..], whole.0[..limited.len()], "the limits only refuse");
    assert!(error.is_some() || limited.len() == whole.0.len(), "what is refused, is an error");
    let bytes: usize = whole.0.iter().flatten().map(Vec::len).sum();
    assert!(bytes <= input.len(), "arguments of {bytes} bytes in {}", input.len());
    let encoded: Vec<u8> = whole.0.iter().flat_map(|arguments| encoded(arguments)).collect();
    assert_eq!(commands(&encoded, encoded.len().max(1), false), (whole.0, None), "encoded again");
}

fn encoded(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// All commands up to the first error, and that error.
fn commands(bytes: &[u8], piece_bytes: usize, is_limited: bool) -> (Commands, Option<CommandParseError>) {
    let (mut parser, mut input, mut found) = (Parser::default(), Vec::new(), Vec::new());
    parser.limit(is_limited);
    for piece in bytes.chunks(piece_bytes) {
        input.extend_from_slice(piece);
        loop {
            match parser.parse(&input) {
                Ok(Some(length)) => {
                    found.push(parser.arguments(&input).from(0).map(<[u8]>::to_vec).collect());
                    parser.advance();
                    input.drain(..length);
                }
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fn resp_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "*1\r\n$4\r\nPING\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n",
        "*0\r\n*-1\r\nPING\r\n",
        "SET \"a b\\x00\\n\" 'it\\'s' c\r\n",
        "\n\r\nGET k\n",
        "*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nEXEC\r\n",
        "*2\r\n$4\r\nAUTH\r\n$8388608\r\n",
    ])
}

/// Matching agrees with the plain definition of a star, on patterns without classes; what matches
/// begins with the literal prefix.
fn glob_patterns(input: &[u8]) {
    let at = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (pattern, key) = (&input[..at], input.get(at + 1..).unwrap_or_default());
    let matches = glob::matches(pattern, key);
    if matches {
        assert!(key.starts_with(glob::literal_prefix(pattern)), "a literal prefix is a prefix");
    }
    if !pattern.contains(&b'[') && pattern.len() <= 64 && key.len() <= 64 {
        assert_eq!(matches, matches_by_definition(pattern, key));
    }
}

/// A star stands for any number of bytes: a table of which beginnings of the key match which
/// beginnings of the pattern.
fn matches_by_definition(pattern: &[u8], key: &[u8]) -> bool {
    let mut matched = vec![false; key.len() + 1];
    matched[0] = true;
    let mut rest = pattern;
    while let Some((first, behind)) = rest.split_first() {
        let mut next = vec![false; key.len() + 1];
        if *first == b'*' {
            let shortest = matched.iter().position(|matched| *matched).unwrap_or(matched.len());
            next[shortest..].fill(true);
            rest = behind;
        } else {
            let (literal, behind) = match (first, behind.split_first()) {
                (b'\\', Some((escaped, behind))) => (Some(escaped), behind),
                (b'?', _) => (None, behind),
                _ => (Some(first), behind),
            };
            for (end, byte) in (1..).zip(key) {
                next[end] = matched[end - 1] && literal.is_none_or(|literal| literal == byte);
            }
            rest = behind;
        }
        matched = next;
    }
    matched[key.len()]
}

fn glob_seeds() -> Vec<Vec<u8>> {
    texts(&["user:*\0user:7", "h?llo\0hello", "a[^b-d\\]]*\0aex", "\\*\\\0*\\", "*a*b*\0xxaxxbxx", "[a\0a"])
}
