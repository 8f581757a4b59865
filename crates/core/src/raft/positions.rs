//! The term of a replica and its positions in the log, checked after every step.
//!
//! Owns the order of the positions. The engine computes most of them, so this holds it to its
//! contract: a violation would answer clients from entries that can still be replaced.

use crate::types::{LogIndex, Term};

/// The term and the positions of one replica at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Positions {
    pub(super) term: Term,
    /// The last entry that is applied, and durable here.
    pub(super) applied_and_durable: LogIndex,
    /// The last applied entry.
    pub(super) applied: LogIndex,
    /// The last entry known to be committed.
    pub(super) committed: LogIndex,
    /// The last entry in the log.
    pub(super) last: LogIndex,
}

impl Positions {
    /// Advances to the positions `now`. Only the end of the log may move back, when a new leader
    /// replaces entries.
    ///
    /// # Panics
    ///
    /// If another position moves back, or their order is wrong.
    pub(super) fn advance(&mut self, now: Positions) {
        assert!(now.term >= self.term, "invariant: the term never decreases");
        assert!(now.committed >= self.committed, "invariant: the commit index never decreases");
        assert!(now.applied >= self.applied, "invariant: the applied index never decreases");
        assert!(
            now.applied_and_durable >= self.applied_and_durable,
            "invariant: a restart finds what was applied and durable"
        );
        assert!(now.committed <= now.last, "invariant: the log holds every committed entry");
        assert!(now.applied <= now.committed, "invariant: only committed entries are applied");
        assert!(
            now.applied_and_durable <= now.applied,
            "invariant: an entry counts as applied and durable only when it is applied"
        );
        *self = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Advances from sample positions to `[term, applied and durable, applied, committed, last]`.
    fn advance(to: [u64; 5]) {
        let positions = |[term, applied_and_durable, applied, committed, last]: [u64; 5]| Positions {
            term: Term(term),
            applied_and_durable: LogIndex(applied_and_durable),
            applied: LogIndex(applied),
            committed: LogIndex(committed),
            last: LogIndex(last),
        };
        let mut now = positions([3, 5, 6, 7, 9]);
        now.advance(positions(to));
        assert_eq!(now, positions(to));
    }

    #[test]
    fn all_positions_may_stay_or_rise_and_the_end_of_the_log_may_move_back() {
        for to in [[3, 5, 6, 7, 9], [4, 5, 6, 7, 7], [4, 12, 12, 12, 12], [3, 6, 7, 8, 9]] {
            advance(to);
        }
    }

    #[test]
    #[should_panic(expected = "invariant: the term never decreases")]
    fn a_lower_term_is_a_bug() {
        advance([2, 5, 6, 7, 9]);
    }

    #[test]
    #[should_panic(expected = "invariant: the commit index never decreases")]
    fn a_lower_commit_index_is_a_bug() {
        advance([3, 5, 6, 6, 9]);
    }

    #[test]
    #[should_panic(expected = "invariant: the applied index never decreases")]
    fn a_lower_applied_index_is_a_bug() {
        advance([3, 5, 5, 7, 9]);
    }

    #[test]
    #[should_panic(expected = "invariant: a restart finds what was applied and durable")]
    fn a_lower_durable_index_is_a_bug() {
        advance([3, 4, 6, 7, 9]);
    }

    #[test]
    #[should_panic(expected = "invariant: the log holds every committed entry")]
    fn a_commit_index_after_the_end_of_the_log_is_a_bug() {
        advance([3, 5, 6, 10, 9]);
    }

    #[test]
    #[should_panic(expected = "invariant: only committed entries are applied")]
    fn an_applied_index_after_the_commit_index_is_a_bug() {
        advance([3, 5, 8, 7, 9]);
    }

    #[test]
    #[should_panic(expected = "invariant: an entry counts as applied and durable only when it is applied")]
    fn a_durable_index_after_the_applied_one_is_a_bug() {
        advance([3, 7, 6, 7, 9]);
    }
}
