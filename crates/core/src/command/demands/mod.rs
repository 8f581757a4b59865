//! The choke point of permissions: what each request demands of the principal that makes it.
//!
//! Owns the answer for every request, every operation and every option. Permissions of other stores
//! were bypassed by a command, an option or a nested operation that the check did not know. So each
//! enum here is matched without a wildcard, and each struct is taken apart without `..`: a new
//! command, variant or field does not compile before it has an answer here.
//!
//! Two rules decide:
//! - A write also reads if its reply depends on more than whether the key existed: if it returns
//!   the previous value or a result of it, compares with it, or has a condition.
//! - A list, a count and a scan read all keys that they could show, wherever they begin. A key to
//!   continue after only makes a page smaller.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use super::config::{
    Audience, ConfigOperation, DraftAction, DraftStep, Item, Name, Policy, Preview, Query, Search, Selection,
};
use super::{
    AccessChange, AccessWrite, AdminAction, AuthorityChange, AuthorityWrite, Comparison, Condition,
    ConditionalTransaction, ConfigRead, ConfigRestoration, ConfigWrite, Discard, Expiry, ExpiryCondition,
    Flush, HostChange, KeyScope, LeaseTag, LeaseWrite, LockOperation, LockWrite, Move, MoveStep, Operation,
    Operations, Publication, Read, RegistryWrite, Request, Restoration, RestoreWrite, Set, SetCondition,
    ShardTags, Transaction, Watch, Write,
};
use crate::auth::{Demand, Scope, Verb};

/// The first demand that is not covered, or none.
type Verdict<'a> = Result<(), Demand<'a>>;

impl Request {
    /// Passes the demands of the request to `covers` until it denies one. A request without a
    /// demand is allowed to every principal. It allocates nothing.
    ///
    /// # Errors
    /// The demand that was denied.
    pub fn check<'a>(&'a self, mut covers: impl FnMut(&Demand<'a>) -> bool) -> Verdict<'a> {
        let covers = &mut covers;
        match self {
            Request::Write(write) => of_write(write, covers),
            // A stale read shows the same keys as a linearizable one.
            Request::Read { read, consistency: _ } => of_read(read, covers),
            Request::Cluster | Request::Registry => demand(Verb::Read, Scope::Cluster, covers),
            // It names the keys with most requests.
            Request::Load { most: _ } => {
                demand(Verb::Read, Scope::Cluster, covers)?;
                demand(Verb::Read, ALL_KEYS, covers)
            }
            Request::Explain { shard: _ } => demand(Verb::Read, Scope::Cluster, covers),
            Request::Transfer { shard: _, to: _ } => demand(Verb::Operate, Scope::Cluster, covers),
            Request::Access | Request::Authorities | Request::Audit { before: _, most: _ } => {
                demand(Verb::Administer, Scope::Cluster, covers)
            }
            Request::Flush => demand(Verb::Administer, Scope::Cluster, covers),
            // The snapshots become a backup.
            Request::SnapshotHere => demand(Verb::Administer, Scope::Cluster, covers),
            // A channel counts as a key of the same name.
            Request::Publish(Publication { channel, message: _ }) => {
                demand(Verb::Write, Scope::Key(channel), covers)
            }
        }
    }

    /// All demands of the request, in the order in which they are checked.
    pub fn demands(&self) -> Vec<Demand<'_>> {
        let mut demands = Vec::new();
        let checked = self.check(|demand| {
            demands.push(*demand);
            true
        });
        checked.expect("invariant: every demand is covered");
        demands
    }
}

impl<'a> Operation<'a> {
    /// As [`Request::check`], for an operation that becomes a part of a request.
    ///
    /// # Errors
    /// The demand that was denied.
    pub fn check(self, mut covers: impl FnMut(&Demand<'a>) -> bool) -> Result<(), Demand<'a>> {
        of_operation(self, &mut covers)
    }
}

impl Write {
    /// As [`Request::check`], for a write that a peer has forwarded.
    pub(crate) fn check<'a>(&'a self, mut covers: impl FnMut(&Demand<'a>) -> bool) -> Verdict<'a> {
        of_write(self, &mut covers)
    }
}

impl Read {
    /// As [`Request::check`], for a read that a peer asks for.
    pub(crate) fn check<'a>(&'a self, mut covers: impl FnMut(&Demand<'a>) -> bool) -> Verdict<'a> {
        of_read(self, &mut covers)
    }
}

const ALL_KEYS: Scope<'static> = Scope::Keys { prefix: &[] };

fn demand<'a, F: FnMut(&Demand<'a>) -> bool>(verb: Verb, scope: Scope<'a>, covers: &mut F) -> Verdict<'a> {
    let demand = Demand { verb, scope };
    if covers(&demand) { Ok(()) } else { Err(demand) }
}

fn of_write<'a, F: FnMut(&Demand<'a>) -> bool>(write: &'a Write, covers: &mut F) -> Verdict<'a> {
    match write {
        Write::Keys(Transaction { watches, operations }) => {
            // The reply shows whether the key still has this version.
            watches
                .iter()
                .try_for_each(|Watch { key, version: _ }| demand(Verb::Read, Scope::Key(key), covers))?;
            of_operations(operations, covers)
        }
        Write::Conditional(transaction) => of_conditional(transaction, covers),
        // The leader of the shard proposes it.
        Write::Expire { shard: _, now: _, limit: _, leases: _ } => {
            demand(Verb::Internal, Scope::Cluster, covers)
        }
        // It removes keys of every name, so the grants for keys do not apply.
        Write::Flush(flush) => {
            let Flush { shard: _, slots: _, after: _ } = &**flush;
            demand(Verb::Administer, Scope::Cluster, covers)
        }
        Write::Lease(write) => of_lease(write, covers),
        Write::Lock(write) => of_lock(write, covers),
        Write::Config(write) => of_config_write(write, covers),
        Write::Slots(step) => of_move(step, covers),
        Write::Restore(write) => of_restore(write, covers),
        Write::Registry(write) => demand(verb_of_registry(write), Scope::Cluster, covers),
        Write::Checkpoint { shard: _ } => demand(Verb::Operate, Scope::Cluster, covers),
    }
}

/// A lease counts as a key whose name is its id, because a change of it decides about the keys
/// that others have bound to it.
fn of_lease<'a, F: FnMut(&Demand<'a>) -> bool>(write: &'a LeaseWrite, covers: &mut F) -> Verdict<'a> {
    match write {
        LeaseWrite::Grant { tag, ttl_ms: _, at: _ } => demand(Verb::Write, leases_of(tag), covers),
        LeaseWrite::Renew { leases, at: _ } => {
            leases.iter().try_for_each(|lease| demand(Verb::Write, leases_of(lease.tag()), covers))
        }
        LeaseWrite::Revoke { lease } => demand(Verb::Write, leases_of(lease.tag()), covers),
    }
}

/// All leases with a tag.
fn leases_of(tag: &LeaseTag) -> Scope<'_> {
    Scope::Keys { prefix: tag.prefix() }
}

/// The reply shows who holds the lock. The lease becomes responsible for the lock, so the caller
/// must be allowed to change it too.
fn of_lock<'a, F: FnMut(&Demand<'a>) -> bool>(write: &'a LockWrite, covers: &mut F) -> Verdict<'a> {
    let LockWrite { name, lease, operation } = write;
    match operation {
        LockOperation::Acquire { value: _, waits: _, at: _ }
        | LockOperation::Release
        | LockOperation::Cancel { at: _ } => {}
    }
    demand(Verb::Write, Scope::Key(name), covers)?;
    demand(Verb::Read, Scope::Key(name), covers)?;
    demand(Verb::Write, leases_of(lease.tag()), covers)
}

/// Both branches count, whichever is applied: otherwise the answer would show a key's state to a
/// caller that may not read it.
fn of_conditional<'a, F: FnMut(&Demand<'a>) -> bool>(
    transaction: &'a ConditionalTransaction,
    covers: &mut F,
) -> Verdict<'a> {
    // Only a repetition of the same transaction gets a kept outcome, so its demands are the same.
    let ConditionalTransaction { comparisons, then, otherwise, id: _ } = transaction;
    comparisons
        .iter()
        .try_for_each(|Comparison { key, expected: _ }| demand(Verb::Read, Scope::Key(key), covers))?;
    of_operations(then, covers)?;
    of_operations(otherwise, covers)
}

fn of_operations<'a, F: FnMut(&Demand<'a>) -> bool>(
    operations: &'a Operations,
    covers: &mut F,
) -> Verdict<'a> {
    operations.iter().try_for_each(|operation| of_operation(operation, covers))
}

fn of_operation<'a, F: FnMut(&Demand<'a>) -> bool>(operation: Operation<'a>, covers: &mut F) -> Verdict<'a> {
    let Effect { key, writes, reads } = Effect::of(operation);
    if let Operation::PutBound { key: _, value: _, condition: _, lease } = operation {
        // A text without a tag is refused as invalid later.
        let tag_bytes = lease.iter().position(|&byte| byte == b'}').map_or(0, |end| end + 2);
        demand(Verb::Write, Scope::Keys { prefix: lease.get(..tag_bytes).unwrap_or(lease) }, covers)?;
    }
    if writes {
        demand(Verb::Write, Scope::Key(key), covers)?;
    }
    if reads { demand(Verb::Read, Scope::Key(key), covers) } else { Ok(()) }
}

/// What an operation does with its key.
struct Effect<'a> {
    key: &'a [u8],
    writes: bool,
    /// Whether the reply depends on more than whether the key existed.
    reads: bool,
}

impl<'a> Effect<'a> {
    fn of(operation: Operation<'a>) -> Effect<'a> {
        let (key, writes, reads) = match operation {
            Operation::Get { key } | Operation::Describe { key } => (key, false, true),
            Operation::Put { key, value: _, condition } | Operation::Delete { key, condition } => {
                (key, true, reads(condition))
            }
            Operation::PutBound { key, value: _, condition, lease: _ } => (key, true, reads(condition)),
            Operation::Set(Set { key, value: _, condition, expiry, previous }) => {
                (key, true, previous || reads_to_set(condition) || reads_expiry(expiry))
            }
            Operation::Take { key }
            | Operation::Add { key, delta: _ }
            | Operation::Append { key, suffix: _ }
            | Operation::Exchange { key, value: _ }
            | Operation::CompareExchange { key, expected: _, new: _ }
            // The reply shows the length of the whole value.
            | Operation::SetRange { key, offset: _, bytes: _ }
            | Operation::AddDecimal { key, delta: _ } => (key, true, true),
            Operation::DeleteIf { key, condition } => (key, true, reads_to_set(condition)),
            // Only what it needs itself. The operations after it are checked even if it skips them.
            Operation::SkipIfExists { key, count: _ } => (key, false, true),
            Operation::Expire { key, at: _, condition }
            | Operation::ExpireAfter { key, after_ms: _, condition } => {
                (key, true, reads_to_expire(condition))
            }
        };
        Effect { key, writes, reads }
    }
}

fn reads(condition: Condition) -> bool {
    match condition {
        Condition::Always => false,
        Condition::Version(_) | Condition::Exists => true,
    }
}

fn reads_to_set(condition: SetCondition<'_>) -> bool {
    match condition {
        SetCondition::Version(condition) => reads(condition),
        SetCondition::Equals(_)
        | SetCondition::Differs(_)
        | SetCondition::HashEquals(_)
        | SetCondition::HashDiffers(_) => true,
    }
}

fn reads_to_expire(condition: ExpiryCondition) -> bool {
    match condition {
        ExpiryCondition::Always => false,
        ExpiryCondition::Never
        | ExpiryCondition::Some
        | ExpiryCondition::Later
        | ExpiryCondition::Earlier
        | ExpiryCondition::SomeLater
        | ExpiryCondition::SomeEarlier => true,
    }
}

fn reads_expiry(expiry: Expiry) -> bool {
    match expiry {
        // The reply does not show the expiry that is kept.
        Expiry::Never | Expiry::Keep | Expiry::At(_) | Expiry::After(_) => false,
    }
}

fn of_config_write<'a, F: FnMut(&Demand<'a>) -> bool>(write: &'a ConfigWrite, covers: &mut F) -> Verdict<'a> {
    let ConfigWrite { namespace, stamp: _, expected, operation } = write;
    let scope = Scope::Namespace(namespace.as_str());
    // Each of them is confined to the namespace, and to those that inherit from it: containers
    // refer to pairs of their own namespace, and a rollback restores what the namespace held.
    match operation {
        ConfigOperation::Create
        | ConfigOperation::Delete { force: _ }
        | ConfigOperation::Publish { changes: _, create: _ }
        | ConfigOperation::Rollback { to: _, item: None | Some(Item::Pair(_) | Item::Container(_)) }
        | ConfigOperation::SetPolicy(Policy { revisions: _, age_ms: _ })
        | ConfigOperation::Withdraw => {
            demand(Verb::Write, scope, covers)?;
        }
        // Its readers then read what it inherits.
        ConfigOperation::SetParents { parents } => {
            demand(Verb::Write, scope, covers)?;
            of_parents(parents, covers)?;
        }
        // The permission to change a namespace must not allow to remove its protection.
        ConfigOperation::SetProtected(_) => {
            demand(Verb::Write, scope, covers)?;
            demand(Verb::Administer, Scope::Cluster, covers)?;
        }
        ConfigOperation::Draft { draft: _, action } => {
            of_draft_action(action);
            demand(Verb::Write, scope, covers)?;
        }
    }
    if expected.is_some() { demand(Verb::Read, scope, covers) } else { Ok(()) }
}

fn of_parents<'a, F: FnMut(&Demand<'a>) -> bool>(parents: &'a [Name], covers: &mut F) -> Verdict<'a> {
    parents.iter().try_for_each(|parent| demand(Verb::Read, Scope::Namespace(parent.as_str()), covers))
}

/// No action reads or changes another namespace than that of the draft. The match has no wildcard,
/// so that a new action must be considered here.
fn of_draft_action(action: &DraftAction) {
    match action {
        DraftAction::Edit(DraftStep::Publish(_) | DraftStep::Rollback { to: _, item: _ })
        | DraftAction::Comment
        | DraftAction::Approve { edits: _ }
        | DraftAction::Discard
        | DraftAction::Publish { edits: _ }
        | DraftAction::Canary { edits: _, audience: Audience { labels: _, percent: _ } } => {}
    }
}

/// Nodes send the steps of a move to each other.
fn of_move<'a, F: FnMut(&Demand<'a>) -> bool>(step: &'a Move, covers: &mut F) -> Verdict<'a> {
    let Move { shard: _, migration: _, step } = step;
    match step {
        MoveStep::Open { attempt: _, slots: _, founding: _, limit: _ }
        | MoveStep::Import(_)
        | MoveStep::Own { attempt: _, sequence: _, revision: _, config: _, outcomes: _, leases_at: _ }
        | MoveStep::Freeze { slots: _, founding: _ }
        | MoveStep::Release { rows: _ }
        | MoveStep::Purge { limit: _ } => demand(Verb::Internal, Scope::Cluster, covers),
    }
}

/// A restore writes keys and configuration of every name, so the grants for names do not apply.
fn of_restore<'a, F: FnMut(&Demand<'a>) -> bool>(write: &'a RestoreWrite, covers: &mut F) -> Verdict<'a> {
    match write {
        RestoreWrite::Keys(Restoration { shard: _, backup: _, revision: _, records: _ })
        | RestoreWrite::Config(ConfigRestoration { shard: _, backup: _, block: _ })
        | RestoreWrite::Discard(Discard { shard: _, backup: _ }) => {
            demand(Verb::Administer, Scope::Cluster, covers)
        }
    }
}

fn verb_of_registry(write: &RegistryWrite) -> Verb {
    match write {
        RegistryWrite::ChangeHost { node: _, change } => match change {
            HostChange::Vote | HostChange::Follow | HostChange::Drain(_) | HostChange::Leave => Verb::Operate,
            HostChange::Removed | HostChange::Dead(_) => Verb::Internal,
        },
        RegistryWrite::TagShard(ShardTags { shard: _, tags: _ })
        | RegistryWrite::SetDefault { tags: _ }
        | RegistryWrite::AddShard { name: _, tags: _ }
        | RegistryWrite::RemoveShard { shard: _ }
        | RegistryWrite::Rebalance
        | RegistryWrite::MoveSlots { slots: _, to: _ } => Verb::Operate,
        RegistryWrite::Access(AccessWrite { at: _, seen: _, change }) => match change {
            AccessChange::PutRole { name: _, role: _ }
            | AccessChange::DeleteRole { name: _ }
            | AccessChange::PutPrincipal { name: _, principal: _ }
            | AccessChange::DeletePrincipal { name: _ }
            | AccessChange::AddToken { id: _, principal: _, digest: _, lifetime_ms: _ }
            | AccessChange::RotateToken { id: _, digest: _ }
            | AccessChange::DeleteToken { id: _ }
            | AccessChange::Require(_) => Verb::Administer,
        },
        RegistryWrite::Authority(AuthorityWrite { at: _, change }) => match change {
            AuthorityChange::Add { certificate: _, key: _ }
            | AuthorityChange::Use { id: _ }
            | AuthorityChange::Remove { id: _ }
            | AuthorityChange::AddJoinToken { id: _, digest: _, lifetime_ms: _ } => Verb::Administer,
            // A member sends it on behalf of a host that presented a join token.
            AuthorityChange::Enrol { id: _, digest: _, host: _ } => Verb::Internal,
        },
        RegistryWrite::Announce(action) => match action {
            AdminAction::TransferLeadership { shard: _, to: _ } | AdminAction::Checkpoint => Verb::Operate,
            AdminAction::SaveBackup
            | AdminAction::RemoveAllKeys
            | AdminAction::RestoreBackup { backup: _ }
            | AdminAction::ReloadCertificates { node: _ } => Verb::Administer,
        },
        // Nodes send these: a member for a host that joins, each node for itself, and leaders.
        RegistryWrite::RegisterHost(_)
        | RegistryWrite::JoinHost(_)
        | RegistryWrite::Assign { seen: _, assignments: _ }
        | RegistryWrite::ForgetReplica { replica: _ }
        | RegistryWrite::FinishMigration { migration: _ }
        | RegistryWrite::Divide { seen: _, cause: _ }
        | RegistryWrite::MoveHotSlots { seen: _, slots: _, to: _ }
        | RegistryWrite::RaiseVersion { to: _ }
        // Leaders create it when they propose a change.
        | RegistryWrite::Audited(_) => Verb::Internal,
    }
}

fn of_read<'a, F: FnMut(&Demand<'a>) -> bool>(read: &'a Read, covers: &mut F) -> Verdict<'a> {
    match read {
        Read::Get { key } => demand(Verb::Read, Scope::Key(key), covers),
        Read::Operations { operations, bytes_max: _ } => of_operations(operations, covers),
        // Any key may be in the shard.
        Read::Scan { shard: _, after: _, count: _, version: _ } | Read::Count => {
            demand(Verb::Read, ALL_KEYS, covers)
        }
        Read::List { prefix, after: _, limit: _, keys_only: _ } => {
            demand(Verb::Read, Scope::Keys { prefix }, covers)
        }
        Read::Changes { scope, after: _, limit: _, keys_only: _ } => {
            let scope = match scope {
                KeyScope::Key(key) => Scope::Key(key),
                KeyScope::Prefix(prefix) => Scope::Keys { prefix },
            };
            demand(Verb::Read, scope, covers)?;
            demand(Verb::Watch, scope, covers)
        }
        Read::Lease { lease } => demand(Verb::Read, leases_of(lease.tag()), covers),
        Read::Leases { prefix, after: _, limit: _ } => demand(Verb::Read, Scope::Keys { prefix }, covers),
        Read::Lock { name } => demand(Verb::Read, Scope::Key(name), covers),
        Read::Config(ConfigRead { namespace, query }) => {
            demand(Verb::Read, Scope::Namespace(namespace.as_str()), covers)?;
            of_query(query, covers)
        }
        Read::ConfigNamespaces { prefix, after: _, limit: _ } => {
            demand(Verb::Read, Scope::Namespaces { prefix }, covers)
        }
    }
}

/// Every previewed operation shows only its own namespace, as [`of_config_write`] says, and the
/// names of those that inherit from it.
fn of_previewed<'a, F: FnMut(&Demand<'a>) -> bool>(
    operation: &'a ConfigOperation,
    covers: &mut F,
) -> Verdict<'a> {
    match operation {
        ConfigOperation::Create
        | ConfigOperation::Delete { force: _ }
        | ConfigOperation::Publish { changes: _, create: _ }
        | ConfigOperation::Rollback { to: _, item: None | Some(Item::Pair(_) | Item::Container(_)) }
        | ConfigOperation::SetPolicy(Policy { revisions: _, age_ms: _ })
        | ConfigOperation::SetProtected(_)
        | ConfigOperation::Withdraw => Ok(()),
        ConfigOperation::SetParents { parents } => of_parents(parents, covers),
        ConfigOperation::Draft { draft: _, action } => {
            of_draft_action(action);
            Ok(())
        }
    }
}

/// Every query shows only its own namespace, and the names of those from which it inherits and that
/// inherit from it. The match makes a new query prove that.
fn of_query<'a, F: FnMut(&Demand<'a>) -> bool>(query: &'a Query, covers: &mut F) -> Verdict<'a> {
    match query {
        // It changes nothing, and shows content that the namespace holds or that the caller sent.
        Query::Preview(preview) => {
            let Preview { expected: _, operation } = &**preview;
            of_previewed(operation, covers)
        }
        Query::Labelled { label: _, query } => of_query(query, covers),
        Query::Inheritance
        | Query::Drafts
        | Query::Draft { draft: _ }
        | Query::Namespace
        | Query::Pairs(Selection { contains: _, offset: _, limit: _ })
        | Query::Pair { key: _, at: _ }
        | Query::Containers(Selection { contains: _, offset: _, limit: _ })
        | Query::Container { key: _, at: _, known: _ }
        | Query::History { item: _, before: _, limit: _ }
        | Query::Export { at: _ }
        | Query::Search(Search { text: _, after: _, limit: _ })
        | Query::Users { key: _ }
        | Query::Blame { key: _ }
        // These serve watchers, who are shown what a read shows.
        | Query::Changes { key: _, after: _ }
        | Query::NamespaceChanges { after: _ } => Ok(()),
    }
}
