//! Snapshots of a data shard that do not stop writes: copy on first write.
//!
//! A capture walks the keys in order, a block at a time, while writes go on. Of a key that it has not reached yet, the
//! first write moves the old value here; nothing is copied. So the blocks show the state at the beginning, whatever
//! happens meanwhile, and cost is what changes during the walk, not the size of the state.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use super::kv::{KeyValue, Record};
use crate::codec;
use crate::command::put_expiry;
use crate::limits;
use crate::types::UnixMillis;

/// A snapshot in the making.
#[derive(Debug)]
pub(super) struct Capture {
    /// The first block, until it is taken.
    header: Option<Vec<u8>>,
    /// The last key that a block took note of.
    reached: Option<Box<[u8]>>,
    /// What keys behind `reached` held at the beginning, if they changed since; `None`: there was no such key.
    before: BTreeMap<Box<[u8]>, Option<Kept>>,
}

/// What a key held.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) record: Record,
    pub(super) expires: Option<UnixMillis>,
}

impl Capture {
    /// Keeps what `key` held, unless its block is made or an earlier write did.
    pub(super) fn keep(&mut self, key: &[u8], old: Option<Kept>) {
        let is_made = self.reached.as_deref().is_some_and(|reached| key <= reached);
        if !is_made && !self.before.contains_key(key) {
            self.before.insert(key.into(), old);
        }
    }
}

impl KeyValue {
    pub(super) fn begin_snapshot(&mut self, mut header: Vec<u8>) {
        codec::put_varint(&mut header, self.revision.0);
        header.extend(self.restoring.iter().flat_map(|backup| backup.as_bytes()));
        self.capture = Some(Capture { header: Some(header), reached: None, before: BTreeMap::new() });
    }

    pub(super) fn next_block(&mut self) -> Option<Vec<u8>> {
        let capture = self.capture.as_mut()?;
        if let Some(header) = capture.header.take() {
            return Some(header);
        }
        let mut block = Vec::new();
        let reached = self.walk(&mut block);
        let capture = self.capture.as_mut()?;
        if let Some(reached) = reached {
            capture.before = capture.before.split_off(&*reached);
            capture.before.remove(&*reached);
            capture.reached = Some(reached);
        }
        if block.is_empty() {
            self.capture = None;
            return None;
        }
        Some(block)
    }

    /// Puts records of the state at the beginning into `block` until it is full. Returns the last key looked at.
    fn walk(&self, block: &mut Vec<u8>) -> Option<Box<[u8]>> {
        let capture = self.capture.as_ref()?;
        let start = capture.reached.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut now = self.records.range::<[u8], _>((start, Bound::Unbounded)).peekable();
        let mut before = capture.before.iter().peekable();
        let mut last = None;
        while block.len() < limits::SNAPSHOT_BLOCK_BYTES_CLOSE {
            let changed = match (now.peek(), before.peek()) {
                (None, None) => break,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some((key, _)), Some((changed_key, _))) => changed_key <= key,
            };
            let (key, held) = if changed {
                let (key, old) = before.next()?;
                if now.peek().is_some_and(|(now_key, _)| *now_key == key) {
                    now.next();
                }
                (key, old.as_ref().map(|kept| (&kept.record, kept.expires)))
            } else {
                let (key, record) = now.next()?;
                (key, Some((record, self.expires(key))))
            };
            if let Some((record, expires)) = held {
                codec::put_bytes(block, key);
                codec::put_varint(block, record.version.0);
                codec::put_bytes(block, &record.value);
                put_expiry(block, expires);
            }
            last = Some(key);
        }
        last.cloned()
    }
}
