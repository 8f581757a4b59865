//! Clusters with their own certificate authority (CA): `serve --secure`, join tokens, and rotation
//! of the CA.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidelock_server::token::{BearerToken, JoinTokenText};

use crate::harness::process::Process;
use crate::harness::{eventually, ports, tidelock};

/// Number of hosts of a cluster.
const HOSTS: usize = 3;

/// Ports of a host: HTTP, Redis, peers.
const PORTS: usize = 3;

/// Nodes of one cluster, each with its own ports of loopback.
struct CaCluster {
    directory: tempfile::TempDir,
    port: u16,
    nodes: Vec<Option<Child>>,
}

impl CaCluster {
    /// A cluster of one.
    fn found() -> CaCluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let port = ports::reserve((HOSTS * PORTS) as u16);
        let mut cluster = CaCluster { directory, port, nodes: (0..HOSTS).map(|_| None).collect() };
        cluster.start(0, &["--secure"]);
        eventually("the token of the administrator", || cluster.root_token().exists().then_some(()));
        cluster.serves();
        cluster
    }

    /// A cluster of three.
    fn whole() -> CaCluster {
        let mut cluster = CaCluster::found();
        for node in 1..HOSTS {
            cluster.join(node, &cluster.join_token());
        }
        cluster.serves();
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self, node: usize) -> PathBuf {
        self.path(&format!("data-{node}"))
    }

    fn root_token(&self) -> PathBuf {
        self.data(0).join("root.token")
    }

    fn address(&self, node: usize, offset: usize) -> SocketAddr {
        format!("127.0.0.1:{}", usize::from(self.port) + node * PORTS + offset).parse().expect("an address")
    }

    fn command(&self, node: usize, flags: &[&str]) -> Command {
        let mut command = tidelock();
        command.args(["serve", "--resp-cluster", "off"]);
        for (flag, offset) in [("--http", 0), ("--resp", 1), ("--peer", 2)] {
            command.arg(flag).arg(self.address(node, offset).to_string());
        }
        command.arg("--data-dir").arg(self.data(node)).args(flags);
        command
    }

    fn start(&mut self, node: usize, flags: &[&str]) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("log-{node}")));
        let log = log.expect("a file");
        let mut command = self.command(node, flags);
        command.stdout(log.try_clone().expect("a handle")).stderr(log);
        self.nodes[node] = Some(command.spawn().expect("the binary starts"));
    }

    fn stop(&mut self, node: usize) {
        let mut process = self.nodes[node].take().expect("the node runs");
        process.kill().expect("killed");
        process.wait().expect("it ends");
    }

    /// Runs a node that must exit with an error; returns its standard error.
    fn refused(&self, node: usize, flags: &[&str]) -> String {
        let output = self.command(node, flags).output().expect("the binary starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// A new join token in a file.
    fn join_token(&self) -> PathBuf {
        self.join_token_for("24h")
    }

    fn join_token_for(&self, lifetime: &str) -> PathBuf {
        let tokens = fs::read_dir(self.directory.path()).expect("a directory").count();
        let path = self.path(&format!("join-{tokens}.token"));
        let out = path.display().to_string();
        self.administer(&["cluster", "join-token", "--lifetime", lifetime, "--out", &out]);
        assert_eq!(mode(&path), 0o600);
        path
    }

    fn join_flags(&self, token: &Path) -> [String; 4] {
        let member = self.address(0, 2).to_string();
        ["--join".to_owned(), member, "--join-token-file".to_owned(), token.display().to_string()]
    }

    fn join(&mut self, node: usize, token: &Path) {
        let flags = self.join_flags(token);
        self.start(node, &flags.each_ref().map(String::as_str));
    }

    fn cannot_join(&self, node: usize, token: &Path) -> String {
        let flags = self.join_flags(token);
        let output = self.command(node, &flags.each_ref().map(String::as_str)).output();
        let output = output.expect("the binary starts");
        // A service manager does not start it again.
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs a command as the administrator, against all nodes that run.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = tidelock();
        command.args(arguments).arg("--ca").arg(self.data(0).join("tls/ca.crt"));
        command.arg("--token-file").arg(self.root_token());
        for node in (0..HOSTS).filter(|&node| self.nodes[node].is_some()) {
            command.args(["--url", &format!("https://{}", self.address(node, 0))]);
        }
        command.output().expect("the binary starts")
    }

    /// As [`CaCluster::run`], for a command that must succeed; returns what it printed.
    fn administer(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Index of the last entry of the prime shard that the first node has applied.
    fn applied(&self) -> u64 {
        let view = self.administer(&["cluster", "status", "--output", "json"]);
        let view: serde_json::Value = serde_json::from_str(&view).expect("JSON");
        let replicas = view["replicas"].as_array().expect("replicas");
        let own = replicas.iter().find(|replica| replica["shard"] == 0 && replica["node"] == 1);
        own.and_then(|replica| replica["applied"].as_u64()).unwrap_or_else(|| panic!("{view}"))
    }

    /// Waits until every node that runs is registered and connected, and each shard has as many
    /// voters as it can: before, the cluster may need the first node.
    fn serves(&self) {
        let count = self.nodes.iter().flatten().count();
        eventually("every node serves", || {
            let shown = self.run(&["cluster", "status", "--output", "json"]);
            let view: serde_json::Value = serde_json::from_slice(&shown.stdout).ok()?;
            let many = |list: &str, is_counted: &dyn Fn(&serde_json::Value) -> bool| {
                view[list].as_array().map_or(0, |list| list.iter().filter(|item| is_counted(item)).count())
            };
            let hosts = many("hosts", &|host| host["http_address"] != "" && host["connected"] == true);
            let votes = many("replicas", &|replica| replica["voter"] == true);
            let wanted = count.min(3) * many("shards", &|_| true);
            (shown.status.success() && hosts >= count && votes >= wanted).then_some(())
        });
    }

    fn log(&self, node: usize) -> String {
        fs::read_to_string(self.path(&format!("log-{node}"))).unwrap_or_default()
    }
}

impl Drop for CaCluster {
    fn drop(&mut self) {
        for process in self.nodes.iter_mut().flatten() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
        if thread::panicking() {
            (0..HOSTS).for_each(|node| eprintln!("--- log of host {node}\n{}", self.log(node)));
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it exists").permissions().mode() & 0o777
}

#[test]
fn three_commands_make_a_cluster_with_certificates_and_an_administrator() {
    let mut cluster = CaCluster::whole();
    let url = format!("https://{}", cluster.address(2, 0));
    let ca = cluster.data(2).join("tls/ca.crt").display().to_string();
    let get = ["kv", "get", "a", "--url", &url, "--ca", &ca];
    // A node that has just joined answers 503 until it knows the permissions.
    eventually("the node refuses who has no token", || {
        let refused = tidelock().args(get).output().expect("it starts");
        String::from_utf8_lossy(&refused.stderr).contains("401").then_some(())
    });
    cluster.administer(&["kv", "put", "a", "1"]);
    let backup = cluster.directory.path().join("backup").display().to_string();
    cluster.administer(&["backup", "save", "--out", &backup]);
    let saved = fs::read(&backup).expect("a backup");
    assert!(!String::from_utf8_lossy(&saved).contains("PRIVATE KEY"), "the authority's key is in a backup");
    for node in 0..HOSTS {
        assert_eq!(mode(&cluster.data(node)), 0o700);
        for secret in ["tls/tls.key", "control", "wal-0000000000000001.log"] {
            assert_eq!(mode(&cluster.data(node).join(secret)), 0o600, "{secret}");
        }
        assert!(!cluster.data(node).join("tls/ca.key").exists(), "the prime shard has it");
    }
    assert_eq!(mode(&cluster.root_token()), 0o600);
    // Restarts need no flags: the data directory contains the certificate and the identity.
    for node in 0..HOSTS {
        cluster.stop(node);
    }
    for node in 0..HOSTS {
        cluster.start(node, &[]);
    }
    cluster.serves();
    assert_eq!(cluster.administer(&["kv", "get", "a"]).trim_end(), "1");
    let printed = cluster.log(0);
    let login = printed.split('`').find(|command| command.starts_with("tidelock login ")).expect("a command");
    let profile = cluster.directory.path().join("tidelock/config.toml");
    // A node that has just started may not name the others yet, and the command says so.
    eventually("the profile has all nodes", || {
        let logged_in = Command::new("sh")
            .args(["-c", &login.replacen("tidelock", env!("CARGO_BIN_EXE_tidelock"), 1)])
            .env("XDG_CONFIG_HOME", cluster.directory.path())
            .output()
            .expect("a shell");
        assert!(logged_in.status.success(), "{login}: {logged_in:?}");
        let stored = fs::read_to_string(&profile).expect("a profile");
        (stored.matches("https://").count() == HOSTS).then_some(())
    });
    // One address was given, and that node may be down from now on.
    cluster.stop(0);
    eventually("another node of the profile answers", || {
        let mut command = tidelock();
        command.args(["kv", "get", "a"]).env("XDG_CONFIG_HOME", cluster.directory.path());
        let output = command.output().expect("the binary starts");
        (output.status.success() && output.stdout.trim_ascii() == b"1").then_some(())
    });
    let secret = fs::read_to_string(cluster.root_token()).expect("a token");
    for node in 0..HOSTS {
        let log = cluster.log(node);
        assert!(
            !log.contains("PRIVATE KEY") && !log.contains(secret.trim()) && !log.contains("tdj_"),
            "{log}"
        );
    }
    let other = cluster.refused(1, &["--secure", "--peers", "127.0.0.1:1"]);
    assert!(other.contains("leave peers out"), "{other}");
}

#[test]
fn a_join_token_admits_one_host_of_one_cluster() {
    let mut cluster = CaCluster::found();
    let token = cluster.join_token();
    // The host gets its certificate, and its join is then refused. Deleting the certificate
    // simulates a crash before it was written: the host retries with the same uuid.
    let flags = cluster.join_flags(&token);
    let mut flags = flags.each_ref().map(String::as_str).to_vec();
    flags.extend(["--cluster-name", "other"]);
    let refused = cluster.refused(1, &flags);
    assert!(refused.contains("the cluster's name is not `other`"), "{refused}");
    for file in ["tls/tls.crt", "control"] {
        fs::remove_file(cluster.data(1).join(file)).expect("it was written");
    }
    for entry in fs::read_dir(cluster.data(1)).expect("a directory").flatten() {
        if entry.path().is_file() {
            fs::remove_file(entry.path()).expect("removed");
        }
    }
    let other = cluster.cannot_join(2, &token);
    assert!(other.contains("another host has used the join token"), "{other}");
    cluster.join(1, &token);
    cluster.serves();

    let text = fs::read(cluster.join_token()).expect("a token");
    let text = JoinTokenText::parse(text.trim_ascii()).expect("a join token");
    let token = BearerToken::with_id(text.token.id).expect("random numbers");
    let path = cluster.path("wrong");
    fs::write(&path, JoinTokenText { token, ..text }.reveal()).expect("written");
    let (before, attempts) = (cluster.applied(), 5);
    for _ in 0..attempts {
        let wrong = cluster.cannot_join(2, &path);
        assert!(wrong.contains("the join token is unknown"), "{wrong}");
    }
    assert!(cluster.applied() - before < attempts, "a wrong secret is not written to the log");

    let changed = fs::read_to_string(cluster.join_token()).expect("a token").replace("tdj_", "tdj_0");
    let path = cluster.path("changed");
    fs::write(&path, changed).expect("written");
    assert!(cluster.cannot_join(2, &path).contains("it does not have the form of a join token"));
    let absent = cluster.cannot_join(2, &cluster.path("absent"));
    assert!(absent.contains("--join-token-file: ") && absent.contains("No such file"), "{absent}");
    let short = cluster.join_token_for("1s");
    thread::sleep(Duration::from_millis(1500));
    let expired = cluster.cannot_join(2, &short);
    assert!(expired.contains("the join token has expired"), "{expired}");
    let missing = cluster.refused(2, &["--secure", "--join", &cluster.address(0, 2).to_string()]);
    assert!(missing.contains("tidelock cluster join-token"), "{missing}");
}

#[test]
fn a_host_trusts_only_the_cluster_of_its_join_token() {
    let (cluster, other) = (CaCluster::found(), CaCluster::found());
    let refused = cluster.cannot_join(1, &other.join_token());
    assert!(refused.contains("is not a node of the cluster of the join token"), "{refused}");
}

#[test]
fn plain_bytes_reach_nothing_of_the_port_for_nodes() {
    let cluster = CaCluster::found();
    for bytes in [&b"tidelock-enrol/1\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 64]] {
        let mut stream = TcpStream::connect(cluster.address(0, 2)).expect("the node listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        stream.write_all(bytes).expect("written");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.windows(11).any(|part| part == b"CERTIFICATE"), "{answer:?}");
    }
    cluster.administer(&["kv", "put", "a", "1"]);
}

#[test]
fn the_authority_is_rotated_under_load() {
    let cluster = CaCluster::whole();
    let (stop, written) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    let settled = |arguments: &[&str]| {
        eventually("the authorities have settled", || cluster.run(arguments).status.success().then_some(()));
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                cluster.administer(&["kv", "put", "load", "1"]);
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let shown = cluster.administer(&["tls", "authority", "add"]);
        assert_eq!((shown.matches("signs").count(), shown.matches("trusted").count()), (1, 1), "{shown}");
        let early = cluster.run(&["tls", "authority", "use", "2"]);
        assert!(String::from_utf8_lossy(&early.stderr).contains("15 seconds"), "{early:?}");
        settled(&["tls", "authority", "use", "2"]);
        for node in 0..HOSTS {
            let renewed = "renewed the certificate of this node authority=2";
            eventually(renewed, || cluster.log(node).contains(renewed).then_some(()));
        }
        let signing = cluster.run(&["tls", "authority", "remove", "2"]);
        assert!(
            String::from_utf8_lossy(&signing.stderr).contains("let another one sign first"),
            "{signing:?}"
        );
        settled(&["tls", "authority", "remove", "1"]);
        for node in 0..HOSTS {
            let bundle = || fs::read_to_string(cluster.data(node).join("tls/ca.crt")).expect("a bundle");
            eventually("one authority", || (bundle().matches("BEGIN").count() == 1).then_some(()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(written.into_inner() > 10);
    cluster.serves();
    for node in 0..HOSTS {
        let log = cluster.log(node);
        assert!(!log.contains("peer link down") && !log.contains(" ERROR "), "{log}");
    }
}

#[test]
fn dev_starts_nodes_with_certificates_and_a_token() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let base = ports::reserve(12);
    let data = directory.path().join("dev");
    let output = directory.path().join("output");
    let log = fs::File::create(&output).expect("a file");
    let mut command = tidelock();
    command.args(["dev", "--secure", "--nodes", "3", "--data-dir"]).arg(&data);
    for (flag, offset) in
        [("--http-base", 0), ("--resp-base", 3), ("--peer-base", 6), ("--resp-cluster-base", 9)]
    {
        command.args([flag, &(base + offset).to_string()]);
    }
    let mut dev = Process::start(command.stdout(log.try_clone().expect("a handle")).stderr(log));
    let said = || fs::read_to_string(&output).expect("its output");
    eventually("the announcement", || said().contains("All 3 nodes are ready").then_some(()));
    assert!(said().contains("root.token") && said().contains("ca.crt"), "{}", said());
    let run = |arguments: &[&str]| {
        let mut command = tidelock();
        command.args(arguments).arg("--ca").arg(data.join("node-1/tls/ca.crt"));
        command.args(["--url", &format!("https://127.0.0.1:{}", base + 2)]).output().expect("it starts")
    };
    let token = data.join("node-1/root.token").display().to_string();
    let put = run(&["kv", "put", "a", "1", "--token-file", &token]);
    assert!(put.status.success(), "{put:?}\n{}", said());
    assert!(!run(&["kv", "get", "a"]).status.success());
    dev.signal(rustix::process::Signal::TERM);
    dev.wait().expect("it ends");
}
