//! Reads forwarded between nodes, and the replies.
//!
//! Owns the layout of both. The router owns their meaning and the choice of the peer.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

use super::{Metadata, RequestId, TAG_CALLER, TAG_TRACE};
use crate::auth::Caller;
use crate::codec::{self, DecodeError, Decoder};
use crate::command::{
    ConfigRead, ConfigReply, Consistency, Item, KeyChange, KeyChanges, KeyContent, KeyScope, LeaseId,
    LeaseView, LockView, OperationReplies, Operations, Page, Read, ReadReply, ScanStep, ShardAnswer,
    ShardError, ShardRefusal, StoredValue, expiry, put_expiry,
};
use crate::limits;
use crate::slots::slot_revisions::SlotRevisions;
use crate::slots::slot_set::SlotSet;
use crate::spans::TraceContext;
use crate::types::{MigrationId, ShardId, Version};

/// One message of a [`KIND_READS`](super::KIND_READS) payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadMessage {
    /// Asks the receiver to read a shard of which it has a replica.
    Ask { question: Question, read: Read, consistency: Consistency },
    /// Says something about the next read of the same frame.
    Metadata(Metadata),
    /// The answer to a read of a shard.
    Answer { request: RequestId, shard: ShardId, answer: Result<ShardAnswer, ShardError> },
}

/// Identifies a read of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The asking node's number for the read.
    pub(crate) request: RequestId,
    /// A shard with a replica at the receiver.
    pub(crate) shard: ShardId,
    /// The move of slots that the replica must have applied, for a stale read.
    pub(crate) since: MigrationId,
}

const TAG_ASK: u8 = 1;
const TAG_ANSWER: u8 = 2;

/// Appends a read of a shard with a replica at the receiver.
pub(crate) fn put_read(out: &mut Vec<u8>, question: Question, (read, consistency): (&Read, Consistency)) {
    out.push(TAG_ASK);
    for number in [question.request.0, question.shard.0, question.since.0] {
        codec::put_varint(out, number);
    }
    out.push(u8::from(consistency == Consistency::Stale));
    match read {
        Read::Get { key } => {
            out.push(1);
            codec::put_bytes(out, key);
        }
        Read::List { prefix, after, limit, keys_only } => {
            out.push(2);
            put_selection(out, prefix, after.as_ref(), *limit);
            out.push(u8::from(*keys_only));
        }
        Read::Operations { operations, bytes_max: limits::REPLIES_BYTES_CLOSE } => {
            out.push(3);
            operations.encode(out);
        }
        Read::Operations { operations, bytes_max } => {
            out.push(8);
            operations.encode(out);
            codec::put_varint(out, *bytes_max as u64);
        }
        Read::Scan { shard, after, count, version } => {
            out.push(4);
            codec::put_varint(out, shard.0);
            codec::put_varint(out, *after);
            codec::put_varint(out, *count as u64);
            codec::put_varint(out, *version);
        }
        Read::Count => out.push(5),
        Read::Config(read) => {
            out.push(6);
            read.encode(out);
        }
        Read::ConfigNamespaces { prefix, after, limit } => {
            out.push(7);
            put_selection(out, prefix, after.as_ref(), *limit);
        }
        Read::Lease { lease } => {
            out.push(20);
            lease.encode(out);
        }
        Read::Leases { prefix, after, limit } => {
            out.push(21);
            put_selection(out, prefix, after.as_ref(), *limit);
        }
        Read::Lock { name } => {
            out.push(22);
            codec::put_bytes(out, name);
        }
        Read::Changes { scope, after, limit, keys_only } => {
            out.push(9);
            put_scope(out, scope);
            out.push(u8::from(after.is_some()));
            after.iter().for_each(|revisions| revisions.encode(out));
            codec::put_varint(out, *limit as u64);
            out.push(u8::from(*keys_only));
        }
    }
}

/// Tag of the slots that a shard owned. The reply follows.
const TAG_OWNED: u8 = 10;

/// Tag of changes of keys.
const TAG_CHANGES: u8 = 14;

/// Tag of a key that is bound to a lease.
const TAG_BOUND: u8 = 20;
const TAG_LEASE: u8 = 21;
const TAG_LOCK: u8 = 22;

/// Appends the answer to a read.
pub(crate) fn put_read_answer(
    out: &mut Vec<u8>,
    (request, shard): (RequestId, ShardId),
    answer: &Result<ShardAnswer, ShardError>,
) {
    out.push(TAG_ANSWER);
    codec::put_varint(out, request.0);
    codec::put_varint(out, shard.0);
    match answer {
        Ok(ShardAnswer { owned, reply }) => {
            if let Some(owned) = owned {
                out.push(TAG_OWNED);
                owned.encode(out);
            }
            put_read_reply(out, reply);
        }
        Err(ShardError::NotHere) => out.push(0),
        Err(ShardError::Refused(ShardRefusal::DiskUnavailable)) => out.push(4),
        Err(ShardError::Refused(ShardRefusal::Unauthenticated)) => out.push(11),
        Err(ShardError::Refused(ShardRefusal::PermissionsUnknown)) => out.push(12),
        Err(ShardError::Refused(ShardRefusal::Forbidden(demand))) => {
            out.push(13);
            codec::put_bytes(out, demand.as_bytes());
        }
        Err(ShardError::Refused(_)) => out.push(5),
    }
}

fn put_read_reply(out: &mut Vec<u8>, reply: &ReadReply) {
    match reply {
        ReadReply::Value(None) => out.push(1),
        ReadReply::Value(Some(StoredValue { version, value, expires, lease })) => {
            out.push(if lease.is_some() { TAG_BOUND } else { 2 });
            codec::put_varint(out, version.0);
            codec::put_bytes(out, value);
            put_expiry(out, *expires);
            lease.iter().for_each(|lease| lease.encode(out));
        }
        ReadReply::Lease(lease) => {
            out.push(TAG_LEASE);
            out.push(u8::from(lease.is_some()));
            lease.iter().for_each(|lease| lease.encode(out));
        }
        ReadReply::Lock(lock) => {
            out.push(TAG_LOCK);
            out.push(u8::from(lock.is_some()));
            lock.iter().for_each(|lock| lock.encode(out));
        }
        ReadReply::Page(page) => {
            out.push(3);
            put_page(out, page);
        }
        ReadReply::Operations(replies) => {
            out.push(6);
            replies.encode(out);
        }
        ReadReply::Scanned(ScanStep { keys, next }) => {
            out.push(7);
            codec::put_varint(out, keys.len() as u64);
            keys.iter().for_each(|key| codec::put_bytes(out, key));
            out.push(u8::from(next.is_some()));
            next.iter().for_each(|next| codec::put_varint(out, *next));
        }
        ReadReply::Count(count) => {
            out.push(8);
            codec::put_varint(out, *count);
        }
        ReadReply::Config(result) => {
            out.push(9);
            match result {
                Ok(reply) => reply.encode(out),
                Err(error) => error.encode(out),
            }
        }
        ReadReply::Changes(changes) => {
            out.push(TAG_CHANGES);
            put_changes(out, changes);
        }
    }
}

/// Reads the next message of a [`KIND_READS`](super::KIND_READS) payload.
pub(crate) fn read_message(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<ReadMessage, DecodeError> {
    let is_question = match decoder.u8()? {
        TAG_ASK => true,
        TAG_ANSWER => false,
        TAG_CALLER => return Ok(ReadMessage::Metadata(Metadata::Caller(Caller::decode(decoder)?))),
        TAG_TRACE => return Ok(ReadMessage::Metadata(Metadata::Trace(TraceContext::decode(decoder)?))),
        _ => return Err(DecodeError::UnknownTag("read message")),
    };
    let (request, shard) = (RequestId(decoder.varint()?), ShardId(decoder.varint()?));
    if !is_question {
        return Ok(ReadMessage::Answer { request, shard, answer: answer(decoder, owner)? });
    }
    let question = Question { request, shard, since: MigrationId(decoder.varint()?) };
    let consistency = if decoder.bool()? { Consistency::Stale } else { Consistency::Linearizable };
    Ok(ReadMessage::Ask { question, read: read(decoder, owner)?, consistency })
}

fn read(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Read, DecodeError> {
    Ok(match decoder.u8()? {
        1 => Read::Get { key: decoder.shared(owner)? },
        2 => {
            let (prefix, after, limit) = selection(decoder, owner)?;
            Read::List { prefix, after, limit, keys_only: decoder.bool()? }
        }
        3 => Read::Operations {
            operations: Operations::decode(decoder, owner)?,
            bytes_max: limits::REPLIES_BYTES_CLOSE,
        },
        4 => Read::Scan {
            shard: ShardId(decoder.varint()?),
            after: decoder.varint()?,
            count: decoder.bounded(limits::SCAN_KEYS_MAX as u64, "size of a step of a scan")? as usize,
            version: decoder.varint()?,
        },
        5 => Read::Count,
        6 => Read::Config(ConfigRead::decode(decoder)?),
        7 => {
            let (prefix, after, limit) = selection(decoder, owner)?;
            Read::ConfigNamespaces { prefix, after, limit }
        }
        8 => Read::Operations {
            operations: Operations::decode(decoder, owner)?,
            bytes_max: decoder.bounded(limits::REPLIES_BYTES_CLOSE as u64, "bytes of replies")? as usize,
        },
        20 => Read::Lease { lease: LeaseId::decode(decoder)? },
        21 => {
            let (prefix, after, limit) = selection(decoder, owner)?;
            Read::Leases { prefix, after, limit }
        }
        22 => Read::Lock { name: decoder.shared(owner)? },
        9 => Read::Changes {
            scope: scope(decoder, owner)?,
            after: if decoder.bool()? { Some(SlotRevisions::decode(decoder)?) } else { None },
            limit: decoder.bounded(limits::LIST_PAGE_ITEMS_MAX as u64, "limit of changes")? as usize,
            keys_only: decoder.bool()?,
        },
        _ => return Err(DecodeError::UnknownTag("read")),
    })
}

fn answer(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Result<ShardAnswer, ShardError>, DecodeError> {
    let (owned, tag) = match decoder.u8()? {
        0 => return Ok(Err(ShardError::NotHere)),
        4 => return Ok(Err(ShardRefusal::DiskUnavailable.into())),
        5 => return Ok(Err(ShardRefusal::invalid("refused by the node that carries the shard").into())),
        11 => return Ok(Err(ShardRefusal::Unauthenticated.into())),
        12 => return Ok(Err(ShardRefusal::PermissionsUnknown.into())),
        13 => return Ok(Err(ShardRefusal::Forbidden(decoder.text()?.into()).into())),
        TAG_OWNED => (Some(SlotSet::decode(decoder)?), decoder.u8()?),
        tag => (None, tag),
    };
    Ok(Ok(ShardAnswer { owned, reply: read_reply(tag, decoder, owner)? }))
}

fn read_reply(tag: u8, decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<ReadReply, DecodeError> {
    Ok(match tag {
        1 => ReadReply::Value(None),
        2 | TAG_BOUND => {
            let (version, value) = (Version(decoder.varint()?), decoder.shared(owner)?);
            let expires = expiry(decoder)?;
            let lease = if tag == TAG_BOUND { Some(Box::new(LeaseId::decode(decoder)?)) } else { None };
            ReadReply::Value(Some(StoredValue { version, value, expires, lease }))
        }
        TAG_LEASE => ReadReply::Lease(match decoder.bool()? {
            true => Some(Box::new(LeaseView::decode(decoder, owner)?)),
            false => None,
        }),
        TAG_LOCK => ReadReply::Lock(match decoder.bool()? {
            true => Some(Box::new(LockView::decode(decoder, owner)?)),
            false => None,
        }),
        3 => ReadReply::Page(page(decoder, owner)?),
        6 => ReadReply::Operations(OperationReplies::decode(decoder, owner)?),
        7 => {
            let keys = decoder.list(|decoder| decoder.shared(owner))?;
            let next = if decoder.bool()? { Some(decoder.varint()?) } else { None };
            ReadReply::Scanned(ScanStep { keys, next })
        }
        8 => ReadReply::Count(decoder.varint()?),
        9 => ReadReply::Config(ConfigReply::decode(decoder)?),
        TAG_CHANGES => ReadReply::Changes(changes(decoder, owner)?),
        _ => return Err(DecodeError::UnknownTag("answer to a read")),
    })
}

/// Appends the arguments of a list.
fn put_selection(out: &mut Vec<u8>, prefix: &Bytes, after: Option<&Bytes>, limit: usize) {
    codec::put_bytes(out, prefix);
    put_optional(out, after);
    codec::put_varint(out, limit as u64);
}

fn selection(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<(Bytes, Option<Bytes>, usize), DecodeError> {
    let (prefix, after) = (decoder.shared(owner)?, optional(decoder, owner)?);
    let limit = decoder.bounded(limits::LIST_PAGE_ITEMS_MAX as u64, "limit of a list")?;
    Ok((prefix, after, limit as usize))
}

fn put_scope(out: &mut Vec<u8>, scope: &KeyScope) {
    out.push(u8::from(matches!(scope, KeyScope::Prefix(_))));
    codec::put_bytes(out, scope.bytes());
}

fn scope(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<KeyScope, DecodeError> {
    let is_prefix = decoder.bool()?;
    let bytes = decoder.shared(owner)?;
    Ok(if is_prefix { KeyScope::Prefix(bytes) } else { KeyScope::Key(bytes) })
}

fn put_changes(out: &mut Vec<u8>, changes: &KeyChanges) {
    out.push(u8::from(changes.has_gap));
    out.push(u8::from(changes.has_more));
    codec::put_varint(out, changes.changes.len() as u64);
    for KeyChange { key, revision, content } in &changes.changes {
        codec::put_bytes(out, key);
        codec::put_varint(out, revision.0);
        out.push(u8::from(content.is_some()));
        if let Some(KeyContent { value, expires }) = content {
            put_optional(out, value.as_ref());
            put_expiry(out, *expires);
        }
    }
    changes.through.encode(out);
}

fn changes(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<KeyChanges, DecodeError> {
    let (has_gap, has_more) = (decoder.bool()?, decoder.bool()?);
    let mut changes = Vec::new();
    for _ in 0..decoder.bounded(limits::LIST_PAGE_ITEMS_MAX as u64, "number of changes")? {
        let (key, revision) = (decoder.shared(owner)?, Version(decoder.varint()?));
        let content = if decoder.bool()? {
            Some(KeyContent { value: optional(decoder, owner)?, expires: expiry(decoder)? })
        } else {
            None
        };
        changes.push(KeyChange { key, revision, content });
    }
    Ok(KeyChanges { has_gap, has_more, changes, through: SlotRevisions::decode(decoder)? })
}

fn put_page(out: &mut Vec<u8>, page: &Page) {
    codec::put_varint(out, page.items.len() as u64);
    for item in &page.items {
        codec::put_bytes(out, &item.key);
        codec::put_varint(out, item.version.0);
        put_optional(out, item.value.as_ref());
        put_expiry(out, item.expires);
    }
    put_optional(out, page.next.as_ref());
}

fn page(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Page, DecodeError> {
    let mut page = Page::default();
    for _ in 0..decoder.bounded(limits::LIST_PAGE_ITEMS_MAX as u64, "number of items")? {
        let (key, version) = (decoder.shared(owner)?, Version(decoder.varint()?));
        let value = optional(decoder, owner)?;
        page.items.push(Item { key, version, value, expires: expiry(decoder)? });
    }
    page.next = optional(decoder, owner)?;
    Ok(page)
}

fn put_optional(out: &mut Vec<u8>, bytes: Option<&Bytes>) {
    out.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        codec::put_bytes(out, bytes);
    }
}

fn optional(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Option<Bytes>, DecodeError> {
    if decoder.bool()? { decoder.shared(owner).map(Some) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::config::{
        ConfigError, ConfigOperation, Item as ConfigItem, Name, Preview, Query, Search, Selection,
        WatchPosition,
    };
    use crate::command::{LockClient, Operation, OperationRepliesBuilder, OperationReply};
    use crate::types::UnixMillis;
    use alloc::vec;

    fn some_changes() -> KeyChanges {
        let change = |content| KeyChange { key: Bytes::from_static(b"k"), revision: Version(7), content };
        let value = Some(Bytes::from_static(b"v"));
        KeyChanges {
            has_gap: false,
            has_more: true,
            changes: vec![
                change(None),
                change(Some(KeyContent { value, expires: Some(UnixMillis(5)) })),
                change(Some(KeyContent { value: None, expires: None })),
            ],
            through: SlotRevisions::at(&SlotSet::from(3..9), Version(7)),
        }
    }

    fn reads() -> Vec<Read> {
        let key = Bytes::from_static(b"k");
        let selection = || Selection { contains: "x".into(), offset: 3, limit: 9 };
        let search = Search { text: "x".into(), after: Some(ConfigItem::Container("c".into())), limit: 9 };
        let config = |query| Read::Config(ConfigRead { namespace: Name::new("ns").expect("a name"), query });
        let (pair, at) = (ConfigItem::Pair("p".into()), Some(7));
        let operations = |bytes_max| {
            let gets = [Operation::Get { key: b"a" }, Operation::Get { key: b"b" }];
            Read::Operations { operations: Operations::of(&gets), bytes_max }
        };
        vec![
            Read::Get { key: key.clone() },
            Read::List { prefix: key.clone(), after: Some(key.clone()), limit: 3, keys_only: true },
            operations(limits::REPLIES_BYTES_CLOSE),
            operations(0),
            operations(limits::REPLIES_BYTES_CLOSE - 1),
            Read::Changes {
                scope: KeyScope::Prefix(key.clone()),
                after: Some(some_changes().through),
                limit: 100,
                keys_only: true,
            },
            Read::Changes { scope: KeyScope::Key(key.clone()), after: None, limit: 1, keys_only: false },
            Read::Scan { shard: ShardId(3), after: u64::MAX, count: 10, version: 1 << 40 },
            Read::Count,
            Read::Lease { lease: LeaseId::parse(b"{t}:1f").expect("an id") },
            Read::Leases { prefix: key.clone(), after: Some(key.clone()), limit: 9 },
            Read::Lock { name: key.clone() },
            Read::ConfigNamespaces { prefix: Bytes::new(), after: None, limit: 1 },
            config(Query::Namespace),
            config(Query::Pairs(selection())),
            config(Query::Pair { key: "p".into(), at }),
            config(Query::Containers(selection())),
            config(Query::Container { key: "c".into(), at: None, known: at }),
            config(Query::History { item: Some(pair), before: None, limit: 5 }),
            config(Query::Export { at }),
            config(Query::Search(search)),
            config(Query::Users { key: "p".into() }),
            config(Query::Blame { key: "c".into() }),
            config(Query::Changes { key: "c".into(), after: 1 << 40 }),
            config(Query::NamespaceChanges { after: None }),
            config(Query::NamespaceChanges { after: Some(WatchPosition::through(1 << 40)) }),
            config(Query::NamespaceChanges {
                after: Some(WatchPosition { revision: 300, container: Some("c".into()), is_state: true }),
            }),
            config(Query::Preview(Box::new(Preview {
                expected: at,
                operation: ConfigOperation::Delete { force: true },
            }))),
        ]
    }

    fn answers() -> Vec<Result<ShardAnswer, ShardError>> {
        let key = Bytes::from_static(b"k");
        let item = |value, expires| Item { key: key.clone(), version: Version(8), value, expires };
        let items = vec![item(None, None), item(Some(key.clone()), Some(UnixMillis(9)))];
        let mut operations = OperationRepliesBuilder::default();
        operations.push(&OperationReply::Absent);
        let stored = StoredValue {
            version: Version(4),
            value: key.clone(),
            expires: Some(UnixMillis(5)),
            lease: None,
        };
        let lease = LeaseId::parse(b"{t}:1f").expect("an id");
        let bound = StoredValue { expires: None, lease: Some(Box::new(lease.clone())), ..stored.clone() };
        let names = vec![key.clone()];
        let view = LeaseView {
            lease: lease.clone(),
            ttl_ms: 10_000,
            ends: UnixMillis(300),
            keys: names.clone(),
            held: vec![],
            awaited: names,
        };
        let client = LockClient { lease, value: key.clone() };
        let lock = LockView {
            fence: Version(300),
            ends: UnixMillis(300),
            holder: client.clone(),
            queue: vec![client],
        };
        let replies = [
            ReadReply::Value(None),
            ReadReply::Value(Some(stored)),
            ReadReply::Value(Some(bound)),
            ReadReply::Lease(None),
            ReadReply::Lease(Some(Box::new(view))),
            ReadReply::Lock(None),
            ReadReply::Lock(Some(Box::new(lock))),
            ReadReply::Page(Page { items, next: Some(key.clone()) }),
            ReadReply::Operations(operations.finish()),
            ReadReply::Scanned(ScanStep { keys: vec![key.clone(), Bytes::new()], next: Some(6) }),
            ReadReply::Scanned(ScanStep { keys: vec![], next: None }),
            ReadReply::Count(1 << 50),
            ReadReply::Changes(some_changes()),
            ReadReply::Changes(KeyChanges { has_gap: true, ..KeyChanges::default() }),
            ReadReply::Config(Ok(ConfigReply::Unchanged { revision: 3 })),
            ReadReply::Config(Err(ConfigError::NoNamespace)),
        ];
        let owned = ShardAnswer { owned: Some(SlotSet::from(4..9)), reply: ReadReply::Count(3) };
        let refusals = [
            ShardRefusal::DiskUnavailable,
            ShardRefusal::Unauthenticated,
            ShardRefusal::Forbidden("read keys:a".into()),
            ShardRefusal::PermissionsUnknown,
        ];
        let refusals = refusals.map(|refusal| Err(ShardError::Refused(refusal)));
        let others = [Err(ShardError::NotHere), Ok(owned)].into_iter().chain(refusals);
        let replies = replies.into_iter().map(|reply| Ok(ShardAnswer { owned: None, reply }));
        replies.chain(others).collect()
    }

    #[test]
    fn questions_and_answers_round_trip() {
        let (request, shard, consistency) = (RequestId(7), ShardId(2), Consistency::Stale);
        let (reads, answers) = (reads(), answers());
        let mut out = vec![];
        let question = Question { request, shard, since: MigrationId(300) };
        reads.iter().for_each(|read| put_read(&mut out, question, (read, consistency)));
        answers.iter().for_each(|answer| put_read_answer(&mut out, (request, shard), answer));
        let bytes = Bytes::from(out);
        let mut decoder = Decoder::new(&bytes);
        for read in reads {
            let asked = ReadMessage::Ask { question, read, consistency };
            assert_eq!(read_message(&mut decoder, &bytes), Ok(asked));
        }
        for answer in answers {
            let answered = ReadMessage::Answer { request, shard, answer };
            assert_eq!(read_message(&mut decoder, &bytes), Ok(answered));
        }
        assert!(decoder.is_empty());
    }
}
