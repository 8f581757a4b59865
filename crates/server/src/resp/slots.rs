//! The replies that a connection owes, in the order of its commands.
//!
//! Owns that order, and how what became of operations is spelt. A slot knows from which lane its parts come; lanes answer in
//! their own order, so a slot takes the next part of its lane when its turn comes, and nothing is looked up.

use std::collections::VecDeque;

use tidelock_core::command::{OperationReply, Refusal, Rejection};
use tidelock_core::types::{UnixMillis, Version};

use super::encode::{Encoder, Protocol};
use super::lanes::{Lanes, Part, Verdict};

/// How the reply to a command of one operation is spelt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Render {
    /// The value, or null.
    Value,
    /// `OK`, or null if the condition did not hold.
    Ok,
    /// What the key held before.
    Previous,
    /// The number, or the length.
    Number,
    /// The length, 0 for an absent key.
    Length,
    /// 1 if something changed, else 0.
    Changed,
    /// How long the key has to live, or until when it has: -1 for ever, -2 for an absent key.
    Expiry {
        /// In milliseconds instead of seconds.
        millis: bool,
        /// Since 1970 instead of from now.
        absolute: bool,
        /// By how many milliseconds the clock that the key goes by, that of its shard's leader, is
        /// ahead of this node's.
        ahead_ms: i64,
    },
    /// The type of the value.
    Type,
    /// Version and value.
    Versioned,
    /// The new version, or an error that names the one given and the current one.
    VersionSet {
        /// The one given.
        given: Version,
    },
}

/// How the reply to a command of several operations is spelt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderMany {
    /// Each value, or null.
    Values,
    /// How many keys there were.
    Count,
    /// `OK`.
    Ok,
}

/// A reply that is owed.
#[derive(Debug)]
pub enum Slot {
    /// It is known.
    Ready(Vec<u8>),
    /// Of one operation.
    One { lane: u32, render: Render },
    /// Of several.
    Many(Box<Many>),
    /// Of a transaction.
    Exec { lane: u32, items: Vec<Item> },
    /// Of one watched key: the last one answers for the command.
    Watch { lane: u32, watch: u64, is_last: bool },
}

/// One command inside of a transaction.
#[derive(Debug)]
pub enum Item {
    /// It needs no store.
    Ready(Vec<u8>),
    /// Of one operation.
    One(Render),
    /// Of so many.
    Many(RenderMany, usize),
}

/// A command of several operations, perhaps in several lanes.
#[derive(Debug)]
pub struct Many {
    lanes: VecDeque<u32>,
    gathered: Gathered,
}

/// What is known of a command of several operations.
#[derive(Debug)]
struct Gathered {
    render: RenderMany,
    parts: usize,
    counted: i64,
    values: Vec<u8>,
    error: Option<String>,
}

/// What spelling depends on.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The protocol's version.
    pub protocol: Protocol,
    /// The time now.
    pub now: UnixMillis,
}

impl Item {
    /// Bytes that it takes.
    pub fn held_bytes(&self) -> usize {
        size_of::<Item>() + if let Item::Ready(encoded) = self { encoded.len() } else { 0 }
    }
}

impl Slot {
    /// The slot of a command of several operations in these lanes, in their order.
    pub fn many(render: RenderMany, lanes: VecDeque<u32>) -> Slot {
        Slot::Many(Box::new(Many { lanes, gathered: Gathered::new(render) }))
    }

    /// Bytes that it holds, besides itself.
    pub fn held_bytes(&self) -> usize {
        match self {
            Slot::Ready(encoded) => encoded.len(),
            // Once as they come, and once in the reply.
            Slot::Many(many) => 2 * many.gathered.values.len() + many.lanes.len() * size_of::<u32>(),
            Slot::Exec { items, .. } => items.iter().map(Item::held_bytes).sum(),
            Slot::One { .. } | Slot::Watch { .. } => 0,
        }
    }

    /// The lane that the next part of the reply comes from.
    pub fn lane(&self) -> Option<u32> {
        match self {
            Slot::Ready(_) => None,
            Slot::Many(many) => many.lanes.front().copied(),
            Slot::One { lane, .. } | Slot::Exec { lane, .. } | Slot::Watch { lane, .. } => Some(*lane),
        }
    }

    /// Appends the reply if it is known; whether it was.
    pub fn settle(&mut self, lanes: &mut Lanes, style: Style, out: &mut Vec<u8>) -> bool {
        match self {
            Slot::Ready(encoded) => {
                out.extend_from_slice(encoded);
                true
            }
            Slot::One { lane, render } => lanes
                .take(*lane, |part| render.encode(part, style, &mut Encoder::new(out, style.protocol)))
                .is_some(),
            Slot::Many(many) => {
                while let Some(lane) = many.lanes.front() {
                    if lanes.take(*lane, |part| many.gathered.add(part, style.protocol)).is_none() {
                        return false;
                    }
                    many.lanes.pop_front();
                }
                many.gathered.encode(&mut Encoder::new(out, style.protocol));
                true
            }
            Slot::Exec { lane, items } => match lanes.take_verdict(*lane) {
                None => false,
                Some(verdict) => {
                    settle_exec(verdict, (*lane, items), lanes, (style, out));
                    true
                }
            },
            Slot::Watch { .. } => unreachable!("invariant: the session settles watches itself"),
        }
    }
}

fn settle_exec(
    verdict: Verdict,
    (lane, items): (u32, &[Item]),
    lanes: &mut Lanes,
    (style, out): (Style, &mut Vec<u8>),
) {
    match verdict {
        Verdict::Aborted => return Encoder::new(out, style.protocol).null_array(),
        Verdict::Refused(refusal) => {
            return Encoder::new(out, style.protocol).error(&refusal_text(refusal));
        }
        Verdict::Done => {}
    }
    Encoder::new(out, style.protocol).array(items.len());
    for item in items {
        match item {
            Item::Ready(encoded) => out.extend_from_slice(encoded),
            Item::One(render) => {
                let encode =
                    |part: Part<'_>| render.encode(part, style, &mut Encoder::new(out, style.protocol));
                lanes.take(lane, encode).expect("invariant: a transaction has a reply for each operation");
            }
            Item::Many(render, parts) => {
                let mut gathered = Gathered::new(*render);
                for _ in 0..*parts {
                    let add = |part: Part<'_>| gathered.add(part, style.protocol);
                    lanes.take(lane, add).expect("invariant: a transaction has a reply for each operation");
                }
                gathered.encode(&mut Encoder::new(out, style.protocol));
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
                self.error.get_or_insert_with(|| refusal_text(refusal));
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
            Part::Refused(refusal) => return encoder.error(&refusal_text(refusal)),
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
            (Render::Expiry { millis, absolute, ahead_ms }, reply) => {
                let now = UnixMillis(style.now.0.saturating_add_signed(ahead_ms));
                encoder.integer(expiry(reply, (millis, absolute), now));
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

fn expiry(reply: OperationReply<'_>, (millis, absolute): (bool, bool), now: UnixMillis) -> i64 {
    let expires = match reply {
        OperationReply::Described { expires: Some(expires), .. } => expires,
        OperationReply::Described { expires: None, .. } => return -1,
        _ => return -2,
    };
    // A key that is overdue is still there: it has no time left, and may go at any moment.
    let value = if absolute { expires.0 } else { expires.0.saturating_sub(now.0) };
    // To the nearest second, as Redis does it, but no living key has 0 seconds.
    let value = match (millis, absolute) {
        (true, _) => value,
        (false, true) => value / 1_000,
        (false, false) => value.div_ceil(1_000),
    };
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What a client is told of a refusal. The code in front is one on which clients act rightly: `CLUSTERDOWN` and `TRYAGAIN` say
/// that nothing was done, and many clients try again by themselves.
pub fn refusal_text(refusal: Refusal) -> String {
    let code = match refusal {
        Refusal::NoLeader => "CLUSTERDOWN",
        Refusal::Overloaded | Refusal::NotHere => "TRYAGAIN",
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
