//! Stored bytes come back unchanged; limits are tested from both sides.

use crate::harness::client::Raw;
use crate::harness::{Cluster, Response};

fn raw(cluster: &Cluster, request: &[u8]) -> (u16, Vec<u8>) {
    let mut connection = Raw::connect(cluster.address(1)).expect("the node accepts");
    connection.write(request).expect("the node reads");
    connection.read().expect("the node answers")
}

#[test]
fn values_of_any_bytes() {
    let cluster = Cluster::start(3);
    let every: Vec<u8> = (0..=255).cycle().take(1 << 16).collect();
    for (name, value) in [
        ("every-byte", every.as_slice()),
        ("empty", b""),
        ("not-utf-8", b"\xff\xfe\x80"),
        ("zero", b"\0"),
        ("line-ends", b"\r\n\r\n\n"),
        ("looks-like-http", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ] {
        let path = format!("/v1/keys/value/{name}");
        assert_eq!(cluster.put(1, &path, value).status, 201);
        for reader in cluster.numbers() {
            let read = cluster.get(reader, &path);
            assert_eq!(read.status, 200);
            assert!(read.body == value, "{name} on node {reader}: {} bytes came back", read.body.len());
        }
    }
    let item = cluster.get(1, "/v1/keys?prefix=value/not-utf-8").json()["items"][0].clone();
    assert_eq!(item["val_b64"], "//6A", "{item}");
    assert!(item.get("val").is_none(), "{item}");
}

#[test]
fn keys_of_any_bytes() {
    let cluster = Cluster::start(1);
    // Encoded path, and the key as the list shows it.
    let keys = [
        ("a/b/c", r#"{"key":"a/b/c"}"#),
        ("/leading", r#"{"key":"/leading"}"#),
        ("trailing/", r#"{"key":"trailing/"}"#),
        ("double//slash", r#"{"key":"double//slash"}"#),
        ("with%20space", r#"{"key":"with space"}"#),
        ("plus+sign", r#"{"key":"plus+sign"}"#),
        ("zero%00byte", r#"{"key":"zero\u0000byte"}"#),
        ("percent%252Fslash", r#"{"key":"percent%2Fslash"}"#),
        ("question%3Fmark%23", r#"{"key":"question?mark#"}"#),
        ("%FF%FE", r#"{"key_b64":"//4="}"#),
        ("dots/../stay/./here", r#"{"key":"dots/../stay/./here"}"#),
    ];
    for (number, (path, _)) in keys.iter().enumerate() {
        let body = number.to_string();
        let request = format!(
            "PUT /v1/keys/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(raw(&cluster, request.as_bytes()).0, 201, "{path}");
    }
    for (number, (path, _)) in keys.iter().enumerate() {
        let request = format!("GET /v1/keys/{path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert_eq!(raw(&cluster, request.as_bytes()), (200, number.to_string().into_bytes()), "{path}");
    }
    let listed = cluster.get(1, "/v1/keys?keys=true").json();
    let listed = listed["items"].as_array().expect("items");
    assert_eq!(listed.len(), keys.len(), "every path is a key of its own");
    for (path, shown) in keys {
        let shown: serde_json::Value = serde_json::from_str(shown).unwrap();
        let found =
            listed.iter().any(|item| item["key"] == shown["key"] && item["key_b64"] == shown["key_b64"]);
        assert!(found, "{path}: {shown} is not among {listed:?}");
    }
}

#[test]
fn an_encoded_slash_is_a_slash() {
    let cluster = Cluster::start(1);
    assert_eq!(cluster.put(1, "/v1/keys/a%2Fb", b"1").status, 201);
    let request = b"GET /v1/keys/a/b HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(raw(&cluster, request), (200, b"1".to_vec()));
}

#[test]
fn values_up_to_the_limit_and_not_beyond() {
    let cluster = Cluster::start(1);
    let full = vec![0xab; 1 << 20];
    assert_eq!(cluster.put(1, "/v1/keys/full", &full).status, 201);
    assert!(cluster.get(1, "/v1/keys/full").body == full);
    let refused = cluster.put(1, "/v1/keys/full", &vec![0xab; (1 << 20) + 1]);
    assert_problem(&refused, 413);
    assert!(cluster.get(1, "/v1/keys/full").body == full, "a refused value changes nothing");
    assert_eq!(cluster.put(1, &format!("/v1/keys/{}", "k".repeat(4 << 10)), b"").status, 201);
    let refused = cluster.put(1, &format!("/v1/keys/{}", "k".repeat((4 << 10) + 1)), b"");
    assert!(matches!(refused.status, 413 | 414), "{refused:?}");
}

#[test]
fn a_body_of_nine_mebibytes_is_413() {
    const BYTES: usize = 9 << 20;
    let cluster = Cluster::start(1);
    for (name, head) in [
        (
            "announced",
            format!("PUT /v1/keys/huge HTTP/1.1\r\nhost: localhost\r\ncontent-length: {BYTES}\r\n\r\n"),
        ),
        (
            "in chunks",
            "PUT /v1/keys/huge HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
        ),
        (
            "in the kv1 dialect",
            format!("PUT /huge HTTP/1.1\r\nhost: localhost\r\ncontent-length: {BYTES}\r\n\r\n"),
        ),
        (
            "in the raftdb dialect",
            format!("POST /db/huge HTTP/1.1\r\nhost: localhost\r\ncontent-length: {BYTES}\r\n\r\n"),
        ),
    ] {
        let mut connection = Raw::connect(cluster.address(1)).expect("the node accepts");
        let mut request = head.into_bytes();
        if name == "in chunks" {
            for _ in 0..BYTES >> 16 {
                request.extend_from_slice(b"10000\r\n");
                request.resize(request.len() + (1 << 16), b'x');
                request.extend_from_slice(b"\r\n");
            }
            request.extend_from_slice(b"0\r\n\r\n");
        } else {
            request.resize(request.len() + BYTES, b'x');
        }
        let writer = connection.write_in_background(request).expect("a second handle of the socket");
        let (status, _) = connection.read().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(status, 413, "{name}");
        drop(connection);
        writer.join().expect("the writer");
    }
    assert_eq!(cluster.get(1, "/v1/keys/huge").status, 404, "nothing of it was stored");
}

fn assert_problem(response: &Response, status: u16) {
    assert_eq!(response.status, status, "{}", response.text());
    assert!(response.content_type.starts_with("application/problem+json"), "{response:?}");
    let problem = response.json();
    assert_eq!(problem["status"], status);
    for member in ["type", "title", "detail"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
    }
}

#[test]
fn errors_are_problems() {
    let cluster = Cluster::start(1);
    assert_problem(&cluster.get(1, "/v1/keys/absent"), 404);
    assert_problem(&cluster.get(1, "/v1/keys?limit=0"), 400);
    assert_problem(&cluster.get(1, "/v1/keys?limit=1001"), 400);
    assert_problem(&cluster.send(1, "PUT /v1/keys/k", &["If-Match: \"abc\""], b""), 400);
    assert_problem(&cluster.send(1, "POST /v1/keys/k", &[], b""), 405);
}
