//! Writes a backup from this node's snapshots and from partial backups of other nodes.
//!
//! Owns the order of shards and what a partial backup must hold. A partial backup has the format of
//! a backup, and holds only the shards for which its node was asked. It is verified on the way.
//! Memory is bounded by some parts for each node: bytes are received only when the shard to which
//! they belong is the next one.

use alloc::vec::Vec;
use core::mem;

use bytes::Bytes;
use uuid::Uuid;

use super::super::disk::DiskFile;
use super::super::snapshot::SnapshotId;
use super::super::snapshot_files::{self, SnapshotFileError};
use super::snapshots::BackupSnapshots;
use super::{BackupError, BackupReader, BackupWriter, Header, Part};
use crate::machine::RestoreError;
use crate::types::{NodeId, ShardId};

/// A backup of some shards, which another node sends.
#[derive(Debug)]
pub struct PartialBackup {
    cluster: Uuid,
    node: NodeId,
    /// The snapshots that it must hold, in the order of their shards.
    ids: Vec<SnapshotId>,
    reader: BackupReader,
    about_bytes: u64,
}

/// Why a partial backup cannot become a part of a backup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the partial backup of node {node}: {fault}")]
pub struct PartialBackupError {
    /// The node that sent it.
    pub node: NodeId,
    /// What is wrong with it.
    pub fault: PartialBackupFault,
}

/// What is wrong with a partial backup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartialBackupFault {
    /// Its bytes are not a backup.
    #[error(transparent)]
    Unreadable(#[from] BackupError),
    /// It ends before its end.
    #[error("it is cut short")]
    CutShort,
    /// It is of another cluster or node: the node has another address now.
    #[error("it is of node {node} of cluster {cluster}")]
    Foreign {
        /// The cluster in its header.
        cluster: Uuid,
        /// The node in its header.
        node: NodeId,
    },
    /// It holds other snapshots than those that were asked for.
    #[error("it does not hold the snapshot of shard {0} that was asked for")]
    OtherSnapshots(ShardId),
}

impl PartialBackup {
    /// Begins to read the backup of these snapshots, in the order of their shards.
    pub fn begin(cluster: Uuid, node: NodeId, ids: Vec<SnapshotId>) -> PartialBackup {
        PartialBackup { cluster, node, ids, reader: BackupReader::default(), about_bytes: 0 }
    }

    /// Adds the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.reader.push(bytes);
    }

    /// Reads the header, with which the size of the backup is known. Returns false if it needs more
    /// bytes.
    ///
    /// # Errors
    /// When it is not the backup that was asked for.
    pub fn read_header(&mut self) -> Result<bool, PartialBackupError> {
        let part = self.reader.next_part().map_err(|error| self.fault(error.into()))?;
        let Some(Part::Header(header)) = part else { return Ok(false) };
        if (header.cluster, header.node) != (self.cluster, self.node) {
            let Header { cluster, node, .. } = header;
            return Err(self.fault(PartialBackupFault::Foreign { cluster, node }));
        }
        self.about_bytes = header.about_bytes;
        Ok(true)
    }

    /// The error if its bytes end before its end.
    pub fn cut_short(&self) -> PartialBackupError {
        self.fault(PartialBackupFault::CutShort)
    }

    /// The next part, for which `receive` is called as often as it takes.
    fn next_part<E: From<PartialBackupError>>(
        &mut self,
        mut receive: impl FnMut() -> Result<Option<Bytes>, E>,
    ) -> Result<Part, E> {
        loop {
            if let Some(part) = self.reader.next_part().map_err(|error| self.fault(error.into()))? {
                return Ok(part);
            }
            let bytes = receive()?.ok_or_else(|| self.cut_short())?;
            self.reader.push(&bytes);
        }
    }

    fn fault(&self, fault: PartialBackupFault) -> PartialBackupError {
        PartialBackupError { node: self.node, fault }
    }
}

/// The opened snapshots of a backup: those of this node, and partial backups of others.
#[derive(Debug)]
pub struct GatheredBackup<F> {
    local: BackupSnapshots<F>,
    partials: Vec<PartialBackup>,
}

/// Where the blocks of a shard come from.
enum ShardBlocks<F> {
    /// A file; `None` if the shard has no state.
    Local(Option<F>),
    /// A partial backup, by its position.
    Partial(usize),
}

impl<F: DiskFile> GatheredBackup<F> {
    /// A backup of all these shards, each of which comes from one node. The headers of the partial
    /// backups have been read.
    pub fn new(local: BackupSnapshots<F>, partials: Vec<PartialBackup>) -> GatheredBackup<F> {
        GatheredBackup { local, partials }
    }

    /// Number of shards.
    pub fn shards(&self) -> u64 {
        self.local.shards() + self.partials.iter().map(|partial| partial.ids.len() as u64).sum::<u64>()
    }

    /// Size of all snapshots in bytes, about that of the backup.
    pub fn about_bytes(&self) -> u64 {
        self.local.about_bytes() + self.partials.iter().map(|partial| partial.about_bytes).sum::<u64>()
    }

    /// Writes the backup, whose bytes are passed to `send` in parts of at least `part_bytes` except
    /// for the last. `receive` returns the next bytes of the partial backup at a position; `None`
    /// after the last ones.
    ///
    /// # Errors
    /// When a file cannot be read, a file or a partial backup is damaged, or `receive` or `send`
    /// fails. The parts sent before are no whole backup, which their reader notices.
    ///
    /// # Panics
    /// If the header states another number of shards, or a shard comes from two nodes.
    pub fn write<E>(
        self,
        header: Header,
        part_bytes: usize,
        mut receive: impl FnMut(usize) -> Result<Option<Bytes>, E>,
        mut send: impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<SnapshotFileError> + From<RestoreError> + From<PartialBackupError>,
    {
        let GatheredBackup { local, mut partials } = self;
        let mut out = Vec::new();
        let mut writer = BackupWriter::begin(header, &mut out);
        let mut send_full =
            |out: &mut Vec<u8>| if out.len() >= part_bytes { send(mem::take(out)) } else { Ok(()) };
        for (id, blocks) in in_order(local, &partials) {
            writer.begin_shard(id, &mut out);
            match blocks {
                ShardBlocks::Local(None) => {}
                ShardBlocks::Local(Some(file)) => {
                    snapshot_files::read_blocks(&file, id, |block| {
                        writer.block(block, &mut out)?;
                        send_full(&mut out)
                    })?;
                }
                ShardBlocks::Partial(position) => {
                    let partial = &mut partials[position];
                    copy_shard(
                        partial,
                        id,
                        || receive(position),
                        |block| {
                            writer.block(block, &mut out)?;
                            send_full(&mut out)
                        },
                    )?;
                }
            }
            writer.end_shard(&mut out);
        }
        for (position, partial) in partials.iter_mut().enumerate() {
            if partial.next_part(|| receive(position))? != Part::End {
                let last = partial.ids.last().map_or(ShardId::PRIME, |id| id.shard);
                return Err(partial.fault(PartialBackupFault::OtherSnapshots(last)).into());
            }
        }
        writer.finish(&mut out);
        send(out)
    }
}

/// Passes the blocks of the next shard of a partial backup to `take`. It must be this snapshot.
fn copy_shard<E: From<PartialBackupError>>(
    partial: &mut PartialBackup,
    id: SnapshotId,
    mut receive: impl FnMut() -> Result<Option<Bytes>, E>,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if partial.next_part(&mut receive)? != Part::Shard(id) {
        return Err(partial.fault(PartialBackupFault::OtherSnapshots(id.shard)).into());
    }
    loop {
        match partial.next_part(&mut receive)? {
            Part::State(block) | Part::Keys(block) | Part::Config(block) => take(&block)?,
            Part::ShardEnd(_) => return Ok(()),
            Part::Header(_) | Part::Shard(_) | Part::End => {
                unreachable!("invariant: the reader returns the parts of one shard after the other")
            }
        }
    }
}

/// The snapshots of all nodes, in the order of their shards.
fn in_order<F: DiskFile>(
    local: BackupSnapshots<F>,
    partials: &[PartialBackup],
) -> Vec<(SnapshotId, ShardBlocks<F>)> {
    let local = local.into_files().into_iter().map(|(id, file)| (id, ShardBlocks::Local(file)));
    let of = |(position, partial): (usize, &PartialBackup)| {
        partial.ids.iter().map(move |id| (*id, ShardBlocks::Partial(position))).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = local.chain(partials.iter().enumerate().flat_map(of)).collect();
    all.sort_by_key(|(id, _)| id.shard);
    all
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::super::memory_disk::MemoryFile;
    use super::super::tests::{backup, header, id, keys_of, machine_of, put_shard, registry};
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    enum Broken {
        Partial(PartialBackupFault),
        Other,
    }

    impl From<PartialBackupError> for Broken {
        fn from(error: PartialBackupError) -> Broken {
            assert_eq!(error.node, NodeId(3), "{error}");
            Broken::Partial(error.fault)
        }
    }

    impl From<SnapshotFileError> for Broken {
        fn from(_: SnapshotFileError) -> Broken {
            Broken::Other
        }
    }

    impl From<RestoreError> for Broken {
        fn from(_: RestoreError) -> Broken {
            Broken::Other
        }
    }

    /// The snapshots of [`backup`] that two nodes send: of shards 0 and 5, and of 1 and 2.
    fn partials() -> [(Vec<SnapshotId>, Vec<u8>); 2] {
        let (mut outer, mut inner) = (vec![], vec![]);
        let mut writer = BackupWriter::begin(header(2), &mut outer);
        put_shard(&mut writer, id(0, 3), Some(registry()), &mut outer);
        put_shard(&mut writer, id(5, 9), Some(machine_of(5, &keys_of(7, 9))), &mut outer);
        writer.finish(&mut outer);
        let mut writer = BackupWriter::begin(header(2), &mut inner);
        put_shard(&mut writer, id(1, 40), Some(machine_of(1, &keys_of(3_000, 100))), &mut inner);
        put_shard(&mut writer, id(2, 0), None, &mut inner);
        writer.finish(&mut inner);
        [(vec![id(0, 3), id(5, 9)], outer), (vec![id(1, 40), id(2, 0)], inner)]
    }

    /// Merges partial backups that come in pieces.
    fn merge(partials: &[(Vec<SnapshotId>, Vec<u8>)], piece_bytes: usize) -> Result<Vec<u8>, Broken> {
        let mut streams: Vec<_> = partials.iter().map(|(_, bytes)| bytes.chunks(piece_bytes)).collect();
        let mut begun = Vec::new();
        for ((ids, _), stream) in partials.iter().zip(&mut streams) {
            let mut partial = PartialBackup::begin(header(0).cluster, NodeId(3), ids.clone());
            while !partial.read_header()? {
                partial.push(stream.next().ok_or_else(|| Broken::from(partial.cut_short()))?);
            }
            begun.push(partial);
        }
        let gathered = GatheredBackup::new(BackupSnapshots::<MemoryFile>::none(), begun);
        assert_eq!(gathered.about_bytes(), 2 << 33);
        let (header, mut out) = (header(gathered.shards()), Vec::new());
        let receive = |position: usize| Ok(streams[position].next().map(Bytes::copy_from_slice));
        gathered.write::<Broken>(header, 1_000, receive, |part| {
            out.extend(part);
            Ok::<(), Broken>(())
        })?;
        Ok(out)
    }

    #[test]
    fn partial_backups_make_the_backup_of_one_node() {
        let whole = backup(&keys_of(3_000, 100), &keys_of(7, 9));
        for piece_bytes in [1, 1_000, 1 << 20] {
            let merged = merge(&partials(), piece_bytes).expect("intact");
            assert!(merged == whole, "in pieces of {piece_bytes}");
        }
    }

    #[test]
    fn a_partial_backup_that_is_cut_short_breaks_the_backup_off() {
        let [outer, inner] = partials();
        for end in (0..outer.1.len()).rev().take(60).chain([0, 50, 84, 100]) {
            let cut = (outer.0.clone(), outer.1[..end].to_vec());
            let error = Err(Broken::Partial(PartialBackupFault::CutShort));
            assert_eq!(merge(&[cut, inner.clone()], 1_000).map(drop), error, "{end}");
        }
    }

    #[test]
    fn another_partial_backup_than_the_one_asked_for_is_refused() {
        let [outer, inner] = partials();
        for (ids, shard) in [
            (vec![id(0, 4), id(5, 9)], 0),
            (vec![id(0, 3), id(5, 8)], 5),
            (vec![id(0, 3), id(4, 1), id(5, 9)], 4),
            (vec![id(0, 3)], 0),
        ] {
            let error = Err(Broken::Partial(PartialBackupFault::OtherSnapshots(ShardId(shard))));
            assert_eq!(merge(&[(ids, outer.1.clone()), inner.clone()], 1_000).map(drop), error, "{shard}");
        }
        let mut damaged = outer.clone();
        let middle = damaged.1.len() / 2;
        damaged.1[middle] ^= 1;
        let error = merge(&[damaged, inner], 1_000).map(drop);
        assert!(matches!(error, Err(Broken::Partial(PartialBackupFault::Unreadable(_)))), "{error:?}");
    }

    #[test]
    fn a_partial_backup_of_another_node_is_refused() {
        let (ids, bytes) = partials()[0].clone();
        for (cluster, node) in [(header(0).cluster, NodeId(4)), (Uuid::nil(), NodeId(3))] {
            let mut partial = PartialBackup::begin(cluster, node, ids.clone());
            assert_eq!(partial.read_header(), Ok(false), "it needs bytes first");
            partial.push(&bytes);
            let foreign = PartialBackupFault::Foreign { cluster: header(0).cluster, node: NodeId(3) };
            assert_eq!(partial.read_header(), Err(PartialBackupError { node, fault: foreign }));
        }
    }
}
