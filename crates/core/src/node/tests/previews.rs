//! Previews of changes of configuration, and schemas, between whole nodes.

use alloc::vec;

use super::*;
use crate::command::config::{
    Change, ConfigOperation, ConfigReply, ConfigWritten, Item as ConfigItem, Name, Policy, Preview, Query,
    Schema, Stamp, Value,
};
use crate::command::{ConfigRead, ConfigWrite, Denial};
use crate::version::ClusterVersion;

fn cluster() -> Cluster {
    let version = ClusterVersion::WITH_SCHEMAS;
    let mut cluster =
        Cluster::with(3, |options| NodeOptions { founding_version: version, version, ..options });
    cluster.tick(100);
    cluster
}

fn publication(changes: Vec<Change>) -> ConfigOperation {
    ConfigOperation::Publish { changes, create: true }
}

fn put(number: i64) -> Change {
    Change::PutPair { key: "p".into(), value: Value::Int(number), retype: false }
}

fn write(operation: ConfigOperation) -> Request {
    let (namespace, stamp) = (Name::new("ns").expect("a name"), Stamp::default());
    Request::Write(ConfigWrite { namespace, stamp, expected: None, operation }.into())
}

fn preview(operation: ConfigOperation) -> Request {
    let query = Query::Preview(Preview { expected: None, operation }.into());
    let read = Read::Config(ConfigRead { namespace: Name::new("ns").expect("a name"), query });
    Request::Read { read, consistency: Consistency::Linearizable }
}

#[test]
fn any_node_answers_a_preview_and_nothing_changes() {
    let mut cluster = cluster();
    let written = |revision| Ok(ConfigWritten { revision, changed: true });
    let reply = cluster.answer(1, write(publication(vec![put(1)])));
    assert_eq!(reply, Reply::Write(WriteReply::Config(written(1))));
    for node in 1..=3 {
        match cluster.answer(node, preview(publication(vec![put(2)]))) {
            Reply::Read(ReadReply::Config(Ok(ConfigReply::Preview(shown)))) => {
                assert_eq!((shown.revision, shown.changed, shown.changes.len()), (1, true, 1));
            }
            other => panic!("{other:?}"),
        }
    }
    let reply = cluster.answer(2, write(publication(vec![put(2)])));
    assert_eq!(reply, Reply::Write(WriteReply::Config(written(2))));
}

#[test]
fn what_no_change_can_be_is_no_preview() {
    let mut cluster = cluster();
    let policy = ConfigOperation::SetPolicy(Policy { revisions: 0, age_ms: 0 });
    assert!(matches!(cluster.answer(1, preview(policy)), Reply::Refused(Refusal::Invalid(_))));
}

#[test]
fn older_clusters_refuse_previews_and_schemas() {
    let mut cluster = Cluster::elected(3);
    let reply = cluster.answer(1, preview(publication(vec![put(2)])));
    assert_eq!(reply, Reply::Refused(Refusal::VersionTooLow));
    let schema = Schema::new(Value::Bool(true)).expect("a schema");
    let set = Change::SetSchema { item: ConfigItem::Pair("p".into()), schema: Some(schema.into()) };
    let reply = cluster.answer(1, write(publication(vec![put(1), set])));
    assert_eq!(reply, Reply::Write(WriteReply::Denied(Denial::VersionTooLow)));
}
