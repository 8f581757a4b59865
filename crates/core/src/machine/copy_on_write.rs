//! Snapshots of a data shard that do not stop writes: copy on first write.
//!
//! A snapshot walks the keys in order, a block at a time, while writes continue. The first write to
//! a key that the walk has not reached moves the old record here, without copying it. So the blocks
//! show the state at the beginning. The cost depends on the changes during the walk, not on the
//! size of the state.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use super::kv::{Ending, FlushedKeys, KeyValue, Record};
use crate::codec;
use crate::command::put_end;
use crate::limits;

/// A snapshot in the making.
#[derive(Debug)]
pub(super) struct CopyOnWrite {
    /// The first block, until it is taken.
    header: Option<Vec<u8>>,
    /// The last key that is contained in a block.
    reached: Option<Box<[u8]>>,
    /// Previous content of keys after `reached` that changed since the beginning; `None`: the key
    /// did not exist.
    before: BTreeMap<Box<[u8]>, Option<PreImage>>,
    /// The keys at the first flush since the beginning. They take the place of the present ones.
    flushed: Option<Arc<FlushedKeys>>,
}

/// The content of a key before it changed.
#[derive(Debug)]
pub(super) struct PreImage {
    pub(super) record: Record,
    pub(super) ending: Ending,
}

impl CopyOnWrite {
    /// Keeps the previous content of `key`, unless its block is done or an earlier write has kept
    /// it.
    pub(super) fn keep(&mut self, key: &[u8], old: Option<PreImage>) {
        if self.flushed.is_some() {
            return;
        }
        let is_made = self.reached.as_deref().is_some_and(|reached| key <= reached);
        if !is_made && !self.before.contains_key(key) {
            self.before.insert(key.into(), old);
        }
    }

    /// All keys were removed; these were there before.
    pub(super) fn flushed(&mut self, keys: &Arc<FlushedKeys>) {
        self.flushed.get_or_insert_with(|| keys.clone());
    }
}

impl KeyValue {
    pub(super) fn begin_snapshot(&mut self, mut header: Vec<u8>) {
        codec::put_varint(&mut header, self.revision.0);
        header.extend(self.restoring.iter().flat_map(|backup| backup.as_bytes()));
        let header = Some(header);
        self.copy_on_write =
            Some(CopyOnWrite { header, reached: None, before: BTreeMap::new(), flushed: None });
    }

    pub(super) fn next_block(&mut self) -> Option<Vec<u8>> {
        let copy_on_write = self.copy_on_write.as_mut()?;
        if let Some(header) = copy_on_write.header.take() {
            return Some(header);
        }
        let mut block = Vec::new();
        let reached = self.walk(&mut block);
        let copy_on_write = self.copy_on_write.as_mut()?;
        if let Some(reached) = reached {
            copy_on_write.before = copy_on_write.before.split_off(&*reached);
            copy_on_write.before.remove(&*reached);
            copy_on_write.reached = Some(reached);
        }
        if block.is_empty() {
            self.copy_on_write = None;
            return None;
        }
        Some(block)
    }

    /// Appends records of the state at the beginning to `block` until it is full. Returns the last
    /// key inspected.
    fn walk(&self, block: &mut Vec<u8>) -> Option<Box<[u8]>> {
        let copy_on_write = self.copy_on_write.as_ref()?;
        let start = copy_on_write.reached.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let flushed = copy_on_write.flushed.as_deref();
        let records = flushed.map_or(&self.records, |flushed| &flushed.records);
        let ending = |key: &[u8]| flushed.map_or_else(|| self.ending(key), |flushed| flushed.ending(key));
        let mut now = records.from(start).peekable();
        let mut before = copy_on_write.before.iter().peekable();
        let mut last = None;
        while block.len() < limits::SNAPSHOT_BLOCK_BYTES_CLOSE {
            let changed = match (now.peek(), before.peek()) {
                (None, None) => break,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(record), Some((changed_key, _))) => ***changed_key <= *record.key(),
            };
            let (key, held) = if changed {
                let (key, old) = before.next()?;
                if now.peek().is_some_and(|now| now.key() == &**key) {
                    now.next();
                }
                (&**key, old.as_ref().map(|kept| (&kept.record, kept.ending)))
            } else {
                let record = now.next()?;
                (record.key(), Some((record, ending(record.key()))))
            };
            if let Some((record, Ending { expires, lease })) = held {
                let (version, value) = record.version_and_value();
                codec::put_bytes(block, key);
                codec::put_varint(block, version.0);
                codec::put_bytes(block, value);
                put_end(block, expires, lease);
            }
            last = Some(key);
        }
        last.map(Box::from)
    }
}
