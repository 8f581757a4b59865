//! What HTTP requests carry besides JSON: forms, queries, headers, durations and cursors.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{ACCEPT, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use tidelock_api::etag::{self, EntityTag};
use tidelock_core::command::{Condition, LeaseId};
use tidelock_core::scan::Scan;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::slots::slot_revisions::SlotRevisions;
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::types::Version;
use tidelock_server::http::parsers;
use uuid::Uuid;

use super::{Target, text, texts};

pub const TARGETS: &[Target] = &[
    Target { name: "http-forms", run: forms, seeds: form_seeds },
    Target { name: "http-multipart", run: multipart, seeds: multipart_seeds },
    Target { name: "http-queries", run: queries, seeds: query_seeds },
    Target { name: "http-conditions", run: conditions, seeds: condition_seeds },
    Target { name: "durations", run: durations, seeds: duration_seeds },
    Target { name: "cursors", run: cursors, seeds: cursor_seeds },
];

/// The boundary of the multipart bodies.
const BOUNDARY: &str = "b";

const CLUSTER: Uuid = Uuid::from_u128(7);

fn escaped(bytes: &[u8]) -> String {
    percent_encode(bytes, NON_ALPHANUMERIC).to_string()
}

/// An urlencoded form holds no more bytes than its body, and the same when it is written anew.
fn forms(input: &[u8]) {
    let Ok([val, ver]) = parsers::urlencoded_form(input) else { return };
    let bytes = val.iter().chain(&ver).map(Bytes::len).sum::<usize>();
    assert!(bytes <= input.len());
    let field =
        |name: &str, value: &Option<Bytes>| value.as_ref().map(|value| format!("{name}={}", escaped(value)));
    let form: Vec<String> = field("ver", &ver).into_iter().chain(field("val", &val)).collect();
    assert_eq!(parsers::urlencoded_form(form.join("&").as_bytes()), Ok([val, ver]));
}

fn form_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "val=a+b%FF%00&ver=6",
        "ver=&val=x&val=second",
        "v%61l=%2B",
        "val",
        "other=1&ver=18446744073709551615",
    ])
}

/// As [`forms`], for multipart form data.
fn multipart(input: &[u8]) {
    let Ok([val, ver]) = of_multipart(input) else { return };
    let bytes = val.iter().chain(&ver).map(Bytes::len).sum::<usize>();
    assert!(bytes <= input.len());
    let end = format!("--{BOUNDARY}").into_bytes();
    let has_boundary = |value: &Bytes| value.windows(end.len()).any(|part| part == end);
    if val.iter().chain(&ver).any(has_boundary) {
        return;
    }
    let mut body = Vec::new();
    for (name, value) in [("val", &val), ("ver", &ver)] {
        let Some(value) = value else { continue };
        let head = format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(&end);
    body.extend_from_slice(b"--\r\n");
    assert_eq!(of_multipart(&body), Ok([val, ver]));
}

fn of_multipart(body: &[u8]) -> Result<[Option<Bytes>; 2], String> {
    let mut parsing = pin!(parsers::multipart_form(Bytes::copy_from_slice(body), BOUNDARY));
    match parsing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(fields) => fields,
        Poll::Pending => panic!("a body in memory needs no waiting"),
    }
}

fn multipart_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "--b\r\ncontent-disposition: form-data; name=\"val\"\r\n\r\n6\r\n--b--\r\n",
        "--b\r\ncontent-disposition: form-data; name=\"other\"\r\n\r\nx\r\n\
         --b\r\ncontent-disposition: form-data; name=\"val\"; filename=\"f\"\r\n\
         content-type: text/plain; charset=utf-8\r\n\r\n\r\n\r\n\
         --b\r\ncontent-disposition: form-data; name=\"ver\"\r\n\r\n6\r\n--b--",
        "--b--\r\n",
    ])
}

/// Keys in paths and queries: what is found is found again in its own encoding.
fn queries(input: &[u8]) {
    if let Ok(key) = parsers::key(text(input)) {
        assert_eq!(parsers::key(&escaped(&key)), Ok(key));
    }
    for name in ["val", "prefix", "stale", ""] {
        if let Ok(Some(value)) = parsers::parameter(input, name) {
            let again = format!("{}={}", escaped(name.as_bytes()), escaped(&value));
            assert_eq!(parsers::parameter(again.as_bytes(), name), Ok(Some(value)));
        }
    }
    if let Ok(Some(key)) = parsers::key_parameter(input, "prefix") {
        assert!(key.len() <= input.len());
        let again = format!("prefix={}", escaped(&key));
        assert_eq!(parsers::key_parameter(again.as_bytes(), "prefix"), Ok(Some(key)));
    }
    if let Ok(Some(unknown)) = parsers::unknown_parameter(input, &["val", "prefix"]) {
        assert!(!["val", "prefix"].contains(&&*unknown));
    }
}

fn query_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "prefix=a%2Fb&stale=true",
        "prefix_b64=_w-A&val=1",
        "a/b%00%ff",
        "val=a+b&v%61l=c&bare&=x",
        "prefix_b64=AA==",
    ])
}

/// Lines of headers: whose first byte says which. A condition that is understood is understood
/// alike when its tags are written anew.
fn conditions(input: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        let Some((kind, value)) = line.split_first() else { continue };
        let names = [IF_MATCH, IF_NONE_MATCH, ACCEPT, HeaderName::from_static(tidelock_api::IF_FENCE_HEADER)];
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(&names[usize::from(*kind) % names.len()], value);
        }
        tags_of(value);
    }
    if let Ok(Condition::Version(Version(version))) = parsers::write_condition(&headers)
        && headers.contains_key(IF_MATCH)
    {
        let tag = HeaderValue::from_str(&format!("\"{version}\"")).expect("a header");
        let again = HeaderMap::from_iter([(IF_MATCH, tag)]);
        assert_eq!(parsers::write_condition(&again), Ok(Condition::Version(Version(version))));
    }
    let verdicts = [0, 1, 7, u64::MAX].map(|current| parsers::read_verdict(&headers, Version(current)));
    assert!(verdicts.iter().all(Result::is_ok) || verdicts.iter().all(Result::is_err));
    if let Ok(Some((lock, Version(fence)))) = parsers::fence(&headers) {
        let header = HeaderValue::from_str(&format!("{}={fence}", escaped(&lock))).expect("a header");
        let name = HeaderName::from_static(tidelock_api::IF_FENCE_HEADER);
        assert_eq!(parsers::fence(&HeaderMap::from_iter([(name, header)])), Ok(Some((lock, Version(fence)))));
    }
    let offers = ["text/plain; version=0.0.4", "application/json", "text/html"];
    assert!(offers.contains(&parsers::preferred(&headers, &offers)));
}

/// A list of tags without a malformed one is read alike when it is written anew.
fn tags_of(list: &[u8]) {
    let tags: Vec<Option<EntityTag<'_>>> = etag::list(list).collect();
    let written: Option<Vec<Vec<u8>>> = tags.iter().map(|tag| tag.map(tag_text)).collect();
    if let Some(written) = written {
        assert_eq!(etag::list(&written.join(&b", "[..])).collect::<Vec<_>>(), tags);
        for (tag, text) in tags.iter().zip(&written) {
            assert_eq!(EntityTag::parse(text), *tag);
        }
    }
}

fn tag_text(tag: EntityTag<'_>) -> Vec<u8> {
    [if tag.is_weak { &b"W/\""[..] } else { b"\"" }, tag.opaque, b"\""].concat()
}

fn condition_seeds() -> Vec<Vec<u8>> {
    // The first byte of a line modulo four is its header: `If-Match` at `@` or `4`.
    texts(&[
        "4\"7\"",
        "4*\n5*",
        "5\"1\", W/\"2\",\"18446744073709551615\"",
        "6text/html;q=0.5, application/*;q=0.25, */*;q=0.001",
        "7jobs%2Fa=12",
        "4\"a,b\" \"c\"\n6text/plain; version=\"0.0.4\"",
    ])
}

/// A duration has a unit; in milliseconds it is itself.
fn durations(input: &[u8]) {
    let millis = parsers::duration_ms(input);
    if let Some(millis) = millis {
        assert!(input.last().is_some_and(u8::is_ascii_alphabetic));
        assert_eq!(parsers::duration_ms(format!("{millis}ms").as_bytes()), Some(millis));
    }
    match parsers::ttl_ms(input) {
        Some(ttl) => assert!(ttl > 0 && millis == Some(ttl)),
        None => assert!(millis.is_none_or(|millis| millis == 0 || millis > 36_600 * 86_400_000)),
    }
}

fn duration_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "1500ms",
        "30s",
        "5m",
        "2h",
        "7d",
        "0s",
        "36600d",
        "36601d",
        "18446744073709551615ms",
        "213503982334d",
    ])
}

/// Cursors and positions are read as they were written.
fn cursors(input: &[u8]) {
    if let Some(Some(position)) = parsers::watch_position(CLUSTER, input) {
        check_watch(&position);
    }
    if let Ok(position) = SlotRevisions::from_bytes(input) {
        check_watch(&position);
        let mut bytes = Vec::new();
        position.encode(&mut bytes);
        assert_eq!(SlotRevisions::from_bytes(&bytes), Ok(position));
    }
    if let Some(position) = parsers::position_of(input) {
        let again = parsers::position_text(&position);
        assert!(again.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(parsers::position_of(again.as_bytes()), Some(position));
    }
    if let Ok((namespace, item)) = parsers::search_position_of(text(input)) {
        let again = parsers::search_position_text(&namespace, item.as_ref());
        assert_eq!(parsers::search_position_of(&again), Ok((namespace, item)));
    }
    if let Some(ids) = parsers::snapshot_ids(input) {
        let texts: Vec<String> =
            ids.iter().map(|id| format!("{}:{}:{}", id.shard.0, id.index.0, id.term.0)).collect();
        assert_eq!(parsers::snapshot_ids(texts.join(",").as_bytes()), Some(ids));
    }
    if let Some(lease) = LeaseId::parse(input) {
        assert_eq!(lease.text().as_bytes(), input);
    }
    if let Some(cursor) = input.first_chunk::<8>() {
        check_scan(u64::from_le_bytes(*cursor));
    }
}

fn check_watch(position: &SlotRevisions) {
    let text = parsers::watch_cursor(CLUSTER, position);
    // A longer text than a client may send is not read again; no cluster has that many ranges.
    if text.len() <= 256 << 10 {
        assert_eq!(parsers::watch_position(CLUSTER, text.as_bytes()), Some(Some(position.clone())));
        assert_eq!(parsers::watch_position(Uuid::from_u128(8), text.as_bytes()), Some(None));
    }
}

/// A cursor of `SCAN` continues at a shard, or is refused, and is stable.
fn check_scan(cursor: u64) {
    let slots = std::sync::Arc::new(SlotMap::founded(5));
    let Ok(scan) = Scan::resume(cursor, slots.clone()) else { return };
    assert!(!scan.is_complete());
    drop(scan.read(10));
    assert_eq!(Scan::resume(scan.cursor(), slots), Ok(scan));
}

fn cursor_seeds() -> Vec<Vec<u8>> {
    let position = SlotRevisions::at(&SlotSet::from(3..900), Version(1 << 40));
    let mut bytes = Vec::new();
    position.encode(&mut bytes);
    let mut seeds = texts(&[
        "7",
        "7:app.server",
        "9@a~2fb~3a",
        "a%2Fb/pair/x",
        "ns/container/y",
        "0:1:2,3:4:5",
        "{orders}:1f",
    ]);
    seeds.push(parsers::watch_cursor(CLUSTER, &position).into_bytes());
    seeds.push(bytes);
    seeds.push((2u64 << 54 | 1 << 40 | 77).to_le_bytes().to_vec());
    seeds.push(0u64.to_le_bytes().to_vec());
    seeds
}
