//! The agent that keeps files up to date, also under `kill -9` of nodes and of itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::config::{post, post_through};
use crate::harness::process::Process;
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually};

/// A running agent; killed when dropped.
struct Agent {
    process: Process,
    log: PathBuf,
}

impl Agent {
    fn start(shell: &Shell, directory: &Path, arguments: &[&str]) -> Agent {
        let log = directory.join("agent.log");
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).expect("a file");
        let mut command: Command = shell.command(&[&["config", "agent"], arguments].concat());
        command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        Agent { process: Process::start(&mut command), log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("a log")
    }

    fn until_logged(&self, text: &str) {
        eventually(&format!("{text:?} is logged"), || self.log().contains(text).then_some(()));
    }

    fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    fn kill(self) {
        self.process.end();
    }
}

fn until_content(path: &Path, content: &str) {
    let read = || fs::read_to_string(path).unwrap_or_default();
    eventually(&format!("{} holds {content:?}, not {:?}", path.display(), read()), || {
        (read() == content).then_some(())
    });
}

/// A pair `p` and containers `app` and `other` of it.
fn serve() -> (Cluster, Shell) {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    shell.done(&["config", "ns", "create", "shop"]);
    set(&shell, 1);
    shell.done(&["config", "container", "set", "shop", "app", "p=p"]);
    shell.done(&["config", "container", "set", "shop", "other", "p=p"]);
    (cluster, shell)
}

fn set(shell: &Shell, number: u64) {
    shell.done(&["config", "pair", "set", "shop", "p", &number.to_string()]);
}

#[test]
fn a_file_and_its_command_follow_a_container() {
    let (_cluster, shell) = serve();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let arguments = [
        "--file",
        "shop/app=app.yaml",
        "--file",
        "shop/other=other:env",
        "--mode",
        "0640",
        "--label",
        "web-1",
        "--exec",
        "cat app.yaml other >> ran; echo \"$TIDELOCK_FILES\" >> ran",
    ];
    let mut agent = Agent::start(&shell, directory.path(), &arguments);
    until_content(&path("app.yaml"), "p: 1\n");
    until_content(&path("other"), "P=1\n");
    until_content(&path("ran"), "p: 1\nP=1\napp.yaml\nother\n");
    let mode = fs::metadata(path("app.yaml")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    set(&shell, 2);
    until_content(&path("ran"), "p: 1\nP=1\napp.yaml\nother\np: 2\nP=2\napp.yaml\nother\n");
    // The agent is a reader with a label.
    eventually("the agent is listed", || {
        let found = shell.json(&["config", "readers", "shop", "app"]);
        let readers = found["readers"].as_array().expect("readers");
        readers.iter().any(|reader| reader["label"] == "web-1" && reader["container"] == "app").then_some(())
    });
    // A second agent for one of the files ends at once.
    let mut second = shell.command(&["config", "agent", "--file", "shop/app=app.yaml"]);
    let refused = second.current_dir(directory.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("another agent keeps app.yaml"), "{said}");
    // A deleted container leaves the file as it is.
    shell.done(&["config", "container", "del", "shop", "app"]);
    agent.until_logged("app of shop does not exist; app.yaml stays as it is");
    assert_eq!(fs::read_to_string(path("app.yaml")).expect("a file"), "p: 2\n");
    set(&shell, 3);
    shell.done(&["config", "container", "set", "shop", "app", "p=p"]);
    until_content(&path("app.yaml"), "p: 3\n");
    agent.signal(Signal::TERM);
    assert_eq!(agent.process.wait().expect("it ends").code(), Some(0), "{}", agent.log());
}

#[test]
fn a_command_that_failed_runs_again_with_the_next_change_or_start() {
    let (_cluster, shell) = serve();
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["--file", "shop/app=app.json", "--exec", "cat app.json >> ran; test -e good"];
    let ran = directory.path().join("ran");
    let agent = Agent::start(&shell, directory.path(), &arguments);
    agent.until_logged("failed: it ended with exit status: 1; it runs again with the next change");
    until_content(&ran, "{\"p\":1}\n");
    set(&shell, 2);
    until_content(&ran, "{\"p\":1}\n{\"p\":2}\n");
    eventually("it has failed twice", || (agent.log().matches("failed:").count() == 2).then_some(()));
    agent.kill();
    fs::write(directory.path().join("good"), "").expect("a file");
    let agent = Agent::start(&shell, directory.path(), &arguments);
    until_content(&ran, "{\"p\":1}\n{\"p\":2}\n{\"p\":2}\n");
    let state = directory.path().join(".app.json.tidelock-state");
    eventually("the state says that it ran", || {
        fs::read_to_string(&state).is_ok_and(|state| state.contains("\"is_command_due\":false")).then_some(())
    });
    agent.kill();
    // Neither the file nor a command is due any more.
    let once = [&["config", "agent", "--once"], &arguments[..]].concat();
    let done = shell.command(&once).current_dir(directory.path()).output().expect("it starts");
    assert!(done.status.success(), "{done:?}");
    until_content(&ran, "{\"p\":1}\n{\"p\":2}\n{\"p\":2}\n");
}

#[test]
fn settings_are_read_again() {
    let (_cluster, shell) = serve();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let file = |name: &str, more: &str| {
        format!("[[file]]\nnamespace = \"shop\"\ncontainer = \"app\"\npath = \"{name}\"\n{more}")
    };
    fs::write(path("agent.toml"), file("one.json", "")).expect("a file");
    let mut agent =
        Agent::start(&shell, directory.path(), &["--config", "agent.toml", "--state-dir", "states"]);
    until_content(&path("one.json"), "{\"p\":1}\n");
    fs::write(path("agent.toml"), file("two.json", "colour = 1\n")).expect("a file");
    agent.signal(Signal::HUP);
    agent.until_logged("the settings stay as they are: agent.toml");
    set(&shell, 2);
    until_content(&path("one.json"), "{\"p\":2}\n");
    let both = file("one.json", "") + &file("two.toml", "delete = true\nexec = \"date > ran\"\n");
    fs::write(path("agent.toml"), both).expect("a file");
    agent.signal(Signal::HUP);
    until_content(&path("two.toml"), "p = 2\n");
    shell.done(&["config", "container", "del", "shop", "app"]);
    eventually("the file is deleted, too", || (!path("two.toml").exists()).then_some(()));
    eventually("its command has run", || path("ran").exists().then_some(()));
    assert!(path("one.json").exists());
    assert!(!path(".one.json.tidelock-state").exists(), "it is in the directory of the states");
    agent.signal(Signal::INT);
    assert_eq!(agent.process.wait().expect("it ends").code(), Some(0));
}

#[test]
fn without_the_cluster_the_last_good_file_stays() {
    let (mut cluster, shell) = serve();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("app.json");
    let arguments = ["--file", "shop/app=app.json", "--timeout-ms", "2000"];
    let once = [&["config", "agent", "--once"], &arguments[..]].concat();
    let run = || shell.command(&once).current_dir(directory.path()).output().expect("it starts");
    assert!(run().status.success());
    until_content(&path, "{\"p\":1}\n");
    set(&shell, 2);
    cluster.kill(1);
    let failed = run();
    assert_eq!(failed.status.code(), Some(5), "{failed:?}");
    let agent = Agent::start(&shell, directory.path(), &arguments);
    agent.until_logged("app.json stays as it is; trying again");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "{\"p\":1}\n");
    cluster.restart(1);
    until_content(&path, "{\"p\":2}\n");
}

#[test]
fn what_cannot_be_done_is_named() {
    let (_cluster, shell) = serve();
    let directory = tempfile::tempdir().expect("a directory");
    let run = |arguments: &[&str]| {
        let mut command = shell.command(&[&["config", "agent", "--once"], arguments].concat());
        let output = command.current_dir(directory.path()).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for arguments in [
        &[][..],
        &["--file", "shop"],
        &["--file", "shop/app=a", "--file", "shop/other=a"],
        &["--file", "shop/app=a", "--mode", "9"],
        &["--file", "shop/app=a", "--exec", ""],
        &["--file", "shop/app=a", "--config", "b"],
    ] {
        assert_eq!(run(arguments).0, Some(2), "{arguments:?}");
    }
    fs::write(directory.path().join("agent.toml"), "[[file]]\nname = 1\n").expect("a file");
    let (code, said) = run(&["--config", "agent.toml"]);
    assert!(code == Some(2) && said.contains("agent.toml"), "{said}");
    let (code, said) = run(&["--file", "shop/none=a"]);
    assert!(code == Some(1) && said.contains("none of shop does not exist"), "{said}");
    let (code, said) = run(&["--file", "shop/app=missing/a"]);
    assert!(code == Some(1) && said.contains("missing"), "{said}");
    let (code, said) = run(&["--file", "shop/app=a", "--exec", "exit 3"]);
    assert!(code == Some(1) && said.contains("exit status: 3"), "{said}");
}

/// Ends the reader of a file, also when the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads a file again and again: it is always a whole document, and never goes back.
fn read_all_the_time(path: &Path, over: &AtomicBool) -> u64 {
    let (mut last, mut reads) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(_) if last == 0 => continue,
            Err(error) => panic!("the file is gone: {error}"),
        };
        let document: Value = serde_json::from_slice(&content)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&content)));
        let number = |field: &str| document[field].as_u64().expect("a number");
        assert_eq!((number("first"), document["pad"].as_str().map(str::len)), (number("last"), Some(50_000)));
        assert!(number("first") >= last, "it went back from {last} to {}", number("first"));
        last = number("first");
        reads += 1;
    }
    assert!(reads > 0);
    last
}

#[test]
fn a_file_is_never_torn_and_never_goes_back_whoever_is_killed() {
    const CHANGES: u64 = 40;
    let mut cluster = Cluster::start(3);
    let field = |key: &str| json!({"key": key, "fieldType": 1, "value": key});
    let numbers = |number: u64| {
        json!([{"pair": "first", "value": number}, {"pair": "last", "value": number},
            {"pair": "pad", "value": "x".repeat(50_000)}])
    };
    let mut changes = numbers(0);
    let container = json!({"container": "app", "fields": [field("first"), field("last"), field("pad")]});
    changes.as_array_mut().expect("changes").push(container);
    assert_eq!(post(&cluster, 1, "shop/publish", &json!({"changes": changes, "create": true})).status, 200);
    let shell = Shell::of(&cluster);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("app.json");
    let arguments = ["--file", "shop/app=app.json", "--exec", "cp app.json loaded", "--timeout-ms", "4000"];
    let over = AtomicBool::new(false);
    let last = thread::scope(|scope| {
        let reader = scope.spawn(|| read_all_the_time(&path, &over));
        let ending = Ending(&over);
        let mut agent = Some(Agent::start(&shell, directory.path(), &arguments));
        for number in 1..=CHANGES {
            match number {
                10 => cluster.kill(1),
                17 => cluster.restart(1),
                20 => cluster.kill(2),
                27 => cluster.restart(2),
                _ => {}
            }
            let through = if (20..27).contains(&number) { 3 } else { 2 };
            post_through(&cluster, through, "shop/publish", &json!({"changes": numbers(number)}));
            if number % 3 == 0 {
                agent.take().expect("an agent").kill();
                agent = Some(Agent::start(&shell, directory.path(), &arguments));
            }
        }
        let is_last = |path: &Path| {
            fs::read(path).is_ok_and(|content| {
                serde_json::from_slice::<Value>(&content).is_ok_and(|document| document["last"] == CHANGES)
            })
        };
        eventually("the file has the last document", || is_last(&path).then_some(()));
        let loaded = directory.path().join("loaded");
        eventually("the command ran for the last document", || is_last(&loaded).then_some(()));
        drop(ending);
        reader.join().expect("no torn file and no step back")
    });
    assert_eq!(last, CHANGES);
}
