//! `/v1/cluster/checkpoint`: appends a checkpoint to every shard's log, so that replicas can be
//! compared and copied at one index. `/v1/cluster` shows the replicas' results.

use tidelock_api::checkpoints::{Checkpoints, ShardCheckpoint};
use tidelock_core::clients::checkpoint::CheckpointRequest;
use tidelock_core::command::AdminAction;

use super::audit;
use super::drive;
use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use crate::store::Store;

pub(super) async fn answer<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    audit::announce(&call, AdminAction::Checkpoint).await?;
    let (mut checkpoints, action) = CheckpointRequest::begin();
    let shards = drive::until_done(call.store(), action, |replies| checkpoints.answered(replies)).await?;
    let shards = shards.into_iter().map(|(shard, index)| ShardCheckpoint { id: shard.0, index: index.0 });
    let body = serde_json::to_vec(&Checkpoints { shards: shards.collect() });
    Ok(response::json(body.expect("invariant: numbers are JSON")))
}
