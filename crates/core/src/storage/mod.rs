//! What a node writes to its disk: the formats, and the log they make; not when, and not by which system call.
//!
//! The write-ahead log is shared by all raft groups of a worker, so that one fdatasync covers all of them.

pub mod control_file;
pub mod disk;
mod le;
#[cfg(test)]
mod memory_disk;
pub mod wal;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::types::{LogIndex, ReplicaId, ShardId, Term, WalSequence};

/// One entry of a shard's raft log, free of the engine's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its position.
    pub index: LogIndex,
    /// The term that it was proposed in.
    pub term: Term,
    /// Encoded writes; empty for the entry with which a leader opens its term.
    pub data: Bytes,
}

/// What raft must never forget besides its log (Raft paper, figure 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Latest term seen.
    pub term: Term,
    /// The replica voted for in that term, if any.
    pub vote: Option<ReplicaId>,
    /// Highest index known to be committed. May lag: it is a hint that speeds up a restart.
    pub commit: LogIndex,
}

/// One record of the write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalRecord {
    /// Consecutive entries of a shard. They replace whatever the log held from the first one's index on.
    Entries {
        /// Whose log.
        shard: ShardId,
        /// At least one, indexes rising by one.
        entries: Vec<LogEntry>,
    },
    /// Replaces the shard's hard state.
    HardState {
        /// Whose state.
        shard: ShardId,
        /// The new state.
        state: HardState,
    },
}

impl WalRecord {
    /// Whose record it is.
    pub fn shard(&self) -> ShardId {
        match self {
            WalRecord::Entries { shard, .. } | WalRecord::HardState { shard, .. } => *shard,
        }
    }
}

/// Records that become durable together or, for a batch torn by a crash, not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalBatch {
    /// Rises by one with each batch of a node's life; not written to disk.
    pub sequence: WalSequence,
    /// In the order in which they take effect.
    pub records: Vec<WalRecord>,
}

/// Everything that a node's disk remembers, by shard.
pub type RecoveredLogs = BTreeMap<ShardId, RecoveredLog>;

/// What the write-ahead log remembers of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredLog {
    /// The last hard state written.
    pub hard_state: HardState,
    /// Consecutive entries from index 1 (later: from the snapshot) on.
    pub entries: Vec<LogEntry>,
}
