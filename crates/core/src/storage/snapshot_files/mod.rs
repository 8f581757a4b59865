//! The files of snapshots: what [`SnapshotTask`]s mean on a [`Disk`].
//!
//! ```text
//! Write, Write, … Finish    ──► .part ──► synced ──► renamed ──► finished ──► Read, Read, … to a follower
//! Receive, Receive, … Load  ──► .recv ──► verified, synced ──► renamed ──► finished, and its state handed out ──► Discard, or Refuse
//! ```
//!
//! Invariants:
//! - A file with the name of a finished snapshot was complete and durable when it got that name.
//! - The newest finished snapshot of a shard stays until a newer one is finished, unless the core refuses it.
//! - A shard has two files at most: the newest finished one, and either one that grows or the finished one before it.
//!   That one stays only while it is of use: a follower is in the midst of receiving it, or the newest was received and
//!   is not in place yet. So the files of a shard take no more than twice the largest state that it had at its last two
//!   snapshots, and most of the time once.
//!
//! Deliberately not here: when a snapshot is made, sent or loaded, and which part of the log goes; that is the core's. It
//! has one task about a snapshot under way at a time, and so knows of a failure before it asks for more. When it begins a
//! newer one instead of the one in the making, what is under way of the older one is done first.

mod format;
mod growing;
mod reader;
mod readers;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

use self::format::{Stage, file_name, parse_file_name};
use self::growing::{Growing, Making};
pub use self::reader::SnapshotFileError;
pub use self::readers::{Readers, Reading};
use super::RecoveredSnapshot;
use super::disk::{Disk, DiskError, DiskFile};
use super::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};
use crate::limits;
use crate::machine::Restored;
use crate::types::ShardId;

/// How much of a file that goes is let go in one step.
const SHRINK_STEP_BYTES: u64 = 4 << 20;

/// All snapshots of a node.
#[derive(Debug)]
pub struct SnapshotFiles<D: Disk> {
    disk: D,
    shards: BTreeMap<ShardId, ShardFiles<D::File>>,
    readers: Readers,
}

/// The snapshots of one shard.
#[derive(Debug)]
struct ShardFiles<F> {
    finished: BTreeSet<SnapshotId>,
    grows: Option<Grows<F>>,
    /// A snapshot in the making that had to go for one that is received. The core is yet to hear of it.
    dropped: Option<SnapshotId>,
}

/// The file that grows.
#[derive(Debug)]
enum Grows<F> {
    Making(Making<F>),
    Receiving(Growing<F>),
}

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error(transparent)]
    File(#[from] SnapshotFileError),
    #[error("{0}")]
    Disk(#[from] DiskError),
    #[error("{0}")]
    Refused(&'static str),
}

/// Opens a finished snapshot to read it with [`read_blocks`]. A newer snapshot may take its name away meanwhile; on a
/// file system where an open file outlives its name, it can be read to its end all the same.
///
/// # Errors
/// When there is no such snapshot, or the disk fails.
pub fn open_finished<D: Disk>(disk: &D, id: SnapshotId) -> Result<D::File, DiskError> {
    disk.open(&file_name(id, Stage::Finished))
}

/// Reads a snapshot from its file and gives each block to `take`, once its checksum is verified. Returns the size of the
/// file; what was given out is a whole snapshot only then.
///
/// # Errors
/// When the file is not intact, the disk fails, or `take` does.
pub fn read_blocks<F: DiskFile, E: From<SnapshotFileError>>(
    file: &F,
    id: SnapshotId,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    reader::read(file, &file_name(id, Stage::Finished), id, |_, block| take(block))
}

impl<D: Disk> SnapshotFiles<D> {
    /// Finds the finished snapshots on `disk`, unverified, and removes what was not finished when the process ended: a
    /// snapshot that was being received begins again at its first byte.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn open(disk: D) -> Result<SnapshotFiles<D>, DiskError> {
        let mut shards: BTreeMap<ShardId, ShardFiles<D::File>> = BTreeMap::new();
        for name in disk.list()? {
            match parse_file_name(&name) {
                Some((id, Stage::Finished)) => {
                    shards.entry(id.shard).or_default().finished.insert(id);
                }
                Some(_) => disk.remove(&name)?,
                None => {}
            }
        }
        Ok(SnapshotFiles { disk, shards, readers: Readers::default() })
    }

    /// Those who read files by themselves; none so far.
    pub fn readers(&self) -> Readers {
        self.readers.clone()
    }

    /// Shards that have a finished snapshot.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.shards.iter().filter(|(_, files)| !files.finished.is_empty()).map(|(&shard, _)| shard)
    }

    /// Finished snapshots of a shard, the newest one first.
    pub fn finished(&self, shard: ShardId) -> impl Iterator<Item = SnapshotId> {
        self.shards.get(&shard).into_iter().flat_map(|files| files.finished.iter().rev().copied())
    }

    /// Bytes of all files.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn file_bytes(&self) -> Result<u64, DiskError> {
        let mut bytes = 0;
        for files in self.shards.values() {
            for &id in &files.finished {
                bytes += self.disk.open(&file_name(id, Stage::Finished))?.size()?;
            }
            bytes += match &files.grows {
                Some(Grows::Making(making)) => making.out.bytes,
                Some(Grows::Receiving(receiving)) => receiving.bytes,
                None => 0,
            };
        }
        Ok(bytes)
    }

    /// Verifies a finished snapshot and loads its state.
    ///
    /// # Errors
    /// When the file is not intact, or the disk fails.
    pub fn load(&self, id: SnapshotId) -> Result<RecoveredSnapshot, SnapshotFileError> {
        let name = file_name(id, Stage::Finished);
        let (Restored { machine, membership }, file_bytes) =
            reader::load(&self.disk.open(&name)?, &name, id)?;
        Ok(RecoveredSnapshot { id, machine, membership, file_bytes })
    }

    /// Removes all finished snapshots of a shard but `kept`.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn keep_only(&mut self, shard: ShardId, kept: Option<SnapshotId>) -> Result<(), DiskError> {
        self.shards.entry(shard).or_default().finished.retain(|&id| Some(id) == kept);
        self.sweep(shard)
    }

    /// Carries a task out. Takes as long as the disk does.
    pub fn run(&mut self, task: SnapshotTask) -> SnapshotDone {
        let id = task.id();
        let (result, grew) = match task {
            SnapshotTask::Write { block, .. } => (self.write(id, &block), Some(Stage::Making)),
            SnapshotTask::Finish { keeps_older, .. } => (self.finish(id, keeps_older), Some(Stage::Making)),
            SnapshotTask::Read { offset, bytes_max, .. } => (self.read(id, offset, bytes_max), None),
            SnapshotTask::Receive { offset, bytes, .. } => {
                (self.receive(id, offset, &bytes), Some(Stage::Receiving))
            }
            SnapshotTask::Remove { .. } => (Ok(self.remove(id)), None),
            SnapshotTask::Load { .. } => (self.load_received(id), Some(Stage::Receiving)),
            SnapshotTask::Discard { machine, .. } => {
                drop(machine);
                self.remove_before(id);
                (Ok(SnapshotDone::Discarded { id }), None)
            }
            SnapshotTask::Refuse { machine, .. } => {
                drop(machine);
                self.files(id.shard).finished.remove(&id);
                // What cannot be removed now goes with the next one.
                let _ = self.sweep(id.shard);
                (Ok(SnapshotDone::Discarded { id }), None)
            }
        };
        result.unwrap_or_else(|error: TaskError| {
            if let Some(stage) = grew {
                self.give_up(id, stage);
            }
            SnapshotDone::Failed { id, reason: error.to_string() }
        })
    }

    fn write(&mut self, id: SnapshotId, block: &[u8]) -> Result<SnapshotDone, TaskError> {
        if block.is_empty() || block.len() > limits::SNAPSHOT_BLOCK_BYTES_MAX {
            return Err(TaskError::Refused("the block has an impossible length"));
        }
        if self.making(id)?.is_none() {
            self.make_room(id)?;
            let making = Making::begin(&self.disk, id)?;
            self.files(id.shard).grows = Some(Grows::Making(making));
        }
        let making = self.making(id)?.expect("invariant: it was begun");
        making.block(block)?;
        Ok(SnapshotDone::Written { id })
    }

    fn finish(&mut self, id: SnapshotId, keeps_older: bool) -> Result<SnapshotDone, TaskError> {
        let Some(making) = self.making(id)? else {
            return Err(TaskError::Refused("no such snapshot is in the making"));
        };
        let checksum = making.finish()?;
        let file_bytes = making.out.bytes;
        self.install(id, Stage::Making)?;
        if !keeps_older {
            self.remove_before(id);
        }
        Ok(SnapshotDone::Finished { id, file_bytes, checksum })
    }

    fn read(&self, id: SnapshotId, offset: u64, bytes_max: usize) -> Result<SnapshotDone, TaskError> {
        if !self.finished(id.shard).any(|finished| finished == id) {
            return Err(TaskError::Refused("there is no such snapshot, or none any more"));
        }
        let file = self.disk.open(&file_name(id, Stage::Finished))?;
        let file_bytes = file.size()?;
        let left = usize::try_from(file_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut part = vec![0; left.min(bytes_max)];
        if part.is_empty() {
            return Err(TaskError::Refused("there is nothing to read there"));
        }
        file.read_at(offset, &mut part)?;
        Ok(SnapshotDone::Read { id, offset, bytes: Bytes::from(part), file_bytes })
    }

    fn receive(&mut self, id: SnapshotId, offset: u64, part: &[u8]) -> Result<SnapshotDone, TaskError> {
        let held = self.receiving(id).map(|receiving| receiving.bytes);
        if part.is_empty() || offset != held.unwrap_or(0) {
            return Ok(SnapshotDone::Received { id, next_offset: held.unwrap_or(0) });
        }
        if held.is_none() {
            self.make_room(id)?;
            let receiving = Growing::begin(&self.disk, id, Stage::Receiving)?;
            self.files(id.shard).grows = Some(Grows::Receiving(receiving));
        }
        let receiving = self.receiving(id).expect("invariant: it was begun");
        receiving.append(part)?;
        Ok(SnapshotDone::Received { id, next_offset: receiving.bytes })
    }

    fn load_received(&mut self, id: SnapshotId) -> Result<SnapshotDone, TaskError> {
        let Some(receiving) = self.receiving(id) else {
            return Err(TaskError::Refused("no such snapshot is being received"));
        };
        let (Restored { machine, membership }, file_bytes) =
            reader::load(&receiving.file, &file_name(id, Stage::Receiving), id)?;
        receiving.sync()?;
        self.install(id, Stage::Receiving)?;
        Ok(SnapshotDone::Loaded { id, machine: Box::new(machine), membership, file_bytes })
    }

    fn remove(&mut self, id: SnapshotId) -> SnapshotDone {
        self.shards.insert(id.shard, ShardFiles::default());
        // What cannot be removed now is at the next start, or when the shard has a snapshot here again.
        let _ = self.sweep(id.shard);
        SnapshotDone::Removed { id }
    }

    fn files(&mut self, shard: ShardId) -> &mut ShardFiles<D::File> {
        self.shards.entry(shard).or_default()
    }

    /// The file of this snapshot in the making, if it was begun; an error if it had to go.
    fn making(&mut self, id: SnapshotId) -> Result<Option<&mut Making<D::File>>, TaskError> {
        let files = self.files(id.shard);
        if files.dropped.take_if(|dropped| *dropped == id).is_some() {
            return Err(TaskError::Refused("it was dropped for a snapshot that is received"));
        }
        Ok(match &mut files.grows {
            Some(Grows::Making(making)) if making.out.id == id => Some(making),
            _ => None,
        })
    }

    /// The file of this snapshot as far as it was received, if any of it was.
    fn receiving(&mut self, id: SnapshotId) -> Option<&mut Growing<D::File>> {
        match &mut self.files(id.shard).grows {
            Some(Grows::Receiving(receiving)) if receiving.id == id => Some(receiving),
            _ => None,
        }
    }

    /// Removes all of the shard but its newest snapshot, for another that begins to grow.
    fn make_room(&mut self, id: SnapshotId) -> Result<(), TaskError> {
        let files = self.files(id.shard);
        files.expect_newer(id)?;
        if let Some(Grows::Making(making)) = files.grows.take() {
            files.dropped = Some(making.out.id);
        }
        while files.finished.len() > 1 {
            files.finished.pop_first();
        }
        Ok(self.sweep(id.shard)?)
    }

    /// Gives the file, which is durable, the name of a finished snapshot.
    fn install(&mut self, id: SnapshotId, stage: Stage) -> Result<(), TaskError> {
        self.files(id.shard).expect_newer(id)?;
        self.disk.rename(&file_name(id, stage), &file_name(id, Stage::Finished))?;
        let files = self.files(id.shard);
        files.grows = None;
        files.finished.insert(id);
        Ok(())
    }

    /// Removes the finished snapshots of earlier states.
    fn remove_before(&mut self, id: SnapshotId) {
        self.files(id.shard).finished.retain(|finished| finished.index >= id.index);
        // What cannot be removed now goes with the next one.
        let _ = self.sweep(id.shard);
    }

    /// Removes what was in the making or being received.
    fn give_up(&mut self, id: SnapshotId, stage: Stage) {
        let files = self.files(id.shard);
        let growing = match &files.grows {
            Some(Grows::Making(making)) => Some((making.out.id, Stage::Making)),
            Some(Grows::Receiving(receiving)) => Some((receiving.id, Stage::Receiving)),
            None => None,
        };
        if growing == Some((id, stage)) {
            files.grows = None;
        }
        // If it cannot be removed now, the next snapshot of the shard or the next start tries again.
        let _ = self.sweep(id.shard);
    }

    /// Removes the shard's files that are of no use: also those of earlier attempts whose removal failed.
    fn sweep(&self, shard: ShardId) -> Result<(), DiskError> {
        let Some(files) = self.shards.get(&shard) else { return Ok(()) };
        let growing = match &files.grows {
            Some(Grows::Making(making)) => Some(file_name(making.out.id, Stage::Making)),
            Some(Grows::Receiving(receiving)) => Some(file_name(receiving.id, Stage::Receiving)),
            None => None,
        };
        let useful: Vec<String> =
            files.finished.iter().map(|&id| file_name(id, Stage::Finished)).chain(growing).collect();
        for name in self.disk.list()? {
            let is_of_shard = parse_file_name(&name).is_some_and(|(id, _)| id.shard == shard);
            if is_of_shard && !useful.contains(&name) {
                self.remove_file(&name)?;
            }
        }
        Ok(())
    }

    /// Removes a file, little by little: a file system that removes hundreds of MiB at once has no time for the log
    /// meanwhile. What is no longer whole must not have the name of a finished snapshot, and what is being read, which
    /// nobody can begin to once the name is gone, is removed as a whole.
    fn remove_file(&self, name: &str) -> Result<(), DiskError> {
        let mut file = self.disk.open(name)?;
        let mut bytes = file.size()?;
        let mut doomed = String::from(name);
        if bytes > SHRINK_STEP_BYTES
            && let Some((id, Stage::Finished)) = parse_file_name(name)
        {
            doomed = file_name(id, Stage::Making);
            self.disk.rename(name, &doomed)?;
        }
        while bytes > SHRINK_STEP_BYTES && !self.readers.are_there() {
            bytes -= SHRINK_STEP_BYTES;
            file.resize(bytes)?;
        }
        self.disk.remove(&doomed)
    }
}

impl<F> Default for ShardFiles<F> {
    fn default() -> Self {
        ShardFiles { finished: BTreeSet::new(), grows: None, dropped: None }
    }
}

impl<F> ShardFiles<F> {
    /// A finished snapshot never makes way for one of an earlier state.
    fn expect_newer(&self, id: SnapshotId) -> Result<(), TaskError> {
        match self.finished.last() {
            Some(&newest) if newest != id && newest.index >= id.index => {
                Err(TaskError::Refused("a newer snapshot is there"))
            }
            _ => Ok(()),
        }
    }
}
