//! Requests are checked where they enter, and again where they are served.

use super::*;
use crate::auth::{Grants, Principal, RateLimits, Role, SecretDigest, TokenId};
use crate::command::{AccessChange, AccessWrite, Denial, Transaction, WriteReply};
use crate::raft::encode_writes;
use crate::storage::{HardState, LogEntry, RecoveredLog, RecoveredShard};
use crate::types::{ReplicaId, Term, UnixMillis};
use crate::version::ClusterVersion;

const STALE_TICKS: u64 = 200;

pub(super) fn client(name: &str) -> Caller {
    Caller::Principal(name.into())
}

fn forbidden(demand: &'static str) -> Reply {
    Reply::Refused(Refusal::Forbidden(demand.into()))
}

const UNAUTHENTICATED: Reply = Reply::Refused(Refusal::Unauthenticated);

impl Cluster {
    /// A cluster of three without roles, principals and tokens.
    pub(super) fn of_newest_version() -> Cluster {
        let mut cluster = Cluster::with(3, |mut options| {
            let version = ClusterVersion::NEWEST;
            (options.founding_version, options.version) = (version, version);
            options.timing.access_stale_ticks = STALE_TICKS;
            options
        });
        for node in &mut cluster.nodes {
            node.handle(Event::Clock(UnixMillis(1_000)));
        }
        cluster.tick(100);
        cluster
    }

    /// A cluster of three whose principals `root` and `web` have the role `admin` and a role with
    /// these grants. Authentication is required.
    fn guarded(grants: &[&str]) -> Cluster {
        let mut cluster = Cluster::of_newest_version();
        cluster.change_access(grant_role(grants));
        for (name, role) in [("root", "admin"), ("web", "web")] {
            let principal = Principal { roles: [role.into()].into(), ..Principal::default() };
            cluster.change_access(AccessChange::PutPrincipal { name: name.into(), principal });
        }
        let token = AccessChange::AddToken {
            id: TokenId(1),
            principal: "root".into(),
            digest: SecretDigest::of(b"secret"),
            lifetime_ms: None,
        };
        cluster.change_access(token);
        cluster.change_access(AccessChange::Require(true));
        cluster.tick(30);
        cluster
    }

    fn change_access(&mut self, change: AccessChange) {
        self.change_access_as(&client("root"), change);
    }

    fn change_access_as(&mut self, caller: &Caller, change: AccessChange) {
        let write = RegistryWrite::Access(AccessWrite::new(change));
        let reply = self.answer_to(caller, 1, Request::Write(write.into()));
        assert!(matches!(reply, Reply::Write(WriteReply::AccessChanged { .. })), "{reply:?}");
    }

    pub(super) fn ask_as(&mut self, caller: &Caller, node: u64, request: Request) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        let caller = caller.clone();
        self.nodes[node as usize - 1].handle(Event::Request { token, caller, request, trace: None });
        self.settle();
        token
    }

    pub(super) fn answer_to(&mut self, caller: &Caller, node: u64, request: Request) -> Reply {
        let token = self.ask_as(caller, node, request);
        self.replies.remove(&token).expect("answered at once")
    }

    /// Passes a frame to a node as if a peer had sent it.
    pub(super) fn frame(&mut self, from: u64, to: u64, payload: Vec<u8>) {
        self.nodes[to as usize - 1].handle(Event::Frame { from: NodeId(from), payload: payload.into() });
        self.settle();
    }
}

pub(super) fn grant_role(grants: &[&str]) -> AccessChange {
    let grants: Grants = grants.iter().map(|grant| grant.parse().expect("a grant")).collect();
    AccessChange::PutRole { name: "web".into(), role: Role { grants, ..Role::default() } }
}

#[test]
fn every_node_refuses_what_no_grant_covers() {
    let mut cluster = Cluster::guarded(&["read keys:a", "write keys:a"]);
    for node in 1..=3 {
        let mut answer = |caller: &Caller, request| cluster.answer_to(caller, node, request);
        assert_eq!(answer(&Caller::Anonymous, get("a")), UNAUTHENTICATED);
        assert_eq!(answer(&client("nobody"), get("a")), forbidden("read keys:a"));
        assert_eq!(answer(&client("web"), get("b")), forbidden("read keys:b"));
        assert!(wrote(&answer(&client("web"), put("a", "1", Condition::Always))));
        assert_eq!(answer(&client("web"), put("b", "1", Condition::Always)), forbidden("write keys:b"));
        assert_eq!(answer(&client("web"), Request::Cluster), forbidden("cluster:read"));
        assert_eq!(answer(&client("web"), Request::Access), forbidden("cluster:admin"));
        assert!(wrote(&answer(&client("root"), put("b", "1", Condition::Always))));
        let internal = Request::Write(RegistryWrite::ForgetReplica { replica: ReplicaId(9) }.into());
        assert_eq!(answer(&client("root"), internal), forbidden("cluster:internal"));
        let stale = Read::Get { key: "b".into() };
        let node = &mut cluster.nodes[node as usize - 1];
        assert_eq!(node.read_stale(&client("web"), &stale), Some(forbidden("read keys:b")));
        assert_eq!(node.read_stale(&Caller::Anonymous, &stale), Some(UNAUTHENTICATED));
    }
}

#[test]
fn every_node_reports_at_once_that_a_change_is_in_force() {
    let mut cluster = Cluster::guarded(&["read keys:a"]);
    cluster.change_access(grant_role(&["read keys:b"]));
    let revision = cluster.nodes[0].access().revision();
    for node in 1..=3 {
        let Reply::Node(NodeReply::Cluster(view)) = cluster.answer_to(&Caller::Node, node, Request::Cluster)
        else {
            panic!("the view of the cluster")
        };
        let of_prime = view.replicas.iter().filter(|replica| replica.shard == ShardId::PRIME);
        let applied: Vec<_> = of_prime.map(|replica| replica.applied).collect();
        assert_eq!(applied, [Some(revision); 3], "as node {node} knows it, without a tick");
    }
}

#[test]
fn one_operation_that_is_not_covered_refuses_all() {
    let mut cluster = Cluster::guarded(&["read keys:{t}a", "write keys:{t}a"]);
    let put = |key| Operation::Put { key, value: b"1", condition: Condition::Always };
    let both = [put(b"{t}a"), put(b"{t}b")];
    let request = || Request::Write(Write::Keys(Transaction::of(crate::command::Operations::of(&both))));
    for node in 1..=3 {
        assert_eq!(cluster.answer_to(&client("web"), node, request()), forbidden("write keys:{t}b"));
    }
    assert_eq!(cluster.answer_to(&client("web"), 1, get("{t}a")), Reply::Read(ReadReply::Value(None)));
}

#[test]
fn a_revoked_grant_and_a_removed_principal_are_refused_at_once() {
    let mut cluster = Cluster::guarded(&["read keys:"]);
    assert_eq!(cluster.answer_to(&client("web"), 2, get("a")), Reply::Read(ReadReply::Value(None)));
    cluster.change_access(grant_role(&[]));
    for node in 1..=3 {
        assert_eq!(cluster.answer_to(&client("web"), node, get("a")), forbidden("read keys:a"));
    }
    cluster.change_access(grant_role(&["read keys:"]));
    cluster.change_access(AccessChange::DeletePrincipal { name: "web".into() });
    for node in 1..=3 {
        assert_eq!(cluster.answer_to(&client("web"), node, get("a")), forbidden("read keys:a"));
    }
    cluster.change_access(AccessChange::Require(false));
    assert_eq!(cluster.answer_to(&Caller::Anonymous, 3, get("a")), Reply::Read(ReadReply::Value(None)));
}

#[test]
fn the_node_that_serves_a_forwarded_request_checks_it_again() {
    let mut cluster = Cluster::guarded(&["write keys:a"]);
    let shard = cluster.nodes[0].shard_of(b"b");
    let leader = cluster.leader(shard);
    let follower = leader % 3 + 1;
    let write = Write::of(&Operation::Put { key: b"b", value: b"1", condition: Condition::Always });
    let forward = |caller: Option<Caller>| {
        let mut payload = alloc::vec![peer::KIND_REQUESTS];
        caller.iter().for_each(|caller| peer::put_caller(&mut payload, caller));
        peer::put_forward(&mut payload, peer::RequestId(1 << 40), shard, &write);
        payload
    };
    // As a peer whose registry is behind would forward it.
    for caller in [None, Some(Caller::Anonymous), Some(client("web")), Some(client("nobody"))] {
        cluster.frame(follower, leader, forward(caller));
        let nothing = Reply::Read(ReadReply::Value(None));
        assert_eq!(cluster.answer_to(&client("root"), leader, get("b")), nothing);
    }
    cluster.frame(follower, leader, forward(Some(client("root"))));
    let written = cluster.answer_to(&client("root"), leader, get("b"));
    assert!(matches!(written, Reply::Read(ReadReply::Value(Some(_)))), "{written:?}");
}

#[test]
fn a_node_that_does_not_reach_the_registry_refuses_after_a_while() {
    let mut cluster = Cluster::guarded(&["read keys:"]);
    let (first, second) = (cluster.leader(ShardId::PRIME), cluster.leader(ShardId::PRIME) % 3 + 1);
    let third = 6 - first - second;
    cluster.kill(second);
    cluster.kill(third);
    let stale = Read::Get { key: "a".into() };
    let read = |cluster: &mut Cluster| cluster.nodes[first as usize - 1].read_stale(&client("web"), &stale);
    cluster.tick(STALE_TICKS / 2);
    assert_eq!(read(&mut cluster), Some(Reply::Read(ReadReply::Value(None))));
    cluster.tick(STALE_TICKS);
    assert_eq!(read(&mut cluster), Some(Reply::Refused(Refusal::PermissionsUnknown)));
    cluster.revive(second);
    cluster.tick(100);
    assert_eq!(read(&mut cluster), Some(Reply::Read(ReadReply::Value(None))));
}

#[test]
fn confirmations_keep_a_node_current() {
    let mut cluster = Cluster::guarded(&["read keys:"]);
    cluster.tick(3 * STALE_TICKS);
    for node in 1..=3 {
        assert_eq!(cluster.answer_to(&client("web"), node, get("a")), Reply::Read(ReadReply::Value(None)));
    }
}

#[test]
fn the_first_row_does_not_stop_requests() {
    let mut cluster = Cluster::of_newest_version();
    cluster.change_access_as(&Caller::Anonymous, grant_role(&[]));
    for node in 1..=3 {
        let nothing = Reply::Read(ReadReply::Value(None));
        assert_eq!(cluster.answer_to(&Caller::Anonymous, node, get("a")), nothing);
    }
}

#[test]
fn a_node_that_has_just_joined_does_not_know_who_may_do_what() {
    let addresses = ["a", "b", "c", "d"].map(String::from);
    let joined = NodeOptions {
        founders: addresses[..3].to_vec(),
        prime_replica: Some(ReplicaId(99)),
        ..options(4, &addresses)
    };
    let mut node = Node::new(joined, RecoveredShards::default());
    let stale = Read::Get { key: "a".into() };
    let unknown = Some(Reply::Refused(Refusal::PermissionsUnknown));
    assert_eq!(node.read_stale(&Caller::Anonymous, &stale), unknown);
    assert_eq!(node.read_stale(&client("root"), &stale), unknown);
}

/// What a node of three answers to a stale read at its start, with an entry in the log of the prime
/// shard that is not committed yet.
fn answer_with_logged(entry: Bytes) -> Option<Reply> {
    let founders = ["a", "b", "c"].map(String::from);
    let entries = [Bytes::new(), entry];
    let entry = |(index, data)| LogEntry { index: LogIndex(index), term: Term(1), data };
    let log = RecoveredLog {
        hard_state: HardState { term: Term(1), vote: None, commit: LogIndex(1) },
        entries: (1..).zip(entries).map(entry).collect(),
        ..RecoveredLog::default()
    };
    let shards = RecoveredShards::from([(ShardId::PRIME, RecoveredShard { snapshot: None, log })]);
    Node::new(options(1, &founders), shards).read_stale(&Caller::Anonymous, &Read::Get { key: "a".into() })
}

#[test]
fn a_node_with_a_logged_change_of_permissions_or_an_entry_that_does_not_decode_confirms_first() {
    let unknown = Some(Reply::Refused(Refusal::PermissionsUnknown));
    let require = RegistryWrite::Access(AccessWrite::new(AccessChange::Require(true)));
    assert_eq!(answer_with_logged(encode_writes(&[require.into()])), unknown);
    // The tag is that of no write: an entry of a later release.
    assert_eq!(answer_with_logged(Bytes::from_static(&[0xff, 1, 2, 3])), unknown);
    let other = encode_writes(&[RegistryWrite::Rebalance.into()]);
    assert_eq!(answer_with_logged(other), Some(Reply::Read(ReadReply::Value(None))));
}

#[test]
fn no_role_is_limited_before_the_version_allows_it() {
    let mut cluster = Cluster::with(3, |mut options| {
        let version = ClusterVersion::WITH_AUTHORITY;
        (options.founding_version, options.version) = (version, version);
        options
    });
    for node in &mut cluster.nodes {
        node.handle(Event::Clock(UnixMillis(1_000)));
    }
    cluster.tick(100);
    let mut put = |node: u64, operations_per_s| {
        let rates = RateLimits { operations_per_s, bytes_per_s: None };
        let change = AccessChange::PutRole { name: "web".into(), role: Role { rates, ..Role::default() } };
        let write = RegistryWrite::Access(AccessWrite::new(change));
        let token = cluster.ask_as(&Caller::Node, node, Request::Write(write.into()));
        cluster.tick(3);
        cluster.replies.remove(&token).expect("answered")
    };
    for node in 1..=3 {
        assert_eq!(put(node, Some(5)), Reply::Write(WriteReply::Denied(Denial::VersionTooLow)));
        assert!(matches!(put(node, None), Reply::Write(WriteReply::AccessChanged { .. })));
    }
}
