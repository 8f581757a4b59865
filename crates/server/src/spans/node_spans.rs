//! Spans of this node's work on traced requests: the core's events, with times.
//!
//! Owns the spans that have begun and not ended. The core bounds their number.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use tidelock_core::spans::{SpanEnd, SpanEvent, SpanId, SpanStep, TraceContext, TracedWork};

use super::{Attribute, AttributeValue, FinishedEvent, FinishedSpan, SpanKind, Tracer};

/// Events of one span. A request that is sent back and forth has no more to say after so many.
const EVENTS_MAX: usize = 32;

/// Takes the core's events.
#[derive(Debug)]
pub struct NodeSpans {
    tracer: Tracer,
    open: RefCell<HashMap<SpanId, OpenSpan>>,
}

#[derive(Debug)]
struct OpenSpan {
    context: TraceContext,
    work: TracedWork,
    began: (SystemTime, Instant),
    events: Vec<FinishedEvent>,
}

impl NodeSpans {
    /// Spans that go to this tracer.
    pub fn new(tracer: Tracer) -> NodeSpans {
        NodeSpans { tracer, open: RefCell::default() }
    }

    /// Records what has just happened.
    pub fn record(&self, events: impl Iterator<Item = SpanEvent>) {
        let (now, clock) = (SystemTime::now(), Instant::now());
        let mut open = self.open.borrow_mut();
        for SpanEvent { span, step } in events {
            match step {
                SpanStep::Begun { context, work } => {
                    open.insert(span, OpenSpan { context, work, began: (now, clock), events: Vec::new() });
                }
                SpanStep::Ended(end) => {
                    if let Some(ended) = open.remove(&span) {
                        self.tracer.put(ended.finished(span, end, clock));
                    }
                }
                SpanStep::Held => note(&mut open, (span, clock), "waits for a leader", Vec::new()),
                SpanStep::Forwarded { to, shard } => {
                    let attributes = vec![number("tidelock.to_node", to.0), of_shard(shard.0)];
                    note(&mut open, (span, clock), "sent to another node", attributes);
                }
                SpanStep::Logged { shard, index } => {
                    let attributes = vec![of_shard(shard.0), number("tidelock.log_index", index.0)];
                    note(&mut open, (span, clock), "in the leader's log", attributes);
                }
            }
        }
    }
}

impl OpenSpan {
    fn finished(self, span: SpanId, end: SpanEnd, clock: Instant) -> FinishedSpan {
        let OpenSpan { context, work, began: (began, began_clock), events } = self;
        let (name, kind, mut attributes) = match work {
            TracedWork::Write => ("write", SpanKind::Internal, Vec::new()),
            TracedWork::Read => ("read", SpanKind::Internal, Vec::new()),
            TracedWork::ForwardedWrite { from, shard } => (
                "forwarded write",
                SpanKind::Server,
                vec![number("tidelock.from_node", from.0), of_shard(shard.0)],
            ),
            TracedWork::ForwardedRead { from, shard } => (
                "forwarded read",
                SpanKind::Server,
                vec![number("tidelock.from_node", from.0), of_shard(shard.0)],
            ),
        };
        let (outcome, is_error) = match end {
            SpanEnd::Done => ("done", false),
            SpanEnd::Refused => ("refused", true),
            SpanEnd::Retried => ("retried", false),
            SpanEnd::Unknown => ("unknown", true),
        };
        attributes.push(("tidelock.outcome", AttributeValue::Text(outcome.to_owned())));
        FinishedSpan {
            trace: context.trace,
            span,
            parent: Some(context.parent),
            name: name.to_owned(),
            kind,
            began,
            ended: began + (clock - began_clock),
            attributes,
            events,
            is_error,
        }
    }
}

/// Adds an event to an open span.
fn note(
    open: &mut HashMap<SpanId, OpenSpan>,
    (span, clock): (SpanId, Instant),
    name: &'static str,
    attributes: Vec<Attribute>,
) {
    if let Some(open) = open.get_mut(&span)
        && open.events.len() < EVENTS_MAX
    {
        let at = open.began.0 + (clock - open.began.1);
        open.events.push(FinishedEvent { at, name, attributes });
    }
}

fn number(name: &'static str, value: u64) -> Attribute {
    (name, AttributeValue::Number(value))
}

fn of_shard(shard: u64) -> Attribute {
    number("tidelock.shard", shard)
}
