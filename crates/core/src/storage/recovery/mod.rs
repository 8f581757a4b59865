//! Recovery of a node's disk: the write-ahead log, the snapshots, and their consistency.
//!
//! Owns the rules by which the log of a shard continues its snapshot:
//!
//! 1. The newest snapshot is used. If its file is damaged, an older one or none is used, provided
//!    that the log has every entry from there to beyond the damaged one. Otherwise the node does
//!    not start.
//! 2. Entries contained in the snapshot are dropped. The first remaining entry must follow it.
//! 3. A crash can happen after a snapshot became durable and before the log followed it. This is
//!    possible after a snapshot was received, before its restart record was durable; after a
//!    snapshot was made of entries that were applied before they were durable here; and, without
//!    syncs, when the end of the log is lost. The log then ends before the snapshot, or has another
//!    entry at the index of its last one. A snapshot contains only committed entries, so such a log
//!    has no committed entries after it. The whole log is void, and the restart record is written
//!    now. Without that record, new entries would leave a gap in the log, or follow entries that
//!    were never committed.
//! 4. Of a replica that has ended, only that fact is used.
//! 5. Any other inconsistency means that acknowledged data may be missing: the node does not start.
//!
//! Deliberately not here: damage inside a file, which `wal` and `snapshot_files` detect.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::disk::{Disk, DiskError};
use super::snapshot::SnapshotId;
use super::snapshot_files::{SnapshotFileError, SnapshotFiles};
use super::wal::{self, WalError, WalOptions, WalRecoveryError, WalRecoveryReport, Writer};
use super::{
    RecoveredLog, RecoveredShard, RecoveredShards, RecoveredSnapshot, ReplicaIncarnation, WalBatch, WalRecord,
};
use crate::types::{LogIndex, ShardId, Term, WalSequence};

/// What a node continues from after a start.
pub struct Opened<D: Disk> {
    /// The writer that continues the log.
    pub log: Writer<D>,
    /// The node's snapshot files, for tasks.
    pub snapshots: SnapshotFiles<D>,
    /// The recovered state of all shards.
    pub shards: RecoveredShards,
    /// What recovery found and repaired.
    pub report: StorageRecoveryReport,
}

/// A report about recovery, for the operator.
#[derive(Debug, Default)]
pub struct StorageRecoveryReport {
    /// What recovery of the write-ahead log found.
    pub log: WalRecoveryReport,
    /// Damaged snapshots that were removed because the log replaces them.
    pub damaged: Vec<SnapshotFileError>,
    /// Snapshots that the log did not reach, so that it restarts after them.
    pub restarted: Vec<SnapshotId>,
}

/// Why a node must not start from this disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageRecoveryError {
    /// The log is damaged or incomplete.
    #[error(transparent)]
    Log(#[from] WalRecoveryError),
    /// A record that restarts a log after its snapshot cannot be written.
    #[error(transparent)]
    LogWrite(#[from] WalError),
    /// A file operation failed.
    #[error("the snapshots cannot be accessed: {0}")]
    Disk(#[from] DiskError),
    /// A snapshot file cannot be read, or has an unknown format.
    #[error(transparent)]
    Snapshot(#[from] SnapshotFileError),
    /// The newest snapshot is damaged, and the log does not replace it.
    #[error("{source}; the log of shard {shard} does not hold everything that the snapshot did")]
    Damaged {
        /// The shard of the snapshot.
        shard: ShardId,
        /// The damaged file, and where it is damaged.
        source: SnapshotFileError,
    },
    /// The log continues a snapshot that does not exist.
    #[error(
        "the log of shard {shard} begins after entry {needed}, but {}: a snapshot is missing",
        found_text(*found)
    )]
    SnapshotMissing {
        /// The shard whose log it is.
        shard: ShardId,
        /// The last entry that the snapshot must contain.
        needed: LogIndex,
        /// The last entry in the newest existing snapshot; 0 for none.
        found: LogIndex,
    },
    /// The log ends before an entry that its hard state says is committed.
    #[error("entries of shard {shard} up to {commit} were committed, but only those up to {found} are there")]
    EntriesMissing {
        /// The shard whose log it is.
        shard: ShardId,
        /// The index known to be committed.
        commit: LogIndex,
        /// The last entry that the log or the snapshot contains.
        found: LogIndex,
    },
    /// Log and snapshot contradict each other.
    #[error(
        "entry {index} of shard {shard} is of term {log} in the log, and of term {snapshot} in the snapshot"
    )]
    Contradiction {
        /// The shard of the log and the snapshot.
        shard: ShardId,
        /// Index of the last entry in the snapshot.
        index: LogIndex,
        /// The term of the entry in the log.
        log: Term,
        /// The term of the entry in the snapshot.
        snapshot: Term,
    },
}

impl StorageRecoveryError {
    /// Whether the contents of the directory are damaged or incomplete, so that another start would
    /// fail in the same way. Not so if the disk or the release is the cause.
    pub fn is_damage(&self) -> bool {
        match self {
            StorageRecoveryError::Log(error) => {
                !matches!(error, WalRecoveryError::Disk(_) | WalRecoveryError::Version { .. })
            }
            StorageRecoveryError::LogWrite(_)
            | StorageRecoveryError::Disk(_)
            | StorageRecoveryError::Snapshot(_) => false,
            StorageRecoveryError::Damaged { .. }
            | StorageRecoveryError::SnapshotMissing { .. }
            | StorageRecoveryError::EntriesMissing { .. }
            | StorageRecoveryError::Contradiction { .. } => true,
        }
    }
}

fn found_text(found: LogIndex) -> alloc::string::String {
    match found {
        LogIndex(0) => "no snapshot is there".into(),
        found => alloc::format!("the newest snapshot ends with entry {found}"),
    }
}

/// Recovers log and snapshots on `disk` for further use. An empty directory becomes an empty log.
///
/// Hard states are returned at least as new as the snapshot: commit index and term are raised to
/// those of its last entry. Entries contained in snapshots count as released.
///
/// # Errors
///
/// When data is damaged or missing without which a node must not start. Every error names it.
///
/// # Panics
///
/// If `options` exceed their limits.
pub fn open<D: Disk + Clone>(disk: D, options: WalOptions) -> Result<Opened<D>, StorageRecoveryError> {
    let (mut log, recovery) = wal::open(disk.clone(), options)?;
    let mut snapshots = SnapshotFiles::open(disk)?;
    let mut logs = recovery.logs;
    let mut shards = RecoveredShards::new();
    let mut report = StorageRecoveryReport { log: recovery.report, ..StorageRecoveryReport::default() };
    let names: BTreeSet<ShardId> = logs.keys().copied().chain(snapshots.shards()).collect();
    for shard in names {
        let mut shard_log = logs.remove(&shard).unwrap_or_default();
        if matches!(shard_log.incarnation, Some(ReplicaIncarnation::Ended(_))) {
            // The replica has ended. Its snapshots are removed below, in case a crash came first.
            shards.insert(shard, RecoveredShard { snapshot: None, log: shard_log });
            continue;
        }
        let snapshot = newest(&snapshots, shard, &shard_log, &mut report.damaged)?;
        if join(shard, snapshot.as_ref().map(|snapshot| snapshot.id), &mut shard_log)? {
            let id = snapshot.as_ref().expect("invariant: a log is void only behind a snapshot").id;
            report.restarted.push(id);
        }
        shards.insert(shard, RecoveredShard { snapshot, log: shard_log });
    }
    // Change nothing before everything is known to be consistent.
    if !report.restarted.is_empty() {
        let restart =
            |&SnapshotId { shard, index, term }: &SnapshotId| WalRecord::Restart { shard, index, term };
        let records = report.restarted.iter().map(restart).collect();
        log.append(&[WalBatch { sequence: WalSequence(0), records, released: vec![] }])?;
        log.sync()?;
    }
    for (&shard, recovered) in &shards {
        let id = recovered.snapshot.as_ref().map(|snapshot| snapshot.id);
        snapshots.keep_only(shard, id)?;
        if let Some(id) = id {
            log.note_released(shard, id.index);
        }
    }
    Ok(Opened { log, snapshots, shards, report })
}

/// Loads the newest snapshot of a shard, or an older one if the log replaces it.
fn newest<D: Disk>(
    files: &SnapshotFiles<D>,
    shard: ShardId,
    log: &RecoveredLog,
    damaged: &mut Vec<SnapshotFileError>,
) -> Result<Option<RecoveredSnapshot>, StorageRecoveryError> {
    let mut newest_damaged: Option<(SnapshotId, SnapshotFileError)> = None;
    let mut found = None;
    for id in files.finished(shard) {
        match files.load(id) {
            Ok(snapshot) => {
                found = Some(snapshot);
                break;
            }
            Err(error @ (SnapshotFileError::Damaged { .. } | SnapshotFileError::Restore { .. })) => {
                damaged.push(error.clone());
                newest_damaged.get_or_insert((id, error));
            }
            Err(error @ (SnapshotFileError::Disk(_) | SnapshotFileError::Version { .. })) => {
                return Err(error.into());
            }
        }
    }
    let base = found.as_ref().map_or(LogIndex(0), |snapshot| snapshot.id.index);
    match newest_damaged {
        Some((id, source)) if !holds_all(log, base, id) => {
            Err(StorageRecoveryError::Damaged { shard, source })
        }
        _ => Ok(found),
    }
}

/// Whether `log` has all entries after `base` up to the last one of the snapshot `id`. If the term
/// of that entry matches, all of them are the same (Log Matching, Raft paper, figure 3), and not
/// those of a leader that could not commit them.
fn holds_all(log: &RecoveredLog, base: LogIndex, id: SnapshotId) -> bool {
    let holds_last = log.entries.iter().any(|entry| entry.index == id.index && entry.term == id.term);
    let restarts_later = log.restart.is_some_and(|(index, _)| index > base);
    let first = log.entries.first().map(|entry| entry.index);
    holds_last && !restarts_later && first.is_some_and(|first| first.0 <= base.0 + 1)
}

/// Drops the entries of `log` that the snapshot contains. Returns whether the log was void, so that
/// a restart must be written.
fn join(
    shard: ShardId,
    snapshot: Option<SnapshotId>,
    log: &mut RecoveredLog,
) -> Result<bool, StorageRecoveryError> {
    let base = snapshot.map_or(LogIndex(0), |id| id.index);
    let first = log.entries.first().map(|entry| entry.index);
    // The index that the snapshot must contain according to the log.
    let needed = match (log.restart, first) {
        (Some((index, _)), _) => index,
        (None, Some(first)) => LogIndex(first.0 - 1),
        (None, None) => LogIndex(0),
    };
    if needed > base {
        return Err(StorageRecoveryError::SnapshotMissing { shard, needed, found: base });
    }
    let mut last = log.entries.last().map_or(needed, |entry| entry.index);
    let is_void = match snapshot {
        Some(id) => must_restart(id, needed, log)?,
        None => false,
    };
    if is_void {
        log.entries.clear();
        log.restart = snapshot.map(|id| (id.index, id.term));
        last = base;
    }
    if log.hard_state.commit > last.max(base) {
        let (commit, found) = (log.hard_state.commit, last.max(base));
        return Err(StorageRecoveryError::EntriesMissing { shard, commit, found });
    }
    let contained = log.entries.iter().take_while(|entry| entry.index <= base).count();
    log.entries.drain(..contained);
    if let Some(id) = snapshot {
        raise_to_snapshot(log, id);
    }
    Ok(is_void)
}

/// Whether the log, which begins after `needed`, ends before the snapshot's last entry, or has
/// another one at its index.
fn must_restart(id: SnapshotId, needed: LogIndex, log: &RecoveredLog) -> Result<bool, StorageRecoveryError> {
    let Some(last) = log.entries.last() else {
        // Any entry may follow an empty log, unless a restart record specifies it.
        return match log.restart {
            Some((index, term)) if index == id.index => expect_term(id, term).map(|()| false),
            Some(_) => Ok(true),
            None => Ok(false),
        };
    };
    if last.index < id.index {
        return Ok(true);
    }
    let position = id.index.0.checked_sub(needed.0 + 1);
    let term = match position {
        Some(position) => log.entries.get(position as usize).map(|entry| entry.term),
        None => log.restart.map(|(_, term)| term),
    };
    match term {
        Some(term) if term != id.term && log.hard_state.commit < id.index && position.is_some() => Ok(true),
        Some(term) => expect_term(id, term).map(|()| false),
        None => Ok(false),
    }
}

fn expect_term(id: SnapshotId, log: Term) -> Result<(), StorageRecoveryError> {
    if log == id.term {
        return Ok(());
    }
    let SnapshotId { shard, index, term } = id;
    Err(StorageRecoveryError::Contradiction { shard, index, log, snapshot: term })
}

/// Raises a hard state that is older than the snapshot. The snapshot's entries are committed, and
/// the node has seen their terms. It has not voted in a term that its own hard state does not
/// contain.
fn raise_to_snapshot(log: &mut RecoveredLog, id: SnapshotId) {
    let state = &mut log.hard_state;
    state.commit = state.commit.max(id.index);
    if state.term < id.term {
        state.term = id.term;
        state.vote = None;
    }
}

#[cfg(test)]
mod tests;
