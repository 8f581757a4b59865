//! A cluster of one or more nodes in a temporary directory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use tempfile::TempDir;

use super::client::Client;
use super::tmpfs::Tmpfs;
use super::{Response, eventually, ports, tidelock};

/// How often a cluster is started again because another process took one of its ports.
const STARTS_MAX: usize = 5;

/// Ports of a node: HTTP, Redis, peers, Redis Cluster.
const NODE_PORTS: u16 = 4;

/// Data shards of a cluster whose options do not say otherwise: several, so that requests are
/// forwarded, spread and gathered.
const SHARDS: &str = "4";

/// Settings of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Further flags of `serve`, for every node. Without `--shards` there are [`SHARDS`].
    pub flags: Vec<&'static str>,
}

/// A cluster; nodes are numbered from 1, as their directories are.
pub struct Cluster {
    nodes: Vec<Node>,
    client: Client,
    disks: BTreeMap<usize, Tmpfs>,
    _directory: TempDir,
}

struct Node {
    address: SocketAddr,
    directory: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
    /// Its flags to found or join a cluster: `--peers`, `--join`, or none.
    origin: Vec<String>,
    /// Its soft and hard limit of open files, if it differs from this process's.
    open_files: Option<u64>,
    environment: Vec<(&'static str, PathBuf)>,
    child: Option<Child>,
}

impl Node {
    /// A node on [`NODE_PORTS`] ports from `port` on.
    fn at(port: u16, directory: PathBuf) -> Node {
        let address = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port + offset));
        Node::on([address(0), address(1), address(2), address(3)], directory)
    }

    /// A node with these addresses: HTTP, Redis, peers, Redis Cluster.
    fn on(addresses: [SocketAddr; NODE_PORTS as usize], directory: PathBuf) -> Node {
        let mut arguments =
            vec!["serve".to_owned(), "--data-dir".to_owned(), directory.display().to_string()];
        for (flag, address) in ["--http", "--resp", "--peer", "--resp-cluster"].into_iter().zip(addresses) {
            arguments.extend([flag.to_owned(), address.to_string()]);
        }
        let log = directory.with_extension("log");
        Node {
            address: addresses[0],
            directory,
            log,
            arguments,
            origin: vec![],
            open_files: None,
            environment: vec![],
            child: None,
        }
    }
}

impl Cluster {
    /// Starts `count` nodes and waits until all are ready.
    pub fn start(count: u16) -> Cluster {
        Cluster::start_with(count, &Options::default())
    }

    /// Starts `count` nodes with further flags.
    pub fn start_with(count: u16, options: &Options) -> Cluster {
        Cluster::start_prepared(count, options, |_| {})
    }

    /// Starts nodes after `prepare` has changed the cluster.
    pub fn start_prepared(count: u16, options: &Options, prepare: impl Fn(&mut Cluster)) -> Cluster {
        let mut options = options.clone();
        if !options.flags.contains(&"--shards") {
            options.flags.extend(["--shards", SHARDS]);
        }
        Cluster::start_exactly(count, &options, prepare)
    }

    /// Starts nodes with one data shard, which the cluster divides by itself.
    pub fn start_dividing(count: u16) -> Cluster {
        Cluster::start_exactly(count, &Options::default(), |_| {})
    }

    fn start_exactly(count: u16, options: &Options, prepare: impl Fn(&mut Cluster)) -> Cluster {
        for _ in 0..STARTS_MAX {
            let mut cluster = Cluster::prepare(count, options);
            prepare(&mut cluster);
            for number in cluster.numbers() {
                cluster.spawn(number);
            }
            if cluster.all_ready() {
                return cluster;
            }
        }
        panic!("no free ports in {STARTS_MAX} starts");
    }

    fn prepare(count: u16, options: &Options) -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let base = ports::reserve(NODE_PORTS * count);
        let address = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, base + offset));
        let peers: Vec<String> = (0..count).map(|node| address(NODE_PORTS * node + 2).to_string()).collect();
        let nodes = (0..count).map(|node| {
            let data = directory.path().join(format!("node-{}", node + 1));
            let mut node = Node::at(base + NODE_PORTS * node, data);
            if count > 1 {
                node.origin = vec!["--peers".to_owned(), peers.join(",")];
            }
            node.arguments.extend(options.flags.iter().map(ToString::to_string));
            node
        });
        Cluster {
            nodes: nodes.collect(),
            client: Client::default(),
            disks: BTreeMap::new(),
            _directory: directory,
        }
    }

    /// Nodes at the default ports of these loopback addresses, which no other test uses. None is
    /// started.
    pub fn at(hosts: &[Ipv4Addr]) -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let node = |(number, host): (usize, &Ipv4Addr)| {
            let addresses = [8001, 7001, 9001, 7101].map(|port| SocketAddr::from((*host, port)));
            Node::on(addresses, directory.path().join(format!("node-{}", number + 1)))
        };
        Cluster {
            nodes: hosts.iter().enumerate().map(node).collect(),
            client: Client::default(),
            disks: BTreeMap::new(),
            _directory: directory,
        }
    }

    /// True once all are ready, false if one lost a port to another process; panics if one ended
    /// for any other reason.
    fn all_ready(&mut self) -> bool {
        for number in self.numbers() {
            let ready = eventually("the cluster is ready", || {
                for number in self.numbers() {
                    if let Some(status) = self.try_wait(number) {
                        let log = self.log(number).to_lowercase();
                        assert!(log.contains("in use"), "node {number} ended with {status}");
                        return Some(false);
                    }
                }
                self.is_ready(number).then_some(true)
            });
            if !ready {
                return false;
            }
        }
        true
    }

    /// Starts another node, which joins through a member, and waits until it is ready. Returns its
    /// number, which must be the next one.
    pub fn join(&mut self, member: usize) -> usize {
        self.join_on(ports::reserve(NODE_PORTS), &[member])
    }

    /// Joins a node with further flags.
    pub fn join_with(&mut self, member: usize, flags: &[&str]) -> usize {
        let port = ports::reserve(NODE_PORTS);
        self.join_as(port, &[member], flags)
    }

    /// Joins a node through several members, some of which may be down.
    pub fn join_any(&mut self, members: &[usize]) -> usize {
        self.join_on(ports::reserve(NODE_PORTS), members)
    }

    /// Joins a node at the addresses of one that is down.
    pub fn join_in_place_of(&mut self, gone: usize, member: usize) -> usize {
        assert!(self.node(gone).child.is_none(), "node {gone} has its ports");
        self.join_on(self.address(gone).port(), &[member])
    }

    fn join_on(&mut self, port: u16, members: &[usize]) -> usize {
        self.join_as(port, members, &[])
    }

    fn join_as(&mut self, port: u16, members: &[usize], flags: &[&str]) -> usize {
        let number = self.nodes.len() + 1;
        let mut node = Node::at(port, self.directory(1).with_file_name(format!("node-{number}")));
        let peer_port = |member: &usize| self.address(*member).port() + 2;
        let addresses = members.iter().map(|member| format!("{}:{}", Ipv4Addr::LOCALHOST, peer_port(member)));
        node.origin = vec!["--join".to_owned(), addresses.collect::<Vec<_>>().join(",")];
        node.arguments.extend(flags.iter().map(ToString::to_string));
        self.nodes.push(node);
        self.restart(number);
        assert_eq!(self.view(number)["node"], number);
        number
    }

    /// Adds flags of a node, from its next start on.
    pub fn add_flags(&mut self, number: usize, flags: &[&str]) {
        self.node_mut(number).arguments.extend(flags.iter().map(ToString::to_string));
    }

    /// Limits the open files of a node from its next start on; it cannot raise that limit.
    pub fn limit_open_files(&mut self, number: usize, open_files: u64) {
        self.node_mut(number).open_files = Some(open_files);
    }

    /// Sets the soft limit of open files of a running node: descriptors from that number on cannot
    /// be opened.
    pub fn set_open_files(&self, number: usize, open_files: u64) {
        let limits = fs::read_to_string(self.process_file(number, "limits")).expect("the node is running");
        let row = limits.lines().find(|line| line.starts_with("Max open files")).expect("it is listed");
        let maximum = row.split_whitespace().nth(4).and_then(|hard| hard.parse().ok());
        let process = Pid::from_child(self.node(number).child.as_ref().expect("the node is running"));
        let limit = Rlimit { current: Some(open_files), maximum };
        prlimit(Some(process), Resource::Nofile, limit).expect("the hard limit stays as it is");
    }

    /// The numbers of a running node's descriptors.
    pub fn descriptors(&self, number: usize) -> Vec<u64> {
        let entries = fs::read_dir(self.process_file(number, "fd")).expect("the node is running");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        entries.filter_map(name).collect()
    }

    fn process_file(&self, number: usize, name: &str) -> PathBuf {
        let child = self.node(number).child.as_ref().expect("the node is running");
        PathBuf::from(format!("/proc/{}/{name}", child.id()))
    }

    /// Processor time of all threads of a running node that have this name, in ticks of the kernel.
    pub fn thread_ticks(&self, number: usize, name: &str) -> u64 {
        let threads = fs::read_dir(self.process_file(number, "task")).expect("the node is running");
        let ticks = |thread: std::io::Result<fs::DirEntry>| {
            // "TID (NAME) STATE …": see proc_pid_stat(5). A thread may end meanwhile.
            let stat = fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
            let (_, rest) = stat.split_once(&format!(" ({name}) "))?;
            let [user, system] = [11, 12].map(|field| rest.split(' ').nth(field)?.parse::<u64>().ok());
            Some(user? + system?)
        };
        threads.filter_map(ticks).sum()
    }

    /// Replaces a node's flags to found or join a cluster, from its next start on.
    pub fn set_origin(&mut self, number: usize, flags: &[&str]) {
        self.node_mut(number).origin = flags.iter().map(ToString::to_string).collect();
    }

    /// Sets environment variables of a node, from its next start on.
    pub fn set_environment(&mut self, number: usize, variables: &[(&'static str, PathBuf)]) {
        self.node_mut(number).environment = variables.to_vec();
    }

    /// The numbers of the nodes, 1 to N.
    pub fn numbers(&self) -> Vec<usize> {
        (1..=self.nodes.len()).collect()
    }

    fn node(&self, number: usize) -> &Node {
        &self.nodes[number - 1]
    }

    fn node_mut(&mut self, number: usize) -> &mut Node {
        &mut self.nodes[number - 1]
    }

    /// The HTTP address of a node.
    pub fn address(&self, number: usize) -> SocketAddr {
        self.node(number).address
    }

    /// The URL of `path` at a node.
    pub fn url(&self, number: usize, path: &str) -> String {
        format!("http://{}{path}", self.address(number))
    }

    /// A node's data directory.
    pub fn directory(&self, number: usize) -> &Path {
        &self.node(number).directory
    }

    /// Gives a node that was never started a separate disk of so many bytes.
    pub fn mount_disk(&mut self, number: usize, bytes: u64) {
        let disk = Tmpfs::mount(self.directory(number), bytes);
        self.disks.insert(number, disk.expect("the test has found that it can mount"));
    }

    /// The disk of a node, made by [`Cluster::mount_disk`].
    pub fn disk(&self, number: usize) -> &Tmpfs {
        &self.disks[&number]
    }

    /// The complete log output of a node, over all its starts.
    pub fn log(&self, number: usize) -> String {
        let bytes = fs::read(&self.node(number).log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The command line of a node.
    pub fn command(&self, number: usize) -> Command {
        let node = self.node(number);
        let mut command = match node.open_files {
            None => tidelock(),
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
                shell.arg(tidelock().get_program());
                shell
            }
        };
        command.args(&node.arguments).args(&node.origin).stdin(Stdio::null());
        command.envs(node.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts a node and returns at once.
    pub fn spawn(&mut self, number: usize) {
        assert!(self.node(number).child.is_none(), "node {number} is running");
        let log = open_log(&self.node(number).log);
        let mut command = self.command(number);
        command.stdout(log.try_clone().expect("a second handle of the log")).stderr(log);
        // The node ends with this process even if that is killed without dropping anything.
        command.arg("--stop-at-stdin-end").stdin(Stdio::piped());
        self.node_mut(number).child = Some(command.spawn().expect("the binary starts"));
    }

    /// Whether a node reports that it is ready.
    pub fn is_ready(&self, number: usize) -> bool {
        self.try_send(number, "GET /readyz", &[], b"").is_some_and(|response| response.status == 200)
    }

    /// Waits until a running node is ready; panics if it ends instead.
    pub fn wait_ready(&mut self, number: usize) {
        eventually(&format!("node {number} is ready"), || {
            if let Some(status) = self.try_wait(number) {
                panic!("node {number} ended with {status}");
            }
            self.is_ready(number).then_some(())
        });
    }

    /// Starts a node and waits until it is ready.
    pub fn restart(&mut self, number: usize) {
        self.spawn(number);
        self.wait_ready(number);
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self, number: usize) {
        let mut child = self.node_mut(number).child.take().expect("the node is running");
        child.kill().expect("a running child can be killed");
        child.wait().expect("a killed child ends");
    }

    /// Sends a signal to a running node.
    pub fn signal(&self, number: usize, signal: Signal) {
        let child = self.node(number).child.as_ref().expect("the node is running");
        kill_process(Pid::from_child(child), signal).expect("a running child can be signalled");
    }

    /// SIGTERM, and waits for the end.
    pub fn terminate(&mut self, number: usize) -> ExitStatus {
        self.signal(number, Signal::TERM);
        self.wait_exit(number)
    }

    /// Waits for the end of a node.
    pub fn wait_exit(&mut self, number: usize) -> ExitStatus {
        eventually(&format!("node {number} ends"), || self.try_wait(number))
    }

    /// The exit status of a node, if it has ended.
    pub fn try_wait(&mut self, number: usize) -> Option<ExitStatus> {
        let node = self.node_mut(number);
        let status = node.child.as_mut()?.try_wait().expect("a child can be waited for");
        if status.is_some() {
            node.child = None;
        }
        status
    }

    /// One request, sent once; `None` if there was no answer. `request` is a method and a path.
    pub fn try_send(&self, number: usize, request: &str, headers: &[&str], body: &[u8]) -> Option<Response> {
        self.send_once(number, request, headers, body).ok()
    }

    /// A request to a cluster that is expected to serve. A 503 means that nothing was done (an
    /// election under load, say), so it is sent again; any other answer is returned.
    pub fn send(&self, number: usize, request: &str, headers: &[&str], body: &[u8]) -> Response {
        eventually(&format!("{request} is served by node {number}"), || {
            let sent = self.send_once(number, request, headers, body);
            let response = sent.unwrap_or_else(|error| panic!("{request} on node {number}: {error}"));
            (response.status != 503).then_some(response)
        })
    }

    fn send_once(
        &self,
        number: usize,
        request: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Result<Response, ureq::Error> {
        let (method, path) = request.split_once(' ').expect("a request is a method and a path");
        self.client.send(method, &self.url(number, path), headers, body)
    }

    /// `GET`, as [`Cluster::send`].
    pub fn get(&self, number: usize, path: &str) -> Response {
        self.send(number, &format!("GET {path}"), &[], b"")
    }

    /// `PUT`, as [`Cluster::send`].
    pub fn put(&self, number: usize, path: &str, body: &[u8]) -> Response {
        self.send(number, &format!("PUT {path}"), &[], body)
    }

    /// A node's view of the cluster.
    pub fn view(&self, number: usize) -> Value {
        self.get(number, "/v1/cluster").json()
    }

    /// Waits until the cluster has raised its version to that of its nodes.
    pub fn await_newest_version(&self) {
        eventually("the cluster has the newest version", || {
            let version = self.get(1, "/v1/cluster/version").json();
            (version["next"].is_null() && version["waiting_for"].as_array()?.is_empty()).then_some(())
        });
    }

    /// Waits until every host has registered its addresses, so that requests can use any of them.
    pub fn await_registered(&self) {
        for number in self.numbers() {
            eventually("every host is registered and connected", || {
                let view = self.view(number);
                let known = |host: &Value| host["http_address"] != "" && host["connected"] == true;
                view["hosts"].as_array().expect("hosts").iter().all(known).then_some(())
            });
        }
    }

    /// The leaders of all shards as one node knows them; `None` for an unknown one.
    pub fn leaders(&self, number: usize) -> Vec<Option<usize>> {
        let view = self.view(number);
        let shards = view["shards"].as_array().unwrap_or_else(|| panic!("no shards: {view}"));
        let number =
            |leader: &Value| leader.as_u64().map(|node| usize::try_from(node).expect("a node's number"));
        shards.iter().map(|shard| number(&shard["leader"])).collect()
    }

    /// The node that leads most shards, as node 1 reports.
    pub fn chief(&self) -> usize {
        let leaders = eventually("every shard has a leader", || {
            self.leaders(1).into_iter().collect::<Option<Vec<usize>>>().filter(|leaders| !leaders.is_empty())
        });
        let shards_led = |number: &usize| leaders.iter().filter(|&leader| leader == number).count();
        self.numbers().into_iter().max_by_key(shards_led).expect("a cluster has a node")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(mut child) = node.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if thread::panicking() {
            for number in self.numbers() {
                eprintln!("--- log of node {number}\n{}", super::tail(&self.log(number)));
            }
        }
    }
}

fn open_log(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).expect("the log opens")
}
