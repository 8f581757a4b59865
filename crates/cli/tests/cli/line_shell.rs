//! `tidelock shell`, at a terminal and with a script.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::harness::shell::Shell;
use crate::harness::terminal::PseudoTerminal;
use crate::harness::{Cluster, tidelock};

/// Runs a script.
fn script(shell: &Shell, lines: &str) -> Output {
    let mut command = shell.command(&["shell"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("written");
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_script_runs_up_to_the_first_line_that_fails() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let output =
        script(&shell, "# keys\nkv put 'a b' \"1 2\"\ntidelock kv get 'a b'\n\nkv get none\nkv put c 3\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "created, version 1\n1 2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.ends_with("tidelock: line 5 failed: kv get none\n"), "{said}");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(shell.run(&["kv", "get", "c"]).status.code(), Some(3));
    let output = script(&shell, "kv put c 3\nexit\nkv put d 4\n");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(shell.run(&["kv", "get", "d"]).status.code(), Some(3));
    let output = script(&shell, "kv put 'c\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1: a quote is not closed"));
}

#[test]
fn a_terminal_has_completion_interrupts_and_a_history() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    shell.done(&["kv", "put", "app/name", "shop"]);
    shell.done(&["config", "ns", "create", "web shop"]);
    let home = tempfile::tempdir().expect("a directory");
    let mut terminal = PseudoTerminal::open();
    // setsid makes it the controlling terminal of the command, which Ctrl-C then interrupts.
    let binary = tidelock();
    let mut command = Command::new("setsid");
    for (name, value) in binary.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command
        .args(["--ctty", "--wait"])
        .arg(binary.get_program())
        .args(["shell", "--url", &cluster.url(1, ""), "--output", "json"])
        .env("XDG_STATE_HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path())
        .env("TERM", "xterm")
        .stdin(terminal.stdio())
        .stdout(terminal.stdio())
        .stderr(terminal.stdio())
        .spawn()
        .expect("setsid of util-linux");
    terminal.expect("Ctrl-D leaves.");
    terminal.expect("tidelock> ");
    terminal.type_keys("kv ge\tap\tna\t\n");
    terminal.expect("\"val\":\"shop\"");
    terminal.expect("tidelock> ");
    terminal.type_keys("config ns info we\t\n");
    terminal.expect("'web shop'");
    terminal.expect("\"revision\":1");
    terminal.expect("tidelock> ");
    terminal.type_keys("watch app/ --state\n");
    terminal.expect("app/name");
    terminal.type_keys("\x03");
    terminal.expect("tidelock> ");
    terminal.type_keys(" kv put app/secret hidden\n");
    terminal.expect("\"created\":true");
    terminal.expect("tidelock> ");
    terminal.type_keys("\x03");
    terminal.expect("tidelock> ");
    terminal.type_keys("\x04");
    assert!(child.wait().expect("it ends").success());
    let history = fs::read_to_string(home.path().join("tidelock/history")).expect("a history");
    assert!(history.contains("kv get app/name") && !history.contains("hidden"), "{history}");
}
