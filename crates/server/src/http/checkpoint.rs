//! `/v1/cluster/checkpoint`: appends a checkpoint to every shard's log, so that replicas can be
//! compared and copied at one index.
//!
//! Owns submitting to all shards at once. `/v1/cluster` shows the replicas' results.

use tidelock_api::checkpoints::{Checkpoints, ShardCheckpoint};
use tidelock_core::command::{Reply, Request, Write};
use tidelock_core::types::{LogIndex, ShardId};

use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use crate::store::Store;

pub(super) async fn answer<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let shards = of_all_shards(call.store()).await?;
    let shards = shards.into_iter().map(|(shard, index)| ShardCheckpoint { id: shard.0, index: index.0 });
    let body = serde_json::to_vec(&Checkpoints { shards: shards.collect() });
    Ok(response::json(body.expect("invariant: numbers are JSON")))
}

/// Appends a checkpoint to the log of every shard. Everything acknowledged before the call precedes
/// them.
pub(super) async fn of_all_shards<S: Store>(store: &S) -> Result<Vec<(ShardId, LogIndex)>, Problem> {
    let view = match store.submit(Request::Cluster).await {
        Reply::Cluster(view) => view,
        Reply::Refused(refusal) => return Err(refusal.into()),
        _ => return Err(Problem::mismatched_reply()),
    };
    let shards: Vec<ShardId> = view.shards.iter().map(|shard| shard.shard).collect();
    // All requests are submitted before the first reply is awaited.
    let asked: Vec<_> =
        shards.iter().map(|&shard| store.submit(Request::Write(Write::Checkpoint { shard }))).collect();
    let mut indexes = Vec::with_capacity(shards.len());
    for (shard, reply) in shards.into_iter().zip(asked) {
        match reply.await {
            Reply::Checkpointed { index } => indexes.push((shard, index)),
            Reply::Refused(refusal) => return Err(refusal.into()),
            _ => return Err(Problem::mismatched_reply()),
        }
    }
    Ok(indexes)
}
