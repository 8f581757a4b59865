//! Tests beyond scripts with one request after another: exact limits, concurrency, time, and the
//! end.

use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidelock_core::limits;
use tidelock_server::http::{
    BODY_BYTES_MAX, BODY_READ_TIMEOUT, CONNECTIONS_MAX, DRAIN_TIMEOUT, HEAD_BYTES_MAX, HEAD_READ_TIMEOUT,
    HttpOptions, IDLE_TIMEOUT,
};

use tidelock_server::offload::{Offload, QUEUE_JOBS_MAX};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local, yield_now};

use crate::client::Client;
use crate::harness::Server;

const SHORT: Duration = Duration::from_millis(40);

/// Number of connections that a test makes until one request arrives before its timeout.
const ATTEMPTS_MAX: usize = 100;

/// A client whose first request has been answered. With a short timeout and on a busy machine, the
/// server may close a connection before the request arrives. Then this connects again.
fn answered_client(server: &Server) -> Client {
    for _ in 0..ATTEMPTS_MAX {
        let mut client = Client::connect(server.address);
        if client.send(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").is_ok()
            && let Ok(answer) = client.read_answer(false)
        {
            assert_eq!(answer.status(), 200);
            return client;
        }
    }
    panic!("no request was answered");
}

fn serve() -> Server {
    Server::start(HttpOptions::default())
}

/// A request whose head has exactly this many bytes.
fn request_of(head_bytes: usize) -> Vec<u8> {
    let (before, behind) = ("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: ", "\r\n\r\n");
    let padding = "p".repeat(head_bytes - before.len() - behind.len());
    format!("{before}{padding}{behind}").into_bytes()
}

#[test]
fn a_head_may_be_16_kib_and_not_a_byte_more() {
    let server = serve();
    let mut client = Client::connect(server.address);
    assert_eq!(client.ask(&request_of(HEAD_BYTES_MAX)).status(), 200);
    let answer = client.ask(&request_of(HEAD_BYTES_MAX + 1));
    assert_eq!(answer.status(), 431);
    assert!(answer.text().contains(r#""limit":16384"#), "{}", answer.text());
    assert_eq!(client.ask(&request_of(100)).status(), 200, "the connection stays usable");
}

#[test]
fn a_head_far_over_the_limit_ends_the_connection() {
    let server = serve();
    let mut client = Client::connect(server.address);
    // Never completed: the parser must give up on its own.
    client.send(&request_of(4 * HEAD_BYTES_MAX + 4)[..4 * HEAD_BYTES_MAX]).unwrap();
    assert_eq!(client.read_answer(false).unwrap().status(), 431);
    client.expect_closed();
}

#[test]
fn a_head_may_have_100_headers() {
    let server = serve();
    let request = |headers: usize| {
        // `Host` is the first.
        let headers: String = (1..headers).map(|number| format!("h{number}: v\r\n")).collect();
        format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").into_bytes()
    };
    let mut client = Client::connect(server.address);
    assert_eq!(client.ask(&request(100)).status(), 200);
    assert_eq!(client.ask(&request(101)).status(), 431);
    client.expect_closed();
}

#[test]
fn a_client_may_stop_sending_and_still_be_answered() {
    let server = serve();
    let held_requests = server.store.hold();
    let mut client = Client::connect(server.address);
    client.send(b"GET /v1/keys/k HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    client.stop_sending();
    held_requests.recv().unwrap();
    server.store.release();
    assert_eq!(client.read_answer(false).unwrap().status(), 404);
    client.expect_closed();
}

#[test]
fn bytes_that_are_not_http_end_the_connection() {
    let server = serve();
    let mut client = Client::connect(server.address);
    assert_eq!(client.ask(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").status(), 400);
    client.expect_closed();
    assert_eq!(server.with_context(|context| context.counters.connections_failed.get()), 1);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = serve();
    let mut client = Client::connect(server.address);
    let put = |value: &str| {
        format!(
            "PUT /v1/keys/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{value}",
            value.len()
        )
    };
    let get = "GET /v1/keys/k HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.send(format!("{}{get}{}{get}", put("one"), put("two")).as_bytes()).unwrap();
    let answers: Vec<_> = (0..4).map(|_| client.read_answer(false).unwrap()).collect();
    assert_eq!(answers.iter().map(|answer| answer.status()).collect::<Vec<_>>(), [201, 200, 200, 200]);
    assert_eq!([answers[1].text(), answers[3].text()], ["one", "two"]);
}

#[test]
fn a_client_that_asks_first_is_invited_only_to_send_what_will_be_taken() {
    let server = serve();
    let mut client = Client::connect(server.address);
    let head = |length: usize| {
        format!(
            "PUT /v1/keys/k HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    client.send(head(5).as_bytes()).unwrap();
    assert_eq!(client.read_answer(false).unwrap().status(), 100);
    client.send(b"value").unwrap();
    assert_eq!(client.read_answer(false).unwrap().status(), 201);

    client.send(head(9 << 20).as_bytes()).unwrap();
    assert_eq!(client.read_answer(false).unwrap().status(), 413);
    client.expect_closed();
}

#[test]
fn a_malformed_body_stores_nothing() {
    let server = serve();
    let mut client = Client::connect(server.address);
    let request = b"PUT /v1/keys/k HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nvalue\r\nzz\r\n";
    assert_eq!(client.ask(request).status(), 400);
    let mut client = Client::connect(server.address);
    assert_eq!(client.ask(b"GET /v1/keys/k HTTP/1.1\r\nhost: localhost\r\n\r\n").status(), 404);
}

#[test]
fn a_body_that_is_cut_short_stores_nothing() {
    let server = serve();
    let mut client = Client::connect(server.address);
    client.send(b"PUT /v1/keys/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nvalue").unwrap();
    drop(client);
    let mut client = Client::connect(server.address);
    // The end of the other connection is handled before or after this request; neither may store.
    assert_eq!(client.ask(b"GET /v1/keys/k HTTP/1.1\r\nhost: localhost\r\n\r\n").status(), 404);
    drop(client);
    let store = server.store.clone();
    drop(server);
    assert_eq!(store.state().len(), 0, "nor later");
}

#[test]
fn a_body_that_does_not_arrive_is_given_up() {
    let server = Server::start(HttpOptions { body_read_timeout: SHORT, ..HttpOptions::default() });
    let mut client = Client::connect(server.address);
    let answer = client.ask(b"PUT /v1/keys/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nvalue");
    assert_eq!(answer.status(), 408);
    client.expect_closed();
}

#[test]
fn a_slow_head_is_cut() {
    let server = Server::start(HttpOptions { head_read_timeout: SHORT, ..HttpOptions::default() });
    let timed_out = || server.with_context(|context| context.counters.connections_timed_out.get());
    let mut client = answered_client(&server);
    let before = timed_out();
    client.send(b"GET /livez HTTP/1.1\r\nhost: loc").unwrap();
    client.expect_closed();
    assert_eq!(timed_out(), before + 1);
}

#[test]
fn an_idle_connection_is_closed() {
    let server = Server::start(HttpOptions { idle_timeout: SHORT, ..HttpOptions::default() });
    answered_client(&server).expect_closed();
}

#[test]
fn a_request_that_is_being_answered_is_not_idle() {
    let options = HttpOptions { idle_timeout: SHORT, head_read_timeout: SHORT, ..HttpOptions::default() };
    let server = Server::start(options);
    let held_requests = server.store.hold();
    // On a busy machine the server may close a connection before the request arrives.
    let connect = || {
        let mut client = Client::connect(server.address);
        client.send(b"GET /v1/keys/k HTTP/1.1\r\nhost: localhost\r\n\r\n").ok()?;
        held_requests.recv_timeout(Duration::from_secs(1)).ok().map(|()| client)
    };
    let mut waiting = (0..ATTEMPTS_MAX).find_map(|_| connect()).expect("a request arrives");
    // Another connection that is cut as idle shows that the sweep has run, more than once.
    for _ in 0..3 {
        Client::connect(server.address).expect_closed();
    }
    server.store.release();
    assert_eq!(waiting.read_answer(false).unwrap().status(), 404);
}

#[test]
fn a_connection_over_the_limit_is_told_so() {
    let server = Server::start(HttpOptions { connections_max: 1, ..HttpOptions::default() });
    let mut first = Client::connect(server.address);
    assert_eq!(first.ask(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").status(), 200);

    let mut second = Client::connect(server.address);
    let answer = second.ask(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert!(answer.text().contains("https://tidelock.dev/problems/too-many-connections"));
    second.expect_closed();
    assert_eq!(first.ask(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").status(), 200);
    assert_eq!(server.with_context(|context| context.counters.connections_refused.get()), 1);

    // The end of the first makes room as soon as the server has noticed it.
    drop(first);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while Client::connect(server.address).ask(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").status()
        != 200
    {
        assert!(std::time::Instant::now() < deadline, "the place is never vacated");
    }
}

#[test]
fn a_client_that_leaves_does_not_disturb_others() {
    let server = serve();
    let held_requests = server.store.hold();
    let mut leaving = Client::connect(server.address);
    leaving.send(b"PUT /v1/keys/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\nx").unwrap();
    held_requests.recv().unwrap();
    drop(leaving);
    server.store.release();
    let mut client = Client::connect(server.address);
    assert_eq!(client.ask(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").status(), 200);
}

#[test]
fn a_shutdown_finishes_what_is_in_flight_and_closes_the_rest() {
    let mut server = serve();
    let mut idle = Client::connect(server.address);
    assert_eq!(idle.ask(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").status(), 200);
    let mut fresh = Client::connect(server.address);
    let held_requests = server.store.hold();
    let mut working = Client::connect(server.address);
    working.send(b"PUT /v1/keys/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\nx").unwrap();
    held_requests.recv().unwrap();

    server.request_shutdown();
    idle.expect_closed();
    fresh.expect_closed();
    assert!(TcpStream::connect(server.address).is_err(), "nothing new is accepted");

    server.store.release();
    let answer = working.read_answer(false).unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.header("connection"), Some("close"));
    working.expect_closed();
    server.join();
}

#[test]
fn a_shutdown_does_not_wait_for_ever() {
    let mut server = Server::start(HttpOptions { drain_timeout: SHORT, ..HttpOptions::default() });
    let held_requests = server.store.hold();
    let mut stuck = Client::connect(server.address);
    stuck.send(b"GET /v1/keys/k HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    held_requests.recv().unwrap();
    server.request_shutdown();
    stuck.expect_closed();
    server.join();
}

#[test]
fn metrics_count_what_was_asked() {
    let server = serve();
    let mut client = Client::connect(server.address);
    client.ask(b"PUT /v1/keys/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\nx");
    client.ask(b"GET /v1/keys/k?stale=true HTTP/1.1\r\nhost: localhost\r\n\r\n");
    client.ask(b"GET /absent HTTP/1.1\r\nhost: localhost\r\n\r\n");
    client.ask(b"BREW /absent HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let answer = client.ask(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let plain = client
        .ask(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n\r\n");
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.text().contains("\n# TYPE tidelock_http_requests_total counter\n"), "{}", plain.text());
    assert!(!plain.text().contains("# UNIT") && !plain.text().contains("# EOF"));
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(media_type));
    for line in [
        r#"tidelock_http_requests_total{dialect="native",method="write",status="2xx"} 1"#,
        r#"tidelock_http_requests_total{dialect="native",method="read",status="2xx"} 1"#,
        r#"tidelock_http_requests_total{dialect="kv1",method="read",status="4xx"} 1"#,
        r#"tidelock_http_requests_total{dialect="kv1",method="other",status="4xx"} 1"#,
        r#"tidelock_http_request_duration_seconds_count{dialect="native",kind="write"} 1"#,
        r#"tidelock_http_request_duration_seconds_count{dialect="native",kind="stale_read"} 1"#,
        "tidelock_http_connections_open 1",
        "tidelock_http_connections_accepted_total 1",
    ] {
        assert!(answer.text().lines().any(|found| found == line), "{line}\n{}", answer.text());
    }
}

#[test]
fn the_documents_state_the_limits() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/limits.md");
    let text = std::fs::read_to_string(document).unwrap();
    let grouped = |number: usize| format!("{},{:03}", number / 1000, number % 1000);
    for row in [
        format!("| key | {} KiB", limits::KEY_BYTES_MAX >> 10),
        format!("| value | {} MiB", limits::VALUE_BYTES_MAX >> 20),
        format!("| body of a form or of a transaction | {} MiB", BODY_BYTES_MAX >> 20),
        format!(
            "| comparisons of a transaction, and operations of each branch | {} |",
            grouped(limits::BRANCH_OPERATIONS_MAX)
        ),
        format!("| request line and headers | {} KiB", HEAD_BYTES_MAX >> 10),
        format!("| list page | {} items", grouped(limits::LIST_PAGE_ITEMS_MAX)),
        format!("| connections | {} ", grouped(CONNECTIONS_MAX)),
        format!("| time for a request head | {} s", HEAD_READ_TIMEOUT.as_secs()),
        format!("| time for a body | {} s", BODY_READ_TIMEOUT.as_secs()),
        format!("takes nothing of an answer | {} s", IDLE_TIMEOUT.as_secs()),
        format!("answered for up to {} s", DRAIN_TIMEOUT.as_secs()),
    ] {
        assert!(text.contains(&row), "{row}");
    }
}

/// Every combination of a browser's headers, by the rules of Go's `CrossOriginProtection`.
#[test]
fn changes_need_a_page_of_the_same_origin_or_none() {
    let server = serve();
    let mut client = Client::connect(server.address);
    let header =
        |name: &str, value: Option<&str>| value.map_or(String::new(), |value| format!("{name}: {value}\r\n"));
    let sites = [None, Some("same-origin"), Some("none"), Some("same-site"), Some("cross-site"), Some("")];
    let origins = [
        None,
        Some("http://localhost:8001"),
        Some("https://localhost:8001"),
        Some("http://localhost"),
        Some("null"),
    ];
    for (site, origin) in sites.iter().flat_map(|site| origins.map(|origin| (*site, origin))) {
        let is_own_origin = origin.is_none_or(|origin| origin.ends_with("//localhost:8001"));
        let may_change = match site {
            None => is_own_origin,
            Some(site) => ["same-origin", "none"].contains(&site),
        };
        let headers = header("sec-fetch-site", site) + &header("origin", origin);
        for (method, is_change) in [
            ("PUT", true),
            ("POST", true),
            ("DELETE", true),
            ("PATCH", true),
            ("GET", false),
            ("HEAD", false),
        ] {
            let head = format!(
                "{method} /db/k HTTP/1.1\r\nhost: localhost:8001\r\ncontent-length: 0\r\n{headers}\r\n"
            );
            let is_refused = client.ask(head.as_bytes()).status() == 403;
            assert_eq!(is_refused, is_change && !may_change, "{head}");
        }
    }
}

#[test]
fn the_host_of_an_absolute_target_counts() {
    let server = serve();
    let mut client = Client::connect(server.address);
    let mut status = |target: &str, host: &str| {
        client.ask(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).status()
    };
    assert_eq!(status("http://localhost:1/livez", "evil.example"), 200);
    assert_eq!(status("http://evil.example/livez", "localhost"), 421);
    assert_eq!(status("http://user@localhost/livez", "localhost"), 400);
    assert_eq!(status("http://localhost/livez", "local host"), 400);
}

/// Gives the thread for large documents as many jobs as it accepts; they last until `released`
/// receives a message.
fn occupy(offload: &Offload, full: &mpsc::Sender<()>, released: mpsc::Receiver<()>) {
    const LARGE: usize = 1 << 20;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    LocalSet::new().block_on(&runtime, async move {
        let (began, has_begun) = oneshot::channel();
        let handle = offload.clone();
        let work = move || {
            began.send(()).unwrap();
            released.recv().ok();
        };
        let mut tasks = vec![spawn_local(async move { handle.run(LARGE, work).await })];
        has_begun.await.unwrap();
        for _ in 0..QUEUE_JOBS_MAX {
            let handle = offload.clone();
            tasks.push(spawn_local(async move { handle.run(LARGE, || ()).await }));
        }
        yield_now().await;
        full.send(()).unwrap();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
}

#[test]
fn large_documents_hold_up_nobody_and_are_refused_when_too_many_wait() {
    let server = serve();
    let (release, released) = mpsc::channel();
    let (full, is_full) = mpsc::channel();
    let offload = server.with_context(|context| context.offload.clone());
    let occupied = thread::spawn(move || occupy(&offload, &full, released));
    is_full.recv().unwrap();

    let post = |target: &str, body: &str| {
        format!("POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            .into_bytes()
    };
    let text = "x".repeat(20_000);
    let (document, pair) = (format!("{{\"a\":\"{text}\"}}"), format!("{{\"value\":\"{text}\"}}"));
    let publication = format!("{{\"changes\":[{{\"pair\":\"p\",\"value\":\"{text}\"}}]}}");
    let large = [
        post("/api/namespaces/ns/containers/app/import?create=true", &document),
        post("/api/namespaces/ns/pairs/large?create=true", &pair),
        post("/api/namespaces/ns/publish?create=true", &publication),
    ];
    let mut client = Client::connect(server.address);
    for request in &large {
        let answer = client.ask(request);
        assert_eq!(answer.status(), 503, "{}", answer.text());
        assert!(answer.text().contains(r#""errcode":50301"#), "{}", answer.text());
    }
    // Everything else continues, including short documents.
    assert_eq!(client.ask(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").status(), 200);
    let short = post("/api/namespaces/ns/containers/short/import?create=true", r#"{"a":1}"#);
    assert_eq!(client.ask(&short).status(), 200);
    release.send(()).unwrap();
    occupied.join().unwrap();
    for request in &large {
        let answer = client.ask(request);
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    let export = b"GET /api/namespaces/ns/export?format=yaml HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert!(client.ask(export).text().contains(&text));
    for short in ["rollback", "policy"] {
        let body = format!("{{\"message\":\"{text}\"}}");
        let answer = client.ask(&post(&format!("/api/namespaces/ns/{short}"), &body));
        assert_eq!(answer.status(), 413, "{}", answer.text());
    }
}
