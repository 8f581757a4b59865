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

use super::membership;
use crate::storage::snapshot::SnapshotId;
use crate::storage::{self, LogEntry, RecoveredLog};
use crate::types::LogIndex;

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

/// The hard state of a recovered log after its snapshot.
fn recovered_state(log: &RecoveredLog, snapshot: Option<SnapshotId>) -> storage::HardState {
    let (begin, snapshot_term) = snapshot.map_or_else(Default::default, |id| (id.index, id.term));
    let state = log.hard_state;
    storage::HardState {
        term: state.term.max(snapshot_term),
        // A snapshot may be received before its term is persisted. No vote was given in that term.
        vote: state.vote.filter(|_| state.term >= snapshot_term),
        commit: state.commit.max(begin),
    }
}

impl LogStore {
    /// The log of a replica after a restart, and its hard state. `conf_state` is the membership of
    /// `snapshot` or the founding one.
    pub(super) fn recovered(
        log: RecoveredLog,
        snapshot: Option<SnapshotId>,
        conf_state: ConfState,
    ) -> (LogStore, storage::HardState) {
        let state = recovered_state(&log, snapshot);
        let begin = snapshot.map_or(LogIndex(0), |id| id.index);
        let last = log.entries.last().map_or(begin, |entry| entry.index);
        // The commit index is written after the entries that it covers, so recovery cannot accept a
        // log that breaks this.
        assert!(state.commit <= last, "invariant: a recovered log holds what it says is committed");
        let hard_state = HardState {
            term: state.term.0,
            vote: state.vote.map_or(0, |replica| replica.0),
            commit: state.commit.0,
            ..HardState::default()
        };
        let entry = |LogEntry { index, term, data }| membership::entry(index, term, data);
        let entries = log.entries.into_iter().map(entry).collect();
        (LogStore::new(hard_state, conf_state, snapshot, entries), state)
    }

    /// Creates a log of `entries`, which follow `snapshot` or, without one, begin at index 1.
    /// `conf_state` is the membership at that point.
    pub(super) fn new(
        hard_state: HardState,
        conf_state: ConfState,
        snapshot: Option<SnapshotId>,
        entries: VecDeque<Entry>,
    ) -> LogStore {
        let (begin, begin_term) = snapshot.map_or((0, 0), |id| (id.index.0, id.term.0));
        if let (Some(first), Some(last)) = (entries.front(), entries.back()) {
            assert_eq!(first.index, begin + 1, "invariant: a recovered log follows its snapshot");
            assert_eq!(last.index, begin + entries.len() as u64, "invariant: indexes rise by one");
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
        let before = self.snapshot_index();
        assert!(id.index.0 > before, "invariant: a newer snapshot replaces an older one");
        self.snapshot = Some((id, conf_state));
    }

    /// Whether a follower needed a newer snapshot since the last call.
    pub(super) fn take_newer_wanted(&self) -> bool {
        self.is_newer_wanted.take()
    }

    /// Drops the entries up to and including `index`, which must be in memory and in a durable
    /// snapshot.
    pub(super) fn cut(&mut self, index: u64) {
        assert!(index <= self.snapshot_index(), "invariant: the log is cut only up to a durable snapshot");
        let term = self.entry(index).map(|entry| entry.term);
        self.begin_term = term.expect("invariant: the log is cut at an entry that it holds");
        self.data_bytes -= data_bytes(self.entries.drain(..(index - self.begin) as usize));
        self.begin = index;
    }

    /// Drops all entries: the log restarts after a snapshot.
    pub(super) fn restart(&mut self, id: SnapshotId) {
        assert!(id.index.0 > self.begin, "invariant: a log restarts after its beginning");
        self.entries.clear();
        self.data_bytes = 0;
        (self.begin, self.begin_term) = (id.index.0, id.term.0);
    }

    /// Makes `entries` visible. They replace all entries from their first index on.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let start = first.index;
        assert!(start > self.begin && start <= self.end(), "invariant: an append leaves no gap in the log");
        assert_eq!(last.index - start + 1, entries.len() as u64, "invariant: indexes rise by one");
        let kept = (start - self.begin - 1) as usize;
        let term_before = kept.checked_sub(1).map_or(self.begin_term, |previous| self.entries[previous].term);
        assert!(
            term_before <= first.term && first.term <= last.term,
            "invariant: the terms of entries never decrease"
        );
        self.data_bytes -= data_bytes(self.entries.drain(kept..));
        self.data_bytes += data_bytes(entries.iter());
        self.entries.extend(entries.iter().cloned());
    }

    /// The entry at `index`, if it is in memory.
    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        self.entries.get(index.checked_sub(self.begin + 1)? as usize)
    }

    /// Index of the last entry, or of the last one in the snapshot that the log follows.
    pub(super) fn last(&self) -> u64 {
        self.end() - 1
    }

    /// Index of the last entry in the newest durable snapshot; 0 without one.
    fn snapshot_index(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |(id, _)| id.index.0)
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
        Ok(self.last())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ShardId, Term};

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, ..Entry::default() }
    }

    fn snapshot(index: u64) -> SnapshotId {
        SnapshotId { shard: ShardId(1), index: LogIndex(index), term: Term(2) }
    }

    fn log_of(entries: &[Entry]) -> LogStore {
        let entries = entries.iter().cloned().collect();
        LogStore::new(HardState::default(), ConfState::default(), Some(snapshot(3)), entries)
    }

    /// Entries 4 to 6 of terms 2, 3 and 3, after a snapshot of entry 3.
    fn log() -> LogStore {
        log_of(&[entry(4, 2), entry(5, 3), entry(6, 3)])
    }

    #[test]
    fn appended_entries_replace_all_from_their_first_index_on() {
        let mut log = log();
        log.append(&[entry(5, 4), entry(6, 4), entry(7, 5)]);
        assert_eq!((log.begin(), log.last(), log.entry(6).map(|entry| entry.term)), (3, 7, Some(4)));
        log.append(&[entry(6, 6)]);
        assert_eq!(log.last(), 6);
        log.offer_snapshot(snapshot(5), ConfState::default());
        log.cut(5);
        assert_eq!((log.begin(), log.last(), log.term(5)), (5, 6, Ok(4)));
        log.restart(snapshot(9));
        assert_eq!((log.begin(), log.last(), log.term(9)), (9, 9, Ok(2)));
    }

    #[test]
    #[should_panic(expected = "invariant: a recovered log follows its snapshot")]
    fn a_recovered_log_has_no_gap_after_its_snapshot() {
        log_of(&[entry(5, 2)]);
    }

    #[test]
    #[should_panic(expected = "invariant: indexes rise by one")]
    fn a_recovered_log_has_no_gap_inside() {
        log_of(&[entry(4, 2), entry(6, 2)]);
    }

    #[test]
    #[should_panic(expected = "invariant: an append leaves no gap in the log")]
    fn entries_after_a_gap_are_not_appended() {
        log().append(&[entry(8, 3)]);
    }

    #[test]
    #[should_panic(expected = "invariant: indexes rise by one")]
    fn entries_with_a_gap_inside_are_not_appended() {
        log().append(&[entry(7, 3), entry(9, 3)]);
    }

    #[test]
    #[should_panic(expected = "invariant: the terms of entries never decrease")]
    fn an_entry_of_an_earlier_term_is_not_appended() {
        log().append(&[entry(7, 2)]);
    }

    #[test]
    #[should_panic(expected = "invariant: the terms of entries never decrease")]
    fn an_entry_of_a_term_before_the_snapshot_is_not_appended() {
        log().append(&[entry(4, 1)]);
    }

    #[test]
    #[should_panic(expected = "invariant: the log is cut only up to a durable snapshot")]
    fn entries_in_no_snapshot_are_not_cut() {
        log().cut(4);
    }

    #[test]
    #[should_panic(expected = "invariant: a newer snapshot replaces an older one")]
    fn an_older_snapshot_is_not_offered() {
        log().offer_snapshot(snapshot(3), ConfState::default());
    }

    #[test]
    #[should_panic(expected = "invariant: a log restarts after its beginning")]
    fn a_log_does_not_restart_before_its_beginning() {
        log().restart(snapshot(3));
    }

    #[test]
    #[should_panic(expected = "invariant: the engine asks only for entries it appended")]
    fn entries_after_the_end_cannot_be_read() {
        let _ = log().entries(6, 8, None, GetEntriesContext::empty(false));
    }
}
