//! The machine of a data shard: what its keys hold, and what stands beside them.
//!
//! Owns which part a write or a read is for, and the order in which parts go into a snapshot. The parts know nothing of
//! each other.

use alloc::vec::Vec;

use super::kv::KeyValue;
use crate::command::{Read, Refusal, Reply, Write};

/// State of one data shard.
#[derive(Debug, Default)]
pub struct Data {
    /// Keys and values.
    pub(super) kv: KeyValue,
}

impl Data {
    /// Whether writes of this sort belong to a data shard.
    pub(super) fn accepts(write: &Write) -> bool {
        matches!(write, Write::Put { .. } | Write::Delete { .. } | Write::Restore(_))
    }

    /// Applies one write.
    pub(super) fn apply(&mut self, write: Write) -> Reply {
        match write {
            Write::Put { key, value, condition } => self.kv.put(&key, &value, condition),
            Write::Delete { key, condition } => self.kv.delete(&key, condition),
            Write::Restore(restoration) => self.kv.restore(&restoration),
            _ => Reply::Refused(Refusal::Invalid("write for another kind of shard")),
        }
    }

    /// Answers a read from the state as it is.
    pub(super) fn read(&self, read: &Read) -> Reply {
        self.kv.read(read)
    }

    /// Keys held.
    pub(super) fn record_count(&self) -> u64 {
        self.kv.record_count()
    }

    /// A checksum over the whole state in canonical order.
    pub(super) fn digest(&self) -> u64 {
        self.kv.digest()
    }

    /// Begins a snapshot of the state as it is now; its first block begins with `header`.
    pub(super) fn begin_snapshot(&mut self, header: Vec<u8>) {
        self.kv.begin_snapshot(header);
    }

    /// The next block of the snapshot in the making; `None` when it is complete.
    pub(super) fn next_block(&mut self) -> Option<Vec<u8>> {
        self.kv.next_block()
    }

    /// Drops the snapshot in the making.
    pub(super) fn abandon_snapshot(&mut self) {
        self.kv.capture = None;
    }
}
