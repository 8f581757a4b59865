//! The files of a backup, at the nodes that it comes from.
//!
//! Owns what the server does with them: each source opens its files, and sends them as a partial
//! backup to the node that makes the backup, which merges all of them. If a source ends or is cut
//! off before everything is read, its partial backup ends early, at any byte, and there must be no
//! backup.

use bytes::Bytes;
use tidelock_core::machine::RestoreError;
use tidelock_core::storage::backup::{
    BackupSnapshots, GatheredBackup, Header, PartialBackup, PartialBackupError,
};
use tidelock_core::storage::disk::DiskError;
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::storage::snapshot_files::{Reading, SnapshotFileError};
use tidelock_core::types::NodeId;
use uuid::Uuid;

use crate::checkers::Violation;
use crate::checkers::backups;
use crate::disk::SimFile;
use crate::history::Incarnation;
use crate::host::Host;

/// Bytes of a part of a backup.
const PART_BYTES: usize = 1 << 10;

/// The cluster in the header of every backup.
const CLUSTER: Uuid = Uuid::from_u128(1);

/// The opened files of one source.
#[derive(Debug)]
pub(super) struct OpenSource {
    /// The process that has opened them.
    pub at: Incarnation,
    /// Whether they can no longer be read to their end.
    pub is_cut: bool,
    ids: Vec<SnapshotId>,
    snapshots: BackupSnapshots<SimFile>,
    _reading: Reading,
}

/// Why a backup was broken off.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenOff {
    #[error(transparent)]
    File(#[from] SnapshotFileError),
    #[error(transparent)]
    Block(#[from] RestoreError),
    #[error(transparent)]
    Partial(#[from] PartialBackupError),
}

/// Opens the files of these snapshots.
pub(super) fn open(host: &Host, ids: Vec<SnapshotId>) -> Result<OpenSource, DiskError> {
    let reading = host.enter_reader();
    let snapshots = BackupSnapshots::open(host.disk(), ids.clone())?;
    Ok(OpenSource { at: host.incarnation(), is_cut: false, ids, snapshots, _reading: reading })
}

/// The bytes of a backup that node `own` makes of these files, or why a source breaks it off.
/// Finished snapshots are durable and verified, so reading them never fails.
pub(super) fn gather(
    own: NodeId,
    opened: Vec<OpenSource>,
    random: &mut fastrand::Rng,
) -> Result<Result<Vec<u8>, BrokenOff>, Violation> {
    let may_break_off = opened.iter().any(|source| source.is_cut);
    let backup = Uuid::from_u128(random.u128(1..));
    let written = try_gather((own, backup), opened, random);
    match written {
        Ok(_) if may_break_off => blame(own, &"a source has ended, and the backup is whole"),
        Err(reason) if !may_break_off => blame(own, &reason),
        written => Ok(written),
    }
}

fn try_gather(
    (own, backup): (NodeId, Uuid),
    opened: Vec<OpenSource>,
    random: &mut fastrand::Rng,
) -> Result<Vec<u8>, BrokenOff> {
    let mut local = BackupSnapshots::none();
    let (mut partials, mut streams) = (Vec::new(), Vec::new());
    for source in opened {
        if source.at.node == own {
            local = source.snapshots;
            continue;
        }
        let node = source.at.node;
        let snapshots = GatheredBackup::new(source.snapshots, Vec::new());
        let mut bytes = match write(snapshots, (node, Uuid::from_u128(random.u128(1..))), Vec::new()) {
            // Without its process, nothing protects the files.
            Err(_) if source.is_cut => Vec::new(),
            written => written?,
        };
        if source.is_cut {
            bytes.truncate(random.usize(0..=bytes.len().saturating_sub(1)));
        }
        let mut partial = PartialBackup::begin(CLUSTER, node, source.ids);
        let mut stream = Bytes::from(bytes);
        while !partial.read_header()? {
            match next_piece(&mut stream) {
                Some(piece) => partial.push(&piece),
                None => return Err(partial.cut_short().into()),
            }
        }
        partials.push(partial);
        streams.push(stream);
    }
    write(GatheredBackup::new(local, partials), (own, backup), streams)
}

/// The bytes of a backup of these snapshots, the rest of which is in `streams`.
fn write(
    snapshots: GatheredBackup<SimFile>,
    (node, backup): (NodeId, Uuid),
    mut streams: Vec<Bytes>,
) -> Result<Vec<u8>, BrokenOff> {
    let header = Header {
        cluster: CLUSTER,
        backup,
        node,
        created_unix_ms: 0,
        is_stale: false,
        shards: snapshots.shards(),
        about_bytes: snapshots.about_bytes(),
    };
    let mut bytes = Vec::new();
    let receive = |position: usize| Ok(next_piece(&mut streams[position]));
    snapshots.write(header, PART_BYTES, receive, |part| {
        bytes.extend(part);
        Ok::<(), BrokenOff>(())
    })?;
    Ok(bytes)
}

/// The next bytes of a stream; `None` at its end.
fn next_piece(stream: &mut Bytes) -> Option<Bytes> {
    let piece = stream.split_to(stream.len().min(PART_BYTES));
    (!piece.is_empty()).then_some(piece)
}

fn blame<T>(node: NodeId, reason: &dyn std::fmt::Display) -> Result<T, Violation> {
    Err(Violation::new(backups::CHECKER, format!("a backup of node {node}: {reason}")))
}
