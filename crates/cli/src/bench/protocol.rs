//! What a connection speaks, and what it is used for: the two traits that `connection` is made of.
//!
//! A [`Protocol`] knows bytes and no truth, a [`Work`] knows what is asked and what is right, and no bytes.

use std::borrow::Cow;
use std::fmt;
use std::time::Instant;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Changes nothing.
    Read,
    /// Stores a value.
    Write,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    /// What it does.
    pub kind: Kind,
    /// Index of its key.
    pub key: u64,
    /// Number of the write; of a read, the number that the next write will have.
    pub sequence: u64,
}

/// A request that has been sent, or is about to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    /// What.
    pub operation: Operation,
    /// When it was due, or sent if nothing said when: latency counts from here.
    pub due: Instant,
    /// What was known of the key when it was sent; see `ledger`.
    pub floor: u64,
    /// Every write numbered below had been answered when it was sent.
    pub settled_below: u64,
}

/// What a server said, in words that all protocols share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// A read's value.
    Value {
        /// Its version, where the protocol shows one.
        version: Option<u64>,
        /// Its bytes.
        value: &'a [u8],
    },
    /// There is no such key.
    Absent,
    /// The write happened.
    Written {
        /// The key's version, where the protocol shows one.
        version: Option<u64>,
    },
    /// It was not done, or is not known to be; in the server's words.
    Refused(&'a [u8]),
}

/// The kind of an answer as its protocol names it: an HTTP status, or the first word of a reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    /// Of HTTP.
    Http(u16),
    /// Of RESP.
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

/// One answer, taken off the front of what a connection received.
#[derive(Debug)]
pub(super) struct Decoded<'a> {
    /// How many bytes it took.
    pub bytes: usize,
    /// How many of them are content.
    pub content_bytes: usize,
    /// Its kind.
    pub status: Status,
    /// Its meaning.
    pub answer: Answer<'a>,
    /// Whether the server takes no further requests on this connection.
    pub closes: bool,
}

/// The language of one connection. Answers come in the order of requests.
pub(super) trait Protocol {
    /// What is sent before the first request; [`Protocol::decode`] never sees the answers to it.
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    /// Skips answers to [`Protocol::greet`] at the front of `input`: how many bytes, once all of them are there.
    fn skip_greeting(&mut self, _input: &[u8]) -> Result<Option<usize>, String> {
        Ok(Some(0))
    }

    /// Appends a request.
    fn encode(&mut self, operation: &Operation, out: &mut Vec<u8>);

    /// The answer at the front of `input` to a request of this kind, if all of it is there. An error is an answer that
    /// cannot be one; the connection is of no further use.
    fn decode<'a>(&mut self, input: &'a [u8], kind: Kind) -> Result<Option<Decoded<'a>>, String>;
}

/// What one connection is used for.
pub(super) trait Work {
    /// A batch of requests begins; `idle` says that none is in flight.
    fn begin(&mut self, idle: bool);

    /// The next request.
    fn next(&mut self, due: Instant) -> Ticket;

    /// Whether the answer is right; otherwise what is wrong with it. Not asked about refusals.
    fn judge(&mut self, ticket: &Ticket, answer: &Answer<'_>) -> Result<(), String>;

    /// The request was refused, or its answer will never be known.
    fn failed(&mut self, ticket: &Ticket);

    /// A batch of answers has been judged; `oldest` is what is still in flight.
    fn end(&mut self, oldest: Option<&Ticket>);

    /// The connection broke, and another takes its place.
    fn reconnected(&mut self) {}
}
