//! Parses commands: the request half of the Redis protocol, without any I/O.
//!
//! Owns where a command and its arguments begin and end, for arrays of bulk strings and for inline
//! commands. It is called with all bytes received so far, repeatedly, and never reads a byte twice;
//! arguments are slices of those bytes. It does not interpret commands.
//!
//! Invariants: no length stated by a client makes it reserve memory. After an error it parses
//! nothing more.

use std::ops::Range;

/// Longest command in bytes: a value of the largest size, or a list of many keys, and some room.
pub const FRAME_BYTES_MAX: usize = 8 << 20;

/// Most arguments of one command. (Redis' own limit; in practice the length of a frame is the
/// tighter limit.)
pub const ARGUMENTS_MAX: usize = 1 << 20;

/// Longest inline command in bytes. (Redis' own limit.)
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// Most arguments of a command of a client that has yet to send a valid token. (Redis' own limit.)
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Longest argument of such a command in bytes. (Redis' own limit.)
pub const UNAUTHENTICATED_BYTES_MAX: usize = 16 << 10;

/// Longest line with a number, in bytes without the line end.
const NUMBER_BYTES_MAX: usize = 20;

/// Why bytes are not a command. It ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandParseError {
    /// The length of an array is not a number, or too large.
    #[error("invalid multibulk length")]
    ArrayLength,
    /// The length of a string is not a number, or too large.
    #[error("invalid bulk length")]
    BulkLength,
    /// An array contains something other than bulk strings, such as an array.
    #[error("expected '$', got '{}'", char::from(*.0).escape_default())]
    ExpectedBulk(u8),
    /// A bulk string is not followed by a line end.
    #[error("expected a line end after a string")]
    ExpectedLineEnd,
    /// More than [`UNAUTHENTICATED_ARGUMENTS_MAX`] arguments.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedArguments,
    /// An argument is longer than [`UNAUTHENTICATED_BYTES_MAX`].
    #[error("unauthenticated bulk length")]
    UnauthenticatedLength,
    /// Longer than [`FRAME_BYTES_MAX`].
    #[error("a command longer than 8 MiB")]
    TooLong,
    /// Longer than [`INLINE_BYTES_MAX`].
    #[error("too big inline request")]
    InlineTooLong,
    /// A quote that is not closed, or not followed by a space.
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// The position of an argument, as offsets in the frame.
type Span = Range<u32>;

/// An incremental parser of commands.
#[derive(Debug, Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// Arguments of an inline command, copied because they may contain escapes.
    inline: Vec<u8>,
    is_inline: bool,
    /// Whether the client has yet to send a valid token.
    is_limited: bool,
    /// How many bytes of the first frame were parsed.
    offset: usize,
    /// Number of arguments of the frame, once known.
    expected: Option<usize>,
    /// Length of the frame, once it is complete.
    complete: Option<usize>,
}

/// The arguments of a command, including its name.
#[derive(Clone, Copy, Debug)]
pub struct CommandArguments<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl Parser {
    /// Parses the command at the front of `input`, which begins like that of the last call and may
    /// be longer. Returns the length of the command's frame once it is complete. An empty command
    /// has no arguments.
    ///
    /// # Errors
    /// When the bytes are not a command.
    pub fn parse(&mut self, input: &[u8]) -> Result<Option<usize>, CommandParseError> {
        if self.complete.is_none() {
            self.complete = match input.first() {
                None => None,
                Some(b'*') if self.is_limited => self.array::<true>(input)?,
                Some(b'*') => self.array::<false>(input)?,
                Some(_) => self.line(input)?,
            };
        }
        Ok(self.complete)
    }

    /// Sets whether the limits for clients hold that have yet to send a valid token.
    pub fn limit(&mut self, is_limited: bool) {
        self.is_limited = is_limited;
    }

    /// The arguments of the complete command at the front of `input`.
    pub fn arguments<'a>(&'a self, input: &'a [u8]) -> CommandArguments<'a> {
        CommandArguments { bytes: if self.is_inline { &self.inline } else { input }, spans: &self.spans }
    }

    /// Continues with the next frame: the caller removes the complete one from the front of the
    /// input.
    pub fn advance(&mut self) {
        self.spans.clear();
        // An unusual command must not hold memory permanently.
        self.spans.shrink_to(1024);
        self.inline = Vec::new();
        self.is_inline = false;
        self.offset = 0;
        self.expected = None;
        self.complete = None;
    }

    /// `LIMITED`: the limits for clients hold that have yet to send a valid token. It is a
    /// parameter so that other clients do not pay for the checks.
    fn array<const LIMITED: bool>(&mut self, input: &[u8]) -> Result<Option<usize>, CommandParseError> {
        let expected = match self.expected {
            Some(expected) => expected,
            None => {
                let Some((count, behind)) = number(input, 1).map_err(|()| CommandParseError::ArrayLength)?
                else {
                    return Ok(None);
                };
                if count > ARGUMENTS_MAX as i64 {
                    return Err(CommandParseError::ArrayLength);
                }
                if LIMITED && count > UNAUTHENTICATED_ARGUMENTS_MAX as i64 {
                    return Err(CommandParseError::UnauthenticatedArguments);
                }
                self.offset = behind;
                // A negative length means an empty command, like an empty array.
                *self.expected.insert(count.max(0) as usize)
            }
        };
        while self.spans.len() < expected {
            match input.get(self.offset) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(&other) => return Err(CommandParseError::ExpectedBulk(other)),
            }
            let Some((length, start)) =
                number(input, self.offset + 1).map_err(|()| CommandParseError::BulkLength)?
            else {
                return Ok(None);
            };
            let length = usize::try_from(length).map_err(|_| CommandParseError::BulkLength)?;
            if LIMITED && length > UNAUTHENTICATED_BYTES_MAX {
                return Err(CommandParseError::UnauthenticatedLength);
            }
            if length > FRAME_BYTES_MAX || start + length + 2 > FRAME_BYTES_MAX {
                return Err(CommandParseError::TooLong);
            }
            let end = start + length;
            match input.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(CommandParseError::ExpectedLineEnd),
                None => return Ok(None),
            }
            self.spans.push(start as u32..end as u32);
            self.offset = end + 2;
        }
        Ok(Some(self.offset))
    }

    fn line(&mut self, input: &[u8]) -> Result<Option<usize>, CommandParseError> {
        let searched = input.get(self.offset..).unwrap_or_default();
        let Some(at) = searched.iter().position(|&byte| byte == b'\n') else {
            self.offset = input.len();
            return if input.len() > INLINE_BYTES_MAX {
                Err(CommandParseError::InlineTooLong)
            } else {
                Ok(None)
            };
        };
        let end = self.offset + at;
        if end > INLINE_BYTES_MAX {
            return Err(CommandParseError::InlineTooLong);
        }
        self.is_inline = true;
        let line = &input[..end];
        self.split(line.strip_suffix(b"\r").unwrap_or(line))?;
        Ok(Some(end + 1))
    }

    /// Splits a line at spaces, with quotes and escapes as in a shell and in Redis.
    fn split(&mut self, line: &[u8]) -> Result<(), CommandParseError> {
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            let Some(&first) = rest.first() else { return Ok(()) };
            let start = self.inline.len() as u32;
            rest = match first {
                b'"' | b'\'' => {
                    let behind =
                        unquote(&rest[1..], first, &mut self.inline).ok_or(CommandParseError::Quotes)?;
                    if behind.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return Err(CommandParseError::Quotes);
                    }
                    behind
                }
                _ => {
                    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                    self.inline.extend_from_slice(&rest[..end]);
                    &rest[end..]
                }
            };
            self.spans.push(start..self.inline.len() as u32);
        }
    }
}

impl<'a> CommandArguments<'a> {
    /// Number of arguments, including the name of the command.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the client sent an empty command.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// An argument; the name of the command is number 0.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.bytes[span.start as usize..span.end as usize])
    }

    /// All arguments from number `index` on.
    pub fn from(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        let spans = self.spans.get(index..).unwrap_or_default();
        spans.iter().map(move |span| &bytes[span.start as usize..span.end as usize])
    }
}

impl<'a> std::ops::Index<usize> for CommandArguments<'a> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        let span = &self.spans[index];
        &self.bytes[span.start as usize..span.end as usize]
    }
}

/// Parses the number of the line at `offset`. Returns it and the offset of the next line.
fn number(input: &[u8], offset: usize) -> Result<Option<(i64, usize)>, ()> {
    let line = input.get(offset..).unwrap_or_default();
    let window = &line[..line.len().min(NUMBER_BYTES_MAX + 2)];
    // Most numbers have one to three digits.
    let Some(end) = window.iter().position(|&byte| byte == b'\r') else {
        return if window.len() > NUMBER_BYTES_MAX { Err(()) } else { Ok(None) };
    };
    // The same result whether the line end has arrived or not.
    if end > NUMBER_BYTES_MAX {
        return Err(());
    }
    match line.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(()),
    }
    let (digits, is_negative) = match &line[..end] {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if digits.is_empty() {
        return Err(());
    }
    let mut value = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(());
        }
        value =
            value.checked_mul(10).and_then(|value| value.checked_add(i64::from(digit - b'0'))).ok_or(())?;
    }
    Ok(Some((if is_negative { -value } else { value }, offset + end + 2)))
}

/// Appends the text up to the closing quote. Returns what follows it.
fn unquote<'a>(mut rest: &'a [u8], quote: u8, out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        if byte == quote {
            return Some(rest);
        }
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match (quote, rest) {
            (b'"', [b'x', high, low, behind @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(hex(*high) << 4 | hex(*low));
                rest = behind;
            }
            (b'"', [escaped, behind @ ..]) => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = behind;
            }
            (_, [b'\'', behind @ ..]) => {
                out.push(b'\'');
                rest = behind;
            }
            _ => out.push(b'\\'),
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All commands in bytes that arrive in pieces of a size.
    fn commands(bytes: &[u8], piece_bytes: usize) -> Result<Vec<Vec<Vec<u8>>>, CommandParseError> {
        let (mut parser, mut input, mut found) = (Parser::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(piece_bytes) {
            input.extend_from_slice(piece);
            while let Some(length) = parser.parse(&input)? {
                found.push(parser.arguments(&input).from(0).map(<[u8]>::to_vec).collect());
                parser.advance();
                input.drain(..length);
            }
        }
        Ok(found)
    }

    fn whole(bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, CommandParseError> {
        commands(bytes, bytes.len().max(1))
    }

    #[test]
    fn commands_are_found_in_pieces_of_any_size() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\nPING\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n  set  \"a b\"  'c'\n\r\n";
        let expected: Vec<Vec<&[u8]>> = vec![
            vec![b"GET", b"a\r\n"],
            vec![b"PING"],
            vec![],
            vec![],
            vec![b""],
            vec![b"set", b"a b", b"c"],
            vec![],
        ];
        for piece_bytes in 1..=bytes.len() {
            assert_eq!(commands(bytes, piece_bytes).unwrap(), expected, "{piece_bytes}");
        }
    }

    #[test]
    fn quotes_are_those_of_redis() {
        let split = |line: &[u8]| whole(line).map(|commands| commands.concat());
        assert_eq!(split(b"\"\\x00\\xfF\\n\\\"\\q\" x\n").unwrap(), [&b"\0\xff\n\"q"[..], b"x"]);
        assert_eq!(split(b"'a\\'b\\n'\n").unwrap(), [b"a'b\\n"]);
        assert_eq!(split(b"\"\" a\"b\n").unwrap(), [&b""[..], b"a\"b"]);
        for bad in [&b"\"a\n"[..], b"'a\n", b"\"a\"b\n", b"\"a\\\n"] {
            assert_eq!(whole(bad), Err(CommandParseError::Quotes), "{bad:?}");
        }
    }

    #[test]
    fn what_is_no_command_is_refused_as_soon_as_that_shows() {
        for (bytes, error) in [
            (&b"*x"[..], None),
            (b"*x\r\n", Some(CommandParseError::ArrayLength)),
            (b"*\r\n", Some(CommandParseError::ArrayLength)),
            (b"*1\rx", Some(CommandParseError::ArrayLength)),
            (b"*1048577\r\n", Some(CommandParseError::ArrayLength)),
            (b"*99999999999999999999", None),
            (b"*999999999999999999999", Some(CommandParseError::ArrayLength)),
            (b"*999999999999999999999\r", Some(CommandParseError::ArrayLength)),
            (b"*99999999999999999999\r\n", Some(CommandParseError::ArrayLength)),
            (b"*1\r\n+", Some(CommandParseError::ExpectedBulk(b'+'))),
            (b"*1\r\n*1\r\n", Some(CommandParseError::ExpectedBulk(b'*'))),
            (b"*1\r\n$-1\r\n", Some(CommandParseError::BulkLength)),
            (b"*1\r\n$a\r\n", Some(CommandParseError::BulkLength)),
            (b"*1\r\n$1000000000\r\n", Some(CommandParseError::TooLong)),
            (b"*1\r\n$1\r\nabc", Some(CommandParseError::ExpectedLineEnd)),
        ] {
            assert_eq!(whole(bytes).err(), error, "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn limits_hold_on_both_sides() {
        let bulk = |length: usize| {
            [format!("*1\r\n${length}\r\n").as_bytes(), &vec![b'x'; length], b"\r\n"].concat()
        };
        let fits = FRAME_BYTES_MAX - "*1\r\n$8388592\r\n".len() - 2;
        assert_eq!(whole(&bulk(fits)).unwrap()[0][0].len(), fits);
        assert_eq!(whole(&bulk(fits + 1)), Err(CommandParseError::TooLong));
        let line = |length: usize| [&vec![b'x'; length][..], b"\n"].concat();
        assert_eq!(whole(&line(INLINE_BYTES_MAX)).unwrap()[0][0].len(), INLINE_BYTES_MAX);
        assert_eq!(whole(&line(INLINE_BYTES_MAX + 1)), Err(CommandParseError::InlineTooLong));
        assert_eq!(whole(&vec![b'x'; INLINE_BYTES_MAX + 1]), Err(CommandParseError::InlineTooLong));
    }
}
