//! What a client can read.

use bytes::Bytes;

use super::{ConfigRead, KeyScope, LeaseId, Operations};
use crate::slots::slot_revisions::SlotRevisions;
use crate::types::ShardId;

/// A query of replicated state, of one shard or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// One key. Answered by [`ReadReply::Value`](super::ReadReply::Value).
    Get {
        /// Any bytes.
        key: Bytes,
    },
    /// Read-only operations on keys of one shard, all against the same state. Answered by
    /// [`ReadReply::Operations`](super::ReadReply::Operations).
    Operations {
        /// Only operations that [read](super::Operation::is_read).
        operations: Operations,
        /// Maximum number of bytes of the replies, at most [`crate::limits::REPLIES_BYTES_CLOSE`].
        /// A value that does not fit is replaced by
        /// [`Rejection::RepliesTooLong`](super::Rejection::RepliesTooLong).
        bytes_max: usize,
    },
    /// One step of an iteration over the keys of one shard, in byte order. A key that exists during
    /// the whole iteration is returned at least once. Answered by
    /// [`ReadReply::Scanned`](super::ReadReply::Scanned).
    Scan {
        /// Any data shard.
        shard: ShardId,
        /// Where the previous step ended: [`ReadReply::Scanned`](super::ReadReply::Scanned)'s
        /// `next`; 0 to begin.
        after: u64,
        /// The step ends at the first cursor position after this many keys, at least 1.
        count: usize,
        /// The version of the slot map with which the iteration began. A node that has another
        /// version answers [`Reply::SlotsMoved`](super::Reply::SlotsMoved).
        version: u64,
    },
    /// Number of keys. The count of each shard is exact; the sum is not one instant of the cluster.
    /// Answered by [`ReadReply::Count`](super::ReadReply::Count).
    Count,
    /// Keys in byte order over all shards. The keys of each shard are from one consistent state of
    /// it; the page as a whole is not one instant of the cluster. Answered by
    /// [`ReadReply::Page`](super::ReadReply::Page).
    List {
        /// Only keys that start with these bytes.
        prefix: Bytes,
        /// Only keys greater than this one; `None`: from the first.
        after: Option<Bytes>,
        /// Maximum number of items, 1 to [`crate::limits::LIST_PAGE_ITEMS_MAX`].
        limit: usize,
        /// Whether values are left out, so that a page costs less memory and bandwidth.
        keys_only: bool,
    },
    /// The latest state of the keys that changed after some revisions. The shards' answers together
    /// cover every slot once. Answered by [`ReadReply::Changes`](super::ReadReply::Changes).
    Changes {
        /// Which keys.
        scope: KeyScope,
        /// The revisions, of the slots in question. `None` asks for no changes, only for the
        /// present revisions of all slots.
        after: Option<SlotRevisions>,
        /// Maximum number of changes of each shard, 1 to [`crate::limits::LIST_PAGE_ITEMS_MAX`].
        limit: usize,
        /// Whether values are left out.
        keys_only: bool,
    },
    /// One lease. Answered by [`ReadReply::Lease`](super::ReadReply::Lease).
    Lease {
        /// It need not exist.
        lease: LeaseId,
    },
    /// Ids of leases over all shards, listed as [`Read::List`] lists keys. Of an item, the version
    /// is the number of the lease, and the expiry is when it ends. Answered by
    /// [`ReadReply::Page`](super::ReadReply::Page).
    Leases {
        /// Only ids that start with these bytes.
        prefix: Bytes,
        /// Only ids greater than this one; `None`: from the first.
        after: Option<Bytes>,
        /// Maximum number of items, 1 to [`crate::limits::LIST_PAGE_ITEMS_MAX`].
        limit: usize,
    },
    /// The holder and the queue of a lock. Answered by [`ReadReply::Lock`](super::ReadReply::Lock).
    Lock {
        /// The name of the lock. Nobody need hold it.
        name: Bytes,
    },
    /// One configuration namespace. Answered by [`ReadReply::Config`](super::ReadReply::Config).
    Config(ConfigRead),
    /// Names of configuration namespaces over all shards, listed as [`Read::List`] lists keys. The
    /// version of an item is the namespace's revision. Answered by
    /// [`ReadReply::Page`](super::ReadReply::Page).
    ConfigNamespaces {
        /// Only names that start with these bytes.
        prefix: Bytes,
        /// Only names greater than this one; `None`: from the first.
        after: Option<Bytes>,
        /// Maximum number of items, 1 to [`crate::limits::LIST_PAGE_ITEMS_MAX`].
        limit: usize,
    },
}
