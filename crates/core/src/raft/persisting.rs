//! `Ready`s that wait for the disk, and the hard state that a restart would find.
//!
//! Owns which term and vote are durable, and in which order waiting `Ready`s are released.
//! [`super::ready`] decides what waits, and sends the messages when they are released.
//!
//! Invariants, asserted here:
//! - A written hard state continues the one before it: the term and the commit index never
//!   decrease, and a vote is kept for the rest of its term.
//! - `Ready`s are released in the order in which they were written.
//! - A message leaves only when its term, and the vote that it gives or asks for, are durable.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use raft::eraftpb::{Message, MessageType};

use crate::storage::HardState;
use crate::types::{LogIndex, ReplicaId, Term, WalSequence};

/// The `Ready`s of a group that wait for the disk.
#[derive(Default)]
pub(super) struct Persisting {
    waiting: VecDeque<Waiting>,
    /// The hard state of the last released `Ready`. A reply that depends on nothing but its term
    /// need not wait.
    durable_state: HardState,
    /// The last hard state written, and its batch.
    written: Option<(HardState, WalSequence)>,
    /// All batches up to this one are durable.
    durable: WalSequence,
    /// Once this batch is durable, a restart does not forget that the membership change at this
    /// index is committed.
    remembering: Option<(WalSequence, LogIndex)>,
    /// A restart does not forget that membership changes up to here are committed.
    remembered: LogIndex,
    /// The first entry of the present `Ready` that is not passed to the disk yet.
    first_unwritten: Option<LogIndex>,
}

/// A `Ready` that waits for its batch.
pub(super) struct Waiting {
    pub(super) ready_number: u64,
    /// The messages to send when the batch is durable.
    pub(super) messages: Vec<Message>,
    sequence: WalSequence,
    state: HardState,
}

impl Persisting {
    /// The initial state after a start, with the hard state on the disk.
    pub(super) fn new(durable_state: HardState) -> Persisting {
        Persisting { durable_state, remembered: durable_state.commit, ..Persisting::default() }
    }

    /// The entries of a `Ready` begin here; `None` once they are passed to the disk.
    pub(super) fn begin_entries(&mut self, first: Option<LogIndex>) {
        self.first_unwritten = first;
    }

    /// A commit index that is written now must be below this one: the disk may hold other entries
    /// from here on, or none.
    pub(super) fn first_unwritten(&self) -> Option<LogIndex> {
        self.first_unwritten
    }

    /// The last hard state written, or the recovered one.
    pub(super) fn last_state(&self) -> HardState {
        self.written.map_or(self.durable_state, |(state, _)| state)
    }

    /// The batch of the last written `Ready`, if it still waits.
    pub(super) fn last_sequence(&self) -> Option<WalSequence> {
        self.waiting.back().map(|waiting| waiting.sequence)
    }

    /// Records that `state` goes to the disk with batch `sequence`. Returns `false` if it was
    /// written before and need not be written again.
    pub(super) fn write(&mut self, state: HardState, sequence: WalSequence) -> bool {
        if self.written.is_some_and(|(written, _)| written == state) {
            return false;
        }
        let before = self.last_state();
        assert!(state.term >= before.term, "invariant: the term never decreases");
        assert!(
            state.term > before.term || before.vote.is_none() || state.vote == before.vote,
            "invariant: a replica votes once in a term"
        );
        assert!(state.commit >= before.commit, "invariant: the commit index never decreases");
        self.written = Some((state, sequence));
        true
    }

    /// Adds a `Ready` that waits until batch `sequence` is durable.
    pub(super) fn push(&mut self, sequence: WalSequence, ready_number: u64, messages: Vec<Message>) {
        if let Some(last) = self.waiting.back() {
            assert!(
                last.sequence <= sequence && last.ready_number < ready_number,
                "invariant: `Ready`s are written in order"
            );
        }
        let state = self.last_state();
        self.waiting.push_back(Waiting { ready_number, messages, sequence, state });
    }

    /// Records that all batches up to `sequence` are durable.
    pub(super) fn sequence_durable(&mut self, sequence: WalSequence) {
        self.durable = sequence;
        if let Some((_, index)) = self.remembering.take_if(|(batch, _)| *batch <= sequence) {
            self.remember(index);
        }
    }

    /// Takes the next `Ready` whose batch is durable.
    pub(super) fn next_durable(&mut self) -> Option<Waiting> {
        if self.waiting.front()?.sequence > self.durable {
            return None;
        }
        let waiting = self.waiting.pop_front()?;
        self.durable_state = waiting.state;
        Some(waiting)
    }

    /// Remembers the membership change at `index` once the last written hard state is durable.
    pub(super) fn remember_when_durable(&mut self, index: LogIndex) {
        let Some((_, batch)) = self.written else { return };
        self.remembering = Some((batch, index));
        self.sequence_durable(self.durable);
    }

    /// A restart does not forget that membership changes up to `index` are committed.
    pub(super) fn remember(&mut self, index: LogIndex) {
        self.remembered = self.remembered.max(index);
    }

    /// Membership changes up to here are known to be committed, also after a restart.
    pub(super) fn remembered(&self) -> LogIndex {
        self.remembered
    }

    /// Whether nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a message that depends on this term alone may be sent.
    pub(super) fn is_durable(&self, term: Term) -> bool {
        term == self.durable_state.term
    }

    /// Asserts that a restart could not make this replica contradict `message`, which leaves now.
    pub(super) fn assert_durable(&self, message: &Message) {
        let HardState { term, vote, .. } = self.durable_state;
        let voted_for = match message.get_msg_type() {
            // They promise nothing, and their term is one that the sender has not begun.
            MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse => return,
            MessageType::MsgRequestVote => Some(message.from),
            MessageType::MsgRequestVoteResponse if !message.reject => Some(message.to),
            _ => None,
        };
        assert!(message.term <= term.0, "invariant: a message leaves only when its term is durable");
        assert!(
            message.term < term.0 || voted_for.is_none_or(|replica| vote == Some(ReplicaId(replica))),
            "invariant: a message leaves only when its vote is durable"
        );
    }
}

/// Asserts that `messages` acknowledge no entry after `last`, the last one that was passed to the
/// disk. An acknowledgement of a term before `term` may name an entry that was replaced since. Only
/// a deposed leader counts it.
pub(super) fn assert_acknowledges_up_to(messages: &[Message], last: LogIndex, term: Term) {
    for message in messages {
        let acknowledges = message.get_msg_type() == MessageType::MsgAppendResponse
            && !message.reject
            && message.term == term.0;
        assert!(
            !acknowledges || message.index <= last.0,
            "invariant: only entries that were passed to the disk are acknowledged"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn state(term: u64, vote: u64, commit: u64) -> HardState {
        let vote = (vote > 0).then_some(ReplicaId(vote));
        HardState { term: Term(term), vote, commit: LogIndex(commit) }
    }

    fn message(kind: MessageType, term: u64, to: u64) -> Message {
        let mut message = Message { from: 1, to, term, ..Message::default() };
        message.set_msg_type(kind);
        message
    }

    /// In term 5 with a vote for replica 2; entries up to 7 are known to be committed.
    fn persisting() -> Persisting {
        Persisting::new(state(5, 2, 7))
    }

    #[test]
    fn a_written_state_is_durable_when_its_batch_is() {
        let mut persisting = persisting();
        assert!(persisting.write(state(6, 3, 7), WalSequence(4)));
        assert!(!persisting.write(state(6, 3, 7), WalSequence(5)), "it was written already");
        persisting.push(WalSequence(4), 1, vec![message(MessageType::MsgRequestVoteResponse, 6, 3)]);
        persisting.sequence_durable(WalSequence(3));
        assert!(persisting.next_durable().is_none() && persisting.is_durable(Term(5)));
        persisting.sequence_durable(WalSequence(4));
        let waiting = persisting.next_durable().expect("its batch is durable");
        waiting.messages.iter().for_each(|message| persisting.assert_durable(message));
        assert!(persisting.is_durable(Term(6)) && persisting.is_idle());
    }

    #[test]
    fn what_promises_nothing_more_than_the_disk_holds_may_leave() {
        let persisting = persisting();
        for message in [
            message(MessageType::MsgAppendResponse, 5, 2),
            message(MessageType::MsgRequestVoteResponse, 5, 2),
            // The vote of an earlier term is over.
            message(MessageType::MsgRequestVoteResponse, 4, 3),
            message(MessageType::MsgRequestPreVote, 6, 3),
            message(MessageType::MsgRequestPreVoteResponse, 6, 3),
            message(MessageType::MsgReadIndex, 0, 3),
        ] {
            persisting.assert_durable(&message);
        }
        let mut refusal = message(MessageType::MsgRequestVoteResponse, 5, 3);
        refusal.reject = true;
        persisting.assert_durable(&refusal);
    }

    #[test]
    #[should_panic(expected = "invariant: the term never decreases")]
    fn a_term_that_decreases_is_not_written() {
        persisting().write(state(4, 2, 7), WalSequence(1));
    }

    #[test]
    #[should_panic(expected = "invariant: a replica votes once in a term")]
    fn another_vote_in_the_same_term_is_not_written() {
        persisting().write(state(5, 3, 7), WalSequence(1));
    }

    #[test]
    #[should_panic(expected = "invariant: the commit index never decreases")]
    fn a_commit_index_that_decreases_is_not_written() {
        persisting().write(state(6, 3, 6), WalSequence(1));
    }

    #[test]
    #[should_panic(expected = "invariant: `Ready`s are written in order")]
    fn an_earlier_batch_does_not_follow_a_later_one() {
        let mut persisting = persisting();
        persisting.push(WalSequence(4), 1, vec![]);
        persisting.push(WalSequence(3), 2, vec![]);
    }

    #[test]
    #[should_panic(expected = "invariant: a message leaves only when its term is durable")]
    fn a_message_of_a_term_that_is_not_durable_does_not_leave() {
        let mut persisting = persisting();
        persisting.write(state(6, 0, 7), WalSequence(4));
        persisting.assert_durable(&message(MessageType::MsgAppendResponse, 6, 3));
    }

    #[test]
    #[should_panic(expected = "invariant: a message leaves only when its vote is durable")]
    fn a_vote_that_is_not_durable_does_not_leave() {
        persisting().assert_durable(&message(MessageType::MsgRequestVoteResponse, 5, 3));
    }

    #[test]
    #[should_panic(expected = "invariant: a message leaves only when its vote is durable")]
    fn a_candidate_asks_for_no_vote_before_its_own_is_durable() {
        persisting().assert_durable(&message(MessageType::MsgRequestVote, 5, 2));
    }

    #[test]
    fn entries_up_to_the_end_of_the_log_are_acknowledged() {
        let mut later = message(MessageType::MsgAppendResponse, 5, 2);
        later.index = 9;
        let mut refusal = later.clone();
        refusal.reject = true;
        assert_acknowledges_up_to(&[later.clone(), refusal.clone()], LogIndex(9), Term(5));
        assert_acknowledges_up_to(&[refusal], LogIndex(8), Term(5));
        assert_acknowledges_up_to(&[later], LogIndex(8), Term(6));
    }

    #[test]
    #[should_panic(expected = "invariant: only entries that were passed to the disk are acknowledged")]
    fn entries_after_the_end_of_the_log_are_not_acknowledged() {
        let mut message = message(MessageType::MsgAppendResponse, 5, 2);
        message.index = 9;
        assert_acknowledges_up_to(&[message], LogIndex(8), Term(5));
    }
}
