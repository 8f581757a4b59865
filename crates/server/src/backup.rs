//! Turns the snapshot files of this node into the bytes of a backup, on a separate thread.
//!
//! Owns the flow control: the bytes that wait for the client are bounded. The core decides which
//! snapshots make up a backup, and owns the format.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tidelock_core::machine::RestoreError;
use tidelock_core::storage::backup::{BackupSnapshots, Header};
use tidelock_core::storage::disk::DiskError;
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::storage::snapshot_files::{Readers, Reading, SnapshotFileError};
use tidelock_core::types::NodeId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use uuid::Uuid;

use crate::disk::{FsDisk, FsFile};

/// Backups that one node makes at a time. Each reads the disk as fast as its client takes the
/// bytes.
const BACKUPS_MAX: usize = 2;

/// Bytes of a part, the unit in which a backup is sent.
const PART_BYTES: usize = 256 << 10;

/// Most parts that wait for the client.
const PARTS_WAITING_MAX: usize = 4;

/// Makes backups of this node's snapshots.
#[derive(Debug)]
pub struct BackupSource {
    disk: FsDisk,
    /// Consulted before snapshot files are deleted.
    readers: Readers,
    cluster: Uuid,
    node: NodeId,
    /// Permits for further backups.
    places: Arc<Semaphore>,
}

/// A permit to make a backup, until it is dropped.
#[derive(Debug)]
pub struct BackupPlace {
    _permit: OwnedSemaphorePermit,
}

/// The opened snapshots of a backup: they stay readable even if their files are removed.
#[derive(Debug)]
pub struct OpenSnapshots {
    header: Header,
    snapshots: BackupSnapshots<FsFile>,
    reading: Reading,
}

/// A backup being read: its bytes, part by part, and an error in place of what could not be read.
#[derive(Debug)]
pub struct BackupParts {
    parts: mpsc::Receiver<io::Result<Bytes>>,
    _place: BackupPlace,
}

/// Why a backup was aborted.
#[derive(Debug, thiserror::Error)]
enum Break {
    #[error("{0}")]
    File(#[from] SnapshotFileError),
    #[error("{0}")]
    Block(#[from] RestoreError),
    #[error("its client is gone")]
    ClientGone,
}

impl BackupSource {
    /// Backups of the snapshots on a disk; `readers` protects files that are being read.
    pub fn new(disk: FsDisk, readers: Readers, cluster: Uuid, node: NodeId) -> BackupSource {
        BackupSource { disk, readers, cluster, node, places: Arc::new(Semaphore::new(BACKUPS_MAX)) }
    }

    /// A permit for a backup, if one is available.
    pub fn place(&self) -> Option<BackupPlace> {
        self.places.clone().try_acquire_owned().ok().map(|permit| BackupPlace { _permit: permit })
    }

    /// Opens snapshots, in the order of their shards. Index 0 stands for a shard without state.
    ///
    /// # Errors
    /// When a snapshot was removed because a newer one replaced it, or the disk fails.
    pub async fn open(&self, ids: Vec<SnapshotId>, is_stale: bool) -> Result<OpenSnapshots, DiskError> {
        let (disk, cluster, node) = (self.disk.clone(), self.cluster, self.node);
        let reading = self.readers.enter();
        let opening = tokio::task::spawn_blocking(move || {
            let snapshots = BackupSnapshots::open(&disk, ids)?;
            let header = Header {
                cluster,
                backup: Uuid::new_v4(),
                node,
                created_unix_ms: unix_ms(),
                is_stale,
                shards: snapshots.shards(),
                about_bytes: snapshots.about_bytes(),
            };
            Ok(OpenSnapshots { header, snapshots, reading })
        });
        opening.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}

impl OpenSnapshots {
    /// Starts to read them. Reading ends after the last part, at the first error, or when the
    /// receiver of the parts is dropped.
    pub fn read(self, place: BackupPlace) -> BackupParts {
        let (sender, parts) = mpsc::channel(PARTS_WAITING_MAX);
        tokio::task::spawn_blocking(move || {
            let OpenSnapshots { header, snapshots, reading: _reading } = self;
            let (backup, bytes) = (header.backup, header.about_bytes);
            match snapshots.write(header, PART_BYTES, |part| send(part, &sender)) {
                Ok(()) => tracing::info!(%backup, bytes, "backup sent"),
                Err(reason) => {
                    tracing::warn!(%backup, %reason, "backup aborted");
                    // The client sees its answer end early, and the backup without its end marker.
                    let _ = sender.blocking_send(Err(io::Error::other(reason)));
                }
            }
        });
        BackupParts { parts, _place: place }
    }
}

impl BackupParts {
    /// The next part; `None` after the last one or an error.
    pub fn poll_next(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<io::Result<Bytes>>> {
        self.parts.poll_recv(context)
    }
}

/// Sends a part, waiting while the client has too many.
fn send(part: Vec<u8>, parts: &mpsc::Sender<io::Result<Bytes>>) -> Result<(), Break> {
    parts.blocking_send(Ok(part.into())).map_err(|_| Break::ClientGone)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use tidelock_core::founding::Founding;

    use tidelock_core::command::{Condition, Operation, Write};
    use tidelock_core::machine::Machine;
    use tidelock_core::membership::Membership;
    use tidelock_core::storage::backup::{BackupReader, Part, Summary};
    use tidelock_core::storage::disk::{Disk, DiskFile};
    use tidelock_core::storage::snapshot::{SnapshotDone, SnapshotTask};
    use tidelock_core::storage::snapshot_files::SnapshotFiles;
    use tidelock_core::types::{LogIndex, ShardId, Term};

    use super::*;

    fn id(shard: u64, index: u64) -> SnapshotId {
        SnapshotId { shard: ShardId(shard), index: LogIndex(index), term: Term(2) }
    }

    fn make(files: &mut SnapshotFiles<FsDisk>, id: SnapshotId, keys: u64) {
        let mut machine = Machine::new(id.shard, &Founding::new(3, 4));
        for key in 0..keys {
            let (key, value) = (&key.to_be_bytes(), &[7; 1_000]);
            let put = Operation::Put { key, value, condition: Condition::Always };
            machine.apply(LogIndex(1), Write::of(&put)).expect("applied");
        }
        machine.begin_snapshot(&Membership::default());
        while let Some(block) = machine.next_block() {
            files.run(SnapshotTask::Write { id, block });
        }
        assert!(matches!(
            files.run(SnapshotTask::Finish { id, keeps_older: false }),
            SnapshotDone::Finished { .. }
        ));
    }

    /// Takes all parts; returns the bytes and the error that ended them, if any.
    async fn taken(mut parts: BackupParts) -> (Vec<u8>, Option<String>) {
        let mut bytes = vec![];
        while let Some(part) = poll_fn(|context| parts.poll_next(context)).await {
            match part {
                Ok(part) => bytes.extend_from_slice(&part),
                Err(error) => return (bytes, Some(error.to_string())),
            }
        }
        (bytes, None)
    }

    fn read(bytes: &[u8]) -> Summary {
        let mut reader = BackupReader::default();
        reader.push(bytes);
        while reader.next_part().unwrap().is_some_and(|part| part != Part::End) {}
        reader.finish().unwrap()
    }

    fn run(future: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
    }

    #[test]
    fn a_backup_holds_every_shard_even_if_newer_snapshots_come() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FsDisk::open(directory.path()).unwrap();
        let mut files = SnapshotFiles::open(disk.clone()).unwrap();
        let source = BackupSource::new(disk.clone(), files.readers(), Uuid::from_u128(7), NodeId(2));
        make(&mut files, id(0, 4), 0);
        make(&mut files, id(1, 9), 9_000);
        run(async {
            let ids = vec![id(0, 4), id(1, 9), id(2, 0)];
            let open = source.open(ids, true).await.unwrap();
            for newer in 10..14 {
                make(&mut files, id(1, newer), 1);
            }
            let gone = disk.list().unwrap().iter().all(|name| !name.contains("-00000000000000000009-"));
            assert!(gone, "{:?}", disk.list());
            let (bytes, error) = taken(open.read(source.place().unwrap())).await;
            assert_eq!(error, None);
            let summary = read(&bytes);
            assert_eq!(summary.keys(), 9_000);
            assert_eq!(
                summary.shards.iter().map(|shard| shard.id).collect::<Vec<_>>(),
                [id(0, 4), id(1, 9), id(2, 0)]
            );
            assert!(summary.header.is_stale && summary.header.cluster == Uuid::from_u128(7));
            assert!(summary.file_bytes.abs_diff(summary.header.about_bytes) < 10_000);
        });
    }

    #[test]
    fn a_damaged_snapshot_breaks_the_backup_off() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FsDisk::open(directory.path()).unwrap();
        let mut files = SnapshotFiles::open(disk.clone()).unwrap();
        let source = BackupSource::new(disk.clone(), files.readers(), Uuid::from_u128(7), NodeId(2));
        make(&mut files, id(1, 9), 3_000);
        let name = disk.list().unwrap().remove(0);
        disk.open(&name).unwrap().write_at(2_000_000, b"x").unwrap();
        run(async {
            let open = source.open(vec![id(1, 9)], false).await.unwrap();
            let (bytes, error) = taken(open.read(source.place().unwrap())).await;
            assert!(error.is_some_and(|error| error.contains("checksum") && error.contains("snapshot-")));
            let mut reader = BackupReader::default();
            reader.push(&bytes);
            while reader.next_part().unwrap().is_some() {}
            assert!(reader.finish().is_err(), "what was handed out is no whole backup");
            assert!(source.open(vec![id(1, 8)], false).await.is_err());
        });
    }

    #[test]
    fn places_are_bounded_and_come_free() {
        let directory = tempfile::tempdir().unwrap();
        let source = BackupSource::new(
            FsDisk::open(directory.path()).unwrap(),
            Readers::default(),
            Uuid::nil(),
            NodeId(1),
        );
        let places: Vec<_> = (0..BACKUPS_MAX).map(|_| source.place().unwrap()).collect();
        assert!(source.place().is_none());
        drop(places);
        assert!(source.place().is_some());
    }
}
