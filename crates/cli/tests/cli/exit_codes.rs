//! Exit codes of commands, and errors as JSON.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::Cluster;
use crate::harness::shell::Shell;

/// Runs a command with JSON output that must fail: its exit code and its error.
fn failure(shell: &Shell, arguments: &[&str]) -> (i32, Value) {
    let output = shell.run(&[arguments, &["--output", "json"]].concat());
    let said = String::from_utf8(output.stderr).expect("text");
    let error: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{arguments:?}: {said}"));
    assert_eq!(said.lines().count(), 1, "{said}");
    (output.status.code().expect("an exit code"), error)
}

#[test]
fn exit_codes_tell_errors_apart() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    shell.done(&["kv", "put", "k", "v"]);
    for (arguments, code, name) in [
        (&["kv", "put", "k", "v", "--if-version", "9"][..], 4, "condition-failed"),
        (&["kv", "put", "k", "v", "--lease", "{k}:ff"], 3, "no-such-lease"),
        (&["kv", "get", "none"], 3, "not-found"),
        (&["kv", "del", "none"], 3, "not-found"),
        (&["atomic", "cas", "a", "1", "2"], 4, "condition-failed"),
        (&["config", "pair", "get", "shop", "none"], 3, "not-found"),
        (&["cluster", "remove", "1", "--no-wait"], 4, "last-voter"),
        (&["cluster", "drain", "9"], 3, "unknown-host"),
    ] {
        let (found, error) = failure(&shell, arguments);
        assert_eq!((found, &error["error"]), (code, &json!(name)), "{arguments:?}: {error}");
        assert_eq!(error["exit_code"], json!(code), "{error}");
        assert!(error["message"].is_string(), "{error}");
    }
    let (_, refused) = failure(&shell, &["kv", "put", "k", "v", "--if-version", "9"]);
    assert_eq!((&refused["problem"]["status"], &refused["problem"]["current"]), (&json!(412), &json!(1)));
}

#[test]
fn exit_codes_tell_what_is_not_done_from_what_is_not_known() {
    let mut cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    shell.done(&["kv", "put", "k", "v"]);
    cluster.signal(1, Signal::STOP);
    let (code, unknown) = failure(&shell, &["kv", "put", "k", "w", "--timeout-ms", "500"]);
    assert_eq!((code, &unknown["error"]), (6, &json!("unknown-outcome")), "{unknown}");
    cluster.signal(1, Signal::CONT);
    cluster.kill(1);
    for arguments in [&["kv", "put", "k", "w"][..], &["kv", "get", "k"]] {
        let (code, refused) = failure(&shell, arguments);
        assert_eq!((code, &refused["error"]), (5, &json!("unavailable")), "{refused}");
    }
}
