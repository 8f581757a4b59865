//! Imports of large documents beside other clients.

use crate::harness::load::{addresses, assert_nothing_is_lost, await_acknowledged, under_load};
use crate::harness::{Cluster, Options};

/// Imports one after the other, each of which changes every field.
const IMPORTS: usize = 6;

/// Writes of other clients that are awaited during each import.
const WRITES: usize = 64;

/// A container may have twice as many fields. Then each value could be longer, and the document
/// longer than a request may be.
const FIELDS: usize = 127;

/// Numbers of a field: in all fields together nearly the most values that one document may have
/// (`CONFIG_WRITE_VALUES_MAX`).
const NUMBERS: usize = 1_960;

/// A document of nearly five megabytes, which takes the most time to compare.
fn document(import: usize) -> String {
    let number = |position: usize| (1_000_000_000_000_000_000 + import * NUMBERS + position).to_string();
    let numbers = (0..NUMBERS).map(number).collect::<Vec<_>>().join(",");
    let fields = (0..FIELDS).map(|field| format!("\"f{field}\":[{numbers}]"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// Imports a document at a node; returns the revision of its container.
fn import_document(cluster: &Cluster, node: usize, import: usize) -> u64 {
    let request = "POST /api/namespaces/ns/containers/c/import?format=json&create=true";
    let imported = cluster.send(node, request, &[], document(import).as_bytes());
    assert_eq!(imported.status, 200, "{}", imported.text());
    imported.json()["data"]["revision"].as_u64().expect("a revision")
}

/// The term of each shard, as one node knows it.
fn terms(cluster: &Cluster) -> Vec<(u64, u64)> {
    let view = cluster.view(1);
    let shards = view["shards"].as_array().expect("a list of shards");
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    shards.iter().map(|shard| (number(&shard["id"]), number(&shard["term"]))).collect()
}

#[test]
fn imports_of_the_largest_document_cause_no_election() {
    // Five times the default. Beside other tests, a node may wait for a processor for longer than
    // the default, and then there is an election whatever it imports.
    let cluster = Cluster::start_with(3, &Options { flags: vec!["--election-timeout-ms", "5000"] });
    let node = cluster.chief();
    let before = terms(&cluster);
    let mut revision = 0;
    let counters = under_load(addresses(&cluster), |acknowledged| {
        for import in 0..IMPORTS {
            revision = import_document(&cluster, node, import);
            await_acknowledged(acknowledged, WRITES);
        }
    });
    assert_eq!(revision, IMPORTS as u64, "each import changed the container");
    assert_eq!(terms(&cluster), before, "no shard elected a leader");
    assert_nothing_is_lost(&cluster, node, &counters);
}

/// The processor times of two threads are compared with each other, so the speed of the machine
/// does not matter. The thread for documents takes 1.8 times as much as the worker on an idle
/// machine, 1.2 times beside three busy loops, and nothing if the worker does this work itself.
#[test]
fn large_documents_are_read_and_compared_beside_the_worker() {
    let cluster = Cluster::start(1);
    for import in 0..IMPORTS {
        import_document(&cluster, 1, import);
    }
    let [worker, documents] = ["tidelock", "documents"].map(|name| cluster.thread_ticks(1, name));
    assert!(2 * documents >= worker, "of the thread for documents {documents}, of the worker {worker}");
}
