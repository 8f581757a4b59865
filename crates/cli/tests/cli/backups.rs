//! Backups end to end: saved from any node under load, restored into another cluster, and refused
//! where they must be; also the comparison of replicas.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

use crate::harness::{Cluster, Options, eventually, tidelock};

struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.directory.path()).expect("a directory");
        names.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect()
    }
}

fn run(url: &str, arguments: &[&str]) -> Output {
    let mut command = tidelock();
    command.args(arguments).env("TIDELOCK_URL", url).stdin(Stdio::null());
    command.output().expect("the binary starts")
}

/// Standard output of a command that must succeed.
fn done(url: &str, arguments: &[&str]) -> String {
    let output = run(url, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn done_json(url: &str, arguments: &[&str]) -> Value {
    let text = done(url, &[arguments, &["--output", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Standard error of a command that must fail, though it is well formed.
fn failed(url: &str, arguments: &[&str]) -> String {
    let output = run(url, arguments);
    assert!(matches!(output.status.code(), Some(1..=8)), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).expect("messages are text")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// Every key of a cluster with its version and value.
fn keys(cluster: &Cluster, number: usize) -> BTreeMap<String, (u64, String)> {
    let mut keys = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = cluster.get(number, &format!("/v1/keys?after={after}")).json();
        for item in page["items"].as_array().expect("items") {
            let text = |name: &str| item[name].as_str().expect("text").to_owned();
            keys.insert(text("key"), (item["ver"].as_u64().expect("a version"), text("val")));
        }
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return keys,
        }
    }
}

/// There may be no node that follows in every shard, so this is one that does not lead most of
/// them.
fn follower(cluster: &Cluster) -> usize {
    cluster.chief() % cluster.numbers().len() + 1
}

#[test]
fn a_backup_of_a_follower_under_load_restores_into_another_cluster() {
    let cluster = Cluster::start(3);
    for index in 0..300 {
        assert_eq!(cluster.put(1, &format!("/v1/keys/early-{index}"), b"v").status, 201);
    }
    assert_eq!(cluster.put(2, "/v1/keys/early-7", b"twice").status, 200);
    assert_eq!(cluster.send(3, "DELETE /v1/keys/early-8", &[], b"").status, 204);
    let files = Files::new();
    let saved = files.path("b");
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (before, inspected) = thread::scope(|scope| {
        for writer in 0..2 {
            let (cluster, stop, acknowledged) = (&cluster, &stop, &acknowledged);
            scope.spawn(move || {
                for index in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let path = format!("/v1/keys/late-{writer}-{index}");
                    assert_eq!(cluster.put(writer + 1, &path, b"v").status, 201);
                    if writer == 0 {
                        acknowledged.store(index + 1, Ordering::SeqCst);
                    }
                }
            });
        }
        eventually("writes are under way", || (acknowledged.load(Ordering::SeqCst) > 20).then_some(()));
        let before = acknowledged.load(Ordering::SeqCst);
        let url = cluster.url(follower(&cluster), "");
        let inspected = done_json(&url, &["backup", "save", "--out", text(&saved)]);
        stop.store(true, Ordering::Relaxed);
        (before, inspected)
    });
    let old = keys(&cluster, 1);
    assert_eq!(inspected["stale"], false);
    assert_eq!(inspected["shards"].as_array().expect("shards").len(), 5);
    assert_eq!(files.names(), ["b"], "nothing temporary is left");

    let other = Cluster::start_with(1, &Options { flags: vec!["--shards", "7"] });
    let url = other.url(1, "");
    assert!(done(&url, &["backup", "verify", text(&saved)]).starts_with("intact: "));
    let restored = done_json(&url, &["backup", "restore", text(&saved)]);
    assert_eq!(restored["keys"], inspected["keys"]);
    let new = keys(&other, 1);
    assert_eq!(new.len() as u64, inspected["keys"].as_u64().expect("a number"));
    for (key, item) in &new {
        assert_eq!(old.get(key), Some(item), "{key} has the version and the value that it had");
    }
    for index in (0..300).filter(|&index| index != 8) {
        assert!(new.contains_key(&format!("early-{index}")), "{index}");
    }
    assert!(!new.contains_key("early-8"), "what was deleted stays so");
    for index in 0..before {
        assert!(new.contains_key(&format!("late-0-{index}")), "{index} of {before} was acknowledged before");
    }
    // Before any client writes, the restore may be repeated; afterwards the same backup is refused.
    done(&url, &["backup", "restore", text(&saved)]);
    assert_eq!(keys(&other, 1), new);
    let highest = old.values().map(|(version, _)| *version).max().expect("keys");
    for index in 0..20 {
        let version = other.put(1, &format!("/v1/keys/new-{index}"), b"v").version();
        assert!(version > highest, "{version} is not above {highest}");
    }
    let version = new["early-7"].0;
    let condition = format!("If-Match: \"{version}\"");
    assert_eq!(other.send(1, "PUT /v1/keys/early-7", &[&condition], b"by its old version").status, 200);
    let refused = failed(&url, &["backup", "restore", text(&saved)]);
    assert!(refused.contains("written to by something else"), "{refused}");
    assert_eq!(other.get(1, "/v1/keys/early-7").text(), "by its old version");
}

#[test]
fn a_restored_cluster_survives_a_restart_and_replicas_are_equal() {
    let cluster = Cluster::start(1);
    for index in 0..50 {
        cluster.put(1, &format!("/v1/keys/{index}"), format!("value {index}").as_bytes());
    }
    let files = Files::new();
    let saved = files.path("b");
    done(&cluster.url(1, ""), &["backup", "save", "--out", text(&saved)]);
    let mut other = Cluster::start_with(3, &Options { flags: vec!["--shards", "2"] });
    let urls: Vec<String> = other.numbers().into_iter().map(|number| other.url(number, "")).collect();
    done(&urls.join(","), &["backup", "restore", text(&saved)]);
    let verified = done_json(&urls[2], &["cluster", "status", "--verify", "--wait-s", "60"]);
    assert_eq!(verified["equal"], true);
    for shard in verified["shards"].as_array().expect("shards") {
        assert_eq!(shard["verdict"], "equal");
        assert_eq!(shard["replicas"].as_array().expect("replicas").len(), 3);
    }
    for number in other.numbers() {
        other.kill(number);
    }
    for number in other.numbers() {
        other.spawn(number);
    }
    for number in other.numbers() {
        other.wait_ready(number);
    }
    assert_eq!(keys(&other, 2), keys(&cluster, 1));
    // It still knows the backup that its state comes from.
    done(&urls.join(","), &["backup", "restore", text(&saved)]);
    assert_eq!(keys(&other, 3), keys(&cluster, 1));
}

#[test]
fn damaged_and_short_files_are_refused_before_anything_is_sent() {
    let cluster = Cluster::start(1);
    for index in 0..40 {
        cluster.put(1, &format!("/v1/keys/{index}"), &[b'v'; 5_000]);
    }
    let files = Files::new();
    let saved = files.path("b");
    done(&cluster.url(1, ""), &["backup", "save", "--out", text(&saved)]);
    let intact = fs::read(&saved).expect("a backup");
    let fresh = Cluster::start(1);
    let url = fresh.url(1, "");
    let damaged = files.path("damaged");
    for (bytes, message) in [
        (intact[..intact.len() - 1].to_vec(), "cut short"),
        (intact[..intact.len() / 2].to_vec(), "cut short"),
        (vec![], "cut short"),
        ([&intact[..], b"x"].concat(), "something follows the end"),
        ([&intact[..100_000], b"?", &intact[100_001..]].concat(), "byte offset"),
        (vec![b'x'; 1_000], "no backup"),
    ] {
        fs::write(&damaged, bytes).expect("a file");
        for command in ["verify", "inspect", "restore"] {
            let refused = failed(&url, &["backup", command, text(&damaged)]);
            assert!(refused.contains(message) && refused.contains("damaged: "), "{command}: {refused}");
        }
    }
    assert!(failed(&url, &["backup", "verify", text(&files.path("missing"))]).contains("missing"));
    assert_eq!(keys(&fresh, 1), BTreeMap::new());
    assert_eq!(fresh.put(1, "/v1/keys/first", b"v").version(), 1, "and no version was lifted");
    let shown = done(&url, &["backup", "inspect", text(&saved)]);
    assert!(
        shown.contains("REVISION") && shown.contains("registry") && shown.contains("keys      40"),
        "{shown}"
    );
}

#[test]
fn a_cluster_with_data_is_not_restored_into() {
    let cluster = Cluster::start(1);
    cluster.put(1, "/v1/keys/k", b"old");
    let files = Files::new();
    let saved = files.path("b");
    let piped = run(&cluster.url(1, ""), &["backup", "save", "--out", "-"]);
    assert_eq!(piped.status.code(), Some(0));
    fs::write(&saved, piped.stdout).expect("a file");
    let other = Cluster::start(1);
    other.put(1, "/v1/keys/k", b"mine");
    other.send(1, "DELETE /v1/keys/k", &[], b"");
    other.put(1, "/v1/keys/other", b"mine");
    let refused = failed(&other.url(1, ""), &["backup", "restore", text(&saved)]);
    assert!(refused.contains("fresh cluster"), "{refused}");
    assert_eq!(keys(&other, 1).into_keys().collect::<Vec<_>>(), ["other"]);
    let refused = failed(&other.url(1, ""), &["backup", "restore", "--discard", text(&saved)]);
    assert!(refused.contains("fresh cluster"), "clients have written: {refused}");
}

#[test]
fn what_another_restore_has_brought_is_discarded_when_asked() {
    let cluster = Cluster::start(1);
    cluster.put(1, "/v1/keys/k", b"saved");
    let files = Files::new();
    let saved = files.path("b");
    run(&cluster.url(1, ""), &["backup", "save", "--out", text(&saved)]);
    let other = Cluster::start(1);
    // Another restore claims the fresh cluster for an unknown backup.
    let claim = |revision: u64| format!("POST /v1/restore?backup={}&revision={revision}", Uuid::from_u128(9));
    assert_eq!(other.send(1, &claim(1 << 62), &[], b"").status, 400);
    assert_eq!(other.send(1, &claim(1 << 52), &[], b"").status, 204);
    let refused = failed(&other.url(1, ""), &["backup", "restore", text(&saved)]);
    assert!(refused.contains("--discard"), "{refused}");
    run(&other.url(1, ""), &["backup", "restore", "--discard", text(&saved)]);
    assert_eq!(other.get(1, "/v1/keys/k").text(), "saved");
    assert_eq!(other.put(1, "/v1/keys/k", b"new").status, 200);
}

#[test]
fn the_survivor_of_a_lost_majority_is_saved_stale() {
    let mut cluster = Cluster::start(3);
    for index in 0..50 {
        assert_eq!(cluster.put(1, &format!("/v1/keys/{index}"), b"v").status, 201);
    }
    let all = keys(&cluster, 1);
    eventually("node 1 has applied it all", || {
        let held = cluster.get(1, "/v1/keys?stale&keys").json()["items"].as_array().map(Vec::len);
        (held == Some(all.len())).then_some(())
    });
    cluster.kill(2);
    cluster.kill(3);
    let files = Files::new();
    let saved = files.path("b");
    let url = cluster.url(1, "");
    let refused = failed(&url, &["backup", "save", "--out", text(&saved)]);
    assert!(refused.contains("503") || refused.contains("504"), "{refused}");
    assert_eq!(files.names(), Vec::<String>::new());
    let inspected = done_json(&url, &["backup", "save", "--stale", "--out", text(&saved)]);
    assert_eq!((&inspected["stale"], inspected["keys"].as_u64()), (&Value::Bool(true), Some(50)));
    assert!(done(&url, &["backup", "inspect", text(&saved)]).contains("acknowledged writes may be missing"));
    let other = Cluster::start(1);
    done(&other.url(1, ""), &["backup", "restore", text(&saved)]);
    assert_eq!(keys(&other, 1), all);
    // It needs nothing but the survivor's disk.
    cluster.kill(1);
    cluster.spawn(1);
    eventually("node 1 is alive", || cluster.try_send(1, "GET /livez", &[], b""));
    let inspected = done_json(&url, &["backup", "save", "--stale", "--out", text(&saved)]);
    assert_eq!(inspected["keys"].as_u64(), Some(50));
}

#[test]
fn replicas_that_cannot_be_compared_are_not_called_equal() {
    let cluster = Cluster::start(3);
    cluster.put(1, "/v1/keys/k", b"v");
    let url = cluster.url(1, "");
    let equal = done(&url, &["cluster", "status", "--verify", "--wait-s", "60"]);
    assert!(
        equal.contains("NODE 3") && !equal.contains("incomplete") && !equal.contains("DIFFERS"),
        "{equal}"
    );
    assert_eq!(equal.lines().filter(|line| line.ends_with("equal")).count(), 5, "{equal}");
    cluster.signal(3, Signal::STOP);
    let output = eventually("a checkpoint of the two others", || {
        let output = run(&url, &["cluster", "status", "--verify", "--wait-s", "1"]);
        // There may be an election first.
        output.stdout.starts_with(b"SHARD").then_some(output)
    });
    cluster.signal(3, Signal::CONT);
    assert_eq!(output.status.code(), Some(1));
    let (shown, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("incomplete") && !shown.contains("DIFFERS"), "{shown}");
    assert!(shown.contains("unreachable") || shown.contains("not reported"), "{shown}");
    assert!(message.contains("could be compared"), "{message}");
}

/// Six nodes with the default placement: each shard has three voters, so no node has all shards.
fn spread() -> (Cluster, BTreeMap<String, (u64, String)>) {
    let cluster = Cluster::start(6);
    // Nodes that are ready may not have registered their addresses yet.
    for number in cluster.numbers() {
        eventually("every host has registered", || {
            let view = cluster.view(number);
            let mut hosts = view["hosts"].as_array()?.iter();
            hosts.all(|host| host["id"].is_string()).then_some(())
        });
    }
    for index in 0..200 {
        let path = format!("/v1/keys/{index}");
        assert_eq!(cluster.put(index % 6 + 1, &path, format!("value {index}").as_bytes()).status, 201);
    }
    let all = keys(&cluster, 1);
    assert_eq!(all.len(), 200);
    (cluster, all)
}

/// The nodes that have a replica of each data shard, the leader first.
fn replicas(cluster: &Cluster, asked: usize) -> BTreeMap<u64, Vec<usize>> {
    let number = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("a small one");
    eventually("every shard has a leader and its replicas", || {
        let view = cluster.view(asked);
        let (shards, replicas) = (view["shards"].as_array()?, view["replicas"].as_array()?);
        let of = |shard: &Value| {
            let mut nodes = vec![number(shard.get("leader").filter(|leader| leader.is_u64())?)];
            let held = replicas.iter().filter(|replica| replica["shard"] == shard["id"]);
            nodes.extend(
                held.map(|replica| number(&replica["node"]))
                    .filter(|node| *node != nodes[0])
                    .collect::<Vec<_>>(),
            );
            Some((shard["id"].as_u64()?, nodes))
        };
        shards.iter().filter(|shard| shard["id"] != 0).map(of).collect()
    })
}

/// Checks that a file holds these keys, in a cluster of one node.
fn restores_to(saved: &Path, all: &BTreeMap<String, (u64, String)>) {
    let other = Cluster::start(1);
    done(&other.url(1, ""), &["backup", "restore", text(saved)]);
    assert_eq!(keys(&other, 1), *all);
}

#[test]
fn a_node_without_all_shards_gathers_them_from_others() {
    let (cluster, all) = spread();
    let shards = replicas(&cluster, 1);
    let has = |node: usize| shards.values().filter(|nodes| nodes.contains(&node)).count();
    let files = Files::new();
    for number in cluster.numbers() {
        assert!(has(number) < shards.len(), "node {number} has every shard: {shards:?}");
        let saved = files.path(&format!("of-{number}"));
        let inspected = done_json(&cluster.url(number, ""), &["backup", "save", "--out", text(&saved)]);
        assert_eq!(
            (inspected["node"].as_u64(), inspected["keys"].as_u64()),
            (Some(number as u64), Some(200))
        );
        let numbers: Vec<_> =
            inspected["shards"].as_array().expect("shards").iter().map(|shard| &shard["id"]).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4], "all shards, in order");
    }
    let fewest = cluster.numbers().into_iter().min_by_key(|number| has(*number)).expect("a node");
    restores_to(&files.path(&format!("of-{fewest}")), &all);
    // The same with another program.
    let fetched = files.path("fetched");
    let body = cluster.get(fewest, "/v1/backup").body;
    fs::write(&fetched, body).expect("a file");
    assert!(done(&cluster.url(1, ""), &["backup", "verify", text(&fetched)]).starts_with("intact: "));
}

#[test]
fn a_backup_does_without_a_source_that_is_down_and_names_it_if_it_cannot() {
    let (mut cluster, all) = spread();
    let asked = 1;
    let shards = replicas(&cluster, asked);
    let (shard, sources) =
        shards.iter().find(|(_, nodes)| !nodes.contains(&asked)).expect("it lacks a shard");
    let files = Files::new();
    let (saved, rescued) = (files.path("b"), files.path("rescued"));
    let url = cluster.url(asked, "");
    cluster.kill(sources[0]);
    // First there may be an election.
    eventually("a backup from the other replicas", || {
        let output = run(&url, &["backup", "save", "--out", text(&saved)]);
        output.status.success().then_some(())
    });
    restores_to(&saved, &all);
    // Without a majority of the shard, its last replica still gives what it has.
    cluster.kill(sources[1]);
    let refused = failed(&url, &["backup", "save", "--out", text(&files.path("refused"))]);
    assert!(refused.contains("no leader") || refused.contains("503") || refused.contains("504"), "{refused}");
    let inspected = eventually("a stale backup", || {
        let output = run(&url, &["backup", "save", "--stale", "--output", "json", "--out", text(&rescued)]);
        output.status.success().then(|| serde_json::from_slice::<Value>(&output.stdout).expect("JSON"))
    });
    assert_eq!((&inspected["stale"], inspected["keys"].as_u64()), (&Value::Bool(true), Some(200)));
    restores_to(&rescued, &all);
    cluster.kill(sources[2]);
    let refused = failed(&url, &["backup", "save", "--stale", "--out", text(&files.path("refused"))]);
    assert!(
        refused.contains(&format!("gives no snapshot of shard {shard}: it cannot be reached")),
        "{refused}"
    );
    assert!(sources.iter().any(|source| refused.contains(&format!("node {source} "))), "{refused}");
    assert!(!files.names().iter().any(|name| name.contains("refused")), "{:?}", files.names());
}
