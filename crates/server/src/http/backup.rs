//! `/v1/backup`: this node's state of every shard, in one file.
//!
//! Owns the parameters, the texts of refusals, and waiting for the node.
//! `core::clients::backup` decides which snapshots make up a backup.

use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use tidelock_core::clients::backup::{BackupAction, BackupFailure, BackupRequest};
use tidelock_core::deliberate::Faults;

use super::drive;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use crate::backup::{BackupSource, OpenSnapshots};
use crate::store::Store;

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
    let open = select(source, call.store(), is_stale).await?;
    Ok(response::parts(MEDIA_TYPE, open.read(place)))
}

/// Selects the snapshots of a backup and opens them.
async fn select<S: Store>(
    source: &BackupSource,
    store: &S,
    is_stale: bool,
) -> Result<OpenSnapshots, BackupFailure> {
    let begun = Instant::now();
    let mut open = None;
    let (mut backup, mut action) = BackupRequest::begin(is_stale, Faults::NONE);
    loop {
        action = match action {
            BackupAction::Ask(requests) => backup.answered(drive::ask_all(store, requests).await),
            BackupAction::ReadStatus { after_ms } => {
                if after_ms > 0 {
                    tokio::time::sleep(Duration::from_millis(after_ms)).await;
                }
                let shards = store.status().await.shards;
                let now_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                backup.status(now_ms, &shards)
            }
            BackupAction::Open(ids) => {
                let result = source.open(ids, is_stale).await;
                backup.opened(result.map(|snapshots| open = Some(snapshots)))
            }
            BackupAction::Done(result) => {
                result?;
                return Ok(open.expect("invariant: a backup succeeds only after its snapshots were opened"));
            }
        }
    }
}

impl From<BackupFailure> for Problem {
    fn from(failure: BackupFailure) -> Problem {
        match failure {
            BackupFailure::SlotsMoving => Problem::new(
                ProblemKind::SlotsMoving,
                "slots are on their way between shards; nothing was done. Ask again when that is over",
            ),
            BackupFailure::NoSnapshot(shard) => Problem::new(
                ProblemKind::NoSnapshot,
                format!(
                    "this node has no snapshot of shard {shard} that is new enough: it does not carry the shard, is \
                     catching up, or its disk has no room; its log says more. Another node may do better"
                ),
            ),
            BackupFailure::Open(ref reason) => {
                tracing::warn!(%reason, "the snapshots of a backup cannot be opened");
                Problem::new(ProblemKind::NoSnapshot, failure.to_string())
            }
            BackupFailure::Unanswered(error) => error.into(),
        }
    }
}
