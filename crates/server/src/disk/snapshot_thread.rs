//! The thread that keeps snapshot files, so that neither the worker nor the log ever waits for them.
//!
//! Owns the order: tasks are done one after another, each reported when it is done. A task that fails is reported like
//! any other and ends nothing: the log is whole without a snapshot, and the core tries again.
//!
//! The queue needs no limit of its own: the core has at most one task of a shard under way for its own snapshot, one
//! for each follower that it serves, and one for what it receives.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};

use tidelock_core::storage::disk::Disk;
use tidelock_core::storage::snapshot::{SnapshotDone, SnapshotTask};
use tidelock_core::storage::snapshot_files::SnapshotFiles;

/// A handle to the thread. Dropped without [`SnapshotThread::stop`], it still does what was submitted, and nobody
/// waits.
pub struct SnapshotThread {
    tasks: Sender<SnapshotTask>,
    thread: JoinHandle<()>,
}

impl SnapshotThread {
    /// Starts the thread. `report` is called on it, once for each task.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start<D>(
        mut files: SnapshotFiles<D>,
        report: impl Fn(SnapshotDone) + Send + 'static,
    ) -> io::Result<SnapshotThread>
    where
        D: Disk + Send + 'static,
        D::File: Send,
    {
        let (tasks, queue) = mpsc::channel();
        let work = move || {
            for task in queue {
                let done = files.run(task);
                log(&done);
                report(done);
            }
        };
        let thread = Builder::new().name(String::from("snapshots")).spawn(work)?;
        Ok(SnapshotThread { tasks, thread })
    }

    /// Queues a task, never waiting.
    pub fn submit(&self, task: SnapshotTask) {
        // Fails only when the thread has panicked, which `stop` passes on.
        let _ = self.tasks.send(task);
    }

    /// Does what is queued and ends the thread.
    pub fn stop(self) {
        drop(self.tasks);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn log(done: &SnapshotDone) {
    let id = done.id();
    let (shard, index) = (id.shard.0, id.index.0);
    match done {
        SnapshotDone::Finished { file_bytes, .. } => {
            tracing::info!(shard, index, bytes = file_bytes, "snapshot finished");
        }
        SnapshotDone::Loaded { file_bytes, .. } => {
            tracing::info!(shard, index, bytes = file_bytes, "snapshot received and loaded");
        }
        SnapshotDone::Failed { reason, .. } => tracing::warn!(shard, index, reason, "snapshot failed"),
        SnapshotDone::Removed { .. } => {
            tracing::info!(shard, "snapshots removed: the shard is carried here no more")
        }
        SnapshotDone::Written { .. } | SnapshotDone::Read { .. } | SnapshotDone::Received { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tidelock_core::storage::snapshot::SnapshotId;
    use tidelock_core::types::{LogIndex, ShardId, Term};

    use super::*;
    use crate::disk::FsDisk;

    #[test]
    fn every_task_is_reported_and_files_last() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FsDisk::open(directory.path()).unwrap();
        let id = SnapshotId { shard: ShardId(1), index: LogIndex(7), term: Term(2) };
        let (sender, reports) = mpsc::channel();
        let files = SnapshotFiles::open(disk.clone()).unwrap();
        let thread = SnapshotThread::start(files, move |done| sender.send(done).unwrap()).unwrap();
        // The first block of an empty data shard's snapshot: format, kind, revision.
        thread.submit(SnapshotTask::Write { id, block: vec![1, 1, 0] });
        thread.submit(SnapshotTask::Finish { id });
        thread.submit(SnapshotTask::Load { id: SnapshotId { index: LogIndex(8), ..id } });
        thread.stop();
        let reports: Vec<SnapshotDone> = reports.iter().collect();
        assert!(matches!(reports[0], SnapshotDone::Written { .. }), "{reports:?}");
        assert!(matches!(reports[1], SnapshotDone::Finished { .. }), "{reports:?}");
        assert!(matches!(reports[2], SnapshotDone::Failed { .. }), "{reports:?}");
        assert_eq!(reports.len(), 3);
        let found: Vec<SnapshotId> = SnapshotFiles::open(disk).unwrap().finished(ShardId(1)).collect();
        assert_eq!(found, [id]);
    }
}
