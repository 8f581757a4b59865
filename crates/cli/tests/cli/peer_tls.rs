//! TLS between nodes, with the certificates of `tidelock tls init`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType, date_time_ymd};
use rustix::process::{Pid, Signal, kill_process};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{eventually, ports, tidelock};

/// A limit for what takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each host has a loopback address of its own, for which its certificate is.
const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

type Certificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// Three founders with certificates, at the same ports of three addresses.
struct SecureCluster {
    directory: tempfile::TempDir,
    port: u16,
    nodes: Vec<Option<Child>>,
}

impl SecureCluster {
    fn start() -> SecureCluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut cluster = SecureCluster { directory, port: ports::reserve(3), nodes: vec![] };
        cluster.make_certificates(&[]);
        cluster.nodes = (0..HOSTS.len()).map(|node| Some(cluster.spawn(node))).collect();
        eventually("the cluster serves", || {
            cluster.run(&["kv", "put", "ready", "yes"]).status.success().then_some(())
        });
        cluster
    }

    fn make_certificates(&self, flags: &[&str]) {
        let mut command = tidelock();
        command.args(["tls", "init", "--hosts", &HOSTS.join(","), "--out"]).arg(self.tls()).args(flags);
        let made = command.output().expect("the binary starts");
        assert!(made.status.success(), "{}", said(&made));
    }

    /// The directory that `tls init` writes.
    fn tls(&self) -> PathBuf {
        self.directory.path().join("tls")
    }

    fn address(&self, node: usize, offset: u16) -> SocketAddr {
        format!("{}:{}", HOSTS[node], self.port + offset).parse().expect("an address")
    }

    /// The command of a node with this directory of certificates.
    fn command(&self, node: usize, tls: &Path) -> Command {
        let mut command = tidelock();
        command.args(["serve", "--resp-cluster", "off"]);
        for (flag, offset) in [("--http", 0), ("--resp", 1), ("--peer", 2)] {
            command.arg(flag).arg(self.address(node, offset).to_string());
        }
        command.arg("--data-dir").arg(self.directory.path().join(format!("data-{node}")));
        command.arg("--tls-dir").arg(tls);
        command
    }

    fn spawn(&self, node: usize) -> Child {
        let peers: Vec<String> = (0..HOSTS.len()).map(|node| self.address(node, 2).to_string()).collect();
        let log = fs::File::create(self.log_path(node)).expect("a file");
        let mut command = self.command(node, &self.tls().join(HOSTS[node]));
        command.args(["--peers", &peers.join(",")]);
        command.stdout(log.try_clone().expect("a handle")).stderr(log).spawn().expect("the binary starts")
    }

    fn log_path(&self, node: usize) -> PathBuf {
        self.directory.path().join(format!("log-{node}"))
    }

    fn log(&self, node: usize) -> String {
        fs::read_to_string(self.log_path(node)).expect("a log")
    }

    /// Runs a command that knows all nodes.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = tidelock();
        command.args(arguments).arg("--ca").arg(self.tls().join("ca.crt"));
        for node in 0..HOSTS.len() {
            command.args(["--url", &format!("https://{}", self.address(node, 0))]);
        }
        command.output().expect("the binary starts")
    }

    fn get(&self, node: usize, path: &str) -> (u16, String) {
        self.request(node, &format!("GET {path}"))
    }

    fn post(&self, node: usize, path: &str) -> (u16, String) {
        self.request(node, &format!("POST {path}"))
    }

    /// Sends a request without a body to one node; returns status and answer.
    fn request(&self, node: usize, line: &str) -> (u16, String) {
        let mut stream = self.connect((node, 0), None);
        let request = format!("{line} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", HOSTS[node]);
        stream.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), answer)
    }

    fn kill(&mut self, node: usize) {
        let mut process = self.nodes[node].take().expect("the node runs");
        process.kill().expect("killed");
        process.wait().expect("it ends");
    }

    /// Makes all nodes look at their certificates.
    fn look_again(&self) {
        for process in self.nodes.iter().flatten() {
            kill_process(Pid::from_child(process), Signal::HUP).expect("the node runs");
        }
    }

    fn wait_for_log(&self, node: usize, text: &str) {
        let log = || self.log(node);
        eventually(text, || log().contains(text).then_some(()));
    }

    /// Connects to a port of a node, and shows this certificate.
    fn connect(
        &self,
        (node, offset): (usize, u16),
        certificate: Option<Certificate>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        let authority = fs::read(self.tls().join("ca.crt")).expect("a certificate");
        roots.add(CertificateDer::from_pem_slice(&authority).expect("PEM")).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match certificate {
            Some((chain, key)) => config.with_client_auth_cert(vec![chain], key).expect("they fit"),
            None => config.with_no_client_auth(),
        };
        let address = self.address(node, offset);
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let name = ServerName::IpAddress(address.ip().into());
        let session = ClientConnection::new(Arc::new(config), name).expect("a connection");
        StreamOwned::new(session, stream)
    }

    /// Connects to the peer port of the first node with this certificate, and sends what is no
    /// message. Returns whether the node has read it, rather than refuse the certificate.
    fn is_heard(&self, certificate: Option<Certificate>) -> bool {
        let mut stream = self.connect((0, 2), certificate);
        match stream.write_all(b"no message").and_then(|()| stream.read(&mut [0; 64])) {
            Ok(_) => true,
            // The node closes without a last record of TLS, as for every caller that it cannot
            // understand.
            Err(error) => error.kind() == ErrorKind::UnexpectedEof,
        }
    }
}

impl Drop for SecureCluster {
    fn drop(&mut self) {
        for process in self.nodes.iter_mut().flatten() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            (0..HOSTS.len()).for_each(|node| eprintln!("--- log of {}\n{}", HOSTS[node], self.log(node)));
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it exists").permissions().mode() & 0o777
}

/// A certificate for the second host, signed by the cluster's authority, with one change.
fn certificate(tls: &Path, change: impl FnOnce(&mut CertificateParams)) -> Certificate {
    let read = |name| fs::read_to_string(tls.join(name)).expect("a file");
    let issuer =
        Issuer::from_ca_cert_pem(&read("ca.crt"), KeyPair::from_pem(&read("ca.key")).expect("a key"));
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::new(vec![HOSTS[1].to_owned()]).expect("names");
    let name = "tidelock://tidelock/host/6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    parameters.subject_alt_names.push(SanType::URI(name.try_into().expect("a name")));
    change(&mut parameters);
    let certificate = parameters.signed_by(&key, &issuer.expect("an authority")).expect("signed");
    (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).expect("a key"))
}

#[test]
fn a_cluster_with_certificates_serves_and_survives_its_leader() {
    let mut cluster = SecureCluster::start();
    for file in ["ca.key", "127.0.0.1/tls.key"] {
        assert_eq!(mode(&cluster.tls().join(file)), 0o600, "{file}");
    }
    assert!(!cluster.tls().join("127.0.0.1/ca.key").exists());
    assert!(cluster.run(&["kv", "put", "k", "one"]).status.success());
    let file = cluster.directory.path().join("backup").display().to_string();
    assert!(cluster.run(&["backup", "save", "--out", &file]).status.success());
    // One of three leads the shard of the key; whichever is killed, the others go on.
    for node in [0, 1, 2] {
        cluster.kill(node);
        let value = format!("without-{node}");
        eventually("a write", || cluster.run(&["kv", "put", "k", &value]).status.success().then_some(()));
        let got = cluster.run(&["kv", "get", "k"]);
        assert_eq!(String::from_utf8_lossy(&got.stdout).trim_end(), value);
        cluster.nodes[node] = Some(cluster.spawn(node));
        cluster.wait_for_log(node, "peer link up");
    }
}

#[test]
fn a_host_joins_with_its_certificate_and_not_without() {
    let mut cluster = SecureCluster::start();
    let member = cluster.address(0, 2).to_string();
    let directory = cluster.directory.path().join("newcomer");
    let start = |tls: &[&str]| {
        let mut command = tidelock();
        command.args(["serve", "--http", "127.0.0.4:0", "--resp", "127.0.0.4:0", "--resp-cluster", "off"]);
        command.args(["--peer", &format!("127.0.0.4:{}", cluster.port), "--join", &member]).args(tls);
        command.arg("--data-dir").arg(&directory);
        command
    };
    let plain = start(&[]).output().expect("the binary starts");
    assert_eq!(plain.status.code(), Some(1));
    assert!(said(&plain).contains("it accepts connections with TLS only"), "{}", said(&plain));
    cluster.wait_for_log(0, "it connects without TLS");

    let mut command = tidelock();
    command.args(["tls", "init", "--hosts", "127.0.0.4", "--out"]).arg(cluster.tls());
    assert!(command.output().expect("the binary starts").status.success());
    fs::remove_dir_all(&directory).expect("removed");
    let tls = cluster.tls().join("127.0.0.4").display().to_string();
    let newcomer = start(&["--tls-dir", &tls]).stderr(Stdio::null()).spawn().expect("the binary starts");
    cluster.nodes.push(Some(newcomer));
    eventually("it is a member", || {
        let status = cluster.run(&["cluster", "status"]);
        String::from_utf8_lossy(&status.stdout).contains("127.0.0.4:").then_some(())
    });
}

#[test]
fn certificates_that_are_not_those_of_hosts_are_refused() {
    let cluster = SecureCluster::start();
    let tls = cluster.tls();
    assert!(cluster.is_heard(Some(certificate(&tls, |_| {}))), "a good one is heard");
    cluster.wait_for_log(0, "not the peer protocol");

    assert!(!cluster.is_heard(None));
    let expired = certificate(&tls, |parameters| parameters.not_after = date_time_ymd(2020, 1, 1));
    assert!(!cluster.is_heard(Some(expired)));
    cluster.wait_for_log(0, "certificate expired");
    let early = certificate(&tls, |parameters| parameters.not_before = date_time_ymd(2090, 1, 1));
    assert!(!cluster.is_heard(Some(early)));
    let server_only = certificate(&tls, |parameters| {
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert!(!cluster.is_heard(Some(server_only)));
    let key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names").self_signed(&key);
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    assert!(!cluster.is_heard(Some((own.expect("signed").der().clone(), key))));
    cluster.wait_for_log(0, "UnknownIssuer");
}

#[test]
fn a_node_starts_only_with_the_certificate_of_its_directory() {
    let mut cluster = SecureCluster::start();
    cluster.kill(2);
    let refusal = |tls: &Path| {
        let output = cluster.command(2, tls).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(2));
        said(&output)
    };
    let another = refusal(&cluster.tls().join(HOSTS[1]));
    assert!(another.contains("but the data directory belongs to host"), "{another}");

    let own = cluster.tls().join(HOSTS[2]);
    let kept = cluster.directory.path().join("kept");
    fs::rename(&own, &kept).expect("renamed");
    cluster.make_certificates(&[]);
    let new = refusal(&own);
    assert!(new.contains("but the data directory belongs to host"), "{new}");

    fs::remove_file(kept.join("ca.crt")).expect("removed");
    let incomplete = refusal(&kept);
    assert!(incomplete.contains("ca.crt is missing"), "{incomplete}");
}

#[test]
fn certificates_are_renewed_under_load_without_a_failed_request() {
    let cluster = SecureCluster::start();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut writes = 0;
            while !stop.load(Ordering::Relaxed) {
                let written = cluster.run(&["kv", "put", "k", "v"]);
                assert!(written.status.success(), "{}", said(&written));
                writes += 1;
            }
            writes
        });
        let renewed = "clients and other nodes are shown the new certificate";
        for round in 1..=3 {
            cluster.make_certificates(&[]);
            cluster.look_again();
            let is_used = |node: usize| cluster.log(node).matches(renewed).count() >= round;
            eventually("all nodes use the new certificates", || {
                cluster.look_again();
                (0..HOSTS.len()).all(is_used).then_some(())
            });
        }
        stop.store(true, Ordering::Relaxed);
        assert!(load.join().expect("no write failed") > 0);
    });
    let (status, body) = cluster.post(0, "/v1/tls/reload");
    assert_eq!(status, 200);
    let shown = ["\"replaced\":false", "\"127.0.0.1\"", "tidelock://tidelock/host/", "expires_unix_s"];
    assert!(shown.iter().all(|part| body.contains(part)), "{body}");
    // The key of another certificate is not used, and an operator can see that.
    let key = cluster.tls().join(HOSTS[0]).join("tls.key");
    fs::copy(cluster.tls().join(HOSTS[1]).join("tls.key"), key).expect("copied");
    let (status, body) = cluster.post(0, "/v1/tls/reload");
    assert!(status == 409 && body.contains("certificate-not-used"), "{status} {body}");
    cluster.wait_for_log(0, "the new certificate is not used; the old one stays in place");
    let ready = eventually("the node is ready: an election may be under way", || {
        let (status, ready) = cluster.get(0, "/readyz?verbose");
        (status == 200).then_some(ready)
    });
    assert!(ready.contains("[!]the changed files of --tls-dir are not used"), "{ready}");
    let (_, metrics) = cluster.get(0, "/metrics");
    assert!(metrics.contains("tidelock_insecure_listeners 0"), "{metrics}");
    assert!(cluster.run(&["kv", "put", "k", "still"]).status.success());
}
