//! Requests to the store, each with the type of its answer.
//!
//! Owns which reply answers which request. Only the queues of RESP connections, whose
//! requests hold the operations of many commands, take replies apart themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidelock_core::audit::AuditRecord;
use tidelock_core::auth::{Access, Authorities};
use tidelock_core::clients::Unanswered;
use tidelock_core::command::config::{ConfigError, ConfigWritten};
use tidelock_core::command::{
    AccessChange, AccessWrite, AuthorityChange, AuthorityWrite, ClusterView, Comparison, Condition,
    ConditionalTransaction, ConfigRead, ConfigReply, ConfigWrite, Consistency, Denial, Exchange,
    ExpectedState, Explanation, FlushReply, HostInfo, LeaseId, LeaseReply, LeaseView, LeaseWrite, LoadView,
    LockReply, LockView, LockWrite, NodeReply, Operation, OperationReplies, OperationReply, Operations, Page,
    Publication, Read, ReadReply, Refusal, RegistryView, RegistryWrite, Rejection, Reply, Request, ScanStep,
    StoredValue, Write, WriteReply,
};
use tidelock_core::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Version};

/// A request that is answered by an `A`.
#[derive(Debug)]
pub struct TypedRequest<A> {
    request: Request,
    answer: Conversion<A>,
}

/// Takes the answer out of a reply to one kind of request; `None` if the reply answers another
/// request of that kind.
#[derive(Debug)]
enum Conversion<A> {
    Write(fn(WriteReply) -> Option<A>),
    Read(fn(ReadReply) -> Option<A>),
    Node(fn(NodeReply) -> Option<A>),
    Any(fn(Reply) -> Option<A>),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The store refuses the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The reply answers another request: a bug, which must not take the node down.
    #[error("the node gave an answer of the wrong kind; its log says more")]
    Mismatched,
}

impl NoAnswer {
    /// Reports a reply that answers another request.
    pub fn mismatched() -> NoAnswer {
        tracing::error!("the store's reply does not match the request: this is a bug");
        NoAnswer::Mismatched
    }
}

impl From<Unanswered> for NoAnswer {
    fn from(error: Unanswered) -> NoAnswer {
        match error {
            Unanswered::Refused(refusal) => NoAnswer::Refused(refusal),
            Unanswered::Mismatched => NoAnswer::mismatched(),
        }
    }
}

impl<A> TypedRequest<A> {
    /// The request itself.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Splits it into the request, and what takes the answer out of the reply.
    pub fn into_parts(self) -> (Request, impl FnOnce(Reply) -> Result<A, NoAnswer>) {
        let TypedRequest { request, answer } = self;
        let answer = move |reply| {
            let answer = match (answer, reply) {
                (_, Reply::Refused(refusal)) => return Err(NoAnswer::Refused(refusal)),
                (Conversion::Write(answer), Reply::Write(reply)) => answer(reply),
                (Conversion::Read(answer), Reply::Read(reply)) => answer(reply),
                (Conversion::Node(answer), Reply::Node(reply)) => answer(reply),
                (Conversion::Any(answer), reply) => answer(reply),
                _ => None,
            };
            answer.ok_or_else(NoAnswer::mismatched)
        };
        (request, answer)
    }

    fn read(read: Read, consistency: Consistency, answer: fn(ReadReply) -> Option<A>) -> TypedRequest<A> {
        TypedRequest { request: Request::Read { read, consistency }, answer: Conversion::Read(answer) }
    }

    fn write(write: impl Into<Write>, answer: fn(WriteReply) -> Option<A>) -> TypedRequest<A> {
        TypedRequest { request: Request::Write(write.into()), answer: Conversion::Write(answer) }
    }

    fn node(request: Request, answer: fn(NodeReply) -> Option<A>) -> TypedRequest<A> {
        TypedRequest { request, answer: Conversion::Node(answer) }
    }
}

/// A function that takes the answer out of a reply, if that matches one of the patterns.
macro_rules! answer {
    ($($reply:pat => $answer:expr),+) => {
        |reply| match reply { $($reply => Some($answer),)+ _ => None }
    };
}

/// A key was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The new version of the key.
    pub version: Version,
    /// Whether the key did not exist before.
    pub created: bool,
}

/// Why a key was neither stored nor removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// The condition did not hold.
    ConditionFailed {
        /// See [`WriteReply::ConditionFailed`].
        current: Version,
    },
    /// The lock is not held with this fence.
    StaleFence,
    /// The state of the key or of the lease does not allow it.
    Rejected(Rejection),
    /// The cluster's version is too low.
    Denied(Denial),
}

/// The condition that a lock is held with a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The name of the lock, a key of the slot of the keys that it guards.
    pub lock: Bytes,
    /// The version that the holder was given with the lock.
    pub number: Version,
}

/// One key, if it exists.
pub fn get(key: Bytes, consistency: Consistency) -> TypedRequest<Option<StoredValue>> {
    TypedRequest::read(Read::Get { key }, consistency, answer!(ReadReply::Value(stored) => stored))
}

/// As [`get`]; the answer is `None` if the value is longer than `bytes_max`.
pub fn get_short(key: &[u8], bytes_max: usize, at: Consistency) -> TypedRequest<Option<Option<StoredValue>>> {
    let operations = Operations::of(&[Operation::Get { key }]);
    TypedRequest::read(Read::Operations { operations, bytes_max }, at, |reply| match reply.only()? {
        OperationReply::Value { version, expires, value } => Some(Some(Some(StoredValue {
            version,
            value: Bytes::copy_from_slice(value),
            expires,
            lease: None,
        }))),
        OperationReply::Absent => Some(Some(None)),
        OperationReply::Rejected(Rejection::RepliesTooLong) => Some(None),
        _ => None,
    })
}

/// A page of keys, names or leases: a [`Read::List`], a [`Read::ConfigNamespaces`] or a
/// [`Read::Leases`].
pub fn page(read: Read, consistency: Consistency) -> TypedRequest<Page> {
    TypedRequest::read(read, consistency, answer!(ReadReply::Page(page) => page))
}

/// The number of keys.
pub fn count(consistency: Consistency) -> TypedRequest<u64> {
    TypedRequest::read(Read::Count, consistency, answer!(ReadReply::Count(keys) => keys))
}

/// A [`Read::Scan`]. The answer is `None` if the slot map has changed since the iteration began.
pub fn scan(read: Read, consistency: Consistency) -> TypedRequest<Option<ScanStep>> {
    let answer = Conversion::Any(
        answer!(Reply::Read(ReadReply::Scanned(step)) => Some(step), Reply::SlotsMoved => None),
    );
    TypedRequest { request: Request::Read { read, consistency }, answer }
}

/// A removal of all keys.
pub fn flush() -> TypedRequest<FlushReply> {
    let answer = Conversion::Any(answer!(Reply::Flushed(flushed) => flushed));
    TypedRequest { request: Request::Flush, answer }
}

/// A branch of a transaction was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branched {
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// The replies to the operations of the branch, one for each.
    pub replies: OperationReplies,
}

/// Why neither branch of a transaction was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTransacted {
    /// Another transaction of the slot has the same id.
    IdReused,
    /// The cluster's version is too low.
    Denied(Denial),
}

/// A transaction with comparisons and branches.
pub fn transact(transaction: ConditionalTransaction) -> TypedRequest<Result<Branched, NotTransacted>> {
    TypedRequest::write(
        Write::Conditional(Box::new(transaction)),
        answer!(
            WriteReply::Branched { succeeded, replies } => Ok(Branched { succeeded, replies }),
            WriteReply::IdReused => Err(NotTransacted::IdReused),
            WriteReply::Denied(denial) => Err(NotTransacted::Denied(denial))
        ),
    )
}

/// A query of a namespace.
pub fn read_config(read: ConfigRead, at: Consistency) -> TypedRequest<Result<ConfigReply, ConfigError>> {
    TypedRequest::read(Read::Config(read), at, answer!(ReadReply::Config(result) => result))
}

/// A change of a namespace.
pub fn write_config(write: ConfigWrite) -> TypedRequest<Result<Result<ConfigWritten, ConfigError>, Refusal>> {
    TypedRequest::write(
        write,
        answer!(
            WriteReply::Config(result) => Ok(result),
            WriteReply::Denied(Denial::VersionTooLow) => Err(Refusal::VersionTooLow)
        ),
    )
}

/// An [`Operation::Put`], an [`Operation::PutBound`], or an [`Operation::Set`] that does not ask
/// for the previous value. With a fence, it happens only while the lock is held with that.
pub fn store(operation: &Operation<'_>, fence: Option<Fence>) -> TypedRequest<Result<Written, NotWritten>> {
    guarded(operation, fence)
}

/// Removes a key. The answer is whether it existed. With a fence, it happens only while the lock is
/// held with that.
pub fn delete(
    key: &[u8],
    condition: Condition,
    fence: Option<Fence>,
) -> TypedRequest<Result<bool, NotWritten>> {
    guarded(&Operation::Delete { key, condition }, fence)
}

fn guarded<A: OfOperation>(
    operation: &Operation<'_>,
    fence: Option<Fence>,
) -> TypedRequest<Result<A, NotWritten>> {
    let Some(Fence { lock, number }) = fence else {
        return TypedRequest::write(Write::of(operation), |reply| A::of_reply(reply.only()?));
    };
    let transaction = ConditionalTransaction {
        comparisons: vec![Comparison { key: lock, expected: ExpectedState::Fence(number) }],
        then: Operations::of(&[*operation]),
        ..ConditionalTransaction::default()
    };
    TypedRequest::write(Write::Conditional(Box::new(transaction)), |reply| match reply {
        WriteReply::Branched { succeeded: true, replies } => A::of_reply(replies.only()?),
        WriteReply::Branched { succeeded: false, .. } => Some(Err(NotWritten::StaleFence)),
        WriteReply::Denied(denial) => Some(Err(NotWritten::Denied(denial))),
        _ => None,
    })
}

/// What the reply to one write of a key says; `None` if it answers another operation.
trait OfOperation: Sized {
    fn of_reply(reply: OperationReply<'_>) -> Option<Result<Self, NotWritten>>;
}

impl OfOperation for Written {
    fn of_reply(reply: OperationReply<'_>) -> Option<Result<Written, NotWritten>> {
        match reply {
            OperationReply::Written { version, created } => Some(Ok(Written { version, created })),
            reply => not_written(reply).map(Err),
        }
    }
}

impl OfOperation for bool {
    fn of_reply(reply: OperationReply<'_>) -> Option<Result<bool, NotWritten>> {
        match reply {
            OperationReply::Deleted { .. } => Some(Ok(true)),
            OperationReply::Absent => Some(Ok(false)),
            reply => not_written(reply).map(Err),
        }
    }
}

fn not_written(reply: OperationReply<'_>) -> Option<NotWritten> {
    match reply {
        OperationReply::ConditionFailed { current } => Some(NotWritten::ConditionFailed { current }),
        OperationReply::Rejected(rejection) => Some(NotWritten::Rejected(rejection)),
        _ => None,
    }
}

/// A change of leases.
pub fn change_leases(change: LeaseWrite) -> TypedRequest<LeaseReply> {
    TypedRequest::write(change, answer!(WriteReply::Lease(reply) => reply))
}

/// One lease, if it exists.
pub fn lease(lease: LeaseId, consistency: Consistency) -> TypedRequest<Option<Box<LeaseView>>> {
    TypedRequest::read(Read::Lease { lease }, consistency, answer!(ReadReply::Lease(found) => found))
}

/// A change of a lock.
pub fn change_lock(change: LockWrite) -> TypedRequest<LockReply> {
    TypedRequest::write(change, answer!(WriteReply::Lock(reply) => reply))
}

/// The holder and the queue of a lock, if somebody holds it.
pub fn lock(name: Bytes, consistency: Consistency) -> TypedRequest<Option<Box<LockView>>> {
    TypedRequest::read(Read::Lock { name }, consistency, answer!(ReadReply::Lock(found) => found))
}

/// An [`Operation::Exchange`] or an [`Operation::CompareExchange`].
pub fn exchange(operation: &Operation<'_>) -> TypedRequest<Result<Exchange, Rejection>> {
    TypedRequest::write(Write::of(operation), |reply| match reply.only()? {
        OperationReply::Exchanged(exchange) => Some(Ok(exchange)),
        OperationReply::Rejected(rejection) => Some(Err(rejection)),
        _ => None,
    })
}

/// A change of a host, or of a shard other than its addition.
pub fn change_registry(write: RegistryWrite) -> TypedRequest<Result<(), Denial>> {
    TypedRequest::write(
        write,
        answer!(WriteReply::HostChanged => Ok(()), WriteReply::Denied(denial) => Err(denial)),
    )
}

/// Adds a shard. The answer is its number.
pub fn add_shard(
    name: Option<String>,
    tags: BTreeMap<String, String>,
) -> TypedRequest<Result<ShardId, Denial>> {
    TypedRequest::write(
        RegistryWrite::AddShard { name, tags },
        answer!(WriteReply::ShardAdded { shard } => Ok(shard), WriteReply::Denied(denial) => Err(denial)),
    )
}

/// A [`RegistryWrite::Rebalance`] or a [`RegistryWrite::MoveSlots`]. The answer is the number of
/// moves that were added, and the last move ever planned.
pub fn move_slots(write: RegistryWrite) -> TypedRequest<Result<(u64, MigrationId), Denial>> {
    TypedRequest::write(write, |reply| match reply {
        WriteReply::Moving { moves, last } => Some(Ok((moves, last))),
        WriteReply::Denied(denial) => Some(Err(denial)),
        _ => None,
    })
}

/// A change of roles, principals or tokens. The answer is its revision.
pub fn change_access(change: AccessChange) -> TypedRequest<Result<LogIndex, Denial>> {
    TypedRequest::write(RegistryWrite::Access(AccessWrite::new(change)), |reply| match reply {
        WriteReply::AccessChanged { revision } => Some(Ok(revision)),
        WriteReply::Denied(denial) => Some(Err(denial)),
        _ => None,
    })
}

/// A change of CAs or join tokens.
pub fn change_authorities(change: AuthorityChange) -> TypedRequest<Result<(), Denial>> {
    change_registry(RegistryWrite::Authority(AuthorityWrite::new(change)))
}

/// See [`Request::Authorities`].
pub fn authorities() -> TypedRequest<Arc<Authorities>> {
    TypedRequest::node(Request::Authorities, answer!(NodeReply::Authorities(authorities) => authorities))
}

/// See [`Request::Access`].
pub fn access() -> TypedRequest<Arc<Access>> {
    TypedRequest::node(Request::Access, answer!(NodeReply::Access(access) => access))
}

/// See [`Request::Audit`].
pub fn audit(before: Option<u64>, most: usize) -> TypedRequest<Vec<Arc<AuditRecord>>> {
    TypedRequest::node(Request::Audit { before, most }, answer!(NodeReply::Audit(records) => records))
}

/// See [`Request::Publish`].
pub fn publish(publication: Publication) -> TypedRequest<()> {
    TypedRequest::node(Request::Publish(publication), answer!(NodeReply::Published => ()))
}

/// Takes a host into the cluster. The answer is its number, and its replica of the prime shard.
pub fn join(host: HostInfo) -> TypedRequest<Result<(NodeId, ReplicaId), Denial>> {
    TypedRequest::write(RegistryWrite::JoinHost(host), |reply| match reply {
        WriteReply::Joined { node, replica } => Some(Ok((node, replica))),
        WriteReply::Denied(denial) => Some(Err(denial)),
        _ => None,
    })
}

/// See [`Request::Cluster`].
pub fn cluster() -> TypedRequest<Box<ClusterView>> {
    TypedRequest::node(Request::Cluster, answer!(NodeReply::Cluster(view) => view))
}

/// See [`Request::Load`].
pub fn load(most: usize) -> TypedRequest<Box<LoadView>> {
    TypedRequest::node(Request::Load { most }, answer!(NodeReply::Load(load) => load))
}

/// See [`Request::Registry`].
pub fn registry() -> TypedRequest<Box<RegistryView>> {
    TypedRequest::node(Request::Registry, answer!(NodeReply::Registry(view) => view))
}

/// See [`Request::Explain`].
pub fn explain(shard: ShardId) -> TypedRequest<Explanation> {
    TypedRequest::node(Request::Explain { shard }, answer!(NodeReply::Explained(explanation) => explanation))
}

/// See [`Request::Transfer`].
pub fn transfer(shard: ShardId, to: NodeId) -> TypedRequest<()> {
    TypedRequest::node(Request::Transfer { shard, to }, answer!(NodeReply::Asked => ()))
}
