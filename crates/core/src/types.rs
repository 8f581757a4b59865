//! Identities and positions as newtypes, so that a term is never passed in place of an index.
//!
//! They have no behaviour beyond construction, order and display.

use core::fmt;

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

newtype! {
    /// A node of the cluster, numbered from 1. Founders are numbered in the order of their sorted
    /// addresses.
    NodeId
}
newtype! {
    /// A shard: one Raft group for a part of the key space. [`ShardId::PRIME`] holds the registry.
    ShardId
}
newtype! {
    /// One replica of one shard, numbered from 1 over the whole cluster and never reused. A replica
    /// that leaves and returns under its old id within one term would confuse the engine's progress
    /// (raft-rs issue 571).
    ReplicaId
}
newtype! {
    /// A move of slots from one shard to another, numbered from 1 in the order in which moves are
    /// carried out; 0 stands for none.
    MigrationId
}
newtype! {
    /// An index in a shard's Raft log, from 1; 0 stands before the first entry.
    LogIndex
}
newtype! {
    /// A Raft term (Raft paper, section 5.1).
    Term
}
newtype! {
    /// A shard's revision. The version of a key is the revision that last wrote it; 0 means that
    /// the key is absent.
    Version
}
newtype! {
    /// The shell's handle of a request. The core returns it with the reply and does not interpret
    /// it.
    Token
}
newtype! {
    /// A client connection of this node. [`ClientId::NODE`] stands for the node itself.
    ClientId
}
newtype! {
    /// Logical time in ticks since the node started; the shell decides the length of a tick.
    Ticks
}
newtype! {
    /// Wall-clock time in milliseconds since 1970, as reported by a node's shell. The core never
    /// reads a clock.
    UnixMillis
}
newtype! {
    /// The number of a batch for the write-ahead log, from 1, rising by one. The batch is durable
    /// when the shell reports this number or a later one.
    WalSequence
}

impl ClientId {
    /// The node itself. Its requests do not queue behind those of clients.
    pub const NODE: ClientId = ClientId(0);
}

impl ShardId {
    /// The shard of the registry: hosts, shards, replicas.
    pub const PRIME: ShardId = ShardId(0);
}

impl Version {
    /// The version of a key that does not exist.
    pub const ABSENT: Version = Version(0);
}

impl LogIndex {
    /// Returns the index after this one.
    pub fn next(self) -> LogIndex {
        LogIndex(self.0 + 1)
    }
}
