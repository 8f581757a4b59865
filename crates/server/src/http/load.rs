//! `/v1/cluster/load`: what this node's clients asked for recently.
//!
//! Owns the limit of the lists, and the translation into the types of `tidelock_api`;
//! `tidelock_core::command::LoadView` says what is counted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidelock_api::load as api;
use tidelock_core::command::{
    DivisionView, HotKey, HotSlotMoveView, LeadershipTransfer, LoadView, VoteExchange,
};

use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use super::uri::parse_u64;
use crate::requests;
use crate::store::Store;

/// Keys, and prefixes, that are listed without a limit.
const LISTED: usize = 20;

/// Most keys, and prefixes, that can be listed.
pub(super) const LISTED_MAX: usize = 100;

pub(super) async fn answer<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let most = match call.parameters().get("limit")? {
        None => LISTED,
        Some(digits) => parse_u64(&digits)
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| (1..=LISTED_MAX).contains(limit))
            .ok_or_else(|| Problem::invalid(format!("limit must be 1 to {LISTED_MAX}")))?,
    };
    let load = encode(&*call.ask(requests::load(most)).await?);
    Ok(response::json(serde_json::to_vec(&load).expect("invariant: numbers and texts are JSON")))
}

fn encode(load: &LoadView) -> api::Load {
    let shards = load.shards.iter().map(|(shard, load)| api::ShardLoad {
        shard: shard.0,
        reads: load.reads,
        writes: load.writes,
        bytes_written: load.bytes_written,
    });
    api::Load {
        node: load.node.0,
        window_ms: load.window_ms,
        shards: shards.collect(),
        keys: load.keys.iter().map(hot_key).collect(),
        prefixes: load.prefixes.iter().map(hot_key).collect(),
        spanning_transactions: load.spanning_transactions,
        division: load.division.as_ref().map(division),
        leadership_transfer: load.leadership_transfer.as_ref().map(leadership_transfer),
        slot_move: load.slot_move.as_ref().map(slot_move),
        vote_exchange: load.vote_exchange.as_ref().map(vote_exchange),
    }
}

fn leadership_transfer(next: &LeadershipTransfer) -> api::LeadershipTransfer {
    api::LeadershipTransfer {
        shard: next.shard.0,
        from: next.from.0,
        to: next.to.0,
        reason: next.to_string(),
    }
}

fn slot_move(HotSlotMoveView { next, blocker }: &HotSlotMoveView) -> api::HotSlotMove {
    api::HotSlotMove {
        from: next.from.0,
        to: next.to.0,
        slots: next.slots.count().into(),
        reason: next.to_string(),
        held_back_by: blocker.as_ref().map(ToString::to_string),
    }
}

fn vote_exchange(next: &VoteExchange) -> api::VoteExchange {
    api::VoteExchange {
        from: next.from.0,
        given: next.given.0,
        to: next.to.0,
        returned: next.returned.map(|shard| shard.0),
        reason: next.to_string(),
    }
}

fn division(view: &DivisionView) -> api::Division {
    api::Division {
        shards: view.shards,
        wanted: view.wanted,
        cause: view.cause.map(|cause| cause.name().to_owned()),
        spanning_transactions: view.spanning,
        held_back_by: view.blocker.as_ref().map(ToString::to_string),
    }
}

fn hot_key(hot: &HotKey) -> api::HotKey {
    let (key, key_b64) = match std::str::from_utf8(&hot.key) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(&hot.key))),
    };
    api::HotKey { key, key_b64, requests: hot.requests, error: hot.error }
}
