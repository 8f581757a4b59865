//! Tasks on snapshot files, and their results.
//!
//! [`snapshot_files`](super::snapshot_files) implements them on a [`Disk`](super::disk::Disk).
//! Tasks of one shard are executed in order, each with one [`SnapshotDone`] as its result. A
//! separate thread executes them, because a snapshot must not delay the log.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::machine::Machine;
use crate::membership::Membership;
use crate::types::{LogIndex, ShardId, Term};

/// Identifies a snapshot: the state of a shard after the entry at `index`. Snapshots with the same
/// id have the same bytes on every replica that made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId {
    /// The shard whose state it is.
    pub shard: ShardId,
    /// The last entry that it contains.
    pub index: LogIndex,
    /// The term of that entry.
    pub term: Term,
}

/// A task on snapshot files, for the shell's snapshot thread.
#[derive(Debug)]
pub enum SnapshotTask {
    /// Writes the next block of a new snapshot; the first one creates the file. Answered by
    /// [`SnapshotDone::Written`].
    Write {
        /// The snapshot being made. The first block begins a new one and drops an unfinished one.
        id: SnapshotId,
        /// From [`Machine::next_block`]; at most [`crate::limits::SNAPSHOT_BLOCK_BYTES_MAX`].
        block: Vec<u8>,
    },
    /// Completes a new snapshot: makes it durable under its final name, then removes older ones of
    /// the shard. Answered by [`SnapshotDone::Finished`].
    Finish {
        /// The snapshot that [`SnapshotTask::Write`] has written completely.
        id: SnapshotId,
        /// Whether to keep the previous snapshot until the next one begins, because a follower is
        /// being sent it.
        keeps_older: bool,
    },
    /// Reads a part of a finished snapshot's file, to send it. Answered by [`SnapshotDone::Read`].
    /// Unlike other tasks it may be delayed, so that the shell can limit the disk and network load
    /// of sending.
    Read {
        /// A finished snapshot. If it was replaced in the meantime, the task fails.
        id: SnapshotId,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Maximum number of bytes to read. The part is shorter at the end of the file.
        bytes_max: usize,
    },
    /// Stores a part of another replica's file. A part that does not continue the received bytes is
    /// ignored. Answered by [`SnapshotDone::Received`], which states where to continue; an empty
    /// part only queries that.
    Receive {
        /// The snapshot. Received parts of any other snapshot of the shard are dropped.
        id: SnapshotId,
        /// Offset of the part in the file.
        offset: u64,
        /// The bytes of the part; none to query the received length.
        bytes: Bytes,
    },
    /// Removes all files of a shard that no longer has a replica here. Answered by
    /// [`SnapshotDone::Removed`].
    Remove {
        /// The shard; index and term are ignored.
        id: SnapshotId,
    },
    /// Completes a received snapshot: verifies the file, makes it durable under its final name and
    /// loads the state. Answered by [`SnapshotDone::Loaded`].
    Load {
        /// The snapshot, received up to its last byte.
        id: SnapshotId,
    },
    /// Removes the snapshots of the shard that are older than an installed one, and drops the
    /// replaced state. Freeing millions of records takes longer than requests should wait. Answered
    /// by [`SnapshotDone::Discarded`].
    Discard {
        /// The installed snapshot. It stays; older ones of the shard are removed.
        id: SnapshotId,
        /// The state that the installed snapshot replaced.
        machine: Box<Machine>,
    },
    /// Removes a loaded snapshot that is not used, so that an older one of another leader can
    /// replace it, and drops its state. Answered by [`SnapshotDone::Discarded`].
    Refuse {
        /// The loaded snapshot, which must not be in use.
        id: SnapshotId,
        /// The state that was loaded from it.
        machine: Box<Machine>,
    },
}

/// The result of a task, in the order of the tasks of each shard.
#[derive(Debug)]
pub enum SnapshotDone {
    /// The block is written, but not durable yet.
    Written {
        /// The snapshot being made.
        id: SnapshotId,
    },
    /// The snapshot is durable under its final name.
    Finished {
        /// The finished snapshot.
        id: SnapshotId,
        /// Size of its file in bytes.
        file_bytes: u64,
        /// CRC-32C over the file's content. It is equal on all replicas that made this snapshot,
        /// unless their states differ.
        checksum: u32,
    },
    /// A part of a finished snapshot's file.
    Read {
        /// The snapshot whose file was read.
        id: SnapshotId,
        /// Offset of the part in bytes.
        offset: u64,
        /// The bytes of the part; not empty.
        bytes: Bytes,
        /// Size of the whole file in bytes.
        file_bytes: u64,
    },
    /// The received length of the file.
    Received {
        /// The snapshot that the task names. If none of its parts have arrived, `next_offset` is 0.
        id: SnapshotId,
        /// Offset of the next part in bytes.
        next_offset: u64,
    },
    /// The received snapshot is durable and loaded.
    Loaded {
        /// The received snapshot, which has become the newest of the shard.
        id: SnapshotId,
        /// The state after the entry at `id.index`.
        machine: Box<Machine>,
        /// The membership of the shard at the time.
        membership: Membership,
        /// Size of its file in bytes.
        file_bytes: u64,
    },
    /// The replaced or refused state is dropped.
    Discarded {
        /// The id in the task: the installed or the refused snapshot.
        id: SnapshotId,
    },
    /// All files of the shard are removed, as far as possible; the next start retries the rest.
    Removed {
        /// The id in the task; only its shard counts.
        id: SnapshotId,
    },
    /// The task failed: the disk is full or faulty, or a file is damaged. The unfinished or partly
    /// received file is removed; finished snapshots stay.
    Failed {
        /// The id in the task. The shard can begin another snapshot at once.
        id: SnapshotId,
        /// The reason, for the log.
        reason: alloc::string::String,
    },
}

impl SnapshotTask {
    /// The snapshot that the task concerns. For [`SnapshotTask::Remove`], only its shard counts.
    pub fn id(&self) -> SnapshotId {
        match self {
            SnapshotTask::Write { id, .. }
            | SnapshotTask::Finish { id, .. }
            | SnapshotTask::Read { id, .. }
            | SnapshotTask::Receive { id, .. }
            | SnapshotTask::Remove { id }
            | SnapshotTask::Load { id }
            | SnapshotTask::Discard { id, .. }
            | SnapshotTask::Refuse { id, .. } => *id,
        }
    }
}

impl SnapshotDone {
    /// The id in the task that this is the result of.
    pub fn id(&self) -> SnapshotId {
        match self {
            SnapshotDone::Written { id }
            | SnapshotDone::Finished { id, .. }
            | SnapshotDone::Read { id, .. }
            | SnapshotDone::Received { id, .. }
            | SnapshotDone::Loaded { id, .. }
            | SnapshotDone::Discarded { id }
            | SnapshotDone::Removed { id }
            | SnapshotDone::Failed { id, .. } => *id,
        }
    }
}
