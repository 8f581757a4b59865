//! Brings a node's disk back to life: its write-ahead log and its snapshots, and that they fit together.
//!
//! Owns the rules by which the log of a shard continues its snapshot:
//!
//! 1. The newest snapshot counts. If its file is damaged, an older one does, or none, provided that the log holds every
//!    entry from there to beyond the damaged one; otherwise the node does not start.
//! 2. Entries that the snapshot contains are dropped. The first of the others must follow it.
//! 3. A crash can fall between a snapshot becoming durable and the log following it: after a snapshot was received,
//!    before its restart record was durable; after one was made of entries that were applied before they were durable
//!    here; or, without syncs, when the end of the log is lost. Then the log ends
//!    before the snapshot, or holds another entry in the place of its last one. What a snapshot contains is committed,
//!    so such a log holds nothing behind it that can be: all of it is void, and the restart record is written now.
//!    Without that, the entries to come would leave a gap behind it, or stand behind entries that never happened.
//! 4. Of a replica that is no more, nothing counts but that it was there.
//! 5. Whatever else does not fit means that something acknowledged may be missing: the node does not start.
//!
//! Deliberately not here: damage inside a file, which `wal` and `snapshot_files` judge.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::disk::{Disk, DiskError};
use super::snapshot::SnapshotId;
use super::snapshot_files::{SnapshotFileError, SnapshotFiles};
use super::wal::{self, RecoveryError, RecoveryReport, WalError, WalOptions, Writer};
use super::{RecoveredLog, RecoveredShard, RecoveredShards, RecoveredSnapshot, Tenure, WalBatch, WalRecord};
use crate::types::{LogIndex, ShardId, Term, WalSequence};

/// A disk ready to be worked with.
pub struct Opened<D: Disk> {
    /// Where the log goes on.
    pub log: Writer<D>,
    /// The node's snapshots.
    pub snapshots: SnapshotFiles<D>,
    /// All that the disk remembers.
    pub shards: RecoveredShards,
    /// How it was found.
    pub report: RecoverReport,
}

/// How a disk was found, for the operator.
#[derive(Debug, Default)]
pub struct RecoverReport {
    /// How the log was found.
    pub log: RecoveryReport,
    /// Damaged snapshots that the log made up for, and which were removed.
    pub damaged: Vec<SnapshotFileError>,
    /// Snapshots that the log did not reach, so that it begins anew behind them.
    pub restarted: Vec<SnapshotId>,
}

/// Why a node must not start from this disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// The log cannot be believed.
    #[error(transparent)]
    Log(#[from] RecoveryError),
    /// The log could not be made to follow a snapshot.
    #[error(transparent)]
    LogWrite(#[from] WalError),
    /// The disk failed.
    #[error("the snapshots cannot be accessed: {0}")]
    Disk(#[from] DiskError),
    /// A snapshot cannot be loaded.
    #[error(transparent)]
    Snapshot(#[from] SnapshotFileError),
    /// The newest snapshot is damaged, and the log does not make up for it.
    #[error("{source}; the log of shard {shard} does not hold everything that the snapshot did")]
    Damaged {
        /// Whose snapshot.
        shard: ShardId,
        /// What is wrong with it.
        source: SnapshotFileError,
    },
    /// The log continues a snapshot that is not there.
    #[error(
        "the log of shard {shard} begins behind entry {needed}, but {}: a snapshot is missing",
        found_text(*found)
    )]
    SnapshotMissing {
        /// Whose.
        shard: ShardId,
        /// The snapshot must contain everything up to here.
        needed: LogIndex,
        /// What the newest one contains that is there; 0 for none.
        found: LogIndex,
    },
    /// Entries that were committed are not there.
    #[error("entries of shard {shard} up to {commit} were committed, but only those up to {found} are there")]
    EntriesMissing {
        /// Whose.
        shard: ShardId,
        /// Known to be committed.
        commit: LogIndex,
        /// The last one that is there.
        found: LogIndex,
    },
    /// Log and snapshot tell different histories.
    #[error(
        "entry {index} of shard {shard} is of term {log} in the log, and of term {snapshot} in the snapshot"
    )]
    Contradiction {
        /// Whose.
        shard: ShardId,
        /// Of the entry.
        index: LogIndex,
        /// As the log says.
        log: Term,
        /// As the snapshot says.
        snapshot: Term,
    },
}

fn found_text(found: LogIndex) -> alloc::string::String {
    match found {
        LogIndex(0) => "no snapshot is there".into(),
        found => alloc::format!("the newest snapshot ends with entry {found}"),
    }
}

/// Recovers log and snapshots on `disk` and makes both ready to be continued; an empty directory becomes an empty log.
///
/// Hard states come back at least as new as the snapshot: their commit index and term are those of its last entry if
/// they were older. Entries that snapshots contain count as released.
///
/// # Errors
///
/// When something is damaged or missing that a node must not start without; every error names it.
///
/// # Panics
///
/// If `options` break their limits.
pub fn open<D: Disk + Clone>(disk: D, options: WalOptions) -> Result<Opened<D>, RecoverError> {
    let (mut log, recovery) = wal::open(disk.clone(), options)?;
    let mut snapshots = SnapshotFiles::open(disk)?;
    let mut logs = recovery.logs;
    let mut shards = RecoveredShards::new();
    let mut report = RecoverReport { log: recovery.report, ..RecoverReport::default() };
    let names: BTreeSet<ShardId> = logs.keys().copied().chain(snapshots.shards()).collect();
    for shard in names {
        let mut shard_log = logs.remove(&shard).unwrap_or_default();
        if matches!(shard_log.tenure, Some(Tenure::Ended(_))) {
            // The replica is no more. Its snapshots go below, if a crash came before they did.
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
    // Nothing is changed before all of it is known to fit.
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

/// Loads the newest snapshot of a shard, or an older one if the log makes up for it.
fn newest<D: Disk>(
    files: &SnapshotFiles<D>,
    shard: ShardId,
    log: &RecoveredLog,
    damaged: &mut Vec<SnapshotFileError>,
) -> Result<Option<RecoveredSnapshot>, RecoverError> {
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
        Some((id, source)) if !holds_all(log, base, id) => Err(RecoverError::Damaged { shard, source }),
        _ => Ok(found),
    }
}

/// Whether `log` holds all entries behind `base` up to the last one of the snapshot `id`. That one's term tells that they
/// are the same (Log Matching, Raft paper, figure 3) and not those of a leader who could not commit them.
fn holds_all(log: &RecoveredLog, base: LogIndex, id: SnapshotId) -> bool {
    let holds_last = log.entries.iter().any(|entry| entry.index == id.index && entry.term == id.term);
    let restarts_later = log.restart.is_some_and(|(index, _)| index > base);
    let first = log.entries.first().map(|entry| entry.index);
    holds_last && !restarts_later && first.is_some_and(|first| first.0 <= base.0 + 1)
}

/// Makes `log` what follows the snapshot. Returns whether it was void, so that a restart must be written.
fn join(shard: ShardId, snapshot: Option<SnapshotId>, log: &mut RecoveredLog) -> Result<bool, RecoverError> {
    let base = snapshot.map_or(LogIndex(0), |id| id.index);
    let first = log.entries.first().map(|entry| entry.index);
    // What the log says that the snapshot before its entries must contain.
    let needed = match (log.restart, first) {
        (Some((index, _)), _) => index,
        (None, Some(first)) => LogIndex(first.0 - 1),
        (None, None) => LogIndex(0),
    };
    if needed > base {
        return Err(RecoverError::SnapshotMissing { shard, needed, found: base });
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
        return Err(RecoverError::EntriesMissing { shard, commit, found });
    }
    let contained = log.entries.iter().take_while(|entry| entry.index <= base).count();
    log.entries.drain(..contained);
    if let Some(id) = snapshot {
        lift(log, id);
    }
    Ok(is_void)
}

/// Whether the log, which begins behind `needed`, does not reach the snapshot's last entry, or holds another one in
/// its place.
fn must_restart(id: SnapshotId, needed: LogIndex, log: &RecoveredLog) -> Result<bool, RecoverError> {
    let Some(last) = log.entries.last() else {
        // An empty log takes any entry next, unless a restart says which.
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

fn expect_term(id: SnapshotId, log: Term) -> Result<(), RecoverError> {
    if log == id.term {
        return Ok(());
    }
    let SnapshotId { shard, index, term } = id;
    Err(RecoverError::Contradiction { shard, index, log, snapshot: term })
}

/// A hard state may be older than a snapshot, never what is made of both: the snapshot's entries are committed, and
/// the node has seen their terms. It has not voted in a term that its own hard state does not know.
fn lift(log: &mut RecoveredLog, id: SnapshotId) {
    let state = &mut log.hard_state;
    state.commit = state.commit.max(id.index);
    if state.term < id.term {
        state.term = id.term;
        state.vote = None;
    }
}

#[cfg(test)]
mod tests;
