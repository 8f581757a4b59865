//! `kill -9` in every combination: what was acknowledged stays, what was refused never comes, and the cluster serves
//! again as soon as a majority is there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::harness::client::Raw;
use crate::harness::{Cluster, eventually};

/// Connections of the load.
const WRITERS: usize = 64;

/// Keys of each writer. Each holds a counter that only its writer raises.
const KEYS_PER_WRITER: usize = 4;

/// What a writer knows of one of its keys.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// The last value that a node was asked to store. It may be there, acknowledged or not.
    attempted: u64,
    /// The last value whose storing was acknowledged. Nothing older may ever be read.
    acknowledged: u64,
}

/// Unconditional writes from [`WRITERS`] connections, over all nodes, through anything that happens to them.
struct Load<'a> {
    addresses: Vec<SocketAddr>,
    acknowledged: &'a AtomicUsize,
    over: &'a AtomicBool,
}

impl Load<'_> {
    /// Writes until it is over; returns what must be found.
    fn write(&self, writer: usize) -> BTreeMap<String, Counter> {
        let mut counters: BTreeMap<String, Counter> =
            (0..KEYS_PER_WRITER).map(|key| (format!("load/{writer}/{key}"), Counter::default())).collect();
        let mut node = writer % self.addresses.len();
        let mut connection = None;
        while !self.over.load(Ordering::Relaxed) {
            for (key, counter) in &mut counters {
                counter.attempted += 1;
                let address = self.addresses[node];
                match self.write_once(&mut connection, address, key, counter.attempted) {
                    Some(200 | 201) => {
                        counter.acknowledged = counter.attempted;
                        self.acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(503 | 504) => {}
                    Some(status) => panic!("an unconditional write was answered {status}"),
                    None => {
                        connection = None;
                        node = (node + 1) % self.addresses.len();
                        thread::yield_now();
                    }
                }
            }
        }
        counters
    }

    fn write_once(
        &self,
        connection: &mut Option<Raw>,
        address: SocketAddr,
        key: &str,
        value: u64,
    ) -> Option<u16> {
        if connection.is_none() {
            *connection = Raw::connect(address).ok();
        }
        let connection = connection.as_mut()?;
        let value = value.to_string();
        let request = format!(
            "PUT /v1/keys/{key} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{value}",
            value.len()
        );
        connection.write(request.as_bytes()).ok()?;
        connection.read().ok().map(|(status, _)| status)
    }
}

/// Runs `during` while the load is on; returns what every key must hold.
fn under_load(addresses: Vec<SocketAddr>, during: impl FnOnce(&AtomicUsize)) -> BTreeMap<String, Counter> {
    let (acknowledged, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let load = Load { addresses, acknowledged: &acknowledged, over: &over };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let load = &load;
                    move || load.write(writer)
                })
            })
            .collect();
        // Ends the load even if `during` panics, else the scope would wait for ever.
        let _over = EndOnDrop(&over);
        during(&acknowledged);
        drop(_over);
        writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect()
    })
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn await_acknowledged(acknowledged: &AtomicUsize, more: usize) {
    let target = acknowledged.load(Ordering::Relaxed) + more;
    eventually("the load makes progress", || (acknowledged.load(Ordering::Relaxed) >= target).then_some(()));
}

fn assert_nothing_is_lost(cluster: &Cluster, reader: usize, counters: &BTreeMap<String, Counter>) {
    assert!(counters.values().any(|counter| counter.acknowledged > 0), "the load did nothing");
    for (key, counter) in counters {
        let read = cluster.get(reader, &format!("/v1/keys/{key}"));
        let value = match read.status {
            404 => 0,
            200 => read.text().parse().expect("a counter"),
            status => panic!("{key}: {status}"),
        };
        assert!(
            (counter.acknowledged..=counter.attempted).contains(&value),
            "{key} holds {value} on node {reader}, but {counter:?}"
        );
    }
}

fn addresses(cluster: &Cluster) -> Vec<SocketAddr> {
    cluster.numbers().into_iter().map(|number| cluster.address(number)).collect()
}

#[test]
fn kill_the_leader_under_load() {
    let mut cluster = Cluster::start(3);
    let chief = cluster.chief();
    let counters = under_load(addresses(&cluster), |acknowledged| {
        await_acknowledged(acknowledged, 1_000);
        cluster.kill(chief);
        // The service is back: far more is acknowledged than can have been on its way.
        await_acknowledged(acknowledged, 1_000);
        cluster.restart(chief);
        await_acknowledged(acknowledged, 200);
    });
    for reader in cluster.numbers() {
        assert_nothing_is_lost(&cluster, reader, &counters);
    }
}

#[test]
fn kill_all_under_load() {
    let mut cluster = Cluster::start(3);
    let counters = under_load(addresses(&cluster), |acknowledged| {
        await_acknowledged(acknowledged, 1_000);
        for number in cluster.numbers() {
            cluster.kill(number);
        }
        for number in cluster.numbers() {
            cluster.spawn(number);
        }
        await_acknowledged(acknowledged, 200);
    });
    for number in cluster.numbers() {
        cluster.wait_ready(number);
        assert_nothing_is_lost(&cluster, number, &counters);
    }
}

#[test]
fn kill_a_single_node_under_load() {
    let mut cluster = Cluster::start(1);
    let counters = under_load(addresses(&cluster), |acknowledged| {
        for _ in 0..2 {
            await_acknowledged(acknowledged, 500);
            cluster.kill(1);
            cluster.restart(1);
        }
        await_acknowledged(acknowledged, 100);
    });
    assert_nothing_is_lost(&cluster, 1, &counters);
}

#[test]
fn without_a_majority_a_stale_read_answers_and_a_linearizable_one_refuses() {
    let mut cluster = Cluster::start(3);
    for key in 0..8 {
        assert_eq!(cluster.put(1, &format!("/v1/keys/k{key}"), b"before").status, 201);
    }
    // Node 3 answers linearizably, so it has applied all of that.
    for key in 0..8 {
        assert_eq!(cluster.get(3, &format!("/v1/keys/k{key}")).text(), "before");
    }
    cluster.kill(1);
    cluster.kill(2);
    for key in 0..8 {
        let path = format!("/v1/keys/k{key}");
        let stale = cluster.try_send(3, &format!("GET {path}?stale=true"), &[], b"").expect("an answer");
        assert_eq!((stale.status, stale.text()), (200, "before".to_owned()));
    }
    let refused = cluster.try_send(3, "GET /v1/keys/k0", &[], b"").expect("an answer by the deadline");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.is_problem("no-leader"), "{}", refused.text());
    eventually("node 3 says that it is not ready", || (!cluster.is_ready(3)).then_some(()));
    let alive = cluster.try_send(3, "GET /livez", &[], b"").expect("an answer");
    assert_eq!(alive.status, 200);

    cluster.restart(2);
    assert_eq!(cluster.get(3, "/v1/keys/k0").text(), "before");
    assert_eq!(cluster.put(3, "/v1/keys/k0", b"after").status, 200);
}

#[test]
fn a_write_that_was_refused_never_happens() {
    let mut cluster = Cluster::start(3);
    let chief = cluster.chief();
    let others: Vec<usize> = cluster.numbers().into_iter().filter(|&number| number != chief).collect();
    for &other in &others {
        cluster.kill(other);
    }
    // The first ones may reach a leader that does not know yet that it is alone: their outcome is open, and it
    // says so. Later ones are refused.
    let mut refused = vec![];
    eventually("a write is refused", || {
        let key = format!("/v1/keys/refused/{}", refused.len());
        let answer =
            cluster.try_send(chief, &format!("PUT {key}"), &[], b"x").expect("an answer by the deadline");
        match answer.status {
            503 => assert!(answer.is_problem("no-leader"), "{}", answer.text()),
            504 => assert!(answer.is_problem("unknown-outcome"), "{}", answer.text()),
            status => panic!("{status} without a majority: {}", answer.text()),
        }
        refused.push((key, answer.status));
        (refused.iter().filter(|(_, status)| *status == 503).count() >= 2).then_some(())
    });
    for &other in &others {
        cluster.spawn(other);
    }
    for number in cluster.numbers() {
        cluster.wait_ready(number);
    }
    for (key, status) in refused {
        let read = cluster.get(others[0], &key).status;
        assert!(read == 404 || status == 504, "{key} was refused, and is there");
    }
}
