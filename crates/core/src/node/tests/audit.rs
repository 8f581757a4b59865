//! Administrative changes are recorded with who asked for them.

use super::permissions::{client, grant_role};
use super::*;
use crate::audit::AuditRecord;
use crate::command::{AccessWrite, AdminAction, Denial, HostChange, WriteReply};
use crate::types::UnixMillis;
use crate::version::ClusterVersion;

impl Cluster {
    /// The records that a node has applied, the newest first.
    fn audit_of(&mut self, node: u64) -> Vec<AuditRecord> {
        let request = Request::Audit { before: None, most: 10 };
        match self.answer_to(&Caller::Node, node, request) {
            Reply::Node(NodeReply::Audit(records)) => {
                records.iter().map(|record| (**record).clone()).collect()
            }
            other => panic!("no records: {other:?}"),
        }
    }

    fn actions_of(&mut self, node: u64) -> Vec<(Caller, String, String)> {
        let records = self.audit_of(node).into_iter();
        records.map(|record| (record.caller, record.action, record.subject)).collect()
    }

    fn record_change(&mut self, caller: &Caller, node: u64, change: RegistryWrite) -> Reply {
        let token = self.ask_as(caller, node, Request::Write(change.into()));
        self.tick(3);
        self.replies.remove(&token).expect("answered")
    }
}

fn put_role() -> RegistryWrite {
    RegistryWrite::Access(AccessWrite::new(grant_role(&["read keys:"])))
}

#[test]
fn a_change_is_recorded_with_its_caller_whichever_node_was_asked() {
    let mut cluster = Cluster::of_newest_version();
    let root = client("root");
    for node in 1..=3 {
        let change = RegistryWrite::ChangeHost { node: NodeId(2), change: HostChange::Drain(node % 2 == 1) };
        assert_eq!(cluster.record_change(&root, node, change), Reply::Write(WriteReply::HostChanged));
    }
    let entry = |action: &str| (root.clone(), action.into(), "2".into());
    let expected = [entry("host.drain"), entry("host.undrain"), entry("host.drain")];
    for node in 1..=3 {
        assert_eq!(cluster.actions_of(node), expected);
    }
    let newest = &cluster.audit_of(1)[0];
    assert_eq!((newest.sequence, newest.at), (3, UnixMillis(1_000)), "the leader's time");
}

#[test]
fn an_anonymous_caller_of_a_guarded_cluster_is_recorded_too() {
    let mut cluster = Cluster::of_newest_version();
    assert!(matches!(cluster.record_change(&Caller::Anonymous, 2, put_role()), Reply::Write(_)));
    assert_eq!(cluster.actions_of(3), [(Caller::Anonymous, "role.put".into(), "web".into())]);
}

#[test]
fn what_changes_nothing_leaves_no_record() {
    let mut cluster = Cluster::of_newest_version();
    let root = client("root");
    let unknown = RegistryWrite::ChangeHost { node: NodeId(9), change: HostChange::Leave };
    let denied = Reply::Write(WriteReply::Denied(Denial::UnknownHost));
    assert_eq!(cluster.record_change(&root, 2, unknown), denied);
    cluster.record_change(&root, 1, put_role());
    cluster.record_change(&root, 2, put_role());
    assert_eq!(cluster.actions_of(1).len(), 1, "the second change found the role as it is");
}

#[test]
fn an_announced_action_changes_nothing_and_is_recorded() {
    let mut cluster = Cluster::of_newest_version();
    let before = cluster.nodes[0].registry().changed();
    let change = RegistryWrite::Announce(AdminAction::SaveBackup);
    assert_eq!(cluster.record_change(&client("root"), 3, change), Reply::Write(WriteReply::HostChanged));
    assert_eq!(cluster.nodes[0].registry().changed(), before);
    assert_eq!(cluster.actions_of(2), [(client("root"), "backup.save".into(), String::new())]);
}

#[test]
fn nothing_is_recorded_before_the_version_allows_it() {
    let mut cluster = Cluster::with(3, |mut options| {
        let version = ClusterVersion::WITH_ACCESS;
        (options.founding_version, options.version) = (version, version);
        options
    });
    for node in &mut cluster.nodes {
        node.handle(Event::Clock(UnixMillis(1_000)));
    }
    cluster.tick(100);
    for node in 1..=3 {
        let change = RegistryWrite::ChangeHost { node: NodeId(2), change: HostChange::Drain(node % 2 == 1) };
        assert_eq!(
            cluster.record_change(&client("root"), node, change),
            Reply::Write(WriteReply::HostChanged)
        );
        assert_eq!(cluster.actions_of(node), []);
    }
    let announced =
        cluster.record_change(&client("root"), 1, RegistryWrite::Announce(AdminAction::SaveBackup));
    assert_eq!(announced, Reply::Write(WriteReply::Denied(Denial::VersionTooLow)));
}

#[test]
fn a_forwarded_change_without_its_caller_is_not_made() {
    let mut cluster = Cluster::of_newest_version();
    let leader = cluster.leader(ShardId::PRIME);
    let forward = |caller: Option<Caller>| {
        let mut payload = alloc::vec![peer::KIND_REQUESTS];
        caller.iter().for_each(|caller| peer::put_caller(&mut payload, caller));
        let request = peer::RequestId(1 << 40);
        peer::put_forward(&mut payload, request, ShardId::PRIME, &put_role().into());
        payload
    };
    cluster.frame(leader % 3 + 1, leader, forward(None));
    cluster.tick(3);
    assert_eq!(cluster.actions_of(leader), []);
    cluster.frame(leader % 3 + 1, leader, forward(Some(client("root"))));
    cluster.tick(3);
    assert_eq!(cluster.actions_of(leader), [(client("root"), "role.put".into(), "web".into())]);
}
