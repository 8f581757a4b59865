//! Upgrades: directories and backups of earlier releases, the version of the cluster, and rolling
//! restarts.
//!
//! `tests/compat` has what `scripts/make-compat` made with each release.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tidelock_core::storage::control_file;
use tidelock_core::version::ClusterVersion;
use tidelock_server::disk::FsDisk;

use crate::harness::shell::Shell;
use crate::harness::{Cluster, Options, eventually};

/// The loopback addresses of the nodes of a release in `tests/compat`, in its network.
fn hosts(network: u8) -> [Ipv4Addr; 3] {
    [1, 2, 3].map(|number| Ipv4Addr::new(127, 77, network, number))
}

/// The zones of these nodes.
const ZONES: [&str; 3] = ["geo:zone=z1", "geo:zone=z2", "geo:zone=z3"];

/// The cluster version of the release before versions.
const FIRST: u64 = 1;

/// The first cluster version with roles, principals, tokens and limits.
const WITH_LIMITS: u64 = 6;

/// The first cluster version with transactions and claimed authors.
const WITH_TRANSACTIONS: u64 = 7;

/// The first cluster version in which nodes send traces along, of release 0.1.0.
const WITH_TRACES: u64 = 11;

/// The first cluster version in which leases of a clock that was ahead are shortened.
const WITH_SHORTENED_LEASES: u64 = 12;

/// The first cluster version in which hot slots move.
const WITH_SLOT_LOADS: u64 = 13;

/// The first cluster version in which removals of hosts are cancelled.
const WITH_CANCELLED_REMOVALS: u64 = 14;

fn compat(version: u64, file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/compat/v{version}")).join(file)
}

/// Unpacks the directories of a cluster into those of `cluster`'s nodes. Returns the tokens of root
/// and shop, if the release has tokens.
fn unpack((version, name): (u64, &str), cluster: &Cluster) -> Option<[String; 2]> {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let archive = compat(version, &format!("{name}.tar.gz"));
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(scratch.path()).status();
    assert!(status.expect("tar is installed").success());
    for number in cluster.numbers() {
        let copied = Command::new("cp")
            .args(["-r", "--sparse=always"])
            .arg(scratch.path().join(name).join(number.to_string()))
            .arg(cluster.directory(number))
            .status();
        assert!(copied.expect("cp is there").success());
    }
    let token = |principal: &str| {
        let path = scratch.path().join(name).join(format!("{principal}.token"));
        fs::read_to_string(path).ok().map(|token| token.trim().to_owned())
    };
    Some([token("root")?, token("shop")?])
}

/// Checks everything that the script wrote; `is_backup` for a restored backup, which has no
/// registry and no later write.
fn read_back(cluster: &Cluster, number: usize, is_backup: bool) {
    for key in [1, 77, 199] {
        assert_eq!(cluster.get(number, &format!("/v1/keys/key-{key}")).text(), format!("value {key}"));
    }
    assert_eq!(cluster.get(number, "/v1/keys/key-200").status, 404, "it was deleted");
    assert_eq!(cluster.get(number, "/v1/keys/expiring").text(), "expires");
    let shell = Shell::by_way_of(cluster, &[number]);
    let done = |arguments: &[&str]| String::from_utf8(shell.done(arguments)).expect("text");
    assert_eq!(done(&["atomic", "get", "7"]).trim(), "42");
    assert_eq!(done(&["config", "pair", "get", "settings", "limit"]).trim(), "20");
    assert_eq!(done(&["config", "pair", "get", "settings", "greeting"]).trim(), "hello");
    let history = done(&["config", "history", "settings"]);
    if is_backup {
        return;
    }
    assert!(history.lines().count() > 3, "{history}");
    assert_eq!(cluster.get(number, "/v1/keys/late").text(), "late", "after the last snapshot");
    let dump = cluster.get(number, "/v1/cluster/dump").text();
    for clue in
        [r#""note":"kept""#, r#""placement:vary":"geo:zone""#, r#""name":"extra""#, r#""geo:zone":"z1""#]
    {
        assert!(dump.contains(clue), "{clue}: {dump}");
    }
    assert!(!dump.contains("gone"), "the shard was removed: {dump}");
    let moves = cluster.get(number, "/v1/cluster/moves").json();
    let extra = moves["shards"].as_array().and_then(|shards| shards.iter().find(|row| row["shard"] == 5));
    assert_eq!(extra.map(|row| &row["slots"]), Some(&"0-9".into()), "{moves}");
}

fn version(cluster: &Cluster, number: usize) -> u64 {
    cluster.get(number, "/v1/cluster/version").json()["version"].as_u64().expect("a number")
}

/// The version that a directory has recorded.
fn recorded(directory: &Path) -> ClusterVersion {
    let disk = FsDisk::open(directory).expect("no process uses it");
    control_file::load(&disk).expect("it is read").expect("there is one").version
}

#[test]
fn a_directory_of_the_release_before_versions_is_read_and_its_version_rises() {
    let options = Options { flags: vec!["--tag", "geo:zone=z1"] };
    let mut cluster = Cluster::start_prepared(1, &options, |cluster| drop(unpack((FIRST, "one"), cluster)));
    read_back(&cluster, 1, false);
    eventually("the version rises", || (version(&cluster, 1) == ClusterVersion::NEWEST.0).then_some(()));
    let shown = String::from_utf8(Shell::of(&cluster).done(&["cluster", "version"])).expect("text");
    let newest = format!("cluster version {}\n", ClusterVersion::NEWEST);
    assert!(shown.starts_with(&newest), "{shown}");
    assert!(shown.contains(env!("CARGO_PKG_VERSION")), "{shown}");
    assert_eq!(cluster.terminate(1).code(), Some(0));
    assert_eq!(recorded(cluster.directory(1)), ClusterVersion::NEWEST);
    cluster.restart(1);
    read_back(&cluster, 1, false);
}

#[test]
fn a_cluster_of_the_release_before_versions_waits_for_all_its_nodes_and_for_its_operator() {
    let mut cluster = Cluster::at(&hosts(16));
    unpack((FIRST, "three"), &cluster);
    for number in cluster.numbers() {
        cluster.add_flags(number, &["--tag", ZONES[number - 1]]);
    }
    cluster.spawn(1);
    cluster.restart(2);
    cluster.wait_ready(1);
    read_back(&cluster, 1, false);
    let shell = Shell::by_way_of(&cluster, &[1, 2]);
    let show = || String::from_utf8(shell.done(&["cluster", "version"])).expect("text");
    let waits = |clue: &str| eventually(clue, || show().contains(clue).then_some(()));
    waits("node 3 runs a release that does not support version 2: upgrade it");
    shell.done(&["cluster", "version", "--hold"]);
    cluster.restart(3);
    waits("an operator holds it");
    eventually("node 3 has announced its release", || {
        (!show().contains("node 3 runs a release that")).then_some(())
    });
    assert_eq!(version(&cluster, 3), 1);
    let transaction = cluster.directory(1).with_file_name("transaction.json");
    fs::write(&transaction, r#"{"then":[{"get":{"key":"k"}}]}"#).expect("a file");
    let transaction = transaction.to_str().expect("text");
    assert!(shell.failed(&["txn", transaction]).contains("the cluster's version is too low"));
    shell.done(&["cluster", "version", "--resume"]);
    for number in cluster.numbers() {
        eventually("the version rises", || {
            (version(&cluster, number) == ClusterVersion::NEWEST.0).then_some(())
        });
        read_back(&cluster, number, false);
    }
    shell.done(&["txn", transaction]);
    for number in cluster.numbers() {
        assert_eq!(cluster.terminate(number).code(), Some(0));
        assert_eq!(recorded(cluster.directory(number)), ClusterVersion::NEWEST);
    }
}

#[test]
fn directories_with_principals_and_tokens_are_read() {
    let releases = [
        (WITH_LIMITS, 17),
        (WITH_TRANSACTIONS, 18),
        (WITH_TRACES, 19),
        (WITH_SHORTENED_LEASES, 20),
        (WITH_SLOT_LOADS, 21),
        (WITH_CANCELLED_REMOVALS, 22),
    ];
    let sets = releases.into_iter().flat_map(|release| [(release, "one", 1), (release, "three", 3)]);
    for ((release, network), name, count) in sets {
        let mut cluster = Cluster::at(&hosts(network)[..count]);
        let [root, shop] = unpack((release, name), &cluster).expect("the release has tokens");
        for number in cluster.numbers() {
            cluster.add_flags(number, &["--tag", ZONES[number - 1]]);
            cluster.spawn(number);
        }
        cluster.wait_ready(1);
        let send = |request: &str, token: &str, body: &[u8]| {
            let headers = [&*format!("Authorization: Bearer {token}"), "Content-Type: application/json"];
            cluster.send(1, request, &headers, body)
        };
        let shown = |request: &str| send(request, &root, b"").text();
        assert_eq!(cluster.get(1, "/v1/keys/key-1").status, 401);
        assert_eq!(send("GET /v1/keys/key-1", &shop, b"").text(), "value 1");
        assert_eq!(send("GET /v1/keys/late", &shop, b"").status, 403);
        let roles = shown("GET /v1/auth/roles");
        assert!(roles.contains("50000"), "{roles}");
        assert!(shown("GET /v1/auth/principals").contains("spiffe://example/shop"));
        let records = shown("GET /v1/audit");
        assert!(records.contains("authentication.require") && records.contains("slots.move"), "{records}");
        assert_eq!(send("PUT /v1/auth", &root, br#"{"required":false}"#).status, 200);
        read_back(&cluster, 1, false);
        if release >= WITH_TRANSACTIONS {
            assert_eq!(cluster.get(1, "/v1/keys/%7Bt%7Dpaid").text(), "yes");
            let history = Shell::by_way_of(&cluster, &[1]).done(&["config", "history", "settings"]);
            assert!(String::from_utf8_lossy(&history).contains("root for ann"));
        }
        eventually("the version rises", || (version(&cluster, 1) == ClusterVersion::NEWEST.0).then_some(()));
    }
}

#[test]
fn backups_of_earlier_releases_are_restored() {
    let releases = [FIRST, WITH_LIMITS, WITH_TRANSACTIONS, WITH_TRACES];
    for (release, name) in releases.into_iter().flat_map(|release| [(release, "one"), (release, "three")]) {
        let cluster = Cluster::start(1);
        let file = compat(release, &format!("{name}.backup"));
        Shell::of(&cluster).done(&["backup", "restore", file.to_str().expect("text")]);
        read_back(&cluster, 1, true);
        assert_eq!(version(&cluster, 1), ClusterVersion::NEWEST.0, "a new cluster has the newest version");
    }
}

#[test]
fn a_release_that_is_too_old_for_its_directory_says_so_and_changes_nothing() {
    let newest = ClusterVersion::NEWEST;
    let mut cluster = Cluster::start(1);
    assert_eq!(cluster.terminate(1).code(), Some(0));
    {
        let disk = FsDisk::open(cluster.directory(1)).expect("no process uses it");
        let mut identity = control_file::load(&disk).expect("it is read").expect("there is one");
        identity.version = ClusterVersion(newest.0 + 1);
        control_file::store(&disk, &identity).expect("it is written");
    }
    let before = files(cluster.directory(1));
    let logged = cluster.log(1).len();
    cluster.spawn(1);
    let status = cluster.wait_exit(1);
    let message = cluster.log(1).split_off(logged);
    assert_eq!(status.code(), Some(1), "{message}");
    let expected = format!(
        "this release is too old: the cluster's version is {}, and this release supports 1 to {newest}",
        newest.0 + 1
    );
    assert!(message.contains(&expected), "{message}");
    assert_eq!(files(cluster.directory(1)), before);
}

/// The files of a directory, with their bytes.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
}

/// Number of writes between two restarts.
const WRITES_BETWEEN_RESTARTS: u64 = 100;

#[test]
fn a_rolling_restart_fails_no_request_of_a_client_that_tries_a_second_node() {
    let mut cluster = Cluster::start(3);
    cluster.await_registered();
    let clients: Vec<_> = (1..=3).map(|number| (number, cluster.url(number, "/v1/keys/"))).collect();
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let failures: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (clients, done, is_over) = (&clients, &done, &is_over);
                scope.spawn(move || load(worker, clients, done, is_over))
            })
            .collect();
        for number in 1..=3 {
            let reached = done.load(Ordering::Relaxed) + WRITES_BETWEEN_RESTARTS;
            eventually("clients write", || (done.load(Ordering::Relaxed) >= reached).then_some(()));
            assert_eq!(cluster.terminate(number).code(), Some(0));
            cluster.restart(number);
            eventually("every node knows every leader", || {
                let views = (1..=3).map(|number| cluster.view(number));
                let knows = |view: &serde_json::Value| {
                    view["shards"]
                        .as_array()
                        .is_some_and(|all| all.iter().all(|row| !row["leader"].is_null()))
                };
                views.into_iter().all(|view| knows(&view)).then_some(())
            });
        }
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker ends")).collect()
    });
    assert_eq!(failures, Vec::<String>::new(), "after {} requests", done.load(Ordering::Relaxed));
}

/// Writes and reads until told to end, each time at the next node first. Returns what failed at
/// both nodes that it tried.
fn load(worker: usize, clients: &[(usize, String)], done: &AtomicU64, is_over: &AtomicBool) -> Vec<String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .timeout_global(Some(crate::harness::DEADLINE))
        .build()
        .into();
    let mut failures = Vec::new();
    for turn in worker.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let attempt = |node: usize| {
            let (number, url) = &clients[node % clients.len()];
            let url = format!("{url}worker-{worker}-{}", turn % 50);
            let sent = if turn % 3 == 2 {
                agent.get(&url).call()
            } else {
                agent.put(&url).send(turn.to_string().as_bytes())
            };
            match sent {
                Ok(response) if [200, 201, 404].contains(&response.status().as_u16()) => Ok(()),
                Ok(response) if response.status() == 503 => Err(format!("node {number}: 503")),
                // A client may not repeat the request after any other status.
                Ok(response) => panic!("node {number}: {}", response.status()),
                Err(error) => Err(format!("node {number}: {error}")),
            }
        };
        if let Err(first) = attempt(turn)
            && let Err(second) = attempt(turn + 1)
        {
            failures.push(format!("{first}, then {second}"));
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    failures
}
