//! Limits of roles: what counts, what is refused, and who shares a limit.

use serde_json::json;

use crate::harness::client::Raw;
use crate::harness::guarded::Guarded;
use crate::harness::{Response, eventually, metric};

/// A principal whose role has these limits; its token.
fn limited(guarded: &Guarded, name: &str, operations_per_s: Option<u64>, bytes_per_s: Option<u64>) -> String {
    let (token, _) =
        guarded.principal(name, &["read keys:", "write keys:", "write config:*", "cluster:read"]);
    set_limits(guarded, name, (operations_per_s, bytes_per_s));
    token
}

fn set_limits(guarded: &Guarded, name: &str, (operations_per_s, bytes_per_s): (Option<u64>, Option<u64>)) {
    let grants = ["read keys:", "write keys:", "write config:*", "cluster:read"];
    let mut body = json!({ "grants": grants });
    for (member, rate) in [("operations_per_s", operations_per_s), ("bytes_per_s", bytes_per_s)] {
        if let Some(rate) = rate {
            body[member] = rate.into();
        }
    }
    guarded.administer(&format!("PUT /v1/auth/roles/{name}"), &body);
}

fn refused(guarded: &Guarded, node: usize) -> u64 {
    let metrics = guarded.send(node, "GET /metrics", &guarded.admin, b"").text();
    metric(&metrics, "tidelock_limited_requests_total")
}

#[test]
fn requests_over_the_limit_are_refused_and_say_when_to_try_again() {
    let guarded = Guarded::start(3);
    let token = limited(&guarded, "app", Some(1), None);
    let put = |token: &str| guarded.send(2, "PUT /v1/keys/a", token, b"v");
    assert_eq!(put(&token).status, 201);
    let over = eventually("one operation a second is allowed", || {
        Some(put(&token)).filter(|answer| answer.status != 200)
    });
    assert!(over.is_problem("limit-exceeded"), "{}", over.text());
    assert_eq!(over.status, 429);
    assert!(refused(&guarded, 2) > 0);
    eventually("it is allowed again", || (put(&token).status == 200).then_some(()));

    let mut raw = Raw::connect(guarded.cluster.address(2)).expect("a connection");
    let over: Vec<String> = (0..3)
        .map(|_| {
            let request = format!(
                "GET /v1/keys/a HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
            );
            let mut raw = std::mem::replace(&mut raw, Raw::connect(guarded.cluster.address(2)).expect("one"));
            raw.write(request.as_bytes()).expect("sent");
            String::from_utf8_lossy(&raw.read_to_end().expect("an answer")).to_ascii_lowercase()
        })
        .filter(|answer| answer.starts_with("http/1.1 429"))
        .collect();
    assert!(
        !over.is_empty() && over.iter().all(|answer| answer.contains("\r\nretry-after: 1\r\n")),
        "{over:?}"
    );
    let config = eventually("configuration counts too", || {
        Some(guarded.send(2, "POST /api/namespaces/web", &token, b"")).filter(|answer| answer.status == 429)
    });
    assert_eq!(config.json()["errcode"], 42900, "{}", config.text());

    // Neither requests about the cluster and permissions, nor other principals, are limited.
    for _ in 0..20 {
        assert_eq!(guarded.send(2, "GET /v1/auth/whoami", &token, b"").status, 200);
        assert_eq!(guarded.send(2, "GET /v1/cluster", &token, b"").status, 200);
        assert_eq!(put(&guarded.admin).status, 200);
    }
    let listed = guarded.administer("GET /v1/auth/roles", &json!({}));
    let role = listed["roles"].as_array().expect("roles").iter().find(|role| role["name"] == "app");
    assert_eq!(role.expect("the role")["operations_per_s"], 1, "{listed}");
    set_limits(&guarded, "app", (None, None));
    for _ in 0..20 {
        assert_eq!(put(&token).status, 200, "the limit is gone");
    }
    for body in [r#"{"grants":[],"operations_per_s":0}"#, r#"{"grants":[],"bytes_per_s":1000000000001}"#] {
        let invalid = guarded.send(1, "PUT /v1/auth/roles/r", &guarded.admin, body.as_bytes());
        assert_eq!(invalid.status, 400, "{}", invalid.text());
    }
}

#[test]
fn bytes_of_requests_and_answers_count() {
    let guarded = Guarded::start(1);
    let token = limited(&guarded, "app", None, Some(1_000));
    let send = |request: &str, body: &[u8]| -> Response { guarded.send(1, request, &token, body) };
    // Larger than a full bucket, which it leaves with a debt of many seconds.
    assert_eq!(send("PUT /v1/keys/large", &[b'v'; 100_000]).status, 201);
    assert_eq!(send("GET /v1/keys/large", b"").status, 429);
    set_limits(&guarded, "app", (None, Some(1_000_000_000)));
    eventually("the debt is paid off", || (send("GET /v1/keys/large", b"").status == 200).then_some(()));
    set_limits(&guarded, "app", (None, None));
    assert_eq!(send("GET /v1/keys/large", b"").status, 200);
    set_limits(&guarded, "app", (None, Some(200)));
    assert_eq!(send("GET /v1/keys/large", b"").status, 200, "the size of an answer is known afterwards");
    assert_eq!(send("GET /v1/keys/large", b"").status, 429);
    let mut redis = guarded.redis(1);
    assert_eq!(redis.ask(&format!("AUTH {token}")), "+OK");
    assert!(redis.ask("GET large").starts_with("-LIMIT "), "HTTP and Redis share the limit");
}

#[test]
fn commands_over_the_limit_are_refused_one_by_one() {
    let guarded = Guarded::start(1);
    let token = limited(&guarded, "app", Some(10), None);
    let mut redis = guarded.redis(1);
    assert_eq!(redis.ask(&format!("AUTH {token}")), "+OK");
    redis.send(&"SET a v\r\n".repeat(100)).expect("sent");
    let replies: Vec<String> = (0..100).map(|_| redis.reply().expect("a reply")).collect();
    let served = replies.iter().filter(|reply| *reply == "+OK").count();
    assert!(replies.iter().all(|reply| reply == "+OK" || reply.starts_with("-LIMIT ")), "{replies:?}");
    assert!((10..100).contains(&served), "{served}");
    assert_eq!(redis.ask("PING"), "+PONG", "the connection stays, and PING does not count");
    // Another connection shares the limit.
    let mut other = guarded.redis(1);
    assert_eq!(other.ask(&format!("AUTH {token}")), "+OK");
    other.send(&"GET a\r\n".repeat(50)).expect("sent");
    assert!((0..50).any(|_| other.reply().expect("a reply").starts_with("-LIMIT ")));

    // More operations than a full bucket has: served when it is full, and then owed.
    eventually("the bucket is full", || {
        let reply =
            redis.ask("MSET a{1} 1 b{1} 1 c{1} 1 d{1} 1 e{1} 1 f{1} 1 g{1} 1 h{1} 1 i{1} 1 j{1} 1 k{1} 1");
        (reply == "+OK").then_some(())
    });
    assert!(redis.ask("GET a{1}").starts_with("-LIMIT "));
    let refused = |redis: &mut crate::harness::resp::Client| {
        assert_eq!(redis.ask("MULTI"), "+OK");
        for _ in 0..30 {
            assert_eq!(redis.ask("SET a{1} 2"), "+QUEUED", "EXEC is charged");
        }
        let reply = redis.ask("EXEC");
        if reply.starts_with("-LIMIT ") {
            return true;
        }
        assert_eq!(reply, "*30");
        (0..30).for_each(|_| assert_eq!(redis.reply().expect("a reply"), "+OK"));
        false
    };
    assert!(refused(&mut redis), "the bucket has a debt");
    assert!(redis.ask("EXEC").starts_with("-ERR EXEC without MULTI"), "the transaction is discarded");
    eventually("the transaction is served", || (!refused(&mut redis)).then_some(()));
    assert!(redis.ask("GET a{1}").starts_with("-LIMIT "), "all operations of a transaction count");
    set_limits(&guarded, "app", (None, None));
    assert_eq!(redis.ask("GET a{1}"), "2", "a change counts for open connections");
}
