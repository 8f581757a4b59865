//! Certificates of clients: what they prove, what is refused in the handshake, and when it ends.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, SanType, date_time_ymd,
};
use rustix::process::Signal;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::process::Process;
use crate::harness::{eventually, ports, tidelock};

/// A limit for what takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// A certificate and its key.
struct IssuedCertificate {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

fn authority() -> Issuer {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().expect("a key")).expect("a certificate")
}

fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("ASCII"))
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("ASCII"))
}

/// A certificate with these names.
fn issue(issuer: &Issuer, names: Vec<SanType>) -> IssuedCertificate {
    issue_with(issuer, |parameters| parameters.subject_alt_names = names)
}

fn issue_with(issuer: &Issuer, change: impl FnOnce(&mut CertificateParams)) -> IssuedCertificate {
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::default();
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut parameters);
    let certificate = parameters.signed_by(&key, issuer).expect("signed").der().clone();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("PEM");
    IssuedCertificate { certificate, key }
}

/// A node that requires authentication and asks clients for certificates.
struct GuardedNode {
    process: Process,
    directory: tempfile::TempDir,
    port: u16,
    hosts: Issuer,
    clients: Issuer,
    /// A token of the principal `root`, which has the role `admin`.
    admin: String,
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

impl GuardedNode {
    /// Starts a node with the principals `ann` and `bob`, each with one certificate name.
    fn start() -> GuardedNode {
        let (hosts, clients) = (authority(), authority());
        let (directory, port) = (tempfile::tempdir().expect("a temporary directory"), ports::reserve(3));
        let tls = directory.path().join("tls");
        fs::create_dir(&tls).expect("a directory");
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
        parameters.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        parameters.subject_alt_names.push(uri(&host(port)));
        let certificate = parameters.signed_by(&key, &hosts).expect("signed");
        fs::write(tls.join("tls.key"), key.serialize_pem()).expect("written");
        fs::write(tls.join("tls.crt"), certificate.pem()).expect("written");
        fs::write(tls.join("ca.crt"), hosts.pem()).expect("written");
        fs::write(directory.path().join("client-ca.crt"), clients.pem()).expect("written");
        let mut command = tidelock();
        command.args(["serve", "--resp-cluster", "off", "--tls-dir"]).arg(&tls);
        command.arg("--client-ca").arg(directory.path().join("client-ca.crt"));
        command.arg("--data-dir").arg(directory.path().join("data"));
        for (flag, offset) in [("--http", 0), ("--resp", 1), ("--peer", 2)] {
            command.args([flag, &format!("127.0.0.1:{}", port + offset)]);
        }
        let log = fs::File::create(directory.path().join("log")).expect("a file");
        let process = Process::start(command.stdout(log.try_clone().expect("a handle")).stderr(log));
        let mut node = GuardedNode { process, directory, port, hosts, clients, admin: String::new() };
        eventually("the node serves", || {
            node.run(&["kv", "put", "ready", "yes"], &[]).status.success().then_some(())
        });
        node.admit();
        node
    }

    /// Makes the principals, and requires authentication.
    fn admit(&mut self) {
        eventually("the node stores principals", || {
            let put = ["auth", "principal", "put", "root", "--role", "admin"];
            self.run(&put, &[]).status.success().then_some(())
        });
        let token = self.run(&["auth", "token", "create", "root"], &[]);
        self.admin = String::from_utf8_lossy(&token.stdout).trim().to_owned();
        let mut anonymous = self.connect(0, None);
        let mut put = |path: &str, body: Value| {
            let answer =
                request(&mut anonymous, &format!("PUT {path}"), Some(&self.admin), &body.to_string());
            assert_eq!(answer.expect("an answer").0, 200, "{path}");
        };
        put("/v1/auth/roles/app", json!({ "grants": ["read keys:", "write keys:", "read config:web"] }));
        for (name, certificate_name) in [("ann", "tidelock://client/ann"), ("bob", "bob.example")] {
            let body = json!({ "roles": ["app"], "certificate_names": [certificate_name] });
            put(&format!("/v1/auth/principals/{name}"), body);
        }
        put("/v1/auth", json!({ "required": true }));
    }

    fn address(&self, offset: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port + offset))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("a log")
    }

    /// Runs a command, with files of a certificate if there are arguments for them.
    fn run(&self, arguments: &[&str], certificate: &[&str]) -> Output {
        let url = format!("https://{}", self.address(0));
        let mut command = tidelock();
        command.args(arguments).args(certificate).args(["--url", &url, "--ca"]);
        command.arg(self.path("tls/ca.crt")).output().expect("the binary starts")
    }

    /// Writes the files of a certificate, and returns the flags that name them.
    fn files(&self, certified: &IssuedCertificate, name: &str) -> Vec<String> {
        let pem = |kind: &str, der: &[u8]| {
            use base64::Engine;
            let text = base64::engine::general_purpose::STANDARD.encode(der);
            format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
        };
        let (certificate, key) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        fs::write(&certificate, pem("CERTIFICATE", &certified.certificate)).expect("written");
        fs::write(&key, pem("PRIVATE KEY", certified.key.secret_der())).expect("written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a mode");
        let text = |path: &Path| path.display().to_string();
        vec!["--client-cert".into(), text(&certificate), "--client-key".into(), text(&key)]
    }

    /// A connection to the HTTP port (0) or the Redis port (1).
    fn connect(&self, offset: u16, certified: Option<&IssuedCertificate>) -> Stream {
        let mut roots = RootCertStore::empty();
        roots.add(self.hosts.der().clone()).expect("a certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match certified {
            Some(IssuedCertificate { certificate, key }) => {
                // A client would not use a malformed certificate by itself.
                let key = aws_lc_rs::sign::any_supported_type(key).expect("a key");
                let certified = CertifiedKey::new(vec![certificate.clone()], key);
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = TcpStream::connect(self.address(offset)).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a connection"), stream)
    }

    /// Status of a request, and the principal that the node takes the client for.
    fn whoami(&self, certified: &IssuedCertificate) -> io::Result<(u16, Value)> {
        whoami(&mut self.connect(0, Some(certified)))
    }

    /// A request of the administrator.
    fn administer(&self, line: &str, body: Value) {
        let mut stream = self.connect(0, None);
        let answer = request(&mut stream, line, Some(&self.admin), &body.to_string());
        let (status, body) = answer.expect("an answer");
        assert!([200, 201].contains(&status), "{line}: {status} {body}");
    }

    /// Makes the node look at its files.
    fn look_again(&self) {
        self.process.signal(Signal::HUP);
    }
}

/// The name of a host in its certificate.
fn host(number: u16) -> String {
    format!("tidelock://tidelock/host/{}", Uuid::from_u128(u128::from(number)))
}

/// Sends a request; returns status and body.
fn request(stream: &mut Stream, line: &str, token: Option<&str>, body: &str) -> io::Result<(u16, String)> {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nhost: 127.0.0.1\r\n{token}content-length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn whoami(stream: &mut Stream) -> io::Result<(u16, Value)> {
    let (status, body) = request(stream, "GET /v1/auth/whoami", None, "")?;
    Ok((status, serde_json::from_str(&body).expect("JSON")))
}

/// The reply to a Redis command: one line, or the content of a bulk string.
fn ask(stream: &mut Stream, command: &str) -> String {
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("written");
    let mut line = || {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a reply");
            line.extend(byte);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    };
    let first = line();
    if first.starts_with('$') && first != "$-1" { line() } else { first }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_name_of_a_certificate_proves_a_principal() {
    let node = GuardedNode::start();
    let ann = issue(&node.clients, vec![uri("tidelock://client/ann")]);
    let bob = issue(&node.clients, vec![dns("other.example"), dns("bob.example")]);
    let (status, shown) = node.whoami(&ann).expect("an answer");
    assert_eq!((status, &shown["principal"]), (200, &json!("ann")), "{shown}");
    assert_eq!(
        (&shown["certificate_name"], &shown["token"]),
        (&json!("tidelock://client/ann"), &Value::Null)
    );
    assert!(shown["expires_unix_ms"].is_u64(), "{shown}");
    assert_eq!(node.whoami(&bob).expect("an answer").1["certificate_name"], "bob.example");
    assert_eq!(whoami(&mut node.connect(0, None)).expect("an answer").0, 401, "no certificate");

    // A token counts instead of the certificate, also a wrong one.
    let mut http = node.connect(0, Some(&ann));
    let (_, body) = request(&mut http, "GET /v1/auth/whoami", Some(&node.admin), "").expect("an answer");
    assert!(body.contains("\"principal\":\"root\"") && !body.contains("certificate_name"), "{body}");
    assert_eq!(request(&mut http, "GET /v1/auth/whoami", Some("wrong"), "").expect("an answer").0, 401);
    assert_eq!(whoami(&mut http).expect("an answer").1["principal"], "ann");

    let mut redis = node.connect(1, Some(&ann));
    assert!(ask(&mut redis, "HELLO 2").starts_with('*'), "no AUTH is needed");
    let mut redis = node.connect(1, Some(&ann));
    assert_eq!(ask(&mut redis, "ACL WHOAMI"), "ann");
    assert_eq!(ask(&mut redis, "SET a 1"), "+OK");
    assert!(ask(&mut redis, "ACL LIST").starts_with("-NOPERM"), "not an administrator");
    assert!(ask(&mut redis, "AUTH wrong").starts_with("-WRONGPASS"));
    assert_eq!(ask(&mut redis, &format!("AUTH {}", node.admin)), "+OK");
    assert_eq!(ask(&mut redis, "ACL WHOAMI"), "root");
    assert_eq!(ask(&mut redis, "RESET"), "+RESET");
    assert_eq!(ask(&mut redis, "ACL WHOAMI"), "ann");
    assert!(ask(&mut node.connect(1, None), "GET a").starts_with("-NOAUTH"));
}

#[test]
fn names_that_do_not_prove_one_principal_prove_none() {
    let node = GuardedNode::start();
    let raw = |name: &[u8]| {
        let length = |bytes: usize| match bytes {
            0..0x80 => vec![bytes as u8],
            _ => vec![0x83, (bytes >> 16) as u8, (bytes >> 8) as u8, bytes as u8],
        };
        let one = [&[0x82][..], &length(name.len()), name].concat();
        let all = [&[0x30][..], &length(one.len()), &one].concat();
        issue_with(&node.clients, |parameters| {
            parameters.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], all)];
        })
    };
    let common_name = issue_with(&node.clients, |parameters| {
        parameters.distinguished_name.push(DnType::CommonName, "bob.example");
    });
    let host_of_clients = issue(&node.clients, vec![uri(&host(node.port)), dns("bob.example")]);
    for (what, certified) in [
        ("the common name", common_name),
        ("a wildcard", issue(&node.clients, vec![dns("*.example")])),
        ("two principals", issue(&node.clients, vec![dns("bob.example"), uri("tidelock://client/ann")])),
        ("the beginning of a name", issue(&node.clients, vec![uri("tidelock://client/an")])),
        ("a longer name", issue(&node.clients, vec![uri("tidelock://client/ann/x")])),
        ("the name of a host", host_of_clients),
    ] {
        let (status, shown) = node.whoami(&certified).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(status, 401, "{what}: {shown}");
        assert!(ask(&mut node.connect(1, Some(&certified)), "GET a").starts_with("-NOAUTH"), "{what}");
    }
    // Names that DER may encode and DNS may not have are refused in the handshake or prove nothing.
    let long = vec![b'a'; 64 << 10];
    for name in [&b"bob.example\0"[..], b"bob.example\0.evil", b"\xff", &long] {
        let refused = node.whoami(&raw(name)).map_or(401, |(status, _)| status);
        assert_eq!(refused, 401, "{:?}", &name[..name.len().min(20)]);
    }
    assert_eq!(node.whoami(&issue(&node.clients, vec![dns("bob.example")])).expect("an answer").0, 200);
}

#[test]
fn certificates_that_do_not_verify_fail_the_handshake() {
    let node = GuardedNode::start();
    let ann = || vec![uri("tidelock://client/ann")];
    let usage = |usage: ExtendedKeyUsagePurpose| {
        issue_with(&node.clients, |parameters| {
            (parameters.subject_alt_names, parameters.extended_key_usages) = (ann(), vec![usage]);
        })
    };
    let valid = |begins: i32, ends: i32| {
        issue_with(&node.clients, |parameters| {
            parameters.subject_alt_names = ann();
            (parameters.not_before, parameters.not_after) =
                (date_time_ymd(begins, 1, 1), date_time_ymd(ends, 1, 1));
        })
    };
    let of_host = issue_with(&node.hosts, |parameters| {
        parameters.subject_alt_names = vec![uri(&host(node.port))];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    });
    for (what, certified) in [
        ("another authority", issue(&authority(), ann())),
        ("the authority of the hosts", issue(&node.hosts, ann())),
        ("the certificate of a host", of_host),
        ("for servers only", usage(ExtendedKeyUsagePurpose::ServerAuth)),
        ("expired", valid(2020, 2021)),
        ("not valid yet", valid(2090, 2091)),
    ] {
        assert!(node.whoami(&certified).is_err(), "{what}");
        let mut redis = node.connect(1, Some(&certified));
        let mut reply = [0];
        let answered = redis.write_all(b"PING\r\n").and_then(|()| redis.read_exact(&mut reply));
        assert!(answered.is_err(), "{what}");
    }
    assert_eq!(node.whoami(&usage(ExtendedKeyUsagePurpose::ClientAuth)).expect("an answer").0, 200);
}

#[test]
fn a_principal_that_loses_the_name_ends_open_connections() {
    let node = GuardedNode::start();
    let certified = issue(&node.clients, vec![uri("tidelock://client/ann")]);
    node.administer("POST /api/namespaces/web", json!({}));
    let container = json!({ "container": "c", "fields": [{ "key": "f", "fieldType": 1, "value": "p" }] });
    let changes = json!([{ "pair": "p", "value": 1 }, container]);
    node.administer("POST /api/namespaces/web/publish", json!({ "changes": changes }));
    let mut http = node.connect(0, Some(&certified));
    let mut redis = node.connect(1, Some(&certified));
    let mut events = node.connect(0, Some(&certified));
    let watch = "GET /api/namespaces/web/containers/c/watch HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    events.write_all(watch.as_bytes()).expect("written");
    let mut head = [0; 15];
    events.read_exact(&mut head).expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    assert_eq!(whoami(&mut http).expect("an answer").0, 200);
    assert_eq!(ask(&mut redis, "SET a 1"), "+OK");

    let names = json!({ "roles": ["app"], "certificate_names": ["tidelock://client/annette"] });
    node.administer("PUT /v1/auth/principals/ann", names);
    let mut rest = Vec::new();
    events.read_to_end(&mut rest).expect("the stream ends");
    assert_eq!(whoami(&mut http).expect("an answer").0, 401);
    assert!(ask(&mut redis, "GET a").starts_with("-NOAUTH"));

    // The name of the certificate becomes that of another principal.
    let names = json!({ "roles": ["app"], "certificate_names": ["bob.example", "tidelock://client/ann"] });
    node.administer("PUT /v1/auth/principals/bob", names);
    assert_eq!(whoami(&mut http).expect("an answer").1["principal"], "bob");
    assert_eq!(ask(&mut redis, "ACL WHOAMI"), "bob");
    node.administer("DELETE /v1/auth/principals/bob", json!({}));
    assert_eq!(whoami(&mut http).expect("an answer").0, 401);
    assert!(ask(&mut redis, "GET a").starts_with("-NOAUTH"));
}

#[test]
fn open_connections_end_to_be_the_principal_when_the_certificate_expires() {
    let node = GuardedNode::start();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let epoch = date_time_ymd(1970, 1, 1);
    let certified = issue_with(&node.clients, |parameters| {
        parameters.subject_alt_names = vec![uri("tidelock://client/ann")];
        parameters.not_before = epoch + now - Duration::from_secs(60);
        parameters.not_after = epoch + now + Duration::from_secs(5);
    });
    let (mut http, mut redis) = (node.connect(0, Some(&certified)), node.connect(1, Some(&certified)));
    assert_eq!(whoami(&mut http).expect("an answer").0, 200);
    assert_eq!(ask(&mut redis, "PING"), "+PONG");
    eventually("it expires", || (whoami(&mut http).expect("an answer").0 == 401).then_some(()));
    assert!(ask(&mut redis, "PING").starts_with("-NOAUTH"));
    eventually("the handshake fails", || node.whoami(&certified).is_err().then_some(()));
}

#[test]
fn changed_authorities_count_for_new_connections() {
    let node = GuardedNode::start();
    let old = issue(&node.clients, vec![uri("tidelock://client/ann")]);
    let mut open = node.connect(0, Some(&old));
    assert_eq!(whoami(&mut open).expect("an answer").0, 200);

    fs::write(node.path("client-ca.crt"), "no certificate").expect("written");
    node.look_again();
    let refusal = "--client-ca: it has no certificate in PEM";
    eventually("it says that it does not use the file", || node.log().contains(refusal).then_some(()));
    assert_eq!(node.whoami(&old).expect("an answer").0, 200);
    let (_, ready) = request(&mut open, "GET /readyz?verbose", Some(&node.admin), "").expect("an answer");
    assert!(ready.contains("[!]the changed files of --tls-dir or --client-ca are not used"), "{ready}");

    let authority = authority();
    let new = issue(&authority, vec![uri("tidelock://client/ann")]);
    fs::write(node.path("client-ca.crt"), authority.pem()).expect("written");
    node.administer("POST /v1/tls/reload", json!({}));
    assert!(node.whoami(&old).is_err(), "no session is resumed");
    assert_eq!(node.whoami(&new).expect("an answer").0, 200);
    assert_eq!(whoami(&mut open).expect("an answer").0, 200, "the handshake was before the change");
}

#[test]
fn commands_present_a_certificate() {
    let node = GuardedNode::start();
    node.administer(
        "PUT /v1/auth/principals/ann",
        json!({ "roles": ["admin"], "certificate_names": ["tidelock://client/ann"] }),
    );
    let files = node.files(&issue(&node.clients, vec![uri("tidelock://client/ann")]), "ann");
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let backup = node.path("backup").display().to_string();
    let resp = node.address(1).to_string();
    for arguments in [
        &["kv", "put", "k", "v"][..],
        &["auth", "whoami"],
        &["cluster", "status"],
        &["backup", "save", "--out", &backup],
        &["bench", "kv", "-n", "50", "-c", "2", "--keys", "10"],
        &["bench", "resp", "--tls", "-n", "50", "-c", "2", "--keys", "10", "--address", &resp],
        &["bench", "atomic", "-d", "0.2", "--json"],
    ] {
        let done = node.run(arguments, &files);
        assert!(done.status.success(), "{arguments:?}: {}", said(&done));
    }
    let refused = node.run(&["kv", "get", "k"], &[]);
    assert_eq!(refused.status.code(), Some(7));
    let half = node.run(&["kv", "get", "k"], &files[..2]);
    assert_eq!(half.status.code(), Some(2), "{}", said(&half));
    let stranger = node.files(&issue(&node.clients, vec![dns("stranger.example")]), "stranger");
    let stranger: Vec<&str> = stranger.iter().map(String::as_str).collect();
    let refused = node.run(&["kv", "get", "k"], &stranger);
    assert!(
        said(&refused).contains("no name of the certificate belongs to a principal"),
        "{}",
        said(&refused)
    );

    let url = format!("https://{}", node.address(0));
    let ca = node.path("tls/ca.crt").display().to_string();
    let as_user = |arguments: &[&str]| {
        let mut command = tidelock();
        command.args(arguments).env("XDG_CONFIG_HOME", node.directory.path());
        command.output().expect("the binary starts")
    };
    let login = as_user(&[&["login", &url, "--ca", &ca], &files[..]].concat());
    assert!(login.status.success(), "{}", said(&login));
    let read = as_user(&["kv", "get", "k", "--raw"]);
    assert_eq!(read.stdout, b"v", "{}", said(&read));
    let refused = as_user(&[&["login", &url, "--ca", &ca], &stranger[..]].concat());
    assert_eq!(refused.status.code(), Some(7), "{}", said(&refused));
}

#[test]
fn authorities_of_clients_need_tls_and_a_certificate() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (bundle, data) = (directory.path().join("client-ca.crt"), directory.path().join("data"));
    fs::write(&bundle, authority().pem()).expect("written");
    let start = |flags: &[&str]| {
        let mut command = tidelock();
        command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--peer", "127.0.0.1:0"]);
        command.args(flags).arg("--client-ca").arg(&bundle).arg("--data-dir").arg(&data);
        let refused = command.output().expect("the binary starts");
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        assert!(!data.exists(), "nothing was written");
        said(&refused)
    };
    assert!(start(&[]).contains("this node has no TLS"), "{}", start(&[]));
    fs::write(&bundle, "").expect("written");
    assert!(start(&["--secure"]).contains("it has no certificate in PEM"));
    fs::remove_file(&bundle).expect("removed");
    assert!(start(&["--secure"]).contains("client-ca.crt"));
}
