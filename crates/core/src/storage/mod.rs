//! What a node writes to its disk: the formats, and the log they make; not when, and not by which system call.
//!
//! The write-ahead log is shared by all raft groups of a worker, so that one fdatasync covers all of them.

pub mod backup;
pub mod control_file;
pub mod disk;
mod le;
#[cfg(test)]
pub(crate) mod memory_disk;
pub mod recovery;
pub mod slow_disk;
pub mod snapshot;
pub mod snapshot_files;
pub mod start_counter;
pub mod wal;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

use self::snapshot::SnapshotId;
use crate::machine::Machine;
use crate::membership::Membership;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Term, WalSequence};

/// One entry of a shard's raft log, free of the engine's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its position.
    pub index: LogIndex,
    /// The term that it was proposed in.
    pub term: Term,
    /// Encoded writes or a change of membership; empty for the entry with which a leader opens its term.
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
    /// The shard's log begins anew behind a snapshot that was received: all earlier entries are void.
    Restart {
        /// Whose log.
        shard: ShardId,
        /// The last entry that the snapshot contains.
        index: LogIndex,
        /// That entry's term.
        term: Term,
    },
    /// Replaces the shard's hard state.
    HardState {
        /// Whose state.
        shard: ShardId,
        /// The new state.
        state: HardState,
    },
    /// The shard's log begins from nothing, or ends for good: all that came before it is void.
    Tenure {
        /// Whose log.
        shard: ShardId,
        /// Which replica it is the log of, or was.
        tenure: Tenure,
        /// Whether this only repeats what an earlier record said, and voids nothing.
        is_restated: bool,
    },
}

/// Which replica of a shard a disk holds, or held last. Replica numbers rise, so that one that ended never begins again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tenure {
    /// This one begins, of a shard that was founded with these replicas.
    Begun {
        /// The replica.
        replica: ReplicaId,
        /// As of index 0 of the log.
        founding: Vec<(ReplicaId, NodeId)>,
    },
    /// This one is no more, and neither is its log nor any snapshot.
    Ended(ReplicaId),
}

impl WalRecord {
    /// Whose record it is.
    pub fn shard(&self) -> ShardId {
        match self {
            WalRecord::Entries { shard, .. }
            | WalRecord::Restart { shard, .. }
            | WalRecord::HardState { shard, .. }
            | WalRecord::Tenure { shard, .. } => *shard,
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
    /// Entries of a shard up to an index that nobody needs any more: a durable snapshot holds what they did. For
    /// [`wal::Writer::release`], even before the batch is written, if the log has no room for it.
    pub released: Vec<(ShardId, LogIndex)>,
}

/// How much of the write-ahead log is kept beyond the segment that is being written, and for whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogHeld {
    /// Bytes of the files of full segments.
    pub bytes: u64,
    /// The oldest full segment that is needed at all is needed until this shard releases this index.
    pub holder: Option<(ShardId, LogIndex)>,
}

/// Everything that a node's disk remembers, by shard.
pub type RecoveredShards = BTreeMap<ShardId, RecoveredShard>;

/// What the disk remembers of one shard.
#[derive(Debug, Default)]
pub struct RecoveredShard {
    /// The newest snapshot.
    pub snapshot: Option<RecoveredSnapshot>,
    /// The log behind it: its first entry follows the snapshot's last.
    pub log: RecoveredLog,
}

/// A snapshot that was found and loaded.
#[derive(Debug)]
pub struct RecoveredSnapshot {
    /// Which.
    pub id: SnapshotId,
    /// The state.
    pub machine: Machine,
    /// Who replicated the shard then.
    pub membership: Membership,
    /// Size of its file.
    pub file_bytes: u64,
}

/// What the write-ahead log remembers, by shard.
pub type RecoveredLogs = BTreeMap<ShardId, RecoveredLog>;

/// What the write-ahead log remembers of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredLog {
    /// Which replica it is the log of. `None` for one that the shard was founded with: nobody had to be told.
    pub tenure: Option<Tenure>,
    /// The last hard state written.
    pub hard_state: HardState,
    /// Where the log last began anew behind a received snapshot, if it did: the snapshot must be there.
    pub restart: Option<(LogIndex, Term)>,
    /// Consecutive entries. They begin at index 1, behind `restart`, or later where older ones were released because
    /// a snapshot of this node's own holds what they did.
    pub entries: Vec<LogEntry>,
}
