//! `/v1/cluster/checkpoint`: appends a checkpoint to every shard's log, so that replicas can be
//! compared and copied at one index.
//!
//! Owns submitting to all shards at once. `/v1/cluster` shows the replicas' results.

use tidelock_api::checkpoints::{Checkpoints, ShardCheckpoint};
use tidelock_core::types::{LogIndex, ShardId};

use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use crate::requests;
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
    let view = store.ask(requests::cluster()).await?;
    let shards: Vec<ShardId> = view.shards.iter().map(|shard| shard.shard).collect();
    // All requests are submitted before the first reply is awaited.
    let asked: Vec<_> = shards.iter().map(|&shard| store.ask(requests::checkpoint(shard))).collect();
    let mut indexes = Vec::with_capacity(shards.len());
    for (shard, index) in shards.into_iter().zip(asked) {
        indexes.push((shard, index.await?));
    }
    Ok(indexes)
}
