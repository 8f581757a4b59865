//! A partial backup, as another node sends it.
//!
//! Owns the flow control: a task of the worker that makes the backup passes the bytes on to the
//! thread that writes it, and reads no further while a bounded number of them waits. A source whose
//! shards are not the next ones waits in turn, with its files open.

use bytes::Bytes;
use tidelock_core::storage::backup::{PartialBackup, PartialBackupError};
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::types::NodeId;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::peer_http::{PeerAnswer, PeerHttpError};

/// Most pieces of a source that wait for the thread. A piece is what was read from the socket at
/// once, at most some 100 KiB.
const PIECES_WAITING_MAX: usize = 2;

/// The bytes of a partial backup that were received.
pub(super) type Pieces = mpsc::Receiver<Result<Bytes, PeerHttpError>>;

/// A partial backup whose header was read.
#[derive(Debug)]
pub struct PartialStream {
    pub(super) node: NodeId,
    pub(super) partial: PartialBackup,
    pub(super) pieces: Pieces,
}

/// Why a node's answer does not begin a partial backup.
#[derive(Debug, thiserror::Error)]
pub enum NoPartialBackup {
    /// The bytes are not what was asked for.
    #[error("{0}")]
    Backup(#[from] PartialBackupError),
    /// The answer ends.
    #[error("{0}")]
    Answer(#[from] PeerHttpError),
}

impl PartialStream {
    /// Reads the header of the backup of these snapshots, and starts to receive the rest.
    ///
    /// # Errors
    /// When the answer is not the backup that was asked for.
    pub async fn begin(
        mut answer: PeerAnswer,
        (cluster, node): (Uuid, NodeId),
        ids: Vec<SnapshotId>,
    ) -> Result<PartialStream, NoPartialBackup> {
        let mut partial = PartialBackup::begin(cluster, node, ids);
        while !partial.read_header()? {
            match answer.next().await? {
                Some(bytes) => partial.push(&bytes),
                None => return Err(partial.cut_short().into()),
            }
        }
        let (sender, pieces) = mpsc::channel(PIECES_WAITING_MAX);
        tokio::task::spawn_local(async move {
            while let Some(piece) = answer.next().await.transpose() {
                let is_last = piece.is_err();
                if sender.send(piece).await.is_err() || is_last {
                    return;
                }
            }
        });
        Ok(PartialStream { node, partial, pieces })
    }
}
