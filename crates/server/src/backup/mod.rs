//! Makes backups from snapshot files of this node and partial backups of others, on separate
//! threads.
//!
//! Owns the flow control: the bytes that wait for the client are bounded, and so are those that
//! other nodes have sent. Also how many backups there are at a time: whole backups and partial ones
//! for other nodes have separate limits, because two nodes that make backups may each wait for a
//! partial one of the other. The core decides which snapshots make up a backup, and owns the
//! format.

mod partial;

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tidelock_core::machine::RestoreError;
use tidelock_core::storage::backup::{BackupSnapshots, GatheredBackup, Header, PartialBackupError};
use tidelock_core::storage::disk::DiskError;
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::storage::snapshot_files::{Readers, Reading, SnapshotFileError};
use tidelock_core::types::NodeId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use uuid::Uuid;

pub use self::partial::{NoPartialBackup, PartialStream};
use crate::disk::{FsDisk, FsFile};
use crate::peer_http::PeerHttpError;

/// Backups that one node makes at a time. Each reads the disk as fast as its client takes the
/// bytes.
const BACKUPS_MAX: usize = 2;

/// Partial backups that one node sends to other nodes at a time: some for two backups of other
/// nodes each, also if one of them has just begun again.
const PARTIAL_BACKUPS_MAX: usize = 8;

/// Bytes of a part, the unit in which a backup is sent.
const PART_BYTES: usize = 256 << 10;

/// Most parts that wait for the client.
const PARTS_WAITING_MAX: usize = 4;

/// Makes backups of this node's snapshots.
#[derive(Debug)]
pub struct BackupSource {
    /// The cluster, as backups name it.
    pub cluster: Uuid,
    /// This node.
    pub node: NodeId,
    disk: FsDisk,
    /// Consulted before snapshot files are deleted.
    readers: Readers,
    /// Permits for further backups.
    places: Arc<Semaphore>,
    /// Permits for further partial backups.
    partial_places: Arc<Semaphore>,
}

/// A permit to make a backup, until it is dropped.
#[derive(Debug)]
pub struct BackupPlace {
    _permit: OwnedSemaphorePermit,
}

/// The opened snapshots of this node: they stay readable even if their files are removed.
#[derive(Debug)]
pub struct OpenSnapshots {
    snapshots: BackupSnapshots<FsFile>,
    reading: Reading,
}

/// Everything that a backup is read from.
#[derive(Debug)]
pub struct OpenBackup {
    /// The snapshots of this node.
    pub own: OpenSnapshots,
    /// The snapshots of other nodes.
    pub partials: Vec<PartialStream>,
    /// Whether it has no checkpoint.
    pub is_stale: bool,
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
    #[error("{0}")]
    Partial(#[from] PartialBackupError),
    #[error("the partial backup of node {node}: {error}")]
    Source { node: NodeId, error: PeerHttpError },
    #[error("its client is gone")]
    ClientGone,
}

impl BackupSource {
    /// Backups of the snapshots on a disk; `readers` protects files that are being read.
    pub fn new(disk: FsDisk, readers: Readers, cluster: Uuid, node: NodeId) -> BackupSource {
        let places = |count| Arc::new(Semaphore::new(count));
        let (places, partial_places) = (places(BACKUPS_MAX), places(PARTIAL_BACKUPS_MAX));
        BackupSource { cluster, node, disk, readers, places, partial_places }
    }

    /// A permit for a backup, if one is available.
    pub fn place(&self) -> Option<BackupPlace> {
        BackupPlace::of(&self.places)
    }

    /// A permit for a partial backup, if one is available.
    pub fn partial_place(&self) -> Option<BackupPlace> {
        BackupPlace::of(&self.partial_places)
    }

    /// Opens snapshots of this node, in the order of their shards. Index 0 stands for a shard
    /// without state.
    ///
    /// # Errors
    /// When a snapshot was removed because a newer one replaced it, or the disk fails.
    pub async fn open(&self, ids: Vec<SnapshotId>) -> Result<OpenSnapshots, DiskError> {
        let disk = self.disk.clone();
        let reading = self.readers.enter();
        let opening = tokio::task::spawn_blocking(move || {
            let snapshots = BackupSnapshots::open(&disk, ids)?;
            Ok(OpenSnapshots { snapshots, reading })
        });
        opening.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Starts to read a backup. Reading ends after the last part, at the first error, or when the
    /// receiver of the parts is dropped.
    pub fn read(&self, backup: OpenBackup, place: BackupPlace) -> BackupParts {
        let OpenBackup { own: OpenSnapshots { snapshots, reading }, partials, is_stale } = backup;
        let (partials, mut pieces): (Vec<_>, Vec<_>) =
            partials.into_iter().map(|stream| (stream.partial, (stream.node, stream.pieces))).unzip();
        let gathered = GatheredBackup::new(snapshots, partials);
        let header = Header {
            cluster: self.cluster,
            backup: Uuid::new_v4(),
            node: self.node,
            created_unix_ms: unix_ms(),
            is_stale,
            shards: gathered.shards(),
            about_bytes: gathered.about_bytes(),
        };
        let (sender, parts) = mpsc::channel(PARTS_WAITING_MAX);
        tokio::task::spawn_blocking(move || {
            let _reading = reading;
            let (backup, bytes, nodes) = (header.backup, header.about_bytes, 1 + pieces.len());
            let receive = |position: usize| {
                let (node, pieces) = &mut pieces[position];
                let piece = pieces.blocking_recv().transpose();
                piece.map_err(|error| Break::Source { node: *node, error })
            };
            match gathered.write(header, PART_BYTES, receive, |part| send(part, &sender)) {
                Ok(()) => tracing::info!(%backup, bytes, nodes, "backup sent"),
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

impl BackupPlace {
    fn of(places: &Arc<Semaphore>) -> Option<BackupPlace> {
        places.clone().try_acquire_owned().ok().map(|permit| BackupPlace { _permit: permit })
    }
}

impl OpenSnapshots {
    /// A backup of these snapshots only.
    pub fn alone(self, is_stale: bool) -> OpenBackup {
        OpenBackup { own: self, partials: Vec::new(), is_stale }
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
            let open = source.open(ids).await.unwrap();
            for newer in 10..14 {
                make(&mut files, id(1, newer), 1);
            }
            let gone = disk.list().unwrap().iter().all(|name| !name.contains("-00000000000000000009-"));
            assert!(gone, "{:?}", disk.list());
            let (bytes, error) = taken(source.read(open.alone(true), source.place().unwrap())).await;
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
            let open = source.open(vec![id(1, 9)]).await.unwrap();
            let (bytes, error) = taken(source.read(open.alone(false), source.place().unwrap())).await;
            assert!(error.is_some_and(|error| error.contains("checksum") && error.contains("snapshot-")));
            let mut reader = BackupReader::default();
            reader.push(&bytes);
            while reader.next_part().unwrap().is_some() {}
            assert!(reader.finish().is_err(), "what was handed out is no whole backup");
            assert!(source.open(vec![id(1, 8)]).await.is_err());
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
        let partial: Vec<_> = (0..PARTIAL_BACKUPS_MAX).map(|_| source.partial_place().unwrap()).collect();
        assert!(source.partial_place().is_none(), "they have places of their own");
        drop((places, partial));
        assert!(source.partial_place().is_some());
        assert!(source.place().is_some());
    }
}
