//! Removing all keys through whole nodes.

use super::*;
use crate::command::FlushReply;
use crate::slots::slot_set::SlotSet;
use crate::version::ClusterVersion;

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn filled() -> Cluster {
    let version = ClusterVersion::NEWEST;
    let mut cluster = Cluster::with(3, |options| NodeOptions {
        data_shards: 3,
        founding_version: version,
        version,
        ..options
    });
    cluster.tick(100);
    for key in KEYS {
        assert!(wrote(&cluster.answer(1, put(key, "v", Condition::Always))));
    }
    cluster
}

#[test]
fn every_shard_removes_its_keys() {
    let mut cluster = filled();
    for node in 1..=3 {
        let Reply::Flushed(FlushReply::Complete(revisions)) = cluster.answer(node, Request::Flush) else {
            panic!("every shard has a leader")
        };
        assert_eq!(revisions.slots(), SlotSet::all());
        for key in KEYS {
            assert_eq!(cluster.answer(4 - node, get(key)), Reply::Read(ReadReply::Value(None)));
            let Reply::Write(WriteReply::Operations(replies)) =
                cluster.answer(node, put(key, "w", Condition::Always))
            else {
                panic!("a put")
            };
            let Some(OperationReply::Written { version, created: true }) = replies.only() else {
                panic!("the key did not exist")
            };
            assert!(
                revisions.of(crate::slots::slot_of(key.as_bytes())).is_some_and(|flushed| flushed < version)
            );
        }
    }
}

#[test]
fn without_a_majority_nothing_is_removed() {
    let mut cluster = filled();
    cluster.kill(2);
    cluster.kill(3);
    let asked = cluster.ask(1, Request::Flush);
    cluster.tick(REQUEST_TICKS + 1);
    // Writes that a leader has proposed may take effect later.
    let refused = [Refusal::NoLeader, Refusal::UnknownOutcome].map(Reply::Refused);
    assert!(refused.contains(&cluster.replies[&asked]), "{:?}", cluster.replies[&asked]);
}

#[test]
fn an_older_cluster_refuses_it() {
    let mut cluster = Cluster::elected(3);
    let refused = cluster.answer(1, Request::Flush);
    assert_eq!(refused, Reply::Refused(Refusal::VersionTooLow));
}
