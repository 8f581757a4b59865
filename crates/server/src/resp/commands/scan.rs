//! Reads of all keys: `SCAN`, `KEYS`, `DBSIZE`.
//!
//! `tidelock_core::scan` owns the meaning of cursors and the order of shards.
//!
//! Redis Cluster clients ask every master and combine the replies. So on their listener a node
//! returns the keys of the shards that it leads; on the other one each node returns all keys.

use tidelock_core::command::{Consistency, Read};
use tidelock_core::event::{NodeStatus, ShardStatus};
use tidelock_core::limits::{LIST_PAGE_ITEMS_MAX, SCAN_KEYS_MAX};
use tidelock_core::scan::Scan;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::types::ShardId;

use super::super::dyn_store::DynStore;
use super::super::encode::{Encoder, Protocol};
use super::super::frame::CommandArguments;
use super::super::glob;
use super::super::replies::refusal_text;
use super::super::session::{Action, Failure, Session};
use super::{Result, integer, is, syntax};
use crate::memory::Reservation;
use crate::requests::{self, NoAnswer};
use std::rc::Rc;

const INVALID_CURSOR: &str = "ERR invalid cursor";

/// Keys that one step reads by default. (Redis' own default.)
const COUNT_DEFAULT: usize = 10;

/// Most keys and bytes of keys that `KEYS` returns, because they form one reply.
const KEYS_MAX: usize = 100_000;
const KEYS_BYTES_MAX: usize = 8 << 20;

/// `SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]`
pub fn scan(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let cursor = &arguments[1];
    let is_number = !cursor.is_empty() && cursor.iter().all(u8::is_ascii_digit);
    let cursor: Option<u64> =
        std::str::from_utf8(cursor).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    let mut parsed = ScanArguments::read(cursor.ok_or(INVALID_CURSOR)?, arguments)?;
    let (store, protocol) = (session.store.clone(), session.protocol);
    let (consistency, is_cluster) = (consistency(session), session.is_cluster);
    let mut memory = session.context.memory.request();
    Ok(Action::Wait(Box::pin(async move {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(&mut out, protocol);
        parsed.only = if is_cluster { Some(led(&*store).await) } else { None };
        match parsed.run(&*store, consistency, &mut memory).await {
            Ok((next, keys)) => {
                encoder.array(2);
                encoder.bulk(next.to_string().as_bytes());
                encoder.array(keys.len());
                keys.iter().for_each(|key| encoder.bulk(key));
            }
            Err(failure) => encoder.error(&failure),
        }
        out
    })))
}

struct ScanArguments {
    cursor: u64,
    count: usize,
    pattern: Option<Vec<u8>>,
    /// Every key holds a string, so any other type matches none.
    matches_type: bool,
    /// The shards to read; `None`: all.
    only: Option<Vec<ShardId>>,
}

impl ScanArguments {
    fn read(cursor: u64, arguments: CommandArguments<'_>) -> Result<ScanArguments> {
        let mut parsed =
            ScanArguments { cursor, count: COUNT_DEFAULT, pattern: None, matches_type: true, only: None };
        let mut rest = arguments.from(2);
        while let (Some(option), Some(value)) = (rest.next(), rest.next()) {
            if is(option, "match") {
                parsed.pattern = Some(value.to_vec());
            } else if is(option, "count") {
                let count = usize::try_from(integer(value)?).ok().filter(|count| *count > 0);
                parsed.count = count.ok_or(super::SYNTAX)?.min(SCAN_KEYS_MAX / 2);
            } else if is(option, "type") {
                parsed.matches_type = is(value, "string");
            } else {
                return syntax();
            }
        }
        if arguments.len().is_multiple_of(2) { Ok(parsed) } else { syntax() }
    }

    /// Reads until enough keys were seen, through as many shards as necessary. Returns the next
    /// cursor and the keys that match.
    async fn run(
        mut self,
        store: &dyn DynStore,
        consistency: Consistency,
        memory: &mut Reservation,
    ) -> Result<(u64, Vec<bytes::Bytes>)> {
        let mut scan = Scan::resume(self.cursor, store.slot_map()).map_err(|_| INVALID_CURSOR)?;
        if let Some(shards) = self.only.take() {
            scan = scan.only(shards);
        }
        let (mut found, mut found_bytes, mut looked_at) = (Vec::new(), 0, 0);
        while !scan.is_complete() {
            // At least one: keys found before the map changed count, too.
            let read = scan.read(self.count.saturating_sub(looked_at).max(1));
            let step = store.ask(requests::scan(read, consistency)).await;
            let Some(step) = step.map_err(failure)? else {
                scan.start_over(store.slot_map());
                continue;
            };
            let keys = scan.take(step);
            looked_at += keys.len();
            let matching = keys.into_iter().filter(|key| self.matches(key));
            found.extend(matching.inspect(|key| found_bytes += key_bytes(key)));
            hold(memory, found_bytes).await?;
            if looked_at >= self.count || scan.is_inside_shard() {
                break;
            }
        }
        Ok((scan.cursor(), found))
    }

    fn matches(&self, key: &[u8]) -> bool {
        self.matches_type && self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, key))
    }
}

/// `KEYS pattern`
pub fn keys(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let pattern = arguments[1].to_vec();
    let (store, protocol, consistency) = (session.store.clone(), session.protocol, consistency(session));
    let is_cluster = session.is_cluster;
    let mut memory = session.context.memory.request();
    Ok(Action::Wait(Box::pin(async move {
        let only = if is_cluster { Some(led(&*store).await) } else { None };
        let found = all_keys(store, consistency, KeyFilter { pattern, only }, &mut memory).await;
        encoded(protocol, |encoder| match found {
            Ok(keys) => {
                encoder.array(keys.len());
                keys.iter().for_each(|key| encoder.bulk(key));
            }
            Err(failure) => encoder.error(&failure),
        })
    })))
}

/// Which keys `KEYS` returns.
struct KeyFilter {
    pattern: Vec<u8>,
    /// The shards of the keys; `None`: all.
    only: Option<Vec<ShardId>>,
}

impl KeyFilter {
    fn matches(&self, key: &[u8], store: &dyn DynStore) -> bool {
        let is_here = || self.only.as_ref().is_none_or(|shards| shards.contains(&store.shard_of(key)));
        glob::matches(&self.pattern, key) && is_here()
    }
}

async fn all_keys(
    store: Rc<dyn DynStore>,
    consistency: Consistency,
    filter: KeyFilter,
    memory: &mut Reservation,
) -> Result<Vec<bytes::Bytes>> {
    let prefix = bytes::Bytes::copy_from_slice(glob::literal_prefix(&filter.pattern));
    let (mut found, mut found_bytes, mut held_bytes, mut after) = (Vec::new(), 0, 0, None);
    loop {
        let read = Read::List { prefix: prefix.clone(), after, limit: LIST_PAGE_ITEMS_MAX, keys_only: true };
        let page = store.ask(requests::page(read, consistency)).await.map_err(failure)?;
        for item in page.items.into_iter().filter(|item| filter.matches(&item.key, &*store)) {
            found_bytes += item.key.len();
            held_bytes += key_bytes(&item.key);
            found.push(item.key);
        }
        hold(memory, held_bytes).await?;
        if found.len() > KEYS_MAX || found_bytes > KEYS_BYTES_MAX {
            return Err("ERR more than 100000 keys match, or 8 MiB of them; use SCAN".into());
        }
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// The data shards that this node leads and that own slots.
pub(super) async fn led(store: &dyn DynStore) -> Vec<ShardId> {
    let status = store.status().await;
    led_of(&status, &store.slot_map()).map(|shard| shard.shard).collect()
}

/// As [`led`], with the status of each.
pub(super) fn led_of<'a>(
    status: &'a NodeStatus,
    slots: &'a SlotMap,
) -> impl Iterator<Item = &'a ShardStatus> + use<'a> {
    status.shards.iter().filter(|shard| shard.leads && slots.count(shard.shard) > 0)
}

/// Bytes of a found key until the reply is sent: the key, its handle and its encoding.
fn key_bytes(key: &[u8]) -> usize {
    2 * key.len() + size_of::<bytes::Bytes>() + 16
}

/// Counts the bytes of gathered keys.
async fn hold(memory: &mut Reservation, bytes: usize) -> Result<()> {
    memory.grow_to(bytes).await.map_err(|exhausted| format!("TRYAGAIN {exhausted}").into())
}

/// `DBSIZE`
pub fn dbsize(session: &mut Session, _: CommandArguments<'_>) -> Result {
    let (protocol, consistency) = (session.protocol, consistency(session));
    if session.is_cluster {
        let store = session.store.clone();
        return Ok(Action::Wait(Box::pin(async move {
            // Leaders have applied what they acknowledged.
            let status = store.status().await;
            let keys = led_of(&status, &store.slot_map()).map(|shard| shard.keys).sum();
            encoded(protocol, |encoder| encoder.unsigned(keys))
        })));
    }
    let keys = session.store.ask(requests::count(consistency));
    Ok(Action::Wait(Box::pin(async move {
        let keys = keys.await;
        encoded(protocol, |encoder| match keys {
            Ok(keys) => encoder.unsigned(keys),
            Err(error) => encoder.error(&failure(error)),
        })
    })))
}

/// The consistency that this client's reads need.
pub(super) fn consistency(session: &Session) -> Consistency {
    if session.is_readonly { Consistency::Stale } else { Consistency::Linearizable }
}

/// The error text for a request without an answer.
pub(super) fn failure(error: NoAnswer) -> Failure {
    match error {
        NoAnswer::Refused(refusal) => refusal_text(&refusal).into(),
        NoAnswer::Mismatched => "ERR the store answered something else".into(),
    }
}

/// Encodes a reply.
pub(super) fn encoded(protocol: Protocol, encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Encoder::new(&mut out, protocol));
    out
}
