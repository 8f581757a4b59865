//! Traces of requests, for an OpenTelemetry collector.
//!
//! Owns which requests are traced, the times of spans, and the queue to the collector
//! ([`exporter`]). Spans contain no keys, no values and no names of users.
//!
//! A request of a client has a span of its HTTP interface here. Below it are the spans of all nodes
//! that work on it: the core says when they begin and end ([`tidelock_core::spans`]), and
//! [`NodeSpans`] adds the times.
//!
//! Nothing waits for the collector. If it is slow or down, spans are dropped and counted.

mod exporter;
mod node_spans;
mod otlp;
mod traceparent;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hyper::{HeaderMap, Method, StatusCode};
use tidelock_core::spans::{SpanId, TraceContext, TraceId};

pub use exporter::Exporter;
pub use node_spans::NodeSpans;
pub use otlp::Resource;

use crate::config::TraceSettings;
use crate::counters::Counter;

/// Spans that wait for the exporter. Beyond it, new ones are dropped.
const QUEUE_SPANS_MAX: usize = 4_096;

/// Spans in one request to the collector.
const BATCH_SPANS_MAX: usize = 512;

/// How long a span waits for others of its batch.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Decides which requests are traced, and takes their spans. Without a collector, none is.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<TracerState>>);

#[derive(Debug)]
struct TracerState {
    /// Share of the requests that are traced although their clients do not ask for it, 0 to 1.
    ratio: f64,
    queue: Mutex<SpanQueue>,
    /// Notified when there is a batch, and when the queue is closed.
    ready: Condvar,
    exported: Counter,
    dropped: Counter,
}

#[derive(Debug, Default)]
struct SpanQueue {
    spans: VecDeque<FinishedSpan>,
    is_closed: bool,
}

/// The span of a request of a client. It ends with the answer.
#[derive(Debug)]
pub struct RequestSpan {
    trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
    began: (SystemTime, Instant),
}

impl RequestSpan {
    /// The context of the spans of nodes that work on the request.
    pub fn context(&self) -> TraceContext {
        TraceContext { trace: self.trace, parent: self.span }
    }
}

/// A span that has ended, as it is exported.
#[derive(Debug, PartialEq)]
struct FinishedSpan {
    trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
    name: String,
    kind: SpanKind,
    began: SystemTime,
    ended: SystemTime,
    attributes: Vec<Attribute>,
    events: Vec<FinishedEvent>,
    is_error: bool,
}

/// Something that happened during a span.
#[derive(Debug, PartialEq)]
struct FinishedEvent {
    at: SystemTime,
    name: &'static str,
    attributes: Vec<Attribute>,
}

/// The role of the one who reports a span, with the codes of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanKind {
    /// Work within the node that took the request.
    Internal = 1,
    /// The answer to a request of a client or of another node.
    Server = 2,
}

/// A named value of a span.
type Attribute = (&'static str, AttributeValue);

#[derive(Clone, Debug, PartialEq)]
enum AttributeValue {
    Text(String),
    Number(u64),
}

impl Tracer {
    /// A tracer whose spans an [`Exporter`] takes.
    pub fn new(settings: &TraceSettings) -> Tracer {
        Tracer(Some(Arc::new(TracerState {
            ratio: settings.ratio,
            queue: Mutex::default(),
            ready: Condvar::new(),
            exported: Counter::default(),
            dropped: Counter::default(),
        })))
    }

    /// Begins the span of a request if it is traced: if its client asks for that in `traceparent`,
    /// or, if it has no such header, for a share of all requests.
    pub fn begin(&self, headers: &HeaderMap) -> Option<RequestSpan> {
        let state = self.0.as_ref()?;
        let (trace, parent) = match traceparent::parse(headers) {
            Some(parent) => parent.is_sampled.then_some((parent.trace, Some(parent.span)))?,
            None => (fastrand::f64() < state.ratio).then(|| (random_trace(), None))?,
        };
        let began = (SystemTime::now(), Instant::now());
        Some(RequestSpan { trace, span: random_span(), parent, began })
    }

    /// Ends the span of a request. `route` is the path with the names of its parameters.
    pub fn finish(&self, span: RequestSpan, (method, route): (&Method, Option<&str>), status: StatusCode) {
        let RequestSpan { trace, span, parent, began: (began, clock) } = span;
        let text = |name, value: &str| (name, AttributeValue::Text(value.to_owned()));
        let mut attributes = vec![text("http.request.method", method.as_str())];
        attributes.extend(route.map(|route| text("http.route", route)));
        attributes.push(("http.response.status_code", AttributeValue::Number(status.as_u16().into())));
        self.put(FinishedSpan {
            trace,
            span,
            parent,
            name: route.map_or_else(|| method.to_string(), |route| format!("{method} {route}")),
            kind: SpanKind::Server,
            began,
            ended: began + clock.elapsed(),
            attributes,
            events: Vec::new(),
            is_error: status.is_server_error(),
        });
    }

    /// Spans that the collector took, since the start.
    pub fn exported(&self) -> u64 {
        self.0.as_ref().map_or(0, |state| state.exported.get())
    }

    /// Spans that were dropped since the start, because the queue was full or the collector did not
    /// take them.
    pub fn dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |state| state.dropped.get())
    }

    fn put(&self, span: FinishedSpan) {
        let Some(state) = &self.0 else { return };
        let mut queue = state.lock();
        if queue.is_closed || queue.spans.len() >= QUEUE_SPANS_MAX {
            return state.dropped.add(1);
        }
        queue.spans.push_back(span);
        let is_ready = queue.spans.len() == BATCH_SPANS_MAX;
        drop(queue);
        if is_ready {
            state.ready.notify_one();
        }
    }

    /// Lets the exporter end once it has taken all spans.
    fn close(&self) {
        if let Some(state) = &self.0 {
            state.lock().is_closed = true;
            state.ready.notify_one();
        }
    }
}

impl TracerState {
    fn lock(&self) -> MutexGuard<'_, SpanQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node stops.
    fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// The next batch, once it is full or due. Empty once the queue is closed and empty.
    fn next_batch(&self) -> Vec<FinishedSpan> {
        let mut queue = self.lock();
        let mut due = Instant::now() + BATCH_INTERVAL;
        while !queue.is_closed && queue.spans.len() < BATCH_SPANS_MAX {
            let now = Instant::now();
            if now >= due {
                if !queue.spans.is_empty() {
                    break;
                }
                due = now + BATCH_INTERVAL;
            }
            let waited = self.ready.wait_timeout(queue, due - now);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = queue.spans.len().min(BATCH_SPANS_MAX);
        queue.spans.drain(..count).collect()
    }
}

/// Starts the export of spans, if the settings name a collector. The tracer takes them.
///
/// # Errors
/// When no thread can be started.
pub fn start(settings: Option<&TraceSettings>, resource: Resource) -> io::Result<(Tracer, Option<Exporter>)> {
    let Some(settings) = settings else { return Ok((Tracer::default(), None)) };
    let tracer = Tracer::new(settings);
    let exporter = Exporter::start(settings.endpoint.clone(), tracer.clone(), resource)?;
    Ok((tracer, Some(exporter)))
}

fn random_trace() -> TraceId {
    loop {
        if let Some(trace) = TraceId::new(fastrand::u128(..).to_be_bytes()) {
            return trace;
        }
    }
}

fn random_span() -> SpanId {
    SpanId::new(fastrand::u64(1..)).expect("invariant: drawn from 1 on")
}

#[cfg(test)]
mod tests;
