//! On-disk formats and the write-ahead log. The shell decides when to write and by which system
//! calls.
//!
//! All Raft groups of a worker share the write-ahead log, so that one fdatasync covers all of them.

pub mod backup;
pub mod control_file;
pub mod disk;
mod framing;
pub mod group_commit;
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

/// One entry of a shard's Raft log, independent of the engine's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Rises by one from entry to entry.
    pub index: LogIndex,
    /// The term in which it was proposed.
    pub term: Term,
    /// Encoded writes or a membership change; empty for the first entry of a leader's term.
    pub data: Bytes,
}

/// The persistent Raft state besides the log (Raft paper, figure 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The latest term that the replica has seen.
    pub term: Term,
    /// The replica voted for in that term, if any.
    pub vote: Option<ReplicaId>,
    /// Highest index known to be committed. It may lag: it only speeds up a restart.
    pub commit: LogIndex,
}

/// One record of the write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalRecord {
    /// Consecutive entries of a shard. They replace all entries of the log from their first index
    /// on.
    Entries {
        /// The shard to whose log the entries belong.
        shard: ShardId,
        /// At least one, indexes rising by one.
        entries: Vec<LogEntry>,
    },
    /// Restarts the shard's log after a received snapshot: all earlier entries are void.
    Restart {
        /// The shard whose log restarts.
        shard: ShardId,
        /// The last entry that the snapshot contains.
        index: LogIndex,
        /// The term of that entry.
        term: Term,
    },
    /// Replaces the shard's hard state.
    HardState {
        /// The shard whose state it is.
        shard: ShardId,
        /// The whole new state.
        state: HardState,
    },
    /// Begins the log of a replica, or ends it for good: all earlier records of the shard are void.
    ReplicaIncarnation {
        /// The shard of the replica.
        shard: ShardId,
        /// The replica that begins or ends.
        incarnation: ReplicaIncarnation,
        /// Whether the record only repeats an earlier one, and voids nothing.
        is_restated: bool,
    },
}

/// The current or last replica of a shard on a disk. Replica numbers rise, so a replica that ended
/// never begins again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaIncarnation {
    /// The replica begins, in a shard with these founding replicas.
    Begun {
        /// Assigned by the registry; higher than that of any earlier replica of the shard here.
        replica: ReplicaId,
        /// The membership at index 0 of the log.
        founding: Vec<(ReplicaId, NodeId)>,
    },
    /// The replica has ended. Its log and its snapshots are void.
    Ended(ReplicaId),
}

impl WalRecord {
    /// The shard that the record concerns.
    pub fn shard(&self) -> ShardId {
        match self {
            WalRecord::Entries { shard, .. }
            | WalRecord::Restart { shard, .. }
            | WalRecord::HardState { shard, .. }
            | WalRecord::ReplicaIncarnation { shard, .. } => *shard,
        }
    }
}

/// Records that become durable together. A batch torn by a crash is void as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalBatch {
    /// Rises by one with each batch of a process. Not written to disk.
    pub sequence: WalSequence,
    /// In the order in which they are applied.
    pub records: Vec<WalRecord>,
    /// For each shard, the last entry that is no longer needed, because a durable snapshot contains
    /// it. To be passed to [`wal::Writer::release`], even before the batch is written if the log
    /// lacks space for it.
    pub released: Vec<(ShardId, LogIndex)>,
}

/// How much of the write-ahead log is kept besides the current segment, and for which shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogHeld {
    /// Size of the full segments in bytes.
    pub bytes: u64,
    /// The oldest full segment is needed until this shard releases this index.
    pub holder: Option<(ShardId, LogIndex)>,
}

/// The whole state on a node's disk, by shard.
pub type RecoveredShards = BTreeMap<ShardId, RecoveredShard>;

/// The state of one shard on disk.
#[derive(Debug, Default)]
pub struct RecoveredShard {
    /// The newest intact snapshot; `None` if the whole state is in the log.
    pub snapshot: Option<RecoveredSnapshot>,
    /// The log after it: the first entry follows the snapshot's last.
    pub log: RecoveredLog,
}

impl RecoveredShard {
    /// Whether nothing of the shard is on disk, not even a term.
    pub fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.log == RecoveredLog::default()
    }
}

/// A snapshot that was loaded from its file.
#[derive(Debug)]
pub struct RecoveredSnapshot {
    /// The entry after which the state was saved.
    pub id: SnapshotId,
    /// The state after that entry.
    pub machine: Machine,
    /// The membership of the shard at the time.
    pub membership: Membership,
    /// Size of its file in bytes.
    pub file_bytes: u64,
}

/// The content of the write-ahead log, by shard.
pub type RecoveredLogs = BTreeMap<ShardId, RecoveredLog>;

/// The content of the write-ahead log for one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredLog {
    /// The replica of the log; `None` for a founding replica, which needs no record.
    pub incarnation: Option<ReplicaIncarnation>,
    /// The last hard state written; the default if none was.
    pub hard_state: HardState,
    /// The snapshot after which the log last restarted, if it did. That snapshot must exist.
    pub restart: Option<(LogIndex, Term)>,
    /// Consecutive entries. They begin at index 1, or after `restart`, or later if older entries
    /// were released because a snapshot of this node contains them.
    pub entries: Vec<LogEntry>,
}
