//! Audit records: who made which change, at leaders and followers.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::guarded::Guarded;
use crate::harness::resp::{self, Client};
use crate::harness::{Cluster, Options, eventually, metric, tidelock};

/// Caller, principal, action and subject of the newest records, the oldest first.
fn records(guarded: &Guarded, node: usize, most: usize) -> Vec<Value> {
    let answer = guarded.send(node, &format!("GET /v1/audit?limit={most}"), &guarded.admin, b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let shown =
        |record: &Value| json!([record["caller"], record["principal"], record["action"], record["subject"]]);
    let answer = answer.json();
    answer["records"].as_array().expect("records").iter().rev().map(shown).collect()
}

#[test]
fn every_node_records_the_principal() {
    let guarded = Guarded::start(3);
    let before = records(&guarded, 1, 100);
    let anonymous = |action: &str, subject: &Value| json!(["anonymous", null, action, subject]);
    assert_eq!(before[0], anonymous("principal.put", &json!("root")));
    assert_eq!(before[1][2], "token.add");
    assert_eq!(before[2], anonymous("authentication.require", &json!("")));
    let (operator, _) = guarded.principal("operator", &["cluster:operate"]);
    for node in guarded.nodes() {
        let verb = if node % 2 == 1 { "drain" } else { "undrain" };
        let path = format!("POST /v1/cluster/hosts/2/{verb}");
        let done = guarded.send(node, &path, &operator, b"");
        assert_eq!(done.status, 202, "{}", done.text());
        let refused = guarded.send(node, "POST /v1/auth/tokens", &operator, br#"{"principal":"root"}"#);
        assert_eq!(refused.status, 403, "{}", refused.text());
    }
    let by_operator = |action: &str| json!(["principal", "operator", action, "2"]);
    let expected = [by_operator("host.drain"), by_operator("host.undrain"), by_operator("host.drain")];
    // The node may not have applied the newest entries yet.
    for node in guarded.nodes() {
        eventually("the records are applied", || (records(&guarded, node, 3) == expected).then_some(()));
    }
    let denied = guarded.send(1, "POST /v1/cluster/hosts/9/drain", &operator, b"");
    assert_eq!(denied.status, 404, "{}", denied.text());
    assert_eq!(guarded.send(1, "GET /v1/audit", &operator, b"").status, 403);
    assert_eq!(guarded.send(1, "GET /v1/audit?limit=0", &guarded.admin, b"").status, 400);
}

#[test]
fn actions_without_an_entry_are_recorded_before_they_begin() {
    let mut guarded = Guarded::start(3);
    let done = |request: &str| guarded.send(1, request, &guarded.admin, b"").status;
    assert_eq!(done("POST /v1/cluster/checkpoint"), 200);
    assert_eq!(done("GET /v1/backup"), 200);
    let restore = "POST /v1/restore?backup=00000000-0000-0000-0000-000000000007&revision=1";
    assert_eq!(done(restore), done(restore), "the second one is no new restore");
    eventually("the records are applied", || {
        let newest = records(&guarded, 2, 3).into_iter();
        let actions: Vec<Value> = newest.map(|record| json!([record[1], record[2]])).collect();
        let root = |action: &str| json!(["root", action]);
        (actions == [root("cluster.checkpoint"), root("backup.save"), root("backup.restore")]).then_some(())
    });
    guarded.cluster.kill(2);
    guarded.cluster.kill(3);
    let authorization = format!("Authorization: Bearer {}", guarded.admin);
    let request = "POST /v1/cluster/checkpoint";
    let refused = guarded.cluster.try_send(1, request, &[&authorization], b"").expect("an answer");
    assert!(refused.is_problem("no-leader"), "{}", refused.text());
}

#[test]
fn the_command_shows_pages_as_one_list() {
    let guarded = Guarded::start(1);
    for number in 0..5 {
        guarded.administer(&format!("PUT /v1/auth/roles/r{number}"), &json!({ "grants": ["cluster:read"] }));
    }
    let home = tempfile::tempdir().expect("a temporary directory");
    let token = home.path().join("token");
    std::fs::write(&token, &guarded.admin).expect("a file");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("permissions");
    let run = |arguments: &[&str]| {
        let mut command = tidelock();
        command.args(["audit", "--url", &guarded.cluster.url(1, ""), "--token-file"]).arg(&token);
        let output = command.args(arguments).output().expect("the binary starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let table = run(&["--limit", "2"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[1].contains("root  role.put  r4") && lines[2].contains("r3"), "{table}");
    let all: Value = serde_json::from_str(&run(&["--limit", "10000", "--output", "json"])).expect("JSON");
    assert_eq!(all["records"].as_array().map(Vec::len), Some(8), "{all}");
    assert!(!all.to_string().contains("tdl_"), "no secrets");
}

/// A node that requires authentication and has an audit log.
fn with_audit_log(path: &'static str, flags: &[&'static str]) -> Guarded {
    let options = Options { flags: [&["--audit-log", path], flags].concat() };
    Guarded::over(Cluster::start_with(1, &options), 1)
}

/// Exit code and output of `audit verify`.
fn verify(path: &std::path::Path) -> (Option<i32>, String) {
    let output = tidelock().args(["audit", "verify"]).arg(path).output().expect("the binary starts");
    let shown = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(shown).expect("text"))
}

#[test]
fn refusals_are_logged_and_a_changed_line_is_found() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("audit.log");
    let mut guarded = with_audit_log(path.display().to_string().leak(), &[]);
    let (shop, _) = guarded.principal("shop", &["read keys:shop/"]);
    assert_eq!(guarded.cluster.get(1, "/v1/keys/a?x=y").status, 401);
    assert_eq!(guarded.send(1, "GET /v1/auth", "wrong", b"").status, 401);
    assert_eq!(guarded.send(1, "PUT /v1/keys/shop/b", &shop, b"a secret value").status, 403);
    assert_eq!(guarded.send(1, "GET /v1/keys/shop/b", &shop, b"").status, 404, "nothing is refused");
    let address = resp::address_of(guarded.cluster.address(1));
    let mut client = Client::connect(address).expect("the node listens");
    assert!(client.ask("GET shop/b").starts_with("-NOAUTH"));
    assert!(client.ask("AUTH wrong").starts_with("-WRONGPASS"));
    assert_eq!(client.ask(&format!("AUTH {shop}")), "+OK");
    assert!(client.ask("SET shop/b secret").starts_with("-NOPERM"));
    assert_eq!(guarded.cluster.terminate(1).code(), Some(0));

    let text = std::fs::read_to_string(&path).expect("text");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let shown = |line: &Value| json!([line["event"], line["protocol"], line["principal"], line["detail"]]);
    let shown: Vec<Value> = lines.iter().map(shown).collect();
    assert_eq!(shown[0], json!(["unauthenticated", "http", null, "GET /v1/keys/a"]));
    assert_eq!(shown[1], json!(["authentication-failed", "http", null, "GET /v1/auth"]));
    assert_eq!(shown[2], json!(["forbidden", "http", "shop", "PUT /v1/keys/shop/b"]));
    let events: Vec<&Value> = lines[3..].iter().map(|line| &line["event"]).collect();
    assert_eq!(events, ["unauthenticated", "authentication-failed", "forbidden"]);
    assert!(lines.iter().all(|line| line["address"] == "127.0.0.1"), "{text}");
    assert!(!text.contains("secret") && !text.contains("tdl_"), "{text}");

    guarded.cluster.spawn(1);
    eventually("the node serves again", || {
        let answer = guarded.cluster.try_send(1, "GET /v1/keys/a", &[], b"")?;
        (answer.status == 401).then_some(())
    });
    guarded.cluster.terminate(1);
    let (code, shown) = verify(&path);
    assert!(code == Some(0) && shown.contains("lines fit together"), "{shown}");
    let changed = std::fs::read_to_string(&path).expect("text").replacen("\"shop\"", "\"root\"", 1);
    std::fs::write(&path, changed).expect("written");
    let (code, shown) = verify(&path);
    assert!(code == Some(1) && shown.contains("line 4: it does not fit"), "{shown}");
}

#[test]
fn changes_of_chosen_keys_are_logged() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("audit.log");
    let prefixes = ["--audit-writes", "shop/", "--audit-writes", "{bank}"];
    let mut guarded = with_audit_log(path.display().to_string().leak(), &prefixes);
    let (shop, _) = guarded.principal("shop", &["read keys:", "write keys:"]);
    assert_eq!(guarded.send(1, "PUT /v1/keys/shop/a", &shop, b"a secret value").status, 201);
    assert_eq!(guarded.send(1, "PUT /v1/keys/other", &shop, b"1").status, 201, "another prefix");
    assert_eq!(guarded.send(1, "GET /v1/keys/shop/a", &shop, b"").status, 200, "a read");
    assert_eq!(guarded.send(1, "DELETE /v1/keys/shop/none", &shop, b"").status, 404, "nothing to delete");
    let transaction = json!({"if": [{"key": "shop/{t}", "exists": true}], "then": [{"delete": {"key": "shop/{t}"}}],
        "else": [{"get": {"key": "shop/{t}"}}, {"put": {"key": "shop/{t}", "val": "1"}}]});
    let answer = guarded.send(1, "POST /v1/transactions", &shop, transaction.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut client = guarded.redis_as(1, &shop);
    for (command, reply) in [
        ("MULTI", "+OK"),
        ("INCR {bank}x", "+QUEUED"),
        ("GET {bank}x", "+QUEUED"),
        ("SET {bank}x 9 NX", "+QUEUED"),
        ("DEL {bank}x", "+QUEUED"),
        ("EXEC", "*4"),
    ] {
        assert_eq!(client.ask(command).lines().next(), Some(reply), "{command}");
    }
    assert_eq!(guarded.cluster.terminate(1).code(), Some(0));

    let text = std::fs::read_to_string(&path).expect("text");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let shown = |line: &Value| {
        let address = &line["address"];
        json!([line["event"], line["protocol"], address, line["principal"], line["detail"]])
    };
    let shown: Vec<Value> = lines.iter().map(shown).collect();
    let expected = [
        ("http", "put shop/a"),
        ("http", "put shop/{t}"),
        ("resp", "add {bank}x"),
        ("resp", "delete {bank}x"),
    ];
    let expected =
        expected.map(|(protocol, detail)| json!(["written", protocol, "127.0.0.1", "shop", detail]));
    assert_eq!(shown, expected, "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_node_serves_on_when_its_audit_log_is_full() {
    let guarded = with_audit_log("/dev/full", &[]);
    for _ in 0..5 {
        assert_eq!(guarded.cluster.get(1, "/v1/keys/a").status, 401);
    }
    eventually("lost events are counted", || {
        let metrics = guarded.send(1, "GET /metrics", &guarded.admin, b"").text();
        (metric(&metrics, "tidelock_audit_lost_total") >= 5).then_some(())
    });
    assert!(guarded.cluster.log(1).contains("events are missing in the audit log"));
    assert_eq!(guarded.send(1, "PUT /v1/keys/a", &guarded.admin, b"1").status, 201);
}
