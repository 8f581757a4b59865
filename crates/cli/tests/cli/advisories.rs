//! Attacks that worked against similar systems, tried as their discoverers did.
//!
//! Each test names the advisory. Those about certificates that are not reloaded (etcd #11555,
//! Consul #7400, CockroachDB #15028) are tried in `tls`, `peer_tls`, `cluster_ca` and `machines`.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::guarded::Guarded;
use crate::harness::resp::address_of;
use crate::harness::tmpfs::can_mount;
use crate::harness::{Cluster, Options};

fn put(guarded: &Guarded, key: &str, value: &str) {
    let answer = guarded.send(1, &format!("PUT /v1/keys/{key}"), &guarded.admin, value.as_bytes());
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// A write that also shows the former value, alone and in a transaction, with the permission to
/// write only: etcd CVE-2026-44283.
#[test]
fn a_write_shows_nothing_of_what_was_there() {
    let guarded = Guarded::start(3);
    let (writer, _) = guarded.principal("writer", &["write keys:"]);
    put(&guarded, "secret", "7");
    for node in guarded.nodes() {
        let mut client = guarded.redis_as(node, &writer);
        for command in [
            "SET secret x GET",
            "SET secret x NX GET",
            "SET secret x IFEQ 7",
            "GETSET secret x",
            "GETDEL secret",
            "INCR secret",
            "APPEND secret x",
            "SETNX secret x",
        ] {
            let refused = client.ask(command);
            assert!(refused.starts_with("-NOPERM this needs the permission `read keys:secret`"), "{refused}");
            assert_eq!(client.ask("MULTI"), "+OK");
            assert!(client.ask(command).starts_with("-NOPERM"), "{command}");
            assert!(client.ask("EXEC").starts_with("-EXECABORT"), "{command}");
        }
        for (request, body) in [
            ("GET /v1/keys/secret", ""),
            ("POST /v1/atomics/secret/exchange", r#"{"value":1}"#),
            ("POST /v1/atomics/secret/compare-exchange", r#"{"expected_value":1,"new_value":2}"#),
            ("PUT /secret?val=1&ver=99", ""),
        ] {
            let refused = guarded.send(node, request, &writer, body.as_bytes());
            assert_eq!(refused.status, 403, "{request}: {}", refused.text());
            assert!(!refused.text().contains('7'), "{request}: {}", refused.text());
        }
        assert_eq!(guarded.send(node, "GET /v1/keys/secret", &guarded.admin, b"").text(), "7");
    }
}

/// Requests inside of another request: etcd CVE-2026-33343, where a transaction in a transaction
/// was not checked.
#[test]
fn what_is_nested_is_checked() {
    let guarded = Guarded::start(1);
    let (app, _) = guarded.principal("app", &["read keys:app/", "write keys:app/"]);
    let mut client = guarded.redis_as(1, &app);
    for (command, expected) in [
        ("MULTI", "+OK"),
        ("SET app/1 v", "+QUEUED"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("SET other v", "-NOPERM"),
        ("EXEC", "-EXECABORT"),
        ("EXISTS app/1", ":0"),
        ("EXEC", "-ERR EXEC without MULTI"),
    ] {
        let reply = client.ask(command);
        assert!(reply.starts_with(expected), "{command}: {reply}");
    }
    assert_eq!(guarded.send(1, "GET /v1/keys/other", &guarded.admin, b"").status, 404);
}

/// Members, maintenance and alarms without permission: etcd CVE-2026-33413.
#[test]
fn members_and_maintenance_are_not_open() {
    let guarded = Guarded::start(3);
    let (app, _) =
        guarded.principal("app", &["read keys:", "write keys:", "read config:*", "write config:*"]);
    for request in [
        "GET /v1/cluster",
        "GET /v1/cluster/dump",
        "GET /v1/cluster/hosts/1/drain",
        "GET /v1/cluster/shards/1/explain",
        "GET /v1/cluster/clients",
        "GET /metrics",
        "GET /v1/backup",
        "GET /v1/audit",
        "POST /v1/cluster/checkpoint",
        "POST /v1/cluster/hosts/2/drain",
        "POST /v1/cluster/hosts/2/remove",
        "POST /v1/cluster/shards/1/transfer?to=2",
        "POST /v1/cluster/join-tokens",
        "POST /v1/tls/authorities",
        "POST /v1/tls/reload",
    ] {
        for node in guarded.nodes() {
            let open = guarded.cluster.send(node, request, &[], b"");
            assert_eq!(open.status, 401, "{request}: {}", open.text());
            let narrow = guarded.send(node, request, &app, b"");
            assert_eq!(narrow.status, 403, "{request}: {}", narrow.text());
        }
    }
}

/// Ranges that begin within what is granted and end elsewhere: etcd GHSA-xg4h-6gfc-h4m8.
#[test]
fn a_range_ends_where_the_grant_ends() {
    let guarded = Guarded::start(1);
    for key in ["app", "app/1", "app/1/x", "app/2", "app0", "b", "%FF", "%FF%FF"] {
        put(&guarded, key, "1");
    }
    let (app, _) = guarded.principal("app", &["read keys:app/1"]);
    let (last, _) = guarded.principal("last", &["read keys:%FF"]);
    for (token, request, keys) in [
        (&app, "GET /v1/keys?prefix=app/1", Some(2)),
        (&app, "GET /v1/keys?prefix=app/1&after=zzz", Some(0)),
        (&app, "GET /v1/keys?prefix=app/1&after=a", Some(2)),
        (&app, "GET /v1/keys?after=app/1", None),
        (&app, "GET /v1/keys?prefix=app/", None),
        (&app, "GET /v1/keys?prefix=", None),
        (&app, "GET /v1/keys", None),
        (&last, "GET /v1/keys?prefix_b64=_w", Some(2)),
        (&last, "GET /v1/keys?prefix=", None),
    ] {
        let answer = guarded.send(1, request, token, b"");
        assert_eq!(answer.status, if keys.is_some() { 200 } else { 403 }, "{request}: {}", answer.text());
        if let Some(keys) = keys {
            assert_eq!(answer.json()["items"].as_array().map(Vec::len), Some(keys), "{request}");
        }
    }
    let mut client = guarded.redis_as(1, &app);
    for command in ["SCAN 0 MATCH app/1*", "KEYS app/1*", "DBSIZE", "CLUSTER GETKEYSINSLOT 0 1"] {
        let refused = client.ask(command);
        assert!(refused.starts_with("-NOPERM this needs the permission `read keys:`"), "{refused}");
    }
}

/// Keys that are touched and were not checked: Redis 8.8.2.
#[test]
fn the_key_that_is_checked_is_the_key_that_is_touched() {
    let guarded = Guarded::start(1);
    put(&guarded, "other", "7");
    let (app, _) = guarded.principal("app", &["read keys:app/", "write keys:app/"]);
    let mut client = guarded.redis_as(1, &app);
    for command in [
        "MGET other app/1",
        "MGET app/1 app/2 other",
        "MSET app/1 x other x",
        "DEL app/1 other",
        "UNLINK app/1 app/1 other",
        "EXISTS app/1 other",
        "TOUCH app/1 other",
        "WATCH app/1 other",
        r#"SET "\x6fther" x"#,
    ] {
        let refused = client.ask(command);
        assert!(refused.starts_with("-NOPERM"), "{command}: {refused}");
    }
    // Each is another key that begins with `app/`, or no key at all.
    for path in [
        "/v1/keys/app/../other",
        "/v1/keys/app/%2e%2e/other",
        "/v1/keys/app/..%2fother",
        "/v1/keys/app/%00/../other",
        "/v1/keys/app/x?key=other",
        "/v1/keys/app/x#/../other",
        "/v1/keys//other",
        "/v1/keys/./other",
        "/v1/keys/../keys/other",
        "/v1/../v1/keys/other",
        "/other?val=x",
        "/db/other",
    ] {
        for method in ["PUT", "POST", "DELETE"] {
            let answer = guarded.send(1, &format!("{method} {path}"), &app, b"x");
            assert!(answer.status != 500, "{method} {path}: {}", answer.text());
        }
    }
    assert_eq!(guarded.send(1, "GET /v1/keys/other", &guarded.admin, b"").text(), "7");
    assert_eq!(
        guarded.send(1, "GET /v1/keys?prefix=other", &guarded.admin, b"").json()["items"][0]["key"],
        "other"
    );
}

/// Replies that a client without a token does not read: Redis CVE-2025-21605.
#[test]
fn unread_replies_before_a_token_are_not_collected() {
    /// Each command has a reply of more than six times its size.
    const COMMANDS: usize = 16 << 20;
    let guarded = Guarded::start(1);
    let mut stream = TcpStream::connect(address_of(guarded.cluster.address(1))).expect("the node listens");
    stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let commands = b"PING\r\n".repeat(1 << 16);
    let mut written = 0;
    let refused = loop {
        match stream.write(&commands) {
            Ok(bytes) => written += bytes,
            Err(error) => break error,
        }
        assert!(written < COMMANDS * 6, "the node reads without end");
    };
    let kinds =
        [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(kinds.contains(&refused.kind()), "{refused}");
    assert_eq!(guarded.send(1, "GET /readyz", &guarded.admin, b"").status, 200);
}

/// Checks that end with an alarm about the disk: etcd pull request 22386.
#[test]
fn a_full_disk_ends_no_check() {
    const DISK_BYTES: u64 = 150 << 20;
    if !can_mount("a_full_disk_ends_no_check") {
        return;
    }
    let prepared = Cluster::start_prepared(1, &Options::default(), |cluster| {
        cluster.mount_disk(1, DISK_BYTES);
        fs::create_dir(cluster.directory(1).join("other")).expect("there is room");
        fs::write(cluster.directory(1).join("other/ballast"), vec![0; 75 << 20]).expect("there is room");
    });
    let guarded = Guarded::over(prepared, 1);
    let (tenant, _) = guarded.principal("tenant", &["read keys:tenant/", "write keys:tenant/"]);
    put(&guarded, "secret", "7");
    let bearer = format!("Authorization: Bearer {tenant}");
    let full = (0..1_000).any(|number| {
        let request = format!("PUT /v1/keys/tenant/{number}");
        let answer = guarded.cluster.try_send(1, &request, &[&bearer], &[b'x'; 256 << 10]);
        answer.is_some_and(|answer| answer.is_problem("disk-unavailable"))
    });
    assert!(full, "the disk takes everything");
    for request in [
        "GET /v1/keys/secret",
        "GET /v1/keys/secret?stale=true",
        "DELETE /v1/keys/secret",
        "PUT /v1/auth",
        "PUT /v1/auth/roles/tenant",
        "DELETE /v1/auth/principals/root",
        "POST /v1/cluster/checkpoint",
    ] {
        let body = if request == "PUT /v1/auth" { r#"{"required":false}"# } else { r#"{"grants":[]}"# };
        let narrow = guarded.cluster.try_send(1, request, &[&bearer], body.as_bytes()).expect("an answer");
        assert_eq!(narrow.status, 403, "{request}: {}", narrow.text());
        let open = guarded.cluster.try_send(1, request, &[], body.as_bytes()).expect("an answer");
        assert_eq!(open.status, 401, "{request}: {}", open.text());
    }
    assert_eq!(guarded.send(1, "GET /v1/keys/secret", &guarded.admin, b"").text(), "7");
}
