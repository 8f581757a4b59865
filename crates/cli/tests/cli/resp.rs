//! The Redis protocol of the shipped binary: acknowledged writes of a deep pipeline survive `kill
//! -9`, and the store is the same as over HTTP.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::harness::load::await_acknowledged;
use crate::harness::resp::{Client, address_of, cluster_address_of};
use crate::harness::{Cluster, eventually};

/// As `redis-benchmark -c 8 -P 512`.
const CONNECTIONS: usize = 8;
const PIPELINE: usize = 512;

/// Sets separate keys, `PIPELINE` at a time, through any node that answers, until it is told to
/// stop. Returns the numbers of the acknowledged ones.
fn set_many(own: usize, nodes: &[SocketAddr], stop: &AtomicBool, acknowledged: &AtomicUsize) -> Vec<usize> {
    let (mut done, mut next) = (Vec::new(), 0);
    for node in (own..).map(|turn| nodes[turn % nodes.len()]) {
        let Ok(mut client) = Client::connect(node) else {
            if stop.load(Ordering::Relaxed) {
                return done;
            }
            thread::yield_now();
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            let numbers = next..next + PIPELINE;
            next += PIPELINE;
            let burst: String =
                numbers.clone().map(|number| format!("SET w{own}:{number} {number}\r\n")).collect();
            if client.send(&burst).is_err() {
                break;
            }
            let mut is_broken = false;
            for number in numbers {
                match client.reply() {
                    Ok(reply) if reply == "+OK" => {
                        done.push(number);
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    // Refused or of unknown outcome: either way not acknowledged.
                    Ok(reply) => assert!(reply.starts_with('-'), "{reply}"),
                    Err(_) => {
                        is_broken = true;
                        break;
                    }
                }
            }
            if is_broken {
                break;
            }
        }
        if stop.load(Ordering::Relaxed) {
            return done;
        }
    }
    unreachable!("there is always another node to try")
}

#[test]
fn kill_the_leader_under_pipelined_load() {
    let mut cluster = Cluster::start(3);
    let nodes: Vec<SocketAddr> =
        cluster.numbers().iter().map(|number| address_of(cluster.address(*number))).collect();
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done: Vec<Vec<usize>> = thread::scope(|scope| {
        let load = |own| {
            let (nodes, stop, acknowledged) = (&nodes, &stop, &acknowledged);
            scope.spawn(move || set_many(own, nodes, stop, acknowledged))
        };
        let threads: Vec<_> = (0..CONNECTIONS).map(load).collect();
        await_acknowledged(&acknowledged, 50_000);
        let chief = cluster.chief();
        cluster.kill(chief);
        // The cluster serves again: far more writes are acknowledged than can have been in flight.
        await_acknowledged(&acknowledged, 50_000);
        cluster.restart(chief);
        await_acknowledged(&acknowledged, 20_000);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(done.iter().all(|numbers| !numbers.is_empty()));
    for (own, numbers) in done.iter().enumerate() {
        let mut client = Client::connect(nodes[own % nodes.len()]).unwrap();
        for numbers in numbers.chunks(PIPELINE) {
            let burst: String = numbers.iter().map(|number| format!("GET w{own}:{number}\r\n")).collect();
            client.send(&burst).unwrap();
            for number in numbers {
                assert_eq!(client.reply().unwrap(), number.to_string(), "w{own}:{number} was acknowledged");
            }
        }
    }
}

#[test]
fn keys_expire_for_every_interface_and_on_every_node() {
    let cluster = Cluster::start(3);
    let put = cluster.put(1, "/v1/keys/web?ttl=2s", b"value");
    assert_eq!(put.status, 201, "{}", put.text());
    let mut client = Client::connect(address_of(cluster.address(2))).unwrap();
    assert_eq!(client.ask("GET web"), "value");
    let left: u64 = client.ask("PTTL web").trim_start_matches(':').parse().unwrap();
    assert!(left <= 2_000, "{left} ms");
    assert_eq!(client.ask("SET redis value PX 1500"), "+OK");
    assert_eq!(client.ask("SET stays value EX 1000"), "+OK");
    assert_eq!(cluster.get(3, "/v1/keys/redis").text(), "value");
    for number in cluster.numbers() {
        for key in ["web", "redis"] {
            let is_gone = || (cluster.get(number, &format!("/v1/keys/{key}")).status == 404).then_some(());
            eventually("the key expires", is_gone);
        }
    }
    assert_eq!(client.ask("GET stays"), "value");
    assert_eq!(client.ask("INCR {register}a"), ":1");
    assert_eq!(cluster.get(1, "/v1/keys/%7Bregister%7Da").text(), "1");
}

/// The value of a field of `INFO`.
fn info(client: &mut Client, field: &str) -> String {
    let info = client.ask("INFO");
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {info}")).trim().to_owned()
}

/// The port and the role of each node, as one of them reports.
fn roles(client: &mut Client) -> BTreeSet<(u16, String)> {
    let nodes = client.ask("CLUSTER NODES");
    let role = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let port = fields[1].split(['@', ':']).nth(1)?.parse().ok()?;
        Some((port, fields[2].rsplit(',').next()?.to_owned()))
    };
    // Perhaps no node has registered its Redis Cluster address yet: then there are no nodes to
    // list.
    let lines =
        nodes.lines().filter(|line| !line.starts_with("-ERR This instance has cluster support disabled"));
    lines.map(|line| role(line).unwrap_or_else(|| panic!("{nodes}"))).collect()
}

#[test]
fn clients_of_redis_cluster_see_each_key_once_and_others_all_keys() {
    const KEYS: usize = 30;
    let cluster = Cluster::start(3);
    let connect = |address: SocketAddr| Client::connect(address).expect("the node takes connections");
    let addresses: Vec<SocketAddr> =
        cluster.numbers().iter().map(|number| cluster.address(*number)).collect();
    let mut plain: Vec<Client> = addresses.iter().map(|address| connect(address_of(*address))).collect();
    let mut masters: Vec<Client> =
        addresses.iter().map(|address| connect(cluster_address_of(*address))).collect();
    let keys: BTreeSet<String> = (0..KEYS).map(|number| format!("key:{number}")).collect();
    for (number, key) in keys.iter().enumerate() {
        // Refused while an election or a slow disk is in the way.
        eventually("the key is set", || {
            (masters[number % 3].ask(&format!("SET {key} v")) == "+OK").then_some(())
        });
    }
    for client in &mut plain {
        assert_eq!(client.ask_many("KEYS *").into_iter().collect::<BTreeSet<_>>(), keys);
        assert_eq!(client.ask("DBSIZE"), format!(":{KEYS}"));
        assert_eq!(client.ask("SCAN 0 COUNT 1000"), "*2");
        assert_eq!(client.reply().expect("a cursor"), "0");
        assert_eq!(client.reply().expect("a length"), format!("*{KEYS}"));
        (0..KEYS).for_each(|_| assert!(keys.contains(&client.reply().expect("a key"))));
        assert_eq!(
            (info(client, "redis_mode"), info(client, "role")),
            ("standalone".into(), "master".into())
        );
    }
    // A leadership may change between two answers, which then disagree.
    eventually("the masters share the keys, and everybody knows who they are", || {
        let listed: Vec<Vec<String>> = masters.iter_mut().map(|client| client.ask_many("KEYS *")).collect();
        let scanned: Vec<Vec<String>> = masters
            .iter_mut()
            .map(|client| {
                assert_eq!(client.ask("SCAN 0 COUNT 1000"), "*2");
                assert_eq!(client.reply().expect("a cursor"), "0");
                let count = client.reply().expect("a length");
                let count: usize = count.trim_start_matches('*').parse().expect("a number");
                (0..count).map(|_| client.reply().expect("a key")).collect()
            })
            .collect();
        let counted: usize = masters
            .iter_mut()
            .map(|client| client.ask("DBSIZE").trim_start_matches(':').parse::<usize>().expect("a number"))
            .sum();
        let own: BTreeSet<(u16, String)> = addresses
            .iter()
            .zip(&mut masters)
            .map(|(address, client)| (cluster_address_of(*address).port(), info(client, "role")))
            .collect();
        let told = |client: &mut Client| roles(client) == own && info(client, "redis_mode") == "cluster";
        let once = |keys_of: &[Vec<String>]| {
            let all: BTreeSet<&String> = keys_of.iter().flatten().collect();
            keys_of.iter().map(Vec::len).sum::<usize>() == KEYS && all.into_iter().eq(&keys)
        };
        let is_so = once(&listed) && once(&scanned) && counted == KEYS && masters.iter_mut().all(told);
        (is_so && plain.iter_mut().all(|client| roles(client) == own)).then_some(())
    });
}
