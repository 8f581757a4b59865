//! What a node tells the service manager that started it, by the protocol of `sd_notify(3)`: that
//! it serves, how it is, that its workers make progress, and that it stops.
//!
//! Owns the messages and their socket. systemd sets `NOTIFY_SOCKET` for a unit of `Type=notify`,
//! and `WATCHDOG_USEC` for one with `WatchdogSec=`. Without them every call here does nothing.
//!
//! A node is ready once it listens and its cluster has admitted it. That does not include a
//! majority: the first of three founders would wait for the others, and so would the command that
//! starts it. `/readyz` says whether the node serves requests; the status shows the same in words.
//!
//! A message is one datagram of text, so this is written over the standard library. The crate
//! `sd-notify` reads the environment of the process at each message, which tests cannot replace,
//! and brings the bindings of libc.

mod status;
mod watchdog;

use status::report_status;
use watchdog::pass_watchdog;
pub(crate) use watchdog::{ProgressAnswers, ProgressProbe, probe};

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::rc::Rc;
use std::time::Duration;

use crate::worker::Worker;

/// Longest text of a status, in bytes. systemd shows one line.
const STATUS_BYTES_MAX: usize = 512;

/// The service manager of this process, if it has one.
#[derive(Debug, Default)]
pub struct ServiceManager {
    channel: Option<Channel>,
    watchdog: Option<Duration>,
    /// The last status, which is not sent again.
    told: RefCell<String>,
}

#[derive(Debug)]
struct Channel {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl ServiceManager {
    /// The one that the environment of this process names. If it cannot be reached, a warning is
    /// logged, and the node runs without it.
    pub fn from_environment() -> ServiceManager {
        ServiceManager::new(|name| std::env::var_os(name), std::process::id())
    }

    fn new(variable: impl Fn(&str) -> Option<OsString>, process: u32) -> ServiceManager {
        let Some(socket) = variable("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return ServiceManager::default();
        };
        let channel = Channel::open(&socket);
        if let Err(error) = &channel {
            tracing::warn!(%error, socket = ?socket, "the service manager cannot be told how the node is");
        }
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        // A process inherits the variables of its parent, for which the watchdog is meant then.
        let is_ours = number("WATCHDOG_PID").is_none_or(|watched| watched == u64::from(process));
        let watchdog = number("WATCHDOG_USEC").filter(|&us| is_ours && us > 0).map(Duration::from_micros);
        ServiceManager { channel: channel.ok(), watchdog, told: RefCell::default() }
    }

    /// The node serves: from now on its status is shown, and the watchdog is passed.
    pub(crate) fn keep_informed(self: &Rc<Self>, worker: &Worker, workers: Vec<ProgressProbe>) {
        self.ready();
        tokio::task::spawn_local(report_status(self.clone(), worker.clone()));
        tokio::task::spawn_local(pass_watchdog(self.clone(), workers));
    }

    /// Whether a service manager has started this process.
    pub(crate) fn is_present(&self) -> bool {
        self.channel.is_some()
    }

    fn ready(&self) {
        self.send("READY=1");
    }

    /// The node stops; `why` becomes the status.
    pub(crate) fn stopping(&self, why: &str) {
        self.send("STOPPING=1");
        self.status(why);
    }

    /// Shows how the node is, in one line for people.
    pub(crate) fn status(&self, text: &str) {
        let mut line = text.replace('\n', " ");
        let end = (0..=STATUS_BYTES_MAX.min(line.len())).rfind(|&end| line.is_char_boundary(end));
        line.truncate(end.unwrap_or(0));
        if *self.told.borrow() != line {
            self.send(&format!("STATUS={line}"));
            *self.told.borrow_mut() = line;
        }
    }

    fn send(&self, message: &str) {
        let Some(Channel { socket, address }) = &self.channel else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(%error, message, "a message to the service manager was lost");
        }
    }
}

impl Channel {
    fn open(name: &OsStr) -> io::Result<Channel> {
        let address = match name.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "NOTIFY_SOCKET is no path")),
        };
        let socket = UnixDatagram::unbound()?;
        // The event loop must not wait for a service manager that is busy.
        socket.set_nonblocking(true)?;
        Ok(Channel { socket, address })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The end of the service manager, in a directory of the test.
    pub struct Receiver {
        socket: UnixDatagram,
        directory: tempfile::TempDir,
    }

    impl Receiver {
        pub fn new() -> Receiver {
            let directory = tempfile::tempdir().unwrap();
            let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
            socket.set_nonblocking(true).unwrap();
            Receiver { socket, directory }
        }

        /// A node's end, with these variables besides the socket.
        pub fn manager(&self, variables: &[(&str, &str)]) -> ServiceManager {
            let path = self.directory.path().join("notify");
            let mut environment: BTreeMap<&str, OsString> =
                variables.iter().map(|(name, value)| (*name, OsString::from(value))).collect();
            environment.insert("NOTIFY_SOCKET", path.into());
            ServiceManager::new(|name| environment.get(name).cloned(), 77)
        }

        /// Every message that has arrived since the last call.
        pub fn messages(&self) -> Vec<String> {
            let mut buffer = [0; 4_096];
            std::iter::from_fn(|| self.socket.recv(&mut buffer).ok().map(|bytes| buffer[..bytes].to_vec()))
                .map(|message| String::from_utf8(message).unwrap())
                .collect()
        }
    }

    #[test]
    fn messages_are_those_of_the_protocol() {
        let receiver = Receiver::new();
        let manager = receiver.manager(&[]);
        manager.status("starting");
        manager.ready();
        manager.stopping("stopping");
        assert_eq!(receiver.messages(), ["STATUS=starting", "READY=1", "STOPPING=1", "STATUS=stopping"]);
    }

    #[test]
    fn a_status_is_one_line_and_sent_when_it_changes() {
        let receiver = Receiver::new();
        let manager = receiver.manager(&[]);
        for text in ["a", "a", "b\nREADY=1", "a"] {
            manager.status(text);
        }
        assert_eq!(receiver.messages(), ["STATUS=a", "STATUS=b READY=1", "STATUS=a"]);
        manager.status(&"ü".repeat(1_000));
        assert_eq!(receiver.messages(), [format!("STATUS={}", "ü".repeat(STATUS_BYTES_MAX / 2))]);
    }

    #[test]
    fn abstract_sockets_are_reached() {
        let name = format!("tidelock-test-{}", uuid::Uuid::new_v4());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let manager = ServiceManager::new(
            |variable| (variable == "NOTIFY_SOCKET").then(|| OsString::from(format!("@{name}"))),
            77,
        );
        manager.ready();
        let mut buffer = [0; 16];
        assert_eq!(socket.recv(&mut buffer).unwrap(), 7);
        assert_eq!(&buffer[..7], b"READY=1");
    }

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let receiver = Receiver::new();
        let watchdog = |variables: &[(&str, &str)]| receiver.manager(variables).watchdog;
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(&[]), None);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "1000000")]), second);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "77")]), second);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "78")]), None);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "0")]), None);
    }

    #[test]
    fn a_process_without_a_service_manager_says_nothing() {
        for socket in [None, Some(""), Some("relative"), Some("/nonexistent/notify")] {
            let manager = ServiceManager::new(
                |name| socket.filter(|_| name == "NOTIFY_SOCKET").map(OsString::from),
                77,
            );
            manager.ready();
            manager.status("serving");
        }
    }
}
