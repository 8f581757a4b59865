//! Network namespaces: machines with addresses, names and a NAT gateway, on one machine.
//!
//! Owns making and removing them, and what runs inside: a thread, a process, a port that is
//! forwarded. Only root may make namespaces, and some containers not even that. All are named after
//! this process, so that concurrent runs do not meet.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Numbers the sets of namespaces of this process.
static SETS: AtomicU32 = AtomicU32::new(0);

/// A set of network namespaces; removed when this is dropped.
pub struct Namespaces {
    prefix: String,
    made: Vec<String>,
    forwarded: Vec<Forwarded>,
}

/// A port of a namespace that is forwarded.
struct Forwarded {
    namespace: String,
    listen: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Namespaces {
    /// Creates an empty set. If namespaces cannot be made here, says so past the test's captured
    /// output and returns `None`.
    pub fn make(test: &str) -> Option<Namespaces> {
        let set = SETS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("tidelock-{}-{set}", std::process::id());
        let mut namespaces = Namespaces { prefix, made: vec![], forwarded: vec![] };
        match namespaces.probe() {
            Ok(()) => Some(namespaces),
            Err(reason) => {
                let reason = reason.replace('\n', " ");
                let _ = writeln!(
                    io::stderr(),
                    "SKIPPED {test}: network namespaces cannot be made here: {reason}"
                );
                None
            }
        }
    }

    /// Tries everything that tests need.
    fn probe(&mut self) -> Result<(), String> {
        self.try_add("probe")?;
        self.try_ip("probe", "link add br0 type bridge")?;
        self.try_ip("probe", "link add one type veth peer name two")?;
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        run(Command::new("ip").args(["netns", "exec", &self.full("probe"), "sh", "-c", forward]))
    }

    /// The name by which the system knows a namespace.
    fn full(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    fn try_add(&mut self, name: &str) -> Result<(), String> {
        run(Command::new("ip").args(["netns", "add", &self.full(name)]))?;
        self.made.push(name.to_owned());
        self.try_ip(name, "link set lo up")
    }

    /// Makes a namespace, with a loopback interface alone.
    pub fn add(&mut self, name: &str) {
        self.try_add(name).expect("the probe was made");
    }

    fn try_ip(&self, name: &str, arguments: &str) -> Result<(), String> {
        run(Command::new("ip").args(["-n", &self.full(name)]).args(arguments.split(' ')))
    }

    /// Runs `ip` with words separated by one space, in a namespace.
    pub fn ip(&self, name: &str, arguments: &str) {
        self.try_ip(name, arguments).unwrap_or_else(|error| panic!("ip {arguments} in {name}: {error}"));
    }

    /// Makes a switch: a namespace with a bridge that has an address.
    pub fn add_switch(&mut self, name: &str, address: &str) {
        self.add(name);
        self.bridge(name, address);
    }

    /// Adds a bridge with an address to a namespace.
    pub fn bridge(&self, name: &str, address: &str) {
        self.ip(name, "link add br0 type bridge");
        self.ip(name, &format!("addr add {address} dev br0"));
        self.ip(name, "link set br0 up");
    }

    /// Connects a namespace to the bridge of another one, by its interface `eth0`.
    pub fn connect(&self, name: &str, bridge: &str, address: &str) {
        let port = format!("to-{name}");
        self.ip(bridge, &format!("link add {port} type veth peer name eth0 netns {}", self.full(name)));
        self.ip(bridge, &format!("link set {port} master br0 up"));
        self.ip(name, &format!("addr add {address} dev eth0"));
        self.ip(name, "link set eth0 up");
    }

    /// Replaces the address of the interface `eth0`. Its other routes are lost.
    pub fn readdress(&self, name: &str, address: &str) {
        self.ip(name, "addr flush dev eth0");
        self.ip(name, &format!("addr add {address} dev eth0"));
    }

    /// Lets a namespace forward packets between its interfaces.
    pub fn forward_packets(&self, name: &str) {
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        let done = self.command(name, "sh").args(["-c", forward]).status();
        assert!(done.is_ok_and(|status| status.success()), "the probe could forward");
    }

    /// Hides what a namespace forwards to `eth0` behind its own address. Returns whether the
    /// machine has a tool for that.
    pub fn masquerade(&self, name: &str) -> bool {
        let nft = "add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; add rule ip nat out \
                   oifname eth0 masquerade";
        let iptables = ["-t", "nat", "-A", "POSTROUTING", "-o", "eth0", "-j", "MASQUERADE"];
        run(self.command(name, "nft").arg(nft)).is_ok()
            || run(self.command(name, "iptables").args(iptables)).is_ok()
    }

    /// A command that runs inside a namespace.
    pub fn command(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.full(name), program]);
        command
    }

    /// Writes `/etc/hosts` of processes in a namespace, also of running ones if it exists already.
    /// Their name server is 127.0.0.1.
    pub fn set_names(&self, name: &str, names: &[(&str, &str)]) {
        let directory = self.settings(name);
        fs::create_dir_all(&directory).expect("root may write below /etc/netns");
        fs::write(directory.join("resolv.conf"), "nameserver 127.0.0.1\n").expect("a file");
        let lines = names.iter().map(|(host, address)| format!("{address} {host}\n"));
        let lines: String = ["127.0.0.1 localhost\n".to_owned()].into_iter().chain(lines).collect();
        // In place, because processes see the file by a mount of its own.
        fs::write(directory.join("hosts"), lines).expect("a file");
    }

    /// What `ip netns exec` mounts over files of `/etc`.
    fn settings(&self, name: &str) -> PathBuf {
        Path::new("/etc/netns").join(self.full(name))
    }

    /// Runs a function on a thread inside a namespace.
    pub fn within<T: Send>(&self, name: &str, function: impl FnOnce() -> T + Send) -> T {
        let namespace = self.full(name);
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                enter(&namespace);
                function()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a thread inside a namespace.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = self.full(name);
        thread::spawn(move || {
            enter(&namespace);
            function()
        })
    }

    /// Forwards TCP connections to a port of a namespace, as a NAT gateway or a container platform
    /// does.
    pub fn forward_port(&mut self, name: &str, listen: SocketAddr, to: SocketAddr) {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let listener = self.within(name, || TcpListener::bind(listen).expect("the address is there"));
        let thread = self.spawn(name, move || {
            for client in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(server) = TcpStream::connect(to) {
                    carry(&client, &server);
                }
            }
        });
        let namespace = self.full(name);
        self.forwarded.push(Forwarded { namespace, listen, stop, thread: Some(thread) });
    }
}

/// Copies both directions of a connection on threads, each until it ends.
fn carry(client: &TcpStream, server: &TcpStream) {
    for (from, to) in [(client, server), (server, client)] {
        let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

/// Moves this thread into a network namespace.
fn enter(namespace: &str) {
    let file = File::open(Path::new("/run/netns").join(namespace)).expect("the namespace exists");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
}

/// Runs a command; the error is what it says.
fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|error| error.to_string())?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for Forwarded { namespace, listen, stop, thread } in &mut self.forwarded {
            stop.store(true, Ordering::Relaxed);
            let (namespace, listen) = (namespace.clone(), *listen);
            // It waits for a connection.
            let woken = thread::spawn(move || {
                enter(&namespace);
                drop(TcpStream::connect(listen));
            });
            let _ = woken.join();
            let _ = thread.take().map(JoinHandle::join);
        }
        for name in &self.made {
            let _ = Command::new("ip").args(["netns", "del", &self.full(name)]).output();
            let _ = fs::remove_dir_all(self.settings(name));
        }
    }
}
