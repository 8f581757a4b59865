//! What the core asks of whoever keeps snapshot files, and what it is told back.
//!
//! Owns the language; `snapshot_files` speaks it on a [`Disk`](super::disk::Disk). Tasks of one shard are carried out in
//! order, each answered by one [`SnapshotDone`], on a thread of their own: a snapshot must not delay the log.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::machine::Machine;
use crate::membership::Membership;
use crate::types::{LogIndex, ShardId, Term};

/// Names a snapshot: the state of a shard after the entry at `index`. Two replicas that made the snapshot of the same
/// name hold the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId {
    /// Whose state.
    pub shard: ShardId,
    /// The last entry that it contains.
    pub index: LogIndex,
    /// That entry's term.
    pub term: Term,
}

/// Work on snapshot files.
#[derive(Debug)]
pub enum SnapshotTask {
    /// Writes the next block of a snapshot in the making; the first makes the file. Answered by
    /// [`SnapshotDone::Written`].
    Write {
        /// Which.
        id: SnapshotId,
        /// From [`Machine::next_block`]; at most [`crate::limits::SNAPSHOT_BLOCK_BYTES_MAX`].
        block: Vec<u8>,
    },
    /// All blocks are written: makes the snapshot durable under its name, then removes older ones of the shard.
    /// Answered by [`SnapshotDone::Finished`].
    Finish {
        /// Which.
        id: SnapshotId,
        /// Whether the one before it stays until the next one begins: a follower is being sent it.
        keeps_older: bool,
    },
    /// Reads a part of a finished snapshot's file, to send it. Answered by [`SnapshotDone::Read`]. Unlike other tasks it
    /// may be put off, so that sending takes no more of the disk and the network than the shell wants it to.
    Read {
        /// Which.
        id: SnapshotId,
        /// From where in the file, in bytes.
        offset: u64,
        /// At most so many bytes.
        bytes_max: usize,
    },
    /// Stores a part of another replica's file. A part that does not continue what is there is ignored. Answered by
    /// [`SnapshotDone::Received`], which says where to go on; an empty part asks just that.
    Receive {
        /// Which. Parts of any other snapshot of the shard that was being received are dropped.
        id: SnapshotId,
        /// Where in the file the part belongs.
        offset: u64,
        /// The part.
        bytes: Bytes,
    },
    /// The shard is replicated here no more: removes all its files. Answered by [`SnapshotDone::Removed`].
    Remove {
        /// The shard; index and term mean nothing.
        id: SnapshotId,
    },
    /// All parts are received: verifies the file, makes it durable under its name and loads the state. Answered by
    /// [`SnapshotDone::Loaded`].
    Load {
        /// Which.
        id: SnapshotId,
    },
    /// A received snapshot is in place: removes older ones of the shard and drops the state that it has replaced. To
    /// free millions of records takes longer than requests should wait. Answered by [`SnapshotDone::Discarded`].
    Discard {
        /// The snapshot in place.
        id: SnapshotId,
        /// The state before.
        machine: Box<Machine>,
    },
    /// A snapshot that was loaded is not wanted any more: removes it, so that an older one, of another leader, can come in
    /// its place, and drops its state. Answered by [`SnapshotDone::Discarded`].
    Refuse {
        /// Which.
        id: SnapshotId,
        /// Its state.
        machine: Box<Machine>,
    },
}

/// What became of a task.
#[derive(Debug)]
pub enum SnapshotDone {
    /// The block is written, not yet durable.
    Written {
        /// Of which snapshot.
        id: SnapshotId,
    },
    /// The snapshot is durable.
    Finished {
        /// Which.
        id: SnapshotId,
        /// Size of its file.
        file_bytes: u64,
        /// CRC-32C over all of the file's content: equal on all replicas that made this snapshot, or their states
        /// differ.
        checksum: u32,
    },
    /// Part of the file.
    Read {
        /// Of which snapshot.
        id: SnapshotId,
        /// Where the part begins.
        offset: u64,
        /// The part; not empty.
        bytes: Bytes,
        /// Size of the whole file.
        file_bytes: u64,
    },
    /// What of the file is there.
    Received {
        /// Of which snapshot.
        id: SnapshotId,
        /// The part that comes next begins here.
        next_offset: u64,
    },
    /// The received snapshot is durable, and this is its state.
    Loaded {
        /// Which.
        id: SnapshotId,
        /// The state.
        machine: Box<Machine>,
        /// Who replicated the shard then.
        membership: Membership,
        /// Size of its file.
        file_bytes: u64,
    },
    /// What a received snapshot has replaced is gone.
    Discarded {
        /// The snapshot in place.
        id: SnapshotId,
    },
    /// All files of the shard are gone, or as many as could be removed: the next start tries again.
    Removed {
        /// As it was in the task.
        id: SnapshotId,
    },
    /// The task failed: no room, a fault of the disk, or a file that is not intact. What was in the making or being
    /// received is removed; finished snapshots stay.
    Failed {
        /// Of which snapshot.
        id: SnapshotId,
        /// Why, for people.
        reason: alloc::string::String,
    },
}

impl SnapshotTask {
    /// Which snapshot it is about.
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
    /// Which snapshot it is about.
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
