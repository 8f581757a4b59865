//! A shard's log in memory, as the engine reads it.
//!
//! Owns which entries are *visible*; `ready` tracks which of them are durable. The engine requires
//! entries to be visible here before `advance_append_async` is called.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cell::Cell;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::storage::{GetEntriesContext, RaftState, Storage};
use raft::{Error, StorageError};

use crate::storage::snapshot::SnapshotId;

/// Size of an entry besides its data, for the engine's message size limit.
const ENTRY_OVERHEAD_BYTES: u64 = 16;

pub(super) struct LogStore {
    /// Index before the first entry in memory: the last entry of a snapshot, or 0.
    begin: u64,
    begin_term: u64,
    /// Bytes of data of the entries held.
    data_bytes: u64,
    /// The newest durable snapshot with its membership, for followers behind `begin`.
    snapshot: Option<(SnapshotId, ConfState)>,
    /// Whether a follower needs a newer snapshot. The engine does not send a snapshot to a follower
    /// that is not in its membership.
    is_newer_wanted: Cell<bool>,
    entries: VecDeque<Entry>,
    hard_state: HardState,
    /// The membership of the snapshot or the founding, from which the engine starts.
    conf_state: ConfState,
}

impl LogStore {
    /// Creates a log of `entries`, which follow `snapshot` or, without one, begin at index 1.
    /// `conf_state` is the membership at that point.
    pub(super) fn new(
        hard_state: HardState,
        conf_state: ConfState,
        snapshot: Option<SnapshotId>,
        entries: VecDeque<Entry>,
    ) -> LogStore {
        let (begin, begin_term) = snapshot.map_or((0, 0), |id| (id.index.0, id.term.0));
        if let Some(first) = entries.front() {
            assert_eq!(first.index, begin + 1, "invariant: a recovered log follows its snapshot");
        }
        let data_bytes = data_bytes(entries.iter());
        let snapshot = snapshot.map(|id| (id, conf_state.clone()));
        let is_newer_wanted = Cell::new(false);
        LogStore { begin, begin_term, data_bytes, snapshot, is_newer_wanted, entries, hard_state, conf_state }
    }

    /// Index before the first entry in memory.
    pub(super) fn begin(&self) -> u64 {
        self.begin
    }

    /// Bytes of data of the entries held.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Sets the snapshot for followers behind the beginning of the log.
    pub(super) fn offer_snapshot(&mut self, id: SnapshotId, conf_state: ConfState) {
        self.snapshot = Some((id, conf_state));
    }

    /// Whether a follower needed a newer snapshot since the last call.
    pub(super) fn take_newer_wanted(&self) -> bool {
        self.is_newer_wanted.take()
    }

    /// Drops the entries up to and including `index`, which must be in memory.
    pub(super) fn cut(&mut self, index: u64) {
        let term = self.entry(index).map(|entry| entry.term);
        self.begin_term = term.expect("invariant: the log is cut at an entry that it holds");
        self.data_bytes -= data_bytes(self.entries.drain(..(index - self.begin) as usize));
        self.begin = index;
    }

    /// Drops all entries: the log restarts after a snapshot.
    pub(super) fn restart(&mut self, id: SnapshotId) {
        self.entries.clear();
        self.data_bytes = 0;
        (self.begin, self.begin_term) = (id.index.0, id.term.0);
    }

    /// Makes `entries` visible. They replace all entries from their first index on.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(start) = entries.first().map(|entry| entry.index) else { return };
        assert!(start > self.begin && start <= self.end(), "invariant: an append leaves no gap in the log");
        let kept = (start - self.begin - 1) as usize;
        self.data_bytes -= data_bytes(self.entries.drain(kept..));
        self.data_bytes += data_bytes(entries.iter());
        self.entries.extend(entries.iter().cloned());
    }

    /// The entry at `index`, if it is in memory.
    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        self.entries.get(index.checked_sub(self.begin + 1)? as usize)
    }

    /// The index after the last entry.
    fn end(&self) -> u64 {
        self.begin + 1 + self.entries.len() as u64
    }
}

fn data_bytes<E: Borrow<Entry>>(entries: impl Iterator<Item = E>) -> u64 {
    entries.map(|entry| entry.borrow().data.len() as u64).sum()
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
        if low <= self.begin {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.end(), "invariant: the engine asks only for entries it appended");
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let range = (low - self.begin - 1) as usize..(high - self.begin - 1) as usize;
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
        if index == self.begin {
            return Ok(self.begin_term);
        }
        if index < self.begin {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.entry(index).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.begin + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.end() - 1)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        // The content of the snapshot is sent separately; the engine only needs its identity.
        let newest = self.snapshot.as_ref();
        let Some((id, conf_state)) = newest.filter(|(id, _)| id.index.0 >= request_index.max(self.begin))
        else {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        };
        let lists = [&conf_state.voters, &conf_state.learners, &conf_state.voters_outgoing];
        if !lists.into_iter().any(|list| list.contains(&to)) {
            self.is_newer_wanted.set(true);
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = id.index.0;
        metadata.term = id.term.0;
        metadata.set_conf_state(conf_state.clone());
        Ok(snapshot)
    }
}
