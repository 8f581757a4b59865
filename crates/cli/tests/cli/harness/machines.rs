//! Machines on which the commands of a page run as they are printed: network namespaces with
//! addresses and directories of their own.
//!
//! Owns where a command runs, and what `scp` does. `/var/lib` and the home directory of a machine
//! are directories of the test.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;
use tidelock_client::CertificateAuthorities;

use super::namespaces::Namespaces;
use super::{clear_settings, eventually, tail};

/// A connection with TLS.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// The machine of the user who types the commands.
pub const COMPUTER: &str = "computer";

/// Copies between machines, as `scp` does, but by their directories.
const SCP: &str = r#"#!/bin/sh
path() {
    case "$1" in
    *:/*) echo "$MACHINES/${1%%:*}${1#*:}" ;;
    *:*) echo "$MACHINES/${1%%:*}/home/${1#*:}" ;;
    *) echo "$1" ;;
    esac
}
if [ "$1" = -r ]; then shift; exec cp -r "$(path "$1")" "$(path "$2")"; fi
exec cp "$(path "$1")" "$(path "$2")"
"#;

/// The computer of a user, and machines with nodes. Nodes stop before the namespaces are removed.
pub struct Machines {
    nodes: BTreeMap<String, Child>,
    directory: TempDir,
    namespaces: Namespaces,
}

impl Machines {
    /// Makes machines with the addresses 10.0.0.1 to 10.0.0.`count`, and the user's computer with
    /// 10.0.0.254. If namespaces cannot be made here, prints that and returns `None`.
    pub fn make(test: &str, count: usize) -> Option<Machines> {
        let mut namespaces = Namespaces::make(test)?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        namespaces.add_switch(COMPUTER, "10.0.0.254/24");
        let machines: Vec<String> = (1..=count).map(|number| format!("10.0.0.{number}")).collect();
        for machine in &machines {
            namespaces.add(machine);
            namespaces.connect(machine, COMPUTER, &format!("{machine}/24"));
        }
        for machine in machines.iter().map(String::as_str).chain([COMPUTER]) {
            for path in ["var/lib", "home"] {
                fs::create_dir_all(directory.path().join(machine).join(path)).expect("a directory");
            }
        }
        let bin = directory.path().join("bin");
        fs::create_dir(&bin).expect("a directory");
        fs::write(bin.join("scp"), SCP).expect("a file");
        fs::set_permissions(bin.join("scp"), fs::Permissions::from_mode(0o755)).expect("it is ours");
        Some(Machines { nodes: BTreeMap::new(), directory, namespaces })
    }

    /// Where the test finds a file of a machine.
    pub fn path(&self, machine: &str, path: &str) -> PathBuf {
        self.directory.path().join(machine).join(path.trim_start_matches('/'))
    }

    /// A line of a shell on a machine, not started yet.
    fn line(&self, machine: &str, line: &str) -> Command {
        const ENTER: &str =
            r#"mount --bind "$MACHINES/$MACHINE/var/lib" /var/lib && cd "$HOME" && exec sh -ec "$LINE""#;
        let mut shell = self.namespaces.command(machine, "sh");
        clear_settings(&mut shell);
        let binary = Path::new(env!("CARGO_BIN_EXE_tidelock")).parent().expect("a directory");
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.directory.path().join("bin");
        shell.args(["-c", ENTER]).env("PATH", format!("{}:{}:{path}", bin.display(), binary.display()));
        shell.env("MACHINES", self.directory.path()).env("MACHINE", machine).env("LINE", line);
        shell.env("HOME", self.path(machine, "home")).env_remove("XDG_CONFIG_HOME");
        shell.env("RUST_BACKTRACE", "0");
        shell
    }

    /// Repeats a line on the computer until it succeeds; returns what it printed. For what needs a
    /// cluster that serves.
    pub fn until_done(&self, line: &str) -> String {
        self.until_done_on(COMPUTER, line)
    }

    /// As [`Machines::until_done`], on any machine.
    pub fn until_done_on(&self, machine: &str, line: &str) -> String {
        let mut last = None;
        let done = super::within(super::DEADLINE, || {
            let output = self.line(machine, line).output().expect("a shell");
            let is_done = output.status.success();
            last = Some(output);
            is_done.then_some(())
        });
        let last = last.expect("it ran");
        assert!(done.is_some(), "{line}: {}", String::from_utf8_lossy(&last.stderr));
        String::from_utf8(last.stdout).expect("UTF-8")
    }

    /// Starts the node of a machine with a line that serves.
    pub fn serve(&mut self, machine: &str, line: &str) {
        let log = OpenOptions::new().create(true).append(true).open(self.path(machine, "log"));
        let log = log.expect("a file");
        let mut shell = self.line(machine, &format!("exec {line}"));
        let child = shell.stdout(log.try_clone().expect("a handle")).stderr(log).spawn();
        self.nodes.insert(machine.to_owned(), child.expect("a shell"));
    }

    /// Types commands, one a line: those that serve on the machine whose HTTP address they have,
    /// all others on the computer.
    pub fn run_all(&mut self, commands: &str) {
        for line in commands.replace("\\\n", " ").lines() {
            let machine = line.split_once("--http ").and_then(|(_, rest)| rest.split_once(':'));
            match machine {
                Some((machine, _)) if line.starts_with("tidelock serve") => self.serve(machine, line),
                _ => drop(self.until_done(line)),
            }
        }
    }

    /// The log of the node of a machine.
    pub fn log(&self, machine: &str) -> String {
        fs::read_to_string(self.path(machine, "log")).unwrap_or_default()
    }

    /// Waits until the log of a node has a text.
    pub fn wait_for_log(&self, machine: &str, text: &str) {
        eventually(text, || self.log(machine).contains(text).then_some(()));
    }

    /// Connects a machine to the switch, or disconnects it.
    pub fn set_link(&self, machine: &str, is_up: bool) {
        let state = if is_up { "up" } else { "down" };
        self.namespaces.ip(COMPUTER, &format!("link set to-{machine} {state}"));
    }

    /// Runs a function on a thread of a machine.
    pub fn within<T: Send>(&self, machine: &str, function: impl FnOnce() -> T + Send) -> T {
        self.namespaces.within(machine, function)
    }
}

/// Connects to a node with TLS, trusting the authorities in a file.
pub fn connect(address: SocketAddr, ca: &Path) -> io::Result<TlsStream> {
    let config = CertificateAuthorities::read(ca).and_then(|ca| ca.tls_config(None));
    let config = Arc::new(config.map_err(io::Error::other)?);
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(super::client::TIMEOUT))?;
    stream.set_nodelay(true)?;
    let client = ClientConnection::new(config, ServerName::from(address.ip())).map_err(io::Error::other)?;
    Ok(StreamOwned::new(client, stream))
}

impl Drop for Machines {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            // It may have ended by itself.
            let _ = node.kill();
            let _ = node.wait();
        }
        if std::thread::panicking() {
            for machine in self.nodes.keys() {
                let log = self.log(machine);
                eprintln!("--- log of {machine}\n{}", tail(&log));
            }
        }
    }
}
