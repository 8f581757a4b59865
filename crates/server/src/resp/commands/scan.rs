//! Walks over all keys: `SCAN`, `KEYS`, `DBSIZE`.
//!
//! A cursor is the shard (its number less one, in the upper 10 bits), the version of the map of slots with which the walk began
//! (its lower 10 bits) and the place in the shard at which the walk rests (44 bits, see `tidelock_core::machine::kv`). It means
//! the same on every node and after every restart; nobody remembers it. A walk that finds another map begins anew, since
//! keys may have come to shards that it has been through: it then meets keys twice, and misses none.

use tidelock_core::command::{Consistency, Read, Reply, Request};
use tidelock_core::limits::{LIST_PAGE_ITEMS_MAX, SCAN_KEYS_MAX};
use tidelock_core::types::ShardId;

use super::super::access::Access;
use super::super::encode::{Encoder, Protocol};
use super::super::frame::Arguments;
use super::super::glob;
use super::super::session::{Action, Failure, Session};
use super::super::slots::refusal_text;
use super::{integer, is, syntax};
use crate::memory::Reservation;
use std::rc::Rc;

type Result<T = Action> = std::result::Result<T, Failure>;

/// Bits of a cursor that tell the place inside of a shard.
const PLACE_BITS: u32 = 44;

/// Bits of a cursor that tell the version of the map.
const VERSION_BITS: u32 = 10;

/// Keys that a step looks at unless the client says otherwise. (Redis' own default.)
const COUNT_DEFAULT: usize = 10;

/// Keys and their bytes that `KEYS` returns at most: all of them are one reply.
const KEYS_MAX: usize = 100_000;
const KEYS_BYTES_MAX: usize = 8 << 20;

/// `SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]`
pub fn scan(session: &mut Session, arguments: Arguments<'_>) -> Result {
    let cursor = &arguments[1];
    let is_number = !cursor.is_empty() && cursor.iter().all(u8::is_ascii_digit);
    let cursor: Option<u64> =
        std::str::from_utf8(cursor).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    let step = Step::read(cursor.ok_or("ERR invalid cursor")?, arguments)?;
    let (store, protocol) = (session.store.clone(), session.protocol);
    let consistency = consistency(session);
    let mut memory = session.context.memory.request();
    Ok(Action::Wait(Box::pin(async move {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(&mut out, protocol);
        match step.run(&*store, consistency, &mut memory).await {
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

/// One step of a walk.
struct Step {
    shard: ShardId,
    after: u64,
    /// What the cursor tells of the version of the map; `None` when the walk begins.
    version: Option<u64>,
    count: usize,
    pattern: Option<Vec<u8>>,
    /// Every key holds a string: any other type matches none.
    matches_type: bool,
}

impl Step {
    fn read(cursor: u64, arguments: Arguments<'_>) -> Result<Step> {
        let shard = ShardId((cursor >> (PLACE_BITS + VERSION_BITS)) + 1);
        let after = cursor & ((1 << PLACE_BITS) - 1);
        let version = (cursor != 0).then(|| version_bits(cursor >> PLACE_BITS));
        let mut step =
            Step { shard, after, version, count: COUNT_DEFAULT, pattern: None, matches_type: true };
        let mut rest = arguments.from(2);
        while let (Some(option), Some(value)) = (rest.next(), rest.next()) {
            if is(option, "match") {
                step.pattern = Some(value.to_vec());
            } else if is(option, "count") {
                let count = usize::try_from(integer(value)?).ok().filter(|count| *count > 0);
                step.count = count.ok_or(super::SYNTAX)?.min(SCAN_KEYS_MAX / 2);
            } else if is(option, "type") {
                step.matches_type = is(value, "string");
            } else {
                return syntax();
            }
        }
        if arguments.len().is_multiple_of(2) { Ok(step) } else { syntax() }
    }

    /// Walks until enough keys were looked at, through as many shards as that takes.
    async fn run(
        mut self,
        store: &dyn Access,
        consistency: Consistency,
        memory: &mut Reservation,
    ) -> Result<(u64, Vec<bytes::Bytes>)> {
        let (mut found, mut found_bytes, mut looked_at) = (Vec::new(), 0, 0);
        let mut slots = store.slot_map();
        let mut shards = slots.shards();
        if self.version != Some(version_bits(slots.version)) {
            self.begin(&shards);
        } else if !shards.contains(&self.shard) {
            return Err("ERR invalid cursor".into());
        }
        loop {
            let version = slots.version;
            // At least one: what was met before the map changed counts, too.
            let count = self.count.saturating_sub(looked_at).max(1);
            let read = Read::Scan { shard: self.shard, after: self.after, count, version };
            let (keys, next) = match store.ask(Request::Read { read, consistency }).await {
                Reply::Scanned { keys, next } => (keys, next),
                Reply::SlotsMoved => {
                    slots = store.slot_map();
                    shards = slots.shards();
                    self.begin(&shards);
                    continue;
                }
                other => return Err(failure(other)),
            };
            looked_at += keys.len();
            found.extend(
                keys.into_iter().filter(|key| self.matches(key)).inspect(|key| found_bytes += key_bytes(key)),
            );
            hold(memory, found_bytes).await?;
            let following = shards.iter().copied().find(|shard| *shard > self.shard);
            let cursor = |shard: ShardId, place: u64| {
                ((shard.0 - 1) << VERSION_BITS | version_bits(version)) << PLACE_BITS | place
            };
            match (next, following) {
                (Some(place), _) => return Ok((cursor(self.shard, place), found)),
                (None, None) => return Ok((0, found)),
                (None, Some(shard)) if looked_at >= self.count => return Ok((cursor(shard, 0), found)),
                (None, Some(shard)) => (self.shard, self.after) = (shard, 0),
            }
        }
    }

    /// Goes to where every walk begins.
    fn begin(&mut self, shards: &[ShardId]) {
        (self.shard, self.after) = (shards.first().copied().unwrap_or(ShardId(1)), 0);
    }

    fn matches(&self, key: &[u8]) -> bool {
        self.matches_type && self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, key))
    }
}

/// What a cursor holds of the version of a map.
fn version_bits(version: u64) -> u64 {
    version & ((1 << VERSION_BITS) - 1)
}

/// `KEYS pattern`
pub fn keys(session: &mut Session, arguments: Arguments<'_>) -> Result {
    let pattern = arguments[1].to_vec();
    let (store, protocol, consistency) = (session.store.clone(), session.protocol, consistency(session));
    let mut memory = session.context.memory.request();
    Ok(Action::Wait(Box::pin(async move {
        let found = all_keys(store, consistency, &pattern, &mut memory).await;
        encoded(protocol, |encoder| match found {
            Ok(keys) => {
                encoder.array(keys.len());
                keys.iter().for_each(|key| encoder.bulk(key));
            }
            Err(failure) => encoder.error(&failure),
        })
    })))
}

async fn all_keys(
    store: Rc<dyn Access>,
    consistency: Consistency,
    pattern: &[u8],
    memory: &mut Reservation,
) -> Result<Vec<bytes::Bytes>> {
    let prefix = bytes::Bytes::copy_from_slice(glob::literal_prefix(pattern));
    let (mut found, mut found_bytes, mut held_bytes, mut after) = (Vec::new(), 0, 0, None);
    loop {
        let read = Read::List { prefix: prefix.clone(), after, limit: LIST_PAGE_ITEMS_MAX, keys_only: true };
        let page = match store.ask(Request::Read { read, consistency }).await {
            Reply::Page(page) => page,
            other => return Err(failure(other)),
        };
        for item in page.items.into_iter().filter(|item| glob::matches(pattern, &item.key)) {
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

/// What a key that was found takes until the client has the reply: the key, its handle and its
/// encoding.
fn key_bytes(key: &[u8]) -> usize {
    2 * key.len() + size_of::<bytes::Bytes>() + 16
}

/// Counts what a walk has gathered.
async fn hold(memory: &mut Reservation, bytes: usize) -> Result<()> {
    memory.grow_to(bytes).await.map_err(|exhausted| format!("TRYAGAIN {exhausted}").into())
}

/// `DBSIZE`
pub fn dbsize(session: &mut Session, _: Arguments<'_>) -> Result {
    let (protocol, consistency) = (session.protocol, consistency(session));
    let reply = session.store.ask(Request::Read { read: Read::Count, consistency });
    Ok(Action::Wait(Box::pin(async move {
        let reply = reply.await;
        encoded(protocol, |encoder| match reply {
            Reply::Count(keys) => encoder.unsigned(keys),
            other => encoder.error(&failure(other)),
        })
    })))
}

/// How fresh the answers of this client must be.
pub(super) fn consistency(session: &Session) -> Consistency {
    if session.is_readonly { Consistency::Stale } else { Consistency::Linearizable }
}

/// What a client is told of a reply that is no answer.
pub(super) fn failure(reply: Reply) -> Failure {
    match reply {
        Reply::Refused(refusal) => refusal_text(refusal).into(),
        _ => "ERR the store answered something else".into(),
    }
}

/// A reply as bytes.
pub(super) fn encoded(protocol: Protocol, encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Encoder::new(&mut out, protocol));
    out
}
