//! `/v1/backup`: this node's state of every shard, in one file.
//!
//! Owns which snapshots make up a backup. They are this node's own, at or after a checkpoint that
//! was appended to every log after the request arrived. So the backup contains everything
//! acknowledged before the request. With `stale` there is no checkpoint, and no other node is
//! asked: the backup is what this node has applied.

use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use tidelock_core::event::ShardStatus;
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::types::{LogIndex, MigrationId, ShardId, Term};

use super::checkpoint;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use crate::backup::{BackupSource, OpenSnapshots};
use crate::requests;
use crate::store::Store;

/// Time between two checks whether the snapshots are finished.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long a node may take to apply what is committed. Making a snapshot has no time limit.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// How often opening is retried because newer snapshots replaced those found.
const OPENS_MAX: usize = 5;

const MEDIA_TYPE: &str = "application/octet-stream";

pub(super) async fn answer<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let is_stale = call.parameters().flag("stale")?;
    let Some(source) = &call.context.backup else { return Err(Problem::no_such_route()) };
    if *call.method() == Method::HEAD {
        return Ok(response::typed(StatusCode::OK, MEDIA_TYPE, ""));
    }
    let Some(place) = source.place() else {
        let detail = "this node makes as many backups as it may at a time; nothing was done";
        return Err(Problem::new(ProblemKind::Overloaded, detail));
    };
    let before = settled(call.store()).await?;
    let wanted = if is_stale {
        let wanted = call.ask(requests::snapshot_here()).await?;
        whole(call.store(), &wanted).await?;
        wanted
    } else {
        checkpoint::of_all_shards(call.store()).await?
    };
    let open = open(source, call.store(), &wanted, is_stale).await?;
    if settled(call.store()).await? != before {
        return Err(moving());
    }
    Ok(response::parts(MEDIA_TYPE, open.read(place)))
}

/// The last slot move of each local shard. Refuses while a move is in progress: the snapshots of
/// its two shards could contain its keys twice, or not at all. Each shard's own log records moves,
/// so a node that is behind notices a move by the time it has the snapshots.
async fn settled<S: Store>(store: &S) -> Result<Vec<(ShardId, MigrationId)>, Problem> {
    let status = store.status().await;
    if status.shards.iter().any(|shard| shard.is_moving) {
        return Err(moving());
    }
    Ok(status.shards.iter().map(|shard| (shard.shard, shard.last_move)).collect())
}

fn moving() -> Problem {
    let detail = "slots are on their way between shards; nothing was done. Ask again when that is over";
    Problem::new(ProblemKind::SlotsMoving, detail)
}

/// Refuses a backup that would lack a shard.
async fn whole<S: Store>(store: &S, found: &[(ShardId, LogIndex)]) -> Result<(), Problem> {
    let view = store.ask(requests::cluster()).await?;
    let is_missing = |shard: &ShardId| !found.iter().any(|(here, _)| here == shard);
    match view.shards.iter().map(|shard| shard.shard).find(is_missing) {
        Some(shard) => Err(no_snapshot(shard)),
        None => Ok(()),
    }
}

/// Waits for the snapshots and opens them.
async fn open<S: Store>(
    source: &BackupSource,
    store: &S,
    wanted: &[(ShardId, LogIndex)],
    is_stale: bool,
) -> Result<OpenSnapshots, Problem> {
    let mut failed = None;
    for _ in 0..OPENS_MAX {
        match source.open(snapshots(store, wanted).await?, is_stale).await {
            Ok(open) => return Ok(open),
            Err(error) => failed = Some(error),
        }
    }
    let reason = failed.map(|error| error.to_string()).unwrap_or_default();
    tracing::warn!(reason, "the snapshots of a backup cannot be opened");
    Err(Problem::new(ProblemKind::NoSnapshot, format!("the snapshots cannot be opened: {reason}")))
}

/// Waits until this node has a snapshot of every shard up to the wanted index.
async fn snapshots<S: Store>(store: &S, wanted: &[(ShardId, LogIndex)]) -> Result<Vec<SnapshotId>, Problem> {
    let begun = Instant::now();
    loop {
        let status = store.status().await;
        let found = wanted.iter().map(|&(shard, index)| {
            let status = status.shards.iter().find(|status| status.shard == shard);
            (shard, status.map_or(Progress::None, |status| progress(status, index)))
        });
        let mut ids = Vec::with_capacity(wanted.len());
        for (shard, progress) in found {
            match progress {
                Progress::There(id) => ids.push(id),
                Progress::Making => {}
                Progress::Behind if begun.elapsed() < CATCH_UP_TIMEOUT => {}
                Progress::Behind | Progress::None => return Err(no_snapshot(shard)),
            }
        }
        if ids.len() == wanted.len() {
            return Ok(ids);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The progress of a shard's snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    There(SnapshotId),
    Making,
    /// The entry is not applied here yet.
    Behind,
    /// The entry was applied, but no snapshot was made.
    None,
}

fn progress(status: &ShardStatus, wanted: LogIndex) -> Progress {
    match status.snapshot {
        _ if wanted == LogIndex(0) => {
            Progress::There(SnapshotId { shard: status.shard, index: wanted, term: Term(0) })
        }
        Some(id) if id.index >= wanted => Progress::There(id),
        _ if status.applied < wanted => Progress::Behind,
        _ if status.makes_snapshot => Progress::Making,
        _ => Progress::None,
    }
}

fn no_snapshot(shard: ShardId) -> Problem {
    let detail = format!(
        "this node has no snapshot of shard {shard} that is new enough: it does not carry the shard, is catching up, or \
         its disk has no room; its log says more. Another node may do better"
    );
    Problem::new(ProblemKind::NoSnapshot, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_there_or_coming_or_not() {
        let id = |index| SnapshotId { shard: ShardId(1), index: LogIndex(index), term: Term(1) };
        let status = |applied, snapshot: Option<u64>, makes_snapshot| ShardStatus {
            shard: ShardId(1),
            replica: tidelock_core::types::ReplicaId(1),
            leader: None,
            leads: false,
            term: Term(1),
            committed: LogIndex(applied),
            applied: LogIndex(applied),
            last: LogIndex(applied),
            log_begin: LogIndex(0),
            keys: 0,
            log_bytes: 0,
            snapshot_bytes: 0,
            votes: true,
            snapshot: snapshot.map(id),
            makes_snapshot,
            last_move: MigrationId(0),
            is_moving: false,
            checkpoint: None,
            diverged: false,
        };
        for (status, expected) in [
            (status(9, Some(8), false), Progress::There(id(8))),
            (status(9, Some(9), true), Progress::There(id(9))),
            (status(9, Some(7), true), Progress::Making),
            (status(7, Some(7), true), Progress::Behind),
            (status(7, None, false), Progress::Behind),
            (status(9, Some(7), false), Progress::None),
            (status(9, None, false), Progress::None),
        ] {
            assert_eq!(progress(&status, LogIndex(8)), expected, "{status:?}");
        }
        let empty = SnapshotId { term: Term(0), ..id(0) };
        assert_eq!(progress(&status(0, None, false), LogIndex(0)), Progress::There(empty));
    }
}
