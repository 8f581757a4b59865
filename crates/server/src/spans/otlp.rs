//! Spans in the JSON encoding of OTLP 1.0 (`opentelemetry/proto/trace/v1/trace.proto`): ids in
//! hexadecimal, 64-bit numbers as text.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Attribute, AttributeValue, FinishedEvent, FinishedSpan};

/// Code of a failed span.
const STATUS_ERROR: u64 = 2;

/// The node, as traces show it.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Number of the node.
    pub node: u64,
    /// Uuid of the host.
    pub instance: String,
}

/// The body of a request to the collector.
pub(super) fn encode(resource: &Resource, spans: &[FinishedSpan]) -> Vec<u8> {
    let text = |value: &str| AttributeValue::Text(value.to_owned());
    let version = env!("CARGO_PKG_VERSION");
    let of_resource = [
        ("service.name", text("tidelock")),
        ("service.instance.id", text(&resource.instance)),
        ("service.version", text(version)),
        ("tidelock.node", AttributeValue::Number(resource.node)),
    ];
    let document = json!({
        "resourceSpans": [{
            "resource": { "attributes": attributes(&of_resource) },
            "scopeSpans": [{
                "scope": { "name": "tidelock", "version": version },
                "spans": spans.iter().map(span).collect::<Vec<Value>>(),
            }],
        }],
    });
    document.to_string().into_bytes()
}

fn span(span: &FinishedSpan) -> Value {
    let mut value = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.span.to_string(),
        "name": span.name,
        "kind": span.kind as u64,
        "startTimeUnixNano": nanoseconds(span.began),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": attributes(&span.attributes),
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = parent.to_string().into();
    }
    if !span.events.is_empty() {
        value["events"] = span.events.iter().map(event).collect();
    }
    if span.is_error {
        value["status"] = json!({ "code": STATUS_ERROR });
    }
    value
}

fn event(event: &FinishedEvent) -> Value {
    json!({
        "timeUnixNano": nanoseconds(event.at),
        "name": event.name,
        "attributes": attributes(&event.attributes),
    })
}

fn attributes(attributes: &[Attribute]) -> Value {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => json!({ "stringValue": text }),
        AttributeValue::Number(number) => json!({ "intValue": number.to_string() }),
    };
    attributes.iter().map(|(name, given)| json!({ "key": name, "value": value(given) })).collect()
}

/// Time since 1970, as the protocol writes it. A clock before 1970 yields 0.
fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}
