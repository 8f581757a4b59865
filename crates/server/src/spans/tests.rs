//! What is traced, and what a collector gets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tidelock_core::spans::{SpanEnd, SpanEvent, SpanStep, TracedWork};
use tidelock_core::types::{LogIndex, NodeId, ShardId};

use super::*;
use crate::config::{RawSettings, Settings};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn settings(address: SocketAddr, ratio: f64) -> TraceSettings {
    let text =
        format!("data_dir = \"/tmp/unused\"\ntrace_endpoint = \"http://{address}\"\ntrace_ratio = {ratio}");
    let raw = RawSettings::parse(&text).expect("TOML");
    Settings::new(raw).expect("settings").traces.expect("traces")
}

fn resource() -> Resource {
    Resource { node: 2, instance: "an instance".to_owned() }
}

fn headers(parent: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", parent.parse().expect("a header"));
    headers
}

/// A collector that answers each request with `status`, and passes on the heads and the bodies.
fn collector(status: &'static str) -> (SocketAddr, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
            let (head, body) = loop {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n")
                    && let Ok(body) = serde_json::from_str(body)
                {
                    break (head.to_owned(), body);
                }
                let read = stream.read(&mut chunk).expect("a request");
                assert!(read > 0, "the request ended early: {text}");
                bytes.extend_from_slice(&chunk[..read]);
            };
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 4\r\n\r\nwhy?").expect("an answer");
            if sender.send((head, body)).is_err() {
                return;
            }
        }
    });
    (address, received)
}

/// A tracer without an exporter.
fn tracer(ratio: f64) -> Tracer {
    Tracer::new(&settings(SocketAddr::from(([127, 0, 0, 1], 1)), ratio))
}

#[test]
fn a_client_decides_and_otherwise_the_ratio() {
    let without = HeaderMap::new();
    assert!(Tracer::default().begin(&headers(PARENT)).is_none(), "there is no collector");
    assert!(tracer(0.0).begin(&without).is_none());
    assert!(tracer(1.0).begin(&without).is_some_and(|span| span.parent.is_none()));
    let asked = tracer(0.0).begin(&headers(PARENT)).expect("the client asks for it");
    assert_eq!(asked.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(asked.parent.map(|parent| parent.to_string()).as_deref(), Some("00f067aa0ba902b7"));
    let declined = PARENT.replace("-01", "-00");
    assert!(tracer(1.0).begin(&headers(&declined)).is_none(), "the client does not record it");
    assert!(tracer(1.0).begin(&headers("malformed")).is_some(), "as without the header");
}

#[test]
fn a_full_queue_drops_spans_and_counts_them() {
    let tracer = tracer(1.0);
    for _ in 0..QUEUE_SPANS_MAX + 3 {
        let span = tracer.begin(&HeaderMap::new()).expect("all are traced");
        tracer.finish(span, (&Method::GET, None), StatusCode::OK);
    }
    assert_eq!((tracer.dropped(), tracer.exported()), (3, 0));
}

#[test]
fn a_collector_gets_the_spans_of_a_request() {
    let (address, received) = collector("200 OK");
    let settings = settings(address, 0.0);
    let (tracer, exporter) = start(Some(&settings), resource()).expect("a thread");
    let span = tracer.begin(&headers(PARENT)).expect("the client asks for it");
    let (context, of_node) = (span.context(), SpanId::new(5).expect("not zero"));
    let nodes = NodeSpans::new(tracer.clone());
    let step = |step| SpanEvent { span: of_node, step };
    let (shard, work) = (ShardId(3), TracedWork::Write);
    let steps = [
        SpanStep::Begun { context, work },
        SpanStep::Held,
        SpanStep::Forwarded { to: NodeId(1), shard },
        SpanStep::Logged { shard, index: LogIndex(9) },
        SpanStep::Ended(SpanEnd::Unknown),
    ];
    nodes.record(steps.into_iter().map(step));
    let span_id = context.parent.to_string();
    tracer.finish(span, (&Method::PUT, Some("/v1/keys/{key}")), StatusCode::GATEWAY_TIMEOUT);
    exporter.expect("a collector").stop();
    let (head, mut body) = received.recv().expect("a request");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {address}\r\n")) && head.contains("application/json"), "{head}");
    // Times differ from run to run.
    let mut spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].take();
    for span in spans.as_array_mut().expect("spans") {
        let time = |value: Value| value.as_str().and_then(|text| text.parse::<u64>().ok()).expect("a time");
        let (began, ended) = (time(span["startTimeUnixNano"].take()), time(span["endTimeUnixNano"].take()));
        assert!(began > 0 && began <= ended);
        for event in span.get_mut("events").and_then(Value::as_array_mut).into_iter().flatten() {
            let at = time(event["timeUnixNano"].take());
            assert!((began..=ended).contains(&at));
        }
    }
    let (number, text) = (
        |key: &str, value: &str| json!({ "key": key, "value": { "intValue": value } }),
        |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } }),
    );
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let event = |name: &str, attributes: Value| json!({ "timeUnixNano": null, "name": name, "attributes": attributes });
    let to = json!([number("tidelock.to_node", "1"), number("tidelock.shard", "3")]);
    let log = json!([number("tidelock.shard", "3"), number("tidelock.log_index", "9")]);
    assert_eq!(
        spans,
        json!([
            {
                "traceId": trace, "spanId": "0000000000000005", "parentSpanId": span_id, "name": "write", "kind": 1,
                "startTimeUnixNano": null, "endTimeUnixNano": null, "status": { "code": 2 },
                "attributes": [text("tidelock.outcome", "unknown")],
                "events": [event("waits for a leader", json!([])), event("sent to another node", to), event("in the leader's log", log)],
            },
            {
                "traceId": trace, "spanId": span_id, "parentSpanId": "00f067aa0ba902b7", "name": "PUT /v1/keys/{key}",
                "kind": 2, "startTimeUnixNano": null, "endTimeUnixNano": null, "status": { "code": 2 },
                "attributes": [
                    text("http.request.method", "PUT"), text("http.route", "/v1/keys/{key}"),
                    number("http.response.status_code", "504"),
                ],
            },
        ])
    );
    let of_resource = body["resourceSpans"][0]["resource"]["attributes"].as_array().expect("attributes");
    assert!(of_resource.contains(&number("tidelock.node", "2")), "{of_resource:?}");
    assert!(of_resource.contains(&text("service.name", "tidelock")), "{of_resource:?}");
    assert_eq!((tracer.exported(), tracer.dropped()), (2, 0));
}

#[test]
fn what_a_collector_does_not_take_is_dropped_and_counted() {
    let (refusing, received) = collector("503 Service Unavailable");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let unreachable = silent.local_addr().expect("an address");
    drop(silent);
    for address in [refusing, unreachable] {
        let (tracer, exporter) = start(Some(&settings(address, 1.0)), resource()).expect("a thread");
        let span = tracer.begin(&HeaderMap::new()).expect("all are traced");
        tracer.finish(span, (&Method::GET, None), StatusCode::OK);
        exporter.expect("a collector").stop();
        assert_eq!((tracer.exported(), tracer.dropped()), (0, 1), "{address}");
        let late = tracer.begin(&HeaderMap::new()).expect("all are traced");
        tracer.finish(late, (&Method::GET, None), StatusCode::OK);
        assert_eq!(tracer.dropped(), 2, "nobody takes it any more");
    }
    assert!(received.recv().is_ok());
}
