//! `/v1/restore`: writes the keys of a backup into a cluster without other data.
//!
//! Owns splitting a body by shard into commands of bounded size. A body contains keys, or a block
//! of configuration; the latter begins with a zero byte, which no key's length does. Each shard
//! decides, when it applies a command, whether to accept it. Every request may be repeated. With
//! `discard`, data of another restore is removed from the shards first, as long as no client has
//! written to them.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::StatusCode;
use tidelock_core::codec::Decoder;
use tidelock_core::command::{ConfigRestoration, Discard, Restoration, RestoreWrite, RestoredKey, RowLayout};
use tidelock_core::limits;
use tidelock_core::machine::config;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::slots::slot_of;
use tidelock_core::types::{ShardId, Version};
use uuid::Uuid;

use super::body::BodyLimit;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use super::uri::{self, Parameters};
use crate::requests::{self, ConditionFailed, NoAnswer};
use crate::store::Store;

pub(super) async fn answer<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let (backup, revision) = parameters(call.parameters())?;
    let (expiring, discard) = (call.parameters().flag("expiring")?, call.parameters().flag("discard")?);
    let layout = if expiring { RowLayout::Expiring } else { RowLayout::Plain };
    let body = call.read_body(BodyLimit::Form(call.context.options.body_bytes_max)).await?;
    let registry = call.ask(requests::registry()).await?;
    if discard {
        discard_others(call.store(), backup, &registry.slots).await?;
    }
    if config::is_block(&body) {
        return restore_config(call.store(), backup, &body, &registry.slots).await;
    }
    let commands = if body.is_empty() {
        registry.slots.shards().into_iter().map(|shard| (shard, Vec::new())).collect()
    } else {
        split(decode(layout, &body)?, &registry.slots)
    };
    // All commands are submitted before the first reply is awaited.
    let asked: Vec<_> = commands
        .into_iter()
        .map(|(shard, records)| Restoration { shard, backup, revision, records })
        .map(|restoration| call.store().ask(requests::restore(RestoreWrite::Keys(restoration))))
        .collect();
    settle(asked).await
}

/// Removes what other restores have written to the shards.
async fn discard_others<S: Store>(store: &S, backup: Uuid, slots: &SlotMap) -> Result<(), Problem> {
    for shard in slots.shards() {
        let discard = Discard { shard, backup };
        while store.ask(requests::discard(discard)).await?.map_err(not_empty)? > 0 {}
    }
    Ok(())
}

/// Sends each namespace of a block of configuration to its shard, and the state of the block's own
/// shard to all shards.
async fn restore_config<S: Store>(
    store: &S,
    backup: Uuid,
    block: &[u8],
    slots: &SlotMap,
) -> Result<Response, Problem> {
    let parts = config::split_block(block)
        .map_err(|error| Problem::invalid(format!("the body is no block of configuration: {error}")))?;
    let mut asked = Vec::new();
    for (name, part) in parts {
        let part = Bytes::from(part);
        let shards = match &name {
            Some(name) => vec![slots.shard_of(slot_of(name.routing_key()))],
            None => slots.shards(),
        };
        for shard in shards {
            let restoration = ConfigRestoration { shard, backup, block: part.clone() };
            asked.push(store.ask(requests::restore(RestoreWrite::Config(restoration))));
        }
    }
    settle(asked).await
}

/// Waits for all replies.
async fn settle(
    asked: Vec<impl Future<Output = Result<Result<(), ConditionFailed>, NoAnswer>>>,
) -> Result<Response, Problem> {
    let mut result = Ok(response::empty(StatusCode::NO_CONTENT));
    for restored in asked {
        match restored.await {
            Ok(Ok(())) => {}
            Ok(Err(failed)) => result = result.and(Err(not_empty(failed))),
            Err(error) => result = result.and(Err(error.into())),
        }
    }
    result
}

fn not_empty(_: ConditionFailed) -> Problem {
    Problem::new(
        ProblemKind::NotEmpty,
        "the cluster has been written to by something else than this restore; a backup goes into a fresh cluster. If \
         that was only another restore, discard=true removes what it has brought",
    )
}

fn parameters(parameters: Parameters<'_>) -> Result<(Uuid, Version), Problem> {
    let backup = parameters.get("backup")?;
    let backup = backup.and_then(|text| Uuid::try_parse_ascii(&text).ok());
    let backup = backup.ok_or_else(|| Problem::invalid("backup must be the UUID of the backup"))?;
    let revision = parameters.get("revision")?.and_then(|digits| uri::parse_u64(&digits));
    let revision = revision.ok_or_else(|| Problem::invalid("revision must be a number of 64 bits"))?;
    Ok((backup, Version(revision)))
}

fn decode(layout: RowLayout, body: &Bytes) -> Result<Vec<RestoredKey>, Problem> {
    let mut decoder = Decoder::new(body);
    let mut records = Vec::new();
    while !decoder.is_empty() {
        let record = RestoredKey::decode(layout, &mut decoder, body);
        records
            .push(record.map_err(|error| Problem::invalid(format!("the body is no row of keys: {error}")))?);
    }
    Ok(records)
}

/// Groups keys by shard, in commands that are closed at the size limit of a log entry.
fn split(records: Vec<RestoredKey>, slots: &SlotMap) -> Vec<(ShardId, Vec<RestoredKey>)> {
    let mut open: BTreeMap<ShardId, (usize, Vec<RestoredKey>)> = BTreeMap::new();
    let mut commands = Vec::new();
    for record in records {
        let shard = slots.shard_of(slot_of(&record.key));
        let (bytes, records) = open.entry(shard).or_default();
        *bytes += record.key.len() + record.value.len();
        records.push(record);
        if *bytes >= limits::ENTRY_BYTES_CLOSE {
            *bytes = 0;
            commands.push((shard, std::mem::take(records)));
        }
    }
    let rest = open.into_iter().map(|(shard, (_, records))| (shard, records));
    commands.extend(rest.filter(|(_, records)| !records.is_empty()));
    commands
}

#[cfg(test)]
mod tests {
    use tidelock_core::command::Write;

    use super::*;

    #[test]
    fn keys_are_split_over_shards_and_commands() {
        let record = |number: u64, bytes| RestoredKey {
            key: Bytes::copy_from_slice(&number.to_be_bytes()),
            version: Version(number + 1),
            value: vec![0; bytes].into(),
            expires: None,
        };
        let mut records: Vec<_> = (0..100).map(|number| record(number, 20_000)).collect();
        records.push(record(100, limits::VALUE_BYTES_MAX));
        let commands = split(records.clone(), &SlotMap::founded(3));
        assert!(commands.len() > 4);
        let mut found = vec![];
        for (shard, records) in commands {
            let restoration =
                Restoration { shard, backup: Uuid::nil(), revision: Version(200), records: records.clone() };
            assert_eq!(
                Write::Restore(RestoreWrite::Keys(restoration)).validate(),
                Ok(()),
                "within the limits"
            );
            let belongs = |record: &RestoredKey| SlotMap::founded(3).shard_of(slot_of(&record.key)) == shard;
            assert!(!records.is_empty() && records.iter().all(belongs));
            found.extend(records);
        }
        found.sort_by_key(|record| record.version);
        assert_eq!(found, records);
    }
}
