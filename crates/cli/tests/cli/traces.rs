//! Traces of requests: what a collector of OpenTelemetry gets from the nodes that work on one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::recorder::Recorder;
use crate::harness::{Cluster, Options, eventually, metric};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";

/// A span, and the node that reported it.
#[derive(Debug)]
struct Reported {
    node: u64,
    span: Value,
}

/// The spans of a request to the collector.
fn spans(body: &Value) -> Vec<Reported> {
    let resource = &body["resourceSpans"][0];
    let node = number(&resource["resource"], "tidelock.node").expect("the number of the node");
    let spans = resource["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
    spans.into_iter().map(|span| Reported { node, span }).collect()
}

/// The value of a numeric attribute.
fn number(of: &Value, name: &str) -> Option<u64> {
    let attributes = of["attributes"].as_array()?;
    let attribute = attributes.iter().find(|attribute| attribute["key"] == name)?;
    attribute["value"]["intValue"].as_str()?.parse().ok()
}

/// A cluster whose nodes send traces to `collector`, and the leader of its data shard.
fn cluster(collector: &Recorder) -> (Cluster, usize) {
    let url = collector.url();
    let options = Options { flags: vec!["--shards", "1"] };
    let cluster = Cluster::start_prepared(3, &options, |cluster| {
        (1..=3).for_each(|node| cluster.add_flags(node, &["--trace-endpoint", &url]));
    });
    cluster.await_newest_version();
    let leader = eventually("the shard has a leader", || cluster.leaders(1).into_iter().nth(1).flatten());
    (cluster, leader)
}

#[test]
fn a_traced_write_has_spans_on_the_node_that_got_it_and_on_the_leader() {
    let collector = Recorder::start(|_| (200, json!({})));
    let (cluster, leader) = cluster(&collector);
    let asked = leader % 3 + 1;
    let header = format!("traceparent: 00-{TRACE}-{CLIENT_SPAN}-01");
    assert_eq!(cluster.put(asked, "/v1/keys/before", b"not traced").status, 201);
    assert_eq!(cluster.send(asked, "PUT /v1/keys/secret", &[&header], b"squeamish").status, 201);
    let mut received = Vec::new();
    let reported = eventually("all spans have arrived", || {
        received.extend(collector.take());
        let reported: Vec<Reported> = received.iter().flat_map(|request| spans(&request.body)).collect();
        (reported.len() >= 3).then_some(reported)
    });
    assert!(received.iter().all(|request| request.line == "POST /v1/traces"), "{received:?}");
    let text = format!("{received:?}");
    assert!(!text.contains("secret") && !text.contains("squeamish"), "keys and values stay here");
    let named: BTreeMap<&str, &Reported> =
        reported.iter().map(|reported| (reported.span["name"].as_str().expect("a name"), reported)).collect();
    assert_eq!(
        named.keys().copied().collect::<Vec<_>>(),
        ["PUT /v1/keys/{key}", "forwarded write", "write"],
        "one span each: {reported:?}"
    );
    assert!(reported.iter().all(|reported| reported.span["traceId"] == TRACE), "{reported:?}");
    let (route, write, forwarded) = (named["PUT /v1/keys/{key}"], named["write"], named["forwarded write"]);
    assert_eq!(route.span["parentSpanId"], CLIENT_SPAN);
    assert_eq!(write.span["parentSpanId"], route.span["spanId"]);
    assert_eq!(forwarded.span["parentSpanId"], write.span["spanId"]);
    assert_eq!([route.node, write.node, forwarded.node], [asked as u64, asked as u64, leader as u64]);
    assert_eq!(number(&forwarded.span, "tidelock.from_node"), Some(asked as u64));
    assert_eq!(number(&route.span, "http.response.status_code"), Some(201));
    assert_eq!(write.span["events"][0]["name"], "sent to another node");
    assert_eq!(forwarded.span["events"][0]["name"], "in the leader's log");
    assert_eq!(cluster.get(asked, "/v1/keys/secret").text(), "squeamish");
    let metrics = cluster.get(leader, "/metrics").text();
    assert_eq!(metric(&metrics, "tidelock_spans_dropped_total"), 0);
}

#[test]
fn a_collector_that_is_down_delays_no_request() {
    let down = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", down.local_addr().expect("an address"));
    drop(down);
    let options = Options { flags: vec!["--shards", "1", "--trace-ratio", "1"] };
    let cluster = Cluster::start_prepared(1, &options, |cluster| {
        cluster.add_flags(1, &["--trace-endpoint", &url]);
    });
    for number in 0..100 {
        assert_eq!(cluster.put(1, &format!("/v1/keys/{number}"), b"value").status, 201);
    }
    eventually("the log says that spans are dropped", || {
        cluster.log(1).contains("the trace collector takes no spans: they are dropped").then_some(())
    });
    eventually("they are counted", || {
        let metrics = cluster.get(1, "/metrics").text();
        (metric(&metrics, "tidelock_spans_dropped_total") >= 200).then_some(())
    });
}
