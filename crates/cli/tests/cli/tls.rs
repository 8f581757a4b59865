//! TLS for the connections of clients: what they trust, and certificates that change.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use uuid::Uuid;

use crate::harness::process::Process;
use crate::harness::{eventually, ports, tidelock};

/// A limit for what takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// An authority, and the directory with its certificate.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(parameters, key).expect("a certificate");
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("ca.crt"), issuer.pem()).expect("written");
        Authority { issuer, directory }
    }

    /// Path of the authority's certificate.
    fn certificate(&self) -> String {
        self.directory.path().join("ca.crt").display().to_string()
    }

    /// Writes a certificate for loopback and a host with this number, and its key, as a node reads
    /// them.
    fn issue(&self, directory: &Path, host: u16) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(names).expect("names");
        let name = format!("tidelock://tidelock/host/{}", Uuid::from_u128(u128::from(host)));
        parameters.subject_alt_names.push(SanType::URI(name.try_into().expect("a name")));
        let certificate = parameters.signed_by(&key, &self.issuer).expect("signed");
        fs::write(directory.join("tls.key"), key.serialize_pem()).expect("written");
        fs::write(directory.join("tls.crt"), certificate.pem()).expect("written");
        fs::write(directory.join("ca.crt"), self.issuer.pem()).expect("written");
    }

    /// A connection with TLS of a client that trusts this authority.
    fn connect(&self, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_slice(self.issuer.pem().as_bytes()).expect("PEM");
        roots.add(own).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a connection"), stream)
    }
}

/// A cluster of one whose clients connect with TLS.
struct SecureNode {
    process: Process,
    http: SocketAddr,
    resp: SocketAddr,
    directory: tempfile::TempDir,
}

impl SecureNode {
    fn start(authority: &Authority) -> SecureNode {
        let node = SecureNode::found(authority, ports::reserve(3), &[]);
        node.wait_ready(authority);
        node
    }

    /// Starts a node at three ports from `port` on.
    fn found(authority: &Authority, port: u16, flags: &[&str]) -> SecureNode {
        let directory = tempfile::tempdir().expect("a temporary directory");
        authority.issue(directory.path(), port);
        let address = |offset| SocketAddr::from(([127, 0, 0, 1], port + offset));
        let mut command = tidelock();
        command.arg("serve").args(flags).args([
            "--http",
            &address(0).to_string(),
            "--resp",
            &address(1).to_string(),
        ]);
        command.args(["--resp-cluster", "off", "--peer", &address(2).to_string(), "--tls-dir"]);
        command.arg(directory.path()).arg("--data-dir").arg(directory.path().join("data"));
        let log = fs::File::create(directory.path().join("log")).expect("a file");
        let process = Process::start(command.stdout(log.try_clone().expect("a handle")).stderr(log));
        SecureNode { process, http: address(0), resp: address(1), directory }
    }

    fn wait_ready(&self, authority: &Authority) {
        eventually("the node serves", || {
            self.run(authority, &["kv", "put", "ready", "yes"]).status.success().then_some(())
        });
    }

    /// Runs a command that trusts an authority.
    fn run(&self, authority: &Authority, arguments: &[&str]) -> Output {
        let url = format!("https://{}", self.http);
        let mut command = tidelock();
        command.args(arguments).args(["--url", &url, "--ca", &authority.certificate()]);
        command.output().expect("the binary starts")
    }

    /// Makes the node look at its certificate.
    fn look_again(&self) {
        self.process.signal(Signal::HUP);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn commands_and_redis_clients_connect_with_tls() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let node = SecureNode::start(&authority);
    assert!(node.run(&authority, &["kv", "put", "k", "value"]).status.success());
    let got = node.run(&authority, &["kv", "get", "k"]);
    assert_eq!(String::from_utf8_lossy(&got.stdout).trim_end(), "value");

    let distrusted = node.run(&stranger, &["kv", "get", "k"]);
    assert_eq!(distrusted.status.code(), Some(5));
    assert!(said(&distrusted).contains("certificate"), "{}", said(&distrusted));

    let mut redis = authority.connect(node.resp);
    // More than one record of TLS, sent at once.
    let value = "v".repeat(100_000);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nr\r\n${}\r\n{value}\r\n", value.len());
    redis.write_all(set.as_bytes()).expect("written");
    redis.write_all(b"*2\r\n$3\r\nGET\r\n$1\r\nr\r\n").expect("written");
    let expected = format!("+OK\r\n${}\r\n{value}\r\n", value.len());
    let mut replies = vec![0; expected.len()];
    redis.read_exact(&mut replies).expect("replies");
    assert!(replies == expected.as_bytes());
}

#[test]
fn clients_without_tls_are_told_to_use_it() {
    let authority = Authority::new();
    let node = SecureNode::start(&authority);
    let mut command = tidelock();
    let plain = command.args(["kv", "get", "k", "--url", &format!("http://{}", node.http)]).output();
    let plain = plain.expect("the binary starts");
    assert_eq!(plain.status.code(), Some(2));
    assert!(said(&plain).contains("use https://"), "{}", said(&plain));

    let mut redis = TcpStream::connect(node.resp).expect("the node listens");
    redis.write_all(b"*1\r\n$4\r\nPING\r\n").expect("written");
    let mut reply = String::new();
    redis.read_to_string(&mut reply).expect("a reply");
    assert_eq!(reply, "-ERR clients of this node connect with TLS\r\n");
}

#[test]
fn failed_handshakes_are_recorded_and_counted() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("audit.log").display().to_string();
    let node = SecureNode::found(&authority, ports::reserve(3), &["--audit-log", &path]);
    node.wait_ready(&authority);
    let mut distrusting = stranger.connect(node.http);
    distrusting.write_all(b"GET / HTTP/1.1\r\n").expect_err("it does not trust the certificate");
    let mut plain = TcpStream::connect(node.resp).expect("the node listens");
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").expect("written");
    plain.read_to_end(&mut Vec::new()).expect("a reply");
    // As a load balancer checks whether the port is open.
    drop(TcpStream::connect(node.http).expect("the node listens"));

    let mut client = authority.connect(node.http);
    client
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("written");
    let mut metrics = String::new();
    client.read_to_string(&mut metrics).expect("an answer");
    for protocol in ["http", "resp"] {
        let line = format!("tidelock_denied_total{{protocol=\"{protocol}\",reason=\"tls-failed\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    let lines = eventually("both lines are written", || {
        let text = fs::read_to_string(&path).expect("text");
        (text.lines().count() == 2).then_some(text)
    });
    assert!(lines.contains(r#""event":"tls-failed","protocol":"resp","address":"127.0.0.1","detail":"it connects without TLS""#), "{lines}");
    assert!(lines.contains(r#""event":"tls-failed","protocol":"http""#), "{lines}");
}

#[test]
fn a_new_certificate_is_used_without_a_restart_and_a_bad_one_is_not() {
    let (old, new) = (Authority::new(), Authority::new());
    let node = SecureNode::start(&old);
    let mut open = old.connect(node.resp);
    let mut ping = || {
        open.write_all(b"PING\r\n").expect("written");
        let mut reply = [0; 7];
        open.read_exact(&mut reply).expect("a reply");
        assert_eq!(&reply, b"+PONG\r\n");
    };
    ping();

    fs::write(node.directory.path().join("tls.key"), "no key").expect("written");
    node.look_again();
    let log = || fs::read_to_string(node.directory.path().join("log")).expect("a log");
    let refusal = "the new certificate is not used; the old one stays in place";
    eventually("it says that it does not use the key", || log().contains(refusal).then_some(()));
    assert!(node.run(&old, &["kv", "get", "ready"]).status.success());

    new.issue(node.directory.path(), node.http.port());
    node.look_again();
    eventually("it shows the new certificate", || {
        node.run(&new, &["kv", "get", "ready"]).status.success().then_some(())
    });
    assert!(!node.run(&old, &["kv", "get", "ready"]).status.success());
    ping();
}

/// Raises the limit of this process, which the nodes inherit, and returns how many connections a
/// test can hold on both sides.
fn raise_descriptors(wanted: usize) -> usize {
    /// Left for everything else in this process.
    const OTHERS: u64 = 2_000;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("a process may raise its own limit up to the hard one");
    let most = limit.maximum.map_or(usize::MAX, |most| most.saturating_sub(OTHERS) as usize);
    wanted.min(most / 2)
}

/// Connections of which each sends one byte of a handshake a second, and that are made again when
/// the node closes them. Ends when `is_over`.
fn send_slowly(address: SocketAddr, connections: usize, is_over: &AtomicBool) {
    const RECORD: [u8; 3] = [22, 3, 1];
    let mut open: Vec<Option<TcpStream>> = (0..connections).map(|_| None).collect();
    for round in 0.. {
        for connection in &mut open {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let sent = connection.as_mut().map(|stream| stream.write(&RECORD[round % 3..=round % 3]));
            if !matches!(sent, Some(Ok(_))) {
                *connection = TcpStream::connect(address).ok();
            }
        }
        // A second of the attacker's, for which nothing waits.
        thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn clients_are_served_while_thousands_do_not_finish_their_handshakes() {
    let connections = raise_descriptors(10_000);
    if connections < 1_000 {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED clients_are_served_while_thousands_do_not_finish_their_handshakes: the hard limit of descriptors \
             allows only {connections} connections"
        );
        return;
    }
    let authority = Authority::new();
    let node = SecureNode::start(&authority);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| send_slowly(node.http, connections / 4, &is_over));
            scope.spawn(|| send_slowly(node.resp, connections / 4, &is_over));
        }
        eventually("the node has refused handshakes", || {
            let status = node.run(&authority, &["cluster", "status"]);
            let mut stream = status.status.success().then(|| authority.connect(node.http))?;
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                .ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            let failures =
                text.lines().find_map(|line| line.strip_prefix("tidelock_tls_handshake_failures_total "));
            let failures: u64 = failures?.parse().expect("a number");
            (failures > 1_000).then_some(())
        });
        for _ in 0..20 {
            eventually("a client is served", || {
                node.run(&authority, &["kv", "put", "k", "v"]).status.success().then_some(())
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn nodes_ask_each_other_for_backups_with_tls() {
    let authority = Authority::new();
    let port = ports::reserve(6);
    let peers = format!("127.0.0.1:{},127.0.0.1:{}", port + 2, port + 5);
    // Each shard has one replica, so each node lacks some.
    let flags = ["--peers", &peers, "--replicas", "1", "--shards", "4"];
    let nodes = [port, port + 3].map(|port| SecureNode::found(&authority, port, &flags));
    nodes.iter().for_each(|node| node.wait_ready(&authority));
    for number in 0..20 {
        let key = format!("key-{number}");
        assert!(nodes[0].run(&authority, &["kv", "put", &key, "value"]).status.success());
    }
    let file = authority.directory.path().join("backup").display().to_string();
    // Refused until both nodes have registered where they listen.
    eventually("a backup is saved", || {
        nodes[1].run(&authority, &["backup", "save", "--out", &file]).status.success().then_some(())
    });
    let inspected = tidelock().args(["backup", "inspect", &file, "--output", "json"]).output();
    let inspected = String::from_utf8_lossy(&inspected.expect("the binary starts").stdout).into_owned();
    assert!(inspected.contains("\"keys\":21"), "{inspected}");
}

#[test]
fn a_directory_without_a_certificate_stops_the_node_before_it_writes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = tidelock();
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--peer", "127.0.0.1:0"]);
    command.arg("--tls-dir").arg(directory.path()).arg("--data-dir").arg(directory.path().join("data"));
    let output = command.output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("tls.crt"), "{}", said(&output));
    assert!(!directory.path().join("data").exists());
}

#[test]
fn bench_measures_with_tls() {
    let authority = Authority::new();
    let node = SecureNode::start(&authority);
    let load = ["-n", "500", "-c", "4", "--keys", "50", "--json"];
    let kv = node.run(&authority, &[&["bench", "kv", "--reads", "50"][..], &load].concat());
    let resp = node.resp.to_string();
    let resp_args = ["bench", "resp", "--tls", "-P", "16", "--reads", "50", "--address", &resp];
    let resp = node.run(&authority, &[&resp_args[..], &load].concat());
    let atomic = node.run(&authority, &["bench", "atomic", "-d", "0.5", "--json"]);
    for (name, output) in [("kv", kv), ("resp", resp), ("atomic", atomic)] {
        assert!(output.status.success(), "{name}: {}", said(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(report["errors"], 0, "{name}: {report}");
    }
    // Without TLS nothing is measured, and the reason is shown.
    let address = node.resp.to_string();
    let plain =
        tidelock().args(["bench", "resp", "-n", "10", "--address", &address]).output().expect("it starts");
    assert_eq!(plain.status.code(), Some(1), "{}", said(&plain));
}

#[test]
fn a_profile_says_where_the_cluster_is_and_whom_to_trust() {
    let authority = Authority::new();
    let node = SecureNode::start(&authority);
    let settings = tempfile::tempdir().expect("a temporary directory");
    let directory = settings.path().join("tidelock");
    fs::create_dir(&directory).expect("a directory");
    let (url, ca) = (format!("https://{}", node.http), authority.certificate());
    let profile = format!("[profile.default]\nurls = [{url:?}]\nca = {ca:?}\n");
    fs::write(directory.join("config.toml"), profile).expect("written");
    let run = |arguments: &[&str]| {
        tidelock()
            .args(arguments)
            .env("XDG_CONFIG_HOME", settings.path())
            .output()
            .expect("the binary starts")
    };
    let read = run(&["kv", "get", "ready"]);
    assert_eq!((read.status.code(), &read.stdout[..]), (Some(0), &b"yes"[..]), "{}", said(&read));
    // Another node is not asked with what belongs to this cluster.
    let other = run(&["kv", "get", "ready", "--url", "https://localhost:1"]);
    assert_eq!(other.status.code(), Some(5), "{}", said(&other));
    let unknown = run(&["kv", "get", "ready", "--profile", "test"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", said(&unknown));
    assert!(said(&unknown).contains("there is no profile `test`; there are: default"), "{}", said(&unknown));
}
