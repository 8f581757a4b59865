//! Configuration as blocks: what snapshots and backups hold, and what shards give each other with their slots.
//!
//! Owns the layout of a block: a zero byte, which no block of keys begins with, then records back to back. A record of a
//! namespace's inside belongs to the namespace named last in its block, so a block can be taken by itself, behind those
//! before it. Every record says what is, not what to do: taking one twice changes nothing.
//!
//! `docs/storage-format.md` describes the same bytes for people.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use super::history::{Revision, Undo};
use super::namespace::Namespace;
use crate::codec::{self, DecodeError, Decoder};
use crate::command::config::{Action, Container, Content, Item, Name, Pair, Policy, Stamp, decode_text};
use crate::limits;

/// First byte of a block.
const BLOCK: u8 = 0;

const SHARD: u8 = 1;
const NAMESPACE: u8 = 2;
const CONTINUED: u8 = 3;
const PAIR: u8 = 4;
const CONTAINER: u8 = 5;
const REVISION: u8 = 6;
const UNDO: u8 = 7;

/// Whether a block of a snapshot holds configuration.
pub fn is_block(block: &[u8]) -> bool {
    block.first() == Some(&BLOCK)
}

/// One thing that a block says.
pub(super) enum Record {
    /// Of the whole shard.
    Shard { floor: u64, touched: bool },
    /// There is a namespace.
    Namespace { revision: u64, numbered: u64, began: u64, policy: Policy },
    /// It holds a pair.
    Pair { key: Arc<str>, pair: Arc<Pair> },
    /// It holds a container.
    Container { key: Arc<str>, container: Arc<Container> },
    /// There was a revision.
    Revision(Revision),
    /// What stood under a key before that revision changed it, as which of its changes.
    Undo { revision: u64, position: u64, undo: Undo },
}

impl Namespace {
    /// Takes what a record says.
    pub(super) fn take(&mut self, record: Record) -> Result<(), DecodeError> {
        match record {
            Record::Shard { .. } => {}
            Record::Namespace { revision, numbered, began, policy } => {
                (self.revision, self.began, self.policy) = (revision, began, policy);
                self.numbered = self.numbered.max(numbered);
            }
            Record::Pair { key, pair } => self.set_pair(&key, Some(pair)),
            Record::Container { key, container } => self.set_container(&key, Some(container)),
            Record::Revision(revision) => {
                if self.history.back().is_none_or(|newest| newest.number < revision.number) {
                    self.history_bytes += revision.bytes();
                    self.history.push_back(Arc::new(revision));
                }
            }
            Record::Undo { revision, position, undo } => {
                let found = self.history.iter_mut().rev().find(|known| known.number == revision);
                let found = found.ok_or(DecodeError::Invalid("order of revisions"))?;
                let known = found.undo.len() as u64;
                if position > known {
                    return Err(DecodeError::Invalid("order of changes"));
                }
                if position == known {
                    self.history_bytes += undo.bytes();
                    Arc::make_mut(found).undo.push(undo);
                }
            }
        }
        Ok(())
    }
}

/// Reads a block, record by record, each with the name of its namespace.
pub(super) fn of_block(
    block: &[u8],
    mut take: impl FnMut(Option<&Name>, Record) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    scan(block, |name, record, _| take(name, record))
}

/// The same, with what follows each record.
fn scan(
    block: &[u8],
    mut take: impl FnMut(Option<&Name>, Record, &[u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut decoder = Decoder::new(block);
    if decoder.u8()? != BLOCK {
        return Err(DecodeError::UnknownTag("block of configuration"));
    }
    let mut name = None;
    while !decoder.is_empty() {
        let record = match decoder.u8()? {
            SHARD => Record::Shard { floor: decoder.varint()?, touched: decoder.bool()? },
            NAMESPACE => {
                name = Some(Name::decode(&mut decoder)?);
                let (revision, numbered) = (decoder.varint()?, decoder.varint()?);
                let began = decoder.varint()?;
                Record::Namespace { revision, numbered, began, policy: Policy::decode(&mut decoder)? }
            }
            CONTINUED => {
                name = Some(Name::decode(&mut decoder)?);
                continue;
            }
            PAIR => {
                let key = decode_text(&mut decoder)?;
                Record::Pair { key, pair: Arc::new(Pair::decode(&mut decoder)?) }
            }
            CONTAINER => {
                let key = decode_text(&mut decoder)?;
                Record::Container { key, container: Arc::new(Container::decode(&mut decoder)?) }
            }
            REVISION => {
                let number = decoder.varint()?;
                let stamp = Stamp::decode(&mut decoder)?;
                let action = Action::decode(&mut decoder)?;
                Record::Revision(Revision { number, stamp, action, undo: Vec::new() })
            }
            UNDO => {
                let (revision, position) = (decoder.varint()?, decoder.varint()?);
                Record::Undo { revision, position, undo: decode_undo(&mut decoder)? }
            }
            _ => return Err(DecodeError::UnknownTag("record of configuration")),
        };
        if name.is_none() && !matches!(record, Record::Shard { .. }) {
            return Err(DecodeError::Invalid("record of no namespace"));
        }
        take(name.as_ref(), record, decoder.rest())?;
    }
    Ok(())
}

/// Rows of one namespace as a block of their own; no name for those of the whole shard.
pub type NamespacePart = (Option<Name>, Vec<u8>);

/// A block taken apart: what it says of each namespace, and of the shard (under no name), each as a block of its own, so that
/// namespaces can go different ways.
///
/// # Errors
/// When it is no block of configuration.
pub fn split_block(block: &[u8]) -> Result<Vec<NamespacePart>, DecodeError> {
    let mut parts: Vec<(Option<Name>, Vec<u8>)> = Vec::new();
    let mut rest = block.get(1..).unwrap_or_default();
    scan(block, |name, record, behind| {
        let (bytes, left) = rest.split_at(rest.len() - behind.len());
        rest = left;
        let name = if matches!(record, Record::Shard { .. }) { None } else { name.cloned() };
        if parts.last().is_none_or(|(last, _)| *last != name) {
            let mut part = alloc::vec![BLOCK];
            if let Some(name) = &name
                && !bytes.starts_with(&[NAMESPACE])
                && !bytes.starts_with(&[CONTINUED])
            {
                part.push(CONTINUED);
                codec::put_bytes(&mut part, name.routing_key());
            }
            parts.push((name, part));
        }
        if let Some((_, part)) = parts.last_mut() {
            part.extend_from_slice(bytes);
        }
        Ok(())
    })?;
    Ok(parts)
}

/// Makes sure that a block decodes.
pub(crate) fn check_block(block: &[u8]) -> Result<(), DecodeError> {
    of_block(block, |_, _| Ok(()))
}

/// The namespaces that a block speaks of.
pub(crate) fn namespaces_of(block: &[u8]) -> Result<BTreeSet<Name>, DecodeError> {
    let mut names = BTreeSet::new();
    of_block(block, |name, _| {
        if let Some(name) = name
            && !names.contains(name)
        {
            names.insert(name.clone());
        }
        Ok(())
    })?;
    Ok(names)
}

/// Namespaces on their way into blocks, as they were when that began.
#[derive(Debug)]
pub(super) struct Blocks {
    shard: Option<(u64, bool)>,
    held: VecDeque<(Name, Arc<Namespace>)>,
    cursor: Cursor,
}

/// What of the first namespace comes next.
#[derive(Clone, Debug, Default)]
enum Cursor {
    #[default]
    Namespace,
    PairsBehind(Option<Arc<str>>),
    ContainersBehind(Option<Arc<str>>),
    /// The revision at this position of history; its header is written, and so many changes of it.
    History {
        position: usize,
        header: bool,
        undone: usize,
    },
}

impl Blocks {
    pub fn new(shard: Option<(u64, bool)>, held: VecDeque<(Name, Arc<Namespace>)>) -> Blocks {
        Blocks { shard, held, cursor: Cursor::Namespace }
    }

    /// The next block; `None` when all is said.
    pub fn next_block(&mut self) -> Option<Vec<u8>> {
        let mut out = alloc::vec![BLOCK];
        if let Some((floor, touched)) = self.shard.take() {
            out.push(SHARD);
            codec::put_varint(&mut out, floor);
            out.push(u8::from(touched));
        }
        if let Some((name, _)) = self.held.front()
            && !matches!(self.cursor, Cursor::Namespace)
        {
            out.push(CONTINUED);
            codec::put_bytes(&mut out, name.routing_key());
        }
        let begin = out.len();
        while out.len() < limits::SNAPSHOT_BLOCK_BYTES_CLOSE {
            let Some((name, namespace)) = self.held.front() else { break };
            match self.cursor.step(name, namespace, &mut out) {
                Some(next) => self.cursor = next,
                None => {
                    self.held.pop_front();
                    self.cursor = Cursor::Namespace;
                }
            }
        }
        // Nothing but the opening: unless that told of the shard, there is nothing left.
        (out.len() > begin || out.get(1) == Some(&SHARD)).then_some(out)
    }
}

impl Cursor {
    /// Writes one record and says what follows it; `None` at the namespace's end.
    fn step(&self, name: &Name, namespace: &Namespace, out: &mut Vec<u8>) -> Option<Cursor> {
        let behind = |key: &Option<Arc<str>>| key.clone().map_or(Bound::Unbounded, Bound::Excluded);
        match self {
            Cursor::Namespace => {
                out.push(NAMESPACE);
                codec::put_bytes(out, name.routing_key());
                codec::put_varint(out, namespace.revision);
                codec::put_varint(out, namespace.numbered);
                codec::put_varint(out, namespace.began);
                namespace.policy.encode(out);
                Some(Cursor::PairsBehind(None))
            }
            Cursor::PairsBehind(last) => {
                let mut rest = namespace.contents.pairs.range((behind(last), Bound::Unbounded));
                let Some((key, pair)) = rest.next() else { return Some(Cursor::ContainersBehind(None)) };
                out.push(PAIR);
                codec::put_bytes(out, key.as_bytes());
                pair.encode(out);
                Some(Cursor::PairsBehind(Some(key.clone())))
            }
            Cursor::ContainersBehind(last) => {
                let mut rest = namespace.contents.containers.range((behind(last), Bound::Unbounded));
                let Some((key, container)) = rest.next() else {
                    return Some(Cursor::History { position: 0, header: false, undone: 0 });
                };
                out.push(CONTAINER);
                codec::put_bytes(out, key.as_bytes());
                container.encode(out);
                Some(Cursor::ContainersBehind(Some(key.clone())))
            }
            Cursor::History { position, header, undone } => {
                let revision = namespace.history.get(*position)?;
                if !header {
                    out.push(REVISION);
                    codec::put_varint(out, revision.number);
                    revision.stamp.encode(out);
                    revision.action.encode(out);
                } else if let Some(undo) = revision.undo.get(*undone) {
                    out.push(UNDO);
                    codec::put_varint(out, revision.number);
                    codec::put_varint(out, *undone as u64);
                    encode_undo(undo, out);
                }
                let written = if *header { undone + 1 } else { 0 };
                Some(if written < revision.undo.len() {
                    Cursor::History { position: *position, header: true, undone: written }
                } else {
                    Cursor::History { position: position + 1, header: false, undone: 0 }
                })
            }
        }
    }
}

fn encode_undo(undo: &Undo, out: &mut Vec<u8>) {
    undo.item.encode(out);
    Content::encode(undo.before.as_ref(), out);
}

fn decode_undo(decoder: &mut Decoder<'_>) -> Result<Undo, DecodeError> {
    let item = Item::decode(decoder)?;
    let before = Content::decode(&item, decoder)?;
    Ok(Undo { item, before })
}
