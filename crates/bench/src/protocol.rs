//! The two traits from which `connection` is built: the protocol, and the work.
//!
//! A [`Protocol`] encodes requests and decodes answers. A [`Work`] chooses requests and checks
//! answers, without knowing bytes.

use std::borrow::Cow;
use std::fmt;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub kind: Kind,
    /// Index of its key in the [`KeySpace`](super::keys::KeySpace).
    pub key: u64,
    /// Number of the write; of a read, the number that the next write will have.
    pub sequence: u64,
}

/// A request that has been sent, or is about to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub operation: Operation,
    /// When it was due, or when it was sent in a closed loop: latency counts from here.
    pub due: Instant,
    /// The floor of the key when it was sent; see `ledger`.
    pub floor: u64,
    /// Every write with a lower number had been answered when it was sent.
    pub settled_below: u64,
}

/// A server's answer, independent of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    Value {
        /// Its version, where the protocol shows one.
        version: Option<u64>,
        value: &'a [u8],
    },
    Absent,
    Written {
        /// The key's version, where the protocol shows one.
        version: Option<u64>,
    },
    /// It was not done, or the outcome is unknown; with the server's text.
    Refused(&'a [u8]),
}

/// The kind of an answer as its protocol names it: an HTTP status, or the first word of a reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    Http(u16),
    /// The first word of a RESP reply.
    Word(Cow<'static, str>),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Http(status) => write!(f, "{status}"),
            Status::Word(word) => f.write_str(word),
        }
    }
}

/// One decoded answer from the front of the input.
#[derive(Debug)]
pub(crate) struct Decoded<'a> {
    /// Length of the whole answer in bytes.
    pub bytes: usize,
    /// Number of content bytes in it.
    pub content_bytes: usize,
    pub status: Status,
    pub answer: Answer<'a>,
    /// Whether the server takes no further requests on this connection.
    pub closes: bool,
}

/// The protocol of one connection. Answers are in the order of requests.
pub(crate) trait Protocol {
    /// The bytes to send before the first request; [`Protocol::decode`] never sees the answers to
    /// them.
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    /// The length of the answers to [`Protocol::greet`] at the front of `input`, once all of them
    /// have arrived.
    fn skip_greeting(&mut self, _input: &[u8]) -> Result<Option<usize>, String> {
        Ok(Some(0))
    }

    /// Appends the encoded request to `out`.
    fn encode(&mut self, operation: &Operation, out: &mut Vec<u8>);

    /// Decodes the answer to a request of this kind at the front of `input`, if it is complete. An
    /// error is a malformed answer; the connection cannot be used any more.
    fn decode<'a>(&mut self, input: &'a [u8], kind: Kind) -> Result<Option<Decoded<'a>>, String>;
}

/// The work of one connection: its requests, and the checks of their answers.
pub(crate) trait Work {
    /// A batch of requests begins; `idle` says that none is in flight.
    fn begin(&mut self, idle: bool);

    /// The next request, which is due at `due`.
    fn next(&mut self, due: Instant) -> Ticket;

    /// Checks an answer; the error says what is wrong. Not called for refusals.
    fn judge(&mut self, ticket: &Ticket, answer: &Answer<'_>) -> Result<(), String>;

    /// The request was refused, or its answer was lost.
    fn failed(&mut self, ticket: &Ticket);

    /// A batch of answers has been checked; `oldest` is the oldest request still in flight.
    fn end(&mut self, oldest: Option<&Ticket>);

    /// The connection broke, and another replaces it.
    fn reconnected(&mut self) {}
}
