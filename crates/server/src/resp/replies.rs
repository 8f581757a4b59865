//! The encoding of replies.
//!
//! Owns the form of each command's reply. The [`tidelock_core::clients::pipeline`] decides when a
//! reply's turn comes.

use tidelock_core::clients::operation_queues::{OperationResult, TransactionOutcome};
use tidelock_core::clients::pipeline::{HeldBytes, ReplyForms, ReplySink, TransactionResults};
use tidelock_core::command::{OperationReply, Publication, Refusal, Rejection, hash_of};
use tidelock_core::types::{UnixMillis, Version};

use super::encode::{Encoder, Protocol};
use super::pub_sub::PubSub;

/// The form of the reply to a command of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Render {
    /// The value, or null.
    Value,
    /// `OK`, or null if the condition did not hold.
    Ok,
    /// The key's previous value.
    Previous,
    /// The number, or the length.
    Number,
    /// The length, 0 for an absent key.
    Length,
    /// 1 if something changed, else 0.
    Changed,
    /// The remaining time to live, or the time of expiry: -1 without expiry, -2 for an absent key.
    Expiry {
        /// What is shown of it.
        form: ExpiryForm,
        /// By how many milliseconds the clock of the shard's leader, which determines expiry, is
        /// ahead of this node's.
        ahead_ms: i64,
    },
    /// The type of the value.
    Type,
    /// The bytes of the value between two positions, which count from the end if they are negative.
    Range {
        /// The first byte.
        start: i64,
        /// The last byte.
        end: i64,
    },
    /// The hash of the value in hexadecimal digits, or null.
    Hash,
    /// The decimal number.
    Decimal,
    /// Version and value.
    Versioned,
    /// The new version, or an error that names the given and the current one.
    VersionSet {
        /// The version in the command.
        given: Version,
    },
}

/// What a reply shows of a key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryForm {
    /// The remaining seconds.
    SecondsLeft,
    /// The remaining milliseconds.
    MillisLeft,
    /// The time of expiry in seconds since 1970.
    UnixSeconds,
    /// The time of expiry in milliseconds since 1970.
    UnixMillis,
}

/// The form of the reply to a command of several operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderMany {
    /// Each value, or null.
    Values,
    /// The number of keys that existed.
    Count,
    /// `OK`.
    Ok,
    /// The value that the first operation found, or null.
    First,
    /// 1 if no operation was skipped, else 0.
    NoneSkipped,
}

/// One command in a transaction.
#[derive(Debug)]
pub enum Item {
    /// An encoded reply, without the store.
    Ready(Vec<u8>),
    /// A command of one operation.
    One(Render),
    /// A command of this many operations.
    Many(RenderMany, usize),
    /// A message, published once the transaction is done.
    Publish(Publication),
}

/// The results so far of a command of several operations.
#[derive(Debug)]
pub struct Gathered {
    render: RenderMany,
    parts: usize,
    counted: i64,
    values: Vec<u8>,
    error: Option<String>,
}

/// What the encoding depends on.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub protocol: Protocol,
    pub now: UnixMillis,
}

/// The replies of the Redis protocol.
#[derive(Debug)]
pub struct RespReplies;

impl ReplyForms for RespReplies {
    type Ready = Encoded;
    type One = Render;
    type Many = Gathered;
    type Item = Item;
}

/// A reply that is encoded already, for example an error.
#[derive(Debug)]
pub struct Encoded(pub Vec<u8>);

impl HeldBytes for Encoded {
    fn held_bytes(&self) -> usize {
        self.0.len()
    }
}

impl HeldBytes for Gathered {
    fn held_bytes(&self) -> usize {
        // Counted twice: as results, and in the reply.
        2 * self.values.len()
    }
}

impl HeldBytes for Item {
    fn held_bytes(&self) -> usize {
        size_of::<Item>()
            + match self {
                Item::Ready(encoded) => encoded.len(),
                Item::Publish(publication) => publication.content_bytes(),
                Item::One(_) | Item::Many(..) => 0,
            }
    }
}

/// Encodes replies for a client.
pub struct ReplyEncoder<'a> {
    pub style: Style,
    pub out: &'a mut Vec<u8>,
    pub pub_sub: &'a PubSub,
    /// Receives the messages of transactions that are done.
    pub published: &'a mut Vec<Publication>,
}

impl ReplyEncoder<'_> {
    fn encoder(&mut self) -> Encoder<'_> {
        Encoder::new(self.out, self.style.protocol)
    }

    /// Encodes the replies to the commands of a transaction that has no operations.
    pub fn empty_transaction(&mut self, items: &[Item]) {
        self.encoder().array(items.len());
        for item in items {
            match item {
                Item::Ready(encoded) => self.out.extend_from_slice(encoded),
                Item::Publish(publication) => self.publish(publication),
                Item::One(_) | Item::Many(..) => unreachable!("invariant: there are no operations"),
            }
        }
    }

    fn publish(&mut self, publication: &Publication) {
        let receivers = self.pub_sub.receivers(&publication.channel);
        self.encoder().integer(receivers as i64);
        self.published.push(publication.clone());
    }
}

impl ReplySink<RespReplies> for ReplyEncoder<'_> {
    fn ready(&mut self, ready: &Encoded) {
        self.out.extend_from_slice(&ready.0);
    }

    fn one(&mut self, render: &Render, result: OperationResult<'_>) {
        render.encode(result, self.style, &mut self.encoder());
    }

    fn gather(&mut self, gathered: &mut Gathered, result: OperationResult<'_>) {
        gathered.add(result, self.style.protocol);
    }

    fn many(&mut self, gathered: &Gathered) {
        gathered.encode(&mut self.encoder());
    }

    fn transaction(
        &mut self,
        items: &[Item],
        outcome: TransactionOutcome,
        mut results: TransactionResults<'_>,
    ) {
        match outcome {
            TransactionOutcome::Aborted => return self.encoder().null_array(),
            TransactionOutcome::Refused(refusal) => return self.encoder().error(&refusal_text(&refusal)),
            TransactionOutcome::Done => {}
        }
        self.encoder().array(items.len());
        for item in items {
            match item {
                Item::Ready(encoded) => self.out.extend_from_slice(encoded),
                Item::Publish(publication) => self.publish(publication),
                Item::One(render) => results.next(|part| self.one(render, part)),
                Item::Many(render, parts) => {
                    let mut gathered = Gathered::new(*render);
                    (0..*parts).for_each(|_| results.next(|part| self.gather(&mut gathered, part)));
                    self.many(&gathered);
                }
            }
        }
    }

    fn watched(&mut self, result: Result<(), Refusal>) {
        match result {
            Ok(()) => self.encoder().ok(),
            Err(refusal) => self.encoder().error(&refusal_text(&refusal)),
        }
    }
}

impl Gathered {
    /// No results yet.
    pub fn new(render: RenderMany) -> Gathered {
        Gathered { render, parts: 0, counted: 0, values: Vec::new(), error: None }
    }

    pub(super) fn add(&mut self, part: OperationResult<'_>, protocol: Protocol) {
        self.parts += 1;
        let reply = match part {
            OperationResult::Refused(refusal) => {
                self.error.get_or_insert_with(|| refusal_text(&refusal));
                return;
            }
            OperationResult::Reply(reply) => reply,
        };
        match (self.render, reply) {
            (_, OperationReply::Rejected(rejection)) => {
                self.error.get_or_insert_with(|| rejection_text(rejection).to_owned());
            }
            (RenderMany::Values, OperationReply::Value { value, .. }) => {
                Encoder::new(&mut self.values, protocol).bulk(value);
            }
            (RenderMany::Values, _) => Encoder::new(&mut self.values, protocol).null(),
            (RenderMany::Count, OperationReply::Deleted { .. } | OperationReply::Described { .. }) => {
                self.counted += 1;
            }
            (RenderMany::First, OperationReply::Value { value, .. }) if self.parts == 1 => {
                Encoder::new(&mut self.values, protocol).bulk(value);
            }
            (RenderMany::First, _) if self.parts == 1 => Encoder::new(&mut self.values, protocol).null(),
            (RenderMany::NoneSkipped, OperationReply::Skipped) => self.counted += 1,
            (RenderMany::Count | RenderMany::Ok | RenderMany::First | RenderMany::NoneSkipped, _) => {}
        }
    }

    pub(super) fn encode(&self, encoder: &mut Encoder<'_>) {
        match (&self.error, self.render) {
            (Some(error), _) => encoder.error(error),
            (None, RenderMany::Values) => {
                encoder.array(self.parts);
                encoder.raw(&self.values);
            }
            (None, RenderMany::Count) => encoder.integer(self.counted),
            (None, RenderMany::Ok) => encoder.ok(),
            (None, RenderMany::First) => encoder.raw(&self.values),
            (None, RenderMany::NoneSkipped) => encoder.integer(i64::from(self.counted == 0)),
        }
    }
}

impl Render {
    pub(super) fn encode(self, part: OperationResult<'_>, style: Style, encoder: &mut Encoder<'_>) {
        let reply = match part {
            OperationResult::Refused(refusal) => return encoder.error(&refusal_text(&refusal)),
            OperationResult::Reply(OperationReply::Rejected(rejection)) => {
                return encoder.error(rejection_text(rejection));
            }
            OperationResult::Reply(reply) => reply,
        };
        match (self, reply) {
            (Render::Ok, OperationReply::Written { .. }) => encoder.ok(),
            (Render::Value, OperationReply::Value { value, .. } | OperationReply::Taken { value, .. }) => {
                encoder.bulk(value);
            }
            (Render::Versioned, OperationReply::Value { version, value, .. }) => {
                encoder.array(2);
                encoder.unsigned(version.0);
                encoder.bulk(value);
            }
            (Render::Range { start, end }, OperationReply::Value { value, .. }) => {
                encoder.bulk(range_of(value, start, end));
            }
            (Render::Range { .. }, _) => encoder.bulk(&[]),
            (Render::Hash, OperationReply::Value { value, .. }) => {
                encoder.bulk(format!("{:016x}", hash_of(value)).as_bytes());
            }
            (Render::Decimal, OperationReply::Decimal { value, .. }) => {
                encoder.bulk(value.to_string().as_bytes());
            }
            (Render::Value | Render::Ok | Render::Versioned | Render::Hash, _) => encoder.null(),
            (Render::Previous, OperationReply::Replaced { previous: Some(value), .. }) => encoder.bulk(value),
            (Render::Previous, _) => encoder.null(),
            (Render::Number, OperationReply::Number { value, .. }) => encoder.integer(value),
            (Render::Number, OperationReply::Length { value_bytes, .. })
            | (Render::Length, OperationReply::Described { value_bytes, .. }) => {
                encoder.unsigned(value_bytes)
            }
            (Render::Length, _) => encoder.integer(0),
            (Render::Changed, OperationReply::Written { .. } | OperationReply::Deleted { .. }) => {
                encoder.integer(1)
            }
            (Render::Changed, _) => encoder.integer(0),
            (Render::Expiry { form, ahead_ms }, reply) => {
                let now = UnixMillis(style.now.0.saturating_add_signed(ahead_ms));
                encoder.integer(expiry(reply, form, now));
            }
            (Render::Type, OperationReply::Described { .. }) => encoder.simple("string"),
            (Render::Type, _) => encoder.simple("none"),
            (Render::VersionSet { .. }, OperationReply::Written { version, .. }) => {
                encoder.unsigned(version.0)
            }
            (Render::VersionSet { given }, OperationReply::ConditionFailed { current }) => {
                encoder.error(&format!("VERSION {given} {current}"));
            }
            _ => encoder.error("ERR the store answered something else"),
        }
    }
}

/// The bytes from `start` to `end`, which count from the end of the value if they are negative.
fn range_of(value: &[u8], start: i64, end: i64) -> &[u8] {
    let length = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let position = |from: i64| if from < 0 { from.saturating_add(length).max(0) } else { from };
    let (start, end) = (position(start), position(end).min(length - 1));
    if start > end { &[] } else { &value[start as usize..=end as usize] }
}

fn expiry(reply: OperationReply<'_>, form: ExpiryForm, now: UnixMillis) -> i64 {
    let expires = match reply {
        OperationReply::Described { expires: Some(expires), .. } => expires,
        OperationReply::Described { expires: None, .. } => return -1,
        _ => return -2,
    };
    // An overdue key is still there: it has no time left, and may be deleted at any moment.
    let left_ms = expires.0.saturating_sub(now.0);
    let value = match form {
        // Rounded to the nearest second, as in Redis, but a live key never has 0 seconds.
        ExpiryForm::SecondsLeft => left_ms.div_ceil(1_000),
        ExpiryForm::MillisLeft => left_ms,
        ExpiryForm::UnixSeconds => expires.0 / 1_000,
        ExpiryForm::UnixMillis => expires.0,
    };
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The error for a refusal. Clients act on its code: `CLUSTERDOWN` and `TRYAGAIN` mean that nothing
/// was done, and many clients then retry.
pub fn refusal_text(refusal: &Refusal) -> String {
    let code = match refusal {
        Refusal::NoLeader => "CLUSTERDOWN",
        Refusal::Overloaded => "TRYAGAIN",
        Refusal::CrossShard => "CROSSSLOT",
        Refusal::DiskUnavailable => "MISCONF",
        Refusal::UnknownOutcome => "UNKNOWNOUTCOME",
        Refusal::Unauthenticated => return "NOAUTH Authentication required.".into(),
        Refusal::Forbidden(_) => "NOPERM",
        Refusal::PermissionsUnknown => "MASTERDOWN",
        Refusal::VersionTooLow | Refusal::Invalid(_) => "ERR",
    };
    format!("{code} {refusal}")
}

/// The error for an increment that is too large, or makes a number too large.
pub const DECIMAL_OVERFLOW: &str =
    "ERR increment would produce Infinity, or a number with a magnitude of 10^21 or more";

/// The error for a value that would be too long.
pub const VALUE_TOO_LONG: &str = "ERR string exceeds maximum allowed size (1 MiB)";

fn rejection_text(rejection: Rejection) -> &'static str {
    match rejection {
        Rejection::NotANumber => "ERR value is not an integer or out of range",
        Rejection::Overflow => "ERR increment or decrement would overflow",
        Rejection::ValueTooLong => VALUE_TOO_LONG,
        Rejection::NotADecimal => "ERR value is not a valid float, or its magnitude is 10^21 or more",
        Rejection::DecimalOverflow => DECIMAL_OVERFLOW,
        Rejection::LockHeld => "ERR the key is a lock that is held; only changes of the lock change it",
        Rejection::NoLease => "ERR there is no such lease",
        Rejection::LeaseFull => "ERR the lease has 1000 keys and locks already",
        Rejection::KeyBound => "ERR the key is bound to a lease, so it can have no expiry",
        Rejection::RepliesTooLong => {
            "ERR the values read by one transaction, or beside writes by one pipeline, exceed 8 MiB; read fewer at a time"
        }
    }
}
