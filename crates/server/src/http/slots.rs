//! The shards, their slots, and changes of them: `/v1/cluster/moves`, `/v1/cluster/shards` and
//! below, `/v1/cluster/rebalance`.
//!
//! Owns the translation between the core and `tidelock_api`. A request records the wanted
//! assignment. `/v1/cluster/moves` lists the moves that remain, as the answering node knows them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidelock_api::shards::{AddShardRequest, ChangedShard};
use tidelock_api::slots::{Moves, RequestedMoves, ShardSlots, SlotMove, WantedSlots};
use tidelock_core::command::RegistryWrite;
use tidelock_core::control::progress::are_moves_done;
use tidelock_core::placement_policy::PlacementPolicy;
use tidelock_core::slots::slot_set::{NoSlots, SlotSet};
use tidelock_core::types::{MigrationId, ShardId};

use super::body::BodyLimit;
use super::membership::{denied, number};
use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use crate::requests;
use crate::store::Store;

/// Longest body in bytes: more than the tags of a shard or a list of slots may take.
const BODY_BYTES_MAX: usize = 128 << 10;

pub(super) async fn moves<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let until = call.parameters().get("until")?.map(|until| number("a move", until)).transpose()?;
    let view = call.ask(requests::registry()).await?;
    let data_shards = view.shards.iter().map(|(shard, _)| *shard).filter(|shard| *shard != ShardId::PRIME);
    let share = |shard: ShardId| {
        let slots = view.slots.share(shard);
        ShardSlots { shard: shard.0, count: slots.count(), slots: slots.to_string() }
    };
    let migrations = view.migrations.iter().map(|(id, migration)| SlotMove {
        id: id.0,
        from: migration.from.0,
        to: migration.to.0,
        count: migration.slots.count(),
        slots: migration.slots.to_string(),
    });
    let moves = Moves {
        version: view.slots.version,
        shards: data_shards.map(share).collect(),
        moves: migrations.collect(),
        last: view.last_migration.0,
        done: are_moves_done(&view, until.map_or(view.last_migration, MigrationId)),
    };
    Ok(response::json(encode(&moves)))
}

/// Adds a shard. The body is `{"name": "orders", "tags": {"placement:member": "3"}}`, or empty.
pub(super) async fn add_shard<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let body = call.read_body(BodyLimit::Form(BODY_BYTES_MAX)).await?;
    let AddShardRequest { name, tags } = if body.is_empty() {
        AddShardRequest::default()
    } else {
        let detail = "the body must be a JSON object with `name` and `tags`, or empty";
        object(&body).ok_or_else(|| Problem::invalid(detail))?
    };
    PlacementPolicy::parse(&tags).map_err(|error| Problem::invalid(error.to_string()))?;
    let shard = call.ask(requests::add_shard(name, tags)).await?.map_err(denied)?;
    Ok(response::accepted(encode(&ChangedShard { shard: shard.0 })))
}

/// `DELETE`: removes a shard that owns no slots.
pub(super) async fn remove_shard<S: Store>(call: Call<'_, S>, raw_shard: &str) -> Result<Response, Problem> {
    let shard = ShardId(number("a shard", raw_shard)?);
    call.ask(requests::change_registry(RegistryWrite::RemoveShard { shard })).await?.map_err(denied)?;
    Ok(response::accepted(encode(&ChangedShard { shard: shard.0 })))
}

pub(super) async fn rebalance<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    plan(&call, RegistryWrite::Rebalance).await
}

/// Moves slots to a shard. The body is `{"slots": "0-99,200"}`.
pub(super) async fn move_slots<S: Store>(
    mut call: Call<'_, S>,
    raw_shard: &str,
) -> Result<Response, Problem> {
    let to = ShardId(number("a shard", raw_shard)?);
    let body = call.read_body(BodyLimit::Form(BODY_BYTES_MAX)).await?;
    let detail = "the body must be a JSON object with `slots`, such as \"0-99,200\"";
    let wanted: WantedSlots = object(&body).ok_or_else(|| Problem::invalid(detail))?;
    let slots: SlotSet =
        wanted.slots.parse().map_err(|error: NoSlots| Problem::invalid(error.to_string()))?;
    plan(&call, RegistryWrite::MoveSlots { slots, to }).await
}

/// Plans moves.
async fn plan<S: Store>(call: &Call<'_, S>, write: RegistryWrite) -> Result<Response, Problem> {
    let (moves, last) = call.ask(requests::move_slots(write)).await?.map_err(denied)?;
    Ok(response::accepted(encode(&RequestedMoves { moves, last: last.0 })))
}

/// Parses a JSON object. serde would also accept a list of the values in order, which is refused.
fn object<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body).ok()?;
    serde_json::from_value(fields.into()).ok()
}

fn encode(object: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(object).expect("invariant: numbers and texts are JSON")
}
