//! Authentication: tokens over HTTP at leaders and followers, what each of them may do, and its
//! end.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::harness::client::Raw;
use crate::harness::eventually;
use crate::harness::guarded::Guarded;

/// Every method of every path of the document, with parameters filled in.
fn rows(guarded: &Guarded) -> Vec<String> {
    let document = guarded.cluster.get(1, "/openapi.json").json();
    let mut rows = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let path = path.replace("{node}", "1").replace("{shard}", "1").replace("{token}", "0123456789abcdef");
        let path = path.replace(['{', '}'], "");
        let path = if path.ends_with("/transfer") { path + "?to=1" } else { path };
        for method in ["get", "put", "post", "delete"] {
            if item.get(method).is_some() {
                rows.push(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    assert!(rows.len() > 90, "{rows:?}");
    rows
}

/// The answers to requests without a token, in the same order.
fn without_token(guarded: &Guarded, node: usize, rows: &[String]) -> Vec<(u16, Vec<u8>)> {
    let mut raw = Raw::connect(guarded.cluster.address(node)).expect("a connection");
    let mut ask = |row: &String| {
        raw.write(format!("{row} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
        raw.read()
    };
    rows.iter().map(|row| ask(row).unwrap_or_else(|error| panic!("{row}: {error}"))).collect()
}

/// Requests that need no token, each with the status of its answer.
const OPEN: [(&str, u16); 6] = [
    ("GET /livez", 200),
    ("GET /readyz", 200),
    ("GET /openapi.json", 200),
    ("GET /ui", 308),
    ("GET /ui/file", 404),
    ("DELETE /v1/session", 204),
];

fn status_if_open(row: &str) -> Option<u16> {
    OPEN.iter().find(|(open, _)| *open == row).map(|(_, status)| *status)
}

#[test]
fn every_route_demands_a_token_and_a_grant() {
    let guarded = Guarded::start(3);
    let (nobody, _) = guarded.principal("nobody", &[]);
    let (rows, wrong) = (rows(&guarded), guarded.deleted_token());
    for node in guarded.nodes() {
        for (row, (status, body)) in rows.iter().zip(without_token(&guarded, node, &rows)) {
            let expected = status_if_open(row).unwrap_or(401);
            assert_eq!(status, expected, "{row} without a token: {}", String::from_utf8_lossy(&body));
        }
        let verbose = guarded.cluster.get(node, "/readyz?verbose");
        assert!(verbose.is_problem("unauthenticated"), "{}", verbose.text());
        let mut forbidden = 0;
        for row in rows.iter().filter(|row| status_if_open(row).is_none()) {
            let answer = guarded.send(node, row, &nobody, b"");
            if ["GET /v1/auth/whoami", "POST /v1/session"].contains(&row.as_str()) {
                assert_eq!(answer.json()["principal"], "nobody");
                continue;
            }
            // A request that is malformed may be refused before its demands are known.
            assert!([400, 403].contains(&answer.status), "{row}: {} {}", answer.status, answer.text());
            forbidden += usize::from(answer.status == 403);
        }
        assert!(forbidden > 70, "{forbidden} of {}", rows.len());
        for row in ["GET /v1/keys/a", "GET /metrics", "PUT /v1/keys/a", "GET /api/namespaces"] {
            assert_eq!(guarded.send(node, row, &wrong, b"").status, 401, "{row} with a wrong token");
        }
        for row in
            ["GET /v1/cluster", "GET /metrics", "GET /readyz?verbose", "GET /v1/cluster/clients", "GET /"]
        {
            assert_eq!(guarded.send(node, row, &guarded.admin, b"").status, 200, "{row}");
        }
    }
}

#[test]
fn grants_for_keys_hold_in_every_dialect_and_at_every_node() {
    let guarded = Guarded::start(3);
    let (exact, _) = guarded.principal("app", &["read keys:app/", "write keys:app/"]);
    let (reader, _) = guarded.principal("reader", &["read keys:app/"]);
    let (slash, _) = guarded.principal("slash", &["read keys:/app/", "write keys:/app/"]);
    for node in guarded.nodes() {
        for key in 0..8 {
            let path = format!("/v1/keys/app/{node}-{key}");
            assert_eq!(guarded.send(node, &format!("PUT {path}"), &exact, b"v").status, 201);
            assert_eq!(guarded.send(node, &format!("GET {path}"), &reader, b"").status, 200);
            assert_eq!(guarded.send(node, &format!("GET {path}?stale"), &slash, b"").status, 403);
            let refused = guarded.send(node, &format!("PUT {path}"), &reader, b"v");
            assert!(refused.is_problem("forbidden"), "{}", refused.text());
            assert!(refused.text().contains("`write keys:app/"), "{}", refused.text());
        }
        for (request, token, status) in [
            ("PUT /v1/keys/other", &exact, 403),
            ("GET /v1/keys?prefix=app/", &reader, 200),
            ("GET /v1/keys?prefix=app", &reader, 403),
            ("GET /v1/keys", &reader, 403),
            ("PUT /db/app/raw", &exact, 200),
            ("PUT /db/app/raw", &slash, 403),
            ("GET /db/app/raw", &reader, 200),
            ("GET /app/versioned", &slash, 404),
            ("GET /app/versioned", &exact, 403),
            ("PUT /app/versioned?val=1", &reader, 403),
            ("GET /v1/atomics/app/n", &reader, 200),
            ("GET /api/namespaces", &exact, 403),
            ("POST /api/namespaces/web", &exact, 403),
            ("GET /v1/cluster", &exact, 403),
        ] {
            let answer = guarded.send(node, request, token, b"1");
            assert_eq!(answer.status, status, "{request} at node {node}: {}", answer.text());
        }
    }
    let config = guarded.send(1, "POST /api/namespaces/web", &exact, b"");
    assert_eq!(config.json()["errcode"], 40300, "{}", config.text());
}

#[test]
fn rotated_deleted_and_expired_tokens_end() {
    let guarded = Guarded::start(3);
    let (first, id) = guarded.principal("app", &["read keys:"]);
    let status = |node: usize, token: &str| guarded.send(node, "GET /v1/keys/a", token, b"").status;
    let rotate = || {
        let issued = guarded.administer(&format!("POST /v1/auth/tokens/{id}/rotate"), &json!({}));
        issued["token"].as_str().expect("a token").to_owned()
    };
    let second = rotate();
    assert_eq!((status(2, &first), status(2, &second)), (404, 404), "both secrets are valid");
    let third = rotate();
    assert_eq!((status(3, &first), status(3, &second), status(3, &third)), (401, 404, 404));
    let listed = guarded.administer("GET /v1/auth/tokens", &json!({}));
    let row = listed["tokens"].as_array().expect("tokens").iter().find(|row| row["id"] == id.as_str());
    assert_eq!(row.expect("the token")["secrets"], 2);
    let change = guarded.administer(&format!("DELETE /v1/auth/tokens/{id}"), &json!({}));
    assert_eq!(change["in_force"], json!([1, 2, 3]));
    for node in guarded.nodes() {
        assert_eq!(status(node, &third), 401, "deleted");
    }
    let body = json!({ "principal": "app", "expires_in_s": 1 });
    let short = guarded.administer("POST /v1/auth/tokens", &body)["token"].as_str().expect("it").to_owned();
    eventually("the token expires", || (status(1, &short) == 401).then_some(()));
    let last = guarded.send(1, "DELETE /v1/auth/principals/root", &guarded.admin, b"");
    assert!(last.is_problem("last-administrator"), "{}", last.text());
    for (request, body, status, words) in [
        ("PUT /v1/auth/roles/a%20b", r#"{"grants":[]}"#, 400, "letters, digits"),
        ("PUT /v1/auth/roles/r", r#"{"grants":["fly"]}"#, 400, "fly"),
        ("PUT /v1/auth/principals/p", r#"{"roles":["none"]}"#, 404, "none"),
        ("POST /v1/auth/tokens", r#"{"principal":"nobody"}"#, 404, "no such principal"),
        ("DELETE /v1/auth/roles/app", "", 409, "principal has this role"),
        ("DELETE /v1/auth/tokens/xyz", "", 400, "hexadecimal"),
    ] {
        let answer = guarded.send(1, request, &guarded.admin, body.as_bytes());
        assert_eq!(answer.status, status, "{request}: {}", answer.text());
        assert!(answer.text().contains(words), "{request}: {}", answer.text());
    }
}

#[test]
fn a_restarted_node_does_not_call_a_token_wrong_that_it_may_not_know_yet() {
    let mut guarded = Guarded::start(3);
    assert_eq!(guarded.cluster.terminate(3).code(), Some(0));
    let (token, _) = guarded.principal("late", &["read keys:"]);
    guarded.cluster.kill(1);
    guarded.cluster.kill(2);
    guarded.cluster.spawn(3);
    let header = format!("Authorization: Bearer {token}");
    let ask =
        |guarded: &Guarded| guarded.cluster.try_send(3, "GET /v1/keys/absent?stale=true", &[&header], b"");
    let answer = eventually("node 3 answers", || ask(&guarded));
    assert!(answer.is_problem("permissions-unknown"), "{}", answer.text());
    let reply = guarded.redis(3).ask(&format!("AUTH {token}"));
    assert!(reply.starts_with("-MASTERDOWN "), "{reply}");
    guarded.cluster.spawn(1);
    guarded.cluster.spawn(2);
    eventually("node 3 knows the token", || ask(&guarded).filter(|answer| answer.status == 404));
    assert_eq!(guarded.redis(3).ask(&format!("AUTH {token}")), "+OK");
}

#[test]
fn an_event_stream_ends_with_its_permission_and_the_author_is_the_principal() {
    let guarded = Guarded::start(3);
    let (watcher, id) = guarded.principal("watcher", &["read config:web"]);
    let (other, _) = guarded.principal("other", &["read config:web"]);
    guarded.administer("POST /api/namespaces/web", &json!({}));
    let publication = json!({ "author": "somebody else", "changes": [
        { "pair": "p", "value": 1 },
        { "container": "c", "fields": [{ "key": "f", "fieldType": 1, "value": "p" }] },
    ]});
    let published = guarded.send(
        1,
        "POST /api/namespaces/web/publish",
        &guarded.admin,
        publication.to_string().as_bytes(),
    );
    assert!([200, 201].contains(&published.status), "{}", published.text());
    let history = guarded.send(2, "GET /api/namespaces/web/history", &watcher, b"");
    let expected = r#""author":"root","on_behalf_of":"somebody else""#;
    assert!(history.text().contains(expected), "{}", history.text());
    let watch = |token: &str| {
        let mut raw = Raw::connect(guarded.cluster.address(2)).expect("a connection");
        let request = format!(
            "GET /api/namespaces/web/containers/c/watch HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        raw.write(request.as_bytes()).expect("sent");
        raw.read_until("retry: 1000").expect("the stream begins");
        raw
    };
    let (mut revoked, mut narrowed) = (watch(&watcher), watch(&other));
    guarded.administer(&format!("DELETE /v1/auth/tokens/{id}"), &json!({}));
    revoked.read_to_end().expect("the stream ends");
    guarded.administer("PUT /v1/auth/roles/other", &json!({ "grants": ["read config:db"] }));
    narrowed.read_to_end().expect("the stream ends");
    let (brief, _) = guarded.principal("brief", &["read config:web"]);
    let mut brief = watch(&brief);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_millis() as u64;
    let role = json!({ "grants": ["read config:web"], "ends_unix_ms": now + 1_000 });
    guarded.administer("PUT /v1/auth/roles/brief", &role);
    brief.read_to_end().expect("the stream ends with the role");
}

#[test]
fn a_gathered_backup_needs_an_administrator() {
    let guarded = Guarded::start(6);
    let (operator, _) = guarded.principal("operator", &["cluster:operate", "read keys:", "read config:*"]);
    for node in guarded.nodes() {
        let refused = guarded.send(node, "GET /v1/backup", &operator, b"");
        assert!(refused.is_problem("forbidden"), "{}", refused.text());
        let saved = guarded.send(node, "GET /v1/backup", &guarded.admin, b"");
        assert_eq!(saved.status, 200, "{}", saved.text());
    }
}

#[test]
fn a_backup_under_way_ends_with_its_token() {
    /// More than the sockets on both sides take.
    const VALUES: usize = 40;
    let guarded = Guarded::start(1);
    let (saver, id) = guarded.principal("saver", &["cluster:admin"]);
    for number in 0..VALUES {
        let request = format!("PUT /v1/keys/{number}");
        let value = vec![number as u8; 1 << 20];
        assert_eq!(guarded.send(1, &request, &guarded.admin, &value).status, 201);
    }
    let mut backup = Raw::connect(guarded.cluster.address(1)).expect("a connection");
    let head = format!("Host: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer {saver}\r\n");
    backup.write(format!("GET /v1/backup HTTP/1.1\r\n{head}\r\n").as_bytes()).expect("sent");
    backup.read_until("HTTP/1.1 200").expect("the backup begins");
    guarded.administer(&format!("DELETE /v1/auth/tokens/{id}"), &json!({}));
    // Either an error, or an end without the last chunk.
    let rest = backup.read_to_end().unwrap_or_default();
    assert!(!rest.ends_with(b"\r\n0\r\n\r\n") && rest.len() < VALUES << 20, "{}", rest.len());
}

#[test]
fn redis_clients_authenticate_first() {
    let guarded = Guarded::start(3);
    let (app, _) = guarded.principal("app", &["read keys:app/", "write keys:app/"]);
    let wrong = guarded.deleted_token();
    for node in guarded.nodes() {
        let mut client = guarded.redis(node);
        for command in [
            "GET app/1",
            "PING",
            "INFO",
            "CONFIG GET save",
            "CLIENT LIST",
            "CLUSTER SLOTS",
            "CLUSTER KEYSLOT a",
            "SCAN 0",
            "KEYS *",
            "DBSIZE",
            "MULTI",
            "COMMAND",
            "TIME",
            "ACL WHOAMI",
            "SELECT 0",
            "RESET",
            "READONLY",
            "nonsense",
        ] {
            assert_eq!(client.ask(command), "-NOAUTH Authentication required.", "{command}");
        }
        assert!(client.ask("HELLO 2").starts_with("-NOAUTH HELLO must be called"), "HELLO");
        let refused = "-WRONGPASS invalid username-password pair or user is disabled.";
        assert_eq!(client.ask(&format!("AUTH {wrong}")), refused);
        assert_eq!(client.ask(&format!("AUTH other {app}")), refused);
        assert_eq!(client.ask("GET app/1"), "-NOAUTH Authentication required.");
        assert_eq!(client.ask(&format!("AUTH app {app}")), "+OK");
        assert_eq!(client.ask("ACL WHOAMI"), "app");
        assert_eq!(client.ask_many("ACL CAT keyspace"), ["scan", "keys", "dbsize"]);
        let user = client.ask_fields("ACL GETUSER app", 7);
        assert_eq!(user[8], "~app/*", "{user:?}");
        assert_eq!(client.ask("SET app/1 v"), "+OK");
        assert_eq!(client.ask("GET app/1"), "v");
        let denied = |reply: String| assert!(reply.starts_with("-NOPERM "), "{reply}");
        for command in [
            "GET other",
            "MGET app/1 other",
            "MSET app/1 v other v",
            "WATCH other",
            "SCAN 0",
            "KEYS app/*",
            "DBSIZE",
            "INFO",
            "CONFIG GET save",
            "CLUSTER SLOTS",
            "CLUSTER SHARDS",
            "CLUSTER GETKEYSINSLOT 0 1",
            "ACL LIST",
            "ACL GETUSER root",
        ] {
            denied(client.ask(command));
        }
        assert_eq!(client.ask("RESET"), "+RESET");
        assert_eq!(client.ask("PING"), "-NOAUTH Authentication required.");
        assert_eq!(client.ask(&format!("AUTH default {app}")), "+OK");
        assert_eq!(client.ask("PING"), "+PONG");
        let mut admin = guarded.redis_as(node, &guarded.admin);
        assert!(admin.ask("DBSIZE").starts_with(':'), "DBSIZE");
        assert_eq!(admin.ask_many("ACL USERS"), ["app", "root"]);
        let app = "user app on ~app/* resetchannels &app/* -@all +@read +@write +@transaction +@scripting +@pubsub +@connection";
        assert_eq!(admin.ask_many("ACL LIST")[0], app);
        assert_eq!(admin.ask("ACL GETUSER nobody"), "$-1");
        assert!(admin.ask("INFO").contains("tidelock"), "INFO");
    }
}

#[test]
fn only_the_command_that_is_not_allowed_is_refused() {
    let guarded = Guarded::start(3);
    let (app, id) = guarded.principal("app", &["read keys:app/", "write keys:app/"]);
    for node in guarded.nodes() {
        let mut client = guarded.redis_as(node, &app);
        let key = |number: usize| if number == 333 { "other".to_owned() } else { format!("app/{number}") };
        let burst: String = (0..500).map(|number| format!("SET {} v\r\n", key(number))).collect();
        client.send(&burst).expect("sent");
        for number in 0..500 {
            let reply = client.reply().expect("a reply");
            let expected =
                if number == 333 { "-NOPERM this needs the permission `write keys:other`" } else { "+OK" };
            assert!(reply.starts_with(expected), "{number}: {reply}");
        }
        for (command, expected) in [
            ("MULTI", "+OK"),
            ("SET app/x{a} new", "+QUEUED"),
            ("GET other{a}", "-NOPERM"),
            ("EXEC", "-EXECABORT"),
            ("EXISTS app/x{a}", ":0"),
        ] {
            let reply = client.ask(command);
            assert!(reply.starts_with(expected), "{command}: {reply}");
        }
    }
    let other = guarded.send(1, "GET /v1/keys/other", &guarded.admin, b"");
    assert_eq!(other.status, 404, "nothing was written");
    let mut open = guarded.redis_as(2, &app);
    assert_eq!(open.ask("MULTI"), "+OK");
    assert_eq!(open.ask("SET app/late v"), "+QUEUED");
    guarded.administer(&format!("DELETE /v1/auth/tokens/{id}"), &json!({}));
    assert_eq!(open.ask("EXEC"), "-NOAUTH Authentication required.");
    assert_eq!(open.ask("PING"), "-NOAUTH Authentication required.");
    let late = guarded.send(1, "GET /v1/keys/app/late", &guarded.admin, b"");
    assert_eq!(late.status, 404, "nothing was written");
}

#[test]
fn before_a_token_commands_are_short() {
    let guarded = Guarded::start(1);
    for (bytes, error) in [
        ("*11\r\n", "unauthenticated multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut client = guarded.redis(1);
        client.send(bytes).expect("sent");
        assert_eq!(client.reply().expect("a reply"), format!("-ERR Protocol error: {error}"));
        assert!(client.reply().is_err(), "the connection is closed");
    }
    let mut client = guarded.redis_as(1, &guarded.admin);
    assert_eq!(client.ask(&format!("SET k {}", "v".repeat(20_000))), "+OK");
}

#[test]
fn a_browser_signs_in_with_a_cookie() {
    let guarded = Guarded::start(3);
    let (app, id) = guarded.principal("app", &["read keys:app/", "read config:app"]);
    let page = guarded.cluster.send(1, "GET /", &["Accept: text/html,*/*;q=0.8"], b"");
    assert_eq!((page.status, page.location.as_deref()), (303, Some("/ui/")));
    let wrong = guarded.send(1, "POST /v1/session", &guarded.deleted_token(), b"");
    assert!(wrong.is_problem("unauthenticated") && wrong.set_cookie.is_none(), "{}", wrong.text());
    let session = guarded.send(1, "POST /v1/session", &app, b"");
    assert_eq!((session.status, &session.json()["principal"]), (200, &json!("app")));
    let cookie =
        session.set_cookie.as_deref().expect("a cookie").split(';').next().expect("a pair").to_owned();
    let cookie = format!("Cookie: {cookie}");
    // The cookie stands for the token at every node, and for nothing more.
    for node in guarded.nodes() {
        for (row, status) in [
            ("GET /v1/keys/app/k", 404),
            ("PUT /v1/keys/app/k", 403),
            ("GET /v1/keys/other", 403),
            ("GET /v1/auth/whoami", 200),
        ] {
            assert_eq!(guarded.cluster.send(node, row, &[&cookie], b"").status, status, "{row}");
        }
        let foreign =
            ["Sec-Fetch-Site: same-site", "Sec-Fetch-Site: cross-site", "Origin: http://other.test"];
        for header in foreign {
            let answer = guarded.cluster.send(node, "PUT /v1/keys/app/k", &[&cookie, header], b"");
            assert!(answer.is_problem("cross-origin"), "{}", answer.text());
        }
    }
    // Other nodes are asked in the name of the client.
    guarded.administer("POST /api/namespaces/app", &json!({}));
    eventually("every node answers for its readers", || {
        let readers = guarded.cluster.send(1, "GET /api/namespaces/app/readers", &[&cookie], b"");
        assert_eq!(readers.status, 200, "{}", readers.text());
        (readers.json()["data"]["missing"] == json!([])).then_some(())
    });
    // A header `Authorization` counts more.
    let header = format!("Authorization: Bearer {}", guarded.admin);
    assert_eq!(guarded.cluster.send(1, "PUT /v1/keys/app/k", &[&cookie, &header], b"v").status, 201);
    let end = guarded.cluster.send(1, "DELETE /v1/session", &[&cookie], b"");
    assert!(end.set_cookie.expect("a cookie").contains("Max-Age=0"));
    guarded.administer(&format!("DELETE /v1/auth/tokens/{id}"), &json!({}));
    assert_eq!(guarded.cluster.send(1, "GET /v1/keys/app/k", &[&cookie], b"").status, 401);
}

#[test]
fn without_required_authentication_tokens_only_say_who_asks() {
    let guarded = Guarded::start(1);
    let (app, _) = guarded.principal("app", &["read keys:app/"]);
    let wrong = guarded.deleted_token();
    guarded.administer("PUT /v1/auth", &json!({ "required": false }));
    assert_eq!(guarded.send(1, "PUT /v1/keys/other", &wrong, b"v").status, 201);
    assert_eq!(guarded.send(1, "GET /v1/keys/other", &app, b"").status, 200);
    let who = |token: &str| guarded.send(1, "GET /v1/auth/whoami", token, b"").json();
    assert_eq!(who(&app)["principal"], "app");
    assert_eq!(who(&app)["grants"], json!(["read keys:app/"]));
    assert_eq!(who(&wrong), json!({ "required": false, "roles": [], "grants": [] }));
}
