//! Encodes replies: the reply half of the Redis protocol, in both of its versions.
//!
//! Owns the encoding of each kind of reply in RESP2 and RESP3, not what is replied when.

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, which every connection begins with.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// Appends encoded replies to a buffer, in one protocol version.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

/// Most bytes that a bulk string has besides its content: `$`, the digits of its length, and two
/// line ends.
const BULK_FRAME_BYTES_MAX: usize = 1 + 20 + 2 + 2;

impl<'a> Encoder<'a> {
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Encoder<'a> {
        Encoder { out, protocol }
    }

    /// Appends `+OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Appends a short text without line ends.
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.line_end();
    }

    /// Appends an error: a code in capitals, then text. Line ends in it are replaced.
    pub fn error(&mut self, text: &str) {
        self.out.push(b'-');
        self.out.extend(text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
        self.line_end();
    }

    /// Appends a number.
    pub fn integer(&mut self, value: i64) {
        self.out.push(b':');
        if value < 0 {
            self.out.push(b'-');
        }
        self.decimal(value.unsigned_abs());
        self.line_end();
    }

    /// Appends a number that may exceed the signed range. Redis has no type for it; clients get it
    /// as a string.
    pub fn unsigned(&mut self, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.integer(value),
            Err(_) => self.bulk(value.to_string().as_bytes()),
        }
    }

    /// Appends a string of any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        // One check of the capacity instead of one for each part.
        self.out.reserve(bytes.len() + BULK_FRAME_BYTES_MAX);
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.line_end();
    }

    /// Appends text for people, which clients show as it is.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.out.push(b'=');
                self.decimal(text.len() as u64 + 4);
                self.out.extend_from_slice(b"\r\ntxt:");
                self.out.extend_from_slice(text.as_bytes());
                self.line_end();
            }
        }
    }

    /// Appends the reply for an absent value.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Appends the reply for an absent array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Appends the header of an array of `length` replies.
    pub fn array(&mut self, length: usize) {
        self.header(b'*', length);
    }

    /// Appends the header of a map of `length` names, each with its value.
    pub fn map(&mut self, length: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', length * 2),
            Protocol::Resp3 => self.header(b'%', length),
        }
    }

    /// Appends the header of a set of `length` replies.
    pub fn set(&mut self, length: usize) {
        self.header(if self.protocol == Protocol::Resp3 { b'~' } else { b'*' }, length);
    }

    /// Appends the header of a message of `length` parts that answers no command. In RESP2 it looks
    /// like a reply, so clients get it only where they expect it.
    pub fn push(&mut self, length: usize) {
        self.header(if self.protocol == Protocol::Resp3 { b'>' } else { b'*' }, length);
    }

    /// Appends replies that are already encoded.
    pub fn raw(&mut self, encoded: &[u8]) {
        self.out.extend_from_slice(encoded);
    }

    fn header(&mut self, kind: u8, length: usize) {
        // Most values have fewer than a hundred bytes.
        if let tens @ 1..10 = length / 10 {
            let digits = [tens, length % 10].map(|digit| b'0' + digit as u8);
            return self.out.extend_from_slice(&[kind, digits[0], digits[1], b'\r', b'\n']);
        }
        self.out.push(kind);
        self.decimal(length as u64);
        self.line_end();
    }

    fn line_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    fn decimal(&mut self, mut value: u64) {
        if value < 10 {
            return self.out.push(b'0' + value as u8);
        }
        let mut digits = [0; 20];
        let mut start = digits.len();
        while value > 0 {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
        }
        self.out.extend_from_slice(&digits[start..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(protocol: Protocol, replies: impl FnOnce(&mut Encoder<'_>)) -> String {
        let mut out = Vec::new();
        replies(&mut Encoder::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies_are_spelt_by_version() {
        let all = |encoder: &mut Encoder<'_>| {
            encoder.null();
            encoder.null_array();
            encoder.map(1);
            encoder.set(2);
            encoder.push(3);
            encoder.verbatim("ab");
        };
        assert_eq!(encoded(Protocol::Resp2, all), "$-1\r\n*-1\r\n*2\r\n*2\r\n*3\r\n$2\r\nab\r\n");
        assert_eq!(encoded(Protocol::Resp3, all), "_\r\n_\r\n%1\r\n~2\r\n>3\r\n=6\r\ntxt:ab\r\n");
    }

    #[test]
    fn the_length_of_a_string_has_as_many_digits_as_it_needs() {
        for length in [0, 1, 9, 10, 11, 19, 20, 99, 100, 101, 999, 1000, 123_456] {
            let bytes = vec![b'x'; length];
            let expected = format!("${length}\r\n{}\r\n", "x".repeat(length));
            assert_eq!(encoded(Protocol::Resp2, |encoder| encoder.bulk(&bytes)), expected);
        }
    }

    #[test]
    fn numbers_texts_and_errors() {
        let all = |encoder: &mut Encoder<'_>| {
            [0, 9, 10, -1, i64::MIN, i64::MAX].iter().for_each(|number| encoder.integer(*number));
            encoder.unsigned(u64::MAX);
            encoder.bulk(b"a\r\n");
            encoder.error("ERR a\r\nb");
            encoder.array(12);
        };
        let expected = ":0\r\n:9\r\n:10\r\n:-1\r\n:-9223372036854775808\r\n:9223372036854775807\r\n\
                        $20\r\n18446744073709551615\r\n$3\r\na\r\n\r\n-ERR a  b\r\n*12\r\n";
        assert_eq!(encoded(Protocol::Resp2, all), expected);
    }
}
