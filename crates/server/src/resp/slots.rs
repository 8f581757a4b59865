//! The replies that a connection owes, in the order of its commands.
//!
//! Owns that order, and the encoding of results. A pending reply knows which shard queue its
//! results come from. Shard queues answer in their own order, so a pending reply takes the next
//! result of its shard queue when its turn comes. No lookup is needed.

use std::collections::VecDeque;

use tidelock_core::command::{OperationReply, Refusal, Rejection};
use tidelock_core::types::{UnixMillis, Version};

use super::encode::{Encoder, Protocol};
use super::shard_queues::{Part, ShardQueues, TransactionOutcome};

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
}

/// A reply that is owed to the client.
#[derive(Debug)]
pub enum PendingReply {
    /// A reply that is encoded already, for example an error.
    Ready(Vec<u8>),
    /// The reply to one operation.
    One { shard_queue: u32, render: Render },
    /// The reply to several operations.
    Many(Box<Many>),
    /// The reply to a transaction.
    Exec(Exec),
    /// One key of a `WATCH`: the last one replies for the command.
    Watch { shard_queue: u32, watch: u64, is_last: bool },
}

/// The commands of a transaction.
#[derive(Debug)]
pub struct Exec {
    /// The shard queue of its operations.
    pub shard_queue: u32,
    /// Its commands.
    pub items: Vec<Item>,
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
}

/// A command of several operations, possibly in several shard queues.
#[derive(Debug)]
pub struct Many {
    shard_queues: VecDeque<u32>,
    gathered: Gathered,
}

/// The results so far of a command of several operations.
#[derive(Debug)]
struct Gathered {
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

impl Item {
    /// Number of bytes that it takes in memory.
    pub fn held_bytes(&self) -> usize {
        size_of::<Item>() + if let Item::Ready(encoded) = self { encoded.len() } else { 0 }
    }
}

impl PendingReply {
    /// The reply to a command of several operations in these shard queues, in their order.
    pub fn many(render: RenderMany, shard_queues: VecDeque<u32>) -> PendingReply {
        PendingReply::Many(Box::new(Many { shard_queues, gathered: Gathered::new(render) }))
    }

    /// Bytes that it holds, besides itself.
    pub fn held_bytes(&self) -> usize {
        match self {
            PendingReply::Ready(encoded) => encoded.len(),
            // Counted twice: as results, and in the reply.
            PendingReply::Many(many) => {
                2 * many.gathered.values.len() + many.shard_queues.len() * size_of::<u32>()
            }
            PendingReply::Exec(exec) => exec.items.iter().map(Item::held_bytes).sum(),
            PendingReply::One { .. } | PendingReply::Watch { .. } => 0,
        }
    }

    /// The shard queue of the next result.
    pub fn shard_queue(&self) -> Option<u32> {
        match self {
            PendingReply::Ready(_) => None,
            PendingReply::Many(many) => many.shard_queues.front().copied(),
            PendingReply::One { shard_queue, .. }
            | PendingReply::Exec(Exec { shard_queue, .. })
            | PendingReply::Watch { shard_queue, .. } => Some(*shard_queue),
        }
    }

    /// Appends the reply if it is known; returns whether it was.
    pub fn settle(&mut self, shard_queues: &mut ShardQueues, style: Style, out: &mut Vec<u8>) -> bool {
        match self {
            PendingReply::Ready(encoded) => {
                out.extend_from_slice(encoded);
                true
            }
            PendingReply::One { shard_queue, render } => shard_queues
                .take(*shard_queue, |part| render.encode(part, style, &mut Encoder::new(out, style.protocol)))
                .is_some(),
            PendingReply::Many(many) => {
                while let Some(shard_queue) = many.shard_queues.front() {
                    if shard_queues
                        .take(*shard_queue, |part| many.gathered.add(part, style.protocol))
                        .is_none()
                    {
                        return false;
                    }
                    many.shard_queues.pop_front();
                }
                many.gathered.encode(&mut Encoder::new(out, style.protocol));
                true
            }
            PendingReply::Exec(exec) => match shard_queues.take_verdict(exec.shard_queue) {
                None => false,
                Some(verdict) => {
                    exec.settle(verdict, shard_queues, style, out);
                    true
                }
            },
            PendingReply::Watch { .. } => unreachable!("invariant: the session settles watches itself"),
        }
    }
}

impl Exec {
    /// Appends the replies of the commands, or that nothing was done.
    fn settle(
        &self,
        verdict: TransactionOutcome,
        shard_queues: &mut ShardQueues,
        style: Style,
        out: &mut Vec<u8>,
    ) {
        match verdict {
            TransactionOutcome::Aborted => return Encoder::new(out, style.protocol).null_array(),
            TransactionOutcome::Refused(refusal) => {
                return Encoder::new(out, style.protocol).error(&refusal_text(&refusal));
            }
            TransactionOutcome::Done => {}
        }
        Encoder::new(out, style.protocol).array(self.items.len());
        for item in &self.items {
            match item {
                Item::Ready(encoded) => out.extend_from_slice(encoded),
                Item::One(render) => {
                    let encode =
                        |part: Part<'_>| render.encode(part, style, &mut Encoder::new(out, style.protocol));
                    shard_queues
                        .take(self.shard_queue, encode)
                        .expect("invariant: a transaction has a reply for each operation");
                }
                Item::Many(render, parts) => {
                    let mut gathered = Gathered::new(*render);
                    for _ in 0..*parts {
                        let add = |part: Part<'_>| gathered.add(part, style.protocol);
                        shard_queues
                            .take(self.shard_queue, add)
                            .expect("invariant: a transaction has a reply for each operation");
                    }
                    gathered.encode(&mut Encoder::new(out, style.protocol));
                }
            }
        }
    }
}

impl Gathered {
    fn new(render: RenderMany) -> Gathered {
        Gathered { render, parts: 0, counted: 0, values: Vec::new(), error: None }
    }

    fn add(&mut self, part: Part<'_>, protocol: Protocol) {
        self.parts += 1;
        let reply = match part {
            Part::Refused(refusal) => {
                self.error.get_or_insert_with(|| refusal_text(&refusal));
                return;
            }
            Part::Reply(reply) => reply,
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
            (RenderMany::Count | RenderMany::Ok, _) => {}
        }
    }

    fn encode(&self, encoder: &mut Encoder<'_>) {
        match (&self.error, self.render) {
            (Some(error), _) => encoder.error(error),
            (None, RenderMany::Values) => {
                encoder.array(self.parts);
                encoder.raw(&self.values);
            }
            (None, RenderMany::Count) => encoder.integer(self.counted),
            (None, RenderMany::Ok) => encoder.ok(),
        }
    }
}

impl Render {
    fn encode(self, part: Part<'_>, style: Style, encoder: &mut Encoder<'_>) {
        let reply = match part {
            Part::Refused(refusal) => return encoder.error(&refusal_text(&refusal)),
            Part::Reply(OperationReply::Rejected(rejection)) => {
                return encoder.error(rejection_text(rejection));
            }
            Part::Reply(reply) => reply,
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
            (Render::Value | Render::Ok | Render::Versioned, _) => encoder.null(),
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
        Refusal::Invalid(_) => "ERR",
    };
    format!("{code} {refusal}")
}

fn rejection_text(rejection: Rejection) -> &'static str {
    match rejection {
        Rejection::NotANumber => "ERR value is not an integer or out of range",
        Rejection::Overflow => "ERR increment or decrement would overflow",
        Rejection::ValueTooLong => "ERR string exceeds maximum allowed size (1 MiB)",
        Rejection::RepliesTooLong => {
            "ERR the values read by one transaction, or beside writes by one pipeline, exceed 8 MiB; read fewer at a time"
        }
    }
}
