//! `tidelock login` and `tidelock auth`, against a server that records what they request.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::recorder::{Recorder, Request};
use crate::harness::terminal::PseudoTerminal;
use crate::harness::{eventually, tidelock};

const TOKEN: &str = "tdl_0123456789abcdef_Abcdefghij-lmnopqrstuv_xyzABCDEFGHIJKLMNOPQ_89abcdef";
const OTHER: &str = "tdl_fedcba9876543210_Abcdefghij-lmnopqrstuv_xyzABCDEFGHIJKLMNOPQ_89abcdef";

/// A node that knows one token, of an administrator, and accepts every change.
fn node() -> Recorder {
    Recorder::start(|request| {
        let is_known = request.authorization == format!("Bearer {TOKEN}");
        let change = json!({"revision": 7, "in_force": [1, 2], "not_yet": [3]});
        let issued =
            json!({"id": "fedcba9876543210", "token": OTHER, "revision": 7, "in_force": [1], "not_yet": []});
        match &*request.line {
            "GET /v1/auth/whoami" if is_known => (200, ann("cluster:admin")),
            "GET /v1/auth/whoami" => (200, json!({"required": false, "roles": [], "grants": []})),
            _ if !is_known => (401, problem("unauthenticated", 401)),
            "GET /v1/auth/roles" => (
                200,
                json!({"roles": [{"name": "app", "grants": ["read keys:", "cluster:read"], "ends_unix_ms": 0}]}),
            ),
            "GET /v1/auth/principals" => {
                (200, json!({"principals": [{"name": "ann", "roles": ["admin", "app"]}]}))
            }
            "GET /v1/auth/tokens" => {
                let token =
                    json!({"id": "0123456789abcdef", "principal": "ann", "created_unix_ms": 0, "secrets": 2});
                (200, json!({"tokens": [token]}))
            }
            "POST /v1/auth/tokens" if request.body["principal"] == "nobody" => (409, problem("denied", 409)),
            line if line.starts_with("POST /v1/auth/tokens") => (201, issued),
            _ => (200, change),
        }
    })
}

fn ann(grant: &str) -> Value {
    json!({"required": false, "principal": "ann", "token": "0123456789abcdef", "roles": ["r"], "grants": [grant]})
}

fn problem(name: &str, status: u16) -> Value {
    json!({"type": format!("https://x/problems/{name}"), "title": "T", "status": status, "detail": "D"})
}

/// A user with a directory of settings.
struct User {
    home: tempfile::TempDir,
}

impl User {
    fn new() -> User {
        User { home: tempfile::tempdir().expect("a temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("tidelock").join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tidelock();
        command.args(arguments).env("XDG_CONFIG_HOME", self.home.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().expect("the binary starts")
    }

    /// Standard output of a command that must succeed.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Logs in with a token on standard input.
    fn login(&self, arguments: &[&str], token: &str) -> Output {
        let mut command = self.command(&[&["login"], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A command that refuses its arguments ends without reading.
        let _ = stdin.write_all(format!("{token}\n").as_bytes());
        drop(stdin);
        child.wait_with_output().expect("it ends")
    }

    /// A user who has logged in at a node.
    fn at(node: &Recorder) -> User {
        let user = User::new();
        let output = user.login(&[&node.url()], TOKEN);
        assert!(output.status.success(), "{}", said(&output));
        node.take();
        user
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

/// The only request since the last look, which had the token.
fn only(node: &Recorder) -> (String, Value) {
    let requests = node.take();
    let [Request { line, authorization, body }] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(authorization, &format!("Bearer {TOKEN}"));
    (line.clone(), body.clone())
}

#[test]
fn an_address_and_a_token_are_given_once() {
    let (node, user) = (node(), User::new());
    let output = user.login(&[&node.url()], TOKEN);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("principal  ann") && text.contains("cluster:admin"), "{text}");
    assert!(!format!("{text}{}", said(&output)).contains("lmnop"), "the secret is shown");
    assert_eq!(only(&node).0, "GET /v1/auth/whoami");
    let token = user.path("default.token");
    assert_eq!(fs::read_to_string(&token).expect("a token"), format!("{TOKEN}\n"));
    assert_eq!((mode(&token), mode(&user.path("config.toml"))), (0o600, 0o600));

    user.done(&["auth", "whoami"]);
    assert_eq!(only(&node).0, "GET /v1/auth/whoami");
    // Another node does not get the token.
    let other = self::node();
    assert!(user.done(&["auth", "whoami", "--url", &other.url()]).contains("You have no token"));
    assert_eq!(other.take()[0].authorization, "");

    // Another cluster, and then the first one again with another token.
    let output = user.login(&[&other.url(), "--profile", "blue"], TOKEN);
    assert!(output.status.success(), "{}", said(&output));
    user.done(&["auth", "whoami", "--profile", "blue"]);
    user.done(&["auth", "whoami"]);
    assert_eq!(only(&node).0, "GET /v1/auth/whoami");
    let refused = user.login(&[], OTHER);
    assert_eq!(refused.status.code(), Some(7));
    assert!(said(&refused).contains("does not know this token; nothing was stored"), "{}", said(&refused));
    assert_eq!(fs::read_to_string(&token).expect("a token"), format!("{TOKEN}\n"));

    fs::set_permissions(&token, Permissions::from_mode(0o644)).expect("a mode");
    let readable = user.run(&["auth", "whoami"]);
    assert_eq!(readable.status.code(), Some(2));
    assert!(said(&readable).contains("chmod 600"), "{}", said(&readable));
}

#[test]
fn what_is_no_token_or_would_leave_the_machine_is_not_sent() {
    let (node, user) = (node(), User::new());
    let output = user.login(&[&node.url()], "another secret");
    assert_eq!(output.status.code(), Some(2));
    assert!(!said(&output).contains("another secret"), "{}", said(&output));
    // An address for documentation (RFC 5737).
    let output = user.login(&["http://192.0.2.1:8001"], TOKEN);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("use https://"), "{}", said(&output));
    for name in ["..", "a/b"] {
        assert_eq!(user.login(&[&node.url(), "--profile", name], TOKEN).status.code(), Some(2));
    }
    assert_eq!(node.take(), []);
    assert!(!user.path("config.toml").exists());
}

#[test]
fn a_terminal_shows_again_what_is_typed_after_a_signal() {
    let user = User::new();
    let mut terminal = PseudoTerminal::open();
    for signal in [Signal::INT, Signal::TERM] {
        assert!(terminal.echoes());
        let child = user.command(&["login"]).stdin(terminal.stdio()).spawn().expect("the binary starts");
        eventually("what is typed is not shown", || (!terminal.echoes()).then_some(()));
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains("interrupted; nothing was stored"), "{}", said(&output));
    }
    assert!(terminal.echoes());

    let node = node();
    let child =
        user.command(&["login", &node.url()]).stdin(terminal.stdio()).spawn().expect("the binary starts");
    eventually("what is typed is not shown", || (!terminal.echoes()).then_some(()));
    terminal.type_keys(&format!("{TOKEN}\n"));
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", said(&output));
    assert!(terminal.echoes());
}

#[test]
fn changes_say_where_they_are_in_force() {
    let node = node();
    let user = User::at(&node);
    let in_force = "in force on 2 of 3 nodes; not yet on node 3\n";
    for (line, text, request, body) in [
        (
            "role put a/b --grant cluster:read --grant read --ends 2000-02-28T23:59:59Z",
            "role a/b is stored",
            "PUT /v1/auth/roles/a%2Fb",
            json!({"grants": ["cluster:read", "read"], "ends_unix_ms": 951_782_399_000_u64}),
        ),
        ("role delete app", "role app is deleted", "DELETE /v1/auth/roles/app", Value::Null),
        (
            "principal put ann --role admin --role app",
            "principal ann is stored",
            "PUT /v1/auth/principals/ann",
            json!({"roles": ["admin", "app"]}),
        ),
        ("principal delete ann", "principal ann is deleted", "DELETE /v1/auth/principals/ann", Value::Null),
        (
            "token delete fedcba9876543210",
            "token fedcba9876543210 is deleted",
            "DELETE /v1/auth/tokens/fedcba9876543210",
            Value::Null,
        ),
        (
            "off",
            "authentication is off: every client that reaches a node may make every request",
            "PUT /v1/auth",
            json!({"required": false}),
        ),
    ] {
        let arguments: Vec<&str> = ["auth"].into_iter().chain(line.split_whitespace()).collect();
        assert_eq!(user.done(&arguments), format!("{text}; {in_force}"), "{line}");
        assert_eq!(only(&node), (request.to_owned(), body), "{line}");
    }
    let shown = user.done(&["auth", "role", "delete", "app", "--output", "json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["not_yet"], json!([3]));
}

#[test]
fn lists_are_tables() {
    let node = node();
    let user = User::at(&node);
    let list = |noun: &str| user.done(&["auth", noun, "list"]);
    assert_eq!(
        list("role"),
        "ROLE  ENDS                  LIMITS  GRANTS\napp   1970-01-01T00:00:00Z  none    read keys:, cluster:read\n"
    );
    assert_eq!(list("principal"), "PRINCIPAL  ROLES       CERTIFICATE NAMES\nann        admin, app\n");
    assert_eq!(
        list("token"),
        "TOKEN             PRINCIPAL  CREATED               EXPIRES  SECRETS\n\
         0123456789abcdef  ann        1970-01-01T00:00:00Z  never    2\n"
    );
}

#[test]
fn a_new_token_is_alone_on_standard_output_or_in_a_file() {
    let node = node();
    let user = User::at(&node);
    let output = user.run(&["auth", "token", "create", "ann", "--expires", "90d"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{OTHER}\n"));
    assert!(said(&output).contains("token fedcba9876543210, which is shown this once; in force on 1 of 1"));
    let body = json!({"principal": "ann", "expires_in_s": 7_776_000});
    assert_eq!(only(&node), ("POST /v1/auth/tokens".to_owned(), body));

    let path = user.home.path().join("new.token");
    let file = path.to_str().expect("text");
    let rotate = ["auth", "token", "rotate", "0123456789abcdef", "--out", file];
    let text = user.done(&rotate);
    assert!(text.starts_with("token fedcba9876543210 is in ") && !text.contains("lmnop"), "{text}");
    assert_eq!(only(&node).0, "POST /v1/auth/tokens/0123456789abcdef/rotate");
    assert_eq!((fs::read_to_string(&path).expect("a token"), mode(&path)), (format!("{OTHER}\n"), 0o600));
    // A file that exists is kept, and no token is created.
    assert_eq!(user.run(&rotate).status.code(), Some(1));
    assert_eq!(node.take(), []);

    fs::remove_file(&path).expect("a file");
    let create = ["auth", "token", "create", "ann", "--out", file, "--output", "json"];
    assert!(!user.done(&create).contains("lmnop"));
    fs::remove_file(&path).expect("a file");
    let refused = user.run(&["auth", "token", "create", "nobody", "--out", file]);
    assert!(refused.status.code() == Some(4) && !path.exists(), "{}", said(&refused));
    // A token in place of its number is not repeated.
    let mistaken = user.run(&["auth", "token", "delete", TOKEN]);
    assert_eq!(mistaken.status.code(), Some(2));
    assert!(!said(&mistaken).contains("lmnop"), "{}", said(&mistaken));
}

#[test]
fn authentication_is_required_only_by_one_who_can_undo_that() {
    let node = node();
    let user = User::at(&node);
    let text = user.done(&["auth", "require"]);
    assert_eq!(text, "authentication is required; in force on 2 of 3 nodes; not yet on node 3\n");
    let lines: Vec<String> = node.take().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, ["GET /v1/auth/whoami", "PUT /v1/auth"]);

    let stranger = User::new();
    let refused = stranger.run(&["auth", "require", "--url", &node.url()]);
    assert_eq!(refused.status.code(), Some(7));
    assert!(said(&refused).contains("run `tidelock login`"), "{}", said(&refused));
    let reader = Recorder::start(|_| (200, ann("cluster:read")));
    let refused = user.run(&["auth", "require", "--url", &reader.url()]);
    assert!(said(&refused).contains("does not allow cluster:admin"), "{}", said(&refused));
    assert_eq!((node.take().len(), reader.take().len()), (1, 1), "only whoami was asked");

    let refused = stranger.run(&["auth", "role", "list", "--url", &node.url()]);
    assert!(said(&refused).contains("no token: run `tidelock login`"), "{}", said(&refused));
}

#[test]
fn a_benchmark_sends_the_token_only_where_it_belongs() {
    let node = node();
    let user = User::at(&node);
    let token = user.path("default.token");
    let other = self::node();
    let (url, file) = (format!("{}/x", other.url()), token.to_str().expect("text"));
    let bench = ["bench", "http", "-n", "2", "-c", "1", "--json", &url];
    assert!(!user.run(&bench).status.success(), "without a token it is refused");
    user.done(&[&bench[..], &["--token-file", file]].concat());
    let with: Vec<bool> = other.take().iter().map(|request| !request.authorization.is_empty()).collect();
    assert_eq!(with, [false, false, true, true]);
    let elsewhere = user.run(&["bench", "resp", "-n", "2", "--address", "192.0.2.1:1"]);
    assert_eq!(elsewhere.status.code(), Some(2));
    assert!(said(&elsewhere).contains("not sent to 192.0.2.1:1"), "{}", said(&elsewhere));
}
