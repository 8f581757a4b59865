//! A shard's log in memory, as the engine reads it.
//!
//! Owns which entries are *visible*; what of them is durable is `ready`'s business. The engine demands that
//! entries are visible here before `advance_append_async` is called.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::storage::{GetEntriesContext, RaftState, Storage};
use raft::{Error, StorageError};

/// What an entry weighs besides its data, for the engine's message size limit.
const ENTRY_OVERHEAD_BYTES: u64 = 16;

pub(super) struct LogStore {
    /// Index of the first entry held, or of the next one to come.
    first: u64,
    entries: VecDeque<Entry>,
    hard_state: HardState,
    conf_state: ConfState,
}

impl LogStore {
    /// A log that starts with `entries`, which are consecutive from index 1.
    pub(super) fn new(hard_state: HardState, conf_state: ConfState, entries: VecDeque<Entry>) -> LogStore {
        if let Some(first) = entries.front() {
            assert_eq!(first.index, 1, "a log without a snapshot begins at index 1");
        }
        LogStore { first: 1, entries, hard_state, conf_state }
    }

    /// Makes `entries` visible, replacing whatever stood from the first one's index on.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(start) = entries.first().map(|entry| entry.index) else { return };
        assert!(
            start >= self.first && start <= self.first + self.entries.len() as u64,
            "invariant: an append leaves no gap in the log"
        );
        self.entries.truncate((start - self.first) as usize);
        self.entries.extend(entries.iter().cloned());
    }

    /// The entry at `index`, if it is held.
    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        self.entries.get(index.checked_sub(self.first)? as usize)
    }

    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

impl Storage for LogStore {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf_state.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.end(), "invariant: the engine asks only for entries it appended");
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let range = (low - self.first) as usize..(high - self.first) as usize;
        let mut bytes = 0u64;
        let mut taken = Vec::with_capacity(range.len().min(64));
        for entry in self.entries.range(range) {
            bytes += entry.data.len() as u64 + ENTRY_OVERHEAD_BYTES;
            if bytes > max_bytes && !taken.is_empty() {
                break;
            }
            taken.push(entry.clone());
        }
        Ok(taken)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index + 1 == self.first {
            return Ok(0);
        }
        if index < self.first {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.entry(index).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.end() - 1)
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // The log is whole, so no follower is ever behind its start; the engine asks again later if it must.
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
