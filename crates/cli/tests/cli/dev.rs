//! `tidelock dev`: starts three real nodes, and leaves none behind.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::client::Client;
use crate::harness::process::Process;
use crate::harness::{DEADLINE, eventually, ports, tidelock};

/// A running `tidelock dev` and the lines it prints.
struct Dev {
    child: Process,
    lines: mpsc::Receiver<String>,
    http_base: u16,
}

impl Dev {
    fn command(directory: &Path, base: u16) -> Command {
        let mut command = tidelock();
        command.args(["dev", "--nodes", "3", "--data-dir"]).arg(directory);
        for (flag, offset) in
            [("--http-base", 0), ("--resp-base", 3), ("--peer-base", 6), ("--resp-cluster-base", 9)]
        {
            command.args([flag, &(base + offset).to_string()]);
        }
        command
    }

    fn start(directory: &Path, base: u16) -> Dev {
        let mut command = Dev::command(directory, base);
        let mut child = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let (sender, lines) = mpsc::channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("a pipe")), Box::new(child.stderr.take().expect("a pipe"))];
        for stream in streams {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Dev { child, lines, http_base: base }
    }

    /// Reads lines until one contains `text`; returns it.
    fn await_line(&self, text: &str) -> String {
        let mut seen = vec![];
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no line with {text:?} in\n{}", seen.join("\n")),
            }
        }
    }

    fn address(&self, node: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.http_base + node - 1).into()
    }

    fn url(&self, node: u16, path: &str) -> String {
        format!("http://{}{path}", self.address(node))
    }

    fn await_gone(&self) {
        for node in 1..=3 {
            eventually("the node is gone", || TcpStream::connect(self.address(node)).is_err().then_some(()));
        }
    }
}

/// Retries a put until it succeeds: an election may be in progress after a node has died.
fn put(dev: &Dev, node: u16, value: &str) {
    let client = Client::default();
    eventually("the write is done", || {
        let sent = client.send("PUT", &dev.url(node, "/v1/keys/k"), &[], value.as_bytes()).ok()?;
        matches!(sent.status, 200 | 201).then_some(())
    });
}

#[test]
fn a_cluster_to_play_with() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("dev");
    let base = ports::reserve(12);
    let mut dev = Dev::start(&data, base);
    dev.await_line("All 3 nodes are ready");
    let table = dev.await_line("node-3");
    assert!(table.contains(&dev.url(3, "")) && table.contains("us-west-1f"), "{table}");
    dev.await_line("curl -X PUT");
    put(&dev, 1, "v");
    let read = Client::default().send("GET", &dev.url(3, "/v1/keys/k"), &[], b"").expect("an answer");
    assert_eq!(read.text(), "v");

    // A second cluster on the same ports fails with a message before any node starts.
    let clash = Dev::command(&directory.path().join("other"), base).output().expect("the binary starts");
    assert_eq!(clash.status.code(), Some(1));
    let message = String::from_utf8_lossy(&clash.stderr);
    assert!(message.contains(&dev.address(1).to_string()), "{message}");

    // A node dies; the others serve, and the printed command line restarts it.
    kill_process(node_pid(&data.join("node-2")), Signal::KILL).expect("the node runs");
    dev.await_line("node-2 is gone: signal: 9");
    let line = dev.await_line("serve --data-dir");
    put(&dev, 1, "without node 2");
    let mut revived =
        Process::start(Command::new("sh").args(["-c", &format!("exec {line}")]).stderr(Stdio::null()));
    eventually("node 2 serves again", || {
        let read = Client::default().send("GET", &dev.url(2, "/v1/keys/k"), &[], b"").ok()?;
        (read.text() == "without node 2").then_some(())
    });
    revived.signal(Signal::TERM);
    assert!(revived.wait().expect("it ends").success());

    dev.child.signal(Signal::TERM);
    assert_eq!(dev.child.wait().expect("it ends").code(), Some(0));
    dev.await_gone();

    // Written data is there at the next start.
    let dev = Dev::start(&data, base);
    dev.await_line("All 3 nodes are ready");
    let read = Client::default().send("GET", &dev.url(1, "/v1/keys/k"), &[], b"").expect("an answer");
    assert_eq!(read.text(), "without node 2");
}

#[test]
fn no_node_outlives_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut dev = Dev::start(&directory.path().join("dev"), ports::reserve(12));
    dev.await_line("All 3 nodes are ready");
    dev.child.kill().expect("it runs");
    dev.child.wait().expect("it ends");
    dev.await_gone();
}

/// The process whose command line names `directory`.
fn node_pid(directory: &Path) -> Pid {
    let wanted = directory.to_str().expect("a path");
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0);
        if words.nth(1) == Some(b"serve") && words.any(|word| word == wanted.as_bytes()) {
            return Pid::from_raw(pid).expect("a process id");
        }
    }
    panic!("no node has the directory {wanted}");
}
