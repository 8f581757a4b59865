//! Identities and positions as newtypes, so that a term is never passed where an index is meant.
//!
//! Owns no behaviour beyond construction, order and display.

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
    /// A process of the cluster, numbered from 1. Founders are numbered in the order of their sorted addresses.
    NodeId
}
newtype! {
    /// A shard: one raft group over a part of the key space. [`ShardId::PRIME`] holds the registry.
    ShardId
}
newtype! {
    /// One replica of one shard, numbered from 1 over the whole cluster and never reused: a replica that
    /// leaves and returns under its old id within one term confuses the engine's progress (raft-rs issue 571).
    ReplicaId
}
newtype! {
    /// A move of slots from one shard to another, numbered from 1 in the order in which they are done; 0 stands for none.
    MigrationId
}
newtype! {
    /// A position in a shard's raft log, from 1; 0 stands before the first entry.
    LogIndex
}
newtype! {
    /// A raft term (Raft paper, section 5.1).
    Term
}
newtype! {
    /// A shard's revision. As a key's version: the revision that last wrote it; 0 says that it is absent.
    Version
}
newtype! {
    /// The shell's own handle of a request; the core returns it with the reply and never looks inside.
    Token
}
newtype! {
    /// A connection of a client of this node, in whose name requests are made. [`ClientId::NODE`] stands for the node.
    ClientId
}
newtype! {
    /// Logical time in ticks since the node started; the shell decides how long one is.
    Ticks
}
newtype! {
    /// Wall time in milliseconds since 1970, by the clock of the node that took the request. The core never reads a
    /// clock: such a time comes in as a value.
    UnixMillis
}
newtype! {
    /// The number of a batch handed to the write-ahead log, from 1, rising by one. What it names is durable
    /// when the shell reports it or a later one.
    WalSequence
}

impl ClientId {
    /// The node itself: what it asks does not wait behind clients.
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
    /// The index after this one.
    pub fn next(self) -> LogIndex {
        LogIndex(self.0 + 1)
    }
}
