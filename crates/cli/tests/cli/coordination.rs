//! Leases and locks over HTTP and by `tidelock lease` and `tidelock lock`, on three nodes: with
//! the leader killed, with a holder paused past its lease, and with waiters whose connection dies.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::client::Raw;
use crate::harness::process::Process;
use crate::harness::shell::Shell;
use crate::harness::{Cluster, eventually};

/// The id of a new lease.
fn grant(cluster: &Cluster, number: usize, tag: &str, ttl: &str) -> String {
    let body = json!({ "ttl": ttl, "tag": tag }).to_string();
    let answer = cluster.send(number, "POST /v1/leases", &[], body.as_bytes());
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// The fence of a lock that is acquired at once.
fn acquire(cluster: &Cluster, number: usize, name: &str, lease: &str) -> u64 {
    let body = json!({ "lease": lease, "value": format!("node {number}") }).to_string();
    let answer = cluster.send(number, &format!("POST /v1/locks/{name}/acquire"), &[], body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["fence"].as_u64().expect("a fence")
}

fn lock(cluster: &Cluster, number: usize, name: &str) -> Value {
    let answer = cluster.get(number, &format!("/v1/locks/{name}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// The leases in the queue of a lock.
fn queue(cluster: &Cluster, number: usize, name: &str) -> Vec<String> {
    let lock = lock(cluster, number, name);
    let waiters = lock["queue"].as_array().expect("a queue");
    waiters.iter().map(|waiter| waiter["lease"].as_str().expect("a lease").to_owned()).collect()
}

/// A connection with a request that waits for a lock.
fn wait_for(cluster: &Cluster, number: usize, name: &str, lease: &str) -> Raw {
    let body = json!({ "lease": lease, "wait": "24h" }).to_string();
    let mut raw = Raw::connect(cluster.address(number)).expect("a connection");
    let head = format!("POST /v1/locks/{name}/acquire HTTP/1.1\r\nhost: localhost\r\n");
    raw.write(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).expect("a request");
    raw
}

/// The fence that a waiting request is answered with.
fn fence_of(raw: &mut Raw) -> u64 {
    let (status, body) = raw.read().expect("an answer");
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    let answer: Value = serde_json::from_slice(&body).expect("JSON");
    answer["fence"].as_u64().expect("a fence")
}

/// The node that leads the shard of a key.
fn leader_of(cluster: &Cluster, key: &str) -> usize {
    eventually("the shard has a leader", || {
        cluster.numbers().into_iter().find(|&number| {
            let answer = cluster.try_send(number, &format!("GET /v1/keys/{key}"), &[], b"");
            answer.is_some_and(|answer| answer.status != 503 && answer.leader.is_none())
        })
    })
}

#[test]
fn a_lock_stays_with_its_holder_when_the_leader_is_killed() {
    let mut cluster = Cluster::start(3);
    let holder = grant(&cluster, 1, "jobs", "60s");
    let waiter = grant(&cluster, 2, "jobs", "60s");
    let fence = acquire(&cluster, 1, "jobs", &holder);
    let leader = leader_of(&cluster, "jobs");
    let [first, second] = [1, 2].map(|offset| (leader - 1 + offset) % 3 + 1);
    let mut waiting = wait_for(&cluster, first, "jobs", &waiter);
    eventually("the waiter is queued", || {
        (queue(&cluster, second, "jobs") == [waiter.as_str()]).then_some(())
    });
    cluster.kill(leader);
    // The holder renews, and its fence holds, as soon as there is a leader again.
    let renewed =
        cluster.send(second, "POST /v1/leases/renew", &[], json!({ "ids": [holder] }).to_string().as_bytes());
    assert!(renewed.json()["leases"][0]["valid_for_ms"].as_u64() > Some(50_000), "{}", renewed.text());
    let found = lock(&cluster, second, "jobs");
    assert_eq!((&found["holder"]["lease"], found["holder"]["fence"].as_u64()), (&json!(holder), Some(fence)));
    assert_eq!(queue(&cluster, first, "jobs"), [waiter.as_str()]);
    let guard = format!("If-Fence: jobs={fence}");
    assert_eq!(cluster.send(first, "PUT /v1/keys/%7Bjobs%7Ddone", &[&guard], b"1").status, 201);

    // The next in the queue gets the lock, with a higher fence, and the first one is refused.
    let release = json!({ "lease": holder }).to_string();
    assert_eq!(cluster.send(second, "POST /v1/locks/jobs/release", &[], release.as_bytes()).status, 204);
    let next = fence_of(&mut waiting);
    assert!(next > fence, "{next} after {fence}");
    let stale = cluster.send(second, "PUT /v1/keys/%7Bjobs%7Ddone", &[&guard], b"stale");
    assert!(stale.status == 412 && stale.is_problem("stale-fence"), "{}", stale.text());
    cluster.restart(leader);
    let guard = format!("If-Fence: jobs={next}");
    assert_eq!(cluster.send(leader, "PUT /v1/keys/%7Bjobs%7Ddone", &[&guard], b"2").status, 200);
}

#[test]
fn waiters_get_the_lock_in_their_order_at_every_node() {
    let cluster = Cluster::start(3);
    let leases: Vec<String> = (0..7).map(|number| grant(&cluster, number % 3 + 1, "a", "10m")).collect();
    let mut fence = acquire(&cluster, 1, "a", &leases[0]);
    let mut waiting = vec![];
    for (place, lease) in leases.iter().enumerate().skip(1) {
        waiting.push(wait_for(&cluster, place % 3 + 1, "a", lease));
        eventually("it is queued", || (queue(&cluster, 1, "a").len() == place).then_some(()));
    }
    assert_eq!(queue(&cluster, 3, "a"), leases[1..]);
    for (place, holder) in leases.iter().take(6).enumerate() {
        let body = json!({ "lease": holder }).to_string();
        assert_eq!(cluster.send(2, "POST /v1/locks/a/release", &[], body.as_bytes()).status, 204);
        let next = fence_of(&mut waiting[place]);
        assert!(next > fence, "{next} after {fence}");
        assert_eq!(lock(&cluster, 3, "a")["holder"]["lease"], json!(leases[place + 1]));
        fence = next;
    }
    assert_eq!(queue(&cluster, 1, "a"), Vec::<String>::new());
}

#[test]
fn a_waiter_whose_connection_dies_leaves_the_queue() {
    let mut cluster = Cluster::start(3);
    let holder = grant(&cluster, 1, "jobs", "10m");
    acquire(&cluster, 1, "jobs", &holder);
    for number in cluster.numbers() {
        let waiter = grant(&cluster, number, "jobs", "10m");
        let waiting = wait_for(&cluster, number, "jobs", &waiter);
        eventually("it is queued", || (queue(&cluster, 1, "jobs") == [waiter.as_str()]).then_some(()));
        drop(waiting);
        eventually("it has left", || queue(&cluster, 1, "jobs").is_empty().then_some(()));
    }
    // Its lease ends, if neither it nor its node can say that it has gone.
    let serving = leader_of(&cluster, "jobs") % 3 + 1;
    let other = serving % 3 + 1;
    let waiter = grant(&cluster, serving, "jobs", "2s");
    let _waiting = wait_for(&cluster, serving, "jobs", &waiter);
    eventually("it is queued", || (queue(&cluster, other, "jobs") == [waiter.as_str()]).then_some(()));
    cluster.kill(serving);
    eventually("it has left", || queue(&cluster, other, "jobs").is_empty().then_some(()));
    assert_eq!(lock(&cluster, other, "jobs")["holder"]["lease"], json!(holder));
    // A request that waits is told that its lease has ended.
    let short = grant(&cluster, other, "jobs", "1s");
    let mut waiting = wait_for(&cluster, other, "jobs", &short);
    let (status, body) = waiting.read().expect("an answer");
    assert_eq!(status, 404, "{}", String::from_utf8_lossy(&body));
}

/// A command that holds a lock, with pipes.
fn locked(shell: &Shell, options: &[&str], script: &str) -> Process {
    let mut command = shell.command(&[&["lock", "jobs"], options, &["--", "sh", "-c", script]].concat());
    let path = std::env::var("PATH").unwrap_or_default();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tidelock"));
    command.env("PATH", format!("{}:{path}", binary.parent().expect("a directory").display()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Process::start(&mut command)
}

/// The holder is paused while its command goes on: the lease ends, the next holder writes, and the
/// write of the first one is refused. When the holder goes on, its command is killed.
#[test]
fn a_paused_holder_is_refused() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let script = "echo $TIDELOCK_FENCE; read line; \
                  tidelock kv put '{jobs}done' first --fence jobs=$TIDELOCK_FENCE 2>&1; echo; sleep 1000";
    let mut first = locked(&shell, &["--ttl", "5s"], script);
    let lines = first.lines();
    let fence: u64 = lines.next_line().parse().expect("a fence");
    assert_eq!(lock(&cluster, 2, "jobs")["holder"]["fence"].as_u64(), Some(fence));
    first.signal(Signal::STOP);

    let script = "tidelock kv put '{jobs}done' second --fence jobs=$TIDELOCK_FENCE && echo $TIDELOCK_FENCE";
    let second = locked(&shell, &["--value", "second"], script).output();
    assert!(second.status.success(), "{second:?}");
    let written = String::from_utf8_lossy(&second.stdout).lines().last().and_then(|line| line.parse().ok());
    assert!(written > Some(fence), "{second:?}");

    first.stdin.take().expect("a pipe").write_all(b"go on\n").expect("it reads");
    let mut said = String::new();
    while !said.contains("412") {
        said += &lines.next_line();
    }
    assert!(said.contains("Stale fence"), "{said}");
    assert_eq!(shell.done(&["kv", "get", "{jobs}done"]), b"second");
    first.signal(Signal::CONT);
    let ended = first.output();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("the command was killed"), "{ended:?}");
}

#[test]
fn the_command_passes_on_codes_and_signals_and_shows_who_holds() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let done = locked(&shell, &[], "test -n \"$TIDELOCK_LEASE\" && exit 7").output();
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    assert!(done.stderr.is_empty(), "{done:?}");
    assert_eq!(shell.done(&["lock", "jobs", "--show"]), b"nobody holds the lock\n");

    let mut holder =
        locked(&shell, &["--value", "host-1"], "trap 'kill $!; exit 3' TERM; echo held; sleep 1000 & wait");
    assert_eq!(holder.lines().next_line(), "held");
    let shown = String::from_utf8(shell.done(&["lock", "jobs", "--show"])).expect("text");
    assert!(shown.contains("host-1") && shown.contains("fence "), "{shown}");
    let value = shell.json(&["lock", "jobs", "--show"])["holder"]["value"].clone();
    assert_eq!(value, "host-1");
    assert_eq!(
        shell.done(&["kv", "get", "jobs"]),
        b"host-1",
        "the lock is a key with the value of its holder"
    );
    let refused = shell.failed(&["lock", "jobs", "--wait", "0s", "--", "true"]);
    assert!(refused.contains("409") && refused.contains("Lock held"), "{refused}");
    assert!(shell.failed(&["kv", "put", "jobs", "x"]).contains("Lock held"));

    // A lease that is revoked ends the command, and the lock passes on.
    let mut next = locked(&shell, &["--value", "host-2"], "echo held; read line");
    // While it is open, the command does not end by itself.
    let _input = next.stdin.take();
    eventually("it waits", || (queue(&cluster, 1, "jobs").len() == 1).then_some(()));
    holder.signal(Signal::TERM);
    assert_eq!(holder.wait().expect("it ends").code(), Some(3));
    assert_eq!(next.lines().next_line(), "held");
    let lease = shell.json(&["lock", "jobs", "--show"])["holder"]["lease"].clone();
    let lease = lease.as_str().expect("a lease");
    let shown = shell.json(&["lease", "show", lease]);
    assert_eq!(shown["held"], json!([{ "key": "jobs" }]));
    assert_eq!(shell.done(&["lease", "revoke", lease]), b"revoked\n");
    let ended = next.output();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("the lease has ended"), "{ended:?}");
    let missing = shell.run(&["lock", "jobs", "--", "/does/not/exist"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    assert_eq!(lock(&cluster, 1, "jobs")["holder"], Value::Null);
}

/// If `tidelock lock` or its guard is killed, the command and all processes that it has started are
/// killed.
#[test]
fn the_command_of_a_killed_holder_is_killed() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let mut holder = locked(&shell, &["--ttl", "1s"], "sleep 1000 & echo held; wait");
    assert_eq!(holder.lines().next_line(), "held");
    holder.signal(Signal::KILL);
    // Returns once every process that inherited its standard error has ended.
    assert!(!holder.output().status.success());
    let next = locked(&shell, &[], "echo next").output();
    assert!(next.status.success(), "{next:?}");
    assert_eq!(next.stdout, b"next\n");

    // Only the guard is killed, the parent of the command.
    let mut holder = locked(&shell, &[], "sleep 1000 & echo $PPID; wait");
    let guard = Pid::from_raw(holder.lines().next_line().parse().expect("a number")).expect("a process");
    kill_process(guard, Signal::KILL).expect("it runs");
    assert_eq!(holder.output().status.code(), Some(137));

    // A guard refuses to start the command if its parent is not the holder.
    let refused = shell.failed(&["lock", "jobs", "--holder", "1", "--", "true"]);
    assert!(refused.contains("the command was not started"), "{refused}");
}

/// Without a leader, no lease is granted: the command asks again until there is one.
#[test]
fn a_lock_is_waited_for_while_there_is_no_leader() {
    let cluster = Cluster::start(3);
    let others = [2, 3];
    others.iter().for_each(|number| cluster.signal(*number, Signal::STOP));
    let mut holder = locked(&Shell::by_way_of(&cluster, &[1]), &[], "echo held");
    eventually("a lease was refused", || {
        let metrics = cluster.get(1, "/metrics").text();
        metrics.lines().any(|line| line.contains("method=\"write\",status=\"5xx\"")).then_some(())
    });
    others.iter().for_each(|number| cluster.signal(*number, Signal::CONT));
    assert_eq!(holder.lines().next_line(), "held");
    assert!(holder.wait().expect("it ends").success());
}

/// An election is a lock whose value names the candidate, and observing it is a watch of its key.
#[test]
fn an_election_is_observed_by_a_watch() {
    let mut cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let mut watch = shell.command(&["watch", "jobs", "--key", "--state", "--output", "json"]);
    let mut watch = Process::start(watch.stdout(Stdio::piped()));
    let lines = watch.lines();
    let leader = || loop {
        let change: Value = serde_json::from_str(&lines.next_line()).expect("JSON");
        // Between two leaders, nobody may lead.
        if change["deleted"] != true {
            return change["val"].as_str().expect("a value").to_owned();
        }
    };
    let mut candidates: Vec<(String, Process)> = ["a", "b", "c"]
        .map(|name| (name.to_owned(), locked(&shell, &["--value", name], "sleep 1000")))
        .into();
    let mut led: Vec<String> = vec![];
    let chief = cluster.chief();
    for round in 0..3 {
        let mut elected = leader();
        // A node that has not kept the changes has the watcher begin with the present state.
        while led.last() == Some(&elected) {
            elected = leader();
        }
        assert!(!led.contains(&elected), "{elected} led before");
        let position = candidates.iter().position(|(name, _)| *name == elected).expect("a candidate");
        let (_, mut candidate) = candidates.remove(position);
        if round == 1 {
            cluster.kill(chief);
        }
        // Its command must not outlive it: the shell gets no signal that it could pass on.
        candidate.signal(Signal::TERM);
        candidate.wait().expect("it ends");
        led.push(elected);
    }
}

/// Ten thousand leases of all shards are renewed by one request, also after a leader was killed and
/// while their slots move.
#[test]
fn ten_thousand_leases_are_renewed_at_once() {
    const LEASES: usize = 10_000;
    const CLIENTS: usize = 8;
    let mut cluster = Cluster::start(3);
    let grant_some = |client: usize| -> Vec<String> {
        let mut raw = Raw::connect(cluster.address(client % 3 + 1)).expect("a connection");
        let body = r#"{"ttl":"1h"}"#;
        let head = "POST /v1/leases HTTP/1.1\r\nhost: localhost\r\n";
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let mut granted = vec![];
        while granted.len() < LEASES / CLIENTS {
            raw.write(request.as_bytes()).expect("a request");
            let (status, body) = raw.read().expect("an answer");
            // An election under load is no failure.
            if status == 503 {
                continue;
            }
            let answer: Value = serde_json::from_slice(&body).expect("JSON");
            granted.push(answer["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned());
        }
        granted
    };
    let leases: BTreeSet<String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || grant_some(client))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("granted")).collect()
    });
    assert_eq!(leases.len(), LEASES, "every id is another one");
    let body = json!({ "ids": leases }).to_string();
    let renew = |cluster: &Cluster, number: usize| {
        let answer = cluster.send(number, "POST /v1/leases/renew", &[], body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        let renewed = answer["leases"].as_array().expect("leases");
        assert_eq!(renewed.len(), LEASES);
        renewed.iter().filter(|lease| lease["valid_for_ms"].as_u64() > Some(3_500_000)).count()
    };
    assert_eq!(renew(&cluster, 1), LEASES);
    let chief = cluster.chief();
    cluster.kill(chief);
    let other = chief % 3 + 1;
    eventually("all are renewed", || (renew(&cluster, other) == LEASES).then_some(()));
    let page = cluster.get(other, "/v1/leases?limit=1000").json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1_000));
    cluster.restart(chief);
    let shell = Shell::of(&cluster);
    shell.done(&["cluster", "add-shard"]);
    let rebalance = cluster.send(other, "POST /v1/cluster/rebalance", &[], b"").json();
    let moves = format!("/v1/cluster/moves?until={}", rebalance["last"]);
    eventually("the slots have moved", || {
        // Frozen slots delay a renewal, but no lease is lost and none is refused for its slot.
        let answer = cluster.try_send(other, "POST /v1/leases/renew", &[], body.as_bytes())?;
        for lease in answer.json()["leases"].as_array().into_iter().flatten() {
            let problem = lease["problem"].as_str().unwrap_or("no-leader");
            assert!(matches!(problem, "no-leader" | "unknown-outcome" | "overloaded"), "{lease}");
        }
        (cluster.get(other, &moves).json()["done"] == true).then_some(())
    });
    eventually("all are renewed", || (renew(&cluster, chief) == LEASES).then_some(()));
}

#[test]
fn keys_end_with_their_lease_and_commands_manage_it() {
    let cluster = Cluster::start(3);
    let shell = Shell::of(&cluster);
    let text = |output: Vec<u8>| String::from_utf8(output).expect("text").trim().to_owned();
    let lease = text(shell.done(&["lease", "grant", "--ttl", "2s", "--tag", "web"]));
    assert!(lease.starts_with("{web}:"), "{lease}");
    let mut keep = shell.command(&["lease", "keep", &lease]);
    let keep = Process::start(keep.stderr(Stdio::piped()));
    shell.done(&["kv", "put", "{web}/a", "up", "--lease", &lease]);
    for number in cluster.numbers() {
        let shown = cluster.get(number, &format!("/v1/leases/{lease}")).json();
        assert_eq!(shown["keys"], json!([{ "key": "{web}/a" }]));
    }
    let renewed = text(shell.done(&["lease", "renew", &lease]));
    assert!(renewed.starts_with(&format!("{lease}  valid for ")), "{renewed}");
    let listed = text(shell.done(&["lease", "list", "--tag", "web"]));
    assert!(listed.contains(&lease), "{listed}");
    assert_eq!(shell.done(&["kv", "get", "{web}/a"]), b"up");
    // Nobody renews it any more.
    keep.end();
    eventually("the key has gone", || {
        (shell.run(&["kv", "get", "{web}/a"]).status.code() == Some(3)).then_some(())
    });
    let ended = shell.run(&["lease", "renew", &lease]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stdout).contains("no-such-lease"), "{ended:?}");
    let random = shell.json(&["lease", "grant", "--ttl", "1m"]);
    assert_eq!(
        (random["ttl_ms"].as_u64(), random["id"].as_str().map(str::len) > Some(10)),
        (Some(60_000), true)
    );
    let mut ended = shell.command(&["lease", "keep", &lease]);
    assert_eq!(ended.output().expect("it ends").status.code(), Some(3));
}
