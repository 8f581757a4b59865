//! Secrets: masked in every answer, encrypted in every file, revealed to those who may see them,
//! and sealed again with another key.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::guarded::Guarded;
use crate::harness::shell::Shell;
use crate::harness::{Cluster, Options, eventually};

const SECRET: &str = "correct-horse-battery-staple";
const NEW_SECRET: &str = "another-horse-battery-staple";

/// 32 bytes of ones, and of twos, in base64.
const KEYS: [&str; 2] =
    ["AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="];

const MASK: &str = "********";

/// The node that has no keys.
const WITHOUT_KEYS: usize = 3;

/// Three nodes that require authentication, two of which have keys, and their files.
struct SecretCluster {
    guarded: Guarded,
    home: TempDir,
}

impl SecretCluster {
    fn start() -> SecretCluster {
        let home = tempfile::tempdir().expect("a temporary directory");
        let cluster = Cluster::start_prepared(3, &Options::default(), |cluster| {
            for number in cluster.numbers() {
                let audit_log = home.path().join(format!("audit-{number}.log"));
                cluster.add_flags(number, &["--audit-log", &audit_log.display().to_string()]);
                if number != WITHOUT_KEYS {
                    let keys = key_file(home.path(), number);
                    write_keys(&keys, &["k1"]);
                    cluster.add_flags(number, &["--secret-key-file", &keys.display().to_string()]);
                }
            }
        });
        let secrets = SecretCluster { guarded: Guarded::over(cluster, 3), home };
        secrets.guarded.administer("POST /api/namespaces/shop", &json!({}));
        let publication = json!({ "changes": [
            { "pair": "host", "value": "db.example" },
            { "pair": "password", "value": SECRET, "type": "secret" },
            { "container": "app", "fields": [
                { "key": "host", "value": "host" }, { "key": "password", "value": "password" },
            ]},
        ]});
        secrets.guarded.administer("POST /api/namespaces/shop/publish", &publication);
        secrets
    }

    /// The answer to a request below `/api/namespaces/shop`, with its status.
    fn ask(&self, node: usize, request: &str, token: &str, body: &Value) -> (u16, String) {
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let request = format!("{method} /api/namespaces/shop{path}");
        let answer = self.guarded.send(node, &request, token, body.to_string().as_bytes());
        (answer.status, answer.text())
    }

    /// The data of an answer that must succeed.
    fn done(&self, node: usize, request: &str, token: &str, body: &Value) -> Value {
        let (status, text) = self.ask(node, request, token, body);
        assert_eq!(status, 200, "{request}: {text}");
        serde_json::from_str::<Value>(&text).expect("JSON")["data"].clone()
    }

    /// The value of the pair `password`, in plain text.
    fn revealed(&self, node: usize, token: &str) -> Value {
        self.done(node, "GET /pairs/password?reveal=true", token, &json!(null))["value"].clone()
    }

    /// Replaces the key files of the nodes that have one, and waits until they are used.
    fn use_keys(&self, ids: &[&str]) {
        for number in self.guarded.nodes().into_iter().filter(|number| *number != WITHOUT_KEYS) {
            let used = || self.guarded.cluster.log(number).matches("keys for secrets are used").count();
            let before = used();
            write_keys(&key_file(self.home.path(), number), ids);
            self.guarded.cluster.signal(number, Signal::HUP);
            eventually("the changed keys are used", || (used() > before).then_some(()));
        }
    }
}

fn key_file(home: &Path, number: usize) -> PathBuf {
    home.join(format!("keys-{number}"))
}

/// Writes keys with these ids, `k1` or `k2`, the sealing one first.
fn write_keys(path: &Path, ids: &[&str]) {
    let keys: BTreeMap<&str, &str> = ["k1", "k2"].into_iter().zip(KEYS).collect();
    let lines: String = ids.iter().map(|id| format!("{id}:{}\n", keys[id])).collect();
    write_private(path, &lines);
}

/// Replaces a file, so that no reader sees a part of it.
fn write_private(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::rename(&new, path).expect("renamed");
}

/// Every file below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Every way to read the namespace, apart from those that reveal.
const READS: [&str; 17] = [
    "/pairs",
    "/pairs/password",
    "/pairs/password/history",
    "/containers/app",
    "/containers/app/blame",
    "/containers/app/diff?from=1",
    "/containers/app/dl",
    "/containers/app/dl?format=yaml",
    "/containers/app/dl?format=toml",
    "/containers/app/dl?format=properties",
    "/containers/app/dl?format=env",
    "/containers/app/watch?wait=0s",
    "/watch?wait=0s",
    "/export",
    "/export?format=yaml",
    "/diff?from=1",
    "/history?content=true",
];

/// Whether a text shows that there is a secret, and neither the secret nor its sealed form.
fn is_masked(text: &str) -> bool {
    text.contains(MASK) && !text.contains(SECRET) && !text.contains(NEW_SECRET) && !text.contains("sealed:")
}

#[test]
fn a_secret_is_masked_in_every_answer_and_revealed_only_with_the_grant() {
    let secrets = SecretCluster::start();
    let guarded = &secrets.guarded;
    let (reader, _) = guarded.principal("reader", &["read config:shop"]);
    let (writer, _) = guarded.principal("writer", &["read config:shop", "write config:*"]);
    let (app, _) = guarded.principal("app", &["read config:shop", "reveal config:shop"]);
    for node in guarded.nodes() {
        for read in READS {
            // Only a principal with the grant is shown secrets, and only on request.
            for token in [&reader, &app] {
                let (status, text) = secrets.ask(node, &format!("GET {read}"), token, &json!(null));
                assert!(status == 200 && is_masked(&text), "{read} at node {node}: {status} {text}");
            }
        }
        let found = guarded.send(node, "GET /api/search?text=password", &guarded.admin, b"");
        assert!(found.status == 200 && is_masked(&found.text()), "{}", found.text());
        for read in ["/pairs/password", "/pairs/host", "/containers/app", "/containers/app/dl"] {
            for token in [&reader, &writer] {
                let (status, text) =
                    secrets.ask(node, &format!("GET {read}?reveal=true"), token, &json!(null));
                assert!(status == 403 && text.contains("reveal config:shop"), "{read}: {status} {text}");
            }
        }
    }
    for node in [1, 2] {
        let pair = secrets.done(node, "GET /pairs/password?reveal=true", &app, &json!(null));
        assert_eq!((&pair["value"], &pair["datatype"]), (&json!(SECRET), &json!(7)));
        let container = secrets.done(node, "GET /containers/app?reveal=true", &app, &json!(null));
        let value = |field: usize| container["fields"][field]["value"]["value"].clone();
        assert_eq!((value(0), value(1)), (json!("db.example"), json!(SECRET)));
        for format in ["json", "yaml", "toml", "properties", "env"] {
            let request = format!("GET /containers/app/dl?format={format}&reveal=true");
            let (status, text) = secrets.ask(node, &request, &app, &json!(null));
            assert!(status == 200 && text.contains(SECRET) && !text.contains(MASK), "{format}: {text}");
        }
        let (status, text) = secrets.ask(node, "GET /containers/app", &app, &json!(null));
        assert!(status == 200 && is_masked(&text), "a revealed answer is not cached: {text}");
    }
    let body = json!({ "value": NEW_SECRET, "type": "secret" });
    for (request, body) in
        [("GET /pairs/password?reveal=true", &json!(null)), ("POST /pairs/password", &body)]
    {
        let (status, text) = secrets.ask(WITHOUT_KEYS, request, &guarded.admin, body);
        assert!(status == 409 && text.contains("--secret-key-file"), "{request}: {status} {text}");
    }
    let shown = secrets.ask(1, "POST /pairs/password?dry_run=true", &writer, &body);
    assert!(shown.0 == 200 && is_masked(&shown.1), "{}", shown.1);
}

#[test]
fn the_mask_keeps_a_secret() {
    let secrets = SecretCluster::start();
    let admin = &secrets.guarded.admin;
    let stated = json!({ "value": MASK, "type": "secret" });
    let kept = secrets.done(1, "POST /pairs/password", admin, &stated);
    assert_eq!(kept["changed"], false);
    assert!(kept["notes"][0].as_str().is_some_and(|note| note.contains("keeps the secret")), "{kept}");
    let kept = secrets.done(WITHOUT_KEYS, "POST /pairs/password", admin, &json!({ "value": MASK }));
    assert_eq!(kept["changed"], false);
    let (status, text) = secrets.ask(1, "POST /pairs/new", admin, &stated);
    assert!(status == 400 && text.contains("40020"), "{text}");
    let (status, text) = secrets.ask(1, "POST /pairs/password", admin, &json!({ "value": NEW_SECRET }));
    assert!(status == 409 && text.contains("--type secret"), "{text}");
    for format in ["json", "yaml"] {
        let (_, file) = secrets.ask(1, &format!("GET /export?format={format}"), admin, &json!(null));
        let import = format!("POST /api/namespaces/shop/import?replace=true&format={format}");
        let answer = secrets.guarded.send(1, &import, admin, file.as_bytes());
        assert_eq!((answer.status, &answer.json()["data"]["changed"]), (200, &json!(false)), "{file}");
    }
    let (_, file) = secrets.ask(1, "GET /containers/app/dl", admin, &json!(null));
    let import = "POST /api/namespaces/shop/containers/app/import";
    let changed = file.replace("db.example", "db2.example");
    let answer = secrets.guarded.send(1, import, admin, changed.as_bytes());
    assert_eq!((answer.status, &answer.json()["data"]["changed"]), (200, &json!(true)), "{}", answer.text());
    assert_eq!(secrets.revealed(2, admin), SECRET);
}

#[test]
fn no_file_and_no_report_holds_a_secret() {
    let mut secrets = SecretCluster::start();
    let admin = secrets.guarded.admin.clone();
    let (reader, _) = secrets.guarded.principal("reader", &["read config:shop"]);
    let body = json!({ "value": NEW_SECRET, "type": "secret" });
    secrets.done(2, "POST /pairs/password?author=ann&message=new", &admin, &body);
    assert_eq!(secrets.revealed(1, &admin), NEW_SECRET);
    let (status, _) = secrets.ask(1, "GET /pairs/password?reveal=true", &reader, &json!(null));
    assert_eq!(status, 403);
    let answer = |request: &str| secrets.guarded.send(1, request, &admin, b"").body;
    answer("POST /v1/cluster/checkpoint");
    let reports =
        ["GET /v1/backup", "GET /metrics", "GET /readyz?verbose", "GET /v1/audit", "GET /v1/cluster"];
    let mut found: Vec<(String, Vec<u8>)> =
        reports.into_iter().map(|request| (request.to_owned(), answer(request))).collect();
    for number in secrets.guarded.nodes() {
        secrets.guarded.cluster.terminate(number);
        let files = files_below(secrets.guarded.cluster.directory(number));
        assert!(files.len() > 2, "{files:?}");
        found.extend(files.iter().map(|file| (file.display().to_string(), fs::read(file).expect("a file"))));
        found.push((format!("log of node {number}"), secrets.guarded.cluster.log(number).into_bytes()));
        let audit_log = secrets.home.path().join(format!("audit-{number}.log"));
        found.push((audit_log.display().to_string(), fs::read(audit_log).expect("a file")));
    }
    let sealed = found.iter().filter(|(_, bytes)| contains(bytes, "sealed:v1:k1:")).count();
    assert!(sealed >= 4, "the backup and the data of each node hold the sealed text: {sealed}");
    for (name, bytes) in &found {
        for text in [SECRET, NEW_SECRET, KEYS[0], KEYS[0].trim_end_matches('=')] {
            assert!(!contains(bytes, text), "{name} holds {text}");
        }
    }
    let audit_log = fs::read_to_string(secrets.home.path().join("audit-1.log")).expect("a file");
    let revealed: Vec<&str> = audit_log.lines().filter(|line| line.contains("\"revealed\"")).collect();
    assert_eq!(revealed.len(), 1, "{audit_log}");
    assert!(revealed[0].contains("secret of pair shop/password") && revealed[0].contains("root"));
    assert!(audit_log.contains("\"forbidden\""), "{audit_log}");
}

#[test]
fn secrets_are_sealed_again_with_another_key() {
    let mut secrets = SecretCluster::start();
    let admin = secrets.guarded.admin.clone();
    let (writer, _) = secrets.guarded.principal("writer", &["read config:shop", "write config:shop"]);
    let before = secrets.done(1, "GET ", &admin, &json!(null))["revision"].clone();
    let rotate = "POST /secrets/rotate";
    let nothing = secrets.done(1, rotate, &admin, &json!(null));
    assert_eq!((&nothing["changed"], &nothing["revision"]), (&json!(false), &before));
    secrets.use_keys(&["k2", "k1"]);
    assert_eq!(secrets.revealed(1, &admin), SECRET);
    let (status, text) = secrets.ask(1, rotate, &writer, &json!(null));
    assert!(status == 403 && text.contains("reveal config:shop"), "{text}");
    let (status, text) = secrets.ask(1, "POST /secrets/rotate?expected=1", &admin, &json!(null));
    assert!(status == 409 && text.contains("40903"), "{text}");
    let (status, text) = secrets.ask(WITHOUT_KEYS, rotate, &admin, &json!(null));
    assert!(status == 409 && text.contains("--secret-key-file"), "{text}");
    let rotated = secrets.done(2, "POST /secrets/rotate?message=may", &admin, &json!(null));
    assert_eq!(rotated["changed"], true);
    assert!(rotated["notes"][0].as_str().is_some_and(|note| note.contains("sealed again: 1")), "{rotated}");
    assert_eq!(secrets.done(2, rotate, &admin, &json!(null))["changed"], false);
    secrets.use_keys(&["k2"]);
    for node in [1, 2] {
        assert_eq!(secrets.revealed(node, &admin), SECRET);
        let old = format!("GET /pairs/password?reveal=true&revision={before}");
        let (status, text) = secrets.ask(node, &old, &admin, &json!(null));
        assert!(status == 409 && text.contains("k1"), "the history keeps the old seal: {text}");
    }
    let body = json!({ "revision": before });
    let preview = secrets.done(1, "POST /rollback?dry_run=true", &admin, &body);
    assert!(preview["notes"][0].as_str().is_some_and(|note| note.contains("needs the key")), "{preview}");
    // A bad file is reported, and the keys in use stay.
    write_private(&key_file(secrets.home.path(), 1), "nothing\n");
    secrets.guarded.cluster.signal(1, Signal::HUP);
    eventually("the bad file is reported", || {
        let log = secrets.guarded.cluster.log(1);
        log.contains("the changed keys for secrets are not used").then_some(())
    });
    let warned = secrets.guarded.send(1, "GET /readyz?verbose", &admin, b"").text();
    assert!(warned.contains("--secret-key-file"), "{warned}");
    assert_eq!(secrets.revealed(1, &admin), SECRET);
    // With a bad file a node does not start.
    secrets.guarded.cluster.terminate(1);
    let refused = secrets.guarded.cluster.command(1).output().expect("the binary starts");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && text.contains("secret_key_file"), "{text}");
    write_keys(&key_file(secrets.home.path(), 1), &["k2"]);
    secrets.guarded.cluster.restart(1);
    assert_eq!(secrets.revealed(1, &admin), SECRET);
}

#[test]
fn commands_set_reveal_and_rotate_secrets() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let keys = home.path().join("keys");
    write_keys(&keys, &["k1"]);
    let cluster = Cluster::start_prepared(1, &Options::default(), |cluster| {
        cluster.add_flags(1, &["--secret-key-file", &keys.display().to_string()]);
    });
    let shell = Shell::of(&cluster);
    shell.done(&["config", "ns", "create", "shop"]);
    let arguments = ["config", "pair", "set", "shop", "password", "-", "--type", "secret"];
    let mut child =
        shell.command(&arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(format!("{SECRET}\n").as_bytes()).expect("written");
    drop(input);
    assert!(child.wait().expect("it ends").success());
    shell.done(&["config", "pair", "set", "shop", "pin", "0042", "--type", "secret"]);
    shell.done(&["config", "container", "set", "shop", "app", "password=password", "pin=pin"]);
    let text = |arguments: &[&str]| String::from_utf8(shell.done(arguments)).expect("text");
    let get = ["config", "pair", "get", "shop", "password"];
    assert_eq!(text(&get), format!("{MASK}\n"));
    assert_eq!(text(&[&get[..], &["--reveal"]].concat()), format!("{SECRET}\n"));
    assert_eq!(text(&["config", "pair", "get", "shop", "pin", "--reveal"]), "0042\n");
    let document = ["config", "container", "get", "shop", "app"];
    assert_eq!(text(&document), format!("{{\"password\":\"{MASK}\",\"pin\":\"{MASK}\"}}\n"));
    let plain = format!("{{\"password\":\"{SECRET}\",\"pin\":\"0042\"}}\n");
    assert_eq!(text(&[&document[..], &["--reveal"]].concat()), plain);
    assert!(text(&["config", "pair", "list", "shop"]).contains("secret"));
    let file = home.path().join("app.json");
    let target = format!("shop/app={}", file.display());
    shell.done(&["config", "agent", "--file", &target, "--once"]);
    assert!(is_masked(&fs::read_to_string(&file).expect("a file")));
    let revealed = home.path().join("revealed.json");
    let target = format!("shop/app={}", revealed.display());
    shell.done(&["config", "agent", "--file", &target, "--once", "--reveal"]);
    assert_eq!(fs::read_to_string(&revealed).expect("a file"), plain);
    assert!(text(&["config", "secrets", "rotate", "shop"]).starts_with("nothing changed"));
    // A rollback to before a pair was a secret says so, before and when it happens.
    shell.done(&["config", "pair", "set", "shop", "code", "0007", "--type", "string"]);
    let readable = shell.json(&["config", "ns", "info", "shop"])["revision"].to_string();
    shell.done(&["config", "pair", "set", "shop", "code", "0008", "--type", "secret"]);
    let rollback = ["config", "rollback", "shop", &readable];
    for arguments in [[&rollback[..], &["--dry-run"]].concat(), rollback.to_vec()] {
        let output = shell.run(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.contains("no longer a secret"), "{stderr}");
    }
    assert_eq!(text(&["config", "pair", "get", "shop", "code"]), "0007\n");
}

/// An inherited secret needs the grant of the namespace that sets it, and is not promoted.
#[test]
fn an_inherited_secret_is_revealed_to_those_who_may_see_it_where_it_is_set() {
    let secrets = SecretCluster::start();
    let guarded = &secrets.guarded;
    let publish = |name: &str, changes: Value| {
        let body = json!({ "create": true, "changes": changes });
        guarded.administer(&format!("POST /api/namespaces/%7Bshop%7D{name}/publish"), &body)
    };
    publish(
        "base",
        json!([
            { "pair": "password", "value": SECRET, "type": "secret" },
            { "container": "app", "fields": [{ "key": "password", "value": "password" }] },
        ]),
    );
    publish("prod", json!([{ "pair": "own", "value": 1 }]));
    let parents = json!({ "parents": ["{shop}base"] });
    guarded.administer("POST /api/namespaces/%7Bshop%7Dprod/parents", &parents);
    let (child, _) = guarded.principal("child", &["read config:{shop}prod", "reveal config:{shop}prod"]);
    let both = ["read config:{shop}prod", "reveal config:{shop}prod", "reveal config:{shop}base"];
    let (family, _) = guarded.principal("family", &both);
    let ask = |token: &str, query: &str| {
        let request = format!("GET /api/namespaces/%7Bshop%7Dprod/containers/app/dl{query}");
        guarded.send(1, &request, token, b"")
    };
    assert_eq!(ask(&child, "").json(), json!({ "password": MASK }));
    let refused = ask(&child, "?reveal=true");
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("reveal config:"), "{}", refused.text());
    assert_eq!(ask(&family, "?reveal=true").json(), json!({ "password": SECRET }));
    let promoted = guarded.administer(
        "POST /api/namespaces/%7Bshop%7Dother/publish",
        &json!({ "create": true, "changes": [{ "pair": "x", "value": 1 }] }),
    );
    assert_eq!(promoted["data"]["revision"], 1);
    let promote = json!({ "from": "{shop}base", "keys": ["password"] });
    let done = guarded.administer("POST /api/namespaces/%7Bshop%7Dother/promote", &promote);
    assert_eq!(done["data"]["changed"], false, "{done}");
    assert!(done["data"]["notes"][0].as_str().is_some_and(|note| note.contains("password")), "{done}");
}
