//! Clients of HTTP: they increment counters with optimistic locks, read them on any node, and list
//! keys.

use std::collections::BTreeMap;
use std::thread;

use super::super::PAUSE;
use super::super::client::Raw;
use super::{COUNTERS, Load, Nodes, listed, object};

/// Keys on a page: so few that a list takes several.
const PAGE: usize = 37;

/// The result of a request.
enum Sent {
    /// The node answered.
    Answer(u16, Vec<u8>),
    /// It was not sent.
    Not,
    /// It was sent, and the connection broke.
    Perhaps,
}

/// A connection to each node.
struct Connections<'a, 'b> {
    load: &'a Load<'b>,
    open: Vec<Option<Raw>>,
    random: fastrand::Rng,
}

impl<'a, 'b> Connections<'a, 'b> {
    fn new(load: &'a Load<'b>, seed: u64) -> Connections<'a, 'b> {
        let open = load.addresses.iter().map(|_| None).collect();
        Connections { load, open, random: fastrand::Rng::with_seed(seed) }
    }

    /// Any node.
    fn any(&mut self) -> usize {
        self.random.usize(..self.open.len())
    }

    /// One request, sent once.
    fn send(&mut self, node: usize, request: &str) -> Sent {
        if self.open[node].is_none() {
            self.open[node] = Raw::connect(self.load.addresses[node]).ok();
        }
        let Some(connection) = &mut self.open[node] else {
            // A busy loop on a node that is down must not take processor time from the others.
            thread::sleep(PAUSE);
            return Sent::Not;
        };
        let request = format!("{request} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
        match connection.write(request.as_bytes()).and_then(|()| connection.read()) {
            Ok((status, body)) => Sent::Answer(status, body),
            Err(_) => {
                self.open[node] = None;
                Sent::Perhaps
            }
        }
    }

    /// The answer to a read, or `None` after any failure.
    fn get(&mut self, node: usize, target: &str) -> Option<Vec<u8>> {
        match self.send(node, &format!("GET {target}")) {
            Sent::Answer(200, body) => Some(body),
            Sent::Answer(503 | 504, _) | Sent::Not | Sent::Perhaps => None,
            Sent::Answer(status, body) => {
                panic!("{target} was answered {status}: {}", String::from_utf8_lossy(&body))
            }
        }
    }

    /// A linearizable read of a counter: its version and value.
    fn counter(&mut self, number: usize) -> Option<(u64, u64)> {
        let node = self.any();
        let newest = self.load.history.counter(number).newest;
        let (version, value) = object(&self.get(node, &format!("/counter/{number}"))?);
        let mut counter = self.load.history.counter(number);
        assert!(
            version >= newest,
            "counter {number}: version {version} was read where {newest} had been acknowledged or read before"
        );
        counter.saw(version, value);
        counter.newest = counter.newest.max(version);
        Some((version, value))
    }
}

/// Reads a counter on one node, and increments it on another if its version is unchanged.
pub(super) fn raise(load: &Load<'_>, own: usize) {
    let mut connections = Connections::new(load, own as u64);
    while load.goes_on() {
        let number = connections.random.usize(..COUNTERS);
        let Some((version, value)) = connections.counter(number) else { continue };
        let (node, raised) = (connections.any(), value + 1);
        let sent = connections.send(node, &format!("PUT /counter/{number}?val={raised}&ver={version}"));
        match sent {
            Sent::Answer(200, body) => {
                let (version, value) = object(&body);
                assert_eq!(value, raised);
                load.history.counter(number).acknowledge(version, value);
                load.progress("raise");
            }
            // Another client was faster, or nothing was done.
            Sent::Answer(409 | 503, _) | Sent::Not => {}
            Sent::Answer(504, _) | Sent::Perhaps => load.history.counter(number).unknown += 1,
            Sent::Answer(status, body) => {
                panic!("a raise was answered {status}: {}", String::from_utf8_lossy(&body))
            }
        }
    }
}

/// Reads counters on any node.
pub(super) fn read(load: &Load<'_>) {
    let mut connections = Connections::new(load, 100);
    while load.goes_on() {
        let number = connections.random.usize(..COUNTERS);
        if connections.counter(number).is_some() {
            load.progress("read");
        }
    }
}

/// Stale reads at one node: every result must be a known value, and not older than the one before.
pub(super) fn read_stale(load: &Load<'_>, node: usize) {
    let mut connections = Connections::new(load, 200 + node as u64);
    let mut last: BTreeMap<usize, u64> = BTreeMap::new();
    while load.goes_on() {
        let number = connections.random.usize(..COUNTERS);
        let target = format!("/counter/{number}?stale=true");
        let body = match connections.send(node, &format!("GET {target}")) {
            Sent::Answer(200, body) => body,
            Sent::Answer(503 | 504, _) | Sent::Not | Sent::Perhaps => continue,
            // A node that has just started does not know its commit index yet.
            Sent::Answer(404, _) if load.nodes == Nodes::Change => continue,
            Sent::Answer(status, _) => panic!("{target} was answered {status}"),
        };
        let (version, value) = object(&body);
        load.history.counter(number).saw(version, value);
        let last = last.entry(number).or_default();
        assert!(load.nodes == Nodes::Change || version >= *last, "counter {number}: {version} behind {last}");
        *last = version;
        load.progress("stale read");
    }
}

/// Lists keys page by page, each page on any node.
pub(super) fn list(load: &Load<'_>, is_stale: bool) {
    let mut connections = Connections::new(load, 300 + u64::from(is_stale));
    let expected = listed();
    while load.goes_on() {
        let mut found: Vec<String> = Vec::new();
        let is_whole = loop {
            let node = connections.any();
            let after = found.last().map(|key| format!("&after={key}")).unwrap_or_default();
            let target = format!("/v1/keys?prefix=listed/&limit={PAGE}&keys=true&stale={is_stale}{after}");
            let Some(body) = connections.get(node, &target) else {
                if load.goes_on() {
                    continue;
                }
                break false;
            };
            let page: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            let items = page["items"].as_array().expect("items");
            let keys = items.iter().map(|item| item["key"].as_str().expect("a key").to_owned());
            found.extend(keys);
            if page["next"].is_null() {
                break true;
            }
        };
        if !is_whole {
            return;
        }
        if is_stale && load.nodes == Nodes::Change {
            assert!(found.is_sorted() && found.iter().all(|key| expected.contains(key)), "{found:?}");
            found.dedup();
            assert!(found.len() <= expected.len());
        } else {
            assert_eq!(found, expected, "stale: {is_stale}");
        }
        load.progress(if is_stale { "stale list" } else { "list" });
    }
}
