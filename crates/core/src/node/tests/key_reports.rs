//! Reports of changed keys through whole nodes.

use alloc::vec;

use bytes::Bytes;

use super::*;
use crate::auth::Caller;
use crate::command::{ChangedKeys, KeyScope};

/// The keys that a node has reported.
fn reported(cluster: &Cluster, node: u64) -> Vec<ChangedKeys> {
    let of_node = cluster.key_reports.iter().filter(|(from, _)| *from == node);
    of_node.map(|(_, report)| report.keys.clone()).collect()
}

#[test]
fn any_read_of_changes_begins_the_reports() {
    let read = Read::Changes { scope: KeyScope::Key("a".into()), after: None, limit: 1, keys_only: true };
    let mut cluster = Cluster::elected(3);
    assert!(wrote(&cluster.answer(1, put("a", "1", Condition::Always))));
    assert_eq!(cluster.key_reports, vec![], "nobody watches keys");
    cluster.nodes[1].read_stale(&Caller::Node, &read).expect("a replica is here");
    let linearizable = Request::Read { read, consistency: Consistency::Linearizable };
    cluster.answer(3, linearizable);
    assert!(wrote(&cluster.answer(1, put("a", "2", Condition::Always))));
    cluster.tick(1);
    let change = ChangedKeys::Keys(vec![Bytes::from_static(b"a")]);
    assert_eq!([1, 2, 3].map(|node| reported(&cluster, node)), [vec![], vec![change.clone()], vec![change]]);
}
