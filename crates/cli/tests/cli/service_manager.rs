//! What nodes tell the service manager that started them: a socket of the test is its end.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::harness::process::Process;
use crate::harness::shell::Shell;
use crate::harness::{Cluster, DEADLINE, ports, tidelock};

/// The end of the service manager.
struct Manager {
    socket: UnixDatagram,
    directory: TempDir,
}

impl Manager {
    fn new() -> Manager {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        Manager { socket, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("notify")
    }

    /// Starts a node on new ports.
    fn start(&self, data: &str, flags: &[&str]) -> Process {
        let port = ports::reserve(4);
        let mut command = tidelock();
        command.arg("serve").arg("--data-dir").arg(self.directory.path().join(data));
        for (offset, flag) in (0..).zip(["--http", "--resp", "--resp-cluster", "--peer"]) {
            if !flags.contains(&flag) {
                command.args([flag, &format!("127.0.0.1:{}", port + offset)]);
            }
        }
        command.args(flags).env("NOTIFY_SOCKET", self.path()).env("WATCHDOG_USEC", "100000");
        Process::start(command.stderr(Stdio::piped()))
    }

    fn next(&self) -> String {
        let mut buffer = [0; 4_096];
        let length = self.socket.recv(&mut buffer).expect("a message of the node");
        String::from_utf8(buffer[..length].to_vec()).expect("a text")
    }

    /// The messages up to the first one that `is_last` holds for.
    fn until(&self, is_last: impl Fn(&str) -> bool) -> Vec<String> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.next());
            if is_last(messages.last().expect("one was added")) {
                return messages;
            }
        }
    }

    fn await_message(&self, wanted: &str) -> Vec<String> {
        self.until(|message| message == wanted)
    }
}

#[test]
fn a_node_says_when_it_serves_how_it_is_and_that_it_stops() {
    let manager = Manager::new();
    let node = manager.start("data", &["--shards", "2"]);
    let before = manager.await_message("READY=1");
    assert_eq!(before[0], "STATUS=starting");
    assert!(!before.iter().any(|message| message.contains("serving")), "{before:?}");
    manager.await_message("STATUS=serving; leads 3 of 3 shards");
    // Twice: the first message needs no progress since the one before.
    manager.await_message("WATCHDOG=1");
    manager.await_message("WATCHDOG=1");
    // A reload, although this node has neither certificates nor keys to read again.
    node.signal(Signal::HUP);
    node.signal(Signal::TERM);
    manager.await_message("STOPPING=1");
    manager.await_message("STATUS=stopped");
    let ended = node.output();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// A unit of systemd is started when its node is ready. If ready meant a majority, an operator who
/// starts three founders one after the other would wait for the first one without end.
#[test]
fn the_first_of_three_founders_is_ready_and_says_that_it_has_no_majority() {
    let manager = Manager::new();
    let base = ports::reserve(3);
    let founders: Vec<String> = (base..base + 3).map(|port| format!("127.0.0.1:{port}")).collect();
    let node = manager.start("data", &["--peer", &founders[0], "--peers", &founders.join(",")]);
    manager.await_message("READY=1");
    manager.until(|message| message.starts_with("STATUS=no majority: only 1 of 3 nodes can be reached"));
    node.signal(Signal::TERM);
    manager.await_message("STOPPING=1");
    assert_eq!(node.output().status.code(), Some(0));
}

#[test]
fn a_node_that_joins_is_ready_when_it_is_admitted() {
    let manager = Manager::new();
    let absent = format!("127.0.0.1:{}", ports::reserve(1));
    let node = manager.start("data", &["--join", &absent]);
    manager.await_message("STATUS=starting: waits until a member of the cluster admits this node");
    node.signal(Signal::TERM);
    let after = manager.await_message("STATUS=stopped");
    assert!(!after.contains(&"READY=1".to_owned()), "{after:?}");
    assert_eq!(node.output().status.code(), Some(0));

    let cluster = Cluster::start(1);
    let member = cluster.view(1)["hosts"][0]["peer_address"].as_str().expect("an address").to_owned();
    let _node = manager.start("joined", &["--join", &member]);
    manager.await_message("READY=1");
}

#[test]
fn a_node_that_cannot_start_says_why() {
    let manager = Manager::new();
    let node = manager.start("data", &["--tls-dir", "/nonexistent"]);
    let messages = manager.until(|message| message.contains("/nonexistent"));
    assert!(!messages.contains(&"READY=1".to_owned()), "{messages:?}");
    assert_eq!(node.output().status.code(), Some(2));
}

#[test]
fn a_health_check_tells_ready_live_and_down_apart() {
    let mut cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let check = |arguments: &[&str]| {
        let output = shell.run(&[&["health", "--output", "json"], arguments].concat());
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, said) = check(&[]);
    assert_eq!((code, said.matches(r#""healthy":true"#).count()), (Some(0), said.lines().count()), "{said}");
    cluster.kill(2);
    cluster.kill(3);
    let url = cluster.url(1, "");
    let unready = || Some(check(&["--url", &url])).filter(|(code, _)| *code == Some(5));
    let (_, said) = crate::harness::eventually("the node is not ready", unready);
    assert!(said.contains("only 1 of 3 nodes can be reached"), "{said}");
    assert_eq!(check(&["--live", "--url", &url]).0, Some(0));
    cluster.kill(1);
    let (code, said) = check(&["--live", "--url", &url]);
    assert_eq!(code, Some(5));
    assert!(said.contains(r#""healthy":false"#), "{said}");
}
