//! Snapshot files: implements [`SnapshotTask`]s on a [`Disk`].
//!
//! ```text
//! Write, Write, … Finish    ──► .part ──► synced ──► renamed ──► finished
//! Receive, Receive, … Load  ──► .recv ──► verified, synced ──► renamed ──► finished, state loaded
//!
//! finished         ──► Read, Read, … to a follower
//! state loaded     ──► Discard, or Refuse
//! ```
//!
//! Invariants:
//! - A file with the name of a finished snapshot was complete and durable when it got that name.
//! - The newest finished snapshot of a shard stays until a newer one is finished, unless the core
//!   refuses it.
//! - A shard has at most two files: the newest finished one, and either a growing one or the
//!   previous finished one. The previous one stays only while it is needed: a follower is receiving
//!   it, or the newest was received and is not installed yet. So the files of a shard take at most
//!   twice, and usually once, the size of the larger of its last two snapshots.
//!
//! Deliberately not here: when a snapshot is made, sent or loaded, and which part of the log is
//! released. The core decides that. It has one task of a snapshot in progress at a time, so it
//! learns of a failure before it sends the next task. When it begins a newer snapshot in place of
//! an unfinished one, the task in progress of the older one is completed first.

mod append_file;
mod format;
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

use self::append_file::{AppendFile, SnapshotWriter};
use self::format::{SnapshotFileKind, file_name, parse_file_name};
pub use self::reader::SnapshotFileError;
pub use self::readers::{Readers, Reading};
use super::RecoveredSnapshot;
use super::disk::{Disk, DiskError, DiskFile};
use super::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};
use crate::limits;
use crate::machine::Restored;
use crate::types::ShardId;

/// Number of bytes by which a file to be removed is truncated in one step.
const SHRINK_STEP_BYTES: u64 = 4 << 20;

/// All snapshot files of a node.
#[derive(Debug)]
pub struct SnapshotFiles<D: Disk> {
    disk: D,
    shards: BTreeMap<ShardId, ShardFiles<D::File>>,
    readers: Readers,
}

#[derive(Debug)]
struct ShardFiles<F> {
    finished: BTreeSet<SnapshotId>,
    grows: Option<Grows<F>>,
    /// An unfinished snapshot that was dropped for a received one, of which the core does not know
    /// yet.
    dropped: Option<SnapshotId>,
    /// The snapshot that was loaded last, while nothing has been written or installed since.
    loaded: Option<SnapshotId>,
}

/// The growing file of a shard.
#[derive(Debug)]
enum Grows<F> {
    SnapshotWriter(SnapshotWriter<F>),
    Receiving(AppendFile<F>),
}

#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error(transparent)]
    File(#[from] SnapshotFileError),
    #[error("{0}")]
    Disk(#[from] DiskError),
    #[error("{0}")]
    Refused(&'static str),
}

/// Opens a finished snapshot for [`read_blocks`]. A newer snapshot may remove its name meanwhile.
/// On a file system where an open file outlives its name, it can still be read to the end.
///
/// # Errors
/// When there is no such snapshot, or the disk fails.
pub fn open_finished<D: Disk>(disk: &D, id: SnapshotId) -> Result<D::File, DiskError> {
    disk.open(&file_name(id, SnapshotFileKind::Finished))
}

/// Reads a snapshot from its file and passes each verified block to `take`. Returns the size of the
/// file. Only then are the blocks known to be a complete snapshot.
///
/// # Errors
/// When the file is damaged, the disk fails, or `take` fails.
pub fn read_blocks<F: DiskFile, E: From<SnapshotFileError>>(
    file: &F,
    id: SnapshotId,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    reader::read(file, &file_name(id, SnapshotFileKind::Finished), id, |_, block| take(block))
}

impl<D: Disk> SnapshotFiles<D> {
    /// Lists the finished snapshots on `disk`, without verifying them, and removes unfinished files
    /// of the last process. Receiving a snapshot starts again at its first byte.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn open(disk: D) -> Result<SnapshotFiles<D>, DiskError> {
        let mut shards: BTreeMap<ShardId, ShardFiles<D::File>> = BTreeMap::new();
        for name in disk.list()? {
            match parse_file_name(&name) {
                Some((id, SnapshotFileKind::Finished)) => {
                    shards.entry(id.shard).or_default().finished.insert(id);
                }
                Some(_) => disk.remove(&name)?,
                None => {}
            }
        }
        Ok(SnapshotFiles { disk, shards, readers: Readers::default() })
    }

    /// The counter of readers outside the snapshot thread; initially zero.
    pub fn readers(&self) -> Readers {
        self.readers.clone()
    }

    /// Shards that have a finished snapshot.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.shards.iter().filter(|(_, files)| !files.finished.is_empty()).map(|(&shard, _)| shard)
    }

    /// Finished snapshots of a shard, the newest first.
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
                bytes += self.disk.open(&file_name(id, SnapshotFileKind::Finished))?.size()?;
            }
            bytes += match &files.grows {
                Some(Grows::SnapshotWriter(making)) => making.out.bytes,
                Some(Grows::Receiving(receiving)) => receiving.bytes,
                None => 0,
            };
        }
        Ok(bytes)
    }

    /// Verifies a finished snapshot and loads its state.
    ///
    /// # Errors
    /// When the file is damaged, or the disk fails.
    pub fn load(&self, id: SnapshotId) -> Result<RecoveredSnapshot, SnapshotFileError> {
        let name = file_name(id, SnapshotFileKind::Finished);
        let (Restored { machine, membership }, file_bytes) =
            reader::load(&self.disk.open(&name)?, &name, id)?;
        Ok(RecoveredSnapshot { id, machine, membership, file_bytes })
    }

    /// Removes all finished snapshots of a shard except `kept`.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn keep_only(&mut self, shard: ShardId, kept: Option<SnapshotId>) -> Result<(), DiskError> {
        self.shards.entry(shard).or_default().finished.retain(|&id| Some(id) == kept);
        self.sweep(shard)
    }

    /// Executes a task. Blocks for as long as the disk takes.
    pub fn run(&mut self, task: SnapshotTask) -> SnapshotDone {
        let id = task.id();
        let (result, grew) = match task {
            SnapshotTask::Write { block, .. } => (self.write(id, &block), Some(SnapshotFileKind::Writing)),
            SnapshotTask::Finish { keeps_older, .. } => {
                (self.finish(id, keeps_older), Some(SnapshotFileKind::Writing))
            }
            SnapshotTask::Read { offset, bytes_max, .. } => (self.read(id, offset, bytes_max), None),
            SnapshotTask::Receive { offset, bytes, .. } => {
                (self.receive(id, offset, &bytes), Some(SnapshotFileKind::Receiving))
            }
            SnapshotTask::Remove { .. } => (Ok(self.remove(id)), None),
            SnapshotTask::Load { .. } => (self.load_received(id), Some(SnapshotFileKind::Receiving)),
            SnapshotTask::Discard { machine, .. } => {
                drop(machine);
                self.files(id.shard).loaded = None;
                self.remove_before(id);
                (Ok(SnapshotDone::Discarded { id }), None)
            }
            SnapshotTask::Refuse { machine, .. } => {
                drop(machine);
                (self.refuse(id), None)
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
            let making = SnapshotWriter::begin(&self.disk, id)?;
            self.files(id.shard).grows = Some(Grows::SnapshotWriter(making));
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
        self.install(id, SnapshotFileKind::Writing)?;
        if !keeps_older {
            self.remove_before(id);
        }
        Ok(SnapshotDone::Finished { id, file_bytes, checksum })
    }

    fn read(&self, id: SnapshotId, offset: u64, bytes_max: usize) -> Result<SnapshotDone, TaskError> {
        if !self.finished(id.shard).any(|finished| finished == id) {
            return Err(TaskError::Refused("there is no such snapshot, or it was removed"));
        }
        let file = self.disk.open(&file_name(id, SnapshotFileKind::Finished))?;
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
            let receiving = AppendFile::begin(&self.disk, id, SnapshotFileKind::Receiving)?;
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
            reader::load(&receiving.file, &file_name(id, SnapshotFileKind::Receiving), id)?;
        receiving.sync()?;
        self.install(id, SnapshotFileKind::Receiving)?;
        self.files(id.shard).loaded = Some(id);
        Ok(SnapshotDone::Loaded { id, machine: Box::new(machine), membership, file_bytes })
    }

    fn remove(&mut self, id: SnapshotId) -> SnapshotDone {
        self.shards.insert(id.shard, ShardFiles::default());
        // Files that cannot be removed now are removed at the next start, or when the shard has a
        // snapshot here again.
        let _ = self.sweep(id.shard);
        SnapshotDone::Removed { id }
    }

    fn files(&mut self, shard: ShardId) -> &mut ShardFiles<D::File> {
        self.shards.entry(shard).or_default()
    }

    /// The file of an unfinished snapshot, if it was begun; an error if it was dropped.
    fn making(&mut self, id: SnapshotId) -> Result<Option<&mut SnapshotWriter<D::File>>, TaskError> {
        let files = self.files(id.shard);
        if files.dropped.take_if(|dropped| *dropped == id).is_some() {
            return Err(TaskError::Refused("it was dropped for a snapshot that is received"));
        }
        Ok(match &mut files.grows {
            Some(Grows::SnapshotWriter(making)) if making.out.id == id => Some(making),
            _ => None,
        })
    }

    /// The file of a partly received snapshot, if any part was received.
    fn receiving(&mut self, id: SnapshotId) -> Option<&mut AppendFile<D::File>> {
        match &mut self.files(id.shard).grows {
            Some(Grows::Receiving(receiving)) if receiving.id == id => Some(receiving),
            _ => None,
        }
    }

    /// Removes all of the shard's files except its newest snapshot, before another one begins to
    /// grow.
    fn make_room(&mut self, id: SnapshotId) -> Result<(), TaskError> {
        let files = self.files(id.shard);
        files.expect_newer(id)?;
        files.loaded = None;
        if let Some(Grows::SnapshotWriter(making)) = files.grows.take() {
            files.dropped = Some(making.out.id);
        }
        while files.finished.len() > 1 {
            files.finished.pop_first();
        }
        Ok(self.sweep(id.shard)?)
    }

    /// Renames the durable file to the name of a finished snapshot.
    fn install(&mut self, id: SnapshotId, stage: SnapshotFileKind) -> Result<(), TaskError> {
        self.files(id.shard).expect_newer(id)?;
        self.disk.rename(&file_name(id, stage), &file_name(id, SnapshotFileKind::Finished))?;
        let files = self.files(id.shard);
        (files.grows, files.loaded) = (None, None);
        files.finished.insert(id);
        Ok(())
    }

    /// Removes a loaded snapshot that is not used. Comes first after the load: once another file of
    /// the shard was begun or installed, the snapshot may be the only one that contains the
    /// replica's state.
    fn refuse(&mut self, id: SnapshotId) -> Result<SnapshotDone, TaskError> {
        let files = self.files(id.shard);
        if files.loaded.take_if(|loaded| *loaded == id).is_none() {
            return Err(TaskError::Refused("it was not loaded, or another snapshot was begun since"));
        }
        files.finished.remove(&id);
        // Files that cannot be removed now are removed with the next snapshot.
        let _ = self.sweep(id.shard);
        Ok(SnapshotDone::Discarded { id })
    }

    /// Removes the finished snapshots of earlier states.
    fn remove_before(&mut self, id: SnapshotId) {
        self.files(id.shard).finished.retain(|finished| finished.index >= id.index);
        // Files that cannot be removed now are removed with the next snapshot.
        let _ = self.sweep(id.shard);
    }

    /// Removes an unfinished or partly received file.
    fn give_up(&mut self, id: SnapshotId, stage: SnapshotFileKind) {
        let files = self.files(id.shard);
        let append_file = match &files.grows {
            Some(Grows::SnapshotWriter(making)) => Some((making.out.id, SnapshotFileKind::Writing)),
            Some(Grows::Receiving(receiving)) => Some((receiving.id, SnapshotFileKind::Receiving)),
            None => None,
        };
        if append_file == Some((id, stage)) {
            files.grows = None;
        }
        // If it cannot be removed now, the next snapshot of the shard or the next start retries.
        let _ = self.sweep(id.shard);
    }

    /// Removes the shard's unneeded files, including those whose earlier removal failed.
    fn sweep(&self, shard: ShardId) -> Result<(), DiskError> {
        let Some(files) = self.shards.get(&shard) else { return Ok(()) };
        let append_file = match &files.grows {
            Some(Grows::SnapshotWriter(making)) => Some(file_name(making.out.id, SnapshotFileKind::Writing)),
            Some(Grows::Receiving(receiving)) => Some(file_name(receiving.id, SnapshotFileKind::Receiving)),
            None => None,
        };
        let useful: Vec<String> = files
            .finished
            .iter()
            .map(|&id| file_name(id, SnapshotFileKind::Finished))
            .chain(append_file)
            .collect();
        for name in self.disk.list()? {
            let is_of_shard = parse_file_name(&name).is_some_and(|(id, _)| id.shard == shard);
            if is_of_shard && !useful.contains(&name) {
                self.remove_file(&name)?;
            }
        }
        Ok(())
    }

    /// Removes a file in steps, because a file system that removes hundreds of MiB at once delays
    /// the log. A truncated file must not have the name of a finished snapshot, so it is renamed
    /// first. A file with readers is removed at once instead; no new reader can open it once the
    /// name is gone.
    fn remove_file(&self, name: &str) -> Result<(), DiskError> {
        let mut file = self.disk.open(name)?;
        let mut bytes = file.size()?;
        let mut doomed = String::from(name);
        if bytes > SHRINK_STEP_BYTES
            && let Some((id, SnapshotFileKind::Finished)) = parse_file_name(name)
        {
            doomed = file_name(id, SnapshotFileKind::Writing);
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
        ShardFiles { finished: BTreeSet::new(), grows: None, dropped: None, loaded: None }
    }
}

impl<F> ShardFiles<F> {
    /// Fails if a newer snapshot is finished: an older one must not replace it.
    fn expect_newer(&self, id: SnapshotId) -> Result<(), TaskError> {
        match self.finished.last() {
            Some(&newest) if newest != id && newest.index >= id.index => {
                Err(TaskError::Refused("a newer snapshot is there"))
            }
            _ => Ok(()),
        }
    }
}
