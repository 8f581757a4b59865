//! What a replica has applied: the state machine, and the entry that it has reached.
//!
//! Owns the order: entries are applied one after another, and a snapshot replaces only an older
//! state. [`super::ready`] decides which entries are applied, [`super::snapshots`] which snapshot
//! is installed.

use crate::command::{ShardError, Write, WriteReply};
use crate::deliberate::Faults;
use crate::machine::Machine;
use crate::storage::snapshot::SnapshotId;
use crate::types::{LogIndex, ShardId, Term};

/// The applied state of a replica.
pub(super) struct Applied {
    machine: Machine,
    index: LogIndex,
    term: Term,
    faults: Faults,
}

impl Applied {
    /// The state after the last entry of `snapshot`, or the initial state without one.
    pub(super) fn new(mut machine: Machine, snapshot: Option<SnapshotId>, faults: Faults) -> Applied {
        let (index, term) = snapshot.map_or_else(Default::default, |id| (id.index, id.term));
        machine.set_faults(faults);
        Applied { machine, index, term, faults }
    }

    /// The last applied entry.
    pub(super) fn index(&self) -> LogIndex {
        self.index
    }

    /// The term of the last applied entry.
    pub(super) fn term(&self) -> Term {
        self.term
    }

    /// The identity of a snapshot of this state.
    pub(super) fn id(&self, shard: ShardId) -> SnapshotId {
        SnapshotId { shard, index: self.index, term: self.term }
    }

    /// The state machine.
    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The state machine, for what does not change the replicated state: snapshots, and copies of
    /// slots.
    pub(super) fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Advances to the next entry, whose writes are applied with [`Applied::write`].
    ///
    /// # Panics
    ///
    /// If the entry does not follow the last one.
    pub(super) fn advance(&mut self, index: LogIndex, term: Term) {
        assert_eq!(index, self.index.next(), "invariant: entries are applied in order, once");
        assert!(term >= self.term, "invariant: the terms of applied entries never decrease");
        (self.index, self.term) = (index, term);
    }

    /// Applies a write of the current entry. Unless `is_answered`, the reply may be incomplete.
    pub(super) fn write(&mut self, write: Write, is_answered: bool) -> Result<WriteReply, ShardError> {
        self.machine.apply_for(self.index, write, is_answered)
    }

    /// Replaces the state by that of a snapshot, and returns the old state.
    ///
    /// # Panics
    ///
    /// If the snapshot is not newer.
    pub(super) fn install(&mut self, id: SnapshotId, machine: Machine) -> Machine {
        self.assert_newer(id);
        (self.index, self.term) = (id.index, id.term);
        self.overwrite(machine)
    }

    /// Asserts that a snapshot is newer than this state.
    pub(super) fn assert_newer(&self, id: SnapshotId) {
        assert!(id.index > self.index, "invariant: a snapshot never replaces newer state");
    }

    /// Replaces the state machine but not the position. Only a deliberate fault does this alone.
    pub(super) fn overwrite(&mut self, mut machine: Machine) -> Machine {
        machine.set_faults(self.faults);
        core::mem::replace(&mut self.machine, machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::founding::Founding;

    const SHARD: ShardId = ShardId(1);

    fn id(index: u64) -> SnapshotId {
        SnapshotId { shard: SHARD, index: LogIndex(index), term: Term(3) }
    }

    /// The state after entry 5 of term 3.
    fn applied() -> Applied {
        Applied::new(Machine::new(SHARD, &Founding::new(1, 1)), Some(id(5)), Faults::NONE)
    }

    #[test]
    fn entries_and_newer_snapshots_move_the_state_forward() {
        let mut applied = applied();
        applied.advance(LogIndex(6), Term(3));
        applied.advance(LogIndex(7), Term(5));
        assert_eq!((applied.index(), applied.term()), (LogIndex(7), Term(5)));
        applied.install(id(9), Machine::new(SHARD, &Founding::new(1, 1)));
        assert_eq!(applied.id(SHARD), id(9));
    }

    #[test]
    #[should_panic(expected = "invariant: entries are applied in order, once")]
    fn an_entry_is_not_skipped() {
        applied().advance(LogIndex(7), Term(3));
    }

    #[test]
    #[should_panic(expected = "invariant: entries are applied in order, once")]
    fn an_entry_is_not_applied_twice() {
        applied().advance(LogIndex(5), Term(3));
    }

    #[test]
    #[should_panic(expected = "invariant: the terms of applied entries never decrease")]
    fn an_entry_of_an_earlier_term_is_not_applied() {
        applied().advance(LogIndex(6), Term(2));
    }

    #[test]
    #[should_panic(expected = "invariant: a snapshot never replaces newer state")]
    fn a_snapshot_of_the_same_entry_is_not_installed() {
        applied().install(id(5), Machine::new(SHARD, &Founding::new(1, 1)));
    }
}
