//! The two reference documents, command by command, with the documented answers.

use serde_json::{Value, json};

use crate::harness::Cluster;

/// An object of the kv1 dialect, split into its version and the rest.
fn object(response: &crate::harness::Response) -> (Value, u64) {
    assert_eq!(response.status, 200, "{}", response.text());
    let mut object = response.json();
    let version = object["ver"].as_u64().unwrap_or_else(|| panic!("no ver: {object}"));
    object.as_object_mut().expect("an object").remove("ver");
    (object, version)
}

/// The commands of the kv1 document; `node` chooses the node for each request.
fn walk_kv1(cluster: &Cluster, mut node: impl FnMut() -> usize) {
    let mut put = |query: &str| cluster.send(node(), &format!("PUT /testkey?{query}"), &[], b"");

    let (shown, first) = object(&put("val=testvalue"));
    assert_eq!(shown, json!({"key": "/testkey", "val": "testvalue"}));
    assert!(first > 0);

    let refused = put("val=testvalue2");
    assert_eq!(
        (refused.status, refused.text().trim_end()),
        (409, &*format!("Version mismatch (0 != {first})"))
    );

    let (shown, second) = object(&put(&format!("val=testvalue2&ver={first}")));
    assert_eq!(shown, json!({"key": "/testkey", "val": "testvalue2"}));
    assert!(second > first);

    let refused = put(&format!("val=testvalue3&ver={first}"));
    assert_eq!(
        (refused.status, refused.text().trim_end()),
        (409, &*format!("Version mismatch ({first} != {second})"))
    );

    let (shown, third) = object(&put(&format!("val=testvalue3&ver={second}")));
    assert_eq!(shown, json!({"key": "/testkey", "val": "testvalue3"}));
    assert!(third > second);

    for path in ["/testkey", "/testkey?stale=false"] {
        let (shown, version) = object(&cluster.get(node(), path));
        assert_eq!((shown, version), (json!({"key": "/testkey", "val": "testvalue3"}), third));
    }
}

#[test]
fn kv1_on_one_node() {
    let cluster = Cluster::start(1);
    walk_kv1(&cluster, || 1);
    let text = cluster.get(1, "/testkey").text();
    assert!(
        text.starts_with(r#"{"key":"/testkey","ver":"#),
        "the members stand in the document's order: {text}"
    );
}

#[test]
fn kv1_with_every_request_to_another_node() {
    let cluster = Cluster::start(3);
    let mut turn = 0;
    walk_kv1(&cluster, || {
        turn += 1;
        turn % 3 + 1
    });
}

#[test]
fn kv1_forms_and_errors() {
    let cluster = Cluster::start(1);
    let form = ["Content-Type: application/x-www-form-urlencoded;charset=UTF-8"];

    // The browser console of the document: URLSearchParams in the body.
    let (shown, version) = object(&cluster.send(1, "PUT /testkey2", &form, b"val=testval"));
    assert_eq!(shown, json!({"key": "/testkey2", "val": "testval"}));
    let (shown, _) =
        object(&cluster.send(1, "PUT /testkey2", &form, format!("val=testval2&ver={version}").as_bytes()));
    assert_eq!(shown, json!({"key": "/testkey2", "val": "testval2"}));

    for ver in ["abc", "-1", "1.5", "18446744073709551616"] {
        let refused = cluster.send(1, &format!("PUT /testkey2?val=x&ver={ver}"), &[], b"");
        assert_eq!((refused.status, refused.text().trim_end()), (400, "Version must be uint64"), "ver={ver}");
    }
    assert_eq!(cluster.send(1, "PUT /testkey2?ver=1", &[], b"").status, 400, "no val is not an empty val");
    assert_eq!(cluster.send(1, "DELETE /testkey2", &[], b"").status, 405);
    let absent = cluster.get(1, "/absent");
    assert_eq!((absent.status, absent.text().trim_end()), (404, "Not found"));
    assert_eq!(cluster.get(1, "/testkey2").json()["val"], "testval2", "nothing of that changed the key");

    assert_eq!(cluster.send(1, "PUT /bytes?val=%FF%FE", &[], b"").json()["val_b64"], "//4=");
}

#[test]
fn raftdb_on_every_node() {
    let cluster = Cluster::start(3);
    let form = ["Content-Type: application/x-www-form-urlencoded"];
    assert_eq!(cluster.get(1, "/db/foo").status, 404);
    for writer in cluster.numbers() {
        let value = format!("bar{writer}");
        // As `curl -XPOST … -d` sends it: the body is the value, whatever its content type.
        let stored = cluster.send(writer, "POST /db/foo", &form, value.as_bytes());
        assert_eq!((stored.status, stored.text()), (200, String::new()));
        for reader in cluster.numbers() {
            let read = cluster.get(reader, "/db/foo");
            assert_eq!((read.status, read.text()), (200, value.clone()));
        }
    }
    assert_eq!(cluster.get(2, "/v1/keys/foo").text(), "bar3", "both dialects name one key");
    assert_eq!(cluster.send(1, "DELETE /db/foo", &[], b"").status, 405);
}
