//! Every kind of request with its demands: the table of `docs/reference/permissions.md`, and what
//! grants of several sizes allow.

use super::super::config::{Audience, Change, DraftAction, DraftStep, Name, Stamp};
use super::super::migration::Import;
use super::super::{AuditedWrite, Consistency, DivisionCause, ExpectedState, HostInfo, LeaseExpiry, LeaseId};
use super::*;
use crate::auth::{
    AuthorityId, Caller, ClusterLevel, ConfigAccess, Grant, Grants, KeyAccess, Namespaces, PrivateKey,
    SecretDigest, TokenId,
};
use crate::decimal::Decimal;
use crate::limits;
use crate::slots::slot_set::SlotSet;
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, UnixMillis, Version};
use crate::version::{ClusterVersion, Release};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use bytes::Bytes;
use std::path::Path;
use std::{env, fs};
use uuid::Uuid;

const KEY: &[u8] = b"app/1";
const OTHER: &[u8] = b"app/2";
const SHARD: ShardId = ShardId(1);

/// Names kinds of requests, with a request of each. A variant of the enum without a row does not
/// compile, and a sample of another variant fails.
macro_rules! rows {
    ($enum:ty { $($pattern:pat => [$($name:literal: $sample:expr),+ $(,)?]),+ $(,)? }) => {{
        let _is_exhaustive = |value: &$enum| match value { $($pattern => (),)+ };
        let mut rows: Vec<(&'static str, $enum)> = Vec::new();
        $($({
            let sample: $enum = $sample;
            assert!(matches!(&sample, $pattern), "{}: a sample of another variant", $name);
            rows.push(($name, sample));
        })+)+
        rows
    }};
}

fn set(condition: SetCondition<'static>, expiry: Expiry, previous: bool) -> Operation<'static> {
    Operation::Set(Set { key: KEY, value: b"v", condition, expiry, previous })
}

fn operations() -> Vec<(&'static str, Operation<'static>)> {
    let (key, any) = (KEY, SetCondition::Version(Condition::Always));
    let expire = |condition| Operation::Expire { key, at: None, condition };
    rows!(Operation<'static> {
        Operation::Get { .. } => ["read a key": Operation::Get { key }],
        Operation::Describe { .. } => [
            "read the version and the expiry of a key, or whether it exists": Operation::Describe { key },
        ],
        Operation::Put { .. } => [
            "store a value": Operation::Put { key, value: b"v", condition: Condition::Always },
            "store a value if the key has a version, exists or does not exist":
                Operation::Put { key, value: b"v", condition: Condition::Version(Version(7)) },
        ],
        Operation::Set(_) => [
            "store a value with an expiry": set(any, Expiry::After(1_000), false),
            "store a value, and keep the expiry": set(any, Expiry::Keep, false),
            "store a value, and return the previous one": set(any, Expiry::Never, true),
            "store a value if the key holds another one, or a given one":
                set(SetCondition::Equals(b"old"), Expiry::Never, false),
        ],
        Operation::Delete { .. } => [
            "delete a key": Operation::Delete { key, condition: Condition::Always },
            "delete a key if it has a version": Operation::Delete { key, condition: Condition::Version(Version(7)) },
        ],
        Operation::Take { .. } => ["delete a key, and return its value": Operation::Take { key }],
        Operation::Add { .. } => ["add to a number": Operation::Add { key, delta: 1 }],
        Operation::Append { .. } => ["append to a value": Operation::Append { key, suffix: b"s" }],
        Operation::Expire { .. } => [
            "set or clear an expiry": expire(ExpiryCondition::Always),
            "set an expiry under a condition on the current one": expire(ExpiryCondition::Later),
        ],
        Operation::ExpireAfter { .. } => [
            "set an expiry relative to now":
                Operation::ExpireAfter { key, after_ms: 1_000, condition: ExpiryCondition::Always },
        ],
        Operation::Exchange { .. } => ["exchange a register": Operation::Exchange { key, value: 1 }],
        Operation::CompareExchange { .. } => [
            "compare and exchange a register": Operation::CompareExchange { key, expected: 1, new: 2 },
        ],
        Operation::SetRange { .. } => [
            "replace a part of a value": Operation::SetRange { key, offset: 1, bytes: b"b" },
        ],
        Operation::AddDecimal { .. } => [
            "add to a decimal number": Operation::AddDecimal { key, delta: Decimal::ZERO },
        ],
        Operation::DeleteIf { .. } => [
            "delete a key if it holds another value, or a given one":
                Operation::DeleteIf { key, condition: SetCondition::HashEquals(1) },
        ],
        Operation::PutBound { .. } => [
            "store a value, and bind the key to a lease":
                Operation::PutBound { key, value: b"v", condition: Condition::Always, lease: b"{app/1}:1f" },
        ],
        Operation::SkipIfExists { .. } => [
            "execute operations only if a key does not exist": Operation::SkipIfExists { key, count: 1 },
        ],
    })
}

fn reads() -> Vec<(&'static str, Read)> {
    let namespace = || Name::new("web").expect("a name");
    let page = |prefix: &'static [u8]| Read::List {
        prefix: Bytes::from_static(prefix),
        after: Some(Bytes::from_static(KEY)),
        limit: 10,
        keys_only: true,
    };
    let names = |prefix: &'static [u8]| Read::ConfigNamespaces {
        prefix: Bytes::from_static(prefix),
        after: None,
        limit: 10,
    };
    let both = Operations::of(&[Operation::Get { key: KEY }, Operation::Get { key: OTHER }]);
    let query = Query::Namespace;
    let changes = |scope| Read::Changes { scope, after: None, limit: 10, keys_only: true };
    rows!(Read {
        Read::Get { .. } => ["read a key, also a stale read": Read::Get { key: Bytes::from_static(KEY) }],
        Read::Operations { .. } => [
            "read several keys": Read::Operations { operations: both.clone(), bytes_max: 100 },
        ],
        Read::Scan { .. } => ["scan keys": Read::Scan { shard: SHARD, after: 0, count: 10, version: 1 }],
        Read::Count => ["count keys": Read::Count],
        Read::List { .. } => [
            "list keys with a prefix": page(b"app/"),
            "list all keys, also after a given one": page(b""),
        ],
        Read::Changes { .. } => [
            "watch a key": changes(KeyScope::Key(Bytes::from_static(KEY))),
            "watch the keys with a prefix": changes(KeyScope::Prefix(Bytes::from_static(b"app/"))),
            "watch all keys": changes(KeyScope::Prefix(Bytes::new())),
        ],
        Read::Lease { .. } => ["read a lease, with the names of its keys and locks": Read::Lease { lease: lease() }],
        Read::Leases { .. } => [
            "list leases with a prefix":
                Read::Leases { prefix: Bytes::from_static(b"{app/"), after: None, limit: 10 },
        ],
        Read::Lock { .. } => ["read the holder and the queue of a lock": Read::Lock { name: Bytes::from_static(KEY) }],
        Read::Config(_) => ["query a namespace": Read::Config(ConfigRead { namespace: namespace(), query: query.clone() })],
        Read::ConfigNamespaces { .. } => [
            "list namespaces with a prefix": names(b"we"),
            "list all namespaces": names(b""),
        ],
    })
}

fn queries() -> Vec<(&'static str, Query)> {
    let selection = || Selection { contains: "a".into(), offset: 0, limit: 10 };
    rows!(Query {
        Query::Namespace => ["read the revision, size and policy of a namespace": Query::Namespace],
        Query::Pairs(_) => ["list pairs": Query::Pairs(selection())],
        Query::Pair { .. } => ["read a pair": Query::Pair { key: "a".into(), at: None }],
        Query::Containers(_) => ["list containers": Query::Containers(selection())],
        Query::Container { .. } => [
            "read a container": Query::Container { key: "a".into(), at: None, known: None },
        ],
        Query::History { .. } => [
            "read the history of a namespace": Query::History { item: None, before: None, limit: 10 },
        ],
        Query::Export { .. } => ["export a namespace": Query::Export { at: None }],
        Query::Search(_) => [
            "search a namespace": Query::Search(Search { text: "a".into(), after: None, limit: 10 }),
        ],
        Query::Users { .. } => ["list the containers that refer to a pair": Query::Users { key: "a".into() }],
        Query::Blame { .. } => ["read who wrote what of a container": Query::Blame { key: "a".into() }],
        Query::Changes { .. } => ["watch a container": Query::Changes { key: "a".into(), after: 0 }],
        Query::NamespaceChanges { .. } => ["watch a namespace": Query::NamespaceChanges { after: None }],
        Query::Preview(_) => [
            "preview the deletion of a namespace": Query::Preview(Box::new(Preview {
                expected: Some(1),
                operation: ConfigOperation::Delete { force: true },
            })),
            "preview other parents of a namespace": Query::Preview(Box::new(Preview {
                expected: None,
                operation: ConfigOperation::SetParents { parents: vec![Name::new("base").unwrap()] },
            })),
        ],
        Query::Inheritance => ["read from which namespaces one inherits": Query::Inheritance],
        Query::Drafts => ["list the drafts of a namespace": Query::Drafts],
        Query::Draft { .. } => ["read a draft": Query::Draft { draft: "a".into() }],
        Query::Labelled { .. } => [
            "read a container as a reader with a label": Query::Labelled {
                label: "web-1".into(),
                query: Box::new(Query::Container { key: "a".into(), at: None, known: None }),
            },
        ],
    })
}

fn config_operations() -> Vec<(&'static str, ConfigOperation)> {
    let changes = || vec![Change::Delete(Item::Pair("a".into()))];
    let draft = |action| ConfigOperation::Draft { draft: "a".into(), action };
    rows!(ConfigOperation {
        ConfigOperation::Create => ["create a namespace": ConfigOperation::Create],
        ConfigOperation::Delete { .. } => ["delete a namespace": ConfigOperation::Delete { force: true }],
        ConfigOperation::Publish { .. } => [
            "publish or import changes": ConfigOperation::Publish { changes: changes(), create: true },
        ],
        ConfigOperation::Rollback { .. } => [
            "roll a namespace back": ConfigOperation::Rollback { to: 1, item: None },
        ],
        ConfigOperation::SetPolicy(_) => [
            "set how much history a namespace keeps": ConfigOperation::SetPolicy(Policy::default()),
        ],
        ConfigOperation::SetParents { .. } => [
            "set from which namespaces one inherits":
                ConfigOperation::SetParents { parents: vec![Name::new("base").unwrap()] },
        ],
        ConfigOperation::SetProtected(_) => [
            "protect a namespace, or end its protection": ConfigOperation::SetProtected(true),
        ],
        ConfigOperation::Draft { .. } => [
            "edit a draft": draft(DraftAction::Edit(DraftStep::Publish(changes()))),
            "comment on a draft": draft(DraftAction::Comment),
            "approve a draft": draft(DraftAction::Approve { edits: 1 }),
            "discard a draft": draft(DraftAction::Discard),
            "publish a draft": draft(DraftAction::Publish { edits: None }),
            "begin a canary": draft(DraftAction::Canary { edits: None, audience: Audience::default() }),
        ],
        ConfigOperation::Withdraw => ["withdraw a canary": ConfigOperation::Withdraw],
    })
}

fn lease() -> LeaseId {
    LeaseId::parse(b"{app/1}:1f").expect("an id")
}

fn lease_writes() -> Vec<(&'static str, LeaseWrite)> {
    let at = UnixMillis(1);
    rows!(LeaseWrite {
        LeaseWrite::Grant { .. } => [
            "grant a lease": LeaseWrite::Grant { tag: lease().tag().clone(), ttl_ms: 10_000, at },
        ],
        LeaseWrite::Renew { .. } => ["renew leases": LeaseWrite::Renew { leases: vec![lease()], at }],
        LeaseWrite::Revoke { .. } => ["revoke a lease": LeaseWrite::Revoke { lease: lease() }],
    })
}

fn lock_writes() -> Vec<(&'static str, LockWrite)> {
    let at = UnixMillis(1);
    let operations = rows!(LockOperation {
        LockOperation::Acquire { .. } => [
            "acquire a lock, also waiting": LockOperation::Acquire { value: Bytes::new(), waits: true, at },
        ],
        LockOperation::Release => ["release a lock": LockOperation::Release],
        LockOperation::Cancel { .. } => ["stop waiting for a lock": LockOperation::Cancel { at }],
    });
    let of = |operation| LockWrite { name: Bytes::from_static(KEY), lease: lease(), operation };
    operations.into_iter().map(|(name, operation)| (name, of(operation))).collect()
}

fn restores() -> Vec<(&'static str, RestoreWrite)> {
    let (shard, backup) = (SHARD, Uuid::nil());
    rows!(RestoreWrite {
        RestoreWrite::Keys(_) => [
            "restore keys": RestoreWrite::Keys(Restoration { shard, backup, revision: Version(1), records: vec![] }),
        ],
        RestoreWrite::Config(_) => [
            "restore configuration": RestoreWrite::Config(ConfigRestoration { shard, backup, block: Bytes::new() }),
        ],
        RestoreWrite::Discard(_) => ["discard another restore": RestoreWrite::Discard(Discard { shard, backup })],
    })
}

fn moves() -> Vec<(&'static str, MoveStep)> {
    let slots = || SlotSet::from(0..9);
    let import = Import {
        attempt: 1,
        sequence: 0,
        revision: Version(1),
        rows: vec![],
        removals: vec![],
        config: None,
        leases: None,
    };
    rows!(MoveStep {
        MoveStep::Open { .. } => [
            "begin to copy slots": MoveStep::Open { attempt: 1, slots: slots(), founding: slots(), limit: 1 },
        ],
        MoveStep::Import(_) => ["copy a part of slots": MoveStep::Import(import.clone())],
        MoveStep::Own { .. } => [
            "own copied slots":
                MoveStep::Own {
                    attempt: 1,
                    sequence: 1,
                    revision: Version(1),
                    config: Bytes::new(),
                    outcomes: vec![],
                    leases_at: None,
                },
        ],
        MoveStep::Freeze { .. } => ["freeze slots": MoveStep::Freeze { slots: slots(), founding: slots() }],
        MoveStep::Release { .. } => ["release slots": MoveStep::Release { rows: 1 }],
        MoveStep::Purge { .. } => ["remove released keys": MoveStep::Purge { limit: 1 }],
    })
}

fn host_changes() -> Vec<(&'static str, HostChange)> {
    rows!(HostChange {
        HostChange::Vote => ["let a host vote": HostChange::Vote],
        HostChange::Follow => ["take a host's votes": HostChange::Follow],
        HostChange::Drain(_) => ["drain a host, or end a drain": HostChange::Drain(true)],
        HostChange::Leave => ["remove a host": HostChange::Leave],
        HostChange::Removed => ["record that a host has left": HostChange::Removed],
        HostChange::Dead(_) => ["record that a host is dead, or lives": HostChange::Dead(true)],
    })
}

fn host() -> HostInfo {
    HostInfo {
        node: NodeId(1),
        uuid: Uuid::nil(),
        peer_address: String::new(),
        http_address: String::new(),
        resp_address: String::new(),
        resp_cluster_address: String::new(),
        tags: BTreeMap::new(),
        release: Release::default(),
    }
}

fn authority_changes() -> Vec<(&'static str, AuthorityChange)> {
    let (id, digest) = (TokenId(1), SecretDigest::of(b"secret"));
    rows!(AuthorityChange {
        AuthorityChange::Add { .. } => [
            "add an authority that signs certificates of hosts":
                AuthorityChange::Add { certificate: vec![1], key: PrivateKey(vec![2]) },
        ],
        AuthorityChange::Use { .. } => [
            "let another authority sign": AuthorityChange::Use { id: AuthorityId(1) },
        ],
        AuthorityChange::Remove { .. } => ["remove an authority": AuthorityChange::Remove { id: AuthorityId(1) }],
        AuthorityChange::AddJoinToken { .. } => [
            "create a join token": AuthorityChange::AddJoinToken { id, digest, lifetime_ms: 1 },
        ],
        AuthorityChange::Enrol { .. } => [
            "use a join token for a host": AuthorityChange::Enrol { id, digest, host: Uuid::nil() },
        ],
    })
}

fn registry_writes() -> Vec<(&'static str, RegistryWrite)> {
    let (node, shard) = (NodeId(1), SHARD);
    rows!(RegistryWrite {
        RegistryWrite::RegisterHost(_) => ["announce a host": RegistryWrite::RegisterHost(host())],
        RegistryWrite::JoinHost(_) => ["take a host into the cluster": RegistryWrite::JoinHost(host())],
        RegistryWrite::ChangeHost { .. } => [
            "change a host": RegistryWrite::ChangeHost { node, change: HostChange::Vote },
        ],
        RegistryWrite::Assign { .. } => [
            "place replicas": RegistryWrite::Assign { seen: LogIndex(1), assignments: vec![] },
        ],
        RegistryWrite::ForgetReplica { .. } => [
            "forget a replica": RegistryWrite::ForgetReplica { replica: ReplicaId(1) },
        ],
        RegistryWrite::TagShard(_) => [
            "set tags and policies of a shard": RegistryWrite::TagShard(ShardTags { shard, tags: vec![] }),
        ],
        RegistryWrite::SetDefault { .. } => [
            "set the default placement": RegistryWrite::SetDefault { tags: vec![] },
        ],
        RegistryWrite::AddShard { .. } => [
            "add a shard": RegistryWrite::AddShard { name: None, tags: BTreeMap::new() },
        ],
        RegistryWrite::RemoveShard { .. } => ["remove a shard": RegistryWrite::RemoveShard { shard }],
        RegistryWrite::Rebalance => ["spread slots evenly": RegistryWrite::Rebalance],
        RegistryWrite::MoveSlots { .. } => [
            "move slots": RegistryWrite::MoveSlots { slots: SlotSet::from(0..9), to: shard },
        ],
        RegistryWrite::FinishMigration { .. } => [
            "finish a move of slots": RegistryWrite::FinishMigration { migration: MigrationId(1) },
        ],
        RegistryWrite::Divide { .. } => [
            "add a shard and give it slots": RegistryWrite::Divide {
                seen: LogIndex(1),
                cause: DivisionCause::Hosts,
            },
        ],
        RegistryWrite::MoveHotSlots { .. } => [
            "move hot slots of a busy shard": RegistryWrite::MoveHotSlots {
                seen: LogIndex(1),
                slots: SlotSet::from(0..9),
                to: shard,
            },
        ],
        RegistryWrite::Access(_) => [
            "change roles, principals or tokens, or whether authentication is required":
                RegistryWrite::Access(AccessWrite::new(AccessChange::Require(true))),
        ],
        RegistryWrite::Authority(_) => [
            "change the authorities or the join tokens": RegistryWrite::Authority(AuthorityWrite::new(
                AuthorityChange::Use { id: AuthorityId(1) },
            )),
        ],
        RegistryWrite::Announce(_) => [
            "begin a transfer of leadership or a checkpoint":
                RegistryWrite::Announce(AdminAction::Checkpoint),
            "begin a backup, a restore, a reload of certificates or the removal of all keys":
                RegistryWrite::Announce(AdminAction::SaveBackup),
        ],
        RegistryWrite::Audited(_) => [
            "record who asked for a change": RegistryWrite::Audited(Box::new(AuditedWrite {
                at: UnixMillis(1),
                caller: Caller::Anonymous,
                change: RegistryWrite::Rebalance,
            })),
        ],
        RegistryWrite::RaiseVersion { .. } => [
            "raise the version of the cluster": RegistryWrite::RaiseVersion { to: ClusterVersion(2) },
        ],
    })
}

/// The namespace `web` in which configuration is changed, under a condition or without one.
fn config_write(operation: ConfigOperation, expected: Option<u64>) -> Write {
    let namespace = Name::new("web").expect("a name");
    ConfigWrite { namespace, stamp: Stamp::default(), expected, operation }.into()
}

/// Compares a key, and executes `then`, or deletes another key.
fn conditional(compared: Bytes, then: Operations) -> ConditionalTransaction {
    let expected = ExpectedState::Value(Bytes::from_static(b"v"));
    let delete = Operation::Delete { key: b"app/else", condition: Condition::Always };
    let comparisons = vec![Comparison { key: compared, expected }];
    ConditionalTransaction { comparisons, then, otherwise: Operations::of(&[delete]), id: None }
}

fn writes() -> Vec<(&'static str, Write)> {
    let (shard, key) = (SHARD, KEY);
    let burst = || {
        Operations::of(&[
            Operation::Put { key, value: b"v", condition: Condition::Always },
            Operation::Get { key: OTHER },
        ])
    };
    let watch = Watch { key: Bytes::from_static(b"app/watched"), version: Version(7) };
    let release = Move { shard, migration: MigrationId(1), step: MoveStep::Release { rows: 1 } };
    let discard = RestoreWrite::Discard(Discard { shard, backup: Uuid::nil() });
    let lease_expiry = LeaseExpiry { led_since: UnixMillis(1), shortens: true };
    rows!(Write {
        Write::Keys(_) => [
            "several operations at once, or a transaction": Write::Keys(Transaction::of(burst())),
            "a transaction with a watched key":
                Write::Keys(Transaction { watches: vec![watch.clone()], operations: burst() }),
        ],
        Write::Conditional(_) => [
            "a transaction with comparisons and branches":
                Write::Conditional(Box::new(conditional(watch.key.clone(), burst()))),
        ],
        Write::Expire { .. } => [
            "remove expired keys, and end leases":
                Write::Expire { shard, now: UnixMillis(1), limit: 1, leases: Some(lease_expiry) },
        ],
        Write::Lease(_) => ["a change of leases": LeaseWrite::Revoke { lease: lease() }.into()],
        Write::Lock(_) => [
            "a change of a lock": LockWrite {
                name: Bytes::from_static(KEY),
                lease: lease(),
                operation: LockOperation::Release,
            }.into(),
        ],
        Write::Flush(_) => [
            "remove the keys of a shard": Write::Flush(Box::new(Flush { shard, slots: None, after: None })),
        ],
        Write::Config(_) => [
            "change a namespace if it has a revision": config_write(ConfigOperation::Create, Some(7)),
        ],
        Write::Slots(_) => ["a step of a move of slots": release.clone().into()],
        Write::Restore(_) => ["a step of a restore": Write::Restore(discard.clone())],
        Write::Registry(_) => ["a change of the registry": RegistryWrite::Rebalance.into()],
        Write::Checkpoint { .. } => ["compare replicas (checkpoint)": Write::Checkpoint { shard }],
    })
}

fn requests() -> Vec<(&'static str, Request)> {
    let (shard, to) = (SHARD, NodeId(1));
    let write = || Write::Checkpoint { shard };
    rows!(Request {
        Request::Write(_) => ["a write": Request::Write(write())],
        Request::Read { .. } => ["a read": linearizable(Read::Count)],
        Request::Cluster => ["read the state of the cluster": Request::Cluster],
        Request::Registry => ["read the registry": Request::Registry],
        Request::Load { .. } => ["read the load, with the busiest keys": Request::Load { most: 10 }],
        Request::Explain { .. } => ["explain a placement": Request::Explain { shard }],
        Request::Transfer { .. } => ["transfer a leadership": Request::Transfer { shard, to }],
        Request::Access => ["read roles, principals and tokens": Request::Access],
        Request::Authorities => ["read authorities and join tokens": Request::Authorities],
        Request::Audit { .. } => [
            "read the records of administrative changes": Request::Audit { before: None, most: 10 },
        ],
        Request::Flush => ["remove all keys": Request::Flush],
        Request::SnapshotHere => ["back up one node": Request::SnapshotHere],
        Request::Publish(_) => [
            "publish a message to a channel, which counts as a key of this name": Request::Publish(Publication {
                channel: Bytes::from_static(KEY),
                message: Bytes::new(),
            }),
        ],
    })
}

fn linearizable(read: Read) -> Request {
    Request::Read { read, consistency: Consistency::Linearizable }
}

type Section = (&'static str, Vec<(&'static str, Request)>);

/// All rows, by the sections of the document.
fn sections() -> Vec<Section> {
    let of_operation = |(name, operation): (_, Operation<'_>)| (name, Request::Write(Write::of(&operation)));
    let of_write = |(name, write): (_, Write)| (name, Request::Write(write));
    let of_query = |(name, query)| {
        let namespace = Name::new("web").expect("a name");
        (name, linearizable(Read::Config(ConfigRead { namespace, query })))
    };
    let of_registry = |(name, write): (_, RegistryWrite)| (name, Request::Write(write.into()));
    let of_change = |(name, change)| {
        let node = NodeId(1);
        (name, RegistryWrite::ChangeHost { node, change })
    };
    let of_step = |(name, step)| {
        let step = Move { shard: SHARD, migration: MigrationId(1), step };
        (name, Request::Write(step.into()))
    };
    let (mut keys, mut config, mut cluster) = (Vec::new(), Vec::new(), Vec::new());
    keys.extend(operations().into_iter().map(of_operation));
    for (name, read) in reads() {
        let is_of_config = matches!(read, Read::Config(_) | Read::ConfigNamespaces { .. });
        if is_of_config { &mut config } else { &mut keys }.push((name, linearizable(read)));
    }
    config.extend(queries().into_iter().map(of_query));
    let change = |(name, operation)| (name, Request::Write(config_write(operation, None)));
    config.extend(config_operations().into_iter().map(change));
    cluster.extend(requests());
    cluster.extend(host_changes().into_iter().map(of_change).chain(registry_writes()).map(of_registry));
    let change = |(name, change)| (name, RegistryWrite::Authority(AuthorityWrite::new(change)));
    cluster.extend(authority_changes().into_iter().map(change).map(of_registry));
    for (name, write) in writes() {
        let section = match &write {
            Write::Keys(_) | Write::Conditional(_) => &mut keys,
            Write::Config(_) => &mut config,
            Write::Lease(_) | Write::Lock(_) => continue,
            _ => &mut cluster,
        };
        section.push(of_write((name, write)));
    }
    keys.extend(lease_writes().into_iter().map(|(name, write)| (name, Request::Write(write.into()))));
    keys.extend(lock_writes().into_iter().map(|(name, write)| (name, Request::Write(write.into()))));
    cluster.extend(restores().into_iter().map(|(name, write)| (name, Request::Write(Write::Restore(write)))));
    cluster.extend(moves().into_iter().map(of_step));
    vec![("Keys", keys), ("Configuration", config), ("Cluster", cluster)]
}

/// The narrowest grant that covers a demand; none for one that only nodes may have.
fn narrowest(demand: &Demand<'_>) -> Option<Grant> {
    Some(match (demand.verb, demand.scope) {
        (Verb::Read, Scope::Key(key) | Scope::Keys { prefix: key }) => {
            Grant::Keys { access: KeyAccess::Read, prefix: key.to_vec() }
        }
        (Verb::Watch, Scope::Key(key) | Scope::Keys { prefix: key }) => {
            Grant::Keys { access: KeyAccess::Watch, prefix: key.to_vec() }
        }
        (Verb::Write, Scope::Key(key) | Scope::Keys { prefix: key }) => {
            Grant::Keys { access: KeyAccess::Write, prefix: key.to_vec() }
        }
        (Verb::Read, Scope::Namespace(name)) => config_grant(ConfigAccess::Read, name),
        (Verb::Write, Scope::Namespace(name)) => config_grant(ConfigAccess::Write, name),
        (Verb::Reveal, Scope::Namespace(name)) => config_grant(ConfigAccess::Reveal, name),
        (Verb::Read, Scope::Namespaces { prefix }) => {
            let prefix = String::from_utf8(prefix.to_vec()).expect("a prefix of names");
            Grant::Config { access: ConfigAccess::Read, namespaces: Namespaces::StartingWith(prefix) }
        }
        (Verb::Read, Scope::Cluster) => Grant::Cluster(ClusterLevel::Read),
        (Verb::Operate, Scope::Cluster) => Grant::Cluster(ClusterLevel::Operate),
        (Verb::Administer, Scope::Cluster) => Grant::Cluster(ClusterLevel::Admin),
        (Verb::Internal, Scope::Cluster) => return None,
        demanded => panic!("{demanded:?} is a demand of no request"),
    })
}

fn config_grant(access: ConfigAccess, name: &str) -> Grant {
    Grant::Config { access, namespaces: Namespaces::Named(name.to_string()) }
}

/// A grant that covers less than this one; none for the least that there is.
fn narrower(grant: &Grant) -> Option<Grant> {
    match grant.clone() {
        Grant::Keys { access, mut prefix } => {
            prefix.push(0);
            Some(Grant::Keys { access, prefix })
        }
        Grant::Config { access, namespaces: Namespaces::Named(name) } => {
            Some(Grant::Config { access, namespaces: Namespaces::Named(name + "2") })
        }
        Grant::Config { access, namespaces: Namespaces::StartingWith(prefix) } => {
            Some(Grant::Config { access, namespaces: Namespaces::StartingWith(prefix + "2") })
        }
        Grant::Cluster(ClusterLevel::Read) => None,
        Grant::Cluster(ClusterLevel::Operate) => Some(Grant::Cluster(ClusterLevel::Read)),
        Grant::Cluster(ClusterLevel::Admin) => Some(Grant::Cluster(ClusterLevel::Operate)),
    }
}

fn everything() -> Grants {
    let all =
        ["read keys:", "write keys:", "watch keys:", "read config:*", "write config:*", "cluster:admin"];
    all.into_iter().map(|text| text.parse().expect("a grant")).collect()
}

fn allows(grants: &Grants, request: &Request) -> bool {
    request.check(|demand| grants.cover(demand)).is_ok()
}

#[test]
fn exactly_the_demanded_grants_allow_a_request() {
    let mut checked = 0;
    for (name, request) in sections().into_iter().flat_map(|(_, rows)| rows) {
        let demands = request.demands();
        assert!(!demands.is_empty(), "{name}: a request that anybody may make");
        assert!(!allows(&Grants::default(), &request), "{name}: without a grant");
        let Some(exact) = demands.iter().map(narrowest).collect::<Option<Vec<Grant>>>() else {
            assert!(!allows(&everything(), &request), "{name}: only nodes make it");
            continue;
        };
        assert!(allows(&exact.iter().cloned().collect(), &request), "{name}: with exactly {exact:?}");
        assert!(allows(&everything(), &request), "{name}: with everything");
        for left_out in &exact {
            let others = || exact.iter().filter(|grant| *grant != left_out).cloned();
            assert!(!allows(&others().collect(), &request), "{name}: without {left_out}");
            let too_narrow = others().chain(narrower(left_out)).collect();
            assert!(!allows(&too_narrow, &request), "{name}: with less than {left_out}");
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked} demands");
}

#[test]
fn the_demand_that_is_not_covered_is_named() {
    let grants: Grants = ["write keys:app/", "read keys:app/1"]
        .map(|text| text.parse().expect("a grant"))
        .into_iter()
        .collect();
    let keys = [Operation::Add { key: KEY, delta: 1 }, Operation::Add { key: OTHER, delta: 1 }];
    let request = Request::Write(Write::Keys(Transaction::of(Operations::of(&keys))));
    let denied = request.check(|demand| grants.cover(demand)).expect_err("app/2 may not be read");
    assert_eq!(denied, Demand { verb: Verb::Read, scope: Scope::Key(OTHER) });
    assert_eq!(denied.to_string(), "read keys:app/2");
}

#[test]
fn every_operation_of_a_burst_is_looked_at() {
    let key = |number: usize| format!("app/{number}").into_bytes();
    let keys: Vec<Vec<u8>> = (0..1_000).map(key).collect();
    for denied in [0, 1, 500, 999] {
        let is_covered = |demand: &Demand<'_>| demand.scope != Scope::Key(&keys[denied]);
        let puts: Vec<Operation<'_>> = keys
            .iter()
            .map(|key| Operation::Put { key, value: b"v", condition: Condition::Always })
            .collect();
        let watch = |key: &Vec<u8>| Watch { key: Bytes::from(key.clone()), version: Version(1) };
        let [none, all] = [Vec::new(), keys.iter().map(watch).collect()];
        let get = Operation::Get { key: KEY };
        let gets = || Operations::of(&[get]);
        let branches = |comparisons, then, otherwise| {
            let transaction = ConditionalTransaction { comparisons, then, otherwise, id: None };
            Request::Write(Write::Conditional(Box::new(transaction)))
        };
        let compare =
            |key: &Vec<u8>| Comparison { key: Bytes::from(key.clone()), expected: ExpectedState::Exists };
        let read =
            Read::Operations { operations: Operations::of(&puts), bytes_max: limits::REPLIES_BYTES_CLOSE };
        let requests = [
            Request::Write(Write::Keys(Transaction { watches: none, operations: Operations::of(&puts) })),
            Request::Write(Write::Keys(Transaction { watches: all, operations: Operations::of(&[get]) })),
            branches(vec![], Operations::of(&puts), gets()),
            branches(vec![], gets(), Operations::of(&puts)),
            branches(keys.iter().map(compare).collect(), gets(), gets()),
            linearizable(read),
        ];
        for request in requests {
            assert!(request.check(is_covered).is_err(), "{denied}");
            assert_eq!(request.check(|_| true), Ok(()));
        }
    }
}

#[test]
fn every_condition_reads() {
    let always = Operation::Put { key: KEY, value: b"v", condition: Condition::Always };
    assert!(!Effect::of(always).reads);
    for condition in [Condition::Version(Version(7)), Condition::Version(Version::ABSENT), Condition::Exists]
    {
        for operation in [
            Operation::Put { key: KEY, value: b"v", condition },
            Operation::Delete { key: KEY, condition },
            set(SetCondition::Version(condition), Expiry::Never, false),
        ] {
            assert!(Effect::of(operation).reads, "{operation:?}");
        }
    }
    for condition in [SetCondition::Equals(b""), SetCondition::Differs(b"")] {
        assert!(Effect::of(set(condition, Expiry::Never, false)).reads, "{condition:?}");
    }
    for condition in [
        ExpiryCondition::Never,
        ExpiryCondition::Some,
        ExpiryCondition::Later,
        ExpiryCondition::Earlier,
        ExpiryCondition::SomeLater,
        ExpiryCondition::SomeEarlier,
    ] {
        let expire = Operation::ExpireAfter { key: KEY, after_ms: 1, condition };
        assert!(Effect::of(expire).reads, "{condition:?}");
        assert!(Effect::of(Operation::Expire { key: KEY, at: None, condition }).reads, "{condition:?}");
    }
}

/// Where the generated part of the document begins and ends.
const MARKERS: [&str; 2] = ["<!-- generated from command/demands: begin -->\n", "<!-- generated: end -->\n"];

/// Kinds that only hold one of another row, which the tables leave out.
const CONTAINERS: [&str; 7] = [
    "a write",
    "a read",
    "a change of the registry",
    "change a host",
    "a step of a move of slots",
    "a step of a restore",
    "query a namespace",
];

/// The tables of the document.
fn tables() -> String {
    let mut out = String::new();
    for (title, rows) in sections() {
        out += &format!("\n### {title}\n\n| request | demands |\n|---|---|\n");
        for (name, request) in rows {
            if CONTAINERS.contains(&name) {
                continue;
            }
            let demands: Vec<String> = request.demands().iter().map(shown).collect();
            out += &format!("| {name} | {} |\n", demands.join(", "));
        }
    }
    out + "\n"
}

fn shown(demand: &Demand<'_>) -> String {
    match demand.verb {
        Verb::Internal => "only nodes, for themselves".to_string(),
        _ => format!("`{demand}`"),
    }
}

#[test]
fn the_document_lists_every_request() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/permissions.md");
    let document = fs::read_to_string(&path).expect("the document");
    let (before, rest) = document.split_once(MARKERS[0]).expect("the first marker");
    let (_, after) = rest.split_once(MARKERS[1]).expect("the second marker");
    let expected = [before, MARKERS[0], &tables(), MARKERS[1], after].concat();
    if env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&path, &expected).expect("written");
        return;
    }
    assert_eq!(document, expected, "UPDATE_GOLDENFILES=1 writes it anew");
}

#[test]
fn exactly_what_demands_to_operate_or_administer_is_audited() {
    let of_hosts = host_changes().into_iter().map(|(name, change)| {
        let node = NodeId(1);
        (name, RegistryWrite::ChangeHost { node, change })
    });
    for (name, change) in registry_writes().into_iter().chain(of_hosts) {
        let is_of_operators = matches!(verb_of_registry(&change), Verb::Operate | Verb::Administer);
        assert_eq!(change.is_audited(), is_of_operators, "{name}");
    }
}
