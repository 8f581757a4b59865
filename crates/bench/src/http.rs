//! A minimal HTTP/1.1 client: requests from a template, answers of known length, one after the
//! other.
//!
//! A general client would cost more than the servers that it measures. In this one requests hardly
//! differ, and it parses only an answer's length, its version, and whether the connection ends.

use std::sync::Arc;

use tidelock_client::http::uri::PathAndQuery;
use tidelock_client::http::{Method, Uri};
use tidelock_client::keys;

use crate::args::{Freshness, HttpBenchArgs};
use crate::keys::KeySpace;
use crate::protocol::{Answer, Decoded, Kind, Operation, Protocol, Status};
use crate::stamp::Stamp;

/// Most headers of an answer; the measured servers send fewer.
const HEADERS_MAX: usize = 64;

/// The longest content of an answer: the largest value is 1 MiB, a page of a list up to 32 MiB.
const CONTENT_BYTES_MAX: usize = 64 << 20;

/// Keys of the native interface. It has no `Debug`, because its bytes may have a token.
#[derive(Clone)]
pub(crate) struct KeyProtocol {
    pub keys: Arc<KeySpace>,
    pub value_bytes: usize,
    pub run: u32,
    /// The bytes before and after the key of a read.
    pub read: [Vec<u8>; 2],
    /// The bytes before and after the key of a write.
    pub write: [Vec<u8>; 2],
}

impl KeyProtocol {
    /// `headers` are lines that every request has, each with its end; `freshness` is that of every
    /// read.
    pub fn new(
        keys: Arc<KeySpace>,
        headers: &str,
        value_bytes: usize,
        run: u32,
        freshness: Freshness,
    ) -> KeyProtocol {
        let query = match freshness {
            Freshness::Linearizable => "",
            Freshness::Stale => "?stale=true",
        };
        KeyProtocol {
            keys,
            value_bytes,
            run,
            read: [b"GET /v1/keys/".to_vec(), format!("{query} HTTP/1.1\r\n{headers}\r\n").into_bytes()],
            write: [
                b"PUT /v1/keys/".to_vec(),
                format!(" HTTP/1.1\r\n{headers}content-length: {value_bytes}\r\n\r\n").into_bytes(),
            ],
        }
    }

    fn push_key(&self, index: u64, out: &mut Vec<u8>) {
        let start = out.len();
        self.keys.push(index, out);
        // The prefix may need encoding; that of the default does not.
        if !out[start..].iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:/".contains(byte)) {
            let encoded = keys::path(&out.split_off(start));
            out.extend_from_slice(&encoded.as_bytes()["/v1/keys/".len()..]);
        }
    }
}

impl Protocol for KeyProtocol {
    fn encode(&mut self, operation: &Operation, out: &mut Vec<u8>) {
        let [before, behind] = match operation.kind {
            Kind::Read => &self.read,
            Kind::Write => &self.write,
        };
        out.extend_from_slice(before);
        self.push_key(operation.key, out);
        out.extend_from_slice(behind);
        if operation.kind == Kind::Write {
            let start = out.len();
            out.resize(start + self.value_bytes, 0);
            Stamp { run: self.run, key: operation.key, sequence: operation.sequence }.fill(&mut out[start..]);
        }
    }

    fn decode<'a>(&mut self, input: &'a [u8], kind: Kind) -> Result<Option<Decoded<'a>>, String> {
        let Some(message) = Message::parse(input, false)? else { return Ok(None) };
        let answer = match (message.status, kind) {
            (200, Kind::Read) => Answer::Value { version: message.version, value: message.content },
            (404, Kind::Read) => Answer::Absent,
            (200 | 201, Kind::Write) => Answer::Written { version: message.version },
            _ => Answer::Refused(message.content),
        };
        Ok(Some(message.decoded(answer)))
    }
}

/// The protocol for one constant request. It has no `Debug`, because its bytes may have a token.
#[derive(Clone)]
pub(crate) struct FixedProtocol {
    /// Head and body, as they are sent.
    pub request: Vec<u8>,
    /// Whether answers have no content whatever their headers say.
    pub is_head: bool,
}

impl Protocol for FixedProtocol {
    fn encode(&mut self, _operation: &Operation, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    fn decode<'a>(&mut self, input: &'a [u8], _kind: Kind) -> Result<Option<Decoded<'a>>, String> {
        let Some(message) = Message::parse(input, self.is_head)? else { return Ok(None) };
        let answer = match message.status {
            200..=299 => Answer::Value { version: message.version, value: message.content },
            _ => Answer::Refused(message.content),
        };
        Ok(Some(message.decoded(answer)))
    }
}

/// A request of `bench http`. It has no `Debug`, because its head may have a token.
pub(crate) struct Request {
    /// `host:port`.
    pub address: String,
    pub is_https: bool,
    /// The head, without the empty line at its end.
    head: String,
    body: String,
}

impl Request {
    /// Parses the command line's settings; the error says which one is invalid.
    pub fn parse(args: &HttpBenchArgs) -> Result<Request, String> {
        let uri: Uri = args.url.parse().map_err(|error| format!("{}: {error}", args.url))?;
        let authority = match (uri.scheme_str(), uri.authority()) {
            (Some("http" | "https"), Some(authority)) if !authority.as_str().contains('@') => authority,
            _ => return Err(format!("{}: a URL is http://host:port/path", args.url)),
        };
        let method: Method = args.method.parse().map_err(|error| format!("{}: {error}", args.method))?;
        let target = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: {authority}\r\n");
        for header in &args.headers {
            match header.split_once(':') {
                Some((name, value)) if !header.contains(['\r', '\n']) && !name.trim().is_empty() => {
                    head.push_str(&format!("{}: {}\r\n", name.trim(), value.trim()));
                }
                _ => return Err(format!("{header:?}: a header is \"Name: value\"")),
            }
        }
        if let Some(body) = &args.body {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        let is_https = uri.scheme_str() == Some("https");
        let port = authority.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let address = format!("{}:{port}", authority.host());
        Ok(Request { address, is_https, head, body: args.body.clone().unwrap_or_default() })
    }

    /// Adds a line to the head, which has its end.
    pub fn add_header(&mut self, line: &str) {
        self.head.push_str(line);
    }

    /// Head and body, as they are sent.
    pub fn bytes(&self) -> Vec<u8> {
        format!("{}\r\n{}", self.head, self.body).into_bytes()
    }
}

/// A parsed answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// Length of head and content in bytes.
    pub bytes: usize,
    pub status: u16,
    /// The number in its entity tag.
    pub version: Option<u64>,
    /// Its content; chunked content includes the chunk headers, because it is not inspected.
    pub content: &'a [u8],
    /// Whether the server closes the connection after it.
    pub closes: bool,
}

impl<'a> Message<'a> {
    /// Parses the answer at the front of `input`, if it is complete.
    pub fn parse(input: &'a [u8], is_head: bool) -> Result<Option<Message<'a>>, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let head_bytes = match head.parse(input) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("not an HTTP answer: {error}")),
        };
        let status = head.code.unwrap_or_default();
        let (mut length, mut version, mut chunked, mut closes) = (None, None, false, head.version == Some(0));
        for header in head.headers.iter() {
            let name = header.name;
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(number(header.value).ok_or("a content-length that is no number")?);
            } else if name.eq_ignore_ascii_case("etag") {
                version = header
                    .value
                    .strip_prefix(b"\"")
                    .and_then(|rest| rest.strip_suffix(b"\""))
                    .and_then(number);
            } else if name.eq_ignore_ascii_case("connection") {
                closes = header.value.eq_ignore_ascii_case(b"close");
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = true;
            }
        }
        let rest = &input[head_bytes..];
        let content_bytes = match length {
            _ if is_head || matches!(status, 100..=199 | 204 | 304) => Some(0),
            _ if chunked => chunks_end(rest)?,
            Some(length) if length > CONTENT_BYTES_MAX as u64 => {
                return Err(format!("an answer of {length} bytes"));
            }
            Some(length) => Some(length as usize),
            None => return Err("an answer of no stated length".to_owned()),
        };
        let Some(content) = content_bytes.and_then(|bytes| rest.get(..bytes)) else { return Ok(None) };
        Ok(Some(Message { bytes: head_bytes + content.len(), status, version, content, closes }))
    }

    fn decoded(self, answer: Answer<'a>) -> Decoded<'a> {
        Decoded {
            bytes: self.bytes,
            content_bytes: self.content.len(),
            status: Status::Http(self.status),
            answer,
            closes: self.closes,
        }
    }
}

/// The length of the chunks and the trailer, if they are complete.
fn chunks_end(input: &[u8]) -> Result<Option<usize>, String> {
    let mut at = 0;
    loop {
        let (line_bytes, size) = match httparse::parse_chunk_size(&input[at..]) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("a chunk of no stated size".to_owned()),
        };
        if size > CONTENT_BYTES_MAX as u64 {
            return Err(format!("a chunk of {size} bytes"));
        }
        // The last chunk is empty; the measured servers send no trailers after it.
        at += line_bytes + size as usize + 2;
        if at > input.len() {
            return Ok(None);
        }
        if size == 0 {
            return Ok(Some(at));
        }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::mix;

    fn protocol(prefix: &str, freshness: Freshness) -> KeyProtocol {
        let mix = mix(&format!("--key-size 10 --keys 10 --key-prefix {prefix}"));
        KeyProtocol::new(Arc::new(KeySpace::new(&mix).unwrap()), "host: h:1\r\n", 24, 1, freshness)
    }

    fn encoded(protocol: &mut KeyProtocol, kind: Kind) -> Vec<u8> {
        let mut out = vec![];
        protocol.encode(&Operation { kind, key: 7, sequence: 1 }, &mut out);
        out
    }

    #[test]
    fn requests() {
        let read = encoded(&mut protocol("k:", Freshness::Stale), Kind::Read);
        assert_eq!(read, b"GET /v1/keys/k:00000007?stale=true HTTP/1.1\r\nhost: h:1\r\n\r\n");
        let write = encoded(&mut protocol("a~b.", Freshness::Linearizable), Kind::Write);
        let (head, value) = write.split_at(write.len() - 24);
        assert_eq!(head, b"PUT /v1/keys/a~b.000007 HTTP/1.1\r\nhost: h:1\r\ncontent-length: 24\r\n\r\n");
        assert_eq!(Stamp::read(value), Some(Stamp { run: 1, key: 7, sequence: 1 }));
    }

    #[test]
    fn requests_of_one_url() {
        #[derive(Parser)]
        struct TestArgs {
            #[command(flatten)]
            http: HttpBenchArgs,
        }
        let parse = |line: &[&str]| Request::parse(&TestArgs::parse_from([&["x"], line].concat()).http);
        let plain = parse(&["http://h/api?a=1&b=2"]).unwrap();
        assert_eq!(plain.address, "h:80");
        assert_eq!(plain.bytes(), b"GET /api?a=1&b=2 HTTP/1.1\r\nhost: h\r\n\r\n");
        let encrypted = parse(&["https://h/"]).unwrap();
        assert_eq!((encrypted.address.as_str(), encrypted.is_https, plain.is_https), ("h:443", true, false));
        let post = parse(&["http://[::1]:7/x", "-m", "POST", "--body", "bar", "-H", "Accept: a"]).unwrap();
        assert_eq!(post.address, "[::1]:7");
        let expected = "POST /x HTTP/1.1\r\nhost: [::1]:7\r\nAccept: a\r\ncontent-length: 3\r\n\r\nbar";
        assert_eq!(post.bytes(), expected.as_bytes());
        for bad in [
            &["h:80/"][..],
            &["ftp://h/"],
            &["http://u@h/"],
            &["http://h/", "-m", "G T"],
            &["http://h/", "-H", "no colon"],
            &["http://h/", "-H", "a: b\r\nc: d"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn answers() {
        let mut protocol = protocol("k:", Freshness::Linearizable);
        let text = b"HTTP/1.1 200 OK\r\nETag: \"6\"\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1";
        let decoded = protocol.decode(text, Kind::Read).unwrap().expect("a whole answer");
        assert_eq!(decoded.answer, Answer::Value { version: Some(6), value: b"hello" });
        assert_eq!(
            (decoded.bytes, decoded.status, decoded.closes),
            (text.len() - 8, Status::Http(200), false)
        );
        for end in 0..text.len() - 8 {
            assert!(protocol.decode(&text[..end], Kind::Read).unwrap().is_none(), "{end}");
        }
        let absent = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let decoded = protocol.decode(absent, Kind::Read).unwrap().expect("a whole answer");
        assert_eq!((decoded.answer, decoded.closes), (Answer::Absent, true));
        let refused = b"HTTP/1.1 503 x\r\ncontent-length: 2\r\n\r\nno";
        let decoded = protocol.decode(refused, Kind::Write).unwrap().expect("a whole answer");
        assert_eq!(decoded.answer, Answer::Refused(b"no"));
    }

    #[test]
    fn chunks_and_answers_without_content() {
        let text = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(Message::parse(text, false).unwrap().map(|message| message.bytes), Some(text.len()));
        for end in 0..text.len() {
            assert_eq!(Message::parse(&text[..end], false), Ok(None), "{end}");
        }
        for text in [&b"HTTP/1.1 204 No Content\r\n\r\n"[..], b"HTTP/1.1 304 x\r\ncontent-length: 9\r\n\r\n"]
        {
            assert_eq!(Message::parse(text, false).unwrap().map(|message| message.bytes), Some(text.len()));
        }
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n";
        assert_eq!(Message::parse(head, true).unwrap().map(|message| message.bytes), Some(head.len()));
    }

    #[test]
    fn what_cannot_be_an_answer_is_an_error() {
        for text in [
            &b"+OK\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
        ] {
            assert!(Message::parse(text, false).is_err(), "{:?}", String::from_utf8_lossy(text));
        }
    }
}
