//! A load of clients of every kind, whose observations are checked at once.
//!
//! Owns the shared keys, the known state of each, and the rules. [`http`] and [`pipelines`] send
//! the requests. No key is created or removed during the load, so a list, a count or a scan must be
//! complete.

mod http;
mod pipelines;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{Cluster, eventually};
use pipelines::Pipeline;

/// Number of counters that all HTTP clients increment.
const COUNTERS: usize = 48;

/// Number of keys that no client changes.
const LISTED: usize = 120;

/// Number of clients that increment counters.
const RAISERS: usize = 6;

/// Number of connections that send bursts.
const PIPELINES: usize = 2;

/// The observations of all loads of one cluster.
pub struct History {
    counters: Vec<Mutex<Counter>>,
    pipelines: Vec<Mutex<Pipeline>>,
    /// Number of successful requests, by kind of client.
    progress: BTreeMap<&'static str, AtomicUsize>,
    /// The violation that a client saw.
    is_wrong: AtomicBool,
}

/// The known state of one counter.
#[derive(Debug, Default)]
struct Counter {
    /// The value at each version that was read or acknowledged.
    values: BTreeMap<u64, u64>,
    /// The highest version that was acknowledged or seen by a linearizable read: no linearizable
    /// read that begins now may be older.
    newest: u64,
    /// Versions that were acknowledged.
    acknowledged: BTreeSet<u64>,
    /// Number of increments of unknown outcome.
    unknown: u64,
}

impl Counter {
    /// A version has one value, and later versions have higher ones.
    fn saw(&mut self, version: u64, value: u64) {
        let known = *self.values.entry(version).or_insert(value);
        assert_eq!(known, value, "version {version} has two values");
        let before = self.values.range(..version).next_back();
        let behind = self.values.range(version + 1..).next();
        assert!(before.is_none_or(|(_, before)| *before < value), "{value} at {version}, behind {before:?}");
        assert!(behind.is_none_or(|(_, behind)| *behind > value), "{value} at {version}, before {behind:?}");
    }

    fn acknowledge(&mut self, version: u64, value: u64) {
        self.saw(version, value);
        assert!(self.acknowledged.insert(version), "two raises were acknowledged as version {version}");
        self.newest = self.newest.max(version);
    }
}

/// What happens to the nodes during a load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// They all stay up, with all their replicas: their stale reads never go back in time.
    Stay,
    /// They die, join, or lose replicas.
    Change,
}

/// One load.
struct Load<'a> {
    history: &'a History,
    addresses: Vec<SocketAddr>,
    nodes: Nodes,
    over: AtomicBool,
}

impl History {
    /// Makes the keys.
    pub fn begin(cluster: &Cluster) -> History {
        let mut counters = Vec::new();
        for counter in 0..COUNTERS {
            let made = cluster.put(1, &format!("/counter/{counter}?val=0&ver=0"), b"");
            assert_eq!(made.status, 200, "{}", made.text());
            let mut known = Counter::default();
            let version = made.json()["ver"].as_u64().expect("a version");
            known.saw(version, 0);
            known.newest = version;
            counters.push(Mutex::new(known));
        }
        for key in listed() {
            // 504 during an election: storing the same value again is safe.
            eventually("the key is stored", || {
                let status = cluster.put(1, &format!("/v1/keys/{key}"), b"v").status;
                [200, 201].contains(&status).then_some(())
            });
        }
        let pipelines = (0..PIPELINES).map(Pipeline::new).collect::<Vec<_>>();
        pipelines.iter().for_each(|pipeline| pipeline.make_keys(cluster));
        for number in cluster.numbers() {
            eventually("every node has every key", || {
                let page =
                    cluster.get(number, &format!("/v1/keys?stale=true&keys=true&limit={}", keys() + 1));
                (page.json()["items"].as_array().map(Vec::len) == Some(keys())).then_some(())
            });
        }
        let kinds = ["raise", "read", "stale read", "list", "stale list", "pipeline", "count", "walk"];
        History {
            counters,
            pipelines: pipelines.into_iter().map(Mutex::new).collect(),
            progress: kinds.into_iter().map(|kind| (kind, AtomicUsize::new(0))).collect(),
            is_wrong: AtomicBool::new(false),
        }
    }

    /// Runs `during` while clients of every kind send requests to these nodes.
    pub fn under_load<T>(
        &self,
        addresses: Vec<SocketAddr>,
        nodes: Nodes,
        during: impl FnOnce(&History) -> T,
    ) -> T {
        let load = &Load { history: self, addresses, nodes, over: AtomicBool::new(false) };
        thread::scope(|scope| {
            let mut clients: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
            for own in 0..RAISERS {
                clients.push(Box::new(move || http::raise(load, own)));
            }
            clients.push(Box::new(move || http::read(load)));
            for node in 0..load.addresses.len() {
                clients.push(Box::new(move || http::read_stale(load, node)));
            }
            clients.push(Box::new(move || http::list(load, false)));
            clients.push(Box::new(move || http::list(load, true)));
            for pipeline in &self.pipelines {
                clients.push(Box::new(move || pipelines::send_bursts(load, pipeline)));
            }
            clients.push(Box::new(move || pipelines::count(load)));
            clients.push(Box::new(move || pipelines::walk(load)));
            for client in clients {
                // A client that found a violation stops the others, and the test.
                scope.spawn(move || {
                    let _over = Over { over: &load.over, is_wrong: &self.is_wrong };
                    client();
                });
            }
            let _over = Over { over: &load.over, is_wrong: &self.is_wrong };
            during(self)
        })
    }

    /// Waits until clients of every kind have so many more answers.
    pub fn await_progress(&self, more: usize) {
        for (kind, progress) in &self.progress {
            let target = progress.load(Ordering::Relaxed) + more;
            eventually(&format!("there is another {kind}"), || {
                assert!(!self.is_wrong.load(Ordering::Relaxed), "a client saw what must not be");
                (progress.load(Ordering::Relaxed) >= target).then_some(())
            });
        }
    }

    /// Checks the final values at a node: every acknowledged increment counts once, and every one
    /// of unknown outcome at most once.
    pub fn check_end(&self, cluster: &Cluster, node: usize) {
        for (number, counter) in self.counters.iter().enumerate() {
            let read = cluster.get(node, &format!("/counter/{number}"));
            let (version, value) = object(&read.body);
            let mut counter = lock(counter);
            counter.saw(version, value);
            assert!(version >= counter.newest, "counter {number} is older than what was acknowledged");
            let acknowledged = counter.acknowledged.len() as u64;
            assert!(
                (acknowledged..=acknowledged + counter.unknown).contains(&value),
                "counter {number} holds {value} on node {node}: {acknowledged} acknowledged, {} unknown",
                counter.unknown
            );
        }
        let raised: usize = self.counters.iter().map(|counter| lock(counter).acknowledged.len()).sum();
        assert!(raised > 0, "the load did nothing");
        self.pipelines.iter().for_each(|pipeline| lock(pipeline).check_end(cluster, node));
    }

    fn counter(&self, number: usize) -> MutexGuard<'_, Counter> {
        lock(&self.counters[number])
    }
}

impl Load<'_> {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn progress(&self, kind: &str) {
        self.history.progress[kind].fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the load when it is dropped.
struct Over<'a> {
    over: &'a AtomicBool,
    is_wrong: &'a AtomicBool,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.is_wrong.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

/// The names of the keys that no client changes, in order.
fn listed() -> Vec<String> {
    (0..LISTED).map(|number| format!("listed/{number:03}")).collect()
}

/// How many keys there are.
pub fn keys() -> usize {
    COUNTERS + LISTED + PIPELINES * pipelines::KEYS
}

/// A panic of one client must not hide the violation that another one found.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Version and value of an object of the kv1 dialect.
fn object(body: &[u8]) -> (u64, u64) {
    let object: serde_json::Value = serde_json::from_slice(body)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(body)));
    let value = object["val"].as_str().and_then(|value| value.parse().ok());
    (object["ver"].as_u64().expect("a version"), value.expect("a counter"))
}
