//! Spans of traced requests: see [`crate::spans`].
//!
//! Owns the ids of this node's spans, and which writes of peers are traced. The spans of open
//! requests are kept with them.
//!
//! Invariant: each span that began ends once, while the node runs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Open, Router, Work, parts};
use crate::command::{Refusal, Reply, ShardAnswer, ShardError};
use crate::deliberate::Fault;
use crate::limits;
use crate::peer::{Origin, Outcome, RequestId};
use crate::spans::{SpanEnd, SpanEvent, SpanId, SpanStep, TraceContext, TraceId, TracedWork};
use crate::types::{LogIndex, NodeId, ShardId, Ticks};
use crate::version::ClusterVersion;

/// The spans of one node.
pub(super) struct Tracing {
    ids: fastrand::Rng,
    /// Spans that have begun and not ended.
    open: usize,
    /// Traced writes of peers, and when they arrived.
    of_peers: BTreeMap<Origin, (OpenSpan, Ticks)>,
    events: Vec<SpanEvent>,
}

/// The span of an open request.
#[derive(Clone, Copy)]
pub(super) struct OpenSpan {
    trace: TraceId,
    span: SpanId,
    /// Whether the last event says that the request waits.
    is_held: bool,
}

impl OpenSpan {
    /// The context of spans that belong to this one.
    pub(super) fn context(self) -> TraceContext {
        TraceContext { trace: self.trace, parent: self.span }
    }
}

impl Tracing {
    pub(super) fn new(seed: u64) -> Tracing {
        let ids = fastrand::Rng::with_seed(seed);
        Tracing { ids, open: 0, of_peers: BTreeMap::new(), events: Vec::new() }
    }

    /// Begins a span; `None` if too many are open.
    pub(super) fn begin(&mut self, context: TraceContext, work: TracedWork) -> Option<OpenSpan> {
        if self.open >= limits::SPANS_OPEN_MAX {
            return None;
        }
        self.open += 1;
        let span = SpanId::new(self.ids.u64(1..)).expect("invariant: drawn from 1 on");
        self.events.push(SpanEvent { span, step: SpanStep::Begun { context, work } });
        Some(OpenSpan { trace: context.trace, span, is_held: false })
    }

    pub(super) fn end(&mut self, span: Option<OpenSpan>, end: SpanEnd) {
        if let Some(span) = span {
            self.open -= 1;
            self.note(span, SpanStep::Ended(end));
        }
    }

    /// Records that a request is sent to a node. Returns the context to send along, if it is traced
    /// and the nodes of the cluster know contexts.
    pub(super) fn forwarded(
        &mut self,
        span: Option<&mut OpenSpan>,
        (to, shard): (NodeId, ShardId),
        version: ClusterVersion,
    ) -> Option<TraceContext> {
        let span = span?;
        span.is_held = false;
        self.note(*span, SpanStep::Forwarded { to, shard });
        (version >= ClusterVersion::WITH_TRACES).then(|| span.context())
    }

    fn note(&mut self, span: OpenSpan, step: SpanStep) {
        self.events.push(SpanEvent { span: span.span, step });
    }

    /// Ends the spans of peers' writes that arrived before `due`: their fate is not known here, and
    /// the peers have answered their clients.
    fn expire(&mut self, due: Ticks) {
        let mut expired = Vec::new();
        self.of_peers.retain(|_, (span, arrived)| {
            let waits = *arrived >= due;
            if !waits {
                expired.push(*span);
            }
            waits
        });
        expired.into_iter().for_each(|span| self.end(Some(span), SpanEnd::Unknown));
    }
}

impl Router {
    /// Whether any request is traced now.
    pub(crate) fn is_tracing(&self) -> bool {
        self.tracing.open > 0
    }

    /// What happened to traced requests since the last call.
    pub(crate) fn span_events(&mut self) -> &mut Vec<SpanEvent> {
        &mut self.tracing.events
    }

    /// Holds a request until the next opportunity.
    pub(super) fn hold(&mut self, request: RequestId) {
        self.held.push_back(request);
        let (key, generation) = parts(request);
        if let Some(Open { span: Some(span), .. }) =
            self.open.get_mut(key).filter(|open| open.generation == generation)
            && !core::mem::replace(&mut span.is_held, true)
        {
            self.tracing.note(*span, SpanStep::Held);
        }
    }

    /// Records that the writes of these origins are in the log of this node.
    pub(crate) fn logged(&mut self, (shard, index): (ShardId, LogIndex), origins: &[Origin]) {
        for origin in origins {
            let span = if origin.node == self.node {
                self.get(origin.request).and_then(|open| open.span)
            } else {
                self.tracing.of_peers.get(origin).map(|(span, _)| *span)
            };
            if let Some(span) = span {
                self.tracing.note(span, SpanStep::Logged { shard, index });
            }
        }
    }

    /// Begins the span of a peer's write.
    pub(super) fn trace_forwarded(&mut self, origin: Origin, shard: ShardId, context: TraceContext) {
        let work = TracedWork::ForwardedWrite { from: origin.node, shard };
        if let Some(span) = self.tracing.begin(context, work) {
            self.tracing.of_peers.insert(origin, (span, self.now));
        }
    }

    /// Ends the span of a peer's write.
    pub(super) fn trace_outcome(&mut self, origin: &Origin, outcome: &Outcome) {
        if self.tracing.of_peers.is_empty() {
            return;
        }
        let end = match outcome {
            Outcome::Done(_) => SpanEnd::Done,
            Outcome::Refused(_) => SpanEnd::Refused,
            Outcome::NotDone | Outcome::NotHere => SpanEnd::Retried,
        };
        let span = self.tracing.of_peers.remove(origin).map(|(span, _)| span);
        self.tracing.end(span, end);
    }

    /// Ends spans of peers' writes whose fate this node never learns.
    pub(super) fn expire_spans(&mut self) {
        if !self.tracing.of_peers.is_empty() && !self.faults.has(Fault::SpanNotEnded) {
            self.tracing.expire(Ticks(self.now.0.saturating_sub(self.request_ticks)));
        }
    }
}

/// What is done for a request that is opened here.
pub(super) fn work_of(work: &Work) -> TracedWork {
    match work {
        Work::Write { .. } | Work::Flush(_) => TracedWork::Write,
        Work::PeerRead(served) => TracedWork::ForwardedRead { from: served.node, shard: served.shard },
        Work::Read(_)
        | Work::RemoteRead(_)
        | Work::RetryRead(_)
        | Work::ScatterGather(_)
        | Work::ConfirmAccess => TracedWork::Read,
    }
}

/// How a request with this reply ended.
pub(super) fn end_of(reply: &Reply) -> SpanEnd {
    match reply {
        Reply::Refused(Refusal::UnknownOutcome) => SpanEnd::Unknown,
        Reply::Refused(_) => SpanEnd::Refused,
        _ => SpanEnd::Done,
    }
}

/// How a peer's read with this answer ended.
pub(super) fn end_of_answer(answer: &Result<ShardAnswer, ShardError>) -> SpanEnd {
    match answer {
        Ok(_) => SpanEnd::Done,
        Err(ShardError::Refused(_)) => SpanEnd::Refused,
        Err(ShardError::NotHere) => SpanEnd::Retried,
    }
}
