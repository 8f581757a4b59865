//! Runs the commands of the how-to pages: those of blocks fenced as `sh`, in their order.
//!
//! Each page has a test of its own, because pages need different clusters, and because what the
//! commands achieve is asserted for each. `console_blocks` runs the blocks with their output.

use std::process::{Command, Stdio};

use crate::harness::process::Process;
use crate::harness::{Cluster, Options, eventually, ports, shell_commands};

/// The commands of blocks fenced as `sh`, in one script that ends with the first failure.
fn script(document: &str) -> String {
    format!("set -eu\n{}", shell_commands(document))
}

/// Every command of the page succeeds, in its order, and only the last token is refused.
#[test]
fn tokens() {
    let cluster = Cluster::start(3);
    cluster.await_newest_version();
    let script = script(include_str!("../../../../docs/how-to/tokens.md"));
    let script = script.replace("127.0.0.1:8001", &cluster.address(1).to_string());
    let home = tempfile::tempdir().expect("a temporary directory");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tidelock"));
    let path = std::env::var("PATH").unwrap_or_default();
    let run = |script: &str| {
        Command::new("sh")
            .args(["-c", script])
            .env("PATH", format!("{}:{path}", binary.parent().expect("a directory").display()))
            .env("XDG_CONFIG_HOME", home.path())
            .env("TIDELOCK_URL", cluster.url(1, ""))
            .current_dir(home.path())
            .output()
            .expect("a shell")
    };
    let done = run(&script);
    let shown = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{script}\n{shown}");
    assert!(shown.contains("yes"), "the application reads what it wrote: {shown}");
    assert!(run("tidelock kv get shop/open").status.success(), "the administrator is logged in");
    for refused in ["--token-file shop.token", "--token-file shop.new.token"] {
        let refused = run(&format!("tidelock kv get shop/open {refused}"));
        assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
    }
}

/// Every command of the page succeeds, and at its end the certificate proves nothing any more.
#[test]
fn client_certificates() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (url, port) = ("TIDELOCK_URL", ports::reserve(3));
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tidelock"));
    let path = std::env::var("PATH").unwrap_or_default();
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(home.path()).env("XDG_CONFIG_HOME", home.path());
        shell.env("PATH", format!("{}:{path}", binary.parent().expect("a directory").display()));
        shell.env(url, format!("https://127.0.0.1:{port}")).env("TIDELOCK_CA", "data/tls/ca.crt");
        shell
    };
    let script = script(include_str!("../../../../docs/how-to/client-certificates.md"));
    // The first line belongs to the shell.
    let mut lines = script.lines().skip(1);
    let certificate = lines.next().expect("a command");
    assert!(shell(certificate).output().expect("a shell").status.success(), "{certificate}");
    let addresses =
        format!("--http 127.0.0.1:{port} --resp 127.0.0.1:{} --peer 127.0.0.1:{}", port + 1, port + 2);
    let serve = format!("exec tidelock serve --secure --data-dir data --resp-cluster off {addresses}");
    let mut serve = shell(&format!("{serve} --client-ca clients/client-ca.crt"));
    let _node = Process::start(serve.stderr(Stdio::null()));
    eventually("the administrator is logged in", || {
        shell("tidelock login < data/root.token").output().expect("a shell").status.success().then_some(())
    });
    for line in lines {
        let done = shell(line).output().expect("a shell");
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
        if line.contains("whoami") {
            let shown = String::from_utf8_lossy(&done.stdout).into_owned();
            assert!(shown.contains("certificate  tidelock://client/shop, expires "), "{shown}");
        }
    }
    let get = "tidelock kv get shop/open --client-cert clients/shop.crt --client-key clients/shop.key";
    let refused = shell(get).output().expect("a shell");
    assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
}

/// The numbered steps of the page create a cluster of three nodes with TLS and tokens.
#[test]
fn secure() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = directory.path().display().to_string();
    let base = ports::reserve(9);
    let script = script(include_str!("../../../../docs/tutorial/three-machines.md"));
    let script = script.replace("\\\n", " ").replace("scp ", "cp ");
    let with_addresses = |line: &str| {
        let mut line = line.to_owned();
        for node in 1..=3 {
            let host = format!("10.0.0.{node}");
            // A `serve` command runs on the machine whose address it has.
            if line.contains(&format!("--http {host}:")) {
                line = line.replace("/var/lib/tidelock", &format!("{root}/data-{node}"));
            }
            line = line.replace(&format!("{host}:/var/lib/tidelock"), &format!("{root}/data-{node}"));
            for (offset, port) in [(0, 8001), (1, 7001), (2, 9001)] {
                let address = format!("127.0.0.1:{}", base + (node - 1) * 3 + offset);
                line = line.replace(&format!("{host}:{port}"), &address);
            }
        }
        line
    };
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tidelock"));
    let path = std::env::var("PATH").unwrap_or_default();
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(directory.path()).env("XDG_CONFIG_HOME", directory.path());
        shell.env("PATH", format!("{}:{path}", binary.parent().expect("a directory").display()));
        shell
    };
    let mut nodes = vec![];
    for line in script.lines().map(with_addresses) {
        if line.starts_with("tidelock serve") {
            let mut serve = shell(&format!("exec {line} --resp-cluster off"));
            nodes.push(Process::start(serve.stderr(Stdio::null())));
            continue;
        }
        // A node that has just started may not serve yet. curl exits with 0 even for an error
        // status.
        eventually(&line, || {
            let done = shell(&line).output().expect("a shell");
            (done.status.success() && (!line.starts_with("curl") || done.stdout == b"world")).then_some(())
        });
    }
    assert_eq!(nodes.len(), 3);
    let anonymous = shell(&with_addresses("tidelock kv get hello --url https://10.0.0.3:8001 --ca ca.crt"));
    let mut anonymous = anonymous;
    anonymous.env("XDG_CONFIG_HOME", "/nonexistent");
    eventually("the node refuses who has no token", || {
        let refused = anonymous.output().expect("a shell");
        String::from_utf8_lossy(&refused.stderr).contains("401").then_some(())
    });
}

/// Every command of the page succeeds while authentication is not required.
#[test]
fn audit() {
    let cluster = Cluster::start(3);
    cluster.await_newest_version();
    assert_eq!(cluster.send(1, "POST /v1/cluster/hosts/2/drain", &[], b"").status, 202);
    let script = script(include_str!("../../../../docs/how-to/audit.md"));
    let script = script.replace("127.0.0.1:8001", &cluster.address(1).to_string());
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tidelock"));
    let path = std::env::var("PATH").unwrap_or_default();
    let done = Command::new("sh")
        .args(["-c", &script])
        .env("PATH", format!("{}:{path}", binary.parent().expect("a directory").display()))
        .env("TIDELOCK_URL", cluster.url(1, ""))
        .output()
        .expect("a shell");
    let shown = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{script}\n{shown}");
    assert!(shown.contains("(anonymous)  host.drain  2"), "{shown}");
}

/// Every command of a page succeeds, in its order. Returns what they print.
fn run_page(page: &str) -> String {
    run_page_with(page, &[])
}

/// The same in a directory with these files: their names and contents.
fn run_page_with(page: &str, files: &[(&str, &str)]) -> String {
    let cluster = Cluster::start(3);
    cluster.await_newest_version();
    cluster.await_registered();
    let script = script(page).replace("127.0.0.1:8001", &cluster.address(1).to_string());
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, content) in files {
        std::fs::write(directory.path().join(name), content).expect("a file");
    }
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tidelock"));
    let path = std::env::var("PATH").unwrap_or_default();
    let done = Command::new("sh")
        .args(["-c", &script])
        .env("PATH", format!("{}:{path}", binary.parent().expect("a directory").display()))
        .env("TIDELOCK_URL", cluster.url(1, ""))
        .current_dir(directory.path())
        .output()
        .expect("a shell");
    let shown = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{script}\n{shown}");
    shown.into_owned()
}

#[test]
fn recipes() {
    let shown = run_page(include_str!("../../../../docs/how-to/distributed-lock.md"));
    assert!(shown.contains("problems/stale-fence"), "a fence is refused after the release: {shown}");
    run_page(include_str!("../../../../docs/how-to/leader-election.md"));
    let shown = run_page(include_str!("../../../../docs/how-to/service-registry.md"));
    assert!(shown.contains("10.0.0.1:80") && shown.contains("revoked"), "{shown}");
    let shown = run_page(include_str!("../../../../docs/how-to/feature-flags.md"));
    assert!(shown.contains("put flags/dark-mode = on"), "{shown}");
    let shown = run_page(include_str!("../../../../docs/how-to/idempotent-retry.md"));
    let answers: Vec<&str> = shown.lines().filter(|line| line.contains("succeeded")).collect();
    assert!(answers.len() == 2 && answers[0] == answers[1], "{shown}");
    let shown = run_page(include_str!("../../../../docs/how-to/trace-requests.md"));
    let is_trace = |line: &&str| line.len() == 32 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert_eq!(shown.lines().filter(is_trace).count(), 1, "{shown}");
}

/// Namespaces inherit, are compared and promoted.
#[test]
fn environments() {
    let shown = run_page(include_str!("../../../../docs/how-to/environments.md"));
    assert!(shown.contains(r#"{"db":"postgres://db.example.org/shop","port":8080}"#), "{shown}");
    assert!(shown.contains(r#"{"db":"postgres://db.example.org/shop","port":9090}"#), "{shown}");
    assert!(shown.contains("namespace {shop}/prod inherits it: app"), "{shown}");
}

/// Drafts are reviewed, and shown to a part of the readers first.
#[test]
fn reviewing_changes() {
    let shown = run_page(include_str!("../../../../docs/how-to/review-changes.md"));
    assert!(shown.contains("commented on draft slower\napproved draft slower\n"), "{shown}");
    assert!(shown.contains("refused") && shown.contains(r#"{"timeout":75}"#), "{shown}");
    assert!(shown.contains("timeout: 75\ntimeout: 60\n"), "the agent reads the canary: {shown}");
}

/// The agent writes the file and runs its command, and the readers of a namespace are listed.
#[test]
fn reading_configuration() {
    let shown = run_page(include_str!("../../../../docs/how-to/read-configuration.md"));
    assert!(shown.contains("timeout: 30\n") && shown.contains("timeout: 60\n"), "{shown}");
    assert!(shown.contains(r#""current":4"#) && shown.contains(r#""missing":[]"#), "{shown}");
}

/// The nodes have the key that the first command makes, and a program is shown the secret.
#[test]
fn keeping_secrets() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tidelock"));
    let path = std::env::var("PATH").unwrap_or_default();
    let run = |script: &str, url: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(directory.path()).env("TIDELOCK_URL", url);
        shell.env("PATH", format!("{}:{path}", binary.parent().expect("a directory").display()));
        let done = shell.output().expect("a shell");
        let shown = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{script}\n{shown}");
        shown.into_owned()
    };
    let script = script(include_str!("../../../../docs/how-to/keep-secrets.md"));
    let (make_key, rest) = script.split_once("\ntidelock ").expect("commands");
    run(make_key, "");
    let keys = directory.path().join("secret.keys").display().to_string();
    let cluster = Cluster::start_prepared(3, &Options::default(), |cluster| {
        cluster.numbers().into_iter().for_each(|node| cluster.add_flags(node, &["--secret-key-file", &keys]));
    });
    cluster.await_newest_version();
    cluster.await_registered();
    let rest =
        format!("set -eu\ntidelock {}", rest.replace("127.0.0.1:8001", &cluster.address(1).to_string()));
    let shown = run(&rest, &cluster.url(1, ""));
    assert!(shown.contains(r#""password":"********""#), "{shown}");
    assert!(shown.matches(r#""password":"correct-horse""#).count() == 2, "{shown}");
    assert!(shown.contains("password: correct-horse\n"), "{shown}");
}

/// The file that Apollo gives is imported as the page says: numbers where the text is the same.
#[test]
fn moving_from_apollo() {
    let page = include_str!("../../../../docs/how-to/move-from-apollo.md");
    let (_, properties) = page.split_once("```properties\n").expect("the file");
    let (properties, _) = properties.split_once("```").expect("its end");
    let shown = run_page_with(page, &[("application.properties", properties)]);
    assert!(shown.contains("application.server.port  int     8080"), "{shown}");
    assert!(shown.contains("application.release      string  \"1.10\""), "{shown}");
    let kept = properties.lines().all(|line| shown.lines().any(|found| found == line));
    assert!(kept, "the container is the file: {shown}");
}
