//! Nodes on networks as they are: behind NAT, known by names, at addresses that change, over IPv6.
//!
//! Each test makes network namespaces, as machines of their own.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::client::Client;
use crate::harness::namespaces::Namespaces;
use crate::harness::{DEADLINE, Response, clear_settings, eventually, tail, within};

/// Keys that each test writes before nodes stop.
const KEYS: usize = 40;

/// Where tests ask from: the namespace of the switch.
const SWITCH: &str = "switch";

/// A node in a namespace.
struct Node {
    namespace: &'static str,
    directory: PathBuf,
    log: PathBuf,
    /// Its HTTP address, as tests reach it.
    http: SocketAddr,
    flags: Vec<String>,
    child: Option<Child>,
}

/// Nodes in namespaces. They stop before the namespaces are removed.
struct Site {
    nodes: BTreeMap<&'static str, Node>,
    /// The namespace from which tests ask.
    vantage: &'static str,
    directory: TempDir,
    namespaces: Namespaces,
    /// Whether machines of the private network connect under their own addresses, because nothing
    /// here can hide these.
    is_routed: bool,
}

impl Site {
    fn new(namespaces: Namespaces, vantage: &'static str) -> Site {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Site { nodes: BTreeMap::new(), vantage, directory, namespaces, is_routed: false }
    }

    /// Gives a machine a way back to connections of the private network, if it needs one.
    fn route_to_private(&self, machine: &str) {
        if self.is_routed {
            self.namespaces.ip(machine, "route add 192.168.7.0/24 via 10.77.0.250");
        }
    }

    /// Adds a node that does not run yet.
    fn add(&mut self, name: &'static str, namespace: &'static str, http: &str) {
        let directory = self.directory.path().join(name);
        let log = directory.with_extension("log");
        let http = http.parse().expect("an address");
        self.nodes.insert(name, Node { namespace, directory, log, http, flags: vec![], child: None });
    }

    fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.get_mut(name).expect("the node was added")
    }

    fn set_flags(&mut self, name: &str, flags: &str) {
        self.node(name).flags = flags.split_whitespace().map(str::to_owned).collect();
    }

    fn add_flags(&mut self, name: &str, flags: &str) {
        self.node(name).flags.extend(flags.split_whitespace().map(str::to_owned));
    }

    fn start(&mut self, name: &str) {
        let binary = env!("CARGO_BIN_EXE_tidelock");
        let node = self.nodes.get_mut(name).expect("the node was added");
        let mut command: Command = self.namespaces.command(node.namespace, binary);
        clear_settings(&mut command);
        let log = OpenOptions::new().create(true).append(true).open(&node.log).expect("the log opens");
        // Several data shards, so that several nodes are leaders.
        command.env("TIDELOCK_SHARDS", "4");
        command.args(["serve", "--insecure", "--data-dir"]).arg(&node.directory).args(&node.flags);
        command.arg("--stop-at-stdin-end").stdin(Stdio::piped());
        command.stdout(log.try_clone().expect("a second handle of the log")).stderr(log);
        node.child = Some(command.spawn().expect("the binary starts"));
    }

    /// SIGTERM, and waits for the end.
    fn stop(&mut self, name: &str) {
        let mut child = self.node(name).child.take().expect("the node is running");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("a running child can be signalled");
        // `Child::wait` would close its standard input, which stops it a second time.
        let status =
            eventually(&format!("{name} ends"), || child.try_wait().expect("a child can be waited for"));
        assert_eq!(status.code(), Some(0), "{name}\n{}", self.log(name));
    }

    fn log(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(&self.nodes[name].log).unwrap_or_default()).into_owned()
    }

    /// One request to a node, a method and a path; `None` without an answer.
    fn try_send(&self, name: &str, request: &str, body: &[u8]) -> Option<Response> {
        let (method, path) = request.split_once(' ').expect("a request is a method and a path");
        let url = format!("http://{}{path}", self.nodes[name].http);
        let client = Client::default();
        self.namespaces.within(self.vantage, || client.send(method, &url, &[], body)).ok()
    }

    /// A request that is repeated until it is answered with one of these statuses.
    fn send(&self, name: &str, request: &str, body: &[u8], statuses: &[u16]) -> Response {
        let mut last = None;
        let answer = within(DEADLINE, || {
            last = self.try_send(name, request, body);
            last.take_if(|response| statuses.contains(&response.status))
        });
        answer.unwrap_or_else(|| panic!("{name} answers {request} with {:?}", last.map(|last| last.text())))
    }

    fn wait_ready(&self, names: &[&str]) {
        for name in names {
            self.send(name, "GET /readyz", b"", &[200]);
        }
    }

    fn view(&self, name: &str) -> Value {
        self.send(name, "GET /v1/cluster", b"", &[200]).json()
    }

    /// The uuid and the peer address of each node number, once all so many hosts are connected with
    /// the node that is asked.
    fn hosts(&self, name: &str, count: usize) -> BTreeMap<u64, (String, String)> {
        eventually(&format!("{name} is connected with all"), || {
            let view = self.view(name);
            let hosts = view["hosts"].as_array().expect("a list");
            let are_connected = hosts.iter().all(|host| host["connected"] == true && host["id"].is_string());
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let row = |host: &Value| {
                (host["node"].as_u64().expect("a number"), (text(&host["id"]), text(&host["peer_address"])))
            };
            (are_connected && hosts.len() == count).then(|| hosts.iter().map(row).collect())
        })
    }

    /// Writes the keys of a series, through these nodes in turn.
    fn write(&self, series: &str, names: &[&str]) {
        for number in 0..KEYS {
            let key = format!("PUT /v1/keys/{series}-{number}");
            self.send(names[number % names.len()], &key, number.to_string().as_bytes(), &[200, 201]);
        }
    }

    /// Checks that every node has all keys of a series.
    fn check(&self, series: &str) {
        for name in self.nodes.keys() {
            for number in 0..KEYS {
                let value = self.send(name, &format!("GET /v1/keys/{series}-{number}"), b"", &[200]);
                assert_eq!(value.text(), number.to_string(), "{series}-{number} at {name}");
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            if let Some(mut child) = node.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::thread::panicking() {
            for name in self.nodes.keys() {
                let log = self.log(name);
                eprintln!("--- log of {name}\n{}", tail(&log));
            }
        }
    }
}

const MACHINES: [&str; 6] = ["m1", "m2", "m3", "m4", "m5", "m6"];

/// Six machines: four on one network, two on a private one behind a gateway that forwards ports.
fn six_machines(test: &str) -> Option<Site> {
    let mut namespaces = Namespaces::make(test)?;
    namespaces.add_switch(SWITCH, "10.77.0.254/24");
    for (machine, address) in MACHINES.iter().zip(1..=4) {
        namespaces.add(machine);
        namespaces.connect(machine, SWITCH, &format!("10.77.0.{address}/24"));
    }
    namespaces.add("gateway");
    namespaces.connect("gateway", SWITCH, "10.77.0.250/24");
    namespaces.bridge("gateway", "192.168.7.1/24");
    namespaces.forward_packets("gateway");
    let is_hidden = namespaces.masquerade("gateway");
    for (machine, number) in [("m5", 5), ("m6", 6)] {
        namespaces.add(machine);
        namespaces.connect(machine, "gateway", &format!("192.168.7.{number}/24"));
        namespaces.ip(machine, "route add default via 192.168.7.1");
        for (port, private_port) in [(18_000 + number, 8001), (19_000 + number, 9001)] {
            let listen = SocketAddr::from(([10, 77, 0, 250], port));
            let to = SocketAddr::from(([192, 168, 7, number as u8], private_port));
            namespaces.forward_port("gateway", listen, to);
        }
    }
    let mut site = Site::new(namespaces, SWITCH);
    site.is_routed = !is_hidden;
    for (machine, address) in MACHINES.iter().zip(1..=4) {
        site.add(machine, machine, &format!("10.77.0.{address}:8001"));
        site.route_to_private(machine);
    }
    site.add("m5", "m5", "10.77.0.250:18005");
    site.add("m6", "m6", "10.77.0.250:18006");
    Some(site)
}

/// The flags of a machine that listens everywhere.
const LISTEN: &str = "--listen-http [::]:8001 --listen-resp 0.0.0.0:7001 --listen-peer [::]:9001";

impl Site {
    /// What the names resolve to, on every machine.
    fn set_names(&self, names: &[(&str, &str)]) {
        for machine in MACHINES {
            self.namespaces.set_names(machine, names);
        }
    }

    /// Starts a machine with these further flags and what it advertises.
    fn boot(&mut self, machine: &str, flags: &str, advertised: &str) {
        self.set_flags(machine, LISTEN);
        self.add_flags(machine, &format!("--advertise-peer {advertised} {flags}"));
        self.start(machine);
    }
}

/// Three founders, of which one has a name, a fourth machine, and two behind a gateway. Node 1 is
/// `m2`, node 2 is `m3` and node 3 is `m1`, by the order of their addresses.
fn found_and_join(site: &mut Site) {
    site.set_names(&[("gateway.test", "10.77.0.250")]);
    let founders = "--peers kv-1.test:9001,10.77.0.2:9001,10.77.0.3:9001";
    site.boot("m1", founders, "kv-1.test");
    site.boot("m2", founders, "10.77.0.2");
    site.boot("m3", founders, "10.77.0.3");
    site.wait_ready(&["m2", "m3"]);
    let join = "--join kv-1.test:9001";
    site.boot("m4", join, "10.77.0.4");
    // Nobody could resolve the name until now: the machine that waits asks again.
    let waits = |site: &Site| site.log("m4").contains("not a member yet").then_some(());
    eventually("m4 does not resolve the name", || waits(site));
    site.set_names(&[("gateway.test", "10.77.0.250"), ("kv-1.test", "10.77.0.1")]);
    site.wait_ready(&["m1", "m4"]);
    // One after the other, so that their numbers are known.
    for (machine, port) in [("m5", "5"), ("m6", "6")] {
        let http = format!("{join} --advertise-http gateway.test:1800{port}");
        site.boot(machine, &http, &format!("gateway.test:1900{port}"));
        site.wait_ready(&[machine]);
    }
}

#[test]
fn hosts_that_exchange_their_addresses_come_back_under_their_identities() {
    let Some(mut site) = six_machines("hosts_that_exchange_their_addresses_come_back_under_their_identities")
    else {
        return;
    };
    found_and_join(&mut site);
    site.write("before", &MACHINES);
    let before = site.hosts("m3", 6);
    let addresses: Vec<&str> = before.values().map(|(_, address)| address.as_str()).collect();
    let advertised = ["10.77.0.2:9001", "10.77.0.3:9001", "kv-1.test:9001", "10.77.0.4:9001"];
    assert_eq!(addresses[..4], advertised);
    assert_eq!(addresses[4..], ["gateway.test:19005", "gateway.test:19006"]);

    // Two founders of three and the fourth machine exchange their addresses. The name of one keeps
    // resolving to its former address, where another one is now.
    for machine in ["m1", "m2", "m4"] {
        site.stop(machine);
    }
    for (machine, address) in [("m1", "10.77.0.2"), ("m2", "10.77.0.4"), ("m4", "10.77.0.1")] {
        site.namespaces.readdress(machine, &format!("{address}/24"));
        site.route_to_private(machine);
        let http = format!("{address}:8001").parse().expect("an address");
        site.node(machine).http = http;
    }
    // Nobody announces the new addresses on the link.
    for namespace in MACHINES.iter().chain(&[SWITCH, "gateway"]) {
        site.namespaces.ip(namespace, "neigh flush all");
    }
    site.boot("m1", "", "kv-1.test");
    site.boot("m2", "", "10.77.0.4");
    site.boot("m4", "", "10.77.0.1");
    // Machines that would have to dial `m1` do not find it yet. It has links with the two founders,
    // which have links with all: they reach every leader, wherever replicas move meanwhile.
    let founders = ["m2", "m3"];
    site.wait_ready(&founders);
    site.write("stale", &founders);
    site.set_names(&[("gateway.test", "10.77.0.250"), ("kv-1.test", "10.77.0.2")]);
    site.wait_ready(&["m1"]);

    let expected = ["10.77.0.4:9001", "10.77.0.3:9001", "kv-1.test:9001", "10.77.0.1:9001"];
    for (machine, number) in [("m2", 1), ("m3", 2), ("m1", 3), ("m4", 4), ("m5", 5), ("m6", 6)] {
        // Links are up before the hosts have announced their addresses.
        let after = eventually(&format!("{machine} knows the new addresses"), || {
            let hosts = site.hosts(machine, 6);
            hosts.values().map(|(_, address)| address.as_str()).take(4).eq(expected).then_some(hosts)
        });
        assert_eq!(site.view(machine)["node"], number, "{machine}");
        let uuids = |hosts: &BTreeMap<u64, (String, String)>| {
            hosts.values().map(|(uuid, _)| uuid.clone()).collect::<Vec<_>>()
        };
        assert_eq!(uuids(&after), uuids(&before), "as {machine} sees them");
    }
    site.check("before");
    site.check("stale");
    let met =
        |machine: &&str| site.log(machine).contains("another node of the cluster answers at this address");
    assert!(MACHINES.iter().any(met), "nobody dialed a stale address");
    for machine in MACHINES {
        site.stop(machine);
    }
}

/// A name server for one SRV name: `_peer._tcp.kv.test` has the ports 9001, 9002, … of `kv.test`,
/// as many as `count` says.
fn serve_srv(socket: &UdpSocket, count: &AtomicUsize) {
    let mut query = [0; 512];
    while let Ok((length, client)) = socket.recv_from(&mut query) {
        // The question ends with its name's root, type and class.
        let Some(name) = query[12..length].iter().position(|byte| *byte == 0) else { continue };
        let question = &query[12..12 + name + 5];
        let is_srv = question.starts_with(b"\x05_peer\x04_tcp\x02kv\x04test\0\0\x21");
        let records = if is_srv { count.load(Ordering::Relaxed) } else { 0 };
        if records == usize::MAX {
            return;
        }
        // Answered, recursion available; for other names there are none.
        let flags = if is_srv { [0x81, 0x80] } else { [0x81, 0x83] };
        let mut answer = [&query[..2], &flags, &[0, 1, 0, records as u8, 0, 0, 0, 0], question].concat();
        for port in (9001u16..).take(records) {
            // The name of the question, SRV, IN, no time to live, priority and weight 0.
            answer.extend_from_slice(&[0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 0, 0, 15, 0, 0, 0, 0]);
            answer.extend_from_slice(&port.to_be_bytes());
            answer.extend_from_slice(b"\x02kv\x04test\0");
        }
        let _ = socket.send_to(&answer, client);
    }
}

#[test]
fn founders_and_members_are_found_by_a_srv_name_over_ipv6() {
    let test = "founders_and_members_are_found_by_a_srv_name_over_ipv6";
    let Some(mut namespaces) = Namespaces::make(test) else { return };
    namespaces.add("m");
    namespaces.set_names("m", &[("kv.test", "fd77::1")]);
    namespaces.ip("m", "-6 addr add fd77::1/64 dev lo nodad");
    let records = Arc::new(AtomicUsize::new(1));
    let socket =
        namespaces.within("m", || UdpSocket::bind("127.0.0.1:53").expect("nobody else listens there"));
    let count = records.clone();
    let server = namespaces.spawn("m", move || serve_srv(&socket, &count));
    let mut site = Site::new(namespaces, "m");
    let names = ["n1", "n2", "n3", "n4"];
    for (name, number) in names.iter().zip(1..) {
        site.add(name, "m", &format!("[fd77::1]:800{number}"));
        site.set_flags(name, &format!("--http [fd77::1]:800{number} --resp [fd77::1]:700{number}"));
        site.add_flags(name, &format!("--listen-peer [fd77::1]:900{number} --advertise-peer kv.test"));
    }
    for name in ["n2", "n3", "n1"] {
        site.add_flags(name, "--peers srv:_peer._tcp.kv.test/3");
        site.start(name);
    }
    for name in ["n1", "n2", "n3"] {
        let waits = |site: &Site| site.log(name).contains("1 hosts of 3").then_some(());
        eventually("a founder waits for the others", || waits(&site));
    }
    records.store(3, Ordering::Relaxed);
    site.wait_ready(&["n1", "n2", "n3"]);
    for (name, number) in [("n1", 1), ("n2", 2), ("n3", 3)] {
        assert_eq!(site.view(name)["node"], number, "{name}");
    }
    site.add_flags("n4", "--join srv:_peer._tcp.kv.test");
    site.start("n4");
    site.wait_ready(&["n4"]);
    site.write("v6", &names);
    site.check("v6");
    // The directory knows its cluster now, whatever the name says.
    site.stop("n1");
    records.store(1, Ordering::Relaxed);
    site.start("n1");
    site.wait_ready(&["n1"]);
    assert_eq!(site.hosts("n1", 4).len(), 4);

    // Clients: the command line, and Redis Cluster clients, who are told addresses.
    let put = ["kv", "put", "--url", "http://[fd77::1]:8004", "by-url", "yes"];
    let binary = env!("CARGO_BIN_EXE_tidelock");
    let done = site.namespaces.command("m", binary).args(put).output().expect("the binary starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(site.send("n2", "GET /v1/keys/by-url", b"", &[200]).text(), "yes");
    let slots = site.namespaces.within("m", || resp(7102, "CLUSTER SLOTS"));
    assert!(slots.contains("$7\r\nfd77::1\r\n") && slots.contains(":7101\r\n"), "{slots}");
    records.store(usize::MAX, Ordering::Relaxed);
    site.namespaces.within("m", || {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let query = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x05_peer\x04_tcp\x02kv\x04test\0\0\x21\0\x01";
        client.send_to(query, "127.0.0.1:53").expect("it is sent");
    });
    server.join().expect("the name server ends");
}

/// What a node answers to one inline command, up to the end of its reply's last slot range.
fn resp(port: u16, command: &str) -> String {
    use std::io::{Read, Write};
    let address: SocketAddr = format!("[fd77::1]:{port}").parse().expect("an address");
    let mut stream = std::net::TcpStream::connect(address).expect("the node listens");
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).expect("it is sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("the node closes");
    reply
}
