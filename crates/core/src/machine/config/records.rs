//! Conversion of configuration namespaces to and from blocks.
//!
//! [`crate::command::config::block`] owns the layout of a block.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use super::namespace::Namespace;
use crate::codec::{self, DecodeError};
use crate::command::config::Name;
use crate::command::config::block::{
    BLOCK, CANARY, CONTAINER, CONTINUED, ConfigRecord, DRAFT, NAMESPACE, PAIR, REVISION, SETTINGS, SHARD,
    UNDO, encode_undo,
};
use crate::limits;

impl Namespace {
    /// Applies a record.
    pub(super) fn take(&mut self, record: ConfigRecord) -> Result<(), DecodeError> {
        match record {
            ConfigRecord::Shard { .. } => {}
            ConfigRecord::Namespace { revision, numbered, began, policy } => {
                (self.revision, self.began, self.policy) = (revision, began, policy);
                self.numbered = self.numbered.max(numbered);
            }
            ConfigRecord::Settings { parents, is_protected } => {
                self.parents = parents.into_iter().map(Arc::new).collect();
                self.is_protected = is_protected;
            }
            ConfigRecord::Draft { name, draft } => {
                self.drafts.insert(name, draft);
            }
            ConfigRecord::Canary(record) => {
                if self.canary.is_none() {
                    self.take_canary(record);
                }
            }
            ConfigRecord::Pair { key, pair } => self.set_pair(&key, Some(pair)),
            ConfigRecord::Container { key, container } => self.set_container(&key, Some(container)),
            ConfigRecord::Revision(revision) => {
                if self.history.back().is_none_or(|newest| newest.number < revision.number) {
                    self.history_bytes += revision.bytes();
                    self.history.push_back(Arc::new(revision));
                }
            }
            ConfigRecord::Undo { revision, position, undo } => {
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

/// Namespaces to encode as blocks, in their state when the encoding began.
#[derive(Debug)]
pub(super) struct Blocks {
    shard: Option<(u64, bool)>,
    held: VecDeque<(Name, Arc<Namespace>)>,
    cursor: Cursor,
}

/// The next record of the first namespace.
#[derive(Clone, Debug, Default)]
enum Cursor {
    #[default]
    Namespace,
    PairsBehind(Option<Arc<str>>),
    ContainersBehind(Option<Arc<str>>),
    /// The revision at this position of the history. Its header and this many changes are written.
    History {
        position: usize,
        header: bool,
        undone: usize,
    },
    DraftsBehind(Option<Arc<str>>),
    Canary,
    End,
}

impl Blocks {
    pub fn new(shard: Option<(u64, bool)>, held: VecDeque<(Name, Arc<Namespace>)>) -> Blocks {
        Blocks { shard, held, cursor: Cursor::Namespace }
    }

    /// The next block; `None` at the end.
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
        // A block without records ends the sequence, unless it states properties of the shard.
        (out.len() > begin || out.get(1) == Some(&SHARD)).then_some(out)
    }
}

impl Cursor {
    /// Writes one record and returns the position after it; `None` at the end of the namespace.
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
                if !namespace.parents.is_empty() || namespace.is_protected {
                    out.push(SETTINGS);
                    out.push(u8::from(namespace.is_protected));
                    codec::put_varint(out, namespace.parents.len() as u64);
                    for parent in &namespace.parents {
                        codec::put_bytes(out, parent.routing_key());
                    }
                }
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
                let Some(revision) = namespace.history.get(*position) else {
                    return Some(Cursor::DraftsBehind(None));
                };
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
            Cursor::DraftsBehind(last) => {
                let mut rest = namespace.drafts.range::<Arc<str>, _>((
                    last.as_ref().map_or(Bound::Unbounded, Bound::Excluded),
                    Bound::Unbounded,
                ));
                let Some((name, draft)) = rest.next() else { return Some(Cursor::Canary) };
                out.push(DRAFT);
                codec::put_bytes(out, name.as_bytes());
                draft.encode(out);
                Some(Cursor::DraftsBehind(Some(name.clone())))
            }
            Cursor::Canary => {
                let canary = namespace.canary.as_ref()?;
                out.push(CANARY);
                canary.record.encode(out);
                Some(Cursor::End)
            }
            Cursor::End => None,
        }
    }
}
