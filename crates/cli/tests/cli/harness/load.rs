//! A load of writes from many connections, and the check that no acknowledged one is lost.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::client::Raw;
use super::{Cluster, eventually};

/// Connections of the load.
const WRITERS: usize = 64;

/// Keys of each writer. Each holds a counter that only its writer increments.
const KEYS_PER_WRITER: usize = 4;

/// A writer's knowledge of one of its keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    /// The last value that was sent, acknowledged or not.
    attempted: u64,
    /// The last acknowledged value. No older one may ever be read.
    acknowledged: u64,
}

/// Unconditional writes from [`WRITERS`] connections, over all nodes, with retries after failures.
struct Load<'a> {
    addresses: Vec<SocketAddr>,
    acknowledged: &'a AtomicUsize,
    over: &'a AtomicBool,
}

impl Load<'_> {
    /// Writes until the load ends; returns the expected state.
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
            "PUT /v1/keys/{key} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{value}",
            value.len()
        );
        connection.write(request.as_bytes()).ok()?;
        connection.read().ok().map(|(status, _)| status)
    }
}

/// Runs `during` under the load; returns the expected state of every key.
pub fn under_load(
    addresses: Vec<SocketAddr>,
    during: impl FnOnce(&AtomicUsize),
) -> BTreeMap<String, Counter> {
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
        // Ends the load even if `during` panics; otherwise the scope would never return.
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

/// Waits until so many more writes are acknowledged.
pub fn await_acknowledged(acknowledged: &AtomicUsize, more: usize) {
    let target = acknowledged.load(Ordering::Relaxed) + more;
    eventually("the load makes progress", || (acknowledged.load(Ordering::Relaxed) >= target).then_some(()));
}

/// Reads every counter on a node, and checks that none is older than the last acknowledged value.
pub fn assert_nothing_is_lost(cluster: &Cluster, reader: usize, counters: &BTreeMap<String, Counter>) {
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

/// The HTTP addresses of all nodes.
pub fn addresses(cluster: &Cluster) -> Vec<SocketAddr> {
    cluster.numbers().into_iter().map(|number| cluster.address(number)).collect()
}
