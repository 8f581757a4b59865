//! A minimal RESP2 client: `SET key value`, `GET key`, and their replies.

use std::borrow::Cow;
use std::sync::Arc;

use tidelock_client::Token;

use crate::args::Freshness;
use crate::keys::KeySpace;
use crate::protocol::{Answer, Decoded, Kind, Operation, Protocol, Status};
use crate::stamp::Stamp;

/// The longest bulk string of Redis.
const BULK_BYTES_MAX: i64 = 512 << 20;

/// The longest line of a reply; a longer one is malformed.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The protocol of one connection. It has no `Debug`, because its greeting may have a token.
#[derive(Clone)]
pub(crate) struct RespProtocol {
    keys: Arc<KeySpace>,
    value_bytes: usize,
    run: u32,
    /// Commands before the first request: the name of each, and its bytes.
    greeting: Vec<(&'static str, Vec<u8>)>,
    get: Vec<u8>,
    set: Vec<u8>,
    /// The bytes between key and value of a write.
    value_head: Vec<u8>,
}

impl RespProtocol {
    /// `freshness` is that of the connection's reads.
    pub fn new(keys: Arc<KeySpace>, value_bytes: usize, run: u32, freshness: Freshness) -> RespProtocol {
        let key_bytes = keys.key_bytes();
        let read_only = ("READONLY", b"*1\r\n$8\r\nREADONLY\r\n".to_vec());
        let greeting = if freshness == Freshness::Stale { vec![read_only] } else { vec![] };
        RespProtocol {
            get: format!("*2\r\n$3\r\nGET\r\n${key_bytes}\r\n").into_bytes(),
            set: format!("*3\r\n$3\r\nSET\r\n${key_bytes}\r\n").into_bytes(),
            value_head: format!("\r\n${value_bytes}\r\n").into_bytes(),
            keys,
            value_bytes,
            run,
            greeting,
        }
    }

    /// Begins each connection with the token.
    pub fn with_token(mut self, token: Option<&Token>) -> RespProtocol {
        if let Some(token) = token {
            let token = token.expose();
            let command = format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{token}\r\n", token.len());
            self.greeting.insert(0, ("AUTH", command.into_bytes()));
        }
        self
    }
}

impl Protocol for RespProtocol {
    fn greet(&mut self, out: &mut Vec<u8>) {
        self.greeting.iter().for_each(|(_, command)| out.extend_from_slice(command));
    }

    fn skip_greeting(&mut self, input: &[u8]) -> Result<Option<usize>, String> {
        let mut skipped = 0;
        for (name, _) in &self.greeting {
            match line(&input[skipped..])? {
                None => return Ok(None),
                Some((b'+', _, bytes)) => skipped += bytes,
                // The text of an error may repeat arguments; its first word does not.
                Some((_, text, _)) => {
                    let code = text.split(|&byte| byte == b' ').next().unwrap_or_default();
                    return Err(format!("{name} was refused: {}", String::from_utf8_lossy(code)));
                }
            }
        }
        Ok(Some(skipped))
    }

    fn encode(&mut self, operation: &Operation, out: &mut Vec<u8>) {
        match operation.kind {
            Kind::Read => {
                out.extend_from_slice(&self.get);
                self.keys.push(operation.key, out);
            }
            Kind::Write => {
                out.extend_from_slice(&self.set);
                self.keys.push(operation.key, out);
                out.extend_from_slice(&self.value_head);
                let start = out.len();
                out.resize(start + self.value_bytes, 0);
                Stamp { run: self.run, key: operation.key, sequence: operation.sequence }
                    .fill(&mut out[start..]);
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn decode<'a>(&mut self, input: &'a [u8], _kind: Kind) -> Result<Option<Decoded<'a>>, String> {
        let Some((sort, text, bytes)) = line(input)? else { return Ok(None) };
        let reply = |status, answer| Decoded { bytes, content_bytes: 0, status, answer, closes: false };
        let word = |word| Status::Word(Cow::Borrowed(word));
        match sort {
            b'+' => Ok(Some(reply(word("OK"), Answer::Written { version: None }))),
            b'-' => {
                let code = text.split(|&byte| byte == b' ').next().unwrap_or_default();
                let code = String::from_utf8_lossy(code).into_owned();
                Ok(Some(reply(Status::Word(Cow::Owned(code)), Answer::Refused(text))))
            }
            b'_' => Ok(Some(reply(word("nil"), Answer::Absent))),
            b'$' => match std::str::from_utf8(text).ok().and_then(|digits| digits.parse::<i64>().ok()) {
                Some(-1) => Ok(Some(reply(word("nil"), Answer::Absent))),
                Some(length @ 0..=BULK_BYTES_MAX) => {
                    let end = bytes + length as usize;
                    if input.len() < end + 2 {
                        return Ok(None);
                    }
                    let answer = Answer::Value { version: None, value: &input[bytes..end] };
                    let status = word("value");
                    Ok(Some(Decoded {
                        bytes: end + 2,
                        content_bytes: length as usize,
                        status,
                        answer,
                        closes: false,
                    }))
                }
                _ => Err("a bulk string of no possible length".to_owned()),
            },
            other => Err(format!("a reply that begins with {:?}", char::from(other))),
        }
    }
}

/// A line: its first byte, the rest of it, and how many bytes it takes with its end.
type ReplyLine<'a> = (u8, &'a [u8], usize);

/// The first line, if it is complete.
fn line(input: &[u8]) -> Result<Option<ReplyLine<'_>>, String> {
    let Some(end) = input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n') else {
        return if input.len() < LINE_BYTES_MAX { Ok(None) } else { Err("a line without an end".to_owned()) };
    };
    match input[..end].split_first() {
        Some((&sort, [text @ .., b'\r'])) => Ok(Some((sort, text, end + 1))),
        _ => Err("a line that does not end as one".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::mix;

    fn protocol(freshness: Freshness) -> RespProtocol {
        let mix = mix("--key-size 4 --keys 10 --key-prefix k:");
        RespProtocol::new(Arc::new(KeySpace::new(&mix).unwrap()), 24, 1, freshness)
    }

    #[test]
    fn requests() {
        let mut out = vec![];
        protocol(Freshness::Linearizable)
            .encode(&Operation { kind: Kind::Read, key: 7, sequence: 1 }, &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$4\r\nk:07\r\n");
        out.clear();
        protocol(Freshness::Linearizable)
            .encode(&Operation { kind: Kind::Write, key: 7, sequence: 1 }, &mut out);
        assert!(out.starts_with(b"*3\r\n$3\r\nSET\r\n$4\r\nk:07\r\n$24\r\n") && out.ends_with(b"\r\n"));
        let value = &out[out.len() - 26..out.len() - 2];
        assert_eq!(Stamp::read(value), Some(Stamp { run: 1, key: 7, sequence: 1 }));
    }

    #[test]
    fn replies() {
        for (text, answer, status) in [
            (&b"+OK\r\n"[..], Answer::Written { version: None }, "OK"),
            (b"$3\r\na\r\n\r\n", Answer::Value { version: None, value: b"a\r\n" }, "value"),
            (b"$-1\r\n", Answer::Absent, "nil"),
            (b"_\r\n", Answer::Absent, "nil"),
            (b"-NOLEADER try later\r\n", Answer::Refused(b"NOLEADER try later"), "NOLEADER"),
        ] {
            let mut two = text.to_vec();
            two.extend_from_slice(b"+x");
            let mut protocol = protocol(Freshness::Linearizable);
            let decoded = protocol.decode(&two, Kind::Read).unwrap().expect("a whole reply");
            assert_eq!((decoded.answer, decoded.bytes), (answer, text.len()));
            assert_eq!(decoded.status.to_string(), status);
            for end in 0..text.len() {
                assert!(protocol.decode(&text[..end], Kind::Read).unwrap().is_none(), "{end} of {status}");
            }
        }
    }

    #[test]
    fn what_cannot_be_a_reply_is_an_error() {
        for text in [&b"HTTP/1.1 400\r\n"[..], b"$x\r\n", b"$-2\r\n", b"\n", b"+OK\n"] {
            assert!(protocol(Freshness::Linearizable).decode(text, Kind::Read).is_err(), "{text:?}");
        }
        assert!(protocol(Freshness::Linearizable).decode(&[b'x'; LINE_BYTES_MAX], Kind::Read).is_err());
    }

    #[test]
    fn a_connection_for_stale_reads_says_so_first() {
        let mut out = vec![];
        protocol(Freshness::Stale).greet(&mut out);
        assert_eq!(out, b"*1\r\n$8\r\nREADONLY\r\n");
        assert_eq!(protocol(Freshness::Stale).skip_greeting(b"+O"), Ok(None));
        assert_eq!(protocol(Freshness::Stale).skip_greeting(b"+OK\r\n$"), Ok(Some(5)));
        assert!(protocol(Freshness::Stale).skip_greeting(b"-ERR unknown command\r\n").is_err());
        assert_eq!(protocol(Freshness::Linearizable).skip_greeting(b""), Ok(Some(0)));
    }

    #[test]
    fn a_connection_with_a_token_sends_it_first() {
        let text = "tdl_0123456789abcdef_Abcdefghij-lmnopqrstuv_xyzABCDEFGHIJKLMNOPQ_89abcdef";
        let token = Token::parse(text).expect("a token");
        let mut protocol = protocol(Freshness::Stale).with_token(Some(&token));
        let mut out = vec![];
        protocol.greet(&mut out);
        let expected = format!("*2\r\n$4\r\nAUTH\r\n$73\r\n{text}\r\n*1\r\n$8\r\nREADONLY\r\n");
        assert_eq!(String::from_utf8_lossy(&out), expected);
        assert_eq!(protocol.skip_greeting(b"+OK\r\n+O"), Ok(None));
        assert_eq!(protocol.skip_greeting(b"+OK\r\n+OK\r\n$"), Ok(Some(10)));
        let refused = protocol.skip_greeting(format!("-WRONGPASS {text}\r\n").as_bytes());
        assert_eq!(refused, Err("AUTH was refused: WRONGPASS".to_owned()));
    }
}
